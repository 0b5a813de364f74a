r"""The Jeffreys model of Zhang, Yeung and Xu 2010 between bounds, which is what makes it a model.

.. math::

   y_i \sim N(x_i^\top w_{t(i)} + b_{t(i)}, \sigma_{t(i)}^2), \qquad w_{jt} \sim GN(0, \rho_j, q), \qquad
   \ln \rho_j \sim U(\ln lo, \ln hi)

The paper's ``p(rho) = 1/rho`` (eq. 8) has no bounds, and no posterior: integrating rho out leaves ``||w||_q^-m`` for a
row of m coefficients, whose integral diverges at 0 whatever the data. A sampler then follows ln rho towards minus
infinity, row by row, relevant rows included, and may look converged on the way. Between bounds the prior is proper, and
its lower bound is a statement: each factor of ten below it adds prior mass to rows that are as good as zero.

References
----------
Y. Zhang, D.-Y. Yeung, Q. Xu. Probabilistic multi-task feature selection. NIPS 2010, section 4.
"""

from typing import Any, Literal

import pymc as pm

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.models.generalized_normal import generalized_normal_model
from bayesmtfs.models.hyperpriors import NormQ
from bayesmtfs.priors.hyperpriors import Bounds, hyperprior_for


def jeffreys_model(
    data: TaskData,
    bounds: Bounds | Literal["auto"] = "auto",
    norm_q: NormQ = 2,
    loss: str = "squared",
    centred: bool = False,
    **settings: Any,
) -> pm.Model:
    """Build the model with generalized normal rows and log-uniform scales.

    Parameters
    ----------
    data : TaskData
        Observations, as in `generalized_normal_model`.
    bounds : (float, float) or "auto"
        Smallest and largest row scale, on the scale of the coefficients. "auto": ``1e-3 tau_0`` to
        ``10 noise_scale / s_x`` with tau_0, the noise scale and the spread s_x of the features as in
        `bayesmtfs.priors.hyperpriors`: from a thousandth of what the data can tell from zero, to coefficients that
        alone would make the targets vary ten times as much as they do.
    norm_q : float or "learn", default 2
        Shape q of the coefficients.
    loss : {"squared", "logistic"}, default "squared"
        Normal targets, or labels.
    centred : bool, default False
        Whether the sampler moves the coefficients themselves, or their ratios to the row scales.
    **settings
        Any other parameter of `bayesmtfs.priors.hyperpriors.hyperprior_for`, such as ``expected_features`` (which moves
        the automatic lower bound), ``shared_noise`` or ``fit_intercept``.

    Returns
    -------
    pm.Model
        As `generalized_normal_model`, without a global scale.

    Raises
    ------
    ValueError
        If ``bounds`` is None: the unbounded prior is improper, and so is its posterior.

    Examples
    --------
    How much the bounds matter: prior probability that a row's scale is above 0.1, with the lower bound moved down.

    >>> import numpy as np
    >>> from bayesmtfs import TaskData
    >>> from bayesmtfs.models import jeffreys_model
    >>> high = 10.0
    >>> [round(float(np.log(high / 0.1) / np.log(high / low)), 2) for low in (1e-3, 1e-5, 1e-9)]
    [0.5, 0.33, 0.2]

    The same question to a posterior: fit with bounds a factor of ten apart and compare what is selected.

    >>> data = TaskData.from_long(np.eye(4), [1.0, 2.0, 3.0, 4.0], tasks=["b", "a", "b", "a"])
    >>> models = [jeffreys_model(data, bounds=(low, high)) for low in (1e-3, 1e-4)]
    >>> jeffreys_model(data, bounds=None)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ValueError: bounds is None, ... improper ...
    """
    if bounds is None:
        raise ValueError(
            "bounds is None, but the Jeffreys prior 1/rho without bounds is improper and so is its posterior: given a "
            "row of m coefficients it leaves ||w||^-m, whose integral diverges at 0 whatever the data, so that every "
            "chain drifts to zero rows; pass bounds=(lo, hi) or 'auto' (log-uniform), or use generalized_normal_model "
            "(beta prime scales, half-Cauchy at norm_q=2) or horseshoe_model"
        )
    prior = hyperprior_for(data, loss, kind="log_uniform", bounds=bounds, **settings)
    return generalized_normal_model(data, norm_q, loss, prior=prior, centred=centred)
