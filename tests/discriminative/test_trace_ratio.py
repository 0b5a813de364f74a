"""Algorithm 1 against a dense transcription, and what it must keep: descent, orthonormal columns, invariances."""

import numpy as np
import pytest

from bayesmtfs.discriminative import trace_ratio
from bayesmtfs.discriminative.trace_ratio import scatter


def two_tasks(n=30, p=40, seed=0):
    """Tasks of three and four classes that share the features 0 to 3."""
    rng = np.random.default_rng(seed)
    tasks = []
    for n_classes in (3, 4):
        labels = np.arange(n) % n_classes
        X = rng.standard_normal((n, p))
        X[:, :4] += 2.0 * rng.standard_normal((n_classes, 4))[labels]
        tasks.append((X, labels))
    return tasks


def scatters_of(tasks):
    return [scatter(X, labels, np.ones(len(labels))) for X, labels in tasks]


def lengths(fit, groups=None):
    return trace_ratio.row_lengths(np.hstack(fit.W), groups)


def transcription(tasks, within, joint, share, n_iter, rotation_seed=None):
    """Algorithm 1 with p x p matrices; the class coding F is rotated where a seed is given."""
    matrices, W = [], []
    for X, labels in tasks:
        H = np.eye(len(X)) - 1.0 / len(X)
        Y = (labels[:, None] == np.unique(labels)).astype(float)
        F = Y / np.sqrt(Y.sum(axis=0))
        if rotation_seed is not None:
            F = F @ np.linalg.qr(np.random.default_rng(rotation_seed).standard_normal((F.shape[1],) * 2))[0]
        B, E = X.T @ H @ X, X.T @ H @ (np.eye(len(X)) - F @ F.T) @ H @ X
        gamma, c = 1.0, Y.shape[1]
        basis = np.linalg.svd(H @ X, full_matrices=False)[2][: min(len(X) - 1, X.shape[1])].T
        for _ in range(50):
            V = basis @ np.linalg.eigh(basis.T @ (E - gamma * B) @ basis)[1][:, :c]
            gamma = np.trace(V.T @ E @ V) / np.trace(V.T @ B @ V)
        matrices.append((E - gamma * B) / np.trace(B))
        W.append(V)
    p, total = W[0].shape[0], sum(w.shape[1] for w in W)
    for _ in range(n_iter):
        D = 0.5 / np.sqrt(np.sum(np.hstack(W) ** 2, axis=1) + share**2 * total / p)
        D_own = [0.5 / np.sqrt(np.sum(w**2, axis=1) + share**2 * w.shape[1] / p) for w in W]
        W = [
            np.linalg.eigh(M + np.diag(within * d + joint * D))[1][:, : w.shape[1]]
            for M, d, w in zip(matrices, D_own, W, strict=True)
        ]
    return np.linalg.norm(np.hstack(W), axis=1)


@pytest.mark.parametrize(("n", "p"), [(60, 20), (30, 250)])
@pytest.mark.parametrize(("within", "joint"), [(1e-3, 1e-4), (1e-4, 1e-3), (1e-2, 1e-2)])
def test_same_rows_as_the_dense_transcription_with_any_class_coding(n, p, within, joint):
    tasks = two_tasks(n, p)
    fit = trace_ratio.solve(scatters_of(tasks), trace_ratio.TraceRatioSettings(within, joint, max_iter=6))
    dense = transcription(tasks, within, joint, 1e-3, fit.n_iter, rotation_seed=5)
    np.testing.assert_allclose(lengths(fit), dense, atol=1e-6)


@pytest.mark.parametrize("strength", [1e-5, 1e-4, 1e-3, 1e-2, 1.0])
@pytest.mark.parametrize(("n", "p"), [(60, 20), (30, 250)])
def test_surrogate_never_increases_and_columns_stay_orthonormal(n, p, strength):
    scatters = scatters_of(two_tasks(n, p))
    fit = trace_ratio.solve(scatters, trace_ratio.TraceRatioSettings(strength, strength, max_iter=60))
    trace = fit.surrogate_trace
    assert np.all(np.diff(trace) <= 1e-12 * np.abs(trace[:-1]))
    for W in fit.W:
        np.testing.assert_allclose(W.T @ W, np.eye(W.shape[1]), atol=1e-9)
    written = sum(
        t.difference(W) + strength * np.sum(np.sqrt(np.sum(W**2, axis=1) + floor**2))
        for t, W, floor in zip(scatters, fit.W, fit.floors.own, strict=True)
    ) + strength * np.sum(np.hypot(lengths(fit), fit.floors.joint))
    assert trace[-1] == pytest.approx(written, rel=1e-12)
    ratios = sum(t.ratio(W) for t, W in zip(scatters, fit.W, strict=True))
    own = sum(np.linalg.norm(W, axis=1).sum() for W in fit.W)
    assert fit.objective_trace[-1] == pytest.approx(ratios + strength * (own + lengths(fit).sum()), rel=1e-12)


def test_the_objective_of_equation_one_may_rise_while_the_surrogate_falls():
    fit = trace_ratio.solve(scatters_of(two_tasks(60, 20, seed=3)), trace_ratio.TraceRatioSettings(1e-3, 1e-3))
    assert fit.objective_trace[-1] > fit.objective_trace[0] and fit.surrogate_trace[-1] < fit.surrogate_trace[0]


def test_without_penalties_the_unpenalised_solution_stays():
    scatters = scatters_of(two_tasks(30, 250))
    fit = trace_ratio.solve(scatters, trace_ratio.TraceRatioSettings(0.0, 0.0))
    assert fit.n_iter == 0 and fit.converged
    assert fit.objective_trace[0] == pytest.approx(sum(task.gamma for task in scatters))


def test_order_of_the_tasks_does_not_matter():
    scatters, settings = scatters_of(two_tasks()), trace_ratio.TraceRatioSettings(1e-3, 1e-3)
    one, other = trace_ratio.solve(scatters, settings), trace_ratio.solve(scatters[::-1], settings)
    np.testing.assert_allclose(lengths(one), lengths(other), atol=1e-8)


def test_joint_strength_makes_tasks_agree_and_within_strength_does_not():
    scatters = scatters_of(two_tasks(60, 60, seed=2))

    def common_rows(within, joint):
        W = trace_ratio.solve(scatters, trace_ratio.TraceRatioSettings(within, joint)).W
        rows = [np.linalg.norm(w, axis=1) > 0.05 for w in W]
        return (rows[0] & rows[1]).sum() / (rows[0] | rows[1]).sum()

    assert common_rows(0.0, 3e-3) > common_rows(3e-3, 0.0)


def test_rows_of_a_group_share_their_length():
    groups = np.arange(40) // 4
    fit = trace_ratio.solve(scatters_of(two_tasks()), trace_ratio.TraceRatioSettings(1e-2, 1e-2), groups=groups)
    found = lengths(fit, groups)
    np.testing.assert_array_equal(found, np.repeat(found[::4], 4))
    assert found[0] ** 2 == pytest.approx(np.sum(np.hstack(fit.W)[:4] ** 2))
    assert np.argmax(found) < 4  # the features 0 to 3 are one group


def test_random_starts_are_orthonormal_and_descend():
    scatters = scatters_of(two_tasks(30, 250))
    start = trace_ratio.random_start(scatters, np.random.RandomState(0))
    np.testing.assert_allclose(start[1].T @ start[1], np.eye(4), atol=1e-12)
    fit = trace_ratio.solve(scatters, trace_ratio.TraceRatioSettings(1e-3, 1e-3), start)
    assert np.all(np.diff(fit.surrogate_trace) <= 1e-12) and fit.surrogate_trace[-1] < fit.surrogate_trace[0]
