"""The data and the scores of the comparison "which tasks?"."""

import numpy as np
import pytest
from which_tasks import Estimate, file_of, kept, kinds_of, score
from which_tasks_data import KINDS, Kind, draw_data_set, noise_of


@pytest.fixture
def data():
    return draw_data_set(Kind("random", own=True, m=4, p=20, n=30), seed=3)


def test_own_rows_are_observed_in_one_task_each(data):
    assert data.X.shape == (120, 20) and data.Y.shape == (120, 4)
    assert np.array_equal((~np.isnan(data.Y)).sum(axis=0), [30] * 4)
    assert np.all((~np.isnan(data.Y)).sum(axis=1) == 1)


def test_the_signal_has_variance_one_in_every_task_with_features(data):
    spread = (data.Xt @ data.B).std(axis=0)
    assert np.allclose(spread[data.B.any(axis=0)], 1.0)
    assert (data.B.any(axis=1)).sum() == 5


def test_kinds_have_the_patterns_that_they_name():
    subset = draw_data_set(Kind("subset", p=30), 1).B != 0
    assert len(np.unique(subset[subset.any(axis=1)], axis=0)) == 1 and subset.any(axis=0).sum() == 3
    alone = draw_data_set(Kind("mostly null", p=30), 1).B != 0
    assert np.array_equal(alone.sum(axis=1)[alone.any(axis=1)], [1] * 5)
    assert not draw_data_set(KINDS["no signal"], 1).B.any()
    assert KINDS["sizes 20 to 500, random"].sizes()[:: KINDS["sizes 20 to 500, random"].m - 1] == [20, 500]


@pytest.mark.parametrize(("kind", "between"), [("normal", 0.0), ("correlated", 0.7), ("heavy", 0.0)])
def test_noise_has_deviation_one_and_its_correlation(kind, between):
    noise = noise_of(kind, np.random.default_rng(0), 200_000, 2)
    assert np.allclose(noise.std(axis=0), 1.0, atol=0.15 if kind == "heavy" else 0.01)
    assert abs(np.corrcoef(noise.T)[0, 1] - between) < 0.02


def test_scores_of_the_truth_and_of_nothing(data):
    on = data.B != 0
    level = np.full(4, 7.0)  # levels are not scored
    true = score(
        data, Estimate(1.0, data.B, level, on.any(axis=1) * 1.0, on * 1.0, [np.flatnonzero(on.any(axis=1)).tolist()])
    )
    assert true.missed < 1e-12
    assert true.features == (0, 5, 5) and true.entries == (0, on.sum(), on.sum()) and true.sets == (1, 1, 5)
    nothing = score(data, Estimate(1.0, np.zeros((20, 4)), level, np.zeros(20), np.zeros((20, 4)), []))
    assert nothing.missed == pytest.approx(1.0) and nothing.features == (0, 0, 5) and nothing.sets == (0, 0, 0)


def test_wrong_entries_are_counted(data):
    off = np.argwhere(data.B == 0)[0]
    entry = (data.B != 0) * 1.0
    entry[tuple(off)] = 1.0
    found = score(data, Estimate(1.0, data.B, np.zeros(4), entry.max(axis=1), entry))
    assert found.entries == (1, int(entry.sum()), int(entry.sum()) - 1)
    assert found.bins[-1].tolist() == [entry.sum(), entry.sum(), entry.sum() - 1]


def test_an_estimate_is_read_back(tmp_path):
    path = file_of(tmp_path, "mr.mash", "equal, own", 7)
    np.savez_compressed(path, sets="[[1, 2]]", seconds=2.0, coef=np.eye(2), intercept=np.ones(2))
    found = kept(tmp_path, "mr.mash", "equal, own", 7)
    assert found.seconds == 2.0 and found.sets == [[1, 2]] and np.array_equal(found.coef, np.eye(2))
    assert kept(tmp_path, "mr.mash", "equal, own", 8) is None


def test_names_of_kinds():
    assert len(kinds_of("main")) == 12 and kinds_of("equal, own;no signal") == ["equal, own", "no signal"]
