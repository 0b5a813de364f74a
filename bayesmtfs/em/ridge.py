"""EM of `em_jeffreys` where every step is a ridge regression: squared loss, q = 2, rows of single features.

Objective: that of `em_jeffreys` at q = 2, up to the constants of its rows,

    sum_t [ L_t(w_t, b_t) / sigma_t^2 + n_t ln sigma_t ] + m sum_i ln ||w^i||_2.

With the weighted design A_t and target z_t, centred where there is an intercept, an iteration is (Zhang, Yeung and Xu
2010, eq. 9)

    w_t = E (I + E A_t' A_t E / sigma_t^2)^-1 E A_t' z_t / sigma_t^2,      E = diag(||w^i||_2) / sqrt(m),

with ``A_t' A_t`` formed once, or the same by an n x n system where a task has fewer rows than features. The numbers are
those of `em_jeffreys`; what falls away is everything that another loss, another q, groups or absent features would need.
"""

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from scipy.linalg.lapack import dposv

from bayesmtfs.em.active_tasks import ActiveTasks
from bayesmtfs.em.row_ridge import Curvature
from bayesmtfs.progress import Progress
from bayesmtfs.types import BoolArray, FloatArray


@dataclass(frozen=True)
class Settings:
    """What EM is told.

    Attributes
    ----------
    norm_q : q of the rows, finite; the first value where q is updated
    shape, rate : of the Gamma prior of ``rho^-q``, both 0 for Jeffreys
    noise_floor : least sigma_t, in units of sd(y)
    learn_noise : whether sigma is learned (squared loss only)
    shared_noise : one sigma for all tasks
    tol : largest change of a coefficient, in units of sd(y) / sd(x), at which EM has converged
    max_iter : most iterations
    """

    norm_q: float = 2.0
    shape: float = 0.0
    rate: float = 0.0
    noise_floor: float = 0.1
    learn_noise: bool = True
    shared_noise: bool = False
    tol: float = 1e-6
    max_iter: int = 500


class Sums(NamedTuple):
    """The squared loss of every task in its active features."""

    curv: Curvature
    targets: tuple[FloatArray, ...]  # z, (n_t,) per task
    cross: FloatArray  # (p, m) A'z
    squares: FloatArray  # (m,) z'z
    counts: FloatArray  # (m,)

    def restricted(self, kept: BoolArray) -> Self:
        """Return the same for a subset of the features."""
        return self._replace(curv=self.curv.restricted(kept), cross=self.cross[kept])


class RowValues(NamedTuple):
    """What rows add to the objective."""

    active: float  # a row of norm 1
    zero: float  # a row that became zero
    others: float  # all rows that were zero before


class End(NamedTuple):
    """Where EM ended."""

    W: FloatArray  # (p, m)
    noise: FloatArray  # (m,)
    converged: bool
    interrupted: bool


def is_simple(tasks: ActiveTasks, settings: Settings) -> bool:
    """Whether every step is a ridge regression on rows that are single features, which all tasks have."""
    plain = settings.norm_q == 2.0 and settings.shape == settings.rate == 0.0
    rows = plain and tasks.family.name == "squared" and len(tasks.row_labels) > 0
    return rows and tasks.blocks.positions is None


def sums_of(tasks: ActiveTasks) -> Sums:
    """Collect what the iterations need."""
    curv = tasks.squared_curvature
    targets = []
    for start, stop in tasks.spans:
        weight, y = tasks.weight[start:stop], tasks.y[start:stop]
        centre = weight @ y / weight.sum() if tasks.fit_intercept else 0.0
        targets.append(np.sqrt(weight) * (y - centre))
    cross = np.column_stack([A.T @ z for A, z in zip(curv.roots, targets, strict=True)])
    return Sums(curv, tuple(targets), cross, np.array([z @ z for z in targets]), tasks.counts)


def update_coefficients(sums: Sums, W: FloatArray, noise: FloatArray) -> FloatArray:
    """E-step and M-step: (p, m) coefficients after an iteration."""
    curv, precision = sums.curv, noise**-2.0
    p, m = W.shape
    E = np.sqrt(np.einsum("pm,pm->p", W, W) / m)
    after = np.empty_like(W)
    if len(curv.primal):
        known = E * (sums.cross * precision).T[curv.primal]
        systems = (np.outer(E, E) * precision[curv.primal, np.newaxis, np.newaxis]) * curv.grams
        systems.reshape(len(curv.primal), -1)[:, :: p + 1] += 1.0
        after[:, curv.primal] = (E * _solve(systems, known)).T
    for t in curv.dual:
        root = np.sqrt(precision[t])
        B = curv.roots[t] * (root * E)
        system = B @ B.T
        system.ravel()[:: len(B) + 1] += 1.0
        after[:, t] = E * (_solve(system[np.newaxis], root * sums.targets[t][np.newaxis])[0] @ B)
    return after


def _solve(systems: FloatArray, known: FloatArray) -> FloatArray:
    """(k, p) Solutions of k positive definite systems."""
    if len(systems) > 1:
        return np.asarray(np.linalg.solve(systems, known[:, :, np.newaxis])[:, :, 0])
    _, solution, info = dposv(systems[0].T, known[0], overwrite_a=1)  # symmetric: its transpose is in LAPACK's order
    return solution[np.newaxis] if info == 0 else np.linalg.solve(systems[0], known[0])[np.newaxis]


def residual_squares(sums: Sums, W: FloatArray) -> FloatArray:
    """(m,) Squared residuals of each task, with its best intercept."""
    curv = sums.curv
    squares = np.empty(W.shape[1])
    if len(curv.primal):
        own = W.T[curv.primal]
        curved = np.matmul(curv.grams, own[:, :, np.newaxis])[:, :, 0]
        linear = np.einsum("tp,tp->t", own, 2.0 * sums.cross.T[curv.primal] - curved)
        squares[curv.primal] = np.maximum(sums.squares[curv.primal] - linear, 0.0)
    for t in curv.dual:
        residual = sums.targets[t] - curv.roots[t] @ W[:, t]
        squares[t] = residual @ residual
    return squares


def noise_of(squares: FloatArray, counts: FloatArray, settings: Settings) -> FloatArray:
    """(m,) Sigma that goes with the squared residuals and the number of observations of every task."""
    variances = np.full(len(counts), squares.sum() / counts.sum()) if settings.shared_noise else squares / counts
    return np.maximum(np.sqrt(variances), settings.noise_floor)


def run(
    tasks: ActiveTasks,
    W: FloatArray,
    noise: FloatArray,
    settings: Settings,
    pruned: float,
    values: RowValues,
    trace: list[float],
    bar: Progress,
) -> End:
    """Run EM from a start.

    Parameters
    ----------
    tasks : active part of the problem
    W, noise : (p, m) and (m,) start; no row is zero
    settings : noise and when to stop
    pruned : largest entry below which a row becomes zero
    values : what rows count in the objective
    trace : objective so far; that of every iteration is appended
    bar : told of every iteration
    """
    full, active, m = np.zeros_like(W), np.arange(len(W)), tasks.n_tasks
    sums, zeros = sums_of(tasks), values.others
    converged = interrupted = False
    try:
        while not converged and len(trace) <= settings.max_iter and len(active):
            after, before = update_coefficients(sums, W, noise), noise
            change = float(np.max(np.abs(after - W)))
            kept: BoolArray = np.max(np.abs(after), axis=1) >= pruned
            W = after
            if not kept.all():
                sums, W, active = sums.restricted(kept), after[kept], active[kept]
                zeros += values.zero * float(np.sum(~kept))
            squares = residual_squares(sums, W)
            noise = noise_of(squares, sums.counts, settings) if settings.learn_noise else noise
            rows = 0.5 * m * float(np.sum(np.log(np.einsum("pm,pm->p", W, W)))) + values.active * len(active)
            trace.append(float(0.5 * squares @ noise**-2.0 + sums.counts @ np.log(noise)) + rows + zeros)
            converged = max(change, float(np.max(np.abs(np.log(noise / before))))) <= settings.tol
            bar.update(len(trace) / settings.max_iter, f"{len(active)} features")
    except KeyboardInterrupt:
        interrupted = True
    full[active] = W
    return End(full, noise, converged, interrupted)
