r"""A task correlation matrix R ~ LKJ(eta) and its symmetric square root in a PyMC model.

R is built from partial correlations. On the vine that takes out the tasks 1, 2, ... one after the other, those with k
tasks taken out before are independent ``2 Beta(b, b) - 1`` with ``b = eta + (m - 2 - k) / 2``, and then
``p(R) \propto \det(R)^(eta - 1)`` (Lewandowski, Kurowicka and Joe 2009, section 2.4). They give the Cholesky factor row
by row, ``L_ik = r_ik prod_{l < k} (1 - r_il^2)^(1/2)``, with ``r_ii = 1``.

``Omega = R^(1/2)`` is the symmetric root. Its derivative solves ``Omega dOmega + dOmega Omega = dR``, which in the
eigenvectors of R is a division by ``s_i + s_j`` (s the roots of the eigenvalues): safe where eigenvalues coincide, as at
R = I, where the derivative of the eigenvectors is not.

References
----------
D. Lewandowski, D. Kurowicka, H. Joe. Generating random correlation matrices based on vines and extended onion method.
Journal of Multivariate Analysis 100, 2009.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph

from bayesmtfs.models.linear_predictor import Tensor

SMALLEST_EIGENVALUE = 1e-14  # of a correlation matrix, below which rounding decides


def task_correlation(name: str, n_tasks: int, concentration: float) -> Tensor:
    """Add a correlation matrix with an LKJ prior to the model in context.

    Parameters
    ----------
    name : str
        Name of the matrix, with the dimensions ``task`` and ``task_bis``.
    n_tasks : int
        Number m of tasks.
    concentration : float
        eta, above 0; 1 is uniform, larger values lie closer to the identity.

    Returns
    -------
    tensor (m, m)
        R. The free variable is ``partial_correlation_share`` (m (m - 1) / 2,), ``(1 + r) / 2`` of the partial
        correlations r, absent with one task.
    """
    dims = ("task", "task_bis")
    if n_tasks == 1:
        return pm.Deterministic(name, pt.ones((1, 1)), dims=dims)
    row, column = np.tril_indices(n_tasks, -1)
    shape = concentration + 0.5 * (n_tasks - 2 - column)
    share = pm.Beta("partial_correlation_share", shape, shape, shape=len(row))
    partial = pt.zeros((n_tasks, n_tasks))[row, column].set(2.0 * share - 1.0)
    factor = cholesky_of_partial_correlations(partial)
    return pm.Deterministic(name, factor @ factor.T, dims=dims)


def cholesky_of_partial_correlations(partial: Tensor) -> Tensor:
    """Lower factor L of R = L L' from partial correlations below the diagonal, zeros elsewhere."""
    n_tasks = partial.type.shape[0]
    # Row by row the sum over the columns before; a product with a constant is the quickest to compile and to derive
    before = 0.5 * pt.log1p(-pt.square(partial)) @ np.triu(np.ones((n_tasks, n_tasks)), 1)
    return (partial + np.eye(n_tasks)) * pt.exp(before)


def symmetric_root(matrix: Tensor) -> Tensor:
    """``R^(1/2)``, symmetric and positive definite, with a gradient that holds where eigenvalues coincide."""
    inner = pt.matrix("matrix", shape=matrix.type.shape)
    vectors, roots = _eigenvectors_and_roots(inner)
    root = (vectors * roots) @ vectors.T
    return OpFromGraph([inner], [root], pullback=_pull_back, inline=True, name="symmetric_root")(matrix)


def _eigenvectors_and_roots(matrix: Tensor) -> tuple[Tensor, Tensor]:
    values, vectors = pt.linalg.eigh(matrix)
    return vectors, pt.sqrt(pt.maximum(values, SMALLEST_EIGENVALUE))


def _pull_back(inputs: list[Tensor], outputs: list[Tensor], cotangents: list[Tensor]) -> list[Tensor]:
    """Solve ``Omega G + G Omega = cotangent`` in the eigenvectors of the matrix."""
    vectors, roots = _eigenvectors_and_roots(inputs[0])
    inside = vectors.T @ cotangents[0] @ vectors / (roots[:, None] + roots[None, :])
    return [vectors @ inside @ vectors.T]
