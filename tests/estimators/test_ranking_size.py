"""The grid of sizes, and the choice among them by held-out rows."""

import numpy as np
import pytest

from bayesmtfs.estimators.ranking import choose_size, size_grid
from bayesmtfs.papers.baselines import FisherScoreSelector


@pytest.mark.parametrize("available", [1, 2, 10, 5000])
def test_grid_runs_from_one_to_all_in_growing_steps(available):
    sizes = size_grid(available)
    assert sizes[0] == 1 and sizes[-1] == available and np.all(np.diff(sizes) > 0)
    assert len(sizes) <= 2 + np.log(available) / np.log(1.3)


def test_one_feature_is_enough_where_one_tells_the_classes_apart():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    X = rng.standard_normal((60, 30))
    X[:, 17] += 30.0 * y
    selector = FisherScoreSelector()
    data = selector.training_data(X, y, None, None)
    assert choose_size(selector, data, 30, 4, None, 0) == 1
    assert not hasattr(selector, "ranking_")
