r"""The group regularised horseshoe, the established prior to compare the generalized normal ones with.

.. math::

   w_{jt} \sim N(0, \rho_j^2), \qquad \rho_j^2 = \frac{s^2 \tilde\rho_j^2}{s^2 + \tilde\rho_j^2}, \qquad
   \tilde\rho_j \sim C^+(\tau)

A row of small scale is shrunk as by the half-Cauchy prior; a row of large scale, which that prior would leave alone,
gets the normal slab of width s (Piironen and Vehtari 2017, eq. 2.8, with a row of coefficients in place of one). The
slab is half-Student-t with 4 degrees of freedom, where they take an inverse gamma distribution for ``s^2``, or fixed.
``tau lambda_j`` is sampled as one variable, ``rho_j`` before the slab.

References
----------
J. Piironen, A. Vehtari. Sparsity information and regularization in the horseshoe and other shrinkage priors.
Electronic Journal of Statistics 11, 2017.
"""

from typing import Any

import pymc as pm
import pytensor.tensor as pt

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import Family
from bayesmtfs.models.distributions import Tensor, as_float_tensor
from bayesmtfs.models.rows import exponent, log_row_scales, normal_entries, scaled_coefficients, within_slab
from bayesmtfs.models.terms import Extra, add_observations, coordinates, density_of, readable
from bayesmtfs.priors.blocks import Blocks
from bayesmtfs.priors.hyperpriors import Hyperprior, check_positive, hyperprior_for, typical_deviation

SLAB_DEGREES = 4.0  # of freedom of the half-Student-t prior of the slab


def horseshoe_model(
    data: TaskData,
    loss: str | Family = "squared",
    expected_features: float | None = None,
    slab_scale: float | None = None,
    prior: Hyperprior | None = None,
    centred: bool = False,
    extra: Extra | None = None,
    **settings: Any,
) -> pm.Model:
    """Build the model with a regularised horseshoe on every row.

    Parameters
    ----------
    data : TaskData
        Observations, as in `generalized_normal_model`.
    loss : str or Family, default "squared"
        Any family with a density and a PyMC term.
    expected_features : float, optional
        How many features (or groups of features) are expected to matter; None: a tenth of them.
    slab_scale : float, optional
        Fixed width s of the slab. None: learned, half-Student-t with the scale ``noise_scale / s_x`` (the spread of
        the targets per spread of a feature; 2 for labels and standardised features).
    prior : Hyperprior, optional
        The whole hyperprior, instead of ``expected_features`` and ``settings``.
    centred : bool, default False
        Whether the sampler moves the coefficients themselves, or their ratios to the row scales.
    extra : callable, optional
        Called inside the model with the linear predictor (obs): what it gives back takes its place, so that a covariate
        or a random effect is added there; None says that it has observed ``model["target"]`` by a likelihood of its own.
    **settings
        Any other parameter of `bayesmtfs.priors.hyperpriors.hyperprior_for`, such as ``shared_mean``.

    Returns
    -------
    pm.Model
        As `generalized_normal_model`, with ``slab_scale``. ``row_scale`` is the standard deviation of a row's
        coefficients (in the generalized normal models with q = 2 that is ``row_scale / sqrt(2)``).

    Examples
    --------
    >>> import numpy as np
    >>> from bayesmtfs import TaskData
    >>> from bayesmtfs.models import horseshoe_model
    >>> data = TaskData.from_long(np.eye(4), [1.0, 2.0, 3.0, 4.0], tasks=["b", "a", "b", "a"])
    >>> model = horseshoe_model(data)
    >>> sorted(variable.name for variable in model.free_RVs)
    ['intercept', 'log_global_scale', 'log_row_scale', 'noise', 'slab_scale', 'standard_coef']
    """
    family = density_of(loss)
    data = readable(data, family)
    if prior is None:
        prior = hyperprior_for(data, family, expected_features=expected_features, **settings)
    slab_width = prior.noise_scale / typical_deviation(data, prior.fit_intercept)
    with pm.Model(coords=coordinates(data)) as model:
        blocks = Blocks(data.n_features, data.n_tasks, data.groups, data.present)
        log_scale = log_row_scales(prior, exponent(2.0, prior), blocks)[blocks.row_of_feature]
        row_scale = pm.Deterministic(
            "row_scale", within_slab(log_scale, pt.log(_slab(slab_scale, slab_width))), dims="feature"
        )
        coef = scaled_coefficients(data, prior, row_scale, normal_entries, centred)
        add_observations(data, family, prior, coef, extra)
    return model


def _slab(slab_scale: float | None, width: float) -> Tensor:
    """Add ``slab_scale`` to the model in context."""
    if slab_scale is None:
        return pm.HalfStudentT("slab_scale", nu=as_float_tensor(SLAB_DEGREES), sigma=as_float_tensor(width))
    check_positive("slab_scale", slab_scale)
    return pm.Deterministic("slab_scale", as_float_tensor(slab_scale))
