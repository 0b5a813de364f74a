"""``bayesmtfs compare``: several methods on one table, cross-validated with the same folds."""

from pathlib import Path
from typing import Annotated, Any

import typer

from bayesmtfs.commands.console import Debug, Force, Json, Quiet, Seed, Speaker, check_free
from bayesmtfs.commands.fitting import Data, Target, Targets, Task

DEFAULT_METHODS = "l12,l1inf,jeffreys,matrix_variate"


def compare(
    data: Data,
    target: Target = None,
    targets: Targets = None,
    task: Task = None,
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
    """Fit several methods, judge them on rows they have not seen, and print one table."""
    import bayesmtfs
    from bayesmtfs import persistence
    from bayesmtfs.commands.methods import SHORT, make_estimator
    from bayesmtfs.commands.tables import looks_like_labels, observations

    speaker = Speaker(quiet, as_json)
    if out is not None:
        check_free(out, force)
    rows = observations(data, target, targets, task)
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
    speaker.say(str(table))
    speaker.answer({"methods": table.to_frame().to_dict(orient="records")})
