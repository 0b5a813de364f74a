"""Speed of EM under the Jeffreys prior, against a plain transcription of the paper and against ARD per task.

    python benchmarks/em.py [--repeats 3]

The transcription follows section 4.2 of Zhang, Yeung and Xu (2010) line by line at q = 2: E-step, conjugate gradients
for eq. (9) on all features, b and sigma. Both begin at the same mixed-norm fit, work in the same units and keep the
same floor of the noise, and both are timed until they have reached the objective at which our solver converges (to 1e-4
per observation), the transcription for at most `MOST` iterations. scikit-learn's ARDRegression has one task at a time.
All times are CPU seconds.
"""

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator, cg
from sklearn.linear_model import ARDRegression

from bayesmtfs import simulate_tasks
from bayesmtfs.em import jeffreys
from bayesmtfs.em.active_tasks import ActiveTasks, activate, em_problem
from bayesmtfs.estimators.em import JeffreysRegressor
from bayesmtfs.families import Gaussian
from bayesmtfs.papers.datasets import load_school
from bayesmtfs.types import Solution

FLOOR = 0.3  # of the noise, in units of sd(y)
MOST = 300
SIZES = {"2 tasks, p 12600": (2, 12600, 60), "4 tasks, p 12600": (4, 12600, 55), "4 tasks, p 1358": (4, 1358, 55)}


def objective(W: Any, residuals: list[Any], noise: Any, m: int) -> float:
    """The objective that both minimise, written out; zero rows count with the floor of the solver."""
    loss = sum(0.5 * r @ r / s**2 + len(r) * np.log(s) for r, s in zip(residuals, noise, strict=True))
    norms = np.maximum(np.linalg.norm(W, axis=1), jeffreys.ROW_FLOOR)
    return float(loss + m * np.sum(np.log(norms)))


def transcription(tasks: ActiveTasks, W: Any, intercept: Any, target: float) -> tuple[float, int]:
    """EM of the paper; the objective it reaches and the number of its iterations."""
    m, W, b = tasks.n_tasks, W.copy(), intercept.copy()
    y = [tasks.y[start:stop] for start, stop in tasks.spans]
    noise = np.array([max(np.std(y[t] - tasks.designs[t] @ W[:, t]), FLOOR) for t in range(m)])
    value = np.inf
    for iteration in range(1, MOST + 1):
        beta = m / (2.0 * np.maximum(np.sum(W**2, axis=1), jeffreys.ROW_FLOOR**2))
        residuals = []
        for t, X in enumerate(tasks.designs):
            gamma = 1.0 / (2.0 * noise[t] ** 2)

            def curvature(w: Any, X: Any = X, gamma: float = gamma, beta: Any = beta) -> Any:
                return gamma * (X.T @ (X @ w)) + beta * w

            operator = LinearOperator((X.shape[1],) * 2, matvec=curvature)
            jacobi = LinearOperator(operator.shape, matvec=lambda w, beta=beta: w / (beta + 1.0))
            W[:, t], _ = cg(operator, gamma * X.T @ (y[t] - b[t]), x0=W[:, t], rtol=1e-6, maxiter=500, M=jacobi)
            b[t] = np.mean(y[t] - X @ W[:, t])
            residuals.append(y[t] - X @ W[:, t] - b[t])
            noise[t] = max(np.sqrt(np.mean(residuals[t] ** 2)), FLOOR)
        value = objective(W, residuals, noise, m)
        if value <= target + 1e-4 * len(tasks.y):
            break
    return value, iteration


def seconds(work: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Shortest CPU time, and the result."""
    times, result = [], None
    for _ in range(repeats):
        begin = time.process_time()
        result = work()
        times.append(time.process_time() - begin)
    return min(times), result


def against_transcription(name: str, m: int, p: int, n: int, repeats: int) -> None:
    """Time EM, the whole fit and the transcription."""
    sim = simulate_tasks(n_tasks=m, n_features=p, n_samples=n, n_relevant=15, snr=8.0, random_state=0)
    problem = em_problem(sim.data, Gaussian())
    units, start = problem.units, jeffreys.mixed_norm_start(problem, 0.1)
    tasks = activate(*problem, np.ones(p, dtype=bool))
    W, b = units.from_user(start.W), start.intercept / units.target
    settings = jeffreys.EMSettings(noise_floor=FLOOR)

    def ours(max_iter: int = settings.max_iter) -> Solution:
        active = W.any(axis=1)
        own = activate(*problem, active)
        return jeffreys.solve(jeffreys.begin(own, W[active], b, settings), replace(settings, max_iter=max_iter))[0]

    found = ours()
    close = found.objective_trace <= found.objective_trace[-1] + 1e-4 * len(tasks.y)
    fast, _ = seconds(lambda: ours(max(int(np.argmax(close)), 1)), repeats)
    end, _ = seconds(ours, repeats)
    full = np.zeros_like(W)
    full[W.any(axis=1)] = found.W
    eta = tasks.linear_predictor(full, found.intercept)
    reached = objective(full, [tasks.y[i:j] - eta[i:j] for i, j in tasks.spans], found.noise, m)
    slow, (value, iterations) = seconds(lambda: transcription(tasks, W, b, reached), 1)
    whole, _ = seconds(lambda: JeffreysRegressor().fit(sim.data), repeats)
    print(
        f"{name:20s} EM {fast:7.4f} s ({np.argmax(close)} iterations; to the end {end:.4f} s, {found.n_iter})   "
        f"transcription {slow:8.2f} s ({iterations}, "
        f"objective {value - reached:+.1e})   ratio {slow / fast:6.0f}   whole fit {whole:.2f} s"
    )


def against_ard(n: int, p: int, repeats: int) -> None:
    """Time one task: the mode, the integrated fit (the same model as theirs) and ARDRegression, in turn."""
    sim = simulate_tasks(n_tasks=1, n_features=p, n_samples=n, n_relevant=10, random_state=0)
    models = [JeffreysRegressor(), JeffreysRegressor(coefficients="integrated"), ARDRegression()]
    rounds = [[seconds(lambda model=model: model.fit(sim.X, sim.y), 1)[0] for model in models] for _ in range(repeats)]
    mode, integrated, theirs = np.median(rounds, axis=0)
    errors = [float(np.linalg.norm(np.ravel(model.coef_) - sim.coef[0])) for model in models]
    print(
        f"one task, n {n}, p {p}: mode {mode:.3f} s   integrated {integrated:.3f} s   ARDRegression {theirs:.3f} s   "
        f"ratios {theirs / mode:.1f} and {theirs / integrated:.1f}   "
        f"errors {errors[0]:.3f}, {errors[1]:.3f} and {errors[2]:.3f}"
    )


def main() -> None:
    """Run all comparisons."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    JeffreysRegressor().fit(np.eye(8), np.arange(8.0))  # compile
    for name, (m, p, n) in SIZES.items():
        against_transcription(name, m, p, n, repeats)
    for n, p in ((200, 100), (100, 400), (1000, 300)):
        against_ard(n, p, repeats)
    if "BAYESMTFS_DATA" in os.environ:
        data = load_school().data
        fit, _ = seconds(lambda: JeffreysRegressor().fit(data), repeats)
        print(f"School, 139 tasks: {fit:.2f} s")


if __name__ == "__main__":
    main()
