"""How sure a selection is."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from bayesmtfs.plots.axes import (
    NOT_SELECTED,
    SELECTED,
    entitle,
    height_for,
    largest,
    name_positions,
    new_axes,
    width_beside,
)


def selection_frequency(fit: Any, most: int = 30, ax: Axes | None = None) -> Axes:
    """Bars of how often, or how probably, a feature is selected.

    Parameters
    ----------
    fit : what `bayesmtfs.selection.stability` gives (selection frequencies), or a fitted `BayesianRegressor` or
        `BayesianClassifier` (inclusion probabilities)
    most : how many features to show, most frequent first
    ax : axes to draw on; a new figure if None

    Returns
    -------
    the axes
    """
    if hasattr(fit, "selection_frequency"):
        values, names, threshold = fit.selection_frequency, fit.feature_names, fit.threshold
        title = "selection frequency on halves of the data"
    elif hasattr(fit, "inclusion_probability_"):
        values, names, threshold = fit.inclusion_probability_, fit.result_.feature_names, 0.5
        title = f"probability of an effect above {fit.effect_size:g} standard deviations"
    else:
        raise TypeError(
            f"{type(fit).__name__} has no selection frequencies; pass what selection.stability gives, or a fitted "
            "Bayesian estimator"
        )
    shown = largest(np.asarray(values), most)
    ax = new_axes(ax, width_beside(names[shown]), height_for(len(shown)))
    ax.barh(np.arange(len(shown)), values[shown], color=np.where(values[shown] >= threshold, SELECTED, NOT_SELECTED))
    ax.axvline(threshold, color="0.3", ls="--", lw=1, label=f"selected from {threshold:g}")
    name_positions(ax.yaxis, names[shown], "feature")
    ax.set_ylim(len(shown) - 0.5, -0.5)
    ax.set_xlim(0, 1)
    ax.set_xlabel(title)
    entitle(ax, f"top {len(shown)} of {len(values)} features")
    ax.legend(fontsize=8, loc="lower right")
    return ax
