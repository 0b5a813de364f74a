"""The sections of a report about one fit."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bayesmtfs import plots
from bayesmtfs.plots.axes import height_for, result_of
from bayesmtfs.reporting.code import code_to_repeat
from bayesmtfs.reporting.markup import Cell, definitions, number, paragraph, picture, table, text, verdict
from bayesmtfs.results.fit_result import FitResult
from bayesmtfs.selection.draws import draws_of, read_draws

INTERVAL = 0.89
MOST_ROWS = 2000  # of the table of features
SHOWN_FEATURES = 30  # in pictures
SHORTEST_TRACE = 3  # iterations up to which a trace shows nothing

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
    """A picture that may or may not suit a fit."""

    draw: Callable[[Any, Axes], Axes]
    suits: Callable[[FitResult], bool]
    description: str


DRAWINGS = (
    Drawing(
        lambda fit, ax: plots.coefficient_heatmap(fit, SHOWN_FEATURES, ax),
        lambda result: bool((result.coef != 0).any()),
        "Coefficients: one row per feature, one column per task, red positive, blue negative.",
    ),
    Drawing(
        lambda fit, ax: plots.row_norms(fit, SHOWN_FEATURES, INTERVAL, ax),
        lambda result: True,
        "Strength of each feature: the norm of its coefficients over the tasks, largest first.",
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
            "<h3>Pictures</h3>",
            *_pictures(fit, result),
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
    facts |= {
        "tasks": f"{result.n_tasks} ({_some(result.task_names)})",
        "features": f"{result.n_features} ({_some(result.feature_names)})",
    }
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
    elif "sample_stats" in result.posterior.children:
        stats = result.posterior["sample_stats"].dataset
        if "diverging" in stats:
            divergences = int(stats["diverging"].sum())
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
    """Features with the size of their coefficients and, where there are draws, how sure that is."""
    norms = np.linalg.norm(result.coef, axis=0)
    order = np.argsort(-norms, kind="stable")[:MOST_ROWS]
    headings = ["feature", "selected", "norm over tasks", "non-zero tasks", "largest coefficient", "in task"]
    sure = None if result.posterior is None else _uncertainty(result)
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
    return table(name, headings, rows, f"Features of {result.method}{more}; press a heading to sort")


def _uncertainty(result: FitResult) -> tuple[Any, Any, Any]:
    """Interval of the norm (p,), (p,) and smallest local false sign rate over the tasks (p,)."""
    draws = read_draws(result)
    tail = (1 - INTERVAL) / 2
    interval = np.quantile(np.linalg.norm(draws.coef, axis=2), [tail, 1 - tail], axis=0)
    low, high = draws.over_all_features(interval.T, 0.0).T
    wrong_sign = np.minimum((draws.coef <= 0).mean(axis=0), (draws.coef >= 0).mean(axis=0))
    return low, high, draws.over_all_features(wrong_sign.min(axis=1), 1.0)


def _pictures(fit: Any, result: FitResult) -> list[str]:
    drawn = []
    for drawing in DRAWINGS:
        if drawing.suits(result):
            figure = Figure(
                figsize=(8, min(7.0, height_for(min(result.n_features, SHOWN_FEATURES)) + 1)), layout="constrained"
            )
            drawing.draw(fit, figure.add_subplot())
            drawn.append(picture(figure, drawing.description))
    return drawn


def _reproduction(result: FitResult) -> str:
    seed = {} if result.seed is None else {"seed": result.seed}
    return (
        paragraph("Settings that are not named are at their defaults.")
        + f"<pre><code>{text(code_to_repeat(result))}</code></pre>"
        + f"<details><summary>Versions</summary>{definitions({**seed, **result.versions})}</details>"
    )
