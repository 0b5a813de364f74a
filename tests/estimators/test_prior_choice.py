"""Noise and offset of the row prior, chosen by folds: folds, prior and fit against what they claim to be."""

import numpy as np
import pytest
from scipy.optimize import minimize

import bayesmtfs as bm
from bayesmtfs.convex.problem import Problem
from bayesmtfs.estimators.prior_choice import clearly_smaller, deal
from bayesmtfs.families import find_family
from bayesmtfs.priors.generalized_normal import Jeffreys
from bayesmtfs.priors.row_penalty import RowPenalty

CLASSIFIERS = [bm.GeneralizedNormalClassifier, bm.JeffreysClassifier, bm.MatrixVariateClassifier]


def many_weak(seed, n=40, p=60, m=4):
    """Labels that 20 weak and correlated features predict together."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=(m * n, 2))
    X = rng.normal(size=(m * n, p))
    X[:, :20] += 0.8 * common[:, np.arange(20) % 2]
    y = X[:, :20].sum(axis=1) / 4 + rng.logistic(size=m * n) > 0
    return X, y.astype(int), np.repeat(np.arange(m), n)


def problem_of(X, y, tasks, weight=None):
    data = bm.GeneralizedNormalClassifier().training_data(X, y, tasks, weight)
    return Problem(data, find_family("logistic"), RowPenalty(1.0, 2.0), data.weight, True)


@pytest.mark.parametrize("model", CLASSIFIERS)
def test_weak_features_are_kept_where_they_predict(model):
    """The prior at noise 1 and (nearly) no offset keeps two or three of the twenty features, at a higher loss."""
    X, y, tasks = many_weak(1)
    new_X, new_y, new_tasks = many_weak(101, n=200)
    plain = 1e-3 if model is bm.GeneralizedNormalClassifier else 0.0
    losses = []
    for offset in ("learn", plain):
        fit = model(offset=offset).fit(X, y, tasks=tasks)
        p = fit.predict_proba(new_X, tasks=new_tasks)[np.arange(len(new_y)), new_y]
        losses.append(-np.log(p).mean())
    assert losses[0] < 0.93 * losses[1]


def test_the_fit_is_a_minimum_of_the_stated_objective():
    X, y, tasks = many_weak(3)
    fit = bm.GeneralizedNormalClassifier(tol=1e-12).fit(X, y, tasks=tasks)
    sigma, m = fit.noise_[0], 4
    assert sigma != 1.0 and fit.offset_ > 1e-3
    signs, kept = 2 * y - 1, fit.get_support()

    def objective(flat):
        W = flat.reshape(m, -1)
        eta = np.einsum("ij,ij->i", X[:, kept], W[tasks, :-1]) + W[tasks, -1]
        norms = np.sqrt(np.sum(W[:, :-1] ** 2, axis=0))
        rows = m * (np.sum(np.log(norms + fit.offset_)) + np.sum(~kept) * np.log(fit.offset_))
        return np.sum(np.logaddexp(0.0, -signs * eta)) / sigma**2 + rows

    start = np.column_stack([fit.coef_[:, kept], fit.intercept_]).ravel()
    assert objective(start) == pytest.approx(fit.objective_trace_[-1], rel=1e-9)
    assert objective(start) - minimize(objective, start, method="L-BFGS-B").fun < 1e-5
    again = bm.GeneralizedNormalClassifier(offset=fit.offset_, noise=float(sigma), graduated=False, tol=1e-12)
    assert again.fit(X, y, tasks=tasks).objective_trace_[-1] <= fit.objective_trace_[-1] + 1e-4


def test_the_mode_does_not_depend_on_the_route():
    X, y, tasks = many_weak(3)
    X = np.concatenate([(X[tasks == t] - X[tasks == t].mean(axis=0)) / X[tasks == t].std(axis=0) for t in range(4)])
    jeffreys = bm.JeffreysClassifier(tol=1e-10).fit(X, y, tasks=tasks)
    tangents = bm.GeneralizedNormalClassifier(tol=1e-10).fit(X, y, tasks=tasks)
    assert jeffreys.offset_ == pytest.approx(tangents.offset_, rel=0.05)
    assert np.corrcoef(jeffreys.coef_.ravel(), tangents.coef_.ravel())[0, 1] > 0.99


@pytest.mark.parametrize("norm_q", [1.3, 2.0, 5.0])
def test_offset_weights_are_the_slope_of_the_penalty(norm_q):
    rows, prior = np.array([[0.3, -0.2, 0.5], [2.0, 0.1, 0.0]]), Jeffreys(norm_q, offset=0.7)
    S, step = np.sum(np.abs(rows) ** norm_q, axis=1), 1e-6

    def value(S):
        return 3 * np.log(S ** (1 / norm_q) + 0.7)

    slope = (value(S + step) - value(S - step)) / (2 * step)
    np.testing.assert_allclose(np.exp(prior.log_em_weights(rows)), slope, rtol=1e-6)
    difference = prior.negative_log_density(rows[:1]) - prior.negative_log_density(rows[1:])
    assert difference == pytest.approx(value(S)[0] - value(S)[1])


def test_an_offset_goes_with_jeffreys_only():
    with pytest.raises(ValueError, match="an offset goes with the Jeffreys prior only; pass offset=0"):
        Jeffreys(2.0, shape=1.0, rate=1.0, offset=0.5)


def test_folds_hold_their_share_whatever_the_order_and_keep_equal_rows_together():
    X, y, tasks = many_weak(4)
    number = deal(problem_of(X, y, tasks))
    for task in range(4):
        for label in (0, 1):
            counts = np.bincount(number[(tasks == task) & (y == label)], minlength=5)
            assert counts.max() - counts.min() <= 1
    order = np.random.default_rng(0).permutation(len(y))
    names = np.array(["d", "b", "a", "c"])[tasks]
    moved = bm.GeneralizedNormalClassifier().training_data(X[order], y[order], names[order], None)
    moved = deal(Problem(moved, find_family("logistic"), RowPenalty(1.0, 2.0), moved.weight, True))
    again = np.empty_like(number)
    again[order[np.lexsort([np.arange(len(y)), names[order]])]] = moved
    np.testing.assert_array_equal(again, number)
    times = np.random.default_rng(1).integers(1, 4, len(y))
    weighted = deal(problem_of(X, y, tasks, times.astype(float)))
    repeated = deal(problem_of(np.repeat(X, times, axis=0), np.repeat(y, times), np.repeat(tasks, times)))
    np.testing.assert_array_equal(np.repeat(weighted, times), repeated)


def test_rows_of_the_wide_form_stay_whole():
    X, y, _ = many_weak(5)
    Y = np.column_stack([y, np.roll(y, 1), 1 - y])
    problem = problem_of(X, Y, None)
    number = deal(problem).reshape(3, -1)
    assert (number == number[0]).all() and len(np.unique(number)) == 5


def test_a_task_with_two_rows_and_labels_without_signal():
    X, y, tasks = many_weak(6)
    tasks = tasks.copy()
    tasks[[np.argmax(y == 0), np.argmax(y == 1)]] = 9
    assert np.isfinite(bm.JeffreysClassifier().fit(X, y, tasks=tasks).coef_).all()
    noise = np.random.default_rng(0).permutation(np.arange(len(y)) % 2)
    assert bm.JeffreysClassifier().fit(X, noise).get_support().sum() <= 5


def test_the_routes_own_fit_stays_unless_the_best_is_clearly_better():
    rng = np.random.default_rng(0)
    own, weight = rng.exponential(size=200), np.ones(200)
    assert clearly_smaller(own - 0.1 - 0.1 * rng.normal(size=200), own, weight)
    assert not clearly_smaller(own - 0.01 - 1.0 * np.where(np.arange(200) % 2, 1.0, -1.0), own, weight)
    sim = bm.simulate_tasks(
        n_tasks=4, n_features=10, n_relevant=3, n_samples=150, kind="classification", random_state=1
    )
    fit = bm.JeffreysClassifier().fit(sim.X, sim.y, tasks=sim.tasks)
    plain = bm.JeffreysClassifier(offset=0.0).fit(sim.X, sim.y, tasks=sim.tasks)
    assert fit.offset_ == 0.0 and (fit.noise_ == 1.0).all()
    np.testing.assert_array_equal(fit.coef_, plain.coef_)
