"""Targets that the features reproduce exactly, and what keeps their noise from vanishing.

Where some coefficients leave no residual at all (more features than distinct rows, or a target that is a combination of
features), the likelihood grows without bound as the noise goes to 0, faster than any prior that is finite at 0 can
make up for once rows are repeated: there is no posterior. Two further rows per task settle that, with features 0,
targets `REACH` above and below the task's mean, and the weight ``n_t (NOISE_FLOOR / REACH)^2 / 2`` each. No coefficients
fit both, so that the noise stays above about `NOISE_FLOOR` deviations of y; to everything else they weigh next to
nothing, about one part in a million.
"""

from dataclasses import replace

import numpy as np

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.types import FloatArray

NOISE_FLOOR = 1e-3  # in deviations of y
REACH = 1.0


def fits_exactly(data: TaskData, fit_intercept: bool) -> bool:
    """Whether least squares leave any task's targets without a residual to speak of.

    Parameters
    ----------
    data : dense observations in sampling units
    fit_intercept : whether there is an intercept to help
    """
    y = np.asarray(data.y, dtype=np.float64)
    for X, (start, stop) in zip(data.task_designs, data.spans, strict=True):
        design = np.column_stack([X, np.ones(len(X))]) if fit_intercept else X
        if len(X) <= design.shape[1] or _residual(design, y[start:stop]) < NOISE_FLOOR:
            return True
    return False


def with_noise_floor(data: TaskData) -> TaskData:
    """Return the data with two rows per task that keep the noise away from 0.

    Parameters
    ----------
    data : dense observations in sampling units
    """
    totals, y = data.task_weights, np.asarray(data.y, dtype=np.float64)
    means = np.add.reduceat(data.weight * y, data.offsets[:-1]) / totals
    weights = 0.5 * totals * (NOISE_FLOOR / REACH) ** 2
    nothing = np.zeros((2, data.n_features))
    designs, targets, row_weights = [], [], []
    for t, (X, (start, stop)) in enumerate(zip(data.task_designs, data.spans, strict=True)):
        designs += [X, nothing]
        targets += [y[start:stop], means[t] + np.array([-REACH, REACH])]
        row_weights += [data.weight[start:stop], np.full(2, weights[t])]
    n_rows = data.n_observations + 2 * data.n_tasks
    return replace(
        data,
        design=np.concatenate(designs),
        y=np.concatenate(targets),
        weight=np.concatenate(row_weights),
        offsets=data.offsets + 2 * np.arange(data.n_tasks + 1),
        rows=np.arange(n_rows),
        order=np.arange(n_rows),
        shared_design=data.n_tasks == 1,
    )


def _residual(design: FloatArray, y: FloatArray) -> float:
    """Root mean square residual of least squares."""
    coefficients = np.linalg.lstsq(design, y)[0]
    return float(np.sqrt(np.mean((y - design @ coefficients) ** 2)))
