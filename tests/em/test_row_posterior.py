"""Four ways to the posterior of the rows, against one dense system over everything."""

from types import SimpleNamespace

import numpy as np
import pytest
from bayesmtfs.em.whitened_tasks import dense_designs, whiten

from bayesmtfs import TaskData
from bayesmtfs.em import row_posterior
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
        precision=rng.uniform(0.5, 3.0, whitened.n_designs),
        relations=Relations(factors),
    )


def dense_posterior(given, R):
    """The formulas of the module, with everything stacked: coefficient (i, t) is number i * m + t."""
    tasks, p, m = given.tasks, len(given.row_variances), given.tasks.n_tasks
    tau = np.repeat(given.precision, m // tasks.n_designs)
    designs = [np.sqrt(tau[t]) * tasks.design_of(t) for t in range(m)]
    A = np.zeros((tasks.n_rows, p * m))
    row = 0
    for t, X in enumerate(designs):
        A[row : row + len(X), t::m] = X
        row += len(X)
    y = np.concatenate([np.sqrt(tau[t]) * tasks.target_of(t) for t in range(m)])
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


def test_the_size_of_a_related_system_is_the_smaller_of_rows_and_factors():
    tasks = problem([9, 4, 6]).tasks
    assert row_posterior.system_size(tasks, 2) == 10
    assert row_posterior.system_size(tasks, 5) == 19
