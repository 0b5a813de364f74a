r"""EM for matrix-variate generalized normal rows: PMTFS2 of Zhang, Yeung and Xu 2010, section 4.3.

The rows of ``V = W Omega^-1`` are generalized normal with scales under the Jeffreys prior, and ``Omega = R^(1/2)``, the
symmetric root of a correlation matrix R of the tasks. With the scales integrated out, the objective in W, b, sigma and
R is

    sum_t [ L_t / sigma_t^2 + n_t ln sigma_t ] - sum_i ln p(v^i | q) + p/2 ln|R| + nu/2 (ln|R| + tr R^-1 - m),

with the row marginal p of `em_jeffreys` (`priors.matrix_variate` is the same density). The sums go over rows that are
not zero: a zero row says nothing about R, and its ``ln|R|`` would pull R to a singular matrix.

Differences from the paper:

- the covariance of a row is proportional to ``Omega^T Omega``, not to ``Omega Omega^T`` as printed, and its density
  has ``ln|det Omega|``;
- the printed step for Omega is unbounded below. Here R has a unit diagonal and a smallest eigenvalue, and nu further
  rows without relations are counted in (`task_relations`);
- W moves by Newton steps (conjugate gradients on ``curvature of the losses + Omega^-1 D Omega^-1``, D the curvature of
  the penalty as in `row_ridge`), halved until the objective falls.

At the mode, W gains little from R: the relations themselves are what this route gives. The posterior mean of W gains
(`evidence`).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bayesmtfs.em import jeffreys as em_jeffreys
from bayesmtfs.em import task_relations
from bayesmtfs.em.active_tasks import ActiveTasks
from bayesmtfs.em.jeffreys import Settings, Working
from bayesmtfs.em.row_ridge import penalty_terms
from bayesmtfs.em.task_relations import Relations, ValueAndGradient
from bayesmtfs.priors.jeffreys import Jeffreys
from bayesmtfs.progress import Progress
from bayesmtfs.types import FloatArray

CONJUGATE_TOL = 1e-8
MOST_CONJUGATE_STEPS = 500
SHORTEST_STEP = 2.0**-30
RELATION_STEPS = 5  # per iteration of EM, which comes back: more are not worth their price


class State(NamedTuple):
    """What changes from iteration to iteration."""

    fit: em_jeffreys.State  # W of the active features, intercept, noise, q, linear predictor
    relations: Relations


class Outcome(NamedTuple):
    """Where EM ended, over all features it began with, in the units of `active_tasks`."""

    W: FloatArray  # (p, m)
    intercept: FloatArray
    noise: FloatArray
    relations: Relations
    shrinkage: float  # nu
    objective_trace: FloatArray
    converged: bool
    n_iter: int
    interrupted: bool


# ---------------------------------------------------------------------- objective


def objective(working: Working, state: State, settings: Settings, shrinkage: float) -> float:
    """Minus the log-posterior, scales integrated out, plus the pull of R towards the identity."""
    tasks, fit = working.tasks, state.fit
    loss = float(np.sum(tasks.losses(fit.eta) / fit.noise**2)) + float(tasks.counts @ np.log(fit.noise))
    rows = row_objective(tasks, fit.W, state.relations, fit.norm_q, settings)
    # A zero row counts with less than any other row can, so that leaving rows out never raises the objective
    smallest_det = 0.5 * tasks.n_tasks * np.log(task_relations.SMALLEST_OWN) * len(working.zero_rows)
    zero = em_jeffreys.pruned_value(settings, working.zero_rows) + smallest_det
    return loss + rows + zero + state.relations.penalty(shrinkage)


def row_objective(tasks: ActiveTasks, W: FloatArray, relations: Relations, norm_q: float, settings: Settings) -> float:
    """Minus the log-density of the active rows."""
    V = tasks.blocks.gather(W @ inverse_root(relations))
    prior = Jeffreys(norm_q, settings.shape, settings.rate)
    return prior.negative_log_density(V, tasks.blocks.sizes) + 0.5 * len(W) * relations.log_det


def inverse_root(relations: Relations) -> FloatArray:
    """(m, m) Omega^-1 = R^(-1/2)."""
    values, vectors = np.linalg.eigh(relations.matrix)
    return np.asarray((vectors / np.sqrt(values)) @ vectors.T)


# ---------------------------------------------------------------------- W


def expected_scales(tasks: ActiveTasks, V: FloatArray, norm_q: float, settings: Settings) -> FloatArray:
    """(p, 1) E-step: ``rho = E[rho^-q]^(-1/q)`` of the row of every feature, given the whitened coefficients."""
    prior = Jeffreys(norm_q, settings.shape, settings.rate)
    log_weights = prior.log_em_weights(tasks.blocks.gather(V), tasks.blocks.sizes)
    return np.exp(-log_weights / norm_q)[tasks.blocks.row_of_feature][:, np.newaxis]


def update_coefficients(working: Working, state: State, settings: Settings) -> State:
    """M-step for W and b: one step that lowers the objective."""
    tasks, fit = working.tasks, state.fit
    model = em_jeffreys.quadratic_model(tasks, fit, working.fixed)
    whiten = inverse_root(state.relations)
    V = fit.W @ whiten
    scales = expected_scales(tasks, V, fit.norm_q, settings)
    shrink, penalty_gradient = penalty_terms(V / scales, fit.norm_q)
    E, Omega = scales * shrink, state.relations.root
    right = -(E * (model.gradient @ Omega) + penalty_gradient)

    def curvature(U: FloatArray) -> FloatArray:
        moved = (E * U) @ Omega
        bent = [A.T @ (A @ moved[:, t]) / fit.noise[t] ** 2 for t, A in enumerate(model.curv.roots)]
        return U + E * (np.column_stack(bent) @ Omega)

    step = (E * conjugate_gradients(curvature, right)) @ Omega
    move = np.zeros(tasks.n_tasks)
    if tasks.fit_intercept:
        move = model.intercept_move - np.einsum("pm,pm->m", model.curv.means, step)
    return _line_search(working, state, settings, step, move)


def conjugate_gradients(apply: Callable[[FloatArray], FloatArray], right: FloatArray) -> FloatArray:
    """Solve ``apply(U) = right`` for a symmetric positive operator on matrices."""
    U = np.zeros_like(right)
    residual, direction = right.copy(), right.copy()
    size = first = float(np.sum(residual**2))
    for _ in range(min(MOST_CONJUGATE_STEPS, 2 * right.size)):
        if size <= CONJUGATE_TOL**2 * first:
            break
        image = apply(direction)
        share = size / float(np.sum(direction * image))
        U += share * direction
        residual -= share * image
        previous, size = size, float(np.sum(residual**2))
        direction = residual + size / previous * direction
    return U


def _line_search(working: Working, state: State, settings: Settings, step: FloatArray, move: FloatArray) -> State:
    tasks = working.tasks
    eta_step = tasks.linear_predictor(step, move)

    def value(fit: em_jeffreys.State) -> float:
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


def update_relations(working: Working, state: State, settings: Settings, shrinkage: float) -> State:
    """M-step for R, on the objective with the scales integrated out."""
    tasks, fit, relations = working.tasks, state.fit, state.relations
    guess = None
    if not relations.factors.any():
        guess = unrelated_guess(tasks, fit.W, shrinkage)
    value_and_gradient = relation_objective(tasks, fit.W, fit.norm_q, settings, shrinkage)
    return state._replace(relations=task_relations.improve(relations, value_and_gradient, guess, RELATION_STEPS))


def unrelated_guess(tasks: ActiveTasks, W: FloatArray, shrinkage: float) -> FloatArray:
    """(m, m) Correlation of the rows, each on its own scale, with the further rows counted in."""
    norms = np.sqrt(np.sum(tasks.blocks.gather(W) ** 2, axis=1) / np.maximum(tasks.blocks.sizes, 1))
    rows = W / norms[tasks.blocks.row_of_feature][:, np.newaxis]
    return task_relations.from_rows(rows.T @ rows + shrinkage * np.eye(tasks.n_tasks))


def relation_objective(
    tasks: ActiveTasks, W: FloatArray, norm_q: float, settings: Settings, shrinkage: float
) -> ValueAndGradient:
    """Terms of the objective in R, and their gradient.

    The derivative of ``R^(-1/2)`` is that of Daleckii and Krein: divided differences of the eigenvalues.
    """
    prior = Jeffreys(norm_q, settings.shape, settings.rate)
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


def iterate(working: Working, state: State, settings: Settings, shrinkage: float) -> State:
    """One iteration of EM on the active features."""
    state = update_coefficients(working, state, settings)
    state = state._replace(fit=em_jeffreys.update_noise(working.tasks, state.fit, settings))
    if working.tasks.n_tasks == 1 or shrinkage >= task_relations.UNRELATED:
        return state
    return update_relations(working, state, settings, shrinkage)


def solve(
    tasks: ActiveTasks,
    W: FloatArray,
    intercept: FloatArray,
    settings: Settings,
    *,
    shrinkage: float | None = None,
    relations: Relations | None = None,
    zero_rows: FloatArray | None = None,
    progress: bool | None = None,
) -> Outcome:
    """Run EM from a start, such as the fit without relations.

    Parameters
    ----------
    tasks : active part of the problem; every task must have every feature
    W, intercept : (p, m) and (m,) start, in the units of `active_tasks`; rows that are zero stay so
    settings : prior, noise and when to stop, as for `em_jeffreys`
    shrinkage : nu; None chooses it by the rows of the start
    relations : R to begin with; None is the identity
    zero_rows : sizes of the rows that are not active from the beginning, for the objective
    progress : see `progress.Progress`
    """
    m = tasks.n_tasks
    first = em_jeffreys.first_state(tasks, W, intercept, settings)
    working, fit = em_jeffreys.drop_rows(em_jeffreys.begin(tasks, zero_rows), first, settings)
    if shrinkage is None:
        guess = unrelated_guess(working.tasks, fit.W, 0.0)
        shrinkage = task_relations.choose_shrinkage(guess, len(fit.W)) if len(fit.W) else 0.0
    state = State(fit, task_relations.unrelated(m) if relations is None else relations)
    trace = [objective(working, state, settings, shrinkage)]
    converged = interrupted = False
    with Progress("EM", progress) as bar:
        try:
            while not converged and len(trace) <= settings.max_iter and len(state.fit.W):
                before, state = state, iterate(working, state, settings, shrinkage)
                converged = _change(before, state) <= settings.tol
                working, state, value = _without_small_rows(working, state, settings, shrinkage, trace[-1])
                trace.append(value)
                bar.update(len(trace) / settings.max_iter, f"{len(state.fit.W)} features")
        except KeyboardInterrupt:
            interrupted = True
    full = np.zeros(W.shape)
    full[working.features] = state.fit.W
    converged = converged or len(state.fit.W) == 0
    return Outcome(
        full,
        state.fit.intercept,
        state.fit.noise,
        state.relations,
        shrinkage,
        np.array(trace),
        converged,
        len(trace) - 1,
        interrupted,
    )


def _without_small_rows(
    working: Working, state: State, settings: Settings, shrinkage: float, last: float
) -> tuple[Working, State, float]:
    fewer, fit = em_jeffreys.drop_rows(working, state.fit, settings)
    if fewer is not working:
        smaller = state._replace(fit=fit)
        value = objective(fewer, smaller, settings, shrinkage)
        if value <= last:
            return fewer, smaller, value
    return working, state, objective(working, state, settings, shrinkage)


def _change(before: State, after: State) -> float:
    """Largest change of a coefficient, of ln sigma and of a correlation."""
    related = float(np.max(np.abs(after.relations.matrix - before.relations.matrix)))
    return max(em_jeffreys.largest_change(before.fit, after.fit), related)
