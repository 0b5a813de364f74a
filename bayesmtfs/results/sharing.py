"""How the tasks share each feature, in words: all of them, some, one only, or none.

A feature that is selected is **shared by all** the tasks that have it, **shared by some**, or **specific** to one. The
tasks that count are those whose coefficient is not zero; of a posterior those in which the feature is in the model with
probability over 1/2 (not zero under a prior with exact zeros, else an effect larger than ``effect_size``). A posterior may
be sure that a feature matters somewhere and not sure where: then it is **unclear** in which task.

A penalty that selects whole features, such as l1,2, makes every selected feature shared by all; that is its assumption.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmtfs.results.tables import listed
from bayesmtfs.types import BoolArray

NAMED_TASKS = 6  # listed in words, the others counted


class Sharing(NamedTuple):
    """In which tasks every feature is."""

    kind: NDArray[np.str_]  # (p,) "all", "some", "specific", "unclear" or "none"
    entries: BoolArray  # (m, p) tasks in which a selected feature is
    words: list[str]  # (p,)


def sharing_of(
    entries: BoolArray,
    selected: BoolArray,
    task_names: NDArray[Any],
    absent: BoolArray | None = None,
    screened_out: BoolArray | None = None,
) -> Sharing:
    """Kinds and words of all features.

    Parameters
    ----------
    entries : (m, p) where a feature is in a task, of features that are selected
    selected : (p,)
    task_names : (m,)
    absent : (m, p) features that a task does not have; None: all tasks have all
    screened_out : (p,) features that were not looked at; None: all were

    Examples
    --------
    >>> entries = np.array([[True, True, False], [True, False, False]])
    >>> sharing_of(entries, np.array([True, True, False]), np.array(["north", "south"])).words
    ['all 2 tasks', 'only north', 'not selected']
    """
    entries = entries & selected
    n_present = np.full(entries.shape[1], len(entries)) if absent is None else (~absent).sum(axis=0)
    count = entries.sum(axis=0)
    everywhere = selected & (count > 0) & (count == n_present)
    kind = np.select(
        [~selected, count == 0, everywhere & ((count > 1) | (len(entries) == 1)), count == 1],
        ["none", "unclear", "all", "specific"],
        "some",
    )
    labels = [str(name) for name in task_names.tolist()]
    words = [_words(str(one), labels, own, int(n)) for one, own, n in zip(kind, entries.T, n_present, strict=True)]
    if screened_out is not None:
        words = [
            "screened out, not judged" if gone else one for gone, one in zip(screened_out.tolist(), words, strict=True)
        ]
    return Sharing(kind, entries, words)


def _words(kind: str, labels: list[str], own: BoolArray, n_present: int) -> str:
    """One feature in words."""
    named = [label for label, on in zip(labels, own, strict=True) if on]
    if kind == "none":
        return "not selected"
    if kind == "unclear":
        return "in some task, unclear which"
    if kind == "specific":
        return f"only {named[0]}"
    if kind == "all":
        missing = "" if n_present == len(labels) else " that have it"
        return "selected" if len(labels) == 1 else f"all {n_present} tasks{missing}"
    return f"{len(named)} of {n_present} tasks: {listed(named, NAMED_TASKS)}"


def counts_in_words(sharing: Sharing) -> str:
    """How many features are of which kind.

    Examples
    --------
    >>> entries = np.array([[True, True, False], [True, False, False]])
    >>> counts_in_words(sharing_of(entries, np.array([True, True, False]), np.array(["north", "south"])))
    '1 shared by all tasks, 1 specific to one task'
    """
    if len(sharing.entries) == 1:
        return ""
    phrases = {
        "all": "shared by all tasks",
        "some": "shared by some tasks",
        "specific": "specific to one task",
        "unclear": "in some task, unclear which",
    }
    counts = {kind: int((sharing.kind == kind).sum()) for kind in phrases}
    return ", ".join(f"{counts[kind]} {phrase}" for kind, phrase in phrases.items() if counts[kind])
