"""NUTS through the estimators: seeds and Ctrl-C, on one small model that is compiled once."""

import time

import numpy as np
import nutpie
import pytest
from sklearn.base import clone

from bayesmtfs import simulate_tasks
from bayesmtfs.estimators.bayesian import BayesianRegressor
from bayesmtfs.types import PosteriorWarning

FEW = {"sampler": "nuts", "draws": 60, "tune": 60, "chains": 2, "random_state": 0, "n_jobs": 1, "progress": False}
MANY = 200_000
SECONDS = 120.0  # most to wait for the first draws

pytestmark = pytest.mark.filterwarnings("ignore::bayesmtfs.types.PosteriorWarning")


@pytest.fixture(scope="module")
def sim():
    return simulate_tasks(n_tasks=2, n_features=3, n_samples=25, n_relevant=2, snr=4.0, random_state=0)


@pytest.fixture(scope="module")
def once():
    """Fits of the module have one model, and so one compiled form."""
    compiled, compile_model = [], nutpie.compile_pymc_model

    def compile_once(*args, **options):
        if not compiled:
            compiled.append(compile_model(*args, **options))
        return compiled[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nutpie, "compile_pymc_model", compile_once)
        yield


@pytest.fixture(scope="module")
def model(sim, once):
    return BayesianRegressor(**FEW).fit(sim.X, sim.y, tasks=sim.tasks)


def draws_of(model):
    return {name: values.values for name, values in model.posterior_["posterior"].data_vars.items()}


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_integer_seed_gives_the_same_draws_bit_for_bit(sim, model, n_jobs):
    again = clone(model).set_params(n_jobs=n_jobs).fit(sim.X, sim.y, tasks=sim.tasks)
    assert again.posterior_.attrs["sampler"] == "nuts"
    for name, values in draws_of(again).items():
        np.testing.assert_array_equal(values, draws_of(model)[name], err_msg=name)


def test_another_seed_gives_other_draws(sim, model):
    other = clone(model).set_params(random_state=1).fit(sim.X, sim.y, tasks=sim.tasks)
    assert not np.any(draws_of(other)["coef"] == draws_of(model)["coef"])


class Interrupted:
    """A sampler that the user stops when every chain has made some draws."""

    def __init__(self, start, options):
        self.finished, report = 0, options["progress_callback"]

        def watch(chains):
            self.finished = min(chain.finished_draws for chain in chains)
            report(chains)

        self.sampler = start(**options | {"progress_callback": watch})
        self.wanted = options["tune"] + 100

    def wait(self):
        begin = time.monotonic()
        while self.finished < self.wanted and time.monotonic() - begin < SECONDS:
            time.sleep(0.01)
        raise KeyboardInterrupt

    def abort(self):
        return self.sampler.abort()


def test_interruption_keeps_the_draws_so_far(sim, model, monkeypatch):
    sample = nutpie.sample

    def start(compiled, **options):
        return Interrupted(lambda **changed: sample(compiled, **changed), options)

    monkeypatch.setattr(nutpie, "sample", start)
    long = clone(model).set_params(draws=MANY, n_jobs=2)
    with pytest.warns(PosteriorWarning, match="sampling was interrupted, .* draws per chain are kept"):
        long.fit(sim.X, sim.y, tasks=sim.tasks)
    coef = draws_of(long)["coef"]
    assert coef.shape[0] == 2 and 50 <= coef.shape[1] < MANY
    assert np.all(np.isfinite(coef))
    assert long.diagnostics_.interrupted and not long.converged_
    assert long.predict(sim.X, tasks=sim.tasks).shape == sim.y.shape
