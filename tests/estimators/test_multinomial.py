"""Several classes within tasks, against scikit-learn, cvxpy and the binary fit."""

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

import bayesmtfs as bm


def simulate(n=240, p=6, seed=0):
    """Rows, labels and tasks of three classes in three tasks, of which the first two features matter."""
    rng = np.random.default_rng(seed)
    X, tasks = rng.normal(size=(n, p)), rng.choice(["a", "b", "c"], n)
    coef = np.zeros((3, 3, p))
    coef[:, :, :2] = 1.5 * rng.normal(size=(3, 3, 2))
    eta = np.einsum("np,nkp->nk", X, coef[np.unique(tasks, return_inverse=True)[1]])
    labels = np.array(["low", "middle", "up"])[np.argmax(eta + rng.gumbel(size=eta.shape), axis=1)]
    return X, labels, tasks


def cvxpy_objective(X, labels, tasks, strength, q, weight=None, fit_intercept=True):
    """Smallest objective, by a conic solver."""
    weight, loss, blocks = np.ones(len(X)) if weight is None else weight, 0.0, []
    for task in np.unique(tasks):
        own = tasks == task
        W, b = cp.Variable((X.shape[1], 3)), cp.Variable((1, 3))
        eta = X[own] @ W + (np.ones((own.sum(), 1)) @ b if fit_intercept else 0.0)
        chosen = cp.sum(cp.multiply(np.unique(labels) == labels[own, None], eta), axis=1)
        loss += weight[own] / weight[own].sum() @ (cp.log_sum_exp(eta, axis=1) - chosen)
        blocks.append(W)
    rows = cp.hstack(blocks)
    penalty = sum(cp.norm(rows[i], "inf" if q == np.inf else q) for i in range(X.shape[1]))
    return cp.Problem(cp.Minimize(loss + strength * penalty)).solve(solver="CLARABEL")


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("q", [1, 2, 4, np.inf])
def test_objective_is_that_of_cvxpy(q, weighted):
    X, labels, tasks = simulate()
    strength = {1: 0.12, 2: 0.25, 4: 0.35, np.inf: 0.5}[q]
    weight = np.random.default_rng(4).uniform(0.5, 2.0, len(X)) if weighted else None
    model = bm.MixedNormClassifier(q, strength, loss="multinomial", tol=1e-8)
    model.fit(X, labels, tasks=tasks, sample_weight=weight)
    wanted = cvxpy_objective(X, labels, tasks, model.penalty_strength_, q, weight)
    np.testing.assert_allclose(model.objective_, wanted, rtol=1e-6)
    assert model.converged_
    assert model.coef_.shape == (3, 3, 6)
    assert 0 < model.get_support().sum() < 6


@pytest.mark.parametrize("q", [1, 2, 4, np.inf])
def test_objective_over_one_design_is_that_of_cvxpy(q):
    X, labels, _ = simulate(n=80)
    other = np.roll(labels, 1)
    model = bm.MixedNormClassifier(q, 0.1, loss="multinomial", tol=1e-8).fit(X, np.column_stack([labels, other]))
    long = np.vstack([X, X]), np.concatenate([labels, other]), np.repeat([0, 1], 80)
    np.testing.assert_allclose(model.objective_, cvxpy_objective(*long, 0.1, q), rtol=1e-6)


@pytest.mark.parametrize("q", [1, 2])
def test_a_path_is_solved_down_to_small_penalties(q):
    """What all classes have in common is chosen by the penalty alone, which was slow to settle where that is weak."""
    X, labels, tasks = simulate(n=120)
    settings = {"loss": "multinomial", "norm_q": q, "n_penalties": 6, "penalty_ratio": 1e-3}
    path = bm.mixed_norm_path(X, labels, tasks=tasks, **settings)
    assert path.converged.all()
    wanted = cvxpy_objective(X, labels, tasks, path.penalties[-1], q)
    model = bm.MixedNormClassifier(q, path.penalties[-1], loss="multinomial").fit(X, labels, tasks=tasks)
    np.testing.assert_allclose(model.objective_, wanted, rtol=1e-4)
    if q == 2:
        np.testing.assert_allclose(model.coef_.sum(axis=1), 0.0, atol=1e-9)


def test_objective_with_weights_and_without_intercepts_is_that_of_cvxpy():
    X, labels, tasks = simulate()
    weight = np.random.default_rng(5).uniform(0.2, 3.0, len(X))
    for fit_intercept in (True, False):
        model = bm.MixedNormClassifier(loss="multinomial", tol=1e-8, fit_intercept=fit_intercept, penalty_strength=0.05)
        model.fit(X, labels, tasks=tasks, sample_weight=weight)
        wanted = cvxpy_objective(X, labels, tasks, 0.05, 2, weight, fit_intercept)
        np.testing.assert_allclose(model.objective_, wanted, rtol=1e-6)


def test_without_penalty_and_tasks_it_is_that_of_scikit_learn():
    X, labels, _ = simulate()
    model = bm.MixedNormClassifier(loss="multinomial", penalty_strength=0.0).fit(X, labels)
    peer = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000).fit(X, labels)
    assert model.coef_.shape == (3, 6)
    assert model.converged_
    centred = model.coef_ - model.coef_.mean(axis=0)
    np.testing.assert_allclose(centred, peer.coef_ - peer.coef_.mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(model.predict_proba(X), peer.predict_proba(X), atol=1e-5)
    np.testing.assert_array_equal(model.predict(X), peer.predict(X))


def test_two_classes_are_the_logistic_loss():
    X, labels, tasks = simulate()
    labels = np.where(labels == "up", "up", "other")
    # of two classes the coefficients are opposite, and their row is sqrt(2) times as long as half the difference
    several = bm.MixedNormClassifier(loss="multinomial", penalty_strength=0.05, tol=1e-9).fit(X, labels, tasks=tasks)
    two = bm.MixedNormClassifier(penalty_strength=0.05 / np.sqrt(2), tol=1e-9).fit(X, labels, tasks=tasks)
    np.testing.assert_allclose(several.coef_[:, 1] - several.coef_[:, 0], two.coef_, atol=1e-4)
    np.testing.assert_allclose(several.objective_, two.objective_, rtol=1e-8)


def test_nothing_is_selected_at_the_largest_penalty_and_something_below():
    X, labels, tasks = simulate()
    path = bm.mixed_norm_path(X, labels, tasks=tasks, loss="multinomial", n_penalties=8, penalty_ratio=0.1)
    assert path.coefs.shape == (8, 9, 6)
    assert path.converged.all()
    largest = path.penalties[0]
    model = bm.MixedNormClassifier(loss="multinomial", tol=1e-9)
    for share, some in ((1.0, False), (0.999, True)):
        fitted = clone(model).set_params(penalty_strength=share * largest).fit(X, labels, tasks=tasks)
        assert fitted.get_support().any() == some


def test_forms_predict_the_same():
    X, _, _ = simulate(n=90)
    labels = np.column_stack([simulate(n=90, seed=seed)[1] for seed in (0, 1)])
    wide = bm.MixedNormClassifier(loss="multinomial").fit(X, labels)
    long = bm.MixedNormClassifier(loss="multinomial").fit(
        np.tile(X, (2, 1)), labels.T.ravel(), tasks=np.repeat([0, 1], 90)
    )
    np.testing.assert_allclose(wide.coef_, long.coef_, atol=1e-4)
    assert wide.predict(X).shape == (90, 2)
    assert wide.predict_proba(X).shape == (90, 2, 3)
    np.testing.assert_allclose(wide.predict_proba(X).sum(axis=2), 1.0)
    first = long.predict_proba(X, tasks=np.zeros(90, dtype=int))
    np.testing.assert_allclose(first, wide.predict_proba(X)[:, 0], atol=1e-4)
    data = bm.TaskData.from_long(np.tile(X, (2, 1)), labels.T.ravel(), np.repeat([0, 1], 90))
    again = bm.MixedNormClassifier(loss="multinomial").fit(data)
    np.testing.assert_allclose(again.predict_proba(data)[:90], first, atol=1e-6)
    assert again.score(data) == long.score(np.tile(X, (2, 1)), labels.T.ravel(), tasks=np.repeat([0, 1], 90))


def test_a_class_that_a_task_does_not_have_is_improbable_there():
    X, labels, tasks = simulate()
    kept = (tasks != "a") | (labels != "up")
    model = bm.MixedNormClassifier(loss="multinomial").fit(X[kept], labels[kept], tasks=tasks[kept])
    assert model.converged_
    assert model.predict_proba(X[tasks == "a"], tasks=tasks[tasks == "a"])[:, 2].max() < 1e-3


def test_a_file_brings_back_the_fit(tmp_path):
    X, labels, tasks = simulate(n=90)
    model = bm.MixedNormClassifier(loss="multinomial").fit(pd.DataFrame(X).add_prefix("f"), labels, tasks=tasks)
    model.save(tmp_path / "model")
    back = bm.load(tmp_path / "model")
    np.testing.assert_array_equal(back.coef_, model.coef_)
    np.testing.assert_array_equal(back.tasks_, model.tasks_)
    new = pd.DataFrame(X).add_prefix("f")
    np.testing.assert_array_equal(back.predict_proba(new, tasks=tasks), model.predict_proba(new, tasks=tasks))
    assert model.result_.task_names[0] == "a: low"
    assert model.result_.coef.shape == (9, 6)


def test_cross_validation_finds_the_features():
    X, labels, tasks = simulate(n=300)
    model = bm.MixedNormClassifierCV(loss="multinomial", n_penalties=10, penalty_ratio=0.05, cv=3)
    model.fit(X, labels, tasks=tasks)
    assert model.get_support()[:2].all()
    assert model.score(X, labels, tasks=tasks) > 0.6
    with pytest.raises(ValueError, match="leaves out tasks, but y has several classes"):
        model.set_params(cv="leave_one_task_out").fit(X, labels, tasks=tasks)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (bm.MixedNormClassifier(), "3 classes and tasks was passed.*loss='multinomial'"),
        (bm.MixedNormClassifier(loss="multinomial", shared_mean=True), "shared_mean=True does not go with"),
        (bm.MixedNormClassifier(loss="multinomial", solver="proximal_gradient"), "no certificate by solver"),
        (bm.JeffreysClassifier(loss="multinomial"), "MixedNorm"),
        (bm.MatrixVariateClassifier(loss="multinomial"), "MixedNorm"),
        (bm.OnlineMixedNormClassifier(loss="multinomial"), "MixedNorm"),
        (bm.BayesianClassifier(loss="multinomial", prior="horseshoe", sampler="gibbs"), "use sampler='nuts' or 'auto'"),
        (bm.MixedNormRegressor(loss="multinomial"), "loss is 'multinomial'"),
    ],
)
def test_what_does_not_go_together_is_refused(model, message):
    X, labels, tasks = simulate(n=60)
    with pytest.raises(ValueError, match=message):
        model.fit(X, labels, tasks=tasks)
