"""Ranks from scores and ties, with and without groups; counts from counts and shares."""

import numpy as np
import pytest

from bayesmtfs.estimators.ranking import Ranking, as_count, check_size, ranks
from bayesmtfs.results.fit_result import Convergence


def ranking(scores, ties):
    end = Convergence(converged=True, n_iter=0, objective=0.0, gap=0.0)
    return Ranking(np.array(scores, dtype=float), np.zeros((1, len(scores))), np.array(ties, dtype=float), end)


def test_best_score_is_first_and_ties_decide_between_equals():
    found = ranks(ranking([0.0, 2.0, 0.0, 1.0], [0.1, 0.0, 0.5, 0.9]), None)
    assert found.tolist() == [4, 1, 3, 2]


def test_groups_share_a_rank():
    groups = np.array([0, 0, 1, 2, 2])
    found = ranks(ranking([1.0, 1.0, 3.0, 2.0, 2.0], np.zeros(5)), groups)
    assert found.tolist() == [3, 3, 1, 2, 2]


@pytest.mark.parametrize(
    ("size", "available", "count"), [(3, 10, 3), (10, 10, 10), (0.25, 10, 2), (0.01, 10, 1), (1.0, 7, 7)]
)
def test_counts_and_shares(size, available, count):
    check_size(size)
    assert as_count(size, available) == count


def test_more_features_than_there_are_is_refused():
    with pytest.raises(ValueError, match="n_features_to_select is 99 but there are 4 features.*from 1 to 4"):
        as_count(99, 4)


@pytest.mark.parametrize("size", [0, -2, 0.0, 1.2, True, "half", None, np.nan])
def test_other_sizes_are_refused(size):
    with pytest.raises(ValueError, match="n_features_to_select is"):
        check_size(size)
