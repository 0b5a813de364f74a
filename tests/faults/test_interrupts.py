"""Ctrl-C in a long fit: what there is comes back, or an error, and never a half-finished fit that claims to be whole."""

import importlib
import warnings

import numpy as np
import pytest

from bayesmtfs import simulate_tasks
from bayesmtfs.progress import Progress
from bayesmtfs.public_names import ESTIMATORS
from bayesmtfs.types import ConvergenceWarning, PosteriorWarning, SelectionWarning

GIBBS = {"sampler": "gibbs", "chains": 1, "random_state": 0}

# Share of the work that is done before a report counts: chains report by the clock, first of no draw at all
BEGUN = 0.01

# Parameters, and in which report of which progress bar Ctrl-C comes
ROUTES = {
    "MixedNormRegressor": ({}, "working set", 1),
    "MixedNormClassifier": ({}, "working set", 2),
    "GeneralizedNormalRegressor": ({"tol": 1e-14}, "majorisation-minimisation", 1),
    "GeneralizedNormalClassifier": ({"tol": 1e-14, "offset": 1e-3}, "majorisation-minimisation", 2),
    "JeffreysRegressor": ({"tol": 1e-14}, "EM", 3),
    "JeffreysClassifier": ({"tol": 1e-14, "offset": 0.0}, "EM", 3),
    "MatrixVariateRegressor": ({"tol": 1e-14}, "EM", 3),
    "MatrixVariateClassifier": ({"tol": 1e-14, "offset": 0.0}, "EM", 3),
    "BayesianRegressor": (GIBBS | {"draws": 30_000, "tune": 2}, "sampling", 1),
    "BayesianClassifier": ({"sampler": "variational", "draws": 50, "random_state": 0}, "variational posterior", 2),
    "SmoothedClassifier": ({}, "smoothed tasks", 1),
    "SmoothedRegressor": ({}, "smoothed tasks", 1),
    "OnlineMixedNormRegressor": ({"epochs": 9, "random_state": 0}, "dual averaging", 2),
    "OnlineMixedNormClassifier": ({"epochs": 9, "random_state": 0}, "dual averaging", 2),
    "DiscriminativeSelector": ({}, "trace ratio", 1),
}
# Nothing half-done is of use: a path with missing penalties, or a start that never ended
WHOLE_OR_NOTHING = {
    "MixedNormRegressorCV": {"n_penalties": 5, "cv": 3},
    "MixedNormClassifierCV": {"n_penalties": 5, "cv": 3},
    "GeneralizedNormalRegressor": {},
    "GeneralizedNormalClassifier": {},
    "JeffreysRegressor": {},
    "JeffreysClassifier": {},
    "MatrixVariateRegressor": {},
    "MatrixVariateClassifier": {},
    "BayesianRegressor": GIBBS | {"draws": 50, "tune": 200_000},
}


def data_for(name):
    kind = "regression" if "Regressor" in name else "classification"
    sim = simulate_tasks(n_tasks=3, n_features=12, n_relevant=4, n_samples=40, kind=kind, random_state=0)
    return sim.X, sim.y, sim.tasks


def make(name, params):
    return getattr(importlib.import_module(ESTIMATORS[name]), name)(**params)


@pytest.fixture
def interrupt(monkeypatch):
    """Press Ctrl-C at a given report of a progress bar; gives back the reports of that bar."""
    reports = []

    def press(at: int, description: str = "") -> list[float]:
        least = BEGUN if description == "sampling" else 0.0

        def update(bar, fraction, note="", parts=None):
            if fraction >= least and (len(reports) >= at or description in ("", bar.description)):
                reports.append(fraction)
            if len(reports) == at:
                raise KeyboardInterrupt

        monkeypatch.setattr(Progress, "update", update)
        return reports

    return press


@pytest.mark.parametrize("name", ROUTES)
def test_what_there_is_comes_back(name, interrupt):
    params, description, at = ROUTES[name]
    model = make(name, params)
    reports = interrupt(at, description)
    X, y, tasks = data_for(name)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y, tasks=tasks)
    assert len(reports) == at, "the fit went on after Ctrl-C"
    assert {item.category for item in caught} & {ConvergenceWarning, PosteriorWarning, SelectionWarning}
    found = model.coef_ if hasattr(model, "coef_") else model.scores_
    assert np.isfinite(found).all()
    if not name.startswith("Online"):  # a stream has no end
        assert not model.converged_


@pytest.mark.parametrize("name", WHOLE_OR_NOTHING)
def test_nothing_comes_back_half_done(name, interrupt):
    model = make(name, WHOLE_OR_NOTHING[name])
    interrupt(1)
    X, y, tasks = data_for(name)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y, tasks=tasks)
    assert not hasattr(model, "coef_")


@pytest.mark.parametrize("name", ["MixedNormRegressorCV", "JeffreysRegressor"])
def test_the_fit_before_is_kept(name, interrupt):
    model = make(name, WHOLE_OR_NOTHING[name])
    X, y, tasks = data_for(name)
    expected = model.fit(X, y, tasks=tasks).coef_.copy()
    interrupt(1)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, 2 * y, tasks=tasks)
    np.testing.assert_array_equal(model.coef_, expected)
