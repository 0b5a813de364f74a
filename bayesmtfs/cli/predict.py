"""``bayesmtfs predict``: new rows in; out a table of predictions, with intervals and probabilities where there are any."""

import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import bayesmtfs
from bayesmtfs.cli.console import Force, Speaker, UsageError, check_free
from bayesmtfs.cli.fit import Decimal, Separator, saved_fit
from bayesmtfs.families import find_family, is_known
from bayesmtfs.results.tables import INTERVAL

MOST_NAMED = 10  # columns in a message


def predict(
    speaker: Speaker,
    result: Annotated[Path, typer.Argument(help="Folder that `fit` wrote, or a saved model.")],
    data: Annotated[Path, typer.Argument(help="Table with the columns of the fit; a target may be there or not.")],
    out: Annotated[Path, typer.Option(help="CSV file to write.")] = Path("predictions.csv"),
    unknown_task: Annotated[
        str | None, typer.Option(help="Tasks that were not in the fit: error, or mean for the average task.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Column with the target, to measure the predictions; that of the fit if there.")
    ] = None,
    sep: Separator = None,
    decimal: Decimal = None,
    force: Force = False,
) -> None:
    """Predict new rows with a fitted model and write them as CSV, in the order of the table.

    Posteriors give the central 90% interval of a new target, classifiers the probability of every class.
    """
    import pandas as pd

    from bayesmtfs.cli.tables import TextForm, dates_as_dates, read_table, write_csv

    check_free(out, force)
    model = bayesmtfs.load(saved_fit(result))
    if not hasattr(model, "predict"):
        raise ValueError(f"{result} holds a {type(model).__name__}, which cannot predict; pass a saved estimator")
    if unknown_task is not None:
        model.set_params(unknown_task=unknown_task)
    frame = dates_as_dates(read_table(data, TextForm(sep, decimal)))
    wanted = list(getattr(model, "feature_names_in_", frame.columns))
    missing = [name for name in wanted if name not in frame.columns]
    if missing:
        listed = ", ".join(map(repr, missing[:MOST_NAMED])) + (" ..." if len(missing) > MOST_NAMED else "")
        raise ValueError(f"{data} lacks columns that the model was fitted on: {listed}; add them")
    targets, event = _target(result, frame, target), _event(result, frame)
    with speaker.working("Predicting ..."):
        columns = predicted_columns(model, frame[wanted])
    task_column = getattr(model, "task_column", None)
    own = {} if task_column is None else {str(task_column): frame[task_column].to_numpy()}
    table = pd.DataFrame({"row": np.arange(1, len(frame) + 1), **own, **columns})
    write_csv(table, out)
    speaker.say(f"{len(table)} predictions are in {out}")
    score = _score(model, frame, wanted, targets, event)
    about = {
        "R2": f" (share of the squares about {'the mean of all rows' if len(targets) < 2 else 'the means of targets'})"
    }
    speaker.say(*(f"{words}: {value:.4g}{about.get(words, '')}" for words, value in score.items()))
    speaker.answer({"out": str(out), "n_rows": len(table), **score})


def predicted_columns(model: Any, rows: Any) -> dict[str, Any]:
    """Columns of a table of predictions: one of each kind, or one for each task of the wide form."""
    kinds = {"prediction": model.predict(rows)}
    is_classifier = hasattr(model, "classes_")
    is_survival = hasattr(model, "event_times_")
    if not is_classifier and not is_survival and hasattr(model, "posterior_"):
        _, kinds["lower"], kinds["upper"] = model.predict(rows, interval=INTERVAL)
    if is_classifier and hasattr(model, "predict_proba"):
        kinds |= _probabilities(model, rows)
    columns: dict[str, Any] = {}
    for kind, values in kinds.items():
        wide = np.ndim(values) == 2
        columns |= {f"{kind}_{task}": values[:, t] for t, task in enumerate(model.tasks_)} if wide else {kind: values}
    return columns


def _probabilities(model: Any, rows: Any) -> dict[str, Any]:
    """Probability of every class; in the wide form, of the second one in every task."""
    found = model.predict_proba(rows)
    if np.ndim(model.predict(rows[:1])) == 2:
        return {f"probability_{model.classes_[1]}": found}
    return {f"probability_{label}": found[:, k] for k, label in enumerate(model.classes_)}


def _target(result: Path, frame: Any, target: str | None) -> list[str]:
    """Columns with targets: as told, or those of the fit if the table has them; none where there is none."""
    if target is not None and target not in frame.columns:
        columns = ", ".join(map(str, frame.columns))
        raise UsageError(f"--target is {target!r}, which the table has not; its columns are {columns}")
    if target is not None:
        return [target]
    summary = result / "summary.json"
    known = json.loads(summary.read_text(encoding="utf-8")) if summary.is_file() else {}
    named = known.get("target") or ""
    wanted = [named] if named in frame.columns else [name.strip() for name in named.split(",")]
    return wanted if all(name in frame.columns for name in wanted) else []


def _event(result: Path, frame: Any) -> str | None:
    """Column with the events of the fit, if the table has it."""
    summary = result / "summary.json"
    event = json.loads(summary.read_text(encoding="utf-8")).get("event") if summary.is_file() else None
    return event if event in frame.columns else None


def _score(model: Any, frame: Any, wanted: list[Any], target: list[str], event: str | None = None) -> dict[str, float]:
    """What ``score`` says of the rows that have a target, or several; of several its mean over them."""
    if not target:
        return {}
    if hasattr(model, "event_times_"):
        if event is None:
            return {}
        known = frame[frame[target[0]].notna() & frame[event].notna()]
        y = known[[event, target[0]]].set_axis(["event", "time"], axis=1)
        return {"concordance": float(model.score(known[wanted], y))} if len(known) else {}
    known = frame[frame[target].notna().any(axis=1)]
    if known.empty:
        return {}
    by_deviance = is_known(model.loss) and find_family(model.loss).scores_deviance
    words = "share of the deviance explained" if by_deviance else "R2"
    words = "share of right labels" if hasattr(model, "classes_") else words
    y = known[target] if len(target) > 1 else known[target[0]]
    found = {words: float(model.score(known[wanted], y))}
    if words == "R2" and len(target) == 1:
        found["RMSE"] = float(np.sqrt(np.mean((known[target[0]].to_numpy() - model.predict(known[wanted])) ** 2)))
    return found
