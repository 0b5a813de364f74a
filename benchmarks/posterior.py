"""Effective draws per second of the Gibbs sampler against NUTS on the same posterior.

    python benchmarks/posterior.py [--tasks 20 139] [--q 2 4 learn] [--draws 1000] [--chains 2] [--quick] [--school]
    python benchmarks/posterior.py --tasks --genes 500 2000 [--seeds 0 1 2] [--screened 300] [--nuts-draws 300]
    python benchmarks/posterior.py --tasks --genes 200 500 --targets normal --q 2 4
    python benchmarks/posterior.py --tasks --classes 1 4 --nuts-draws 1000 --samplers nutpie [--seeds 1 2]

One model, one data set, several samplers: ours, nutpie, the NUTS of PyMC and that of numpyro (where installed). Data are
like the School data: 27 features, 40 to 110 rows per task, a third of the features relevant. With ``--genes`` they are
like microarrays with labels, or with ``--targets normal`` with numbers: hundreds or thousands of correlated features, of
which 10 matter, and three tasks of 50 to 100 rows; ``--screened`` keeps so many features of them. With ``--classes``
there are three classes within tasks: one task is Fisher's iris data, several have 20 features, 4 of which matter, and 60
rows. The figure is the smallest effective sample size (bulk and tail) over coefficients, logarithms of the row scales,
noise, and 1/q where it is learned, per CPU second of sampling, tuning included; compilation is timed apart. A figure
counts only where R-hat is below 1.01.
"""

import argparse
import importlib.util
import logging
import os
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_iris

from bayesmtfs.data.classes import class_tasks, classes_of
from bayesmtfs.data.scaling import in_sampling_units, sampling_units, scaled
from bayesmtfs.data.simulation import simulate_tasks
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import find_family
from bayesmtfs.gibbs.chain import ChainSettings, PosteriorDraws, more_rows_than_features, sample_chain
from bayesmtfs.papers.datasets import load_school
from bayesmtfs.posterior.preparation import chosen_features, screen
from bayesmtfs.priors.hyperpriors import Hyperprior, hyperprior_for

GOOD_R_HAT = 1.01
Draws = dict[str, NDArray[np.float64]]  # (chains, draws, entries) per name


class Figures(NamedTuple):
    """What a sampler did."""

    sampler: str
    bulk: float  # smallest effective sample sizes
    tail: float
    r_hat: float
    worst: str  # variable of the smallest bulk size
    seconds: float
    compilation: float

    @property
    def rate(self) -> float:
        """Smallest effective sample size per second."""
        return min(self.bulk, self.tail) / self.seconds


def school_like(n_tasks: int, random_state: int = 0) -> TaskData:
    """Simulated data of the size of School."""
    sizes = np.random.default_rng(random_state).integers(40, 111, n_tasks).tolist()
    sim = simulate_tasks(
        n_tasks=n_tasks,
        n_features=27,
        n_samples=sizes,
        n_relevant=9,
        norm_q=3.0,
        snr=1.0,
        design="ar",
        intercept_scale=1.0,
        random_state=random_state,
    )
    return sim.data


def microarray_like(n_genes: int, random_state: int = 0, labels: bool = True) -> TaskData:
    """Simulated labels or numbers of three studies with many more genes than samples; 10 genes matter."""
    sim = simulate_tasks(
        n_tasks=3,
        n_features=n_genes,
        n_samples=[50, 75, 100],
        n_relevant=10,
        relatedness=0.5,
        snr=5.0,
        design="ar",
        correlation=0.6,
        kind="classification" if labels else "regression",
        random_state=random_state,
    )
    return sim.data


def with_classes(n_tasks: int, random_state: int) -> TaskData:
    """Three classes within tasks: correlated features of unlike levels and units, or iris."""
    if n_tasks == 1:
        X, y = load_iris(return_X_y=True)
        data = TaskData.from_long(X, y)
    else:
        rng = np.random.default_rng(random_state)
        X, tasks = rng.standard_normal((60 * n_tasks, 20)), np.repeat(np.arange(n_tasks), 60)
        X[:, 1:] += 0.5 * X[:, :-1]
        W = rng.standard_normal((4, 3)) + 0.7 * rng.standard_normal((n_tasks, 4, 3))
        eta = np.einsum("np,npk->nk", X[:, :4], W[tasks]) + 0.5 * rng.standard_normal((n_tasks, 3))[tasks]
        y = np.argmax(eta + rng.gumbel(size=eta.shape), axis=1)
        data = TaskData.from_long(1.0 + 2.0 * X, y, tasks)
    data = class_tasks(*classes_of(data))
    options = {"centre": True, "per_task": False, "scale_target": False, "own_targets": False}
    return in_sampling_units(data, sampling_units(data, **options))


def prior_for(data: TaskData, norm_q: float | None, loss: str = "squared") -> Hyperprior:
    """Half-Cauchy scales whatever q; with more features than rows ten of them are expected to matter."""
    expected = 10.0 if loss == "logistic" or not more_rows_than_features(data) else None
    return hyperprior_for(data, loss, expected_features=expected, scale_power=None if norm_q == 2.0 else 2.0)


def figures_of(sampler: str, draws: Draws, seconds: float, compilation: float) -> Figures:
    """Smallest effective sample sizes and largest R-hat."""
    from arviz_stats.base import array_stats

    axes = {"chain_axis": 0, "draw_axis": 1}
    bulk: dict[str, float] = {}
    tail: dict[str, float] = {}
    r_hat: dict[str, float] = {}
    for name, values in draws.items():
        bulk[name] = float(np.min(array_stats.ess(values, method="bulk", **axes)))
        tail[name] = float(np.min(array_stats.ess(values, method="tail", prob=(0.05, 0.95), **axes)))
        r_hat[name] = float(np.max(array_stats.rhat(values, method="rank", **axes)))
    worst = min(bulk, key=bulk.__getitem__)
    return Figures(sampler, bulk[worst], min(tail.values()), max(r_hat.values()), worst, seconds, compilation)


def watched(coef: Any, row_scale: Any, noise: Any, norm_q: Any, learned: bool, labels: bool = False) -> Draws:
    """Variables over which the smallest size is taken, each (chains, draws, entries)."""
    draws = {"coef": coef, "log row_scale": np.log(row_scale)}
    if not labels:
        draws["noise"] = noise
    if learned:
        draws["1/q"] = 1.0 / np.asarray(norm_q)
    return {name: np.reshape(values, (*np.shape(values)[:2], -1)) for name, values in draws.items()}


def run_gibbs(
    data: TaskData,
    norm_q: float | None,
    draws: int,
    tune: int,
    chains: int,
    prior: Hyperprior,
    loss: str = "squared",
) -> Figures:
    """Ours, one chain after another."""
    begin = time.process_time()
    sample_chain(data, prior, ChainSettings(draws=1, tune=1, norm_q=norm_q), loss=loss)
    compilation = time.process_time() - begin
    begin = time.process_time()
    found: list[PosteriorDraws] = [
        sample_chain(data, prior, ChainSettings(draws=draws, tune=tune, random_seed=seed, norm_q=norm_q), loss=loss)
        for seed in range(chains)
    ]
    seconds = time.process_time() - begin
    stacked = [np.stack([getattr(one, name) for one in found]) for name in ("W", "row_scales", "noise", "norm_q")]
    variables = watched(*stacked, norm_q is None, not find_family(loss).has_noise)
    return figures_of("bayesmtfs Gibbs", variables, seconds, compilation)


def run_nuts(
    data: TaskData,
    norm_q: float | None,
    draws: int,
    chains: int,
    prior: Hyperprior,
    sampler: str,
    loss: str = "squared",
) -> Figures:
    """A generic sampler on the PyMC model, after as many draws of tuning."""
    from bayesmtfs.models import generalized_normal_model

    model = generalized_normal_model(data, "learn" if norm_q is None else norm_q, loss, prior=prior)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree, seconds, compilation = (sample_nutpie if sampler == "nutpie" else sample_pymc)(
            model, draws, chains, sampler
        )
    posterior = tree["posterior"].dataset
    labels = not find_family(loss).has_noise
    names = ("coef", "row_scale", "intercept" if labels else "noise", "norm_q")
    values = [posterior[name].values for name in names]
    return figures_of(f"{sampler} NUTS", watched(*values, norm_q is None, labels), seconds, compilation)


def sample_nutpie(model: Any, draws: int, chains: int, sampler: str) -> tuple[Any, float, float]:
    """Posterior, seconds of sampling, seconds of compilation."""
    import nutpie

    begin = time.process_time()
    compiled = nutpie.compile_pymc_model(model)
    compilation, begin = time.process_time() - begin, time.process_time()
    tree = nutpie.sample(compiled, draws=draws, tune=draws, chains=chains, cores=1, seed=0, progress_bar=False)
    return tree, time.process_time() - begin, compilation


def sample_pymc(model: Any, draws: int, chains: int, sampler: str) -> tuple[Any, float, float]:
    """Posterior, seconds of sampling, seconds of compilation: those of a run of two draws, which are taken off."""
    import pymc as pm

    logging.getLogger("pymc").setLevel(logging.ERROR)

    def run(draws: int, chains: int) -> tuple[Any, float]:
        begin = time.process_time()
        options = {"random_seed": 0, "progressbar": False, "compute_convergence_checks": False}
        tree = pm.sample(draws=draws, tune=draws, chains=chains, cores=1, nuts_sampler=sampler, model=model, **options)
        return tree, time.process_time() - begin

    run(2, 1)
    _, compilation = run(2, 1)
    tree, seconds = run(draws, chains)
    return tree, max(seconds - compilation, 1e-3), compilation


def compare(
    data: TaskData,
    norm_q: float | None,
    draws: int,
    tune: int,
    chains: int,
    nuts_draws: int,
    samplers: list[str],
    loss: str = "squared",
) -> list[Figures]:
    """Figures of all samplers that are installed."""
    prior = prior_for(data, norm_q, loss)
    found = [run_gibbs(data, norm_q, draws, tune, chains, prior, loss)]
    print(line(found[0], found[0]), flush=True)
    for sampler in samplers:
        if sampler != "pymc" and importlib.util.find_spec(sampler) is None:
            print(f"  {sampler} is not installed")
            continue
        found.append(run_nuts(data, norm_q, nuts_draws, chains, prior, sampler, loss))
        print(line(found[-1], found[0]), flush=True)
    return found


def line(figures: Figures, ours: Figures) -> str:
    """One line of the table."""
    trusted = "" if figures.r_hat < GOOD_R_HAT else "  (R-hat too large: does not count)"
    return (
        f"  {figures.sampler:16s} min ESS bulk {figures.bulk:6.0f} ({figures.worst}) tail {figures.tail:6.0f}   "
        f"{figures.seconds:7.2f} s   {figures.rate:8.1f} per s   ours / this {ours.rate / figures.rate:6.1f}   "
        f"R-hat {figures.r_hat:.4f}   first call {figures.compilation:.1f} s{trusted}"
    )


def school(draws: int, tune: int, chains: int) -> Figures:
    """School with q learned: seconds, R-hat, and what the posterior says."""
    data = load_school(bias=False).data
    scales = np.asarray(data.X).std(axis=0)
    data = scaled(data, np.repeat(1.0 / scales[:, np.newaxis], data.n_tasks, axis=1))
    prior = prior_for(data, None)
    figures = run_gibbs(data, None, draws, tune, chains, prior)
    print(f"School, {data.n_tasks} tasks, {data.n_features} features, q learned")
    print(line(figures, figures))
    found = sample_chain(data, prior, ChainSettings(draws=draws, tune=tune, norm_q=None))
    low, middle, high = np.quantile(found.norm_q, [0.05, 0.5, 0.95])
    print(f"  q {middle:.2f} (90% interval {low:.2f} to {high:.2f})")
    for i in np.argsort(-np.median(found.row_scales, axis=0))[:8]:
        print(f"  {data.feature_names[i]:24s} row scale {np.median(found.row_scales[:, i]):.3f}")
    return figures


def genes(options: argparse.Namespace, n_genes: int, run: Callable[..., list[Figures]]) -> None:
    """Data with more features than rows, for every seed and, with normal targets, every q."""
    labels = options.targets == "labels"
    loss, exponents = ("logistic", ["2"]) if labels else ("squared", options.q)
    for seed in options.seeds:
        data = microarray_like(n_genes, seed, labels)
        if options.screened:
            data = chosen_features(data, screen(data, find_family(loss), True, options.screened))
        for text in exponents:
            norm_q = None if text == "learn" else float(text)
            print(f"{n_genes} genes ({data.n_features} sampled), data seed {seed}, {options.targets}, q {text}")
            lengths = (options.draws, options.draws // 2, options.chains, options.nuts_draws)
            run(data, norm_q, *lengths, options.samplers, loss)


def main(run: Callable[..., list[Figures]] = compare) -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, nargs="*", default=[20, 139])
    parser.add_argument("--q", nargs="*", default=["2", "4", "learn"])
    parser.add_argument("--genes", type=int, nargs="*", default=[], help="numbers of features, more than rows")
    parser.add_argument("--targets", choices=["labels", "normal"], default="labels", help="of the genes")
    parser.add_argument("--classes", type=int, nargs="*", default=[], help="numbers of tasks with three classes")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0], help="of the data with genes or classes")
    parser.add_argument("--screened", type=int, default=None, help="number of genes that are kept")
    parser.add_argument("--draws", type=int, default=2000, help="of the Gibbs sampler, after half as many")
    parser.add_argument("--nuts-draws", type=int, default=300, help="of NUTS, after as many")
    parser.add_argument("--chains", type=int, default=2)
    parser.add_argument("--samplers", nargs="*", default=["nutpie", "pymc", "numpyro"])
    parser.add_argument("--quick", action="store_true", help="tiny data and few draws, ours alone")
    parser.add_argument("--school", action="store_true", help="also the School data (BAYESMTFS_DATA)")
    options = parser.parse_args()
    if options.quick:
        options.tasks, options.draws, options.samplers = [4], 100, []
    for n_tasks in options.tasks:
        data = school_like(n_tasks)
        for text in options.q:
            norm_q = None if text == "learn" else float(text)
            print(f"{n_tasks} tasks, q {'learned' if norm_q is None else text}")
            run(data, norm_q, options.draws, options.draws // 2, options.chains, options.nuts_draws, options.samplers)
    for n_genes in options.genes:
        genes(options, n_genes, run)
    for n_tasks in options.classes:
        for seed in options.seeds if n_tasks > 1 else [0]:
            print(f"3 classes in {n_tasks} tasks, data seed {seed}")
            lengths = (options.draws, options.draws // 2, options.chains, options.nuts_draws)
            run(with_classes(n_tasks, seed), 2.0, *lengths, options.samplers, "multinomial")
    if options.school:
        if "BAYESMTFS_DATA" not in os.environ:
            raise SystemExit("set BAYESMTFS_DATA to the folder of the data sets")
        school(options.draws, options.draws // 2, options.chains)


if __name__ == "__main__":
    main()
