"""Formulas: the columns that one would write by hand, also for new rows."""

import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest

import bayesmtfs as bm
from bayesmtfs import TaskData
from bayesmtfs.types import DataWarning

pytest.importorskip("formulae")


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    df = pd.DataFrame({"age": rng.uniform(0, 3, 60), "sex": rng.choice(["f", "m", "x"], 60), "school": list("ab") * 30})
    return df.assign(score=df["age"] + (df["sex"] == "m") + 0.1 * rng.standard_normal(60))


def by_hand(df, mean):
    return np.column_stack([df["age"], df["sex"] == "m", df["sex"] == "x", (df["age"] - mean) ** 2])


FORMULA = "score ~ age + C(sex) + I(center(age) ** 2)"


def test_columns_are_those_written_by_hand(frame):
    data = TaskData.from_formula(FORMULA, frame, task="school")
    own = np.argsort(frame["school"], kind="stable")
    np.testing.assert_allclose(data.X, by_hand(frame, frame["age"].mean())[own])
    assert data.task_names.tolist() == ["a", "b"] and data.y.tolist() == frame["score"][own].tolist()
    assert data.groups[1] == data.groups[2] and len(set(data.groups.tolist())) == 3
    assert data.feature_names[1] == "C(sex)[m]"


@pytest.mark.parametrize("library", [lambda df: df, pl.from_pandas])
def test_new_rows_have_the_coding_of_the_fit(frame, library):
    model = bm.MixedNormRegressor(penalty_strength=0.01).fit(TaskData.from_formula(FORMULA, frame, task="school"))
    new = frame[frame["sex"] != "m"].iloc[:7]  # another mean, and a level less
    expected = (by_hand(new, frame["age"].mean()) * model.coef_[(new["school"] == "b").astype(int)]).sum(axis=1)
    expected += model.intercept_[(new["school"] == "b").astype(int)]
    found = model.predict(library(new.drop(columns="score")), tasks=new["school"])
    np.testing.assert_allclose(found, expected)


def test_a_fit_from_a_file_takes_rows_that_were_coded(frame, tmp_path):
    data = TaskData.from_formula(FORMULA, frame, task="school")
    model = bm.MixedNormRegressor(penalty_strength=0.01).fit(data)
    model.save(tmp_path / "fit")
    coded = data.encoding.code(frame)
    found = bm.load(tmp_path / "fit").predict(coded, tasks=frame["school"])
    np.testing.assert_array_equal(found, model.predict(frame, tasks=frame["school"]))


def test_rows_without_a_target_are_left_out_and_labels_stay(frame):
    frame.loc[[0, 5], "score"] = np.nan
    with pytest.warns(DataWarning, match="2 of 60 rows"):
        assert TaskData.from_formula("score ~ age", frame).n_observations == 58
    assert set(TaskData.from_formula("sex ~ age", frame).y.tolist()) == {"f", "m", "x"}


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("score ~ height", "height"),
        ("score", "before a ~"),
        ("score ~ 1", "no features"),
        ("score ~ age + (1|school)", "task="),
        ("score ~ age +", "cannot be read"),
    ],
)
def test_what_cannot_be_read_is_said(frame, formula, message):
    with pytest.raises(ValueError, match=message):
        TaskData.from_formula(formula, frame)


def test_missing_values_unseen_levels_and_the_missing_package(frame, monkeypatch):
    with pytest.raises(ValueError, match="cannot be read"):
        TaskData.from_formula("score ~ age", frame.assign(age=frame["age"].mask(frame.index == 3)))
    model = bm.MixedNormRegressor(penalty_strength=0.01).fit(TaskData.from_formula("score ~ C(sex)", frame))
    with pytest.raises(ValueError, match="does not go with these rows"):
        model.predict(frame.assign(sex="other"))
    monkeypatch.setitem(sys.modules, "formulae", None)
    with pytest.raises(ImportError, match=r"bayesmtfs\[formula\]"):
        TaskData.from_formula("score ~ age", frame)
