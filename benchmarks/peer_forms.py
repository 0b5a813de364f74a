"""The same problem in the forms that other packages read; made before the clock starts.

With a squared loss an unpenalised intercept is the same as centring each task, so that packages without one intercept
per task lose nothing. Tasks with designs of their own are one regression on a block diagonal design whose column
``j * m + t`` is feature j of task t: row j of W is then one group of m neighbouring columns.
"""

from typing import Any

import numpy as np
import scipy.sparse as sp
from certificate import FloatArray
from workloads import TaskSet


def centred(data: TaskSet) -> tuple[FloatArray, FloatArray]:
    """(n, p) design and (n, m) targets of tasks that share a dense design, with column means of 0."""
    X, Y = data.X - data.X.mean(axis=0), data.wide_targets
    return np.asfortranarray(X), np.asfortranarray(Y - Y.mean(axis=0))


def block_design(data: TaskSet, *, centre: bool) -> sp.csc_matrix:
    """(N, p m) block diagonal design, columns of a feature next to each other."""
    m = data.n_tasks
    blocks = []
    for t in range(m):
        X = data.design(t)
        block = sp.coo_matrix(X - X.mean(axis=0) if centre else X)
        blocks.append((block.row, block.col.astype(np.int64) * m + t, block.data))
    starts = np.concatenate([[0], np.cumsum([len(y) for y in data.targets])])
    rows = np.concatenate([row + start for (row, _, _), start in zip(blocks, starts, strict=False)])
    columns = np.concatenate([column for _, column, _ in blocks])
    values = np.concatenate([value for _, _, value in blocks])
    design = sp.csc_matrix((values, (rows, columns)), shape=(starts[-1], data.n_features * m))
    design.sort_indices()
    return design


def with_intercept_columns(design: sp.csc_matrix, data: TaskSet) -> sp.csc_matrix:
    """Append the indicator of every task."""
    rows = np.arange(design.shape[0])
    indicators = sp.csc_matrix((np.ones(len(rows)), (rows, data.labels)))
    joined = sp.csc_matrix(sp.hstack([design, indicators]))
    joined.sort_indices()
    return joined


def scaled_blocks(data: TaskSet) -> tuple[sp.csc_matrix, FloatArray]:
    """Block design and targets, centred per task and times the square root of each row's factor."""
    root = np.sqrt(data.row_factors)
    y = np.concatenate([y - y.mean() for y in data.targets])
    return sp.csc_matrix(sp.diags_array(root) @ block_design(data, centre=True)), root * y


def read_blocks(beta: Any, data: TaskSet) -> tuple[FloatArray, FloatArray | None]:
    """W and, where there were intercept columns, b from the coefficients of a block design."""
    beta = np.asarray(beta, dtype=np.float64).ravel()
    size = data.n_features * data.n_tasks
    W = beta[:size].reshape(data.n_features, data.n_tasks)
    return W, (beta[size:] if len(beta) > size else None)
