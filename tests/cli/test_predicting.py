"""``bayesmtfs predict``."""

import warnings

import numpy as np
import pandas as pd

import bayesmtfs as bm
from bayesmtfs.cli.predict import predicted_columns


def test_predictions_are_those_of_the_model(bayesmtfs, fitted, table, frame, tmp_path):
    result = bayesmtfs("predict", fitted, table, "--out", tmp_path / "p.csv")
    assert result.exit_code == 0, result.output
    model = bm.load(fitted / "model.bayesmtfs")
    expected = model.predict(frame[[*(f"g{i}" for i in range(6)), "school"]])
    written = pd.read_csv(tmp_path / "p.csv")
    np.testing.assert_allclose(written["prediction"], expected, atol=1e-10)
    assert written["school"].tolist() == frame["school"].tolist()


def test_missing_columns_unknown_tasks_and_foreign_files(bayesmtfs, fitted, frame, tmp_path):
    frame.drop(columns="g3").to_csv(tmp_path / "few.csv", index=False)
    assert "'g3'" in bayesmtfs("predict", fitted, tmp_path / "few.csv", "--out", tmp_path / "p.csv").stderr
    frame.assign(school="elsewhere").to_csv(tmp_path / "new.csv", index=False)
    unknown = bayesmtfs("predict", fitted, tmp_path / "new.csv", "--out", tmp_path / "p.csv")
    assert unknown.exit_code == 1 and "elsewhere" in unknown.stderr and "pass --unknown-task mean" in unknown.stderr
    average = bayesmtfs(
        "predict", fitted, tmp_path / "new.csv", "--unknown-task", "mean", "--out", tmp_path / "mean.csv"
    )
    assert average.exit_code == 0 and set(pd.read_csv(tmp_path / "mean.csv")["school"]) == {"elsewhere"}
    nothing = bayesmtfs("predict", tmp_path, tmp_path / "new.csv", "--out", tmp_path / "p.csv")
    assert nothing.exit_code == 1 and "holds no model.bayesmtfs" in nothing.stderr
    foreign = bayesmtfs("predict", tmp_path / "few.csv", tmp_path / "new.csv", "--out", tmp_path / "p.csv")
    assert foreign.exit_code == 1 and "Traceback" not in foreign.output
    assert not (tmp_path / "p.csv").exists()


def test_rows_probabilities_and_score(bayesmtfs, fitted, table, frame, tmp_path):
    result = bayesmtfs("predict", fitted, table, "--out", tmp_path / "p.csv")
    rows = frame[[*(f"g{i}" for i in range(6)), "school"]]
    score = bm.load(fitted / "model.bayesmtfs").score(rows, frame["score"])
    assert pd.read_csv(tmp_path / "p.csv")["row"].tolist() == list(range(1, 91)) and f"R2: {score:.4g}" in result.output
    frame.drop(columns="score").to_csv(tmp_path / "levels.csv", index=False)
    options = ["--target", "level", "--task", "school", "--penalty", "auto", "--out", tmp_path / "labels"]
    assert bayesmtfs("fit", tmp_path / "levels.csv", *options).exit_code == 0
    found = bayesmtfs("predict", tmp_path / "labels", tmp_path / "levels.csv", "--out", tmp_path / "l.csv")
    written = pd.read_csv(tmp_path / "l.csv")
    model = bm.load(tmp_path / "labels" / "model.bayesmtfs")
    expected = model.predict_proba(rows)
    np.testing.assert_allclose(written[["probability_high", "probability_low"]], expected, atol=1e-10)
    assert f"share of right labels: {np.mean(model.predict(rows) == frame['level']):.4g}" in found.output
    wrong = bayesmtfs("predict", fitted, table, "--target", "height", "--out", tmp_path / "w.csv")
    assert wrong.exit_code == 2 and "'height'" in wrong.stderr and not (tmp_path / "w.csv").exists()


def test_intervals_of_a_posterior(frame, tmp_path):
    rows = frame[[*(f"g{i}" for i in range(6)), "school"]]
    model = bm.BayesianRegressor(prior="generalized_normal", draws=100, tune=100, chains=2, task_column="school")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of short chains
        model.set_params(random_state=0).fit(rows, frame["score"])
    found = predicted_columns(model, rows)
    mean, low, high = model.predict(rows, interval=0.9)
    for name, expected in {"prediction": mean, "lower": low, "upper": high}.items():
        np.testing.assert_array_equal(found[name], expected)
