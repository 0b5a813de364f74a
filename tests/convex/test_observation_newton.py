"""Newton steps with as many unknowns as observations, against the same systems written out in full."""

import numpy as np
import pytest
import scipy.sparse as sp

from bayesmtfs import TaskData
from bayesmtfs.convex import observation_newton, wide_mean
from bayesmtfs.convex.observation_newton import MeanDesign, NewtonTerms, clipped, newton_slopes, row_inverses
from bayesmtfs.estimators.path import mixed_norm_path
from bayesmtfs.priors.row_penalty import RowPenalty

SIZES = (5, 4)
OFFSETS = np.concatenate([[0], np.cumsum(SIZES)])
TASK = np.repeat(np.arange(2), SIZES)


def damped_hessian(penalty, V, squares):
    curvature = penalty.curvature(V, observation_newton.STIFF * squares.max(), observation_newton.TIED)
    damping = observation_newton.DAMPING * squares.mean()
    diagonal = np.broadcast_to(curvature.diagonal, V.shape) + damping
    along = curvature.direction
    return [np.diag(d) - s * np.outer(z, z) for d, s, z in zip(diagonal, curvature.scale, along, strict=True)]


@pytest.mark.parametrize("norm_q", [1.5, 2.0, 3.0])
def test_inverses_of_rows(norm_q):
    rng = np.random.default_rng(0)
    V, squares = rng.standard_normal((3, 4)), rng.random((3, 4)) + 0.5
    penalty = RowPenalty(0.7, norm_q)
    inverses = row_inverses(penalty, V, squares)
    vector = rng.standard_normal((3, 4))
    wanted = [np.linalg.solve(D, v) for D, v in zip(damped_hessian(penalty, V, squares), vector, strict=True)]
    np.testing.assert_allclose(inverses.times(vector), wanted, rtol=1e-6)


def test_entries_that_are_held_do_not_move():
    V = np.array([[1.0, 0.0, -2.0]])
    inverses = row_inverses(RowPenalty(0.7, 1.0), V, np.ones((1, 3)))
    assert inverses.times(np.ones((1, 3)))[0, 1] == 0.0


def test_slopes_solve_the_whole_newton_system():
    rng = np.random.default_rng(1)
    N, p, k, m = sum(SIZES), 12, 3, 2
    X, A = rng.standard_normal((N, p)), rng.standard_normal((N, k))
    V, a, g, h = rng.standard_normal((k, m)), rng.standard_normal(p), rng.standard_normal(N), rng.random(N) + 0.1
    penalty, ridge = RowPenalty(0.3), 0.4
    squares = np.stack([h[TASK == t] @ A[TASK == t] ** 2 for t in range(m)], axis=1)
    inverses, gradient = row_inverses(penalty, V, squares), penalty.gradient(V)
    terms = NewtonTerms(A, OFFSETS, g, h, X @ X.T, ridge, X @ (ridge * a), gradient, True)
    theta = newton_slopes(terms, inverses)
    # the same minimum over (d_V, d_a, d_b) at once, task by task within a row
    Z = np.concatenate([A[:, [j]] * (TASK[:, None] == np.arange(m)) for j in range(k)], axis=1)
    B = np.hstack([Z, X, np.ones((N, 1))])
    H = B.T @ (h[:, None] * B)
    for j, D in enumerate(damped_hessian(penalty, V, squares)):
        H[j * m : (j + 1) * m, j * m : (j + 1) * m] += D
    H[k * m : -1, k * m : -1] += ridge * np.eye(p)
    right = -(B.T @ g) - np.concatenate([gradient.ravel(), ridge * a, [0.0]])
    wanted = g + h * (B @ np.linalg.solve(H, right))
    np.testing.assert_allclose(theta, wanted, rtol=1e-6, atol=1e-8)
    assert theta.sum() == pytest.approx(0.0, abs=1e-10)


@pytest.mark.parametrize("form", ["dense", "sparse", "one design"])
def test_products_follow_their_members(form):
    rng = np.random.default_rng(2)
    X = rng.standard_normal((9, 30)) * (rng.random((9, 30)) < 0.5)
    if form == "one design":
        data, every = TaskData.from_wide(X, rng.standard_normal((9, 2))), np.vstack([X, X])
    else:
        data, every = TaskData.from_long(sp.csr_matrix(X) if form == "sparse" else X, rng.random(9), TASK), X
    design, members = MeanDesign(data, centred=False), rng.random(30) < 0.6
    vector, theta = rng.standard_normal(30), rng.standard_normal(len(every))
    for changed in ([], [0, 5], [7], range(20)):
        members = members.copy()
        members[changed] ^= True
        np.testing.assert_allclose(design.products(members), every[:, members] @ every[:, members].T, atol=1e-12)
    np.testing.assert_allclose(design.predictor(vector), every @ vector)
    np.testing.assert_allclose(design.adjoint(theta), every.T @ theta)


def test_clipped_rows_stop_at_zero():
    V, change = np.array([[1.0, 1.0], [1.0, -1.0]]), np.array([[-3.0, 0.5], [-0.5, 0.2]])
    np.testing.assert_array_equal(clipped(RowPenalty(1.0), V, change), [[-1.0, -1.0], [-0.5, 0.2]])
    np.testing.assert_array_equal(clipped(RowPenalty(1.0, 1.0), V, change), [[-1.0, 0.5], [-0.5, 0.2]])


@pytest.mark.parametrize("mean_penalty", [0.0, 0.05])
@pytest.mark.parametrize("level", [0.0, 100.0])
def test_extrapolated_paths_have_the_solutions_of_single_fits(mean_penalty, level):
    rng = np.random.default_rng(3)
    tasks = np.repeat(np.arange(3), 12)
    X = rng.standard_normal((36, 160)) + level
    eta = (X[:, :4] - level).sum(axis=1) + (X[:, 4] - level) * (tasks - 1)
    y = np.sign(eta + rng.standard_normal(36))
    options = {"loss": "logistic", "shared_mean": True, "mean_strength": 0.1, "mean_penalty": mean_penalty, "tol": 1e-8}
    penalties = np.geomspace(0.3, 0.01, 12)
    path = mixed_norm_path(X, y, tasks, penalties=penalties, **options)
    assert path.converged.all()
    for k in (3, 7, 11):
        single = mixed_norm_path(X, y, tasks, penalties=penalties[[k]], **options)
        assert path.objectives[k] == pytest.approx(single.objectives[0], rel=1e-6)


def test_what_newton_steps_leave_is_finished_by_gram_matrices(monkeypatch):
    rng = np.random.default_rng(4)
    tasks = np.repeat(np.arange(3), 8)
    X = rng.standard_normal((24, 4)) @ rng.standard_normal((4, 110)) + 0.1 * rng.standard_normal((24, 110))
    y = X[:, 0] + rng.standard_normal(24)
    options = {"shared_mean": True, "mean_strength": 1e-3, "mean_penalty": 0.02, "tol": 1e-8, "penalties": [0.1]}
    usual = mixed_norm_path(X, y, tasks, **options)
    monkeypatch.setattr(wide_mean, "MOST_ROUNDS", 1)
    monkeypatch.setattr(wide_mean, "FEW_ROUNDS", 1)
    finished = mixed_norm_path(X, y, tasks, **options)
    assert usual.converged.all() and finished.converged.all()
    assert finished.objectives[0] == pytest.approx(usual.objectives[0], rel=1e-6)
