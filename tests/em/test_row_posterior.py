"""Whitened tasks; four ways to the posterior of the rows, against one dense system over everything."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

from bayesmtfs import TaskData
from bayesmtfs.em import row_posterior
from bayesmtfs.em.row_posterior import dense_designs, whiten
from bayesmtfs.em.task_relations import Relations


def problem(shape, seed=0):
    """Random tasks with own designs (rows per task) or one design (rows, tasks), and parameters."""
    rng = np.random.default_rng(seed)
    p = 5
    if isinstance(shape, list):
        tasks = np.repeat(np.arange(len(shape)), shape)
        data = TaskData.from_long(rng.standard_normal((len(tasks), p)), rng.standard_normal(len(tasks)), tasks)
    else:
        data = TaskData.from_wide(rng.standard_normal((shape[0], p)), rng.standard_normal(shape))
    whitened = whiten(data, dense_designs(data), data.y, data.weight, fit_intercept=True)
    factors = 0.4 * rng.standard_normal((data.n_tasks, 2))
    return SimpleNamespace(
        tasks=whitened,
        row_variances=rng.uniform(0.1, 2.0, p),
        precision=rng.uniform(0.5, 3.0, whitened.n_tasks),
        relations=Relations(factors),
    )


def dense_posterior(given, R):
    """The formulas of the module, with everything stacked: coefficient (i, t) is number i * m + t."""
    tasks, p, m = given.tasks, len(given.row_variances), given.tasks.n_tasks
    tau = given.precision
    designs = [np.sqrt(tau[t]) * tasks.separate().designs[t] for t in range(m)]
    A = np.zeros((tasks.n_rows, p * m))
    row = 0
    for t, X in enumerate(designs):
        A[row : row + len(X), t::m] = X
        row += len(X)
    y = np.concatenate([np.sqrt(tau[t]) * tasks.separate().targets[t][:, 0] for t in range(m)])
    K = np.kron(np.diag(given.row_variances), R)
    C = np.eye(len(y)) + A @ K @ A.T
    inverse = np.linalg.inv(C)
    Z = (A.T @ inverse @ A).reshape(p, m, p, m)
    leverage = 1.0 - np.diag(inverse)
    ends = np.cumsum([len(X) for X in designs])[:-1]
    return SimpleNamespace(
        log_det=np.linalg.slogdet(C)[1],
        quadratic=y @ inverse @ y,
        score=(A.T @ inverse @ y).reshape(p, m),
        curvature=np.stack([Z[i, :, i] for i in range(p)]),
        mean=(K @ A.T @ inverse @ y).reshape(p, m),
        degrees=np.array([part.sum() for part in np.split(leverage, ends)]),
        leverage=leverage,
    )


@pytest.mark.parametrize("shape", [[9, 4, 6], [3, 2, 4], (8, 3), (3, 3)], ids=str)
@pytest.mark.parametrize("way", ["_by_rows", "_by_features", "_related_by_rows", "_related_by_factors"])
def test_every_way_gives_the_same_posterior(way, shape):
    given = problem(shape)
    related = way.startswith("_related")
    arguments = [given.tasks, given.row_variances, given.precision]
    separate = given.tasks.n_designs == given.tasks.n_tasks
    found = getattr(row_posterior, way)(*arguments, *([given.relations] if related else []), separate)
    expected = dense_posterior(given, given.relations.matrix if related else np.eye(3))
    if not related:
        expected.curvature = np.diagonal(expected.curvature, axis1=1, axis2=2)
    for name in ("log_det", "quadratic", "score", "curvature", "mean", "degrees", *(["leverage"] if separate else [])):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), atol=1e-10, err_msg=name)
    assert separate or found.leverage is None


@pytest.mark.parametrize("n_active", [0, 1, 5])
def test_the_cheapest_way_is_chosen_and_no_feature_is_a_valid_answer(n_active):
    given = problem([9, 4, 6])
    features = np.arange(n_active)
    tasks = given.tasks.take(features)
    found = row_posterior.compute(tasks, given.row_variances[:n_active], given.precision, None)
    given.tasks, given.row_variances = tasks, given.row_variances[:n_active]
    expected = dense_posterior(given, np.eye(3)) if n_active else None
    if expected is None:
        assert found.log_det == 0
        assert found.quadratic == pytest.approx(given.precision @ tasks.target_squares)
    else:
        assert found.log_det == pytest.approx(expected.log_det)


# ---------------------------------------------------------------------- whitened tasks: centring, weights, shared designs


def long_data(seed=0, sizes=(6, 4, 5), p=3):
    rng = np.random.default_rng(seed)
    tasks = np.repeat(np.arange(len(sizes)), sizes)
    X = rng.standard_normal((len(tasks), p)) + 2.0
    return TaskData.from_long(X, rng.standard_normal(len(tasks)), tasks), rng.uniform(0.5, 2.0, len(tasks))


def test_moments_are_those_of_weighted_deviations_from_the_weighted_mean():
    data, factor = long_data()
    tasks = whiten(data, dense_designs(data), data.y, factor, fit_intercept=True)
    for t, (start, stop) in enumerate(data.spans):
        X, y, c = data.design[start:stop], data.y[start:stop], factor[start:stop]
        X, y = X - np.average(X, axis=0, weights=c), y - np.average(y, weights=c)
        np.testing.assert_allclose(tasks.grams[t], X.T @ (c[:, None] * X), atol=1e-12)
        np.testing.assert_allclose(tasks.products[t][:, 0], X.T @ (c * y), atol=1e-12)
        assert tasks.target_squares[t] == pytest.approx(np.sum(c * y**2))


def test_intercept_undoes_the_centring():
    data, factor = long_data()
    tasks = whiten(data, dense_designs(data), data.y, factor, fit_intercept=True)
    W = np.random.default_rng(1).standard_normal((3, 3))
    residual = data.y - data.linear_predictor(W, tasks.intercept(W))
    whitened = np.concatenate([r[:, 0] for r in tasks.residuals(W)])
    np.testing.assert_allclose(whitened, np.sqrt(factor) * residual, atol=1e-12)


def test_one_design_is_kept_once_and_can_be_separated():
    rng = np.random.default_rng(2)
    data = TaskData.from_wide(rng.standard_normal((7, 3)), rng.standard_normal((7, 4)))
    merged = whiten(data, dense_designs(data), data.y, data.weight, fit_intercept=True)
    assert (merged.n_designs, merged.n_tasks, merged.n_rows) == (1, 4, 28)
    apart = merged.separate()
    assert apart.n_designs == 4 and apart.designs[3] is apart.designs[0]
    W = rng.standard_normal((3, 4))
    np.testing.assert_allclose(apart.residual_squares(W), merged.residual_squares(W))
    np.testing.assert_array_equal(apart.column_squares, merged.column_squares)
    weights = np.arange(1.0, 29.0)
    assert whiten(data, dense_designs(data), data.y, weights, fit_intercept=True).n_designs == 4


def test_taking_features_keeps_known_moments():
    data, factor = long_data()
    tasks = whiten(data, dense_designs(data), data.y, factor, fit_intercept=False)
    fresh = tasks.take(np.array([2, 0])).grams
    known = tasks.grams[0]
    taken = tasks.take(np.array([2, 0]))
    assert "grams" in taken.__dict__
    np.testing.assert_allclose(taken.grams, fresh)
    assert taken.grams[0][0, 1] == known[2, 0]


def test_constant_columns_vanish_and_explain_nothing():
    data, factor = long_data()
    X = data.design.copy()
    X[:, 1] = 0.1
    tasks = whiten(data, tuple(X[a:b] for a, b in data.spans), data.y, factor, fit_intercept=True)
    assert (tasks.column_squares[1] == 0).all()
    weights = np.array([factor[a:b].sum() for a, b in data.spans])
    variances = tasks.explaining(weights, 3.0)
    assert variances[1] == 0
    np.testing.assert_allclose(np.delete(variances * np.mean(tasks.column_squares / weights, axis=1), 1), 3.0)


def test_a_large_sparse_design_is_refused(monkeypatch):
    monkeypatch.setattr(row_posterior, "LARGEST_DENSE", 100)
    data = TaskData.from_long(sp.random(20, 5, 0.2, format="csr", random_state=0), np.ones(20))
    with pytest.raises(ValueError, match=r"X is sparse with shape \(20, 5\).*; select features first"):
        dense_designs(data)
