"""Feature rankings, one feature or one task at a time: what they share, Fisher scores, SVM-21, and random order.

What the single-task feature selectors share: they score the features of each task, and the scores are put together.

The score of a feature over all tasks is the Euclidean length of its scores in the tasks (of all members of its group,
where there are groups). Equal scores, such as the zeros of sparse methods, are ordered by the share of the feature's
variance that lies between classes.

Fisher score: how far apart the class means of each feature are, one feature at a time.

With n_c rows of class c, its mean mu_c and variance s_c^2 (Duda, Hart and Stork 2001),

    F = sum_c n_c (mu_c - mu)^2 / sum_c n_c s_c^2.

What is averaged over tasks is F / (1 + F), the share of variance between classes: it puts the features of one task in
the same order and is finite where the variance within classes is 0.

SVM-21: multi-class support vector machine whose classes share the features they select.

For each task, one hinge loss per class against the rest, y_ic in {-1, +1}:

    minimise  sum_c (1 / n) sum_i (1 - y_ic (x_i'w_c + b_c))_+ + strength * sum_j ||w^j||_2

(after Cai, Nie, Huang and Ding 2011, whose loss compares the classes of a row with each other; one against the rest
keeps the problem that `bayesmtfs.MixedNormClassifier` with ``loss="hinge"`` solves to a certified gap).

Features in random order: what any selector has to beat.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from bayesmtfs.data.scaling import standardize
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.discriminative.trace_ratio import class_indicators, row_lengths
from bayesmtfs.estimators.penalised import MixedNormClassifier
from bayesmtfs.estimators.ranking import Ranking, RankingSelector, closed_form
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


# ---------------------------------------------------------------------- Fisher score


@dataclass(repr=False, eq=False)
class FisherScoreSelector(FeatureRanking):
    """Rank features by their Fisher scores.

    Parameters
    ----------
    n_features_to_select : int or float, default 0.5
        A number, or a share of all features.
    standardize : bool
        Without effect on these scores, which have no units.
    task_column, groups : see `bayesmtfs.DiscriminativeSelector`

    Attributes
    ----------
    scores_, ranking_, task_scores_ : as of `bayesmtfs.DiscriminativeSelector`

    Examples
    --------
    >>> import numpy as np
    >>> from bayesmtfs.papers.baselines.rankings import FisherScoreSelector
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [4.0, 1.0], [5.0, 0.0]])
    >>> FisherScoreSelector(1).fit(X, [0, 0, 1, 1]).get_support()
    array([ True, False])
    """

    n_features_to_select: Any = 0.5

    def _score_tasks(self, tasks: list[CentredTask]) -> tuple[FloatArray, Convergence]:
        return np.stack([task.between_share() for task in tasks]), closed_form()


# ---------------------------------------------------------------------- SVM-21


@dataclass(repr=False, eq=False)
class HingeSelector(FeatureRanking):
    """Rank features by the rows of an l2,1 support vector machine, one fit per task.

    Parameters
    ----------
    penalty_strength : float or None
        None: a tenth of the smallest strength at which no feature is selected.
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
    >>> from bayesmtfs.papers.baselines.rankings import HingeSelector
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.standard_normal((30, 8)), np.arange(30) % 3
    >>> X[:, 5] += 3 * y
    >>> HingeSelector(n_features_to_select=1).fit(X, y).get_support(indices=True)
    array([5])
    """

    penalty_strength: float | None = None
    tol: float = 1e-4
    max_iter: int = 10_000

    def _score_tasks(self, tasks: list[CentredTask]) -> tuple[FloatArray, Convergence]:
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


# ---------------------------------------------------------------------- random order


@dataclass(repr=False, eq=False)
class RandomSelector(FeatureRanking):
    """Rank features at random.

    Parameters
    ----------
    n_features_to_select : int or float, default 0.5
        A number, or a share of all features.
    standardize : bool
        Without effect.
    task_column, groups : see `bayesmtfs.DiscriminativeSelector`
    random_state : int, RandomState or None

    Examples
    --------
    >>> import numpy as np
    >>> from bayesmtfs.papers.baselines.rankings import RandomSelector
    >>> int(RandomSelector(3, random_state=0).fit(np.eye(8), np.arange(8) % 2).get_support().sum())
    3
    """

    n_features_to_select: Any = 0.5
    random_state: Any = None

    def _score_tasks(self, tasks: list[CentredTask]) -> tuple[FloatArray, Convergence]:
        drawn = check_random_state(self.random_state).uniform(size=tasks[0].X.shape[1])
        return np.tile(drawn, (len(tasks), 1)), closed_form()
