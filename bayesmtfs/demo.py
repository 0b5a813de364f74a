"""One simulated problem with known truth, fitted and judged: what the package does, in half a minute."""

from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LassoCV, RidgeCV
from sklearn.model_selection import KFold

from bayesmtfs.estimators.penalised import MixedNormRegressor
from bayesmtfs.plots import coefficient_heatmap
from bayesmtfs.protocols import FloatArray
from bayesmtfs.simulation import SimulatedTasks, simulate_tasks

N_TRAIN = 40  # rows per task
N_TEST = 400
SHARES = np.geomspace(0.5, 0.01, 12)  # of the largest penalty


class Row(NamedTuple):
    """How one method did."""

    method: str
    found: int  # relevant features with a non-zero coefficient in some task
    missed: int
    wrongly_kept: int
    coefficient_error: float  # squared error of W, relative to that of W = 0
    test_error: float  # mean squared error on new rows, relative to the noise


class Demo(NamedTuple):
    """All that the demonstration shows."""

    truth: SimulatedTasks
    rows: list[Row]
    model: MixedNormRegressor


def run(seed: int = 0) -> Demo:
    """Simulate ten tasks over sixty features, and fit them together and apart.

    Parameters
    ----------
    seed : of the simulation
    """
    truth = simulate_tasks(
        n_tasks=10, n_features=60, n_relevant=6, n_samples=N_TRAIN + N_TEST, snr=2.0, design="ar", random_state=seed
    )
    place = np.concatenate([np.arange(count) for count in np.bincount(truth.tasks)])  # row number within its task
    train = place < N_TRAIN
    model = _together(truth, train)
    lasso, ridge = _apart(truth, train)
    rows = [
        _judge("together (l1,2)", truth, train, model.coef_, model.intercept_),
        _judge("each task alone (lasso)", truth, train, *lasso),
        _judge("each task alone (ridge)", truth, train, *ridge),
    ]
    return Demo(truth, rows, model)


def draw(demo: Demo, path: Path) -> None:
    """Save the coefficients as a picture."""
    matplotlib.use("agg")
    axes = coefficient_heatmap(demo.model.result_)
    axes.figure.savefig(path, dpi=150)


def _together(truth: SimulatedTasks, train: np.ndarray) -> MixedNormRegressor:
    """The l1,2 fit at the penalty of the smallest cross-validated error."""
    X, y, tasks = truth.X[train], truth.y[train], truth.tasks[train]
    largest = MixedNormRegressor().fit(X, y, tasks=tasks).penalty_strength_ * 10
    errors = np.zeros(len(SHARES))
    for fit_rows, check_rows in KFold(5, shuffle=True, random_state=0).split(X):
        model = MixedNormRegressor(warm_start=True, tol=1e-4)
        for number, share in enumerate(SHARES):
            model.set_params(penalty_strength=share * largest)
            model.fit(X[fit_rows], y[fit_rows], tasks=tasks[fit_rows])
            errors[number] += np.sum((y[check_rows] - model.predict(X[check_rows], tasks=tasks[check_rows])) ** 2)
    best = MixedNormRegressor(penalty_strength=SHARES[np.argmin(errors)] * largest)
    return best.fit(X, y, tasks=tasks)


def _apart(truth: SimulatedTasks, train: np.ndarray) -> list[tuple[FloatArray, FloatArray]]:
    """Coefficients and intercepts of scikit-learn's lasso and ridge, one per task, strengths cross-validated."""
    fits = []
    for method in (LassoCV(max_iter=20_000), RidgeCV(alphas=np.geomspace(1e-2, 1e3, 20))):
        models = []
        for t in range(truth.data.n_tasks):
            rows = train & (truth.tasks == t)
            models.append(method.__class__(**method.get_params()).fit(truth.X[rows], truth.y[rows]))
        fits.append((np.array([m.coef_ for m in models]), np.array([m.intercept_ for m in models])))
    return fits


def _judge(method: str, truth: SimulatedTasks, train: np.ndarray, coef: FloatArray, intercept: FloatArray) -> Row:
    kept = (coef != 0).any(axis=0)
    test = ~train
    eta = np.einsum("ip,ip->i", truth.X[test], coef[truth.tasks[test]]) + intercept[truth.tasks[test]]
    return Row(
        method=method,
        found=int((kept & truth.support).sum()),
        missed=int((~kept & truth.support).sum()),
        wrongly_kept=int((kept & ~truth.support).sum()),
        coefficient_error=float(np.sum((coef - truth.coef) ** 2) / np.sum(truth.coef**2)),
        test_error=float(np.mean((truth.y[test] - eta) ** 2 / truth.noise[truth.tasks[test]] ** 2)),
    )
