"""The command line: ``bayesmtfs --help`` lists the commands."""

import typer

from bayesmtfs.cli import comparing, data_sets, demonstration, fitting, predicting, reporting, reproducing
from bayesmtfs.cli.console import run

app = typer.Typer(
    name="bayesmtfs",
    help="Bayesian and penalised multi-task feature selection.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("fit")(run(fitting.fit))
app.command("compare")(run(comparing.compare))
app.command("report")(run(reporting.report))
app.command("predict")(run(predicting.predict))
app.command("reproduce")(run(reproducing.reproduce))
app.command("datasets")(run(data_sets.datasets))
app.command("demo")(run(demonstration.demo))


def main() -> None:
    """Run the command line."""
    app()
