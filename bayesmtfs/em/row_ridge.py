r"""One step of the M-step for W at any q: a ridge-like system per task, in the cheaper of primal and dual.

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
"""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from bayesmtfs.types import BoolArray, FloatArray, IntArray

LEAST_CURVATURE = 1e-2  # of |v|^q at q > 2, where v is of order 1


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
    """Curvature of weighted losses.

    Parameters
    ----------
    designs : (n_t, p) array per task
    row_curvatures : (n_t,) second derivatives of the loss per task, weights included
    fit_intercept : whether the intercept moves along: then features count as deviations from their weighted mean
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
    """``1 / sqrt(D)`` and ``gradient / sqrt(D)`` of the penalty ``|v|^q``, entry by entry.

    Parameters
    ----------
    V : scaled coefficients w / rho
    norm_q : q, finite and at least 1
    """
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
    """(p, m) Step of W towards the minimum of every task's problem.

    Parameters
    ----------
    curv : curvature of the losses, before the noise
    precision : (m,) factor of each task's loss, ``1 / sigma_t^2``
    gradient : (p, m) gradient of the loss in W, precision included, with the best move of the intercept taken out
    W : (p, m) where the step begins
    scales : (p, m) rho, 0 for entries that are fixed at 0
    norm_q : q
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
