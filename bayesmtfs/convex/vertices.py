"""Solutions of the hinge and the absolute loss at a penalty that hardly counts.

Objective: the convex problem of `problem`. The loss alone is piecewise linear and falls apart into one linear program
per task, such as for the absolute loss

    minimise over w, b, u, v:   sum_i c_i (u_i + v_i)   subject to   X w + b + u - v = y,   u, v >= 0,

whose solution is a vertex: as many residuals are at a kink of the loss as there are coefficients (Koenker 2005,
*Quantile Regression*, section 2.2). If it is unique, a small enough penalty does not move it (Mangasarian and Meyer
1979, *SIAM Journal on Control and Optimization* 17:745-752), and its multipliers theta follow from one linear system per
task over the observations B at a kink, whose theta is free:

    X_B' theta_B = - gradient of the penalty - X_N' theta_N,      theta_N at the ends of their intervals.

The point is certified like any other: by the duality gap of theta after scaling. Interior points (`nonsmooth`) cannot
work there, since the dual balls are so small that X' theta inside them is nothing but rounding error.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog

from bayesmtfs.convex.problem import Problem, with_zero_sum
from bayesmtfs.convex.saddle_point import best_intercept, dual_box
from bayesmtfs.priors.row_penalty import row_norms
from bayesmtfs.types import FloatArray, Solution

SMALL = 1e-4  # of the largest penalty, up to which a vertex is tried
WELL_INSIDE = 1e-4  # distance from the ends of an interval, relative to its length
AT_KINK = 1e-9  # size of a residual, relative to the largest, that counts as 0


class Vertex(NamedTuple):
    """Minimiser of the loss alone."""

    W: FloatArray  # (p, m)
    theta: FloatArray  # (N,)


def applies(problem: Problem) -> bool:
    """Whether the penalty is small and every task has more observations than features."""
    smallest = int(np.diff(problem.data.offsets).min())
    return problem.penalty.strength <= SMALL * problem.largest_penalty and problem.data.n_features < smallest


def solve(problem: Problem, best: Solution, *, tol: float) -> Solution:
    """Minimiser of the loss alone where its gap is within `tol` at the penalty of the problem, else `best`."""
    vertex = minimise_loss(problem)
    if vertex is None:
        return best
    data = problem.data
    predictor = data.linear_predictor(vertex.W, np.zeros(data.n_tasks))
    intercept = best_intercept(problem, predictor)
    eta = predictor + intercept[data.task]
    objective = problem.objective(vertex.W, eta)
    candidates = (vertex.theta, _multipliers(problem, vertex, eta))
    lower = max(problem.dual_objective(_feasible(problem, theta)) for theta in candidates)
    gap = max(objective - lower, 0.0)
    if gap > tol * best.scale:
        return best
    return best._replace(
        W=vertex.W,
        intercept=intercept,
        objective=objective,
        gap=gap,
        converged=True,
        n_iter=1,
        objective_trace=np.array([best.objective, objective]),
    )


def minimise_loss(problem: Problem) -> Vertex | None:
    """Solve the linear program of every task; None where one of them has no solution."""
    data = problem.data
    W, theta = np.zeros((data.n_features, data.n_tasks)), np.empty(data.n_observations)
    for t, (X, (start, stop)) in enumerate(zip(data.task_designs, data.spans, strict=True)):
        own = np.arange(data.n_features) if data.present is None else np.flatnonzero(data.present[:, t])
        found = _linear_program(problem, X[:, own], start, stop)
        if not found.success:
            return None
        W[own, t], theta[start:stop] = found.x[: len(own)], -found.eqlin.marginals
    return Vertex(W, theta)


def inner_points(problem: Problem) -> FloatArray:
    """(N,) A theta well inside its intervals with ``X' theta = 0`` for each task that has one, NaN for the others.

    Only for the hinge, where 0 is an end of every interval; there is none where the classes can be separated. It is
    ``theta = - y c z`` with the largest s such that every z is in [s, 1 - s].
    """
    data = problem.data
    theta = np.full(data.n_observations, np.nan)
    for X, (start, stop) in zip(data.task_designs, data.spans, strict=True):
        signed = data.y[start:stop] * problem.weight[start:stop]
        n = stop - start
        balance = sp.csr_array(X).T if not problem.fit_intercept else sp.hstack([sp.csr_array(X), np.ones((n, 1))]).T
        equal = sp.hstack([balance * (signed / np.abs(signed).mean()), sp.csr_array((balance.shape[0], 1))])
        inside = sp.block_array([[-sp.eye_array(n), np.ones((n, 1))], [sp.eye_array(n), np.ones((n, 1))]])
        found = linprog(
            np.append(np.zeros(n), -1.0),
            A_ub=inside,
            b_ub=np.repeat([0.0, 1.0], n),
            A_eq=equal,
            b_eq=np.zeros(equal.shape[0]),
            bounds=(0.0, 1.0),
            method="highs",
        )
        if found.success and found.x[-1] > WELL_INSIDE:
            theta[start:stop] = -signed * found.x[:-1]
    return theta


def _linear_program(problem: Problem, X: Any, start: int, stop: int) -> Any:
    """Coefficients, the intercept, and both sides of every residual ``y - eta``; for the hinge one of them is free."""
    y, c = problem.data.y[start:stop], problem.weight[start:stop]
    n, p = X.shape
    ones = np.ones((n, 1)) if problem.fit_intercept else np.empty((n, 0))
    above, below = c, c
    if problem.family.name == "hinge":
        above, below = np.where(y > 0, c, 0.0), np.where(y > 0, 0.0, c)
    matrix = sp.hstack([sp.csc_array(X), sp.csc_array(ones), sp.eye_array(n), -sp.eye_array(n)], format="csc")
    free = p + ones.shape[1]
    bounds = [(None, None)] * free + [(0.0, None)] * (2 * n)
    return linprog(np.concatenate([np.zeros(free), above, below]), A_eq=matrix, b_eq=y, bounds=bounds, method="highs")


def _multipliers(problem: Problem, vertex: Vertex, eta: FloatArray) -> FloatArray:
    """(N,) Theta that balances the gradient of the penalty at the vertex, by those at a kink."""
    data, present = problem.data, problem.data.present
    residual = np.abs(data.y - eta)
    at_kink = residual <= AT_KINK * max(1.0, float(residual.max()))
    missing = -penalty_gradient(problem, vertex.W) - data.adjoint(vertex.theta)
    theta = vertex.theta.copy()
    for t, (X, (start, stop)) in enumerate(zip(data.task_designs, data.spans, strict=True)):
        free = np.flatnonzero(at_kink[start:stop])
        own = slice(None) if present is None else np.flatnonzero(present[:, t])
        columns = X[free][:, own]
        columns = np.asarray(columns.toarray() if sp.issparse(columns) else columns, dtype=np.float64)
        wanted = missing[own, t]
        if problem.fit_intercept:
            columns = np.column_stack([columns, np.ones(len(free))])
            wanted = np.append(wanted, -theta[start:stop].sum())
        theta[start + free] += np.linalg.lstsq(columns.T, wanted)[0]
    return theta


def _feasible(problem: Problem, theta: FloatArray) -> FloatArray:
    """Theta inside its box and with sums of 0, as it is but for rounding or where the vertex is not optimal."""
    theta = np.clip(theta, *dual_box(problem))
    return with_zero_sum(theta, problem.data.task, problem.data.offsets[:-1]) if problem.fit_intercept else theta


def penalty_gradient(problem: Problem, W: FloatArray) -> FloatArray:
    """(p, m) Gradient of the penalty at W, or a subgradient at a kink of it."""
    penalty, rows = problem.penalty, problem.blocks.gather(W)
    norm_q = penalty.norm_q
    norms = row_norms(rows, norm_q)[:, np.newaxis]
    relative = np.abs(rows) / np.where(norms > 0.0, norms, 1.0)
    if norm_q == np.inf:
        largest = (relative == 1.0).astype(np.float64)
        sizes = largest / np.maximum(largest.sum(axis=1, keepdims=True), 1.0)
    else:
        sizes = relative ** (norm_q - 1.0)
    if penalty.entrywise:
        sizes += np.broadcast_to(penalty.task_sparsity, len(rows))[:, np.newaxis]
    return problem.blocks.scatter(penalty.strengths(len(rows))[:, np.newaxis] * sizes * np.sign(rows))
