r"""The prior of the rows as variables of a PyMC model: exponent, scales and means, and coefficients that have them.

``w_it = mu_i + rho_i z_it`` with standard entries z, and mu = 0 unless tasks share a mean. Non-centred, the sampler moves
z, whose distribution does not depend on the scale: the funnel between a small scale and its coefficients is gone.
Centred, it moves w, which pays only where the data say much about every coefficient.

Row scales and the global scale (`bayesmtfs.priors.hyperpriors`) are sampled as logarithms: ``log_row_scale`` given
``log_global_scale`` directly, not as a product ``rho = tau lambda``, in which the two factors would be traded against each
other draw by draw. With q learned, ``log_row_scale`` would have to follow every move of q for the coefficients to keep
their size. Then the free variable is ``log_row_deviation = log_row_scale + ln k(q)``, the logarithm of the prior standard
deviation of a coefficient, with ``k(q)^2 = Gamma(3/q) / Gamma(1/q)``. Given q this is a shift without Jacobian.

Numbers are turned into tensors of PyTensor's float type first: PyTensor holds a Python float such as 2.0 in single
precision where that is exact, and then takes its logarithm in single precision too.
"""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Constant
from scipy.special import betaln

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.models.distributions import GeneralizedNormal, Tensor, as_float_tensor
from bayesmtfs.priors.blocks import Blocks
from bayesmtfs.priors.hyperpriors import Hyperprior
from bayesmtfs.priors.row_penalty import check_norm_q

type NormQ = float | Literal["learn"]
type Entries = Callable[..., Any]  # (name, location, scale, **place) -> entries there, with that scale


def exponent(norm_q: NormQ, prior: Hyperprior) -> Tensor:
    """Add ``norm_q`` to the model in context: a constant, or learned with ``1/q`` uniform over its bounds."""
    if norm_q == "learn":
        low, high = prior.norm_q_bounds
        return pm.Deterministic("norm_q", 1.0 / pm.Uniform("inverse_norm_q", 1.0 / high, 1.0 / low))
    if isinstance(norm_q, str):
        raise ValueError(f"norm_q is {norm_q!r}; pass a number above 0, or 'learn'")
    check_norm_q(norm_q, smallest=0.0)
    constant = as_float_tensor(norm_q)
    pm.Deterministic("norm_q", constant)
    return constant


def log_global_scale(prior: Hyperprior, name: str = "global_scale") -> Tensor:
    """Add a global scale to the model in context and give its logarithm."""
    centre = np.log(prior.global_scale)
    log_tau = pm.Normal(f"log_{name}", centre, 1.0) if prior.learn_global_scale else pt.constant(centre)
    pm.Deterministic(name, pt.exp(log_tau))
    return log_tau


def row_scale_per_feature(prior: Hyperprior, q: Tensor, blocks: Blocks) -> Tensor:
    """Add ``row_scale`` (p,) to the model in context, and the global scale where the hyperprior has one."""
    log_scale = log_row_scales(prior, q, blocks)
    return pm.Deterministic("row_scale", pt.exp(log_scale)[blocks.row_of_feature], dims="feature")


def log_row_scales(prior: Hyperprior, q: Tensor, blocks: Blocks) -> Tensor:
    """Add ``log_row_scale``, or ``log_row_deviation`` where q is learned, and give ``ln rho`` (R,) of every row."""
    shift = log_unit_deviation(q)
    learned_q = "inverse_norm_q" in pm.modelcontext(None).named_vars
    name, offset = ("log_row_deviation", shift) if learned_q else ("log_row_scale", 0.0)
    dims = "feature"
    if blocks.groups is not None:
        dims = "group"
        pm.modelcontext(None).add_coord(dims, range(blocks.n_rows))
    return _log_scales(name, prior, "global_scale", _power(prior, q), offset, dims) - offset


def _log_scales(name: str, prior: Hyperprior, tau: str, power: Tensor, offset: Any, dims: str) -> Tensor:
    """Add logarithms of scales, plus an offset, under the prior of the scales with a global scale of that name."""
    if prior.kind == "log_uniform":
        low, high = np.log(prior.bounds)
        return pm.Uniform(name, low + offset, high + offset, dims=dims)
    centre = log_global_scale(prior, tau) + offset
    return log_beta_prime(name, centre, power, prior.spike_shape, prior.tail_shape, dims=dims)


def log_beta_prime(name: str, centre: Tensor, power: Tensor, spike: float, tail: float, dims: str) -> Tensor:
    """Add ``l`` with ``exp(power (l - centre)) ~ BetaPrime(spike, tail)`` to the model in context, on the real line."""

    def log_density(value: Tensor, centre: Tensor, power: Tensor) -> Tensor:
        log_u = power * (value - centre)
        return pt.log(power) + spike * log_u - (spike + tail) * pt.softplus(log_u) - betaln(spike, tail)

    def draw(centre: Tensor, power: Tensor, size: Tensor) -> Tensor:
        return centre + (_log_gamma_draw(spike, size) - _log_gamma_draw(tail, size)) / power

    return pm.CustomDist(name, centre, power, logp=log_density, dist=draw, dims=dims)


def log_unit_deviation(q: Tensor) -> Tensor:
    """``ln k(q)``: logarithm of the standard deviation of a standard generalized normal entry."""
    # Gamma(3/q) / Gamma(1/q) written so that q = inf gives its limit 1/3
    return 0.5 * (pt.gammaln(1.0 + 3.0 / q) - pt.gammaln(1.0 + 1.0 / q) - np.log(3.0))


def mean_per_feature(prior: Hyperprior, n_features: int, centred: bool) -> Tensor:
    """Add ``mean_coef`` (feature) to the model in context where tasks share a mean; else zeros.

    ``mu_i ~ N(0, (1 / lambda_i^2 + 1 / s^2)^-1)`` with ``log_mean_scale`` (feature) for ln lambda, under
    ``mean_global_scale``; not centred, the free variable is ``standard_mean``, mu over its deviation.
    """
    if prior.mean_scale == 0.0:
        return as_float_tensor(np.zeros(n_features))
    power = _power(prior, as_float_tensor(2.0))
    log_scale = _log_scales("log_mean_scale", prior, "mean_global_scale", power, 0.0, "feature")
    deviation = within_slab(log_scale, pt.log(as_float_tensor(prior.mean_scale)))
    if centred:
        return pm.Normal("mean_coef", 0.0, deviation, dims="feature")
    standard = pm.Normal("standard_mean", 0.0, 1.0, dims="feature")
    return pm.Deterministic("mean_coef", deviation * standard, dims="feature")


def within_slab(log_scale: Tensor, log_slab: Tensor) -> Tensor:
    """``(1 / rho^2 + 1 / s^2)^(-1/2)``, on the logarithmic scale so that no square overflows."""
    return pt.exp(log_slab - 0.5 * pt.softplus(2.0 * (log_slab - log_scale)))


def _power(prior: Hyperprior, q: Tensor) -> Tensor:
    """Exponent of the beta prime distribution, `Hyperprior.power` of a tensor."""
    if prior.scale_power is not None:
        return as_float_tensor(prior.scale_power)
    return pt.switch(pt.isinf(q), as_float_tensor(2.0), q)


def _log_gamma_draw(shape: float, size: Tensor) -> Tensor:
    """Logarithm of a Gamma(shape) draw; ``Gamma(shape + 1) U^(1/shape)`` does not underflow at small shapes."""
    return pt.log(pm.Gamma.dist(shape + 1.0, 1.0, size=size)) + pt.log(pm.Uniform.dist(0.0, 1.0, size=size)) / shape


# ---------------------------------------------------------------------- coefficients


def generalized_normal_entries(q: Tensor) -> Entries:
    """Entries ``GN(location, scale, q)``; at q = inf uniform, with its support mapped onto the real line."""

    def entries(name: str, location: Tensor, scale: Tensor, **place: Any) -> Tensor:
        if isinstance(q, Constant) and np.isinf(q.data):
            return pm.Uniform(name, location - scale, location + scale, **place)
        return GeneralizedNormal(name, location, scale, q, **place)

    return entries


def normal_entries(name: str, location: Tensor, scale: Tensor, **place: Any) -> Tensor:
    """Entries ``N(location, scale^2)``."""
    return pm.Normal(name, location, scale, **place)


def scaled_coefficients(
    data: TaskData, prior: Hyperprior, row_scale: Tensor, entries: Entries, centred: bool
) -> Tensor:
    """Add ``coef`` (feature, task) to the model in context, and ``mean_coef`` (feature) where tasks share a mean.

    The free variable is ``coef`` itself (centred) or ``standard_coef = (coef - mean_coef) / row_scale``. Where tasks lack
    features, whose coefficients are 0, it is the vector of the entries that are there, ``present_coef`` or
    ``standard_coef``.
    """
    dims = ("feature", "task")
    mean = mean_per_feature(prior, data.n_features, centred)
    zero, one = as_float_tensor(0.0), as_float_tensor(1.0)
    if data.present is None:
        if centred:
            return entries("coef", mean[:, None], row_scale[:, None], dims=dims)
        deviations = row_scale[:, None] * entries("standard_coef", zero, one, dims=dims)
        return pm.Deterministic("coef", mean[:, None] + deviations, dims=dims)
    feature, task = np.nonzero(data.present)
    means, scales = mean[feature], row_scale[feature]
    if centred:
        found = entries("present_coef", means, scales, shape=len(feature))
    else:
        found = means + scales * entries("standard_coef", zero, one, shape=len(feature))
    return pm.Deterministic("coef", pt.zeros(data.present.shape)[feature, task].set(found), dims=dims)
