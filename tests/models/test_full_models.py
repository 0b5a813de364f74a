"""What the models with learned scales have in common: variables, prior draws, gradients, and that NUTS can sample them."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
from pytensor.compile.mode import Mode

import bayesmtfs as bm
from bayesmtfs.models import (
    generalized_normal_model,
    horseshoe_model,
    jeffreys_model,
    matrix_variate_model,
    set_task_data,
)
from bayesmtfs.priors.hyperpriors import hyperprior_for

RNG = np.random.default_rng(3)
X = RNG.normal(size=(80, 10))
X = (X - X.mean(axis=0)) / X.std(axis=0)
Y = X[:, 0] + RNG.normal(size=80)
Y = (Y - Y.mean()) / Y.std()
TASKS = np.arange(80) % 4
REGRESSION = bm.TaskData.from_long(X, Y, tasks=TASKS)
LABELS = bm.TaskData.from_long(X, np.where(Y > 0, "yes", "no"), tasks=TASKS)
SMALL = bm.TaskData.from_long(X[:18, :3], Y[:18], tasks=TASKS[:18] % 3)

BUILDERS = {
    "generalized normal": generalized_normal_model,
    "jeffreys": jeffreys_model,
    "matrix variate": matrix_variate_model,
    "horseshoe": horseshoe_model,
}
FAST = {"mode": "FAST_COMPILE"}


@pytest.fixture(scope="module", params=BUILDERS)
def prior_draws(request):
    model = BUILDERS[request.param](REGRESSION)
    return model, pm.sample_prior_predictive(200, model=model, random_seed=1, compile_kwargs=FAST)


def test_variables_and_dimensions(prior_draws):
    model, draws = prior_draws
    prior = draws["prior"].dataset
    dims = {"coef": ("feature", "task"), "intercept": ("task",), "noise": ("task",), "row_scale": ("feature",)}
    for name, expected in (dims | {"norm_q": ()}).items():
        assert prior[name].dims == ("chain", "draw", *expected)
    assert ("global_scale" in prior) == ("log_global_scale" in model.named_vars)
    assert model.coords["task"] == (0, 1, 2, 3)
    assert draws["prior_predictive"]["y"].dims == ("chain", "draw", "obs")


def test_prior_predictions_are_of_the_size_of_the_targets(prior_draws):
    """Coefficients that the prior finds likely make predictions that vary about as much as the targets do."""
    _, draws = prior_draws
    eta = np.einsum("np,dpt->dnt", X, draws["prior"]["coef"].values[0])
    spread = eta.std(axis=1).mean(axis=1)  # sd(y) is 1
    low, middle, high = np.quantile(spread, [0.1, 0.5, 0.8])
    assert 0.005 < low
    assert 0.05 < middle < 4.0
    assert high < 8.0
    y = draws["prior_predictive"]["y"].values[0]
    assert np.median(np.abs(y)) < 10.0


@pytest.mark.parametrize("kind", BUILDERS)
def test_gradient_is_the_slope_of_the_log_probability(kind):
    """At the initial point, where all task relations are equal, and near it."""
    options = {} if kind == "horseshoe" else {"norm_q": "learn"}
    model = BUILDERS[kind](SMALL, **options)
    # Rewriting the graph would take most of the time, but a root within it is compiled on its own otherwise.
    mode = "FAST_COMPILE" if kind == "matrix variate" else Mode(linker="py", optimizer=None)
    outputs = [model.logp(), model.dlogp()]
    gradient = model.compile_fn(outputs, inputs=model.value_vars, mode=mode, point_fn=False)
    initial = model.initial_point()
    start = [initial[variable.name] for variable in model.value_vars]
    rng = np.random.default_rng(5)
    for size in (0.0, 0.3):
        point = [value + size * rng.normal(size=np.shape(value)) for value in start]
        direction = [rng.normal(size=np.shape(value)) for value in start]
        _, slopes = gradient(*point)
        step = 1e-6
        ahead, behind = (
            gradient(*(v + sign * step * d for v, d in zip(point, direction, strict=True)))[0] for sign in (1, -1)
        )
        along = slopes @ np.concatenate([np.ravel(d) for d in direction])
        assert np.all(np.isfinite(slopes))
        assert along == pytest.approx((ahead - behind) / (2 * step), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("kind", ["generalized normal", "matrix variate"])
def test_labels(kind):
    model = BUILDERS[kind](LABELS, loss="logistic")
    assert "noise" not in model.named_vars
    draws = pm.sample_prior_predictive(5, model=model, random_seed=1, compile_kwargs=FAST)
    assert set(np.unique(draws["prior_predictive"]["y"].values)) == {-1, 1}
    np.testing.assert_array_equal(model["target"].get_value(), np.where(LABELS.y == "yes", 1, -1))


def test_a_whole_hyperprior_can_be_passed():
    prior = hyperprior_for(SMALL, shared_noise=True, fit_intercept=False)
    for build in (generalized_normal_model, matrix_variate_model, horseshoe_model):
        names = {variable.name for variable in build(SMALL, prior=prior).free_RVs}
        assert "shared_noise" in names
        assert "intercept" not in names


def test_groups_have_one_scale_each():
    grouped = replace(SMALL, groups=np.array([0, 1, 0]))
    model = horseshoe_model(grouped)
    rho = pm.draw(model["row_scale"], random_seed=1, mode="FAST_COMPILE")
    assert rho[0] == rho[2] != rho[1]
    assert model.named_vars_to_dims["log_row_scale"] == ("group",)


@pytest.mark.parametrize("word", ["improper", "log-uniform", "generalized_normal_model", "horseshoe_model", "diverges"])
def test_unbounded_scales_are_refused_with_a_way_out(word):
    with pytest.raises(ValueError, match=word):
        jeffreys_model(SMALL, bounds=None)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: jeffreys_model(SMALL, bounds=(0.0, 1.0)), r"bounds is \(0.0, 1.0\); pass two"),
        (
            lambda: generalized_normal_model(SMALL, loss="hinge"),
            r"learned scales \(.* mixed_norm_model\) needs a log-density; Hinge offers value, gradient",
        ),
        (lambda: generalized_normal_model(SMALL, norm_q="free"), "norm_q is 'free'; pass"),
        (lambda: matrix_variate_model(SMALL, relation_concentration=1.0), "relation_concentration is 1.0"),
        (lambda: matrix_variate_model(SMALL, norm_q=np.inf, centred=True), "centred=True with norm_q=inf"),
        (lambda: matrix_variate_model(replace(SMALL, present=np.eye(3, dtype=bool))), "tasks without some of the"),
        (
            lambda: matrix_variate_model(SMALL, shared_mean=True),
            "shared_mean=True does not go with a matrix_variate_model",
        ),
        (lambda: horseshoe_model(SMALL, slab_scale=0.0), "slab_scale is 0.0; pass"),
    ],
)
def test_wrong_parameters_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def sampled(model, tune=500, draws=200):
    return pm.sample(
        draws,
        tune=tune,
        chains=2,
        cores=1,
        model=model,
        random_seed=1,
        nuts_sampler="nutpie",
        nuts={"target_accept": 0.95},
        compute_convergence_checks=False,
        progressbar=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("norm_q", [1.2, 2, 8, "learn"])
def test_few_divergences(norm_q):
    sim = bm.simulate_tasks(n_tasks=4, n_features=5, n_relevant=2, n_samples=30, random_state=4)
    trace = sampled(generalized_normal_model(sim.data, norm_q))
    assert int(trace["sample_stats"]["diverging"].sum()) <= 4


@pytest.mark.slow
def test_posterior_and_predictive_draws_of_related_tasks():
    model = matrix_variate_model(SMALL)
    trace = sampled(model, tune=100, draws=20)
    assert trace["posterior"]["task_relations"].dims == ("chain", "draw", "task", "task_bis")
    set_task_data(model, bm.TaskData.from_long(X[:5, :3], Y[:5], tasks=[0, 0, 1, 2, 2]))
    predictive = pm.sample_posterior_predictive(trace, model=model, random_seed=1, progressbar=False)
    assert predictive["posterior_predictive"]["y"].shape == (2, 20, 5)


# A linear predictor and a likelihood that are left open


@pytest.mark.parametrize("build", [generalized_normal_model, jeffreys_model, horseshoe_model, matrix_variate_model])
def test_a_covariate_that_is_added(build):
    age = RNG.normal(size=18)
    plain, model = build(SMALL), build(SMALL, extra=lambda eta: eta + pm.Normal("slope") * age)
    point = model.initial_point()
    assert set(point) == set(plain.initial_point()) | {"slope"}
    point["slope"] = np.array(0.7)
    moved = bm.TaskData.from_long(SMALL.X, SMALL.y - 0.7 * age, tasks=SMALL.task)
    set_task_data(plain, moved)
    rest = {name: value for name, value in point.items() if name != "slope"}
    found = model.compile_logp(vars=model.observed_RVs, mode="FAST_COMPILE")(point)
    assert found == pytest.approx(plain.compile_logp(vars=plain.observed_RVs, mode="FAST_COMPILE")(rest), rel=1e-10)


def test_a_likelihood_of_the_users_own():
    def student(eta):
        model = pm.modelcontext(None)
        pm.StudentT("y", nu=4, mu=eta, sigma=model["noise"][model["task_index"]], observed=model["target"], dims="obs")

    model = generalized_normal_model(SMALL, extra=student)
    assert [type(rv.owner.op).__name__ for rv in model.observed_RVs] == ["StudentTRV"]
    assert np.isfinite(model.compile_logp(mode="FAST_COMPILE")(model.initial_point()))
