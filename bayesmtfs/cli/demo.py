"""One simulated problem with known truth, walked through the three uses: penalised path, EM with q, posterior."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from sklearn.linear_model import LassoCV

from bayesmtfs import plots
from bayesmtfs.data.simulation import SimulatedTasks, simulate_tasks
from bayesmtfs.estimators.bayesian import BayesianRegressor
from bayesmtfs.estimators.em import JeffreysRegressor
from bayesmtfs.estimators.penalised_cv import MixedNormRegressorCV
from bayesmtfs.reporting import report
from bayesmtfs.types import BoolArray, FloatArray, IntArray

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
    train, test = ((truth.X[chosen], truth.y[chosen], tasks[chosen]) for chosen in (is_train, ~is_train))
    rows, fits = [], {}
    for name, text, model in _walk(seed):
        say(text)
        started = time.perf_counter()
        model.fit(*train)
        rows.append(_score(name, truth, test, model, time.perf_counter() - started))
        if hasattr(model, "result_"):
            fits[name] = model
    return Demo(truth, rows, fits)


class LassoPerTask:
    """The lasso of scikit-learn, cross-validated in each task alone."""

    def fit(self, X: FloatArray, y: FloatArray, tasks: IntArray) -> None:
        """Fit one model per task, of tasks 0, 1, and so on."""
        models = [LassoCV(max_iter=20_000).fit(X[tasks == t], y[tasks == t]) for t in np.unique(tasks)]
        self.coef_ = np.array([model.coef_ for model in models])
        self.intercept_ = np.array([model.intercept_ for model in models])

    def get_support(self) -> BoolArray:
        """(p,) Features with a coefficient in any task."""
        return np.asarray((self.coef_ != 0).any(axis=0))


def _walk(seed: int) -> list[tuple[str, str, Any]]:
    """The three uses, and what they are compared with: name, what it does, estimator."""
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
        (
            "lasso per task",
            "Each task alone, for comparison: the lasso of scikit-learn, cross-validated",
            LassoPerTask(),
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


def _score(
    method: str, truth: SimulatedTasks, test: tuple[FloatArray, FloatArray, IntArray], model: Any, seconds: float
) -> DemoScore:
    X, y, tasks = test
    kept = model.get_support()
    predicted = (X * model.coef_[tasks]).sum(axis=1) + model.intercept_[tasks]
    return DemoScore(
        method=method,
        found=int((kept & truth.support).sum()),
        wrongly_kept=int((kept & ~truth.support).sum()),
        coefficient_error=float(np.sum((model.coef_ - truth.coef) ** 2) / np.sum(truth.coef**2)),
        test_error=float(np.mean((y - predicted) ** 2 / truth.noise[tasks] ** 2)),
        seconds=seconds,
    )
