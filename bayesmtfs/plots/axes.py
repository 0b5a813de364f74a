"""What all plots share: reading a fit, making axes, naming positions, the top rows, grey for what is not selected."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from bayesmtfs.results.fit_result import FitResult, shortened
from bayesmtfs.types import BoolArray, FloatArray, IntArray

LABELLED = 40  # most tick labels that stay readable on one axis
# The look of all plots: colours, colour maps, sizes of letters
SELECTED, SECOND, NOT_SELECTED = "C0", "C1", "0.55"
DARK, GUIDE, FAINT = "0.3", "0.8", "0.9"  # lines that are not data
DIVERGING, SEQUENTIAL = "RdBu_r", "Blues"
HEADING, SMALL, TINY = 11, 8, 7


def result_of(fit: Any) -> FitResult:
    """The result of a fitted estimator, or the result itself."""
    result = getattr(fit, "result_", fit)
    if not isinstance(result, FitResult):
        raise TypeError(f"a fit is wanted, but a {type(fit).__name__} came; pass a fitted estimator or its result_")
    return result


def shown_of(fit: Any, user_units: bool) -> tuple[FitResult, str]:
    """What is shown of a fit, with a name for it: effects, or coefficients where units are wanted or all that is known."""
    result = result_of(fit)
    if user_units or result.effect_unit is None:
        return result, "coefficient"
    in_deviations = "of the target" in result.effects_in_words
    return result.as_effects(), f"effect ({'in deviations' if in_deviations else 'per deviation'} within tasks)"


def new_axes(ax: Axes | None, width: float = 6.0, height: float = 4.0) -> Axes:
    """The given axes, or those of a new figure of this size in inches."""
    if ax is not None:
        return ax
    axes: Axes = plt.figure(figsize=(width, height), layout="constrained").add_subplot()
    return axes


def name_positions(axis: Any, names: Any, what: str, **text: Any) -> None:
    """Name every position of an axis, or every few where there are too many, and say what the positions are."""
    step = max(1, -(-len(names) // LABELLED))
    places = np.arange(0, len(names), step)
    axis.set_ticks(places, labels=[shortened(names[i]) for i in places], **text)
    axis.set_label_text(what if step == 1 else f"{what} (one in {step} is named)")


def grey_names(axis: Any, selected: BoolArray) -> None:
    """Grey the names of features that are not selected, and say so, where there are selected ones beside them."""
    if selected.all() or not selected.any():
        return
    labels = axis.get_ticklabels()
    step = -(-len(selected) // len(labels))
    for label, chosen in zip(labels, selected[::step], strict=True):
        label.set_color("black" if chosen else NOT_SELECTED)
    axis.set_label_text(f"{axis.get_label_text()}; grey: not selected")


def largest(values: FloatArray, most: int) -> IntArray:
    """Numbers of the largest values, largest first: at most ``most``, and no zeros unless all are zero."""
    if most < 1:
        raise ValueError(f"most is {most}; pass a whole number of at least 1")
    order = np.argsort(-values, kind="stable")[:most]
    return order[values[order] > 0] if (values > 0).any() else order


def height_for(n_rows: int) -> float:
    """Inches for so many named rows."""
    return 1.5 + 0.22 * n_rows


def feature_axes(ax: Axes | None, names: Any, width: float = 5.5, what: str = "feature") -> Axes:
    """Axes with named features from top to bottom, so many inches wide beside the names."""
    beside = 0.07 * max((len(shortened(name)) for name in names), default=0)
    ax = new_axes(ax, width + beside, height_for(len(names)))
    name_positions(ax.yaxis, names, what)
    ax.set_ylim(len(names) - 0.5, -0.5)
    return ax


def entitle(ax: Axes, title: str) -> None:
    """Give axes a title that is broken into lines where it is too long for the figure."""
    ax.set_title(title, fontsize=HEADING, wrap=True)
