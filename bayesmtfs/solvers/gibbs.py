r"""Gibbs draws of generalized normal rows, their scales, the noise and the exponent q, for a normal likelihood.

    y ~ N(X w_t + b_t, sigma_t^2),   w_it ~ GN(0, rho_i, q),   ln rho_i uniform on an interval,
    1/q uniform on an interval,   p(sigma_t) = 1 / sigma_t

(Zhang, Yeung and Xu 2010, eq. 6 and 7, with proper priors in place of eq. 8, which has no posterior). GN is a mixture
of uniforms: with ``v ~ Gamma(1 + 1/q)``, w given v is uniform on ``[-rho v^(1/q), rho v^(1/q)]``. One sweep:

1. ``v_it = (|w_it| / rho_i)^q + Exp(1)`` and ``w_it``, normal truncated to ``|w| <= rho_i v^(1/q)``, in turn;
2. interweaving: a slice step on ``l = ln rho_i`` with ``z = w / rho`` fixed, so that scale and coefficients move
   together: ``-(rho^2 A/2 - rho B)``, A and B sums over tasks of z^2 X'X_ii / sigma^2 and z X'(residual without i) /
   sigma^2;
3. ``sigma_t`` given w (an inverse gamma law);
4. a random-walk step on 1/q given w, scales integrated out (the row marginal of `exponent`), and then
5. ``rho_i^-q`` given w and q: Gamma(m/q, S_i), ``S_i = sum_t |w_it|^q``.

Only sums over the rows of the data are needed, so that a sweep costs O(m p^2). Random numbers come from one seeded
generator: the same seed gives the same draws.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit

from bayesmtfs.protocols import FloatArray

SLICE_WIDTH = 0.5
SLICE_STEPS = 40  # most doublings and shrinkings of a slice
SCALE_TRIES = 50  # draws of rho until one lies within the bounds
WISHED_ACCEPTANCE = 0.4  # of the step on 1/q


@dataclass(frozen=True)
class Settings:
    """What the sampler is told.

    Attributes
    ----------
    log_scale_bounds : least and largest ln rho
    inverse_bounds : least and largest 1/q
    norm_q : first q; stays so where ``learn_q`` is False
    learn_q, learn_noise : which of them are drawn
    tune, draws : sweeps that are thrown away and kept
    random_seed : seed
    """

    log_scale_bounds: tuple[float, float] = (-9.0, 5.0)
    inverse_bounds: tuple[float, float] = (0.02, 1.0)
    norm_q: float = 2.0
    learn_q: bool = True
    learn_noise: bool = True
    tune: int = 500
    draws: int = 1000
    random_seed: int = 0


class Sums(NamedTuple):
    """What the likelihood of each task needs, with the intercept integrated out (centred)."""

    grams: FloatArray  # (m, p, p) X'X
    correlations: FloatArray  # (m, p) X'y
    squares: FloatArray  # (m,) y'y
    counts: FloatArray  # (m,) degrees of freedom


class Draws(NamedTuple):
    """Posterior draws."""

    W: FloatArray  # (draws, p, m)
    row_scales: FloatArray  # (draws, p)
    noise: FloatArray  # (draws, m)
    norm_q: FloatArray  # (draws,)

    @property
    def mean(self) -> FloatArray:
        """(p, m) Posterior mean of W."""
        mean: FloatArray = self.W.mean(axis=0)
        return mean


class Start(NamedTuple):
    """Where the chain begins."""

    W: FloatArray  # (p, m), no row zero
    noise: FloatArray  # (m,)


def sample(sums: Sums, start: Start, settings: Settings) -> Draws:
    """Draw from the posterior.

    Parameters
    ----------
    sums : sufficient statistics of each task
    start : first coefficients and noise
    settings : priors and lengths

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> w = np.array([[1.0, -2.0, 0.5]])
    >>> grams, squares = np.full((3, 1, 1), 1e4), np.full(3, 1e5)
    >>> sums = Sums(grams, 1e4 * w.T, squares, np.full(3, 50.0))
    >>> draws = sample(sums, Start(w, np.ones(3)), Settings(learn_noise=False, learn_q=False, draws=200))
    >>> bool(np.abs(draws.mean - w).max() < 0.01)
    True
    """
    rng = np.random.Generator(np.random.PCG64(settings.random_seed))
    p, m = start.W.shape
    draws = Draws(
        W=np.empty((settings.draws, p, m)),
        row_scales=np.empty((settings.draws, p)),
        noise=np.empty((settings.draws, m)),
        norm_q=np.empty(settings.draws),
    )
    W, noise = np.array(start.W, dtype=np.float64, order="C"), np.array(start.noise, dtype=np.float64)
    log_scales = np.clip(np.log(np.sqrt(2.0 * np.mean(W**2, axis=1))), *settings.log_scale_bounds)
    grams, correlations = np.ascontiguousarray(sums.grams), np.ascontiguousarray(sums.correlations)
    inverse, step, accepted = 1.0 / settings.norm_q, 0.1, 0.0
    for sweep in range(settings.tune + settings.draws):
        _sweep(
            rng,
            grams,
            correlations,
            sums.squares,
            sums.counts,
            W,
            log_scales,
            noise,
            1.0 / inverse,
            *settings.log_scale_bounds,
            settings.learn_noise,
        )
        if settings.learn_q:
            proposal = _reflected(inverse + step * rng.standard_normal(), settings.inverse_bounds)
            change = _row_marginal(W, 1.0 / proposal) - _row_marginal(W, 1.0 / inverse)
            accepted = float(math.log(rng.random()) < change)
            inverse = proposal if accepted else inverse
            if sweep < settings.tune:
                step *= math.exp((accepted - WISHED_ACCEPTANCE) / math.sqrt(1.0 + sweep))
        _draw_scales(rng, W, log_scales, 1.0 / inverse, *settings.log_scale_bounds)
        kept = sweep - settings.tune
        if kept >= 0:
            draws.W[kept], draws.noise[kept], draws.norm_q[kept] = W, noise, 1.0 / inverse
            draws.row_scales[kept] = np.exp(log_scales)
    return draws


def _reflected(number: float, bounds: tuple[float, float]) -> float:
    """A number folded back into the bounds."""
    low, high = bounds
    folded = (number - low) % (2.0 * (high - low))
    return low + min(folded, 2.0 * (high - low) - folded)


@njit(cache=True)
def _row_marginal(W: FloatArray, norm_q: float) -> float:
    """Log-marginal of all rows at q, scales integrated out, up to a constant."""
    p, m = W.shape
    value = p * (math.lgamma(1.0 + m / norm_q) - m * math.lgamma(1.0 + 1.0 / norm_q))
    for i in range(p):
        value -= m * _log_norm(W[i], norm_q)
    return value


@njit(cache=True)
def _log_norm(row: FloatArray, norm_q: float) -> float:
    """``ln ||row||_q``, scaled by the largest entry."""
    peak = np.max(np.abs(row))
    total = 0.0
    for t in range(len(row)):
        total += (abs(row[t]) / peak) ** norm_q
    return math.log(peak) + math.log(total) / norm_q


@njit(cache=True)
def _draw_scales(
    rng: np.random.Generator, W: FloatArray, log_scales: FloatArray, norm_q: float, low: float, high: float
) -> None:
    """``ln rho`` of every row given w and q."""
    m = W.shape[1]
    for i in range(len(W)):
        log_norm = _log_norm(W[i], norm_q)
        for _ in range(SCALE_TRIES):
            number = log_norm - math.log(rng.standard_gamma(m / norm_q)) / norm_q
            if low <= number <= high:
                log_scales[i] = number
                break


@njit(cache=True)
def _sweep(
    rng: np.random.Generator,
    grams: FloatArray,
    correlations: FloatArray,
    squares: FloatArray,
    counts: FloatArray,
    W: FloatArray,
    log_scales: FloatArray,
    noise: FloatArray,
    norm_q: float,
    low: float,
    high: float,
    learn_noise: bool,
) -> None:
    """Coefficients, interwoven scales and noise, in place."""
    p, m = W.shape
    residuals = np.empty((m, p))  # X' residual
    for t in range(m):
        for i in range(p):
            value = correlations[t, i]
            for j in range(p):
                value -= grams[t, i, j] * W[j, t]
            residuals[t, i] = value
    for i in range(p):
        rho = math.exp(log_scales[i])
        A, B = 0.0, 0.0
        for t in range(m):
            curvature = grams[t, i, i]
            variance = noise[t] ** 2
            v = (abs(W[i, t]) / rho) ** norm_q + rng.standard_exponential()
            reach = rho * v ** (1.0 / norm_q)
            if curvature > 0.0:
                centre = W[i, t] + residuals[t, i] / curvature
                new = _truncated_normal(rng, centre, noise[t] / math.sqrt(curvature), reach)
            else:
                new = reach * (2.0 * rng.random() - 1.0)
            for j in range(p):
                residuals[t, j] -= grams[t, i, j] * (new - W[i, t])
            W[i, t] = new
            z = new / rho
            A += z * z * curvature / variance
            B += z * (residuals[t, i] + curvature * new) / variance
        moved = _slice_scale(rng, log_scales[i], A, B, low, high)
        factor = math.exp(moved - log_scales[i])
        log_scales[i] = moved
        for t in range(m):
            for j in range(p):
                residuals[t, j] -= grams[t, i, j] * (factor - 1.0) * W[i, t]
            W[i, t] *= factor
    if learn_noise:
        for t in range(m):
            square = squares[t]
            for i in range(p):
                square -= W[i, t] * (correlations[t, i] + residuals[t, i])
            noise[t] = math.sqrt(0.5 * max(square, 1e-12 * squares[t]) / rng.standard_gamma(0.5 * counts[t]))


@njit(cache=True)
def _slice_scale(rng: np.random.Generator, current: float, A: float, B: float, low: float, high: float) -> float:
    """Slice step (Neal 2003, stepping out) on ln rho with w / rho fixed; the prior of ln rho is uniform."""
    level = _scale_value(current, A, B) - rng.standard_exponential()
    left = current - SLICE_WIDTH * rng.random()
    right = left + SLICE_WIDTH
    for _ in range(SLICE_STEPS):
        if left <= low or _scale_value(left, A, B) < level:
            break
        left -= SLICE_WIDTH
    for _ in range(SLICE_STEPS):
        if right >= high or _scale_value(right, A, B) < level:
            break
        right += SLICE_WIDTH
    left, right = max(left, low), min(right, high)
    for _ in range(10 * SLICE_STEPS):
        proposal = left + (right - left) * rng.random()
        if _scale_value(proposal, A, B) >= level:
            return proposal
        if proposal < current:
            left = proposal
        else:
            right = proposal
    return current


@njit(cache=True)
def _scale_value(log_scale: float, A: float, B: float) -> float:
    rho = math.exp(log_scale)
    return rho * B - 0.5 * rho * rho * A


@njit(cache=True)
def _truncated_normal(rng: np.random.Generator, centre: float, deviation: float, reach: float) -> float:
    """Draw from N(centre, deviation^2) within [-reach, reach] (Robert 1995)."""
    if centre > 0.0:
        return -_truncated_normal(rng, -centre, deviation, reach)
    low, high = (-reach - centre) / deviation, (reach - centre) / deviation
    if low <= 0.0:
        return centre + deviation * _around_zero(rng, low, high)
    # the centre lies below the interval: the lower end is the likeliest point
    while True:
        if high - low < 2.0 / (low + 1.0):
            x = low + (high - low) * rng.random()
            logarithm = 0.5 * (low * low - x * x)
        else:
            x = low + rng.standard_exponential() / low
            logarithm = -0.5 * (x - low) ** 2
        if x <= high and math.log(rng.random()) < logarithm:
            return centre + deviation * x


@njit(cache=True)
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
