"""Class labels: any two labels outside, -1 and +1 inside; several classes become one-versus-rest tasks."""

from dataclasses import replace
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets

from bayesmtfs.protocols import FloatArray
from bayesmtfs.tasks import TaskData


def read_classes(y: Any, n_rows: int) -> tuple[FloatArray, NDArray[Any]]:
    """Read class labels.

    Parameters
    ----------
    y : (n,) or (n, m) labels; NaN or None in the wide form marks an unobserved cell
    n_rows : rows of X

    Returns
    -------
    codes : of the shape of y, the number of each label's class, NaN where unobserved
    classes : (k,) sorted labels
    """
    series = nw.from_native(y, allow_series=True, pass_through=True)
    labels = series.to_numpy() if isinstance(series, nw.Series | nw.DataFrame) else np.asarray(y)
    if labels.shape[:1] != (n_rows,) or labels.ndim > 2:
        raise ValueError(
            f"y has shape {labels.shape} but X has {n_rows} rows (inconsistent numbers of samples); pass (n,) labels, "
            "or (n, m) for one column per task"
        )
    unseen = _unobserved(labels)
    observed = labels[~unseen]
    _check_labels(labels if labels.ndim == 1 else observed)
    classes, numbers = np.unique(observed, return_inverse=True)
    if classes.dtype == object and all(isinstance(label, str) for label in classes):
        classes = classes.astype(str)
    codes = np.full(labels.shape, np.nan)
    codes[~unseen] = numbers
    return codes, classes


def classes_of(data: TaskData) -> tuple[TaskData, NDArray[Any]]:
    """Replace the labels of data by the numbers of their classes; whole numbers come back as integers."""
    _check_labels(data.y)
    classes, numbers = np.unique(data.y, return_inverse=True)
    if classes.dtype.kind == "f" and np.all(classes == classes.astype(np.int64)):
        classes = classes.astype(np.int64)
    return data.with_target(numbers.astype(np.float64)), classes


def as_signs(data: TaskData) -> TaskData:
    """Turn the class numbers 0 and 1 into -1 and +1."""
    return data.with_target(2.0 * data.y - 1.0)


def one_versus_rest(data: TaskData, classes: NDArray[Any]) -> TaskData:
    """Make one task per class out of one task with several classes: +1 for the class, -1 for the rest.

    All tasks share the one design.
    """
    if data.n_tasks > 1:
        raise ValueError(
            f"y has {len(classes)} classes in {data.n_tasks} tasks; tasks must be binary, and several classes are "
            "taken apart (one task per class) only where there is one task: leave tasks out, or pass two labels"
        )
    n, k = data.n_observations, len(classes)
    return replace(
        data,
        y=np.concatenate([np.where(data.y == number, 1.0, -1.0) for number in range(k)]),
        weight=np.tile(data.weight, k),
        offsets=n * np.arange(k + 1),
        rows=np.tile(data.rows, k),
        order=np.concatenate([data.order * k + number for number in range(k)]),
        task_names=classes,
        shared_design=True,
    )


def check_two_classes_per_task(data: TaskData) -> None:
    """Refuse a task in which one label only occurs; y is -1 and +1."""
    counts = [(int((y > 0).sum()), len(y)) for y in np.split(data.y, data.offsets[1:-1])]
    lone = [
        f"{name!r} ({n} rows)"
        for name, (positive, n) in zip(data.task_names.tolist(), counts, strict=True)
        if positive in (0, n)
    ]
    if lone:
        shown = ", ".join(lone[:10]) + (f" and {len(lone) - 10} more" if len(lone) > 10 else "")
        raise ValueError(
            f"y has only one class in {len(lone)} of {data.n_tasks} tasks: {shown}; a classifier needs both classes in "
            "every task, drop those tasks or collect more rows"
        )


def _unobserved(labels: NDArray[Any]) -> NDArray[np.bool_]:
    if labels.ndim == 1:
        return np.zeros(labels.shape, dtype=bool)
    if labels.dtype.kind == "f":
        return np.isnan(labels)
    if labels.dtype == object:
        return np.array([label is None or label != label for label in labels.flat], dtype=bool).reshape(labels.shape)
    return np.zeros(labels.shape, dtype=bool)


def _check_labels(labels: NDArray[Any]) -> None:
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise ValueError("y contains NaN or inf; drop those rows first (in the wide form NaN marks an unobserved cell)")
    check_classification_targets(labels)
