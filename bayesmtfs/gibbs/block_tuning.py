r"""What `gibbs_block` learns while the sampler is tuned: active rows, scales of the coordinates, and the step size.

Rows are chosen by how much the data know of them, ``ln`` of the data's precision over the prior's, averaged over the
last sweeps. Scales are the standard deviations
of the coordinates over some sweeps. The step size follows dual averaging (Hoffman and Gelman 2014, eq. 6).
"""

import math

import numpy as np
from numba import njit

from bayesmtfs.gibbs.block import (
    FEATURES,
    FIRST_STEP,
    FIRST_VARIANCE,
    LOG_STEP,
    MOMENTS,
    ROWS,
    Block,
    n_coordinates,
    read_state,
)
from bayesmtfs.gibbs.observations import Observations, Working
from bayesmtfs.gibbs.state import Law, Rows, State
from bayesmtfs.types import FloatArray, IntArray

CHOICES = (0.1, 0.3)  # shares of the tuning after which active rows are chosen anew
SCALINGS = (0.45, 0.7)  # and those after which scales are
WISHED_ACCEPTANCE = 0.8
LEAST_STATES = 10  # behind a standard deviation
MEAN_LOG_STEP, ERROR, STEPS, CENTRE = 1, 2, 3, 4  # places in Block.numbers


@njit(cache=True, nogil=True, error_model="numpy")
def tune_block(
    observations: Observations,
    working: Working,
    rows: Rows,
    law: Law,
    state: State,
    block: Block,
    acceptance: float,
    number: int,
    tune: int,
) -> None:
    """Learn from a sweep.

    Parameters
    ----------
    observations, working, rows, law, state : the problem and the state
    block : what is learned
    acceptance : of the last path; negative where there was none
    number, tune : of the sweep, from 1 on, and of the last one that is tuned
    """
    if acceptance >= 0.0:
        follow_acceptance(block.numbers, acceptance)
        read_state(observations, working, rows, state, block)
        _add_to_moments(block, n_coordinates(block, len(state.W)))
    for share in CHOICES:
        if number == max(int(share * tune), 1):
            choose_rows(observations, rows, law, state, block)
    for share in SCALINGS:
        if number == int(share * tune) and block.counts[MOMENTS] >= LEAST_STATES:
            _scale(block, n_coordinates(block, len(state.W)))
    if number == tune:
        keep_step(block.numbers)


@njit(cache=True, nogil=True, error_model="numpy")
def choose_rows(observations: Observations, rows: Rows, law: Law, state: State, block: Block) -> None:
    """Make the rows active of which the data know most, as many as there is room for; steps are tuned anew."""
    fill_block(observations, rows, law, block, np.argsort(-state.information))
    _restart(block, math.log(FIRST_STEP))


@njit(cache=True, nogil=True, error_model="numpy")
def fill_block(observations: Observations, rows: Rows, law: Law, block: Block, order: IntArray) -> None:
    """Make the first rows in an order active, as many as there is room for."""
    m, n_features, n_rows = len(rows.present), 0, 0
    for row in range(len(rows.sizes)):
        block.is_active[row] = 0
    for row in order:
        if n_features + rows.starts[row + 1] - rows.starts[row] > len(block.features):
            break
        block.is_active[row] = 1
        block.rows[n_rows] = row
        for place in range(rows.starts[row], rows.starts[row + 1]):
            i = rows.members[place]
            block.features[n_features] = i
            block.places[n_features] = n_rows
            for n in range(len(observations.targets)):
                block.design[n_features, n] = observations.design[i, n]
            for t in range(m):
                block.variance[n_features * m + t] = FIRST_VARIANCE if rows.present[t, i] else 0.0
            n_features += 1
        n_rows += 1
    block.counts[FEATURES], block.counts[ROWS] = n_features, n_rows
    first_intercept = n_features * m + n_rows
    for d in range(n_features * m, first_intercept):
        block.variance[d] = FIRST_VARIANCE
    for t in range(m):
        block.variance[first_intercept + t] = FIRST_VARIANCE if law.intercept_variance > 0.0 else 0.0
    block.variance[first_intercept + m] = FIRST_VARIANCE if law.learn_global_scale else 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def _restart(block: Block, log_step: float) -> None:
    """Forget the moments, and begin from a step size."""
    block.counts[MOMENTS] = 0
    for d in range(block.moments.shape[1]):
        block.moments[0, d] = block.moments[1, d] = 0.0
    restart_step(block.numbers, log_step)


@njit(cache=True, nogil=True, error_model="numpy")
def restart_step(numbers: FloatArray, log_step: float) -> None:
    """Begin from a step size."""
    numbers[LOG_STEP] = numbers[MEAN_LOG_STEP] = log_step
    numbers[ERROR] = numbers[STEPS] = 0.0
    numbers[CENTRE] = log_step + math.log(2.0)


@njit(cache=True, nogil=True, error_model="numpy")
def follow_acceptance(numbers: FloatArray, acceptance: float) -> None:
    """Dual averaging of the step size."""
    numbers[STEPS] += 1.0
    count = numbers[STEPS]
    numbers[ERROR] += (WISHED_ACCEPTANCE - acceptance - numbers[ERROR]) / (count + 10.0)
    numbers[LOG_STEP] = min(numbers[CENTRE] - 20.0 * math.sqrt(count) * numbers[ERROR], 0.5)
    numbers[MEAN_LOG_STEP] += count**-0.75 * (numbers[LOG_STEP] - numbers[MEAN_LOG_STEP])


@njit(cache=True, nogil=True, error_model="numpy")
def keep_step(numbers: FloatArray) -> None:
    """Take the mean of the step sizes from now on."""
    if numbers[STEPS] > 0.0:
        numbers[LOG_STEP] = numbers[MEAN_LOG_STEP]


@njit(cache=True, nogil=True, error_model="numpy")
def _add_to_moments(block: Block, size: int) -> None:
    block.counts[MOMENTS] += 1
    for d in range(size):
        difference = block.position[d] - block.moments[0, d]
        block.moments[0, d] += difference / block.counts[MOMENTS]
        block.moments[1, d] += difference * (block.position[d] - block.moments[0, d])


@njit(cache=True, nogil=True, error_model="numpy")
def _scale(block: Block, size: int) -> None:
    """Variances from the moments, drawn a little to what they were; the step size begins anew."""
    count = block.counts[MOMENTS]
    for d in range(size):
        if block.variance[d] > 0.0:
            block.variance[d] = (block.moments[1, d] + 5.0 * min(block.variance[d], 1e-2)) / (count + 4.0)
    _restart(block, math.log(2.0 * FIRST_STEP))
