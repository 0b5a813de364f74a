"""Absolute loss: a target with Laplace noise around the linear predictor, its median.

``l(y, eta) = |y - eta|``, minus the log-density of a Laplace distribution with scale 1 up to a constant. A scale ``b``
other than 1 divides the loss by b and belongs to the route, not to the loss.

It is ``max u (eta - y)`` over u in [-1, 1], so its convex conjugate is ``l*(u) = u y`` there and ``inf`` elsewhere
(Boyd and Vandenberghe 2004, *Convex Optimization*, section 3.3.1).
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bayesmtfs.protocols import FloatArray


@dataclass(frozen=True)
class Absolute:
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

    loss: ClassVar[str] = "absolute"
    curvature: ClassVar[float] = float("inf")

    def value(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Loss ``|y - eta|``."""
        return np.abs(np.subtract(y, eta))

    def gradient(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Subgradient in eta, the sign of ``eta - y``; 0 at the kink ``eta = y``."""
        return np.sign(np.subtract(eta, y))

    def hessian(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Second derivative in eta, 0: the loss is linear on both sides of its kink."""
        return np.zeros_like(np.subtract(eta, y))

    def conjugate(self, y: FloatArray, dual: FloatArray) -> FloatArray:
        """Convex conjugate ``dual * y``; ``inf`` unless dual is in [-1, 1]."""
        return np.where(np.abs(dual) > 1.0, np.inf, np.multiply(y, dual))

    def mean(self, eta: FloatArray) -> FloatArray:
        """Return the expected target, ``eta`` itself (also its median)."""
        return np.array(eta)

    def best_constant(self, y: FloatArray, weight: FloatArray) -> float:
        """Constant eta of the smallest weighted loss, the (lower) weighted median."""
        order = np.argsort(y, kind="stable")
        below = np.cumsum(weight[order])
        return float(y[order[np.searchsorted(below, below[-1] / 2)]])
