"""Squared loss: a target with normal noise around the linear predictor.

``l(y, eta) = 1/2 (y - eta)^2``, minus the log-density of ``N(eta, 1)`` up to a constant. A noise level ``sigma`` other
than 1 divides the loss by ``sigma^2`` and belongs to the route, not to the loss.

Its convex conjugate ``l*(u) = u y + u^2 / 2`` is attained at ``eta = y + u`` (Boyd and Vandenberghe 2004, *Convex
Optimization*, section 3.3.1).
"""

from typing import Any

import numpy as np
from numba import njit

from bayesmtfs.families.augmentation import Augmentation
from bayesmtfs.families.family import Dispersion, Family, mean_target
from bayesmtfs.types import FloatArray

LOG_TWO_PI = float(np.log(2.0 * np.pi))


@njit(cache=True)
def _slope(y: float, eta: float) -> tuple[float, float]:
    """Loss and derivative of one target."""
    return 0.5 * (y - eta) ** 2, eta - y


class Gaussian(Family):
    """Squared loss ``1/2 (y - eta)^2`` for real targets.

    Where the square is too large for its floating point type the value is ``inf``, without a warning.

    Examples
    --------
    >>> import numpy as np
    >>> y, eta = np.array([1.0, 1.0]), np.array([0.0, 3.0])
    >>> Gaussian().value(y, eta)
    array([0.5, 2. ])
    >>> Gaussian().gradient(y, eta)
    array([-1.,  2.])
    """

    name = "squared"
    quadratic = True
    linear_mean = True
    of_residuals = True
    curvature_bound = 1.0
    dispersion = (Dispersion("noise"),)
    slope = staticmethod(_slope)
    centre = staticmethod(mean_target)
    augmentation = Augmentation()

    def value(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Loss ``1/2 (y - eta)^2``."""
        with np.errstate(over="ignore"):
            return 0.5 * np.square(np.subtract(y, eta))

    def gradient(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Return the derivative in eta, ``eta - y``."""
        return np.subtract(eta, y)

    def curvature(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Second derivative in eta, 1 everywhere."""
        return np.ones_like(np.subtract(eta, y))

    def error(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Squared error ``(y - eta)^2``."""
        return 2.0 * self.value(y, eta)

    def conjugate(self, y: FloatArray, dual: FloatArray) -> FloatArray:
        """Convex conjugate ``dual * y + dual^2 / 2``, finite for every real dual."""
        with np.errstate(over="ignore"):
            return np.multiply(dual, y + 0.5 * np.asarray(dual))

    def mean(self, eta: FloatArray) -> FloatArray:
        """Return the expected target, ``eta`` itself."""
        return np.array(eta)

    def best_constant(self, y: FloatArray, weight: FloatArray) -> float:
        """Constant eta of the smallest weighted loss, the weighted mean."""
        return float(np.average(y, weights=weight))

    def log_density(self, y: FloatArray, eta: FloatArray, noise: FloatArray | float = 1.0) -> FloatArray:
        """Log-density of ``N(eta, noise^2)``."""
        return -0.5 * np.square((y - eta) / noise) - np.log(noise) - 0.5 * LOG_TWO_PI

    def draw(self, rng: np.random.Generator, eta: FloatArray, noise: FloatArray | float = 1.0) -> FloatArray:
        """Draw from ``N(eta, noise^2)``."""
        return eta + noise * rng.standard_normal(np.shape(eta))

    def deviance(self, y: FloatArray, eta: FloatArray, weight: FloatArray) -> float:
        """Return ``N ln(RSS / N)``, the noise at its best value."""
        size = float(weight.sum())
        return size * float(np.log(max(float(weight @ np.square(y - eta)) / size, np.finfo(np.float64).tiny)))

    def pymc_dist(self, eta: Any, noise: Any, **options: Any) -> Any:
        """PyMC's normal distribution."""
        import pymc as pm

        return pm.Normal.dist(eta, noise, **options)
