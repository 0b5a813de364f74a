"""Newton systems of the interior-point method, against one dense matrix with all constraints in it."""

import numpy as np
import pytest

from bayesmtfs import TaskData
from bayesmtfs.convex.interior_point import (
    AllAtOnce,
    BreakdownError,
    FeatureSystems,
    NewtonSystem,
    ObservationSystem,
    Response,
    TaskByTask,
    WorkingColumns,
)
from bayesmtfs.convex.problem import Problem
from bayesmtfs.families import find_family
from bayesmtfs.priors import RowPenalty

SHAPES = {"few features": (40, 6), "many features": (12, 20), "more rows than observations": (6, 30)}


def make_columns(shape, n_tasks=3, groups=None, fit_intercept=True, sizes=None):
    n, p = SHAPES[shape]
    sizes = [n] * n_tasks if sizes is None else sizes
    X = np.random.default_rng(1).standard_normal((sum(sizes), p)) + 3.0
    data = TaskData.from_long(X, np.ones(len(X)), np.repeat(np.arange(len(sizes)), sizes), groups=groups)
    problem = Problem(data, find_family("absolute"), RowPenalty(1.0, 2), data.loss_weights("mean"), fit_intercept)
    return WorkingColumns(problem, np.arange(problem.blocks.n_rows))


def make_response(columns, coupled=True):
    rng = np.random.default_rng(2)
    shape = columns.blocks.gather(np.zeros((len(columns.features), columns.n_tasks))).shape
    own, shared = rng.uniform(0.1, 10.0, shape), coupled * rng.standard_normal(shape)
    return Response(own, shared, *np.zeros((3, *shape)), coupled * rng.uniform(1.0, 100.0, shape[0]))


def dense_solution(columns, E, response, f):
    """Solve for dual variables and intercepts at once."""
    n, m = len(E), columns.n_tasks
    own, shared = columns.blocks.scatter(response.own), columns.blocks.scatter(response.shared)
    lifted = np.zeros((n, len(columns.features) * m))  # every feature of every task
    for t, (X, (start, stop)) in enumerate(zip(columns.designs, columns.spans, strict=True)):
        lifted[start:stop, t::m] = X
    H = np.diag(own.ravel())
    for row, weight in enumerate(response.weight):
        direction = np.where((columns.row == row)[:, np.newaxis], shared, 0.0).ravel()
        H += weight * np.outer(direction, direction)
    matrix = np.diag(E) + lifted @ H @ lifted.T
    if not columns.fit_intercept:
        return np.linalg.solve(matrix, f)
    constants = np.zeros((n, m))
    for t, (start, stop) in enumerate(columns.spans):
        constants[start:stop, t] = 1.0
    bordered = np.block([[matrix, constants], [constants.T, np.zeros((m, m))]])
    return np.linalg.solve(bordered, np.concatenate([f, np.zeros(m)]))[:n]


@pytest.mark.parametrize("coupled", [True, False])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_solution_is_that_of_one_dense_system(shape, fit_intercept, coupled):
    columns = make_columns(shape, fit_intercept=fit_intercept)
    response = make_response(columns, coupled)
    rng = np.random.default_rng(4)
    E, f = rng.uniform(0.5, 2.0, columns.spans[-1][1]), rng.standard_normal(columns.spans[-1][1])
    x = NewtonSystem(columns, E, response, accuracy=1e-12).solve(f)
    np.testing.assert_allclose(x, dense_solution(columns, E, response, f), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_tasks_of_both_kinds_are_solved_together(fit_intercept):
    columns = make_columns("few features", sizes=[40, 5, 25, 1, 9], fit_intercept=fit_intercept)
    response = make_response(columns)
    rng = np.random.default_rng(8)
    E, f = rng.uniform(0.5, 2.0, 80), rng.standard_normal(80)
    E[[3, 50, 75]] = 1e-6  # one of each kind of system, and two of tasks with fewer features than observations
    system = NewtonSystem(columns, E, response, accuracy=1e-12)
    kinds = [type(part) for part in system.factorised.systems]
    assert kinds == [FeatureSystems, ObservationSystem, ObservationSystem]
    x = system.solve(f)
    np.testing.assert_allclose(x, dense_solution(columns, E, response, f), rtol=1e-6, atol=1e-8 * np.abs(x).max())


@pytest.mark.parametrize("shape", SHAPES)
def test_groups_share_one_outer_product(shape):
    p = SHAPES[shape][1]
    columns = make_columns(shape, groups=np.arange(p) // 2)
    response = make_response(columns)
    E, f = np.ones(columns.spans[-1][1]), np.random.default_rng(5).standard_normal(columns.spans[-1][1])
    x = NewtonSystem(columns, E, response, accuracy=1e-12).solve(f)
    np.testing.assert_allclose(x, dense_solution(columns, E, response, f), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("n_soft", [1, 5, 39, 40])
def test_observations_at_a_kink_keep_their_digits(n_soft):
    columns = make_columns("few features")
    response = make_response(columns)
    rng = np.random.default_rng(6)
    E = np.where(np.arange(120) % 40 < n_soft, 1e-7, 1e7) * rng.uniform(0.5, 2.0, 120)
    f = rng.standard_normal(120)
    x = NewtonSystem(columns, E, response, accuracy=1e-12).solve(f)
    np.testing.assert_allclose(x, dense_solution(columns, E, response, f), rtol=1e-4, atol=2e-5 * np.abs(x).max())
    np.testing.assert_allclose(np.add.reduceat(x, [0, 40, 80]), 0.0, atol=1e-10 * np.abs(x).max())


@pytest.mark.parametrize("spoilt", [0.0, -1e-17, np.inf, np.nan])
def test_a_slack_that_rounding_used_up_is_a_breakdown(spoilt):
    columns = make_columns("few features")
    E = np.ones(120)
    E[7] = spoilt
    with pytest.raises(BreakdownError, match="slack"):
        NewtonSystem(columns, E, make_response(columns), accuracy=1e-8)


def test_kind_of_factorisation_follows_the_shape():
    kinds = {}
    for shape in SHAPES:
        columns = make_columns(shape)
        system = NewtonSystem(columns, np.ones(columns.spans[-1][1]), make_response(columns), accuracy=1e-8)
        kinds[shape] = type(system.factorised)
    assert kinds == {"few features": TaskByTask, "many features": TaskByTask, "more rows than observations": AllAtOnce}


def test_one_matrix_steps_in_where_refinement_fails(monkeypatch):
    columns = make_columns("few features")
    response = make_response(columns)
    f = np.random.default_rng(7).standard_normal(120)
    system = NewtonSystem(columns, np.ones(120), response, accuracy=1e-10)
    exact = system.solve(f)
    plain = TaskByTask.solve
    monkeypatch.setattr(TaskByTask, "solve", lambda self, right: -plain(self, right))  # refinement makes it worse
    np.testing.assert_allclose(system.solve(f), exact, rtol=1e-8)
    assert isinstance(system.factorised, AllAtOnce)
