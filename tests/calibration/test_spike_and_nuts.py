"""Given the indicators, the sampler of the prior with exact zeros and NUTS on the PyMC model have the same posterior."""

import numpy as np
import pytest
from arviz_stats.base import array_stats

from bayesmtfs.data.scaling import in_sampling_units, sampling_units
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import find_family
from bayesmtfs.gibbs.chain import ChainSettings
from bayesmtfs.gibbs.spike import sample_spike_chain
from bayesmtfs.priors.spike import SpikePrior

pytestmark = pytest.mark.slow

PATTERN = np.array([[1, 1, 1], [0, 0, 0], [1, 0, 1]])
PRIOR = SpikePrior(  # one point of every grid, so that only the pattern is discrete
    inclusion_rates=(0.4,),
    inclusion_weights=(1.0,),
    pattern_rates=(0.6,),
    scales=(0.5,),
    shares=(0.7,),
    task_rates=(0.9,),
    task_rate_weights=(1.0,),
    concentrations=(1.0,),
)


def problem(loss):
    rng, family = np.random.default_rng(6), find_family(loss)
    labels = family.targets == "labels"
    n = 250 if labels else 25 if family.quadratic else 60
    X = rng.standard_normal((3 * n, 3)) + 0.8 * rng.standard_normal((3 * n, 1))
    tasks = np.arange(3 * n) % 3
    effects = 0.9 * PATTERN + 0.3 * rng.standard_normal((3, 3)) * PATTERN
    eta = np.sum(X * effects.T[tasks], axis=1) + tasks
    if labels:
        y = np.where(rng.random(3 * n) < 1.0 / (1.0 + np.exp(-eta)), 1.0, -1.0)
    elif family.quadratic:
        y = eta + rng.standard_normal(3 * n)
    else:
        known = family if family.learned is None else family.given(np.array([0.3, 0.6, 1.2])[tasks])
        y = known.draw(rng, eta)
    exposure = rng.uniform(0.5, 2.0, 3 * n) if family.targets == "counts" else None
    data = TaskData.from_long(X, y, tasks, exposure=exposure)
    units = sampling_units(data, centre=True, per_task=False, scale_target=family.has_noise)
    return in_sampling_units(data, units)


def by_nuts(data, loss, names):
    import pymc as pm

    from bayesmtfs.models import spike_model

    nutpie = pytest.importorskip("nutpie")
    fixed = {"pattern": PATTERN, "inclusion_number": 0, "concentration_number": 0}
    fixed |= {"task_rate_number": np.zeros(3, int), "scale_number": np.zeros(3, int), "share_number": np.zeros(3, int)}
    model = pm.do(spike_model(data, loss=loss, prior=PRIOR), fixed)
    options = {"seed": 1, "progress_bar": False, "target_accept": 0.95, "cores": 1}
    found = nutpie.sample(nutpie.compile_pymc_model(model), draws=2000, tune=800, chains=3, **options)
    return {name: np.asarray(found["posterior"].dataset[name].values) for name in names}


def by_gibbs(data, loss, names):
    """Draws of a long chain that have the pattern, as one chain."""
    chain = sample_spike_chain(data, PRIOR, ChainSettings(20_000, 500, 3), find_family(loss))
    given = np.all(chain.included == PATTERN.astype(bool), axis=(1, 2))
    assert given.sum() > 1500
    fields = {"coef": "W", "dispersion": "parameter"}
    return {name: getattr(chain, fields.get(name, name))[given][np.newaxis] for name in names}


def moments(draws):
    """Means and their squared Monte Carlo errors."""
    flat = draws.reshape(*draws.shape[:2], -1)
    errors = array_stats.mcse(flat, chain_axis=0, draw_axis=1, method="mean")
    return flat.mean(axis=(0, 1)), np.asarray(errors) ** 2


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("loss", ["squared", "logistic", "student_t(3)", "negative_binomial(learn)"])
def test_same_means_and_spreads_given_the_pattern(loss):
    family = find_family(loss)
    data, names = problem(loss), ["coef", "intercept"]
    names += (["noise"] if family.has_noise else []) + ([family.learned] if family.learned is not None else [])
    nuts, gibbs = by_nuts(data, loss, names), by_gibbs(data, loss, names)
    assert not nuts["coef"][..., PATTERN == 0].any()
    for name in names:
        kept = (..., PATTERN == 1) if name == "coef" else (...,)
        first, second = nuts[name][kept], gibbs[name][kept]
        centre = second.mean(axis=(0, 1))
        for power in (1, 2):
            one, one_error = moments((first - centre) ** power)
            other, other_error = moments((second - centre) ** power)
            z = (one - other) / np.sqrt(one_error + other_error)
            assert np.abs(z).max() < 4.5, (name, power, z.round(1))
