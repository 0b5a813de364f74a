r"""Huber loss: squared for small residuals, absolute for large ones (Huber 1964, *Ann. Math. Statist.* 35:73-101).

``l(y, eta) = 1/2 r^2`` for ``|r| <= k`` and ``k |r| - 1/2 k^2`` beyond, with ``r = y - eta``. Its convex conjugate is
``l*(u) = u y + u^2 / 2`` for u in [-k, k] and ``inf`` elsewhere.

The threshold k is in units of the noise. Penalised fits and streams have the noise 1: k is there in the units of the
target, or in its deviations within tasks where ``scale_target=True``. Posteriors and MM learn the noise s, MM by weighted
squares with the weights ``min(1, k s / |r|)``, which touch the loss and lie above it; the density is

    exp(-l(r / s)) / (s Z),   Z = sqrt(2 pi) (2 Phi(k) - 1) + 2 / k exp(-k^2 / 2).
"""

import math
from functools import cache
from typing import Any

import numpy as np
from numba import njit
from scipy.optimize import minimize_scalar
from scipy.special import ndtr, ndtri

from bayesmtfs.families.family import ROUNDING, Dispersion, Family, mean_target, name_with
from bayesmtfs.types import FloatArray

THRESHOLD = 1.345  # 95% as efficient as the mean where the noise is normal


@cache
def _slope(threshold: float) -> Any:
    """Loss and derivative of one target, compiled (and kept in numba's cache) for each threshold."""

    @njit(cache=True)
    def slope(y: float, eta: float) -> tuple[float, float]:
        residual = eta - y
        inside = min(max(residual, -threshold), threshold)
        return inside * (residual - 0.5 * inside), inside

    return slope


class Huber(Family):
    """Huber loss for real targets, robust against outlying ones.

    Parameters
    ----------
    threshold : float
        k, in units of the noise: see the head of this module. As a name: ``loss="huber(2)"``; ``"huber"`` is 1.345.

    Examples
    --------
    >>> import numpy as np
    >>> Huber(1.0).value(np.array([1.0, 1.0]), np.array([0.0, 4.0]))
    array([0.5, 2.5])
    """

    linear_mean = True
    of_residuals = True
    curvature_bound = 1.0
    dispersion = (Dispersion("noise"),)
    centre = staticmethod(mean_target)

    def __init__(self, threshold: float = THRESHOLD) -> None:
        if not 0.0 < threshold < np.inf:
            raise ValueError(f"threshold is {threshold!r}; pass a positive number, such as {THRESHOLD}")
        self.threshold = float(threshold)
        self.name = name_with("huber", self.threshold, THRESHOLD)

    def __repr__(self) -> str:
        return f"Huber({self.threshold:g})"

    def at(self, parameter: float) -> "Huber":
        """The loss of another threshold."""
        return Huber(parameter)

    @property
    def slope(self) -> Any:
        """Compiled loss and derivative."""
        return _slope(self.threshold)

    def value(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Loss at eta."""
        residual = np.subtract(eta, y)
        inside = np.clip(residual, -self.threshold, self.threshold)
        return inside * (residual - 0.5 * inside)

    def gradient(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Return the derivative in eta, the residual ``eta - y`` cut off at the threshold."""
        return np.clip(np.subtract(eta, y), -self.threshold, self.threshold)

    def curvature(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Second derivative in eta, 1 within the threshold and 0 beyond."""
        residual = np.subtract(eta, y)
        return (np.abs(residual) <= self.threshold).astype(residual.dtype)

    def conjugate(self, y: FloatArray, dual: FloatArray) -> FloatArray:
        """Convex conjugate ``dual * y + dual^2 / 2``; ``inf`` unless dual is within the threshold."""
        dual = np.asarray(dual)
        outside = np.abs(dual) > dual.dtype.type(self.threshold * (1.0 + ROUNDING))
        return np.where(outside, dual.dtype.type(np.inf), dual * (y + 0.5 * dual))

    def weights(self, residual: FloatArray, noise: FloatArray | float = 1.0) -> FloatArray:
        """Weight of each target's square: 1 within the threshold, ``k / |r|`` beyond, residuals in units of the noise."""
        size = np.abs(np.divide(residual, noise))
        return np.asarray(self.threshold / np.maximum(size, self.threshold))

    def mean(self, eta: FloatArray) -> FloatArray:
        """Return the expected target, ``eta`` itself."""
        return np.array(eta)

    def best_constant(self, y: FloatArray, weight: FloatArray) -> float:
        """Constant eta of the smallest weighted loss: where the slope, which rises piece by piece, is 0."""
        order = np.argsort(np.concatenate([y - self.threshold, y + self.threshold]), kind="stable")
        ends = np.concatenate([y - self.threshold, y + self.threshold])[order]
        rises = np.cumsum(np.concatenate([weight, -weight])[order])  # second derivative right of each end
        start = -self.threshold * float(weight.sum())
        slopes = start + np.concatenate([[0.0], np.cumsum(rises[:-1] * np.diff(ends))])
        return float(np.interp(0.0, np.maximum.accumulate(slopes), ends))

    @property
    def _within(self) -> float:
        """Integral of the density's kernel within the threshold."""
        return math.sqrt(2.0 * math.pi) * (2.0 * float(ndtr(self.threshold)) - 1.0)

    @property
    def _beyond(self) -> float:
        """Integral of the density's kernel beyond the threshold, on both sides."""
        return 2.0 / self.threshold * math.exp(-0.5 * self.threshold**2)

    def log_density(self, y: FloatArray, eta: FloatArray, noise: FloatArray | float = 1.0) -> FloatArray:
        """Log-density of noise ``noise``."""
        scaled = np.divide(np.subtract(y, eta), noise)
        return -self.value(scaled, np.zeros(())) - np.log(noise) - math.log(self._within + self._beyond)

    def draw(self, rng: np.random.Generator, eta: FloatArray, noise: FloatArray | float = 1.0) -> FloatArray:
        """Draw from the density: a normal centre and exponential tails."""
        shape, edge = np.shape(eta), float(ndtr(self.threshold))
        centre = ndtri(rng.uniform(1.0 - edge, edge, shape))
        tail = (self.threshold + rng.standard_exponential(shape) / self.threshold) * rng.choice([-1.0, 1.0], shape)
        within = rng.random(shape) < self._within / (self._within + self._beyond)
        return eta + noise * np.where(within, centre, tail)

    def deviance(self, y: FloatArray, eta: FloatArray, weight: FloatArray) -> float:
        """Minus twice the weighted log-likelihood at the best noise."""
        return -2.0 * float(weight @ self.log_density(y, eta, self.best_noise(y - eta, weight)))

    def best_noise(self, residual: FloatArray, weight: FloatArray) -> float:
        """Noise of the largest likelihood given residuals, found by a search."""
        spread = max(float(np.sqrt(np.average(np.square(residual), weights=weight))), np.finfo(np.float64).tiny)
        nothing = np.zeros(())
        best = minimize_scalar(
            lambda log_noise: -float(weight @ self.log_density(residual, nothing, math.exp(log_noise))),
            bounds=(math.log(spread) - 20.0, math.log(spread) + 1.0),
            method="bounded",
        )
        return math.exp(best.x)

    def pymc_dist(self, eta: Any, noise: Any, **options: Any) -> Any:
        """The density as a PyMC distribution."""
        import pymc as pm
        import pytensor.tensor as pt

        constant, family = math.log(self._within + self._beyond), self

        def log_density(value: Any, eta: Any, noise: Any) -> Any:
            scaled = (value - eta) / noise
            inside = pt.clip(scaled, -family.threshold, family.threshold)
            return -inside * (scaled - 0.5 * inside) - pt.log(noise) - constant

        def draw(eta: Any, noise: Any, rng: Any = None, size: Any = None) -> Any:
            return family.draw(rng, np.broadcast_to(eta, np.shape(eta) if size is None else size), noise)

        return pm.CustomDist.dist(eta, noise, logp=log_density, random=draw, **options)
