"""Phase transition of joint compressed sensing: how many rows each method finds, and a plot of it.

Y = A W + noise at 30 dB with a common row support, n = 50 measurements of p = 200 unknowns in m = 5 tasks. A method
recovers a data set when its k largest rows are the k true ones. The mixed norm is given the best penalty of its path.

    python benchmarks/recovery.py --data-sets 20 --plot recovery.png
"""

import argparse
import time
import warnings
from collections.abc import Callable

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray

from bayesmtfs.estimators.em import GeneralizedNormalRegressor, JeffreysRegressor
from bayesmtfs.estimators.path import mixed_norm_path

Floats = NDArray[np.float64]
ROWS = (5, 10, 15, 19, 22, 25, 28, 31, 35, 39)


def measure(seed: int, n_rows: int, n: int = 50, p: int = 200, m: int = 5, decibel: float = 30.0) -> tuple[Floats, ...]:
    """One data set: measurements, targets, coefficients."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, p)) / np.sqrt(n)
    W = np.zeros((p, m))
    W[rng.choice(p, n_rows, replace=False)] = rng.standard_normal((n_rows, m))
    signal = A @ W
    noise = np.sqrt(np.mean(signal**2)) * 10 ** (-decibel / 20)
    return A, signal + noise * rng.standard_normal((n, m)), W


def mixed_norm(A: Floats, Y: Floats) -> list[Floats]:
    """Coefficients along the path of the l1,2 norm."""
    return list(mixed_norm_path(A, Y, n_penalties=15, penalty_ratio=1e-3, fit_intercept=False, tol=1e-4).coefs)


def majorisation(A: Floats, Y: Floats) -> list[Floats]:
    """Problem (5) by majorisation-minimisation."""
    return [GeneralizedNormalRegressor(offset=None, fit_intercept=False).fit(A, Y).coef_]


def mode(A: Floats, Y: Floats) -> list[Floats]:
    """Mode of W by EM under the Jeffreys prior."""
    return [JeffreysRegressor(shared_noise=True, fit_intercept=False).fit(A, Y).coef_]


def integrated(A: Floats, Y: Floats) -> list[Floats]:
    """Posterior mean of W at the row variances of largest evidence."""
    model = JeffreysRegressor(coefficients="integrated", shared_noise=True, fit_intercept=False, max_iter=5000)
    return [model.fit(A, Y).coef_]


METHODS: dict[str, Callable[[Floats, Floats], list[Floats]]] = {
    "l1,2 (best penalty)": mixed_norm,
    "MM": majorisation,
    "EM, mode": mode,
    "integrated": integrated,
}


def recovers(method: Callable[[Floats, Floats], list[Floats]], seed: int, n_rows: int) -> bool:
    """Whether the largest rows of any of the method's fits are the true ones."""
    A, Y, W = measure(seed, n_rows)
    truth = set(np.flatnonzero(W.any(axis=1)))
    lengths = [np.linalg.norm(coef, axis=0) for coef in method(A, Y)]
    return any(set(np.argsort(-length)[:n_rows]) == truth for length in lengths)


def draw(rates: dict[str, list[float]], rows: list[int], path: str) -> None:
    """Save the plot."""
    figure, axes = plt.subplots(figsize=(6, 4))
    for name, rate in rates.items():
        axes.plot(rows, rate, marker="o", label=name)
    axes.set_xlabel("true rows k (n = 50, p = 200, m = 5, 30 dB)")
    axes.set_ylabel("share of data sets with the k largest rows right")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=150)


def main() -> None:
    """Run all methods over all numbers of rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-sets", type=int, default=10, help="data sets per number of rows")
    parser.add_argument("--rows", type=int, nargs="*", default=list(ROWS), help="numbers of true rows")
    parser.add_argument("--plot", default="recovery.png", help="where to save the plot")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    rates: dict[str, list[float]] = {name: [] for name in METHODS}
    print("rows  " + "  ".join(f"{name:>20}" for name in METHODS))
    for n_rows in arguments.rows:
        cells = []
        for name, method in METHODS.items():
            start = time.perf_counter()
            rate = np.mean([recovers(method, seed, n_rows) for seed in range(arguments.data_sets)])
            seconds = (time.perf_counter() - start) / arguments.data_sets
            rates[name].append(float(rate))
            cells.append(f"{rate:8.2f} ({seconds:6.2f} s)")
        print(f"{n_rows:4d}  " + "  ".join(f"{cell:>20}" for cell in cells), flush=True)
    draw(rates, arguments.rows, arguments.plot)


if __name__ == "__main__":
    main()
