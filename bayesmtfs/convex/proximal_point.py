"""Proximal point steps, each solved in the dual by semismooth Newton steps.

The proximal point algorithm whose steps are solved in the dual is the semismooth Newton augmented Lagrangian method of
Li, Sun and Toh 2018, *SIAM Journal on Optimization* 28:433-458, for the lasso, and of Zhang, Zhang, Sun and Toh 2020,
*Mathematical Programming* 179:223-263, for groups. With ``Q = Z'Z`` and ``B = Z'Y`` a step from W_k minimises the
objective of `shared_rows` plus ``||W - W_k||^2 / (2 sigma)``. In the dual variable ``theta = Y - Z C`` it is the smooth
convex problem

    minimise over C:   1/2 <C, Q C> + 1/(2 sigma) ||W(C)||^2,      W(C) = prox_sigma(W_k + sigma (B - Q C)),

whose Newton system involves the rows of W(C) that are not zero only. All rows may enter or leave at each step, which
is why strongly correlated columns do not slow it down as they do coordinate descent. Per row the Hessian of the penalty
is ``diag(h) - c g g'``. Without the rank-one terms the system falls apart into tasks, and at q = 2, where h is the same
for all tasks, one Cholesky factor serves all of them; the rank-one terms of the a active rows are put back by one a x a
system (Woodbury). That costs a^3 operations instead of (a m)^3.
"""

from typing import NamedTuple, Self

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs

from bayesmtfs.convex.group_penalty import GroupPenalty, active_lines
from bayesmtfs.convex.row_grams import RowGram
from bayesmtfs.priors.row_penalty import RowCurvature, RowPenalty
from bayesmtfs.types import FloatArray, IntArray

MAX_NEWTON = 30  # steps within one proximal step
MAX_HALVINGS = 25  # of the length of a Newton step
INEXACTNESS = 0.5  # of a proximal step, relative to its length
SUFFICIENT = 1e-4  # share of the decrease that the slope promises
STIFF = 1e7  # curvature that binds entries to each other; the diagonal of Q is 1
RIDGES = (0.0, 1e-10, 1e-7, 1e-4)  # added to the diagonal, one after the other, where a system is not definite


def solve_rows(Q: FloatArray, hessian: RowCurvature, ridge: float, right: FloatArray) -> FloatArray | None:
    """Solve ``(Q + ridge + Hessian of the penalty) S = right`` (a, m) for the active rows; None if not definite."""
    n_rows, n_tasks = right.shape
    same = hessian.diagonal.shape[1] == 1
    parts = [slice(0, n_tasks)] if same else [slice(t, t + 1) for t in range(n_tasks)]
    diagonals = ridge + hessian.diagonal
    solution = np.zeros_like(right)
    # the coupling of the rank-one terms, scaled to a diagonal of at most 1; its lower triangle
    root = np.sqrt(hessian.scale)
    starts = hessian.starts
    root_of_line = root if starts is None else np.repeat(root, np.diff(starts))
    coupling = np.eye(len(root), order="F")
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
        along = root_of_line[free, None] * hessian.direction[free, part]
        if along.any():
            products = dpotri(factor, lower=1)[0] * (along @ along.T).T  # their lower triangle
            if starts is None:
                coupling[grid] -= products
            else:
                whole = np.tril(products) + np.tril(products, -1).T
                coupling -= np.add.reduceat(np.add.reduceat(whole, starts[:-1], axis=0), starts[:-1], axis=1)
        factors.append((factor, free, part, along))
    inner = root_of_line * np.einsum("im,im->i", hessian.direction, solution)
    inner = inner if starts is None else np.add.reduceat(inner, starts[:-1])
    if not inner.any():
        return solution
    outer_factor, failed = dpotrf(coupling, lower=1, overwrite_a=1)
    if failed:
        return None
    weights = dpotrs(outer_factor, inner, lower=1)[0]
    weights = weights if starts is None else np.repeat(weights, np.diff(starts))
    for factor, free, part, along in factors:
        solution[free, part] += dpotrs(factor, weights[free, None] * along, lower=1)[0]
    return solution


def _factor(Q: FloatArray, diagonal: FloatArray) -> tuple[FloatArray, bool]:
    """Lower Cholesky factor of ``Q + diag(diagonal)``, and whether there is none."""
    shifted = Q.copy(order="F")
    shifted.ravel(order="K")[:: len(shifted) + 1] += diagonal
    factor, failed = dpotrf(shifted, lower=1, overwrite_a=1)
    return factor, bool(failed)


class NewtonPoint(NamedTuple):
    """The point W(C) that belongs to a C, and how far the two are apart; of the latter only rows that are not zero."""

    active: IntArray  # rows of W(C) that are not zero
    moving: IntArray  # those, and the rows in which W(C) and C differ
    block: FloatArray  # inner products of the columns of moving rows
    direction: FloatArray  # W(C) - C on the moving rows
    error: FloatArray  # Q (W(C) - C) on the moving rows

    @classmethod
    def of(cls, gram: RowGram, penalty: RowPenalty | GroupPenalty, point: FloatArray, C: FloatArray) -> Self:
        """What follows from W(C) and C, both (k, m)."""
        active, direction = active_lines(penalty, point), point - C
        moves = direction.any(axis=1)
        moves[active] = True
        moving = np.flatnonzero(moves)
        block, direction = gram.block(moving), direction[moving]
        return cls(active, moving, block, direction, block @ direction)

    @property
    def square(self) -> float:
        """Squared distance of W(C) and C, as the loss sees it."""
        return float(np.vdot(self.direction, self.error))


def newton_direction(
    now: NewtonPoint, penalty: RowPenalty | GroupPenalty, point: FloatArray, sigma: float
) -> FloatArray | None:
    """Newton direction of C on the moving rows; None where the system is singular. sigma is the length of the step."""
    direction, active = now.direction.copy(), now.active
    if len(active) == 0:
        return direction
    hessian = penalty.take(active).curvature(point[active], STIFF)
    places = np.searchsorted(now.moving, active)
    block = now.block if len(active) == len(now.moving) else now.block.take(places, axis=0).take(places, axis=1)
    for ridge in RIDGES:
        step = solve_rows(block, hessian, ridge + 1.0 / sigma, -now.error[places])
        if step is not None and np.isfinite(step).all():
            direction[places] += step
            return direction
    return None


class DualPoint(NamedTuple):
    """The dual variable of proximal steps: C (k, m) and ``gamma = B - Q C``.

    The one that a step ends at is a good start for the next. W itself is not: what C differs from it by is small as the
    loss sees it, but not times a large sigma.
    """

    C: FloatArray
    gamma: FloatArray


def proximal_point(
    gram: RowGram,
    penalty: RowPenalty | GroupPenalty,
    W: FloatArray,
    correlation: FloatArray,
    sigma: float,
    floor: float,
    dual: DualPoint | None = None,
) -> tuple[FloatArray, int]:
    """One proximal step from W (k, m), where the correlation is ``B - Q W``; the number of Newton steps it took, too.

    The larger sigma, the closer the step comes to the minimum and the harder it is; it counts as exact at a squared error
    of ``floor``. A dual point is where the search begins, and is moved to where it ends; None begins at C = W.
    """
    C, gamma = DualPoint(W.copy(), correlation.copy()) if dual is None else dual
    point = _prox_all(penalty, W + sigma * gamma, sigma)
    for n_steps in range(MAX_NEWTON):
        now, moved = NewtonPoint.of(gram, penalty, point, C), point - W
        if now.square <= INEXACTNESS**2 / sigma * np.vdot(moved, moved) + floor:
            return point, n_steps
        direction = newton_direction(now, penalty, point, sigma)
        if direction is None:
            return point, n_steps
        change = gram.times_some(now.moving, direction)
        slope = -float(np.vdot(now.error, direction))
        linear, square = float(np.vdot(C, change)), float(np.vdot(direction, change[now.moving]))
        size = float(np.vdot(point, point))
        for halvings in range(MAX_HALVINGS):
            length = 0.5**halvings
            point = _prox_all(penalty, W + sigma * (gamma - length * change), sigma)
            rise = length * linear + length**2 / 2 * square + (float(np.vdot(point, point)) - size) / (2 * sigma)
            if rise <= SUFFICIENT * length * slope:
                break
        else:
            return point, n_steps
        C[now.moving] += length * direction
        gamma -= length * change
    return point, MAX_NEWTON


def _prox_all(penalty: RowPenalty | GroupPenalty, rows: FloatArray, step: float) -> FloatArray:
    """Proximal point of all rows; the Euclidean norm needs no compiled loop for it."""
    if isinstance(penalty, GroupPenalty) or not penalty.is_euclidean:
        return penalty.prox(rows, step)
    thresholds = step * penalty.strengths(len(rows))
    norms = np.sqrt(np.einsum("im,im->i", rows, rows))
    kept = norms > thresholds
    factors = np.where(kept, 1.0 - thresholds / np.where(kept, norms, 1.0), 0.0)
    return factors[:, None] * rows
