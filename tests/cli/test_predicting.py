"""``bayesmtfs predict``."""

import numpy as np
import pandas as pd

import bayesmtfs as bm


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
