"""The Gibbs sampler and NUTS on the PyMC model have the same posterior."""

import numpy as np
import pytest
from arviz_stats.base import array_stats

from bayesmtfs.data.simulation import simulate_tasks
from bayesmtfs.gibbs.chain import ChainSettings, sample_chain
from bayesmtfs.priors.hyperpriors import hyperprior_for

pytestmark = pytest.mark.slow

NAMES = {"coef": "W", "intercept": "intercept", "noise": "noise", "row_scale": "row_scales"}
CHAINS = 3


def model_and_prior(data, kind, norm_q, shared_mean):
    from bayesmtfs import models

    prior = hyperprior_for(data, kind=kind, bounds=(0.02, 3.0), scale_power=2.0, shared_mean=shared_mean)
    shape = "learn" if norm_q is None else norm_q
    if kind == "log_uniform":
        return models.jeffreys_model(data, (0.02, 3.0), shape, shared_mean=shared_mean), prior
    return models.generalized_normal_model(data, shape, prior=prior), prior


def by_nuts(model, names):
    nutpie = pytest.importorskip("nutpie")
    compiled = nutpie.compile_pymc_model(model)
    options = {"seed": 1, "progress_bar": False, "target_accept": 0.95, "cores": 1}
    posterior = nutpie.sample(compiled, draws=1500, tune=800, chains=CHAINS, **options)["posterior"].dataset
    found = {name: np.asarray(posterior[name].values) for name in names}
    return found | {"norm_q": np.asarray(posterior["norm_q"].values)}


def by_gibbs(data, prior, norm_q, names):
    chains = [
        sample_chain(data, prior, ChainSettings(draws=4000, tune=1000, random_seed=seed, norm_q=norm_q))
        for seed in range(CHAINS)
    ]
    found = {name: np.stack([getattr(chain, ours) for chain in chains]) for name, ours in names.items()}
    return found | {"norm_q": np.stack([chain.norm_q for chain in chains])}


def moments(draws):
    """Means and their squared Monte Carlo errors, of every entry, its distance from the median and its sign."""
    flat = draws.reshape(*draws.shape[:2], -1)
    errors = array_stats.mcse(flat, chain_axis=0, draw_axis=1, method="mean")
    return flat.mean(axis=(0, 1)), np.asarray(errors) ** 2


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["beta_prime", "log_uniform"])
@pytest.mark.parametrize(("norm_q", "shared_mean"), [(2.0, False), (4.0, False), (None, False), (4.0, True)])
def test_same_means_and_spreads(kind, norm_q, shared_mean):
    data = simulate_tasks(
        n_tasks=4, n_features=4, n_samples=25, n_relevant=2, snr=2.0, intercept_scale=1.0, random_state=3
    ).data
    model, prior = model_and_prior(data, kind, norm_q, shared_mean)
    names = NAMES | ({"mean_coef": "mean"} if shared_mean else {})
    nuts, gibbs = by_nuts(model, names), by_gibbs(data, prior, norm_q, names)
    for name in names if norm_q is not None else [*names, "norm_q"]:
        transform = np.log if name in ("noise", "row_scale", "norm_q") else np.asarray
        first, second = transform(nuts[name]), transform(gibbs[name])
        centre = second.mean(axis=(0, 1))
        for power in (1, 2):
            one, one_error = moments((first - centre) ** power)
            other, other_error = moments((second - centre) ** power)
            z = (one - other) / np.sqrt(one_error + other_error)
            assert np.abs(z).max() < 4.5, (name, power, z.round(1))
