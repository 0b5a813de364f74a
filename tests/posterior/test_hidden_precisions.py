"""Posteriors of families that are normal given a hidden precision: Gibbs and NUTS agree; what is learned is kept."""

import numpy as np
import pytest
from arviz_stats.base import array_stats

import bayesmtfs as bm
from bayesmtfs.data.simulation import simulate_tasks
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import find_family
from bayesmtfs.gibbs.chain import ChainSettings, sample_chain
from bayesmtfs.priors.hyperpriors import hyperprior_for

NAMES = {"coef": "W", "intercept": "intercept", "noise": "noise", "row_scale": "row_scales"}
LEARNED = {"student_t(learn)": "degrees", "negative_binomial(learn)": "dispersion"}


def tables(loss, n=25, p=4, m=2, seed=0):
    sim = simulate_tasks(n_tasks=m, n_features=p, n_samples=n, n_relevant=2, random_state=seed)
    rng, data = np.random.default_rng(seed), sim.data
    if loss.startswith("negative_binomial"):
        mean = np.exp(1.0 + 0.3 * (data.y - data.y.mean()) / data.y.std())
        return data.with_target(rng.poisson(mean * rng.gamma(2.0, 0.5, len(mean))).astype(float))
    return data.with_target(data.y + 0.3 * rng.standard_t(2, len(data.y)))


def mean_and_error(values):
    flat = values.reshape(*values.shape[:2], -1)
    return flat.mean(axis=(0, 1)), array_stats.mcse(flat, chain_axis=0, draw_axis=1, method="mean")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "loss",
    [
        "student_t(3)",
        "student_t(learn)",
        "quantile(0.8)",
        "absolute",
        "negative_binomial(0.5)",
        "negative_binomial(learn)",
    ],
)
def test_gibbs_and_nuts_have_the_same_posterior(loss, weighted):
    nutpie = pytest.importorskip("nutpie")
    from bayesmtfs.models import generalized_normal_model

    data = tables(loss)
    if weighted:
        weight = np.random.default_rng(1).choice([0.5, 1.0, 2.5], data.n_observations)
        data = TaskData.from_long(data.X, data.y, data.task, sample_weight=weight)
    prior = hyperprior_for(data, loss, tail_shape=1.5, global_scale=0.3)
    model = generalized_normal_model(data, 2, loss, prior=prior)
    compiled = nutpie.compile_pymc_model(model)
    options = {"draws": 1200, "tune": 600, "chains": 2, "seed": 1, "target_accept": 0.95}
    posterior = nutpie.sample(compiled, progress_bar=False, cores=1, **options)["posterior"].dataset
    chains = [sample_chain(data, prior, ChainSettings(2500, 500, seed), loss=loss) for seed in range(2)]
    names = {name: ours for name, ours in NAMES.items() if name in posterior}
    names |= {LEARNED[loss]: "parameter"} if loss in LEARNED else {}
    for name, ours in names.items():
        transform = np.arctan if name in ("coef", "intercept") else np.log
        nuts = transform(np.asarray(posterior[name].values))
        gibbs = transform(np.stack([getattr(chain, ours) for chain in chains]))
        gibbs = gibbs[..., 0] if name == "degrees" else gibbs
        cut = np.quantile(gibbs, 0.7, axis=(0, 1))
        for function in (np.asarray, np.square, lambda x, cut=cut: 1.0 * (x < cut)):
            (one, first), (other, second) = (mean_and_error(function(draws)) for draws in (nuts, gibbs))
            z = (one - other) / np.hypot(first, second)
            assert np.abs(z).max() < 4.5, (name, z.round(1))


@pytest.mark.filterwarnings("ignore")  # of few draws
@pytest.mark.parametrize("prior", ["spike", "generalized_normal"])
@pytest.mark.parametrize("loss", ["student_t(learn)", "negative_binomial(learn)"])
def test_an_estimator_learns_predicts_and_keeps_the_parameter(loss, prior, tmp_path):
    data, name = tables(loss, n=40), LEARNED[loss]
    settings = {"draws": 60, "tune": 60, "chains": 2, "random_state": 0}
    model = bm.BayesianRegressor(loss=loss, prior=prior, **settings).fit(data.X, data.y, tasks=data.task)
    assert model.posterior_.attrs["sampler"] == "gibbs"
    drawn = model.posterior_["posterior"][name]
    assert drawn.dims == (("chain", "draw") if name == "degrees" else ("chain", "draw", "task"))
    found = getattr(model, f"{name}_")
    np.testing.assert_allclose(found, np.median(drawn.values, axis=(0, 1)))
    mean, low, high = model.predict(data.X, tasks=data.task, interval=0.9)
    assert 0.75 < np.mean((data.y >= low) & (data.y <= high)) <= 1.0 and np.all(low <= high)
    density = model.posterior_["log_likelihood"]["y"].values[0, 3]
    task = model.posterior_["constant_data"]["task_index"].values
    at = drawn.values[0, 3] if name == "degrees" else drawn.values[0, 3][task]
    eta = np.einsum("ij,ji->i", data.X, model.posterior_["posterior"]["coef"].values[0, 3][:, task])
    eta += model.posterior_["posterior"]["intercept"].values[0, 3][task]
    noise = model.posterior_["posterior"]["noise"].values[0, 3][task] if name == "degrees" else 1.0
    np.testing.assert_allclose(density, find_family(loss).given(at).log_density(data.y, eta, noise), rtol=1e-8)
    model.save(tmp_path / "fit.bm")
    np.testing.assert_allclose(getattr(bm.load(tmp_path / "fit.bm"), f"{name}_"), found)


@pytest.mark.filterwarnings("ignore")  # of few draws
@pytest.mark.parametrize("loss", ["student_t(3)", "student_t(learn)"])
def test_one_row_far_out_does_not_set_the_scale_of_exact_zeros(loss):
    """Deviations of the target are a million times those of the other rows."""
    rng = np.random.default_rng(0)
    X, tasks = rng.normal(size=(120, 6)), np.repeat([0, 1], 60)
    y = X[:, 0] + 0.5 * rng.normal(size=120)
    y[[3, 90]] = [1e7, -1e7]
    model = bm.BayesianRegressor(loss=loss, draws=150, tune=150, chains=2, random_state=0).fit(X, y, tasks=tasks)
    assert model.prior_ == "spike" and model.get_support(indices=True).tolist() == [0]
    np.testing.assert_allclose(model.coef_[:, 0], 1.0, atol=0.3)
    assert np.all((model.noise_ > 0.2) & (model.noise_ < 0.8))


def test_the_prior_with_exact_zeros_says_what_it_does_not_have():
    data = tables("negative_binomial(1)", n=10)
    with pytest.raises(ValueError, match="'poisson' does not go with prior='spike'.*'negative_binomial"):
        bm.BayesianRegressor(loss="poisson", prior="spike").fit(data.X, data.y, tasks=data.task)
