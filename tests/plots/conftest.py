"""Fits made by hand, so that it is known what a plot must show."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr

from bayesmtfs import FitResult
from bayesmtfs.results.fit_result import Convergence


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.fixture
def fit():
    """Make a result from coefficients and anything else."""

    def make(coef, method="Some", convergence=None, **more):
        coef = np.asarray(coef, dtype=float)
        return FitResult(
            method=method,
            coef=coef,
            intercept=np.zeros(len(coef)),
            task_names=[f"t{i}" for i in range(len(coef))],
            feature_names=[f"f{i}" for i in range(coef.shape[1])],
            convergence=convergence or Convergence(converged=True, n_iter=1),
            **more,
        )

    return make


@pytest.fixture
def screened(fit):
    """Make a result of five features whose posterior has draws (100, 2, 2) of two, and these draws."""
    draws = np.random.default_rng(0).standard_normal((100, 2, 2)) + np.array([[[1.0], [4.0]]])
    coords = {"feature": ["f1", "f3"], "task": ["t0", "t1"]}
    tree = xr.DataTree.from_dict(
        {"posterior": xr.Dataset({"coef": (("chain", "draw", "feature", "task"), draws[None])}, coords)}
    )
    coef = np.zeros((2, 5))
    coef[:, [1, 3]] = draws.mean(axis=0).T
    return fit(coef, posterior=tree), draws


@pytest.fixture
def posterior(fit):
    """Make a result with draws of coefficients (draws, p, m) and of other variables."""

    def make(draws, **others):
        coords = {"feature": [f"f{i}" for i in range(draws.shape[1])], "task": [f"t{i}" for i in range(draws.shape[2])]}
        variables = {"coef": (("chain", "draw", "feature", "task"), draws[None])}
        variables |= {name: (("chain", "draw"), values[None]) for name, values in others.items()}
        tree = xr.DataTree.from_dict({"posterior": xr.Dataset(variables, coords)})
        return fit(draws.mean(axis=0).T, method="Draws", posterior=tree)

    return make
