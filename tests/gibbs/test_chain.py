"""The sampler of the full posterior: quadrature, closed forms, seeds, interruption, forms of data, sums alone."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import stats

from bayesmtfs.data.simulation import simulate_tasks
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.gibbs import state as gibbs_state
from bayesmtfs.gibbs import sweep as gibbs_sweep
from bayesmtfs.gibbs.chain import CentredSums, ChainSettings, sample_centred, sample_chain, supports, sweeps_per_draw
from bayesmtfs.priors.hyperpriors import Hyperprior, hyperprior_for, log_noise_density, log_scale_density

SHORT = ChainSettings(draws=40, tune=20, norm_q=None, random_seed=3)


@pytest.fixture(scope="module")
def sim():
    return simulate_tasks(n_tasks=4, n_features=5, n_samples=[20, 25, 30, 22], n_relevant=2, random_state=1)


def grid_moments(x, y, prior, norm_q):
    """Posterior moments of w, ln rho and ln sigma of one coefficient on a grid."""
    sizes = np.linspace(-16.0, 2.0, 181)  # ln |w|: the prior has a spike at 0
    w = np.concatenate([-np.exp(sizes), np.exp(sizes)])[:, None, None]
    log_scale, log_noise = np.linspace(-12.0, 9.0, 211)[:, None], np.linspace(-3.0, 3.0, 121)
    square = np.sum((y - np.multiply.outer(w[:, 0, 0], x)) ** 2, axis=1)[:, None, None]
    with np.errstate(over="ignore"):
        value = np.log(np.abs(w)) - log_scale - (np.abs(w) * np.exp(-log_scale)) ** norm_q
    value = value + log_scale_density(log_scale, prior.global_scale, norm_q, prior)
    value = value + log_noise_density(np.exp(log_noise), prior) + (1 - len(x)) * log_noise
    value = value - 0.5 * square * np.exp(-2 * log_noise)
    mass = np.exp(value - value.max())
    mass /= mass.sum()
    return [float(np.sum(mass * f)) for f in (w, w**2, np.tanh(log_scale), log_noise, log_noise**2)]


@pytest.mark.parametrize("kind", ["beta_prime", "log_uniform"])
@pytest.mark.parametrize("norm_q", [1.3, 2.0, 5.0, np.inf])
def test_one_coefficient_against_quadrature(kind, norm_q):
    x, y = np.array([1.0, -0.5, 0.8, 0.2]), np.array([1.1, -0.2, 0.5, 0.9])
    prior = Hyperprior(
        kind=kind, global_scale=0.5, bounds=(0.05, 5.0), fit_intercept=False, learn_global_scale=False, noise_scale=0.7
    )
    settings = ChainSettings(draws=20_000, tune=200, norm_q=norm_q, random_seed=1)
    draws = sample_chain(TaskData.from_long(x[:, None], y), prior, settings)
    w, log_scale, log_noise = draws.W[:, 0, 0], np.log(draws.row_scales[:, 0]), np.log(draws.noise[:, 0])
    got = [np.mean(f) for f in (w, w**2, np.tanh(log_scale), log_noise, log_noise**2)]
    np.testing.assert_allclose(got, grid_moments(x, y, prior, norm_q), atol=0.025)
    np.testing.assert_array_equal(draws.norm_q, norm_q)
    np.testing.assert_array_equal(draws.global_scale, 0.5)
    assert not draws.intercept.any()


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_likelihood_with_the_intercept_integrated_out(fit_intercept):
    """Q and h from the covariance ``sigma^2 / weight + s^2`` of the targets, written out."""
    rng = np.random.default_rng(0)
    X, y, weight = rng.standard_normal((9, 3)) + 2.0, rng.standard_normal(9), rng.uniform(0.5, 2.0, 9)
    data = TaskData.from_long(X, y, sample_weight=weight)
    prior = Hyperprior(intercept_centre=0.4, intercept_scale=3.0, fit_intercept=fit_intercept)
    centre = 0.4 if fit_intercept else 0.0
    sums, prior_numbers = gibbs_state.sums_of(data, centre), gibbs_state.gibbs_prior(prior, learn_q=False)
    Q, h = np.empty((3, 3)), np.empty(3)
    gibbs_sweep.condition_on_noise(sums, prior_numbers, 0, 0.7, Q, h)
    covariance = np.diag(0.49 / weight) + (9.0 if fit_intercept else 0.0)
    inverse = np.linalg.inv(covariance)
    np.testing.assert_allclose(Q, X.T @ inverse @ X, rtol=1e-9)
    np.testing.assert_allclose(h, X.T @ inverse @ (y - centre), rtol=1e-9)


def test_flat_priors_give_least_squares():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((300, 3)) + [5.0, 0.0, -3.0]
    y = X @ [1.0, -2.0, 0.5] + 7.0 + 0.5 * rng.standard_normal(300)
    prior = Hyperprior(global_scale=100.0, learn_global_scale=False, intercept_scale=1e3, noise_scale=10.0)
    draws = sample_chain(TaskData.from_long(X, y), prior, ChainSettings(draws=6000, tune=200))
    A = np.column_stack([X, np.ones(300)])
    best, square, *_ = np.linalg.lstsq(A, y)
    errors = np.sqrt(np.diag(np.linalg.inv(A.T @ A)) * square / 296)
    found = np.column_stack([draws.W[:, :, 0], draws.intercept])
    np.testing.assert_allclose((found.mean(axis=0) - best) / errors, 0.0, atol=0.1)
    np.testing.assert_allclose(found.std(axis=0) / errors, 1.0, atol=0.06)


@pytest.mark.parametrize("norm_q", [2.0, None])
def test_seed_repeats_every_bit(sim, norm_q):
    prior = hyperprior_for(sim.data)
    settings = ChainSettings(draws=60, tune=30, norm_q=norm_q, random_seed=5)
    first, again = (sample_chain(sim.data, prior, settings, report) for report in (None, lambda fraction: None))
    for one, other in zip(first[:-1], again[:-1], strict=True):
        np.testing.assert_array_equal(one, other)
    other = sample_chain(sim.data, prior, ChainSettings(draws=60, tune=30, norm_q=norm_q, random_seed=6))
    assert np.abs(other.W - first.W).max() > 0


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_a_draw_is_the_last_of_its_sweeps(sim, loss):
    data = sim.data.with_target(np.sign(sim.data.y)) if loss == "logistic" else sim.data
    prior = hyperprior_for(data, loss)
    every, third = (
        sample_chain(data, prior, ChainSettings(draws, tune, sweeps=sweeps), loss=loss)
        for draws, tune, sweeps in ((30, 6, 1), (10, 2, 3))
    )
    np.testing.assert_array_equal(third.W, every.W[2::3])
    np.testing.assert_array_equal(third.row_scales, every.row_scales[2::3])


def test_sweeps_per_draw(sim):
    wide = TaskData.from_long(np.ones((4, 101)), np.zeros(4))
    assert [sweeps_per_draw(sim.data, 2.0), sweeps_per_draw(sim.data, None), sweeps_per_draw(wide, 2.0)] == [1, 4, 4]


@pytest.mark.parametrize("stop_at", [0.1, 0.7])
def test_interruption_keeps_the_draws(sim, stop_at):
    """Ctrl-C in the middle: what was drawn by then is the beginning of the whole chain."""
    prior, settings = hyperprior_for(sim.data), ChainSettings(draws=8000, tune=4000, random_seed=5)
    seen = []

    def report(fraction):
        seen.append(fraction)
        if fraction > stop_at:
            raise KeyboardInterrupt

    draws = sample_chain(sim.data, prior, settings, report)
    assert draws.interrupted
    assert np.all(np.diff(seen) > 0)
    count = max(round(seen[-1] * 12_000) - 4000, 0)
    assert len(draws.W) == len(draws.norm_q) == count < 8000
    whole = sample_chain(sim.data, prior, settings)
    assert not whole.interrupted
    np.testing.assert_array_equal(draws.W, whole.W[:count])


def test_forms_of_data_have_the_same_sums(sim):
    repeated = TaskData.from_long(np.repeat(sim.X, 2, axis=0), np.repeat(sim.y, 2), tasks=np.repeat(sim.tasks, 2))
    weighted = TaskData.from_long(sim.X, sim.y, tasks=sim.tasks, sample_weight=np.full(len(sim.y), 2.0))
    sparse = TaskData.from_long(sp.csr_array(np.repeat(sim.X, 2, axis=0)), repeated.y, tasks=np.repeat(sim.tasks, 2))
    wanted = gibbs_state.sums_of(repeated, 0.3)
    for data in (weighted, sparse):
        for got, want in zip(gibbs_state.sums_of(data, 0.3), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)


def test_missing_cells_of_a_wide_target():
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((30, 2)), rng.standard_normal((30, 3))
    Y[:10, 1] = np.nan
    sums = gibbs_state.sums_of(TaskData.from_wide(X, Y), 0.0)
    np.testing.assert_array_equal(sums.counts, [30, 20, 30])
    centred = X[10:] - X[10:].mean(axis=0)
    np.testing.assert_allclose(sums.grams[1], centred.T @ centred)


def test_absent_features_stay_zero_and_groups_share_a_scale():
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((40, 4)), rng.standard_normal(40)
    grouped = TaskData.from_long(X, y, tasks=np.arange(40) % 2, groups=[0, 1, 1, 2])
    draws = sample_chain(grouped, hyperprior_for(grouped, expected_features=1), SHORT)
    np.testing.assert_array_equal(draws.row_scales[:, 1], draws.row_scales[:, 2])
    assert np.all(draws.row_scales[:, 0] != draws.row_scales[:, 1])

    pd = pytest.importorskip("pandas")
    frames = [pd.DataFrame(X[:20], columns=list("abcd")), pd.DataFrame(X[20:, :3], columns=list("abc"))]
    partial = TaskData.from_list(list(zip(frames, (y[:20], y[20:]), strict=True)))
    draws = sample_chain(partial, hyperprior_for(partial), SHORT)
    assert not draws.W[:, 3, 1].any()
    assert draws.W[:, :, 0].all()


def test_shared_noise_and_start(sim):
    prior = hyperprior_for(sim.data, shared_noise=True)
    draws = sample_chain(sim.data, prior, SHORT, start=sim.coef.T)
    assert np.ptp(draws.noise, axis=1).max() == 0.0
    with pytest.raises(ValueError, match="start has shape"):
        sample_chain(sim.data, prior, SHORT, start=sim.coef)


def test_what_is_supported_and_what_is_refused(sim):
    assert supports(sim.data, "squared", "generalized_normal")
    assert not supports(sim.data, "squared", "matrix_variate")
    assert supports(sim.data, "logistic", "generalized_normal")
    assert not supports(sim.data, "hinge", "generalized_normal")
    halved = TaskData.from_long(sim.X, np.sign(sim.y), tasks=sim.tasks, sample_weight=np.full(len(sim.y), 0.5))
    assert not supports(halved, "logistic", "generalized_normal")
    with pytest.raises(ValueError, match="labels need weights that are whole numbers .* go from 0.5 to 0.5"):
        sample_chain(halved, hyperprior_for(halved, "logistic"), SHORT, loss="logistic")
    with pytest.raises(ValueError, match="draws is 0"):
        ChainSettings(draws=0)
    with pytest.raises(ValueError, match="norm_q is -1"):
        ChainSettings(norm_q=-1.0)


FAST = {"tune": 300, "draws": 4000}


def one_row(norm_q, precision=(4.0, 9.0, 16.0), estimate=(1.0, -0.3, 0.6)):
    grams = np.asarray(precision)[:, None, None]
    correlations = (np.asarray(precision) * estimate)[:, None]
    sums = CentredSums(grams, correlations, np.ones(3), np.ones(3))
    bounds, settings = (-4.0, 2.0), ChainSettings(norm_q=norm_q, random_seed=1, **FAST)
    start = np.asarray(estimate)[None]
    draws = sample_centred(sums, start, np.ones(3), settings, log_scale_bounds=bounds, learn_noise=False)
    return draws, np.asarray(precision), np.asarray(estimate), bounds


@pytest.mark.parametrize("norm_q", [1.0, 2.0, 6.0])
def test_one_row_against_quadrature(norm_q):
    """Posterior of one coefficient and of its scale, the others integrated out numerically."""
    draws, precision, estimate, bounds = one_row(norm_q)

    def marginal(log_rho):
        rho = np.exp(log_rho)
        row, reach = stats.gennorm(norm_q, scale=rho), rho * 50 ** (1 / norm_q)
        values = []
        for k, w_hat in zip(precision, estimate, strict=True):
            w = np.linspace(max(-reach, w_hat - 8 / k**0.5), min(reach, w_hat + 8 / k**0.5), 2001)
            weight = row.pdf(w) * np.exp(-0.5 * k * (w - w_hat) ** 2)
            values.append((np.trapezoid(weight, w), np.trapezoid(w * weight, w)))
        return values

    grid = np.linspace(*bounds, 121)
    tables = np.array([marginal(x) for x in grid])
    density = np.prod(tables[:, :, 0], axis=1)
    expected_scale = np.trapezoid(grid * density, grid) / np.trapezoid(density, grid)
    means = [np.trapezoid(density * tables[:, j, 1] / tables[:, j, 0], grid) for j in range(3)]
    np.testing.assert_allclose(draws.W.mean(axis=0)[0], np.array(means) / np.trapezoid(density, grid), atol=0.04)
    assert np.log(draws.row_scales).mean() == pytest.approx(expected_scale, abs=0.08)


def test_noise_is_inverse_gamma():
    rng = np.random.default_rng(0)
    X, n = rng.standard_normal((40, 2)), 40
    y = X @ [1.0, -1.0] + 0.5 * rng.standard_normal(n)
    sums = CentredSums((X.T @ X)[None], (X.T @ y)[None], np.array([y @ y]), np.array([float(n)]))
    draws = sample_centred(sums, np.array([[1.0], [-1.0]]), np.array([0.5]), ChainSettings(**FAST))
    w = np.linalg.lstsq(X, y)[0]
    square = np.sum((y - X @ w) ** 2)
    # with a nearly flat prior sigma^2 is inverse gamma with n - p degrees of freedom
    wanted = stats.invgamma((n - 2) / 2, scale=square / 2)
    assert np.mean(draws.noise**2) == pytest.approx(wanted.mean(), rel=0.1)


def test_q_is_found_and_seeds_repeat():
    rng = np.random.default_rng(4)
    W = stats.gennorm(6.0).rvs((15, 40), random_state=rng)
    precision = 25.0
    seen = W + rng.standard_normal(W.shape) / precision**0.5
    grams = np.broadcast_to(precision * np.eye(15), (40, 15, 15)).copy()
    sums = CentredSums(grams, precision * seen.T, np.ones(40), np.ones(40))
    settings = ChainSettings(tune=300, draws=700, norm_q=None)
    draws = sample_centred(sums, seen, np.ones(40), settings, learn_noise=False)
    assert np.quantile(draws.norm_q, 0.05) < 6.0 < np.quantile(draws.norm_q, 0.95)
    assert np.quantile(draws.norm_q, 0.05) > 2.0
    again = sample_centred(sums, seen, np.ones(40), settings, learn_noise=False)
    np.testing.assert_array_equal(draws.norm_q, again.norm_q)
    np.testing.assert_array_equal(draws.W, again.W)
