"""Training and test rows of the judge, spread over tasks and classes."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmtfs.selection.judge_fits import Rows
from bayesmtfs.types import IntArray

Split = tuple[IntArray, IntArray]  # numbers of training and test rows


def strata(rows: Rows) -> IntArray:
    """(n,) Number of each row's task and class; of the wide form, of its labels taken together."""
    if rows.y.ndim == 2:
        return np.unique(np.nan_to_num(rows.y, nan=-1.0), axis=0, return_inverse=True)[1].ravel()
    tasks = (
        np.zeros(len(rows.y), dtype=np.int64) if rows.tasks is None else np.unique(rows.tasks, return_inverse=True)[1]
    )
    return np.unique(np.column_stack([tasks, rows.y]), axis=0, return_inverse=True)[1].ravel()


def draw_splits(
    rows: Rows, n_splits: int, test_size: float, per_class: int | None, rng: np.random.RandomState
) -> list[Split]:
    """Draw random splits: so many training rows per class of each task, or a share of test rows in each of them."""
    if per_class is not None and rows.y.ndim == 2:
        raise ValueError("per_class needs one label per row but y has several columns; pass splits or test_size")
    if not 0 < test_size < 1:
        raise ValueError(f"test_size is {test_size}; pass a share of the rows between 0 and 1")
    if n_splits < 1:
        raise ValueError(f"n_splits is {n_splits}; pass a whole number of at least 1")
    return [_draw(strata(rows), test_size, per_class, rng) for _ in range(n_splits)]


def _draw(stratum: IntArray, test_size: float, per_class: int | None, rng: np.random.RandomState) -> Split:
    place = _place_in_stratum(stratum, rng)
    size = np.bincount(stratum)[stratum]
    if per_class is None:
        test = place >= size - np.maximum(np.round(test_size * size), (size > 1).astype(int))
    else:
        if size.min() <= per_class:
            raise ValueError(
                f"per_class is {per_class} but a class of a task has {size.min()} rows; pass at most {size.min() - 1}"
            )
        test = place >= per_class
    return np.flatnonzero(~test), np.flatnonzero(test)


def given_splits(splits: Iterable[Any], n_rows: int) -> list[Split]:
    """Check the user's pairs of training and test rows."""
    found = [(np.asarray(train), np.asarray(test)) for train, test in splits]
    if not found:
        raise ValueError("splits is empty; pass at least one (train, test) pair of row numbers")
    for train, test in found:
        if np.intersect1d(train, test).size:
            raise ValueError("splits has a row in both the training and the test part; pass disjoint parts")
        if max(train.max(), test.max()) >= n_rows:
            raise ValueError(f"splits has row number {max(train.max(), test.max())} but X has {n_rows} rows")
    return found


def inner_folds(rows: Rows, n_folds: int, rng: np.random.RandomState) -> list[Split]:
    """Folds of training rows; classes with fewer rows than folds are in as many folds as they can."""
    fold = _place_in_stratum(strata(rows), rng) % n_folds
    used = [number for number in range(n_folds) if (fold == number).any()]
    return [(np.flatnonzero(fold != number), np.flatnonzero(fold == number)) for number in used]


def _place_in_stratum(stratum: IntArray, rng: np.random.RandomState) -> NDArray[np.int64]:
    """(n,) Place of each row in a random order of its stratum."""
    order = rng.permutation(len(stratum))
    order = order[np.argsort(stratum[order], kind="stable")]
    starts = np.concatenate([[0], np.cumsum(np.bincount(stratum))[:-1]])
    place = np.empty(len(stratum), dtype=np.int64)
    place[order] = np.arange(len(stratum)) - starts[stratum[order]]
    return place
