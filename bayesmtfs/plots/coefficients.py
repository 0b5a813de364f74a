"""Coefficients of one fit, or of two fits side by side."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm

from bayesmtfs.plots.axes import (
    LABELLED,
    NOT_SELECTED,
    SELECTED,
    entitle,
    grey_names,
    height_for,
    largest,
    name_positions,
    new_axes,
    result_of,
    width_beside,
)
from bayesmtfs.results.fit_result import FitResult, shortened
from bayesmtfs.results.tables import check_probability
from bayesmtfs.selection.draws import read_draws
from bayesmtfs.types import FloatArray

WORTH_A_NAME = 0.1  # of the largest difference between two fits
NAME_BOX = np.array([0.35, 0.04])  # width and height that a name takes, relative to the axes


def coefficient_heatmap(result: Any, most: int = 40, ax: Axes | None = None) -> Axes:
    """Coefficients as a heat map: features down, tasks across, colour for sign and size.

    Parameters
    ----------
    result : a fit, or the fitted estimator
    most : how many features to show, largest row norm first
    ax : axes to draw on; a new figure if None
    """
    result = result_of(result)
    shown = largest(np.linalg.norm(result.coef, axis=0), most)
    values, names = result.coef[:, shown].T, result.feature_names[shown]
    across = 3.0 + 0.25 * min(result.n_tasks, LABELLED)
    ax = new_axes(ax, width=width_beside(names, across), height=height_for(len(shown)))
    limit = float(np.abs(values).max()) or 1.0
    image = ax.imshow(values, aspect="auto", cmap="RdBu_r", norm=TwoSlopeNorm(0.0, -limit, limit))
    name_positions(ax.xaxis, result.task_names, "task", rotation=90)
    cut = len(shown) < np.count_nonzero(result.coef.any(axis=0))
    name_positions(ax.yaxis, names, f"feature, the {len(shown)} largest" if cut else "feature")
    grey_names(ax.yaxis, result.selected[shown])
    entitle(ax, f"{result.method}: {int(result.selected.sum())} of {result.n_features} features selected")
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
    """
    result = result_of(result)
    check_probability("prob", prob)
    centre, interval = _norms_with_interval(result, prob)
    shown = largest(centre, most)
    names = result.feature_names[shown]
    ax = new_axes(ax, width_beside(names), height_for(len(shown)))
    places = np.arange(len(shown))
    colours = np.where(result.selected[shown], SELECTED, NOT_SELECTED)
    if interval is not None:
        ax.hlines(places, interval[0][shown], interval[1][shown], colors=colours.tolist(), lw=2)
    ax.scatter(centre[shown], places, c=colours, zorder=3)
    name_positions(ax.yaxis, names, "feature")
    grey_names(ax.yaxis, result.selected[shown])
    ax.set(xlim=(0, None), ylim=(len(shown) - 0.5, -0.5))
    ax.set_xlabel("norm over the tasks" + ("" if interval is None else f", {prob:.0%} interval"))
    entitle(ax, f"{result.method}: top {len(shown)} of {result.n_features} features")
    return ax


def _norms_with_interval(result: FitResult, prob: float) -> tuple[FloatArray, FloatArray | None]:
    """(p,) norms and (2, p) interval; for a posterior the median of the norm's draws, 0 where none were drawn."""
    if result.posterior is None:
        return np.linalg.norm(result.coef, axis=0), None
    tail = (1 - prob) / 2
    low, centre, high = read_draws(result).norm_quantiles([tail, 0.5, 1 - tail])
    return centre, np.stack([low, high])


def compare_coefficients(first: Any, second: Any, ax: Axes | None = None, label: int = 8) -> Axes:
    """Coefficients of two fits of the same data against each other, such as Bayesian against penalised.

    Parameters
    ----------
    first, second : fits, or fitted estimators, with the same features and tasks
    ax : axes to draw on; a new figure if None
    label : how many features to name at most, those with the largest difference
    """
    first, second = result_of(first), result_of(second)
    if first.coef.shape != second.coef.shape:
        raise ValueError(
            f"the fits have coefficients of shapes {first.coef.shape} and {second.coef.shape}; pass fits of the same "
            "features and tasks"
        )
    ax = new_axes(ax, 5.5, 5.5)
    ax.axline((0, 0), slope=1, color="0.8", zorder=0, label="equal coefficients")
    ax.axhline(0, color="0.9", lw=0.8, zorder=0)
    ax.axvline(0, color="0.9", lw=0.8, zorder=0)
    deviations = _deviations(second)
    if deviations is not None:
        ax.errorbar(
            first.coef.ravel(), second.coef.ravel(), yerr=deviations.ravel(), fmt="none", ecolor="0.8", zorder=1
        )
    ax.scatter(first.coef.ravel(), second.coef.ravel(), s=12, alpha=0.7, linewidths=0)
    # Deviations may be far larger than the coefficients: the limits are those of the points
    ax.set(xlim=_limits(first.coef), ylim=_limits(second.coef))
    _name_the_most_different(ax, first, second, label)
    ax.set_xlabel(first.method)
    ax.set_ylabel(second.method + ("" if deviations is None else ", with posterior deviation"))
    entitle(ax, f"Two fits of {first.n_features} features in {first.n_tasks} tasks")
    ax.legend(fontsize=8, loc="upper left")
    return ax


def _limits(values: FloatArray) -> tuple[float, float]:
    """From the smallest to the largest value, with a margin."""
    low, high = float(values.min()), float(values.max())
    margin = 0.07 * (high - low) or 1.0
    return low - margin, high + margin


def _name_the_most_different(ax: Axes, first: FitResult, second: FitResult, label: int) -> None:
    """Name features at their most different coefficient, towards the middle, and none over another name."""
    difference = np.abs(first.coef - second.coef)
    limits = np.array([ax.get_xlim(), ax.get_ylim()])
    corner, size = limits[:, 0], np.ptp(limits, axis=1)
    named: list[FloatArray] = []
    for feature in largest(difference.max(axis=0), label) if label > 0 else ():
        if difference[:, feature].max() < WORTH_A_NAME * difference.max():
            return
        task = int(difference[:, feature].argmax())
        point = np.array([first.coef[task, feature], second.coef[task, feature]])
        place = (point - corner) / size
        if any((np.abs(place - other) < NAME_BOX).all() for other in named):
            continue
        named.append(place)
        left = place[0] > 0.5
        ax.annotate(
            shortened(first.feature_names[feature]), (point[0], point[1]), fontsize=7, ha="right" if left else "left",
            xytext=(-3 if left else 3, 3), textcoords="offset points",
            bbox={"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 0.5},
        )  # fmt: skip


def _deviations(result: FitResult) -> FloatArray | None:
    """(m, p) Posterior deviation of the coefficients, where there are draws."""
    if result.posterior is None:
        return None
    draws = read_draws(result)
    deviations: FloatArray = draws.over_all_features(draws.coef.std(axis=0), 0.0).T
    return deviations
