"""From the words of the command line to an estimator."""

from typing import Any

import numpy as np

import bayesmtfs

ROUTES = ("map", "em", "posterior", "online")
PRIORS = ("mixed_norm", "generalized_normal", "jeffreys", "matrix_variate", "horseshoe")
DEFAULT_PRIORS = {"map": "mixed_norm", "em": "jeffreys", "posterior": "generalized_normal", "online": "mixed_norm"}
CLASSES = {
    ("map", "mixed_norm"): "MixedNorm",
    ("map", "generalized_normal"): "GeneralizedNormal",
    ("em", "generalized_normal"): "GeneralizedNormal",
    ("em", "jeffreys"): "Jeffreys",
    ("em", "matrix_variate"): "MatrixVariate",
    ("online", "mixed_norm"): "OnlineMixedNorm",
    **{("posterior", prior): "Bayesian" for prior in PRIORS},
}
# Short names for `compare`
SHORT: dict[str, dict[str, Any]] = {
    "l12": {"route": "map", "norm_q": "2"},
    "l11": {"route": "map", "norm_q": "1"},
    "l1inf": {"route": "map", "norm_q": "inf"},
    "shared_mean": {"route": "map", "norm_q": "2", "shared_mean": True},
    "generalized_normal": {"route": "em", "prior": "generalized_normal"},
    "jeffreys": {"route": "em", "prior": "jeffreys"},
    "matrix_variate": {"route": "em", "prior": "matrix_variate"},
    "posterior": {"route": "posterior"},
    "horseshoe": {"route": "posterior", "prior": "horseshoe"},
}


def read_norm_q(text: str) -> float | str:
    """``learn``, ``inf`` or a number."""
    if text == "learn":
        return text
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"--norm-q is {text!r}; pass a number of at least 1, 'inf' or 'learn'") from None


def make_estimator(
    classify: bool,
    route: str = "map",
    prior: str | None = None,
    norm_q: str = "2",
    penalty: str = "cv",
    seed: int = 0,
    progress: bool | None = None,
    **parameters: Any,
) -> Any:
    """The estimator that the options name; ``parameters`` go to it as they are."""
    if route not in ROUTES:
        raise ValueError(f"--route is {route!r}; choose one of {', '.join(ROUTES)}")
    prior = DEFAULT_PRIORS[route] if prior is None else prior
    if (route, prior) not in CLASSES:
        fitting = [p for r, p in CLASSES if r == route]
        raise ValueError(f"--prior {prior} does not go with --route {route}; choose one of {', '.join(fitting)}")
    family = CLASSES[route, prior]
    q = read_norm_q(norm_q)
    parameters = {"norm_q": int(q) if q == 2 else q, "progress": progress, **parameters}
    suffix = "Classifier" if classify else "Regressor"
    if family == "MixedNorm":
        if q == "learn":
            parameters["norm_q"] = [1, 1.5, 2, 4, np.inf]
        if penalty == "cv" or q == "learn":
            return getattr(bayesmtfs, f"MixedNorm{suffix}CV")(**{"random_state": seed, "n_penalties": 50, **parameters})
        return getattr(bayesmtfs, f"MixedNorm{suffix}")(penalty_strength=_read_strength(penalty), **parameters)
    if family in ("Bayesian", "OnlineMixedNorm", "Jeffreys", "MatrixVariate"):
        parameters["random_state"] = seed
    if family == "Bayesian":
        parameters["prior"] = prior
    return getattr(bayesmtfs, f"{family}{suffix}")(**parameters)


def _read_strength(text: str) -> float | None:
    if text == "auto":
        return None
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"--penalty is {text!r}; pass a number, 'cv' or 'auto'") from None
