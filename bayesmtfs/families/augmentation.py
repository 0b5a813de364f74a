r"""Families that are normal in eta once a hidden precision is known.

Given a hidden precision omega of a target, its density is ``exp(linear(y) eta - omega eta^2 / 2)`` times what does not
depend on eta. Two routes use that:

- the Gibbs sampler draws omega. Its compiled steps take the number of the form, `Augmentation.form`, and call the
  functions below with it, each for one target of a weight;
- EM with coefficients integrated out takes its expectation at a point xi, which gives a normal bound,

      -ln p(y | eta) <= -linear(y) eta + expected_precision(xi) eta^2 / 2 + bound_constant(xi),

  with equality at ``eta^2 = xi^2`` (Jaakkola and Jordan 2000, *Statistics and Computing* 10:25-37).

The hidden precision of a label is Polya-Gamma:

    e^(k eta) / (1 + e^eta)^b = 2^-b e^((k - b/2) eta) E[exp(-omega eta^2 / 2)],   omega ~ PG(b, 0)

(Polson, Scott and Windle 2013, theorem 1), and given eta, ``omega ~ PG(b, eta)``. PG(1, c) is drawn by Devroye's method
(their section 4): proposals from an exponential distribution right of `CUT` and from an inverse normal one left of it,
accepted by an alternating series that is summed only as far as needed. PG(b, c) for a whole number b is a sum of b such
draws; for any b above 0 it is the sum

    sum_k g_k / (2 pi^2 (k - 1/2)^2 + c^2 / 2),   g_k ~ Gamma(b, 1),   k = 1, 2, ...,

whose first terms, `TERMS` and more the larger c, are drawn one by one, and the rest as one gamma variable with the mean and
the variance of the rest. What that changes in the third cumulant is below one part in ten thousand.

**Negative binomial counts** of dispersion alpha have, with ``r = 1 / alpha`` and ``psi = eta + ln alpha``, the density
``e^(y psi) / (1 + e^psi)^(y + r)`` up to a constant: omega ~ PG(y + r, psi), and psi takes the place of eta.

**One of several classes** given the linear predictors of the others is a label whose linear predictor has a known part,
``-ln sum_j exp(eta_j)`` over those (`bayesmtfs.gibbs.classes`).

**Student's t** of nu degrees and scale s is a normal distribution whose precision is ``lambda / s^2`` with ``lambda ~
Gamma(nu / 2, rate nu / 2)``: given the residual, ``lambda ~ Gamma((nu + 1) / 2, rate (nu + r^2 / s^2) / 2)`` (West
1987). A weight c takes the power c of the kernel, which multiplies the first parameter by c.

**Quantile and absolute losses** are ``a |r| + d r`` with ``a = (above + below) / 2`` and ``d = (above - below) / 2`` of
the slopes on the two sides over the scale: ``exp(-a |r|)`` is a normal mixture over ``omega^-1 ~ Exponential(rate a^2 /
2)``, so that omega given r is inverse normal with mean ``a / |r|`` and shape ``a^2`` (Andrews and Mallows 1974; Kozumi
and Kobayashi 2011 write the tilt d into the mean instead, which is the same law).

References
----------
N. G. Polson, J. G. Scott, J. Windle (2013), Bayesian inference for logistic models using Pólya-Gamma latent variables,
Journal of the American Statistical Association 108:1339-1349.
L. Devroye (2009), On exact simulation algorithms for some distributions related to Jacobi theta functions, Statistics
and Probability Letters 79:2251-2259.
D. F. Andrews, C. L. Mallows (1974), Scale mixtures of normal distributions, JRSS B 36:99-102.
M. West (1987), On scale mixtures of normal distributions, Biometrika 74:646-648.
H. Kozumi, G. Kobayashi (2011), Gibbs sampling methods for Bayesian quantile regression, Journal of Statistical
Computation and Simulation 81:1565-1578.
"""

import math
from typing import ClassVar

import numpy as np

from bayesmtfs.compiled import inner
from bayesmtfs.types import FloatArray

NORMAL, POLYA_GAMMA, NEGATIVE_BINOMIAL, STUDENT_T, QUANTILE, ABSOLUTE, MULTINOMIAL = range(7)  # forms
CUT = 0.64  # where the two kinds of proposals meet
TERMS = 10  # of a Polya-Gamma variable that are drawn one by one, at the least
MOST_TERMS = 200.0
LEAST_RESIDUAL = 1e-12  # over the scale, for an inverse normal distribution with a mean
LARGEST_COUNT_RATE = 700.0  # logarithm


class Augmentation:
    """The conditionally normal form of a family; as it stands here, that of a normal family, where omega is 1.

    Attributes
    ----------
    form : int
        `NORMAL`, `POLYA_GAMMA`, ..., which the compiled functions of this module know.
    parameter : float
        The number that they take beside the noise: dispersion, degrees of freedom or level of a quantile; where it is
        learned, the one to begin with.
    bounded : bool
        Whether there is a normal bound, for EM.
    weights : str
        Which sample weights the draws of omega take, in words.
    """

    form: ClassVar[int] = NORMAL
    parameter: float = 0.0
    bounded: ClassVar[bool] = True
    weights: ClassVar[str] = "numbers of at least 0"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.parameter:g})"

    def takes_weights(self, weight: FloatArray) -> bool:
        """Whether omega can be drawn for these sample weights."""
        return True

    def linear(self, y: FloatArray) -> FloatArray:
        """Factor of eta in the exponent."""
        return y

    def expected_precision(self, xi: FloatArray) -> FloatArray:
        """Expectation of omega where eta is xi."""
        return np.ones_like(xi)

    def bound_constant(self, xi: FloatArray) -> FloatArray:
        """What the bound adds to the part that depends on eta."""
        return np.zeros_like(xi)


class PolyaGamma(Augmentation):
    """Labels -1 and +1 as normal targets ``y / (2 omega)`` of precision omega, which is Polya-Gamma."""

    form: ClassVar[int] = POLYA_GAMMA
    weights: ClassVar[str] = "whole numbers from 1 to 100"
    most_weight: ClassVar[float] = 100.0  # the precision of a label is a sum of as many draws

    def takes_weights(self, weight: FloatArray) -> bool:
        """Whether all are whole numbers, since PG(b, c) has no exact draws for other b, and none is too large."""
        return bool(np.all((weight == np.round(weight)) & (weight >= 1.0) & (weight <= self.most_weight)))

    def linear(self, y: FloatArray) -> FloatArray:
        """Half the label."""
        return 0.5 * y

    def expected_precision(self, xi: FloatArray) -> FloatArray:
        """``tanh(xi / 2) / (2 xi)``, 1/4 at 0: the mean of PG(1, xi)."""
        safe = np.maximum(xi, 1e-8)
        return np.asarray(np.tanh(safe / 2.0) / (2.0 * safe))

    def bound_constant(self, xi: FloatArray) -> FloatArray:
        """``ln(1 + exp(-xi)) + xi / 2 - omega xi^2 / 2``."""
        return np.logaddexp(0.0, -xi) + xi / 2 - self.expected_precision(xi) * xi**2 / 2


class OneOfSeveralClasses(PolyaGamma):
    """One class among several, given the linear predictors of the others: labels, less ``ln sum exp`` of those."""

    form: ClassVar[int] = MULTINOMIAL


class ScaleMixture(Augmentation):
    """A form without a normal bound; any weights."""

    bounded: ClassVar[bool] = False

    def __init__(self, form: int, parameter: float = 0.0) -> None:
        self.form, self.parameter = form, parameter  # type: ignore[misc]


@inner(error_model="numpy")
def draw_polya_gamma(rng: np.random.Generator, count: int, tilt: float) -> float:
    """Draw from PG(count, tilt).

    Parameters
    ----------
    rng : generator
    count : b, a whole number of at least 1
    tilt : c
    """
    total = 0.0
    for _ in range(count):
        total += _draw_single(rng, 0.5 * abs(tilt))
    return 0.25 * total


@inner(error_model="numpy")
def _draw_single(rng: np.random.Generator, z: float) -> float:
    """Draw from the tilted Jacobi distribution J*(1, z), of which PG(1, 2z) is a quarter."""
    rate = 0.125 * math.pi**2 + 0.5 * z * z
    right = _share_of_right_part(z, rate)
    while True:
        x = CUT + rng.standard_exponential() / rate if rng.random() < right else _left_proposal(rng, z)
        total = _series_term(0, x)
        level = rng.random() * total
        n = 0
        while True:
            n += 1
            if n % 2 == 1:
                total -= _series_term(n, x)
                if level <= total:
                    return x
            else:
                total += _series_term(n, x)
                if level > total:
                    break


@inner(error_model="numpy")
def _share_of_right_part(z: float, rate: float) -> float:
    """Probability that a proposal lies right of the cut."""
    root = 1.0 / math.sqrt(CUT)
    start = math.log(rate) + rate * CUT
    below = start - z + _log_normal_cdf(root * (CUT * z - 1.0))
    above = start + z + _log_normal_cdf(-root * (CUT * z + 1.0))
    return 1.0 / (1.0 + 4.0 / math.pi * (math.exp(below) + math.exp(above)))


@inner(error_model="numpy")
def _log_normal_cdf(x: float) -> float:
    """Logarithm of the normal distribution function; -inf where it is too small to matter beside the other term."""
    value = 0.5 * math.erfc(-math.sqrt(0.5) * x)
    return math.log(value) if value > 0.0 else -np.inf


@inner(error_model="numpy")
def _left_proposal(rng: np.random.Generator, z: float) -> float:
    """Draw from the inverse normal distribution with mean 1/z and shape 1, below the cut."""
    if z * CUT < 1.0:  # the mean lies right of the cut
        while True:
            first, second = rng.standard_exponential(), rng.standard_exponential()
            if first * first > 2.0 * second / CUT:
                continue
            x = CUT / (1.0 + CUT * first) ** 2
            if rng.random() <= math.exp(-0.5 * z * z * x):
                return x
    mean = 1.0 / z
    while True:
        square = mean * rng.standard_normal() ** 2
        # the smaller root, written so that nothing cancels
        x = mean * 2.0 / (2.0 + square + math.sqrt(4.0 * square + square * square))
        if rng.random() > mean / (mean + x):
            x = mean * mean / x
        if x <= CUT:
            return x


@inner(error_model="numpy")
def _series_term(n: int, x: float) -> float:
    """Term n of the alternating series of the density of J*(1, 0)."""
    half = n + 0.5
    if x > CUT:
        return math.pi * half * math.exp(-0.5 * half * half * math.pi**2 * x)
    return math.pi * half * (2.0 / (math.pi * x)) ** 1.5 * math.exp(-2.0 * half * half / x)


@inner(error_model="numpy")
def draw_any_polya_gamma(rng: np.random.Generator, size: float, tilt: float) -> float:
    """Draw from PG(size, tilt) for any size above 0: the sum over k, the rest of it as one gamma variable."""
    tilt = abs(tilt)
    square, mean, variance, found = 0.5 * tilt * tilt, *_unit_moments(tilt), 0.0
    for k in range(TERMS + int(min(tilt, MOST_TERMS * math.pi) / math.pi)):
        scale = 1.0 / (2.0 * math.pi**2 * (k + 0.5) ** 2 + square)
        found += scale * rng.standard_gamma(size)
        mean -= scale
        variance -= scale * scale
    if mean > 0.0 and variance > 0.0:
        found += variance / mean * rng.standard_gamma(size * mean * mean / variance)
    return found


@inner(error_model="numpy")
def _unit_moments(tilt: float) -> tuple[float, float]:
    """Mean and variance of PG(1, tilt)."""
    if tilt < 1e-2:
        square = tilt * tilt
        return 0.25 - square / 48.0, 1.0 / 24.0 - square / 120.0
    small = math.exp(-tilt)
    mean = 0.5 * (1.0 - small) / (1.0 + small) / tilt
    # (sinh c - c) / cosh^2(c / 2) = 2 (1 - e^-2c - 2 c e^-c) / (1 + e^-c)^2
    return mean, 0.5 * (1.0 - small * small - 2.0 * tilt * small) / (1.0 + small) ** 2 / tilt**3


@inner(error_model="numpy")
def _draw_inverse_normal(rng: np.random.Generator, mean: float) -> float:
    """Draw from the inverse normal distribution with this mean and shape 1 (Michael, Schucany and Haas 1976)."""
    square = mean * rng.standard_normal() ** 2
    # the smaller root, written so that nothing cancels
    x = mean * 2.0 / (2.0 + square + math.sqrt(4.0 * square + square * square))
    return x if rng.random() <= mean / (mean + x) else mean * mean / x


@inner(error_model="numpy")
def _slopes(form: int, parameter: float) -> tuple[float, float]:
    """``a`` and ``d`` of ``a |r| + d r`` at scale 1."""
    return (1.0, 0.0) if form == ABSOLUTE else (0.5, parameter - 0.5)


# The last argument of the functions below is `Augmentation.parameter`, the one before it 1 / noise^2


@inner(error_model="numpy")
def draw_precision_and_score(
    rng: np.random.Generator,
    form: int,
    weight: float,
    target: float,
    eta: float,
    noise_precision: float,
    parameter: float = 0.0,
) -> tuple[float, float]:
    """Hidden precision given eta, and the derivative in eta of the log-density given the precision."""
    if form == POLYA_GAMMA:
        omega = draw_polya_gamma(rng, int(weight), eta)
        return omega, 0.5 * weight * target - omega * eta
    if form == NORMAL:
        omega = weight * noise_precision
        return omega, omega * (target - eta)
    if weight == 0.0:
        return 0.0, 0.0
    if form == NEGATIVE_BINOMIAL:
        shape, margin = 1.0 / parameter, eta + math.log(parameter)
        omega = draw_any_polya_gamma(rng, weight * (target + shape), margin)
        return omega, 0.5 * weight * (target - shape) - omega * margin
    residual = target - eta
    if form == STUDENT_T:
        rate = 0.5 * (parameter + residual * residual * noise_precision)
        omega = noise_precision * rng.standard_gamma(0.5 * weight * (parameter + 1.0)) / rate
        return omega, omega * residual
    a, d = _slopes(form, parameter)
    root = weight * math.sqrt(noise_precision)
    a, d = root * a, root * d
    omega = a * a * _draw_inverse_normal(rng, 1.0 / max(a * abs(residual), LEAST_RESIDUAL))
    return omega, omega * residual + d


@inner(error_model="numpy")
def log_density_and_score(
    form: int, weight: float, target: float, eta: float, noise_precision: float, parameter: float = 0.0
) -> tuple[float, float]:
    """Log-density up to what does not depend on eta, the precision integrated out, and its derivative in eta."""
    if form == POLYA_GAMMA or form == NEGATIVE_BINOMIAL:
        if form == POLYA_GAMMA:
            margin, size, part = target * eta, 1.0, 0.0
        else:
            margin, size, part = -eta - math.log(parameter), target + 1.0 / parameter, target
        small = math.exp(-abs(margin))
        value = weight * (size * (math.log1p(small) + max(-margin, 0.0)) + part * margin)
        share = (small if margin > 0.0 else 1.0) / (1.0 + small)
        return -value, weight * (target * share if form == POLYA_GAMMA else part - size * share)
    residual = target - eta
    if form == NORMAL:
        score = weight * noise_precision * residual
        return -0.5 * score * residual, score
    if form == STUDENT_T:
        square = residual * residual * noise_precision / parameter
        power = 0.5 * weight * (parameter + 1.0)
        return -power * math.log1p(square), 2.0 * power * residual * noise_precision / parameter / (1.0 + square)
    a, d = _slopes(form, parameter)
    root = weight * math.sqrt(noise_precision)
    side = 1.0 if residual > 0.0 else -1.0
    return -root * (a * abs(residual) + d * residual), root * (a * side + d)


@inner(error_model="numpy")
def log_constant(form: int, weight: float, target: float, noise_precision: float, parameter: float) -> float:
    """What `log_density_and_score` leaves out of the log-density and depends on the noise or the parameter."""
    if form == NEGATIVE_BINOMIAL:
        shape = 1.0 / parameter
        # the density is C(y + r - 1, y) e^(y psi) / (1 + e^psi)^(y + r)
        return weight * (math.lgamma(target + shape) - math.lgamma(shape))
    if form == POLYA_GAMMA:
        return 0.0
    value = 0.5 * math.log(noise_precision)
    if form == STUDENT_T:
        value += math.lgamma(0.5 * (parameter + 1.0)) - math.lgamma(0.5 * parameter) - 0.5 * math.log(parameter)
    return weight * value


@inner(error_model="numpy")
def curvature(form: int, weight: float, eta: float, noise_precision: float, parameter: float = 0.0) -> float:
    """Minus the second derivative in eta of the log-density, the precision integrated out; its mean where it varies."""
    if form == POLYA_GAMMA:
        small = math.exp(-abs(eta))
        return weight * small / ((1.0 + small) * (1.0 + small))
    if form == NEGATIVE_BINOMIAL:
        mean = math.exp(min(eta, LARGEST_COUNT_RATE))
        return weight * mean / (1.0 + parameter * mean)
    if form == STUDENT_T:
        return weight * noise_precision * (parameter + 1.0) / (parameter + 3.0)
    if form == QUANTILE or form == ABSOLUTE:
        a, d = _slopes(form, parameter)
        return weight * noise_precision * (a * a - d * d)
    return weight * noise_precision
