r"""A family whose linear predictor has a known part: an offset, such as the logarithm of an exposure.

    eta_i = o_i + x_i' w_t(i) + b_t(i)

Counts over different times, areas or depths have the rate ``exposure_i exp(x_i' w_t + b_t)``, that is ``o_i = ln
exposure_i`` (McCullagh and Nelder 1989, *Generalized Linear Models*, section 6.2). The loss at eta is that of the family at
``eta + o``, its conjugate ``l*(u) - u o``. Data carry the offset (`bayesmtfs.data.tasks.TaskData.eta_offset`), and what
needs values of a loss on their rows asks `with_offset`.
"""

from typing import Any

import numpy as np
from scipy.optimize import brentq

from bayesmtfs.families.family import Family, Kinks
from bayesmtfs.types import FloatArray, IntArray


def with_offset(family: Family, offset: FloatArray | None) -> Family:
    """The family with this known part (N,) of its linear predictor in place of any other; None: with none.

    Examples
    --------
    >>> from bayesmtfs.families import Poisson
    >>> rates = with_offset(Poisson(), np.log([1.0, 10.0]))
    >>> rates.mean(np.zeros(2)).round(6)
    array([ 1., 10.])
    >>> with_offset(rates, None)
    Poisson()
    """
    base = family.base if isinstance(family, WithOffset) else family
    return base if offset is None else WithOffset(base, offset)


class WithOffset(Family):
    """A family whose linear predictor has a known part, one number per observation; methods are for these rows."""

    def __init__(self, base: Family, offset: FloatArray) -> None:
        self.base, self.offset = base, offset  # (N,)
        self.name, self.smooth, self.curvature_bound = base.name, base.smooth, base.curvature_bound
        self.targets, self.coupled, self.dispersion = base.targets, base.coupled, base.dispersion  # type: ignore[misc]
        self.learned = base.learned

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def offers(self, offer: str) -> bool:
        """Whether the base has this attribute or method."""
        return self.base.offers(offer)

    @property
    def scores_deviance(self) -> bool:
        """As the base."""
        return self.base.scores_deviance

    def on(self, y: FloatArray, weight: FloatArray, offsets: IntArray) -> Family:
        """The base on given rows, with the same known part."""
        return WithOffset(self.base.on(y, weight, offsets), self.offset)

    def of_rows(self, start: int, stop: int) -> Family:
        """The family on some of its rows."""
        return WithOffset(self.base.of_rows(start, stop), self.offset[start:stop])

    def given(self, parameter: Any) -> Family:
        """The base at a value of what it learns, with the same known part."""
        return WithOffset(self.base.given(parameter), self.offset)

    def best_parameter(self, y: FloatArray, eta: FloatArray, weight: FloatArray) -> float:
        """That of the base at eta plus the offset."""
        return self.base.best_parameter(y, eta + self.offset, weight)

    def value(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Loss at eta plus the offset."""
        return self.base.value(y, eta + self.offset)

    def gradient(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Its derivative in eta."""
        return self.base.gradient(y, eta + self.offset)

    def curvature(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Its second derivative in eta."""
        return self.base.curvature(y, eta + self.offset)

    def conjugate(self, y: FloatArray, dual: FloatArray) -> FloatArray:
        """Its convex conjugate, ``l*(u) - u * offset``."""
        return self.base.conjugate(y, dual) - dual * self.offset

    def kinks(self, y: FloatArray) -> Kinks:
        """Kinks, moved by the offset."""
        found = self.base.kinks(y)
        return found._replace(place=found.place - self.offset)

    def zero_sums(self, y: FloatArray, dual: FloatArray, weight: FloatArray) -> FloatArray:
        """Dual variables of the base."""
        return self.base.zero_sums(y, dual, weight)

    def error(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Prediction error of the base at eta plus the offset."""
        return self.base.error(y, eta + self.offset)

    def saturated(self, y: FloatArray) -> FloatArray:
        """Smallest losses, which an offset does not change."""
        return self.base.saturated(y)

    def mean(self, eta: FloatArray) -> FloatArray:
        """Expected target at eta plus the offset."""
        return self.base.mean(eta + self.offset)

    def log_density(self, y: FloatArray, eta: FloatArray, noise: FloatArray | float = 1.0) -> FloatArray:
        """Log-density at eta plus the offset."""
        return self.base.log_density(y, eta + self.offset, noise)

    def draw(self, rng: np.random.Generator, eta: FloatArray, noise: FloatArray | float = 1.0) -> FloatArray:
        """New targets at eta plus the offset."""
        return self.base.draw(rng, eta + self.offset, noise)

    def deviance(self, y: FloatArray, eta: FloatArray, weight: FloatArray) -> float:
        """Deviance at eta plus the offset."""
        return self.base.deviance(y, eta + self.offset, weight)

    def working_noise(self, y: FloatArray, weight: FloatArray) -> float:
        """That of the base where rows share a loss, else at the best constant beside the offset."""
        return self.base.working_noise(y, weight) if self.coupled else super().working_noise(y, weight)

    def pymc_dist(self, eta: Any, noise: Any, **options: Any) -> Any:
        """PyMC distribution at eta plus the offset."""
        return self.base.pymc_dist(eta + self.offset, noise, **options)

    def best_constant(self, y: FloatArray, weight: FloatArray) -> float:
        """Constant of the smallest loss beside the offset.

        The slope of a convex loss grows with the constant; less the largest (smallest) offset, the best constant without
        one lies on the left (right) of its root.
        """
        if not self.smooth:
            return super().best_constant(y, weight)
        alone = self.base.best_constant(y, weight)
        low, high = alone - float(np.max(self.offset)), alone - float(np.min(self.offset))

        def slope(constant: float) -> float:
            return float(weight @ self.gradient(y, np.full(len(y), constant)))

        if not slope(low) < 0.0 < slope(high):  # no difference between offsets, but for rounding
            return 0.5 * (low + high)
        return float(brentq(slope, low, high, xtol=1e-14, rtol=1e-15))
