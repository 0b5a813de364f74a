"""Box, exact intercepts and settled tasks of the hinge and the absolute loss."""

import numpy as np
import pytest

from bayesmtfs import TaskData
from bayesmtfs.convex.problem import Problem
from bayesmtfs.convex.saddle_point import best_intercept, without_settled_tasks
from bayesmtfs.families import find_family, total
from bayesmtfs.priors import RowPenalty


def make_problem(loss, y=None, fit_intercept=True, weight=None):
    rng = np.random.default_rng(0)
    tasks = np.repeat(["a", "b", "c"], [9, 6, 1])
    y = rng.standard_normal(16) if y is None else np.asarray(y, dtype=np.float64)
    y = np.where(y > 0, 1.0, -1.0) if loss == "hinge" else y
    data = TaskData.from_long(rng.standard_normal((16, 4)), y, tasks, sample_weight=weight)
    return Problem(data, find_family(loss), RowPenalty(0.1, 2), data.loss_weights("mean"), fit_intercept)


@pytest.mark.parametrize("loss", ["hinge", "absolute"])
def test_box_is_where_the_conjugate_is_finite(loss):
    problem = make_problem(loss)
    _, lower, upper = problem.kinks
    y, c = problem.data.y, problem.weight
    for theta in (lower, upper, 0.3 * lower + 0.7 * upper):
        assert np.isfinite(problem.family.conjugate(y, theta / c)).all()
    for theta in (lower - 1e-6, upper + 1e-6):
        assert np.isinf(problem.family.conjugate(y, theta / c)).all()


def test_a_smooth_loss_has_no_box():
    problem = make_problem("absolute")
    smooth = Problem(problem.data, find_family("squared"), problem.penalty, problem.weight)
    with pytest.raises(ValueError, match="needs kinks; Gaussian offers"):
        smooth.kinks


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loss", ["hinge", "absolute"])
def test_intercept_is_the_best_of_all_kinks(loss, weighted):
    rng = np.random.default_rng(1)
    problem = make_problem(loss, weight=rng.uniform(0.1, 3.0, 16) if weighted else None)
    y, c, task = problem.data.y, problem.weight, problem.data.task
    predictor = np.round(2.0 * rng.standard_normal(16), 1)
    found = best_intercept(problem, predictor)
    for t in range(3):
        own = task == t
        losses = [total(problem.family, y[own], predictor[own] + kink, c[own]) for kink in (y - predictor)[own]]
        at_found = total(problem.family, y[own], predictor[own] + found[t], c[own])
        assert at_found == pytest.approx(min(losses), rel=1e-12, abs=1e-15)


def test_without_an_intercept_it_is_zero():
    problem = make_problem("absolute", fit_intercept=False)
    assert (best_intercept(problem, np.zeros(16)) == 0).all()


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("loss", ["hinge", "absolute"])
def test_null_dual_is_optimal_for_the_loss_alone(loss, fit_intercept):
    problem = make_problem(loss, fit_intercept=fit_intercept)
    theta = problem.null_dual
    _, lower, upper = problem.kinks
    assert (theta >= lower).all() and (theta <= upper).all()
    assert -theta @ problem.data.y == pytest.approx(problem.null_objective, rel=1e-12)
    if fit_intercept:
        np.testing.assert_allclose(problem.task_sums(theta), 0.0, atol=1e-12)


@pytest.mark.parametrize("shared", [False, True])
def test_tasks_with_one_class_are_left_out(shared):
    problem = make_problem("hinge", y=np.r_[np.ones(4), -np.ones(5), np.ones(6), -1.0])
    if shared:
        Y = np.array([[1.0, 1.0, -1.0], [-1.0, 1.0, np.nan], [1.0, 1.0, -1.0]])
        data = TaskData.from_wide(np.eye(3), Y)
        problem = Problem(data, find_family("hinge"), RowPenalty(0.1, 2), data.loss_weights("mean"))
    left, settled = without_settled_tasks(problem)
    assert settled.tolist() == [False, True, True]
    start, stop = problem.data.spans[0]
    assert left.data.n_tasks == 1 and left.data.y.tolist() == problem.data.y[start:stop].tolist()
    W = np.random.default_rng(2).standard_normal((problem.data.n_features, 3))
    everything = problem.data.linear_predictor(W, np.zeros(3))
    np.testing.assert_allclose(left.data.linear_predictor(W[:, :1], np.zeros(1)), everything[start:stop])


def test_without_an_intercept_no_task_is_settled():
    problem = make_problem("hinge", y=np.ones(16), fit_intercept=False)
    left, settled = without_settled_tasks(problem)
    assert left is problem and not settled.any()
