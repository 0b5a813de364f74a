r"""Posterior of generalized normal multi-task regression and classification by an interwoven Gibbs sampler.

    y ~ N(X w_t + b_t, sigma_t^2) or labels with those log-odds,   w_it ~ GN(mu_i, rho_i, q),   mu_i = 0 or sparse

with the priors of `bayesmtfs.priors.hyperpriors` on rho, tau, mu, sigma, b and 1/q: the full posterior of Zhang, Yeung and
Xu (2010, eq. 6 and 7) with proper priors in place of their eq. 8.

Two forms of the same sampler:

- in sums, for normal targets with more rows than features in the average task or with at most `FEW_FEATURES`
  features: needs only X'X, X'y and y'y of each task and costs O(m p^2) a sweep; at a fixed q = 2 the coefficients of a
  task are drawn jointly, O(m p^3), and so are all means;
- by observation (`sweep`), for families that are normal given a hidden precision
  (`bayesmtfs.families.augmentation`), such as labels by Polya-Gamma augmentation (Polson, Scott and Windle 2013), and for
  normal targets with more features than rows: O(p) a sweep for every observation. Several classes within tasks are
  labels class by class (`classes`).

Both learn q by the same walk on 1/q (`exponent`).

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
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import Family, find_family
from bayesmtfs.families.augmentation import NORMAL
from bayesmtfs.gibbs.block import ActiveBlock
from bayesmtfs.gibbs.cells import CellMoments, Cells, Gaps, with_redraws
from bayesmtfs.gibbs.classes import class_by_class
from bayesmtfs.gibbs.coefficients import alike
from bayesmtfs.gibbs.dispersion import DispersionSpace, dispersion_prior, dispersion_space
from bayesmtfs.gibbs.state import (
    GibbsPrior,
    GibbsState,
    Observed,
    RowMap,
    TaskSums,
    dual_ridge_start,
    first_observed_state,
    first_state,
    gibbs_prior,
    log_uniform_prior,
    new_state,
    observations_of,
    renew_scores,
    ridge_start,
    rows_of,
    single_rows,
    space_for,
    sums_of,
)
from bayesmtfs.gibbs.sweep import (
    KeptDraws,
    kept_for,
    observed_parts_for,
    observed_space_for,
    parts_for,
    run,
    run_observed,
)
from bayesmtfs.priors.hyperpriors import Hyperprior
from bayesmtfs.progress import Progress
from bayesmtfs.types import FloatArray

PRIORS = ("generalized_normal", "jeffreys")
FIRST_Q = 2.0  # where q is learned
SECONDS_BETWEEN_REPORTS = 0.2
MOST_SWEEPS = 1000  # between two reports
FEW_FEATURES = 100  # sums of normal targets are as cheap up to here, and exact where weights stand for repeated rows
SLOW_SWEEPS = (
    4  # for a draw, where q is learned, features outnumber the rows, or there are several classes within tasks
)

type Advance = Callable[[int, int, int], None]  # first and last sweep, and how many of all sweeps are for tuning
type Report = Callable[[float], None]


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
    relations: FloatArray | None = None  # (draws, m, m) R, of tasks that are related
    parameter: FloatArray | None = None  # (draws, m) dispersion or degrees of freedom, where the family learns them
    cells: CellMoments | None = None  # of missing cells of features


def supports(data: TaskData, loss: str | Family, prior: str) -> bool:
    """Whether this sampler has the posterior: independent generalized normal rows, a conditionally normal family, any q.

    Parameters
    ----------
    data : observations; groups, absent features and sparse designs are all right, weights if the family takes them
    loss : a family, or its name, such as "squared"
    prior : such as "generalized_normal"

    Examples
    --------
    >>> data = TaskData.from_long(np.eye(3), [1.0, -1.0, 1.0])
    >>> supports(data, "squared", "jeffreys"), supports(data, "logistic", "jeffreys"), supports(data, "hinge", "jeffreys")
    (True, True, False)
    """
    augmentation = augmentation_of(find_family(loss))
    if prior not in PRIORS or data.n_features == 0 or augmentation is None or data.eta_offset is not None:
        return False
    return bool(augmentation.takes_weights(data.weight))


def augmentation_of(family: Family) -> Any:
    """How a family becomes normal, in one target or in one class with the others given; None if it does not."""
    return family.class_augmentation if family.coupled else family.augmentation


def more_rows_than_features(data: TaskData) -> bool:
    """Whether a task has on average more rows than features; a row of weight 2 counts twice."""
    return data.n_features < float(data.weight.sum()) / data.n_tasks


def many_features(data: TaskData) -> bool:
    """Whether steps by observation are cheaper than sums of the data."""
    return data.n_features > FEW_FEATURES and not more_rows_than_features(data)


def sweeps_per_draw(data: TaskData, norm_q: float | None, family: Family | None = None) -> int:
    """How many sweeps make a draw about as independent of the last one as it is elsewhere after one (q None: learned)."""
    several_classes = family is not None and family.coupled
    return SLOW_SWEEPS if several_classes or norm_q is None or many_features(data) else 1


def sample_chain(
    data: TaskData,
    prior: Hyperprior,
    settings: ChainSettings,
    report: Report | None = None,
    start: FloatArray | None = None,
    loss: str | Family = "squared",
    gaps: Gaps | None = None,
) -> PosteriorDraws:
    """Draw one chain.

    Parameters
    ----------
    data : observations, missing cells filled; y is -1 and +1 for labels
    prior : hyperprior with every number known
    settings : lengths, seed and q
    report : called every now and then with the fraction of the sweeps that are done
    start : (p, m) first coefficients; None: ridge estimates
    loss : a conditionally normal family, or its name; without a noise of its own, the noise is 1 in every draw
    gaps : which cells of features are missing, and drawn too

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
    family = conditionally_normal(data, loss, by_class=True)
    if family.coupled and prior.mean_scale > 0.0:
        raise ValueError("a mean that all classes share changes no probability; pass a prior without mean_scale")
    if start is not None and start.shape != (data.n_features, data.n_tasks):
        raise ValueError(f"start has shape {start.shape}; pass (features, tasks), {(data.n_features, data.n_tasks)}")
    rows, numbers = rows_of(data), gibbs_prior(prior, settings.norm_q is None, family.has_noise)
    hidden, centre, order = augmentation_of(family), np.zeros(data.n_tasks), np.arange(data.n_tasks)
    if prior.fit_intercept:
        centre += prior.intercept_centre
    first_q = float(np.clip(FIRST_Q, *prior.norm_q_bounds)) if settings.norm_q is None else settings.norm_q
    rng = Generator(np.random.PCG64(settings.random_seed))
    kept = kept_for(rows, settings.draws, settings.sweeps)
    W = None if start is None else np.asarray(start, dtype=np.float64).T
    dispersion = _dispersion(data, family, prior, settings.draws)
    cells = None if gaps is None else Cells(gaps, rng)
    if hidden.form != NORMAL or many_features(data):
        observed = observations_of(data, centre, hidden.form, hidden.parameter)
        if family.coupled:
            observed, rows, order = class_by_class(observed, rows)
            W = None if W is None else W[order]
        advance, state, block = _by_observation(observed, W, rows, numbers, first_q, rng, kept, dispersion)
        if cells is not None:
            redraw = partial(redraw_by_observation, cells, rng, observed, rows, state, block)
            advance = with_redraws(advance, 1, redraw)
    else:
        sums = sums_of(data, centre)
        advance, state = _in_sums(sums, W, rows, numbers, first_q, rng, kept)
        if cells is not None:
            redraw = partial(redraw_in_sums, cells, data, centre, sums, rows, state)
            advance = with_redraws(advance, 1, redraw)
    done, interrupted = in_slices(advance, settings, report)
    count = max(done // settings.sweeps - settings.tune, 0)
    found = collect(kept, rows, count, centre, interrupted)
    if family.coupled:
        as_given = np.argsort(order)
        found = found._replace(W=found.W[:, :, as_given], intercept=found.intercept[:, as_given])
    found = found if cells is None else found._replace(cells=cells.kept)
    return found if family.learned is None or dispersion is None else found._replace(parameter=dispersion.kept[:count])


def _dispersion(data: TaskData, family: Family, prior: Hyperprior, draws: int) -> DispersionSpace | None:
    """What is learned of the law of targets that are not normal, beside eta."""
    if family.coupled or family.augmentation.form == NORMAL or not (family.has_noise or family.learned is not None):
        return None
    law = dispersion_prior(family, prior.noise_scale, prior.shared_noise)
    return dispersion_space(law, data.n_observations, draws, data.n_tasks)


def conditionally_normal(data: TaskData, loss: str | Family, by_class: bool = False) -> Family:
    """Family, after a look at what it offers, to samplers that go class by class too, and at the weights."""
    family = find_family(loss)
    hidden = augmentation_of(family) if by_class else family.augmentation
    if hidden is None:
        family.require("The Gibbs sampler", "augmentation")
    elif not hidden.takes_weights(data.weight):
        raise ValueError(
            f"{family.targets} need weights that are {hidden.weights}; the weights go from "
            f"{data.weight.min()} to {data.weight.max()}; sample the model by NUTS instead"
        )
    return family


def _in_sums(
    sums: TaskSums,
    W: FloatArray | None,
    rows: RowMap,
    prior: GibbsPrior,
    norm_q: float,
    rng: Generator,
    kept: KeptDraws,
) -> tuple[Advance, GibbsState]:
    """Begin a chain in sums of the data."""
    W = ridge_start(sums, rows, prior) if W is None else W
    state = first_state(sums, rows, prior, W, norm_q, rng)
    parts = parts_for(rows, prior, norm_q, alike(sums, rows))
    return partial(run, rng, sums, rows, prior, state, space_for(sums), kept, *parts), state


def _by_observation(
    data: Observed,
    W: FloatArray | None,
    rows: RowMap,
    prior: GibbsPrior,
    norm_q: float,
    rng: Generator,
    kept: KeptDraws,
    dispersion: DispersionSpace | None = None,
) -> tuple[Advance, GibbsState, ActiveBlock]:
    """Begin a chain by observation."""
    W = dual_ridge_start(data, rows) if W is None else W
    state = first_observed_state(data, rows, prior, W, norm_q, rng)
    space = observed_space_for(data, rows)
    parts = observed_parts_for(data, rows, prior, norm_q, space.block, dispersion)
    return partial(run_observed, rng, data, rows, prior, state, space, kept, *parts), state, space.block


def redraw_in_sums(
    cells: Cells, data: TaskData, centre: FloatArray, sums: TaskSums, rows: RowMap, state: GibbsState, keep: bool
) -> None:
    """Draw missing cells of normal targets, and compute the sums anew, in place."""
    W = np.where(rows.present, state.W + state.mean, 0.0)
    residual = data.y - centre[data.task] - with_rows(data, cells).linear_predictor(W.T, state.intercept)
    precisions = data.weight / np.square(state.noise)[data.task]
    cells.redraw(W, precisions, precisions * residual, keep)
    for old, new in zip(sums, sums_of(with_rows(data, cells), centre), strict=True):
        old[...] = new


def with_rows(data: TaskData, cells: Cells) -> TaskData:
    """Return the data with the present rows, one for each observation."""
    rows = np.arange(data.n_observations)
    return replace(data, design=cells.X[cells.gaps.row], rows=rows, shared_design=data.n_tasks == 1)


def redraw_by_observation(
    cells: Cells, rng: Generator, data: Observed, rows: RowMap, state: GibbsState, block: ActiveBlock | None, keep: bool
) -> None:
    """Draw missing cells given new hidden precisions; a sweep begins with what else depends on the design."""
    renew_scores(rng, data, rows, state)
    W = np.where(rows.present, state.W + state.mean, 0.0)
    cells.redraw(W, data.precisions, data.scores, keep)
    cells.write_to(data.design)
    if block is not None:
        block.design[:] = data.design[block.features]


def in_slices(advance: Advance, settings: ChainSettings, report: Report | None) -> tuple[int, bool]:
    """Run the sweeps in pieces of about a fifth of a second; how many were done, and whether Ctrl-C ended them."""
    total, tune = settings.sweeps * (settings.tune + settings.draws), settings.sweeps * settings.tune
    done, sweeps = 0, 1
    with Progress("sampling", enabled=False) as work:
        while done < total:
            stop = min(done + sweeps, total)
            begin = time.monotonic()
            advance(done, stop, tune)
            seconds = max(time.monotonic() - begin, 1e-9)
            wished = int((stop - done) * SECONDS_BETWEEN_REPORTS / seconds)
            done = stop
            sweeps = min(max(wished, 1), 4 * sweeps, MOST_SWEEPS)
            if report is not None:
                report(done / total)
    return done, work.interrupted and done < total


def collect(kept: KeptDraws, rows: RowMap, count: int, centre: FloatArray | float, interrupted: bool) -> PosteriorDraws:
    """Draws in the user's terms."""
    inverse_q = kept.inverse_q[:count]
    return PosteriorDraws(
        W=kept.W[:count],
        mean=kept.mean[:count],
        intercept=kept.intercept[:count] + centre,
        noise=kept.noise[:count],
        row_scales=np.exp(kept.log_scales[:count])[:, rows.row_of_feature],
        global_scale=np.exp(kept.log_tau[:count]),
        norm_q=np.divide(1.0, inverse_q, out=np.full(count, math.inf), where=inverse_q > 0.0),
        interrupted=interrupted,
    )


class CentredSums(NamedTuple):
    """What the likelihood of each task needs, with the intercept integrated out."""

    grams: FloatArray  # (m, p, p) X'X
    correlations: FloatArray  # (m, p) X'y
    squares: FloatArray  # (m,) y'y
    counts: FloatArray  # (m,) degrees of freedom


def sample_centred(
    sums: CentredSums,
    W: FloatArray,
    noise: FloatArray,
    settings: ChainSettings,
    norm_q_bounds: tuple[float, float] = (1.0, 50.0),
    log_scale_bounds: tuple[float, float] = (-9.0, 5.0),
    learn_noise: bool = True,
) -> PosteriorDraws:
    """Draw from sums alone, ``ln rho`` and 1/q uniform on intervals and ``p(sigma_t) = 1 / sigma_t``.

    These are the rows of Zhang, Yeung and Xu (2010, eq. 6 and 7) with bounds on their eq. 8, which has no posterior.

    Parameters
    ----------
    sums : sufficient statistics of each task
    W, noise : (p, m) and (m,) where the chain begins; no row of W is zero
    settings : lengths, seed and q
    norm_q_bounds : least and largest q where it is learned
    log_scale_bounds : least and largest ln rho
    learn_noise : whether the noise is drawn

    Examples
    --------
    >>> w = np.array([[1.0, -2.0, 0.5]])
    >>> sums = CentredSums(np.full((3, 1, 1), 1e4), 1e4 * w.T, np.full(3, 1e5), np.full(3, 50.0))
    >>> draws = sample_centred(sums, w, np.ones(3), ChainSettings(draws=200), learn_noise=False)
    >>> bool(np.abs(draws.W.mean(axis=0) - w).max() < 0.01)
    True
    """
    p, m = W.shape
    means, target_means = np.zeros((m, p)), np.zeros(m)
    grams, correlations, squares, counts = (np.ascontiguousarray(part, dtype=np.float64) for part in sums)
    centred = TaskSums(grams, correlations, means, squares, target_means, counts)
    rows = single_rows(np.ones((m, p), dtype=np.bool_))
    prior = log_uniform_prior(log_scale_bounds, norm_q_bounds, settings.norm_q is None, learn_noise)
    first_q = FIRST_Q if settings.norm_q is None else settings.norm_q
    log_scales = np.clip(np.log(np.sqrt(2.0 * np.mean(W**2, axis=1))), *log_scale_bounds)
    first_W, first_noise = np.array(W.T, dtype=np.float64, order="C"), np.array(noise, dtype=np.float64)
    state = new_state(first_W, np.zeros(p), np.zeros(m), first_noise, log_scales, 0.0, first_q)
    rng = Generator(np.random.PCG64(settings.random_seed))
    kept, parts = kept_for(rows, settings.draws, settings.sweeps), parts_for(rows, prior, first_q, None)
    total, tune = settings.sweeps * (settings.tune + settings.draws), settings.sweeps * settings.tune
    run(rng, centred, rows, prior, state, space_for(centred), kept, *parts, 0, total, tune)
    return collect(kept, rows, settings.draws, np.zeros(m), interrupted=False)
