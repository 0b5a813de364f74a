r"""Coefficients and intercepts of a task that was never seen, drawn from the population of the tasks that were.

Intercepts have wide priors of their own, so that the data tell a task's level at the means of its own features,
``l_t = b_t + w_t' xbar_t``, and not what it would be at those of another task: of a feature that is the same in all rows
of a task, ``w_ti x_ti`` and b_t are known only together. A row x of a new task is therefore taken apart into the means of
its task and the rest, ``x = E[xbar | x] + rest`` with ``E[xbar | x] = c + f (x - c)``, f the share of each feature's
variance between tasks (`bayesmtfs.posterior.between_tasks`), and draw by draw

    eta = l_new + w_new' (1 - f) (x - c),      w_new ~ GN(mu, rho, q),
    l_new = a + g mu' f (x - c) + e,           e ~ s sqrt(1 + 1/m) t(k)

with a, g and s from the regression of the levels l_t on ``mu' (xbar_t - c)`` over the m known tasks, and k its degrees of
freedom: where the means of the features go with the level as the rows do within tasks, g is 1, and where they do not, 0.
Without a shared mean (mu = 0) there is nothing to regress on, and the expected prediction is the mean of the levels, since
nothing tells the signs of the coefficients. With few tasks g is taken as 1. Without intercepts f is 0, and l_new too.
"""

from typing import NamedTuple

import numpy as np

from bayesmtfs.types import FloatArray

LEAST_TASKS = 6  # to learn g from


class Population(NamedTuple):
    """What draws say of the tasks of a fit."""

    mean: FloatArray  # (S, p) mu, zeros without a shared mean
    scale: FloatArray  # (S, p) rho
    norm_q: FloatArray | None  # (S, 1) q; None: the scales are deviations of normal coefficients
    levels: FloatArray  # (S, m) of the known tasks, at the means of their features
    offsets: FloatArray  # (p, m) those means, less the centre c
    centre: FloatArray  # (p,) c
    share: FloatArray  # (p,) f


def expected_task(population: Population) -> tuple[FloatArray, FloatArray]:
    """Coefficients (S, p) and intercepts (S,) of a new task, averaged over what is not known of it.

    Parameters
    ----------
    population : of the known tasks

    Examples
    --------
    Levels that do not follow the means of the first feature, which is the same within a task; the second one is not:

    >>> offsets = np.array([[-1.0, 0.0, 1.0, 0.0, 2.0, -2.0], np.zeros(6)])
    >>> nothing = np.zeros((1, 2))
    >>> share, centre = np.array([1.0, 0.0]), np.zeros(2)
    >>> known = Population(np.array([[3.0, 3.0]]), nothing, None, np.full((1, 6), 5.0), offsets, centre, share)
    >>> expected_task(known)
    (array([[0., 3.]]), array([5.]))
    """
    coef, levels, _ = _taken_apart(population)
    return coef, levels.mean(axis=1) - coef @ population.centre


def draw_task(rng: np.random.Generator, population: Population) -> tuple[FloatArray, FloatArray]:
    """Coefficients (S, p) and intercepts (S,) of a new task, one for every draw.

    Parameters
    ----------
    rng : generator
    population : of the known tasks, at least two
    """
    mean, levels, degrees = _taken_apart(population)
    scale = population.scale * (1.0 - population.share)
    if population.norm_q is None:
        coef = mean + scale * rng.standard_normal(scale.shape)
    else:
        coef = mean + scale * standard_entries(rng, population.norm_q, scale.shape)
    total, m = levels.shape
    centred = levels - levels.mean(axis=1, keepdims=True)
    deviation = np.sqrt(np.sum(centred**2, axis=1) / degrees * (1.0 + 1.0 / m))
    level = levels.mean(axis=1) + deviation * rng.standard_t(degrees, size=total)
    return coef, level - coef @ population.centre


def _taken_apart(population: Population) -> tuple[FloatArray, FloatArray, int]:
    """Expected coefficients (S, p), levels (S, m) without what goes with the features, and degrees of freedom."""
    mean, share = population.mean, population.share
    m = population.levels.shape[1]
    score = mean @ population.offsets
    if m < LEAST_TASKS or not mean.any():
        return mean, population.levels - score, m - 1
    centred = score - score.mean(axis=1, keepdims=True)
    squares = np.sum(centred**2, axis=1, keepdims=True)
    together = np.sum(centred * population.levels, axis=1, keepdims=True)
    slope = np.divide(together, squares, out=np.ones_like(together), where=squares > 0)
    return mean * (1.0 - share + slope * share), population.levels - slope * score, m - 2


def standard_entries(rng: np.random.Generator, q: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    """Draws of GN(0, 1, q) by the mixture of uniforms; q may be infinite.

    Parameters
    ----------
    rng : generator
    q : broadcasts to the shape
    shape : of the draws

    Examples
    --------
    >>> draws = standard_entries(np.random.default_rng(0), np.array(2.0), (100_000,))
    >>> round(float(np.var(draws)), 2)
    0.5
    """
    mixing = rng.gamma(1.0 + 1.0 / q, size=shape) ** (1.0 / q)
    return np.asarray(mixing * rng.uniform(-1.0, 1.0, size=shape))
