"""Whole fits as users make them, for the table of `all.py`: EM of labels, posteriors, `compare`, dask.

Each function draws the data of a seed and gives seconds; what a figure is worth nothing without, such as R-hat, comes with
it. Seconds are of the CPU, but for the cluster, whose work is done by other processes: there they are of the clock.
"""

import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from dask_cluster import write_rows
from evidence import seconds
from peers_in_r import fit_in_r, why_not
from which_tasks_data import Kind, draw_data_set

import bayesmtfs as bm


class Cost(NamedTuple):
    """Seconds of ours, of the peer where there is one, and a remark."""

    ours: float
    peer: float | None = None
    remark: str = ""


def integrated_labels(seed: int) -> Cost:
    """EM of four logistic tasks with W integrated out: 315 rows in all, 1358 features, as in the prostate data."""
    sim = bm.simulate_tasks(
        n_tasks=4,
        n_features=1358,
        n_samples=[102, 79, 67, 67],
        n_relevant=15,
        kind="classification",
        design="ar",
        random_state=seed,
    )
    model = bm.JeffreysClassifier(coefficients="integrated")
    found = min(seconds(lambda: model.fit(sim.X, sim.y, tasks=sim.tasks)) for _ in range(2))
    return Cost(found, None, "converged" if model.converged_ else "not converged")


def _related_tasks(seed: int, n_tasks: int) -> tuple[Any, Callable[..., bm.BayesianRegressor]]:
    """Data of related tasks, 40 rows each and 20 features, and the model with learned relations."""
    sim = bm.simulate_tasks(
        n_tasks=n_tasks, n_features=20, n_samples=40, n_relevant=6, relatedness=0.6, random_state=seed
    )

    def model(**settings: Any) -> bm.BayesianRegressor:
        plain: dict[str, Any] = {"prior": "matrix_variate", "random_state": seed, "progress": False, "n_jobs": 1}
        return bm.BayesianRegressor(**plain | settings)

    return sim, model


def matrix_variate_posterior(seed: int, n_tasks: int = 8) -> Cost:
    """Posterior with learned relations of tasks at its default draws."""
    sim, model = _related_tasks(seed, n_tasks)
    model(draws=5, tune=5).fit(sim.X, sim.y, tasks=sim.tasks)  # compiles
    fitted = model()
    found = seconds(lambda: fitted.fit(sim.X, sim.y, tasks=sim.tasks))
    return Cost(found, None, f"R-hat {fitted.diagnostics_.largest_rhat:.3f}")


def matrix_variate_against_nuts(seed: int, n_tasks: int = 4) -> Cost:
    """CPU seconds of 1000 effective draws of the worst coefficient, tuning included: the Gibbs sampler beside NUTS."""
    sim, model = _related_tasks(seed, n_tasks)

    def cost(**settings: Any) -> float:
        model(draws=5, tune=5, chains=1, sampler=settings["sampler"]).fit(sim.X, sim.y, tasks=sim.tasks)
        fitted = model(**settings)
        spent = seconds(lambda: fitted.fit(sim.X, sim.y, tasks=sim.tasks))
        (found,) = (entry for entry in fitted.diagnostics_.table if entry.variable == "coef")
        return 1000.0 * spent / float(found.ess_bulk)

    return Cost(cost(sampler="gibbs"), cost(sampler="nuts", draws=300, tune=300, chains=2), "1000 effective draws")


def default_posterior(seed: int, sampler: str) -> Cost:
    """Posterior with exact zeros, 6 tasks on one X with n = p = 200, beside mr.mash where R has it."""
    data = draw_data_set(Kind("random"), seed)

    def model(**lengths: int) -> bm.BayesianRegressor:
        return bm.BayesianRegressor(sampler=sampler, random_state=seed, progress=False, n_jobs=1, **lengths)

    model(draws=5, tune=5, chains=2).fit(data.X, data.Y)
    fitted = model()
    found = seconds(lambda: fitted.fit(data.X, data.Y))
    remark = "" if sampler == "variational" else f"R-hat {fitted.diagnostics_.largest_rhat:.3f}"
    return Cost(found, None if why_not("mr.mash") else fit_in_r("mr.mash", data.X, data.Y).seconds, remark)


def variational_posterior(seed: int, n_features: int) -> Cost:
    """Variational posterior of many features, 400 rows, 8 tasks on one X; of more than 10,000 it draws those it chooses."""
    rng = np.random.default_rng(seed)
    X, W = rng.standard_normal((400, n_features)), np.zeros((n_features, 8))
    relevant = rng.choice(n_features, 8, replace=False)
    W[relevant] = 0.3 * rng.standard_normal((8, 8))
    Y = X @ W + rng.standard_normal((400, 8))
    most = None if n_features <= 10_000 else 1000
    model = bm.BayesianRegressor(sampler="variational", max_features=most, random_state=seed, progress=False)
    model.fit(X[:, :50], Y)
    found = seconds(lambda: model.fit(X, Y))
    kept = model.inclusion_probability_ > 0.5
    return Cost(
        found, None, f"{int(kept[relevant].sum())} of 8 relevant, {int(kept.sum() - kept[relevant].sum())} others"
    )


def compared(seed: int) -> Cost:
    """`compare` of a penalised, an EM and a posterior fit on 220 rows of four tasks, five folds."""
    sim = bm.simulate_tasks(n_tasks=4, n_features=20, n_samples=55, n_relevant=5, random_state=seed)

    def run(**lengths: int) -> None:
        posterior = bm.BayesianRegressor(random_state=seed, progress=False, n_jobs=1, **lengths)
        models = [bm.MixedNormRegressorCV(random_state=seed), bm.JeffreysRegressor(), posterior]
        bm.compare(models, sim.X, sim.y, tasks=sim.tasks, cv=5, progress=False)

    run(draws=100, tune=50, chains=2)  # compiles
    return Cost(seconds(run))


def clock(run: Callable[[], Any]) -> float:
    """Seconds of the clock of a call."""
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def dask_logistic(seed: int, whole: bool) -> Cost:
    """A logistic fit of 100,000 rows by two worker processes beside one here: the whole fit, or one pass over the rows.

    A pass is one product of the rows with the coefficients and one back, over rows that were read before, there and here;
    the whole fit of the cluster reads its files. The remark has a round trip to the workers that does nothing.
    """
    import dask.dataframe as dd
    import pandas as pd
    from dask.distributed import Client, LocalCluster

    from bayesmtfs.convex.proximal_gradient import row_sums
    from bayesmtfs.estimators.distributed import DaskPasses, blocks_of, fit_dask
    from bayesmtfs.estimators.streams import Columns
    from bayesmtfs.families import find_family

    def fit(frame: Any) -> bm.MixedNormClassifier:
        return fit_dask(bm.MixedNormClassifier(), frame.drop(columns="y"), "label", "task", classes=[-1, 1])

    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        write_rows(Path(name), 100_000, seed)
        rows = pd.concat([pd.read_parquet(file) for file in sorted(Path(name).glob("*.parquet"))])
        X = rows.drop(columns=["y", "label", "task"]).to_numpy()
        here = bm.MixedNormClassifier()
        local = min(clock(lambda: here.fit(X, rows["label"], tasks=rows["task"])) for _ in range(2))
        frame = dd.read_parquet(name)
        data = bm.TaskData.from_long(X, rows["label"].to_numpy(float), rows["task"])
        point = here.coef_.T.copy(), here.intercept_
        with (
            LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
            Client(cluster) as client,
        ):
            fit(frame)
            if whole:
                begin = time.perf_counter()
                model = fit(frame)
                there = time.perf_counter() - begin
                difference = np.abs(model.coef_ - here.coef_).max()
                return Cost(there, local, f"clock; {model.n_iter_} steps; coefficients equal to {difference:.0e}")
            blocks, _ = blocks_of(frame.drop(columns="y"), Columns("label", "task", None), [-1, 1])
            passes = DaskPasses(blocks, "sum", find_family("logistic"))
            turns = [
                (
                    clock(lambda: passes.sums(*point)),
                    clock(lambda: row_sums(data, data.weight, passes.family, *point)),
                    clock(lambda: client.run(int)),
                )
                for _ in range(15)
            ]
    there, one, nothing = (min(times) for times in zip(*turns, strict=True))
    return Cost(there, one, f"clock; a round trip that does nothing {1e3 * nothing:.1f} ms")
