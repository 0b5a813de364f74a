"""Shared mean: the minimum of the stated objective over mean and deviations, and what a user gets from it."""

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from bayesmtfs import MixedNormClassifier, MixedNormRegressor, TaskData, simulate_tasks

ESTIMATORS = {"squared": MixedNormRegressor, "logistic": MixedNormClassifier}


def simulated(loss, shared=False):
    return simulate_tasks(
        n_tasks=4,
        n_features=5,
        n_relevant=3,
        n_samples=20 if shared else [14, 20, 9, 16],
        relatedness=0.8,
        snr=1.0,
        intercept_scale=1.0,
        missing=0.1,
        shared_design=shared,
        kind="regression" if loss == "squared" else "classification",
        random_state=4,
    )


def blocks_of(sim, weight):
    for t in range(4):
        rows = ~np.isnan(sim.y[:, t]) if sim.tasks is None else sim.tasks == t
        cell = (rows, t) if sim.tasks is None else rows
        yield sim.X[rows], sim.y[cell], weight[cell]


def default_strength(blocks, loss_scale):
    """A hundredth of the mean squared column norm of X, on the scale of the loss."""
    factor = [w / w.sum() if loss_scale == "mean" else w for _, _, w in blocks]
    return 0.01 * np.mean(sum(f @ X**2 for f, (X, _, _) in zip(factor, blocks, strict=True)))


def cvxpy_minimum(blocks, loss, norm_q, strength, mean_strength, loss_scale, fit_intercept):
    p, m = blocks[0][0].shape[1], len(blocks)
    mean, V, constant, shift = cp.Variable(p), cp.Variable((p, m)), cp.Variable(), cp.Variable(m)
    value = mean_strength / 2 * cp.sum_squares(mean)
    for t, (X, y, weight) in enumerate(blocks):
        factor = weight / weight.sum() if loss_scale == "mean" else weight
        eta = X @ (mean + V[:, t]) + ((constant + shift[t]) if fit_intercept else 0)
        each = 0.5 * cp.square(y - eta) if loss == "squared" else cp.logistic(-cp.multiply(y, eta))
        value += cp.sum(cp.multiply(factor, each))
    rows = [V[i] for i in range(p)] + ([shift] if fit_intercept else [])
    problem = cp.Problem(cp.Minimize(value + strength * sum(cp.pnorm(row, norm_q) for row in rows)))
    problem.solve(solver=cp.CLARABEL)
    coef = mean.value[:, None] + V.value
    intercept = constant.value + shift.value if fit_intercept else np.zeros(m)
    return problem.value, coef.T, intercept, mean.value


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize(
    ("form", "norm_q", "mean_strength", "loss_scale", "fit_intercept", "weighted"),
    [
        ("long", 2, None, "mean", True, False),
        ("long", 1, 0.5, "sum", False, True),
        ("wide", np.inf, None, "sum", True, True),
        ("wide", 3, 0.05, "mean", True, False),
    ],
)
def test_minimum_equals_cvxpy(loss, form, norm_q, mean_strength, loss_scale, fit_intercept, weighted):
    sim = simulated(loss, shared=form == "wide")
    weight = np.random.default_rng(1).uniform(0.5, 2.0, sim.y.shape) if weighted else np.ones(sim.y.shape)
    strength = 0.05 if loss_scale == "mean" else 0.8
    model = ESTIMATORS[loss](
        norm_q=norm_q,
        penalty_strength=strength,
        shared_mean=True,
        mean_strength=mean_strength,
        loss_scale=loss_scale,
        fit_intercept=fit_intercept,
        tol=1e-8,
        max_iter=50_000,
    ).fit(sim.X, sim.y, tasks=sim.tasks, sample_weight=weight if weighted else None)
    blocks = list(blocks_of(sim, weight))
    used = default_strength(blocks, loss_scale) if mean_strength is None else mean_strength
    assert model.mean_strength_ == pytest.approx(used)
    value, coef, intercept, mean = cvxpy_minimum(blocks, loss, norm_q, strength, used, loss_scale, fit_intercept)
    assert model.converged_
    assert model.objective_ == pytest.approx(value, rel=1e-6)
    assert model.objective_ - value <= model.dual_gap_ + 1e-7 * abs(value)
    np.testing.assert_allclose(model.mean_coef_, mean, atol=2e-3)
    np.testing.assert_allclose(sim.X @ model.coef_.T + model.intercept_, sim.X @ coef.T + intercept, atol=5e-3)


def test_a_large_penalty_leaves_ridge_on_the_pooled_rows():
    sim = simulated("squared")
    model = MixedNormRegressor(penalty_strength=1e3, shared_mean=True, mean_strength=2.0, loss_scale="sum", tol=1e-12)
    model.fit(sim.X, sim.y, tasks=sim.tasks)
    centre = sim.X.mean(axis=0)
    X, y = sim.X - centre, sim.y - sim.y.mean()
    ridge = np.linalg.solve(X.T @ X + 2.0 * np.eye(5), X.T @ y)
    np.testing.assert_allclose(model.coef_, np.tile(ridge, (4, 1)), atol=1e-5)
    np.testing.assert_allclose(model.intercept_, sim.y.mean() - centre @ ridge, atol=1e-5)
    np.testing.assert_allclose(model.predict(sim.X, tasks=sim.tasks), sim.y.mean() + X @ ridge, atol=1e-4)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("wrap", [sp.csr_array, np.asfortranarray, np.float32])
def test_every_container_gives_the_same_fit(loss, wrap):
    sim = simulated(loss)
    fits = [
        ESTIMATORS[loss](shared_mean=True, penalty_strength=0.05, tol=1e-8, max_iter=50_000).fit(
            X, sim.y, tasks=sim.tasks
        )
        for X in (sim.X, wrap(sim.X))
    ]
    np.testing.assert_allclose(fits[1].coef_, fits[0].coef_, atol=1e-3)


def test_settings_that_do_not_go_together():
    sim = simulated("squared")
    for options, message in (
        ({"refit": True}, "refit=True and shared_mean=True do not go together"),
        ({"mean_strength": 0.0}, "mean_strength is 0.0; pass a positive number, or None"),
        ({"loss": "absolute"}, "shared_mean=True needs a smooth loss but loss is 'absolute'"),
    ):
        with pytest.raises(ValueError, match=message):
            MixedNormRegressor(shared_mean=True, **options).fit(sim.X, sim.y, tasks=sim.tasks)


def test_a_feature_that_a_task_lacks_stays_zero_there():
    rng = np.random.default_rng(2)
    first = pd.DataFrame(rng.standard_normal((30, 2)), columns=["u", "v"])
    second = pd.DataFrame(rng.standard_normal((30, 1)), columns=["u"])
    data = TaskData.from_list([(first, first["v"] + first["u"]), (second, second["u"])])
    model = MixedNormRegressor(shared_mean=True, penalty_strength=0.1).fit(data)
    assert model.coef_[1, 1] == 0 and model.coef_[0, 1] > 0.3 and model.converged_


def test_without_a_penalty_the_tasks_are_fitted_on_their_own():
    sim = simulated("squared")
    model = MixedNormRegressor(penalty_strength=0, shared_mean=True).fit(sim.X, sim.y, tasks=sim.tasks)
    assert model.converged_
    assert model.penalty_strength_ == 0
    alone = 0.0
    for X, y, _ in blocks_of(sim, np.ones(len(sim.y))):
        design = np.column_stack([X, np.ones(len(y))])
        alone += 0.5 * np.mean((y - design @ np.linalg.lstsq(design, y)[0]) ** 2)
    assert model.objective_ == pytest.approx(alone, rel=1e-5)
