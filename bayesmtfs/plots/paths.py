"""What happens along a penalty, over iterations, or over a stream."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from bayesmtfs.plots.axes import (
    DARK,
    GUIDE,
    SECOND,
    SMALL,
    TINY,
    entitle,
    largest,
    new_axes,
    result_of,
)
from bayesmtfs.results.fit_result import shortened

COLOURED = 10  # features of a path with a colour and a name of their own


def regularisation_path(path: Any, most: int = 100, ax: Axes | None = None) -> Axes:
    """Row norms over the penalty, strongest penalty left, with the chosen point where there is one.

    Parameters
    ----------
    path : what `bayesmtfs.mixed_norm_path` gives, or a fitted ``MixedNormRegressorCV`` or ``MixedNormClassifierCV``
    most : how many features to show, largest norm anywhere on the path first
    ax : axes to draw on; a new figure if None
    """
    chosen = getattr(path, "penalty_strength_", None) if hasattr(path, "path_") else None
    path = getattr(path, "path_", path)
    if not hasattr(path, "penalties"):
        raise TypeError(f"a path is wanted, but a {type(path).__name__} came; pass mixed_norm_path(...) or a CV fit")
    ax = new_axes(ax, 8.0)
    positive = np.flatnonzero(path.penalties > 0)
    order = positive[np.argsort(-path.penalties[positive], kind="stable")]
    norms = np.linalg.norm(path.coefs[order], axis=1)
    for rank, feature in enumerate(largest(norms.max(axis=0), most)):
        named = rank < COLOURED
        ax.plot(
            path.penalties[order],
            norms[:, feature],
            color=f"C{rank}" if named else GUIDE,
            label=shortened(path.feature_names[feature]) if named else None,
            lw=1.5 if named else 0.7,
            zorder=2 if named else 1,
        )
    if chosen is not None:
        _mark_choice(ax, path, chosen)
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=8))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:g}"))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.invert_xaxis()
    ax.set_ylim(bottom=0, top=1.1 * norms.max() or 1.0)  # room for the choice above the lines
    ax.set(xlabel="penalty strength", ylabel="norm over the tasks")
    entitle(ax, f"l1,{path.norm_q:g} path: {path.n_selected.max()} of {path.coefs.shape[2]} features enter")
    ax.legend(
        fontsize=TINY, loc="center left", bbox_to_anchor=(1.01, 0.5), title="largest features", title_fontsize=TINY
    )
    return ax


def _mark_choice(ax: Axes, path: Any, chosen: float) -> None:
    """A line at the chosen penalty, with its value and number of features, on the side that has more room."""
    n_selected = int(path.n_selected[np.abs(path.penalties - chosen).argmin()])
    weak = chosen**2 < path.penalties.max() * path.penalties[path.penalties > 0].min()
    ax.axvline(chosen, color=DARK, ls="--", lw=1)
    ax.annotate(
        f"chosen: {chosen:.3g}, {n_selected} features", (chosen, 1), xycoords=("data", "axes fraction"), fontsize=SMALL,
        xytext=(-3 if weak else 3, -10), textcoords="offset points", ha="right" if weak else "left",
    )  # fmt: skip


def objective_trace(result: Any, ax: Axes | None = None) -> Axes:
    """Objective over the iterations, as the distance from its smallest value, and the certified gap.

    Parameters
    ----------
    result : a fit, or the fitted estimator
    ax : axes to draw on; a new figure if None
    """
    result = result_of(result)
    convergence = result.convergence
    trace = convergence.objective_trace
    ax = new_axes(ax)
    if len(trace) < 2:
        ax.text(0.5, 0.5, "this fit kept no trace", ha="center", va="center", transform=ax.transAxes)
        ax.set_axis_off()
        return ax
    above = trace - trace.min()
    positive = above > 0
    ax.semilogy(np.flatnonzero(positive), above[positive], marker="." if len(trace) < 60 else "")
    if convergence.gap is not None and convergence.gap > 0:
        ax.axhline(convergence.gap, color=SECOND, ls="--", label=f"certified gap {convergence.gap:.1e}")
        ax.legend(fontsize=SMALL)
    ax.set(xlabel="iteration", ylabel="objective above its smallest value")
    entitle(ax, f"{result.method}: {'converged' if convergence.converged else 'NOT converged'}")
    return ax


def online_progress(history: Any, figure: Figure | None = None) -> Figure:
    """Progressive loss, regret and number of features in use over a stream, one panel per quantity.

    Parameters
    ----------
    history : mapping with arrays ``rows`` (rows seen so far), ``loss`` (mean loss of each piece, predicted before it was
        learned from), ``features`` (features in use), and, where a comparator is known, ``best_loss`` (its mean loss on
        each piece)
    figure : figure to draw on; a new one if None
    """
    if not isinstance(history, Mapping):
        raise TypeError(
            f"history is a {type(history).__name__}; a fit keeps none: pass a mapping with 'rows', 'loss' and 'features', "
            "one entry per call of partial_fit"
        )
    missing = [name for name in ("rows", "loss", "features") if name not in history]
    if missing:
        raise ValueError(f"history has no {missing[0]!r}; pass a mapping with 'rows', 'loss' and 'features'")
    rows, loss = np.asarray(history["rows"]), np.asarray(history["loss"])
    counts = np.diff(rows, prepend=0)
    panels = [("progressive loss", np.cumsum(counts * loss) / rows)]
    if "best_loss" in history:
        panels.append(("regret", np.cumsum(counts * (loss - np.asarray(history["best_loss"])))))
    panels.append(("features in use", np.asarray(history["features"])))
    figure = Figure(figsize=(6, 2.2 * len(panels)), layout="constrained") if figure is None else figure
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for ax, (title, values) in zip(axes, panels, strict=True):
        ax.plot(rows, values)
        ax.set_ylabel(title)
    axes[-1].set_xlabel("rows seen")
    return figure
