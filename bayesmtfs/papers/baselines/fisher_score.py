"""Fisher score: how far apart the class means of each feature are, one feature at a time.

With n_c rows of class c, its mean mu_c and variance s_c^2 (Duda, Hart and Stork 2001),

    F = sum_c n_c (mu_c - mu)^2 / sum_c n_c s_c^2.

What is averaged over tasks is F / (1 + F), the share of variance between classes: it puts the features of one task in
the same order and is finite where the variance within classes is 0.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from bayesmtfs.papers.baselines.feature_ranking import CentredTask, FeatureRanking, closed_form
from bayesmtfs.results.fit_result import Convergence
from bayesmtfs.types import FloatArray


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
    >>> from bayesmtfs.papers.baselines.fisher_score import FisherScoreSelector
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [4.0, 1.0], [5.0, 0.0]])
    >>> FisherScoreSelector(1).fit(X, [0, 0, 1, 1]).get_support()
    array([ True, False])
    """

    n_features_to_select: Any = 0.5

    def _score_tasks(self, tasks: list[CentredTask]) -> tuple[FloatArray, Convergence]:
        return np.stack([task.between_share() for task in tasks]), closed_form()
