r"""EM for generalized normal rows under the Jeffreys prior: PMTFS1 of Zhang, Yeung and Xu 2010, section 4.2.

With the scales rho integrated out, EM minimises over W, b, sigma (and q)

    sum_t [ L_t(w_t, b_t) / sigma_t^2 + n_t ln sigma_t ] - sum_i ln p(w^i | q),

    -ln p(w | q) = m ln ||w||_q + m ln Gamma(1 + 1/q) - ln Gamma(1 + m/q) + constant   (the marginal of eq. 7 and 8),

L_t the sum of the losses of task t (1/2 r^2; other losses have no sigma) and n_t its number of observations. The E-step
is ``E[rho_i^-q] = m / (q ||w^i||_q^q)``, the M-step a penalised fit per task (eq. 9, see `ridge`) and
``sigma_t^2 = 2 L_t / n_t``.

Differences from the paper:

- the objective is unbounded at a zero row and, with p > n, at sigma = 0. A row whose norm falls below `PRUNED` becomes
  exactly zero, stays so, and counts as a row of norm `ROW_FLOOR`; sigma is at least ``noise_floor`` x sd(y);
- coefficients are in units of sd(y) / sd(x) (see `active_tasks`), so that no result depends on the units of X or y;
- optionally ``rho^-q ~ Gamma(shape, rate)`` instead of Jeffreys (shape = rate = 0);
- losses that are not quadratic by Newton steps inside the M-step, each of which lowers the objective;
- q is held fixed, or updated after each M-step by a rule that is passed in: the exact maximum of the marginal, which
  lowers the objective too, or the printed one, which may not (see `exponent`).

A whole fit (`fit`) needs three decisions that the paper leaves open:

- the start. From a ridge fit EM collapses to W = 0, an infinite optimum, on data with more features than rows; it
  begins at a mixed-norm fit with a small penalty, whose rows are all that EM can keep;
- the floor of the noise. With more features than rows EM interpolates and sigma goes to 0. The floor begins at half of
  sd(y) and is lowered, each time from the same start, as long as what the remaining rows leave unexplained (residual
  over degrees of freedom) is clearly below it;
- q, learned from the active rows of the fit at q = 2, or inside EM (`exponent`).

At q = inf the E-step has no expectation; there the same objective is minimised by `mm`, with one noise for all tasks.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from bayesmtfs.convex import automatic
from bayesmtfs.convex.problem import Problem
from bayesmtfs.data.scaling import WithinTaskUnits, scaled, within_task_units
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.em import exponent, mm
from bayesmtfs.em.active_tasks import ActiveTasks, activate, rows_of
from bayesmtfs.em.exponent import LearnedExponent
from bayesmtfs.em.ridge import Curvature, LeastSquares, best_factors, row_ridge_step
from bayesmtfs.families import Family
from bayesmtfs.priors.generalized_normal import Jeffreys
from bayesmtfs.priors.row_penalty import RowPenalty, row_norms
from bayesmtfs.progress import Progress
from bayesmtfs.types import BoolArray, FloatArray, IntArray, Solution

ROW_FLOOR = 1e-8  # norm that a zero row counts with, in units of sd(y) / sd(x)
PRUNED = 1e-6  # norm below which a row becomes zero, in the same units
INNER_STEPS = 3  # of the M-step, where one step is not exact
SHORTEST_STEP = 2.0**-30
ROUNDING = 1e-13  # of an objective, relative
START_TOL = 1e-4
SEARCH_TOL = 1e-3  # of EM while the floor of the noise is searched
FIRST_FLOOR = 0.5  # of the noise, in units of sd(y)
LOWEST_FLOOR = 1e-4
FLOOR_SHARE = 0.8  # of the unexplained deviation that becomes the next floor
FLOOR_CHANGE = 0.8  # ratio of two floors above which the search ends
LEAST_FREEDOM = 0.3  # share of the observations that must remain as degrees of freedom
OFFSET_AT_INF = 1e-4  # in units of sd(y) / sd(x)

QLearning = Literal["two_stage", "integrated", "ecme", "paper"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EMSettings:
    """What EM is told."""

    norm_q: float = 2.0  # finite; the first value where q is updated
    shape: float = 0.0  # of the Gamma prior of rho^-q; 0 and a rate of 0 is Jeffreys
    rate: float = 0.0
    noise_floor: float = 0.1  # least sigma_t, in units of sd(y)
    learn_noise: bool = True  # squared loss only
    shared_noise: bool = False  # one sigma for all tasks
    tol: float = 1e-6  # largest change of a coefficient, in units of sd(y) / sd(x), at which EM has converged
    max_iter: int = 500

    @property
    def improper(self) -> bool:
        """Whether the scales have the Jeffreys prior itself."""
        return self.shape == self.rate == 0.0

    def prior(self, norm_q: float) -> Jeffreys:
        """Prior of the rows at q, scales integrated out."""
        return Jeffreys(norm_q, self.shape, self.rate)


class EMState(NamedTuple):
    """What changes from iteration to iteration; W holds active features only."""

    W: FloatArray  # (p, m)
    intercept: FloatArray  # (m,)
    noise: FloatArray  # (m,) sigma, ones where it is not learned
    norm_q: float
    eta: FloatArray  # (N,) linear predictor


ExponentRule = Callable[[ActiveTasks, EMState, EMState], float]  # new q from the states before and after an M-step


class EMOutcome(NamedTuple):
    """Where EM ended, over all features it began with."""

    W: FloatArray  # (p, m)
    intercept: FloatArray
    noise: FloatArray
    norm_q: float
    objective_trace: FloatArray
    converged: bool
    interrupted: bool

    @property
    def n_iter(self) -> int:
        """Number of iterations."""
        return len(self.objective_trace) - 1


# ---------------------------------------------------------------------- objective


def objective(tasks: ActiveTasks, state: EMState, settings: EMSettings, zero_rows: FloatArray) -> float:
    """Minus the log-posterior, scales integrated out; ``zero_rows`` are the sizes of rows that are zero for good."""
    prior = settings.prior(state.norm_q)
    rows = prior.negative_log_density(floored(tasks.blocks.gather(state.W)), tasks.blocks.sizes)
    return data_terms(tasks, state) + rows + pruned_value(settings, zero_rows)


def data_terms(tasks: ActiveTasks, state: EMState) -> float:
    """Minus the log-likelihood."""
    return float(np.sum(tasks.losses(state.eta) / state.noise**2)) + float(tasks.counts @ np.log(state.noise))


def floored(rows: FloatArray) -> FloatArray:
    """Rows, lengthened to `ROW_FLOOR` where they are shorter than that in every entry."""
    peaks = np.max(np.abs(rows), axis=1, initial=0.0)
    short = peaks < ROW_FLOOR
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


def update_coefficients(tasks: ActiveTasks, state: EMState, settings: EMSettings, fixed: Curvature | None) -> EMState:
    """E-step, and M-step for W and b (eq. 9): steps that lower every task's penalised loss."""
    scales = expected_scales(tasks, state.W, state.norm_q, settings)
    scales = np.broadcast_to(scales, state.W.shape) if tasks.present is None else np.where(tasks.present, scales, 0.0)
    return minimise_given_scales(tasks, state, scales, fixed)


def minimise_given_scales(tasks: ActiveTasks, state: EMState, scales: FloatArray, fixed: Curvature | None) -> EMState:
    """Steps of W and b at given scales rho (p, m); ``fixed`` is the curvature of the squared loss."""
    exact = fixed is not None and state.norm_q == 2.0
    for _ in range(1 if exact else INNER_STEPS):
        model = quadratic_model(tasks, state, fixed)
        step = row_ridge_step(model.curv, state.noise**-2.0, model.gradient, state.W, scales, state.norm_q)
        move = model.intercept_step(step)
        state = moved(tasks, state, step, move) if exact else _line_search(tasks, state, scales, step, move)
    return state


class QuadraticModel(NamedTuple):
    """Quadratic model of the losses at a state."""

    curv: Curvature
    gradient: FloatArray  # (p, m) in W, with the best move of the intercept taken out
    intercept_move: FloatArray  # (m,) that move, on centred features

    def intercept_step(self, step: FloatArray) -> FloatArray:
        """(m,) Move of the intercepts that goes with a step of W."""
        move: FloatArray = self.intercept_move - np.einsum("pm,pm->m", self.curv.means, step)
        return move


def quadratic_model(tasks: ActiveTasks, state: EMState, fixed: Curvature | None) -> QuadraticModel:
    """Gradient and curvature of the losses over sigma^2 at the current linear predictor."""
    precision = state.noise**-2.0
    theta = tasks.weight * tasks.family.gradient(tasks.y, state.eta) * precision[tasks.task]
    curv = tasks.curvature_at(state.eta) if fixed is None else fixed
    sums = tasks.sums(theta) if tasks.fit_intercept else np.zeros(tasks.n_tasks)
    totals = precision * curv.totals
    move = -np.divide(sums, totals, out=np.zeros_like(sums), where=totals > 0)
    return QuadraticModel(curv, tasks.adjoint(theta) - curv.means * sums, move)


def moved(tasks: ActiveTasks, state: EMState, step: FloatArray, move: FloatArray) -> EMState:
    """Go a whole step of W and b."""
    eta = state.eta + tasks.linear_predictor(step, move)
    return state._replace(W=state.W + step, intercept=state.intercept + move, eta=eta)


def _line_search(tasks: ActiveTasks, state: EMState, scales: FloatArray, step: FloatArray, move: FloatArray) -> EMState:
    """Go a step that is halved in the tasks where it does not lower the penalised loss, or where that is not finite."""
    precision = state.noise**-2.0
    before = precision * tasks.losses(state.eta) + _penalties(state.W, scales, state.norm_q)
    eta_step = tasks.linear_predictor(step, move)
    share = np.ones(tasks.n_tasks)
    while True:
        W, eta = state.W + share * step, state.eta + share[tasks.task] * eta_step
        after = precision * tasks.losses(eta) + _penalties(W, scales, state.norm_q)
        worse = ~(after <= before + ROUNDING * np.abs(before))
        if not worse.any():
            return state._replace(W=W, intercept=state.intercept + share * move, eta=eta)
        share[worse] = np.where(share[worse] > SHORTEST_STEP, share[worse] / 2, 0.0)


def _penalties(W: FloatArray, scales: FloatArray, norm_q: float) -> FloatArray:
    """(m,) ``sum_j |w_j / rho_j|^q`` of each task."""
    V = np.divide(W, scales, out=np.zeros_like(W), where=scales > 0)
    with np.errstate(over="ignore"):
        sums: FloatArray = np.sum(np.abs(V) ** norm_q, axis=0)
    return sums


def noise_of(squares: FloatArray, counts: FloatArray, settings: EMSettings) -> FloatArray:
    """(m,) Sigma that goes with the squared residuals and the number of observations of every task."""
    variances = np.full(len(counts), squares.sum() / counts.sum()) if settings.shared_noise else squares / counts
    return np.maximum(np.sqrt(variances), settings.noise_floor)


def update_noise(tasks: ActiveTasks, state: EMState, settings: EMSettings) -> EMState:
    """``sigma_t^2 = 2 L_t / n_t``, not below its floor."""
    if not settings.learn_noise:
        return state
    return state._replace(noise=noise_of(2.0 * tasks.losses(state.eta), tasks.counts, settings))


class Working(NamedTuple):
    """The features that are still active."""

    tasks: ActiveTasks
    fixed: Curvature | None  # of the squared loss
    features: IntArray  # their numbers among those of the start
    zero_rows: FloatArray  # sizes of the rows that are zero for good


def begin(
    tasks: ActiveTasks, W: FloatArray, intercept: FloatArray, settings: EMSettings, zero_rows: FloatArray | None
) -> tuple[Working, EMState]:
    """Features and state of a start, with the noise that its residuals have; its zero rows are left out."""
    state = EMState(W, intercept, np.ones(tasks.n_tasks), settings.norm_q, tasks.linear_predictor(W, intercept))
    zero_rows = np.empty(0) if zero_rows is None else zero_rows
    working = Working(tasks, tasks.fixed_curvature, np.arange(len(tasks.row_labels)), zero_rows)
    return drop_rows(working, update_noise(tasks, state, settings), settings)


def drop_rows(working: Working, state: EMState, settings: EMSettings) -> tuple[Working, EMState]:
    """Leave out the rows below `PRUNED`."""
    tasks = working.tasks
    small = np.max(np.abs(tasks.blocks.gather(state.W)), axis=1, initial=0.0) < PRUNED
    if not small.any():
        return working, state
    kept: BoolArray = ~small[tasks.blocks.row_of_feature]
    fewer = Working(
        tasks=tasks.restricted(kept),
        fixed=None if working.fixed is None else working.fixed.restricted(kept),
        features=working.features[kept],
        zero_rows=np.concatenate([working.zero_rows, tasks.blocks.sizes[small]]),
    )
    intercept = state.intercept if kept.any() else fewer.tasks.null_intercept()
    W = state.W[kept]
    state = state._replace(W=W, intercept=intercept, eta=fewer.tasks.linear_predictor(W, intercept))
    return fewer, update_noise(fewer.tasks, state, settings)


def rescale_rows(working: Working, before: EMState, state: EMState, settings: EMSettings) -> EMState:
    """Stretch or shrink whole rows, where that lowers the objective (see `ridge.best_factors`)."""
    tasks = working.tasks
    model, rows = quadratic_model(tasks, state, working.fixed), tasks.blocks.row_of_feature
    falling = np.less(*(row_norms(tasks.blocks.gather(W), state.norm_q) for W in (state.W, before.W)))
    factors = best_factors(model.curv, state.noise**-2.0, model.gradient, state.W, rows, tasks.blocks.sizes, falling)
    step = state.W * (factors[rows] - 1.0)[:, np.newaxis]
    after = moved(tasks, state, step, model.intercept_step(step))
    none = np.empty(0)
    return after if objective(tasks, after, settings, none) < objective(tasks, state, settings, none) else state


def iterate(working: Working, state: EMState, settings: EMSettings, rule: ExponentRule | None) -> EMState:
    """One iteration of EM on the active features."""
    after = update_coefficients(working.tasks, state, settings, working.fixed)
    if state.norm_q > 2.0 and settings.improper:
        after = rescale_rows(working, state, after, settings)
    after = update_noise(working.tasks, after, settings)
    return after if rule is None else after._replace(norm_q=rule(working.tasks, state, after))


def largest_change(before: EMState, after: EMState) -> float:
    """Largest change of a coefficient, of ln sigma and of 1/q."""
    noise = float(np.max(np.abs(np.log(after.noise / before.noise))))
    change = float(np.max(np.abs(after.W - before.W), initial=0.0))
    return max(change, noise, abs(1.0 / after.norm_q - 1.0 / before.norm_q))


# ---------------------------------------------------------------------- EM


def solve(
    tasks: ActiveTasks,
    W: FloatArray,
    intercept: FloatArray,
    settings: EMSettings,
    *,
    exponent_rule: ExponentRule | None = None,
    zero_rows: FloatArray | None = None,
    progress: bool | None = None,
) -> EMOutcome:
    """Run EM from a start, in the units of `active_tasks`; rows that are zero stay so.

    ``exponent_rule`` says how q follows W, and ``zero_rows`` are the sizes of further rows that count in the objective.
    """
    working, state = begin(tasks, W, intercept, settings, zero_rows)
    trace = [objective(working.tasks, state, settings, working.zero_rows)]
    converged = False
    simple = exponent_rule is None and is_simple(working.tasks, settings)
    search = RidgeSearch(working, state, settings) if simple else GeneralSearch(working, state, settings, exponent_rule)
    with Progress("EM", progress) as work:
        while not converged and len(trace) <= settings.max_iter and search.n_active:
            change, value = search.step(trace[-1])
            trace.append(value)
            converged = change <= settings.tol
            work.update(len(trace) / settings.max_iter, f"{search.n_active} features")
    working, state = search.end()
    log.debug("EM: %d iterations, %d active features, objective %g", len(trace) - 1, len(state.W), trace[-1])
    return outcome_of(W.shape, working, state, trace, converged, work.interrupted)


def outcome_of(
    shape: tuple[int, ...], working: Working, state: EMState, trace: list[float], converged: bool, interrupted: bool
) -> EMOutcome:
    """Where EM ended, over all features."""
    full = np.zeros(shape)
    full[working.features] = state.W
    ended = converged or len(state.W) == 0
    return EMOutcome(full, state.intercept, state.noise, state.norm_q, np.array(trace), ended, interrupted)


class GeneralSearch:
    """EM for any loss, any q, groups and absent features."""

    def __init__(self, working: Working, state: EMState, settings: EMSettings, rule: ExponentRule | None) -> None:
        self.current = working, state
        self.settings, self.rule = settings, rule

    @property
    def n_active(self) -> int:
        """Number of active features."""
        return len(self.current[1].W)

    def step(self, last: float) -> tuple[float, float]:
        """One iteration from the objective ``last``: the largest change, and the new objective."""
        working, before = self.current
        after = iterate(working, before, self.settings, self.rule)
        smaller = drop_rows(working, after, self.settings)
        value = self._objective(*smaller)
        if smaller[0] is not working and not value <= last + ROUNDING * abs(last):
            # a proper prior holds on to rows that became zero
            smaller, value = (working, after), self._objective(working, after)
        self.current = smaller
        return largest_change(before, after), value

    def end(self) -> tuple[Working, EMState]:
        """What there is."""
        return self.current

    def _objective(self, working: Working, state: EMState) -> float:
        return objective(working.tasks, state, self.settings, working.zero_rows)


def is_simple(tasks: ActiveTasks, settings: EMSettings) -> bool:
    """Whether every step is a ridge regression on rows that are single features, which all tasks have."""
    plain = settings.norm_q == 2.0 and settings.improper and tasks.family.quadratic and len(tasks.row_labels) > 0
    return plain and tasks.blocks.positions is None


class RidgeSearch:
    """EM where every step is a ridge regression (`ridge.LeastSquares`): the same numbers, faster."""

    def __init__(self, working: Working, state: EMState, settings: EMSettings) -> None:
        tasks, curv = working.tasks, working.fixed
        assert curv is not None
        self.working, self.settings = working, settings
        self.W, self.noise, self.active = state.W, state.noise, np.arange(len(state.W))
        self.sums = LeastSquares.of(curv, [self._target(tasks, *span) for span in tasks.spans])
        size = np.array([tasks.n_tasks])
        self.active_value = Jeffreys(2.0).negative_log_density(np.eye(1, size[0]), size)  # of a row of norm 1
        self.zero_value = pruned_value(settings, size.astype(np.float64))
        self.zeros = pruned_value(settings, working.zero_rows)

    @property
    def n_active(self) -> int:
        """Number of active features."""
        return len(self.active)

    def step(self, last: float) -> tuple[float, float]:
        """One iteration: the largest change, and the new objective."""
        settings, counts, sums, active = self.settings, self.working.tasks.counts, self.sums, self.active
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
        self.sums, self.W, self.noise, self.active, self.zeros = sums, W, noise, active, zeros
        return change, float(0.5 * squares @ noise**-2.0 + counts @ np.log(noise)) + rows + zeros

    def end(self) -> tuple[Working, EMState]:
        """What there is, with the best intercepts."""
        tasks = self.working.tasks
        W = np.zeros((len(tasks.row_labels), tasks.n_tasks))
        W[self.active] = self.W
        eta = tasks.linear_predictor(W, np.zeros(tasks.n_tasks))
        intercept = np.zeros(tasks.n_tasks)
        if tasks.fit_intercept:
            intercept = tasks.sums(tasks.weight * (tasks.y - eta)) / tasks.counts
        state = EMState(W, intercept, self.noise, 2.0, eta + intercept[tasks.task])
        return drop_rows(self.working, state, self.settings)

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


class _Frame(NamedTuple):
    """The scaled problem and its start."""

    data: TaskData
    units: WithinTaskUnits
    active: BoolArray  # (p,) features of the start
    tasks: ActiveTasks
    W: FloatArray  # (active, m) start
    intercept: FloatArray
    zero_rows: FloatArray  # sizes of the rows that the start does not have


def mixed_norm_start(
    data: TaskData, family: Family, fit_intercept: bool, units: WithinTaskUnits, share: float
) -> Solution:
    """Mixed-norm fit (q = 2) with a penalty that does not depend on the units of the features."""
    blocks = rows_of(data)
    weights = np.zeros(blocks.n_rows)
    weights[blocks.row_of_feature] = units.feature
    problem = Problem(data, family, RowPenalty(0.0, 2.0, weights=weights), data.weight, fit_intercept)
    found = automatic.solve(problem.with_strength(share * problem.largest_penalty), tol=START_TOL)
    if found.interrupted:
        raise KeyboardInterrupt  # half a start is nothing to go on from
    return found


def fit(
    data: TaskData,
    family: Family,
    settings: JeffreysSettings,
    *,
    fit_intercept: bool = True,
    start: Solution | None = None,
    units: WithinTaskUnits | None = None,
    progress: bool | None = None,
) -> JeffreysFit:
    """Fit all tasks.

    Parameters
    ----------
    data, family : observations (labels are -1 and +1), and any smooth family with a curvature
    settings, fit_intercept : prior, noise, q; one intercept per task
    start : coefficients to begin from instead of the mixed-norm fit; rows that are zero stay so
    units : what 1 stands for; None finds it in the data
    progress : see `Progress`
    """
    units = within_task_units(data, fit_intercept, family.quadratic) if units is None else units
    if start is None:
        start = mixed_norm_start(data, family, fit_intercept, units, settings.start_strength)
    if settings.norm_q == np.inf:
        uniform, floor = _fit_uniform(data, family, fit_intercept, units, start, settings)
        return JeffreysFit(uniform, np.inf, None, noise_floor=floor)
    frame = _frame(data, family, fit_intercept, units, start)
    em = replace(settings.em, norm_q=settings.norm_q or 2.0, learn_noise=family.quadratic)
    outcome, em = _with_noise_floor(frame, em, settings.noise_floor, progress)
    learned = None
    if settings.norm_q is None:
        outcome, learned = _with_learned_q(frame, outcome, em, settings, progress)
    return JeffreysFit(_solution(frame, outcome), outcome.norm_q, learned, noise_floor=em.noise_floor)


def _frame(data: TaskData, family: Family, fit_intercept: bool, units: WithinTaskUnits, start: Solution) -> _Frame:
    blocks = rows_of(data)
    nonzero = np.bincount(blocks.row_of_feature, weights=(start.W != 0).any(axis=1) & units.varies) > 0
    active: BoolArray = nonzero[blocks.row_of_feature] & units.varies
    tasks = activate(data, family, fit_intercept, units, active)
    W = units.from_user(start.W)[active]
    absent = blocks.sizes[~nonzero]
    return _Frame(data, units, active, tasks, W, start.intercept / units.target, absent[absent > 0].astype(np.float64))


def _run(
    frame: _Frame,
    em: EMSettings,
    progress: bool | None,
    start: EMOutcome | None = None,
    rule: ExponentRule | None = None,
) -> EMOutcome:
    W, intercept = (frame.W, frame.intercept) if start is None else (start.W, start.intercept)
    return solve(frame.tasks, W, intercept, em, exponent_rule=rule, zero_rows=frame.zero_rows, progress=progress)


def _solution(frame: _Frame, outcome: EMOutcome) -> Solution:
    """The outcome in the user's units, with the Jacobian of the change of units in the objective."""
    data, units = frame.data, frame.units
    W = np.zeros((data.n_features, data.n_tasks))
    W[frame.active] = outcome.W
    present = np.ones(W.shape) if data.present is None else data.present
    jacobian = float(np.sum(present * np.log(units.target / units.feature)[:, np.newaxis]))
    trace = outcome.objective_trace + jacobian + float(data.weight.sum()) * np.log(units.target)
    return Solution(
        W=units.to_user(W),
        intercept=outcome.intercept * units.target,
        objective=float(trace[-1]),
        gap=float("nan"),
        scale=float("nan"),
        converged=outcome.converged,
        n_iter=outcome.n_iter,
        objective_trace=trace,
        interrupted=outcome.interrupted,
        noise=outcome.noise * units.target,
    )


# ---------------------------------------------------------------------- noise


def find_noise_floor(data: TaskData, family: Family, fit_intercept: bool, start: Solution) -> float:
    """Floor of the noise at which the search for q = 2 ends, in the units of y."""
    units = within_task_units(data, fit_intercept, family.quadratic)
    frame = _frame(data, family, fit_intercept, units, start)
    outcome, em = _with_noise_floor(frame, EMSettings(shared_noise=True), None, False)
    if outcome.interrupted:
        raise KeyboardInterrupt  # the floor is not known, and nothing was fitted at it
    return em.noise_floor * units.target


def _with_noise_floor(
    frame: _Frame, em: EMSettings, floor: float | None, progress: bool | None
) -> tuple[EMOutcome, EMSettings]:
    """EM at the given floor, or at one that is lowered as long as the fit leaves clearly less unexplained."""
    if not em.learn_noise or floor is not None:
        em = replace(em, noise_floor=FIRST_FLOOR if floor is None else floor)
        return _run(frame, em, progress), em
    lower: float | None = FIRST_FLOOR
    while lower is not None:
        em = replace(em, noise_floor=lower)
        outcome = _run(frame, replace(em, tol=max(em.tol, SEARCH_TOL)), progress)
        if outcome.interrupted:
            return outcome, em
        eta = frame.tasks.linear_predictor(outcome.W, outcome.intercept)
        lower = _lowered(em.noise_floor, frame.tasks, outcome.W, eta)
    # Go on with a finer tolerance; the trace goes on too
    left = max(em.max_iter - outcome.n_iter, 1)
    finer = _run(frame, replace(em, max_iter=left), progress, start=outcome)
    trace = np.concatenate([outcome.objective_trace, finer.objective_trace[1:]])
    return finer._replace(objective_trace=trace), em


def _lowered(floor: float, tasks: ActiveTasks, W: FloatArray, eta: FloatArray) -> float | None:
    """Next floor, from the residuals over their degrees of freedom; None where this one is low enough."""
    total = float(tasks.counts.sum())
    freedom = total - int((W != 0).sum()) - tasks.n_tasks * tasks.fit_intercept
    if freedom < LEAST_FREEDOM * total:
        return None
    lower = max(FLOOR_SHARE * float(np.sqrt(2.0 * tasks.loss(eta) / freedom)), LOWEST_FLOOR)
    return lower if lower <= FLOOR_CHANGE * floor else None


# ---------------------------------------------------------------------- q


def _with_learned_q(
    frame: _Frame, outcome: EMOutcome, em: EMSettings, settings: JeffreysSettings, progress: bool | None
) -> tuple[EMOutcome, LearnedExponent | None]:
    """Learn q, and fit at it."""
    if settings.q_learning in ("ecme", "paper"):
        rule = _ecme_rule(settings) if settings.q_learning == "ecme" else _printed_rule(frame, settings)
        found = _run(frame, em, progress, rule=rule)
        return found, _profile(frame, found, settings.q_bounds)
    kept = (outcome.W != 0).any(axis=1)
    if not kept.any():
        return outcome, None
    tasks, W = frame.tasks.restricted(kept), outcome.W[kept]
    eta = tasks.linear_predictor(W, outcome.intercept)
    method: Literal["two_stage", "integrated"] = "integrated" if settings.q_learning == "integrated" else "two_stage"
    learned = exponent.learn(tasks, W, eta, outcome.noise, settings.q_bounds, method, settings.random_seed)
    return _run(frame, replace(em, norm_q=learned.norm_q), progress, start=outcome), learned


def _profile(frame: _Frame, outcome: EMOutcome, bounds: tuple[float, float]) -> LearnedExponent | None:
    """What the rows of the mode say about q, at face value."""
    rows, sizes = frame.tasks.blocks.gather(outcome.W), frame.tasks.blocks.sizes
    kept = rows.any(axis=1)
    if not kept.any():
        return None
    profile = exponent.posterior(lambda q: exponent.row_profile(rows[kept], sizes[kept], q), bounds)
    return profile._replace(norm_q=outcome.norm_q)


def _ecme_rule(settings: JeffreysSettings) -> ExponentRule:
    def rule(tasks: ActiveTasks, before: EMState, after: EMState) -> float:
        rows = floored(tasks.blocks.gather(after.W))
        prior = (settings.em.shape, settings.em.rate)
        return exponent.marginal_maximum(rows, tasks.blocks.sizes, settings.q_bounds, after.norm_q, *prior)

    return rule


def _printed_rule(frame: _Frame, settings: JeffreysSettings) -> ExponentRule:
    """The rule as printed, in the user's units and with all rows counted."""
    unit = frame.units.target / frame.units.feature[frame.active]

    def rule(tasks: ActiveTasks, before: EMState, after: EMState) -> float:
        own = unit[np.isin(frame.tasks.row_labels, tasks.row_labels)]
        first, second = (floored(W) * own[:, np.newaxis] for W in (before.W, after.W))
        return exponent.printed_maximum(first, second, frame.data.n_features, settings.q_bounds, after.norm_q)

    return rule


def _fit_uniform(
    data: TaskData,
    family: Family,
    fit_intercept: bool,
    units: WithinTaskUnits,
    start: Solution,
    settings: JeffreysSettings,
) -> tuple[Solution, float]:
    """Fit at q = inf by majorisation-minimisation, in scaled units; the floor of its noise too."""
    factor = np.broadcast_to(1.0 / units.feature[:, np.newaxis], (data.n_features, data.n_tasks))
    unitless = scaled(data, factor).with_target(np.asarray(data.y, dtype=np.float64) / units.target)
    problem = Problem(unitless, family, RowPenalty(1.0, np.inf), data.weight, fit_intercept)
    first = start._replace(W=units.from_user(start.W), intercept=start.intercept / units.target)
    noise = None if family.quadratic else 1.0
    lower: float | None = FIRST_FLOOR if settings.noise_floor is None else settings.noise_floor
    tasks = activate(data, family, fit_intercept, units, np.zeros(data.n_features, dtype=bool))
    while lower is not None:
        floor = lower
        found = mm.solve(problem, first, mm.MMSettings(np.inf, OFFSET_AT_INF, noise, floor, tol=settings.em.tol))
        eta = unitless.linear_predictor(found.W, found.intercept)
        searched = noise is None and settings.noise_floor is None and not found.interrupted
        lower = _lowered(floor, tasks, found.W, eta) if searched else None
    sigma = np.ones(data.n_tasks) if found.noise is None else found.noise
    in_units = found._replace(
        W=units.to_user(found.W), intercept=found.intercept * units.target, noise=sigma * units.target
    )
    return in_units, floor
