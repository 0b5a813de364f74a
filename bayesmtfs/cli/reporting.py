"""``bayesmtfs report``: saved fits in, one HTML page out."""

from pathlib import Path
from typing import Annotated

import typer

from bayesmtfs.cli.console import Debug, Force, Json, Quiet, Speaker, check_free
from bayesmtfs.cli.fitting import saved_fit


def report(
    results: Annotated[list[Path], typer.Argument(help="Folders that `fit` wrote, or saved models or results.")],
    out: Annotated[Path, typer.Option(help="HTML file to write.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="Heading of the page.")] = "Multi-task feature selection",
    force: Force = False,
    quiet: Quiet = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write one self-contained page about one or several fits."""
    import bayesmtfs
    from bayesmtfs import reporting

    speaker = Speaker(quiet, as_json)
    check_free(out, force)
    fits = [bayesmtfs.load(saved_fit(path)) for path in results]
    with speaker.working("Drawing ..."):
        reporting.report(fits if len(fits) > 1 else fits[0], out, title)
    speaker.say(f"The report is in {out}")
    speaker.answer({"out": str(out), "n_fits": len(fits)})
