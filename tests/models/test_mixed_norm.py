"""Log-probability of mixed_norm_model against the penalised objective written out in NumPy."""

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pymc as pm
import pytest
import scipy.sparse as sp

from bayesmtfs import TaskData
from bayesmtfs.models import mixed_norm_model

STRENGTH = 0.3
RNG = np.random.default_rng(21)
X = RNG.normal(size=(24, 5))
Y = RNG.normal(size=(24, 3))
SIGNS = np.where(RNG.uniform(size=24) < 0.5, -1.0, 1.0)
TASKS = np.repeat(["a", "b", "c"], [5, 12, 7])
WEIGHT = RNG.uniform(0.2, 2.0, size=24)
SOME_MISSING = np.where(RNG.uniform(size=(24, 3)) < 0.2, np.nan, Y)
PRESENT = np.array([[1, 1, 1], [1, 0, 1], [0, 0, 1], [0, 0, 0], [1, 1, 1]], dtype=bool)

LOSSES = {
    "squared": lambda y, eta: 0.5 * (y - eta) ** 2,
    "absolute": lambda y, eta: np.abs(y - eta),
    "logistic": lambda y, eta: np.log1p(np.exp(-y * eta)),
    "hinge": lambda y, eta: np.maximum(1 - y * eta, 0.0),
}


def long(y=Y[:, 0], **options):
    return TaskData.from_long(X, y, tasks=TASKS, **options)


def objective(data, W, intercept, norm_q=2, loss="squared", loss_scale="mean", task_sparsity=0.0, fit_intercept=True):
    """The penalised objective, one observation and one row after the other."""
    design = data.X.toarray() if data.is_sparse else data.X
    total = 0.0
    for i, t in enumerate(data.task):
        c = data.weight[i] / (data.weight[data.task == t].sum() if loss_scale == "mean" else 1.0)
        total += c * LOSSES[loss](data.y[i], design[i] @ W[:, t] + intercept[t])
    groups = np.arange(len(W)) if data.groups is None else data.groups
    for group in np.unique(groups):
        row = W[groups == group].ravel()
        total += STRENGTH * (np.linalg.norm(row, norm_q) + task_sparsity * np.sum(np.abs(row)))
    return total


def log_probability_and_coef(model):
    """Compiled function of a point, without the Jacobian of any transformation."""
    outputs = [model.logp(jacobian=False), *model.replace_rvs_by_values([model["coef"]])]
    return model.compile_fn(outputs, inputs=model.value_vars, mode="FAST_COMPILE")


@pytest.fixture(scope="module")
def model():
    return mixed_norm_model(long(sample_weight=WEIGHT), STRENGTH, norm_q=1.5)


CASES = {
    **{f"q={q}": (long(sample_weight=WEIGHT), {"norm_q": q}) for q in (1, 1.5, 2, 3, np.inf)},
    "logistic": (long(SIGNS, sample_weight=WEIGHT), {"loss": "logistic", "norm_q": 1.5}),
    "hinge": (long(SIGNS), {"loss": "hinge"}),
    "absolute": (long(), {"loss": "absolute", "loss_scale": "sum"}),
    "sum": (long(sample_weight=WEIGHT), {"loss_scale": "sum", "norm_q": 3}),
    "no intercept": (long(), {"fit_intercept": False}),
    "task sparsity": (long(), {"task_sparsity": 0.4}),
    "groups": (long(groups=["u", "v", "u", "w", "v"]), {"norm_q": 3}),
    "absent features": (replace(long(), present=PRESENT), {"norm_q": 1.5}),
    "absent features in groups": (replace(long(groups=[0, 1, 0, 1, 2]), present=PRESENT), {"norm_q": np.inf}),
    "shared design": (TaskData.from_wide(X, Y), {}),
    "missing cells": (TaskData.from_wide(X, SOME_MISSING, WEIGHT), {"norm_q": np.inf, "loss_scale": "sum"}),
    "sparse shared design": (TaskData.from_wide(sp.csr_matrix(X), SOME_MISSING), {}),
    "sparse": (TaskData.from_long(sp.csr_matrix(X), Y[:, 0], tasks=TASKS), {}),
}


@pytest.mark.parametrize("case", CASES)
def test_log_probability_is_minus_the_objective(case):
    data, options = CASES[case]
    model = mixed_norm_model(data, STRENGTH, **options)
    evaluate = log_probability_and_coef(model)
    rng = np.random.default_rng(3)
    shapes = {name: value.shape for name, value in model.initial_point().items()}
    constants = []
    for scale in (0.0, 0.1, 1.0, 1.0, 5.0):
        point = {name: scale * rng.normal(size=shape) for name, shape in shapes.items()}
        log_probability, W = evaluate(point)
        constants.append(log_probability + objective(data, W, point.get("intercept", np.zeros(3)), **options))
        if scale > 0:
            np.testing.assert_array_equal(W != 0, np.ones((5, 3)) if data.present is None else data.present)
    np.testing.assert_allclose(constants, constants[0], rtol=0, atol=1e-10)


def test_mode_is_the_minimum_that_cvxpy_finds(model):
    data = long(sample_weight=WEIGHT)
    W, intercept = cp.Variable((5, 3)), cp.Variable(3)
    own_task = np.eye(3)[data.task]
    eta = cp.sum(cp.multiply(data.X @ W, own_task), axis=1) + own_task @ intercept
    loss = cp.sum(cp.multiply(0.5 * data.loss_weights("mean"), (data.y - eta) ** 2))
    penalty = STRENGTH * cp.sum([cp.pnorm(W[j], 1.5) for j in range(5)])
    cp.Problem(cp.Minimize(loss + penalty)).solve(solver="CLARABEL")
    evaluate = log_probability_and_coef(model)
    best = evaluate({"coef": W.value, "intercept": intercept.value})[0]
    rng = np.random.default_rng(4)
    for step in np.repeat([1e-3, 1e-2, 0.1, 1.0], 10):
        nearby = {"coef": W.value + step * rng.normal(size=(5, 3)), "intercept": intercept.value}
        assert evaluate(nearby)[0] < best


def test_variables_and_dimensions(model):
    assert model.named_vars_to_dims["coef"] == ("feature", "task")
    assert model.named_vars_to_dims["intercept"] == ("task",)
    assert model.coords["task"] == ("a", "b", "c")
    assert len(model.coords["obs"]) == 24
    assert {variable.name for variable in model.free_RVs} == {"coef", "intercept"}
    assert model["noise"].eval() == 1.0


def test_data_and_strength_can_be_swapped(model):
    new = TaskData.from_long(X[:11] + 1.0, Y[:11, 1], tasks=["c", "b", "a"] * 3 + ["a", "b"])
    evaluate = log_probability_and_coef(model)
    fresh = log_probability_and_coef(mixed_norm_model(new, 0.9, norm_q=1.5, loss_scale="sum"))
    point = {"coef": RNG.normal(size=(5, 3)), "intercept": RNG.normal(size=3)}
    before = evaluate(point)[0]
    values = {"X": new.X, "target": new.y, "weight": new.weight, "task_index": new.task, "penalty_strength": 0.9}
    old = {name: model[name].get_value() for name in values}
    pm.set_data(values, model=model, coords={"obs": range(11)})
    assert evaluate(point)[0] == pytest.approx(fresh(point)[0], rel=1e-12)
    pm.set_data(old, model=model, coords={"obs": range(24)})
    assert evaluate(point)[0] == before


def test_posterior_and_predictive_draws(model, sample_quickly):
    trace = sample_quickly(model, 8)
    assert dict(trace["posterior"].dataset.sizes) == {"chain": 1, "draw": 8, "feature": 5, "task": 3}
    settings = {"random_seed": 1, "progressbar": False, "compile_kwargs": {"mode": "FAST_COMPILE"}}
    predictive = pm.sample_posterior_predictive(trace, model=model, **settings)["posterior_predictive"].dataset
    assert predictive["y"].dims == ("chain", "draw", "obs")


def test_prior_draws_without_an_intercept():
    model = mixed_norm_model(TaskData.from_wide(X, Y), STRENGTH, fit_intercept=False)
    prior = pm.sample_prior_predictive(5, model=model, random_seed=1, compile_kwargs={"mode": "FAST_COMPILE"})
    assert prior["prior"]["coef"].shape == (1, 5, 5, 3)
    assert prior["prior_predictive"]["y"].shape == (1, 5, 72)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"penalty_strength": 0.0}, "penalty_strength is 0, which makes the prior improper"),
        ({"penalty_strength": -1.0}, "penalty_strength is -1.0; pass"),
        ({"norm_q": 0.5}, "norm_q is 0.5; pass"),
        ({"loss": "poison"}, "loss is 'poison'"),
        ({"task_sparsity": -0.1}, "task_sparsity is -0.1; pass"),
        ({"task_sparsity": 0.1, "norm_q": 3}, "it needs norm_q=2"),
        ({"loss": "logistic"}, "y does not hold class labels"),
        ({"loss_scale": "median"}, "loss_scale is 'median'"),
    ],
)
def test_parameters_out_of_range_are_errors(options, message):
    with pytest.raises(ValueError, match=message):
        mixed_norm_model(long(), **({"penalty_strength": STRENGTH} | options))
