"""Single task learning (STL): one ridge fit for all tasks, their labels ignored.

    minimise  1/N sum_i l(y_i, x_i' w + b) + s/2 ||w||^2      over the N rows of all tasks (weights replace counts)

On School such a fit explains more than many a multi-task method, so that it belongs into every comparison.
"""

from dataclasses import dataclass

import numpy as np

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import Family
from bayesmtfs.online.smoothed_ridge import Settings, fit_smooth
from bayesmtfs.papers.baselines.independent import independent_lines
from bayesmtfs.papers.baselines.ridge import Lines, RidgeClassifier, RidgeEstimator, RidgeRegressor


class PooledEstimator(RidgeEstimator):
    """The body of both."""

    def _lines(self, data: TaskData, family: Family) -> Lines:
        settings = Settings(self.penalty_strength, self.fit_intercept)
        if self._form == "classes":  # several classes of one task are not tasks to be pooled
            return independent_lines(data, family, settings)
        fit = fit_smooth(data.X, data.y, data.weight / data.weight.sum(), family, settings, None)
        m = data.n_tasks
        return Lines(np.tile(fit.w[:, None], (1, m)), np.full(m, fit.intercept), fit.converged, 1)


@dataclass(kw_only=True, repr=False, eq=False)
class PooledRegressor(RidgeRegressor, PooledEstimator):
    """One ridge regression for all tasks.

    Parameters
    ----------
    penalty_strength : float
        s, the ridge beside the mean loss over all rows.
    fit_intercept : bool
        One intercept for all, not penalised.
    standardize : bool
        Scale features within each task before the fit.
    task_column, unknown_task : see `MixedNormRegressor`

    Examples
    --------
    >>> from bayesmtfs import simulate_tasks
    >>> from bayesmtfs.papers.baselines import PooledRegressor
    >>> sim = simulate_tasks(n_tasks=3, n_features=5, n_relevant=3, random_state=0)
    >>> PooledRegressor().fit(sim.X, sim.y, tasks=sim.tasks).coef_.shape
    (3, 5)
    """


@dataclass(kw_only=True, repr=False, eq=False)
class PooledClassifier(RidgeClassifier, PooledEstimator):
    """One logistic ridge regression for all tasks (STL).

    Parameters
    ----------
    penalty_strength, fit_intercept, standardize, task_column, unknown_task : see `PooledRegressor`

    Examples
    --------
    >>> from bayesmtfs import simulate_tasks
    >>> from bayesmtfs.papers.baselines import PooledClassifier
    >>> sim = simulate_tasks(n_tasks=3, n_features=5, n_relevant=3, kind="classification", random_state=0)
    >>> PooledClassifier().fit(sim.X, sim.y, tasks=sim.tasks).coef_.shape
    (3, 5)
    """
