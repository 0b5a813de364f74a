"""A fit that fails leaves what the fit before it left."""

import numpy as np
import pytest

import bayesmtfs as bm
from bayesmtfs.estimators.failed_fits import unchanged_on_error

CLASSIFIERS = [
    bm.MixedNormClassifier(),
    bm.MixedNormClassifierCV(cv=2, n_penalties=3),
    bm.JeffreysClassifier(),
    bm.SmoothedClassifier(),
    bm.OnlineMixedNormClassifier(random_state=0),
    bm.baselines.IndependentClassifier(),
]


@pytest.mark.parametrize("model", CLASSIFIERS, ids=lambda model: type(model).__name__)
def test_predictions_after_a_failed_fit_are_those_before_it(model):
    sim = bm.simulate_tasks(n_tasks=2, n_features=4, n_samples=30, n_relevant=2, kind="classification", random_state=21)
    tasks = np.array(["a", "b"])[sim.tasks]
    model.fit(sim.X, sim.y, tasks=tasks)
    before = model.decision_function(sim.X, tasks=tasks)
    with pytest.raises(ValueError, match="only one class"):
        model.fit(sim.X, np.ones(60), tasks=np.where(tasks == "a", "z", "b"))
    assert model.tasks_.tolist() == ["a", "b"]
    np.testing.assert_array_equal(model.decision_function(sim.X, tasks=tasks), before)


def test_interrupts_undo_too_and_success_stays():
    model = bm.MixedNormRegressor()
    with pytest.raises(KeyboardInterrupt), unchanged_on_error(model):
        model.tasks_ = np.array([1])
        raise KeyboardInterrupt
    assert not hasattr(model, "tasks_")
    with unchanged_on_error(model):
        model.tasks_ = np.array([2])
    assert model.tasks_.tolist() == [2]
