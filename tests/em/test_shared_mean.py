"""Shared mean on the EM routes: monotone, at a minimum of the stated objective, and of use where tasks are alike."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from sklearn.base import clone

from bayesmtfs import TaskData
from bayesmtfs.data.scaling import within_task_units
from bayesmtfs.em import evidence, jeffreys
from bayesmtfs.em.active_tasks import activate
from bayesmtfs.em.shared_mean import Around, MeanProblem, RowPrior, best_mean, recentre, row_prior, update_mean
from bayesmtfs.estimators.base import load
from bayesmtfs.estimators.em import (
    GeneralizedNormalClassifier,
    GeneralizedNormalRegressor,
    JeffreysClassifier,
    JeffreysRegressor,
    MatrixVariateClassifier,
    MatrixVariateRegressor,
)
from bayesmtfs.families import find_family
from bayesmtfs.types import Solution

FEATURES, DEVIATING = 8, 3

REGRESSORS = [
    JeffreysRegressor(),
    JeffreysRegressor(norm_q=1.5),
    JeffreysRegressor(norm_q=4),
    JeffreysRegressor(norm_q=np.inf),
    JeffreysRegressor(hyper_shape=0.5, hyper_rate=0.1),
    JeffreysRegressor(coefficients="integrated"),
    JeffreysRegressor(coefficients="integrated", shared_noise=True, fit_intercept=False),
    GeneralizedNormalRegressor(),
    GeneralizedNormalRegressor(norm_q=np.inf),
    MatrixVariateRegressor(),
    MatrixVariateRegressor(norm_q=3, relation_shrinkage=5.0, tol=1e-3),
    MatrixVariateRegressor(coefficients="integrated", relation_shrinkage=5.0),
]
CLASSIFIERS = [
    JeffreysClassifier(),
    JeffreysClassifier(loss="squared"),
    GeneralizedNormalClassifier(),
    MatrixVariateClassifier(relation_shrinkage=5.0),
]


def alike(n_tasks=12, n_samples=20, loss="squared", seed=0, size=0.7):
    """Tasks with one large mean, and deviations in the first features only."""
    rng = np.random.default_rng(seed)
    mean, V = rng.normal(size=FEATURES), np.zeros((FEATURES, n_tasks))
    V[:DEVIATING] = size * rng.normal(size=(DEVIATING, n_tasks))
    tasks = np.repeat(np.arange(n_tasks), n_samples)
    X = rng.normal(size=(len(tasks), FEATURES)) + 0.5
    W = mean[:, np.newaxis] + V
    eta = np.einsum("ij,ji->i", X, W[:, tasks]) + np.linspace(-1.0, 1.0, n_tasks)[tasks]
    y = eta + rng.normal(size=len(tasks)) if loss == "squared" else np.sign(eta + rng.logistic(size=len(tasks)))
    return X, y, tasks, mean, W


def with_mean(model, **parameters):
    return clone(model).set_params(shared_mean=True, **parameters)


# ---------------------------------------------------------------------- steps


def joint_loss(problem, mean, V, intercept, noise):
    data = problem.data
    eta = data.linear_predictor(V + mean[:, np.newaxis], intercept)
    losses = data.weight * problem.family.value(data.y, eta) / noise[data.task] ** 2
    return float(losses.sum()) + 0.5 * problem.strength * float(mean @ mean)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_update_of_the_mean_reaches_the_minimum_that_scipy_finds(loss, fit_intercept):
    X, y, tasks, _, W = alike(4, loss=loss)
    data = TaskData.from_long(X, y, tasks, sample_weight=np.linspace(0.5, 1.5, len(y)))
    problem = MeanProblem(data, find_family(loss), 3.0, fit_intercept)
    noise, V = np.array([0.5, 1.0, 2.0, 1.5]), W - W.mean(axis=1, keepdims=True)
    start = _solution(V, np.zeros(4), noise)
    point = Around(np.zeros(FEATURES), start)
    for _ in range(5):
        point = update_mean(problem, point)

    def objective(x):
        intercept = x[FEATURES:] if fit_intercept else np.zeros(4)
        return joint_loss(problem, x[:FEATURES], V, intercept, noise)

    found = minimize(objective, np.zeros(FEATURES + 4 * fit_intercept), method="BFGS", options={"gtol": 1e-9})
    np.testing.assert_allclose(point.mean, found.x[:FEATURES], atol=2e-5)
    value = joint_loss(problem, point.mean, V, point.deviations.intercept, noise)
    assert value <= found.fun + 1e-8


def _solution(W, intercept, noise):
    return Solution(W, intercept, np.nan, np.nan, np.nan, False, 0, np.empty(0), noise=noise)


@pytest.mark.parametrize("whitened", [False, True])
@pytest.mark.parametrize("norm_q", [1.5, 2.0, 4.0])
def test_recentring_ends_where_no_mean_is_better_and_keeps_the_sums(norm_q, whitened):
    X, y, tasks, _, W = alike(5)
    data = TaskData.from_long(X, y, tasks)
    problem, units = (
        MeanProblem(data, find_family("squared"), 2.0, True),
        within_task_units(data, True, find_family("squared").quadratic),
    )
    whiten = np.linalg.inv(0.6 * np.eye(5) + 0.4) if whitened else None
    prior: RowPrior = row_prior(data, units, norm_q, jeffreys.EMSettings(), whiten)
    point = Around(np.zeros(FEATURES), _solution(W, np.zeros(5), np.ones(5)))
    values = [prior.value(W)]
    for _ in range(60):
        point = recentre(problem, point, prior)
        values.append(prior.value(point.deviations.W) + problem.prior(point.mean))
    assert np.all(np.diff(values) <= 0.0) and values[-1] < values[0]
    np.testing.assert_allclose(point.mean[:, np.newaxis] + point.deviations.W, W, atol=1e-12)
    deviating = np.linalg.norm(point.deviations.W, axis=1) > 0.5  # the others have an infinite optimum at 0
    assert deviating[:DEVIATING].all()
    for feature in np.flatnonzero(deviating):
        for shift in (-1e-3, 1e-3):
            move = shift * (np.arange(FEATURES) == feature)
            moved = prior.value(W - (point.mean + move)[:, np.newaxis]) + problem.prior(point.mean + move)
            assert moved >= values[-1]


def test_mean_of_the_evidence_is_generalised_least_squares():
    X, y, tasks, _, _ = alike(3)
    data, rng = TaskData.from_long(X, y, tasks), np.random.default_rng(1)
    problem = MeanProblem(data, find_family("squared"), 1.5, False)
    gamma, noise = np.where(np.arange(FEATURES) < 5, rng.uniform(0.1, 1.0, FEATURES), 0.0), np.array([0.5, 1.0, 1.5])
    R = np.array([[1.0, 0.5, 0.2], [0.5, 1.0, -0.3], [0.2, -0.3, 1.0]])
    blocks = np.equal.outer(tasks, tasks) * np.diag(noise[tasks] ** 2).max(axis=1, keepdims=True) * np.eye(len(y))
    C = blocks + R[np.ix_(tasks, tasks)] * ((X * gamma) @ X.T)
    inverse = np.linalg.inv(C)
    wanted = np.linalg.solve(X.T @ inverse @ X + 1.5 * np.eye(FEATURES), X.T @ inverse @ y)
    at_zero = evidence.start_from(gamma, noise, R)
    # The posterior mean of the deviations around a mean of 0
    V = np.column_stack([gamma * (X.T @ (R[t][tasks] * (inverse @ y))) for t in range(3)])
    found = best_mean(problem, np.zeros(FEATURES), at_zero._replace(W=V))
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


# ---------------------------------------------------------------------- whole fits


@pytest.mark.parametrize("model", [*REGRESSORS, *CLASSIFIERS], ids=lambda model: repr(model)[:70])
def test_the_objective_never_rises_and_the_parts_add_up(model):
    classifier = model in CLASSIFIERS
    X, y, tasks, mean, _ = alike(loss="logistic" if classifier else "squared")
    model = with_mean(model).fit(X, y, tasks=tasks)
    trace = model.objective_trace_
    assert model.converged_ and len(trace) == model.n_iter_ + 1 and len(trace) > 1
    assert np.all(np.diff(trace) <= 1e-10 * np.abs(trace[:-1]))
    assert model.mean_coef_.shape == (FEATURES,) and model.mean_strength_ > 0
    assert np.corrcoef(model.mean_coef_, mean)[0, 1] > 0.8
    deviations = model.coef_ - model.mean_coef_
    np.testing.assert_array_equal(model.row_scales_ > 0, np.abs(deviations).max(axis=0) > 0)


def units_of(data):
    return within_task_units(data, True, True)


def jeffreys_objective(x, data, fixed):
    """Minus the log-posterior of mean, deviations, intercepts and noise at q = 2, written out."""
    m, live, strength, shared = data.n_tasks, fixed["live"], fixed["strength"], fixed["shared"]
    mean, rest = np.zeros(FEATURES), x[len(shared) :]
    mean[shared] = x[: len(shared)]
    V = np.zeros((FEATURES, m))
    V[live], rest = rest[: len(live) * m].reshape(len(live), m), rest[len(live) * m :]
    intercept, noise = rest[:m], np.exp(rest[m:])
    residuals = data.y - data.linear_predictor(V + mean[:, np.newaxis], intercept)
    squares = np.add.reduceat(residuals**2, data.offsets[:-1])
    loss = np.sum(0.5 * squares / noise**2 + np.diff(data.offsets) * np.log(noise))
    rows = 0.5 * m * np.sum(np.log(np.sum(V[live] ** 2, axis=1)))
    if len(shared) == FEATURES:  # one scale for all of them
        scales = 0.5 * FEATURES * np.log(np.sum((mean * fixed["feature"]) ** 2))
    else:
        scales = np.sum(np.log(np.abs(mean[shared])))
    return float(loss + rows + scales + 0.5 * strength * mean @ mean)


@pytest.mark.parametrize(("strength", "first"), [(None, 0), (4.0, 0), (None, 6)])
def test_fit_is_a_minimum_of_the_stated_objective(strength, first):
    X, y, tasks, mean, _ = alike(6, 30)
    y = y - X[:, :first] @ mean[:first]  # those have no mean
    data = TaskData.from_long(X, y, tasks)
    model = JeffreysRegressor(shared_mean=True, mean_strength=strength, noise_floor=1e-3, tol=1e-9).fit(data)
    V = (model.coef_ - model.mean_coef_).T
    live = np.flatnonzero(V.any(axis=1))
    shared = np.flatnonzero(model.mean_coef_)
    fixed = {"live": live, "strength": model.mean_strength_, "shared": shared, "feature": units_of(data).feature}
    at = np.concatenate([model.mean_coef_[shared], V[live].ravel(), model.intercept_, np.log(model.noise_)])
    value = jeffreys_objective(at, data, fixed)
    rng = np.random.default_rng(0)
    found = minimize(jeffreys_objective, at + 0.02 * rng.normal(size=len(at)), args=(data, fixed), method="BFGS")
    assert list(live) == list(range(DEVIATING))
    assert set(range(first, FEATURES)) <= set(shared) and (len(shared) < FEATURES) == (first > 0)
    assert value <= found.fun + 1e-6
    np.testing.assert_allclose(at, found.x, atol=5e-3)


def test_default_strength_is_a_hundredth_of_the_column_norms_on_the_scale_of_the_loss():
    X, y, tasks, _, _ = alike(4)
    model = JeffreysRegressor(shared_mean=True).fit(X, y, tasks=tasks)
    units = within_task_units(TaskData.from_long(X, y, tasks), True, True)
    assert model.mean_strength_ == pytest.approx(0.01 * np.mean(np.sum(X**2, axis=0)) / units.target**2)
    known = GeneralizedNormalRegressor(shared_mean=True, noise=0.5).fit(X, y, tasks=tasks)
    assert known.mean_strength_ == pytest.approx(0.01 * np.mean(np.sum(X**2, axis=0)) / 0.5**2)


@pytest.mark.parametrize(
    "model",
    [
        JeffreysRegressor(),
        JeffreysRegressor(coefficients="integrated"),
        GeneralizedNormalRegressor(),
        JeffreysClassifier(),
    ],
    ids=["mode", "integrated", "generalized normal", "logistic"],
)
def test_a_shared_mean_pays_where_tasks_are_alike_and_small(model):
    loss = "logistic" if isinstance(model, JeffreysClassifier) else "squared"
    errors = {False: 0.0, True: 0.0}
    for seed in range(2):
        X, y, tasks, _, W = alike(30, 15, loss, seed, size=0.3)
        for shared in errors:
            fitted = clone(model).set_params(shared_mean=shared).fit(X, y, tasks=tasks)
            errors[shared] += float(np.sum((fitted.coef_.T - W) ** 2))
    assert errors[True] < 0.7 * errors[False]


def as_many_features_as_rows(what, seed, p=200, n_tasks=6, k=10):
    """k of p features matter, equally in all tasks, independently, or in half of them; p rows in all."""
    rng = np.random.default_rng(seed)
    X, tasks, W = rng.normal(size=(p, p)), np.arange(p) % n_tasks, np.zeros((p, n_tasks))
    W[:k] = {
        "equal": np.ones((k, n_tasks)),
        "independent": rng.normal(size=(k, n_tasks)),
        "half": rng.random((k, n_tasks)) < 0.5,
    }[what]
    eta = np.einsum("ij,ji->i", X, W[:, tasks])
    return X, eta + 0.5 * eta.std() * rng.normal(size=p) + 3.0 * tasks, tasks, W


@pytest.mark.parametrize("what", ["equal", "independent", "half"])
@pytest.mark.parametrize(
    "model",
    [JeffreysRegressor(), JeffreysRegressor(coefficients="integrated"), GeneralizedNormalRegressor()],
    ids=["mode", "integrated", "generalized normal"],
)
def test_a_shared_mean_costs_little_where_features_are_as_many_as_rows(model, what):
    """A mean under a ridge alone missed several times the signal here."""
    missed = {False: 0.0, True: 0.0}
    for seed in range(2):
        X, y, tasks, W = as_many_features_as_rows(what, seed)
        for shared in missed:
            coef = clone(model).set_params(shared_mean=shared).fit(X, y, tasks=tasks).coef_
            missed[shared] += float(np.sum((coef.T - W) ** 2) / np.sum(W**2)) / 2
    assert missed[True] < (0.5 if what == "equal" else 1.2) * missed[False]


def test_learned_q_is_that_of_the_deviations():
    X, y, tasks, _, _ = alike(40, 40)
    model = JeffreysRegressor(norm_q="learn", shared_mean=True).fit(X, y, tasks=tasks)
    assert 1.4 < model.norm_q_ < 3.0
    assert model.norm_q_interval_[0] < model.norm_q_ < model.norm_q_interval_[1]


@pytest.mark.parametrize("factor", [0.01, 100.0])
def test_units_of_the_target_do_not_matter(factor):
    X, y, tasks, _, _ = alike(6)
    plain, scaled = (JeffreysRegressor(shared_mean=True).fit(X, c * y, tasks=tasks) for c in (1.0, factor))
    np.testing.assert_allclose(scaled.coef_, factor * plain.coef_, rtol=1e-4, atol=1e-5 * factor)


# ---------------------------------------------------------------------- forms, files, messages


@pytest.mark.parametrize("coefficients", ["mode", "integrated"])
def test_forms_of_the_same_data_agree(coefficients):
    rng = np.random.default_rng(3)
    X, W = rng.normal(size=(40, FEATURES)), rng.normal(size=(FEATURES, 1)) + 0.4 * rng.normal(size=(FEATURES, 5))
    Y = X @ W + rng.normal(size=(40, 5))
    Y[rng.random(Y.shape) < 0.1] = np.nan
    rows, columns = np.nonzero(~np.isnan(Y))
    model = JeffreysRegressor(shared_mean=True, coefficients=coefficients, scale_target=False)
    wide = clone(model).fit(X, Y)
    long = clone(model).fit(X[rows], Y[rows, columns], tasks=columns)
    sparse = clone(model).fit(sp.csr_matrix(X[rows]), Y[rows, columns], tasks=columns)
    for other in (long, sparse):
        np.testing.assert_allclose(other.coef_, wide.coef_, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(other.mean_coef_, wide.mean_coef_, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "model",
    [JeffreysRegressor(), MatrixVariateRegressor(coefficients="integrated"), GeneralizedNormalRegressor()],
    ids=lambda model: type(model).__name__,
)
def test_clone_pickle_and_files_keep_the_mean(tmp_path, model):
    X, y, tasks, _, _ = alike(4)
    model = with_mean(model, standardize=True).fit(X, y, tasks=tasks)
    model.save(tmp_path / "model.nc")
    for copy in (load(tmp_path / "model.nc"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(copy.mean_coef_, model.mean_coef_)
        np.testing.assert_array_equal(copy.predict(X, tasks=tasks), model.predict(X, tasks=tasks))
        assert copy.mean_strength_ == model.mean_strength_ and copy.get_params()["shared_mean"]
    assert not hasattr(clone(model), "mean_coef_")


def test_warm_start_begins_where_the_last_fit_ended():
    X, y, tasks, _, _ = alike()
    model = JeffreysRegressor(shared_mean=True, warm_start=True, noise_floor=1e-3).fit(X, y, tasks=tasks)
    first, n_iter = model.coef_.copy(), model.n_iter_
    model.fit(X, y, tasks=tasks)
    np.testing.assert_allclose(model.coef_, first, atol=1e-5)
    assert model.n_iter_ < n_iter


def test_a_fit_without_mean_says_so():
    X, y, tasks, _, _ = alike(3)
    model = JeffreysRegressor().fit(X, y, tasks=tasks)
    assert model.mean_coef_ is None and model.mean_strength_ is None


def test_absent_features_have_no_coefficient():
    X, y, tasks, _, _ = alike(4)
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X).add_prefix("f").assign(y=y, task=tasks)
    frame.loc[frame.task == 2, "f0"] = np.nan
    model = JeffreysRegressor(shared_mean=True).fit(TaskData.from_frame(frame, target="y", task="task"))
    assert model.coef_[2, 0] == 0.0 and np.all(model.coef_[[0, 1, 3], 0] != 0.0)


def test_null_intercept_with_an_offset_is_the_best_one():
    X, y, tasks, mean, _ = alike(3, loss="logistic")
    data = TaskData.from_long(X, y, tasks)
    problem = MeanProblem(data, find_family("logistic"), 1.0, True)
    active = activate(*problem.around(mean), np.zeros(FEATURES, dtype=bool))
    best = active.null_intercept()
    slopes = active.sums(active.family.gradient(active.y, best[active.task]))
    np.testing.assert_allclose(slopes, 0.0, atol=1e-8)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (JeffreysRegressor(shared_mean=True, mean_strength=-1.0), "mean_strength is -1.0; pass a positive number"),
        (
            JeffreysClassifier(shared_mean=True, coefficients="integrated"),
            "shared_mean=True with coefficients='integrated' needs loss='squared'",
        ),
    ],
)
def test_messages(model, message):
    X, y, tasks, _, _ = alike(3, loss="logistic")
    with pytest.raises(ValueError, match=message):
        model.fit(X, y, tasks=tasks)
