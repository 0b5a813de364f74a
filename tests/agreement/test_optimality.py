"""Optimality of every reported fit, on random and degenerate problems, by conditions written out here."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from bayesmtfs import MixedNormClassifier, MixedNormRegressor, mixed_norm_path
from bayesmtfs.priors.row_penalty import dual_exponent


@st.composite
def problems(draw):
    """A small multi-task problem with one of the usual degeneracies."""
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    m = draw(st.integers(1, 4))
    p = draw(st.sampled_from([1, 3, 8, 40]))
    n = m * draw(st.integers(6, 15))
    tasks = np.arange(n) % m
    X = rng.standard_normal((n, p)) + rng.standard_normal(p)
    defect = draw(st.sampled_from(["none", "duplicate column", "zero column", "same rows in all tasks", "scales"]))
    if defect == "duplicate column" and p > 1:
        X[:, 1] = X[:, 0]
    elif defect == "zero column":
        X[:, 0] = 0.0
    elif defect == "same rows in all tasks":
        X = np.repeat(X[: n // m], m, axis=0)
    elif defect == "scales":
        X *= np.geomspace(0.01, 100.0, p)
    y = X[:, -1] + rng.standard_normal(n)
    return {
        "X": X,
        "y": y,
        "tasks": tasks,
        "weight": rng.uniform(0.2, 3.0, n),
        "norm_q": draw(st.sampled_from([1.0, 1.3, 2.0, 4.0, np.inf])),
        "share": draw(st.sampled_from([0.7, 0.2, 0.03])),
        "sparse": draw(st.booleans()),
        "fit_intercept": draw(st.booleans()),
    }


def loss_gradient(loss, y, eta):
    return eta - y if loss == "squared" else -y / (1 + np.exp(y * eta))


def gradient_rows(problem, loss, y, coef, intercept):
    """(p, m) gradient of the mean loss, and (m,) its derivative in the intercepts."""
    X, tasks, weight = problem["X"], problem["tasks"], problem["weight"]
    rows = np.zeros(coef.T.shape)
    sums = np.zeros(len(coef))
    for t in range(len(coef)):
        own = tasks == t
        share = weight[own] / weight[own].sum()
        theta = share * loss_gradient(loss, y[own], X[own] @ coef[t] + intercept[t])
        rows[:, t] = X[own].T @ theta
        sums[t] = theta.sum()
    return rows, sums


@pytest.mark.filterwarnings("ignore:deviations within tasks differ")
@pytest.mark.parametrize("loss", ["squared", "logistic"])
@settings(max_examples=60, deadline=None, derandomize=True)
@given(problem=problems())
def test_kkt_conditions(loss, problem):
    y, tasks = problem["y"], problem["tasks"]
    if loss == "logistic":
        y = np.where(y > np.median(y), 1.0, -1.0)
        for t in np.unique(tasks):  # both classes in every task
            first, second = np.flatnonzero(tasks == t)[:2]
            y[first], y[second] = -1.0, 1.0
    estimator = MixedNormRegressor if loss == "squared" else MixedNormClassifier
    given_X = sp.csr_matrix(problem["X"]) if problem["sparse"] else problem["X"]
    options = {"norm_q": problem["norm_q"], "fit_intercept": problem["fit_intercept"], "tol": 1e-10}
    data = {"X": given_X, "y": y, "tasks": tasks, "sample_weight": problem["weight"]}
    largest = 10 * estimator(**options).fit(**data).penalty_strength_
    strength = problem["share"] * largest
    model = estimator(penalty_strength=strength, **options).fit(**data)
    assert model.converged_
    rows, sums = gradient_rows(problem, loss, y, model.coef_, model.intercept_)
    dual = np.linalg.norm(rows, dual_exponent(problem["norm_q"]), axis=1)
    norms = np.linalg.norm(model.coef_.T, problem["norm_q"], axis=1)
    assert (dual <= strength * (1 + 2e-3)).all()
    # <W, -gradient> = strength * norm for every row
    np.testing.assert_allclose(
        -(model.coef_.T * rows).sum(axis=1), strength * norms, atol=2e-4 * strength * (1 + norms.max())
    )
    if problem["fit_intercept"]:
        np.testing.assert_allclose(sums, 0.0, atol=1e-4)
    if problem["share"] >= 1:
        assert (model.coef_ == 0).all()


@pytest.mark.parametrize("norm_q", [1, 2, 3, np.inf])
def test_gap_is_never_below_the_true_suboptimality(norm_q):
    rng = np.random.default_rng(0)
    X, tasks = rng.standard_normal((90, 15)), np.arange(90) % 3
    y = X[:, 0] + 0.5 * rng.standard_normal(90)
    for loss, target in (("squared", y), ("logistic", np.sign(y))):
        estimator = MixedNormRegressor if loss == "squared" else MixedNormClassifier
        best = estimator(norm_q=norm_q, tol=1e-12).fit(X, target, tasks=tasks)
        for tol in (1e-1, 1e-2, 1e-3, 1e-4):
            for solver in ("working_set", "proximal_gradient"):
                rough = estimator(norm_q=norm_q, tol=tol, solver=solver).fit(X, target, tasks=tasks)
                assert rough.objective_ - best.objective_ <= rough.dual_gap_ + 1e-12


@pytest.mark.parametrize("norm_q", [1, 2, np.inf])
def test_path_is_monotone_in_the_penalty(norm_q):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((60, 20))
    Y = X[:, :3] @ rng.standard_normal((3, 4)) + rng.standard_normal((60, 4))
    path = mixed_norm_path(X, Y, norm_q=norm_q, n_penalties=25, penalty_ratio=1e-2, tol=1e-9)
    norms = np.linalg.norm(path.coefs, norm_q, axis=1).sum(axis=1)  # (k,) sum over features
    losses = [
        0.5 * np.mean((Y - X @ W.T - b) ** 2, axis=0).sum() for W, b in zip(path.coefs, path.intercepts, strict=True)
    ]
    assert (np.diff(path.penalties) < 0).all()
    assert (np.diff(norms) >= -1e-6).all() and (np.diff(losses) <= 1e-6).all()
    assert (path.coefs[0] == 0).all() and (path.coefs[1] != 0).any()
