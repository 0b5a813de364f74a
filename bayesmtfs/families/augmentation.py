"""Families that are normal in eta once a hidden precision is known.

Given a hidden precision omega of a target, its density is ``exp(linear(y) eta - omega eta^2 / 2)`` times what does not
depend on eta. Two routes use that:

- the Gibbs sampler draws omega. Its compiled steps take the number of the form, `Augmentation.form`, and call the
  functions below with it, each for one target of a weight;
- EM with coefficients integrated out takes its expectation at a point xi, which gives a normal bound,

      -ln p(y | eta) <= -linear(y) eta + expected_precision(xi) eta^2 / 2 + bound_constant(xi),

  with equality at ``eta^2 = xi^2`` (Jaakkola and Jordan 2000, *Statistics and Computing* 10:25-37).
"""

import math
from typing import ClassVar

import numpy as np
from numba import njit

from bayesmtfs.families.polya_gamma import draw_polya_gamma
from bayesmtfs.types import FloatArray

NORMAL, POLYA_GAMMA = 0, 1  # forms


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
