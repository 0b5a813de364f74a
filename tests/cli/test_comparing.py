"""``bayesmtfs compare``."""

import json

import pandas as pd


def test_methods_are_judged_on_the_same_folds(bayesmtfs, table, tmp_path):
    options = ["--target", "score", "--task", "school", "--methods", "l12,jeffreys", "--folds", 3, "--baselines"]
    result = bayesmtfs("compare", table, *options, "--out", tmp_path / "table.csv")
    assert result.exit_code == 0, result.output
    assert "l12" in result.output and "jeffreys" in result.output
    assert max(map(len, result.output.splitlines())) <= 80
    written = pd.read_csv(tmp_path / "table.csv")
    assert sorted(written["name"]) == ["jeffreys", "l12", "lasso per task", "pooled lasso", "task mean"]
    assert (written["error"] > 0).all() and written.loc[written["name"] == "task mean", "r2"].item() < 0.1
    assert "R2" in result.output and "lasso per task" in result.output
    answer = json.loads(bayesmtfs("compare", table, *options, "--json").stdout)
    assert [row["error"] for row in answer["methods"]] == written["error"].tolist()


def test_unknown_methods_are_named(bayesmtfs, table):
    result = bayesmtfs("compare", table, "--target", "score", "--methods", "magic")
    assert result.exit_code == 2 and "'magic'" in result.stderr


def test_labels_have_areas_and_their_classes_are_counted(bayesmtfs, frame, tmp_path):
    frame.drop(columns="score").to_csv(tmp_path / "t.csv", index=False)
    options = ["--target", "level", "--task", "school", "--methods", "l12", "--folds", 3]
    result = bayesmtfs("compare", tmp_path / "t.csv", *options, "--no-baselines")
    assert result.exit_code == 0, result.output
    assert "AUC" in result.output and "pooled" not in result.output
    counts = frame["level"].value_counts()
    assert f"high {counts['high']} (50%), low {counts['low']} (50%); a positive effect speaks for low" in result.output


def test_methods_that_do_not_take_the_family_are_left_out(bayesmtfs, table):
    options = ["--target", "score", "--task", "school", "--family", "huber", "--folds", 2, "--no-baselines"]
    result = bayesmtfs("compare", table, *options)
    assert result.exit_code == 0, result.output
    assert "Left out, since they do not take such a target: jeffreys, matrix_variate." in " ".join(
        result.output.split()
    )
    asked = bayesmtfs("compare", table, *options, "--methods", "jeffreys")
    assert asked.exit_code == 1 and "does not have --family huber; use --route em" in " ".join(asked.stderr.split())
