"""What must not change a fit: the order of rows, tasks and features, how a repetition is written, seeds, threads."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import bayesmtfs as bm
from bayesmtfs.public_names import BASELINES, ESTIMATORS

pytestmark = [
    pytest.mark.filterwarnings("ignore::bayesmtfs.types.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::bayesmtfs.types.DataWarning"),
    pytest.mark.filterwarnings("ignore::bayesmtfs.types.PosteriorWarning"),
    pytest.mark.filterwarnings("ignore::bayesmtfs.types.SelectionWarning"),
]


def test_every_public_estimator_is_covered(covered_names):
    of_times = {
        "BayesianSurvival",
        "GeneralizedNormalSurvival",
        "MixedNormSurvival",
        "MixedNormSurvivalCV",
    }  # y is no number: they have tests of their own
    assert covered_names == (ESTIMATORS.keys() | BASELINES.keys()) - of_times


# ---------------------------------------------------------------------- order


def test_rows_in_another_order(row_order_case, rows_of, fit, answer):
    rows = rows_of(row_order_case)
    shuffled = rows.take(np.random.default_rng(0).permutation(len(rows.y)))
    np.testing.assert_allclose(
        answer(fit(row_order_case, shuffled)), answer(fit(row_order_case, rows)), atol=row_order_case.atol
    )


def test_tasks_with_other_names(task_order_case, rows_of, fit, answer):
    rows = rows_of(task_order_case)
    new_names = {"ant": "fox", "bee": "dog", "cat": "elk"}  # sorted: bee, cat, ant
    renamed = rows._replace(tasks=np.array([new_names[name] for name in rows.tasks]))
    expected = answer(fit(task_order_case, rows))
    if len(expected) > 1:
        expected = expected[[1, 2, 0]]
    np.testing.assert_allclose(answer(fit(task_order_case, renamed)), expected, atol=task_order_case.atol)


def test_features_in_another_order(unordered_case, rows_of, fit, answer):
    rows = rows_of(unordered_case)
    order = np.array([3, 0, 4, 1, 2])
    expected = answer(fit(unordered_case, rows))[:, [*order, 5]]
    turned = rows._replace(X=rows.X[:, order])
    np.testing.assert_allclose(answer(fit(unordered_case, turned)), expected, atol=unordered_case.atol)


# ---------------------------------------------------------------------- weights and gaps


def test_weight_two_is_a_row_twice(weighted_case, rows_of, fit, answer):
    rows = rows_of(weighted_case)
    count = np.random.default_rng(1).integers(1, 3, len(rows.y))
    repeated = fit(weighted_case, rows.take(np.repeat(np.arange(len(rows.y)), count)))
    weighted = fit(weighted_case, rows, sample_weight=count.astype(float))
    np.testing.assert_allclose(answer(weighted), answer(repeated), atol=weighted_case.atol)


def test_weight_zero_is_no_row(unordered_case, rows_of, fit, answer):
    rows = rows_of(unordered_case)
    kept = np.arange(len(rows.y)) % 6 != 0
    weighted = fit(unordered_case, rows, sample_weight=kept.astype(float))
    np.testing.assert_allclose(answer(weighted), answer(fit(unordered_case, rows.take(kept))), atol=unordered_case.atol)


def test_missing_cell_is_no_row(gaps_case, rows_of, fit, answer):
    """The wide form with gaps is the long form of what was observed, targets being scaled in neither or both."""
    rows = rows_of(gaps_case)
    params = {"scale_target": False} if "scale_target" in gaps_case.estimator.get_params() else {}
    X = rows.X[:30]
    Y = np.column_stack([rows.y[:30], rows.y[30:60], rows.y[:30][::-1]]).astype(float)
    observed = np.random.default_rng(2).random(Y.shape) < 0.8
    wide = rows._replace(X=X, y=np.where(observed, Y, np.nan), tasks=None)
    i, t = np.nonzero(observed)
    long = rows._replace(X=X[i], y=Y[i, t], tasks=t)
    found, expected = (answer(fit(gaps_case, form, **params)) for form in (wide, long))
    np.testing.assert_allclose(found, expected, atol=gaps_case.atol)


# ---------------------------------------------------------------------- tasks with different columns


def test_tasks_with_different_columns(predictor_case, rows_of, tmp_path):
    """A feature that a task does not have is 0 there, needs no column at predict, and stays absent in a file."""
    rows = rows_of(predictor_case)
    columns = {"ant": list("abcd"), "bee": list("bcde"), "cat": list("abcde")}
    whole = pd.DataFrame(rows.X, columns=list("abcde"))
    pairs = [(whole[own][rows.tasks == task], rows.y[rows.tasks == task]) for task, own in columns.items()]
    model = clone(predictor_case.estimator)
    if "MatrixVariate" in predictor_case.label:  # the mode of related rows needs all features
        model.set_params(coefficients="integrated", tol=1e-4)
    model.fit(bm.TaskData.from_list(pairs, task_names=list(columns)))
    absent = np.array([[name not in own for name in "abcde"] for own in columns.values()])
    np.testing.assert_array_equal(model.result_.absent, absent)
    if "Pooled" not in predictor_case.label:  # one set of coefficients for all tasks
        assert not model.coef_[absent].any()
    model.save(tmp_path / "model")
    loaded = bm.load(tmp_path / "model")
    gaps = whole.mask(absent[np.searchsorted(list(columns), rows.tasks)])
    together = model.predict(gaps, tasks=rows.tasks)
    np.testing.assert_array_equal(loaded.predict(gaps, tasks=rows.tasks), together)
    np.testing.assert_array_equal(loaded.result_.absent, absent)
    for task, (own, _) in zip(columns, pairs, strict=True):
        for fitted in (model, loaded):
            alone = fitted.predict(own, tasks=[task] * len(own))
            np.testing.assert_allclose(alone, together[rows.tasks == task], rtol=1e-9)


def test_offsets_of_tasks_move_their_intercepts_only(offset_case, rows_of, fit, answer):
    rows = rows_of(offset_case)
    expected = answer(fit(offset_case, rows))
    offset = np.array([32.0, 0.0, -64.0])
    moved = rows._replace(y=rows.y + offset[np.searchsorted(["ant", "bee", "cat"], rows.tasks)])
    found = answer(fit(offset_case, moved))
    found[:, -1] -= offset
    np.testing.assert_allclose(found, expected, atol=offset_case.atol)


# ---------------------------------------------------------------------- streams


def test_batches_are_row_by_row(stream_case, rows_of, answer):
    rows = rows_of(stream_case)
    more = {} if stream_case.regression else {"classes": [-1, 1]}
    # A round holds at most one row per task, so that with one task every row is a round however the rows are cut
    models = []
    for size in (1, 7, len(rows.y)):
        model = type(stream_case.estimator)(**stream_case.estimator.get_params())
        one_task = rows.take(rows.tasks == "bee")
        for start in range(0, len(one_task.y), size):
            part = one_task.take(slice(start, start + size))
            model.partial_fit(part.X, part.y, tasks=part.tasks, **more)
        models.append(answer(model))
    np.testing.assert_allclose(models[1], models[0], atol=1e-10)
    np.testing.assert_allclose(models[2], models[0], atol=1e-10)


# ---------------------------------------------------------------------- seeds, processes and threads


def test_same_seed_same_bits(any_case, rows_of, fit, answer):
    rows = rows_of(any_case)
    first, second = (answer(fit(any_case, rows)) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_two_jobs_give_the_bits_of_one(parallel_case, rows_of, fit, answer):
    rows = rows_of(parallel_case)
    np.testing.assert_array_equal(
        answer(fit(parallel_case, rows, n_jobs=2)), answer(fit(parallel_case, rows, n_jobs=1))
    )


def test_eight_threads_predict_at_once(predictor_case, rows_of, fit):
    rows = rows_of(predictor_case)
    model = fit(predictor_case, rows)
    expected = model.predict(rows.X, tasks=rows.tasks)
    fresh = fit(predictor_case, rows)  # nothing of it was built on demand yet
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: fresh.predict(rows.X, tasks=rows.tasks), range(16)))
    for found in answers:
        np.testing.assert_array_equal(found, expected)


# ---------------------------------------------------------------------- units


def test_a_scaled_feature_gives_a_scaled_coefficient(scaled_case, rows_of, fit, answer):
    """Where features are standardised, their units do not matter; powers of two are exact."""
    rows = rows_of(scaled_case)
    units = np.array([2.0**20, 0.25, 1.0, 2.0**-20, 8.0])
    expected = answer(fit(scaled_case, rows, standardize=True))
    found = answer(fit(scaled_case, rows._replace(X=rows.X * units), standardize=True))
    if hasattr(scaled_case.estimator, "predict"):
        found[:, :-1] *= units
    np.testing.assert_allclose(found, expected, atol=scaled_case.atol)


@pytest.mark.parametrize("unit", [2.0**-10, 2.0**10])
def test_a_scaled_target_gives_scaled_coefficients(unit_free_case, rows_of, fit, answer, unit):
    rows = rows_of(unit_free_case)
    expected = answer(fit(unit_free_case, rows))
    found = answer(fit(unit_free_case, rows._replace(y=rows.y * unit)))
    np.testing.assert_allclose(found / unit, expected, atol=unit_free_case.atol)


def test_a_shifted_target_moves_the_intercept_only(shifted_case, rows_of, fit, answer):
    rows = rows_of(shifted_case)
    expected = answer(fit(shifted_case, rows))
    found = answer(fit(shifted_case, rows._replace(y=rows.y + 8.0)))
    np.testing.assert_allclose(found - [0, 0, 0, 0, 0, 8.0], expected, atol=shifted_case.atol)
