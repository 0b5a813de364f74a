r"""Learn the exponent q: from rows of W as they are, or from estimates of them that have errors.

The row marginal under the Jeffreys prior (Zhang, Yeung and Xu 2010, eq. 7 and 8, scale integrated out),

    ln p(w | q) = ln Gamma(1 + m/q) - m ln ||w||_q - m ln Gamma(1 + 1/q) + constant,

does not depend on the unit of w. Rows that are zero say nothing about q and are left out: with the paper's update they
pull q to the minimum of Gamma(1 + 1/q), at 2.166, whatever the data. q is measured as 1/q, on which its prior is
uniform: large q are hardly distinguishable, and q = inf is the point 0.

Given W:

- `marginal_maximum` is the exact update. Inside EM this is ECME; it is monotone and free of units, but the mode of W
  takes the shape that q imposes, so that q runs off to a bound.
- `printed_maximum` is the update as printed (the gradient in section 4.2), which holds ``E[rho^-q]`` fixed while q
  moves. It depends on the unit of y and is kept for reproduction only.
- the marginal on a grid of 1/q gives the `posterior` of q.

Given a fit, `learn`: the mode only says which rows are active; what these rows are like is read off the likelihood of
their coefficients, normal with precision ``X'X / sigma^2`` (its normal approximation where the loss is not quadratic):

- two stages: least-squares estimates of the active coefficients and their standard errors s, then

      w_hat_ij ~ N(w_ij, s_ij^2),   w_ij ~ GN(0, rho_i, q),   p(rho_i) = 1/rho_i

  with w and rho integrated out by quadrature, row by row (`noisy_log_likelihood`),

      ln p(w_hat^i | q) = ln integral d(ln rho) prod_j integral N(w_hat_ij; w, s_ij^2) GN(w; 0, rho, q) dw.

  Errors make any shape look more normal than it is. As s goes to 0 this becomes the row marginal, which is taken where
  a task has too few rows for estimates. Correlations between the errors of different features are left out.
- integrated: draws of q, W, the row scales and the noise by `gibbs`.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numba import njit
from scipy.interpolate import PchipInterpolator
from scipy.optimize import minimize_scalar

from bayesmtfs.compiled import inner
from bayesmtfs.em.active_tasks import ActiveTasks
from bayesmtfs.gibbs import chain as gibbs
from bayesmtfs.priors.generalized_normal import Jeffreys
from bayesmtfs.results.tables import TAILS
from bayesmtfs.types import BoolArray, FloatArray, IntArray

GRID_SIZE = 31  # points of 1/q in an update given W
COARSE_GRID = 11  # points of 1/q in a posterior, and as many more where it is not negligible until these are enough
FINE_GRID = 4001  # points of 1/q after interpolation
NEGLIGIBLE = 10.0  # below the largest log-likelihood
QUANTILES = (TAILS[0], 0.5, TAILS[1])
UNIDENTIFIED_SHARE = 0.5  # of the range of 1/q that an interval may cover
LEAST_SPARE = 3  # observations beyond the number of coefficients for which a task's estimates count
LEAST_SHARE = 0.5  # of the entries with estimates, below which the mode is taken
WORST_CONDITION = 1e10
TUNE, DRAWS = 400, 1000
NODES, WEIGHTS = np.polynomial.legendre.leggauss(12)  # of the quadrature over w
SMOOTH_NODES, SMOOTH_WEIGHTS = np.polynomial.hermite_e.hermegauss(8)  # where the prior is smooth around the estimate
SMOOTH_REACH = 4.2  # standard errors that these nodes span
SCALES = 10  # points of ln rho
LONGEST_WALK = 8.0  # in ln rho
LARGEST_POWER = 1e3  # above which the prior counts as uniform
REACH = 4.5  # standard errors on either side of the largest product
PRIOR_REACH = 20.0  # fall of the log prior from the largest product after which it is negligible
STEEP = 1.0  # change of the log prior over a standard error, from which it is not smooth
NEWTON_STEPS = 6
ROUGH_MODE = 0.1  # last step of these, in standard errors
HALVINGS = 20  # most times that the reach is made shorter
DROP = 9.0  # of the log-likelihood at which the integral over ln rho ends
SMALLEST_ERROR = 1e-3  # relative to the row's size
ROOT_TWO_PI = math.sqrt(2.0 * math.pi)


class LearnedExponent(NamedTuple):
    """What the data say about q."""

    norm_q: float  # median
    interval: tuple[float, float]  # equal tails, of probability `bayesmtfs.results.tables.INTERVAL`
    identified: bool


def marginal_maximum(
    rows: FloatArray,
    sizes: IntArray,
    bounds: tuple[float, float],
    current: float,
    prior: Callable[[float], Jeffreys] = Jeffreys,
) -> float:
    """Find the q of the largest row marginal within finite bounds, and never one that is worse than the current.

    No row (R, k) is zero.
    """

    def value(inverse: float) -> float:
        return prior(1.0 / inverse).negative_log_density(rows, sizes)

    return _best_inverse(value, bounds, current)


def printed_maximum(
    before: FloatArray, after: FloatArray, n_rows: int, bounds: tuple[float, float], current: float
) -> float:
    """Find the q that the printed update gives, with ``E[rho^-q]`` held at the current q.

    ``before`` and ``after`` are the rows (R, m) of the E-step and the M-step in the user's units, ``n_rows`` the number
    d of all rows, the zero ones included, as printed.
    """
    log_weights = Jeffreys(current).log_em_weights(before)[:, np.newaxis]
    with np.errstate(divide="ignore"):
        log_sizes = np.log(np.abs(after))

    def value(inverse: float) -> float:
        with np.errstate(over="ignore"):
            powers = np.exp(log_weights + log_sizes / inverse)
        return float(np.sum(powers)) + n_rows * after.shape[1] * math.lgamma(1.0 + inverse)

    return _best_inverse(value, bounds, current)


def _best_inverse(value: Callable[[float], float], bounds: tuple[float, float], current: float) -> float:
    """Find the q in the bounds with the smallest value: a grid for the valley, then a bounded search in it."""
    grid = np.linspace(1.0 / bounds[1], 1.0 / bounds[0], GRID_SIZE)
    values = [value(x) for x in grid]
    best = int(np.argmin(values))
    inside = (grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)])
    found = minimize_scalar(value, bounds=inside, method="bounded", options={"xatol": 1e-9})
    candidates = [(found.fun, found.x), (values[best], grid[best]), (value(1.0 / current), 1.0 / current)]
    return 1.0 / min(candidates)[1]


def posterior(log_likelihood: Callable[[float], float], bounds: tuple[float, float]) -> LearnedExponent:
    """Median and interval of q under a uniform prior on 1/q, from its log-likelihood up to a constant."""
    points = inverses = np.linspace(1.0 / bounds[1], 1.0 / bounds[0], COARSE_GRID)
    values = _finite_values(log_likelihood, points)
    around = _likely(values)
    while around.stop - around.start <= COARSE_GRID:
        between = np.linspace(points[around][0], points[around][-1], COARSE_GRID + 2)[1:-1]
        between = between[np.min(np.abs(between[:, np.newaxis] - points), axis=1) > 1e-6]
        if not len(between):
            break
        points = np.concatenate([points, between])
        order = np.argsort(points)
        points, values = points[order], np.concatenate([values, _finite_values(log_likelihood, between)])[order]
        around = _likely(values)
    fine = np.linspace(points[around][0], points[around][-1], FINE_GRID)
    logs = PchipInterpolator(points, values)(fine)
    density = np.exp(logs - np.max(logs))
    share = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]))])
    return _learned(np.interp(QUANTILES, share / share[-1], fine), inverses[-1] - inverses[0])


def _likely(values: FloatArray) -> slice:
    """Points that are not negligible, and one more on either side."""
    likely = np.flatnonzero(values > np.max(values) - NEGLIGIBLE)
    return slice(max(likely[0] - 1, 0), min(likely[-1] + 2, len(values)))


def _finite_values(log_likelihood: Callable[[float], float], inverses: FloatArray) -> FloatArray:
    """Log-likelihoods at points of 1/q, all of them numbers."""
    values = np.array([log_likelihood(_inverted(x)) for x in inverses])
    if not np.isfinite(values).all():
        wrong = _inverted(inverses[np.argmin(np.isfinite(values))])
        raise ArithmeticError(
            f"the log-likelihood of q is not finite at q = {wrong:.4g}, so that q cannot be learned from these data; "
            "pass norm_q as a number"
        )
    return values


def _inverted(number: float) -> float:
    return 1.0 / number if number > 0.0 else math.inf


def from_draws(draws: FloatArray, bounds: tuple[float, float]) -> LearnedExponent:
    """Median and interval of q from posterior draws of it."""
    return _learned(np.quantile(1.0 / draws, QUANTILES), 1.0 / bounds[0] - 1.0 / bounds[1])


def _learned(quantiles: FloatArray, width: float) -> LearnedExponent:
    """What quantiles of 1/q say, in a range of this width."""
    low, middle, high = (float(quantile) for quantile in quantiles)
    identified = (high - low) / width <= UNIDENTIFIED_SHARE
    return LearnedExponent(_inverted(middle), (1.0 / high, _inverted(low)), identified)


class NormalLikelihood(NamedTuple):
    """Likelihood of the active coefficients as a normal distribution, intercept taken out."""

    sums: gibbs.CentredSums
    noise: FloatArray  # (m,)
    learn_noise: bool
    counted: BoolArray  # (p, m) entries that the task has


def normal_likelihood(tasks: ActiveTasks, W: FloatArray, eta: FloatArray, noise: FloatArray) -> NormalLikelihood:
    """Normal distribution of the coefficients: exact for the squared loss, else at W (p, m) and its predictor eta."""
    curv = tasks.curvature_at(eta)
    theta = tasks.weight * tasks.family.gradient(tasks.y, eta)
    sums = tasks.sums(theta) if tasks.fit_intercept else np.zeros(tasks.n_tasks)
    slope = tasks.adjoint(theta) - curv.means * sums
    grams = np.stack([A.T @ A for A in curv.roots])
    correlations = np.einsum("tij,jt->ti", grams, W) - slope.T
    squares = np.ones(tasks.n_tasks)
    if tasks.family.quadratic:  # y'y from the loss at W, since only sums are known: 2 L = y'y - 2 c'w + w'Gw
        fitted = 2.0 * np.einsum("ti,it->t", correlations, W) - np.einsum("it,tij,jt->t", W, grams, W)
        shift = np.divide(sums**2, curv.totals, out=np.zeros_like(sums), where=curv.totals > 0)
        squares = 2.0 * tasks.losses(eta) - shift + fitted
    counted = np.ones(W.shape, dtype=bool) if tasks.present is None else tasks.present
    counts = tasks.counts - float(tasks.fit_intercept)
    return NormalLikelihood(
        gibbs.CentredSums(grams, correlations, squares, counts), noise, tasks.family.quadratic, counted
    )


def estimates(normal: NormalLikelihood) -> tuple[FloatArray, FloatArray, BoolArray]:
    """(p, m) Least-squares estimates, their standard errors, and where there are any."""
    grams, correlations, squares, counts = normal.sums
    m, p = correlations.shape
    W, errors, known = np.zeros((p, m)), np.ones((p, m)), np.zeros((p, m), dtype=bool)
    for t in range(m):
        own = np.flatnonzero(normal.counted[:, t])
        gram = grams[t][np.ix_(own, own)]
        spare = counts[t] - len(own)
        if spare < LEAST_SPARE or not np.linalg.cond(gram) < WORST_CONDITION:
            continue
        inverse = np.linalg.inv(gram)
        W[own, t] = inverse @ correlations[t, own]
        variance = max((squares[t] - correlations[t, own] @ W[own, t]) / spare, 0.0) if normal.learn_noise else 1.0
        errors[own, t] = np.sqrt(variance * np.diag(inverse))
        known[own, t] = True
    return W, errors, known


def learn(
    tasks: ActiveTasks,
    W: FloatArray,
    eta: FloatArray,
    noise: FloatArray,
    bounds: tuple[float, float],
    integrated: bool,
    random_seed: int,
) -> LearnedExponent:
    """Posterior of q given the active rows of a fit, none of which is zero."""
    normal = normal_likelihood(tasks, W, eta, noise)
    if integrated:
        settings = gibbs.ChainSettings(DRAWS, TUNE, random_seed, norm_q=None)
        # An entry of exactly 0 has no logarithm; the first sweep moves it.
        start = np.where(W == 0.0, 1e-3 * np.max(np.abs(W), axis=1, keepdims=True), W)
        given = (normal.sums, start, normal.noise, settings, bounds)
        return from_draws(gibbs.sample_centred(*given, learn_noise=normal.learn_noise).norm_q, bounds)
    W_hat, errors, known = estimates(normal)
    if known.sum() >= LEAST_SHARE * normal.counted.sum():
        return posterior(lambda q: noisy_log_likelihood(W_hat, errors, known, q), bounds)
    sizes = normal.counted.sum(axis=1)
    return posterior(lambda q: -Jeffreys(q).negative_log_density(W, sizes), bounds)


def noisy_log_likelihood(estimates: FloatArray, errors: FloatArray, counted: BoolArray, norm_q: float) -> float:
    """Log-likelihood of q (also inf), up to a constant; rows (R, k) with fewer than two entries say nothing."""
    total = 0.0
    for i in range(len(estimates)):
        w_hat = np.ascontiguousarray(estimates[i, counted[i]])
        size = math.sqrt(float(np.mean(w_hat**2))) if len(w_hat) > 1 else 0.0
        if size > 0.0:
            s = np.maximum(errors[i, counted[i]] / size, SMALLEST_ERROR)
            total += _row(np.abs(w_hat) / size, s, float(norm_q))
    return total


@njit(cache=True)
def _row(w_hat: FloatArray, s: FloatArray, norm_q: float) -> float:
    """Log-likelihood of one row of size 1: the integral over ln rho, around its peak."""
    peak, top = _peak(w_hat, s, norm_q)
    left = _end(w_hat, s, peak, top, -1.0, norm_q)
    right = _end(w_hat, s, peak, top, 1.0, norm_q)
    width = (right - left) / (SCALES - 1)
    total = 0.0
    for g in range(SCALES):
        value = _given_scale(w_hat, s, left + g * width, norm_q)
        total *= math.exp(min(top - value, 0.0))  # a point above the peak that was found becomes the reference
        top = max(top, value)
        total += math.exp(value - top)
    return top + math.log(total * width)


@inner()
def _peak(w_hat: FloatArray, s: FloatArray, norm_q: float) -> tuple[float, float]:
    """Find ln rho of about the largest likelihood and the value there: uphill from the best scale without errors."""
    largest, power = np.max(w_hat), min(norm_q, LARGEST_POWER)
    at = math.log(largest) + math.log(power * np.mean((w_hat / largest) ** power)) / power
    step = 1.0 / math.sqrt(len(w_hat) * min(norm_q, 50.0))  # the deviation of ln rho without errors
    value, lowest = _given_scale(w_hat, s, at, norm_q), at - LONGEST_WALK
    above = _given_scale(w_hat, s, at + step, norm_q)
    side = 1.0 if above > value else -1.0
    while at > lowest:
        new = _given_scale(w_hat, s, at + side * step, norm_q)
        if new <= value:
            break
        at, value, step = at + side * step, new, 1.5 * step
    for side in (-0.5, 0.5, -0.25, 0.25):
        new = _given_scale(w_hat, s, at + side * step, norm_q)
        if new > value:
            at, value = at + side * step, new
    return at, value


@inner()
def _end(w_hat: FloatArray, s: FloatArray, peak: float, top: float, side: float, norm_q: float) -> float:
    """Find ln rho on one side of the peak where the likelihood has become negligible."""
    distance = 0.5 / math.sqrt(len(w_hat))
    while distance < LONGEST_WALK:
        if _given_scale(w_hat, s, peak + side * distance, norm_q) < top - DROP:
            break
        distance *= 1.5
    return peak + side * distance


@inner()
def _given_scale(w_hat: FloatArray, s: FloatArray, log_rho: float, norm_q: float) -> float:
    """Log-likelihood of a row at one scale."""
    rho = math.exp(log_rho)
    value = -len(w_hat) * (math.log(2.0) + math.lgamma(1.0 + 1.0 / norm_q) + log_rho)
    for j in range(len(w_hat)):
        value += _log_convolution(w_hat[j], s[j], rho, norm_q)
    return value


@inner()
def _log_convolution(w_hat: float, s: float, rho: float, norm_q: float) -> float:
    """``ln integral N(w_hat; w, s^2) exp(-|w / rho|^q) dw``, relative to the integrand's peak: it cannot underflow."""
    farthest = w_hat + SMOOTH_REACH * s
    slope = norm_q * (farthest / rho) ** norm_q * s / farthest
    if w_hat > SMOOTH_REACH * s and slope < STEEP:
        density = 0.0
        for node in range(len(SMOOTH_NODES)):
            density += SMOOTH_WEIGHTS[node] * math.exp(-(((w_hat + s * SMOOTH_NODES[node]) / rho) ** norm_q))
        return math.log(density / ROOT_TWO_PI)
    mode = _mode(w_hat, s, rho, norm_q)
    top = _log_product(mode, w_hat, s, rho, norm_q)
    right = _negligible(mode, 1.0, top, w_hat, s, rho, norm_q)
    left = _negligible(mode, -1.0, top, w_hat, s, rho, norm_q)
    density = _integral(mode, right, top, w_hat, s, rho, norm_q)
    density += _integral(max(left, 0.0), mode, top, w_hat, s, rho, norm_q)
    if left < 0.0:  # the prior has a kink at 0
        density += _integral(left, 0.0, top, w_hat, s, rho, norm_q)
    return top + math.log(density / (s * ROOT_TWO_PI))


@inner()
def _log_product(w: float, w_hat: float, s: float, rho: float, norm_q: float) -> float:
    z = (w_hat - w) / s
    return -0.5 * z * z - (abs(w) / rho) ** norm_q


@inner()
def _mode(w_hat: float, s: float, rho: float, norm_q: float) -> float:
    """Find about the largest product: Newton's steps from above for ``(w_hat - w) / s^2 = q w^(q-1) / rho^q``."""
    if norm_q > LARGEST_POWER:
        return min(w_hat, rho * (1.0 - 1e-12))
    if norm_q == 1.0:
        return max(w_hat - s * s / rho, 0.0)
    # where the slope of the prior alone is that of the error at 0, in logarithms
    log_bound = math.log(rho) + math.log(max(w_hat * rho, 1e-300) / (norm_q * s * s)) / (norm_q - 1.0)
    w = w_hat if log_bound > math.log(max(w_hat, 1e-300)) else math.exp(log_bound)
    for _ in range(NEWTON_STEPS):
        if w < 1e-6 * s:
            return 0.0
        pull = norm_q * (w / rho) ** norm_q / w
        step = ((w_hat - w) / (s * s) - pull) / (1.0 / (s * s) + (norm_q - 1.0) * pull / w)
        w = max(w + step, 0.2 * w)
        if abs(step) < ROUGH_MODE * s:
            break
    return w


@inner()
def _negligible(mode: float, side: float, top: float, w_hat: float, s: float, rho: float, norm_q: float) -> float:
    """Find w on one side of the mode where the product has become negligible: each factor alone bounds how far that is."""
    distance = REACH * s
    edge = rho * (PRIOR_REACH + (mode / rho) ** norm_q) ** (1.0 / norm_q) - side * mode
    if (w_hat - mode) * edge < 0.5 * PRIOR_REACH * s * s:  # else the error pulls beyond it
        distance = min(distance, edge)
    for _ in range(HALVINGS):
        if _log_product(mode + 0.6 * side * distance, w_hat, s, rho, norm_q) > top - 0.5 * REACH * REACH:
            break
        distance *= 0.6
    return mode + side * distance


@inner()
def _integral(low: float, high: float, top: float, w_hat: float, s: float, rho: float, norm_q: float) -> float:
    """Gauss-Legendre quadrature of the product, relative to its peak."""
    half, middle = 0.5 * (high - low), 0.5 * (high + low)
    total = 0.0
    for node in range(len(NODES)):
        total += WEIGHTS[node] * math.exp(_log_product(middle + half * NODES[node], w_hat, s, rho, norm_q) - top)
    return total * half
