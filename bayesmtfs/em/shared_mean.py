r"""A mean shared by all tasks, and deviations from it under the row prior of any EM route.

The weights of task t are ``w_0 + v_t``. With F the objective of a route (`jeffreys`, `matrix_variate`, `mm`) for the
deviations V, one free intercept per task and the noise, this is

    minimise over w_0, V, b, sigma:   F(V, b, sigma; predictions moved by x'w_0) + P(w_0) + mean_strength / 2 ||w_0||^2:

rows of Zhang, Yeung and Xu (2010, section 4) with a location, which has a ridge (Evgeniou and Pontil 2004, KDD) and P, the
prior of the rows with the mean in their place: m = 1 entry and a scale for each feature, or m = p entries with one scale,

    Jeffreys:            P = sum_i ln|w_0i|              or  p ln ||w_0||             (or the same under a Gamma prior)
    generalized normal:  P = sum_i ln(|w_0i| + offset)   or  p ln(||w_0|| + offset),

norms at q = 2 and, for Jeffreys, in units of sd(y) / sd(x). The first makes the mean sparse; means that vanish are exactly
0, stay so, and count as 1e-8 (as rows do). The ridge of all EM steps is that of the E-step, ``1 / w_0i^2`` or its like.

Such objectives have an optimum for every set of zeros, so that the start decides. Three are tried: the sparse mean of all
tasks taken as one (`evidence`, centred within tasks), no mean, and a mean with one scale. Kept is the fit of largest
evidence (`evidence_of`): where tasks have little in common, the one without a mean. One iteration lowers the objective
in three blocks:

- w_0 and b for given V and sigma: one Newton step, exact for the squared loss (a ridge regression over all tasks);
- w_0 for given sums ``w_0 + v_t``, where the loss does not change: one step on the prior of V and w_0. Without it the
  other two blocks crawl wherever the data determine the sums well;
- V, b, sigma for a given w_0: some steps of the route, on targets less the predictions of the mean (losses that are not
  quadratic have them as an offset).

What a route decides from the data (units, floor of the noise, q, shrinkage of the relations) is decided once, around
the first mean, and then held fixed, so that one objective is lowered throughout.

With the deviations integrated out (`evidence`; squared loss only) the objective, minimised over w_0, row variances
gamma, noise and relations R, is ``- ln p(y - x'w_0 | gamma, noise, R) + ... + P(w_0) + mean_strength / 2 ||w_0||^2``, in
two blocks: the evidence on targets less the predictions of the mean; and a better w_0 for given gamma, noise and R,
generalised least squares with the ridge d of the E-step. The latter is the w_0 of the joint mode of (w_0, V),

    minimise  sum_t 1/(2 s_t) ||y_t - b_t - X_t (w_0 + v_t)||^2 + 1/2 sum_i v^i R^-1 v^i' / gamma_i + 1/2 sum_i d_i w_0i^2,

found by conjugate gradients; since V at the start of it is the posterior mean, even a step that is cut short lowers the
objective.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import sqrtm

from bayesmtfs.convex import shared_mean as convex_shared_mean
from bayesmtfs.convex.problem import Problem
from bayesmtfs.data.scaling import WithinTaskUnits, within_task_units
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.em import evidence, jeffreys, matrix_variate, mm
from bayesmtfs.em.active_tasks import EMProblem, dense, em_problem, rows_of
from bayesmtfs.em.evidence import EvidenceSolution, NormalEvidence
from bayesmtfs.em.jeffreys import EMSettings, JeffreysFit, JeffreysSettings
from bayesmtfs.em.matrix_variate import RelatedFit
from bayesmtfs.em.mm import MMSettings
from bayesmtfs.em.ridge import conjugate_gradients, falling_share
from bayesmtfs.em.row_posterior import LARGEST_DENSE
from bayesmtfs.families import Family, total, with_offset
from bayesmtfs.priors.blocks import Blocks
from bayesmtfs.priors.generalized_normal import GeneralizedNormal
from bayesmtfs.priors.row_penalty import RowPenalty, row_norms
from bayesmtfs.progress import Progress
from bayesmtfs.types import BoolArray, FloatArray, IntArray, Solution

SHORTEST_STEP = 2.0**-20
SMALLEST_ENTRY = 1e-6  # of a row's largest entry, in curvatures of |v|^q
NEWTON_STEPS = 3  # for the mean, where one is not exact
INNER_STEPS = 10  # of EM, between two moves of the mean
INNER_PROBLEMS = 2  # of majorisation-minimisation, likewise
START_TOL = 1e-4  # of a first mean
COARSE = 100.0  # how much larger the tolerance of the evidence is before the mean has settled


class MeanPrior(NamedTuple):
    """Prior of the mean with its scales integrated out."""

    value: Callable[[FloatArray], float]  # minus the log-density
    ridges: Callable[[FloatArray], FloatArray]  # (p,) of the quadratic that lies above it at a mean; inf: stays 0
    n_scales: Callable[[FloatArray], int]  # of means that are not 0


NO_SCALES = MeanPrior(lambda mean: 0.0, np.zeros_like, lambda mean: 0)


def mean_prior(
    value: Callable[[FloatArray], float], weights: Callable[[FloatArray], FloatArray], unit: FloatArray, together: bool
) -> MeanPrior:
    """Prior of rows as one of the mean: p rows of one entry, or (together) one row of p entries.

    ``weights`` (R,) times the squares of the rows, half of that, lie above ``value``; rows are in their unit (p,).
    """

    def rows(mean: FloatArray) -> FloatArray:
        return (mean / unit).reshape((1, -1) if together else (-1, 1))

    return MeanPrior(
        lambda mean: value(rows(mean)),
        lambda mean: weights(rows(mean)) / unit**2,
        lambda mean: int(np.count_nonzero(rows(mean).any(axis=1))),
    )


def jeffreys_mean(units: WithinTaskUnits, em: EMSettings, together: bool) -> MeanPrior:
    """Normal means whose scales have the prior of the rows' scales."""
    prior = em.prior(2.0)
    return mean_prior(
        lambda rows: prior.negative_log_density(jeffreys.floored(rows)),
        lambda rows: 2.0 * np.exp(prior.log_em_weights(rows)),
        units.target / units.feature,
        together,
    )


def generalized_normal_mean(units: WithinTaskUnits, offset: float, together: bool) -> MeanPrior:
    """``k ln(||w_0|| + offset)`` of each row of k means."""
    prior = GeneralizedNormal(2.0)

    def weights(rows: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore"):
            return prior.majoriser_weights(rows, offset) / row_norms(rows, 2.0)

    return mean_prior(lambda rows: prior.type2_value(rows, offset), weights, np.ones_like(units.feature), together)


@dataclass(frozen=True, eq=False)
class MeanProblem:
    """Data, loss and the prior of the mean: a ridge, and scales of their own."""

    data: TaskData
    family: Family
    strength: float
    fit_intercept: bool
    scales: MeanPrior = NO_SCALES

    def predictions(self, mean: FloatArray) -> FloatArray:
        """(N,) x'w_0."""
        values: FloatArray = np.asarray(self.data.design @ mean)[self.data.rows]
        return values

    def adjoint(self, values: FloatArray) -> FloatArray:
        """(p,) Sum of x times the value over all tasks."""
        sums = np.bincount(self.data.rows, weights=values, minlength=self.data.design.shape[0])
        return np.asarray(self.data.design.T @ sums)

    @cached_property
    def units(self) -> WithinTaskUnits:
        """What 1 stands for in these data."""
        return within_task_units(self.data, self.fit_intercept, self.family.quadratic)

    def around(self, mean: FloatArray) -> EMProblem:
        """The problem of the deviations from a mean, in the same units."""
        data, moved = self.data, self.predictions(mean)
        if self.family.quadratic:
            data = data.with_target(np.asarray(data.y, dtype=np.float64) - moved)
        else:
            data = replace(data, eta_offset=moved if data.eta_offset is None else data.eta_offset + moved)
        return EMProblem(data, self.family, self.fit_intercept, self.units)

    @property
    def loss(self) -> Family:
        """The family on these rows, with what is known of their linear predictors."""
        return with_offset(self.family, self.data.eta_offset)

    def prior(self, mean: FloatArray) -> float:
        """What the mean adds to the objective."""
        return 0.5 * self.strength * float(mean @ mean) + self.scales.value(mean)

    def ridges(self, mean: FloatArray) -> FloatArray:
        """(p,) Curvatures of the quadratic that lies above the prior and touches it at a mean."""
        with np.errstate(divide="ignore", over="ignore"):
            return self.strength + self.scales.ridges(mean)

    def without_traces(self, mean: FloatArray) -> FloatArray:
        """(p,) Means, exactly 0 where they vanish."""
        unit = self.units.target / self.units.feature
        return mean if self.scales is NO_SCALES else np.where(np.abs(mean) < jeffreys.PRUNED * unit, 0.0, mean)

    def is_dense(self, mean: FloatArray) -> bool:
        """Whether no mean is 0 of a feature that varies: means have a common scale."""
        return bool(mean[self.units.varies].all())

    def sums(self, mean: FloatArray, V: FloatArray) -> FloatArray:
        """(p, m) w_0 + v_t, 0 where a task does not have the feature."""
        W: FloatArray = V + mean[:, np.newaxis]
        return W if self.data.present is None else np.where(self.data.present, W, 0.0)

    def deviations(self, mean: FloatArray, W: FloatArray) -> FloatArray:
        """(p, m) v_t of given sums."""
        return self.sums(-mean, W)

    def intercepts(self, values: FloatArray, factor: FloatArray) -> FloatArray:
        """(m,) Sums of the values (N,) over the tasks, over those of a factor: what intercepts take up."""
        sums, totals = (np.add.reduceat(numbers, self.data.offsets[:-1]) for numbers in (values, factor))
        return np.divide(sums, totals, out=np.zeros_like(sums), where=(totals > 0) & self.fit_intercept)


class Around[Found: (Solution, EvidenceSolution)](NamedTuple):
    """A mean, and the deviations from it."""

    mean: FloatArray  # (p,)
    deviations: Found  # V, intercepts and noise; its objective is without the ridge


class RowPrior(NamedTuple):
    """Prior of the deviations, as far as the mean needs it: ``m ln(||u^i||_q + offset)`` of the rows of U = V whiten."""

    value: Callable[[FloatArray], float]  # of V (p, m)
    blocks: Blocks
    norm_q: float
    offset: float = 0.0
    whiten: FloatArray | None = None  # (m, m); None: the identity


def default_strength(data: TaskData, family: Family, deviation: float) -> float:
    """A hundredth of the mean squared column norm of X, over the square of the deviation that the loss is divided by."""
    problem = Problem(data, family, RowPenalty(1.0, 2.0), data.weight, False)
    return convex_shared_mean.default_mean_strength(problem) / deviation**2


# ---------------------------------------------------------------------- the mean


def move_mean(problem: MeanProblem, point: Around[Solution], prior: RowPrior) -> Around[Solution]:
    """Move the mean, for given deviations and then for given sums; the objective falls."""
    return recentre(problem, update_mean(problem, point), prior)


def update_mean(problem: MeanProblem, point: Around[Solution]) -> Around[Solution]:
    """Newton steps of w_0 and b for given V and noise; each lowers the objective."""
    for _ in range(1 if problem.family.quadratic else NEWTON_STEPS):
        point = _newton_step(problem, point)
    return point


def _newton_step(problem: MeanProblem, point: Around[Solution]) -> Around[Solution]:
    data, family, (mean, deviations) = problem.data, problem.loss, point
    factor = data.weight / _noise(problem, deviations)[data.task] ** 2
    eta = problem.predictions(mean) + data.linear_predictor(deviations.W, deviations.intercept)
    curved = factor * family.curvature(data.y, eta)
    theta = factor * family.gradient(data.y, eta)

    widths = 1.0 / np.sqrt(problem.ridges(mean))

    def curvature(direction: FloatArray) -> FloatArray:
        moved = problem.predictions(widths * direction)
        free = moved - problem.intercepts(curved * moved, curved)[data.task]
        return widths * problem.adjoint(curved * free) + direction

    taken = problem.intercepts(theta, curved)
    free = theta - curved * taken[data.task]
    step = widths * conjugate_gradients(curvature, -(widths * problem.adjoint(free) + _over(mean, widths)))
    eta_step = problem.predictions(step)
    move = -taken - problem.intercepts(curved * eta_step, curved)
    eta_step = eta_step + move[data.task]

    def value(share: float) -> float:
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused
            return total(family, data.y, eta + share * eta_step, factor) + problem.prior(mean + share * step)

    share = falling_share(value, SHORTEST_STEP)
    if not share:
        return point
    moved = problem.without_traces(mean + share * step)
    return Around(moved, deviations._replace(intercept=deviations.intercept + share * move))


def _over(mean: FloatArray, widths: FloatArray) -> FloatArray:
    """(p,) Means over their widths, 0 for those that are 0."""
    return np.divide(mean, widths, out=np.zeros_like(mean), where=widths > 0)


def recentre(problem: MeanProblem, point: Around[Solution], prior: RowPrior) -> Around[Solution]:
    """Move the mean of the rows that deviate, the sums held fixed, where that lowers prior and ridge."""
    mean, V = point.mean, point.deviations.W
    step = _recentring(problem, mean, V, prior)

    def value(share: float) -> float:
        return prior.value(problem.deviations(share * step, V)) + problem.prior(mean + share * step)

    share = falling_share(value, SHORTEST_STEP)
    return Around(mean + share * step, point.deviations._replace(W=problem.deviations(share * step, V)))


def _recentring(problem: MeanProblem, mean: FloatArray, V: FloatArray, prior: RowPrior) -> FloatArray:
    """(p,) Step of every mean: gradient over curvature of ``m ln(||u||_q + offset)`` at fixed norm, plus the ridge."""
    if prior.norm_q == np.inf:
        return np.zeros_like(mean)
    q, whiten = prior.norm_q, np.eye(problem.data.n_tasks) if prior.whiten is None else prior.whiten
    U = V @ whiten
    reach = whiten.sum(axis=0)  # what a unit of the mean does to u
    rows = prior.blocks.gather(U)
    peaks = np.max(np.abs(rows), axis=1, initial=0.0)
    live = peaks > 0
    peak = np.where(live, peaks, 1.0)
    powers = np.sum(np.abs(rows / peak[:, np.newaxis]) ** q, axis=1)
    norms = peak * powers ** (1.0 / q)
    # m / (||u|| + offset) ||u||^(1-q), with |u| in units of the row's largest entry
    factor = np.where(live, prior.blocks.sizes / np.maximum(norms + prior.offset, 1e-300), 0.0)
    factor = factor * np.where(live, norms / np.maximum(powers, 1e-300), 0.0)
    unit, factor = (values[prior.blocks.row_of_feature][:, np.newaxis] for values in (peak, factor))
    sizes = np.abs(U) / unit
    slopes = factor / unit * np.sign(U) * sizes ** (q - 1.0) * reach
    curved = factor / unit**2 * np.maximum(sizes, SMALLEST_ENTRY) ** (q - 2.0) * max(1.0, q - 1.0) * reach**2
    ridges = problem.ridges(mean)
    moving = live[prior.blocks.row_of_feature] & np.isfinite(ridges)
    ridges = np.where(moving, ridges, 1.0)
    return np.where(moving, (np.sum(slopes, axis=1) - ridges * mean) / (np.sum(curved, axis=1) + ridges), 0.0)


# ---------------------------------------------------------------------- the whole


def alternate[Found: (Solution, EvidenceSolution)](
    problem: MeanProblem,
    start: Around[Found],
    move: Callable[[Around[Found]], Around[Found]],
    route: Callable[[FloatArray, Found], Found],
    unit: FloatArray | None,
    *,
    tol: float,
    max_iter: int,
    progress: bool | None = None,
) -> Around[Found]:
    """Move the mean, and find better deviations around it, in turn; the trace is that of the whole objective.

    The objective of the start must be that of the route. It has converged when no coefficient changes by more than
    ``tol`` in its ``unit`` (p,), or, where that is None, when the objective falls by less than ``tol`` per observation.
    """
    point = start
    trace = [start.deviations.objective + problem.prior(start.mean)]
    converged = False
    with Progress("shared mean", progress) as work:
        while not converged and len(trace) <= max_iter:
            moved = move(point)
            after = moved._replace(deviations=route(*moved))
            value = after.deviations.objective + problem.prior(after.mean)
            fall = (trace[-1] - value) / float(problem.data.weight.sum())
            converged = bool((fall if unit is None else _change(point, after, unit)) <= tol)
            if fall >= 0.0 or unit is not None:
                point = after
                trace.append(value)
            if after.deviations.interrupted:
                raise KeyboardInterrupt  # inside the route, which has given what there is
            work.update(len(trace) / max_iter)
    ended = point.deviations._replace(
        objective=trace[-1],
        objective_trace=np.array(trace),
        n_iter=len(trace) - 1,
        converged=converged,
        interrupted=work.interrupted,
    )
    return point._replace(deviations=ended)


def _change(before: Around[Any], after: Around[Any], unit: FloatArray) -> float:
    """Largest change of a mean or a deviation, in its unit."""
    deviations = np.max(np.abs(after.deviations.W - before.deviations.W), axis=1, initial=0.0)
    return float(np.max(np.maximum(np.abs(after.mean - before.mean), deviations) / unit, initial=0.0))


def as_sums(problem: MeanProblem, point: Around[Solution]) -> Solution:
    """The solution with the coefficients of the tasks, ``w_0 + v_t``."""
    return point.deviations._replace(W=problem.sums(point.mean, point.deviations.W))


# ---------------------------------------------------------------------- the routes


class MeanStart(NamedTuple):
    """Where a fit begins."""

    W: Solution  # coefficients of the tasks
    mean: FloatArray | None  # of the last fit, if it is wanted


class Attempt(NamedTuple):
    """A prior of the mean, and a first mean and deviations."""

    problem: MeanProblem
    point: Around[Solution]


def attempts(
    problem: MeanProblem, start: MeanStart, deviation: float, prior: Callable[[bool], MeanPrior]
) -> list[Attempt]:
    """What a fit tries: a sparse mean, none, and one with a common scale. ``prior`` says whether scales are common."""
    W, started = start.W.W, (start.W.W != 0).any(axis=1)
    own, common = (replace(problem, scales=prior(together)) for together in (False, True))
    zero = np.zeros(len(W))
    means = [(own, pooled_mean(problem, started)), (own, zero)]
    if 8 * problem.data.n_observations * len(W) <= LARGEST_DENSE:
        flat = Around(zero, start.W._replace(W=np.zeros_like(W), noise=np.full(W.shape[1], deviation)))
        means.append((common, update_mean(problem, flat).mean))
    if start.mean is not None:
        means = [(common if problem.is_dense(start.mean) else own, start.mean)]
    rows = started[:, np.newaxis]

    def around(mean: FloatArray) -> Around[Solution]:
        return Around(mean, start.W._replace(W=np.where(rows, problem.deviations(mean, W), 0.0)))

    return [Attempt(own, around(mean)) for own, mean in means]


def evidence_of(problem: MeanProblem, point: Around[Solution]) -> float:
    """Minus the log evidence of a fit by Laplace's method.

    Coefficients have normal priors with the variances that the fit shows: ``||v^i||^2 / m`` for a row of deviations, and
    likewise for means. With A the curvature of the loss in coefficients w and D their prior precisions, they cost
    ``ln|I + A D^-1| / 2 + w'D w / 2`` (deviations one at a time). Each scale costs ln p, as in `evidence`, and so does
    it to have a mean at all.
    """
    data, V, noise = problem.data, point.deviations.W, _noise(problem, point.deviations)
    eta = data.linear_predictor(problem.sums(point.mean, V), point.deviations.intercept)
    losses = total(problem.loss, data.y, eta, data.weight / noise[data.task] ** 2)
    rows = np.flatnonzero(V.any(axis=1))
    curvatures = np.add.reduceat(_root_curvature(problem, rows, noise, eta) ** 2, data.offsets[:-1])
    spread = np.mean(V[rows] ** 2, axis=1) * curvatures
    cost = 0.5 * float(np.sum(np.log1p(spread) + 1.0)) + len(rows) * np.log(data.n_features)
    return losses + float(data.task_weights @ np.log(noise)) + cost + mean_cost(problem, point.mean, noise, eta)


def mean_cost(problem: MeanProblem, mean: FloatArray, noise: FloatArray, eta: FloatArray) -> float:
    """What the means cost there."""
    live = np.flatnonzero(mean)
    ridges = problem.ridges(mean)[live]
    A = _root_curvature(problem, live, noise, eta) / np.sqrt(ridges)
    system = A @ A.T if len(A) < len(live) else A.T @ A
    spread = float(np.linalg.slogdet(np.eye(len(system)) + system)[1] + ridges @ mean[live] ** 2)
    n_scales = problem.scales.n_scales(mean) + int(mean.any())
    return 0.5 * spread + n_scales * float(np.log(problem.data.n_features))


def _root_curvature(problem: MeanProblem, features: IntArray, noise: FloatArray, eta: FloatArray) -> FloatArray:
    """(N, k) Design whose squares are the curvature of the loss, without what intercepts take up."""
    data = problem.data
    curved = data.weight / noise[data.task] ** 2 * problem.loss.curvature(data.y, eta)
    X = dense(data.design[:, features])[data.rows]
    if problem.fit_intercept:
        X = X - _task_means(data, X, curved)
    return np.sqrt(curved)[:, np.newaxis] * X


def _task_means(data: TaskData, X: FloatArray, weight: FloatArray) -> FloatArray:
    """(N, k) Weighted mean of each task, row by row."""
    totals = np.maximum(np.add.reduceat(weight, data.offsets[:-1]), 1e-300)
    return (np.add.reduceat(weight[:, np.newaxis] * X, data.offsets[:-1]) / totals[:, np.newaxis])[data.task]


def _noise(problem: MeanProblem, found: Solution | EvidenceSolution) -> FloatArray:
    """(m,) Noise of a fit, ones where there is none."""
    return np.ones(problem.data.n_tasks) if found.noise is None else found.noise


def pooled_mean(problem: MeanProblem, features: BoolArray) -> FloatArray:
    """(p,) Coefficients of all tasks as one, over some features, by `evidence`, which keeps few, or else by EM."""
    mean = np.zeros(problem.data.n_features)
    if not features.any():
        return mean
    pooled = one_task(problem, features)
    if problem.family.augmentation is None or not problem.family.augmentation.bounded:
        found = jeffreys.fit(pooled, JeffreysSettings(), progress=False).solution.W
    else:
        found = evidence.solve(*pooled[:3], tol=START_TOL, progress=False).W
    mean[features] = found[:, 0]
    return mean


def one_task(problem: MeanProblem, features: BoolArray) -> EMProblem:
    """All tasks as one, over some features; a quadratic loss sees deviations from the means of the tasks."""
    data, family = problem.data, problem.family
    X, y = dense(data.design[:, features])[data.rows], np.asarray(data.y, dtype=np.float64)
    centred = family.quadratic and problem.fit_intercept
    if centred:
        X = X - _task_means(data, X, data.weight)
        y = y - _task_means(data, y[:, np.newaxis], data.weight)[:, 0]
    pooled = replace(TaskData.from_long(X, y, sample_weight=data.weight), eta_offset=data.eta_offset)
    return em_problem(pooled, family, problem.fit_intercept and not centred)


def fit_jeffreys(
    problem: MeanProblem, settings: JeffreysSettings, start: MeanStart, *, progress: bool | None = None
) -> JeffreysFit:
    """Fit mean and deviations under the Jeffreys prior of their scales; settings as for `jeffreys.fit`."""
    found = _jeffreys_at(problem, replace(settings, norm_q=settings.norm_q or 2.0), start, progress)
    if settings.norm_q is None and found.mean is not None:
        # Deviations say what q is; mean and deviations are then fitted again at it
        known = replace(settings, noise_floor=found.noise_floor)
        V = found.solution._replace(W=problem.deviations(found.mean, found.solution.W))
        learned = jeffreys.fit(problem.around(found.mean), known, V, progress=False)
        again = MeanStart(found.solution, found.mean)
        found = _jeffreys_at(problem, replace(known, norm_q=learned.norm_q), again, progress)
        found = found._replace(exponent=learned.exponent)
    return found


def _jeffreys_at(
    problem: MeanProblem, settings: JeffreysSettings, start: MeanStart, progress: bool | None
) -> JeffreysFit:
    """Fit at a known q."""
    units = problem.units
    tried = attempts(problem, start, units.target, lambda together: jeffreys_mean(units, settings.em, together))
    return min((_jeffreys_from(attempt, settings, progress) for attempt in tried), key=lambda fit: fit[0])[1]


def _jeffreys_from(attempt: Attempt, settings: JeffreysSettings, progress: bool | None) -> tuple[float, JeffreysFit]:
    """Minus the log evidence of a fit, and the fit."""
    (problem, point), em = attempt, settings.em
    units = problem.units
    first = jeffreys.fit(problem.around(point.mean), settings, point.deviations, progress=False)
    again = replace(settings, noise_floor=first.noise_floor, em=replace(em, max_iter=INNER_STEPS))
    prior = row_prior(problem.data, units, first.norm_q, em)
    found = alternate(
        problem,
        point._replace(deviations=first.solution),
        lambda point: move_mean(problem, point, prior),
        lambda mean, V: jeffreys.fit(problem.around(mean), again, V, progress=False).solution,
        None if first.norm_q == np.inf else units.target / units.feature,
        tol=em.tol,
        max_iter=em.max_iter,
        progress=progress,
    )
    return evidence_of(problem, found), first._replace(solution=as_sums(problem, found), mean=found.mean)


def row_prior(
    data: TaskData, units: WithinTaskUnits, norm_q: float, em: EMSettings, whiten: FloatArray | None = None
) -> RowPrior:
    """Prior of the deviations with scales integrated out, as a function of V in the user's units."""
    blocks, prior = rows_of(data), em.prior(norm_q)

    def value(V: FloatArray) -> float:
        U = units.from_user(V) if whiten is None else units.from_user(V) @ whiten
        return prior.negative_log_density(jeffreys.floored(blocks.gather(U)), blocks.sizes)

    return RowPrior(value, blocks, norm_q, whiten=whiten)


def fit_matrix_variate(
    problem: MeanProblem,
    settings: EMSettings,
    unrelated: JeffreysFit,
    shrinkage: float | None,
    *,
    progress: bool | None = None,
) -> tuple[RelatedFit, FloatArray]:
    """Learn task relations of the deviations, from `fit_jeffreys` of the same problem; the second result is the mean.

    Settings and shrinkage are as for `matrix_variate.fit`.
    """
    units = problem.units
    mean = np.zeros(problem.data.n_features) if unrelated.mean is None else unrelated.mean
    problem = replace(problem, scales=jeffreys_mean(units, settings, together=problem.is_dense(mean)))
    V = unrelated.solution._replace(W=problem.deviations(mean, unrelated.solution.W))
    options: dict[str, Any] = {"counted": (V.W != 0).any(axis=1), "progress": False}
    related = matrix_variate.fit(problem.around(mean), settings, V, shrinkage=shrinkage, **options)
    inner = replace(settings, noise_floor=related.noise_floor, max_iter=INNER_STEPS)

    def move(point: Around[Solution]) -> Around[Solution]:
        whiten = related.relations.inverse_root
        return move_mean(problem, point, row_prior(problem.data, units, settings.norm_q, settings, whiten))

    def route(mean: FloatArray, V: Solution) -> Solution:
        nonlocal related
        nu, known = related.shrinkage, related.relations
        related = matrix_variate.fit(problem.around(mean), inner, V, shrinkage=nu, relations=known, **options)
        return related.solution

    start, unit = Around(mean, related.solution), units.target / units.feature
    tol, most = settings.tol, settings.max_iter
    found = alternate(problem, start, move, route, unit, tol=tol, max_iter=most, progress=progress)
    return related._replace(solution=as_sums(problem, found)), found.mean


def fit_generalized_normal(
    problem: MeanProblem, settings: MMSettings, start: MeanStart, deviation: float, *, progress: bool | None = None
) -> Around[Solution]:
    """Fit mean and deviations under problem (5) of both, from a first guess of the noise."""
    penalty, blocks, rows = RowPenalty(1.0, settings.norm_q), rows_of(problem.data), GeneralizedNormal(settings.norm_q)

    def fit(mean: FloatArray, V: Solution, settings: MMSettings) -> Solution:
        data, family, fit_intercept, _ = problem.around(mean)
        convex = Problem(data, family, penalty, data.weight, fit_intercept)
        return mm.solve(convex, V, settings, progress=False)

    def value(V: FloatArray) -> float:
        return rows.type2_value(blocks.gather(V), settings.offset, blocks.sizes)

    prior = RowPrior(value, blocks, settings.norm_q, settings.offset)
    inner = replace(settings, graduated=False, max_iter=INNER_PROBLEMS)

    def found(attempt: Attempt) -> tuple[float, Around[Solution]]:
        problem, point = attempt
        ended = alternate(
            problem,
            point._replace(deviations=fit(*point, settings)),
            lambda point: move_mean(problem, point, prior),
            lambda mean, V: fit(mean, V, inner),
            None,
            tol=settings.tol,
            max_iter=settings.max_iter,
            progress=progress,
        )
        return evidence_of(problem, ended), ended

    units = problem.units
    tried = attempts(
        problem, start, deviation, lambda together: generalized_normal_mean(units, settings.offset, together)
    )
    return min((found(attempt) for attempt in tried), key=lambda fit: fit[0])[1]


# ---------------------------------------------------------------------- deviations integrated out


def maximise_evidence(
    problem: MeanProblem,
    *,
    shared_noise: bool = False,
    noise_floor: float | None = None,
    tol: float = 1e-6,
    max_iter: int = 1000,
    progress: bool | None = None,
    **options: Any,
) -> Around[EvidenceSolution]:
    """Maximise the evidence over the mean too; ``options`` are relations and their shrinkage, for `evidence.solve`.

    ``max_iter`` is the most moves of the mean, and the most posteriors between two of them.
    """
    data = problem.data
    floor = evidence.NOISE_FLOOR if noise_floor is None else noise_floor
    whole = NormalEvidence(data, problem.fit_intercept, shared_noise, floor)
    options |= {"shared_noise": shared_noise, "least_noise": np.sqrt(whole.floor)}
    options |= {"max_iter": max_iter, "progress": False}
    units, W = problem.units, np.ones((data.n_features, data.n_tasks))
    start = MeanStart(Solution(W, 0.0 * W[0], np.nan, np.nan, np.nan, False, 0, np.empty(0)), None)
    tried = attempts(problem, start, units.target, lambda together: jeffreys_mean(units, EMSettings(), together))
    fits = (_evidence_from(*attempt, tol, max_iter, options, progress) for attempt in tried)
    return min(fits, key=lambda fit: fit[0])[1]


def _evidence_from(
    problem: MeanProblem,
    first: Around[Solution],
    tol: float,
    max_iter: int,
    options: dict[str, Any],
    progress: bool | None,
) -> tuple[float, Around[EvidenceSolution]]:
    """Maximise the evidence from a mean, with the better of rows found from all of them and from none.

    The first result is minus the log evidence, with the mean integrated out too as in `evidence_of`.
    """
    mean = first.mean
    data, family, fit_intercept, _ = problem.around(mean)
    starts: list[EvidenceSolution | None] = [None]
    if mean.any():  # around which there may be nothing more
        noise = np.sqrt(NormalEvidence(data, fit_intercept, False, 1.0).target_variances)
        starts.append(evidence.start_from(np.zeros(data.n_features), noise, None))
    rough = COARSE * tol if mean.any() else tol
    found = min(
        (evidence.solve(data, family, fit_intercept, tol=rough, start=start, **options) for start in starts),
        key=lambda found: found.objective,
    )
    options = options | {"relation_shrinkage": found.relation_shrinkage}

    def move(point: Around[EvidenceSolution]) -> Around[EvidenceSolution]:
        return point._replace(mean=best_mean(problem, *point))

    def route(mean: FloatArray, start: EvidenceSolution) -> EvidenceSolution:
        return evidence.solve(*problem.around(mean)[:3], tol=tol, start=start, **options)

    start = Around(mean, found)
    ended = alternate(problem, start, move, route, None, tol=tol, max_iter=max_iter, progress=progress)
    eta = np.zeros(data.n_observations)  # the curvature is the same everywhere
    cost = mean_cost(problem, ended.mean, _noise(problem, ended.deviations), eta)
    return ended.deviations.objective - problem.prior(ended.mean) + cost, ended


def best_mean(problem: MeanProblem, mean: FloatArray, found: EvidenceSolution) -> FloatArray:
    """(p,) Mean of the joint mode of mean and deviations, at the row variances, noise and relations of ``found``.

    ``found`` is the posterior of the deviations around ``mean`` (p,).
    """
    data, widths = problem.data, 1.0 / np.sqrt(problem.ridges(mean))
    factor = data.weight / _noise(problem, found)[data.task] ** 2
    active = np.flatnonzero(found.row_variances)
    scales, zero = np.sqrt(found.row_variances[active])[:, np.newaxis], np.zeros(data.n_tasks)
    R = found.task_relations
    root = np.eye(data.n_tasks) if R is None else sqrtm(R)

    def predictions(u: FloatArray) -> FloatArray:
        V = np.zeros((data.n_features, data.n_tasks))
        V[active] = (scales * u[data.n_features :].reshape(len(active), data.n_tasks)) @ root
        V = V if data.present is None else np.where(data.present, V, 0.0)
        return problem.predictions(widths * u[: data.n_features]) + data.linear_predictor(V, zero)

    def pulled(values: FloatArray) -> FloatArray:
        """Adjoint of the predictions, for residuals over the noise variances without what the intercepts take."""
        values = factor * (values - problem.intercepts(factor * values, factor)[data.task])
        back = scales * (data.adjoint(values)[active] @ root)
        return np.concatenate([widths * problem.adjoint(values), back.ravel()])

    residuals = data.y - problem.predictions(mean) - data.linear_predictor(found.W, zero)
    # At the posterior mean the gradient in V vanishes, so that the prior of the mean is all that is missing
    gradient = -pulled(residuals)
    gradient[: data.n_features] += _over(mean, widths)
    gradient[data.n_features :] = 0.0
    step = conjugate_gradients(lambda u: u + pulled(predictions(u)), -gradient)
    return problem.without_traces(mean + widths * step[: data.n_features])
