r"""The hyperprior of `bayesmtfs.priors.hyperpriors` as variables of a PyMC model.

Row scales and the global scale are sampled as logarithms: ``log_row_scale`` given ``log_global_scale`` directly, not as
a product ``rho = tau lambda``, in which the two factors would be traded against each other draw by draw.

With q learned, ``log_row_scale`` would have to follow every move of q for the coefficients to keep their size. Then the
free variable is ``log_row_deviation = log_row_scale + ln k(q)``, the logarithm of the prior standard deviation of a
coefficient, with ``k(q)^2 = Gamma(3/q) / Gamma(1/q)``. Given q this is a shift, so that there is no Jacobian.

Numbers are turned into tensors of PyTensor's float type first: PyTensor holds a Python float such as 2.0 in single
precision where that is exact, and then takes its logarithm in single precision too.
"""

from typing import Literal

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.special import betaln

from bayesmtfs.models.distributions import as_float_tensor
from bayesmtfs.models.linear_predictor import Tensor
from bayesmtfs.priors.blocks import Blocks
from bayesmtfs.priors.hyperpriors import NOISE_DEGREES, Hyperprior
from bayesmtfs.priors.row_penalty import check_norm_q

type NormQ = float | Literal["learn"]


def exponent(norm_q: NormQ, prior: Hyperprior) -> Tensor:
    """Add ``norm_q`` to the model in context: a constant, or learned with ``1/q`` uniform.

    Parameters
    ----------
    norm_q : float or "learn"
        Number above 0, may be infinite, or "learn".
    prior : Hyperprior
        Its ``norm_q_bounds`` are the range of a learned q.

    Returns
    -------
    tensor
        q, constant where it is fixed.
    """
    if norm_q == "learn":
        low, high = prior.norm_q_bounds
        return pm.Deterministic("norm_q", 1.0 / pm.Uniform("inverse_norm_q", 1.0 / high, 1.0 / low))
    if isinstance(norm_q, str):
        raise ValueError(f"norm_q is {norm_q!r}; pass a number above 0, or 'learn'")
    check_norm_q(norm_q, smallest=0.0)
    constant = as_float_tensor(norm_q)
    pm.Deterministic("norm_q", constant)
    return constant


def log_global_scale(prior: Hyperprior) -> Tensor:
    """Add ``global_scale`` to the model in context and give its logarithm."""
    centre = np.log(prior.global_scale)
    log_tau = pm.Normal("log_global_scale", centre, 1.0) if prior.learn_global_scale else pt.constant(centre)
    pm.Deterministic("global_scale", pt.exp(log_tau))
    return log_tau


def row_scale_per_feature(prior: Hyperprior, q: Tensor, blocks: Blocks) -> Tensor:
    """Add the row scales to the model in context, and the global scale where the hyperprior has one.

    Parameters
    ----------
    prior : Hyperprior
        The hyperprior.
    q : tensor
        Exponent, from `exponent`.
    blocks : Blocks
        Which features share a scale.

    Returns
    -------
    tensor (p,)
        ``row_scale``, one per feature.
    """
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
    if prior.kind == "log_uniform":
        low, high = np.log(prior.bounds)
        return pm.Uniform(name, low + offset, high + offset, dims=dims) - offset
    centre = log_global_scale(prior) + offset
    power = _power(prior, q)
    return log_beta_prime(name, centre, power, prior.spike_shape, prior.tail_shape, dims=dims) - offset


def log_beta_prime(name: str, centre: Tensor, power: Tensor, spike: float, tail: float, dims: str) -> Tensor:
    """Add ``l`` with ``exp(power (l - centre)) ~ BetaPrime(spike, tail)`` to the model in context.

    Parameters
    ----------
    name : str
        Name of the variable.
    centre : tensor
        ``ln tau``.
    power : tensor
        Exponent of the scale, above 0.
    spike, tail : float
        c and a of the beta prime law.
    dims : str
        Dimension of the variable.

    Returns
    -------
    tensor
        The variable, on the whole real line.
    """

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


def noise_per_task(prior: Hyperprior) -> Tensor:
    """Add ``noise`` (task) to the model in context, one for all tasks under ``shared_noise``."""
    degrees, scale = as_float_tensor(NOISE_DEGREES), as_float_tensor(prior.noise_scale)
    if not prior.shared_noise:
        return pm.HalfStudentT("noise", nu=degrees, sigma=scale, dims="task")
    shared = pm.HalfStudentT("shared_noise", nu=degrees, sigma=scale)
    return pm.Deterministic("noise", shared * pt.ones(pm.modelcontext(None).dim_lengths["task"]), dims="task")


def mean_per_feature(prior: Hyperprior, n_features: int) -> Tensor:
    """Add ``mean_coef`` (feature) to the model in context where tasks share a mean; else zeros."""
    if prior.mean_scale == 0.0:
        return as_float_tensor(np.zeros(n_features))
    return pm.Normal("mean_coef", 0.0, as_float_tensor(prior.mean_scale), dims="feature")


def intercept_per_task(prior: Hyperprior) -> Tensor:
    """Add ``intercept`` (task) to the model in context, zeros without ``fit_intercept``."""
    if prior.fit_intercept:
        centre, deviation = as_float_tensor(prior.intercept_centre), as_float_tensor(prior.intercept_scale)
        return pm.Normal("intercept", centre, deviation, dims="task")
    return pm.Deterministic("intercept", pt.zeros(pm.modelcontext(None).dim_lengths["task"]), dims="task")


def _power(prior: Hyperprior, q: Tensor) -> Tensor:
    """Exponent of the beta prime law, `Hyperprior.power` of a tensor."""
    if prior.scale_power is not None:
        return as_float_tensor(prior.scale_power)
    return pt.switch(pt.isinf(q), as_float_tensor(2.0), q)


def _log_gamma_draw(shape: float, size: Tensor) -> Tensor:
    """Logarithm of a Gamma(shape) draw; ``Gamma(shape + 1) U^(1/shape)`` does not underflow at small shapes."""
    return pt.log(pm.Gamma.dist(shape + 1.0, 1.0, size=size)) + pt.log(pm.Uniform.dist(0.0, 1.0, size=size)) / shape
