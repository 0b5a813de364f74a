"""``bayesmtfs demo``: one simulated problem, walked through the three uses of the package."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from bayesmtfs.cli.console import Debug, Quiet, Seed, Speaker

if TYPE_CHECKING:
    from bayesmtfs.cli.demo import Row


def demo(
    seed: Seed = 0,
    out: Annotated[Path, typer.Option(help="Folder for pictures and report.")] = Path("bayesmtfs-demo"),
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Simulate ten related tasks, fit them by three routes and apart, and compare with the truth."""
    speaker = Speaker(quiet)
    with speaker.working("Loading ..."):
        # Loaded here, so that --help answers at once
        from bayesmtfs.cli import demo as demonstration
    with speaker.working("Fitting ..."):
        found = demonstration.run(seed, speaker.say)
    with speaker.working("Drawing ..."):
        out.mkdir(parents=True, exist_ok=True)
        written = demonstration.write(found, out)
    n_relevant = int(found.truth.support.sum())
    speaker.say("", demo_table(found.rows, n_relevant), found.fits["posterior"].result_.summary(n_relevant))
    speaker.say("\nWritten:", *(f"  {path}" for path in written))


def demo_table(rows: "list[Row]", n_relevant: int) -> Table:
    """How each method did, as a table."""
    table = Table(
        title=f"Ten tasks, 80 rows each, 30 features, {n_relevant} of them relevant",
        caption="Error of W: squared, 1 = that of W = 0. Test error: squared, 1 = that of the true coefficients.",
    )
    table.add_column("method")
    for heading in ("found", "wrongly kept", "error of W", "test error", "seconds"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(
            row.method,
            f"{row.found} of {n_relevant}",
            str(row.wrongly_kept),
            f"{row.coefficient_error:.3f}",
            f"{row.test_error:.2f}",
            f"{row.seconds:.1f}",
        )
    return table
