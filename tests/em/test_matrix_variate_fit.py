"""A whole fit with relations at the mode: units, floors, and what it refuses."""

from dataclasses import replace

import numpy as np
import pytest

from bayesmtfs import simulate_tasks
from bayesmtfs.em import jeffreys as em_jeffreys
from bayesmtfs.em import matrix_variate_fit
from bayesmtfs.families import find_family
from bayesmtfs.types import Solution


def related_fit(x_factor=1.0, y_factor=1.0, noise_floor=0.0, shrinkage=None, present=None):
    sim = simulate_tasks(n_tasks=4, n_features=12, n_samples=40, n_relevant=5, relatedness=0.8, random_state=0)
    data = replace(sim.data, design=sim.data.design * x_factor, y=sim.data.y * y_factor, present=present)
    W = sim.coef.T * y_factor / x_factor
    start = Solution(
        W, np.zeros(4), 0.0, np.nan, np.nan, True, 3, np.empty(0), noise=np.full(4, sim.noise.mean() * y_factor)
    )
    settings = em_jeffreys.Settings(noise_floor=noise_floor, max_iter=500)
    return matrix_variate_fit.fit(data, find_family("squared"), settings, start, shrinkage=shrinkage)


@pytest.mark.parametrize(("x_factor", "y_factor"), [(100.0, 1.0), (0.01, 1.0), (1.0, 100.0), (3.0, 0.01)])
def test_units_do_not_matter(x_factor, y_factor):
    plain, scaled = related_fit(), related_fit(x_factor, y_factor)
    np.testing.assert_allclose(scaled.solution.W * x_factor / y_factor, plain.solution.W, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(scaled.task_relations, plain.task_relations, atol=1e-6)
    np.testing.assert_allclose(scaled.solution.noise / y_factor, plain.solution.noise, rtol=1e-6)
    # the density of the data and of the coefficients changes by the Jacobian of the units alone
    jacobian = 160 * np.log(y_factor) + 5 * 4 * np.log(y_factor / x_factor)
    assert scaled.solution.objective - plain.solution.objective == pytest.approx(jacobian, abs=1e-5)


def test_the_users_floor_and_shrinkage_hold():
    assert related_fit(noise_floor=0.9).solution.noise.min() > 2 * related_fit().solution.noise.max()
    assert related_fit(shrinkage=7.0).shrinkage == 7.0
    strong, weak = (np.abs(related_fit(shrinkage=nu).task_relations[0, 1]) for nu in (50.0, 1.0))
    assert strong < weak


def test_features_that_a_task_lacks_are_refused():
    present = np.ones((12, 4), dtype=bool)
    present[0, 1] = False
    with pytest.raises(ValueError, match="some tasks lack features.*; pass coefficients='integrated'"):
        related_fit(present=present)
