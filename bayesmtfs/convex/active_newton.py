"""Newton direction of a quadratic model on the rows that are not zero.

Coordinate descent finds which entries are zero soon, but may take long to settle the others where features are nearly
collinear. Where an entry keeps its sign and a row its non-zero norm, the penalty is smooth, and its Hessian in row i is
a diagonal minus a rank-one matrix. For 1 < q < inf and ``u = |w| / ||w||_q``

    lam (q - 1) / ||w||_q  [ diag(u^(q-2)) - z z' ],    z = sign(w) u^(q-1);

it is zero for q = 1. For q = inf the entries that share the largest absolute value must move together, which the same
form says with a large factor in front. As the Gram matrices couple features within a task and the penalty couples
tasks within a row, the system is block-diagonal by tasks but for one rank-one term per row: it is solved by an inverse
per task and one system of the size of the number of rows (Sherman-Morrison-Woodbury).
"""

from typing import NamedTuple

import numpy as np

from bayesmtfs.convex.penalty_rows import PenaltyRows
from bayesmtfs.types import BoolArray, FloatArray, IntArray

RIDGE = 1e-11  # on the Gram matrices, relative to their mean diagonal: columns may be collinear
STIFF = 1e7  # curvature of what must not move, relative to the largest of the loss
TIED = 1e-9  # relative difference below which entries share the largest absolute value


class PenaltyCurvature(NamedTuple):
    """Gradient and Hessian of the penalty where it is smooth: ``diag(diagonal) - sum_i factor_i z_i z_i'``."""

    gradient: FloatArray  # (k, m)
    diagonal: FloatArray  # (k, m)
    z: FloatArray  # (k, m)
    factor: FloatArray  # (R,)
    fixed: BoolArray  # (k, m) entries that must not move


def newton_direction(
    Q: FloatArray, gradient: FloatArray, W: FloatArray, norms: FloatArray, rows: PenaltyRows
) -> FloatArray | None:
    """(k, m) Newton direction at W, whose rows are all non-zero; None where the system is singular.

    Parameters
    ----------
    Q : (k, m, k) Gram matrices
    gradient : (k, m) gradient of the quadratic part
    W : (k, m) coefficients
    norms : (R,) q-norms of the rows
    rows : the rows and their penalty
    """
    by_task = Q.transpose(1, 0, 2)
    squares = np.einsum("tjj->jt", by_task)
    stiff = STIFF * float(squares.max())
    penalty = penalty_curvature(W, norms, rows, stiff)
    diagonal = np.where(penalty.fixed, stiff, np.minimum(penalty.diagonal, stiff)) + RIDGE * float(squares.mean())
    descent = np.where(penalty.fixed, 0.0, -gradient - penalty.gradient)
    k = len(W)
    system = by_task.copy()
    system[:, np.arange(k), np.arange(k)] += diagonal.T
    try:
        inverse = np.linalg.inv(system)
        direction = np.einsum("tjl,lt->jt", inverse, descent)
        if penalty.factor.any():
            direction += _rank_one_part(inverse, direction, penalty, rows.starts)
    except np.linalg.LinAlgError:
        return None
    return np.where(penalty.fixed, 0.0, direction) if np.all(np.isfinite(direction)) else None


def _rank_one_part(
    inverse: FloatArray, direction: FloatArray, penalty: PenaltyCurvature, starts: IntArray
) -> FloatArray:
    """What the rank-one terms add to a solution without them."""
    z, first = penalty.z, starts[:-1]
    products = np.einsum("jt,lt,tjl->jl", z, z, inverse, optimize=True)
    coupling = np.add.reduceat(np.add.reduceat(products, first, axis=0), first, axis=1)
    right_side = np.add.reduceat(np.sum(z * direction, axis=1), first)
    share = np.linalg.solve(np.diag(1.0 / penalty.factor) - coupling, right_side)
    return np.einsum("tjl,lt->jt", inverse, z * np.repeat(share, np.diff(starts))[:, np.newaxis])


def penalty_curvature(W: FloatArray, norms: FloatArray, rows: PenaltyRows, stiff: float) -> PenaltyCurvature:
    """Gradient and Hessian of the penalty at W, whose rows are all non-zero."""
    q, strengths = rows.norm_q, rows.strengths

    def spread(values: FloatArray) -> FloatArray:
        return np.repeat(values, rows.sizes)[:, np.newaxis]

    signs = np.sign(W)
    sizes = np.abs(W) / spread(norms)
    fixed = (W == 0) & (q == 1.0 or bool(rows.sparsity.any()))
    nothing = np.zeros_like(W)
    if q == 1.0:
        return PenaltyCurvature(spread(strengths) * signs, nothing, nothing, np.zeros(len(norms)), fixed)
    if q == np.inf:
        tied = sizes >= 1.0 - TIED
        counts = np.add.reduceat(tied.sum(axis=1), rows.starts[:-1])
        gradient = spread(strengths / counts) * np.where(tied, signs, 0.0)
        z = np.where(tied, signs, 0.0) / spread(np.sqrt(counts))
        return PenaltyCurvature(gradient, np.where(tied, stiff, 0.0), z, np.full(len(norms), stiff), fixed)
    factor = strengths * (q - 1.0) / norms
    z = signs * sizes ** (q - 1.0)
    with np.errstate(divide="ignore"):
        diagonal = spread(factor) * (np.ones_like(W) if q == 2.0 else sizes ** (q - 2.0))
    gradient = spread(strengths) * (z + spread(rows.sparsity) * signs)
    return PenaltyCurvature(gradient, diagonal, z, factor, fixed)
