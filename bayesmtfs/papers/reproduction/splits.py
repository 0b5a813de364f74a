"""What reproductions share: data that may be missing, stratified splits, paired gains, and how far the work is."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.model_selection import StratifiedShuffleSplit

from bayesmtfs.papers.datasets import Dataset
from bayesmtfs.papers.reproduction.outcome import INTERRUPTED, Figure, Table
from bayesmtfs.progress import Progress
from bayesmtfs.types import ConvergenceWarning, DataWarning, FloatArray, IntArray, SelectionWarning

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

    Parameters
    ----------
    paper : its short name, for the progress bar
    jobs : the tables to make
    progress : progress bar: always, never, or (None) on a terminal
    """
    tables, skipped = [], []
    with Progress(paper, progress) as bar, Progress("", False) as watch, warnings.catch_warnings():
        # What a single fit has to say is for its user; what matters of it here is in the remarks
        for kind in (ConvergenceWarning, DataWarning, SelectionWarning):
            warnings.simplefilter("ignore", kind)
        for place, job in enumerate(jobs):

            def advance(share: float, place: int = place, name: str = job.name) -> None:
                watch.check()
                bar.update((place + share) / len(jobs), name)

            try:
                tables.append(job.make(advance))
            except DataNotThere as error:
                skipped.append(f"{job.name}: the data could not be read. {error}")
            except KeyboardInterrupt:
                if not tables:
                    raise
                skipped += [f"{left.name}: {INTERRUPTED}" for left in jobs[place:]]
                break
    return Collected(tuple(tables), tuple(skipped))


def read(loader: Callable[..., Dataset], **options: Any) -> Dataset:
    """Load a data set, or raise `DataNotThere` with the reason.

    Parameters
    ----------
    loader : a function of `bayesmtfs.datasets`
    **options : its parameters
    """
    try:
        return loader(progress=False, **options)
    except (OSError, ValueError) as error:  # nowhere, not to be fetched, or altered
        raise DataNotThere(str(error)) from error


def stratified_splits(labels: Sequence[ArrayLike], n_splits: int, train_size: float | int, seed: int) -> list[Split]:
    """Random splits in which every combination of the labels has its share.

    Parameters
    ----------
    labels : one or several (n,) arrays, such as task and class
    n_splits : how many
    train_size : share (float) or number (int) of training rows
    seed : of the splits

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
    """By how many percent our mean error lies below theirs; the standard error is that of paired differences.

    Parameters
    ----------
    method, measure, paper, remark : as in `Figure`
    ours, theirs : (r,) errors of the same repeats
    """
    ours, theirs = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    relative = ours / theirs.mean() - theirs / theirs.mean()
    return Figure.of(method, measure, (-100.0 * relative).tolist(), paper, remark)


def percent(wrong: FloatArray | Sequence[float]) -> float:
    """Mean in percent."""
    return 100.0 * float(np.mean(wrong))
