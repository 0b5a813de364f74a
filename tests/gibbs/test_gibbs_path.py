"""Slopes, coordinates, variances and acceptance of the Hamiltonian steps at q = 2, and the choice of active rows."""

import math

import numpy as np
import pytest

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.gibbs import (
    block as gibbs_block,
)
from bayesmtfs.gibbs import (
    block_tuning as gibbs_block_tuning,
)
from bayesmtfs.gibbs import (
    observations as gibbs_observations,
)
from bayesmtfs.gibbs import (
    path as gibbs_path,
)
from bayesmtfs.gibbs import (
    path_tuning as gibbs_path_tuning,
)
from bayesmtfs.gibbs import (
    state as gibbs_state,
)
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
    rows, law = gibbs_state.rows_of(data)._replace(present=present), gibbs_state.law_of(PRIOR, learn_q=False)
    state = gibbs_state.State(
        W=np.where(present, rng.standard_normal((2, 12)), 0.0),
        mean=mean * rng.standard_normal(12),
        intercept=rng.standard_normal(2),
        noise=np.array([0.7, 1.2]),
        log_scales=rng.standard_normal(12),
        numbers=np.array([-0.8, 0.5, 0.1]),
        widths=np.ones(12),
        information=np.linspace(2.0, -2.0, 12),
    )
    observations = gibbs_observations.observations_of(data, 0.0, labels)
    working = gibbs_observations.working_for(observations)
    gibbs_observations.fill_predictors(observations, rows, state, working.predictors)
    block = gibbs_block.block_for(observations, rows, most_features=3)
    gibbs_block_tuning.choose_rows(observations, rows, law, state, block)
    path = gibbs_path.path_for(observations, rows, block)
    path.leading[[0, 2, 5]] = 1  # the last is not active
    path.precisions[:] = 0.2
    gibbs_path.prepare_path(observations, rows, law, state, block, path)
    gibbs_path.fill_variances(observations, rows, law, state, block, path)
    gibbs_path.read_path(observations, working, rows, state, block, path)
    return observations, working, rows, law, state, block, path


def density(parts):
    observations, _, _, law, state, block, path = parts
    return gibbs_path.path_density(observations, law, state, block, path, state.numbers[0])


@pytest.mark.parametrize("labels", [True, False])
def test_slope_is_the_derivative(labels):
    parts = problem(labels)
    path = parts[-1]
    moving = path.variance > 0.0
    path.position[moving] += 0.1 * np.random.default_rng(0).standard_normal(moving.sum())
    density(parts)
    slope, numeric = path.slope.copy(), np.zeros(len(moving))
    for d in np.flatnonzero(moving):
        ends = []
        for step in (1e-6, -1e-6):
            path.position[d] += step
            ends.append(density(parts))
            path.position[d] -= step
        numeric[d] = (ends[0] - ends[1]) / 2e-6
    assert moving.sum() > 9 + 2 + 2  # z, v of all observations, b, c and x
    np.testing.assert_allclose(slope[moving], numeric[moving], atol=2e-6)


@pytest.mark.parametrize("labels", [True, False])
def test_density_is_that_of_the_posterior(labels, log_posterior):
    """Two positions differ by the log-posterior of the states that they stand for, with the Jacobian of ``w / rho``."""
    values, wanted = [], []
    for shift in (0.0, 0.2):
        parts = problem(labels)
        observations, working, rows, _, state, block, path = parts
        path.position[path.variance > 0.0] += shift
        values.append(density(parts))
        gibbs_path.write_path(observations, working, rows, state, block, path)
        jacobian = float(np.sum(rows.present.sum(axis=0) * state.log_scales))
        wanted.append(log_posterior(observations, rows, state, 2.0, PRIOR) + jacobian)
    assert values[1] - values[0] == pytest.approx(wanted[1] - wanted[0], rel=1e-9)


def test_small_steps_are_accepted_and_keep_the_predictors():
    observations, working, rows, law, state, block, path = problem()
    path.numbers[gibbs_block.LOG_STEP] = math.log(1e-3)
    rng, before = np.random.Generator(np.random.PCG64(0)), state.W.copy()
    rates = [gibbs_path.step_along_path(rng, observations, working, rows, law, state, block, path) for _ in range(20)]
    assert min(rates) > 0.99 and np.all((state.W != before) == rows.present)
    predictors = np.empty(9)
    gibbs_observations.fill_predictors(observations, rows, state, predictors)
    np.testing.assert_allclose(working.predictors, predictors, atol=1e-9)


def test_variances_hang_on_nothing_that_a_path_changes():
    observations, working, rows, law, state, block, path = problem()
    before = path.variance.copy()
    path.position[path.variance > 0.0] += 0.2
    gibbs_path.path_density(observations, law, state, block, path, state.numbers[0])
    gibbs_path.write_path(observations, working, rows, state, block, path)
    gibbs_path.prepare_path(observations, rows, law, state, block, path)
    gibbs_path.fill_variances(observations, rows, law, state, block, path)
    np.testing.assert_allclose(path.variance, before, rtol=1e-9)


def test_rows_are_drawn_by_weight():
    observations, _, rows, law, _, block, path = problem()
    path.relevance[:] = np.linspace(2.0, 0.0, 12)
    gibbs_path_tuning.weigh_rows(block, path)
    gibbs_path_tuning.choose_leading(block, path)
    assert path.leading.tolist() == [1] + [0] * 11  # only rows that are always active lead
    assert path.weights[0] == np.inf and np.all(np.diff(path.weights[1:]) < 0.0)
    path.weights[1:] = [8.0] + [1.0] * 10
    rng, counts = np.random.Generator(np.random.PCG64(0)), np.zeros(12)
    for _ in range(4000):
        gibbs_path_tuning.redraw_rows(rng, observations, rows, law, block, path)
        counts += block.is_active
    share = 8 / 18 + 10 / 18 * 8 / 17  # the second row: drawn first, or after another
    assert counts[0] == 4000 and counts.sum() == 12_000
    assert counts[1] / 4000 == pytest.approx(share, abs=0.03)
    np.testing.assert_array_equal(block.design[:3], observations.design[block.features[:3]])
