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
leaves; the paper has neither floor nor start. At the mode, W gains little from R: the relations themselves are what
this route gives. The posterior mean of W gains (`evidence`).
"""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from bayesmtfs.em import jeffreys, task_relations
from bayesmtfs.em.active_tasks import ActiveTasks, EMProblem
from bayesmtfs.em.jeffreys import EMSettings, EMState, GeneralSearch, expected_scales
from bayesmtfs.em.ridge import conjugate_gradients, falling_share, penalty_terms
from bayesmtfs.em.task_relations import Relations, ValueAndGradient
from bayesmtfs.types import BoolArray, FloatArray, Solution

FLOOR_SHARE = 0.5  # of the noise of the fit without relations
RELATION_STEPS = 5  # per iteration of EM, which comes back: more are not worth their price


def objective(state: EMState, settings: EMSettings, shrinkage: float) -> float:
    """Minus the log-posterior, scales integrated out, plus the pull of R towards the identity."""
    # A zero row counts with less than any other row can, so that leaving rows out never raises the objective
    smallest_det = 0.5 * state.tasks.n_tasks * np.log(task_relations.SMALLEST_OWN) * len(state.zero_rows)
    zero = jeffreys.pruned_value(settings, state.zero_rows) + smallest_det
    return jeffreys.data_terms(state) + row_objective(state, settings) + zero + state.relations.penalty(shrinkage)


def row_objective(state: EMState, settings: EMSettings) -> float:
    """Minus the log-density of the active rows."""
    blocks, R = state.tasks.blocks, state.relations
    V = blocks.gather(state.W @ R.inverse_root)
    return settings.prior(state.norm_q).negative_log_density(V, blocks.sizes) + 0.5 * len(state.W) * R.log_det


def update_coefficients(state: EMState, settings: EMSettings) -> EMState:
    """M-step for W and b: one step that lowers the objective."""
    model, Omega = jeffreys.quadratic_model(state), state.relations.root
    V = state.W @ state.relations.inverse_root
    scales = expected_scales(state.tasks, V, state.norm_q, settings)
    shrink, penalty_gradient = penalty_terms(V / scales, state.norm_q)
    E = scales * shrink

    def curvature(U: FloatArray) -> FloatArray:
        moved = (E * U) @ Omega
        curved = [A.T @ (A @ moved[:, t]) / state.noise[t] ** 2 for t, A in enumerate(model.curv.roots)]
        return U + E * (np.column_stack(curved) @ Omega)

    step = (E * conjugate_gradients(curvature, -(E * (model.gradient @ Omega) + penalty_gradient))) @ Omega
    along, ones = jeffreys.states_along(state, model, step), np.ones_like(state.noise)

    def value(share: float) -> float:
        at = along(share * ones)
        return float(np.sum(at.tasks.losses(at.eta) / at.noise**2)) + row_objective(at, settings)

    share = falling_share(value)
    return along(share * ones) if share else state


def update_relations(state: EMState, settings: EMSettings, shrinkage: float) -> EMState:
    """M-step for R, on the objective with the scales integrated out."""
    guess = None if state.relations.factors.any() else unrelated_guess(state.tasks, state.W, shrinkage)
    value_and_gradient = relation_objective(state.tasks, state.W, state.norm_q, settings, shrinkage)
    return state._replace(relations=task_relations.improve(state.relations, value_and_gradient, guess, RELATION_STEPS))


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


def iterate(state: EMState, settings: EMSettings, shrinkage: float) -> EMState:
    """One iteration of EM on the active features."""
    state = jeffreys.update_noise(update_coefficients(state, settings), settings)
    if state.tasks.n_tasks == 1 or shrinkage >= task_relations.UNRELATED:
        return state
    return update_relations(state, settings, shrinkage)


class RelatedFit(NamedTuple):
    """A solution with its task relations."""

    solution: Solution
    relations: Relations
    shrinkage: float
    noise_floor: float  # that was used, in units of sd(y)


def solve(
    state: EMState,
    settings: EMSettings,
    *,
    shrinkage: float | None = None,
    relations: Relations | None = None,
    progress: bool | None = None,
) -> RelatedFit:
    """Run EM from the state of a start, such as the fit without relations; every task must have every feature.

    A shrinkage nu of None is chosen by the rows of the start; the relations to begin with are by default none.
    """
    if shrinkage is None:
        guess = unrelated_guess(state.tasks, state.W, 0.0)
        shrinkage = task_relations.choose_shrinkage(guess, len(state.W)) if len(state.W) else 0.0
    relations = task_relations.unrelated(state.tasks.n_tasks) if relations is None else relations
    state = state._replace(relations=relations)
    value = partial(objective, settings=settings, shrinkage=shrinkage)
    search = GeneralSearch(state, settings, partial(iterate, settings=settings, shrinkage=shrinkage), value)
    found, last = jeffreys.descend(search, value(state), progress)
    return RelatedFit(found, last.relations, shrinkage, settings.noise_floor)


def fit(
    problem: EMProblem,
    settings: EMSettings,
    unrelated: Solution,
    *,
    shrinkage: float | None = None,
    relations: Relations | None = None,
    counted: BoolArray | None = None,
    progress: bool | None = None,
) -> RelatedFit:
    """Learn task relations and refit W with them, from the fit without relations; all in the user's units.

    A ``noise_floor`` of 0 in the settings takes half the noise of the start; ``counted`` (p,) are the features that
    count in the objective even where they are zero, by default those that are not. For the rest see `solve`.
    """
    present = problem.data.present
    if present is not None and not present.all():
        raise ValueError(
            "some tasks lack features that others have, and the mode of related rows needs all of them; pass "
            "coefficients='integrated', or drop these features"
        )
    frame = jeffreys.frame_of(problem, unrelated, (unrelated.W != 0).any(axis=1) if counted is None else counted)
    settings = replace(settings, learn_noise=problem.family.quadratic)
    if settings.learn_noise and settings.noise_floor == 0.0 and unrelated.noise is not None:
        settings = replace(settings, noise_floor=FLOOR_SHARE * float(unrelated.noise.min()) / problem.units.target)
    if unrelated.interrupted:
        settings = replace(settings, max_iter=0)  # the user wants it to end: the unrelated fit is what there is
    begin = frame.begin(settings)
    related = solve(begin, settings, shrinkage=shrinkage, relations=relations, progress=progress)
    solution = frame.to_user(related.solution)
    solution = solution._replace(
        converged=solution.converged and unrelated.converged,
        n_iter=solution.n_iter + unrelated.n_iter,
        interrupted=solution.interrupted or unrelated.interrupted,
    )
    return related._replace(solution=solution)
