r"""Random walk on 1/q, the shape of generalized normal rows, with everything carried along that hangs on it.

A row of which the data know the coefficients keeps them, and its scale keeps its distance, in standard deviations
``1 / sqrt(k q)``, from the one that fits them best, ``(ln S_i(q) + ln(q / k)) / q``, ``S_i = sum |w|^q`` over k entries.

A loose row, of which the data know less than the prior, would hold q where it is, since its coefficients have the shape
of the present q. It keeps their ranks instead: ``w / rho`` goes from its quantile of GN(0, 1, q) to the same quantile at
the new q, and the scale goes so that the prior variance stays. The quantiles are joined by straight lines, so that the
map and its Jacobian are exact for what they are. Which rows are loose is decided while the sampler is tuned.

Both maps are one-to-one and undo each other when q goes back; the step is a Metropolis step with their Jacobian.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from bayesmtfs.protocols import FloatArray
from bayesmtfs.solvers.gibbs.gibbs_scales import NONE, beta_prime_power, log_power_sum, unit_variance
from bayesmtfs.solvers.gibbs.gibbs_slice import power_of, softplus
from bayesmtfs.solvers.gibbs.gibbs_state import INVERSE_Q, LOG_TAU, STEP, Law, Rows, State

WISHED_ACCEPTANCE = 0.35
EVEN_NODES, TAIL_NODES = 48, 32  # probabilities: evenly spaced to 15/16, then by falling tails
TAIL_RATIO = 0.62
GRID = 512  # points at which the density is summed


class ExponentSpace(NamedTuple):
    """Arrays that the step writes to."""

    nodes: FloatArray  # (2, nodes) quantiles of |z| at the present and the proposed q
    log_scales: FloatArray  # (R,) proposed
    W: FloatArray  # (m, p) proposed
    residuals: FloatArray  # (m, p) proposed


def exponent_space(n_tasks: int, n_features: int, n_rows: int) -> ExponentSpace:
    """Allocate."""
    shape = (n_tasks, n_features)
    return ExponentSpace(np.zeros((2, EVEN_NODES + TAIL_NODES)), np.empty(n_rows), np.empty(shape), np.empty(shape))


@njit(cache=True, nogil=True, error_model="numpy")
def step_on_exponent(
    rng: np.random.Generator,
    Q: FloatArray,
    residuals: FloatArray,
    rows: Rows,
    law: Law,
    state: State,
    tuning: int,
    space: ExponentSpace,
) -> None:
    """Propose another 1/q, and with it scales and the coefficients of loose rows; residuals ``h - Q w`` in place.

    Parameters
    ----------
    rng : generator
    Q, residuals : (m, p, p) and (m, p) likelihood
    rows, law, state : the problem and the state
    tuning : number of the sweep, 1, 2, ..., while the step is tuned; 0: leave it as it is
    space : what the step writes to
    """
    inverse, step = state.numbers[INVERSE_Q], state.numbers[STEP]
    proposal = reflected(inverse + step * rng.standard_normal(), law.inverse_low, law.inverse_high)
    copy_into(state.W, space.W)
    fill_quantiles(inverse, space.nodes[0])
    fill_quantiles(proposal, space.nodes[1])
    change, inside = 0.0, True
    for row in range(len(rows.sizes)):
        if state.information[row] < 0.0:
            change += _carry_loose_row(rows, state, space, row, inverse, proposal)
        else:
            change += _carry_known_row(rows, state, space, row, inverse, proposal)
        inside = inside and law.low <= space.log_scales[row] <= law.high
    accepted = 0.0
    if inside:
        log_tau = state.numbers[LOG_TAU]
        change += _scales_value(space.log_scales, law, log_tau, proposal)
        change -= _scales_value(state.log_scales, law, log_tau, inverse)
        change += _likelihood_change(Q, residuals, state, space)
        if -rng.standard_exponential() < change:
            accepted = 1.0
            state.numbers[INVERSE_Q] = proposal
            for row in range(len(rows.sizes)):
                state.log_scales[row] = space.log_scales[row]
            copy_into(space.W, state.W)
            copy_into(space.residuals, residuals)
    if tuning > 0:
        state.numbers[STEP] = min(step * math.exp((accepted - WISHED_ACCEPTANCE) / math.sqrt(tuning)), 1.0)


@njit(cache=True, nogil=True, error_model="numpy")
def _carry_known_row(
    rows: Rows, state: State, space: ExponentSpace, row: int, inverse: float, proposal: float
) -> float:
    """Scale of a row that keeps its coefficients; the change of its log-density with the Jacobian."""
    old, new, size = 1.0 / inverse, 1.0 / proposal, rows.sizes[row]
    log_scale, carried, change = state.log_scales[row], state.log_scales[row], 0.0
    log_sum = log_power_sum(state.W, rows, row, old)
    if log_sum > NONE:
        log_sum_new = log_power_sum(state.W, rows, row, new)
        best = inverse * (log_sum + math.log(old / size))
        carried = proposal * (log_sum_new + math.log(new / size)) + (log_scale - best) * math.sqrt(old / new)
        change = 0.5 * math.log(old / new)
        change -= math.exp(min(log_sum_new - new * carried, 700.0)) - math.exp(log_sum - old * log_scale)
    space.log_scales[row] = carried
    return change - size * (math.lgamma(1.0 + proposal) - math.lgamma(1.0 + inverse) + carried - log_scale)


@njit(cache=True, nogil=True, error_model="numpy")
def _carry_loose_row(
    rows: Rows, state: State, space: ExponentSpace, row: int, inverse: float, proposal: float
) -> float:
    """Scale and coefficients of a row that keeps its ranks; the change of its log-density with the Jacobian."""
    old, new = 1.0 / inverse, 1.0 / proposal
    shift = 0.5 * (math.log(unit_variance(inverse)) - math.log(unit_variance(proposal)))
    space.log_scales[row] = state.log_scales[row] + shift
    rho, rho_new = math.exp(state.log_scales[row]), math.exp(space.log_scales[row])
    change = -rows.sizes[row] * (math.lgamma(1.0 + proposal) - math.lgamma(1.0 + inverse))
    product = 1.0
    for t in range(len(state.W)):
        for place in range(rows.starts[row], rows.starts[row + 1]):
            i = rows.members[place]
            if not rows.present[t, i]:
                continue
            z = abs(state.W[t, i]) / rho
            z_new, slope = same_rank(z, space.nodes[0], space.nodes[1])
            change += power_of(z, old) - power_of(z_new, new)
            product *= slope
            if product > 1e100 or product < 1e-100:
                change += math.log(product)
                product = 1.0
            space.W[t, i] = math.copysign(rho_new * z_new, state.W[t, i])
    return change + math.log(product)


@njit(cache=True, nogil=True, error_model="numpy")
def _scales_value(log_scales: FloatArray, law: Law, log_tau: float, inverse_q: float) -> float:
    """Log-density of all row scales, as a function of q."""
    if law.log_uniform:
        return 0.0
    exponent = beta_prime_power(law, inverse_q)
    value = len(log_scales) * math.log(exponent)
    for row in range(len(log_scales)):
        y = exponent * (log_scales[row] - log_tau)
        value += law.spike_shape * y - (law.spike_shape + law.tail_shape) * softplus(y)
    return value


@njit(cache=True, nogil=True, error_model="numpy")
def _likelihood_change(Q: FloatArray, residuals: FloatArray, state: State, space: ExponentSpace) -> float:
    """Change of the log-likelihood from the present to the proposed coefficients, and the proposed residuals."""
    m, p = state.W.shape
    value = 0.0
    for t in range(m):
        residual = space.residuals[t]
        for i in range(p):
            residual[i] = residuals[t, i]
        for i in range(p):
            change = space.W[t, i] - state.W[t, i]
            if change != 0.0:
                for j in range(p):
                    residual[j] -= Q[t, i, j] * change
        for i in range(p):
            value += 0.5 * (space.W[t, i] - state.W[t, i]) * (residual[i] + residuals[t, i])
    return value


@njit(cache=True, nogil=True, error_model="numpy")
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


@njit(cache=True, nogil=True, error_model="numpy")
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


@njit(cache=True, nogil=True, error_model="numpy")
def copy_into(source: FloatArray, target: FloatArray) -> None:
    """Copy a matrix by loops: assignments to slices take seconds to compile."""
    for i in range(source.shape[0]):
        for j in range(source.shape[1]):
            target[i, j] = source[i, j]


@njit(cache=True, nogil=True, error_model="numpy")
def reflected(number: float, low: float, high: float) -> float:
    """A number folded back into the bounds."""
    folded = (number - low) % (2.0 * (high - low))
    return low + min(folded, 2.0 * (high - low) - folded)
