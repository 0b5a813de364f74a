"""Paths, traces and streams."""

import numpy as np
import pytest

from bayesmtfs import MixedNormRegressorCV, mixed_norm_path, simulate_tasks
from bayesmtfs.plots import objective_trace, online_progress, regularisation_path
from bayesmtfs.results.fit_result import Convergence


@pytest.fixture(scope="module")
def simulated():
    return simulate_tasks(n_tasks=3, n_features=12, n_relevant=2, n_samples=40, random_state=0)


def test_path_draws_norms_over_the_penalty(simulated):
    path = mixed_norm_path(simulated.X, simulated.y, tasks=simulated.tasks, n_penalties=10)
    axes = regularisation_path(path, most=3)
    assert axes.get_xscale() == "log" and axes.xaxis_inverted()
    assert len(axes.lines) == 3
    first = axes.lines[0]
    feature = path.feature_names.tolist().index(first.get_label())
    np.testing.assert_allclose(first.get_ydata(), np.linalg.norm(path.coefs[:, :, feature], axis=1))
    norms = np.linalg.norm(path.coefs, axis=1).max(axis=0)
    assert feature == norms.argmax()


def test_path_of_a_cross_validated_fit_marks_the_choice(simulated):
    model = MixedNormRegressorCV(n_penalties=8, penalty_ratio=0.05, cv=3)
    model.fit(simulated.X, simulated.y, tasks=simulated.tasks)
    axes = regularisation_path(model)
    assert axes.lines[-1].get_xdata()[0] == model.penalty_strength_
    assert f"{model.penalty_strength_:.3g}" in axes.texts[0].get_text()


def test_path_refuses_other_things():
    with pytest.raises(TypeError, match="path"):
        regularisation_path([1, 2])


def test_trace_is_the_distance_from_the_smallest_objective(fit):
    trace = np.array([8.0, 4.0, 2.0, 1.0])
    convergence = Convergence(converged=True, n_iter=3, objective=1.0, gap=1e-3, objective_trace=trace)
    axes = objective_trace(fit([[1.0]], convergence=convergence))
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), [7.0, 3.0, 1.0])
    assert axes.lines[1].get_ydata()[0] == 1e-3
    assert "converged" in axes.get_title()


def test_a_fit_without_trace_says_so(fit):
    assert "no trace" in objective_trace(fit([[1.0]])).texts[0].get_text()


def test_online_progress_sums_loss_and_regret():
    history = {"rows": [10, 30], "loss": [2.0, 1.0], "best_loss": [1.0, 1.0], "features": [5, 3]}
    figure = online_progress(history)
    loss, regret, features = (axes.lines[0].get_ydata() for axes in figure.axes)
    np.testing.assert_allclose(loss, [2.0, 40 / 30])
    np.testing.assert_allclose(regret, [10.0, 10.0])
    np.testing.assert_array_equal(features, [5, 3])
    with pytest.raises(ValueError, match="'features'"):
        online_progress({"rows": [1], "loss": [1.0]})


def test_a_fit_keeps_no_history(fit):
    with pytest.raises(TypeError, match="a fit keeps none: pass a mapping"):
        online_progress(fit)
