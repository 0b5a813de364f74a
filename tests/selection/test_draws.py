"""Reading posteriors: from fitted estimators, results and trees; with features that were screened out."""

import warnings

import numpy as np
import pytest

import bayesmtfs as bm
from bayesmtfs.families import Absolute, Gaussian, Hinge, Logistic
from bayesmtfs.selection import discoveries, effects, exponent_posterior, projection_selection
from bayesmtfs.selection.draws import draws_of, family_of, read_draws, setting
from bayesmtfs.types import PosteriorWarning, SelectionWarning

SHORT = {"draws": 500, "tune": 400, "chains": 2, "random_state": 0}


def fitted(model, sim):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PosteriorWarning)  # short chains
        warnings.simplefilter("ignore", SelectionWarning)  # screening
        return model.fit(sim.X, sim.y, tasks=sim.tasks)


@pytest.fixture(scope="module")
def sim():
    return bm.simulate_tasks(n_tasks=4, n_features=12, n_relevant=3, n_samples=60, snr=4, random_state=1)


@pytest.fixture(scope="module")
def regressor(sim):
    return fitted(bm.BayesianRegressor(**SHORT, norm_q="learn", sampler="gibbs"), sim)


@pytest.fixture(scope="module")
def screened(sim):
    return fitted(bm.BayesianRegressor(**SHORT, prior="generalized_normal", max_features=5, sampler="gibbs"), sim)


def test_every_holder_of_draws_is_the_same(regressor):
    first, *others = (read_draws(held) for held in (regressor, regressor.result_, regressor.posterior_))
    assert first.coef.shape == (1000, 12, 4) and first.noise.shape == first.intercept.shape == (1000, 4)
    for other in others:
        for name in ("coef", "intercept", "noise", "feature_names", "positions"):
            np.testing.assert_array_equal(getattr(first, name), getattr(other, name))
    assert setting(regressor, "prior") == "generalized_normal" and setting(regressor, "weather") is None


def test_a_variable_of_a_fit_is_read_with_its_own_axes_or_is_not_there(regressor, sim):
    result = regressor.result_
    np.testing.assert_array_equal(draws_of(result, "coef"), read_draws(result).coef)
    np.testing.assert_array_equal(
        draws_of(result, "norm_q"), regressor.posterior_["posterior"]["norm_q"].values.ravel()
    )
    assert draws_of(result, "task_relations") is None
    point = bm.MixedNormRegressor().fit(sim.X, sim.y, tasks=sim.tasks)
    assert draws_of(point.result_, "coef") is None


def test_chains_follow_each_other_and_thinning_is_even(tree_of):
    coef = np.arange(12.0).reshape(12, 1, 1)
    draws = read_draws(tree_of(coef, chains=3))
    np.testing.assert_array_equal(draws.coef.ravel(), np.arange(12))
    assert draws.evenly_spaced(4).tolist() == [0, 4, 7, 11] and draws.evenly_spaced(50).tolist() == list(range(12))
    assert draws.chosen(np.array([0, 11])).coef.ravel().tolist() == [0, 11]


def test_loss_is_told_remembered_or_seen(tree_of, regressor):
    coef = np.zeros((10, 1, 1))
    labels, numbers = tree_of(coef), tree_of(coef, noise=np.ones((10, 1)))
    assert family_of(labels, read_draws(labels)) == Logistic() and family_of(numbers, read_draws(numbers)) == Gaussian()
    assert family_of(numbers, read_draws(numbers), "logistic") == Logistic()
    assert family_of(numbers, read_draws(numbers), Absolute()) == Absolute()
    assert family_of(regressor, read_draws(regressor)) == Gaussian()
    labels.attrs["loss"] = "hinge"
    assert family_of(labels, read_draws(labels)) == Hinge()


def test_selection_from_a_fitted_regressor(sim, regressor):
    found = effects(regressor, sim.X, sim.y, sim.tasks)
    np.testing.assert_array_equal(found.inclusion_probability, regressor.inclusion_probability_)
    np.testing.assert_array_equal(found.local_false_sign_rate, regressor.local_false_sign_rate_)
    np.testing.assert_allclose(found.mean, regressor.coef_)
    factor = found.shrinkage_factor.mean(axis=0)
    assert factor[sim.support].min() > factor[~sim.support].max()
    chosen = discoveries(regressor, sim.X, sim.y, sim.tasks, level=0.05)
    np.testing.assert_array_equal(chosen.get_support(), sim.support)
    result = projection_selection(regressor, sim.X, sim.y, sim.tasks)
    assert set(np.concatenate(result.steps[:3])) == set(np.flatnonzero(sim.support)) and result.size in (3, 4)
    assert exponent_posterior(regressor).bounds == (1.0, 50.0)


def test_signs_are_right_where_the_posterior_is_sure(sim, regressor):
    sure = regressor.local_false_sign_rate_ < 0.01
    assert sure.sum() >= 8
    assert (np.sign(sim.coef[sure]) == np.sign(regressor.coef_[sure])).all()


@pytest.mark.filterwarnings("ignore:the prior has no exact zeros")
def test_screened_features_have_no_effect(sim, screened):
    out = screened.result_.screened_out
    assert out.sum() == 7 and screened.posterior_["posterior"].sizes["feature"] == 5
    found = effects(screened, sim.X, sim.y, sim.tasks)
    assert found.inclusion_probability.shape == (12,) and found.shrinkage_factor.shape == (4, 12)
    np.testing.assert_array_equal(found.inclusion_probability, screened.inclusion_probability_)
    np.testing.assert_array_equal(found.local_false_sign_rate, screened.local_false_sign_rate_)
    assert (found.local_false_sign_rate[:, out] == 1).all() and (found.mean[:, out] == 0).all()
    for of in ("features", "entries"):
        chosen = discoveries(screened, sim.X, sim.y, sim.tasks, of=of)
        assert not chosen.get_support()[out].any() and chosen.get_support().shape == (12,)
        assert chosen.expected_false == pytest.approx(chosen.error_probability[chosen.selected].sum())


def test_screened_features_are_not_searched(sim, screened):
    result = projection_selection(screened, sim.X, sim.y, sim.tasks)
    out = screened.result_.screened_out
    assert len(result.path) == 5 and result.coef.shape == (4, 12)
    assert not out[np.concatenate(result.steps)].any()
    assert result.path.tolist() == [f"x{step[0]}" for step in result.steps]
    assert set(result.features) >= {f"x{i}" for i in np.flatnonzero(sim.support)}


def test_the_tree_alone_needs_the_columns_it_has(sim, screened):
    with pytest.raises(ValueError, match="X has 12 features but the posterior has 5; .* the estimator itself"):
        effects(screened.posterior_, sim.X, sim.y, sim.tasks)


@pytest.mark.filterwarnings("ignore::bayesmtfs.types.PosteriorWarning", "ignore:7 of 12 features were screened")
def test_screening_is_repeated_without_each_fold(sim, screened):
    result = projection_selection(screened, sim.X, sim.y, sim.tasks, cv=2)
    assert result.method == "cross-validation" and result.get_support()[sim.support].all()
    assert result.fold_share[:3].min() == 1 and screened.posterior_["posterior"].sizes["feature"] == 5


def test_selection_from_a_fitted_classifier():
    sim = bm.simulate_tasks(
        n_tasks=3, n_features=8, n_relevant=2, n_samples=150, snr=3, kind="classification", random_state=0
    )
    model = fitted(bm.BayesianClassifier(sampler="variational", random_state=0), sim)
    found = effects(model, sim.X, sim.y, sim.tasks)
    np.testing.assert_array_equal(found.inclusion_probability, model.inclusion_probability_)
    result = projection_selection(model, sim.X, sim.y, sim.tasks, max_features=4, n_draws=200)
    assert set(np.concatenate(result.steps[:2])) == set(np.flatnonzero(sim.support)) and result.size in (2, 3)
