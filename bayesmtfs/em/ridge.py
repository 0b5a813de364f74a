r"""The linear algebra of the M-step for W at any q: a ridge-like system per task, in the cheaper of primal and dual.

Given the expected precisions ``rho_i^-q`` of the rows, every task has a convex problem of its own (Zhang, Yeung and Xu
2010, eq. 9),

    minimise over w, b:   sum_i loss(y_i, x_i' w + b) + sum_j |w_j / rho_j|^q.

A step solves ``(A'A + D) step = -gradient`` with A the weighted, centred design (``A'A`` is the curvature of the loss)
and D a diagonal curvature of the penalty at ``v = w / rho``:

- q = 2:  ``D = 2 / rho^2``, exact (ridge regression);
- q < 2:  ``D = q |v|^(q-2) / rho^2``, the quadratic that lies above the penalty and touches it at v;
- q > 2:  ``D = q (q-1) |v|^(q-2) / rho^2``, Newton's, with a lower bound where v is near 0 and the penalty is flat.

With ``E = D^(-1/2)`` the step is ``-E (I + E A'A E)^-1 E gradient``: nothing overflows, since E is proportional to rho
and only powers of v, which is of order 1, are taken. The system is p x p, or n x n by Woodbury's identity where a task
has fewer rows than features. The paper uses conjugate gradients.

For least squares at q = 2 and rows of single features E-step and M-step are one formula (`LeastSquares`), with z the
centred target and ``A_t' A_t`` formed once,

    w_t = E (I + E A_t' A_t E / sigma_t^2)^-1 E A_t' z_t / sigma_t^2,      E = diag(||w^i||_2) / sqrt(m).
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, Self

import numpy as np
from numba import njit
from scipy.linalg.lapack import dposv

from bayesmtfs.types import BoolArray, FloatArray, IntArray

LEAST_CURVATURE = 1e-2  # of |v|^q at q > 2, where v is of order 1
SWEEPS = 3  # over the rows that are rescaled
SHRINKING = 0.25  # factor per sweep of a row on its way to zero
LEAST_FACTOR = 0.1  # per call
CONJUGATE_TOL = 1e-8
MOST_CONJUGATE_STEPS = 500


class Curvature(NamedTuple):
    """Curvature of each task's loss in its coefficients, centred where there is an intercept."""

    roots: tuple[FloatArray, ...]  # A, (n_t, p) per task
    means: FloatArray  # (p, m) weighted means of the features; zeros without an intercept
    totals: FloatArray  # (m,) sums of the row curvatures
    primal: IntArray  # tasks with at least as many rows as features
    dual: IntArray  # the other tasks
    grams: FloatArray  # A'A, (len(primal), p, p)

    def restricted(self, kept: BoolArray) -> Self:
        """Return the same for a subset of the features."""
        columns = np.flatnonzero(kept)
        cut = {id(A): A[:, columns] for A in self.roots}
        roots = tuple(cut[id(A)] for A in self.roots)
        primal, dual = _cheaper(roots, len(columns))
        if np.array_equal(primal, self.primal):
            grams = self.grams[:, columns[:, np.newaxis], columns]
        else:
            grams = _grams(roots, primal, len(columns))
        return self._replace(roots=roots, means=self.means[columns], primal=primal, dual=dual, grams=grams)


def curvature(designs: Sequence[FloatArray], row_curvatures: Sequence[FloatArray], fit_intercept: bool) -> Curvature:
    """Curvature of weighted losses, from designs (n_t, p) and second derivatives (n_t,) of the loss, weights included.

    With an intercept, which moves along, features count as deviations from their weighted mean.
    """
    p, m = designs[0].shape[1], len(designs)
    means, totals = np.zeros((p, m)), np.empty(m)
    roots: list[FloatArray] = []
    for t, (X, omega) in enumerate(zip(designs, row_curvatures, strict=True)):
        totals[t] = omega.sum()
        if t > 0 and X is designs[t - 1] and np.array_equal(omega, row_curvatures[t - 1]):
            means[:, t] = means[:, t - 1]
            roots.append(roots[-1])
            continue
        if fit_intercept and totals[t] > 0:
            means[:, t] = omega @ X / totals[t]
        roots.append(np.sqrt(omega)[:, np.newaxis] * (X - means[:, t]))
    primal, dual = _cheaper(roots, p)
    return Curvature(tuple(roots), means, totals, primal, dual, _grams(roots, primal, p))


def _cheaper(roots: Sequence[FloatArray], p: int) -> tuple[IntArray, IntArray]:
    tall = np.array([len(A) >= p for A in roots])
    return np.flatnonzero(tall), np.flatnonzero(~tall)


def _grams(roots: Sequence[FloatArray], primal: IntArray, p: int) -> FloatArray:
    grams = np.empty((len(primal), p, p))
    for place, t in enumerate(primal):
        again = place > 0 and roots[t] is roots[primal[place - 1]]
        grams[place] = grams[place - 1] if again else roots[t].T @ roots[t]
    return grams


def penalty_terms(V: FloatArray, norm_q: float) -> tuple[FloatArray, FloatArray]:
    """``1 / sqrt(D)`` and ``gradient / sqrt(D)`` of the penalty ``|v|^q``, entry by entry, at ``v = w / rho``."""
    sizes = np.abs(V)
    if norm_q <= 2.0:
        return sizes ** (1.0 - norm_q / 2.0) / np.sqrt(norm_q), np.sqrt(norm_q) * np.sign(V) * sizes ** (norm_q / 2.0)
    shrink = 1.0 / np.sqrt(np.maximum(norm_q * (norm_q - 1.0) * sizes ** (norm_q - 2.0), LEAST_CURVATURE))
    return shrink, norm_q * np.sign(V) * sizes ** (norm_q - 1.0) * shrink


def row_ridge_step(
    curv: Curvature,
    precision: FloatArray,
    gradient: FloatArray,
    W: FloatArray,
    scales: FloatArray,
    norm_q: float,
) -> FloatArray:
    """(p, m) Step of W (p, m) towards the minimum of every task's problem.

    The loss of task t counts with ``precision`` (m,), ``1 / sigma_t^2``; the gradient (p, m) has it in it, with the best
    move of the intercept taken out. Scales rho (p, m) are 0 for entries that are fixed at 0.
    """
    V = np.divide(W, scales, out=np.zeros_like(W), where=scales > 0)
    shrink, penalty_gradient = penalty_terms(V, norm_q)
    E = scales * shrink
    h = E * gradient + penalty_gradient
    step = np.empty_like(W)
    if len(curv.primal):
        Et = np.sqrt(precision[curv.primal])[:, np.newaxis] * E.T[curv.primal]
        systems = Et[:, :, np.newaxis] * curv.grams * Et[:, np.newaxis, :]
        systems[:, np.arange(len(W)), np.arange(len(W))] += 1.0
        step[:, curv.primal] = np.linalg.solve(systems, h.T[curv.primal][:, :, np.newaxis])[:, :, 0].T
    for t in curv.dual:
        B = np.sqrt(precision[t]) * curv.roots[t] * E[:, t]
        system = B @ B.T
        system[np.diag_indices_from(system)] += 1.0
        step[:, t] = h[:, t] - B.T @ np.linalg.solve(system, B @ h[:, t])
    return -E * step


class LeastSquares(NamedTuple):
    """The squared loss of every task in its active features, and what EM does with it at q = 2."""

    curv: Curvature
    targets: tuple[FloatArray, ...]  # z, (n_t,) per task
    cross: FloatArray  # (p, m) A'z
    squares: FloatArray  # (m,) z'z

    @classmethod
    def of(cls, curv: Curvature, targets: Sequence[FloatArray]) -> Self:
        """Collect what the iterations need."""
        cross = np.column_stack([A.T @ z for A, z in zip(curv.roots, targets, strict=True)])
        return cls(curv, tuple(targets), cross, np.array([z @ z for z in targets]))

    def restricted(self, kept: BoolArray) -> Self:
        """Return the same for a subset of the features."""
        return self._replace(curv=self.curv.restricted(kept), cross=self.cross[kept])

    def improved(self, W: FloatArray, noise: FloatArray) -> FloatArray:
        """E-step and M-step: (p, m) coefficients after an iteration."""
        curv, precision = self.curv, noise**-2.0
        p, m = W.shape
        E = np.sqrt(np.einsum("pm,pm->p", W, W) / m)
        after = np.empty_like(W)
        if len(curv.primal):
            known = E * (self.cross * precision).T[curv.primal]
            systems = (np.outer(E, E) * precision[curv.primal, np.newaxis, np.newaxis]) * curv.grams
            systems.reshape(len(curv.primal), -1)[:, :: p + 1] += 1.0
            after[:, curv.primal] = (E * _solve(systems, known)).T
        for t in curv.dual:
            root = np.sqrt(precision[t])
            B = curv.roots[t] * (root * E)
            system = B @ B.T
            system.ravel()[:: len(B) + 1] += 1.0
            after[:, t] = E * (_solve(system[np.newaxis], root * self.targets[t][np.newaxis])[0] @ B)
        return after

    def residual_squares(self, W: FloatArray) -> FloatArray:
        """(m,) Squared residuals of each task, with its best intercept."""
        curv = self.curv
        squares = np.empty(W.shape[1])
        if len(curv.primal):
            own = W.T[curv.primal]
            curved = np.matmul(curv.grams, own[:, :, np.newaxis])[:, :, 0]
            linear = np.einsum("tp,tp->t", own, 2.0 * self.cross.T[curv.primal] - curved)
            squares[curv.primal] = np.maximum(self.squares[curv.primal] - linear, 0.0)
        for t in curv.dual:
            residual = self.targets[t] - curv.roots[t] @ W[:, t]
            squares[t] = residual @ residual
        return squares


def _solve(systems: FloatArray, known: FloatArray) -> FloatArray:
    """(k, p) Solutions of k positive definite systems."""
    if len(systems) > 1:
        return np.asarray(np.linalg.solve(systems, known[:, :, np.newaxis])[:, :, 0])
    _, solution, info = dposv(systems[0].T, known[0], overwrite_a=1)  # symmetric: its transpose is in LAPACK's order
    return solution[np.newaxis] if info == 0 else np.linalg.solve(systems[0], known[0])[np.newaxis]


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


def falling_share(value: Callable[[float], float], shortest: float = 2.0**-30) -> float:
    """Largest of 1, 1/2, 1/4, ... at which a function is not above its value at 0; 0 where there is none."""
    before, share = value(0.0), 1.0
    while share > shortest:
        if value(share) <= before:
            return share
        share /= 2.0
    return 0.0


def best_factors(
    curv: Curvature,
    precision: FloatArray,
    gradient: FloatArray,
    W: FloatArray,
    rows: IntArray,
    entries: IntArray,
    falling: BoolArray,
) -> FloatArray:
    r"""(R,) Factor by which each row is stretched or shrunk to the best length, which EM reaches slowly at large q.

    Along ``w^i -> c_i w^i`` the objective of EM is, with the quadratic model of the loss at W,

        1/2 c'Hc - k'c + sum_i a_i ln c_i,   H_ij = sum_t (A_t w_t)_i' (A_t w_t)_j / sigma_t^2,   a_i = m,

    with ``(A_t w_t)_i`` the part of task t's fit that row i makes. One row at a time the best factor is the larger root
    of ``h c^2 - k c + a = 0``; where there is none, or the row is on the slope towards zero, and EM makes it smaller, it
    is made smaller at once. The E-step bounds the same logarithm by ``(m/q) c^q``, so that EM alone changes a row by a
    factor of about ``ln(q)/q``.

    ``rows`` (p,) are the rows of the features, ``entries`` (R,) their numbers of entries, and ``falling`` (R,) those that
    EM is making smaller; the rest is as in `row_ridge_step`.
    """
    n_rows = len(entries)
    H = np.zeros((n_rows, n_rows))
    for t, A in enumerate(curv.roots):
        parts = A * W[:, t]
        if n_rows < len(W):
            merged = np.zeros((n_rows, len(A)))
            np.add.at(merged, rows, parts.T)
            parts = merged.T
        H += precision[t] * (parts.T @ parts)
    slopes = np.bincount(rows, weights=np.sum(gradient * W, axis=1), minlength=n_rows)
    factors = np.ones(n_rows)
    _sweep(H, slopes, entries.astype(np.float64), falling, factors)
    return factors


@njit(cache=True)
def _sweep(H: FloatArray, slopes: FloatArray, entries: FloatArray, falling: BoolArray, factors: FloatArray) -> None:
    """Minimise over one factor at a time; ``slopes`` is the derivative of the loss in c at c = 1."""
    for _ in range(SWEEPS):
        for i in range(len(factors)):
            h = H[i, i]
            slope = slopes[i]
            for j in range(len(factors)):
                slope += H[i, j] * (factors[j] - 1.0)
            k = h * factors[i] - slope
            square = k * k - 4.0 * h * entries[i]
            root = math.sqrt(max(square, 0.0))
            if k > 0.0 and square > 0.0 and factors[i] > (k - root) / (2.0 * h):
                factors[i] = (k + root) / (2.0 * h)
            elif falling[i]:
                factors[i] = max(SHRINKING * factors[i], LEAST_FACTOR)
