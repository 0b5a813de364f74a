"""``bayesmtfs fit`` and ``bayesmtfs compare``: a table in; out a folder with the fitted model, or a table of methods."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.table import Table

import bayesmtfs
from bayesmtfs.cli.console import Force, Seed, Speaker, as_text, check_free, method_table, new_folder

if TYPE_CHECKING:
    from bayesmtfs.selection.comparison import Comparison

MODEL = "model.bayesmtfs"  # name of the fitted estimator inside the folder

Data = Annotated[Path, typer.Argument(help="Table: CSV, Parquet, Arrow (.arrow, .feather) or NPZ.")]
Target = Annotated[str | None, typer.Option(help="Column with the target: one row per observation.")]
Targets = Annotated[str | None, typer.Option(help="Columns with targets, a,b,c: one task each over the same rows.")]
Task = Annotated[str | None, typer.Option(help="Column with the task; without it there is one task.")]
Drop = Annotated[str | None, typer.Option(help="Columns to leave out, a,b,c, such as a number of the row.")]
Categories = Annotated[
    str | None, typer.Option(help="Columns whose numbers are categories, a,b,c; texts are categories anyway.")
]
Classify = Annotated[
    bool | None, typer.Option("--classify/--regress", help="Kind of target; found out where not said.")
]
Standardize = Annotated[bool, typer.Option(help="Scale features within tasks before the fit.")]


def fit(
    speaker: Speaker,
    data: Data,
    target: Target = None,
    targets: Targets = None,
    task: Task = None,
    drop: Drop = None,
    categories: Categories = None,
    route: Annotated[str, typer.Option(help="map, em, posterior or online.")] = "map",
    prior: Annotated[
        str | None,
        typer.Option(help="mixed_norm, generalized_normal, jeffreys, matrix_variate or horseshoe; by the route."),
    ] = None,
    norm_q: Annotated[str, typer.Option(help="How tasks share a feature: a number of at least 1, inf or learn.")] = "2",
    penalty: Annotated[str, typer.Option(help="Penalty of the map route: a number, cv, or auto.")] = "cv",
    classify: Classify = None,
    standardize: Standardize = True,
    draws: Annotated[int, typer.Option(help="Draws per chain of the posterior route.")] = 1000,
    out: Annotated[Path, typer.Option(help="Folder to write.")] = Path("bayesmtfs-fit"),
    seed: Seed = 0,
    force: Force = False,
) -> None:
    """Fit a table with a task column and write model, coefficients, plots and report."""
    # Loaded here, so that --help answers at once
    from bayesmtfs.cli.tables import looks_like_labels, observations

    check_free(out, force)
    rows = observations(data, target, targets, task, drop, categories)
    speaker.say(*rows.notes())
    more: dict[str, Any] = {"task_column": rows.task_column}
    if route != "online":
        more["standardize"] = standardize
    if route == "posterior":
        more |= {"draws": draws, "tune": draws}
    labels = looks_like_labels(rows.y) if classify is None else classify
    model = make_estimator(labels, route, prior, norm_q, penalty, seed, speaker.progress, **more)
    with speaker.working(f"Fitting {type(model).__name__} to {len(rows.X)} rows ..."):
        model.fit(rows.X, rows.y)
    with new_folder(out, force) as folder, speaker.working("Writing ..."):
        _write(model, folder, {"data": str(data), "target": target or targets, "task": task})
    facts = _facts(model)
    speaker.say(model.result_.summary())
    if "norm_q" in facts:
        low, high = facts["norm_q_interval"]
        speaker.say(f"\nq, how the tasks share a feature: {facts['norm_q']:.3g}, 90% interval {low:.3g} to {high:.3g}")
    speaker.say(f"\nModel, coefficients, plots and report are in {out}")
    speaker.answer({"out": str(out), **facts, "notes": rows.notes()})


def saved_fit(path: Path) -> Path:
    """File of the fit that a user names by its folder or by the file itself."""
    file = path / MODEL if path.is_dir() else path
    if not file.is_file():
        wanted = f"the folder {path} holds no {MODEL}" if path.is_dir() else f"{path} does not exist"
        raise FileNotFoundError(f"{wanted}; pass a folder that `bayesmtfs fit` wrote, or a file of `save`")
    return file


def _write(model: Any, folder: Path, source: dict[str, Any]) -> None:
    from matplotlib.figure import Figure

    from bayesmtfs import plots
    from bayesmtfs.reporting import report

    model.save(folder / MODEL)
    model.result_.to_frame().to_csv(folder / "coefficients.csv", index=False)
    report(model, folder / "report.html")
    figure = Figure(figsize=(7, 6), layout="constrained")
    plots.coefficient_heatmap(model, ax=figure.add_subplot())
    figure.savefig(folder / "coefficients.png", dpi=150)
    facts = {**source, **_facts(model), "settings": model.result_.settings, "versions": model.result_.versions}
    (folder / "summary.json").write_text(as_text(facts), encoding="utf-8")


def _facts(model: Any) -> dict[str, Any]:
    result = model.result_
    learned = {}
    if getattr(model, "norm_q", None) == "learn" and hasattr(model, "norm_q_interval_"):
        learned = {"norm_q": model.norm_q_, "norm_q_interval": model.norm_q_interval_}
    return {
        "method": result.method,
        "n_tasks": result.n_tasks,
        "n_features": result.n_features,
        "selected": result.feature_names[result.selected].tolist(),
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
    methods: Annotated[
        str,
        typer.Option(
            help="Methods, a,b,c: l11, l12, l1inf, shared_mean, generalized_normal, jeffreys, matrix_variate, "
            "posterior, horseshoe."
        ),
    ] = "l12,l1inf,shared_mean,jeffreys,matrix_variate",
    folds: Annotated[int, typer.Option(help="Folds of the cross-validation.")] = 5,
    classify: Classify = None,
    standardize: Standardize = True,
    out: Annotated[Path | None, typer.Option(help="CSV file for the table.")] = None,
    seed: Seed = 0,
    force: Force = False,
) -> None:
    """Fit several methods, measure them on rows they have not seen, and print one table."""
    from bayesmtfs.cli.tables import looks_like_labels, observations, write_csv

    if out is not None:
        check_free(out, force)
    rows = observations(data, target, targets, task, drop, categories)
    speaker.say(*rows.notes())
    names = [name.strip() for name in methods.split(",") if name.strip()]
    for name in names:
        if name not in SHORT:
            raise ValueError(f"--methods has {name!r}; known are {', '.join(SHORT)}")
    labels = looks_like_labels(rows.y) if classify is None else classify
    more: dict[str, Any] = {"task_column": rows.task_column, "standardize": standardize}
    models = {name: make_estimator(labels, **SHORT[name], seed=seed, progress=False, **more) for name in names}
    with speaker.working(f"Comparing {len(models)} methods on {folds} folds ..."):
        table = bayesmtfs.compare(models, rows.X, rows.y, cv=folds, random_state=seed, progress=speaker.progress)
    if out is not None:
        write_csv(table.to_frame(), out)
    speaker.say(comparison_table(table, folds))
    speaker.answer({"methods": table.to_frame().to_dict(orient="records"), "notes": rows.notes()})


def comparison_table(comparison: "Comparison", folds: int) -> Table:
    """The methods for a terminal, best first; the numbers with their standard errors."""
    rows = [
        (
            fit.name,
            _with_error(fit.error, fit.error_se),
            _with_error(fit.difference, fit.difference_se) if fit.difference else "",
            _with_error(fit.log_score, fit.log_score_se),
            str(fit.n_selected),
            f"{fit.seconds:.1f}",
            _with_error(fit.elpd, fit.elpd_se),
        )
        for fit in comparison.fits
    ]
    headings = [comparison.error_name, "above the best", "log score", "features", "seconds", "elpd"]
    shown = None if any(row[-1] for row in rows) else -1
    return method_table(
        headings[:shown],
        [row[:shown] for row in rows],
        caption=f"Means over {folds} folds +- standard error; log score: larger is better. Features and seconds are "
        "those of a fit to all rows.",
    )


def _with_error(value: float, error: float) -> str:
    if math.isnan(value):
        return ""
    return f"{value:.4g}" if math.isnan(error) else f"{value:.4g} +- {error:.2g}"


# ---------------------------------------------------------------------- from the words of the command line to an estimator


ROUTES = ("map", "em", "posterior", "online")
PRIORS = ("mixed_norm", "generalized_normal", "jeffreys", "matrix_variate", "horseshoe")
DEFAULT_PRIORS = {"map": "mixed_norm", "em": "jeffreys", "posterior": "generalized_normal", "online": "mixed_norm"}
CLASSES = {
    ("map", "mixed_norm"): "MixedNorm",
    ("map", "generalized_normal"): "GeneralizedNormal",
    ("em", "generalized_normal"): "GeneralizedNormal",
    ("em", "jeffreys"): "Jeffreys",
    ("em", "matrix_variate"): "MatrixVariate",
    ("online", "mixed_norm"): "OnlineMixedNorm",
    **{("posterior", prior): "Bayesian" for prior in PRIORS},
}
# Short names for `compare`
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


def _number_or(words: dict[str, Any], option: str, text: str, wanted: str) -> Any:
    """A number that the user wrote, or what one of the words stands for."""
    try:
        return words[text] if text in words else float(text)
    except ValueError:
        raise ValueError(f"--{option} is {text!r}; pass {wanted}") from None


def make_estimator(
    classify: bool,
    route: str = "map",
    prior: str | None = None,
    norm_q: str = "2",
    penalty: str = "cv",
    seed: int = 0,
    progress: bool | None = None,
    **parameters: Any,
) -> Any:
    """The estimator that the options name; ``parameters`` go to it as they are."""
    if route not in ROUTES:
        raise ValueError(f"--route is {route!r}; choose one of {', '.join(ROUTES)}")
    prior = DEFAULT_PRIORS[route] if prior is None else prior
    if (route, prior) not in CLASSES:
        fitting = [p for r, p in CLASSES if r == route]
        raise ValueError(f"--prior {prior} does not go with --route {route}; choose one of {', '.join(fitting)}")
    family = CLASSES[route, prior]
    q = _number_or({"learn": "learn"}, "norm-q", norm_q, "a number of at least 1, 'inf' or 'learn'")
    parameters = {"norm_q": int(q) if q == 2 else q, "progress": progress, **parameters}
    suffix = "Classifier" if classify else "Regressor"
    if family == "MixedNorm":
        if q == "learn":
            parameters["norm_q"] = [1, 1.5, 2, 4, np.inf]
        if penalty == "cv" or q == "learn":
            return getattr(bayesmtfs, f"MixedNorm{suffix}CV")(**{"random_state": seed, "n_penalties": 50, **parameters})
        strength = _number_or({"auto": None}, "penalty", penalty, "a number, 'cv' or 'auto'")
        return getattr(bayesmtfs, f"MixedNorm{suffix}")(penalty_strength=strength, **parameters)
    if family in ("Bayesian", "OnlineMixedNorm", "Jeffreys", "MatrixVariate"):
        parameters["random_state"] = seed
    if family == "Bayesian":
        parameters["prior"] = prior
    return getattr(bayesmtfs, f"{family}{suffix}")(**parameters)
