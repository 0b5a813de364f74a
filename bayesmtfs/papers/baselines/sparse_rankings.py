"""Feature rankings by sparse regressions on class indicators: LSR-21, FSSI and SBMLR.

LSR-21: least squares regression on class indicators with the l2,1 norm as loss and as penalty.

For each task, with centred features X (n, p) and class indicators Y (n, c),

    minimise  sum_i weight_i ||y_i - x_i'W||_2 + strength * sum_j ||w^j||_2

(Nie, Huang, Cai and Ding 2010, eq. 11, "robust feature selection", RFS). With U = [W; E], E the scaled residuals and
A = [X, diag(strength / weight)], it is: minimise ||U||_2,1 subject to A U = Y; the iteration
U = D A'(A D A')^-1 Y with D = diag(2 ||u^j||) (eq. 19) needs an n x n system only and never increases the objective.
Differently from the paper, an intercept is taken off by centring.

FSSI: feature selection for several tasks that share a low-dimensional structure.

With centred features X_l and class indicators Y_l of task l, and W = [W_1, ..., W_t],

    minimise  sum_l (1 / 2 n_l) ||X_l W_l - Y_l||_F^2 + within * sum_l sum_i ||w_l^i||_2 + joint * ||W||_*

(after Yang, Ma, Hauptmann and Sebe 2013: an l2,1 norm for every task, the trace norm over all tasks). The problem is
convex; it is solved by the alternating direction method of multipliers with one copy of W per penalty (Boyd et al.
2011, sections 3.3 and 3.4.1), where the least squares step is diagonal in the singular vectors of X_l. Differently from
the paper the loss is a mean over rows, the intercept is taken off by centring, and no p x p system is solved.

SBMLR: sparse multinomial logistic regression whose penalty strength is integrated out.

A Laplace prior with rate alpha on the N weights of a task, and p(alpha) = 1 / alpha, leave

    minimise  - sum_i weight_i ln p(y_i | x_i, W, b) + N ln sum_jc |w_jc|

(Cawley, Talbot and Girolami 2006, eq. 12), N being the number of weights that are not zero. A weight that has
become zero stays zero (else N would go back and forth for ever). The logarithm lies below
its tangent, so that one step is an l1 penalised multinomial fit of strength alpha = N / sum |w| (by accelerated
proximal gradient steps), and the objective never increases while N stays. W = 0 is a minimum at minus infinity, which
is what the fit ends at where there are few rows; the start is the l1 fit at a tenth of the strength that leaves no
weight. Differently from the paper the l1 problem is solved by proximal gradients, and the intercept is free.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from scipy.special import logsumexp, softmax

from bayesmtfs.estimators.ranking import iterated
from bayesmtfs.papers.baselines.rankings import CentredTask, FeatureRanking
from bayesmtfs.results.fit_result import Convergence
from bayesmtfs.types import BoolArray, ConvergenceWarning, FloatArray, warn

SMALLEST_ROW = 1e-14  # rows below this share of the largest are zero


class IndicatorFit(NamedTuple):
    """Coefficients of class indicators, of one task or of all tasks side by side."""

    W: FloatArray  # (p, classes)
    trace: FloatArray
    converged: bool


def solve_robust(
    X: FloatArray, Y: FloatArray, weight: FloatArray, strength: float, tol: float, max_iter: int
) -> IndicatorFit:
    """Minimise ``sum_i weight_i ||y_i - x_i'W|| + strength ||W||_2,1``, until it falls by less than a share tol."""
    n, p = X.shape
    A = np.hstack([X, np.diag(strength / weight)])
    scale, trace = np.ones(p + n), [float(weight @ np.linalg.norm(Y, axis=1))]
    W, converged = np.zeros((p, Y.shape[1])), False
    while not converged and len(trace) <= max_iter:
        weighted = A * scale
        U = weighted.T @ scipy.linalg.lstsq(weighted @ A.T, Y, lapack_driver="gelsy")[0]
        lengths = np.linalg.norm(U, axis=1)
        scale = np.maximum(lengths, SMALLEST_ROW * lengths.max(initial=0.0))
        W = U[:p]
        trace.append(float(strength * lengths.sum()))
        converged = abs(trace[-2] - trace[-1]) <= tol * trace[-1]
    return IndicatorFit(W, np.array(trace), bool(converged))


@dataclass(repr=False, eq=False)
class RobustRegressionSelector(FeatureRanking):
    """Rank features by the rows of LSR-21, one fit per task.

    Parameters
    ----------
    penalty_strength : float, default 1.0
        gamma of the paper.
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
    >>> from bayesmtfs.papers.baselines.sparse_rankings import RobustRegressionSelector
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.standard_normal((30, 8)), np.arange(30) % 3
    >>> X[:, 5] += 3 * y
    >>> RobustRegressionSelector(n_features_to_select=1, standardize=True).fit(X, y).get_support(indices=True)
    array([5])
    """

    penalty_strength: float = 1.0
    tol: float = 1e-6
    max_iter: int = 1000

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not self.penalty_strength > 0:
            raise ValueError(f"penalty_strength is {self.penalty_strength}; pass a positive number")

    def _score_tasks(self, tasks: list[CentredTask]) -> tuple[FloatArray, Convergence]:
        fits = [solve_robust(t.X, t.Y, t.weight, self.penalty_strength, self.tol, self.max_iter) for t in tasks]
        return _put_together(fits, self.tol, f"LSR-21 still falls after {self.max_iter} iterations")


def _put_together(fits: Sequence[Any], tol: float, trouble: str) -> tuple[FloatArray, Convergence]:
    """(m, p) Row lengths of one fit per task, and how the longest of them ended."""
    converged = all(fit.converged for fit in fits)
    if not converged:
        warn(f"{trouble}; raise max_iter or tol", ConvergenceWarning)
    longest = max(fits, key=lambda fit: len(fit.trace))
    return np.stack([np.linalg.norm(fit.W, axis=1) for fit in fits]), iterated(converged, longest.trace, tol)


# ---------------------------------------------------------------------- FSSI


BALANCE = 10.0  # ratio of the residuals above which the step size is changed


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


def solve_shared(
    tasks: list[tuple[FloatArray, FloatArray, FloatArray]], within: float, joint: float, tol: float, max_iter: int
) -> IndicatorFit:
    """Minimise the objective of FSSI; tasks are X (n, p), Y (n, classes) and weight (n,), tol is relative to W."""
    parts = [_least_squares(*task) for task in tasks]
    cuts = np.cumsum([part.moment.shape[1] for part in parts])[:-1]
    rho = max(float(np.mean([part.squares.mean() for part in parts])), 1e-12)
    zero = np.zeros((parts[0].moment.shape[0], sum(part.moment.shape[1] for part in parts)))
    Z, dual, trace, converged = [zero, zero], [zero, zero], [_shared_objective(parts, cuts, zero, within, joint)], False
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
        trace.append(_shared_objective(parts, cuts, Z[0], within, joint))
        factor = 2.0 if primal > BALANCE * change else 0.5 if change > BALANCE * primal else 1.0
        rho, dual = rho * factor, [u / factor for u in dual]
    return IndicatorFit(Z[0], np.array(trace), bool(converged))


def _shared_objective(parts: list[_LeastSquares], cuts: Any, W: FloatArray, within: float, joint: float) -> float:
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
    >>> from bayesmtfs.papers.baselines.sparse_rankings import SharedStructureSelector
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
        fit = solve_shared(parts, self.within_strength, self.joint_strength, self.tol, self.max_iter)
        if not fit.converged:
            warn(f"FSSI is not solved after {self.max_iter} iterations; raise max_iter or tol", ConvergenceWarning)
        cuts = np.cumsum([task.Y.shape[1] for task in tasks])[:-1]
        own = np.split(fit.W, cuts, axis=1)
        return np.stack([np.linalg.norm(W, axis=1) for W in own]), iterated(fit.converged, fit.trace, self.tol)


# ---------------------------------------------------------------------- SBMLR


START_SHARE = 0.1  # of the strength at which all weights are zero
MOST_STEPS = 2000  # of one l1 fit


class Multinomial(NamedTuple):
    """Rows of one task and their classes."""

    X: FloatArray  # (n, p)
    Y: FloatArray  # (n, classes) 0 and 1
    weight: FloatArray  # (n,)

    def loss(self, W: FloatArray, b: FloatArray) -> float:
        """Minus the log-likelihood."""
        eta = self.X @ W + b
        return float(self.weight @ (logsumexp(eta, axis=1) - np.sum(self.Y * eta, axis=1)))

    def gradient(self, W: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Its derivatives in W and b."""
        residual = self.weight[:, None] * (softmax(self.X @ W + b, axis=1) - self.Y)
        return self.X.T @ residual, residual.sum(axis=0)

    @property
    def curvature(self) -> float:
        """Upper bound of the second derivative in (W, b); that of softmax is at most 1/2."""
        rows = np.sqrt(self.weight)[:, None] * np.column_stack([self.X, np.ones(len(self.X))])
        return 0.5 * float(np.linalg.norm(rows, 2) ** 2)


class SparseFit(NamedTuple):
    """Weights of one task."""

    W: FloatArray  # (p, classes)
    b: FloatArray  # (classes,)
    strength: float  # alpha at the solution, inf where all weights are zero
    trace: FloatArray  # objective after each l1 fit
    converged: bool


def l1_fit(
    problem: Multinomial, strength: float, W: FloatArray, b: FloatArray, tol: float, free: BoolArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Minimise the loss plus strength times the absolute weights (FISTA with restarts, Beck and Teboulle 2009).

    It begins at W, b and stops when a step moves less than tol; ``free`` (p, classes) is False where a weight stays zero.
    """
    step, V, c, momentum = 1.0 / problem.curvature, W, b, 1.0
    for _ in range(MOST_STEPS):
        slope_W, slope_b = problem.gradient(V, c)
        moved = V - step * slope_W
        new_W = np.sign(moved) * np.maximum(np.abs(moved) - step * strength, 0.0)
        new_W = new_W if free is None else np.where(free, new_W, 0.0)
        new_b = c - step * slope_b
        change = np.max(np.abs(new_W - W), initial=0.0) + np.max(np.abs(new_b - b))
        uphill = np.sum((V - new_W) * (new_W - W)) + np.sum((c - new_b) * (new_b - b)) > 0
        faster = 1.0 if uphill else (1.0 + np.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
        pace = 0.0 if uphill else (momentum - 1.0) / faster
        V, c = new_W + pace * (new_W - W), new_b + pace * (new_b - b)
        W, b, momentum = new_W, new_b, faster
        if change <= tol * max(1.0, float(np.abs(W).max(initial=0.0))):
            break
    return W, b


def solve_sparse(problem: Multinomial, tol: float, max_iter: int) -> SparseFit:
    """Minimise the objective of SBMLR by at most max_iter l1 fits, until no weight changes by more than tol."""
    shares = problem.weight @ problem.Y / problem.weight.sum()
    W, b = np.zeros((problem.X.shape[1], problem.Y.shape[1])), np.log(shares)
    strength = START_SHARE * float(np.abs(problem.gradient(W, b)[0]).max())
    W, b = l1_fit(problem, strength, W, b, tol)
    trace, converged = [_sparse_objective(problem, W, b)], False
    while not converged and len(trace) <= max_iter:
        size, last = float(np.abs(W).sum()), W
        if size == 0:
            strength, converged = np.inf, True
            break
        strength = np.count_nonzero(W) / size
        W, b = l1_fit(problem, strength, W, b, tol, free=W != 0)
        trace.append(_sparse_objective(problem, W, b))
        converged = bool(np.abs(W - last).max() <= 10 * tol * max(1.0, float(np.abs(W).max())))
    return SparseFit(W, b, float(strength), np.array(trace), converged)


def _sparse_objective(problem: Multinomial, W: FloatArray, b: FloatArray) -> float:
    size = float(np.abs(W).sum())
    return problem.loss(W, b) + (np.count_nonzero(W) * np.log(size) if size > 0 else -np.inf)


@dataclass(repr=False, eq=False)
class SparseMultinomialSelector(FeatureRanking):
    """Rank features by the rows of SBMLR, one fit per task.

    Parameters
    ----------
    n_features_to_select : int or float, default 0.5
        A number, or a share of all features.
    standardize : bool
        Scale features to unit deviation within each task first.
    task_column, groups : see `bayesmtfs.DiscriminativeSelector`
    tol, max_iter : when to stop

    Attributes
    ----------
    scores_, ranking_, task_scores_ : as of `bayesmtfs.DiscriminativeSelector`
    strengths_ : (n_tasks,) penalty strength that each task ends at

    Examples
    --------
    >>> import numpy as np
    >>> from bayesmtfs.papers.baselines.sparse_rankings import SparseMultinomialSelector
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.standard_normal((60, 8)), np.arange(60) % 3
    >>> X[:, 5] += 2 * y
    >>> SparseMultinomialSelector(n_features_to_select=1).fit(X, y).get_support(indices=True)
    array([5])
    """

    tol: float = 1e-5
    max_iter: int = 100

    def _score_tasks(self, tasks: list[CentredTask]) -> tuple[FloatArray, Convergence]:
        fits = [solve_sparse(_multinomial(task), self.tol, self.max_iter) for task in tasks]
        self.strengths_ = np.array([fit.strength for fit in fits])
        return _put_together(fits, self.tol, f"SBMLR still moves after {self.max_iter} rounds")


def _multinomial(task: CentredTask) -> Multinomial:
    # One unit for all features: the objective does not depend on it, the steps do
    size = max(float(np.abs(task.X).max(initial=0.0)), 1e-300)
    indicators = (task.labels[:, None] == np.unique(task.labels)).astype(np.float64)
    return Multinomial(task.X / size, indicators, task.weight)
