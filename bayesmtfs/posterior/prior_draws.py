"""What the prior says before the data do: coefficients from the prior, and targets that they would give at the rows.

The draws are those of the PyMC model with the same prior (`bayesmtfs.models`), on the data in the units of sampling, and
come back in the user's. The data's targets are looked at for these units alone (deviations and means within tasks), as in
a fit.
"""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.posterior.preparation import chosen_features, screen
from bayesmtfs.posterior.sampling import PosteriorRequest, hyperprior_of, scaled_data
from bayesmtfs.posterior.tree import DIMENSIONS, SampledDraws, in_user_units
from bayesmtfs.priors.spike import spike_prior_for
from bayesmtfs.types import FloatArray

SPIKE_SETTINGS = ("expected_features", "shared_noise")


def draw_prior(data: TaskData, request: PosteriorRequest, n_draws: int, **stated: Any) -> xr.DataTree:
    """Tree with the groups ``prior``, ``prior_predictive`` and ``observed_data``.

    Parameters
    ----------
    data : observations in the user's units; labels are -1 and +1
    request : what would be sampled
    n_draws : how many draws
    **stated : parameters of `bayesmtfs.priors.hyperpriors.hyperprior_for`
    """
    if request.prior == "mixed_norm":
        raise ValueError(
            "prior='mixed_norm' has flat intercepts, from which nothing can be drawn; use another prior, or "
            "bayesmtfs.models.mixed_norm_model with fit_intercept=False"
        )
    varying = screen(data, request.family, request.fit_intercept, None)
    varying = varying if varying.any() else np.ones_like(varying)
    data = chosen_features(data, varying).dense()
    units, scaled = scaled_data(data, request)
    model = _model(scaled, request, stated)
    # PyMC takes seconds to load
    import pymc as pm

    names = [name for name in DIMENSIONS if name in model.named_vars]
    seed = request.random_seed
    with model, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the compilers, about themselves
        found = pm.sample_prior_predictive(n_draws, var_names=names, random_seed=seed)["prior"].dataset
    variables = {name: np.asarray(found[name].values, dtype=np.float64) for name in names}
    shape = variables["coef"].shape[:2]
    variables.setdefault("intercept", np.zeros((*shape, data.n_tasks)))
    drawn = in_user_units(SampledDraws("prior", variables), units, request.fit_intercept).variables
    return _tree(data, request, drawn, seed)


def _model(scaled: TaskData, request: PosteriorRequest, stated: dict[str, Any]) -> Any:
    """PyMC model of the prior; its observed targets are not drawn."""
    unweighted = replace(scaled, weight=np.ones_like(scaled.weight))
    if request.prior == "spike":
        from bayesmtfs.models import spike_model

        known = {name: stated[name] for name in SPIKE_SETTINGS if name in stated}
        prior = spike_prior_for(scaled, request.family, fit_intercept=request.fit_intercept, **known)
        return spike_model(unweighted, request.family, prior)
    from bayesmtfs.posterior.nuts import build_model

    return build_model(unweighted, request, hyperprior_of(scaled, request, **stated))


def _tree(data: TaskData, request: PosteriorRequest, drawn: dict[str, FloatArray], seed: int) -> xr.DataTree:
    """Draws with their names, and the targets that they give."""
    rng = np.random.default_rng([seed, 5])
    noise = drawn.get("noise", np.ones(drawn["intercept"].shape))
    targets = [
        request.family.draw(rng, data.linear_predictor(W, intercept), own[data.task])
        for W, intercept, own in zip(drawn["coef"][0], drawn["intercept"][0], noise[0], strict=True)
    ]
    names = {"feature": data.feature_names, "task": data.task_names, "task_bis": data.task_names}
    dims = {name: ("chain", "draw", *DIMENSIONS[name]) for name in drawn}
    used = {axis for axes in dims.values() for axis in axes}
    known = {axis: labels for axis, labels in names.items() if axis in used}
    sample = {"chain": [0], "draw": np.arange(len(targets))}
    obs = {"obs": data.order}
    groups = {
        "prior": xr.Dataset({name: (dims[name], values) for name, values in drawn.items()}, {**sample, **known}),
        "prior_predictive": xr.Dataset({"y": (("chain", "draw", "obs"), np.array(targets)[None])}, {**sample, **obs}),
        "observed_data": xr.Dataset({"y": (("obs",), np.asarray(data.y, dtype=np.float64))}, obs),
    }
    tree = xr.DataTree.from_dict(groups)
    tree.attrs = {"inference_library": "bayesmtfs", "prior": request.prior, "loss": request.family.name, "seed": seed}
    return tree
