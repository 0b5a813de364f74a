"""Coefficients of one fit, or of two fits side by side."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm

from bayesmtfs.plots.axes import (
    LABELLED,
    height_for,
    largest,
    name_positions,
    new_axes,
    posterior_draws,
    result_of,
    shortened,
)
from bayesmtfs.protocols import FloatArray
from bayesmtfs.results import FitResult


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
    result = result_of(result)
    shown = largest(np.linalg.norm(result.coef, axis=0), most)
    values = result.coef[:, shown].T
    ax = new_axes(ax, width=3.0 + 0.25 * min(result.n_tasks, LABELLED), height=height_for(len(shown)))
    limit = float(np.abs(values).max()) or 1.0
    image = ax.imshow(values, aspect="auto", cmap="RdBu_r", norm=TwoSlopeNorm(0.0, -limit, limit))
    ax.set_xlabel("task")
    ax.set_ylabel("feature")
    name_positions(ax.xaxis, result.task_names, rotation=90)
    name_positions(ax.yaxis, result.feature_names[shown])
    ax.set_title(f"{result.method}: {int(result.selected.sum())} of {result.n_features} features selected")
    ax.figure.colorbar(image, ax=ax, label="coefficient")
    return ax


def row_norms(result: Any, most: int = 30, prob: float = 0.89, ax: Axes | None = None) -> Axes:
    """Euclidean norm of each feature's coefficients over the tasks, largest first; intervals where there are draws.

    Parameters
    ----------
    result : a fit, or the fitted estimator
    most : how many features to show
    prob : probability of the equal-tailed intervals
    ax : axes to draw on; a new figure if None

    Returns
    -------
    the axes
    """
    result = result_of(result)
    if not 0 < prob < 1:
        raise ValueError(f"prob is {prob}; pass a probability between 0 and 1, such as 0.89")
    centre, interval = _norms_with_interval(result, prob)
    shown = largest(centre, most)
    ax = new_axes(ax, height=height_for(len(shown)))
    places = np.arange(len(shown))
    colours = np.where(result.selected[shown], "C0", "0.6")
    if interval is not None:
        ax.hlines(places, interval[0][shown], interval[1][shown], colors=colours.tolist(), lw=2)
    ax.scatter(centre[shown], places, c=colours, zorder=3)
    name_positions(ax.yaxis, result.feature_names[shown])
    ax.invert_yaxis()
    ax.set_xlim(left=0)
    ax.set_ylabel("feature")
    ax.set_xlabel("norm over the tasks" + ("" if interval is None else f", {prob:.0%} interval"))
    ax.set_title(f"{result.method}: top {len(shown)} of {result.n_features} features")
    return ax


def _norms_with_interval(result: FitResult, prob: float) -> tuple[FloatArray, FloatArray | None]:
    """(p,) norms and (2, p) interval; for a posterior the median of the norm's draws."""
    draws = posterior_draws(result, "coef")
    if draws is None:
        return np.linalg.norm(result.coef, axis=0), None
    norms = np.linalg.norm(draws, axis=2)
    tail = (1 - prob) / 2
    low, centre, high = np.quantile(norms, [tail, 0.5, 1 - tail], axis=0)
    return centre, np.stack([low, high])


def compare_coefficients(first: Any, second: Any, ax: Axes | None = None, label: int = 8) -> Axes:
    """Coefficients of two fits of the same data against each other, such as Bayesian against penalised.

    Parameters
    ----------
    first, second : fits, or fitted estimators, with the same features and tasks
    ax : axes to draw on; a new figure if None
    label : how many features to name, those with the largest difference

    Returns
    -------
    the axes
    """
    first, second = result_of(first), result_of(second)
    if first.coef.shape != second.coef.shape:
        raise ValueError(
            f"the fits have coefficients of shapes {first.coef.shape} and {second.coef.shape}; pass fits of the same "
            "features and tasks"
        )
    ax = new_axes(ax, 5.0, 5.0)
    ax.axline((0, 0), slope=1, color="0.8", zorder=0)
    ax.axhline(0, color="0.9", lw=0.8, zorder=0)
    ax.axvline(0, color="0.9", lw=0.8, zorder=0)
    deviations = _deviations(second)
    if deviations is not None:
        ax.errorbar(
            first.coef.ravel(), second.coef.ravel(), yerr=deviations.ravel(), fmt="none", ecolor="0.8", zorder=1
        )
    ax.scatter(first.coef.ravel(), second.coef.ravel(), s=12, alpha=0.7)
    _name_the_most_different(ax, first, second, label)
    ax.set_xlabel(first.method)
    ax.set_ylabel(second.method + ("" if deviations is None else ", with posterior deviation"))
    ax.set_title(f"{first.n_features} features, {first.n_tasks} tasks")
    return ax


def _name_the_most_different(ax: Axes, first: FitResult, second: FitResult, label: int) -> None:
    difference = np.abs(first.coef - second.coef)
    for feature in largest(difference.max(axis=0), label) if label > 0 else ():
        task = int(difference[:, feature].argmax())
        place = (first.coef[task, feature], second.coef[task, feature])
        ax.annotate(
            shortened(first.feature_names[feature]), place, fontsize=7, xytext=(3, 3), textcoords="offset points"
        )


def _deviations(result: FitResult) -> FloatArray | None:
    """(m, p) Posterior deviation of the coefficients, where there are draws."""
    draws = posterior_draws(result, "coef")
    return None if draws is None else draws.std(axis=0).T
