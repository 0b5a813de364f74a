"""Predictive loss: leaving out by weights against leaving out in truth, and its standard error."""

import numpy as np
import pytest

import bayesmtfs as bm
from bayesmtfs.selection.draws import read_draws
from bayesmtfs.selection.predictive_loss import (
    Loss,
    leave_one_out,
    loss_of_submodels,
    predictive_density,
    smallest_adequate,
    unreliable_share,
)
from bayesmtfs.selection.submodels import log_densities, project, reference_model, reference_of

KEPT = np.array([0, 2])


@pytest.fixture(scope="module")
def posterior(conjugate_draws, tree_of):
    """Draws of a regression with known noise, for any rows."""

    def draw(X, y, n_draws, seed):
        data = bm.TaskData.from_long(X, y)
        coef, intercept = conjugate_draws(data, [0.5], np.full(X.shape[1], 10.0), n_draws, seed)
        return data, read_draws(tree_of(coef, intercept, np.full((n_draws, 1), 0.5)))

    return draw


def test_weights_leave_out_what_a_fit_without_the_row_would(posterior):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((40, 6))
    y = X @ np.array([1.0, 0, -0.7, 0, 0, 0]) + 0.5 * rng.standard_normal(40)
    data, draws = posterior(X, y, 4000, 0)
    log_density = log_densities(data, reference_model(draws, "squared"))
    left_out = leave_one_out(log_density, data.weight)
    assert unreliable_share(left_out.pareto_k, 4000) < 0.1
    reference = predictive_density(log_density, left_out.log_weights)
    model = project(data, reference_of(data, draws, "squared"), KEPT)
    submodel = predictive_density(log_densities(data, model), left_out.log_weights)
    exact = []
    for i in range(40):
        others = np.arange(40) != i
        train, fewer = posterior(X[others], y[others], 2000, i + 1)
        row = bm.TaskData.from_long(X[[i]], y[[i]])
        without = project(train, reference_of(train, fewer, "squared"), KEPT)
        models = (reference_model(fewer, "squared"), without)
        exact.append([predictive_density(log_densities(row, each))[0] for each in models])
    exact = np.array(exact)
    assert reference.sum() == pytest.approx(exact[:, 0].sum(), abs=1.0)
    assert submodel.sum() == pytest.approx(exact[:, 1].sum(), abs=1.0)
    # the loss is a difference of two large sums: it is what must be right
    assert np.sum(reference - submodel) == pytest.approx(np.sum(exact[:, 0] - exact[:, 1]), abs=0.6)
    # without leaving out, the reference looks better than it is by about its number of parameters
    assert predictive_density(log_density).sum() > reference.sum() + 2


def test_a_weight_leaves_out_a_power_of_the_density():
    log_density = np.random.default_rng(0).normal(-1, 0.3, (500, 3))
    found = leave_one_out(log_density, np.array([1.0, 2.0, 0.5])).log_weights
    for i, weight in enumerate([1.0, 2.0, 0.5]):
        alone = leave_one_out(weight * log_density[:, [i]], np.ones(1)).log_weights
        np.testing.assert_allclose(found[:, i], alone[:, 0])
        bulk = log_density[:, i] > np.quantile(log_density[:, i], 0.3)  # smoothing touches the largest weights only
        ratio = found[bulk, i] + weight * log_density[bulk, i]
        assert np.ptp(ratio) < 1e-10
    np.testing.assert_allclose(np.exp(found).sum(axis=0), 1)


def test_predictive_density_does_not_overflow():
    log_density = np.array([[-2000.0, 800.0], [-2001.0, 800.0]])
    np.testing.assert_allclose(predictive_density(log_density), [-2000 + np.log((1 + np.exp(-1)) / 2), 800])


def test_share_of_unreliable_weights():
    pareto_k = np.array([0.1, 0.45, 0.69, 0.71])
    assert unreliable_share(pareto_k, 100) == 0.5 and unreliable_share(pareto_k, 10**5) == 0.25


def test_weights_of_some_draws_sum_to_one():
    left_out = leave_one_out(np.random.default_rng(0).normal(-1, 0.3, (500, 3)), np.ones(3))
    some = left_out.of_draws(np.arange(0, 500, 7))
    np.testing.assert_allclose(np.exp(some).sum(axis=0), 1)
    np.testing.assert_allclose(np.ptp(some - left_out.log_weights[::7], axis=0), 0, atol=1e-12)


def test_loss_and_its_standard_error():
    rng = np.random.default_rng(2)
    reference, submodels = rng.standard_normal(6), rng.standard_normal((2, 6))
    found = loss_of_submodels(submodels, reference, np.ones(6), np.arange(6))
    difference = reference - submodels
    np.testing.assert_allclose(found.difference, difference.sum(axis=1))
    np.testing.assert_allclose(found.standard_error, np.sqrt(6) * difference.std(axis=1, ddof=1))
    np.testing.assert_allclose(found.elpd_reference - found.elpd, found.difference)
    weight = np.array([1, 2, 1, 1, 3, 1.0])
    cells = loss_of_submodels(submodels, reference, weight, np.array([0, 0, 4, 4, 9, 9]))
    rows = (weight * difference).reshape(2, 3, 2).sum(axis=2)
    np.testing.assert_allclose(cells.standard_error, np.sqrt(3) * rows.std(axis=1, ddof=1))
    np.testing.assert_allclose(cells.difference, rows.sum(axis=1))


def test_cells_whose_noise_goes_together_count_as_one():
    # every row twice, as if it were two tasks: the error of the sum doubles, as it must
    lost = np.random.default_rng(3).standard_normal((1, 50))
    once = loss_of_submodels(-lost, np.zeros(50), np.ones(50), np.arange(50))
    twice = loss_of_submodels(-np.tile(lost, 2), np.zeros(100), np.ones(100), np.tile(np.arange(50), 2))
    np.testing.assert_allclose(twice.standard_error, 2 * once.standard_error)


@pytest.mark.parametrize(
    ("difference", "error", "size"),
    [([9, 3, 1, 0], [2, 2, 2, 0], 2), ([9, 3, -1], [2, 2, 0.1], 2), ([1, 5], [2, 2], 0), ([9, 8], [1, 1], None)],
)
def test_smallest_adequate_size(difference, error, size):
    loss = Loss(np.array(difference, dtype=float), np.array(error, dtype=float), np.zeros(len(error)), -10.0)
    assert smallest_adequate(loss) == size
