"""Features that say the same."""

import numpy as np
import pytest

from bayesmtfs.data.simulation import simulate_tasks
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.gibbs import state as gibbs_state
from bayesmtfs.gibbs.chain import ChainSettings, sample_chain
from bayesmtfs.gibbs.pairs import alike
from bayesmtfs.priors.hyperpriors import hyperprior_for


@pytest.fixture(scope="module")
def coded():
    """A yes-or-no feature in two columns, beside others."""
    sim = simulate_tasks(n_tasks=12, n_features=3, n_samples=30, n_relevant=2, snr=4.0, random_state=0)
    yes = (np.random.default_rng(0).random(len(sim.y)) < 0.5).astype(float)
    y = sim.y + 1.5 * np.std(sim.y) * yes
    return TaskData.from_long(np.column_stack([yes, sim.X, 1.0 - yes]), y, tasks=sim.tasks)


def test_pairs_are_found(coded):
    rows = gibbs_state.rows_of(coded)
    sums = gibbs_state.sums_of(coded, 0.0)
    np.testing.assert_array_equal(alike(sums, rows), [[0, 4, -1]])
    grouped = gibbs_state.rows_of(TaskData.from_long(coded.X, coded.y, tasks=coded.task, groups=[0, 1, 2, 3, 3]))
    assert len(alike(sums, grouped)) == 0


@pytest.mark.parametrize("norm_q", [2.0, 4.0, np.inf, None])
def test_either_column_may_carry_the_effect(coded, norm_q):
    """The posterior is the same after the columns are exchanged, and a chain goes between both halves."""
    settings = ChainSettings(draws=1500, tune=300, norm_q=norm_q, random_seed=1)
    draws = sample_chain(coded, hyperprior_for(coded, scale_power=2.0), settings)
    scales = np.log(draws.row_scales)
    assert np.mean(scales[:, 0] > scales[:, 4]) == pytest.approx(0.5, abs=0.1)
    effect = draws.W[:, 0] - draws.W[:, 4]
    np.testing.assert_allclose(effect.mean(axis=0).mean(), 1.5 * np.std(coded.y), rtol=0.5)
    half = draws.W[:, 0].mean(axis=0), -draws.W[:, 4].mean(axis=0)
    np.testing.assert_allclose(half[0], half[1], atol=0.25 * np.abs(effect).mean())
