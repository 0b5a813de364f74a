"""Hamiltonian steps at q = 2: slopes, coordinates, variances, acceptance; active rows, and the others."""

import math

import numpy as np
import pytest

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families.augmentation import NORMAL, POLYA_GAMMA
from bayesmtfs.gibbs import block as gibbs_block
from bayesmtfs.gibbs import path as gibbs_path
from bayesmtfs.gibbs import state as gibbs_state
from bayesmtfs.gibbs import sweep as gibbs_sweep
from bayesmtfs.priors.hyperpriors import Hyperprior

PRIOR = Hyperprior(tail_shape=1.2, spike_shape=0.7, global_scale=0.8, intercept_scale=2.0)


def problem(labels=True, mean=0.3):
    """Twelve features of two tasks, three active, of which two lead; the second task lacks two of the features."""
    rng = np.random.default_rng(3)
    y = np.where(rng.random(9) < 0.5, 1.0, -1.0) if labels else rng.standard_normal(9)
    weight = rng.integers(1, 4, 9).astype(float)
    X = rng.standard_normal((9, 12))
    data = TaskData.from_long(X, y, tasks=np.repeat([0, 1], [4, 5]), sample_weight=weight)
    present = np.ones((2, 12), dtype=bool)
    present[1, [1, 7]] = False
    rows, prior_numbers = (
        gibbs_state.rows_of(data)._replace(present=present),
        gibbs_state.gibbs_prior(PRIOR, learn_q=False),
    )
    state = gibbs_state.GibbsState(
        W=np.where(present, rng.standard_normal((2, 12)), 0.0),
        mean=mean * rng.standard_normal(12),
        intercept=rng.standard_normal(2),
        noise=np.array([0.7, 1.2]),
        log_scales=rng.standard_normal(12),
        log_tau=np.array([-0.8]),
        inverse_q=np.array([0.5]),
        exponent_step=np.array([0.1]),
        widths=np.ones(12),
        information=np.linspace(2.0, -2.0, 12),
        mean_log_scales=np.zeros(12),
        mean_log_tau=np.zeros(1),
    )
    observations = gibbs_state.observations_of(data, 0.0, POLYA_GAMMA if labels else NORMAL)
    gibbs_state.fill_predictors(observations, rows, state, observations.predictors)
    block = gibbs_block.block_for(observations, rows, most_features=3)
    gibbs_block.choose_rows(observations, rows, prior_numbers, state, block)
    path = gibbs_path.path_for(observations, rows, block)
    path.leading[[0, 2, 5]] = 1  # the last is not active
    path.precisions[:] = 0.2
    gibbs_path.prepare_path(observations, rows, prior_numbers, state, block, path)
    gibbs_path.fill_variances(observations, rows, prior_numbers, state, block, path)
    gibbs_path.read_path(observations, rows, state, block, path)
    return observations, rows, prior_numbers, state, block, path


def density(parts):
    observations, _, prior_numbers, state, block, path = parts
    return gibbs_path.path_density(observations, prior_numbers, state, block, path)


@pytest.mark.parametrize("labels", [True, False])
def test_slope_is_the_derivative(labels):
    parts = problem(labels)
    path = parts[-1]
    moving = path.at.variance > 0.0
    path.at.position[moving] += 0.1 * np.random.default_rng(0).standard_normal(moving.sum())
    density(parts)
    slope, numeric = path.at.slope.copy(), np.zeros(len(moving))
    for d in np.flatnonzero(moving):
        ends = []
        for step in (1e-6, -1e-6):
            path.at.position[d] += step
            ends.append(density(parts))
            path.at.position[d] -= step
        numeric[d] = (ends[0] - ends[1]) / 2e-6
    assert moving.sum() > 9 + 2 + 2  # z, v of all observations, b, c and x
    np.testing.assert_allclose(slope[moving], numeric[moving], atol=2e-6)


@pytest.mark.parametrize("labels", [True, False])
def test_density_is_that_of_the_posterior(labels, log_posterior):
    """Two positions differ by the log-posterior of the states that they stand for, with the Jacobian of ``w / rho``."""
    values, wanted = [], []
    for shift in (0.0, 0.2):
        parts = problem(labels)
        observations, rows, _, state, block, path = parts
        path.at.position[path.at.variance > 0.0] += shift
        values.append(density(parts))
        gibbs_path.write_path(observations, rows, state, block, path)
        jacobian = float(np.sum(rows.present.sum(axis=0) * state.log_scales))
        wanted.append(log_posterior(observations, rows, state, 2.0, PRIOR) + jacobian)
    assert values[1] - values[0] == pytest.approx(wanted[1] - wanted[0], rel=1e-9)


def test_small_steps_are_accepted_and_keep_the_predictors():
    observations, rows, prior_numbers, state, block, path = problem()
    path.step_size.log_step = math.log(1e-3)
    rng, before = np.random.Generator(np.random.PCG64(0)), state.W.copy()
    rates = [gibbs_path.step_along_path(rng, observations, rows, prior_numbers, state, block, path) for _ in range(20)]
    assert min(rates) > 0.99 and np.all((state.W != before) == rows.present)
    predictors = np.empty(9)
    gibbs_state.fill_predictors(observations, rows, state, predictors)
    np.testing.assert_allclose(observations.predictors, predictors, atol=1e-9)


def test_variances_hang_on_nothing_that_a_path_changes():
    observations, rows, prior_numbers, state, block, path = problem()
    before = path.at.variance.copy()
    path.at.position[path.at.variance > 0.0] += 0.2
    gibbs_path.path_density(observations, prior_numbers, state, block, path)
    gibbs_path.write_path(observations, rows, state, block, path)
    gibbs_path.prepare_path(observations, rows, prior_numbers, state, block, path)
    gibbs_path.fill_variances(observations, rows, prior_numbers, state, block, path)
    np.testing.assert_allclose(path.at.variance, before, rtol=1e-9)


def test_rows_are_drawn_by_weight():
    observations, rows, prior_numbers, _, block, path = problem()
    path.relevance[:] = np.linspace(2.0, 0.0, 12)
    gibbs_path.weigh_rows(block, path)
    gibbs_path.choose_leading(block, path)
    assert path.leading.tolist() == [1] + [0] * 11  # only rows that are always active lead
    assert path.weights[0] == np.inf and np.all(np.diff(path.weights[1:]) < 0.0)
    path.weights[1:] = [8.0] + [1.0] * 10
    rng, counts = np.random.Generator(np.random.PCG64(0)), np.zeros(12)
    for _ in range(4000):
        gibbs_path.redraw_rows(rng, observations, rows, prior_numbers, block, path)
        counts += block.is_active
    share = 8 / 18 + 10 / 18 * 8 / 17  # the second row: drawn first, or after another
    assert counts[0] == 4000 and counts.sum() == 12_000
    assert counts[1] / 4000 == pytest.approx(share, abs=0.03)
    np.testing.assert_array_equal(block.design[:3], observations.design[block.features[:3]])


@pytest.mark.parametrize("rank", [3, 6])
def test_factor_of_a_matrix_that_may_lack_rank(rank):
    B = np.random.default_rng(0).standard_normal((6, rank))
    K = B @ B.T
    L = K.copy()
    gibbs_path._factorise_rest(L)
    L = np.tril(L)
    np.testing.assert_allclose(L @ L.T, K, atol=1e-12)
    assert np.count_nonzero(np.diag(L)) == rank and not L[:, np.diag(L) == 0.0].any()


@pytest.fixture
def rest_problem():
    """Twelve features of two tasks; two are active, one is too small, the second task lacks the last."""
    rng = np.random.default_rng(1)
    data = TaskData.from_long(rng.standard_normal((9, 12)), np.zeros(9), tasks=np.repeat([0, 1], [4, 5]))
    present = np.ones((2, 12), dtype=bool)
    present[1, 11] = False
    rows = gibbs_state.rows_of(data)._replace(present=present)
    prior_numbers = gibbs_state.gibbs_prior(Hyperprior(), learn_q=False)
    W = np.where(present, rng.standard_normal((2, 12)), 0.0)
    state = gibbs_state.state_around(rows, prior_numbers, W, np.zeros(2), np.ones(2), 2.0, rng)
    state.log_tau[0] = -3.0
    state.log_scales[4] = -3.0
    observations = gibbs_state.observations_of(data, 0.0, POLYA_GAMMA)
    rest = gibbs_path.rest_for(observations)
    gibbs_path.choose_rest(rows, prior_numbers, state, np.array([1, 1] + [0] * 10), rest)
    gibbs_path.fill_factor(observations, rows, state, rest)
    return observations, rows, state, rest


def contributions(observations, state, features):
    """What features add to the predictors, and their squared standardised coefficients."""
    parts = [state.W[t, features] @ observations.design[features, a:b] for t, (a, b) in enumerate([(0, 4), (4, 9)])]
    return np.concatenate(parts), 2.0 * np.sum((state.W * np.exp(-state.log_scales))[:, features] ** 2)


def test_coefficients_follow_the_directions(rest_problem):
    """Predictors are L v, and squares of standardised coefficients change as those of v do."""
    observations, rows, state, rest = rest_problem
    features = rest.features[: rest.size[0]]
    assert features.tolist() == [2, 3, 5, 6, 7, 8, 9, 10, 11]
    v = np.empty(9)
    gibbs_path.whiten(observations, state, rest, v)
    before, square_before = contributions(observations, state, features)
    np.testing.assert_allclose(rest.moved, before, atol=1e-10)
    still = state.W[:, [0, 1, 4]].copy()
    moved = v + np.random.default_rng(2).standard_normal(9)
    gibbs_path.move_rest(observations, rows, state, rest, moved)
    gibbs_path.spread(observations, rest, moved)
    after, square_after = contributions(observations, state, features)
    np.testing.assert_allclose(after, rest.moved, atol=1e-10)
    assert square_after - square_before == pytest.approx(moved @ moved - v @ v, abs=1e-9)
    np.testing.assert_array_equal(state.W[:, [0, 1, 4]], still)
    assert state.W[1, 11] == 0.0


def test_slope_is_that_of_the_predictors(rest_problem):
    observations, _, state, rest = rest_problem
    v, slope, scores = np.empty(9), np.empty(9), np.random.default_rng(3).standard_normal(9)
    gibbs_path.whiten(observations, state, rest, v)
    gibbs_path.gather(observations, rest, scores, 0.7, slope)
    for d in range(9):
        step = np.eye(9)[d]
        gibbs_path.spread(observations, rest, v + step)
        above = rest.moved.copy()
        gibbs_path.spread(observations, rest, v - step)
        assert slope[d] == pytest.approx(0.35 * scores @ (above - rest.moved), abs=1e-10)


def test_factor_follows_the_global_scale(rest_problem):
    observations, rows, state, rest = rest_problem
    gibbs_path.scale_factor(rest, np.exp(0.4))
    followed = np.tril(rest.factor[:4, :4])
    state.log_scales[:] += 0.4
    gibbs_path.fill_factor(observations, rows, state, rest)
    np.testing.assert_allclose(np.tril(rest.factor[:4, :4]), followed, atol=1e-12)


def test_nothing_moves_where_all_features_are_active(rest_problem):
    observations, rows, _, _ = rest_problem
    prior_numbers = gibbs_state.gibbs_prior(Hyperprior(), learn_q=False)
    for room, is_wide in ((12, False), (3, True)):
        block = gibbs_block.block_for(observations, rows, most_features=room)
        parts = gibbs_sweep.observed_parts_for(observations, rows, prior_numbers, 2.0, block)
        assert (parts.path is not None) == is_wide
