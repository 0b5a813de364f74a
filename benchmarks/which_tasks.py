"""Which features, and in which tasks: false discoveries, power, missed signal and credible sets where effects are zero.

    uv run python benchmarks/which_tasks.py fit --seeds 100,101 --out FOLDER [--kinds main] [--methods "spike;lasso"]
    uv run python benchmarks/which_tasks.py tables --out FOLDER [--by-scenario]   # of what was fitted until now
    uv run python benchmarks/which_tasks.py rivals FOLDER         # data sets with the estimates of other packages

``which_tasks_data.py`` says which kinds of data there are, ``peers_in_r.py`` which other packages. An estimate that is in
the folder is not fitted again, so that a run may be stopped and go on. "short" are two chains of 500
draws.

Discoveries are the largest set whose mean probability of being false is at most 5%. Missed is the share of the signal's
variance on new rows (of a signal of 1 where there is none); standard errors are over data sets.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from peers_in_r import NAMES, fit_in_r, why_not
from realistic import largest_set
from sklearn.linear_model import LassoCV, LogisticRegressionCV
from which_tasks_data import KINDS, LABELS, MAIN, OTHER, DataSet, Floats, draw_data_set

import bayesmtfs as bm

SHORT = {"draws": 500, "tune": 400, "chains": 2}


class Estimate(NamedTuple):
    """What a method says: coefficients, and probabilities and credible sets where it has them."""

    seconds: float
    coef: Floats  # (p, m)
    intercept: Floats  # (m,)
    feature: Floats | None = None  # (p,)
    entry: Floats | None = None  # (p, m)
    sets: list[list[int]] | None = None
    chains: Floats | None = None  # R-hat of the log-posterior, largest difference of chains in a feature's probability


# ---------------------------------------------------------------------- methods


def by_posterior(prior: str, data: DataSet, labels: bool, short: bool = False) -> Estimate:
    """One of our priors, everything else at its defaults."""
    kind = bm.BayesianClassifier if labels else bm.BayesianRegressor
    lengths = SHORT if short else {}
    model = kind(prior=prior, random_state=0, progress=False, n_jobs=1, **lengths)
    start = time.process_time()
    model.fit(*_as_given(data, labels), **_tasks_of(data, labels))
    seconds = time.process_time() - start
    sets = chains = None
    if prior == "spike":
        sets = [one.features.tolist() for one in bm.selection.credible_sets(model, data.X)]
        found = model.diagnostics_
        rhat = [row.rhat for row in found.table if row.variable == "lp"]
        chains = np.array([*(rhat or [np.nan]), np.nan if found.inclusion_gap is None else found.inclusion_gap])
    probabilities = model.inclusion_probability_, model.task_inclusion_probability_.T
    return Estimate(seconds, model.coef_.T, model.intercept_, *probabilities, sets, chains)


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
    start, columns, levels = time.process_time(), [], []
    for y in data.Y.T:
        seen = ~np.isnan(y)
        model: Any = LassoCV(cv=5)
        if labels:
            settings = {"solver": "liblinear", "scoring": "neg_log_loss", "use_legacy_attributes": False}
            model = LogisticRegressionCV(Cs=8, l1_ratios=(1.0,), **settings)
        model.fit(data.X[seen], y[seen])
        columns.append(np.ravel(model.coef_))
        levels.append(float(np.ravel(model.intercept_)[0]))
    return Estimate(time.process_time() - start, np.column_stack(columns), np.array(levels))


def by_group_lasso(data: DataSet, labels: bool) -> Estimate:
    """Our l1,2 with its penalty from folds."""
    kind = bm.MixedNormClassifierCV if labels else bm.MixedNormRegressorCV
    start = time.process_time()
    model = kind(random_state=0).fit(*_as_given(data, labels), **_tasks_of(data, labels))
    return Estimate(time.process_time() - start, model.coef_.T, model.intercept_)


METHODS: dict[str, Callable[[DataSet, bool], Estimate]] = {
    "spike": lambda data, labels: by_posterior("spike", data, labels),
    "half-Cauchy": lambda data, labels: by_posterior("generalized_normal", data, labels),
    "spike, short": lambda data, labels: by_posterior("spike", data, labels, short=True),
    "half-Cauchy, short": lambda data, labels: by_posterior("generalized_normal", data, labels, short=True),
    "l1,2 CV": by_group_lasso,
    "lasso": by_lasso,
    **{name: lambda data, labels, name=name: Estimate(*fit_in_r(name, data.X, data.Y)) for name in NAMES},
}


def can_fit(method: str, kind_name: str) -> bool:
    """Peers in R know no labels, muSuSiE no more than ten tasks or so, and the others become slow there."""
    kind = KINDS[kind_name]
    return method not in NAMES or not (kind.labels or kind.m > (8 if method == "muSuSiE" else 20))


# ---------------------------------------------------------------------- fits, kept in files


def file_of(folder: Path, method: str, kind_name: str, seed: int) -> Path:
    """Where an estimate is kept."""
    plain = "".join(c if c.isalnum() else "_" for c in f"{method}-{kind_name}")
    return folder / f"{plain}-{seed}.npz"


def fit_and_keep(folder: Path, method: str, kind_name: str, seed: int) -> None:
    """One method on one data set."""
    kind, path = KINDS[kind_name], file_of(folder, method, kind_name, seed)
    if path.exists() or not can_fit(method, kind_name):
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = METHODS[method](draw_data_set(kind, seed), kind.labels)
        except RuntimeError as error:
            print(f"{method}, {kind_name}, {seed}: {error}", flush=True)
            return
    parts = {name: value for name, value in found._asdict().items() if value is not None and name != "sets"}
    single = {name: np.asarray(value, np.float32) for name, value in parts.items()}
    np.savez_compressed(path, sets=json.dumps(found.sets), **single)


def kept(folder: Path, method: str, kind_name: str, seed: int) -> Estimate | None:
    """An estimate that was kept."""
    path = file_of(folder, method, kind_name, seed)
    if not path.exists():
        return None
    with np.load(path) as file:
        parts: dict[str, Any] = {name: file[name].astype(float) for name in file.files if name != "sets"}
        return Estimate(**parts | {"seconds": float(parts["seconds"]), "sets": json.loads(str(file["sets"]))})


# ---------------------------------------------------------------------- scores


class Score(NamedTuple):
    """Figures of one method on one data set."""

    missed: float
    seconds: float
    features: tuple[int, int, int] | None = None  # false, found, relevant
    entries: tuple[int, int, int] | None = None
    bins: Floats | None = None  # (10, 3) of entry probabilities: how many, their sum, true ones
    sets: tuple[int, int, int] | None = None  # holding a relevant feature, all, features in them
    chains: Floats | None = None  # as in an estimate


def score(data: DataSet, estimate: Estimate) -> Score:
    """Figures of an estimate."""
    truth = data.Xt @ data.B
    centred = truth - truth.mean(axis=0)
    off = data.Xt @ estimate.coef + estimate.intercept - truth - (data.level if np.isfinite(data.level) else 0.0)
    if not np.isfinite(data.level):  # levels are the method's own
        off = off - off.mean(axis=0)
    missed = float((off**2).mean() / ((centred**2).mean() or 1.0))
    if estimate.feature is None or estimate.entry is None:
        return Score(missed, estimate.seconds)
    relevant, effect = data.B.any(axis=1), data.B != 0
    found, entries = largest_set(estimate.feature), largest_set(estimate.entry)
    place = np.minimum((10 * estimate.entry).astype(int), 9).ravel()
    parts = (np.ones(place.size), estimate.entry.ravel(), effect.ravel().astype(float))
    sets = None
    if estimate.sets is not None:
        hits = sum(bool(relevant[members].any()) for members in estimate.sets)
        sets = hits, len(estimate.sets), sum(map(len, estimate.sets))
    return Score(
        missed,
        estimate.seconds,
        (int((found & ~relevant).sum()), int(found.sum()), int(relevant.sum())),
        (int((entries & ~effect).sum()), int(entries.sum()), int(effect.sum())),
        np.column_stack([np.bincount(place, part, 10) for part in parts]),
        sets,
        estimate.chains,
    )


def describe(scores: list[Score]) -> str:
    """One row of a table; standard errors, and that of the share of false ones, by data set."""
    missed = np.array([s.missed for s in scores])
    error = missed.std(ddof=1) / np.sqrt(len(missed)) if len(missed) > 1 else np.nan
    cells = [f"{len(scores)}", f"{missed.mean():.3f} ({error:.3f})"]
    for kind in ("features", "entries"):
        triples = np.array([getattr(s, kind) for s in scores if getattr(s, kind) is not None])
        cells += _share(triples) if len(triples) else ["", ""]
    sets = np.array([s.sets for s in scores if s.sets is not None])
    held, count, size = sets.sum(axis=0) if len(sets) else (0, 0, 0)
    cells.append(f"{held}/{count}, {size / count:.1f}" if count else "")
    return " | ".join([*cells, f"{np.median([s.seconds for s in scores]):.1f}"])


def _share(triples: NDArray[np.int64]) -> list[str]:
    """False of all that were found, with a standard error of the ratio over data sets, and power."""
    false, found, relevant = triples.sum(axis=0)
    share = false / max(found, 1)
    spread = np.sqrt(((triples[:, 0] - share * triples[:, 1]) ** 2).sum()) / max(found, 1)
    text = f"{false}/{found}" + (f" ({100 * share:.0f}% ± {100 * spread:.0f})" if false else "")
    return [text, f"{(found - false) / relevant:.2f}" if relevant else ""]


HEAD = (
    "sets of data | missed (s.e.) | features false/found | power | entries false/found | power | sets holding one, size"
)


def print_table(title: str, rows: Iterable[tuple[str, list[Score]]]) -> None:
    """Print a table in Markdown."""
    print(f"\n| {title} | {HEAD} | CPU s |\n" + "|---" * 9 + "|")
    for name, scores in rows:
        if scores:
            print(f"| {name} | {describe(scores)} |", flush=True)


def print_bins(scores: list[Score]) -> None:
    """Print how often entries of a stated probability have an effect."""
    total = np.sum([s.bins for s in scores if s.bins is not None], axis=0)
    print("\n| stated | true | entries |\n|---|---|---|")
    for count, stated, true in total:
        if count:
            print(f"| {stated / count:.3f} | {true / count:.3f} | {count:.0f} |")


def print_chains(scores: list[Score]) -> None:
    """Print how far chains agree."""
    known = np.array([s.chains for s in scores if s.chains is not None])
    if len(known):
        middle, most, least = np.median(known, axis=0), known.max(axis=0), (known[:, 1] <= 0.05).sum()
        print(f"\nR-hat of the log posterior: median {middle[0]:.3f}, largest {most[0]:.3f}.", end=" ")
        print(f"Chains' inclusion differs by {middle[1]:.3f} in the median, {most[1]:.3f} at most, {least} of", end=" ")
        print(f"{len(known)} sets by .05 or less.")


# ---------------------------------------------------------------------- runs


def kinds_of(words: str) -> list[str]:
    """Names of kinds: a group, or names separated by semicolons."""
    groups = {"all": KINDS, "main": MAIN, "other": OTHER, "labels": LABELS}
    return list(groups.get(words, words.split(";")))


def run_fits(options: argparse.Namespace) -> None:
    """Fit what is not in the folder yet, seed by seed."""
    options.out.mkdir(parents=True, exist_ok=True)
    names = options.methods.split(";") if options.methods else list(METHODS)
    for name in [name for name in names if name in NAMES]:
        if reason := why_not(name):
            print(f"{name} is left out: {reason}")
            names.remove(name)
    jobs = [(n, kind, s) for s in seeds_of(options) for kind in kinds_of(options.kinds) for n in names]
    Parallel(n_jobs=options.jobs, batch_size=1)(delayed(fit_and_keep)(options.out, *job) for job in jobs)


def seeds_of(options: argparse.Namespace) -> list[int]:
    """Numbers of the data sets."""
    return [int(word) for word in options.seeds.split(",")]


def print_tables(options: argparse.Namespace) -> None:
    """Tables of each kind (or scenario) and of all, over the data sets that all methods have that are in a table."""
    names = options.methods.split(";") if options.methods else list(METHODS)
    total: dict[str, list[Score]] = {name: [] for name in names}
    grouped: dict[str, list[str]] = {}
    for kind in kinds_of(options.kinds):
        grouped.setdefault(KINDS[kind].scenario if options.by_scenario else kind, []).append(kind)
    for title, kinds in grouped.items():
        rows: dict[str, list[Score]] = {name: [] for name in names}
        for kind, seed in product(kinds, seeds_of(options)):
            found = {name: kept(options.out, name, kind, seed) for name in names}
            if any(found[n] is None for n in names if can_fit(n, kind)):
                continue
            data = draw_data_set(KINDS[kind], seed)
            for name, estimate in found.items():
                if estimate is not None:
                    rows[name].append(score(data, estimate))
        print_table(title, rows.items())
        for name, scores in rows.items():
            total[name] += scores
    print_table("all", total.items())
    for name in names:
        if any(s.bins is not None for s in total[name]):
            print(f"\nEntries of {name} by the probability that it states:")
            print_bins(total[name])
            print_chains(total[name])


def run_rivals(folder: Path, jobs: int) -> None:
    """Data sets that come with the estimates of other packages."""
    file = np.load(folder / "rivals.npz")
    stored = {key: file[key].astype(float) for key in file.files if "/" in key}
    names = [str(name) for name in file["names"]]
    data = {n: DataSet(*(stored[f"{n}/{k}"] for k in ("X", "Y", "Xt", "B")), 1.0) for n in names}
    methods = sorted({key.split("/")[1] for key in stored if key.count("/") == 2})
    rows = []
    for method in methods:
        have = [n for n in names if f"{n}/{method}/coef" in stored]
        rows.append((method, [score(data[n], _stored_estimate(stored, n, method)) for n in have]))
    ours = Parallel(n_jobs=jobs)(delayed(_fit_stored)(data[n]) for n in names)
    print_table("rivals' data sets", [*rows, ("spike", ours)])
    print_bins(ours)
    print_chains(ours)


def _stored_estimate(stored: dict[str, Floats], name: str, method: str) -> Estimate:
    part = {key.split("/")[2]: value for key, value in stored.items() if key.startswith(f"{name}/{method}/")}
    seconds = float(part.get("cpu", np.nan))
    return Estimate(seconds, part["coef"], part["intercept"], part.get("feature"), part.get("entry"))


def _fit_stored(data: DataSet) -> Score:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return score(data, by_posterior("spike", data, False))


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("fit", "tables", "rivals"))
    parser.add_argument("folder", nargs="?", type=Path, help="folder of rivals.npz")
    parser.add_argument("--seeds", default="100,101,102")
    parser.add_argument("--kinds", default="main", help="main, other, labels, all, or names separated by semicolons")
    parser.add_argument("--methods", default="", help="names, separated by semicolons; all")
    parser.add_argument("--out", type=Path, default=Path("which-tasks"), help="folder of estimates")
    parser.add_argument("--by-scenario", action="store_true", help="one table for shared and own rows of a scenario")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    if options.what == "rivals":
        run_rivals(options.folder, options.jobs)
    else:
        (run_fits if options.what == "fit" else print_tables)(options)


if __name__ == "__main__":
    main()
