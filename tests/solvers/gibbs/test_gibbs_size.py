"""Steps on the size of all effects of labels, against quadrature."""

import numpy as np
import pytest

from bayesmtfs.priors.hyperpriors import Hyperprior
from bayesmtfs.solvers.gibbs import gibbs_observations, gibbs_size, gibbs_state
from bayesmtfs.tasks import TaskData

PRIOR = Hyperprior(global_scale=0.5, mean_scale=1.0)


def problem(separated):
    """Two tasks of two features with a shared mean; the second task lacks the second feature."""
    rng = np.random.default_rng(4)
    X, tasks = rng.standard_normal((12, 2)), np.repeat([0, 1], [5, 7])
    W, mean = np.array([[1.0, -0.5], [0.7, 0.0]]), np.array([0.2, -0.1])
    present = np.array([[True, True], [True, False]])
    eta = np.sum(X * np.where(present, W + mean, 0.0)[tasks], axis=1) + np.array([0.3, -0.2])[tasks]
    y = np.where(eta > 0.0, 1.0, -1.0) * (1.0 if separated else rng.choice([1.0, -1.0], 12))
    data = TaskData.from_long(X, y, tasks=tasks, sample_weight=rng.integers(1, 3, 12).astype(float))
    observations = gibbs_observations.observations_of(data, 0.0, labels=True)
    rows = gibbs_state.rows_of(data)._replace(present=present)
    state = gibbs_state.State(
        W=W.copy(),
        mean=mean,
        intercept=np.array([0.3, -0.2]),
        noise=np.ones(2),
        log_scales=np.array([0.1, -0.4]),
        numbers=np.array([-0.3, 0.5, 0.1]),
        widths=np.ones(2),
        information=np.zeros(2),
    )
    working = gibbs_observations.working_for(observations)
    gibbs_observations.fill_predictors(observations, rows, state, working.predictors)
    return observations, working, rows, gibbs_state.law_of(PRIOR, learn_q=False), state


@pytest.mark.parametrize("separated", [True, False])
def test_sizes_against_quadrature(separated, log_posterior):
    observations, working, rows, law, state = problem(separated)
    rng, start = np.random.Generator(np.random.PCG64(1)), state._replace(W=state.W.copy())
    scales, tau = state.log_scales.copy(), state.numbers[0]
    found = []
    for _ in range(20_000):
        gibbs_size.step_on_size(rng, observations, working, rows, law, state)
        found.append(state.numbers[0])
    np.testing.assert_allclose(state.W, np.exp(found[-1] - tau) * start.W, rtol=1e-8)
    np.testing.assert_allclose(state.log_scales, scales + found[-1] - tau, atol=1e-9)
    predictors = np.empty_like(working.predictors)
    gibbs_observations.fill_predictors(observations, rows, state, predictors)
    np.testing.assert_allclose(working.predictors, predictors, atol=1e-8)

    grid = np.linspace(-7.0, 5.0, 1201)
    values = []
    for x in grid:
        moved = start._replace(
            W=np.exp(x - tau) * start.W, log_scales=scales + x - tau, numbers=np.array([x, 0.5, 0.1])
        )
        jacobian = 3.0 * x  # of the three coefficients; ln rho moves with ln tau
        values.append(log_posterior(observations, rows, moved, 2.0, PRIOR) + jacobian)
    density = np.exp(np.array(values) - max(values))
    density /= density.sum()
    mean = density @ grid
    assert np.mean(found) == pytest.approx(mean, abs=0.04)
    assert np.std(found) == pytest.approx(np.sqrt(density @ (grid - mean) ** 2), rel=0.04)
