"""Batches that need no reading: plain rows of known tasks, learned at the price of their arithmetic.

Rows that are plain (float64 or CSR, known tasks, finite numbers or known labels, no weights) go straight to the learner;
for a single row that is a few dictionary lookups and one compiled call. Anything else is left to the general reader,
which does the same and knows what to say about what it cannot read.
"""

import math
from typing import Any

import numpy as np
import scipy.sparse as sp

from bayesmtfs.protocols import FloatArray, IntArray
from bayesmtfs.solvers.dual_averaging import DualAveraging, observations
from bayesmtfs.solvers.dual_averaging_rounds import Observations, Schedule, round_schedule

_CSR = (sp.csr_matrix, sp.csr_array)
_FLOAT = np.dtype(np.float64)
_INDEX = np.dtype(np.int32)


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
        self._n_features = learner.state.slots.size
        self._one = Observations(
            rows=np.zeros(1, dtype=np.int64),
            task=np.zeros(1, dtype=np.int64),
            y=np.zeros(1),
            weight=np.ones(1),
            squares=np.zeros(1),
        )
        self._one_round = Schedule(np.zeros(1, dtype=np.int64), np.array([0, 1]))

    def learn(self, X: Any, y: Any, tasks: Any) -> bool:
        """Learn a batch if its rows are plain; whether they were."""
        values = _plain_values(X)
        if values is None or X.shape[1] != self._n_features or type(y) is str or type(tasks) is str:
            return False
        n = X.shape[0]
        try:
            if len(y) != n or (tasks is None) != self.single or (tasks is not None and len(tasks) != n):
                return False
            return self._learn_one(X, values, y, tasks) if n == 1 else self._learn_many(X, n, y, tasks)
        except (KeyError, TypeError, IndexError):
            return False

    def _learn_one(self, X: Any, values: FloatArray, y: Any, tasks: Any) -> bool:
        one = self._one
        one.task[0] = 0 if tasks is None else self.columns[tasks[0]]
        target = float(y[0]) if self.targets is None else self.targets[y[0]]
        flat = values.ravel()
        squares = float(flat @ flat)
        if not math.isfinite(squares + target):
            return False
        one.y[0], one.squares[0] = target, squares
        self.learner.learn(X, one, self._one_round)
        return True

    def _learn_many(self, X: Any, n: int, y: Any, tasks: Any) -> bool:
        task: IntArray
        if tasks is None:
            task = np.zeros(n, dtype=np.int64)
        else:
            columns = self.columns
            task = np.array([columns[label] for label in _items(tasks)], dtype=np.int64)
        targets = self.targets
        if targets is not None:
            target = np.array([targets[label] for label in _items(y)])
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
    plain = values.dtype is _FLOAT and values.flags.carray and X.ndim == 2
    return values if plain else None


def _items(labels: Any) -> Any:
    return labels.tolist() if type(labels) is np.ndarray else labels
