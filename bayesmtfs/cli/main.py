"""The command line: ``bayesmtfs --help`` lists the commands.

The small commands are here; what needs more is in a file of its own. Everything heavy is imported inside of a command, so
that ``--help`` answers at once and PyMC is loaded only where there is a posterior.
"""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

import bayesmtfs
from bayesmtfs.cli.console import Force, Seed, Speaker, check_free, method_table, run
from bayesmtfs.cli.fit import compare, fit, saved_fit
from bayesmtfs.cli.predict import predict


def report(
    speaker: Speaker,
    results: Annotated[list[Path], typer.Argument(help="Folders that `fit` wrote, or saved models or results.")],
    out: Annotated[Path, typer.Option(help="HTML file to write.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="Heading of the page.")] = "Multi-task feature selection",
    force: Force = False,
) -> None:
    """Write one self-contained page about one or several fits."""
    from bayesmtfs import reporting

    check_free(out, force)
    fits = [bayesmtfs.load(saved_fit(path)) for path in results]
    with speaker.working("Drawing ..."):
        named = reporting.named_fits(fits)
        sources = {name: source_of(path) for name, path in zip(named, results, strict=True)}
        reporting.report(named, out, title, sources)
    speaker.say(f"The report is in {out}")
    speaker.answer({"out": str(out), "n_fits": len(fits)})


def source_of(path: Path) -> Any:
    """What `fit` has written about the data of a fit; nothing where there is no such file."""
    from bayesmtfs.reporting import Source

    summary = path / "summary.json"
    known = json.loads(summary.read_text(encoding="utf-8")) if summary.is_file() else {}
    return Source.from_dict(known.get("source") or {})


def reproduce(
    speaker: Speaker,
    paper: Annotated[str, typer.Argument(help="zhang2010, obozinski2006, yang2010, han2013, murugesan2016, or all.")],
    quick: Annotated[bool, typer.Option("--quick", help="Few repeats: about a minute for a paper.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for tables and plots.")] = Path("bayesmtfs-reproduction"),
    seed: Seed = 0,
    force: Force = False,
) -> None:
    """Run the experiments of a paper, and show our figures beside the printed ones."""
    from bayesmtfs.papers import reproduction

    papers = list(reproduction.PAPERS) if paper == "all" else [paper]
    for name in papers:
        check_free(out / f"{name}.json", force)
    answers = {}
    for name in papers:
        with speaker.working(f"Reproducing {name} ..."):
            outcome = reproduction.reproduce(name, quick, seed, speaker.progress)
        out.mkdir(parents=True, exist_ok=True)
        outcome.write(out)
        speaker.say(*outcome.to_rich(), *(f"- {remark}" for remark in (*outcome.remarks, *outcome.skipped)))
        speaker.say(f"Written: {out / name}.json, .md, .png")
        answers[name] = json.loads(outcome.to_json())
        if outcome.interrupted:
            raise KeyboardInterrupt
    speaker.answer(answers)


def datasets(speaker: Speaker) -> None:
    """List the data sets of the papers, and whether their files are found."""
    from bayesmtfs.papers.dataset_files import available

    found = available()
    table = Table("data set", "file", "bytes", "status", "where")
    for item in found:
        table.add_row(*("" if part is None else str(part) for part in item))
    speaker.say(table)
    speaker.say(
        "Set BAYESMTFS_DATA to a folder that holds the files, or BAYESMTFS_DATA_URL to the address of a mirror; every "
        "file's SHA-256 is checked."
    )
    speaker.answer({"files": [item._asdict() for item in found]})


def demo(
    speaker: Speaker,
    seed: Seed = 0,
    out: Annotated[Path, typer.Option(help="Folder for plots and report.")] = Path("bayesmtfs-demo"),
) -> None:
    """Simulate ten related tasks, fit them by three routes and apart, and compare with the truth."""
    with speaker.working("Loading ..."):
        # Loaded here, so that --help answers at once
        from bayesmtfs.cli import demo as demonstration
    with speaker.working("Fitting ..."):
        found = demonstration.run(seed, speaker.say)
    with speaker.working("Drawing ..."):
        out.mkdir(parents=True, exist_ok=True)
        written = demonstration.write(found, out)
    n_relevant = int(found.truth.support.sum())
    table = method_table(
        ("found", "wrongly kept", "error of W", "test error", "seconds"),
        [
            (method, f"{kept} of {n_relevant}", f"{wrong}", f"{error:.3f}", f"{test_error:.2f}", f"{seconds:.1f}")
            for method, kept, wrong, error, test_error, seconds in found.rows
        ],
        title=f"Ten tasks, 80 rows each, 30 features, {n_relevant} of them relevant",
        caption="Error of W: squared, 1 = that of W = 0. Test error: squared, 1 = that of the true coefficients.",
    )
    speaker.say("", table, found.fits["posterior"].result_.summary(n_relevant))
    speaker.say("\nWritten:", *(f"  {path}" for path in written))
    speaker.answer({"methods": [row._asdict() for row in found.rows], "written": [str(path) for path in written]})


app = typer.Typer(
    name="bayesmtfs",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (fit, compare, report, predict, reproduce, datasets, demo):
    app.command(command.__name__)(run(command))


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"bayesmtfs {bayesmtfs.__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Bayesian and penalised multi-task feature selection."""


def main() -> None:
    """Run the command line."""
    app()
