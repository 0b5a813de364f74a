"""The sections of a report about one fit, the code that repeats it, and the small pieces of HTML they are made of."""

import base64
import html
import importlib
import inspect
import io
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bayesmtfs import plots
from bayesmtfs.plots.axes import height_for, result_of, shown_of
from bayesmtfs.public_names import BASELINES, ESTIMATORS
from bayesmtfs.results.fit_result import FitResult
from bayesmtfs.results.tables import INTERVAL
from bayesmtfs.selection.draws import draws_of, has_exact_zeros, read_draws
from bayesmtfs.selection.effects import local_false_sign_rate
from bayesmtfs.types import FloatArray

MOST_ROWS = 2000  # of the table of features
SHOWN_FEATURES = 30  # in plots
SHORTEST_TRACE = 3  # iterations up to which a trace shows nothing

FILTERED = 8  # rows from which on a table gets a filter

METHODS = {
    "MixedNorm": "penalised: loss + strength x sum over features of the l_q norm of its coefficients over the tasks",
    "GeneralizedNormal": "mode under a generalized normal prior with its scale at its best value (problem 5)",
    "Jeffreys": "EM under generalized normal rows with a Jeffreys prior on their scales",
    "MatrixVariate": "EM under rows that are correlated between tasks",
    "Bayesian": "draws from the posterior",
    "OnlineMixedNorm": "regularised dual averaging over a stream",
    "OnlineSmoothed": "online learning with relations between tasks",
    "Smoothed": "batch learning with relations between tasks",
}


class Drawing(NamedTuple):
    """A plot that may or may not suit a fit."""

    draw: Callable[[Any, Axes], Axes]
    suits: Callable[[FitResult], bool]
    description: str


def _has_correlations(result: FitResult) -> bool:
    tree = result.posterior
    return tree is not None and "feature_correlation" in getattr(tree.get("constant_data"), "data_vars", ())


DRAWINGS = (
    Drawing(
        lambda fit, ax: plots.coefficient_heatmap(fit, SHOWN_FEATURES, ax),
        lambda result: bool((result.coef != 0).any()),
        "Effects: one row per feature, one column per task, red positive, blue negative.",
    ),
    Drawing(
        lambda fit, ax: plots.row_norms(fit, SHOWN_FEATURES, INTERVAL, ax),
        lambda result: True,
        "Strength of each feature: the norm of its effects over the tasks, largest first.",
    ),
    Drawing(
        lambda fit, ax: plots.entry_probability(fit, SHOWN_FEATURES, ax),
        has_exact_zeros,
        "In which tasks: probability that a feature is in the model, one row per feature, one column per task.",
    ),
    Drawing(
        lambda fit, ax: plots.patterns(fit, SHOWN_FEATURES, ax),
        has_exact_zeros,
        "How the tasks share a feature: probabilities that all, some or one of them have it.",
    ),
    Drawing(
        lambda fit, ax: plots.credible_sets(fit, ax=ax),
        lambda result: has_exact_zeros(result) and _has_correlations(result),
        "Credible sets: features that stand in for each other, in one colour, at their inclusion probabilities.",
    ),
    Drawing(
        lambda fit, ax: plots.task_relations(fit, ax=ax),
        lambda result: result.task_relations is not None or draws_of(result, "task_relations") is not None,
        "Relations between tasks, similar tasks beside each other.",
    ),
    Drawing(
        lambda fit, ax: plots.norm_q(fit, ax=ax),
        lambda result: result.settings.get("norm_q") == "learn" and draws_of(result, "norm_q") is not None,
        "Posterior of q: how the tasks share a feature.",
    ),
    Drawing(
        lambda fit, ax: plots.predictive_check(fit, ax=ax),
        lambda result: result.posterior is not None and "posterior_predictive" in result.posterior.children,
        "Posterior predictive check: observed targets against data drawn from the fitted model.",
    ),
    Drawing(
        lambda fit, ax: plots.objective_trace(fit, ax),
        lambda result: len(result.convergence.objective_trace) > SHORTEST_TRACE,
        "Objective over the iterations, as the distance from its smallest value.",
    ),
)


def section(fit: Any, name: str, anchor: str) -> str:
    """All about one fit."""
    result = result_of(fit)
    return "\n".join(
        [
            f'<section id="{anchor}"><h2>{text(name)}</h2>',
            "<h3>Data and method</h3>",
            _data_and_method(result),
            "<h3>How the computation ended</h3>",
            _diagnostics(result),
            "<h3>Which features, in which tasks</h3>",
            paragraph(_selection_sentence(result)),
            feature_table(result, f"{anchor}-features"),
            "<h3>Plots</h3>",
            *_plots(fit, result),
            "<h3>Settings, versions, and how to repeat this</h3>",
            _reproduction(result),
            "</section>",
        ]
    )


def explained(method: str) -> str:
    """A method in words."""
    family = max((name for name in METHODS if method.startswith(name)), key=len, default=None)
    return "a fitted model" if family is None else METHODS[family]


def _data_and_method(result: FitResult) -> str:
    facts = {"method": f"{result.method} ({explained(result.method)})"}
    if "n_rows" in result.settings:
        facts["observations"] = result.settings["n_rows"]
    for what, names in (("tasks", result.task_names), ("features", result.feature_names)):
        facts[what] = f"{len(names)} ({_some(names)})"
    if result.noise is not None:
        facts["noise"] = f"{result.noise.min():.3g} to {result.noise.max():.3g} over the tasks"
    return definitions(facts)


def _some(names: Any, shown: int = 5) -> str:
    listed = ", ".join(str(name) for name in names[:shown])
    return listed if len(names) <= shown else f"{listed}, and {len(names) - shown} more"


def _diagnostics(result: FitResult) -> str:
    sentences = [verdict(result.convergence.verdict(), result.convergence.converged)]
    if result.posterior is None:
        sentences.append(paragraph("This route gives a point, not a posterior: it says nothing about uncertainty."))
    elif "sample_stats" in result.posterior.children and "diverging" in result.posterior["sample_stats"].dataset:
        divergences = int(result.posterior["sample_stats"]["diverging"].sum())
        sentences.append(verdict(f"{divergences} divergent transitions.", divergences == 0))
    return "".join(sentences)


def _selection_sentence(result: FitResult) -> str:
    n_selected = int(result.selected.sum())
    if n_selected == 0:
        return f"None of the {result.n_features} features is selected; a weaker penalty or prior selects more."
    entries = result.selected_entries.sum() / (n_selected * result.n_tasks)
    return (
        f"{n_selected} of {result.n_features} features are selected; on average a selected feature has a non-zero "
        f"coefficient in {entries:.0%} of the {result.n_tasks} tasks."
    )


def feature_table(result: FitResult, name: str) -> str:
    """Features with the size of their effects and, where there are draws, how sure that is.

    The norm over the tasks is the median of its draws where there are any, as its interval is theirs.
    """
    result, what = shown_of(result, user_units=False)
    tail = (1 - INTERVAL) / 2
    low, norms, high = result.norm_quantiles([tail, 0.5, 1 - tail])
    order = np.argsort(-norms, kind="stable")[:MOST_ROWS]
    headings = ["feature", "selected", "norm over tasks", "non-zero tasks", f"largest {what.split()[0]}", "in task"]
    sure = None if result.posterior is None else (low, high, _false_sign_rates(result))
    if sure is not None:
        headings += [f"norm, {INTERVAL:.0%} from", "to", "smallest false sign rate"]
    rows = []
    for feature in order:
        values = result.coef[:, feature]
        task = int(np.abs(values).argmax())
        row: list[Cell | str] = [
            str(result.feature_names[feature]),
            "yes" if result.selected[feature] else "no",
            number(norms[feature]),
            number(float(np.count_nonzero(values))),
            number(values[task]),
            str(result.task_names[task]),
        ]
        rows.append(row if sure is None else [*row, *(number(column[feature]) for column in sure)])
    more = "" if len(order) == result.n_features else f" (the {len(order)} largest of {result.n_features})"
    return table(name, headings, rows, f"Features of {result.method}{more}, {what}; press a heading to sort")


def _false_sign_rates(result: FitResult) -> FloatArray:
    """(p,) Smallest local false sign rate over the tasks."""
    draws = read_draws(result)
    return draws.over_all_features(local_false_sign_rate(draws.coef).min(axis=1), 1.0)


def _plots(fit: Any, result: FitResult) -> list[str]:
    drawn = []
    height = min(7.0, height_for(min(result.n_features, SHOWN_FEATURES)) + 1)
    for drawing in DRAWINGS:
        if drawing.suits(result):
            figure = Figure(figsize=(8, height), layout="constrained")
            drawing.draw(fit, figure.add_subplot())
            drawn.append(image(figure, drawing.description))
    return drawn


def _reproduction(result: FitResult) -> str:
    seed = {} if result.seed is None else {"seed": result.seed}
    return (
        paragraph("Settings that are not named are at their defaults.")
        + f"<pre><code>{text(code_to_repeat(result))}</code></pre>"
        + f"<details><summary>Versions</summary>{definitions({**seed, **result.versions})}</details>"
    )


# ---------------------------------------------------------------------- code


def code_to_repeat(result: FitResult) -> str:
    """Lines that make and fit the estimator of a result again.

    Settings that no code can write down, such as arrays, are named in a comment.
    """
    settings = _changed_settings(result)
    written = {name: code for name, value in settings.items() if (code := literal(value)) is not None}
    arguments = "".join(f"\n    {name}={code}," for name, code in written.items())
    place = f"bm.baselines.{result.method}" if result.method in BASELINES else f"bm.{result.method}"
    lines = ["import bayesmtfs as bm", "", f"model = {place}({arguments}{chr(10) if arguments else ''})"]
    if len(written) < len(settings):
        others = ", ".join(name for name in settings if name not in written)
        lines.insert(2, f"# and the same {others} as in the fit")
    lines.append("model.fit(X, y)" if "task_column" in written else "model.fit(X, y, tasks=tasks)")
    return "\n".join(lines)


def literal(value: Any) -> str | None:
    """A value as Python code, None where it has no short one.

    Examples
    --------
    >>> literal([1, float("inf")]), literal("learn"), literal(object())
    ("[1, float('inf')]", "'learn'", None)
    """
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float) and not math.isfinite(value):
        return f"float('{value}')"
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, list | tuple):
        parts = [literal(part) for part in value]
        return None if None in parts else f"[{', '.join(map(str, parts))}]"
    return None


def _changed_settings(result: FitResult) -> Mapping[str, Any]:
    """Settings that the estimator's constructor takes and that differ from its defaults."""
    home = (ESTIMATORS | BASELINES).get(result.method)
    if home is None:
        return {name: value for name, value in result.settings.items() if name != "n_rows"}
    known = inspect.signature(getattr(importlib.import_module(home), result.method)).parameters
    return {
        name: value
        for name, value in result.settings.items()
        if name in known and name != "progress" and literal(value) != literal(known[name].default)
    }


# ---------------------------------------------------------------------- HTML: every text is escaped here and nowhere else


class Cell(NamedTuple):
    """What a table shows, and what it sorts by."""

    text: str
    value: float | str


def number(value: float, digits: int = 3) -> Cell:
    """A number as a cell."""
    return Cell(f"{value:.{digits}g}", float(value))


def text(value: object) -> str:
    """Escaped text."""
    return html.escape(str(value))


def paragraph(content: object) -> str:
    """A paragraph of plain text."""
    return f"<p>{text(content)}</p>"


def verdict(content: object, good: bool) -> str:
    """A sentence that says whether something is in order; words, not only a colour, carry it."""
    return f'<p class="verdict{"" if good else " bad"}">{"In order" if good else "Attention"}: {text(content)}</p>'


def definitions(pairs: Mapping[str, Any]) -> str:
    """Names with their values."""
    return "<dl>" + "".join(f"<dt>{text(k)}</dt><dd>{text(v)}</dd>" for k, v in pairs.items()) + "</dl>"


def table(name: str, headings: Sequence[str], rows: Sequence[Sequence[Cell | str]], caption: str) -> str:
    """A sortable table, with a filter where it is long; ``name`` is unique on the page."""
    head = "".join(f'<th scope="col"><button type="button">{text(heading)}</button></th>' for heading in headings)
    body = "".join("<tr>" + "".join(_cell(cell) for cell in row) + "</tr>" for row in rows)
    search = (
        f'<p><label for="{name}-filter">Filter rows by text</label> <input id="{name}-filter" type="search"> '
        f'<span id="{name}-count" class="soft" aria-live="polite"></span></p>'
    )
    return (
        f"{search if len(rows) > FILTERED else ''}"
        f'<div class="scroll" tabindex="0" role="region" aria-label="{text(caption)}">'
        f'<table id="{name}" class="sortable" data-filter="{name}-filter" data-count="{name}-count">'
        f"<caption>{text(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cell(cell: Cell | str) -> str:
    if isinstance(cell, Cell):
        return f'<td data-value="{text(cell.value)}">{text(cell.text)}</td>'
    return f"<td>{text(cell)}</td>"


def image(figure: Figure, description: str) -> str:
    """A plot inside the page, with a text for those who do not see it."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=110)
    source = base64.b64encode(stream.getvalue()).decode("ascii")
    alternative = text(description)
    return (
        f'<figure><img src="data:image/png;base64,{source}" alt="{alternative}">'
        f"<figcaption>{alternative}</figcaption></figure>"
    )
