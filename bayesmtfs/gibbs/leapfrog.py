r"""Parts of a Hamiltonian path with a diagonal mass: momenta, half steps, and the kinetic energy (Neal 2011, section 5.2).

    H = -ln p(position) + sum variance momentum^2 / 2,   momentum ~ N(0, 1 / variance),

the variance of a coordinate as far as it is known; a coordinate of variance 0 stays where it is. Within walls a path is
reflected (section 5.5.1 there), which changes neither its volume nor its way back.

References
----------
R. M. Neal (2011), MCMC using Hamiltonian dynamics, Handbook of Markov Chain Monte Carlo, chapter 5.
"""

import math

import numpy as np
from numba import njit

from bayesmtfs.types import FloatArray


@njit(cache=True, nogil=True, error_model="numpy")
def draw_momentum(rng: np.random.Generator, variance: FloatArray, momentum: FloatArray, size: int) -> None:
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
