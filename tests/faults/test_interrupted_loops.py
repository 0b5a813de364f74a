"""Ctrl-C in work of many pieces: the pieces that are whole come back, as if no more had been asked for.

Ctrl-C is a real signal here, sent at a given report of a progress bar. A fit inside may catch it and return what it has:
the loop around it has to stop all the same.
"""

import signal

import joblib
import numpy as np
import pandas as pd
import pytest

import bayesmtfs as bm
from bayesmtfs import compare, moments
from bayesmtfs.progress import Progress
from bayesmtfs.selection import benchmark_selectors, projection_selection, stability
from bayesmtfs.types import DataWarning, SelectionWarning

SIM = bm.simulate_tasks(n_tasks=3, n_features=10, n_relevant=3, n_samples=30, random_state=0)
DATA = (SIM.X, SIM.y, SIM.tasks)
ROWS = np.arange(len(SIM.y))
FOLDS = [(ROWS[ROWS % 5 != k], ROWS[ROWS % 5 == k]) for k in range(5)]
FRAME = pd.DataFrame(SIM.X).add_prefix("x").assign(y=SIM.y, user=SIM.tasks)
BATCHES = [FRAME.iloc[start : start + 10] for start in range(0, 90, 10)]
SELECTORS = {"penalised": bm.MixedNormClassifier(penalty_strength=0.05), "random": None}
METHODS = [bm.MixedNormRegressor(penalty_strength=0.1), bm.JeffreysRegressor(), bm.GeneralizedNormalRegressor()]


@pytest.fixture
def press(monkeypatch):
    """Send Ctrl-C at a given report of the progress bar with this description, and at no other."""
    update = Progress.update

    def press_at(description, at):
        reports = []

        def update_and_press(bar, fraction, note="", parts=None):
            reports.append(bar.description)
            if bar.description == description and reports.count(description) == at:
                signal.raise_signal(signal.SIGINT)
            update(bar, fraction, note)

        monkeypatch.setattr(Progress, "update", update_and_press)
        return reports

    return press_at


def cross_validated(n_folds=5, n_jobs=None):
    model = bm.MixedNormRegressorCV(norm_q=[1, 2], n_penalties=8, cv=FOLDS[:n_folds], n_jobs=n_jobs).fit(*DATA)
    return np.append(model.cv_results_["mean_error"], model.penalty_strength_)


def stable(n_pairs=6, n_jobs=None):
    found = stability(bm.MixedNormRegressor(), *DATA, n_pairs=n_pairs, n_jobs=n_jobs, random_state=0)
    return np.append(found.task_frequency, found.n_pairs)


def compared(n_methods=3):
    return [fit.error for fit in compare(METHODS[:n_methods], *DATA, cv=3).fits]


def benchmarked(n_splits=5):
    y = SIM.y > 0
    found = benchmark_selectors(SELECTORS, SIM.X, y, SIM.tasks, k=[2], splits=FOLDS[:n_splits])
    return found.to_frame(per_split=True).drop(columns="seconds")


def summed(n_batches=9):
    return moments.from_batches(BATCHES[:n_batches], "y", "user").scatters


def equal(found, expected):
    if isinstance(found, pd.DataFrame):
        pd.testing.assert_frame_equal(found, expected)
    else:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("work", "description", "at", "n_whole", "message"),
    [
        (cross_validated, "cross-validation", 7, 3, "after 3 of 5 folds"),  # two norms: six paths are three folds
        (stable, "stability selection", 5, 2, "after 2 of 6 pairs"),
        (compared, "comparing", 10, 2, "after 2 of 3 estimators"),  # four fits per method
        (benchmarked, "benchmarking selectors", 5, 2, "after 2 of 5 splits"),  # two selectors per split
    ],
)
def test_whole_pieces_come_back(work, description, at, n_whole, message, press):
    expected = work(n_whole)
    press(description, at)
    with pytest.warns(SelectionWarning, match=message):
        found = work()
    equal(found, expected)


@pytest.mark.filterwarnings("ignore::bayesmtfs.types.ConvergenceWarning")
@pytest.mark.parametrize(
    ("work", "bar", "n_whole"),
    [(stable, "working set", 2), (benchmarked, "working set", 2), (compared, "majorisation-minimisation", 2)],
)
def test_a_fit_that_catches_ctrl_c_ends_the_loop_too(work, bar, n_whole, press):
    """The penalised fit inside returns what it has; it is not counted, and no further one is begun."""
    expected = work(n_whole)
    counted = press(bar, at=0)
    work(n_whole)
    fits = counted.count(bar)
    reports = press(bar, at=fits + 1)
    with pytest.warns(SelectionWarning, match=f"interrupted after {n_whole} of"):
        found = work()
    assert reports.count(bar) == fits + 1, "the loop went on after Ctrl-C"
    equal(found, expected)


@pytest.mark.filterwarnings("ignore:.* tasks which:UserWarning")  # joblib's, of what it did not finish
@pytest.mark.parametrize(
    ("work", "description"), [(cross_validated, "cross-validation"), (stable, "stability selection")]
)
def test_with_jobs_in_threads(work, description, press):
    expected = work(2)
    press(description, at=4)
    with joblib.parallel_config("threading"), pytest.warns(SelectionWarning, match="interrupted after"):
        found = work(n_jobs=2)
    equal(found.shape, expected.shape)


@pytest.mark.parametrize(
    ("work", "description"),
    [
        (cross_validated, "cross-validation"),
        (cross_validated, "path"),
        (stable, "stability selection"),
        (compared, "comparing"),
        (benchmarked, "benchmarking selectors"),
        (lambda: bm.mixed_norm_path(*DATA), "path"),
    ],
)
def test_without_one_whole_piece_ctrl_c_goes_through(work, description, press):
    press(description, at=1)
    with pytest.raises(KeyboardInterrupt):
        work()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


# ---------------------------------------------------------------------- sums of rows


def pressing(batches, at):
    """Batches, and Ctrl-C while batch number ``at`` is handed over."""
    for number, batch in enumerate(batches, start=1):
        if number == at:
            signal.raise_signal(signal.SIGINT)
        yield batch


@pytest.mark.parametrize("at", [1, 4, 9])
def test_moments_of_the_rows_so_far(at):
    with pytest.warns(DataWarning, match=f"interrupted after {10 * at} rows"):
        found = moments.from_batches(pressing(BATCHES, at), "y", "user")
    equal(found.scatters, summed(at))
    assert found.n_rows.sum() == 10 * at


def test_moments_of_a_file_so_far(tmp_path, press):
    FRAME.to_parquet(tmp_path / "rows.parquet")
    press("reading", at=3)
    with pytest.warns(DataWarning, match="interrupted after 40 rows"):  # the batch that was asked for is still added
        found = moments.from_parquet(tmp_path / "rows.parquet", "y", "user", batch_rows=10)
    equal(found.scatters, summed(4))


def test_an_update_of_sums_is_never_cut(monkeypatch):
    """Ctrl-C in the middle of the update in place waits for its end."""
    merge, calls = moments._merge_into, []

    def merge_and_press(merged, part, places):
        calls.append(1)
        if len(calls) == 3:
            signal.raise_signal(signal.SIGINT)
        merge(merged, part, places)

    expected = summed(6)
    monkeypatch.setattr(moments, "_merge_into", merge_and_press)
    with pytest.warns(DataWarning, match="interrupted after"):
        found = moments.from_batches(BATCHES, "y", "user")
    n_batches = int(found.n_rows.sum()) // 10
    monkeypatch.undo()
    assert n_batches < 9
    equal(found.scatters, expected if n_batches == 6 else summed(n_batches))


# ---------------------------------------------------------------------- streams


def stream(source, checkpoint):
    model = bm.OnlineMixedNormRegressor(penalty_strength=0.05)
    return model.fit_stream(source, target="y", task="user", checkpoint=checkpoint, every=20)


def test_a_stream_goes_on_from_its_checkpoint_to_the_same_bits(tmp_path):
    whole = stream(BATCHES, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        stream(pressing(BATCHES, 6), tmp_path / "state")
    kept = bm.load(tmp_path / "state")
    assert kept._position["rows"] == 40 and not kept._position["finished"]
    resumed = stream(BATCHES, tmp_path / "state")
    equal(resumed.coef_, whole.coef_)
    equal(resumed.intercept_, whole.intercept_)


# ---------------------------------------------------------------------- posteriors


def test_a_projection_leaves_the_posterior_as_it_was(press):
    model = bm.BayesianRegressor(sampler="variational", draws=50, random_state=0).fit(*DATA)
    before = model.posterior_["posterior"]["coef"].values.copy()
    press("projection", at=2)
    with pytest.raises(KeyboardInterrupt):
        projection_selection(model, *DATA)
    equal(model.posterior_["posterior"]["coef"].values, before)
