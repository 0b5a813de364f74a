r"""Type II maximum likelihood with a mean shared by all tasks: deviations integrated out, the mean at its mode.

The weights of task t are ``w_0 + v_t``, the rows of V are normal as in `evidence`. The objective, minimised over w_0
and all that `evidence` minimises over (row variances gamma, noise, relations R), is

    - ln p(y - x'w_0 | gamma, noise, R) + ... + mean_strength / 2 ||w_0||^2.

Two blocks in turn, each of which lowers it: `evidence` on targets less the predictions of the mean; and the best w_0
for given gamma, noise and R, generalised least squares. The latter is the w_0 of the joint mode of (w_0, V),

    minimise  sum_t 1/(2 s_t) ||y_t - b_t - X_t (w_0 + v_t)||^2 + 1/2 sum_i v^i R^-1 v^i' / gamma_i
              + mean_strength / 2 ||w_0||^2,

found by conjugate gradients; since V at the start of it is the posterior mean, even a step that is cut short lowers the
objective. Squared loss only: the bound of the logistic evidence has no offset.
"""

from typing import Any, NamedTuple

import numpy as np

from bayesmtfs.em import evidence
from bayesmtfs.em.evidence_likelihoods import NormalEvidence
from bayesmtfs.em.matrix_variate import conjugate_gradients
from bayesmtfs.em.shared_mean import MeanProblem
from bayesmtfs.progress import Progress
from bayesmtfs.types import FloatArray

COARSE = 100.0  # how much larger the tolerance of the evidence is before the mean has settled


class MeanEvidence(NamedTuple):
    """A mean, and the posterior of the deviations around it."""

    mean: FloatArray  # (p,)
    deviations: evidence.EvidenceSolution  # its trace is that of the whole objective


def solve(
    problem: MeanProblem,
    *,
    shared_noise: bool = False,
    noise_floor: float | None = None,
    tol: float = 1e-6,
    max_iter: int = 1000,
    progress: bool | None = None,
    **options: Any,
) -> MeanEvidence:
    """Maximise the evidence over the mean too.

    Parameters
    ----------
    problem : data, squared loss and ridge on the mean
    shared_noise, noise_floor, progress : see `evidence.solve`
    tol : fall of the objective per observation below which it has converged
    max_iter : most moves of the mean, and most posteriors between two of them
    options : relations and their shrinkage, for `evidence.solve`
    """
    data = problem.data
    floor = evidence.NOISE_FLOOR if noise_floor is None else noise_floor
    whole = NormalEvidence(data, problem.fit_intercept, shared_noise, floor)
    options |= {"fit_intercept": problem.fit_intercept, "shared_noise": shared_noise, "max_iter": max_iter}
    options |= {"least_noise": np.sqrt(whole.floor), "progress": False}
    mean = best_mean(problem, np.zeros(data.n_features), pooled(problem, np.sqrt(whole.target_variances)))
    found = evidence.solve(problem.around(mean)[0], tol=COARSE * tol, **options)
    options["relation_shrinkage"] = found.relation_shrinkage
    enough = tol * float(data.weight.sum())
    trace = [float(found.objective_trace[-1]) + problem.ridge(mean)]
    converged = interrupted = False
    with Progress("shared mean", progress) as bar:
        while not (converged or interrupted) and len(trace) <= max_iter:
            moved = best_mean(problem, mean, found)
            after = evidence.solve(problem.around(moved)[0], tol=tol, start=found, **options)
            value = float(after.objective_trace[-1]) + problem.ridge(moved)
            converged, interrupted = trace[-1] - value <= enough, after.interrupted
            if value <= trace[-1]:
                mean, found = moved, after
                trace.append(value)
            bar.update(len(trace) / max_iter)
    ended = found._replace(
        objective_trace=np.array(trace), n_iter=len(trace) - 1, converged=converged, interrupted=interrupted
    )
    return MeanEvidence(mean, ended)


def pooled(problem: MeanProblem, noise: FloatArray) -> evidence.EvidenceSolution:
    """No deviations, at a given noise: where the mean begins."""
    p, m = problem.data.n_features, problem.data.n_tasks
    nothing = evidence.start_from(np.zeros(p), noise, None)
    return nothing._replace(W=np.zeros((p, m)), intercept=np.zeros(m))


def best_mean(problem: MeanProblem, mean: FloatArray, found: evidence.EvidenceSolution) -> FloatArray:
    """(p,) Mean of the joint mode of mean and deviations, at given row variances, noise and relations.

    Parameters
    ----------
    problem : data and ridge
    mean : (p,) where the deviations' posterior was computed
    found : that posterior
    """
    data, ridge = problem.data, np.sqrt(problem.strength)
    noise = np.ones(data.n_tasks) if found.noise is None else found.noise
    factor = data.weight / noise[data.task] ** 2
    totals = np.add.reduceat(factor, data.offsets[:-1])
    active = np.flatnonzero(found.row_variances)
    scales, root = np.sqrt(found.row_variances[active])[:, np.newaxis], _root(found)
    zero = np.zeros(data.n_tasks)

    def deviations(U: FloatArray) -> FloatArray:
        V = np.zeros((data.n_features, data.n_tasks))
        V[active] = (scales * U) @ root
        return V if data.present is None else np.where(data.present, V, 0.0)

    def parts(u: FloatArray) -> tuple[FloatArray, FloatArray]:
        return u[: data.n_features] / ridge, u[data.n_features :].reshape(len(active), data.n_tasks)

    def weighted(values: FloatArray) -> FloatArray:
        """Residuals over the noise variances, without what the intercepts take."""
        values = factor * values
        if not problem.fit_intercept:
            return values
        return values - factor * (np.add.reduceat(values, data.offsets[:-1]) / totals)[data.task]

    def pulled(values: FloatArray) -> FloatArray:
        """Adjoint of the predictions."""
        back = scales * (data.adjoint(values)[active] @ root)
        return np.concatenate([problem.adjoint(values) / ridge, back.ravel()])

    def curvature(u: FloatArray) -> FloatArray:
        shared, U = parts(u)
        predicted = problem.predictions(shared) + data.linear_predictor(deviations(U), zero)
        return u + pulled(weighted(predicted))

    residuals = data.y - problem.predictions(mean) - data.linear_predictor(found.W, zero)
    # At the posterior mean the gradient in V vanishes, so that the ridge on the mean is all that is missing
    gradient = -pulled(weighted(residuals))
    gradient[: data.n_features] += ridge * mean
    gradient[data.n_features :] = 0.0
    return mean + parts(conjugate_gradients(curvature, -gradient))[0]


def _root(found: evidence.EvidenceSolution) -> FloatArray:
    """(m, m) R^(1/2)."""
    if found.task_relations is None:
        return np.eye(found.W.shape[1])
    values, vectors = np.linalg.eigh(found.task_relations)
    return np.asarray((vectors * np.sqrt(values)) @ vectors.T)
