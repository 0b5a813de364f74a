"""A user's own family in the estimators: predictions, scores, counts, copies and files."""

import numpy as np
import pytest
from scipy.special import gammaln, xlogy
from sklearn.base import clone
from sklearn.metrics import d2_tweedie_score

import bayesmtfs as bm
from bayesmtfs import families


class Poisson(families.Family):
    """Counts whose logarithm of the mean is eta."""

    name = "own_poisson"
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


@pytest.fixture(scope="module")
def counts():
    rng = np.random.default_rng(0)
    X, tasks = rng.normal(size=(240, 6)), np.repeat(["a", "b", "c"], 80)
    W = np.zeros((6, 3))
    W[:2] = 0.5 * rng.normal(size=(2, 3))
    rate = np.exp(0.3 + np.sum(X * W.T[np.repeat(np.arange(3), 80)], axis=1))
    return X, rng.poisson(rate), tasks


@pytest.fixture(scope="module")
def fitted(counts):
    X, y, tasks = counts
    return bm.MixedNormRegressor(loss=Poisson(), penalty_strength=0.05).fit(X, y, tasks=tasks)


@pytest.fixture
def registered():
    families.register(Poisson())
    yield
    del families.family._KNOWN["own_poisson"]


def test_predictions_are_means_and_the_score_is_explained_deviance(fitted, counts):
    X, y, tasks = counts
    predicted = fitted.predict(X, tasks=tasks)
    assert fitted.converged_ and (predicted > 0).all()
    assert fitted.score(X, y, tasks=tasks) == pytest.approx(d2_tweedie_score(y, predicted, power=1), rel=1e-6)
    weight = np.arange(1.0, len(y) + 1)
    expected = d2_tweedie_score(y, predicted, sample_weight=weight, power=1)
    assert fitted.score(X, y, tasks=tasks, sample_weight=weight) == pytest.approx(expected, rel=1e-6)


def test_saturated_loss_without_a_conjugate():
    class Plain(Poisson):
        conjugate = families.Family.conjugate

    y = np.array([1.0, 4.0, 1.0])
    np.testing.assert_allclose(Plain().saturated(y), Poisson().saturated(y), atol=1e-9)


@pytest.mark.parametrize("wrong", [-1.0, 0.5])
def test_counts_are_whole_and_not_negative(counts, wrong):
    X, y, tasks = counts
    with pytest.raises(ValueError, match=r"y has the entry .*loss=Poisson\(\) is for counts; pass whole numbers"):
        bm.MixedNormRegressor(loss=Poisson()).fit(X, np.where(np.arange(len(y)) == 7, wrong, y), tasks=tasks)


def test_a_family_of_counts_is_for_regressors(counts):
    X, y, tasks = counts
    with pytest.raises(ValueError, match=r"loss is Poisson\(\), a family of counts; use a regressor"):
        bm.MixedNormClassifier(loss=Poisson()).fit(X, y > 1, tasks=tasks)
    with pytest.raises(ValueError, match=r"loss is Logistic\(\), a family of labels; use a classifier"):
        bm.MixedNormRegressor(loss=families.Logistic()).fit(X, y, tasks=tasks)


def test_a_built_in_family_is_its_name(counts):
    X, y, tasks = counts
    by_name = bm.MixedNormClassifier().fit(X, y > 1, tasks=tasks)
    by_object = bm.MixedNormClassifier(loss=families.Logistic()).fit(X, y > 1, tasks=tasks)
    np.testing.assert_array_equal(by_object.coef_, by_name.coef_)
    np.testing.assert_array_equal(by_object.predict_proba(X, tasks=tasks), by_name.predict_proba(X, tasks=tasks))


def test_path_cross_validation_and_criterion(counts):
    X, y, tasks = counts
    path = bm.mixed_norm_path(X, y, tasks=tasks, loss=Poisson(), n_penalties=6)
    assert path.converged.all() and len(path.penalties) == 6
    chosen = bm.MixedNormRegressorCV(loss=Poisson(), n_penalties=6, cv=3).fit(X, y, tasks=tasks)
    assert chosen.penalties is None and 0 < chosen.penalty_strength_ < path.penalties[0]
    eta = X @ chosen.path_.coefs[0].mean(axis=0) + chosen.path_.intercepts[0].mean()
    assert abs(chosen.cv_results_["mean_error"][0, 0] - Poisson().value(y, eta).mean()) < 0.05  # at W = 0
    sparse = bm.MixedNormRegressorCV(loss=Poisson(), n_penalties=6, criterion="bic").fit(X, y, tasks=tasks)
    assert sparse.get_support().sum() <= chosen.get_support().sum()


def test_copies_show_the_family(fitted):
    copy = clone(fitted)
    assert copy.get_params()["loss"] == Poisson() and "loss=Poisson()" in repr(copy)
    assert fitted.result_.settings["loss"] == "own_poisson"


def test_a_family_without_a_name_is_not_saved(fitted, tmp_path):
    with pytest.raises(ValueError, match=r"call bm.families.register\(family\) before save"):
        fitted.save(tmp_path / "model")


def test_a_registered_family_is_saved_by_name(fitted, counts, tmp_path, registered):
    X, _, tasks = counts
    fitted.save(tmp_path / "model")
    loaded = bm.load(tmp_path / "model")
    assert loaded.loss == "own_poisson"
    np.testing.assert_array_equal(loaded.predict(X, tasks=tasks), fitted.predict(X, tasks=tasks))
    del families.family._KNOWN["own_poisson"]
    with pytest.raises(ValueError, match="loss='own_poisson', which is not known here; call bm.families.register"):
        bm.load(tmp_path / "model")
    families.register(Poisson())
