"""The working-set solver against cvxpy, the plain solver and its own certificate, over every form of data."""

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from bayesmtfs import MixedNormRegressor, TaskData, mixed_norm_path
from bayesmtfs.convex import proximal_gradient, quadratic_models, working_set
from bayesmtfs.convex.problem import Problem
from bayesmtfs.data import scaling
from bayesmtfs.data.column_sums import PANEL, gram, task_products
from bayesmtfs.families import find_family
from bayesmtfs.priors import RowPenalty

PENALTIES = [(1, 0.0), (1.5, 0.0), (2, 0.0), (2, 0.4), (3, 0.0), (4, 0.0), (np.inf, 0.0)]
LOSSES = ["squared", "logistic"]


def own_designs(seed=0, sizes=(15, 25, 9), p=12, loss="squared"):
    """Rows of tasks with designs of their own, that share three relevant features."""
    rng = np.random.default_rng(seed)
    tasks = np.repeat(np.arange(len(sizes)), sizes)
    X = rng.standard_normal((len(tasks), p)) + 0.5
    W = np.zeros((p, len(sizes)))
    W[: min(3, p)] = rng.standard_normal((min(3, p), len(sizes)))
    y = np.einsum("ij,ij->i", X, W.T[tasks]) + 0.7 * rng.standard_normal(len(tasks)) + tasks
    if loss == "logistic":
        y = np.where(y > np.median(y), 1.0, -1.0)
        y[np.unique(tasks, return_index=True)[1]] *= -1.0  # no task is separable by its intercept
    return X, y, tasks


def problem_of(data, norm_q=2.0, sparsity=0.0, share=0.1, loss="squared", scale="mean", fit_intercept=True):
    """Problem at a share of its largest penalty."""
    penalty = RowPenalty(1.0, norm_q, sparsity)
    problem = Problem(data, find_family(loss), penalty, data.loss_weights(scale), fit_intercept)
    return problem.with_strength(share * problem.largest_penalty)


def check_certificate(problem, solution, tol=1e-6):
    """Objective and gap hold when they are computed anew, from all features and by the problem itself."""
    eta = problem.data.linear_predictor(solution.W, solution.intercept)
    assert solution.converged and solution.gap <= tol * solution.scale
    assert solution.scale == problem.gap_scale
    assert solution.objective == pytest.approx(problem.objective(solution.W, eta), rel=1e-9, abs=1e-12 * solution.scale)
    reference = working_set.solve(problem, tol=min(tol, 1e-8) * 1e-2)
    suboptimality = solution.objective - (reference.objective - reference.gap)
    assert solution.objective - reference.objective <= solution.gap + 1e-12 * solution.scale
    assert suboptimality <= (tol * 1.1 + 1e-10) * solution.scale


def minimum_by_cvxpy(problem):
    data, penalty = problem.data, problem.penalty
    W, b = cp.Variable((data.n_features, data.n_tasks)), cp.Variable(data.n_tasks)
    terms = []
    for t, (X, (first, stop)) in enumerate(zip(data.task_designs, data.spans, strict=True)):
        dense = X.toarray() if sp.issparse(X) else X
        eta = dense @ W[:, t] + (b[t] if problem.fit_intercept else 0.0)
        y, weight = data.y[first:stop], problem.weight[first:stop]
        losses = cp.square(y - eta) / 2 if problem.family.name == "squared" else cp.logistic(-cp.multiply(y, eta))
        terms.append(weight @ losses)
    groups = np.arange(data.n_features) if data.groups is None else data.groups
    for group in np.unique(groups):
        row = cp.vec(W[np.flatnonzero(groups == group)], order="C")
        norm = cp.norm(row, float(getattr(penalty, "norm_q", 2.0)))
        terms.append(penalty.strength * (norm + getattr(penalty, "task_sparsity", 0.0) * cp.norm1(row)))
    return cp.Problem(cp.Minimize(cp.sum(terms))).solve(solver=cp.CLARABEL)


@pytest.mark.parametrize(("norm_q", "sparsity"), PENALTIES)
@pytest.mark.parametrize("loss", LOSSES)
def test_long_form_agrees_with_cvxpy(norm_q, sparsity, loss):
    X, y, tasks = own_designs(loss=loss)
    problem = problem_of(TaskData.from_long(X, y, tasks), norm_q, sparsity, loss=loss)
    solution = working_set.solve(problem)
    check_certificate(problem, solution)
    assert solution.objective == pytest.approx(minimum_by_cvxpy(problem), rel=2e-6)


@pytest.mark.parametrize("kind", ["sparse", "float32", "column order", "no intercept", "sum", "weights", "groups"])
@pytest.mark.parametrize(
    ("loss", "norm_q", "sparsity"), [("squared", 2, 0.0), ("logistic", 3, 0.0), ("squared", 2, 0.4)]
)
def test_other_forms_of_data_agree_with_cvxpy(kind, loss, norm_q, sparsity):
    X, y, tasks = own_designs(loss=loss)
    rng = np.random.default_rng(5)
    X = {"float32": X.astype(np.float32), "column order": np.asfortranarray(X)}.get(kind, X)
    if kind == "sparse":
        X = sp.csr_matrix(np.where(rng.random(X.shape) < 0.6, X, 0.0))
    weight = rng.uniform(0.2, 3.0, len(y)) if kind == "weights" else None
    groups = np.arange(X.shape[1]) // 3 if kind == "groups" else None
    data = TaskData.from_long(X, y, tasks, sample_weight=weight, groups=groups)
    scale = "sum" if kind == "sum" else "mean"
    problem = problem_of(data, norm_q, sparsity, loss=loss, scale=scale, fit_intercept=kind != "no intercept")
    solution = working_set.solve(problem)
    check_certificate(problem, solution)
    assert solution.objective == pytest.approx(minimum_by_cvxpy(problem), rel=2e-6)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("loss", LOSSES)
def test_wide_form_with_missing_cells_and_weights_agrees_with_cvxpy(kind, loss):
    rng = np.random.default_rng(2)
    X = rng.standard_normal((30, 8))
    Y = X[:, :3] @ rng.standard_normal((3, 4)) + rng.standard_normal((30, 4))
    Y = Y if loss == "squared" else np.sign(Y)
    Y[rng.random(Y.shape) < 0.3] = np.nan
    data = TaskData.from_wide(
        sp.csr_matrix(X) if kind == "sparse" else X, Y, sample_weight=rng.uniform(0.5, 2, Y.shape)
    )
    problem = problem_of(data, loss=loss)
    solution = working_set.solve(problem)
    check_certificate(problem, solution)
    assert solution.objective == pytest.approx(minimum_by_cvxpy(problem), rel=2e-6)


@settings(deadline=None, max_examples=40, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    m=st.integers(1, 5),
    n=st.integers(2, 12),
    p=st.integers(1, 30),
    penalty=st.sampled_from(PENALTIES),
    loss=st.sampled_from(LOSSES),
    share=st.sampled_from([1.0, 0.99, 0.5, 0.05, 0.002]),
    trouble=st.sampled_from(["none", "duplicates", "empty", "constant", "collinear tasks", "scales", "offset"]),
    sparse=st.booleans(),
    fit_intercept=st.booleans(),
)
def test_any_data_reach_their_certificate(seed, m, n, p, penalty, loss, share, trouble, sparse, fit_intercept):
    X, y, tasks = own_designs(seed, (n,) * m, p, loss)
    if trouble == "duplicates":
        X[:, p // 2 :] = X[:, : p - p // 2]
    elif trouble in ("empty", "constant"):
        X[:, 0] = 0.0 if trouble == "empty" else 1.7
    elif trouble == "collinear tasks":
        X[:] = np.tile(X[:n], (m, 1))
    elif trouble == "scales":
        X *= np.geomspace(1e-4, 1e4, p)
    elif trouble == "offset":
        X += 1e3
    data = TaskData.from_long(sp.csr_matrix(X) if sparse else X, y, tasks)
    problem = problem_of(data, *penalty, share=share, loss=loss, fit_intercept=fit_intercept)
    if problem.largest_penalty <= 1e-12 * problem.gap_scale:
        return  # nothing can be learnt: the penalty would be rounding error
    solution = working_set.solve(problem)
    assert solution.converged and np.isfinite(solution.W).all()
    eta = data.linear_predictor(solution.W, solution.intercept)
    assert solution.objective == pytest.approx(problem.objective(solution.W, eta), rel=1e-7, abs=1e-9 * solution.scale)
    assert solution.W.any() == (share < 1.0)
    if trouble in ("empty", "constant") and (fit_intercept or trouble == "empty"):
        assert not solution.W[0].any()


@pytest.mark.parametrize("scale", [1e-30, 1e-8, 1e8, 1e30])
@pytest.mark.parametrize("loss", LOSSES)
def test_units_do_not_matter(scale, loss):
    X, y, tasks = own_designs(loss=loss)
    plain = working_set.solve(problem_of(TaskData.from_long(X, y, tasks), loss=loss))
    target = y * scale if loss == "squared" else y
    scaled = working_set.solve(problem_of(TaskData.from_long(X * scale, target, tasks), loss=loss))
    assert scaled.converged
    factor = 1.0 if loss == "squared" else scale
    np.testing.assert_allclose(scaled.W * factor, plain.W, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("loss", LOSSES)
def test_many_features_enter_in_rounds(loss):
    X, y, tasks = own_designs(sizes=(40, 30, 35), p=800, loss=loss)
    problem = problem_of(TaskData.from_long(X, y, tasks), loss=loss, share=0.05)
    solution = working_set.solve(problem)
    check_certificate(problem, solution)
    assert solution.n_iter > 1
    assert 0 < np.count_nonzero(solution.W.any(axis=1)) < 200
    assert (np.diff(solution.objective_trace) <= 1e-12).all()
    assert solution.objective_trace[0] == pytest.approx(problem.null_objective)
    assert solution.objective_trace[-1] == solution.objective


@pytest.mark.parametrize("norm_q", [1, 2, 3, np.inf])
@pytest.mark.parametrize("loss", LOSSES)
def test_collinear_features_with_little_penalty_are_solved(norm_q, loss):
    X, y, tasks = own_designs(sizes=(20, 25), p=60, loss=loss)
    X = np.cumsum(X, axis=1) / np.sqrt(np.arange(1, 61))  # neighbours are nearly the same
    problem = problem_of(TaskData.from_long(X, y, tasks), norm_q, share=0.003, loss=loss)
    solution = working_set.solve(problem)
    check_certificate(problem, solution)


@pytest.mark.parametrize("limit", ["GRAM_LIMIT", "CHANGING_GRAM_LIMIT", "NEWTON_LIMIT", "SMALL_DENSE"])
@pytest.mark.parametrize("loss", LOSSES)
def test_models_without_gram_matrices_give_the_same(monkeypatch, limit, loss):
    X, y, tasks = own_designs(loss=loss, p=30)
    data = TaskData.from_long(sp.csr_matrix(X) if limit == "SMALL_DENSE" else X, y, tasks)
    problem = problem_of(data, loss=loss, share=0.01)
    usual = working_set.solve(problem, tol=1e-10)
    monkeypatch.setattr(quadratic_models, limit, 0)
    other = working_set.solve(problem, tol=1e-10)
    assert other.converged
    np.testing.assert_allclose(other.W, usual.W, atol=1e-5 * np.abs(usual.W).max())


@pytest.mark.parametrize("weights", [None, "rows"])
def test_row_weights_and_sparsities_per_row(weights):
    X, y, tasks = own_designs()
    factors = np.linspace(0.5, 2.0, X.shape[1])
    problem = problem_of(TaskData.from_long(X, y, tasks), share=0.1)
    if weights is None:
        penalty = RowPenalty(problem.penalty.strength, 2, factors)
    else:
        penalty = RowPenalty(problem.penalty.strength, 3, weights=factors)
    problem = replace(problem, penalty=penalty)
    check_certificate(problem, working_set.solve(problem))
    plain = proximal_gradient.solve(problem, tol=1e-9)
    assert working_set.solve(problem, tol=1e-9).objective == pytest.approx(plain.objective, rel=1e-8)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_start_shortens_the_way(loss):
    X, y, tasks = own_designs(sizes=(40, 30, 35), p=300, loss=loss)
    problem = problem_of(TaskData.from_long(X, y, tasks), loss=loss)
    solution = working_set.solve(problem)
    again = working_set.solve(problem, solution)
    assert again.converged and again.n_iter == 0
    np.testing.assert_array_equal(again.W, solution.W)
    smaller = problem.with_strength(0.9 * problem.penalty.strength)
    state = working_set.WorkingSetState(problem)
    warm = working_set.solve(smaller, solution, state=state)
    check_certificate(smaller, warm)
    assert warm.n_iter < working_set.solve(smaller, state=state).n_iter


def test_groups_enter_whole_in_any_order():
    X, y, tasks = own_designs(p=9)
    groups = np.array([2, 0, 1, 2, 0, 1, 2, 0, 1])
    problem = problem_of(TaskData.from_long(X, y, tasks, groups=groups), share=0.3)
    solution = working_set.solve(problem)
    check_certificate(problem, solution)
    alive = np.array([solution.W[groups == group].any(axis=1) for group in range(3)])
    assert (alive.all(axis=1) | ~alive.any(axis=1)).all() and alive.any() and not alive.all()


def test_tasks_of_one_class_have_no_slope():
    X, y, tasks = own_designs(loss="logistic")
    y[tasks == 1] = 1.0
    problem = problem_of(TaskData.from_long(X, y, tasks), loss="logistic")
    solution = working_set.solve(problem)
    assert solution.converged and np.isfinite(solution.intercept).all()
    assert np.abs(solution.W[:, 1]).max() < 1e-3 * np.abs(solution.W).max()


def test_target_that_is_constant_needs_no_features():
    data = TaskData.from_long(np.eye(5), np.full(5, 0.1), np.array([0, 0, 0, 1, 1]))
    problem = Problem(data, find_family("squared"), RowPenalty(0.1, 2), data.loss_weights("mean"))
    solution = working_set.solve(problem)
    assert solution.converged and not solution.W.any()


def test_interruption_returns_the_best_so_far(monkeypatch):
    X, y, tasks = own_designs(sizes=(40, 30, 35), p=300, loss="logistic")
    problem = problem_of(TaskData.from_long(X, y, tasks), loss="logistic")
    complete = working_set.solve(problem)
    rounds = iter(range(10))
    step = working_set.NewtonRounds.improve

    def interrupted(*arguments):
        if next(rounds) == 2:
            raise KeyboardInterrupt
        return step(*arguments)

    monkeypatch.setattr(working_set.NewtonRounds, "improve", interrupted)
    solution = working_set.solve(problem)
    assert solution.interrupted and not solution.converged
    assert complete.objective < solution.objective < problem.null_objective
    assert solution.objective - complete.objective <= solution.gap + complete.gap


def test_rounds_are_limited():
    X, y, tasks = own_designs(sizes=(40, 30, 35), p=300, loss="logistic")
    problem = problem_of(TaskData.from_long(X, y, tasks), loss="logistic")
    solution = working_set.solve(problem, max_iter=2)
    assert solution.n_iter == 2 and not solution.converged and len(solution.objective_trace) == 3


def test_the_plain_solver_takes_over_where_rounds_stall(monkeypatch):
    X, y, tasks = own_designs(p=5)
    problem = problem_of(TaskData.from_long(X, y, tasks))
    monkeypatch.setattr(working_set, "products_worth_taking", lambda problem: None)
    monkeypatch.setattr(working_set.NewtonRounds, "improve", lambda *arguments: 1)
    solution = working_set.solve(problem)
    assert solution.converged
    assert solution.objective == pytest.approx(minimum_by_cvxpy(problem), rel=2e-6)


def test_inputs_stay_as_they_were():
    X, y, tasks = own_designs()
    data = TaskData.from_long(X, y, tasks)
    kept = data.design.copy(), data.y.copy()
    problem = problem_of(data)
    start = working_set.solve(problem)
    W = start.W.copy()
    working_set.solve(problem.with_strength(0.5 * problem.penalty.strength), start)
    np.testing.assert_array_equal(data.design, kept[0])
    np.testing.assert_array_equal(data.y, kept[1])
    np.testing.assert_array_equal(start.W, W)


# ---------------------------------------------------------------------- by the products of all columns


def by_numpy(Z, weight, centred):
    mean = weight @ Z / weight.sum() if centred else np.zeros(Z.shape[1])
    return mean, (weight[:, np.newaxis] * (Z - mean)).T @ (Z - mean)


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("p", [1, 4, 7])
def test_products_of_every_task(centred, p):
    rng = np.random.default_rng(p)
    offsets = np.array([0, 1, 4, 11, 2 * PANEL + 30])
    A, y, weight = (
        rng.standard_normal((offsets[-1], p)) + 3.0,
        rng.standard_normal(offsets[-1]),
        rng.random(offsets[-1]),
    )
    found = task_products(A, y, weight, offsets, centred)
    for t, (a, b) in enumerate(zip(offsets[:-1], offsets[1:], strict=True)):
        mean, expected = by_numpy(np.column_stack([A, y])[a:b], weight[a:b], centred)
        np.testing.assert_allclose(found.means[:, t], mean, rtol=1e-13, atol=1e-14)
        np.testing.assert_allclose(found.products[:, t, : p + 1], expected, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(found.squares[:, t], np.diag(expected), rtol=1e-12, atol=1e-13)
    assert not found.products[:, :, p + 1 :].any()
    np.testing.assert_array_equal(found.with_target, found.products[:p, :, p])


def test_gram_matrices_about_given_means():
    rng = np.random.default_rng(0)
    A, weight, offsets, means = rng.standard_normal((40, 5)), rng.random(40), np.array([0, 15, 40]), rng.random((5, 2))
    Q = np.full((5, 2, 8), np.nan)
    gram(A, np.zeros(0), weight, offsets, False, means, Q)
    for t, (a, b) in enumerate([(0, 15), (15, 40)]):
        moved = A[a:b] - means[:, t]
        np.testing.assert_allclose(Q[:, t, :5], (weight[a:b, np.newaxis] * moved).T @ moved, rtol=1e-12)
    assert not Q[:, :, 5:].any()


def test_a_constant_column_has_no_products_about_its_mean():
    rng = np.random.default_rng(0)
    A = np.column_stack([np.full(30, 0.1), rng.standard_normal(30), np.full(30, -1e9)])
    found = task_products(A, np.full(30, 7.7), rng.random(30), np.array([0, 13, 30]), True)
    assert not found.products[[0, 2, 3]].any() and found.squares[1].all()


@pytest.mark.parametrize(("norm_q", "sparsity"), PENALTIES)
@pytest.mark.parametrize("kind", ["plain", "weights", "no intercept", "ridge", "groups", "absent"])
def test_fits_agree_with_residuals_and_cvxpy(norm_q, sparsity, kind):
    X, y, tasks = own_designs(3, sizes=(30, 22, 41), p=10)
    weights = np.random.default_rng(1).uniform(0.2, 2.0, len(y)) if kind == "weights" else None
    groups = np.array([2, 0, 1, 2, 0, 1, 2, 0, 1, 3]) if kind == "groups" else None
    data = TaskData.from_long(X, y, tasks, weights, groups=groups)
    if kind == "absent":
        present = np.random.default_rng(2).random((10, 3)) < 0.7
        data = replace(data, present=present, design=np.where(present.T[data.task], data.design, 0.0))
    problem = problem_of(data, norm_q, sparsity, fit_intercept=kind != "no intercept")
    if kind == "ridge":
        problem = replace(problem, ridge=0.05)
    solution = working_set.solve(problem)
    assert problem.products is not None
    check_certificate(problem, solution)
    eta = data.linear_predictor(solution.W, solution.intercept)
    assert problem.gap(solution.W, eta) <= 1.1e-6 * problem.gap_scale
    if kind != "ridge":
        assert solution.objective == pytest.approx(minimum_by_cvxpy(problem), rel=2e-6)


def test_what_holds_at_zero_is_what_residuals_say():
    data = TaskData.from_long(*own_designs(p=6))
    by_rows, by_products = problem_of(data), problem_of(data)
    by_products = replace(by_products)
    assert by_products.take_products() is not None and by_rows.products is None
    for name in ("null_intercept", "null_objective", "gap_scale", "null_gradient", "largest_penalty"):
        np.testing.assert_allclose(getattr(by_products, name), getattr(by_rows, name), rtol=1e-12, atol=1e-14)


def test_products_are_taken_of_few_features_or_where_most_move():
    def taken(p, share, loss="squared"):
        data = TaskData.from_long(*own_designs(sizes=(90, 120, 100), p=p, loss=loss))
        problem = problem_of(data, share=share, loss=loss)
        working_set.solve(problem)
        return problem.products is not None

    assert taken(20, 0.5) and taken(20, 0.05) and taken(80, 0.01)
    assert not taken(80, 0.5) and not taken(300, 0.01) and not taken(20, 0.5, "logistic")


@pytest.mark.parametrize("stuck", ["at once", "later"])
def test_newton_goes_on_where_sweeps_are_stuck(monkeypatch, stuck):
    problem = problem_of(TaskData.from_long(*own_designs(p=8)))
    minimise = working_set.ProductModel.minimise

    def few_rounds(model, gap, *others):
        return minimise(model, 1e3 * gap, *others) and False if stuck == "later" else False

    monkeypatch.setattr(working_set.ProductModel, "minimise", few_rounds)
    solution = working_set.solve(problem)
    assert solution.n_iter > 1
    check_certificate(problem, solution)


def test_an_interrupted_fit_certifies_what_it_has(monkeypatch):
    problem = problem_of(TaskData.from_long(*own_designs(p=12)), share=0.01)
    complete = working_set.solve(problem)
    change = working_set.ProductModel.change

    def interrupted(model, gradient):
        monkeypatch.setattr(working_set.ProductModel, "change", change)
        raise KeyboardInterrupt

    monkeypatch.setattr(working_set.ProductModel, "change", interrupted)
    solution = working_set.solve(problem)
    assert solution.interrupted and np.isfinite(solution.gap) and solution.W.any()
    eta = problem.data.linear_predictor(solution.W, solution.intercept)
    assert solution.objective == pytest.approx(problem.objective(solution.W, eta), rel=1e-12)
    assert solution.objective - complete.objective <= solution.gap + complete.gap


@pytest.mark.parametrize("norm_q", [2, np.inf])
def test_a_path_shares_the_products(norm_q):
    X, y, tasks = own_designs(sizes=(40, 30, 35), p=9)
    path = mixed_norm_path(X, y, tasks, n_penalties=6, penalty_ratio=0.01, norm_q=norm_q, tol=1e-8)
    assert path.converged.all()
    for strength, coef in zip(path.penalties, path.coefs, strict=True):
        problem = problem_of(TaskData.from_long(X, y, tasks), norm_q).with_strength(strength)
        exact = working_set.solve(problem, tol=1e-11)
        np.testing.assert_allclose(coef.T, exact.W, atol=2e-4)


def test_numbers_too_large_for_products_are_left_to_residuals():
    X, y, tasks = own_designs(p=4)
    problem = problem_of(TaskData.from_long(X, y, tasks))
    large = replace(problem, data=replace(problem.data, y=1e200 * problem.data.y))
    assert large.take_products() is None


def test_deviations_come_from_the_same_pass():
    X, y, tasks = own_designs(sizes=(40, 30, 35), p=5)
    X[:, 2] = tasks  # constant within tasks
    weights = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    model = MixedNormRegressor().fit(X, y, tasks, weights)
    fresh = TaskData.from_long(X, y, tasks, weights)
    np.testing.assert_allclose(model.result_.effect_unit.T, scaling.effect_unit(fresh, True), rtol=1e-12)
    assert not model.result_.effect_unit[:, 2].any()
