"""Fit the selected coefficients once more without their penalty, against shrinkage bias.

The penalty selects and shrinks in one go; the refit keeps its choice of entries of W and minimises the loss alone over
them. For the squared loss these are least squares per task (the shortest solution where they are not unique). Other
losses may have no minimum, as on separable classes, and keep a thousandth of the penalty.
"""

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from bayesmtfs.convex import automatic
from bayesmtfs.convex.problem import Problem
from bayesmtfs.types import BoolArray, Solution

KEPT_PENALTY = 1e-3  # of the strength, where the loss alone may have no minimum


def refit_selected(problem: Problem, solution: Solution, *, tol: float = 1e-6, max_iter: int = 10_000) -> Solution:
    """Refit the non-zero entries of a solution of the penalised problem, whose zeros stay zero.

    Objective and gap remain those of the penalised problem; tol and max_iter are for losses whose refit needs a solver.
    """
    selected: BoolArray = solution.W != 0
    if not selected.any():
        return solution
    if problem.family.quadratic:
        return _least_squares(problem, selected, solution)
    return _loosened(problem, selected, solution, tol, max_iter)


def _least_squares(problem: Problem, selected: BoolArray, solution: Solution) -> Solution:
    """Weighted least squares of each task on its own selected features."""
    W, intercept = np.zeros(selected.shape), solution.intercept.copy()
    for t, (X, (start, stop)) in enumerate(zip(problem.data.task_designs, problem.data.spans, strict=True)):
        own = np.flatnonzero(selected[:, t])
        columns = np.asarray(X[:, own].toarray() if sp.issparse(X) else X[:, own], dtype=np.float64)
        y, root = problem.data.y[start:stop], np.sqrt(problem.weight[start:stop])
        centre_X, centre_y = np.zeros(len(own)), 0.0
        if problem.fit_intercept:
            centre_X, centre_y = root**2 @ columns / (root @ root), root**2 @ y / (root @ root)
        W[own, t] = np.linalg.lstsq(root[:, None] * (columns - centre_X), root * (y - centre_y))[0]
        intercept[t] = centre_y - centre_X @ W[own, t]
    return solution._replace(W=W, intercept=intercept)


def _loosened(problem: Problem, selected: BoolArray, solution: Solution, tol: float, max_iter: int) -> Solution:
    """The same problem on the selected entries only, with little of its penalty."""
    rows = selected.any(axis=1)
    data = problem.data
    groups = None if data.groups is None else data.groups[rows]
    smaller = replace(
        data, design=data.design[:, rows], groups=groups, present=selected[rows], names=None, encoding=None
    )
    loose = replace(problem, data=smaller, ridge=KEPT_PENALTY * problem.ridge)
    loose = loose.with_strength(KEPT_PENALTY * problem.penalty.strength)
    found = automatic.solve(loose, solution._replace(W=solution.W[rows]), tol=tol, max_iter=max_iter)
    W = np.zeros(selected.shape)
    W[rows] = found.W
    return solution._replace(W=W, intercept=found.intercept, converged=solution.converged and found.converged)
