"""Features on one scale: divided by their standard deviation within each task.

With an intercept, centring changes nothing but the intercept, so that only the division is done and a sparse design
stays sparse. Without an intercept features are not centred either: that would bring an intercept in by the back door.
"""

import warnings
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from bayesmtfs.data.designs import Design, stack_rows, times_columns, weighted_deviation
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.types import DataWarning, FloatArray


class Standardized(NamedTuple):
    """Scaled data, and what one unit of each feature was before."""

    data: TaskData
    scales: FloatArray  # (p, m); coefficients in the user's units are the fitted ones divided by these


def standardize(data: TaskData) -> Standardized:
    """Divide every feature by its weighted standard deviation within each task.

    A feature that is constant in a task keeps its scale there, and features that are constant in every task are named
    in a warning.
    """
    scales = column_scales(data)
    _warn_of_unknown_scales(data, scales)
    scales = np.where(scales == 0, 1.0, scales)
    return Standardized(scaled(data, 1.0 / scales), scales)


def column_scales(data: TaskData) -> FloatArray:
    """(p, m) Weighted standard deviation of each feature within each task; 0 for a constant feature."""
    scales = [weighted_deviation(X, data.weight[start:stop]) for X, (start, stop) in _distinct_designs(data)]
    return np.column_stack(scales * (data.n_tasks // len(scales)))


def column_means(data: TaskData) -> FloatArray:
    """(p, m) Weighted mean of each feature within each task."""
    means = [
        np.asarray(X.T @ data.weight[start:stop]).ravel() / data.weight[start:stop].sum()
        for X, (start, stop) in _distinct_designs(data)
    ]
    return np.column_stack(means * (data.n_tasks // len(means)))


def pooled_moments(data: TaskData) -> tuple[FloatArray, FloatArray]:
    """(p,) and (p,) Weighted mean and standard deviation of each feature over all rows of the tasks that have it."""
    if data.present is None:
        weight = np.bincount(data.rows, weights=data.weight, minlength=data.design.shape[0])
        mean = np.asarray(data.design.T @ weight, dtype=np.float64).ravel() / weight.sum()
        return mean, np.asarray(weighted_deviation(data.design, weight), dtype=np.float64)
    share = np.where(data.present, data.task_weights, 0.0)
    share /= np.maximum(share.sum(axis=1, keepdims=True), np.finfo(float).tiny)
    means = column_means(data)
    mean = np.sum(share * means, axis=1)
    variance = np.sum(share * (column_scales(data) ** 2 + (means - mean[:, np.newaxis]) ** 2), axis=1)
    return mean, np.where(variance <= 1e-28 * mean**2, 0.0, np.sqrt(variance))


def feature_deviations(data: TaskData, centred: bool = True) -> FloatArray:
    """(p,) Standard deviation of each feature over all rows of the tasks that have it, or its root mean square."""
    mean, deviation = pooled_moments(data)
    return deviation if centred else np.hypot(mean, deviation)


def scaled(data: TaskData, factor: FloatArray) -> TaskData:
    """Return the data with feature i of task t multiplied by ``factor[i, t]``."""
    if data.shared_design and np.all(factor == factor[:, :1]):
        return replace(data, design=times_columns(data.design, factor[:, 0]))
    designs = [times_columns(X, factor[:, t]) for t, X in enumerate(data.task_designs)]
    rows = np.arange(data.n_observations)
    return replace(data, design=stack_rows(designs), rows=rows, shared_design=data.n_tasks == 1)


def _distinct_designs(data: TaskData) -> list[tuple[Design, tuple[int, int]]]:
    """Designs with their spans, once if all tasks have the same rows and weights."""
    pairs = list(zip(data.task_designs, data.spans, strict=True))
    if data.is_complete and np.all(data.as_matrix(data.weight) == data.weight[: data.spans[0][1], None]):
        return pairs[:1]
    return pairs


def _warn_of_unknown_scales(data: TaskData, scales: FloatArray) -> None:
    constant = (scales == 0).all(axis=1)
    if constant.any():
        names, count = ", ".join(data.feature_names[constant][:10]), int(constant.sum())
        warnings.warn(
            f"{count} feature{'s are' if count > 1 else ' is'} constant within every task ({names}): not scaled, and "
            "with an intercept the coefficients are 0; drop constant features to silence this warning",
            DataWarning,
            stacklevel=4,
        )
    single = data.task_names[np.diff(data.offsets) == 1]
    if len(single):
        warnings.warn(
            f"standardize=True, but task {single.tolist()[0]!r} has one row only, so that its scales are not known "
            "and are taken as 1; set standardize=False or drop the task",
            DataWarning,
            stacklevel=4,
        )
