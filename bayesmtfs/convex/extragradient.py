"""Extragradient method for losses of two straight pieces (Obozinski, Taskar and Jordan 2006, section 3.2).

Objective: the convex problem of `problem`, as the saddle point problem of `saddle_point`, which is bilinear but for the
penalty:

    min over W, b   max over z in its box:   sum_i c_i z_i (x_i' w_t(i) + b_t(i) - place_i) + penalty(W)

A step looks ahead along the gradient, takes the gradient there, and goes along that one from where it started
(Korpelevich 1976). The length of the step follows the rule of He and Liao (2002, *Journal of Optimization Theory and
Applications* 112:111-128): shorter when the gradient changes too much on the way, longer when it hardly changes.

What differs from the paper: its cone variable v (with ``v_k >= ||w_k||``) is eliminated, so that a proximal step takes
the place of the projection on the cone and every q works; coefficients and objective are measured in units of the data,
so that the number of steps does not depend on those of X and y; and the method stops at a duality gap. It needs many
more steps than `nonsmooth`, and is here for comparison, and for a ridge, which interior points do not know.
"""

from typing import NamedTuple

import numpy as np

from bayesmtfs.convex.problem import Problem
from bayesmtfs.convex.saddle_point import balanced, best_intercept
from bayesmtfs.progress import Progress
from bayesmtfs.types import FloatArray, Solution

CHECK_EVERY = 20  # steps between two looks at the gap
TOO_LONG = 0.9  # change of the gradient, relative to the step, above which a step is shortened
TOO_SHORT = 0.4  # below which the next step may be longer
SHORTER = 2.0 / 3.0
LONGER = 1.5


class SaddleState(NamedTuple):
    """The saddle point so far, or a gradient there; W and b in units of the data."""

    W: FloatArray  # (p, m)
    b: FloatArray  # (m,)
    z: FloatArray  # (N,) theta over c


class Saddle(NamedTuple):
    """The saddle point problem in units of the data."""

    problem: Problem
    lower: FloatArray  # (N,) ends of the interval of z
    upper: FloatArray  # (N,)
    weight: FloatArray  # (N,) c over its mean
    coefficient_unit: float  # of W
    residual_unit: float  # of b and of residuals
    penalty_unit: float
    ridge_unit: float  # the ridge itself, in units of the data


def solve(
    problem: Problem,
    start: Solution | None = None,
    *,
    tol: float = 1e-6,
    max_iter: int = 10_000,
    progress: bool | None = None,
) -> Solution:
    """Minimise the problem; parameters as in `proximal_gradient.solve`, for losses with kinks."""
    saddle = _saddle(problem)
    shape = (problem.data.n_features, problem.data.n_tasks)
    W, b = (np.zeros(shape), problem.null_intercept) if start is None else (start.W, start.intercept)
    state = SaddleState(W / saddle.coefficient_unit, b / saddle.residual_unit, problem.null_dual / problem.weight)
    step = 1.0
    best = _certify(saddle, state, 0, tol)
    trace = [best.objective]
    with Progress("extragradient", progress) as work:
        for iteration in range(1, max_iter + 1):
            if best.converged:
                break
            state, step = _extragradient_step(saddle, state, step)
            if iteration % CHECK_EVERY == 0 or iteration == max_iter:
                current = _certify(saddle, state, iteration, tol)
                trace.append(current.objective)
                best = current if current.gap <= best.gap else best._replace(n_iter=iteration)
                work.update(iteration / max_iter, f"gap {best.gap:.1e}")
    return best._replace(objective_trace=np.array(trace), interrupted=work.interrupted)


def _saddle(problem: Problem) -> Saddle:
    """Measure residuals by their mean at W = 0, and coefficients so that they change a residual by as much."""
    data, c = problem.data, problem.weight
    values = data.design.data if data.is_sparse else data.design
    row_size = float(np.sqrt(np.sum(np.square(values, dtype=np.float64)) / data.design.shape[0])) or 1.0
    residual_unit = problem.null_objective / float(c.sum()) or 1.0
    coefficient_unit = residual_unit / row_size
    penalty_unit = coefficient_unit / (residual_unit * float(c.mean()))
    lower, upper = problem.kinks.left / c, problem.kinks.right / c
    ridge_unit = problem.ridge * coefficient_unit * penalty_unit
    return Saddle(problem, lower, upper, c / c.mean(), coefficient_unit, residual_unit, penalty_unit, ridge_unit)


def _gradient(saddle: Saddle, state: SaddleState) -> SaddleState:
    """Gradient of the bilinear part; in z, its negative."""
    problem, data = saddle.problem, saddle.problem.data
    predictor = data.linear_predictor(saddle.coefficient_unit * state.W, saddle.residual_unit * state.b)
    theta = saddle.weight * state.z
    W = data.adjoint(theta * (saddle.coefficient_unit / saddle.residual_unit))
    sums = problem.task_sums(theta) * problem.fit_intercept
    return SaddleState(W, sums, -saddle.weight * (predictor - problem.kinks.place) / saddle.residual_unit)


def _moved(saddle: Saddle, state: SaddleState, gradient: SaddleState, step: float) -> SaddleState:
    """Proximal and projected step against a gradient."""
    blocks = saddle.problem.blocks
    rows = blocks.gather(state.W - step * gradient.W)
    W = blocks.scatter(saddle.problem.penalty.prox(rows, step * saddle.penalty_unit))
    W /= 1.0 + step * saddle.ridge_unit
    z = np.clip(state.z - step * gradient.z, saddle.lower, saddle.upper)
    return SaddleState(W, state.b - step * gradient.b, z)


def _extragradient_step(saddle: Saddle, state: SaddleState, step: float) -> tuple[SaddleState, float]:
    """One step, and the length to try next."""
    here = _gradient(saddle, state)
    while True:
        ahead = _moved(saddle, state, here, step)
        there = _gradient(saddle, ahead)
        distance = _distance(state, ahead)
        change = step * _distance(here, there) / distance if distance > 0 else 0.0
        if change <= TOO_LONG:
            break
        step *= SHORTER * min(1.0, 1.0 / change)
    state = _moved(saddle, state, there, step)
    return state, step * LONGER if change < TOO_SHORT else step


def _distance(first: SaddleState, second: SaddleState) -> float:
    squares = (float(np.sum((a - b) ** 2)) for a, b in zip(first, second, strict=True))
    return float(np.sqrt(sum(squares)))


def _certify(saddle: Saddle, state: SaddleState, iteration: int, tol: float) -> Solution:
    """Objective with the best intercept for W, and the gap to the dual value of theta."""
    problem, data = saddle.problem, saddle.problem.data
    W = saddle.coefficient_unit * state.W
    predictor = data.linear_predictor(W, np.zeros(data.n_tasks))
    b = best_intercept(problem, predictor)
    objective = problem.objective(W, predictor + b[data.task])
    theta = balanced(problem, problem.weight * state.z)
    gap = max(objective - problem.dual_objective(theta, W), 0.0)
    scale = problem.gap_scale
    return Solution(W, b, objective, gap, scale, gap <= tol * scale, iteration, objective_trace=np.empty(0))
