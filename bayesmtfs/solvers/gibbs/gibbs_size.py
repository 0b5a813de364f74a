r"""Metropolis steps on the size of all effects of labels together.

Labels that a hyperplane separates do not say how far apart they are: coefficients, their scales and tau may grow together
almost as far as the prior lets them, into a tail where steps that were tuned elsewhere are refused. Here ``x = ln tau``
moves with ``rho / tau`` and ``w / rho`` fixed and the Pólya-Gamma precisions integrated out. With u the part of the
predictors that grows,

    ln p(x) = -sum ln(1 + exp(-y (b + e^(x - x_0) u))) - (x - ln tau_0)^2 / 2

up to a constant. Proposals are normal with a deviation drawn anew each time, small or large: nothing needs to be tuned.
"""

import math

import numpy as np
from numba import njit

from bayesmtfs.solvers.gibbs.gibbs_features import fill_direction
from bayesmtfs.solvers.gibbs.gibbs_observations import Observations, Working
from bayesmtfs.solvers.gibbs.gibbs_slice import softplus
from bayesmtfs.solvers.gibbs.gibbs_state import LOG_TAU, Law, Rows, State

PROPOSALS = 4  # in a sweep; each costs a look at the labels
LEAST_LOG_STEP, LOG_STEP_RANGE = math.log(0.05), math.log(60.0)


@njit(cache=True, nogil=True, error_model="numpy")
def step_on_size(
    rng: np.random.Generator, observations: Observations, working: Working, rows: Rows, law: Law, state: State
) -> None:
    """Move tau with all scales and coefficients; the predictors of ``working`` follow.

    Parameters
    ----------
    rng : generator
    observations, working : labels; the predictors must be those of the state, scores and precisions are not used
    rows, law, state : the problem and the state; tau is learned
    """
    log_tau = state.numbers[LOG_TAU]
    fill_direction(observations, working, rows, state, 0, len(rows.sizes))
    shift, value = 0.0, _log_density(observations, working, law, log_tau, 0.0)
    for _ in range(PROPOSALS):
        step = math.exp(LEAST_LOG_STEP + LOG_STEP_RANGE * rng.random())
        proposal = shift + step * rng.standard_normal()
        moved = _log_density(observations, working, law, log_tau, proposal)
        if -rng.standard_exponential() < moved - value:
            shift, value = proposal, moved
    factor = math.exp(shift)
    state.numbers[LOG_TAU] += shift
    for row in range(len(state.log_scales)):
        state.log_scales[row] += shift
    for t in range(len(state.W)):
        for i in range(state.W.shape[1]):
            state.W[t, i] *= factor
    for n in range(len(working.predictors)):
        working.predictors[n] += (factor - 1.0) * working.direction[n]


@njit(cache=True, nogil=True, error_model="numpy")
def _log_density(observations: Observations, working: Working, law: Law, log_tau: float, shift: float) -> float:
    """Log-density after a move of tau; minus infinity beyond what scales may be."""
    away = log_tau + shift - law.log_global_scale
    if not law.low < log_tau + shift < law.high:
        return -np.inf
    growth, value = math.exp(shift) - 1.0, -0.5 * away * away
    for n in range(len(working.direction)):
        eta = working.predictors[n] + growth * working.direction[n]
        value -= observations.weights[n] * softplus(-observations.targets[n] * eta)
    return value
