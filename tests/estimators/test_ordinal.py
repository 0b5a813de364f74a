"""Ordered classes, against statsmodels, cvxpy and the binary fit."""

import cvxpy as cp
import numpy as np
import pytest

import bayesmtfs as bm


def simulate(n=240, p=6, m=3, seed=0):
    """Rows, classes 1 to 4 and tasks, of which the first two features matter."""
    rng = np.random.default_rng(seed)
    X, tasks = rng.normal(size=(n, p)), np.arange(n) % m
    coef = np.zeros((m, p))
    coef[:, :2] = 1.5 * rng.normal(size=(m, 2))
    eta = np.einsum("np,np->n", X, coef[tasks]) + rng.logistic(size=n)
    cuts = np.array([-2.0, 0.0, 1.0]) + 0.5 * rng.normal(size=(m, 1))
    return X, 1 + (eta[:, None] > cuts[tasks]).sum(axis=1), tasks


def cvxpy_objective(X, y, tasks, strength, q, weight=None, offset=None):
    weight, loss = np.ones(len(X)) if weight is None else weight, 0.0
    known = np.zeros(len(X)) if offset is None else offset
    m, k = len(np.unique(tasks)), int(y.max())
    W = cp.Variable((X.shape[1], m))
    for t in range(m):
        own, cuts = tasks == t, cp.Variable(k - 1)
        scale = weight[own].sum()
        for c in range(1, k + 1):
            rows = own & (y == c)
            eta, w = X[rows] @ W[:, t] + known[rows], weight[rows] / scale
            if c < k:
                loss += w @ cp.logistic(eta - cuts[c - 1])
            if c > 1:
                loss += w @ cp.logistic(cuts[c - 2] - eta)
            if 1 < c < k:
                loss -= w.sum() * cp.log(1.0 - cp.exp(cuts[c - 2] - cuts[c - 1]))
    penalty = sum(cp.norm(W[i], "inf" if q == np.inf else q) for i in range(X.shape[1]))
    return cp.Problem(cp.Minimize(loss + strength * penalty)).solve(
        solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10
    )


@pytest.mark.parametrize(("q", "strength"), [(1, 0.09), (2, 0.1), (4, 0.12), (np.inf, 0.15)])
@pytest.mark.parametrize("weighted", [False, True])
def test_objective_is_that_of_cvxpy(q, strength, weighted):
    X, y, tasks = simulate()
    weight = np.random.default_rng(5).uniform(0.2, 3.0, len(X)) if weighted else None
    model = bm.MixedNormClassifier(q, strength, loss="ordinal", tol=1e-8)
    model.fit(X, y, tasks=tasks, sample_weight=weight)
    assert model.objective_ == pytest.approx(cvxpy_objective(X, y, tasks, strength, q, weight), rel=1e-6)
    assert model.converged_ and model.coef_.shape == (3, 6) and model.thresholds_.shape == (3, 3)
    assert np.all(np.diff(model.thresholds_) > 0) and not model.intercept_.any()
    assert 2 <= model.get_support().sum() < 6


def test_objective_with_an_offset_is_that_of_cvxpy():
    X, y, tasks = simulate()
    offset = np.random.default_rng(6).normal(size=len(X))
    model = bm.MixedNormClassifier(2, 0.1, loss="ordinal", tol=1e-8).fit(X, y, tasks=tasks, offset=offset)
    assert model.objective_ == pytest.approx(cvxpy_objective(X, y, tasks, 0.1, 2, None, offset), rel=1e-6)
    p = model.predict_proba(X, tasks=tasks, offset=offset)
    loss = -np.log(p[np.arange(len(y)), y - 1]) @ (1.0 / np.bincount(tasks)[tasks])
    assert loss + 0.1 * np.linalg.norm(model.coef_, axis=0).sum() == pytest.approx(model.objective_, rel=1e-9)
    shares = model.predict_proba(X, tasks=tasks)  # without an offset
    np.testing.assert_allclose(model.predict_proba(X, tasks=tasks, offset=np.zeros(len(X))), shares)
    assert np.abs(shares - p).max() > 0.1


def test_wide_form_over_one_design_is_the_long_form():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(90, 5))
    Y = np.stack([1 + (X[:, 0] + rng.logistic(size=(90, 1)).ravel() > c).astype(int) for c in (-0.5, 0.5)], axis=1)
    Y[:, 1] += (X[:, 0] > 1.2).astype(int)
    Y[X[:, 0] < -1.2, 0] = 3
    wide = bm.MixedNormClassifier(penalty_strength=0.1, loss="ordinal", tol=1e-9).fit(X, Y)
    long = bm.MixedNormClassifier(penalty_strength=0.1, loss="ordinal", tol=1e-9)
    long.fit(np.vstack([X, X]), Y.T.ravel(), tasks=np.repeat([0, 1], 90))
    np.testing.assert_allclose(wide.coef_, long.coef_, atol=1e-5)
    np.testing.assert_allclose(wide.thresholds_, long.thresholds_, atol=1e-4)
    probability = wide.predict_proba(X)
    assert probability.shape == (90, 2, 3) and wide.predict(X).shape == (90, 2)
    np.testing.assert_allclose(probability[:, 1], long.predict_proba(X, tasks=np.ones(90, dtype=int)), atol=1e-5)


def test_one_task_without_penalty_is_that_of_statsmodels():
    model_of = pytest.importorskip("statsmodels.miscmodels.ordinal_model").OrderedModel
    X, y, _ = simulate(m=1, p=3)
    model = bm.MixedNormClassifier(loss="ordinal", penalty_strength=0.0, tol=1e-9).fit(X, y)
    peer = model_of(y, X, distr="logit").fit(method="bfgs", disp=False, gtol=1e-8, maxiter=500)
    np.testing.assert_allclose(model.coef_[0], peer.params[:3], atol=1e-5)
    np.testing.assert_allclose(
        model.thresholds_[0], peer.model.transform_threshold_params(peer.params)[1:-1], atol=1e-5
    )
    np.testing.assert_allclose(model.predict_proba(X), peer.predict(X), atol=1e-5)
    np.testing.assert_array_equal(model.predict(X), 1 + np.argmax(peer.predict(X), axis=1))
    assert model.score(X, y) == pytest.approx(np.mean(model.predict(X) == y))


def test_two_classes_are_the_logistic_loss():
    X, y, tasks = simulate()
    ordered = bm.MixedNormClassifier(penalty_strength=0.05, loss="ordinal", tol=1e-9).fit(X, y > 2, tasks=tasks)
    binary = bm.MixedNormClassifier(penalty_strength=0.05, tol=1e-9).fit(X, y > 2, tasks=tasks)
    np.testing.assert_allclose(ordered.coef_, binary.coef_, atol=1e-4)
    np.testing.assert_allclose(ordered.thresholds_[:, 0], -binary.intercept_, atol=1e-4)
    np.testing.assert_allclose(ordered.predict_proba(X, tasks=tasks), binary.predict_proba(X, tasks=tasks), atol=1e-4)


def test_reversed_classes_turn_all_signs():
    X, y, tasks = simulate()
    first, second = (
        bm.MixedNormClassifier(penalty_strength=0.08, loss="ordinal", tol=1e-9).fit(X, labels, tasks=tasks)
        for labels in (y, -y)
    )
    np.testing.assert_allclose(first.coef_, -second.coef_, atol=1e-5)
    np.testing.assert_allclose(first.thresholds_, -second.thresholds_[:, ::-1], atol=1e-4)


def test_path_and_cross_validation():
    X, y, tasks = simulate()
    path = bm.mixed_norm_path(X, y, tasks=tasks, loss="ordinal", n_penalties=4, penalty_ratio=0.1)
    assert path.converged.all() and path.n_selected[0] == 0 and not path.intercepts.any()
    model = bm.MixedNormClassifierCV(loss="ordinal", n_penalties=5, penalty_ratio=0.02, cv=2).fit(X, y, tasks=tasks)
    assert set(model.get_support(indices=True)) >= {0, 1} and model.thresholds_.shape == (3, 3)
    share = np.mean(model.predict(X, tasks=tasks) == y)
    assert share > 0.05 + np.bincount(y).max() / len(y)


def test_unknown_tasks_files_and_task_data(tmp_path):
    X, y, tasks = simulate()
    model = bm.MixedNormClassifier(loss="ordinal", unknown_task="mean").fit(X, y, tasks=tasks)
    new = model.predict_proba(X[:4], tasks=np.full(4, 9))
    np.testing.assert_allclose(new.sum(axis=1), 1.0)
    model.save(tmp_path / "ordered.bm")
    again = bm.load(tmp_path / "ordered.bm")
    np.testing.assert_array_equal(again.predict_proba(X, tasks=tasks), model.predict_proba(X, tasks=tasks))
    data = bm.TaskData.from_long(X, y, tasks)
    np.testing.assert_allclose(model.predict_proba(data), model.predict_proba(X, tasks=tasks))


def test_what_has_no_order_is_refused():
    X, y, tasks = simulate()
    names = np.array(["", "low", "middle", "high", "top"])[y]
    with pytest.raises(ValueError, match=r"whose order is not known.*y\.cat\.codes of an ordered categorical"):
        bm.MixedNormClassifier(loss="ordinal").fit(X, names, tasks=tasks)
    with pytest.raises(ValueError, match="shared_mean=True does not go with loss='ordinal'"):
        bm.MixedNormClassifier(loss="ordinal", shared_mean=True).fit(X, y, tasks=tasks)


def test_a_new_task_has_the_thresholds_of_the_average_task_where_some_lack_a_class():
    X, y, tasks = simulate()
    y = np.where((tasks == 1) & (y == 1), 2, y)
    y = np.where((tasks == 2) & (y == 4), 3, y)
    model = bm.MixedNormClassifier(loss="ordinal", penalty_strength=0.05, unknown_task="mean").fit(X, y, tasks=tasks)
    assert np.isneginf(model.thresholds_[1, 0]) and np.isposinf(model.thresholds_[2, 2])
    p = model.predict_proba(X, tasks=np.full(len(X), 9))
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    assert p.min() > 0.0


@pytest.mark.parametrize("shared", [False, True])
def test_levels_of_columns_do_not_slow_a_fit(shared):
    X, y, tasks = simulate()
    y, tasks = (np.column_stack([y, 5 - y]), None) if shared else (y, tasks)
    plain, moved = (
        bm.MixedNormClassifier(loss="ordinal", penalty_strength=0.05, tol=1e-8).fit(Z, y, tasks=tasks)
        for Z in (X - X.mean(axis=0), X + 400.0)
    )
    np.testing.assert_allclose(moved.coef_, plain.coef_, atol=1e-5)
    np.testing.assert_allclose(
        moved.predict_proba(X + 400.0, tasks), plain.predict_proba(X - X.mean(axis=0), tasks), atol=1e-5
    )
    assert moved.n_iter_ < plain.n_iter_ + 20
