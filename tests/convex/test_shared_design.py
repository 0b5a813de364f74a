"""One design for all tasks: minima, certificates, scores of all columns, and columns in use."""

import warnings
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import MultiTaskLasso

from bayesmtfs import TaskData
from bayesmtfs.convex import automatic, proximal_gradient, shared_design
from bayesmtfs.convex.problem import Problem
from bayesmtfs.convex.shared_design import Scores, SharedDesign, spectral_norm
from bayesmtfs.families import Gaussian, Logistic
from bayesmtfs.priors import RowPenalty

QS = [1, 1.5, 2, 3, np.inf]


def make_data(seed=0, n=40, p=60, m=4, n_relevant=5, noise=0.5, offset=1.0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) + offset
    W = np.zeros((p, m))
    W[rng.choice(p, n_relevant, replace=False)] = rng.standard_normal((n_relevant, m))
    return X, X @ W + noise * rng.standard_normal((n, m)) + 3.0


def make_problem(X, Y, norm_q=2.0, share=0.1, fit_intercept=True, weight=None, scale="mean", sparsity=0.0, rows=None):
    """A problem at a share of its largest penalty."""
    data = TaskData.from_wide(X, Y, sample_weight=weight)
    penalty = RowPenalty(1.0, norm_q, sparsity, rows)
    problem = Problem(data, Gaussian(), penalty, data.loss_weights(scale), fit_intercept)
    return problem.with_strength(share * (problem.largest_penalty or 1.0))


def check_solution(problem, solution, tol=1e-6):
    """The certificate holds when it is computed anew, for the point that is returned."""
    eta = problem.data.linear_predictor(solution.W, solution.intercept)
    assert solution.converged and solution.gap <= tol * solution.scale
    assert solution.scale == pytest.approx(problem.gap_scale, rel=1e-10)
    assert solution.objective == pytest.approx(problem.objective(solution.W, eta), abs=1e-10 * solution.scale)
    assert problem.gap(solution.W, eta) <= 1.01 * tol * solution.scale + 1e-12 * solution.scale


def minimum_by_cvxpy(problem, Y, weight):
    X = problem.data.design
    p, m = problem.data.n_features, problem.data.n_tasks
    W, b = cp.Variable((p, m)), cp.Variable((1, m))
    residual = Y - X @ W - (np.ones((len(X), 1)) @ b if problem.fit_intercept else 0)
    loss = cp.sum(cp.multiply(weight[:, None], cp.square(residual))) / 2
    penalty = problem.penalty
    rows = [penalty.task_sparsity * cp.norm1(W[i]) + cp.norm(W[i], float(penalty.norm_q)) for i in range(p)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # accurate to less than Clarabel's own 1e-8, at powers such as 1.5
        return cp.Problem(cp.Minimize(loss + penalty.strength * cp.sum(rows))).solve(solver=cp.CLARABEL)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize(("norm_q", "sparsity"), [*((q, 0.0) for q in QS), (2, 0.6)])
def test_minimum_is_that_of_cvxpy(norm_q, sparsity, fit_intercept):
    X, Y = make_data(n=15, p=20, m=3)
    weight = np.random.default_rng(1).uniform(0.5, 2.0, 15)
    problem = make_problem(X, Y, norm_q, 0.1, fit_intercept, weight, "mean" if fit_intercept else "sum", sparsity)
    solution = shared_design.solve(problem, tol=1e-9)
    check_solution(problem, solution, 1e-9)
    assert solution.objective == pytest.approx(minimum_by_cvxpy(problem, Y, problem.weight[:15]), rel=1e-6)


@pytest.mark.parametrize("share", [0.5, 0.02])
def test_coefficients_are_those_of_scikit_learn(share):
    X, Y = make_data(n=80, p=30)
    problem = make_problem(X, Y, share=share)
    found = shared_design.solve(problem, tol=1e-12)
    peer = MultiTaskLasso(alpha=problem.penalty.strength, tol=1e-12, max_iter=100_000).fit(X, Y)
    np.testing.assert_allclose(found.W.T, peer.coef_, atol=1e-6)
    np.testing.assert_allclose(found.intercept, peer.intercept_, atol=1e-6)


@pytest.mark.parametrize("norm_q", QS)
@pytest.mark.parametrize("weighted_rows", [False, True])
def test_minimum_is_that_of_the_plain_solver(norm_q, weighted_rows):
    X, Y = make_data(p=150)
    rows = np.random.default_rng(2).uniform(0.3, 3.0, 150) if weighted_rows else None
    problem = make_problem(X, Y, norm_q, rows=rows)
    rough, exact = shared_design.solve(problem, tol=1e-3), shared_design.solve(problem, tol=1e-10)
    plain = proximal_gradient.solve(problem, tol=1e-8, max_iter=50_000)
    check_solution(problem, exact, 1e-10)
    assert plain.converged and abs(plain.objective - exact.objective) <= 1e-8 * exact.scale
    assert 0 <= rough.objective - exact.objective + 1e-12 * exact.scale <= rough.gap + 2e-12 * exact.scale
    ahead = problem.penalty.prox(exact.W - gradient(problem, exact), 1.0)
    assert np.max(np.linalg.norm(exact.W - ahead, axis=1) / problem.penalty.strengths(150)) < 1e-3


def gradient(problem, solution):
    eta = problem.data.linear_predictor(solution.W, solution.intercept)
    return problem.data.adjoint(problem.weight * problem.family.gradient(problem.data.y, eta))


AWKWARD = {
    "more features than rows": lambda X: X,
    "duplicates": lambda X: X[:, np.arange(X.shape[1]) // 3],
    "opposites": lambda X: np.hstack([X, -X]),
    "zeros and constants": lambda X: X * (np.arange(X.shape[1]) % 3 > 0) + 7.0 * (np.arange(X.shape[1]) % 3 == 1),
    "smooth": lambda X: np.cumsum(X, axis=1),
    "rank two": lambda X: X[:, :2] @ np.vander(np.linspace(-1, 1, X.shape[1]), 2).T,
    "large means": lambda X: X + 1e4,
    "all scales": lambda X: X * np.geomspace(1e-8, 1e8, X.shape[1]),
    "binary": lambda X: (X > 1).astype(float),
    "one feature": lambda X: X[:, :1],
}


@pytest.mark.parametrize("kind", AWKWARD)
@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**20),
    n=st.sampled_from([1, 2, 10, 30]),
    m=st.sampled_from([1, 2, 7]),
    norm_q=st.sampled_from([1, 1.05, 1.5, 2, 3, 20, np.inf, "sparse group"]),
    share=st.sampled_from([0.9, 0.3, 0.05, 0.003]),
    collinear_tasks=st.booleans(),
    fit_intercept=st.booleans(),
    magnitude=st.sampled_from([1.0, 1e-9, 1e9]),
)
def test_awkward_problems_converge(kind, seed, n, m, norm_q, share, collinear_tasks, fit_intercept, magnitude):
    rng = np.random.default_rng(seed)
    X = AWKWARD[kind](rng.standard_normal((n, 40)))
    Y = magnitude * (
        X[:, :1] * rng.standard_normal((1, m)) / (1 + np.abs(X[:, :1]).max()) + rng.standard_normal((n, m))
    )
    if collinear_tasks:
        Y = Y[:, :1] * np.arange(1, m + 1)
    q, sparsity = (2, 0.5) if norm_q == "sparse group" else (norm_q, 0.0)
    problem = make_problem(X, Y, q, share, fit_intercept, sparsity=sparsity)
    solution = shared_design.solve(problem)
    assert solution.converged
    if problem.penalty.strength > 1e-12 * magnitude:  # else even the largest penalty is but rounding
        check_solution(problem, solution)


@pytest.mark.parametrize("norm_q", QS)
def test_zero_from_the_largest_penalty_on(norm_q):
    X, Y = make_data()
    at = shared_design.solve(make_problem(X, Y, norm_q, 1.0))
    assert at.converged and at.n_iter == 0 and not at.W.any()
    np.testing.assert_allclose(at.intercept, Y.mean(axis=0))
    below = shared_design.solve(make_problem(X, Y, norm_q, 0.99))
    assert np.count_nonzero(below.W.any(axis=1)) == 1


def test_constant_targets_need_no_iteration():
    X, Y = make_data()
    solution = shared_design.solve(make_problem(X, np.full_like(Y, 0.1)))
    assert solution.converged and not solution.W.any()


FORMS = {
    "Fortran order": np.asfortranarray,
    "float32": lambda X: X.astype(np.float32),
    "CSR": sp.csr_matrix,
    "CSC": sp.csc_matrix,
    "float32 CSR": lambda X: sp.csr_matrix(X, dtype=np.float32),
}


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_the_design_gives_the_same(form, fit_intercept):
    X, Y = make_data(p=200, offset=0.0)
    X = np.round(X * (np.abs(X) > 1), 1).astype(np.float32).astype(np.float64)
    weight = np.random.default_rng(3).uniform(0.5, 2.0, 40)
    plain = shared_design.solve(make_problem(X, Y, fit_intercept=fit_intercept, weight=weight), tol=1e-11)
    design = FORMS[form](X)
    kept = design.copy()
    problem = make_problem(design, Y, fit_intercept=fit_intercept, weight=weight)
    problem = problem.with_strength(make_problem(X, Y, fit_intercept=fit_intercept, weight=weight).penalty.strength)
    found = shared_design.solve(problem, tol=1e-11)
    assert found.converged
    np.testing.assert_allclose(found.W, plain.W, atol=1e-5)
    np.testing.assert_allclose(found.intercept, plain.intercept, atol=1e-5)
    assert abs(design - kept).max() == 0


def test_read_only_designs():
    X, Y = make_data()
    X.flags.writeable = Y.flags.writeable = False
    problem = make_problem(X, Y)
    check_solution(problem, shared_design.solve(problem))


@pytest.mark.parametrize("norm_q", [2, 3])
def test_more_columns_than_a_gram_matrix_is_made_for(norm_q, monkeypatch):
    X, Y = make_data(n=60, p=300)
    problem = make_problem(X, Y, norm_q, 0.02)
    expected = shared_design.solve(problem)
    monkeypatch.setattr(shared_design, "FIRST_COLUMNS", 3)
    monkeypatch.setattr(shared_design, "LARGEST_GRAM", 1)
    monkeypatch.setattr(shared_design, "STREAM_FROM", 0)
    found = shared_design.solve(problem)
    check_solution(problem, found)
    assert abs(found.objective - expected.objective) <= 1e-6 * expected.scale


def test_a_solution_is_its_own_best_start():
    X, Y = make_data(p=150)
    problem = make_problem(X, Y)
    first = shared_design.solve(problem)
    again = shared_design.solve(problem, first)
    assert again.n_iter == 0
    np.testing.assert_allclose(again.W, first.W, atol=1e-12)
    nearby = shared_design.solve(problem.with_strength(0.95 * problem.penalty.strength), first)
    check_solution(problem.with_strength(0.95 * problem.penalty.strength), nearby)


@pytest.mark.parametrize(("norm_q", "sparsity"), [(2, 0.0), (np.inf, 0.0), (2, 0.5)])
def test_a_state_carried_along_a_path_changes_nothing_but_the_work(norm_q, sparsity, monkeypatch):
    X, Y = make_data(n=100, p=400)
    problem = make_problem(X, Y, norm_q, sparsity=sparsity)
    looks = []
    exact = shared_design.Scores.exact
    monkeypatch.setattr(shared_design.Scores, "exact", lambda *a: looks.append(1) or exact(*a))
    state = shared_design.SharedDesignState(problem)
    largest = problem.largest_penalty
    solution, objectives = None, []
    for strength in largest * np.geomspace(1.0, 0.2, 40):
        point = problem.with_strength(strength)
        solution = shared_design.solve(point, solution, state=state)
        check_solution(point, solution)
        objectives.append(solution.objective)
    assert len(looks) < 20
    assert np.all(np.diff(objectives) < 0)
    alone = shared_design.solve(point)
    assert abs(alone.objective - solution.objective) <= 1e-6 * alone.scale


def test_a_state_of_another_problem_is_refused():
    X, Y = make_data()
    problem = make_problem(X, Y)
    for other in (make_problem(X, Y), replace(problem, fit_intercept=False), make_problem(X, Y, 3)):
        with pytest.raises(ValueError, match="state belongs to other data or another penalty"):
            shared_design.solve(problem, state=shared_design.SharedDesignState(other))


def test_an_interrupt_returns_the_best_so_far(monkeypatch):
    X, Y = make_data(p=400)
    problem = make_problem(X, Y, share=0.01)
    rounds = []
    minimise = shared_design.minimise

    def interrupted_later(*args):
        rounds.append(1)
        if len(rounds) == 2:
            raise KeyboardInterrupt
        return minimise(*args)

    monkeypatch.setattr(shared_design, "minimise", interrupted_later)
    solution = shared_design.solve(problem, tol=1e-12)
    assert solution.interrupted and not solution.converged
    assert solution.W.any() and solution.objective < solution.scale
    eta = problem.data.linear_predictor(solution.W, solution.intercept)
    assert solution.gap >= problem.objective(solution.W, eta) - shared_design.solve(problem, tol=1e-10).objective


def test_too_few_iterations_are_said_so():
    X, Y = make_data(p=400)
    problem = make_problem(np.cumsum(X, axis=1), Y, share=0.01)
    solution = shared_design.solve(problem, tol=1e-10, max_iter=2)
    assert not solution.converged and solution.n_iter == 2
    exact = shared_design.solve(problem, tol=1e-10)
    assert exact.converged and solution.gap >= solution.objective - exact.objective
    assert exact.objective_trace[0] == pytest.approx(exact.scale)
    assert exact.objective_trace[-1] == pytest.approx(exact.objective)


def test_an_impossible_tolerance_ends_at_rounding():
    X, Y = make_data()
    problem = make_problem(X, Y)
    solution = shared_design.solve(problem, tol=0.0)
    assert solution.gap <= 1e-12 * solution.scale and solution.n_iter < 2000


def test_what_it_applies_to():
    X, Y = make_data()
    problem = make_problem(X, Y)
    assert problem.has_one_gram
    assert make_problem(X, Y, weight=np.arange(1.0, 41.0)).has_one_gram
    missing = Y.copy()
    missing[0, 0] = np.nan
    cells = np.ones(Y.shape)
    cells[0, 0] = 2.0
    long = TaskData.from_long(X, Y[:, 0], np.arange(40) % 2)
    assert not make_problem(X, missing).has_one_gram
    assert not make_problem(X, Y, weight=cells).has_one_gram
    assert not replace(problem, family=Logistic()).has_one_gram
    assert not replace(problem, data=long, weight=long.weight).has_one_gram
    assert not problem.with_strength(0.0).has_one_gram
    with pytest.raises(ValueError, match="solver='auto'"):
        automatic.solve(make_problem(X, missing), solver="shared_design")
    assert not replace(problem, penalty=RowPenalty(1.0, 2, weights=np.arange(60.0))).has_one_gram
    grouped = TaskData.from_wide(X, Y, groups=np.arange(60) // 2)
    assert replace(problem, data=grouped).has_one_gram
    for penalty in (RowPenalty(1.0, 3), RowPenalty(1.0, task_sparsity=0.5)):
        assert not replace(problem, data=grouped, penalty=penalty).has_one_gram
    assert not replace(problem, data=grouped, ridge=0.1).has_one_gram


COLUMN_FORMS = {
    "C": np.ascontiguousarray,
    "F": np.asfortranarray,
    "float32": lambda X: X.astype(np.float32),
    "sparse": sp.csr_matrix,
    "sparse float32": lambda X: sp.csr_matrix(X, dtype=np.float32),
}
FEATURES = np.array([4, 0, 5])


@pytest.fixture(
    params=[(w, b) for w in (False, True) for b in (False, True)], ids=lambda p: f"weights {p[0]} icpt {p[1]}"
)
def written_out(request):
    """A problem on numbers that float32 holds exactly, and its Z and Y."""
    weighted, fit_intercept = request.param
    rng = np.random.default_rng(0)
    X = np.round(rng.standard_normal((9, 6)) * (rng.random((9, 6)) < 0.7), 2).astype(np.float32).astype(np.float64)
    Y = rng.standard_normal((9, 3))
    weight = rng.uniform(0.5, 2.0, 9) if weighted else None
    data = TaskData.from_wide(X, Y, sample_weight=weight)
    problem = Problem(data, Gaussian(), RowPenalty(1.0, 2), data.loss_weights("mean"), fit_intercept)
    factor = problem.weight[:9]
    if fit_intercept:
        X, Y = X - factor @ X / factor.sum(), Y - factor @ Y / factor.sum()
    root = np.sqrt(factor / factor.mean())[:, None]
    return problem, root * X, root * Y


@pytest.mark.parametrize("form", COLUMN_FORMS)
def test_columns_are_those_of_the_matrix_written_out(written_out, form):
    problem, Z, Y = written_out
    X = COLUMN_FORMS[form](problem.data.design)
    design = SharedDesign(replace(problem, data=replace(problem.data, design=X)))
    np.testing.assert_allclose(design.Y, Y.T, atol=1e-12)
    np.testing.assert_allclose(design.lengths, np.linalg.norm(Z, axis=0), rtol=1e-9)
    np.testing.assert_allclose(design.correlations(Y.T), Z.T @ Y, atol=1e-12)
    np.testing.assert_allclose(design.correlations(Y.T, FEATURES), Z[:, FEATURES].T @ Y, atol=1e-12)
    columns = design.columns(FEATURES).take(np.array([1])).join(design.columns(FEATURES).take(slice(2, 3)))
    unit = (Z / np.linalg.norm(Z, axis=0))[:, [0, 5]]
    W = np.random.default_rng(1).standard_normal((2, 3))
    np.testing.assert_allclose(columns.gram(columns), unit.T @ unit, atol=1e-12)
    np.testing.assert_allclose(columns.predict(W), (unit @ W).T, atol=1e-12)
    np.testing.assert_allclose(columns.correlations(Y.T), unit.T @ Y, atol=1e-12)


@pytest.mark.parametrize("form", ["C", "sparse"])
def test_constant_columns_have_no_length(form):
    X = COLUMN_FORMS[form](np.column_stack([np.full(7, 0.1), np.full(7, 1.0) + 1e-9 * np.arange(7), np.zeros(7)]))
    data = TaskData.from_wide(X, np.ones((7, 2)))
    problem = Problem(data, Gaussian(), RowPenalty(1.0, 2), data.weight)
    length = SharedDesign(problem).columns(np.arange(3)).length
    np.testing.assert_allclose(length, [0, 1e-9 * np.sqrt(28), 0], rtol=1e-5)


def test_centring_removes_what_rounding_left(written_out):
    problem, _, Y = written_out
    design = SharedDesign(problem)
    root = np.ones(9) if design.root is None else design.root
    shifted = Y.T + 0.1 * root
    expected = Y.T if problem.fit_intercept else shifted
    np.testing.assert_allclose(design.centred(shifted), expected, atol=1e-14)


WEIGHTS = np.random.default_rng(9).uniform(0.5, 2.0, 80)
PENALTIES = [
    RowPenalty(1.0, 1),
    RowPenalty(1.0, 2),
    RowPenalty(1.0, 3, weights=WEIGHTS),
    RowPenalty(1.0, np.inf),
    RowPenalty(1.0, task_sparsity=0.5, weights=WEIGHTS),
    RowPenalty(1.0, task_sparsity=WEIGHTS),
]


def make_scores(penalty):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 80)) * rng.uniform(0.2, 3.0, 80) + 2.0
    data = TaskData.from_wide(X, rng.standard_normal((30, 4)))
    design = SharedDesign(Problem(data, Gaussian(), penalty, data.weight))
    return Scores(design, penalty), design


@pytest.mark.parametrize("penalty", PENALTIES, ids=lambda p: type(p).__name__ + str(getattr(p, "norm_q", "")))
@pytest.mark.parametrize("distance", [0.0, 1e-3, 1e-2, 10.0])
def test_bounds_are_upper_bounds_and_exact_from_the_strength_on(penalty, distance, monkeypatch):
    scores, design = make_scores(penalty)
    first = scores.exact(design.Y)
    np.testing.assert_allclose(first, penalty.dual_norm(design.correlations(design.Y)), rtol=1e-12)
    moved = design.centred(0.9 * design.Y + distance * np.random.default_rng(1).standard_normal(design.Y.shape))
    truth = penalty.dual_norm(design.correlations(moved))
    strength = float(np.quantile(truth, 0.8))
    looks = []
    look = SharedDesign.correlations
    monkeypatch.setattr(SharedDesign, "correlations", lambda *a: looks.append(len(a)) or look(*a))
    bounds = scores.bounds(moved, strength, 1.0)
    assert np.all(bounds >= truth * (1 - 1e-13))
    above = truth >= strength
    np.testing.assert_allclose(bounds[above], truth[above], rtol=1e-12)
    assert np.all(bounds[~above] < strength)
    assert looks == [2 if distance == 10.0 else 3]  # nearby, some columns are looked at; far off, all


@pytest.mark.parametrize("norm_q", QS)
@pytest.mark.parametrize("offset", [0.0, 3.0, 1e4])
def test_looks_in_single_precision_bound_those_in_double(norm_q, offset, monkeypatch):
    monkeypatch.setattr(shared_design, "SINGLE_LOOK", 0)
    rng = np.random.default_rng(4)
    X = rng.standard_normal((60, 300)) * rng.uniform(0.1, 10.0, 300) + offset * rng.standard_normal(300)
    problem = make_problem(X, rng.standard_normal((60, 9)) + X[:, :2] @ rng.standard_normal((2, 9)), norm_q)
    design = SharedDesign(problem)
    scores, residual = Scores(design, problem.penalty), design.centred(design.Y)
    truth = problem.penalty.dual_norm(X.T @ residual.T)
    for strength in truth.max() * np.array([2.0, 0.9995, 0.95, 0.2]):
        bounds = Scores(design, problem.penalty).bounds(residual, strength, 1.0)
        assert np.all(bounds >= truth * (1 - 1e-9))
        if strength > truth.max() / 1.02:
            above = truth >= strength
            np.testing.assert_allclose(bounds[above], truth[above], rtol=1e-9)
            assert np.all(bounds[~above] < strength)
        else:
            np.testing.assert_allclose(bounds, truth, atol=0.02 * strength)
    assert design.single is not None and scores.old is None
    correlations, error = design.rough_correlations(residual)
    assert np.all(np.linalg.norm(correlations - X.T @ residual.T, axis=1) <= error)


@pytest.mark.parametrize("norm_q", QS)
@pytest.mark.parametrize(("scale", "dtype"), [("mean", np.float64), ("sum", np.float64), ("mean", np.float32)])
def test_a_minimum_found_by_looks_in_single_precision(norm_q, scale, dtype, monkeypatch):
    X, Y = make_data(n=50, p=400, m=9, offset=20.0)
    X = X.astype(dtype)
    weight = np.random.default_rng(3).uniform(0.5, 2.0, 50)
    problem = make_problem(X, Y, norm_q, 0.05, weight=weight, scale=scale)
    expected = shared_design.solve(problem, tol=1e-9)
    monkeypatch.setattr(shared_design, "SINGLE_LOOK", 0)
    assert SharedDesign(problem).single is not None
    found = shared_design.solve(problem, tol=1e-9)
    check_solution(problem, found, 1e-9)
    assert abs(found.objective - expected.objective) <= 2e-9 * found.scale


def test_columns_beyond_single_precision_are_looked_at_in_double(monkeypatch):
    monkeypatch.setattr(shared_design, "SINGLE_LOOK", 0)
    X, Y = make_data(m=9)
    problem = make_problem(np.concatenate([X, 1e20 * X[:, :3]], axis=1), Y)
    assert SharedDesign(problem).single is None
    check_solution(problem, shared_design.solve(problem))


def test_null_columns_do_not_count():
    scores, design = make_scores(RowPenalty(1.0, 2))
    design.is_null[3] = True
    assert scores.exact(design.Y)[3] == 0
    assert scores.bounds(design.Y, 1e-3, 1.0)[3] == 0


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_dual_norms_at_extreme_scales(scale):
    rows = np.array([[3.0, 4.0], [0.0, 0.0]])
    np.testing.assert_allclose(RowPenalty(1.0, 2).dual_norm(scale * rows), [5 * scale, 0], rtol=1e-14)


@pytest.mark.parametrize("shape", [(3, 40), (40, 3), (301, 302)])
def test_spectral_norm_is_an_upper_bound(shape):
    matrix = np.random.default_rng(0).standard_normal(shape)
    largest = np.linalg.svd(matrix, compute_uv=False)[0]
    assert largest <= spectral_norm(matrix) <= largest * (20 if min(shape) > 300 else 1 + 1e-9)


@pytest.mark.parametrize("norm_q", [1.0, np.inf])
def test_rows_that_nearly_interpolate_are_found_by_newton_steps(norm_q):
    # coordinate descent alone takes thousands of epochs here; at q = 1 an active row is not zero in some tasks only
    rng = np.random.default_rng(0)
    X = sp.random(100, 600, 0.05, "csr", rng=rng)
    problem = make_problem(X, rng.standard_normal((100, 3)), norm_q=norm_q, share=0.01)
    solution = shared_design.solve(problem, max_iter=2000)
    assert solution.converged
    check_solution(problem, solution)


# ---------------------------------------------------------------------- groups of columns


def make_grouped(X, Y, groups, share=0.1, fit_intercept=True, sample_weight=None, weights=None):
    data = TaskData.from_wide(X, Y, sample_weight=sample_weight, groups=groups)
    problem = Problem(data, Gaussian(), RowPenalty(1.0, weights=weights), data.loss_weights("mean"), fit_intercept)
    return problem.with_strength(share * problem.largest_penalty)


GROUPINGS = {
    "threes": np.arange(60) // 3,
    "scattered": np.arange(60) % 20,
    "unequal": np.repeat(np.arange(11), [1, 1, 2, 3, 5, 8, 13, 20, 1, 4, 2]),
}


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("grouping", GROUPINGS)
@pytest.mark.parametrize("share", [0.5, 0.1, 0.01])
def test_grouped_minimum_is_that_of_the_solver_for_own_designs(grouping, share, fit_intercept):
    X, Y = make_data(m=9)
    X = X * np.random.default_rng(2).uniform(0.1, 10.0, 60)  # as users have them: in units of their own
    X[:, 7], X[:, 11] = 0.0, 3.0  # of no use, and only without an intercept
    X[:, 20] = X[:, 21]
    weight = np.random.default_rng(3).uniform(0.5, 2.0, len(X))
    n_rows = len(np.unique(GROUPINGS[grouping]))
    weights = np.random.default_rng(4).uniform(0.5, 2.0, n_rows)
    problem = make_grouped(X, Y, GROUPINGS[grouping], share, fit_intercept, weight, weights)
    assert problem.has_one_gram
    found = shared_design.solve(problem, tol=1e-9)
    plain = automatic.solve(problem, solver="working_set", tol=1e-9)
    assert found.converged and abs(found.objective - plain.objective) <= 2e-9 * found.scale
    np.testing.assert_allclose(found.W, plain.W, atol=2e-3 * np.abs(plain.W).max())
    eta = problem.data.linear_predictor(found.W, found.intercept)
    assert problem.objective(found.W, eta) == pytest.approx(found.objective, rel=1e-12)
    assert (
        -1e-12 * found.scale <= problem.gap(found.W, eta) <= 1.1e-9 * found.scale
    )  # another certificate, from outside
    assert not found.W[7].any()


def test_grouped_minimum_is_that_of_cvxpy():
    X, Y = make_data(n=20, p=12, m=3)
    groups = np.array([0, 0, 1, 1, 1, 2, 3, 3, 4, 4, 4, 4])
    problem = make_grouped(X, Y, groups)
    found = shared_design.solve(problem, tol=1e-10)
    W, b = cp.Variable((12, 3)), cp.Variable((1, 3))
    loss = cp.sum_squares(Y - X @ W - np.ones((20, 1)) @ b) / 40
    penalty = sum(cp.norm(W[groups == g], "fro") for g in range(5))
    expected = cp.Problem(cp.Minimize(loss + problem.penalty.strength * penalty)).solve(solver=cp.CLARABEL)
    assert found.objective == pytest.approx(expected, rel=1e-6)


def test_groups_of_more_columns_than_a_gram_matrix_is_made_for(monkeypatch):
    X, Y = make_data(n=60, p=600, m=9)
    problem = make_grouped(np.cumsum(X, axis=1), Y, np.arange(600) // 3, 0.02)
    expected = shared_design.solve(problem, tol=1e-8)
    monkeypatch.setattr(shared_design, "FIRST_COLUMNS", 3)
    monkeypatch.setattr(shared_design, "LARGEST_GRAM", 1)
    monkeypatch.setattr(shared_design, "STREAM_FROM", 0)
    found = shared_design.solve(problem, tol=1e-8)
    assert found.converged and abs(found.objective - expected.objective) <= 2e-8 * expected.scale
    again = shared_design.solve(problem, found, tol=1e-8)
    assert again.n_iter == 0


def test_a_state_carried_along_a_path_of_groups_changes_nothing():
    X, Y = make_data(n=100, p=600, m=9)
    problem = make_grouped(X, Y, np.arange(600) // 3)
    state, solution = shared_design.SharedDesignState(problem), None
    for strength in problem.largest_penalty * np.geomspace(1.0, 0.1, 15):
        point = problem.with_strength(strength)
        solution = shared_design.solve(point, solution, state=state)
        assert solution.converged
        alone = shared_design.solve(point)
        assert abs(alone.objective - solution.objective) <= 2e-6 * alone.scale


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("ridge", [0.0, 0.3])
@pytest.mark.parametrize("kind", [np.float64, np.float32, "F"])
def test_streamed_columns_are_those_that_are_written_out(weighted, fit_intercept, ridge, kind, monkeypatch):
    monkeypatch.setattr(shared_design, "STREAM_CHUNK", 90)
    rng = np.random.default_rng(0)
    X, Y = make_data(n=30, p=25)
    X[:, 3] = 7.0
    X = np.asfortranarray(X) if kind == "F" else X.astype(kind)
    weight = rng.uniform(0.5, 2.0, 30) if weighted else None
    design = SharedDesign(replace(make_problem(X, Y, fit_intercept=fit_intercept, weight=weight), ridge=ridge))
    features = np.array([4, 3, 0, 20, 11, 17])
    written = design.columns(features)
    none = design.columns(features[:0]).streamed(design, features[:0])
    streamed = design.streamed(features[4:], design.streamed(features[:4], none))
    for name in ("mean", "length", "own", "target"):
        np.testing.assert_allclose(getattr(streamed, name), getattr(written, name), rtol=1e-10, atol=1e-12)
    assert (streamed.length[1] == 0.0) == fit_intercept
    W = rng.standard_normal((6, 4))
    W[[0, 3]] = 0.0
    residual = design.centred(rng.standard_normal((4, 30)))
    some = np.array([5, 0, 2])
    for mine, theirs in ((streamed, written), (streamed.take(some), written.take(some))):
        V = W[: len(mine.length)]
        np.testing.assert_allclose(mine.predict(V), theirs.predict(V), atol=1e-10)
        np.testing.assert_allclose(mine.correlations(residual, V), theirs.correlations(residual, V), atol=1e-10)
        np.testing.assert_allclose(mine.own_gram(), theirs.own_gram(), atol=1e-10)
        rough, exact = mine.in_single_precision().correlations(residual), theirs.correlations(residual)
        np.testing.assert_allclose(rough, exact, atol=1e-5)


@pytest.mark.parametrize("tol", [1e-6, 1e-10])
@pytest.mark.parametrize("offset", [1.0, 1e4])
@pytest.mark.parametrize(("norm_q", "sparsity"), [(1, 0.0), (2, 0.0), (2, 0.4), (np.inf, 0.0)])
def test_streamed_working_sets_lead_to_the_minimum(norm_q, sparsity, offset, tol, monkeypatch):
    X, Y = make_data(n=50, p=300, offset=offset, noise=2.0)
    problem = make_problem(X, Y, norm_q, 0.03, sparsity=sparsity)
    expected = shared_design.solve(problem, tol=tol)
    monkeypatch.setattr(shared_design.SharedRounds, "_largest_gram", lambda rounds: 40)
    monkeypatch.setattr(shared_design, "STREAM_FROM", 0)
    streamed, streams = [], SharedDesign.streamed
    monkeypatch.setattr(SharedDesign, "streamed", lambda *a: streamed.append(1) or streams(*a))
    found = shared_design.solve(problem, tol=tol)
    assert streamed and found.converged
    assert abs(found.objective - expected.objective) <= 2 * tol * expected.scale
    np.testing.assert_array_equal(found.W.any(axis=1), expected.W.any(axis=1)) if tol < 1e-9 else None
