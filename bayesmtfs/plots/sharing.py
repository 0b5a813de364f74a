"""In which tasks a feature is in the model, and which features stand in for each other."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from bayesmtfs import selection
from bayesmtfs.plots.axes import (
    LABELLED,
    NOT_SELECTED,
    SEQUENTIAL,
    SMALL,
    TINY,
    entitle,
    feature_axes,
    largest,
    name_positions,
    new_axes,
    result_of,
)
from bayesmtfs.results.fit_result import shortened
from bayesmtfs.results.tables import listed
from bayesmtfs.selection.draws import has_exact_zeros
from bayesmtfs.types import FloatArray, IntArray

KIND_COLOURS = ("C0", "C2", "C1")  # all, some, specific
NAMED_SETS = 10  # sets with a colour and a name of their own
WORTH_SHOWING = 0.01  # probability


def entry_probability(fit: Any, most: int = 40, ax: Axes | None = None) -> Axes:
    """Probability that a feature is in the model in a task, as a heat map: features down, tasks across.

    Parameters
    ----------
    fit : a fitted Bayesian estimator whose prior has exact zeros; or what `bayesmtfs.selection.patterns` or ``effects``
        gives, for any posterior
    most : how many features to show, the most probable in any task first
    ax : axes to draw on; a new figure if None
    """
    values, names, tasks = _entries(fit)
    shown = _likely(values.max(axis=0), most)
    across = 3.0 + 0.25 * min(len(tasks), LABELLED)
    ax = feature_axes(ax, names[shown], across)
    image = ax.imshow(values[:, shown].T, aspect="auto", cmap=SEQUENTIAL, vmin=0.0, vmax=1.0)
    name_positions(ax.xaxis, tasks, "task", rotation=90)
    entitle(ax, f"in which tasks: top {len(shown)} of {len(names)} features")
    ax.figure.colorbar(image, ax=ax, label="probability of being in the model")
    return ax


def _likely(probability: FloatArray, most: int) -> IntArray:
    """Numbers of the most probable features, the most probable first."""
    return largest(np.where(probability >= WORTH_SHOWING, probability, 0.0), most)


def _entries(fit: Any) -> tuple[FloatArray, NDArray[np.str_], NDArray[Any]]:
    """(m, p) Probabilities of the entries, with names of features and tasks."""
    if hasattr(fit, "task_probability"):
        return fit.task_probability, fit.feature_names, fit.tasks
    result = result_of(fit)
    known = getattr(fit, "task_inclusion_probability_", None)
    if known is not None:
        entries = np.asarray(known)  # with several classes within tasks a row for every pair of them
        return entries.reshape(-1, entries.shape[-1]), result.feature_names, result.task_names
    found = _patterns(fit)
    return found.task_probability, found.feature_names, found.tasks


def _patterns(fit: Any) -> selection.Patterns:
    if isinstance(fit, selection.Patterns):
        return fit
    result = result_of(fit)
    if not has_exact_zeros(result):
        raise ValueError(
            f"{result.method} has no draws with exact zeros; fit a Bayesian estimator with prior='spike', or pass what "
            "selection.patterns(fit, X, y, tasks=...) gives"
        )
    return selection.patterns(fit)


def patterns(fit: Any, most: int = 30, ax: Axes | None = None) -> Axes:
    """How the tasks share each feature: probabilities that all, some or one of them have it, and which most probably.

    Parameters
    ----------
    fit : a fitted Bayesian estimator whose prior has exact zeros, or what `bayesmtfs.selection.patterns` gives
    most : how many features to show, the most probable first
    ax : axes to draw on; a new figure if None
    """
    found = _patterns(fit)
    shown = _likely(found.inclusion_probability, most)
    ax = feature_axes(ax, found.feature_names[shown], 7.5)
    places, left = np.arange(len(shown)), np.zeros(len(shown))
    names = ("all tasks", "some tasks", "one task")
    for column, (name, colour) in enumerate(zip(names, KIND_COLOURS, strict=True)):
        width = found.kinds[shown, column]
        ax.barh(places, width, left=left, color=colour, label=name)
        left += width
    for place, feature in zip(places, shown, strict=True):
        best = found.likeliest(feature)
        if 0 < len(best.tasks) < len(found.tasks):
            label = shortened(listed([str(task) for task in best.tasks], 4))
            ax.annotate(
                f"{label} ({best.probability:.0%})", (1.01, place), fontsize=TINY, va="center", annotation_clip=False
            )
    ax.set(xlim=(0, 1), xlabel="probability; beside it the likeliest pattern where it is not all tasks")
    entitle(
        ax, f"shared by how many of {len(found.tasks)} tasks: top {len(shown)} of {len(found.feature_names)} features"
    )
    ax.legend(fontsize=SMALL, loc="lower right")
    return ax


def credible_sets(
    fit: Any, sets: Sequence[selection.CredibleSet] | None = None, coverage: float = 0.95, ax: Axes | None = None
) -> Axes:
    """Inclusion probability of every feature over its column number, credible sets in colours.

    Parameters
    ----------
    fit : a fitted Bayesian estimator
    sets : what `bayesmtfs.selection.credible_sets` gives; None: found here, for a prior with exact zeros
    coverage : of the sets that are found here
    ax : axes to draw on; a new figure if None
    """
    result = result_of(fit)
    probability = _inclusion(fit)
    sets = selection.credible_sets(fit, coverage=coverage) if sets is None else sets
    ax = new_axes(ax, 8.0, 4.0)
    places = np.arange(result.n_features)
    ax.vlines(places, 0.0, probability, color=NOT_SELECTED, lw=1)
    ax.scatter(places, probability, s=10, color=NOT_SELECTED, zorder=2)
    for number, one in enumerate(sets):
        named = number < NAMED_SETS
        features = shortened(listed(one.feature_names.tolist(), 3))
        label = f"{features}: {one.probability:.0%}, {len(one.tasks)} of {result.n_tasks} tasks" if named else None
        ax.scatter(one.features, probability[one.features], s=40, color=f"C{number % 10}", zorder=3, label=label)
    ax.set(ylim=(0, 1.05), xlabel="column number of the feature", ylabel="probability of being in the model")
    entitle(ax, f"{result.method}: {len(sets)} credible set{'' if len(sets) == 1 else 's'}")
    if sets:
        ax.legend(fontsize=TINY, loc="center left", bbox_to_anchor=(1.01, 0.5), title="sets", title_fontsize=TINY)
    return ax


def _inclusion(fit: Any) -> FloatArray:
    """(p,) Probability that a feature is in the model, the estimator's own where there is one."""
    known = getattr(fit, "inclusion_probability_", None)
    return np.asarray(known) if known is not None else _patterns(fit).inclusion_probability
