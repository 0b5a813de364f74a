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
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.posterior.draws import DIMENSIONS, LEAST_DRAWS, Draws
from bayesmtfs.posterior.parallel import n_workers
from bayesmtfs.priors.blocks import Blocks
from bayesmtfs.priors.hyperpriors import Hyperprior
from bayesmtfs.progress import Progress
from bayesmtfs.types import FloatArray

JITTERED = ("log_row_scale", "log_row_deviation", "log_global_scale", "inverse_norm_q", "noise", "shared_noise")
MOVED = ("standard_coef", "mean_coef", "intercept")  # off a point at which derivatives vanish
MOVE = 0.01  # of it, in units of sampling
TILT = 1e-10  # of the log-density per unit of an intercept
KEPT_STATISTICS = ("diverging", "energy", "depth", "n_steps", "step_size", "logp")


def build_model(
    data: TaskData,
    prior: str,
    loss: str,
    norm_q: float | None,
    hyperprior: Hyperprior,
    relation_concentration: float = 2.0,
) -> pm.Model:
    """PyMC model of a prior with learned row scales.

    Parameters
    ----------
    data : observations in sampling units
    prior : "generalized_normal", "jeffreys", "matrix_variate" or "horseshoe"
    loss : "squared" or "logistic"
    norm_q : q, None to learn it
    hyperprior : of scales, noise and intercepts
    relation_concentration : of the task correlations of the matrix-variate prior
    """
    if prior == "horseshoe":
        return models.horseshoe_model(data, loss, prior=hyperprior)
    shape: Any = "learn" if norm_q is None else norm_q
    if prior == "matrix_variate":
        concentration = relation_concentration
        return models.matrix_variate_model(data, shape, loss, relation_concentration=concentration, prior=hyperprior)
    return models.generalized_normal_model(data, shape, loss, prior=hyperprior)


def sample(
    model: pm.Model,
    start: dict[str, FloatArray],
    draws: int,
    tune: int,
    chains: int,
    random_seed: int,
    n_jobs: int | None = None,
    target_accept: float = 0.9,
    max_depth: int = 10,
    progress: bool | None = None,
) -> Draws:
    """Sample a model.

    Parameters
    ----------
    model : one of the package's models
    start : first values of free variables, by name; scales are jittered by up to a factor of e, chain by chain
    draws, tune, chains : numbers
    random_seed : the same seed gives the same draws
    n_jobs : chains at once
    target_accept, max_depth : of NUTS
    progress : see `bayesmtfs.progress.Progress`
    """
    names = [name for name in DIMENSIONS if name in model.named_vars]
    model = _without_level_ground(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the compilers, about themselves
        jittered = {variable for variable in model.free_RVs if variable.name in JITTERED}
        compiled = nutpie.compile_pymc_model(model, initial_points=start, jitter_rvs=jittered, var_names=names)
    cores = n_workers(n_jobs, chains)
    with Progress("sampling (NUTS)", progress) as bar:
        sampler = nutpie.sample(
            compiled,
            draws=draws,
            tune=tune,
            chains=chains,
            cores=cores,
            seed=random_seed,
            save_warmup=False,
            progress_bar=False,
            progress_callback=_reporter(bar),
            blocking=False,
            target_accept=target_accept,
            maxdepth=max_depth,
        )
        tree, interrupted = _finished(sampler)
    return _as_draws(tree, model, interrupted)


def start_values(
    model: pm.Model, data: TaskData, W: FloatArray, intercept: FloatArray, noise: FloatArray | None, norm_q: float
) -> dict[str, FloatArray]:
    """First values of a model's free variables from a point estimate, in sampling units.

    Parameters
    ----------
    model : one of the package's models
    data : its observations
    W, intercept, noise : (p, m), (m,) and (m,) or None
    norm_q : q at the start
    """
    free = {variable.name for variable in model.free_RVs}
    values = {"intercept": intercept, "coef": W}
    if "mean_coef" in free:
        values["mean_coef"] = _row_means(data, W)
        W = W - values["mean_coef"][:, np.newaxis]
    if noise is not None:
        values |= {"noise": noise, "shared_noise": np.asarray(noise.mean())}
    if "standard_coef" in free:
        scale = _start_scales(data, W, norm_q)
        blocks = Blocks(data.n_features, data.n_tasks, groups=data.groups, present=data.present)
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


def _start_scales(data: TaskData, W: FloatArray, norm_q: float) -> FloatArray:
    """(R,) Scales at which the entries of a row are at most about one; a little above zero for rows that are out."""
    blocks = Blocks(data.n_features, data.n_tasks, groups=data.groups, present=data.present)
    largest = np.abs(blocks.gather(W)).max(axis=1, initial=0.0)
    typical = float(np.max(largest, initial=0.0)) or 1.0
    return np.maximum(1.2 * largest, 0.02 * typical)


def _log_unit_deviation(q: float) -> float:
    return 0.5 * float(gammaln(1.0 + 3.0 / q) - gammaln(1.0 + 1.0 / q) - np.log(3.0))


def _inside_bounds(values: dict[str, FloatArray], model: pm.Model) -> dict[str, FloatArray]:
    """Leave out values at which the model has no density, such as scales beyond the bounds of the log-uniform prior."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            name: value
            for name, value in values.items()
            if np.all(np.isfinite(value)) and not (name.startswith("log_row") and _bounded(model, name))
        }


def _bounded(model: pm.Model, name: str) -> bool:
    return model.rvs_to_transforms.get(model[name]) is not None


def _reporter(bar: Progress) -> Callable[[list[Any]], None]:
    def report(chains: list[Any]) -> None:
        done = sum(chain.finished_draws for chain in chains)
        total = sum(chain.total_draws for chain in chains)
        divergences = sum(chain.divergences for chain in chains)
        bar.update(done / max(total, 1), f"{divergences} divergences" if divergences else "")

    return report


def _finished(sampler: Any) -> tuple[Any, bool]:
    """Wait for the draws, or take those that there are when the user presses Ctrl-C."""
    try:
        return sampler.wait(), False
    except KeyboardInterrupt:
        return sampler.abort(), True
    except Exception as error:
        sampler.cancel()  # its threads must not outlive the error
        raise RuntimeError(
            "NUTS found no point to begin from, or could not go on from where it was; look for values in X and y that "
            "are far out, or use another prior or sampler"
        ) from error
    except BaseException:
        sampler.cancel()
        raise


def _as_draws(tree: Any, model: pm.Model, interrupted: bool) -> Draws:
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
    if variables.get("noise", np.empty(0)).ndim != 3:
        variables["noise"] = np.ones((*shape, n_tasks))
    return Draws(
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
    }
    learned |= {name for name, source in depends.items() if source in free}
    if free & {"log_row_scale", "log_row_deviation"}:
        learned.add("row_scale")
    return learned
