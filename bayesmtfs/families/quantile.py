"""Quantile (check) loss: the linear predictor is a quantile (Koenker and Bassett 1978, *Econometrica* 46:33-50).

``l(y, eta) = tau (y - eta)_+ + (1 - tau) (eta - y)_+``, minus the log-density of an asymmetric Laplace distribution of
scale 1 up to a constant; at the level tau = 1/2 it is half the absolute loss. Its convex conjugate is ``l*(u) = u y`` for u
in [-tau, 1 - tau] and ``inf`` elsewhere.
"""

from functools import cache
from typing import Any

import numpy as np
from numba import njit

from bayesmtfs.families.augmentation import QUANTILE, ScaleMixture
from bayesmtfs.families.family import Dispersion, Family, Kinks, mean_target, name_with
from bayesmtfs.types import FloatArray

MEDIAN = 0.5


@cache
def _slope(level: float) -> Any:
    """Loss and derivative of one target, compiled (and kept in numba's cache) for each level."""

    @njit(cache=True)
    def slope(y: float, eta: float) -> tuple[float, float]:
        residual = y - eta
        if residual > 0.0:
            return level * residual, -level
        return (level - 1.0) * residual, (1.0 - level if residual < 0.0 else 0.0)

    return slope


class Quantile(Family):
    """Quantile loss ``tau (y - eta)_+ + (1 - tau) (eta - y)_+`` for real targets; what is predicted is the quantile.

    Parameters
    ----------
    level : float
        tau, between 0 and 1. As a name: ``loss="quantile(0.9)"``; ``"quantile"`` is the median.

    Examples
    --------
    >>> import numpy as np
    >>> Quantile(0.9).value(np.array([1.0, 1.0]), np.array([0.0, 3.0])).round(2)
    array([0.9, 0.2])
    """

    smooth = False
    linear_mean = True
    of_residuals = True
    noise_power = 1.0
    scores_deviance = True
    dispersion = (Dispersion("noise"),)
    centre = staticmethod(mean_target)

    def __init__(self, level: float = MEDIAN) -> None:
        if not 0.0 < level < 1.0:
            raise ValueError(f"level is {level!r}; pass a number between 0 and 1, such as 0.9")
        self.level = float(level)
        self.name = name_with("quantile", self.level, MEDIAN)

    def __repr__(self) -> str:
        return f"Quantile({self.level:g})"

    def at(self, parameter: float) -> "Quantile":
        """The loss of another level."""
        return Quantile(parameter)

    @property
    def augmentation(self) -> ScaleMixture:
        """Normal given an exponential variance."""
        return ScaleMixture(QUANTILE, self.level)

    @property
    def slope(self) -> Any:
        """Compiled loss and derivative."""
        return _slope(self.level)

    def value(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Loss at eta."""
        residual = np.subtract(y, eta)
        return np.maximum(self.level * residual, (self.level - 1.0) * residual)

    def gradient(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Subgradient in eta, ``-tau`` below the target and ``1 - tau`` above; 0 at the kink."""
        residual = np.subtract(eta, y)
        return (residual > 0) * residual.dtype.type(1.0 - self.level) - (residual < 0) * residual.dtype.type(self.level)

    def curvature(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Second derivative in eta, 0: the loss is linear on both sides of its kink."""
        return np.zeros_like(np.subtract(eta, y))

    def conjugate(self, y: FloatArray, dual: FloatArray) -> FloatArray:
        """Convex conjugate ``dual * y``; ``inf`` unless dual is in [-tau, 1 - tau]."""
        dual = np.asarray(dual)
        low, high = (dual.dtype.type(end) for end in (-self.level, 1.0 - self.level))
        return np.where((dual < low) | (dual > high), np.inf, np.multiply(y, dual)).astype(dual.dtype)

    def kinks(self, y: FloatArray) -> Kinks:
        """Kink at the target, slopes ``-tau`` and ``1 - tau``."""
        return Kinks(y, np.full_like(y, -self.level), np.full_like(y, 1.0 - self.level))

    def mean(self, eta: FloatArray) -> FloatArray:
        """Return what is predicted, the quantile: ``eta`` itself."""
        return np.array(eta)

    def log_density(self, y: FloatArray, eta: FloatArray, noise: FloatArray | float = 1.0) -> FloatArray:
        """Log-density of the asymmetric Laplace distribution of scale ``noise``."""
        return -self.value(y, eta) / noise + np.log(self.level * (1.0 - self.level) / np.asarray(noise))

    def draw(self, rng: np.random.Generator, eta: FloatArray, noise: FloatArray | float = 1.0) -> FloatArray:
        """Draw from the asymmetric Laplace distribution: a difference of two exponential variables."""
        above, below = (rng.standard_exponential(np.shape(eta)) for _ in range(2))
        return eta + noise * (above / self.level - below / (1.0 - self.level))

    def deviance(self, y: FloatArray, eta: FloatArray, weight: FloatArray) -> float:
        """Return ``2 N ln(sum l / N)``, the scale at its best value."""
        size = float(weight.sum())
        return 2.0 * size * float(np.log(max(float(weight @ self.value(y, eta)) / size, np.finfo(np.float64).tiny)))

    def pymc_dist(self, eta: Any, noise: Any, **options: Any) -> Any:
        """PyMC's asymmetric Laplace distribution."""
        import pymc as pm

        odds = self.level / (1.0 - self.level)
        scale = np.sqrt(self.level * (1.0 - self.level))
        return pm.AsymmetricLaplace.dist(mu=eta, b=scale / noise, kappa=np.sqrt(odds), **options)
