"""LSR-21: least squares regression on class indicators with the l2,1 norm as loss and as penalty.

For each task, with centred features X (n, p) and class indicators Y (n, c),

    minimise  sum_i weight_i ||y_i - x_i'W||_2 + strength * sum_j ||w^j||_2

(Nie, Huang, Cai and Ding 2010, eq. 11, "robust feature selection", RFS). With U = [W; E], E the scaled residuals and
A = [X, diag(strength / weight)], it is: minimise ||U||_2,1 subject to A U = Y; the iteration
U = D A'(A D A')^-1 Y with D = diag(2 ||u^j||) (eq. 19) needs an n x n system only and never increases the objective.
Differently from the paper, an intercept is taken off by centring.
"""

import warnings
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.linalg

from bayesmtfs.papers.baselines.feature_ranking import CentredTask, FeatureRanking, iterated
from bayesmtfs.results.fit_result import Convergence
from bayesmtfs.types import ConvergenceWarning, FloatArray

SMALLEST_ROW = 1e-14  # rows below this share of the largest are zero


class RobustFit(NamedTuple):
    """Coefficients of one task."""

    W: FloatArray  # (p, classes)
    trace: FloatArray
    converged: bool


def solve(X: FloatArray, Y: FloatArray, weight: FloatArray, strength: float, tol: float, max_iter: int) -> RobustFit:
    """Minimise ``sum_i weight_i ||y_i - x_i'W|| + strength ||W||_2,1``.

    Parameters
    ----------
    X, Y : (n, p), (n, c)
    weight : (n,) positive
    strength : positive
    tol : stop when the objective falls by less than this share
    max_iter : most iterations
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
    return RobustFit(W, np.array(trace), bool(converged))


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
    >>> from bayesmtfs.papers.baselines.rfs import RobustRegressionSelector
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
        fits = [solve(t.X, t.Y, t.weight, self.penalty_strength, self.tol, self.max_iter) for t in tasks]
        converged = all(fit.converged for fit in fits)
        if not converged:
            warnings.warn(
                f"LSR-21 still falls after {self.max_iter} iterations; raise max_iter or tol",
                ConvergenceWarning,
                stacklevel=6,
            )
        longest = max(fits, key=lambda fit: len(fit.trace))
        scores = np.stack([np.linalg.norm(fit.W, axis=1) for fit in fits])
        return scores, iterated(converged, longest.trace, self.tol)
