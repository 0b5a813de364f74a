r"""The generalized normal model with proper scales: the full Bayesian version of problem (5).

.. math::

   y_i \sim N(x_i^\top w_{t(i)} + b_{t(i)}, \sigma_{t(i)}^2), \qquad w_{jt} \sim GN(\mu_j, \rho_j, q), \qquad
   \rho_j^q = \tau^q \, \mathrm{BetaPrime}(c, a)

or labels with those log-odds. The mean mu of a row is 0, or learned with ``shared_mean=True``, ``mu_j ~ N(0, s^2)``:
then tasks are drawn to each other instead of to zero. Zhang, Yeung and Xu 2010 maximise over the scales (their problem
(5)) or give them the Jeffreys prior, the improper limit ``a = c = 0`` of the one here; a full posterior needs
``a, c > 0``. At q = 2 and ``a = c = 1/2`` every row has a half-Cauchy scale, the group horseshoe without a slab. See
`bayesmtfs.priors.hyperpriors` for every prior.

References
----------
Y. Zhang, D.-Y. Yeung, Q. Xu. Probabilistic multi-task feature selection. NIPS 2010, section 3.
"""

from typing import Any

import pymc as pm

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.models.coefficients import generalized_normal_entries, scaled_coefficients
from bayesmtfs.models.hyperpriors import NormQ, exponent, row_scale_per_feature
from bayesmtfs.models.linear_predictor import coordinates
from bayesmtfs.models.observations import add_observations, readable
from bayesmtfs.priors.blocks import Blocks
from bayesmtfs.priors.hyperpriors import Hyperprior, hyperprior_for


def generalized_normal_model(
    data: TaskData,
    norm_q: NormQ = 2,
    loss: str = "squared",
    expected_features: float | None = None,
    prior: Hyperprior | None = None,
    centred: bool = False,
    **settings: Any,
) -> pm.Model:
    """Build the model with generalized normal rows and beta prime scales.

    Parameters
    ----------
    data : TaskData
        Observations; any two labels for the logistic loss (-1 and +1 in the model, in sorted order). A row's weight
        multiplies its log-likelihood.
    norm_q : float or "learn", default 2
        Shape q of the coefficients, above 0, ``np.inf`` for uniform ones. "learn": ``1/q`` uniform over
        ``norm_q_bounds``.
    loss : {"squared", "logistic"}, default "squared"
        Normal targets, or labels.
    expected_features : float, optional
        How many features (or groups of features) are expected to matter; None: a tenth of them.
    prior : Hyperprior, optional
        The whole hyperprior, instead of ``expected_features`` and ``settings``.
    centred : bool, default False
        Whether the sampler moves the coefficients themselves, or their ratios to the row scales.
    **settings
        Any other parameter of `bayesmtfs.priors.hyperpriors.hyperprior_for`: ``global_scale``,
        ``learn_global_scale``, ``tail_shape``, ``spike_shape``, ``noise_scale``, ``shared_noise``,
        ``norm_q_bounds``, ``fit_intercept``, ``scale_power``, ``shared_mean``, ``mean_strength``.

    Returns
    -------
    pm.Model
        Coordinates ``feature``, ``task``, ``obs`` (``row`` where all tasks share one design, ``group`` where features
        are grouped). Variables ``coef``
        (feature, task), ``intercept`` (task), ``noise`` (task; squared loss), ``row_scale`` (feature),
        ``global_scale``, ``norm_q``, ``mean_coef`` (feature; with a shared mean) and the observed
        ``y`` (obs). `set_task_data` puts new rows in.

    Notes
    -----
    Free variables: ``standard_coef`` (``coef`` if centred), ``log_row_scale`` (``log_row_deviation`` with q learned, see
    `bayesmtfs.models.hyperpriors`), ``log_global_scale``, ``inverse_norm_q`` with q learned, ``noise``, ``intercept``.
    Features of one group share a scale; a coefficient of a feature that a task does not have is 0.

    Examples
    --------
    >>> import numpy as np
    >>> from bayesmtfs import TaskData
    >>> from bayesmtfs.models import generalized_normal_model
    >>> data = TaskData.from_long(np.eye(4), [1.0, 2.0, 3.0, 4.0], tasks=["b", "a", "b", "a"])
    >>> model = generalized_normal_model(data, norm_q="learn", expected_features=1)
    >>> sorted(variable.name for variable in model.free_RVs)
    ['intercept', 'inverse_norm_q', 'log_global_scale', 'log_row_deviation', 'noise', 'standard_coef']
    """
    if prior is None:
        prior = hyperprior_for(data, loss, expected_features=expected_features, **settings)
    data = readable(data, loss)
    with pm.Model(coords=coordinates(data)) as model:
        q = exponent(norm_q, prior)
        row_scale = row_scale_per_feature(prior, q, Blocks(data.n_features, data.n_tasks, data.groups, data.present))
        coef = scaled_coefficients(data, prior, row_scale, generalized_normal_entries(q), centred)
        add_observations(data, loss, prior, coef)
    return model
