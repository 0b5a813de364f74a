"""How tasks relate."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from bayesmtfs.plots.axes import LABELLED, entitle, name_positions, new_axes, result_of
from bayesmtfs.results.fit_result import FitResult
from bayesmtfs.selection.draws import draws_of
from bayesmtfs.types import FloatArray, IntArray


def task_relations(result: Any, cluster: bool = True, ax: Axes | None = None) -> Axes:
    """Relations between tasks as a matrix, similar tasks beside each other.

    Parameters
    ----------
    result : a fit with task relations (matrix variate or smoothed), or the fitted estimator
    cluster : order the tasks by average-linkage clustering instead of by name
    ax : axes to draw on; a new figure if None

    Returns
    -------
    the axes
    """
    relations = _relations(result)
    result = result_of(result)
    order = _clustered(relations) if cluster and len(relations) > 2 else np.arange(len(relations))
    side = 2.5 + 0.2 * min(len(order), LABELLED)
    ax = new_axes(ax, side + 0.8, side)
    off_diagonal = relations[~np.eye(len(relations), dtype=bool)]
    limit = float(np.abs(off_diagonal).max()) if len(off_diagonal) and off_diagonal.any() else 1.0
    shown = relations[np.ix_(order, order)]
    image = ax.imshow(shown, cmap="RdBu_r", vmin=-limit, vmax=limit)
    for axis, turn in ((ax.xaxis, 90), (ax.yaxis, 0)):
        name_positions(axis, result.task_names[order], "task", rotation=turn)
    entitle(ax, f"{result.method}: relations of {len(order)} tasks")
    ax.figure.colorbar(image, ax=ax, label="relation (the diagonal is beyond the scale)", shrink=0.8)
    return ax


def _relations(fit: Any) -> FloatArray:
    result: FitResult = result_of(fit)
    draws = draws_of(result, "task_relations")
    found = draws.mean(axis=0) if draws is not None else result.task_relations
    if found is None:
        found = getattr(fit, "task_relations_", None)
    if found is None:
        raise ValueError(f"{result.method} has no task relations; fit a MatrixVariate or Smoothed estimator")
    return np.asarray(found, dtype=np.float64)


def _clustered(relations: FloatArray) -> IntArray:
    """Order of the tasks in which similar ones are neighbours."""
    likeness = (relations + relations.T) / 2
    distance = np.clip(likeness.max() - likeness, 0.0, None)
    np.fill_diagonal(distance, 0.0)
    return np.asarray(leaves_list(linkage(squareform(distance, checks=False), "average")), dtype=np.int64)
