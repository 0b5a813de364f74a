"""CPU seconds of the main fits at their defaults, over the size of the data.

    python benchmarks/how_long.py [--sizes 4] [--routes penalised,cv,em,posterior]

Simulated tasks, five relevant features. Each route is run once before, on a small problem, so that compilation does
not count; seconds are those of the process, all its threads together.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import bayesmtfs as bm

SIZES = ((10, 100, 20), (10, 100, 200), (100, 100, 20), (10, 1000, 200), (10, 100, 2000))

ROUTES: dict[str, Callable[[], Any]] = {
    "penalised": lambda: bm.MixedNormRegressor(),
    "cv": lambda: bm.MixedNormRegressorCV(random_state=0),
    "em": lambda: bm.JeffreysRegressor(random_state=0),
    "integrated": lambda: bm.JeffreysRegressor(coefficients="integrated", random_state=0),
    "posterior": lambda: bm.BayesianRegressor(random_state=0, progress=False),
    "continuous": lambda: bm.BayesianRegressor(prior="generalized_normal", random_state=0, progress=False),
}


def seconds(route: str, n_tasks: int, n_rows: int, n_features: int) -> float:
    """CPU seconds of one fit."""
    sim = bm.simulate_tasks(
        n_tasks=n_tasks, n_features=n_features, n_relevant=5, n_samples=n_rows, snr=1.0, random_state=0
    )
    model, started = ROUTES[route](), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(sim.X, sim.y, tasks=sim.tasks)
    return time.process_time() - started


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, default=len(SIZES), help="how many of the sizes, from the smallest")
    parser.add_argument("--routes", default=",".join(ROUTES), help="which routes")
    asked = parser.parse_args()
    routes = asked.routes.split(",")
    for route in routes:
        seconds(route, 3, 30, 10)
    print("| tasks | rows per task | features |" + "".join(f" {route} |" for route in routes))
    print("|---|---|---|" + "---|" * len(routes))
    for size in SIZES[: asked.sizes]:
        print("| " + " | ".join(str(number) for number in size) + " |", end="", flush=True)
        for route in routes:
            print(f" {float(f'{seconds(route, *size):.2g}'):g} |", end="", flush=True)
        print(flush=True)


if __name__ == "__main__":
    main()
