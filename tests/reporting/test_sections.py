"""The code of a report gives the estimator back."""

import re
import warnings

import numpy as np
import pytest

import bayesmtfs as bm
from bayesmtfs.families import names
from bayesmtfs.reporting.repeat import code_to_repeat
from bayesmtfs.reporting.sections import feature_table
from bayesmtfs.reporting.words import OBSERVED


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
        known = {"X": sim.X, "y": sim.y, "tasks": sim.tasks}
        code = code_to_repeat(model.result_)
        exec(code, known)
    np.testing.assert_array_equal(known["model"].coef_, model.coef_)
    assert "tol=" not in code  # a default


def test_what_cannot_be_written_is_named_and_a_task_column_needs_no_tasks():
    sim = bm.simulate_tasks(n_tasks=2, n_features=3, n_relevant=2, n_samples=25, random_state=0)
    X = np.column_stack([sim.X, sim.tasks])
    model = bm.MixedNormRegressorCV(penalties=np.array([0.1, 0.2]), task_column=3, cv=2).fit(X, sim.y)
    code = code_to_repeat(model.result_)
    assert "# and the same penalties as in the fit" in code
    assert code.endswith("model.fit(X, y)")


def test_selected_features_come_first_then_the_likeliest_and_those_screened_out_last():
    sim = bm.simulate_tasks(n_tasks=3, n_features=20, n_relevant=2, n_samples=40, snr=3.0, random_state=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # short chains, features screened out
        model = bm.BayesianRegressor(draws=80, tune=80, chains=2, max_features=8, random_state=0)
        model.fit(sim.X, sim.y, tasks=sim.tasks)
    body = feature_table(model.result_, "t")
    names = re.findall(r"<tr><td class=\"text\">(x\d+)<", body)
    found = model.result_.to_frame(form="features").set_index("feature").loc[names]
    gone = found["tasks"].str.startswith("screened out").to_numpy()
    kept, others = found["selected"].to_numpy(), found["probability"].to_numpy()
    n = int(kept.sum())
    assert 0 < n < 8 and kept[:n].all() and (np.diff(found["norm"].to_numpy()[:n]) <= 0).all()
    assert (np.diff(others[n:8]) <= 0).all() and not gone[:8].any() and gone[8:].all()


@pytest.mark.parametrize("name", sorted(names()))
def test_every_family_has_words_for_the_model_of_its_targets(name):
    assert name in OBSERVED
