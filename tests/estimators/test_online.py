"""Online mixed-norm estimators: forms of the data, rounds, new tasks, files, messages."""

import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from numba import njit
from scipy.special import xlogy
from sklearn.base import clone

from bayesmtfs import MixedNormClassifierCV, MixedNormRegressor, MixedNormRegressorCV, TaskData, simulate_tasks
from bayesmtfs.data.inputs import as_labels
from bayesmtfs.estimators.base import load
from bayesmtfs.estimators.online import OnlineMixedNormClassifier, OnlineMixedNormRegressor
from bayesmtfs.families import Family
from bayesmtfs.types import ConvergenceWarning


@pytest.fixture(scope="module")
def sim():
    return simulate_tasks(
        n_tasks=4, n_features=12, n_samples=[40, 40, 40, 40], n_relevant=3, intercept_scale=2.0, random_state=0
    )


@pytest.fixture(scope="module")
def labelled():
    return simulate_tasks(
        n_tasks=4, n_features=10, n_samples=200, n_relevant=3, kind="classification", snr=20.0, random_state=1
    )


def interleaved(sim):
    """Rows of a balanced simulation, round after round."""
    order = np.argsort(np.tile(np.arange(len(sim.y) // 4), 4), kind="stable")
    return sim.X[order], sim.y[order], np.asarray(sim.tasks)[order]


# ---------------------------------------------------------------------- what is learned


def test_support_and_intercepts_are_found(sim):
    model = OnlineMixedNormRegressor(penalty_strength=0.5, epochs=100, random_state=0).fit(
        sim.X, sim.y, tasks=sim.tasks
    )
    batch = MixedNormRegressor(penalty_strength=0.5).fit(sim.X, sim.y, tasks=sim.tasks)
    np.testing.assert_array_equal(model.get_support(), batch.get_support())
    np.testing.assert_allclose(model.intercept_, batch.intercept_, atol=0.2)
    assert model.n_rounds_ == 4000 == model.result_.convergence.n_iter
    reached, best = (fitted.score(sim.X, sim.y, tasks=sim.tasks) for fitted in (model, batch))
    assert abs(reached - best) < 0.02


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
@pytest.mark.parametrize("sparsity", ["individual", "features", "features_and_tasks"])
def test_classifiers_learn_in_one_pass(labelled, loss, sparsity):
    model = OnlineMixedNormClassifier(sparsity=sparsity, loss=loss, penalty_strength=0.03, random_state=0)
    model.fit(labelled.X, labelled.y, tasks=labelled.tasks)
    assert model.score(labelled.X, labelled.y, tasks=labelled.tasks) > 0.8
    assert 0 < model.progressive_loss_ < 1


def test_several_classes_are_tasks_over_one_design(labelled):
    y = np.array(["a", "b", "c"])[np.digitize(labelled.X @ labelled.coef[0], [-1.0, 1.0])]
    fitted = OnlineMixedNormClassifier(penalty_strength=0.01, shuffle=False).fit(labelled.X, y)
    model = OnlineMixedNormClassifier(penalty_strength=0.01)
    for part in np.array_split(np.arange(len(y)), 5):
        model.partial_fit(labelled.X[part], y[part], classes=["a", "b", "c"])
    np.testing.assert_allclose(model.coef_, fitted.coef_, rtol=1e-12)
    assert model.coef_.shape == (3, 10) and model.predict_proba(labelled.X[:4]).shape == (4, 3)
    assert np.mean(model.predict(labelled.X) == y) > 0.6


def test_missing_tasks_keep_their_own_clock(sim):
    X, y, tasks = interleaved(sim)
    scores = []
    for presence in (1.0, 0.2):
        rng = np.random.default_rng(0)
        model = OnlineMixedNormRegressor(penalty_strength=0.3)
        for _ in range(200):
            rows = np.flatnonzero((tasks < 2) | (rng.random(len(y)) < presence))
            model.partial_fit(X[rows], y[rows], tasks=tasks[rows])
        scores.append(model.score(X, y, tasks=tasks))
    assert scores[0] > 0.8 and scores[1] > scores[0] - 0.03


def test_shared_mean_draws_rare_tasks_to_the_others():
    rng = np.random.default_rng(0)
    tasks = np.concatenate([np.repeat(np.arange(5), 200), [5] * 3])
    X = rng.standard_normal((len(tasks), 6))
    y = X @ np.ones(6) + 4.0 + 0.3 * rng.standard_normal(len(tasks))
    test = rng.standard_normal((200, 6))
    errors = [
        np.mean((model.predict(test, tasks=[5] * 200) - test @ np.ones(6) - 4.0) ** 2)
        for model in (
            OnlineMixedNormRegressor(penalty_strength=0.2, shared_mean=mean, epochs=20, random_state=0).fit(X, y, tasks)
            for mean in (True, False)
        )
    ]
    assert errors[0] < 0.5 * errors[1]


def test_norms_are_chosen_by_progressive_validation(sim):
    several = OnlineMixedNormRegressor(norm_q=[1, 2, np.inf], penalty_strength=0.5, epochs=3, random_state=0)
    several.fit(sim.X, sim.y, tasks=sim.tasks)
    alone = [clone(several).set_params(norm_q=norm_q).fit(sim.X, sim.y, tasks=sim.tasks) for norm_q in several.norm_q]
    best = min(alone, key=lambda model: model.progressive_loss_)
    assert several.norm_q_ == best.norm_q_ and several.progressive_loss_ == best.progressive_loss_
    np.testing.assert_array_equal(several.coef_, best.coef_)
    learned = OnlineMixedNormRegressor(norm_q="learn").fit(sim.X, sim.y, tasks=sim.tasks)
    assert learned.norm_q_ in (1.0, 1.5, 2.0, 3.0, np.inf)


# ---------------------------------------------------------------------- several passes


def correlated(seed, n=100, p=20, m=4, labels=False):
    """Tasks with levels of their own, correlated features in different units, and rows of the same kind to test on."""
    rng = np.random.default_rng(seed)
    factor = np.linalg.cholesky(np.full((p, p), 0.8) + 0.2 * np.eye(p))
    W = np.zeros((p, m))
    W[:5] = rng.normal(size=(5, 1)) + 0.3 * rng.normal(size=(5, m))
    task = np.repeat(np.arange(m), 4 * n)
    Z = rng.standard_normal((4 * n * m, p)) @ factor.T
    eta = np.einsum("ij,ji->i", Z, W[:, task])
    eta *= 2.0 / eta.std()
    noisy = eta + rng.logistic(size=len(eta)) if labels else eta + 0.7 * rng.standard_normal(len(eta))
    y = np.where(noisy > 0, "yes", "no") if labels else noisy + 20.0 * task
    X = (Z + 20.0 * rng.random(p)) * np.exp(2.0 * rng.standard_normal(p))
    train = np.arange(len(y)) % 4 == 0
    return (X[train], y[train], task[train]), (X[~train], y[~train], task[~train])


AVERAGED = {"average": True, "standardize": True, "random_state": 0}


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_averages_of_several_passes_come_to_the_batch_fit(seed):
    (X, y, task), (X_new, y_new, task_new) = correlated(seed)
    batch = MixedNormRegressor(penalty_strength=0.1, standardize=True).fit(X, y, tasks=task)
    model = OnlineMixedNormRegressor(penalty_strength=0.1, epochs=150, **AVERAGED).fit(X, y, tasks=task)
    shrinking = OnlineMixedNormRegressor(penalty_strength=0.1, epochs=150, standardize=True, random_state=0)
    shrinking.fit(X, y, tasks=task)
    residuals = [y_new - fitted.predict(X_new, tasks=task_new) for fitted in (batch, model, shrinking)]
    least, reached, slow = (np.mean(residual**2) for residual in residuals)
    assert reached < 1.03 * least < slow
    effects = [fitted.coef_ * X.std(axis=0) for fitted in (batch, model)]
    assert np.linalg.norm(effects[1] - effects[0]) < 0.15 * np.linalg.norm(effects[0])
    assert model.get_support().sum() <= batch.get_support().sum() + 5


@pytest.mark.parametrize("labels", [False, True])
def test_a_penalty_that_is_learned_comes_near_cross_validation(labels):
    (X, y, task), (X_new, y_new, task_new) = correlated(3, labels=labels)
    batch = (MixedNormClassifierCV if labels else MixedNormRegressorCV)(standardize=True, n_penalties=30, cv=3)
    online = OnlineMixedNormClassifier if labels else OnlineMixedNormRegressor
    model = online(penalty_strength="learn", epochs=60, **AVERAGED)
    best, reached = (1 - one.fit(X, y, tasks=task).score(X_new, y_new, tasks=task_new) for one in (batch, model))
    assert reached < 1.1 * best
    assert model.converged_ and 0 < model.progressive_error_ < 1


def test_a_fit_of_several_passes_goes_on_from_a_file(tmp_path):
    (X, y, task), _ = correlated(4)
    model = OnlineMixedNormRegressor(penalty_strength="learn", epochs=5, average=True, random_state=0)
    model.fit(X / X.std(axis=0), y, tasks=task).save(tmp_path / "model")
    other = load(tmp_path / "model")
    for one in (model, other):
        one.partial_fit(X[:9] / X.std(axis=0), y[:9], tasks=task[:9])
    for name in ("coef_", "intercept_", "progressive_loss_", "penalty_strength_"):
        np.testing.assert_array_equal(getattr(other, name), getattr(model, name))


def test_progressive_error_is_that_of_rows_before_they_are_learned(sim):
    X, y, tasks = interleaved(sim)
    model = OnlineMixedNormRegressor(penalty_strength=0.3).partial_fit(X[:4], y[:4], tasks=tasks[:4])
    found, constant = 0.5 * np.sum(y[:4] ** 2), 0.5 * np.sum(y[:4] ** 2)
    for i in range(4, len(y)):
        squares = np.sum(X[: i + 1][tasks[: i + 1] == tasks[i]] ** 2, axis=1)
        longer = squares[:-1].mean() / squares.mean()  # x is known before y, and with it the step
        eta = model.intercept_[tasks[i]] + longer * X[i] @ model.coef_[tasks[i]]
        found += 0.5 * (y[i] - eta) ** 2
        constant += 0.5 * (y[i] - y[:i][tasks[:i] == tasks[i]].mean()) ** 2
        model.partial_fit(X[[i]], y[[i]], tasks=tasks[[i]])
    assert model.progressive_loss_ == pytest.approx(found / len(y), rel=1e-9)
    assert model.progressive_error_ == pytest.approx(found / constant, rel=1e-9)
    verdict = model.result_.convergence.verdict()
    assert verdict.startswith(f"{len(y)} rows learned in {model.n_rounds_} rounds") and "onverged" not in verdict
    assert f"{found / constant:.3g} times the loss of constants" in model.result_.summary()


def test_epochs_do_not_make_the_progressive_error_look_better(sim):
    once, often = (
        OnlineMixedNormRegressor(penalty_strength=0.01, epochs=epochs, random_state=0).fit(
            sim.X, sim.y, tasks=sim.tasks
        )
        for epochs in (1, 30)
    )
    assert once.progressive_error_ > 0 and once.result_.convergence.rows_seen == len(sim.y)
    assert often.result_.convergence.rows_seen == 30 * len(sim.y)
    assert often.progressive_error_ == pytest.approx(once.progressive_error_, rel=0.3)


# ---------------------------------------------------------------------- a family of the user's own


@njit
def poisson_slope(y, eta):
    rate = np.exp(eta)
    return rate - y * eta, rate - y


class MyPoisson(Family):
    """Smooth, without a bound of its curvature."""

    name = "stream_poisson"
    targets = "counts"
    slope = staticmethod(poisson_slope)

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


def counts(level, effect, n=400):
    rng = np.random.default_rng(0)
    tasks, X = np.repeat(np.arange(3), n), rng.standard_normal((3 * n, 6))
    coef = effect * np.array([1.0, -0.7, 0.5, 0, 0, 0]) + 0.1 * rng.standard_normal((3, 6)) * (np.arange(6) < 3)
    eta = np.einsum("ij,ij->i", X, coef[tasks]) + level + 0.2 * tasks
    return X, rng.poisson(np.exp(eta)).astype(float), tasks


@pytest.mark.parametrize(("level", "effect"), [(-1.0, 0.5), (0.0, 0.4), (3.0, 1.0)])
def test_a_family_without_a_curvature_bound_comes_near_the_batch_fit(level, effect):
    X, y, tasks = counts(level, effect)
    options = {"loss": MyPoisson(), "penalty_strength": 0.05 * np.exp(level)}
    batch = MixedNormRegressor(**options).fit(X, y, tasks=tasks)
    model = OnlineMixedNormRegressor(epochs=60, random_state=0, **options).fit(X, y, tasks=tasks)
    np.testing.assert_allclose(model.coef_, batch.coef_, atol=0.05)
    np.testing.assert_allclose(model.intercept_, batch.intercept_, atol=0.1)
    best = batch.score(X, y, tasks=tasks)
    assert model.score(X, y, tasks=tasks) > best - 0.01
    stream = OnlineMixedNormRegressor(**options)
    for i in np.random.default_rng(1).permutation(len(y)):
        stream.partial_fit(X[[i]], y[[i]], tasks=tasks[[i]])
    assert stream.score(X, y, tasks=tasks) > best - 0.08
    np.testing.assert_array_equal(stream.predict(X, tasks=tasks), np.exp(stream._linear_predictor(X, tasks)))
    again = pickle.loads(pickle.dumps(stream)).partial_fit(X[:50], y[:50], tasks=tasks[:50])
    np.testing.assert_array_equal(again.coef_, stream.partial_fit(X[:50], y[:50], tasks=tasks[:50]).coef_)


@pytest.mark.parametrize("options", [{"fit_intercept": False}, {"shared_mean": True}, {"average": True}])
def test_an_unbounded_curvature_does_not_make_weights_diverge(options):
    X, y, tasks = counts(3.0, 1.0)
    model = OnlineMixedNormRegressor(loss=MyPoisson(), penalty_strength=1.0, random_state=0, **options)
    model.fit(X, y, tasks=tasks)
    assert np.abs(model._linear_predictor(X, tasks)).max() < 30


def test_families_that_a_stream_cannot_take_are_refused(sim):
    class Silent(MyPoisson):
        name, slope = "silent", None

    with pytest.raises(ValueError, match="A stream needs a compiled slope; Silent offers value, gradient"):
        OnlineMixedNormRegressor(loss=Silent()).fit(sim.X, np.round(np.abs(sim.y)), tasks=sim.tasks)
    X, y, tasks = counts(0.0, 0.4, n=20)
    model = OnlineMixedNormRegressor(loss=MyPoisson(), penalty_strength=0.1).partial_fit(X, y, tasks=tasks)
    for wrong in (-1.0, 0.5):
        with pytest.raises(ValueError, match="y has the entry .* is for counts"):
            model.partial_fit(X[:1], np.array([wrong]), tasks=tasks[:1])


# ---------------------------------------------------------------------- the same rows in other clothes


@pytest.mark.parametrize("batch", [1, 4, 40])
def test_forms_of_a_stream_agree(sim, batch):
    X, y, tasks = interleaved(sim)
    frame = pd.DataFrame(X).add_prefix("f").assign(task=tasks)
    one_go = OnlineMixedNormRegressor(penalty_strength=0.3).partial_fit(X, y, tasks=tasks) if batch > 1 else None
    models = [OnlineMixedNormRegressor(penalty_strength=0.3) for _ in range(4)]
    models[3].set_params(task_column="task")
    for start in range(0, len(y), batch):
        part = slice(start, start + batch)
        models[0].partial_fit(X[part], y[part], tasks=tasks[part])
        models[1].partial_fit(sp.csr_matrix(X[part]), y[part], tasks=tasks[part])
        models[2].partial_fit(X[part].tolist(), list(y[part]), tasks=[int(t) for t in tasks[part]])
        models[3].partial_fit(frame.iloc[part], pd.Series(y[part]))
    for other in models[1:] + ([] if one_go is None else [one_go]):
        np.testing.assert_allclose(other.coef_, models[0].coef_, rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(other.intercept_, models[0].intercept_, rtol=1e-11)
    assert {model.n_rounds_ for model in models} == {len(y) if batch == 1 else 40}


def test_fit_without_shuffling_is_one_batch(sim):
    model = OnlineMixedNormRegressor(penalty_strength=0.3, shuffle=False).fit(sim.X, sim.y, tasks=sim.tasks)
    stream = OnlineMixedNormRegressor(penalty_strength=0.3).partial_fit(sim.X, sim.y, tasks=sim.tasks)
    data = OnlineMixedNormRegressor(penalty_strength=0.3).partial_fit(TaskData.from_long(sim.X, sim.y, sim.tasks))
    np.testing.assert_array_equal(model.coef_, stream.coef_)
    np.testing.assert_array_equal(model.coef_, data.coef_)


def test_wide_batches_may_lack_tasks():
    sim = simulate_tasks(n_tasks=3, n_features=5, n_samples=60, n_relevant=2, shared_design=True, random_state=2)
    Y = np.where(np.random.default_rng(0).random(sim.y.shape) < 0.3, np.nan, sim.y)
    Y[:10, 1] = np.nan
    wide, long = OnlineMixedNormRegressor(penalty_strength=0.1), OnlineMixedNormRegressor(penalty_strength=0.1)
    for part in np.split(np.arange(60), 6):
        wide.partial_fit(sim.X[part], Y[part])
        rows, tasks = np.nonzero(~np.isnan(Y[part]))
        long.partial_fit(sim.X[part][rows], Y[part][rows, tasks], tasks=tasks)
    np.testing.assert_allclose(wide.coef_, long.coef_, rtol=1e-11, atol=1e-13)
    assert wide.predict(sim.X).shape == (60, 3)


def test_weights_are_relative_and_none_is_no_row(sim):
    weight = np.random.default_rng(0).integers(0, 3, len(sim.y)).astype(float)
    first, second = (
        OnlineMixedNormRegressor(penalty_strength=0.3, random_state=0).fit(
            sim.X, sim.y, tasks=sim.tasks, sample_weight=factor * weight
        )
        for factor in (1.0, 7.0)
    )
    np.testing.assert_allclose(first.coef_, second.coef_, rtol=1e-10, atol=1e-12)
    kept = weight > 0
    third = OnlineMixedNormRegressor(penalty_strength=0.3, random_state=0)
    third.fit(sim.X[kept], sim.y[kept], tasks=sim.tasks[kept], sample_weight=weight[kept])
    np.testing.assert_array_equal(first.coef_, third.coef_)


def test_standardised_features_give_coefficients_in_the_users_units(sim):
    units = np.geomspace(0.01, 100, 12)
    plain, scaled = (
        OnlineMixedNormRegressor(standardize=True, epochs=5, penalty_strength=0.3, random_state=0).fit(
            sim.X * factor, sim.y, tasks=sim.tasks
        )
        for factor in (1.0, units)
    )
    np.testing.assert_allclose(scaled.coef_ * units, plain.coef_, rtol=1e-8, atol=1e-10)
    with pytest.raises(ValueError, match="standardize=True takes its scales from all rows and goes with fit only"):
        scaled.partial_fit(sim.X, sim.y, tasks=sim.tasks)


def test_groups_enter_and_leave_together(sim):
    groups = np.repeat(np.arange(6), 2)
    model = OnlineMixedNormRegressor(groups=groups, penalty_strength=0.6, epochs=30, random_state=0)
    support = model.fit(sim.X, sim.y, tasks=sim.tasks).get_support().reshape(6, 2)
    assert np.array_equal(support[:, 0], support[:, 1]) and 0 < support.sum() < 12
    stream = OnlineMixedNormRegressor(groups=groups, penalty_strength=0.6).partial_fit(sim.X, sim.y, tasks=sim.tasks)
    assert np.array_equal(*stream.get_support().reshape(6, 2).T)


# ---------------------------------------------------------------------- streams


def test_new_tasks_take_their_place_among_the_others(sim):
    X, y, tasks = interleaved(sim)
    names = np.array(["d", "b", "c", "a"])[tasks]
    model, known = OnlineMixedNormRegressor(penalty_strength=0.3), OnlineMixedNormRegressor(penalty_strength=0.3)
    for part in (np.flatnonzero(names == "c"), np.flatnonzero(names != "a"), np.arange(len(y))):
        model.partial_fit(X[part], y[part], tasks=names[part])
        known.partial_fit(X[part], y[part], tasks=tasks[part])
    assert model.tasks_.tolist() == ["a", "b", "c", "d"] and known.tasks_.tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(model.coef_, known.coef_[[3, 1, 2, 0]], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(model.predict(X, tasks=names), known.predict(X, tasks=tasks), rtol=1e-10)
    assert model.result_.task_names.tolist() == ["a", "b", "c", "d"]


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("names", [[4, 2, 3, 1], ["d", "bb", "c", "a"], [2.5, 1.5, 0.5, 3.5], ["x", 1, 2, 3]])
def test_single_rows_of_new_and_known_tasks_are_read_alike(sim, form, names, tmp_path):
    X, y, tasks = interleaved(sim)
    labels = as_labels([names[task] for task in tasks])
    short, careful = OnlineMixedNormRegressor(penalty_strength=0.3), OnlineMixedNormRegressor(penalty_strength=0.3)
    for i in range(len(y)):
        short.partial_fit(form(X[[i]]), y[[i]], tasks=labels[[i]])
        careful.partial_fit(form(X[[i]]), y[[i]], tasks=labels[[i]], sample_weight=np.ones(1))
        if i == 50:
            short.save(tmp_path / "model")
            short = load(tmp_path / "model")
    assert short.tasks_.tolist() == careful.tasks_.tolist() and short.n_rounds_ == len(y) == short.n_iter_
    np.testing.assert_array_equal(short.coef_, careful.coef_)
    np.testing.assert_array_equal(short.intercept_, careful.intercept_)


def test_rows_of_one_task_are_a_batch_bit_for_bit(sim):
    for options in ({}, {"sparsity": "individual", "loss": "absolute"}, {"shared_mean": True}):
        one_go = OnlineMixedNormRegressor(penalty_strength=0.3, **options).partial_fit(sim.X, sim.y)
        model = clone(one_go)
        for i in range(len(sim.y)):
            model.partial_fit(sim.X[[i]], sim.y[[i]])
        np.testing.assert_array_equal(model.coef_, one_go.coef_)
        assert model.progressive_loss_ == one_go.progressive_loss_


def test_rows_that_are_refused_leave_no_trace(sim):
    model = OnlineMixedNormRegressor(penalty_strength=0.3).partial_fit(sim.X, sim.y, tasks=sim.tasks)
    before, row = model.coef_, sim.X[:1]
    for X, y, tasks in (
        (np.full((1, 12), np.nan), np.ones(1), np.array([9])),
        (row, np.array([np.inf]), np.array([9])),
        (row, np.ones(2), np.array([0])),
        (row, np.ones(1), np.array([0, 1])),
        (row, np.array(["1"]), np.array([0])),
        (row[0], np.ones(1), np.array([0])),
        (row[:, :5], np.ones(1), np.array([9])),
    ):
        with pytest.raises(ValueError):
            model.partial_fit(X, y, tasks=tasks)
    assert model.tasks_.tolist() == [0, 1, 2, 3] and model.n_rounds_ == 40
    np.testing.assert_array_equal(model.coef_, before)


def test_single_rows_with_whole_numbers_and_labels(sim, labelled):
    whole = np.round(sim.y)
    numbers = [OnlineMixedNormRegressor(penalty_strength=0.3) for _ in range(2)]
    text = np.where(labelled.y > 0, "yes", "no")
    words = [OnlineMixedNormClassifier(penalty_strength=0.01) for _ in range(2)]
    for i in range(40):
        row, task = slice(i, i + 1), sim.tasks[i : i + 1]
        numbers[0].partial_fit(sim.X[row], whole[row], tasks=task)
        numbers[1].partial_fit(sim.X[row], whole[row].astype(int), tasks=task.tolist())
        words[0].partial_fit(labelled.X[row], text[row], tasks=task, classes=["no", "yes"])
        words[1].partial_fit(labelled.X[row], pd.Series(text[row]), tasks=task, classes=["no", "yes"])
    for first, second in (numbers, words):
        np.testing.assert_array_equal(first.coef_, second.coef_)
        assert np.any(first.coef_ != 0)


def test_predictions_before_and_after_w_is_built(sim):
    for X in (sim.X, sp.csr_matrix(sim.X)):
        model = OnlineMixedNormRegressor(penalty_strength=0.3).partial_fit(X, sim.y, tasks=sim.tasks)
        before = model.predict(X, tasks=sim.tasks)
        assert model.coef_.shape == (4, 12)
        np.testing.assert_allclose(model.predict(X, tasks=sim.tasks), before, rtol=1e-10)


OPTIONS = [
    {},
    {"sparsity": "individual", "gamma": 10.0},
    {"sparsity": "features_and_tasks", "task_sparsity": np.linspace(0, 1, 12), "loss_scale": "sum"},
    {"norm_q": [1.5, 3.0], "loss": "absolute"},
    {"shared_mean": True, "average": True, "groups": np.repeat([0, 1, 2], 4)},
]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_pieces_and_files_continue_bit_for_bit(sim, options, form, tmp_path):
    X, y, tasks = interleaved(sim)
    one_go = OnlineMixedNormRegressor(penalty_strength=0.3, **options).partial_fit(form(X), y, tasks=tasks)
    model = clone(one_go)
    for number, part in enumerate(np.split(np.arange(len(y)), [20, 24, 100])):
        model.partial_fit(form(X[part]), y[part], tasks=tasks[part])
        if number % 2:
            model.save(tmp_path / "model")
            model = load(tmp_path / "model")
        else:
            model = pickle.loads(pickle.dumps(model))
    for name in ("coef_", "intercept_", "n_rounds_", "progressive_loss_", "norm_q_"):
        np.testing.assert_array_equal(getattr(model, name), getattr(one_go, name))
    np.testing.assert_array_equal(model.predict(X, tasks=tasks), one_go.predict(X, tasks=tasks))


def test_files_of_classifiers_and_fits_bring_everything_back(labelled, tmp_path):
    model = OnlineMixedNormClassifier(standardize=True, random_state=0)
    model.fit(labelled.X, labelled.y, tasks=labelled.tasks).save(tmp_path / "model")
    other = load(tmp_path / "model")
    np.testing.assert_array_equal(other.coef_, model.coef_)
    np.testing.assert_array_equal(other.classes_, model.classes_)
    assert other.penalty_strength_ == model.penalty_strength_ > 0


def test_default_strength_is_a_tenth_of_the_largest(sim):
    model = OnlineMixedNormRegressor().fit(sim.X, sim.y, tasks=sim.tasks)
    batch = MixedNormRegressor().fit(sim.X, sim.y, tasks=sim.tasks)
    assert model.penalty_strength_ == pytest.approx(batch.penalty_strength_, rel=1e-12)


# ---------------------------------------------------------------------- messages


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sparsity": "rows"}, "sparsity is 'rows'; choose one of 'individual'"),
        ({"gamma": 0.0}, "gamma is 0.0; pass a positive number, or 'auto'"),
        ({"gamma": "big"}, "gamma is 'big'; pass a positive number"),
        ({"penalty_strength": -1.0}, "penalty_strength is -1.0; pass a number of at least 0, or None"),
        ({"mean_strength": -1.0}, "mean_strength is -1.0; pass a number"),
        ({"norm_q": 0.5}, "norm_q is 0.5; pass a number of at least 1"),
        ({"norm_q": "guess"}, "norm_q is 'guess'; choose one of 'learn'"),
        ({"norm_q": []}, "norm_q is empty; pass a number"),
        ({"norm_q": 3, "sparsity": "individual"}, "norm_q is 3 and sparsity is 'individual', which has its own norms"),
        ({"loss": "logistic"}, "loss is 'logistic'; choose one of 'squared'"),
        ({"epochs": 0}, "epochs is 0; pass a whole number"),
        ({"gamma": 1e-6}, "the weights have diverged in round .*: gamma is too small"),
    ],
)
def test_parameters_are_checked(sim, options, message):
    with pytest.raises(ValueError, match=message):
        OnlineMixedNormRegressor(**options).fit(sim.X, sim.y, tasks=sim.tasks)


def test_a_fit_far_worse_than_constants_warns(sim):
    with pytest.warns(ConvergenceWarning, match="predictions of the last epoch were far worse than constants .* gamma"):
        OnlineMixedNormRegressor(penalty_strength=0.0, gamma=1.0).fit(sim.X, sim.y, tasks=sim.tasks)


def test_streams_that_cannot_go_on_say_why(sim, labelled):
    with pytest.raises(ValueError, match="penalty_strength is None, which takes it from the first batch"):
        OnlineMixedNormRegressor().partial_fit(sim.X[:1], sim.y[:1], tasks=[0])
    model = OnlineMixedNormRegressor(penalty_strength=0.3).partial_fit(sim.X, sim.y, tasks=sim.tasks)
    for X, y, message in (
        (np.full((1, 12), np.nan), [0.0], "X contains NaN"),
        (sim.X[:1], [np.nan], "y contains NaN"),
        (sim.X[:1, :3], [0.0], "3 features, but OnlineMixedNormRegressor is expecting 12"),
    ):
        with pytest.raises(ValueError, match=message):
            model.partial_fit(X, y, tasks=[0])
    with pytest.raises(ValueError, match="pass all labels that will come as classes"):
        OnlineMixedNormClassifier().partial_fit(labelled.X[:1], labelled.y[:1], tasks=[0])
    with pytest.raises(ValueError, match="tasks has labels that were not there in fit"):
        model.predict(sim.X[:1], tasks=["x"])
    assert model.set_params(unknown_task="mean").predict(sim.X[:1], tasks=["x"]).shape == (1,)
