"""Dual averaging: the closed forms are minima, the compiled rounds are the stated recursion, the limit is the batch fit."""

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import root

from bayesmtfs import MixedNormRegressor
from bayesmtfs.families import find_family
from bayesmtfs.online.dual_averaging import DualAveraging, DualAveragingSettings, learnable, observations
from bayesmtfs.online.dual_averaging_kernels import Schedule, round_schedule, shuffle_within_tasks
from bayesmtfs.priors import Blocks, RowPenalty

P, M, N = 6, 4, 80


def settings_of(loss="squared", **options):
    """Settings of a loss by its name."""
    return DualAveragingSettings(family=find_family(loss), **options)


def stream(seed=0, loss="squared"):
    """Rows of M tasks in random order, so that tasks are missing in many rounds."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, P)) * (rng.random((N, P)) < 0.6)
    task = rng.choice(M, size=N, p=[0.5, 0.3, 0.15, 0.05])
    y = X @ rng.standard_normal(P) + rng.standard_normal(N) + 3.0
    y = np.where(y > 3.0, 1.0, -1.0) if loss in ("logistic", "hinge") else y
    return X, y, task, rng.uniform(0.5, 2.0, N)


def learned(settings, X, y, task, weight=None, batch=N, **options):
    """Learner after all rows, given in batches."""
    learner = DualAveraging(settings, X.shape[1])
    learner.add_tasks(M)
    for start in range(0, len(y), batch):
        part = slice(start, start + batch)
        rows = learnable(X[part])
        seen = observations(rows, y[part], task[part], None if weight is None else weight[part])
        learner.learn(rows, seen, Schedule(*round_schedule(task[part], M)), **options)
    return learner


class Recursion:
    """The same in plain NumPy, from the formulas: average gradients, proximal rows, one clock per task."""

    def __init__(self, settings):
        self.settings = settings
        self.family = settings.family
        self.penalty = RowPenalty(settings.strength, settings.norm_q, settings.task_sparsity)
        self.blocks = Blocks(P, M, groups=settings.groups)
        self.S, self.s = np.zeros((P, M)), np.zeros(M)
        self.clock, self.weight, self.squares = np.zeros(M), np.zeros(M), np.zeros(M)
        self.targets, self.deviations, self.loss = np.zeros(M), np.zeros(M), 0.0

    def centre(self, targets, weight):
        if self.settings.family.name == "hinge":
            return np.zeros_like(weight)
        if self.settings.family.name == "logistic":
            return np.log((targets + 0.5) / (weight - targets + 0.5))
        return np.divide(targets, weight, out=np.zeros_like(weight), where=weight > 0)

    def steps(self, seen):
        settings, root = self.settings, np.sqrt(self.clock)
        if settings.gamma is not None:
            return root / settings.gamma, root / settings.gamma
        curvature = np.full(M, {"logistic": 0.25}.get(settings.family.name, 1.0))
        if settings.family.name == "absolute":
            curvature = np.where(self.deviations > 0, seen / np.where(self.deviations > 0, self.deviations, 1), 1.0)
        curvature = 0.5 * curvature * (1 + settings.fit_intercept) * (1 + settings.shared_mean)
        squares = np.where(self.squares > 0, self.squares / np.maximum(seen, 1), 1.0 / curvature)
        return root / (curvature * squares), root / curvature

    def weights(self, seen=None):
        settings = self.settings
        step, intercept_step = self.steps(self.clock if seen is None else seen)
        size = self.weight if settings.loss_scale == "sum" else np.ones(M)
        scale = np.divide(size, self.weight, out=np.zeros(M), where=self.weight > 0)
        G, g = self.S * scale, self.s * scale
        per_size = np.divide(1.0, size, out=np.zeros(M), where=size > 0)
        W = -step * per_size * self.blocks.scatter(self.penalty.prox(self.blocks.gather(G), 1.0))
        met = self.clock > 0
        if settings.shared_mean:
            total = size[met].sum()
            ridge = settings.mean_strength * (step[met].mean() if met.any() else 0.0)
            W = W - (G @ step)[:, None] / max(total + ridge, 1e-300)
        if not settings.fit_intercept:
            return W, np.zeros(M)
        if not settings.shared_mean:
            return W, self.centre(self.targets, self.weight) - intercept_step * per_size * g
        pooled = self.centre(self.targets.sum(keepdims=True), self.weight.sum(keepdims=True))[0]
        mean = pooled - g @ intercept_step / max(size[met].sum(), 1e-300)
        return W, mean - intercept_step * per_size * self.penalty.prox(g[None], 1.0)[0]

    def round(self, X, y, task, weight):
        settings = self.settings
        self.squares[task] += (X**2).sum(axis=1)
        ahead = self.clock.copy()
        ahead[task] += 1
        W, b = self.weights(seen=ahead)
        eta = np.einsum("ij,ji->i", X, W[:, task]) + b[task]
        self.loss += float(weight @ self.family.value(y, eta))
        slope = weight * self.family.gradient(y, eta)
        centre = self.centre(self.targets, self.weight)[task] * settings.fit_intercept
        counted = (self.clock[task] > 0) | (not settings.fit_intercept)
        self.deviations[task] += np.abs(y - centre) * counted
        self.S[:, task] += X.T * slope
        self.s[task] += slope
        self.clock[task] += 1
        self.weight[task] += weight
        self.targets[task] += weight * ((y > 0) if settings.family.name in ("logistic", "hinge") else y)

    def read(self, X, y, task, weight):
        """The i-th row of each task belongs to the i-th round."""
        number = np.array([int(np.sum(task[:i] == k)) for i, k in enumerate(task)])
        for r in range(number.max() + 1):
            chosen = np.flatnonzero(number == r)
            self.round(X[chosen], y[chosen], task[chosen], weight[chosen])
        return self


GROUPS = np.array([0, 0, 1, 2, 2, 2])
CASES = {
    "individual": settings_of(strength=0.3, norm_q=1.0, gamma=4.0),
    "features": settings_of(strength=0.5, gamma=4.0),
    "no penalty": settings_of(gamma=4.0),
    "features and tasks": settings_of(strength=0.4, task_sparsity=0.3, gamma=4.0),
    "sparsity per feature": settings_of(strength=0.4, task_sparsity=np.linspace(0, 1, P), gamma=4.0),
    "q = inf": settings_of(strength=0.5, norm_q=np.inf, gamma=4.0),
    "q = 1.7": settings_of(strength=0.5, norm_q=1.7, gamma=4.0),
    "groups": settings_of(strength=0.5, groups=GROUPS, gamma=4.0),
    "groups, q = 3": settings_of(strength=0.5, norm_q=3.0, groups=GROUPS, gamma=4.0),
    "auto": settings_of(strength=0.5),
    "auto, no intercept": settings_of(strength=0.5, fit_intercept=False),
    "sum": settings_of(strength=3.0, loss_scale="sum"),
    "absolute": settings_of(strength=0.1, loss="absolute"),
    "logistic": settings_of(strength=0.05, loss="logistic"),
    "hinge": settings_of(strength=0.05, loss="hinge", norm_q=1.0),
    "shared mean": settings_of(strength=0.3, shared_mean=True, mean_strength=0.2),
    "shared mean, q = 1, sum": settings_of(
        norm_q=1.0, strength=3.0, shared_mean=True, mean_strength=0.2, loss_scale="sum"
    ),
    "shared mean, logistic, q = 3": settings_of(
        norm_q=3.0, loss="logistic", strength=0.05, shared_mean=True, mean_strength=0.2
    ),
}
cases = pytest.mark.parametrize("settings", CASES.values(), ids=CASES.keys())
FORMS = pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])


@cases
@FORMS
def test_compiled_rounds_are_the_recursion(settings, form):
    X, y, task, weight = stream(loss=settings.family.name)
    learner = learned(settings, form(X), y, task, weight)
    wanted = Recursion(settings).read(X, y, task, weight)
    W, b = wanted.weights()
    np.testing.assert_allclose(learner.coefficients().W, W, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(learner.coefficients().intercept, b, rtol=1e-10, atol=1e-12)
    assert learner.progressive_loss == pytest.approx(wanted.loss / weight.sum(), rel=1e-10)
    assert np.array_equal(learner.coefficients().W == 0, W == 0)
    predicted = learner.predict(learnable(form(X)), task)
    np.testing.assert_allclose(predicted, np.einsum("ij,ji->i", X, W[:, task]) + b[task], rtol=1e-9, atol=1e-10)


@cases
def test_batches_of_one_are_row_by_row(settings):
    X, y, task, weight = stream(1, settings.family.name)
    wanted = Recursion(settings)
    for i in range(N):
        wanted.round(X[[i]], y[[i]], task[[i]], weight[[i]])
    found = learned(settings, X, y, task, weight, batch=1)
    np.testing.assert_allclose(found.coefficients().W, wanted.weights()[0], rtol=1e-10, atol=1e-12)
    assert found.n_rounds == N


def learned_row(learner, form, row, y, task):
    """Whether the learner took the row through its entrance for single rows."""
    X = learnable(form(row))
    if sp.issparse(X):
        return learner.learn_sparse_row(X.data, X.indices, X.indptr, y, task)
    return learner.learn_dense_row(X, y, task)


def same_numbers(first, second):
    """Whether two learners are in the same state, bit for bit."""
    stored = first.to_stored(), second.to_stored()
    return all(np.array_equal(stored[0][name], stored[1][name]) for name in stored[0])


@cases
@FORMS
def test_single_rows_are_batches_of_one_bit_for_bit(settings, form):
    X, y, task, _ = stream(1, settings.family.name)
    wanted = learned(settings, form(X), y, task, batch=1)
    found = DualAveraging(settings, P)
    found.add_tasks(M)
    common = settings.norm_q in (1.0, 2.0) and np.ndim(settings.task_sparsity) == 0
    assert found.takes_single_rows == (common and settings.groups is None and not settings.shared_mean)
    if not found.takes_single_rows:
        return
    for i in range(N):
        assert learned_row(found, form, X[[i]], float(y[i]), int(task[i]))
    assert same_numbers(found, wanted) and found.n_rounds == N
    np.testing.assert_array_equal(found.coefficients().W, wanted.coefficients().W)


@FORMS
def test_single_rows_that_cannot_be_read_change_nothing(form):
    X, y, task, _ = stream()
    learner, untouched = (learned(settings_of(strength=0.3), form(X), y, task) for _ in range(2))
    for row, target in ((np.full((1, P), np.nan), 0.0), (np.full((1, P), np.inf), 0.0), (X[:1], np.nan)):
        assert not learned_row(learner, form, row, target, 0)
    data, indices = np.ones(2), np.array([0, 1], dtype=np.int32)
    for places, ends in (([0, P], [0, 2]), ([-1, 0], [0, 2]), (indices, [0, 3]), (indices, [-1, 2])):
        pointers = np.array(ends, dtype=np.int32)
        assert not learner.learn_sparse_row(data, np.array(places, dtype=np.int32), pointers, 1.0, 0)
    assert same_numbers(learner, untouched)


@FORMS
def test_divergence_of_single_rows_is_an_error_with_advice(form):
    X, y, task, _ = stream(5)
    learner = learned(settings_of(gamma=1e-3), form(X[:0]), y[:0], task[:0])
    with pytest.raises(ValueError, match=r"the weights have diverged in round \d+: gamma is too small"):
        for i in range(N):
            learned_row(learner, form, 10 * X[[i]], float(y[i]), int(task[i]))
    assert learner.n_used == len(np.unique(learner.state.slots[learner.state.slots >= 0]))


# ---------------------------------------------------------------------- eq. (8) to (12)


def problem_eight(G, settings, t):
    """Minimum of eq. (8) by an interior-point method, its non-zero entries made exact by a root of the gradient."""
    W = cp.Variable(G.shape)
    q, strength, ridge = settings.norm_q, settings.strength, settings.gamma / np.sqrt(t)
    norms = sum(cp.norm(W[j], "inf" if q == np.inf else q) for j in range(len(G)))
    penalty = strength * (norms + settings.task_sparsity * cp.sum(cp.abs(W)))
    problem = cp.Problem(cp.Minimize(cp.sum(cp.multiply(G, W)) + penalty + ridge / 2 * cp.sum_squares(W)))
    tol = 1e-11 if q == np.inf else 1e-9
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=tol, tol_gap_rel=tol, tol_feas=tol)
    if q == np.inf:
        return W.value
    kept = np.abs(W.value) > 1e-5

    def gradient(entries):
        V = np.zeros(G.shape)
        V[kept] = entries
        norms = np.linalg.norm(V, q, axis=1, keepdims=True)
        slopes = np.sign(V) * (settings.task_sparsity + (np.abs(V) / np.where(norms > 0, norms, 1)) ** (q - 1))
        return (G + strength * slopes + ridge * V)[kept]

    exact = np.zeros(G.shape)
    exact[kept] = root(gradient, W.value[kept], tol=1e-13).x
    return exact


@pytest.mark.parametrize(("norm_q", "sparsity"), [(1.0, 0.0), (2.0, 0.0), (2.0, 0.3), (np.inf, 0.0), (3.0, 0.0)])
def test_closed_forms_minimise_equation_eight(norm_q, sparsity):
    settings = settings_of(
        strength=0.2, norm_q=norm_q, task_sparsity=sparsity, gamma=2.0, fit_intercept=False, loss_scale="mean"
    )
    rng = np.random.default_rng(0)
    t, X, Y = 30, rng.standard_normal((30, P)), rng.standard_normal((30, M))
    task = np.tile(np.arange(M), t)
    learner = learned(settings, np.repeat(X, M, axis=0), Y.ravel(), task, batch=t * M)
    W = learner.coefficients().W
    G = learner.state.sums[learner.state.slots, :M] / t
    curvature = 2.0 / np.sqrt(t)
    np.testing.assert_allclose(W, RowPenalty(0.2, norm_q, sparsity).prox(-G / curvature, 1.0 / curvature), atol=1e-12)
    np.testing.assert_allclose(W, problem_eight(G, settings, t), atol=1e-8)
    assert 0 < np.sum(W == 0) < W.size or norm_q == 3.0


# ---------------------------------------------------------------------- limits


def many_epochs(settings, X, y, task, epochs):
    order, starts = round_schedule(task, M)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(task))])
    learner, places, seen = DualAveraging(settings, X.shape[1]), np.arange(len(y)), observations(X, y, task)
    learner.add_tasks(M, np.diff(offsets).astype(float))
    for epoch in range(epochs):
        shuffle_within_tasks(places, offsets, epoch)
        learner.learn(X, seen, Schedule(places[order], starts), growing=False)
    return learner


@pytest.mark.parametrize("options", [{}, {"task_sparsity": 0.4}, {"norm_q": np.inf}, {"norm_q": 1.0}])
@pytest.mark.parametrize("loss_scale", ["mean", "sum"])
def test_limit_is_the_batch_fit(options, loss_scale):
    rng = np.random.default_rng(2)
    task = np.repeat(np.arange(M), 15)
    X = rng.standard_normal((len(task), 4))
    coef = np.array([[2.0, 1.0, 0.0, 0.0], [1.5, 0.0, 0.0, 0.0], [2.0, -1.0, 0.2, 0.0], [1.0, 0.5, 0.0, 0.0]])
    y = np.einsum("ij,ij->i", X, coef[task]) + 0.5 * rng.standard_normal(len(task)) + task
    strength = 0.6 * (15 if loss_scale == "sum" else 1)
    learner = many_epochs(settings_of(strength=strength, gamma=8.0, loss_scale=loss_scale, **options), X, y, task, 6000)
    batch = MixedNormRegressor(penalty_strength=strength, loss_scale=loss_scale, tol=1e-10, **options)
    batch.fit(X, y, tasks=task)
    np.testing.assert_allclose(learner.coefficients().W, batch.coef_.T, atol=0.04)
    np.testing.assert_allclose(learner.coefficients().intercept, batch.intercept_, atol=0.04)


def test_regret_grows_like_the_root_of_time():
    rng = np.random.default_rng(3)
    coef = (
        np.where(np.arange(P) < 2, 1.0, 0.0)[:, None] + 0.2 * rng.standard_normal((P, M)) * (np.arange(P) < 2)[:, None]
    )
    regrets = []
    for t in (500, 8000):
        X = rng.standard_normal((t * M, P))
        task = np.tile(np.arange(M), t)
        y = np.einsum("ij,ji->i", X, coef[:, task]) + 0.3 * rng.standard_normal(t * M)
        learner = learned(settings_of(strength=0.05, fit_intercept=False), X, y, task, batch=t * M)
        best = MixedNormRegressor(penalty_strength=1e-9, fit_intercept=False).fit(X, y, tasks=task)
        least = 0.5 * np.mean((y - best.predict(X, tasks=task)) ** 2)
        regrets.append((learner.progressive_loss - least) * t)
    assert 0 < regrets[0] < regrets[1] < 1.5 * np.sqrt(16) * regrets[0]


# ---------------------------------------------------------------------- room, averages, shuffles


def test_average_is_the_mean_over_each_tasks_rounds():
    X, y, task, _ = stream(4)
    last = settings_of(strength=0.3)
    totals, rounds = np.zeros((P, M)), np.zeros(M)
    learner = learned(last, X[:0], y[:0], task[:0])
    for i in range(N):
        learner.learn(X[[i]], observations(X[[i]], y[[i]], task[[i]]), Schedule(np.array([0]), np.array([0, 1])))
        totals[:, task[i]] += learner.coefficients().W[:, task[i]]
        rounds[task[i]] += 1
    averaged = learned(settings_of(strength=0.3, average=True), X, y, task, batch=1)
    np.testing.assert_allclose(averaged.coefficients().W, totals / rounds, rtol=1e-12, atol=1e-14)


def test_features_that_never_occur_take_no_memory():
    p = 1_000_000
    rng = np.random.default_rng(0)
    places = (np.repeat(np.arange(50), 20), rng.integers(p, size=1000))
    X = learnable(sp.csr_matrix((rng.standard_normal(1000), places), shape=(50, p)))
    learner = DualAveraging(settings_of(strength=0.01), p)
    learner.add_tasks(3)
    task = np.arange(50) % 3
    learner.learn(X, observations(X, np.ones(50), task), Schedule(*round_schedule(task, 3)))
    assert learner.n_used == len(np.unique(X.indices)) and learner.state.sums.size < 10 * learner.n_used


def test_shuffles_stay_within_tasks_and_reach_every_order():
    offsets = np.array([0, 3, 3, 7])
    orders = set()
    for seed in range(300):
        places = np.arange(7)
        shuffle_within_tasks(places, offsets, seed)
        assert set(places[:3]) == {0, 1, 2} and set(places[3:]) == {3, 4, 5, 6}
        orders.add(tuple(places[:3]))
    assert len(orders) == 6


def test_rounds_take_the_ith_row_of_each_task():
    order, starts = round_schedule(np.array([1, 1, 0, 1, 2, 0]), 3)
    assert [sorted(part.tolist()) for part in np.split(order, starts[1:-1])] == [[0, 2, 4], [1, 5], [3]]


def test_divergence_is_an_error_with_advice():
    X, y, task, _ = stream(5)
    with pytest.raises(ValueError, match=r"the weights have diverged in round \d+: gamma is too small .* gamma='auto'"):
        learned(settings_of(gamma=1e-3), 10 * X, y, task)
    assert np.isfinite(learned(settings_of(), 1e3 * X, y, task).coefficients().W).all()
