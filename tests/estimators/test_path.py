"""mixed_norm_path: every point is the single fit at its penalty, in every form of the data."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from bayesmtfs import MixedNormClassifier, MixedNormRegressor, TaskData, simulate_tasks
from bayesmtfs.estimators.path import mixed_norm_path
from bayesmtfs.types import ConvergenceWarning

PENALTIES = [0.05, 0.6, 0.2]  # in no order


@pytest.fixture(scope="module")
def sim():
    return simulate_tasks(n_tasks=3, n_features=8, n_relevant=3, n_samples=[20, 30, 25], random_state=3)


def wide(sim):
    Y = np.column_stack([sim.y[:40], sim.y[:40] ** 2])
    Y[::7, 1] = np.nan
    return {"X": sim.X[:40], "y": Y}


FORMS = {
    "long": lambda sim: {"X": sim.X, "y": sim.y, "tasks": sim.tasks},
    "wide with missing cells": wide,
    "sparse": lambda sim: {"X": sp.csr_matrix(sim.X * (sim.X > 0)), "y": sim.y, "tasks": sim.tasks},
    "frame": lambda sim: {"X": pd.DataFrame(sim.X, columns=list("abcdefgh")), "y": sim.y, "tasks": sim.tasks},
    "TaskData": lambda sim: {"X": sim.data},
    "weights": lambda sim: {"X": sim.X, "y": sim.y, "tasks": sim.tasks, "sample_weight": 1.0 + np.arange(75) % 3},
}


def assert_equals_single_fits(path, estimator, call):
    assert path.penalties.tolist() == PENALTIES
    for k, strength in enumerate(PENALTIES):
        single = estimator.set_params(penalty_strength=strength).fit(**call)
        assert path.objectives[k] == pytest.approx(single.objective_, rel=1e-6)
        np.testing.assert_allclose(path.coefs[k], single.coef_, atol=1e-4)
        np.testing.assert_allclose(path.intercepts[k], single.intercept_, atol=1e-4)
        assert path.gaps[k] >= 0 and path.converged[k]
    assert path.tasks.tolist() == single.tasks_.tolist()
    assert path.n_selected.tolist() == [int((coef != 0).any(axis=0).sum()) for coef in path.coefs]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_equals_single_fits(sim, form):
    call = FORMS[form](sim)
    path = mixed_norm_path(**call, penalties=PENALTIES, tol=1e-10)
    assert_equals_single_fits(path, MixedNormRegressor(tol=1e-10), call)
    if form == "frame":
        assert path.feature_names.tolist() == list("abcdefgh")


@pytest.mark.parametrize(
    "settings",
    [
        {"norm_q": 1, "loss_scale": "mean", "fit_intercept": False},
        {"norm_q": 3},
        {"norm_q": np.inf, "standardize": True},
        {"task_sparsity": 0.3},
        {"groups": [0, 0, 1, 1, 2, 3, 4, 5]},
        {"shared_mean": True},
        {"shared_mean": True, "mean_strength": 2.0},
    ],
    ids=str,
)
def test_every_setting_equals_single_fits(sim, settings):
    call = FORMS["long"](sim)
    path = mixed_norm_path(**call, penalties=PENALTIES, tol=1e-9, **settings)
    assert_equals_single_fits(path, MixedNormRegressor(tol=1e-9, **settings), call)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_labels_are_read_as_the_classifier_reads_them(sim, n_classes):
    labels = np.array(["lo", "mid", "hi"])[np.digitize(sim.X[:, 0], [0.0] if n_classes == 2 else [-0.4, 0.4])]
    call = {"X": sim.X, "y": labels}
    scale = {"loss_scale": "sum"}
    path = mixed_norm_path(**call, penalties=PENALTIES, loss="logistic", tol=1e-9, **scale)
    assert_equals_single_fits(path, MixedNormClassifier(tol=1e-9, **scale), call)
    assert path.coefs.shape == (3, 1 if n_classes == 2 else 3, 8)


@pytest.mark.parametrize("norm_q", [1, 2, np.inf])
def test_objective_loss_and_norm_are_monotone_in_the_penalty(sim, norm_q):
    path = mixed_norm_path(sim.X, sim.y, sim.tasks, n_penalties=15, norm_q=norm_q, tol=1e-9)
    norms = np.array([np.linalg.norm(coef, norm_q, axis=0).sum() for coef in path.coefs])
    losses = path.objectives - path.penalties * norms
    assert (np.diff(path.penalties) < 0).all()
    assert (np.diff(path.objectives) < 0).all()
    assert (np.diff(norms) > -1e-6).all() and (np.diff(losses) < 1e-6).all()
    assert path.n_selected[0] == 0 and path.n_selected[1] > 0


def test_automatic_grid_begins_at_lambda_max_and_says_why_it_ended(sim):
    gradient = np.zeros((8, 3))
    for t in range(3):
        own = sim.tasks == t
        gradient[:, t] = sim.X[own].T @ (sim.y[own] - sim.y[own].mean()) / own.sum()
    path = mixed_norm_path(sim.X, sim.y, sim.tasks, n_penalties=50, penalty_ratio=1e-8)
    assert path.penalties[0] == pytest.approx(np.linalg.norm(gradient, axis=1).max(), rel=1e-12)
    assert len(path.penalties) < 50 and path.stop_reason and path.stop_reason in repr(path)
    given = mixed_norm_path(sim.X, sim.y, sim.tasks, penalties=path.penalties[-1] * np.array([1.0, 0.9, 0.8]))
    assert len(given.penalties) == 3 and given.stop_reason == ""


def test_a_constant_target_has_one_penalty():
    path = mixed_norm_path(np.eye(4), np.zeros(4))
    assert path.penalties.tolist() == [0.0] and (path.coefs == 0).all()


def test_inputs_are_not_modified(sim):
    penalties = np.array(PENALTIES)
    copies = sim.X.copy(), penalties.copy()
    path = mixed_norm_path(sim.X, sim.y, sim.tasks, penalties=penalties, standardize=True)
    path.penalties[0] = 9.0
    np.testing.assert_array_equal(sim.X, copies[0])
    np.testing.assert_array_equal(penalties, copies[1])


def test_absent_features_stay_zero():
    rng = np.random.default_rng(0)
    first, second = (pd.DataFrame(rng.standard_normal((20, 2)), columns=list(names)) for names in ("uv", "uw"))
    data = TaskData.from_list([(first, first["v"].to_numpy()), (second, second["u"].to_numpy())])
    path = mixed_norm_path(data, n_penalties=5)
    assert (path.coefs[:, 1, 1] == 0).all() and (path.coefs[-1, 0, 1] != 0).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"penalties": [0.1, -1.0]}, "penalties has a negative, infinite or NaN entry"),
        ({"penalties": []}, "penalties has shape"),
        ({"n_penalties": 0}, "n_penalties is 0; pass a whole number of at least 1"),
        ({"penalty_ratio": 1.5}, "penalty_ratio is 1.5; pass a number between 0 and 1"),
        ({"loss": "cubic"}, "loss is 'cubic', which is not a known loss; choose one of"),
        ({"norm_q": 0.5}, "norm_q is 0.5"),
    ],
)
def test_bad_arguments(sim, arguments, message):
    with pytest.raises(ValueError, match=message):
        mixed_norm_path(sim.X, sim.y, sim.tasks, **arguments)


def test_stopping_early_is_said_once(sim):
    with pytest.warns(ConvergenceWarning, match=r"1 of 2 penalties were not solved to tol=1e-12; raise max_iter"):
        path = mixed_norm_path(
            sim.X, sim.y, sim.tasks, penalties=[1e-3, 1e3], max_iter=1, tol=1e-12, solver="proximal_gradient"
        )
    assert path.converged.tolist() == [False, True]


def test_a_mean_strength_without_a_shared_mean_changes_nothing(sim):
    plain = mixed_norm_path(sim.X, sim.y, tasks=sim.tasks, penalties=PENALTIES)
    given = mixed_norm_path(sim.X, sim.y, tasks=sim.tasks, penalties=PENALTIES, mean_strength=0.5)
    np.testing.assert_array_equal(given.coefs, plain.coefs)
