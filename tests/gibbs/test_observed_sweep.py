"""The sampler by observation: quadrature, forms of data, and steps on active rows."""

import numpy as np
import pytest
from scipy.special import gammaln, logsumexp, softmax

from bayesmtfs.data.simulation import simulate_tasks
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families.augmentation import NORMAL, POLYA_GAMMA
from bayesmtfs.gibbs import block as gibbs_block
from bayesmtfs.gibbs import chain as gibbs_posterior
from bayesmtfs.gibbs import path as gibbs_path
from bayesmtfs.gibbs import state as gibbs_state
from bayesmtfs.gibbs import sweep as gibbs_sweep
from bayesmtfs.gibbs.chain import ChainSettings, sample_chain
from bayesmtfs.gibbs.state import dual_ridge_start, first_observed_state
from bayesmtfs.priors.hyperpriors import Hyperprior, hyperprior_for, log_scale_density

FIELDS = ("W", "mean", "intercept", "noise", "row_scales", "global_scale", "norm_q")


def label_moments(x, y, weight, prior, norm_q):
    """Posterior moments of one coefficient of labels and of ln rho, on a grid."""
    sizes = np.linspace(-16.0, 4.0, 401)  # ln |w|: the prior has a spike at 0
    w = np.concatenate([-np.exp(sizes), np.exp(sizes)])[:, None]
    log_scale = np.linspace(-12.0, 9.0, 421)
    with np.errstate(over="ignore"):
        value = np.log(np.abs(w)) - log_scale - (np.abs(w) * np.exp(-log_scale)) ** norm_q
    value = value + log_scale_density(log_scale, prior.global_scale, norm_q, prior)
    value = value - (np.logaddexp(0.0, -y * w * x) @ weight)[:, None]
    mass = np.exp(value - value.max())
    mass /= mass.sum()
    return [float(np.sum(mass * f)) for f in (np.arctan(w), np.arctan(w) ** 2, np.tanh(log_scale))]


@pytest.mark.parametrize("kind", ["beta_prime", "log_uniform"])
@pytest.mark.parametrize("norm_q", [1.3, 2.0, np.inf])
def test_one_coefficient_of_labels_against_quadrature(kind, norm_q):
    """Weights of 2 and 3 count as the row twice and thrice."""
    x, y, weight = np.array([1.0, -0.5, 0.8, 2.0]), np.array([1.0, -1.0, 1.0, -1.0]), np.array([3.0, 1.0, 2.0, 1.0])
    prior = Hyperprior(kind=kind, global_scale=0.8, bounds=(0.05, 5.0), fit_intercept=False, learn_global_scale=False)
    data = TaskData.from_long(x[:, None], y, sample_weight=weight)
    settings = ChainSettings(draws=20_000, tune=300, norm_q=norm_q, random_seed=1)
    draws = sample_chain(data, prior, settings, loss="logistic")
    w, log_scale = np.arctan(draws.W[:, 0, 0]), np.log(draws.row_scales[:, 0])
    wanted = label_moments(x, y, weight, prior, norm_q)
    np.testing.assert_allclose([w.mean(), np.mean(w**2), np.tanh(log_scale).mean()], wanted, atol=0.025)
    np.testing.assert_array_equal(draws.noise, 1.0)


def learned_moments(x, Y, prior):
    """Posterior moments of 1/q, ln rho and the first coefficient of one feature in several tasks, on a grid."""
    sizes = np.linspace(-14.0, 4.0, 241)
    w = np.concatenate([-np.exp(sizes), np.exp(sizes)])[:, None]
    log_scale = np.linspace(*np.log(prior.bounds), 101)
    low, high = (1.0 / bound for bound in prior.norm_q_bounds[::-1])
    inverse = low + (high - low) * (np.arange(80) + 0.5) / 80
    values, firsts = np.empty((80, 101)), np.empty((80, 101))
    for k, one in enumerate(inverse):
        with np.errstate(over="ignore"):
            value = np.log(np.abs(w)) - log_scale - gammaln(1.0 + one) - (np.abs(w) * np.exp(-log_scale)) ** (1.0 / one)
        terms = [value - np.logaddexp(0.0, -y * w * x).sum(axis=1)[:, None] for y in Y]
        values[k] = sum(logsumexp(term, axis=0) for term in terms)
        firsts[k] = np.sum(softmax(terms[0], axis=0) * np.arctan(w), axis=0)
    mass = softmax(values)
    grid = inverse[:, None]
    return [float(np.sum(mass * f)) for f in (grid, grid**2, np.tanh(log_scale), grid * log_scale, firsts)]


def test_learned_exponent_of_labels_against_quadrature():
    """Four tasks that each know the size of their coefficient, all alike: q is large."""
    x = np.tile([1.0, -1.0, 1.0], 12)
    Y = [np.where(np.arange(36) % 9 < wrong, -1.0, 1.0) * x for wrong in (1, 1, 8, 2)]
    prior = Hyperprior(kind="log_uniform", bounds=(0.2, 8.0), norm_q_bounds=(1.0, 20.0), fit_intercept=False)
    data = TaskData.from_long(np.tile(x, 4)[:, None], np.concatenate(Y), tasks=np.repeat(np.arange(4), 36))
    settings = ChainSettings(draws=12_000, tune=500, norm_q=None, random_seed=2)
    draws = sample_chain(data, prior, settings, loss="logistic")
    inverse, log_scale, w = 1.0 / draws.norm_q, np.log(draws.row_scales[:, 0]), np.arctan(draws.W[:, 0, 0])
    got = [np.mean(f) for f in (inverse, inverse**2, np.tanh(log_scale), inverse * log_scale, w)]
    wanted = learned_moments(x, Y, prior)
    assert wanted[0] < 0.47  # and not the 0.525 of the prior
    np.testing.assert_allclose(got, wanted, atol=0.012)


@pytest.mark.parametrize(("norm_q", "shared_mean"), [(2.0, False), (4.0, True), (None, False)])
def test_both_forms_have_the_same_posterior(monkeypatch, norm_q, shared_mean):
    """Normal targets: the sampler in sums is the oracle."""
    sim = simulate_tasks(n_tasks=3, n_features=4, n_samples=12, n_relevant=2, intercept_scale=1.0, random_state=2)
    prior, found = hyperprior_for(sim.data, shared_mean=shared_mean), []
    monkeypatch.setattr(gibbs_posterior, "FEW_FEATURES", 0)
    for more_rows in (True, False):
        monkeypatch.setattr(gibbs_posterior, "more_rows_than_features", lambda data, answer=more_rows: answer)
        draws = sample_chain(sim.data, prior, ChainSettings(draws=8000, tune=500, norm_q=norm_q, random_seed=4))
        found.append({name: getattr(draws, name) for name in FIELDS})
    for name in FIELDS:
        transform = np.log if name in ("noise", "row_scales", "global_scale", "norm_q") else np.asarray
        one, other = (transform(draws[name]) for draws in found)
        spread = one.std(axis=0) + 1e-12
        np.testing.assert_allclose((one.mean(axis=0) - other.mean(axis=0)) / spread, 0.0, atol=0.15, err_msg=name)
        np.testing.assert_allclose((other.std(axis=0) + 1e-12) / spread, 1.0, atol=0.15, err_msg=name)


@pytest.fixture(scope="module")
def wide():
    """More features than rows: labels, groups of features."""
    return simulate_tasks(
        n_tasks=2, n_features=30, n_samples=[12, 18], n_relevant=2, kind="classification", random_state=0
    )


@pytest.mark.parametrize("norm_q", [2.0, None])
@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_seed_repeats_every_bit_and_interruption_keeps_the_draws(monkeypatch, wide, loss, norm_q):
    monkeypatch.setattr(gibbs_posterior, "FEW_FEATURES", 0)
    prior, settings = hyperprior_for(wide.data, loss), ChainSettings(draws=300, tune=60, random_seed=5, norm_q=norm_q)
    whole = sample_chain(wide.data, prior, settings, lambda fraction: None, loss=loss)

    def report(fraction):
        if fraction > 0.5:
            raise KeyboardInterrupt

    part = sample_chain(wide.data, prior, settings, report, loss=loss)
    assert part.interrupted and not whole.interrupted and 0 < len(part.W) < 300
    for name in FIELDS:
        one, other = getattr(whole, name), getattr(part, name)
        np.testing.assert_array_equal(one[: len(part.W)], other, err_msg=name)
    assert np.abs(sample_chain(wide.data, prior, ChainSettings(300, 60, 6, norm_q), loss=loss).W - whole.W).max() > 0


@pytest.mark.parametrize("norm_q", [2.0, None])
def test_groups_and_absent_features(wide, norm_q):
    grouped = TaskData.from_long(wide.X, wide.y, tasks=wide.tasks, groups=np.arange(30) // 2)
    settings = ChainSettings(draws=30, tune=30, norm_q=norm_q)
    draws = sample_chain(grouped, hyperprior_for(grouped, "logistic"), settings, loss="logistic")
    np.testing.assert_array_equal(draws.row_scales[:, ::2], draws.row_scales[:, 1::2])
    pd = pytest.importorskip("pandas")
    names = [f"x{i}" for i in range(30)]
    parts = [(wide.X[wide.tasks == t][:, : 30 - t], wide.y[wide.tasks == t]) for t in (0, 1)]
    partial = TaskData.from_list([(pd.DataFrame(X, columns=names[: X.shape[1]]), y) for X, y in parts])
    draws = sample_chain(partial, hyperprior_for(partial, "logistic"), settings, loss="logistic")
    assert not draws.W[:, 29, 1].any() and draws.W[:, :29].all()


@pytest.mark.parametrize("norm_q", [2.0, None])
def test_many_more_features_than_rows_of_normal_targets(norm_q):
    """Draws stay finite and find the one large effect among 150 features."""
    sim = simulate_tasks(n_tasks=2, n_features=150, n_samples=30, n_relevant=1, snr=10.0, random_state=0)
    settings = ChainSettings(draws=300, tune=200, random_seed=2, norm_q=norm_q)
    draws = sample_chain(sim.data, hyperprior_for(sim.data, expected_features=1), settings)
    assert all(np.all(np.isfinite(getattr(draws, name))) for name in FIELDS)
    assert np.argmax(np.median(draws.row_scales, axis=0)) == np.flatnonzero(sim.support)[0]
    assert (np.ptp(draws.norm_q) > 0.0) == (norm_q is None)


@pytest.mark.parametrize("labels", [True, False])
def test_predictors_and_scores_follow_the_state(labels):
    kind = "classification" if labels else "regression"
    data = simulate_tasks(n_tasks=2, n_features=20, n_samples=[6, 9], n_relevant=2, kind=kind, random_state=0).data
    prior = hyperprior_for(data, "logistic" if labels else "squared")
    rows, prior_numbers = gibbs_state.rows_of(data), gibbs_state.gibbs_prior(prior, learn_q=False)
    observations = gibbs_state.observations_of(data, 0.0, POLYA_GAMMA if labels else NORMAL)
    rng = np.random.Generator(np.random.PCG64(0))
    state = first_observed_state(observations, rows, prior_numbers, dual_ridge_start(observations, rows), 2.0, rng)
    block = gibbs_block.block_for(observations, rows, most_features=5)
    path = gibbs_path.path_for(observations, rows, block)
    gibbs_block.choose_rows(observations, rows, prior_numbers, state, block)
    path.step_size.log_step = np.log(0.05)
    gibbs_state.fill_predictors(observations, rows, state, observations.predictors)
    before, drawn = state.W.copy(), np.zeros(20)
    for number in range(30):
        gibbs_sweep.step_on_active_rows(
            rng, observations, rows, prior_numbers, state, block, path, number + 1 if number < 10 else 0, 10
        )
        drawn += block.is_active
    assert np.count_nonzero(drawn) > 5 and drawn.sum() == 30 * 5  # by chance, others are active now and then
    np.testing.assert_array_equal(state.W != before, np.tile(labels | (drawn > 0), (2, 1)))
    predictors = np.empty(15)
    gibbs_state.fill_predictors(observations, rows, state, predictors)
    np.testing.assert_allclose(observations.predictors, predictors, atol=1e-9)
    pull = 0.5 * observations.targets if labels else observations.precisions * observations.targets
    np.testing.assert_allclose(observations.scores, pull - observations.precisions * predictors, atol=1e-8)
