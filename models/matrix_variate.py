r"""The matrix-variate generalized normal model: rows with their own scale, tasks with learned relations.

.. math::

   W = \mathrm{diag}(\rho) \, Z \, \Omega, \qquad z_{jt} \sim GN(0, 1, q), \qquad \Omega = R^{1/2}, \qquad
   R \sim \mathrm{LKJ}(\eta)

with the row scales, intercepts, noise and likelihood of `generalized_normal_model`. Zhang, Yeung and Xu 2010 (section
4.3, eq. 10) leave Omega free: ``(rho, Omega)`` and ``(c rho, Omega / c)`` are then the same law, and its estimate runs
into a singular matrix. A correlation matrix under its symmetric root takes the scale out of Omega, and ``eta > 1`` keeps
it from being singular. A row has the covariance ``rho^2 Gamma(3/q) / Gamma(1/q) R``.

References
----------
Y. Zhang, D.-Y. Yeung, Q. Xu. Probabilistic multi-task feature selection. NIPS 2010, section 4.3.
"""

from typing import Any

import numpy as np
import pymc as pm

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.models.coefficients import generalized_normal_entries
from bayesmtfs.models.distributions import MatrixGeneralizedNormal, as_float_tensor
from bayesmtfs.models.hyperpriors import NormQ, exponent, row_scale_per_feature
from bayesmtfs.models.linear_predictor import coordinates
from bayesmtfs.models.observations import add_observations, readable
from bayesmtfs.models.task_relations import symmetric_root, task_correlation
from bayesmtfs.priors.blocks import Blocks
from bayesmtfs.priors.hyperpriors import Hyperprior, check_positive, hyperprior_for


def matrix_variate_model(
    data: TaskData,
    norm_q: NormQ = 2,
    loss: str = "squared",
    expected_features: float | None = None,
    relation_concentration: float = 2.0,
    prior: Hyperprior | None = None,
    centred: bool = False,
    **settings: Any,
) -> pm.Model:
    """Build the model with row scales and a learned correlation of the tasks.

    Parameters
    ----------
    data : TaskData
        Observations, as in `generalized_normal_model`; every task must have every feature.
    norm_q : float or "learn", default 2
        Shape q of the entries of Z.
    loss : {"squared", "logistic"}, default "squared"
        Normal targets, or labels.
    expected_features : float, optional
        How many features (or groups of features) are expected to matter; None: a tenth of them.
    relation_concentration : float, default 2.0
        eta of the LKJ prior of the task correlations, above 1: larger values expect tasks to be less related.
    prior : Hyperprior, optional
        The whole hyperprior, instead of ``expected_features`` and ``settings``.
    centred : bool, default False
        Whether the sampler moves W or Z.
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
    check_positive("relation_concentration", relation_concentration)
    if relation_concentration <= 1.0:
        raise ValueError(
            f"relation_concentration is {relation_concentration}, where the prior does not fall towards singular "
            "task relations; pass a number above 1, such as 2"
        )
    if data.present is not None:
        raise ValueError(
            "data has tasks without some of the features, but related tasks need all of them; "
            "use generalized_normal_model, or drop the features that a task lacks"
        )
    if prior is None:
        prior = hyperprior_for(data, loss, expected_features=expected_features, **settings)
    if prior.mean_scale > 0.0:
        raise ValueError(
            "shared_mean=True does not go with a matrix_variate_model, whose task relations say already how tasks go "
            "together; use generalized_normal_model or horseshoe_model, or leave shared_mean False"
        )
    data = readable(data, loss)
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
        add_observations(data, loss, prior, coef)
    return model
