"""Streams are what they claim to be, and every contender learns them."""

import numpy as np
import online
import online_peers
import pytest


@pytest.mark.parametrize("make", [online_peers.landmine_like, online_peers.text_like])
def test_streams_have_the_stated_shape_and_can_be_learned(make):
    stream = make(3000)
    n, p = stream.X.shape
    assert (n, p) == ((3000, 9) if make is online_peers.landmine_like else (3000, 150_000))
    assert set(np.unique(stream.y)) == {-1, 1}
    if p > 9:
        assert stream.X.has_canonical_format and 95 < stream.X.nnz / n < 105
        np.testing.assert_allclose(stream.X.multiply(stream.X).sum(axis=1), 1.0)
    model = online_peers.ours(stream, 1000)()
    assert 0 < model.get_support().sum() < p or p == 9
    assert model.score(stream.X, stream.y, tasks=stream.tasks) > 0.55


@pytest.mark.parametrize("size", [1, 100])
def test_every_contender_is_timed(size):
    rates = online.rows_per_second(online_peers.landmine_like(200), size, 1, iter(np.arange(1000.0)).__next__)
    assert {"bayesmtfs", "scikit-learn SGD", "scikit-learn PA", "scikit-learn SGD per task"} <= set(rates)
    assert all(rate > 0 for rate in rates.values())
    cost = online.growth({"m = 3": online_peers.landmine_like(200, 3)}, 1, iter(np.arange(1000.0)).__next__)
    assert cost == {"m = 3": 1e6 / 200}
