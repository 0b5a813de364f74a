"""``bayesmtfs demo``: one simulated problem, fitted together and apart."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from bayesmtfs.commands.console import Debug, Quiet, Seed

if TYPE_CHECKING:
    from bayesmtfs.demo import Row


def demo(
    seed: Seed = 0,
    out: Annotated[Path, typer.Option(help="Folder for the picture.")] = Path("bayesmtfs-demo"),
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Simulate ten related tasks, fit them together and apart, and compare with the truth."""
    # Loaded here, so that --help answers at once
    from bayesmtfs import demo as demonstration

    console = Console(quiet=quiet)
    with console.status("Simulating ten tasks with sixty features, six of them relevant, and fitting them ..."):
        result = demonstration.run(seed)
    console.print(_demo_table(result.rows, int(result.truth.support.sum())))
    console.print(result.model.result_.summary())
    out.mkdir(parents=True, exist_ok=True)
    picture = out / "coefficients.png"
    demonstration.draw(result, picture)
    console.print(f"\nThe coefficients are drawn in {picture}")


def _demo_table(rows: "list[Row]", n_relevant: int) -> Table:
    table = Table(
        title=f"Ten tasks, 40 rows each, 60 features, {n_relevant} of them relevant",
        caption="Error of W: squared, 1 = that of W = 0. Test error: squared, 1 = that of the true coefficients.",
    )
    table.add_column("method")
    for heading in (
        "found",
        "missed",
        "wrongly kept",
        "error of W",
        "test error",
    ):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(
            row.method,
            str(row.found),
            str(row.missed),
            str(row.wrongly_kept),
            f"{row.coefficient_error:.2f}",
            f"{row.test_error:.2f}",
        )
    return table
