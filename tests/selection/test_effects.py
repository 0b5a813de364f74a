"""Probabilities of effects, false sign rates, shrinkage factors: against closed forms."""

import numpy as np
import pytest
from scipy import stats

import bayesmtfs as bm
from bayesmtfs.posterior.tree import inclusion_probability
from bayesmtfs.selection import effects
from bayesmtfs.selection.effects import (
    generalized_normal_variance,
    local_false_sign_rate,
    shrinkage_factor,
)

MEAN = np.array([[0.0, 0.3], [1.0, -0.5], [-0.05, 0.02]])
SPREAD = np.array([[0.2, 0.2], [0.3, 0.4], [0.01, 0.05]])
N_DRAWS = 40_000


@pytest.fixture(scope="module")
def normal_draws():
    return MEAN + SPREAD * np.random.default_rng(0).standard_normal((N_DRAWS, 3, 2))


def assert_within_chance(found, truth):
    """Shares of N_DRAWS draws are within five standard errors of their probabilities."""
    assert (np.abs(found - truth) <= 5 * np.sqrt(truth * (1 - truth) / N_DRAWS) + 1e-9).all()


def test_probabilities_of_normal_draws(normal_draws):
    above = stats.norm.sf((0.2 - MEAN) / SPREAD) + stats.norm.cdf((-0.2 - MEAN) / SPREAD)
    features, entries = inclusion_probability(normal_draws[None], np.ones((3, 2)), 0.2)
    assert_within_chance(entries.T, above)
    assert_within_chance(features, 1 - np.prod(1 - above, axis=1))
    assert_within_chance(local_false_sign_rate(normal_draws), stats.norm.cdf(-np.abs(MEAN) / SPREAD))


def test_false_sign_rate_is_calibrated():
    # theta ~ N(0, 1), x ~ N(theta, 1): the posterior is N(x/2, 1/2), so that errors can be counted
    rng = np.random.default_rng(3)
    theta = rng.standard_normal((4000, 1))
    x = theta + rng.standard_normal(theta.shape)
    draws = x / 2 + np.sqrt(0.5) * rng.standard_normal((2000, 4000, 1))
    rate = local_false_sign_rate(draws)
    wrong = np.sign(draws.mean(axis=0)) != np.sign(theta)
    for low, high in [(0.0, 0.05), (0.05, 0.2), (0.2, 0.5)]:
        inside = (rate >= low) & (rate < high)
        error = np.sqrt(wrong[inside].mean() / inside.sum())
        assert abs(wrong[inside].mean() - rate[inside].mean()) <= 3 * error
        assert inside.sum() > 200


def test_shrinkage_factor_is_what_is_left_of_least_squares():
    # orthogonal features of different lengths, normal prior: the posterior mean is a multiple of least squares
    rng = np.random.default_rng(1)
    X = np.linalg.qr(rng.standard_normal((30, 4)))[0] * np.array([1.0, 3.0, 9.0, 2.0])
    y = rng.standard_normal((30, 2))
    rho, sigma = np.array([0.5, 1.0, 0.1, 2.0]), np.array([0.7, 1.9])
    least_squares = np.linalg.lstsq(X, y)[0]
    prior = np.diag(2 / rho**2)  # GN(0, rho, 2) has variance rho^2 / 2
    mean = np.column_stack([np.linalg.solve(X.T @ X + s**2 * prior, X.T @ y[:, t]) for t, s in enumerate(sigma)])
    variance = generalized_normal_variance(rho[None], 2.0)
    factor = shrinkage_factor(variance, sigma[None], np.sum(X**2, axis=0)[:, None] * np.ones(2))
    np.testing.assert_allclose(factor, mean / least_squares, rtol=1e-10)


def test_shrinkage_factor_averages_over_draws():
    variance, noise = np.array([[1.0], [4.0]]), np.array([[1.0], [2.0]])
    information = np.array([[3.0]])
    assert shrinkage_factor(variance, noise, information)[0, 0] == pytest.approx((3 / 4 + 3 / 4) / 2)
    assert shrinkage_factor(variance[:1], noise[1:], information)[0, 0] == pytest.approx(0.75 / 1.75)


@pytest.mark.parametrize("q", [1.0, 1.5, 2.0, 4.0, 50.0])
def test_variance_of_the_generalized_normal(q):
    found = generalized_normal_variance(np.array([[0.5, 2.0]]), q)
    np.testing.assert_allclose(found, [[stats.gennorm(q, scale=s).var() for s in (0.5, 2.0)]], rtol=1e-9)


def test_variance_of_the_uniform():
    assert generalized_normal_variance(np.array([[3.0]]), np.inf)[0, 0] == pytest.approx(3.0)
    mixed = generalized_normal_variance(np.ones((2, 3)), np.array([[2.0], [np.inf]]))
    np.testing.assert_allclose(mixed, [[0.5] * 3, [1 / 3] * 3])


@pytest.fixture(scope="module")
def sim():
    return bm.simulate_tasks(n_tasks=3, n_features=8, n_relevant=2, n_samples=60, random_state=4)


def test_effects_of_a_posterior(sim, conjugate_tree):
    tree = conjugate_tree(sim, spike=0.02)
    found = effects(tree, sim.X, sim.y, sim.tasks)
    np.testing.assert_array_equal(found.inclusion_probability > 0.9, sim.support)
    coef = tree["posterior"]["coef"].values[0]
    np.testing.assert_allclose(found.mean, coef.mean(axis=0).T)
    spread = [np.sqrt(np.mean([v[sim.tasks == t].var(axis=0) for t in range(3)], axis=0)) for v in (sim.X, sim.y)]
    unit = spread[0] / spread[1]  # tasks are of the same size
    expected = np.mean(np.abs(coef).max(axis=2) * unit > 0.05, axis=0)
    np.testing.assert_array_equal(found.inclusion_probability, expected)
    assert found.shrinkage_factor is None and (found.lower < found.upper).all()
    assert set(found.ranking[:2]) == set(np.flatnonzero(sim.support))
    assert "2 of 8 features have an effect above 0.05" in repr(found)


def test_effects_do_not_depend_on_units(sim, conjugate_draws, tree_of):
    coef, intercept = conjugate_draws(sim.data, sim.noise, np.ones(8), 100, 0)
    factor = np.array([1, 10, 0.1, 2, 3, 4, 5, 100.0])
    first = effects(tree_of(coef, intercept, np.ones((100, 3))), sim.X, sim.y, sim.tasks, effect_size=0.1)
    other_tree = tree_of(7 * coef / factor[:, None], intercept, np.ones((100, 3)))
    other = effects(other_tree, sim.X * factor, 7 * sim.y, sim.tasks, effect_size=0.1)
    for name in ("inclusion_probability", "task_probability", "local_false_sign_rate"):
        np.testing.assert_array_equal(getattr(first, name), getattr(other, name))


def test_shrinkage_of_a_posterior_with_row_scales(sim, conjugate_draws, tree_of):
    coef, intercept = conjugate_draws(sim.data, sim.noise, np.ones(8), 50, 0)
    rho = np.random.default_rng(0).uniform(0.1, 1, (50, 8))
    noise = np.tile(sim.noise, (50, 1))
    q = np.linspace(1, 4, 50)
    arguments = (sim.X, sim.y, sim.tasks)
    learned = effects(tree_of(coef, intercept, noise, row_scale=rho, norm_q=q), *arguments).shrinkage_factor
    information = np.array([[60 * sim.X[sim.tasks == t, i].var() for i in range(8)] for t in range(3)])
    variance = np.array([[stats.gennorm(a, scale=s).var() for s in row] for a, row in zip(q, rho, strict=True)])
    gain = variance[:, None, :] * information / sim.noise[:, None] ** 2
    np.testing.assert_allclose(learned, np.mean(gain / (1 + gain), axis=0), rtol=1e-8)
    fixed = effects(tree_of(coef, intercept, noise, row_scale=rho), *arguments, norm_q=2).shrinkage_factor
    gain = 0.5 * rho[:, None, :] ** 2 * information / sim.noise[:, None] ** 2
    np.testing.assert_allclose(fixed, np.mean(gain / (1 + gain), axis=0), rtol=1e-10)


def test_labels_have_effects_on_the_log_odds(tree_of):
    sim = bm.simulate_tasks(n_tasks=2, n_features=3, n_relevant=1, kind="classification", random_state=0)
    coef = np.random.default_rng(0).standard_normal((200, 3, 2))
    labels = np.where(sim.y > 0, "yes", "no")
    found = effects(tree_of(coef, row_scale=np.ones((200, 3))), sim.X, labels, sim.tasks, effect_size=1.0)
    root_mean_square = np.sqrt(np.mean(sim.X**2, axis=0))  # the posterior has no intercept
    expected = np.mean(np.abs(coef) * root_mean_square[:, None] > 1, axis=0)
    np.testing.assert_array_equal(found.task_probability, expected.T)
    information = np.array([100 * sim.X[sim.tasks == t].var(axis=0) for t in range(2)])
    np.testing.assert_allclose(found.shrinkage_factor, information / 4 / (1 + information / 4), rtol=1e-10)


@pytest.mark.parametrize("backend", ["pandas", "polars"])
def test_frames(sim, conjugate_tree, backend):
    found = effects(conjugate_tree(sim), sim.X, sim.y, sim.tasks)
    features = found.to_frame(backend=backend)
    assert list(features.columns)[:2] == ["feature", "inclusion_probability"] and len(features) == 8
    entries = found.to_frame("entries", backend=backend)
    assert len(entries) == 24
    row = entries[entries["feature"] == "x5"] if backend == "pandas" else entries.filter(entries["feature"] == "x5")
    np.testing.assert_array_equal(np.asarray(row["local_false_sign_rate"]), found.local_false_sign_rate[:, 5])
    np.testing.assert_array_equal(np.asarray(row["task"]), [0, 1, 2])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"effect_size": -1.0}, "effect_size is -1.0; pass a finite number of at least 0"),
        ({"prob": 1.0}, "prob is 1.0; pass a number between 0 and 1"),
        ({"loss": "hinges"}, "loss is 'hinges', which is not a known loss; choose one of 'squared'"),
    ],
)
def test_bad_arguments(sim, conjugate_tree, options, message):
    with pytest.raises(ValueError, match=message):
        effects(conjugate_tree(sim), sim.X, sim.y, sim.tasks, **options)


def test_data_of_another_fit_are_refused(sim, conjugate_tree, tree_of):
    tree = conjugate_tree(sim)
    with pytest.raises(ValueError, match="X has 7 features but the posterior has 8; pass the data"):
        effects(tree, sim.X[:, 1:], sim.y, sim.tasks)
    with pytest.raises(ValueError, match="X has tasks in another order or of other names than the posterior: 1 where"):
        effects(tree, sim.X, sim.y, sim.tasks + 1)
    with pytest.raises(ValueError, match="of is 'rows'; pass 'features' or 'entries'"):
        effects(tree, sim.X, sim.y, sim.tasks).to_frame("rows")


def test_what_has_no_draws_is_refused(sim):
    point = bm.MixedNormRegressor().fit(sim.X, sim.y, sim.tasks)
    for posterior in (point, point.result_):
        with pytest.raises(ValueError, match="without draws; pass a fitted BayesianRegressor"):
            effects(posterior, sim.X, sim.y, sim.tasks)
    with pytest.raises(ValueError, match="without a variable coef"):
        effects(np.zeros((3, 4)), sim.X, sim.y, sim.tasks)


def test_draws_must_be_finite_and_named(sim, tree_of):
    coef = np.zeros((10, 8, 3))
    coef[3, 2, 1] = np.nan
    with pytest.raises(ValueError, match="coef has NaN or infinite draws"):
        effects(tree_of(coef), sim.X, sim.y, sim.tasks)
    renamed = tree_of(np.zeros((10, 8, 3)))["posterior"].to_dataset().rename(feature="column")
    with pytest.raises(ValueError, match=r"coef has the axes .*column.*; a posterior wants"):
        effects(renamed, sim.X, sim.y, sim.tasks)


def test_a_result_with_draws_is_a_posterior(sim, conjugate_tree):
    tree = conjugate_tree(sim)
    point = bm.MixedNormRegressor().fit(sim.X, sim.y, sim.tasks).result_
    result = bm.FitResult(
        method="BayesianRegressor",
        coef=point.coef,
        intercept=point.intercept,
        task_names=point.task_names,
        feature_names=point.feature_names,
        convergence=point.convergence,
        posterior=tree,
    )
    first, second = (effects(posterior, sim.X, sim.y, sim.tasks) for posterior in (tree, result))
    np.testing.assert_array_equal(first.task_probability, second.task_probability)
