r"""The generalized normal models with proper scales: the full Bayesian version of problem (5), and of Jeffreys' prior.

.. math::

   y_i \sim N(x_i^\top w_{t(i)} + b_{t(i)}, \sigma_{t(i)}^2), \qquad w_{jt} \sim GN(\mu_j, \rho_j, q), \qquad
   \rho_j^q = \tau^q \, \mathrm{BetaPrime}(c, a) \quad \text{or} \quad \ln \rho_j \sim U(\ln lo, \ln hi)

or any other family of targets with that linear predictor. The mean mu of a row is 0, or learned with
``shared_mean=True``, each with a scale of its own under the prior of the row scales
(`bayesmtfs.models.rows.mean_per_feature`): then tasks are drawn to each other instead of to zero. Zhang, Yeung and Xu 2010
maximise over the scales (their problem (5)) or give them the Jeffreys prior, the improper limit ``a = c = 0`` of the one
here; a full posterior needs ``a, c > 0``. At q = 2 and ``a = c = 1/2`` every row has a half-Cauchy scale, the group
horseshoe without a slab. See `bayesmtfs.priors.hyperpriors` for every prior.

The paper's ``p(rho) = 1/rho`` (eq. 8) has no bounds, and no posterior: integrating rho out leaves ``||w||_q^-m`` for a
row of m coefficients, whose integral diverges at 0 whatever the data. A sampler then follows ln rho towards minus
infinity, row by row, relevant rows included, and may look converged on the way. Between bounds the prior is proper, and
its lower bound is a statement: each factor of ten below it adds prior mass to rows that are as good as zero.

References
----------
Y. Zhang, D.-Y. Yeung, Q. Xu. Probabilistic multi-task feature selection. NIPS 2010, sections 3 and 4.
"""

from typing import Any, Literal

import pymc as pm

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import Family
from bayesmtfs.models.rows import (
    NormQ,
    exponent,
    generalized_normal_entries,
    row_scale_per_feature,
    scaled_coefficients,
)
from bayesmtfs.models.terms import Extra, add_observations, coordinates, density_of, readable
from bayesmtfs.priors.blocks import Blocks
from bayesmtfs.priors.hyperpriors import Bounds, Hyperprior, hyperprior_for


def generalized_normal_model(
    data: TaskData,
    norm_q: NormQ = 2,
    loss: str | Family = "squared",
    expected_features: float | None = None,
    prior: Hyperprior | None = None,
    centred: bool = False,
    extra: Extra | None = None,
    **settings: Any,
) -> pm.Model:
    """Build the model with generalized normal rows and beta prime scales.

    Parameters
    ----------
    data : TaskData
        Observations; any two labels for a family of labels (-1 and +1 in the model, in sorted order). A row's
        weight multiplies its log-likelihood.
    norm_q : float or "learn", default 2
        Shape q of the coefficients, above 0, ``np.inf`` for uniform ones. "learn": ``1/q`` uniform over
        ``norm_q_bounds``.
    loss : str or Family, default "squared"
        Any family with a density and a PyMC term.
    expected_features : float, optional
        How many features (or groups of features) are expected to matter; None: a tenth of them.
    prior : Hyperprior, optional
        The whole hyperprior, instead of ``expected_features`` and ``settings``.
    centred : bool, default False
        Whether the sampler moves the coefficients themselves, or their ratios to the row scales.
    extra : callable, optional
        Called inside the model with the linear predictor (obs): what it gives back takes its place, so that a covariate
        or a random effect is added there; None says that it has observed ``model["target"]`` by a likelihood of its own.
    **settings
        Any other parameter of `bayesmtfs.priors.hyperpriors.hyperprior_for`: ``global_scale``,
        ``learn_global_scale``, ``tail_shape``, ``spike_shape``, ``noise_scale``, ``shared_noise``,
        ``norm_q_bounds``, ``fit_intercept``, ``scale_power``, ``shared_mean``, ``mean_strength``.

    Returns
    -------
    pm.Model
        Coordinates ``feature``, ``task``, ``obs`` (``row`` where all tasks share one design, ``group`` where features
        are grouped). Variables ``coef`` (feature, task), ``intercept`` (task), ``noise`` (task; of families with
        noise), ``row_scale`` (feature), ``global_scale``, ``norm_q``, ``mean_coef`` (feature; with a shared mean) and
        the observed ``y`` (obs). `set_task_data` puts new rows in.

    Notes
    -----
    Free variables: ``standard_coef`` (``coef`` if centred), ``log_row_scale`` (``log_row_deviation`` with q learned, see
    `bayesmtfs.models.rows`), ``log_global_scale``, ``inverse_norm_q`` with q learned, ``noise``, ``intercept``;
    with a shared mean ``log_mean_scale``, ``log_mean_global_scale`` and ``standard_mean`` (``mean_coef`` if centred).
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

    A random effect of the person who took each measurement:

    >>> person = np.array([0, 0, 1, 1])  # in the order of the model's coordinate obs
    >>> model = generalized_normal_model(data, extra=lambda eta: eta + pm.Normal("person", shape=2)[person])
    >>> "person" in model.named_vars
    True
    """
    family = density_of(loss)
    data = readable(data, family)
    if prior is None:
        prior = hyperprior_for(data, family, expected_features=expected_features, **settings)
    with pm.Model(coords=coordinates(data)) as model:
        q = exponent(norm_q, prior)
        row_scale = row_scale_per_feature(prior, q, Blocks(data.n_features, data.n_tasks, data.groups, data.present))
        coef = scaled_coefficients(data, prior, row_scale, generalized_normal_entries(q), centred)
        add_observations(data, family, prior, coef, extra)
    return model


def jeffreys_model(
    data: TaskData,
    bounds: Bounds | Literal["auto"] = "auto",
    norm_q: NormQ = 2,
    loss: str | Family = "squared",
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
    loss : str or Family, default "squared"
        Any family with a density and a PyMC term.
    centred : bool, default False
        Whether the sampler moves the coefficients themselves, or their ratios to the row scales.
    **settings
        Any other parameter of `bayesmtfs.priors.hyperpriors.hyperprior_for`, such as ``expected_features`` (which moves
        the automatic lower bound), ``shared_noise`` or ``fit_intercept``; and ``extra``.

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
    settings |= {"kind": "log_uniform", "bounds": bounds}
    return generalized_normal_model(data, norm_q, loss, centred=centred, **settings)
