r"""Draws of the coefficients of one task under generalized normal priors and a normal likelihood.

    ln p(w) = h'w - w'Q w / 2 - sum_i |w_i / rho_i|^q + constant

- Any q: GN is a mixture of uniforms. With ``v_i = |w_i / rho_i|^q + Exp(1)``, w_i given v_i and the others is normal,
  truncated to ``|w_i| <= rho_i v_i^(1/q)``; coordinates in turn, then the best known together (`gibbs_ellipse`). At
  q = inf the bound is rho_i.
- q = 2: w is normal with precision ``Q + diag(2 / rho^2)``, drawn jointly.
"""

import math

import numpy as np
from numba import njit

from bayesmtfs.gibbs.cholesky import factorise, solve_lower, solve_upper
from bayesmtfs.types import BoolArray, FloatArray


@njit(cache=True, nogil=True, error_model="numpy")
def draw_in_turn(
    rng: np.random.Generator,
    Q: FloatArray,
    residual: FloatArray,
    w: FloatArray,
    log_scales: FloatArray,
    present: BoolArray,
    inverse_q: float,
) -> None:
    """Draw every coefficient given the others; w and ``residual = h - Q w`` in place.

    Parameters
    ----------
    rng : generator
    Q : (p, p) precision
    residual, w : (p,)
    log_scales : (p,) ln rho
    present : (p,) False where the coefficient is fixed at 0
    inverse_q : 1/q
    """
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


@njit(cache=True, nogil=True, error_model="numpy")
def bound_of(rng: np.random.Generator, w: float, log_scale: float, inverse_q: float) -> float:
    """Bound ``rho v^(1/q)`` of a coefficient in the uniform mixture, with v given the coefficient."""
    reach = math.exp(log_scale)
    if inverse_q > 0.0:
        v = math.exp((math.log(max(abs(w), 1e-300)) - log_scale) / inverse_q) + rng.standard_exponential()
        reach *= math.exp(inverse_q * math.log(v))
    return max(reach, abs(w))  # whatever the rounding


@njit(cache=True, nogil=True, error_model="numpy")
def draw_jointly(
    rng: np.random.Generator,
    Q: FloatArray,
    h: FloatArray,
    w: FloatArray,
    log_scales: FloatArray,
    present: BoolArray,
    factor: FloatArray,
) -> None:
    """Draw all coefficients at q = 2, in place: mean + L'^-1 N(0, I) with ``L L' = Q + diag(2 / rho^2)``.

    Parameters
    ----------
    rng : generator
    Q : (p, p) precision of the likelihood
    h, w : (p,)
    log_scales : (p,) ln rho
    present : (p,) False where the coefficient is fixed at 0
    factor : (p, p) space for L
    """
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


@njit(cache=True, nogil=True, error_model="numpy")
def truncated_normal(rng: np.random.Generator, centre: float, deviation: float, reach: float) -> float:
    """Draw from N(centre, deviation^2) within [-reach, reach] (Robert 1995)."""
    sign = -1.0 if centre > 0.0 else 1.0
    centre *= sign
    low, high = (-reach - centre) / deviation, (reach - centre) / deviation
    if low <= 0.0:
        return sign * (centre + deviation * _around_zero(rng, low, high))
    # the centre lies below the interval: the lower end is the likeliest point
    while True:
        if high - low < 2.0 / (low + 1.0):
            x = low + (high - low) * rng.random()
            logarithm = 0.5 * (low * low - x * x)
        else:
            rate = 0.5 * (low + math.sqrt(low * low + 4.0))
            x = low + rng.standard_exponential() / rate
            logarithm = -0.5 * (x - rate) ** 2
        if x <= high and math.log(rng.random()) < logarithm:
            # rounding must not carry the draw out of the interval
            return sign * min(max(centre + deviation * x, -reach), reach)


@njit(cache=True, nogil=True, error_model="numpy")
def _around_zero(rng: np.random.Generator, low: float, high: float) -> float:
    """Draw from N(0, 1) within an interval that holds 0."""
    while True:
        if high - low > 2.5:
            x = rng.standard_normal()
            if low <= x <= high:
                return x
        else:
            x = low + (high - low) * rng.random()
            if math.log(rng.random()) < -0.5 * x * x:
                return x
