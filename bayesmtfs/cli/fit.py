"""``bayesmtfs fit`` and ``bayesmtfs compare``: a table in; out a folder with the fitted model, or a table of methods."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.table import Table

import bayesmtfs
from bayesmtfs.cli.console import (
    Force,
    Seed,
    Speaker,
    UsageError,
    as_text,
    check_free,
    method_table,
    new_folder,
    own_words,
)
from bayesmtfs.results.fit_result import DEFAULT_EFFECT_SIZE
from bayesmtfs.results.tables import INTERVAL

if TYPE_CHECKING:
    from bayesmtfs.cli.tables import TargetKind
    from bayesmtfs.reporting import Source
    from bayesmtfs.selection.comparison import Comparison

ROUNDS_PER_FEATURE, FEWEST_PASSES, MOST_PASSES = 400, 10, 200  # of the online route
ROUNDING = 1e-10  # below which a number is 0
FOLDS = 5  # on which a fit is measured
MOST_IN_HEADING = 3  # targets
MODEL = "model.bayesmtfs"  # name of the fitted estimator inside the folder

Data = Annotated[Path, typer.Argument(help="Table: CSV, TSV, Parquet, Arrow (.arrow, .feather) or NPZ.")]
Target = Annotated[str | None, typer.Option(help="Column with the target: one row per observation.")]
Targets = Annotated[str | None, typer.Option(help="Columns with targets, a,b,c: one task each over the same rows.")]
Task = Annotated[str | None, typer.Option(help="Column with the task; without it there is one task.")]
Drop = Annotated[str | None, typer.Option(help="Columns to leave out, a,b,c, such as a number of the row.")]
Categories = Annotated[
    str | None, typer.Option(help="Columns whose numbers are categories, a,b,c; texts are categories anyway.")
]
Separator = Annotated[str | None, typer.Option(help="Separator of a text file; found out where not said.")]
Decimal = Annotated[str | None, typer.Option(help="Decimal sign of a text file, . or ,; found out where not said.")]
Jobs = Annotated[int | None, typer.Option(help="Cores for folds or chains; -1 takes all.")]
Classify = Annotated[
    bool | None, typer.Option("--classify/--regress", help="Kind of target; found out where not said.")
]
FamilyName = Annotated[
    str | None,
    typer.Option(
        "--family",
        help="Family of the target: squared, student_t(4), huber, absolute, quantile(0.9), poisson, negative_binomial(1), "
        "logistic, hinge, multinomial or ordinal; found out where not said.",
    ),
]
Event = Annotated[
    str | None,
    typer.Option(help="Column that says whether the event happened (1) or the time is censored (0): survival times."),
]
Exposure = Annotated[
    str | None, typer.Option(help="Column with the time, area or number of people that counts come from.")
]
Impute = Annotated[
    str | None,
    typer.Option(
        help="Missing cells of features: task_mean fills them and adds indicators, model draws them in the posterior; an "
        "error where not said."
    ),
]
Standardize = Annotated[bool, typer.Option(help="Scale features and targets within tasks before the fit.")]
Baselines = Annotated[
    bool, typer.Option(help="Measure against each task's mean, all rows pooled, and each task alone, on held-out rows.")
]


def fit(
    speaker: Speaker,
    data: Data,
    target: Target = None,
    targets: Targets = None,
    task: Task = None,
    drop: Drop = None,
    categories: Categories = None,
    sep: Separator = None,
    decimal: Decimal = None,
    route: Annotated[str, typer.Option(help="map, em, posterior or online.")] = "map",
    prior: Annotated[
        str | None,
        typer.Option(
            help="mixed_norm, generalized_normal, jeffreys, matrix_variate, horseshoe or spike; by the route."
        ),
    ] = None,
    norm_q: Annotated[str, typer.Option(help="How tasks share a feature: a number of at least 1, inf or learn.")] = "2",
    penalty: Annotated[
        str, typer.Option(help="Penalty of the map and online routes: a number, cv (judged on rows not seen) or auto.")
    ] = "cv",
    rule: Annotated[
        str,
        typer.Option(help="Which penalty of the cross-validation: one_se selects fewer features, min predicts best."),
    ] = "one_se",
    classify: Classify = None,
    family: FamilyName = None,
    event: Event = None,
    exposure: Exposure = None,
    impute: Impute = None,
    standardize: Standardize = True,
    draws: Annotated[int, typer.Option(help="Draws per chain of the posterior route.")] = 1000,
    tune: Annotated[int | None, typer.Option(help="Steps before the draws; as many as draws where not said.")] = None,
    chains: Annotated[int, typer.Option(help="Chains of the posterior route.")] = 4,
    max_features: Annotated[
        int, typer.Option(help="Most features of the posterior route; others are screened.")
    ] = 1000,
    expected_features: Annotated[
        float | None, typer.Option(help="Features that the posterior route expects to matter; learned where not said.")
    ] = None,
    effect_size: Annotated[
        float, typer.Option(help="Least effect that counts, for posteriors without exact zeros.")
    ] = DEFAULT_EFFECT_SIZE,
    target_accept: Annotated[
        float, typer.Option(help="Accepted steps of the sampler nuts: nearer to 1 is slower and diverges less.")
    ] = 0.9,
    epochs: Annotated[int | None, typer.Option(help="Passes of the online route; by the table where not said.")] = None,
    jobs: Jobs = None,
    baselines: Baselines = True,
    out: Annotated[Path, typer.Option(help="Folder to write.")] = Path("bayesmtfs-fit"),
    seed: Seed = 0,
    force: Force = False,
) -> None:
    """Fit a table with a task column and write model, effects, plots and report."""
    # Loaded here, so that --help answers at once
    from bayesmtfs.cli.tables import TextForm, event_hint, kind_of_target, observations, within_tasks
    from bayesmtfs.reporting import Source

    check_free(out, force)
    _check_impute(impute, route)
    form = TextForm(sep, decimal)
    table = observations(data, target, targets, task, drop, categories, form, event, exposure, impute is not None)
    X, y, _ = table.rows
    if event is not None:
        kind, hints = survival_kind(route, classify, family), []
    else:
        kind, hints = within_tasks(kind_of_target(y, classify, family, exposure is not None), y, task), event_hint(X, y)
    _check_exposure(exposure, kind)
    _check_route(route, kind)
    counted = [f"Exposure: {exposure}; effects are those on counts per unit of it."] if exposure is not None else []
    notes = [*table.notes(), kind.note, *counted, *hints, *class_notes(y, kind.labels)]
    speaker.say(*notes)
    options = {
        "task_column": task,
        "standardize": standardize,
        **kind.options(standardize),
        "rule": _one_of("rule", rule, ("one_se", "min")),
        "n_jobs": jobs,
        "draws": draws,
        "tune": draws if tune is None else tune,
        "chains": chains,
        "max_features": max_features,
        "expected_features": expected_features,
        "effect_size": effect_size,
        "target_accept": target_accept,
        "average": True,
        "epochs": enough_passes(X, task) if epochs is None else epochs,
        "impute": impute,
    }
    model = make_estimator(kind.labels, route, prior, norm_q, penalty, seed, speaker.progress, **options)
    with speaker.working(f"Fitting {type(model).__name__} to {len(X)} rows ..."):
        model.fit(X, y, **({} if exposure is None else {"exposure": exposure}))
    errors, said = None, len(notes)
    if baselines and event is not None:
        notes.append("Errors on held-out rows are not measured for survival times.")
    elif baselines:
        options = {**kind.options(standardize), "exposure": exposure}
        with speaker.working("Measuring on held-out rows ..."):
            errors = _errors_of(model, X, y, options, standardize, notes)
    names = {"target": target or targets or "", "task": task or ""}
    source = Source(data.name, **names, notes=tuple(notes), command=speaker.command, errors=errors)
    with new_folder(out, force) as folder, speaker.working("Writing ..."):
        described = {"data": str(data), "target": target or targets, "task": task, "event": event}
        _write(model, folder, described, source)
    facts = _facts(model)
    speaker.say(own_words(model.result_.summary()))
    if whole_rows(model.result_):
        speaker.say(
            "\nThis fit keeps a feature in all tasks or in none, which it assumes; --route posterior says in which tasks."
        )
    if "norm_q" in facts:
        speaker.say(f"\nq, how the tasks share a feature: {q_in_words(facts)}")
    if errors is not None:
        speaker.say("", comparison_table(errors, FOLDS, brief=True))
    speaker.say(*(f"\n{note}" for note in notes[said:]))
    speaker.say(f"\nModel, effects, plots and report are in {out}")
    speaker.answer({"out": str(out), **facts, "notes": notes, "errors": source.as_dict()["errors"]})


def whole_rows(result: Any) -> bool:
    """Whether a point estimate has found nothing out about tasks: its features are in all of them by assumption."""
    one_by_one = result.settings.get("task_sparsity") or result.settings.get("norm_q") in (1, 1.0)
    kinds = set(result.sharing.kind.tolist()) - {"none"}
    return result.n_tasks > 1 and result.posterior is None and not one_by_one and kinds == {"all"}


def q_in_words(facts: dict[str, Any]) -> str:
    """The learned q with its interval, or what the folds have chosen."""
    low, high = facts.get("norm_q_interval", (None, None))
    if low is None:
        return f"{facts['norm_q']:.3g}, chosen on held-out rows among {', '.join(f'{q:g}' for q in SHAPES)}"
    return f"{facts['norm_q']:.3g}, {INTERVAL:.0%} interval {low:.3g} to {high:.3g}"


def class_notes(y: Any, labels: bool) -> list[str]:
    """How many rows every class has, and which of two is the positive one."""
    if not labels:
        return []
    columns = {"": y} if y.ndim == 1 else {f" of {name}": y[name] for name in y.columns}
    notes = []
    for of, column in columns.items():
        counts = column.dropna().value_counts().sort_index()
        listed = ", ".join(f"{label} {count} ({count / counts.sum():.0%})" for label, count in counts.items())
        positive = f"; a positive effect speaks for {counts.index[1]}" if len(counts) == 2 else ""
        notes.append(f"Classes{of}: {listed}{positive}.")
    return notes


def _errors_of(
    model: Any, X: Any, y: Any, options: dict[str, Any], standardize: bool, notes: list[str]
) -> "Comparison | None":
    """Held-out errors of a fit and of the references; a note where they cannot be measured."""
    from bayesmtfs.selection.reference import held_out_errors

    options = {name: value for name, value in options.items() if name != "loss"}
    try:
        found = held_out_errors(model, X, y, cv=FOLDS, standardize=standardize, **options)
        if not any(one.name.startswith("this fit") for one in found.fits):
            notes.append(
                "This posterior has no leave-one-out predictions; bayesmtfs compare --methods posterior fits it in every "
                "fold."
            )
        return found
    except ValueError as error:
        notes.append(own_words(f"Errors on held-out rows were not measured: {error}"))
        return None


def survival_kind(route: str, classify: bool | None, family: str | None) -> "TargetKind":
    """What ``--event`` makes of a target, or why it does not."""
    from bayesmtfs.cli.tables import TargetKind

    if route not in ("map", "posterior"):
        raise UsageError(f"--event does not go with --route {route}; survival times have the routes map and posterior")
    if classify is not None or family not in (None, "cox"):
        raise UsageError("--event makes the target survival times; leave --family, --classify and --regress out")
    return TargetKind(False, "cox", "Target: survival times, --family cox.")


def _check_exposure(exposure: str | None, kind: "TargetKind") -> None:
    from bayesmtfs.families import find_family

    if exposure is not None and (kind.family is None or find_family(kind.family).targets != "counts"):
        raise UsageError("--exposure is for counts; pass --family poisson or 'negative_binomial(1)', or leave it out")


def _check_route(route: str, kind: "TargetKind") -> None:
    """Refuse several classes within tasks on the routes that do not have them."""
    from bayesmtfs.families import find_family

    family = None if kind.family is None else find_family(kind.family)
    unordered = family is not None and family.targets == "labels" and family.coupled and not family.has_cuts
    if unordered and route not in ("map", "posterior"):
        raise UsageError(
            f"--route {route} does not go with several classes within tasks; use --route map or posterior, leave --task "
            "out (one model for all rows), or make a target of two classes"
        )


def _check_impute(impute: str | None, route: str) -> None:
    if impute == "model" and route != "posterior":
        raise UsageError("--impute model draws cells in a posterior; add --route posterior, or pass --impute task_mean")
    if impute not in (None, "task_mean", "model"):
        raise UsageError(f"--impute is {impute!r}; pass task_mean, or model with --route posterior, or leave it out")
    if impute is not None and route == "online":
        raise UsageError("--impute does not go with --route online; fill the cells in first")


def enough_passes(X: Any, task: str | None) -> int:
    """Passes over a table that give a task of average size enough rounds for every feature, within bounds."""
    n_rounds = len(X) if task is None else len(X) / max(X[task].nunique(), 1)
    return int(np.clip(ROUNDS_PER_FEATURE * X.shape[1] / max(n_rounds, 1), FEWEST_PASSES, MOST_PASSES))


def saved_fit(path: Path) -> Path:
    """File of the fit that a user names by its folder or by the file itself."""
    file = path / MODEL if path.is_dir() else path
    if not file.is_file():
        wanted = f"the folder {path} holds no {MODEL}" if path.is_dir() else f"{path} does not exist"
        raise FileNotFoundError(f"{wanted}; pass a folder that `bayesmtfs fit` wrote, or a file of `save`")
    return file


def _write(model: Any, folder: Path, origin: dict[str, Any], source: "Source") -> None:
    from matplotlib.figure import Figure

    from bayesmtfs import plots
    from bayesmtfs.reporting import report

    model.save(folder / MODEL)
    model.result_.to_frame().to_csv(folder / "effects.csv", index=False)
    model.result_.to_frame(form="features").to_csv(folder / "features.csv", index=False)
    report(model, folder / "report.html", f"{_named_target(source.target)}: which features, in which tasks", source)
    figure = Figure(figsize=(7, 6), layout="constrained")
    plots.effects(model, ax=figure.add_subplot())
    figure.savefig(folder / "effects.png", dpi=150)
    facts = {**origin, **_facts(model), "settings": model.result_.settings, "versions": model.result_.versions}
    facts["source"] = source.as_dict()
    (folder / "summary.json").write_text(as_text(facts), encoding="utf-8")


def _named_target(target: str) -> str:
    """The target, or several, for a heading."""
    names = [name.strip() for name in target.split(",")]
    return target if len(names) == 1 else ", ".join(names) if len(names) <= MOST_IN_HEADING else f"{len(names)} targets"


def _facts(model: Any) -> dict[str, Any]:
    result = model.result_
    fixed = isinstance(getattr(model, "norm_q", 2), int | float)
    names = () if fixed else ("norm_q", "norm_q_interval")
    learned = {name: getattr(model, f"{name}_") for name in names if hasattr(model, f"{name}_")}
    if result.convergence.rows_seen is not None:
        learned |= {
            "rows_seen": result.convergence.rows_seen,
            "progressive_error": result.convergence.progressive_error,
        }
    return {
        "method": result.method,
        "n_tasks": result.n_tasks,
        "n_features": result.n_features,
        "selected": result.feature_names[result.selected].tolist(),
        **{name: result.settings[name] for name in ("positive_class",) if name in result.settings},
        "converged": result.convergence.converged,
        "verdict": result.convergence.verdict(),
        **learned,
    }


def compare(
    speaker: Speaker,
    data: Data,
    target: Target = None,
    targets: Targets = None,
    task: Task = None,
    drop: Drop = None,
    categories: Categories = None,
    sep: Separator = None,
    decimal: Decimal = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Methods, a,b,c: l11, l12, l1inf, shared_mean, generalized_normal, jeffreys, matrix_variate, "
            "posterior, horseshoe; where not said, all but l11, generalized_normal and posteriors."
        ),
    ] = None,
    folds: Annotated[int, typer.Option(help="Folds of the cross-validation.")] = 5,
    classify: Classify = None,
    family: FamilyName = None,
    exposure: Exposure = None,
    impute: Impute = None,
    standardize: Standardize = True,
    baselines: Baselines = True,
    jobs: Jobs = None,
    out: Annotated[Path | None, typer.Option(help="CSV file for the table.")] = None,
    seed: Seed = 0,
    force: Force = False,
) -> None:
    """Fit several methods, measure them on rows they have not seen, and print one table."""
    from bayesmtfs.cli.tables import TextForm, kind_of_target, observations, within_tasks, write_csv

    if out is not None:
        check_free(out, force)
    listed = USUAL if methods is None else [name.strip() for name in methods.split(",") if name.strip()]
    names = [_one_of("methods", name, tuple(SHORT)) for name in listed]
    _check_impute(impute, "")
    form = TextForm(sep, decimal)
    table = observations(data, target, targets, task, drop, categories, form, None, exposure, impute is not None)
    X, y, _ = table.rows
    kind = within_tasks(kind_of_target(y, classify, family, exposure is not None), y, task)
    _check_exposure(exposure, kind)
    for name in names if methods is not None else ():
        _check_route(SHORT[name]["route"], kind)
    more: dict[str, Any] = {
        "task_column": task,
        "standardize": standardize,
        **kind.options(standardize),
        "n_jobs": jobs,
        "impute": impute,
    }
    models = {name: make_estimator(kind.labels, **SHORT[name], seed=seed, progress=False, **more) for name in names}
    left_out = [] if methods is not None else _refused(models, X, y, exposure)
    models = {name: model for name, model in models.items() if name not in left_out}
    notes = [*table.notes(), kind.note, *class_notes(y, kind.labels)]
    if left_out:
        notes.append(f"Left out, since they do not take such a target: {', '.join(left_out)}.")
    speaker.say(*notes)
    if baselines:
        from bayesmtfs.selection.reference import reference_fits

        models |= reference_fits(kind.labels, wide=targets is not None, **more)
    with speaker.working(f"Comparing {len(models)} methods on {folds} folds ..."):
        found = bayesmtfs.compare(
            models, X, y, cv=folds, exposure=exposure, random_state=seed, progress=speaker.progress
        )
    if out is not None:
        write_csv(found.to_frame(), out)
    speaker.say(comparison_table(found, folds))
    speaker.answer({"methods": found.to_frame().to_dict(orient="records"), "notes": notes})


def _refused(models: dict[str, Any], X: Any, y: Any, exposure: str | None) -> list[str]:
    """Names of the models that refuse the family of the target, unless all do."""
    refused = []
    for name, model in models.items():
        try:
            model.training_data(X, y, None, None, exposure)
        except ValueError:
            refused.append(name)
    return refused if len(refused) < len(models) else []


def comparison_table(comparison: "Comparison", folds: int, brief: bool = False) -> Table:
    """The methods for a terminal, best first, with standard errors; briefly: without what is of fits to all rows."""
    fits = comparison.fits
    columns: dict[str, list[str]] = {
        comparison.error_name: [_with_error(fit.error, fit.error_se) for fit in fits],
        "R2": [_with_error(fit.r2, math.nan) for fit in fits],
        "AUC": [_with_error(fit.auc, math.nan) for fit in fits],
        "deviance": [_with_error(fit.deviance, math.nan) for fit in fits],
    }
    if not brief:
        columns["above the best"] = [
            _with_error(fit.difference, fit.difference_se) if fit.difference else "" for fit in fits
        ]
        columns["features"] = [str(fit.n_selected) for fit in fits]
        columns["seconds"] = [_with_error(fit.seconds, math.nan) for fit in fits]
        columns["elpd"] = [_with_error(fit.elpd, fit.elpd_se) for fit in fits]
    columns = {heading: cells for heading, cells in columns.items() if any(cells)}
    rows = [(fit.name, *cells) for fit, *cells in zip(fits, *columns.values(), strict=True)]
    measures = {"R2": "R2: share of the squares about task means", "AUC": "AUC: within tasks"}
    said = [
        f"Means over {folds} folds +- standard error",
        *(text for name, text in measures.items() if name in columns),
    ]
    if not brief:
        said.append("features and seconds are those of a fit to all rows")
    return method_table(list(columns), rows, caption=f"{'; '.join(said)}.", title="On rows not used for the fit")


def _with_error(value: float, error: float) -> str:
    if math.isnan(value):
        return ""
    value = 0.0 if abs(value) < ROUNDING else value
    return f"{value:.3g}" if math.isnan(error) else f"{value:.3g} +- {float(f'{error:.1g}'):g}"


# ---------------------------------------------------------------------- from the words of the command line to an estimator


ROUTES = ("map", "em", "posterior", "online")
PRIORS = ("auto", "spike", "mixed_norm", "generalized_normal", "jeffreys", "matrix_variate", "horseshoe")
DEFAULT_PRIORS = {"map": "mixed_norm", "em": "jeffreys", "posterior": "auto", "online": "mixed_norm"}
CLASSES = {
    ("map", "mixed_norm"): "MixedNorm",
    ("map", "generalized_normal"): "GeneralizedNormal",
    ("em", "generalized_normal"): "GeneralizedNormal",
    ("em", "jeffreys"): "Jeffreys",
    ("em", "matrix_variate"): "MatrixVariate",
    ("online", "mixed_norm"): "OnlineMixedNorm",
    **{("posterior", prior): "Bayesian" for prior in PRIORS},
}
SHAPES = (1, 1.5, 2, 4, np.inf)  # q that the cross-validation chooses from
# Short names for `compare`, and those that it takes where none are said
USUAL = ("l12", "l1inf", "shared_mean", "jeffreys", "matrix_variate")
SHORT: dict[str, dict[str, Any]] = {
    "l12": {"route": "map", "norm_q": "2"},
    "l11": {"route": "map", "norm_q": "1"},
    "l1inf": {"route": "map", "norm_q": "inf"},
    "shared_mean": {"route": "map", "norm_q": "2", "shared_mean": True},
    "generalized_normal": {"route": "em", "prior": "generalized_normal"},
    "jeffreys": {"route": "em", "prior": "jeffreys"},
    "matrix_variate": {"route": "em", "prior": "matrix_variate"},
    "posterior": {"route": "posterior"},
    "horseshoe": {"route": "posterior", "prior": "horseshoe"},
}


def _one_of(option: str, text: str, known: tuple[str, ...]) -> str:
    """A word that the user wrote, if it is one of those known."""
    if text not in known:
        raise UsageError(f"--{option} is {text!r}; choose one of {', '.join(known)}")
    return text


def _number_or(words: dict[str, Any], option: str, text: str, least: float, wanted: str) -> Any:
    """A number that the user wrote, or what one of the words stands for."""
    try:
        if text in words:
            return words[text]
        if float(text) >= least:
            return float(text)
    except ValueError:
        pass
    raise UsageError(f"--{option} is {text!r}; pass {wanted}")


def make_estimator(
    classify: bool,
    route: str = "map",
    prior: str | None = None,
    norm_q: str = "2",
    penalty: str = "cv",
    seed: int = 0,
    progress: bool | None = None,
    **options: Any,
) -> Any:
    """The estimator that the options name; it takes those of ``options`` that it has as parameters."""
    prior = DEFAULT_PRIORS[_one_of("route", route, ROUTES)] if prior is None else prior
    if (route, prior) not in CLASSES:
        fitting = [p for r, p in CLASSES if r == route]
        raise UsageError(f"--prior {prior} does not go with --route {route}; choose one of {', '.join(fitting)}")
    q = _number_or({"learn": "learn"}, "norm-q", norm_q, 1, "a number of at least 1, inf or learn")
    strength = _number_or({"auto": None, "cv": "cv"}, "penalty", penalty, 0, "a number of at least 0, cv or auto")
    family, chosen = CLASSES[route, prior], {"norm_q": int(q) if q == 2 else q, "prior": prior}
    if family == "MixedNorm" and q == "learn":
        chosen["norm_q"], strength = list(SHAPES), "cv"
    if family == "MixedNorm" and strength == "cv":
        chosen["n_penalties"] = 50
        if options.get("loss") == "multinomial":  # whose rows share one loss: small penalties take minutes
            chosen |= {"n_penalties": 30, "penalty_ratio": 0.01}
    elif family in ("MixedNorm", "OnlineMixedNorm"):
        chosen["penalty_strength"] = "learn" if strength == "cv" else strength
    face = "Survival" if options.get("loss") == "cox" else "Classifier" if classify else "Regressor"
    suffix = f"{face}{'CV' if 'n_penalties' in chosen else ''}"
    model = getattr(bayesmtfs, f"{family}{suffix}")()
    known = {"random_state": seed, "progress": progress, **chosen, **options}
    return model.set_params(**{name: value for name, value in known.items() if name in model.get_params()})
