"""Type II maximum likelihood: row variances, noise and task relations with the coefficients integrated out.

Row i of W is ``N(0, gamma_i R)`` over the tasks and y is normal (or logistic, through a normal bound) given W. The
objective, minimised over gamma, the noise and R, is

    - ln p(y | gamma, noise, R) + row_cost * (number of rows with gamma_i > 0) + nu/2 (ln|R| + tr R^-1 - m).

With one design, R = I and ``row_cost = 0`` this is M-SBL (Wipf and Rao 2007, *IEEE Transactions on Signal Processing*
55:3704-3716), with one task automatic relevance determination (MacKay 1992; Tipping 2001). W is the posterior mean. The
integral over W is what makes task relations pay: the prior of Zhang, Yeung and Xu (2010, section 4.3) at q = 2, which
they maximise over W instead.

What differs from M-SBL: the noise is learned, per task or shared. Without ``row_cost`` it would go to 0 wherever
there are more features than rows, since rows of no use explain the noise; a cost of ln p per row (prior odds of 1 to p
against a row) prevents that and makes the rows found the relevant ones. The search begins at a high noise, where few
rows are worth their cost, and goes on to lower noise as long as the noise that the rows leave is below it.

Steps: the fixed point (MacKay) where it lowers the objective, else the convex bound (Wipf and Nagarajan 2008), else EM;
`evidence_likelihoods` says more. Rows are taken out and brought in by what they are worth (`evidence_rows`).
"""

import math
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.em import row_posterior, task_relations
from bayesmtfs.em.evidence_likelihoods import EvidenceLikelihood, LogisticEvidence, NormalEvidence
from bayesmtfs.em.evidence_search import Search, search_noise
from bayesmtfs.em.evidence_steps import Point, Settings, State
from bayesmtfs.priors.blocks import Blocks
from bayesmtfs.progress import Progress
from bayesmtfs.types import FloatArray, Solution

COARSE = 100.0  # how much larger the tolerance is while the noise is searched
LARGEST_SYSTEM = 6000
NOISE_FLOOR = 1e-3  # smallest noise, as a share of the deviation of y


class EvidenceSolution(NamedTuple):
    """Posterior of W at the best row variances, noise and relations."""

    W: FloatArray  # (p, m) posterior mean
    W_variance: FloatArray  # (p, m) marginal posterior variances
    intercept: FloatArray  # (m,)
    noise: FloatArray | None  # (m,) deviations; None for the logistic loss
    row_variances: FloatArray  # (p,) gamma, exactly 0 for rows that are out
    task_relations: FloatArray | None  # (m, m) correlation
    relation_shrinkage: float | None  # nu
    objective_trace: FloatArray
    converged: bool
    n_iter: int
    interrupted: bool = False

    def as_solution(self) -> Solution:
        """Return the part that every solver gives back."""
        return Solution(
            W=self.W,
            intercept=self.intercept,
            objective=float(self.objective_trace[-1]),
            gap=math.nan,
            scale=math.nan,
            converged=self.converged,
            n_iter=self.n_iter,
            objective_trace=self.objective_trace,
            interrupted=self.interrupted,
            noise=self.noise,
        )


def solve(
    data: TaskData,
    loss: Literal["squared", "logistic"] = "squared",
    *,
    fit_intercept: bool = True,
    shared_noise: bool = False,
    relations: Literal["learn"] | None = None,
    relation_shrinkage: float | None = None,
    noise_floor: float | None = None,
    least_noise: FloatArray | None = None,
    row_cost: float | None = None,
    tol: float = 1e-6,
    max_iter: int = 2000,
    progress: bool | None = None,
    start: EvidenceSolution | None = None,
) -> EvidenceSolution:
    """Maximise the evidence and give the posterior of W there.

    Parameters
    ----------
    data : the observations; y is -1 and +1 for the logistic loss
    loss : "squared" or "logistic"
    fit_intercept : one intercept per task, with a flat prior
    shared_noise : one noise variance for all tasks; with one complete design a single system then serves all tasks
    relations : "learn" for a task correlation R, None for R = I
    relation_shrinkage : nu, how many further unrelated rows to count in for R; None chooses it by the data
    noise_floor : smallest noise deviation, as a share of the deviation of y; None takes `NOISE_FLOOR`
    least_noise : (m,) the same in the units of y, instead of ``noise_floor``
    row_cost : log evidence that a row has to bring; None takes ln p
    tol : fall of the objective per observation below which it has converged
    max_iter : most posteriors to compute
    progress : see `progress.Progress`
    start : an earlier solution to begin from
    """
    family = _likelihood(data, loss, fit_intercept, shared_noise, noise_floor)
    if least_noise is not None and isinstance(family, NormalEvidence):
        family.floor = least_noise**2
    blocks = Blocks(data.n_features, data.n_tasks, groups=data.groups)
    settings = Settings(
        family=family,
        row_of_feature=blocks.row_of_feature,
        n_tasks=data.n_tasks,
        row_cost=math.log(max(blocks.n_rows, 1)) if row_cost is None else row_cost,
    )
    interrupted = False
    with Progress("evidence", progress) as bar:
        search = Search(settings, max_iter, bar)
        try:
            _find_rows(search, start, COARSE * tol)
            search.polish(tol if relations is None else COARSE * tol)
            if relations == "learn" and data.n_tasks > 1:
                _relate(search, relation_shrinkage, start)
                search.polish(tol)
        except KeyboardInterrupt:
            if not search.trace:
                raise
            interrupted = True
    return _solution(data, search, relations == "learn", interrupted)


def start_from(row_variances: FloatArray, noise: FloatArray | None, relations: FloatArray | None) -> EvidenceSolution:
    """Make a start of known row variances (p,), noise (m,) and relations (m, m)."""
    nothing = np.empty(0)
    return EvidenceSolution(
        nothing, nothing, nothing, noise, row_variances, relations, None, nothing, converged=False, n_iter=0
    )


def _likelihood(
    data: TaskData, loss: str, fit_intercept: bool, shared_noise: bool, noise_floor: float | None
) -> EvidenceLikelihood:
    if loss == "squared":
        return NormalEvidence(data, fit_intercept, shared_noise, NOISE_FLOOR if noise_floor is None else noise_floor)
    if loss == "logistic":
        return LogisticEvidence(data, fit_intercept)
    raise ValueError(f"loss is {loss!r}, for which coefficients are not integrated out; use 'squared' or 'logistic'")


def _find_rows(search: Search, start: EvidenceSolution | None, tol: float) -> None:
    """First rows, for unrelated tasks: those of the start, or found from all features."""
    family = search.settings.family
    if start is None and isinstance(family, NormalEvidence):
        search_noise(search, family, tol)
    elif start is None:
        search.begin_with_all(family.start())
        search.prune(tol)
    else:
        active = np.flatnonzero(start.row_variances)
        search.begin(State(active, start.row_variances[active], family.from_noise(start.noise), None))


def _relate(search: Search, shrinkage: float | None, start: EvidenceSolution | None) -> None:
    """Begin to learn task relations, at the identity or those of the start."""
    state, m = search.point.state, search.settings.n_tasks
    r = task_relations.n_factors(m)
    size = row_posterior.system_size(search.settings.family.tasks(state.active, state.parameters), r)
    if size > LARGEST_SYSTEM:
        raise ValueError(
            f"task relations with integrated coefficients need a system of {size} unknowns ({len(state.active)} "
            f"features x {r} factors of {m} tasks), and the limit is {LARGEST_SYSTEM}; select features first, or use "
            "coefficients='mode'"
        )
    if shrinkage is None:
        posterior = search.point.posterior
        mean = posterior.mean / np.sqrt(state.row_variances)[:, None]
        correlation = task_relations.from_rows(mean.T @ mean)
        shrinkage = task_relations.choose_shrinkage(correlation, len(state.active))
    search.settings = replace(search.settings, shrinkage=shrinkage)
    if shrinkage >= task_relations.UNRELATED:
        return
    known = None if start is None else start.task_relations
    relations = task_relations.unrelated(m) if known is None else task_relations.nearest(known)
    search.move(state._replace(relations=relations))


def _solution(data: TaskData, search: Search, related: bool, interrupted: bool) -> EvidenceSolution:
    state, posterior = search.point.state, search.point.posterior
    p, m = data.n_features, data.n_tasks
    tasks = search.settings.family.tasks(state.active, state.parameters)
    W, variance, row_variances = np.zeros((p, m)), np.zeros((p, m)), np.zeros(p)
    W[state.active] = posterior.mean
    variance[state.active] = _marginal_variances(search.point)
    row_variances[state.active] = state.row_variances
    if data.present is not None:
        W, variance = np.where(data.present, W, 0.0), np.where(data.present, variance, 0.0)
    relations = None
    if related:
        relations = np.eye(m) if state.relations is None else state.relations.matrix
    return EvidenceSolution(
        W=W,
        W_variance=variance,
        intercept=tasks.intercept(W[state.active]),
        noise=search.settings.family.noise(state.parameters),
        row_variances=row_variances,
        task_relations=relations,
        relation_shrinkage=search.settings.shrinkage if related else None,
        objective_trace=np.array(search.trace),
        converged=not search.exhausted and not interrupted,
        n_iter=search.n_iter,
        interrupted=interrupted,
    )


def _marginal_variances(point: Point) -> FloatArray:
    """(a, m) ``gamma_i R_tt - gamma_i^2 (R Z_i R)_tt``."""
    gamma, curvature = point.state.row_variances[:, None], point.posterior.curvature
    if curvature.ndim == 3 and point.state.relations is not None:
        R = point.state.relations.matrix
        curvature = np.einsum("tu,puv,vt->pt", R, curvature, R, optimize=True)
    return np.asarray(np.maximum(gamma - gamma**2 * curvature, 0.0))
