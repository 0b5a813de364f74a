"""Accelerated proximal gradient for any smooth loss and any row penalty.

Objective: the convex problem of `problem`. The steps are those of FISTA (Beck and Teboulle 2009, *SIAM Journal on
Imaging Sciences* 2:183-202) with the gradient restart of O'Donoghue and Candes (2015, *Foundations of Computational
Mathematics* 15:715-732), and stop at a duality gap. Features are centred within each task (implicitly: a sparse
design stays sparse), which changes nothing but the intercept and makes the steps larger.

This is the plain reference: right for every q, loss and data form, and easy to read; other solvers are faster.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from bayesmtfs.convex.problem import Problem
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.progress import Progress
from bayesmtfs.types import FloatArray, Solution

POWER_ITERATIONS = 30
CHECK_EVERY = 10  # iterations between two looks at the gap


class State(NamedTuple):
    """What changes from step to step."""

    W: FloatArray  # (p, m)
    b: FloatArray  # (m,) intercept on centred features
    point: FloatArray  # W carried on by its momentum: where the next gradient is taken
    point_b: FloatArray
    momentum: float
    lipschitz: float


class CentredLoss:
    """The smooth part of a problem, as a function of W and of the intercept on centred features."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        data = problem.data
        if problem.fit_intercept:
            self.means = data.adjoint(problem.weight) / problem.task_weight
        else:
            self.means = np.zeros((data.n_features, data.n_tasks))

    def linear_predictor(self, W: FloatArray, b: FloatArray) -> FloatArray:
        """(N,) Linear predictor."""
        return self.problem.data.linear_predictor(W, self.intercept(W, b))

    def intercept(self, W: FloatArray, b: FloatArray) -> FloatArray:
        """(m,) Intercept on the features as they are."""
        result: FloatArray = b - np.einsum("pm,pm->m", self.means, W)
        return result

    def gradient(self, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Gradient in W (p, m) and in b (m,)."""
        problem = self.problem
        theta = problem.weight * problem.family.gradient(problem.data.y, eta)
        sums = problem.task_sums(theta) * problem.fit_intercept
        return problem.data.adjoint(theta) - self.means * sums, sums

    def value(self, eta: FloatArray) -> float:
        """Weighted sum of the loss."""
        problem = self.problem
        return problem.objective(np.zeros((problem.data.n_features, problem.data.n_tasks)), eta)

    def apply(self, V: FloatArray) -> FloatArray:
        """Weighted second-moment matrix of each task's centred features, times V."""
        theta = self.problem.weight * self.linear_predictor(V, np.zeros(self.problem.data.n_tasks))
        return self.problem.data.adjoint(theta) - self.means * self.problem.task_sums(theta)


def largest_curvature(problem: Problem) -> float:
    """Estimate of the largest curvature of the loss over tasks, by power iteration on all tasks at once."""
    loss, data = CentredLoss(problem), problem.data
    V = np.random.default_rng(0).standard_normal((data.n_features, data.n_tasks))
    size = np.linalg.norm(V, axis=0)
    for _ in range(POWER_ITERATIONS):
        V = loss.apply(np.divide(V, size, out=np.zeros_like(V), where=size > 0))
        size = np.linalg.norm(V, axis=0)
    largest = max(float(size.max()), float(problem.task_weight.max()) if problem.fit_intercept else 0.0)
    return (problem.family.curvature_bound or 1.0) * largest or 1.0


def solve(
    problem: Problem,
    start: Solution | None = None,
    *,
    tol: float = 1e-6,
    max_iter: int = 10_000,
    progress: bool | None = None,
) -> Solution:
    """Minimise the problem.

    Parameters
    ----------
    problem : what to minimise; its loss must be smooth
    start : an earlier solution to begin from
    tol : gap to reach, relative to the objective at W = 0
    max_iter : most iterations
    progress : see `progress.Progress`
    """
    problem = replace(problem, data=_in_double(problem))
    loss = CentredLoss(problem)
    state = _first_state(problem, loss, start)
    best = _certify(problem, loss, state, 0, tol)
    trace = [best.objective]
    iteration = 0
    with Progress("proximal gradient", progress) as bar:
        try:
            while not best.converged and iteration < max_iter:
                state = _step(problem, loss, state)
                iteration += 1
                if iteration % CHECK_EVERY == 0 or iteration == max_iter:
                    current = _certify(problem, loss, state, iteration, tol)
                    trace.append(current.objective)
                    best = current if current.gap <= best.gap or current.converged else best._replace(n_iter=iteration)
                    bar.update(_fraction(best, tol), f"gap {best.gap:.1e}")
        except KeyboardInterrupt:
            best = best._replace(interrupted=True)
    return best._replace(objective_trace=np.array(trace))


def _in_double(problem: Problem) -> TaskData:
    data = problem.data
    return data if data.design.dtype == np.float64 else replace(data, design=data.design.astype(np.float64))


def _first_state(problem: Problem, loss: CentredLoss, start: Solution | None) -> State:
    if start is None:
        W, b = np.zeros((problem.data.n_features, problem.data.n_tasks)), problem.null_intercept
    else:
        W, b = start.W, start.intercept + np.einsum("pm,pm->m", loss.means, start.W)
    return State(W, b, W, b, 1.0, largest_curvature(problem))


def _step(problem: Problem, loss: CentredLoss, state: State) -> State:
    """One accelerated step, with a larger curvature where the estimate was too small."""
    point_eta = loss.linear_predictor(state.point, state.point_b)
    value = loss.value(point_eta)
    gradient_W, gradient_b = loss.gradient(point_eta)
    lipschitz = state.lipschitz
    while True:
        W = _prox(problem, state.point - gradient_W / lipschitz, 1.0 / lipschitz)
        b = state.point_b - gradient_b / lipschitz
        move_W, move_b = W - state.point, b - state.point_b
        square = float(np.sum(move_W**2) + np.sum(move_b**2))
        bound = value + float(np.sum(gradient_W * move_W) + gradient_b @ move_b) + lipschitz / 2 * square
        if loss.value(loss.linear_predictor(W, b)) <= bound + 1e-12 * abs(value):
            break
        lipschitz *= 1.5
    momentum = (1 + np.sqrt(1 + 4 * state.momentum**2)) / 2
    if float(np.sum(-move_W * (W - state.W)) - move_b @ (b - state.b)) > 0:  # the momentum points uphill: restart
        return State(W, b, W, b, 1.0, lipschitz)
    share = (state.momentum - 1) / momentum
    return State(W, b, W + share * (W - state.W), b + share * (b - state.b), momentum, lipschitz)


def _prox(problem: Problem, W: FloatArray, step: float) -> FloatArray:
    return problem.blocks.scatter(problem.penalty.prox(problem.blocks.gather(W), step))


def _certify(problem: Problem, loss: CentredLoss, state: State, iteration: int, tol: float) -> Solution:
    """Objective and duality gap of a state."""
    eta = loss.linear_predictor(state.W, state.b)
    gap = problem.gap(state.W, eta)
    return Solution(
        W=state.W,
        intercept=loss.intercept(state.W, state.b),
        objective=problem.objective(state.W, eta),
        gap=gap,
        scale=problem.gap_scale,
        converged=gap <= tol * problem.gap_scale,
        n_iter=iteration,
        objective_trace=np.empty(0),
    )


def _fraction(best: Solution, tol: float) -> float:
    """How far the gap has come, on a log scale."""
    relative = best.gap / best.scale if best.scale > 0 else tol
    return 1.0 if relative <= tol else float(np.log10(max(1.0 / relative, 1.0)) / np.log10(1.0 / tol))
