"""Steps on active rows: what the likelihood carries along fits the state, and every coefficient moves that may."""

import numpy as np
import pytest

from bayesmtfs.data.simulation import simulate_tasks
from bayesmtfs.gibbs import (
    active as gibbs_active,
)
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
    state as gibbs_state,
)
from bayesmtfs.gibbs.observed_start import dual_ridge_start, first_observed_state
from bayesmtfs.priors.hyperpriors import hyperprior_for


@pytest.mark.parametrize("labels", [True, False])
def test_predictors_and_scores_follow_the_state(labels):
    kind = "classification" if labels else "regression"
    data = simulate_tasks(n_tasks=2, n_features=20, n_samples=[6, 9], n_relevant=2, kind=kind, random_state=0).data
    prior = hyperprior_for(data, "logistic" if labels else "squared")
    rows, law = gibbs_state.rows_of(data), gibbs_state.law_of(prior, learn_q=False)
    observations = gibbs_observations.observations_of(data, 0.0, labels)
    rng = np.random.Generator(np.random.PCG64(0))
    state = first_observed_state(observations, rows, law, dual_ridge_start(observations, rows), 2.0, rng)
    working = gibbs_observations.working_for(observations)
    block = gibbs_block.block_for(observations, rows, most_features=5)
    path = gibbs_path.path_for(observations, rows, block)
    gibbs_block_tuning.choose_rows(observations, rows, law, state, block)
    path.numbers[gibbs_block.LOG_STEP] = np.log(0.05)
    gibbs_observations.fill_predictors(observations, rows, state, working.predictors)
    before, drawn = state.W.copy(), np.zeros(20)
    for number in range(30):
        gibbs_active.step_on_active_rows(
            rng, observations, working, rows, law, state, block, path, number + 1 if number < 10 else 0, 10
        )
        drawn += block.is_active
    assert np.count_nonzero(drawn) > 5 and drawn.sum() == 30 * 5  # by chance, others are active now and then
    np.testing.assert_array_equal(state.W != before, np.tile(labels | (drawn > 0), (2, 1)))
    predictors = np.empty(15)
    gibbs_observations.fill_predictors(observations, rows, state, predictors)
    np.testing.assert_allclose(working.predictors, predictors, atol=1e-9)
    pull = 0.5 * observations.targets if labels else working.precisions * observations.targets
    np.testing.assert_allclose(working.scores, pull - working.precisions * predictors, atol=1e-8)
