"""Directions of rows that are not active: factors, orthonormal coordinates, and coefficients that follow."""

import numpy as np
import pytest

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.gibbs import observations as gibbs_observations
from bayesmtfs.gibbs import rest as gibbs_rest
from bayesmtfs.gibbs import state as gibbs_state
from bayesmtfs.priors.hyperpriors import Hyperprior


@pytest.mark.parametrize("rank", [3, 6])
def test_factor_of_a_matrix_that_may_lack_rank(rank):
    B = np.random.default_rng(0).standard_normal((6, rank))
    K = B @ B.T
    L = K.copy()
    gibbs_rest.factorise(L)
    L = np.tril(L)
    np.testing.assert_allclose(L @ L.T, K, atol=1e-12)
    assert np.count_nonzero(np.diag(L)) == rank and not L[:, np.diag(L) == 0.0].any()


@pytest.fixture
def problem():
    """Twelve features of two tasks; two are active, one is too small, the second task lacks the last."""
    rng = np.random.default_rng(1)
    data = TaskData.from_long(rng.standard_normal((9, 12)), np.zeros(9), tasks=np.repeat([0, 1], [4, 5]))
    present = np.ones((2, 12), dtype=bool)
    present[1, 11] = False
    rows = gibbs_state.rows_of(data)._replace(present=present)
    law = gibbs_state.law_of(Hyperprior(), learn_q=False)
    W = np.where(present, rng.standard_normal((2, 12)), 0.0)
    state = gibbs_state.state_around(rows, law, W, np.zeros(2), np.ones(2), 2.0, rng)
    state.numbers[0] = -3.0
    state.log_scales[4] = -3.0
    observations = gibbs_observations.observations_of(data, 0.0, labels=True)
    rest = gibbs_rest.rest_for(observations, 2)
    gibbs_rest.choose_rest(rows, law, state, np.array([1, 1] + [0] * 10), rest)
    gibbs_rest.fill_factor(observations, rows, state, rest)
    return observations, rows, state, rest


def contributions(observations, state, features):
    """What features add to the predictors, and their squared standardised coefficients."""
    parts = [state.W[t, features] @ observations.design[features, a:b] for t, (a, b) in enumerate([(0, 4), (4, 9)])]
    return np.concatenate(parts), 2.0 * np.sum((state.W * np.exp(-state.log_scales))[:, features] ** 2)


def test_coefficients_follow_the_directions(problem):
    """Predictors are L v, and squares of standardised coefficients change as those of v do."""
    observations, rows, state, rest = problem
    features = rest.features[: rest.counts[0]]
    assert features.tolist() == [2, 3, 5, 6, 7, 8, 9, 10, 11]
    v = np.empty(9)
    gibbs_rest.whiten(observations, state, rest, v)
    before, square_before = contributions(observations, state, features)
    np.testing.assert_allclose(rest.moved, before, atol=1e-10)
    still = state.W[:, [0, 1, 4]].copy()
    moved = v + np.random.default_rng(2).standard_normal(9)
    gibbs_rest.move_rest(observations, rows, state, rest, moved)
    gibbs_rest.spread(observations, rest, moved)
    after, square_after = contributions(observations, state, features)
    np.testing.assert_allclose(after, rest.moved, atol=1e-10)
    assert square_after - square_before == pytest.approx(moved @ moved - v @ v, abs=1e-9)
    np.testing.assert_array_equal(state.W[:, [0, 1, 4]], still)
    assert state.W[1, 11] == 0.0


def test_slope_is_that_of_the_predictors(problem):
    observations, _, state, rest = problem
    v, slope, scores = np.empty(9), np.empty(9), np.random.default_rng(3).standard_normal(9)
    gibbs_rest.whiten(observations, state, rest, v)
    gibbs_rest.gather(observations, rest, scores, 0.7, slope)
    for d in range(9):
        step = np.eye(9)[d]
        gibbs_rest.spread(observations, rest, v + step)
        above = rest.moved.copy()
        gibbs_rest.spread(observations, rest, v - step)
        assert slope[d] == pytest.approx(0.35 * scores @ (above - rest.moved), abs=1e-10)


def test_factor_follows_the_global_scale(problem):
    observations, rows, state, rest = problem
    gibbs_rest.scale_factor(rest, np.exp(0.4))
    followed = np.tril(rest.factor[:4, :4])
    state.log_scales[:] += 0.4
    gibbs_rest.fill_factor(observations, rows, state, rest)
    np.testing.assert_allclose(np.tril(rest.factor[:4, :4]), followed, atol=1e-12)


def test_nothing_moves_where_all_features_are_active(problem):
    assert gibbs_rest.rest_for(problem[0], 12).factor.size == 0
