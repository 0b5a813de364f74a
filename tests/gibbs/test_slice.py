"""Slice steps and draws by cells, against quadrature."""

import numpy as np
import pytest
from scipy import integrate

from bayesmtfs.gibbs import scales as gibbs_scales
from bayesmtfs.gibbs.distributions import power_of, softplus
from bayesmtfs.gibbs.scales import ScalePrior, given_sample, log_density, slice_step, with_carried, with_multiplied

NOTHING = np.empty(0)
FLAT_PRIOR = ScalePrior(
    anchors=NOTHING,
    exponent=2.0,
    first_shape=0.5,
    second_shape=0.5,
    centre=0.0,
    precision=0.0,
    low=-np.inf,
    high=np.inf,
)
FLAT = with_multiplied(FLAT_PRIOR, 0.0, 0.0, 0.0)
CARRIED = {
    "precisions": np.array([1.0, 20.0, 0.1]),
    "pulls": np.array([0.5, -9.0, 0.0]),
    "positions": np.array([0.3, -0.2, 1.1]),
}
TARGETS = {
    "bounded": with_multiplied(FLAT_PRIOR._replace(low=-2.0, high=1.0), 25.0, 30.0, 0.0),
    "sample": given_sample(FLAT_PRIOR._replace(anchors=np.array([0.2])), 4.0, 0.4, 1.3),
    "anchors": FLAT._replace(
        prior=FLAT_PRIOR._replace(anchors=np.array([-1.0, 0.0, 2.0]), exponent=3.0, centre=0.5, precision=1.0)
    ),
    "carried": with_carried(FLAT_PRIOR._replace(anchors=np.array([0.0])), 3.0, 3.0, **CARRIED, spread=1.0),
}


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("width", [0.2, 2.0])
def test_chain_has_the_moments_of_the_density(name, width):
    target = TARGETS[name]
    rng, x, found = np.random.Generator(np.random.PCG64(2)), 0.0, []
    for _ in range(20_000):
        x = slice_step(rng, x, target, width)
        found.append(x)
    low, high = max(target.prior.low, -15.0), min(target.prior.high, 15.0)
    grid = np.linspace(low, high, 20_001)
    density = np.exp([log_density(v, target) for v in grid])
    density /= integrate.trapezoid(density, grid)
    mean = integrate.trapezoid(grid * density, grid)
    deviation = integrate.trapezoid((grid - mean) ** 2 * density, grid) ** 0.5
    assert np.mean(found) == pytest.approx(mean, abs=0.06 * deviation + 0.005)
    assert np.std(found) == pytest.approx(deviation, rel=0.06)


def test_carried_coefficients_integrate_to_the_normal_marginal():
    """At power 2 the coefficients are a posteriori independent of x at fixed positions: only the marginal remains."""
    target = with_carried(FLAT_PRIOR, 3.0, 2.0, **CARRIED, spread=0.5)

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


NONE = np.zeros(0)


def two_modes():
    """A half-Cauchy prior around e^-5, and a coefficient that the data put at 2.3 with a standard deviation of 0.6."""
    prior = FLAT_PRIOR._replace(anchors=np.array([-5.0]), low=-60.0, high=60.0)
    return with_carried(prior, 1.0, 2.0, np.array([3.0]), np.array([7.0]), np.zeros(1), 0.5)


@pytest.mark.parametrize(("low", "high"), [(-11.0, 7.0), (-70.0, 70.0)])
def test_both_modes_have_their_share(low, high):
    target, rng, x = two_modes(), np.random.Generator(np.random.PCG64(0)), 0.0
    found = np.empty(20_000)
    for k in range(len(found)):
        found[k] = x = gibbs_scales.jump_by_cells(rng, x, target, low, high)
    grid = np.linspace(max(low, -60.0), min(high, 60.0), 20_001)
    mass = np.exp([log_density(point, target) for point in grid])
    middle = np.searchsorted(grid, [-7.0, -5.0, -2.0, 1.0, 2.0])
    share = np.cumsum(mass)[middle] / mass.sum()
    assert 0.1 < share[2] < 0.9  # two modes
    np.testing.assert_allclose(np.mean(found[:, None] <= grid[middle], axis=0), share, atol=0.03)


def test_nothing_moves_from_outside_the_range():
    rng = np.random.Generator(np.random.PCG64(0))
    assert gibbs_scales.jump_by_cells(rng, 8.0, two_modes(), -11.0, 7.0) == 8.0
