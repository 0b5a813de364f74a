"""Integrals over a coefficient and draws of it, against quadrature."""

import math

import numpy as np
import pytest
from scipy import integrate, special

from bayesmtfs.gibbs.distributions import draw_given_scale, integrable, log_integral, log_window, scaled_tail

SCALES = (1e-6, 0.03, 0.5, 2.0, 30.0)


def pieces(precision, pull, scale, power):
    """Intervals outside of which next to nothing lies, each with a smooth density."""
    width = 1.0 / math.sqrt(precision)
    if power == math.inf:
        centre = min(max(pull / precision, -scale), scale)
        return [(max(centre - 12.0 * width, -scale), min(centre + 12.0 * width, scale))]
    found = []
    for side in (-1.0, 1.0):
        peak = max((side * pull - 1.0 / scale) / precision, 0.0)
        reach = 12.0 * width if peak > 0.0 else min(12.0 * width, 60.0 / max(1.0 / scale - side * pull, 1e-9))
        found.append((side * max(peak - reach, 0.0), side * (peak + reach)))
    return found


def quadrature(precision, pull, scale, power, function=np.ones_like):
    """Integral of a function of the coefficient, times e to the minus of the second value."""
    grids = [np.linspace(*piece, 40_001) for piece in pieces(precision, pull, scale, power)]
    logs = [pull * w - 0.5 * precision * w**2 - (np.abs(w) / scale if power == 1.0 else 0.0) for w in grids]
    top = max(float(values.max()) for values in logs)
    total = 0.0
    for w, values in zip(grids, logs, strict=True):
        total += integrate.simpson(function(w) * np.exp(values - top), x=w) * np.sign(w[-1] - w[0])
    return total, top


@pytest.mark.parametrize("power", [1.0, math.inf])
@pytest.mark.parametrize(("precision", "pull"), [(1.0, 0.0), (4.0, 3.0), (0.01, -0.2), (50.0, 200.0), (9.0, -0.1)])
def test_integral_against_quadrature(power, precision, pull):
    wanted = np.array([top + math.log(found) for found, top in (quadrature(precision, pull, s, power) for s in SCALES)])
    got = np.array([log_integral(precision, pull, math.log(s), power) for s in SCALES])
    np.testing.assert_allclose(got - got[2], wanted - wanted[2], atol=1e-8)


@pytest.mark.parametrize("power", [1.0, math.inf])
@pytest.mark.parametrize("scale", [0.1, 0.7, 5.0])
@pytest.mark.parametrize("pull", [0.0, 3.0, -9.0])
def test_draws_have_the_moments_of_the_density(power, scale, pull):
    rng, precision = np.random.Generator(np.random.PCG64(3)), 4.0
    draws = np.array([draw_given_scale(rng, precision, pull, math.log(scale), power) for _ in range(10_000)])
    total = quadrature(precision, pull, scale, power)[0]
    mean = quadrature(precision, pull, scale, power, lambda w: w)[0] / total
    variance = quadrature(precision, pull, scale, power, lambda w: (w - mean) ** 2)[0] / total
    assert draws.mean() == pytest.approx(mean, abs=5.0 * math.sqrt(variance / len(draws)))
    assert draws.var() == pytest.approx(variance, rel=0.08)
    assert power == 1.0 or np.abs(draws).max() <= scale


def test_data_that_say_nothing_leave_the_prior():
    rng = np.random.Generator(np.random.PCG64(3))
    for power, deviation in ((1.0, math.sqrt(2.0)), (math.inf, 1.0 / math.sqrt(3.0))):
        for scale in (1e-20, 3.0):
            assert log_integral(0.0, 0.0, math.log(scale), power) == pytest.approx(math.log(2.0 * scale), abs=1e-12)
            draws = [draw_given_scale(rng, 0.0, 0.0, math.log(scale), power) for _ in range(5000)]
            assert np.std(draws) == pytest.approx(deviation * scale, rel=0.05)


def test_windows_are_continuous_where_the_formula_changes():
    for centre in (0.0, 0.5, 3.0, 25.0, 300.0):
        for reach in (1e-3 / (1.0 + centre), max(centre - 1.0, 0.1), centre + 1.0):
            values = [log_window(centre, reach * factor) for factor in (1.0 - 1e-9, 1.0 + 1e-9)]
            assert values[1] - values[0] == pytest.approx(0.0, abs=1e-5)


def test_mills_ratio():
    x = np.array([0.0, 0.3, 5.0, 19.9, 20.1, 1e3, 1e8])
    wanted = math.sqrt(math.pi / 2.0) * special.erfcx(x / math.sqrt(2.0))
    np.testing.assert_allclose([scaled_tail(v) for v in x], wanted, rtol=1e-9)


def test_which_exponents():
    assert [integrable(q) for q in (1.0, 1.5, 2.0, math.inf)] == [True, False, False, True]
