"""Errors of folds and the choice that follows from them."""

import numpy as np
import pytest

from bayesmtfs import TaskData
from bayesmtfs.estimators.cross_validation import choose, mean_task_error, standard_error

ERRORS = {
    "squared": lambda y, eta: (y - eta) ** 2,
    "absolute": lambda y, eta: np.abs(y - eta),
    "logistic": lambda y, eta: 2 * np.log(1 + np.exp(-y * eta)),
    "hinge": lambda y, eta: np.maximum(1 - y * eta, 0),
}


@pytest.mark.parametrize("loss", ERRORS)
def test_error_is_the_mean_over_tasks_of_weighted_means(loss):
    rng = np.random.default_rng(0)
    tasks = np.repeat([0, 1, 2], [3, 10, 5])
    y, eta, weight = np.sign(rng.standard_normal(18)), rng.standard_normal(18), rng.uniform(0.5, 2, 18)
    data = TaskData.from_long(np.ones((18, 1)), y, tasks, sample_weight=weight)
    by_task = [np.average(ERRORS[loss](y, eta)[tasks == t], weights=weight[tasks == t]) for t in range(3)]
    assert mean_task_error(data, loss, eta) == pytest.approx(np.mean(by_task), rel=1e-12)


def test_standard_error():
    assert standard_error(np.array([[1.0, 2.0, 6.0]])) == pytest.approx(np.sqrt(7 / 3))
    assert standard_error(np.array([[1.0]])).tolist() == [0.0]


def test_ties_go_to_the_largest_penalty_and_missing_entries_to_nobody():
    penalties = np.array([[1.0, 3.0, 2.0], [5.0, 4.0, np.nan]])
    score = np.array([[0.5, 0.5, 0.7], [0.6, 0.6, np.nan]])
    assert choose(penalties, score) == (0, 1)
    assert choose(penalties, np.full((2, 3), np.inf)) == (1, 0)


@pytest.mark.parametrize("seed", range(20))
def test_one_standard_error_never_takes_a_smaller_penalty(seed):
    rng = np.random.default_rng(seed)
    penalties, score, margin = rng.random((3, 8)), rng.random((3, 8)), 0.3 * rng.random((3, 8))
    least, one_se = choose(penalties, score), choose(penalties, score, margin)
    assert score[least] == score.min() and one_se[0] == least[0]
    assert penalties[one_se] >= penalties[least]
    allowed = score[least[0]] <= score[least] + margin[least]
    assert penalties[one_se] == penalties[least[0]][allowed].max()
