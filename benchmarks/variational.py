"""The variational posterior: time and quality beside the sampler, features that screening keeps, calibration.

    uv run python benchmarks/variational.py [--seeds 900,901] [--kinds main]                      # beside the sampler
    uv run python benchmarks/variational.py --sizes 1000,10000 [--rows 400] [--tasks 8]          # CPU time
    uv run python benchmarks/variational.py --screening 200 [--features 5000]                    # relevant ones kept
    uv run python benchmarks/variational.py --calibration 60                                     # truth from the prior

Data as in `which_tasks.py`. Seconds are of the CPU; run it twice, since the first run compiles.
"""

import argparse
import time
import warnings

import numpy as np
import which_tasks
from numpy.typing import NDArray
from which_tasks_data import KINDS, Kind, draw_data_set

import bayesmtfs as bm
from bayesmtfs.data.scaling import in_sampling_units, sampling_units
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import Gaussian
from bayesmtfs.models.spike import draw_patterns
from bayesmtfs.posterior.preparation import screen
from bayesmtfs.posterior.variational import features_to_draw, fit
from bayesmtfs.priors.spike import spike_prior_for
from bayesmtfs.variational.effects import inclusion

Floats = NDArray[np.float64]


def scaled(X: Floats, Y: Floats) -> TaskData:
    """The wide form in units of sampling."""
    data = TaskData.from_wide(X, Y)
    return in_sampling_units(
        data, sampling_units(data, centre=True, per_task=False, scale_target=True, own_targets=True)
    )


def fit_scaled(data: TaskData) -> tuple[object, float]:
    """Variational fit and its CPU seconds."""
    start = time.process_time()
    found = fit(data, Gaussian(), spike_prior_for(data, Gaussian()), False)
    return found, time.process_time() - start


def beside_the_sampler(options: argparse.Namespace) -> None:
    """Inclusion probabilities, coefficients and seconds of both samplers."""
    print("| data | sampler | missed | features false/found | entries false/found | CPU s | largest gap |")
    print("|---" * 7 + "|")
    for name in which_tasks.kinds_of(options.kinds):
        for seed in map(int, options.seeds.split(",")):
            data = draw_data_set(KINDS[name], seed)
            known: Floats | None = None
            for sampler in ("gibbs", "variational"):
                model = bm.BayesianRegressor(sampler=sampler, random_state=0, n_jobs=1, progress=False)
                start = time.process_time()
                model.fit(data.X, data.Y)
                seconds = time.process_time() - start
                chances = model.inclusion_probability_, model.task_inclusion_probability_.T
                estimate = which_tasks.Estimate(seconds, model.coef_.T, model.intercept_, *chances)
                score = which_tasks.score(data, estimate)
                gap = 0.0 if known is None else float(np.abs(chances[0] - known).max())
                known = chances[0]
                features, entries = (f"{part[0]}/{part[1]}" for part in (score.features, score.entries))
                cells = [name, sampler, f"{score.missed:.3f}", features, entries, f"{seconds:.1f}", f"{gap:.3f}"]
                print("| " + " | ".join(cells) + " |", flush=True)


def sizes(options: argparse.Namespace) -> None:
    """CPU seconds of the fit alone over numbers of features."""
    for p in map(int, options.sizes.split(",")):
        rng = np.random.default_rng(p)
        X, B = rng.standard_normal((options.rows, p)), np.zeros((p, options.tasks))
        B[rng.choice(p, 8, replace=False)] = 0.3 * rng.standard_normal((8, options.tasks))
        Y = X @ B + rng.standard_normal((options.rows, options.tasks))
        found, seconds = fit_scaled(scaled(X, Y))
        chance = inclusion(found.found.state, p)
        print(
            f"p = {p}: {seconds:.1f} CPU s, {found.found.n_iter} sweeps, {len(found.found.state.effects)} effects, "
            f"{int((chance > 0.5).sum())} likely, {int((chance[B.any(axis=1)] > 0.5).sum())} of 8 relevant",
            flush=True,
        )
        for sampler in ("variational", "gibbs"):
            model = bm.BayesianRegressor(sampler=sampler, random_state=0, n_jobs=1, progress=False)
            start = time.process_time()
            model.fit(X, Y)
            likely = model.inclusion_probability_ > 0.5
            print(
                f"  whole fit, {sampler}: {time.process_time() - start:.1f} CPU s, "
                f"{int(likely.sum())} likely, {int(likely[B.any(axis=1)].sum())} of 8 relevant",
                flush=True,
            )


def screening(options: argparse.Namespace) -> None:
    """Share of the relevant features that are kept."""
    kind = Kind("independent", m=options.tasks, p=options.features)
    kept: dict[str, list[float]] = {"variational": [], "correlation": []}
    for seed in map(int, options.seeds.split(",")):
        data = draw_data_set(kind, seed)
        units, relevant = scaled(data.X, data.Y), data.B.any(axis=1)
        kept["variational"].append(features_to_draw(fit_scaled(units)[0], options.screening)[relevant].mean())
        kept["correlation"].append(screen(units, Gaussian(), True, options.screening)[relevant].mean())
        print({name: round(float(np.mean(shares)), 3) for name, shares in kept.items()}, flush=True)


def calibration(options: argparse.Namespace) -> None:
    """Truth by bins of the inclusion probabilities of the variational distribution itself."""
    n, p, m, chances, truths = 100, 60, 4, [], []
    for seed in range(options.calibration):
        rng = np.random.default_rng([77, seed])
        on = draw_patterns(rng, p, 4.0 / p, 1.0, np.array([0.3, 0.3, 0.4]), np.outer([0.3, 0.7, 1.0], np.ones(m)))
        share = rng.choice([0.0, 0.7, 1.0], size=(p, 1))
        effect = np.sqrt(share) * rng.standard_normal((p, 1)) + np.sqrt(1.0 - share) * rng.standard_normal((p, m))
        W = on * rng.choice([0.14, 0.28, 0.56], size=(p, 1)) * effect
        X = rng.standard_normal((n, p)) + options.correlation * rng.standard_normal((n, 1))
        found = fit_scaled(scaled(X, X @ W + rng.standard_normal((n, m))))[0]
        chances.append(inclusion(found.found.state, p))
        truths.append(W.any(axis=1))
    chance, truth = np.concatenate(chances), np.concatenate(truths)
    print("| stated | true | features |\n|---|---|---|")
    for low, high in ((0, 0.1), (0.1, 0.3), (0.3, 0.5), (0.5, 0.7), (0.7, 0.9), (0.9, 1.01)):
        inside = (chance >= low) & (chance < high)
        if inside.any():
            print(f"| {chance[inside].mean():.3f} | {truth[inside].mean():.3f} | {inside.sum()} |", flush=True)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="900,901")
    parser.add_argument("--kinds", default="main", help="as in which_tasks.py")
    parser.add_argument("--tasks", type=int, default=6)
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--features", type=int, default=5000)
    parser.add_argument("--correlation", type=float, default=0.5)
    parser.add_argument("--sizes", default="")
    parser.add_argument("--screening", type=int, default=0)
    parser.add_argument("--calibration", type=int, default=0)
    options = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, run in (("sizes", sizes), ("screening", screening), ("calibration", calibration)):
            if getattr(options, name):
                run(options)
                return
        beside_the_sampler(options)


if __name__ == "__main__":
    main()
