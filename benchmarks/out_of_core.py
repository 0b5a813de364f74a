"""Fits from files that no memory holds: rows per second and peak memory of moments, and the fit that follows.

    uv run python benchmarks/out_of_core.py [--gigabytes 1] [--features 50] [--tasks 20] [--folder DIR]

Writes Parquet files of random rows (uncompressed in memory: the stated size), reads their moments in a process of its
own, whose peak memory is measured, and fits `MixedNormRegressor` from them. With ``--check`` the same rows are also
fitted in memory and the coefficients compared.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROWS_PER_FILE = 500_000
ROWS_PER_GROUP = 50_000


def write_rows(folder: Path, n_rows: int, n_features: int, n_tasks: int, seed: int = 0) -> None:
    """Write files of rows of tasks that share ten relevant features."""
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((min(10, n_features), n_tasks))
    for number, start in enumerate(range(0, n_rows, ROWS_PER_FILE)):
        size = min(ROWS_PER_FILE, n_rows - start)
        features, task = rng.standard_normal((n_features, size)), rng.integers(n_tasks, size=size)
        y = rng.standard_normal(size)
        for feature, weights in zip(features, W, strict=False):
            y += feature * weights[task]
        columns = {f"x{i}": feature for i, feature in enumerate(features)} | {"y": y, "task": task}
        path = folder / f"part-{number:04}.parquet"
        # random numbers neither repeat nor compress: trying to takes longer than all the rest
        pq.write_table(
            pa.table(columns), path, row_group_size=ROWS_PER_GROUP, compression="none", use_dictionary=["task"]
        )


def peak_megabytes() -> float:
    """Most memory this process ever had; `getrusage` would count that of the process it was started from."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def fit_from_files(folder: Path) -> dict[str, Any]:
    """Read moments, fit, and say how long it took and how much memory the process ever had."""
    import bayesmtfs as bm

    started, cpu = time.perf_counter(), time.process_time()
    moments = bm.moments.from_parquet(sorted(folder.glob("*.parquet")), target="y", task="task")
    read, cpu = time.perf_counter(), time.process_time() - cpu
    model = bm.MixedNormRegressor(penalty_strength=0.05).fit_moments(moments)
    return {
        "rows": int(moments.n_rows.sum()),
        "read_seconds": read - started,
        "read_cpu_seconds": cpu,
        "fit_seconds": time.perf_counter() - read,
        "peak_megabytes": peak_megabytes(),
        "selected": int(model.get_support().sum()),
        "coef": model.coef_.tolist(),
    }


def largest_difference(folder: Path, coef: Any) -> float:
    """Largest difference between coefficients from files and from the same rows in memory."""
    import bayesmtfs as bm

    table = pq.read_table(sorted(folder.glob("*.parquet"))).to_pandas()
    X, y, task = table.drop(columns=["y", "task"]).to_numpy(), table["y"].to_numpy(), table["task"].to_numpy()
    model = bm.MixedNormRegressor(penalty_strength=0.05).fit(X, y, tasks=task)
    return float(np.abs(model.coef_ - np.asarray(coef)).max())


def main() -> None:
    """Write, read, fit, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--features", type=int, default=50)
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--folder", type=Path, default=None, help="where the files go; a temporary folder")
    parser.add_argument("--check", action="store_true", help="compare with a fit in memory")
    parser.add_argument("--read-only", type=Path, default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read_only is not None:
        print(json.dumps(fit_from_files(options.read_only)))
        return
    n_rows = int(options.gigabytes * 2**30 / (8 * (options.features + 2)))
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        write_rows(folder, n_rows, options.features, options.tasks)
        gigabytes = sum(path.stat().st_size for path in folder.iterdir()) / 2**30
        command = [sys.executable, __file__, "--read-only", str(folder)]
        found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        coef = found.pop("coef")
        found["gigabytes_of_files"] = gigabytes
        found["rows_per_second"] = found["rows"] / found["read_seconds"]
        found["rows_per_cpu_second"] = found["rows"] / found["read_cpu_seconds"]
        if options.check:
            found["largest_difference"] = largest_difference(folder, coef)
    for key, value in found.items():
        print(f"{key:20} {value:,.4g}" if isinstance(value, float) else f"{key:20} {value:,}")


if __name__ == "__main__":
    main()
