"""Newton directions on the rows that are not zero, for a quadratic model of the loss plus the row penalty.

The quadratic part couples the features of a task, by its Gram matrix ``Q_t``, and the penalty the tasks of a row: its
Hessian is ``diag(d_j) - c_j z_j z_j'`` per row j (`RowPenalty.curvature`). The direction V minimises

    sum_t [ v_t'(Q_t + diag(d_t)) v_t / 2 - r_t'v_t ] - sum_j c_j (z_j'v^j)^2 / 2,      r = minus the gradient,

so that ``v_t = (Q_t + diag(d_t))^-1 (r_t + z_t s)`` with one factor s_j per row, from a system of the size of the number of
rows (Sherman-Morrison-Woodbury). `newton_direction` inverts the Gram matrix of every task, to which a mean of the tasks
may be coupled. `direction_by_observations` is for tasks with fewer observations than there are rows: with the centred and
weighted columns Z_t, ``Q_t = Z_t'Z_t``, the inverse is ``E_t - U_t'U_t`` with ``E_t = diag(1 / d_t)`` and
``U_t = L^-1 Z_t E_t``, where ``L L' = I + Z_t E_t Z_t'`` is no larger than the task; no Gram matrix is made.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, cholesky, solve_triangular

from bayesmtfs.convex.problem import PenaltyRows
from bayesmtfs.convex.row_steps import NO_CURVATURE
from bayesmtfs.types import FloatArray, IntArray

RIDGE = 1e-11  # on the Gram matrices, relative to their mean diagonal: columns may be collinear
STIFF = 1e7  # curvature of what must not move, relative to the largest of the loss
TIED = 1e-9  # relative difference below which entries share the largest absolute value


class PenaltyTerms(NamedTuple):
    """Second-order model of the penalty at rows W (k, m) that are not zero."""

    diagonal: FloatArray  # (k, m) d; inf holds an entry in its place
    gradient: FloatArray  # (k, m)
    direction: FloatArray  # (k, m) z
    scale: FloatArray  # (R,) c


def penalty_terms(rows: PenaltyRows, W: FloatArray, stiff: float) -> PenaltyTerms:
    """Terms of the penalty; ``stiff`` is the curvature that binds entries to each other."""
    blocks = rows.blocks(W.shape[1])
    lines = blocks.gather(W)
    hessian = rows.penalty.curvature(lines, stiff, TIED)
    diagonal = blocks.scatter(np.broadcast_to(hessian.diagonal, lines.shape))
    gradient = blocks.scatter(rows.penalty.gradient(lines, TIED))
    return PenaltyTerms(diagonal, gradient, blocks.scatter(hessian.direction), hessian.scale)


class MeanSystem(NamedTuple):
    """The part of a mean (M,) in a Newton system on rows of W (k, m)."""

    coupling: FloatArray  # (m, k, M)
    square: FloatArray  # (M, M)
    descent: FloatArray  # (M,) minus the gradient


def newton_direction(
    Q: FloatArray, gradient: FloatArray, W: FloatArray, rows: PenaltyRows, mean: MeanSystem | None = None
) -> tuple[FloatArray, FloatArray] | None:
    """Newton direction (k, m) at W (k, m), whose rows are all non-zero, and (M,) of a mean; None where it is singular.

    ``Q`` (k, m, k) are the Gram matrices, ``gradient`` (k, m) is that of the quadratic part.
    """
    by_task = Q.transpose(1, 0, 2)
    squares = np.einsum("tjj->jt", by_task)
    stiff = STIFF * float(squares.max(initial=1e-300))
    diagonal, pull, z, scale = penalty_terms(rows, W, stiff)
    fixed = np.isinf(diagonal)
    descent = np.where(fixed, 0.0, -gradient - pull)
    k = len(W)
    system = by_task.copy()
    system[:, np.arange(k), np.arange(k)] += (
        np.minimum(diagonal, stiff) + RIDGE * float(squares.sum()) / max(squares.size, 1)
    ).T
    try:
        inverse = np.linalg.inv(system)
        direction, of_mean = _coupled(inverse, descent, z, scale, rows.starts, mean)
    except LinAlgError:
        return None
    finite = np.all(np.isfinite(direction)) and np.all(np.isfinite(of_mean))
    return (np.where(fixed, 0.0, direction), of_mean) if finite else None


def _coupled(
    inverse: FloatArray,
    descent: FloatArray,
    z: FloatArray,
    scale: FloatArray,
    starts: IntArray,
    mean: MeanSystem | None,
) -> tuple[FloatArray, FloatArray]:
    """Solve for W (k, m) and the mean (M,), given the inverses by task of all but the terms ``- scale_i z_i z_i'``.

    ``w_t = inverse_t (descent_t - coupling_t a + z_t s)``, with one factor s per row and the mean a from a system of
    their size.
    """
    first, sizes = starts[:-1], np.diff(starts)
    alone = np.einsum("tjl,lt->jt", inverse, descent)
    n_rows = len(sizes) if z.any() else 0
    n_mean = 0 if mean is None else len(mean.descent)
    if n_rows + n_mean == 0:
        return alone, np.zeros(0)
    system, right = np.zeros((n_rows + n_mean, n_rows + n_mean)), np.zeros(n_rows + n_mean)
    if n_rows > 0:
        products = np.einsum("jt,lt,tjl->jl", z, z, inverse, optimize=True)
        coupling = np.add.reduceat(np.add.reduceat(products, first, axis=0), first, axis=1)
        system[:n_rows, :n_rows] = np.diag(1.0 / np.maximum(scale, NO_CURVATURE)) - coupling
        right[:n_rows] = np.add.reduceat(np.sum(z * alone, axis=1), first)
    if mean is not None:
        through = inverse @ mean.coupling  # (m, k, M)
        system[n_rows:, n_rows:] = mean.square - np.einsum("tjM,tjN->MN", mean.coupling, through, optimize=True)
        right[n_rows:] = mean.descent - np.einsum("tjM,jt->M", mean.coupling, alone)
        if n_rows > 0:
            across = np.add.reduceat(np.einsum("jt,tjM->jM", z, through), first)
            system[:n_rows, n_rows:], system[n_rows:, :n_rows] = across, across.T
    found = np.linalg.solve(system, right)
    change = z * np.repeat(found[:n_rows], sizes)[:, np.newaxis] if n_rows > 0 else np.zeros_like(z)
    of_mean = found[n_rows:]
    if mean is not None:
        change = change - (mean.coupling @ of_mean).T
    return alone + np.einsum("tjl,lt->jt", inverse, change), of_mean


class TaskColumns(NamedTuple):
    """Columns of the rows that are not zero, task by task."""

    A: FloatArray  # (N, k)
    means: FloatArray  # (k, m) that are taken off
    curvature: FloatArray  # (N,) of the loss
    offsets: IntArray  # (m + 1,)

    def by_task(self) -> Iterator[tuple[int, slice]]:
        """Go through the tasks: number and observations."""
        return enumerate(slice(a, b) for a, b in pairwise(self.offsets.tolist()))


def direction_by_observations(
    columns: TaskColumns, gradient: FloatArray, W: FloatArray, rows: PenaltyRows, ridge: float
) -> FloatArray | None:
    """Newton direction (k, m) as `newton_direction` gives it; None where the system is singular.

    All entries of the penalty's Hessian must be above 0, as at q = 2, or there is a ridge.
    """
    largest = float(np.max(columns.curvature @ columns.A**2, initial=1e-300))
    diagonal, pull, z, scale = penalty_terms(rows, W, STIFF * largest)
    inverse = 1.0 / (diagonal + ridge)
    descent = np.where(inverse > 0.0, -gradient - pull, 0.0)
    first, root = rows.starts[:-1], np.sqrt(columns.curvature)[:, np.newaxis]
    whitened, along = np.empty_like(columns.A), np.empty_like(columns.A)  # U, and U_t times z_t
    try:
        for t, part in columns.by_task():
            Z = root[part] * (columns.A[part] - columns.means[:, t])
            scaled = Z * inverse[:, t]
            factor = cholesky(np.eye(len(Z)) + scaled @ Z.T, lower=True, check_finite=False)
            whitened[part] = solve_triangular(factor, scaled, lower=True, check_finite=False)
            along[part] = whitened[part] * z[:, t]
        alone = _solve_by_observations(inverse, whitened, columns, descent)
        if rows.grouped:
            along = np.add.reduceat(along, first, axis=1)
        own = 1.0 / np.maximum(scale, NO_CURVATURE) - np.add.reduceat(np.sum(z**2 * inverse, axis=1), first)
        coupling = along.T @ along
        coupling[np.diag_indices_from(coupling)] += np.maximum(own, 0.0) + RIDGE * np.trace(coupling) / len(coupling)
        right = np.add.reduceat(np.sum(z * alone, axis=1), first)
        factors = cho_solve(cho_factor(coupling, lower=True, check_finite=False), right, check_finite=False)
    except LinAlgError:
        return None
    change = z * np.repeat(factors, rows.sizes)[:, np.newaxis]
    direction = alone + _solve_by_observations(inverse, whitened, columns, change)
    return direction if np.all(np.isfinite(direction)) else None


def _solve_by_observations(
    inverse: FloatArray, whitened: FloatArray, columns: TaskColumns, right: FloatArray
) -> FloatArray:
    """``(E_t - U_t'U_t) r_t`` of every task, for the right-hand sides (k, m)."""
    solution = inverse * right
    for t, part in columns.by_task():
        solution[:, t] -= whitened[part].T @ (whitened[part] @ right[:, t])
    return solution
