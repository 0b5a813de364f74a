r"""Posterior of generalized normal multi-task regression by an interwoven Gibbs sampler, in sums of the data.

    y ~ N(X w_t + b_t, sigma_t^2),   w_it ~ GN(mu_i, rho_i, q),   mu_i = 0 or mu_i ~ N(0, s^2)

with the priors of `bayesmtfs.priors.hyperpriors` on rho, tau, sigma, b and 1/q: the full posterior of Zhang, Yeung and
Xu (2010, eq. 6 and 7) with proper priors in place of their eq. 8. A sweep (`gibbs_sweep`) draws the coefficients task by
task and their means, moves every scale in two or three parametrisations, walks on 1/q, and draws intercepts and noise.
It needs only X'X, X'y and y'y of each task and costs O(m p^2); at a fixed q = 2 the coefficients of a task are drawn
jointly, O(m p^3), and so are all means.

One seeded generator per chain: the same seed gives the same draws, bit for bit. The compiled parts release the
interpreter lock, so that chains may run in threads.

References
----------
Y. Zhang, D.-Y. Yeung, Q. Xu (2010), Probabilistic multi-task feature selection, NIPS 23.
Y. Yu, X.-L. Meng (2011), To center or not to center: that is not the question, Journal of Computational and Graphical
Statistics 20:531-570.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bayesmtfs.priors.hyperpriors import Hyperprior
from bayesmtfs.protocols import FloatArray
from bayesmtfs.solvers.gibbs.gibbs_pairs import alike
from bayesmtfs.solvers.gibbs.gibbs_state import (
    INVERSE_Q,
    LOG_TAU,
    Rows,
    first_state,
    law_of,
    ridge_start,
    rows_of,
    sums_of,
)
from bayesmtfs.solvers.gibbs.gibbs_sweep import Kept, kept_for, run, space_for
from bayesmtfs.tasks import TaskData

PRIORS = ("generalized_normal", "jeffreys")
FIRST_Q = 2.0  # where q is learned
SECONDS_BETWEEN_REPORTS = 0.2
MOST_SWEEPS = 1000  # between two reports


@dataclass(frozen=True)
class ChainSettings:
    """Lengths, seed and exponent of a chain.

    Attributes
    ----------
    draws, tune : sweeps that are kept, and those before them
    random_seed : seed of the chain
    norm_q : q, also inf; None: learn it
    """

    draws: int = 1000
    tune: int = 500
    random_seed: int = 0
    norm_q: float | None = 2.0

    def __post_init__(self) -> None:
        if self.draws < 1 or self.tune < 0:
            raise ValueError(
                f"draws is {self.draws} and tune is {self.tune}; pass at least one draw and no negative number"
            )
        if self.norm_q is not None and not self.norm_q > 0.0:
            raise ValueError(f"norm_q is {self.norm_q}; pass a number above 0, inf, or None to learn it")


class PosteriorDraws(NamedTuple):
    """Draws of one chain; fewer than asked for where it was interrupted."""

    W: FloatArray  # (draws, p, m)
    mean: FloatArray  # (draws, p) mu; zeros without a shared mean
    intercept: FloatArray  # (draws, m)
    noise: FloatArray  # (draws, m)
    row_scales: FloatArray  # (draws, p) rho of each feature's row
    global_scale: FloatArray  # (draws,)
    norm_q: FloatArray  # (draws,)
    interrupted: bool


def supports(data: TaskData, loss: str, prior: str) -> bool:
    """Whether this sampler has the posterior: a squared loss and independent generalized normal rows.

    Parameters
    ----------
    data : observations; groups, absent features, weights and sparse designs are all right
    loss : such as "squared"
    prior : such as "generalized_normal"

    Examples
    --------
    >>> data = TaskData.from_long(np.eye(3), [1.0, 2.0, 3.0])
    >>> supports(data, "squared", "jeffreys"), supports(data, "logistic", "jeffreys")
    (True, False)
    """
    return loss in ("squared", "gaussian") and prior in PRIORS and data.n_features > 0


def sample_chain(
    data: TaskData,
    prior: Hyperprior,
    settings: ChainSettings,
    report: Callable[[float], None] | None = None,
    start: FloatArray | None = None,
) -> PosteriorDraws:
    """Draw one chain.

    Parameters
    ----------
    data : observations
    prior : hyperprior with every number known
    settings : lengths, seed and q
    report : called every now and then with the fraction of the sweeps that are done
    start : (p, m) first coefficients; None: ridge estimates

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 2))
    >>> y = X @ [1.0, -2.0] + 0.1 * rng.standard_normal(200)
    >>> data = TaskData.from_long(X, y)
    >>> draws = sample_chain(data, Hyperprior(), ChainSettings(draws=300, tune=100))
    >>> draws.W.mean(axis=0).ravel().round(1).tolist()
    [1.0, -2.0]
    """
    centre = prior.intercept_centre if prior.fit_intercept else 0.0
    sums, rows = sums_of(data, centre), rows_of(data)
    rows = rows._replace(pairs=alike(sums, rows))
    law = law_of(prior, learn_q=settings.norm_q is None)
    rng = np.random.Generator(np.random.PCG64(settings.random_seed))
    norm_q = settings.norm_q
    if norm_q is None:
        norm_q = float(np.clip(FIRST_Q, *prior.norm_q_bounds))
    W = ridge_start(sums, rows, law) if start is None else np.asarray(start, dtype=np.float64).T
    if W.shape != sums.means.shape:
        raise ValueError(f"start has shape {W.T.shape}; pass (features, tasks), {sums.means.T.shape}")
    state = first_state(sums, rows, law, W, norm_q, rng)
    kept, space = kept_for(sums, rows, settings.draws), space_for(sums, rows)
    total = settings.tune + settings.draws

    def advance(done: int, stop: int) -> None:
        run(rng, sums, rows, law, state, space, kept, done, stop, settings.tune)

    done = _in_slices(advance, total, report)
    return _collect(kept, rows, max(done - settings.tune, 0), centre, interrupted=done < total)


def _in_slices(advance: Callable[[int, int], None], total: int, report: Callable[[float], None] | None) -> int:
    """Run the sweeps in pieces of about a fifth of a second; how many were done when all were, or at Ctrl-C."""
    done, sweeps = 0, 1
    try:
        while done < total:
            stop = min(done + sweeps, total)
            begin = time.monotonic()
            advance(done, stop)
            seconds = max(time.monotonic() - begin, 1e-9)
            wished = int((stop - done) * SECONDS_BETWEEN_REPORTS / seconds)
            done = stop
            sweeps = min(max(wished, 1), 4 * sweeps, MOST_SWEEPS)
            if report is not None:
                report(done / total)
    except KeyboardInterrupt:
        pass
    return done


def _collect(kept: Kept, rows: Rows, count: int, centre: float, interrupted: bool) -> PosteriorDraws:
    """Draws in the user's terms."""
    inverse_q = kept.numbers[:count, INVERSE_Q]
    return PosteriorDraws(
        W=kept.W[:count],
        mean=kept.mean[:count],
        intercept=kept.intercept[:count] + centre,
        noise=kept.noise[:count],
        row_scales=np.exp(kept.log_scales[:count])[:, rows.row_of_feature],
        global_scale=np.exp(kept.numbers[:count, LOG_TAU]),
        norm_q=np.divide(1.0, inverse_q, out=np.full(count, math.inf), where=inverse_q > 0.0),
        interrupted=interrupted,
    )
