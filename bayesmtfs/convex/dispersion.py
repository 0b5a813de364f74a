r"""Penalised fits of a family with a parameter that is learned, such as the dispersion of negative binomial counts.

    minimise over W, b and alpha_t > 0:   - sum_i c_i ln p(y_i | eta_i, alpha_t(i)) + penalty(W) + ridge / 2 ||W||^2

In W and b this is convex at every alpha, and in alpha_t it is a search over one number. The two take turns, each lowering
the objective, until alpha no longer changes (Hilbe 2011, *Negative Binomial Regression*, section 8.3, for one task without
penalty). The objective as a whole need not be convex: what the gap certifies is the fit at the last alpha.

Paths and cross-validation hold alpha at what a fit with a tenth of the largest penalty gives.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from bayesmtfs.convex import automatic
from bayesmtfs.convex.problem import Problem
from bayesmtfs.families import Family, with_offset
from bayesmtfs.types import FloatArray, Solution

SHARE = 0.1  # of the largest penalty, where alpha is found for a path
TOL = 1e-5  # change of ln alpha at which it is found
FIRST_TOL = 1e-3
ROUNDS = 50

Solve = Callable[[Problem, Solution | None], Solution]


def best_parameters(problem: Problem, family: Family, eta: FloatArray, noise: float = 1.0) -> FloatArray:
    """(m,) Parameter of the largest likelihood at a linear predictor (N,), in each task or one for all.

    With a noise, targets and linear predictor are divided by it.
    """
    y, eta = np.asarray(problem.data.y, dtype=np.float64) / noise, eta / noise
    family = with_offset(family, problem.data.eta_offset)
    if family.one_for_all:
        return np.full(problem.data.n_tasks, family.best_parameter(y, eta, problem.weight))
    rows = [(family.of_rows(a, b), slice(a, b)) for a, b in problem.data.spans]
    return np.array([own.best_parameter(y[at], eta[at], problem.weight[at]) for own, at in rows])


def at_parameters(problem: Problem, family: Family, parameters: FloatArray) -> Problem:
    """The problem at known parameters (m,)."""
    return replace(problem, family=family.given(parameters[problem.data.task]))


def alternate(
    problem: Problem, family: Family, solve: Solve, start: Solution | None = None, tol: float = TOL
) -> tuple[Solution, Problem, FloatArray]:
    """Fit and parameters in turns: the fit at the last parameters, its problem, and these (m,).

    Parameters
    ----------
    problem : at any parameters
    family : that learns them
    solve : gives the fit of a problem from another one
    start : a first fit; None: the parameters of the problem with W = 0
    """
    eta = problem.null_intercept[problem.data.task]
    if start is not None:
        eta = problem.data.linear_predictor(start.W, start.intercept)
    parameters = best_parameters(problem, family, eta)
    for _ in range(ROUNDS):
        known = at_parameters(problem, family, parameters)
        start = solve(known, start)
        before = parameters
        if start.interrupted:
            break
        parameters = best_parameters(problem, family, problem.data.linear_predictor(start.W, start.intercept))
        if np.max(np.abs(np.log(parameters / before))) <= tol:
            break
    assert start is not None
    return start, known, before


def settled(problem: Problem, family: Family) -> Problem:
    """The problem at the parameters that a fit with a tenth of the largest penalty has."""
    null = at_parameters(problem, family, best_parameters(problem, family, problem.null_intercept[problem.data.task]))
    penalised = null.with_strength(SHARE * automatic.largest_penalty(null) or 1.0)
    solve: Solve = lambda known, start: automatic.solve(known, start, tol=FIRST_TOL)  # noqa: E731
    return alternate(penalised, family, solve, tol=FIRST_TOL)[1].with_strength(problem.penalty.strength)
