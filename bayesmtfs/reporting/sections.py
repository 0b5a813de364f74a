"""The sections of a report about one fit: data, model, check, effects, credible sets, and how to repeat and cite it."""

import math
from typing import Any

import numpy as np

from bayesmtfs import selection
from bayesmtfs.families import find_family, is_known
from bayesmtfs.plots.axes import largest, result_of, shown_of
from bayesmtfs.reporting import charts, markup, words
from bayesmtfs.reporting.markup import Cell, TableColumn, number, paragraph, table, text, verdict
from bayesmtfs.reporting.repeat import code_to_repeat
from bayesmtfs.reporting.source import Source
from bayesmtfs.results.fit_result import FitResult
from bayesmtfs.results.sharing import counts_in_words
from bayesmtfs.results.tables import INTERVAL, TAILS, central_interval
from bayesmtfs.selection.comparison import Comparison
from bayesmtfs.selection.draws import draws_of, has_exact_zeros
from bayesmtfs.types import FloatArray, IntArray

MOST_ROWS = 500  # of the table of features
MOST_TASKS = 40  # with a column of their own
DRAWN = 14  # features in a plot
DRAWN_TASKS = 60  # tasks in a map
SHORTEST_TRACE = 3  # iterations up to which a trace shows nothing
GRID = 60  # points of a curve
DIFFERENT_UNITS = 10  # ratio of deviations of targets from which on they are not put on one axis
Q_TICKS = (1, 1.2, 1.5, 2, 3, 4, 8, 50)


def section(fit: Any, name: str, anchor: str, source: Source = Source()) -> str:
    """All about one fit."""
    result = result_of(fit)
    return "\n".join(
        [
            f'<section id="{anchor}"><h2>{text(name)}</h2>',
            '<div class="cards">',
            f"<div><h3>Data</h3>{_data(result, source)}</div>",
            f"<div><h3>Model</h3>{_model(fit, result)}</div>",
            f"<div><h3>Check</h3>{_check(fit, source.errors)}</div>",
            "</div>",
            "<h3>Effects: which features, in which tasks</h3>",
            paragraph(_selection_sentence(result)),
            f'<div class="plots">{"".join(_plots(fit, result))}</div>',
            feature_table(result, f"{anchor}-features"),
            _credible_sets(fit, result, anchor),
            _paper(fit, source),
            _reproduction(result, source),
            _computation(result),
            "</section>",
        ]
    )


# ---------------------------------------------------------------------- data, model, check


def _data(result: FitResult, source: Source) -> str:
    facts: dict[str, Any] = {}
    for name, value in (
        ("file", source.file),
        ("target", source.target.replace(",", ", ")),
        ("column of the task", source.task),
    ):
        if value:
            facts[name] = value
    facts["kind of target"] = words.model_of_targets(result)[1]
    if "positive_class" in result.settings:
        facts["positive class"] = f"{result.settings['positive_class']}: a positive effect speaks for it"
    if "n_rows" in result.settings:
        facts["observations"] = result.settings["n_rows"]
    for what, names in (("tasks", result.task_names), ("features", result.feature_names)):
        facts[what] = f"{len(names)} ({_some(names)})"
    if result.screened_out is not None and result.screened_out.any():
        gone = result.feature_names[result.screened_out]
        facts["screened out"] = f"{len(gone)} features before sampling, not judged ({_some(gone)})"
    if result.absent is not None and result.absent.any():
        facts["absent"] = f"{int(result.absent.sum())} pairs of feature and task, fixed at 0"
    return markup.definitions(facts) + (markup.listing(source.notes) if source.notes else "")


def _some(names: Any, shown: int = 4) -> str:
    listed = ", ".join(charts.short_names(names[:shown]))
    return listed if len(names) <= shown else f"{listed}, and {len(names) - shown} more"


def _model(fit: Any, result: FitResult) -> str:
    described = words.describe(fit)
    facts = words.choices(fit)
    loss = result.settings.get("loss", "squared")
    if result.noise is not None and is_known(loss) and find_family(loss).has_noise:
        low, high = result.noise.min(), result.noise.max()
        facts["noise"] = f"{low:.3g}" if len(result.noise) == 1 else f"{low:.3g} to {high:.3g} over the tasks"
    observed = words.model_of_targets(result)[0]
    return (
        f'<p class="formula">{observed}<br>{described.formula}</p>'
        f"{paragraph(described.sentence)}{markup.definitions(facts) if facts else ''}"
    )


def _check(fit: Any, errors: Comparison | None) -> str:
    sentence, good = words.diagnosis(fit)
    parts = [verdict(sentence, good)]
    if result_of(fit).posterior is None:
        parts.append(paragraph("A point, not a posterior: it does not say how sure it is.", "soft"))
    if errors is not None:
        parts.append(error_table(errors))
    return "".join(parts)


def error_table(errors: Comparison) -> str:
    """Held-out error of the fit beside what it is measured against."""
    names = [name for name in ("r2", "auc", "deviance") if any(np.isfinite(getattr(one, name)) for one in errors.fits)]
    headings = {"r2": "R²", "auc": "AUC", "deviance": "deviance"}
    rows = "".join(
        f"<tr><td>{text(one.name)}</td><td>{_with_error(one.error, one.error_se)}</td>"
        + "".join(f"<td>{_finite(getattr(one, name))}</td>" for name in names)
        + "</tr>"
        for one in errors.fits
    )
    extra = "".join(f'<th scope="col">{headings[name]}</th>' for name in names)
    return (
        f'<table class="plain"><caption>On rows not used for the fit</caption><thead><tr><th scope="col"></th>'
        f'<th scope="col">{text(errors.error_name)}</th>{extra}</tr></thead><tbody>{rows}</tbody></table>'
    )


def _finite(value: float) -> str:
    return f"{round(value, 10) + 0.0:.3g}" if math.isfinite(value) else ""


def _with_error(value: float, error: float) -> str:
    return f"{value:.3g}" + (f" ± {float(f'{error:.1g}'):g}" if math.isfinite(error) else "")


def errors_in_words(errors: Comparison | None) -> str:
    """One sentence about held-out errors, for a paper."""
    if errors is None or not errors.fits:
        return ""
    listed = "; ".join(f"{one.name}: {_with_error(one.error, one.error_se)}" for one in errors.fits)
    return f"{errors.error_name} on held-out rows (mean ± standard error): {listed}."


# ---------------------------------------------------------------------- effects


def _selection_sentence(result: FitResult) -> str:
    n_selected = int(result.selected.sum())
    if n_selected == 0:
        return f"None of the {result.n_features} features is selected; a weaker penalty or prior selects more."
    counts = counts_in_words(result.sharing)
    sentence = f"{n_selected} of {result.n_features} features are selected{f': {counts}' if counts else ''}."
    return f"{sentence} {result.effects_in_words}".rstrip()


def feature_table(result: FitResult, name: str) -> str:
    """Features in words, the size of their effects and how sure that is, and their effects in every task.

    The norm over the tasks is the median of its draws where there are any, as its interval is theirs.
    """
    whole = result
    result, what = shown_of(whole, user_units=False)
    found = whole.to_frame(form="features")
    gone = np.zeros(whole.n_features, bool) if whole.screened_out is None else whole.screened_out
    likely = found["probability"].to_numpy() if "probability" in found else np.zeros(whole.n_features)
    norm = found["norm"].to_numpy()
    keys = np.where(whole.selected, -norm, -likely)  # of those that are not selected the likeliest first
    order = np.lexsort((-norm, keys, gone, ~whole.selected))[:MOST_ROWS]
    drawn = whole.posterior is not None
    columns: list[TableColumn | str] = [
        TableColumn("feature", is_text=True),
        TableColumn("in which tasks", is_text=True),
        TableColumn("norm over tasks"),
    ]
    numbers = ["norm"]
    if drawn:
        columns += [TableColumn(f"{INTERVAL:.0%} from"), TableColumn("to")]
        numbers += ["norm_lower", "norm_upper"]
        if "probability" in found:
            columns.append(TableColumn("probability"))
            numbers.append("probability")
        columns.append(TableColumn("smallest false sign rate"))
        numbers.append("false_sign_rate")
    shown_tasks = range(result.n_tasks) if result.n_tasks <= MOST_TASKS else range(0)
    columns += [TableColumn(str(result.task_names[t]), of_task=True) for t in shown_tasks]
    ends, entries = result.entry_intervals(), whole.sharing.entries
    rows = []
    for i in order.tolist():
        row: list[Cell | str] = [str(found["feature"][i]), Cell(found["tasks"][i], str(found["tasks"][i]))]
        row += [number(float(found[column][i])) for column in numbers]
        for t in shown_tasks:
            hover = "" if ends is None or np.isnan(ends[0, t, i]) else f"{ends[0, t, i]:.3g} to {ends[1, t, i]:.3g}"
            absent = whole.absent is not None and bool(whole.absent[t, i])
            if absent:
                row.append(Cell("absent", "", faint=True))
            elif result.coef[t, i] == 0:
                row.append(Cell("–", 0.0, faint=True))
            else:
                row.append(number(result.coef[t, i], 2, hover, faint=not entries[t, i]))
        rows.append(row)
    more = "" if len(order) == result.n_features else f" (the first {len(order)} of {result.n_features})"
    by_task = ", by task" if shown_tasks else f"; the {result.n_tasks} tasks are in effects.csv or to_frame()"
    caption = f"Features{more}: {what}{by_task}; grey: not selected in that task. Press a heading to sort."
    return table(name, columns, rows, caption)


# ---------------------------------------------------------------------- plots


def _plots(fit: Any, result: FitResult) -> list[str]:
    shown, what = shown_of(result, user_units=False)
    drawn = []
    norms = np.where(result.selected, shown.norm_quantiles([0.5])[0], 0.0)
    top = largest(norms, DRAWN)
    if norms.any():
        drawn.append(_forest(result, shown, what, top))
        drawn.append(_map(result, shown, top))
    if has_exact_zeros(result):
        drawn.append(_sharing(result))
    relations = _relations(fit, result)
    if relations is not None and result.n_tasks > 1:
        drawn.append(_relation_map(result, relations))
    q = draws_of(result, "norm_q")
    if result.settings.get("norm_q") == "learn" and q is not None:
        drawn.append(_posterior_of_q(q))
    if result.posterior is not None and {"posterior_predictive", "observed_data"} <= set(result.posterior.children):
        drawn.append(_predictive_check(result))
    return drawn


def _cut(n_shown: int, n_all: int) -> str:
    return "" if n_shown >= n_all else f" (the {n_shown} largest of {n_all})"


def _forest(result: FitResult, shown: FitResult, what: str, top: IntArray) -> str:
    ends = shown.entry_intervals()
    names, tasks = ([str(one) for one in some] for some in (result.feature_names[top], result.task_names))
    title = what if ends is None else f"{what}, {INTERVAL:.0%} interval"
    drawing = charts.forest(
        names,
        tasks,
        shown.coef[:, top].T,
        None if ends is None else ends[:, :, top].transpose(0, 2, 1),
        result.sharing.entries[:, top].T,
        title,
    )
    lines = "one mark per task" if ends is None else "one mark and line per task"
    cut = _cut(len(top), int(result.selected.sum()))
    return markup.figure(drawing, f"Effects of the selected features{cut}, {lines}; grey: not selected in that task.")


def _map(result: FitResult, shown: FitResult, top: IntArray) -> str:
    tasks = np.arange(result.n_tasks)[:DRAWN_TASKS]
    names, labels = ([str(one) for one in some] for some in (result.feature_names[top], result.task_names[tasks]))
    frame_probability = result.entry_probability() if has_exact_zeros(result) else None
    of = shown.coef if frame_probability is None else frame_probability
    values = of[np.ix_(tasks, top)].T
    hovers = [
        [
            f"{name} in {task}: {shown.coef[t, i]:.3g}"
            + ("" if frame_probability is None else f", in the model with probability {frame_probability[t, i]:.2f}")
            for t, task in zip(tasks, labels, strict=True)
        ]
        for i, name in zip(top, names, strict=True)
    ]
    if frame_probability is not None:
        caption = "In which tasks: probability that a feature is in the model, stronger colour for more probable."
        return markup.figure(charts.heat_map(names, labels, values, hovers, 1.0), caption)
    caption = (
        "In which tasks: effects, orange above 0 and blue below, stronger for larger; the value under the pointer."
    )
    return markup.figure(charts.heat_map(names, labels, values, hovers, float(np.abs(values).max())), caption)


def _sharing(result: FitResult) -> str:
    found = selection.patterns(result)
    probable = np.where(found.inclusion_probability >= 0.01, found.inclusion_probability, 0.0)
    top = largest(probable, DRAWN)
    names = found.feature_names[top].tolist()
    parts = ("all tasks", "some tasks", "one task")
    drawing = charts.stacked(names, parts, found.kinds[top, :3], "probability")
    return markup.figure(drawing, "How the tasks share a feature: probabilities that all, some or one of them have it.")


def _relations(fit: Any, result: FitResult) -> FloatArray | None:
    draws = draws_of(result, "task_relations")
    found = draws.mean(axis=0) if draws is not None else result.task_relations
    return found if found is not None else getattr(fit, "task_relations_", None)


def _relation_map(result: FitResult, relations: FloatArray) -> str:
    labels = [str(name) for name in result.task_names[:DRAWN_TASKS]]
    m = len(labels)
    apart = np.where(np.eye(m, dtype=bool), 0.0, relations[:m, :m])
    hovers = [
        [f"{one} and {other}: {relations[i, j]:.2f}" for j, other in enumerate(labels)] for i, one in enumerate(labels)
    ]
    limit = float(np.abs(apart).max()) or 1.0
    caption = "Relations between tasks, orange above 0 and blue below, stronger for larger; the diagonal is left empty."
    return markup.figure(charts.heat_map(labels, labels, apart, hovers, limit), caption)


def _posterior_of_q(draws: FloatArray) -> str:
    low, high = central_interval(1.0 / draws, INTERVAL)
    ticks = {1.0 / q: f"{q:g}" for q in Q_TICKS}
    title = "q: few tasks dominate to the right, all alike to the left"
    drawing = charts.histogram(1.0 / draws, (float(low), float(high)), float(np.median(1.0 / draws)), ticks, title)
    return markup.figure(
        drawing,
        f"Posterior of q, how the tasks share a feature: {1 / high:.3g} to {1 / low:.3g} with probability {INTERVAL:.0%}.",
    )


def _predictive_check(result: FitResult) -> str:
    assert result.posterior is not None
    drawn = (
        result.posterior["posterior_predictive"]["y"].stack(sample=("chain", "draw")).transpose("sample", ...).values
    )
    observed = np.asarray(result.posterior["observed_data"]["y"].values).ravel()
    drawn = drawn.reshape(len(drawn), -1)
    drawn = drawn[np.linspace(0, len(drawn) - 1, min(len(drawn), 200)).astype(int)]
    title, units = "target", _units_of_targets(result, observed)
    if units is not None:
        title, (centre, scale) = "target (in deviations from its task's mean)", units
        drawn, observed = (drawn - centre) / scale, (observed - centre) / scale
    low, high = (float(end) for end in np.quantile(observed, [0.002, 0.998]))
    x = np.linspace(low, high, GRID)
    if np.ptp(x) == 0:
        return ""
    own = np.searchsorted(np.sort(observed), x, side="right") / len(observed)
    shares = np.array([np.searchsorted(np.sort(one), x, side="right") for one in drawn]) / drawn.shape[1]
    band = np.quantile(shares, TAILS, axis=0)
    caption = (
        "Posterior predictive check: share of targets below a value, observed (line) and drawn from the fit (band)."
    )
    return markup.figure(charts.curves(x, band, own, title), caption)


def _units_of_targets(result: FitResult, observed: FloatArray) -> tuple[FloatArray, FloatArray] | None:
    """Mean and deviation of each target's task, (N,) each, where tasks have targets in different units; else None."""
    tree = result.posterior
    if tree is None or "constant_data" not in tree.children or "task_index" not in tree["constant_data"]:
        return None
    task: IntArray = tree["constant_data"].dataset["task_index"].to_numpy()
    if len(task) != len(observed):
        return None
    n = np.maximum(np.bincount(task), 1)
    mean = np.bincount(task, observed) / n
    deviation = np.sqrt(np.bincount(task, (observed - mean[task]) ** 2) / n)
    if deviation.min() <= 0 or deviation.max() <= DIFFERENT_UNITS * deviation.min():
        return None
    return mean[task], deviation[task]


# ---------------------------------------------------------------------- the rest


def _credible_sets(fit: Any, result: FitResult, anchor: str) -> str:
    tree = result.posterior
    constant = () if tree is None or "constant_data" not in tree.children else tree["constant_data"].data_vars
    if not has_exact_zeros(result) or "feature_correlation" not in constant:
        return ""
    rows: list[list[Cell | str]] = []
    for one in selection.credible_sets(fit):
        members = zip(one.feature_names.tolist(), one.feature_probability.tolist(), strict=True)
        features = ", ".join(f"{name} ({share:.0%})" for name, share in members)
        row: list[Cell | str] = [features, number(float(len(one.features))), number(one.probability)]
        everywhere = len(one.tasks) == result.n_tasks > 1
        where = f"all {result.n_tasks} tasks" if everywhere else _some([str(task) for task in one.tasks], 8)
        rows.append([*row, number(one.purity, 2), where])
    columns: list[TableColumn | str] = [
        TableColumn("features that stand in for each other", is_text=True),
        "features",
        "probability",
        "least correlation",
    ]
    caption = "Credible sets: each holds a feature of the model with probability of at least 95%."
    heading = "<h3>Credible sets: which features stand in for each other</h3>"
    return heading + table(f"{anchor}-sets", [*columns, TableColumn("tasks", is_text=True)], rows, caption)


def _paper(fit: Any, source: Source) -> str:
    written, cited = words.methods_paragraph(fit, errors_in_words(source.errors))
    return markup.folded("Methods paragraph for a paper", paragraph(written), markup.listing(cited))


def _reproduction(result: FitResult, source: Source) -> str:
    seed = {} if result.seed is None else {"seed": result.seed}
    command = markup.code(source.command) if source.command else ""
    return markup.folded(
        "Settings, versions, and how to repeat this",
        command,
        paragraph("Settings that are not named are at their defaults."),
        markup.code(code_to_repeat(result)),
        markup.definitions({**seed, **result.versions}),
    )


def _computation(result: FitResult) -> str:
    values = result.convergence.objective_trace
    above = values - values.min() if len(values) else values
    if len(values) <= SHORTEST_TRACE or not (above > 0).any():
        return ""
    caption = "Objective over the iterations, as the distance from its smallest value."
    drawn = markup.figure(charts.trace(above, "iteration"), caption)
    return markup.folded("Course of the computation", f'<div class="plots">{drawn}</div>')
