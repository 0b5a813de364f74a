"""SBMLR: sparse multinomial logistic regression whose penalty strength is integrated out.

A Laplace prior with rate alpha on the N weights of a task, and p(alpha) = 1 / alpha, leave

    minimise  - sum_i weight_i ln p(y_i | x_i, W, b) + N ln sum_jc |w_jc|

(Cawley, Talbot and Girolami 2006, eq. 12), N being the number of weights that are not zero. A weight that has
become zero stays zero (else N would go back and forth for ever). The logarithm lies below
its tangent, so that one step is an l1 penalised multinomial fit of strength alpha = N / sum |w| (by accelerated
proximal gradient steps), and the objective never increases while N stays. W = 0 is a minimum at minus infinity, which
is what the fit ends at where there are few rows; the start is the l1 fit at a tenth of the strength that leaves no
weight. Differently from the paper the l1 problem is solved by proximal gradients, and the intercept is free.
"""

import warnings
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp, softmax

from bayesmtfs.papers.baselines.feature_ranking import CentredTask, FeatureRanking, iterated
from bayesmtfs.results.fit_result import Convergence
from bayesmtfs.types import BoolArray, ConvergenceWarning, FloatArray

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

    Parameters
    ----------
    problem : one task
    strength : of the penalty
    W, b : where to begin
    tol : stop when a step moves less than this
    free : (p, classes) False where a weight is kept at zero
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


def solve(problem: Multinomial, tol: float, max_iter: int) -> SparseFit:
    """Minimise the objective at the top of this module from the start named there.

    Parameters
    ----------
    problem : one task
    tol : stop when no weight changes by more than this
    max_iter : most l1 fits
    """
    shares = problem.weight @ problem.Y / problem.weight.sum()
    W, b = np.zeros((problem.X.shape[1], problem.Y.shape[1])), np.log(shares)
    strength = START_SHARE * float(np.abs(problem.gradient(W, b)[0]).max())
    W, b = l1_fit(problem, strength, W, b, tol)
    trace, converged = [_objective(problem, W, b)], False
    while not converged and len(trace) <= max_iter:
        size, last = float(np.abs(W).sum()), W
        if size == 0:
            strength, converged = np.inf, True
            break
        strength = np.count_nonzero(W) / size
        W, b = l1_fit(problem, strength, W, b, tol, free=W != 0)
        trace.append(_objective(problem, W, b))
        converged = bool(np.abs(W - last).max() <= 10 * tol * max(1.0, float(np.abs(W).max())))
    return SparseFit(W, b, float(strength), np.array(trace), converged)


def _objective(problem: Multinomial, W: FloatArray, b: FloatArray) -> float:
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
    >>> from bayesmtfs.papers.baselines.sbmlr import SparseMultinomialSelector
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.standard_normal((60, 8)), np.arange(60) % 3
    >>> X[:, 5] += 2 * y
    >>> SparseMultinomialSelector(n_features_to_select=1).fit(X, y).get_support(indices=True)
    array([5])
    """

    tol: float = 1e-5
    max_iter: int = 100

    def _score_tasks(self, tasks: list[CentredTask]) -> tuple[FloatArray, Convergence]:
        fits = [solve(_multinomial(task), self.tol, self.max_iter) for task in tasks]
        self.strengths_ = np.array([fit.strength for fit in fits])
        converged = all(fit.converged for fit in fits)
        if not converged:
            warnings.warn(
                f"SBMLR still moves after {self.max_iter} rounds; raise max_iter or tol",
                ConvergenceWarning,
                stacklevel=6,
            )
        longest = max(fits, key=lambda fit: len(fit.trace))
        scores = np.stack([np.linalg.norm(fit.W, axis=1) for fit in fits])
        return scores, iterated(converged, longest.trace, self.tol)


def _multinomial(task: CentredTask) -> Multinomial:
    # One unit for all features: the objective does not depend on it, the steps do
    size = max(float(np.abs(task.X).max(initial=0.0)), 1e-300)
    indicators = (task.labels[:, None] == np.unique(task.labels)).astype(np.float64)
    return Multinomial(task.X / size, indicators, task.weight)
