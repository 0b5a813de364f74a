"""Sweeping features in and out of the covariance against inverses written out, and the joint draw."""

import numpy as np
import pytest

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.gibbs import block as gibbs_block
from bayesmtfs.gibbs import features as gibbs_features
from bayesmtfs.gibbs import state as gibbs_state
from bayesmtfs.gibbs.state import dual_ridge_start
from bayesmtfs.priors.hyperpriors import Hyperprior

RNG = np.random.default_rng(0)
X = RNG.standard_normal((9, 5))
A, H = X.T @ X, RNG.standard_normal(5)
PRECISIONS = np.array([1.0, 1e13, 2.0, 0.5, 3.0])


def swept_in():
    S, mean, v = np.zeros((5, 5)), np.zeros(5), np.zeros(5)
    for f in range(5):
        gibbs_features.sweep_in(A, H, S, mean, v, f, PRECISIONS[f])
    return S, mean, v


def test_sweeping_in_gives_the_inverse():
    S, mean, _ = swept_in()
    inverse = np.linalg.inv(A + np.diag(PRECISIONS))
    np.testing.assert_allclose(S, inverse, rtol=1e-9, atol=1e-25)
    np.testing.assert_allclose(mean, inverse @ H, rtol=1e-9)


def test_sweeping_out_gives_the_inverse_of_the_others():
    S, mean, v = swept_in()
    gibbs_features.sweep_out(S, mean, 1)
    gibbs_features.sweep_out(S, mean, 3)
    others = [0, 2, 4]
    inverse = np.linalg.inv((A + np.diag(PRECISIONS))[np.ix_(others, others)])
    np.testing.assert_allclose(S[np.ix_(others, others)], inverse, rtol=1e-9)
    a, g = gibbs_features.terms_without(A, H, S, mean, v, 3)
    assert a == pytest.approx(A[3, 3] - A[3, others] @ inverse @ A[others, 3], rel=1e-9)
    assert g == pytest.approx(H[3] - A[3, others] @ inverse @ H[others], rel=1e-9)


def test_joint_draw_of_coefficients_and_intercept():
    """Scales fixed by narrow bounds: coefficients and intercept have the normal posterior in closed form."""
    rng = np.random.default_rng(1)
    design, y = rng.standard_normal((4, 7)), rng.standard_normal(4)
    data = TaskData.from_long(design, y)
    prior = Hyperprior(kind="log_uniform", bounds=(0.999, 1.001), intercept_scale=2.0)
    prior_numbers, rows = gibbs_state.gibbs_prior(prior, learn_q=False), gibbs_state.rows_of(data)
    observations = gibbs_state.observations_of(data, 0.0)
    state = gibbs_state.state_around(
        rows, prior_numbers, dual_ridge_start(observations, rows), np.zeros(1), np.full(1, 0.5), 2.0, rng
    )
    block = gibbs_block.block_for(observations, rows)
    gibbs_block.choose_rows(observations, rows, prior_numbers, state, block)
    generator, found = np.random.Generator(np.random.PCG64(0)), []
    gibbs_state.fill_predictors(observations, rows, state, observations.predictors)
    gibbs_state.fill_scores(generator, observations, state)
    for _ in range(8000):
        gibbs_features.step_on_collapsed_scales(generator, observations, rows, prior_numbers, state, block)
        found.append([*state.W[0], state.intercept[0]])
    full = np.column_stack([design, np.ones(4)])
    covariance = np.linalg.inv(4.0 * full.T @ full + np.diag([2.0] * 7 + [0.25]))
    np.testing.assert_allclose(np.mean(found, axis=0), covariance @ full.T @ y * 4.0, atol=0.04)
    np.testing.assert_allclose(np.cov(np.transpose(found)), covariance, atol=0.06)
    residual = y - full @ [*state.W[0], state.intercept[0]]
    np.testing.assert_allclose(observations.scores, 4.0 * residual, atol=1e-8)
