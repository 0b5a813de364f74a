"""Steps on the sizes of effects of labels, against quadrature."""

import numpy as np
import pytest

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families.augmentation import POLYA_GAMMA
from bayesmtfs.gibbs import block as gibbs_block
from bayesmtfs.gibbs import features as gibbs_features
from bayesmtfs.gibbs import state as gibbs_state
from bayesmtfs.priors.hyperpriors import Hyperprior

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
    observations = gibbs_state.observations_of(data, 0.0, POLYA_GAMMA)
    rows = gibbs_state.rows_of(data)._replace(present=present)
    state = gibbs_state.GibbsState(
        W=W.copy(),
        mean=mean,
        intercept=np.array([0.3, -0.2]),
        noise=np.ones(2),
        log_scales=np.array([0.1, -0.4]),
        log_tau=np.array([-0.3]),
        inverse_q=np.array([0.5]),
        exponent_step=np.array([0.1]),
        widths=np.ones(2),
        information=np.zeros(2),
        mean_log_scales=np.zeros(2),
        mean_log_tau=np.zeros(1),
    )
    gibbs_state.fill_predictors(observations, rows, state, observations.predictors)
    return observations, rows, gibbs_state.gibbs_prior(PRIOR, learn_q=False), state


@pytest.mark.parametrize("separated", [True, False])
@pytest.mark.parametrize("row", [0, None])
def test_sizes_against_quadrature(separated, row, log_posterior):
    """Of the first row, or of all rows with tau."""
    observations, rows, prior_numbers, state = problem(separated)
    prior_numbers = prior_numbers._replace(learn_global_scale=row is None)
    block = gibbs_block.block_for(observations, rows)
    if row is not None:
        block.sizes.rows, block.rows[0] = 1, row
    moving = np.arange(2) if row is None else np.array([row])
    start = state._replace(W=state.W.copy(), log_scales=state.log_scales.copy(), log_tau=state.log_tau.copy())
    rng, found = np.random.Generator(np.random.PCG64(1)), []
    for _ in range(20_000):
        gibbs_features.step_on_sizes(rng, observations, rows, prior_numbers, state, block)
        found.append(state.log_scales[0] - start.log_scales[0])

    def moved(shift):
        W, log_scales = start.W.copy(), start.log_scales.copy()
        W[:, moving] *= np.exp(shift)
        log_scales[moving] += shift
        return start._replace(W=W, log_scales=log_scales, log_tau=start.log_tau + shift * (row is None))

    for got, wanted in zip(state, moved(found[-1]), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-8)
    predictors = np.empty_like(observations.predictors)
    gibbs_state.fill_predictors(observations, rows, state, predictors)
    np.testing.assert_allclose(observations.predictors, predictors, atol=1e-8)

    grid = np.linspace(-9.0, 9.0, 1201)
    jacobian = rows.present[:, moving].sum() * grid  # of the coefficients
    values = jacobian + [log_posterior(observations, rows, moved(shift), 2.0, PRIOR) for shift in grid]
    density = np.exp(values - values.max())
    density /= density.sum()
    mean = density @ grid
    assert np.mean(found) == pytest.approx(mean, abs=0.05)
    assert np.std(found) == pytest.approx(np.sqrt(density @ (grid - mean) ** 2), rel=0.05)
