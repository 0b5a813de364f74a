"""Speed of discriminative feature selection, against a plain transcription with dense eigenproblems.

    python benchmarks/discriminative.py [--repeats 3]

The transcription is Algorithm 1 of Han et al. (2013) with p x p matrices and a full eigendecomposition per task and
iteration. It begins at our start, has our scatter matrices, gamma and eps, and takes as many iterations as ours; only
its iterations are timed. Both end at the same rows.
"""

import argparse
import time
from typing import Any

import numpy as np

from bayesmtfs.discriminative import trace_ratio
from bayesmtfs.discriminative.trace_ratio import Scatter, scatter
from bayesmtfs.estimators.discriminative import DiscriminativeSelector

STRENGTH = 1e-3
N_ROWS = 100
MOST_TRANSCRIBED = 3  # iterations of the transcription that are timed; all cost the same


def two_tasks(n: int, p: int) -> tuple[Any, Any, Any]:
    """Two tasks of n rows, with five and four classes that differ in twenty features."""
    rng = np.random.default_rng(0)
    tasks, y = np.repeat([0, 1], n), np.concatenate([np.arange(n) % 5, 10 + np.arange(n) % 4])
    X = rng.standard_normal((2 * n, p))
    for label in np.unique(y):
        X[np.ix_(y == label, np.arange(20))] += 1.5 * rng.standard_normal(20)
    return X, y, tasks


def dense_iterations(scatters: list[Scatter], floors: trace_ratio.Floors, n_iter: int) -> tuple[list[Any], float]:
    """Rows after some iterations of the transcription, and seconds per iteration."""
    matrices = [(1.0 - t.gamma) * t.rows.T @ t.rows - t.class_rows.T @ t.class_rows for t in scatters]
    W = [t.unpenalised[1] for t in scatters]
    begin = time.perf_counter()
    for _ in range(n_iter):
        D = 1.0 / (2.0 * np.sqrt(np.sum(np.hstack(W) ** 2, axis=1) + floors.joint**2))
        D_own = [1.0 / (2.0 * np.sqrt(np.sum(w**2, axis=1) + e**2)) for w, e in zip(W, floors.own, strict=True)]
        W = [
            np.linalg.eigh(M + STRENGTH * np.diag(d + D))[1][:, : w.shape[1]]
            for M, d, w in zip(matrices, D_own, W, strict=True)
        ]
    return W, (time.perf_counter() - begin) / n_iter


def against_transcription(p: int, repeats: int) -> None:
    """Time one iteration of each, from the same start to the same rows."""
    X, y, tasks = two_tasks(N_ROWS, p)
    scatters = [scatter(X[tasks == t], y[tasks == t], np.ones(N_ROWS), shrinkage=0.1) for t in (0, 1)]
    start = [task.unpenalised[1] for task in scatters]
    settings = trace_ratio.TraceRatioSettings(STRENGTH, STRENGTH, max_iter=MOST_TRANSCRIBED, tol=1e-300)
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        ours = trace_ratio.solve(scatters, settings, start)
        times.append((time.perf_counter() - begin) / ours.n_iter)
    dense, slow = dense_iterations(scatters, ours.floors, ours.n_iter)
    rows = [np.linalg.norm(np.hstack(W), axis=1) for W in (ours.W, dense)]
    print(
        f"p {p}, n {N_ROWS} per task: {min(times):.4f} s per iteration   transcription {slow:.3f} s   ratio "
        f"{slow / min(times):.0f}   largest difference of a row {np.abs(rows[0] - rows[1]).max():.1e}"
    )


def whole_fit(p: int, n: int, repeats: int) -> None:
    """Time `DiscriminativeSelector` from arrays to ranking."""
    X, y, tasks = two_tasks(n, p)
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        model = DiscriminativeSelector(n_features_to_select=20).fit(X, y, tasks=tasks)
        times.append(time.perf_counter() - begin)
    found = int((model.get_support(indices=True) < 20).sum())
    print(f"whole fit, p {p}, n {n} per task: {min(times):.2f} s, {model.n_iter_} iterations, {found} of 20 features")


def main() -> None:
    """Run all comparisons."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    for p in (500, 1000, 2000):
        against_transcription(p, repeats)
    for p, n in ((2000, 100), (10_000, 50), (10_000, 100), (20_000, 100)):
        whole_fit(p, n, repeats)


if __name__ == "__main__":
    main()
