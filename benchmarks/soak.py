"""A soak: mixed fits, saves, loads and streams in one process, round after round.

    python benchmarks/soak.py [--minutes 60]

Every round does the same work on the same data. Memory has to stay flat after the warm-up, no file may stay open, and
every answer has to be that of the first round to the last bit; the process ends with an error where one does not.
"""

import argparse
import gc
import hashlib
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import bayesmtfs as bm
from bayesmtfs import moments
from bayesmtfs.selection import stability

WARM_UP = 0.25  # share of the rounds until memory is expected to be flat
MOST_GROWTH = 0.05  # of the memory after the warm-up


def resident_megabytes() -> float:
    """Memory of this process now."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def open_files() -> int:
    """Files, sockets and pipes that this process holds open."""
    return len(os.listdir("/proc/self/fd"))


def jobs(folder: Path) -> dict[str, Callable[[], Any]]:
    """The work of one round: every entry gives numbers that must never change."""
    sim = bm.simulate_tasks(n_tasks=6, n_features=30, n_relevant=5, n_samples=60, random_state=0)
    labels = np.where(sim.y > 0, "yes", "no")
    frame = pd.DataFrame({f"x{i}": sim.X[:, i] for i in range(30)} | {"y": sim.y, "label": labels, "user": sim.tasks})
    frame.drop(columns="label").to_parquet(folder / "rows.parquet")
    frame.drop(columns="y").to_parquet(folder / "labels.parquet")
    data = {"X": sim.X, "y": sim.y, "tasks": sim.tasks}

    def saved(model: Any) -> Any:
        model.save(folder / "model")
        return bm.load(folder / "model").predict(sim.X, tasks=sim.tasks)

    def streamed(model: Any, name: str, target: str) -> Any:
        checkpoint = folder / "checkpoint"
        checkpoint.unlink(missing_ok=True)
        options: dict[str, Any] = {"target": target, "task": "user", "checkpoint": checkpoint, "every": 100}
        return model.fit_stream(folder / name, batch_rows=50, **options).coef_

    return {
        "penalised": lambda: saved(bm.MixedNormRegressor().fit(**data)),
        "largest entry": lambda: saved(bm.MixedNormRegressor(norm_q=np.inf).fit(**data)),
        "hinge": lambda: bm.MixedNormClassifier(loss="hinge").fit(sim.X, labels, tasks=sim.tasks).coef_,
        "cross-validated": lambda: saved(bm.MixedNormRegressorCV(cv=3).fit(**data)),
        "Jeffreys": lambda: saved(bm.JeffreysRegressor().fit(**data)),
        "generalised normal": lambda: bm.GeneralizedNormalRegressor().fit(**data).coef_,
        "matrix variate": lambda: saved(bm.MatrixVariateRegressor().fit(**data)),
        "moments": lambda: moments.from_parquet(folder / "rows.parquet", "y", "user").scatters,
        "online": lambda: streamed(bm.OnlineMixedNormClassifier(penalty_strength=0.01), "labels.parquet", "label"),
        "relations": lambda: streamed(bm.OnlineSmoothedRegressor(random_state=0, step=0.01), "rows.parquet", "y"),
        "stability": lambda: (
            stability(bm.MixedNormRegressor(), sim.X, sim.y, sim.tasks, n_pairs=3, random_state=0).task_frequency
        ),
    }


def digest(values: Any) -> str:
    """Fingerprint of numbers, to the last bit."""
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()


def soak(seconds: float) -> dict[str, Any]:
    """Work for so long, and say what changed."""
    started, memory, files, changed, slowest = time.monotonic(), [], [], set(), 0.0
    with tempfile.TemporaryDirectory() as name:
        work = jobs(Path(name))
        first = {job: digest(run()) for job, run in work.items()}
        while time.monotonic() - started < seconds or len(memory) < 4:
            begun = time.monotonic()
            changed |= {job for job, run in work.items() if digest(run()) != first[job]}
            slowest = max(slowest, time.monotonic() - begun)
            gc.collect()
            memory.append(resident_megabytes())
            files.append(open_files())
    warm = int(WARM_UP * len(memory))
    return {
        "minutes": (time.monotonic() - started) / 60,
        "rounds": len(memory),
        "fits": len(memory) * len(work),
        "memory_after_warm_up": float(np.median(memory[warm : warm + max(3, len(memory) // 10)])),
        "memory_at_the_end": float(np.median(memory[-max(3, len(memory) // 10) :])),
        "files_first": files[0],
        "files_last": files[-1],
        "changed": sorted(changed),
        "slowest_round": slowest,
    }


def main() -> None:
    """Soak, print, and fail where something did not stay the same."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    found = soak(60 * parser.parse_args().minutes)
    for key, value in found.items():
        print(f"{key:22} {value:,.4g}" if isinstance(value, float) else f"{key:22} {value}")
    grown = found["memory_at_the_end"] > (1 + MOST_GROWTH) * found["memory_after_warm_up"]
    if found["changed"] or grown or found["files_last"] > found["files_first"]:
        raise SystemExit("the soak failed: answers changed, memory grew or files stayed open, see above")


if __name__ == "__main__":
    main()
