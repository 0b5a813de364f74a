"""Jeffreys and generalized normal estimators: forms of the data, files, messages."""

import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from bayesmtfs import TaskData, simulate_tasks
from bayesmtfs.estimators.base import load
from bayesmtfs.estimators.em import (
    GeneralizedNormalClassifier,
    GeneralizedNormalRegressor,
    JeffreysClassifier,
    JeffreysRegressor,
    MatrixVariateRegressor,
)
from bayesmtfs.families import Dispersion, Family
from bayesmtfs.priors.generalized_normal import GeneralizedNormal
from bayesmtfs.types import ConvergenceWarning, DataWarning

REGRESSORS = [JeffreysRegressor(), GeneralizedNormalRegressor()]
CLASSIFIERS = [JeffreysClassifier(), JeffreysClassifier(loss="squared"), GeneralizedNormalClassifier()]
names = pytest.mark.parametrize("model", REGRESSORS, ids=lambda model: type(model).__name__)


@pytest.fixture(scope="module")
def sim():
    return simulate_tasks(
        n_tasks=4, n_features=12, n_samples=[30, 40, 50, 35], n_relevant=4, intercept_scale=2.0, random_state=0
    )


@pytest.fixture(scope="module")
def labelled():
    return simulate_tasks(
        n_tasks=4, n_features=10, n_samples=150, n_relevant=3, kind="classification", snr=20.0, random_state=1
    )


# ---------------------------------------------------------------------- what a fit leaves behind


@names
def test_support_intercepts_scales_and_traces(sim, model):
    model = clone(model).fit(sim.X, sim.y, tasks=sim.tasks)
    np.testing.assert_array_equal(model.get_support(), sim.support)
    np.testing.assert_allclose(model.intercept_, sim.intercept, atol=0.5)
    np.testing.assert_allclose(model.row_scales_, GeneralizedNormal(2.0).row_scales(model.coef_.T), rtol=1e-12)
    trace = model.objective_trace_
    assert len(trace) == model.n_iter_ + 1 and np.all(np.diff(trace) <= 1e-10 * np.abs(trace[:-1]))
    assert model.converged_ and model.noise_.shape == (4,)
    np.testing.assert_array_equal(model.result_.noise, model.noise_)
    np.testing.assert_array_equal(model.result_.row_scales, model.row_scales_)


@pytest.mark.parametrize("model", CLASSIFIERS, ids=["logistic", "squared", "generalized normal"])
def test_classifiers_find_the_support_and_predict(labelled, model):
    model = clone(model).fit(labelled.X, labelled.y, tasks=labelled.tasks)
    np.testing.assert_array_equal(model.get_support(), labelled.support)
    assert model.score(labelled.X, labelled.y, tasks=labelled.tasks) > 0.85
    assert np.all(np.diff(model.objective_trace_) <= 1e-10 * np.abs(model.objective_trace_[:-1]))


def test_several_classes_are_tasks_over_one_design(labelled):
    y = np.array(["a", "b", "c"])[np.digitize(labelled.X @ labelled.coef[0], [-2.0, 2.0])]
    model = JeffreysClassifier().fit(labelled.X, y)
    assert model.coef_.shape == (3, 10) and model.predict_proba(labelled.X[:4]).shape == (4, 3)
    assert np.mean(model.predict(labelled.X) == y) > 0.8


# ---------------------------------------------------------------------- the same data in other clothes


@names
def test_forms_of_the_same_data_agree(model):
    sim = simulate_tasks(
        n_tasks=3, n_features=8, n_samples=40, n_relevant=3, shared_design=True, missing=0.2, random_state=2
    )
    model = clone(model).set_params(scale_target=False)
    wide = clone(model).fit(sim.X, sim.y)
    rows, columns = np.nonzero(~np.isnan(sim.y))
    long = clone(model).fit(sim.X[rows], sim.y[rows, columns], tasks=columns)
    sparse = clone(model).fit(sp.csr_matrix(sim.X[rows]), sim.y[rows, columns], tasks=columns)
    frame = pd.DataFrame(sim.X[rows]).add_prefix("f").assign(task=columns)
    column = clone(model).set_params(task_column="task").fit(frame, sim.y[rows, columns])
    given = clone(model).fit(TaskData.from_wide(sim.X, sim.y))
    for other in (long, sparse, column, given):
        np.testing.assert_allclose(other.coef_, wide.coef_, rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(other.noise_, wide.noise_, rtol=1e-3)
    assert wide.predict(sim.X).shape == (40, 3)


@names
def test_weight_two_is_a_repeated_row(sim, model):
    twice = np.append(np.arange(len(sim.y)), np.arange(0, len(sim.y), 3))
    weight = np.where(np.arange(len(sim.y)) % 3 == 0, 2.0, 1.0)
    weighted = clone(model).fit(sim.X, sim.y, tasks=sim.tasks, sample_weight=weight)
    repeated = clone(model).fit(sim.X[twice], sim.y[twice], tasks=sim.tasks[twice])
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-3, atol=1e-5)


@names
def test_standardised_features_give_coefficients_in_the_users_units(sim, model):
    model = clone(model).set_params(standardize=True).fit(sim.X * np.geomspace(0.01, 100, 12), sim.y, tasks=sim.tasks)
    np.testing.assert_allclose(model.coef_ * np.geomspace(0.01, 100, 12), sim.coef, atol=0.6)


def test_relative_offset_makes_the_fit_free_of_units(sim):
    models = [
        GeneralizedNormalRegressor(offset=None).fit(scale * sim.X, sim.y, tasks=sim.tasks) for scale in (1.0, 100.0)
    ]
    np.testing.assert_allclose(100 * models[1].coef_, models[0].coef_, rtol=1e-4, atol=1e-7)
    assert models[0].offset_ == pytest.approx(100 * models[1].offset_)


def test_known_noise_and_offset_enter_the_stated_objective(sim):
    model = GeneralizedNormalRegressor(norm_q=3, offset=0.1, noise=0.7).fit(sim.X, sim.y, tasks=sim.tasks)
    residual = sim.y - model.predict(sim.X, tasks=sim.tasks)
    stated = np.sum(residual**2) / 2 / 0.7**2 + 4 * np.sum(np.log(np.linalg.norm(model.coef_, 3, axis=0) + 0.1))
    assert model.objective_trace_[-1] == pytest.approx(stated, rel=1e-10)


# ---------------------------------------------------------------------- starts, files, q


@names
def test_warm_start_begins_where_the_last_fit_ended(sim, model):
    model = clone(model).set_params(warm_start=True).fit(sim.X, sim.y, tasks=sim.tasks)
    first = model.coef_.copy()
    model.fit(sim.X, sim.y, tasks=sim.tasks)
    np.testing.assert_allclose(model.coef_, first, rtol=1e-3, atol=1e-4)


def test_users_start_decides_which_features_can_be_kept(sim):
    init = sim.coef.copy()
    dropped = np.flatnonzero(sim.support)[0]
    init[:, dropped] = 0.0
    model = JeffreysRegressor(init=init).fit(sim.X, sim.y, tasks=sim.tasks)
    assert not model.get_support()[dropped]
    with pytest.raises(ValueError, match=r"init has shape \(4, 3\); pass coefficients of shape \(4, 12\)"):
        JeffreysRegressor(init=init[:, :3]).fit(sim.X, sim.y, tasks=sim.tasks)


@pytest.mark.parametrize("model", [*REGRESSORS, JeffreysRegressor(coefficients="integrated"), *CLASSIFIERS])
def test_files_bring_everything_back(sim, labelled, model, tmp_path):
    source = sim if isinstance(model, (JeffreysRegressor, GeneralizedNormalRegressor)) else labelled
    model = clone(model).fit(source.X, source.y, tasks=source.tasks)
    model.save(tmp_path / "model")
    for other in (load(tmp_path / "model"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(
            other.predict(source.X, tasks=source.tasks), model.predict(source.X, tasks=source.tasks)
        )
        for name in model._saved_names():
            assert hasattr(other, name) == hasattr(model, name)  # only some families learn a parameter
            np.testing.assert_array_equal(getattr(other, name, None), getattr(model, name, None))


def test_learned_q_comes_with_an_interval():
    sim = simulate_tasks(n_tasks=25, n_features=10, n_samples=50, n_relevant=8, norm_q=1.2, random_state=0)
    model = JeffreysRegressor(norm_q="learn").fit(sim.X, sim.y, tasks=sim.tasks)
    low, high = model.norm_q_interval_
    assert 1.0 <= low < model.norm_q_ < high < 2.0
    draws = [
        JeffreysRegressor(norm_q="learn", q_learning="integrated", random_state=7).fit(sim.X, sim.y, tasks=sim.tasks)
        for _ in range(2)
    ]
    assert draws[0].norm_q_ == draws[1].norm_q_ == pytest.approx(model.norm_q_, rel=0.15)
    fixed = JeffreysRegressor(norm_q=3).fit(sim.X, sim.y, tasks=sim.tasks)
    assert fixed.norm_q_ == 3.0 and fixed.norm_q_interval_ == (3.0, 3.0)


def test_few_tasks_do_not_identify_q(sim):
    with pytest.warns(DataWarning, match="q is not identified: its 90% interval from .* take norm_q_ as a guess"):
        JeffreysRegressor(norm_q="learn").fit(sim.X, sim.y, tasks=sim.tasks)


def test_the_printed_update_warns_of_itself():
    sim = simulate_tasks(n_tasks=25, n_features=10, n_samples=50, n_relevant=8, random_state=0)
    with pytest.warns(DataWarning, match="q_learning='paper' is the printed update, which depends on the units"):
        JeffreysRegressor(norm_q="learn", q_learning="paper").fit(sim.X, sim.y, tasks=sim.tasks)


def test_integrated_coefficients_have_deviations(sim):
    model = JeffreysRegressor(coefficients="integrated").fit(sim.X, sim.y, tasks=sim.tasks)
    assert model.coef_std_.shape == model.coef_.shape
    inside = np.abs(model.coef_ - sim.coef)[:, sim.support] < 3 * model.coef_std_[:, sim.support]
    assert inside.mean() > 0.8
    assert JeffreysRegressor().fit(sim.X, sim.y, tasks=sim.tasks).coef_std_ is None


# ---------------------------------------------------------------------- a family of one's own


class Counts(Family):
    """Poisson counts: smooth, with a curvature that has no bound."""

    name = "counts of a test"
    targets = "counts"

    def value(self, y, eta):
        return np.exp(eta) - y * eta

    def gradient(self, y, eta):
        return np.exp(eta) - y

    def curvature(self, y, eta):
        return np.exp(eta) + 0.0 * y

    def conjugate(self, y, dual):
        rate = np.maximum(y + dual, 0.0)
        return np.where(y + dual < 0, np.inf, rate * np.log(np.maximum(rate, 1e-300)) - rate)

    def mean(self, eta):
        return np.exp(eta)


class NoisyCounts(Counts):
    """The same with a noise, which no loss but the squared one has here."""

    dispersion = (Dispersion("noise"),)


@pytest.fixture(scope="module")
def counts():
    rng = np.random.default_rng(0)
    X, tasks, W = rng.standard_normal((320, 12)), np.repeat(np.arange(4), 80), np.zeros((12, 4))
    W[:3] = 0.5 * rng.standard_normal((3, 4))
    rate = np.exp(3.0 + np.einsum("ip,pi->i", X, W[:, tasks]))
    return X, rng.poisson(rate).astype(float), tasks, W


OWN = {
    "generalized normal": GeneralizedNormalRegressor(loss=Counts()),
    "q = inf": GeneralizedNormalRegressor(loss=Counts(), norm_q=np.inf),
    "Jeffreys": JeffreysRegressor(loss=Counts()),
    "q = 1.5": JeffreysRegressor(loss=Counts(), norm_q=1.5),
    "learned q": JeffreysRegressor(loss=Counts(), norm_q="learn"),
    "shared mean": JeffreysRegressor(loss=Counts(), shared_mean=True),
    "relations": MatrixVariateRegressor(loss=Counts()),
}


@pytest.mark.filterwarnings("ignore:q is not identified")
@pytest.mark.parametrize("model", OWN.values(), ids=OWN)
def test_a_smooth_family_of_the_users_own_is_fitted(counts, model):
    X, y, tasks, W = counts
    model = clone(model).fit(X, y, tasks=tasks)
    trace = model.objective_trace_
    assert model.converged_ and np.all(np.diff(trace) <= 1e-10 * np.abs(trace[:-1]))
    np.testing.assert_allclose(model.coef_.T, W, atol=0.15)
    np.testing.assert_array_equal(model.noise_, 1.0)
    np.testing.assert_allclose(model.intercept_, 3.0, atol=0.15)
    if not model.shared_mean:
        np.testing.assert_array_equal(model.get_support(), W.any(axis=1))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            JeffreysRegressor(loss=Counts(), coefficients="integrated"),
            "needs a conditionally normal form; Counts offers",
        ),
        (JeffreysRegressor(loss=NoisyCounts()), "learns the noise of the squared loss only, and NoisyCounts"),
        (GeneralizedNormalRegressor(loss=NoisyCounts()), "noise='learn' needs loss='squared'"),
        (JeffreysRegressor(loss="absolute"), "JeffreysRegressor needs a smooth loss but loss is 'absolute'"),
        (JeffreysRegressor(loss="logistic"), "loss is 'logistic'; choose one of 'squared'"),
        (JeffreysClassifier(loss=Counts()), "loss is Counts.., a family of counts; use a regressor"),
    ],
)
def test_families_that_lack_something_are_refused_in_words(counts, model, message):
    X, y, tasks, _ = counts
    with pytest.raises(ValueError, match=message):
        model.fit(X, y if isinstance(model, JeffreysRegressor | GeneralizedNormalRegressor) else y > 20, tasks=tasks)


# ---------------------------------------------------------------------- messages


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"norm_q": 0.5}, "norm_q is 0.5; pass a number of at least 1, np.inf, or 'learn'"),
        ({"norm_q": "guess"}, "norm_q is 'guess'"),
        ({"norm_q": 3, "coefficients": "integrated"}, "coefficients='integrated' needs norm_q=2"),
        ({"q_learning": "magic"}, "q_learning is 'magic'; choose one of 'two_stage'"),
        ({"init": "ridge"}, "init is 'ridge'; choose one of 'mixed_norm'"),
        ({"norm_q_bounds": (0.5, 3)}, "norm_q_bounds is .*; pass two finite numbers"),
        ({"noise_floor": -1.0}, "noise_floor is -1.0; pass a share of sd"),
        ({"start_strength": 2.0}, "start_strength is 2.0; pass a share above 0"),
        ({"tol": 0.0}, "tol is 0.0; pass a positive number"),
        ({"max_iter": 0}, "max_iter is 0; pass a whole number"),
    ],
)
def test_parameters_are_checked(sim, options, message):
    with pytest.raises(ValueError, match=message):
        JeffreysRegressor(**options).fit(sim.X, sim.y, tasks=sim.tasks)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"offset": 0.0}, "offset is 0.0; pass a positive number"),
        ({"noise": "guess"}, "noise is 'guess'; pass a positive number, or 'learn'"),
        ({"noise": -1.0}, "noise is -1.0; pass a positive number, or 'learn'"),
        ({"noise": "learn"}, "noise='learn' needs loss='squared'"),
        ({"norm_q": 0.9}, "norm_q is 0.9; pass a number of at least 1"),
    ],
)
def test_parameters_of_generalized_normal_are_checked(labelled, options, message):
    with pytest.raises(ValueError, match=message):
        GeneralizedNormalClassifier(**options).fit(labelled.X, labelled.y, tasks=labelled.tasks)


def test_single_rows_and_early_stops_warn(sim):
    keep = np.append(np.flatnonzero(sim.tasks < 3), np.flatnonzero(sim.tasks == 3)[:1])
    with pytest.warns(DataWarning, match="task 3 has one row only, so that its noise is not known"):
        JeffreysRegressor().fit(sim.X[keep], sim.y[keep], tasks=sim.tasks[keep])
    with pytest.warns(ConvergenceWarning, match="the fit stopped after 1 iterations .* raise max_iter or tol"):
        JeffreysRegressor(max_iter=1, noise_floor=0.1).fit(sim.X, sim.y, tasks=sim.tasks)
