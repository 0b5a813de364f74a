"""Effects first: one row per feature, one interval per task."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from bayesmtfs.plots.axes import (
    GUIDE,
    NOT_SELECTED,
    SELECTED,
    SMALL,
    TINY,
    entitle,
    feature_axes,
    grey_names,
    largest,
    result_of,
    shown_of,
)
from bayesmtfs.results.fit_result import shortened
from bayesmtfs.results.tables import INTERVAL, check_probability

OWN_COLOUR = 8  # most tasks that have a colour of their own
SPREAD = 0.7  # of a row's height that its tasks take
WORDS_AT = 1.01  # to the right of the axes


def effects(
    result: Any, most: int = 20, prob: float = INTERVAL, ax: Axes | None = None, user_units: bool = False
) -> Axes:
    """Effects of the features, one row each and in it one interval per task, the largest feature first.

    Beside a row stands in words which tasks share the feature. Entries that are not selected are grey. A fit without draws
    has points and no intervals.

    Parameters
    ----------
    result : a fit, or the fitted estimator
    most : how many features to show, the largest norm over the tasks first
    prob : probability of the equal-tailed intervals
    ax : axes to draw on; a new figure if None
    user_units : coefficients in the user's units instead of effects in deviations within tasks
    """
    whole = result_of(result)
    result, what = shown_of(whole, user_units)
    check_probability("prob", prob)
    sharing = whole.sharing
    norms = result.norm_quantiles([0.5])[0]
    shown = largest(np.where(whole.selected, norms, 0.0), most)  # those not selected only where none is
    ends = result.entry_intervals(prob)
    tasks = result.n_tasks
    ax = feature_axes(ax, result.feature_names[shown], 6.5)
    ax.axvline(0.0, color=GUIDE, lw=0.8, zorder=0)
    offsets = SPREAD * ((np.arange(tasks) + 0.5) / tasks - 0.5)
    coloured = 1 < tasks <= OWN_COLOUR
    for t in range(tasks):
        own = sharing.entries[t, shown]
        colours = np.where(own, f"C{t}" if coloured else SELECTED, NOT_SELECTED)
        places = np.arange(len(shown)) + offsets[t]
        if ends is not None:
            ax.hlines(places, ends[0][t, shown], ends[1][t, shown], colors=colours.tolist(), lw=1.2)
        size = 16 if tasks <= OWN_COLOUR else 5
        label = shortened(result.task_names[t]) if coloured else None
        ax.scatter(result.coef[t, shown], places, c=colours, s=size, zorder=3)
        if label is not None:
            ax.scatter([], [], color=f"C{t}", s=size, label=label)
    for place, feature in enumerate(shown.tolist()):
        words = shortened(sharing.words[feature])
        ax.annotate(
            words,
            (WORDS_AT, place),
            xycoords=("axes fraction", "data"),
            fontsize=TINY,
            va="center",
            annotation_clip=False,
        )
    grey_names(ax.yaxis, whole.selected[shown])
    interval = "" if ends is None else f", {prob:.0%} interval"
    ax.set_xlabel(f"{what}{interval}; one {'mark' if ends is None else 'line'} per task")
    entitle(ax, f"{result.method}: top {len(shown)} of {int(whole.selected.sum())} selected features")
    if coloured:
        ax.legend(fontsize=SMALL, title="task", title_fontsize=SMALL, loc="lower right")
    return ax
