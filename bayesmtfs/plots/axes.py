"""What all pictures share: reading a fit, making axes, naming positions, the top rows."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from bayesmtfs.protocols import FloatArray, IntArray
from bayesmtfs.results import FitResult

LABELLED = 40  # most tick labels that stay readable on one axis
NAME_WIDTH = 28


def result_of(fit: Any) -> FitResult:
    """The result of a fitted estimator, or the result itself."""
    result = getattr(fit, "result_", fit)
    if not isinstance(result, FitResult):
        raise TypeError(f"a fit is wanted, but a {type(fit).__name__} came; pass a fitted estimator or its result_")
    return result


def new_axes(ax: Axes | None, width: float = 6.0, height: float = 4.0) -> Axes:
    """The given axes, or those of a new figure of this size in inches."""
    if ax is not None:
        return ax
    axes: Axes = plt.figure(figsize=(width, height), layout="constrained").add_subplot()
    return axes


def name_positions(axis: Any, names: Any, **text: Any) -> None:
    """Name every position of an axis, or every few where there are too many."""
    step = max(1, -(-len(names) // LABELLED))
    places = np.arange(0, len(names), step)
    axis.set_ticks(places, labels=[shortened(names[i]) for i in places], **text)


def shortened(label: object) -> str:
    """Text of a label, cut where it is too long."""
    text = str(label)
    return text if len(text) <= NAME_WIDTH else f"{text[: NAME_WIDTH - 3]}..."


def largest(values: FloatArray, most: int) -> IntArray:
    """Numbers of the largest values, largest first: at most ``most``, and no zeros unless all are zero."""
    if most < 1:
        raise ValueError(f"most is {most}; pass a whole number of at least 1")
    order = np.argsort(-values, kind="stable")[:most]
    return order[values[order] > 0] if (values > 0).any() else order


def height_for(n_rows: int) -> float:
    """Inches for so many named rows."""
    return 1.5 + 0.22 * n_rows


def posterior_draws(result: FitResult, name: str) -> NDArray[Any] | None:
    """Draws (chain x draw, ...) of a posterior variable, or None where the fit has none."""
    if result.posterior is None or name not in result.posterior["posterior"].data_vars:
        return None
    variable = result.posterior["posterior"][name]
    return np.asarray(variable.stack(sample=("chain", "draw")).transpose("sample", ...).values)
