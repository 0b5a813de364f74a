r"""Independent draws of the logarithm x of a scale whose density has several modes.

A row that the data may or may not need has a mode near the global scale and another at the size of its effect, with a
valley between them that slice steps hardly cross. Here the range is cut into `CELLS` cells with the density at the middle
of each, x is proposed uniformly in a cell drawn from them, whatever the present x, and accepted with probability

    min(1, p(x') c(x) / (p(x) c(x'))),

c(x) the density at the middle of the cell that x is in (a Metropolis step; nothing is approximated). From outside the
range nothing moves, and nothing is proposed there.
"""

import math

import numpy as np
from numba import njit

from bayesmtfs.gibbs.slice import LogScaleDensity, log_density
from bayesmtfs.types import FloatArray

CELLS = 40


@njit(cache=True, nogil=True, error_model="numpy")
def jump_by_cells(rng: np.random.Generator, current: float, target: LogScaleDensity, low: float, high: float) -> float:
    """Move to a new x that leaves the density invariant.

    Parameters
    ----------
    rng : generator
    current : x
    target : density
    low, high : range; must not depend on x
    """
    low, high = max(low, target.low), min(high, target.high)
    if not low < current < high:
        return current
    width = (high - low) / CELLS
    logs = np.empty(CELLS)
    for k in range(CELLS):
        logs[k] = log_density(low + (k + 0.5) * width, target)
    cell = _draw_cell(rng, logs)
    proposal = low + (cell + rng.random()) * width
    change = log_density(proposal, target) - log_density(current, target)
    change += logs[min(int((current - low) / width), CELLS - 1)] - logs[cell]
    return proposal if -rng.standard_exponential() < change else current


@njit(cache=True, nogil=True, error_model="numpy")
def _draw_cell(rng: np.random.Generator, logs: FloatArray) -> int:
    """Draw an index with probabilities of which logarithms are given."""
    top, total = -np.inf, 0.0
    for k in range(len(logs)):
        top = max(top, logs[k])
    for k in range(len(logs)):
        total += math.exp(logs[k] - top)
    level = total * rng.random()
    for k in range(len(logs)):
        level -= math.exp(logs[k] - top)
        if level < 0.0:
            return k
    return len(logs) - 1
