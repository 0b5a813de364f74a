"""Units in which priors mean the same for every data set, and the way back to the user's.

Before sampling, features are centred and divided by their standard deviation over all rows (or, per task, over the
task's rows), targets by theirs over all rows:

    x' = (x - c) / s,   y' = (y - a) / h,   w = h w' / s,   b = a + h b' - c' w,   noise = h noise'

Centring changes nothing but what an intercept means: its prior is about the middle of the data. Without an intercept
nothing is centred, since that would bring one in by the back door. Labels are left as they are.
"""

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from bayesmtfs.data.scaling import column_means, column_scales, pooled_moments
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.types import FloatArray


@dataclass(frozen=True, eq=False)
class SamplingUnits:
    """Centres and scales of features and targets.

    Attributes
    ----------
    feature_centre, feature_scale : (p, m)
        The same in every task unless features are standardised task by task.
    target_centre, target_scale : float
    """

    feature_centre: FloatArray
    feature_scale: FloatArray
    target_centre: float = 0.0
    target_scale: float = 1.0

    def coefficients(self, W: FloatArray) -> FloatArray:
        """Coefficients (..., p, m) of scaled data in the user's units."""
        return W * (self.target_scale / self.feature_scale)

    def intercepts(self, W: FloatArray, intercept: FloatArray) -> FloatArray:
        """Intercepts (..., m) in the user's units.

        Parameters
        ----------
        W : (..., p, m) coefficients, already in the user's units
        intercept : (..., m) intercepts of the scaled data
        """
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


def find_units(data: TaskData, *, centre: bool, per_task: bool, scale_target: bool) -> SamplingUnits:
    """Centres and scales of the data.

    Parameters
    ----------
    data : dense observations; y is numeric
    centre : whether there is an intercept to take the means up
    per_task : scale features by their deviation within each task, if they have one
    scale_target : whether the target is a number, not a label
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


def in_units(data: TaskData, units: SamplingUnits) -> TaskData:
    """Return the centred and scaled data; features that a task does not have stay 0 there."""
    y = (np.asarray(data.y, dtype=np.float64) - units.target_centre) / units.target_scale
    common = bool(np.all(units.feature_centre == units.feature_centre[:, :1])) and bool(
        np.all(units.feature_scale == units.feature_scale[:, :1])
    )
    if common and data.present is None:
        design = (data.design - units.feature_centre[:, 0]) / units.feature_scale[:, 0]
        return replace(data, design=design, y=y)
    parts = [(X - units.feature_centre[:, t]) / units.feature_scale[:, t] for t, X in enumerate(data.task_designs)]
    if data.present is not None:
        parts = [np.where(data.present[:, t], part, 0.0) for t, part in enumerate(parts)]
    rows = np.arange(data.n_observations)
    return replace(data, design=np.concatenate(parts), y=y, rows=rows, shared_design=data.n_tasks == 1)


def dense(data: TaskData) -> TaskData:
    """Return the data with a dense float64 design."""
    design = data.design.toarray() if sp.issparse(data.design) else data.design
    return replace(data, design=np.ascontiguousarray(design, dtype=np.float64))


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
