"""What the single-task feature selectors share: they score the features of each task, and the scores are put together.

The score of a feature over all tasks is the Euclidean length of its scores in the tasks (of all members of its group,
where there are groups). Equal scores, such as the zeros of sparse methods, are ordered by the share of the feature's
variance that lies between classes.
"""

from abc import abstractmethod
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from bayesmtfs.data.scaling import standardize
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.discriminative.trace_ratio import row_lengths
from bayesmtfs.discriminative.trace_ratio_scatter import class_indicators
from bayesmtfs.estimators.ranking import Ranking, RankingSelector
from bayesmtfs.results.fit_result import Convergence
from bayesmtfs.types import FloatArray


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
        indicators = (labels[:, None] == np.unique(labels)).astype(np.float64)
        self.Y: FloatArray = indicators - weight @ indicators / weight.sum()

    def between_share(self) -> FloatArray:
        """(p,) Variance between classes over all variance of each feature; 0 for a constant one."""
        rows = np.sqrt(self.weight)[:, None] * self.X
        between = np.sum((class_indicators(self.labels, self.weight).T @ rows) ** 2, axis=0)
        total = np.sum(rows**2, axis=0)
        constant = total <= 1e-24 * max(float(total.max(initial=0.0)), 1e-300)
        return np.where(constant, 0.0, between / np.where(constant, 1.0, total))


class FeatureRanking(RankingSelector):
    """Score the features of every task; subclasses say how."""

    @abstractmethod
    def _score_tasks(self, tasks: list[CentredTask]) -> tuple[FloatArray, Convergence]:
        """(m, p) Scores, and how they were found."""

    def _rank(self, data: TaskData) -> Ranking:
        scaled = standardize(data).data if self.standardize else data
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


def closed_form() -> Convergence:
    """How a score without iterations ends."""
    return Convergence(converged=True, n_iter=0, objective=float("nan"), gap=float("nan"))


def iterated(converged: bool, trace: ArrayLike, tol: float) -> Convergence:
    """How an iteration ended."""
    values = np.asarray(trace, dtype=np.float64)
    return Convergence(
        converged=converged,
        n_iter=len(values) - 1,
        objective=float(values[-1]),
        gap=float("nan"),
        tol=tol,
        objective_trace=values,
    )
