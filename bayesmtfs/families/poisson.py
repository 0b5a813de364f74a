"""Poisson loss: a count whose logarithmic rate is the linear predictor.

``l(y, eta) = exp(eta) - y eta``, minus the log-probability of a Poisson count of rate ``exp(eta)`` up to ``ln y!``. Its
curvature ``exp(eta)`` has no bound.

With ``a = y + u`` its convex conjugate is ``l*(u) = a ln a - a`` for a of at least 0, with ``0 ln 0 = 0``, attained at
``exp(eta) = a``, and ``inf`` elsewhere (Boyd and Vandenberghe 2004, *Convex Optimization*, section 3.3.1).

No scale mixture of normals gives it, so that there is no Gibbs sampler: its posterior is sampled by NUTS.
"""

import math
from typing import Any

import numpy as np
from numba import njit
from scipy.special import gammaln, xlogy

from bayesmtfs.families.family import Family
from bayesmtfs.types import FloatArray

SMALLEST_COUNT = 1e-12  # of a task's mean count, to keep the logarithm of its rate finite
LARGEST_EXPONENT = 700.0  # of the rate of a row of a stream, whose exponential is finite
COUNTED_RATE = 1e15  # above it a draw is that of the normal distribution: whole numbers are no longer told apart


@njit(cache=True)
def _slope(y: float, eta: float) -> tuple[float, float]:
    """Loss and derivative of one target."""
    rate = math.exp(min(eta, LARGEST_EXPONENT))
    return rate - y * eta, rate - y


@njit(cache=True)
def log_mean_count(total: float, weight: float) -> float:
    """Logarithm of the mean count, with half a count beside those seen."""
    return math.log((total + 0.5) / (weight + 0.5))


def exponential(eta: FloatArray) -> FloatArray:
    """``exp(eta)``, the largest number of its type where it is larger."""
    eta = np.asarray(eta)
    kind = eta.dtype if eta.dtype.kind == "f" else np.dtype(np.float64)
    return np.asarray(np.exp(np.minimum(eta, np.log(np.finfo(kind).max) * (1.0 - np.finfo(kind).eps))))


def draw_counts(rng: np.random.Generator, rate: FloatArray) -> FloatArray:
    """Poisson counts; of very large rates those of the normal distribution with the same two moments."""
    counted = rng.poisson(np.minimum(rate, COUNTED_RATE)).astype(np.float64)
    large = np.round(rate + np.sqrt(rate) * rng.standard_normal(np.shape(rate))) if np.any(rate > COUNTED_RATE) else 0.0
    return np.where(rate > COUNTED_RATE, large, counted)


class Poisson(Family):
    """Poisson loss ``exp(eta) - y eta`` for counts with a log link.

    Where the rate is too large for its floating point type the value is ``inf``, without a warning.

    Examples
    --------
    >>> import numpy as np
    >>> y, eta = np.array([0.0, 3.0]), np.array([0.0, 1.0])
    >>> Poisson().value(y, eta).round(4)
    array([ 1.    , -0.2817])
    >>> Poisson().mean(eta).round(4)
    array([1.    , 2.7183])
    """

    name = "poisson"
    targets = "counts"
    slope = staticmethod(_slope)
    centre = staticmethod(log_mean_count)

    def value(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Loss ``exp(eta) - y eta``."""
        with np.errstate(over="ignore"):
            return np.exp(eta) - np.multiply(y, eta)

    def gradient(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Return the derivative in eta, ``exp(eta) - y``."""
        with np.errstate(over="ignore"):
            return np.exp(eta) - y

    def curvature(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Second derivative in eta, ``exp(eta)``, at most the largest number there is."""
        return exponential(eta) + np.zeros_like(y)

    def error(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Deviance ``2 (y ln(y / mu) - y + mu)`` with ``mu = exp(eta)``."""
        return 2.0 * (self.value(y, eta) - self.saturated(y))

    def conjugate(self, y: FloatArray, dual: FloatArray) -> FloatArray:
        """Convex conjugate ``a ln a - a`` with ``a = y + dual``; ``inf`` unless a is at least 0."""
        rate = np.add(y, dual)
        inside = np.maximum(rate, 0.0)
        return np.where(rate < 0.0, np.inf, xlogy(inside, inside) - inside)

    def absorbed(self, y: FloatArray, weight: FloatArray, offset: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Targets and weights without an offset that have the loss of these with one, up to a constant.

        ``exp(o + eta) - y eta = e (exp(eta) - (y / e) eta)`` with the exposure ``e = exp(o)``: rates weighted by exposures.
        """
        exposure = exponential(offset)
        return y / exposure, weight * exposure

    def mean(self, eta: FloatArray) -> FloatArray:
        """Expected count ``exp(eta)``, at most the largest number there is."""
        return exponential(eta)

    def best_constant(self, y: FloatArray, weight: FloatArray) -> float:
        """Constant eta of the smallest weighted loss, the logarithm of the mean; finite where all counts are 0."""
        return float(np.log(max(float(np.average(y, weights=weight)), SMALLEST_COUNT)))

    def log_density(self, y: FloatArray, eta: FloatArray, noise: FloatArray | float = 1.0) -> FloatArray:
        """Log-probability of the counts; there is no noise."""
        return -self.value(y, eta) - gammaln(np.add(y, 1.0))

    def draw(self, rng: np.random.Generator, eta: FloatArray, noise: FloatArray | float = 1.0) -> FloatArray:
        """Draw counts of rate ``exp(eta)``."""
        return draw_counts(rng, self.mean(eta))

    def deviance(self, y: FloatArray, eta: FloatArray, weight: FloatArray) -> float:
        """Return ``2 sum y ln(y / mu) - y + mu``."""
        return float(weight @ self.error(y, eta))

    def pymc_dist(self, eta: Any, noise: Any, **options: Any) -> Any:
        """PyMC's Poisson distribution."""
        import pymc as pm

        return pm.Poisson.dist(pm.math.exp(eta), **options)
