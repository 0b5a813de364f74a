"""The problem on the columns in use: all forms of descent, the gap, and the minimum."""

from dataclasses import replace

import numpy as np
import pytest

from bayesmtfs import TaskData
from bayesmtfs.convex import shared_design_rows as rows_module
from bayesmtfs.convex.problem import Problem
from bayesmtfs.convex.shared_design_columns import SharedDesign
from bayesmtfs.convex.shared_design_rows import (
    ColumnDescent,
    ColumnGram,
    Goal,
    GramDescent,
    Progress,
    RowProblem,
    StoredGram,
    WholeDescent,
    best_dual,
    minimise,
)
from bayesmtfs.families import Gaussian
from bayesmtfs.priors import RowPenalty

PENALTIES = [RowPenalty(1.0, q) for q in (1, 1.5, 2, 3, np.inf)] + [RowPenalty(1.0, task_sparsity=0.5)]
EXACT = Goal(gap=1e-11, rough_gap=0.0, work=0.0, max_iter=20_000)


def make_rows(penalty, gram="stored", n=40, k=120, seed=0):
    rng = np.random.default_rng(seed)
    X = np.cumsum(rng.standard_normal((n, k)), axis=1)
    data = TaskData.from_wide(X, X[:, :4] @ rng.standard_normal((4, 3)) + rng.standard_normal((n, 3)))
    design = SharedDesign(Problem(data, Gaussian(), penalty, data.weight))
    columns = design.columns(np.arange(k))
    Q = columns.gram(columns)
    target = columns.correlations(design.Y)
    strength = 0.05 * penalty.dual_norm(target).max()
    strengthened = replace(penalty, strength=1.0, weights=np.full(k, strength))
    kind = StoredGram(Q) if gram == "stored" else ColumnGram(columns)
    return RowProblem(kind, design.Y, target, strengthened, float(np.sum(design.Y**2)) / 2), columns


@pytest.mark.parametrize("penalty", PENALTIES, ids=str)
def test_all_descents_make_the_same_epochs(penalty, monkeypatch):
    found = []
    for gram, small, kind in (
        ("stored", 360, WholeDescent),
        ("stored", 359, GramDescent),
        ("columns", 0, ColumnDescent),
    ):
        monkeypatch.setattr(rows_module, "SMALL", small)
        problem, _ = make_rows(penalty, gram)
        W = np.zeros(problem.target.shape)
        descent = problem.gram.descent(problem, W)
        assert type(descent) is kind
        before = problem.objective_and_gap(W, problem.correlation(W))[0]
        for _ in range(rows_module.ZEROS_EVERY):
            fell = descent.epoch()
            after = problem.objective_and_gap(W, problem.correlation(W))[0]
            assert 0 < fell <= (before - after) * (1 + 1e-9)
            before = after
        np.testing.assert_allclose(descent.correlation(), problem.correlation(W), atol=1e-10)
        found.append(before)
    assert found[0] == pytest.approx(found[1], rel=1e-12)
    assert found[0] == pytest.approx(found[2], rel=1e-2)


def test_grams_are_the_same_matrix():
    stored, columns = (make_rows(PENALTIES[2], gram)[0].gram for gram in ("stored", "columns"))
    V = np.zeros((120, 3))
    V[5:9] = np.random.default_rng(0).standard_normal((4, 3))
    np.testing.assert_allclose(stored.times(V), columns.times(V), atol=1e-12)
    some = np.array([7, 3, 100])
    np.testing.assert_allclose(stored.block(some), columns.block(some), atol=1e-12)


def test_objective_and_gap_are_those_of_the_residuals():
    problem, columns = make_rows(RowPenalty(1.0, 3))
    W = np.random.default_rng(1).standard_normal((120, 3)) * (np.arange(120) % 7 == 0)[:, None]
    objective, gap = problem.objective_and_gap(W, problem.correlation(W))
    R = problem.Y - columns.predict(W)
    value = np.sum(R**2) / 2 + problem.penalty.value(W)
    assert objective == pytest.approx(value, rel=1e-12)
    largest = problem.penalty.dual_norm(columns.correlations(R)).max()
    scales = np.linspace(0, 1 / largest, 100_001)
    duals = scales * np.sum(R * problem.Y) - scales**2 / 2 * np.sum(R**2)
    assert gap == pytest.approx(value - duals.max(), rel=1e-8)


def test_best_dual_of_nothing():
    assert best_dual(0.0, 0.0, 0.0) == 0
    assert best_dual(-1.0, 1.0, 0.5) == 0
    assert best_dual(4.0, 4.0, 0.0) == 2


@pytest.mark.parametrize(("gram", "small"), [("stored", 5000), ("stored", 0), ("columns", 0)])
@pytest.mark.parametrize("penalty", PENALTIES, ids=str)
def test_minimum(penalty, gram, small, monkeypatch):
    monkeypatch.setattr(rows_module, "SMALL", small)
    problem, _ = make_rows(penalty, gram)
    goal = EXACT._replace(gap=1e-11 * problem.null_objective)
    W, n_iter = minimise(problem, np.zeros(problem.target.shape), goal)
    assert problem.objective_and_gap(W, problem.correlation(W))[1] <= goal.gap
    assert n_iter > 0 and not W.any(axis=1).all()
    distance = problem.penalty.subdifferential_distance(W, -problem.correlation(W))
    assert distance.max() <= 1e-4 * problem.penalty.weights.max()


def test_coordinate_descent_alone_reaches_it_too(monkeypatch):
    monkeypatch.setattr(rows_module, "MAX_FACTORS", 0)
    problem, _ = make_rows(RowPenalty(1.0, 2), "columns")
    goal = EXACT._replace(gap=1e-4 * problem.null_objective)
    W, _ = minimise(problem, np.zeros(problem.target.shape), goal)
    assert problem.objective_and_gap(W, problem.correlation(W))[1] <= goal.gap


def test_failed_steps_are_not_taken(monkeypatch):
    problem, _ = make_rows(RowPenalty(1.0, 2))
    monkeypatch.setattr(rows_module, "proximal_point", lambda gram, penalty, W, *rest: (W + 1.0, 1))
    goal = EXACT._replace(gap=1e-6 * problem.null_objective)
    W, _ = minimise(problem, np.zeros(problem.target.shape), goal)
    assert not W.any(axis=1).all()


def test_goal_is_rough_once_the_work_is_done():
    goal = Goal(gap=1.0, rough_gap=10.0, work=100.0, max_iter=5)
    assert goal.reached(1.0, 0.0) and goal.reached(10.0, 100.0)
    assert not goal.reached(10.0, 99.0) and not goal.reached(11.0, 1e9)
    spent = Progress()
    spent.add(3, 5.0)
    assert (spent.n_iter, spent.work) == (3, 15.0)


def test_no_more_iterations_than_allowed():
    problem, _ = make_rows(RowPenalty(1.0, 2))
    assert minimise(problem, np.zeros(problem.target.shape), EXACT._replace(max_iter=2))[1] == 2
