"""Priors on the rows of the coefficient matrix: what each route needs of them, in NumPy and numba."""

import numpy as np

from bayesmtfs.priors.blocks import Blocks
from bayesmtfs.priors.generalized_normal import GeneralizedNormal
from bayesmtfs.priors.jeffreys import Jeffreys
from bayesmtfs.priors.matrix_variate import MatrixVariate
from bayesmtfs.priors.mixed_norm import MixedNorm
from bayesmtfs.priors.sparse_group import SparseGroup, check_task_sparsity
from bayesmtfs.types import FloatArray

__all__ = ["Blocks", "GeneralizedNormal", "Jeffreys", "MatrixVariate", "MixedNorm", "SparseGroup", "row_penalty"]


def row_penalty(
    strength: float, norm_q: float, task_sparsity: float | FloatArray = 0.0, weights: FloatArray | None = None
) -> MixedNorm | SparseGroup:
    """Convex penalty on the rows, as an estimator's parameters describe it.

    Parameters
    ----------
    strength : float
        Penalty strength, at least 0.
    norm_q : float
        Norm within a row, in [1, inf].
    task_sparsity : float or (R,) array
        Weight of the 1-norm against the 2-norm; anything above 0 needs ``norm_q=2``.
    weights : (R,) array, optional
        Factor of the strength per row.

    Returns
    -------
    MixedNorm or SparseGroup
        ``strength * sum_i ||w^i||_q``, or ``strength * sum_i (r ||w^i||_1 + ||w^i||_2)`` with a task sparsity.

    Examples
    --------
    >>> row_penalty(0.1, norm_q=3)
    MixedNorm(strength=0.1, norm_q=3, weights=None)
    >>> row_penalty(0.1, norm_q=2, task_sparsity=0.5)
    SparseGroup(strength=0.1, task_sparsity=0.5, weights=None)
    """
    check_task_sparsity(task_sparsity)
    mixed_norm = MixedNorm(strength, norm_q, weights)
    if not np.any(np.asarray(task_sparsity) > 0.0):
        return mixed_norm
    if norm_q != 2.0:
        raise ValueError(
            f"task_sparsity is {task_sparsity} and norm_q is {norm_q}, but it is defined with norm_q=2 only; "
            "pass norm_q=2, or task_sparsity=0"
        )
    return SparseGroup(strength, task_sparsity, weights)
