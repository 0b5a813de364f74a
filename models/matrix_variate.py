r"""The matrix-variate generalized normal model: rows with their own scale, tasks with learned relations.

.. math::

   W = \mathrm{diag}(\rho) \, Z \, \Omega, \qquad z_{jt} \sim GN(0, 1, q), \qquad \Omega = R^{1/2}, \qquad
   R \sim \mathrm{LKJ}(\eta)

with the row scales, intercepts, noise and targets of `generalized_normal_model`. Zhang, Yeung and Xu 2010 (section 4.3,
eq. 10) leave Omega free: ``(rho, Omega)`` and ``(c rho, Omega / c)`` are then the same distribution, and its estimate
runs into a singular matrix. A correlation matrix under its symmetric root takes the scale out of Omega, and ``eta > 1``
keeps it from being singular. A row has the covariance ``rho^2 Gamma(3/q) / Gamma(1/q) R``.

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
Y. Zhang, D.-Y. Yeung, Q. Xu. Probabilistic multi-task feature selection. NIPS 2010, section 4.3.
"""

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import Family
from bayesmtfs.models.distributions import MatrixGeneralizedNormal, Tensor, as_float_tensor
from bayesmtfs.models.rows import NormQ, exponent, generalized_normal_entries, row_scale_per_feature
from bayesmtfs.models.terms import Extra, add_observations, coordinates, density_of, readable
from bayesmtfs.priors.blocks import Blocks
from bayesmtfs.priors.hyperpriors import Hyperprior, check_relations, hyperprior_for

SMALLEST_EIGENVALUE = 1e-14  # of a correlation matrix, below which rounding decides


def matrix_variate_model(
    data: TaskData,
    norm_q: NormQ = 2,
    loss: str | Family = "squared",
    expected_features: float | None = None,
    relation_concentration: float = 2.0,
    prior: Hyperprior | None = None,
    centred: bool = False,
    extra: Extra | None = None,
    **settings: Any,
) -> pm.Model:
    """Build the model with row scales and a learned correlation of the tasks.

    Parameters
    ----------
    data : TaskData
        Observations, as in `generalized_normal_model`; every task must have every feature.
    norm_q : float or "learn", default 2
        Shape q of the entries of Z.
    loss : str or Family, default "squared"
        Any family with a density and a PyMC term.
    expected_features : float, optional
        How many features (or groups of features) are expected to matter; None: a tenth of them.
    relation_concentration : float, default 2.0
        eta of the LKJ prior of the task correlations, above 1: larger values expect tasks to be less related.
    prior : Hyperprior, optional
        The whole hyperprior, instead of ``expected_features`` and ``settings``.
    centred : bool, default False
        Whether the sampler moves W or Z.
    extra : callable, optional
        Called inside the model with the linear predictor (obs): what it gives back takes its place, so that a covariate
        or a random effect is added there; None says that it has observed ``model["target"]`` by a likelihood of its own.
    **settings
        Any other parameter of `bayesmtfs.priors.hyperpriors.hyperprior_for`; ``kind="log_uniform"`` takes bounded
        Jeffreys scales.

    Returns
    -------
    pm.Model
        As `generalized_normal_model`, with ``task_relations`` (task, task_bis), the correlation matrix R. There are
        ``m (m - 1) / 2`` correlations: a model for tens of tasks, not for hundreds.

    Examples
    --------
    >>> import numpy as np
    >>> from bayesmtfs import TaskData
    >>> from bayesmtfs.models import matrix_variate_model
    >>> data = TaskData.from_long(np.eye(4), [1.0, 2.0, 3.0, 4.0], tasks=["b", "a", "b", "a"])
    >>> matrix_variate_model(data).named_vars_to_dims["task_relations"]
    ('task', 'task_bis')
    """
    family = density_of(loss)
    data = readable(data, family)
    if prior is None:
        prior = hyperprior_for(data, family, expected_features=expected_features, **settings)
    check_relations(data, prior, relation_concentration)
    named = coordinates(data)
    with pm.Model(coords=named | {"task_bis": named["task"]}) as model:
        q = exponent(norm_q, prior)
        row_scale = row_scale_per_feature(prior, q, Blocks(data.n_features, data.n_tasks, data.groups))
        relations = task_correlation("task_relations", data.n_tasks, relation_concentration)
        root = symmetric_root(relations)
        dims = ("feature", "task")
        if centred:
            if norm_q == np.inf:
                raise ValueError(
                    "centred=True with norm_q=inf has a support that moves with the scales; leave it False"
                )
            coef = MatrixGeneralizedNormal("coef", row_scale, root, q, dims=dims)
        else:
            standard = generalized_normal_entries(q)("standard_coef", 0.0, as_float_tensor(1.0), dims=dims)
            coef = pm.Deterministic("coef", row_scale[:, None] * (standard @ root), dims=dims)
        add_observations(data, family, prior, coef, extra)
    return model


# ---------------------------------------------------------------------- task relations


def task_correlation(name: str, n_tasks: int, concentration: float) -> Tensor:
    """Add a correlation matrix R (task, task_bis) with the prior LKJ(concentration) to the model in context.

    The free variable is ``partial_correlation_share`` (m (m - 1) / 2,), ``(1 + r) / 2`` of the partial correlations r,
    absent with one task.
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
