"""The exponent q and the predictions of a fit, with their uncertainty."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from bayesmtfs.plots.axes import entitle, new_axes, result_of
from bayesmtfs.selection.draws import draws_of
from bayesmtfs.types import FloatArray


def norm_q(fit: Any, prob: float = 0.9, ax: Axes | None = None) -> Axes:
    """The learned q: histogram of its draws, or the point and interval of an EM fit.

    The axis is 1/q, on which the prior is uniform, with the values of q as its labels.

    Parameters
    ----------
    fit : a fitted estimator with ``norm_q="learn"``
    prob : probability of the interval of draws
    ax : axes to draw on; a new figure if None

    Returns
    -------
    the axes
    """
    result = result_of(fit)
    draws = draws_of(result, "norm_q")
    ax = new_axes(ax, 6.0, 3.0)
    if draws is not None and np.any(draws != draws[0]):
        ax.hist(1 / draws, bins=40, density=True, color="C0", alpha=0.6)
        low, point, high = np.quantile(draws, [(1 - prob) / 2, 0.5, (1 + prob) / 2])
        what = "median"
    else:
        point = getattr(fit, "norm_q_", None)
        if point is None:
            raise ValueError(f"{result.method} has no learned q; fit with norm_q='learn'")
        low, high = getattr(fit, "norm_q_interval_", (point, point))
        what, prob = "estimate", 0.9
    ax.axvspan(1 / high, 1 / low, color="C1", alpha=0.2, lw=0, zorder=0, label=f"{prob:.0%}: {low:.3g} to {high:.3g}")
    ax.axvline(1 / point, color="C1", label=f"{what}: {point:.3g}")
    ticks = np.array([1, 1.2, 1.5, 2, 3, 4, 8, 50])
    ax.set_xticks(1 / ticks, labels=[f"{q:g}" for q in ticks])
    ax.set_xlim(0, 1.02)
    ax.set_yticks([])
    ax.set_xlabel("q (on the scale of 1/q): few tasks dominate to the right, all alike to the left")
    entitle(ax, f"{result.method}: how the tasks share a feature")
    ax.legend(fontsize=8)
    return ax


def predictive_check(fit: Any, n_draws: int = 50, ax: Axes | None = None) -> Axes:
    """Distribution of the targets against that of data drawn from the fitted model.

    Parameters
    ----------
    fit : a fit with draws from its posterior predictive, such as a `BayesianRegressor`
    n_draws : how many replicated data sets to draw
    ax : axes to draw on; a new figure if None

    Returns
    -------
    the axes
    """
    result = result_of(fit)
    tree = result.posterior
    if tree is None or "posterior_predictive" not in tree.children or "observed_data" not in tree.children:
        raise ValueError(f"{result.method} has no posterior predictive draws; fit a BayesianRegressor or -Classifier")
    replicated = tree["posterior_predictive"]["y"].stack(sample=("chain", "draw")).transpose("sample", ...).values
    observed = np.asarray(tree["observed_data"]["y"].values)
    ax = new_axes(ax)
    if set(np.unique(observed)) <= {-1, 0, 1}:
        _draw_rates(ax, observed, replicated)
    else:
        chosen = np.linspace(0, len(replicated) - 1, min(n_draws, len(replicated))).astype(int)
        for place, draw in enumerate(replicated[chosen]):
            ax.plot(*_ecdf(draw), color="0.7", lw=0.6, label=None if place else "drawn from the fitted model")
        ax.plot(*_ecdf(observed), color="C0", lw=2, label="observed")
        ax.set_xlabel("y")
        ax.set_ylabel("share of rows below")
        ax.legend()
    entitle(ax, f"{result.method}: posterior predictive check")
    return ax


def _draw_rates(ax: Axes, observed: FloatArray, replicated: FloatArray) -> None:
    """Share of positive labels, drawn and observed."""
    ax.hist((replicated > 0).mean(axis=1), bins=30, color="0.8", label="drawn")
    ax.axvline((observed > 0).mean(), color="C0", lw=2, label="observed")
    ax.set_xlabel("share of the second class")
    ax.set_ylabel("draws")
    ax.legend()


def _ecdf(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    return np.sort(values), np.arange(1, len(values) + 1) / len(values)
