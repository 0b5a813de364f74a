"""Joint-distribution test (Geweke 2004) of the sampler by observation: labels, and normal targets.

Parameters from the prior, against those of a chain that draws them given targets and new targets given them.
"""

import numpy as np
import pytest
from prior_draws import Parameters, draw_parameters, draw_targets
from scipy import stats
from scipy.special import expit

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families.augmentation import NORMAL, POLYA_GAMMA
from bayesmtfs.gibbs import block as gibbs_block
from bayesmtfs.gibbs import state as gibbs_state
from bayesmtfs.gibbs import sweep as gibbs_sweep
from bayesmtfs.priors.hyperpriors import Hyperprior

BATCHES = 40
LIGHT = {"tail_shape": 2.5, "spike_shape": 0.5, "noise_scale": 0.8, "intercept_scale": 1.5}
PRIORS = {
    "intercepts": Hyperprior(**LIGHT),
    "log_uniform": Hyperprior(kind="log_uniform", bounds=(0.1, 3.0), shared_noise=True, intercept_scale=1.0),
    "shared_mean": Hyperprior(mean_scale=0.7, **LIGHT),
    "no_intercept": Hyperprior(
        tail_shape=2.0, spike_shape=1.0, fit_intercept=False, learn_global_scale=False, scale_power=None
    ),
}


def bounded(one: Parameters):
    """Bounded functions of the parameters and of pairs of them."""
    logs = np.tanh(0.5 * np.log(np.concatenate([one.row_scales, one.noise, [one.global_scale]])))
    deviations = one.W - one.mean_coef[:, np.newaxis]
    standard = np.arctan(deviations / one.row_scales[:, np.newaxis]).ravel()
    sizes, intercept, mean = np.arctan(np.abs(one.W)).ravel(), np.tanh(one.intercept), np.arctan(one.mean_coef)
    shape = np.concatenate([[1.0, 1.0 / one.norm_q, logs[-1]], logs[:3], np.abs(standard), sizes]) / one.norm_q
    found = [
        logs,
        logs**2,
        logs * logs[-1],
        standard,
        standard**2,
        sizes,
        intercept,
        intercept**2,
        mean,
        mean**2,
        shape,
    ]
    if one.mean_coef.any():
        scales = np.tanh(0.5 * np.log([*one.mean_scales, one.mean_global_scale]))
        found += [scales, scales**2, scales * scales[-1], mean**2 * scales[:-1]]
    return np.concatenate(found)


def chain(prior, data, labels, norm_q, count, rng, wide):
    """Sweeps with two of three rows active, each followed by new targets."""
    one = draw_parameters(rng, prior, data.n_features, data.n_tasks, norm_q)
    rows, prior_numbers = gibbs_state.rows_of(data), gibbs_state.gibbs_prior(prior, norm_q is None, not labels)
    state = gibbs_state.GibbsState(
        W=np.ascontiguousarray(one.W.T - one.mean_coef),
        mean=one.mean_coef.copy(),
        intercept=one.intercept.copy(),
        noise=one.noise.copy(),
        log_scales=np.log(one.row_scales),
        log_tau=np.array([np.log(one.global_scale)]),
        inverse_q=np.array([1.0 / one.norm_q]),
        exponent_step=np.array([0.3]),
        widths=np.ones(3),
        information=np.array([1.0, 0.0, -1.0]),
        mean_log_scales=np.log(one.mean_scales),
        mean_log_tau=np.array([np.log(one.mean_global_scale)]),
    )
    observations = gibbs_state.observations_of(data, 0.0, POLYA_GAMMA if labels else NORMAL)
    space = gibbs_sweep.observed_space_for(observations, rows)
    block = gibbs_block.block_for(observations, rows, most_features=2)
    space, kept = space._replace(block=block), gibbs_sweep.kept_for(rows, 1)
    parts = gibbs_sweep.observed_parts_for(observations, rows, prior_numbers, norm_q or 2.0, block)
    if not wide and norm_q == 2.0:  # the third row never moves along a path
        parts = parts._replace(path=None, collapsed=block, free=block if labels else None)
    gibbs_block.choose_rows(observations, rows, prior_numbers, state, block)
    block.step_size.log_step = np.log(1.0)
    if parts.path is not None:
        parts.path.leading[:2], parts.path.weights[:] = 1, [3.0, 1.0, 1.0]  # a leading row is not always active
    if parts.exponent is not None:
        parts.exponent.carried.precisions[:] = 0.7  # any will do for labels, if they stay
    found = []
    for _ in range(count):
        one = Parameters(
            state.W.T + state.mean[:, np.newaxis],
            state.intercept.copy(),
            state.noise.copy(),
            np.exp(state.log_scales),
            float(np.exp(state.log_tau[0])),
            1.0 / state.inverse_q[0] if state.inverse_q[0] > 0.0 else np.inf,
            state.mean.copy(),
            np.exp(state.mean_log_scales),
            np.exp(state.mean_log_tau[0]),
        )
        found.append(bounded(one))
        observations.targets[:] = targets(rng, data, labels, one)
        gibbs_sweep.run_observed(rng, observations, rows, prior_numbers, state, space, kept, *parts, 0, 1, 0)
    return np.array(found)


def targets(rng, data, labels, one):
    if not labels:
        return draw_targets(rng, data, one)
    return np.where(rng.random(data.n_observations) < expit(data.linear_predictor(one.W, one.intercept)), 1.0, -1.0)


def smallest_p_value(name, labels, norm_q, count, seed, wide=True):
    """Of all functions, corrected for their number (Bonferroni)."""
    prior, rng = PRIORS[name], np.random.Generator(np.random.PCG64(seed))
    X = np.random.default_rng(5).standard_normal((6, 3)) + [0.0, 1.0, 0.0]
    data = TaskData.from_long(X, np.zeros(6), tasks=[0, 1, 1, 2, 2, 2])
    direct = np.array([bounded(_noiseless(draw_parameters(rng, prior, 3, 3, norm_q), labels)) for _ in range(count)])
    found = chain(prior, data, labels, norm_q, count, rng, wide)
    if labels:  # the noise has no part in it
        found[:, 3:6] = found[:, 10:13] = found[:, 17:20] = 0.0
        direct[:, 3:6] = direct[:, 10:13] = direct[:, 17:20] = 0.0
    means = found[: count // BATCHES * BATCHES].reshape(BATCHES, -1, found.shape[1]).mean(axis=1)
    variance = means.var(axis=0, ddof=1) / BATCHES + direct.var(axis=0, ddof=1) / count
    moving = variance > 1e-20
    z = (found.mean(axis=0) - direct.mean(axis=0))[moving] / np.sqrt(variance[moving])
    return float(np.min(2.0 * stats.t.sf(np.abs(z), BATCHES - 1)) * moving.sum())


def _noiseless(one: Parameters, labels):
    return one._replace(noise=np.ones_like(one.noise)) if labels else one


@pytest.mark.parametrize("labels", [True, False], ids=["labels", "normal"])
@pytest.mark.parametrize(
    ("name", "norm_q"),
    [
        ("intercepts", 2.0),
        ("log_uniform", 1.0),
        ("intercepts", np.inf),
        ("intercepts", None),
        ("shared_mean", None),
    ],
)
def test_sampler_keeps_the_joint_distribution(name, norm_q, labels):
    assert smallest_p_value(name, labels, norm_q, 3000, seed=1) > 1e-3


def test_few_features_keep_the_joint_distribution():
    assert smallest_p_value("intercepts", True, 2.0, 3000, seed=2, wide=False) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("labels", [True, False], ids=["labels", "normal"])
@pytest.mark.parametrize("norm_q", [1.0, 1.3, 2.0, 4.0, np.inf, None])
@pytest.mark.parametrize("name", PRIORS)
def test_sampler_keeps_the_joint_distribution_in_long_runs(name, norm_q, labels):
    assert smallest_p_value(name, labels, norm_q, 60_000, seed=3) > 1e-3
