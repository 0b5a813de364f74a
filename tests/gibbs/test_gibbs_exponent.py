"""The maps that carry coefficients when q moves."""

import numpy as np
import pytest
from scipy import stats

from bayesmtfs.gibbs import exponent as steps


def nodes_at(norm_q):
    nodes = np.zeros(steps.EVEN_NODES + steps.TAIL_NODES)
    steps.fill_quantiles(1.0 / norm_q, nodes)
    return nodes


@pytest.mark.parametrize(("number", "folded"), [(0.5, 0.5), (1.1, 0.9), (-0.06, 0.1), (2.5, 0.54)])
def test_reflection_stays_inside(number, folded):
    assert steps.reflected(number, 0.02, 1.0) == pytest.approx(folded)


@pytest.mark.parametrize("norm_q", [0.7, 1.0, 2.0, 8.0, 50.0])
def test_nodes_are_quantiles(norm_q):
    nodes = nodes_at(norm_q)
    assert nodes[0] == 0.0
    assert np.all(np.diff(nodes) > 0)
    tails = 2.0 * stats.gennorm(norm_q).sf(nodes)
    even = steps.EVEN_NODES * 15 // 16 + 1
    np.testing.assert_allclose(tails[:even], 1.0 - np.arange(even) / steps.EVEN_NODES, atol=0.01)


@pytest.mark.parametrize(("old", "new"), [(1.0, 1.4), (4.0, 3.0), (2.0, 40.0)])
def test_map_keeps_the_law_and_goes_back(old, new):
    rng = np.random.default_rng(0)
    z = np.abs(stats.gennorm(old).rvs(3000, random_state=rng))
    first, second = nodes_at(old), nodes_at(new)
    moved, slopes = np.transpose([steps.same_rank(value, first, second) for value in z])
    assert stats.kstest(moved, lambda x: 2.0 * stats.gennorm(new).cdf(x) - 1.0).pvalue > 0.001
    back, inverse_slopes = np.transpose([steps.same_rank(value, second, first) for value in moved])
    np.testing.assert_allclose(back, z, atol=1e-12)
    inside = z < first[-1]
    np.testing.assert_allclose((slopes * inverse_slopes)[inside], 1.0, rtol=1e-9)


@pytest.mark.parametrize("share", [0.02, 0.4, 1.0])
@pytest.mark.parametrize(("old", "new"), [(1.0, 1.4), (4.0, 3.0), (2.0, 40.0)])
def test_blended_map_is_undone(old, new, share):
    first, second = nodes_at(old), nodes_at(new)
    units = [1.0 / stats.gennorm(q).std() for q in (old, new)]
    for x in np.linspace(0.0, 4.0, 41):
        moved, slope = steps.blended(x, share, *units, first, second)
        back, inverse_slope = steps.unblended(moved, share, *units, first, second)
        assert back == pytest.approx(x, abs=1e-12)
        assert slope * inverse_slope == pytest.approx(1.0, rel=1e-9)
        step = 1e-7
        rise = steps.blended(x + step, share, *units, first, second)[0] - moved
        assert rise / step == pytest.approx(slope, rel=1e-5) or x == 0.0 or is_node(x, units[0], first)


def is_node(x, unit, nodes):
    return np.abs(nodes * unit - x).min() < 1e-6


def test_blended_map_ends_where_the_data_say_nothing_or_everything():
    first, second = nodes_at(1.2), nodes_at(6.0)
    units = [1.0 / stats.gennorm(q).std() for q in (1.2, 6.0)]
    moved, slope = steps.blended(1.3, 1.0, *units, first, second)
    rank = stats.gennorm(1.2, scale=units[0]).cdf(1.3)
    assert moved == pytest.approx(stats.gennorm(6.0, scale=units[1]).ppf(rank), rel=0.02)
    assert steps.blended(1.3, 0.0, *units, first, second) == pytest.approx((1.3, 1.0))
