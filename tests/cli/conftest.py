"""A table on disk, and the command line as a user types it."""

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from bayesmtfs import simulate_tasks
from bayesmtfs.cli.main import app


@pytest.fixture(scope="session")
def bayesmtfs():
    """Run a command and give back what it printed and its exit code; fits are measured only where that is asked for."""
    runner = CliRunner()

    def run(*arguments):
        words = [str(argument) for argument in arguments]
        measured = words[0] not in ("fit", "compare") or {"--baselines", "--no-baselines", "--help"} & set(words)
        return runner.invoke(app, words if measured else [*words, "--no-baselines"])

    return run


@pytest.fixture(scope="session")
def frame():
    sim = simulate_tasks(n_tasks=3, n_features=6, n_relevant=2, n_samples=30, random_state=1)
    columns = {f"g{i}": sim.X[:, i] for i in range(6)}
    labels = np.where(sim.y > np.median(sim.y), "high", "low")
    return pd.DataFrame({**columns, "score": sim.y, "level": labels, "school": [f"s{t}" for t in sim.tasks]})


@pytest.fixture(scope="session")
def table(frame, tmp_path_factory):
    path = tmp_path_factory.mktemp("tables") / "schools.csv"
    frame.drop(columns="level").to_csv(path, index=False)
    return path


@pytest.fixture(scope="session")
def fitted(bayesmtfs, table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fits") / "fit"
    result = bayesmtfs(
        "fit", table, "--target", "score", "--task", "school", "--penalty", 0.1, "--baselines", "--out", folder
    )
    assert result.exit_code == 0, result.output
    return folder
