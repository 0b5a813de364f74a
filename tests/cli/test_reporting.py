"""``bayesmtfs report`` and ``bayesmtfs datasets``."""

import json


def test_report_of_several_fits(bayesmtfs, fitted, tmp_path):
    page = tmp_path / "page.html"
    result = bayesmtfs("report", fitted, fitted / "model.bayesmtfs", "--out", page, "--title", "Two fits")
    assert result.exit_code == 0, result.output
    assert "Side by side" in page.read_text(encoding="utf-8")
    again = bayesmtfs("report", fitted, "--out", page)
    assert again.exit_code == 1 and "--force" in again.stderr


def test_data_sets_are_listed(bayesmtfs):
    listed = json.loads(bayesmtfs("datasets", "--json").stdout)["files"]
    assert {"school", "landmine", "usps"} <= {item["name"] for item in listed}
    assert bayesmtfs("datasets").exit_code == 0
