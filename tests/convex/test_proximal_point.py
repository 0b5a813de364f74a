"""The Newton direction of proximal point steps against the Jacobian of the equations that it solves."""

import numpy as np
import pytest

from bayesmtfs.convex.group_penalty import GroupPenalty
from bayesmtfs.convex.proximal_point import NewtonPoint, newton_direction
from bayesmtfs.convex.row_grams import StoredGram
from bayesmtfs.priors import RowPenalty


@pytest.mark.parametrize("penalty", [RowPenalty(0.8, 2), GroupPenalty(np.full(3, 0.8), np.array([0, 2, 4, 6]))])
def test_newton_direction_solves_the_linearised_equations(penalty):
    """``direction - DP(u)[-sigma Q direction] = W(C) - C`` as the loss sees it, DP by finite differences."""
    rng = np.random.default_rng(3)
    Z = rng.normal(size=(9, 6))
    Q, sigma = Z.T @ Z / 9, 1.7
    C, anchor = rng.normal(size=(2, 6, 3))
    C[2:4] = 0.0
    gamma = rng.normal(size=(6, 3)) - Q @ C
    u = anchor + sigma * gamma
    u[4:6] *= 0.01  # rows that stay zero
    point = penalty.prox(u, sigma)
    now = NewtonPoint.of(StoredGram(Q), penalty, point, C)
    assert not point[4:6].any() and point[:4].any(axis=1).any()
    np.testing.assert_allclose(now.error, (Q @ (point - C))[now.moving], atol=1e-12)
    moving = newton_direction(now, penalty, point, sigma)
    direction = np.zeros_like(C)
    direction[now.moving] = moving
    change, step = -sigma * (Q @ direction), 1e-6
    slope = (penalty.prox(u + step * change, sigma) - penalty.prox(u - step * change, sigma)) / (2 * step)
    np.testing.assert_allclose(direction - slope, point - C, atol=1e-6)
