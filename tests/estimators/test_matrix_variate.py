"""MatrixVariate estimators: relations with names in order, files, errors."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from bayesmtfs import simulate_tasks
from bayesmtfs.estimators.base import load
from bayesmtfs.estimators.em import MatrixVariateClassifier, MatrixVariateRegressor
from bayesmtfs.priors.generalized_normal import GeneralizedNormal
from bayesmtfs.types import ConvergenceWarning

ROUTES = ["mode", "integrated"]


@pytest.fixture(scope="module")
def sim():
    return simulate_tasks(
        n_tasks=4, n_features=20, n_samples=50, n_relevant=5, relatedness=0.9, opposed_tasks=1, random_state=3
    )


@pytest.fixture(scope="module")
def fitted(sim):
    return {route: MatrixVariateRegressor(coefficients=route).fit(sim.X, sim.y, tasks=sim.tasks) for route in ROUTES}


@pytest.mark.parametrize("route", ROUTES)
def test_relations_and_support_are_found(sim, fitted, route):
    model = fitted[route]
    R = model.task_relations_
    np.testing.assert_array_equal(np.sign(R), np.sign(sim.task_correlation))
    assert np.all(np.diag(R) == 1) and np.linalg.eigvalsh(R)[0] > 0
    assert model.get_support()[sim.support].mean() >= 0.8
    assert np.all(np.diff(model.objective_trace_) <= 1e-10 * np.abs(model.objective_trace_[:-1]))
    np.testing.assert_array_equal(model.result_.task_relations, R)


def test_row_scales_are_those_of_the_whitened_rows(fitted):
    model = fitted["mode"]
    values, vectors = np.linalg.eigh(model.task_relations_)
    V = model.coef_.T @ (vectors / np.sqrt(values)) @ vectors.T
    np.testing.assert_allclose(model.row_scales_, GeneralizedNormal(2.0).row_scales(V), rtol=1e-8)
    assert np.array_equal(model.row_scales_ > 0, model.get_support())


def test_posterior_deviations_come_with_integrated_coefficients(fitted):
    model = fitted["integrated"]
    assert model.coef_std_.shape == model.coef_.shape and fitted["mode"].coef_std_ is None
    assert np.array_equal((model.coef_std_ > 0).any(axis=0), model.get_support())
    assert np.array_equal(model.row_variances_ > 0, model.get_support())


@pytest.mark.parametrize("route", ROUTES)
def test_standardised_fits_are_in_the_users_units(sim, route):
    factor = np.geomspace(0.1, 10, 20)
    settings = {"coefficients": route, "standardize": True}
    one = MatrixVariateRegressor(**settings).fit(sim.X, sim.y, tasks=sim.tasks)
    two = MatrixVariateRegressor(**settings).fit(sim.X * factor, sim.y, tasks=sim.tasks)
    np.testing.assert_allclose(two.coef_ * factor, one.coef_, rtol=1e-4, atol=1e-7)
    if route == "integrated":
        np.testing.assert_allclose(two.coef_std_ * factor, one.coef_std_, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("route", ROUTES)
def test_task_labels_order_the_relations(sim, fitted, route):
    labels = np.array(["d", "b", "a", "c"])[sim.tasks]
    model = MatrixVariateRegressor(coefficients=route).fit(sim.X, sim.y, tasks=labels)
    order = np.array([2, 1, 3, 0])
    assert model.tasks_.tolist() == ["a", "b", "c", "d"]
    np.testing.assert_allclose(model.task_relations_, fitted[route].task_relations_[np.ix_(order, order)], atol=1e-4)


@pytest.mark.parametrize("wrap", [sp.csr_matrix, pd.DataFrame])
@pytest.mark.parametrize("route", ROUTES)
def test_containers_give_the_same(sim, fitted, route, wrap):
    model = clone(fitted[route]).fit(wrap(sim.X), sim.y, tasks=sim.tasks)
    np.testing.assert_allclose(model.coef_, fitted[route].coef_, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("route", ROUTES)
def test_saved_models_come_back(sim, fitted, route, tmp_path):
    fitted[route].save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(sim.X, tasks=sim.tasks), fitted[route].predict(sim.X, tasks=sim.tasks))
    np.testing.assert_array_equal(loaded.task_relations_, fitted[route].task_relations_)
    assert (loaded.coef_std_ is None) == (route == "mode")


def test_warm_start_begins_where_the_last_fit_ended(sim):
    model = MatrixVariateRegressor(coefficients="integrated", warm_start=True).fit(sim.X, sim.y, tasks=sim.tasks)
    cold, coef = model.n_iter_, model.coef_
    model.fit(sim.X, sim.y, tasks=sim.tasks)
    assert model.n_iter_ < cold / 2
    np.testing.assert_allclose(model.coef_, coef, atol=0.02)
    model.fit(sim.X[:, :10], sim.y, tasks=sim.tasks)  # another shape: from the beginning
    assert model.coef_.shape == (4, 10)


def test_one_task_has_the_trivial_relation():
    sim = simulate_tasks(n_tasks=1, n_features=10, n_relevant=3, random_state=0)
    for route in ROUTES:
        model = MatrixVariateRegressor(coefficients=route).fit(sim.X, sim.y)
        np.testing.assert_array_equal(model.task_relations_, [[1.0]])


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_classifier_finds_relations(route, loss):
    sim = simulate_tasks(
        n_tasks=3,
        n_features=10,
        n_samples=150,
        n_relevant=4,
        relatedness=0.9,
        opposed_tasks=1,
        kind="classification",
        random_state=1,
    )
    model = MatrixVariateClassifier(coefficients=route, loss=loss).fit(sim.X, sim.y, tasks=sim.tasks)
    assert model.score(sim.X, sim.y, tasks=sim.tasks) > 0.75
    related = np.abs(model.task_relations_) > 1e-3
    assert np.all(np.sign(model.task_relations_)[related] == np.sign(sim.task_correlation)[related])


def test_learned_q_is_used_with_relations(sim):
    model = MatrixVariateRegressor(norm_q="learn")
    with pytest.warns(UserWarning, match="q is not identified"):
        model.fit(sim.X, sim.y, tasks=sim.tasks)
    assert 1 <= model.norm_q_ <= 50 and model.norm_q_interval_[0] <= model.norm_q_ <= model.norm_q_interval_[1]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"relation_shrinkage": 0.0}, "relation_shrinkage is 0.0; pass the number of unrelated rows"),
        ({"norm_q": np.inf}, "norm_q is inf, for which task relations are not fitted; pass a finite"),
        ({"norm_q": 3, "coefficients": "integrated"}, "coefficients='integrated' needs norm_q=2"),
        ({"coefficients": "median"}, "coefficients is 'median'; choose one of"),
    ],
)
def test_bad_parameters(sim, parameters, message):
    with pytest.raises(ValueError, match=message):
        MatrixVariateRegressor(**parameters).fit(sim.X, sim.y, tasks=sim.tasks)


def test_stopping_early_is_said(sim):
    with pytest.warns(ConvergenceWarning, match="raise max_iter"):
        model = MatrixVariateRegressor(coefficients="integrated", max_iter=3).fit(sim.X, sim.y, tasks=sim.tasks)
    assert not model.converged_
