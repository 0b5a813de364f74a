"""The linear predictor of a PyMC model, ``eta_i = x_i' w_t(i) + b_t(i)``, over data that can be swapped.

The design becomes ``pm.Data``, so that ``pm.set_data`` can put new rows in its place. There are four forms: one design
row per observation or one design for all tasks, dense or sparse. A sparse design is held as its entries, and costs as
many operations as it has of them.
"""

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import scipy.sparse as sp
from numpy.typing import NDArray
from pytensor import config

from bayesmtfs.data.tasks import TaskData

type Tensor = Any  # PyTensor and PyMC have no useful static types


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
    """Add the design to the PyMC model in context and give the linear predictor of every observation.

    Parameters
    ----------
    data : TaskData
        The observations. The model must have their `coordinates`.
    coef : tensor or array (p, m)
        Coefficients W, features by tasks.
    intercept : tensor or array (m,), optional
        One intercept per task.

    Returns
    -------
    tensor (N,)
        ``x' w_t + b_t`` for every observation, in the order of ``data``.

    Notes
    -----
    Data variables added to the model:

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
    """Arrays of the design's data variables, by name.

    Parameters
    ----------
    data : TaskData
        The observations.
    sparse : bool
        Whether the model holds the stored entries of a sparse design, or the matrix.
    shared : bool
        Whether the model has one design for all tasks.

    Returns
    -------
    dict of str to array
        ``X``, or ``X_value``, ``X_row`` and ``X_column``; ``row_index`` of a shared design.
    """
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
