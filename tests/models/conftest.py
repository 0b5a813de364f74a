"""What the tests of the PyMC side share: compilation and sampling in a mode made for small problems."""

import pymc as pm
import pytensor
import pytest


@pytest.fixture(scope="module")
def quick_compilation():
    """Interpret graphs rather than compile them, which is what takes the time in small tests."""
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        yield


@pytest.fixture
def sample_quickly():
    """Draw a handful of posterior samples, enough to see that a model can be sampled."""

    def sample(model, draws):
        return pm.sample(
            draws,
            tune=draws,
            chains=1,
            cores=1,
            model=model,
            random_seed=1,
            nuts_sampler="pymc",
            nuts={"max_treedepth": 4},
            compile_kwargs={"mode": "FAST_COMPILE"},
            compute_convergence_checks=False,
            progressbar=False,
            quiet=True,
        )

    return sample
