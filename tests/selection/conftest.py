"""Posteriors with a closed form, drawn directly: what selection from draws is tested against."""

import numpy as np
import pytest
import xarray as xr
from scipy.special import gammaln, xlogy

from bayesmtfs.families import Family


def as_tree(coef, intercept=None, noise=None, features=None, tasks=None, chains=1, **more):
    """Draws (S, p, m) and what goes with them, in ArviZ form."""
    n, p, m = coef.shape
    axes = {"coef": ("feature", "task"), "intercept": ("task",), "noise": ("task",), "row_scale": ("feature",)}
    axes |= {"task_relations": ("task", "task_bis"), "norm_q": (), "included": ("feature", "task")}
    given = {"coef": coef, "intercept": intercept, "noise": noise, **more}
    variables = {
        name: (("chain", "draw", *axes[name]), values.reshape(chains, n // chains, *values.shape[1:]))
        for name, values in given.items()
        if values is not None
    }
    coords = {
        "feature": [f"x{i}" for i in range(p)] if features is None else features,
        "task": np.arange(m) if tasks is None else tasks,
    }
    return xr.DataTree.from_dict({"posterior": xr.Dataset(variables, coords)})


def draw_conjugate(data, noise, scales, n_draws, seed):
    """Draws of coefficients and intercepts under independent normal priors and known noise (exact posterior)."""
    rng = np.random.default_rng(seed)
    p, m = data.n_features, data.n_tasks
    coef, intercept = np.empty((n_draws, p, m)), np.empty((n_draws, m))
    for t, (X, (start, stop)) in enumerate(zip(data.task_designs, data.spans, strict=True)):
        Z = np.column_stack([X.toarray() if data.is_sparse else X, np.ones(stop - start)])
        weighted = data.weight[start:stop, None] * Z / noise[t] ** 2
        precision = Z.T @ weighted + np.diag(np.append(scales**-2.0, 1e-4))
        mean = np.linalg.solve(precision, weighted.T @ data.y[start:stop])
        root = np.linalg.cholesky(precision)
        draws = mean + np.linalg.solve(root.T, rng.standard_normal((p + 1, n_draws))).T
        coef[:, :, t], intercept[:, t] = draws[:, :p], draws[:, p]
    return coef, intercept


@pytest.fixture(scope="session")
def tree_of():
    return as_tree


@pytest.fixture(scope="session")
def conjugate_draws():
    return draw_conjugate


@pytest.fixture(scope="session")
def conjugate_tree():
    """Tree of the exact posterior of a simulated regression."""

    def make(sim, n_draws=1000, spike=0.05, seed=0):
        scales = np.where(sim.support, 1.0, spike)
        coef, intercept = draw_conjugate(sim.data, sim.noise, scales, n_draws, seed)
        return as_tree(coef, intercept, np.tile(sim.noise, (n_draws, 1)), tasks=sim.data.task_names)

    return make


class Poisson(Family):
    """Counts with a log link."""

    name = "counts_of_a_test"
    targets = "counts"

    def value(self, y, eta):
        return np.exp(eta) - y * eta

    def gradient(self, y, eta):
        return np.exp(eta) - y

    def curvature(self, y, eta):
        return np.exp(eta) + 0.0 * y

    def conjugate(self, y, dual):
        rate = np.maximum(y + dual, 0.0)
        return np.where(y + dual < 0, np.inf, xlogy(rate, rate) - rate)

    def mean(self, eta):
        return np.exp(eta)

    def log_density(self, y, eta, noise=1.0):
        return y * eta - np.exp(eta) - gammaln(y + 1.0)


@pytest.fixture(scope="session")
def poisson():
    """A family of the user's."""
    return Poisson()
