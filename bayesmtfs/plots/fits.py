"""What a fit has found and how sure it is: coefficients, selection, the exponent q, relations of tasks, predictions."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from bayesmtfs.families import find_family
from bayesmtfs.plots.axes import (
    DARK,
    DIVERGING,
    FAINT,
    GUIDE,
    LABELLED,
    NOT_SELECTED,
    SECOND,
    SELECTED,
    SMALL,
    TINY,
    entitle,
    feature_axes,
    grey_names,
    largest,
    name_positions,
    new_axes,
    result_of,
    shown_of,
)
from bayesmtfs.results.fit_result import FitResult, shortened
from bayesmtfs.results.tables import INTERVAL, central_interval, check_probability
from bayesmtfs.selection.draws import draws_of, has_exact_zeros, read_draws
from bayesmtfs.types import FloatArray, IntArray

WORTH_A_NAME = 0.1  # of the largest difference between two fits
NAME_BOX = np.array([0.35, 0.04])  # width and height that a name takes, relative to the axes


def coefficient_heatmap(result: Any, most: int = 40, ax: Axes | None = None, user_units: bool = False) -> Axes:
    """Effects as a heat map: features down, tasks across, colour for sign and size.

    Parameters
    ----------
    result : a fit, or the fitted estimator
    most : how many features to show, largest row norm first
    ax : axes to draw on; a new figure if None
    user_units : coefficients in the user's units instead of effects in deviations within tasks
    """
    result, what = shown_of(result, user_units)
    shown = largest(np.linalg.norm(result.coef, axis=0), most)
    values, names = result.coef[:, shown].T, result.feature_names[shown]
    cut = len(shown) < np.count_nonzero(result.coef.any(axis=0))
    across = 3.0 + 0.25 * min(result.n_tasks, LABELLED)
    ax = feature_axes(ax, names, across, f"feature, the {len(shown)} largest" if cut else "feature")
    limit = float(np.abs(values).max()) or 1.0
    image = ax.imshow(values, aspect="auto", cmap=DIVERGING, norm=TwoSlopeNorm(0.0, -limit, limit))
    name_positions(ax.xaxis, result.task_names, "task", rotation=90)
    grey_names(ax.yaxis, result.selected[shown])
    entitle(ax, f"{result.method}: {int(result.selected.sum())} of {result.n_features} features selected")
    ax.figure.colorbar(image, ax=ax, label=what)
    return ax


def row_norms(
    result: Any, most: int = 30, prob: float = INTERVAL, ax: Axes | None = None, user_units: bool = False
) -> Axes:
    """Euclidean norm of each feature's effects over the tasks, largest first; medians and intervals where there are draws.

    Parameters
    ----------
    result : a fit, or the fitted estimator
    most : how many features to show
    prob : probability of the equal-tailed intervals
    ax : axes to draw on; a new figure if None
    user_units : coefficients in the user's units instead of effects in deviations within tasks
    """
    result, what = shown_of(result, user_units)
    check_probability("prob", prob)
    low, centre, high = result.norm_quantiles([(1 - prob) / 2, 0.5, (1 + prob) / 2])
    shown = largest(centre, most)
    names = result.feature_names[shown]
    ax = feature_axes(ax, names)
    places = np.arange(len(shown))
    colours = np.where(result.selected[shown], SELECTED, NOT_SELECTED)
    if result.posterior is not None:
        ax.hlines(places, low[shown], high[shown], colors=colours.tolist(), lw=2)
    ax.scatter(centre[shown], places, c=colours, zorder=3)
    grey_names(ax.yaxis, result.selected[shown])
    interval = "" if result.posterior is None else f", {prob:.0%} interval"
    ax.set(xlim=(0, None), xlabel=f"{what}, norm over the tasks{interval}")
    entitle(ax, f"{result.method}: top {len(shown)} of {result.n_features} features")
    return ax


def compare_coefficients(
    first: Any, second: Any, ax: Axes | None = None, label: int = 8, user_units: bool = False
) -> Axes:
    """Effects of two fits of the same data against each other, such as Bayesian against penalised.

    Parameters
    ----------
    first, second : fits, or fitted estimators, with the same features and tasks
    ax : axes to draw on; a new figure if None
    label : how many features to name at most, those with the largest difference
    user_units : coefficients in the user's units instead of effects in deviations within tasks
    """
    user_units = user_units or any(result_of(fit).effect_unit is None for fit in (first, second))
    (first, what), (second, _) = shown_of(first, user_units), shown_of(second, user_units)
    if first.coef.shape != second.coef.shape:
        shapes = f"{first.coef.shape} and {second.coef.shape}"
        raise ValueError(f"the fits have coefficients of shapes {shapes}; pass fits of the same features and tasks")
    ax = new_axes(ax, 5.5, 5.5)
    ax.axline((0, 0), slope=1, color=GUIDE, zorder=0, label="equal coefficients")
    ax.axhline(0, color=FAINT, lw=0.8, zorder=0)
    ax.axvline(0, color=FAINT, lw=0.8, zorder=0)
    deviations = _deviations(second)
    if deviations is not None:
        ax.errorbar(
            first.coef.ravel(), second.coef.ravel(), yerr=deviations.ravel(), fmt="none", ecolor=GUIDE, zorder=1
        )
    ax.scatter(first.coef.ravel(), second.coef.ravel(), s=12, alpha=0.7, linewidths=0)
    # Deviations may be far larger than the coefficients: the limits are those of the points
    ax.set(xlim=_limits(first.coef), ylim=_limits(second.coef))
    _name_the_most_different(ax, first, second, label)
    ax.set_xlabel(first.method)
    ax.set_ylabel(second.method + ("" if deviations is None else ", with posterior deviation"))
    entitle(ax, f"Two fits of {first.n_features} features in {first.n_tasks} tasks: {what}")
    ax.legend(fontsize=SMALL, loc="upper left")
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
            shortened(first.feature_names[feature]), (point[0], point[1]), fontsize=TINY, ha="right" if left else "left",
            xytext=(-3 if left else 3, 3), textcoords="offset points",
            bbox={"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 0.5},
        )  # fmt: skip


def _deviations(result: FitResult) -> FloatArray | None:
    """(m, p) Posterior deviation of the coefficients, where there are draws."""
    if result.posterior is None:
        return None
    draws = read_draws(result)
    return np.asarray(draws.over_all_features(draws.coef.std(axis=0), 0.0).T)


def selection_frequency(fit: Any, most: int = 30, ax: Axes | None = None) -> Axes:
    """Bars of how often, or how probably, a feature is selected.

    Parameters
    ----------
    fit : what `bayesmtfs.selection.stability` gives (selection frequencies), or a fitted `BayesianRegressor` or
        `BayesianClassifier` (inclusion probabilities)
    most : how many features to show, most frequent first
    ax : axes to draw on; a new figure if None
    """
    if hasattr(fit, "selection_frequency"):
        values, names, threshold = fit.selection_frequency, fit.feature_names, fit.threshold
        title = "selection frequency on halves of the data"
    elif hasattr(fit, "inclusion_probability_"):
        values, names, threshold = fit.inclusion_probability_, fit.result_.feature_names, 0.5
        title = f"probability of an effect above {fit.effect_size:g} standard deviations"
        title = "probability of being in the model" if has_exact_zeros(fit.result_) else title
    else:
        way_out = "pass what selection.stability gives, or a fitted Bayesian estimator"
        raise TypeError(f"{type(fit).__name__} has no selection frequencies; {way_out}")
    shown = largest(np.asarray(values), most)
    ax = feature_axes(ax, names[shown])
    ax.barh(np.arange(len(shown)), values[shown], color=np.where(values[shown] >= threshold, SELECTED, NOT_SELECTED))
    ax.axvline(threshold, color=DARK, ls="--", lw=1, label=f"selected from {threshold:g}")
    ax.set(xlim=(0, 1), xlabel=title)
    entitle(ax, f"top {len(shown)} of {len(values)} features")
    ax.legend(fontsize=SMALL, loc="lower right")
    return ax


def task_relations(result: Any, cluster: bool = True, ax: Axes | None = None) -> Axes:
    """Relations between tasks as a matrix, similar tasks beside each other.

    Parameters
    ----------
    result : a fit with task relations (matrix variate or smoothed), or the fitted estimator
    cluster : order the tasks by average-linkage clustering instead of by name
    ax : axes to draw on; a new figure if None
    """
    relations = _relations(result)
    result = result_of(result)
    order = _clustered(relations) if cluster and len(relations) > 2 else np.arange(len(relations))
    side = 2.5 + 0.2 * min(len(order), LABELLED)
    ax = new_axes(ax, side + 0.8, side)
    off_diagonal = relations[~np.eye(len(relations), dtype=bool)]
    limit = float(np.abs(off_diagonal).max()) if len(off_diagonal) and off_diagonal.any() else 1.0
    shown = relations[np.ix_(order, order)]
    image = ax.imshow(shown, cmap=DIVERGING, vmin=-limit, vmax=limit)
    for axis, turn in ((ax.xaxis, 90), (ax.yaxis, 0)):
        name_positions(axis, result.task_names[order], "task", rotation=turn)
    entitle(ax, f"{result.method}: relations of {len(order)} tasks")
    ax.figure.colorbar(image, ax=ax, label="relation (the diagonal is beyond the scale)", shrink=0.8)
    return ax


def _relations(fit: Any) -> FloatArray:
    result: FitResult = result_of(fit)
    draws = draws_of(result, "task_relations")
    found = draws.mean(axis=0) if draws is not None else result.task_relations
    if found is None:
        found = getattr(fit, "task_relations_", None)
    if found is None:
        raise ValueError(f"{result.method} has no task relations; fit a MatrixVariate or Smoothed estimator")
    return np.asarray(found, dtype=np.float64)


def _clustered(relations: FloatArray) -> IntArray:
    """Order of the tasks in which similar ones are neighbours."""
    likeness = (relations + relations.T) / 2
    distance = np.clip(likeness.max() - likeness, 0.0, None)
    np.fill_diagonal(distance, 0.0)
    return np.asarray(leaves_list(linkage(squareform(distance, checks=False), "average")), dtype=np.int64)


def norm_q(fit: Any, prob: float = INTERVAL, ax: Axes | None = None) -> Axes:
    """The learned q: histogram of its draws, or the point and interval of an EM fit.

    The axis is 1/q, on which the prior is uniform, with the values of q as its labels.

    Parameters
    ----------
    fit : a fitted estimator with ``norm_q="learn"``
    prob : probability of the interval of draws
    ax : axes to draw on; a new figure if None
    """
    result = result_of(fit)
    draws = draws_of(result, "norm_q")
    point: Any = getattr(fit, "norm_q_", None)
    stated = result.settings.get("norm_q")
    if stated is not None and np.ndim(stated) == 0 and stated != "learn":
        raise ValueError(
            f"the fit has q fixed at {float(stated):g}, so that there is nothing to draw; fit with norm_q='learn'"
        )
    ax = new_axes(ax, 6.0, 3.0)
    if draws is not None and np.any(draws != draws[0]):
        ax.hist(1 / draws, bins=40, density=True, color=SELECTED, alpha=0.6)
        low, high = central_interval(draws, prob)
        point, what = np.median(draws), "median"
    elif point is None:
        raise ValueError(f"{result.method} has no learned q; fit with norm_q='learn'")
    else:
        low, high = getattr(fit, "norm_q_interval_", (point, point))
        what, prob = "estimate", INTERVAL
    ax.axvspan(1 / high, 1 / low, color=SECOND, alpha=0.2, lw=0, zorder=0, label=f"{prob:.0%}: {low:.3g} to {high:.3g}")
    ax.axvline(1 / point, color=SECOND, label=f"{what}: {point:.3g}")
    ticks = np.array([1, 1.2, 1.5, 2, 3, 4, 8, 50])
    ax.set_xticks(1 / ticks, labels=[f"{q:g}" for q in ticks])
    ax.set(xlim=(0, 1.02), yticks=[])
    ax.set_xlabel("q (on the scale of 1/q): few tasks dominate to the right, all alike to the left")
    entitle(ax, f"{result.method}: how the tasks share a feature")
    ax.legend(fontsize=SMALL)
    return ax


def predictive_check(fit: Any, n_draws: int = 50, ax: Axes | None = None) -> Axes:
    """Distribution of the targets against that of data drawn from the fitted model.

    Parameters
    ----------
    fit : a fit with draws from its posterior predictive, such as a `BayesianRegressor`
    n_draws : how many replicated data sets to draw
    ax : axes to draw on; a new figure if None
    """
    result = result_of(fit)
    tree = result.posterior
    if tree is None:
        raise ValueError(f"{result.method} has no posterior predictive draws; fit a BayesianRegressor or -Classifier")
    if "posterior_predictive" not in tree.children or "observed_data" not in tree.children:
        raise ValueError(
            f"this {result.method} has no posterior predictive draws: there are none of fits to sums of the data, of "
            "several classes or of survival times; fit numbers, counts or two classes row by row"
        )
    replicated = tree["posterior_predictive"]["y"].stack(sample=("chain", "draw")).transpose("sample", ...).values
    observed = np.asarray(tree["observed_data"]["y"].values)
    ax = new_axes(ax)
    if _are_labels(fit, observed):
        _draw_rates(ax, observed, replicated)
    else:
        chosen = np.linspace(0, len(replicated) - 1, min(n_draws, len(replicated))).astype(int)
        for place, draw in enumerate(replicated[chosen]):
            ax.plot(*_ecdf(draw), color=GUIDE, lw=0.6, label=None if place else "drawn from the fitted model")
        ax.plot(*_ecdf(observed), color=SELECTED, lw=2, label="observed")
        ax.set(xlabel="y", ylabel="share of rows below")
        ax.legend()
    entitle(ax, f"{result.method}: posterior predictive check")
    return ax


def _are_labels(fit: Any, observed: FloatArray) -> bool:
    """Whether targets are labels, as the fit's family says, or else as they look."""
    loss = getattr(fit, "loss", None)
    return set(np.unique(observed)) <= {-1, 0, 1} if loss is None else find_family(loss).targets == "labels"


def _draw_rates(ax: Axes, observed: FloatArray, replicated: FloatArray) -> None:
    """Share of positive labels, drawn and observed."""
    ax.hist((replicated > 0).mean(axis=1), bins=30, color=GUIDE, label="drawn")
    ax.axvline((observed > 0).mean(), color=SELECTED, lw=2, label="observed")
    ax.set(xlabel="share of the second class", ylabel="draws")
    ax.legend()


def _ecdf(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    return np.sort(values), np.arange(1, len(values) + 1) / len(values)
