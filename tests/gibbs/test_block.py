"""Slopes, coordinates and acceptance of the Hamiltonian steps."""

import math

import numpy as np
import pytest

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families.augmentation import NORMAL, POLYA_GAMMA
from bayesmtfs.gibbs import block as gibbs_block
from bayesmtfs.gibbs import state as gibbs_state
from bayesmtfs.priors.hyperpriors import Hyperprior

PRIOR = Hyperprior(tail_shape=1.2, spike_shape=0.7, global_scale=0.8, intercept_scale=2.0)
PRESENT = np.array([[True, True, True, True, True], [True, False, True, True, True]])


def problem(labels, norm_q, groups=None):
    """Five features of two tasks, three of which are active; the second task lacks the second feature."""
    rng = np.random.default_rng(3)
    y = np.where(rng.random(14) < 0.5, 1.0, -1.0) if labels else rng.standard_normal(14)
    weight = rng.integers(1, 4, 14).astype(float)
    X = rng.standard_normal((14, 5))
    data = TaskData.from_long(X, y, tasks=np.repeat([0, 1], [6, 8]), sample_weight=weight, groups=groups)
    observations = gibbs_state.observations_of(data, 0.0, POLYA_GAMMA if labels else NORMAL)
    rows, prior_numbers = gibbs_state.rows_of(data), gibbs_state.gibbs_prior(PRIOR, learn_q=False)
    rows = rows._replace(present=PRESENT)
    R = len(rows.sizes)
    state = gibbs_state.GibbsState(
        W=np.where(PRESENT, rng.standard_normal((2, 5)), 0.0),
        mean=0.3 * rng.standard_normal(5),
        intercept=rng.standard_normal(2),
        noise=np.array([0.7, 1.2]),
        log_scales=rng.standard_normal(R),
        log_tau=np.array([0.3]),
        inverse_q=np.array([1.0 / norm_q]),
        exponent_step=np.array([0.1]),
        widths=np.ones(R),
        information=np.linspace(1.0, -1.0, R),
        mean_log_scales=np.zeros(5),
        mean_log_tau=np.zeros(1),
    )
    gibbs_state.fill_predictors(observations, rows, state, observations.predictors)
    block = gibbs_block.block_for(observations, rows, most_features=3)
    gibbs_block.choose_rows(observations, rows, prior_numbers, state, block)
    return observations, rows, prior_numbers, state, block


@pytest.mark.parametrize("labels", [True, False])
@pytest.mark.parametrize(("norm_q", "groups"), [(2.0, None), (1.5, None), (np.inf, None), (4.0, [0, 0, 1, 2, 2])])
def test_slope_is_the_derivative(labels, norm_q, groups):
    observations, rows, prior_numbers, state, block = problem(labels, norm_q, groups)
    gibbs_block.read_state(observations, rows, state, block)
    size = gibbs_block.n_coordinates(block, 2)
    block.at.position[:size] += 0.1 * np.random.default_rng(0).standard_normal(size) * (block.at.variance[:size] > 0)

    def value():
        return gibbs_block.block_density(observations, rows, prior_numbers, state, block)

    value()
    slope, numeric = block.at.slope[:size].copy(), np.zeros(size)
    for d in np.flatnonzero(block.at.variance[:size]):
        ends = []
        for step in (1e-6, -1e-6):
            block.at.position[d] += step
            ends.append(value())
            block.at.position[d] -= step
        numeric[d] = (ends[0] - ends[1]) / 2e-6
    np.testing.assert_allclose(slope[block.at.variance[:size] > 0], numeric[block.at.variance[:size] > 0], atol=1e-6)


@pytest.mark.parametrize("labels", [True, False])
def test_density_is_that_of_the_posterior(labels, log_posterior):
    """Two positions differ by the log-posterior of the states that they stand for, with the Jacobian of ``w / rho``."""
    observations, rows, prior_numbers, state, block = problem(labels, 2.0)
    gibbs_block.read_state(observations, rows, state, block)
    values, wanted = [], []
    size = gibbs_block.n_coordinates(block, 2)
    start = block.at.position[:size].copy()
    for shift in (0.0, 0.2):
        block.at.position[:size] = start + shift * (block.at.variance[:size] > 0)
        values.append(gibbs_block.block_density(observations, rows, prior_numbers, state, block))
        moved = state._replace(W=state.W.copy(), log_scales=state.log_scales.copy(), log_tau=state.log_tau.copy())
        moved = moved._replace(intercept=state.intercept.copy())
        gibbs_block.write_state(observations, rows, moved, block, 2)
        jacobian = float(np.sum(rows.sizes * 0.0 + rows.present.sum(axis=0) * moved.log_scales))
        wanted.append(log_posterior(observations, rows, moved, 2.0, PRIOR) + jacobian)
    assert values[1] - values[0] == pytest.approx(wanted[1] - wanted[0], rel=1e-9)


def test_small_steps_are_accepted_and_keep_the_predictors():
    observations, rows, prior_numbers, state, block = problem(True, 2.0)
    block.step_size.log_step = math.log(1e-3)
    rng, before = np.random.Generator(np.random.PCG64(0)), state.W.copy()
    rates = [gibbs_block.step_on_block(rng, observations, rows, prior_numbers, state, block) for _ in range(20)]
    assert min(rates) > 0.99 and np.all((state.W != before) == PRESENT)
    predictors = np.empty(14)
    gibbs_state.fill_predictors(observations, rows, state, predictors)
    np.testing.assert_allclose(observations.predictors, predictors, atol=1e-10)
