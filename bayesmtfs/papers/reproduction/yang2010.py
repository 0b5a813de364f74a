"""Yang, King and Lyu (2010): multi-task feature selection by dual averaging, beside its batch counterparts.

    minimise  sum_t (1/n_t) sum_i 1/2 (y_i - x_i'w_t)^2 + lambda sum_j P(w^j)

with P the l1 norm (iMTFS), the l2 norm (aMTFS), or r ||.||_1 + ||.||_2 (MTFTS, r = 0.01). Section 5: half of the smallest
school's rows, 11, of each of 139 schools, 20 random draws, and the share of the test variance that is explained. The
printed lambda of the batch methods belongs to a sum of squares without 1/2 and is 2 x 11 times this one.
"""

import time
from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from bayesmtfs.estimators.online import OnlineMixedNormRegressor
from bayesmtfs.estimators.path import mixed_norm_path
from bayesmtfs.estimators.penalised import MixedNormRegressor
from bayesmtfs.estimators.penalised_cv import MixedNormRegressorCV
from bayesmtfs.papers import baselines, datasets
from bayesmtfs.papers.reproduction import common
from bayesmtfs.papers.reproduction.outcome import Figure, Table

N_TRAIN = 11
PERCENTAGES = ("pct_free_school_meals", "pct_vr1_band")
EPOCHS = 120
EXPLAINED, WITHIN = "explained variance, %", "explained variance within schools, %"
WEIGHTS, SECONDS = "non-zero weights", "seconds of a fit"

REMARKS = (
    "Explained variance is of all test rows together. The paper says 'within each task', but only this fits its "
    "figures; the mean over schools of the share within each, 'within schools' here, is far lower for every method.",
    "27 features, the two percentages divided by 100, no intercept, scores minus the mean of the training rows. The "
    "paper does not say how it scaled; what it prints after +- is the deviation over its 20 draws, ours a standard error.",
    "The printed lambda of the batch methods fits a loss without 1/2, 2 x 11 times ours: there the explained variance is "
    "as printed, and so is, roughly, the largest lambda of aMTFS (that of iMTFS is not). Read in the same way, the online "
    "lambda 20 and gamma 1 are 10 and 0.5 here, at which dual averaging diverges; with 1/2 they explain less than printed.",
    "The printed numbers of non-zero weights do not reproduce: at the best lambda ours are more for the joint penalties "
    "and fewer for iMTFS. MTFTS has fewer than aMTFS at the same lambda, as printed.",
    "'Online reduces the running time' does not reproduce: a converged batch fit takes no longer than 120 epochs.",
    "One ridge regression for all schools explains more than every method of the paper. A mean that schools share, with "
    "deviations from it whose strength is chosen in folds, explains more still.",
    "Figure 1 is drawn in the paper without numbers.",
)


class Yang2010Effort(NamedTuple):
    """How much is done."""

    n_splits: int
    n_shared: int  # draws of the cross-validated mixed norm, the slowest
    n_folds: int
    n_penalties: int
    n_traded: int  # draws of figure 1


class SchoolMethod(NamedTuple):
    """A method at one setting, with the paper's explained variance, non-zero weights and seconds."""

    name: str
    model: Any
    explained: float | None = None
    n_weights: float | None = None
    seconds: float | None = None
    remark: str = ""


def batch(norm_q: float, strength: float, **options: Any) -> MixedNormRegressor:
    """Batch method without intercept."""
    return MixedNormRegressor(norm_q=norm_q, penalty_strength=strength, fit_intercept=False, progress=False, **options)


def online(sparsity: str, strength: float, gamma: float, **options: Any) -> OnlineMixedNormRegressor:
    """Dual averaging without intercept."""
    fixed = {"fit_intercept": False, "epochs": EPOCHS, "random_state": 0}
    return OnlineMixedNormRegressor(sparsity, strength, gamma=gamma, **(fixed | options))


METHODS = (
    SchoolMethod("aMTFS", batch(2, 12.0), 21.0, 815.5, 1.30, "lambda 12"),
    SchoolMethod("MTFTS", batch(2, 12.0, task_sparsity=0.01), None, None, None, "lambda 12; batch, not in the paper"),
    SchoolMethod("iMTFS", batch(1, 1.5), 13.5, 583.0, None, "lambda 1.5"),
    SchoolMethod("DA-aMTFS", online("features", 12.0, 1.0), 20.8, 605.8, None, "lambda 12, gamma 1"),
    SchoolMethod("DA-MTFTS", online("features_and_tasks", 10.0, 1.0), 20.8, 483.7, 1.15, "lambda 10, gamma 1"),
    SchoolMethod("DA-iMTFS", online("individual", 1.0, 5.0), 13.5, 1037.1, None, "lambda 1, gamma 5"),
)
PRINTED = (
    SchoolMethod("aMTFS", batch(2, 300 / (2 * N_TRAIN)), 21.0, 815.5, None, "lambda 300 / 22"),
    SchoolMethod("iMTFS", batch(1, 40 / (2 * N_TRAIN)), 13.5, 583.0, None, "lambda 40 / 22"),
    SchoolMethod("DA-aMTFS", online("features", 20.0, 1.0), 20.8, 605.8, None, "lambda 20, gamma 1"),
    SchoolMethod("DA-MTFTS", online("features_and_tasks", 20.0, 1.0), 20.8, 483.7, None, "lambda 20, gamma 1"),
    SchoolMethod("DA-iMTFS", online("individual", 1.0, 50.0), 13.5, 1037.1, None, "lambda 1, gamma 50"),
    SchoolMethod(
        "DA-iMTFS, loss without 1/2", online("individual", 0.5, 25.0), 13.5, 1037.1, None, "lambda 0.5, gamma 25"
    ),
)
LARGEST_STRENGTHS = {"aMTFS": (2, 1000.0), "iMTFS": (1, 100.0)}
# Online method -> lambda at the gamma of `METHODS`, and gamma at its lambda
TRADED = {
    "DA-aMTFS": ("features", (5.0, 12.0, 20.0, 40.0), (1.0, 2.0, 5.0, 20.0)),
    "DA-MTFTS": ("features_and_tasks", (5.0, 10.0, 20.0, 40.0), (1.0, 2.0, 5.0, 20.0)),
    "DA-iMTFS": ("individual", (0.3, 1.0, 2.0, 4.0), (2.0, 5.0, 20.0, 50.0)),
}


# ---------------------------------------------------------------------- draws of School


def read_school() -> common.TaskRows:
    """All rows, with percentages as shares."""
    found = common.read(datasets.load_school)
    shares = np.isin(np.array(found.feature_names), PERCENTAGES)
    return common.TaskRows(found.X / np.where(shares, 100.0, 1.0), found.y, np.asarray(found.tasks))


def draw(school: common.TaskRows, seed: int) -> tuple[common.TaskRows, common.TaskRows]:
    """Eleven rows of each school for training, all others for testing; scores minus the mean of the training rows."""
    split = common.split_each_task(school.tasks, N_TRAIN, seed)
    train, test = school.take(split.train), school.take(split.test)
    mean = train.y.mean()
    return train._replace(y=train.y - mean), test._replace(y=test.y - mean)


def explained_variance(model: Any, rows: common.TaskRows) -> float:
    """Share of the variance of all rows together, in percent."""
    error = rows.y - model.predict(rows.X, tasks=rows.tasks)
    return 100.0 * (1.0 - float(np.mean(error**2) / np.var(rows.y)))


def explained_within_schools(model: Any, rows: common.TaskRows) -> float:
    """Share of a school's variance in percent, mean over schools."""
    squares = (rows.y - model.predict(rows.X, tasks=rows.tasks)) ** 2
    chosen = [rows.tasks == task for task in np.unique(rows.tasks)]
    return 100.0 * float(np.mean([1.0 - squares[own].mean() / np.var(rows.y[own]) for own in chosen]))


# ---------------------------------------------------------------------- tables


def measure(model: Any, train: common.TaskRows, test: common.TaskRows) -> dict[str, float]:
    """Fit to the training rows, and look at the test rows."""
    begin = time.perf_counter()
    fitted = common.fit(model, train)
    seconds = time.perf_counter() - begin
    return {
        EXPLAINED: explained_variance(fitted, test),
        WITHIN: explained_within_schools(fitted, test),
        WEIGHTS: float(np.count_nonzero(fitted.coef_)),
        SECONDS: seconds,
    }


def compare(methods: Sequence[SchoolMethod], n_splits: int, seed: int, advance: common.Advance) -> list[Figure]:
    """Every method on every draw."""
    school, found = read_school(), common.Findings()
    for method in methods:  # what is compiled or loaded with a first fit is no time of the method
        common.fit(method.model, draw(school, seed)[0])
    for repeat in common.watched(range(n_splits), advance):
        sample = draw(school, seed + repeat)
        for method in methods:
            found.add(method.name, measure(method.model, *sample))
    printed: dict[tuple[str, str], tuple[float | None, str]] = {}
    for method in methods:
        columns = {EXPLAINED: method.explained, WITHIN: None, WEIGHTS: method.n_weights, SECONDS: method.seconds}
        printed |= {(method.name, measure): (paper, method.remark) for measure, paper in columns.items()}
    return list(found.figures(printed))


def without_times(figures: Sequence[Figure]) -> tuple[Figure, ...]:
    """Explained variance and weights alone."""
    return tuple(figure for figure in figures if figure.measure in (EXPLAINED, WEIGHTS))


def near_the_best(effort: Yang2010Effort, seed: int, advance: common.Advance) -> Table:
    """All methods at settings near their best, and the smallest lambda at which no weight is left."""
    figures = compare(METHODS, effort.n_splits, seed, advance)
    options: dict[str, Any] = {"n_penalties": 2, "penalty_ratio": 0.9, "fit_intercept": False, "progress": False}
    school = read_school()
    for name, (norm_q, paper) in LARGEST_STRENGTHS.items():
        rows = [draw(school, seed + repeat)[0] for repeat in range(effort.n_splits)]
        paths = [mixed_norm_path(*train, norm_q=norm_q, **options) for train in rows]
        largest = [2 * N_TRAIN * float(path.penalties[0]) for path in paths]
        measure = "lambda without weights, in the paper's units"
        figures.append(Figure.of(name, measure, largest, paper, "about, printed"))
    protocol = (
        f"School, {N_TRAIN} training rows of each of 139 schools, {EPOCHS} epochs online, settings near the best."
    )
    return Table("School (table 1)", protocol, tuple(figures))


def as_printed(effort: Yang2010Effort, seed: int, advance: common.Advance) -> Table:
    """The paper's own settings, taken at their word."""
    kept = without_times(compare(PRINTED, effort.n_splits, seed, advance))
    return Table("School (table 1) at the printed settings", "As above, with the paper's lambda and gamma.", kept)


def shared_mean(effort: Yang2010Effort, seed: int, advance: common.Advance) -> Table:
    """What the data allow: one regression for all schools, and deviations from a shared mean."""
    joint = MixedNormRegressorCV(
        shared_mean=True,
        fit_intercept=False,
        n_penalties=effort.n_penalties,
        penalty_ratio=0.05,
        cv=effort.n_folds,
        tol=1e-3,
        progress=False,
    )
    ridges = {"penalty_strength": [1.0, 3.0, 10.0], "mean_strength": [1e-2, 1e-1]}
    dual_averaging = online("features", 12.0, 2.0, shared_mean=True, fit_intercept=True)
    remark = "not in the paper; its best is 21.0"
    entrants: dict[str, tuple[Any, dict[str, list[Any]], int, str]] = {
        "pooled ridge": (
            baselines.PooledRegressor(),
            {"penalty_strength": [1e-3, 1e-2, 1e-1]},
            effort.n_splits,
            remark,
        ),
        "shared mean, ridge deviations": (baselines.SharedMeanRegressor(), ridges, effort.n_splits, remark),
        "shared mean, aMTFS deviations": (joint, {}, effort.n_shared, remark),
        "shared mean, DA-aMTFS deviations": (dual_averaging, {}, effort.n_splits, "lambda 12, gamma 2, not tuned"),
    }
    school, found = read_school(), common.Findings()
    jobs = [(name, repeat) for name, (_, _, n_splits, _) in entrants.items() for repeat in range(n_splits)]
    for name, repeat in common.watched(jobs, advance):
        model, grid, *_ = entrants[name]
        train, test = draw(school, seed + repeat)
        folds = common.folds_of(train, effort.n_folds, seed, by_class=False)
        fitted = common.fit_best(model, grid, train, folds, explained_variance)
        found.add(name, {EXPLAINED: explained_variance(fitted, test)})
    protocol = f"The same draws; strengths by {effort.n_folds} folds of the training rows."
    figures = found.figures({(name, EXPLAINED): (None, said) for name, (*_, said) in entrants.items()})
    return Table("School with a mean that schools share", protocol, figures)


def trade_off(effort: Yang2010Effort, seed: int, advance: common.Advance) -> Table:
    """Explained variance and non-zero weights over lambda and over gamma."""
    chosen = {method.name: method.model for method in METHODS}
    methods = []
    for name, (sparsity, strengths, gammas) in TRADED.items():
        best = chosen[name]
        pairs = [*product(strengths, [best.gamma]), *product([best.penalty_strength], gammas)]
        methods += [
            SchoolMethod(f"{name}, lambda {strength:g}, gamma {gamma:g}", online(sparsity, strength, gamma))
            for strength, gamma in dict.fromkeys(pairs)
        ]
    kept = without_times(compare(methods, effort.n_traded, seed, advance))
    return Table("Lambda against gamma (figure 1)", f"As in table 1, {EPOCHS} epochs.", kept)


PAPER = common.Paper(
    "yang2010",
    "Yang, King, Lyu (2010), Online learning for multi-task feature selection",
    full=Yang2010Effort(20, 20, 5, 8, 5),
    quick=Yang2010Effort(5, 1, 3, 4, 1),
    jobs={
        "Table 1": near_the_best,
        "Table 1 at the printed settings": as_printed,
        "Shared mean": shared_mean,
        "Figure 1": trade_off,
    },
    remarks=REMARKS,
)
