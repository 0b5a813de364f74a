r"""Expectations of one row under the prior with exact zeros, everything about it integrated out.

`bayesmtfs.gibbs.spike_row` gives the evidence of a row and the weight of every slab (M, V) and entry rate omega, as in its
header, where no other row lends its pattern. Given a slab and omega, the common part mu has the density

    q(mu) ~ N(mu; 0, M) [prod_t {1 - r_t + r_t LR_t(mu)} - prod_t (1 - r_t)],   LR_t = exp(c_t + B_t mu - A_t mu^2 / 2),

and given mu and that the pattern is not empty, with ``h_t = r_t LR_t / (1 - r_t + r_t LR_t)``,

    P(s_t = 1) = h_t / (1 - prod_u (1 - h_u)),   w_t | s_t = 1 ~ N((V g_t + mu) / (1 + a_t V), V / (1 + a_t V)).

Sums over equidistant nodes of mu give the expectations of s, w and w w'; of a group, where M = 0, there is one node.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.random import Generator

from bayesmtfs.gibbs.coefficients import factorise, solve_lower, solve_upper
from bayesmtfs.gibbs.spike_row import Nodes, Row, Slabs, Weights, draw_row, fill_terms, log_bound, log_evidence
from bayesmtfs.types import BoolArray, FloatArray, IntArray

HOPELESS = 12.0  # logarithms
FAINT = 1e-4  # slabs and rates of a smaller posterior weight are left out
REACH = 5.0  # of the nodes beyond the means, in deviations
STEP = 1.1  # between nodes, in deviations
MOST_NODES = 400


class Moments(NamedTuple):
    """Expectations of some rows, each given that the row is on."""

    on: FloatArray  # (R, m) of s
    mean: FloatArray  # (R, k, m) of w
    second: FloatArray  # (R, m, k, k) of w w'
    choices: FloatArray  # (R, K, O) probabilities of slabs and rates


class MomentSpace(NamedTuple):
    """Space for sums over the nodes of one slab."""

    on: FloatArray  # (MOST_NODES, m) LR, and below 1, divided by the larger one
    off: FloatArray
    density: FloatArray  # (MOST_NODES,)
    chance: FloatArray  # (m,) of one node
    first: FloatArray  # (O, m) sums of P(s = 1)
    shift: FloatArray  # (O, m) sums of P(s = 1) mu
    square: FloatArray  # (O, m) sums of P(s = 1) mu^2
    total: FloatArray  # (O,)
    inverse: FloatArray  # (k, k)


def moments_for(n_rows: int, m: int, k: int, n_slabs: int, n_rates: int) -> Moments:
    """Allocate."""
    choices = np.zeros((n_rows, n_slabs, n_rates))
    return Moments(np.zeros((n_rows, m)), np.zeros((n_rows, k, m)), np.zeros((n_rows, m, k, k)), choices)


def moment_space(m: int, k: int, n_rates: int) -> MomentSpace:
    """Allocate."""
    nodes, sums = (np.empty((MOST_NODES, m)) for _ in range(2)), (np.empty((n_rates, m)) for _ in range(3))
    return MomentSpace(*nodes, np.empty(MOST_NODES), np.empty(m), *sums, np.empty(n_rates), np.empty((k, k)))


@njit(cache=True, nogil=True, error_model="numpy")
def set_row(row: Row, pull: FloatArray, curvature: FloatArray, size: int) -> None:
    """Copy the likelihood of a row: (k, m) and (m, k, k)."""
    row.size[0] = size
    for t in range(len(row.level)):
        for a in range(size):
            row.pull[t, a] = pull[a, t]
            for b in range(size):
                row.curvature[t, a, b] = curvature[t, a, b]


@njit(cache=True, nogil=True, error_model="numpy")
def fill_evidences(
    row: Row,
    slabs: Slabs,
    weights: Weights,
    nodes: Nodes,
    pull: FloatArray,
    curvature: FloatArray,
    sizes: IntArray,
    least: float,
    out: FloatArray,
    choices: FloatArray,
) -> None:
    """Log-evidences of all rows, with the weights of their slabs and rates (R, K O); pull is (R, k, m).

    That is -inf for rows that are by `HOPELESS` less likely than the row of the largest bound, or than ``least``.
    """
    best = 0
    for i in range(len(out)):
        set_row(row, pull[i], curvature[i], sizes[i])
        out[i] = log_bound(row, weights)
        best = i if out[i] > out[best] else best
    for k in range(len(out) + 1):  # the best one first, which says how likely the others have to be
        i = best if k == 0 else k - 1
        if k > 0 and i == best:
            continue
        if out[i] < least - HOPELESS:
            out[i] = -np.inf
            continue
        set_row(row, pull[i], curvature[i], sizes[i])
        out[i] = log_evidence(row, slabs, weights, nodes)
        least = max(least, out[i])
        for choice in range(choices.shape[1]):
            choices[i, choice] = nodes.choices[choice]


@njit(cache=True, nogil=True, error_model="numpy")
def fill_moments(
    row: Row,
    slabs: Slabs,
    weights: Weights,
    space: MomentSpace,
    pull: FloatArray,
    curvature: FloatArray,
    sizes: IntArray,
    choices: FloatArray,
    out: Moments,
) -> None:
    """Expectations of some rows, with the weights that `fill_evidences` gave for them."""
    for i in range(len(sizes)):
        set_row(row, pull[i], curvature[i], sizes[i])
        _add_slabs(row, slabs, weights, choices[i], space, out, i)


@njit(cache=True, nogil=True, error_model="numpy")
def draw_rows(
    rng: Generator,
    row: Row,
    slabs: Slabs,
    weights: Weights,
    nodes: Nodes,
    pull: FloatArray,
    curvature: FloatArray,
    size: int,
    choices: FloatArray,
    on: BoolArray,
    W: FloatArray,
) -> None:
    """Independent draws of the pattern (S, m) and coefficients (S, k, m) of one row."""
    set_row(row, pull, curvature, size)
    for draw in range(len(on)):
        for choice in range(len(choices)):
            nodes.choices[choice] = choices[choice]
        draw_row(rng, row, slabs, weights, nodes)
        for t in range(on.shape[1]):
            on[draw, t] = row.on[t]
            for a in range(size):
                W[draw, a, t] = row.W[a, t]


@njit(cache=True, nogil=True, error_model="numpy")
def _add_slabs(
    row: Row, slabs: Slabs, weights: Weights, choices: FloatArray, space: MomentSpace, out: Moments, number: int
) -> None:
    K, n_rates, total = len(slabs.scale), len(weights.log_rate), 0.0
    for choice in range(K * n_rates):
        total += choices[choice]
    used = 0.0
    for choice in range(K * n_rates):
        share = choices[choice] / total
        out.choices[number, choice % K, choice // K] = share if share > FAINT else 0.0
        used += out.choices[number, choice % K, choice // K]
    for t in range(len(row.level)):
        out.on[number, t] = 0.0
        for a in range(row.size[0]):
            out.mean[number, a, t] = 0.0
            for b in range(row.size[0]):
                out.second[number, t, a, b] = 0.0
    last = -1.0
    for k in range(K):
        some = 0.0
        for o in range(n_rates):
            out.choices[number, k, o] /= used
            some += out.choices[number, k, o]
        if some > 0.0:
            V = slabs.own_variance[k]
            if V != last:
                fill_terms(row, V)
                last = V
            _sum_over_nodes(row, weights, space, slabs.mean_variance[k], out.choices[number, k])
            _add_slab(row, space, V, out, number, k)


@njit(cache=True, nogil=True, error_model="numpy")
def mean_nodes(row: Row, M: float) -> tuple[float, float, int]:
    """First node of mu, step and number of nodes; one at 0 where mu is 0."""
    if M == 0.0:
        return 0.0, 1.0, 1
    low, high, largest, total = np.inf, -np.inf, 0.0, 0.0
    for t in range(len(row.level)):
        A, B = row.bend[t], row.slope[t]
        centre = B / A if A > 0.0 else 0.0
        margin = REACH / math.sqrt(1.0 / M + A)
        low = min(low, min(B / (1.0 / M + A), centre) - margin)
        high = max(high, max(B / (1.0 / M + A), centre) + margin)
        largest, total = max(largest, abs(centre)), total + A
    bound = (REACH + 1.0) * math.sqrt(M) + largest * M * total / (1.0 + M * total)
    low, high = max(low, -bound), min(high, bound)
    count = min(int((high - low) / STEP * math.sqrt(1.0 / M + total)) + 2, MOST_NODES)
    return low, (high - low) / (count - 1), count


@njit(cache=True, nogil=True, error_model="numpy")
def _sum_over_nodes(row: Row, weights: Weights, space: MomentSpace, M: float, choices: FloatArray) -> None:
    """Sums over mu of P(s = 1), P(s = 1) mu and P(s = 1) mu^2, for every omega in use."""
    low, step, count = mean_nodes(row, M)
    top = -np.inf
    for node in range(count):
        mu = low + node * step
        base = -0.5 * mu * mu / M if M > 0.0 else 0.0
        for t in range(len(row.level)):  # LR and 1, both divided by the larger one
            height = row.level[t] + mu * (row.slope[t] - 0.5 * row.bend[t] * mu)
            small = math.exp(-abs(height))
            space.on[node, t], space.off[node, t] = (1.0, small) if height > 0.0 else (small, 1.0)
            base += max(height, 0.0)
        space.density[node] = base
        top = max(top, base)
    for node in range(count):
        space.density[node] = math.exp(space.density[node] - top)
    for o in range(len(choices)):
        if choices[o] > 0.0:
            _sum_over_rate(weights.entry_rates[o], space, o, low, step, count)


@njit(cache=True, nogil=True, error_model="numpy")
def _sum_over_rate(rates: FloatArray, space: MomentSpace, o: int, low: float, step: float, count: int) -> None:
    """Sums over mu for one omega."""
    m = len(rates)
    space.total[o] = 0.0
    for t in range(m):
        space.first[o, t] = space.shift[o, t] = space.square[o, t] = 0.0
    for node in range(count):
        none, product = 1.0, 1.0
        for t in range(m):
            off, on = (1.0 - rates[t]) * space.off[node, t], rates[t] * space.on[node, t]
            whole = off + on + 1e-300
            space.chance[t] = on / whole
            product *= whole
            none *= off / whole
        weight = space.density[node] * product * (1.0 - none)
        if weight <= 1e-9 * space.total[o]:
            continue
        space.total[o] += weight
        weight /= 1.0 - none
        mu = low + node * step
        for t in range(m):
            chance = weight * space.chance[t]
            space.first[o, t] += chance
            space.shift[o, t] += chance * mu
            space.square[o, t] += chance * mu * mu


@njit(cache=True, nogil=True, error_model="numpy")
def _add_slab(row: Row, space: MomentSpace, V: float, out: Moments, number: int, k: int) -> None:
    """Add one slab's expectations, rate by rate."""
    for t in range(len(row.level)):
        on = shift = square = 0.0
        for o in range(len(space.total)):
            if out.choices[number, k, o] > 0.0 and space.total[o] > 0.0:
                weight = out.choices[number, k, o] / space.total[o]
                on += weight * space.first[o, t]
                shift += weight * space.shift[o, t]
                square += weight * space.square[o, t]
        out.on[number, t] += on
        if row.size[0] > 1:
            _add_group(row, space, t, V, on, out, number)
        else:
            share, pull = 1.0 / (1.0 + row.curvature[t, 0, 0] * V), V * row.pull[t, 0]
            out.mean[number, 0, t] += share * (on * pull + shift)
            out.second[number, t, 0, 0] += share * share * (on * pull * pull + 2.0 * pull * shift + square)
            out.second[number, t, 0, 0] += on * V * share


@njit(cache=True, nogil=True, error_model="numpy")
def _add_group(row: Row, space: MomentSpace, t: int, V: float, on: float, out: Moments, number: int) -> None:
    """Add the mean ``(a + I/V)^-1 g`` and the second moments of a group in one task."""
    k, inverse = row.size[0], space.inverse
    for i in range(k):
        for j in range(k):
            row.factor[i, j] = V * row.curvature[t, i, j] + (1.0 if i == j else 0.0)
    factorise(row.factor, k)
    for j in range(k):
        for i in range(k):
            row.vector[i] = 1.0 if i == j else 0.0
        solve_lower(row.factor, row.vector, k)
        solve_upper(row.factor, row.vector, k)
        for i in range(k):
            inverse[i, j] = V * row.vector[i]
    for i in range(k):
        mean = 0.0
        for j in range(k):
            mean += inverse[i, j] * row.pull[t, j]
        row.vector[i] = mean
    for i in range(k):
        out.mean[number, i, t] += on * row.vector[i]
        for j in range(k):
            out.second[number, t, i, j] += on * (inverse[i, j] + row.vector[i] * row.vector[j])
