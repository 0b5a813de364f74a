"""Which solver for which problem.

==================  ==========================================================================================
solver              for
==================  ==========================================================================================
shared_design       squared loss, one complete design for all tasks: one Gram matrix serves every task
working_set         any smooth loss and any data: working sets of rows, proximal Newton on them
nonsmooth           hinge and absolute loss: interior points
proximal_gradient   the same, without working sets: the plain reference
==================  ==========================================================================================
"""

from collections.abc import Callable

from bayesmtfs.likelihoods import is_smooth
from bayesmtfs.protocols import Solution
from bayesmtfs.solvers import nonsmooth, proximal_gradient, shared_design, working_set
from bayesmtfs.solvers.problem import Problem

SOLVERS: dict[str, Callable[..., Solution]] = {
    "nonsmooth": nonsmooth.solve,
    "proximal_gradient": proximal_gradient.solve,
    "shared_design": shared_design.solve,
    "working_set": working_set.solve,
}


def choose(problem: Problem) -> str:
    """Name of the fastest solver that fits a problem."""
    if not is_smooth(problem.likelihood):
        return "nonsmooth"
    return "shared_design" if shared_design.applies(problem) else "working_set"


def solve(
    problem: Problem,
    start: Solution | None = None,
    *,
    solver: str = "auto",
    tol: float = 1e-6,
    max_iter: int = 10_000,
    progress: bool | None = None,
) -> Solution:
    """Minimise a problem with the named solver, or the one that fits it best."""
    name = choose(problem) if solver == "auto" else solver
    return SOLVERS[name](problem, start, tol=tol, max_iter=max_iter, progress=progress)
