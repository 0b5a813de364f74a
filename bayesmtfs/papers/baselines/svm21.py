"""SVM-21: multi-class support vector machine whose classes share the features they select.

For each task, one hinge loss per class against the rest, y_ic in {-1, +1}:

    minimise  sum_c (1 / n) sum_i (1 - y_ic (x_i'w_c + b_c))_+ + strength * sum_j ||w^j||_2

(after Cai, Nie, Huang and Ding 2011, whose loss compares the classes of a row with each other; one against the rest
keeps the problem that `bayesmtfs.MixedNormClassifier` with ``loss="hinge"`` solves to a certified gap).
"""

from dataclasses import dataclass

import numpy as np

from bayesmtfs.estimators.penalised import MixedNormClassifier
from bayesmtfs.papers.baselines.feature_ranking import CentredTask, FeatureRanking
from bayesmtfs.results.fit_result import Convergence
from bayesmtfs.types import FloatArray


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
    >>> from bayesmtfs.papers.baselines.svm21 import HingeSelector
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
