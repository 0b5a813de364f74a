"""The code of a report gives the estimator back."""

import warnings

import numpy as np
import pytest

import bayesmtfs as bm
from bayesmtfs.reporting.repeat import code_to_repeat


@pytest.mark.parametrize(
    "model",
    [
        bm.MixedNormRegressor(),
        bm.MixedNormRegressorCV(norm_q=[1, np.inf], n_penalties=5, cv=2, rule="one_se"),
        bm.JeffreysRegressor(norm_q="learn", standardize=True, random_state=3),
        bm.baselines.IndependentRegressor(),
    ],
    ids=lambda model: type(model).__name__,
)
def test_running_it_fits_the_same_model(model):
    sim = bm.simulate_tasks(n_tasks=4, n_features=6, n_relevant=2, n_samples=25, random_state=0)
    with warnings.catch_warnings():  # four tasks do not identify q
        warnings.simplefilter("ignore")
        model.fit(sim.X, sim.y, tasks=sim.tasks)
        names = {"X": sim.X, "y": sim.y, "tasks": sim.tasks}
        code = code_to_repeat(model.result_)
        exec(code, names)
    np.testing.assert_array_equal(names["model"].coef_, model.coef_)
    assert "tol=" not in code  # a default


def test_what_cannot_be_written_is_named_and_a_task_column_needs_no_tasks():
    sim = bm.simulate_tasks(n_tasks=2, n_features=3, n_relevant=2, n_samples=25, random_state=0)
    X = np.column_stack([sim.X, sim.tasks])
    model = bm.MixedNormRegressorCV(penalties=np.array([0.1, 0.2]), task_column=3, cv=2).fit(X, sim.y)
    code = code_to_repeat(model.result_)
    assert "# and the same penalties as in the fit" in code
    assert code.endswith("model.fit(X, y)")
