"""Coefficients of a PyMC model whose rows share a scale, as standardised or as plain variables.

``w_it = mu_i + rho_i z_it`` with standard entries z, and mu = 0 unless tasks share a mean. Non-centred, the sampler moves
z, whose law does not depend on the scale: the funnel between a small scale and its coefficients is gone. Centred, it
moves w, which pays only where the data say much about every coefficient.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Constant

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.models.distributions import GeneralizedNormal, as_float_tensor
from bayesmtfs.models.hyperpriors import mean_per_feature
from bayesmtfs.models.linear_predictor import Tensor
from bayesmtfs.priors.hyperpriors import Hyperprior

type EntryLaw = Callable[..., Any]  # (name, location, scale, **place) -> entries there, with that scale


def generalized_normal_entries(q: Tensor) -> EntryLaw:
    """Law ``GN(location, scale, q)`` of an entry; at q = inf uniform, with its support mapped onto the real line."""

    def entries(name: str, location: Tensor, scale: Tensor, **place: Any) -> Tensor:
        if isinstance(q, Constant) and np.isinf(q.data):
            return pm.Uniform(name, location - scale, location + scale, **place)
        return GeneralizedNormal(name, location, scale, q, **place)

    return entries


def normal_entries(name: str, location: Tensor, scale: Tensor, **place: Any) -> Tensor:
    """Law ``N(location, scale^2)`` of an entry."""
    return pm.Normal(name, location, scale, **place)


def scaled_coefficients(data: TaskData, prior: Hyperprior, row_scale: Tensor, law: EntryLaw, centred: bool) -> Tensor:
    """Add ``coef`` (feature, task) to the model in context, and ``mean_coef`` (feature) where tasks share a mean.

    Parameters
    ----------
    data : TaskData
        Where a task does not have a feature, the coefficient is 0.
    prior : Hyperprior
        Its ``mean_scale`` is the prior standard deviation of a shared mean, 0 for none.
    row_scale : tensor (p,)
        Scale of each feature's coefficients.
    law : callable
        Law of an entry given its scale.
    centred : bool
        Whether the free variable is ``coef`` itself or ``standard_coef = (coef - mean_coef) / row_scale``. Where tasks
        lack features, it is the vector of the entries that are there, ``present_coef`` or ``standard_coef``.

    Returns
    -------
    tensor (p, m)
        The coefficients.
    """
    dims = ("feature", "task")
    mean = mean_per_feature(prior, data.n_features)
    zero, one = as_float_tensor(0.0), as_float_tensor(1.0)
    if data.present is None:
        if centred:
            return law("coef", mean[:, None], row_scale[:, None], dims=dims)
        deviations = row_scale[:, None] * law("standard_coef", zero, one, dims=dims)
        return pm.Deterministic("coef", mean[:, None] + deviations, dims=dims)
    feature, task = np.nonzero(data.present)
    means, scales = mean[feature], row_scale[feature]
    if centred:
        entries = law("present_coef", means, scales, shape=len(feature))
    else:
        entries = means + scales * law("standard_coef", zero, one, shape=len(feature))
    return pm.Deterministic("coef", pt.zeros(data.present.shape)[feature, task].set(entries), dims=dims)
