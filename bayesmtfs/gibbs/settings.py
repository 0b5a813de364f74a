r"""Gibbs draws of generalized normal rows, their scales, the noise and the exponent q, for a normal likelihood in sums.

    y ~ N(X w_t, sigma_t^2),   w_it ~ GN(0, rho_i, q),   ln rho_i uniform on an interval,
    1/q uniform on an interval,   p(sigma_t) = 1 / sigma_t

(Zhang, Yeung and Xu 2010, eq. 6 and 7, with proper priors in place of eq. 8, which has no posterior), given X'X, X'y and
y'y with the intercept taken out. The sweeps are those of `gibbs_sweep`; `gibbs_posterior` has the posterior with
proper priors of everything, from data.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bayesmtfs.gibbs import state as gibbs_state
from bayesmtfs.gibbs import sweep as gibbs_sweep
from bayesmtfs.types import FloatArray


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
    centred = gibbs_state.Sums(
        grams=np.ascontiguousarray(sums.grams),
        correlations=np.ascontiguousarray(sums.correlations),
        means=np.zeros((m, p)),
        squares=np.asarray(sums.squares, dtype=np.float64),
        target_means=np.zeros(m),
        counts=np.asarray(sums.counts, dtype=np.float64),
    )
    rows = gibbs_state.single_rows(np.ones((m, p), dtype=np.bool_))
    state = gibbs_state.State(
        W=np.array(start.W.T, dtype=np.float64, order="C"),
        mean=np.zeros(p),
        intercept=np.zeros(m),
        noise=np.array(start.noise, dtype=np.float64),
        log_scales=np.clip(np.log(np.sqrt(2.0 * np.mean(start.W**2, axis=1))), *settings.log_scale_bounds),
        numbers=np.array([0.0, 1.0 / settings.norm_q, gibbs_state.FIRST_STEP]),
        widths=np.ones(p),
        information=np.zeros(p),
    )
    law, kept, space = _law(settings), gibbs_sweep.kept_for(rows, settings.draws), gibbs_sweep.space_for(centred)
    parts, total = gibbs_sweep.parts_for(rows, law, settings.norm_q, None), settings.tune + settings.draws
    gibbs_sweep.run(rng, centred, rows, law, state, space, kept, *parts, 0, total, settings.tune)
    norm_q = 1.0 / kept.numbers[:, gibbs_state.INVERSE_Q]
    return Draws(W=kept.W, row_scales=np.exp(kept.log_scales), noise=kept.noise, norm_q=norm_q)


def _law(settings: Settings) -> gibbs_state.Law:
    """Priors as numbers: no global scale, no intercept, and no shapes for the noise, whose logarithm is flat."""
    low, high = settings.log_scale_bounds
    return gibbs_state.Law(
        log_uniform=True,
        low=float(low),
        high=float(high),
        tail_shape=0.5,
        spike_shape=0.5,
        scale_power=0.0,
        log_global_scale=0.0,
        learn_global_scale=False,
        intercept_variance=0.0,
        noise_anchor=0.0,
        noise_shapes=(0.0, 0.0),
        shared_noise=False,
        learn_noise=settings.learn_noise,
        inverse_low=float(settings.inverse_bounds[0]),
        inverse_high=float(settings.inverse_bounds[1]),
        learn_q=settings.learn_q,
        mean_precision=0.0,
    )
