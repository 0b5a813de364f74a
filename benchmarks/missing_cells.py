"""Missing cells of features: coverage and errors of posteriors with cells drawn, filled with means, and without gaps.

    uv run python benchmarks/missing_cells.py [--seeds 40] [--first 1000] [--gaps random,observed] [--prior auto]

Four tasks with levels of their own, 50 rows each, ten features with correlations .6^|i - j|, of which three matter, with
effects ``.8 + .4 N(0, 1)`` in each task; noise 1. A fifth of the cells is missing: at random (``random``), or in the even
columns with a probability that depends on the observed neighbour to the left (``observed``).

A row of the table: the share of the effects of relevant features inside their 89% intervals with its standard error (over
data sets), the mean width of these, the root mean square error of all coefficients, and for 1000 new rows with gaps of the
same kind the share of targets inside 89% predictive intervals and the root mean square error of the predictions.
"""

import argparse
import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import bayesmtfs as bm

Floats = NDArray[np.float64]
M, N, P, RELEVANT, NEW = 4, 50, 10, 3, 250
LEVEL = 0.89
KINDS = {"random": "a fifth of all cells, at random", "observed": "even columns, depending on the observed neighbour"}
METHODS: dict[str, str | None] = {"no gaps": None, "impute='task_mean'": "task_mean", "impute='model'": "model"}


class Sample(NamedTuple):
    """Rows of all tasks."""

    X: Floats
    y: Floats
    tasks: NDArray[np.int64]
    gone: NDArray[np.bool_]


def sample(rng: np.random.Generator, W: Floats, n: int, kind: str) -> Sample:
    """Rows with targets, and which cells are missing."""
    tasks = np.repeat(np.arange(M), n)
    root = np.linalg.cholesky(0.6 ** np.abs(np.subtract.outer(np.arange(P), np.arange(P))))
    around = rng.normal(size=(M * n, P)) @ root.T
    y = np.sum(around * W.T[tasks], axis=1) + tasks + rng.normal(size=M * n)
    gone = rng.random(around.shape) < 0.2
    if kind == "observed":
        gone[:, ::2] = rng.random((M * n, P // 2)) < 0.8 / (1.0 + np.exp(-3.0 * around[:, 1::2]))
        gone[:, 1::2] = False
    return Sample(around + 3.0 * tasks[:, np.newaxis], y, tasks, gone)


def one_fit(seed: int, kind: str, prior: str, impute: str | None) -> list[float]:
    """Measures of one data set."""
    rng, W = np.random.default_rng(seed), np.zeros((P, M))
    W[:RELEVANT] = 0.8 + 0.4 * rng.normal(size=(RELEVANT, M))
    train, new = sample(rng, W, N, kind), sample(rng, W, NEW, kind)
    X, new_X = (part.X if impute is None else np.where(part.gone, np.nan, part.X) for part in (train, new))
    model = bm.BayesianRegressor(prior=prior, impute=impute, draws=400, tune=300, chains=2, random_state=seed, n_jobs=1)
    model.fit(X, train.y, tasks=train.tasks)
    draws = model.posterior_["posterior"]["coef"].values[:, :, :RELEVANT]
    low, high = np.quantile(draws, [0.5 - LEVEL / 2, 0.5 + LEVEL / 2], axis=(0, 1))
    inside = (low <= W[:RELEVANT]) & (W[:RELEVANT] <= high)
    error = np.sqrt(np.mean((model.coef_[:, :P].T - W) ** 2))
    mean, lower, upper = model.predict(new_X, tasks=new.tasks, interval=LEVEL)
    held = np.mean((lower <= new.y) & (new.y <= upper))
    return [float(inside.mean()), float(np.mean(high - low)), float(error), float(held), rms(mean - new.y)]


def rms(values: Any) -> float:
    """Root mean square."""
    return float(np.sqrt(np.mean(values**2)))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--first", type=int, default=1000)
    parser.add_argument("--gaps", default="random,observed")
    parser.add_argument("--prior", default="auto")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    print(
        "| gaps | method | coverage of 89% | width | error of coefficients | coverage of targets | error of targets |"
    )
    print("|---|---|---|---|---|---|---|")
    for kind in chosen.gaps.split(","):
        for name, impute in METHODS.items():
            seeds = range(chosen.first, chosen.first + chosen.seeds)
            found = np.array([one_fit(seed, kind, chosen.prior, impute) for seed in seeds])
            cover, width, error, held, residual = found.mean(axis=0)
            spread = found[:, 0].std(ddof=1) / np.sqrt(len(found))
            numbers = f"{cover:.3f} ({spread:.3f}) | {width:.2f} | {error:.3f} | {held:.3f} | {residual:.2f}"
            print(f"| {KINDS[kind]} | {name} | {numbers} |", flush=True)


if __name__ == "__main__":
    main()
