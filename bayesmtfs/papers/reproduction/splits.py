"""What reproductions share: data that may be missing, stratified splits, paired gains, and how far the work is.

Rows of several tasks: so many of each for training, and settings chosen in folds of these.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid, StratifiedShuffleSplit

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.estimators.folds import input_rows, make_folds
from bayesmtfs.papers.datasets import Dataset
from bayesmtfs.papers.reproduction.outcome import INTERRUPTED, Figure, Table
from bayesmtfs.progress import Progress
from bayesmtfs.types import BoolArray, ConvergenceWarning, DataWarning, FloatArray, IntArray, SelectionWarning

Advance = Callable[[float], None]  # told which share of a job is done


class DataNotThere(Exception):  # noqa: N818
    """The data of an experiment cannot be read; the message says why."""


class Split(NamedTuple):
    """Numbers of the training and of the test rows."""

    train: IntArray
    test: IntArray


class Job(NamedTuple):
    """One table to make."""

    name: str
    make: Callable[[Advance], Table]


class Collected(NamedTuple):
    """The tables that could be made, and a sentence for each that could not."""

    tables: tuple[Table, ...]
    skipped: tuple[str, ...]


def collect(paper: str, jobs: Sequence[Job], progress: bool | None) -> Collected:
    """Make the tables one after the other; what lacks its data is skipped.

    Ctrl-C gives the tables that are finished; it is raised only where there are none.
    """
    tables, skipped = [], []
    with Progress(paper, progress) as work, warnings.catch_warnings():
        # What a single fit has to say is for its user; what matters of it here is in the remarks
        for kind in (ConvergenceWarning, DataWarning, SelectionWarning):
            warnings.simplefilter("ignore", kind)
        for place, job in enumerate(jobs):

            def advance(share: float, place: int = place, name: str = job.name) -> None:
                work.check()
                work.update((place + share) / len(jobs), name)

            try:
                tables.append(job.make(advance))
            except DataNotThere as error:
                skipped.append(f"{job.name}: the data could not be read. {error}")
    if work.interrupted:
        if not tables:
            raise KeyboardInterrupt
        skipped += [f"{left.name}: {INTERRUPTED}" for left in jobs[len(tables) + len(skipped) :]]
    return Collected(tuple(tables), tuple(skipped))


def read(loader: Callable[..., Dataset], **options: Any) -> Dataset:
    """Load a data set, or raise `DataNotThere` with the reason."""
    try:
        return loader(progress=False, **options)
    except (OSError, ValueError) as error:  # nowhere, not to be fetched, or altered
        raise DataNotThere(str(error)) from error


def stratified_splits(labels: Sequence[ArrayLike], n_splits: int, train_size: float | int, seed: int) -> list[Split]:
    """Random splits in which every combination of the labels has its share.

    Examples
    --------
    >>> split = stratified_splits([[0, 0, 0, 0, 1, 1, 1, 1]], 1, 0.5, seed=0)[0]
    >>> len(split.train), sorted(split.train < 4)
    (4, [np.False_, np.False_, np.True_, np.True_])
    """
    strata = np.unique(np.column_stack([np.asarray(label, dtype=str) for label in labels]), axis=0, return_inverse=True)
    numbers = strata[1].ravel()
    splitter = StratifiedShuffleSplit(n_splits, train_size=train_size, random_state=seed)
    return [Split(train, test) for train, test in splitter.split(numbers, numbers)]


def gain(method: str, measure: str, ours: ArrayLike, theirs: ArrayLike, paper: float | None, remark: str) -> Figure:
    """By how many percent our mean error lies below theirs; the standard error is that of paired differences."""
    ours, theirs = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    relative = ours / theirs.mean() - theirs / theirs.mean()
    return Figure.of(method, measure, (-100.0 * relative).tolist(), paper, remark)


def percent(wrong: FloatArray | Sequence[float]) -> float:
    """Mean in percent."""
    return 100.0 * float(np.mean(wrong))


# ---------------------------------------------------------------------- rows of tasks


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
    """Fit the setting that does best in folds of the training rows; the model itself is not changed."""
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
