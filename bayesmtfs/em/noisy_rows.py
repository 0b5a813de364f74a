r"""Likelihood of q for rows of coefficients that were estimated with error.

    w_hat_ij ~ N(w_ij, s_ij^2),   w_ij ~ GN(0, rho_i, q),   p(rho_i) = 1/rho_i

(Zhang, Yeung and Xu 2010, eq. 7 and 8, with least-squares estimates in place of the data). w and rho are integrated
out by quadrature, row by row,

    ln p(w_hat^i | q) = ln integral d(ln rho) prod_j integral N(w_hat_ij; w, s_ij^2) GN(w; 0, rho, q) dw.

As s goes to 0 this becomes the row marginal of `exponent.row_profile`. The paper has no errors: it takes the mode of W
at its word. Correlations between the errors of different features are left out.
"""

import math

import numpy as np
from numba import njit

from bayesmtfs.types import BoolArray, FloatArray

NODES = 12  # of the Gauss-Legendre quadrature over w
SMOOTH_NODES = 8  # of the Gauss-Hermite quadrature, where the prior is smooth around the estimate
SMOOTH_REACH = 4.2  # standard errors that these nodes span
SCALES = 10  # points of ln rho
SEARCHES = 6  # golden sections for the best ln rho
REACH = 4.5  # standard errors on either side of an estimate
DROP = 9.0  # of the log-likelihood at which the integral over ln rho ends
SMALLEST_ERROR = 1e-3  # relative to the row's size
GOLDEN = 0.5 * (math.sqrt(5.0) - 1.0)


def log_likelihood(estimates: FloatArray, errors: FloatArray, counted: BoolArray, norm_q: float) -> float:
    """Log-likelihood of q, up to a constant.

    Parameters
    ----------
    estimates, errors : (R, k) w_hat and its standard error s
    counted : (R, k) entries that count; rows with fewer than two say nothing
    norm_q : q, also inf
    """
    rule = quadrature()
    total = 0.0
    for i in range(len(estimates)):
        w_hat = np.ascontiguousarray(estimates[i, counted[i]])
        size = math.sqrt(float(np.mean(w_hat**2))) if len(w_hat) > 1 else 0.0
        if size > 0.0:
            s = np.maximum(errors[i, counted[i]] / size, SMALLEST_ERROR)
            total += _row(np.abs(w_hat) / size, s, float(norm_q), rule)
    return total


def quadrature() -> FloatArray:
    """Nodes and weights: Gauss-Legendre in rows 0 and 1, Gauss-Hermite for a standard normal in rows 2 and 3."""
    rule = np.zeros((4, NODES))
    rule[0], rule[1] = np.polynomial.legendre.leggauss(NODES)
    nodes, weights = np.polynomial.hermite_e.hermegauss(SMOOTH_NODES)
    rule[2, :SMOOTH_NODES], rule[3, :SMOOTH_NODES] = nodes, weights / math.sqrt(2.0 * math.pi)
    return rule


@njit(cache=True)
def _row(w_hat: FloatArray, s: FloatArray, norm_q: float, rule: FloatArray) -> float:
    """Log-likelihood of one row of size 1: the integral over ln rho, around its peak."""
    # rho of unit variance at q: GN has variance rho^2 Gamma(3/q) / Gamma(1/q)
    unit = 0.5 * (math.log(3.0) + math.lgamma(1.0 + 1.0 / norm_q) - math.lgamma(1.0 + 3.0 / norm_q))
    low, high = unit - 1.0, unit + 0.4
    first, second = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_first = _given_scale(w_hat, s, first, norm_q, rule)
    at_second = _given_scale(w_hat, s, second, norm_q, rule)
    for _ in range(SEARCHES):
        if at_first > at_second:
            high, second, at_second = second, first, at_first
            first = high - GOLDEN * (high - low)
            at_first = _given_scale(w_hat, s, first, norm_q, rule)
        else:
            low, first, at_first = first, second, at_second
            second = low + GOLDEN * (high - low)
            at_second = _given_scale(w_hat, s, second, norm_q, rule)
    peak, top = (first, at_first) if at_first > at_second else (second, at_second)
    left = _end(w_hat, s, peak, top, -1.0, norm_q, rule)
    right = _end(w_hat, s, peak, top, 1.0, norm_q, rule)
    width = (right - left) / (SCALES - 1)
    total = 0.0
    for g in range(SCALES):
        total += math.exp(_given_scale(w_hat, s, left + g * width, norm_q, rule) - top)
    return top + math.log(total * width)


@njit(cache=True)
def _end(
    w_hat: FloatArray,
    s: FloatArray,
    peak: float,
    top: float,
    side: float,
    norm_q: float,
    rule: FloatArray,
) -> float:
    """Find ln rho on one side of the peak where the likelihood has become negligible."""
    distance = 0.5 / math.sqrt(len(w_hat))
    while distance < 8.0:
        if _given_scale(w_hat, s, peak + side * distance, norm_q, rule) < top - DROP:
            break
        distance *= 1.5
    return peak + side * distance


@njit(cache=True)
def _given_scale(w_hat: FloatArray, s: FloatArray, log_rho: float, norm_q: float, rule: FloatArray) -> float:
    """Log-likelihood of a row at one scale."""
    rho = math.exp(log_rho)
    value = -len(w_hat) * (math.log(2.0) + math.lgamma(1.0 + 1.0 / norm_q) + log_rho)
    for j in range(len(w_hat)):
        value += _log_convolution(w_hat[j], s[j], rho, norm_q, rule)
    return value


@njit(cache=True)
def _log_convolution(w_hat: float, s: float, rho: float, norm_q: float, rule: FloatArray) -> float:
    """``ln integral N(w_hat; w, s^2) exp(-|w / rho|^q) dw`` over where neither factor is negligible."""
    if w_hat > SMOOTH_REACH * s and (norm_q < 6.0 or w_hat + SMOOTH_REACH * s < 0.9 * rho):
        density = 0.0
        for node in range(SMOOTH_NODES):
            density += rule[3, node] * math.exp(-(((w_hat + s * rule[2, node]) / rho) ** norm_q))
        return math.log(max(density, 1e-300))
    reach = rho * 40.0 ** (1.0 / norm_q)
    low, high = max(-reach, w_hat - REACH * s), min(reach, w_hat + REACH * s)
    if low >= high:  # far outside: the tail of the normal law from the end of the support
        z = (w_hat - reach) / s
        return -0.5 * z * z - math.log(z) - 0.5 * math.log(2.0 * math.pi)
    if low < 0.0 < high:  # the density has a kink at 0
        density = _integral(w_hat, s, rho, norm_q, low, 0.0, rule)
        density += _integral(w_hat, s, rho, norm_q, 0.0, high, rule)
    else:
        density = _integral(w_hat, s, rho, norm_q, low, high, rule)
    return math.log(max(density, 1e-300))


@njit(cache=True)
def _integral(
    w_hat: float,
    s: float,
    rho: float,
    norm_q: float,
    low: float,
    high: float,
    rule: FloatArray,
) -> float:
    """Gauss-Legendre quadrature of the product of both densities."""
    half, middle = 0.5 * (high - low), 0.5 * (high + low)
    total = 0.0
    for node in range(NODES):
        w = middle + half * rule[0, node]
        z = (w_hat - w) / s
        total += rule[1, node] * math.exp(-0.5 * z * z - (abs(w) / rho) ** norm_q)
    return total * half / (s * math.sqrt(2.0 * math.pi))
