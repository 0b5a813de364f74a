"""Absolute loss: a target with Laplace noise around the linear predictor, its median.

``l(y, eta) = |y - eta|``, minus the log-density of a Laplace distribution with scale 1 up to a constant. A scale ``b``
other than 1 divides the loss by b and belongs to the route, not to the loss.

It is ``max u (eta - y)`` over u in [-1, 1], so its convex conjugate is ``l*(u) = u y`` there and ``inf`` elsewhere
(Boyd and Vandenberghe 2004, *Convex Optimization*, section 3.3.1).
"""

from typing import Any

import numpy as np
from numba import njit

from bayesmtfs.families.augmentation import ABSOLUTE, ScaleMixture
from bayesmtfs.families.family import Dispersion, Family, Kinks, mean_target
from bayesmtfs.types import FloatArray


@njit(cache=True)
def _slope(y: float, eta: float) -> tuple[float, float]:
    """Loss and derivative of one target."""
    return abs(y - eta), np.sign(eta - y)


class Absolute(Family):
    """Absolute loss ``|y - eta|`` for real targets, robust against outlying ones.

    Examples
    --------
    >>> import numpy as np
    >>> y, eta = np.array([1.0, 1.0]), np.array([0.0, 3.0])
    >>> Absolute().value(y, eta)
    array([1., 2.])
    >>> Absolute().gradient(y, eta)
    array([-1.,  1.])
    """

    name = "absolute"
    smooth = False
    linear_mean = True
    of_residuals = True
    noise_power = 1.0
    dispersion = (Dispersion("noise"),)
    slope = staticmethod(_slope)
    centre = staticmethod(mean_target)
    augmentation = ScaleMixture(ABSOLUTE)

    def value(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Loss ``|y - eta|``."""
        return np.abs(np.subtract(y, eta))

    def gradient(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Subgradient in eta, the sign of ``eta - y``; 0 at the kink ``eta = y``."""
        return np.sign(np.subtract(eta, y))

    def curvature(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Second derivative in eta, 0: the loss is linear on both sides of its kink."""
        return np.zeros_like(np.subtract(eta, y))

    def conjugate(self, y: FloatArray, dual: FloatArray) -> FloatArray:
        """Convex conjugate ``dual * y``; ``inf`` unless dual is in [-1, 1]."""
        return np.where(np.abs(dual) > 1.0, np.inf, np.multiply(y, dual))

    def mean(self, eta: FloatArray) -> FloatArray:
        """Return the expected target, ``eta`` itself (also its median)."""
        return np.array(eta)

    def kinks(self, y: FloatArray) -> Kinks:
        """Kink at the target, slopes -1 and +1."""
        return Kinks(y, np.full_like(y, -1.0), np.full_like(y, 1.0))

    def log_density(self, y: FloatArray, eta: FloatArray, noise: FloatArray | float = 1.0) -> FloatArray:
        """Log-density of the Laplace distribution of scale ``noise``."""
        return -np.abs(y - eta) / noise - np.log(2.0 * np.asarray(noise))

    def draw(self, rng: np.random.Generator, eta: FloatArray, noise: FloatArray | float = 1.0) -> FloatArray:
        """Draw from the Laplace distribution of scale ``noise``."""
        return rng.laplace(eta, noise)

    def deviance(self, y: FloatArray, eta: FloatArray, weight: FloatArray) -> float:
        """Return ``2 N ln(sum |r| / N)``, the scale at its best value."""
        size = float(weight.sum())
        return 2.0 * size * float(np.log(max(float(weight @ np.abs(y - eta)) / size, np.finfo(np.float64).tiny)))

    def pymc_dist(self, eta: Any, noise: Any, **options: Any) -> Any:
        """PyMC's Laplace distribution."""
        import pymc as pm

        return pm.Laplace.dist(eta, noise, **options)
