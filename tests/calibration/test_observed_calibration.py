"""Simulation-based calibration of the sampler by observation, on labels."""

import calibration
import numpy as np
import pytest
from prior_draws import draw_parameters
from scipy.special import expit

from bayesmtfs.priors.hyperpriors import Hyperprior
from bayesmtfs.solvers.gibbs.gibbs_posterior import ChainSettings, sample_chain

PRIOR = Hyperprior(global_scale=0.5, tail_shape=1.0, intercept_scale=1.0)


def label_fits(count, norm_q, draws, random_state):
    """Fits of labels from the prior."""
    for seed in range(random_state, random_state + count):
        rng, data = np.random.default_rng([seed, 2]), calibration.design(seed, n_tasks=3, n_features=6)
        truth = draw_parameters(rng, PRIOR, data.n_features, data.n_tasks, norm_q)
        chance = expit(data.linear_predictor(truth.W, truth.intercept))
        data = data.with_target(np.where(rng.random(data.n_observations) < chance, 1.0, -1.0))
        settings = ChainSettings(draws=draws, tune=draws // 2, random_seed=seed, norm_q=norm_q)
        found = calibration.named(sample_chain(data, PRIOR, settings, loss="logistic"))
        wanted = {"coef": truth.W, "intercept": truth.intercept, "row_scale": truth.row_scales}
        yield calibration.judge(wanted | {"global_scale": np.asarray(truth.global_scale)}, found)


@pytest.mark.parametrize("norm_q", [2.0, 4.0])
@pytest.mark.parametrize("count", [12, pytest.param(100, marks=pytest.mark.slow)])
def test_posteriors_of_labels_are_calibrated(norm_q, count):
    summary = calibration.summarize(list(label_fits(count, norm_q, 500, 700)))
    assert abs(summary.coverage - 0.89) <= 3.5 * summary.coverage_error + 0.01
    assert summary.wrong_share <= 0.05 + 2.0 * summary.wrong_error
    assert min(summary.rank_p_values.values()) > 1e-4, summary.rank_p_values
