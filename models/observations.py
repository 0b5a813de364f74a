"""What every full model has below its coefficients: intercepts, noise and observed targets, over data to be swapped."""

import numpy as np
import pymc as pm

from bayesmtfs.data.classes import as_signs, classes_of
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import find_family, names
from bayesmtfs.models.hyperpriors import intercept_per_task, noise_per_task
from bayesmtfs.models.linear_predictor import Tensor, design_values, linear_predictor
from bayesmtfs.models.terms import observe
from bayesmtfs.priors.hyperpriors import Hyperprior

FULL_LOSSES = ("squared", "logistic")


def readable(data: TaskData, loss: str) -> TaskData:
    """Targets as the likelihood takes them: any two labels as -1 and +1, in their sorted order."""
    signs = data.y.dtype.kind in "iuf" and bool(np.all(np.isin(data.y, (-1, 1))))
    if signs or loss not in names(labels=True):
        return data
    coded, classes = classes_of(data)
    if len(classes) != 2:
        raise ValueError(
            f"y has {len(classes)} classes, but the model is for two: {classes.tolist()[:5]}; pass two labels"
        )
    return as_signs(coded)


def add_observations(data: TaskData, loss: str, prior: Hyperprior, coef: Tensor) -> None:
    """Add intercepts, noise (squared loss), design and the observed ``y`` to the model in context.

    Parameters
    ----------
    data : TaskData
        Observations, labels as -1 and +1. A row's weight multiplies its log-likelihood: 2 is the row twice.
    loss : {"squared", "logistic"}
        The likelihood.
    prior : Hyperprior
        Priors of intercepts and noise.
    coef : tensor (p, m)
        Coefficients.
    """
    if loss not in FULL_LOSSES:
        raise ValueError(f"loss is {loss!r}; choose 'squared' or 'logistic', or use mixed_norm_model")
    eta = linear_predictor(data, coef, intercept_per_task(prior))
    noise: Tensor = 1.0
    if loss == "squared":
        noise = noise_per_task(prior)[pm.modelcontext(None)["task_index"]]
    target = pm.Data("target", np.asarray(data.y, dtype=np.float64), dims="obs")
    # Without weights the term is PyMC's own normal distribution, which samplers and tools know best.
    weight = None if np.all(data.weight == 1.0) else pm.Data("weight", data.weight, dims="obs")
    observe("y", find_family(loss), eta, target, weight=weight, noise=noise)


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
    rows = {"row": range(data.design.shape[0])} if "row_index" in values else {}
    pm.set_data(values, model=model, coords={"obs": data.order.tolist()} | rows)
