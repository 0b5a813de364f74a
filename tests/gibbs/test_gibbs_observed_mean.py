"""Joint draw of shared means by observation against its closed form."""

import numpy as np

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.gibbs import state as gibbs_state
from bayesmtfs.gibbs.observations import observations_of, working_for
from bayesmtfs.gibbs.observed_mean import MOST_FEATURES, step_on_means
from bayesmtfs.priors.hyperpriors import Hyperprior

MEAN_SCALE = 0.8


def problem(p, n=9, seed=3):
    """Two tasks, the second without the first feature; precisions and scores as they come."""
    rng = np.random.Generator(np.random.PCG64(seed))
    data = TaskData.from_long(rng.standard_normal((n, p)), np.zeros(n), tasks=np.arange(n) % 2)
    observations = observations_of(data, 0.0, labels=False)
    working = working_for(observations)
    working.precisions[:], working.scores[:] = rng.uniform(0.5, 2.0, n), rng.standard_normal(n)
    present = np.ones((2, p), dtype=bool)
    present[1, 0] = False
    law = gibbs_state.law_of(Hyperprior(mean_scale=MEAN_SCALE), learn_q=False)
    rows = gibbs_state.single_rows(present)
    state = gibbs_state.state_around(rows, law, np.zeros((2, p)), np.zeros(2), np.ones(2), 2.0, rng)
    state.mean[:] = rng.standard_normal(p)
    return rng, observations, working, rows, law, state


def test_means_are_normal_and_predictors_follow():
    rng, observations, working, rows, law, state = problem(p=3)
    X = np.where(rows.present[np.repeat([0, 1], np.diff(observations.offsets))], observations.design.T, 0.0)
    before, mean = working.scores.copy(), state.mean.copy()
    precision = X.T @ (working.precisions[:, np.newaxis] * X) + np.eye(3) / MEAN_SCALE**2
    centre = np.linalg.solve(precision, X.T @ (before + working.precisions * (X @ mean)))
    draws = np.empty((8_000, 3))
    for draw in draws:
        step_on_means(rng, observations, working, rows, law, state)
        draw[:] = state.mean
    standard = (draws - centre) @ np.linalg.cholesky(precision)
    np.testing.assert_allclose(standard.mean(axis=0), 0.0, atol=0.05)
    np.testing.assert_allclose(np.cov(standard.T), np.eye(3), atol=0.07)
    moved = X @ (state.mean - mean)
    np.testing.assert_allclose(working.predictors, moved, atol=1e-9)
    np.testing.assert_allclose(working.scores, before - working.precisions * moved, atol=1e-9)


def test_many_means_are_left_to_single_steps():
    rng, observations, working, rows, law, state = problem(p=MOST_FEATURES + 1)
    mean = state.mean.copy()
    step_on_means(rng, observations, working, rows, law, state)
    np.testing.assert_array_equal(state.mean, mean)
