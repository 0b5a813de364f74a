"""What the solvers of piecewise linear losses share: the saddle point problem, exact intercepts, and vertices.

Such a loss is a maximum over a dual variable in an interval, ``l(y, eta) = max u (eta - place)`` with u between its two
slopes (`families.Kinks`). The convex problem is then the saddle point problem

    min over W, b   max over theta:   sum_i theta_i (x_i' w_t(i) + b_t(i) - place_i) + penalty(W),

with theta_i in c_i times that interval (Obozinski, Taskar and Jordan 2006, section 3.1). Its dual objective is
``- sum_i theta_i place_i``, at any theta that sums to 0 over each task with an intercept and keeps the rows of
``X' theta`` in the dual ball of the penalty.

At a penalty that hardly counts the loss alone decides. It falls apart into one linear program per task,

    minimise over w, b, u, v:   sum_i - left_i u_i + right_i v_i   subject to   X w + b + u - v = place,   u, v >= 0,

whose solution is a vertex: as many residuals are at a kink of the loss as there are coefficients (Koenker 2005,
*Quantile Regression*, section 2.2). If it is unique, a small enough penalty does not move it (Mangasarian and Meyer
1979, *SIAM Journal on Control and Optimization* 17:745-752), and its multipliers theta follow from one linear system per
task over the observations B at a kink, whose theta is free:

    X_B' theta_B = - gradient of the penalty - X_N' theta_N,      theta_N at the ends of their intervals.

The point is certified like any other: by the duality gap of theta after scaling. Interior points (`nonsmooth`) cannot
work there, since the dual balls are so small that X' theta inside them is nothing but rounding error.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog

from bayesmtfs.convex.problem import Problem, with_zero_sum
from bayesmtfs.families import Kinks
from bayesmtfs.types import BoolArray, FloatArray, Solution

SMALL = 1e-4  # of the largest penalty, up to which a vertex is tried
WELL_INSIDE = 1e-4  # distance from the ends of an interval, relative to its length
AT_KINK = 1e-9  # size of a residual, relative to the largest, that counts as 0


class Vertex(NamedTuple):
    """Minimiser of the loss alone."""

    W: FloatArray  # (p, m)
    theta: FloatArray  # (N,)


def best_intercept(problem: Problem, predictor: FloatArray) -> FloatArray:
    """(m,) Exact minimiser of the loss over the intercepts, for a linear predictor without them."""
    if not problem.fit_intercept:
        return np.zeros(problem.data.n_tasks)
    place, left, right = problem.kinks
    place = place - predictor
    return np.array([Kinks(place[a:b], left[a:b], right[a:b]).lowest() for a, b in problem.data.spans])


def balanced(problem: Problem, theta: FloatArray) -> FloatArray:
    """Theta inside its intervals and with sums of 0, as it is but for rounding or where it is not optimal."""
    theta = np.clip(theta, problem.kinks.left, problem.kinks.right)
    return with_zero_sum(theta, problem.data.task, problem.data.offsets[:-1]) if problem.fit_intercept else theta


def without_settled_tasks(problem: Problem) -> tuple[Problem, BoolArray]:
    """Leave out tasks with an intercept whose losses are all flat on the same side, such as the hinge of one class.

    Their loss is 0 at W = 0. Returned are the problem of the other tasks, and (m,) whether a task was left out.
    """
    data, kinks = problem.data, problem.kinks
    settled = np.zeros(data.n_tasks, dtype=bool)
    if problem.fit_intercept:
        settled = np.array([not kinks.left[a:b].any() or not kinks.right[a:b].any() for a, b in data.spans])
    if not settled.any() or settled.all():
        return problem, settled
    kept = ~settled[data.task]
    parts: dict[str, Any] = {
        "y": data.y[kept],
        "weight": data.weight[kept],
        "order": data.order[kept],
        "offsets": np.concatenate([[0], np.cumsum(np.diff(data.offsets)[~settled])]),
        "task_names": data.task_names[~settled],
        "present": None if data.present is None else data.present[:, ~settled],
        "eta_offset": None if data.eta_offset is None else data.eta_offset[kept],
    }
    if data.shared_design:
        parts["rows"] = data.rows[kept]
    else:
        parts |= {"design": data.design[kept], "rows": np.arange(int(kept.sum()))}
    return replace(problem, data=replace(data, **parts), weight=problem.weight[kept]), settled


# ---------------------------------------------------------------------- vertices


def vertex_applies(problem: Problem) -> bool:
    """Whether the penalty is small and every task has more observations than features."""
    smallest = int(np.diff(problem.data.offsets).min())
    return problem.penalty.strength <= SMALL * problem.largest_penalty and problem.data.n_features < smallest


def solve_at_vertex(problem: Problem, best: Solution, *, tol: float) -> Solution:
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
    lower = max(problem.dual_objective(balanced(problem, theta)) for theta in candidates)
    gap = max(objective - lower, 0.0)
    if gap > tol * best.scale:
        return best
    trace = np.array([best.objective, objective])
    found = best._replace(W=vertex.W, intercept=intercept, objective=objective, gap=gap)
    return found._replace(converged=True, n_iter=1, objective_trace=trace)


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


def _linear_program(problem: Problem, X: Any, start: int, stop: int) -> Any:
    """Coefficients, the intercept, and both sides of every residual ``place - eta``."""
    place, left, right = (part[start:stop] for part in problem.kinks)
    n, p = X.shape
    ones = np.ones((n, 1)) if problem.fit_intercept else np.empty((n, 0))
    matrix = sp.hstack([sp.csc_array(X), sp.csc_array(ones), sp.eye_array(n), -sp.eye_array(n)], format="csc")
    free = p + ones.shape[1]
    bounds = [(None, None)] * free + [(0.0, None)] * (2 * n)
    return linprog(np.concatenate([np.zeros(free), -left, right]), A_eq=matrix, b_eq=place, bounds=bounds)


def inner_points(problem: Problem) -> FloatArray:
    """(N,) A theta well inside its intervals with ``X' theta = 0`` for each task that has one, NaN for the others.

    For losses with a flat side, where 0 is an end of an interval; the hinge has none where the classes can be separated.
    It is ``theta = near + (far - near) z``, near and far the ends of the intervals, with the largest s such that every z
    is in [s, 1 - s].
    """
    data, (_, left, right) = problem.data, problem.kinks
    near, far = np.where(right < -left, (right, left), (left, right))
    theta = np.full(data.n_observations, np.nan)
    for X, (start, stop) in zip(data.task_designs, data.spans, strict=True):
        n, own = stop - start, slice(start, stop)
        length = far[own] - near[own]
        unit = np.abs(length).mean()
        balance = sp.csr_array(X).T if not problem.fit_intercept else sp.hstack([sp.csr_array(X), np.ones((n, 1))]).T
        equal = sp.hstack([balance * (length / unit), sp.csr_array((balance.shape[0], 1))])
        inside = sp.block_array([[-sp.eye_array(n), np.ones((n, 1))], [sp.eye_array(n), np.ones((n, 1))]])
        found = linprog(
            np.append(np.zeros(n), -1.0),
            A_ub=inside,
            b_ub=np.repeat([0.0, 1.0], n),
            A_eq=equal,
            b_eq=-balance @ (near[own] / unit),
            bounds=(0.0, 1.0),
        )
        if found.success and found.x[-1] > WELL_INSIDE:
            theta[own] = near[own] + length * found.x[:-1]
    return theta


def _multipliers(problem: Problem, vertex: Vertex, eta: FloatArray) -> FloatArray:
    """(N,) Theta that balances the gradient of the penalty at the vertex, by those at a kink."""
    data, present = problem.data, problem.data.present
    residual = np.abs(problem.kinks.place - eta)
    at_kink = residual <= AT_KINK * max(1.0, float(residual.max()))
    gradient = problem.blocks.scatter(problem.penalty.gradient(problem.blocks.gather(vertex.W)))
    missing = -gradient - data.adjoint(vertex.theta)
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
