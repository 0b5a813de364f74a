"""Survival times of many tasks, against statsmodels, cvxpy and definitions."""

import cvxpy as cp
import numpy as np
import pandas as pd
import polars as pl
import pytest
from statsmodels.duration.hazard_regression import PHReg

import bayesmtfs as bm


def simulate(n=150, p=5, ties=False, seed=0):
    """Rows, times with events, and tasks; the first two features matter."""
    rng = np.random.default_rng(seed)
    X, tasks = rng.normal(size=(n, p)), rng.choice(["a", "b", "c"], n)
    time = rng.exponential(np.exp(-X[:, 0] + 0.7 * X[:, 1]))
    time = np.ceil(4 * time) if ties else time
    died = rng.random(n) < 0.6
    return X, np.array(list(zip(died, time, strict=True)), dtype=[("event", bool), ("time", float)]), tasks


def cvxpy_objective(X, y, tasks, strength, q, weight=None, offset=None):
    """Smallest objective by a conic solver, tied events after Efron (without weights)."""
    W, loss = cp.Variable((X.shape[1], 3)), 0.0
    weight = np.ones(len(X)) if weight is None else weight
    for t, task in enumerate(np.unique(tasks)):
        own = np.flatnonzero(tasks == task)
        eta, time, w = X[own] @ W[:, t], y["time"][own], weight[own]
        eta = eta if offset is None else eta + offset[own]
        happened, part = y["event"][own], 0.0
        for at in np.unique(time[happened]):
            dying = happened & (time == at)
            for k in range(dying.sum()):  # of the tied ones a share k / d has gone already
                left = np.where(dying, 1.0 - k / dying.sum(), 1.0)[time >= at]
                part += w[dying].mean() * cp.log_sum_exp((eta + np.log(w))[time >= at] + np.log(left))
            part -= cp.sum(cp.multiply(w, eta)[dying])
        loss += part / w.sum()
    penalty = sum(cp.norm(W[i], "inf" if q == np.inf else q) for i in range(X.shape[1]))
    return cp.Problem(cp.Minimize(loss + strength * penalty)).solve(
        solver="CLARABEL", tol_gap_rel=1e-7, tol_gap_abs=1e-7
    )


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("q", [1, 2, 4, np.inf])
def test_objective_is_that_of_cvxpy(q, weighted):
    X, y, tasks = simulate(n=90)
    weight = np.random.default_rng(4).uniform(0.5, 2.0, 90) if weighted else None
    model = bm.MixedNormSurvival(q, {1: 0.1, 2: 0.15, 4: 0.17, np.inf: 0.2}[q], tol=1e-8)
    model.fit(X, y, tasks=tasks, sample_weight=weight)
    assert model.converged_
    assert 0 < model.get_support().sum() < 5
    wanted = cvxpy_objective(X, y, tasks, model.penalty_strength_, q, weight)
    np.testing.assert_allclose(model.objective_, wanted, rtol=1e-6)


@pytest.mark.parametrize("q", [1, 2, 4, np.inf])
def test_objective_with_ties_and_offsets_is_that_of_cvxpy(q):
    X, y, tasks = simulate(n=90, ties=True)
    assert len(np.unique(y["time"])) < 45
    offset = np.random.default_rng(5).normal(size=90)
    model = bm.MixedNormSurvival(q, 0.1, tol=1e-8).fit(X, y, tasks=tasks, offset=offset)
    assert model.converged_
    np.testing.assert_allclose(model.objective_, cvxpy_objective(X, y, tasks, 0.1, q, None, offset), rtol=1e-6)


def test_predictions_know_offsets():
    X, y, tasks = simulate(n=90)
    offset = np.random.default_rng(5).normal(size=90)
    frame = pd.DataFrame(X, columns=list("abcde")).assign(known=offset)
    model = bm.MixedNormSurvival().fit(frame, y, tasks=tasks, offset="known")
    risk = model.predict(frame, tasks=tasks)
    np.testing.assert_allclose(risk, model.predict(frame[list("abcde")], tasks=tasks) + offset)
    other = bm.MixedNormSurvival().fit(X, y, tasks=tasks, offset=offset)
    np.testing.assert_array_equal(other.predict(X, tasks=tasks, offset=offset), risk)
    given = {"tasks": tasks, "offset": offset}
    np.testing.assert_array_equal(
        other.predict_survival_function(X, **given), model.predict_survival_function(frame, tasks=tasks)
    )
    assert other.score(X, y, **given) == model.score(frame, y, tasks=tasks) != other.score(X, y, tasks=tasks)


@pytest.mark.parametrize("ties", [False, True])
def test_without_penalty_it_is_that_of_statsmodels(ties):
    X, y, _ = simulate(ties=ties)
    model = bm.MixedNormSurvival(penalty_strength=0.0).fit(X, y)
    peer = PHReg(y["time"], X, status=y["event"], ties="efron").fit(method="newton")
    assert model.converged_
    np.testing.assert_allclose(model.coef_[0], peer.params, atol=1e-5)


def test_tasks_have_baselines_of_their_own():
    X, y, tasks = simulate()
    model = bm.MixedNormSurvival(penalty_strength=0.0, norm_q=1).fit(X, y, tasks=tasks)
    for t, task in enumerate(model.tasks_):
        own = tasks == task
        peer = PHReg(y["time"][own], X[own], status=y["event"][own], ties="efron").fit(method="newton")
        np.testing.assert_allclose(model.coef_[t], peer.params, atol=2e-5)
        size, hazard = np.exp(X[own] @ model.coef_[t]), 0.0
        for place, time in enumerate(model.event_times_):
            dying = y["event"][own] & (y["time"][own] == time)
            hazard += dying.sum() / size[y["time"][own] >= time].sum() if dying.any() else 0.0
            assert model.cumulative_baseline_hazard_[t, place] == pytest.approx(hazard)


def test_survival_functions_fall_from_one_by_the_risk():
    X, y, tasks = simulate()
    model = bm.MixedNormSurvival().fit(X, y, tasks=tasks)
    survival = model.predict_survival_function(X, tasks=tasks)
    assert survival.shape == (len(X), len(model.event_times_))
    assert np.all(np.diff(survival, axis=1) <= 0)
    assert np.all((survival > 0) & (survival <= 1))
    first = np.flatnonzero(tasks == "a")
    order = np.argsort(model.predict(X, tasks=tasks)[first])
    assert np.all(np.diff(survival[first[order], -1]) <= 0)


def test_score_is_the_concordance_within_tasks():
    X, y, tasks = simulate(n=60, ties=True)
    model = bm.MixedNormSurvival().fit(X, y, tasks=tasks)
    risk, right, pairs = model.predict(X, tasks=tasks), 0.0, 0
    for i in range(60):
        for j in range(60):
            after = y["time"][j] > y["time"][i] or (y["time"][j] == y["time"][i] and not y["event"][j])
            if y["event"][i] and tasks[i] == tasks[j] and after:
                pairs += 1
                right += (risk[i] > risk[j]) + 0.5 * (risk[i] == risk[j])
    assert model.score(X, y, tasks=tasks) == pytest.approx(right / pairs)
    assert model.score(X, y, tasks=tasks) > 0.65


def test_largest_penalty_path_and_cross_validation():
    X, y, tasks = simulate()
    path = bm.mixed_norm_path(X, y, tasks=tasks, loss="cox", n_penalties=6, penalty_ratio=0.1)
    assert path.converged.all()
    for share, some in ((1.0, False), (0.999, True)):
        model = bm.MixedNormSurvival(penalty_strength=share * path.penalties[0], tol=1e-9).fit(X, y, tasks=tasks)
        assert model.get_support().any() == some
    chosen = bm.MixedNormSurvivalCV(n_penalties=8, penalty_ratio=0.05, cv=3).fit(X, y, tasks=tasks)
    assert chosen.get_support()[:2].all()


def test_order_of_rows_features_and_tasks_and_levels_do_not_matter():
    X, y, tasks = simulate(n=80, ties=True)
    model = bm.MixedNormSurvival(penalty_strength=0.05, tol=1e-10)
    coef, order = model.fit(X, y, tasks=tasks).coef_, np.random.default_rng(1).permutation(80)
    np.testing.assert_allclose(model.fit(X[order], y[order], tasks=tasks[order]).coef_, coef, atol=1e-6)
    np.testing.assert_allclose(model.fit(X[:, ::-1], y, tasks=tasks).coef_, coef[:, ::-1], atol=1e-6)
    names = np.select([tasks == "a", tasks == "b"], ["y", "x"], "w")
    np.testing.assert_allclose(model.fit(X, y, tasks=names).coef_, coef[::-1], atol=1e-6)
    np.testing.assert_allclose(model.fit(X + 3.0, y, tasks=tasks).coef_, coef, atol=1e-6)
    later = y.copy()
    later["time"] = 7.0 * y["time"] ** 2
    np.testing.assert_allclose(model.fit(X, later, tasks=tasks).coef_, coef, atol=1e-6)
    np.testing.assert_allclose(model.fit(X, y, tasks=tasks, sample_weight=np.full(80, 2.0)).coef_, coef, atol=1e-6)


def test_a_frame_and_a_file_give_the_same(tmp_path):
    X, y, tasks = simulate(n=80)
    model = bm.MixedNormSurvival(standardize=True).fit(X, y, tasks=tasks)
    frame = pd.DataFrame({"time": y["time"], "event": y["event"].astype(int)})
    np.testing.assert_array_equal(bm.MixedNormSurvival(standardize=True).fit(X, frame, tasks=tasks).coef_, model.coef_)
    model.save(tmp_path / "model")
    back = bm.load(tmp_path / "model")
    now, before = (one.predict_survival_function(X, tasks=tasks) for one in (back, model))
    np.testing.assert_array_equal(now, before)


@pytest.mark.parametrize(
    "same",
    [
        lambda y: np.array(
            y.tolist(), dtype=[("Status", bool), ("Survival_in_days", float)]
        ),  # scikit-survival's veterans
        lambda y: np.array([(t, e) for e, t in y.tolist()], dtype=[("months", float), ("dead", bool)]),
        lambda y: pd.DataFrame({"months": y["time"], "dead": y["event"]}),
        lambda y: pl.DataFrame({"event": y["event"], "time": y["time"], "more": y["time"]}),
        lambda y: np.column_stack([y["time"], y["event"]]),
        lambda y: pd.DataFrame({"event": y["event"].astype(object), "time": y["time"]}),
    ],
)
def test_times_and_events_are_found_under_other_names(same):
    X, y, tasks = simulate(n=80)
    wanted = bm.MixedNormSurvival().fit(X, y, tasks=tasks)
    model = bm.MixedNormSurvival().fit(X, same(y), tasks=tasks)
    np.testing.assert_array_equal(model.coef_, wanted.coef_)
    assert model.score(X, same(y), tasks=tasks) == wanted.score(X, y, tasks=tasks)


@pytest.mark.parametrize(
    ("model", "change", "message"),
    [
        (bm.MixedNormRegressor(loss="cox"), lambda y: y["time"], "a family of survival; use MixedNormSurvival"),
        (bm.JeffreysRegressor(loss="cox"), lambda y: y["time"], "use MixedNormSurvival"),
        (bm.BayesianRegressor(loss="cox"), lambda y: y["time"], "use MixedNormSurvival"),
        (bm.OnlineMixedNormRegressor(loss="cox"), lambda y: y["time"], "use MixedNormSurvival"),
        (bm.MixedNormSurvival(loss="squared"), lambda y: y, "use 'cox'"),
        (bm.MixedNormSurvival(fit_intercept=True), lambda y: y, "baseline hazard takes its place"),
        (bm.MixedNormSurvival(), lambda y: y["time"], "pass a structured array with a boolean field 'event'"),
        (bm.MixedNormSurvival(), lambda y: np.column_stack([y["event"], y["time"]]), "two columns: time, and 1"),
        (bm.MixedNormSurvival(), lambda y: pd.DataFrame({"a": y["event"] * 1, "b": y["time"]}), "one of them boolean"),
        (bm.MixedNormSurvival(), lambda y: y[:-1], "pass one per row"),
        (bm.MixedNormSurvival(), lambda y: pd.DataFrame({"event": 2, "time": y["time"]}), "neither True"),
        (bm.MixedNormSurvival(), lambda y: pd.DataFrame({"event": 1, "time": -y["time"]}), "at least 0"),
        (bm.MixedNormSurvival(), lambda y: pd.DataFrame({"event": 0, "time": y["time"]}), "no event"),
    ],
)
def test_what_does_not_go_together_is_refused(model, change, message):
    X, y, tasks = simulate(n=40)
    with pytest.raises(ValueError, match=message):
        model.fit(X, change(y), tasks=tasks)


def test_labels_of_any_kind_and_levels_of_columns():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(80, 3))
    time = rng.exponential(np.exp(-X[:, 0])) + 0.1
    y = np.array(list(zip(rng.uniform(size=80) < 0.7, time, strict=True)), dtype=[("event", bool), ("time", float)])
    labels = [("ward", i % 2) for i in range(80)]
    model = bm.MixedNormSurvival(penalty_strength=0.05, tol=1e-8).fit(X, y, tasks=labels)
    moved = bm.MixedNormSurvival(penalty_strength=0.05, tol=1e-8).fit(X + 400.0, y, tasks=labels)
    np.testing.assert_allclose(moved.coef_, model.coef_, atol=1e-5)
    assert moved.n_iter_ < model.n_iter_ + 20
    assert model.score(X, y, tasks=labels) == bm.MixedNormSurvival(penalty_strength=0.05, tol=1e-8).fit(
        X, y, tasks=np.arange(80) % 2
    ).score(X, y, tasks=np.arange(80) % 2)
