"""Features in random order: what any selector has to beat."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from bayesmtfs.papers.baselines.feature_ranking import CentredTask, FeatureRanking, closed_form
from bayesmtfs.results.fit_result import Convergence
from bayesmtfs.types import FloatArray


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
    >>> from bayesmtfs.papers.baselines.random_ranking import RandomSelector
    >>> int(RandomSelector(3, random_state=0).fit(np.eye(8), np.arange(8) % 2).get_support().sum())
    3
    """

    n_features_to_select: Any = 0.5
    random_state: Any = None

    def _score_tasks(self, tasks: list[CentredTask]) -> tuple[FloatArray, Convergence]:
        drawn = check_random_state(self.random_state).uniform(size=tasks[0].X.shape[1])
        return np.tile(drawn, (len(tasks), 1)), closed_form()
