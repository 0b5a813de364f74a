"""Levels, units, repeated rows and a rank-deficient design: what real tables have must not change what a fit says.

Predictions are compared in deviations of the targets. `EXCEPTIONS` in `conftest` has every estimator for which a property
does not hold, with the reason.
"""

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from bayesmtfs.types import ConvergenceWarning, DataWarning, PosteriorWarning, SelectionWarning

pytestmark = [
    pytest.mark.filterwarnings(f"ignore::bayesmtfs.types.{kind.__name__}")
    for kind in (ConvergenceWarning, DataWarning, PosteriorWarning, SelectionWarning)
]
LEVELS = {"ant": 0.0, "bee": 200.0, "cat": 0.0}
SHIFTS = {"ant": 30.0, "bee": -7.0, "cat": 512.0}
HOUR = 3600.0


def by_task(numbers, tasks):
    return np.array([numbers[task] for task in tasks])


def said(model: Any, X, tasks) -> dict[str, Any]:
    """What a fit says that no unit may change: predictions, probabilities of inclusion, order of the features."""
    found = {}
    if hasattr(model, "predict"):
        predict = model.decision_function if hasattr(model, "decision_function") else model.predict
        found["predictions"] = predict(X, tasks=tasks)
    else:
        found["scores"] = model.scores_
    for name in ("inclusion_probability_", "task_inclusion_probability_"):
        if hasattr(model, name):
            found[name] = getattr(model, name)
    return found


def assert_same(found, expected, scale, case):
    for name, values in expected.items():
        unit = scale if name == "predictions" else 1.0
        np.testing.assert_allclose(found[name] / unit, values / unit, atol=10 * case.atol, err_msg=name)


def test_a_level_of_one_task_moves_its_predictions_only(level_case, rows_of, fit):
    rows = rows_of(level_case)
    level = by_task(LEVELS, rows.tasks)
    expected = said(fit(level_case, rows), rows.X, rows.tasks)
    found = said(fit(level_case, rows._replace(y=rows.y + level)), rows.X, rows.tasks)
    found["predictions"] = found["predictions"] - level
    assert_same(found, expected, rows.y.std(), level_case)


def test_a_feature_with_another_level_in_each_task_is_the_same_feature(feature_level_case, rows_of, fit):
    rows = rows_of(feature_level_case)
    X = rows.X.copy()
    X[:, 1] += by_task(SHIFTS, rows.tasks)
    expected = said(fit(feature_level_case, rows), rows.X, rows.tasks)
    found = said(fit(feature_level_case, rows._replace(X=X)), X, rows.tasks)
    assert_same(found, expected, rows.y.std(), feature_level_case)


def test_seconds_are_hours(feature_unit_case, rows_of, fit):
    rows = rows_of(feature_unit_case)
    units = np.array([1.0, 1.0, HOUR, 1.0, 1.0])
    expected = said(fit(feature_unit_case, rows), rows.X, rows.tasks)
    found = said(fit(feature_unit_case, rows._replace(X=rows.X * units)), rows.X * units, rows.tasks)
    assert_same(found, expected, rows.y.std(), feature_unit_case)


def test_one_target_in_another_unit_is_the_same_target(target_unit_case, wide_rows):
    X, Y = wide_rows
    units = np.array([1.0, 1000.0, 1.0])
    first, second = (clone(target_unit_case.estimator).fit(X, Y * factor) for factor in (1.0, units))
    expected, found = said(first, X, None), said(second, X, None)
    found["predictions"] = found["predictions"] / units
    assert_same(found, expected, Y.std(axis=0), target_unit_case)
    assert (first.get_support() == second.get_support()).all()


def test_a_column_twice_predicts_the_same(rank_case, rows_of, fit):
    rows = rows_of(rank_case)
    X = rows.X[:, [0, 1, 2, 3, 4, 0]]
    expected = said(fit(rank_case, rows), rows.X, rows.tasks)["predictions"]
    found = said(fit(rank_case, rows._replace(X=X)), X, rows.tasks)["predictions"]
    assert np.sqrt(np.mean((found - expected) ** 2)) < 0.1 * np.sqrt(np.mean((expected - expected.mean()) ** 2))
