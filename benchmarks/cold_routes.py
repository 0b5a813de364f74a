"""First fit of every route from an empty numba cache, each in a process of its own.

    python benchmarks/cold_routes.py [ROUTE ...]

A process imports the package and makes its data before the clock starts, fits twice, and reports both in CPU seconds:
the first fit holds what is compiled, the second what is left once it is there.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROUTES: dict[str, Callable[[], Callable[[], Any]]] = {}


def route(make: Callable[[], Callable[[], Any]]) -> Callable[[], Callable[[], Any]]:
    """Enter a route by the name of its function."""
    ROUTES[make.__name__] = make
    return make


def _data(kind: str = "regression", shared: bool = False) -> Any:
    from bayesmtfs import simulate_tasks

    return simulate_tasks(
        n_tasks=6, n_features=30, n_relevant=5, n_samples=60, shared_design=shared, kind=kind, random_state=0
    )


@route
def penalised() -> Callable[[], Any]:
    """l1,2 with a design per task."""
    from bayesmtfs import MixedNormRegressor

    sim = _data()
    return lambda: MixedNormRegressor().fit(sim.X, sim.y, tasks=sim.tasks)


@route
def penalised_shared_design() -> Callable[[], Any]:
    """l1,2 with one design for all tasks."""
    from bayesmtfs import MixedNormRegressor

    sim = _data(shared=True)
    return lambda: MixedNormRegressor().fit(sim.X, sim.y)


@route
def penalised_labels() -> Callable[[], Any]:
    """l1,2 with the logistic loss."""
    from bayesmtfs import MixedNormClassifier

    sim = _data("classification")
    return lambda: MixedNormClassifier().fit(sim.X, sim.y, tasks=sim.tasks)


@route
def em() -> Callable[[], Any]:
    """EM at the mode."""
    from bayesmtfs import JeffreysRegressor

    sim = _data()
    return lambda: JeffreysRegressor().fit(sim.X, sim.y, tasks=sim.tasks)


@route
def em_integrated() -> Callable[[], Any]:
    """EM with W integrated out."""
    from bayesmtfs import JeffreysRegressor

    sim = _data()
    return lambda: JeffreysRegressor(coefficients="integrated").fit(sim.X, sim.y, tasks=sim.tasks)


@route
def stream() -> Callable[[], Any]:
    """Dual averaging over a dense stream in batches."""
    import numpy as np

    from bayesmtfs import OnlineMixedNormClassifier

    sim = _data("classification")

    def run() -> Any:
        model = OnlineMixedNormClassifier(penalty_strength=0.01)
        for part in np.array_split(np.arange(len(sim.y)), 4):
            model.partial_fit(sim.X[part], sim.y[part], tasks=sim.tasks[part], classes=np.unique(sim.y))
        return model

    return run


@route
def sparse_stream() -> Callable[[], Any]:
    """Dual averaging over a sparse stream in batches."""
    import numpy as np
    import scipy.sparse as sp

    from bayesmtfs import OnlineMixedNormClassifier

    sim = _data("classification")
    X = sp.csr_matrix(sim.X)

    def run() -> Any:
        model = OnlineMixedNormClassifier(penalty_strength=0.01)
        for part in np.array_split(np.arange(len(sim.y)), 4):
            model.partial_fit(X[part], sim.y[part], tasks=sim.tasks[part], classes=np.unique(sim.y))
        return model

    return run


@route
def posterior() -> Callable[[], Any]:
    """Gibbs sampler with the default prior."""
    from bayesmtfs import BayesianRegressor

    sim = _data()
    return lambda: BayesianRegressor(draws=50, tune=50, chains=2, progress=False).fit(sim.X, sim.y, tasks=sim.tasks)


@route
def posterior_labels() -> Callable[[], Any]:
    """Gibbs sampler of labels with the default prior."""
    from bayesmtfs import BayesianClassifier

    sim = _data("classification")
    return lambda: BayesianClassifier(draws=50, tune=50, chains=2, progress=False).fit(sim.X, sim.y, tasks=sim.tasks)


def fit_twice(name: str) -> dict[str, float]:
    """CPU seconds of the first and the second fit."""
    warnings.simplefilter("ignore")
    run, found = ROUTES[name](), {}
    for which in ("first", "second"):
        begin = time.process_time()
        run()
        found[which] = time.process_time() - begin
    return found


def measure(name: str) -> dict[str, float]:
    """Fit twice in a fresh process with an empty cache."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"NUMBA_CACHE_DIR": str(Path(folder) / "cache"), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, __file__, "--inside", name]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
        return found


def main(arguments: list[str]) -> None:
    """Measure the named routes, or all."""
    if arguments[:1] == ["--inside"]:
        print(json.dumps(fit_twice(arguments[1])))
        return
    for name in arguments or list(ROUTES):
        found = measure(name)
        print(f"{name:26s} first {found['first']:6.2f}   second {found['second']:7.4f}   CPU s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
