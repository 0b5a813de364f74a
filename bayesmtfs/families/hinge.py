"""Hinge loss: a label in {-1, +1} on the right side of the margin; there is no probability model behind it.

``l(y, eta) = (1 - y eta)_+``. The sum of ``exp(-l)`` over the two labels depends on eta, so no constant makes it a
likelihood: posteriors built on it are pseudo-posteriors.

Obozinski, Taskar and Jordan 2006 (section 3.1) write it as ``max z (1 - y eta)`` over z in [0, 1]. With ``u = -z y``
its convex conjugate is ``l*(u) = u y`` for ``u y`` in [-1, 0] and ``inf`` elsewhere.
"""

from typing import Any, NoReturn

import numpy as np
from numba import njit

from bayesmtfs.families.family import Family, Kinks
from bayesmtfs.types import FloatArray


@njit(cache=True)
def _slope(y: float, eta: float) -> tuple[float, float]:
    """Loss and derivative of one target."""
    short = 1.0 - y * eta
    return max(short, 0.0), -y if short > 0.0 else 0.0


@njit(cache=True)
def _centre(total: float, weight: float) -> float:
    """0: the best constant is a label, from where an intercept would learn slowly."""
    return 0.0


class Hinge(Family):
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

    name = "hinge"
    targets = "labels"
    smooth = False
    slope = staticmethod(_slope)
    centre = staticmethod(_centre)

    def value(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Loss ``(1 - y eta)_+``."""
        return np.maximum(1.0 - np.multiply(y, eta), 0.0)

    def gradient(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Subgradient in eta: ``-y`` inside the margin, 0 beyond it and at the kink ``y eta = 1``."""
        margin = np.multiply(y, eta)
        return np.where(margin < 1.0, -y, np.zeros_like(margin))

    def curvature(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Second derivative in eta, 0: the loss is linear on both sides of its kink."""
        return np.zeros_like(np.multiply(y, eta))

    def conjugate(self, y: FloatArray, dual: FloatArray) -> FloatArray:
        """Convex conjugate ``dual * y``; ``inf`` unless that is in [-1, 0]."""
        product = np.multiply(y, dual)
        return np.where((product < -1.0) | (product > 0.0), np.inf, product)

    def kinks(self, y: FloatArray) -> Kinks:
        """Kink at the margin, ``eta = y``; flat beyond it."""
        return Kinks(y, np.where(y > 0, -1.0, 0.0), np.where(y > 0, 0.0, 1.0))

    def best_constant(self, y: FloatArray, weight: FloatArray) -> float:
        """Constant eta of the smallest weighted loss, the label with more weight (0 if both have the same)."""
        return float(np.sign(np.dot(weight, y)))

    def pymc_dist(self, eta: Any, noise: Any, **options: Any) -> Any:
        """Pseudo-likelihood ``exp(-loss)`` of labels, which has no predictive draws."""
        import pymc as pm
        import pytensor.tensor as pt

        def log_density(value: Any, eta: Any) -> Any:
            return pt.switch(pt.eq(pt.abs(value), 1), -pt.maximum(1.0 - value * eta, 0.0), -np.inf)

        def refuse_to_draw(*parameters: Any, rng: Any = None, size: Any = None) -> NoReturn:
            raise NotImplementedError(
                "the hinge loss is a pseudo-likelihood without predictive draws; leave its variable out of var_names, "
                "or use the logistic loss"
            )

        return pm.CustomDist.dist(eta, logp=log_density, random=refuse_to_draw, **options)
