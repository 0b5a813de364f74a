"""Who is compared, and how each one's objective becomes ours.

A competitor's `build` prepares a problem in its own form (not timed) and returns `solve(tol)`, which is timed from raw
arrays to coefficients through the package's public entry. It gives one ``(W, b)`` per strength; b is None where the
package has no intercept and the data were centred for it. With n rows per task, ours is

    (1/2n) ||Y - X W||^2 + strength * sum_j ||w^j||_q

so that ``alpha = strength`` in scikit-learn, skglm and celer, ``lmda = strength / m`` in adelie's multi-response
model (its loss has a factor 1/m), and the rows are scaled by ``1/sqrt(n)`` for SPAMS (its loss is a sum).
"""

import importlib
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from certificate import FloatArray, largest_penalty
from peer_forms import block_design, centred, read_blocks, scaled_blocks, with_intercept_columns
from workloads import Problem

Answers = Sequence[tuple[FloatArray, FloatArray | None]]
LARGEST_CONE_PROGRAM = 20_000  # entries of W; above it an interior point method takes minutes


class NotApplicable(Exception):  # noqa: N818  (no error: the reason why a package has no entry)
    """A package cannot solve a problem, or not in sensible time."""


class Prepared(NamedTuple):
    """A problem in a package's own form."""

    solve: Callable[[float], Answers]
    note: str = ""


class Competitor(NamedTuple):
    """A package with the tolerances to try, loosest first.

    `counted_from` is the loosest tolerance whose time may count, as a package's own promise of accuracy.
    """

    name: str
    build: Callable[[Problem, int], Prepared]
    tolerances: Sequence[float]
    counted_from: float = math.inf


def ladder(loosest: float, tightest: float) -> list[float]:
    """Tolerances in steps of the square root of ten."""
    steps = round(2 * math.log10(loosest / tightest))
    return [loosest * 10 ** (-k / 2) for k in range(steps + 1)]


def need(condition: bool, reason: str) -> None:
    """Refuse a problem with a reason."""
    if not condition:
        raise NotApplicable(reason)


def need_shared_squared(problem: Problem) -> None:
    """Refuse all but a squared loss over one design with q = 2."""
    need(problem.data.shared, "one design only")
    need_squared(problem)


def need_squared(problem: Problem) -> None:
    """Refuse all but a squared loss with q = 2."""
    need(problem.data.loss == "squared", "squared loss only")
    need(problem.norm_q == 2, "q = 2 only")


# ---------------------------------------------------------------------- ours


def build_ours(problem: Problem, n_threads: int) -> Prepared:
    """`MixedNormRegressor`, `MixedNormClassifier` or `mixed_norm_path` on the raw data, intercepts included."""
    import bayesmtfs as bm

    data = problem.data
    arguments = (data.X, data.wide_targets) if data.shared else (data.X, data.stacked_targets, data.labels)
    settings: dict[str, Any] = {"norm_q": problem.norm_q, "loss": data.loss}
    if problem.is_path:
        need(hasattr(bm, "mixed_norm_path"), "bayesmtfs has no mixed_norm_path")

        def solve_path(tol: float) -> Answers:
            path = bm.mixed_norm_path(*arguments, penalties=problem.strengths, tol=tol, **settings)
            return [(coef.T, b) for coef, b in zip(path.coefs, path.intercepts, strict=True)]

        return Prepared(solve_path)
    kind = bm.MixedNormClassifier if data.loss in ("logistic", "hinge") else bm.MixedNormRegressor

    def solve(tol: float) -> Answers:
        model = kind(penalty_strength=problem.strength, tol=tol, **settings).fit(*arguments)
        return [(model.coef_.T, model.intercept_)]

    return Prepared(solve)


# ---------------------------------------------------------------------- peers


def build_scikit_learn(problem: Problem, n_threads: int) -> Prepared:
    """`MultiTaskLasso`, for q = 1 `Lasso` with several targets."""
    from sklearn.linear_model import Lasso, MultiTaskLasso, lasso_path

    need(problem.data.shared, "one design only")
    need(problem.data.loss == "squared", "squared loss only")
    need(problem.norm_q in (1, 2), "q = 1 or 2 only")
    kind = MultiTaskLasso if problem.norm_q == 2 else Lasso
    X, Y = centred(problem.data)
    if problem.is_path:
        need(problem.norm_q == 2, "its path over several targets has q = 2")

        def solve_path(tol: float) -> Answers:
            _, coefs, _ = lasso_path(X, Y, alphas=problem.strengths, tol=tol, max_iter=100_000)
            return [(coefs[:, :, k].T, None) for k in range(len(problem.strengths))]

        return Prepared(solve_path)

    def solve(tol: float) -> Answers:
        model = kind(alpha=problem.strength, fit_intercept=False, tol=tol, max_iter=100_000).fit(X, Y)
        return [(model.coef_.T, None)]

    return Prepared(solve)


def build_skglm(problem: Problem, n_threads: int) -> Prepared:
    """`MultiTaskLasso` over one design, `GroupLasso` on the block design, prox-Newton for the logistic loss."""
    import skglm

    data = problem.data
    need(problem.norm_q == 2, "q = 2 only")
    if data.loss == "logistic":
        need(isinstance(data.X, np.ndarray), "its group logistic solver needs a dense design")
        return importlib.import_module("peer_skglm").build_logistic(problem)
    need_squared(problem)
    if not data.shared:
        design, y = scaled_blocks(data)
        settings = {"groups": data.n_tasks, "fit_intercept": False, "max_iter": 200}

        def solve_groups(tol: float) -> Answers:
            model = skglm.GroupLasso(alpha=problem.strength / len(y), tol=tol, **settings).fit(design, y)
            return [read_blocks(model.coef_, data)]

        return Prepared(solve_groups)
    X, Y = centred(data)

    def solve(tol: float) -> Answers:
        model = skglm.MultiTaskLasso(alpha=problem.strength, fit_intercept=False, tol=tol, max_iter=200)
        if problem.is_path:
            _, coefs, _ = model.path(X, Y, alphas=problem.strengths)
            return [(coefs[:, :, k].T, None) for k in range(len(problem.strengths))]
        return [(model.fit(X, Y).coef_.T, None)]

    return Prepared(solve)


def build_celer(problem: Problem, n_threads: int) -> Prepared:
    """`celer.homotopy.mtl_path`; the estimator of version 0.7.4 does not run on scikit-learn 1.9."""
    import celer
    from celer.homotopy import mtl_path

    need_shared_squared(problem)
    X, Y = centred(problem.data)
    try:
        celer.MultiTaskLasso(alpha=1.0).fit(X[:10, :3], Y[:10])
        note = ""
    except Exception as error:  # whatever breaks the estimator is what the reader wants to know
        note = f"MultiTaskLasso.fit fails here ({type(error).__name__}: {str(error)[:60]}); timed: mtl_path"

    def solve(tol: float) -> Answers:
        _, coefs, _ = mtl_path(X, Y, alphas=problem.strengths, tol=tol, max_iter=200)
        return [(coefs[:, :, k].T, None) for k in range(len(problem.strengths))]

    return Prepared(solve, note)


def build_adelie(problem: Problem, n_threads: int, n_steps: int = 1) -> Prepared:
    """`grpnet`: multi-response over one design, groups on the block design otherwise.

    `n_steps` strengths from lambda_max down lead to a single one; for some problems that is several times faster.
    """
    import adelie as ad

    data, m = problem.data, problem.data.n_tasks
    need(problem.norm_q == 2, "q = 2 only")
    need(data.loss in ("squared", "logistic"), "smooth losses only")
    settings = {"alpha": 1.0, "intercept": False, "early_exit": False, "progress_bar": False, "n_threads": n_threads}
    if data.shared:
        need(data.loss == "squared", "no one-versus-rest logistic loss over one design")
        X, Y = centred(data)
        design, glm = (
            ad.matrix.dense(X, method="naive", n_threads=n_threads),
            ad.glm.multigaussian(np.ascontiguousarray(Y)),
        )
        settings["penalty"], factor = np.ones(data.n_features), 1 / m
    else:
        total = data.row_factors.sum()
        blocks = block_design(data, centre=data.loss == "squared")
        groups, penalty = np.arange(data.n_features) * m, np.ones(data.n_features)
        weights, factor = data.row_factors / total, 1 / total
        if data.loss == "squared":
            glm = ad.glm.gaussian(np.concatenate([y - y.mean() for y in data.targets]), weights=weights)
        else:
            blocks = with_intercept_columns(blocks, data)
            groups = np.concatenate([groups, data.n_features * m + np.arange(m)])
            penalty = np.concatenate([penalty, np.zeros(m)])
            glm = ad.glm.binomial((data.stacked_targets + 1) / 2, weights=weights)
        design = ad.matrix.sparse(blocks, method="naive", n_threads=n_threads)
        settings |= {"groups": groups, "penalty": penalty}

    wanted = len(problem.strengths)
    strengths = problem.strengths
    if n_steps > 1:
        need(not problem.is_path, "a path already")
        strengths = np.geomspace(0.9 * largest_penalty(data, problem.norm_q), problem.strength, n_steps)

    def solve(tol: float) -> Answers:
        state = ad.grpnet(design, glm, lmda_path=factor * strengths, tol=tol, irls_tol=tol, **settings)
        return [read_blocks(state.betas[k].toarray(), data) for k in range(len(strengths) - wanted, len(strengths))]

    return Prepared(solve)


def build_spams(problem: Problem, n_threads: int) -> Prepared:
    """`fistaFlat`: the multi-task norms over one design, groups on the block design otherwise."""
    import spams

    data, m = problem.data, problem.data.n_tasks
    need(data.loss == "squared", "squared loss only (its logistic loss has no weights)")
    need(problem.norm_q in (2, np.inf), "q = 2 or inf only")
    need(not problem.is_path, "no path")
    end = "l2" if problem.norm_q == 2 else "linf"
    if data.shared:
        X, Y = (part / np.sqrt(len(data.X)) for part in centred(data))
        settings = {"regul": f"l1{end}"}
    else:
        X, y = scaled_blocks(data)
        Y = np.asfortranarray(y[:, None])
        settings = {"regul": f"group-lasso-{end}", "size_group": m}
    settings |= {"loss": "square", "lambda1": problem.strength, "numThreads": n_threads, "L0": 0.1, "it0": 10}

    def solve(tol: float) -> Answers:
        start = np.zeros((X.shape[1], Y.shape[1]), order="F")
        W = spams.fistaFlat(Y, X, start, tol=tol, max_it=20_000, **settings)
        return [(np.asarray(W), None) if data.shared else read_blocks(W, data)]

    return Prepared(solve)


def build_cvxpy(problem: Problem, n_threads: int) -> Prepared:
    """Clarabel through cvxpy, from the arrays to the solution."""
    import cvxpy as cp

    data = problem.data
    need(not problem.is_path, "no path")
    need(data.n_features * data.n_tasks <= LARGEST_CONE_PROGRAM, f"more than {LARGEST_CONE_PROGRAM} coefficients")
    losses: dict[str, Callable[[Any, Any], Any]] = {
        "squared": lambda y, eta: cp.sum_squares(y - eta) / 2,
        "logistic": lambda y, eta: cp.sum(cp.logistic(-cp.multiply(y, eta))),
        "hinge": lambda y, eta: cp.sum(cp.pos(1 - cp.multiply(y, eta))),
        "absolute": lambda y, eta: cp.sum(cp.abs(y - eta)),
    }
    loss = losses[data.loss]

    def solve(tol: float) -> Answers:
        W, b = cp.Variable((data.n_features, data.n_tasks)), cp.Variable((1, data.n_tasks))
        if data.shared:
            Y = data.wide_targets
            total = loss(Y, data.X @ W + np.ones((len(Y), 1)) @ b) / len(Y)
        else:
            parts = enumerate(data.targets)
            total = sum(loss(y, data.design(t) @ W[:, t] + b[0, t]) / len(y) for t, y in parts)
        penalty = (
            cp.sum(cp.norm(W, problem.norm_q, axis=1))
            if problem.norm_q in (1, 2, np.inf)
            else cp.sum(cp.hstack([cp.pnorm(W[j], problem.norm_q) for j in range(data.n_features)]))
        )
        program = cp.Problem(cp.Minimize(total + problem.strength * penalty))
        program.solve(solver=cp.CLARABEL, tol_gap_abs=tol, tol_gap_rel=tol, tol_feas=tol)
        return [(W.value, b.value[0])]

    return Prepared(solve)


OURS = Competitor("bayesmtfs", build_ours, ladder(1e-1, 1e-8), counted_from=1e-6)
PEERS: tuple[Competitor, ...] = (
    Competitor("scikit-learn", build_scikit_learn, ladder(1e-3, 1e-10)),
    Competitor("skglm", build_skglm, ladder(1e-2, 1e-10)),
    Competitor("celer", build_celer, ladder(1e-3, 1e-10)),
    Competitor("adelie", build_adelie, ladder(1e-6, 1e-18)),
    Competitor("adelie, 6 steps", partial(build_adelie, n_steps=6), ladder(1e-6, 1e-18)),
    Competitor("spams", build_spams, ladder(1e-2, 1e-14)),
    Competitor("cvxpy+clarabel", build_cvxpy, ladder(1e-5, 1e-10)),
)
