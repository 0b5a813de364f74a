r"""Sums, functions and draws of single numbers that the steps share; coefficients integrated out where that is known.

With ``g w - a w^2 / 2`` the log-likelihood of a coefficient given all others, and GN(0, rho, q) its prior, the integral

    I(rho) = int exp(g w - a w^2 / 2 - |w / rho|^q) dw

is a sum of two Mills ratios at q = 1 and a difference of two normal probabilities at q = inf. The coefficients of one
feature are independent over the tasks given the scale of their row, so that the scale may be drawn with all of them
integrated out, and they afterwards: what a scale that has to stay above its largest coefficient cannot do. (At q = 2 the
same is done by `scales` with coefficients at their conditional means.)
"""

import math

import numpy as np
from numpy.random import Generator

from bayesmtfs.compiled import inner
from bayesmtfs.types import FloatArray

ROOT_HALF = math.sqrt(0.5)
LOG_ROOT_HALF_PI = 0.5 * math.log(0.5 * math.pi)
NARROW = 1e-3  # width of a window, in deviations, below which the density in it is a parabola
FAR = 20.0  # from where on the scaled complementary error function is summed as a series
STEEP = 1e8  # from where on a normal tail is exponential to all digits
LEAST_PRECISION = 1e-300


def integrable(norm_q: float) -> bool:
    """Whether the integral is known here."""
    return norm_q in (1.0, math.inf)


@inner(error_model="numpy")
def log_integral(precision: float, pull: float, log_scale: float, power: float) -> float:
    """``ln I(rho)``, up to a constant in rho; precision and pull are a and g, power is q, 1 or inf."""
    root = math.sqrt(max(precision, LEAST_PRECISION))
    if power == np.inf:
        return log_window(abs(pull) / root, root * math.exp(log_scale)) - math.log(root)
    right, left = _log_sides(pull, log_scale, root)
    top = max(right, left)
    return top + math.log1p(math.exp(-abs(right - left))) - math.log(root)


@inner(error_model="numpy")
def draw_given_scale(rng: Generator, precision: float, pull: float, log_scale: float, power: float) -> float:
    """Draw a coefficient given its scale; parameters as in `log_integral`."""
    root = math.sqrt(max(precision, LEAST_PRECISION))
    if power == np.inf:
        return truncated_normal(rng, pull / root / root, 1.0 / root, math.exp(log_scale))
    right, left = _log_sides(pull, log_scale, root)
    side = 1.0 if rng.random() * (1.0 + math.exp(left - right)) < 1.0 else -1.0
    return side * _above(rng, (math.exp(-log_scale) - side * pull) / root) / root


@inner(error_model="numpy")
def log_window(centre: float, reach: float) -> float:
    """``ln int exp(-(x - centre)^2 / 2) dx`` over ``|x| < reach``, for a centre that is not negative."""
    if reach * (1.0 + centre) < NARROW:
        return math.log(2.0 * reach) - 0.5 * centre * centre + math.log1p((centre * centre - 1.0) * reach * reach / 6.0)
    below = centre - reach  # the distance of the nearer end, if the centre is outside
    if below < 1.0:
        mass = math.erf(ROOT_HALF * (centre + reach)) - math.erf(ROOT_HALF * below)
        return LOG_ROOT_HALF_PI + math.log(mass)
    mass = scaled_tail(below) - math.exp(-2.0 * reach * centre) * scaled_tail(centre + reach)
    return math.log(mass) - 0.5 * below * below


@inner(error_model="numpy")
def scaled_tail(x: float) -> float:
    """Mills ratio ``exp(x^2 / 2) int_x^inf exp(-t^2 / 2) dt`` of a number that is not negative."""
    if x < FAR:
        return math.exp(LOG_ROOT_HALF_PI + 0.5 * x * x) * math.erfc(ROOT_HALF * x)
    y = 1.0 / (x * x)
    return (1.0 - y * (1.0 - 3.0 * y * (1.0 - 5.0 * y * (1.0 - 7.0 * y)))) / x


@inner(error_model="numpy")
def _log_sides(pull: float, log_scale: float, root: float) -> tuple[float, float]:
    """Logarithms of the integrals at q = 1 over positive and over negative coefficients, times ``sqrt(a)``."""
    steepness = math.exp(-log_scale)
    return _log_tail((steepness - pull) / root), _log_tail((steepness + pull) / root)


@inner(error_model="numpy")
def _log_tail(x: float) -> float:
    """Logarithm of the Mills ratio of any number."""
    if x >= 0.0:
        return math.log(scaled_tail(x))
    return LOG_ROOT_HALF_PI + 0.5 * x * x + math.log(math.erfc(ROOT_HALF * x))


@inner(error_model="numpy")
def _above(rng: Generator, low: float) -> float:
    """Draw ``x - low``, x from N(0, 1) above ``low`` (Robert 1995)."""
    if low < 0.0:
        while True:
            x = rng.standard_normal()
            if x > low:
                return x - low
    if low > STEEP:
        return rng.standard_exponential() / low
    rate = 0.5 * (low + math.sqrt(low * low + 4.0))
    while True:
        excess = rng.standard_exponential() / rate
        if -rng.standard_exponential() < -0.5 * (low + excess - rate) ** 2:
            return excess


@inner(error_model="numpy")
def truncated_normal(rng: Generator, centre: float, deviation: float, reach: float) -> float:
    """Draw from N(centre, deviation^2) within [-reach, reach] (Robert 1995)."""
    sign = -1.0 if centre > 0.0 else 1.0
    centre *= sign
    low, high = (-reach - centre) / deviation, (reach - centre) / deviation
    if low <= 0.0:
        return sign * (centre + deviation * _around_zero(rng, low, high))
    # the centre lies below the interval: the lower end is the likeliest point
    while True:
        if high - low < 2.0 / (low + 1.0):
            x = low + (high - low) * rng.random()
            logarithm = 0.5 * (low * low - x * x)
        else:
            rate = 0.5 * (low + math.sqrt(low * low + 4.0))
            x = low + rng.standard_exponential() / rate
            logarithm = -0.5 * (x - rate) ** 2
        if x <= high and math.log(rng.random()) < logarithm:
            # rounding must not carry the draw out of the interval
            return sign * min(max(centre + deviation * x, -reach), reach)


@inner(error_model="numpy")
def _around_zero(rng: Generator, low: float, high: float) -> float:
    """Draw from N(0, 1) within an interval that holds 0."""
    while True:
        if high - low > 2.5:
            x = rng.standard_normal()
            if low <= x <= high:
                return x
        else:
            x = low + (high - low) * rng.random()
            if math.log(rng.random()) < -0.5 * x * x:
                return x


@inner(error_model="numpy")
def power_of(x: float, power: float) -> float:
    """``x^power`` of a number that is not negative; fast for the commonest powers."""
    if power == 2.0:
        return x * x
    if power == 4.0:
        return x * x * x * x
    return x**power


@inner(error_model="numpy")
def softplus(y: float) -> float:
    """``ln(1 + e^y)`` without overflow."""
    return y + math.log1p(math.exp(-y)) if y > 0.0 else math.log1p(math.exp(y))


@inner(error_model="numpy")
def unit_variance(inverse_q: float) -> float:
    """Variance ``Gamma(3/q) / Gamma(1/q)`` of GN(0, 1, q)."""
    return math.exp(math.lgamma(1.0 + 3.0 * inverse_q) - math.lgamma(1.0 + inverse_q)) / 3.0


@inner(error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def dot(a: FloatArray, b: FloatArray) -> float:
    """Sum of products."""
    total = 0.0
    for k in range(len(a)):
        total += a[k] * b[k]
    return total


@inner(error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def weighted_square(a: FloatArray, weights: FloatArray) -> float:
    """Sum of weights times squares."""
    total = 0.0
    for k in range(len(a)):
        total += weights[k] * a[k] * a[k]
    return total
