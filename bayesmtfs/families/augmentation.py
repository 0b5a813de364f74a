r"""Families that are normal in eta once a hidden precision is known.

Given a hidden precision omega of a target, its density is ``exp(linear(y) eta - omega eta^2 / 2)`` times what does not
depend on eta. Two routes use that:

- the Gibbs sampler draws omega. Its compiled steps take the number of the form, `Augmentation.form`, and call the
  functions below with it, each for one target of a weight;
- EM with coefficients integrated out takes its expectation at a point xi, which gives a normal bound,

      -ln p(y | eta) <= -linear(y) eta + expected_precision(xi) eta^2 / 2 + bound_constant(xi),

  with equality at ``eta^2 = xi^2`` (Jaakkola and Jordan 2000, *Statistics and Computing* 10:25-37).

The hidden precision of a label is Polya-Gamma:

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
from typing import ClassVar

import numpy as np
from numba import njit

from bayesmtfs.types import FloatArray

NORMAL, POLYA_GAMMA = 0, 1  # forms
CUT = 0.64  # where the two kinds of proposals meet


class Augmentation:
    """The conditionally normal form of a family; as it stands here, that of a normal family, where omega is 1.

    Attributes
    ----------
    form : int
        `NORMAL` or `POLYA_GAMMA`, which the compiled functions of this module know.
    weights : str
        Which sample weights the draws of omega take, in words.
    """

    form: ClassVar[int] = NORMAL
    weights: ClassVar[str] = "numbers of at least 0"

    def takes_weights(self, weight: FloatArray) -> bool:
        """Whether omega can be drawn for these sample weights."""
        return True

    def linear(self, y: FloatArray) -> FloatArray:
        """Factor of eta in the exponent."""
        return y

    def expected_precision(self, xi: FloatArray) -> FloatArray:
        """Expectation of omega where eta is xi."""
        return np.ones_like(xi)

    def bound_constant(self, xi: FloatArray) -> FloatArray:
        """What the bound adds to the part that depends on eta."""
        return np.zeros_like(xi)


class PolyaGamma(Augmentation):
    """Labels -1 and +1 as normal targets ``y / (2 omega)`` of precision omega, which is Polya-Gamma."""

    form: ClassVar[int] = POLYA_GAMMA
    weights: ClassVar[str] = "whole numbers from 1 to 100"
    most_weight: ClassVar[float] = 100.0  # the precision of a label is a sum of as many draws

    def takes_weights(self, weight: FloatArray) -> bool:
        """Whether all are whole numbers, since PG(b, c) has no exact draws for other b, and none is too large."""
        return bool(np.all((weight == np.round(weight)) & (weight >= 1.0) & (weight <= self.most_weight)))

    def linear(self, y: FloatArray) -> FloatArray:
        """Half the label."""
        return 0.5 * y

    def expected_precision(self, xi: FloatArray) -> FloatArray:
        """``tanh(xi / 2) / (2 xi)``, 1/4 at 0: the mean of PG(1, xi)."""
        safe = np.maximum(xi, 1e-8)
        return np.asarray(np.tanh(safe / 2.0) / (2.0 * safe))

    def bound_constant(self, xi: FloatArray) -> FloatArray:
        """``ln(1 + exp(-xi)) + xi / 2 - omega xi^2 / 2``."""
        return np.logaddexp(0.0, -xi) + xi / 2 - self.expected_precision(xi) * xi**2 / 2


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


@njit(cache=True, nogil=True, error_model="numpy")
def draw_precision_and_score(
    rng: np.random.Generator, form: int, weight: float, target: float, eta: float, noise_precision: float
) -> tuple[float, float]:
    """Hidden precision given eta, and the derivative in eta of the log-density given the precision."""
    if form == POLYA_GAMMA:
        omega = draw_polya_gamma(rng, int(weight), eta)
        return omega, 0.5 * weight * target - omega * eta
    omega = weight * noise_precision
    return omega, omega * (target - eta)


@njit(cache=True, nogil=True, error_model="numpy")
def log_density_and_score(
    form: int, weight: float, target: float, eta: float, noise_precision: float
) -> tuple[float, float]:
    """Log-density up to a constant with the precision integrated out, and its derivative in eta."""
    if form == POLYA_GAMMA:
        margin = target * eta
        small = math.exp(-abs(margin))
        value = weight * (math.log1p(small) + max(-margin, 0.0))
        return -value, weight * target * (small if margin > 0.0 else 1.0) / (1.0 + small)
    residual = target - eta
    score = weight * noise_precision * residual
    return -0.5 * score * residual, score


@njit(cache=True, nogil=True, error_model="numpy")
def curvature(form: int, weight: float, eta: float, noise_precision: float) -> float:
    """Minus the second derivative in eta of the log-density, with the precision integrated out."""
    if form == POLYA_GAMMA:
        small = math.exp(-abs(eta))
        return weight * small / ((1.0 + small) * (1.0 + small))
    return weight * noise_precision
