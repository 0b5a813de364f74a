"""The selectors that others are compared with: their objectives against independent solvers."""

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.feature_selection import f_classif

from bayesmtfs import baselines
from bayesmtfs.papers.baselines import rankings
from bayesmtfs.papers.baselines.rankings import CentredTask
from bayesmtfs.types import ConvergenceWarning

SELECTORS = [
    baselines.FisherScoreSelector(),
    baselines.RobustRegressionSelector(),
    baselines.HingeSelector(),
    baselines.SharedStructureSelector(),
    baselines.SparseMultinomialSelector(),
    baselines.RandomSelector(random_state=0),
]
each = pytest.mark.parametrize("selector", SELECTORS, ids=lambda selector: type(selector).__name__)
informed = pytest.mark.parametrize("selector", SELECTORS[:-1], ids=lambda selector: type(selector).__name__)


@pytest.fixture(scope="module")
def labelled():
    """Two tasks of three and four classes; the features 2 and 5 tell them apart."""
    rng = np.random.default_rng(0)
    tasks, y = np.repeat([0, 1], 36), np.concatenate([np.arange(36) % 3, 10 + np.arange(36) % 4])
    X = rng.standard_normal((72, 9))
    for label in np.unique(y):
        X[np.ix_(y == label, [2, 5])] += 2.5 * rng.standard_normal(2)
    return X, y, tasks


@pytest.fixture(scope="module")
def centred(labelled):
    X, y, tasks = labelled
    weight = np.random.default_rng(1).uniform(0.5, 2.0, 36)
    return [CentredTask(X[tasks == task], y[tasks == task], weight) for task in (0, 1)]


@informed
def test_relevant_features_come_first(labelled, selector):
    X, y, tasks = labelled
    model = clone(selector).set_params(n_features_to_select=2, standardize=True).fit(X, y, tasks=tasks)
    assert model.get_support(indices=True).tolist() == [2, 5]
    assert model.task_scores_.shape == (2, 9) and model.transform(X).shape == (72, 2)


@each
def test_same_ranking_of_sparse_rows_and_in_another_order_of_rows(labelled, selector):
    X, y, tasks = labelled
    first = clone(selector).fit(X, y, tasks=tasks)
    sparse = clone(selector).fit(sp.csr_matrix(X), y, tasks=tasks)
    mixed = np.random.default_rng(2).permutation(len(y))
    shuffled = clone(selector).fit(X[mixed], y[mixed], tasks=tasks[mixed])
    for other in (sparse, shuffled):
        np.testing.assert_allclose(other.scores_, first.scores_, rtol=0.02, atol=0.02 * first.scores_.max())


def test_fisher_score_orders_features_as_the_f_test_does(labelled):
    X, y, _ = labelled
    model = baselines.FisherScoreSelector().fit(X, y)
    np.testing.assert_array_equal(np.argsort(model.ranking_), np.argsort(-f_classif(X, y)[0]))
    within = sum(((X[y == c] - X[y == c].mean(axis=0)) ** 2).sum(axis=0) for c in np.unique(y))
    total = ((X - X.mean(axis=0)) ** 2).sum(axis=0)
    np.testing.assert_allclose(model.scores_, 1.0 - within / total)


@pytest.mark.parametrize("strength", [0.5, 5.0])
def test_lsr21_reaches_the_optimum(centred, strength):
    task = centred[1]
    W = cp.Variable((9, 4))
    residual = cp.multiply(cp.norm(task.Y - task.X @ W, axis=1), task.weight)
    optimum = cp.Problem(cp.Minimize(cp.sum(residual) + strength * cp.sum(cp.norm(W, axis=1)))).solve(solver="CLARABEL")
    found = rankings.solve_robust(task.X, task.Y, task.weight, strength, 1e-8, 5000)
    rows = task.weight @ np.linalg.norm(task.Y - task.X @ found.W, axis=1)
    reached = rows + strength * np.linalg.norm(found.W, axis=1).sum()
    assert reached == pytest.approx(optimum, rel=1e-5) and found.converged
    assert np.all(np.diff(found.trace[1:]) <= 1e-9)


@pytest.mark.parametrize(("within", "joint"), [(0.02, 0.02), (0.0, 0.1), (0.05, 0.0)])
def test_fssi_reaches_the_optimum(centred, within, joint):
    W = [cp.Variable((9, task.Y.shape[1])) for task in centred]
    roots = [np.sqrt(task.weight / task.weight.sum())[:, None] for task in centred]
    residuals = [cp.multiply(root, t.X @ w - t.Y) for root, t, w in zip(roots, centred, W, strict=True)]
    parts = [cp.sum_squares(residual) / 2 for residual in residuals]
    rows = sum(cp.sum(cp.norm(w, axis=1)) for w in W)
    problem = cp.Problem(cp.Minimize(sum(parts) + within * rows + joint * cp.normNuc(cp.hstack(W))))
    found = rankings.solve_shared(centred, within, joint, 1e-8, 20_000)[0]
    assert found.converged
    assert found.trace[-1] == pytest.approx(problem.solve(solver="CLARABEL"), rel=1e-4)


def test_svm21_reaches_the_optimum(labelled):
    X, y, _ = labelled
    X, y, strength = X[:36], y[:36], 0.05
    W, b = cp.Variable((9, 3)), cp.Variable(3)
    signs = np.where(y[:, None] == np.arange(3), 1.0, -1.0)
    hinge = cp.sum(cp.pos(1 - cp.multiply(signs, X @ W + np.ones((36, 1)) @ cp.reshape(b, (1, 3), order="C")))) / 36
    optimum = cp.Problem(cp.Minimize(hinge + strength * cp.sum(cp.norm(W, axis=1)))).solve(solver="CLARABEL")
    model = baselines.HingeSelector(strength, tol=1e-6).fit(X, y)
    assert model.result_.convergence.objective == pytest.approx(optimum, rel=1e-4)
    np.testing.assert_allclose(model.scores_, np.linalg.norm(W.value, axis=1), atol=0.02)


def test_sbmlr_solves_the_penalised_problem_of_its_own_strength(labelled):
    X, y, _ = labelled
    problem = rankings.MultinomialTask(X[:36], (y[:36, None] == np.arange(3)).astype(float), np.ones(36))
    found = rankings.solve_sparse(problem, 1e-7, 200)
    assert found.converged
    free = (found.W != 0).astype(float)
    assert found.strength == pytest.approx(free.sum() / np.abs(found.W).sum(), rel=1e-3)
    W, b = cp.Variable((9, 3)), cp.Variable(3)
    eta = problem.X @ cp.multiply(free, W) + np.ones((36, 1)) @ cp.reshape(b, (1, 3), order="C")
    loss = cp.sum(cp.log_sum_exp(eta, axis=1)) - cp.sum(cp.multiply(problem.Y, eta))
    optimum = cp.Problem(cp.Minimize(loss + found.strength * cp.sum(cp.abs(W)))).solve(solver="CLARABEL")
    reached = problem.loss(found.W, found.b) + found.strength * np.abs(found.W).sum()
    assert reached == pytest.approx(optimum, rel=1e-4)


def test_multinomial_gradient_is_that_of_finite_differences(labelled):
    X, y, _ = labelled
    problem = rankings.MultinomialTask(X[:36], (y[:36, None] == np.arange(3)).astype(float), np.linspace(0.5, 1.5, 36))
    W, b = np.random.default_rng(3).standard_normal((9, 3)), np.array([0.3, -0.2, 0.1])
    slope_W, slope_b = problem.gradient(W, b)
    step = 1e-6 * np.eye(9)[:, [4]] @ np.eye(3)[[1]]
    assert (problem.loss(W + step, b) - problem.loss(W - step, b)) / 2e-6 == pytest.approx(slope_W[4, 1], rel=1e-6)
    move = 1e-6 * np.eye(3)[2]
    assert (problem.loss(W, b + move) - problem.loss(W, b - move)) / 2e-6 == pytest.approx(slope_b[2], rel=1e-6)


def test_zero_scores_are_ordered_by_variance_between_classes(labelled):
    X, y, tasks = labelled
    model = baselines.HingeSelector(penalty_strength=1e3).fit(X, y, tasks=tasks)
    fisher = baselines.FisherScoreSelector().fit(X, y, tasks=tasks)
    assert not model.scores_.any()
    np.testing.assert_array_equal(np.argsort(model.ranking_), np.argsort(-fisher.task_scores_.mean(axis=0)))


def test_random_rankings_repeat_with_their_seed(labelled):
    X, y, tasks = labelled
    found = [baselines.RandomSelector(random_state=seed).fit(X, y, tasks=tasks).ranking_ for seed in (3, 3, 4)]
    np.testing.assert_array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        (baselines.RobustRegressionSelector(penalty_strength=0.0), "penalty_strength is 0"),
        (baselines.SharedStructureSelector(joint_strength=-1.0), "joint_strength is -1"),
        (baselines.FisherScoreSelector(n_features_to_select=0), "n_features_to_select is 0"),
    ],
)
def test_bad_parameters_are_named(labelled, selector, message):
    X, y, tasks = labelled
    with pytest.raises(ValueError, match=message):
        selector.fit(X, y, tasks=tasks)


@pytest.mark.parametrize(
    "selector",
    [
        baselines.RobustRegressionSelector(max_iter=1),
        baselines.SharedStructureSelector(max_iter=1),
        baselines.SparseMultinomialSelector(max_iter=1),
    ],
    ids=lambda selector: type(selector).__name__,
)
def test_too_few_iterations_are_warned_of(labelled, selector):
    X, y, tasks = labelled
    with pytest.warns(ConvergenceWarning, match="raise max_iter"):
        assert not selector.fit(X, y, tasks=tasks).converged_
