"""The law: a penalised fit is the MAP of the stated PyMC model."""

from typing import NamedTuple

import numpy as np
import pytest

import bayesmtfs as bm

SETTINGS = [("squared", 2, "mean"), ("squared", 1.5, "sum"), ("squared", np.inf, "mean"), ("logistic", 3, "mean")]


class Pair(NamedTuple):
    sim: object
    fit: object
    log_probability: object  # of W and the intercepts


@pytest.fixture(scope="module", params=SETTINGS, ids=str)
def pair(request):
    loss, norm_q, loss_scale = request.param
    kind = "regression" if loss == "squared" else "classification"
    sim = bm.simulate_tasks(n_tasks=3, n_features=6, n_relevant=2, n_samples=[15, 20, 25], kind=kind, random_state=4)
    estimator = bm.MixedNormRegressor if loss == "squared" else bm.MixedNormClassifier
    strength = 0.1 if loss_scale == "mean" else 2.0
    fit = estimator(norm_q=norm_q, penalty_strength=strength, loss_scale=loss_scale, tol=1e-11, max_iter=100_000)
    fit.fit(sim.X, sim.y, tasks=sim.tasks)
    model = bm.models.mixed_norm_model(sim.data, strength, norm_q=norm_q, loss=loss, loss_scale=loss_scale)
    compiled = model.compile_logp(mode="FAST_COMPILE")
    return Pair(sim, fit, lambda W, b: float(compiled({"coef": W, "intercept": b})))


def test_no_nearby_point_is_more_probable(pair):
    W, b = pair.fit.coef_.T, pair.fit.intercept_
    top = pair.log_probability(W, b)
    rng = np.random.default_rng(0)
    for size in np.geomspace(1e-4, 1.0, 9):
        for _ in range(20):
            moved = W + size * rng.standard_normal(W.shape) * (rng.random(W.shape) < 0.5)
            assert pair.log_probability(moved, b + size * rng.standard_normal(b.shape)) <= top + 1e-9


def test_the_objective_falls_as_the_log_probability_rises(pair):
    sim, fit = pair.sim, pair.fit
    eta = fit.intercept_[sim.tasks]
    loss = 0.5 * (sim.y - eta) ** 2 if fit.loss == "squared" else np.log1p(np.exp(-sim.y * eta))
    counts = np.bincount(sim.tasks)[sim.tasks] if fit.loss_scale == "mean" else 1.0
    objective_at_zero = np.sum(loss / counts)
    rise = pair.log_probability(fit.coef_.T, fit.intercept_) - pair.log_probability(0 * fit.coef_.T, fit.intercept_)
    assert rise > 0
    assert objective_at_zero - fit.objective_ == pytest.approx(rise, rel=1e-10)
