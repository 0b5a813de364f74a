"""What a row of W is worth to the evidence, in closed form: which rows to take out, which to bring in.

With the score ``g_i`` and curvature ``Z_i`` of `row_posterior`, let ``e_j`` be the eigenvalues of ``R^(1/2) Z_i
R^(1/2)`` and ``s_j`` the entries of ``R^(1/2) g_i`` in its eigenvectors (without relations simply ``z_it`` and
``g_it``). Taking row i out costs, and bringing it in at variance gamma gains,

    loss:  1/2 sum_j [ln(1 - gamma_i e_j) + gamma_i s_j^2 / (1 - gamma_i e_j)]
    gain:  1/2 sum_j [-ln(1 + gamma e_j) + gamma s_j^2 / (1 + gamma e_j)]

of log evidence: Tipping and Faul (2003, *AISTATS*) for rows over m tasks.
"""

from typing import NamedTuple

import numpy as np

from bayesmtfs.em import row_posterior
from bayesmtfs.em.row_posterior import RowPosterior
from bayesmtfs.em.task_relations import Relations
from bayesmtfs.em.whitened_tasks import WhitenedTasks
from bayesmtfs.types import FloatArray, IntArray

VARIANCE_GRID = np.geomspace(1e-3, 1e4, 57)  # in units of one over the mean curvature
NEGLIGIBLE = 1e-6  # share of a candidate that the data determine


class RowStatistics(NamedTuple):
    """Curvatures and squared scores of rows, along the directions in which they do not mix."""

    curvatures: FloatArray  # (p, m) e
    squared_scores: FloatArray  # (p, m) s^2


def statistics(posterior: RowPosterior, relations: Relations | None) -> RowStatistics:
    """Curvatures and scores of every row of a posterior."""
    if relations is None:
        return RowStatistics(posterior.curvature, posterior.score**2)
    root = relations.root
    values, vectors = np.linalg.eigh(root @ posterior.curvature @ root)
    scores = np.einsum("ptj,pt->pj", vectors, posterior.score @ root)
    return RowStatistics(np.maximum(values, 0.0), scores**2)


def losses(rows: RowStatistics, row_variances: FloatArray) -> FloatArray:
    """(p,) Log evidence that would be lost without each row."""
    left = np.maximum(1.0 - row_variances[:, None] * rows.curvatures, 1e-15)
    terms = np.log(left) + row_variances[:, None] * rows.squared_scores / left
    return np.asarray(0.5 * terms.sum(axis=1))


def gains(rows: RowStatistics) -> tuple[FloatArray, FloatArray]:
    """(p,) Log evidence that each row would bring, and (p,) its variance then; 0 for rows that would bring none."""
    best, best_variance = np.zeros(len(rows.curvatures)), np.zeros(len(rows.curvatures))
    mean = rows.curvatures.mean(axis=1)
    promising = np.flatnonzero((rows.squared_scores.sum(axis=1) > rows.curvatures.sum(axis=1)) & (mean > 0))
    e, s = rows.curvatures[promising], rows.squared_scores[promising]
    for unit in VARIANCE_GRID:
        variance = unit / mean[promising]
        more = 1.0 + variance[:, None] * e
        gain = 0.5 * np.sum(variance[:, None] * s / more - np.log(more), axis=1)
        better = gain > best[promising]
        best[promising[better]] = gain[better]
        best_variance[promising[better]] = variance[better]
    return best, best_variance


def candidate_statistics(
    tasks: WhitenedTasks,
    active: IntArray,
    row_variances: FloatArray,
    precision: FloatArray,
    relations: Relations | None,
) -> RowStatistics:
    """Curvatures and scores of all features, active or not.

    Features that are not active take part with a variance too small to matter, some at a time.

    Parameters
    ----------
    tasks : the whitened tasks over all p features
    active : (a,) active features
    row_variances : (a,) their variances
    precision : (D,) precision of every design
    relations : R or None
    """
    p, m = tasks.n_features, tasks.n_tasks
    found = RowStatistics(np.zeros((p, m)), np.zeros((p, m)))
    task_precision = np.repeat(precision, m // len(precision))
    strength = (tasks.column_squares @ task_precision) / m
    idle = np.setdiff1d(np.flatnonzero(strength > 0), active, assume_unique=True)
    size = max(len(active), 64) if tasks.n_rows > 2 * len(active) else p
    for first in range(0, len(idle), size):
        block = idle[first : first + size]
        features = np.concatenate([active, block])
        variances = np.concatenate([row_variances, NEGLIGIBLE / strength[block]])
        posterior = row_posterior.compute(tasks.take(features), variances, precision, relations)
        rows = statistics(posterior, relations)
        found.curvatures[features], found.squared_scores[features] = rows
    return found
