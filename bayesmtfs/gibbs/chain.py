r"""Posterior of generalized normal multi-task regression and classification by an interwoven Gibbs sampler.

    y ~ N(X w_t + b_t, sigma_t^2) or labels with those log-odds,   w_it ~ GN(mu_i, rho_i, q),   mu_i = 0 or N(0, s^2)

with the priors of `bayesmtfs.priors.hyperpriors` on rho, tau, sigma, b and 1/q: the full posterior of Zhang, Yeung and
Xu (2010, eq. 6 and 7) with proper priors in place of their eq. 8.

Two forms of the same sampler:

- in sums (`gibbs_sweep`), for normal targets with more rows than features in the average task or with at most
  `FEW_FEATURES` features: needs only X'X, X'y and y'y of each task and costs O(m p^2) a sweep;
  at a fixed q = 2 the coefficients of a task are drawn jointly, O(m p^3), and so are all means;
- by observation (`gibbs_observed_sweep`), for labels, by Pólya-Gamma augmentation (Polson, Scott and Windle 2013), and
  for normal targets with more features than rows: O(p) a sweep for every observation. Weights of labels must be whole
  numbers, since PG(b, c) has no exact draws for other b.

Both learn q by the same walk on 1/q (`gibbs_exponent`).

One seeded generator per chain: the same seed gives the same draws, bit for bit. The compiled parts release the
interpreter lock, so that chains may run in threads.

References
----------
N. G. Polson, J. G. Scott, J. Windle (2013), Bayesian inference for logistic models using Pólya-Gamma latent variables,
Journal of the American Statistical Association 108:1339-1349.
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

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.gibbs.observations import observations_of
from bayesmtfs.gibbs.observed_start import dual_ridge_start, first_observed_state
from bayesmtfs.gibbs.observed_sweep import observed_parts_for, observed_space_for, run_observed
from bayesmtfs.gibbs.pairs import alike
from bayesmtfs.gibbs.state import (
    INVERSE_Q,
    LOG_TAU,
    Law,
    Rows,
    first_state,
    law_of,
    ridge_start,
    rows_of,
    sums_of,
)
from bayesmtfs.gibbs.sweep import Kept, kept_for, parts_for, run, space_for
from bayesmtfs.priors.hyperpriors import Hyperprior
from bayesmtfs.types import FloatArray

PRIORS = ("generalized_normal", "jeffreys")
FIRST_Q = 2.0  # where q is learned
SECONDS_BETWEEN_REPORTS = 0.2
MOST_SWEEPS = 1000  # between two reports
FEW_FEATURES = 100  # sums of normal targets are as cheap up to here, and exact where weights stand for repeated rows
SLOW_SWEEPS = 4  # for a draw, where q is learned or features outnumber the rows
MOST_WEIGHT = 100.0  # of a label: its precision is a sum of as many draws

type Advance = Callable[[int, int], None]  # first and last sweep


@dataclass(frozen=True)
class ChainSettings:
    """Lengths, seed and exponent of a chain.

    Attributes
    ----------
    draws, tune : that are kept, and those before them
    sweeps : for each draw
    random_seed : seed of the chain
    norm_q : q, also inf; None: learn it
    """

    draws: int = 1000
    tune: int = 500
    random_seed: int = 0
    norm_q: float | None = 2.0
    sweeps: int = 1

    def __post_init__(self) -> None:
        if self.draws < 1 or self.tune < 0 or self.sweeps < 1:
            raise ValueError(
                f"draws is {self.draws}, tune is {self.tune} and sweeps is {self.sweeps}; pass at least one draw, no "
                "negative number, and at least one sweep"
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
    """Whether this sampler has the posterior: independent generalized normal rows, whole weights of labels, any q.

    Parameters
    ----------
    data : observations; groups, absent features, weights and sparse designs are all right
    loss : such as "squared"
    prior : such as "generalized_normal"

    Examples
    --------
    >>> data = TaskData.from_long(np.eye(3), [1.0, -1.0, 1.0])
    >>> supports(data, "squared", "jeffreys"), supports(data, "logistic", "jeffreys"), supports(data, "hinge", "jeffreys")
    (True, True, False)
    """
    if prior not in PRIORS or data.n_features == 0:
        return False
    if loss == "logistic":
        whole = (data.weight == np.round(data.weight)) & (data.weight >= 1.0) & (data.weight <= MOST_WEIGHT)
        return bool(whole.all())
    return loss in ("squared", "gaussian")


def more_rows_than_features(data: TaskData) -> bool:
    """Whether a task has on average more rows than features; a row of weight 2 counts twice."""
    return data.n_features < float(data.weight.sum()) / data.n_tasks


def many_features(data: TaskData) -> bool:
    """Whether steps by observation are cheaper than sums of the data."""
    return data.n_features > FEW_FEATURES and not more_rows_than_features(data)


def sweeps_per_draw(data: TaskData, norm_q: float | None) -> int:
    """How many sweeps make a draw about as independent of the last one as it is elsewhere after one.

    Parameters
    ----------
    data : the observations
    norm_q : q, None where it is learned
    """
    return SLOW_SWEEPS if norm_q is None or many_features(data) else 1


def sample_chain(
    data: TaskData,
    prior: Hyperprior,
    settings: ChainSettings,
    report: Callable[[float], None] | None = None,
    start: FloatArray | None = None,
    loss: str = "squared",
) -> PosteriorDraws:
    """Draw one chain.

    Parameters
    ----------
    data : observations; y is -1 and +1 for labels
    prior : hyperprior with every number known
    settings : lengths, seed and q
    report : called every now and then with the fraction of the sweeps that are done
    start : (p, m) first coefficients; None: ridge estimates
    loss : "squared", or "logistic" for labels, whose noise is 1 in every draw

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
    if start is not None and start.shape != (data.n_features, data.n_tasks):
        raise ValueError(f"start has shape {start.shape}; pass (features, tasks), {(data.n_features, data.n_tasks)}")
    if loss == "logistic" and not supports(data, loss, PRIORS[0]):
        raise ValueError(
            f"labels need weights that are whole numbers from 1 to {MOST_WEIGHT:.0f}; the weights go from "
            f"{data.weight.min()} to {data.weight.max()}; sample the model by NUTS instead"
        )
    rows, law = rows_of(data), law_of(prior, learn_q=settings.norm_q is None)
    kept = kept_for(rows, settings.draws, settings.sweeps)
    by_observation = loss == "logistic" or many_features(data)
    prepare = _by_observation if by_observation else _in_sums
    advance = prepare(data, prior, settings, start, loss, rows, law, kept)
    total = settings.sweeps * (settings.tune + settings.draws)
    done = _in_slices(advance, total, report)
    count = max(done // settings.sweeps - settings.tune, 0)
    return _collect(kept, rows, count, _centre(prior, loss), interrupted=done < total)


def _centre(prior: Hyperprior, loss: str) -> float:
    """Prior mean of the intercepts, from which normal targets are measured."""
    return prior.intercept_centre if prior.fit_intercept and loss != "logistic" else 0.0


def _first_q(prior: Hyperprior, settings: ChainSettings) -> float:
    """Q at the start, which is also all later ones where it is fixed."""
    return float(np.clip(FIRST_Q, *prior.norm_q_bounds)) if settings.norm_q is None else settings.norm_q


def _in_sums(
    data: TaskData,
    prior: Hyperprior,
    settings: ChainSettings,
    start: FloatArray | None,
    loss: str,
    rows: Rows,
    law: Law,
    kept: Kept,
) -> Advance:
    """Begin a chain in sums of the data."""
    sums = sums_of(data, _centre(prior, loss))
    rng = np.random.Generator(np.random.PCG64(settings.random_seed))
    W = ridge_start(sums, rows, law) if start is None else np.asarray(start, dtype=np.float64).T
    norm_q = _first_q(prior, settings)
    state = first_state(sums, rows, law, W, norm_q, rng)
    space, parts = space_for(sums), parts_for(rows, law, norm_q, alike(sums, rows))

    def advance(done: int, stop: int) -> None:
        run(rng, sums, rows, law, state, space, kept, *parts, done, stop, settings.sweeps * settings.tune)

    return advance


def _by_observation(
    data: TaskData,
    prior: Hyperprior,
    settings: ChainSettings,
    start: FloatArray | None,
    loss: str,
    rows: Rows,
    law: Law,
    kept: Kept,
) -> Advance:
    """Begin a chain by observation."""
    observations = observations_of(data, _centre(prior, loss), labels=loss == "logistic")
    rng = np.random.Generator(np.random.PCG64(settings.random_seed))
    W = dual_ridge_start(observations, rows) if start is None else np.asarray(start, dtype=np.float64).T
    norm_q = _first_q(prior, settings)
    state = first_observed_state(observations, rows, law, W, norm_q, rng)
    space = observed_space_for(observations, rows)
    parts = observed_parts_for(observations, rows, law, norm_q, space.block)

    def advance(done: int, stop: int) -> None:
        run_observed(
            rng, observations, rows, law, state, space, kept, *parts, done, stop, settings.sweeps * settings.tune
        )

    return advance


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
