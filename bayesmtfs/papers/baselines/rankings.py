"""Feature rankings that others are compared with: Fisher scores, SVM-21, LSR-21, FSSI, SBMLR, and random order.

They score the features of each task, one at a time or by a sparse fit to the classes, and the scores are put together:
the score of a feature over all tasks is the Euclidean length of its scores in the tasks (of all members of its group,
where there are groups). Equal scores, such as the zeros of sparse methods, are ordered by the share of the feature's
variance that lies between classes.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax
from sklearn.utils import check_random_state

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.discriminative.trace_ratio import class_indicators, row_lengths
from bayesmtfs.estimators.base import estimator_class
from bayesmtfs.estimators.penalised import MixedNormClassifier
from bayesmtfs.estimators.ranking import Ranking, RankingSelector, iterated
from bayesmtfs.results.fit_result import Convergence
from bayesmtfs.types import BoolArray, ConvergenceWarning, FloatArray, warn

Scored = tuple[FloatArray, Convergence]  # (m, p) scores, and how they were found


class CentredTask:
    """One task with weighted means taken off.

    Attributes
    ----------
    X : (n, p) dense features, centred
    Y : (n, classes) indicators 0 and 1, centred
    labels : (n,) class numbers
    weight : (n,)
    """

    def __init__(self, X: Any, labels: NDArray[Any], weight: FloatArray) -> None:
        dense = np.asarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)
        self.labels, self.weight = labels, weight
        self.X: FloatArray = dense - weight @ dense / weight.sum()
        indicators = self.indicators()
        self.Y: FloatArray = indicators - weight @ indicators / weight.sum()

    def indicators(self) -> FloatArray:
        """(n, classes) 1 for the class of a row, 0 for the others."""
        return (self.labels[:, None] == np.unique(self.labels)).astype(np.float64)

    def between_share(self) -> FloatArray:
        """(p,) Variance between classes over all variance of each feature; 0 for a constant one."""
        rows = np.sqrt(self.weight)[:, None] * self.X
        between = np.sum((class_indicators(self.labels, self.weight).T @ rows) ** 2, axis=0)
        total = np.sum(rows**2, axis=0)
        constant = total <= 1e-24 * max(float(total.max(initial=0.0)), 1e-300)
        return np.where(constant, 0.0, between / np.where(constant, 1.0, total))


class FeatureRanking(RankingSelector):
    """Score the features of every task; subclasses say how.

    Parameters
    ----------
    n_features_to_select : int or float, default 0.5
        A number, or a share of all features.
    standardize : bool
        Scale features to unit deviation within each task first.
    tol, max_iter : when to stop
    random_state : int, RandomState or None

    Attributes
    ----------
    scores_, ranking_, task_scores_ : as of `bayesmtfs.DiscriminativeSelector`
    """

    @abstractmethod
    def _score_tasks(self, tasks: list[CentredTask]) -> Scored:
        """Scores of all tasks."""

    def _rank(self, data: TaskData) -> Ranking:
        scaled = self._rescaled(data).data
        tasks = [
            CentredTask(X, data.y[start:stop], data.weight[start:stop])
            for X, (start, stop) in zip(scaled.task_designs, scaled.spans, strict=True)
        ]
        task_scores, convergence = self._score_tasks(tasks)
        ties = np.mean([task.between_share() for task in tasks], axis=0)
        return Ranking(
            scores=row_lengths(task_scores.T, data.groups),
            task_scores=task_scores,
            ties=row_lengths(ties[:, None], data.groups),
            convergence=convergence,
        )


@estimator_class()
class FisherScoreSelector(FeatureRanking):
    """Rank features by their Fisher scores: how far apart the class means of each feature are, one feature at a time.

    With n_c rows of class c, its mean mu_c and variance s_c^2 (Duda, Hart and Stork 2001),

        F = sum_c n_c (mu_c - mu)^2 / sum_c n_c s_c^2.

    What is put together over tasks is F / (1 + F), the share of variance between classes: it puts the features of one
    task in the same order and is finite where the variance within classes is 0. These scores have no units, so that
    ``standardize`` does not change them.

    Examples
    --------
    >>> from bayesmtfs.baselines import FisherScoreSelector
    >>> FisherScoreSelector(1).fit([[0, 1], [1, 0], [4, 1], [5, 0]], [0, 0, 1, 1]).get_support()
    array([ True, False])
    """

    n_features_to_select: Any = 0.5

    def _score_tasks(self, tasks: list[CentredTask]) -> Scored:
        return np.stack([task.between_share() for task in tasks]), Convergence(converged=True, n_iter=0)


@estimator_class()
class RandomSelector(FeatureRanking):
    """Rank features at random: what any selector has to beat.

    Examples
    --------
    >>> import numpy as np
    >>> from bayesmtfs.baselines import RandomSelector
    >>> int(RandomSelector(3, random_state=0).fit(np.eye(8), np.arange(8) % 2).get_support().sum())
    3
    """

    n_features_to_select: Any = 0.5
    random_state: Any = None

    def _score_tasks(self, tasks: list[CentredTask]) -> Scored:
        drawn = check_random_state(self.random_state).uniform(size=tasks[0].X.shape[1])
        return np.tile(drawn, (len(tasks), 1)), Convergence(converged=True, n_iter=0)


@estimator_class()
class HingeSelector(FeatureRanking):
    """Rank features by the rows of SVM-21, a support vector machine whose classes share features, one fit per task.

    For each task, one hinge loss per class against the rest, y_ic in {-1, +1}:

        minimise  sum_c (1 / n) sum_i (1 - y_ic (x_i'w_c + b_c))_+ + strength * sum_j ||w^j||_2

    (after Cai, Nie, Huang and Ding 2011, whose loss compares the classes of a row with each other; one against the rest
    keeps the problem that `bayesmtfs.MixedNormClassifier` with ``loss="hinge"`` solves to a certified gap).

    Parameters
    ----------
    penalty_strength : float or None
        None: a tenth of the smallest strength at which no feature is selected.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bayesmtfs.baselines import HingeSelector
    >>> HingeSelector(n_features_to_select=1).fit(*load_iris(return_X_y=True)).get_support(indices=True)
    array([2])
    """

    penalty_strength: float | None = None
    tol: float = 1e-4
    max_iter: int = 10_000

    def _score_tasks(self, tasks: list[CentredTask]) -> Scored:
        model = MixedNormClassifier(
            penalty_strength=self.penalty_strength, loss="hinge", tol=self.tol, max_iter=self.max_iter, progress=False
        )
        scores, ends = [], []
        for task in tasks:
            model.fit(task.X, task.labels, sample_weight=task.weight)
            scores.append(np.linalg.norm(model.coef_, axis=0))
            ends.append(model.result_.convergence)
        # The task that is furthest from its optimum speaks for all
        return np.stack(scores), max(ends, key=lambda end: (not end.converged, end.gap))


class RowFit(NamedTuple):
    """Coefficients of classes, of one task or of all tasks side by side."""

    W: FloatArray  # (p, classes)
    trace: FloatArray  # objective after each round
    converged: bool
    b: FloatArray | None = None  # (classes,) of SBMLR, as is
    strength: float = np.nan  # alpha at the solution, inf where all weights are zero


def _put_together(fits: Sequence[RowFit], tol: float, trouble: str) -> Scored:
    """(m, p) Row lengths of one fit per task, and how the longest of them ended."""
    converged = all(fit.converged for fit in fits)
    if not converged:
        warn(f"{trouble}; raise max_iter or tol", ConvergenceWarning)
    longest = max(fits, key=lambda fit: len(fit.trace))
    return np.stack([np.linalg.norm(fit.W, axis=1) for fit in fits]), iterated(converged, longest.trace, tol)


# ---------------------------------------------------------------------- LSR-21


SMALLEST_ROW = 1e-14  # rows below this share of the largest are zero


def solve_robust(
    X: FloatArray, Y: FloatArray, weight: FloatArray, strength: float, tol: float, max_iter: int
) -> RowFit:
    """Minimise ``sum_i weight_i ||y_i - x_i'W|| + strength ||W||_2,1``, until it falls by less than a share tol.

    With U = [W; E], E the scaled residuals and A = [X, diag(strength / weight)], it is: minimise ||U||_2,1 subject to
    A U = Y; the iteration U = D A'(A D A')^-1 Y with D = diag(2 ||u^j||) (Nie et al. 2010, eq. 19) needs an n x n system
    only and never increases the objective.
    """
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
    return RowFit(W, np.array(trace), bool(converged))


@estimator_class()
class RobustRegressionSelector(FeatureRanking):
    """Rank features by the rows of LSR-21, regression on class indicators with the l2,1 norm as loss and as penalty.

    For each task, with centred features X (n, p) and class indicators Y (n, c),

        minimise  sum_i weight_i ||y_i - x_i'W||_2 + strength * sum_j ||w^j||_2

    (Nie, Huang, Cai and Ding 2010, eq. 11, "robust feature selection", RFS). Differently from the paper, an intercept is
    taken off by centring.

    Parameters
    ----------
    penalty_strength : float, default 1.0
        gamma of the paper.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bayesmtfs.baselines import RobustRegressionSelector
    >>> RobustRegressionSelector(n_features_to_select=1).fit(*load_iris(return_X_y=True)).get_support(indices=True)
    array([3])
    """

    penalty_strength: float = 1.0
    tol: float = 1e-6
    max_iter: int = 1000

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._require("penalty_strength", self.penalty_strength > 0, "a positive number")

    def _score_tasks(self, tasks: list[CentredTask]) -> Scored:
        fits = [solve_robust(t.X, t.Y, t.weight, self.penalty_strength, self.tol, self.max_iter) for t in tasks]
        return _put_together(fits, self.tol, f"LSR-21 still falls after {self.max_iter} iterations")


# ---------------------------------------------------------------------- FSSI


BALANCE = 10.0  # ratio of the residuals above which the step size is changed


class _LeastSquares:
    """One task in the singular vectors of its weighted rows."""

    def __init__(self, task: CentredTask) -> None:
        root = np.sqrt(task.weight / task.weight.sum())[:, None]
        self.rows, self.targets = root * task.X, root * task.Y
        _, singular, self.right = np.linalg.svd(self.rows, full_matrices=False)
        self.squares, self.moment = singular**2, self.rows.T @ self.targets  # (r,), (p, classes)

    def step(self, pull: FloatArray, rho: float) -> FloatArray:
        """Minimise 1/2 ||X W - Y||^2 + rho ||W - pull||^2."""
        right_side = self.moment + 2.0 * rho * pull
        shrink = 1.0 / (self.squares + 2.0 * rho) - 0.5 / rho
        return 0.5 / rho * right_side + self.right.T @ (shrink[:, None] * (self.right @ right_side))

    def loss(self, W: FloatArray) -> float:
        return 0.5 * float(np.sum((self.rows @ W - self.targets) ** 2))


def shrink_rows(W: FloatArray, by: float) -> FloatArray:
    """Shorten every row by an amount, down to zero."""
    lengths = np.linalg.norm(W, axis=1, keepdims=True)
    return W * np.maximum(0.0, 1.0 - by / np.maximum(lengths, 1e-300))


def shrink_singular_values(W: FloatArray, by: float) -> FloatArray:
    """Lower every singular value by an amount, down to zero."""
    left, singular, right = np.linalg.svd(W, full_matrices=False)
    return (left * np.maximum(singular - by, 0.0)) @ right


def solve_shared(tasks: list[CentredTask], within: float, joint: float, tol: float, max_iter: int) -> list[RowFit]:
    """Minimise the objective of FSSI, one fit per task; tol is relative to W."""
    parts = [_LeastSquares(task) for task in tasks]
    widths = [part.moment.shape[1] for part in parts]
    cuts = np.cumsum(widths)[:-1]

    def objective(W: FloatArray) -> float:
        own = np.split(W, cuts, axis=1)
        loss = sum(part.loss(V) for part, V in zip(parts, own, strict=True))
        rows = sum(float(np.linalg.norm(V, axis=1).sum()) for V in own)
        return loss + within * rows + joint * float(np.linalg.svd(W, compute_uv=False).sum())

    rho = max(float(np.mean([part.squares.mean() for part in parts])), 1e-12)
    zero = np.zeros((len(parts[0].moment), sum(widths)))
    Z, dual, trace, converged = [zero, zero], [zero, zero], [objective(zero)], False
    while not converged and len(trace) <= max_iter:
        pulls = np.split((Z[0] - dual[0] + Z[1] - dual[1]) / 2.0, cuts, axis=1)
        W = np.hstack([part.step(pull, rho) for part, pull in zip(parts, pulls, strict=True)])
        rows = [shrink_rows(V, within / rho) for V in np.split(W + dual[0], cuts, axis=1)]
        last, Z = Z, [np.hstack(rows), shrink_singular_values(W + dual[1], joint / rho)]
        dual = [u + W - z for u, z in zip(dual, Z, strict=True)]
        primal = np.sqrt(sum(np.sum((W - z) ** 2) for z in Z))
        change = np.sqrt(sum(np.sum((z - old) ** 2) for z, old in zip(Z, last, strict=True)))
        size = max(float(np.linalg.norm(W)), float(np.linalg.norm(Z[0])), 1e-12)
        converged = bool(max(primal, change) <= tol * size)
        trace.append(objective(Z[0]))
        factor = 2.0 if primal > BALANCE * change else 0.5 if change > BALANCE * primal else 1.0
        rho, dual = rho * factor, [u / factor for u in dual]
    return [RowFit(own, np.array(trace), converged) for own in np.split(Z[0], cuts, axis=1)]


@estimator_class()
class SharedStructureSelector(FeatureRanking):
    """Rank features by the rows of FSSI, feature selection for several tasks that share a low-dimensional structure.

    With centred features X_l and class indicators Y_l of task l, and W = [W_1, ..., W_t],

        minimise  sum_l (1 / 2 n_l) ||X_l W_l - Y_l||_F^2 + within * sum_l sum_i ||w_l^i||_2 + joint * ||W||_*

    (after Yang, Ma, Hauptmann and Sebe 2013: an l2,1 norm for every task, the trace norm over all tasks). The problem is
    convex; it is solved by the alternating direction method of multipliers with one copy of W per penalty (Boyd et al.
    2011, sections 3.3 and 3.4.1), where the least squares step is diagonal in the singular vectors of X_l. Differently
    from the paper the loss is a mean over rows, the intercept is taken off by centring, and no p x p system is solved.

    Parameters
    ----------
    within_strength, joint_strength : float, default 1e-2
        Of the row norms of each task and of the trace norm over all tasks.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bayesmtfs.baselines import SharedStructureSelector
    >>> SharedStructureSelector(n_features_to_select=1).fit(*load_iris(return_X_y=True)).get_support(indices=True)
    array([1])
    """

    within_strength: float = 1e-2
    joint_strength: float = 1e-2
    tol: float = 1e-4
    max_iter: int = 2000

    def _check_parameters(self) -> None:
        super()._check_parameters()
        for name in ("within_strength", "joint_strength"):
            self._require(name, getattr(self, name) >= 0, "a number of at least 0")

    def _score_tasks(self, tasks: list[CentredTask]) -> Scored:
        fits = solve_shared(tasks, self.within_strength, self.joint_strength, self.tol, self.max_iter)
        return _put_together(fits, self.tol, f"FSSI is not solved after {self.max_iter} iterations")


# ---------------------------------------------------------------------- SBMLR


START_SHARE = 0.1  # of the strength at which all weights are zero
MOST_STEPS = 2000  # of one l1 fit


class MultinomialTask(NamedTuple):
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

    def objective(self, W: FloatArray, b: FloatArray) -> float:
        """That of SBMLR."""
        size = float(np.abs(W).sum())
        return self.loss(W, b) + (np.count_nonzero(W) * np.log(size) if size > 0 else -np.inf)


def l1_fit(
    problem: MultinomialTask, strength: float, W: FloatArray, b: FloatArray, tol: float, free: BoolArray | None = None
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


def solve_sparse(problem: MultinomialTask, tol: float, max_iter: int) -> RowFit:
    """Minimise the objective of SBMLR by at most max_iter l1 fits, until no weight changes by more than tol."""
    shares = problem.weight @ problem.Y / problem.weight.sum()
    W, b = np.zeros((problem.X.shape[1], problem.Y.shape[1])), np.log(shares)
    strength = START_SHARE * float(np.abs(problem.gradient(W, b)[0]).max())
    W, b = l1_fit(problem, strength, W, b, tol)
    trace, converged = [problem.objective(W, b)], False
    while not converged and len(trace) <= max_iter:
        size, last = float(np.abs(W).sum()), W
        if size == 0:
            strength, converged = np.inf, True
            break
        strength = np.count_nonzero(W) / size
        W, b = l1_fit(problem, strength, W, b, tol, free=W != 0)
        trace.append(problem.objective(W, b))
        converged = bool(np.abs(W - last).max() <= 10 * tol * max(1.0, float(np.abs(W).max())))
    return RowFit(W, np.array(trace), converged, b, float(strength))


@estimator_class()
class SparseMultinomialSelector(FeatureRanking):
    """Rank features by the rows of SBMLR, sparse multinomial regression with its penalty strength integrated out.

    For each task, a Laplace prior with rate alpha on its N weights, and p(alpha) = 1 / alpha, leave

        minimise  - sum_i weight_i ln p(y_i | x_i, W, b) + N ln sum_jc |w_jc|

    (Cawley, Talbot and Girolami 2006, eq. 12), N being the number of weights that are not zero. A weight that has become
    zero stays zero (else N would go back and forth for ever). The logarithm lies below its tangent, so that one step is
    an l1 penalised multinomial fit of strength alpha = N / sum |w|, and the objective never increases while N stays.
    W = 0 is a minimum at minus infinity, which is what the fit ends at where there are few rows; the start is the l1 fit
    at a tenth of the strength that leaves no weight. Differently from the paper the l1 problem is solved by proximal
    gradients, and the intercept is free.

    Attributes
    ----------
    strengths_ : (n_tasks,) penalty strength that each task ends at

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bayesmtfs.baselines import SparseMultinomialSelector
    >>> SparseMultinomialSelector(n_features_to_select=1).fit(*load_iris(return_X_y=True)).get_support(indices=True)
    array([2])
    """

    tol: float = 1e-5
    max_iter: int = 100

    def _score_tasks(self, tasks: list[CentredTask]) -> Scored:
        # One unit for all features: the objective does not depend on it, the steps do
        units = [max(float(np.abs(task.X).max(initial=0.0)), 1e-300) for task in tasks]
        problems = [MultinomialTask(t.X / unit, t.indicators(), t.weight) for t, unit in zip(tasks, units, strict=True)]
        fits = [solve_sparse(problem, self.tol, self.max_iter) for problem in problems]
        self.strengths_ = np.array([fit.strength for fit in fits])
        return _put_together(fits, self.tol, f"SBMLR still moves after {self.max_iter} rounds")
