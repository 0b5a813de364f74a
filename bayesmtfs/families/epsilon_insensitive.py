"""Epsilon-insensitive loss ``(|y - eta| - epsilon)_+``: residuals of up to epsilon cost nothing (Vapnik 1995).

It belongs to the smoothed and the passive-aggressive learners, and is no name of ``loss=`` elsewhere.
"""

from functools import cache
from typing import Any

import numpy as np
from numba import njit

from bayesmtfs.families.family import Family, mean_target
from bayesmtfs.types import FloatArray


@cache
def _slope(epsilon: float) -> Any:
    """Loss and derivative of one target, compiled (and kept in numba's cache) for each epsilon."""

    @njit(cache=True)
    def slope(y: float, eta: float) -> tuple[float, float]:
        residual = eta - y
        gap = abs(residual) - epsilon
        return (gap, np.sign(residual)) if gap > 0 else (0.0, 0.0)

    return slope


class EpsilonInsensitive(Family):
    """Loss ``(|y - eta| - epsilon)_+`` for real targets.

    Parameters
    ----------
    epsilon : float
        Residual that costs nothing.

    Examples
    --------
    >>> import numpy as np
    >>> EpsilonInsensitive(0.5).value(np.array([1.0, 2.0]), np.array([1.2, 0.0]))
    array([0. , 1.5])
    """

    name = "epsilon_insensitive"
    smooth = False
    centre = staticmethod(mean_target)

    def __init__(self, epsilon: float = 0.0) -> None:
        self.epsilon = float(epsilon)

    def __repr__(self) -> str:
        return f"EpsilonInsensitive({self.epsilon})"

    @property
    def slope(self) -> Any:
        """Compiled loss and derivative."""
        return _slope(self.epsilon)

    def value(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Loss at eta."""
        return np.maximum(np.abs(np.subtract(y, eta)) - self.epsilon, 0.0)

    def gradient(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Subgradient in eta: the sign of ``eta - y``, 0 within epsilon."""
        residual = np.subtract(eta, y)
        return np.where(np.abs(residual) > self.epsilon, np.sign(residual), 0.0)

    def mean(self, eta: FloatArray) -> FloatArray:
        """Return the predicted target, ``eta`` itself."""
        return np.array(eta)
