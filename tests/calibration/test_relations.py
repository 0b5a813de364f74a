"""The sampler of related tasks keeps the joint distribution, is calibrated, and has the posterior that NUTS has."""

import calibration
import numpy as np
import pytest
from arviz_stats.base import array_stats
from prior_draws import Parameters, draw_parameters, draw_targets
from scipy import stats
from scipy.special import expit

import bayesmtfs as bm
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families.augmentation import POLYA_GAMMA
from bayesmtfs.gibbs import relations as related
from bayesmtfs.gibbs import state as gibbs_state
from bayesmtfs.gibbs.chain import ChainSettings
from bayesmtfs.gibbs.sweep import kept_for
from bayesmtfs.priors.hyperpriors import Hyperprior, hyperprior_for

BATCHES = 40
ETA = 1.5
LIGHT = {"tail_shape": 2.5, "spike_shape": 0.5, "noise_scale": 0.8, "intercept_scale": 1.5}
PRIORS = {
    "intercepts": Hyperprior(**LIGHT),
    "log_uniform": Hyperprior(kind="log_uniform", bounds=(0.1, 3.0), shared_noise=True, intercept_scale=1.0),
    "no_intercept": Hyperprior(tail_shape=2.0, spike_shape=1.0, fit_intercept=False, learn_global_scale=False),
}


def draw_correlations(rng, m):
    """LKJ by the onion (Lewandowski, Kurowicka and Joe 2009, section 3.2), and its factor."""
    L = np.eye(m)
    for k in range(1, m):
        square = rng.beta(0.5 * k, ETA + 0.5 * (m - 1 - k))
        direction = rng.standard_normal(k)
        L[k, :k] = np.sqrt(square) * direction / np.linalg.norm(direction)
        L[k, k] = np.sqrt(1.0 - square)
    return L @ L.T, L


def draw_related(rng, prior, groups, m):
    """Parameters from the prior, one scale for each group, and R."""
    one, (R, L) = draw_parameters(rng, prior, int(groups.max()) + 1, m, 2.0), draw_correlations(rng, m)
    standard = np.sqrt(0.5) * rng.standard_normal((len(groups), m)) @ L.T
    return one._replace(W=one.row_scales[groups][:, np.newaxis] * standard), R


def bounded(one, R, groups, labels):
    """Bounded functions of the parameters and of pairs of them."""
    logs = np.tanh(0.5 * np.log(np.concatenate([one.row_scales, [] if labels else one.noise, [one.global_scale]])))
    standard = np.arctan(one.W / one.row_scales[groups][:, np.newaxis])
    pairs = R[np.tril_indices(len(R), -1)]
    together = np.einsum("is,it->st", standard, standard)[np.tril_indices(len(R), -1)]
    b = np.tanh(one.intercept)
    parts = [logs, logs**2, logs * logs[-1], standard.ravel(), standard.ravel() ** 2, np.arctan(np.abs(one.W)).ravel()]
    return np.concatenate([*parts, b, b**2, pairs, pairs**2, pairs * logs[0], together, together * pairs])


def chain(prior, data, groups, labels, count, rng):
    """Sweeps, each followed by new targets."""
    (one, R), m = draw_related(rng, prior, groups, data.n_tasks), data.n_tasks
    rows, numbers = gibbs_state.rows_of(data), gibbs_state.gibbs_prior(prior, False, not labels)
    noise = np.ones(m) if labels else one.noise.copy()
    nothing = (np.zeros(len(groups)), one.intercept.copy(), noise, np.log(one.row_scales))
    state = gibbs_state.new_state(np.ascontiguousarray(one.W.T), *nothing, np.log(one.global_scale), 2.0)
    shape = (m, len(groups))
    relations, space = related.relations_for(*shape, ETA), gibbs_state.space_for(gibbs_state.sums_of(data, 0.0))
    relations.R[:] = R
    observed = gibbs_state.observations_of(data, 0.0, POLYA_GAMMA) if labels else None
    left = related.InterceptSums(np.zeros(shape), np.zeros(m), np.zeros(m)) if labels else None
    kept, correlations, found = kept_for(rows, 1), np.empty((1, m, m)), []
    for _ in range(count):
        one = Parameters(
            *(state.W.T.copy(), state.intercept.copy(), state.noise.copy(), np.exp(state.log_scales)),
            *(float(np.exp(state.log_tau[0])), 2.0, state.mean, one.mean_scales, 1.0),
        )
        found.append(bounded(one, relations.R, groups, labels))
        sums = None
        if labels:
            chance = expit(data.linear_predictor(one.W, one.intercept))
            observed.targets[:] = np.where(rng.random(data.n_observations) < chance, 1.0, -1.0)
        else:
            sums = gibbs_state.sums_of(data.with_target(draw_targets(rng, data, one)), 0.0)
        related.run_related(
            rng, sums, observed, left, rows, numbers, state, space, relations, kept, correlations, 0, 1, 0
        )
    return np.array(found)


def smallest_p_value(name, labels, grouped, count, seed):
    """Of all functions, corrected for their number (Bonferroni)."""
    prior, rng = PRIORS[name], np.random.Generator(np.random.PCG64(seed))
    groups = np.array([0, 0, 1]) if grouped else np.arange(3)
    X = np.random.default_rng(5).standard_normal((9, 3)) + [0.0, 1.0, 0.0]
    data = TaskData.from_long(X, np.zeros(9), tasks=[0, 1, 1, 2, 2, 2, 3, 3, 3])
    if grouped:
        data = bm.TaskData.from_long(X, np.zeros(9), tasks=data.task, groups=groups)
    direct = np.array([bounded(*draw_related(rng, prior, groups, 4), groups, labels) for _ in range(count)])
    found = chain(prior, data, groups, labels, count, rng)
    means = found[: count // BATCHES * BATCHES].reshape(BATCHES, -1, found.shape[1]).mean(axis=1)
    variance = means.var(axis=0, ddof=1) / BATCHES + direct.var(axis=0, ddof=1) / count
    moving = variance > 1e-20
    z = (found.mean(axis=0) - direct.mean(axis=0))[moving] / np.sqrt(variance[moving])
    return float(np.min(2.0 * stats.t.sf(np.abs(z), BATCHES - 1)) * moving.sum())


@pytest.mark.parametrize(("labels", "grouped"), [(False, False), (False, True), (True, False)])
def test_sampler_keeps_the_joint_distribution(labels, grouped):
    assert smallest_p_value("intercepts", labels, grouped, 3000, seed=1) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("labels", [True, False], ids=["labels", "normal"])
@pytest.mark.parametrize("grouped", [True, False], ids=["groups", "features"])
@pytest.mark.parametrize("name", PRIORS)
def test_sampler_keeps_the_joint_distribution_in_long_runs(name, labels, grouped):
    assert smallest_p_value(name, labels, grouped, 30_000, seed=3) > 1e-3


def fits(count, labels, seed):
    """Fits of data from the prior: ranks of the truth, intervals and signs."""
    rng, prior, groups = np.random.default_rng(seed), PRIORS["intercepts"], np.arange(3)
    data = TaskData.from_long(rng.standard_normal((60, 3)), np.zeros(60), tasks=np.arange(60) % 4)
    for number in range(count):
        one, R = draw_related(rng, prior, groups, 4)
        y = draw_targets(rng, data, one)
        if labels:
            y = np.where(rng.random(60) < expit(data.linear_predictor(one.W, one.intercept)), 1.0, -1.0)
        settings = ChainSettings(draws=500, tune=300, random_seed=number, sweeps=4 if labels else 2)
        loss = "logistic" if labels else "squared"
        found = related.sample_related_chain(data.with_target(y), prior, settings, ETA, loss)
        pairs = np.tril_indices(4, -1)
        truth = {"coef": one.W.ravel(), "row_scale": one.row_scales, "relations": R[pairs], "intercept": one.intercept}
        draws = {
            "coef": found.W.reshape(500, -1),
            "row_scale": found.row_scales,
            "relations": found.relations[:, *pairs],
            "intercept": found.intercept,
        }
        if not labels:
            truth["noise"], draws["noise"] = one.noise, found.noise
        yield calibration.check(truth, draws)


@pytest.mark.slow
@pytest.mark.parametrize("labels", [True, False], ids=["labels", "normal"])
def test_a_hundred_and_fifty_fits_are_calibrated(labels):
    summary = calibration.summarize(list(fits(150, labels, 900)))
    assert abs(summary.coverage - 0.89) < 0.02 + 2.0 * summary.coverage_error
    assert min(summary.rank_p_values.values()) > 1e-4, summary.rank_p_values


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_same_posterior_as_nuts(loss):
    nutpie = pytest.importorskip("nutpie")
    kind = "regression" if loss == "squared" else "classification"
    data = bm.simulate_tasks(
        n_tasks=4, n_features=4, n_relevant=2, n_samples=40, relatedness=0.8, snr=2.0, kind=kind, random_state=3
    ).data
    prior = hyperprior_for(data, loss)
    compiled = nutpie.compile_pymc_model(bm.models.matrix_variate_model(data, loss=loss, prior=prior))
    options = {"seed": 1, "progress_bar": False, "target_accept": 0.98, "cores": 1}
    theirs = nutpie.sample(compiled, draws=2000, tune=1000, chains=3, **options)["posterior"].dataset
    lengths = [ChainSettings(draws=4000, tune=1000, random_seed=seed, sweeps=2) for seed in range(3)]
    ours = [related.sample_related_chain(data, prior, one, 2.0, loss) for one in lengths]
    names = {"coef": "W", "intercept": "intercept", "row_scale": "row_scales", "task_relations": "relations"}
    names |= {"noise": "noise"} if loss == "squared" else {}
    for name, field in names.items():
        transform = np.log if name in ("noise", "row_scale") else np.asarray
        first = transform(theirs[name].values).reshape(3, 2000, -1)
        second = transform(np.stack([getattr(one, field) for one in ours])).reshape(3, 4000, -1)
        if name == "task_relations":
            lower = np.flatnonzero(np.tri(4, k=-1))
            first, second = first[..., lower], second[..., lower]
        centre = second.mean(axis=(0, 1))
        for power in (1, 2):
            one, other = (first - centre) ** power, (second - centre) ** power
            errors = [array_stats.mcse(x, chain_axis=0, draw_axis=1, method="mean") for x in (one, other)]
            z = (one.mean(axis=(0, 1)) - other.mean(axis=(0, 1))) / np.hypot(*errors)
            assert np.abs(z).max() < 4.5, (name, power, z.round(1))
