"""Outside certificate: the relative duality gap of any answer, in NumPy alone.

For theta_t = gradient of task t's loss in its linear predictor, made feasible (sum of 0 because of the intercept, dual
norm of every row of (X_t' theta_t)_t at most the strength), weak duality gives

    gap = objective(W, b) - dual(theta) >= objective(W, b) - minimum,
    dual(theta) = - sum_t sum_i c_t loss*(y_ti, theta_ti / c_t),   c_t = 1/n_t

(Boyd and Vandenberghe 2004, section 5.1.6), reported relative to the objective at W = 0. The hinge and the absolute
loss have no unique gradient, so that no theta follows from W: there the dual problem itself is solved once by an
interior point method, and every answer is held against that one feasible point.
"""

import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, xlogy

if TYPE_CHECKING:
    from workloads import Problem, TaskSet

FloatArray = NDArray[np.float64]
TARGET = 1e-6


def dual_exponent(q: float) -> float:
    """q* with 1/q + 1/q* = 1."""
    if q == 1:
        return np.inf
    return 1.0 if np.isinf(q) else q / (q - 1)


def row_norms(W: FloatArray, q: float) -> FloatArray:
    """l_q norm of every row, without overflow or underflow."""
    largest = np.abs(W).max(axis=1, keepdims=True)
    scale = np.where(largest > 0, largest, 1.0)
    norms: FloatArray = np.linalg.norm(W / scale, ord=q, axis=1) * scale[:, 0]
    return norms


def mean_loss(loss: str, y: FloatArray, eta: FloatArray) -> float:
    """Mean loss of one task."""
    if loss == "squared":
        return float(np.mean((y - eta) ** 2) / 2)
    if loss == "logistic":
        return float(np.mean(np.logaddexp(0.0, -y * eta)))
    if loss == "hinge":
        return float(np.mean(np.maximum(1 - y * eta, 0.0)))
    return float(np.mean(np.abs(y - eta)))


def best_intercept(loss: str, y: FloatArray, eta: FloatArray) -> float:
    """Intercept that minimises the loss of one task on top of eta."""
    if loss == "squared":
        return float(np.mean(y - eta))
    if loss == "logistic":
        return _logistic_intercept(y, eta)
    if loss == "absolute":
        return float(np.median(y - eta))
    kinks = y - eta  # the hinge of a row bends where y (eta + b) = 1
    return float(kinks[np.argmin([mean_loss(loss, y, eta + b) for b in kinks])])


def _logistic_intercept(y: FloatArray, eta: FloatArray) -> float:
    """Newton's method inside a bracket of the increasing derivative."""
    low, high = -np.abs(eta).max() - 40.0, np.abs(eta).max() + 40.0
    b = 0.0
    for _ in range(200):
        chance = expit(y * (eta + b))
        slope = float(np.sum(-y * (1 - chance)))
        low, high = (b, high) if slope < 0 else (low, b)
        curvature = float(np.sum(chance * (1 - chance)))
        step = slope / curvature if curvature > 0 else np.inf
        new = b - step if low < b - step < high else (low + high) / 2
        if abs(new - b) <= 1e-15 * max(1.0, abs(b)):
            break
        b = new
    return b


def best_intercepts(data: "TaskSet", W: FloatArray) -> FloatArray:
    """(m,) Best intercept of every task for given W."""
    etas = data.predictors(W)
    return np.array([best_intercept(data.loss, y, eta) for y, eta in zip(data.targets, etas, strict=True)])


def objective(data: "TaskSet", norm_q: float, strength: float, W: FloatArray, b: FloatArray) -> float:
    """Value of the objective."""
    etas = data.predictors(W)
    losses = [mean_loss(data.loss, y, eta + c) for y, eta, c in zip(data.targets, etas, b, strict=True)]
    return sum(losses) + strength * float(row_norms(W, norm_q).sum())


def null_objective(data: "TaskSet") -> float:
    """Objective at W = 0 with its best intercepts."""
    W = np.zeros((data.n_features, data.n_tasks))
    return objective(data, 2.0, 0.0, W, best_intercepts(data, W))


def dual_candidate(loss: str, y: FloatArray, eta: FloatArray) -> FloatArray:
    """Gradient of a smooth mean loss at eta with its best intercept, with a sum of exactly 0."""
    eta = eta + best_intercept(loss, y, eta)
    if loss == "squared":
        theta = (eta - y) / len(y)
        return theta - theta.mean()
    return balanced(-y * expit(-y * eta) / len(y))


def balanced(theta: FloatArray) -> FloatArray:
    """Shrink the larger of the positive and the negative side, so that theta sums to 0 and stays in its domain."""
    positive, negative = theta[theta > 0].sum(), -theta[theta < 0].sum()
    smaller = min(positive, negative)
    if smaller == 0:
        return np.zeros_like(theta)
    return theta * np.where(theta > 0, smaller / positive, smaller / negative)


def dual_value(loss: str, targets: Sequence[FloatArray], theta: Sequence[FloatArray]) -> float:
    """Dual objective of a feasible theta."""
    value = 0.0
    for y, part in zip(targets, theta, strict=True):
        if loss == "squared":
            value -= float(len(y) * part @ part / 2 + part @ y)
        elif loss == "logistic":
            share = np.clip(np.abs(part) * len(y), 0.0, 1.0)
            value -= float(np.mean(xlogy(share, share) + xlogy(1 - share, 1 - share)))
        else:
            value -= float(part @ y)
    return value


def smooth_candidate(data: "TaskSet", W: FloatArray) -> list[FloatArray]:
    """The dual point that belongs to W, not yet scaled."""
    etas = data.predictors(W)
    return [dual_candidate(data.loss, y, eta) for y, eta in zip(data.targets, etas, strict=True)]


def lower_bound(data: "TaskSet", norm_q: float, strength: float, theta: Sequence[FloatArray]) -> float:
    """Dual value of theta scaled into the feasible set: a lower bound on the minimum."""
    largest = float(row_norms(data.adjoint(theta), dual_exponent(norm_q)).max())
    scale = min(1.0, strength / largest) if largest > 0 else 1.0
    if data.loss == "squared":  # a parabola along the ray: its top, or the end of the feasible part
        curvature = sum(float(len(part) * part @ part) for part in theta)
        top = -sum(float(part @ y) for part, y in zip(theta, data.targets, strict=True)) / max(curvature, 1e-300)
        scale = max(0.0, min(top, strength / largest if largest > 0 else np.inf))
    return dual_value(data.loss, data.targets, [scale * part for part in theta])


def largest_penalty(data: "TaskSet", norm_q: float) -> float:
    """lambda_max: the largest dual norm of a row of the gradient at W = 0.

    For the losses with kinks, that of the balanced subgradient (which is one of the possible ones: a scale for the
    strengths, not the exact point where W leaves zero).
    """
    if data.loss in ("squared", "logistic"):
        theta = smooth_candidate(data, np.zeros((data.n_features, data.n_tasks)))
    else:
        theta = balanced_subgradient(data)
    return float(row_norms(data.adjoint(theta), dual_exponent(norm_q)).max())


def balanced_subgradient(data: "TaskSet") -> list[FloatArray]:
    """A subgradient of a loss with kinks at W = 0 whose sum over each task is 0."""
    if data.loss == "hinge":
        return [balanced(-y / len(y)) for y in data.targets]
    return [balanced(np.sign(np.median(y) - y) / len(y)) for y in data.targets]


@lru_cache(maxsize=8)
def reference_bound(problem: "Problem") -> float:
    """Lower bound for a hinge or absolute loss over one design, from an interior point solution of the dual.

    maximise - sum theta * Y  subject to  theta in the domain of the conjugate, column sums 0, row norms of X' theta.
    """
    import cvxpy as cp

    data = problem.data
    Y, n = data.wide_targets, len(data.targets[0])
    hinge = data.loss == "hinge"
    share = cp.Variable(Y.shape)
    scaled = -cp.multiply(Y, share) if hinge else share  # n theta
    rows = cp.norm(data.X.T @ scaled, dual_exponent(problem.norm_q), axis=1) <= problem.strength * n
    domain = [share <= 1, share >= (0 if hinge else -1), cp.sum(scaled, axis=0) == 0]
    program = cp.Problem(cp.Maximize(-cp.sum(cp.multiply(Y, scaled)) / n), [rows, *domain])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a less accurate theta gives a looser bound, never a wrong one
        program.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    inside = np.clip(share.value, 0 if hinge else -1, 1) / n
    theta = [balanced(column) for column in (-Y * inside if hinge else inside).T]
    return lower_bound(data, problem.norm_q, problem.strength, theta)


def relative_gap(problem: "Problem", strength: float, W: FloatArray, b: FloatArray | None = None) -> float:
    """Bound on how far an answer is above the minimum, relative to the objective at W = 0.

    Parameters
    ----------
    problem : what was to be solved
    strength : the penalty strength of this answer
    W : (p, m) coefficients
    b : (m,) intercepts, or None for the best ones
    """
    data, q = problem.data, problem.norm_q
    W = np.asarray(W, dtype=np.float64)
    if not np.isfinite(W).all():
        return np.inf
    b = best_intercepts(data, W) if b is None else np.asarray(b, dtype=np.float64)
    primal = objective(data, q, strength, W, b)
    if data.loss in ("squared", "logistic"):
        bound = lower_bound(data, q, strength, smooth_candidate(data, W))
    else:
        bound = reference_bound(problem)
    return (primal - bound) / null_objective(data)
