"""One simulated problem with known truth, walked through the three uses: penalised path, EM with q, posterior."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from sklearn.base import clone
from sklearn.linear_model import LassoCV

from bayesmtfs import plots
from bayesmtfs.data.simulation import SimulatedTasks, simulate_tasks
from bayesmtfs.estimators.bayesian import BayesianRegressor
from bayesmtfs.estimators.em import JeffreysRegressor
from bayesmtfs.estimators.penalised_cv import MixedNormRegressorCV
from bayesmtfs.reporting import report
from bayesmtfs.types import FloatArray, IntArray

N_TRAIN = 80  # rows per task
N_TEST = 400
DRAWS, TUNE = 2000, 500  # per chain, after so many that are not kept


class DemoScore(NamedTuple):
    """How one method did."""

    method: str
    found: int  # relevant features that are selected
    wrongly_kept: int
    coefficient_error: float  # squared error of W, relative to that of W = 0
    test_error: float  # mean squared error on new rows, relative to the noise
    seconds: float


class DemoRows(NamedTuple):
    """Observations in the long form."""

    X: FloatArray
    y: FloatArray
    tasks: IntArray


class Demo(NamedTuple):
    """All that the demonstration shows."""

    truth: SimulatedTasks
    rows: list[DemoScore]
    fits: dict[str, Any]


def run(seed: int = 0, say: Callable[[str], None] = lambda text: None) -> Demo:
    """Simulate ten tasks over thirty features, and fit them together, by three routes, and apart."""
    truth = simulate_tasks(
        n_tasks=10, n_features=30, n_relevant=5, n_samples=N_TRAIN + N_TEST, snr=1.0, design="ar", random_state=seed
    )
    tasks = truth.data.task  # the simulated rows are sorted by task
    is_train = np.arange(len(tasks)) - truth.data.offsets[tasks] < N_TRAIN
    train = DemoRows(truth.X[is_train], truth.y[is_train], tasks[is_train])
    test = DemoRows(truth.X[~is_train], truth.y[~is_train], tasks[~is_train])
    rows, fits = [], {}
    for name, text, model in _walk(seed):
        say(text)
        started = time.perf_counter()
        fits[name] = model.fit(train.X, train.y, tasks=train.tasks)
        taken = time.perf_counter() - started
        rows.append(_score(name, truth, test, model.coef_, model.intercept_, model.get_support(), taken))
    say("Each task alone, for comparison: the lasso of scikit-learn, cross-validated")
    started = time.perf_counter()
    coef, intercept = _apart(LassoCV(max_iter=20_000), train)
    taken = time.perf_counter() - started
    rows.append(_score("lasso per task", truth, test, coef, intercept, (coef != 0).any(axis=0), taken))
    return Demo(truth, rows, fits)


def _walk(seed: int) -> list[tuple[str, str, Any]]:
    """The three uses: name, what it does, estimator."""
    return [
        (
            "penalised, l1,2",
            "1. Penalised: a path of l1,2 fits, the penalty chosen by cross-validation",
            MixedNormRegressorCV(n_penalties=30, penalty_ratio=0.01, rule="one_se", random_state=seed),
        ),
        (
            "EM, q learned",
            "2. EM: how the tasks share a feature (q) is learned from the data",
            JeffreysRegressor(norm_q="learn", random_state=seed),
        ),
        (
            "posterior",
            "3. Posterior: draws that say how sure all of this is (the first run compiles for half a minute)",
            BayesianRegressor(norm_q="learn", draws=DRAWS, tune=TUNE, chains=4, random_state=seed),
        ),
    ]


def write(demo: Demo, folder: Path) -> list[Path]:
    """Write plots and the report into a folder that exists; give back their paths."""
    penalised, em, posterior = demo.fits.values()
    drawings: dict[str, Callable[[Any], Any]] = {
        "path.png": lambda ax: plots.regularisation_path(penalised, ax=ax),
        "coefficients.png": lambda ax: plots.coefficient_heatmap(posterior, ax=ax),
        "row_norms.png": lambda ax: plots.row_norms(posterior, ax=ax),
        "norm_q.png": lambda ax: plots.norm_q(posterior, ax=ax),
        "penalised_and_posterior.png": lambda ax: plots.compare_coefficients(penalised, posterior, ax=ax),
    }
    for name, draw in drawings.items():
        figure = Figure(figsize=(7, 5.5), layout="constrained")
        draw(figure.add_subplot())
        figure.savefig(folder / name, dpi=130)
    report(demo.fits, folder / "report.html", "Ten simulated tasks, three routes")
    return [folder / name for name in (*drawings, "report.html")]


def _apart(method: Any, train: DemoRows) -> tuple[FloatArray, FloatArray]:
    """Coefficients and intercepts of one scikit-learn model per task."""
    models = [clone(method).fit(train.X[train.tasks == t], train.y[train.tasks == t]) for t in np.unique(train.tasks)]
    return np.array([model.coef_ for model in models]), np.array([model.intercept_ for model in models])


def _score(
    method: str,
    truth: SimulatedTasks,
    test: DemoRows,
    coef: FloatArray,
    intercept: FloatArray,
    kept: Any,
    seconds: float,
) -> DemoScore:
    predicted = (test.X * coef[test.tasks]).sum(axis=1) + intercept[test.tasks]
    return DemoScore(
        method=method,
        found=int((kept & truth.support).sum()),
        wrongly_kept=int((kept & ~truth.support).sum()),
        coefficient_error=float(np.sum((coef - truth.coef) ** 2) / np.sum(truth.coef**2)),
        test_error=float(np.mean((test.y - predicted) ** 2 / truth.noise[test.tasks] ** 2)),
        seconds=seconds,
    )
