"""Draws of the prior: their laws, their units, and that targets follow from them."""

import numpy as np
import pytest
from scipy import stats

import bayesmtfs as bm


def draws_of(tree, group="prior"):
    return {name: array.values[0] for name, array in tree[group].dataset.items()}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X, tasks = rng.standard_normal((60, 4)) * [1.0, 10.0, 1.0, 1.0], np.repeat(["a", "b", "c"], 20)
    return X, X[:, 0] + rng.standard_normal(60), tasks


@pytest.fixture(scope="module")
def normal(rows):
    model = bm.BayesianRegressor(prior="generalized_normal", random_state=0)
    tree = model.prior_predictive(*rows, draws=2000)
    return draws_of(tree), draws_of(tree, "prior_predictive")


def test_coefficients_have_the_law_of_their_rows(normal):
    prior, _ = normal
    ratio = prior["coef"] / prior["row_scale"][:, :, None]  # GN(0, 1, 2) is normal of variance 1/2
    assert stats.kstest(ratio[:, :, 0].ravel(), stats.norm(scale=np.sqrt(0.5)).cdf).pvalue > 1e-3
    typical = np.median(np.abs(prior["coef"]), axis=(0, 2))
    assert typical[0] / typical[1] == pytest.approx(10.0, rel=0.4)  # one unit is ten times the other


def test_targets_are_those_of_the_drawn_coefficients(rows, normal):
    X, _, _ = rows
    prior, predictive = normal
    task = np.repeat([0, 1, 2], 20)
    eta = np.einsum("np,spn->sn", X, prior["coef"][:, :, task]) + prior["intercept"][:, task]
    standard = (predictive["y"] - eta) / prior["noise"][:, task]
    assert stats.kstest(standard[::20].ravel(), stats.norm.cdf).pvalue > 1e-3


def test_units_of_the_target_are_those_of_the_draws(rows, normal):
    X, y, tasks = rows
    model = bm.BayesianRegressor(prior="generalized_normal", random_state=0)
    larger = draws_of(model.prior_predictive(X, 1000.0 * y + 7.0, tasks, draws=2000))
    np.testing.assert_allclose(larger["coef"], 1000.0 * normal[0]["coef"], rtol=1e-6)
    np.testing.assert_allclose(larger["noise"], 1000.0 * normal[0]["noise"], rtol=1e-6)


def test_the_prior_with_exact_zeros_has_as_many_features_as_expected(rows):
    model = bm.BayesianRegressor(prior="spike", expected_features=1.5, random_state=0)
    tree = model.prior_predictive(*rows, draws=2000)
    included = draws_of(tree)["included"].astype(bool)
    count = included.any(axis=2).sum(axis=1)
    assert count.mean() == pytest.approx(1.5, abs=4 * count.std() / np.sqrt(2000))
    assert not draws_of(tree)["coef"][~included].any()
    assert tree["prior_predictive"]["y"].sizes["obs"] == 60 and not hasattr(model, "coef_")


def test_labels_are_labels_and_flat_priors_are_refused(rows):
    X, y, tasks = rows
    labels = np.where(y > 0, "yes", "no")
    tree = bm.BayesianClassifier(prior="generalized_normal", random_state=0).prior_predictive(
        X, labels, tasks, draws=50
    )
    assert set(np.unique(tree["prior_predictive"]["y"])) == {-1.0, 1.0}
    with pytest.raises(ValueError, match="flat intercepts"):
        bm.BayesianRegressor(prior="mixed_norm").prior_predictive(X, y, tasks)
    with pytest.raises(ValueError, match="draws is 0"):
        bm.BayesianRegressor().prior_predictive(X, y, tasks, draws=0)
