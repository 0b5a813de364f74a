r"""Majorisation-minimisation of problem (5) of Zhang, Yeung and Xu 2010, by weighted mixed-norm problems.

    minimise over W, b (and sigma):   L(W, b) / sigma^2 + m sum_i ln(||w^i||_q + offset)  [+ N ln sigma],

L the sum of the losses (1/2 r^2 for the squared loss), m the number of tasks (the entries of a row where it has fewer),
N the number of observations. The logarithm lies below its tangent, so that each step is the convex problem of
`problem`,

    minimise   L(W, b) + sigma^2 sum_i m / (||w_k^i||_q + offset) ||w^i||_q,

warm started at the last W. Differences from the paper: sigma may be learned (with a floor: p > n interpolates
otherwise), and the offset may be lowered in stages from the size of the largest row (graduated non-convexity, in the
manner of Candes, Wakin and Boyd 2008, section 4): the first stages are nearly the convex problem, which leads to better
optima. The objective trace begins where the last stage does, and never rises.
"""

import logging
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from bayesmtfs.convex import automatic
from bayesmtfs.convex.problem import Problem
from bayesmtfs.families import total
from bayesmtfs.priors.generalized_normal import GeneralizedNormal
from bayesmtfs.priors.row_penalty import RowPenalty
from bayesmtfs.progress import Progress
from bayesmtfs.types import FloatArray, Solution

STAGE = 0.3  # factor of the offset from stage to stage
INNER_TOL = 1e-7
STAGE_TOL = 1e-5
TIGHTER = 1e-2
ROUNDING = 1e-13  # of an objective, relative
HOPELESS = 1e-2  # gap of a convex problem, relative, at which further ones would end no better

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class MMSettings:
    """What majorisation-minimisation is told."""

    norm_q: float = 2.0  # in [1, inf]
    offset: float = 1e-3  # alpha in the logarithm, above 0
    noise: float | None = None  # sigma; None learns it (squared loss only)
    noise_floor: float = 0.0  # least sigma that is learned, in units of y
    graduated: bool = True  # lower the offset in stages
    tol: float = 1e-6  # fall of the objective per observation at which it has converged
    max_iter: int = 100  # most convex problems at the final offset


class MMState(NamedTuple):
    """What changes from step to step."""

    solution: Solution  # of the last convex problem
    eta: FloatArray  # (N,)
    noise: float


def objective(problem: Problem, state: MMState, settings: MMSettings) -> float:
    """Problem (5), with ``N ln sigma`` where sigma is learned."""
    loss = total(problem.family, problem.data.y, state.eta, problem.weight) / state.noise**2
    prior = GeneralizedNormal(settings.norm_q)
    rows = problem.blocks.gather(state.solution.W)
    entropy = float(problem.weight.sum()) * np.log(state.noise) if settings.noise is None else 0.0
    return loss + prior.type2_value(rows, settings.offset, problem.blocks.sizes) + entropy


def tangent(problem: Problem, state: MMState, norm_q: float, offset: float) -> Problem:
    """Weighted mixed-norm problem that lies above sigma^2 times the objective and touches it at the current W."""
    rows = problem.blocks.gather(state.solution.W)
    weights = GeneralizedNormal(norm_q).majoriser_weights(rows, offset, problem.blocks.sizes)
    return replace(problem, penalty=RowPenalty(state.noise**2, norm_q, weights=weights))


def update_coefficients(
    problem: Problem, state: MMState, norm_q: float, offset: float, tol: float = INNER_TOL
) -> MMState:
    """Minimise the tangent problem; keep the old W should rounding have made the new one worse."""
    convex = tangent(problem, state, norm_q, offset)
    before = convex.objective(state.solution.W, state.eta)
    while tol > 1e-12:
        found = automatic.solve(convex, state.solution, tol=tol)
        if found.interrupted:
            raise KeyboardInterrupt  # the state before this step is what there is
        eta = problem.data.linear_predictor(found.W, found.intercept)
        if convex.objective(found.W, eta) <= before + ROUNDING * abs(before):
            return state._replace(solution=found, eta=eta)
        tol *= TIGHTER if found.converged else 0.0  # what missed this tolerance misses the next one too
    return state


def is_hopeless(found: Solution) -> bool:
    """Whether the solver got nowhere, as with features of absurd scale."""
    return not found.converged and found.gap > HOPELESS * found.scale


def update_noise(problem: Problem, state: MMState, settings: MMSettings) -> MMState:
    """``sigma^2 = 2 L / N``, not below its floor."""
    if settings.noise is not None:
        return state
    loss = total(problem.family, problem.data.y, state.eta, problem.weight)
    variance = 2.0 * loss / float(problem.weight.sum())
    return state._replace(noise=max(float(np.sqrt(variance)), settings.noise_floor))


def first_state(problem: Problem, start: Solution, settings: MMSettings) -> MMState:
    """State at a start."""
    eta = problem.data.linear_predictor(start.W, start.intercept)
    return update_noise(problem, MMState(start, eta, 1.0 if settings.noise is None else settings.noise), settings)


def graduate(problem: Problem, state: MMState, settings: MMSettings) -> MMState:
    """Steps at offsets that fall from the largest row to the final offset."""
    norms = RowPenalty(1.0, settings.norm_q).norms(problem.blocks.gather(state.solution.W))
    offset = float(norms.max(initial=0.0))
    while offset > settings.offset and not is_hopeless(state.solution):
        state = update_coefficients(problem, state, settings.norm_q, offset, STAGE_TOL)
        state = update_noise(problem, state, settings)
        offset *= STAGE
    return state


def solve(problem: Problem, start: Solution, settings: MMSettings, *, progress: bool | None = None) -> Solution:
    """Minimise problem (5) from a start such as the mixed-norm fit; the penalty of ``problem`` is not used.

    Rows that are zero can come back. There is no certificate, so that the gap of the solution is nan.
    """
    state = first_state(problem, start, settings)
    trace = [objective(problem, state, settings)]
    converged = False
    with Progress("majorisation-minimisation", progress) as work:
        if settings.graduated:
            state = graduate(problem, state, settings)
            trace = [objective(problem, state, settings)]
        while not converged and len(trace) <= settings.max_iter and not is_hopeless(state.solution):
            after = update_coefficients(problem, state, settings.norm_q, settings.offset)
            after = update_noise(problem, after, settings)
            trace.append(objective(problem, after, settings))
            state = after
            converged = trace[-2] - trace[-1] <= settings.tol * float(problem.weight.sum())
            work.update(len(trace) / settings.max_iter)
    log.debug("MM: %d convex problems, objective %g", len(trace) - 1, trace[-1])
    return state.solution._replace(
        objective=trace[-1],
        gap=float("nan"),
        scale=problem.gap_scale,
        converged=converged,
        n_iter=len(trace) - 1,
        objective_trace=np.array(trace),
        interrupted=work.interrupted,
        noise=np.full(problem.data.n_tasks, state.noise),
    )
