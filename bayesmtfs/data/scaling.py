"""Units and scales of features and targets: the one place that knows what 1 stands for.

Every deviation is one *within tasks*, about each task's own mean where there is an intercept and about 0 where there is
none: levels that differ between tasks are none of its business.

==========================  ==================================================================  ========================
function                    deviations                                                          who uses it
==========================  ==================================================================  ========================
`rescale`                   of features and targets, in each task                               ``standardize=True``,
                                                                                                ``scale_target=True``
`effect_unit`               of features pooled over tasks; of targets too, wide: in each task   effects, selection
`within_task_units`         of features and targets, pooled over tasks                          EM and MM
`sampling_units`            of features and targets, pooled over tasks or in each               samplers
==========================  ==================================================================  ========================

Pooled is the root of the weighted mean of the tasks' variances, over the tasks that have the feature.

Where there is an intercept, centring features changes nothing but what it means, so that `rescale` only divides and a
sparse design stays sparse; streams centre dense designs too, since their steps see lengths of rows, and samplers do,
since the prior of an intercept is about the middle of its task. Without an
intercept nothing is centred: that would bring one in by the back door. In the units of samplers

    x' = (x - c_t) / s_t,   y' = (y - a_t) / h_t,   w = h_t w' / s_t,   b = a_t + h_t b' - c_t' w,   noise = h_t noise'
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmtfs.data.column_sums import (
    dense_variances,
    moments_of_sums,
    pooled_sparse_variances,
    sparse_variances,
    weighted_moments,
)
from bayesmtfs.data.inputs import Design, stack_rows, times_columns
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.types import BoolArray, DataWarning, FloatArray, Solution, warn

ROUNDING = 1e-12  # of a mean, below which a deviation from it is 0
TARGET_RATIO, FEATURE_RATIO = 10.0, 100.0  # of the largest to the smallest deviation, above which users are warned
LEAST_ROWS = 10  # of a task whose deviation counts in that
MOST_ENTRIES = 10_000_000  # of W, up to which anybody looks


class Rescaled(NamedTuple):
    """Data with divided features and targets, and what 1 stands for in them."""

    data: TaskData
    feature: FloatArray  # (p, m) in the units of X; (1, m) where they are the user's own
    target: FloatArray  # (m,) in the units of y

    def to_user(self, found: Solution) -> Solution:
        """Coefficients, intercepts and noise in the user's units; the objective stays that of the rescaled data."""
        if np.all(self.feature == 1.0) and np.all(self.target == 1.0):
            return found
        noise = None if found.noise is None else found.noise * self.target
        return found._replace(
            W=found.W * (self.target / self.feature), intercept=found.intercept * self.target, noise=noise
        )

    def start(self, coef: FloatArray, intercept: FloatArray) -> Solution:
        """Coefficients (m, p) and intercepts in the user's units as a start for these data."""
        W, nothing = coef.T * (self.feature / self.target), np.nan
        return Solution(W, intercept / self.target, nothing, nothing, nothing, False, 0, np.empty(0))


def rescale(data: TaskData, standardize: bool, scale_target: bool = False, centred: bool = True) -> Rescaled:
    """Divide features, targets or both by their weighted deviations in each task.

    A feature that is constant in a task keeps its scale there, and features that are constant in every task are named
    in a warning. ``centred`` is whether there is an intercept, for the deviation of the targets.
    """
    feature, target = np.ones((1, data.n_tasks)), np.ones(data.n_tasks)
    if scale_target:
        target = target_deviation(data, centred, own=True)
        data = data.with_target(data.y / target[data.task])
    if standardize:
        scales = column_scales(data)
        _warn_of_unknown_scales(data, scales)
        feature = np.where(scales == 0, 1.0, scales)
        data = scaled(data, 1.0 / feature)
    return Rescaled(data, feature, target)


def column_scales(data: TaskData) -> FloatArray:
    """(p, m) Weighted standard deviation of each feature within each task; 0 for a constant feature."""
    return np.broadcast_to(np.sqrt(_column_variances(data)), (data.n_features, data.n_tasks))


def _once(data: TaskData, name: str, make: Callable[[], FloatArray]) -> FloatArray:
    """What a pass over the data gives, kept with them."""
    known: FloatArray | None = data.__dict__.get(name)
    if known is None:
        known = data.__dict__[name] = make()
    return known


def keep_moments(data: TaskData, means: FloatArray, variances: FloatArray) -> None:
    """Remember (p + 1, m) weighted means and variances of features, and of the target as the last, of another's pass."""
    data.__dict__.setdefault("_column_variances", variances[:-1])
    squares = np.where(variances[-1] <= (ROUNDING * means[-1]) ** 2, 0.0, variances[-1] * data.task_weights)
    data.__dict__.setdefault("_target_squares_True", squares)


def _column_variances(data: TaskData) -> FloatArray:
    """(p, m) Variance of each feature within each task, or (p, 1) where all have the same rows and weights."""

    def make() -> FloatArray:
        if _has_own_rows(data) and (data.is_sparse or data.is_plain):
            variances = sparse_variances if data.is_sparse else dense_variances
            return variances(data.design, data.weight, data.offsets)
        return np.square(column_moments(data)[1])

    return _once(data, "_column_variances", make)


def _pooled_variances(data: TaskData) -> FloatArray:
    """(p,) Variance of each feature within tasks, averaged over the tasks by their weights."""
    if data.is_sparse and _has_own_rows(data) and "_column_variances" not in data.__dict__:
        make = partial(pooled_sparse_variances, data.design, data.weight, data.offsets)
        return _once(data, "_pooled_variances", make)
    variances = _column_variances(data)
    shares = data.task_weights / data.task_weights.sum()
    return np.asarray(variances[:, 0] if variances.shape[1] == 1 else variances @ shares)


def _has_own_rows(data: TaskData) -> bool:
    """Whether the rows of the design are those of the observations, sorted by task."""
    return not data.shared_design or data.n_tasks == 1


def column_means(data: TaskData) -> FloatArray:
    """(p, m) Weighted mean of each feature within each task."""
    return np.broadcast_to(column_moments(data)[0], (data.n_features, data.n_tasks))


def column_moments(data: TaskData) -> FloatArray:
    """(2, p, m) Weighted means and deviations of features, or (2, p, 1) where all tasks have the same rows and weights."""

    def make() -> FloatArray:
        pairs = _distinct_designs(data)
        return np.stack([_moments(data, X, data.weight[start:stop]) for X, (start, stop) in pairs], axis=-1)

    return _once(data, "_column_moments", make)


def _moments(data: TaskData, X: Design, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Means and deviations (p,) of one design of the data, from sums that were found when it was read, if they serve."""
    sums: FloatArray | None = data.__dict__.get("_plain_sums")
    if sums is None or X is not data.design or np.any(weight != weight[0]):
        return weighted_moments(X, weight)
    return moments_of_sums(X, sums)


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


def feature_deviation(data: TaskData, centred: bool = True) -> FloatArray:
    """(p,) Pooled deviation of each feature within the tasks that have it; its root mean square if not centred."""
    if data.present is None and centred:
        return np.sqrt(_pooled_variances(data))
    squares = column_scales(data) ** 2
    if not centred:
        squares = squares + column_means(data) ** 2
    weight = np.broadcast_to(data.task_weights, squares.shape)
    if data.present is not None:
        weight = np.where(data.present, weight, 0.0)
    total = weight.sum(axis=1)
    return np.sqrt(np.divide((weight * squares).sum(axis=1), total, out=np.zeros(len(total)), where=total > 0))


def target_means(data: TaskData) -> FloatArray:
    """(m,) Weighted mean of the targets of each task."""
    return np.add.reduceat(data.weight * data.y, data.offsets[:-1]) / data.task_weights


def target_deviation(data: TaskData, centred: bool = True, own: bool = False) -> FloatArray:
    """(m,) Deviation of the targets within tasks, pooled or each task's ``own``; about 0 if not centred.

    Where a task's is 0 the pooled one, where that is 0 the one over all rows, and 1 where that is 0 too.
    """
    totals = data.task_weights
    means = target_means(data) if centred else np.zeros(data.n_tasks)
    squares = _once(data, f"_target_squares_{centred}", partial(_target_squares, data, means))
    pooled = np.sqrt(squares.sum() / totals.sum())
    if pooled == 0:
        overall = totals @ means / totals.sum()
        spread = np.sqrt(totals @ (means - overall) ** 2 / totals.sum())
        pooled = spread if spread > ROUNDING * abs(overall) else 1.0
    return np.where(squares > 0, np.sqrt(squares / totals), pooled) if own else np.full(data.n_tasks, pooled)


def _target_squares(data: TaskData, means: FloatArray) -> FloatArray:
    """(m,) Weighted sum of the squares of each task's targets about a number; 0 where only rounding error is left."""
    moved = np.asarray(data.y, dtype=np.float64) - means[data.task]
    with np.errstate(over="ignore"):
        squares = np.add.reduceat(data.weight * np.square(moved), data.offsets[:-1])
    return np.where(squares <= data.task_weights * (ROUNDING * means) ** 2, 0.0, squares)


def effect_unit(data: TaskData, scale_target: bool, centred: bool = True) -> FloatArray:
    """(p, m) ``s_i / s_y`` by which a coefficient becomes an effect, in deviations within tasks.

    s_i is pooled over the tasks, and so is s_y where tasks are one quantity in many groups; in the wide form, whose targets
    are different quantities, s_y is the task's own. For labels and counts (``scale_target=False``) s_y is 1: the effect
    is the change of the log-odds, or of the linear predictor, per deviation of the feature.
    """
    height = target_deviation(data, centred, own=data.shared_design) if scale_target else np.ones(data.n_tasks)
    unit = feature_deviation(data, centred)[:, np.newaxis] / (height[:1] if np.all(height == height[0]) else height)
    return np.broadcast_to(unit, (data.n_features, data.n_tasks))


def warn_of_units(data: TaskData, features: bool, targets: bool) -> None:
    """Warn where deviations within tasks, of features or of targets, are so different that a penalty sees little else."""
    if data.n_features * data.n_tasks > MOST_ENTRIES:
        return
    if targets:
        known = np.diff(data.offsets) >= LEAST_ROWS  # fewer rows can have any deviation by chance
        own = np.where(known, target_deviation(data, own=True), 0.0)
        _warn_of_ratio("targets of task", data.task_names, own, TARGET_RATIO, "scale_target=True", "tasks")
    if features:
        deviation = feature_deviation(data)
        _warn_of_ratio("column", data.feature_names, deviation, FEATURE_RATIO, "standardize=True", "columns")


def _warn_of_ratio(
    what: str, names: NDArray[Any], deviations: FloatArray, most: float, remedy: str, plural: str
) -> None:
    """Warn where the largest of some deviations is too far from the smallest that is not 0."""
    smallest = float(deviations.min(where=deviations > 0, initial=np.inf))
    largest = float(deviations.max())
    if largest > most * smallest:
        low, high = int(np.flatnonzero(deviations == smallest)[0]), int(deviations.argmax())
        warn(
            f"deviations within tasks differ {largest / smallest:,.0f} times, from {smallest:.3g} ({what} "
            f"{names.tolist()[low]!r}) to {largest:.3g} ({what} {names.tolist()[high]!r}), and the penalty is "
            f"stated in these units, so that it tells {plural} apart by them; set {remedy}, or bring them to one scale",
            DataWarning,
        )


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
    deviation = feature_deviation(data, centre)
    row = np.arange(data.n_features) if data.groups is None else np.unique(data.groups, return_inverse=True)[1]
    unit = np.sqrt(np.bincount(row, weights=deviation**2) / np.bincount(row))[row]
    target = float(target_deviation(data, centre)[0]) if scale_target else 1.0
    return WithinTaskUnits(np.where(unit > 0, unit, 1.0), target, deviation > 0)


# ---------------------------------------------------------------------- the units of samplers


@dataclass(frozen=True, eq=False)
class SamplingUnits:
    """Centres and scales of the features and targets of each task."""

    feature_centre: FloatArray  # (p, m)
    feature_scale: FloatArray  # (p, m), the same in every task unless features are standardised task by task
    target_centre: FloatArray  # (m,)
    target_scale: FloatArray  # (m,), the same in every task unless targets are scaled task by task

    def coefficients(self, W: FloatArray) -> FloatArray:
        """Coefficients (..., p, m) of scaled data in the user's units."""
        return W * (self.target_scale / self.feature_scale)

    def intercepts(self, W: FloatArray, intercept: FloatArray) -> FloatArray:
        """Intercepts (..., m) in the user's units; W (..., p, m) is in them already."""
        shift = np.einsum("...pm,pm->...m", W, self.feature_centre)
        return self.target_centre + self.target_scale * intercept - shift

    def rows(self, numbers: FloatArray) -> FloatArray:
        """Scales or means of rows (..., p) in the user's units; at the mean unit where tasks have their own."""
        return numbers * (self.target_scale / self.feature_scale).mean(axis=1)


def plain_units(feature: FloatArray, target: FloatArray) -> SamplingUnits:
    """Units that divide features by (p, m) and targets by (m,) numbers and leave centres where they are."""
    return SamplingUnits(np.zeros_like(feature), feature, np.zeros_like(target), target)


def sampling_units(
    data: TaskData, *, centre: bool, per_task: bool, scale_target: bool, own_targets: bool = False
) -> SamplingUnits:
    """Centres (0 without an intercept) and scales of dense data, features ``per_task`` if they vary there.

    ``scale_target``: whether the target has a unit, as labels have not; ``own_targets``: one for each task.
    """
    mean, deviation = column_means(data), column_scales(data)
    if not centre:
        mean, deviation = np.zeros_like(mean), np.hypot(mean, deviation)
    pooled = feature_deviation(data, centre)[:, np.newaxis]
    pooled = np.where(pooled > 0, pooled, 1.0)
    # a feature that is constant in a task has the unit that it has over all of them
    scale = np.where(deviation > 0, deviation, pooled) if per_task else np.broadcast_to(pooled, mean.shape)
    if not scale_target:
        return SamplingUnits(mean, scale, np.zeros(data.n_tasks), np.ones(data.n_tasks))
    height = target_deviation(data, centre, own_targets)
    if not np.isfinite(height).all():
        raise ValueError(
            f"y has values up to {np.abs(data.y).max():.3g}, whose squares are no finite numbers; divide y by a constant"
        )
    return SamplingUnits(mean, scale, target_means(data) if centre else np.zeros(data.n_tasks), height)


def in_sampling_units(data: TaskData, units: SamplingUnits) -> TaskData:
    """Return the centred and scaled dense data; features that a task does not have stay 0 there."""
    y = (np.asarray(data.y, dtype=np.float64) - units.target_centre[data.task]) / units.target_scale[data.task]
    common = all(np.all(part == part[:, :1]) for part in (units.feature_centre, units.feature_scale))
    if common and data.present is None:
        design = (data.design - units.feature_centre[:, 0]) / units.feature_scale[:, 0]
        return replace(data, design=design, y=y)
    parts = [(X - units.feature_centre[:, t]) / units.feature_scale[:, t] for t, X in enumerate(data.task_designs)]
    if data.present is not None:
        parts = [np.where(data.present[:, t], part, 0.0) for t, part in enumerate(parts)]
    rows = np.arange(data.n_observations)
    return replace(data, design=np.concatenate(parts), y=y, rows=rows, shared_design=data.n_tasks == 1)
