r"""Predictions from draws: averages, deviations and intervals, also for a task that was never seen.

The expected linear predictor is that of the mean coefficients; probabilities are averages over draws, not those of the
average. For a new task with ``unknown_task="population"`` every draw gets coefficients and an intercept of its own
(`bayesmtfs.estimators.new_tasks`) and the noise of a task at random: what the model believes of another task, with the
uncertainty that comes with it.
"""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np
from scipy.special import expit, logit
from sklearn.utils.validation import check_is_fitted

from bayesmtfs.data.inputs import Design, match_labels
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.estimators.base import MultiTaskEstimator, Rows
from bayesmtfs.estimators.bayesian_parameters import NO_POPULATION
from bayesmtfs.estimators.new_tasks import Population, draw_task, expected_task
from bayesmtfs.posterior.posterior_tree import with_fixed_variables
from bayesmtfs.types import FloatArray, IntArray

LARGEST_BLOCK = 4_000_000  # numbers held at once

# Takes predictors and noise (draws, rows) and gives (rows,) numbers
type Summary = Callable[[FloatArray, FloatArray], tuple[FloatArray, ...]]


class TaskDraws(NamedTuple):
    """Draws of one task."""

    coef: FloatArray  # (S, p')
    intercept: FloatArray  # (S,)
    noise: FloatArray  # (S,)


class PosteriorPrediction(MultiTaskEstimator):
    """Base of the estimators that predict from draws in ``result_.posterior``."""

    loss: str = "squared"

    def _linear_predictor(self, X: Any, tasks: Any) -> FloatArray:
        """Mean of the linear predictor; of the logistic loss the logit of the mean probability."""
        check_is_fitted(self)
        if self.loss == "logistic":
            return self._summarise(X, tasks, _mean_logit)[0]
        if self.unknown_task == "population" or (self.unknown_task == "mean" and isinstance(X, TaskData)):
            return self._summarise(X, tasks, _mean, expected=True)[0]
        return super()._linear_predictor(X, tasks)

    def _read_rows(self, X: Any, tasks: Any) -> Rows:
        if self.unknown_task != "population":
            return super()._read_rows(X, tasks)
        reader = copy.copy(self)
        reader.unknown_task = "mean"  # which reads unknown tasks as -1 instead of refusing them
        return MultiTaskEstimator._read_rows(reader, X, tasks)

    def _summarise(self, X: Any, tasks: Any, summary: Summary, expected: bool = False) -> tuple[FloatArray, ...]:
        """Summaries of predictive draws, each of the shape of a prediction.

        Parameters
        ----------
        X, tasks : rows, as in ``predict``
        summary : of the draws at some rows
        expected : for a new task use its expected coefficients instead of draws
        """
        if isinstance(X, TaskData):
            return self._summarise_task_data(X, summary, expected)
        rows = self._read_rows(X, tasks)
        if rows.task is None:
            columns = [self._at(rows.X, t, summary, expected) for t in range(len(self.tasks_))]
            if self._form in ("single", "long"):
                return columns[0]
            return tuple(np.stack(parts, axis=1) for parts in zip(*columns, strict=True))
        return self._by_task(rows.X, rows.task, summary, expected)

    def _summarise_task_data(self, data: TaskData, summary: Summary, expected: bool) -> tuple[FloatArray, ...]:
        index = match_labels(data.task_names, data.n_tasks, self.tasks_)
        if self.unknown_task == "error" and (index < 0).any():
            self._predict_task_data(data)  # says which tasks are unknown
        if self._form == "wide" and data.shared_design:
            columns = [self._at(data.design, int(t), summary, expected) for t in index]
            return tuple(np.stack(parts, axis=1) for parts in zip(*columns, strict=True))
        parts = self._by_task(data.X, index[data.task], summary, expected)
        return tuple(cast(FloatArray, data.in_input_order(part)) for part in parts)

    def _by_task(self, X: Design, task: IntArray, summary: Summary, expected: bool) -> tuple[FloatArray, ...]:
        result: list[FloatArray] = []
        for t in np.unique(task):
            chosen = task == t
            parts = self._at(X[chosen], int(t), summary, expected)
            if not result:
                result = [np.empty(len(task)) for _ in parts]
            for whole, part in zip(result, parts, strict=True):
                whole[chosen] = part
        return tuple(result) if result else self._at(X, 0, summary, expected)

    def _at(self, X: Design, t: int, summary: Summary, expected: bool) -> tuple[FloatArray, ...]:
        """Summaries at rows of one task, in blocks that fit into memory."""
        draws = self._task_draws(t, expected)
        assert self.result_.screened_out is not None
        features = np.flatnonzero(~self.result_.screened_out)
        step = max(LARGEST_BLOCK // len(draws.intercept), 1)
        blocks = []
        for start in range(0, max(X.shape[0], 1), step):
            block = X[start : start + step][:, features]
            eta = np.asarray(block @ draws.coef.T).T + draws.intercept[:, np.newaxis]
            blocks.append(summary(eta, np.broadcast_to(draws.noise[:, np.newaxis], eta.shape)))
        return tuple(np.concatenate(parts) for parts in zip(*blocks, strict=True))

    def _task_draws(self, t: int, expected: bool) -> TaskDraws:
        posterior = self._posterior_dataset()
        coef, intercept = (
            posterior[name].values.reshape(-1, *posterior[name].shape[2:]) for name in ("coef", "intercept")
        )
        noise = posterior["noise"].values.reshape(intercept.shape) if "noise" in posterior else np.ones_like(intercept)
        if t >= 0:
            return TaskDraws(coef[:, :, t], intercept[:, t], noise[:, t])
        if self.unknown_task == "mean":
            return TaskDraws(coef.mean(axis=2), intercept.mean(axis=1), np.sqrt(np.mean(noise**2, axis=1)))
        return self._new_task(coef, intercept, noise, expected)

    def _new_task(self, coef: FloatArray, intercept: FloatArray, noise: FloatArray, expected: bool) -> TaskDraws:
        """Draws for a task that comes from the population of tasks."""
        total, m = intercept.shape
        population = self._population(coef, intercept)
        if expected:
            return TaskDraws(*expected_task(population), noise[:, 0])
        if m < 2:
            raise ValueError(
                "unknown_task='population' needs at least two tasks to know how tasks differ, but the model was fitted "
                "on one; use unknown_task='mean'"
            )
        rng = np.random.default_rng([0 if self.result_.seed is None else self.result_.seed, 2])
        drawn = draw_task(rng, population)
        return TaskDraws(*drawn, noise[np.arange(total), rng.integers(m, size=total)])

    def _population(self, coef: FloatArray, intercept: FloatArray) -> Population:
        posterior, constant = self._posterior_dataset(), self._group("constant_data")
        if "row_scale" not in posterior:
            raise ValueError(NO_POPULATION)
        shape, (total, m) = coef.shape[:2], intercept.shape
        mean = posterior["mean_coef"].values.reshape(shape) if "mean_coef" in posterior else np.zeros(shape)
        known = {
            "mean": mean,
            "scale": posterior["row_scale"].values.reshape(shape),
            "norm_q": posterior["norm_q"].values.reshape(total, 1) if "norm_q" in posterior else None,
        }
        if not self.get_params(deep=False)["fit_intercept"]:
            nothing = np.zeros(shape[1])
            return Population(**known, levels=intercept, offsets=np.zeros((shape[1], m)), centre=nothing, share=nothing)
        means, centre = constant["feature_mean"].values, constant["feature_centre"].values.mean(axis=1)
        return Population(
            **known,
            levels=intercept + np.einsum("spm,pm->sm", coef, means),
            offsets=means - centre[:, np.newaxis],
            centre=centre,
            share=constant["between_share"].values,
        )

    def _posterior_dataset(self) -> Any:
        tree = self.result_.posterior
        assert tree is not None
        return with_fixed_variables(tree)

    def _group(self, name: str) -> Any:
        tree = self.result_.posterior
        assert tree is not None
        return tree[name].dataset


def check_interval(interval: float | None) -> None:
    """Refuse a probability outside 0 and 1."""
    if interval is not None and not 0 < interval < 1:
        raise ValueError(f"interval is {interval}; pass a probability between 0 and 1, such as 0.9")


def _mean(eta: FloatArray, noise: FloatArray) -> tuple[FloatArray, ...]:
    return (eta.mean(axis=0),)


def _mean_logit(eta: FloatArray, noise: FloatArray) -> tuple[FloatArray, ...]:
    tiny = np.finfo(np.float64).eps
    return (logit(np.clip(expit(eta).mean(axis=0), tiny, 1.0 - tiny)),)


def predictive_summary(rng: np.random.Generator, interval: float | None) -> Summary:
    """Mean and deviation of a new target, and the ends of its central interval.

    Parameters
    ----------
    rng : of the noise of new targets
    interval : probability of the interval, None for none
    """

    def summary(eta: FloatArray, noise: FloatArray) -> tuple[FloatArray, ...]:
        mean = eta.mean(axis=0)
        deviation = np.sqrt(eta.var(axis=0) + np.mean(noise**2, axis=0))
        if interval is None:
            return mean, deviation
        targets = eta + noise * rng.standard_normal(eta.shape)
        low, high = np.quantile(targets, [(1.0 - interval) / 2.0, (1.0 + interval) / 2.0], axis=0)
        return mean, deviation, low, high

    return summary


def probability_summary(interval: float) -> Summary:
    """Mean probability of the second class, and the ends of its central interval over draws.

    Parameters
    ----------
    interval : probability of the interval
    """

    def summary(eta: FloatArray, noise: FloatArray) -> tuple[FloatArray, ...]:
        probability = expit(eta)
        low, high = np.quantile(probability, [(1.0 - interval) / 2.0, (1.0 + interval) / 2.0], axis=0)
        return probability.mean(axis=0), low, high

    return summary
