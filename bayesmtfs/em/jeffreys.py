r"""EM for generalized normal rows under the Jeffreys prior: PMTFS1 of Zhang, Yeung and Xu 2010, section 4.2.

With the scales rho integrated out, EM minimises over W, b, sigma (and q)

    sum_t [ L_t(w_t, b_t) / sigma_t^2 + n_t ln sigma_t ] - sum_i ln p(w^i | q),

    -ln p(w | q) = m ln ||w||_q + m ln Gamma(1 + 1/q) - ln Gamma(1 + m/q) + constant   (the marginal of eq. 7 and 8),

L_t the sum of the losses of task t (1/2 r^2; other losses have no sigma) and n_t its number of observations. The E-step
is ``E[rho_i^-q] = m / (q ||w^i||_q^q)``, the M-step a penalised fit per task (eq. 9, see `ridge`; Newton steps for
losses that are not quadratic) and ``sigma_t^2 = 2 L_t / n_t``.

What the paper leaves open:

- the objective is unbounded at a zero row and, with p > n, at sigma = 0. A row whose norm falls below `PRUNED` becomes
  exactly zero, stays so, and counts as a row of norm `ROW_FLOOR`; sigma is at least ``noise_floor`` x sd(y);
- coefficients are in units of sd(y) / sd(x) (see `active_tasks`), so that no result depends on the units of X or y;
- optionally ``rho^-q ~ Gamma(shape, rate)`` instead of Jeffreys (shape = rate = 0);
- q is held fixed, learned from the active rows of the fit at q = 2, or updated after each M-step by a rule: the exact
  maximum of the marginal, which lowers the objective too, or the printed one, which may not (see `exponent`);
- the start. From a ridge fit EM collapses to W = 0, an infinite optimum, on data with more features than rows; it
  begins at a mixed-norm fit with a small penalty, whose rows are all that EM can keep;
- the floor of the noise. With more features than rows EM interpolates and sigma goes to 0. The floor begins at half of
  sd(y) and is lowered, each time from the same start, as long as what the remaining rows leave unexplained (residual
  over degrees of freedom) is clearly below it.

At q = inf the E-step has no expectation; there the same objective is minimised by `mm`, with one noise for all tasks. So
is ``m ln(||w^i||_q + offset)`` at any q, near whose kinks EM is slow.
"""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple

import numpy as np

from bayesmtfs.convex import automatic
from bayesmtfs.convex.problem import Problem
from bayesmtfs.data.scaling import WithinTaskUnits, scaled
from bayesmtfs.em import exponent, mm, task_relations
from bayesmtfs.em.active_tasks import ActiveTasks, EMProblem, activate, rows_of
from bayesmtfs.em.exponent import LearnedExponent
from bayesmtfs.em.ridge import Curvature, LeastSquares, best_factors, row_ridge_step
from bayesmtfs.em.task_relations import Relations
from bayesmtfs.priors.generalized_normal import Jeffreys
from bayesmtfs.priors.row_penalty import RowPenalty, row_norms
from bayesmtfs.progress import Progress
from bayesmtfs.types import BoolArray, FloatArray, Solution

ROW_FLOOR = 1e-8  # norm that a zero row counts with, in units of sd(y) / sd(x)
PRUNED = 1e-6  # norm below which a row becomes zero, in the same units
INNER_STEPS = 3  # of the M-step, where one step is not exact
SHORTEST_STEP = 2.0**-30
ROUNDING = 1e-13  # of an objective, relative
START_TOL = 1e-4
SEARCH_TOL = 1e-3  # of EM while the floor of the noise is searched
FIRST_FLOOR = 0.5  # of the noise, in units of sd(y)
FIRST_SCALE = 1.0  # the same of the scale of a heavy-tailed noise, in units of a deviation without the tails
LOWEST_FLOOR = 1e-4
FLOOR_SHARE = 0.8  # of the unexplained deviation that becomes the next floor
FLOOR_CHANGE = 0.8  # ratio of two floors above which the search ends
LEAST_FREEDOM = 0.3  # share of the observations that must remain as degrees of freedom
OFFSET_AT_INF = 1e-4  # in units of sd(y) / sd(x)
NO_ROWS: FloatArray = np.empty(0)

QLearning = Literal["two_stage", "integrated", "ecme", "paper"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EMSettings:
    """What EM is told."""

    norm_q: float = 2.0  # finite; the first value where q is updated
    shape: float = 0.0  # of the Gamma prior of rho^-q; 0 and a rate of 0 is Jeffreys
    rate: float = 0.0
    offset: float = 0.0  # added to the norm of a row, in units of sd(y) / sd(x)
    noise: float = 1.0  # sigma where it is not learned
    noise_floor: float = 0.1  # least sigma_t, in units of sd(y)
    learn_noise: bool = True  # squared loss only
    shared_noise: bool = False  # one sigma for all tasks
    tol: float = 1e-6  # largest change of a coefficient, in units of sd(y) / sd(x), at which EM has converged
    max_iter: int = 500

    @property
    def improper(self) -> bool:
        """Whether the scales have the Jeffreys prior itself."""
        return self.shape == self.rate == self.offset == 0.0

    def prior(self, norm_q: float) -> Jeffreys:
        """Prior of the rows at q, scales integrated out."""
        return Jeffreys(norm_q, self.shape, self.rate, self.offset)


class EMState(NamedTuple):
    """What changes from iteration to iteration, over the features that are still active."""

    tasks: ActiveTasks
    W: FloatArray  # (p, m)
    intercept: FloatArray  # (m,)
    noise: FloatArray  # (m,) sigma
    norm_q: float
    eta: FloatArray  # (N,) linear predictor
    active: BoolArray  # which of the features of the start they are
    zero_rows: FloatArray = np.empty(0)  # sizes of the rows that are zero for good
    relations: Relations = task_relations.unrelated(0)  # of the tasks, in `matrix_variate`


ExponentRule = Callable[[EMState, EMState], float]  # new q from the states before and after an M-step


# ---------------------------------------------------------------------- objective


def objective(state: EMState, settings: EMSettings) -> float:
    """Minus the log-posterior, scales integrated out."""
    return active_objective(state, settings) + pruned_value(settings, state.zero_rows)


def active_objective(state: EMState, settings: EMSettings) -> float:
    """Its terms without the rows that are zero for good."""
    blocks = state.tasks.blocks
    rows = settings.prior(state.norm_q).negative_log_density(floored(blocks.gather(state.W)), blocks.sizes)
    return data_terms(state) + rows


def data_terms(state: EMState) -> float:
    """Minus the log-likelihood, over sigma^2 where a sigma is given that is not the loss's own."""
    losses, counts = state.tasks.losses(state.eta), state.tasks.counts
    own = float(counts @ np.log(state.noise)) if state.tasks.family.quadratic else 0.0
    return float(np.sum(losses / state.noise**2)) + own


def floored(rows: FloatArray) -> FloatArray:
    """Rows, lengthened to `ROW_FLOOR` where they are shorter than that in every entry."""
    short = np.max(np.abs(rows), axis=1, initial=0.0) < ROW_FLOOR
    if not short.any():
        return rows
    lengthened = rows.copy()
    lengthened[short] = 0.0
    lengthened[short, 0] = ROW_FLOOR
    return lengthened


def pruned_value(settings: EMSettings, sizes: FloatArray) -> float:
    """What zero rows of these sizes count: rows of norm `ROW_FLOOR` at q = 2, so that q does not see them."""
    if len(sizes) == 0:
        return 0.0
    rows = np.full((len(sizes), 1), ROW_FLOOR)
    return settings.prior(2.0).negative_log_density(rows, sizes.astype(np.int64))


# ---------------------------------------------------------------------- steps of EM


def expected_scales(tasks: ActiveTasks, V: FloatArray, norm_q: float, settings: EMSettings) -> FloatArray:
    """(p, 1) E-step: ``rho = E[rho^-q]^(-1/q)`` of the row of every feature."""
    log_weights = settings.prior(norm_q).log_em_weights(tasks.blocks.gather(V), tasks.blocks.sizes)
    return np.exp(-log_weights / norm_q)[tasks.blocks.row_of_feature][:, np.newaxis]


def update_coefficients(state: EMState, settings: EMSettings) -> EMState:
    """E-step, and M-step for W and b (eq. 9): steps that lower every task's penalised loss."""
    present = state.tasks.present
    scales = expected_scales(state.tasks, state.W, state.norm_q, settings)
    scales = np.broadcast_to(scales, state.W.shape) if present is None else np.where(present, scales, 0.0)
    return minimise_given_scales(state, scales)


def minimise_given_scales(state: EMState, scales: FloatArray) -> EMState:
    """Steps of W and b at given scales rho (p, m)."""
    exact = state.tasks.family.quadratic and state.norm_q == 2.0
    for _ in range(1 if exact else INNER_STEPS):
        model = quadratic_model(state)
        step = row_ridge_step(model.curv, state.noise**-2.0, model.gradient, state.W, scales, state.norm_q)
        along = states_along(state, model, step)
        state = along(np.ones_like(state.noise)) if exact else _line_search(state, scales, along)
    return state


class QuadraticModel(NamedTuple):
    """Quadratic model of the losses over sigma^2 at a state."""

    curv: Curvature
    gradient: FloatArray  # (p, m) in W, with the best move of the intercept taken out
    intercept_move: FloatArray  # (m,) that move, on centred features


def quadratic_model(state: EMState) -> QuadraticModel:
    """Gradient and curvature at the linear predictor."""
    tasks, precision = state.tasks, state.noise**-2.0
    theta = tasks.weight * tasks.family.gradient(tasks.y, state.eta) * precision[tasks.task]
    curv = tasks.curvature_at(state.eta)
    sums = tasks.sums(theta) if tasks.fit_intercept else np.zeros(tasks.n_tasks)
    totals = precision * curv.totals
    move = -np.divide(sums, totals, out=np.zeros_like(sums), where=totals > 0)
    return QuadraticModel(curv, tasks.adjoint(theta) - curv.means * sums, move)


def states_along(state: EMState, model: QuadraticModel, step: FloatArray) -> Callable[[FloatArray], EMState]:
    """States on the way along a step of W, and of b with it, by the share (m,) of it that each task goes."""
    move = model.intercept_move - np.einsum("pm,pm->m", model.curv.means, step)
    eta_step = state.tasks.linear_predictor(step, move)

    def along(share: FloatArray) -> EMState:
        eta = state.eta + share[state.tasks.task] * eta_step
        return state._replace(W=state.W + share * step, intercept=state.intercept + share * move, eta=eta)

    return along


def _line_search(state: EMState, scales: FloatArray, along: Callable[[FloatArray], EMState]) -> EMState:
    """Go a step that is halved in the tasks where it does not lower the penalised loss, or where that is not finite."""

    def values(at: EMState) -> FloatArray:
        """(m,) Loss and ``sum_j |w_j / rho_j|^q`` of each task."""
        V = np.divide(at.W, scales, out=np.zeros_like(at.W), where=scales > 0)
        with np.errstate(over="ignore"):
            return state.noise**-2.0 * state.tasks.losses(at.eta) + np.sum(np.abs(V) ** state.norm_q, axis=0)

    before, share = values(state), np.ones_like(state.noise)
    while True:
        after = along(share)
        worse = ~(values(after) <= before + ROUNDING * np.abs(before))
        if not worse.any():
            return after
        share[worse] = np.where(share[worse] > SHORTEST_STEP, share[worse] / 2, 0.0)


def noise_of(squares: FloatArray, counts: FloatArray, settings: EMSettings) -> FloatArray:
    """(m,) Sigma that goes with the squared residuals and the number of observations of every task."""
    variances = np.full(len(counts), squares.sum() / counts.sum()) if settings.shared_noise else squares / counts
    return np.maximum(np.sqrt(variances), settings.noise_floor)


def update_noise(state: EMState, settings: EMSettings) -> EMState:
    """``sigma_t^2 = 2 L_t / n_t``, not below its floor."""
    if not settings.learn_noise:
        return state
    return state._replace(noise=noise_of(2.0 * state.tasks.losses(state.eta), state.tasks.counts, settings))


def begin(
    tasks: ActiveTasks, W: FloatArray, intercept: FloatArray, settings: EMSettings, zero_rows: FloatArray = NO_ROWS
) -> EMState:
    """State of a start, with the noise that its residuals have; its zero rows are left out."""
    noise, eta = np.full(tasks.n_tasks, settings.noise), tasks.linear_predictor(W, intercept)
    state = EMState(tasks, W, intercept, noise, settings.norm_q, eta, np.ones(len(W), dtype=bool), zero_rows)
    return drop_rows(update_noise(state, settings), settings)


def drop_rows(state: EMState, settings: EMSettings) -> EMState:
    """Leave out the rows below `PRUNED`."""
    blocks = state.tasks.blocks
    small = np.max(np.abs(blocks.gather(state.W)), axis=1, initial=0.0) < PRUNED
    if not small.any():
        return state
    kept: BoolArray = ~small[blocks.row_of_feature]
    tasks, W = state.tasks.restricted(kept), state.W[kept]
    intercept = state.intercept if kept.any() else tasks.null_intercept()
    active, eta = state.active.copy(), tasks.linear_predictor(W, intercept)
    active[active] = kept
    zero_rows = np.concatenate([state.zero_rows, blocks.sizes[small]])
    fewer = state._replace(tasks=tasks, W=W, intercept=intercept, eta=eta, active=active, zero_rows=zero_rows)
    return update_noise(fewer, settings)


def rescale_rows(before: EMState, state: EMState, settings: EMSettings) -> EMState:
    """Stretch or shrink whole rows, where that lowers the objective (see `ridge.best_factors`)."""
    blocks, model = state.tasks.blocks, quadratic_model(state)
    rows = blocks.row_of_feature
    falling = np.less(*(row_norms(blocks.gather(W), state.norm_q) for W in (state.W, before.W)))
    factors = best_factors(model.curv, state.noise**-2.0, model.gradient, state.W, rows, blocks.sizes, falling)
    step = state.W * (factors[rows] - 1.0)[:, np.newaxis]
    after = states_along(state, model, step)(np.ones_like(state.noise))
    return after if active_objective(after, settings) < active_objective(state, settings) else state


def iterate(state: EMState, settings: EMSettings, rule: ExponentRule | None) -> EMState:
    """One iteration of EM on the active features."""
    after = update_coefficients(state, settings)
    if state.norm_q > 2.0 and settings.improper:
        after = rescale_rows(state, after, settings)
    after = update_noise(after, settings)
    return after if rule is None else after._replace(norm_q=rule(state, after))


def largest_change(before: EMState, after: EMState) -> float:
    """Largest change of a coefficient, of ln sigma, of 1/q and of a correlation of tasks."""
    noise = float(np.max(np.abs(np.log(after.noise / before.noise))))
    change = float(np.max(np.abs(after.W - before.W), initial=0.0))
    related = 0.0
    if after.relations is not before.relations:
        related = float(np.max(np.abs(after.relations.matrix - before.relations.matrix)))
    return max(change, noise, abs(1.0 / after.norm_q - 1.0 / before.norm_q), related)


# ---------------------------------------------------------------------- EM


def solve(
    state: EMState, settings: EMSettings, rule: ExponentRule | None = None, progress: bool | None = None
) -> tuple[Solution, EMState]:
    """Run EM from the state of a start; its zero rows stay so. ``rule`` says how q follows W, None that it does not."""
    step, value = partial(iterate, settings=settings, rule=rule), partial(objective, settings=settings)
    simple = rule is None and is_simple(state.tasks, settings)
    search = RidgeSearch(state, settings) if simple else GeneralSearch(state, settings, step, value)
    return descend(search, value(state), progress)


def descend(search: "GeneralSearch | RidgeSearch", first: float, progress: bool | None) -> tuple[Solution, EMState]:
    """Iterate from the objective ``first``: the solution over all features of the start, and the last state."""
    trace, converged, most = [first], False, search.settings.max_iter
    with Progress("EM", progress) as work:
        while not converged and len(trace) <= most and search.n_active:
            change, value = search.step(trace[-1])
            trace.append(value)
            converged = change <= search.settings.tol
            work.update(len(trace) / most, f"{search.n_active} features")
    state, n_iter = search.end(), len(trace) - 1
    log.debug("EM: %d iterations, %d active features, objective %g", n_iter, len(state.W), trace[-1])
    W = np.zeros((len(state.active), len(state.noise)))
    W[state.active] = state.W
    ended = (converged or len(state.W) == 0, n_iter, np.array(trace), work.interrupted, state.noise)
    return Solution(W, state.intercept, trace[-1], math.nan, math.nan, *ended), state


class GeneralSearch:
    """EM for any loss, any q, groups and absent features, by an iteration and an objective."""

    def __init__(
        self,
        state: EMState,
        settings: EMSettings,
        iterate: Callable[[EMState], EMState],
        objective: Callable[[EMState], float],
    ) -> None:
        self.state, self.settings, self.iterate, self.objective = state, settings, iterate, objective
        self.n_active = len(state.W)

    def step(self, last: float) -> tuple[float, float]:
        """One iteration from the objective ``last``: the largest change, and the new objective."""
        before, after = self.state, self.iterate(self.state)
        kept = drop_rows(after, self.settings)
        value = self.objective(kept)
        if kept is not after and not value <= last + ROUNDING * abs(last):
            kept, value = after, self.objective(after)  # a proper prior holds on to rows that became zero
        self.state, self.n_active = kept, len(kept.W)
        return largest_change(before, after), value

    def end(self) -> EMState:
        """What there is."""
        return self.state


def is_simple(tasks: ActiveTasks, settings: EMSettings) -> bool:
    """Whether every step is a ridge regression on rows that are single features, which all tasks have."""
    plain = settings.norm_q == 2.0 and settings.improper and tasks.family.quadratic and len(tasks.row_labels) > 0
    return plain and tasks.blocks.positions is None


class RidgeSearch:
    """EM where every step is a ridge regression (`ridge.LeastSquares`): the same numbers, faster."""

    def __init__(self, state: EMState, settings: EMSettings) -> None:
        tasks = state.tasks
        self.first, self.settings = state, settings
        self.W, self.noise, self.active = state.W, state.noise, np.arange(len(state.W))
        self.n_active = len(state.W)
        self.sums = LeastSquares.of(tasks.curvature_at(state.eta), [self._target(tasks, *span) for span in tasks.spans])
        size = np.array([tasks.n_tasks])
        self.active_value = Jeffreys(2.0).negative_log_density(np.eye(1, size[0]), size)  # of a row of norm 1
        self.zero_value = pruned_value(settings, size.astype(np.float64))
        self.zeros = pruned_value(settings, state.zero_rows)

    def step(self, last: float) -> tuple[float, float]:
        """One iteration: the largest change, and the new objective."""
        settings, counts, sums, active = self.settings, self.first.tasks.counts, self.sums, self.active
        W, noise, zeros = sums.improved(self.W, self.noise), self.noise, self.zeros
        change = float(np.max(np.abs(W - self.W)))
        kept: BoolArray = np.max(np.abs(W), axis=1) >= PRUNED
        if not kept.all():
            sums, W, active = sums.restricted(kept), W[kept], active[kept]
            zeros += self.zero_value * float(np.sum(~kept))
        squares = sums.residual_squares(W)
        if settings.learn_noise:
            noise = noise_of(squares, counts, settings)
        change = max(change, float(np.max(np.abs(np.log(noise / self.noise)))))
        rows = 0.5 * len(counts) * float(np.sum(np.log(np.einsum("pm,pm->p", W, W)))) + self.active_value * len(active)
        self.sums, self.W, self.noise, self.zeros = sums, W, noise, zeros
        self.active, self.n_active = active, len(active)
        return change, float(0.5 * squares @ noise**-2.0 + counts @ np.log(noise)) + rows + zeros

    def end(self) -> EMState:
        """What there is, with the best intercepts."""
        tasks = self.first.tasks
        W = np.zeros_like(self.first.W)
        W[self.active] = self.W
        eta = tasks.linear_predictor(W, np.zeros(tasks.n_tasks))
        intercept = np.zeros(tasks.n_tasks)
        if tasks.fit_intercept:
            intercept = tasks.sums(tasks.weight * (tasks.y - eta)) / tasks.counts
        eta = eta + intercept[tasks.task]
        return drop_rows(self.first._replace(W=W, intercept=intercept, noise=self.noise, eta=eta), self.settings)

    @staticmethod
    def _target(tasks: ActiveTasks, start: int, stop: int) -> FloatArray:
        """(n_t,) Weighted target of a task, centred where there is an intercept."""
        weight, y = tasks.weight[start:stop], tasks.y[start:stop]
        return np.sqrt(weight) * (y - (weight @ y / weight.sum() if tasks.fit_intercept else 0.0))


# ---------------------------------------------------------------------- whole fits


@dataclass(frozen=True)
class JeffreysSettings:
    """What a fit is told."""

    norm_q: float | None = 2.0  # None learns it
    q_learning: QLearning = "two_stage"
    q_bounds: tuple[float, float] = (1.0, 50.0)  # of a learned q, finite
    start_strength: float = 0.01  # penalty of the mixed-norm start, as a share of the smallest one at which W = 0
    noise_floor: float | None = None  # least sigma in units of sd(y); None searches it
    em: EMSettings = EMSettings()  # prior and stopping rule; its norm_q and noise_floor are set here
    random_seed: int = 0  # of q_learning="integrated"


class JeffreysFit(NamedTuple):
    """A fit in the user's units."""

    solution: Solution
    norm_q: float
    exponent: LearnedExponent | None  # where q was learned
    coef_std: FloatArray | None = None  # (p, m) posterior deviations, where coefficients were integrated out
    noise_floor: float = 0.0  # that was used, in units of sd(y)
    mean: FloatArray | None = None  # (p,) w_0, where the tasks share a mean


def mixed_norm_start(problem: EMProblem, share: float) -> Solution:
    """Mixed-norm fit (q = 2) with a penalty that does not depend on the units of the features."""
    data, family, fit_intercept, units = problem
    blocks = rows_of(data)
    weights = np.zeros(blocks.n_rows)
    weights[blocks.row_of_feature] = units.feature
    convex = Problem(data, family, RowPenalty(0.0, 2.0, weights=weights), data.weight, fit_intercept)
    found = automatic.solve(convex.with_strength(share * convex.largest_penalty), tol=START_TOL)
    if found.interrupted:
        raise KeyboardInterrupt  # half a start is nothing to go on from
    return found


def unitless_problem(problem: EMProblem, norm_q: float) -> Problem:
    """The convex problem with a mixed norm, in the units in which EM works."""
    data, family, fit_intercept, units = problem
    factor = np.broadcast_to(1.0 / units.feature[:, np.newaxis], (data.n_features, data.n_tasks))
    unitless = scaled(data, factor).with_target(np.asarray(data.y, dtype=np.float64) / units.target)
    return Problem(unitless, family, RowPenalty(1.0, norm_q), data.weight, fit_intercept)


def fit(
    problem: EMProblem, settings: JeffreysSettings, start: Solution | None = None, progress: bool | None = None
) -> JeffreysFit:
    """Fit all tasks; a ``start`` takes the place of the mixed-norm fit, and rows that are zero in it stay so."""
    start = mixed_norm_start(problem, settings.start_strength) if start is None else start
    if settings.norm_q == np.inf or settings.em.offset > 0.0:
        return _fit_by_tangents(problem, start, settings, progress)
    frame = frame_of(problem, start)
    em = replace(settings.em, norm_q=settings.norm_q or 2.0, learn_noise=problem.family.quadratic)
    found, em = _with_noise_floor(frame, em, settings.noise_floor, progress)
    norm_q, learned = em.norm_q, None
    if settings.norm_q is None:
        found, norm_q, learned = _with_learned_q(frame, found, em, settings, progress)
    return JeffreysFit(frame.to_user(found), norm_q, learned, noise_floor=em.noise_floor)


class Frame(NamedTuple):
    """A problem over the rows of a start."""

    problem: EMProblem
    counted: FloatArray  # (p, m) 1 for coefficients that count in the objective
    active: BoolArray  # (p,) features of the start
    tasks: ActiveTasks
    W: FloatArray  # (active, m) start
    intercept: FloatArray
    zero_rows: FloatArray  # sizes of the rows that the start does not have

    def begin(self, em: EMSettings, start: Solution | None = None) -> EMState:
        """State of the start of the problem, or of another one in its units."""
        W, intercept = (self.W, self.intercept) if start is None else (start.W, start.intercept)
        return begin(self.tasks, W, intercept, em, self.zero_rows)

    def to_user(self, found: Solution) -> Solution:
        """The solution in the user's units, with the Jacobian of the change of units in the objective."""
        data, units = self.problem.data, self.problem.units
        W = np.zeros((data.n_features, data.n_tasks))
        W[self.active] = found.W
        jacobian = float(np.sum(self.counted * np.log(units.target / units.feature)[:, np.newaxis]))
        trace = found.objective_trace + jacobian + float(data.weight.sum()) * np.log(units.target)
        return in_users_units(found._replace(W=W, objective=float(trace[-1]), objective_trace=trace), units)


def in_users_units(found: Solution, units: WithinTaskUnits) -> Solution:
    """Coefficients, intercepts and noise in the user's units."""
    noise = np.ones(found.W.shape[1]) if found.noise is None else found.noise
    W, intercept = units.to_user(found.W), found.intercept * units.target
    return found._replace(W=W, intercept=intercept, noise=noise * units.target)


def frame_of(problem: EMProblem, start: Solution, counted: BoolArray | None = None) -> Frame:
    """The problem over the rows of a start; ``counted`` (p,) are the features whose zero rows count, None all."""
    data, units = problem.data, problem.units
    rows = rows_of(data).row_of_feature
    nonzero = np.bincount(rows, weights=(start.W != 0).any(axis=1) & units.varies) > 0
    active: BoolArray = nonzero[rows] & units.varies
    entries = np.ones(start.W.shape) if data.present is None else data.present.astype(np.float64)
    if counted is not None:
        entries *= counted[:, np.newaxis]
    sizes = np.bincount(rows, weights=entries.sum(axis=1))
    zero_rows, intercept = sizes[~nonzero & (sizes > 0)], start.intercept / units.target
    W = units.from_user(start.W)[active]
    return Frame(problem, entries, active, activate(*problem, active), W, intercept, zero_rows)


# ---------------------------------------------------------------------- noise


def find_noise_floor(problem: EMProblem, start: Solution) -> float:
    """Floor of the noise at which the search for q = 2 ends, in the units of y."""
    found, em = _with_noise_floor(frame_of(problem, start), EMSettings(shared_noise=True), None, False)
    if found.interrupted:
        raise KeyboardInterrupt  # the floor is not known, and nothing was fitted at it
    return em.noise_floor * problem.units.target


def find_scale_floor(problem: Problem, start: Solution, settings: mm.MMSettings, unit: float) -> float:
    """The same for majorisation-minimisation of a family with `Family.weights`, in the units of y.

    ``unit`` is a deviation of the targets within tasks that outlying ones do not change.
    """
    rough, floor = replace(settings, tol=max(settings.tol, mm.STAGE_TOL)), FIRST_SCALE
    weight, y = problem.weight, np.asarray(problem.data.y, dtype=np.float64)
    total, levels = float(weight.sum()), problem.data.n_tasks * problem.fit_intercept
    while True:
        found, state = mm.solve_state(problem, start, replace(rough, noise_floor=floor * unit), progress=False)
        if found.interrupted:
            raise KeyboardInterrupt
        freedom = total - int((found.W != 0).sum()) - levels
        if freedom < LEAST_FREEDOM * total:
            return floor * unit
        noise = problem.family.best_noise(y - state.eta, weight) * math.sqrt(total / freedom)
        lower = max(FLOOR_SHARE * noise / unit, LOWEST_FLOOR)
        if lower > FLOOR_CHANGE * floor:
            return floor * unit
        floor = lower


def _with_noise_floor(
    frame: Frame, em: EMSettings, floor: float | None, progress: bool | None
) -> tuple[Solution, EMSettings]:
    """EM at the given floor, or at one that is searched."""
    searched = em.learn_noise and floor is None
    rough = replace(em, tol=max(em.tol, SEARCH_TOL)) if searched else em

    def run(floor: float) -> tuple[Solution, FloatArray]:
        em = replace(rough, noise_floor=floor)
        found, _ = solve(frame.begin(em), em, progress=progress)
        return found, frame.tasks.linear_predictor(found.W, found.intercept)

    found, last = _search_floor(run, frame.tasks, floor, searched)
    em = replace(em, noise_floor=last)
    if not searched or found.interrupted:
        return found, em
    # Go on with a finer tolerance; the trace goes on too
    left = replace(em, max_iter=max(em.max_iter - found.n_iter, 1))
    finer, _ = solve(frame.begin(em, found), left, progress=progress)
    trace = np.concatenate([found.objective_trace, finer.objective_trace[1:]])
    return finer._replace(objective_trace=trace, n_iter=len(trace) - 1), em


def _search_floor(
    run: Callable[[float], tuple[Solution, FloatArray]], tasks: ActiveTasks, floor: float | None, searched: bool
) -> tuple[Solution, float]:
    """Run at a floor, and at lower ones as long as the fit leaves clearly less unexplained: the last run and its floor.

    ``run`` gives a solution and its linear predictor.
    """
    lower: float | None = FIRST_FLOOR if floor is None else floor
    while lower is not None:
        last = lower
        found, eta = run(last)
        lower = _lowered(last, tasks, found.W, eta) if searched and not found.interrupted else None
    return found, last


def _lowered(floor: float, tasks: ActiveTasks, W: FloatArray, eta: FloatArray) -> float | None:
    """Next floor, from the residuals over their degrees of freedom; None where this one is low enough."""
    total = float(tasks.counts.sum())
    freedom = total - int((W != 0).sum()) - tasks.n_tasks * tasks.fit_intercept
    if freedom < LEAST_FREEDOM * total:
        return None
    lower = max(FLOOR_SHARE * float(np.sqrt(2.0 * tasks.losses(eta).sum() / freedom)), LOWEST_FLOOR)
    return lower if lower <= FLOOR_CHANGE * floor else None


def _fit_by_tangents(
    problem: EMProblem, start: Solution, settings: JeffreysSettings, progress: bool | None
) -> JeffreysFit:
    """Fit by majorisation-minimisation, in scaled units; a q that is learned is that of the rows of the fit at q = 2."""
    norm_q = settings.norm_q or 2.0
    found, floor = _minimise_tangents(problem, start, settings, norm_q, progress)
    learned = None
    if settings.norm_q is None:
        frame = frame_of(problem, found)
        scaled_fit = found._replace(W=frame.W, intercept=frame.intercept)
        learned = _learn_exponent(frame, scaled_fit, settings, problem.family.quadratic)
        if learned is not None:
            norm_q = learned.norm_q
            found, floor = _minimise_tangents(problem, found, settings, norm_q, progress)
    return JeffreysFit(found, norm_q, learned, noise_floor=floor)


def _minimise_tangents(
    problem: EMProblem, start: Solution, settings: JeffreysSettings, norm_q: float, progress: bool | None
) -> tuple[Solution, float]:
    """The fit at one q, and the floor of its noise."""
    family, units = problem.family, problem.units
    convex = unitless_problem(problem, norm_q)
    first = start._replace(W=units.from_user(start.W), intercept=start.intercept / units.target)
    noise, offset = None if family.quadratic else settings.em.noise, settings.em.offset or OFFSET_AT_INF
    tasks = activate(*problem, np.zeros(problem.data.n_features, dtype=bool))

    def run(floor: float) -> tuple[Solution, FloatArray]:
        stages = settings.em.offset == 0.0  # an offset of the user's, or of folds, comes with its start
        found = mm.solve(
            convex, first, mm.MMSettings(norm_q, offset, noise, floor, stages, settings.em.tol), progress=progress
        )
        return found, convex.data.linear_predictor(found.W, found.intercept)

    searched = noise is None and settings.noise_floor is None
    found, floor = _search_floor(run, tasks, settings.noise_floor, searched)
    return in_users_units(found, units), floor


# ---------------------------------------------------------------------- q


def _with_learned_q(
    frame: Frame, first: Solution, em: EMSettings, settings: JeffreysSettings, progress: bool | None
) -> tuple[Solution, float, LearnedExponent | None]:
    """Learn q from the fit at q = 2, or inside EM, and fit at it."""
    if settings.q_learning in ("ecme", "paper"):
        found, state = solve(frame.begin(em), em, _exponent_rule(frame, settings), progress)
        return found, state.norm_q, _profile(frame, found, state.norm_q, settings.q_bounds)
    learned = _learn_exponent(frame, first, settings, em.learn_noise)
    if learned is None:
        return first, em.norm_q, None
    em = replace(em, norm_q=learned.norm_q)
    return solve(frame.begin(em, first), em, progress=progress)[0], learned.norm_q, learned


def _learn_exponent(
    frame: Frame, first: Solution, settings: JeffreysSettings, own_noise: bool
) -> LearnedExponent | None:
    """What the active rows of a fit at q = 2 say about q; None where there is none."""
    kept = (first.W != 0).any(axis=1)
    if not kept.any() or first.noise is None:
        return None
    tasks, W = frame.tasks.restricted(kept), first.W[kept]
    eta, integrated = tasks.linear_predictor(W, first.intercept), settings.q_learning == "integrated"
    noise = first.noise if own_noise else np.ones_like(first.noise)
    return exponent.learn(tasks, W, eta, noise, settings.q_bounds, integrated, settings.random_seed)


def _profile(frame: Frame, found: Solution, norm_q: float, bounds: tuple[float, float]) -> LearnedExponent | None:
    """What the rows of the mode say about q, at face value."""
    rows, sizes = frame.tasks.blocks.gather(found.W), frame.tasks.blocks.sizes
    kept = rows.any(axis=1)
    if not kept.any():
        return None
    profile = exponent.posterior(lambda q: -Jeffreys(q).negative_log_density(rows[kept], sizes[kept]), bounds)
    return profile._replace(norm_q=norm_q)


def _exponent_rule(frame: Frame, settings: JeffreysSettings) -> ExponentRule:
    """How q follows W: the exact rule, or the printed one, in the user's units and with all rows counted."""
    units, n_features = frame.problem.units, frame.problem.data.n_features
    unit = units.target / units.feature[frame.active]

    def exact(before: EMState, after: EMState) -> float:
        rows, sizes = floored(after.tasks.blocks.gather(after.W)), after.tasks.blocks.sizes
        return exponent.marginal_maximum(rows, sizes, settings.q_bounds, after.norm_q, settings.em.prior)

    def printed(before: EMState, after: EMState) -> float:
        own = unit[np.isin(frame.tasks.row_labels, after.tasks.row_labels)]
        first, second = (floored(W) * own[:, np.newaxis] for W in (before.W, after.W))
        return exponent.printed_maximum(first, second, n_features, settings.q_bounds, after.norm_q)

    return exact if settings.q_learning == "ecme" else printed
