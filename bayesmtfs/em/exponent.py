r"""Learn the exponent q from rows of W.

The row marginal under the Jeffreys prior (Zhang, Yeung and Xu 2010, eq. 7 and 8, scale integrated out),

    ln p(w | q) = ln Gamma(1 + m/q) - m ln ||w||_q - m ln Gamma(1 + 1/q) + constant,

does not depend on the unit of w. Rows that are zero say nothing about q and are left out: with the paper's update they
pull q to the minimum of Gamma(1 + 1/q), at 2.166, whatever the data. q is measured as 1/q, on which its prior is
uniform: large q are hardly distinguishable, and q = inf is the point 0.

- `marginal_maximum` is the exact update given W. Inside EM this is ECME; it is monotone and free of units, but the mode
  of W takes the shape that q imposes, so that q runs off to a bound.
- `printed_maximum` is the update as printed (the gradient in section 4.2), which holds ``E[rho^-q]`` fixed while q
  moves. It depends on the unit of y and is kept for reproduction only.
- `row_profile` on a grid of 1/q gives the `posterior` of q given W. Two-stage learning takes instead the likelihood of
  estimates with errors, in `noisy_rows`: errors make any shape look more normal than it is.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.interpolate import PchipInterpolator
from scipy.optimize import minimize_scalar
from scipy.special import gammaln

from bayesmtfs.priors.jeffreys import Jeffreys
from bayesmtfs.priors.row_penalty import row_norms
from bayesmtfs.types import FloatArray, IntArray

GRID_SIZE = 31  # points of 1/q in an update given W
COARSE_GRID = 11  # points of 1/q in a posterior, and as many more where it is not negligible
FINE_GRID = 4001  # points of 1/q after interpolation
NEGLIGIBLE = 10.0  # below the largest log-likelihood
QUANTILES = (0.05, 0.5, 0.95)
UNIDENTIFIED_SHARE = 0.5  # of the range of 1/q that an interval may cover


class ExponentPosterior(NamedTuple):
    """What the data say about q."""

    norm_q: float  # median
    interval: tuple[float, float]  # 90%, equal tails
    identified: bool
    inverses: FloatArray  # (g,) points of 1/q; empty where q was drawn
    log_likelihood: FloatArray  # (g,) at these points, up to a constant


def inverse_grid(bounds: tuple[float, float], size: int) -> FloatArray:
    """Equally spaced points of 1/q between the bounds of q (the larger may be inf)."""
    smallest, largest = bounds
    return np.linspace(1.0 / largest, 1.0 / smallest, size)


# ---------------------------------------------------------------------- given W


def row_profile(rows: FloatArray, sizes: IntArray, norm_q: float) -> float:
    """Log-marginal of the rows at q, up to a constant that does not depend on q.

    Parameters
    ----------
    rows : (R, k) rows that are not zero
    sizes : (R,) entries that count
    norm_q : q, also inf
    """
    used = sizes > 1  # a single entry says nothing about a shape
    m = sizes[used]
    peaks = np.max(np.abs(rows[used]), axis=1, keepdims=True)
    norms = row_norms(rows[used] / peaks, norm_q)
    logs = gammaln(1.0 + m / norm_q) - m * (np.log(norms) + math.lgamma(1.0 + 1.0 / norm_q))
    return float(np.sum(logs))


def marginal_maximum(
    rows: FloatArray,
    sizes: IntArray,
    bounds: tuple[float, float],
    current: float,
    shape: float = 0.0,
    rate: float = 0.0,
) -> float:
    """Find the q of the largest row marginal within the bounds, and never one that is worse than the current.

    Parameters
    ----------
    rows : (R, k) rows that are not zero
    sizes : (R,) entries that count
    bounds : smallest and largest q, finite
    current : q so far
    shape, rate : of the Gamma prior of ``rho^-q``
    """

    def value(inverse: float) -> float:
        return Jeffreys(1.0 / inverse, shape, rate).negative_log_density(rows, sizes)

    return _best_inverse(value, bounds, current)


def printed_maximum(
    before: FloatArray, after: FloatArray, n_rows: int, bounds: tuple[float, float], current: float
) -> float:
    """Find the q that the printed update gives, with ``E[rho^-q]`` held at the current q.

    Parameters
    ----------
    before : (R, m) rows of the E-step, in the user's units
    after : (R, m) rows of the M-step, in the user's units
    n_rows : number d of all rows, the zero ones included, as printed
    bounds : smallest and largest q, finite
    current : q so far
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
    grid = inverse_grid(bounds, GRID_SIZE)
    values = [value(x) for x in grid]
    best = int(np.argmin(values))
    inside = (grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)])
    found = minimize_scalar(value, bounds=inside, method="bounded", options={"xatol": 1e-9})
    candidates = [(found.fun, found.x), (values[best], grid[best]), (value(1.0 / current), 1.0 / current)]
    return 1.0 / min(candidates)[1]


# ---------------------------------------------------------------------- W with errors: see `noisy_rows`


def posterior(log_likelihood: Callable[[float], float], bounds: tuple[float, float]) -> ExponentPosterior:
    """Median and interval of q under a uniform prior on 1/q.

    Parameters
    ----------
    log_likelihood : of q, up to a constant
    bounds : smallest and largest q (the latter may be inf)
    """
    inverses = inverse_grid(bounds, COARSE_GRID)
    values = np.array([log_likelihood(_inverted(x)) for x in inverses])
    likely = np.flatnonzero(values > np.max(values) - NEGLIGIBLE)
    first, last = max(likely[0] - 1, 0), min(likely[-1] + 1, len(inverses) - 1)
    between = np.linspace(inverses[first], inverses[last], COARSE_GRID + 2)[1:-1]
    between = between[np.min(np.abs(between[:, np.newaxis] - inverses), axis=1) > 1e-6]
    inverses, values = (
        np.concatenate([inverses, between]),
        np.concatenate([values, [log_likelihood(_inverted(x)) for x in between]]),
    )
    order = np.argsort(inverses)
    return _summarised(inverses[order], values[order])


def _inverted(number: float) -> float:
    return 1.0 / number if number > 0.0 else math.inf


def _summarised(inverses: FloatArray, values: FloatArray) -> ExponentPosterior:
    fine = np.linspace(inverses[0], inverses[-1], FINE_GRID)
    logs = PchipInterpolator(inverses, values)(fine)
    density = np.exp(logs - np.max(logs))
    share = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]))])
    low, middle, high = np.interp(QUANTILES, share / share[-1], fine)
    covered = (high - low) / (inverses[-1] - inverses[0])
    interval = (1.0 / high, _inverted(low))
    return ExponentPosterior(_inverted(middle), interval, bool(covered <= UNIDENTIFIED_SHARE), inverses, values)


def from_draws(draws: FloatArray, bounds: tuple[float, float]) -> ExponentPosterior:
    """Median and interval of q from posterior draws of it.

    Parameters
    ----------
    draws : draws of q
    bounds : smallest and largest q
    """
    low, middle, high = np.quantile(1.0 / draws, QUANTILES)
    covered = (high - low) / (1.0 / bounds[0] - 1.0 / bounds[1])
    identified = bool(covered <= UNIDENTIFIED_SHARE)
    return ExponentPosterior(1.0 / middle, (1.0 / high, 1.0 / low), identified, np.empty(0), np.empty(0))
