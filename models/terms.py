r"""What every model has below its coefficients: linear predictor, intercepts, noise and observed targets.

The linear predictor is ``eta_i = x_i' w_t(i) + b_t(i)``. Data are ``pm.Data``, so that ``pm.set_data`` and
`set_task_data` can put new rows in their place. The design has four forms: one row per observation or one design for all
tasks, dense or sparse. A sparse design is held as its entries, and costs as many operations as it has of them.

The observed term is the family's own PyMC distribution (`bayesmtfs.families.Family.pymc_dist`), its log-density
multiplied by the row's weight. At ``noise = 1`` differences of the log-probability in eta are therefore minus the
differences of `families.total`: a penalised fit is the MAP of a stated model. For the hinge that model is a
pseudo-likelihood, not a density.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import scipy.sparse as sp
from numpy.typing import NDArray
from pytensor import config
from pytensor.graph.basic import Variable

from bayesmtfs.data.classes import as_signs, class_tasks, classes_of
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import Family, find_family
from bayesmtfs.models.distributions import Tensor, as_float_tensor
from bayesmtfs.priors.hyperpriors import DEGREES_RATE, DEGREES_SHAPE, NOISE_DEGREES, Hyperprior
from bayesmtfs.priors.spike import SpikePrior


def observe(
    name: str,
    family: Family,
    eta: Tensor,
    y: Tensor,
    weight: Tensor = None,
    noise: Tensor = 1.0,
    dims: str | None = "obs",
    parameter: Tensor = None,
) -> Tensor:
    """Add the observed targets of a family to the PyMC model in context.

    Parameters
    ----------
    name : str
        Name of the observed variable.
    family : Family
        The family, which must offer ``pymc_dist``. That of the hinge loss is a pseudo-likelihood, not normalised over
        the labels: its posterior weighs coefficients by their margins, but gives no predictive draws.
    eta : tensor (n,)
        Linear predictor.
    y : array or pm.Data (n,)
        Targets; labels are -1 and +1, which are also the values of their predictive draws.
    weight : array or pm.Data (n,), optional
        Row weights, not negative, that multiply the log-density. None, or an array of ones, gives the family's own
        PyMC distribution. A predictive draw is one new target of a row, whatever the row's weight.
    noise : float or tensor, default 1.0
        Noise deviation or scale of a family that has one: one for all rows, or ``(n,)``.
    dims : str, optional
        Dimension of the observed variable, default "obs"; None takes the shape of y.
    parameter : tensor, optional
        What the family learns beside the noise (`Family.learned`): one for all rows, or ``(n,)``.

    Returns
    -------
    TensorVariable
        The observed variable.

    Raises
    ------
    ValueError
        If the family has no PyMC term, if labels are not -1 and +1, or if a family without noise is given one.

    Examples
    --------
    >>> import numpy as np
    >>> from bayesmtfs.families import Gaussian
    >>> x, y = np.array([1.0, 2.0]), np.array([0.9, 2.2])
    >>> with pm.Model(coords={"obs": [0, 1]}) as model:
    ...     slope = pm.Normal("slope")
    ...     observed = observe("y", Gaussian(), slope * x, y, noise=0.5)
    >>> model.observed_RVs
    [y]
    """
    family.require("A PyMC model", "pymc_dist")
    if family.targets == "labels" and not family.has_cuts:
        _require_labels(y, family.name)
    if not family.has_noise and not _is_one(noise):
        raise ValueError(f"noise was given, but the {family.name} loss has no noise; leave noise at 1.0")
    if family.learned is not None and parameter is None:
        raise ValueError(
            f"loss={family.name!r} learns its {family.learned}, which this model has no prior for; use one with learned "
            "scales, such as generalized_normal_model"
        )
    if not _is_one(weight):
        return _observe_weighted(name, family, eta, y, weight, noise, dims, parameter)
    family = family if parameter is None else family.given(parameter)
    model = pm.modelcontext(None)
    shape = tuple(y.shape) if dims is None else (model.dim_lengths[dims],)
    term = family.pymc_dist(eta, noise, shape=shape)
    return model.register_rv(term, name, observed=y, dims=None if dims is None else (dims,))


def _observe_weighted(
    name: str,
    family: Family,
    eta: Tensor,
    y: Tensor,
    weight: Tensor,
    noise: Tensor,
    dims: str | None,
    parameter: Tensor = None,
) -> Tensor:
    """Observe targets whose log-densities are multiplied by weights."""

    def known(parameter: tuple[Tensor, ...]) -> Family:
        return family.given(*parameter) if parameter else family

    def log_density(value: Tensor, eta: Tensor, noise: Tensor, weight: Tensor, *parameter: Tensor) -> Tensor:
        return weight * pm.logp(known(parameter).pymc_dist(eta, noise), value)

    def draw(eta: Tensor, noise: Tensor, weight: Tensor, *rest: Tensor) -> Tensor:
        return known(rest[:-1]).pymc_dist(eta, noise, size=rest[-1])

    numbers = (eta, noise, weight) if parameter is None else (eta, noise, weight, parameter)
    return pm.CustomDist(name, *numbers, logp=log_density, dist=draw, observed=y, dims=dims)


def _is_one(number: Tensor) -> bool:
    """Whether a weight or noise is absent or known to be 1; a PyTensor variable may change, so it is not known."""
    return number is None or (not isinstance(number, Variable) and bool(np.all(np.asarray(number) == 1)))


def _require_labels(y: Tensor, loss: str) -> None:
    """Raise unless the labels, where they are known, are -1 and +1."""
    if hasattr(y, "get_value"):  # pm.Data
        y = y.get_value()
    if isinstance(y, Variable):
        return
    labels = np.unique(np.asarray(y))
    if not np.all(np.isin(labels, [-1, 1])):
        shown = ", ".join(str(label) for label in labels[:5])
        raise ValueError(f"y holds the labels {shown}, but the {loss} loss wants -1 and +1; recode y")


# ---------------------------------------------------------------------- data


def density_of(loss: str | Family) -> Family:
    """Family of a loss, refused unless it has a density: the pseudo-likelihood of the hinge is for `mixed_norm_model`."""
    family = find_family(loss)
    family.require("A model with learned scales (that is any but mixed_norm_model)", "log_density", "pymc_dist")
    return family


def readable(data: TaskData, family: Family) -> TaskData:
    """Targets as the family takes them: any two labels as -1 and +1, in their sorted order.

    Several classes within tasks become a task for every pair of task and class; targets -1 and +1 are taken as such.
    """
    signs = data.y.dtype.kind in "iuf" and bool(np.all(np.isin(data.y, (-1, 1))))
    if signs or family.targets != "labels":
        return data
    coded, classes = classes_of(data)
    if family.coupled:
        return coded if family.has_cuts else class_tasks(coded, classes)
    if len(classes) != 2:
        raise ValueError(
            f"y has {len(classes)} classes, but the model is for two: {classes.tolist()[:5]}; pass two labels"
        )
    return as_signs(coded)


Extra = Callable[[Tensor], Tensor | None]  # of the linear predictor (obs)


def add_observations(
    data: TaskData, family: Family, prior: Hyperprior, coef: Tensor, extra: Extra | None = None
) -> None:
    """Add intercepts, noise (of a family that has one), design and the observed ``y`` to the model in context.

    Labels are -1 and +1. A row's weight multiplies its log-likelihood: 2 is the row twice. ``extra`` is called with the
    linear predictor; what it gives back takes its place, and where that is None it has added a likelihood of its own.
    """
    eta = with_known_part(data, linear_predictor(data, coef, intercept_per_task(prior)))
    noise = noise_per_task(prior)[pm.modelcontext(None)["task_index"]] if family.has_noise else 1.0
    target = pm.Data("target", np.asarray(data.y, dtype=np.float64), dims="obs")
    family = family.on(np.asarray(data.y, dtype=np.float64), data.weight, data.offsets)
    eta = eta if extra is None else extra(eta)
    if eta is None:
        return
    # Without weights the term is PyMC's own normal distribution, which samplers and tools know best.
    weight = None if np.all(data.weight == 1.0) else pm.Data("weight", data.weight, dims="obs")
    observe("y", family, eta, target, weight=weight, noise=noise, parameter=learned_parameter(family, prior, data))


def learned_parameter(family: Family, prior: Hyperprior | SpikePrior, data: TaskData) -> Tensor:
    """Add ``degrees``, ``dispersion`` (task) or ``thresholds`` (task, cut), if the family learns it; its value by row."""
    if family.learned is None:
        return None
    if family.learned == "degrees":
        return pm.Gamma("degrees", as_float_tensor(DEGREES_SHAPE), as_float_tensor(DEGREES_RATE))
    degrees, model = as_float_tensor(NOISE_DEGREES), pm.modelcontext(None)
    if family.has_cuts:
        n_cuts = int(np.max(data.y))
        model.add_coord("cut", range(n_cuts))
        codes = data.task * (n_cuts + 1) + np.asarray(data.y, dtype=np.int64)
        counts = np.bincount(codes, minlength=data.n_tasks * (n_cuts + 1)).reshape(data.n_tasks, -1) + 0.5
        below = np.cumsum(counts, axis=1)[:, :-1]
        start = np.log(below / (counts.sum(axis=1, keepdims=True) - below))  # rising, whatever classes a task has
        deviation, order = as_float_tensor(prior.intercept_scale), pm.distributions.transforms.ordered
        dims = ("task", "cut")
        cuts = pm.Normal("thresholds", 0.0, deviation, default_transform=order, initval=start, dims=dims)
        return cuts[model["task_index"]]
    if prior.shared_noise:
        root = pm.HalfStudentT("shared_root_dispersion", nu=degrees, sigma=1.0) * pt.ones(model.dim_lengths["task"])
    else:
        root = pm.HalfStudentT("root_dispersion", nu=degrees, sigma=1.0, dims="task")
    return pm.Deterministic("dispersion", pt.square(root), dims="task")[model["task_index"]]


def with_known_part(data: TaskData, eta: Tensor) -> Tensor:
    """Add what the data know of the linear predictor, as the data variable ``offset`` (obs)."""
    return eta if data.eta_offset is None else eta + pm.Data("offset", data.eta_offset, dims="obs")


def noise_per_task(prior: Hyperprior) -> Tensor:
    """Add ``noise`` (task) to the model in context, one for all tasks under ``shared_noise``."""
    degrees, scale = as_float_tensor(NOISE_DEGREES), as_float_tensor(prior.noise_scale)
    if not prior.shared_noise:
        return pm.HalfStudentT("noise", nu=degrees, sigma=scale, dims="task")
    shared = pm.HalfStudentT("shared_noise", nu=degrees, sigma=scale)
    return pm.Deterministic("noise", shared * pt.ones(pm.modelcontext(None).dim_lengths["task"]), dims="task")


def intercept_per_task(prior: Hyperprior) -> Tensor:
    """Add ``intercept`` (task) to the model in context, zeros without ``fit_intercept``."""
    if prior.fit_intercept:
        centre, deviation = as_float_tensor(prior.intercept_centre), as_float_tensor(prior.intercept_scale)
        return pm.Normal("intercept", centre, deviation, dims="task")
    return pm.Deterministic("intercept", pt.zeros(pm.modelcontext(None).dim_lengths["task"]), dims="task")


def set_task_data(model: pm.Model, data: TaskData) -> None:
    """Put other observations of the same tasks and features into a model, as ``pm.set_data`` does for single arrays.

    Parameters
    ----------
    model : pm.Model
        Any model with learned row scales.
    data : TaskData
        The new rows, of any of the model's tasks. For predictive draws alone the targets may be any numbers.

    Raises
    ------
    ValueError
        If the features or tasks are not those of the model, or if it is a `mixed_norm_model`, whose rows carry the
        scale of its loss.

    Examples
    --------
    Predictive draws for two new rows of task "a":

    >>> import numpy as np
    >>> from bayesmtfs import TaskData
    >>> from bayesmtfs.models import generalized_normal_model, set_task_data
    >>> data = TaskData.from_long(np.eye(4), [1.0, 2.0, 3.0, 4.0], tasks=["b", "a", "b", "a"])
    >>> model = generalized_normal_model(data)
    >>> set_task_data(model, TaskData.from_long(np.ones((2, 4)), np.zeros(2), tasks=["a", "a"]))
    >>> model["X"].get_value().shape
    (2, 4)
    """
    if "penalty_strength" in model.named_vars:
        raise ValueError("model is a mixed_norm_model, whose weights carry its loss_scale; use pm.set_data instead")
    features, tasks = (list(model.coords[name] or ()) for name in ("feature", "task"))
    if data.feature_names.tolist() != features:
        raise ValueError(
            f"data has the features {data.feature_names.tolist()[:5]}, the model {features[:5]}; pass those"
        )
    unknown = [name for name in data.task_names.tolist() if name not in tasks]
    if unknown:
        raise ValueError(f"data has the task {unknown[0]!r}, which the model does not know; its tasks are {tasks[:10]}")
    places = np.array([tasks.index(name) for name in data.task_names.tolist()])
    values = design_values(data, sparse="X_value" in model.named_vars, shared="row_index" in model.named_vars)
    values |= {"task_index": places[data.task], "target": np.asarray(data.y, dtype=np.float64)}
    if "weight" in model.named_vars:
        values["weight"] = data.weight
    elif not np.all(data.weight == 1.0):
        raise ValueError("data has sample weights but the model was built without; build it with weighted rows")
    if "offset" in model.named_vars:
        values["offset"] = np.zeros(data.n_observations) if data.eta_offset is None else data.eta_offset
    elif data.eta_offset is not None:
        raise ValueError("data has an offset but the model was built without; build it with rows that have one")
    rows = {"row": range(data.design.shape[0])} if "row_index" in values else {}
    pm.set_data(values, model=model, coords={"obs": data.order.tolist()} | rows)


# ---------------------------------------------------------------------- the linear predictor


def coordinates(data: TaskData) -> dict[str, list[Any]]:
    """Names along the dimensions ``feature`` and ``task``, and ``row`` where all tasks share one design.

    Observations are sorted by task; their names along ``obs`` are their places in the user's input.
    """
    named = {
        "feature": data.feature_names.tolist(),
        "task": data.task_names.tolist(),
        "obs": data.order.tolist(),
    }
    return named | {"row": list(range(data.design.shape[0]))} if data.shared_design else named


def linear_predictor(data: TaskData, coef: Tensor, intercept: Tensor | None = None) -> Tensor:
    """Add the design to the PyMC model in context and give the linear predictor (N,), in the order of the observations.

    Data variables added to the model, which must have the `coordinates` of the data:

    - ``task_index`` (obs): the task of each observation;
    - ``X`` (obs, feature), or (row, feature) with one design for all tasks;
    - ``row_index`` (obs), with one design for all tasks: the row of X that each observation uses;
    - instead of ``X`` for a sparse design: ``X_value``, ``X_row`` and ``X_column``, one entry per stored number.
    """
    coef = pt.as_tensor_variable(coef)
    task_index = pm.Data("task_index", data.task, dims="obs")
    values = design_values(data, data.is_sparse, data.shared_design)
    row_dimension = "row" if data.shared_design else "obs"
    dims = {"X": (row_dimension, "feature"), "row_index": "obs"}
    design = {name: pm.Data(name, value, dims=dims.get(name)) for name, value in values.items()}
    if data.shared_design:
        eta = _all_tasks_at_all_rows(design, coef)[design["row_index"], task_index]
    else:
        eta = _own_task_at_own_row(design, coef, task_index)
    return eta if intercept is None else eta + pt.as_tensor_variable(intercept)[task_index]


def design_values(data: TaskData, sparse: bool, shared: bool) -> dict[str, NDArray[Any]]:
    """Arrays of the design's data variables by name: ``X``, or ``X_value``, ``X_row`` and ``X_column``; ``row_index``."""
    design = data.design if shared else data.X
    values: dict[str, NDArray[Any]] = {"row_index": data.rows} if shared else {}
    if not sparse:
        dense = design.toarray() if sp.issparse(design) else design
        return values | {"X": np.asarray(dense, dtype=config.floatX)}
    entries = sp.coo_array(design)
    return values | {
        "X_value": entries.data.astype(config.floatX),
        "X_row": entries.row.astype(np.int64),
        "X_column": entries.col.astype(np.int64),
    }


def _all_tasks_at_all_rows(design: dict[str, Tensor], coef: Tensor) -> Tensor:
    """``X W`` (rows, m) of a shared design."""
    if "X" in design:
        return design["X"] @ coef
    n_rows, n_tasks = (pm.modelcontext(None).dim_lengths[name] for name in ("row", "task"))
    value, row, column = design["X_value"], design["X_row"], design["X_column"]
    return pt.zeros((n_rows, n_tasks))[row].inc(value[:, None] * coef[column])


def _own_task_at_own_row(design: dict[str, Tensor], coef: Tensor, task_index: Tensor) -> Tensor:
    """``x_i' w_t(i)`` (N,) of a design with one row per observation."""
    if "X" in design:
        return pt.sum(design["X"] * coef.T[task_index], axis=1)
    value, row, column = design["X_value"], design["X_row"], design["X_column"]
    return pt.zeros_like(task_index, dtype=config.floatX)[row].inc(value * coef[column, task_index[row]])
