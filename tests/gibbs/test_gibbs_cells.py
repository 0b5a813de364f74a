"""Draws by cells against the distribution function of a density with two modes, by quadrature."""

import numpy as np
import pytest

from bayesmtfs.gibbs import cells as gibbs_cells
from bayesmtfs.gibbs.slice import LogScaleDensity, log_density

NONE = np.zeros(0)


def two_modes():
    """A half-Cauchy prior around e^-5, and a coefficient that the data put at 2.3 with a standard deviation of 0.6."""
    return LogScaleDensity(
        1.0, -np.inf, 2.0, 0.0, 0.0, 0.0, np.array([3.0]), np.array([7.0]), np.zeros(1), 0.5, np.array([-5.0]), 2.0,
        0.5, 0.5, 0.0, 0.0, -60.0, 60.0,
    )  # fmt: skip


@pytest.mark.parametrize(("low", "high"), [(-11.0, 7.0), (-70.0, 70.0)])
def test_both_modes_have_their_share(low, high):
    target, rng, x = two_modes(), np.random.Generator(np.random.PCG64(0)), 0.0
    found = np.empty(20_000)
    for k in range(len(found)):
        found[k] = x = gibbs_cells.jump_by_cells(rng, x, target, low, high)
    grid = np.linspace(max(low, -60.0), min(high, 60.0), 20_001)
    mass = np.exp([log_density(point, target) for point in grid])
    middle = np.searchsorted(grid, [-7.0, -5.0, -2.0, 1.0, 2.0])
    share = np.cumsum(mass)[middle] / mass.sum()
    assert 0.1 < share[2] < 0.9  # two modes
    np.testing.assert_allclose(np.mean(found[:, None] <= grid[middle], axis=0), share, atol=0.03)


def test_nothing_moves_from_outside_the_range():
    rng = np.random.Generator(np.random.PCG64(0))
    assert gibbs_cells.jump_by_cells(rng, 8.0, two_modes(), -11.0, 7.0) == 8.0
