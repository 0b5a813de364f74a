"""``bayesmtfs report`` and ``bayesmtfs datasets``."""

import json

from bayesmtfs import reporting


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


def test_ctrl_c_ends_a_command_with_its_own_exit_code(bayesmtfs, fitted, tmp_path, monkeypatch):
    def pressed(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(reporting, "report", pressed)
    result = bayesmtfs("report", fitted, "--out", tmp_path / "page.html")
    assert result.exit_code == 130 and "Error: interrupted" in result.stderr
    assert not (tmp_path / "page.html").exists()
