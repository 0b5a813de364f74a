r"""Convex multi-task feature learning (MTFL), with which Zhang, Yeung and Xu compare: a trace norm on W.

.. math:: \min_W \sum_t \tfrac12 \|y_t - X_t w_t\|^2 + \tau \|W\|_{tr}

It learns combinations of features and selects none. Argyriou, Evgeniou and Pontil (2008, problem 5) square the norm, which
gives the same solutions at other strengths; their alternation hardly leaves the space of its first W where features
outnumber tasks by far, so that accelerated proximal steps (Beck and Teboulle 2009) with thresholded singular values stand
in for it. Targets and features are centred within each task, which gives intercepts.

References
----------
A. Argyriou, T. Evgeniou, M. Pontil (2008), Convex multi-task feature learning, Machine Learning 73:243-272.
A. Beck, M. Teboulle (2009), A fast iterative shrinkage-thresholding algorithm, SIAM Journal on Imaging Sciences 2:183-202.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmtfs.types import FloatArray


def shrink_singular_values(W: FloatArray, threshold: float) -> FloatArray:
    """Proximal step of the trace norm."""
    U, s, V = np.linalg.svd(W, full_matrices=False)
    return np.asarray((U * np.maximum(s - threshold, 0.0)) @ V)


def learn_features(
    designs: list[FloatArray], targets: list[FloatArray], strength: float, tol: float = 1e-4, max_iter: int = 1000
) -> FloatArray:
    """(p, m) Coefficients of centred tasks.

    Parameters
    ----------
    designs, targets : one (n_t, p) and one (n_t,) per task
    strength : tau, as a share of the smallest one at which W = 0
    tol : relative change of W at which the iteration has converged
    max_iter : most iterations
    """
    tasks = list(zip(designs, targets, strict=True))
    tau = strength * np.linalg.norm(np.column_stack([X.T @ y for X, y in tasks]), 2)
    step = 1.0 / max(np.linalg.norm(X, 2) ** 2 for X in designs)
    W = ahead = np.zeros((designs[0].shape[1], len(designs)))
    momentum = 1.0
    for _ in range(max_iter):
        gradient = np.column_stack([X.T @ (X @ ahead[:, t] - y) for t, (X, y) in enumerate(tasks)])
        before, W = W, shrink_singular_values(ahead - step * gradient, step * tau)
        if np.linalg.norm(W - before) <= tol * np.linalg.norm(W):
            break
        faster = (1.0 + np.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
        ahead = W + (momentum - 1.0) / faster * (W - before)
        momentum = faster
    return W


@dataclass(frozen=True)
class FeatureLearningClassifier:
    """Signs of the regressions of labels -1 and +1; `fit_feature_learning` makes it."""

    coef_: FloatArray  # (m, p)
    intercept_: FloatArray  # (m,)
    tasks_: NDArray[Any]

    def predict(self, X: FloatArray, tasks: NDArray[Any]) -> NDArray[np.int64]:
        """(n,) Labels 0 and 1."""
        place = np.searchsorted(self.tasks_, tasks)
        return (np.sum(X * self.coef_[place], axis=1) + self.intercept_[place] > 0).astype(np.int64)


def fit_feature_learning(
    X: FloatArray, y: NDArray[np.int64], tasks: NDArray[Any], strength: float
) -> FeatureLearningClassifier:
    """Fit labels 0 and 1.

    Parameters
    ----------
    X : (n, p)
    y, tasks : (n,)
    strength : tau, as a share of the smallest one at which W = 0

    Examples
    --------
    >>> X, tasks = np.array([[1.0, 0.1], [-1.0, 0.2], [2.0, 0.3], [-2.0, 0.1]]), np.array([0, 0, 1, 1])
    >>> fit_feature_learning(X, np.array([1, 0, 1, 0]), tasks, 0.1).predict(X, tasks).tolist()
    [1, 0, 1, 0]
    """
    names = np.unique(tasks)
    rows = [tasks == name for name in names]
    centres = np.stack([X[chosen].mean(axis=0) for chosen in rows])
    signs = 2.0 * y - 1.0
    means = np.array([signs[chosen].mean() for chosen in rows])
    designs = [X[chosen] - centre for chosen, centre in zip(rows, centres, strict=True)]
    targets = [signs[chosen] - mean for chosen, mean in zip(rows, means, strict=True)]
    coef = learn_features(designs, targets, strength).T
    return FeatureLearningClassifier(coef, means - np.sum(coef * centres, axis=1), names)
