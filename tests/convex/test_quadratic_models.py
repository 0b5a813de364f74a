"""Quadratic models: their minimum, gaps, extrapolation and Newton steps."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from bayesmtfs import TaskData
from bayesmtfs.convex.columns import by_columns
from bayesmtfs.convex.problem import PenaltyRows, Problem
from bayesmtfs.convex.quadratic_models import (
    ColumnModel,
    GramModel,
    extrapolation_weights,
    minimised,
    newton_direction,
    shortest_to_minimum,
)
from bayesmtfs.families import find_family
from bayesmtfs.priors import RowPenalty

M, P = 3, 7


@pytest.fixture
def parts():
    """Data, slopes of sum 0 by task, curvatures, and a point."""
    rng = np.random.default_rng(0)
    data = TaskData.from_long(rng.standard_normal((30, P)) + 1.0, rng.standard_normal(30), np.arange(30) % M)
    slope = rng.standard_normal(30)
    slope -= np.array([slope[a:b].mean() for a, b in data.spans])[data.task]
    return data, slope, rng.uniform(0.1, 0.3, 30), rng.standard_normal((P, M))


def model_of(parts, kind, norm_q=2, groups=None, fit_intercept=True, share=0.1):
    data, slope, curvature, W = parts
    data = TaskData.from_long(data.design, data.y, data.task, groups=groups)
    problem = Problem(data, find_family("squared"), RowPenalty(1.0, norm_q), data.weight, fit_intercept)
    rows = PenaltyRows.of(problem.with_strength(share * problem.row_dual_norms(slope).max()))
    given = replace(data, design=sp.csr_matrix(data.design)) if kind == "sparse columns" else data
    columns = by_columns(given).take(rows.features)
    sums = problem.task_sums(curvature) if fit_intercept else np.full(M, np.inf)
    model = (GramModel if kind == "gram" else ColumnModel)(columns, rows, curvature, sums)
    model.start(rows, W[rows.features], slope)
    return model, data.design[:, rows.features], data


def explicit_change(X, data, slope, curvature, D, fit_intercept):
    """Quadratic part, with the intercepts minimised out one by one."""
    total = 0.0
    for t, (a, b) in enumerate(data.spans):
        move = X[a:b] @ D[:, t]
        g, h = slope[a:b], curvature[a:b]
        if fit_intercept:
            move = move - (g.sum() + h @ move) / h.sum()
        total += g @ move + h @ move**2 / 2
    return total


@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_gram_matrix_of_one_design_serves_all_tasks_of_the_same_curvatures(even, fit_intercept):
    rng = np.random.default_rng(1)
    X, n = rng.standard_normal((20, P)) + 2.0, 20
    wide = TaskData.from_wide(X, rng.standard_normal((n, M)), groups=np.array([0, 0, 1, 1, 2, 2, 2]))
    curvature = np.tile(rng.uniform(0.1, 0.3, n), M) if even else rng.uniform(0.1, 0.3, n * M)
    problem = Problem(wide, find_family("squared"), RowPenalty(1.0, 2.0), wide.weight, fit_intercept)
    rows = PenaltyRows.of(problem)
    sums = curvature.reshape(M, n).sum(axis=1) if fit_intercept else np.full(M, np.inf)
    model = GramModel(by_columns(wide).take(rows.features), rows, curvature, sums)
    for t, h in enumerate(curvature.reshape(M, n)):
        centred = X - (h @ X / h.sum() if fit_intercept else 0.0)
        np.testing.assert_allclose(model.Q[:, t, :P], (centred * h[:, None]).T @ centred, rtol=1e-12)


@pytest.mark.parametrize("kind", ["gram", "columns", "sparse columns"])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("groups", [None, np.array([0, 1, 0, 2, 2, 1, 3])])
def test_sweeps_keep_gradient_and_objective(parts, kind, fit_intercept, groups):
    _, slope, curvature, _ = parts
    model, X, data = model_of(parts, kind, groups=groups, fit_intercept=fit_intercept)
    objectives = [model.rows.value(model.coefficients, model.norms)]
    for _ in range(3):
        model.sweep()
        gradient = model.gradient()
        objectives.append(model.change(gradient) + model.rows.value(model.coefficients, model.norms))
    D = model.coefficients - model.first_W
    assert model.change(gradient) == pytest.approx(explicit_change(X, data, slope, curvature, D, fit_intercept))
    assert (np.diff(objectives) <= 1e-12).all()
    for j, t in [(0, 0), (3, 2)]:
        step = np.zeros_like(D)
        step[j, t] = 1e-6
        ahead, behind = (
            explicit_change(X, data, slope, curvature, D + sign * step, fit_intercept) for sign in (1.0, -1.0)
        )
        assert gradient[j, t] == pytest.approx((ahead - behind) / 2e-6, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("norm_q", [1, 1.5, 2, 3, np.inf])
@pytest.mark.parametrize("kind", ["gram", "columns", "sparse columns"])
def test_gap_bounds_the_suboptimality_until_it_vanishes(parts, norm_q, kind):
    def objective(model):
        # With the norms of W as it is: those that sweeps keep have the tolerance of their root
        return model.change(model.gradient()) + model.rows.value(
            model.coefficients, model.rows.norms(model.coefficients)
        )

    best, *_ = model_of(parts, "gram", norm_q)
    best.minimise(1e-13)
    model, *_ = model_of(parts, kind, norm_q)
    for wanted in (1.0, 1e-2, 1e-5, 1e-9):
        model.minimise(wanted)
        gradient = model.gradient()
        gap = model.gap(gradient, model.change(gradient), model.rows.value(model.coefficients, model.norms))
        assert gap <= wanted
        assert objective(model) - objective(best) <= gap + 1e-12


@pytest.mark.parametrize("norm_q", [1, 2, np.inf])
def test_a_model_by_columns_that_takes_many_sweeps_goes_on_by_gram_matrices(norm_q):
    rng = np.random.default_rng(5)
    common = rng.standard_normal((30, 1))
    data = TaskData.from_long(common + 0.02 * rng.standard_normal((30, P)), rng.standard_normal(30), np.arange(30) % M)
    slope = rng.standard_normal(30)
    slope -= np.array([slope[a:b].mean() for a, b in data.spans])[data.task]
    parts = data, slope, rng.uniform(0.1, 0.3, 30), rng.standard_normal((P, M))
    begun, *_ = model_of(parts, "columns", norm_q, share=0.01)
    found = minimised(begun, 1e-8)
    assert isinstance(found, GramModel)
    other, *_ = model_of(parts, "gram", norm_q, share=0.01)
    other.minimise(1e-8)
    values = [m.rows.value(m.coefficients, m.rows.norms(m.coefficients)) for m in (found, other)]
    moved = begun.change(begun.gradient()) + found.change(found.gradient())
    assert moved + values[0] == pytest.approx(other.change(other.gradient()) + values[1], abs=3e-8)


@pytest.mark.parametrize("norm_q", [1, 1.5, 2, 3, np.inf])
def test_newton_steps_lead_to_the_minimum(parts, norm_q):
    model, *_ = model_of(parts, "gram", norm_q, share=0.01)
    for _ in range(4):
        model.sweep()
    for _ in range(25):
        gradient = model.gradient()
        penalty = model.rows.value(model.coefficients, model.norms)
        model.newton(gradient, model.change(gradient) + penalty)
    gradient = model.gradient()
    gap = model.gap(gradient, model.change(gradient), model.rows.value(model.coefficients, model.norms))
    assert gap < 1e-6


def test_extrapolation_finds_the_limit_of_a_linear_iteration():
    rng = np.random.default_rng(0)
    A = np.diag([0.9, 0.5, -0.3])
    limit, points = np.array([1.0, -2.0, 0.5]), [rng.standard_normal(3)]
    for _ in range(5):
        points.append(limit + A @ (points[-1] - limit))
    iterates = np.array(points)
    np.testing.assert_allclose(extrapolation_weights(iterates) @ iterates[1:], limit, atol=1e-4)
    assert extrapolation_weights(np.ones((6, 3))) is None


@pytest.mark.parametrize("place", [0.0, 0.3, 0.999, 1.0, 2.0])
def test_shortest_way_to_the_minimum(place):
    assert shortest_to_minimum(lambda x: abs(x - place) + x**2 * 0.0) == pytest.approx(min(place, 1.0), abs=1e-3)


@pytest.mark.parametrize("kind", ["gram", "columns", "sparse columns"])
def test_columns_without_variation_stay_at_zero(parts, kind):
    data, slope, curvature, W = parts
    X = data.design.copy()
    X[:, 0] = 0.0
    X[:, 1] = 2.5
    model, *_ = model_of((TaskData.from_long(X, data.y, data.task), slope, curvature, W), kind, np.inf)
    model.minimise(1e-9)
    assert not model.coefficients[:2].any() and model.coefficients[2:].any()


K, M = 5, 3
STARTS = {"alone": np.arange(K + 1), "groups": np.array([0, 2, 3, 5])}


def rows_of(kind, norm_q, sparsity=0.0):
    return PenaltyRows(np.arange(K), STARTS[kind], RowPenalty(0.7, norm_q, sparsity))


def hessian(rows, W, stiff):
    """(K M, K M) Hessian of the penalty, entry by entry."""
    blocks = rows.blocks(M)
    lines = blocks.gather(W)
    curvature = rows.penalty.curvature(lines, stiff)
    dense = np.diag(blocks.scatter(np.broadcast_to(curvature.diagonal, lines.shape)).ravel())
    for r in range(rows.n_rows):
        z = np.zeros_like(lines)
        z[r] = curvature.direction[r]
        dense -= curvature.scale[r] * np.outer(blocks.scatter(z), blocks.scatter(z))
    return dense


@pytest.fixture
def coefficients():
    return np.random.default_rng(0).standard_normal((K, M))


@pytest.mark.parametrize("kind", ["alone", "groups"])
@pytest.mark.parametrize("norm_q", [1, 1.5, 2, 3, np.inf])
def test_direction_solves_the_whole_system(coefficients, kind, norm_q):
    W = coefficients
    rng = np.random.default_rng(1)
    factors = rng.standard_normal((M, 20, K))
    Q = np.einsum("tij,til->jtl", factors, factors)
    rows = rows_of(kind, norm_q)
    gradient = rng.standard_normal((K, M))
    direction = newton_direction(Q, gradient, W, rows)[0]
    system = hessian(rows, W, 1e7 * np.einsum("jtj->jt", Q).max()).reshape(K, M, K, M)
    for t in range(M):
        system[:, t, :, t] += Q[:, t, :]
    penalty_gradient = rows.blocks(M).scatter(rows.penalty.gradient(rows.gather(W)))
    residual = np.einsum("jtls,ls->jt", system, direction) + gradient + penalty_gradient
    np.testing.assert_allclose(residual, 0.0, atol=1e-5 if norm_q == np.inf else 1e-8)


@pytest.mark.parametrize(("norm_q", "sparsity"), [(1, 0.0), (2, 0.5)])
def test_entries_at_a_kink_do_not_move(coefficients, norm_q, sparsity):
    W = coefficients
    W[0, 1] = 0.0
    Q = np.tile(2 * np.eye(K)[:, np.newaxis], (1, M, 1))
    rows = rows_of("alone", norm_q, sparsity)
    direction = newton_direction(Q, np.ones((K, M)), W, rows)[0]
    assert direction[0, 1] == 0.0 and np.count_nonzero(direction) == K * M - 1


def test_largest_entries_move_together_at_infinity(coefficients):
    W = coefficients
    W[2] = [1.0, -1.0, 0.2]
    Q = np.tile(np.eye(K)[:, np.newaxis], (1, M, 1)) * np.array([1.0, 3.0, 2.0])[:, np.newaxis]
    rows = rows_of("alone", np.inf)
    direction = newton_direction(Q, np.random.default_rng(2).standard_normal((K, M)), W, rows)[0]
    assert direction[2, 0] == pytest.approx(-direction[2, 1], rel=1e-5)
