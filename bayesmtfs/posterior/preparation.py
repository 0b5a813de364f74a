"""Data before sampling: fewer features where there are thousands, and a floor under the noise of exact fits.

A posterior over p features costs at least p operations per observation and step, and mixes the worse the more of them
only carry noise. Screening keeps ``max_features`` of them:

1. a mixed-norm fit (q = 2) with a small penalty, `SHARE` of the smallest one at which nothing is selected;
2. the features of that fit, largest row first, then the others by the norm over tasks of their correlation with what
   the fit leaves unexplained, the gradient of the loss.

This is one round of iterative sure independence screening (Fan and Lv 2008, *Journal of the Royal Statistical Society*
B 70:849-911, section 4), with the group lasso as its selection step. Features that are left out have coefficient 0 in
every draw: the posterior is conditional on that, and says nothing about them.

Where some coefficients leave no residual at all (more features than distinct rows, or a target that is a combination of
features), the likelihood grows without bound as the noise goes to 0, faster than any prior that is finite at 0 can
make up for once rows are repeated: there is no posterior. Two further rows per task settle that, with features 0,
targets `REACH` above and below the task's mean, and the weight ``n_t (NOISE_FLOOR / REACH)^2 / 2`` each. No coefficients
fit both, so that the noise stays above about `NOISE_FLOOR` deviations of y; to everything else they weigh next to
nothing, about one part in a million.
"""

from dataclasses import replace

import numpy as np

from bayesmtfs.convex import automatic
from bayesmtfs.convex.problem import Problem
from bayesmtfs.data.scaling import feature_deviation
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import Family, Gaussian, Logistic, with_offset
from bayesmtfs.priors.blocks import Blocks
from bayesmtfs.priors.row_penalty import RowPenalty
from bayesmtfs.types import BoolArray, FloatArray, IntArray

SHARE = 0.05
TOL = 1e-3
NOISE_FLOOR = 1e-3  # in deviations of y
REACH = 1.0
FLOOR_ROWS = 2  # of each task


def screen(data: TaskData, family: Family, fit_intercept: bool, max_features: int | None) -> BoolArray:
    """(p,) Which features to keep: those that vary, and of them at most ``max_features`` (None: all), groups whole.

    One group is kept even where it is larger.
    """
    deviation = feature_deviation(data, fit_intercept or family.free_level)
    kept: BoolArray = deviation > 0
    if max_features is None or kept.sum() <= max_features:
        return kept
    order = _ranking(data, _smooth(family), fit_intercept, deviation)
    blocks = Blocks(data.n_features, data.n_tasks, groups=data.groups, present=data.present)
    sizes = np.bincount(blocks.row_of_feature, weights=kept)[order]
    chosen = order[np.cumsum(sizes) <= max_features]
    chosen = chosen if len(chosen) else order[:1]
    return kept & np.isin(blocks.row_of_feature, chosen)


def penalised_fit(
    data: TaskData, family: Family, fit_intercept: bool, weights: FloatArray | None = None, tol: float = 1e-4
) -> tuple[FloatArray, FloatArray]:
    """Coefficients (p, m) and intercepts (m,) of a mixed-norm fit with a small penalty.

    Zeros and the best constant of each task for a loss whose fits have no certificate, since it may not be convex.
    """
    if family.offers("conjugate") or family.coupled:
        fit_intercept = fit_intercept and not family.has_cuts
        problem = Problem(data, family, RowPenalty(0.0, 2.0, weights=weights), data.weight, fit_intercept)
        found = automatic.solve(problem.with_strength(SHARE * problem.largest_penalty or 1.0), tol=tol)
        return found.W, found.intercept
    y = np.asarray(data.y, dtype=np.float64)
    family = with_offset(family, data.eta_offset)
    best = [family.of_rows(a, b).best_constant(y[a:b], data.weight[a:b]) for a, b in data.spans]
    return np.zeros((data.n_features, data.n_tasks)), np.array(best) * fit_intercept


def chosen_features(data: TaskData, kept: BoolArray) -> TaskData:
    """Return the data with some of their features."""
    if kept.all():
        return data
    groups = None if data.groups is None else data.groups[kept]
    return replace(
        data,
        design=data.design[:, np.flatnonzero(kept)],
        names=tuple(data.feature_names[kept].tolist()),
        groups=groups,
        present=None if data.present is None else data.present[kept],
        encoding=None,
    )


def _smooth(family: Family) -> Family:
    """Return the family, or the smooth one with the same kind of targets: a subgradient ranks features badly."""
    if family.smooth:
        return family
    return Logistic() if family.targets == "labels" else Gaussian()


def _ranking(data: TaskData, family: Family, fit_intercept: bool, deviation: FloatArray) -> IntArray:
    """Numbers of the rows of the prior, best first; units of the features do not matter."""
    blocks = Blocks(data.n_features, data.n_tasks, groups=data.groups, present=data.present)
    unit = np.where(deviation > 0, deviation, 1.0)
    weights = np.ones(blocks.n_rows)
    weights[blocks.row_of_feature] = unit
    W, intercept = penalised_fit(data, family, fit_intercept, weights, TOL)
    eta = data.linear_predictor(W, intercept)
    family = with_offset(family, data.eta_offset).on(data.y, data.weight, data.offsets)
    gradient = data.adjoint(data.weight * family.gradient(np.asarray(data.y, dtype=np.float64), eta))
    norm = np.linalg.norm(blocks.gather(W * unit[:, np.newaxis]), axis=1)
    left = np.linalg.norm(blocks.gather(gradient / unit[:, np.newaxis]), axis=1)
    return np.asarray(np.lexsort((-left, -norm)), dtype=np.int64)


# ---------------------------------------------------------------------- exact fits


def fits_exactly(data: TaskData, fit_intercept: bool) -> bool:
    """Whether least squares leave any task's targets without a residual to speak of; dense data in sampling units."""
    y = np.asarray(data.y, dtype=np.float64)
    for X, (start, stop) in zip(data.task_designs, data.spans, strict=True):
        design = np.column_stack([X, np.ones(len(X))]) if fit_intercept else X
        if len(X) <= design.shape[1] or _residual(design, y[start:stop]) < NOISE_FLOOR:
            return True
    return False


def with_noise_floor(data: TaskData) -> TaskData:
    """Return dense data in sampling units with two rows per task that keep the noise away from 0."""
    totals, y = data.task_weights, np.asarray(data.y, dtype=np.float64)
    means = np.add.reduceat(data.weight * y, data.offsets[:-1]) / totals
    weights = 0.5 * totals * (NOISE_FLOOR / REACH) ** 2
    nothing = np.zeros((FLOOR_ROWS, data.n_features))
    designs, targets, row_weights = [], [], []
    for t, (X, (start, stop)) in enumerate(zip(data.task_designs, data.spans, strict=True)):
        designs += [X, nothing]
        targets += [y[start:stop], means[t] + np.array([-REACH, REACH])]
        row_weights += [data.weight[start:stop], np.full(FLOOR_ROWS, weights[t])]
    n_rows = data.n_observations + FLOOR_ROWS * data.n_tasks
    return replace(
        data,
        design=np.concatenate(designs),
        y=np.concatenate(targets),
        weight=np.concatenate(row_weights),
        offsets=data.offsets + FLOOR_ROWS * np.arange(data.n_tasks + 1),
        rows=np.arange(n_rows),
        order=np.arange(n_rows),
        shared_design=data.n_tasks == 1,
    )


def _residual(design: FloatArray, y: FloatArray) -> float:
    """Root mean square residual of least squares."""
    coefficients = np.linalg.lstsq(design, y)[0]
    return float(np.sqrt(np.mean((y - design @ coefficients) ** 2)))
