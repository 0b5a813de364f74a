r"""Metropolis steps on the size of effects of labels, of single rows and of all together.

Labels that a hyperplane separates do not say how far apart they are: coefficients and their scales may grow together
almost as far as the prior lets them, into a tail where Pólya-Gamma precisions hold them and steps that were tuned elsewhere
are refused. Here the precisions are integrated out, and sizes move with ``w / rho`` fixed. With u the part of the
predictors that grows, and s the logarithm of its factor,

    ln p(s) = -sum ln(1 + exp(-y (eta + (e^s - 1) u))) + ln prior

up to a constant, the prior being that of ``ln rho + s`` for a row, and that of ``ln tau + s`` for all rows, ``rho / tau``
fixed. Proposals are normal with a deviation drawn anew each time, small or large: nothing needs to be tuned.
"""

import math

import numpy as np
from numba import njit

from bayesmtfs.gibbs.block import ROWS, Block
from bayesmtfs.gibbs.features import fill_direction
from bayesmtfs.gibbs.observations import Observations, Working
from bayesmtfs.gibbs.scales import beta_prime_power
from bayesmtfs.gibbs.slice import softplus
from bayesmtfs.gibbs.state import INVERSE_Q, LOG_TAU, Law, Rows, State

PROPOSALS = 4  # for a size; each costs a look at the labels
ROWS_AT_A_TIME = 4  # of the active ones
LEAST_LOG_STEP, LOG_STEP_RANGE = math.log(0.05), math.log(60.0)


@njit(cache=True, nogil=True, error_model="numpy")
def step_on_sizes(
    rng: np.random.Generator,
    observations: Observations,
    working: Working,
    rows: Rows,
    law: Law,
    state: State,
    block: Block,
) -> None:
    """Move the sizes of some active rows, and of all rows where tau is learned; the predictors of ``working`` follow.

    Parameters
    ----------
    rng : generator
    observations, working : labels; the predictors must be those of the state, scores and precisions are not used
    rows, law, state : the problem and the state
    block : says which rows are active
    """
    active = block.counts[ROWS]
    for _ in range(min(ROWS_AT_A_TIME, active)):
        row = block.rows[int(active * rng.random())]
        _step(rng, observations, working, rows, law, state, row, row + 1)
    if law.learn_global_scale:
        _step(rng, observations, working, rows, law, state, 0, len(rows.sizes))


@njit(cache=True, nogil=True, error_model="numpy")
def _step(
    rng: np.random.Generator,
    observations: Observations,
    working: Working,
    rows: Rows,
    law: Law,
    state: State,
    first: int,
    last: int,
) -> None:
    """Move rows ``first`` to ``last - 1`` by a common factor; all rows take tau along."""
    together = last - first == len(rows.sizes) and law.learn_global_scale
    fill_direction(observations, working, rows, state, first, last)
    shift = 0.0
    value = _log_prior(law, state, first, together, 0.0) + _log_likelihood(observations, working, 0.0)
    for _ in range(PROPOSALS):
        step = math.exp(LEAST_LOG_STEP + LOG_STEP_RANGE * rng.random())
        proposal = shift + step * rng.standard_normal()
        moved = _log_prior(law, state, first, together, proposal)
        if moved > -np.inf:
            moved += _log_likelihood(observations, working, proposal)
        if -rng.standard_exponential() < moved - value:
            shift, value = proposal, moved
    if shift == 0.0:
        return
    factor = math.exp(shift)
    if together:
        state.numbers[LOG_TAU] += shift
    for row in range(first, last):
        state.log_scales[row] += shift
        for place in range(rows.starts[row], rows.starts[row + 1]):
            for t in range(len(state.W)):
                state.W[t, rows.members[place]] *= factor
    for n in range(len(working.predictors)):
        working.predictors[n] += (factor - 1.0) * working.direction[n]


@njit(cache=True, nogil=True, error_model="numpy")
def _log_prior(law: Law, state: State, row: int, together: bool, shift: float) -> float:
    """Log-prior after a move of tau, or of one row; minus infinity beyond what scales may be."""
    log_tau = state.numbers[LOG_TAU]
    log_scale = (log_tau if together else state.log_scales[row]) + shift
    if not law.low < log_scale < law.high:
        return -np.inf
    if together:
        return -0.5 * (log_scale - law.log_global_scale) ** 2
    if law.log_uniform:
        return 0.0
    y = beta_prime_power(law, state.numbers[INVERSE_Q]) * (log_scale - log_tau)
    return law.spike_shape * y - (law.spike_shape + law.tail_shape) * softplus(y)


@njit(cache=True, nogil=True, error_model="numpy")
def _log_likelihood(observations: Observations, working: Working, shift: float) -> float:
    """Log-likelihood after a move."""
    growth, value = math.exp(shift) - 1.0, 0.0
    for n in range(len(working.direction)):
        eta = working.predictors[n] + growth * working.direction[n]
        value -= observations.weights[n] * softplus(-observations.targets[n] * eta)
    return value
