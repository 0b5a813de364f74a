"""Bounds of stability selection: the papers' special cases, and the extremal distributions behind them."""

import numpy as np
import pytest
from scipy.optimize import linprog

from bayesmtfs.selection.error_bounds import error_bounds, largest_number, smallest_threshold, unimodal_factor


def test_special_case_of_meinshausen_and_buehlmann():
    # After their theorem 1: a threshold of 0.9 and q = sqrt(0.8 p) features give at most one expected error
    p = 5000
    bounds = error_bounds(np.sqrt(0.8 * p), p, threshold=0.9, n_pairs=50)
    assert bounds.meinshausen_buehlmann == pytest.approx(1.0)
    assert bounds.worst_case == bounds.meinshausen_buehlmann


def test_at_threshold_one_the_bound_is_q_squared_over_p():
    assert error_bounds(7, 100, threshold=1.0, n_pairs=30).worst_case == pytest.approx(0.49)


def largest_tail(mean, level, n_pairs):
    """Largest P(Y >= level) over the unimodal distributions on {0, 1/B, ..., 1} with this mean, by linear programs."""
    grid = np.arange(n_pairs + 1) / n_pairs
    rises = np.eye(n_pairs, n_pairs + 1) - np.eye(n_pairs, n_pairs + 1, k=1)
    best = 0.0
    for mode in range(n_pairs + 1):
        signs = np.where(np.arange(n_pairs) < mode, 1.0, -1.0)
        found = linprog(
            -(grid >= level - 1e-9).astype(float),
            A_ub=signs[:, None] * rises,
            b_ub=np.zeros(n_pairs),
            A_eq=np.stack([np.ones(n_pairs + 1), grid]),
            b_eq=[1.0, mean],
        )
        best = max(best, -found.fun) if found.status == 0 else best
    return best


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
@pytest.mark.parametrize("reached", [12, 14, 15, 16, 18, 20])
def test_unimodal_bound_is_the_extreme_of_all_unimodal_distributions(share, reached):
    # A feature that a half selects with probability theta is selected by both halves with probability theta^2, and
    # its frequency reaches tau only where that of both halves reaches 2 tau - 1
    n_pairs = 10
    threshold = reached / (2 * n_pairs)
    factor = unimodal_factor(share, threshold, n_pairs)
    extreme = largest_tail(share**2, 2 * threshold - 1, n_pairs)
    if np.isnan(factor):
        assert threshold <= 0.5 + min(share**2, 1 / (2 * n_pairs) + 0.75 * share**2)
    else:
        assert factor * share**2 == pytest.approx(extreme, rel=1e-6)
        assert factor * share**2 < share**2 / (2 * threshold - 1)


def test_a_threshold_acts_as_the_next_frequency():
    assert unimodal_factor(0.1, 0.61, 10) == unimodal_factor(0.1, 0.65, 10)
    assert unimodal_factor(0.1, 0.6, 10) == unimodal_factor(0.1, 0.6 - 1e-15, 10)


@pytest.mark.parametrize(("share", "threshold", "n_pairs"), [(0.6, 0.9, 50), (0.1, 0.51, 50), (0.1, 0.9, 1)])
def test_unimodal_bound_is_not_given_where_it_does_not_hold(share, threshold, n_pairs):
    # theta above 1 / sqrt(3); thresholds below 1/2 + 1/B
    assert np.isnan(unimodal_factor(share, threshold, n_pairs))


def test_planning_inverts_the_bound():
    p = 300
    for threshold in (0.6, 0.75, 0.9, 1.0):
        q = largest_number(2.0, p, threshold)
        assert error_bounds(q, p, threshold, 50).worst_case <= 2.0 + 1e-9
        assert error_bounds(q + 1, p, threshold, 50).worst_case > 2.0
        assert smallest_threshold(2.0, p, q) <= threshold
        assert error_bounds(q, p, smallest_threshold(2.0, p, q), 50).worst_case == pytest.approx(2.0)
