"""``prior="spike"``: exact zeros of features and of their entries, through the estimators."""

import json
import warnings
from functools import partial

import arviz as az
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import bayesmtfs as bm
from bayesmtfs.estimators.bayesian import prior_of
from bayesmtfs.reporting.sections import code_to_repeat
from bayesmtfs.types import PosteriorWarning, SelectionWarning

pytestmark = pytest.mark.filterwarnings("ignore:do not trust this posterior yet")
Regressor = partial(bm.BayesianRegressor, prior="spike", draws=250, tune=150, chains=2, random_state=0, n_jobs=1)
Classifier = partial(bm.BayesianClassifier, prior="spike", draws=250, tune=150, chains=2, random_state=0, n_jobs=1)
COEF = np.zeros((8, 4))
COEF[1] = 0.9  # in all tasks
COEF[[4, 6], :2] = [[0.8, -0.8], [0.7, 0.7]]  # in two


def wide(n=200, seed=1, noise=1.0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, len(COEF)))
    return X, X @ COEF + noise * rng.standard_normal((n, COEF.shape[1]))


def long(sizes=(60, 80, 100, 120), seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    tasks = np.repeat(np.arange(len(sizes)), sizes)
    X = rng.standard_normal((len(tasks), len(COEF))) + 5.0 * tasks[:, np.newaxis]
    return X, scale * (np.sum(X * COEF.T[tasks], axis=1) + rng.standard_normal(len(tasks))) + 200.0 * tasks, tasks


@pytest.fixture(scope="module")
def fitted():
    return Regressor().fit(*wide())


def test_features_and_their_tasks_are_found(fitted):
    np.testing.assert_array_equal(fitted.inclusion_probability_ > 0.5, COEF.any(axis=1))
    np.testing.assert_array_equal(fitted.task_inclusion_probability_ > 0.5, (COEF != 0).T)
    np.testing.assert_array_equal(fitted.get_support(), COEF.any(axis=1))
    assert np.all(fitted.local_false_sign_rate_[(COEF != 0).T] < 0.01)
    assert np.all(fitted.local_false_sign_rate_[(COEF == 0).T] > 0.5)  # most draws are 0, and so on neither side
    np.testing.assert_allclose(fitted.coef_.T, COEF, atol=0.3)
    np.testing.assert_allclose(fitted.noise_, 1.0, atol=0.25)


def test_the_tree_holds_zeros_indicators_and_the_rate(fitted):
    posterior = fitted.posterior_["posterior"]
    coef, included = posterior["coef"].values, posterior["included"].values
    assert posterior["included"].dims == ("chain", "draw", "feature", "task")
    assert included.dtype == np.int8
    np.testing.assert_array_equal(coef != 0, included)
    np.testing.assert_allclose(fitted.inclusion_probability_, included.any(axis=3).mean(axis=(0, 1)))
    np.testing.assert_allclose(fitted.task_inclusion_probability_, included.mean(axis=(0, 1)).T)
    assert np.all((posterior["inclusion_rate"] > 0) & (posterior["inclusion_rate"] < 1))
    statistics = fitted.posterior_["sample_stats"]
    np.testing.assert_array_equal(statistics["n_features"], included.any(axis=3).sum(axis=2))
    assert np.all(statistics["lp"].std("draw") > 0)
    assert {"lp", "total_log_likelihood"} <= {row.variable for row in fitted.diagnostics_.table}
    # the log-likelihood of the sampler, in its units, and that of the tree differ by the units of the targets
    total = fitted.posterior_["log_likelihood"]["y"].sum("obs").values
    np.testing.assert_allclose(np.ptp(statistics["total_log_likelihood"].values - total), 0.0, atol=1e-6)


def test_predictions_have_intervals_that_cover(fitted):
    X, Y = wide(n=400, seed=9)
    mean, low, high = fitted.predict(X, interval=0.8)
    assert mean.shape == Y.shape
    assert 0.74 < np.mean((low < Y) & (Y < high)) < 0.86


def test_saved_and_loaded(fitted, tmp_path):
    fitted.save(tmp_path / "fit")
    again = bm.load(tmp_path / "fit")
    for name in ("inclusion_probability_", "task_inclusion_probability_", "coef_", "local_false_sign_rate_"):
        np.testing.assert_array_equal(getattr(again, name), getattr(fitted, name))
    np.testing.assert_array_equal(again.posterior_["posterior"]["included"], fitted.posterior_["posterior"]["included"])
    assert again.diagnostics_.inclusion_gap == fitted.diagnostics_.inclusion_gap


def test_the_same_seed_gives_the_same_draws_on_any_number_of_threads(fitted):
    again = Regressor(n_jobs=2).fit(*wide())
    np.testing.assert_array_equal(again.posterior_["posterior"]["coef"], fitted.posterior_["posterior"]["coef"])
    other = Regressor(random_state=1).fit(*wide())
    assert not np.array_equal(other.coef_, fitted.coef_)


def test_units_of_features_and_targets_cancel(fitted):
    X, Y = wide()
    scale, shift = np.geomspace(1e-3, 1e3, X.shape[1]), np.linspace(-40.0, 40.0, X.shape[1])
    height = np.array([1e-3, 1.0, 50.0, 1e4])
    other = Regressor().fit(X * scale + shift, Y * height + [0.0, 200.0, -3.0, 1e5])
    np.testing.assert_allclose(other.inclusion_probability_, fitted.inclusion_probability_, atol=0.05)
    np.testing.assert_allclose(other.coef_ * scale / height[:, np.newaxis], fitted.coef_, atol=0.03)


def test_levels_of_tasks_do_not_matter_in_the_long_form():
    X, y, tasks = long()
    model = Regressor().fit(X, y, tasks=tasks)
    np.testing.assert_array_equal(model.task_inclusion_probability_ > 0.5, (COEF != 0).T)
    np.testing.assert_allclose(model.coef_.T, COEF, atol=0.4)
    np.testing.assert_allclose(model.predict(X, tasks=tasks), y, atol=6.0)


def test_shared_noise_and_no_intercept():
    rng = np.random.default_rng(4)
    X = rng.standard_normal((100, 8)) + 1.0
    Y = X @ COEF + rng.standard_normal((100, 4))
    model = Regressor(shared_noise=True, fit_intercept=False).fit(X, Y)
    np.testing.assert_array_equal(model.intercept_, 0.0)
    np.testing.assert_allclose(model.coef_.T, COEF, atol=0.35)
    assert "intercept" not in model.posterior_["posterior"]


def test_missing_cells_weights_and_tiny_tasks():
    X, Y = wide(n=90)
    Y[60:, 0] = np.nan
    Y[3:, 3] = np.nan  # three rows
    model = Regressor().fit(X, Y, sample_weight=np.where(np.arange(90) % 2, 0.5, 2.0))
    assert model.inclusion_probability_[1] > 0.9
    assert np.isfinite(model.coef_).all()


def test_a_feature_that_a_task_lacks_is_off_there():
    X, y, tasks = long()
    frames = [pd.DataFrame(X[tasks == t], columns=list("abcdefgh")) for t in range(4)]
    frames[0] = frames[0].drop(columns="b")
    data = bm.TaskData.from_list([(frame, y[tasks == t]) for t, frame in enumerate(frames)])
    model = Regressor().fit(data, None)
    included = model.posterior_["posterior"]["included"].sel(feature="b")
    assert not included.isel(task=0).any()
    assert included.isel(task=slice(1, 4)).mean() > 0.9
    assert model.coef_[0, list(model.posterior_["posterior"]["feature"].values).index("b")] == 0.0


def test_a_duplicated_column_shares_the_probability():
    X, Y = wide()
    model = Regressor(draws=600).fit(np.column_stack([X, X[:, 1]]), Y)
    included = model.posterior_["posterior"]["included"].any("task").values
    assert included[:, :, [1, 8]].any(axis=2).mean() > 0.99
    assert np.all(included[:, :, [1, 8]].mean(axis=(0, 1)) > 0.2)  # chains visit both
    np.testing.assert_allclose(model.coef_[:, 1] + model.coef_[:, 8], 0.9, atol=0.35)


def test_constant_columns_have_no_coefficient():
    X, Y = wide()
    model = Regressor().fit(np.column_stack([X, np.full(len(X), 3.0)]), Y)
    np.testing.assert_array_equal(model.coef_[:, -1], 0.0)
    assert model.inclusion_probability_[-1] == 0.0


def test_groups_are_on_or_off_together():
    rng = np.random.default_rng(2)
    level = rng.integers(4, size=240)
    frame = pd.DataFrame({"x": rng.standard_normal(240), "z": rng.standard_normal(240), "kind": pd.Categorical(level)})
    frame["task"] = np.arange(240) % 2
    frame["y"] = np.array([0.0, 1.5, -1.0, 0.3])[level] * (frame["task"] == 0) + rng.standard_normal(240)
    model = Regressor().fit(bm.TaskData.from_frame(frame, target="y", task="task"), None)
    kinds = ["kind" in name for name in model.posterior_["posterior"]["feature"].values.tolist()]
    included = model.posterior_["posterior"]["included"].values[:, :, kinds]
    np.testing.assert_array_equal(included.any(axis=2), included.all(axis=2))
    assert model.task_inclusion_probability_[0, kinds].min() > 0.95
    assert model.task_inclusion_probability_[1, kinds].max() < 0.5


def test_more_features_than_rows_are_screened():
    rng = np.random.default_rng(6)
    X = rng.standard_normal((50, 300))
    Y = X[:, :1] * [1.5, 1.5] + rng.standard_normal((50, 2))
    with pytest.warns(SelectionWarning, match="screened out"):
        model = Regressor(max_features=60).fit(X, Y)
    assert model.inclusion_probability_[0] > 0.9
    assert model.inclusion_probability_[1:].max() < 0.5


def test_one_task_is_plain_variable_selection():
    X, Y = wide()
    model = Regressor().fit(X, Y[:, 0])
    np.testing.assert_array_equal(model.inclusion_probability_ > 0.5, COEF[:, 0] != 0)


def test_labels():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((300, 8))
    Y = np.where(rng.random((300, 4)) < 1.0 / (1.0 + np.exp(-1.5 * X @ COEF)), "yes", "no")
    model = Classifier().fit(np.tile(X, (4, 1)), Y.T.ravel(), tasks=np.repeat(np.arange(4), 300))
    np.testing.assert_array_equal(model.task_inclusion_probability_ > 0.5, (COEF != 0).T)
    np.testing.assert_allclose(model.coef_.T, 1.5 * COEF, atol=0.6)
    assert model.predict_proba(X[:5], tasks=np.zeros(5, int)).shape == (5, 2)


def test_expected_features_is_the_prior_expectation():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((4, 12)), rng.standard_normal(4)  # data that say next to nothing
    few, many = (Regressor(expected_features=k, draws=600).fit(X, y) for k in (1.0, 5.0))
    assert few.inclusion_probability_.sum() == pytest.approx(1.0, abs=0.6)
    assert many.inclusion_probability_.sum() == pytest.approx(5.0, abs=1.5)


def test_chains_that_disagree_are_reported():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((40, 30))
    Y = X[:, :3] @ np.full((3, 2), 0.35) + rng.standard_normal((40, 2))
    with pytest.warns(PosteriorWarning, match="inclusion probability"):
        model = bm.BayesianRegressor(prior="spike", draws=12, tune=4, chains=4, random_state=0, n_jobs=1).fit(X, Y)
    assert model.diagnostics_.inclusion_gap > 0.1
    assert not model.converged_


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"norm_q": 1}, "norm_q is 1, but prior='spike' has normal rows"),
        ({"shared_mean": True}, "learns how much effects have in common"),
        ({"sampler": "nuts"}, "discrete"),
        ({"sampler": "fast"}, "sampler='variational'"),
        ({"loss": "huber"}, "'huber' does not go with prior='spike'.*'negative_binomial"),
        ({"loss": "absolute", "sampler": "variational"}, "'variational' does not have loss='absolute'"),
        ({"unknown_task": "population"}, "'spike' have not"),
        ({"expected_features": 9.0}, "expected_features is 9.0"),
    ],
)
def test_what_is_not_offered_is_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        Regressor(**settings).fit(*wide(n=20))


def test_labels_need_whole_weights():
    X, Y = wide(n=30)
    with pytest.raises(ValueError, match="whole numbers"):
        Classifier().fit(X, Y[:, 0] > 0, sample_weight=np.full(30, 0.5))


# ---------------------------------------------------------------------- the default


@pytest.mark.parametrize(
    ("settings", "prior"),
    [
        ({}, "spike"),
        ({"norm_q": 2.0, "expected_features": 2, "effect_size": 0.3, "shared_noise": True}, "spike"),
        ({"norm_q": 1}, "generalized_normal"),
        ({"norm_q": "learn"}, "generalized_normal"),
        ({"shared_mean": True}, "generalized_normal"),
        ({"unknown_task": "population"}, "generalized_normal"),
        ({"sampler": "variational"}, "spike"),
        ({"sampler": "nuts"}, "generalized_normal"),
        ({"global_scale": 0.1}, "generalized_normal"),
        ({"tail_shape": 2.0}, "generalized_normal"),
        ({"loss": "absolute"}, "spike"),
        ({"loss": "negative_binomial(learn)"}, "spike"),
        ({"loss": "quantile(0.9)"}, "generalized_normal"),
        ({"loss": "poisson"}, "generalized_normal"),
        ({"prior": "jeffreys"}, "jeffreys"),
    ],
)
def test_the_default_prior_is_the_spike_where_it_is_defined(settings, prior):
    assert prior_of(bm.BayesianRegressor(**settings)) == prior


def test_weights_that_cannot_be_drawn_take_the_continuous_prior():
    model = bm.BayesianClassifier()
    assert prior_of(model, np.ones(3)) == "spike"
    assert prior_of(model, np.full(3, 0.5)) == "generalized_normal"
    assert prior_of(bm.BayesianRegressor(), np.full(3, 0.5)) == "spike"


def test_the_default_is_the_same_fit_and_every_record_names_its_prior(fitted, tmp_path):
    model = Regressor(prior="auto").fit(*wide())
    np.testing.assert_array_equal(model.coef_, fitted.coef_)
    model.save(tmp_path / "fit")
    for one in (model, bm.load(tmp_path / "fit")):
        assert (one.prior, one.prior_, one.result_.settings["prior"]) == ("auto", "spike", "spike")
        tree = one.posterior_.attrs
        assert (tree["prior"], json.loads(tree["settings"])["prior"]) == ("spike", "spike")
    assert "prior='spike'" in code_to_repeat(model.result_)
    assert clone(model).prior == "auto"


def test_arviz_summarises_all_variables():
    sim = bm.simulate_tasks(n_tasks=2, n_features=3, n_relevant=1, n_samples=30, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = bm.BayesianRegressor(draws=30, tune=30, chains=2, random_state=0).fit(sim.X, sim.y, tasks=sim.tasks)
        table = az.summary(model.posterior_)
    own = [name for name in table.index if name.startswith("included")]
    assert len(own) == 6
    chance = model.task_inclusion_probability_.T.ravel()
    np.testing.assert_allclose(table.loc[own, "mean"].astype(float), chance, atol=0.01)
