"""Independent task learning (ITL): one ridge fit per task.

minimise  L_t(w, b) + s/2 ||w||^2      for each task t, with L_t its mean loss, squared or logistic
"""

from dataclasses import dataclass

import numpy as np

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import Family
from bayesmtfs.online.smoothed_ridge import Settings, fit_smooth
from bayesmtfs.papers.baselines.ridge import Lines, RidgeClassifier, RidgeEstimator, RidgeRegressor


class IndependentEstimator(RidgeEstimator):
    """The body of both."""

    def _lines(self, data: TaskData, family: Family) -> Lines:
        return independent_lines(data, family, Settings(self.penalty_strength, self.fit_intercept))


@dataclass(kw_only=True, repr=False, eq=False)
class IndependentRegressor(RidgeRegressor, IndependentEstimator):
    """One ridge regression per task.

    Parameters
    ----------
    penalty_strength : float
        s, the ridge beside the mean loss.
    fit_intercept : bool
        One intercept per task, not penalised.
    standardize : bool
        Scale features within each task before the fit.
    task_column, unknown_task : see `MixedNormRegressor`

    Examples
    --------
    >>> from bayesmtfs import simulate_tasks
    >>> from bayesmtfs.papers.baselines import IndependentRegressor
    >>> sim = simulate_tasks(n_tasks=3, n_features=5, n_relevant=3, random_state=0)
    >>> IndependentRegressor().fit(sim.X, sim.y, tasks=sim.tasks).coef_.shape
    (3, 5)
    """


@dataclass(kw_only=True, repr=False, eq=False)
class IndependentClassifier(RidgeClassifier, IndependentEstimator):
    """One logistic ridge regression per task (ITL).

    Parameters
    ----------
    penalty_strength, fit_intercept, standardize, task_column, unknown_task : see `IndependentRegressor`

    Examples
    --------
    >>> from bayesmtfs import simulate_tasks
    >>> from bayesmtfs.papers.baselines import IndependentClassifier
    >>> sim = simulate_tasks(n_tasks=3, n_features=5, n_relevant=3, kind="classification", random_state=0)
    >>> IndependentClassifier().fit(sim.X, sim.y, tasks=sim.tasks).coef_.shape
    (3, 5)
    """


def independent_lines(data: TaskData, family: Family, settings: Settings) -> Lines:
    """One fit per task."""
    weight = data.loss_weights("mean")
    fits = [
        fit_smooth(X, data.y[start:stop], weight[start:stop], family, settings, None)
        for X, (start, stop) in zip(data.task_designs, data.spans, strict=True)
    ]
    W = np.stack([fit.w for fit in fits], axis=1)
    return Lines(W, np.array([fit.intercept for fit in fits]), all(fit.converged for fit in fits), 1)
