from dataclasses import replace

import numpy as np
import pytest

from bayesmtfs import TaskData, simulate_tasks
from bayesmtfs.families import Gaussian, Hinge, Logistic
from bayesmtfs.gibbs.chain import ChainSettings, sample_chain
from bayesmtfs.posterior.preparation import NOISE_FLOOR, chosen_features, fits_exactly, screen, with_noise_floor
from bayesmtfs.priors.hyperpriors import hyperprior_for


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


@pytest.fixture
def exact():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    y = X @ [1.0, -1.0, 0.5]
    return TaskData.from_long(X, y / y.std(), tasks=np.arange(40) % 2)


def test_exact_fits_are_seen(exact):
    assert fits_exactly(exact, True)
    noisy = exact.with_target(exact.y + 0.1 * np.random.default_rng(1).normal(size=40))
    assert not fits_exactly(noisy, True)
    assert fits_exactly(TaskData.from_long(np.eye(5), np.arange(5.0)), False)


def test_noise_stays_above_its_floor(exact):
    guarded = with_noise_floor(exact)
    draws = sample_chain(guarded, hyperprior_for(exact), ChainSettings(300, 300, 0, 2.0))
    assert 0.5 * NOISE_FLOOR < np.median(draws.noise) < 3 * NOISE_FLOOR
    assert np.isfinite(draws.row_scales).all()


def test_the_further_rows_weigh_next_to_nothing(exact):
    guarded = with_noise_floor(exact)
    assert guarded.n_observations == 44 and guarded.offsets.tolist() == [0, 22, 44]
    for t in range(2):
        start, stop = guarded.spans[t]
        np.testing.assert_array_equal(guarded.X[start : stop - 2], exact.task_designs[t])
        assert guarded.weight[stop - 2 : stop].sum() == pytest.approx(20 * NOISE_FLOOR**2)
