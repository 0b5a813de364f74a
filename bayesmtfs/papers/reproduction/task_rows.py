"""Rows of several tasks: so many of each for training, and settings chosen in folds of these."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.estimators.folds import input_rows, make_folds
from bayesmtfs.papers.datasets import Dataset
from bayesmtfs.papers.reproduction.splits import Split
from bayesmtfs.types import BoolArray, IntArray


class TaskRows(NamedTuple):
    """Rows in the long form."""

    X: Any  # (n, p) dense or CSR
    y: NDArray[Any]  # (n,)
    tasks: NDArray[Any]  # (n,)

    @classmethod
    def of(cls, data: Dataset) -> "TaskRows":
        """All rows of a data set with a task label per row."""
        return cls(data.X, data.y, np.asarray(data.tasks))

    def take(self, rows: IntArray | BoolArray) -> "TaskRows":
        """Some of the rows."""
        return TaskRows(self.X[rows], self.y[rows], self.tasks[rows])


Score = Callable[[Any, TaskRows], float]  # of a fitted model on rows it has not seen; larger is better


def split_each_task(tasks: ArrayLike, n_train: int, seed: int, labels: ArrayLike | None = None) -> Split:
    """So many training rows of every task in random order, task after task; all others are test rows.

    Parameters
    ----------
    tasks : (n,) task of each row
    n_train : training rows of each task
    seed : of the draw
    labels : (n,) classes, whose shares in the training rows are those in the task; None draws from all rows alike

    Examples
    --------
    >>> split = split_each_task([0, 0, 0, 0, 1, 1, 1], 2, seed=0)
    >>> [int((split.train < 4).sum()), len(split.train), len(split.test)]
    [2, 4, 3]
    """
    tasks, rng = np.asarray(tasks), np.random.default_rng(seed)
    kinds = np.zeros(len(tasks), dtype=np.int64) if labels is None else np.asarray(labels)
    drawn = []
    for task in np.unique(tasks):
        rows = np.flatnonzero(tasks == task)
        groups = [rng.permutation(rows[kinds[rows] == kind]) for kind in np.unique(kinds[rows])]
        counts = _shares(np.array([len(group) for group in groups]), n_train)
        drawn.append(rng.permutation(np.concatenate([g[:count] for g, count in zip(groups, counts, strict=True)])))
    train = np.concatenate(drawn)
    return Split(train, np.setdiff1d(np.arange(len(tasks)), train))


def _shares(sizes: IntArray, n_train: int) -> IntArray:
    """Training rows of each class in proportion to its size: rounded, and the largest class takes what is left."""
    counts = np.round(n_train * sizes / sizes.sum()).astype(np.int64)
    counts[np.argmax(sizes)] += n_train - counts.sum()
    return counts


def fit_best(
    model: Any, grid: Mapping[str, list[Any]], train: TaskRows, score: Score, n_folds: int, seed: int, by_class: bool
) -> Any:
    """Fit the setting that does best in folds of the training rows; the model itself is not changed.

    Parameters
    ----------
    model : an estimator
    grid : names of its parameters and their values; where there is one setting, nothing is chosen
    train : all it may see
    score : what is maximised
    n_folds, seed : folds of every task's rows
    by_class : whether the folds also spread the classes
    """
    settings = list(ParameterGrid(grid))
    reached = np.zeros(len(settings))
    if len(settings) > 1:
        data = TaskData.from_long(train.X, train.y, train.tasks)
        rows = input_rows(data)
        for fold in make_folds(data, n_folds, by_class=by_class, random_state=seed):
            inside, outside = train.take(np.sort(rows[fold.train])), train.take(np.sort(rows[fold.test]))
            for place, setting in enumerate(settings):
                reached[place] += score(fit(model, inside, setting), outside)
    return fit(model, train, settings[int(np.argmax(reached))])


def fit(model: Any, train: TaskRows, setting: Mapping[str, Any] | None = None) -> Any:
    """Fit a clone of a model, with some of its parameters set."""
    return clone(model).set_params(**(setting or {})).fit(train.X, train.y, tasks=train.tasks)
