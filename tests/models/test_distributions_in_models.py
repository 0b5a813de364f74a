"""The distributions inside PyMC models: named dimensions, prior draws, sampling, swapped data."""

import cloudpickle
import numpy as np
import pymc as pm
import pytest
from scipy import stats

from bayesmtfs.models import GeneralizedNormal, MatrixGeneralizedNormal, MixedNorm

COORDS = {"feature": ["a", "b", "c", "d"], "task": ["x", "y", "z"]}
QUICK = {"mode": "FAST_COMPILE"}
SHAPES = {"entry": (4,), "row": (4, 3), "matrix": (4, 3)}


@pytest.fixture(scope="module")
def model():
    with pm.Model(coords=COORDS) as model:
        GeneralizedNormal("entry", 0.5, 1.0, 3.0, dims="feature")
        MixedNorm("row", [1.0, 2.0, 3.0, 4.0], 1.5, dims=("feature", "task"))
        MatrixGeneralizedNormal("matrix", np.ones(4), np.eye(3) + 0.1, 2.0, dims=("feature", "task"))
    return model


def test_variables_carry_the_dimensions_of_the_model(model):
    assert model.named_vars_to_dims["row"] == ("feature", "task")
    assert {name: value.shape for name, value in model.initial_point().items()} == SHAPES


def test_prior_draws_are_labelled(model):
    prior = pm.sample_prior_predictive(7, model=model, random_seed=1, compile_kwargs=QUICK)["prior"].dataset
    assert dict(prior.sizes) == {"chain": 1, "draw": 7, "feature": 4, "task": 3}
    assert prior["matrix"].dims == ("chain", "draw", "feature", "task")
    assert np.ptp(prior["row"].to_numpy(), axis=1).min() > 0


def sample_with_defaults(model, draws):
    """Posterior from the default sampler and backend, without its messages."""
    settings = {"chains": 1, "cores": 1, "random_seed": 2, "progressbar": False, "quiet": True}
    return pm.sample(draws, tune=draws, model=model, **settings)["posterior"].dataset


def test_sampling_with_the_default_sampler_and_backend():
    with pm.Model(coords=COORDS) as model:
        GeneralizedNormal("entry", 0.5, 1.0, 3.0, dims="feature")
        MixedNorm("row", 4.0, 1.5, dims=("feature", "task"))
    posterior = sample_with_defaults(model, 200)
    assert posterior["row"].dims == ("chain", "draw", "feature", "task")
    # Without data the posterior is the prior: the norm of a row is Gamma(3, rate 4).
    norms = np.sum(np.abs(posterior["row"].to_numpy()) ** 1.5, axis=-1) ** (1 / 1.5)
    assert norms.mean() == pytest.approx(3 / 4, rel=0.25)
    assert posterior["entry"].mean() == pytest.approx(0.5, abs=0.15)


@pytest.mark.slow
def test_sampling_all_laws_with_the_default_sampler_and_backend(model):
    posterior = sample_with_defaults(model, 500)
    assert {name: posterior[name].shape[2:] for name in SHAPES} == SHAPES
    variances = posterior["matrix"].var(("chain", "draw")).to_numpy()
    np.testing.assert_allclose(
        variances, (np.diag((np.eye(3) + 0.1) @ (np.eye(3) + 0.1)) / 2)[None].repeat(4, 0), rtol=0.5
    )


@pytest.mark.slow
def test_draws_on_the_default_backend(model):
    entry, row, matrix = pm.draw([model["entry"], model["row"], model["matrix"]], draws=500, random_seed=3)
    assert (entry.shape, row.shape, matrix.shape) == ((500, 4), (500, 4, 3), (500, 4, 3))
    assert stats.kstest(entry.ravel(), stats.gennorm(3.0, 0.5, 1.0).cdf).pvalue > 0.01
    norms = np.sum(np.abs(row[:, 3]) ** 1.5, axis=1) ** (1 / 1.5)
    assert stats.kstest(norms, stats.gamma(3, scale=1 / 4).cdf).pvalue > 0.01
    assert stats.kstest(matrix[:, 0, 0], stats.norm(scale=np.sqrt(1.23 / 2)).cdf).pvalue > 0.01


def test_a_random_shape_and_scale_can_be_sampled(sample_quickly):
    with pm.Model(coords=COORDS) as model:
        inverse_q = pm.Uniform("inverse_q", 0.2, 1.0)
        scale = pm.HalfNormal("scale", dims="feature")
        GeneralizedNormal("coef", 0.0, scale, 1 / inverse_q, dims="feature")
    draws = sample_quickly(model, 10)["posterior"].dataset["coef"].to_numpy()
    assert np.isfinite(draws).all()
    assert np.ptp(draws, axis=1).min() > 0


def test_observed_data_can_be_swapped():
    with pm.Model() as model:
        old = np.array([[0.5, -1.0], [2.0, 0.3]])
        location = pm.Data("location", 0.0)
        GeneralizedNormal("entries", location, 1.5, 1.3, observed=pm.Data("entry_values", old))
        MixedNorm("rows", 2.0, 1.0, observed=pm.Data("row_values", old))
    log_density = model.compile_logp(**QUICK)
    new = np.array([[0.1, 0.2], [-3.0, 1.0], [0.4, 0.0]])
    pm.set_data({"entry_values": new, "row_values": new, "location": 0.7}, model=model)
    expected = stats.gennorm.logpdf(new, 1.3, 0.7, 1.5).sum() + stats.laplace.logpdf(new, scale=0.5).sum()
    assert log_density({}) == pytest.approx(expected, rel=1e-12)


@pytest.mark.usefixtures("quick_compilation")
def test_models_travel_to_other_processes(model):
    copy = cloudpickle.loads(cloudpickle.dumps(model))
    assert copy.point_logps() == model.point_logps()
