"""The problem and its certificate, and some rows of its penalty."""

import numpy as np
import pytest

from bayesmtfs import TaskData, simulate_tasks
from bayesmtfs.convex import proximal_gradient
from bayesmtfs.convex.problem import PenaltyRows, Problem
from bayesmtfs.families import find_family
from bayesmtfs.priors import RowPenalty


def make_problem(seed=0, norm_q=2.0, loss="squared", fit_intercept=True, share=0.2, task_sparsity=0.0):
    kind = "regression" if loss == "squared" else "classification"
    sim = simulate_tasks(n_tasks=3, n_features=12, n_relevant=3, n_samples=[20, 30, 25], kind=kind, random_state=seed)
    data = TaskData.from_long(sim.X, sim.y, sim.tasks)
    penalty = RowPenalty(1.0, norm_q, task_sparsity)
    problem = Problem(data, find_family(loss), penalty, data.loss_weights("mean"), fit_intercept)
    return problem.with_strength(share * problem.largest_penalty)


def solve(problem, tol):
    return proximal_gradient.solve(problem, tol=tol, max_iter=100_000)


@pytest.mark.parametrize("norm_q", [1, 1.5, 2, 4, np.inf])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_gap_bounds_the_suboptimality_of_any_point(norm_q, loss, fit_intercept):
    problem = make_problem(norm_q=norm_q, loss=loss, fit_intercept=fit_intercept)
    best = solve(problem, 1e-11)
    assert best.converged
    rng = np.random.default_rng(0)
    for size in (0.0, 1e-6, 1e-3, 1.0):
        W = best.W + size * rng.standard_normal(best.W.shape)
        b = best.intercept + size * rng.standard_normal(3) * fit_intercept
        eta = problem.data.linear_predictor(W, b)
        excess = problem.objective(W, eta) - best.objective
        assert problem.gap(W, eta) >= excess - 1e-12 * best.scale


def test_sparse_group_gap():
    problem = make_problem(task_sparsity=0.7)
    rough, exact = solve(problem, 1e-3), solve(problem, 1e-11)
    assert exact.converged and rough.objective - exact.objective <= rough.gap
    assert exact.gap <= 1e-11 * exact.scale


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("norm_q", [1, 2, np.inf])
def test_zero_is_optimal_from_the_largest_penalty_on(loss, norm_q):
    problem = make_problem(loss=loss, norm_q=norm_q)
    largest = problem.largest_penalty
    zero = np.zeros((12, 3))
    eta = problem.null_intercept[problem.data.task]
    assert problem.with_strength(largest).gap(zero, eta) <= 1e-13 * problem.gap_scale
    assert problem.with_strength(0.99 * largest).gap(zero, eta) > 1e-6 * problem.gap_scale


@pytest.mark.parametrize("loss", ["squared", "logistic", "hinge", "absolute"])
def test_null_intercept_minimises_the_loss_of_a_constant(loss):
    problem = make_problem(loss="squared" if loss == "absolute" else "logistic")
    family = find_family(loss)
    rng = np.random.default_rng(1)
    weight = rng.uniform(0.1, 2.0, 30)
    y = problem.data.y[20:50]
    best = family.best_constant(y, weight)
    around = best + np.linspace(-1, 1, 2001)
    values = [np.sum(weight * family.value(y, np.full(30, c))) for c in around]
    assert np.sum(weight * family.value(y, np.full(30, best))) <= min(values) + 1e-12


@pytest.mark.parametrize("norm_q", [1, 3, np.inf])
@pytest.mark.parametrize("loss", ["squared", "logistic", "hinge", "absolute"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_largest_penalty_of_constant_columns_is_no_rounding_error(loss, norm_q, dtype):
    rng = np.random.default_rng(11)
    X = np.tile(rng.uniform(0.1, 7.0, 4), (50, 1)).astype(dtype)
    y = np.where(rng.standard_normal(50) > 0, 1.0, -1.0) if loss in ("logistic", "hinge") else rng.standard_normal(50)
    data = TaskData.from_long(X, y, np.arange(50) % 3)
    problem = Problem(data, find_family(loss), RowPenalty(1.0, norm_q), data.loss_weights("mean"))
    assert problem.largest_penalty == 0.0
    varying = TaskData.from_long(np.hstack([X, 1e-6 * rng.standard_normal((50, 1))]).astype(dtype), y, data.task)
    assert Problem(varying, find_family(loss), RowPenalty(1.0, norm_q), problem.weight).largest_penalty > 0.0


GROUPS = np.array([7, 3, 7, 3, 5, 7])


@pytest.fixture(params=[None, GROUPS], ids=["alone", "groups"])
def problem(request):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((12, 6)), rng.standard_normal(12)
    data = TaskData.from_long(X, y, np.arange(12) % 2, groups=request.param)
    n_rows = 6 if request.param is None else 3
    return Problem(data, find_family("squared"), RowPenalty(0.7, 2, np.linspace(0.1, 0.9, n_rows)), data.weight)


def test_all_rows_are_those_of_the_problem(problem):
    W = np.random.default_rng(1).standard_normal((6, 2))
    rows = PenaltyRows.of(problem)
    own = W[rows.features]
    blocks = problem.blocks.gather(W)
    assert rows.value(own, rows.norms(own)) == pytest.approx(problem.penalty.value(blocks))
    np.testing.assert_allclose(rows.dual_norms(own), problem.penalty.dual_norm(blocks))
    np.testing.assert_allclose(rows.norms(own), np.linalg.norm(blocks, axis=1))


def test_some_rows_keep_their_features_and_penalty(problem):
    W = np.random.default_rng(2).standard_normal((6, 2))
    rows = PenaltyRows.of(problem)
    chosen = np.array([0, 2])
    some = rows.take(chosen)
    np.testing.assert_allclose(some.dual_norms(W[some.features]), rows.dual_norms(W[rows.features])[chosen])
    starts, strengths, norm_q, sparsity, work = some.step_arguments(n_tasks=2)
    assert starts[-1] == len(some.features) and norm_q == 2.0 and work == ()
    np.testing.assert_allclose(sparsity, rows.sparsity[chosen])
    np.testing.assert_allclose(strengths, 0.7)


@pytest.mark.parametrize("norm_q", [1.0, 3.0, np.inf])
def test_row_weights_follow_their_rows(norm_q):
    data = TaskData.from_long(np.eye(4), np.ones(4))
    penalty = RowPenalty(2.0, norm_q, weights=np.array([1.0, 2.0, 3.0, 4.0]))
    rows = PenaltyRows.of(Problem(data, find_family("squared"), penalty, data.weight)).take(np.array([1, 3]))
    np.testing.assert_allclose(rows.strengths, [4.0, 8.0])
    W = np.array([[1.0], [-1.0]])
    assert rows.value(W, rows.norms(W)) == pytest.approx(12.0)
    assert len(rows.step_arguments(1)[-1]) == {1.0: 0, 3.0: 3, np.inf: 1}[norm_q]
