r"""The prior of one row, seen from a normal approximation of everything else.

At q = 2 the entries of row i given its scale are ``N(0, rho_i^2 / 2)``, and the scale has a density on the real line of
``l = ln rho_i`` (`bayesmtfs.priors.hyperpriors`). When the rest of the model says ``N(mean_t, variance_t)`` about the
entry of task t (the cavity), the row given l is normal with

    v_t(l) = 1 / (1 / variance_t + 2 / rho^2),   m_t(l) = v_t(l) mean_t / variance_t,

and what the row says about l is one integral on a line, done on a grid:

    p(l | rest) ~ p(l | tau) prod_t N(mean_t; 0, variance_t + rho^2 / 2).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from bayesmtfs.priors.hyperpriors import Hyperprior, log_global_scale_density, log_scale_density
from bayesmtfs.types import FloatArray

SCALE_STEP = 0.15  # of the grid of ln rho
BELOW = 12.0  # how far that grid goes below ln tau_0
LARGEST_SCALE = 10.0  # its upper end, in units of the noise scale: separable labels have no other bound
TINY = 1e-300
GLOBAL_REACH, GLOBAL_POINTS = 5.0, 41  # of the grid of ln tau


@dataclass(frozen=True, eq=False)
class ScaleGrid:
    """Grids of ln rho and ln tau with the prior on them.

    Attributes
    ----------
    log_scale : (G,)
    log_prior : (G, T) of ln rho given tau, normalised over the grid
    log_global : (T,)
    log_global_prior : (T,)
    """

    log_scale: FloatArray
    log_prior: FloatArray
    log_global: FloatArray
    log_global_prior: FloatArray

    @property
    def variance(self) -> FloatArray:
        """(G,) Prior variance of an entry, ``rho^2 / 2``."""
        return np.exp(2.0 * self.log_scale) / 2.0


class Tilted(NamedTuple):
    """Rows under the prior and their cavities."""

    mean: FloatArray  # (R, k)
    variance: FloatArray  # (R, k)
    scale_evidence: FloatArray  # (R, G), what a row says about its scale, its largest value being 1
    global_probability: FloatArray  # (T,)


def scale_grid(prior: Hyperprior) -> ScaleGrid:
    """Grid of a hyperprior at q = 2; without tau where the hyperprior has none or fixes it."""
    centre = np.log(prior.global_scale)
    if prior.kind == "log_uniform":
        low, high = np.log(prior.bounds)
        edges = np.linspace(low, high, max(int(np.ceil((high - low) / SCALE_STEP)), 20) + 1)
        log_scale, log_global = (edges[1:] + edges[:-1]) / 2.0, np.array([centre])
    else:
        high = max(np.log(LARGEST_SCALE * prior.noise_scale), centre + 2.0)
        log_scale = np.arange(high, centre - BELOW, -SCALE_STEP)[::-1]
        reach = np.linspace(-GLOBAL_REACH, GLOBAL_REACH, GLOBAL_POINTS) if prior.learn_global_scale else np.zeros(1)
        log_global = centre + reach
    log_prior = np.stack([log_scale_density(log_scale, float(np.exp(g)), 2.0, prior) for g in log_global], axis=1)
    log_global_prior = log_global_scale_density(log_global, prior)
    return ScaleGrid(
        log_scale,
        log_prior - logsumexp(log_prior, axis=0),
        log_global,
        log_global_prior - logsumexp(log_global_prior),
    )


def tilt(mean: FloatArray, variance: FloatArray, real: FloatArray, grid: ScaleGrid) -> Tilted:
    """Moments of rows under prior and cavity, the scales integrated out.

    Parameters
    ----------
    mean, variance : (R, k) of the cavities
    real : (R, k) 1 for entries, 0 for padding
    grid : of the scales
    """
    log_row = _log_evidence(mean, variance, real, grid)
    largest = log_row.max(axis=1, keepdims=True)
    evidence = np.exp(log_row - largest)
    prior = np.exp(grid.log_prior)
    row = evidence @ prior + TINY  # (R, T)
    log_global = grid.log_global_prior + np.log(row).sum(axis=0)
    global_probability = np.exp(log_global - logsumexp(log_global))
    averaged = evidence * (prior @ (global_probability / row).T).T  # (R, G)
    centre, spread = conditional(mean[:, :, np.newaxis], variance[:, :, np.newaxis], grid.variance)
    first = np.einsum("rkg,rg->rk", centre, averaged)
    second = np.einsum("rkg,rg->rk", spread + centre**2, averaged)
    return Tilted(first, second - first**2, evidence, global_probability)


def conditional(mean: FloatArray, variance: FloatArray, prior_variance: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of entries given their scale."""
    share = prior_variance / (prior_variance + variance)
    return share * mean, share * variance


def _log_evidence(mean: FloatArray, variance: FloatArray, real: FloatArray, grid: ScaleGrid) -> FloatArray:
    """(R, G) ``sum_t ln N(mean_t; 0, variance_t + rho^2 / 2)`` up to a constant."""
    total = variance[:, :, np.newaxis] + grid.variance
    log_density = -0.5 * (np.log(total) + mean[:, :, np.newaxis] ** 2 / total)
    return np.einsum("rkg,rk->rg", log_density, real)
