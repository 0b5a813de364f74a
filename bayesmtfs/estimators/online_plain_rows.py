"""Batches that need no reading: plain rows of known tasks, learned at the price of their arithmetic.

Rows that are plain (float64 or canonical CSR, known tasks, finite numbers or known labels, no weights) go straight to
the learner; for a single row that is a few dictionary lookups and one compiled call. Anything else is left to the
general reader, which does the same and knows what to say about what it cannot read.
"""

import math
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bayesmtfs.online.dual_averaging import DualAveraging
from bayesmtfs.online.dual_averaging_batches import Schedule, observations, round_schedule
from bayesmtfs.types import FloatArray, IntArray

_CSR = (sp.csr_matrix, sp.csr_array)
_FLOAT = np.dtype(np.float64)
_INDEX = np.dtype(np.int32)
_ONE = (1,)
_MANY = 64  # rows from which a table of labels pays


class PlainRows:
    """Learn plain rows with one learner.

    Parameters
    ----------
    learner : the learner
    columns : column of each task that it knows
    single : whether there is one task, without a label
    targets : what a class label is inside; None where targets are numbers
    """

    def __init__(
        self, learner: DualAveraging, columns: dict[Any, int], single: bool, targets: dict[Any, float] | None
    ) -> None:
        self.learner = learner
        self.columns = columns
        self.single = single
        self.targets = targets
        self._n_features = learner.n_features
        self._one_row = (1, self._n_features) if learner.takes_single_rows else None

    def learn(self, X: Any, y: Any, tasks: Any) -> bool:
        """Learn a batch if its rows are plain; whether they were."""
        values = _plain_values(X)
        if values is None or (tasks is None) != self.single:
            return False
        shape = X.shape
        try:
            if shape == self._one_row:
                task = 0 if tasks is None else self.columns[_only_item(tasks)]
                target = self._target(y)
            elif len(shape) != 2 or shape[1] != self._n_features or len(y) != shape[0]:
                return False
            else:
                return self._learn_many(X, shape[0], y, tasks)
        except (KeyError, TypeError):
            return False
        if values is X:
            return self.learner.learn_dense_row(X, target, task)
        return self.learner.learn_sparse_row(values, X.indices, X.indptr, target, task)

    def newcomer(self, X: Any, y: Any, tasks: Any) -> Any:
        """Label of a single row's task, where that it is new is all that keeps the row from being plain; or None."""
        values = _plain_values(X)
        if values is None or X.shape != self._one_row or self.single:
            return None
        try:
            label, target = _only_item(tasks), self._target(y)
        except (KeyError, TypeError):
            return None
        alike = label not in self.columns and {type(label)} == set(map(type, self.columns)) <= {int, str}
        return label if alike and math.isfinite(values.sum() + target) else None

    def _target(self, y: Any) -> float:
        """What the one entry of y is inside."""
        only = _only_item(y)
        if self.targets is not None:
            return self.targets[only]
        if type(only) is bool or not isinstance(only, float | int):
            raise TypeError
        return float(only)

    def _learn_many(self, X: Any, n: int, y: Any, tasks: Any) -> bool:
        task: IntArray
        if type(y) is str or type(tasks) is str or not (type(X) is np.ndarray or X.has_canonical_format):
            return False
        if tasks is None:
            task = np.zeros(n, dtype=np.int64)
        else:
            columns = self.columns
            if len(tasks) != n:
                return False
            task = _looked_up(tasks, columns, np.int64)
        targets = self.targets
        if targets is not None:
            target = _looked_up(y, targets, np.float64)
        elif type(y) is np.ndarray and y.dtype is _FLOAT and y.ndim == 1:
            target = np.require(y, requirements=["C", "A", "W"])
        else:
            return False
        seen = observations(X, target, task)
        if n == 0 or not math.isfinite(float(seen.squares.sum() + target.sum())):
            return False
        self.learner.learn(X, seen, Schedule(*round_schedule(task, self.learner.n_tasks)))
        return True


def _plain_values(X: Any) -> FloatArray | None:
    """Numbers of a design that compiled code takes as it is; None for any other."""
    if type(X) is np.ndarray:
        values = X
    elif type(X) in _CSR and X.indices.dtype is _INDEX and X.indptr.dtype is _INDEX:
        values = X.data
    else:
        return None
    return values if values.dtype is _FLOAT and values.flags.carray else None


def _only_item(labels: Any) -> Any:
    """The one entry of a vector or list; `TypeError` for anything else."""
    if type(labels) is np.ndarray:
        if labels.shape == _ONE:
            return labels.item()
    elif type(labels) is list and len(labels) == 1:
        return labels[0]
    raise TypeError


def _looked_up(labels: Any, numbers: dict[Any, Any], dtype: Any) -> NDArray[Any]:
    """Number of every label; `KeyError` for one that has none."""
    if type(labels) is not np.ndarray:
        return np.array([numbers[label] for label in labels], dtype=dtype)
    if labels.dtype.kind not in "iu" or labels.ndim != 1 or labels.size < _MANY:
        return np.array([numbers[label] for label in labels.tolist()], dtype=dtype)
    # Few labels for many rows: one dictionary lookup per label between the smallest and the largest
    smallest, largest = int(labels.min()), int(labels.max())
    if largest - smallest >= labels.size:
        return np.array([numbers[label] for label in labels.tolist()], dtype=dtype)
    table = np.array([numbers.get(label, np.nan) for label in range(smallest, largest + 1)], dtype=np.float64)
    found = table[labels - smallest]
    if np.isnan(found).any():
        raise KeyError
    return found.astype(dtype, copy=False)
