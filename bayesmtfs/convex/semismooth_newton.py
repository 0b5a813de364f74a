"""Semismooth Newton steps for a least-squares problem with a row penalty.

    minimise over W (k, m):   1/2 <W, Q W> - <B, W> + sum_i penalty_i(w^i),     Q = Z'Z, B = Z'Y

The method is the proximal point algorithm whose steps are solved in the dual (the semismooth Newton augmented
Lagrangian method of Li, Sun and Toh 2018, *SIAM Journal on Optimization* 28:433-458, for the lasso; Zhang, Zhang, Sun
and Toh 2020, *Mathematical Programming* 179:223-263, for groups). A step from W_k minimises the objective plus
``||W - W_k||^2 / (2 sigma)``. In the dual variable ``theta = Y - Z C`` it is the smooth convex problem

    minimise over C:   1/2 <C, Q C> + 1/(2 sigma) ||W(C)||^2,      W(C) = prox_sigma(W_k + sigma (B - Q C)),

whose Newton system involves the rows of W(C) that are not zero only. All rows may enter or leave at each step, which
is why strongly correlated columns do not slow it down as they do coordinate descent.

Per row the Hessian of the penalty is ``diag(h) - c g g'``. Without the rank-one terms the system falls apart into
tasks, and at q = 2, where h is the same for all tasks, one Cholesky factor serves all of them; the rank-one terms of
the a active rows are put back by one a x a system (Woodbury). That costs a^3 operations instead of (a m)^3.
"""

from typing import NamedTuple, Protocol

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs

from bayesmtfs.priors.row_penalty import RowPenalty
from bayesmtfs.types import FloatArray, IntArray

MAX_NEWTON = 30  # steps within one proximal step
MAX_HALVINGS = 25  # of the length of a Newton step
INEXACTNESS = 0.1  # of a proximal step, relative to its length
SUFFICIENT = 1e-4  # share of the decrease that the slope promises
STIFF = 1e7  # curvature that binds entries to each other; the diagonal of Q is 1
RIDGES = (0.0, 1e-10, 1e-7, 1e-4)  # added to the diagonal, one after the other, where a system is not definite


class Gram(Protocol):
    """The matrix Q = Z'Z of columns of length 1."""

    def times(self, V: FloatArray) -> FloatArray:
        """(k, m) Q V, where most rows of V are zero."""

    def block(self, rows: IntArray) -> FloatArray:
        """(a, a) Q of some of the rows."""


class Curvature(NamedTuple):
    """Hessian ``diag(diagonal_i) - scale_i direction_i direction_i'`` of the penalty at each active row."""

    diagonal: FloatArray  # (a, m), or (a, 1) where it is the same for all tasks; inf holds an entry in its place
    scale: FloatArray  # (a,)
    direction: FloatArray  # (a, m)


def n_factors(penalty: RowPenalty, n_tasks: int) -> int:
    """Return how many Cholesky factors a Newton step needs."""
    return 1 if penalty.is_euclidean else n_tasks


def curvature(penalty: RowPenalty, rows: IntArray, W: FloatArray) -> Curvature:
    """Curvature of the penalty at rows that are not zero.

    Entries stay where the penalty has a kink: zeros at q = 1 are held, and ties at q = inf are bound to each other.

    Parameters
    ----------
    penalty : with one weight per row of the problem
    rows : (a,) numbers of the rows
    W : (a, m) their coefficients
    """
    strength = penalty.strengths(len(W)) if penalty.weights is None else penalty.strength * penalty.weights[rows]
    size = np.abs(W)
    peak = size.max(axis=1)
    unit = size / peak[:, None]
    if penalty.entrywise:
        length = np.sqrt(np.einsum("im,im->i", unit, unit))
        scale = np.minimum(strength / (peak * length), STIFF)
        return Curvature(np.where(size > 0, scale[:, None], np.inf), scale, np.sign(W) * unit / length[:, None])
    if penalty.norm_q == 1 or W.shape[1] == 1:
        return Curvature(np.where(size > 0, 0.0, np.inf), np.ones(len(W)), np.zeros_like(W))
    if penalty.norm_q == np.inf:
        tied = unit == 1.0
        bound = tied & (tied.sum(axis=1, keepdims=True) > 1)
        direction = np.where(bound, np.sign(W), 0.0) / np.sqrt(tied.sum(axis=1, keepdims=True))
        return Curvature(np.where(bound, STIFF, 0.0), np.full(len(W), STIFF), direction)
    q = penalty.norm_q
    norm = np.sum(unit**q, axis=1) ** (1.0 / q)
    unit /= norm[:, None]
    scale = np.minimum((q - 1.0) * strength / (peak * norm), STIFF)
    direction = np.sign(W) * unit ** (q - 1.0)
    if q == 2:
        return Curvature(scale[:, None], scale, direction)
    with np.errstate(divide="ignore"):
        diagonal = scale[:, None] * unit ** (q - 2.0)
    return Curvature(np.where(diagonal > STIFF, np.inf, diagonal), scale, direction)


def solve_rows(Q: FloatArray, bend: Curvature, ridge: float, right: FloatArray) -> FloatArray | None:
    """Solve ``(Q + ridge + Hessian of the penalty) S = right`` for the active rows; None where it is not definite.

    Parameters
    ----------
    Q : (a, a) Gram matrix of the rows
    bend : curvature of the penalty at the rows
    ridge : added to the diagonal, positive
    right : (a, m)
    """
    n_rows, n_tasks = right.shape
    same = bend.diagonal.shape[1] == 1
    parts = [slice(0, n_tasks)] if same else [slice(t, t + 1) for t in range(n_tasks)]
    diagonals = ridge + bend.diagonal
    solution = np.zeros_like(right)
    # the coupling of the rank-one terms, scaled to a diagonal of at most 1; its lower triangle
    root = np.sqrt(bend.scale)
    coupling = np.eye(n_rows, order="F")
    factors = []
    for number, part in enumerate(parts):
        free = np.flatnonzero(np.isfinite(diagonals[:, number]))
        if len(free) == 0:
            continue
        grid = np.ix_(free, free) if len(free) < n_rows else (slice(None), slice(None))
        factor, failed = _factor(Q[grid], diagonals[free, number])
        if failed:
            return None
        solution[free, part] = dpotrs(factor, right[free, part], lower=1)[0]
        along = root[free, None] * bend.direction[free, part]
        if along.any():
            coupling[grid] -= dpotri(factor, lower=1)[0] * (along @ along.T).T
        factors.append((factor, free, part, along))
    inner = root * np.einsum("im,im->i", bend.direction, solution)
    if not inner.any():
        return solution
    outer_factor, failed = dpotrf(coupling, lower=1, overwrite_a=1)
    if failed:
        return None
    weights = dpotrs(outer_factor, inner, lower=1)[0]
    for factor, free, part, along in factors:
        solution[free, part] += dpotrs(factor, weights[free, None] * along, lower=1)[0]
    return solution


def _factor(Q: FloatArray, diagonal: FloatArray) -> tuple[FloatArray, bool]:
    """Lower Cholesky factor of ``Q + diag(diagonal)``, and whether there is none."""
    shifted = Q.copy(order="F")
    shifted.ravel(order="K")[:: len(shifted) + 1] += diagonal
    factor, failed = dpotrf(shifted, lower=1, overwrite_a=1)
    return factor, bool(failed)


def newton_direction(
    gram: Gram, penalty: RowPenalty, point: FloatArray, error: FloatArray, sigma: float
) -> tuple[IntArray, FloatArray] | None:
    """Active rows of a point, and the Newton correction of their entries of C (None where the system is singular).

    Parameters
    ----------
    gram : Q
    penalty : with one weight per row
    point : (k, m) W(C)
    error : (k, m) Q (W(C) - C)
    sigma : length of the proximal step
    """
    active = np.flatnonzero(point.any(axis=1))
    if len(active) == 0:
        return active, point[active]
    bend = curvature(penalty, active, point[active])
    block = gram.block(active)
    for ridge in RIDGES:
        step = solve_rows(block, bend, ridge + 1.0 / sigma, -error[active])
        if step is not None and np.isfinite(step).all():
            return active, step
    return None


def proximal_point(
    gram: Gram, penalty: RowPenalty, W: FloatArray, correlation: FloatArray, sigma: float, floor: float
) -> tuple[FloatArray, int]:
    """One proximal step from W.

    Parameters
    ----------
    gram : Q
    penalty : with one weight per row
    W : (k, m) where the step begins
    correlation : (k, m) B - Q W
    sigma : length of the step; the larger, the closer it comes to the minimum and the harder it is
    floor : squared error at which the step counts as exact

    Returns
    -------
    W : (k, m) the new point
    n_steps : number of Newton steps
    """
    C, gamma = W.copy(), correlation.copy()  # gamma is B - Q C
    point = _prox(penalty, W + sigma * gamma, sigma)
    for n_steps in range(MAX_NEWTON):
        direction = point - C
        error = gram.times(direction)
        moved = point - W
        if np.vdot(direction, error) <= INEXACTNESS**2 / sigma * np.vdot(moved, moved) + floor:
            return point, n_steps
        correction = newton_direction(gram, penalty, point, error, sigma)
        if correction is None:
            return point, n_steps
        direction[correction[0]] += correction[1]
        change = gram.times(direction)
        slope = -float(np.vdot(error, direction))
        linear, square = float(np.vdot(C, change)), float(np.vdot(direction, change))
        size = float(np.vdot(point, point))
        for halvings in range(MAX_HALVINGS):
            length = 0.5**halvings
            point = _prox(penalty, W + sigma * (gamma - length * change), sigma)
            rise = length * linear + length**2 / 2 * square + (float(np.vdot(point, point)) - size) / (2 * sigma)
            if rise <= SUFFICIENT * length * slope:
                break
        else:
            return point, n_steps
        C += length * direction
        gamma -= length * change
    return point, MAX_NEWTON


def _prox(penalty: RowPenalty, rows: FloatArray, step: float) -> FloatArray:
    """Proximal point of all rows; the Euclidean norm needs no compiled loop for it."""
    if not penalty.is_euclidean:
        return penalty.prox(rows, step)
    thresholds = step * penalty.strengths(len(rows))
    norms = np.sqrt(np.einsum("im,im->i", rows, rows))
    kept = norms > thresholds
    factors = np.where(kept, 1.0 - thresholds / np.where(kept, norms, 1.0), 0.0)
    return factors[:, None] * rows
