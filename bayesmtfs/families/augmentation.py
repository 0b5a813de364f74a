"""Families that are normal in eta once a hidden precision is known.

Given a hidden precision omega of a target, its density is ``exp(linear(y) eta - omega eta^2 / 2)`` times what does not
depend on eta. Two routes use that:

- the Gibbs sampler draws omega (``draw_precision``);
- EM with coefficients integrated out takes its expectation at a point xi, which gives a normal bound,

      -ln p(y | eta) <= -linear(y) eta + expected_precision(xi) eta^2 / 2 + bound_constant(xi),

  with equality at ``eta^2 = xi^2`` (Jaakkola and Jordan 2000, *Statistics and Computing* 10:25-37).
"""

from typing import Any, ClassVar

import numpy as np

from bayesmtfs.types import FloatArray


class Augmentation:
    """The conditionally normal form of a family; as it stands here, that of a normal family, where omega is 1.

    Attributes
    ----------
    draw_precision : compiled function or None
        ``(rng, count, eta) -> omega``: a draw given eta, summed over ``count`` equal targets.
    """

    draw_precision: ClassVar[Any] = None

    def linear(self, y: FloatArray) -> FloatArray:
        """Factor of eta in the exponent."""
        return y

    def expected_precision(self, xi: FloatArray) -> FloatArray:
        """Expectation of omega where eta is xi."""
        return np.ones_like(xi)

    def bound_constant(self, xi: FloatArray) -> FloatArray:
        """What the bound adds to the part that depends on eta."""
        return np.zeros_like(xi)
