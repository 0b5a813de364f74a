"""Logistic loss: a label in {-1, +1} whose log-odds are the linear predictor.

``l(y, eta) = ln(1 + exp(-y eta))``, exactly minus the log-probability of y when ``P(y = +1) = 1 / (1 + exp(-eta))``.

With ``a = -u y`` its convex conjugate is ``l*(u) = a ln a + (1 - a) ln(1 - a)`` for a in [0, 1], with ``0 ln 0 = 0``,
attained at ``P(-y) = a``, and ``inf`` elsewhere (Boyd and Vandenberghe 2004, *Convex Optimization*, section 3.3.1).

It is normal given a Polya-Gamma variable omega (Polson, Scott and Windle 2013, *JASA* 108:1339-1349):
``p(y | eta) = 1/2 exp(y eta / 2) E[exp(-omega eta^2 / 2)]`` with omega ~ PG(1, 0).
"""

import math
from typing import Any

import numpy as np
from numba import njit
from scipy.special import expit, log_expit, xlog1py, xlogy

from bayesmtfs.families.augmentation import PolyaGamma
from bayesmtfs.families.family import Family
from bayesmtfs.types import FloatArray

SMALLEST_SHARE = 1e-12  # of a label that does not occur, to keep its log-odds finite


@njit(cache=True)
def _slope(y: float, eta: float) -> tuple[float, float]:
    """Loss and derivative of one target."""
    margin = y * eta
    tail = math.exp(-abs(margin))
    share = (tail if margin > 0.0 else 1.0) / (1.0 + tail)
    return max(-margin, 0.0) + math.log1p(tail), -y * share


@njit(cache=True)
def _centre(total: float, weight: float) -> float:
    """Log-odds, with half a row of each label beside those seen."""
    return math.log((total + 0.5) / (weight - total + 0.5)) if weight > 0.0 else 0.0


class Logistic(Family):
    """Logistic loss ``ln(1 + exp(-y eta))`` for labels in {-1, +1}.

    Examples
    --------
    >>> import numpy as np
    >>> y, eta = np.array([1.0, -1.0]), np.array([0.0, 1000.0])
    >>> Logistic().value(y, eta).round(4)
    array([6.931e-01, 1.000e+03])
    >>> Logistic().mean(eta)
    array([0.5, 1. ])
    """

    name = "logistic"
    targets = "labels"
    curvature_bound = 0.25
    slope = staticmethod(_slope)
    centre = staticmethod(_centre)
    augmentation = PolyaGamma()

    def value(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Loss ``ln(1 + exp(-y eta))``, without overflow and accurate in both tails."""
        return np.logaddexp(0.0, -np.multiply(y, eta))

    def gradient(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Return the derivative in eta, ``-y P(-y)``."""
        wrong: FloatArray = expit(-np.multiply(y, eta))
        return -y * wrong

    def curvature(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Second derivative in eta, ``P(+1) P(-1)``; at most 1/4, reached at eta = 0."""
        right: FloatArray = expit(np.multiply(y, eta))
        wrong: FloatArray = expit(-np.multiply(y, eta))
        return right * wrong

    def error(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Deviance ``2 ln(1 + exp(-y eta))``."""
        return 2.0 * self.value(y, eta)

    def conjugate(self, y: FloatArray, dual: FloatArray) -> FloatArray:
        """Convex conjugate, the negative entropy of ``-dual * y``; ``inf`` unless that is in [0, 1]."""
        share = -np.multiply(y, dual)
        inside = np.clip(share, 0.0, 1.0)
        negative_entropy = xlogy(inside, inside) + xlog1py(1.0 - inside, -inside)
        return np.where((share < 0.0) | (share > 1.0), np.inf, negative_entropy)

    def mean(self, eta: FloatArray) -> FloatArray:
        """Probability of class +1, ``1 / (1 + exp(-eta))``."""
        return np.asarray(expit(eta))

    def best_constant(self, y: FloatArray, weight: FloatArray) -> float:
        """Constant eta of the smallest weighted loss, the log-odds; large but finite where a label does not occur."""
        positive, negative = float(np.sum(weight[y > 0])), float(np.sum(weight[y <= 0]))
        least = SMALLEST_SHARE * (positive + negative)
        return float(np.log(max(positive, least)) - np.log(max(negative, least)))

    def log_density(self, y: FloatArray, eta: FloatArray, noise: FloatArray | float = 1.0) -> FloatArray:
        """Log-probability of the labels, minus the loss; there is no noise."""
        return np.asarray(log_expit(np.multiply(y, eta)))

    def draw(self, rng: np.random.Generator, eta: FloatArray, noise: FloatArray | float = 1.0) -> FloatArray:
        """Draw labels -1 and +1."""
        return np.where(rng.random(np.shape(eta)) < expit(eta), 1.0, -1.0)

    def expected_loss(self, mean: FloatArray, eta: FloatArray) -> FloatArray:
        """Cross-entropy of labels that are +1 with probability ``mean``."""
        return np.logaddexp(0.0, eta) - mean * eta

    def expected_slope(self, mean: FloatArray, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return ``P(+1) - mean`` and ``P(+1) P(-1)``."""
        share: FloatArray = expit(eta)
        return share - mean, share * (1.0 - share)

    def working_noise(self, y: FloatArray, weight: FloatArray) -> float:
        """Return 2, one over the root of the largest curvature."""
        return 2.0

    def pymc_dist(self, eta: Any, noise: Any, **options: Any) -> Any:
        """Labels -1 and +1; PyMC's own Bernoulli would want 0 and 1."""
        import pymc as pm
        import pytensor.tensor as pt

        def log_density(value: Any, eta: Any) -> Any:
            return pt.switch(pt.eq(pt.abs(value), 1), -pt.softplus(-value * eta), -np.inf)

        def draw(eta: Any, size: Any) -> Any:
            return 2 * pm.Bernoulli.dist(logit_p=eta, size=size) - 1

        return pm.CustomDist.dist(eta, logp=log_density, dist=draw, **options)
