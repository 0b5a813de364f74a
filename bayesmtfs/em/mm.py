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

Student's t and Huber's loss have ``sum_i c_i l(r_i / sigma) + N ln sigma`` for the first and the last term. It lies below
the weighted squared loss that touches it at the last residuals (`Family.weights`), so that every step is a weighted fit of
squares, and ``sigma^2`` the weighted mean of squared residuals: EM for a hidden precision (Lange, Little and Taylor 1989).

The absolute and the quantile loss have ``L / sigma`` (`Family.noise_power`), as the Laplace densities that they belong to,
and sigma is the mean loss. Losses with kinks are minimised by interior points. Losses without a noise, also those that rows
share (several classes, survival times, ordered classes, whose best cut points belong to L), stand as they are.

Where a family learns a parameter, such as the dispersion of counts or the degrees of freedom of Student's t, minus the
log-likelihood stands for L, and the parameter of each task (of Student's t one for all) moves to its best value after
every step: ECME (Liu and Rubin 1994).
"""

import logging
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from bayesmtfs.convex import automatic
from bayesmtfs.convex.dispersion import best_parameters
from bayesmtfs.convex.problem import Problem
from bayesmtfs.families import Family, Gaussian, total
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
    noise: float | None = None  # sigma; None learns it (losses of residuals over a noise only)
    noise_floor: float = 0.0  # least sigma that is learned, in units of y
    graduated: bool = True  # lower the offset in stages
    tol: float = 1e-6  # fall of the objective per observation at which it has converged
    max_iter: int = 100  # most convex problems at the final offset


class MMState(NamedTuple):
    """What changes from step to step."""

    solution: Solution  # of the last convex problem
    eta: FloatArray  # (N,)
    noise: float
    parameters: FloatArray | None = None  # (m,) what the family learns


def learns(family: Family) -> bool:
    """Whether there is a parameter to move along; cut points of ordered classes belong to their loss."""
    return family.learned is not None and not family.has_cuts


def known_family(problem: Problem, state: MMState) -> Family:
    """The family at the parameters of the state."""
    return problem.family if state.parameters is None else problem.family.given(state.parameters[problem.data.task])


def data_loss(problem: Problem, state: MMState) -> float:
    """Sum of the losses over sigma^2, or of the losses at residuals over sigma."""
    y, eta, family = problem.data.y, state.eta, known_family(problem, state)
    if state.parameters is not None:
        y, unit = np.asarray(y, dtype=np.float64), state.noise if family.offers("weights") else 1.0
        return -float(problem.weight @ family.log_density(y / unit, eta / unit))
    if family.offers("weights"):
        return total(family, y / state.noise, eta / state.noise, problem.weight)
    return total(family, y, eta, problem.weight) / state.noise**family.noise_power


def objective(problem: Problem, state: MMState, settings: MMSettings) -> float:
    """Problem (5), with ``N ln sigma`` where sigma is learned."""
    loss = data_loss(problem, state)
    prior = GeneralizedNormal(settings.norm_q)
    rows = problem.blocks.gather(state.solution.W)
    entropy = float(problem.weight.sum()) * np.log(state.noise) if settings.noise is None else 0.0
    return loss + prior.type2_value(rows, settings.offset, problem.blocks.sizes) + entropy


def tangent(problem: Problem, state: MMState, norm_q: float, offset: float) -> Problem:
    """Weighted mixed-norm problem above sigma^2 (`Family.noise_power`) times the objective, which it touches at W."""
    rows = problem.blocks.gather(state.solution.W)
    weights = GeneralizedNormal(norm_q).majoriser_weights(rows, offset, problem.blocks.sizes)
    family, weight = known_family(problem, state), problem.weight
    if family.offers("weights"):
        family, weight = Gaussian(), weight * family.weights(problem.data.y - state.eta, state.noise)
    penalty = RowPenalty(state.noise**family.noise_power, norm_q, weights=weights)
    return replace(problem, family=family, weight=weight, penalty=penalty)


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
    """``sigma^2 = 2 L / N`` (of the loss that stands for it), not below its floor, and what the family learns at it."""
    family, weight = problem.family, problem.weight
    if settings.noise is None:
        loss, rows = family, weight
        if family.offers("weights"):
            loss = Gaussian()
            rows = weight * known_family(problem, state).weights(problem.data.y - state.eta, state.noise)
        mean = total(loss, problem.data.y, state.eta, rows) / float(weight.sum())
        noise = (loss.noise_power * mean) ** (1.0 / loss.noise_power)
        state = state._replace(noise=max(noise, settings.noise_floor))
    if not learns(family):
        return state
    unit = state.noise if family.offers("weights") else 1.0
    return state._replace(parameters=best_parameters(problem, family, state.eta, unit))


def first_state(problem: Problem, start: Solution, settings: MMSettings) -> MMState:
    """State at a start."""
    eta = problem.data.linear_predictor(start.W, start.intercept)
    first = 1.0 if settings.noise is None else settings.noise
    if settings.noise is None and problem.family.offers("weights"):
        first = max(problem.family.best_noise(problem.data.y - eta, problem.weight), settings.noise_floor)
    return update_noise(problem, MMState(start, eta, first), settings)


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
    return solve_state(problem, start, settings, progress=progress)[0]


def solve_state(
    problem: Problem, start: Solution, settings: MMSettings, *, progress: bool | None = None
) -> tuple[Solution, MMState]:
    """As `solve`, and the last state."""
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
    found = state.solution._replace(
        objective=trace[-1],
        gap=float("nan"),
        scale=problem.gap_scale if problem.family.offers("conjugate") else float("nan"),
        converged=converged,
        n_iter=len(trace) - 1,
        objective_trace=np.array(trace),
        interrupted=work.interrupted,
        noise=np.full(problem.data.n_tasks, state.noise),
    )
    return found, state
