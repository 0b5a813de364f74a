"""Awkward problems, every answer of ours held against a duality gap from outside.

    uv run python benchmarks/certified.py [--seeds 701,702,703] [--tol 1e-6]

Other shapes than the workloads that are timed: few tasks with many features, many tasks with few, sizes from 3 to 2000
rows, designs without full rank, columns that are there twice, constant, or of sizes far apart, sparse designs, three
ratios of signal to noise each, three losses of norms, and penalties of a third, a tenth and a hundredth of lambda_max.
`certificate.py` bounds the distance from the minimum without any code of the package. What is not within the tolerance, or
not said to have converged, is printed, and the exit code is then 1.
"""

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from certificate import largest_penalty, lower_bound, null_objective, objective, relative_gap, smooth_candidate
from threadpoolctl import threadpool_limits
from workloads import Problem, TaskSet, random_labels

import bayesmtfs as bm

Make = Callable[[np.random.Generator, float, str], TaskSet]
SIGNAL_TO_NOISE = (0.1, 1.0, 20.0)
FRACTIONS = (3.0, 10.0, 100.0)
NORMS = (1.0, 1.5, 2.0, 3.0, np.inf)


def targets_of(rng: np.random.Generator, eta: Any, snr: float, loss: str) -> Any:
    """Numbers with noise, or labels of a score with noise."""
    spread = float(np.std(eta)) or 1.0
    noisy = eta + spread / np.sqrt(snr) * rng.standard_normal(len(eta))
    return random_labels(rng, noisy) if loss == "logistic" else noisy


def own_designs(rng: np.random.Generator, snr: float, loss: str, sizes: list[int], X: Any, n_relevant: int) -> TaskSet:
    """Tasks with the rows of X one after the other."""
    offsets, p = np.concatenate([[0], np.cumsum(sizes)]), X.shape[1]
    W = np.zeros((p, len(sizes)))
    rows = rng.choice(p, min(n_relevant, p), replace=False)
    W[rows] = rng.standard_normal((len(rows), len(sizes)))
    parts = [X[a:b] @ W[:, t] for t, (a, b) in enumerate(zip(offsets[:-1], offsets[1:], strict=True))]
    return TaskSet(X, [targets_of(rng, eta, snr, loss) for eta in parts], offsets, loss)


def one_design(rng: np.random.Generator, snr: float, X: Any, n_tasks: int, n_relevant: int) -> TaskSet:
    """Tasks on the rows of X."""
    W = np.zeros((X.shape[1], n_tasks))
    W[rng.choice(X.shape[1], n_relevant, replace=False)] = rng.standard_normal((n_relevant, n_tasks))
    return TaskSet(X, [targets_of(rng, eta, snr, "squared") for eta in np.asarray(X @ W).T], None, "squared")


def few_tasks_many_features(rng: np.random.Generator, snr: float, loss: str) -> TaskSet:
    """Two tasks of 60 rows, 3000 features."""
    return own_designs(rng, snr, loss, [60, 60], rng.standard_normal((120, 3000)), 10)


def many_tasks_few_features(rng: np.random.Generator, snr: float, loss: str) -> TaskSet:
    """200 tasks of 15 rows, six features."""
    return own_designs(rng, snr, loss, [15] * 200, rng.standard_normal((3000, 6)), 3)


def unequal_sizes(rng: np.random.Generator, snr: float, loss: str) -> TaskSet:
    """From 3 to 2000 rows, columns of sizes from 0.01 to 100."""
    sizes = [3, 5, 20, 100, 500, 2000]
    X = rng.standard_normal((sum(sizes), 40)) * 10 ** rng.uniform(-2, 2, 40)
    return own_designs(rng, snr, loss, sizes, X, 8)


def without_full_rank(rng: np.random.Generator, snr: float, loss: str) -> TaskSet:
    """Five directions make up 120 features."""
    return own_designs(rng, snr, loss, [50] * 5, rng.standard_normal((250, 5)) @ rng.standard_normal((5, 120)), 10)


def twice_and_constant(rng: np.random.Generator, snr: float, loss: str) -> TaskSet:
    """Every column there twice, some constant, some zero, some constant within a task only."""
    X = rng.standard_normal((240, 40))
    X[:, 5], X[:, 6], X[:60, 7] = 3.0, 0.0, 1.0
    return own_designs(rng, snr, loss, [60] * 4, np.hstack([X, X]), 10)


def large_means(rng: np.random.Generator, snr: float, loss: str) -> TaskSet:
    """Columns whose mean is 1e4 times their deviation."""
    return own_designs(rng, snr, loss, [80] * 4, 1e4 + rng.standard_normal((320, 50)), 5)


def sparse_rows(rng: np.random.Generator, snr: float, loss: str) -> TaskSet:
    """CSR with one in a hundred entries, many columns empty in a task."""
    X = sp.random(600, 2000, 0.01, "csr", rng=rng, data_rvs=rng.standard_normal)
    return own_designs(rng, snr, loss, [300, 200, 100], X, 100)


def one_task(rng: np.random.Generator, snr: float, loss: str) -> TaskSet:
    """A lasso: one task."""
    return own_designs(rng, snr, loss, [150], rng.standard_normal((150, 400)), 10)


def shared_duplicates(rng: np.random.Generator, snr: float, loss: str) -> TaskSet:
    """One design for 30 tasks, columns there twice up to a factor, and constants."""
    X = rng.standard_normal((60, 150))
    X[:, 3] = 1.0
    return one_design(rng, snr, np.hstack([X, -2 * X]), 30, 10)


def shared_smooth(rng: np.random.Generator, snr: float, loss: str) -> TaskSet:
    """One design for three tasks, neighbouring columns correlated by .999."""
    X = np.cumsum(rng.standard_normal((100, 1000)), axis=1)
    return one_design(rng, snr, X / X.std(axis=0), 3, 10)


def shared_tall(rng: np.random.Generator, snr: float, loss: str) -> TaskSet:
    """5000 rows, 50 features, eight tasks."""
    return one_design(rng, snr, rng.standard_normal((5000, 50)), 8, 10)


def shared_sparse(rng: np.random.Generator, snr: float, loss: str) -> TaskSet:
    """A sparse design for five tasks."""
    return one_design(rng, snr, sp.random(400, 3000, 0.01, "csr", rng=rng), 5, 60)


OWN: tuple[Make, ...] = (
    *(few_tasks_many_features, many_tasks_few_features, unequal_sizes, without_full_rank, twice_and_constant),
    *(large_means, sparse_rows, one_task),
)
SHARED: tuple[Make, ...] = (shared_duplicates, shared_smooth, shared_tall, shared_sparse)


def fit(problem: Problem, tol: float) -> tuple[Any, float]:
    """Model, and its CPU seconds."""
    data = problem.data
    kind = bm.MixedNormClassifier if data.loss == "logistic" else bm.MixedNormRegressor
    model = kind(penalty_strength=problem.strength, norm_q=problem.norm_q, tol=tol)
    begin = time.process_time()
    if data.shared:
        model.fit(data.X, data.wide_targets)
    else:
        model.fit(data.X, data.stacked_targets, tasks=data.labels)
    spent = time.process_time() - begin
    return model, spent


def gap_of(problem: Problem, tol: float) -> tuple[float, bool, float]:
    """Relative gap from outside, whether the fit says that it has converged, and its CPU seconds.

    Where the bound that belongs to the answer itself is too loose, that of a more accurate answer takes its place.
    """
    model, spent = fit(problem, tol)
    W, b = model.coef_.T, model.intercept_
    gap = relative_gap(problem, problem.strength, W, b)
    if gap > tol and model.converged_:
        other, data, strength = fit(problem, tol / 100)[0].coef_.T, problem.data, problem.strength
        bound = lower_bound(data, problem.norm_q, strength, smooth_candidate(data, other))
        gap = min(gap, (objective(data, problem.norm_q, strength, W, b) - bound) / null_objective(data))
    return gap, bool(model.converged_), spent


def main() -> int:
    """Go through all problems; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=lambda text: [int(word) for word in text.split(",")], default=[701, 702, 703])
    parser.add_argument("--tol", type=float, default=1e-6)
    options = parser.parse_args()
    n_fits = n_bad = 0
    for make, loss in [(m, "squared") for m in (*OWN, *SHARED)] + [(m, "logistic") for m in OWN]:
        worst, slowest = 0.0, 0.0
        for seed in options.seeds:
            for snr in SIGNAL_TO_NOISE:
                data = make(np.random.default_rng([seed, int(10 * snr)]), snr, loss)
                for number, norm_q in enumerate(NORMS):
                    fraction = FRACTIONS[(number + seed) % len(FRACTIONS)]
                    strength = np.array([largest_penalty(data, norm_q) / fraction])
                    problem = Problem(make.__name__, data, norm_q, strength)
                    gap, converged, spent = gap_of(problem, options.tol)
                    n_fits, worst, slowest = n_fits + 1, max(worst, gap), max(slowest, spent)
                    if not (gap <= options.tol * (1 + 1e-3) + 1e-12 and converged):
                        n_bad += 1
                        at = f"seed {seed}, snr {snr:g}, q {norm_q:g}, /{fraction:g}"
                        print(f"  {make.__name__}, {loss}, {at}: gap {gap:.1e}, converged {converged}, {spent:.2f} s")
        print(f"{make.__name__:26s} {loss:9s} largest gap {worst:.1e}, longest fit {slowest:.2f} s", flush=True)
    print(f"{n_fits} fits, {n_bad} not certified to {options.tol:g}")
    return int(n_bad > 0)


if __name__ == "__main__":
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sys.exit(main())
