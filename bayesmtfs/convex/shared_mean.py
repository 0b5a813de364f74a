"""A mean shared by all tasks, and penalised deviations from it.

    minimise over w_0, b_0, V, c:
        sum_i c_i loss(y_i, x_i'(w_0 + v_t) + b_0 + c_t) + mean_strength / 2 ||w_0||^2 + penalty(V and c)

The weights of task t are ``w_0 + v_t``: the row penalty acts on the deviations, so that tasks without much data are
drawn to the mean instead of to zero (Evgeniou and Pontil 2004, KDD, for the ridge case). The intercepts are
``b_0 + c_t`` with b_0 free and c one more penalised row; inside, this is a feature that is always 1.

For a given mean the rest is an ordinary penalised problem, with the mean's predictions as an offset; its minimum is a
convex and differentiable function of the mean (of p + 1 numbers), which L-BFGS minimises in the metric of the loss's
curvature bound. The dual point of `problem` gains one term: ``- ||sum_t X_t' theta_t||^2 / (2 mean_strength)``, and
the sum of theta over all tasks must be 0.
"""

from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import minimize

from bayesmtfs.convex import automatic
from bayesmtfs.convex.problem import Problem, with_zero_sum
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import Family, total
from bayesmtfs.progress import Progress
from bayesmtfs.types import FloatArray, Solution

MEAN_SHARE = 0.01  # of the mean squared column norm: default ridge on the mean
INNER_SHARE = 0.05  # of the tolerated gap, to which the deviations are solved for a given mean
RESTARTS = 5  # of L-BFGS, when it stops short of the certificate
VANISHING = 1e-8  # of the largest penalty without a mean: what stands for a penalty of 0


class SharedMean(NamedTuple):
    """A solution and its parts: ``W = mean + deviations`` for every task."""

    solution: Solution
    mean: FloatArray  # (p,) w_0
    mean_intercept: float  # b_0


class WithOffset(Family):
    """A family whose linear predictor has a known part, one number per observation."""

    def __init__(self, base: Family, offset: FloatArray) -> None:
        self.base, self.offset = base, offset  # (N,)
        self.name, self.smooth, self.curvature_bound = base.name, base.smooth, base.curvature_bound

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def offers(self, offer: str) -> bool:
        """Whether the base has this attribute or method."""
        return self.base.offers(offer)

    def value(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Loss at eta plus the offset."""
        return self.base.value(y, eta + self.offset)

    def gradient(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Its derivative in eta."""
        return self.base.gradient(y, eta + self.offset)

    def curvature(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Its second derivative in eta."""
        return self.base.curvature(y, eta + self.offset)

    def conjugate(self, y: FloatArray, dual: FloatArray) -> FloatArray:
        """Its convex conjugate, ``l*(u) - u * offset``."""
        return self.base.conjugate(y, dual) - dual * self.offset

    def best_constant(self, y: FloatArray, weight: FloatArray) -> float:
        """Constant of the smallest loss, the offset left out of account."""
        return self.base.best_constant(y, weight)


def default_mean_strength(problem: Problem) -> float:
    """A hundredth of the mean squared column norm of X, on the scale of the loss."""
    squares = [
        np.asarray(abs(X).power(2).T @ w if sp.issparse(X) else np.square(X, dtype=np.float64).T @ w)
        for X, w in zip(problem.data.task_designs, np.split(problem.weight, problem.data.offsets[1:-1]), strict=True)
    ]
    return MEAN_SHARE * float(np.mean(np.sum(squares, axis=0))) or 1.0


def solve(
    problem: Problem,
    mean_strength: float,
    start: SharedMean | None = None,
    *,
    tol: float = 1e-6,
    max_iter: int = 10_000,
    progress: bool | None = None,
) -> SharedMean:
    """Minimise a problem with a smooth loss and a shared mean, whose ridge ``mean_strength`` is positive.

    ``problem.fit_intercept`` gives b_0 and c; the other arguments are those of `automatic.solve`.
    """
    if problem.penalty.strength == 0:
        # As the limit of a vanishing penalty, whose balls the dual point can be scaled into
        problem = problem.with_strength(VANISHING * (problem.largest_penalty or 1.0))
    search = _Search(problem, mean_strength, tol, start)
    with Progress("shared mean", progress) as bar:
        for _ in range(RESTARTS):
            left = max_iter - search.evaluations
            if search.best.solution.converged or left <= 0:
                break
            with suppress(_Certified):
                minimize(
                    lambda point: search.evaluate(point, bar),
                    search.best_point,
                    jac=True,
                    method="L-BFGS-B",
                    options={"maxiter": left, "maxfun": left, "maxcor": 30, "ftol": 0.0, "gtol": 0.0},
                )
    return search.result(bar.interrupted)


class _Certified(Exception):  # noqa: N818
    """Raised out of L-BFGS when the gap is small enough."""


class _Search:
    """The minimum over the deviations as a function of the mean, and the best point so far.

    Features are extended by a constant where there is an intercept; the mean is searched as ``R mean`` with
    ``R'R`` = bound of the curvature of the loss in the mean.
    """

    def __init__(self, problem: Problem, mean_strength: float, tol: float, start: SharedMean | None) -> None:
        self.original = problem
        data = _with_constant(problem.data) if problem.fit_intercept else problem.data
        self.problem = replace(problem, data=data, fit_intercept=False)
        self.solver = "proximal_gradient" if automatic.choose(self.problem) == "proximal_gradient" else "working_set"
        self.prepared = automatic.prepare(self.problem, self.solver)
        self.tol = tol
        self.wanted = tol * problem.gap_scale
        self.ridge = np.full(data.n_features, float(mean_strength))
        if problem.fit_intercept:
            self.ridge[-1] = 0.0
        bound = _pooled_gram(self.problem, self._curvature_weights()) + np.diag(self.ridge)
        bound[np.diag_indices_from(bound)] += 1e-12 * np.trace(bound) / len(bound)
        self.factor = cholesky(bound)
        self.evaluations = 0
        self.trace: list[float] = []
        self.deviations: Solution | None = None
        self.value = np.inf
        self._begin(start)

    def _curvature_weights(self) -> FloatArray:
        """(N,) Bound of the curvature of each loss; its value at W = 0 where there is no bound."""
        problem = self.original
        if problem.family.curvature_bound is not None:
            return problem.weight * problem.family.curvature_bound
        return problem.weight * problem.family.curvature(problem.data.y, problem.null_intercept[problem.data.task])

    def _begin(self, start: SharedMean | None) -> None:
        if start is None:
            mean = np.zeros(self.problem.data.n_features)
        else:
            mean = np.append(start.mean, start.mean_intercept) if self.original.fit_intercept else start.mean
            W = start.solution.W
            U = np.vstack([W, start.solution.intercept]) if self.original.fit_intercept else W
            zero = np.zeros(self.problem.data.n_tasks)
            V = U - mean[:, None]
            V = V if self.problem.data.present is None else np.where(self.problem.data.present, V, 0.0)
            self.deviations = Solution(V, zero, np.nan, np.nan, np.nan, False, 0, np.empty(0))
        self.best_point = self.factor @ mean
        with suppress(_Certified):
            self.evaluate(self.best_point, None)

    def evaluate(self, point: FloatArray, bar: Progress | None) -> tuple[float, FloatArray]:
        """Minimum over the deviations for a mean, and its gradient in the searched coordinates."""
        mean = solve_triangular(self.factor, point)
        problem = self.problem
        data = problem.data
        zero = np.zeros(data.n_tasks)
        offset = data.linear_predictor(np.repeat(mean[:, None], data.n_tasks, axis=1), zero)
        inner = self._inner_problem(offset)
        stop: dict[str, Any] = {"tol": INNER_SHARE * self.wanted / inner.gap_scale, "progress": False}
        self.deviations = automatic.solve(inner, self.deviations, solver=self.solver, prepared=self.prepared, **stop)
        V = self.deviations.W
        eta = offset + data.linear_predictor(V, zero)
        theta = problem.weight * problem.family.gradient(data.y, eta)
        gradient = data.adjoint(theta).sum(axis=1) + self.ridge * mean
        value = self._certify(point, mean, V, eta)
        self.evaluations += 1
        if bar is not None:
            bar.update(self.wanted / max(self.best.solution.gap, self.wanted), f"gap {self.best.solution.gap:.1e}")
        if self.best.solution.converged:
            raise _Certified
        return value, solve_triangular(self.factor, gradient, trans="T")

    def _inner_problem(self, offset: FloatArray) -> Problem:
        """The problem of the deviations; the squared loss takes the offset from its target."""
        problem = self.problem
        if problem.family.quadratic:
            return replace(problem, data=problem.data.with_target(problem.data.y - offset))
        return replace(problem, family=WithOffset(problem.family, offset))

    def _certify(self, point: FloatArray, mean: FloatArray, V: FloatArray, eta: FloatArray) -> float:
        """Objective of a point; keeps it, with its gap, if it is the best so far."""
        problem = self.problem
        loss = total(problem.family, problem.data.y, eta, problem.weight)
        value = loss + problem.penalty.value(problem.blocks.gather(V)) + 0.5 * float(self.ridge @ mean**2)
        if value >= self.value:
            return value
        self.value, self.best_point = value, point.copy()
        self.trace.append(value)
        gap = max(value - self._dual(eta), 0.0)
        last = slice(None, -1) if self.original.fit_intercept else slice(None)
        U = V + mean[:, None]
        if problem.data.present is not None:
            U = np.where(problem.data.present, U, 0.0)
        solution = Solution(
            W=U[last],
            intercept=U[-1] if self.original.fit_intercept else np.zeros(problem.data.n_tasks),
            objective=value,
            gap=gap,
            scale=self.original.gap_scale,
            converged=gap <= self.wanted,
            n_iter=self.evaluations,
            objective_trace=np.empty(0),
        )
        self.best = SharedMean(solution, mean[last], float(mean[-1]) if self.original.fit_intercept else 0.0)
        return value

    def _dual(self, eta: FloatArray) -> float:
        """Best dual value along the ray of the loss gradient."""
        problem = self.problem
        theta = problem.weight * problem.family.gradient(problem.data.y, eta)
        if self.original.fit_intercept:
            theta = with_zero_sum(theta, np.zeros(len(theta), dtype=np.int64), np.array([0]))
        gradient = problem.data.adjoint(theta)
        end = problem.feasible_end(problem.penalty.dual_norm(problem.blocks.gather(gradient)))
        ridged = self.ridge > 0
        return problem.dual_on_ray(theta, end, float(np.sum(gradient.sum(axis=1)[ridged] ** 2 / self.ridge[ridged])))

    def result(self, interrupted: bool) -> SharedMean:
        """The best point, with the way to it."""
        trace = np.array(self.trace)
        found = self.best.solution._replace(objective_trace=trace, n_iter=self.evaluations, interrupted=interrupted)
        return self.best._replace(solution=found)


def _with_constant(data: TaskData) -> TaskData:
    """Append a feature that is always 1."""
    ones = np.ones((data.design.shape[0], 1))
    design = sp.hstack([data.design, ones], format="csr") if data.is_sparse else np.hstack([data.design, ones])
    groups = None if data.groups is None else np.append(data.groups, data.groups.max() + 1)
    present = None if data.present is None else np.vstack([data.present, np.ones((1, data.n_tasks), dtype=bool)])
    return replace(data, design=design, groups=groups, present=present, names=None, encoding=None)


def _pooled_gram(problem: Problem, weight: FloatArray) -> FloatArray:
    data = problem.data
    grams = (_gram(X, weight[a:b]) for X, (a, b) in zip(data.task_designs, data.spans, strict=True))
    return sum(grams, start=np.zeros((data.n_features, data.n_features)))


def _gram(X: object, weight: FloatArray) -> FloatArray:
    if sp.issparse(X):
        return np.asarray((X.T @ X.multiply(weight[:, None])).todense())  # type: ignore[attr-defined]
    scaled = np.sqrt(weight)[:, None] * np.asarray(X, dtype=np.float64)
    return scaled.T @ scaled
