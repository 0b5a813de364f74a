r"""Gibbs steps on the scales of generalized normal rows and on their global scale.

For row i with k entries, ``S_i = sum |w|^q`` and ``l_i = ln rho_i``; each scale is moved in several parametrisations in
turn (interweaving, Yu and Meng 2011, *Journal of Computational and Graphical Statistics* 20:531-570), all exact:

- l_i with w fixed: ``-k l - S_i e^(-q l) + ln p(l | tau)``;
- l_i with the row's coefficients carried along, each at its place in the normal approximation of its conditional
  distribution (below; at q = 2 this is the same as integrating them out); in a row of several features with
  ``w / rho_i`` fixed;
- instead of these, in rows of one feature at q = 1 and q = inf, l_i with the row's coefficients integrated out
  (`distributions`), and then they;
- ln tau with rho fixed; with ``rho / tau`` and w fixed; with ``rho / tau`` and ``w / rho`` fixed.

**Densities.** All these have log-densities of the logarithm x of a scale of one family,

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
from numpy.random import Generator

from bayesmtfs.compiled import inner
from bayesmtfs.gibbs.distributions import draw_given_scale, log_integral, power_of, softplus, unit_variance
from bayesmtfs.gibbs.state import GibbsPrior, GibbsState, RowMap, SumsSpace
from bayesmtfs.gibbs.tridiagonal import log_normal_integral
from bayesmtfs.types import FloatArray

SLICE_WIDTH = 1.0  # a width for scales of any kind
SLICE_STEPS = 200  # most steps outwards on either side: far more than the scales span
CELLS = 40
REACH_BELOW, REACH_ABOVE = 5.0, 12.0  # of the scales that are drawn anew, around ln tau
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
    ridge: float  # e^x is the deviation of a normal prior, this is added to its precision; below 0: rows of scale e^x
    couplings: FloatArray  # (k - 1,) beside the diagonal Q, at q = 2 with coefficients integrated out; empty: none
    prior: ScalePrior


@inner(error_model="numpy")
def beta_prime_power(prior: GibbsPrior, inverse_q: float) -> float:
    """Exponent of the beta-prime distribution."""
    if prior.scale_power > 0.0:
        return prior.scale_power
    return 1.0 / inverse_q if inverse_q > 0.0 else 2.0


@inner(error_model="numpy", inline="always")
def scale_prior(prior: GibbsPrior, log_tau: FloatArray, inverse_q: float, low: float) -> ScalePrior:
    """Prior of a scale above ``low``: beta-prime about ln tau, or log-uniform."""
    anchors = log_tau[: 0 if prior.log_uniform else 1]
    exponent = beta_prime_power(prior, inverse_q)
    return ScalePrior(anchors, exponent, prior.spike_shape, prior.tail_shape, 0.0, 0.0, low, prior.high)


@inner(error_model="numpy", inline="always")
def row_scale_prior(prior: GibbsPrior, state: GibbsState, low: float) -> ScalePrior:
    """Prior of the scale of a row."""
    return scale_prior(prior, state.log_tau, state.inverse_q[0], low)


@inner(error_model="numpy", inline="always")
def given_sample(prior: ScalePrior, size: float, log_sum: float, norm_q: float) -> LogScaleDensity:
    """Density given ``size`` coefficients with ``ln sum |w|^q``."""
    none = prior.anchors[:0]
    return LogScaleDensity(size, log_sum, norm_q, 0.0, 0.0, 0.0, none, none, none, 1.0, -1.0, none, prior)


@inner(error_model="numpy", inline="always")
def with_multiplied(prior: ScalePrior, pull: float, curvature: float, origin: float) -> LogScaleDensity:
    """Density where coefficients are multiplied by the scale, ``w e^-x`` fixed."""
    none = prior.anchors[:0]
    return LogScaleDensity(0.0, NONE, 0.0, pull, curvature, origin, none, none, none, 1.0, -1.0, none, prior)


@inner(error_model="numpy", inline="always")
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
    none = prior.anchors[:0]
    return LogScaleDensity(size, NONE, norm_q, 0.0, 0.0, 0.0, precisions, pulls, positions, spread, -1.0, none, prior)


@inner(error_model="numpy", inline="always")
def of_mean(prior: ScalePrior, precision: FloatArray, pull: FloatArray, ridge: float) -> LogScaleDensity:
    """Density of the deviation of a mean, integrated out (at its conditional mean the integral has that value)."""
    none = prior.anchors[:0]
    return LogScaleDensity(1.0, NONE, 2.0, 0.0, 0.0, 0.0, precision, pull, np.zeros(1), 0.5, ridge, none, prior)


@inner(error_model="numpy")
def log_normal_scale(x: float, ridge: float) -> float:
    """``ln rho`` at which GN(0, rho, 2) is the normal distribution of precision ``e^(-2x) + ridge``."""
    return 0.5 * math.log(2.0 / (math.exp(-2.0 * x) + ridge))


@inner(error_model="numpy")
def log_density(x: float, target: LogScaleDensity) -> float:
    """Log-density at x within the interval."""
    scale = x if target.ridge < 0.0 else log_normal_scale(x, target.ridge)
    value = -target.slope * scale
    if target.log_sum > -np.inf:
        value -= math.exp(min(target.log_sum - target.power * x, 700.0))
    if target.curvature > 0.0 or target.pull != 0.0:
        factor = math.exp(min(x - target.origin, 300.0))
        value += factor * (target.pull - 0.5 * target.curvature * factor)
    if len(target.couplings) > 0:
        value += log_normal_integral(2.0 * math.exp(-2.0 * x), target.precisions, target.couplings, target.pulls)
    elif len(target.positions) > 0:
        value += _carried_value(scale, target)
    elif len(target.precisions) > 0:
        for t in range(len(target.precisions)):
            value += log_integral(target.precisions[t], target.pulls[t], x, target.power)
    shapes = target.prior.first_shape + target.prior.second_shape
    for j in range(len(target.prior.anchors)):
        y = target.prior.exponent * (x - target.prior.anchors[j])
        value += target.prior.first_shape * y - shapes * softplus(y)
    return value - 0.5 * target.prior.precision * (x - target.prior.centre) ** 2


@inner(error_model="numpy")
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


@inner(error_model="numpy")
def slice_step(rng: Generator, current: float, target: LogScaleDensity, width: float) -> float:
    """Move to a new x that leaves the density invariant; the width of the first interval must not depend on x."""
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


@inner(error_model="numpy", inline="always")
def reach_of(prior: GibbsPrior, log_tau: float) -> tuple[float, float]:
    """Range in which scales are drawn anew."""
    return (prior.low, prior.high) if prior.log_uniform else (log_tau - REACH_BELOW, log_tau + REACH_ABOVE)


@inner(error_model="numpy")
def jump_by_cells(rng: Generator, current: float, target: LogScaleDensity, low: float, high: float) -> float:
    """Move to a new x that leaves the density invariant; the range must not depend on x."""
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


@inner(error_model="numpy")
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


WIDTH_PER_MOVE = 3.0  # width of a slice step in typical moves


@inner(error_model="numpy")
def log_largest(W: FloatArray, rows: RowMap, row: int) -> float:
    """``ln max |w|`` of a row; -inf where all of it is 0."""
    largest = 0.0
    for t in range(len(W)):
        for place in range(rows.starts[row], rows.starts[row + 1]):
            largest = max(largest, abs(W[t, rows.members[place]]))
    return math.log(largest) if largest > 0.0 else NONE


@inner(error_model="numpy")
def log_power_sum(W: FloatArray, rows: RowMap, row: int, norm_q: float) -> float:
    """``ln S`` of a row, scaled by its largest entry; -inf where all of it is 0."""
    top = log_largest(W, rows, row)
    if top == NONE:
        return NONE
    scale, total = math.exp(-top), 0.0
    for t in range(len(W)):
        for place in range(rows.starts[row], rows.starts[row + 1]):
            total += power_of(abs(W[t, rows.members[place]]) * scale, norm_q)
    return math.log(total) + norm_q * top


@inner(error_model="numpy")
def density_given_row(rows: RowMap, prior: GibbsPrior, state: GibbsState, row: int) -> LogScaleDensity:
    """Density of the scale of a row given its coefficients, which at q = inf are all below it."""
    low, log_sum, norm_q, inverse_q = prior.low, NONE, np.inf, state.inverse_q[0]
    if inverse_q > 0.0:
        norm_q = 1.0 / inverse_q
        log_sum = log_power_sum(state.W, rows, row, norm_q)
    else:
        low = max(low, log_largest(state.W, rows, row))
    return given_sample(row_scale_prior(prior, state, low), rows.sizes[row], log_sum, norm_q)


@inner(error_model="numpy")
def step_on_row(
    rng: Generator, space: SumsSpace, rows: RowMap, prior: GibbsPrior, state: GibbsState, row: int, tuning: int
) -> None:
    """Move one row scale given w, and then together with w; residuals ``h - Q w`` in place."""
    log_scales, inverse_q, width = state.log_scales, state.inverse_q[0], state.widths[row]
    before, norm_q = log_scales[row], 1.0 / inverse_q if inverse_q > 0.0 else np.inf
    log_scales[row] = slice_step(rng, before, density_given_row(rows, prior, state, row), width)
    own_prior = row_scale_prior(prior, state, prior.low)
    moved = step_with_row(rng, space, rows, own_prior, state, row)
    if inverse_q > 0.0 and rows.starts[row + 1] - rows.starts[row] == 1:
        feature = rows.members[rows.starts[row]]
        Q_row, pulls, positions = _standard_positions(space, rows, state, feature, moved)
        spread = unit_variance(inverse_q)
        carrying = with_carried(own_prior, rows.sizes[row], norm_q, Q_row, pulls, positions, spread)
        log_scales[row] = slice_step(rng, moved, carrying, width)
        _move_to_positions(space, rows, state, feature, carrying, log_scales[row])
    if tuning > 0:
        tune_row(state, row, before, log_information(space, rows, row), tuning)


@inner(error_model="numpy")
def step_with_row(
    rng: Generator, space: SumsSpace, rows: RowMap, own_prior: ScalePrior, state: GibbsState, row: int
) -> float:
    """Move one row scale with ``w / rho`` fixed; residuals in place."""
    before = state.log_scales[row]
    curvature, pull = _scaling_terms(space, rows, state, row)
    scaled = with_multiplied(own_prior, pull + curvature, curvature, before)
    state.log_scales[row] = slice_step(rng, before, scaled, state.widths[row])
    _scale_row(space, rows, state, row, math.exp(state.log_scales[row] - before))
    return state.log_scales[row]


@inner(error_model="numpy")
def step_on_integrated_row(
    rng: Generator, space: SumsSpace, rows: RowMap, prior: GibbsPrior, state: GibbsState, row: int, tuning: int
) -> None:
    """Move the scale of a feature with its coefficients integrated out, and draw them; residuals in place."""
    inverse_q, before = state.inverse_q[0], state.log_scales[row]
    norm_q = 1.0 / inverse_q if inverse_q > 0.0 else np.inf
    feature = rows.members[rows.starts[row]]
    precisions, pulls, positions = _standard_positions(space, rows, state, feature, before)
    own_prior = row_scale_prior(prior, state, prior.low)
    target = with_carried(own_prior, rows.sizes[row], norm_q, precisions, pulls, positions[:0], 1.0)
    moved = slice_step(rng, before, target, state.widths[row])
    state.log_scales[row] = moved
    count = 0
    for t in range(len(state.W)):
        if rows.present[t, feature]:
            new = draw_given_scale(rng, precisions[count], pulls[count], moved, norm_q)
            set_coefficient(space, state, t, feature, new)
            count += 1
    if tuning > 0:
        tune_row(state, row, before, log_information(space, rows, row), tuning)


@inner(error_model="numpy")
def tune_row(state: GibbsState, row: int, before: float, information: float, tuning: int) -> None:
    """Width of the slice steps from the moves made, and how much the data know of the row."""
    share = 1.0 / min(tuning + 1, 100)
    wished = WIDTH_PER_MOVE * abs(state.log_scales[row] - before)
    state.widths[row] = min(max(state.widths[row] + share * (wished - state.widths[row]), 0.01), 5.0)
    prior_variance = 2.0 * state.log_scales[row] + math.log(unit_variance(state.inverse_q[0]))
    state.information[row] += share * (information + prior_variance - state.information[row])


@inner(error_model="numpy")
def log_information(space: SumsSpace, rows: RowMap, row: int) -> float:
    """Logarithm of the mean precision with which the data determine a coefficient of a row."""
    total = 1e-300
    for t in range(len(space.Q)):
        for place in range(rows.starts[row], rows.starts[row + 1]):
            i = rows.members[place]
            if rows.present[t, i]:
                total += space.Q[t, i, i]
    return math.log(total / max(rows.sizes[row], 1.0))


@inner(error_model="numpy")
def _standard_positions(
    space: SumsSpace, rows: RowMap, state: GibbsState, i: int, log_scale: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Precisions, pulls and standardised positions of the coefficients of a feature over its tasks."""
    m = len(state.W)
    precisions, pulls, positions = np.empty(m), np.empty(m), np.empty(m)
    prior_precision = math.exp(-2.0 * log_scale) / unit_variance(state.inverse_q[0])
    count = 0
    for t in range(m):
        if rows.present[t, i]:
            precisions[count] = space.Q[t, i, i]
            pulls[count] = space.residuals[t, i] + space.Q[t, i, i] * state.W[t, i]
            s = 1.0 / math.sqrt(space.Q[t, i, i] + prior_precision)
            positions[count] = state.W[t, i] / s - s * pulls[count]
            count += 1
    return precisions[:count], pulls[:count], positions[:count]


@inner(error_model="numpy")
def _move_to_positions(
    space: SumsSpace, rows: RowMap, state: GibbsState, i: int, row: LogScaleDensity, log_scale: float
) -> None:
    """Coefficients of a feature at their standardised positions for a new scale."""
    prior_precision = math.exp(-2.0 * log_scale) / row.spread
    count = 0
    for t in range(len(state.W)):
        if rows.present[t, i]:
            s = 1.0 / math.sqrt(row.precisions[count] + prior_precision)
            set_coefficient(space, state, t, i, s * (s * row.pulls[count] + row.positions[count]))
            count += 1


@inner(error_model="numpy")
def set_coefficient(space: SumsSpace, state: GibbsState, t: int, i: int, new: float) -> None:
    """Put a coefficient to a new value."""
    Q, residual, change = space.Q[t, i], space.residuals[t], new - state.W[t, i]
    for j in range(len(residual)):
        residual[j] -= Q[j] * change
    state.W[t, i] = new


@inner(error_model="numpy")
def _scaling_terms(space: SumsSpace, rows: RowMap, state: GibbsState, row: int) -> tuple[float, float]:
    """``w'Q w`` and ``w' residual`` of a row of several features."""
    start, stop = rows.starts[row], rows.starts[row + 1]
    curvature, pull = 0.0, 0.0
    for t in range(len(state.W)):
        for place in range(start, stop):
            i = rows.members[place]
            pull += state.W[t, i] * space.residuals[t, i]
            for other in range(start, stop):
                j = rows.members[other]
                curvature += state.W[t, i] * space.Q[t, i, j] * state.W[t, j]
    return max(curvature, 0.0), pull


@inner(error_model="numpy")
def _scale_row(space: SumsSpace, rows: RowMap, state: GibbsState, row: int, factor: float) -> None:
    """Multiply a row of several features."""
    for t in range(len(state.W)):
        for place in range(rows.starts[row], rows.starts[row + 1]):
            i = rows.members[place]
            Q, residual, change = space.Q[t, i], space.residuals[t], (factor - 1.0) * state.W[t, i]
            for j in range(len(residual)):
                residual[j] -= Q[j] * change
            state.W[t, i] += change


@inner(error_model="numpy")
def step_on_global_scale(rng: Generator, rows: RowMap, prior: GibbsPrior, state: GibbsState) -> None:
    """Move tau alone, and with the row scales."""
    step_on_tau(rng, prior, state)
    log_scales, inverse_q = state.log_scales, state.inverse_q[0]
    low, norm_q, total, size = prior.low, 0.0, 0.0, 0.0
    for row in range(len(log_scales)):
        size += rows.sizes[row]
        if inverse_q > 0.0:
            norm_q = 1.0 / inverse_q
            total += math.exp(log_power_sum(state.W, rows, row, norm_q) - norm_q * log_scales[row])
        else:
            low = max(low, state.log_tau[0] + log_largest(state.W, rows, row) - log_scales[row])
    step_on_tau_with_rows(rng, prior, state, low, total, norm_q, size)


@inner(error_model="numpy")
def step_on_tau(rng: Generator, prior: GibbsPrior, state: GibbsState) -> None:
    """Move tau alone: the beta-prime distribution seen from tau, whose shapes change places."""
    exponent, centre = beta_prime_power(prior, state.inverse_q[0]), prior.log_global_scale
    shapes = prior.tail_shape, prior.spike_shape
    alone = ScalePrior(state.log_scales, exponent, *shapes, centre, 1.0, prior.low, prior.high)
    state.log_tau[0] = slice_step(rng, state.log_tau[0], with_multiplied(alone, 0.0, 0.0, 0.0), SLICE_WIDTH)


@inner(error_model="numpy")
def step_on_tau_with_rows(
    rng: Generator, prior: GibbsPrior, state: GibbsState, low: float, total: float, norm_q: float, size: float
) -> None:
    """Move tau with ``rho / tau`` and w fixed; total is ``sum |w / rho|^q`` over ``size`` coefficients."""
    tau, none = state.log_tau[0], state.log_scales[:0]
    log_sum = math.log(total) + norm_q * tau if total > 0.0 else NONE
    with_rows = ScalePrior(none, 1.0, 0.0, 0.0, prior.log_global_scale, 1.0, low, prior.high)
    state.log_tau[0] = slice_step(rng, tau, given_sample(with_rows, size, log_sum, norm_q), SLICE_WIDTH)
    _shift(state.log_scales, state.log_tau[0] - tau)


@inner(error_model="numpy")
def step_on_tau_with_all(
    rng: Generator, h: FloatArray, residuals: FloatArray, prior: GibbsPrior, state: GibbsState
) -> None:
    """Move tau with ``rho / tau`` and ``w / rho`` fixed; residuals in place."""
    W, log_tau, none = state.W, state.log_tau, state.log_scales[:0]
    tau, curvature, pull = log_tau[0], 0.0, 0.0
    for t in range(len(W)):
        for i in range(W.shape[1]):
            pull += W[t, i] * h[t, i]
            curvature += W[t, i] * (h[t, i] - residuals[t, i])
    with_all = ScalePrior(none, 1.0, 0.0, 0.0, prior.log_global_scale, 1.0, prior.low, prior.high)
    log_tau[0] = slice_step(rng, tau, with_multiplied(with_all, pull, max(curvature, 0.0), tau), SLICE_WIDTH)
    _shift(state.log_scales, log_tau[0] - tau)
    factor = math.exp(log_tau[0] - tau)
    for t in range(len(W)):
        for i in range(W.shape[1]):
            residuals[t, i] = h[t, i] - factor * (h[t, i] - residuals[t, i])
            W[t, i] *= factor


@inner(error_model="numpy")
def _shift(numbers: FloatArray, amount: float) -> None:
    for k in range(len(numbers)):
        numbers[k] += amount


@inner(error_model="numpy")
def draw_noise(rng: Generator, prior: GibbsPrior, noise: float, square: float, count: float) -> float:
    """``sigma`` by a Metropolis step whose proposals have the distribution under a flat prior of ``ln sigma``."""
    proposal = math.sqrt(0.5 * max(square, 1e-300) / rng.standard_gamma(0.5 * count))
    first, second = prior.noise_shapes
    y, y_new = 2.0 * (math.log(noise) - prior.noise_anchor), 2.0 * (math.log(proposal) - prior.noise_anchor)
    change = first * (y_new - y) - (first + second) * (softplus(y_new) - softplus(y))
    return proposal if -rng.standard_exponential() < change else noise
