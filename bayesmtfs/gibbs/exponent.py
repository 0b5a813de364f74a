r"""Random walk on 1/q, the shape of generalized normal rows, with everything carried along that depends on it.

Coefficients that kept their places would hold q where it is, since they have the shape of the present q. So each moves
with q, all the more the less the data know of it. With ``sigma`` the prior standard deviation of a coefficient, Q the
precision of its likelihood and ``lambda = 1 / (1 + d Q sigma^2)``,

    w' = (1 - lambda) w + lambda r(w)

where r takes w from its quantile of the prior at q to the same quantile at the new q. The quantiles are joined by
straight lines, so that the map and its Jacobian are exact for what they are. Where the data know nearly all, lambda
below `LEAST_SHARE`, w stays. The weight d of the data is drawn for each step, between `LEAST_DATA_WEIGHT` and 1, its
logarithm uniformly: no one weight is best everywhere, since a coefficient that moves against its own likelihood may be
made up for by others.

Half of the steps take the map from q to q', the other half the inverse of the map from q' to q: then each way back is
as likely as the way there, and the step is a Metropolis step with the Jacobian.

The scale of a loose row, of which the data know less than the prior, goes so that the prior variance stays, and so does
a learned global scale. In other rows it keeps its distance, in standard deviations ``1 / sqrt(k q)``, from the one that
fits the coefficients best, ``(ln S_i(q) + ln(q / k)) / q``, ``S_i = sum |w|^q`` over k entries; sigma is there the one that
was typical while the sampler was tuned, so that the coefficients move without the scale, which follows them.

`propose` and `accept` know nothing of the likelihood; `step_on_exponent` has the one in sums, and
`step_on_observed_exponent` the one by observation, where

- the likelihood of labels is taken as it is, with the Polya-Gamma precisions integrated out: given those, predictors
  would stay close to where they are, and q with them;
- the precision Q of the data on a coefficient w_it is ``sum_n omega_n x_ni^2``. The map must be the same on the way there
  and back, so that Q must not depend on the coefficients: ``omega = weight / sigma^2`` of normal targets does not, and for
  labels it is the curvature ``weight p (1 - p)`` averaged while the sampler was tuned.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from bayesmtfs.compiled import inner
from bayesmtfs.families.augmentation import MULTINOMIAL, NORMAL, curvature
from bayesmtfs.gibbs.distributions import softplus, unit_variance, weighted_square
from bayesmtfs.gibbs.scales import NONE, beta_prime_power, log_power_sum
from bayesmtfs.gibbs.state import (
    GibbsPrior,
    GibbsState,
    Observed,
    RowMap,
    SumsSpace,
    fill_softmax_scores,
    log_likelihood,
)
from bayesmtfs.types import FloatArray

WISHED_ACCEPTANCE = 0.35
EVEN_NODES, TAIL_NODES = 48, 32  # probabilities: evenly spaced to 15/16, then by falling tails
TAIL_RATIO = 0.62
LEAST_SHARE = 0.02  # of the prior in what is known of a coefficient, below which it stays
LEAST_DATA_WEIGHT = 0.05  # against the prior's, in what decides how far a coefficient is carried
GRID = 512  # points at which the density is summed


class ExponentSpace(NamedTuple):
    """Arrays that the step writes to."""

    nodes: FloatArray  # (2, nodes) quantiles of |z| at the present and the proposed q
    log_scales: FloatArray  # (R,) proposed
    deviations: FloatArray  # (R,) sigma
    precisions: FloatArray  # (m, p) Q of every coefficient
    W: FloatArray  # (m, p) proposed
    residuals: FloatArray  # (m, p) proposed


class Proposal(NamedTuple):
    """Another q; scales and coefficients are in the space."""

    inverse_q: float
    log_tau: float
    change: float  # of the log-density of all but the data, with the logarithm of the Jacobian


def exponent_space(n_tasks: int, n_features: int, n_rows: int) -> ExponentSpace:
    """Allocate."""
    shape, nodes = (n_tasks, n_features), np.zeros((2, EVEN_NODES + TAIL_NODES))
    return ExponentSpace(nodes, np.empty(n_rows), np.empty(n_rows), np.zeros(shape), np.empty(shape), np.empty(shape))


@inner(error_model="numpy")
def step_on_exponent(
    rng: Generator,
    sums: SumsSpace,
    rows: RowMap,
    prior: GibbsPrior,
    state: GibbsState,
    tuning: int,
    space: ExponentSpace,
) -> None:
    """Propose another 1/q, and with it scales and coefficients; residuals ``h - Q w`` in place."""
    m, p = state.W.shape
    for t in range(m):
        for i in range(p):
            space.precisions[t, i] = sums.Q[t, i, i]
    proposal = propose(rng, rows, prior, state, space)
    if accept(rng, proposal, _likelihood_change(sums, state, space), prior, state, tuning, space):
        copy_into(space.residuals, sums.residuals)


@inner(error_model="numpy")
def propose(rng: Generator, rows: RowMap, prior: GibbsPrior, state: GibbsState, space: ExponentSpace) -> Proposal:
    """Another 1/q, with scales and coefficients that suit; the state stays.

    The precisions of the space must be there, and must not depend on q, scales or coefficients.
    """
    inverse, step = state.inverse_q[0], state.exponent_step[0]
    proposal = reflected(inverse + step * rng.standard_normal(), prior.inverse_low, prior.inverse_high)
    fill_quantiles(inverse, space.nodes[0])
    fill_quantiles(proposal, space.nodes[1])
    _fill_deviations(rows, state, space)
    data_weight = LEAST_DATA_WEIGHT ** rng.random()
    change = _carry_coefficients(rng.random() < 0.5, data_weight, rows, state, space, inverse, proposal)
    log_tau = log_tau_new = state.log_tau[0]
    if prior.learn_global_scale:
        log_tau_new += log_scale_shift(inverse, proposal)
        change += 0.5 * ((log_tau - prior.log_global_scale) ** 2 - (log_tau_new - prior.log_global_scale) ** 2)
    for row in range(len(rows.sizes)):
        change += _carry_scale(rows, state, space, row, inverse, proposal)
        if not prior.low <= space.log_scales[row] <= prior.high:
            change = NONE
    change += _scales_value(space.log_scales, prior, log_tau_new, proposal)
    change -= _scales_value(state.log_scales, prior, log_tau, inverse)
    return Proposal(proposal, log_tau_new, change)


@inner(error_model="numpy")
def accept(
    rng: Generator,
    proposal: Proposal,
    likelihood_change: float,
    prior: GibbsPrior,
    state: GibbsState,
    tuning: int,
    space: ExponentSpace,
) -> bool:
    """Let the state go to the proposal, or not; says which."""
    accepted = -rng.standard_exponential() < proposal.change + likelihood_change
    if accepted:
        state.inverse_q[0], state.log_tau[0] = proposal.inverse_q, proposal.log_tau
        for row in range(len(space.log_scales)):
            state.log_scales[row] = space.log_scales[row]
        copy_into(space.W, state.W)
    if tuning > 0:
        excess = (1.0 if accepted else 0.0) - WISHED_ACCEPTANCE
        logarithm = math.log(state.exponent_step[0]) + 2.0 * excess / math.sqrt(tuning)
        state.exponent_step[0] = min(math.exp(logarithm), prior.inverse_high - prior.inverse_low)
    return accepted


@inner(error_model="numpy")
def log_scale_shift(inverse: float, proposal: float) -> float:
    """What is added to ``ln rho`` where the prior variance stays when 1/q moves."""
    return 0.5 * (math.log(unit_variance(inverse)) - math.log(unit_variance(proposal)))


@inner(error_model="numpy")
def _fill_deviations(rows: RowMap, state: GibbsState, space: ExponentSpace) -> None:
    """Sigma of every row: the present one of a loose row, else the typical one."""
    m, p = space.precisions.shape
    totals, unit = space.deviations, unit_variance(state.inverse_q[0])
    for row in range(len(totals)):
        totals[row] = 1e-300
    for t in range(m):
        for i in range(p):
            if rows.present[t, i]:
                totals[rows.row_of_feature[i]] += space.precisions[t, i]
    for row in range(len(totals)):
        if state.information[row] < 0.0:
            logarithm = 2.0 * state.log_scales[row] + math.log(unit)
        else:
            logarithm = state.information[row] - math.log(totals[row] / max(rows.sizes[row], 1.0))
        space.deviations[row] = math.exp(0.5 * logarithm)


@inner(error_model="numpy")
def _carry_coefficients(
    onwards: bool,
    data_weight: float,
    rows: RowMap,
    state: GibbsState,
    space: ExponentSpace,
    inverse: float,
    proposal: float,
) -> float:
    """Proposed coefficients; the logarithm of the Jacobian."""
    m, p = state.W.shape
    old, new = 1.0 / math.sqrt(unit_variance(inverse)), 1.0 / math.sqrt(unit_variance(proposal))  # rho / sigma
    value, product = 0.0, 1.0
    for t in range(m):
        for i in range(p):
            w, sigma = state.W[t, i], space.deviations[rows.row_of_feature[i]]
            space.W[t, i] = w
            share = 1.0 / (1.0 + data_weight * space.precisions[t, i] * sigma * sigma)
            if share < LEAST_SHARE or not rows.present[t, i]:
                continue
            if onwards:
                size, slope = blended(abs(w) / sigma, share, old, new, space.nodes[0], space.nodes[1])
            else:
                size, slope = unblended(abs(w) / sigma, share, new, old, space.nodes[1], space.nodes[0])
            product *= slope
            if product > 1e100 or product < 1e-100:  # one logarithm for many factors
                value += math.log(product)
                product = 1.0
            space.W[t, i] = math.copysign(sigma * size, w)
    return value + math.log(product)


@inner(error_model="numpy")
def _likelihood_change(sums: SumsSpace, state: GibbsState, space: ExponentSpace) -> float:
    """Change of the log-likelihood in sums; proposed residuals."""
    m, p = state.W.shape
    value = 0.0
    for t in range(m):
        Q, residual = sums.Q[t], space.residuals[t]
        for j in range(p):
            residual[j] = sums.residuals[t, j]
        for i in range(p):
            change = space.W[t, i] - state.W[t, i]
            if change != 0.0:
                value += change * (residual[i] - 0.5 * Q[i, i] * change)
                for j in range(p):
                    residual[j] -= Q[i, j] * change
    return value


@inner(error_model="numpy")
def blended(
    x: float, share: float, old: float, new: float, nodes: FloatArray, nodes_new: FloatArray
) -> tuple[float, float]:
    """``(1 - lambda) x + lambda r(x)`` of ``x = |w| / sigma``, and the slope of that map.

    Parameters
    ----------
    x : number of at least 0
    share : lambda
    old, new : scale of GN(0, rho, q) with variance 1 at the present and at the new q
    nodes, nodes_new : quantiles of GN(0, 1, q)
    """
    z, slope = same_rank(x / old, nodes, nodes_new)
    return (1.0 - share) * x + share * new * z, 1.0 - share + share * new / old * slope


@inner(error_model="numpy")
def unblended(
    y: float, share: float, old: float, new: float, nodes: FloatArray, nodes_new: FloatArray
) -> tuple[float, float]:
    """The x with ``blended(x) = y``, and the slope of that map."""
    keep, move = (1.0 - share) * old, share * new
    low, high = 0, len(nodes) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if keep * nodes[middle] + move * nodes_new[middle] <= y:
            low = middle
        else:
            high = middle
    start = keep * nodes[low] + move * nodes_new[low]
    slope = old * (nodes[high] - nodes[low]) / (keep * nodes[high] + move * nodes_new[high] - start)
    return old * nodes[low] + (y - start) * slope, slope


@inner(error_model="numpy")
def _carry_scale(
    rows: RowMap, state: GibbsState, space: ExponentSpace, row: int, inverse: float, proposal: float
) -> float:
    """Proposed scale of a row; the change of the log-density of its coefficients with the Jacobian of the scale."""
    old, new, size = 1.0 / inverse, 1.0 / proposal, rows.sizes[row]
    log_scale, change = state.log_scales[row], 0.0
    log_sum, log_sum_new = log_power_sum(state.W, rows, row, old), log_power_sum(space.W, rows, row, new)
    if state.information[row] < 0.0 or log_sum == NONE:
        carried = log_scale + log_scale_shift(inverse, proposal)
    else:
        best = inverse * (log_sum + math.log(old / size))
        carried = proposal * (log_sum_new + math.log(new / size)) + (log_scale - best) * math.sqrt(old / new)
        change = 0.5 * math.log(old / new)
    space.log_scales[row] = carried
    change -= math.exp(min(log_sum_new - new * carried, 700.0)) - math.exp(log_sum - old * log_scale)
    return change - size * (math.lgamma(1.0 + proposal) - math.lgamma(1.0 + inverse) + carried - log_scale)


@inner(error_model="numpy")
def _scales_value(log_scales: FloatArray, prior: GibbsPrior, log_tau: float, inverse_q: float) -> float:
    """Log-density of all row scales, as a function of q."""
    if prior.log_uniform:
        return 0.0
    exponent = beta_prime_power(prior, inverse_q)
    value = len(log_scales) * math.log(exponent)
    for row in range(len(log_scales)):
        y = exponent * (log_scales[row] - log_tau)
        value += prior.spike_shape * y - (prior.spike_shape + prior.tail_shape) * softplus(y)
    return value


@inner(error_model="numpy")
def fill_quantiles(inverse_q: float, nodes: FloatArray) -> None:
    """Quantiles of ``|z|``, z of GN(0, 1, q), at fixed probabilities that begin with 0; good to a few digits."""
    norm_q = 1.0 / inverse_q
    top = (20.0 + 5.0 * inverse_q) ** inverse_q
    width, total = top / GRID, 0.0
    mass = np.empty(GRID)
    for k in range(GRID):
        mass[k] = math.exp(-(((k + 0.5) * width) ** norm_q))
        total += mass[k]
    below, cell = 0.0, 0
    for k in range(len(nodes)):
        if k <= EVEN_NODES * 15 // 16:
            wished = total * k / EVEN_NODES
        else:
            wished = total * (1.0 - TAIL_RATIO ** (k - EVEN_NODES * 15 // 16) / 16.0)
        while cell < GRID - 1 and below + mass[cell] < wished:
            below += mass[cell]
            cell += 1
        nodes[k] = width * (cell + (wished - below) / mass[cell])


@inner(error_model="numpy")
def same_rank(z: float, nodes: FloatArray, nodes_new: FloatArray) -> tuple[float, float]:
    """Where ``z >= 0`` goes when the nodes go to new ones, and the slope of that map; the last piece goes on."""
    low, high = 0, len(nodes) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if nodes[middle] <= z:
            low = middle
        else:
            high = middle
    slope = (nodes_new[high] - nodes_new[low]) / (nodes[high] - nodes[low])
    return nodes_new[low] + (z - nodes[low]) * slope, slope


@inner(error_model="numpy")
def copy_into(source: FloatArray, target: FloatArray) -> None:
    """Copy a matrix by loops: assignments to slices take seconds to compile."""
    for i in range(source.shape[0]):
        for j in range(source.shape[1]):
            target[i, j] = source[i, j]


@inner(error_model="numpy")
def reflected(number: float, low: float, high: float) -> float:
    """A number folded back into the bounds."""
    folded = (number - low) % (2.0 * (high - low))
    return low + min(folded, 2.0 * (high - low) - folded)


class ObservedExponentSpace(NamedTuple):
    """Arrays that the step writes to; the precisions of labels in ``carried`` are what it has learned."""

    carried: ExponentSpace
    curvatures: FloatArray  # (N,) omega
    predictors: FloatArray  # (N,) proposed


def observed_exponent_space(data: Observed, rows: RowMap) -> ObservedExponentSpace:
    """Allocate."""
    count, (m, p) = len(data.targets), rows.present.shape
    carried = exponent_space(m, p, len(rows.sizes))
    return ObservedExponentSpace(carried, np.empty(count), np.empty(count))


@inner(error_model="numpy")
def step_on_observed_exponent(
    rng: Generator,
    data: Observed,
    rows: RowMap,
    prior: GibbsPrior,
    state: GibbsState,
    tuning: int,
    space: ObservedExponentSpace,
) -> None:
    """Propose another 1/q, and with it scales and coefficients; the predictors follow."""
    proposal = propose(rng, rows, prior, state, space.carried)
    _propose_predictors(data, state, space)
    change = log_likelihood(data, state, space.predictors)
    change -= log_likelihood(data, state, data.predictors)
    if accept(rng, proposal, change, prior, state, tuning, space.carried):
        for n in range(len(space.predictors)):
            data.predictors[n] = space.predictors[n]


@inner(error_model="numpy")
def fill_precisions(data: Observed, rows: RowMap, state: GibbsState, tuning: int, space: ObservedExponentSpace) -> None:
    """Precisions of the data on every coefficient: the present ones of normal targets, averages for labels."""
    share = 1.0
    if data.form != NORMAL:
        if tuning == 0:
            return
        share = 1.0 / min(tuning, 100)
    _fill_curvatures(data, state, space.curvatures)
    precisions = space.carried.precisions
    for i in range(len(data.design)):
        for t in range(len(precisions)):
            start, stop = data.offsets[t], data.offsets[t + 1]
            if rows.present[t, i]:
                known = weighted_square(data.design[i, start:stop], space.curvatures[start:stop])
                precisions[t, i] += share * (known - precisions[t, i])


@inner(error_model="numpy")
def _fill_curvatures(data: Observed, state: GibbsState, curvatures: FloatArray) -> None:
    """Minus the second derivative of the log-likelihood in each predictor."""
    if data.form == MULTINOMIAL:
        fill_softmax_scores(data, data.predictors, curvatures)
        for n in range(len(curvatures)):  # a score is the weight times y - p
            size = abs(curvatures[n])
            curvatures[n] = size * (1.0 - size / data.weights[n])
        return
    for t in range(len(state.W)):
        noise_precision = 1.0 / (state.noise[t] * state.noise[t])
        for n in range(data.offsets[t], data.offsets[t + 1]):
            eta, weight = data.predictors[n] + data.shifts[n], data.weights[n]
            curvatures[n] = curvature(data.form, weight, eta, noise_precision, data.parameters[t])


@inner(error_model="numpy")
def _propose_predictors(data: Observed, state: GibbsState, space: ObservedExponentSpace) -> None:
    """Predictors of the proposed coefficients."""
    for n in range(len(space.predictors)):
        space.predictors[n] = data.predictors[n]
    for i in range(len(data.design)):
        x = data.design[i]
        for t in range(len(state.W)):
            change = space.carried.W[t, i] - state.W[t, i]
            if change != 0.0:
                for n in range(data.offsets[t], data.offsets[t + 1]):
                    space.predictors[n] += change * x[n]
