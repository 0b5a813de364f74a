"""Posteriors of ordered classes: the law at known cut points, and the model."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats

import bayesmtfs as bm
from bayesmtfs.families import Ordinal
from bayesmtfs.models import generalized_normal_model


def simulate(n=150, seed=0):
    rng = np.random.default_rng(seed)
    X, tasks = 3.0 + rng.normal(size=(n, 3)), np.arange(n) % 2
    eta = 1.5 * X[:, 0] + rng.logistic(size=n)
    cuts = np.array([[3.0, 5.5], [4.0, 6.0]])
    return X, (eta[:, None] > cuts[tasks]).sum(axis=1), tasks


def test_law_at_known_cut_points():
    rng = np.random.default_rng(0)
    cuts, eta = np.array([-1.0, 0.4, 2.0]), rng.normal(size=5)
    known = Ordinal().given(cuts)
    y = np.arange(4.0)
    wanted = np.diff(np.c_[np.zeros(5), stats.logistic.cdf(cuts - eta[:, None]), np.ones(5)], axis=1)
    found = known.log_density(y, eta[:, None] + np.zeros(4))
    np.testing.assert_allclose(np.exp(found), wanted, rtol=1e-10)
    term = known.pymc_dist(np.repeat(eta[0], 4), 1.0, shape=(4,))
    np.testing.assert_allclose(pm.logp(term, y).eval(mode="FAST_COMPILE"), found[0], rtol=1e-8)
    drawn = known.draw(rng, np.full(20_000, eta[0]))
    np.testing.assert_allclose(np.bincount(drawn.astype(int), minlength=4) / 20_000, wanted[0], atol=0.015)
    with pytest.raises(ValueError, match="at known cut points only"):
        Ordinal().log_density(y, np.zeros(4))


def test_model_has_ordered_thresholds_and_the_likelihood():
    X, y, tasks = simulate()
    model = generalized_normal_model(bm.TaskData.from_long(X, y, tasks), 2, "ordinal", fit_intercept=False)
    point = model.initial_point()
    point["standard_coef"] = 0.3 + 0.1 * np.arange(6.0).reshape(3, 2)
    fixed = pm.compile(
        model.value_vars,
        model.replace_rvs_by_values([model["thresholds"], model["coef"]]) + [model.logp(vars=model["y"])],
        mode="FAST_COMPILE",
        on_unused_input="ignore",
    )
    cuts, coef, likelihood = fixed(*[point[variable.name] for variable in model.value_vars])
    assert cuts.shape == (2, 2) and np.all(np.diff(cuts) > 0)
    p = Ordinal().probabilities(np.einsum("np,pn->n", X, coef[:, tasks]), cuts[tasks])
    np.testing.assert_allclose(likelihood, np.log(p[np.arange(len(y)), y]).sum(), rtol=1e-8)
