"""Which solver for which problem.

==================  ==========================================================================================
solver              for
==================  ==========================================================================================
shared_design       squared loss, one complete design for all tasks: one Gram matrix serves every task
working_set         any smooth loss and any data: working sets of rows, proximal Newton on them
nonsmooth           losses with kinks: interior points
extragradient       the same, as in Obozinski, Taskar and Jordan 2006: many more steps; also with a ridge
proximal_gradient   any smooth loss and any penalty, also a user's own: no working sets, no curvatures
==================  ==========================================================================================
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from bayesmtfs.convex import extragradient, nonsmooth, proximal_gradient, shared_design, shared_mean, working_set
from bayesmtfs.convex.problem import Problem
from bayesmtfs.data.column_sums import TaskProducts
from bayesmtfs.types import Solution

FOR_KINKS = ("extragradient", "nonsmooth")  # solvers of the losses that are not smooth
VANISHING = 1e-10  # of the largest penalty: what stands for a penalty of 0
VANISHING_RIDGE = (
    1e-8  # of the ridge that a shared mean has: beside it where rows share a loss, of which some sums are free
)

SOLVERS: dict[str, Callable[..., Solution]] = {
    "extragradient": extragradient.solve,
    "nonsmooth": nonsmooth.solve,
    "proximal_gradient": proximal_gradient.solve,
    "shared_design": shared_design.solve,
    "working_set": working_set.solve,
}
STATES: dict[str, Callable[[Problem], Any]] = {
    "shared_design": shared_design.SharedDesignState,
    "working_set": working_set.WorkingSetState,
}


def choose(problem: Problem) -> str:
    """Name of the fastest solver that fits a problem."""
    if not problem.family.smooth:
        return "nonsmooth" if problem.ridge == 0.0 else "extragradient"
    if not (problem.penalty.has_row_steps and problem.family.offers("curvature")):
        return "proximal_gradient"
    return "shared_design" if problem.has_one_gram else "working_set"


def take_products(problem: Problem, solver: str = "auto") -> TaskProducts | None:
    """Products of all columns, where the solver that will solve the problem asks for them."""
    name = choose(problem) if solver == "auto" else solver
    return working_set.products_worth_taking(problem) if name == "working_set" else None


def largest_penalty(problem: Problem, solver: str = "auto") -> float:
    """Smallest strength at which W = 0 is optimal, known as lambda_max."""
    if not problem.family.smooth:
        return nonsmooth.largest_penalty(problem)
    take_products(problem, solver)  # from which it follows
    return problem.largest_penalty


def prepare(problem: Problem, solver: str = "auto") -> dict[str, Any]:
    """What several solves on the same data can share, such as the solves of a path; an option of `solve`."""
    problem = problem.with_strength(1.0)
    make_state = STATES.get(choose(problem) if solver == "auto" else solver)
    return {} if make_state is None else {"state": make_state(problem)}


def solve(
    problem: Problem,
    start: Solution | None = None,
    *,
    solver: str = "auto",
    tol: float = 1e-6,
    max_iter: int = 10_000,
    progress: bool | None = None,
    prepared: dict[str, Any] | None = None,
) -> Solution:
    """Minimise a problem from an earlier solution, with the named solver or the one that fits it best.

    ``tol`` is the gap to reach, relative to the objective at W = 0; ``max_iter`` the most iterations, as the solver counts
    them; ``prepared`` what `prepare` gave for the same data and solver.
    """
    if problem.penalty.strength == 0:
        return _without_penalty(problem, start, solver=solver, tol=tol, max_iter=max_iter, progress=progress)
    name = choose(problem) if solver == "auto" else solver
    _check_fits(name, problem)
    return SOLVERS[name](problem, start, tol=tol, max_iter=max_iter, progress=progress, **(prepared or {}))


def _check_fits(name: str, problem: Problem) -> None:
    family, penalty = problem.family, problem.penalty
    family.require("The penalised fit, which certifies its result by a dual gap,", "conjugate")
    if (name in FOR_KINKS) == family.smooth:
        raise ValueError(f"solver is {name!r}, which does not solve loss={family.name!r}; use solver='auto'")
    if name != "proximal_gradient" and not penalty.has_row_steps:
        raise ValueError(
            f"solver is {name!r}, which does not know the penalty {type(penalty).__name__}; use solver='auto'"
        )
    if name == "proximal_gradient" and not problem.scales_by_sign:
        raise ValueError(
            f"loss={family.name!r} with intercepts has no certificate by solver='proximal_gradient', which a penalty of "
            "your own needs, too; use solver='auto' with norm_q, or fit_intercept=False"
        )
    if name == "nonsmooth" and problem.ridge > 0.0:
        raise ValueError(
            f"solver is 'nonsmooth', which knows no ridge, but ridge is {problem.ridge}; use solver='auto'"
        )
    if name == "working_set":
        family.require("solver='working_set'", "curvature")
    if name == "shared_design" and not problem.has_one_gram:
        raise ValueError(
            "solver is 'shared_design', which needs the squared loss and one complete design with the same row weights "
            "for all tasks; use solver='auto'"
        )


def _without_penalty(problem: Problem, start: Solution | None, **options: Any) -> Solution:
    """Minimise the loss alone, as the limit of a vanishing penalty, which picks one of several minima.

    The gap is that of the tiny penalty, plus what this penalty adds to the objective.
    """
    tiny = problem.with_strength(VANISHING * (problem.largest_penalty or 1.0))
    if problem.family.coupled:
        tiny = replace(tiny, ridge=tiny.ridge + VANISHING_RIDGE * shared_mean.default_mean_strength(problem))
    found = solve(tiny, start, **options)
    added = tiny.penalty_value(found.W) - problem.ridge_value(found.W)
    gap = found.gap + added
    converged = gap <= options["tol"] * problem.gap_scale
    return found._replace(objective=found.objective - added, gap=gap, converged=converged)
