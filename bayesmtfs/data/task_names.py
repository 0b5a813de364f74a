"""Names of tasks, and the refusal of tasks that have none or nothing in them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmtfs.data.inputs import as_labels
from bayesmtfs.types import BoolArray

NO_WEIGHT = "all weights of task {task} are zero; drop the task or give it some weight"
NO_TARGET = "task {task} has no observed target: its column of Y is all NaN; drop the column"


def wide_names(task_names: Sequence[Any] | None, n_tasks: int) -> NDArray[Any]:
    """Names of the columns of Y; numbers where there are none."""
    if task_names is None:
        return np.arange(n_tasks)
    check_names(task_names, n_tasks)
    return as_labels(task_names)


def check_names(names: Sequence[Any], n_tasks: int) -> None:
    """Refuse names that are not one for each task."""
    if len(names) != n_tasks:
        raise ValueError(f"task_names has {len(names)} entries for {n_tasks} tasks; pass one name per task")
    repeated = [name for place, name in enumerate(names) if name in list(names)[:place]]
    if repeated:
        raise ValueError(f"task_names has {repeated[0]!r} twice; give every task a name of its own")


def check_no_empty_task(filled: BoolArray, names: NDArray[Any], reason: str) -> None:
    """Refuse a task without observations; ``filled`` says which tasks have some."""
    if not filled.all():
        raise ValueError(reason.format(task=repr(names.tolist()[int(np.argmin(filled))])))
