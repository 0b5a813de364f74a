"""A mean shared by all tasks, and penalised deviations from it.

    minimise over w_0, b_0, V, c:
        sum_i c_i loss(y_i, x_i'(w_0 + v_t) + b_0 + c_t) + mean_strength / 2 ||w_0||^2 + penalty(V and c)

The weights of task t are ``w_0 + v_t``: the row penalty acts on the deviations, so that tasks without much data are
drawn to the mean instead of to zero (Evgeniou and Pontil 2004, KDD, for the ridge case). The intercepts are
``b_0 + c_t`` with b_0 free and c one more penalised row; inside, this is a feature that is always 1.

The algorithm is accelerated proximal gradient in V, c and the mean together. The mean is measured in the metric of its
own curvature (bounded over all eta), so that the shared directions, which all rows of data see, do not slow the
deviations down. The dual point of `problem` gains one term: ``- ||sum_t X_t' theta_t||^2 / (2 mean_strength)``, and the
sum of theta over all tasks must be 0.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cho_factor, cho_solve

from bayesmtfs.likelihoods import total, total_conjugate
from bayesmtfs.progress import ProgressBar
from bayesmtfs.protocols import FloatArray, Solution
from bayesmtfs.solvers.problem import Problem, with_zero_sum
from bayesmtfs.solvers.proximal_gradient import CHECK_EVERY, largest_curvature
from bayesmtfs.tasks import TaskData

GRAM_LIMIT = 50_000_000  # numbers in the per-task Gram matrices, above which the data themselves are used
MEAN_SHARE = 0.01  # of the mean squared column norm: default ridge on the mean


class SharedMean(NamedTuple):
    """A solution and its parts: ``W = mean + deviations`` for every task."""

    solution: Solution
    mean: FloatArray  # (p,) w_0
    mean_intercept: float  # b_0


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
    """Minimise the problem with a shared mean.

    Parameters
    ----------
    problem : data, smooth loss and row penalty; ``fit_intercept`` gives b_0 and c
    mean_strength : ridge on the mean, positive
    start : an earlier solution to begin from
    tol, max_iter, progress : as in `proximal_gradient.solve`
    """
    objective = _Objective(problem, mean_strength)
    V, mean = objective.first_point(start)
    point_V, point_mean, momentum = V, mean, 1.0
    lipschitz = 2.0 * objective.curvature
    trace: list[float] = []
    best = objective.certified(V, mean, 0, tol)
    interrupted = False
    with ProgressBar("shared mean", progress) as bar:
        try:
            for iteration in range(1, max_iter + 1):
                if best.solution.converged:
                    break
                gradient_V, gradient_mean = objective.gradient(point_V, point_mean)
                new_V = objective.prox(point_V - gradient_V / lipschitz, 1.0 / lipschitz)
                new_mean = point_mean - objective.precondition(gradient_mean) * (objective.curvature / lipschitz)
                uphill = np.sum((point_V - new_V) * (new_V - V))
                uphill += objective.metric(point_mean - new_mean, new_mean - mean)
                next_momentum = 1.0 if uphill > 0 else (1 + np.sqrt(1 + 4 * momentum**2)) / 2
                share = 0.0 if uphill > 0 else (momentum - 1) / next_momentum
                point_V, point_mean = new_V + share * (new_V - V), new_mean + share * (new_mean - mean)
                V, mean, momentum = new_V, new_mean, next_momentum
                if iteration % CHECK_EVERY == 0 or iteration == max_iter:
                    best = objective.certified(V, mean, iteration, tol)
                    trace.append(best.solution.objective)
                    bar.update(iteration / max_iter, f"gap {best.solution.gap:.1e}")
        except KeyboardInterrupt:
            interrupted = True
            best = objective.certified(V, mean, len(trace) * CHECK_EVERY, tol)
    return best._replace(solution=best.solution._replace(objective_trace=np.array(trace), interrupted=interrupted))


class _Objective:
    """The objective on features extended by a constant, in V ``(P, m)`` and the mean ``(P,)``."""

    def __init__(self, problem: Problem, mean_strength: float) -> None:
        self.original = problem
        data = _with_constant(problem.data) if problem.fit_intercept else problem.data
        self.problem = replace(problem, data=data, fit_intercept=False)
        ridge = np.full(data.n_features, float(mean_strength))
        if problem.fit_intercept:
            ridge[-1] = 0.0
        self.ridge = ridge
        bound = problem.likelihood.curvature
        size = data.n_tasks * data.n_features**2
        self.grams = _grams(self.problem) if problem.likelihood.loss == "squared" and size <= GRAM_LIMIT else None
        self.cross = data.adjoint(self.problem.weight * data.y) if self.grams is not None else None
        self.curvature = largest_curvature(self.problem)
        pooled = _pooled_gram(self.problem) if self.grams is None else self.grams.sum(axis=0)
        pooled = bound * pooled + np.diag(ridge)
        pooled[np.diag_indices_from(pooled)] += 1e-12 * np.trace(pooled) / len(pooled)
        self.factor = cho_factor(pooled)

    def gradient(self, V: FloatArray, mean: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Gradient of the smooth part in V and in the mean."""
        U = V + mean[:, None]
        if self.grams is not None and self.cross is not None:
            by_task = np.matmul(self.grams, U.T[:, :, None])[:, :, 0].T - self.cross
        else:
            problem = self.problem
            eta = problem.data.linear_predictor(U, np.zeros(problem.data.n_tasks))
            by_task = problem.data.adjoint(problem.weight * problem.likelihood.gradient(problem.data.y, eta))
        return by_task, by_task.sum(axis=1) + self.ridge * mean

    def prox(self, V: FloatArray, step: float) -> FloatArray:
        """Proximal step of the row penalty."""
        blocks = self.problem.blocks
        return blocks.scatter(self.problem.penalty.prox(blocks.gather(V), step))

    def precondition(self, gradient: FloatArray) -> FloatArray:
        """Step of the mean in the metric of its own curvature."""
        step: FloatArray = cho_solve(self.factor, gradient)
        return step

    def metric(self, first: FloatArray, second: FloatArray) -> float:
        """Inner product of that metric, on the scale of V's."""
        triangle = np.triu(self.factor[0])
        return float((triangle @ first) @ (triangle @ second)) / self.curvature

    def first_point(self, start: SharedMean | None) -> tuple[FloatArray, FloatArray]:
        """The start, or no deviations and the mean that is best without them."""
        shape = (self.problem.data.n_features, self.problem.data.n_tasks)
        if start is None:
            return np.zeros(shape), self._pooled_fit()
        mean = np.append(start.mean, start.mean_intercept) if self.original.fit_intercept else start.mean
        W = start.solution.W
        U = np.vstack([W, start.solution.intercept]) if self.original.fit_intercept else W
        return U - mean[:, None], mean

    def _pooled_fit(self) -> FloatArray:
        """Mean without deviations, by steps in the metric of its curvature (one step for the squared loss)."""
        zero = np.zeros((self.problem.data.n_features, self.problem.data.n_tasks))
        mean = np.zeros(self.problem.data.n_features)
        for _ in range(20):
            mean = mean - self.precondition(self.gradient(zero, mean)[1])
            if self.grams is not None:
                break
        return mean

    def certified(self, V: FloatArray, mean: FloatArray, iteration: int, tol: float) -> SharedMean:
        """Objective and gap at a point."""
        problem = self.problem
        data = problem.data
        U = V + mean[:, None]
        eta = data.linear_predictor(U, np.zeros(data.n_tasks))
        loss = total(problem.likelihood, data.y, eta, problem.weight)
        value = loss + problem.penalty.value(problem.blocks.gather(V)) + 0.5 * float(self.ridge @ mean**2)
        gap = max(value - self._dual(eta), 0.0)
        last = slice(None, -1) if self.original.fit_intercept else slice(None)
        solution = Solution(
            W=U[last],
            intercept=U[-1] if self.original.fit_intercept else np.zeros(data.n_tasks),
            objective=value,
            gap=gap,
            scale=self.original.gap_scale,
            converged=gap <= tol * self.original.gap_scale,
            n_iter=iteration,
            objective_trace=np.empty(0),
        )
        return SharedMean(solution, mean[last], float(mean[-1]) if self.original.fit_intercept else 0.0)

    def _dual(self, eta: FloatArray) -> float:
        """Best dual value along the ray of the loss gradient."""
        problem = self.problem
        theta = problem.weight * problem.likelihood.gradient(problem.data.y, eta)
        if self.original.fit_intercept:
            theta = with_zero_sum(theta, np.zeros(len(theta), dtype=np.int64), np.array([0]))
        gradient = problem.data.adjoint(theta)
        largest = float(problem.penalty.dual_norm(problem.blocks.gather(gradient)).max())
        end = problem.penalty.strength / largest if largest > 0 else np.inf
        free = self.ridge > 0
        mean_term = float(np.sum(gradient.sum(axis=1)[free] ** 2 / self.ridge[free]))
        scale = min(1.0, end)
        if problem.likelihood.loss == "squared":
            curvature = float(np.sum(theta**2 / problem.weight)) + mean_term
            scale = min(max(-float(theta @ problem.data.y) / curvature, 0.0), end) if curvature > 0 else scale
        return -total_conjugate(problem.likelihood, problem.data.y, scale * theta, problem.weight) - (
            0.5 * scale**2 * mean_term
        )


def _with_constant(data: TaskData) -> TaskData:
    """Append a feature that is always 1."""
    ones = np.ones((data.design.shape[0], 1))
    design = sp.hstack([data.design, ones], format="csr") if data.is_sparse else np.hstack([data.design, ones])
    groups = None if data.groups is None else np.append(data.groups, data.groups.max() + 1)
    present = None if data.present is None else np.vstack([data.present, np.ones((1, data.n_tasks), dtype=bool)])
    return replace(data, design=design, groups=groups, present=present, names=None, encoding=None)


def _grams(problem: Problem) -> FloatArray:
    """(m, P, P) Weighted X'X of each task, 0 where a task lacks a feature."""
    grams = np.stack(
        [_gram(X, problem.weight[a:b]) for X, (a, b) in zip(problem.data.task_designs, problem.data.spans, strict=True)]
    )
    if problem.data.present is not None:
        mask = problem.data.present.T.astype(np.float64)
        grams *= mask[:, :, None] * mask[:, None, :]
    return grams


def _pooled_gram(problem: Problem) -> FloatArray:
    data = problem.data
    grams = (_gram(X, problem.weight[a:b]) for X, (a, b) in zip(data.task_designs, data.spans, strict=True))
    return sum(grams, start=np.zeros((data.n_features, data.n_features)))


def _gram(X: object, weight: FloatArray) -> FloatArray:
    if sp.issparse(X):
        return np.asarray((X.T @ X.multiply(weight[:, None])).todense())  # type: ignore[attr-defined]
    scaled = np.sqrt(weight)[:, None] * np.asarray(X, dtype=np.float64)
    return scaled.T @ scaled
