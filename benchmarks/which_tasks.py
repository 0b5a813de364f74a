"""Which features, and in which tasks: false discoveries, power and missed signal where effects are exactly zero.

    uv run python benchmarks/which_tasks.py [--seeds 100,101,102] [--tasks 6] [--labels] [--jobs 2]
    uv run python benchmarks/which_tasks.py --rivals FOLDER     # data sets with the estimates of other packages

Data after the designs of Morgante et al. (2023, PLoS Genetics 19: e1010539): genotypes 0, 1, 2 in blocks of 20 whose latent
normals have correlation .9 between neighbours, 5 of 200 features relevant, a fifth of each target's variance explained.
Scenarios: equal effects in all tasks; independent ones; equal ones in half of the tasks, the same half for all features
(``subset``) or another one for each feature (``random``); one task only (``mostly null``); two blocks of tasks, each with
features of its own (``subgroups``). Every task has the same rows (``shared``) or 150 of its own (``own``).

Discoveries are the largest set whose mean probability of being false is at most 5%. Missed is the share of the signal's
variance on new rows; standard errors are over data sets.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from realistic import largest_set
from sklearn.linear_model import LassoCV, LogisticRegressionCV

import bayesmtfs as bm

Floats = NDArray[np.float64]
SCENARIOS = ("equal", "independent", "subset", "random", "mostly null", "subgroups")


class DataSet(NamedTuple):
    """Rows, targets (NaN: not observed), new rows and the true coefficients and levels."""

    X: Floats
    Y: Floats
    Xt: Floats
    B: Floats  # (p, m)
    level: float


class Estimate(NamedTuple):
    """What a method says: linear predictors of the new rows, and probabilities where it has them."""

    signal: Floats
    seconds: float
    feature: Floats | None = None  # (p,)
    entry: Floats | None = None  # (p, m)


def genotypes(rng: np.random.Generator, n: int, frequency: Floats, correlation: float = 0.9, block: int = 20) -> Floats:
    """Counts 0, 1, 2 of an allele with the given frequencies."""
    p, counts = len(frequency), np.zeros((n, len(frequency)))
    cut = np.quantile(np.random.default_rng(0).standard_normal(200_001), 1.0 - frequency)
    for _ in range(2):
        latent = rng.standard_normal((n, p))
        for i in range(p):
            if i % block:
                latent[:, i] = correlation * latent[:, i - 1] + np.sqrt(1 - correlation**2) * latent[:, i]
        counts += latent > cut
    return counts


def coefficients(scenario: str, rng: np.random.Generator, p: int, m: int, n_relevant: int = 5) -> Floats:
    """(p, m) Coefficients before they are scaled to the variance that they explain."""
    B, half = np.zeros((p, m)), rng.permutation(m)[: max(m // 2, 1)]
    for number, i in enumerate(rng.choice(p, n_relevant, replace=False)):
        effect = np.full(m, rng.standard_normal())
        if scenario == "independent":
            effect = rng.standard_normal(m)
        elif scenario == "mostly null":
            half = rng.permutation(m)[:1]
        elif scenario == "random":
            half = rng.permutation(m)[: rng.integers(1, m + 1)]
        elif scenario == "subgroups":
            half = np.arange(m)[(np.arange(m) < m // 2) == (number % 2 == 0)]
        tasks = np.arange(m) if scenario in ("equal", "independent") else half
        B[i, tasks] = effect[tasks]
    return B


def draw_data_set(scenario: str, seed: int, m: int, own: bool, labels: bool, p: int = 200) -> DataSet:
    """One data set; a task that no feature acts in is noise only."""
    rng = np.random.default_rng([seed, SCENARIOS.index(scenario), m, own, labels])
    n = 150 * m if own else (400 if labels else 200)
    frequency = rng.uniform(0.05, 0.5, p)
    X, Xt = genotypes(rng, n, frequency), genotypes(rng, 1000, frequency)
    B = coefficients(scenario, rng, p, m)
    spread = (Xt @ B).std(axis=0)
    B = B / np.where(spread > 0, spread, 1.0)
    eta = (X - Xt.mean(axis=0)) @ B
    if labels:
        B, eta = 1.5 * B, 1.5 * eta
        Y = np.where(rng.random((n, m)) < 1.0 / (1.0 + np.exp(-eta)), 1.0, -1.0)
    else:
        Y = eta + 2.0 * rng.standard_normal((n, m))
    if own:
        Y[np.arange(n)[:, None] // 150 != np.arange(m)] = np.nan
    return DataSet(X, Y, Xt, B, float("nan"))


# ---------------------------------------------------------------------- methods


def by_posterior(prior: str, data: DataSet, labels: bool) -> Estimate:
    """One of our priors, everything else at its defaults."""
    kind = bm.BayesianClassifier if labels else bm.BayesianRegressor
    model = kind(prior=prior, random_state=0, progress=False, n_jobs=1)
    start = time.process_time()
    model.fit(*_as_given(data, labels), **_tasks_of(data, labels))
    seconds = time.process_time() - start
    signal = data.Xt @ model.coef_.T + model.intercept_
    return Estimate(signal, seconds, model.inclusion_probability_, model.task_inclusion_probability_.T)


def _as_given(data: DataSet, labels: bool) -> tuple[Floats, Floats]:
    """The wide form, or for labels, which are complete or observed in one task per row, the long one."""
    if not labels:
        return data.X, data.Y
    row, task = np.nonzero(~np.isnan(data.Y))
    return data.X[row], data.Y[row, task]


def _tasks_of(data: DataSet, labels: bool) -> dict[str, Any]:
    return {"tasks": np.nonzero(~np.isnan(data.Y))[1]} if labels else {}


def by_lasso(data: DataSet, labels: bool) -> Estimate:
    """The lasso of each task, penalty from five folds."""
    start, columns = time.process_time(), []
    for y in data.Y.T:
        seen = ~np.isnan(y)
        if labels:
            model: Any = LogisticRegressionCV(
                Cs=8, l1_ratios=(1.0,), solver="liblinear", scoring="neg_log_loss", use_legacy_attributes=False
            )
        else:
            model = LassoCV(cv=5)
        model.fit(data.X[seen], y[seen])
        columns.append(model.decision_function(data.Xt) if labels else model.predict(data.Xt))
    return Estimate(np.column_stack(columns), time.process_time() - start)


def by_group_lasso(data: DataSet, labels: bool) -> Estimate:
    """Our l1,2 with its penalty from folds."""
    kind = bm.MixedNormClassifierCV if labels else bm.MixedNormRegressorCV
    start = time.process_time()
    model = kind(random_state=0).fit(*_as_given(data, labels), **_tasks_of(data, labels))
    return Estimate(data.Xt @ model.coef_.T + model.intercept_, time.process_time() - start)


METHODS: dict[str, Callable[[DataSet, bool], Estimate]] = {
    "spike": lambda data, labels: by_posterior("spike", data, labels),
    "half-Cauchy": lambda data, labels: by_posterior("generalized_normal", data, labels),
    "l1,2 CV": by_group_lasso,
    "lasso": by_lasso,
}


# ---------------------------------------------------------------------- scores


class Score(NamedTuple):
    """Figures of one method on one data set."""

    missed: float
    seconds: float
    features: tuple[int, int, int] | None = None  # false, found, relevant
    entries: tuple[int, int, int] | None = None
    bins: Floats | None = None  # (10, 3) of entry probabilities: how many, their sum, true ones


def score(data: DataSet, estimate: Estimate) -> Score:
    """Figures of an estimate."""
    truth = data.Xt @ data.B
    centred = truth - truth.mean(axis=0)
    off = estimate.signal - truth - (data.level if np.isfinite(data.level) else 0.0)
    if not np.isfinite(data.level):  # levels are the method's own
        off = off - off.mean(axis=0)
    missed = float((off**2).mean() / (centred**2).mean())
    if estimate.feature is None or estimate.entry is None:
        return Score(missed, estimate.seconds)
    relevant, effect = data.B.any(axis=1), data.B != 0
    found, entries = largest_set(estimate.feature), largest_set(estimate.entry)
    place = np.minimum((10 * estimate.entry).astype(int), 9).ravel()
    parts = (np.ones(place.size), estimate.entry.ravel(), effect.ravel().astype(float))
    return Score(
        missed,
        estimate.seconds,
        (int((found & ~relevant).sum()), int(found.sum()), int(relevant.sum())),
        (int((entries & ~effect).sum()), int(entries.sum()), int(effect.sum())),
        np.column_stack([np.bincount(place, part, 10) for part in parts]),
    )


def describe(scores: list[Score]) -> str:
    """One row of a table: missed with its standard error, false/found and power of features and entries, seconds."""
    missed = np.array([s.missed for s in scores])
    error = missed.std(ddof=1) / np.sqrt(len(missed)) if len(missed) > 1 else np.nan
    cells = [f"{missed.mean():.3f} ({error:.3f})"]
    for kind in ("features", "entries"):
        triples = [getattr(s, kind) for s in scores if getattr(s, kind) is not None]
        false, found, relevant = np.sum(triples, axis=0) if triples else (0, 0, 1)
        cells += [f"{false}/{found}", f"{(found - false) / relevant:.2f}"] if triples else ["", ""]
    return " | ".join([*cells, f"{np.median([s.seconds for s in scores]):.1f}"])


def print_table(title: str, rows: Iterable[tuple[str, list[Score]]]) -> None:
    """Print a table in Markdown."""
    print(f"\n| {title} | missed (s.e.) | features false/found | power | entries false/found | power | CPU s |")
    print("|---" * 7 + "|")
    for name, scores in rows:
        print(f"| {name} | {describe(scores)} |", flush=True)


def print_bins(scores: list[Score]) -> None:
    """Print how often entries of a stated probability have an effect."""
    total = np.sum([s.bins for s in scores if s.bins is not None], axis=0)
    print("\n| stated | true | entries |\n|---|---|---|")
    for count, stated, true in total:
        if count:
            print(f"| {stated / count:.3f} | {true / count:.3f} | {count:.0f} |")


# ---------------------------------------------------------------------- runs


def fit_and_score(name: str, scenario: str, seed: int, m: int, own: bool, labels: bool) -> Score:
    """One method on one fresh data set."""
    data = draw_data_set(scenario, seed, m, own, labels)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return score(data, METHODS[name](data, labels))


def run_fresh(options: argparse.Namespace) -> None:
    """All scenarios, methods and seeds."""
    seeds = [int(word) for word in options.seeds.split(",")]
    names = options.methods.split(";") if options.methods else list(METHODS)
    found: dict[str, list[Score]] = {name: [] for name in names}
    with Parallel(n_jobs=options.jobs) as parallel:
        for own in (False, True):
            for scenario in SCENARIOS:
                jobs = [(n, scenario, s, options.tasks, own, options.labels) for n in names for s in seeds]
                scores = parallel(delayed(fit_and_score)(*job) for job in jobs)
                rows = [(n, [s for job, s in zip(jobs, scores, strict=True) if job[0] == n]) for n in names]
                print_table(f"{scenario}, {'own' if own else 'shared'}, m = {options.tasks}", rows)
                for name, mine in rows:
                    found[name] += mine
    print_table(f"all, m = {options.tasks}", found.items())
    if found.get("spike"):
        print_bins(found["spike"])


def run_rivals(folder: Path, jobs: int) -> None:
    """Data sets that come with the estimates of other packages."""
    file = np.load(folder / "rivals.npz")
    stored = {key: file[key].astype(float) for key in file.files if "/" in key}
    names = [str(name) for name in file["names"]]
    data = {n: DataSet(*(stored[f"{n}/{k}"] for k in ("X", "Y", "Xt", "B")), 1.0) for n in names}
    methods = sorted({key.split("/")[1] for key in stored if key.count("/") == 2})
    rows = []
    for method in methods:
        have = [
            n for n in names if f"{method}/coef" in {key.split("/", 1)[1] for key in stored if key.startswith(n + "/")}
        ]
        rows.append((method, [score(data[n], _stored_estimate(stored, n, method, data[n])) for n in have]))
    ours = Parallel(n_jobs=jobs)(delayed(_fit_stored)(data[n]) for n in names)
    print_table("rivals' data sets", [*rows, ("spike", ours)])
    print_bins(ours)


def _stored_estimate(stored: dict[str, Floats], name: str, method: str, data: DataSet) -> Estimate:
    part = {key.split("/")[2]: value for key, value in stored.items() if key.startswith(f"{name}/{method}/")}
    signal = data.Xt @ part["coef"] + part["intercept"]
    return Estimate(signal, float(part.get("cpu", np.nan)), part.get("feature"), part.get("entry"))


def _fit_stored(data: DataSet) -> Score:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return score(data, by_posterior("spike", data, False))


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="100,101,102")
    parser.add_argument("--tasks", type=int, default=6)
    parser.add_argument("--methods", default="", help="names, separated by semicolons; all")
    parser.add_argument("--labels", action="store_true")
    parser.add_argument("--rivals", type=Path, help="folder of rivals.npz")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    if options.rivals:
        run_rivals(options.rivals, options.jobs)
    else:
        run_fresh(options)


if __name__ == "__main__":
    main()
