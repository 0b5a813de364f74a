"""``bayesmtfs predict``: a fitted model and new rows in, predictions out."""

from pathlib import Path
from typing import Annotated

import typer

from bayesmtfs.cli.console import Debug, Force, Json, Quiet, Speaker, check_free
from bayesmtfs.cli.fitting import saved_fit


def predict(
    result: Annotated[Path, typer.Argument(help="Folder that `fit` wrote, or a saved model.")],
    data: Annotated[Path, typer.Argument(help="Table with the columns of the fit; a target may be there or not.")],
    out: Annotated[Path, typer.Option(help="CSV file to write.")] = Path("predictions.csv"),
    unknown_task: Annotated[
        str | None, typer.Option(help="Tasks that were not in the fit: error, or mean for the average task.")
    ] = None,
    force: Force = False,
    quiet: Quiet = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Predict new rows with a fitted model and write them as CSV, in the order of the table."""
    import pandas as pd

    import bayesmtfs
    from bayesmtfs.cli.tables import read_table
    from bayesmtfs.results import persistence

    speaker = Speaker(quiet, as_json)
    check_free(out, force)
    model = bayesmtfs.load(saved_fit(result))
    if not hasattr(model, "predict"):
        raise ValueError(f"{result} holds a {type(model).__name__}, which cannot predict; pass a saved estimator")
    if unknown_task is not None:
        model.set_params(unknown_task=unknown_task)
    frame = read_table(data)
    wanted = list(getattr(model, "feature_names_in_", frame.columns))
    missing = [name for name in wanted if name not in frame.columns]
    if missing:
        raise ValueError(f"{data} lacks the columns {missing[:10]} that the model was fitted on; add them")
    with speaker.working("Predicting ..."):
        predicted = model.predict(frame[wanted])
    columns = {"prediction": predicted} if predicted.ndim == 1 else {
        f"prediction_{name}": predicted[:, i] for i, name in enumerate(model.tasks_.tolist())
    }  # fmt: skip
    task_column = getattr(model, "task_column", None)
    table = pd.DataFrame(columns if task_column is None else {str(task_column): frame[task_column], **columns})
    with persistence.replacing(out) as stream:
        stream.write(table.to_csv(index=False).encode("utf-8"))
    speaker.say(f"{len(table)} predictions are in {out}")
    speaker.answer({"out": str(out), "n_rows": len(table)})
