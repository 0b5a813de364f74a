"""q is recovered from data, with intervals that mean what they say; the joint mode of W and q does not recover it."""

import numpy as np
import pytest

from bayesmtfs import simulate_tasks
from bayesmtfs.estimators.em import JeffreysRegressor

TRUTHS = [1.2, 2.0, 4.0, 10.0]
HARD = {"n_samples": 60, "n_features": 27, "n_relevant": 9}
EASY = {"n_samples": 120, "n_features": 60, "n_relevant": 20}


def learned(truth, n_tasks, sizes, method, n_sets):
    """Estimates and whether their 90% intervals cover the truth."""
    estimates, covered = [], []
    for seed in range(n_sets):
        sim = simulate_tasks(n_tasks=n_tasks, norm_q=truth, snr=5.0, random_state=1000 + seed, **sizes)
        model = JeffreysRegressor(norm_q="learn", q_learning=method, random_state=seed)
        model.fit(sim.X, sim.y, tasks=sim.tasks)
        low, high = model.norm_q_interval_
        estimates.append(model.norm_q_)
        covered.append(low <= truth <= high)
    return np.array(estimates), np.array(covered)


@pytest.mark.parametrize("truth", TRUTHS)
def test_twenty_tasks_recover_q(truth):
    estimates, covered = learned(truth, 20, HARD, "two_stage", 10)
    assert np.median(estimates) == pytest.approx(truth, rel=0.2)
    assert covered.mean() >= 0.8


@pytest.mark.slow
@pytest.mark.parametrize("method", ["two_stage", "integrated"])
@pytest.mark.parametrize("sizes", [EASY, HARD], ids=["p 60", "p 27"])
@pytest.mark.parametrize("n_tasks", [20, 139])
@pytest.mark.parametrize("truth", TRUTHS)
def test_q_is_recovered_within_fifteen_percent(truth, n_tasks, sizes, method):
    estimates, covered = learned(truth, n_tasks, sizes, method, 20)
    assert np.median(estimates) == pytest.approx(truth, rel=0.15)
    assert covered.mean() >= 0.8


def test_the_joint_mode_runs_away_from_the_truth():
    """W takes the shape that q imposes (why Zhang, Yeung and Xu's joint EM does not recover q)."""
    joint, _ = learned(4.0, 20, HARD, "ecme", 4)
    staged, _ = learned(4.0, 20, HARD, "two_stage", 4)
    assert np.median(np.abs(np.log(joint / 4.0))) > 2 * np.median(np.abs(np.log(staged / 4.0)))


def learned_at(truth, n_tasks, noise, seed):
    """q and its interval from 20 active of 60 features, coefficients of unit scale and 120 rows per task."""
    rng = np.random.default_rng(seed)
    W = np.zeros((60, n_tasks))
    W[:20] = rng.choice([-1.0, 1.0], (20, n_tasks)) * rng.gamma(1 / truth, size=(20, n_tasks)) ** (1 / truth)
    X, task = rng.standard_normal((120 * n_tasks, 60)), np.repeat(np.arange(n_tasks), 120)
    y = np.einsum("ij,ji->i", X, W[:, task]) + noise * rng.standard_normal(len(task))
    model = JeffreysRegressor(norm_q="learn").fit(X, y, tasks=task)
    return model.norm_q_, model.norm_q_interval_


def test_heavy_tails_in_many_tasks_recover_q():
    """The largest of 139 coefficients is far outside what a flat prior of the same size allows: no NaN."""
    found, (low, high) = learned_at(1.2, 139, 0.5, 0)
    assert found == pytest.approx(1.2, rel=0.1) and low <= 1.2 <= high and high - low < 0.2


@pytest.mark.parametrize(
    ("n_tasks", "noises"),
    [(3, (0.05, 3.0)), (20, (0.5,))]
    + [pytest.param(m, (0.05, 0.5, 3.0), marks=pytest.mark.slow) for m in (3, 20, 139, 500)],
)
@pytest.mark.filterwarnings("ignore:q is not identified")
def test_any_shape_and_noise_gives_an_interval_that_covers(n_tasks, noises):
    truths = [1.05, 1.2, 2.0, 4.0, 10.0, 30.0]
    found = [(truth, learned_at(truth, n_tasks, noise, 7)) for truth in truths for noise in noises]
    assert all(1.0 <= low <= q <= high <= 50.0 for _, (q, (low, high)) in found)
    assert np.mean([low <= truth <= high for truth, (_, (low, high)) in found]) >= 0.7
