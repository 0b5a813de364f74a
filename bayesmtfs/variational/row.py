r"""One row under the prior with exact zeros: evidence, expectations and draws, everything about it integrated out.

Given all other rows the log-likelihood of the row is ``sum_t g_t w_t - a_t w_t^2 / 2``. Under a slab with variances M of
the common part mu and V of the individual ones, an entry that is on multiplies the likelihood by

    LR_t(mu) = exp(c_t + B_t mu - A_t mu^2 / 2),
    A = a / (1 + a V),   B = g / (1 + a V),   c = (g^2 V / (1 + a V) - ln(1 + a V)) / 2,

and the sum over all patterns that are not empty, with entry rates r_t, is

    int N(mu; 0, M) [prod_t {1 - r_t + r_t LR_t(mu)} - prod_t (1 - r_t)] dmu / (1 - prod_t (1 - r_t)),

by the trapezoidal rule (as in `bayesmtfs.gibbs.spike_row`, where rows also take over patterns of each other). The integrand
is the density of mu, and given mu and a pattern that is not empty, with ``h_t = r_t LR_t / (1 - r_t + r_t LR_t)``,

    P(s_t = 1) = h_t / (1 - prod_u (1 - h_u)),   w_t | s_t = 1 ~ N((V g_t + mu) / (1 + a_t V), V / (1 + a_t V)).

In a group of k features g and a are vectors and matrices; its slabs have M = 0, and one node.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.random import Generator

from bayesmtfs.compiled import inner
from bayesmtfs.gibbs.coefficients import factorise, solve_lower, solve_upper
from bayesmtfs.types import BoolArray, FloatArray, IntArray

HOPELESS = 12.0  # logarithms
FAINT = 1e-4  # slabs and rates of a smaller posterior weight are left out of expectations
REACH = 5.0  # of the nodes beyond the means, in deviations
STEP = 1.1  # between nodes, in deviations
MOST_NODES = 400
NEVER = -1e300
TINY = 1e-300
LOG_2PI = math.log(2.0 * math.pi)


class PatternPrior(NamedTuple):
    """The prior of a row that is on: slabs (K,) and rates (O,) of entries."""

    mean_variance: FloatArray  # (K,) M
    own_variance: FloatArray  # (K,) V
    log_slab: FloatArray  # (2, K) weights, of single features and of groups
    log_rate: FloatArray  # (O,) weights of the rates
    entry_rates: FloatArray  # (O, m)
    empty: FloatArray  # (O,) probability of no entry


class RowMoments(NamedTuple):
    """Expectations of some rows, each given that the row is on."""

    on: FloatArray  # (R, m) of s
    mean: FloatArray  # (R, k, m) of w
    second: FloatArray  # (R, m, k, k) of w w'
    choices: FloatArray  # (R, K, O) probabilities of slabs and rates


class Space(NamedTuple):
    """Space for one row and one slab."""

    level: FloatArray  # (m,) c
    slope: FloatArray  # (m,) B
    bend: FloatArray  # (m,) A
    on: FloatArray  # (MOST_NODES, m) LR, and below 1, divided by the larger one
    off: FloatArray
    density: FloatArray  # (MOST_NODES,)
    chance: FloatArray  # (m,) of one node
    first: FloatArray  # (m,) expectation of s
    shift: FloatArray  # (m,) of s mu
    square: FloatArray  # (m,) of s mu^2
    weights: FloatArray  # (MOST_NODES,)
    factor: FloatArray  # (k, k)
    inverse: FloatArray  # (k, k)
    vector: FloatArray  # (k,)


def moments_for(n_rows: int, m: int, k: int, n_slabs: int, n_rates: int) -> RowMoments:
    """Allocate."""
    choices = np.zeros((n_rows, n_slabs, n_rates))
    return RowMoments(np.zeros((n_rows, m)), np.zeros((n_rows, k, m)), np.zeros((n_rows, m, k, k)), choices)


def space_for(m: int, k: int) -> Space:
    """Allocate."""
    levels, nodes, sums = (
        (np.empty(m) for _ in range(3)),
        (np.empty((MOST_NODES, m)) for _ in range(2)),
        np.empty((4, m)),
    )
    ends = (np.empty(MOST_NODES), np.empty((k, k)), np.empty((k, k)), np.empty(k))
    arrays = [*levels, *nodes, np.empty(MOST_NODES), *sums, *ends]
    return Space(*arrays)


# ---------------------------------------------------------------------- one slab


@inner(error_model="numpy")
def fill_terms(pull: FloatArray, curvature: FloatArray, size: int, V: float, space: Space) -> None:
    """c, B and A of every task."""
    for t in range(len(space.level)):
        if size > 1:
            factorise_group(pull, curvature, size, t, V, space)
            total = 0.0
            for i in range(size):
                total += space.vector[i] * space.vector[i] - 2.0 * math.log(space.factor[i, i])
            space.level[t], space.slope[t], space.bend[t] = 0.5 * total, 0.0, 0.0
        else:
            a, g = curvature[t, 0, 0], pull[0, t]
            share = 1.0 / (1.0 + a * V)
            space.level[t] = 0.5 * (g * g * V * share + math.log(share))
            space.slope[t], space.bend[t] = g * share, a * share


@inner(error_model="numpy")
def factorise_group(pull: FloatArray, curvature: FloatArray, size: int, t: int, V: float, space: Space) -> None:
    """``L L' = I + V a`` and ``V^(1/2) L^-1 g`` of a group in one task."""
    for i in range(size):
        space.vector[i] = math.sqrt(V) * pull[i, t]
        for j in range(size):
            space.factor[i, j] = V * curvature[t, i, j] + (1.0 if i == j else 0.0)
    factorise(space.factor, size)
    solve_lower(space.factor, space.vector, size)


@inner(error_model="numpy")
def mean_nodes(M: float, space: Space) -> tuple[float, float, int]:
    """First node of mu, step and number of nodes; one at 0 where mu is 0."""
    if M == 0.0:
        return 0.0, 1.0, 1
    low, high, largest, total = np.inf, -np.inf, 0.0, 0.0
    for t in range(len(space.level)):
        A, B = space.bend[t], space.slope[t]
        centre = B / A if A > 0.0 else 0.0
        margin = REACH / math.sqrt(1.0 / M + A)
        low = min(low, min(B / (1.0 / M + A), centre) - margin)
        high = max(high, max(B / (1.0 / M + A), centre) + margin)
        largest, total = max(largest, abs(centre)), total + A
    bound = (REACH + 1.0) * math.sqrt(M) + largest * M * total / (1.0 + M * total)
    low, high = max(low, -bound), min(high, bound)
    count = min(int((high - low) / STEP * math.sqrt(1.0 / M + total)) + 2, MOST_NODES)
    return low, (high - low) / (count - 1), count


@inner(error_model="numpy")
def fill_nodes(M: float, space: Space) -> tuple[float, float, int, float]:
    """Likelihood ratios and prior density at the nodes; first node, step, number and the logarithm taken out."""
    low, step, count = mean_nodes(M, space)
    top = NEVER
    for node in range(count):
        mu = low + node * step
        base = math.log(step) - 0.5 * (LOG_2PI + math.log(M) + mu * mu / M) if M > 0.0 else 0.0
        for t in range(len(space.level)):  # LR and 1, both divided by the larger one
            height = space.level[t] + mu * (space.slope[t] - 0.5 * space.bend[t] * mu)
            small = math.exp(-abs(height))
            space.on[node, t], space.off[node, t] = (1.0, small) if height > 0.0 else (small, 1.0)
            base += max(height, 0.0)
        space.density[node] = base
        top = max(top, base)
    for node in range(count):
        space.density[node] = math.exp(space.density[node] - top)
    return low, step, count, top


@inner(error_model="numpy")
def sum_of_nodes(rates: FloatArray, count: int, space: Space) -> float:
    """Sum over the nodes of one rate; their weights stay in ``space.weights``."""
    total = 0.0
    for node in range(count):
        some, none = 1.0, 1.0
        for t in range(len(rates)):
            off = (1.0 - rates[t]) * space.off[node, t]
            some *= off + rates[t] * space.on[node, t]
            none *= off
        space.weights[node] = space.density[node] * max(some - none, 0.0)
        total += space.weights[node]
    return total


# ---------------------------------------------------------------------- evidence


@inner(error_model="numpy")
def log_bound(pull: FloatArray, curvature: FloatArray, prior: PatternPrior) -> float:
    """Upper bound of the log-evidence of a single feature: no entry is worth more than ``exp(g^2 / 2 a)``."""
    value, best = NEVER, 0.0
    for o in range(len(prior.log_rate)):
        total = -math.log(1.0 - prior.empty[o])
        for t in range(pull.shape[1]):
            a = curvature[t, 0, 0]
            best = 0.5 * pull[0, t] * pull[0, t] / a if a > 0.0 else 0.0
            total += best + math.log(prior.entry_rates[o, t] + (1.0 - prior.entry_rates[o, t]) * math.exp(-best))
        value = max(value, total)
    return value


@inner(error_model="numpy")
def log_evidence(
    pull: FloatArray, curvature: FloatArray, size: int, prior: PatternPrior, space: Space, choices: FloatArray
) -> float:
    """Logarithm of the row's likelihood on over off; ``choices`` (K, O) get the weights of slabs and rates."""
    top = NEVER
    for k in range(len(prior.mean_variance)):
        M, V = prior.mean_variance[k], prior.own_variance[k]
        if size > 1 and M > 0.0:
            choices[k] = NEVER
            continue
        fill_terms(pull, curvature, size, V, space)
        count, shift = fill_nodes(M, space)[2:]
        for o in range(len(prior.log_rate)):
            total = sum_of_nodes(prior.entry_rates[o], count, space) / (1.0 - prior.empty[o])
            weight = prior.log_slab[1 if size > 1 else 0, k] + prior.log_rate[o]
            choices[k, o] = weight + shift + math.log(total) if total > TINY else NEVER
            top = max(top, choices[k, o])
    whole = 0.0
    for k in range(choices.shape[0]):
        for o in range(choices.shape[1]):
            choices[k, o] = math.exp(choices[k, o] - top)
            whole += choices[k, o]
    choices /= whole
    return top + math.log(whole)


@njit(cache=True, nogil=True, error_model="numpy")
def fill_evidences(
    pull: FloatArray,
    curvature: FloatArray,
    sizes: IntArray,
    least: float,
    prior: PatternPrior,
    space: Space,
    out: FloatArray,
    choices: FloatArray,
) -> None:
    """Log-evidences of all rows and their choices (R, K, O); pull is (R, k, m), curvature (R, m, k, k).

    That is -inf for rows that are by `HOPELESS` less likely than the row of the largest bound, or than ``least``.
    """
    best = 0
    for i in range(len(out)):
        out[i] = log_bound(pull[i], curvature[i], prior) if sizes[i] == 1 else np.inf
        best = i if out[i] > out[best] else best
    for k in range(len(out) + 1):  # the best one first, which says how likely the others have to be
        i = best if k == 0 else k - 1
        if k > 0 and i == best:
            continue
        if out[i] < least - HOPELESS:
            out[i] = -np.inf
            continue
        out[i] = log_evidence(pull[i], curvature[i], sizes[i], prior, space, choices[i])
        least = max(least, out[i])


# ---------------------------------------------------------------------- expectations


@njit(cache=True, nogil=True, error_model="numpy")
def fill_moments(
    pull: FloatArray,
    curvature: FloatArray,
    sizes: IntArray,
    choices: FloatArray,
    prior: PatternPrior,
    space: Space,
    out: RowMoments,
) -> None:
    """Expectations of some rows, with the choices that `fill_evidences` gave for them."""
    for i in range(len(sizes)):
        used = 0.0
        for k in range(choices.shape[1]):
            for o in range(choices.shape[2]):
                out.choices[i, k, o] = choices[i, k, o] if choices[i, k, o] > FAINT else 0.0
                used += out.choices[i, k, o]
        for k in range(choices.shape[1]):
            some = 0.0
            for o in range(choices.shape[2]):
                out.choices[i, k, o] /= used
                some += out.choices[i, k, o]
            if some > 0.0:
                V = prior.own_variance[k]
                fill_terms(pull[i], curvature[i], sizes[i], V, space)
                sum_moments(prior, space, prior.mean_variance[k], out.choices[i, k])
                add_slab(pull[i], curvature[i], sizes[i], V, space, out, i)


@inner(error_model="numpy")
def sum_moments(prior: PatternPrior, space: Space, M: float, chances: FloatArray) -> None:
    """Expectations of s, s mu and s mu^2 under one slab, times the chances of the rates."""
    m = len(space.level)
    low, step, count = fill_nodes(M, space)[:3]
    for t in range(m):
        space.first[t] = space.shift[t] = space.square[t] = 0.0
    for o in range(len(chances)):
        if chances[o] == 0.0:
            continue
        total = max(sum_of_nodes(prior.entry_rates[o], count, space), TINY)
        for node in range(count):
            weight = chances[o] * space.weights[node] / total
            if weight > 1e-9:
                add_node(prior.entry_rates[o], space, node, low + node * step, weight)


@inner(error_model="numpy")
def add_node(rates: FloatArray, space: Space, node: int, mu: float, weight: float) -> None:
    """Add what one node says."""
    weight /= 1.0 - fill_chances(rates, space, node)
    for t in range(len(rates)):
        chance = weight * space.chance[t]
        space.first[t] += chance
        space.shift[t] += chance * mu
        space.square[t] += chance * mu * mu


@inner(error_model="numpy")
def fill_chances(rates: FloatArray, space: Space, node: int) -> float:
    """Chances h of all tasks at a node; gives the probability that none is on, which is kept below 1."""
    none = 1.0
    for t in range(len(rates)):
        off, on = (1.0 - rates[t]) * space.off[node, t], rates[t] * space.on[node, t]
        space.chance[t] = on / (off + on + TINY)
        none *= 1.0 - space.chance[t]
    return min(none, 1.0 - 1e-15)


@inner(error_model="numpy")
def add_slab(
    pull: FloatArray, curvature: FloatArray, size: int, V: float, space: Space, out: RowMoments, number: int
) -> None:
    """Add one slab's expectations of s, w and w w'."""
    for t in range(len(space.level)):
        on = space.first[t]
        out.on[number, t] += on
        if size > 1:
            add_group(pull, curvature, size, V, on, t, space, out, number)
        else:
            share, g = 1.0 / (1.0 + curvature[t, 0, 0] * V), V * pull[0, t]
            out.mean[number, 0, t] += share * (on * g + space.shift[t])
            square = on * g * g + 2.0 * g * space.shift[t] + space.square[t]
            out.second[number, t, 0, 0] += share * share * square + on * V * share


@inner(error_model="numpy")
def add_group(
    pull: FloatArray,
    curvature: FloatArray,
    size: int,
    V: float,
    on: float,
    t: int,
    space: Space,
    out: RowMoments,
    number: int,
) -> None:
    """Add the mean ``(a + I/V)^-1 g`` and the second moments of a group in one task."""
    factorise_group(pull, curvature, size, t, V, space)
    for j in range(size):
        for i in range(size):
            space.vector[i] = 1.0 if i == j else 0.0
        solve_lower(space.factor, space.vector, size)
        solve_upper(space.factor, space.vector, size)
        for i in range(size):
            space.inverse[i, j] = V * space.vector[i]
    for i in range(size):
        mean = 0.0
        for j in range(size):
            mean += space.inverse[i, j] * pull[j, t]
        space.vector[i] = mean
    for i in range(size):
        out.mean[number, i, t] += on * space.vector[i]
        for j in range(size):
            out.second[number, t, i, j] += on * (space.inverse[i, j] + space.vector[i] * space.vector[j])


# ---------------------------------------------------------------------- draws


@njit(cache=True, nogil=True, error_model="numpy")
def draw_rows(
    rng: Generator,
    pull: FloatArray,
    curvature: FloatArray,
    size: int,
    choices: FloatArray,
    prior: PatternPrior,
    space: Space,
    on: BoolArray,
    W: FloatArray,
) -> None:
    """Independent draws of the pattern (S, m) and coefficients (S, k, m) of one row."""
    n_rates, numbers = len(prior.log_rate), np.sort(choose_all(rng, choices, len(on)))
    last_slab, last, low, step, count = -1, -1, 0.0, 1.0, 1
    for draw in range(len(on)):
        k, o = numbers[draw] // n_rates, numbers[draw] % n_rates
        if k != last_slab:
            fill_terms(pull, curvature, size, prior.own_variance[k], space)
            low, step, count = fill_nodes(prior.mean_variance[k], space)[:3]
        if k != last_slab or o != last:
            sum_of_nodes(prior.entry_rates[o], count, space)
        last_slab, last = k, o
        draw_pattern(rng, prior.entry_rates[o], space, choose(rng, space.weights, count), on[draw])
        draw_coefficients(rng, pull, curvature, size, prior.mean_variance[k], prior.own_variance[k], space, on, W, draw)


@inner(error_model="numpy")
def choose_all(rng: Generator, choices: FloatArray, count: int) -> IntArray:
    """Numbers of slabs and rates, drawn with their probabilities."""
    found, flat = np.empty(count, dtype=np.int64), choices.ravel()
    for draw in range(count):
        found[draw] = choose(rng, flat, len(flat))
    return found


@inner(error_model="numpy")
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


@inner(error_model="numpy")
def draw_pattern(rng: Generator, rates: FloatArray, space: Space, node: int, on: BoolArray) -> None:
    """Draw a pattern that is not empty at a node of mu, one task after another."""
    none = fill_chances(rates, space, node)  # of the tasks that are left
    some, m = False, len(rates)
    for t in range(m):
        likely = space.chance[t] if some else min(space.chance[t] / (1.0 - none), 1.0)
        on[t] = rng.random() < likely
        some = some or on[t]
        none = min(none / max(1.0 - space.chance[t], TINY), 1.0 - 1e-15)
    if not some:  # by rounding only
        on[np.argmax(space.chance)] = True


@inner(error_model="numpy")
def draw_coefficients(
    rng: Generator,
    pull: FloatArray,
    curvature: FloatArray,
    size: int,
    M: float,
    V: float,
    space: Space,
    on: BoolArray,
    W: FloatArray,
    draw: int,
) -> None:
    """Draw mu given the pattern, then the coefficients given mu."""
    mu = 0.0
    if M > 0.0:
        precision, total = 1.0 / M, 0.0
        for t in range(on.shape[1]):
            if on[draw, t]:
                precision += space.bend[t]
                total += space.slope[t]
        mu = total / precision + rng.standard_normal() / math.sqrt(precision)
    for t in range(on.shape[1]):
        if not on[draw, t]:
            continue
        if size > 1:
            factorise_group(pull, curvature, size, t, V, space)
            for i in range(size):
                space.vector[i] += rng.standard_normal()
            solve_upper(space.factor, space.vector, size)
            for i in range(size):
                W[draw, i, t] = math.sqrt(V) * space.vector[i]
        elif V > 0.0:
            precision = curvature[t, 0, 0] + 1.0 / V
            W[draw, 0, t] = (pull[0, t] + mu / V) / precision + rng.standard_normal() / math.sqrt(precision)
        else:
            W[draw, 0, t] = mu
