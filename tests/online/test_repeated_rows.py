"""Rows that are learned several times: what is kept apart, and how it is judged."""

import numpy as np
import scipy.sparse as sp

from bayesmtfs.families import find_family
from bayesmtfs.online.dual_averaging import observations
from bayesmtfs.online.learner import Coefficients
from bayesmtfs.online.repeated_rows import RepeatedRows

COUNTS = np.array([3, 11, 25])


def rows(form=np.asarray):
    rng = np.random.default_rng(0)
    X, task = form(rng.standard_normal((39, 4))), np.repeat(np.arange(3), COUNTS)
    seen = observations(X, rng.standard_normal(39), task, rng.uniform(0.5, 2.0, 39))
    return RepeatedRows(X, seen, np.arange(39), np.concatenate([[0], np.cumsum(COUNTS)]))


def test_a_fifth_of_every_task_is_kept_apart():
    rest, apart = rows().split(seed=7)
    assert np.diff(rest.offsets).tolist() == [3, 9, 20] and np.diff(apart.offsets).tolist() == [0, 2, 5]
    assert sorted([*rest.places, *apart.places]) == list(range(39))
    for part in (rest, apart):
        tasks = np.split(part.seen.task[part.places], part.offsets[1:-1])
        assert [set(task) for task in tasks] == [{k} if len(task) else set() for k, task in enumerate(tasks)]
    assert sorted(rows().split(seed=8)[1].places) != sorted(apart.places)
    np.testing.assert_allclose(rest.sizes, np.bincount(rest.seen.task[rest.places], rest.seen.weight[rest.places]))


def test_every_pass_has_every_row_once_and_a_seed_shuffles():
    first, second, third = rows().passes([None, 3, 4])
    for schedule in (first, second, third):
        assert sorted(schedule.order) == list(range(39)) and schedule.starts[-1] == 39
    assert first.order[:3].tolist() == [0, 3, 14] and second.order.tolist() != third.order.tolist()


def test_losses_are_those_of_the_family():
    for form in (np.asarray, sp.csr_matrix):
        _, apart = rows(form).split(seed=7)
        rng = np.random.default_rng(1)
        W, b, constants = rng.standard_normal((4, 3)), rng.standard_normal(3), rng.standard_normal(3)
        found = apart.losses(find_family("squared"), Coefficients(W, b), constants)
        X, task = rows().design[apart.places], apart.seen.task[apart.places]
        y, weight = apart.seen.y[apart.places], apart.seen.weight[apart.places]
        residual = y - np.sum(X * W[:, task].T, axis=1) - b[task]
        wanted = [0.5 * weight @ residual**2, 0.5 * weight @ (y - constants[task]) ** 2, weight.sum()]
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
