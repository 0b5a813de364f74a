"""NUTS by nutpie on the package's own PyMC models, with starts, one progress bar and a Ctrl-C that keeps the draws.

nutpie runs the chains in threads outside Python. Its own progress display is replaced by the package's, and its
statistics are kept under its own names (``diverging``, ``energy``, ``depth``, ...); `diagnostics` knows them.

nutpie refuses to begin, or to look for its step size, where a derivative is exactly 0. Starts are therefore moved a
little off the point estimate, and level ground gets a slope of `TILT`, see `_without_level_ground`.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import nutpie
import pymc as pm
from pymc.model.fgraph import clone_model
from scipy.special import gammaln

from bayesmtfs import models
from bayesmtfs.convex import automatic
from bayesmtfs.convex.problem import Problem
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.posterior.preparation import penalised_fit
from bayesmtfs.posterior.sampling import PosteriorRequest, n_workers
from bayesmtfs.posterior.tree import DIMENSIONS, LEAST_DRAWS, SampledDraws
from bayesmtfs.priors.blocks import Blocks
from bayesmtfs.priors.hyperpriors import Hyperprior
from bayesmtfs.priors.row_penalty import RowPenalty
from bayesmtfs.progress import Progress
from bayesmtfs.types import FloatArray, Solution

JITTERED = (
    *("log_row_scale", "log_row_deviation", "log_global_scale", "log_mean_scale", "log_mean_global_scale"),
    *("inverse_norm_q", "noise", "shared_noise", "degrees", "root_dispersion", "shared_root_dispersion"),
)
MOVED = ("standard_coef", "standard_mean", "intercept")  # off a point at which derivatives vanish
MOVE = 0.01  # of it, in units of sampling
TILT = 1e-10  # of the log-density per unit of an intercept
START_TOL = 1e-4  # of the fit to begin from
STARTS = 100  # tries to find a point to begin from
LEAST_START_NOISE = 0.05
DEFAULT_PENALTY_SHARE = 0.1
MAX_DEPTH = 10  # of a trajectory
KEPT_STATISTICS = ("diverging", "energy", "depth", "n_steps", "step_size", "logp")


def sample_model(data: TaskData, prior: Hyperprior, request: PosteriorRequest) -> SampledDraws:
    """Sample the model of a prior with learned row scales, from a penalised fit with a small penalty."""
    model = build_model(data, request, prior)
    W, intercept = penalised_fit(data, request.family, request.fit_intercept, tol=START_TOL)
    noise = _residual_noise(data, W, intercept) if request.family.has_noise else None
    norm_q = 2.0 if request.norm_q is None else request.norm_q
    return sample(model, start_values(model, data, W, intercept, noise, norm_q), request)


def sample_mixed_norm(data: TaskData, request: PosteriorRequest) -> tuple[SampledDraws, float]:
    """Sample the model whose mode is the mixed-norm fit, from beside that mode; also gives the penalty strength."""
    assert request.norm_q is not None
    problem = Problem(data, request.family, RowPenalty(0.0, request.norm_q), data.weight, request.fit_intercept)
    penalty = request.penalty_strength
    if penalty is None:
        penalty = DEFAULT_PENALTY_SHARE * problem.largest_penalty or 1.0
    point = _beside(automatic.solve(problem.with_strength(penalty), tol=START_TOL), problem, request.random_seed)
    model = models.mixed_norm_model(
        data, penalty, request.norm_q, request.family, loss_scale="sum", fit_intercept=request.fit_intercept
    )
    start = start_values(model, data, point.W, point.intercept, None, request.norm_q)
    return sample(model, start, request), penalty


def build_model(data: TaskData, request: PosteriorRequest, prior: Hyperprior) -> pm.Model:
    """PyMC model of a prior with learned row scales, for data in sampling units."""
    if request.prior == "horseshoe":
        return models.horseshoe_model(data, request.family, prior=prior)
    norm_q: Any = "learn" if request.norm_q is None else request.norm_q
    if request.prior == "matrix_variate":
        concentration = request.relation_concentration
        return models.matrix_variate_model(
            data, norm_q, request.family, relation_concentration=concentration, prior=prior
        )
    return models.generalized_normal_model(data, norm_q, request.family, prior=prior)


def sample(model: pm.Model, start: dict[str, FloatArray], request: PosteriorRequest) -> SampledDraws:
    """Sample one of the package's models; scales of the start are jittered by up to a factor of e, chain by chain."""
    names = [name for name in DIMENSIONS if name in model.named_vars]
    model = _without_level_ground(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the compilers, about themselves
        jittered = {variable for variable in model.free_RVs if variable.name in JITTERED}
        compiled = nutpie.compile_pymc_model(model, initial_points=start, jitter_rvs=jittered, var_names=names)
    sampler = None
    dims = model.dim_lengths
    size = ", ".join(f"{int(dims[name].eval())} {name}s" for name in ("feature", "task") if name in dims)
    with Progress("sampling (NUTS)", request.progress, size=size, part="chain") as work:
        sampler = nutpie.sample(
            compiled,
            draws=request.draws,
            tune=request.tune,
            chains=request.chains,
            cores=n_workers(request.n_jobs, request.chains),
            seed=request.random_seed,
            save_warmup=False,
            progress_bar=False,
            progress_callback=_reporter(work),
            blocking=False,
            target_accept=request.target_accept,
            maxdepth=MAX_DEPTH,
        )
        tree = _finished(sampler)
    if work.interrupted:
        if sampler is None:
            raise KeyboardInterrupt
        tree = sampler.abort()  # gives the draws so far
    return _as_draws(tree, model, work.interrupted)


def start_values(
    model: pm.Model, data: TaskData, W: FloatArray, intercept: FloatArray, noise: FloatArray | None, norm_q: float
) -> dict[str, FloatArray]:
    """First values of free variables from a point estimate W (p, m), intercept and noise (m,), in sampling units."""
    free = {variable.name for variable in model.free_RVs}
    values = {"intercept": intercept, "coef": W}
    if "standard_mean" in free:
        mean = _row_means(data, W)
        scale = _start_scales(Blocks(data.n_features, 1), mean[:, np.newaxis])
        values |= {"log_mean_scale": np.log(scale), "standard_mean": mean / scale}
        W = W - mean[:, np.newaxis]
    if noise is not None:
        values |= {"noise": noise, "shared_noise": np.asarray(noise.mean())}
    if "standard_coef" in free:
        blocks = Blocks(data.n_features, data.n_tasks, groups=data.groups, present=data.present)
        scale = _start_scales(blocks, W)
        standard = np.clip(W / scale[blocks.row_of_feature][:, np.newaxis], -0.9, 0.9)
        values["standard_coef"] = standard if data.present is None else standard[np.nonzero(data.present)]
        values["log_row_scale"] = np.log(scale)
        values["log_row_deviation"] = np.log(scale) + _log_unit_deviation(norm_q)
    known = {name: np.asarray(value, dtype=np.float64) for name, value in values.items() if name in free}
    return _inside_bounds(_moved_a_little(known), model)


def _moved_a_little(values: dict[str, FloatArray]) -> dict[str, FloatArray]:
    """Values off a point where derivatives vanish: that of a coefficient of 0 does where residuals are all 0."""
    rng = np.random.default_rng(0)
    return {
        name: value + MOVE * rng.uniform(0.5, 1.0, value.shape) if name in MOVED else value
        for name, value in values.items()
    }


def _without_level_ground(model: pm.Model) -> pm.Model:
    """Return the model, or a tilted copy of one with flat intercepts.

    The hinge loss is linear between its kinks, and its slopes in an intercept are whole numbers that cancel: with a flat
    prior there is ground on which nutpie stops. The tilt changes no log-density by more than `TILT` per unit.
    """
    flat = [variable for variable in model.free_RVs if variable.name == "intercept"]
    if "penalty_strength" not in model.named_vars or not flat:
        return model
    tilted = clone_model(model)
    with tilted:
        pm.Potential("tilt", TILT * pm.math.sum(tilted["intercept"]))
    return tilted


def _row_means(data: TaskData, W: FloatArray) -> FloatArray:
    """(p,) Means of the coefficients over the tasks that have the feature."""
    counts = data.n_tasks if data.present is None else np.maximum(data.present.sum(axis=1), 1)
    return np.asarray(W.sum(axis=1) / counts)


def _start_scales(blocks: Blocks, W: FloatArray) -> FloatArray:
    """(R,) Scales at which the entries of a row are at most about one; a little above zero for rows that are out."""
    largest = np.abs(blocks.gather(W)).max(axis=1, initial=0.0)
    typical = float(np.max(largest, initial=0.0)) or 1.0
    return np.maximum(1.2 * largest, 0.02 * typical)


def _log_unit_deviation(q: float) -> float:
    return 0.5 * float(gammaln(1.0 + 3.0 / q) - gammaln(1.0 + 1.0 / q) - np.log(3.0))


def _inside_bounds(values: dict[str, FloatArray], model: pm.Model) -> dict[str, FloatArray]:
    """Leave out values at which the model has no density, such as scales beyond the bounds of the log-uniform prior."""
    bounded = {
        name for name in values if name.startswith(("log_row", "log_mean")) and model.rvs_to_transforms.get(model[name])
    }
    return {name: value for name, value in values.items() if np.all(np.isfinite(value)) and name not in bounded}


def _reporter(work: Progress) -> Callable[[list[Any]], None]:
    def report(chains: list[Any]) -> None:
        done = sum(chain.finished_draws for chain in chains)
        total = sum(chain.total_draws for chain in chains)
        divergences = sum(chain.divergences for chain in chains)
        parts = [chain.finished_draws / max(chain.total_draws, 1) for chain in chains]
        work.update(done / max(total, 1), f"{divergences} divergences" if divergences else "", parts)

    return report


def _finished(sampler: Any) -> Any:
    """Wait for the draws; threads of the sampler must not outlive an error."""
    try:
        return sampler.wait()
    except Exception as error:
        sampler.cancel()
        raise RuntimeError(
            "NUTS found no point to begin from, or could not go on from where it was; look for values in X and y that "
            "are far out, or use another prior or sampler"
        ) from error


def _beside(point: Solution, problem: Problem, random_seed: int) -> Solution:
    """A point near the mode at which no derivative vanishes, which NUTS would not begin from.

    The mode has rows of exact zeros, and the slope of the hinge loss in an intercept is a whole number, often 0.
    """
    rng, data = np.random.default_rng([random_seed, 4]), problem.data
    size = float(np.abs(point.W).mean()) or 1.0
    spread = 1.0 if problem.family.targets == "counts" else float(np.std(data.y))
    moved = point
    for attempt in range(1, STARTS + 1):
        W = point.W + 0.1 * attempt * size * rng.standard_normal(point.W.shape)
        if data.present is not None:
            W = np.where(data.present, W, 0.0)
        intercept = point.intercept + 0.1 * attempt * spread * rng.standard_normal(data.n_tasks)
        moved = point._replace(W=W, intercept=intercept)
        slope = problem.family.gradient(data.y, data.linear_predictor(W, intercept))
        if np.all(problem.task_sums(data.weight * slope) != 0):
            break
    return moved


def _residual_noise(data: TaskData, W: FloatArray, intercept: FloatArray) -> FloatArray:
    """(m,) Root mean square residual of every task, not below a small share of the target's deviation."""
    residual = np.asarray(data.y, dtype=np.float64) - data.linear_predictor(W, intercept)
    squares = np.add.reduceat(data.weight * residual**2, data.offsets[:-1]) / data.task_weights
    return np.maximum(np.sqrt(squares), LEAST_START_NOISE)


def _as_draws(tree: Any, model: pm.Model, interrupted: bool) -> SampledDraws:
    posterior, statistics = tree["posterior"].dataset, tree["sample_stats"].dataset
    complete = _complete_draws(posterior["coef"])
    if complete < LEAST_DRAWS:
        raise KeyboardInterrupt(f"interrupted when a chain had only {complete} draws")
    variables = {
        name: np.asarray(posterior[name].values[:, :complete], dtype=np.float64)
        for name in DIMENSIONS
        if name in posterior
    }
    n_tasks = variables["coef"].shape[-1]
    shape = variables["coef"].shape[:2]
    variables.setdefault("intercept", np.zeros((*shape, n_tasks)))
    if "noise" in model.named_vars and variables.get("noise", np.empty(0)).ndim != 3:  # the number 1
        variables["noise"] = np.ones((*shape, n_tasks))
    return SampledDraws(
        sampler="nuts",
        variables=variables,
        statistics={name: statistics[name].values[:, :complete] for name in KEPT_STATISTICS if name in statistics},
        fixed=frozenset(variables) - _learned_names(model),
        interrupted=interrupted,
    )


def _complete_draws(coef: Any) -> int:
    """Draws that every chain has; an interrupted sampler fills the rest with gaps."""
    seen = np.isfinite(coef.values).all(axis=(2, 3))
    return int(np.min(np.where(seen.all(axis=1), seen.shape[1], np.argmin(seen, axis=1))))


def _learned_names(model: pm.Model) -> set[str]:
    """Names of the variables that depend on something free, also where a chain stands still."""
    free = {variable.name for variable in model.free_RVs}
    learned = {"coef"} | (free & set(DIMENSIONS))
    depends = {
        "norm_q": "inverse_norm_q",
        "global_scale": "log_global_scale",
        "noise": "shared_noise",
        "task_relations": "partial_correlation_share",
        "mean_coef": "standard_mean",
    }
    learned |= {name for name, source in depends.items() if source in free}
    learned |= {"dispersion"} if free & {"root_dispersion", "shared_root_dispersion"} else set()
    if free & {"log_row_scale", "log_row_deviation"}:
        learned.add("row_scale")
    return learned
