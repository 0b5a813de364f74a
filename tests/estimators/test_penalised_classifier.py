"""MixedNormClassifier: the minimum of its stated objective, in every form of the data."""

import cvxpy as cp
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from bayesmtfs import MixedNormClassifier, simulate_tasks

EXPONENTS = [1, 1.5, 2, 3, np.inf]
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
@pytest.mark.parametrize("norm_q", EXPONENTS)
@pytest.mark.parametrize(
    ("weighted", "fit_intercept", "loss_scale"), [(True, True, "mean"), (False, False, "sum"), (False, True, "sum")]
)
def test_minimum_equals_cvxpy(sim, loss, weighted, fit_intercept, loss_scale, norm_q):
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


@pytest.mark.parametrize("norm_q", EXPONENTS)
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
