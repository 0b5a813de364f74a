r"""Joint draws of the coefficients that the data know better than the prior does, at any q.

    ln p(w) = h'w - w'Q w / 2 - sum_i |w_i / rho_i|^q + constant

Single coefficients (`gibbs_coefficients`) move slowly where features are correlated. With the prior replaced by normal
laws of the same variances ``k^2 rho_i^2``, ``k^2 = Gamma(3/q) / Gamma(1/q)``, w would be normal with mean c and precision
``Q + diag(1 / (k rho)^2)``; what is left of the prior is ``e(w) = sum_i [z_i^2 / (2 k^2) - |z_i|^q]``, ``z = w / rho``.
Elliptical slice sampling (Murray, Adams and MacKay 2010, *AISTATS* 9:541-548) draws v from that normal law and moves along

    w' = c + (w - c) cos a + (v - c) sin a

to an angle a at which e(w') is above a level drawn below e(w): exact whatever q, and always accepted. The less the prior
says, the flatter is e and the farther the step goes; so it is made by the coefficients with ``Q_ii (k rho_i)^2`` above
`LEAST_KNOWN`, given the others.
"""

import math

import numpy as np
from numba import njit

from bayesmtfs.gibbs.cholesky import factorise, solve_lower, solve_upper
from bayesmtfs.gibbs.slice import power_of
from bayesmtfs.types import BoolArray, FloatArray, IntArray

LEAST_KNOWN = 1.0  # precision of the data over that of the prior
ANGLES = 100  # most angles that are tried; the last ones are next to 0


@njit(cache=True, nogil=True, error_model="numpy")
def draw_on_ellipse(
    rng: np.random.Generator,
    Q: FloatArray,
    residual: FloatArray,
    w: FloatArray,
    log_scales: FloatArray,
    present: BoolArray,
    inverse_q: float,
    unit_variance: float,
    factor: FloatArray,
) -> None:
    """Draw the well-known coefficients of one task together; w and ``residual = h - Q w`` in place.

    Parameters
    ----------
    rng : generator
    Q : (p, p) precision of the likelihood
    residual, w : (p,)
    log_scales : (p,) ln rho
    present : (p,) False where the coefficient is fixed at 0
    inverse_q : 1/q
    unit_variance : k^2
    factor : (p, p) space
    """
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
            _move(Q, residual, w, members, new)
            return
        if angle < 0.0:
            low = angle
        else:
            high = angle
        angle = low + (high - low) * rng.random()


@njit(cache=True, nogil=True, error_model="numpy")
def _left_of_prior(w: FloatArray, shrink: FloatArray, norm_q: float, unit_variance: float) -> float:
    """``e(w)``; -inf outside of a uniform law."""
    value = 0.0
    for a in range(len(w)):
        z = abs(w[a]) * shrink[a]
        value += 0.5 * z * z / unit_variance
        if norm_q < np.inf:
            value -= power_of(z, norm_q)
        elif z > 1.0:
            return -np.inf
    return value


@njit(cache=True, nogil=True, error_model="numpy")
def _move(Q: FloatArray, residual: FloatArray, w: FloatArray, members: IntArray, new: FloatArray) -> None:
    """Put the coefficients to new values."""
    for a in range(len(new)):
        i = members[a]
        change = new[a] - w[i]
        for j in range(len(w)):
            residual[j] -= Q[i, j] * change
        w[i] = new[a]
