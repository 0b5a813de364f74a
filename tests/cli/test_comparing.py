"""``bayesmtfs compare``."""

import json

import pandas as pd


def test_methods_are_judged_on_the_same_folds(bayesmtfs, table, tmp_path):
    options = ["--target", "score", "--task", "school", "--methods", "l12,jeffreys", "--folds", 3]
    result = bayesmtfs("compare", table, *options, "--out", tmp_path / "table.csv")
    assert result.exit_code == 0, result.output
    assert "l12" in result.output and "jeffreys" in result.output
    assert max(map(len, result.output.splitlines())) <= 80
    written = pd.read_csv(tmp_path / "table.csv")
    assert sorted(written["name"]) == ["jeffreys", "l12"] and (written["error"] > 0).all()
    answer = json.loads(bayesmtfs("compare", table, *options, "--json").stdout)
    assert [row["error"] for row in answer["methods"]] == written["error"].tolist()


def test_unknown_methods_are_named(bayesmtfs, table):
    result = bayesmtfs("compare", table, "--target", "score", "--methods", "magic")
    assert result.exit_code == 2 and "'magic'" in result.stderr
