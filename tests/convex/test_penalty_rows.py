"""Rows of a penalty: all of them and some of them, alone and in groups, against the problem's own blocks."""

import numpy as np
import pytest

from bayesmtfs import TaskData
from bayesmtfs.convex.penalty_rows import PenaltyRows
from bayesmtfs.convex.problem import Problem
from bayesmtfs.families import find_family
from bayesmtfs.priors import RowPenalty

GROUPS = np.array([7, 3, 7, 3, 5, 7])


@pytest.fixture(params=[None, GROUPS], ids=["alone", "groups"])
def problem(request):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((12, 6)), rng.standard_normal(12)
    data = TaskData.from_long(X, y, np.arange(12) % 2, groups=request.param)
    n_rows = 6 if request.param is None else 3
    return Problem(data, find_family("squared"), RowPenalty(0.7, 2, np.linspace(0.1, 0.9, n_rows)), data.weight)


def test_all_rows_are_those_of_the_problem(problem):
    W = np.random.default_rng(1).standard_normal((6, 2))
    rows = PenaltyRows.of(problem)
    own = W[rows.features]
    blocks = problem.blocks.gather(W)
    assert rows.value(own, rows.norms(own)) == pytest.approx(problem.penalty.value(blocks))
    np.testing.assert_allclose(rows.dual_norms(own), problem.penalty.dual_norm(blocks))
    np.testing.assert_allclose(rows.norms(own), np.linalg.norm(blocks, axis=1))


def test_some_rows_keep_their_features_and_penalty(problem):
    W = np.random.default_rng(2).standard_normal((6, 2))
    rows = PenaltyRows.of(problem)
    chosen = np.array([0, 2])
    some = rows.take(chosen)
    np.testing.assert_allclose(some.dual_norms(W[some.features]), rows.dual_norms(W[rows.features])[chosen])
    starts, strengths, norm_q, sparsity, work = some.step_arguments(n_tasks=2)
    assert starts[-1] == len(some.features) and norm_q == 2.0 and work == ()
    np.testing.assert_allclose(sparsity, rows.sparsity[chosen])
    np.testing.assert_allclose(strengths, 0.7)


@pytest.mark.parametrize("norm_q", [1.0, 3.0, np.inf])
def test_row_weights_follow_their_rows(norm_q):
    data = TaskData.from_long(np.eye(4), np.ones(4))
    penalty = RowPenalty(2.0, norm_q, weights=np.array([1.0, 2.0, 3.0, 4.0]))
    rows = PenaltyRows.of(Problem(data, find_family("squared"), penalty, data.weight)).take(np.array([1, 3]))
    np.testing.assert_allclose(rows.strengths, [4.0, 8.0])
    W = np.array([[1.0], [-1.0]])
    assert rows.value(W, rows.norms(W)) == pytest.approx(12.0)
    assert len(rows.step_arguments(1)[-1]) == {1.0: 0, 3.0: 3, np.inf: 1}[norm_q]
