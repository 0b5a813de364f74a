"""A whole fit with task relations at the mode of W: the fit without relations, then `em_matrix_variate` from there.

Features and targets are scaled as in `active_tasks`, so that no result depends on the units of X or y. The noise has as
its floor the user's, or half of what the fit without relations leaves (Zhang, Yeung and Xu 2010 have neither floor nor
start).
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from bayesmtfs.data.scaling import WithinTaskUnits, within_task_units
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.em import jeffreys as em_jeffreys
from bayesmtfs.em import matrix_variate as em_matrix_variate
from bayesmtfs.em.active_tasks import activate
from bayesmtfs.em.task_relations import Relations
from bayesmtfs.families import Family
from bayesmtfs.priors.blocks import Blocks
from bayesmtfs.types import BoolArray, FloatArray, Solution

FLOOR_SHARE = 0.5  # of the noise of the fit without relations


class RelatedFit(NamedTuple):
    """A fit in the user's units."""

    solution: Solution
    task_relations: FloatArray  # (m, m)
    shrinkage: float
    relations: Relations  # the same as task_relations, to begin from
    noise_floor: float  # that was used, in units of sd(y)


def fit(
    data: TaskData,
    family: Family,
    settings: em_jeffreys.Settings,
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
    data : observations; y is -1 and +1 for the logistic loss
    family : squared or logistic loss
    settings : prior, q and stopping rule; a ``noise_floor`` of 0 takes half the noise of the start
    unrelated : the fit without relations, in the user's units
    fit_intercept : one intercept per task
    shrinkage : nu of `task_relations`; None chooses it by the data
    relations : task relations to begin from; None: none
    units : what 1 stands for; None finds it in the data
    counted : (p,) features that count in the objective even where they are zero; None: those that are not
    progress : see `progress.Progress`
    """
    if data.present is not None and not data.present.all():
        raise ValueError(
            "some tasks lack features that others have, and the mode of related rows needs all of them; pass "
            "coefficients='integrated', or drop these features"
        )
    units = within_task_units(data, fit_intercept, family.quadratic) if units is None else units
    active = (unrelated.W != 0).any(axis=1)
    counted = active if counted is None else counted
    settings = replace(settings, learn_noise=family.name == "squared")
    if settings.learn_noise and settings.noise_floor == 0.0 and unrelated.noise is not None:
        settings = replace(settings, noise_floor=FLOOR_SHARE * float(unrelated.noise.min()) / units.target)
    if unrelated.interrupted:
        settings = replace(settings, max_iter=0)  # the user wants it to end: the unrelated fit is what there is
    outcome = em_matrix_variate.solve(
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
    return RelatedFit(solution, outcome.relations.matrix, outcome.shrinkage, outcome.relations, settings.noise_floor)


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
