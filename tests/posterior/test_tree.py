import json
from dataclasses import replace

import arviz as az
import numpy as np
import pytest
from scipy.stats import norm

from bayesmtfs import TaskData
from bayesmtfs.data.scaling import no_units
from bayesmtfs.families import Gaussian, Hinge, Logistic
from bayesmtfs.posterior import tree as trees
from bayesmtfs.posterior.draws import SampledDraws
from bayesmtfs.posterior.tree import build_tree, kept_draws, linear_predictors, with_fixed_variables


@pytest.fixture
def draws(small):
    rng = np.random.default_rng(0)
    shape, p, m = (2, 30), small.n_features, small.n_tasks
    variables = {
        "coef": rng.normal(size=(*shape, p, m)),
        "intercept": rng.normal(size=(*shape, m)),
        "noise": rng.gamma(2.0, size=(*shape, m)),
    }
    return SampledDraws("gibbs", variables)


def tree_of(draws, data, family=Gaussian()):
    return build_tree(draws, data, family, no_units(data), data.X.std(axis=0), 0, {"prior": "jeffreys"})


def test_log_likelihood_of_every_observation(small, draws):
    tree = tree_of(draws, small)
    W, b, noise = (draws.variables[name][1, 7] for name in ("coef", "intercept", "noise"))
    wanted = norm.logpdf(small.y, small.linear_predictor(W, b), noise[small.task])
    np.testing.assert_allclose(tree["log_likelihood"]["y"].values[1, 7], wanted)


def test_observations_are_named_by_their_place_in_the_input(draws, small):
    mixed = np.random.default_rng(1).permutation(small.n_observations)
    data = TaskData.from_long(small.X[mixed], small.y[mixed], tasks=small.task_names[small.task][mixed])
    tree = tree_of(draws, data)
    np.testing.assert_array_equal(tree["observed_data"]["y"].sortby("obs").values, small.y[mixed])
    for group in ("log_likelihood", "posterior_predictive", "constant_data"):
        np.testing.assert_array_equal(tree[group]["obs"].values, data.order)


def test_predictive_draws_have_the_right_spread(small, draws):
    eta = linear_predictors(small, draws.variables["coef"], draws.variables["intercept"])
    noise = draws.variables["noise"][:, :, small.task]
    standard = (tree_of(draws, small)["posterior_predictive"]["y"].values - eta) / noise
    assert standard.std() == pytest.approx(1.0, abs=0.05) and standard.mean() == pytest.approx(0.0, abs=0.05)


def test_labels(small, draws):
    signs = small.with_target(np.where(small.y > 100, 1.0, -1.0))
    tree = tree_of(draws, signs, Logistic())
    eta = linear_predictors(signs, draws.variables["coef"], draws.variables["intercept"])
    np.testing.assert_allclose(tree["log_likelihood"]["y"].values, -np.logaddexp(0.0, -signs.y * eta))
    assert set(np.unique(tree["posterior_predictive"]["y"].values)) == {-1.0, 1.0}


def test_pseudo_likelihoods_have_no_predictions(small, draws):
    signs = small.with_target(np.where(small.y > 100, 1.0, -1.0))
    tree = tree_of(draws, signs, Hinge())
    assert "log_likelihood" not in tree.children and "posterior_predictive" not in tree.children


def test_large_groups_are_thinned_evenly(small, draws, monkeypatch):
    monkeypatch.setattr(trees, "LARGEST_GROUP", 2 * 10 * small.n_observations)
    monkeypatch.setattr(trees, "LEAST_KEPT", 2)
    assert len(kept_draws(draws, small.n_observations)) == 10
    tree = tree_of(draws, small)
    assert tree["log_likelihood"].sizes["draw"] == 10 and tree["posterior"].sizes["draw"] == 30
    assert tree["log_likelihood"]["draw"].values[[0, -1]].tolist() == [0, 29]


def test_what_is_fixed_is_constant_data_and_comes_back_with_the_draws(small, draws):
    """Summaries of the draws then have no constants, of which ArviZ has no R-hat."""
    shape, m = (2, 30), small.n_tasks
    fixed = {
        "norm_q": np.full(shape, np.inf),
        "intercept": np.zeros((*shape, m)),
        "task_relations": np.ones((*shape, m, m)),
    }
    variables = {**draws.variables, **fixed}
    tree = tree_of(replace(draws, variables=variables, fixed=frozenset(fixed)), small)
    assert set(tree["posterior"].data_vars) == {"coef", "noise"}
    assert np.isfinite(az.summary(tree, round_to=5)["r_hat"]).all()
    whole = with_fixed_variables(tree)
    for name, values in variables.items():
        np.testing.assert_array_equal(whole[name].values, values, err_msg=name)
    assert whole["intercept"].dims == ("chain", "draw", "task")


def test_where_it_came_from(small, draws):
    tree = tree_of(draws, small)
    assert tree.attrs["prior"] == "jeffreys" and tree.attrs["sampler"] == "gibbs"
    assert "numpy" in json.loads(tree.attrs["versions"])
    np.testing.assert_array_equal(tree["observed_data"]["y"], small.y)
    np.testing.assert_array_equal(tree["constant_data"]["task_index"], small.task)
