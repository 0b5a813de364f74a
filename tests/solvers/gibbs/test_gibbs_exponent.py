"""The maps that carry coefficients when q moves."""

import numpy as np
import pytest
from scipy import stats

from bayesmtfs.solvers.gibbs import gibbs_exponent as steps


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
