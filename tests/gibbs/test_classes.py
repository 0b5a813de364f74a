"""Steps for several classes within tasks: the likelihood, one class given the others, constants, and whole chains."""

import numpy as np
import pytest
from scipy.special import gammaln, logsumexp

from bayesmtfs.data.classes import class_tasks
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import find_family
from bayesmtfs.families.augmentation import MULTINOMIAL
from bayesmtfs.gibbs import classes as gibbs_classes
from bayesmtfs.gibbs import state as gibbs_state
from bayesmtfs.gibbs.chain import ChainSettings, conditionally_normal, sample_chain, supports
from bayesmtfs.priors.hyperpriors import Hyperprior, hyperprior_for, log_scale_density

FIELDS = ("W", "intercept", "row_scales", "global_scale", "norm_q")


def labelled(n=30, p=3, seed=0, n_classes=3, **options):
    """Two tasks of unequal size, features with levels and units of their own."""
    rng = np.random.default_rng(seed)
    tasks = np.sort(rng.integers(0, 2, n))
    X = np.array([0.0, 1.0, -2.0, 0.5])[:p] + np.array([1.0, 0.5, 2.0, 1.0])[:p] * rng.standard_normal((n, p))
    eta = np.outer(X[:, 0], np.linspace(-1.5, 1.5, n_classes)) + 0.3 * tasks[:, np.newaxis]
    y = np.argmax(eta + rng.gumbel(size=eta.shape), axis=1).astype(float)
    return class_tasks(TaskData.from_long(X, y, tasks=tasks, **options), np.arange(n_classes))


def problem(data, norm_q=2.0, seed=0):
    """The data class by class, with a state."""
    rows = gibbs_state.rows_of(data)
    observations, rows, places = gibbs_classes.class_by_class(gibbs_state.observations_of(data, 0.0, MULTINOMIAL), rows)
    prior = gibbs_state.gibbs_prior(Hyperprior(global_scale=0.5, intercept_scale=1.5), learn_q=False)
    rng = np.random.Generator(np.random.PCG64(seed))
    W = rng.uniform(-1.0, 1.0, rows.present.shape)
    state = gibbs_state.state_around(rows, prior, W, rng.normal(size=len(W)), np.ones(len(W)), norm_q, rng)
    gibbs_state.fill_predictors(observations, rows, state, observations.predictors)
    return observations, rows, places, prior, state, rng


@pytest.mark.parametrize("weighted", [False, True])
def test_likelihood_is_that_of_the_family_in_another_order(weighted):
    weight = np.random.default_rng(1).integers(1, 4, 30).astype(float) if weighted else None
    data = labelled(sample_weight=weight)
    observations, _, places, _, state, _ = problem(data)
    order = np.argsort(places)
    eta = data.linear_predictor(state.W[order].T, state.intercept[order])
    family = find_family("multinomial").on(data.y, data.weight, data.offsets)
    scores, eta_here = np.empty(len(eta)), observations.predictors
    value = gibbs_state.fill_softmax_scores(observations, eta_here, scores)
    assert value == pytest.approx(-np.sum(data.weight * family.value(data.y, eta)), rel=1e-12)
    rows_here = np.concatenate([np.arange(*data.spans[t]) for t in places])
    np.testing.assert_allclose(eta_here, eta[rows_here], atol=1e-12)
    np.testing.assert_allclose(scores, -(data.weight * family.gradient(data.y, eta))[rows_here], atol=1e-12)
    direction = np.random.default_rng(2).normal(size=len(eta))
    moved = gibbs_state.softmax_likelihood(observations, eta_here, direction, 0.7)
    wanted = gibbs_state.log_likelihood(observations, state, eta_here + 0.7 * direction)
    assert moved == pytest.approx(wanted, rel=1e-12)
    assert wanted == pytest.approx(gibbs_state.fill_softmax_scores(observations, eta_here + 0.7 * direction, scores))
    far = gibbs_state.fill_softmax_scores(observations, 1e4 * eta_here, scores)
    assert np.isfinite(far) and np.isfinite(scores).all()


def test_one_class_given_the_others_is_labels_with_a_known_part():
    data = labelled(n_classes=4)
    observations, _, _, _, state, rng = problem(data)
    count = len(observations.targets) // 4
    for k in range(4):
        own = slice(k * count, (k + 1) * count)
        gibbs_classes.fill_other_classes(observations, k)
        table = observations.predictors.reshape(4, count)
        np.testing.assert_allclose(observations.shifts[own], -logsumexp(np.delete(table, k, axis=0), axis=0))
        moved = observations.predictors.copy()
        moved[own] += rng.normal(size=count)
        psi = [eta[own] + observations.shifts[own] for eta in (observations.predictors, moved)]
        first, second = (-np.logaddexp(0.0, -observations.targets[own] * one).sum() for one in psi)
        change = [gibbs_state.log_likelihood(observations, state, eta) for eta in (observations.predictors, moved)]
        assert second - first == pytest.approx(change[1] - change[0], rel=1e-9)


@pytest.mark.parametrize("norm_q", [1.0, 2.0, 4.0, np.inf])
def test_constants_change_no_probability_and_have_their_prior(norm_q):
    observations, rows, _, prior, state, rng = problem(labelled(), norm_q)
    present = rows.present.copy()
    present[::2, 2] = False  # the first task lacks a feature
    rows, state = rows._replace(present=present), state._replace(W=np.where(present, state.W, 0.0))
    gibbs_state.fill_predictors(observations, rows, state, observations.predictors)
    contrast, intercept = state.W[:2] - state.W[4:], state.intercept[:2] - state.intercept[4:]
    before, found, levels = gibbs_state.log_likelihood(observations, state, observations.predictors), [], []
    for _ in range(20_000):
        gibbs_classes.draw_constants(rng, rows, prior, state, 3)
        found.append(state.W[::2, 0].mean())
        levels.append(state.intercept[::2].mean())
    np.testing.assert_allclose(state.W[:2] - state.W[4:], contrast, atol=1e-7)
    np.testing.assert_allclose(state.intercept[:2] - state.intercept[4:], intercept, atol=1e-7)
    assert not state.W[::2, 2].any()
    predictors = np.empty_like(observations.predictors)
    gibbs_state.fill_predictors(observations, rows, state, predictors)
    assert gibbs_state.log_likelihood(observations, state, predictors) == pytest.approx(before, abs=1e-7)
    rho, rest = np.exp(state.log_scales[0]), state.W[::2, 0] - state.W[::2, 0].mean()
    grid = np.linspace(-8.0, 8.0, 4001) * rho
    sizes = np.abs(rest[:, np.newaxis] + grid) / rho
    density = np.all(sizes <= 1.0, axis=0) if norm_q == np.inf else np.exp(-np.sum(sizes**norm_q, axis=0))
    density = density / density.sum()
    mean = density @ grid
    spread = np.sqrt(density @ (grid - mean) ** 2)
    assert np.mean(found) == pytest.approx(mean, abs=0.06 * spread)
    assert np.std(found) == pytest.approx(spread, rel=0.05)
    assert np.std(levels) == pytest.approx(1.5 / np.sqrt(3.0), rel=0.03)


def moments_on_a_grid(x, Y, prior, norm_q):
    """Posterior moments of two classes' coefficients of one feature in two tasks, and of ln rho.

    With one feature and no intercept the probability depends on the difference of the two: sums over their grid.
    """
    sizes = np.linspace(-9.0, 4.0, 131)
    w = np.concatenate([-np.exp(sizes[::-1]), np.exp(sizes)])
    volume = np.log(np.abs(w))
    first, second = np.meshgrid(w, w, indexing="ij")
    log_scale = np.linspace(-7.0, 6.0, 131)
    likelihoods = [-np.logaddexp(0.0, -np.multiply.outer(first - second, y * x)).sum(axis=-1) for y in Y]
    logs, firsts, products = [], [], []
    for scale in log_scale:
        with np.errstate(over="ignore"):
            own = volume - np.abs(w / np.exp(scale)) ** norm_q - scale - gammaln(1.0 + 1.0 / norm_q)
        terms = [value + own[:, np.newaxis] + own for value in likelihoods]
        totals = [logsumexp(term) for term in terms]
        logs.append(sum(totals))
        mass = np.exp(terms[0] - totals[0])
        firsts.append(np.sum(mass * np.arctan(first)))
        products.append(np.sum(mass * np.arctan(first) * np.arctan(second)))
    logs = np.array(logs) + log_scale_density(log_scale, prior.global_scale, norm_q, prior)
    mass = np.exp(logs - logs.max())
    mass /= mass.sum()
    return [float(mass @ np.asarray(f)) for f in (firsts, products, np.tanh(log_scale))]


@pytest.mark.parametrize("norm_q", [2.0, 1.3])
def test_two_classes_of_one_feature_against_quadrature(norm_q):
    """Weights of 2 and 3 count as the row twice and thrice."""
    x, y = np.array([1.0, -0.5, 0.8, 2.0]), np.array([[1.0, -1.0, 1.0, 1.0], [1.0, 1.0, 1.0, -1.0]])
    weight = np.array([3.0, 1.0, 2.0, 1.0])
    prior = Hyperprior(global_scale=0.8, fit_intercept=False, learn_global_scale=False, tail_shape=1.5)
    data = TaskData.from_long(
        np.tile(x, 2)[:, np.newaxis], (y.ravel() < 0).astype(float), np.repeat([0, 1], 4), np.tile(weight, 2)
    )
    settings = ChainSettings(draws=20_000, tune=500, norm_q=norm_q, random_seed=1, sweeps=2)
    draws = sample_chain(class_tasks(data, np.arange(2)), prior, settings, loss="multinomial")
    one, other = np.arctan(draws.W[:, 0, 0]), np.arctan(draws.W[:, 0, 1])
    got = [one.mean(), np.mean(one * other), np.tanh(np.log(draws.row_scales[:, 0])).mean()]
    wanted = moments_on_a_grid(
        np.repeat(x, weight.astype(int)), np.repeat(y, weight.astype(int), axis=1), prior, norm_q
    )
    np.testing.assert_allclose(got, wanted, atol=0.02)
    np.testing.assert_array_equal(draws.noise, 1.0)


@pytest.mark.parametrize("norm_q", [2.0, None])
def test_seed_repeats_every_bit_and_interruption_keeps_the_draws(norm_q):
    data = labelled()
    prior = hyperprior_for(data, "multinomial")
    settings = ChainSettings(draws=300, tune=60, random_seed=5, norm_q=norm_q)
    whole = sample_chain(data, prior, settings, lambda fraction: None, loss="multinomial")

    def report(fraction):
        if fraction > 0.5:
            raise KeyboardInterrupt

    part = sample_chain(data, prior, settings, report, loss="multinomial")
    assert part.interrupted and not whole.interrupted and 0 < len(part.W) < 300
    for name in FIELDS:
        one, other = getattr(whole, name), getattr(part, name)
        np.testing.assert_array_equal(one[: len(part.W)], other, err_msg=name)
    start = np.full((3, 6), 0.1)
    moved = sample_chain(data, prior, settings, start=start, loss="multinomial")
    assert np.abs(moved.W - whole.W).max() > 0


def test_groups_and_absent_features():
    pd = pytest.importorskip("pandas")
    rng, names = np.random.default_rng(0), ["a", "b", "c", "d"]
    parts = [(rng.normal(size=(40, 4 - t)), rng.integers(0, 3, 40).astype(float)) for t in (0, 1)]
    data = TaskData.from_list([(pd.DataFrame(X, columns=names[: X.shape[1]]), y) for X, y in parts])
    data = class_tasks(data, np.arange(3))
    settings = ChainSettings(draws=30, tune=30)
    draws = sample_chain(data, hyperprior_for(data, "multinomial"), settings, loss="multinomial")
    assert not draws.W[:, 3, 3:].any() and draws.W[:, :3].all() and draws.W[:, 3, :3].all()
    X, y = parts[0]
    grouped = class_tasks(TaskData.from_long(X, y, groups=np.array([0, 0, 1, 2])), np.arange(3))
    draws = sample_chain(grouped, hyperprior_for(grouped, "multinomial"), settings, loss="multinomial")
    np.testing.assert_array_equal(draws.row_scales[:, 0], draws.row_scales[:, 1])


def test_what_is_not_sampled():
    weighted = labelled(sample_weight=np.full(30, 1.5))
    assert supports(labelled(), "multinomial", "jeffreys") and not supports(labelled(), "ordinal", "jeffreys")
    assert not supports(weighted, "multinomial", "jeffreys")
    with pytest.raises(ValueError, match="needs a conditionally normal form"):
        conditionally_normal(labelled(), "multinomial")
    with pytest.raises(ValueError, match="weights that are whole numbers.*NUTS instead"):
        sample_chain(weighted, Hyperprior(), ChainSettings(), loss="multinomial")
    with pytest.raises(ValueError, match="changes no probability; pass a prior without mean_scale"):
        sample_chain(labelled(), Hyperprior(mean_scale=1.0), ChainSettings(), loss="multinomial")
