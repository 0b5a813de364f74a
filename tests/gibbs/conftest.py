"""The posterior of the Gibbs sampler, written out from its statement."""

import math

import numpy as np
import pytest
from scipy import stats

from bayesmtfs.families.augmentation import POLYA_GAMMA
from bayesmtfs.priors.hyperpriors import log_global_scale_density, log_scale_density


def _log_posterior(observations, rows, state, norm_q, prior):
    """Log-density of W, ln rho, b and ln tau, from its statement."""
    coefficients = np.where(rows.present, state.W + state.mean, 0.0)
    value = 0.0
    for t, (start, stop) in enumerate(zip(observations.offsets, observations.offsets[1:], strict=False)):
        eta = state.intercept[t] + coefficients[t] @ observations.design[:, start:stop]
        y, weight = observations.targets[start:stop], observations.weights[start:stop]
        if observations.form == POLYA_GAMMA:
            value -= weight @ np.logaddexp(0.0, -y * eta)
        else:
            value += weight @ stats.norm.logpdf(y, eta, state.noise[t])
    log_scales = state.log_scales[rows.row_of_feature]
    value += np.sum(stats.gennorm.logpdf(state.W, norm_q, scale=np.exp(log_scales))[rows.present])
    value += np.sum(log_scale_density(state.log_scales, math.exp(state.log_tau[0]), norm_q, prior))
    return (
        value
        + log_global_scale_density(state.log_tau[0], prior)
        + np.sum(stats.norm.logpdf(state.intercept, 0, prior.intercept_scale))
    )


@pytest.fixture
def log_posterior():
    """Function of observations, rows, state, q and hyperprior."""
    return _log_posterior
