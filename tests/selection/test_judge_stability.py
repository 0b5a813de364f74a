"""Nogueira's stability: known values, chance level, and coverage of its interval."""

import numpy as np
import pytest

from bayesmtfs.selection.judge_stability import set_stability


def random_sets(number, p, k, keep, rng):
    """Sets of size k that share ``keep`` fixed features."""
    sets = np.zeros((number, p), dtype=bool)
    sets[:, :keep] = True
    for row in sets:
        row[keep + rng.choice(p - keep, k - keep, replace=False)] = True
    return sets


def test_equal_sets_are_fully_stable():
    found = set_stability(np.tile(np.arange(10) < 3, (5, 1)))
    assert found.value == pytest.approx(1.0) and found.low == pytest.approx(1.0) and found.high == pytest.approx(1.0)


def test_random_sets_have_no_stability():
    found = set_stability(random_sets(2000, 30, 6, 0, np.random.default_rng(0)))
    assert abs(found.value) < 0.01 and found.low < 0 < found.high


def test_sets_of_one_size_have_the_average_pairwise_kuncheva_index():
    sets = random_sets(8, 20, 5, 2, np.random.default_rng(1)).astype(float)
    common = sets @ sets.T
    pairs = common[np.triu_indices(8, 1)]
    kuncheva = (pairs - 25 / 20) / (5 - 25 / 20)
    assert set_stability(sets).value == pytest.approx(kuncheva.mean())


def test_interval_covers_the_population_value():
    rng = np.random.default_rng(2)
    probability = np.concatenate([np.full(5, 0.8), np.full(25, 0.1)])
    share = probability.mean()
    truth = 1.0 - np.mean(probability * (1 - probability)) / (share * (1 - share))
    found = [set_stability(rng.uniform(size=(60, 30)) < probability) for _ in range(300)]
    covered = np.mean([one.low <= truth <= one.high for one in found])
    assert 0.88 <= covered <= 0.99
    assert np.mean([one.value for one in found]) == pytest.approx(truth, abs=0.01)


@pytest.mark.parametrize("sets", [np.ones((1, 4)), np.ones((3, 4)), np.zeros((3, 4))])
def test_nothing_to_compare_is_nan(sets):
    assert np.isnan(set_stability(sets).value)


def test_shape_is_checked():
    with pytest.raises(ValueError, match="one row per set"):
        set_stability([True, False])
