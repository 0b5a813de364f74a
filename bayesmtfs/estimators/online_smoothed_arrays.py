"""Batches that are plain arrays of known tasks, read without the checks that frames, labels and new tasks need.

A stream of single rows spends its time on reading, not on learning. Where a batch is one of the simple kinds below, its
rounds are made directly; everything else, and everything wrong, goes the ordinary way, which knows what to say.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bayesmtfs.data.inputs import Design
from bayesmtfs.online.smoothed_rounds import Rounds, entries_of, unit_rows
from bayesmtfs.types import FloatArray, IntArray


def plain_design(X: Any, n_features: int) -> Design | None:
    """X where it is a finite float array or CSR matrix of the known width, else None."""
    if sp.issparse(X):
        simple = X.format == "csr" and X.has_canonical_format
    else:
        simple = type(X) is np.ndarray and X.ndim == 2
    if (
        not simple
        or X.dtype.kind != "f"
        or X.dtype.itemsize not in (4, 8)
        or X.shape[1] != n_features
        or not X.shape[0]
    ):
        return None
    values = X.data if sp.issparse(X) else X
    return X if np.isfinite(values.sum(dtype=np.float64)) else None


def looked_up(values: Any, n_rows: int, numbers: Mapping[Any, Any]) -> NDArray[Any] | None:
    """Number of each label, None where this is not an array of known labels."""
    if type(values) is not np.ndarray or values.shape != (n_rows,):
        return None
    try:
        return np.array([numbers[label] for label in values.tolist()])
    except (KeyError, TypeError):
        return None


def plain_rounds(X: Design, y: FloatArray, position: IntArray, learners: IntArray, normalize_rows: bool) -> Rounds:
    """Rounds of a batch whose rows belong to the tasks at these positions.

    Parameters
    ----------
    X, y : (n, p) rows and (n,) targets as the learner reads them
    position : (n,) place of each row's task among all tasks
    learners : (m,) learner of each task
    normalize_rows : whether rows are divided by their length
    """
    order = np.argsort(position, kind="stable")
    counts = np.bincount(position)
    present = np.flatnonzero(counts)
    offsets = np.zeros(len(present) + 1, dtype=np.int64)
    np.cumsum(counts[present], out=offsets[1:])
    values, features, pointer = entries_of(unit_rows(X) if normalize_rows else X)
    return Rounds(values, features, pointer, order, y[order], np.ones(len(y)), offsets, learners[present])
