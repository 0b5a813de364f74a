r"""Steps on the logarithm x of a scale: slice steps, and jumps between modes.

All scales of a hierarchical model of coefficients have log-densities of one family,

    -slope x - exp(log_sum - power x) + pull f - curvature f^2 / 2 + sum_j [c y_j - (a + c) ln(1 + e^y_j)]
        - (x - centre)^2 precision / 2,      f = exp(x - origin),   y_j = exponent (x - anchor_j),

on an interval. The first two terms are a generalized normal sample of which only sums count, the next two a normal
likelihood in which everything is multiplied by f, the sum are beta-prime distributions of ``e^y`` (at a = c = 1/2 and
exponent 2 the half-Cauchy, at a = 3/2 and c = 1/2 the half-Student with three degrees of freedom), and the last is
log-normal. A beta-prime distribution of ``(scale / anchor)^exponent``, seen as a function of the anchor, is the same with
a and c exchanged.

A row of coefficients may be carried along: with ``g w - Q w^2 / 2`` its log-likelihood and ``k^2 e^(2x)`` its prior
variance, ``w = s (s g + z)``, ``s^-2 = Q + e^(-2x) / k^2``, moves with x while z is fixed. That is the posterior of w
under a normal prior, and interpolates between w fixed (Q large) and ``w e^-x`` fixed (Q = 0). It adds
``sum [g w - Q w^2 / 2 - |w e^-x|^power + ln s]``, the last term being the Jacobian; nothing is approximated. At the
powers 1 and inf it may be integrated out instead (`distributions`), for which positions are left empty.

`slice_step` is the one of Neal (2003), *Annals of Statistics* 31:705-767, with stepping out and shrinkage.

`jump_by_cells` draws independently where the density has several modes. A row that the data may or may not need has a
mode near the global scale and another at the size of its effect, with a valley between them that slice steps hardly
cross. The range is cut into `CELLS` cells with the density at the middle of each, x is proposed uniformly in a cell drawn
from them, whatever the present x, and accepted with probability ``min(1, p(x') c(x) / (p(x) c(x')))``, c(x) the density at
the middle of the cell that x is in (a Metropolis step; nothing is approximated). From outside the range nothing moves,
and nothing is proposed there.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.random import Generator

from bayesmtfs.gibbs.distributions import log_integral, power_of, softplus
from bayesmtfs.gibbs.state import GibbsPrior, GibbsState
from bayesmtfs.types import FloatArray

SLICE_WIDTH = 1.0  # a width for scales of any kind
SLICE_STEPS = 200  # most steps outwards on either side: far more than the scales span
CELLS = 40
NONE = -np.inf


class ScalePrior(NamedTuple):
    """Beta-prime and log-normal terms of x, and its interval."""

    anchors: FloatArray  # (k,)
    exponent: float
    first_shape: float  # c
    second_shape: float  # a
    centre: float
    precision: float
    low: float
    high: float


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
    prior: ScalePrior


@njit(cache=True, nogil=True, error_model="numpy")
def beta_prime_power(prior: GibbsPrior, inverse_q: float) -> float:
    """Exponent of the beta-prime distribution."""
    if prior.scale_power > 0.0:
        return prior.scale_power
    return 1.0 / inverse_q if inverse_q > 0.0 else 2.0


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def row_scale_prior(prior: GibbsPrior, state: GibbsState, low: float) -> ScalePrior:
    """Prior of the scale of a row, above ``low``: beta-prime about ln tau, or log-uniform."""
    anchors = state.log_tau[: 0 if prior.log_uniform else 1]
    exponent = beta_prime_power(prior, state.inverse_q[0])
    return ScalePrior(anchors, exponent, prior.spike_shape, prior.tail_shape, 0.0, 0.0, low, prior.high)


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def given_sample(prior: ScalePrior, size: float, log_sum: float, norm_q: float) -> LogScaleDensity:
    """Density given ``size`` coefficients with ``ln sum |w|^q``."""
    none = prior.anchors[:0]
    return LogScaleDensity(size, log_sum, norm_q, 0.0, 0.0, 0.0, none, none, none, 1.0, prior)


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def with_multiplied(prior: ScalePrior, pull: float, curvature: float, origin: float) -> LogScaleDensity:
    """Density where coefficients are multiplied by the scale, ``w e^-x`` fixed."""
    none = prior.anchors[:0]
    return LogScaleDensity(0.0, NONE, 0.0, pull, curvature, origin, none, none, none, 1.0, prior)


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def with_carried(
    prior: ScalePrior,
    size: float,
    norm_q: float,
    precisions: FloatArray,
    pulls: FloatArray,
    positions: FloatArray,
    spread: float,
) -> LogScaleDensity:
    """Density where coefficients are carried along, or without positions integrated out."""
    return LogScaleDensity(size, NONE, norm_q, 0.0, 0.0, 0.0, precisions, pulls, positions, spread, prior)


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
    shapes = target.prior.first_shape + target.prior.second_shape
    for j in range(len(target.prior.anchors)):
        y = target.prior.exponent * (x - target.prior.anchors[j])
        value += target.prior.first_shape * y - shapes * softplus(y)
    return value - 0.5 * target.prior.precision * (x - target.prior.centre) ** 2


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
def slice_step(rng: Generator, current: float, target: LogScaleDensity, width: float) -> float:
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
        if left <= target.prior.low or log_density(left, target) < level:
            break
        left -= width
    for _ in range(SLICE_STEPS):
        if right >= target.prior.high or log_density(right, target) < level:
            break
        right += width
    left, right = max(left, target.prior.low), min(right, target.prior.high)
    for _ in range(SLICE_STEPS):
        proposal = left + (right - left) * rng.random()
        if log_density(proposal, target) >= level:
            return proposal
        if proposal < current:
            left = proposal
        else:
            right = proposal
    return current


@njit(cache=True, nogil=True, error_model="numpy")
def jump_by_cells(rng: Generator, current: float, target: LogScaleDensity, low: float, high: float) -> float:
    """Move to a new x that leaves the density invariant.

    Parameters
    ----------
    rng : generator
    current : x
    target : density
    low, high : range; must not depend on x
    """
    low, high = max(low, target.prior.low), min(high, target.prior.high)
    if not low < current < high:
        return current
    width = (high - low) / CELLS
    logs = np.empty(CELLS)
    for k in range(CELLS):
        logs[k] = log_density(low + (k + 0.5) * width, target)
    cell = _draw_cell(rng, logs)
    proposal = low + (cell + rng.random()) * width
    change = log_density(proposal, target) - log_density(current, target)
    change += logs[min(int((current - low) / width), CELLS - 1)] - logs[cell]
    return proposal if -rng.standard_exponential() < change else current


@njit(cache=True, nogil=True, error_model="numpy")
def _draw_cell(rng: Generator, logs: FloatArray) -> int:
    """Draw an index with probabilities of which logarithms are given."""
    top, total = -np.inf, 0.0
    for k in range(len(logs)):
        top = max(top, logs[k])
    for k in range(len(logs)):
        total += math.exp(logs[k] - top)
    level = total * rng.random()
    for k in range(len(logs)):
        level -= math.exp(logs[k] - top)
        if level < 0.0:
            return k
    return len(logs) - 1
