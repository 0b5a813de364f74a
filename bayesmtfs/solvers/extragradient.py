"""Extragradient method for the hinge and the absolute loss (Obozinski, Taskar and Jordan 2006, section 3.2).

Objective: the convex problem of `problem`, as the saddle point problem of `saddle_point`, which is bilinear but for the
penalty:

    min over W, b   max over theta in its box:   sum_i theta_i (x_i' w_t(i) + b_t(i) - y_i) + penalty(W)

A step looks ahead along the gradient, takes the gradient there, and goes along that one from where it started
(Korpelevich 1976). The length of the step follows the rule of He and Liao (2002, *Journal of Optimization Theory and
Applications* 112:111-128): shorter when the gradient changes too much on the way, longer when it hardly changes.

What differs from the paper: its cone variable v (with ``v_k >= ||w_k||``) is eliminated, so that a proximal step takes
the place of the projection on the cone and every q works; and the method stops at a duality gap. It needs many more
steps than `nonsmooth`, and is here for comparison.
"""

from typing import NamedTuple

import numpy as np

from bayesmtfs.progress import ProgressBar
from bayesmtfs.protocols import FloatArray, Solution
from bayesmtfs.solvers.problem import Problem, with_zero_sum
from bayesmtfs.solvers.saddle_point import Box, best_intercept, dual_box

CHECK_EVERY = 20  # steps between two looks at the gap
TOO_LONG = 0.9  # change of the gradient, relative to the step, above which a step is shortened
TOO_SHORT = 0.4  # below which the next step may be longer
SHORTER = 2.0 / 3.0
LONGER = 1.5


class State(NamedTuple):
    """The saddle point so far; also used for the gradient there."""

    W: FloatArray  # (p, m)
    b: FloatArray  # (m,)
    theta: FloatArray  # (N,)


def solve(
    problem: Problem,
    start: Solution | None = None,
    *,
    tol: float = 1e-6,
    max_iter: int = 10_000,
    progress: bool | None = None,
) -> Solution:
    """Minimise the problem; parameters as in `proximal_gradient.solve`, for the hinge and the absolute loss."""
    box = dual_box(problem)
    shape = (problem.data.n_features, problem.data.n_tasks)
    W, b = (np.zeros(shape), problem.null_intercept) if start is None else (start.W, start.intercept)
    state = State(W, b, np.clip(problem.null_dual, box.lower, box.upper))
    step = 1.0
    best = _certify(problem, state, 0, tol)
    trace = [best.objective]
    interrupted = False
    with ProgressBar("extragradient", progress) as bar:
        try:
            for iteration in range(1, max_iter + 1):
                if best.converged:
                    break
                state, step = _extragradient_step(problem, box, state, step)
                if iteration % CHECK_EVERY == 0 or iteration == max_iter:
                    current = _certify(problem, state, iteration, tol)
                    trace.append(current.objective)
                    best = current if current.gap <= best.gap else best._replace(n_iter=iteration)
                    bar.update(iteration / max_iter, f"gap {best.gap:.1e}")
        except KeyboardInterrupt:
            interrupted = True
    return best._replace(objective_trace=np.array(trace), interrupted=interrupted)


def _gradient(problem: Problem, state: State) -> State:
    """Gradient of the bilinear part; in theta, its negative."""
    residual = problem.data.linear_predictor(state.W, state.b) - problem.data.y
    sums = problem.task_sums(state.theta) * problem.fit_intercept
    return State(problem.data.adjoint(state.theta), sums, -residual)


def _moved(problem: Problem, box: Box, state: State, gradient: State, step: float) -> State:
    """Proximal and projected step against a gradient."""
    rows = problem.blocks.gather(state.W - step * gradient.W)
    W = problem.blocks.scatter(problem.penalty.prox(rows, step))
    theta = np.clip(state.theta - step * gradient.theta, box.lower, box.upper)
    return State(W, state.b - step * gradient.b, theta)


def _extragradient_step(problem: Problem, box: Box, state: State, step: float) -> tuple[State, float]:
    """One step, and the length to try next."""
    here = _gradient(problem, state)
    while True:
        ahead = _moved(problem, box, state, here, step)
        there = _gradient(problem, ahead)
        distance = _distance(state, ahead)
        change = step * _distance(here, there) / distance if distance > 0 else 0.0
        if change <= TOO_LONG:
            break
        step *= SHORTER * min(1.0, 1.0 / change)
    state = _moved(problem, box, state, there, step)
    return state, step * LONGER if change < TOO_SHORT else step


def _distance(first: State, second: State) -> float:
    squares = (float(np.sum((a - b) ** 2)) for a, b in zip(first, second, strict=True))
    return float(np.sqrt(sum(squares)))


def _certify(problem: Problem, state: State, iteration: int, tol: float) -> Solution:
    """Objective with the best intercept for W, and the gap to the dual value of theta."""
    predictor = problem.data.linear_predictor(state.W, np.zeros(problem.data.n_tasks))
    b = best_intercept(problem, predictor)
    objective = problem.objective(state.W, predictor + b[problem.data.task])
    theta = state.theta
    if problem.fit_intercept:
        theta = with_zero_sum(theta, problem.data.task, problem.data.offsets[:-1])
    gap = max(objective - problem.dual_objective(theta), 0.0)
    return Solution(
        W=state.W,
        intercept=b,
        objective=objective,
        gap=gap,
        scale=problem.gap_scale,
        converged=gap <= tol * problem.gap_scale,
        n_iter=iteration,
        objective_trace=np.empty(0),
    )
