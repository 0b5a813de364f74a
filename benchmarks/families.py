"""Counts, survival times and gross outliers: features found by the family that suits, and the time of Poisson fits.

    uv run python benchmarks/families.py [--seeds 20] [--only counts,survival,outliers,outlier_posteriors,priors,speed]

Recovery. Eight features of p matter in all m tasks, each with its own effect. A method ranks features by the norms of their
rows at the penalty that its cross-validation chooses (5 folds); counted is how many of the eight are among the first
features of the ranking, as far as it goes with at most a tenth of them wrong. Standard errors are over data sets.

- ``counts``: negative binomial of dispersion 1, m = 10, 80 rows each, p = 200; the Gaussian on ln(y + 1), task by task
  the Poisson lasso of skglm and the Poisson ridge of scikit-learn, Poisson and negative binomial l1,2.
- ``survival``: exponential times, 40% censored, m = 8, 100 rows each, p = 100; a Cox lasso for each task on its own, l1,2.
- ``outliers``: a tenth of the targets with 15 times the noise, m = 8, 60 rows each, p = 150; squared loss and Huber l1,2,
  squared and absolute loss and Student's t in MM; ``outlier_posteriors``: these in posteriors under the default prior.
- ``priors``: posteriors under the prior with exact zeros beside those under the generalized normal one (two chains of 300
  draws), by family; eight features act in all tasks, or each in half of them. Missed is the share of the signal's variance,
  entries are those kept at a level of 5%.

Speed. CPU seconds (one thread) to a duality gap of 1e-6 of the objective at W = 0, measured from outside (the gap of every
answer is that of `bayesmtfs.convex.problem.Problem`, and a package goes down its tolerances until it has it): one task
beside skglm, l1,2 beside adelie on the block design. The ratio quoted is the worst over seeds; compilation is not counted.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from realistic import largest_set
from threadpoolctl import threadpool_limits

import bayesmtfs as bm
from bayesmtfs.convex.problem import Problem
from bayesmtfs.families import find_family
from bayesmtfs.priors.row_penalty import RowPenalty

Floats = NDArray[np.float64]
RELEVANT, WRONG = 8, 0.1
GAP = 1e-6
LENGTHS = {"draws": 300, "tune": 300, "chains": 2, "n_jobs": 1, "random_state": 0, "progress": False}


def found(norms: Floats, n_relevant: int = RELEVANT) -> int:
    """Relevant features (the first ones) in the longest top of a ranking of which at most a tenth is wrong."""
    order = np.argsort(-norms, kind="stable")
    order = order[norms[order] > 0]
    right = np.cumsum(order < n_relevant)
    fine = (np.arange(1, len(order) + 1) - right) <= WRONG * np.arange(1, len(order) + 1)
    return int(right[fine].max(initial=0))


def design(rng: np.random.Generator, m: int, n: int, p: int, size: float) -> tuple[Floats, NDArray[np.int64], Floats]:
    """Features, tasks and linear predictors."""
    X, tasks = rng.normal(size=(m * n, p)), np.repeat(np.arange(m), n)
    W = np.zeros((p, m))
    W[:RELEVANT] = size * rng.normal(size=(RELEVANT, m))
    return X, tasks, np.sum(X * W.T[tasks], axis=1)


def row_norms(model: Any) -> Floats:
    """Norms of the rows of coefficients."""
    return np.asarray(np.linalg.norm(model.coef_, axis=0))


# ---------------------------------------------------------------------- counts


def counts(seed: int) -> dict[str, int]:
    """One data set of counts."""
    rng = np.random.default_rng(seed)
    X, tasks, eta = design(rng, 10, 80, 200, 0.35)
    y = rng.poisson(np.exp(1.0 + eta) * rng.gamma(1.0, 1.0, len(eta))).astype(float)
    cv = {"n_penalties": 30, "penalty_ratio": 0.03, "cv": 5, "random_state": 0}
    numbers = bm.MixedNormRegressorCV(**cv).fit(X, np.log1p(y), tasks=tasks)
    poisson = bm.MixedNormRegressorCV(loss="poisson", **cv).fit(X, y, tasks=tasks)
    binomial = bm.MixedNormRegressorCV(loss="negative_binomial", **cv).fit(X, y, tasks=tasks)
    alone = np.array([skglm_lasso(X[tasks == t], y[tasks == t]) for t in range(10)])
    ridge = np.array([poisson_ridge(X[tasks == t], y[tasks == t]) for t in range(10)])
    return {
        "Poisson ridge per task (sklearn)": found(np.linalg.norm(ridge, axis=0)),
        "Gaussian l1,2 on ln(y + 1)": found(row_norms(numbers)),
        "Poisson lasso per task (skglm)": found(np.linalg.norm(alone, axis=0)),
        "Poisson l1,2": found(row_norms(poisson)),
        "negative binomial l1,2": found(row_norms(binomial)),
    }


def poisson_ridge(X: Floats, y: Floats) -> Floats:
    """Coefficients of scikit-learn's Poisson regression, whose only penalty is a ridge, at the best of 10 strengths."""
    from sklearn.linear_model import PoissonRegressor
    from sklearn.model_selection import GridSearchCV

    search = GridSearchCV(PoissonRegressor(max_iter=300), {"alpha": np.geomspace(0.01, 30.0, 10)}, cv=5)
    return np.asarray(search.fit(X, y).best_estimator_.coef_)


def skglm_lasso(X: Floats, y: Floats, n_penalties: int = 30, ratio: float = 0.03, n_folds: int = 5) -> Floats:
    """Coefficients of skglm's Poisson lasso at the penalty of the smallest deviance over folds."""
    largest = np.abs(X.T @ (y - y.mean())).max() / len(y)
    penalties = largest * np.geomspace(1.0, ratio, n_penalties)
    fold = np.arange(len(y)) % n_folds
    errors = np.zeros(n_penalties)
    for k in range(n_folds):
        path = skglm_path(X[fold != k], y[fold != k], penalties)
        for place, (coef, intercept) in enumerate(path):
            eta = X[fold == k] @ coef + intercept
            errors[place] += np.sum(np.exp(np.minimum(eta, 50.0)) - y[fold == k] * eta)
    best = int(errors.argmin())
    return skglm_path(X, y, penalties[: best + 1])[-1][0]


def skglm_path(X: Floats, y: Floats, penalties: Floats, tol: float = 1e-4) -> list[tuple[Floats, float]]:
    """Fits of skglm along penalties, warm started."""
    from skglm.datafits import Poisson
    from skglm.penalties import L1
    from skglm.solvers import ProxNewton
    from skglm.utils.jit_compilation import compiled_clone

    loss = compiled_clone(Poisson())
    fits, w, Xw = [], np.zeros(X.shape[1] + 1), np.zeros(len(y))
    X = np.asfortranarray(X)
    for penalty in penalties:
        solver = ProxNewton(tol=tol, max_iter=100, fit_intercept=True, warm_start=True)
        w = solver.solve(X, y, loss, compiled_clone(L1(float(penalty))), w, Xw.copy())[0]
        Xw = X @ w[:-1] + w[-1]
        fits.append((w[:-1].copy(), float(w[-1])))
    return fits


# ---------------------------------------------------------------------- survival and outliers


def survival(seed: int) -> dict[str, int]:
    """One data set of censored times."""
    rng = np.random.default_rng(seed)
    X, tasks, eta = design(rng, 8, 100, 100, 0.4)
    time_of_event = rng.exponential(np.exp(-eta))
    stop = rng.exponential(1.5 * np.exp(-0.5 * eta))  # some 40% are censored
    y = np.array(
        list(zip(time_of_event <= stop, np.minimum(time_of_event, stop), strict=True)),
        dtype=[("event", bool), ("time", float)],
    )
    cv = {"n_penalties": 15, "penalty_ratio": 0.05, "cv": 5, "random_state": 0, "tol": 1e-4}
    joint = bm.MixedNormSurvivalCV(**cv).fit(X, y, tasks=tasks)
    alone = [bm.MixedNormSurvivalCV(norm_q=1, **cv).fit(X[tasks == t], y[tasks == t]).coef_[0] for t in range(8)]
    return {
        "Cox lasso per task": found(np.linalg.norm(alone, axis=0)),
        "Cox l1,2": found(row_norms(joint)),
        "censored, %": round(100 * np.mean(~y["event"])),
    }


def with_outliers(seed: int) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Features, targets of which a tenth has gross errors, and tasks."""
    rng = np.random.default_rng(seed)
    X, tasks, eta = design(rng, 8, 60, 150, 0.4)
    noise = np.where(rng.random(len(eta)) < 0.1, 15.0, 1.0)
    return X, eta + noise * rng.normal(size=len(eta)), tasks


def outliers(seed: int) -> dict[str, int]:
    """One data set with gross errors: penalised fits and MM."""
    X, y, tasks = with_outliers(seed)
    cv = {"n_penalties": 30, "penalty_ratio": 0.03, "cv": 5, "random_state": 0}
    models = {f"{loss} l1,2": bm.MixedNormRegressorCV(loss=loss, **cv) for loss in ("squared", "huber")}
    modes = ("squared", "absolute", "student_t(3)")
    models |= {f"{loss} MM": bm.GeneralizedNormalRegressor(loss=loss) for loss in modes}
    return {name: found(row_norms(model.fit(X, y, tasks=tasks))) for name, model in models.items()}


def outlier_posteriors(seed: int) -> dict[str, int]:
    """The same kind of data under the default prior, by Gibbs sampling."""
    X, y, tasks = with_outliers(seed)
    losses = ("squared", "absolute", "student_t(learn)", "student_t(3)")
    models = {loss: bm.BayesianRegressor(loss=loss, **LENGTHS) for loss in losses}
    return {name: found(row_norms(model.fit(X, y, tasks=tasks))) for name, model in models.items()}


# ---------------------------------------------------------------------- two priors


PRIORS = ("spike", "generalized_normal")
PRIOR_KINDS = {  # loss, tasks, rows of each, features, size of effects
    "outliers, student_t(learn)": ("student_t(learn)", 6, 60, 80, 0.5),
    "counts, negative_binomial(learn)": ("negative_binomial(learn)", 8, 80, 100, 0.4),
    "outliers, absolute": ("absolute", 6, 60, 80, 0.5),
    "outliers, quantile(0.7)": ("quantile(0.7)", 6, 60, 80, 0.5),
    "labels, offsets": ("logistic", 6, 120, 80, 0.8),
}


class PriorScore(NamedTuple):
    """What one prior says of one data set."""

    found: int  # of the relevant features
    false: int  # entries among those kept at a level of 5%
    kept: int
    entries: int  # that there are
    missed: float  # share of the signal's variance
    seconds: float


def two_priors(kind: str, shared: bool, seed: int) -> dict[str, PriorScore]:
    """Both priors on one data set; relevant features act in all tasks, or each in half of them."""
    loss, m, n, p, size = PRIOR_KINDS[kind]
    rng = np.random.default_rng([seed, list(PRIOR_KINDS).index(kind), shared])
    X, tasks = rng.normal(size=(m * n, p)), np.repeat(np.arange(m), n)
    W = np.zeros((p, m))
    W[:RELEVANT] = size * rng.normal(size=(RELEVANT, m))
    if not shared:
        for row in W[:RELEVANT]:
            row[rng.permutation(m)[: m // 2]] = 0.0
    eta = np.sum(X * W.T[tasks], axis=1)
    beside: dict[str, Any] = {}
    if kind.startswith("outliers"):
        y = eta + np.where(rng.random(len(eta)) < 0.1, 15.0, 1.0) * rng.normal(size=len(eta))
    elif kind.startswith("counts"):
        beside["exposure"] = np.exp(rng.normal(0.0, 0.5, len(eta)))
        y = rng.poisson(beside["exposure"] * np.exp(1.0 + eta) * rng.gamma(1.0, 1.0, len(eta))).astype(float)
    else:
        beside["offset"] = rng.normal(size=len(eta))
        y = (rng.random(len(eta)) < 1.0 / (1.0 + np.exp(-eta - beside["offset"]))).astype(float)
    scores, estimator = {}, bm.BayesianClassifier if loss == "logistic" else bm.BayesianRegressor
    for prior in PRIORS:
        begin = time.process_time()
        model = estimator(loss=loss, prior=prior, **LENGTHS).fit(X, y, tasks=tasks, **beside)
        seconds = time.process_time() - begin
        entries, off = largest_set(model.task_inclusion_probability_.T), model.coef_.T - W
        scores[prior] = PriorScore(
            found(row_norms(model)),
            int((entries & (W == 0)).sum()),
            int(entries.sum()),
            int((W != 0).sum()),
            float((off**2).sum() / (W**2).sum()),  # features are independent, with variance 1
            seconds,
        )
    return scores


def compare_priors(kind: str, shared: bool, n_seeds: int, first: int) -> None:
    """Print a row of a table for each prior, and the difference in the signal missed."""
    rows = [two_priors(kind, shared, first + seed) for seed in range(n_seeds)]
    title = f"{kind}, {'all tasks' if shared else 'half of the tasks'}, {n_seeds} data sets"
    for prior in PRIORS:
        scores = np.array([row[prior] for row in rows])
        false, kept, entries = scores[:, 1:4].sum(axis=0)
        (features, missed), errors = scores[:, [0, 4]].mean(axis=0), _errors(scores[:, [0, 4]])
        print(
            f"| {title} | {prior} | {features:.2f} ({errors[0]:.2f}) | {false:.0f}/{kept:.0f} | "
            f"{(kept - false) / entries:.2f} | {missed:.3f} ({errors[1]:.3f}) | {np.median(scores[:, 5]):.1f} |"
        )
    spike, other = (np.array([row[prior].missed for row in rows]) for prior in PRIORS)
    less = int((spike < other).sum())
    difference, error = (spike - other).mean(), _errors((spike - other)[:, np.newaxis])[0]
    print(f"  missed, difference {difference:+.3f} ({error:.3f}), less in {less} of {n_seeds}", flush=True)


def _errors(values: Floats) -> Floats:
    """Standard errors of the means of columns."""
    return np.asarray(np.std(values, axis=0, ddof=1) / np.sqrt(len(values)))


def recovery(name: str, draw: Callable[[int], dict[str, int]], n_seeds: int, first: int) -> None:
    """Print means and standard errors over data sets, and those of differences from the last method."""
    rows = []
    for seed in range(n_seeds):
        rows.append(draw(first + seed))
        print(f"  {name} {seed}: {rows[-1]}", flush=True)
    print(f"\n{name}: features found of {RELEVANT}, {n_seeds} data sets")
    methods = [method for method in rows[0] if "%" not in method]
    last = np.array([row[methods[-1]] for row in rows], dtype=float)
    for method in rows[0]:
        values = np.array([row[method] for row in rows], dtype=float)
        gain = last - values
        error = np.std(values, ddof=1) / np.sqrt(n_seeds), np.std(gain, ddof=1) / np.sqrt(n_seeds)
        more = f"; {methods[-1]} finds {gain.mean():+.2f} ({error[1]:.2f})" if method in methods[:-1] else ""
        print(f"  {method:32s} {values.mean():5.2f} ({error[0]:.2f}){more}", flush=True)


# ---------------------------------------------------------------------- speed


def seconds(run: Callable[[], Any], repeats: int = 5) -> tuple[float, Any]:
    """Smallest CPU time of some runs, and the answer."""
    answer, best = run(), np.inf
    for _ in range(repeats):
        begin = time.process_time()
        answer = run()
        best = min(best, time.process_time() - begin)
    return best, answer


def speed(seeds: range) -> None:
    """Print CPU seconds of single-task and multi-task Poisson fits, and the worst ratios."""
    peers = {"one task, n 1000, p 2000": (1, 1000, 2000), "l1,2, 10 tasks of 100, p 300": (10, 100, 300)}
    for name, (m, n, p) in peers.items():
        for share in (0.3, 0.1):
            ratios = []
            for seed in seeds:
                rng = np.random.default_rng(seed)
                X, tasks, eta = design(rng, m, n, p, 0.2)
                y = rng.poisson(np.exp(0.5 + eta)).astype(float)
                data = bm.TaskData.from_long(X, y, tasks)
                problem = Problem(data, find_family("poisson"), RowPenalty(0.0, 2.0), data.loss_weights("mean"))
                problem = problem.with_strength(share * problem.largest_penalty)
                ours, theirs = our_fit(data, problem), (skglm_fit if m == 1 else adelie_fit)(data, problem)
                ratios.append(theirs / ours)
                peer = "skglm" if m == 1 else "adelie"
                print(
                    f"  {name}, lambda_max x {share}, seed {seed}: ours {ours:.4f} s, {peer} {theirs:.4f} s", flush=True
                )
            print(f"  {name}, lambda_max x {share}: worst ratio {min(ratios):.2f}", flush=True)


def certified(problem: Problem, W: Floats, intercept: Floats) -> bool:
    """Whether an answer is within the gap."""
    eta = problem.data.linear_predictor(W, intercept)
    return bool(problem.gap(W, eta) <= GAP * problem.gap_scale)


def our_fit(data: bm.TaskData, problem: Problem) -> float:
    """CPU seconds of our fit, from the user's rows."""
    X, y, tasks = np.asarray(data.X), data.y, data.task

    def run() -> Any:
        path = bm.mixed_norm_path(X, y, tasks, [problem.penalty.strength], loss="poisson", tol=GAP, progress=False)
        return path.coefs[0].T, path.intercepts[0]

    cpu, answer = seconds(run)
    if not certified(problem, *answer):
        raise RuntimeError("our own answer is not certified")
    return cpu


def down_the_ladder(problem: Problem, run_at: Callable[[float], Any], tolerances: Floats) -> float:
    """CPU seconds at the loosest tolerance whose answer is certified."""
    for tol in tolerances:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if certified(problem, *run_at(float(tol))):
                return seconds(lambda tol=float(tol): run_at(tol))[0]  # type: ignore[misc]
    return float("nan")


def skglm_fit(data: bm.TaskData, problem: Problem) -> float:
    """Prox-Newton of skglm for one task."""
    X, strength = np.asfortranarray(data.X), np.array([problem.penalty.strength])

    def run_at(tol: float) -> Any:
        coef, intercept = skglm_path(X, data.y, strength, tol)[0]
        return coef[:, np.newaxis], np.array([intercept])

    return down_the_ladder(problem, run_at, 10.0 ** -np.arange(3, 11))


def adelie_fit(data: bm.TaskData, problem: Problem) -> float:
    """Group elastic net of adelie on the block design: one group per feature, one free column per task."""
    import adelie as ad

    m, p, n = data.n_tasks, data.n_features, data.n_observations
    columns = [sp.block_diag([X[:, [i]] for X in data.task_designs]) for i in range(p)]
    columns.append(sp.block_diag([np.ones((X.shape[0], 1)) for X in data.task_designs]))
    blocks = np.asfortranarray(sp.hstack(columns).toarray())
    groups = np.concatenate([np.arange(p) * m, p * m + np.arange(m)])
    factors = np.concatenate([np.ones(p), np.zeros(m)])
    weights = data.loss_weights("mean") / m
    matrix = ad.matrix.dense(blocks, method="naive", n_threads=1)
    glm = ad.glm.poisson(data.y, weights=weights)
    steps = np.geomspace(problem.largest_penalty, problem.penalty.strength, 6)[1:] / m
    assert len(data.y) == n

    def run_at(tol: float) -> Any:
        state = ad.grpnet(
            X=matrix,
            glm=glm,
            groups=groups,
            alpha=1.0,
            penalty=factors,
            lmda_path=steps,
            intercept=False,
            early_exit=False,
            progress_bar=False,
            n_threads=1,
            tol=tol,
            irls_tol=tol,
        )
        found = np.asarray(state.betas[-1].toarray()).ravel()
        return found[: p * m].reshape(p, m), found[p * m :]

    return down_the_ladder(problem, run_at, 10.0 ** -np.arange(6, 18, 2))


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20, help="data sets of each kind")
    parser.add_argument("--only", default="counts,survival,outliers,outlier_posteriors,priors,speed")
    parser.add_argument("--first", type=int, default=1000, help="seed of the first data set")
    arguments = parser.parse_args()
    chosen = arguments.only.split(",")
    kinds = {"counts": counts, "survival": survival, "outliers": outliers, "outlier_posteriors": outlier_posteriors}
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, draw in kinds.items():
            if name in chosen:
                recovery(name, draw, arguments.seeds, arguments.first)
        for kind in PRIOR_KINDS if "priors" in chosen else ():
            for shared in (True, False):
                compare_priors(kind, shared, arguments.seeds, arguments.first)
        if "speed" in chosen:
            print("\nspeed: CPU seconds to a certified gap of 1e-6")
            speed(range(3))


if __name__ == "__main__":
    main()
