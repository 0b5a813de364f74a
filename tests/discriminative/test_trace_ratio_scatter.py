"""Scatter matrices against their definitions, trace ratios against a search, eigenvectors against dense ones."""

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp

from bayesmtfs.discriminative.trace_ratio import class_indicators, scatter, smallest_trace_ratio


def example(n, p, n_classes=3, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % n_classes
    X = rng.standard_normal((n, p)) * rng.uniform(0.5, 2.0, p) + 5.0
    X[:, :4] += rng.standard_normal((n_classes, 4))[labels]
    return X, labels, rng.uniform(0.5, 2.0, n)


def written_out(X, labels, weight):
    """E and B as sums over rows, divided by the trace of B."""
    centre = np.average(X, axis=0, weights=weight)
    B = sum(w * np.outer(x - centre, x - centre) for x, w in zip(X, weight, strict=True))
    E = np.zeros_like(B)
    for label in np.unique(labels):
        own = labels == label
        mean = np.average(X[own], axis=0, weights=weight[own])
        E += sum(w * np.outer(x - mean, x - mean) for x, w in zip(X[own], weight[own], strict=True))
    return E / np.trace(B), B / np.trace(B)


@pytest.mark.parametrize(("n", "p"), [(40, 6), (12, 30)])
def test_traces_are_those_of_within_class_and_total_scatter(n, p):
    X, labels, weight = example(n, p)
    E, B = written_out(X, labels, weight)
    task = scatter(X, labels, weight)
    W = np.linalg.qr(np.random.default_rng(1).standard_normal((p, 3)))[0]
    assert task.ratio(W) == pytest.approx(np.trace(W.T @ E @ W) / np.trace(W.T @ B @ W), rel=1e-10)
    assert task.difference(W) == pytest.approx(np.trace(W.T @ (E - task.gamma * B) @ W), abs=1e-12)


def test_indicators_are_orthonormal_under_any_weights():
    F = class_indicators(np.array(list("abcab")), np.array([1.0, 2.0, 0.5, 1.5, 1.0]))
    np.testing.assert_allclose(F.T @ F, np.eye(3), atol=1e-15)


def test_smallest_ratio_solves_its_optimality_condition_and_beats_any_other():
    X, labels, weight = example(40, 6)
    E, B = written_out(X, labels, weight)
    task = scatter(X, labels, weight)
    # At the minimum the c smallest eigenvalues of E - gamma B sum to 0 (Jia, Nie and Zhang 2009)
    assert scipy.linalg.eigvalsh(E - task.gamma * B)[:3].sum() == pytest.approx(0.0, abs=1e-12)
    rng = np.random.default_rng(2)
    others = [np.linalg.qr(rng.standard_normal((6, 3)))[0] for _ in range(200)]
    assert task.gamma < min(np.trace(W.T @ E @ W) / np.trace(W.T @ B @ W) for W in others)
    assert task.ratio(task.unpenalised[1]) == pytest.approx(task.gamma, abs=1e-12)


def test_gamma_is_positive_on_the_range_although_the_literal_minimum_is_zero():
    X, labels, weight = example(12, 30)
    E, B = written_out(X, labels, weight)
    null_of_E = scipy.linalg.null_space(E)[:, :3]
    assert np.trace(null_of_E.T @ E @ null_of_E) == pytest.approx(0.0, abs=1e-12)
    task = scatter(X, labels, weight)
    assert task.gamma > 1e-3
    assert scipy.linalg.eigvalsh(E - task.gamma * B)[1] < -1e-4  # two discriminative directions are left


def test_shrinkage_adds_the_identity_to_both_scatters():
    X, labels, weight = example(40, 6)
    E, B = (matrix + 0.5 / 6 * np.eye(6) for matrix in written_out(X, labels, weight))
    task = scatter(X, labels, weight, shrinkage=0.5, all_columns=False)
    assert scipy.linalg.eigvalsh(E - task.gamma * B)[:3].sum() == pytest.approx(0.0, abs=1e-12)
    assert scatter(X, labels, weight).gamma < task.gamma < 1
    assert task.unpenalised[1].shape == (6, 2)


@pytest.mark.parametrize("scale", [1e-4, 1e-2, 1.0])
def test_eigenvectors_are_those_of_the_dense_matrix(scale):
    X, labels, weight = example(30, 400)
    E, B = written_out(X, labels, weight)
    task = scatter(X, labels, weight)
    diagonal = scale * np.random.default_rng(3).uniform(0.5, 50.0, 400)
    dense = scipy.linalg.eigh(E - task.gamma * B + np.diag(diagonal))[1][:, :3]
    found = task.smallest_eigenvectors(diagonal, task.unpenalised[1])
    np.testing.assert_allclose(found @ found.T, dense @ dense.T, atol=1e-8)


def test_sparse_rows_give_the_same_scatter():
    X, labels, weight = example(20, 50)
    X[X < 5.5] = 0.0
    dense, sparse = scatter(X, labels, weight), scatter(sp.csr_matrix(X), labels, weight)
    np.testing.assert_array_equal(dense.rows, sparse.rows)


def test_constant_features_have_no_scatter():
    task = scatter(np.full((6, 4), 0.1), np.arange(6) % 2, np.ones(6))
    assert task.n_columns == 0 and task.gamma == 0.0 and np.isnan(task.ratio(np.zeros((4, 0))))
    assert smallest_trace_ratio(np.ones(3), np.zeros((2, 3)), 0)[1].shape == (3, 0)
