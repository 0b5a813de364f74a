"""The sampler by observation and NUTS have the same posterior of labels, also with p > n, and of several classes."""

import numpy as np
import pytest
from arviz_stats.base import array_stats

from bayesmtfs.data.classes import class_tasks
from bayesmtfs.data.simulation import simulate_tasks
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.gibbs.chain import ChainSettings, sample_chain
from bayesmtfs.priors.hyperpriors import hyperprior_for

NAMES = {"coef": "W", "intercept": "intercept", "row_scale": "row_scales", "global_scale": "global_scale"}
QUANTILES = (0.1, 0.5, 0.9)


def mean_and_error(values):
    flat = values.reshape(*values.shape[:2], -1)
    return flat.mean(axis=(0, 1)), array_stats.mcse(flat, chain_axis=0, draw_axis=1, method="mean")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("norm_q", "n_features"), [(2.0, 15), (4.0, 4), (None, 4), (None, 15)])
def test_same_means_spreads_and_quantiles(norm_q, n_features):
    data = simulate_tasks(
        n_tasks=2, n_features=n_features, n_samples=12, n_relevant=2, kind="classification", random_state=3
    ).data
    check(data, "logistic", norm_q)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("norm_q", [2.0, 4.0])
def test_same_posterior_of_several_classes(norm_q):
    sim = simulate_tasks(n_tasks=2, n_features=4, n_samples=[25, 40], n_relevant=2, random_state=3)
    labels = np.digitize(sim.y, np.quantile(sim.y, [0.3, 0.6])).astype(float)
    X = sim.X * [1.0, 2.0, 0.5, 1.0] + [0.0, 1.0, 0.0, -2.0]
    data = class_tasks(TaskData.from_long(X, labels, tasks=sim.tasks), np.arange(3))
    check(data, "multinomial", norm_q)


def check(data, loss, norm_q):
    """Means, mean squares and quantiles of all variables."""
    nutpie = pytest.importorskip("nutpie")
    from bayesmtfs.models import generalized_normal_model

    prior = hyperprior_for(data, loss, tail_shape=1.5, global_scale=0.4)
    learned = norm_q is None
    model = generalized_normal_model(data, "learn" if learned else norm_q, loss, prior=prior)
    # where q is learned NUTS needs small steps: shapes near 1 have kinks, and large q walls
    options = {"draws": 6000, "target_accept": 0.99} if learned else {"draws": 1500, "target_accept": 0.95}
    compiled = nutpie.compile_pymc_model(model)
    posterior = nutpie.sample(compiled, tune=800, chains=3, seed=1, progress_bar=False, cores=1, **options)
    posterior = posterior["posterior"].dataset
    settings = [ChainSettings(draws=4000, tune=1000, random_seed=seed, norm_q=norm_q) for seed in range(3)]
    chains = [sample_chain(data, prior, one, loss=loss) for one in settings]
    for name, ours in (NAMES | ({"norm_q": "norm_q"} if learned else {})).items():
        transform = np.arctan if name in ("coef", "intercept") else np.log
        nuts = transform(np.asarray(posterior[name].values))
        gibbs = transform(np.stack([getattr(chain, ours) for chain in chains]))
        functions = [np.asarray, np.square]
        functions += [lambda x, cut=np.quantile(gibbs, level, axis=(0, 1)): x < cut for level in QUANTILES]
        for function in functions:
            (one, first), (other, second) = (mean_and_error(1.0 * function(draws)) for draws in (nuts, gibbs))
            z = (one - other) / np.hypot(first, second)
            assert np.abs(z).max() < 4.5, (name, z.round(1))
