r"""EM for generalized normal rows under the Jeffreys prior: PMTFS1 of Zhang, Yeung and Xu 2010, section 4.2.

With the scales rho integrated out, EM minimises over W, b, sigma (and q)

    sum_t [ L_t(w_t, b_t) / sigma_t^2 + n_t ln sigma_t ] - sum_i ln p(w^i | q),

    -ln p(w | q) = m ln ||w||_q + m ln Gamma(1 + 1/q) - ln Gamma(1 + m/q) + constant   (the marginal of eq. 7 and 8),

L_t the sum of the losses of task t (1/2 r^2; the logistic loss has no sigma) and n_t its number of observations. The
E-step is ``E[rho_i^-q] = m / (q ||w^i||_q^q)``, the M-step a penalised fit per task (eq. 9, see `row_ridge`) and
``sigma_t^2 = 2 L_t / n_t``.

Differences from the paper:

- the objective is unbounded at a zero row and, with p > n, at sigma = 0. A row whose norm falls below `PRUNED` becomes
  exactly zero, stays so, and counts as a row of norm `ROW_FLOOR`; sigma is at least ``noise_floor`` x sd(y);
- coefficients are in units of sd(y) / sd(x) (see `active_tasks`), so that no result depends on the units of X or y;
- optionally ``rho^-q ~ Gamma(shape, rate)`` instead of Jeffreys (shape = rate = 0);
- logistic loss by Newton steps inside the M-step, each of which lowers the objective;
- q is held fixed, or updated after each M-step by a rule that is passed in: the exact maximum of the marginal, which
  lowers the objective too, or the printed one, which may not (see `exponent`).
"""

import logging
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bayesmtfs.em import ridge as em_ridge
from bayesmtfs.em.active_tasks import ActiveTasks
from bayesmtfs.em.ridge import Settings as Settings
from bayesmtfs.em.row_rescaling import best_factors
from bayesmtfs.em.row_ridge import Curvature, curvature, row_ridge_step
from bayesmtfs.priors.jeffreys import Jeffreys
from bayesmtfs.priors.row_penalty import row_norms
from bayesmtfs.progress import Progress
from bayesmtfs.types import BoolArray, FloatArray, IntArray

ROW_FLOOR = 1e-8  # norm that a zero row counts with, in units of sd(y) / sd(x)
PRUNED = 1e-6  # norm below which a row becomes zero, in the same units
INNER_STEPS = 3  # of the M-step, where one step is not exact
SHORTEST_STEP = 2.0**-30
ROUNDING = 1e-13  # of an objective, relative

log = logging.getLogger(__name__)


class State(NamedTuple):
    """What changes from iteration to iteration; W holds active features only."""

    W: FloatArray  # (p, m)
    intercept: FloatArray  # (m,)
    noise: FloatArray  # (m,) sigma, ones where it is not learned
    norm_q: float
    eta: FloatArray  # (N,) linear predictor


ExponentRule = Callable[[ActiveTasks, State, State], float]  # new q from the states before and after an M-step


class Outcome(NamedTuple):
    """Where EM ended, over all features it began with."""

    W: FloatArray  # (p, m)
    intercept: FloatArray
    noise: FloatArray
    norm_q: float
    objective_trace: FloatArray
    converged: bool
    n_iter: int
    interrupted: bool


# ---------------------------------------------------------------------- objective


def objective(tasks: ActiveTasks, state: State, settings: Settings, n_pruned_entries: FloatArray) -> float:
    """Minus the log-posterior, scales integrated out, in the units of `active_tasks`.

    Parameters
    ----------
    tasks, state, settings : the problem, where it stands, and the prior
    n_pruned_entries : sizes of the rows that are zero for good
    """
    loss = float(np.sum(tasks.losses(state.eta) / state.noise**2))
    noise = float(tasks.counts @ np.log(state.noise))
    prior = Jeffreys(state.norm_q, settings.shape, settings.rate)
    rows = prior.negative_log_density(floored(tasks.blocks.gather(state.W)), tasks.blocks.sizes)
    return loss + noise + rows + pruned_value(settings, n_pruned_entries)


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


def pruned_value(settings: Settings, sizes: FloatArray) -> float:
    """What zero rows of these sizes count: rows of norm `ROW_FLOOR` at q = 2, so that q does not see them."""
    if len(sizes) == 0:
        return 0.0
    rows = np.full((len(sizes), 1), ROW_FLOOR)
    return Jeffreys(2.0, settings.shape, settings.rate).negative_log_density(rows, sizes.astype(np.int64))


# ---------------------------------------------------------------------- steps of EM


def expected_scales(tasks: ActiveTasks, W: FloatArray, norm_q: float, settings: Settings) -> FloatArray:
    """(p, m) E-step: ``rho = E[rho^-q]^(-1/q)`` of the row of every entry, 0 for absent entries."""
    prior = Jeffreys(norm_q, settings.shape, settings.rate)
    log_weights = prior.log_em_weights(tasks.blocks.gather(W), tasks.blocks.sizes)
    scales = np.exp(-log_weights / norm_q)[tasks.blocks.row_of_feature][:, np.newaxis]
    return np.broadcast_to(scales, W.shape) if tasks.present is None else np.where(tasks.present, scales, 0.0)


def update_coefficients(tasks: ActiveTasks, state: State, scales: FloatArray, fixed: Curvature | None) -> State:
    """M-step for W and b (eq. 9): steps that lower every task's penalised loss.

    Parameters
    ----------
    tasks, state : the problem and where it stands
    scales : (p, m) rho of the E-step
    fixed : curvature of the squared loss, which never changes; None: the loss has its own at every eta
    """
    exact = fixed is not None and state.norm_q == 2.0
    for _ in range(1 if exact else INNER_STEPS):
        state = _descend(tasks, state, scales, fixed)
    return state


class Model(NamedTuple):
    """Quadratic model of the losses at a state."""

    curv: Curvature
    gradient: FloatArray  # (p, m) in W, with the best move of the intercept taken out
    intercept_move: FloatArray  # (m,) that move, on centred features


def quadratic_model(tasks: ActiveTasks, state: State, fixed: Curvature | None) -> Model:
    """Gradient and curvature of the losses over sigma^2 at the current linear predictor."""
    family, precision = tasks.family, state.noise**-2.0
    theta = tasks.weight * family.gradient(tasks.y, state.eta) * precision[tasks.task]
    curv = fixed
    if curv is None:
        bends = tasks.weight * family.curvature(tasks.y, state.eta)
        curv = curvature(tasks.designs, [bends[a:b] for a, b in tasks.spans], tasks.fit_intercept)
    sums = tasks.sums(theta) if tasks.fit_intercept else np.zeros(tasks.n_tasks)
    bend = precision * curv.totals
    move = -np.divide(sums, bend, out=np.zeros_like(sums), where=bend > 0)
    return Model(curv, tasks.adjoint(theta) - curv.means * sums, move)


def _descend(tasks: ActiveTasks, state: State, scales: FloatArray, fixed: Curvature | None) -> State:
    """One step of W and b, halved in the tasks where it does not lower the penalised loss."""
    model = quadratic_model(tasks, state, fixed)
    step = row_ridge_step(model.curv, state.noise**-2.0, model.gradient, state.W, scales, state.norm_q)
    move = _intercept_step(tasks, model, step)
    if fixed is not None and state.norm_q == 2.0:  # the exact minimum
        return _moved(tasks, state, step, move)
    return _line_search(tasks, state, scales, step, move)


def _moved(tasks: ActiveTasks, state: State, step: FloatArray, move: FloatArray) -> State:
    eta = state.eta + tasks.linear_predictor(step, move)
    return state._replace(W=state.W + step, intercept=state.intercept + move, eta=eta)


def _intercept_step(tasks: ActiveTasks, model: Model, step: FloatArray) -> FloatArray:
    """(m,) Move of the intercepts that goes with a step of W."""
    if not tasks.fit_intercept:
        return np.zeros(tasks.n_tasks)
    move: FloatArray = model.intercept_move - np.einsum("pm,pm->m", model.curv.means, step)
    return move


def _line_search(tasks: ActiveTasks, state: State, scales: FloatArray, step: FloatArray, move: FloatArray) -> State:
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


def update_noise(tasks: ActiveTasks, state: State, settings: Settings) -> State:
    """``sigma_t^2 = 2 L_t / n_t``, not below its floor."""
    if not settings.learn_noise:
        return state
    return state._replace(noise=em_ridge.noise_of(2.0 * tasks.losses(state.eta), tasks.counts, settings))


def first_state(tasks: ActiveTasks, W: FloatArray, intercept: FloatArray, settings: Settings) -> State:
    """State at a start, with the noise that its residuals have."""
    eta = tasks.linear_predictor(W, intercept)
    state = State(W, intercept, np.ones(tasks.n_tasks), settings.norm_q, eta)
    return update_noise(tasks, state, settings)


class Working(NamedTuple):
    """The features that are still active."""

    tasks: ActiveTasks
    fixed: Curvature | None  # of the squared loss
    features: IntArray  # their numbers among those of the start
    zero_rows: FloatArray  # sizes of the rows that are zero for good


def begin(tasks: ActiveTasks, zero_rows: FloatArray | None) -> Working:
    """All features of the start."""
    fixed = tasks.squared_curvature if tasks.family.name == "squared" else None
    return Working(tasks, fixed, np.arange(len(tasks.row_labels)), np.empty(0) if zero_rows is None else zero_rows)


def drop_rows(working: Working, state: State, settings: Settings) -> tuple[Working, State]:
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


def rescale_rows(working: Working, before: State, state: State, settings: Settings) -> State:
    """Stretch or shrink whole rows, where that lowers the objective (see `row_rescaling`)."""
    tasks = working.tasks
    model, rows = quadratic_model(tasks, state, working.fixed), tasks.blocks.row_of_feature
    falling = np.less(*(row_norms(tasks.blocks.gather(W), state.norm_q) for W in (state.W, before.W)))
    factors = best_factors(model.curv, state.noise**-2.0, model.gradient, state.W, rows, tasks.blocks.sizes, falling)
    step = state.W * (factors[rows] - 1.0)[:, np.newaxis]
    move = _intercept_step(tasks, model, step)
    moved = _moved(tasks, state, step, move)
    none = np.empty(0)
    return moved if objective(tasks, moved, settings, none) < objective(tasks, state, settings, none) else state


def step_result(working: Working, after: State, settings: Settings, last: float) -> tuple[tuple[Working, State], float]:
    """What an iteration leaves, without the rows that became zero, unless a proper prior would hold on to them."""
    smaller = drop_rows(working, after, settings)
    value = objective(smaller[0].tasks, smaller[1], settings, smaller[0].zero_rows)
    if smaller[0] is working or value <= last + ROUNDING * abs(last):
        return smaller, value
    return (working, after), objective(working.tasks, after, settings, working.zero_rows)


def iterate(working: Working, state: State, settings: Settings, rule: ExponentRule | None) -> State:
    """One iteration of EM on the active features."""
    scales = expected_scales(working.tasks, state.W, state.norm_q, settings)
    after = update_coefficients(working.tasks, state, scales, working.fixed)
    if state.norm_q > 2.0 and settings.shape == settings.rate == 0.0:
        after = rescale_rows(working, state, after, settings)
    after = update_noise(working.tasks, after, settings)
    return after if rule is None else after._replace(norm_q=rule(working.tasks, state, after))


# ---------------------------------------------------------------------- the whole


def solve(
    tasks: ActiveTasks,
    W: FloatArray,
    intercept: FloatArray,
    settings: Settings,
    *,
    exponent_rule: ExponentRule | None = None,
    zero_rows: FloatArray | None = None,
    progress: bool | None = None,
) -> Outcome:
    """Run EM from a start.

    Parameters
    ----------
    tasks : active part of the problem
    W, intercept : (p, m) and (m,) start, in the units of `active_tasks`; rows that are zero stay so
    settings : prior, noise and when to stop
    exponent_rule : how q follows W; None keeps it
    zero_rows : sizes of the rows that are not active from the beginning, for the objective
    progress : see `progress.Progress`
    """
    state = first_state(tasks, W, intercept, settings)
    current = drop_rows(begin(tasks, zero_rows), state, settings)
    trace = [objective(current[0].tasks, current[1], settings, current[0].zero_rows)]
    converged = interrupted = False
    with Progress("EM", progress) as bar:
        try:
            if exponent_rule is None and em_ridge.is_simple(current[0].tasks, settings):
                current, (*_, converged, interrupted) = _by_ridge(*current, settings, trace, bar)
            while not (converged or interrupted) and len(trace) <= settings.max_iter and len(current[1].W):
                working, before = current
                after = iterate(working, before, settings, exponent_rule)
                converged = largest_change(before, after) <= settings.tol
                current, value = step_result(working, after, settings, trace[-1])
                trace.append(value)
                bar.update(len(trace) / settings.max_iter, f"{len(current[1].W)} features")
        except KeyboardInterrupt:
            interrupted = True
    working, state = current
    log.debug("EM: %d iterations, %d active features, objective %g", len(trace) - 1, len(state.W), trace[-1])
    full = np.zeros(W.shape)
    full[working.features] = state.W
    converged = converged or len(state.W) == 0
    return Outcome(
        full, state.intercept, state.noise, state.norm_q, np.array(trace), converged, len(trace) - 1, interrupted
    )


def _by_ridge(
    working: Working, state: State, settings: Settings, trace: list[float], bar: Progress
) -> tuple[tuple[Working, State], em_ridge.End]:
    """Run EM where every step is a plain ridge regression (`em_ridge`), appending to the trace."""
    size = np.array([working.tasks.n_tasks])
    values = em_ridge.RowValues(
        active=Jeffreys(2.0).negative_log_density(np.eye(1, size[0]), size),
        zero=pruned_value(settings, size.astype(np.float64)),
        others=pruned_value(settings, working.zero_rows),
    )
    end = em_ridge.run(working.tasks, state.W, state.noise, settings, PRUNED, values, trace, bar)
    return drop_rows(working, _with_best_intercept(working.tasks, end.W, end.noise), settings), end


def _with_best_intercept(tasks: ActiveTasks, W: FloatArray, noise: FloatArray) -> State:
    eta = tasks.linear_predictor(W, np.zeros(tasks.n_tasks))
    intercept = np.zeros(tasks.n_tasks)
    if tasks.fit_intercept:
        intercept = tasks.sums(tasks.weight * (tasks.y - eta)) / tasks.counts
    return State(W, intercept, noise, 2.0, eta + intercept[tasks.task])


def largest_change(before: State, after: State) -> float:
    """Largest change of a coefficient, of ln sigma and of 1/q."""
    noise = float(np.max(np.abs(np.log(after.noise / before.noise))))
    return max(
        float(np.max(np.abs(after.W - before.W), initial=0.0)), noise, abs(1.0 / after.norm_q - 1.0 / before.norm_q)
    )
