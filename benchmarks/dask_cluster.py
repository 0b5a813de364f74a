"""The same fits on one machine and on a cluster of processes: seconds, rows per second, largest difference.

    python benchmarks/dask_cluster.py [--rows 200000] [--workers 2] [--address tcp://...]

Rows are written as Parquet files, which the workers read themselves. Without ``--address`` a `LocalCluster` is started.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.distributed import Client, LocalCluster

import bayesmtfs as bm
from bayesmtfs.estimators.distributed import fit_dask

N_FEATURES, N_TASKS, N_FILES = 30, 20, 8


def write_rows(folder: Path, n_rows: int, seed: int = 0) -> None:
    """Files of random rows of tasks that share five features."""
    rng = np.random.default_rng(seed)
    W = np.zeros((N_TASKS, N_FEATURES))
    W[:, :5] = rng.standard_normal((N_TASKS, 5))
    for number in range(N_FILES):
        n = n_rows // N_FILES
        X, task = rng.standard_normal((n, N_FEATURES)), rng.integers(N_TASKS, size=n)
        y = (X * W[task]).sum(axis=1) + rng.standard_normal(n)
        frame = pd.DataFrame({f"x{i}": X[:, i] for i in range(N_FEATURES)})
        frame.assign(y=y, label=np.where(y > 0, 1, -1), task=task).to_parquet(folder / f"part-{number}.parquet")


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds, and what came out."""
    started = time.perf_counter()
    result = run()
    return time.perf_counter() - started, result


def compare(folder: Path) -> None:
    """Fit both ways and print."""
    files = sorted(folder.glob("*.parquet"))
    whole = pd.concat([pd.read_parquet(file) for file in files])
    X = whole.drop(columns=["y", "label", "task"])
    frame = dd.read_parquet(folder)

    def squared() -> Any:
        moments = bm.moments.from_dask(frame.drop(columns="label"), "y", "task")
        return bm.MixedNormRegressor(tol=1e-10).fit_moments(moments)

    def squared_here() -> Any:
        return bm.MixedNormRegressor(tol=1e-10).fit(X, whole["y"], tasks=whole["task"])

    def logistic() -> Any:
        return fit_dask(bm.MixedNormClassifier(tol=1e-10), frame.drop(columns="y"), "label", "task", classes=[-1, 1])

    def logistic_here() -> Any:
        return bm.MixedNormClassifier(tol=1e-10).fit(X, whole["label"], tasks=whole["task"])

    print(f"{'fit':10} {'here, s':>9} {'cluster, s':>11} {'rows/s':>12} {'passes':>7} {'difference':>11}")
    for name, there, here in (("squared", squared, squared_here), ("logistic", logistic, logistic_here)):
        seconds_here, local = timed(here)
        seconds, model = timed(there)
        passes = 1 if name == "squared" else model.n_iter_
        difference = np.abs(model.coef_ - local.coef_).max()
        rate = passes * len(whole) / seconds
        print(f"{name:10} {seconds_here:9.2f} {seconds:11.2f} {rate:12,.0f} {passes:7} {difference:11.1e}")


def main() -> None:
    """Start or find a cluster, and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--address", default=None, help="scheduler of a running cluster that sees the same files")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        write_rows(Path(name), options.rows)
        if options.address is not None:
            with Client(options.address):
                compare(Path(name))
            return
        with LocalCluster(n_workers=options.workers, threads_per_worker=1, dashboard_address=":0") as cluster:
            with Client(cluster):
                compare(Path(name))


if __name__ == "__main__":
    main()
