"""Draws of a posterior on their way from a sampler to the user: the same arrays from every sampler; and what they say.

Samplers work on data in `data.scaling.SamplingUnits` and on the features that `preparation` left; `in_user_units` brings
what they give to the user's units, where ``coef`` given ``mean_coef``, ``row_scale`` and ``norm_q`` has the distribution
that it was sampled under.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmtfs.data.scaling import SamplingUnits
from bayesmtfs.priors.hyperpriors import Hyperprior
from bayesmtfs.types import BoolArray, FloatArray

# Dimensions of a variable after chain and draw
DIMENSIONS: dict[str, tuple[str, ...]] = {
    "coef": ("feature", "task"),
    "mean_coef": ("feature",),
    "intercept": ("task",),
    "noise": ("task",),
    "row_scale": ("feature",),
    "global_scale": (),
    "norm_q": (),
    "slab_scale": (),
    "task_relations": ("task", "task_bis"),
}
POSITIVE = ("noise", "row_scale", "global_scale", "norm_q", "slab_scale")
LEAST_DRAWS = 4  # fewer per chain say nothing


@dataclass(frozen=True, eq=False)
class SampledDraws:
    """What a sampler gives.

    Attributes
    ----------
    sampler : its name
    variables : (chains, draws, ...) by name, see `DIMENSIONS`
    statistics : (chains, draws) of the sampler, such as ``diverging``
    fixed : names of variables that the model does not learn
    interrupted : stopped before all draws were made
    independent : whether draws are independent, so that there are no chains to diagnose
    message : anything else that the user should know
    sweeps : of a Gibbs sampler, for each draw
    """

    sampler: str
    variables: dict[str, FloatArray]
    statistics: dict[str, NDArray[Any]] = field(default_factory=dict)
    fixed: frozenset[str] = frozenset()
    interrupted: bool = False
    independent: bool = False
    message: str = ""
    sweeps: int = 1

    @property
    def n_chains(self) -> int:
        """Number of chains."""
        return int(self.variables["coef"].shape[0])

    @property
    def n_draws(self) -> int:
        """Number of draws per chain."""
        return int(self.variables["coef"].shape[1])


def stacked(chains: Sequence[dict[str, FloatArray]]) -> dict[str, FloatArray]:
    """Chains as one array per variable, all cut to the shortest (an interrupted one); all begin at the same draw."""
    shortest = min(len(next(iter(chain.values()))) for chain in chains)
    if shortest < LEAST_DRAWS:
        raise KeyboardInterrupt(f"interrupted when a chain had only {shortest} draws")
    return {name: np.stack([chain[name][:shortest] for chain in chains]) for name in chains[0]}


def fixed_variables(prior: Hyperprior, learn_q: bool) -> frozenset[str]:
    """Names of what the generalized normal rows of a hyperprior do not learn."""
    learned = {"norm_q": learn_q, "global_scale": prior.learn_global_scale, "intercept": prior.fit_intercept}
    return frozenset(name for name, is_learned in learned.items() if not is_learned)


def in_user_units(draws: SampledDraws, units: SamplingUnits, fit_intercept: bool) -> SampledDraws:
    """Draws of data in the user's units.

    ``global_scale`` stays as it is, in units of sd(y) / sd(x), in which all features have one.
    """
    variables = dict(draws.variables)
    variables["coef"] = units.coefficients(variables["coef"])
    if fit_intercept:
        variables["intercept"] = units.intercepts(variables["coef"], variables["intercept"])
    for name, factor in (("noise", units.target_scale), ("slab_scale", units.target_scale)):
        if name in variables:
            variables[name] = variables[name] * factor
    for name in ("mean_coef", "row_scale"):
        if name in variables:
            variables[name] = units.rows(variables[name])
    return replace(draws, variables=variables)


def with_all_features(draws: SampledDraws, kept: BoolArray) -> SampledDraws:
    """Zeros for the features that were not sampled."""
    if kept.all():
        return draws
    variables = dict(draws.variables)
    for name in ("coef", "mean_coef", "row_scale"):
        if name in variables:
            partial = variables[name]
            whole = np.zeros((*partial.shape[:2], len(kept), *partial.shape[3:]))
            whole[:, :, kept] = partial
            variables[name] = whole
    return replace(draws, variables=variables)


def without(draws: SampledDraws, name: str) -> SampledDraws:
    """Draws without a variable that the model does not have, though its sampler does."""
    return replace(draws, variables={known: values for known, values in draws.variables.items() if known != name})


# ---------------------------------------------------------------------- what they say of features


def inclusion_probability(coef: FloatArray, unit: FloatArray, effect_size: float) -> FloatArray:
    """(p,) Share of draws in which the largest effect over tasks exceeds a size.

    Parameters
    ----------
    coef : (chains, draws, p, m)
    unit : (p,) sd(x_i) / sd(y): what turns a coefficient into an effect
    effect_size : size that matters

    Examples
    --------
    >>> coef = np.array([[[[0.2, -0.9]], [[0.1, 0.3]]]])
    >>> inclusion_probability(coef, np.array([0.5]), 0.2)
    array([0.5])
    """
    largest = np.maximum(coef.max(axis=3), -coef.min(axis=3)) * unit
    return np.asarray((largest > effect_size).mean(axis=(0, 1)))


def local_false_sign_rate(coef: FloatArray) -> FloatArray:
    """(m, p) ``min(P(w <= 0), P(w >= 0))``: probability that the likelier sign is wrong (Stephens 2017).

    Parameters
    ----------
    coef : (chains, draws, p, m)

    Examples
    --------
    >>> local_false_sign_rate(np.array([[[[0.2, 0.0]], [[0.1, 0.0]], [[-0.3, 0.0]], [[0.5, 0.0]]]]))
    array([[0.25],
           [1.  ]])
    """
    return np.minimum((coef <= 0).mean(axis=(0, 1)), (coef >= 0).mean(axis=(0, 1))).T.copy()
