"""Shared hypotheses (SHAMO): few lines, and every task uses the one that fits it best.

    minimise  sum_t L_t(w_h(t), b_h(t)) + s/2 sum_h ||w_h||^2      over H lines and the choice h(t) of each task

with L_t the mean logistic loss (Crammer and Mansour 2012). As in k-means, fits of the lines and choices of
the tasks alternate, from several random partitions, and the best end is kept; the objective never rises. What
differs: the ridge, and an intercept per line.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.utils import check_random_state

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import Family
from bayesmtfs.online.smoothed import task_losses
from bayesmtfs.online.smoothed_ridge import RidgeFit, RidgeSettings, fit_smooth
from bayesmtfs.papers.baselines.ridge import Lines, RidgeClassifier
from bayesmtfs.types import FloatArray, IntArray


@dataclass(repr=False, eq=False)
class SharedHypothesesClassifier(RidgeClassifier):
    """Few logistic lines that tasks choose from (SHAMO).

    Parameters
    ----------
    n_hypotheses : int
        H, the number of lines; at most one per task is used, and one for each of several classes.
    penalty_strength : float
        s, the ridge of a line beside the sum of the mean losses of its tasks.
    n_init : int
        Random partitions to begin from.
    max_iter : int
        Most alternations from each start.
    fit_intercept, standardize, task_column, unknown_task : see `bayesmtfs.baselines.PooledRegressor`
    random_state : int, RandomState or None
        For the partitions.

    Attributes
    ----------
    hypothesis_ : (n_tasks,) number of each task's line

    Examples
    --------
    >>> from bayesmtfs import simulate_tasks
    >>> from bayesmtfs.papers.baselines import SharedHypothesesClassifier
    >>> sim = simulate_tasks(n_tasks=4, n_features=5, n_relevant=3, kind="classification", random_state=0)
    >>> model = SharedHypothesesClassifier(random_state=0).fit(sim.X, sim.y, tasks=sim.tasks)
    >>> len(set(model.hypothesis_.tolist())) <= 2
    True

    References
    ----------
    Crammer, Mansour (2012), Learning multiple tasks using shared hypotheses.
    """

    _saved_attributes: ClassVar[tuple[str, ...]] = ("classes_", "hypothesis_")

    n_hypotheses: int = 2
    n_init: int = 5
    max_iter: int = 50
    random_state: Any = None

    def _check_parameters(self) -> None:
        super()._check_parameters()
        for name in ("n_hypotheses", "n_init", "max_iter"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; pass a whole number of at least 1")

    def _lines(self, data: TaskData, family: Family) -> Lines:
        random = check_random_state(self.random_state)
        # Several classes of one task are told apart by their lines, so that each has its own
        count = data.n_tasks if self._form == "classes" else min(self.n_hypotheses, data.n_tasks)
        settings = RidgeSettings(self.penalty_strength, self.fit_intercept)
        best: tuple[float, IntArray, Lines] | None = None
        for _ in range(self.n_init if count > 1 else 1):
            choice = random.permutation(np.arange(data.n_tasks) % count)
            found = _alternate(data, family, settings, choice, count, self.max_iter)
            if best is None or found[0] < best[0]:
                best = found
        assert best is not None
        self.hypothesis_ = best[1]
        return best[2]


def _alternate(
    data: TaskData, family: Family, settings: RidgeSettings, choice: IntArray, count: int, max_iter: int
) -> tuple[float, IntArray, Lines]:
    """Objective, choices and lines from one start."""
    weight = data.loss_weights("mean")
    fits: list[RidgeFit | None] = [None] * count
    H, intercept = np.zeros((data.n_features, count)), np.zeros(count)
    value, converged, number = np.inf, False, 0
    for number in range(1, max_iter + 1):
        for h in np.unique(choice):  # a line that nobody chose stays as it is
            found = fit_smooth(data.X, data.y, weight * (choice == h)[data.task], family, settings, fits[h])
            fits[h], H[:, h], intercept[h] = found, found.w, found.intercept
        losses = task_losses(data, family, H, intercept)
        fresh = np.argmin(losses, axis=0)
        used = np.unique(fresh)
        value = float(losses.min(axis=0).sum() + 0.5 * settings.strength * np.sum(H[:, used] ** 2))
        converged = bool((fresh == choice).all())
        choice = fresh
        if converged:
            break
    return value, choice, Lines(_of_tasks(H, choice), intercept[choice], converged, number)


def _of_tasks(H: FloatArray, choice: IntArray) -> FloatArray:
    return np.ascontiguousarray(H[:, choice])
