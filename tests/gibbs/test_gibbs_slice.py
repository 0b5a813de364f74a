"""Slice steps against quadrature."""

import numpy as np
import pytest
from scipy import integrate

from bayesmtfs.gibbs.slice import LogScaleDensity, log_density, power_of, slice_step, softplus

NOTHING = np.empty(0)
FLAT = LogScaleDensity(
    slope=0.0, log_sum=-np.inf, power=2.0, pull=0.0, curvature=0.0, origin=0.0, precisions=NOTHING, pulls=NOTHING,
    positions=NOTHING, spread=1.0, anchors=NOTHING, exponent=2.0, first_shape=0.5, second_shape=0.5, centre=0.0,
    precision=0.0, low=-np.inf, high=np.inf,
)  # fmt: skip
CARRIED = {
    "precisions": np.array([1.0, 20.0, 0.1]),
    "pulls": np.array([0.5, -9.0, 0.0]),
    "positions": np.array([0.3, -0.2, 1.1]),
}
TARGETS = {
    "bounded": FLAT._replace(pull=25.0, curvature=30.0, low=-2.0, high=1.0),
    "sample": FLAT._replace(slope=4.0, log_sum=0.4, power=1.3, anchors=np.array([0.2])),
    "anchors": FLAT._replace(anchors=np.array([-1.0, 0.0, 2.0]), exponent=3.0, centre=0.5, precision=1.0),
    "carried": FLAT._replace(slope=3.0, power=3.0, anchors=np.array([0.0]), **CARRIED),
}


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("width", [0.2, 2.0])
def test_chain_has_the_moments_of_the_density(name, width):
    target = TARGETS[name]
    rng, x, found = np.random.Generator(np.random.PCG64(2)), 0.0, []
    for _ in range(20_000):
        x = slice_step(rng, x, target, width)
        found.append(x)
    low, high = max(target.low, -15.0), min(target.high, 15.0)
    grid = np.linspace(low, high, 20_001)
    density = np.exp([log_density(v, target) for v in grid])
    density /= integrate.trapezoid(density, grid)
    mean = integrate.trapezoid(grid * density, grid)
    deviation = integrate.trapezoid((grid - mean) ** 2 * density, grid) ** 0.5
    assert np.mean(found) == pytest.approx(mean, abs=0.06 * deviation + 0.005)
    assert np.std(found) == pytest.approx(deviation, rel=0.06)


def test_carried_coefficients_integrate_to_the_normal_marginal():
    """At power 2 the coefficients are a posteriori independent of x at fixed positions: only the marginal remains."""
    target = FLAT._replace(slope=3.0, spread=0.5, **CARRIED)

    def marginal(x):
        variance = 0.5 * np.exp(2 * x)
        precision = CARRIED["precisions"] + 1 / variance
        return np.sum(0.5 * CARRIED["pulls"] ** 2 / precision - 0.5 * np.log(precision * variance))

    for x in (-2.0, 0.3, 1.5):
        got = log_density(x, target) - log_density(0.0, target)
        assert got == pytest.approx(marginal(x) - marginal(0.0), abs=1e-10)


def test_small_functions():
    assert power_of(1.7, 4.0) == pytest.approx(1.7**4)
    assert power_of(1.7, 2.0) == pytest.approx(1.7**2)
    assert power_of(0.0, 3.0) == 0.0
    np.testing.assert_allclose([softplus(y) for y in (-800.0, -1.0, 2.0, 800.0)], np.logaddexp(0, [-800, -1, 2, 800]))
