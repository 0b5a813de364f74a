"""The PyMC model of the prior with exact zeros: its density, its prior draws, and units."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
from pymc.model.transform.conditioning import remove_value_transforms
from scipy import stats

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.models import spike_model
from bayesmtfs.priors.spike import SpikePrior, log_pattern_probability

PLAIN = "FAST_COMPILE"  # without compilation
PRIOR = SpikePrior(
    inclusion_rates=(0.2, 0.6),
    inclusion_weights=(0.7, 0.3),
    pattern_rates=(0.4, 0.9),
    scales=(0.2, 0.6),
    shares=(0.0, 0.7, 1.0),
    task_rates=(0.3, 0.8),
    task_rate_weights=(0.4, 0.6),
    concentrations=(0.5, 3.0),
)


def data(groups=None):
    rng = np.random.default_rng(0)
    X = 3.0 + 2.0 * rng.standard_normal((12, 4))
    return TaskData.from_long(X, 5.0 + 4.0 * rng.standard_normal(12), np.arange(12) % 3, groups=groups)


def point(pattern):
    rng = np.random.default_rng(1)
    return {
        "inclusion_number": np.array(1),
        "concentration_number": np.array(0),
        "task_rate_number": np.array([0, 1, 1]),
        "scale_number": np.array([0, 1, 1, 0]),
        "share_number": np.array([0, 1, 2, 1]),
        "pattern": np.array(pattern),
        "common": rng.standard_normal(4),
        "individual": rng.standard_normal((4, 3)),
        "level": rng.standard_normal(3),
        "noise_variance": np.array([0.5, 0.8, 1.2]),
        "scale_weights": np.array([0.3, 0.7]),
        "share_weights": np.array([0.2, 0.5, 0.3]),
        "pattern_rate_weights": np.array([0.6, 0.4]),
    }


def log_joint(at, observed, prior):
    """Logarithm of the density by hand, in deviations within tasks; constants of the Dirichlet weights included."""
    pi, alpha = prior.inclusion_rates[at["inclusion_number"]], prior.concentrations[at["concentration_number"]]
    value = np.log(prior.inclusion_weights)[at["inclusion_number"]] - np.log(2.0)
    value += np.log(prior.task_rate_weights)[at["task_rate_number"]].sum()
    for name, strength in (("scale", 1.0), ("share", 0.5), ("pattern_rate", 0.5)):
        weights = at[f"{name}_weights"]
        value += stats.dirichlet.logpdf(weights, np.full(len(weights), strength))
    value += (
        np.log(at["scale_weights"])[at["scale_number"]].sum() + np.log(at["share_weights"])[at["share_number"]].sum()
    )
    kappa, seated = np.array(prior.task_rates)[at["task_rate_number"]], []
    for s in at["pattern"]:
        if not s.any():
            value += np.log1p(-pi)
            continue
        base = log_pattern_probability(s[None], np.array(prior.pattern_rates), kappa)[0]
        same = sum(np.array_equal(s, other) for other in seated)
        chance = (alpha * np.exp(base) @ at["pattern_rate_weights"] + same) / (alpha + len(seated))
        value += np.log(pi) + np.log(chance)
        seated.append(s)
    value += stats.norm.logpdf(at["common"]).sum() + stats.norm.logpdf(at["individual"]).sum()
    value += stats.norm.logpdf(at["level"], 0.0, prior.intercept_scale).sum()
    value += stats.invgamma.logpdf(at["noise_variance"], prior.noise_shape, scale=prior.noise_rate).sum()
    rho, C = np.array(prior.scales)[at["scale_number"]], np.array(prior.shares)[at["share_number"]]
    effects = np.sqrt(C)[:, None] * at["common"][:, None] + np.sqrt(1.0 - C)[:, None] * at["individual"]
    effects = at["pattern"] * rho[:, None] * effects
    return value + log_likelihood(effects, at, observed)


def log_likelihood(effects, at, observed):
    X, y = observed.X.copy(), observed.y.copy()
    for start, stop in observed.spans:
        X[start:stop] -= X[start:stop].mean(axis=0)
        y[start:stop] -= y[start:stop].mean()
    X, height = X / np.sqrt(np.mean(X**2, axis=0)), np.sqrt(np.mean(y**2))
    eta = np.sum(X * effects.T[observed.task], axis=1) + at["level"][observed.task]
    noise = np.sqrt(at["noise_variance"])[observed.task]
    return np.sum(stats.norm.logpdf(y / height, eta, noise) - np.log(height))


PATTERNS = {
    "all off": [[0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0]],
    "two alike": [[1, 1, 0], [0, 0, 0], [1, 1, 0], [0, 0, 0]],
    "all on": [[1, 1, 1], [0, 1, 0], [1, 1, 1], [0, 1, 0]],
}


def test_the_density_is_the_stated_one():
    observed = data()
    model = remove_value_transforms(spike_model(observed, prior=PRIOR))
    density = model.compile_logp(mode=PLAIN)
    for pattern in PATTERNS.values():
        at = point(pattern)
        assert float(density(at)) == pytest.approx(log_joint(at, observed, PRIOR), abs=1e-8)


def test_draws_of_the_prior_have_the_stated_rates():
    with spike_model(data(), prior=replace(PRIOR, inclusion_rates=(0.4,), inclusion_weights=(1.0,))):
        drawn = pm.sample_prior_predictive(400, random_seed=0, compile_kwargs={"mode": PLAIN})
    included = drawn.prior["included"].values[0]
    assert included.any(axis=2).mean() == pytest.approx(0.4, abs=0.05)
    np.testing.assert_array_equal(drawn.prior["coef"].values[0] != 0, included > 0)


def test_features_that_a_task_lacks_are_off_and_groups_go_together():
    present = np.ones((4, 3), dtype=bool)
    present[1, 2] = False
    model = spike_model(replace(data(groups=[0, 0, 1, 2]), present=present), prior=PRIOR)
    draws = pm.draw([model["included"], model["coef"]], draws=40, random_seed=1, mode=PLAIN)
    assert not draws[0][:, 1, 2].any()
    np.testing.assert_array_equal(draws[0][:, 0, :2], draws[0][:, 1, :2])
    assert draws[0].any()


def test_labels_have_no_noise():
    rng = np.random.default_rng(0)
    labels = TaskData.from_long(rng.standard_normal((12, 3)), rng.integers(2, size=12), np.arange(12) % 2)
    model = spike_model(labels, loss="logistic", expected_features=1)
    assert "noise" not in model.named_vars
    assert [variable.name for variable in model.observed_RVs] == ["y"]
