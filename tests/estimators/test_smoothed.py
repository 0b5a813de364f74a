"""Smoothed estimators: forms of the data, limits, files, messages."""

import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, Ridge

from bayesmtfs import TaskData, simulate_tasks
from bayesmtfs.estimators.smoothed import SmoothedClassifier, SmoothedRegressor
from bayesmtfs.types import ConvergenceWarning

MODELS = [SmoothedClassifier(), SmoothedRegressor()]
both = pytest.mark.parametrize("model", MODELS, ids=["classifier", "regressor"])


def simulated(model, **options):
    kind = "classification" if isinstance(model, SmoothedClassifier) else "regression"
    return simulate_tasks(
        n_tasks=3, n_features=5, n_relevant=5, n_samples=[30, 40, 50], kind=kind, random_state=1, **options
    )


@both
def test_relations_are_weights_that_sum_to_one(model):
    sim = simulated(model)
    model = clone(model).set_params(concentration=0.3, smoothing=0.1).fit(sim.X, sim.y, tasks=sim.tasks)
    eta = model.task_relations_
    np.testing.assert_allclose(eta.sum(axis=1), 1.0, rtol=1e-12)
    assert (eta >= 0).all() and (np.diag(eta) >= 0.3).all()
    assert np.all(np.diff(model.objective_trace_) <= 1e-9) and model.converged_


def test_no_attention_to_others_is_one_ridge_fit_per_task():
    sim = simulated(MODELS[0])
    model = SmoothedClassifier(concentration=1.0, penalty_strength=0.2).fit(sim.X, sim.y, tasks=sim.tasks)
    for k in range(3):
        rows = sim.tasks == k
        alone = LogisticRegression(C=1 / (0.2 * rows.sum()), tol=1e-10, max_iter=1000).fit(sim.X[rows], sim.y[rows])
        np.testing.assert_allclose(model.coef_[k], alone.coef_[0], atol=1e-5)
        np.testing.assert_allclose(model.intercept_[k], alone.intercept_[0], atol=1e-5)


def test_even_attention_is_one_ridge_fit_for_all():
    sim = simulated(MODELS[1])
    model = SmoothedRegressor(concentration=0.0, smoothing=1e9, penalty_strength=0.2).fit(sim.X, sim.y, tasks=sim.tasks)
    weight = 1.0 / np.bincount(sim.tasks)[sim.tasks] / 3
    pooled = Ridge(alpha=0.2).fit(sim.X, sim.y, sample_weight=weight)
    np.testing.assert_allclose(model.coef_, np.tile(pooled.coef_, (3, 1)), atol=1e-7)


@both
def test_forms_of_the_same_data_agree(model):
    sim = simulated(model)
    index = np.random.RandomState(0).permutation(len(sim.y))
    first = clone(model).fit(sim.X, sim.y, tasks=sim.tasks)
    frame = pd.DataFrame(sim.X).add_prefix("f").assign(task=sim.tasks)
    others = [
        clone(model).fit(sim.X[index], sim.y[index], tasks=sim.tasks[index]),
        clone(model).fit(sp.csr_matrix(sim.X), sim.y, tasks=sim.tasks),
        clone(model).set_params(task_column="task").fit(frame, sim.y),
        clone(model).fit(TaskData.from_long(sim.X, sim.y, sim.tasks)),
    ]
    for other in others:
        np.testing.assert_allclose(other.coef_, first.coef_, atol=1e-5)
    wide = np.full((len(sim.y), 3), np.nan)
    wide[np.arange(len(sim.y)), sim.tasks] = sim.y
    np.testing.assert_allclose(clone(model).fit(sim.X, wide).coef_, first.coef_, atol=1e-5)


@both
def test_rows_of_unit_length(model):
    sim = simulated(model)
    scaled = sim.X / np.linalg.norm(sim.X, axis=1, keepdims=True)
    inside = clone(model).set_params(normalize_rows=True).fit(sim.X, sim.y, tasks=sim.tasks)
    outside = clone(model).fit(scaled, sim.y, tasks=sim.tasks)
    np.testing.assert_allclose(inside.coef_, outside.coef_, rtol=1e-8)
    for X in (sim.X, sp.csr_matrix(sim.X)):
        np.testing.assert_allclose(inside.predict(X, tasks=sim.tasks), outside.predict(scaled, tasks=sim.tasks))
    given = TaskData.from_long(sim.X, sim.y, sim.tasks)
    np.testing.assert_allclose(inside.predict(given), outside.predict(scaled, tasks=sim.tasks))


@both
def test_pickled_models_and_files_predict_the_same(model, tmp_path):
    sim = simulated(model)
    model = clone(model).fit(sim.X, sim.y, tasks=sim.tasks)
    model.save(tmp_path / "model")
    stored = type(model).from_stored(pytest.importorskip("bayesmtfs.results.persistence").read(tmp_path / "model"))
    for other in (pickle.loads(pickle.dumps(model)), stored):
        np.testing.assert_array_equal(other.task_relations_, model.task_relations_)
        np.testing.assert_array_equal(other.predict(sim.X, tasks=sim.tasks), model.predict(sim.X, tasks=sim.tasks))


def test_standardised_features_do_not_depend_on_their_units():
    sim = simulated(MODELS[1])
    units = np.geomspace(0.01, 100, 5)
    models = [SmoothedRegressor(standardize=True).fit(sim.X * scale, sim.y, tasks=sim.tasks) for scale in (1.0, units)]
    np.testing.assert_allclose(models[1].coef_ * units, models[0].coef_, rtol=1e-6)


def test_stopping_early_warns():
    sim = simulated(MODELS[0])
    with pytest.warns(ConvergenceWarning, match="the relations still moved after 1 iterations; raise max_iter"):
        SmoothedClassifier(max_iter=1).fit(sim.X, sim.y, tasks=sim.tasks)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "squared"}, "loss is 'squared'; choose one of 'logistic', 'hinge'"),
        ({"update": "linear"}, "update is 'linear'; choose one of"),
        ({"concentration": 1.5}, "concentration is 1.5; pass a number from 0 to 1"),
        ({"smoothing": 0.0}, "smoothing is 0.0; pass a positive number"),
        ({"penalty_strength": 0.0}, "penalty_strength is 0.0; pass a positive number"),
        ({"max_iter": 0}, "max_iter is 0; pass a whole number"),
    ],
)
def test_parameters_are_checked(options, message):
    sim = simulated(MODELS[0])
    with pytest.raises(ValueError, match=message):
        SmoothedClassifier(**options).fit(sim.X, sim.y, tasks=sim.tasks)
