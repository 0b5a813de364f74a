"""What a learner of streams is: the part of an online estimator that knows rounds, and nothing of labels or files."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, Self

import numpy as np

from bayesmtfs.data.inputs import Design
from bayesmtfs.types import FloatArray, IntArray


class StreamBatch(NamedTuple):
    """Rows that are learned together: the i-th row of each task belongs to the i-th round."""

    X: Design  # (n, p)
    y: FloatArray  # (N,) numbers, or -1 and +1
    task: IntArray  # (N,) place of the task among all tasks
    column: IntArray  # (N,) number of the task in the order of arrival
    weight: FloatArray | None = None  # (N,); None: 1
    rows: IntArray | None = None  # (N,) row of X that each observation uses; None: its own
    squares: FloatArray | None = None  # (n,) |x|^2 of the rows of X, where they are known

    @property
    def offsets(self) -> IntArray:
        """(m + 1,) Where each task begins, in a batch that is sorted by task."""
        return np.concatenate([[0], np.cumsum(np.bincount(self.task))])


class Coefficients(NamedTuple):
    """Weights of all tasks at one time, in the order of arrival."""

    W: FloatArray  # (p, m)
    intercept: FloatArray  # (m,)


class StreamLearner(ABC):
    """Linear weights of a growing number of tasks, which learn from batches."""

    n_features: int
    sound: bool = True  # no fit was interrupted or left predictions far worse than constants

    @property
    @abstractmethod
    def n_rows(self) -> int:
        """Rows so far, in every pass over them."""

    @property
    def progressive_losses(self) -> FloatArray | None:
        """(3,) Sums over rows that were predicted before they were learned: loss, loss of constants, weight."""
        return None

    @property
    @abstractmethod
    def n_rounds(self) -> int:
        """Rounds so far."""

    @property
    @abstractmethod
    def n_tasks(self) -> int:
        """Tasks so far."""

    @property
    def row_learner(self) -> Any:
        """Object that takes single rows at a lower price, by ``learn_dense_row`` and ``learn_sparse_row``; or None."""
        return None

    @abstractmethod
    def add_tasks(self, n_new: int) -> None:
        """Make room for further tasks, after those there are."""

    @abstractmethod
    def learn(self, batch: StreamBatch) -> None:
        """Learn one more batch in the order given."""

    @abstractmethod
    def fit(self, batch: StreamBatch, epochs: int, shuffle: bool, random_state: Any, progress: bool | None) -> None:
        """Learn a batch, sorted by task, several times; rows are shuffled within tasks each time."""

    @abstractmethod
    def coefficients(self) -> Coefficients:
        """Weights now."""

    @abstractmethod
    def to_stored(self) -> dict[str, Any]:
        """Numbers from which `restore` continues bit for bit."""

    @abstractmethod
    def restore(self, stored: dict[str, Any]) -> Self:
        """Take over the numbers of a stored learner with the same settings."""
