"""What is asked of a sampler, and what comes back: plain values, without PyMC or ArviZ."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from bayesmtfs.posterior.draws import Draws
from bayesmtfs.types import BoolArray


@dataclass(frozen=True)
class PosteriorRequest:
    """What to sample, and how.

    Attributes
    ----------
    prior : "generalized_normal", "jeffreys", "matrix_variate", "mixed_norm" or "horseshoe"
    loss : "squared", "logistic", or "hinge" with the mixed norm
    norm_q : q, None to learn it
    sampler : "auto", "gibbs", "nuts" or "fast"
    draws, tune, chains : numbers, the first two per chain
    random_seed : the same seed gives the same draws
    fit_intercept : one intercept per task
    standardize : scale features within each task
    max_features : above that, features are screened; None never does
    penalty_strength : of the mixed norm; None takes a tenth of the largest sensible one
    relation_concentration : of the matrix-variate prior
    target_accept : of NUTS
    hyper : further parameters of `bayesmtfs.priors.hyperpriors.hyperprior_for`
    n_jobs, progress : chains at once, progress bar
    """

    prior: str = "generalized_normal"
    loss: str = "squared"
    norm_q: float | None = 2.0
    sampler: str = "auto"
    draws: int = 1000
    tune: int = 1000
    chains: int = 4
    random_seed: int = 0
    fit_intercept: bool = True
    standardize: bool = False
    max_features: int | None = 1000
    penalty_strength: float | None = None
    relation_concentration: float = 2.0
    target_accept: float = 0.9
    hyper: dict[str, Any] = field(default_factory=dict)
    n_jobs: int | None = None
    progress: bool | None = None


class PosteriorFit(NamedTuple):
    """A posterior in the user's units."""

    tree: Any  # xarray.DataTree
    draws: Draws  # with the features of the tree
    diagnostics: Any  # inference.diagnostics.Diagnostics
    in_tree: BoolArray  # (p,) which features the tree has
    screened_out: BoolArray  # (p,) features that were not sampled because there were too many
    penalty_strength: float | None  # of the mixed norm
