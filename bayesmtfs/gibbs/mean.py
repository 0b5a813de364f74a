r"""Gibbs steps on the mean that the coefficients of a feature have in common over tasks.

    w_it = mu_i + v_it,   v_it ~ GN(0, rho_i, q),   mu_i ~ N(0, s^2)

in two parametrisations in turn (interweaving, Yu and Meng 2011, *Journal of Computational and Graphical Statistics*
20:531-570), both exact:

- all means given the deviations v: normal, with precision ``sum_t Q_t + I / s^2``, drawn jointly. It moves far where
  tasks hardly differ.
- each mean given the coefficients w, so that v = w - mu follows: a slice step (Neal 2003, *Annals of Statistics*
  31:705-767, without stepping out). It moves far where tasks differ more than the data leave open.

Where a task does not have a feature, its coefficient is 0 and tells nothing of the mean.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from bayesmtfs.gibbs.coefficients import draw_jointly
from bayesmtfs.gibbs.scales import unit_variance
from bayesmtfs.gibbs.slice import power_of
from bayesmtfs.gibbs.state import INVERSE_Q, Law, Rows, State
from bayesmtfs.types import BoolArray, FloatArray

SLICE_DEVIATIONS = 6.0  # width of the slice step, in standard deviations of a mean of as many coefficients
SLICE_STEPS = 200  # most steps inwards: far more than rounding leaves room for


class MeanSpace(NamedTuple):
    """Arrays that the steps write to."""

    Q: FloatArray  # (p, p) sum over tasks
    h: FloatArray  # (p,)
    before: FloatArray  # (p,) means before the step
    log_scales: FloatArray  # (p,) ln rho of the normal prior as GN(0, rho, 2)
    everywhere: BoolArray  # (p,) no mean is fixed at 0
    factor: FloatArray  # (p, p)


def mean_space(n_features: int) -> MeanSpace:
    """Allocate."""
    p = n_features
    present = np.ones(p, dtype=np.bool_)
    return MeanSpace(np.empty((p, p)), np.empty(p), np.empty(p), np.empty(p), present, np.empty((p, p)))


@njit(cache=True, nogil=True, error_model="numpy")
def take_out_mean(Q: FloatArray, vector: FloatArray, mean: FloatArray, present: BoolArray) -> None:
    """``vector - Q mean`` of one task, in place, over the features that it has."""
    p = len(mean)
    for i in range(p):
        if present[i]:
            for j in range(p):
                vector[j] -= Q[i, j] * mean[i]


@njit(cache=True, nogil=True, error_model="numpy")
def draw_mean(
    rng: np.random.Generator,
    Q: FloatArray,
    h: FloatArray,
    residuals: FloatArray,
    rows: Rows,
    law: Law,
    state: State,
    space: MeanSpace,
) -> None:
    """Draw all means given the deviations; ``h`` (less Q mu) and residuals ``h - Q v`` in place.

    Parameters
    ----------
    rng : generator
    Q, h, residuals : (m, p, p), (m, p) and (m, p) likelihood
    rows, law, state : the problem and the state
    space : what the step writes to
    """
    m, p = state.W.shape
    for i in range(p):
        space.h[i] = 0.0
        space.before[i] = state.mean[i]
        space.log_scales[i] = 0.5 * math.log(2.0 / law.mean_precision)
        for j in range(p):
            space.Q[i, j] = 0.0
    for t in range(m):
        present = rows.present[t]
        for i in range(p):
            if present[i]:
                space.h[i] += residuals[t, i]
                for j in range(p):
                    if present[j]:
                        space.Q[i, j] += Q[t, i, j]
    for i in range(p):
        for j in range(p):
            space.h[i] += space.Q[i, j] * space.before[j]
    draw_jointly(rng, space.Q, space.h, state.mean, space.log_scales, space.everywhere, space.factor)
    for i in range(p):
        space.before[i] = state.mean[i] - space.before[i]
    for t in range(m):
        take_out_mean(Q[t], h[t], space.before, rows.present[t])
        take_out_mean(Q[t], residuals[t], space.before, rows.present[t])


@njit(cache=True, nogil=True, error_model="numpy")
def recentre(rng: np.random.Generator, rows: Rows, law: Law, state: State) -> None:
    """Move each mean with the coefficients fixed: deviations go the other way."""
    for i in range(len(state.mean)):
        shift = _slice_shift(rng, rows, law, state, i)
        state.mean[i] += shift
        for t in range(len(state.W)):
            if rows.present[t, i]:
                state.W[t, i] -= shift


@njit(cache=True, nogil=True, error_model="numpy")
def _slice_shift(rng: np.random.Generator, rows: Rows, law: Law, state: State, i: int) -> float:
    """How far the mean of one feature moves."""
    log_scale, inverse_q = state.log_scales[rows.row_of_feature[i]], state.numbers[INVERSE_Q]
    count = 0
    for t in range(len(state.W)):
        count += rows.present[t, i]
    precision = law.mean_precision + count * math.exp(-2.0 * log_scale) / unit_variance(inverse_q)
    width = SLICE_DEVIATIONS / math.sqrt(precision)
    level = _log_density(rows, law, state, i, 0.0, log_scale, inverse_q) - rng.standard_exponential()
    if level == -np.inf:  # rounding has put a coefficient on the edge of a uniform law
        return 0.0
    left = -width * rng.random()
    right = left + width
    for _ in range(SLICE_STEPS):
        shift = left + (right - left) * rng.random()
        if _log_density(rows, law, state, i, shift, log_scale, inverse_q) >= level:
            return shift
        if shift < 0.0:
            left = shift
        else:
            right = shift
    return 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def _log_density(rows: Rows, law: Law, state: State, i: int, shift: float, log_scale: float, inverse_q: float) -> float:
    """``-sum_t |(v_it - shift) / rho_i|^q - (mu_i + shift)^2 / (2 s^2)``; at q = inf v stays within rho."""
    value, shrink = -0.5 * law.mean_precision * (state.mean[i] + shift) ** 2, math.exp(-log_scale)
    for t in range(len(state.W)):
        if rows.present[t, i]:
            z = abs(state.W[t, i] - shift) * shrink
            if inverse_q > 0.0:
                value -= power_of(z, 1.0 / inverse_q)
            elif z > 1.0:
                return -np.inf
    return value
