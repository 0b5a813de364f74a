"""Quadratic models: their minimum, gaps, extrapolation and Newton steps."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from bayesmtfs import TaskData, mixed_norm_path
from bayesmtfs.convex import quadratic_models
from bayesmtfs.convex.columns import by_columns
from bayesmtfs.convex.problem import PenaltyRows, Problem
from bayesmtfs.convex.quadratic_models import (
    ColumnModel,
    GramModel,
    extrapolation_weights,
    minimised,
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


def many_columns(seed, n_tasks=6, n_rows=12, n_features=60):
    """Nearly collinear columns, more of them than a task has rows."""
    rng = np.random.default_rng(seed)
    X = np.cumsum(rng.standard_normal((n_tasks * n_rows, n_features)), axis=1)
    task = np.repeat(np.arange(n_tasks), n_rows)
    effects = np.zeros((n_features, n_tasks))
    effects[::15] = rng.standard_normal((4, n_tasks))
    y = np.einsum("ij,ji->i", X, effects[:, task]) + 3.0 * rng.standard_normal(len(X)) + 5.0 * task
    return X, y, task


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"ridge": 0.5},
        {"norm_q": 1},
        {"norm_q": 1, "ridge": 0.5},
        {"norm_q": 3},
        {"norm_q": np.inf},
        {"task_sparsity": 0.3},
    ]
    + [{"groups": np.arange(60) // 3}, {"loss": "logistic"}, {"loss": "logistic", "norm_q": 1}],
)
def test_short_columns_agree_with_the_plain_solver(options, form, monkeypatch):
    X, y, task = many_columns(1)
    if "loss" in options:
        y = np.concatenate([part > np.median(part) for part in np.split(y, 6)]).astype(float)
    steps, newton = [], ColumnModel.newton
    monkeypatch.setattr(ColumnModel, "newton", lambda self, *given: steps.append(newton(self, *given)) or steps[-1])
    for name, value in {"SMALL_DENSE": 0, "SHORT_COLUMNS": 0, "FEW_ROUNDS": 1, "FAST_PRODUCTS": 10**6}.items():
        monkeypatch.setattr(quadratic_models, name, value)
    top = mixed_norm_path(X, y, task, n_penalties=1, **options).penalties
    ours = mixed_norm_path(form(X), y, task, penalties=top / 30, tol=1e-9, solver="working_set", **options)
    plain = {"tol": 1e-7, "solver": "proximal_gradient", "max_iter": 100_000}
    theirs = mixed_norm_path(X, y, task, penalties=top / 30, **plain, **options)
    assert ours.converged.all() and theirs.converged.all() and True in steps
    assert ours.objectives[0] == pytest.approx(theirs.objectives[0], abs=2e-7 * ours.objectives[0] + theirs.gaps[0])
