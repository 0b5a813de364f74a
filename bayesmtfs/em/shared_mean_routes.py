"""Whole fits with a shared mean: `em_shared_mean` around the Jeffreys, matrix-variate and generalized normal routes.

Each minimises the objective of its route in the deviations from the mean, plus ``mean_strength / 2 ||w_0||^2``. What
the route decides from the data (units, floor of the noise, q, shrinkage of the relations) is decided once, around the
first mean, and then held fixed, so that one objective is lowered throughout.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from bayesmtfs.convex.problem import Problem
from bayesmtfs.data.scaling import WithinTaskUnits, within_task_units
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.em import jeffreys as em_jeffreys
from bayesmtfs.em import jeffreys_fit, matrix_variate_fit, mm
from bayesmtfs.em.matrix_variate import inverse_root
from bayesmtfs.em.shared_mean import Around, MeanProblem, RowPrior, alternate, as_sums, start_at, update_mean
from bayesmtfs.families import Family
from bayesmtfs.priors.blocks import Blocks
from bayesmtfs.priors.generalized_normal import GeneralizedNormal
from bayesmtfs.priors.jeffreys import Jeffreys
from bayesmtfs.priors.row_penalty import RowPenalty
from bayesmtfs.types import FloatArray, Solution

INNER_STEPS = 10  # of EM, between two moves of the mean
INNER_PROBLEMS = 2  # of majorisation-minimisation, likewise

Deviations = Callable[[TaskData, Family, Solution], jeffreys_fit.JeffreysFit]


class Start(NamedTuple):
    """Where a fit begins."""

    W: Solution  # coefficients of the tasks
    mean: FloatArray | None  # None: their average


def first_point(problem: MeanProblem, start: Start, deviation: float) -> Around:
    """Mean and deviations of a start, the mean improved once at a given noise."""
    noise = np.full(problem.data.n_tasks, deviation)
    point = start_at(problem, start.W._replace(noise=noise), start.mean)
    return update_mean(problem, point)


# ---------------------------------------------------------------------- Jeffreys


def fit_jeffreys(
    problem: MeanProblem, settings: jeffreys_fit.Settings, start: Start, *, progress: bool | None = None
) -> jeffreys_fit.JeffreysFit:
    """Fit mean and deviations under the Jeffreys prior of the deviations' scales.

    Parameters
    ----------
    problem : data, loss and ridge on the mean
    settings : prior, noise and q, as for `jeffreys_fit.fit`
    start : coefficients to begin from
    progress : see `progress.Progress`
    """
    units = within_task_units(problem.data, problem.fit_intercept, problem.family.quadratic)
    found = _jeffreys_at(problem, replace(settings, norm_q=settings.norm_q or 2.0), units, start, progress)
    if settings.norm_q is None and found.mean is not None:
        # Deviations say what q is; mean and deviations are then fitted again at it
        known = replace(settings, noise_floor=found.noise_floor)
        V = found.solution._replace(W=problem.deviations(found.mean, found.solution.W))
        learned = _deviations(problem, known, units)(*problem.around(found.mean), V)
        again = Start(found.solution, found.mean)
        found = _jeffreys_at(problem, replace(known, norm_q=learned.norm_q), units, again, progress)
        found = found._replace(exponent=learned.exponent)
    return found


def _deviations(problem: MeanProblem, settings: jeffreys_fit.Settings, units: WithinTaskUnits) -> Deviations:
    def fit(data: TaskData, family: Family, start: Solution) -> jeffreys_fit.JeffreysFit:
        return jeffreys_fit.fit(
            data, family, settings, fit_intercept=problem.fit_intercept, start=start, units=units, progress=False
        )

    return fit


def _jeffreys_at(
    problem: MeanProblem, settings: jeffreys_fit.Settings, units: WithinTaskUnits, start: Start, progress: bool | None
) -> jeffreys_fit.JeffreysFit:
    """Fit at a known q."""
    point = first_point(problem, start, units.target)
    first = _deviations(problem, settings, units)(*problem.around(point.mean), point.deviations)
    em = replace(settings.em, max_iter=INNER_STEPS)
    again = _deviations(problem, replace(settings, noise_floor=first.noise_floor, em=em), units)
    prior = row_prior(problem.data, units, first.norm_q, settings.em)
    found = alternate(
        problem,
        point._replace(deviations=first.solution),
        lambda data, family, V: again(data, family, V).solution,
        lambda: prior,
        None if first.norm_q == np.inf else units.target / units.feature,
        tol=settings.em.tol,
        max_iter=settings.em.max_iter,
        progress=progress,
    )
    return first._replace(solution=as_sums(problem, found), mean=found.mean)


def row_prior(
    data: TaskData, units: WithinTaskUnits, norm_q: float, em: em_jeffreys.Settings, whiten: FloatArray | None = None
) -> RowPrior:
    """Prior of the deviations with scales integrated out, as a function of V in the user's units."""
    blocks = Blocks(data.n_features, data.n_tasks, groups=data.groups, present=data.present)
    prior = Jeffreys(norm_q, em.shape, em.rate)

    def value(V: FloatArray) -> float:
        U = units.from_user(V) if whiten is None else units.from_user(V) @ whiten
        return prior.negative_log_density(em_jeffreys.floored(blocks.gather(U)), blocks.sizes)

    return RowPrior(value, blocks, norm_q, whiten=whiten)


# ---------------------------------------------------------------------- matrix variate


def fit_matrix_variate(
    problem: MeanProblem,
    settings: em_jeffreys.Settings,
    unrelated: jeffreys_fit.JeffreysFit,
    shrinkage: float | None,
    *,
    progress: bool | None = None,
) -> tuple[matrix_variate_fit.RelatedFit, FloatArray]:
    """Learn task relations of the deviations, from the fit without relations; the second result is the mean.

    Parameters
    ----------
    problem : data, loss and ridge on the mean
    settings : prior, q and stopping rule, as for `matrix_variate_fit.fit`
    unrelated : `fit_jeffreys` of the same problem
    shrinkage : nu of `task_relations`; None chooses it by the data
    progress : see `progress.Progress`
    """
    units = within_task_units(problem.data, problem.fit_intercept, problem.family.quadratic)
    mean = np.zeros(problem.data.n_features) if unrelated.mean is None else unrelated.mean
    V = unrelated.solution._replace(W=problem.deviations(mean, unrelated.solution.W))
    counted = (V.W != 0).any(axis=1)

    def fit(
        data: TaskData, family: Family, V: Solution, last: matrix_variate_fit.RelatedFit | None
    ) -> matrix_variate_fit.RelatedFit:
        inner = settings if last is None else replace(settings, noise_floor=last.noise_floor, max_iter=INNER_STEPS)
        return matrix_variate_fit.fit(
            data,
            family,
            inner,
            V,
            fit_intercept=problem.fit_intercept,
            shrinkage=shrinkage if last is None else last.shrinkage,
            relations=None if last is None else last.relations,
            units=units,
            counted=counted,
            progress=False,
        )

    related = fit(*problem.around(mean), V, None)

    def route(data: TaskData, family: Family, V: Solution) -> Solution:
        nonlocal related
        related = fit(data, family, V, related)
        return related.solution

    def prior() -> RowPrior:
        return row_prior(problem.data, units, settings.norm_q, settings, inverse_root(related.relations))

    start, unit = Around(mean, related.solution), units.target / units.feature
    tol, most = settings.tol, settings.max_iter
    found = alternate(problem, start, route, prior, unit, tol=tol, max_iter=most, progress=progress)
    return related._replace(solution=as_sums(problem, found)), found.mean


# ---------------------------------------------------------------------- generalized normal


def fit_generalized_normal(
    problem: MeanProblem, settings: mm.Settings, start: Start, deviation: float, *, progress: bool | None = None
) -> Around:
    """Fit mean and deviations under problem (5) of the deviations.

    Parameters
    ----------
    problem : data, loss and ridge on the mean
    settings : prior, noise and when to stop, as for `mm.solve`
    start : coefficients to begin from
    deviation : first guess of the noise
    progress : see `progress.Progress`
    """

    def route_with(settings: mm.Settings) -> Callable[[TaskData, Family, Solution], Solution]:
        def route(data: TaskData, family: Family, V: Solution) -> Solution:
            penalty = RowPenalty(1.0, settings.norm_q)
            convex = Problem(data, family, penalty, data.weight, problem.fit_intercept)
            return mm.solve(convex, V, settings, progress=False)

        return route

    data = problem.data
    blocks = Blocks(data.n_features, data.n_tasks, groups=data.groups, present=data.present)
    rows = GeneralizedNormal(settings.norm_q)
    prior = RowPrior(
        lambda V: rows.type2_value(blocks.gather(V), settings.offset, blocks.sizes),
        blocks,
        settings.norm_q,
        settings.offset,
    )
    point = first_point(problem, start, deviation)
    first = route_with(settings)(*problem.around(point.mean), point.deviations)
    again = route_with(replace(settings, graduated=False, max_iter=INNER_PROBLEMS))
    begin = point._replace(deviations=first)
    tol, most = settings.tol, settings.max_iter
    return alternate(problem, begin, again, lambda: prior, None, tol=tol, max_iter=most, progress=progress)
