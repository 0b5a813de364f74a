"""Training rows of every task, and settings chosen in folds of them."""

import numpy as np
import pytest

from bayesmtfs import simulate_tasks
from bayesmtfs.papers.baselines import PooledRegressor
from bayesmtfs.papers.reproduction.common import TaskRows, fit_best, folds_of, split_each_task

TASKS = np.repeat([3, 5, 8], [40, 25, 60])
LABELS = np.arange(125) % 5 == 0


@pytest.mark.parametrize("labels", [None, LABELS])
def test_every_task_has_so_many_training_rows_and_no_row_is_in_both_parts(labels):
    split = split_each_task(TASKS, 20, seed=1, labels=labels)
    assert [int(np.sum(TASKS[split.train] == task)) for task in (3, 5, 8)] == [20, 20, 20]
    assert sorted(np.concatenate([split.train, split.test])) == list(range(125))


def test_classes_keep_their_shares():
    split = split_each_task(TASKS, 20, seed=1, labels=LABELS)
    for task in (3, 5, 8):
        assert LABELS[split.train][TASKS[split.train] == task].sum() == 4


def test_draws_differ_with_the_seed_and_repeat_with_it():
    first, again, other = (split_each_task(TASKS, 5, seed).train for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert set(first) != set(other)


def rows_of_simulation():
    sim = simulate_tasks(n_tasks=3, n_features=4, n_samples=20, n_relevant=4, random_state=0)
    return TaskRows(sim.X, sim.y, sim.tasks)


def explained(model, rows):
    return -float(np.mean((rows.y - model.predict(rows.X, tasks=rows.tasks)) ** 2))


def test_the_better_setting_is_chosen():
    model, rows = PooledRegressor(penalty_strength=1.0), rows_of_simulation()
    folds = folds_of(rows, 3, seed=0, by_class=False)
    found = fit_best(model, {"penalty_strength": [1e6, 1e-3]}, rows, folds, explained)
    assert found.penalty_strength == 1e-3
    assert model.penalty_strength == 1.0 and not hasattr(model, "coef_")


def test_scores_are_of_held_out_training_rows_only():
    rows, seen = rows_of_simulation(), []

    def score(model, held_out):
        seen.append(held_out.y)
        return 0.0

    folds = folds_of(rows, 3, seed=0, by_class=False)
    fit_best(PooledRegressor(), {"penalty_strength": [0.1, 1.0]}, rows, folds, score)
    assert len(seen) == 6
    np.testing.assert_allclose(sorted(np.concatenate(seen[:3])), sorted(rows.y))
    for fold in folds:
        assert sorted(np.concatenate(fold)) == list(range(len(rows.y)))
