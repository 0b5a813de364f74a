"""What the reproductions share: a paper as its jobs, findings that become figures, splits, and settings chosen in folds."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid, StratifiedShuffleSplit

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.estimators.folds import input_rows, make_folds
from bayesmtfs.papers.datasets import Dataset
from bayesmtfs.papers.reproduction.outcome import INTERRUPTED, Figure, Outcome, Table
from bayesmtfs.progress import Progress
from bayesmtfs.types import BoolArray, ConvergenceWarning, DataWarning, FloatArray, IntArray, SelectionWarning

Advance = Callable[[float], None]  # told which share of a job is done
Job = Callable[[Any, int, Advance], Table | None]  # from the effort and a seed; None where the effort leaves it out


class DataNotThere(Exception):  # noqa: N818
    """The data of an experiment cannot be read; the message says why."""


class Paper(NamedTuple):
    """The experiments of a paper: what `Outcome` says of it, the jobs by name, and how much they do."""

    name: str
    citation: str
    full: Any
    quick: Any
    jobs: Mapping[str, Job]
    remarks: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()  # a sentence for each experiment that is not here

    def run(self, quick: bool = False, seed: int = 0, progress: bool | None = None) -> Outcome:
        """Make the tables one after the other; what lacks its data is skipped.

        Ctrl-C gives the tables that are finished; it is raised only where there are none.
        """
        tables, skipped, left = [], [], dict(self.jobs)
        with Progress(self.name, progress) as work, warnings.catch_warnings():
            # What a single fit has to say is for its user; what matters of it here is in the remarks
            for kind in (ConvergenceWarning, DataWarning, SelectionWarning):
                warnings.simplefilter("ignore", kind)
            for place, (name, job) in enumerate(self.jobs.items()):

                def advance(share: float, place: int = place, name: str = name) -> None:
                    work.check()
                    work.update((place + share) / len(self.jobs), name)

                try:
                    tables.append(job(self.quick if quick else self.full, seed, advance))
                except DataNotThere as error:
                    skipped.append(f"{name}: the data could not be read. {error}")
                del left[name]
        made = tuple(table for table in tables if table is not None)
        if work.interrupted:
            if not made:
                raise KeyboardInterrupt
            skipped += [f"{name}: {INTERRUPTED}" for name in left]
        return Outcome(self.name, self.citation, made, self.remarks, quick, (*skipped, *self.absent))


def watched[T](items: Iterable[T], advance: Advance) -> Iterator[T]:
    """The items, telling after each which share is done."""
    known = list(items)
    for place, item in enumerate(known, start=1):
        yield item
        advance(place / len(known))


class Findings:
    """Values of methods, repeat by repeat; tables show the measures in the order given here, or of their arrival."""

    def __init__(self, *measures: str) -> None:
        self.values: dict[str, dict[str, list[float]]] = {measure: {} for measure in measures}

    def add(self, method: str, values: Mapping[str, float]) -> None:
        """What a method reached in one repeat, by measure."""
        for measure, value in values.items():
            self.values.setdefault(measure, {}).setdefault(method, []).append(value)

    def figures(self, printed: Mapping[tuple[str, str], tuple[float | None, str]] | None = None) -> tuple[Figure, ...]:
        """Means over the repeats; ``printed`` has the paper's number and a remark by method and measure."""
        return tuple(
            Figure.of(method, measure, values, *(printed or {}).get((method, measure), (None, "")))
            for measure, by_method in self.values.items()
            for method, values in by_method.items()
        )


def gain(method: str, measure: str, ours: ArrayLike, theirs: ArrayLike, paper: float | None, remark: str) -> Figure:
    """By how many percent our mean error lies below theirs; the standard error is that of paired differences."""
    ours, theirs = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    relative = ours / theirs.mean() - theirs / theirs.mean()
    return Figure.of(method, measure, (-100.0 * relative).tolist(), paper, remark)


def percent(wrong: FloatArray | Sequence[float]) -> float:
    """Mean in percent."""
    return 100.0 * float(np.mean(wrong))


# ---------------------------------------------------------------------- rows and splits


def read(loader: Callable[..., Dataset], **options: Any) -> Dataset:
    """Load a data set, or raise `DataNotThere` with the reason."""
    try:
        return loader(progress=False, **options)
    except (OSError, ValueError) as error:  # nowhere, not to be fetched, or altered
        raise DataNotThere(str(error)) from error


class TaskRows(NamedTuple):
    """Rows in the long form."""

    X: Any  # (n, p) dense or CSR
    y: NDArray[Any]  # (n,)
    tasks: NDArray[Any]  # (n,)

    def take(self, rows: IntArray | BoolArray) -> "TaskRows":
        """Some of the rows."""
        return TaskRows(self.X[rows], self.y[rows], self.tasks[rows])


def read_rows(loader: Callable[..., Dataset], **options: Any) -> TaskRows:
    """All rows of a data set with a task label per row."""
    data = read(loader, **options)
    return TaskRows(data.X, data.y, np.asarray(data.tasks))


class Split(NamedTuple):
    """Numbers of the training and of the test rows."""

    train: IntArray
    test: IntArray


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


def folds_of(rows: TaskRows, n_folds: int, seed: int, by_class: bool) -> list[Split]:
    """Folds within tasks, and within classes if asked."""
    data = TaskData.from_long(rows.X, rows.y, rows.tasks)
    number = input_rows(data)
    folds = make_folds(data, n_folds, by_class=by_class, random_state=seed)
    return [Split(np.sort(number[fold.train]), np.sort(number[fold.test])) for fold in folds]


# ---------------------------------------------------------------------- fits


def fit(model: Any, train: TaskRows, setting: Mapping[str, Any] | None = None) -> Any:
    """Fit a clone of a model, with some of its parameters set."""
    return clone(model).set_params(**(setting or {})).fit(train.X, train.y, tasks=train.tasks)


def fit_best(
    model: Any,
    grid: Mapping[str, Sequence[Any]],
    train: TaskRows,
    folds: Iterable[Split],
    score: Callable[[Any, TaskRows], Any],
) -> Any:
    """Fit the setting whose scores of held-out training rows are largest; the model itself is not changed."""
    settings = list(ParameterGrid(grid))
    if len(settings) == 1:
        return fit(model, train, settings[0])
    parts = [(train.take(fold.train), train.take(fold.test)) for fold in folds]
    reached = [np.mean([score(fit(model, inside, one), outside) for inside, outside in parts]) for one in settings]
    return fit(model, train, settings[int(np.argmax(reached))])
