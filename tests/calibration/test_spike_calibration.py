"""The sampler of the prior with exact zeros reproduces its prior (Geweke 2004) and is calibrated (Talts et al. 2018)."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy import stats

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import find_family
from bayesmtfs.gibbs import spike, spike_state
from bayesmtfs.gibbs.chain import ChainSettings
from bayesmtfs.gibbs.state import rows_of
from bayesmtfs.models.spike import draw_patterns
from bayesmtfs.priors.hyperpriors import DEGREES_RATE, DEGREES_SHAPE, NOISE_DEGREES
from bayesmtfs.priors.spike import SpikePrior

PRIOR = SpikePrior(
    inclusion_rates=(0.2, 0.5),
    inclusion_weights=(0.6, 0.4),
    pattern_rates=(0.4, 0.9),
    scales=(0.5, 1.0),
    shares=(0.0, 0.7, 1.0),
    task_rates=(0.4, 1.0),
    task_rate_weights=(0.4, 0.6),
    concentrations=(0.5, 3.0),
    noise_shape=4.0,
    noise_rate=3.0,
    intercept_scale=1.0,
)
BATCHES = 40
NEVER = 10**9


def draw_parameter(rng, learned, m):
    """Dispersions of tasks or degrees of freedom; ones where there is nothing to learn."""
    if learned == "degrees":
        return np.full(m, rng.gamma(DEGREES_SHAPE) / DEGREES_RATE)
    return rng.standard_t(NOISE_DEGREES, m) ** 2 if learned == "dispersion" else np.ones(m)


def draw_prior(rng, p, m, noisy, row_of_feature=None, learned=None):
    """All parameters as a dictionary; p rows, of one feature each or as ``row_of_feature`` (features,) says."""
    row = np.arange(p) if row_of_feature is None else row_of_feature
    alone = np.bincount(row) == 1
    one = {
        "pi": rng.choice(PRIOR.inclusion_rates, p=PRIOR.inclusion_weights),
        "alpha": rng.choice(PRIOR.concentrations),
        "kappa": rng.choice(PRIOR.task_rates, p=PRIOR.task_rate_weights, size=m),
        "omega": rng.dirichlet(np.full(2, PRIOR.rate_concentration)),
        "scale": rng.dirichlet(np.full(2, PRIOR.scale_concentration)),
        "share": rng.dirichlet(np.full(3, PRIOR.share_concentration)),
        "intercept": PRIOR.intercept_scale * rng.standard_normal(m),
        "noise": np.sqrt(PRIOR.noise_rate / rng.gamma(PRIOR.noise_shape, size=m)) if noisy else np.ones(m),
        "parameter": draw_parameter(rng, learned, m),
    }
    one["S"] = draw_patterns(rng, p, one["pi"], one["alpha"], one["omega"], np.outer(PRIOR.pattern_rates, one["kappa"]))
    rho = rng.choice(PRIOR.scales, p=one["scale"], size=(p, 1))
    C = np.where(alone[:, np.newaxis], rng.choice(PRIOR.shares, p=one["share"], size=(p, 1)), 0.0)[row]
    effects = np.sqrt(C) * rng.standard_normal((p, 1))[row] + np.sqrt(1.0 - C) * rng.standard_normal((len(row), m))
    one["W"] = one["S"][row] * rho[row] * effects
    return one


def parameters_of(state, parameters=None):
    weights = state.weights
    return {
        "pi": state.rate[0],
        "alpha": weights.concentration[0],
        "kappa": state.task_rate,
        "omega": weights.rate.copy(),
        "scale": weights.scale.copy(),
        "share": weights.share.copy(),
        "intercept": state.intercept,
        "noise": state.noise,
        "parameter": np.ones(len(state.noise)) if parameters is None else parameters,
        "S": state.patterns.astype(int),
        "W": state.W,
    }


def statistics(one):
    """Bounded functions of the parameters, with some products that tell how they depend on each other."""
    S, W, kappa = one["S"], np.arctan(one["W"]), one["kappa"]
    on = S.any(axis=1)
    noise, intercept = np.tanh(np.log(one["noise"])), np.tanh(one["intercept"])
    parameter = np.tanh(0.5 * np.log(one["parameter"]))
    both = [S[0, 0] * S[0, 1], S[0, 0] * S[1, 0], S[0, 0] * kappa[0], on.sum() * one["pi"], W[0, 0] * W[0, 1]]
    alike = [float(on[0] and on[1] and np.array_equal(S[0], S[1])), on.sum() ** 2, np.abs(W[0]).max() * one["scale"][1]]
    grids = [one["pi"], one["alpha"], one["omega"][1], one["scale"][1], *one["share"][:2], *kappa]
    return np.concatenate(
        [S.ravel(), W.ravel(), W.ravel() ** 2, noise, noise**2, intercept, both, alike, grids, parameter]
    )


def new_targets(rng, data, one, family):
    eta = np.sum(data.X * one["W"].T[data.task], axis=1) + one["intercept"][data.task]
    eta += 0.0 if data.eta_offset is None else data.eta_offset
    if family.targets == "labels":
        return np.where(rng.random(len(eta)) < 1.0 / (1.0 + np.exp(-eta)), 1.0, -1.0)
    if family.quadratic:
        return eta + one["noise"][data.task] * rng.standard_normal(len(eta))
    known = family if family.learned is None else family.given(one["parameter"][data.task])
    return known.draw(rng, eta, one["noise"][data.task])


def design(n=8, p=3, m=2):
    rng = np.random.default_rng(5)
    X = rng.standard_normal((n, p)) + 0.8 * rng.standard_normal((n, 1))  # neighbours for the steps on locations
    return TaskData.from_long(X, np.where(np.arange(n) % 3, 1.0, -1.0), tasks=np.arange(n) % m)


def chain_of_pairs(data, family, count, rng, visits):
    """Parameters given targets, targets given parameters, in turn."""
    rows = rows_of(data)
    observed = spike_state.spike_data(data, family, fit_intercept=True)
    numbers = spike_state.spike_numbers(PRIOR, family, observed, rows)
    assert len(observed.targets) == data.n_observations and numbers.n_neighbours.max() > 1
    state = spike_state.first_state(observed, numbers, rows)
    state.visits[:] = visits
    parts = spike_state.SpikeParts(observed, rows, numbers, state, spike_state.space_for(numbers, state, rows))
    kept, found, step = spike_state.kept_for(1, rows), [], spike.advance
    if not family.quadratic:
        beside = spike.dispersion_prior_of(PRIOR, family)
        step = partial(spike.advance_with_precisions, beside, np.zeros((1, data.n_tasks)))
    learned = observed.parameters if family.learned is not None else None
    for k in range(count):
        step(rng, parts, kept, 1, 0, 1, NEVER)
        observed.targets[:] = new_targets(rng, data, parameters_of(state, learned), family)
        if k >= count // 20:
            found.append(statistics(parameters_of(state, learned)))
    return np.array(found)


def assert_prior_is_reproduced(loss, count, visits, seed):
    rng, data, family = np.random.default_rng(seed), design(), find_family(loss)
    if not family.has_noise:
        data = replace(data, eta_offset=rng.uniform(-1.0, 1.0, data.n_observations))
    drawn = (draw_prior(rng, 3, 2, family.has_noise, learned=family.learned) for _ in range(4 * count // 10))
    prior = np.array([statistics(one) for one in drawn])
    chain = chain_of_pairs(data, family, count, np.random.Generator(np.random.PCG64(seed)), visits)
    batches = np.array([batch.mean(axis=0) for batch in np.array_split(chain, BATCHES)])
    error = np.sqrt(batches.var(axis=0, ddof=1) / BATCHES + prior.var(axis=0) / len(prior))
    gap = np.abs(batches.mean(axis=0) - prior.mean(axis=0))
    moving = error > 0
    assert np.all(gap[~moving] < 1e-12)
    z = gap[moving] / error[moving]
    assert z.max() < stats.t.isf(0.5 * 0.002 / len(z), BATCHES - 1), z.round(1)


LEARNED = ["student_t(learn)", "negative_binomial(learn)"]


@pytest.mark.parametrize(
    ("loss", "visits"),
    [("squared", 1.0), ("squared", [1.0, 0.3, 0.6]), ("logistic", 1.0), *((loss, 1.0) for loss in LEARNED)],
)
def test_the_chain_of_targets_and_parameters_has_the_prior(loss, visits):
    assert_prior_is_reproduced(loss, 5_000, visits, seed=3)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["squared", "logistic", *LEARNED, "absolute", "quantile(0.8)"])
def test_the_chain_of_targets_and_parameters_has_the_prior_in_long_runs(loss):
    assert_prior_is_reproduced(loss, 150_000, [1.0, 0.5, 0.5], seed=11)


LOSSES = {
    "labels": "logistic",
    "heavy tails": "student_t(learn)",
    "counts": "negative_binomial(learn)",
    "medians": "absolute",
    "quantiles": "quantile(0.8)",
}
KINDS = ["numbers", "groups", "own designs with missing cells", *LOSSES]


def data_of(kind):
    """Designs of four rows of the prior in three tasks; targets are drawn later."""
    if kind in ("numbers", *LOSSES):
        return design(n=60, p=4, m=3)
    rng = np.random.default_rng(5)
    if kind == "groups":
        X = rng.standard_normal((60, 7)) + 0.8 * rng.standard_normal((60, 1))
        return TaskData.from_long(X, np.zeros(60), np.arange(60) % 3, groups=[0, 0, 0, 1, 2, 2, 3])
    X = rng.standard_normal((30, 4)) + 0.8 * rng.standard_normal((30, 1))
    return TaskData.from_wide(X, np.where(rng.random((30, 3)) < 0.3, np.nan, 0.0))


def whole_design(data):
    """(N, p) Rows of X that belong to the targets."""
    return np.vstack([np.asarray(X) for X in data.task_designs])


def place_among(rng, draws, truth):
    """Share of the draws below the truth, those that equal it (zeros) shared out at random: uniform if calibrated."""
    return (draws < truth).mean(axis=0) + rng.random(truth.shape) * (draws == truth).mean(axis=0)


def fits_from_the_prior(kind, fits):
    """Probabilities of entries with what is true, places of coefficients, and those of the parameters beside them."""
    data, family = data_of(kind), find_family(LOSSES.get(kind, "squared"))
    X = whole_design(data)
    row = np.array([0, 0, 0, 1, 2, 2, 3]) if kind == "groups" else None
    rng, chances, truths, places, ranks = np.random.default_rng(8), [], [], [], []
    for k in range(fits):
        one = draw_prior(rng, 4, 3, family.has_noise, row, family.learned)
        observed = data.with_target(new_targets(rng, replace(data, design=X, shared_design=False), one, family))
        draws = spike.sample_spike_chain(observed, PRIOR, ChainSettings(600, 200, k), family)
        chances.append(draws.included.mean(axis=0))
        truths.append(one["S"] if row is None else one["S"][row])
        places.append(place_among(np.random.default_rng([9, k]), draws.W, one["W"]))
        name = "noise" if family.has_noise else "intercept"
        ranks.append((getattr(draws, name)[::6] < one[name]).mean(axis=0))
        if family.learned is not None:
            own = slice(None, 1 if family.one_for_all else None)  # the others are the same number
            ranks.append((draws.parameter[::6, own] < one["parameter"][own]).mean(axis=0))
    chance, truth = np.array(chances), np.array(truths)
    if row is not None:  # features of a group are on together
        chance, truth = chance[:, [0, 3, 4, 6]], truth[:, [0, 3, 4, 6]]
    return chance, truth, np.array(places), np.concatenate(ranks)


def coverage(places, size=0.89):
    """Share of the truth in central intervals, and its standard error over fits."""
    held = (np.abs(places - 0.5) < 0.5 * size).reshape(len(places), -1).mean(axis=1)
    return held.mean(), held.std(ddof=1) / np.sqrt(len(held))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_probabilities_and_ranks_are_calibrated(kind, fits=250):
    chance, truth, places, ranks = fits_from_the_prior(kind, fits)
    for low, high in ((0.0, 0.1), (0.1, 0.3), (0.3, 0.5), (0.5, 0.7), (0.7, 0.9), (0.9, 1.01)):
        inside = (chance >= low) & (chance < high)
        count = inside.sum()
        assert count > 20
        spread = np.sqrt(np.mean(chance[inside] * (1.0 - chance[inside])) / count)
        assert abs(truth[inside].mean() - chance[inside].mean()) < 5.0 * spread + 0.01, (low, high)
    held, error = coverage(places)
    assert abs(held - 0.89) < 4.0 * error + 0.01
    assert stats.kstest(ranks, "uniform").pvalue > 1e-3
