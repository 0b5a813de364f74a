r"""Exact draws from the Polya-Gamma distribution, which makes a logistic likelihood normal.

    e^(k eta) / (1 + e^eta)^b = 2^-b e^((k - b/2) eta) E[exp(-omega eta^2 / 2)],   omega ~ PG(b, 0)

(Polson, Scott and Windle 2013, theorem 1), and given eta, ``omega ~ PG(b, eta)``. PG(1, c) is drawn by Devroye's method
(their section 4): proposals from an exponential distribution right of `CUT` and from an inverse normal one left of it,
accepted by an alternating series that is summed only as far as needed. PG(b, c) for a whole number b is a sum of b such
draws; for other b there is no such sum, and none is drawn here.

References
----------
N. G. Polson, J. G. Scott, J. Windle (2013), Bayesian inference for logistic models using Pólya-Gamma latent variables,
Journal of the American Statistical Association 108:1339-1349.
L. Devroye (2009), On exact simulation algorithms for some distributions related to Jacobi theta functions, Statistics
and Probability Letters 79:2251-2259.
"""

import math

import numpy as np
from numba import njit

CUT = 0.64  # where the two kinds of proposals meet


@njit(cache=True, nogil=True, error_model="numpy")
def draw_polya_gamma(rng: np.random.Generator, count: int, tilt: float) -> float:
    """Draw from PG(count, tilt).

    Parameters
    ----------
    rng : generator
    count : b, a whole number of at least 1
    tilt : c
    """
    total = 0.0
    for _ in range(count):
        total += _draw_single(rng, 0.5 * abs(tilt))
    return 0.25 * total


@njit(cache=True, nogil=True, error_model="numpy")
def _draw_single(rng: np.random.Generator, z: float) -> float:
    """Draw from the tilted Jacobi distribution J*(1, z), of which PG(1, 2z) is a quarter."""
    rate = 0.125 * math.pi**2 + 0.5 * z * z
    right = _share_of_right_part(z, rate)
    while True:
        x = CUT + rng.standard_exponential() / rate if rng.random() < right else _left_proposal(rng, z)
        total = _series_term(0, x)
        level = rng.random() * total
        n = 0
        while True:
            n += 1
            if n % 2 == 1:
                total -= _series_term(n, x)
                if level <= total:
                    return x
            else:
                total += _series_term(n, x)
                if level > total:
                    break


@njit(cache=True, nogil=True, error_model="numpy")
def _share_of_right_part(z: float, rate: float) -> float:
    """Probability that a proposal lies right of the cut."""
    root = 1.0 / math.sqrt(CUT)
    start = math.log(rate) + rate * CUT
    below = start - z + _log_normal_cdf(root * (CUT * z - 1.0))
    above = start + z + _log_normal_cdf(-root * (CUT * z + 1.0))
    return 1.0 / (1.0 + 4.0 / math.pi * (math.exp(below) + math.exp(above)))


@njit(cache=True, nogil=True, error_model="numpy")
def _log_normal_cdf(x: float) -> float:
    """Logarithm of the normal distribution function; -inf where it is too small to matter beside the other term."""
    value = 0.5 * math.erfc(-math.sqrt(0.5) * x)
    return math.log(value) if value > 0.0 else -np.inf


@njit(cache=True, nogil=True, error_model="numpy")
def _left_proposal(rng: np.random.Generator, z: float) -> float:
    """Draw from the inverse normal distribution with mean 1/z and shape 1, below the cut."""
    if z * CUT < 1.0:  # the mean lies right of the cut
        while True:
            first, second = rng.standard_exponential(), rng.standard_exponential()
            if first * first > 2.0 * second / CUT:
                continue
            x = CUT / (1.0 + CUT * first) ** 2
            if rng.random() <= math.exp(-0.5 * z * z * x):
                return x
    mean = 1.0 / z
    while True:
        square = mean * rng.standard_normal() ** 2
        # the smaller root, written so that nothing cancels
        x = mean * 2.0 / (2.0 + square + math.sqrt(4.0 * square + square * square))
        if rng.random() > mean / (mean + x):
            x = mean * mean / x
        if x <= CUT:
            return x


@njit(cache=True, nogil=True, error_model="numpy")
def _series_term(n: int, x: float) -> float:
    """Term n of the alternating series of the density of J*(1, 0)."""
    half = n + 0.5
    if x > CUT:
        return math.pi * half * math.exp(-0.5 * half * half * math.pi**2 * x)
    return math.pi * half * (2.0 / (math.pi * x)) ** 1.5 * math.exp(-2.0 * half * half / x)
