"""Coefficients of a PyMC model whose rows share a scale, as standardised or as plain variables.

``w_it = rho_i z_it`` with standard entries z. Non-centred, the sampler moves z, whose law does not depend on the scale:
the funnel between a small scale and its coefficients is gone. Centred, it moves w, which pays only where the data say
much about every coefficient.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Constant

from bayesmtfs.models.distributions import GeneralizedNormal, as_float_tensor
from bayesmtfs.models.linear_predictor import Tensor
from bayesmtfs.tasks import TaskData

type EntryLaw = Callable[..., Any]  # (name, scale, **place) -> entries with that scale


def generalized_normal_entries(q: Tensor) -> EntryLaw:
    """Law ``GN(0, scale, q)`` of an entry; at q = inf uniform, with its support mapped onto the real line."""

    def entries(name: str, scale: Tensor, **place: Any) -> Tensor:
        if isinstance(q, Constant) and np.isinf(q.data):
            return pm.Uniform(name, -scale, scale, **place)
        return GeneralizedNormal(name, 0.0, scale, q, **place)

    return entries


def normal_entries(name: str, scale: Tensor, **place: Any) -> Tensor:
    """Law ``N(0, scale^2)`` of an entry."""
    return pm.Normal(name, 0.0, scale, **place)


def scaled_coefficients(data: TaskData, row_scale: Tensor, law: EntryLaw, centred: bool) -> Tensor:
    """Add ``coef`` (feature, task) to the model in context.

    Parameters
    ----------
    data : TaskData
        Where a task does not have a feature, the coefficient is 0.
    row_scale : tensor (p,)
        Scale of each feature's coefficients.
    law : callable
        Law of an entry given its scale.
    centred : bool
        Whether the free variable is ``coef`` itself or ``standard_coef = coef / row_scale``. Where tasks lack
        features, it is the vector of the entries that are there, ``present_coef`` or ``standard_coef``.

    Returns
    -------
    tensor (p, m)
        The coefficients.
    """
    dims = ("feature", "task")
    if data.present is None:
        if centred:
            return law("coef", row_scale[:, None], dims=dims)
        return pm.Deterministic(
            "coef", row_scale[:, None] * law("standard_coef", as_float_tensor(1.0), dims=dims), dims=dims
        )
    feature, task = np.nonzero(data.present)
    scales = row_scale[feature]
    if centred:
        entries = law("present_coef", scales, shape=len(feature))
    else:
        entries = scales * law("standard_coef", as_float_tensor(1.0), shape=len(feature))
    return pm.Deterministic("coef", pt.zeros(data.present.shape)[feature, task].set(entries), dims=dims)
