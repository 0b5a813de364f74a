"""``bayesmtfs compare``: several methods on one table, cross-validated with the same folds."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

import bayesmtfs
from bayesmtfs.cli.console import Debug, Force, Json, Quiet, Seed, Speaker, check_free
from bayesmtfs.cli.fit import SHORT, Categories, Data, Drop, Target, Targets, Task, make_estimator

if TYPE_CHECKING:
    from bayesmtfs.selection.comparison import Comparison

DEFAULT_METHODS = "l12,l1inf,jeffreys,matrix_variate"


def compare(
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
    ] = DEFAULT_METHODS,
    folds: Annotated[int, typer.Option(help="Folds of the cross-validation.")] = 5,
    classify: Annotated[
        bool | None, typer.Option("--classify/--regress", help="Kind of target; found out where not said.")
    ] = None,
    standardize: Annotated[bool, typer.Option(help="Scale features within tasks before the fit.")] = True,
    out: Annotated[Path | None, typer.Option(help="CSV file for the table.")] = None,
    seed: Seed = 0,
    force: Force = False,
    quiet: Quiet = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Fit several methods, measure them on rows they have not seen, and print one table."""
    from bayesmtfs.cli.tables import looks_like_labels, observations
    from bayesmtfs.results import persistence

    speaker = Speaker(quiet, as_json)
    if out is not None:
        check_free(out, force)
    rows = observations(data, target, targets, task, drop, categories)
    speaker.say(*rows.notes())
    names = [name.strip() for name in methods.split(",") if name.strip()]
    for name in names:
        if name not in SHORT:
            raise ValueError(f"--methods has {name!r}; known are {', '.join(SHORT)}")
    labels = looks_like_labels(rows.y) if classify is None else classify
    more: dict[str, Any] = {
        "task_column": rows.task_column,
        "standardize": standardize,
        "seed": seed,
        "progress": False,
    }
    models = {name: make_estimator(labels, **SHORT[name], **more) for name in names}
    with speaker.working(f"Comparing {len(models)} methods on {folds} folds ..."):
        table = bayesmtfs.compare(models, rows.X, rows.y, cv=folds, random_state=seed, progress=speaker.progress)
    if out is not None:
        with persistence.replacing(out) as stream:
            stream.write(table.to_frame().to_csv(index=False).encode("utf-8"))
    speaker.say(comparison_table(table, folds))
    speaker.answer({"methods": table.to_frame().to_dict(orient="records"), "notes": rows.notes()})


def comparison_table(comparison: "Comparison", folds: int) -> Table:
    """The methods for a terminal, best first; the numbers with their standard errors."""
    table = Table(
        caption=f"Means over {folds} folds +- standard error; log score: larger is better. Features and seconds are "
        "those of a fit to all rows."
    )
    table.add_column("method")
    has_elpd = any(not math.isnan(fit.elpd) for fit in comparison.fits)
    for heading in (comparison.error_name, "above the best", "log score", "features", "seconds"):
        table.add_column(heading, justify="right")
    if has_elpd:
        table.add_column("elpd", justify="right")
    for fit in comparison.fits:
        table.add_row(
            fit.name,
            _with_error(fit.error, fit.error_se),
            _with_error(fit.difference, fit.difference_se) if fit.difference else "",
            _with_error(fit.log_score, fit.log_score_se),
            str(fit.n_selected),
            f"{fit.seconds:.1f}",
            *([_with_error(fit.elpd, fit.elpd_se)] if has_elpd else []),
        )
    return table


def _with_error(value: float, error: float) -> str:
    if math.isnan(value):
        return ""
    return f"{value:.4g}" if math.isnan(error) else f"{value:.4g} +- {error:.2g}"
