"""Type II maximum likelihood: row variances, noise and task relations with the coefficients integrated out.

Row i of W is ``N(0, gamma_i R)`` over the tasks and y is normal given W, or conditionally normal (`Augmentation`) and
bounded by a normal density. The objective, minimised over gamma, the noise and R, is

    - ln p(y | gamma, noise, R) + row_cost * (number of rows with gamma_i > 0) + nu/2 (ln|R| + tr R^-1 - m).

With one design, R = I and ``row_cost = 0`` this is M-SBL (Wipf and Rao 2007, *IEEE Transactions on Signal Processing*
55:3704-3716), with one task automatic relevance determination (MacKay 1992; Tipping 2001). W is the posterior mean. The
integral over W is what makes task relations pay: the prior of Zhang, Yeung and Xu (2010, section 4.3) at q = 2, which
they maximise over W instead. Differently from M-SBL the noise is learned, per task or shared. Without ``row_cost`` it
would go to 0 wherever there are more features than rows, since rows of no use explain the noise; a cost of ln p per row
(prior odds of 1 to p against a row) prevents that and makes the rows found the relevant ones. Two bounds keep the search
finite whatever the rank of the design: the noise is at least a share of the deviation of y (``noise_floor``, 1e-3 unless
stated), and no row may have a variance at which it alone would explain 1e4 times the variance of y. The search begins
without rows, where all is noise, brings in what is worth its cost, and looks again from all features at less noise.

**Steps.** All parameters move at once, from one posterior. With ``e_i = tr(R Z_i)`` and ``s_i = g_i' R g_i`` of
`row_posterior`,

    damped fixed point (boldness 1):  gamma_i <- gamma_i (s_i / e_i)^min(1, 2 sqrt(gamma_i e_i / m))
    convex bound (boldness 1/2):      gamma_i <- gamma_i (s_i / e_i)^(1/2)           (Wipf and Nagarajan 2008)
    EM (boldness 0):                  gamma_i <- gamma_i + gamma_i^2 (s_i - e_i) / m (Wipf and Rao 2007)

and R lowers the majoriser ``tr(R sum_i gamma_i Z_i) + tr(R^-1 sum_i mu_i mu_i' / gamma_i)`` of the convex bound, or its
EM counterpart. The last two never raise the objective; the first is tried first. (With the power 1 it is the fixed
point of MacKay (1992), which is fast but loses relevant rows where there are more features than data; EM keeps them and
is slow. The damped rule, by the share ``gamma_i e_i / m`` of a row that the data determine, keeps them too, in a tenth
of the iterations.)

**Rows** leave when the evidence that would be lost without them is below their cost, and come back when what they would
bring is above it. With ``e_j`` the eigenvalues of ``R^(1/2) Z_i R^(1/2)`` and ``s_j`` the entries of ``R^(1/2) g_i`` in
its eigenvectors (without relations simply ``z_it`` and ``g_it``), taking row i out costs, and bringing it in at
variance gamma gains,

    loss:  1/2 sum_j [ln(1 - gamma_i e_j) + gamma_i s_j^2 / (1 - gamma_i e_j)]
    gain:  1/2 sum_j [-ln(1 + gamma e_j) + gamma s_j^2 / (1 + gamma e_j)]

of log evidence: Tipping and Faul (2003, *AISTATS*) for rows over m tasks.
"""

import math
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from bayesmtfs.compiled import one_thread
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.em import row_posterior, task_relations
from bayesmtfs.em.row_posterior import RowPosterior, WhitenedTasks, dense_designs, whiten
from bayesmtfs.em.small_search import SmallData, SmallMoves, SmallSearch
from bayesmtfs.em.task_relations import Relations
from bayesmtfs.families import Augmentation, Family
from bayesmtfs.priors.blocks import Blocks
from bayesmtfs.progress import Progress
from bayesmtfs.types import BoolArray, FloatArray, IntArray, Solution

COARSE = 100.0  # how much larger the tolerance is while the noise is searched
LARGEST_SYSTEM = 6000
NOISE_FLOOR = 1e-3  # smallest noise, as a share of the deviation of y
LARGEST_VARIANCE = 1e4  # that a row by itself may explain, in variances of y
LOG_TWO_PI = float(np.log(2.0 * np.pi))
STARTING_VARIANCE = 4.0  # of the linear predictor of a bounded likelihood
VANISHING = 1e-6  # of the mean share that the data determine, below which a shrinking row is gone
VARIANCE_GRID = np.geomspace(1e-3, 1e4, 57)  # in units of one over the mean curvature
COARSE_STEP = 4  # of that grid, on which its best point is sought first
NEGLIGIBLE = 1e-6  # share of a candidate that the data determine
NOISE_STEPS = (0.5, 0.2)  # shares of the noise that was found, at which the search begins again
EVEN = 1e-9  # spread of curvatures, relative to their mean, up to which they are equal
EVEN_NOISE = 1.5  # ratio of the largest noise to the smallest, up to which the first look from all features sees one
ROUGHLY = 10.0  # how much larger the tolerance is at such a level
GROWTH = 0.25  # most rows that come in at once, as a share of those that are in
MOST_CANDIDATES = 64  # rows whose gain is computed
MOST_SWAPS = 64  # rows from which swaps are too many
FIRST_ROWS = 500  # to begin with, at least
FIRST_ROWS_PER_OBSERVATION = 4  # of the largest task
CAUTIOUS_STEPS = 5  # after a bold step that failed
ROUNDING = 1e-12
POSTERIORS_AT_ONCE = 1000  # of a compiled search, from one look at the keyboard to the next


# ---------------------------------------------------------------------- likelihoods


class NormalEvidence:
    """Squared loss, with noise variances (m,), per task or shared, as the parameters that are learned.

    Minus the log evidence is ``1/2 [ln|C| + y'C^-1 y]`` plus ``1/2 sum_t [(N_t - b) ln(2 pi s_t) + b ln N_t]``, with
    N_t the sum of the weights and b = 1 where an intercept with a flat prior was integrated out, else 0. The noise has
    a floor: a share of each task's deviation of y (``noise_floor``), or (m,) deviations (``least_noise``).
    """

    has_leverage = False

    def __init__(
        self,
        data: TaskData,
        fit_intercept: bool,
        shared_noise: bool,
        noise_floor: float,
        least_noise: FloatArray | None = None,
    ) -> None:
        self.all_tasks = whiten(data, dense_designs(data), data.y, data.weight, fit_intercept)
        self.shared_noise = shared_noise
        self.weights = data.task_weights  # (m,) N_t
        self.counts = np.diff(data.offsets).astype(np.float64)  # (m,) n_t
        self.free = self.weights - float(fit_intercept)
        self.fixed = LOG_TWO_PI * self.free.sum() + float(fit_intercept) * np.log(self.weights).sum()
        self.target_variances = _target_variances(self.all_tasks.target_squares, self.weights, data.y, shared_noise)
        self.spread = float(np.mean(self.target_variances))
        self.floor = noise_floor**2 * self.target_variances if least_noise is None else least_noise**2
        self._last: tuple[IntArray, WhitenedTasks] = (np.arange(self.all_tasks.n_features), self.all_tasks)

    def tasks(self, features: IntArray, parameters: FloatArray) -> WhitenedTasks:
        """Whitened tasks over some features; the noise is not in them."""
        known, tasks = self._last
        if features is known or np.array_equal(features, known):
            return tasks
        if len(features) == self.all_tasks.n_features:
            return self.all_tasks
        if np.isin(features, known, assume_unique=True).all():
            taken = tasks.take(np.searchsorted(known, features))
        else:
            taken = self.all_tasks.take(features)
        self._last = (features, taken)
        return taken

    def precision(self, parameters: FloatArray) -> FloatArray:
        """(m,) One over the noise variances."""
        return np.asarray(1.0 / parameters)

    def constant(self, parameters: FloatArray) -> float:
        """Return the terms in the noise alone."""
        return 0.5 * float(self.free @ np.log(parameters) + self.fixed)

    def at_share(self, share: float) -> FloatArray:
        """(m,) Noise variances at a share of the deviation of y."""
        return np.maximum(share**2 * self.target_variances, self.floor)

    def start(self, noise: FloatArray | None = None) -> FloatArray:
        """(m,) Variances of a known noise, or those that leave nothing to the features."""
        return self.at_share(1.0) if noise is None else np.maximum(noise**2, self.floor)

    def noise(self, parameters: FloatArray) -> FloatArray:
        """(m,) Standard deviations of the noise."""
        return np.sqrt(parameters)

    def with_one_noise(self) -> "NormalEvidence":
        """Let the noise of the tasks move together."""
        together = copy(self)
        together.shared_noise = True
        return together

    def improved(
        self, parameters: FloatArray, tasks: WhitenedTasks, posterior: RowPosterior, boldness: float
    ) -> FloatArray:
        """Better noise variances, no smaller than the floor."""
        squares = tasks.residual_squares(posterior.mean)
        free, degrees, counts = self.free, posterior.degrees, self.counts
        if self.shared_noise and len(squares) > 1:
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


class BoundEvidence:
    """A conditionally normal family through its normal bound, with the points xi (N,) of it as parameters.

    The bound is normal in eta, with precision ``omega = expected_precision(xi)`` and target ``linear(y) / omega``; the
    best xi is ``sqrt(E[eta^2])``.
    """

    has_leverage = True

    def __init__(self, data: TaskData, augmentation: Augmentation, fit_intercept: bool) -> None:
        self.data = data
        self.normal = augmentation
        self.linear = augmentation.linear(np.asarray(data.y, dtype=np.float64))
        self.designs = dense_designs(data)
        self.all_tasks = whiten(data, self.designs, data.y, data.weight, fit_intercept)
        self.fit_intercept = fit_intercept
        self.weights, self.spread = data.task_weights, STARTING_VARIANCE
        self.counts = np.diff(data.offsets)
        self._taken: tuple[IntArray, tuple[FloatArray, ...]] = (np.arange(data.n_features), self.designs)
        self._last: tuple[IntArray, FloatArray, WhitenedTasks] | None = None

    def start(self, noise: FloatArray | None = None) -> FloatArray:
        """(N,) Points of the bound at the start; there is no noise to know."""
        return np.full(self.data.n_observations, np.sqrt(STARTING_VARIANCE))

    def noise(self, parameters: FloatArray) -> None:
        """No noise."""

    def tasks(self, features: IntArray, parameters: FloatArray) -> WhitenedTasks:
        """Whitened tasks over some features at the current bound."""
        if self._last is not None and self._last[1] is parameters and np.array_equal(self._last[0], features):
            return self._last[2]
        omega = self.normal.expected_precision(parameters)
        target, factor = self.linear / omega, self.data.weight * omega
        tasks = whiten(self.data, self._columns(features), target, factor, self.fit_intercept).separate()
        self._last = (features, parameters, tasks)
        return tasks

    def _columns(self, features: IntArray) -> tuple[FloatArray, ...]:
        """Designs of some features, of which mostly those of the call before are wanted."""
        if len(features) == self.data.n_features:
            return self.designs
        known, designs = self._taken
        if not np.array_equal(features, known):
            inside = len(features) < len(known) and bool(np.isin(features, known, assume_unique=True).all())
            places, source = (np.searchsorted(known, features), designs) if inside else (features, self.designs)
            designs = tuple(X[:, places] for X in source)
            self._taken = (features, designs)
        return designs

    def precision(self, parameters: FloatArray) -> FloatArray:
        """(m,) Ones: the precisions are in the whitened tasks already."""
        return np.ones(self.data.n_tasks)

    def constant(self, parameters: FloatArray) -> float:
        """Return the terms in the points of the bound alone."""
        data, omega = self.data, self.normal.expected_precision(parameters)
        value = float(data.weight @ (self.normal.bound_constant(parameters) - self.linear**2 / (2.0 * omega)))
        if self.fit_intercept:
            totals = np.add.reduceat(data.weight * omega, data.offsets[:-1])
            value += 0.5 * float(np.sum(np.log(totals) - LOG_TWO_PI))
        return value

    def improved(
        self, parameters: FloatArray, tasks: WhitenedTasks, posterior: RowPosterior, boldness: float
    ) -> FloatArray:
        """Points at the root mean square of the linear predictor."""
        omega = self.normal.expected_precision(parameters)
        factor = self.data.weight * omega
        residual = np.concatenate([r[:, 0] for r in tasks.residuals(posterior.mean)])
        # residuals are centred: the intercept is in the prediction that they leave
        mean = self.linear / omega - residual / np.sqrt(factor)
        variance = np.asarray(posterior.leverage) / factor
        if self.fit_intercept:
            variance = variance + 1.0 / np.add.reduceat(factor, self.data.offsets[:-1])[self.data.task]
        return np.asarray(np.sqrt(mean**2 + variance))


EvidenceLikelihood = NormalEvidence | BoundEvidence


def _target_variances(squares: FloatArray, weights: FloatArray, y: FloatArray, shared: bool) -> FloatArray:
    """(m,) Variance of y in each task, or over all; where there is none, that of the others, or the size of y, or 1."""
    pooled = float(squares.sum() / weights.sum())
    if pooled <= 1e-24 * float(np.mean(y**2)):  # constant targets, up to rounding
        pooled = float(np.mean(y**2)) or 1.0
    own = squares / weights
    return np.full(len(own), pooled) if shared else np.where(own > 1e-12 * pooled, own, pooled)


# ---------------------------------------------------------------------- steps


@dataclass(frozen=True, eq=False)
class EvidenceSettings:
    """What does not change during a search."""

    likelihood: EvidenceLikelihood
    row_of_feature: IntArray  # (p,)
    n_tasks: int
    row_cost: float
    shrinkage: float = 0.0
    learn_noise: bool = True

    @cached_property
    def grouped(self) -> bool:
        """Whether some row has more than one feature."""
        return int(self.row_of_feature.max(initial=-1)) + 1 < len(self.row_of_feature)

    @cached_property
    def largest_variances(self) -> FloatArray:
        """(p,) Upper bound of the row variances."""
        likelihood = self.likelihood
        return likelihood.all_tasks.explaining(likelihood.weights, LARGEST_VARIANCE * likelihood.spread)


class EvidenceState(NamedTuple):
    """What the objective depends on."""

    active: IntArray  # features whose row variance is not 0
    row_variances: FloatArray  # of the active features
    parameters: FloatArray  # of the likelihood
    relations: Relations | None


class EvidencePoint(NamedTuple):
    """A state, its posterior and its objective."""

    state: EvidenceState
    posterior: RowPosterior
    objective: float


def evaluate(settings: EvidenceSettings, state: EvidenceState) -> EvidencePoint:
    """Posterior and objective of a state."""
    likelihood = settings.likelihood
    tasks = likelihood.tasks(state.active, state.parameters)
    relations = state.relations if len(state.active) else None
    posterior = row_posterior.compute(
        tasks, state.row_variances, likelihood.precision(state.parameters), relations, likelihood.has_leverage
    )
    n_rows = len(np.unique(settings.row_of_feature[state.active])) if settings.grouped else len(state.active)
    objective = 0.5 * (posterior.log_det + posterior.quadratic) + likelihood.constant(state.parameters)
    objective += settings.row_cost * n_rows
    if state.relations is not None:
        objective += state.relations.penalty(settings.shrinkage)
    return EvidencePoint(state, posterior, objective)


def step(settings: EvidenceSettings, point: EvidencePoint, boldness: float) -> EvidenceState:
    """Improve row variances, relations and the likelihood's parameters, all from one posterior."""
    state, posterior = point.state, point.posterior
    curvature, squared_score = _row_sums(settings, point)
    gamma, share = state.row_variances, state.row_variances * curvature
    size: FloatArray | int = settings.n_tasks
    if settings.grouped:
        size = size * over_rows(settings, state, np.ones(len(gamma)))
    if boldness == 0.0:
        new = gamma * (1.0 + gamma * (squared_score - curvature) / size)
    else:
        power = np.minimum(1.0, 2.0 * np.sqrt(share / size)) if boldness == 1.0 else boldness
        # a row of zeros, of which the data say nothing, stays as it is
        ratio = np.divide(squared_score, curvature, out=np.ones_like(curvature), where=curvature > 0.0)
        new = gamma * ratio**power
    new = np.minimum(new, settings.largest_variances[state.active])
    relations = state.relations
    if relations is not None and len(gamma):
        relations = _improved_relations(settings, point, relations, new, boldness)
    parameters = state.parameters
    if settings.learn_noise:
        tasks = settings.likelihood.tasks(state.active, parameters)
        parameters = settings.likelihood.improved(parameters, tasks, posterior, boldness)
    gone = (share * len(share) < VANISHING * share.sum()) & (squared_score < curvature)
    if not gone.any():
        return EvidenceState(state.active, new, parameters, relations)
    return EvidenceState(state.active[~gone], new[~gone], parameters, relations)


def _row_sums(settings: EvidenceSettings, point: EvidencePoint) -> tuple[FloatArray, FloatArray]:
    """``tr(R Z_i)`` and ``g_i' R g_i``, summed over the features of a row where rows are groups."""
    posterior, relations = point.posterior, point.state.relations
    if relations is None or posterior.curvature.ndim == 2:
        curvature, squared = posterior.curvature.sum(axis=1), np.sum(posterior.score**2, axis=1)
    else:
        curvature = np.einsum("ptu,tu->p", posterior.curvature, relations.matrix)
        squared = np.sum((posterior.score @ relations.matrix) * posterior.score, axis=1)
    return over_rows(settings, point.state, curvature), over_rows(settings, point.state, squared)


def over_rows(settings: EvidenceSettings, state: EvidenceState, values: FloatArray) -> FloatArray:
    """Sum over the features of each row, given back to each of them."""
    rows = settings.row_of_feature[state.active]
    together = settings.grouped and len(rows) > 0
    return np.asarray(np.bincount(rows, weights=values, minlength=1)[rows]) if together else values


def _improved_relations(
    settings: EvidenceSettings, point: EvidencePoint, relations: Relations, gamma: FloatArray, boldness: float
) -> Relations:
    """Lower the majoriser of the objective in R: the EM one, or the convex bound."""
    posterior, nu = point.posterior, settings.shrinkage
    m, R = settings.n_tasks, relations.matrix
    products = (posterior.mean / gamma[:, None]).T @ posterior.mean + nu * np.eye(m)
    if boldness == 0.0:
        old = point.state.row_variances
        curvature = np.einsum("p,ptu->tu", old**2 / gamma, posterior.curvature)
        inverse = products + np.sum(old / gamma) * R - R @ curvature @ R
        majoriser = task_relations.quadratic_objective(len(gamma) + nu, None, inverse)
    else:
        linear = np.einsum("p,ptu->tu", gamma, posterior.curvature)
        majoriser = task_relations.quadratic_objective(nu, linear, products)
    guess = task_relations.from_rows(products) if not relations.factors.any() else None
    return task_relations.improve(relations, majoriser, guess)


# ---------------------------------------------------------------------- what a row is worth


class RowStatistics(NamedTuple):
    """Curvatures and squared scores of rows, along the directions in which they do not mix."""

    curvatures: FloatArray  # (p, m) e
    squared_scores: FloatArray  # (p, m) s^2


def statistics(posterior: RowPosterior, relations: Relations | None) -> RowStatistics:
    """Curvatures and scores of every row of a posterior."""
    if relations is None:
        return RowStatistics(posterior.curvature, posterior.score**2)
    root = relations.root
    values, vectors = np.linalg.eigh(root @ posterior.curvature @ root)
    scores = np.einsum("ptj,pt->pj", vectors, posterior.score @ root)
    return RowStatistics(np.maximum(values, 0.0), scores**2)


def losses(rows: RowStatistics, row_variances: FloatArray) -> FloatArray:
    """(p,) Log evidence that would be lost without each row."""
    left = np.maximum(1.0 - row_variances[:, None] * rows.curvatures, 1e-15)
    terms = np.log(left) + row_variances[:, None] * rows.squared_scores / left
    return np.asarray(0.5 * terms.sum(axis=1))


def gains(rows: RowStatistics) -> tuple[FloatArray, FloatArray]:
    """(p,) Log evidence that each row would bring, and (p,) its variance then; 0 for rows that would bring none.

    Where the curvatures e of a row are equal, the best variance is ``(s^2 - e) / e^2`` with the mean of the squared
    scores (Tipping and Faul 2003, eq. 20, for one task); else it is one of a grid.
    """
    best, best_variance = np.zeros(len(rows.curvatures)), np.zeros(len(rows.curvatures))
    mean = rows.curvatures.mean(axis=1)
    promising = np.flatnonzero((rows.squared_scores.sum(axis=1) > rows.curvatures.sum(axis=1)) & (mean > 0))
    even = np.ptp(rows.curvatures[promising], axis=1) <= EVEN * mean[promising] if len(promising) else promising > 0
    alike, promising = promising[even], promising[~even]
    ratio = rows.squared_scores[alike].mean(axis=1) / mean[alike]
    best[alike] = 0.5 * rows.curvatures.shape[1] * (ratio - 1.0 - np.log(ratio))
    best_variance[alike] = (ratio - 1.0) / mean[alike]
    if len(promising) == 0:
        return best, best_variance
    e, s = rows.curvatures[promising], rows.squared_scores[promising]

    def gain_at(units: FloatArray) -> FloatArray:
        more = 1.0 + (units / mean[promising])[:, None] * e
        return np.asarray(0.5 * np.sum((s / e_safe) * (1.0 - 1.0 / more) - np.log(more), axis=1))

    e_safe = np.where(e > 0.0, e, np.inf)
    coarse = np.stack([gain_at(np.full(len(promising), unit)) for unit in VARIANCE_GRID[::COARSE_STEP]])
    place = COARSE_STEP * np.argmax(coarse, axis=0)
    for shift in range(-COARSE_STEP + 1, COARSE_STEP):  # the neighbours of the best on the coarse grid
        units = VARIANCE_GRID[np.clip(place + shift, 0, len(VARIANCE_GRID) - 1)]
        gain = gain_at(units)
        better = gain > best[promising]
        best[promising[better]] = gain[better]
        best_variance[promising[better]] = units[better] / mean[promising[better]]
    return best, best_variance


def likely_rows(rows: RowStatistics, row_of_feature: IntArray, active: IntArray) -> IntArray:
    """Rows out of the active ones that would bring most if their curvatures were equal, where the best gamma is known.

    With e and s^2 the means over tasks that is ``m/2 (s^2/e - 1 - ln(s^2/e))``, and nothing where ``s^2 <= e``.
    """
    e, s = rows.curvatures.mean(axis=1), rows.squared_scores.mean(axis=1)
    ratio = np.maximum(np.divide(s, e, out=np.ones_like(s), where=e > 0), 1.0)
    gain = np.bincount(row_of_feature, weights=ratio - 1.0 - np.log(ratio))
    gain[row_of_feature[active]] = 0.0
    best = np.argsort(-gain, kind="stable")[:MOST_CANDIDATES]
    return np.asarray(best[gain[best] > 0.0])


def candidate_statistics(likelihood: EvidenceLikelihood, state: EvidenceState) -> RowStatistics:
    """Curvatures and scores of all p features, active or not.

    With relations, features that are not active take part with a variance too small to matter, some at a time.
    """
    tasks = likelihood.tasks(np.arange(likelihood.all_tasks.n_features), state.parameters)
    precision, relations = likelihood.precision(state.parameters), state.relations if len(state.active) else None
    if relations is None:
        found = row_posterior.curvatures_and_scores(tasks, state.active, state.row_variances, precision)
        return RowStatistics(found[0], found[1] ** 2)
    p, m = tasks.n_features, tasks.n_tasks
    both = RowStatistics(np.zeros((p, m)), np.zeros((p, m)))
    strength = tasks.column_squares @ precision / m
    idle = np.setdiff1d(np.flatnonzero(strength > 0), state.active, assume_unique=True)
    size = max(len(state.active), 64) if tasks.n_rows > 2 * len(state.active) else p
    for first in range(0, len(idle), size):
        block = idle[first : first + size]
        features = np.concatenate([state.active, block])
        variances = np.concatenate([state.row_variances, NEGLIGIBLE / strength[block]])
        posterior = row_posterior.compute(tasks.take(features), variances, precision, relations)
        both.curvatures[features], both.squared_scores[features] = statistics(posterior, relations)
    return both


# ---------------------------------------------------------------------- the descent


class EvidenceSearch:
    """A descent: where it is, how it came there, and how many posteriors it may still compute."""

    point: EvidencePoint  # the best so far

    def __init__(self, settings: EvidenceSettings, max_iter: int, bar: Progress) -> None:
        self.settings = settings
        self.max_iter = max_iter
        self.bar = bar
        self.trace: list[float] = []  # objectives on the way to the point
        self.n_iter = 0  # posteriors computed
        self.small = _small_search(settings)

    @property
    def exhausted(self) -> bool:
        """Whether there is no iteration left."""
        return self.n_iter >= self.max_iter

    def begin(self, state: EvidenceState) -> None:
        """Start anew from a state."""
        self.trace = []
        self.move(state)

    def move(self, state: EvidenceState) -> None:
        """Go to a state of another kind, whatever its objective there."""
        self.point = self._evaluate(state)
        self.trace.append(self.point.objective)

    def begin_with_all(self, parameters: FloatArray) -> None:
        """Start anew from all features that vary, each with an even share of the spread.

        Of very many features only those begin that explain most by themselves; `polish` looks at the others.
        """
        likelihood, rows = self.settings.likelihood, self.settings.row_of_feature
        variances = self.settings.largest_variances / LARGEST_VARIANCE
        variances = variances / max(int(np.count_nonzero(variances)), 1)
        n_most = max(FIRST_ROWS, FIRST_ROWS_PER_OBSERVATION * int(likelihood.counts.max()))
        if len(rows) > n_most:
            association = np.bincount(rows, weights=likelihood.all_tasks.association())
            best = np.argsort(-association, kind="stable")[:n_most]
            variances = np.where(_among(rows, best), variances, 0.0)
        active = np.flatnonzero(variances > 0)
        self.begin(EvidenceState(active, variances[active], parameters, None))

    def descend(self, tol: float) -> None:
        """Step until the objective has twice fallen by less than ``tol`` per observation."""
        enough = tol * float(self.settings.likelihood.weights.sum())
        cautious = calm = 0
        while calm < 2 and not self.exhausted:
            before = self.point.objective
            if cautious == 0 and not self._try_step(1.0):
                cautious = CAUTIOUS_STEPS
            if cautious > 0:
                if not (self._try_step(0.5) or self._try_step(0.0)):
                    return
                cautious -= 1
            calm = calm + 1 if before - self.point.objective < enough else 0

    def drop_rows(self) -> bool:
        """Take out rows that are not worth their cost; False where there are none."""
        state = self.point.state
        if not len(state.active):
            return False
        loss = losses(statistics(self.point.posterior, state.relations), state.row_variances)
        loss = over_rows(self.settings, state, loss)
        order = np.argsort(loss, kind="stable")
        rows = self.settings.row_of_feature[state.active]
        n_cheap = int(np.sum(loss < self.settings.row_cost))
        while n_cheap > 0 and not self.exhausted:
            kept = ~_among(rows, rows[order[:n_cheap]])
            if self._try(state._replace(active=state.active[kept], row_variances=state.row_variances[kept])):
                return True
            n_cheap //= 2  # rows can stand in for each other: not all may go at once
        return False

    def add_rows(self) -> bool:
        """Bring in rows that are worth more than their cost, some at a time; False where there are none."""
        state, cost = self.point.state, self.settings.row_cost + ROUNDING * abs(self.point.objective)
        if len(state.active) == len(self.settings.row_of_feature) or self.exhausted:
            return False
        gain, variance = self._candidates(state)
        worth = np.flatnonzero(gain > cost)
        worth = worth[np.argsort(-gain[worth], kind="stable")]
        n_new = min(len(worth), 1 + int(GROWTH * len(state.active)))
        while n_new > 0 and not self.exhausted:
            if self._try(self._with_rows(state, worth[:n_new], variance)):
                return True
            n_new //= 4
        return False

    def swap_rows(self, enough: float) -> bool:
        """Put a row in the place of another that is worth less; False where there are none, or too many to look at."""
        state, rows = self.point.state, self.settings.row_of_feature[self.point.state.active]
        loss = over_rows(self.settings, state, losses(statistics(self.point.posterior, None), state.row_variances))
        inside = np.unique(rows, return_index=True)[1]
        for place in inside[np.argsort(loss[inside], kind="stable")] if len(inside) <= MOST_SWAPS else ():
            kept = rows != rows[place]
            others = state._replace(active=state.active[kept], row_variances=state.row_variances[kept])
            gain, variance = self._candidates(others)
            best = np.argmax(gain, keepdims=True)
            if best[0] != rows[place] and gain[best[0]] > loss[place] + enough and not self.exhausted:
                if self._try(self._with_rows(others, best, variance)):
                    return True
        return False

    def _candidates(self, state: EvidenceState) -> tuple[FloatArray, FloatArray]:
        """Log evidence that every row would bring (0 for those that are in, or not likely to), and (p,) variances."""
        rows = self.settings.row_of_feature
        found = candidate_statistics(self.settings.likelihood, state)
        likely = np.flatnonzero(_among(rows, likely_rows(found, rows, state.active)))
        gain, variance = np.zeros(len(rows)), np.zeros(len(rows))
        gain[likely], variance[likely] = gains(RowStatistics(found.curvatures[likely], found.squared_scores[likely]))
        largest = self.settings.largest_variances
        share = np.divide(variance, largest, out=np.zeros_like(variance), where=largest > 0)
        share = np.bincount(rows, weights=share) / np.maximum(np.bincount(rows, weights=largest > 0), 1.0)
        return np.bincount(rows, weights=gain), np.minimum(share, 1.0)[rows] * largest  # a group comes in whole

    def _with_rows(self, state: EvidenceState, new_rows: IntArray, variance: FloatArray) -> EvidenceState:
        new = np.flatnonzero(_among(self.settings.row_of_feature, new_rows) & (variance > 0))
        features = np.concatenate([state.active, new])
        order = np.argsort(features)
        variances = np.concatenate([state.row_variances, variance[new]])[order]
        return state._replace(active=features[order], row_variances=variances)

    def prune(self, tol: float) -> None:
        """Descend and drop rows in turn."""
        while not self._done_small(tol):
            self.descend(tol)
            if not self.drop_rows():
                return

    def polish(self, tol: float, swapping: bool = False) -> None:
        """Descend, drop, add and perhaps swap rows until nothing changes."""
        enough = tol * float(self.settings.likelihood.weights.sum())
        self.prune(tol)
        if self._done_small(tol, adding=True, swapping=swapping):
            return
        while self.add_rows() or (swapping and self.swap_rows(enough)):
            self.prune(tol)

    def _done_small(self, tol: float, adding: bool = False, swapping: bool = False) -> bool:
        """Prune, or with ``adding`` polish, by compiled code; False where that does not serve."""
        settings, small = self.settings, self._small_search(self.point.state)
        if small is None or not isinstance(settings.likelihood, NormalEvidence):
            return False
        if not small.holds(self.point.posterior) and small.begin(*self.point.state[:3]) is None:
            return False
        enough = tol * float(settings.likelihood.weights.sum())
        moves = SmallMoves(adding, swapping, settings.learn_noise, settings.likelihood.shared_noise)
        while not self.exhausted:
            budget = min(self.max_iter - self.n_iter, POSTERIORS_AT_ONCE)
            found, trace, used = small.search(enough, budget, moves)
            if found is None:
                self.small = None
                return False
            self.point = EvidencePoint(EvidenceState(*found.state, None), found.posterior, found.objective)
            self.trace.extend(trace.tolist())
            self._count(used)
            if used < budget:
                break
        return True

    def _small_search(self, state: EvidenceState) -> SmallSearch | None:
        """The compiled search, where a state is one for it."""
        if self.small is None or state.relations is not None or len(state.active) > self.small.few:
            return None
        return self.small

    def _try_step(self, boldness: float) -> bool:
        return self._try(step(self.settings, self.point, boldness))

    def _try(self, state: EvidenceState) -> bool:
        """Move to a state unless the objective is higher there."""
        candidate = self._evaluate(state)
        if not candidate.objective <= self.point.objective + ROUNDING * abs(self.point.objective):
            return False
        self.point = candidate
        self.trace.append(candidate.objective)
        return True

    def _evaluate(self, state: EvidenceState) -> EvidencePoint:
        small = self._small_search(state)
        found = None if small is None else small.begin(*state[:3])
        point = evaluate(self.settings, state) if found is None else EvidencePoint(state, *found[1:])
        self._count(1)
        return point

    def _count(self, n_posteriors: int) -> None:
        self.n_iter += n_posteriors
        self.bar.update(self.n_iter / self.max_iter, f"{self.n_iter} posteriors")


def _small_search(settings: EvidenceSettings) -> SmallSearch | None:
    """The compiled search of small problems: for normal targets and features that are rows of their own."""
    likelihood = settings.likelihood
    if not isinstance(likelihood, NormalEvidence) or settings.grouped or not SmallSearch.takes(likelihood.all_tasks):
        return None
    data = SmallData(likelihood.free, likelihood.counts, likelihood.floor, settings.largest_variances)
    return SmallSearch(likelihood.all_tasks, data, settings.row_cost, likelihood.fixed)


def _among(rows: IntArray, chosen: IntArray) -> BoolArray:
    """Which rows are among the chosen ones."""
    wanted = np.zeros(int(rows.max(initial=-1)) + 1, dtype=bool)
    wanted[chosen] = True
    return wanted[rows]


def search_noise(search: EvidenceSearch, likelihood: NormalEvidence, tol: float) -> None:
    """Find rows and noise from no rows up, then from all features down, at less noise, as long as that is better.

    From no rows the noise falls as rows come in. Correlated rows that are of use only together are found from all
    features, at a noise at which they are worth their cost.
    """
    none = np.empty(0, dtype=np.intp)
    search.begin(EvidenceState(none, np.empty(0), likelihood.start(), None))
    search.polish(tol, swapping=True)
    while any(_better_from_all(search, likelihood, step, tol) for step in NOISE_STEPS):
        pass


def _better_from_all(search: EvidenceSearch, likelihood: NormalEvidence, noise_step: float, tol: float) -> bool:
    """Search again from all features at a share of the noise found so far; the better point is kept."""
    settings, enough = search.settings, tol * float(likelihood.weights.sum())
    best = search.point, search.trace
    if search.exhausted:
        return False
    noise = noise_step * likelihood.noise(search.point.state.parameters)
    even = bool(noise.max() <= EVEN_NOISE * noise.min())
    if even:  # one noise leaves one system for all tasks, of one Cholesky factor
        noise = np.full(len(noise), np.sqrt(np.mean(noise**2)))
    search.begin_with_all(likelihood.start(noise))
    search.settings = replace(settings, learn_noise=False)
    search.prune(ROUGHLY * tol)
    if even:
        search.settings = replace(settings, likelihood=likelihood.with_one_noise())
        search.prune(ROUGHLY * tol)
    search.settings = settings
    search.prune(tol)
    if not np.array_equal(search.point.state.active, best[0].state.active):
        search.polish(tol, swapping=True)
        if search.point.objective < best[0].objective - enough:
            return True
    search.point, search.trace = best
    return False


# ---------------------------------------------------------------------- the whole


class EvidenceSolution(NamedTuple):
    """Posterior of W at the best row variances, noise and relations; the first fields are those of a `Solution`."""

    W: FloatArray  # (p, m) posterior mean
    intercept: FloatArray  # (m,)
    objective: float
    gap: float
    scale: float
    converged: bool
    n_iter: int
    objective_trace: FloatArray
    interrupted: bool
    noise: FloatArray | None  # (m,) deviations; None for the logistic loss
    row_variances: FloatArray  # (p,) gamma, exactly 0 for rows that are out
    task_relations: FloatArray | None  # (m, m) correlation
    W_variance: FloatArray = np.empty(0)  # (p, m) marginal posterior variances
    relation_shrinkage: float | None = None  # nu

    def as_solution(self) -> Solution:
        """Return the part that every solver gives back."""
        return Solution(*self[:10])


def solve(
    data: TaskData,
    family: Family,
    fit_intercept: bool = True,
    *,
    shared_noise: bool = False,
    relations: Literal["learn"] | None = None,
    relation_shrinkage: float | None = None,
    noise_floor: float | None = None,
    least_noise: FloatArray | None = None,
    row_cost: float | None = None,
    tol: float = 1e-6,
    max_iter: int = 2000,
    progress: bool | None = None,
    start: EvidenceSolution | None = None,
) -> EvidenceSolution:
    """Maximise the evidence of the squared loss, or of a conditionally normal one, and give the posterior of W there.

    Labels are -1 and +1; intercepts have a flat prior. With one noise for all tasks (``shared_noise``) and one complete
    design a single system serves all of them. ``relation_shrinkage`` is nu, None chooses it by the data; ``noise_floor``
    the smallest noise as a share of the deviation of y, or ``least_noise`` (m,) in the units of y; ``row_cost`` the log
    evidence that a row has to bring, None takes ln p. It has converged when the objective falls by less than ``tol`` per
    observation; ``max_iter`` is the most posteriors to compute, and ``start`` an earlier solution.
    """
    family.require("coefficients='integrated'", "augmentation")
    likelihood: EvidenceLikelihood
    if family.quadratic:
        floor = NOISE_FLOOR if noise_floor is None else noise_floor
        likelihood = NormalEvidence(data, fit_intercept, shared_noise, floor, least_noise)
    else:
        likelihood = BoundEvidence(data, family.augmentation, fit_intercept)
    rows = Blocks(data.n_features, data.n_tasks, groups=data.groups)
    cost = math.log(max(rows.n_rows, 1)) if row_cost is None else row_cost
    with one_thread(), Progress("evidence", progress) as work:
        search = EvidenceSearch(EvidenceSettings(likelihood, rows.row_of_feature, data.n_tasks, cost), max_iter, work)
        _find_rows(search, start, COARSE * tol)
        search.polish(tol if relations is None else COARSE * tol)
        if relations == "learn" and data.n_tasks > 1:
            _relate(search, relation_shrinkage, start)
            search.polish(tol)
    if work.interrupted and not search.trace:
        raise KeyboardInterrupt  # there is no posterior yet
    return _solution(data, search, relations == "learn", work.interrupted)


def start_from(row_variances: FloatArray, noise: FloatArray, relations: FloatArray | None) -> EvidenceSolution:
    """Make a start of known row variances (p,), noise (m,) and relations (m, m), with W = 0."""
    W, trace, nan = np.zeros((len(row_variances), len(noise))), np.empty(0), math.nan
    return EvidenceSolution(W, 0.0 * noise, nan, nan, nan, False, 0, trace, False, noise, row_variances, relations)


def _find_rows(search: EvidenceSearch, start: EvidenceSolution | None, tol: float) -> None:
    """First rows, for unrelated tasks: those of the start, or found from all features."""
    likelihood = search.settings.likelihood
    if start is not None:
        active = np.flatnonzero(start.row_variances)
        search.begin(EvidenceState(active, start.row_variances[active], likelihood.start(start.noise), None))
    elif isinstance(likelihood, NormalEvidence):
        search_noise(search, likelihood, tol)
    else:
        search.begin_with_all(likelihood.start())
        search.prune(tol)


def _relate(search: EvidenceSearch, shrinkage: float | None, start: EvidenceSolution | None) -> None:
    """Begin to learn task relations, at the identity or those of the start."""
    state, m = search.point.state, search.settings.n_tasks
    r = task_relations.n_factors(m)
    size = min(search.settings.likelihood.all_tasks.n_rows, len(state.active) * r)
    if size > LARGEST_SYSTEM:
        raise ValueError(
            f"task relations with integrated coefficients need a system of {size} unknowns ({len(state.active)} "
            f"features x {r} factors of {m} tasks), and the limit is {LARGEST_SYSTEM}; select features first, or use "
            "coefficients='mode'"
        )
    if shrinkage is None:
        posterior = search.point.posterior
        mean = posterior.mean / np.sqrt(state.row_variances)[:, None]
        correlation = task_relations.from_rows(mean.T @ mean)
        shrinkage = task_relations.choose_shrinkage(correlation, len(state.active))
    search.settings = replace(search.settings, shrinkage=shrinkage)
    if shrinkage >= task_relations.UNRELATED:
        return
    known = None if start is None else start.task_relations
    relations = task_relations.unrelated(m) if known is None else task_relations.nearest(known)
    search.move(state._replace(relations=relations))


def _solution(data: TaskData, search: EvidenceSearch, related: bool, interrupted: bool) -> EvidenceSolution:
    state, posterior = search.point.state, search.point.posterior
    p, m = data.n_features, data.n_tasks
    tasks = search.settings.likelihood.tasks(state.active, state.parameters)
    W, variance, row_variances = np.zeros((p, m)), np.zeros((p, m)), np.zeros(p)
    W[state.active] = posterior.mean
    variance[state.active] = _marginal_variances(search.point)
    row_variances[state.active] = state.row_variances
    if data.present is not None:
        W, variance = np.where(data.present, W, 0.0), np.where(data.present, variance, 0.0)
    relations = None
    if related:
        relations = np.eye(m) if state.relations is None else state.relations.matrix
    return EvidenceSolution(
        W=W,
        intercept=tasks.intercept(W[state.active]),
        objective=search.trace[-1],
        gap=math.nan,
        scale=math.nan,
        converged=not search.exhausted and not interrupted,
        n_iter=search.n_iter,
        objective_trace=np.array(search.trace),
        interrupted=interrupted,
        noise=search.settings.likelihood.noise(state.parameters),
        row_variances=row_variances,
        task_relations=relations,
        W_variance=variance,
        relation_shrinkage=search.settings.shrinkage if related else None,
    )


def _marginal_variances(point: EvidencePoint) -> FloatArray:
    """(a, m) ``gamma_i R_tt - gamma_i^2 (R Z_i R)_tt``."""
    gamma, curvature = point.state.row_variances[:, None], point.posterior.curvature
    if curvature.ndim == 3 and point.state.relations is not None:
        R = point.state.relations.matrix
        curvature = np.einsum("tu,puv,vt->pt", R, curvature, R, optimize=True)
    return np.asarray(np.maximum(gamma - gamma**2 * curvature, 0.0))
