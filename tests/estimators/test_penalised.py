"""MixedNormRegressor: the minimum of its stated objective, in every form of the data."""

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression

from bayesmtfs import MixedNormClassifier, MixedNormRegressor, TaskData, simulate_tasks
from bayesmtfs.priors.row_penalty import dual_exponent
from bayesmtfs.types import ConvergenceWarning, DataWarning

EXPONENTS = [1, 1.5, 2, 3, np.inf]


def make_long(seed=0, sizes=(12, 20, 9), p=8):
    rng = np.random.default_rng(seed)
    tasks = np.repeat(["a", "b", "c"], sizes)
    X = rng.standard_normal((len(tasks), p)) + rng.standard_normal(p)
    W = np.zeros((p, 3))
    W[:3] = rng.standard_normal((3, 3))
    index = np.repeat([0, 1, 2], sizes)
    y = np.einsum("ip,pi->i", X, W[:, index]) + 1.0 + 0.3 * rng.standard_normal(len(tasks))
    order = rng.permutation(len(y))
    return X[order], y[order], tasks[order], rng.uniform(0.5, 2.0, len(y))


def make_wide(seed=1, n=15, p=8, m=3, missing=True):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    Y = X[:, :2] @ rng.standard_normal((2, m)) - 0.5 + 0.3 * rng.standard_normal((n, m))
    if missing:
        Y[rng.random((n, m)) < 0.2] = np.nan
    return X, Y, rng.uniform(0.5, 2.0, (n, m))


def cvxpy_objective(
    blocks, norm_q, strength, loss_scale, fit_intercept, task_sparsity=0.0, groups=None, loss_name="squared"
):
    """Minimum by an interior-point solver; blocks are (X, y, weight) per task."""
    p, m = blocks[0][0].shape[1], len(blocks)
    W, b = cp.Variable((p, m)), cp.Variable(m)
    loss = 0
    for t, (X, y, weight) in enumerate(blocks):
        factor = weight / weight.sum() if loss_scale == "mean" else weight
        residual = y - X @ W[:, t] - (b[t] if fit_intercept else 0)
        if loss_name == "squared":
            loss += 0.5 * cp.sum_squares(cp.multiply(np.sqrt(factor), residual))
        else:
            loss += factor @ cp.abs(residual)
    rows = [[i] for i in range(p)] if groups is None else [np.flatnonzero(np.equal(groups, g)) for g in set(groups)]
    norms = sum(cp.pnorm(cp.vec(W[row, :], order="C"), norm_q) for row in rows)
    penalty = strength * (norms + task_sparsity * cp.sum(cp.abs(W)))
    problem = cp.Problem(cp.Minimize(loss + penalty))
    problem.solve(solver=cp.CLARABEL)
    return problem.value


def objective(blocks, coef, intercept, norm_q, strength, loss_scale, task_sparsity=0.0):
    """The stated objective, written out once more."""
    value = 0.0
    for t, (X, y, weight) in enumerate(blocks):
        factor = weight / weight.sum() if loss_scale == "mean" else weight
        value += 0.5 * np.sum(factor * (y - X @ coef[t] - intercept[t]) ** 2)
    rows = [np.linalg.norm(row, norm_q) + task_sparsity * np.abs(row).sum() for row in coef.T]
    return value + strength * sum(rows)


def long_blocks(X, y, tasks, weight):
    return [(X[tasks == t], y[tasks == t], weight[tasks == t]) for t in np.unique(tasks)]


def wide_blocks(X, Y, weight):
    seen = ~np.isnan(Y)
    return [(X[seen[:, t]], Y[seen[:, t], t], weight[seen[:, t], t]) for t in range(Y.shape[1])]


@pytest.mark.parametrize("norm_q", EXPONENTS)
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize(("loss_scale", "weighted"), [("mean", True), ("sum", False), ("mean", False), ("sum", True)])
@pytest.mark.parametrize("form", ["long", "wide"])
def test_minimum_equals_cvxpy(form, loss_scale, weighted, fit_intercept, norm_q):
    strength = 0.15 if loss_scale == "mean" else 2.0
    model = MixedNormRegressor(
        norm_q=norm_q, penalty_strength=strength, loss_scale=loss_scale, fit_intercept=fit_intercept, tol=1e-8
    )
    if form == "long":
        X, y, tasks, weight = make_long()
        blocks = long_blocks(X, y, tasks, weight if weighted else np.ones(len(y)))
        model.fit(X, y, tasks=tasks, sample_weight=weight if weighted else None)
    else:
        X, y, weight = make_wide()
        blocks = wide_blocks(X, y, weight if weighted else np.ones(y.shape))
        model.fit(X, y, sample_weight=weight if weighted else None)
    expected = cvxpy_objective(blocks, norm_q, strength, loss_scale, fit_intercept)
    reached = objective(blocks, model.coef_, model.intercept_, norm_q, strength, loss_scale)
    assert model.objective_ == pytest.approx(reached, rel=1e-10)
    assert reached == pytest.approx(expected, rel=1e-6)
    assert model.converged_
    assert reached - expected <= model.dual_gap_ + 1e-8 * expected
    if not fit_intercept:
        assert (model.intercept_ == 0).all()


@pytest.mark.parametrize("norm_q", EXPONENTS)
@pytest.mark.parametrize("form", ["long", "wide"])
def test_absolute_loss_minimum_equals_cvxpy(form, norm_q):
    model = MixedNormRegressor(norm_q=norm_q, penalty_strength=0.1, loss="absolute", tol=1e-7)
    if form == "long":
        X, y, tasks, weight = make_long()
        blocks = long_blocks(X, y, tasks, weight)
        model.fit(X, y, tasks=tasks, sample_weight=weight)
    else:
        X, y, weight = make_wide()
        blocks = wide_blocks(X, y, weight)
        model.fit(X, y, sample_weight=weight)
    expected = cvxpy_objective(blocks, norm_q, 0.1, "mean", True, loss_name="absolute")
    assert model.converged_ and model.objective_ == pytest.approx(expected, rel=1e-6)
    assert model.objective_ - expected <= model.dual_gap_ + 1e-8 * expected


def test_sparse_group_minimum_equals_cvxpy():
    X, y, tasks, weight = make_long()
    model = MixedNormRegressor(penalty_strength=0.1, task_sparsity=0.5, tol=1e-8).fit(X, y, tasks=tasks)
    blocks = long_blocks(X, y, tasks, np.ones(len(y)))
    expected = cvxpy_objective(blocks, 2, 0.1, "mean", True, task_sparsity=0.5)
    assert model.objective_ == pytest.approx(expected, rel=1e-6)
    inside = model.coef_[:, model.get_support()]
    assert (inside == 0).any()


def test_groups_enter_whole_and_minimum_equals_cvxpy():
    X, y, tasks, _ = make_long()
    groups = [0, 0, 1, 1, 2, 2, 2, 3]
    model = MixedNormRegressor(penalty_strength=0.3, groups=groups, tol=1e-8).fit(X, y, tasks=tasks)
    expected = cvxpy_objective(long_blocks(X, y, tasks, np.ones(len(y))), 2, 0.3, "mean", True, groups=groups)
    assert model.objective_ == pytest.approx(expected, rel=1e-6)
    for group in range(4):
        kept = model.get_support()[np.equal(groups, group)]
        assert kept.all() or not kept.any()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("norm_q", EXPONENTS)
def test_exact_zero_at_lambda_max_and_not_below(norm_q, seed):
    X, y, tasks, _ = make_long(seed)
    gradient = np.zeros((X.shape[1], 3))
    for t, name in enumerate("abc"):
        rows = tasks == name
        gradient[:, t] = X[rows].T @ (y[rows] - y[rows].mean()) / rows.sum()
    largest = np.linalg.norm(gradient, dual_exponent(norm_q), axis=1).max()
    at = MixedNormRegressor(norm_q=norm_q, penalty_strength=largest).fit(X, y, tasks=tasks)
    assert (at.coef_ == 0).all() and at.dual_gap_ < 1e-12
    below = MixedNormRegressor(norm_q=norm_q, penalty_strength=0.99 * largest).fit(X, y, tasks=tasks)
    assert (below.coef_ != 0).any()
    default = MixedNormRegressor(norm_q=norm_q).fit(X, y, tasks=tasks)
    assert default.penalty_strength_ == pytest.approx(0.1 * largest, rel=1e-12)


def test_rows_are_exactly_zero():
    X, y, tasks, _ = make_long()
    model = MixedNormRegressor(penalty_strength=0.3).fit(X, y, tasks=tasks)
    zero = ~model.get_support()
    assert zero.any() and (model.coef_[:, zero] == 0).all()
    assert (model.coef_[:, ~zero] != 0).all()


# the same data in other clothes


@pytest.fixture(scope="module")
def reference():
    X, y, tasks, weight = make_long()
    return MixedNormRegressor(penalty_strength=0.1, tol=1e-10).fit(X, y, tasks=tasks, sample_weight=weight)


@pytest.mark.parametrize("wrap", [sp.csr_matrix, sp.csc_matrix, sp.coo_array, pd.DataFrame, np.asfortranarray, list])
def test_every_container_gives_the_same_fit(reference, wrap):
    X, y, tasks, weight = make_long()
    given = wrap(X) if wrap is not list else X.tolist()
    model = MixedNormRegressor(penalty_strength=0.1, tol=1e-10).fit(given, y, tasks=tasks, sample_weight=weight)
    np.testing.assert_allclose(model.coef_, reference.coef_, atol=1e-6)
    np.testing.assert_allclose(model.predict(given, tasks=tasks), reference.predict(X, tasks=tasks), atol=1e-5)


def test_task_data_gives_the_same_fit_and_predictions(reference):
    X, y, tasks, weight = make_long()
    data = TaskData.from_long(X, y, tasks, sample_weight=weight)
    model = MixedNormRegressor(penalty_strength=0.1, tol=1e-10).fit(data)
    np.testing.assert_allclose(model.coef_, reference.coef_, atol=1e-10)
    np.testing.assert_allclose(model.predict(data), reference.predict(X, tasks=tasks), atol=1e-8)


def test_float32_is_close(reference):
    X, y, tasks, weight = make_long()
    model = MixedNormRegressor(penalty_strength=0.1).fit(X.astype(np.float32), y, tasks=tasks, sample_weight=weight)
    np.testing.assert_allclose(model.coef_, reference.coef_, atol=1e-3)


def test_task_column_by_name_and_by_number(reference):
    X, y, tasks, weight = make_long()
    frame = pd.DataFrame(X, columns=[f"f{i}" for i in range(8)]).assign(school=tasks)
    by_name = MixedNormRegressor(penalty_strength=0.1, tol=1e-10, task_column="school")
    by_name.fit(frame, y, sample_weight=weight)
    np.testing.assert_allclose(by_name.coef_, reference.coef_, atol=1e-8)
    np.testing.assert_allclose(by_name.predict(frame), reference.predict(X, tasks=tasks), atol=1e-8)
    numbered = np.column_stack([X[:, :2], np.searchsorted(["a", "b", "c"], tasks), X[:, 2:]])
    by_number = MixedNormRegressor(penalty_strength=0.1, tol=1e-10, task_column=2)
    by_number.fit(numbered, y, sample_weight=weight)
    np.testing.assert_allclose(by_number.coef_, reference.coef_, atol=1e-8)
    np.testing.assert_allclose(by_number.predict(numbered), reference.predict(X, tasks=tasks), atol=1e-8)


def test_weight_two_is_a_repeated_row_and_zero_none():
    X, y, tasks, _ = make_long()
    weight = np.arange(len(y)) % 3
    repeated = np.repeat(np.arange(len(y)), weight)
    settings = {"penalty_strength": 0.1, "tol": 1e-10}
    weighted = MixedNormRegressor(**settings).fit(X, y, tasks=tasks, sample_weight=weight)
    plain = MixedNormRegressor(**settings).fit(X[repeated], y[repeated], tasks=tasks[repeated])
    np.testing.assert_allclose(weighted.coef_, plain.coef_, atol=1e-6)


def test_absent_features_are_zero_there():
    rng = np.random.default_rng(5)
    first = pd.DataFrame(rng.standard_normal((20, 3)), columns=["u", "v", "w"])
    second = pd.DataFrame(rng.standard_normal((25, 2)), columns=["w", "u"])
    y = first["v"].to_numpy(), second["w"].to_numpy()
    data = TaskData.from_list([(first, y[0]), (second, y[1])], task_names=["one", "two"])
    model = MixedNormRegressor(penalty_strength=0.01).fit(data)
    assert model.coef_[1, 1] == 0 and model.coef_[0, 1] > 0.5
    assert model.converged_


def test_standardize_is_a_fit_on_scaled_features_in_the_users_units():
    X, y, tasks, weight = make_long()
    X = X * np.geomspace(0.1, 10, 8)
    model = MixedNormRegressor(penalty_strength=0.1, standardize=True, tol=1e-10)
    model.fit(X, y, tasks=tasks, sample_weight=weight)
    Z, scales = X.copy(), {}
    for name in "abc":
        rows = tasks == name
        mean = np.average(X[rows], axis=0, weights=weight[rows])
        scales[name] = np.sqrt(np.average((X[rows] - mean) ** 2, axis=0, weights=weight[rows]))
        Z[rows] = (X[rows] - mean) / scales[name]
    expected = MixedNormRegressor(penalty_strength=0.1, tol=1e-10).fit(Z, y, tasks=tasks, sample_weight=weight)
    for t, name in enumerate("abc"):
        np.testing.assert_allclose(model.coef_[t] * scales[name], expected.coef_[t], atol=1e-6)
    np.testing.assert_allclose(model.predict(X, tasks=tasks), expected.predict(Z, tasks=tasks), atol=1e-5)


def test_constant_and_empty_columns_get_zero():
    X, y, tasks, _ = make_long()
    X[:, 6], X[:, 7] = 3.0, 0.0
    model = MixedNormRegressor(penalty_strength=0.01).fit(X, y, tasks=tasks)
    assert (model.coef_[:, 6:] == 0).all()
    with pytest.warns(DataWarning, match=r"2 features are constant within every task \(x6, x7\)"):
        MixedNormRegressor(penalty_strength=0.01, standardize=True).fit(X, y, tasks=tasks)


def test_warm_start_needs_fewer_iterations():
    X, y, tasks, _ = make_long()
    model = MixedNormRegressor(penalty_strength=0.02, warm_start=True).fit(X, y, tasks=tasks)
    cold = model.n_iter_
    model.set_params(penalty_strength=0.0199).fit(X, y, tasks=tasks)
    assert model.n_iter_ < cold


def test_inputs_are_not_modified():
    X, y, tasks, weight = make_long()
    for array in (X, y, weight):
        array.flags.writeable = False
    copies = X.copy(), y.copy(), tasks.copy(), weight.copy()
    MixedNormRegressor(standardize=True).fit(X, y, tasks=tasks, sample_weight=weight).predict(X, tasks=tasks)
    for array, copy in zip((X, y, tasks, weight), copies, strict=True):
        np.testing.assert_array_equal(array, copy)


# errors and warnings


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"penalty_strength": -1.0}, "penalty_strength is -1.0; pass a number of at least 0"),
        ({"norm_q": 0.5}, "norm_q"),
        ({"norm_q": np.nan}, "norm_q"),
        ({"loss": "cubic"}, "loss is 'cubic'; choose one of"),
        ({"loss_scale": "median"}, "loss_scale is 'median'; choose one of 'mean', 'sum'"),
        ({"solver": "magic"}, "solver is 'magic'; choose one of"),
        ({"unknown_task": "guess"}, "unknown_task is 'guess'"),
        ({"tol": 0.0}, "tol is 0.0; pass a positive number"),
        ({"max_iter": 0}, "max_iter is 0"),
        ({"norm_q": 3, "task_sparsity": 0.5}, "task_sparsity"),
        ({"task_sparsity": "some"}, "task_sparsity is 'some'; pass a number"),
        ({"task_column": "school"}, "task_column is 'school' but X is not a data frame"),
        ({"task_column": 99}, "task_column is 99 but X has 8 columns"),
    ],
)
def test_bad_parameters(parameters, message):
    X, y, _, _ = make_long()
    with pytest.raises(ValueError, match=message):
        MixedNormRegressor(**parameters).fit(X, y)


def test_unknown_task_at_predict(reference):
    X, _, tasks, _ = make_long()
    changed = np.where(tasks == "a", "zz", tasks)
    with pytest.raises(ValueError, match=r"not there in fit: 'zz'; known tasks are 'a', 'b', 'c'"):
        reference.predict(X, tasks=changed)
    with pytest.raises(ValueError, match=r"tasks is missing: MixedNormRegressor was fitted on 3 tasks"):
        reference.predict(X)
    X, y, tasks, weight = make_long()
    lenient = MixedNormRegressor(penalty_strength=0.1, unknown_task="mean").fit(X, y, tasks=tasks)
    mean = X @ lenient.coef_.mean(axis=0) + lenient.intercept_.mean()
    np.testing.assert_allclose(lenient.predict(X, tasks=["new"] * len(X)), mean)


def test_labels_are_refused_by_a_regressor():
    with pytest.raises(ValueError, match="y is not numeric .* use a classifier for labels"):
        MixedNormRegressor().fit(np.eye(3), ["yes", "no", "yes"])


def test_y_and_tasks_that_changed_places_are_noticed():
    X, y, tasks, _ = make_long()
    fractions = r"tasks holds numbers with fractions, such as .* which make \d+ tasks; if y and tasks were swapped"
    with pytest.warns(DataWarning, match=fractions):
        MixedNormRegressor().fit(X, np.arange(len(y)) % 3, y)
    labels = r"y is not numeric .* call fit\(X, y, tasks=labels\) if y and tasks were swapped"
    with pytest.warns(DataWarning, match=fractions), pytest.raises(ValueError, match=labels):
        MixedNormRegressor().fit(X, tasks, y)


def test_stopping_early_is_said_with_gap_tolerance_and_remedy():
    X, y, tasks, _ = make_long()
    with pytest.warns(ConvergenceWarning, match=r"stopped after 1 iterations at a duality gap .* tol=1e-06; raise max"):
        model = MixedNormRegressor(penalty_strength=0.01, max_iter=1, solver="proximal_gradient").fit(X, y, tasks=tasks)
    assert not model.converged_ and model.dual_gap_ > 0


@pytest.mark.parametrize("shared_mean", [True, False])
@pytest.mark.parametrize("mean_strength", [-1.0, 0.0])
def test_ridge_on_the_mean_must_be_positive_whether_or_not_there_is_one(mean_strength, shared_mean):
    model = MixedNormRegressor(mean_strength=mean_strength, shared_mean=shared_mean)
    with pytest.raises(ValueError, match=f"mean_strength is {mean_strength}; pass a positive number, or None"):
        model.fit(np.eye(4), np.arange(4.0))


@pytest.mark.parametrize(("max_iter", "advice"), [(1, "raise max_iter or tol"), (10_000, "raise tol, standardise")])
def test_advice_goes_with_the_reason_for_stopping(max_iter, advice):
    rng = np.random.default_rng(0)
    model = MixedNormRegressor(loss="absolute", penalty_strength=0.01, tol=1e-30, max_iter=max_iter)
    with pytest.warns(ConvergenceWarning, match=advice):
        model.fit(rng.standard_normal((20, 5)), rng.standard_normal(20))


# MixedNormClassifier: the minimum of its stated objective, in every form of the data


CLASSIFIER_EXPONENTS = [1, 1.5, 2, 3, np.inf]
CVXPY_LOSS = {"logistic": lambda margin: cp.logistic(-margin), "hinge": lambda margin: cp.pos(1 - margin)}
NUMPY_LOSS = {"logistic": lambda margin: np.logaddexp(0, -margin), "hinge": lambda margin: np.maximum(1 - margin, 0)}
LOSSES = ["logistic", "hinge"]
TOLERANCE = {"logistic": 1e-8, "hinge": 1e-7}


@pytest.fixture(scope="module", params=["long", "wide"])
def sim(request):
    return simulate_tasks(
        n_tasks=3,
        n_features=6,
        n_samples=24 if request.param == "wide" else [16, 26, 20],
        n_relevant=2,
        snr=2.0,
        missing=0.15,
        intercept_scale=0.5,
        shared_design=request.param == "wide",
        kind="classification",
        random_state=3,
    )


def weights_of(sim):
    return np.random.default_rng(5).uniform(0.5, 2.0, sim.y.shape)


def blocks_of(X, y, tasks, weight):
    """(X, signs, weight) per task, from long labels or wide columns."""
    if y.ndim == 2:
        seen = ~np.isnan(y)
        return [(X[seen[:, t]], y[seen[:, t], t], weight[seen[:, t], t]) for t in range(y.shape[1])]
    return [(X[tasks == t], y[tasks == t], weight[tasks == t]) for t in np.unique(tasks)]


def total(blocks, coef, intercept, loss, loss_scale):
    value = 0
    for t, (X, signs, weight) in enumerate(blocks):
        factor = weight / weight.sum() if loss_scale == "mean" else weight
        margin = signs * (X @ coef[t] + intercept[t])
        value += np.sum(factor * NUMPY_LOSS[loss](margin))
    return value


def row_norms(coef, norm_q):
    return sum(np.linalg.norm(row, norm_q) for row in coef.T)


def cvxpy_minimum(blocks, norm_q, penalty_strength, loss="logistic", loss_scale="mean", fit_intercept=True):
    m, p = len(blocks), blocks[0][0].shape[1]
    W, b = cp.Variable((m, p)), cp.Variable(m)
    value = 0
    for t, (X, signs, weight) in enumerate(blocks):
        factor = weight / weight.sum() if loss_scale == "mean" else weight
        eta = X @ W[t] + (b[t] if fit_intercept else 0)
        value += cp.sum(cp.multiply(factor, CVXPY_LOSS[loss](cp.multiply(signs, eta))))
    penalty = sum(cp.pnorm(W[:, i], norm_q) for i in range(p))
    problem = cp.Problem(cp.Minimize(value + penalty_strength * penalty))
    problem.solve(solver=cp.CLARABEL)
    return problem.value


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("norm_q", CLASSIFIER_EXPONENTS)
@pytest.mark.parametrize(
    ("weighted", "fit_intercept", "loss_scale"), [(True, True, "mean"), (False, False, "sum"), (False, True, "sum")]
)
def test_minimum_equals_cvxpy_of_penalised_classifier(sim, loss, weighted, fit_intercept, loss_scale, norm_q):
    strength = 0.06 if loss_scale == "mean" else 1.0
    options = {"loss": loss, "norm_q": norm_q, "penalty_strength": strength, "loss_scale": loss_scale}
    options["fit_intercept"] = fit_intercept
    weight = weights_of(sim) if weighted else None
    model = MixedNormClassifier(tol=TOLERANCE[loss], **options).fit(sim.X, sim.y, tasks=sim.tasks, sample_weight=weight)
    blocks = blocks_of(sim.X, sim.y, sim.tasks, np.ones(sim.y.shape) if weight is None else weight)
    reached = total(blocks, model.coef_, model.intercept_, loss, loss_scale) + strength * row_norms(model.coef_, norm_q)
    expected = cvxpy_minimum(blocks, **options)
    assert model.objective_ == pytest.approx(reached, rel=1e-10)
    assert reached == pytest.approx(expected, rel=1e-6)
    assert model.converged_ and reached - expected <= model.dual_gap_ + 1e-8 * expected
    assert 0 < model.get_support().sum()
    assert fit_intercept or (model.intercept_ == 0).all()


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("norm_q", [1, 2, np.inf])
def test_several_classes_minimum_equals_cvxpy(loss, norm_q):
    rng = np.random.default_rng(0)
    X, weight = rng.standard_normal((50, 6)), rng.uniform(0.5, 2.0, 50)
    y = np.digitize(X[:, 0] + 0.3 * X[:, 2] + 0.5 * rng.standard_normal(50), [-0.5, 0.5])
    model = MixedNormClassifier(loss=loss, norm_q=norm_q, penalty_strength=0.05, tol=TOLERANCE[loss])
    model.fit(X, np.array(["lo", "mid", "up"])[y], sample_weight=weight)
    assert model.classes_.tolist() == model.tasks_.tolist() == ["lo", "mid", "up"]
    assert model.coef_.shape == (3, 6)
    blocks = [(X, np.where(y == k, 1.0, -1.0), weight) for k in range(3)]
    assert model.objective_ == pytest.approx(cvxpy_minimum(blocks, norm_q, 0.05, loss), rel=1e-6)


@pytest.mark.parametrize("norm_q", CLASSIFIER_EXPONENTS)
def test_zero_at_lambda_max_and_not_below(sim, norm_q):
    gradient = []
    for X, signs, _ in blocks_of(sim.X, sim.y, sim.tasks, np.ones(sim.y.shape)):
        positive = signs > 0
        gradient.append(X.T @ (positive - positive.mean()) / len(signs))
    with np.errstate(divide="ignore"):
        dual = 1 / (1 - np.divide(1.0, norm_q))
    largest = np.linalg.norm(np.array(gradient), dual, axis=0).max()

    def fit(strength):
        return MixedNormClassifier(norm_q=norm_q, penalty_strength=strength).fit(sim.X, sim.y, tasks=sim.tasks)

    assert (fit(largest * (1 + 1e-12)).coef_ == 0).all()
    assert (fit(0.99 * largest).coef_ != 0).any()
    assert fit(None).penalty_strength_ == pytest.approx(0.1 * largest, rel=1e-9)


def test_one_task_is_l1_logistic_regression(sim):
    X, signs, _ = blocks_of(sim.X, sim.y, sim.tasks, np.ones(sim.y.shape))[0]
    ours = MixedNormClassifier(penalty_strength=1.0, loss_scale="sum", tol=1e-10).fit(X, signs)
    peer = LogisticRegression(l1_ratio=1, C=1.0, solver="saga", tol=1e-10, max_iter=100_000).fit(X, signs)
    np.testing.assert_allclose(ours.coef_, peer.coef_, atol=1e-4)
    np.testing.assert_allclose(ours.intercept_, peer.intercept_, atol=1e-4)


def test_default_ridge_of_a_standardised_mean_does_not_see_where_columns_lie():
    rng = np.random.default_rng(0)
    X, tasks = rng.normal(size=(90, 4)), np.arange(90) % 3
    y = X[:, 0] + rng.normal(size=90)
    models = [
        MixedNormRegressor(shared_mean=True, standardize=True).fit(Z, y, tasks=tasks)
        for Z in (X, X + np.array([12.0, 0.0, 400.0, 0.0]))
    ]
    assert models[1].mean_strength_ == pytest.approx(models[0].mean_strength_, rel=1e-6)
