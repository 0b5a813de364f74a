"""The 2-norm of groups of lines: against its definition, finite differences and the row penalty on gathered rows."""

import numpy as np
import pytest

from bayesmtfs.convex.group_penalty import GroupPenalty, active_lines, group_norms
from bayesmtfs.priors import RowPenalty

STARTS = np.array([0, 1, 3, 6, 10])
WEIGHTS = np.array([0.5, 1.0, 2.0, 0.1])


def make():
    return GroupPenalty(WEIGHTS, STARTS), np.random.default_rng(0).standard_normal((10, 3))


def parts(W):
    return [W[a:b] for a, b in zip(STARTS[:-1], STARTS[1:], strict=True)]


def test_value_and_dual_norm_are_those_of_the_definition():
    penalty, W = make()
    norms = [np.linalg.norm(part) for part in parts(W)]
    assert penalty.value(W) == pytest.approx(WEIGHTS @ norms)
    np.testing.assert_allclose(penalty.dual_norm(W), norms / WEIGHTS)


def test_proximal_point_is_that_of_a_row_with_all_entries_of_the_group():
    penalty, W = make()
    found = parts(penalty.prox(W, 1.3))
    for part, weight, point in zip(parts(W), WEIGHTS, found, strict=True):
        expected = RowPenalty(weight).prox(part.reshape(1, -1), 1.3)
        np.testing.assert_allclose(point.reshape(1, -1), expected, rtol=1e-12)
    assert not penalty.prox(W, 100.0).any()


def test_curvature_is_that_of_finite_differences():
    penalty, W = make()
    found = penalty.curvature(W, 1e7)
    rng, step = np.random.default_rng(1), 1e-4
    V = rng.standard_normal(W.shape)
    second = (penalty.value(W + step * V) - 2 * penalty.value(W) + penalty.value(W - step * V)) / step**2
    along = np.add.reduceat(np.sum(found.direction * V, axis=1), STARTS[:-1])
    assert np.sum(found.diagonal * V**2) - found.scale @ along**2 == pytest.approx(second, rel=1e-5)


def test_some_of_the_groups():
    penalty, W = make()
    W[1:3] = 0.0
    lines = active_lines(penalty, W)
    np.testing.assert_array_equal(lines, [0, 3, 4, 5, 6, 7, 8, 9])
    some = penalty.take(lines)
    np.testing.assert_array_equal(some.starts, [0, 1, 4, 8])
    assert some.value(W[lines]) == pytest.approx(penalty.value(W))
    W[4] = 0.0  # a line of zeros in a group that is not zero
    np.testing.assert_array_equal(active_lines(penalty, W), lines)


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_norms_of_groups_at_extreme_scales(scale):
    found = group_norms(scale * np.array([3.0, 4.0, 5.0]), np.array([0, 2, 3]))
    np.testing.assert_allclose(found, [5 * scale, 5 * scale], rtol=1e-14)
