"""Truth values and whole numbers are asked for by every estimator that declares them."""

import numpy as np
import pytest

import bayesmtfs as bm
from bayesmtfs import baselines
from bayesmtfs.estimators.parameter_kinds import check_kinds

X = np.random.default_rng(0).standard_normal((24, 3))
LABELS = np.tile([0, 1], 12)
TASKS = np.repeat([0, 1], 12)

WRONG = [
    (bm.MixedNormRegressor(max_iter=1.5), "max_iter is 1.5; pass a whole number such as 10000"),
    (bm.MixedNormRegressor(max_iter=True), "max_iter is True; pass a whole number"),
    (bm.MixedNormClassifier(fit_intercept="no"), "fit_intercept is 'no'; pass True or False"),
    (bm.MixedNormRegressorCV(n_penalties=7.0), "n_penalties is 7.0; pass a whole number such as 100"),
    (bm.JeffreysRegressor(standardize=None), "standardize is None; pass True or False"),
    (bm.GeneralizedNormalRegressor(max_iter="many"), "max_iter is 'many'; pass a whole number"),
    (bm.OnlineMixedNormRegressor(shuffle="yes"), "shuffle is 'yes'; pass True or False"),
    (bm.OnlineSmoothedClassifier(epochs=0.5), "epochs is 0.5; pass a whole number such as 1"),
    (bm.DiscriminativeSelector(standardize=1), "standardize is 1; pass True or False"),
    (baselines.FisherScoreSelector(standardize="x"), "standardize is 'x'; pass True or False"),
]


@pytest.mark.parametrize(("model", "message"), WRONG, ids=lambda value: type(value).__name__)
def test_fit_refuses_the_wrong_kind(model, message):
    with pytest.raises(ValueError, match=message):
        model.fit(X, LABELS, tasks=TASKS)


@pytest.mark.parametrize("kind", [bm.OnlineMixedNormRegressor, bm.OnlineSmoothedClassifier])
def test_the_first_batch_of_a_stream_is_refused(kind):
    with pytest.raises(ValueError, match="average is 'often'; pass True or False"):
        kind(average="often").partial_fit(X, LABELS, TASKS)


def test_numbers_of_numpy_are_welcome():
    model = bm.MixedNormRegressor(max_iter=np.int64(500), fit_intercept=np.bool_(False))
    assert model.fit(X, LABELS, tasks=TASKS).converged_


def test_estimators_without_fields_are_let_through():
    check_kinds(object())
