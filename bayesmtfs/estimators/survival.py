r"""Survival: Cox's proportional hazards for many tasks, with a common choice of features.

Penalised,

    minimise  sum_t (1/n_t) L_t(W) + penalty_strength * sum_i ||w^i||_q + ridge / 2 ||W||_F^2

with minus the log of each task's partial likelihood L_t (`bayesmtfs.families.cox`: ties after Efron, one baseline hazard
per task, no intercept). Conventions are those of scikit-survival: y holds ``event`` and ``time``, ``predict`` gives risk
scores (the larger, the sooner), ``score`` is the concordance index.
"""

from dataclasses import field
from typing import Any, ClassVar

import numpy as np

from bayesmtfs.data.inputs import match_labels, read_labels
from bayesmtfs.data.scaling import Rescaled, effect_unit
from bayesmtfs.data.survival import read_survival
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.estimators.base import MultiTaskEstimator, Names, estimator_class
from bayesmtfs.estimators.em import GeneralizedNormalEstimator
from bayesmtfs.estimators.penalised import MixedNormEstimator
from bayesmtfs.families import Family, find_family
from bayesmtfs.families.cox import RiskSets
from bayesmtfs.types import FloatArray, Solution


class SurvivalFace(MultiTaskEstimator):
    """How survival times are read, predicted and scored; a base of the estimators.

    Parameters
    ----------
    loss : "cox"
        Partial likelihood.
    fit_intercept : False
        The baseline hazard of each task stands in the place of its intercept.

    Attributes
    ----------
    coef_ : (n_tasks, n_features)
        Logarithms of hazard ratios.
    intercept_ : (n_tasks,)
        Zeros.
    event_times_ : (k,) distinct times of events in any task
    cumulative_baseline_hazard_ : (n_tasks, k)
        Breslow's estimate for each task, at these times.
    """

    _saved_attributes: ClassVar[Names] = ("event_times_", "cumulative_baseline_hazard_")

    event_times_: FloatArray
    cumulative_baseline_hazard_: FloatArray

    loss: str | Family = "cox"
    fit_intercept: bool = False

    def _check_survival(self) -> None:
        """Refuse a loss of other targets, and an intercept."""
        if find_family(self.loss).targets != "survival":
            raise ValueError(f"loss is {self.loss!r}, a family of other targets than survival times; use 'cox'")
        if self.fit_intercept:
            raise ValueError(
                "fit_intercept=True has no meaning here: a task's baseline hazard takes its place; use False"
            )

    def _store_baseline(self, data: TaskData) -> None:
        """Set Breslow's estimate at the coefficients."""
        eta = data.linear_predictor(self.coef_.T, self.intercept_)
        eta = eta if data.eta_offset is None else eta + data.eta_offset
        sets = risk_sets(data)
        self.event_times_ = event_times(sets)
        hazards = [
            at_times(own.baseline(eta[a:b]), own, self.event_times_)
            for own, (a, b) in zip(sets, data.spans, strict=True)
        ]
        self.cumulative_baseline_hazard_ = np.stack(hazards)

    def _read_target(self, y: Any, n_rows: int) -> FloatArray:
        return read_survival(y, n_rows)

    def _code_targets(self, data: TaskData, from_task_data: bool) -> TaskData:
        return data

    def _effect_unit(self, data: TaskData) -> FloatArray:
        return effect_unit(data, scale_target=False).T

    def predict(self, X: Any, tasks: Any = None, *, offset: Any = None) -> FloatArray:
        """Predict risk scores ``x' w_t``: the larger, the sooner; they compare rows of one task.

        Parameters
        ----------
        X : (n, p) rows
        tasks : (n,) task labels, where the model was fitted on labelled tasks
        offset : as in ``fit``; 0 without it, and without a column that was named in ``fit``
        """
        return self._full_predictor(X, tasks, offset=offset)

    def predict_cumulative_hazard_function(self, X: Any, tasks: Any = None, *, offset: Any = None) -> FloatArray:
        """Cumulated hazard of every row (n, k) at the k ``event_times_``; parameters as in `predict`."""
        risk = np.exp(self.predict(X, tasks, offset=offset))
        _, labels = self._split_task_column(X, tasks)
        own = np.zeros(len(risk), dtype=np.int64) if labels is None else match_labels(labels, len(risk), self.tasks_)
        mean = self.cumulative_baseline_hazard_.mean(axis=0)  # of a task that was not there in fit
        baseline = np.where(own[:, np.newaxis] >= 0, self.cumulative_baseline_hazard_[own], mean)
        return risk[:, np.newaxis] * baseline

    def predict_survival_function(self, X: Any, tasks: Any = None, *, offset: Any = None) -> FloatArray:
        """Probability (n, k) of every row to outlive each of the k ``event_times_``; parameters as in `predict`."""
        return np.exp(-self.predict_cumulative_hazard_function(X, tasks, offset=offset))

    def score(self, X: Any, y: Any = None, tasks: Any = None, *, offset: Any = None) -> float:
        """Concordance index of Harrell: share of the comparable pairs of rows of one task that the risks order rightly.

        Parameters
        ----------
        X, y, tasks, offset : as in ``fit``
        """
        risk = self.predict(X, tasks, offset=offset)
        _, labels = self._split_task_column(X, tasks)
        signed = read_survival(y, len(risk))
        own = np.zeros(len(risk), dtype=np.int64) if labels is None else read_labels(labels, len(risk)).codes
        counts = np.array([_concordance(signed[own == t], risk[own == t]) for t in range(own.max() + 1)]).sum(axis=0)
        if counts[1] == 0:
            raise ValueError(
                "y has no comparable pair: no event before another row's time within a task; pass more rows"
            )
        return float(counts[0] / counts[1])


@estimator_class()
class MixedNormSurvival(SurvivalFace, MixedNormEstimator):
    """Multi-task Cox regression with an l1,q penalty on the rows of W.

    Examples
    --------
    >>> import numpy as np
    >>> from bayesmtfs import MixedNormSurvival
    >>> rng = np.random.default_rng(0)
    >>> X, tasks = rng.normal(size=(200, 10)), np.repeat(["a", "b"], 100)
    >>> time, died = rng.exponential(np.exp(-X[:, 0])), rng.random(200) < 0.7
    >>> y = np.array(list(zip(died, time)), dtype=[("event", bool), ("time", float)])
    >>> model = MixedNormSurvival(penalty_strength=0.2).fit(X, y, tasks=tasks)
    >>> model.get_support(indices=True).tolist(), model.converged_, model.score(X, y, tasks=tasks) > 0.7
    ([0], True, True)

    References
    ----------
    Cox (1972), Regression models and life-tables. Efron (1977), The efficiency of Cox's likelihood function for censored
    data. Simon, Friedman, Hastie, Tibshirani (2011), Regularization paths for Cox's proportional hazards model.
    """

    loss: str | Family = "cox"
    fit_intercept: bool = field(default=False, kw_only=True)

    def _check_loss(self) -> None:
        self._check_survival()

    def _store(self, data: TaskData, solution: Solution, scaling: Rescaled, tol: float, **settings: Any) -> None:
        super()._store(data, solution, scaling, tol, **settings)
        self._store_baseline(data)


@estimator_class()
class GeneralizedNormalSurvival(SurvivalFace, GeneralizedNormalEstimator):
    """Multi-task Cox regression with generalized normal rows (type II MAP, problem 5).

    Examples
    --------
    >>> import numpy as np
    >>> from bayesmtfs import GeneralizedNormalSurvival
    >>> rng = np.random.default_rng(0)
    >>> X, tasks = rng.normal(size=(200, 10)), np.repeat(["a", "b"], 100)
    >>> time, died = rng.exponential(np.exp(-X[:, 0])), rng.random(200) < 0.7
    >>> y = np.array(list(zip(died, time)), dtype=[("event", bool), ("time", float)])
    >>> model = GeneralizedNormalSurvival(offset=0.01).fit(X, y, tasks=tasks)
    >>> model.get_support(indices=True).tolist(), model.score(X, y, tasks=tasks) > 0.7
    ([0], True)

    References
    ----------
    Zhang, Yeung, Xu (2010), Probabilistic multi-task feature selection, problem (5). Cox (1972), Regression models and
    life-tables.
    """

    loss: str | Family = field(default="cox", kw_only=True)
    fit_intercept: bool = field(default=False, kw_only=True)
    offset: float | str | None = "learn"
    noise: float | str | None = None

    def _check_loss(self) -> None:
        self._check_survival()
        self._check_route()

    def _store(self, data: TaskData, solution: Solution, scaling: Rescaled, tol: float, **settings: Any) -> None:
        super()._store(data, solution, scaling, tol, **settings)
        self._store_baseline(data)


def risk_sets(data: TaskData) -> list[RiskSets]:
    """Who is at risk when, task by task."""
    return [RiskSets(data.y[a:b], data.weight[a:b]) for a, b in data.spans]


def event_times(sets: list[RiskSets]) -> FloatArray:
    """(k,) Distinct times of events in any task."""
    return np.unique(np.concatenate([own.times for own in sets]))


def at_times(cumulated: FloatArray, own: RiskSets, times: FloatArray) -> FloatArray:
    """(..., k) A hazard (..., G) that was cumulated over the times of one task, at the times of all."""
    none = np.zeros((*cumulated.shape[:-1], 1))
    place = np.searchsorted(own.times, times, side="right")
    return np.concatenate([none, cumulated], axis=-1)[..., place]


def _concordance(signed: FloatArray, risk: FloatArray) -> tuple[float, float]:
    """Number of pairs that are ordered rightly (ties of risks count half), and of those that can be compared."""
    time, censored, right, pairs = np.abs(signed), np.signbit(signed), 0.0, 0
    for i in np.flatnonzero(~censored):
        later = (time > time[i]) | ((time == time[i]) & censored)
        right += np.sum(risk[i] > risk[later]) + 0.5 * np.sum(risk[i] == risk[later])
        pairs += int(later.sum())
    return float(right), float(pairs)
