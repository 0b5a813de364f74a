"""First fit and peak memory of one competitor in a process of its own.

    python benchmarks/cold.py PROBLEM_FILE COMPETITOR TOL

reads a pickled problem that the parent wrote, fits twice, and prints one line of JSON. `measure_cold` starts it twice
with one empty numba cache folder: the first process compiles, the second finds what was cached.
"""

import json
import os
import pickle
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from peers import OURS, PEERS
from timing import Entry, timed
from workloads import Problem

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


def peak_megabytes() -> float:
    """Largest resident size of this process so far.

    Linux's ``ru_maxrss`` starts at the size of the parent that called exec, so that a large parent would hide every
    fit; the high-water mark of the address space does not.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 2**10
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kilobytes / (2**20 if sys.platform == "darwin" else 2**10)


def fit_twice(problem: Problem, name: str, tol: float) -> dict[str, float]:
    """First and second fit, and how much the first one raised the peak memory."""
    competitor = next(one for one in (OURS, *PEERS) if one.name == name)
    prepared = competitor.build(problem, int(os.environ.get(THREAD_VARIABLES[0], os.cpu_count() or 1)))
    before = peak_megabytes()
    _, first_cpu, first_wall = timed(lambda: prepared.solve(tol))
    after = peak_megabytes()
    _, cpu, wall = timed(lambda: prepared.solve(tol))
    return {
        "first_cpu": first_cpu,
        "first_wall": first_wall,
        "second_cpu": cpu,
        "second_wall": wall,
        "peak_mb": after,
        "fit_mb": after - before,
    }


def measure_cold(problem: Problem, entry: Entry, timeout: float = 600.0) -> dict[str, Any]:
    """Fits in two fresh processes: without and with numba's cache."""
    record: dict[str, Any] = {"case": entry.case, "competitor": entry.competitor, "threads": entry.threads}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "problem.pickle"
        path.write_bytes(pickle.dumps(problem, protocol=5))
        environment = os.environ | {"NUMBA_CACHE_DIR": str(Path(folder) / "cache")}
        if entry.threads != "default":
            environment |= dict.fromkeys(THREAD_VARIABLES, entry.threads)
        command = [sys.executable, __file__, str(path), entry.competitor, repr(entry.tol)]
        for label in ("no_cache", "cached"):
            try:
                done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout)
            except subprocess.TimeoutExpired:
                record[label] = {"error": f"no answer in {timeout:.0f} s"}
                continue
            last = (done.stdout.strip().splitlines() or [""])[-1]
            record[label] = json.loads(last) if done.returncode == 0 else {"error": done.stderr.strip()[-200:]}
    return record


def main() -> None:
    """Fit what the command line names."""
    path, name, tol = sys.argv[1:]
    with open(path, "rb") as file:  # not read as a whole first: that would double the peak before the fit
        problem = pickle.load(file)
    print(json.dumps(fit_twice(problem, name, float(tol))))


if __name__ == "__main__":
    main()
