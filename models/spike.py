r"""The prior with exact zeros as a PyMC model, with discrete indicators.

`bayesmtfs.priors.spike` states the prior. Tables of the Chinese restaurant process are integrated out here: with H the base
measure of a pattern, omega integrated out, row i that is on has the pattern S with probability

    (alpha H(S) + number of earlier rows with the pattern S) / (alpha + number of earlier rows that are on).

The sampler of `bayesmtfs.gibbs.spike` draws whole rows and is much faster than what PyMC has for discrete variables; the
model says what it draws from, and lets the continuous part be sampled given indicators. Noise of tasks is independent
here; where the sampler finds that tasks on the same rows have noise in common, it draws factors of it, too
(`bayesmtfs.gibbs.common_noise`).
"""

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray

from bayesmtfs.data.scaling import in_sampling_units, sampling_units
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import Family
from bayesmtfs.models.distributions import Tensor
from bayesmtfs.models.distributions import as_float_tensor as _number
from bayesmtfs.models.terms import (
    coordinates,
    density_of,
    learned_parameter,
    linear_predictor,
    observe,
    readable,
    with_known_part,
)
from bayesmtfs.priors.blocks import Blocks
from bayesmtfs.priors.spike import SpikePrior, spike_prior_for
from bayesmtfs.types import FloatArray


def spike_model(
    data: TaskData, loss: str | Family = "squared", prior: SpikePrior | None = None, **settings: Any
) -> pm.Model:
    """Build the model with exact zeros of rows and entries.

    Parameters
    ----------
    data : TaskData
        Observations; any two labels for a family of labels. A row's weight multiplies its log-likelihood.
    loss : str or Family, default "squared"
        Any family with a density and a PyMC term.
    prior : SpikePrior, optional
        The whole prior, in deviations within tasks, instead of ``settings``.
    **settings
        Parameters of `bayesmtfs.priors.spike.spike_prior_for`: ``expected_features``, ``fit_intercept``,
        ``shared_noise``.

    Returns
    -------
    pm.Model
        Coordinates ``feature``, ``task``, ``obs``. Variables ``coef`` (feature, task), ``included`` (feature, task),
        ``intercept`` and ``noise`` (task), ``inclusion_rate``, what the family learns and the observed ``y`` (obs), in the
        units of the data.

    Examples
    --------
    >>> import numpy as np
    >>> from bayesmtfs import TaskData
    >>> from bayesmtfs.models import spike_model
    >>> rng = np.random.default_rng(0)
    >>> data = TaskData.from_long(rng.normal(size=(8, 3)), rng.normal(size=8), tasks=["b", "a"] * 4)
    >>> model = spike_model(data)
    >>> model.named_vars_to_dims["included"]
    ('feature', 'task')
    """
    family = density_of(loss)
    data = readable(data, family)
    own_targets = data.shared_design and data.n_tasks > 1  # different quantities
    scaling = {"per_task": False, "scale_target": family.has_noise, "own_targets": own_targets}
    centre = settings.get("fit_intercept", True) if prior is None else prior.fit_intercept
    units = sampling_units(data.dense(), centre=centre, **scaling)
    if prior is None:
        prior = spike_prior_for(in_sampling_units(data.dense(), units), family, **settings)
    blocks = Blocks(data.n_features, data.n_tasks, data.groups, data.present)
    with pm.Model(coords=coordinates(data) | {"row_of_prior": range(blocks.n_rows)}) as model:
        effects = _effects(prior, blocks, data)
        coef = pm.Deterministic("coef", effects * (units.target_scale / units.feature_scale), dims=("feature", "task"))
        height = _number(units.target_scale)
        middle, spread = _number(prior.intercept_centre), _number(prior.intercept_scale)
        level = pm.Normal("level", middle, spread, dims="task") if prior.fit_intercept else 0.0
        shift = pt.sum(coef * units.feature_centre, axis=0)
        centre = _number(units.target_centre)
        intercept = pm.Deterministic("intercept", centre + height * level - shift, dims="task")
        eta = with_known_part(data, linear_predictor(data, coef, intercept))
        noise = height * _noise(prior) if family.has_noise else None
        if noise is not None:
            noise = pm.Deterministic("noise", noise, dims="task")[model["task_index"]]
        weight = None if np.all(data.weight == 1.0) else pm.Data("weight", data.weight, dims="obs")
        target = pm.Data("target", np.asarray(data.y, dtype=np.float64), dims="obs")
        parameter = learned_parameter(family, prior, data)
        observe("y", family, eta, target, weight=weight, noise=1.0 if noise is None else noise, parameter=parameter)
    return model


def _noise(prior: SpikePrior) -> Tensor:
    """Noise (task) in deviations of the target."""
    n_tasks = pm.modelcontext(None).dim_lengths["task"]
    shape = {} if prior.shared_noise else {"dims": "task"}
    variance = pm.InverseGamma("noise_variance", _number(prior.noise_shape), _number(prior.noise_rate), **shape)
    return pt.sqrt(variance) * pt.ones(n_tasks)


def _effects(prior: SpikePrior, blocks: Blocks, data: TaskData) -> Tensor:
    """(p, m) Effects in deviations, with all that they depend on."""
    row, dims = blocks.row_of_feature, ("feature", "task")
    pattern = _patterns(prior, blocks.n_rows)
    present = np.ones((data.n_features, data.n_tasks), dtype=bool) if data.present is None else data.present
    included = pm.Deterministic("included", pattern[row] * present.astype(np.int64), dims=dims)
    scale = _from_grid("scale", prior.scales, prior.scale_concentration)[row][:, None]
    share = _from_grid("share", prior.shares, prior.share_concentration)
    share = pt.switch(np.bincount(row) > 1, 0.0, share)[row][:, None]  # a group has independent effects
    common = pm.Normal("common", dims="feature")[:, None]
    own = pm.Normal("individual", dims=dims)
    return included * scale * (pt.sqrt(share) * common + pt.sqrt(1.0 - share) * own)


def _from_grid(name: str, grid: tuple[float, ...], concentration: float) -> Tensor:
    """(R,) Points of a grid whose weights are learned, one for each row."""
    weights = _weights(name, len(grid), concentration)
    number = pm.Categorical(f"{name}_number", weights, dims="row_of_prior")
    return _number(np.array(grid))[number]


def _weights(name: str, size: int, concentration: float) -> Tensor:
    """Dirichlet weights; one of 1 has nothing to learn."""
    if size == 1:
        return _number(np.ones(1))
    return pm.Dirichlet(f"{name}_weights", np.full(size, concentration))


def _patterns(prior: SpikePrior, n_rows: int) -> Tensor:
    """(R, m) Patterns of all rows; zeros in rows that are off."""
    rate = pm.Categorical("inclusion_number", np.array(prior.inclusion_weights))
    pi = pm.Deterministic("inclusion_rate", _number(np.array(prior.inclusion_rates))[rate])
    seats = pm.Categorical("concentration_number", np.full(len(prior.concentrations), 1.0 / len(prior.concentrations)))
    alpha = _number(np.array(prior.concentrations))[seats]
    numbers = pm.Categorical("task_rate_number", np.array(prior.task_rate_weights), dims="task")
    kappa = _number(np.array(prior.task_rates))[numbers]
    weights = _weights("pattern_rate", len(prior.pattern_rates), prior.rate_concentration)
    omega = np.array(prior.pattern_rates)

    def log_probability(value: Tensor, pi: Tensor, alpha: Tensor, weights: Tensor, kappa: Tensor, _: Tensor) -> Tensor:
        return log_patterns(value, pi, alpha, weights, omega[:, None] * kappa)

    def draw(*parameters: FloatArray, rng: np.random.Generator, size: Any = None) -> NDArray[np.int64]:
        pi, alpha, weights, kappa, rows = parameters
        return draw_patterns(rng, len(rows), float(pi), float(alpha), weights, np.outer(omega, kappa))

    return pm.CustomDist(
        "pattern",
        *(pi, alpha, weights, kappa, np.zeros(n_rows)),
        logp=log_probability,
        random=draw,
        support_point=lambda rv, size, *parameters: pt.zeros_like(rv),
        signature="(),(),(o),(t),(r)->(r,t)",
        dtype="int64",
        dims=("row_of_prior", "task"),
    )


def log_patterns(value: Tensor, pi: Tensor, alpha: Tensor, weights: Tensor, rates: Tensor) -> Tensor:
    """Logarithm of the probability of patterns (R, m), given weights (O,) of entry rates (O, m)."""
    on = pt.any(value > 0, axis=1)
    each = pt.switch(value[:, None] > 0, rates, 1.0 - rates).prod(axis=2)  # (R, O)
    base = pt.sum(weights * each / (1.0 - pt.prod(1.0 - rates, axis=1)), axis=1)
    alike = pt.all(pt.eq(value[:, None], value[None]), axis=2) * on[None]
    earlier = pt.tri(value.shape[0], k=-1)
    seated, total = pt.sum(earlier * alike, axis=1), pt.sum(earlier * on[None], axis=1)
    chance = (alpha * base + seated) / (alpha + total)
    return pt.sum(pt.switch(on, pt.log(pi) + pt.log(chance), pt.log1p(-pi)))


def draw_patterns(
    rng: np.random.Generator, n_rows: int, pi: float, alpha: float, weights: FloatArray, rates: FloatArray
) -> NDArray[np.int64]:
    """Draw patterns (R, m), one row after the other."""
    drawn = np.zeros((n_rows, rates.shape[1]), dtype=np.int64)
    on: list[int] = []
    for i in np.flatnonzero(rng.random(n_rows) < pi).tolist():
        if rng.random() * (alpha + len(on)) < len(on):
            drawn[i] = drawn[rng.choice(on)]
        else:
            chosen = rates[rng.choice(len(weights), p=weights)]
            while not drawn[i].any():
                drawn[i] = rng.random(len(chosen)) < chosen
        on.append(i)
    return drawn
