"""Draws from the joint distribution of parameters and targets to which the generalized normal posterior belongs.

Written with NumPy alone, from the statement of the priors in `bayesmtfs.priors.hyperpriors`, so that samplers can be
measured against it.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.priors.hyperpriors import NOISE_DEGREES, Hyperprior

FloatArray = NDArray[np.float64]


class Parameters(NamedTuple):
    """One draw of everything that is not observed."""

    W: FloatArray  # (p, m)
    intercept: FloatArray  # (m,)
    noise: FloatArray  # (m,)
    row_scales: FloatArray  # (p,)
    global_scale: float
    norm_q: float
    mean_coef: FloatArray  # (p,) zeros without a shared mean
    mean_scales: FloatArray  # (p,) lambda; those of the rows without a shared mean
    mean_global_scale: float  # tau_mu
    parameter: FloatArray | None = None  # (m,) dispersion or degrees of freedom, where the family learns them


def draw_parameters(
    rng: np.random.Generator, prior: Hyperprior, n_features: int, n_tasks: int, norm_q: float | None
) -> Parameters:
    """Draw from the prior; ``norm_q=None`` draws q too."""
    if norm_q is None:
        low, high = prior.norm_q_bounds
        norm_q = 1.0 / rng.uniform(1.0 / high, 1.0 / low)
    tau, row_scales = _draw_scales(rng, prior, n_features, norm_q)
    width = rng.gamma(1.0 + 1.0 / norm_q, size=(n_features, n_tasks)) ** (1.0 / norm_q)
    W = row_scales[:, np.newaxis] * width * rng.uniform(-1.0, 1.0, (n_features, n_tasks))
    mean_tau, mean_scales, mean_coef = tau, row_scales, np.zeros(n_features)
    if prior.mean_scale > 0.0:
        mean_tau, mean_scales = _draw_scales(rng, prior, n_features, 2.0)
        mean_coef = rng.normal(0.0, (mean_scales**-2.0 + prior.mean_scale**-2.0) ** -0.5)
    W += mean_coef[:, np.newaxis]
    noise = prior.noise_scale * np.abs(rng.standard_t(NOISE_DEGREES, 1 if prior.shared_noise else n_tasks))
    intercept = np.zeros(n_tasks)
    if prior.fit_intercept:
        intercept = rng.normal(prior.intercept_centre, prior.intercept_scale, n_tasks)
    noise = np.broadcast_to(noise, n_tasks).copy()
    return Parameters(W, intercept, noise, row_scales, tau, norm_q, mean_coef, mean_scales, mean_tau)


def draw_parameter(rng: np.random.Generator, loss: str, n_tasks: int, shared: bool = False) -> FloatArray | None:
    """(m,) Draw degrees of freedom, one for all tasks, or dispersions."""
    if loss == "student_t(learn)":
        return np.full(n_tasks, rng.gamma(2.0, 10.0))
    if loss == "negative_binomial(learn)":
        return np.broadcast_to(np.square(rng.standard_t(NOISE_DEGREES, 1 if shared else n_tasks)), n_tasks).copy()
    return None


def _draw_scales(
    rng: np.random.Generator, prior: Hyperprior, n_features: int, norm_q: float
) -> tuple[float, FloatArray]:
    """Draw a global scale and the scales under it."""
    tau = prior.global_scale
    if prior.kind == "log_uniform":
        return tau, np.exp(rng.uniform(*np.log(prior.bounds), n_features))
    if prior.learn_global_scale:
        tau *= math.exp(rng.standard_normal())
    ratio = rng.gamma(prior.spike_shape, size=n_features) / rng.gamma(prior.tail_shape, size=n_features)
    return tau, tau * ratio ** (1.0 / prior.power(norm_q))


def draw_targets(rng: np.random.Generator, data: TaskData, parameters: Parameters) -> FloatArray:
    """(N,) Targets given the parameters; a row of weight 2 stands for one of half the noise variance."""
    eta = data.linear_predictor(parameters.W, parameters.intercept)
    spread = parameters.noise[data.task] / np.sqrt(data.weight)
    return eta + spread * rng.standard_normal(data.n_observations)
