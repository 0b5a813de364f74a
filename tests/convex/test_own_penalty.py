"""A penalty that the package does not know: three methods, and it is solved with a certificate."""

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import isotonic_regression
from sklearn.base import clone

import bayesmtfs as bm
from bayesmtfs.convex import automatic, shared_mean
from bayesmtfs.convex.problem import Problem
from bayesmtfs.families import find_family
from bayesmtfs.priors import Penalty, RowPenalty

GROUPS = np.array([0, 0, 1, 2, 2, 2, 3, 4])


class SortedNorm(Penalty):
    """Sum of the entries of a row by size, the largest with the largest weight (SLOPE, Bogdan et al. 2015)."""

    def __init__(self, strength=1.0, decay=0.5):
        self.strength, self.decay = strength, decay

    def weights(self, n_entries):
        return 1.0 / (1.0 + self.decay * np.arange(n_entries))

    def value(self, rows):
        sizes = -np.sort(-np.abs(rows), axis=1)
        return float(self.strength * np.sum(sizes @ self.weights(rows.shape[1])))

    def dual_norm(self, rows):
        sizes = -np.sort(-np.abs(rows), axis=1)
        return np.max(np.cumsum(sizes, axis=1) / np.cumsum(self.weights(rows.shape[1])), axis=1)

    def prox(self, rows, step):
        found = np.empty_like(rows)
        for i, row in enumerate(rows):
            order = np.argsort(-np.abs(row))
            level = np.abs(row[order]) - step * self.strength * self.weights(len(row))
            found[i, order] = np.maximum(isotonic_regression(level, increasing=False).x, 0.0)
        return np.sign(rows) * found


def make_data(loss, groups=None):
    sim = bm.simulate_tasks(n_tasks=3, n_features=8, n_relevant=3, n_samples=40, random_state=0)
    rng = np.random.default_rng(1)
    y = {"squared": sim.y, "logistic": np.sign(sim.y + rng.standard_normal(len(sim.y)))}[loss]
    return bm.TaskData.from_long(sim.X, y, sim.tasks, groups=groups)


def make_problem(loss, fit_intercept=True, groups=None, share=0.1):
    data = make_data(loss, groups)
    problem = Problem(data, find_family(loss), SortedNorm(), data.loss_weights("mean"), fit_intercept)
    return problem.with_strength(share * problem.largest_penalty)


def minimum_by_cvxpy(problem):
    data = problem.data
    W, b = cp.Variable((data.n_features, data.n_tasks)), cp.Variable(data.n_tasks)
    loss = 0.0
    for t, (X, (start, stop)) in enumerate(zip(data.task_designs, data.spans, strict=True)):
        eta = X @ W[:, t] + (b[t] if problem.fit_intercept else 0.0)
        y, weight = data.y[start:stop], problem.weight[start:stop]
        terms = cp.square(y - eta) / 2 if problem.family.quadratic else cp.logistic(-cp.multiply(y, eta))
        loss += weight @ terms
    groups = np.arange(data.n_features) if data.groups is None else data.groups
    rows = [cp.vec(W[np.flatnonzero(groups == g)], order="C") for g in np.unique(groups)]
    penalty = 0.0
    for row in rows:
        drops = -np.diff(np.append(problem.penalty.weights(row.size), 0.0))
        penalty += sum(drop * cp.sum_largest(cp.abs(row), k + 1) for k, drop in enumerate(drops))
    return cp.Problem(cp.Minimize(loss + problem.penalty.strength * penalty)).solve(solver=cp.CLARABEL)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("groups", [None, GROUPS], ids=["features", "groups"])
def test_minimum_is_that_of_cvxpy(loss, fit_intercept, groups):
    problem = make_problem(loss, fit_intercept, groups)
    solution = automatic.solve(problem, tol=1e-8)
    eta = problem.data.linear_predictor(solution.W, solution.intercept)
    assert solution.converged and solution.gap <= 1e-8 * problem.gap_scale
    assert problem.gap(solution.W, eta) <= 2e-8 * problem.gap_scale
    assert solution.objective == pytest.approx(minimum_by_cvxpy(problem), rel=1e-6)
    assert np.any(solution.W == 0) and np.any(solution.W != 0)


def test_the_certificate_bounds_the_error_of_an_early_stop():
    problem = make_problem("logistic", share=0.01)
    exact = automatic.solve(problem, tol=1e-9)
    early = automatic.solve(problem, tol=1e-9, max_iter=4)
    assert not early.converged and 0 < early.objective - exact.objective <= early.gap


def test_all_coefficients_are_zero_from_the_largest_penalty_on():
    problem = make_problem("squared", share=1.0)
    assert not automatic.solve(problem).W.any()
    assert automatic.solve(problem.with_strength(0.98 * problem.penalty.strength)).W.any()


def test_estimators_and_paths_take_it():
    sim = bm.simulate_tasks(n_tasks=3, n_features=8, n_relevant=3, n_samples=40, random_state=0)
    model = clone(bm.MixedNormRegressor(penalty=SortedNorm(), penalty_strength=0.1)).fit(sim.X, sim.y, tasks=sim.tasks)
    assert model.converged_ and model.dual_gap_ < 1e-5 and model.penalty.strength == 1.0
    path = bm.mixed_norm_path(sim.X, sim.y, sim.tasks, penalties=[1.0, 0.1], penalty=SortedNorm())
    np.testing.assert_allclose(path.coefs[1], model.coef_, atol=1e-2)
    assert path.converged.all() and path.gaps.max() < 1e-5
    chosen = bm.MixedNormRegressorCV(penalty=SortedNorm(), cv=3, n_penalties=5).fit(sim.X, sim.y, tasks=sim.tasks)
    assert chosen.score(sim.X, sim.y, tasks=sim.tasks) > 0.5
    default = bm.MixedNormClassifier(penalty=SortedNorm()).fit(sim.X, sim.y > 0, tasks=sim.tasks)
    assert default.converged_ and default.penalty_strength_ > 0


def test_refit_and_shared_mean_take_it():
    sim = bm.simulate_tasks(n_tasks=3, n_features=8, n_relevant=3, n_samples=40, random_state=0)
    fits = [
        bm.MixedNormRegressor(penalty=SortedNorm(), penalty_strength=0.5, **options).fit(sim.X, sim.y, tasks=sim.tasks)
        for options in ({}, {"refit": True})
    ]
    np.testing.assert_array_equal(fits[0].coef_ != 0, fits[1].coef_ != 0)
    found = shared_mean.solve(make_problem("logistic"), 0.1, tol=1e-5)
    assert found.solution.converged


def test_a_known_norm_written_anew_gives_the_same():
    class OwnEuclidean(Penalty):
        def __init__(self, strength=1.0):
            self.strength = strength

        def value(self, rows):
            return RowPenalty(self.strength).value(rows)

        def dual_norm(self, rows):
            return np.linalg.norm(rows, axis=1)

        def prox(self, rows, step):
            return RowPenalty(self.strength).prox(rows, step)

    sim = bm.simulate_tasks(n_tasks=3, n_features=8, n_relevant=3, n_samples=40, random_state=0)
    known = bm.MixedNormRegressor(tol=1e-9).fit(sim.X, sim.y, tasks=sim.tasks)
    own = bm.MixedNormRegressor(penalty=OwnEuclidean(), tol=1e-9).fit(sim.X, sim.y, tasks=sim.tasks)
    assert own.penalty_strength_ == pytest.approx(known.penalty_strength_)
    np.testing.assert_allclose(own.coef_, known.coef_, atol=1e-4)


def test_what_does_not_go_is_refused_in_words():
    sim = bm.simulate_tasks(n_tasks=2, n_features=4, n_relevant=2, n_samples=20, random_state=0)
    arguments = (sim.X, sim.y, sim.tasks)
    with pytest.raises(ValueError, match="penalty is a SortedNorm and loss is 'absolute', which has kinks"):
        bm.MixedNormRegressor(penalty=SortedNorm(), loss="absolute").fit(*arguments)
    with pytest.raises(ValueError, match="solver is 'working_set', which does not know the penalty SortedNorm"):
        bm.MixedNormRegressor(penalty=SortedNorm(), solver="working_set").fit(*arguments)
    with pytest.raises(TypeError, match="penalty is a str; pass an object of a subclass of bayesmtfs.priors.Penalty"):
        bm.MixedNormRegressor(penalty="l1").fit(*arguments)
    with pytest.raises(TypeError, match="cannot be saved"):
        bm.MixedNormRegressor(penalty=SortedNorm()).fit(*arguments).save("never.bmt")
