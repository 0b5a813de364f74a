"""The command line, as a user types it."""

import matplotlib.image
import pytest
from typer.testing import CliRunner

from bayesmtfs.cli import app

runner = CliRunner()


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "new"
    return runner.invoke(app, ["demo", "--out", str(folder), "--seed", "3"]), folder


def test_demo_prints_a_table_and_draws_a_picture(demo):
    result, folder = demo
    assert result.exit_code == 0, result.output
    for word in ("together", "lasso", "ridge", "missed", "Converged"):
        assert word in result.output
    picture = matplotlib.image.imread(folder / "coefficients.png")
    assert picture.std() > 0.01


def test_quiet_prints_nothing(tmp_path):
    result = runner.invoke(app, ["demo", "--out", str(tmp_path), "--quiet"])
    assert result.exit_code == 0 and result.output == ""


@pytest.mark.parametrize("arguments", [["--help"], ["demo", "--help"]])
def test_help_everywhere(arguments):
    result = runner.invoke(app, arguments)
    assert result.exit_code == 0 and "--help" in result.output
