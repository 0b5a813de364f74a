r"""Draws of the coefficients of one task under generalized normal priors and a normal likelihood.

    ln p(w) = h'w - w'Q w / 2 - sum_i |w_i / rho_i|^q + constant

- Any q: GN is a mixture of uniforms. With ``v_i = |w_i / rho_i|^q + Exp(1)``, w_i given v_i and the others is normal,
  truncated to ``|w_i| <= rho_i v_i^(1/q)``; coordinates in turn, then the best known together (below). At
  q = inf the bound is rho_i.
- q = 2: w is normal with precision ``Q + diag(2 / rho^2)``, drawn jointly.

**On an ellipse**, at any q: single coefficients move slowly where features are correlated. With the prior replaced by
normal distributions of the same variances ``k^2 rho_i^2``, ``k^2 = Gamma(3/q) / Gamma(1/q)``, w would be normal with mean
c and precision ``Q + diag(1 / (k rho)^2)``; what is left of the prior is ``e(w) = sum_i [z_i^2 / (2 k^2) - |z_i|^q]``,
``z = w / rho``. Elliptical slice sampling (Murray, Adams and MacKay 2010, *AISTATS* 9:541-548) draws v from that normal
distribution and moves along

    w' = c + (w - c) cos a + (v - c) sin a

to an angle a at which e(w') is above a level drawn below e(w): exact whatever q, and always accepted. The less the prior
says, the flatter is e and the farther the step goes; so it is made by the coefficients with ``Q_ii (k rho_i)^2`` above
`LEAST_KNOWN`, given the others.

**Pairs** of features that say nearly the same, such as the two columns of a coded yes or no. With ``x_j = s x_i`` within
every task, s = 1 or -1, only ``w_i + s w_j`` is known; single coefficients move slowly along what is not known, and a
scale moves slower still, since all tasks must go with it. Two steps that are exact for any two features, and move freely
where they are alike:

- in each task ``w_i + a`` and ``w_j - s a``, a from a normal distribution truncated to where both stay within the bounds
  of the uniform mixture;
- both features exchange their scales and all their coefficients, ``w_i' = s w_j`` and ``w_j' = s w_i``: the prior does
  not notice, so that the likelihood alone decides (a Metropolis step).
"""

import math

import numpy as np
from numpy.random import Generator

from bayesmtfs.compiled import inner
from bayesmtfs.gibbs.distributions import power_of, truncated_normal
from bayesmtfs.gibbs.state import GibbsState, RowMap, SumsSpace, TaskSums
from bayesmtfs.types import BoolArray, FloatArray, IntArray

LEAST_KNOWN = 1.0  # precision of the data over that of the prior
ANGLES = 100  # most angles that are tried; the last ones are next to 0
ALIKE = 0.9  # correlation within tasks, from which on two features are treated as a pair


@inner(error_model="numpy")
def factorise(A: FloatArray, size: int) -> None:
    """Write L over the lower triangle of ``A = L L'``; only that triangle is read.

    ``np.linalg`` inside compiled functions costs many seconds of compilation, and at some tens of rows is no faster.
    """
    for i in range(size):
        for j in range(i + 1):
            value = A[i, j]
            for k in range(j):
                value -= A[i, k] * A[j, k]
            A[i, j] = math.sqrt(value) if i == j else value / A[j, j]


@inner(error_model="numpy")
def solve_lower(L: FloatArray, x: FloatArray, size: int) -> None:
    """Write ``L^-1 x`` over x."""
    for i in range(size):
        value = x[i]
        for k in range(i):
            value -= L[i, k] * x[k]
        x[i] = value / L[i, i]


@inner(error_model="numpy")
def solve_upper(L: FloatArray, x: FloatArray, size: int) -> None:
    """Write ``L'^-1 x`` over x."""
    for i in range(size - 1, -1, -1):
        x[i] /= L[i, i]
        for k in range(i):
            x[k] -= L[i, k] * x[i]


@inner(error_model="numpy")
def draw_in_turn(
    rng: Generator,
    Q: FloatArray,
    residual: FloatArray,
    w: FloatArray,
    log_scales: FloatArray,
    present: BoolArray,
    inverse_q: float,
) -> None:
    """Draw every coefficient given the others; w and ``residual = h - Q w`` in place."""
    p = len(w)
    for i in range(p):
        if not present[i]:
            continue
        old = w[i]
        reach = bound_of(rng, old, log_scales[i], inverse_q)
        if Q[i, i] > 0.0:
            new = truncated_normal(rng, old + residual[i] / Q[i, i], 1.0 / math.sqrt(Q[i, i]), reach)
        else:
            new = reach * (2.0 * rng.random() - 1.0)
        change = new - old
        for j in range(p):
            residual[j] -= Q[i, j] * change
        w[i] = new


@inner(error_model="numpy")
def bound_of(rng: Generator, w: float, log_scale: float, inverse_q: float) -> float:
    """Bound ``rho v^(1/q)`` of a coefficient in the uniform mixture, with v given the coefficient."""
    reach = math.exp(log_scale)
    if inverse_q > 0.0:
        v = math.exp((math.log(max(abs(w), 1e-300)) - log_scale) / inverse_q) + rng.standard_exponential()
        reach *= math.exp(inverse_q * math.log(v))
    return max(reach, abs(w))  # whatever the rounding


@inner(error_model="numpy")
def draw_jointly(
    rng: Generator,
    Q: FloatArray,
    h: FloatArray,
    w: FloatArray,
    log_scales: FloatArray,
    present: BoolArray,
    factor: FloatArray,
) -> None:
    """Draw all coefficients at q = 2, in place: mean + L'^-1 N(0, I) with ``L L' = Q + diag(2 / rho^2)``."""
    p = len(w)
    for i in range(p):
        for j in range(i + 1):
            factor[i, j] = Q[i, j] if present[i] and present[j] else 0.0
        factor[i, i] += 2.0 * math.exp(-2.0 * log_scales[i])
        w[i] = h[i] if present[i] else 0.0
    factorise(factor, p)
    solve_lower(factor, w, p)
    for i in range(p):
        w[i] += rng.standard_normal()
    solve_upper(factor, w, p)
    for i in range(p):
        if not present[i]:
            w[i] = 0.0


@inner(error_model="numpy")
def draw_on_ellipse(
    rng: Generator,
    Q: FloatArray,
    residual: FloatArray,
    w: FloatArray,
    log_scales: FloatArray,
    present: BoolArray,
    inverse_q: float,
    unit_variance: float,
    factor: FloatArray,
) -> None:
    """Draw the well-known coefficients of one task together; w and ``residual = h - Q w`` in place."""
    members, shrink = np.empty(len(w), dtype=np.int64), np.empty(len(w))
    size = 0
    for i in range(len(w)):
        if present[i] and Q[i, i] * unit_variance * math.exp(2.0 * log_scales[i]) > LEAST_KNOWN:
            members[size], shrink[size] = i, math.exp(-log_scales[i])
            size += 1
    if size < 2:  # one coefficient moves as well by itself
        return
    old, to_centre, spread, new = np.empty(size), np.empty(size), np.empty(size), np.empty(size)
    for a in range(size):
        i, prior_precision = members[a], shrink[a] * shrink[a] / unit_variance
        old[a], spread[a] = w[i], rng.standard_normal()
        to_centre[a] = residual[i] - prior_precision * w[i]
        for b in range(a + 1):
            factor[a, b] = Q[i, members[b]]
        factor[a, a] += prior_precision
    factorise(factor, size)
    solve_lower(factor, to_centre, size)
    solve_upper(factor, to_centre, size)  # c - w
    solve_upper(factor, spread, size)  # v - c
    norm_q = 1.0 / inverse_q if inverse_q > 0.0 else np.inf
    level = _left_of_prior(old, shrink, norm_q, unit_variance) - rng.standard_exponential()
    angle = 2.0 * math.pi * rng.random()
    low, high = angle - 2.0 * math.pi, angle
    for _ in range(ANGLES):
        along, across = 1.0 - math.cos(angle), math.sin(angle)
        for a in range(size):
            new[a] = old[a] + along * to_centre[a] + across * spread[a]
        if _left_of_prior(new, shrink, norm_q, unit_variance) >= level:
            _move_to(Q, residual, w, members, new)
            return
        if angle < 0.0:
            low = angle
        else:
            high = angle
        angle = low + (high - low) * rng.random()


@inner(error_model="numpy")
def _left_of_prior(w: FloatArray, shrink: FloatArray, norm_q: float, unit_variance: float) -> float:
    """``e(w)``; -inf outside of a uniform distribution."""
    value = 0.0
    for a in range(len(w)):
        z = abs(w[a]) * shrink[a]
        value += 0.5 * z * z / unit_variance
        if norm_q < np.inf:
            value -= power_of(z, norm_q)
        elif z > 1.0:
            return -np.inf
    return value


@inner(error_model="numpy")
def _move_to(Q: FloatArray, residual: FloatArray, w: FloatArray, members: IntArray, new: FloatArray) -> None:
    """Put the coefficients to new values."""
    for a in range(len(new)):
        i = members[a]
        change = new[a] - w[i]
        for j in range(len(w)):
            residual[j] -= Q[i, j] * change
        w[i] = new[a]


def alike(sums: TaskSums, rows: RowMap) -> IntArray:
    """(K, 3) Features i, j and the sign s of their correlation; none where features are grouped or absent."""
    gram = sums.grams.sum(axis=0)
    scale = np.sqrt(np.maximum(np.diag(gram), 1e-300))
    correlation = np.triu(gram / np.outer(scale, scale), 1)
    known = len(rows.sizes) == len(gram) and bool(rows.present.all())
    first, second = np.nonzero(np.abs(correlation) > ALIKE) if known else (np.zeros(0, int), np.zeros(0, int))
    signs = np.sign(correlation[first, second])
    order = np.argsort(-np.abs(correlation[first, second]), kind="stable")[: len(gram)]
    return np.column_stack([first, second, signs]).astype(np.int64)[order]


@inner(error_model="numpy")
def step_on_pairs(rng: Generator, sums: SumsSpace, pairs: IntArray, state: GibbsState) -> None:
    """Both steps for every pair; residuals ``h - Q w`` in place."""
    Q, residuals, space = sums.Q, sums.residuals, np.empty(sums.residuals.shape)
    for k in range(len(pairs)):
        i, j, sign = pairs[k, 0], pairs[k, 1], float(pairs[k, 2])
        for t in range(len(Q)):
            _shift_between(rng, Q[t], residuals[t], state, t, i, j, sign)
        if rng.random() < 0.5:  # an exchange in every sweep would make draws alternate and look better than they are
            _exchange(rng, Q, residuals, state, space, i, j, sign)


@inner(error_model="numpy")
def _shift_between(
    rng: Generator, Q: FloatArray, residual: FloatArray, state: GibbsState, t: int, i: int, j: int, sign: float
) -> None:
    """``w_i + a`` and ``w_j - s a`` of one task."""
    w, inverse_q = state.W[t], state.inverse_q[0]
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


@inner(error_model="numpy")
def _exchange(
    rng: Generator,
    Q: FloatArray,
    residuals: FloatArray,
    state: GibbsState,
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
