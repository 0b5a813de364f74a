"""A whole fit under the Jeffreys prior: start, noise, EM, and q where it is learned.

The steps of `em_jeffreys` need three decisions that the paper (Zhang, Yeung and Xu 2010, section 4.2) leaves open:

- the start. From a ridge fit EM collapses to W = 0, an infinite optimum, on data with more features than rows; it
  begins at a mixed-norm fit with a small penalty, whose rows are all that EM can keep;
- the floor of the noise. With more features than rows EM interpolates and sigma goes to 0. The floor begins at half of
  sd(y) and is lowered, each time from the same start, as long as what the remaining rows leave unexplained (residual
  over degrees of freedom) is clearly below it;
- q, learned from the active rows of the fit at q = 2 (`learned_exponent`), or inside EM (`exponent`).

At q = inf the E-step has no expectation; there the same objective is minimised by `mm`, with one noise for all tasks.
"""

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from bayesmtfs.convex import automatic
from bayesmtfs.convex.problem import Problem
from bayesmtfs.data.scaling import WithinTaskUnits, scaled, within_task_units
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.em import jeffreys as em_jeffreys
from bayesmtfs.em import learned_exponent, mm
from bayesmtfs.em.active_tasks import ActiveTasks, activate
from bayesmtfs.em.exponent import ExponentPosterior, marginal_maximum, posterior, printed_maximum, row_profile
from bayesmtfs.families import Family
from bayesmtfs.priors.blocks import Blocks
from bayesmtfs.priors.row_penalty import RowPenalty
from bayesmtfs.types import BoolArray, FloatArray, Solution

START_TOL = 1e-4
SEARCH_TOL = 1e-3  # of EM while the floor of the noise is searched
FIRST_FLOOR = 0.5  # of the noise, in units of sd(y)
LOWEST_FLOOR = 1e-4
FLOOR_SHARE = 0.8  # of the unexplained deviation that becomes the next floor
FLOOR_CHANGE = 0.8  # ratio of two floors above which the search ends
LEAST_FREEDOM = 0.3  # share of the observations that must remain as degrees of freedom
OFFSET_AT_INF = 1e-4  # in units of sd(y) / sd(x)

QLearning = Literal["two_stage", "integrated", "ecme", "paper"]


@dataclass(frozen=True)
class Settings:
    """What a fit is told.

    Attributes
    ----------
    norm_q : q, or None to learn it
    q_learning : how it is learned
    q_bounds : smallest and largest q that is learned, the latter finite
    start_strength : penalty of the mixed-norm start, as a share of the smallest one at which W = 0
    noise_floor : least sigma in units of sd(y); None searches it
    em : prior and stopping rule of EM; its ``norm_q`` and ``noise_floor`` are set here
    random_seed : of ``q_learning="integrated"``
    """

    norm_q: float | None = 2.0
    q_learning: QLearning = "two_stage"
    q_bounds: tuple[float, float] = (1.0, 50.0)
    start_strength: float = 0.01
    noise_floor: float | None = None
    em: em_jeffreys.Settings = em_jeffreys.Settings()
    random_seed: int = 0


class JeffreysFit(NamedTuple):
    """A fit in the user's units."""

    solution: Solution
    norm_q: float
    exponent: ExponentPosterior | None  # where q was learned
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
    blocks = Blocks(data.n_features, data.n_tasks, groups=data.groups, present=data.present)
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
    settings: Settings,
    *,
    fit_intercept: bool = True,
    start: Solution | None = None,
    units: WithinTaskUnits | None = None,
    progress: bool | None = None,
) -> JeffreysFit:
    """Fit all tasks.

    Parameters
    ----------
    data : observations; y is -1 and +1 for the logistic loss
    family : squared or logistic loss
    settings : prior, noise, q
    fit_intercept : one intercept per task
    start : coefficients to begin from instead of the mixed-norm fit; rows that are zero stay so
    units : what 1 stands for; None finds it in the data
    progress : see `progress.Progress`
    """
    units = within_task_units(data, fit_intercept, family.quadratic) if units is None else units
    if start is None:
        start = mixed_norm_start(data, family, fit_intercept, units, settings.start_strength)
    if settings.norm_q == np.inf:
        uniform, floor = _fit_uniform(data, family, fit_intercept, units, start, settings)
        return JeffreysFit(uniform, np.inf, None, noise_floor=floor)
    frame = _frame(data, family, fit_intercept, units, start)
    first_q = 2.0 if settings.norm_q is None else settings.norm_q
    em = replace(settings.em, norm_q=first_q, learn_noise=family.name == "squared")
    outcome, em = _with_noise_floor(frame, em, settings.noise_floor, progress)
    exponent = None
    if settings.norm_q is None:
        outcome, exponent = _with_learned_q(frame, outcome, em, settings, progress)
    return JeffreysFit(_solution(frame, outcome), outcome.norm_q, exponent, noise_floor=em.noise_floor)


def _frame(data: TaskData, family: Family, fit_intercept: bool, units: WithinTaskUnits, start: Solution) -> _Frame:
    blocks = Blocks(data.n_features, data.n_tasks, groups=data.groups, present=data.present)
    nonzero = np.bincount(blocks.row_of_feature, weights=(start.W != 0).any(axis=1) & units.varies) > 0
    active: BoolArray = nonzero[blocks.row_of_feature] & units.varies
    tasks = activate(data, family, fit_intercept, units, active)
    W = units.from_user(start.W)[active]
    absent = blocks.sizes[~nonzero]
    return _Frame(data, units, active, tasks, W, start.intercept / units.target, absent[absent > 0].astype(np.float64))


def _run(
    frame: _Frame,
    em: em_jeffreys.Settings,
    progress: bool | None,
    start: em_jeffreys.Outcome | None = None,
    rule: em_jeffreys.ExponentRule | None = None,
) -> em_jeffreys.Outcome:
    W, intercept = (frame.W, frame.intercept) if start is None else (start.W, start.intercept)
    return em_jeffreys.solve(
        frame.tasks, W, intercept, em, exponent_rule=rule, zero_rows=frame.zero_rows, progress=progress
    )


# ---------------------------------------------------------------------- noise


def find_noise_floor(data: TaskData, family: Family, fit_intercept: bool, start: Solution) -> float:
    """Floor of the noise at which the search for q = 2 ends, in the units of y."""
    units = within_task_units(data, fit_intercept, family.quadratic)
    frame = _frame(data, family, fit_intercept, units, start)
    outcome, em = _with_noise_floor(frame, em_jeffreys.Settings(shared_noise=True), None, False)
    if outcome.interrupted:
        raise KeyboardInterrupt  # the floor is not known, and nothing was fitted at it
    return em.noise_floor * units.target


def _with_noise_floor(
    frame: _Frame, em: em_jeffreys.Settings, floor: float | None, progress: bool | None
) -> tuple[em_jeffreys.Outcome, em_jeffreys.Settings]:
    """EM at the given floor, or at one that is lowered as long as the fit leaves clearly less unexplained."""
    if not em.learn_noise or floor is not None:
        em = replace(em, noise_floor=FIRST_FLOOR if floor is None else floor)
        return _run(frame, em, progress), em
    em = replace(em, noise_floor=FIRST_FLOOR)
    coarse = max(em.tol, SEARCH_TOL)
    outcome = _run(frame, replace(em, tol=coarse), progress)
    while not outcome.interrupted:
        eta = frame.tasks.linear_predictor(outcome.W, outcome.intercept)
        lower = _lowered(em.noise_floor, frame.tasks, outcome.W, eta)
        if lower is None:
            break
        em = replace(em, noise_floor=lower)
        outcome = _run(frame, replace(em, tol=coarse), progress)
    return outcome if outcome.interrupted else _continued(frame, outcome, em, progress), em


def _continued(
    frame: _Frame, outcome: em_jeffreys.Outcome, em: em_jeffreys.Settings, progress: bool | None
) -> em_jeffreys.Outcome:
    """Go on from an outcome with a finer tolerance; the trace goes on too."""
    left = max(em.max_iter - outcome.n_iter, 1)
    finer = _run(frame, replace(em, max_iter=left), progress, start=outcome)
    trace = np.concatenate([outcome.objective_trace, finer.objective_trace[1:]])
    return finer._replace(objective_trace=trace, n_iter=len(trace) - 1)


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
    frame: _Frame,
    outcome: em_jeffreys.Outcome,
    em: em_jeffreys.Settings,
    settings: Settings,
    progress: bool | None,
) -> tuple[em_jeffreys.Outcome, ExponentPosterior | None]:
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
    exponent = learned_exponent.learn(tasks, W, eta, outcome.noise, settings.q_bounds, method, settings.random_seed)
    return _run(frame, replace(em, norm_q=exponent.norm_q), progress, start=outcome), exponent


def _profile(frame: _Frame, outcome: em_jeffreys.Outcome, bounds: tuple[float, float]) -> ExponentPosterior | None:
    """What the rows of the mode say about q, at face value."""
    rows, sizes = frame.tasks.blocks.gather(outcome.W), frame.tasks.blocks.sizes
    kept = rows.any(axis=1)
    if not kept.any():
        return None
    return posterior(lambda q: row_profile(rows[kept], sizes[kept], q), bounds)._replace(norm_q=outcome.norm_q)


def _ecme_rule(settings: Settings) -> em_jeffreys.ExponentRule:
    def rule(tasks: ActiveTasks, before: em_jeffreys.State, after: em_jeffreys.State) -> float:
        rows = em_jeffreys.floored(tasks.blocks.gather(after.W))
        prior = (settings.em.shape, settings.em.rate)
        return marginal_maximum(rows, tasks.blocks.sizes, settings.q_bounds, after.norm_q, *prior)

    return rule


def _printed_rule(frame: _Frame, settings: Settings) -> em_jeffreys.ExponentRule:
    """The rule as printed, in the user's units and with all rows counted."""
    n_rows = frame.data.n_features

    def rule(tasks: ActiveTasks, before: em_jeffreys.State, after: em_jeffreys.State) -> float:
        unit = (frame.units.target / frame.units.feature[frame.active])[
            np.isin(frame.tasks.row_labels, tasks.row_labels)
        ]
        rows = [em_jeffreys.floored(W) * unit[:, np.newaxis] for W in (before.W, after.W)]
        return printed_maximum(rows[0], rows[1], n_rows, settings.q_bounds, after.norm_q)

    return rule


# ---------------------------------------------------------------------- results


def _solution(frame: _Frame, outcome: em_jeffreys.Outcome) -> Solution:
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


def _fit_uniform(
    data: TaskData, family: Family, fit_intercept: bool, units: WithinTaskUnits, start: Solution, settings: Settings
) -> tuple[Solution, float]:
    """Fit at q = inf by majorisation-minimisation, in scaled units; the floor of its noise too."""
    factor = np.broadcast_to(1.0 / units.feature[:, np.newaxis], (data.n_features, data.n_tasks))
    unitless = scaled(data, factor).with_target(np.asarray(data.y, dtype=np.float64) / units.target)
    problem = Problem(unitless, family, RowPenalty(1.0, np.inf), data.weight, fit_intercept)
    first = start._replace(W=units.from_user(start.W), intercept=start.intercept / units.target)
    squared = family.name == "squared"
    lower: float | None = FIRST_FLOOR if settings.noise_floor is None else settings.noise_floor
    tasks = activate(data, family, fit_intercept, units, np.zeros(data.n_features, dtype=bool))
    while lower is not None:
        floor = lower
        stop = mm.Settings(np.inf, OFFSET_AT_INF, None if squared else 1.0, floor, tol=settings.em.tol)
        found = mm.solve(problem, first, stop)
        eta = unitless.linear_predictor(found.W, found.intercept)
        searched = squared and settings.noise_floor is None and not found.interrupted
        lower = _lowered(floor, tasks, found.W, eta) if searched else None
    noise = np.ones(data.n_tasks) if found.noise is None else found.noise
    in_units = found._replace(
        W=units.to_user(found.W), intercept=found.intercept * units.target, noise=noise * units.target
    )
    return in_units, floor
