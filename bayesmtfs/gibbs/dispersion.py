r"""Gibbs steps on what a family's density has beside eta: the scale of the noise, a dispersion, degrees of freedom.

All move with the hidden precisions integrated out, given the linear predictors, by slice steps on their logarithms:

    ln p(l) = sum_n weight_n ln p(y_n | eta_n, noise, parameter) + ln prior(l),

task by task, or with the sum over all tasks where they share the number. The precisions must be drawn anew before they are
used again. The noise of normal targets has a step of its own (`scales.draw_noise`).

Priors, as densities of the logarithm l:

    noise        half-Student-t:  sigma^2 / (3 s^2) ~ BetaPrime(1/2, 3/2)
                 or inverse gamma: sigma^2 ~ IG(shape, rate)
    dispersion   of counts:  sqrt(alpha), the coefficient of variation of a rate, half-Student-t with 3 degrees and scale 1
    degrees      of Student's t:  nu ~ Gamma(2, rate 0.1), one number for all tasks (Juarez and Steel 2010, *Journal of
                 Business & Economic Statistics* 28:52-66)
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from bayesmtfs.compiled import inner
from bayesmtfs.families import Family
from bayesmtfs.families.augmentation import NEGATIVE_BINOMIAL, STUDENT_T, log_constant, log_density_and_score
from bayesmtfs.gibbs.distributions import softplus
from bayesmtfs.priors.hyperpriors import DEGREES_RATE, DEGREES_SHAPE, NOISE_DEGREES
from bayesmtfs.types import FloatArray, IntArray

WIDTH = 0.5  # of a slice step
STEPS = 30
LOG_RANGE = {STUDENT_T: (math.log(0.1), math.log(1e4)), NEGATIVE_BINOMIAL: (math.log(1e-6), math.log(1e4))}
LEAST_NOISE = 1e-3  # of the scale of its prior: exact fits have no other bound


class DispersionPrior(NamedTuple):
    """Priors of these numbers, and which are learned."""

    anchor: float  # ln(3 s^2) of the half-Student-t distribution of the noise
    shapes: tuple[float, float]  # c and a of the beta-prime distribution; zeros: none
    inverse_gamma: tuple[float, float]  # shape and rate; zeros: none
    least_log_noise: float
    learn_noise: bool
    shared: bool  # one noise, and one dispersion, for all tasks
    learn_parameter: bool
    parameter_low: float  # of its logarithm
    parameter_high: float


class DispersionSpace(NamedTuple):
    """The priors, and what is kept of the parameter."""

    prior: DispersionPrior
    eta: FloatArray  # (N,)
    kept: FloatArray  # (draws, m)


def dispersion_prior(
    family: Family,
    noise_scale: float,
    shared: bool,
    inverse_gamma: tuple[float, float] | None = None,
) -> DispersionPrior:
    """Priors of a family, with the half-Student-t distribution of the noise unless that is inverse gamma."""
    low, high = LOG_RANGE.get(family.augmentation.form, (0.0, 0.0))
    half_t = inverse_gamma is None
    return DispersionPrior(
        anchor=2.0 * math.log(noise_scale) + math.log(NOISE_DEGREES),
        shapes=(0.5, 0.5 * NOISE_DEGREES) if half_t else (0.0, 0.0),
        inverse_gamma=(0.0, 0.0) if inverse_gamma is None else inverse_gamma,
        least_log_noise=math.log(LEAST_NOISE * noise_scale),
        learn_noise=family.has_noise,
        shared=shared,
        learn_parameter=family.learned is not None,
        parameter_low=low,
        parameter_high=high,
    )


def dispersion_space(prior: DispersionPrior, n_observations: int, draws: int, n_tasks: int) -> DispersionSpace:
    """Allocate."""
    return DispersionSpace(prior, np.zeros(n_observations), np.zeros((draws, n_tasks)))


@inner(error_model="numpy")
def draw_dispersion(
    rng: Generator,
    form: int,
    weights: FloatArray,
    targets: FloatArray,
    eta: FloatArray,
    offsets: IntArray,
    noise: FloatArray,
    parameters: FloatArray,
    prior: DispersionPrior,
) -> None:
    """Move the noise and the parameter of every task, in place."""
    m = len(noise)
    for which in range(2):
        if not (prior.learn_parameter if which == 1 else prior.learn_noise):
            continue
        together = prior.shared or (which == 1 and form == STUDENT_T)
        values = parameters if which == 1 else noise
        for t in range(1 if together else m):
            last = m if together else t + 1
            rows = (weights, targets, eta, offsets, noise, parameters)
            moved = math.exp(_slice_step(rng, math.log(values[t]), which, form, rows, t, last, prior))
            for other in range(t, last):
                values[other] = moved


@inner(error_model="numpy")
def _slice_step(
    rng: Generator,
    current: float,
    which: int,
    form: int,
    rows: tuple[FloatArray, FloatArray, FloatArray, IntArray, FloatArray, FloatArray],
    first: int,
    last: int,
    prior: DispersionPrior,
) -> float:
    """Move a logarithm by stepping out and shrinking (Neal 2003, *Annals of Statistics* 31:705-767)."""
    level = _log_density(current, which, form, rows, first, last, prior) - rng.standard_exponential()
    left = current - WIDTH * rng.random()
    right = left + WIDTH
    for _ in range(STEPS):
        if _log_density(left, which, form, rows, first, last, prior) < level:
            break
        left -= WIDTH
    for _ in range(STEPS):
        if _log_density(right, which, form, rows, first, last, prior) < level:
            break
        right += WIDTH
    for _ in range(STEPS):
        proposal = left + (right - left) * rng.random()
        if _log_density(proposal, which, form, rows, first, last, prior) >= level:
            return proposal
        if proposal < current:
            left = proposal
        else:
            right = proposal
    return current


@inner(error_model="numpy")
def _log_density(
    log_value: float,
    which: int,
    form: int,
    rows: tuple[FloatArray, FloatArray, FloatArray, IntArray, FloatArray, FloatArray],
    first: int,
    last: int,
    prior: DispersionPrior,
) -> float:
    """Log-posterior of the logarithm of the noise (which = 0) or the parameter (1) of some tasks, given everything else."""
    weights, targets, eta, offsets, noise, parameters = rows
    value = log_parameter_prior(log_value, form, prior) if which == 1 else log_noise_prior(log_value, prior)
    if value == -np.inf:
        return value
    for t in range(first, last):
        parameter = math.exp(log_value) if which == 1 else parameters[t]
        precision = 1.0 / (noise[t] * noise[t]) if which == 1 else math.exp(-2.0 * log_value)
        for n in range(offsets[t], offsets[t + 1]):
            value += log_density_and_score(form, weights[n], targets[n], eta[n], precision, parameter)[0]
            value += log_constant(form, weights[n], targets[n], precision, parameter)
    return value


@inner(error_model="numpy")
def log_noise_prior(log_noise: float, prior: DispersionPrior) -> float:
    """Log-density of the logarithm of the noise, up to a constant."""
    if log_noise < prior.least_log_noise:
        return -np.inf
    c, a = prior.shapes
    shape, rate = prior.inverse_gamma
    y = 2.0 * log_noise - prior.anchor
    return c * y - (c + a) * softplus(y) - 2.0 * shape * log_noise - rate * math.exp(-2.0 * log_noise)


@inner(error_model="numpy")
def log_parameter_prior(log_value: float, form: int, prior: DispersionPrior) -> float:
    """Log-density of the logarithm of the dispersion or the degrees of freedom, up to a constant."""
    if not prior.parameter_low <= log_value <= prior.parameter_high:
        return -np.inf
    if form == STUDENT_T:
        return DEGREES_SHAPE * log_value - DEGREES_RATE * math.exp(log_value)
    y = log_value - math.log(NOISE_DEGREES)
    return 0.5 * y - 0.5 * (1.0 + NOISE_DEGREES) * softplus(y)
