"""Some twenty kinds of data as users have them, through every estimator of numbers and of labels, beside simple peers.

    uv run python benchmarks/realistic.py [--seeds 0,1] [--settings "plain;p = n"] [--methods "spike"] [--labels]

A cell has four figures: the share of the signal's variance on new rows that the fit misses (1 is as good as the mean of
each task), as a ratio to the best peer of the same run; the share of features that it selects or discovers at a level of 5%
and that have no effect, the same for entries (feature, task) where the fit says something of them, and how many of its 89%
intervals of coefficients hold the true one. A cell that is outside the limits below and has not warned at run time is
marked ``!``; ``w`` says that it warned. Peers: the lasso and the ridge of each task, the ridge of all tasks together with a
level of each task, their penalties by cross-validation. They are given features in deviations within tasks, which they do
not make themselves.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.linear_model import LassoCV, LogisticRegressionCV, RidgeCV

import bayesmtfs as bm

Floats = NDArray[np.float64]

WORSE = 1.5  # times the best peer's share of missed signal, or `NEAR` above it, is within the limits
NEAR = 0.05
FALSE = 0.15  # false share of discoveries of few data sets at a level of 5%
COVERED = (0.80, 0.97)  # of 89% intervals
PENALTIES = np.geomspace(1e-3, 1e4, 15)


class Setting(NamedTuple):
    """How a data set differs from the plain one: 6 tasks of 60 rows, 30 features, 5 of them relevant."""

    n_tasks: int = 6
    sizes: tuple[int, ...] = (60,)
    n_features: int = 30
    n_relevant: int = 5
    correlation: float = 0.0  # of neighbouring features
    effects: str = "independent"  # or "equal", "some tasks", "one task"
    signal: float = 1.0  # variance of the signal over that of the noise
    levels: float = 0.0  # added to y in the first task
    feature_levels: float = 0.0  # spread over tasks of the features' means
    target_units: float = 1.0  # factor of the first task's target
    feature_units: float = 1.0  # factor of the first feature
    noise: str = "normal"  # or "heavy tails", "outliers", "unequal"
    features: str = "normal"  # or "skewed", "binary", "repeated", "dummies"
    wide: bool = False


SETTINGS = {
    "plain": Setting(),
    "level of a task + 200": Setting(levels=200.0),
    "levels of features by task": Setting(feature_levels=5.0),
    "targets in other units": Setting(target_units=1000.0, wide=True),
    "a feature in seconds": Setting(feature_units=3600.0),
    "correlation .9": Setting(correlation=0.9),
    "correlation .99": Setting(correlation=0.99),
    "a column twice": Setting(features="repeated"),
    "dummies of all levels": Setting(features="dummies"),
    "p = n": Setting(n_features=60),
    "p = 3 n": Setting(n_features=180),
    "heavy tails": Setting(noise="heavy tails"),
    "5% outliers": Setting(noise="outliers"),
    "noise by task": Setting(noise="unequal"),
    "sizes 5 to 500": Setting(sizes=(5, 10, 25, 60, 150, 500)),
    "effects in some tasks": Setting(effects="some tasks"),
    "effects in one task": Setting(effects="one task"),
    "equal effects": Setting(effects="equal"),
    "no signal": Setting(n_relevant=0),
    "50 tasks of 20 rows": Setting(n_tasks=50, sizes=(20,)),
    "skewed features": Setting(features="skewed"),
    "binary features": Setting(features="binary"),
    "weak signal": Setting(signal=0.15),
}


class Problem(NamedTuple):
    """Training rows, new rows with their true mean (labels: log-odds), and the truth."""

    X: Floats
    y: Any  # (n,), or (n, m) in the wide form
    tasks: NDArray[np.int64] | None
    new_rows: Floats
    new_tasks: NDArray[np.int64]
    signal: Floats  # of the new rows
    W: Floats  # (p, m)
    scale: Floats  # (m,) unit of each task's target


def draw_features(setting: Setting, rng: np.random.Generator, n: int) -> Floats:
    """Rows of one task."""
    p, r = setting.n_features, setting.correlation
    X = rng.standard_normal((n, p))
    for i in range(1, p):
        X[:, i] = r * X[:, i - 1] + np.sqrt(1 - r**2) * X[:, i]
    if setting.features == "skewed":
        X = (np.exp(X) - np.exp(0.5)) / np.sqrt((np.e - 1) * np.e)
    elif setting.features == "binary":
        X = np.where(X > 1.0, 1.0, 0.0)
    elif setting.features == "repeated":
        X[:, -1] = X[:, 0]
    elif setting.features == "dummies":
        X[:, -4:] = np.eye(4)[rng.integers(0, 4, n)]
    return X


def draw_coefficients(setting: Setting, rng: np.random.Generator) -> Floats:
    """(p, m) Coefficients of the relevant features, spread over all of them."""
    p, m = setting.n_features, setting.n_tasks
    W = np.zeros((p, m))
    for i in rng.choice(p - 4, setting.n_relevant, replace=False):
        W[i] = rng.standard_normal(m) if setting.effects != "equal" else rng.choice([-1.0, 1.0])
        if setting.effects == "some tasks":
            W[i, rng.permutation(m)[: m // 2]] = 0.0
        elif setting.effects == "one task":
            W[i, rng.permutation(m)[1:]] = 0.0
    return W


def draw_noise(setting: Setting, rng: np.random.Generator, n: int, task: int) -> Floats:
    """Noise of unit variance, but for tasks of unequal noise."""
    if setting.noise == "heavy tails":
        return rng.standard_t(3, n) / np.sqrt(3.0)
    e = rng.standard_normal(n)
    if setting.noise == "outliers":
        return np.where(rng.random(n) < 0.05, 10.0 * e, e)
    return e * (0.3 + task % 3) if setting.noise == "unequal" else e


def draw_problem(setting: Setting, seed: int, labels: bool) -> Problem:
    """One data set."""
    rng = np.random.default_rng([seed, 20261118])
    m, W = setting.n_tasks, draw_coefficients(setting, rng)
    sizes = [setting.sizes[t % len(setting.sizes)] for t in range(m)]
    shift = setting.feature_levels * rng.standard_normal((m, setting.n_features))
    reference = draw_features(setting, rng, 2000)
    spread = np.sqrt(np.mean(np.var(reference @ W, axis=0))) or 1.0
    W = W * (2.0 if labels else np.sqrt(setting.signal)) / spread
    common = draw_features(setting, rng, sizes[0])
    unit = np.r_[setting.feature_units, np.ones(setting.n_features - 1)]
    X, y, tasks, new_rows, new_tasks, signal = [], [], [], [], [], []
    scale = np.ones(m)
    scale[0] = setting.target_units
    for t, n in enumerate(sizes):
        rows = common if setting.wide else draw_features(setting, rng, n)
        level = setting.levels if t == 0 and not labels else 0.0
        eta = rows @ W[:, t]
        target = (eta + draw_noise(setting, rng, n, t) + level) * scale[t]
        if labels:
            target = np.where(rng.random(n) < 1.0 / (1.0 + np.exp(-eta)), 1.0, -1.0)
        test = draw_features(setting, rng, 300)
        X.append((rows + shift[t]) * unit)
        y.append(target)
        tasks.append(np.full(n, t))
        new_rows.append((test + shift[t]) * unit)
        new_tasks.append(np.full(300, t))
        signal.append((test @ W[:, t] + level) * scale[t])
    stacked = np.vstack(new_rows), np.concatenate(new_tasks), np.concatenate(signal), W * scale / unit[:, None], scale
    if setting.wide:
        return Problem(X[0], np.column_stack(y), None, *stacked)
    return Problem(np.vstack(X), np.concatenate(y), np.concatenate(tasks), *stacked)


# ---------------------------------------------------------------------- what is fitted


def methods(labels: bool) -> dict[str, Callable[[], Any]]:
    """Estimators by name."""
    if labels:
        return {
            "l1,2": lambda: bm.MixedNormClassifier(standardize=True),
            "l1,2 CV": lambda: bm.MixedNormClassifierCV(standardize=True, random_state=0),
            "l1,2 CV one_se": lambda: bm.MixedNormClassifierCV(standardize=True, rule="one_se", random_state=0),
            "MM": lambda: bm.GeneralizedNormalClassifier(),
            "EM": lambda: bm.JeffreysClassifier(),
            "EM integrated": lambda: bm.JeffreysClassifier(coefficients="integrated"),
            "half-Cauchy": lambda: bm.BayesianClassifier(prior="generalized_normal", random_state=0, progress=False),
            "spike": lambda: bm.BayesianClassifier(prior="spike", random_state=0, progress=False),
            "online": lambda: bm.OnlineMixedNormClassifier(standardize=True, epochs=20, average=True, random_state=0),
        }
    return {
        "l1,2": lambda: bm.MixedNormRegressor(standardize=True, scale_target=True),
        "l1,2 CV": lambda: bm.MixedNormRegressorCV(standardize=True, scale_target=True, random_state=0),
        "l1,2 CV one_se": lambda: bm.MixedNormRegressorCV(
            standardize=True, scale_target=True, rule="one_se", random_state=0
        ),
        "l1,2 CV raw units": lambda: bm.MixedNormRegressorCV(random_state=0),
        "shared mean CV": lambda: bm.MixedNormRegressorCV(
            standardize=True, scale_target=True, shared_mean=True, random_state=0
        ),
        "MM": lambda: bm.GeneralizedNormalRegressor(),
        "EM": lambda: bm.JeffreysRegressor(),
        "EM integrated": lambda: bm.JeffreysRegressor(coefficients="integrated"),
        "EM shared mean": lambda: bm.JeffreysRegressor(coefficients="integrated", shared_mean=True),
        "matrix variate": lambda: bm.MatrixVariateRegressor(coefficients="integrated"),
        "half-Cauchy": lambda: bm.BayesianRegressor(prior="generalized_normal", random_state=0, progress=False),
        "spike": lambda: bm.BayesianRegressor(prior="spike", random_state=0, progress=False),
        "online": lambda: bm.OnlineMixedNormRegressor(standardize=True, epochs=20, average=True, random_state=0),
    }


class Cell(NamedTuple):
    """What one fit gave."""

    missed: float
    false_features: tuple[int, int] | None = None  # wrong, all
    false_entries: tuple[int, int] | None = None
    covered: tuple[int, int] | None = None
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0


def missed_share(eta: Floats, problem: Problem) -> float:
    """Share of the signal's variance within tasks that a prediction misses, each task in its own units."""
    unit = problem.scale[problem.new_tasks]
    error, signal = (eta - problem.signal) / unit, problem.signal / unit
    level = np.bincount(problem.new_tasks, signal) / np.bincount(problem.new_tasks)
    within = np.mean((signal - level[problem.new_tasks]) ** 2)
    return float(np.mean(error**2) / (within or 1.0))


def new_predictions(model: Any, problem: Problem, labels: bool) -> Floats:
    """Linear predictors of the new rows."""
    predict = model.decision_function if labels else model.predict
    if problem.tasks is not None:
        return np.asarray(predict(problem.new_rows, tasks=problem.new_tasks))
    return np.asarray(predict(problem.new_rows))[np.arange(len(problem.new_tasks)), problem.new_tasks]


def false_share(chosen: NDArray[np.bool_], truth: NDArray[np.bool_]) -> tuple[int, int]:
    """Wrong ones and all of a selection."""
    return int((chosen & ~truth).sum()), int(chosen.sum())


def largest_set(probability: Floats, level: float = 0.05) -> NDArray[np.bool_]:
    """Largest set whose mean probability of being false is at most the level."""
    error = 1.0 - probability.ravel()
    order = np.argsort(error, kind="stable")
    count = int((np.cumsum(error[order]) / np.arange(1, error.size + 1) <= level).sum())
    chosen = np.zeros(error.size, dtype=bool)
    chosen[order[:count]] = True
    return chosen.reshape(probability.shape)


def equivalent(problem: Problem, setting: Setting) -> NDArray[np.bool_]:
    """(p,) Features with an effect, or that stand for one that has: a column that is there twice."""
    truth: NDArray[np.bool_] = problem.W.any(axis=1)
    if setting.features == "repeated":
        truth[[0, -1]] = truth[[0, -1]].any()
    return truth


def fit_cell(name: str, setting: Setting, seed: int, labels: bool) -> Cell:
    """Fit one method to one data set."""
    problem = draw_problem(setting, seed, labels)
    model = methods(labels)[name]()
    start = time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(problem.X, problem.y, **({} if problem.tasks is None else {"tasks": problem.tasks}))
    seconds = time.process_time() - start
    said = tuple(sorted({w.category.__name__ for w in caught if issubclass(w.category, UserWarning)}))
    truth = equivalent(problem, setting)
    cell = Cell(missed_share(new_predictions(model, problem, labels), problem), warnings=said, seconds=seconds)
    if not hasattr(model, "inclusion_probability_"):
        return cell._replace(false_features=false_share(model.get_support(), truth))
    draws = model.posterior_["posterior"]["coef"].values  # (chain, draw, feature, task)
    ends = np.quantile(draws, [0.055, 0.945], axis=(0, 1))
    tolerance = 1e-12 * np.abs(problem.W).max()
    inside = (ends[0] <= problem.W + tolerance) & (problem.W - tolerance <= ends[1])
    entries = (
        truth[:, None] & (problem.W != 0)
        if setting.features != "repeated"
        else np.tile(truth[:, None], inside.shape[1])
    )
    return cell._replace(
        false_features=false_share(largest_set(model.inclusion_probability_), truth),
        false_entries=false_share(largest_set(model.task_inclusion_probability_), entries.T),
        covered=(int(inside.sum()), inside.size),
    )


def peer_cells(setting: Setting, seed: int, labels: bool) -> dict[str, float]:
    """Share of missed signal of the peers."""
    problem = draw_problem(setting, seed, labels)
    tasks = np.arange(len(problem.scale))
    if problem.tasks is None:
        rows = {t: (problem.X, problem.y[:, t]) for t in tasks}
    else:
        rows = {t: (problem.X[problem.tasks == t], problem.y[problem.tasks == t]) for t in tasks}
    centre = {t: X.mean(axis=0) for t, (X, _) in rows.items()}
    unit = np.sqrt(np.mean([X.var(axis=0) for X, _ in rows.values()], axis=0))
    unit[unit == 0] = 1.0
    scaled = {t: ((X - centre[t]) / unit, y) for t, (X, y) in rows.items()}
    new = {t: (problem.new_rows[problem.new_tasks == t] - centre[t]) / unit for t in tasks}
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, peer in single_task_peers(labels).items():
            parts = [_alone(peer, *scaled[t], new[t], labels) for t in tasks]
            found[name] = missed_share(np.concatenate(parts), problem)
        found["pooled ridge"] = missed_share(_pooled(scaled, new, problem, labels), problem)
    return found


def single_task_peers(labels: bool) -> dict[str, Callable[[int], Any]]:
    """Peers of one task, given the number of folds."""
    if labels:
        shared = {"Cs": 10, "max_iter": 3000, "scoring": "neg_log_loss", "use_legacy_attributes": False}
        return {
            "lasso": lambda k: LogisticRegressionCV(l1_ratios=(1.0,), solver="saga", cv=k, tol=1e-3, **shared),
            "ridge": lambda k: LogisticRegressionCV(l1_ratios=(0.0,), cv=k, **shared),
        }
    return {"lasso": lambda k: LassoCV(cv=k, max_iter=5000), "ridge": lambda k: RidgeCV(PENALTIES)}


def _alone(peer: Callable[[int], Any], X: Floats, y: Floats, new: Floats, labels: bool) -> Floats:
    folds = min(5, int(min(np.unique(y, return_counts=True)[1])) if labels else len(y))
    if folds < 2:
        return np.full(len(new), y.mean() if not labels else 0.0)
    model = peer(folds).fit(X, y)
    return np.asarray(model.decision_function(new) if labels else model.predict(new))


def _pooled(scaled: dict[int, tuple[Floats, Floats]], new: dict[int, Floats], problem: Problem, labels: bool) -> Floats:
    """Ridge on the rows of all tasks, targets about their task's mean and in the task's deviation."""
    X = np.vstack([X for X, _ in scaled.values()])
    if labels:
        return _alone(
            single_task_peers(True)["ridge"],
            X,
            np.concatenate([y for _, y in scaled.values()]),
            np.vstack(list(new.values())),
            True,
        )
    level = {t: y.mean() for t, (_, y) in scaled.items()}
    y = np.concatenate([(y - level[t]) / problem.scale[t] for t, (_, y) in scaled.items()])
    model = RidgeCV(PENALTIES).fit(X, y)
    return np.concatenate([level[t] + problem.scale[t] * model.predict(new[t]) for t in new])


# ---------------------------------------------------------------------- the table


def pooled_cell(cells: list[Cell], best: list[float]) -> tuple[str, bool]:
    """Text of the cells of one setting and method over seeds, and whether it is outside the limits without a warning."""
    ratio = float(
        np.exp(np.mean([np.log(max(c.missed, 1e-6) / max(b, 1e-6)) for c, b in zip(cells, best, strict=True)]))
    )
    close = np.mean([c.missed - b for c, b in zip(cells, best, strict=True)]) <= NEAR
    wrong, text = not (ratio <= WORSE or close), f"{ratio:.2f}"
    posterior = cells[0].covered is not None
    for kind in ("false_features", "false_entries"):
        pairs = [getattr(c, kind) for c in cells]
        if pairs[0] is not None:
            false, total = (sum(pair[k] for pair in pairs) for k in (0, 1))
            text += f" {false}/{total}"
            wrong |= posterior and false > max(FALSE * total, 1)
    if posterior:
        held, total = (sum(c.covered[k] for c in cells if c.covered) for k in (0, 1))
        text += f" {held / total:.2f}"
        wrong |= not COVERED[0] <= held / total
    told = any(c.warnings for c in cells)
    return text + (" w" if told else "") + (" !" if wrong and not told else ""), wrong and not told


def main() -> None:
    """Run and print a table in Markdown, one row per setting."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0,1")
    parser.add_argument("--settings", default="", help="names, separated by semicolons; all")
    parser.add_argument("--methods", default="", help="names, separated by semicolons; all")
    parser.add_argument("--labels", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    seeds = [int(word) for word in options.seeds.split(",")]
    chosen = [s for s in SETTINGS if not options.settings or s in options.settings.split(";")]
    names = [n for n in methods(options.labels) if not options.methods or n in options.methods.split(";")]
    print("| setting | best peer | " + " | ".join(names) + " |\n" + "|---" * (len(names) + 2) + "|", flush=True)
    n_wrong, seconds = 0, dict.fromkeys(names, 0.0)
    with Parallel(n_jobs=options.jobs) as parallel:
        for setting in chosen:
            jobs = [(name, seed) for name in names for seed in seeds]
            peers = parallel(delayed(peer_cells)(SETTINGS[setting], seed, options.labels) for seed in seeds)
            cells = parallel(delayed(fit_cell)(n, SETTINGS[setting], s, options.labels) for n, s in jobs)
            best = [min(found.values()) for found in peers]
            row = []
            for name in names:
                mine = [cell for (n, _), cell in zip(jobs, cells, strict=True) if n == name]
                seconds[name] += sum(cell.seconds for cell in mine)
                text, wrong = pooled_cell(mine, best)
                n_wrong += wrong
                row.append(text)
            print(f"| {setting} | {np.mean(best):.3f} | " + " | ".join(row) + " |", flush=True)
    print("| CPU s | | " + " | ".join(f"{seconds[name]:.0f}" for name in names) + " |")
    print(f"\n{n_wrong} cells are outside the limits and did not warn")


if __name__ == "__main__":
    main()
