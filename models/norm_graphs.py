r"""Symbolic powers, norms and tail probabilities of the generalized normal family, safe at 0 and in the tails.

The standard generalized normal law has the density ``exp(-|u|^q) / (2 Gamma(1 + 1/q))`` for any q > 0; q = inf is the
uniform law on [-1, 1]. With ``a = 1/q`` and ``x = |u|^q`` its two-sided tail is ``P(|z| > |u|) = Q(a, x)``, the
regularised upper incomplete gamma function, and near the centre its distribution function is
``1/2 + u / (2 Gamma(1 + 1/q))``.

All functions take and give PyTensor tensors. q may be a tensor, broadcasts, and may be infinite. Where a power has no
derivative (at 0), the gradient is 0, one of the subgradients for q >= 1.
"""

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad
from pytensor.tensor.variable import TensorVariable

# Below this x = |u|^q the distribution function is linear in u to double precision: the relative error is below x.
LINEAR_CENTRE = 1e-17
# Below this tail probability the incomplete gamma function is about to underflow; its continued fraction takes over.
SMALLEST_TAIL = 1e-290
# Depth of the continued fraction. It starts at x of about 600, where 12 levels are exact to double precision.
FRACTION_LEVELS = 12


def absolute_power(u: TensorVariable, q: TensorVariable) -> TensorVariable:
    """Give ``|u|^q`` element by element; at q = inf it is 0 inside [-1, 1] and infinite outside.

    Parameters
    ----------
    u : TensorVariable
        Base, any sign.
    q : TensorVariable
        Exponent > 0, broadcasts with ``u``.

    Returns
    -------
    TensorVariable
        The power, with finite derivatives in ``u`` and ``q`` at u = 0 (both are 0 there).
    """
    size = pt.abs(u)
    # The inner switch keeps 0^(q - 1) and ln 0 out of the gradient, the outer one puts the value right.
    power = pt.switch(size > 0, pt.switch(size > 0, size, 1.0) ** finite_exponent(q), 0.0)
    return pt.switch(pt.isinf(q), pt.switch(size > 1, np.inf, 0.0), power)


def finite_exponent(q: TensorVariable) -> TensorVariable:
    """Replace q = inf by 1, so that a branch that is not taken stays finite together with its gradient."""
    return pt.switch(pt.isinf(q), 1.0, q)


def row_norm(w: TensorVariable, q: TensorVariable) -> TensorVariable:
    """Give ``||w||_q`` over the last axis, with gradient 0 at w = 0.

    The entries are divided by the largest one first, so that no power overflows or vanishes.

    Parameters
    ----------
    w : TensorVariable
        Shape (..., m).
    q : TensorVariable
        Shape that broadcasts with (...), > 0, may be infinite.

    Returns
    -------
    TensorVariable
        Norms, shape (...).
    """
    largest = pt.max(pt.abs(w), axis=-1)
    # The norm does not depend on the number it is scaled by, so that number is a constant to the gradient.
    scale = disconnected_grad(pt.switch(largest > 0, largest, 1.0))
    finite_q = finite_exponent(q)
    power_sum = pt.sum(absolute_power(w / scale[..., None], finite_q[..., None]), axis=-1)
    root = pt.switch(largest > 0, power_sum, 1.0) ** (1.0 / finite_q)
    return pt.switch(pt.isinf(q), largest, pt.switch(largest > 0, scale * root, 0.0))


def log_unit_volume(q: TensorVariable) -> TensorVariable:
    """Give ``ln(2 Gamma(1 + 1/q))``: the log-normaliser of one standard generalized normal entry."""
    return np.log(2.0) + pt.gammaln(1.0 + 1.0 / q)


def log_lower_tail(u: TensorVariable, q: TensorVariable) -> TensorVariable:
    """Give ``ln P(z <= u)`` for a standard generalized normal z, accurate in both tails.

    Parameters
    ----------
    u : TensorVariable
        Standardised value.
    q : TensorVariable
        Exponent > 0, may be infinite (uniform law).

    Returns
    -------
    TensorVariable
        Log-probability; relative accuracy holds also where the probability itself underflows.
    """
    finite_q = finite_exponent(q)
    inverse_q = 1.0 / finite_q
    x = absolute_power(u, finite_q)
    central = x < LINEAR_CENTRE
    slope = 0.5 / pt.gamma(1.0 + inverse_q)
    log_centre = pt.log(0.5 + slope * pt.switch(central, u, 0.0))

    two_sided = pt.gammaincc(inverse_q, pt.switch(central, 1.0, x))
    far = two_sided < SMALLEST_TAIL
    log_two_sided = pt.switch(far, log_far_tail(inverse_q, x, far), pt.log(pt.switch(far, 1.0, two_sided)))
    log_outside = pt.switch(u < 0, np.log(0.5) + log_two_sided, pt.log1p(-0.5 * two_sided))

    log_uniform = pt.log(pt.clip(0.5 * (1.0 + u), 0.0, 1.0))
    return pt.switch(pt.isinf(q), log_uniform, pt.switch(central, log_centre, log_outside))


def log_far_tail(a: TensorVariable, x: TensorVariable, far: TensorVariable) -> TensorVariable:
    """Give ``ln Q(a, x)`` far out by the continued fraction of the incomplete gamma function.

    ``Gamma(a, x) = e^-x x^a / (x + 1 - a - 1(1 - a) / (x + 3 - a - 2(2 - a) / (x + 5 - a - ...)))``
    (Abramowitz and Stegun 6.5.31 after an even contraction).
    """
    # Outside the far region any point where the fraction is well behaved will do.
    x_far = pt.switch(pt.and_(far, x < np.inf), x, 600.0 + 2.0 * a)
    denominator = x_far + 2 * FRACTION_LEVELS + 1 - a
    for level in range(FRACTION_LEVELS, 0, -1):
        denominator = x_far + 2 * level - 1 - a - level * (level - a) / denominator
    log_tail = -x_far + a * pt.log(x_far) - pt.gammaln(a) - pt.log(denominator)
    return pt.switch(x < np.inf, log_tail, -np.inf)


def quantile(probability: TensorVariable, q: TensorVariable) -> TensorVariable:
    """Give the u with ``P(z <= u) = probability`` for a standard generalized normal z.

    Parameters
    ----------
    probability : TensorVariable
        In [0, 1].
    q : TensorVariable
        Exponent > 0, may be infinite (uniform law).

    Returns
    -------
    TensorVariable
        Quantiles; -inf and inf at probabilities 0 and 1 (-1 and 1 at q = inf).
    """
    finite_q = finite_exponent(q)
    inverse_q = 1.0 / finite_q
    inside = pt.abs(2.0 * probability - 1.0)
    outside = 2.0 * pt.minimum(probability, 1.0 - probability)
    x = pt.switch(inside < 0.5, pt.gammaincinv(inverse_q, inside), pt.gammainccinv(inverse_q, outside))
    size = pt.switch(x < LINEAR_CENTRE, inside * pt.gamma(1.0 + inverse_q), x**inverse_q)
    return pt.sign(probability - 0.5) * pt.switch(pt.isinf(q), inside, size)
