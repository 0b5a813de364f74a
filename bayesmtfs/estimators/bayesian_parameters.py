"""Parameters of the Bayesian estimators: their checks, and what they ask of a sampler."""

import math
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from bayesmtfs.estimators.base import check_choice
from bayesmtfs.posterior.request import PosteriorRequest

PRIORS = ("generalized_normal", "jeffreys", "matrix_variate", "mixed_norm", "horseshoe")
SHARED_MEAN_PRIORS = ("generalized_normal", "jeffreys", "horseshoe")
SAMPLERS = ("auto", "gibbs", "nuts", "fast")
UNKNOWN_TASK = ("error", "mean", "population")
NO_POPULATION = (
    "unknown_task='population' needs row scales to draw a new task from, which prior='mixed_norm' has not; use another "
    "prior, or unknown_task='mean'"
)


def check_bayesian(params: dict[str, Any], loss: str, losses: tuple[str, ...]) -> None:
    """Raise where a parameter is out of its range.

    Parameters
    ----------
    params : of the estimator, by name
    loss, losses : the estimator's loss, and those it has
    """
    check_choice("prior", params["prior"], PRIORS)
    check_choice("sampler", params["sampler"], SAMPLERS)
    check_choice("loss", loss, losses)
    check_choice("unknown_task", params["unknown_task"], UNKNOWN_TASK)
    _check_norm_q(params)
    _check_prior_of_loss(params, loss)
    _check_row_scale_bounds(params["row_scale_bounds"])
    _check_seed(params["random_state"])
    _check_shared_mean(params)
    for name, least in (("draws", 4), ("tune", 0), ("chains", 1)):
        _check_whole_number(name, params[name], least)
    if params["max_features"] is not None:
        _check_whole_number("max_features", params["max_features"], 1)
    for name in ("inclusion_threshold", "target_accept"):
        if not 0 < params[name] < 1:
            raise ValueError(f"{name} is {params[name]}; pass a number between 0 and 1")
    if not 0 <= params["effect_size"] < math.inf:
        raise ValueError(f"effect_size is {params['effect_size']}; pass a number of at least 0, such as 0.05")


def posterior_request(params: dict[str, Any], loss: str) -> PosteriorRequest:
    """Say what the parameters ask for.

    Parameters
    ----------
    params : of the estimator, by name
    loss : the estimator's loss
    """
    seed = params["random_state"]
    if not isinstance(seed, int | np.integer):
        seed = check_random_state(seed).randint(2**31 - 1)
    hyper = {
        "expected_features": params["expected_features"],
        "global_scale": params["global_scale"],
        "learn_global_scale": params["learn_global_scale"],
        "tail_shape": params["tail_shape"],
        "spike_shape": params["spike_shape"],
        "bounds": params["row_scale_bounds"],
        "norm_q_bounds": params["norm_q_bounds"],
        "shared_noise": params["shared_noise"],
        "shared_mean": params["shared_mean"],
        "mean_strength": params["mean_strength"],
    }
    return PosteriorRequest(
        prior=params["prior"],
        loss=loss,
        norm_q=None if isinstance(params["norm_q"], str) else float(params["norm_q"]),
        sampler=params["sampler"],
        draws=int(params["draws"]),
        tune=int(params["tune"]),
        chains=int(params["chains"]),
        random_seed=int(seed),
        fit_intercept=params["fit_intercept"],
        standardize=params["standardize"],
        max_features=params["max_features"],
        penalty_strength=params["penalty_strength"],
        relation_concentration=params["relation_concentration"],
        target_accept=params["target_accept"],
        hyper=hyper,
        n_jobs=params["n_jobs"],
        progress=params["progress"],
    )


def _check_whole_number(name: str, number: Any, least: int) -> None:
    if int(number) != number or number < least:
        raise ValueError(f"{name} is {number}; pass a whole number of at least {least}")


def _check_norm_q(params: dict[str, Any]) -> None:
    norm_q, prior = params["norm_q"], params["prior"]
    learned = isinstance(norm_q, str)
    if norm_q is None or (learned and norm_q != "learn") or (not learned and not float(norm_q) >= 1):
        raise ValueError(f"norm_q is {norm_q!r}; pass a number of at least 1, np.inf, or 'learn'")
    if learned and prior == "mixed_norm":
        raise ValueError("norm_q='learn' does not go with prior='mixed_norm', whose q is fixed; pass a number")
    if prior == "horseshoe" and norm_q != 2:
        raise ValueError(f"norm_q is {norm_q!r}, but prior='horseshoe' has normal rows; pass norm_q=2")


def _check_row_scale_bounds(bounds: Any) -> None:
    if bounds is None or (isinstance(bounds, str) and bounds == "auto"):
        return
    if isinstance(bounds, str) or np.shape(bounds) != (2,) or not 0 < bounds[0] < bounds[1] < math.inf:
        raise ValueError(f"row_scale_bounds is {bounds!r}; pass 'auto' or two finite numbers 0 < low < high")


def _check_seed(seed: Any) -> None:
    if isinstance(seed, int | np.integer) and seed < 0:
        raise ValueError(f"random_state is {seed}; pass a whole number of at least 0, or None")


def _check_shared_mean(params: dict[str, Any]) -> None:
    strength = params["mean_strength"]
    if strength is not None and not 0 < strength < math.inf:
        raise ValueError(f"mean_strength is {strength}; pass a finite number above 0, or None")
    if params["shared_mean"] and params["prior"] not in SHARED_MEAN_PRIORS:
        raise ValueError(
            f"shared_mean=True does not go with prior={params['prior']!r}, whose rows have no mean of their own; use "
            "prior='generalized_normal', 'jeffreys' or 'horseshoe', or leave shared_mean False"
        )


def _check_prior_of_loss(params: dict[str, Any], loss: str) -> None:
    if loss == "hinge" and params["prior"] != "mixed_norm":
        raise ValueError(
            f"loss='hinge' is a pseudo-likelihood for prior='mixed_norm' only, but prior is {params['prior']!r}; "
            "use loss='logistic'"
        )
    if params["unknown_task"] == "population" and params["prior"] == "mixed_norm":
        raise ValueError(NO_POPULATION)
    if params["prior"] == "jeffreys" and params["row_scale_bounds"] is None:
        raise ValueError(
            "row_scale_bounds is None, but the Jeffreys prior without bounds is improper and so is its posterior; pass "
            "'auto' or (low, high), or use prior='generalized_normal'"
        )
