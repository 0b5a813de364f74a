r"""One row under the prior with exact zeros: its evidence over all patterns, and a draw of everything about it at once.

Given all other rows, the log-likelihood of the row's coefficients is ``sum_t g_t w_t - a_t w_t^2 / 2``. Under a slab with
variances M of the common part mu and V of the individual ones, an entry that is on multiplies the likelihood by

    LR_t(mu) = int N(w; mu, V) exp(g_t w - a_t w^2 / 2) dw = exp(c_t + B_t mu - A_t mu^2 / 2),
    A = a / (1 + a V),   B = g / (1 + a V),   c = (g^2 V / (1 + a V) - ln(1 + a V)) / 2.

A pattern S of tasks that other rows have already (a table) gives ``prod_S e^c`` times ``(1 + M q)^(-1/2)`` and
``exp(M b^2 / 2 (1 + M q))``, q and b the sums of A and B over S. The sum over all patterns that are not empty, at entry
rates ``r_t = omega kappa_t``, is an integral over one dimension,

    int N(mu; 0, M) [prod_t {1 - r_t + r_t LR_t(mu)} - prod_t (1 - r_t)] dmu / (1 - prod_t (1 - r_t)),

by the trapezoidal rule with steps of `STEP` deviations of mu where all tasks count: its error is below 1e-5. On its
equidistant nodes ``LR_t`` needs two multiplications each, since the second difference of its logarithm is constant.

Whether the evidence L exceeds a number is often known without it. With ``z^2 = g^2 / a``, no mu makes ``LR_t`` larger than
``x_t = exp(z^2 / 2) (1 + a V)^(-1/2)``, and mu integrated out takes off another ``(1 + M min_t A)^(-1/2)``, so that

    L(slab) <= (1 + M min_t A)^(-1/2) [prod_t {1 - r_t + r_t x_t} - prod_t (1 - r_t)] / (1 - prod_t (1 - r_t))

for a new pattern, and likewise ``prod_S x_t`` for a known one. Slabs are evaluated one after another, until those that are
known and the bounds of the rest are too small together.

In a group of k features g and a are a vector and a matrix; its slabs have M = 0, and ``ln LR_t = c_t`` with
``c = (V g'(I + V a)^-1 g - ln |I + V a|) / 2``.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from bayesmtfs.compiled import LEAN, inner
from bayesmtfs.gibbs.coefficients import factorise, solve_lower, solve_upper
from bayesmtfs.types import BoolArray, FloatArray, IntArray

STEP = 1.2  # between nodes, in deviations
REACH = 5.0  # of the nodes beyond the means, in deviations
MOST_NODES = 4000
NEVER = -1e300  # logarithm of a weight of nothing
FAINT = 1e-280  # products below that are 0, before they become slow
LANES = 8  # numbers of nodes are multiples of it, for the processor's sake
LARGEST = 600.0  # logarithm of the largest evidence that is bounded
ROUNDING = 1e-9
LOG_2PI = math.log(2.0 * math.pi)


class Slabs(NamedTuple):
    """The grid of slabs; those of one V stand next to each other and share nodes."""

    mean_variance: FloatArray  # (K,) M
    own_variance: FloatArray  # (K,) V
    scale: IntArray  # (K,) number of rho
    share: IntArray  # (K,) number of C
    starts: IntArray  # (Q + 1,) first slab of each V


class Weights(NamedTuple):
    """What the row's prior is at present."""

    scale: FloatArray  # (J,) of rho
    share: FloatArray  # (H,) of C
    rate: FloatArray  # (O,) of omega
    entry_rates: FloatArray  # (O, m) omega kappa_t
    empty: FloatArray  # (O,) probability that a pattern would be empty
    tables: BoolArray  # (T, m) patterns of rows that are on
    counts: IntArray  # (T,) rows at each table; 0: not in use
    n_tables: IntArray  # (1,) tables from here on are not in use
    concentration: FloatArray  # (1,) alpha


class Row(NamedTuple):
    """The likelihood of one row, and what is drawn for it."""

    curvature: FloatArray  # (m, k, k) a
    pull: FloatArray  # (m, k) g
    size: IntArray  # (1,) features of the row
    level: FloatArray  # (m,) c
    slope: FloatArray  # (m,) B
    bend: FloatArray  # (m,) A
    on: BoolArray  # (m,) pattern that was drawn
    W: FloatArray  # (k, m) coefficients that were drawn
    factor: FloatArray  # (k, k) space
    vector: FloatArray  # (k,) space


class Nodes(NamedTuple):
    """Space of the integral, and the weights of all choices that a row has."""

    ratios: FloatArray  # (MOST_NODES,) LR of one task
    density: FloatArray  # (MOST_NODES,) of mu
    products: FloatArray  # (O, MOST_NODES)
    choices: FloatArray  # (K (O + T),) weights of slab and omega, then of slab and table
    bounds: FloatArray  # (Q + 1,) of the sum of the choices from the slabs of each V on
    shifts: FloatArray  # (Q,) logarithm of what the choices of each V are divided by


def slab_grid(scales: tuple[float, ...], shares: tuple[float, ...]) -> Slabs:
    """All pairs of rho and C, those without individual parts first."""
    pairs = [(j, h) for h in np.argsort(-np.asarray(shares)) for j in np.argsort(scales)]
    scale, share = (np.array(part, dtype=np.int64) for part in zip(*pairs, strict=True))
    squares, C = np.square(np.asarray(scales))[scale], np.asarray(shares)[share]
    own = (1.0 - C) * squares
    starts = np.flatnonzero(np.append(True, (own[1:] != own[:-1]) | (own[1:] > 0.0)))
    return Slabs(C * squares, own, scale, share, np.append(starts, len(own)))


def row_space(n_tasks: int, largest: int) -> Row:
    """Allocate for rows of at most so many features."""
    m, k = n_tasks, largest
    numbers = (np.empty(m), np.empty(m), np.empty(m))
    sizes = np.ones(1, dtype=np.int64)
    return Row(
        np.zeros((m, k, k)), np.zeros((m, k)), sizes, *numbers, np.zeros(m, np.bool_), np.zeros((k, m)), *_space(k)
    )


def _space(k: int) -> tuple[FloatArray, FloatArray]:
    return np.empty((k, k)), np.empty(k)


def nodes_for(slabs: Slabs, n_rates: int, n_tables: int) -> Nodes:
    """Allocate."""
    n_parts = len(slabs.starts) - 1
    return Nodes(
        np.empty(MOST_NODES),
        np.empty(MOST_NODES),
        np.empty((n_rates, MOST_NODES)),
        np.empty(len(slabs.scale) * (n_rates + n_tables)),
        np.zeros(n_parts + 1),
        np.zeros(n_parts),
    )


# ---------------------------------------------------------------------- the likelihood ratio of an entry


@inner(**LEAN)
def fill_terms(row: Row, V: float) -> None:
    """c, B and A of every task under individual parts of variance V."""
    for t in range(len(row.level)):
        if row.size[0] > 1:
            row.level[t], row.slope[t], row.bend[t] = _group_level(row, t, V), 0.0, 0.0
        else:
            a, g = row.curvature[t, 0, 0], row.pull[t, 0]
            share = 1.0 / (1.0 + a * V)
            row.level[t] = 0.5 * (g * g * V * share + math.log(share))
            row.slope[t], row.bend[t] = g * share, a * share


@inner(**LEAN)
def _factorise_group(row: Row, t: int, V: float) -> float:
    """Fill in ``L L' = I + V a`` and ``V^(1/2) L^-1 g``, and give ``ln |L L'|``."""
    k, L, x = row.size[0], row.factor, row.vector
    for i in range(k):
        x[i] = math.sqrt(V) * row.pull[t, i]
        for j in range(k):
            L[i, j] = V * row.curvature[t, i, j] + (1.0 if i == j else 0.0)
    factorise(L, k)
    solve_lower(L, x, k)
    total = 0.0
    for i in range(k):
        total += 2.0 * math.log(L[i, i])
    return total


@inner(**LEAN)
def _group_level(row: Row, t: int, V: float) -> float:
    """Level c of a group."""
    total = -_factorise_group(row, t, V)
    for i in range(row.size[0]):
        total += row.vector[i] * row.vector[i]
    return 0.5 * total


# ---------------------------------------------------------------------- the integral over mu


@inner(**LEAN)
def _node_range(row: Row, least: float, most: float) -> tuple[float, float, int]:
    """First node, step and number of nodes for variances of mu from ``least`` to ``most``; one node at 0 without mu."""
    if most == 0.0:
        return 0.0, 1.0, 1
    low, high, largest, total = np.inf, -np.inf, 0.0, 0.0
    for t in range(len(row.level)):
        A, B = row.bend[t], row.slope[t]
        centre = B / A if A > 0.0 else 0.0
        shrunk = B / (1.0 / least + A)
        margin = REACH / math.sqrt(1.0 / most + A)
        low, high = min(low, min(shrunk, centre) - margin), max(high, max(shrunk, centre) + margin)
        largest, total = max(largest, abs(centre)), total + A
    bound = (REACH + 1.0) * math.sqrt(most) + largest * most * total / (1.0 + most * total)
    low, high = max(low, -bound), min(high, bound)
    step = STEP / math.sqrt(1.0 / least + total)
    count = min(LANES * (int((high - low) / step + 1.0) // LANES + 1), MOST_NODES)
    return low, (high - low) / (count - 1), count


@inner(**LEAN)
def _fill_bell(level: float, slope: float, bend: float, low: float, step: float, count: int, out: FloatArray) -> None:
    """``exp(level + slope mu - bend mu^2 / 2)`` at the nodes, from its largest node outwards."""
    top = 0
    if bend > 0.0:
        top = int(min(max((slope / bend - low) / step + 0.5, 0.0), count - 1.0))
    elif slope > 0.0:
        top = count - 1
    mu = low + top * step
    height, change = math.exp(level + slope * mu - 0.5 * bend * mu * mu), math.exp(-bend * step * step)
    out[top] = height
    for side in (1, -1):
        value, k = height, top + side
        ratio = math.exp(step * (side * (slope - bend * mu) - 0.5 * bend * step))
        while 0 <= k < count:
            value *= ratio
            ratio *= change
            if value < FAINT:
                value = 0.0
            out[k] = value
            k += side


@inner(**LEAN, fastmath={"contract"})
def _fill_products(row: Row, weights: Weights, nodes: Nodes, low: float, step: float, count: int) -> float:
    """``e^-shift prod_t {1 - r_t + r_t LR_t(mu)}`` at the nodes for every omega; give the shift."""
    products, ratios = nodes.products, nodes.ratios
    n_rates, shift = len(products), 0.0
    for o in range(n_rates):
        for k in range(count):
            products[o, k] = 1.0
    for t in range(len(row.level)):
        A, B, c = row.bend[t], row.slope[t], row.level[t]
        if A == 0.0 and B == 0.0 and c == 0.0:  # the data do not know the entry
            continue
        mu = min(max(B / A if A > 0.0 else 0.0, low), low + (count - 1) * step)
        top = max(c + B * mu - 0.5 * A * mu * mu, 0.0)
        shift += top
        _fill_bell(c - top, B, A, low, step, count, ratios)
        off = math.exp(-top)
        for o in range(n_rates):
            rate = weights.entry_rates[o, t]
            rest = (1.0 - rate) * off
            for k in range(count):
                products[o, k] *= rest + rate * ratios[k]
        if t % 8 == 7:
            shift += _rescale(products, count)
    return shift


@inner(**LEAN)
def _rescale(products: FloatArray, count: int) -> float:
    """Divide by the largest product, and give its logarithm."""
    largest = 0.0
    for o in range(len(products)):
        for k in range(count):
            largest = max(largest, products[o, k])
    if largest == 0.0 or largest > 1e-30:
        return 0.0
    for o in range(len(products)):
        for k in range(count):
            products[o, k] /= largest
    return math.log(largest)


@inner(**LEAN)
def _fill_density(M: float, low: float, step: float, count: int, out: FloatArray) -> None:
    """Weight of every node under ``mu ~ N(0, M)``."""
    if M == 0.0:
        out[0] = 1.0
    else:
        _fill_bell(math.log(step) - 0.5 * (LOG_2PI + math.log(M)), 0.0, 1.0 / M, low, step, count, out)


# ---------------------------------------------------------------------- all choices of a row


@inner(**LEAN)
def log_evidence(row: Row, slabs: Slabs, weights: Weights, nodes: Nodes, needed: float) -> float:
    """Logarithm of the row's likelihood on over off; its parts stay in ``nodes.choices``, divided by the largest.

    Where it is below ``needed``, `NEVER` comes instead as soon as that is known.
    """
    K, n_rates, n_tables = len(slabs.scale), len(weights.rate), weights.n_tables[0]
    Q, seats = len(slabs.starts) - 1, weights.concentration[0] + n_seated(weights)
    least = seats * math.exp(min(needed, LARGEST))
    if not may_exceed(row, slabs, weights, nodes, needed):
        return NEVER
    found, top = 0.0, 0.0
    for part in range(Q):
        first, stop = slabs.starts[part], slabs.starts[part + 1]
        nodes.shifts[part] = 0.0
        if row.size[0] > 1 and slabs.mean_variance[first] > 0.0:
            for k in range(first, stop):
                for choice in range(n_rates + n_tables):
                    nodes.choices[choice * K + k] = 0.0
            continue
        fill_terms(row, slabs.own_variance[first])
        shift = _fill_choices(row, slabs, weights, nodes, first, stop)
        nodes.shifts[part], top = shift, max(top, shift)
        if nodes.bounds[0] < np.inf:
            total = 0.0
            for k in range(first, stop):
                for choice in range(n_rates + n_tables):
                    total += nodes.choices[choice * K + k]
            found += total * math.exp(shift)
            if found + nodes.bounds[part + 1] < least:
                return NEVER
    total = 0.0
    for part in range(Q):
        factor = math.exp(nodes.shifts[part] - top)
        for k in range(slabs.starts[part], slabs.starts[part + 1]):
            for choice in range(n_rates + n_tables):
                nodes.choices[choice * K + k] *= factor
                total += nodes.choices[choice * K + k]
    return top + math.log(total / seats) if total > 0.0 else NEVER


@inner(**LEAN)
def fill_choices_of_slab(row: Row, slabs: Slabs, weights: Weights, nodes: Nodes, slab: int) -> bool:
    """Leave the parts of the evidence that belong to one slab in ``nodes.choices``; False if all are too small to tell."""
    count, total = len(slabs.scale) * (len(weights.rate) + weights.n_tables[0]), 0.0
    for choice in range(count):
        nodes.choices[choice] = 0.0
    fill_terms(row, slabs.own_variance[slab])
    _fill_choices(row, slabs, weights, nodes, slab, slab + 1)
    for choice in range(count):
        total += nodes.choices[choice]
    return total > 0.0


@inner(**LEAN)
def may_exceed(row: Row, slabs: Slabs, weights: Weights, nodes: Nodes, needed: float) -> bool:
    """Whether the bound of the evidence is above a number; bounds of the slabs from each V on stay in ``nodes``.

    It takes a small part of the time, and settles most rows of noise: they stay off whatever their evidence is.
    """
    total, m = 0.0, len(row.level)
    for t in range(m):  # z^2 / 2 stands where the levels do
        a, g = row.curvature[t, 0, 0], row.pull[t, 0]
        row.level[t] = 0.5 * g * g / a if a > 0.0 else 0.0
        total += row.level[t]
    nodes.bounds[:] = np.inf
    if row.size[0] > 1 or total > LARGEST:
        return True
    if total < needed:
        return False
    Q, seats, products = len(slabs.starts) - 1, weights.concentration[0], nodes.ratios
    for t in range(m):
        row.level[t] = math.exp(row.level[t])
    nodes.bounds[Q] = 0.0
    for part in range(Q - 1, -1, -1):
        V, bend = slabs.own_variance[slabs.starts[part]], np.inf
        for t in range(m):
            share = 1.0 / (1.0 + row.curvature[t, 0, 0] * V)
            row.slope[t] = row.level[t] * math.sqrt(share)
            bend = min(bend, row.curvature[t, 0, 0] * share)
        slab = 0.0
        for k in range(slabs.starts[part], slabs.starts[part + 1]):
            slab += _slab_weight(row, slabs, weights, k) / math.sqrt(1.0 + slabs.mean_variance[k] * bend)
        known = 0.0
        for o in range(len(weights.rate)):
            products[o] = 1.0
        for t in range(m):
            excess = row.slope[t] - 1.0
            for o in range(len(weights.rate)):
                products[o] *= 1.0 + weights.entry_rates[o, t] * excess
        for o in range(len(weights.rate)):
            known += weights.rate[o] * max(products[o] - weights.empty[o], 0.0) / (1.0 - weights.empty[o])
        known *= seats
        for table in range(weights.n_tables[0]):
            if weights.counts[table] > 0:
                product = 1.0 * weights.counts[table]
                for t in range(m):
                    product *= row.slope[t] if weights.tables[table, t] else 1.0
                known += product
        nodes.bounds[part] = nodes.bounds[part + 1] + known * slab
    return bool(math.log(nodes.bounds[0] / (seats + n_seated(weights))) > needed - ROUNDING)


@inner(**LEAN)
def n_seated(weights: Weights) -> int:
    """How many rows are on, but for the one that was just taken from its table."""
    total = 0
    for table in range(weights.n_tables[0]):
        total += weights.counts[table]
    return total


@inner(**LEAN)
def _slab_weight(row: Row, slabs: Slabs, weights: Weights, k: int) -> float:
    """Prior weight of a slab; in a group C is 0."""
    return weights.scale[slabs.scale[k]] * (weights.share[slabs.share[k]] if row.size[0] == 1 else 1.0)


@inner(**LEAN, fastmath={"reassoc", "contract", "nsz"})
def _fill_choices(row: Row, slabs: Slabs, weights: Weights, nodes: Nodes, first: int, stop: int) -> float:
    """Weights of all patterns, by omega, and of the known ones, for slabs of one V; the logarithm of their divisor."""
    K, n_rates, seats = len(slabs.scale), len(weights.rate), weights.concentration[0]
    density, products = nodes.density, nodes.products
    low, step, count = _node_range(row, slabs.mean_variance[first], slabs.mean_variance[stop - 1])
    shift = _fill_products(row, weights, nodes, low, step, count)
    nothing = math.exp(-shift)
    for k in range(first, stop):
        _fill_density(slabs.mean_variance[k], low, step, count, density)
        slab = _slab_weight(row, slabs, weights, k)
        for o in range(n_rates):
            empty, total = weights.empty[o] * nothing, 0.0
            for node in range(count):
                total += density[node] * (products[o, node] - empty)
            known = weights.rate[o] * seats * slab / (1.0 - weights.empty[o])
            nodes.choices[o * K + k] = max(total, 0.0) * known
    for table in range(weights.n_tables[0]):
        level, pull, precision = -shift, 0.0, 0.0
        for t in range(len(row.level)):
            if weights.tables[table, t]:
                level += row.level[t]
                pull += row.slope[t]
                precision += row.bend[t]
        for k in range(first, stop):  # the likelihood ratio of a known pattern
            M, known = slabs.mean_variance[k], 0.0
            if weights.counts[table] > 0:
                spread = 1.0 + M * precision
                known = math.exp(min(level + 0.5 * M * pull * pull / spread, LARGEST)) / math.sqrt(spread)
            nodes.choices[(n_rates + table) * K + k] = (
                known * weights.counts[table] * _slab_weight(row, slabs, weights, k)
            )
    return shift


@inner(**LEAN)
def exponentiate(logarithms: FloatArray, count: int) -> float:
    """Write weights, the largest of which is 1, over their logarithms, and give the logarithm of their sum."""
    top, total = NEVER, 0.0
    for k in range(count):
        top = max(top, logarithms[k])
    for k in range(count):
        logarithms[k] = math.exp(logarithms[k] - top)
        total += logarithms[k]
    return top + math.log(total)


@inner(**LEAN)
def choose(rng: Generator, weights: FloatArray, count: int) -> int:
    """Draw a number in proportion to its weight."""
    total = 0.0
    for k in range(count):
        total += weights[k]
    left, last = rng.random() * total, 0
    for k in range(count):
        if weights[k] > 0.0:
            last = k
            left -= weights[k]
            if left <= 0.0:
                break
    return last


# ---------------------------------------------------------------------- drawing a row


@inner(**LEAN)
def draw_row(rng: Generator, row: Row, slabs: Slabs, weights: Weights, nodes: Nodes) -> tuple[int, int, int]:
    """Draw slab, pattern and coefficients from the choices of `log_evidence`.

    Gives the numbers of the slab, of omega and of the table; the last is -1 for a new one.
    """
    K, n_rates = len(slabs.scale), len(weights.rate)
    choice = choose(rng, nodes.choices, K * (n_rates + weights.n_tables[0]))
    slab, number = choice % K, choice // K
    M, V = slabs.mean_variance[slab], slabs.own_variance[slab]
    fill_terms(row, V)
    if number < n_rates:
        _draw_pattern(rng, row, weights, nodes, M, number)
    else:
        for t in range(len(row.on)):
            row.on[t] = weights.tables[number - n_rates, t]
    _draw_coefficients(rng, row, M, V)
    return slab, number, number - n_rates if number >= n_rates else -1


@inner(**LEAN)
def _draw_pattern(rng: Generator, row: Row, weights: Weights, nodes: Nodes, M: float, o: int) -> None:
    """Draw a pattern that is not empty: mu first, then one task after the other."""
    low, step, count = _node_range(row, M, M)
    shift = _fill_products(row, weights, nodes, low, step, count)
    empty = weights.empty[o] * math.exp(-shift)
    _fill_density(M, low, step, count, nodes.density)
    for node in range(count):
        nodes.density[node] *= max(nodes.products[o, node] - empty, 0.0)
    mu = low + step * choose(rng, nodes.density, count)
    m, chance = len(row.on), nodes.ratios
    for t in range(m):
        chance[t] = _entry_chance(
            weights.entry_rates[o, t], row.level[t] + mu * (row.slope[t] - 0.5 * row.bend[t] * mu)
        )
    rest = 1.0  # probability that no task from here on is on, by products from the last one
    for t in range(m - 1, -1, -1):
        rest *= 1.0 - chance[t]
        chance[m + t] = rest
    some = False
    for t in range(m):
        likely = chance[t] if some else chance[t] / (1.0 - chance[m + t])
        row.on[t] = rng.random() < likely
        some = some or row.on[t]
    if not some:  # by rounding only
        best = 0
        for t in range(m):
            best = t if chance[t] > chance[best] else best
        row.on[best] = True


@inner(**LEAN)
def _entry_chance(rate: float, log_ratio: float) -> float:
    """Probability that an entry is on, given mu."""
    if rate >= 1.0:
        return 1.0
    return 1.0 / (1.0 + (1.0 - rate) / rate * math.exp(min(-log_ratio, 700.0)))


@inner(**LEAN)
def _draw_coefficients(rng: Generator, row: Row, M: float, V: float) -> None:
    """Draw mu given the pattern, then the coefficients given mu."""
    mu = 0.0
    if M > 0.0:
        precision, pull = 1.0 / M, 0.0
        for t in range(len(row.on)):
            if row.on[t]:
                precision += row.bend[t]
                pull += row.slope[t]
        mu = pull / precision + rng.standard_normal() / math.sqrt(precision)
    for t in range(len(row.on)):
        if not row.on[t]:
            for i in range(row.size[0]):
                row.W[i, t] = 0.0
        elif row.size[0] > 1:
            _draw_group(rng, row, t, V)
        elif V > 0.0:
            precision = row.curvature[t, 0, 0] + 1.0 / V
            row.W[0, t] = (row.pull[t, 0] + mu / V) / precision + rng.standard_normal() / math.sqrt(precision)
        else:
            row.W[0, t] = mu


@inner(**LEAN)
def _draw_group(rng: Generator, row: Row, t: int, V: float) -> None:
    """Coefficients of a group in one task: ``V^(1/2) L'^-1 (V^(1/2) L^-1 g + z)``."""
    _factorise_group(row, t, V)
    for i in range(row.size[0]):
        row.vector[i] += rng.standard_normal()
    solve_upper(row.factor, row.vector, row.size[0])
    for i in range(row.size[0]):
        row.W[i, t] = math.sqrt(V) * row.vector[i]
