"""Draws on their way from a sampler to the user, and as a DataTree in ArviZ form with all that belongs to them.

Samplers work on data in `data.scaling.SamplingUnits` and on the features that `preparation` left; they all give
`SampledDraws`, and `in_user_units` brings those to the user's units, where ``coef`` given ``mean_coef``, ``row_scale`` and
``norm_q`` has the distribution that it was sampled under.

Groups: ``posterior``, ``sample_stats`` (of NUTS; of other samplers how well a draw fits, ``total_log_likelihood``),
``posterior_predictive``, ``log_likelihood``, ``observed_data``, ``constant_data``. The last two follow the observations in
the order of `TaskData`, sorted by task; their ``obs`` coordinate is the place of each in the user's input (in the wide
form ``row * m + column``). Predictive draws and log-likelihoods are thinned, evenly over the chains, to at
most `LARGEST_GROUP` numbers each: their ``draw`` coordinate says which draws they are. A row's log-likelihood is
multiplied by its sample weight.

What a model holds fixed, such as ``norm_q`` where q is not learned, is in ``constant_data``: it has no chains to compare,
and summaries of draws have nothing to say about it. `with_fixed_variables` puts it back among the draws.

Correlations of the features within tasks are there for `bayesmtfs.selection.credible_sets`, of up to `MOST_CORRELATED`
features.

How features differ between tasks is there too, since a prediction for a new task has to know: with x_ti the rows of task
t, a feature is taken as ``x = c + u_t + e`` with a level u of the task and a deviation e of the row, of variances v_b and
v_w. One row of a new task says of its level ``E[u | x] = v_b / (v_b + v_w) (x - c)``; the variances are those of a one-way
analysis of variance, with N the sum of the weights,

    v_w = SS_within / (N - m),    v_b = max(SS_between / N - v_w m / N, 0).

`predictive_checks` asks whether the model makes data like the data: for a statistic T of a task's targets it gives
``P(T(y_new) >= T(y) | data)`` with y_new a posterior predictive draw (Gelman, Meng and Stern 1996, *Statistica Sinica*
6:733-807). Values near 0 or 1 say that the model does not make what was seen; values near 1/2 are no proof that it does,
since the data were used twice.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from bayesmtfs.data.gaps import Filling, filled
from bayesmtfs.data.scaling import SamplingUnits, column_means
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import Family, with_offset
from bayesmtfs.gibbs.cells import CellMoments, Gaps
from bayesmtfs.priors.hyperpriors import Hyperprior
from bayesmtfs.results.fit_result import current_versions
from bayesmtfs.results.tables import Backend, as_frame
from bayesmtfs.types import BoolArray, FloatArray, IntArray

# Dimensions of a variable after chain and draw
DIMENSIONS: dict[str, tuple[str, ...]] = {
    "coef": ("feature", "task"),
    "included": ("feature", "task"),
    "inclusion_rate": (),
    "mean_coef": ("feature",),
    "intercept": ("task",),
    "noise": ("task",),
    "dispersion": ("task",),
    "degrees": (),
    "thresholds": ("task", "cut"),
    "row_scale": ("feature",),
    "global_scale": (),
    "norm_q": (),
    "slab_scale": (),
    "task_relations": ("task", "task_bis"),
}
POSITIVE = ("noise", "dispersion", "degrees", "inclusion_rate", "row_scale", "global_scale", "norm_q", "slab_scale")
LEAST_DRAWS = 4  # fewer per chain say nothing
LARGEST_GROUP = 10_000_000
LEAST_KEPT = 50  # draws per chain, however many observations there are
MOST_CORRELATED = 2000  # features whose correlations the tree keeps: 16 MB
NODES = 15  # of an integral over a normal linear predictor
STATISTICS = ("mean", "sd", "skewness", "smallest", "largest")


@dataclass(frozen=True, eq=False)
class SampledDraws:
    """What a sampler gives.

    Attributes
    ----------
    sampler : its name
    variables : (chains, draws, ...) by name, see `DIMENSIONS`
    statistics : (chains, draws) of the sampler, such as ``diverging``
    fixed : names of variables that the model does not learn
    interrupted : stopped before all draws were made
    independent : whether draws are independent, so that there are no chains to diagnose
    message : anything else that the user should know
    sweeps : of a Gibbs sampler, for each draw
    attributes : further attributes of the tree
    cells : moments of the missing cells of features that were drawn, and which they are
    """

    sampler: str
    variables: dict[str, FloatArray]
    statistics: dict[str, NDArray[Any]] = field(default_factory=dict)
    fixed: frozenset[str] = frozenset()
    interrupted: bool = False
    independent: bool = False
    message: str = ""
    sweeps: int = 1
    attributes: dict[str, Any] = field(default_factory=dict)
    cells: tuple[CellMoments, Gaps] | None = None

    @property
    def n_chains(self) -> int:
        """Number of chains."""
        return int(self.variables["coef"].shape[0])

    @property
    def n_draws(self) -> int:
        """Number of draws per chain."""
        return int(self.variables["coef"].shape[1])


class DrawnCells(NamedTuple):
    """Missing cells of features that were drawn, in the user's units."""

    design: FloatArray  # (n, p) NaN where a cell is missing
    filling: Filling
    row: IntArray  # (C,) place of each in the user's input
    feature: IntArray  # (C,)
    mean: FloatArray  # (C,) over draws
    deviation: FloatArray  # (C,)


def stacked(chains: Sequence[dict[str, FloatArray]]) -> dict[str, FloatArray]:
    """Chains as one array per variable, all cut to the shortest (an interrupted one); all begin at the same draw."""
    shortest = min(len(next(iter(chain.values()))) for chain in chains)
    if shortest < LEAST_DRAWS:
        raise KeyboardInterrupt(f"interrupted when a chain had only {shortest} draws")
    return {name: np.stack([chain[name][:shortest] for chain in chains]) for name in chains[0]}


def fixed_variables(prior: Hyperprior, learn_q: bool) -> frozenset[str]:
    """Names of what the generalized normal rows of a hyperprior do not learn."""
    learned = {"norm_q": learn_q, "global_scale": prior.learn_global_scale, "intercept": prior.fit_intercept}
    return frozenset(name for name, is_learned in learned.items() if not is_learned)


def in_user_units(draws: SampledDraws, units: SamplingUnits, fit_intercept: bool) -> SampledDraws:
    """Draws of data in the user's units.

    ``global_scale`` stays as it is, in units of s_y / s_x (deviations within tasks), in which all features have one.
    """
    variables = dict(draws.variables)
    variables["coef"] = units.coefficients(variables["coef"])
    if fit_intercept:
        variables["intercept"] = units.intercepts(variables["coef"], variables["intercept"])
    if "thresholds" in variables:  # which take the place of intercepts
        variables["thresholds"] = variables["thresholds"] - variables["intercept"][..., np.newaxis]
        variables["intercept"] = np.zeros_like(variables["intercept"])
    for name, factor in (("noise", units.target_scale), ("slab_scale", units.target_scale.mean())):
        if name in variables:
            variables[name] = variables[name] * factor
    for name in ("mean_coef", "row_scale"):
        if name in variables:
            variables[name] = units.rows(variables[name])
    return replace(draws, variables=variables)


def with_all_features(draws: SampledDraws, kept: BoolArray) -> SampledDraws:
    """Zeros for the features that were not sampled."""
    if kept.all():
        return draws
    variables = dict(draws.variables)
    for name in ("coef", "included", "mean_coef", "row_scale"):
        if name in variables:
            partial = variables[name]
            whole = np.zeros((*partial.shape[:2], len(kept), *partial.shape[3:]), dtype=partial.dtype)
            whole[:, :, kept] = partial
            variables[name] = whole
    return replace(draws, variables=variables)


def without(draws: SampledDraws, name: str) -> SampledDraws:
    """Draws without a variable that the model does not have, though its sampler does."""
    return replace(draws, variables={known: values for known, values in draws.variables.items() if known != name})


# ---------------------------------------------------------------------- the tree


def build_tree(
    draws: SampledDraws,
    data: TaskData,
    family: Family,
    units: SamplingUnits,
    effect_unit: FloatArray,
    random_seed: int,
    attributes: dict[str, Any],
    cells: DrawnCells | None = None,
) -> xr.DataTree:
    """Put everything about a posterior into one tree.

    Parameters
    ----------
    draws : in the user's units
    data : in the user's units, with the features of the draws; y is -1 and +1 for labels
    family : of the targets; predictions and log-likelihoods are there where it offers draws and a log-density
    units : that were used for sampling
    effect_unit : (p, m) by which a coefficient becomes an effect (`data.scaling.effect_unit`)
    random_seed : of the predictive draws
    attributes : settings and numbers to keep at the root
    cells : missing cells of features that were drawn
    """
    coords = {
        "chain": np.arange(draws.n_chains),
        "draw": np.arange(draws.n_draws),
        "feature": data.feature_names,
        "task": data.task_names,
    }
    if "thresholds" in draws.variables:
        coords["cut"] = np.arange(draws.variables["thresholds"].shape[-1])
    groups = {"/posterior": _posterior(draws, coords)}
    groups |= _predictions(draws, data, family, coords, random_seed, cells)
    if draws.statistics:
        statistics = {name: (("chain", "draw"), values) for name, values in draws.statistics.items()}
        groups["/sample_stats"] = xr.Dataset(statistics, {name: coords[name] for name in ("chain", "draw")})
    elif "/log_likelihood" in groups:  # of a sampler without any: how well each draw fits
        groups["/sample_stats"] = xr.Dataset({"total_log_likelihood": groups["/log_likelihood"]["y"].sum("obs")})
    obs = {"obs": data.order}
    groups["/observed_data"] = xr.Dataset({"y": ("obs", np.asarray(data.y, dtype=np.float64))}, obs)
    groups["/constant_data"] = _constant_data(data, units, effect_unit, coords | obs).assign(_fixed(draws, coords))
    if cells is not None:
        names = {"row": ("cell", cells.row), "feature": ("cell", data.feature_names[cells.feature])}
        moments = {"mean": ("cell", cells.mean), "deviation": ("cell", cells.deviation)}
        groups["/imputed"] = xr.Dataset(moments, names)
    tree = xr.DataTree.from_dict(groups)
    tree.attrs = {
        "inference_library": "bayesmtfs",
        "inference_library_version": current_versions().get("bayesmtfs", "unknown"),
        "versions": json.dumps(current_versions()),
        "sampler": draws.sampler,
        "sweeps_per_draw": draws.sweeps,
        "interrupted": int(draws.interrupted),
        **draws.attributes,
        **attributes,
    }
    return tree


def with_fixed_variables(tree: xr.DataTree) -> xr.Dataset:
    """Give the draws of all variables of a tree, those that the model holds fixed repeated draw by draw.

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


def _is_drawn(draws: SampledDraws, name: str) -> bool:
    return name in DIMENSIONS and (name == "coef" or name not in draws.fixed)


def _fixed(draws: SampledDraws, coords: dict[str, Any]) -> xr.Dataset:
    """Variables that are the same in every draw."""
    variables = {
        name: (DIMENSIONS[name], values[0, 0])
        for name, values in draws.variables.items()
        if name in DIMENSIONS and not _is_drawn(draws, name)
    }
    axes = {axis for name in variables for axis in DIMENSIONS[name]}
    named = coords | {"task_bis": coords["task"]}
    return xr.Dataset(variables, {axis: named[axis] for axis in axes})


def _posterior(draws: SampledDraws, coords: dict[str, Any]) -> xr.Dataset:
    variables = {
        name: (("chain", "draw", *DIMENSIONS[name]), values.astype(np.int8) if values.dtype == bool else values)
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


def _constant_data(data: TaskData, units: SamplingUnits, effect_unit: FloatArray, coords: dict[str, Any]) -> xr.Dataset:
    variables = {
        "task_index": ("obs", data.task),
        "weight": ("obs", data.weight),
        "effect_unit": (("feature", "task"), effect_unit),
        "feature_centre": (("feature", "task"), units.feature_centre),
        "feature_scale": (("feature", "task"), units.feature_scale),
        "feature_mean": (("feature", "task"), task_means(data)),
        "between_share": ("feature", between_share(data)),
        "target_centre": ("task", units.target_centre),
        "target_scale": ("task", units.target_scale),
    }
    if data.n_features <= MOST_CORRELATED:
        correlations = feature_correlations(data)
        variables["feature_correlation"] = (("feature", "feature_bis"), correlations)
    return xr.Dataset(variables, {name: coords[name] for name in ("obs", "feature", "task")})


def _predictions(
    draws: SampledDraws,
    data: TaskData,
    family: Family,
    coords: dict[str, Any],
    random_seed: int,
    cells: DrawnCells | None = None,
) -> dict[str, xr.Dataset]:
    """Predictive draws and log-likelihoods of the observations, at some of the draws; missing cells integrated out."""
    kept = kept_draws(draws, data.n_observations)
    dims, some = ("chain", "draw", "obs"), {"chain": coords["chain"], "draw": coords["draw"][kept], "obs": data.order}
    coef, intercept = (draws.variables[name][:, kept] for name in ("coef", "intercept"))
    spread: FloatArray | None = None
    if cells is not None:
        spread = predictor_deviations(replace(data, design=cells.design), coef, cells.filling)
        data = filled(replace(data, design=cells.design), cells.filling, np.arange(data.n_tasks))
    eta = linear_predictors(data, coef, intercept)
    noise: FloatArray | float = draws.variables["noise"][:, kept][:, :, data.task] if family.has_noise else 1.0
    if family.coupled:  # terms of a partial likelihood are no densities of single rows
        return {}
    if family.learned is not None:
        values = draws.variables[family.learned][:, kept]
        family = family.given(values[:, :, data.task] if values.ndim > 2 else values[:, :, np.newaxis])
    found, family = {}, with_offset(family, data.eta_offset)
    if family.offers("draw"):
        rng = np.random.default_rng([random_seed, 1])
        at = eta if spread is None else eta + spread * rng.standard_normal(eta.shape)
        predicted = family.draw(rng, at, noise)
        found["/posterior_predictive"] = xr.Dataset({"y": (dims, predicted)}, some)
    if family.offers("log_density"):
        log_density = data.weight * _log_density(family, np.asarray(data.y, dtype=np.float64), eta, noise, spread)
        found["/log_likelihood"] = xr.Dataset({"y": (dims, log_density)}, some)
    return found


def _log_density(
    family: Family, y: FloatArray, eta: FloatArray, noise: FloatArray | float, spread: FloatArray | None
) -> FloatArray:
    """Log-density of targets whose linear predictors are normal with these deviations; None: known."""
    if spread is None:
        return family.log_density(y, eta, noise)
    if family.quadratic:
        return family.log_density(y, eta, np.hypot(noise, spread))
    total = np.full(eta.shape, -np.inf)
    for node, weight in zip(*np.polynomial.hermite_e.hermegauss(NODES), strict=True):
        at = family.log_density(y, eta + node * spread, noise)
        total = np.logaddexp(total, at + np.log(weight / np.sqrt(2.0 * np.pi)))
    return total


def predictor_deviations(data: TaskData, coef: FloatArray, filling: Filling) -> FloatArray:
    """(chains, draws, N) Deviations of linear predictors for what is not known of missing cells (NaN)."""
    assert filling.rows is not None
    W = coef.reshape(-1, *coef.shape[2:])
    parts = [filling.rows.deviations(X, t, W[:, :, t]) for t, X in enumerate(data.task_designs)]
    return np.concatenate(parts, axis=1).reshape(*coef.shape[:2], -1)


def kept_draws(draws: SampledDraws, n_observations: int) -> IntArray:
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


# ---------------------------------------------------------------------- features between tasks


def task_means(data: TaskData) -> FloatArray:
    """(p, m) Weighted mean of each feature in each task; over all tasks where a task does not have the feature."""
    means = column_means(data)
    if data.present is None:
        return means
    weight = np.where(data.present, data.task_weights, np.finfo(float).tiny)
    return np.where(data.present, means, np.average(means, axis=1, weights=weight)[:, np.newaxis])


def between_share(data: TaskData) -> FloatArray:
    """(p,) Share of a feature's variance that lies between tasks, 0 to 1.

    Examples
    --------
    A feature of the task, and one of the row:

    >>> X = np.array([[0.0, 1.0], [0.0, -1.0], [3.0, 1.0], [3.0, -1.0]])
    >>> between_share(TaskData.from_long(X, np.zeros(4), tasks=[0, 0, 1, 1]))
    array([1., 0.])
    """
    weight, means = data.task_weights, task_means(data)
    total, m = weight.sum(), data.n_tasks
    between = np.average(
        (means - np.average(means, axis=1, weights=weight)[:, np.newaxis]) ** 2, axis=1, weights=weight
    )
    squares = np.zeros(data.n_features)
    for t, (X, (start, stop)) in enumerate(zip(data.task_designs, data.spans, strict=True)):
        here = np.ones(data.n_features, dtype=bool) if data.present is None else data.present[:, t]
        squares += np.where(here, data.weight[start:stop] @ (X - means[:, t]) ** 2, 0.0)
    within = squares / max(total - m, 1.0)
    level = np.maximum(between - within * m / total, 0.0)
    return np.divide(level, level + within, out=np.zeros_like(level), where=level > 0)


def feature_correlations(data: TaskData) -> FloatArray:
    """(p, p) Correlations of the features within tasks: of the sum of the tasks' weighted scatters; 0 of constant ones.

    Examples
    --------
    Levels of tasks do not count:

    >>> X = np.array([[0.0, 0.0], [1.0, -1.0], [90.0, 91.0], [91.0, 90.0]])
    >>> feature_correlations(TaskData.from_long(X, np.zeros(4), tasks=[0, 0, 1, 1]))
    array([[ 1., -1.],
           [-1.,  1.]])
    """
    designs = [(X, data.weight[start:stop]) for X, (start, stop) in zip(data.task_designs, data.spans, strict=True)]
    if data.shared_design:  # one product for all tasks
        designs = [(data.design, np.bincount(data.rows, weights=data.weight, minlength=data.design.shape[0]))]
    scatter = np.zeros((data.n_features, data.n_features))
    for X, weight in designs:
        dense = np.asarray(X.todense() if data.is_sparse else X, dtype=np.float64)
        centred = (dense - weight @ dense / weight.sum()) * np.sqrt(weight)[:, np.newaxis]
        centred[:, np.ptp(dense, axis=0) == 0] = 0.0  # what rounding leaves of a constant has no meaning
        scatter += centred.T @ centred
    deviation = np.sqrt(np.diagonal(scatter))
    product = np.outer(deviation, deviation)
    correlation = np.divide(scatter, product, out=np.zeros_like(scatter), where=product > 0)
    np.fill_diagonal(correlation, 1.0)
    return np.clip(correlation, -1.0, 1.0)


# ---------------------------------------------------------------------- predictive checks


@dataclass(frozen=True, eq=False)
class PredictiveChecks:
    """Posterior predictive p-values.

    Attributes
    ----------
    p_values : (m, 5) one column per statistic: mean, sd, skewness, smallest, largest
    task_names : (m,)
    """

    p_values: FloatArray
    task_names: NDArray[Any]

    def to_frame(self, backend: Backend = "pandas") -> Any:
        """Give a data frame with one row per task.

        Parameters
        ----------
        backend : {"pandas", "polars"}
        """
        columns: dict[str, Any] = {"task": self.task_names.tolist()}
        columns |= {name: self.p_values[:, number] for number, name in enumerate(STATISTICS)}
        return as_frame(columns, backend)


def predictive_checks(tree: Any) -> PredictiveChecks:
    """Posterior predictive p-values of every task's mean, spread, skewness and extremes.

    Parameters
    ----------
    tree : ``posterior_`` of a Bayesian estimator
    """
    if "posterior_predictive" not in tree.children:
        raise ValueError(
            "tree has no group posterior_predictive: a pseudo-likelihood makes no data; use loss='logistic'"
        )
    observed = tree["observed_data"]["y"].values
    drawn = tree["posterior_predictive"]["y"].values.reshape(-1, len(observed))
    task = tree["constant_data"]["task_index"].values
    names = tree["posterior"]["task"].values
    p_values = np.empty((len(names), len(STATISTICS)))
    for t in range(len(names)):
        chosen = task == t
        p_values[t] = np.mean(_statistics(drawn[:, chosen]) >= _statistics(observed[np.newaxis, chosen]), axis=0)
    return PredictiveChecks(p_values, names)


def _statistics(y: FloatArray) -> FloatArray:
    """(S, 5) Statistics of every row of targets."""
    mean, sd = y.mean(axis=1), y.std(axis=1)
    third = np.mean((y - mean[:, np.newaxis]) ** 3, axis=1)
    skewness = np.divide(third, sd**3, out=np.zeros_like(third), where=sd > 0)
    return np.stack([mean, sd, skewness, y.min(axis=1), y.max(axis=1)], axis=1)


# ---------------------------------------------------------------------- what they say of features


class Inclusion(NamedTuple):
    """Probabilities of an effect above a size."""

    features: FloatArray  # (p,) in at least one task
    entries: FloatArray  # (m, p)


def inclusion_probability(coef: FloatArray, unit: FloatArray, effect_size: float) -> Inclusion:
    """Shares of the draws (chains, draws, p, m) in which effects, w times unit (p, m), exceed a size.

    Examples
    --------
    >>> coef = np.array([[[[0.2, -0.9]], [[0.1, 0.3]]]])
    >>> found = inclusion_probability(coef, np.array([[0.5, 0.5]]), 0.2)
    >>> found.features, found.entries.ravel()
    (array([0.5]), array([0. , 0.5]))
    """
    anywhere, entries = np.zeros(coef.shape[:3], dtype=bool), np.empty((coef.shape[3], coef.shape[2]))
    for t, own in enumerate(unit.T):  # task by task: all effects at once take as much memory as the draws
        above = np.abs(coef[..., t]) * own > effect_size
        entries[t], anywhere = above.mean(axis=(0, 1)), anywhere | above
    return Inclusion(anywhere.mean(axis=(0, 1)), entries)


def local_false_sign_rate(coef: FloatArray) -> FloatArray:
    """(m, p) ``min(P(w <= 0), P(w >= 0))``: probability that the likelier sign is wrong (Stephens 2017).

    Examples
    --------
    >>> local_false_sign_rate(np.array([[[[0.2, 0.0]], [[0.1, 0.0]], [[-0.3, 0.0]], [[0.5, 0.0]]]]))
    array([[0.25],
           [1.  ]])
    """
    return np.minimum((coef <= 0).mean(axis=(0, 1)), (coef >= 0).mean(axis=(0, 1))).T.copy()
