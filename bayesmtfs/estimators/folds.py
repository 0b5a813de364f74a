"""Which observations train and which test: folds that respect tasks.

By default the rows of every task, and within it of every class, are dealt out to the folds in turn, so that each fold
holds its share of each task. In the wide form whole rows are dealt out: the cells of a row stay together, and rows are
ordered by which cells they have (and their classes) before they are dealt. Other choices are a scikit-learn splitter,
explicit rows, or tasks left out whole (Evgeniou, Micchelli and Pontil 2005 test transfer to new tasks in this way).
"""

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.types import BoolArray, FloatArray, IntArray

DEFAULT_FOLDS = 5
LEAVE_ONE_TASK_OUT = "leave_one_task_out"


class Fold(NamedTuple):
    """One split of the observations of a `TaskData`."""

    train: BoolArray  # (N,)
    test: BoolArray  # (N,)


class Subset(NamedTuple):
    """Some of the observations, and the tasks they belong to."""

    data: TaskData
    tasks: IntArray  # numbers, in the whole data, of the tasks that are left


def make_folds(
    data: TaskData,
    cv: Any = None,
    *,
    n_rows: int | None = None,
    target: Any = None,
    by_class: bool = False,
    random_state: int | None = None,
) -> list[Fold]:
    """Split observations into training and test sets.

    ``cv`` is a number of folds (None: 5, or one per row where there are fewer); a scikit-learn splitter, which gets the
    task labels as ``groups`` in the long form, and ``target`` to stratify by; an iterable of (train, test) numbers of the
    user's ``n_rows`` rows; a mapping from task to group, whose groups of tasks are left out one at a time; or
    "leave_one_task_out". ``by_class`` also spreads the classes of each task; ``random_state`` shuffles the rows first.
    """
    if leaves_tasks_out(cv):
        return _tasks_left_out(data, None if isinstance(cv, str) else cv)
    rows = input_rows(data)
    size = int(rows.max()) + 1 if n_rows is None else n_rows
    if cv is None or isinstance(cv, int | np.integer):
        number = row_folds(data, cv, by_class=by_class, random_state=random_state)
        return [Fold(number != k, number == k) for k in range(int(number.max()) + 1)]
    return [_fold_of_rows(rows, size, train, test) for train, test in split_rows(data, cv, size, target)]


def leaves_tasks_out(cv: Any) -> bool:
    """Whether whole tasks are held out."""
    return isinstance(cv, Mapping) or (isinstance(cv, str) and cv == LEAVE_ONE_TASK_OUT)


def input_rows(data: TaskData) -> IntArray:
    """(N,) Row of the user's input to which each observation belongs."""
    return data.order // data.n_tasks if data.shared_design else data.order


def row_folds(data: TaskData, n_folds: Any, *, by_class: bool, random_state: int | None) -> IntArray:
    """(N,) Number of the fold of each observation: rows dealt out in turn, stratum by stratum."""
    rows, place = np.unique(input_rows(data), return_inverse=True)
    n_folds = _checked_number(n_folds, len(rows))
    labels = data.y.astype(np.float64) if by_class else np.zeros(data.n_observations)
    strata = _strata(data, place, labels)
    shuffled = np.arange(len(rows))
    if random_state is not None:
        shuffled = np.random.default_rng(random_state).permutation(len(rows))
    order = shuffled[np.lexsort(strata[shuffled].T[::-1])]
    number = np.empty(len(rows), dtype=np.int64)
    number[order] = np.arange(len(rows)) % n_folds
    return number[place]


def _strata(data: TaskData, place: IntArray, labels: FloatArray) -> FloatArray:
    """What is spread over the folds, row by row: task and class; in the wide form the class of every cell, or inf."""
    if not data.shared_design:
        strata = np.empty((int(place.max()) + 1, 2))
        last = np.argsort(
            labels, kind="stable"
        )  # where a row is there once for every class, that of its own class counts
        strata[place[last]] = np.column_stack([data.task, labels])[last]
        return strata
    strata = np.full((int(place.max()) + 1, data.n_tasks), np.inf)
    strata[place, data.task] = labels
    return strata


def _checked_number(n_folds: Any, n_rows: int) -> int:
    if n_rows < 2:
        raise ValueError(
            f"cross-validation needs at least two rows but X has n_samples={n_rows} with an observed target; pass more "
            "rows, or use the estimator without CV"
        )
    if n_folds is None:
        return min(DEFAULT_FOLDS, n_rows)
    if not 2 <= n_folds <= n_rows:
        raise ValueError(f"cv is {n_folds}; pass a number of folds between 2 and the number of rows, {n_rows}")
    return int(n_folds)


def split_rows(data: TaskData, cv: Any, n_rows: int, target: Any) -> list[tuple[IntArray, IntArray]]:
    """Explicit (train, test) rows of a splitter or an iterable."""
    if isinstance(cv, str) or not (hasattr(cv, "split") or isinstance(cv, Iterable)):
        raise ValueError(
            f"cv is {cv!r}; pass a number of folds, a scikit-learn splitter, (train, test) pairs of row numbers, a "
            f"mapping from task to group, {LEAVE_ONE_TASK_OUT!r} or None"
        )
    pairs = _splitter_pairs(data, cv, n_rows, target) if hasattr(cv, "split") else cv
    found = [(np.asarray(train), np.asarray(test)) for train, test in pairs]
    if not found:
        raise ValueError("cv has no folds; pass at least one (train, test) pair")
    return found


def _splitter_pairs(data: TaskData, splitter: Any, n_rows: int, target: Any) -> list[Any]:
    """Pairs of a splitter that is told the target and, in the long form, the tasks."""
    rows = input_rows(data)
    groups = None if data.shared_design else _per_row(rows, data.task, n_rows)
    target = _per_row(rows, data.y, n_rows) if target is None else target
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The groups parameter is ignored")
        return list(splitter.split(np.zeros((n_rows, 1)), target, groups))


def _per_row(rows: IntArray, values: NDArray[Any], n_rows: int) -> NDArray[Any]:
    """Values of observations in the user's order; rows without an observation get the first value."""
    result = np.full(n_rows, values[0])
    result[rows] = values
    return result


def _fold_of_rows(rows: IntArray, n_rows: int, train: ArrayLike, test: ArrayLike) -> Fold:
    fold = Fold(_chosen(rows, n_rows, train), _chosen(rows, n_rows, test))
    for name, mask in zip(Fold._fields, fold, strict=True):
        if not mask.any():
            raise ValueError(f"a {name} set of cv has no row with an observed target; pass other folds")
    return fold


def _chosen(rows: IntArray, n_rows: int, numbers: ArrayLike) -> BoolArray:
    numbers = np.asarray(numbers)
    is_mask = numbers.dtype == bool
    if numbers.ndim != 1 or (len(numbers) != n_rows if is_mask else numbers.dtype.kind not in "iu" and len(numbers)):
        raise ValueError(f"cv has a set of shape {numbers.shape} and dtype {numbers.dtype}; pass 1-D row numbers")
    if not is_mask and len(numbers) and not (-n_rows <= numbers.min() and numbers.max() < n_rows):
        raise ValueError(f"cv has row numbers up to {numbers.max()} but X has {n_rows} rows; number them from 0")
    inside = np.zeros(n_rows, dtype=bool)
    inside[numbers if is_mask else numbers.astype(np.int64)] = True
    return inside[rows]


def _tasks_left_out(data: TaskData, groups: Mapping[Any, Any] | None) -> list[Fold]:
    names = data.task_names.tolist()
    groups = {name: number for number, name in enumerate(names)} if groups is None else groups
    missing = [name for name in names if name not in groups]
    if missing:
        raise ValueError(f"cv is a mapping without the task {missing[0]!r}; give every task a group")
    distinct = list(dict.fromkeys(groups[name] for name in names))
    if len(distinct) < 2:
        raise ValueError(f"cv leaves out whole tasks but the {len(names)} tasks make one group only; pass several")
    number = np.array([distinct.index(groups[name]) for name in names])[data.task]
    return [Fold(number != k, number == k) for k in range(len(distinct))]


def take(data: TaskData, chosen: BoolArray) -> Subset:
    """Keep the (N,) chosen observations; tasks without any are dropped."""
    counts = np.add.reduceat(chosen.astype(np.int64), data.offsets[:-1])
    tasks = np.flatnonzero(counts)
    used, rows = data.rows[chosen], np.arange(int(counts.sum()))
    if data.shared_design:
        used, rows = np.unique(used, return_inverse=True)
    kept = replace(
        data,
        design=data.design[used],
        y=data.y[chosen],
        weight=data.weight[chosen],
        eta_offset=None if data.eta_offset is None else data.eta_offset[chosen],
        offsets=np.concatenate([[0], np.cumsum(counts[tasks])]),
        rows=rows,
        order=np.arange(len(rows)),
        task_names=data.task_names[tasks],
        present=None if data.present is None else data.present[:, tasks],
        shared_design=data.shared_design or len(tasks) == 1,
    )
    return Subset(kept, tasks)
