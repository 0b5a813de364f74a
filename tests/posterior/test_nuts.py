"""NUTS on the package's models: agreement with the Gibbs sampler, starts, interruptions."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from arviz_stats.sampling_diagnostics import ess
from scipy.stats import t

from bayesmtfs import TaskData, models
from bayesmtfs.data.scaling import in_sampling_units, sampling_units
from bayesmtfs.families import Dispersion, Family, find_family
from bayesmtfs.posterior import nuts
from bayesmtfs.posterior.diagnostics import diagnose
from bayesmtfs.posterior.sampling import PosteriorRequest, sample_posterior
from bayesmtfs.priors.hyperpriors import hyperprior_for
from bayesmtfs.types import SelectionWarning

PRIORS = ("generalized_normal", "jeffreys", "matrix_variate", "horseshoe")


@pytest.fixture(scope="module")
def standard(small):
    return in_sampling_units(small, sampling_units(small, centre=True, per_task=False, scale_target=True))


@pytest.fixture(scope="module")
def sampled(small):
    return sample_posterior(small, PosteriorRequest(sampler="nuts", draws=600, tune=500, chains=2, random_seed=1))


def test_agrees_with_the_gibbs_sampler(small, sampled):
    exact = sample_posterior(small, PosteriorRequest(sampler="gibbs", draws=4000, tune=500, chains=2))
    for name in ("coef", "intercept", "noise", "global_scale"):
        drawn, wanted = (fit.draws.variables[name] for fit in (sampled, exact))
        drawn, wanted = (values.reshape(*values.shape[:2], -1) for values in (drawn, wanted))
        variance = sum(
            values.var(axis=(0, 1)) / ess(values, chain_axis=0, draw_axis=1, method="mean")
            for values in (drawn, wanted)
        )
        assert np.max(np.abs(drawn.mean(axis=(0, 1)) - wanted.mean(axis=(0, 1))) / np.sqrt(variance)) < 5, name


def test_statistics_and_names(sampled):
    assert set(sampled.draws.statistics) >= {"diverging", "energy", "depth"}
    assert sampled.draws.fixed == {"norm_q"} and sampled.diagnostics.divergences is not None
    assert {row.variable for row in sampled.diagnostics.table} == {
        "coef",
        "intercept",
        "noise",
        "row_scale",
        "global_scale",
    }
    assert sampled.tree["sample_stats"]["diverging"].shape == (2, 600)


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("norm_q", [2.0, None, np.inf])
def test_starts_have_a_density(standard, prior, norm_q):
    if prior == "horseshoe" and norm_q != 2.0:
        return
    hyperprior = hyperprior_for(standard, kind="log_uniform" if prior == "jeffreys" else "beta_prime")
    model = nuts.build_model(standard, PosteriorRequest(prior=prior, norm_q=norm_q), hyperprior)
    W = np.random.default_rng(0).normal(size=(6, 4)) * np.array([1.0, 1, 0, 0, 0, 1e-9])[:, None]
    start = nuts.start_values(model, standard, W, np.zeros(4), np.full(4, 0.5), 2.0 if norm_q is None else norm_q)
    assert {"intercept", "noise", "standard_coef"} <= set(start) and all(np.isfinite(v).all() for v in start.values())
    if prior != "jeffreys":
        scale = np.exp(start["log_row_deviation" if norm_q is None else "log_row_scale"])
        assert scale[0] > 10 * scale[3] > 0


def test_absent_features_have_no_start(lacking):
    data, present = lacking
    data = replace(data, present=present)
    model = nuts.build_model(data, PosteriorRequest(), hyperprior_for(data))
    start = nuts.start_values(model, data, np.ones((3, 2)), np.zeros(2), np.ones(2), 2.0)
    assert start["standard_coef"].shape == (5,)


def test_start_of_a_shared_mean(lacking):
    data, present = lacking
    data = replace(data, present=present)
    model = nuts.build_model(data, PosteriorRequest(), hyperprior_for(data, shared_mean=True))
    W = np.array([[3.0, 0.0], [1.0, 2.0], [-1.0, -1.0]])  # the second task does not have the first feature
    start = nuts.start_values(model, data, W, np.zeros(2), np.ones(2), 2.0)
    mean = start["standard_mean"] * np.exp(start["log_mean_scale"])
    np.testing.assert_allclose(mean, [3.0, 1.5, -1.0], atol=4.0 * nuts.MOVE)  # in units of the scales, of 4 at most
    scale = np.exp(start["log_row_scale"])
    deviations = start["standard_coef"] * scale[[0, 1, 1, 2, 2]]
    np.testing.assert_allclose(deviations, [0.0, -0.5, 0.5, 0.0, 0.0], atol=nuts.MOVE)


@pytest.mark.parametrize(("loss", "norm_q"), [("squared", 2.0), ("logistic", np.inf)])
def test_no_derivative_vanishes_at_the_start(loss, norm_q):
    """One row per task is fitted exactly by its intercept, and balanced labels have the intercept 0."""
    X = np.tile(np.random.default_rng(0).standard_normal((3, 2)), (2, 1))
    y = np.repeat([1.0, -1.0], 3)
    data = TaskData.from_long(X, y, tasks=np.arange(6) if loss == "squared" else np.zeros(6, dtype=int))
    model = nuts.build_model(
        data, PosteriorRequest(family=find_family(loss), norm_q=norm_q), hyperprior_for(data, loss)
    )
    intercept = y if loss == "squared" else np.zeros(1)
    start = nuts.start_values(model, data, np.zeros((2, data.n_tasks)), intercept, np.ones(data.n_tasks), norm_q)
    point = {**model.initial_point(), **{name: value for name, value in start.items() if name in model.initial_point()}}
    assert np.all(model.compile_dlogp(mode="FAST_COMPILE")(point) != 0)


def test_level_ground_of_the_hinge_loss_is_no_obstacle():
    """Against the means over a grid; labels overlap, so that slopes in the intercept are small whole numbers."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal(24)
    y = np.where(x + rng.standard_normal(24) > 0, 1.0, -1.0)
    data = TaskData.from_long(x[:, None], y, tasks=np.zeros(24, dtype=int))
    model = models.mixed_norm_model(data, 2.0, 2, "hinge", loss_scale="sum")
    start = {"coef": np.array([[1.0]]), "intercept": np.array([0.4])}
    drawn = nuts.sample(model, start, PosteriorRequest(draws=1000, tune=500, chains=8, n_jobs=1, progress=False))
    w, b = np.meshgrid(np.linspace(-2.0, 6.0, 801), np.linspace(-4.0, 4.0, 801), indexing="ij")
    loss = sum(np.maximum(1.0 - one * (w * at + b), 0.0) for at, one in zip(x, y, strict=True))
    mass = np.exp(-loss - 2.0 * np.abs(w))
    for name, values in (("coef", w), ("intercept", b)):
        chains = drawn.variables[name].reshape(8, 1000)
        error = np.sqrt(chains.var() / ess(chains, chain_axis=0, draw_axis=1, method="mean"))
        assert abs(chains.mean() - np.average(values, weights=mass)) < 4.0 * error, name
    assert "tilt" not in model.named_vars


class StudentT(Family):
    """A user's family: not convex, so without certificates, and with noise."""

    name = "my_student_t"
    linear_mean = True
    dispersion = (Dispersion("noise"),)

    def value(self, y, eta):
        return 2.5 * np.log1p((y - eta) ** 2 / 4.0)

    def gradient(self, y, eta):
        return 5.0 * (eta - y) / (4.0 + (y - eta) ** 2)

    def mean(self, eta):
        return np.array(eta)

    def log_density(self, y, eta, noise=1.0):
        return t.logpdf(y, 4.0, eta, noise)

    def draw(self, rng, eta, noise=1.0):
        return eta + noise * rng.standard_t(4.0, np.shape(eta))

    def pymc_dist(self, eta, noise, **options):
        return pm.StudentT.dist(4.0, mu=eta, sigma=noise, **options)


def test_a_family_of_the_user():
    """It is sampled, predicted, and screened by its gradient at the null fit."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 12))
    y = 3.0 + 2.0 * X[:, 4] + 0.3 * rng.standard_t(2.0, size=120)
    y[7] = 50.0
    data = TaskData.from_long(X, y, tasks=np.arange(120) % 3)
    request = PosteriorRequest(family=StudentT(), draws=100, tune=200, chains=2, max_features=4, n_jobs=1)
    with pytest.warns(SelectionWarning, match="8 of 12 features"):
        found = sample_posterior(data, request)
    assert found.tree.attrs["sampler"] == "nuts" and found.in_tree[4]
    coef = found.tree["posterior"]["coef"].sel(feature="x4").mean(("chain", "draw")).values
    np.testing.assert_allclose(coef, 2.0, atol=0.3)
    density = found.tree["log_likelihood"]["y"].values
    assert density.shape == (2, 100, 120) and np.isfinite(density).all()


class FakeSampler:
    def __init__(self, tree, error=None):
        self.tree, self.error, self.cancelled = tree, error, False

    def wait(self):
        if self.error is not None:
            raise self.error
        return self.tree

    def abort(self):
        return self.tree

    def cancel(self):
        self.cancelled = True


def test_interruption_keeps_the_draws_that_all_chains_have(monkeypatch):
    coef = np.random.default_rng(0).normal(size=(2, 20, 3, 2))
    coef[1, 12:] = np.nan
    tree = xr.DataTree.from_dict(
        {
            "/posterior": xr.Dataset({"coef": (("chain", "draw", "feature", "task"), coef)}),
            "/sample_stats": xr.Dataset({"diverging": (("chain", "draw"), np.zeros((2, 20), dtype=bool))}),
        }
    )
    monkeypatch.setattr(nuts.nutpie, "compile_pymc_model", lambda *args, **options: None)
    monkeypatch.setattr(nuts.nutpie, "sample", lambda *args, **options: FakeSampler(tree, KeyboardInterrupt()))
    with pm.Model() as model:
        pm.Normal("coef", shape=(3, 2))
    draws = nuts.sample(model, {}, PosteriorRequest())
    assert draws.interrupted and draws.n_draws == 12 and draws.variables["coef"].shape == (2, 12, 3, 2)
    assert diagnose(draws).divergences == 0


def test_errors_stop_the_threads():
    sampler = FakeSampler(None, RuntimeError("no start found"))
    with pytest.raises(RuntimeError, match="no point to begin from") as raised:
        nuts._finished(sampler)
    assert sampler.cancelled and raised.value.__cause__ is sampler.error
