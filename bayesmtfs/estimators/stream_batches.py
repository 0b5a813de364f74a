"""Batches of a stream beside those before them: the same form, labels where labels are wanted, and wide batches."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmtfs.data.inputs import Table, as_labels, match_labels, missing_entries, read_weights
from bayesmtfs.data.tasks import TaskData

N_NAMED = 5  # labels that a message shows


def check_form(form: str, wide: bool, tasks: Any, n_rows: int, known: NDArray[Any]) -> None:
    """Refuse a batch whose rows belong to no task of the stream that it goes on with.

    Parameters
    ----------
    form : form of the batches before: "single", "long", "wide" or "classes"
    wide : whether y has one column per task
    tasks : labels of the rows, or None
    n_rows : number of rows
    known : names of the tasks so far
    """
    names = ", ".join(repr(name) for name in known[:N_NAMED].tolist()) + (", ..." if len(known) > N_NAMED else "")
    if form == "long" and tasks is None and not wide:
        raise ValueError(
            f"tasks is None, but the batches before had task labels ({names}); pass one task label per row as tasks"
        )
    if form == "wide" and tasks is None and not wide:
        raise ValueError(
            f"y has one axis, but the batches before had one column per task ({names}); pass (n, {len(known)}) targets "
            "with NaN where a cell was not observed, or one task label per row as tasks"
        )
    if form == "single" and tasks is not None and (match_labels(tasks, n_rows, known) < 0).all():
        raise ValueError(
            "tasks has labels, but the batches before had none and were learned as one task; pass tasks=None, or begin "
            "anew with a batch that has task labels"
        )


def check_not_swapped(y: Any, classes: NDArray[Any], tasks: NDArray[Any]) -> None:
    """Refuse class labels that are none, but names of tasks."""
    first = np.asarray(y, dtype=object).ravel()[:1].tolist()
    if first and first[0] in tasks.tolist() and first[0] not in classes.tolist():
        raise ValueError(
            f"y holds {first[0]!r}, which is a task and not one of the classes {classes.tolist()}; call "
            "partial_fit(X, y, tasks=labels) if y and tasks were swapped"
        )


def wide_batch(
    table: Table, target: NDArray[Any], sample_weight: Any, names: list[str] | None
) -> tuple[TaskData, NDArray[Any]]:
    """A batch of the wide form, in which whole columns may be unobserved, and the names of all its columns."""
    labels = as_labels(list(range(target.shape[1])) if names is None else names)
    weight = read_weights(sample_weight, target.shape)
    if weight is not None:
        target = np.where(weight > 0, target, np.nan)
    seen = ~missing_entries(target).all(axis=0)
    if not seen.any():
        raise ValueError("y has no observed cell with a positive weight; pass a batch with at least one")
    chosen = None if weight is None else weight[:, seen]
    return TaskData.from_wide_table(table, target[:, seen], chosen, None, labels[seen].tolist()), labels
