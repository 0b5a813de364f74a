"""Which solver for which problem."""

from collections.abc import Callable

from bayesmtfs.protocols import Solution
from bayesmtfs.solvers import proximal_gradient
from bayesmtfs.solvers.problem import Problem

SOLVERS: dict[str, Callable[..., Solution]] = {"proximal_gradient": proximal_gradient.solve}


def choose(problem: Problem) -> str:
    """Name of the fastest solver that fits a problem."""
    return "proximal_gradient"


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
