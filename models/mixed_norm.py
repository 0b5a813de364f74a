r"""The model whose posterior mode is the mixed-norm fit.

Its log-probability is, up to a constant, minus the penalised objective

.. math::

   \sum_i c_i \, \mathrm{loss}(y_i, \eta_i) + \lambda \sum_j \|w^j\|_q,
   \qquad \eta_i = x_i^\top w_{t(i)} + b_{t(i)},

with ``c_i`` the weight of an observation on the scale of the loss (``1/n_t`` for ``loss_scale="mean"``, 1 for
``"sum"``, times its sample weight). The rows ``w^j`` have the `MixedNorm` prior, the intercepts a flat one, and the
noise is fixed at 1: learning it would change the balance of loss and penalty and so the mode.

References
----------
Y. Zhang, D.-Y. Yeung, Q. Xu. Probabilistic multi-task feature selection. NIPS 2010, problem (1).
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import Family, find_family
from bayesmtfs.models.distributions import MixedNorm, Tensor
from bayesmtfs.models.terms import coordinates, linear_predictor, observe, readable, with_known_part
from bayesmtfs.priors.blocks import Blocks
from bayesmtfs.priors.row_penalty import check_norm_q, check_strength
from bayesmtfs.types import LossScale


def mixed_norm_model(
    data: TaskData,
    penalty_strength: float,
    norm_q: float = 2,
    loss: str | Family = "squared",
    loss_scale: LossScale = "mean",
    fit_intercept: bool = True,
    task_sparsity: float = 0.0,
) -> pm.Model:
    """Build the PyMC model whose MAP is the mixed-norm fit of the same data and parameters.

    Differences of its log-probability are minus the differences of the penalised objective; nothing is transformed, so
    there are no Jacobian terms. With ``loss="hinge"`` the loss is a pseudo-likelihood: ``exp(-hinge)`` is not a density
    of the labels, so the posterior ranks coefficients, but there are no predictive draws.

    Parameters
    ----------
    data : TaskData
        Observations; any two labels for a family of labels (-1 and +1 in the model, in sorted order).
    penalty_strength : float
        Strength lambda of the penalty, > 0.
    norm_q : float, default 2
        Norm within a row, in [1, inf].
    loss : str or Family, default "squared"
        "squared", "absolute", "logistic", "hinge", or any family with a PyMC term.
    loss_scale : {"mean", "sum"}, default "mean"
        Whether the losses of a task are averaged or summed.
    fit_intercept : bool, default True
        Whether there is one intercept per task, with a flat prior, since it is not penalised.
    task_sparsity : float, default 0.0
        Factor r of an additional ``penalty_strength * r * sum_j ||w^j||_1``, which also selects tasks within a row.
        Needs ``norm_q=2``.

    Returns
    -------
    pm.Model
        Coordinates ``feature``, ``task``, ``obs`` (and ``row`` where all tasks share one design). Variables ``coef``
        (feature, task), ``intercept`` (task), ``noise`` (the number 1, of families with noise) and the observed ``y``
        (obs). Data ``target``, ``weight``, ``penalty_strength`` and the design (see
        `bayesmtfs.models.terms.linear_predictor`), all of which ``pm.set_data`` can change.

    Raises
    ------
    ValueError
        If a parameter is out of its range.

    Notes
    -----
    With groups of features, or features that some tasks do not have, a row of the prior is the set of coefficients of
    one group that are not fixed at 0. The free variables are then ``coef_rows_of_k`` (rows, k), one for every number k
    of coefficients that a row has, and ``coef`` is made of them.

    A flat prior cannot be drawn from: ``pm.sample_prior_predictive`` needs ``fit_intercept=False``. The penalty of
    ``task_sparsity`` is a potential, which prior draws leave out.

    Examples
    --------
    >>> import numpy as np
    >>> from bayesmtfs import TaskData
    >>> from bayesmtfs.models import mixed_norm_model
    >>> data = TaskData.from_long(np.eye(4), [1.0, 2.0, 3.0, 4.0], tasks=["b", "a", "b", "a"])
    >>> model = mixed_norm_model(data, penalty_strength=0.1)
    >>> model.named_vars_to_dims["coef"], model.coords["task"]
    (('feature', 'task'), ('a', 'b'))
    """
    _check_penalty(penalty_strength, norm_q, task_sparsity)
    if loss_scale not in ("mean", "sum"):
        raise ValueError(f"loss_scale is {loss_scale!r}; choose 'mean' or 'sum'")
    family = find_family(loss)
    data = readable(data, family)
    family = family.on(np.asarray(data.y, dtype=np.float64), data.weight, data.offsets)
    with pm.Model(coords=coordinates(data)) as model:
        strength = pm.Data("penalty_strength", float(penalty_strength))
        blocks = Blocks(data.n_features, data.n_tasks, data.groups, data.present)
        coef = _coefficients(blocks, strength, norm_q)
        if task_sparsity > 0:
            pm.Potential("task_sparsity", -strength * task_sparsity * pt.sum(pt.abs(coef)))
        intercept = pm.Flat("intercept", dims="task") if fit_intercept else None
        if family.has_noise:
            pm.Deterministic("noise", pt.constant(1.0))
        observe(
            "y",
            family,
            with_known_part(data, linear_predictor(data, coef, intercept)),
            pm.Data("target", np.asarray(data.y, dtype=np.float64), dims="obs"),
            weight=pm.Data("weight", data.loss_weights(loss_scale), dims="obs"),
        )
    return model


def _check_penalty(penalty_strength: float, norm_q: float, task_sparsity: float) -> None:
    check_strength(penalty_strength)
    if penalty_strength == 0:
        raise ValueError("penalty_strength is 0, which makes the prior improper; pass a positive number, such as 0.1")
    check_norm_q(norm_q, smallest=1.0)
    if not 0 <= task_sparsity < np.inf:
        raise ValueError(f"task_sparsity is {task_sparsity}; pass a finite number of at least 0")
    if task_sparsity > 0 and norm_q != 2:
        raise ValueError(f"task_sparsity is {task_sparsity} with norm_q={norm_q}; it needs norm_q=2")


def _coefficients(blocks: Blocks, strength: Tensor, norm_q: float) -> Tensor:
    """Coefficients W (p, m) with a mixed-norm prior on the rows that ``blocks`` names."""
    if blocks.positions is None:
        return MixedNorm("coef", strength, norm_q, dims=("feature", "task"))
    n_entries = blocks.n_features * blocks.n_tasks
    flat = pt.zeros(n_entries)
    # Rows of one length make one variable: the density of a row depends on how many entries it has.
    for size in np.unique(blocks.sizes[blocks.sizes > 0]):
        positions = blocks.positions[blocks.sizes == size]
        positions = positions[positions < n_entries].reshape(-1, size)
        rows = MixedNorm(f"coef_rows_of_{size}", strength, norm_q, shape=positions.shape)
        flat = flat[positions].set(rows)
    return pm.Deterministic("coef", flat.reshape((blocks.n_features, blocks.n_tasks)), dims=("feature", "task"))
