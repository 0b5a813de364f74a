"""The route from a variational fit to draws, and the choice of features that it makes."""

import json

import numpy as np
import pytest

import bayesmtfs as bm
from bayesmtfs import TaskData
from bayesmtfs.families import Gaussian
from bayesmtfs.posterior.variational import complaint_of, draws_of, features_to_draw, fit
from bayesmtfs.priors.spike import spike_prior_for
from bayesmtfs.selection import credible_sets
from bayesmtfs.types import SelectionWarning


def problem(n=80, p=30, m=3, seed=0):
    rng = np.random.default_rng(seed)
    X, W = rng.standard_normal((n, p)), np.zeros((p, m))
    X[:, 1] = X[:, 0] + 0.1 * rng.standard_normal(n)
    W[0], W[4, 0] = 0.7, -0.6
    return X, X @ W + rng.standard_normal((n, m))


def test_inclusion_is_near_that_of_the_sampler():
    X, Y = problem(p=12)
    exact, found = (
        bm.BayesianRegressor(sampler=sampler, draws=1000, tune=300, chains=2, random_state=1).fit(X, Y)
        for sampler in ("gibbs", "variational")
    )
    assert found.posterior_.attrs["sampler"] == "variational" and found.prior_ == "spike"
    np.testing.assert_allclose(found.inclusion_probability_, exact.inclusion_probability_, atol=0.12)
    np.testing.assert_allclose(found.coef_, exact.coef_, atol=0.1)
    trace = json.loads(found.posterior_.attrs["evidence_bound_trace"])
    assert len(trace) > 1 and found.posterior_.attrs["evidence_bound"] == trace[-1]
    sets = credible_sets(found)
    assert {0, 1} <= {feature for one in sets for feature in one.features.tolist()} | {0, 1} and len(sets) >= 1


def test_draws_of_the_distribution_are_those_of_its_expectations():
    X, Y = problem()
    data = TaskData.from_wide(X - X.mean(axis=0), Y - Y.mean(axis=0))
    fitted = fit(data, Gaussian(), spike_prior_for(data, Gaussian()), False)
    draws = draws_of(fitted, 4000, 2, 0)
    assert draws["coef"].shape == (2, 4000, 30, 3) and not draws["coef"][~draws["included"]].any()
    mean = np.zeros((30, 3))
    for effect in fitted.found.state.effects:
        np.add.at(mean, effect.rows, effect.coefficients[:, 0])
    np.testing.assert_allclose(draws["coef"].mean(axis=(0, 1)), mean, atol=0.02)
    state = fitted.found.state
    np.testing.assert_allclose(
        (draws["noise"] ** 2).mean(axis=(0, 1)), state.noise_rate / (state.noise_shape - 1.0), rtol=0.03
    )
    assert complaint_of(fitted.found) == ""


def test_features_are_chosen_with_their_neighbours():
    X, Y = problem(p=60)
    data = TaskData.from_wide(X - X.mean(axis=0), Y - Y.mean(axis=0))
    fitted = fit(data, Gaussian(), spike_prior_for(data, Gaussian()), False)
    assert features_to_draw(fitted, 10)[[0, 1, 4]].all() and features_to_draw(fitted, 10).sum() == 10
    assert features_to_draw(fitted).all()


def test_more_features_than_wanted_are_chosen_by_the_fit():
    X, Y = problem(p=200)
    with pytest.warns(SelectionWarning, match="features were screened out"):
        model = bm.BayesianRegressor(sampler="variational", max_features=40, draws=100, random_state=0).fit(X, Y)
    out = model.result_.screened_out
    assert out.sum() == 160 and not out[[0, 1, 4]].any() and not model.inclusion_probability_[out].any()


def test_labels_with_any_weights():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((200, 6))
    y = rng.random(200) < 1.0 / (1.0 + np.exp(-2.0 * X[:, 0]))
    model = bm.BayesianClassifier(sampler="variational", draws=200, random_state=0)
    model.fit(X, y, sample_weight=rng.uniform(0.5, 1.5, 200))
    assert model.prior_ == "spike" and model.inclusion_probability_[0] > 0.9
    assert model.inclusion_probability_[1:].max() < 0.5 and "noise" not in model.posterior_["posterior"]
