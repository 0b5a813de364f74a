"""Projection-predictive selection: true supports, cross-validation, forms, messages."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit
from sklearn.base import BaseEstimator

import bayesmtfs as bm
from bayesmtfs.families import Gaussian
from bayesmtfs.selection import projection_selection
from bayesmtfs.selection.draws import read_draws
from bayesmtfs.selection.projection import (
    PredictiveLoss,
    leave_one_out,
    loss_of_submodels,
    predictive_density,
    smallest_adequate,
    unreliable_share,
)
from bayesmtfs.selection.submodels import log_densities, project, reference_model, reference_of
from bayesmtfs.types import SelectionWarning


@pytest.fixture(scope="module")
def sim():
    return bm.simulate_tasks(n_tasks=4, n_features=15, n_relevant=3, n_samples=60, snr=4, random_state=0)


@pytest.fixture(scope="module")
def found(sim, conjugate_tree):
    return projection_selection(conjugate_tree(sim), sim.X, sim.y, sim.tasks)


def assert_supports_found(runs):
    """The truth enters first and is kept; now and then, one standard error being little, with one feature more."""
    extra = []
    for sim, result in runs:
        n_relevant = int(sim.support.sum())
        first = np.concatenate(result.steps[:n_relevant])
        assert set(first) == set(np.flatnonzero(sim.support))
        assert result.get_support()[sim.support].all()
        extra.append(result.size - n_relevant)
    assert max(extra) <= 1 and sum(extra) <= len(extra) / 3


def test_finds_the_true_support(conjugate_tree):
    runs = []
    for seed in range(6):
        sim = bm.simulate_tasks(n_tasks=4, n_features=15, n_relevant=3, n_samples=60, snr=4, random_state=seed)
        runs.append((sim, projection_selection(conjugate_tree(sim), sim.X, sim.y, sim.tasks, max_features=6)))
    assert_supports_found(runs)


def laplace_draws(data, scales, n_draws, seed):
    """Normal approximation of a logistic posterior under independent normal priors."""
    rng = np.random.default_rng(seed)
    p, m = data.n_features, data.n_tasks
    coef, intercept = np.empty((n_draws, p, m)), np.empty((n_draws, m))
    prior = np.append(scales**-2.0, 0.04)
    for t, (X, (start, stop)) in enumerate(zip(data.task_designs, data.spans, strict=True)):
        Z, y, mode = np.column_stack([X, np.ones(len(X))]), data.y[start:stop], np.zeros(p + 1)
        for _ in range(30):
            right = expit(y * (Z @ mode))
            precision = (Z.T * (right * (1 - right))) @ Z + np.diag(prior)
            mode += np.linalg.solve(precision, Z.T @ (y * (1 - right)) - prior * mode)
        root = np.linalg.cholesky(precision)
        draws = mode + np.linalg.solve(root.T, rng.standard_normal((p + 1, n_draws))).T
        coef[:, :, t], intercept[:, t] = draws[:, :p], draws[:, p]
    return coef, intercept


def test_finds_the_true_support_of_labels(tree_of):
    options = {"n_tasks": 3, "n_features": 10, "n_relevant": 2, "n_samples": 150, "snr": 2, "kind": "classification"}
    runs = []
    for seed in range(3):
        sim = bm.simulate_tasks(**options, random_state=seed)
        tree = tree_of(*laplace_draws(sim.data, np.where(sim.support, 2.0, 0.1), 1000, seed))
        labels = np.where(sim.y > 0, "b", "a")
        runs.append((sim, projection_selection(tree, sim.X, labels, sim.tasks, max_features=4, n_draws=200)))
        assert runs[-1][1].submodel.noise is None
    assert_supports_found(runs)


def test_result_is_consistent(sim, found):
    assert len(found.loss) == len(found.se) == len(found.divergence) == len(found.path) + 1
    assert (np.diff(found.divergence) <= 1e-9).all()
    np.testing.assert_allclose(found.elpd_reference - found.elpd, found.loss, atol=1e-9)
    assert found.loss[found.size] <= found.se[found.size] and (found.loss > found.se)[: found.size].all()
    # with all features the submodel is the reference
    assert len(found.path) == 15 and abs(found.loss[-1]) < 1e-8
    assert found.coef.shape == (4, 15) and ((found.coef != 0).any(axis=0) == found.get_support()).all()
    assert found.get_support(indices=True).tolist() == np.flatnonzero(found.get_support()).tolist()
    assert found.fold_share is None and found.method == "leave-one-out"


def test_projected_means_are_regressions_on_the_mean_fit(sim, conjugate_tree, found):
    posterior = conjugate_tree(sim)["posterior"]
    chosen = np.linspace(0, 999, 400).round().astype(int)
    W, b = posterior["coef"].values[0, chosen].mean(axis=0), posterior["intercept"].values[0, chosen].mean(axis=0)
    kept = found.submodel.features
    for t in range(4):
        X = sim.X[sim.tasks == t]
        Z = np.column_stack([X[:, kept], np.ones(len(X))])
        expected = np.linalg.lstsq(Z, X @ W[:, t] + b[t])[0]
        np.testing.assert_allclose(found.coef[t, kept], expected[:-1], rtol=1e-9)
        assert found.intercept[t] == pytest.approx(expected[-1])


@pytest.mark.parametrize("backend", ["pandas", "polars"])
def test_frame_and_words(found, backend):
    frame = found.to_frame(backend)
    assert list(frame.columns) == ["size", "feature", "loss", "se", "elpd", "divergence", "chosen"]
    assert frame["feature"][0] == "(none)" and frame["feature"][1] == found.path[0]
    assert np.asarray(frame["chosen"]).sum() == found.size + 1
    assert found.summary().startswith("3 of 15 features predict as well as all of them: ")
    assert "pass cv to repeat it" in found.summary()
    assert repr(found).startswith("ProjectionSelection(3 of 15 features: ")


def test_forms_of_the_same_data(tree_of, conjugate_draws):
    rng = np.random.default_rng(5)
    X = rng.standard_normal((60, 6)) * (rng.random((60, 6)) < 0.6)
    Y = X @ np.outer([2, 0, 0, -1, 0, 0], [1, 0.5, -1]) + 0.5 * rng.standard_normal((60, 3))
    Y[rng.random(Y.shape) < 0.1] = np.nan
    data = bm.TaskData.from_wide(X, Y)
    coef, intercept = conjugate_draws(data, np.full(3, 0.5), np.ones(6), 1000, 0)
    tree = tree_of(coef, intercept, np.full((1000, 3), 0.5))
    seen = ~np.isnan(Y)
    rows, tasks = np.nonzero(seen)
    forms = [(X, Y), (sp.csr_matrix(X), Y), (data,), (X[rows], Y[seen], tasks)]
    first, *others = (projection_selection(tree, *form) for form in forms)
    assert first.size == 2
    for other in others:
        assert other.path.tolist() == first.path.tolist()
        np.testing.assert_allclose(other.loss, first.loss, atol=1e-8)
    # cells of one row count as one in the wide form alone
    np.testing.assert_allclose(others[1].se, first.se)
    assert not np.allclose(others[2].se, first.se)


def test_groups_enter_whole(tree_of, conjugate_draws):
    rng = np.random.default_rng(6)
    X = rng.standard_normal((80, 6))
    y = X @ np.array([0, 0, 1, 0.5, 0, 0]) + 0.5 * rng.standard_normal(80)
    data = bm.TaskData.from_long(X, y, groups=np.arange(6) // 2)
    coef, intercept = conjugate_draws(data, [0.5], np.full(6, 0.3), 1000, 0)
    result = projection_selection(tree_of(coef, intercept, np.full((1000, 1), 0.5)), data)
    assert len(result.path) == 3 and result.path[0] == "x2 + x3"
    assert result.size == 1 and result.features.tolist() == ["x2", "x3"]


class Conjugate(BaseEstimator):
    """A regression with known noise and priors, whose posterior is drawn exactly: fits as a Bayesian estimator does."""

    def __init__(self, draw=None, noise=None, scales=None):
        self.draw = draw
        self.noise = noise
        self.scales = scales

    def fit(self, data):
        coef, intercept = self.draw["conjugate"](data, self.noise, self.scales, 1000, 0)
        self.posterior_ = self.draw["tree"](coef, intercept, np.tile(self.noise, (1000, 1)), tasks=data.task_names)
        self.n_rows_ = data.n_observations
        return self


@pytest.fixture
def estimator(sim, tree_of, conjugate_draws):
    draw = {"conjugate": conjugate_draws, "tree": tree_of}
    return Conjugate(draw, sim.noise, np.where(sim.support, 1.0, 0.05)).fit(sim.data)


def test_cross_validation_repeats_fit_and_search(sim, estimator):
    result = projection_selection(estimator, sim.X, sim.y, sim.tasks, cv=4, max_features=6)
    assert result.method == "cross-validation" and result.size == 3
    np.testing.assert_array_equal(result.get_support(), sim.support)
    assert result.fold_share.shape == (6,) and result.fold_share[2] == 1 and result.fold_share.min() < 1
    assert "repeated without each fold" in result.summary() and "fold_share" in result.to_frame().columns
    assert estimator.n_rows_ == 240  # the user's own fit is not touched
    loo = projection_selection(estimator, sim.X, sim.y, sim.tasks, max_features=6)
    assert result.path.tolist() == loo.path.tolist()
    assert abs(result.elpd_reference - loo.elpd_reference) < 25


def test_held_out_loss_of_one_fold_by_hand(sim, estimator):
    train, test = np.arange(240) % 3 > 0, np.arange(240) % 3 == 0
    folds = [(np.flatnonzero(train), np.flatnonzero(test))]
    result = projection_selection(estimator, sim.X, sim.y, sim.tasks, cv=folds, max_features=4, n_draws=1000)
    rows = bm.TaskData.from_long(sim.X[train], sim.y[train], sim.tasks[train])
    posterior = Conjugate(estimator.draw, sim.noise, estimator.scales).fit(rows).posterior_["posterior"]
    W, b = posterior["coef"].values[0], posterior["intercept"].values[0]
    eta = np.einsum("ip,spi->si", sim.X[test], W[:, :, sim.tasks[test]]) + b[:, sim.tasks[test]]
    sigma = sim.noise[sim.tasks[test]]
    density = np.exp(-0.5 * ((sim.y[test] - eta) / sigma) ** 2) / (sigma * np.sqrt(2 * np.pi))
    assert result.elpd_reference == pytest.approx(np.log(density.mean(axis=0)).sum())
    assert result.loss[0] > result.loss[1] > result.loss[3]


def test_noise_features_do_not_pay_when_the_search_is_repeated(tree_of, conjugate_draws):
    # a weakly informative prior and pure noise: no feature is adequate, whatever the search finds
    rng = np.random.default_rng(8)
    X, y, tasks = rng.standard_normal((80, 12)), rng.standard_normal(80), np.repeat([0, 1], 40)
    draw = {"conjugate": conjugate_draws, "tree": tree_of}
    model = Conjugate(draw, np.ones(2), np.full(12, 0.1)).fit(bm.TaskData.from_long(X, y, tasks))
    result = projection_selection(model, X, y, tasks, cv=5, max_features=6)
    assert result.size == 0 and result.features.tolist() == []
    assert not result.coef.any() and "0 of 12 features" in result.summary()


def test_bad_folds_are_named(sim, estimator, conjugate_tree):
    with pytest.raises(ValueError, match="cv is 3 but posterior is a DataTree, which cannot be fitted again"):
        projection_selection(conjugate_tree(sim), sim.X, sim.y, sim.tasks, cv=3)
    with pytest.raises(ValueError, match="cv leaves out whole tasks"):
        projection_selection(estimator, sim.X, sim.y, sim.tasks, cv="leave_one_task_out")
    rows = (np.flatnonzero(sim.tasks != 2), np.flatnonzero(sim.tasks == 2))
    with pytest.raises(ValueError, match="cv has a fold that holds all rows of task 2"):
        projection_selection(estimator, sim.X, sim.y, sim.tasks, cv=[rows])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_features": 0}, "max_features is 0; pass a whole number between 1 and 15"),
        ({"max_features": 16}, "max_features is 16; pass a whole number between 1 and 15"),
        ({"n_draws": 3}, "n_draws is 3; pass at least 20"),
        (
            {"loss": "hinge"},
            "Projection-predictive selection needs mean and a log-density; Hinge offers value, gradient",
        ),
        ({"loss": "absolute"}, "needs squared loss, or a smooth loss of labels or counts, but loss is 'absolute'"),
    ],
)
def test_bad_arguments(sim, conjugate_tree, options, message):
    with pytest.raises(ValueError, match=message):
        projection_selection(conjugate_tree(sim), sim.X, sim.y, sim.tasks, **options)


def test_too_short_a_path_is_warned_of(sim, conjugate_tree):
    with pytest.warns(SelectionWarning, match="none of the submodels of up to 1 features predicts as well"):
        result = projection_selection(conjugate_tree(sim), sim.X, sim.y, sim.tasks, max_features=1)
    assert result.size == 1


def test_uneven_weights_are_warned_of(tree_of, conjugate_draws):
    rng = np.random.default_rng(9)
    X, y = rng.standard_normal((20, 15)), rng.standard_normal(20)
    coef, intercept = conjugate_draws(bm.TaskData.from_long(X, y), [0.3], np.full(15, 5.0), 200, 0)
    with pytest.warns(SelectionWarning, match="importance weights of .* of the observations are too uneven"):
        projection_selection(tree_of(coef, intercept, np.full((200, 1), 0.3)), X, y)


def test_fewer_draws_are_evenly_spaced(sim, conjugate_tree):
    result = projection_selection(conjugate_tree(sim), sim.X, sim.y, sim.tasks, n_draws=50, max_features=3)
    assert result.submodel.coef.shape == (50, 3, 4)
    np.testing.assert_array_equal(result.get_support(), sim.support)


# ---------------------------------------------------------------------- predictive loss


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
    log_density = log_densities(data, reference_model(draws, Gaussian()))
    log_weights, pareto_k = leave_one_out(log_density, data.weight, np.arange(4000))
    assert unreliable_share(pareto_k, 4000) < 0.1
    reference = predictive_density(log_density, log_weights)
    model = project(data, reference_of(data, draws, Gaussian()), KEPT)
    submodel = predictive_density(log_densities(data, model), log_weights)
    exact = []
    for i in range(40):
        others = np.arange(40) != i
        train, fewer = posterior(X[others], y[others], 2000, i + 1)
        row = bm.TaskData.from_long(X[[i]], y[[i]])
        without = project(train, reference_of(train, fewer, Gaussian()), KEPT)
        models = (reference_model(fewer, Gaussian()), without)
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
    found, _ = leave_one_out(log_density, np.array([1.0, 2.0, 0.5]), np.arange(500))
    for i, weight in enumerate([1.0, 2.0, 0.5]):
        alone, _ = leave_one_out(weight * log_density[:, [i]], np.ones(1), np.arange(500))
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
    log_density = np.random.default_rng(0).normal(-1, 0.3, (500, 3))
    every, _ = leave_one_out(log_density, np.ones(3), np.arange(500))
    some, _ = leave_one_out(log_density, np.ones(3), np.arange(0, 500, 7))
    np.testing.assert_allclose(np.exp(some).sum(axis=0), 1)
    np.testing.assert_allclose(np.ptp(some - every[::7], axis=0), 0, atol=1e-12)


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
    loss = PredictiveLoss(np.array(difference, dtype=float), np.array(error, dtype=float), np.zeros(len(error)), -10.0)
    assert smallest_adequate(loss) == size
