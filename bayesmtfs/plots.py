"""Pictures of fits; each function takes a `FitResult` from any route and returns its axes."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm

__all__ = ["coefficient_heatmap"]

LABELLED = 40  # most tick labels that stay readable on one axis


def coefficient_heatmap(result: Any, most: int = 40, ax: Axes | None = None) -> Axes:
    """Coefficients as a picture: features down, tasks across, colour for sign and size.

    Parameters
    ----------
    result : a fit, or the fitted estimator
    most : how many features to show, largest row norm first
    ax : axes to draw on; a new figure if None

    Returns
    -------
    the axes
    """
    result = getattr(result, "result_", result)
    norms = np.linalg.norm(result.coef, axis=0)
    shown = np.argsort(-norms, kind="stable")[:most]
    shown = shown[norms[shown] > 0] if (norms > 0).any() else shown
    values = result.coef[:, shown].T
    if ax is None:
        height = 1.5 + 0.22 * len(shown)
        width = 3.0 + 0.25 * min(result.coef.shape[0], LABELLED)
        ax = plt.figure(figsize=(width, height), layout="constrained").add_subplot()
    limit = float(np.abs(values).max()) or 1.0
    image = ax.imshow(values, aspect="auto", cmap="RdBu_r", norm=TwoSlopeNorm(0.0, -limit, limit))
    ax.set_xlabel("task")
    ax.set_ylabel("feature")
    _label(ax.xaxis, result.task_names, rotation=90)
    _label(ax.yaxis, result.feature_names[shown])
    selected = int((norms > 0).sum())
    ax.set_title(f"{result.method}: {selected} of {len(norms)} features selected")
    ax.figure.colorbar(image, ax=ax, label="coefficient")
    return ax


def _label(axis: Any, names: Any, **text: Any) -> None:
    """Name every position, or every few where there are too many."""
    step = max(1, -(-len(names) // LABELLED))
    places = np.arange(0, len(names), step)
    axis.set_ticks(places, labels=[str(names[i]) for i in places], **text)
