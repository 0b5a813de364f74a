"""Hinge loss: a label in {-1, +1} on the right side of the margin; there is no probability model behind it.

``l(y, eta) = (1 - y eta)_+``. The sum of ``exp(-l)`` over the two labels depends on eta, so no constant makes it a
likelihood: posteriors built on it are pseudo-posteriors.

Obozinski, Taskar and Jordan 2006 (section 3.1) write it as ``max z (1 - y eta)`` over z in [0, 1]. With ``u = -z y``
its convex conjugate is ``l*(u) = u y`` for ``u y`` in [-1, 0] and ``inf`` elsewhere.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bayesmtfs.protocols import FloatArray


@dataclass(frozen=True)
class Hinge:
    """Hinge loss ``(1 - y eta)_+`` for labels in {-1, +1}; not minus the logarithm of any density.

    Examples
    --------
    >>> import numpy as np
    >>> y, eta = np.array([1.0, -1.0, 1.0]), np.array([0.5, 2.0, 3.0])
    >>> Hinge().value(y, eta)
    array([0.5, 3. , 0. ])
    >>> Hinge().gradient(y, eta)
    array([-1.,  1.,  0.])
    """

    loss: ClassVar[str] = "hinge"
    curvature: ClassVar[float] = float("inf")

    def value(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Loss ``(1 - y eta)_+``."""
        return np.maximum(1.0 - np.multiply(y, eta), 0.0)

    def gradient(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Subgradient in eta: ``-y`` inside the margin, 0 beyond it and at the kink ``y eta = 1``."""
        margin = np.multiply(y, eta)
        return np.where(margin < 1.0, -y, np.zeros_like(margin))

    def hessian(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Second derivative in eta, 0: the loss is linear on both sides of its kink."""
        return np.zeros_like(np.multiply(y, eta))

    def conjugate(self, y: FloatArray, dual: FloatArray) -> FloatArray:
        """Convex conjugate ``dual * y``; ``inf`` unless that is in [-1, 0]."""
        product = np.multiply(y, dual)
        return np.where((product < -1.0) | (product > 0.0), np.inf, product)

    def mean(self, eta: FloatArray) -> FloatArray:
        """Return the margin eta itself, since the hinge has no probability of class +1."""
        return np.array(eta)

    def best_constant(self, y: FloatArray, weight: FloatArray) -> float:
        """Constant eta of the smallest weighted loss, the label with more weight (0 if both have the same)."""
        return float(np.sign(np.dot(weight, y)))
