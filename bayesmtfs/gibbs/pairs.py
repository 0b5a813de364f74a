r"""Gibbs steps for two features that say nearly the same, such as the two columns of a coded yes or no.

With ``x_j = s x_i`` within every task, s = 1 or -1, only ``w_i + s w_j`` is known; single coefficients move slowly along
what is not known, and a scale moves slower still, since all tasks must go with it. Two steps that are exact for any two
features, and move freely where they are alike:

- in each task ``w_i + a`` and ``w_j - s a``, a from a normal law truncated to where both stay within the bounds of the
  uniform mixture (`gibbs_coefficients`);
- both features exchange their scales and all their coefficients, ``w_i' = s w_j`` and ``w_j' = s w_i``: the prior does
  not notice, so that the likelihood alone decides (a Metropolis step).
"""

import math

import numpy as np
from numba import njit

from bayesmtfs.gibbs.coefficients import bound_of, truncated_normal
from bayesmtfs.gibbs.state import INVERSE_Q, Rows, State, Sums
from bayesmtfs.types import FloatArray, IntArray

ALIKE = 0.9  # correlation within tasks, from which on two features are treated as a pair


def alike(sums: Sums, rows: Rows) -> IntArray:
    """(K, 3) Features i, j and the sign s of their correlation; none where features are grouped or absent."""
    gram = sums.grams.sum(axis=0)
    scale = np.sqrt(np.maximum(np.diag(gram), 1e-300))
    correlation = np.triu(gram / np.outer(scale, scale), 1)
    known = len(rows.sizes) == len(gram) and bool(rows.present.all())
    first, second = np.nonzero(np.abs(correlation) > ALIKE) if known else (np.zeros(0, int), np.zeros(0, int))
    signs = np.sign(correlation[first, second])
    order = np.argsort(-np.abs(correlation[first, second]), kind="stable")[: len(gram)]
    return np.column_stack([first, second, signs]).astype(np.int64)[order]


@njit(cache=True, nogil=True, error_model="numpy")
def step_on_pairs(
    rng: np.random.Generator, Q: FloatArray, residuals: FloatArray, pairs: IntArray, state: State
) -> None:
    """Both steps for every pair; residuals ``h - Q w`` in place.

    Parameters
    ----------
    rng : generator
    Q, residuals : (m, p, p) and (m, p) likelihood
    pairs : (K, 3) features i and j, and s
    state : the state
    """
    space = np.empty(residuals.shape)
    for k in range(len(pairs)):
        i, j, sign = pairs[k, 0], pairs[k, 1], float(pairs[k, 2])
        for t in range(len(Q)):
            _shift_between(rng, Q[t], residuals[t], state, t, i, j, sign)
        if rng.random() < 0.5:  # an exchange in every sweep would make draws alternate and look better than they are
            _exchange(rng, Q, residuals, state, space, i, j, sign)


@njit(cache=True, nogil=True, error_model="numpy")
def _shift_between(
    rng: np.random.Generator,
    Q: FloatArray,
    residual: FloatArray,
    state: State,
    t: int,
    i: int,
    j: int,
    sign: float,
) -> None:
    """``w_i + a`` and ``w_j - s a`` of one task."""
    w, inverse_q = state.W[t], state.numbers[INVERSE_Q]
    first = bound_of(rng, w[i], state.log_scales[i], inverse_q)
    second = bound_of(rng, w[j], state.log_scales[j], inverse_q)
    low = max(-first - w[i], sign * w[j] - second)
    high = min(first - w[i], sign * w[j] + second)
    middle, reach = 0.5 * (low + high), 0.5 * (high - low)
    curvature = Q[i, i] + Q[j, j] - 2.0 * sign * Q[i, j]
    if curvature > 1e-12 * (Q[i, i] + Q[j, j]):
        centre = (residual[i] - sign * residual[j]) / curvature - middle
        shift = middle + truncated_normal(rng, centre, 1.0 / math.sqrt(curvature), reach)
    else:
        shift = low + (high - low) * rng.random()
    w[i] += shift
    w[j] -= sign * shift
    for k in range(len(w)):
        residual[k] -= shift * (Q[i, k] - sign * Q[j, k])


@njit(cache=True, nogil=True, error_model="numpy")
def _exchange(
    rng: np.random.Generator,
    Q: FloatArray,
    residuals: FloatArray,
    state: State,
    space: FloatArray,
    i: int,
    j: int,
    sign: float,
) -> None:
    """Exchange the two rows if the likelihood allows."""
    change = 0.0
    for t in range(len(Q)):
        to_first = sign * state.W[t, j] - state.W[t, i]
        to_second = sign * state.W[t, i] - state.W[t, j]
        for k in range(Q.shape[1]):
            space[t, k] = residuals[t, k] - Q[t, i, k] * to_first - Q[t, j, k] * to_second
        change += 0.5 * to_first * (space[t, i] + residuals[t, i]) + 0.5 * to_second * (space[t, j] + residuals[t, j])
    if -rng.standard_exponential() < change:
        state.log_scales[i], state.log_scales[j] = state.log_scales[j], state.log_scales[i]
        for t in range(len(Q)):
            state.W[t, i], state.W[t, j] = sign * state.W[t, j], sign * state.W[t, i]
            for k in range(Q.shape[1]):
                residuals[t, k] = space[t, k]
