"""Weights of classes: those of scikit-learn for one task, task by task for several, in every route."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.utils.class_weight import compute_sample_weight

import bayesmtfs as bm

N, P = 150, 4


@pytest.fixture(scope="module")
def rare():
    """Two tasks in which one class is rare."""
    rng = np.random.default_rng(0)
    X, tasks = rng.normal(size=(2 * N, P)), np.repeat(["a", "b"], N)
    eta = 1.5 * X[:, 0] - 2.0 + (tasks == "b") * 1.0
    return X, np.where(rng.random(2 * N) < 1 / (1 + np.exp(-eta)), "yes", "no"), tasks


def by_task(class_weight, y, tasks):
    weight = np.empty(len(y))
    for t in np.unique(tasks):
        weight[tasks == t] = compute_sample_weight(class_weight, y[tasks == t])
    return weight


@pytest.mark.parametrize("class_weight", ["balanced", {"yes": 5.0}, {"yes": 0.5, "no": 2.0}])
def test_unpenalised_fits_are_those_of_scikit_learn(rare, class_weight):
    X, y, tasks = rare
    model = bm.MixedNormClassifier(penalty_strength=0, tol=1e-9, class_weight=class_weight).fit(X, y, tasks=tasks)
    for t, name in enumerate(("a", "b")):
        rows = tasks == name
        peer = LogisticRegression(C=np.inf, class_weight=class_weight, tol=1e-10, max_iter=1000).fit(X[rows], y[rows])
        np.testing.assert_allclose(model.coef_[t], peer.coef_[0], atol=2e-4)
        assert model.intercept_[t] == pytest.approx(peer.intercept_[0], abs=2e-4)


@pytest.mark.parametrize(
    "model",
    [
        bm.MixedNormClassifier(penalty_strength=0.05),
        bm.MixedNormClassifier(loss="hinge", penalty_strength=0.05),
        bm.MixedNormClassifier(loss="multinomial", penalty_strength=0.05),
        bm.MixedNormClassifierCV(n_penalties=5, cv=3),
        bm.JeffreysClassifier(),
        bm.GeneralizedNormalClassifier(offset=1e-3),
        bm.OnlineMixedNormClassifier(loss="logistic", random_state=0),
        bm.SmoothedClassifier(),
        bm.OnlineSmoothedClassifier(random_state=0),
        bm.baselines.IndependentRidgeClassifier()
        if hasattr(bm.baselines, "IndependentRidgeClassifier")
        else bm.MixedNormClassifier(norm_q=1),
    ],
    ids=lambda model: type(model).__name__ + str(getattr(model, "loss", "")),
)
def test_class_weights_are_sample_weights_of_classes(rare, model):
    X, y, tasks = rare
    sample_weight = np.random.default_rng(1).uniform(0.5, 2.0, len(y))
    for class_weight in ("balanced", {"yes": 3.0}):
        if class_weight == "balanced":
            weight = sample_weight.copy()
            for t in np.unique(tasks):
                for label in ("yes", "no"):
                    rows = (tasks == t) & (y == label)
                    weight[rows] *= sample_weight[tasks == t].sum() / (2 * sample_weight[rows].sum())
        else:
            weight = sample_weight * by_task(class_weight, y, tasks)
        by_row = model.fit(X, y, tasks=tasks, sample_weight=weight)
        coef, intercept = by_row.coef_.copy(), by_row.intercept_.copy()
        by_class = type(model)(**{**model.get_params(), "class_weight": class_weight})
        by_class.fit(X, y, tasks=tasks, sample_weight=sample_weight)
        np.testing.assert_allclose(by_class.coef_, coef, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(by_class.intercept_, intercept, rtol=1e-6, atol=1e-8)


def test_several_classes(rare):
    X, _, _ = rare
    y = np.digitize(X[:, 0] + np.random.default_rng(2).normal(size=2 * N), [0.0, 2.0])
    weight = compute_sample_weight("balanced", y)
    joint = bm.MixedNormClassifier(loss="multinomial", penalty_strength=0.02)
    by_row = joint.fit(X, y, sample_weight=weight).coef_.copy()
    by_class = bm.MixedNormClassifier(loss="multinomial", penalty_strength=0.02, class_weight="balanced").fit(X, y)
    np.testing.assert_allclose(by_class.coef_, by_row, atol=1e-8)
    rest = bm.MixedNormClassifier(penalty_strength=0.02, norm_q=1, tol=1e-9, class_weight="balanced").fit(X, y)
    for k in range(3):  # each class and its rest, as scikit-learn balances them
        one = bm.MixedNormClassifier(penalty_strength=0.02, norm_q=1, tol=1e-9, class_weight="balanced").fit(X, y == k)
        np.testing.assert_allclose(rest.coef_[k], one.coef_[0], atol=1e-5)


def test_streams_take_mappings_row_by_row(rare):
    X, y, tasks = rare
    plain, weighted = (
        bm.OnlineMixedNormClassifier(loss="logistic", penalty_strength=0.01, class_weight=weight)
        for weight in (None, {"yes": 2.0})
    )
    for rows in np.array_split(np.arange(2 * N), 60):
        weight = np.where(y[rows] == "yes", 2.0, 1.0)
        plain.partial_fit(X[rows], y[rows], tasks=tasks[rows], classes=["no", "yes"], sample_weight=weight)
        weighted.partial_fit(X[rows], y[rows], tasks=tasks[rows], classes=["no", "yes"])
    np.testing.assert_allclose(weighted.coef_, plain.coef_, rtol=1e-9)
    balanced = bm.OnlineMixedNormClassifier(class_weight="balanced")
    with pytest.raises(ValueError, match="goes with fit only"):
        balanced.partial_fit(X, y, tasks=tasks)


def test_each_estimator_of_a_comparison_has_its_own_weights(rare):
    X, y, tasks = rare
    models = {
        "plain": bm.MixedNormClassifier(penalty_strength=0.01),
        "balanced": bm.MixedNormClassifier(penalty_strength=0.01, class_weight="balanced"),
    }
    found = bm.compare(models, X, y, tasks=tasks, cv=3, progress=False)
    turned = bm.compare(dict(reversed(models.items())), X, y, tasks=tasks, cv=3, progress=False)
    errors = [{fit.name: fit.error for fit in table.fits} for table in (found, turned)]
    assert errors[0] == errors[1] and errors[0]["plain"] < errors[0]["balanced"]


def test_what_cannot_be_meant_is_refused(rare):
    X, y, tasks = rare
    for wrong, words in (("equal", "pass 'balanced'"), ({"yes": -1}, "positive number"), ({"maybe": 1}, "y has not")):
        with pytest.raises(ValueError, match=words):
            bm.MixedNormClassifier(class_weight=wrong).fit(X, y, tasks=tasks)


def test_files_keep_class_weights(rare, tmp_path):
    X, y, tasks = rare
    model = bm.MixedNormClassifier(class_weight={"yes": 3.0}).fit(X, y, tasks=tasks)
    model.save(tmp_path / "model")
    assert bm.load(tmp_path / "model").class_weight == {"yes": 3.0}
