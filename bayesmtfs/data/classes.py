"""Class labels: any two labels outside, -1 and +1 inside; several classes become one-versus-rest tasks."""

import numbers
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets

from bayesmtfs.data.inputs import as_array, as_labels, missing_entries
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.types import FloatArray

BALANCED = "balanced"


def read_classes(y: Any, n_rows: int) -> tuple[FloatArray, NDArray[Any]]:
    """Read (n,) or (n, m) class labels; NaN or None in the wide form marks an unobserved cell.

    Returns the number of each label's class, NaN where unobserved, of the shape of y, and the (k,) sorted labels.
    """
    labels = _label_array(y)
    if labels.shape[:1] != (n_rows,) or labels.ndim > 2:
        raise ValueError(
            f"y has shape {labels.shape} but X has {n_rows} rows (inconsistent numbers of samples); pass (n,) labels, "
            "or (n, m) for one column per task"
        )
    unseen = missing_entries(labels)
    if labels.ndim == 1 and unseen.any():
        raise ValueError(
            f"y contains NaN: {int(unseen.sum())} labels are missing (first in row {int(np.argmax(unseen))}); drop "
            "those rows first (in the wide form a missing label marks an unobserved cell)"
        )
    classes, numbers = _distinct(labels[~unseen])
    codes = np.full(labels.shape, np.nan)
    codes[~unseen] = numbers
    return codes, classes


def classes_of(data: TaskData) -> tuple[TaskData, NDArray[Any]]:
    """Replace the labels of data by the numbers of their classes; whole numbers come back as integers."""
    classes, numbers = _distinct(data.y)
    if classes.dtype.kind == "f" and np.all(classes == classes.astype(np.int64)):
        classes = classes.astype(np.int64)
    return data.with_target(numbers.astype(np.float64)), classes


def match_classes(y: Any, n_rows: int, known: NDArray[Any]) -> FloatArray:
    """Of the shape of y: the number of each label among the known ones, -1 where it is none, NaN where unobserved."""
    codes, classes = read_classes(y, n_rows)
    if len(classes) and (classes.dtype.kind == "U") != (known.dtype.kind == "U"):
        raise ValueError(
            f"y has labels such as {classes.tolist()[0]!r} but the classes of fit are {known.tolist()}; pass labels of "
            "the same type as in fit"
        )
    position = {label: float(number) for number, label in enumerate(known.tolist())}
    places = np.array([position.get(label, -1.0) for label in classes.tolist()])
    seen = ~np.isnan(codes)
    codes[seen] = places[codes[seen].astype(np.int64)]
    return codes


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
            "taken apart (one task per class) only where there is one task: use loss='multinomial' (MixedNormClassifier), "
            "leave tasks out, or pass two labels"
        )
    return class_tasks(data, classes)


def class_tasks(data: TaskData, classes: NDArray[Any]) -> TaskData:
    """Make one task per class out of every task: +1 for the class, -1 for the rest, over the same rows.

    The classes of a task stand side by side. They are named after the class where there is one task, else after both.
    """
    k, spans = len(classes), data.spans
    copies = np.concatenate([np.tile(np.arange(start, stop), k) for start, stop in spans])
    number = np.concatenate([np.repeat(np.arange(k), stop - start) for start, stop in spans])
    pairs = [f"{task}: {label}" for task in data.task_names.tolist() for label in classes.tolist()]
    return replace(
        data,
        design=data.design if data.shared_design else data.design[copies],
        y=np.where(data.y[copies] == number, 1.0, -1.0),
        weight=data.weight[copies],
        eta_offset=None if data.eta_offset is None else data.eta_offset[copies],
        offsets=np.concatenate([[0], np.cumsum(np.repeat(np.diff(data.offsets), k))]),
        rows=data.rows[copies] if data.shared_design else np.arange(len(copies)),
        order=data.order[copies] * k + number if data.shared_design else data.order[copies],
        task_names=classes if data.n_tasks == 1 else np.array(pairs),
        present=None if data.present is None else np.repeat(data.present, k, axis=1),
    )


def without_class_tasks(data: TaskData, classes: NDArray[Any], task_names: NDArray[Any]) -> TaskData:
    """Undo `class_tasks`: the tasks as they were, with labels as targets."""
    k = len(classes)
    sizes = np.diff(data.offsets)[::k]
    kept = np.concatenate([np.arange(start, stop) for start, stop in data.spans[::k]])
    numbers = [
        np.argmax(data.y[start : start + k * n].reshape(k, n), axis=0)
        for (start, _), n in zip(data.spans[::k], sizes, strict=True)
    ]
    return replace(
        data,
        design=data.design if data.shared_design else data.design[kept],
        y=classes[np.concatenate(numbers)],
        weight=data.weight[kept],
        eta_offset=None if data.eta_offset is None else data.eta_offset[kept],
        offsets=np.concatenate([[0], np.cumsum(sizes)]),
        rows=data.rows[kept] if data.shared_design else np.arange(len(kept)),
        order=data.order[kept] // k if data.shared_design else data.order[kept],
        task_names=task_names,
        present=None if data.present is None else data.present[:, ::k],
    )


def check_class_weight(class_weight: Any) -> None:
    """Refuse what is neither None, "balanced" nor a mapping from label to a positive number."""
    if class_weight is None or (isinstance(class_weight, str) and class_weight == BALANCED):
        return
    if not isinstance(class_weight, Mapping):
        raise ValueError(f"class_weight is {class_weight!r}; pass 'balanced', a mapping from label to weight, or None")
    for label, number in class_weight.items():
        if not isinstance(number, numbers.Real) or not 0 < float(number) < np.inf:
            raise ValueError(f"class_weight gives the label {label!r} the weight {number!r}; pass a positive number")


def with_class_weights(data: TaskData, class_weight: Any, classes: NDArray[Any]) -> TaskData:
    """Multiply the weights of rows by those of their classes; targets are numbers of classes.

    "balanced" is ``n_t / (k_t n_tc)`` in task t, with n the total weights and k_t the number of its classes: classes weigh
    the same within a task, whose total weight stays as it is. A mapping is label by label; labels that it lacks count 1.

    Examples
    --------
    >>> data = TaskData.from_long(np.zeros((4, 1)), [0.0, 0.0, 0.0, 1.0])
    >>> with_class_weights(data, "balanced", np.array(["no", "yes"])).weight.round(3)
    array([0.667, 0.667, 0.667, 2.   ])
    """
    if class_weight is None:
        return data
    number = data.y.astype(np.int64)
    if isinstance(class_weight, Mapping):
        unknown = [label for label in class_weight if label not in classes.tolist()]
        if unknown:
            raise ValueError(
                f"class_weight has the label {unknown[0]!r}, which y has not; its classes are {classes.tolist()}"
            )
        own = np.array([float(class_weight.get(label, 1.0)) for label in classes.tolist()])
        return replace(data, weight=data.weight * own[number])
    return replace(data, weight=data.weight * _balancing(data, number, len(classes)))


def with_balanced_signs(data: TaskData) -> TaskData:
    """Balance the two sides of every task of labels -1 and +1."""
    return replace(data, weight=data.weight * _balancing(data, (data.y > 0).astype(np.int64), 2))


def _balancing(data: TaskData, number: NDArray[np.int64], k: int) -> FloatArray:
    """(N,) Factors that make the classes of each task weigh the same, and leave its total weight."""
    each = np.bincount(data.task * k + number, weights=data.weight, minlength=data.n_tasks * k)
    totals = each.reshape(data.n_tasks, k)
    share = data.task_weights[:, np.newaxis] / (totals > 0).sum(axis=1, keepdims=True)
    factors = np.divide(share, totals, out=np.zeros_like(totals), where=totals > 0)
    return factors[data.task, number]


def check_two_classes_per_task(data: TaskData) -> None:
    """Refuse a task in which one label only occurs."""
    parts = zip(data.task_names.tolist(), np.split(data.y, data.offsets[1:-1]), strict=True)
    lone = [f"{name!r} ({len(y)} rows)" for name, y in parts if (y == y[0]).all()]
    if lone:
        shown = ", ".join(lone[:10]) + (f" and {len(lone) - 10} more" if len(lone) > 10 else "")
        raise ValueError(
            f"y has only one class in {len(lone)} of {data.n_tasks} tasks: {shown}; two or more are needed in every "
            "task, drop those tasks or collect more rows"
        )


def _label_array(y: Any) -> NDArray[Any]:
    if isinstance(y, list | tuple):
        return np.array(y, dtype=object)  # NumPy would turn the 1 of [1, "a"] into "1" without a word
    return as_array(y, "y")


def _distinct(labels: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Sorted labels, and the number of each entry among them."""
    labels = as_labels(labels)
    if labels.dtype == object or labels.dtype.kind in "SV":
        _refuse_types(labels)
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise ValueError("y contains NaN or inf; drop those rows first (in the wide form NaN marks an unobserved cell)")
    try:
        check_classification_targets(labels)
    except ValueError as error:
        raise ValueError(f"y does not hold class labels: {error} Use a regressor, or make y labels first") from error
    classes, numbers = np.unique(labels, return_inverse=True)
    return classes, numbers


def _refuse_types(labels: NDArray[Any]) -> NoReturn:
    types = sorted({type(label).__name__ for label in labels.tolist()})
    what = f"of the type {types[0]}" if len(types) == 1 else f"of different types ({', '.join(types)})"
    raise ValueError(
        f"Unknown label type: y has labels {what}; make all of them strings, whole numbers of at most 64 bits, or "
        "booleans"
    )
