"""Smoothed multi-task learning (SMTL): every learner minimises the losses of all tasks, weighted by how they help it.

Learner k of K solves

    minimise  sum_j eta_kj L_j(w_k, b_k) + s/2 ||w_k||^2 - lambda H(p_k),    eta = alpha I + (1 - alpha) P

over w_k, b_k and its row p_k of the row-stochastic P, where L_j is the mean loss of task j and H the entropy
(Murugesan, Liu, Carbonell and Yang 2016, eq. 4, Algorithm 1). The problem is biconvex; the two steps alternate:

    w_k: one ridge fit over the rows of all tasks
    p_kj = exp(-(1 - alpha) L_j(w_k) / lambda) / sum  (eq. 6, SMTL-e)   or   (lambda - L_j(w_k))_+ / sum  (SMTL-t)

What differs from the paper: the ridge s (without it the hinge loss answers rare positives with a constant), the
logistic loss beside the hinge, and the row of P that is kept where all of ``(lambda - L)_+`` are zero. The threshold
step minimises no stated objective; the trace of SMTL-t is that of SMTL-e's objective and may rise.
"""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import Family, Logistic
from bayesmtfs.online.smoothed_ridge import RidgeFit, RidgeSettings, fit_kinked, fit_smooth
from bayesmtfs.progress import Progress
from bayesmtfs.types import FloatArray, Solution

KINKED_TOL = 1e-5  # of a score: coordinate ascent is slow beyond that


@dataclass(frozen=True)
class SmoothedSettings:
    """Parameters of the objective, and when to stop."""

    update: str = "exponential"
    concentration: float = 0.5
    smoothing: float = 1.0
    strength: float = 0.1
    family: Family = Logistic()
    fit_intercept: bool = True
    tol: float = 1e-6
    max_iter: int = 100


def task_losses(data: TaskData, family: Family, W: FloatArray, intercept: FloatArray) -> FloatArray:
    """(K, m) Mean loss of each learner on each task."""
    scores = np.asarray(data.X @ W) + intercept
    values = family.value(data.y[:, None], scores) * data.loss_weights("mean")[:, None]
    return np.add.reduceat(values, data.offsets[:-1], axis=0).T


def attention(update: str, concentration: float, smoothing: float, losses: FloatArray, P: FloatArray) -> FloatArray:
    """(K, K) New rows of P."""
    if update == "exponential":
        exponent = -(1.0 - concentration) / smoothing * losses
        raw = np.exp(exponent - exponent.max(axis=1, keepdims=True))
    else:
        raw = np.maximum(smoothing - losses, 0.0)
    total = raw.sum(axis=1, keepdims=True)
    return np.where(total > 0, raw / np.where(total > 0, total, 1.0), P)


def objective(settings: SmoothedSettings, losses: FloatArray, P: FloatArray, W: FloatArray) -> float:
    """Sum of the learners' objectives."""
    alpha = settings.concentration
    entropy = -np.sum(P * np.log(np.where(P > 0, P, 1.0)))
    own = alpha * np.trace(losses) + (1.0 - alpha) * np.sum(P * losses)
    return float(own + 0.5 * settings.strength * np.sum(W**2) - settings.smoothing * entropy)


def solve(data: TaskData, settings: SmoothedSettings, progress: bool | None = None) -> tuple[Solution, FloatArray]:
    """Alternate between weights and relations until these rest; gives the learners, and P (K, K), whose rows sum to 1."""
    m, family, weights = data.n_tasks, settings.family, data.loss_weights("mean")
    ridge = RidgeSettings(settings.strength, settings.fit_intercept)
    if family.smooth:
        fit = partial(fit_smooth, data.X, data.y, family=family, settings=ridge)
    else:
        fit = partial(fit_kinked, data.X, data.y, family=family, settings=replace(ridge, tol=KINKED_TOL))
    P, W, intercept = np.full((m, m), 1.0 / m), np.zeros((data.n_features, m)), np.zeros(m)
    fits: list[RidgeFit | None] = [None] * m
    trace: list[float] = []
    converged = False
    with Progress("smoothed tasks", progress) as work:
        while not converged and len(trace) < settings.max_iter:
            eta = settings.concentration * np.eye(m) + (1.0 - settings.concentration) * P
            for k in range(m):
                found = fit(weight=eta[k][data.task] * weights, start=fits[k])
                fits[k], W[:, k], intercept[k] = found, found.w, found.intercept
            losses = task_losses(data, family, W, intercept)
            fresh = attention(settings.update, settings.concentration, settings.smoothing, losses, P)
            change, P = float(np.abs(fresh - P).max()), fresh
            trace.append(objective(settings, losses, P, W))
            work.update(len(trace) / settings.max_iter, f"change {change:.1e}")
            converged = change <= settings.tol or settings.concentration == 1.0
    if work.interrupted and not trace:
        raise KeyboardInterrupt
    if data.present is not None:
        W = np.where(data.present, W, 0.0)
    solution = Solution(W, intercept, trace[-1], np.nan, np.nan, converged, len(trace), np.array(trace))
    return solution, P
