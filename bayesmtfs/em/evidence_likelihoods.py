"""The likelihoods under which coefficients can be integrated out: normal, and logistic by a normal bound.

Both hand over whitened tasks (`whitened_tasks`) and keep one array of parameters that an evidence step improves:

- squared: the noise variances (m,). Minus the log evidence is ``1/2 [ln|C| + y'C^-1 y]`` plus
  ``1/2 sum_t [(N_t - b) ln(2 pi s_t) + b ln N_t]``, with N_t the sum of the weights and b = 1 where an intercept with a
  flat prior was integrated out, else 0.
- logistic: the points xi (N,) of the bound ``-ln(1 + exp(-y eta)) >= y eta / 2 - omega(xi) (eta^2 - xi^2) / 2 - xi / 2
  - ln(1 + exp(-xi))`` with ``omega(xi) = tanh(xi / 2) / (2 xi)`` (Jaakkola and Jordan 2000, *Statistics and Computing*
  10:25-37; the mean of the Polya-Gamma variable of Polson, Scott and Windle 2013). The bound is normal in eta, with
  precision omega and target ``y / (2 omega)``; the best xi is ``sqrt(E[eta^2])``.

``boldness`` 1 is the fixed point (MacKay 1992), which converges fastest and may overshoot; 1/2 minimises the convex
bound of Wipf and Nagarajan (2008); 0 is EM. The last two never raise the objective.
"""

from typing import Protocol

import numpy as np

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.em.row_posterior import RowPosterior
from bayesmtfs.em.whitened_tasks import WhitenedTasks, dense_designs, whiten
from bayesmtfs.types import FloatArray, IntArray

LOG_TWO_PI = float(np.log(2.0 * np.pi))
LOGIT_VARIANCE = 4.0  # of the linear predictor, at the start


class EvidenceLikelihood(Protocol):
    """What the evidence needs of a likelihood."""

    has_leverage: bool
    n_effective: float
    largest_task: int

    def tasks(self, features: IntArray, parameters: FloatArray) -> WhitenedTasks:
        """Whitened tasks over some features."""

    def precision(self, parameters: FloatArray) -> FloatArray:
        """(D,) Precision of every design's targets."""

    def constant(self, parameters: FloatArray) -> float:
        """Minus the log evidence, without ``1/2 [ln|C| + y' C^-1 y]``."""

    def improved(
        self, parameters: FloatArray, tasks: WhitenedTasks, posterior: RowPosterior, boldness: float
    ) -> FloatArray:
        """Better parameters, given the posterior at the current ones."""

    def starting_variances(self) -> FloatArray:
        """(p,) Row variances that share the spread of the targets evenly; 0 for a feature that never varies."""

    def association(self) -> FloatArray:
        """(p,) Share of the targets that each feature explains by itself, summed over tasks."""

    def start(self) -> FloatArray:
        """Parameters to begin with where nothing is known."""

    def from_noise(self, noise: FloatArray | None) -> FloatArray:
        """Parameters at a known noise."""

    def noise(self, parameters: FloatArray) -> FloatArray | None:
        """(m,) Standard deviations of the noise, where there are any."""


class NormalEvidence:
    """Squared loss, with noise variances that are learned.

    Parameters
    ----------
    data : the observations
    fit_intercept : whether every task has an intercept
    shared_noise : one noise variance for all tasks
    noise_floor : smallest noise deviation, as a share of each task's deviation of y
    """

    has_leverage = False

    def __init__(self, data: TaskData, fit_intercept: bool, shared_noise: bool, noise_floor: float) -> None:
        whitened = whiten(data, dense_designs(data), data.y, data.weight, fit_intercept)
        self.all_tasks = whitened if shared_noise else whitened.separate()
        self.shared_noise = shared_noise
        self.noise_floor = noise_floor
        self.weights = data.task_weights  # (m,) N_t
        self.counts = np.diff(data.offsets).astype(np.float64)  # (m,) n_t
        self.lost = float(fit_intercept)
        self.n_effective = float(self.weights.sum())
        self.largest_task = int(self.counts.max())
        self.target_variances = _target_variances(self.all_tasks.target_squares, self.weights, data.y, shared_noise)
        self.floor = noise_floor**2 * self.target_variances
        self._last: tuple[IntArray, WhitenedTasks] = (np.arange(self.all_tasks.n_features), self.all_tasks)

    def tasks(self, features: IntArray, parameters: FloatArray) -> WhitenedTasks:
        """Whitened tasks over some features; the noise is not in them."""
        known, tasks = self._last
        if len(features) == len(known) and np.array_equal(features, known):
            return tasks
        if np.isin(features, known, assume_unique=True).all():
            taken = tasks.take(np.searchsorted(known, features))
        else:
            taken = self.all_tasks.take(features)
        self._last = (features, taken)
        return taken

    def precision(self, parameters: FloatArray) -> FloatArray:
        """(D,) One over the noise variances."""
        return np.asarray(1.0 / parameters[: self.all_tasks.n_designs])

    def constant(self, parameters: FloatArray) -> float:
        """Return the terms in the noise alone."""
        free = self.weights - self.lost
        return 0.5 * float(np.sum(free * (LOG_TWO_PI + np.log(parameters))) + self.lost * np.sum(np.log(self.weights)))

    def at_share(self, share: float) -> FloatArray:
        """(m,) Noise variances at a share of the deviation of y."""
        return np.maximum(share**2 * self.target_variances, self.floor)

    def start(self) -> FloatArray:
        """(m,) Noise variances that leave nothing to the features."""
        return self.at_share(1.0)

    def from_noise(self, noise: FloatArray | None) -> FloatArray:
        """(m,) Variances of a known noise."""
        return self.start() if noise is None else np.maximum(noise**2, self.floor)

    def noise(self, parameters: FloatArray) -> FloatArray:
        """(m,) Standard deviations of the noise."""
        return np.sqrt(parameters)

    def share(self, parameters: FloatArray) -> float:
        """Noise as a share of the deviation of y, on average over tasks."""
        return float(np.exp(0.5 * np.mean(np.log(parameters / self.target_variances))))

    def improved(
        self, parameters: FloatArray, tasks: WhitenedTasks, posterior: RowPosterior, boldness: float
    ) -> FloatArray:
        """Better noise variances, no smaller than the floor."""
        squares = tasks.residual_squares(posterior.mean)
        free, degrees, counts = self.weights - self.lost, posterior.degrees, self.counts
        if self.shared_noise:
            squares, free, degrees, counts = (np.full(len(s), s.sum()) for s in (squares, free, degrees, counts))
        undetermined = np.maximum(counts - degrees, 1e-12 * counts)
        known = free > 1e-12 * counts
        if boldness == 1.0:
            found = squares / np.maximum(free - degrees, 0.01 * np.where(known, free, 1.0))
        elif boldness == 0.0:
            found = (squares + parameters * degrees) / np.where(known, free, 1.0)
        else:  # the root of v s^2 + k s - squares = 0, where v is the trace of C^-1
            v, k = undetermined / parameters, free - counts
            found = (np.sqrt(k**2 + 4.0 * v * squares) - k) / (2.0 * v)
        return np.maximum(np.where(known, found, parameters), self.floor)

    def starting_variances(self) -> FloatArray:
        """(p,) Row variances under which the features explain the variance of y together."""
        return self.all_tasks.even_variances(self.weights, float(np.mean(self.target_variances)))

    def association(self) -> FloatArray:
        """(p,) Share of y that each feature explains by itself, summed over tasks."""
        return self.all_tasks.association()


class LogisticEvidence:
    """Logistic loss through its normal bound.

    Parameters
    ----------
    data : the observations, with labels -1 and +1
    fit_intercept : whether every task has an intercept
    """

    has_leverage = True

    def __init__(self, data: TaskData, fit_intercept: bool) -> None:
        self.data = data
        self.designs = dense_designs(data)
        self.fit_intercept = fit_intercept
        self.n_effective = float(data.weight.sum())
        self.largest_task = int(np.diff(data.offsets).max())

    def start(self) -> FloatArray:
        """(N,) Points of the bound at the start."""
        return np.full(self.data.n_observations, np.sqrt(LOGIT_VARIANCE))

    def from_noise(self, noise: FloatArray | None) -> FloatArray:
        """(N,) Points of the bound at the start: there is no noise to know."""
        return self.start()

    def noise(self, parameters: FloatArray) -> None:
        """No noise."""

    def tasks(self, features: IntArray, parameters: FloatArray) -> WhitenedTasks:
        """Whitened tasks over some features at the current bound."""
        omega = bound_precision(parameters)
        designs = tuple(X[:, features] for X in self.designs)
        factor = self.data.weight * omega
        return whiten(self.data, designs, self.data.y / (2.0 * omega), factor, self.fit_intercept).separate()

    def precision(self, parameters: FloatArray) -> FloatArray:
        """(m,) Ones: the precisions are in the whitened tasks already."""
        return np.ones(self.data.n_tasks)

    def constant(self, parameters: FloatArray) -> float:
        """Return the terms in the points of the bound alone."""
        data, omega = self.data, bound_precision(parameters)
        at_points = np.logaddexp(0.0, -parameters) + parameters / 2 - omega * parameters**2 / 2
        value = float(data.weight @ (at_points - 1.0 / (8.0 * omega)))
        if self.fit_intercept:
            totals = np.add.reduceat(data.weight * omega, data.offsets[:-1])
            value += 0.5 * float(np.sum(np.log(totals) - LOG_TWO_PI))
        return value

    def improved(
        self, parameters: FloatArray, tasks: WhitenedTasks, posterior: RowPosterior, boldness: float
    ) -> FloatArray:
        """Points at the root mean square of the linear predictor."""
        factor = self.data.weight * bound_precision(parameters)
        target = self.data.y / (2.0 * bound_precision(parameters))
        residual = np.concatenate([r[:, 0] for r in tasks.residuals(posterior.mean)])
        # residuals are centred: the intercept is in the prediction that they leave
        mean = target - residual / np.sqrt(factor)
        variance = np.asarray(posterior.leverage) / factor
        if self.fit_intercept:
            variance = variance + 1.0 / np.add.reduceat(factor, self.data.offsets[:-1])[self.data.task]
        return np.asarray(np.sqrt(mean**2 + variance))

    def starting_variances(self) -> FloatArray:
        """(p,) Row variances that give the linear predictor a variance of `LOGIT_VARIANCE`."""
        totals = np.add.reduceat(self.data.weight, self.data.offsets[:-1])
        return self._plain_tasks().even_variances(totals, LOGIT_VARIANCE)

    def association(self) -> FloatArray:
        """(p,) Share of the labels that each feature explains by itself, summed over tasks."""
        return self._plain_tasks().association()

    def _plain_tasks(self) -> WhitenedTasks:
        return whiten(self.data, self.designs, self.data.y, self.data.weight, self.fit_intercept)


def bound_precision(points: FloatArray) -> FloatArray:
    """``tanh(xi / 2) / (2 xi)``, 1/4 at 0."""
    safe = np.maximum(points, 1e-8)
    return np.asarray(np.tanh(safe / 2.0) / (2.0 * safe))


def _target_variances(squares: FloatArray, weights: FloatArray, y: FloatArray, shared: bool) -> FloatArray:
    """(m,) Variance of y in each task, or over all; where there is none, that of the others, or the size of y, or 1."""
    pooled = float(squares.sum() / weights.sum())
    if pooled <= 1e-24 * float(np.mean(y**2)):  # constant targets, up to rounding
        pooled = float(np.mean(y**2)) or 1.0
    own = squares / weights
    return np.full(len(own), pooled) if shared else np.where(own > 1e-12 * pooled, own, pooled)
