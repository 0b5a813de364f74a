"""From data to a posterior: screening, units, the sampler that suits, diagnostics, and everything back in one tree.

Which sampler ``"auto"`` takes:

- a Gibbs sampler that draws whole rows (`bayesmtfs.gibbs.spike`) under the prior "spike", and no other;
- the interwoven Gibbs sampler (`bayesmtfs.gibbs.chain`) under generalized normal or Jeffreys rows, for
  normal targets, labels, and the other families that are normal given a hidden precision: negative binomial counts,
  Student's t, absolute and quantile losses. Weights of labels must be whole numbers there (a weight of 2 is the row
  twice), since Pólya-Gamma variables of labels are drawn exactly, which other weights do not allow;
- the same for several classes within tasks, class by class, without a shared mean, which changes no probability;
- one of its kind for related tasks (`bayesmtfs.gibbs.relations`) under the prior "matrix_variate" at q = 2;
- NUTS (`nuts`) for everything else: labels with other weights, and the other priors;
- ``"variational"`` (`variational`), an approximation under the prior "spike", only where it is asked for.

With more than ``max_features`` features, `preparation` chooses among them first; under the prior "spike" `variational`
does, for normal targets and labels.

Chains run side by side in threads: the compiled Gibbs sampler releases Python's lock. A chain reports how far it is after
every slice of sweeps; when the user presses Ctrl-C, the next report raises ``KeyboardInterrupt`` inside the chain, which
then returns the draws that it has.
"""

import json
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmtfs.compiled import one_thread
from bayesmtfs.data.gaps import Filling, RowModel, TaskMeans, filled, has_gaps, learn_means
from bayesmtfs.data.scaling import SamplingUnits, effect_unit, in_sampling_units, plain_units, rescale, sampling_units
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import Family, Gaussian
from bayesmtfs.families.augmentation import NORMAL
from bayesmtfs.gibbs import chain as gibbs_posterior
from bayesmtfs.gibbs import relations
from bayesmtfs.gibbs.cells import CellMoments, Gaps, cell_summary, complete, gaps_of, row_model, together
from bayesmtfs.gibbs.common_noise import find_factors
from bayesmtfs.gibbs.spike import sample_spike_chain
from bayesmtfs.gibbs.spike_state import SpikeDraws
from bayesmtfs.posterior import variational
from bayesmtfs.posterior.diagnostics import LARGEST_GAP, Diagnostics, diagnose
from bayesmtfs.posterior.preparation import FLOOR_ROWS, chosen_features, fits_exactly, screen, with_noise_floor
from bayesmtfs.posterior.tree import (
    DIMENSIONS,
    DrawnCells,
    SampledDraws,
    build_tree,
    fixed_variables,
    in_user_units,
    stacked,
    with_all_features,
    without,
)
from bayesmtfs.priors.hyperpriors import Hyperprior, hyperprior_for
from bayesmtfs.priors.spike import SpikePrior, spike_prior_for
from bayesmtfs.progress import Progress
from bayesmtfs.types import BoolArray, FloatArray, SelectionWarning, warn

Report = Callable[[float], None]
POLL = 0.1  # seconds between looks at the chains
SPIKE_SWEEPS = 3  # for each draw under the prior with exact zeros
SHORT_TUNE, SHORT_DRAWS = 100, 250  # sweeps of the chains over the features of a variational fit; before, and kept
SHORT_VISITS = 50_000  # with few such features more sweeps are kept, as many as make this many visits of a row


@dataclass(frozen=True)
class PosteriorRequest:
    """What to sample, and how.

    Attributes
    ----------
    prior : "spike", "generalized_normal", "jeffreys", "matrix_variate", "mixed_norm" or "horseshoe"
    family : of the targets
    norm_q : q, None to learn it
    sampler : "auto", "gibbs", "nuts" or "variational"
    draws, tune, chains : numbers, the first two per chain
    random_seed : the same seed gives the same draws
    fit_intercept : one intercept per task
    standardize : scale features within each task
    scale_target : scale targets within each task, not by what is pooled over the tasks
    max_features : above that, features are screened; None never does
    penalty_strength : of the mixed norm; None takes a tenth of the largest sensible one
    relation_concentration : of the matrix-variate prior
    target_accept : of NUTS
    n_jobs, progress : chains at once, progress bar
    """

    prior: str = "generalized_normal"
    family: Family = Gaussian()
    norm_q: float | None = 2.0
    sampler: str = "auto"
    draws: int = 1000
    tune: int = 1000
    chains: int = 4
    random_seed: int = 0
    fit_intercept: bool = True
    standardize: bool = False
    scale_target: bool = False
    max_features: int | None = 1000
    penalty_strength: float | None = None
    relation_concentration: float = 2.0
    target_accept: float = 0.9
    n_jobs: int | None = None
    progress: bool | None = None

    @property
    def centred(self) -> bool:
        """Whether features count about their means: where there is an intercept, or something in its place."""
        return self.fit_intercept or self.family.free_level


class PosteriorFit(NamedTuple):
    """A posterior in the user's units."""

    data: TaskData  # that were sampled, missing cells of features filled by one draw

    tree: Any  # xarray.DataTree
    draws: SampledDraws  # with the features of the tree
    diagnostics: Diagnostics
    in_tree: BoolArray  # (p,) which features the tree has
    screened_out: BoolArray  # (p,) features that were not sampled because there were too many
    penalty_strength: float | None  # of the mixed norm
    row_model: RowModel | None  # of missing cells of features that were drawn


class MissingCells(NamedTuple):
    """Cells of features to draw."""

    missing: BoolArray  # (n, p')
    shrinkage: float


def sample_posterior(data: TaskData, request: PosteriorRequest, **stated: Any) -> PosteriorFit:
    """Sample the posterior of data.

    Parameters
    ----------
    data : observations in the user's units; y is numeric, -1 and +1 for labels; NaN in the design is a cell to draw
    request : what to sample, and how
    **stated : parameters of `bayesmtfs.priors.hyperpriors.hyperprior_for`, in units of sampling
    """
    family, given = request.family, data
    means = learn_means(data) if has_gaps(data) else None
    if means is not None:
        _check_draws_cells(data, request)
        data = filled(data, means, np.arange(data.n_tasks))
    comparable = rescale(data, standardize=False, scale_target=request.scale_target, centred=request.centred).data
    varying = screen(comparable, family, request.fit_intercept, None)
    kept = _kept(data, comparable, varying, request, stated)
    if not kept.any():  # nothing varies: the posterior of the coefficients is their prior
        varying = kept = np.ones_like(kept)
    screened_out = varying & ~kept
    _warn_of_screening(screened_out)
    _check_room(request, int(kept.sum()), data.n_tasks)
    chosen, cells = chosen_features(data, kept).dense(), None
    missing = np.isnan(given.design[:, kept]) if means is not None else np.zeros(0, dtype=bool)
    with one_thread() if missing.any() else nullcontext():  # chains run side by side, and cells take small matrices
        if missing.any():
            data, cells = _with_filled_cells(data, kept, missing)
            chosen = chosen_features(data, kept)
        units, scaled = scaled_data(chosen, request, shared=cells is not None and data.shared_design)
        draws, penalty = _run(scaled, request, stated, _n_rows(data, screened_out), cells)
    if request.prior == "horseshoe":
        draws = without(draws, "norm_q")  # its row scales are deviations, not those of GN(0, rho, 2)
    diagnostics = diagnose(draws, labels=family.targets == "labels")
    draws = in_user_units(draws, units, request.fit_intercept)
    # Features that do not vary come back as zeros; those that were screened out would only take up memory
    in_tree = ~screened_out
    whole = chosen_features(data, in_tree).dense()
    model = drawn = None
    if draws.cells is not None and means is not None:
        model = row_model(*draws.cells, units.feature_centre.T, units.feature_scale.T)
        drawn = _drawn_cells(draws.cells, given, in_tree, kept, means, model, units)
    draws = with_all_features(draws, kept[in_tree])
    unit = effect_unit(whole, family.in_target_units, request.centred)
    tree = build_tree(
        draws,
        whole,
        family,
        _whole_units(units, kept[in_tree], whole),
        unit,
        request.random_seed,
        _attributes(request, stated, int(screened_out.sum()), penalty),
        drawn,
    )
    model = None if model is None else model._replace(features=np.flatnonzero(kept))
    return PosteriorFit(data, tree, draws, diagnostics, in_tree, screened_out, penalty, model)


def choose_sampler(data: TaskData, request: PosteriorRequest, shared_mean: bool = False) -> str:
    """Name of the sampler that is used for data after screening: "gibbs", "nuts" or "variational"."""
    family, norm_q = request.family, "learn" if request.norm_q is None else request.norm_q
    if request.prior == "spike":
        return _spike_sampler(data, request)
    related = relations.samples_relations(data, family, request.prior, request.norm_q)
    gibbs = related or (gibbs_posterior.supports(data, family, request.prior) and not (family.coupled and shared_mean))
    sampler = ("gibbs" if gibbs else "nuts") if request.sampler == "auto" else request.sampler
    if sampler == "nuts":
        family.require("NUTS", "pymc_dist")
    if sampler == "gibbs" and not gibbs:
        if family.class_augmentation is None:
            family.require("sampler='gibbs'", "augmentation")
        raise ValueError(
            f"sampler='gibbs' does not have prior={request.prior!r} with loss={family.name!r} and norm_q={norm_q!r}; it "
            "samples prior='generalized_normal' and 'jeffreys', and 'matrix_variate' at norm_q=2, with labels only with "
            "sample weights that are whole numbers, and several classes within tasks without shared_mean: use "
            "sampler='nuts' or 'auto'"
        )
    if sampler == "variational":
        raise ValueError(
            f"sampler='variational' does not have prior={request.prior!r}; it needs prior='spike', norm_q=2 and no "
            "shared_mean: use that prior, or sampler='auto'"
        )
    return sampler


def _check_draws_cells(data: TaskData, request: PosteriorRequest) -> None:
    """Refuse missing cells where no Gibbs sampler would draw them."""
    sampler = choose_sampler(data, request)
    if sampler != "gibbs":
        raise ValueError(
            f"impute='model' draws missing cells of features in a Gibbs sampler, but prior={request.prior!r} with "
            f"loss={request.family.name!r} takes the sampler {sampler!r}; use impute='task_mean', or sampler='gibbs' with "
            "prior='spike' or 'generalized_normal' and a family that is normal given a hidden precision"
        )
    if request.family.coupled:
        raise ValueError(
            f"impute='model' does not draw cells of features under loss={request.family.name!r}, whose rows share a loss; "
            "use impute='task_mean'"
        )


def _spike_sampler(data: TaskData, request: PosteriorRequest) -> str:
    """Refuse what the sampler of the prior "spike" does not have."""
    if request.sampler not in ("auto", "gibbs", "variational"):
        raise ValueError(
            f"sampler={request.sampler!r} does not have prior='spike', whose indicators are discrete; use 'auto', 'gibbs' "
            "or 'variational'"
        )
    if request.family.augmentation is None:
        raise ValueError(
            f"loss={request.family.name!r} does not go with prior='spike', which needs a family that is normal given a "
            "hidden precision, such as 'squared', 'logistic', 'negative_binomial(learn)' or 'student_t'; use one of them, "
            "or another prior"
        )
    if request.sampler == "variational":
        if data.eta_offset is not None:
            raise ValueError("sampler='variational' does not know an offset; use sampler='gibbs'")
        if not variational.supports(request.family):
            raise ValueError(
                f"sampler='variational' does not have loss={request.family.name!r}, but normal targets and labels; use "
                "sampler='gibbs'"
            )
        return "variational"
    gibbs_posterior.conditionally_normal(data, request.family)
    return "gibbs"


# ---------------------------------------------------------------------- preparations


def _kept(
    data: TaskData, comparable: TaskData, varying: BoolArray, request: PosteriorRequest, stated: dict[str, Any]
) -> BoolArray:
    """(p,) Which of the features that vary to sample."""
    family, most = request.family, request.max_features
    if most is None or varying.sum() <= most:
        return varying
    if request.prior != "spike" or not variational.supports(family) or data.eta_offset is not None:
        return screen(comparable, family, request.fit_intercept, most)
    scaled = scaled_data(chosen_features(data, varying).dense(), request)[1]
    prior, kept = _spike_prior(scaled, request, stated, 0), varying.copy()
    fitted = variational.fit(scaled, family, prior, request.progress)
    if fitted.found.interrupted:
        raise KeyboardInterrupt
    kept[varying] = variational.features_to_draw(fitted, most)
    return kept


def _check_room(request: PosteriorRequest, n_features: int, n_tasks: int) -> None:
    """Refuse draws that do not fit into memory before they are made; they are copied once."""
    shape = (2, request.chains, request.draws, n_features, n_tasks)
    try:
        np.empty(shape)
    except (MemoryError, ValueError):  # the latter for more numbers than can be counted
        size = f"{8e-9 * np.prod(shape, dtype=float):.3g} GB"
        raise ValueError(
            f"draws is {request.draws} in {request.chains} chains, which for {n_features} features and {n_tasks} tasks "
            f"takes {size} of memory, more than there is; use fewer draws, or max_features=1000 to sample the "
            "most promising features only"
        ) from None


def scaled_data(data: TaskData, request: PosteriorRequest, shared: bool = False) -> tuple[SamplingUnits, TaskData]:
    """Units of sampling, and the data in them; ``shared``: features have the same units in all tasks."""
    if request.prior == "mixed_norm":  # a stated model of the user's own units, whose mode is the penalised fit
        scaled, feature, target = rescale(data, request.standardize, request.scale_target, request.centred)
        return plain_units(np.broadcast_to(feature, (data.n_features, data.n_tasks)), target), scaled
    units = sampling_units(
        data,
        centre=request.centred,
        per_task=request.standardize,
        scale_target=request.family.has_noise,
        own_targets=request.scale_target,
    )
    if shared:
        common = (np.mean(part, axis=1, keepdims=True) for part in (units.feature_centre, units.feature_scale))
        centre, scale = (np.broadcast_to(part, (data.n_features, data.n_tasks)) for part in common)
        units = replace(units, feature_centre=centre, feature_scale=scale)
    return units, in_sampling_units(data, units)


def _with_filled_cells(data: TaskData, kept: BoolArray, missing: BoolArray) -> tuple[TaskData, MissingCells]:
    """Data whose missing cells of some features are what a chain begins with, and which cells these are."""
    found, shrinkage = complete(chosen_features(data, kept).dense(), missing)
    design = np.array(data.design, dtype=np.float64)
    design[:, kept] = found.design
    return replace(data, design=design), MissingCells(missing, shrinkage)


def _drawn_cells(
    found: tuple[CellMoments, Gaps],
    given: TaskData,
    in_tree: BoolArray,
    kept: BoolArray,
    means: TaskMeans,
    model: RowModel,
    units: SamplingUnits,
) -> DrawnCells:
    """What is known of the missing cells, in the user's units and with the features of the tree."""
    moments, gaps = found
    (row, feature), (mean, deviation) = gaps.cells, cell_summary(moments)
    centre, scale = (part[feature, gaps.group[row]] for part in (units.feature_centre, units.feature_scale))
    place = np.zeros(len(given.design), dtype=np.int64)
    place[given.rows] = given.order // (given.n_tasks if given.shared_design else 1)
    own = TaskMeans(means.means[:, in_tree], means.overall[in_tree])
    features = np.flatnonzero(kept[in_tree])
    return DrawnCells(
        design=given.design[:, in_tree],
        filling=Filling(own, model._replace(features=features)),
        row=place[row],
        feature=features[feature],
        mean=centre + scale * mean,
        deviation=scale * deviation,
    )


def _whole_units(units: SamplingUnits, kept: BoolArray, whole: TaskData) -> SamplingUnits:
    """Units for all features of the tree, those that do not vary included."""
    shape = (whole.n_features, whole.n_tasks)
    centre, scale = np.zeros(shape), np.ones(shape)
    centre[kept], scale[kept] = units.feature_centre, units.feature_scale
    return SamplingUnits(centre, scale, units.target_centre, units.target_scale)


def _n_rows(data: TaskData, chosen: BoolArray) -> int:
    """Number of features, or groups, among those chosen."""
    return int(chosen.sum()) if data.groups is None else len(np.unique(data.groups[chosen]))


def _warn_of_screening(screened_out: BoolArray) -> None:
    if screened_out.any():
        warn(
            f"{int(screened_out.sum())} of {len(screened_out)} features were screened out before sampling, and the "
            "posterior says nothing about them (their coefficients are 0); raise max_features, or set it to None to "
            "sample them all",
            SelectionWarning,
        )


def _attributes(
    request: PosteriorRequest, stated: dict[str, Any], n_screened: int, penalty: float | None
) -> dict[str, Any]:
    """Settings as plain values at the root of the tree."""
    known = {
        "prior": request.prior,
        "loss": request.family.name,
        "norm_q": "learn" if request.norm_q is None else str(request.norm_q),
        "draws": request.draws,
        "tune": request.tune,
        "chains": request.chains,
        "seed": request.random_seed,
        "screened_out": n_screened,
    }
    hyper = {f"hyper_{name}": str(value) for name, value in stated.items()}
    return known | hyper | ({} if penalty is None else {"penalty_strength": penalty})


# ---------------------------------------------------------------------- samplers


def hyperprior_of(data: TaskData, request: PosteriorRequest, **stated: Any) -> Hyperprior:
    """Hyperprior of the request, with what depends on the data filled in."""
    kind = "log_uniform" if request.prior == "jeffreys" else "beta_prime"
    prior = hyperprior_for(data, request.family, kind=kind, fit_intercept=request.fit_intercept, **stated)
    return replace(prior, fit_intercept=False) if request.family.has_cuts else prior  # which stand in their place


def _run(
    data: TaskData, request: PosteriorRequest, stated: dict[str, Any], n_left_out: int, cells: MissingCells | None
) -> tuple[SampledDraws, float | None]:
    sampler = choose_sampler(data, request, bool(stated.get("shared_mean")))
    if request.prior == "mixed_norm":
        # PyMC takes seconds to load, which a Gibbs fit need not wait for
        from bayesmtfs.posterior.nuts import sample_mixed_norm

        return sample_mixed_norm(data, request)
    if request.prior == "spike":
        if sampler == "variational":
            return _variational(data, request, stated, n_left_out), None
        return _spike(data, request, stated, n_left_out, cells=cells), None
    prior = hyperprior_of(data, request, **stated)
    if sampler == "gibbs":
        return _gibbs(data, prior, request, cells), None
    from bayesmtfs.posterior.nuts import sample_model

    return sample_model(data, prior, request), None


def _gibbs(
    data: TaskData, prior: Hyperprior, request: PosteriorRequest, cells: MissingCells | None = None
) -> SampledDraws:
    family = request.family
    has_floor = family.quadratic and fits_exactly(data, request.fit_intercept)  # other scales have a floor of their own
    gaps = None if cells is None else gaps_of(data, *cells, added=FLOOR_ROWS if has_floor else 0)
    if has_floor:
        data = with_noise_floor(data)
    seeds = np.random.SeedSequence(request.random_seed).generate_state(request.chains)
    related = request.prior == "matrix_variate"
    sweeps = (
        relations.sweeps_per_draw(family) if related else gibbs_posterior.sweeps_per_draw(data, request.norm_q, family)
    )

    def run(chain: int, report: Report) -> gibbs_posterior.PosteriorDraws:
        seed = int(seeds[chain])
        settings = gibbs_posterior.ChainSettings(request.draws, request.tune, seed, request.norm_q, sweeps)
        if related:
            eta = request.relation_concentration
            return relations.sample_related_chain(data, prior, settings, eta, family, report, gaps)
        return gibbs_posterior.sample_chain(data, prior, settings, report, loss=family, gaps=gaps)

    chains = run_chains(run, request.chains, request.n_jobs, request.progress, size_of(data))
    fields = {"coef": "W", "intercept": "intercept"} | ({"noise": "noise"} if family.has_noise else {})
    fields |= {"row_scale": "row_scales", "norm_q": "norm_q"}
    fields |= {"global_scale": "global_scale"} if prior.kind == "beta_prime" else {}
    fields |= {"mean_coef": "mean"} if prior.mean_scale > 0.0 else {}
    fields |= {"task_relations": "relations"} if related else {}
    one_task = frozenset(["task_relations"] if data.n_tasks == 1 else [])
    drawn = [{name: getattr(chain, field) for name, field in fields.items()} for chain in chains]
    return SampledDraws(
        sampler="gibbs",
        variables=stacked(drawn) | _learned(family, chains),
        fixed=fixed_variables(prior, learn_q=request.norm_q is None) | one_task,
        interrupted=any(chain.interrupted for chain in chains),
        sweeps=sweeps,
        cells=_cells_of(chains, gaps),
    )


def _cells_of(chains: Sequence[Any], gaps: Gaps | None) -> tuple[CellMoments, Gaps] | None:
    """Moments of missing cells over all chains, and which they are."""
    return None if gaps is None else (together([chain.cells for chain in chains]), gaps)


def _learned(family: Family, chains: Sequence[Any]) -> dict[str, FloatArray]:
    """Dispersion or degrees of freedom, if the family learns them."""
    if family.learned is None:
        return {}
    one_for_all = DIMENSIONS[family.learned] == ()
    return stacked([{family.learned: one.parameter[:, 0] if one_for_all else one.parameter} for one in chains])


def _spike_prior(data: TaskData, request: PosteriorRequest, stated: dict[str, Any], n_left_out: int) -> SpikePrior:
    """Prior with exact zeros of the request, with what depends on the data filled in."""
    known = {name: stated[name] for name in ("expected_features", "shared_noise") if name in stated}
    return spike_prior_for(data, request.family, fit_intercept=request.fit_intercept, n_left_out=n_left_out, **known)


def _variational(data: TaskData, request: PosteriorRequest, stated: dict[str, Any], n_left_out: int) -> SampledDraws:
    """Short chains over the features that a variational fit chooses."""
    family, prior = request.family, _spike_prior(data, request, stated, n_left_out)
    fitted = variational.fit(data, family, prior, request.progress)
    found = fitted.found
    bound = {"evidence_bound": found.state.trace[-1], "evidence_bound_trace": json.dumps(found.state.trace)}
    if found.interrupted or not family.augmentation.takes_weights(data.weight):
        return SampledDraws(
            sampler="variational",
            variables=variational.draws_of(fitted, request.draws, request.chains, request.random_seed),
            fixed=frozenset() if request.fit_intercept else frozenset(["intercept"]),
            interrupted=found.interrupted,
            independent=True,
            message=variational.complaint_of(found),
            attributes=bound,
        )
    kept = variational.features_to_draw(fitted)
    n_off = n_left_out + _n_rows(data, ~kept)
    repeats = -(-request.draws // max(SHORT_DRAWS, SHORT_VISITS // _n_rows(data, kept)))
    short = replace(request, tune=min(request.tune, SHORT_TUNE), draws=-(-request.draws // repeats))
    drawn = with_all_features(_spike(chosen_features(data, kept), short, stated, n_off, sweeps=1), kept)
    gap = float(np.ptp(drawn.variables["included"].max(axis=3).mean(axis=1), axis=0).max(initial=0.0))
    complaints = [variational.complaint_of(found)]
    if gap > LARGEST_GAP + 2.0 / np.sqrt(drawn.n_draws):
        complaints.append(f"chains differ by {gap:.2f} in the inclusion probability of a feature")
    return replace(
        drawn,
        sampler="variational",
        variables={name: _repeated(values, repeats, request.draws) for name, values in drawn.variables.items()},
        statistics={name: _repeated(values, repeats, request.draws) for name, values in drawn.statistics.items()},
        independent=True,
        message="; ".join(complaint for complaint in complaints if complaint),
        attributes=bound | {"drawn_features": int(kept.sum()), "repeats_of_a_draw": repeats},
    )


def _repeated(values: NDArray[Any], times: int, draws: int) -> NDArray[Any]:
    """Every draw as often as that, up to a number of draws."""
    return np.repeat(values, times, axis=1)[:, :draws] if times > 1 else values[:, :draws]


def _spike(
    data: TaskData,
    request: PosteriorRequest,
    stated: dict[str, Any],
    n_left_out: int,
    sweeps: int = SPIKE_SWEEPS,
    cells: MissingCells | None = None,
) -> SampledDraws:
    family, prior = request.family, _spike_prior(data, request, stated, n_left_out)
    gaps = None if cells is None else gaps_of(data, *cells)
    seeds = np.random.SeedSequence(request.random_seed).generate_state(request.chains)
    common = find_factors(data, request.fit_intercept) if family.augmentation.form == NORMAL else None

    def run(chain: int, report: Report) -> SpikeDraws:
        tune = -(-request.tune // sweeps)  # as many sweeps: whole rows are drawn at once, and soon found
        settings = gibbs_posterior.ChainSettings(request.draws, tune, int(seeds[chain]), sweeps=sweeps)
        return sample_spike_chain(data, prior, settings, family, report, common, gaps)

    chains = run_chains(run, request.chains, request.n_jobs, request.progress, size_of(data))
    fields = {"coef": "W", "included": "included", "intercept": "intercept", "inclusion_rate": "inclusion_rate"}
    fields |= {"noise": "noise"} if family.has_noise else {}
    statistics = {"total_log_likelihood": "log_likelihood", "lp": "log_posterior", "n_features": "n_features"}
    drawn = stacked([{name: getattr(one, field) for name, field in (fields | statistics).items()} for one in chains])
    return SampledDraws(
        sampler="gibbs",
        variables={name: drawn[name] for name in fields} | _learned(family, chains),
        statistics={name: drawn[name] for name in statistics},
        fixed=frozenset() if request.fit_intercept else frozenset(["intercept"]),
        interrupted=any(one.interrupted for one in chains),
        sweeps=sweeps,
        cells=_cells_of(chains, gaps),
    )


# ---------------------------------------------------------------------- chains side by side


def size_of(data: TaskData) -> str:
    """What a posterior's time depends on, in words."""
    return f"{data.n_features} features, {data.n_tasks} tasks, {data.n_observations} observations"


def n_workers(n_jobs: int | None, n_chains: int) -> int:
    """How many chains to run at once: None or a negative number for as many as there are cores."""
    cores = os.process_cpu_count() if hasattr(os, "process_cpu_count") else os.cpu_count()
    wanted = (cores or 1) if n_jobs is None or n_jobs < 0 else max(n_jobs, 1)
    return min(wanted, n_chains)


def run_chains[Chain](
    run: Callable[[int, Report], Chain], n_chains: int, n_jobs: int | None, progress: bool | None, size: str = ""
) -> list[Chain]:
    """Run chains and give what they return, in order.

    ``run`` takes the number of the chain and a function to report the finished fraction to; on ``KeyboardInterrupt`` from
    the report it returns what it has. ``size`` is said with the time that it will take.
    """
    board, pool = _Board(n_chains), ThreadPoolExecutor(n_workers(n_jobs, n_chains))
    chains: list[Future[Chain]] = []
    with Progress("sampling", progress, size=size, part="chain") as work:
        for k in range(n_chains):
            chains.append(pool.submit(run, k, board.reporter(k)))
        _watch(chains, board, work)
    if work.interrupted:
        board.stop.set()
    pool.shutdown()
    if len(chains) < n_chains:
        raise KeyboardInterrupt
    return [chain.result() for chain in chains]


class _Board:
    """What the chains have reported, and whether they should stop."""

    def __init__(self, n_chains: int) -> None:
        self.finished = [0.0] * n_chains
        self.stop = threading.Event()

    def reporter(self, chain: int) -> Report:
        def report(fraction: float) -> None:
            self.finished[chain] = fraction
            if self.stop.is_set():
                raise KeyboardInterrupt

        return report


def _watch(chains: list[Future[Any]], board: _Board, work: Progress) -> None:
    waiting = set(chains)
    while waiting:
        done, waiting = wait(waiting, timeout=POLL, return_when="FIRST_EXCEPTION")
        if any(chain.exception() is not None for chain in done):
            board.stop.set()  # the error is raised by result(); the others need not go on
        work.update(sum(board.finished) / len(chains), parts=board.finished)
