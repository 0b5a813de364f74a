r"""Slice steps on the logarithm x of a scale.

All scales of a hierarchical model of coefficients have log-densities of one family,

    -slope x - exp(log_sum - power x) + pull f - curvature f^2 / 2 + sum_j [c y_j - (a + c) ln(1 + e^y_j)]
        - (x - centre)^2 precision / 2,      f = exp(x - origin),   y_j = exponent (x - anchor_j),

on an interval. The first two terms are a generalized normal sample of which only sums count, the next two a normal
likelihood in which everything is multiplied by f, the sum are beta-prime laws of ``e^y`` (at a = c = 1/2 and exponent 2
the half-Cauchy law, at a = 3/2 and c = 1/2 the half-Student law with three degrees of freedom), and the last a
log-normal law. A beta-prime law of ``(scale / anchor)^exponent``, seen as a function of the anchor, is the same with a
and c exchanged.

A row of coefficients may be carried along: with ``g w - Q w^2 / 2`` its log-likelihood and ``k^2 e^(2x)`` its prior
variance, ``w = s (s g + z)``, ``s^-2 = Q + e^(-2x) / k^2``, moves with x while z is fixed. That is the posterior of w
under a normal prior, and interpolates between w fixed (Q large) and ``w e^-x`` fixed (Q = 0). It adds
``sum [g w - Q w^2 / 2 - |w e^-x|^power + ln s]``, the last term being the Jacobian; nothing is approximated. At the
powers 1 and inf it may be integrated out instead (`gibbs_integrated`), for which positions are left empty.

The step is the one of Neal (2003), *Annals of Statistics* 31:705-767, with stepping out and shrinkage.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from bayesmtfs.gibbs.integrated import log_integral
from bayesmtfs.types import FloatArray

SLICE_WIDTH = 1.0  # a width for scales of any kind
SLICE_STEPS = 200  # most steps outwards on either side: far more than the scales span


class LogScaleDensity(NamedTuple):
    """Log-density of x, up to a constant."""

    slope: float
    log_sum: float  # -inf: no such term
    power: float
    pull: float
    curvature: float
    origin: float
    precisions: FloatArray  # (k,) Q of the coefficients that go with x; may be empty
    pulls: FloatArray  # (k,) g
    positions: FloatArray  # (k,) z; empty: coefficients are integrated out
    spread: float  # k^2
    anchors: FloatArray  # (k,)
    exponent: float
    first_shape: float  # c
    second_shape: float  # a
    centre: float
    precision: float
    low: float
    high: float


@njit(cache=True, nogil=True, error_model="numpy")
def power_of(x: float, power: float) -> float:
    """``x^power`` of a number that is not negative; fast for the commonest powers."""
    if power == 2.0:
        return x * x
    if power == 4.0:
        return x * x * x * x
    return x**power


@njit(cache=True, nogil=True, error_model="numpy")
def softplus(y: float) -> float:
    """``ln(1 + e^y)`` without overflow."""
    return y + math.log1p(math.exp(-y)) if y > 0.0 else math.log1p(math.exp(y))


@njit(cache=True, nogil=True, error_model="numpy")
def log_density(x: float, target: LogScaleDensity) -> float:
    """Log-density at x within the interval."""
    value = -target.slope * x
    if target.log_sum > -np.inf:
        value -= math.exp(min(target.log_sum - target.power * x, 700.0))
    if target.curvature > 0.0 or target.pull != 0.0:
        factor = math.exp(min(x - target.origin, 300.0))
        value += factor * (target.pull - 0.5 * target.curvature * factor)
    if len(target.positions) > 0:
        value += _carried_value(x, target)
    elif len(target.precisions) > 0:
        for t in range(len(target.precisions)):
            value += log_integral(target.precisions[t], target.pulls[t], x, target.power)
    shapes = target.first_shape + target.second_shape
    for j in range(len(target.anchors)):
        y = target.exponent * (x - target.anchors[j])
        value += target.first_shape * y - shapes * softplus(y)
    return value - 0.5 * target.precision * (x - target.centre) ** 2


@njit(cache=True, nogil=True, error_model="numpy")
def _carried_value(x: float, target: LogScaleDensity) -> float:
    """What the coefficients that move with x add; at an infinite power they must stay within e^x."""
    shrink = math.exp(-x)
    prior_precision = shrink * shrink / target.spread
    value, product = 0.0, 1.0
    for t in range(len(target.positions)):
        precision = target.precisions[t] + prior_precision
        s = 1.0 / math.sqrt(precision)
        w = s * (s * target.pulls[t] + target.positions[t])
        value += w * (target.pulls[t] - 0.5 * target.precisions[t] * w)
        z = abs(w) * shrink
        if target.power < np.inf:
            value -= power_of(z, target.power)
        elif z > 1.0:
            return -np.inf
        product *= precision
        if product > 1e100 or product < 1e-100:  # one logarithm for many factors
            value -= 0.5 * math.log(product)
            product = 1.0
    return value - 0.5 * math.log(product)


@njit(cache=True, nogil=True, error_model="numpy")
def slice_step(rng: np.random.Generator, current: float, target: LogScaleDensity, width: float) -> float:
    """Move to a new x that leaves the density invariant.

    Parameters
    ----------
    rng : generator
    current : x
    target : density
    width : of the first interval; must not depend on x
    """
    level = log_density(current, target) - rng.standard_exponential()
    left = current - width * rng.random()
    right = left + width
    for _ in range(SLICE_STEPS):
        if left <= target.low or log_density(left, target) < level:
            break
        left -= width
    for _ in range(SLICE_STEPS):
        if right >= target.high or log_density(right, target) < level:
            break
        right += width
    left, right = max(left, target.low), min(right, target.high)
    for _ in range(SLICE_STEPS):
        proposal = left + (right - left) * rng.random()
        if log_density(proposal, target) >= level:
            return proposal
        if proposal < current:
            left = proposal
        else:
            right = proposal
    return current
