r"""Active rows at q = 2, and what `gibbs_path` learns while the sampler is tuned.

Among thousands of features many may stand for another, each for some part of the time, and only together can they
change places. So rows are made active by chance, anew in every sweep, whatever the state: first those of which the data
know most, a third of all that there is room for, and then others with probabilities that grow with what the data know
of them (draws without replacement by exponential keys, Efraimidis and Spirakis 2006). These weights, the leading rows,
the mean precisions and levels and the step size are found while the sampler is tuned, and then stay.

References
----------
P. S. Efraimidis, P. G. Spirakis (2006), Weighted random sampling with a reservoir, Information Processing Letters
97:181-185.
"""

import math

import numpy as np
from numba import njit

from bayesmtfs.gibbs.block import Block
from bayesmtfs.gibbs.block_tuning import fill_block, follow_acceptance, keep_step, restart_step
from bayesmtfs.gibbs.observations import Observations, Working, weighted_square
from bayesmtfs.gibbs.path import MEAN_LEADING, MEAN_LOG_TAU, SWEEPS, Path, leading_level
from bayesmtfs.gibbs.state import LOG_TAU, Law, Rows, State

CHOICES = (0.1, 0.3, 0.6)  # shares of the tuning after which leading rows are chosen anew
ALWAYS_ACTIVE = 3  # one row in so many that there is room for
LEADING = 1.0  # least relevance of a leading row
KNOWN = 1.0  # ln of the data's precision over the prior's, from which on a row counts as relevant
LEAST_WEIGHT = 0.02
FIRST_STEP = 0.2
MEMORY, LONG_MEMORY = 200.0, 1000.0  # sweeps over which means and relevance are averaged


@njit(cache=True, nogil=True, error_model="numpy")
def tune_path(
    observations: Observations,
    working: Working,
    rows: Rows,
    state: State,
    block: Block,
    path: Path,
    acceptance: float,
    number: int,
    tune: int,
) -> None:
    """Learn from a sweep, once the precisions of the observations are drawn.

    Parameters
    ----------
    observations, working, rows, state : the problem and the state
    block : says which rows are active
    path : what is learned
    acceptance : of the last path; negative where there was none
    number, tune : of the sweep, from 1 on, and of the last one that is tuned
    """
    numbers = path.numbers
    for choice in CHOICES:
        if number == max(int(choice * tune), 1):
            _fill_curvatures(observations, working, rows, path)
            weigh_rows(block, path)
            choose_leading(block, path)
    numbers[SWEEPS] += 1.0
    share = 1.0 / min(numbers[SWEEPS], MEMORY)
    for n in range(len(path.precisions)):
        path.precisions[n] += share * (working.precisions[n] - path.precisions[n])
    _, level = leading_level(state, block, path)
    numbers[MEAN_LEADING] += share * (level - numbers[MEAN_LEADING])
    numbers[MEAN_LOG_TAU] += share * (state.numbers[LOG_TAU] - numbers[MEAN_LOG_TAU])
    for row in range(len(path.relevance)):
        known = path.curvatures[row] + 2.0 * state.log_scales[row] - math.log(2.0)
        path.relevance[row] += (max(known - KNOWN, 0.0) - path.relevance[row]) / min(0.5 * number + 1.0, LONG_MEMORY)
    if acceptance >= 0.0:
        follow_acceptance(numbers, acceptance)
    if number == tune:
        weigh_rows(block, path)
        keep_step(numbers)


@njit(cache=True, nogil=True, error_model="numpy")
def _fill_curvatures(observations: Observations, working: Working, rows: Rows, path: Path) -> None:
    """Mean precision of the coefficients of each row, as a logarithm."""
    for row in range(len(rows.sizes)):
        total = 1e-300
        for place in range(rows.starts[row], rows.starts[row + 1]):
            total += weighted_square(observations.design[rows.members[place]], working.precisions)
        path.curvatures[row] = math.log(total / max(rows.sizes[row], 1.0))


@njit(cache=True, nogil=True, error_model="numpy")
def weigh_rows(block: Block, path: Path) -> None:
    """Rows that are always active, and weights of all others."""
    room = len(block.rows) // ALWAYS_ACTIVE
    order = np.argsort(-path.relevance)
    for place in range(len(order)):
        row = order[place]
        path.weights[row] = np.inf if place < room else path.relevance[row] + LEAST_WEIGHT


@njit(cache=True, nogil=True, error_model="numpy")
def choose_leading(block: Block, path: Path) -> None:
    """Rows that lead; means and the step size begin anew."""
    for row in range(len(path.leading)):
        path.leading[row] = 1 if path.weights[row] == np.inf and path.relevance[row] > LEADING else 0
    path.numbers[SWEEPS] = 0.0
    restart_step(path.numbers, math.log(FIRST_STEP))


@njit(cache=True, nogil=True, error_model="numpy")
def redraw_rows(
    rng: np.random.Generator, observations: Observations, rows: Rows, law: Law, block: Block, path: Path
) -> None:
    """Make rows active by chance, where there is no room for all."""
    if len(block.features) == len(observations.design):
        return
    keys = np.empty(len(path.weights))
    for row in range(len(keys)):
        keys[row] = rng.standard_exponential() / path.weights[row]
    fill_block(observations, rows, law, block, np.argsort(keys))
