"""Interior points for hinge and absolute loss: the minimum of cvxpy, degenerate problems, exact zeros, sparse designs."""

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

from bayesmtfs import TaskData
from bayesmtfs.convex import interior_point, nonsmooth
from bayesmtfs.convex.problem import Problem
from bayesmtfs.families import find_family
from bayesmtfs.priors import RowPenalty

CASES = ["p > n", "duplicate columns", "zero column", "one task", "one feature", "collinear tasks", "unequal scales"]


def hard_data(case, loss):
    rng = np.random.default_rng(7)
    n, p, m = 30, 10, 3
    p = {"p > n": 60, "one feature": 1}.get(case, p)
    m = 1 if case == "one task" else m
    tasks = np.arange(n) % m
    X = rng.standard_normal((n, p))
    if case == "duplicate columns":
        X[:, 1] = X[:, 0]
    if case == "zero column":
        X[:, 0] = 0.0
    if case == "collinear tasks":
        X[tasks == 1] = X[tasks == 0]
    if case == "unequal scales":
        X *= np.geomspace(1e-2, 1e2, p)
    y = X[:, -1] + rng.standard_normal(n)
    return X, (np.sign(y) if loss == "hinge" else y), tasks


def problem_of(X, y, tasks, loss, norm_q=2.0, share=0.1):
    data = TaskData.from_long(X, y, tasks)
    problem = Problem(data, find_family(loss), RowPenalty(1.0, norm_q), data.loss_weights("mean"))
    return problem.with_strength(share * problem.largest_penalty)


@pytest.mark.parametrize("loss", ["hinge", "absolute"])
@pytest.mark.parametrize("case", CASES)
def test_degenerate_problems_are_certified(case, loss):
    for norm_q in (1.0, 2.0, np.inf):
        problem = problem_of(*hard_data(case, loss), loss, norm_q)
        solution = nonsmooth.solve(problem)
        assert solution.converged, (case, loss, norm_q, solution.gap / solution.scale)
        eta = problem.data.linear_predictor(solution.W, solution.intercept)
        assert solution.objective == pytest.approx(problem.objective(solution.W, eta), rel=1e-10)


def test_rows_off_the_support_are_exactly_zero():
    problem = problem_of(*hard_data("p > n", "hinge"), "hinge", share=0.5)
    rows = (nonsmooth.solve(problem).W != 0).any(axis=1)
    assert 0 < rows.sum() < 60


@pytest.mark.parametrize("loss", ["hinge", "absolute"])
def test_a_sparse_design_gives_the_same_minimum(loss):
    X, y, tasks = hard_data("p > n", loss)
    X[np.abs(X) < 0.8] = 0.0
    dense = nonsmooth.solve(problem_of(X, y, tasks, loss))
    sparse = nonsmooth.solve(problem_of(sp.csr_matrix(X), y, tasks, loss))
    assert dense.converged and sparse.converged
    assert dense.objective == pytest.approx(sparse.objective, abs=dense.gap + sparse.gap)


# ---------------------------------------------------------------------- against cvxpy

FORMS = [
    "long",
    "weights",
    "sum",
    "no intercept",
    "groups",
    "absent features",
    "missing cells",
    "sparse group",
    "row weights",
]


def form_problem(form, loss, norm_q=2.0, share=0.15):
    rng = np.random.default_rng(11)
    X, m = rng.standard_normal((48, 9)), 3
    if form == "missing cells":
        Y = X[:16, :m] + rng.standard_normal((16, m))
        Y = np.sign(Y) if loss == "hinge" else Y
        Y[rng.uniform(size=Y.shape) < 0.25] = np.nan
        data = TaskData.from_wide(X[:16], Y)
    else:
        tasks, y = np.arange(48) % m, X[:, 0] - X[:, 1] + rng.standard_normal(48)
        weight = rng.uniform(0.2, 3.0, 48) if form == "weights" else None
        groups = np.arange(9) // 2 if form == "groups" else None
        data = TaskData.from_long(X, np.sign(y) if loss == "hinge" else y, tasks, weight, groups)
    if form == "absent features":
        present = rng.uniform(size=(9, m)) < 0.7
        data = replace(data, present=present, design=data.design * present.T[data.task])
    weights = rng.uniform(0.5, 2.0, 9) if form == "row weights" else None
    penalty = RowPenalty(1.0, norm_q, task_sparsity=0.4 if form == "sparse group" else 0.0, weights=weights)
    scale = "sum" if form == "sum" else "mean"
    problem = Problem(data, find_family(loss), penalty, data.loss_weights(scale), form != "no intercept")
    return problem.with_strength(share * problem.largest_penalty)


def cvxpy_minimum(problem):
    data, blocks, penalty = problem.data, problem.blocks, problem.penalty
    W, b = cp.Variable((data.n_features, data.n_tasks)), cp.Variable(data.n_tasks)
    margins = [X @ W[:, t] + b[t] * problem.fit_intercept for t, X in enumerate(data.task_designs)]
    residual = cp.hstack(margins) - data.y
    losses = {"hinge": cp.pos(1 - cp.multiply(data.y, cp.hstack(margins))), "absolute": cp.abs(residual)}
    rows = [cp.vec(W[np.flatnonzero(blocks.row_of_feature == i)], order="C") for i in range(blocks.n_rows)]
    norm_q, sparsity = getattr(penalty, "norm_q", 2), getattr(penalty, "task_sparsity", 0.0)
    norms = cp.hstack([cp.norm(row, norm_q) + sparsity * cp.norm(row, 1) for row in rows])
    objective = problem.weight @ losses[problem.family.name] + penalty.strengths(blocks.n_rows) @ norms
    absent = [] if data.present is None else [cp.multiply(W, ~data.present) == 0]
    return cp.Problem(cp.Minimize(objective), absent).solve(solver="CLARABEL")


def assert_minimum(problem, reference):
    solution = nonsmooth.solve(problem)
    assert solution.converged and solution.gap <= 1e-6 * solution.scale
    assert solution.objective <= reference + 1.5e-6 * solution.scale
    assert solution.objective - solution.gap <= reference + 1e-7 * solution.scale
    if problem.data.present is not None:
        assert (solution.W[~problem.data.present] == 0).all()


@pytest.mark.parametrize("loss", ["hinge", "absolute"])
@pytest.mark.parametrize("form", FORMS)
def test_minimum_is_that_of_cvxpy_for_every_form_of_data(form, loss):
    problem = form_problem(form, loss)
    assert_minimum(problem, cvxpy_minimum(problem))


@pytest.mark.parametrize("share", [0.5, 0.01])
@pytest.mark.parametrize("loss", ["hinge", "absolute"])
@pytest.mark.parametrize("norm_q", [1.0, 1.5, 2.0, 3.0, np.inf])
def test_minimum_is_that_of_cvxpy_for_every_norm(norm_q, loss, share):
    problem = form_problem("long", loss, norm_q, share)
    assert_minimum(problem, cvxpy_minimum(problem))


# ---------------------------------------------------------------------- scales and limits


@pytest.mark.parametrize("factor", [1e-8, 1e8])
@pytest.mark.parametrize("loss", ["hinge", "absolute"])
def test_units_of_the_data_do_not_matter(loss, factor):
    X, y, tasks = hard_data("p > n", loss)
    plain = nonsmooth.solve(problem_of(X, y, tasks, loss))
    scaled = nonsmooth.solve(problem_of(factor * X, y, tasks, loss))
    assert scaled.converged
    np.testing.assert_allclose(factor * scaled.W, plain.W, atol=1e-2 * np.abs(plain.W).max())
    if loss == "absolute":
        stretched = nonsmooth.solve(problem_of(X, factor * y, tasks, loss))
        assert stretched.converged and stretched.objective == pytest.approx(factor * plain.objective, rel=1e-5)


@pytest.mark.parametrize("loss", ["hinge", "absolute"])
def test_features_far_from_zero_only_move_the_intercept(loss):
    X, y, tasks = hard_data("duplicate columns", loss)
    plain = nonsmooth.solve(problem_of(X, y, tasks, loss))
    shifted = nonsmooth.solve(problem_of(X + 1e4, y, tasks, loss))
    assert shifted.converged and shifted.objective == pytest.approx(plain.objective, abs=2e-6 * plain.scale)


@pytest.mark.parametrize("norm_q", [1.0, 2.0, np.inf])
@pytest.mark.parametrize("loss", ["hinge", "absolute"])
@pytest.mark.parametrize("share", [1e-5, 0.98, 1.0, 1.5])
def test_extreme_penalties(share, loss, norm_q):
    problem = problem_of(*hard_data("collinear tasks", loss), loss, norm_q, share)
    solution = nonsmooth.solve(problem)
    assert solution.converged
    if share >= 1.0:
        assert (solution.W == 0).all() and solution.n_iter == 0


def test_a_tighter_tolerance_is_reached():
    for loss in ("hinge", "absolute"):
        problem = problem_of(*hard_data("unequal scales", loss), loss)
        rough, fine = nonsmooth.solve(problem), nonsmooth.solve(problem, tol=1e-9)
        assert fine.converged and fine.gap <= 1e-9 * fine.scale
        assert -fine.gap <= rough.objective - fine.objective <= rough.gap


def test_tasks_with_one_class_have_zero_coefficients_and_no_loss():
    X, y, tasks = hard_data("p > n", "hinge")
    y[tasks == 1] = -1.0
    problem = problem_of(X, y, tasks, "hinge")
    solution = nonsmooth.solve(problem)
    assert solution.converged and (solution.W[:, 1] == 0).all() and solution.W.any()
    assert solution.intercept[1] == -1.0
    eta = problem.data.linear_predictor(solution.W, solution.intercept)
    assert solution.objective == pytest.approx(problem.objective(solution.W, eta), rel=1e-12)


def test_nothing_but_tasks_with_one_class():
    X, _, tasks = hard_data("p > n", "hinge")
    data = TaskData.from_long(X, np.ones(30), tasks)
    solution = nonsmooth.solve(Problem(data, find_family("hinge"), RowPenalty(0.1, 2.0), data.loss_weights("mean")))
    assert solution.converged and not solution.W.any() and solution.objective == 0.0


@pytest.mark.parametrize("loss", ["hinge", "absolute"])
def test_single_precision_designs_are_solved_in_double(loss):
    X, y, tasks = hard_data("p > n", loss)
    problem = problem_of(X.astype(np.float32), y, tasks, loss)
    single = nonsmooth.solve(problem)
    in_double = problem_of(X.astype(np.float32).astype(np.float64), y, tasks, loss)
    double = nonsmooth.solve(in_double.with_strength(problem.penalty.strength))
    np.testing.assert_array_equal(single.W, double.W)


def test_rows_without_penalty_are_refused():
    problem = form_problem("row weights", "absolute")
    weights = np.where(np.arange(9) == 4, 0.0, 1.0)
    free = replace(problem, penalty=RowPenalty(0.1, 2.0, weights=weights))
    with pytest.raises(ValueError, match="is 0 for 1 of 9 rows; loss='absolute' needs a positive strength"):
        nonsmooth.solve(free)


# ---------------------------------------------------------------------- stopping


def test_too_few_steps_are_reported_honestly():
    problem = problem_of(*hard_data("p > n", "absolute"), "absolute")
    best = nonsmooth.solve(problem, tol=1e-8)
    rough = nonsmooth.solve(problem, max_iter=4)
    assert not rough.converged and rough.n_iter == 4 and len(rough.objective_trace) == 5
    assert rough.gap > 1e-6 * rough.scale
    assert rough.objective - best.objective <= rough.gap + best.gap
    assert (np.diff(rough.objective_trace) <= 0).all()


def test_a_start_gives_the_same_minimum():
    problem = problem_of(*hard_data("p > n", "hinge"), "hinge")
    plain = nonsmooth.solve(problem)
    again = nonsmooth.solve(problem, start=plain)
    assert again.converged and again.objective == pytest.approx(plain.objective, abs=plain.gap + again.gap)


@pytest.mark.parametrize("reason", [KeyboardInterrupt, nonsmooth.BreakdownError])
def test_what_stops_the_method_leaves_the_best_so_far(reason, monkeypatch):
    problem = problem_of(*hard_data("p > n", "absolute"), "absolute")
    plain, steps = interior_point.step, iter(range(20))

    def stopping(*arguments):
        if next(steps) == 6:
            raise reason
        return plain(*arguments)

    monkeypatch.setattr(interior_point, "step", stopping)
    solution = nonsmooth.solve(problem)
    assert solution.interrupted == (reason is KeyboardInterrupt)
    assert not solution.converged and solution.n_iter == 6
    assert solution.objective < problem.null_objective
    assert 1e-6 * solution.scale < solution.gap < problem.null_objective


@pytest.mark.parametrize("loss", ["hinge", "absolute"])
@pytest.mark.parametrize("norm_q", [1.0, 2.0, 3.0, np.inf])
def test_groups_of_unequal_sizes_come_and_go(loss, norm_q):
    X, y, tasks = hard_data("unequal scales", loss)
    groups = [0, 1, 0, 2, 0, 3, 3, 0, 2, 2]
    data = TaskData.from_long(X, y, tasks, groups=groups)
    problem = Problem(data, find_family(loss), RowPenalty(1.0, norm_q), data.loss_weights("mean"))
    for share in (0.9, 0.5, 0.1):
        at = problem.with_strength(share * problem.largest_penalty)
        solution = nonsmooth.solve(at)
        eta = data.linear_predictor(solution.W, solution.intercept)
        assert solution.converged
        assert at.objective(solution.W, eta) == pytest.approx(solution.objective, rel=1e-10)
