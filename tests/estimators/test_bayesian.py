"""Bayesian estimators: what a fit leaves behind, forms of the data, files, messages. Few draws, no compilation."""

import json
import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from bayesmtfs import TaskData, simulate_tasks
from bayesmtfs.estimators.base import load
from bayesmtfs.estimators.bayesian import BayesianClassifier, BayesianRegressor
from bayesmtfs.types import PosteriorWarning, SelectionWarning

FEW = {"draws": 300, "tune": 200, "chains": 2, "random_state": 0, "n_jobs": 1}

pytestmark = pytest.mark.filterwarnings("ignore::bayesmtfs.types.PosteriorWarning")


@pytest.fixture(scope="module")
def sim():
    return simulate_tasks(
        n_tasks=4, n_features=8, n_samples=[40, 50, 45, 60], n_relevant=3, snr=8.0, intercept_scale=2.0, random_state=0
    )


@pytest.fixture(scope="module")
def labelled():
    return simulate_tasks(
        n_tasks=4, n_features=6, n_samples=150, n_relevant=2, kind="classification", snr=20.0, random_state=1
    )


@pytest.fixture(scope="module")
def model(sim):
    return BayesianRegressor(prior="generalized_normal", **FEW).fit(sim.X, sim.y, tasks=sim.tasks)


@pytest.fixture(scope="module")
def classifier(labelled):
    return BayesianClassifier(sampler="variational", random_state=0).fit(labelled.X, labelled.y, tasks=labelled.tasks)


# ---------------------------------------------------------------------- what a fit leaves behind


def test_summaries_are_those_of_the_draws(sim, model):
    coef = model.posterior_["posterior"]["coef"]
    assert coef.dims == ("chain", "draw", "feature", "task") and coef.shape == (2, 300, 8, 4)
    np.testing.assert_allclose(model.coef_, coef.mean(("chain", "draw")).values.T)
    np.testing.assert_allclose(model.coef_std_, coef.std(("chain", "draw")).values.T)
    means = [[np.mean(v[sim.tasks == t], axis=0) for t in range(4)] for v in (sim.X, sim.y)]
    spread = [np.sqrt(np.mean((v - np.array(m)[sim.tasks]) ** 2, axis=0)) for v, m in zip((sim.X, sim.y), means)]
    effect = np.abs(coef.values) * spread[0][:, None] / spread[1]
    np.testing.assert_allclose(model.inclusion_probability_, (effect.max(axis=3) > 0.05).mean(axis=(0, 1)))
    np.testing.assert_allclose(model.task_inclusion_probability_, (effect > 0.05).mean(axis=(0, 1)).T)
    below = (coef.values <= 0).mean(axis=(0, 1)).T
    np.testing.assert_allclose(model.local_false_sign_rate_, np.minimum(below, 1 - below))


def test_truth_is_found(sim, model):
    assert np.all(model.inclusion_probability_[sim.support] > 0.99)
    inside = np.abs(model.coef_ - sim.coef) < 3 * model.coef_std_
    assert inside.mean() > 0.9
    np.testing.assert_allclose(model.intercept_, sim.intercept, atol=0.5)


def test_support_follows_the_threshold(model):
    np.testing.assert_array_equal(model.get_support(), model.inclusion_probability_ > 0.5)
    strict = pickle.loads(pickle.dumps(model)).set_params(inclusion_threshold=0.999)
    np.testing.assert_array_equal(
        strict.get_support(indices=True), np.flatnonzero(model.inclusion_probability_ > 0.999)
    )
    assert model.result_.selected.tolist() == model.get_support().tolist()


def test_tree_tells_where_it_came_from(sim, model):
    tree = model.posterior_
    assert set(tree.children) == {
        "posterior",
        "sample_stats",
        "posterior_predictive",
        "log_likelihood",
        "observed_data",
        "constant_data",
    }
    assert tree.attrs["seed"] == 0 and tree.attrs["sampler"] == "gibbs" and tree.attrs["prior"] == "generalized_normal"
    assert json.loads(tree.attrs["versions"])["numpy"] == np.__version__
    assert json.loads(tree.attrs["settings"]) == json.loads(json.dumps(model.get_params(deep=False)))
    assert "norm_q" not in tree["posterior"] and tree["constant_data"]["norm_q"] == 2.0
    total = tree["log_likelihood"]["y"].sum("obs")
    np.testing.assert_allclose(tree["sample_stats"]["total_log_likelihood"], total)
    assert model.result_.seed == 0 and model.result_.settings["draws"] == 300
    assert "2 chains of 300 draws" in model.result_.summary()


def test_diagnostics_are_there(model):
    assert {row.variable for row in model.diagnostics_.table} == {
        "coef",
        "intercept",
        "noise",
        "row_scale",
        "global_scale",
    }
    assert model.converged_ == (model.diagnostics_.problems() == [])


@pytest.mark.filterwarnings("default::bayesmtfs.types.PosteriorWarning")
def test_too_few_draws_warn(sim):
    with pytest.warns(PosteriorWarning, match="fewer than 200 effective draws for .*; raise draws and tune"):
        BayesianRegressor(**FEW | {"draws": 20, "tune": 5}).fit(sim.X, sim.y, tasks=sim.tasks)


def test_integer_seed_gives_the_same_draws_bit_for_bit(sim, model):
    again = clone(model).set_params(n_jobs=2).fit(sim.X, sim.y, tasks=sim.tasks)
    np.testing.assert_array_equal(again.posterior_["posterior"]["coef"], model.posterior_["posterior"]["coef"])


def test_no_seed_records_the_one_that_was_drawn(sim):
    first = BayesianRegressor(**FEW | {"random_state": None, "draws": 20}).fit(sim.X, sim.y, tasks=sim.tasks)
    again = clone(first).set_params(random_state=first.result_.seed).fit(sim.X, sim.y, tasks=sim.tasks)
    np.testing.assert_array_equal(first.coef_, again.coef_)


def test_learned_q_has_an_interval(sim):
    learned = BayesianRegressor(norm_q="learn", **FEW).fit(sim.X, sim.y, tasks=sim.tasks)
    low, high = learned.norm_q_interval_
    assert 1 <= low < learned.norm_q_ < high <= 50
    fixed = BayesianRegressor(norm_q=np.inf, **FEW | {"draws": 20}).fit(sim.X, sim.y, tasks=sim.tasks)
    assert fixed.norm_q_ == np.inf and fixed.norm_q_interval_ == (np.inf, np.inf)


def test_classifier_finds_the_support_and_predicts(labelled, classifier):
    assert np.all(classifier.inclusion_probability_[labelled.support] > 0.99)
    assert classifier.score(labelled.X, labelled.y, tasks=labelled.tasks) > 0.85
    assert "noise" not in classifier.posterior_["posterior"]
    assert classifier.diagnostics_.table == () and classifier.converged_


def test_several_classes_are_tasks_over_one_design(labelled):
    y = np.array(["a", "b", "c"])[np.digitize(labelled.X @ labelled.coef[0], [-2.0, 2.0])]
    model = BayesianClassifier(sampler="variational", draws=200, random_state=0).fit(labelled.X, y)
    assert model.coef_.shape == (3, 6) and model.predict_proba(labelled.X[:4]).shape == (4, 3)
    assert np.mean(model.predict(labelled.X) == y) > 0.75


# ---------------------------------------------------------------------- the same data in other clothes


def test_forms_of_the_same_data_agree():
    sim = simulate_tasks(
        n_tasks=3, n_features=5, n_samples=40, n_relevant=2, shared_design=True, missing=0.2, random_state=2
    )
    model = BayesianRegressor(sampler="variational", scale_target=False, random_state=0)
    wide = clone(model).fit(sim.X, sim.y)
    rows, columns = np.nonzero(~np.isnan(sim.y))
    target = sim.y[rows, columns]
    long = clone(model).fit(sim.X[rows], target, tasks=columns)
    sparse = clone(model).fit(sp.csr_matrix(sim.X[rows]), target, tasks=columns)
    frame = pd.DataFrame(sim.X[rows]).add_prefix("f").assign(task=columns)
    column = clone(model).set_params(task_column="task").fit(frame, target)
    given = clone(model).fit(TaskData.from_wide(sim.X, sim.y))
    for other in (long, sparse, column, given):
        np.testing.assert_allclose(other.coef_, wide.coef_, rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(other.noise_, wide.noise_, rtol=1e-3)
    assert wide.predict(sim.X).shape == (40, 3)
    np.testing.assert_allclose(given.predict(TaskData.from_wide(sim.X, sim.y)), wide.predict(sim.X))


def test_weight_two_is_a_repeated_row(sim):
    twice = np.append(np.arange(len(sim.y)), np.arange(0, len(sim.y), 3))
    weight = np.where(np.arange(len(sim.y)) % 3 == 0, 2.0, 1.0)
    few = BayesianRegressor(**FEW | {"draws": 50, "tune": 20})
    weighted = clone(few).fit(sim.X, sim.y, tasks=sim.tasks, sample_weight=weight)
    repeated = clone(few).fit(sim.X[twice], sim.y[twice], tasks=sim.tasks[twice])
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("standardize", [False, True])
def test_coefficients_are_in_the_users_units(sim, standardize):
    scale = np.geomspace(0.01, 100, 8)
    few = BayesianRegressor(standardize=standardize, **FEW | {"draws": 50})
    plain = clone(few).fit(sim.X, sim.y, tasks=sim.tasks)
    scaled = clone(few).fit(sim.X * scale, 10 * sim.y, tasks=sim.tasks)
    np.testing.assert_allclose(scaled.coef_ * scale / 10, plain.coef_, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(scaled.inclusion_probability_, plain.inclusion_probability_, atol=0.02)


def test_groups_share_a_scale(sim):
    model = BayesianRegressor(prior="generalized_normal", groups=[0, 0, 1, 1, 2, 2, 3, 3], **FEW | {"draws": 50})
    scale = model.fit(sim.X, sim.y, tasks=sim.tasks).posterior_["posterior"]["row_scale"].values
    standard = scale * model.posterior_["constant_data"]["feature_scale"].values[:, 0]
    np.testing.assert_allclose(standard[:, :, 0], standard[:, :, 1])


def test_screened_features_have_no_coefficient(sim):
    model = BayesianRegressor(max_features=4, **FEW | {"draws": 50})
    with pytest.warns(SelectionWarning, match="4 of 8 features were screened out"):
        model.fit(sim.X, sim.y, tasks=sim.tasks)
    out = model.result_.screened_out
    assert out.sum() == 4 and not model.coef_[:, out].any() and not model.inclusion_probability_[out].any()
    assert np.all(model.local_false_sign_rate_[:, out] == 1.0)
    mean, deviation = model.predict(sim.X, tasks=sim.tasks, return_std=True)
    np.testing.assert_allclose(mean, np.sum(sim.X * model.coef_[sim.tasks], axis=1) + model.intercept_[sim.tasks])
    assert np.all(deviation > 0)


# ---------------------------------------------------------------------- files and messages


@pytest.mark.parametrize("kind", ["regression", "labels"])
def test_files_bring_everything_back(sim, labelled, model, classifier, kind, tmp_path):
    fitted, source = (model, sim) if kind == "regression" else (classifier, labelled)
    fitted.save(tmp_path / "model")
    for other in (load(tmp_path / "model"), pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_array_equal(
            other.predict(source.X, tasks=source.tasks), fitted.predict(source.X, tasks=source.tasks)
        )
        np.testing.assert_array_equal(
            other.posterior_["posterior"]["coef"].values, fitted.posterior_["posterior"]["coef"].values
        )
        np.testing.assert_array_equal(other.get_support(), fitted.get_support())
        assert other.diagnostics_ == fitted.diagnostics_ and other.posterior_.attrs == fitted.posterior_.attrs


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prior": "ridge"}, "prior is 'ridge'; choose one of 'auto'"),
        ({"sampler": "hmc"}, "sampler is 'hmc'; choose one of 'auto'"),
        ({"unknown_task": "guess"}, "unknown_task is 'guess'; choose one of 'error', 'mean', 'population'"),
        ({"norm_q": 0.5}, "norm_q is 0.5; pass a number of at least 1, np.inf, or 'learn'"),
        ({"norm_q": "learn", "prior": "mixed_norm"}, "norm_q='learn' does not go with prior='mixed_norm'"),
        ({"norm_q": 3, "prior": "horseshoe"}, "norm_q is 3, but prior='horseshoe' has normal rows"),
        ({"draws": 2}, "draws is 2; pass a whole number of at least 4"),
        ({"chains": 0}, "chains is 0; pass a whole number of at least 1"),
        ({"max_features": 0}, "max_features is 0"),
        ({"effect_size": -1.0}, "effect_size is -1.0; pass a number of at least 0"),
        ({"inclusion_threshold": 1.5}, "inclusion_threshold is 1.5; pass a number between 0 and 1"),
        ({"prior": "jeffreys", "row_scale_bounds": None}, "row_scale_bounds is None, .* improper"),
        ({"row_scale_bounds": (2, 1)}, "row_scale_bounds is .2, 1.; pass 'auto' or two finite numbers"),
        ({"row_scale_bounds": 3.0}, "row_scale_bounds is 3.0; pass 'auto' or two"),
        ({"row_scale_bounds": "none"}, "row_scale_bounds is 'none'; pass 'auto' or two"),
        ({"norm_q": None}, "norm_q is None; pass a number of at least 1"),
        ({"random_state": -1}, "random_state is -1; pass a whole number of at least 0"),
        ({"prior": "mixed_norm", "unknown_task": "population"}, "unknown_task='population' needs row scales"),
        ({"expected_features": 9}, "expected_features is 9 but there are 8 features"),
    ],
)
def test_parameters_are_checked(sim, options, message):
    with pytest.raises(ValueError, match=message):
        BayesianRegressor(**FEW | options).fit(sim.X, sim.y, tasks=sim.tasks)


def test_hinge_needs_the_mixed_norm(labelled):
    with pytest.raises(ValueError, match="loss='hinge' is a pseudo-likelihood for prior='mixed_norm' only"):
        BayesianClassifier(loss="hinge").fit(labelled.X, labelled.y, tasks=labelled.tasks)


@pytest.mark.slow
@pytest.mark.parametrize("prior", ["matrix_variate", "mixed_norm", "horseshoe"])
def test_other_priors_by_nuts(sim, prior):
    model = BayesianRegressor(prior=prior, sampler="nuts", draws=300, tune=300, chains=2, random_state=0)
    model.fit(sim.X, sim.y, tasks=sim.tasks)
    assert np.all(model.inclusion_probability_[sim.support] > 0.95)
    assert model.posterior_.attrs["sampler"] == "nuts"
    if prior == "matrix_variate":
        assert model.task_relations_.shape == (4, 4) and np.allclose(np.diag(model.task_relations_), 1.0)


@pytest.mark.filterwarnings("ignore::bayesmtfs.types.PosteriorWarning")
def test_labels_by_gibbs(labelled):
    model = BayesianClassifier(draws=300, tune=300, chains=2, random_state=0)
    model.fit(labelled.X, labelled.y, tasks=labelled.tasks)
    assert model.score(labelled.X, labelled.y, tasks=labelled.tasks) > 0.85
    assert model.posterior_.attrs["sampler"] == "gibbs" and "log_likelihood" in model.posterior_.children


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{"sampler": "nuts"}, {"loss": "hinge", "prior": "mixed_norm"}], ids=["logistic", "hinge"]
)
def test_labels_by_nuts(labelled, options):
    model = BayesianClassifier(draws=300, tune=300, chains=2, random_state=0, **options)
    model.fit(labelled.X, labelled.y, tasks=labelled.tasks)
    assert model.score(labelled.X, labelled.y, tasks=labelled.tasks) > 0.85
    assert ("log_likelihood" in model.posterior_.children) == ("loss" not in options)


def test_every_parameter_reaches_the_sampler():
    """Each parameter that concerns sampling changes the request."""
    changes = {
        "prior": "jeffreys",
        "norm_q": "learn",
        "sampler": "nuts",
        "draws": 7,
        "tune": 8,
        "chains": 9,
        "expected_features": 3,
        "global_scale": 0.3,
        "learn_global_scale": False,
        "tail_shape": 0.7,
        "spike_shape": 0.8,
        "row_scale_bounds": (0.1, 1.0),
        "norm_q_bounds": (2.0, 5.0),
        "shared_noise": True,
        "shared_mean": True,
        "mean_strength": 3.0,
        "penalty_strength": 4.0,
        "relation_concentration": 3.0,
        "target_accept": 0.95,
        "max_features": 17,
        "fit_intercept": False,
        "standardize": True,
        "scale_target": True,
        "random_state": 5,
        "n_jobs": 3,
        "progress": False,
    }
    plain = BayesianRegressor(random_state=0)
    asked = plain._request(), plain._stated_prior()
    for name, value in changes.items():
        changed = BayesianRegressor(**{"random_state": 0, name: value})
        assert (changed._request(), changed._stated_prior()) != asked, name


def test_seeds():
    for seed, wanted in ((3, 3), (np.int64(4), 4)):
        assert BayesianRegressor(random_state=seed)._request().random_seed == wanted
    drawn = [BayesianRegressor(random_state=np.random.RandomState(1))._request().random_seed for _ in range(2)]
    assert drawn[0] == drawn[1]


def test_classifier_has_all_parameters_of_the_regressor():
    regressor, classifier = BayesianRegressor().get_params(), BayesianClassifier().get_params()
    of_labels = {"loss": "logistic", "class_weight": None}
    assert classifier | {"scale_target": None} == regressor | of_labels  # labels have no unit
    assert BayesianClassifier(tune=5, groups=[1]).get_params()["groups"] == [1]
