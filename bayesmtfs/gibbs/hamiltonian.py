r"""Hamiltonian paths with a diagonal mass (Neal 2011, section 5.2), and the tuning of their step size.

    H = -ln p(position) + sum variance momentum^2 / 2,   momentum ~ N(0, 1 / variance),

the variance of a coordinate as far as it is known; a coordinate of variance 0 stays where it is. Within walls a path is
reflected (section 5.5.1 there), which changes neither its volume nor its way back. The step size follows dual averaging
(Hoffman and Gelman 2014, eq. 6).

References
----------
R. M. Neal (2011), MCMC using Hamiltonian dynamics, Handbook of Markov Chain Monte Carlo, chapter 5.
M. D. Hoffman, A. Gelman (2014), The No-U-Turn sampler, Journal of Machine Learning Research 15:1593-1623.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.random import Generator

from bayesmtfs.types import FloatArray

type Record = Any  # np.record, whose numbers have names

WISHED_ACCEPTANCE = 0.8
MOST_STEPS = 100.0  # of a path
STEP_SIZE = [("log_step", "f8"), ("mean_log_step", "f8"), ("error", "f8"), ("steps", "f8"), ("centre", "f8")]


class Coordinates(NamedTuple):
    """Where a path is."""

    position: FloatArray  # (D,)
    momentum: FloatArray  # (D,)
    slope: FloatArray  # (D,) of the log-density
    variance: FloatArray  # (D,) of the coordinates, as far as is known; 0: the coordinate is fixed


def new_coordinates(size: int) -> Coordinates:
    """Allocate."""
    return Coordinates(np.zeros(size), np.zeros(size), np.zeros(size), np.zeros(size))


def new_record(fields: list[tuple[str, str]]) -> Record:
    """Numbers with names, all 0, which compiled functions may change."""
    return np.zeros(1, fields).view(np.recarray)[0]


def path_follower(log_density: Any) -> Any:
    """Make the compiled loop over a path under a log-density.

    Parameters
    ----------
    log_density : compiled function of the parts of a problem; fills in the slope at the position

    Returns
    -------
    compiled function
        Whether the end of a path is accepted, and its acceptance rate; the position moves along in either case. The
        first ``size`` coordinates are in use, of which the first ``walls`` stay between -1 and 1; ``longest`` is the
        longest path in standard deviations, whose length is drawn.
    """

    @njit(nogil=True, error_model="numpy")  # what calls it is cached
    def follow_path(
        rng: Generator, problem: Any, coordinates: Coordinates, size: int, walls: int, step: float, longest: float
    ) -> tuple[bool, float]:
        position, momentum, slope, variance = coordinates
        draw_momentum(rng, variance, momentum, size)
        energy = kinetic_energy(variance, momentum, size)
        energy -= log_density(*problem)
        value = 0.0
        for _ in range(1 + int(rng.random() * min(longest / step, MOST_STEPS))):
            push(momentum, slope, step, size)
            drift(position, variance, momentum, step, size)
            reflect(position, momentum, walls)
            value = log_density(*problem)
            push(momentum, slope, step, size)
            if not value > -np.inf:
                return False, 0.0
        change = energy + value - kinetic_energy(variance, momentum, size)
        return -rng.standard_exponential() < change, math.exp(min(change, 0.0))

    return follow_path


@njit(cache=True, nogil=True, error_model="numpy")
def draw_momentum(rng: Generator, variance: FloatArray, momentum: FloatArray, size: int) -> None:
    """Momenta of the first ``size`` coordinates."""
    for d in range(size):
        momentum[d] = rng.standard_normal() / math.sqrt(variance[d]) if variance[d] > 0.0 else 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def kinetic_energy(variance: FloatArray, momentum: FloatArray, size: int) -> float:
    """Half the sum of variances times squared momenta."""
    total = 0.0
    for d in range(size):
        total += variance[d] * momentum[d] * momentum[d]
    return 0.5 * total


@njit(cache=True, nogil=True, error_model="numpy")
def push(momentum: FloatArray, slope: FloatArray, step: float, size: int) -> None:
    """Change momenta by half a step along the slope."""
    for d in range(size):
        momentum[d] += 0.5 * step * slope[d]


@njit(cache=True, nogil=True, error_model="numpy")
def drift(position: FloatArray, variance: FloatArray, momentum: FloatArray, step: float, size: int) -> None:
    """Move positions by a step along the momenta."""
    for d in range(size):
        position[d] += step * variance[d] * momentum[d]


@njit(cache=True, nogil=True, error_model="numpy")
def reflect(position: FloatArray, momentum: FloatArray, size: int) -> None:
    """Turn the first ``size`` coordinates back at walls at -1 and 1 that they have run through."""
    for d in range(size):
        if abs(position[d]) > 1.0:
            way = (position[d] + 1.0) % 4.0  # there and back
            if way > 2.0:
                way = 4.0 - way
                momentum[d] = -momentum[d]
            position[d] = way - 1.0


@njit(cache=True, nogil=True, error_model="numpy")
def restart_step(step_size: Record, log_step: float) -> None:
    """Begin from a step size."""
    step_size.log_step = step_size.mean_log_step = log_step
    step_size.error = step_size.steps = 0.0
    step_size.centre = log_step + math.log(2.0)


@njit(cache=True, nogil=True, error_model="numpy")
def follow_acceptance(step_size: Record, acceptance: float) -> None:
    """Dual averaging of the step size."""
    step_size.steps += 1.0
    count = step_size.steps
    step_size.error += (WISHED_ACCEPTANCE - acceptance - step_size.error) / (count + 10.0)
    step_size.log_step = min(step_size.centre - 20.0 * math.sqrt(count) * step_size.error, 0.5)
    step_size.mean_log_step += count**-0.75 * (step_size.log_step - step_size.mean_log_step)


@njit(cache=True, nogil=True, error_model="numpy")
def keep_step(step_size: Record) -> None:
    """Take the mean of the step sizes from now on."""
    if step_size.steps > 0.0:
        step_size.log_step = step_size.mean_log_step
