r"""Negative binomial loss: counts that vary more than Poisson counts of the same mean.

A count of mean ``mu = exp(eta)`` and dispersion alpha has the variance ``mu + alpha mu^2``: it is a Poisson count whose
rate is mu times a gamma variable of shape ``r = 1 / alpha`` and mean 1 (Hilbe 2011, *Negative Binomial Regression*). Up to
constants

.. math:: l(y, \eta) = (y + r) \ln(1 + \alpha e^\eta) - y \eta ,

convex in eta, with the curvature ``(y + r) s (1 - s)`` for ``s = 1 / (1 + exp(-eta) / alpha)``. With ``a = y + u`` and
``b = r - u`` its convex conjugate is ``l*(u) = a ln(a / (a + b)) + b ln(b / (a + b)) - a ln alpha`` for a and b of at least
0, with ``0 ln 0 = 0``, and ``inf`` elsewhere.

The dispersion is the user's, ``loss="negative_binomial(0.5)"``, or learned, ``"negative_binomial(learn)"``: one for
each task. Penalised fits, paths and MM then alternate between the coefficients at a dispersion and the dispersion of
the largest likelihood at the coefficients, and certify the coefficients at the last one; posteriors draw it. Near 0 the
counts are those of Poisson, which has no such form as the one below: a small dispersion stands for it, or NUTS samples
it.

Given a Polya-Gamma variable counts are normal in eta (Polson, Scott and Windle 2013, section 3; Zhou, Li, Dunson and Carin
2012, *ICML*); see `bayesmtfs.families.augmentation`.
"""

import math
from functools import cache
from typing import Any

import numpy as np
from numba import njit
from scipy.special import expit, gammaln, xlogy

from bayesmtfs.families.augmentation import NEGATIVE_BINOMIAL, ScaleMixture
from bayesmtfs.families.family import LEARN, ROUNDING, Family, best_on_log_scale, name_with
from bayesmtfs.families.poisson import SMALLEST_COUNT, draw_counts, exponential, log_mean_count
from bayesmtfs.types import FloatArray

DISPERSION = 1.0
LOG_BOUNDS = (math.log(1e-6), math.log(1e4))  # of a dispersion that is learned


@cache
def _slope(dispersion: float) -> Any:
    """Loss and derivative of one target, compiled (and kept in numba's cache) for each dispersion."""
    shape, shift = 1.0 / dispersion, math.log(dispersion)

    @njit(cache=True)
    def slope(y: float, eta: float) -> tuple[float, float]:
        margin = eta + shift
        small = math.exp(-abs(margin))
        share = (1.0 if margin > 0.0 else small) / (1.0 + small)
        return (y + shape) * (math.log1p(small) + max(margin, 0.0)) - y * eta, (y + shape) * share - y

    return slope


class NegativeBinomial(Family):
    """Negative binomial loss for counts with a log link, at a given dispersion.

    Parameters
    ----------
    dispersion : float or "learn"
        alpha: the variance of a count of mean mu is ``mu + alpha mu^2``. As a name: ``loss="negative_binomial(0.5)"``;
        ``"negative_binomial"`` is 1, and ``"negative_binomial(learn)"`` leaves it to the data, one for each task (or one
        for all in a posterior with ``shared_noise``).

    Examples
    --------
    >>> import numpy as np
    >>> family = NegativeBinomial(0.5)
    >>> family.value(np.array([0.0, 3.0]), np.array([0.0, 1.0])).round(4)
    array([0.8109, 1.2915])
    >>> family.mean(np.array([1.0])).round(4)
    array([2.7183])
    """

    targets = "counts"
    centre = staticmethod(log_mean_count)
    learnable = "dispersion"

    def __init__(self, dispersion: float | str = DISPERSION) -> None:
        known = dispersion == LEARN if isinstance(dispersion, str) else 0.0 < dispersion < np.inf
        if not known:
            raise ValueError(
                f"dispersion is {dispersion!r}; pass a positive number, such as {DISPERSION:g}, or 'learn', or use "
                "loss='poisson'"
            )
        if dispersion == LEARN:
            self.learned, self.name = "dispersion", f"negative_binomial({LEARN})"
        else:
            self.name = name_with("negative_binomial", float(dispersion), DISPERSION)
        self.alpha: Any = DISPERSION if dispersion == LEARN else float(dispersion)

    def __repr__(self) -> str:
        return f"NegativeBinomial({LEARN if self.learned else self.alpha!r})"

    def at(self, parameter: Any) -> "NegativeBinomial":
        """The loss of another dispersion."""
        return NegativeBinomial(parameter)

    def given(self, parameter: Any) -> "NegativeBinomial":
        """The loss at a known dispersion."""
        known = NegativeBinomial()
        known.alpha, known.name = parameter, self.name
        return known

    def of_rows(self, start: int, stop: int) -> "NegativeBinomial":
        """The loss on some of the rows, where each has a dispersion."""
        return self if np.ndim(self.alpha) == 0 else self.given(self.alpha[start:stop])

    def best_parameter(self, y: FloatArray, eta: FloatArray, weight: FloatArray) -> float:
        """Dispersion of the largest likelihood at given linear predictors."""

        def loss(log_alpha: float) -> float:
            return -float(weight @ self.given(math.exp(log_alpha)).log_density(y, eta))

        return best_on_log_scale(loss, LOG_BOUNDS)

    @property
    def augmentation(self) -> ScaleMixture:
        """Normal given a Polya-Gamma precision."""
        return ScaleMixture(NEGATIVE_BINOMIAL, self.alpha)

    @property
    def shape(self) -> Any:
        """Shape r of the gamma variable."""
        return 1.0 / self.alpha

    @property
    def _shift(self) -> Any:
        """``ln alpha``."""
        return math.log(self.alpha) if isinstance(self.alpha, float) else np.log(self.alpha)

    @property
    def slope(self) -> Any:
        """Compiled loss and derivative; None where the dispersion is learned."""
        return None if self.learned else _slope(self.alpha)

    def value(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Loss at eta."""
        softplus = np.logaddexp(0.0, np.add(eta, self._shift))
        return np.asarray(np.add(y, self.shape) * softplus - np.multiply(y, eta))

    def gradient(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Return the derivative in eta, ``(mu - y) / (1 + alpha mu)``."""
        return np.asarray(np.add(y, self.shape) * expit(np.add(eta, self._shift)) - y)

    def curvature(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Second derivative in eta, ``(y + r) s (1 - s)``, at most a quarter of ``y + r``."""
        margin = np.add(eta, self._shift)
        return np.asarray(np.add(y, self.shape) * expit(margin) * expit(-margin))

    def error(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Deviance of each count."""
        return 2.0 * (self.value(y, eta) - self.saturated(y))

    def conjugate(self, y: FloatArray, dual: FloatArray) -> FloatArray:
        """Convex conjugate; ``inf`` unless dual is between -y and r."""
        total = np.add(y, self.shape)
        taken = np.add(y, dual) / total
        rounding = taken.dtype.type(ROUNDING)
        inside = np.clip(taken, 0.0, 1.0)
        value = total * (xlogy(inside, inside / self.alpha) + xlogy(1.0 - inside, 1.0 - inside))
        return np.where((taken < -rounding) | (taken > 1.0 + rounding), taken.dtype.type(np.inf), value)

    def mean(self, eta: FloatArray) -> FloatArray:
        """Expected count ``exp(eta)``, at most the largest number there is."""
        return exponential(eta)

    def best_constant(self, y: FloatArray, weight: FloatArray) -> float:
        """Constant eta of the smallest weighted loss, the logarithm of the mean; finite where all counts are 0."""
        return float(np.log(max(float(np.average(y, weights=weight)), SMALLEST_COUNT)))

    def log_density(self, y: FloatArray, eta: FloatArray, noise: FloatArray | float = 1.0) -> FloatArray:
        """Log-probability of the counts; there is no noise."""
        constant = gammaln(np.add(y, self.shape)) - gammaln(self.shape) - gammaln(np.add(y, 1.0))
        return np.asarray(constant + np.multiply(y, self._shift) - self.value(y, eta))

    def draw(self, rng: np.random.Generator, eta: FloatArray, noise: FloatArray | float = 1.0) -> FloatArray:
        """Draw Poisson counts whose rates are gamma variables of mean ``exp(eta)``."""
        return draw_counts(rng, self.mean(eta) * rng.gamma(self.shape, self.alpha, np.shape(eta)))

    def deviance(self, y: FloatArray, eta: FloatArray, weight: FloatArray) -> float:
        """Weighted sum of the deviances."""
        return float(weight @ self.error(y, eta))

    def pymc_dist(self, eta: Any, noise: Any, **options: Any) -> Any:
        """The law as a PyMC distribution; in terms of eta, so that no rate is too large or too small for it."""
        import pymc as pm
        import pytensor.tensor as pt

        family = self

        def log_density(value: Any, eta: Any, alpha: Any) -> Any:
            shape, margin = 1.0 / alpha, eta + pt.log(alpha)
            constant = pt.gammaln(value + shape) - pt.gammaln(shape) - pt.gammaln(value + 1.0)
            return constant + value * margin - (value + shape) * pt.softplus(margin)

        def draw(eta: Any, alpha: Any, rng: Any = None, size: Any = None) -> Any:
            return family.given(alpha).draw(rng, np.broadcast_to(eta, np.shape(eta) if size is None else size))

        alpha = np.float64(self.alpha) if isinstance(self.alpha, float) else self.alpha
        return pm.CustomDist.dist(eta, alpha, logp=log_density, random=draw, **options)
