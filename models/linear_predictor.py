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
from pytensor import config

from bayesmtfs.tasks import TaskData

type Tensor = Any  # PyTensor and PyMC have no useful static types


def coordinates(data: TaskData) -> dict[str, list[Any]]:
    """Names along the dimensions ``feature``, ``task`` and ``obs``, and ``row`` where all tasks share one design."""
    named = {
        "feature": data.feature_names.tolist(),
        "task": data.task_names.tolist(),
        "obs": list(range(data.n_observations)),
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
    if data.shared_design:
        row_index = pm.Data("row_index", data.rows, dims="obs")
        eta = _all_tasks_at_all_rows(data, coef)[row_index, task_index]
    else:
        eta = _own_task_at_own_row(data, coef, task_index)
    return eta if intercept is None else eta + pt.as_tensor_variable(intercept)[task_index]


def _all_tasks_at_all_rows(data: TaskData, coef: Tensor) -> Tensor:
    """``X W`` (rows, m) of a shared design."""
    if not data.is_sparse:
        return _dense_design(data, "row") @ coef
    value, row, column = _sparse_entries(data)
    n_rows, n_tasks = (pm.modelcontext(None).dim_lengths[name] for name in ("row", "task"))
    return pt.zeros((n_rows, n_tasks))[row].inc(value[:, None] * coef[column])


def _own_task_at_own_row(data: TaskData, coef: Tensor, task_index: Tensor) -> Tensor:
    """``x_i' w_t(i)`` (N,) of a design with one row per observation."""
    if not data.is_sparse:
        return pt.sum(_dense_design(data, "obs") * coef.T[task_index], axis=1)
    value, row, column = _sparse_entries(data)
    return pt.zeros_like(task_index, dtype=config.floatX)[row].inc(value * coef[column, task_index[row]])


def _dense_design(data: TaskData, row_dimension: str) -> Tensor:
    return pm.Data("X", np.asarray(data.design, dtype=config.floatX), dims=(row_dimension, "feature"))


def _sparse_entries(data: TaskData) -> tuple[Tensor, Tensor, Tensor]:
    """Values, rows and columns of the stored entries."""
    entries = sp.coo_array(data.design)
    return (
        pm.Data("X_value", entries.data.astype(config.floatX)),
        pm.Data("X_row", entries.row.astype(np.int64)),
        pm.Data("X_column", entries.col.astype(np.int64)),
    )
