"""One simulated problem with known truth, fitted and judged: what the package does, in half a minute."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from sklearn.base import clone
from sklearn.linear_model import LassoCV, RidgeCV

from bayesmtfs.estimators.penalised_cv import MixedNormRegressorCV
from bayesmtfs.plots import coefficient_heatmap
from bayesmtfs.protocols import FloatArray, IntArray
from bayesmtfs.simulation import SimulatedTasks, simulate_tasks

N_TRAIN = 40  # rows per task
N_TEST = 400


class Row(NamedTuple):
    """How one method did."""

    method: str
    found: int  # relevant features with a non-zero coefficient in some task
    missed: int
    wrongly_kept: int
    coefficient_error: float  # squared error of W, relative to that of W = 0
    test_error: float  # mean squared error on new rows, relative to the noise


class Rows(NamedTuple):
    """Observations in the long form."""

    X: FloatArray
    y: FloatArray
    tasks: IntArray


class Demo(NamedTuple):
    """All that the demonstration shows."""

    truth: SimulatedTasks
    rows: list[Row]
    model: MixedNormRegressorCV


def run(seed: int = 0) -> Demo:
    """Simulate ten tasks over sixty features, and fit them together and apart.

    Parameters
    ----------
    seed : of the simulation
    """
    truth = simulate_tasks(
        n_tasks=10, n_features=60, n_relevant=6, n_samples=N_TRAIN + N_TEST, snr=2.0, design="ar", random_state=seed
    )
    tasks = truth.data.task  # the simulated rows are sorted by task
    is_train = np.arange(len(tasks)) - truth.data.offsets[tasks] < N_TRAIN
    train = Rows(truth.X[is_train], truth.y[is_train], tasks[is_train])
    test = Rows(truth.X[~is_train], truth.y[~is_train], tasks[~is_train])
    model = _together(train)
    lasso = _apart(LassoCV(max_iter=20_000), train)
    ridge = _apart(RidgeCV(alphas=np.geomspace(1e-2, 1e3, 20)), train)
    rows = [
        _judge("together (l1,2)", truth, test, model.coef_, model.intercept_),
        _judge("each task alone (lasso)", truth, test, *lasso),
        _judge("each task alone (ridge)", truth, test, *ridge),
    ]
    return Demo(truth, rows, model)


def draw(demo: Demo, path: Path) -> None:
    """Save the coefficients as a picture."""
    figure = Figure(figsize=(7, 6), layout="constrained")
    coefficient_heatmap(demo.model.result_, ax=figure.add_subplot())
    figure.savefig(path, dpi=150)


def _together(train: Rows) -> MixedNormRegressorCV:
    """The l1,2 fit, with the largest penalty within a standard error of the smallest cross-validated error."""
    model = MixedNormRegressorCV(n_penalties=30, penalty_ratio=0.01, rule="one_se", random_state=0)
    return model.fit(train.X, train.y, tasks=train.tasks)


def _apart(method: Any, train: Rows) -> tuple[FloatArray, FloatArray]:
    """Coefficients and intercepts of one scikit-learn model per task."""
    models = [clone(method).fit(train.X[train.tasks == t], train.y[train.tasks == t]) for t in np.unique(train.tasks)]
    return np.array([model.coef_ for model in models]), np.array([model.intercept_ for model in models])


def _judge(method: str, truth: SimulatedTasks, test: Rows, coef: FloatArray, intercept: FloatArray) -> Row:
    kept = (coef != 0).any(axis=0)
    predicted = (test.X * coef[test.tasks]).sum(axis=1) + intercept[test.tasks]
    return Row(
        method=method,
        found=int((kept & truth.support).sum()),
        missed=int((~kept & truth.support).sum()),
        wrongly_kept=int((kept & ~truth.support).sum()),
        coefficient_error=float(np.sum((coef - truth.coef) ** 2) / np.sum(truth.coef**2)),
        test_error=float(np.mean((test.y - predicted) ** 2 / truth.noise[test.tasks] ** 2)),
    )
