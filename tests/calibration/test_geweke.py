"""Joint-distribution test of the Gibbs sampler (Geweke 2004, Journal of the American Statistical Association 99:799).

Parameters from the prior, against parameters of a chain that draws them given targets and new targets given them: both
have the prior as their distribution if, and only if, every step of the sampler is right.
"""

import numpy as np
import pytest
from prior_draws import Parameters, draw_parameters, draw_targets
from scipy import stats

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.gibbs import state as gibbs_state
from bayesmtfs.gibbs import sweep as gibbs_sweep
from bayesmtfs.priors.hyperpriors import Hyperprior

BATCHES = 40
PAIRS = np.array([[0, 1, -1], [1, 2, 1]])  # the steps are exact for any two features
# Large coefficients make large targets, which hold them fast; light tails of the scales let the joint chain move.
PRIORS = {
    "intercepts": Hyperprior(
        tail_shape=2.5, spike_shape=0.5, intercept_centre=0.7, intercept_scale=1.5, noise_scale=0.8
    ),
    "log_uniform": Hyperprior(kind="log_uniform", bounds=(0.1, 3.0), shared_noise=True, intercept_scale=1.0),
    "shapes": Hyperprior(tail_shape=1.5, spike_shape=0.7, scale_power=2.0, learn_global_scale=False),
    "shared_mean": Hyperprior(tail_shape=2.5, spike_shape=0.5, noise_scale=0.8, intercept_scale=1.5, mean_scale=0.7),
    "no_intercept": Hyperprior(tail_shape=2.0, spike_shape=1.0, fit_intercept=False, norm_q_bounds=(0.8, 20.0)),
}


def design(groups=None):
    rng = np.random.default_rng(5)
    X = rng.standard_normal((6, 3)) + [0.0, 1.0, 0.0]
    return TaskData.from_long(X, np.zeros(6), tasks=[0, 1, 1, 2, 2, 2], groups=groups)


def statistics(one: Parameters):
    """Bounded functions: the prior of the scales has tails that a chain visits rarely."""
    scales, noise = np.tanh(0.5 * np.log(one.row_scales)), np.tanh(np.log(one.noise))
    numbers = np.concatenate([scales, noise, [np.tanh(0.5 * np.log(one.global_scale)), 1.0 / one.norm_q]])
    W = np.arctan((one.W - one.mean_coef[:, np.newaxis]) / one.row_scales[:, np.newaxis]).ravel()
    intercept = np.tanh(0.5 * one.intercept)
    pairs = [scales[0] * noise[0], scales[0] * numbers[-2], scales[1] / one.norm_q, scales[2] * abs(intercept[0])]
    sizes, mean = np.arctan(np.abs(one.W)).ravel(), np.arctan(one.mean_coef)
    means = [mean, mean**2, mean * scales, mean * one.W.mean(axis=1) / (1.0 + one.row_scales)]
    if one.mean_coef.any():
        mean_scales = np.tanh(0.5 * np.log([*one.mean_scales, one.mean_global_scale]))
        means += [mean_scales, mean_scales**2, mean_scales * mean_scales[-1], mean**2 * mean_scales[:-1]]
    means = np.concatenate(means)
    return np.concatenate([numbers, numbers**2, W, np.abs(W), sizes, intercept, intercept**2, pairs, means])


def from_prior(prior, data, norm_q, count, rng):
    draws = [draw_parameters(rng, prior, data.n_features, data.n_tasks, norm_q) for _ in range(count)]
    return np.array([statistics(_grouped(one, data, rng)) for one in draws])


def _grouped(one: Parameters, data, rng):
    """Features of one group have the scale of the first."""
    if data.groups is None:
        return one
    _, first, row = np.unique(data.groups, return_index=True, return_inverse=True)
    scales = one.row_scales[first][row]
    mean = one.mean_coef[:, np.newaxis]
    return one._replace(row_scales=scales, W=mean + (one.W - mean) * (scales / one.row_scales)[:, np.newaxis])


def from_chain(prior, data, norm_q, count, rng):
    start = _grouped(draw_parameters(rng, prior, data.n_features, data.n_tasks, norm_q), data, rng)
    rows, prior_numbers = gibbs_state.rows_of(data), gibbs_state.gibbs_prior(prior, norm_q is None)
    parts = gibbs_sweep.parts_for(rows, prior_numbers, norm_q or 2.0, PAIRS if data.groups is None else None)
    centre = prior.intercept_centre if prior.fit_intercept else 0.0
    first = np.unique(rows.row_of_feature, return_index=True)[1]
    state = gibbs_state.GibbsState(
        W=(start.W.T - start.mean_coef).copy(),
        mean=start.mean_coef.copy(),
        intercept=start.intercept - centre,
        noise=start.noise,
        log_scales=np.log(start.row_scales[first]),
        log_tau=np.array([np.log(start.global_scale)]),
        inverse_q=np.array([1.0 / start.norm_q]),
        exponent_step=np.array([0.1]),
        widths=np.ones(len(first)),
        information=np.array([1.0, -1.0, 1.0])[: len(first)],  # a row of each kind
        mean_log_scales=np.log(start.mean_scales),
        mean_log_tau=np.array([np.log(start.mean_global_scale)]),
    )
    space, kept = None, gibbs_sweep.kept_for(rows, 1)
    found = []
    for _ in range(count):
        one = Parameters(
            W=state.W.T + state.mean[:, np.newaxis],
            intercept=state.intercept + centre,
            noise=state.noise.copy(),
            row_scales=np.exp(state.log_scales)[rows.row_of_feature],
            global_scale=np.exp(state.log_tau[0]),
            norm_q=1.0 / state.inverse_q[0] if state.inverse_q[0] > 0 else np.inf,
            mean_coef=state.mean.copy(),
            mean_scales=np.exp(state.mean_log_scales),
            mean_global_scale=np.exp(state.mean_log_tau[0]),
        )
        found.append(statistics(one))
        sums = gibbs_state.sums_of(data.with_target(draw_targets(rng, data, one)), centre)
        space = gibbs_state.space_for(sums) if space is None else space
        gibbs_sweep.run(rng, sums, rows, prior_numbers, state, space, kept, *parts, 0, 1, 0)
    return np.array(found)


def largest_discrepancy(prior, norm_q, count, seed, groups=None):
    """Smallest p-value of all statistics, corrected for their number (Bonferroni)."""
    rng, data = np.random.Generator(np.random.PCG64(seed)), design(groups)
    direct, chain = from_prior(prior, data, norm_q, count, rng), from_chain(prior, data, norm_q, count, rng)
    batches = chain[: count // BATCHES * BATCHES].reshape(BATCHES, -1, chain.shape[1]).mean(axis=1)
    variance = batches.var(axis=0, ddof=1) / BATCHES + direct.var(axis=0, ddof=1) / count
    moving = variance > 1e-20
    z = (chain.mean(axis=0) - direct.mean(axis=0))[moving] / np.sqrt(variance[moving])
    return float(np.min(2.0 * stats.t.sf(np.abs(z), BATCHES - 1)) * moving.sum())


@pytest.mark.parametrize(
    ("name", "norm_q"),
    [
        ("intercepts", None),
        ("log_uniform", None),
        ("intercepts", 2.0),
        ("no_intercept", 4.0),
        ("shared_mean", None),
        ("intercepts", np.inf),
        ("no_intercept", 1.0),
    ],
)
def test_sampler_keeps_the_joint_distribution(name, norm_q):
    assert largest_discrepancy(PRIORS[name], norm_q, 3000, seed=1) > 1e-3


@pytest.mark.parametrize(
    ("name", "norm_q"),
    [("intercepts", None), ("intercepts", 2.0), pytest.param("shared_mean", 1.3, marks=pytest.mark.slow)],
)
def test_groups_share_a_scale(name, norm_q):
    assert largest_discrepancy(PRIORS[name], norm_q, 3000, seed=2, groups=[0, 1, 0]) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("name", PRIORS)
@pytest.mark.parametrize("norm_q", [1.0, 1.3, 2.0, 4.0, np.inf, None])
def test_sampler_keeps_the_joint_distribution_in_long_runs(name, norm_q):
    assert largest_discrepancy(PRIORS[name], norm_q, 60_000, seed=3) > 1e-3
