"""From data to a posterior: screening, units, the sampler that suits, diagnostics, and everything back in one tree.

Which sampler ``"auto"`` takes:

- the interwoven Gibbs sampler (`bayesmtfs.gibbs.chain`) under generalized normal or Jeffreys rows, for
  normal targets and labels. Weights of labels must be whole numbers there (a weight of 2 is the row twice), since
  Pólya-Gamma laws of other weights have no exact draws;
- NUTS (`nuts`) for everything else: labels with other weights, and the other priors;
- ``"fast"`` (`fast`), an approximation without sampling, only where it is asked for.

With more than ``max_features`` features, `screening` chooses among them first.
"""

import warnings
from typing import Any

import numpy as np

from bayesmtfs.convex import automatic
from bayesmtfs.convex.problem import Problem
from bayesmtfs.data.scaling import (
    SamplingUnits,
    feature_deviations,
    in_sampling_units,
    no_units,
    sampling_units,
    standardize,
)
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import find_family
from bayesmtfs.gibbs import chain as gibbs_posterior
from bayesmtfs.posterior import fast
from bayesmtfs.posterior.diagnostics import diagnose
from bayesmtfs.posterior.draws import Draws, in_user_units, stacked, with_all_features, without
from bayesmtfs.posterior.exact_fits import fits_exactly, with_noise_floor
from bayesmtfs.posterior.parallel import Report, run_chains
from bayesmtfs.posterior.posterior_tree import build_tree
from bayesmtfs.posterior.request import PosteriorFit, PosteriorRequest
from bayesmtfs.posterior.screening import chosen_features, screen
from bayesmtfs.priors.hyperpriors import Hyperprior, hyperprior_for
from bayesmtfs.priors.row_penalty import RowPenalty
from bayesmtfs.types import BoolArray, FloatArray, SelectionWarning, Solution

START_SHARE = 0.05  # penalty of the start, of the smallest one at which all coefficients are zero
START_TOL = 1e-4
STARTS = 100  # tries to find a point to begin from
LEAST_START_NOISE = 0.05
DEFAULT_PENALTY_SHARE = 0.1
FAST_PRIORS = ("generalized_normal", "jeffreys")


def sample_posterior(data: TaskData, request: PosteriorRequest) -> PosteriorFit:
    """Sample the posterior of data.

    Parameters
    ----------
    data : observations in the user's units; y is numeric, -1 and +1 for labels
    request : what to sample, and how
    """
    varying = screen(data, request.loss, request.fit_intercept, None)
    kept = screen(data, request.loss, request.fit_intercept, request.max_features)
    if not kept.any():  # nothing varies: the posterior of the coefficients is their prior
        varying = kept = np.ones_like(kept)
    screened_out = varying & ~kept
    _warn_of_screening(screened_out)
    chosen = chosen_features(data, kept).dense()
    frame, scaled = _scaled(chosen, request)
    draws, penalty = _run(scaled, request)
    if request.loss != "squared":
        draws = without(draws, "noise")  # labels have none
    if request.prior == "horseshoe":
        draws = without(draws, "norm_q")  # its row scales are deviations, not those of GN(0, rho, 2)
    diagnostics = diagnose(draws)
    draws = in_user_units(draws, frame, request.fit_intercept)
    # Features that do not vary come back as zeros; those that were screened out would only take up memory
    in_tree = ~screened_out
    whole = chosen_features(data, in_tree).dense()
    draws = with_all_features(draws, kept[in_tree])
    tree = build_tree(
        draws,
        whole,
        request.loss,
        _whole_units(frame, kept[in_tree], whole),
        feature_deviations(whole),
        request.random_seed,
        _attributes(request, int(screened_out.sum()), penalty),
    )
    return PosteriorFit(tree, draws, diagnostics, in_tree, screened_out, penalty)


def choose_sampler(data: TaskData, request: PosteriorRequest) -> str:
    """Name of the sampler that is used: "gibbs", "nuts" or "fast".

    Parameters
    ----------
    data : the observations that are sampled, after screening
    request : what was asked for
    """
    gibbs = gibbs_posterior.supports(data, request.loss, request.prior)
    if request.sampler == "auto":
        return "gibbs" if gibbs else "nuts"
    if request.sampler == "gibbs" and not gibbs:
        raise ValueError(
            f"sampler='gibbs' does not have prior={request.prior!r} with loss={request.loss!r} and norm_q="
            f"{'learn' if request.norm_q is None else request.norm_q!r}; it samples prior='generalized_normal' and "
            "'jeffreys', with the logistic loss only with sample weights that are whole numbers: use sampler='nuts' or "
            "'auto'"
        )
    if request.sampler == "fast" and not (
        request.prior in FAST_PRIORS and request.norm_q == 2 and request.loss in ("squared", "logistic")
    ):
        raise ValueError(
            f"sampler='fast' does not have prior={request.prior!r} with norm_q="
            f"{'learn' if request.norm_q is None else request.norm_q!r} and loss={request.loss!r}; it needs "
            "prior='generalized_normal' or 'jeffreys' and norm_q=2: use sampler='auto'"
        )
    if request.sampler == "fast" and request.hyper.get("shared_mean"):
        raise ValueError("sampler='fast' does not have shared_mean=True; use sampler='auto'")
    return request.sampler


# ---------------------------------------------------------------------- preparations


def _scaled(data: TaskData, request: PosteriorRequest) -> tuple[SamplingUnits, TaskData]:
    """Units of sampling, and the data in them."""
    if request.prior == "mixed_norm":  # a stated model of the user's own units, whose mode is the penalised fit
        if not request.standardize:
            return no_units(data), data
        scaled, scales = standardize(data)
        return SamplingUnits(np.zeros_like(scales), scales), scaled
    frame = sampling_units(
        data, centre=request.fit_intercept, per_task=request.standardize, scale_target=request.loss == "squared"
    )
    return frame, in_sampling_units(data, frame)


def _whole_units(frame: SamplingUnits, kept: BoolArray, whole: TaskData) -> SamplingUnits:
    """Units for all features of the tree, those that do not vary included."""
    shape = (whole.n_features, whole.n_tasks)
    centre, scale = np.zeros(shape), np.ones(shape)
    centre[kept], scale[kept] = frame.feature_centre, frame.feature_scale
    return SamplingUnits(centre, scale, frame.target_centre, frame.target_scale)


def _warn_of_screening(screened_out: BoolArray) -> None:
    if screened_out.any():
        count, total = int(screened_out.sum()), len(screened_out)
        warnings.warn(
            f"{count} of {total} features were screened out before sampling, and the posterior says nothing about "
            "them (their coefficients are 0); raise max_features, or set it to None to sample them all",
            SelectionWarning,
            stacklevel=5,
        )


def hyperprior_of(data: TaskData, request: PosteriorRequest) -> Hyperprior:
    """Hyperprior of the request, with what depends on the data filled in."""
    kind: Any = "log_uniform" if request.prior == "jeffreys" else "beta_prime"
    return hyperprior_for(data, request.loss, kind=kind, fit_intercept=request.fit_intercept, **request.hyper)


def _attributes(request: PosteriorRequest, n_screened: int, penalty: float | None) -> dict[str, Any]:
    """Settings as plain values at the root of the tree."""
    hyper = {f"hyper_{name}": str(value) for name, value in request.hyper.items()}
    known = {
        "prior": request.prior,
        "loss": request.loss,
        "norm_q": "learn" if request.norm_q is None else str(request.norm_q),
        "draws": request.draws,
        "tune": request.tune,
        "chains": request.chains,
        "seed": request.random_seed,
        "screened_out": n_screened,
    }
    return known | hyper | ({} if penalty is None else {"penalty_strength": penalty})


# ---------------------------------------------------------------------- samplers


def _run(data: TaskData, request: PosteriorRequest) -> tuple[Draws, float | None]:
    sampler = choose_sampler(data, request)
    if request.prior == "mixed_norm":
        return _mixed_norm(data, request)
    prior = hyperprior_of(data, request)
    if sampler == "gibbs":
        return _gibbs(data, prior, request), None
    if sampler == "fast":
        numbers = (request.draws, request.chains, request.random_seed)
        return fast.sample(data, request.loss, prior, *numbers, request.progress), None
    return _nuts(data, prior, request), None


def _gibbs(data: TaskData, prior: Hyperprior, request: PosteriorRequest) -> Draws:
    if request.loss == "squared" and fits_exactly(data, request.fit_intercept):
        data = with_noise_floor(data)
    seeds = np.random.SeedSequence(request.random_seed).generate_state(request.chains)
    sweeps = gibbs_posterior.sweeps_per_draw(data, request.norm_q)

    def run(chain: int, report: Report) -> gibbs_posterior.PosteriorDraws:
        seed = int(seeds[chain])
        settings = gibbs_posterior.ChainSettings(request.draws, request.tune, seed, request.norm_q, sweeps)
        return gibbs_posterior.sample_chain(data, prior, settings, report, loss=request.loss)

    chains = run_chains(run, request.chains, request.n_jobs, request.progress)
    named_arrays = [
        {
            "coef": chain.W,
            "intercept": chain.intercept,
            "noise": chain.noise,
            "row_scale": chain.row_scales,
            "norm_q": chain.norm_q,
        }
        | ({"global_scale": chain.global_scale} if prior.kind == "beta_prime" else {})
        | ({"mean_coef": chain.mean} if prior.mean_scale > 0.0 else {})
        for chain in chains
    ]
    fixed = {
        "norm_q": request.norm_q is not None,
        "global_scale": not prior.learn_global_scale,
        "intercept": not prior.fit_intercept,
    }
    return Draws(
        sampler="gibbs",
        variables=stacked(named_arrays),
        fixed=frozenset(name for name, is_fixed in fixed.items() if is_fixed),
        interrupted=any(chain.interrupted for chain in chains),
        sweeps=sweeps,
    )


def _nuts(data: TaskData, prior: Hyperprior, request: PosteriorRequest) -> Draws:
    # PyMC takes seconds to load, which a Gibbs fit need not wait for
    from bayesmtfs.posterior import nuts

    model = nuts.build_model(data, request.prior, request.loss, request.norm_q, prior, request.relation_concentration)
    point = _mixed_norm_point(data, request, START_SHARE)
    noise = _residual_noise(data, point) if request.loss == "squared" else None
    norm_q = 2.0 if request.norm_q is None else request.norm_q
    start = nuts.start_values(model, data, point.W, point.intercept, noise, norm_q)
    return _sampled(model, start, request)


def _mixed_norm(data: TaskData, request: PosteriorRequest) -> tuple[Draws, float]:
    from bayesmtfs.models import mixed_norm_model
    from bayesmtfs.posterior import nuts

    norm_q = 2.0 if request.norm_q is None else request.norm_q
    problem = Problem(data, find_family(request.loss), RowPenalty(0.0, norm_q), data.weight, request.fit_intercept)
    penalty = request.penalty_strength
    if penalty is None:
        penalty = DEFAULT_PENALTY_SHARE * problem.largest_penalty or 1.0
    point = _beside(automatic.solve(problem.with_strength(penalty), tol=START_TOL), problem, request.random_seed)
    model = mixed_norm_model(data, penalty, norm_q, request.loss, loss_scale="sum", fit_intercept=request.fit_intercept)
    start = nuts.start_values(model, data, point.W, point.intercept, None, norm_q)
    return _sampled(model, start, request), penalty


def _beside(point: Solution, problem: Problem, random_seed: int) -> Solution:
    """A point near the mode at which no derivative vanishes, which NUTS would not begin from.

    The mode has rows of exact zeros, and the slope of the hinge loss in an intercept is a whole number, often 0.
    """
    rng, data = np.random.default_rng([random_seed, 4]), problem.data
    size = float(np.abs(point.W).mean()) or 1.0
    moved = point
    for attempt in range(1, STARTS + 1):
        W = point.W + 0.1 * attempt * size * rng.standard_normal(point.W.shape)
        if data.present is not None:
            W = np.where(data.present, W, 0.0)
        intercept = point.intercept + 0.1 * attempt * float(np.std(data.y)) * rng.standard_normal(data.n_tasks)
        moved = point._replace(W=W, intercept=intercept)
        slope = problem.family.gradient(data.y, data.linear_predictor(W, intercept))
        if np.all(problem.task_sums(data.weight * slope) != 0):
            break
    return moved


def _sampled(model: Any, start: dict[str, FloatArray], request: PosteriorRequest) -> Draws:
    from bayesmtfs.posterior import nuts

    return nuts.sample(
        model,
        start,
        draws=request.draws,
        tune=request.tune,
        chains=request.chains,
        random_seed=request.random_seed,
        n_jobs=request.n_jobs,
        target_accept=request.target_accept,
        progress=request.progress,
    )


def _mixed_norm_point(data: TaskData, request: PosteriorRequest, share: float) -> Solution:
    """Penalised fit to begin from."""
    problem = Problem(data, find_family(request.loss), RowPenalty(0.0, 2.0), data.weight, request.fit_intercept)
    return automatic.solve(problem.with_strength(share * problem.largest_penalty or 1.0), tol=START_TOL)


def _residual_noise(data: TaskData, point: Solution) -> FloatArray:
    """(m,) Root mean square residual of every task, not below a small share of the target's deviation."""
    residual = np.asarray(data.y, dtype=np.float64) - data.linear_predictor(point.W, point.intercept)
    squares = np.add.reduceat(data.weight * residual**2, data.offsets[:-1]) / data.task_weights
    return np.maximum(np.sqrt(squares), LEAST_START_NOISE)
