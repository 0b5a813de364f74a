"""FSSI: feature selection for several tasks that share a low-dimensional structure.

With centred features X_l and class indicators Y_l of task l, and W = [W_1, ..., W_t],

    minimise  sum_l (1 / 2 n_l) ||X_l W_l - Y_l||_F^2 + within * sum_l sum_i ||w_l^i||_2 + joint * ||W||_*

(after Yang, Ma, Hauptmann and Sebe 2013: an l2,1 norm for every task, the trace norm over all tasks). The problem is
convex; it is solved by the alternating direction method of multipliers with one copy of W per penalty (Boyd et al.
2011, sections 3.3 and 3.4.1), where the least squares step is diagonal in the singular vectors of X_l. Differently from
the paper the loss is a mean over rows, the intercept is taken off by centring, and no p x p system is solved.
"""

import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bayesmtfs.papers.baselines.feature_ranking import CentredTask, FeatureRanking, iterated
from bayesmtfs.results.fit_result import Convergence
from bayesmtfs.types import ConvergenceWarning, FloatArray

BALANCE = 10.0  # ratio of the residuals above which the step size is changed


class SharedFit(NamedTuple):
    """Coefficients of all tasks side by side."""

    W: FloatArray  # (p, all classes), sparse rows within each task
    trace: FloatArray
    converged: bool


class _LeastSquares(NamedTuple):
    """One task in the singular vectors of its weighted rows."""

    right: FloatArray  # (r, p)
    squares: FloatArray  # (r,)
    moment: FloatArray  # (p, classes) X'Y / n
    rows: FloatArray
    targets: FloatArray

    def step(self, pull: FloatArray, rho: float) -> FloatArray:
        """Minimise 1/2 ||X W - Y||^2 + rho ||W - pull||^2."""
        right_side = self.moment + 2.0 * rho * pull
        inside = self.right @ right_side
        shrink = 1.0 / (self.squares + 2.0 * rho) - 0.5 / rho
        return 0.5 / rho * right_side + self.right.T @ (shrink[:, None] * inside)

    def loss(self, W: FloatArray) -> float:
        return 0.5 * float(np.sum((self.rows @ W - self.targets) ** 2))


def _least_squares(X: FloatArray, Y: FloatArray, weight: FloatArray) -> _LeastSquares:
    root = np.sqrt(weight / weight.sum())[:, None]
    rows, targets = root * X, root * Y
    _, singular, right = np.linalg.svd(rows, full_matrices=False)
    return _LeastSquares(right, singular**2, rows.T @ targets, rows, targets)


def shrink_rows(W: FloatArray, by: float) -> FloatArray:
    """Shorten every row by an amount, down to zero."""
    lengths = np.linalg.norm(W, axis=1, keepdims=True)
    return W * np.maximum(0.0, 1.0 - by / np.maximum(lengths, 1e-300))


def shrink_singular_values(W: FloatArray, by: float) -> FloatArray:
    """Lower every singular value by an amount, down to zero."""
    left, singular, right = np.linalg.svd(W, full_matrices=False)
    return (left * np.maximum(singular - by, 0.0)) @ right


def solve(
    tasks: list[tuple[FloatArray, FloatArray, FloatArray]], within: float, joint: float, tol: float, max_iter: int
) -> SharedFit:
    """Minimise the objective at the top of this module.

    Parameters
    ----------
    tasks : X (n, p), Y (n, classes) and weight (n,) of each task
    within, joint : strengths of the row and trace norms
    tol : size of both residuals, relative to W
    max_iter : most iterations
    """
    parts = [_least_squares(*task) for task in tasks]
    cuts = np.cumsum([part.moment.shape[1] for part in parts])[:-1]
    rho = max(float(np.mean([part.squares.mean() for part in parts])), 1e-12)
    zero = np.zeros((parts[0].moment.shape[0], sum(part.moment.shape[1] for part in parts)))
    Z, dual, trace, converged = [zero, zero], [zero, zero], [_objective(parts, cuts, zero, within, joint)], False
    while not converged and len(trace) <= max_iter:
        pulls = np.split((Z[0] - dual[0] + Z[1] - dual[1]) / 2.0, cuts, axis=1)
        W = np.hstack([part.step(pull, rho) for part, pull in zip(parts, pulls, strict=True)])
        rows = [shrink_rows(V, within / rho) for V in np.split(W + dual[0], cuts, axis=1)]
        last, Z = Z, [np.hstack(rows), shrink_singular_values(W + dual[1], joint / rho)]
        dual = [u + W - z for u, z in zip(dual, Z, strict=True)]
        primal = np.sqrt(sum(np.sum((W - z) ** 2) for z in Z))
        change = np.sqrt(sum(np.sum((z - old) ** 2) for z, old in zip(Z, last, strict=True)))
        size = max(float(np.linalg.norm(W)), float(np.linalg.norm(Z[0])), 1e-12)
        converged = max(primal, change) <= tol * size
        trace.append(_objective(parts, cuts, Z[0], within, joint))
        factor = 2.0 if primal > BALANCE * change else 0.5 if change > BALANCE * primal else 1.0
        rho, dual = rho * factor, [u / factor for u in dual]
    return SharedFit(Z[0], np.array(trace), bool(converged))


def _objective(parts: list[_LeastSquares], cuts: Any, W: FloatArray, within: float, joint: float) -> float:
    own = np.split(W, cuts, axis=1)
    loss = sum(part.loss(V) for part, V in zip(parts, own, strict=True))
    rows = sum(float(np.linalg.norm(V, axis=1).sum()) for V in own)
    return loss + within * rows + joint * float(np.linalg.svd(W, compute_uv=False).sum())


@dataclass(repr=False, eq=False)
class SharedStructureSelector(FeatureRanking):
    """Rank features by the rows of FSSI.

    Parameters
    ----------
    within_strength, joint_strength : float, default 1e-2
        Of the row norms of each task and of the trace norm over all tasks.
    n_features_to_select : int or float, default 0.5
        A number, or a share of all features.
    standardize : bool
        Scale features to unit deviation within each task first.
    task_column, groups : see `bayesmtfs.DiscriminativeSelector`
    tol, max_iter : when to stop

    Attributes
    ----------
    scores_, ranking_, task_scores_ : as of `bayesmtfs.DiscriminativeSelector`

    Examples
    --------
    >>> import numpy as np
    >>> from bayesmtfs.papers.baselines.fssi import SharedStructureSelector
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.standard_normal((30, 8)), np.arange(30) % 3
    >>> X[:, 5] += 3 * y
    >>> SharedStructureSelector(n_features_to_select=1, standardize=True).fit(X, y).get_support(indices=True)
    array([5])
    """

    within_strength: float = 1e-2
    joint_strength: float = 1e-2
    tol: float = 1e-4
    max_iter: int = 2000

    def _check_parameters(self) -> None:
        super()._check_parameters()
        for name in ("within_strength", "joint_strength"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; pass a number of at least 0")

    def _score_tasks(self, tasks: list[CentredTask]) -> tuple[FloatArray, Convergence]:
        parts = [(task.X, task.Y, task.weight) for task in tasks]
        fit = solve(parts, self.within_strength, self.joint_strength, self.tol, self.max_iter)
        if not fit.converged:
            warnings.warn(
                f"FSSI is not solved after {self.max_iter} iterations; raise max_iter or tol",
                ConvergenceWarning,
                stacklevel=6,
            )
        cuts = np.cumsum([task.Y.shape[1] for task in tasks])[:-1]
        own = np.split(fit.W, cuts, axis=1)
        return np.stack([np.linalg.norm(W, axis=1) for W in own]), iterated(fit.converged, fit.trace, self.tol)
