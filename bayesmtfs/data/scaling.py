"""Units and scales of features and targets: the one place that knows what 1 stands for.

==========================  ==================================================================  ========================
function                    deviations                                                          who uses it
==========================  ==================================================================  ========================
`standardize`               of features, within each task                                       ``standardize=True``
`effect_unit`               of features and targets, over all rows                              effects, selection
`within_task_units`         of features and targets, within tasks, pooled                       EM and MM
`sampling_units`            of features and targets, over all rows (features: or per task)      samplers
==========================  ==================================================================  ========================

Where there is an intercept, centring features changes nothing but what it means, so that `standardize` only divides and a
sparse design stays sparse; streams centre dense designs too, since their steps see lengths of rows, and samplers do,
since the prior of an intercept is about the middle of the data. Without an
intercept nothing is centred: that would bring one in by the back door. In the units of samplers

    x' = (x - c) / s,   y' = (y - a) / h,   w = h w' / s,   b = a + h b' - c' w,   noise = h noise'
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from bayesmtfs.data.inputs import Design, stack_rows, times_columns, weighted_deviation
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.types import BoolArray, DataWarning, FloatArray, warn


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


def scaled(data: TaskData, factor: FloatArray) -> TaskData:
    """Return the data with feature i of task t multiplied by ``factor[i, t]``."""
    if data.shared_design and np.all(factor == factor[:, :1]):
        return replace(data, design=times_columns(data.design, factor[:, 0]))
    designs = [times_columns(X, factor[:, t]) for t, X in enumerate(data.task_designs)]
    rows = np.arange(data.n_observations)
    return replace(data, design=stack_rows(designs), rows=rows, shared_design=data.n_tasks == 1)


def centred(data: TaskData, means: FloatArray) -> TaskData:
    """Return dense data with ``means[i, t]`` subtracted from feature i of task t."""
    if data.shared_design and np.all(means == means[:, :1]):
        return replace(data, design=data.design - means[:, 0])
    design = np.concatenate([X - means[:, t] for t, X in enumerate(data.task_designs)])
    return replace(data, design=design, rows=np.arange(data.n_observations), shared_design=data.n_tasks == 1)


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
        warn(
            f"{count} feature{'s are' if count > 1 else ' is'} constant within every task ({names}): not scaled, and "
            "with an intercept the coefficients are 0; drop constant features to silence this warning",
            DataWarning,
        )
    single = data.task_names[np.diff(data.offsets) == 1]
    if len(single):
        warn(
            f"standardize=True, but task {single.tolist()[0]!r} has one row only, so that its scales are not known "
            "and are taken as 1; set standardize=False or drop the task",
            DataWarning,
        )


# ---------------------------------------------------------------------- what one unit of an effect is


def feature_deviations(data: TaskData, centred: bool = True) -> FloatArray:
    """(p,) Standard deviation of each feature over all rows of the tasks that have it, or its root mean square."""
    mean, deviation = pooled_moments(data)
    return deviation if centred else np.hypot(mean, deviation)


def target_deviation(data: TaskData) -> float:
    """Standard deviation of the target over all rows; 1 if it is constant."""
    return float(weighted_deviation(np.asarray(data.y, dtype=np.float64)[:, None], data.weight)[0]) or 1.0


def effect_unit(data: TaskData, scale_target: bool) -> FloatArray:
    """(p,) sd(x_i) / sd(y) over all observations, by which a coefficient becomes an effect in standard deviations.

    For labels (``scale_target=False``) the effect is the change of the log-odds per standard deviation of the feature:
    sd(y) is 1.
    """
    spread = feature_deviations(data)
    return spread / target_deviation(data) if scale_target else spread


# ---------------------------------------------------------------------- the units of EM


@dataclass(frozen=True, eq=False)
class WithinTaskUnits:
    """What 1 stands for in a problem whose features and targets are divided by their deviations within tasks."""

    feature: FloatArray  # (p,) in the units of X; 1 for constant features
    target: float  # in the units of y
    varies: BoolArray  # (p,) False for features that cannot have a coefficient

    @property
    def coefficient(self) -> float:
        """Median size of 1 in the user's units of a coefficient."""
        return float(self.target / np.median(self.feature[self.varies])) if self.varies.any() else 1.0

    def to_user(self, W: FloatArray) -> FloatArray:
        """Coefficients (p, m) in the user's units."""
        return W * (self.target / self.feature)[:, np.newaxis]

    def from_user(self, W: FloatArray) -> FloatArray:
        """Coefficients (p, m) in these units."""
        return W * (self.feature / self.target)[:, np.newaxis]


def within_task_units(data: TaskData, centre: bool, scale_target: bool) -> WithinTaskUnits:
    """Pooled deviations within tasks, one unit per group; root mean squares where there is no intercept (``centre``).

    ``scale_target``: measure the target, which is numeric, in its own deviation as well.
    """
    totals = data.task_weights
    squares = column_scales(data) ** 2
    if not centre:
        squares = squares + (data.adjoint(data.weight) / totals) ** 2
    if data.present is not None:
        squares = np.where(data.present, squares, 0.0)
    pooled = squares @ totals / totals.sum()
    row = np.arange(data.n_features) if data.groups is None else np.unique(data.groups, return_inverse=True)[1]
    unit = np.sqrt(np.bincount(row, weights=pooled) / np.bincount(row))[row]
    target = _within_task_target_deviation(data, centre) if scale_target else 1.0
    return WithinTaskUnits(np.where(unit > 0, unit, 1.0), target or 1.0, pooled > 0)


def _within_task_target_deviation(data: TaskData, centred: bool) -> float:
    """Pooled deviation of the targets within tasks; their root mean square without an intercept."""
    y = data.y
    if centred:
        means = np.add.reduceat(data.weight * y, data.offsets[:-1]) / data.task_weights
        y = y - means[data.task]
        y = np.where(np.abs(y) <= 1e-14 * np.abs(data.y), 0.0, y)  # a constant target has no deviation
    return float(np.sqrt(data.weight @ y**2 / data.weight.sum()))


# ---------------------------------------------------------------------- the units of samplers


@dataclass(frozen=True, eq=False)
class SamplingUnits:
    """Centres and scales of features and targets, over all rows or, for features, per task."""

    feature_centre: FloatArray  # (p, m), the same in every task unless features are standardised task by task
    feature_scale: FloatArray  # (p, m)
    target_centre: float = 0.0
    target_scale: float = 1.0

    def coefficients(self, W: FloatArray) -> FloatArray:
        """Coefficients (..., p, m) of scaled data in the user's units."""
        return W * (self.target_scale / self.feature_scale)

    def intercepts(self, W: FloatArray, intercept: FloatArray) -> FloatArray:
        """Intercepts (..., m) in the user's units; W (..., p, m) is in them already."""
        shift = np.einsum("...pm,pm->...m", W, self.feature_centre)
        return self.target_centre + self.target_scale * intercept - shift

    def rows(self, numbers: FloatArray) -> FloatArray:
        """Scales or means of rows (..., p) in the user's units; at the mean deviation where tasks have their own."""
        return numbers * (self.target_scale / self.feature_scale.mean(axis=1))

    def scaled_coefficients(self, W: FloatArray) -> FloatArray:
        """Coefficients (p, m) in the user's units as those of the scaled data."""
        return W * self.feature_scale / self.target_scale


def no_units(data: TaskData) -> SamplingUnits:
    """Leave the data as they are."""
    shape = (data.n_features, data.n_tasks)
    return SamplingUnits(np.zeros(shape), np.ones(shape))


def sampling_units(data: TaskData, *, centre: bool, per_task: bool, scale_target: bool) -> SamplingUnits:
    """Centres (0 without an intercept) and scales of dense data, features ``per_task`` if they vary there.

    ``scale_target``: whether the target is a number, not a label.
    """
    shape = (data.n_features, data.n_tasks)
    pooled_mean, pooled = (part[:, np.newaxis] for part in pooled_moments(data))
    mean, deviation = (column_means(data), column_scales(data)) if per_task else (pooled_mean, pooled)
    if not centre:
        mean, deviation, pooled = np.zeros_like(mean), np.hypot(mean, deviation), np.hypot(pooled_mean, pooled)
    # a feature that is constant in a task has the unit that it has over all of them
    pooled = np.where(pooled > 0, pooled, 1.0)
    scale = np.broadcast_to(np.where(deviation > 0, deviation, pooled), shape)
    centres = np.broadcast_to(mean, shape)
    middle, height = _target_units(data, centre) if scale_target else (0.0, 1.0)
    return SamplingUnits(centres, scale, middle, height)


def in_sampling_units(data: TaskData, units: SamplingUnits) -> TaskData:
    """Return the centred and scaled dense data; features that a task does not have stay 0 there."""
    y = (np.asarray(data.y, dtype=np.float64) - units.target_centre) / units.target_scale
    common = all(np.all(part == part[:, :1]) for part in (units.feature_centre, units.feature_scale))
    if common and data.present is None:
        design = (data.design - units.feature_centre[:, 0]) / units.feature_scale[:, 0]
        return replace(data, design=design, y=y)
    parts = [(X - units.feature_centre[:, t]) / units.feature_scale[:, t] for t, X in enumerate(data.task_designs)]
    if data.present is not None:
        parts = [np.where(data.present[:, t], part, 0.0) for t, part in enumerate(parts)]
    rows = np.arange(data.n_observations)
    return replace(data, design=np.concatenate(parts), y=y, rows=rows, shared_design=data.n_tasks == 1)


def _target_units(data: TaskData, centre: bool) -> tuple[float, float]:
    y = np.asarray(data.y, dtype=np.float64)
    middle = float(np.average(y, weights=data.weight)) if centre else 0.0
    with np.errstate(over="ignore"):
        height = float(np.sqrt(np.average((y - middle) ** 2, weights=data.weight)))
    if not np.isfinite(height):
        raise ValueError(
            f"y has values up to {np.abs(y).max():.3g}, whose squares are no finite numbers; divide y by a constant"
        )
    return middle, height if height > 1e-12 * abs(middle) else 1.0
