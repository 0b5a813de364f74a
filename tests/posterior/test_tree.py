import json
from dataclasses import replace

import arviz as az
import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from bayesmtfs import TaskData
from bayesmtfs.data.scaling import effect_unit, plain_units, sampling_units
from bayesmtfs.families import Gaussian, Hinge, Logistic
from bayesmtfs.posterior import tree as trees
from bayesmtfs.posterior.tree import (
    SampledDraws,
    between_share,
    build_tree,
    in_user_units,
    inclusion_probability,
    kept_draws,
    linear_predictors,
    local_false_sign_rate,
    stacked,
    task_means,
    with_all_features,
    with_fixed_variables,
    without,
)


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
    units = plain_units(np.ones((data.n_features, data.n_tasks)), np.ones(data.n_tasks))
    return build_tree(draws, data, family, units, effect_unit(data, True), 0, {"prior": "jeffreys"})


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


def test_chains_are_cut_to_the_shortest():
    chains = [{"coef": np.ones((n, 2, 1)), "norm_q": np.ones(n)} for n in (7, 5)]
    found = stacked(chains)
    assert found["coef"].shape == (2, 5, 2, 1) and found["norm_q"].shape == (2, 5)


def test_too_few_draws_are_an_interruption():
    with pytest.raises(KeyboardInterrupt, match="only 2 draws"):
        stacked([{"coef": np.ones((n, 2, 1))} for n in (7, 2)])


def test_scales_and_noise_follow_the_coefficients(small):
    units = sampling_units(small, centre=True, per_task=False, scale_target=True)
    rng = np.random.default_rng(0)
    scale = rng.gamma(1.0, size=(1, 8, 6))
    variables = {
        "coef": scale[..., np.newaxis] * rng.normal(size=(1, 8, 6, 4)),
        "intercept": rng.normal(size=(1, 8, 4)),
        "noise": np.ones((1, 8, 4)),
        "row_scale": scale,
        "mean_coef": scale * rng.normal(size=(1, 8, 6)),
    }
    user = in_user_units(SampledDraws("gibbs", variables), units, True).variables
    # A coefficient over its scale is the same number in any units
    np.testing.assert_allclose(
        user["coef"] / user["row_scale"][..., np.newaxis], variables["coef"] / scale[..., np.newaxis]
    )
    np.testing.assert_allclose(user["mean_coef"] / user["row_scale"], variables["mean_coef"] / scale)
    np.testing.assert_allclose(user["noise"], np.broadcast_to(units.target_scale, (1, 8, 4)))


def test_features_that_were_not_sampled_are_zero():
    draws = SampledDraws("gibbs", {"coef": np.ones((1, 4, 2, 3)), "row_scale": np.ones((1, 4, 2))})
    whole = with_all_features(draws, np.array([True, False, True])).variables
    np.testing.assert_array_equal(whole["coef"][0, 0, :, 0], [1.0, 0.0, 1.0])
    np.testing.assert_array_equal(whole["row_scale"][0, 0], [1.0, 0.0, 1.0])


def test_variables_can_be_left_out_without_touching_the_draws():
    draws = SampledDraws("variational", {"coef": np.ones((1, 4, 2, 3)), "noise": np.ones((1, 4, 3))})
    assert set(without(draws, "noise").variables) == {"coef"} and "noise" in draws.variables


def test_normal_draws_have_known_probabilities():
    rng = np.random.default_rng(0)
    mean = np.array([[0.0, 0.5], [1.0, -2.0]])
    coef = mean + rng.normal(size=(4, 5000, 2, 2))
    unit = np.array([[1.0, 0.5], [2.0, 3.0]])
    inside = norm.cdf(1.0 / unit - mean) - norm.cdf(-1.0 / unit - mean)
    features, entries = inclusion_probability(coef, unit, 1.0)
    np.testing.assert_allclose(features, 1.0 - inside.prod(axis=1), atol=0.02)
    np.testing.assert_allclose(entries, 1.0 - inside.T, atol=0.02)
    np.testing.assert_allclose(local_false_sign_rate(coef), norm.cdf(-np.abs(mean)).T, atol=0.02)


def grouped(rng, levels, sizes, deviations):
    """Rows of tasks whose features have these levels (p, m) and deviations (p,) within a task."""
    tasks = np.repeat(np.arange(len(sizes)), sizes)
    X = levels.T[tasks] + rng.standard_normal((len(tasks), len(levels))) * deviations
    return TaskData.from_long(X, np.zeros(len(tasks)), tasks=tasks), X, tasks


def test_shares_are_those_of_the_variances_that_made_the_data():
    rng = np.random.default_rng(0)
    deviations, spreads = np.array([1.0, 1.0, 0.0, 2.0]), np.array([0.0, 1.0, 1.0, 1.0])
    levels = spreads[:, None] * rng.standard_normal((4, 2000))
    data, _, _ = grouped(rng, levels, rng.integers(2, 8, 2000), deviations)
    np.testing.assert_allclose(between_share(data), spreads**2 / (spreads**2 + deviations**2), atol=0.03)


def test_weights_are_repeated_rows_and_absent_features_are_left_out():
    rng = np.random.default_rng(1)
    data, X, tasks = grouped(rng, rng.standard_normal((3, 5)), np.full(5, 6), np.ones(3))
    weight = rng.integers(1, 4, len(tasks))
    weighted = TaskData.from_long(X, data.y, tasks=tasks, sample_weight=weight)
    repeated = TaskData.from_long(*(np.repeat(part, weight, axis=0) for part in (X, data.y, tasks)))
    np.testing.assert_allclose(task_means(weighted), task_means(repeated))
    np.testing.assert_allclose(between_share(weighted), between_share(repeated))
    first, rest = X[tasks == 0][:, :2], X[tasks > 0]
    names = ["a", "b", "c"]
    parts = [(pd.DataFrame(rest[tasks[tasks > 0] == t], columns=names), np.zeros(6)) for t in range(1, 5)]
    lacking = TaskData.from_list([(pd.DataFrame(first, columns=names[:2]), np.zeros(6)), *parts])
    np.testing.assert_allclose(task_means(lacking)[2, 0], rest[:, 2].mean())
    np.testing.assert_allclose(task_means(lacking)[:2], task_means(data)[:2])
