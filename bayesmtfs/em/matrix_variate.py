r"""EM for matrix-variate generalized normal rows: PMTFS2 of Zhang, Yeung and Xu 2010, section 4.3.

The rows of ``V = W Omega^-1`` are generalized normal with scales under the Jeffreys prior, and ``Omega = R^(1/2)``, the
symmetric root of a correlation matrix R of the tasks. With the scales integrated out, the objective in W, b, sigma and
R is

    sum_t [ L_t / sigma_t^2 + n_t ln sigma_t ] - sum_i ln p(v^i | q) + p/2 ln|R| + nu/2 (ln|R| + tr R^-1 - m),

with the row marginal p of `jeffreys` (`priors.generalized_normal` is the same density). The sums go over rows that are
not zero: a zero row says nothing about R, and its ``ln|R|`` would pull R to a singular matrix.

Differences from the paper:

- the covariance of a row is proportional to ``Omega^T Omega``, not to ``Omega Omega^T`` as printed, and its density
  has ``ln|det Omega|``;
- the printed step for Omega is unbounded below. Here R has a unit diagonal and a smallest eigenvalue, and nu further
  rows without relations are counted in (`task_relations`);
- W moves by Newton steps (conjugate gradients on ``curvature of the losses + Omega^-1 D Omega^-1``, D the curvature of
  the penalty as in `ridge`), halved until the objective falls.

A whole fit (`fit`) begins at the fit without relations. The noise has as its floor the user's, or half of what that fit
leaves; the paper has neither floor nor start.

At the mode, W gains little from R: the relations themselves are what this route gives. The posterior mean of W gains
(`evidence`).
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from bayesmtfs.data.scaling import WithinTaskUnits, within_task_units
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.em import jeffreys, task_relations
from bayesmtfs.em.active_tasks import ActiveTasks, activate
from bayesmtfs.em.jeffreys import EMOutcome, EMSettings, EMState, Working, expected_scales
from bayesmtfs.em.ridge import conjugate_gradients, penalty_terms
from bayesmtfs.em.task_relations import Relations, ValueAndGradient
from bayesmtfs.families import Family
from bayesmtfs.priors.blocks import Blocks
from bayesmtfs.progress import Progress
from bayesmtfs.types import BoolArray, FloatArray, Solution

SHORTEST_STEP = 2.0**-30
FLOOR_SHARE = 0.5  # of the noise of the fit without relations
RELATION_STEPS = 5  # per iteration of EM, which comes back: more are not worth their price


class RelatedState(NamedTuple):
    """What changes from iteration to iteration."""

    fit: EMState  # W of the active features, intercept, noise, q, linear predictor
    relations: Relations


# ---------------------------------------------------------------------- objective


def objective(working: Working, state: RelatedState, settings: EMSettings, shrinkage: float) -> float:
    """Minus the log-posterior, scales integrated out, plus the pull of R towards the identity."""
    tasks, fit = working.tasks, state.fit
    rows = row_objective(tasks, fit.W, state.relations, fit.norm_q, settings)
    # A zero row counts with less than any other row can, so that leaving rows out never raises the objective
    smallest_det = 0.5 * tasks.n_tasks * np.log(task_relations.SMALLEST_OWN) * len(working.zero_rows)
    zero = jeffreys.pruned_value(settings, working.zero_rows) + smallest_det
    return jeffreys.data_terms(tasks, fit) + rows + zero + state.relations.penalty(shrinkage)


def row_objective(
    tasks: ActiveTasks, W: FloatArray, relations: Relations, norm_q: float, settings: EMSettings
) -> float:
    """Minus the log-density of the active rows."""
    V = tasks.blocks.gather(W @ relations.inverse_root)
    return settings.prior(norm_q).negative_log_density(V, tasks.blocks.sizes) + 0.5 * len(W) * relations.log_det


# ---------------------------------------------------------------------- W


def update_coefficients(working: Working, state: RelatedState, settings: EMSettings) -> RelatedState:
    """M-step for W and b: one step that lowers the objective."""
    tasks, fit = working.tasks, state.fit
    model = jeffreys.quadratic_model(tasks, fit, working.fixed)
    whiten = state.relations.inverse_root
    V = fit.W @ whiten
    scales = expected_scales(tasks, V, fit.norm_q, settings)
    shrink, penalty_gradient = penalty_terms(V / scales, fit.norm_q)
    E, Omega = scales * shrink, state.relations.root
    right = -(E * (model.gradient @ Omega) + penalty_gradient)

    def curvature(U: FloatArray) -> FloatArray:
        moved = (E * U) @ Omega
        curved = [A.T @ (A @ moved[:, t]) / fit.noise[t] ** 2 for t, A in enumerate(model.curv.roots)]
        return U + E * (np.column_stack(curved) @ Omega)

    step = (E * conjugate_gradients(curvature, right)) @ Omega
    return _line_search(working, state, settings, step, model.intercept_step(step))


def _line_search(
    working: Working, state: RelatedState, settings: EMSettings, step: FloatArray, move: FloatArray
) -> RelatedState:
    tasks = working.tasks
    eta_step = tasks.linear_predictor(step, move)

    def value(fit: EMState) -> float:
        losses = float(np.sum(tasks.losses(fit.eta) / fit.noise**2))
        return losses + row_objective(tasks, fit.W, state.relations, fit.norm_q, settings)

    before, share, fit = value(state.fit), 1.0, state.fit
    while share > SHORTEST_STEP:
        moved = fit._replace(
            W=fit.W + share * step, intercept=fit.intercept + share * move, eta=fit.eta + share * eta_step
        )
        if value(moved) <= before:
            return state._replace(fit=moved)
        share /= 2.0
    return state


# ---------------------------------------------------------------------- R


def update_relations(working: Working, state: RelatedState, settings: EMSettings, shrinkage: float) -> RelatedState:
    """M-step for R, on the objective with the scales integrated out."""
    tasks, fit, relations = working.tasks, state.fit, state.relations
    guess = None if relations.factors.any() else unrelated_guess(tasks, fit.W, shrinkage)
    value_and_gradient = relation_objective(tasks, fit.W, fit.norm_q, settings, shrinkage)
    return state._replace(relations=task_relations.improve(relations, value_and_gradient, guess, RELATION_STEPS))


def unrelated_guess(tasks: ActiveTasks, W: FloatArray, shrinkage: float) -> FloatArray:
    """(m, m) Correlation of the rows, each on its own scale, with the further rows counted in."""
    norms = np.sqrt(np.sum(tasks.blocks.gather(W) ** 2, axis=1) / np.maximum(tasks.blocks.sizes, 1))
    rows = W / norms[tasks.blocks.row_of_feature][:, np.newaxis]
    return task_relations.from_rows(rows.T @ rows + shrinkage * np.eye(tasks.n_tasks))


def relation_objective(
    tasks: ActiveTasks, W: FloatArray, norm_q: float, settings: EMSettings, shrinkage: float
) -> ValueAndGradient:
    """Terms of the objective in R, and their gradient.

    The derivative of ``R^(-1/2)`` is that of Daleckii and Krein: divided differences of the eigenvalues.
    """
    prior = settings.prior(norm_q)
    penalty = task_relations.quadratic_objective(0.5 * (len(W) + shrinkage), None, 0.5 * shrinkage * np.eye(W.shape[1]))

    def value_and_gradient(R: FloatArray) -> tuple[float, FloatArray]:
        values, vectors = np.linalg.eigh(R)
        roots = np.sqrt(values)
        V = W @ ((vectors / roots) @ vectors.T)
        rho = expected_scales(tasks, V, norm_q, settings)
        slope = norm_q * np.sign(V) * np.abs(V / rho) ** (norm_q - 1.0) / rho
        inner = vectors.T @ (W.T @ slope) @ vectors
        inner = -0.5 * (inner + inner.T) / (np.outer(roots, roots) * np.add.outer(roots, roots))
        value, gradient = penalty(R)
        value += prior.negative_log_density(tasks.blocks.gather(V), tasks.blocks.sizes)
        return value, gradient + vectors @ inner @ vectors.T

    return value_and_gradient


# ---------------------------------------------------------------------- the whole


def iterate(working: Working, state: RelatedState, settings: EMSettings, shrinkage: float) -> RelatedState:
    """One iteration of EM on the active features."""
    state = update_coefficients(working, state, settings)
    state = state._replace(fit=jeffreys.update_noise(working.tasks, state.fit, settings))
    if working.tasks.n_tasks == 1 or shrinkage >= task_relations.UNRELATED:
        return state
    return update_relations(working, state, settings, shrinkage)


def solve(
    tasks: ActiveTasks,
    W: FloatArray,
    intercept: FloatArray,
    settings: EMSettings,
    *,
    shrinkage: float | None = None,
    relations: Relations | None = None,
    zero_rows: FloatArray | None = None,
    progress: bool | None = None,
) -> tuple[EMOutcome, Relations, float]:
    """Run EM from a start, such as the fit without relations; gives R and nu beside where it ended.

    Every task must have every feature. A shrinkage nu of None is chosen by the rows of the start; the relations to begin
    with are by default none. For the rest see `jeffreys.solve`.
    """
    working, fit = jeffreys.begin(tasks, W, intercept, settings, zero_rows)
    if shrinkage is None:
        guess = unrelated_guess(working.tasks, fit.W, 0.0)
        shrinkage = task_relations.choose_shrinkage(guess, len(fit.W)) if len(fit.W) else 0.0
    state = RelatedState(fit, task_relations.unrelated(tasks.n_tasks) if relations is None else relations)
    trace = [objective(working, state, settings, shrinkage)]
    converged = False
    with Progress("EM", progress) as work:
        while not converged and len(trace) <= settings.max_iter and len(state.fit.W):
            after = iterate(working, state, settings, shrinkage)
            converged = _change(state, after) <= settings.tol
            working, state, value = _without_small_rows(working, after, settings, shrinkage, trace[-1])
            trace.append(value)
            work.update(len(trace) / settings.max_iter, f"{len(state.fit.W)} features")
    outcome = jeffreys.outcome_of(W.shape, working, state.fit, trace, converged, work.interrupted)
    return outcome, state.relations, shrinkage


def _without_small_rows(
    working: Working, state: RelatedState, settings: EMSettings, shrinkage: float, last: float
) -> tuple[Working, RelatedState, float]:
    fewer, fit = jeffreys.drop_rows(working, state.fit, settings)
    if fewer is not working:
        smaller = state._replace(fit=fit)
        value = objective(fewer, smaller, settings, shrinkage)
        if value <= last:
            return fewer, smaller, value
    return working, state, objective(working, state, settings, shrinkage)


def _change(before: RelatedState, after: RelatedState) -> float:
    """Largest change of a coefficient, of ln sigma and of a correlation."""
    related = float(np.max(np.abs(after.relations.matrix - before.relations.matrix)))
    return max(jeffreys.largest_change(before.fit, after.fit), related)


# ---------------------------------------------------------------------- whole fits


class RelatedFit(NamedTuple):
    """A fit in the user's units."""

    solution: Solution
    relations: Relations
    shrinkage: float
    noise_floor: float  # that was used, in units of sd(y)


def fit(
    data: TaskData,
    family: Family,
    settings: EMSettings,
    unrelated: Solution,
    *,
    fit_intercept: bool = True,
    shrinkage: float | None = None,
    relations: Relations | None = None,
    units: WithinTaskUnits | None = None,
    counted: BoolArray | None = None,
    progress: bool | None = None,
) -> RelatedFit:
    """Learn task relations and refit W with them.

    Parameters
    ----------
    data, family, fit_intercept, units, progress : as for `jeffreys.fit`
    settings : prior, q and stopping rule; a ``noise_floor`` of 0 takes half the noise of the start
    unrelated : the fit without relations, in the user's units
    shrinkage : nu of `task_relations`; None chooses it by the data
    relations : task relations to begin from; None: none
    counted : (p,) features that count in the objective even where they are zero; None: those that are not
    """
    if data.present is not None and not data.present.all():
        raise ValueError(
            "some tasks lack features that others have, and the mode of related rows needs all of them; pass "
            "coefficients='integrated', or drop these features"
        )
    units = within_task_units(data, fit_intercept, family.quadratic) if units is None else units
    active = (unrelated.W != 0).any(axis=1)
    counted = active if counted is None else counted
    settings = replace(settings, learn_noise=family.quadratic)
    if settings.learn_noise and settings.noise_floor == 0.0 and unrelated.noise is not None:
        settings = replace(settings, noise_floor=FLOOR_SHARE * float(unrelated.noise.min()) / units.target)
    if unrelated.interrupted:
        settings = replace(settings, max_iter=0)  # the user wants it to end: the unrelated fit is what there is
    outcome, relations, shrinkage = solve(
        activate(data, family, fit_intercept, units, active),
        units.from_user(unrelated.W)[active],
        unrelated.intercept / units.target,
        settings,
        shrinkage=shrinkage,
        relations=relations,
        zero_rows=_zero_rows(data, counted & ~active),
        progress=progress,
    )
    W = np.zeros((data.n_features, data.n_tasks))
    W[active] = outcome.W
    trace = outcome.objective_trace + _jacobian(data, units, counted)
    solution = unrelated._replace(
        W=units.to_user(W),
        intercept=outcome.intercept * units.target,
        objective=float(trace[-1]),
        converged=outcome.converged and unrelated.converged,
        n_iter=outcome.n_iter + unrelated.n_iter,
        objective_trace=trace,
        interrupted=outcome.interrupted or unrelated.interrupted,
        noise=outcome.noise * units.target,
    )
    return RelatedFit(solution, relations, shrinkage, settings.noise_floor)


def _zero_rows(data: TaskData, features: BoolArray) -> FloatArray:
    """Sizes of the rows of some features."""
    blocks = Blocks(data.n_features, data.n_tasks, groups=data.groups)
    members = np.bincount(blocks.row_of_feature[features], minlength=blocks.n_rows)
    sizes: FloatArray = members[members > 0].astype(np.float64) * data.n_tasks
    return sizes


def _jacobian(data: TaskData, units: WithinTaskUnits, active: BoolArray) -> float:
    """What the change of units adds to the objective, counted over the rows that take part."""
    rows = data.n_tasks * float(np.sum(np.log(units.target / units.feature[active])))
    return rows + float(data.weight.sum()) * float(np.log(units.target))
