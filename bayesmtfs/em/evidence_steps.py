"""One evidence step: the objective of `evidence` at a state, and a better state from its posterior.

All parameters move at once, from one posterior. With ``e_i = tr(R Z_i)`` and ``s_i = g_i' R g_i`` of `row_posterior`,

    damped fixed point (boldness 1):  gamma_i <- gamma_i (s_i / e_i)^min(1, 2 sqrt(gamma_i e_i / m))
    convex bound (boldness 1/2):      gamma_i <- gamma_i (s_i / e_i)^(1/2)           (Wipf and Nagarajan 2008)
    EM (boldness 0):                  gamma_i <- gamma_i + gamma_i^2 (s_i - e_i) / m (Wipf and Rao 2007)

(The share ``gamma_i e_i / m`` of a row that the data determine lies between 0 and 1. With the power 1 the first rule is
the fixed point of MacKay (1992), which is fast but loses relevant rows where there are more features than data; EM
keeps them and is slow. The damped rule keeps them too, in a tenth of the iterations.)

and R lowers the majoriser ``tr(R sum_i gamma_i Z_i) + tr(R^-1 sum_i mu_i mu_i' / gamma_i)`` of the convex bound, or
its EM counterpart. The noise is the likelihood's affair.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bayesmtfs.em import row_posterior, task_relations
from bayesmtfs.em.evidence_likelihoods import EvidenceLikelihood
from bayesmtfs.em.row_posterior import RowPosterior
from bayesmtfs.em.task_relations import Relations
from bayesmtfs.types import FloatArray, IntArray

VANISHING = 1e-6  # of the mean share that the data determine, below which a shrinking row is gone


@dataclass(frozen=True, eq=False)
class Settings:
    """What does not change during a search."""

    family: EvidenceLikelihood
    row_of_feature: IntArray  # (p,)
    n_tasks: int
    row_cost: float
    shrinkage: float = 0.0
    learn_noise: bool = True


class State(NamedTuple):
    """What the objective depends on."""

    active: IntArray  # features whose row variance is not 0
    row_variances: FloatArray  # of the active features
    parameters: FloatArray  # of the likelihood
    relations: Relations | None


class Point(NamedTuple):
    """A state, its posterior and its objective."""

    state: State
    posterior: RowPosterior
    objective: float


def evaluate(settings: Settings, state: State) -> Point:
    """Posterior and objective of a state."""
    family = settings.family
    tasks = family.tasks(state.active, state.parameters)
    relations = state.relations if len(state.active) else None
    posterior = row_posterior.compute(
        tasks, state.row_variances, family.precision(state.parameters), relations, family.has_leverage
    )
    n_rows = len(np.unique(settings.row_of_feature[state.active]))
    objective = 0.5 * (posterior.log_det + posterior.quadratic) + family.constant(state.parameters)
    objective += settings.row_cost * n_rows
    if state.relations is not None:
        objective += state.relations.penalty(settings.shrinkage)
    return Point(state, posterior, objective)


# ---------------------------------------------------------------------- one step of all parameters


def step(settings: Settings, point: Point, boldness: float) -> State:
    """Improve row variances, relations and the likelihood's parameters, all from one posterior."""
    state, posterior = point.state, point.posterior
    curvature, squared_score = _row_sums(settings, point)
    gamma = state.row_variances
    size = settings.n_tasks * over_rows(settings, state, np.ones(len(gamma)))
    if boldness == 0.0:
        new = gamma * (1.0 + gamma * (squared_score - curvature) / size)
    else:
        share = gamma * curvature / size
        power = np.minimum(1.0, 2.0 * np.sqrt(share)) if boldness == 1.0 else boldness
        new = gamma * (squared_score / curvature) ** power
    relations = state.relations
    if relations is not None and len(gamma):
        relations = _improved_relations(settings, point, relations, new, boldness)
    parameters = state.parameters
    if settings.learn_noise:
        tasks = settings.family.tasks(state.active, parameters)
        parameters = settings.family.improved(parameters, tasks, posterior, boldness)
    share = gamma * curvature
    kept = ~((share < VANISHING * np.mean(share)) & (squared_score < curvature)) if len(gamma) else slice(None)
    return State(state.active[kept], new[kept], parameters, relations)


def _row_sums(settings: Settings, point: Point) -> tuple[FloatArray, FloatArray]:
    """``tr(R Z_i)`` and ``g_i' R g_i``, summed over the features of a row where rows are groups."""
    posterior, relations = point.posterior, point.state.relations
    if relations is None or posterior.curvature.ndim == 2:
        curvature, squared = posterior.curvature.sum(axis=1), np.sum(posterior.score**2, axis=1)
    else:
        curvature = np.einsum("ptu,tu->p", posterior.curvature, relations.matrix)
        squared = np.sum((posterior.score @ relations.matrix) * posterior.score, axis=1)
    return over_rows(settings, point.state, curvature), over_rows(settings, point.state, squared)


def over_rows(settings: Settings, state: State, values: FloatArray) -> FloatArray:
    """Sum over the features of each row, given back to each of them."""
    rows = settings.row_of_feature[state.active]
    return np.asarray(np.bincount(rows, weights=values, minlength=1)[rows]) if len(rows) else values


def _improved_relations(
    settings: Settings, point: Point, relations: Relations, gamma: FloatArray, boldness: float
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
