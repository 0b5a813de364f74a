"""How streams grow in tasks, features and rows: time of a row, memory of the learner, and the exponents of both.

    python benchmarks/many_tasks.py [--quick] [--learner NAME] [--axis AXIS] [--plot FILE]

Every row has 20 non-zero features. Four learners: a penalty on whole features and one on single coefficients
(`OnlineMixedNormClassifier`), learned relations to five other tasks (`OnlineSmoothedClassifier(neighbours=5)`, no m x m
matrix), and one learner of hashed features with a copy per task (`hashed_rows(rows, n_bits, tasks)`), whose memory does
not grow with tasks at all. The state of each learner is counted in bytes of its arrays. An axis ends where a step has
taken more than ``--patience`` seconds.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

import bayesmtfs as bm
from bayesmtfs.estimators.streams import hashed_rows

NON_ZERO = 20
BATCH = 1000
HASH_BITS = 20
AXES = {
    "tasks": [(m, 200, 2000) for m in (10, 100, 1000, 10_000, 100_000)],
    "features": [(10, p, 2000) for p in (1000, 10_000, 100_000, 1_000_000)],
    "rows": [(100, 1000, n) for n in (1000, 10_000, 100_000, 1_000_000)],
}


class Cost(NamedTuple):
    """What one size costs."""

    size: int  # tasks, features or rows
    microseconds: float  # processor time of a row, once all tasks are known
    seconds: float  # of everything
    megabytes: float  # of the learner's arrays


def sparse_rows(rng: np.random.Generator, n: int, p: int) -> sp.csr_matrix:
    """Rows of ``NON_ZERO`` random features."""
    features = np.sort(rng.integers(p, size=(n, NON_ZERO)), axis=1).astype(np.int32)
    pointer = np.arange(n + 1, dtype=np.int32) * NON_ZERO
    X = sp.csr_matrix((rng.standard_normal(n * NON_ZERO), features.ravel(), pointer), shape=(n, p))
    X.sum_duplicates()
    return X


def batches(n_tasks: int, n_features: int, n_rows: int) -> Iterator[tuple[Any, Any, Any]]:
    """First one row of every task, then rows of random tasks."""
    rng = np.random.default_rng(0)
    everybody = np.arange(n_tasks)
    sizes = [n_tasks, *[BATCH] * (n_rows // BATCH)]
    for number, size in enumerate(sizes):
        tasks = everybody if number == 0 else rng.integers(n_tasks, size=size)
        X = sparse_rows(rng, size, n_features)
        y = np.where(X[:, : n_features // 10].sum(axis=1).A1 + rng.standard_normal(size) > 0, 1, -1)
        yield X, y, tasks


def personal(X: sp.csr_matrix, tasks: Any) -> sp.csr_matrix:
    """The same rows with hashed features and a copy of each for the task."""
    ends = X.indptr.tolist()
    names, values = [f"x{i}" for i in X.indices.tolist()], X.data.tolist()
    rows = [dict(zip(names[a:b], values[a:b], strict=True)) for a, b in zip(ends[:-1], ends[1:], strict=True)]
    return hashed_rows(rows, HASH_BITS, tasks.tolist())


def learners() -> dict[str, Callable[[], Any]]:
    """Everything that is measured."""
    return {
        "features": lambda: bm.OnlineMixedNormClassifier(penalty_strength=0.01),
        "coefficients": lambda: bm.OnlineMixedNormClassifier(penalty_strength=0.01, sparsity="individual"),
        "5 neighbours": lambda: bm.OnlineSmoothedClassifier(neighbours=5, random_state=0),
        "hashed": lambda: bm.OnlineMixedNormClassifier(penalty_strength=0.01, sparsity="individual"),
    }


def state_megabytes(value: Any, seen: set[int] | None = None) -> float:
    """Megabytes of all arrays that an object holds."""
    seen = set() if seen is None else seen
    if id(value) in seen or isinstance(value, str | int | float | bool | type(None)):
        return 0.0
    seen.add(id(value))
    if isinstance(value, np.ndarray):
        return value.nbytes / 2**20
    if isinstance(value, dict):
        return sum(state_megabytes(one, seen) for one in value.values())
    if isinstance(value, list | tuple):
        return sum(state_megabytes(one, seen) for one in value)
    return sum(state_megabytes(one, seen) for one in getattr(value, "__dict__", {}).values())


def measure(name: str, make: Callable[[], Any], axis: str, sizes: tuple[int, int, int]) -> Cost:
    """Learn one stream."""
    model, spent, rows = make(), [], 0
    started = time.perf_counter()
    for X, y, tasks in batches(*sizes):
        design, labels = (personal(X, tasks), None) if name == "hashed" else (X, tasks)
        before = time.process_time()
        model.partial_fit(design, y, tasks=labels, classes=[-1, 1])
        spent.append((time.process_time() - before) / len(y))
        rows += len(y)
    size = sizes[("tasks", "features", "rows").index(axis)]
    # the first batch meets the tasks, the second is the first of the common size
    return Cost(size, 1e6 * float(np.median(spent[1:])), time.perf_counter() - started, state_megabytes(model))


def exponent(costs: list[Cost], field: str) -> float:
    """Slope of the upper half of the sizes on a log-log scale."""
    upper = costs[len(costs) // 2 - 1 :]
    values = [max(getattr(cost, field), 1e-9) for cost in upper]
    return float(np.polyfit(np.log([cost.size for cost in upper]), np.log(values), 1)[0]) if len(upper) > 1 else np.nan


def draw(found: dict[str, dict[str, list[Cost]]], path: Path) -> None:
    """One column per axis: time of a row above, memory below."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(2, len(found), figsize=(4 * len(found), 6), sharex="col", layout="constrained")
    for column, (axis, by_learner) in enumerate(found.items()):
        for row, (field, label) in enumerate((("microseconds", "µs per row"), ("megabytes", "MB of state"))):
            panel = panels[row, column]
            for name, costs in by_learner.items():
                text = f"{name} ({exponent(costs, field):+.1f})"
                panel.loglog([c.size for c in costs], [getattr(c, field) for c in costs], "o-", label=text)
            panel.legend(fontsize=8)
            panel.set_ylabel(label)
        panels[1, column].set_xlabel(axis)
    figure.savefig(path, dpi=120)


def main() -> None:
    """Measure, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="leave out the largest size of every axis")
    parser.add_argument("--patience", type=float, default=30.0, help="seconds of a step after which an axis ends")
    parser.add_argument("--learner", choices=list(learners()), default=None, help="measure this one only")
    parser.add_argument("--axis", choices=list(AXES), default=None, help="measure this one only")
    parser.add_argument("--plot", type=Path, default=None)
    options = parser.parse_args()
    found: dict[str, dict[str, list[Cost]]] = {}
    for axis, sizes in AXES.items():
        if options.axis not in (None, axis):
            continue
        print(f"\n{axis:>12} {'learner':>14} {'us per row':>12} {'MB of state':>12} {'seconds':>9}")
        for name, make in learners().items():
            if options.learner not in (None, name):
                continue
            measure(name, make, axis, (10, 1000, 2000))  # compiles
            costs: list[Cost] = []
            for shape in sizes[:-1] if options.quick else sizes:
                if name == "5 neighbours" and shape[0] * shape[1] > 2e7:
                    break  # its weights are one dense (p, m) array: the next limit is memory, 8 p m bytes
                cost = measure(name, make, axis, shape)
                costs.append(cost)
                print(
                    f"{cost.size:12,} {name:>14} {cost.microseconds:12.2f} {cost.megabytes:12.1f} {cost.seconds:9.1f}"
                )
                if cost.seconds > options.patience:
                    break
            found.setdefault(axis, {})[name] = costs
            print(
                f"{'exponent':>12} {name:>14} {exponent(costs, 'microseconds'):12.2f} {exponent(costs, 'megabytes'):12.2f}"
            )
    if options.plot is not None:
        draw(found, options.plot)


if __name__ == "__main__":
    main()
