"""Draws as a DataTree in ArviZ form: posterior, statistics, predictions, log-likelihood, data, and where it came from.

Groups: ``posterior``, ``sample_stats`` (of NUTS; of other samplers how well a draw fits, ``total_log_likelihood``),
``posterior_predictive``, ``log_likelihood``, ``observed_data``, ``constant_data``. The last two follow the observations in
the order of `TaskData`, sorted by task; their ``obs`` coordinate is the place of each in the user's input (in the wide
form ``row * m + column``). Predictive draws and log-likelihoods are thinned, evenly over the chains, to at
most `LARGEST_GROUP` numbers each: their ``draw`` coordinate says which draws they are. A row's log-likelihood is
multiplied by its sample weight.

What a model holds fixed, such as ``norm_q`` where q is not learned, is in ``constant_data``: it has no chains to compare,
and summaries of draws have nothing to say about it. `with_fixed_variables` puts it back among the draws.
"""

import json
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.special import expit, log_expit

from bayesmtfs.data.scaling import SamplingUnits
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.posterior.between_tasks import between_share, task_means
from bayesmtfs.posterior.draws import DIMENSIONS, Draws
from bayesmtfs.results.fit_result import current_versions
from bayesmtfs.types import FloatArray, IntArray

LARGEST_GROUP = 10_000_000
LEAST_KEPT = 50  # draws per chain, however many observations there are


def build_tree(
    draws: Draws,
    data: TaskData,
    loss: str,
    units: SamplingUnits,
    deviations: FloatArray,
    random_seed: int,
    attributes: dict[str, Any],
) -> xr.DataTree:
    """Put everything about a posterior into one tree.

    Parameters
    ----------
    draws : in the user's units
    data : in the user's units, with the features of the draws; y is -1 and +1 for labels
    loss : "squared", "logistic" or "hinge" (which has neither predictive draws nor a likelihood)
    units : that were used for sampling
    deviations : (p,) standard deviation of each feature over all rows
    random_seed : of the predictive draws
    attributes : settings and numbers to keep at the root
    """
    coords = {
        "chain": np.arange(draws.n_chains),
        "draw": np.arange(draws.n_draws),
        "feature": data.feature_names,
        "task": data.task_names,
    }
    groups = {"/posterior": _posterior(draws, coords)}
    if loss != "hinge":
        groups |= _predictions(draws, data, loss, coords, random_seed)
    if draws.statistics:
        statistics = {name: (("chain", "draw"), values) for name, values in draws.statistics.items()}
        groups["/sample_stats"] = xr.Dataset(statistics, {name: coords[name] for name in ("chain", "draw")})
    elif "/log_likelihood" in groups:  # of a sampler without any: how well each draw fits
        groups["/sample_stats"] = xr.Dataset({"total_log_likelihood": groups["/log_likelihood"]["y"].sum("obs")})
    obs = {"obs": data.order}
    groups["/observed_data"] = xr.Dataset({"y": ("obs", np.asarray(data.y, dtype=np.float64))}, obs)
    groups["/constant_data"] = _constant_data(data, units, deviations, coords | obs).assign(_fixed(draws, coords))
    tree = xr.DataTree.from_dict(groups)
    tree.attrs = {
        "inference_library": "bayesmtfs",
        "inference_library_version": current_versions().get("bayesmtfs", "unknown"),
        "versions": json.dumps(current_versions()),
        "sampler": draws.sampler,
        "sweeps_per_draw": draws.sweeps,
        "interrupted": int(draws.interrupted),
        **attributes,
    }
    return tree


def with_fixed_variables(tree: xr.DataTree) -> xr.Dataset:
    """Give the draws of all variables, those that the model holds fixed repeated draw by draw.

    Parameters
    ----------
    tree : from `build_tree`, or any other in ArviZ form

    Examples
    --------
    >>> draws = xr.Dataset({"coef": (("chain", "draw"), np.zeros((2, 3)))})
    >>> tree = xr.DataTree.from_dict({"posterior": draws, "constant_data": xr.Dataset({"norm_q": 2.0})})
    >>> with_fixed_variables(tree)["norm_q"].values
    array([[2., 2., 2.],
           [2., 2., 2.]])
    """
    posterior: xr.Dataset = tree["posterior"].dataset
    if "constant_data" not in tree.children:
        return posterior
    constant, sample = tree["constant_data"].dataset, {name: posterior.sizes[name] for name in ("chain", "draw")}
    fixed = [name for name in DIMENSIONS if name in constant and name not in posterior]
    return posterior.assign({name: constant[name].expand_dims(sample) for name in fixed})


def _is_drawn(draws: Draws, name: str) -> bool:
    return name in DIMENSIONS and (name == "coef" or name not in draws.fixed)


def _fixed(draws: Draws, coords: dict[str, Any]) -> xr.Dataset:
    """Variables that are the same in every draw."""
    variables = {
        name: (DIMENSIONS[name], values[0, 0])
        for name, values in draws.variables.items()
        if name in DIMENSIONS and not _is_drawn(draws, name)
    }
    axes = {axis for name in variables for axis in DIMENSIONS[name]}
    named = coords | {"task_bis": coords["task"]}
    return xr.Dataset(variables, {axis: named[axis] for axis in axes})


def _posterior(draws: Draws, coords: dict[str, Any]) -> xr.Dataset:
    variables = {
        name: (("chain", "draw", *DIMENSIONS[name]), values)
        for name, values in draws.variables.items()
        if _is_drawn(draws, name)
    }
    relations = {"task_bis": coords["task"]} if "task_relations" in variables else {}
    dataset = xr.Dataset(variables, coords | relations)
    for name in ("coef", "mean_coef"):
        if name in dataset:
            dataset[name].attrs["units"] = "of the target per unit of the feature"
    if "global_scale" in dataset:
        dataset["global_scale"].attrs["units"] = "sd(target) / sd(feature)"
    return dataset


def _constant_data(data: TaskData, units: SamplingUnits, deviations: FloatArray, coords: dict[str, Any]) -> xr.Dataset:
    variables = {
        "task_index": ("obs", data.task),
        "weight": ("obs", data.weight),
        "feature_deviation": ("feature", deviations),
        "feature_centre": (("feature", "task"), units.feature_centre),
        "feature_scale": (("feature", "task"), units.feature_scale),
        "feature_mean": (("feature", "task"), task_means(data)),
        "between_share": ("feature", between_share(data)),
        "target_centre": ((), units.target_centre),
        "target_scale": ((), units.target_scale),
    }
    return xr.Dataset(variables, {name: coords[name] for name in ("obs", "feature", "task")})


def _predictions(
    draws: Draws, data: TaskData, loss: str, coords: dict[str, Any], random_seed: int
) -> dict[str, xr.Dataset]:
    """Predictive draws and log-likelihoods of the observations, at some of the draws."""
    kept = kept_draws(draws, data.n_observations)
    eta = linear_predictors(data, *(draws.variables[name][:, kept] for name in ("coef", "intercept")))
    rng = np.random.default_rng([random_seed, 1])
    y = np.asarray(data.y, dtype=np.float64)
    if loss == "squared":
        noise = draws.variables["noise"][:, kept][:, :, data.task]
        predicted = eta + noise * rng.standard_normal(eta.shape)
        log_density = -0.5 * ((y - eta) / noise) ** 2 - np.log(noise) - 0.5 * np.log(2.0 * np.pi)
    else:
        predicted = np.where(rng.random(eta.shape) < expit(eta), 1.0, -1.0)
        log_density = log_expit(y * eta)
    some = {"chain": coords["chain"], "draw": coords["draw"][kept], "obs": data.order}
    dims = ("chain", "draw", "obs")
    return {
        "/posterior_predictive": xr.Dataset({"y": (dims, predicted)}, some),
        "/log_likelihood": xr.Dataset({"y": (dims, data.weight * log_density)}, some),
    }


def kept_draws(draws: Draws, n_observations: int) -> IntArray:
    """Numbers of the draws at which predictions are stored."""
    most = max(LARGEST_GROUP // max(draws.n_chains * n_observations, 1), LEAST_KEPT)
    if draws.n_draws <= most:
        return np.arange(draws.n_draws)
    return np.linspace(0, draws.n_draws - 1, most).astype(np.int64)


def linear_predictors(data: TaskData, coef: FloatArray, intercept: FloatArray) -> FloatArray:
    """(chains, draws, N) Linear predictor of every observation at every draw."""
    shape = coef.shape[:2]
    W = coef.reshape(-1, *coef.shape[2:])
    b = intercept.reshape(-1, intercept.shape[-1])
    eta: NDArray[np.float64] = np.empty((len(W), data.n_observations))
    for t, (X, (start, stop)) in enumerate(zip(data.task_designs, data.spans, strict=True)):
        eta[:, start:stop] = np.asarray(X @ W[:, :, t].T).T + b[:, t : t + 1]
    return eta.reshape(*shape, -1)
