import numpy as np
import pytest

from bayesmtfs import TaskData
from bayesmtfs.gibbs.chain import ChainSettings, sample_chain
from bayesmtfs.posterior.preparation import NOISE_FLOOR, fits_exactly, with_noise_floor
from bayesmtfs.priors.hyperpriors import hyperprior_for


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
