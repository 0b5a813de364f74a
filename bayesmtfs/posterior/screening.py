"""Fewer features before sampling, where there are thousands of them.

A posterior over p features costs at least p operations per observation and step, and mixes the worse the more of them
only carry noise. Screening keeps ``max_features`` of them:

1. a mixed-norm fit (q = 2) with a small penalty, `SHARE` of the smallest one at which nothing is selected;
2. the features of that fit, largest row first, then the others by the norm over tasks of their correlation with what
   the fit leaves unexplained.

This is one round of iterative sure independence screening (Fan and Lv 2008, *Journal of the Royal Statistical Society*
B 70:849-911, section 4), with the group lasso as its selection step. Features that are left out have coefficient 0 in
every draw: the posterior is conditional on that, and says nothing about them.
"""

from dataclasses import replace

import numpy as np

from bayesmtfs.convex import automatic
from bayesmtfs.convex.problem import Problem
from bayesmtfs.data.scaling import feature_deviations
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import find_family
from bayesmtfs.priors.blocks import Blocks
from bayesmtfs.priors.row_penalty import RowPenalty
from bayesmtfs.types import BoolArray, FloatArray, IntArray

SHARE = 0.05
TOL = 1e-3


def screen(data: TaskData, loss: str, fit_intercept: bool, max_features: int | None) -> BoolArray:
    """(p,) Which features to keep: those that vary, and of them at most ``max_features``, groups whole.

    Parameters
    ----------
    data : the observations; y is -1 and +1 for labels
    loss : "squared", "logistic" or "hinge"
    fit_intercept : one intercept per task
    max_features : most features to keep, None for all; one group is kept even where it is larger
    """
    deviation = feature_deviations(data, fit_intercept)
    kept: BoolArray = deviation > 0
    if max_features is None or kept.sum() <= max_features:
        return kept
    order = _ranking(data, "logistic" if loss == "hinge" else loss, fit_intercept, deviation)
    blocks = Blocks(data.n_features, data.n_tasks, groups=data.groups, present=data.present)
    sizes = np.bincount(blocks.row_of_feature, weights=kept)[order]
    chosen = order[np.cumsum(sizes) <= max_features]
    chosen = chosen if len(chosen) else order[:1]
    return kept & np.isin(blocks.row_of_feature, chosen)


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


def _ranking(data: TaskData, loss: str, fit_intercept: bool, deviation: FloatArray) -> IntArray:
    """Numbers of the rows of the prior, best first; units of the features do not matter."""
    family = find_family(loss)
    blocks = Blocks(data.n_features, data.n_tasks, groups=data.groups, present=data.present)
    unit = np.where(deviation > 0, deviation, 1.0)
    weights = np.ones(blocks.n_rows)
    weights[blocks.row_of_feature] = unit
    problem = Problem(data, family, RowPenalty(0.0, 2.0, weights=weights), data.weight, fit_intercept)
    found = automatic.solve(problem.with_strength(SHARE * problem.largest_penalty), tol=TOL)
    eta = data.linear_predictor(found.W, found.intercept)
    gradient = data.adjoint(data.weight * family.gradient(np.asarray(data.y, dtype=np.float64), eta))
    norm = np.linalg.norm(blocks.gather(found.W * unit[:, np.newaxis]), axis=1)
    left = np.linalg.norm(blocks.gather(gradient / unit[:, np.newaxis]), axis=1)
    return np.asarray(np.lexsort((-left, -norm)), dtype=np.int64)
