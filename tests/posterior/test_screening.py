from dataclasses import replace

import numpy as np
import pytest

from bayesmtfs import TaskData, simulate_tasks
from bayesmtfs.families import Gaussian, Hinge, Logistic
from bayesmtfs.posterior.preparation import chosen_features, screen


@pytest.fixture(scope="module")
def wide_problem():
    return simulate_tasks(n_tasks=3, n_features=400, n_samples=40, n_relevant=5, snr=10.0, random_state=0)


@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_relevant_features_survive_whatever_their_units(wide_problem, scale):
    factor = np.where(np.arange(400) % 2, 1.0, scale)
    data = TaskData.from_long(wide_problem.X * factor, wide_problem.y, tasks=wide_problem.tasks)
    kept = screen(data, Gaussian(), True, 60)
    assert kept.sum() == 60 and kept[wide_problem.support].all()


def test_nothing_is_left_out_without_need(wide_problem):
    data = TaskData.from_long(wide_problem.X, wide_problem.y, tasks=wide_problem.tasks)
    assert screen(data, Gaussian(), True, 400).all() and screen(data, Gaussian(), True, None).all()


def test_constant_features_go_first():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=20), np.ones(20)])
    data = TaskData.from_long(X, X[:, 0])
    np.testing.assert_array_equal(screen(data, Gaussian(), True, None), [True, False])
    # Without an intercept a constant is a feature like any other
    assert screen(data, Gaussian(), False, None).all()


def test_groups_stay_whole(wide_problem):
    groups = np.arange(400) // 4
    data = TaskData.from_long(wide_problem.X, wide_problem.y, tasks=wide_problem.tasks, groups=groups)
    kept = screen(data, Gaussian(), True, 50)
    assert kept.sum() == 48
    assert set(np.bincount(groups, weights=kept)) == {0.0, 4.0}


def test_labels_are_screened_too():
    sim = simulate_tasks(n_tasks=2, n_features=200, n_samples=100, n_relevant=3, kind="classification", random_state=0)
    data = TaskData.from_long(sim.X, np.where(sim.y == sim.y.max(), 1.0, -1.0), tasks=sim.tasks)
    for family in (Logistic(), Hinge()):
        assert screen(data, family, True, 40)[sim.support].all()


def test_chosen_features_keep_names_groups_and_presence(lacking):
    data, present = lacking
    kept = np.array([False, True, True])
    chosen = chosen_features(replace(data, present=present, groups=np.array([0, 1, 1])), kept)
    assert chosen.feature_names.tolist() == ["x1", "x2"] and chosen.groups.tolist() == [1, 1]
    np.testing.assert_array_equal(chosen.present, present[kept])
    np.testing.assert_array_equal(chosen.X, data.X[:, kept])
    assert chosen_features(data, np.ones(3, dtype=bool)) is data
