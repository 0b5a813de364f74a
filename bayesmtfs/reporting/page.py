"""One self-contained HTML page: it opens from disk, without a network."""

import os
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import numpy as np

from bayesmtfs.plots.axes import result_of
from bayesmtfs.reporting.markup import Cell, TableColumn, number, paragraph, table, text
from bayesmtfs.reporting.sections import section
from bayesmtfs.reporting.source import Source
from bayesmtfs.reporting.words import describe
from bayesmtfs.results import persistence
from bayesmtfs.results.fit_result import FitResult
from bayesmtfs.results.sharing import counts_in_words
from bayesmtfs.selection.reference import held_out_errors

MOST_AGREED = 500  # features in the table of agreement


def report(
    fits: Any,
    path: str | os.PathLike[str],
    title: str = "Multi-task feature selection",
    sources: Source | Mapping[str, Source] | None = None,
    X: Any = None,
    y: Any = None,
    tasks: Any = None,
) -> None:
    """Write a page about one fit or several: data, model, effects and how sure they are, how to repeat and to cite it.

    The page holds its plots, styles and script, needs no network, and works in light and dark, on a screen of any
    width. Plots have their values under the pointer; tables can be sorted, filtered and saved as CSV.

    Parameters
    ----------
    fits : a fitted estimator or `FitResult`, a sequence of them, or a mapping from names to them
    path : the HTML file; an existing one is replaced in one step
    title : heading of the page
    sources : what is known of the data and of held-out errors (`bayesmtfs.reporting.Source`), for all fits or by name
    X, y, tasks : the data of the fits, to measure them on held-out rows (`bayesmtfs.selection.reference`)

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from bayesmtfs import MixedNormRegressor, simulate_tasks
    >>> sim = simulate_tasks(n_tasks=2, n_features=5, n_relevant=2, random_state=0)
    >>> model = MixedNormRegressor().fit(sim.X, sim.y, tasks=sim.tasks)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = pathlib.Path(folder) / "report.html"
    ...     report(model, page)
    ...     "MixedNormRegressor" in page.read_text(encoding="utf-8")
    True
    """
    named = named_fits(fits)
    stated = sources if isinstance(sources, Mapping) else dict.fromkeys(named, sources or Source())
    known = {name: stated.get(name, Source()) for name in named}
    if X is not None:
        for name, fit in named.items():
            known[name] = known[name]._replace(errors=held_out_errors(fit, X, y, tasks))
    content = _page(title, named, known).encode("utf-8")
    with persistence.replacing(path) as stream:
        stream.write(content)


def named_fits(fits: Any) -> dict[str, Any]:
    """Fits by what they are called on a page."""
    if isinstance(fits, dict):
        named = {str(name): fit for name, fit in fits.items()}
    else:
        listed = list(fits) if isinstance(fits, Sequence) else [fits]
        titles = [describe(fit).title for fit in listed]
        named = {
            title if titles.count(title) == 1 else f"{title} ({place + 1})": fit
            for place, (title, fit) in enumerate(zip(titles, listed, strict=True))
        }
    if not named:
        raise ValueError("fits is empty; pass at least one fitted estimator or result")
    for fit in named.values():
        result_of(fit)
    return named


def _page(title: str, named: dict[str, Any], sources: dict[str, Source]) -> str:
    files = resources.files("bayesmtfs.reporting")
    style, script = (files.joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    anchors = {name: f"fit-{place}" for place, name in enumerate(named)}
    links = "".join(f'<li><a href="#{anchors[name]}">{text(name)}</a></li>' for name in named)
    overview = _overview(named) if len(named) > 1 else ""
    navigation = f'<nav aria-label="Fits"><ul>{links}</ul></nav>' if len(named) > 1 else ""
    sections = "\n".join(section(fit, name, anchors[name], sources[name]) for name, fit in named.items())
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{text(title)}</title>
<style>
{style}</style>
</head>
<body>
<header><h1>{text(title)}</h1>{navigation}</header>
<main>
{overview}
{sections}
</main>
<script>
{script}</script>
</body>
</html>
"""


def _overview(named: dict[str, Any]) -> str:
    results = {name: result_of(fit) for name, fit in named.items()}
    first = next(iter(results.values()))
    rows: list[list[Cell | str]] = [
        [
            name,
            number(int(result.selected.sum()), 6),
            _shared(first, result),
            "NO" if not result.convergence.converged else "yes" if result.convergence.rows_seen is None else "a stream",
            "draws" if result.posterior is not None else "a point",
            counts_in_words(result.sharing) or "one task",
        ]
        for name, result in results.items()
    ]
    numbers = ["features selected", "also in the first fit", "converged", "uncertainty"]
    return (
        "<section><h2>Side by side</h2>"
        + paragraph("The same question asked of several methods: where they agree, the answer does not depend on one.")
        + table(
            "overview",
            [TableColumn("fit", is_text=True), *numbers, TableColumn("of these", is_text=True)],
            rows,
            "Fits side by side",
            tools=False,
        )
        + _agreement(results)
        + "</section>"
    )


def _agreement(results: dict[str, FitResult]) -> str:
    """Which fit selects which feature, those that most fits select first; nothing where the fits have other features."""
    first = next(iter(results.values()))
    if any(not np.array_equal(first.feature_names, result.feature_names) for result in results.values()):
        return ""
    chosen = np.array([result.selected for result in results.values()])
    votes = chosen.sum(axis=0)
    order = np.argsort(-votes, kind="stable")
    order = order[votes[order] > 0][:MOST_AGREED]
    rows: list[list[Cell | str]] = [
        [str(first.feature_names[i]), number(int(votes[i]), 6), *("yes" if kept else "no" for kept in chosen[:, i])]
        for i in order
    ]
    more = "" if len(order) == (votes > 0).sum() else f" (the first {len(order)})"
    columns: list[TableColumn | str] = [TableColumn("feature", is_text=True), "fits that select it", *results]
    return table("agreement", columns, rows, f"Features that any fit selects{more}")


def _shared(first: FitResult, other: FitResult) -> Cell | str:
    if not np.array_equal(first.feature_names, other.feature_names):
        return "other features"
    return number(int((first.selected & other.selected).sum()), 6)
