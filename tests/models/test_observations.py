"""Labels, and new observations in a model that is already built."""

import numpy as np
import pymc as pm
import pytest
import scipy.sparse as sp

from bayesmtfs import TaskData
from bayesmtfs.families import Logistic
from bayesmtfs.models import generalized_normal_model, mixed_norm_model, set_task_data
from bayesmtfs.models.terms import readable

RNG = np.random.default_rng(11)
X = RNG.normal(size=(12, 3))
Y = RNG.normal(size=(12, 2))
TASKS = np.repeat(["a", "b"], 6)
NEW_X = RNG.normal(size=(5, 3))
NEW_Y = RNG.normal(size=5)

FORMS = {
    "long": (TaskData.from_long(X, Y[:, 0], tasks=TASKS), TaskData.from_long(NEW_X, NEW_Y, tasks=list("abbab"))),
    "one task only": (TaskData.from_long(X, Y[:, 0], tasks=TASKS), TaskData.from_long(NEW_X, NEW_Y, tasks=["b"] * 5)),
    "wide": (TaskData.from_wide(X, Y), TaskData.from_wide(NEW_X, NEW_X[:, :2])),
    "long into wide": (
        TaskData.from_wide(X, Y, task_names=["a", "b"]),
        TaskData.from_long(NEW_X, NEW_Y, tasks=list("abbab")),
    ),
    "sparse": (
        TaskData.from_long(sp.csr_matrix(X), Y[:, 0], tasks=TASKS),
        TaskData.from_long(NEW_X, NEW_Y, tasks=list("abbab")),
    ),
    "sparse wide": (TaskData.from_wide(sp.csr_matrix(X), Y), TaskData.from_wide(sp.csr_matrix(NEW_X), NEW_X[:, :2])),
}


@pytest.mark.parametrize("form", FORMS)
def test_log_likelihood_of_new_observations(form):
    data, new = FORMS[form]
    model = generalized_normal_model(data, centred=True)
    evaluate = model.compile_logp(vars=model.observed_RVs, jacobian=False, mode="FAST_COMPILE")
    set_task_data(model, new)
    W, b, noise = RNG.normal(size=(3, 2)), RNG.normal(size=2), np.array([0.5, 2.0])
    known = data.task_names.tolist()
    columns = [known.index(name) for name in new.task_names.tolist()]
    residual = new.y - new.linear_predictor(W[:, columns], b[columns])
    sigma = noise[columns][new.task]
    expected = np.sum(-0.5 * (residual / sigma) ** 2 - np.log(sigma) - 0.5 * np.log(2 * np.pi))
    point = model.initial_point() | {"coef": W, "intercept": b, "noise_log__": np.log(noise)}
    assert evaluate(point) == pytest.approx(expected, rel=1e-10)


def test_predictive_draws_of_new_rows():
    data, new = FORMS["long"]
    model = generalized_normal_model(data)
    set_task_data(model, new)
    draws = pm.sample_prior_predictive(4, model=model, random_seed=1, compile_kwargs={"mode": "FAST_COMPILE"})
    assert draws["prior_predictive"]["y"].shape == (1, 4, 5)


def test_new_weights():
    data = TaskData.from_long(X, Y[:, 0], tasks=TASKS, sample_weight=np.full(12, 2.0))
    new = TaskData.from_long(NEW_X, NEW_Y, tasks=["a"] * 5, sample_weight=np.full(5, 3.0))
    model = generalized_normal_model(data)
    set_task_data(model, new)
    np.testing.assert_array_equal(model["weight"].get_value(), 3.0)
    with pytest.raises(ValueError, match="data has sample weights but the model was built without"):
        set_task_data(generalized_normal_model(FORMS["long"][0]), new)


def test_other_models_features_and_tasks_are_refused():
    model = generalized_normal_model(FORMS["long"][0])
    with pytest.raises(ValueError, match="model is a mixed_norm_model"):
        set_task_data(mixed_norm_model(FORMS["long"][0], 0.1), FORMS["long"][1])
    with pytest.raises(ValueError, match="data has the features"):
        set_task_data(model, TaskData.from_long(NEW_X[:, :2], NEW_Y))
    with pytest.raises(ValueError, match="data has the task 'c', which the model does not know"):
        set_task_data(model, TaskData.from_long(NEW_X, NEW_Y, tasks=["c"] * 5))


def test_labels_become_signs():
    data = TaskData.from_long(X, np.where(Y[:, 0] > 0, "yes", "no"), tasks=TASKS)
    np.testing.assert_array_equal(readable(data, Logistic()).y, np.where(data.y == "yes", 1.0, -1.0))
    assert readable(data.with_target(np.ones(12)), Logistic()).y.tolist() == [1.0] * 12
    with pytest.raises(ValueError, match="y has 3 classes, but the model is for two"):
        readable(data.with_target(np.arange(12) % 3), Logistic())
