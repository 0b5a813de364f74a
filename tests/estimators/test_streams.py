"""Streams from files and batches: the same as partial_fit, and the same again after a crash."""

import subprocess
import sys
import time
from contextlib import contextmanager

import numpy as np
import pandas as pd
import polars as pl
import pytest

import bayesmtfs as bm
from bayesmtfs.estimators.streams import hashed_rows

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: files are not read in batches")
pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed: files are not read in batches")

MODELS = [
    bm.OnlineMixedNormClassifier(penalty_strength=0.01),
    bm.OnlineMixedNormClassifier(penalty_strength=0.01, norm_q=[1, 2], shared_mean=True, average=True),
    bm.OnlineMixedNormRegressor(penalty_strength=0.01, sparsity="individual"),
    bm.OnlineSmoothedClassifier(random_state=0),
    bm.OnlineSmoothedClassifier(random_state=0, neighbours=3, average=True),
    bm.OnlineSmoothedRegressor(random_state=0, step=0.01),
]


@pytest.fixture(scope="module")
def frame():
    """Rows of eight tasks, of which the last appears halfway."""
    rng = np.random.default_rng(0)
    X, task = rng.standard_normal((1200, 6)), rng.integers(7, size=1200)
    task[700::5] = 7
    signs = np.where(X[:, 0] + 0.3 * X[:, 1] + 0.5 * rng.standard_normal(1200) > 0, 1, -1)
    return pd.DataFrame({f"x{i}": X[:, i] for i in range(6)} | {"label": signs, "user": [f"u{t}" for t in task]})


@pytest.fixture(scope="module")
def folder(frame, tmp_path_factory):
    """The same rows as two Parquet files of several row groups."""
    path = tmp_path_factory.mktemp("stream")
    for number, rows in enumerate((slice(0, 500), slice(500, None))):
        pq.write_table(pa.Table.from_pandas(frame[rows]), path / f"part-{number}.parquet", row_group_size=200)
    return path


def same_bits(a, b):
    assert a.tasks_.tolist() == b.tasks_.tolist()
    np.testing.assert_array_equal(a.coef_, b.coef_)
    np.testing.assert_array_equal(a.intercept_, b.intercept_)
    assert a.n_rounds_ == b.n_rounds_


def fresh(model):
    return type(model)(**model.get_params())


def fitted(model, source, **options):
    return fresh(model).fit_stream(source, target="label", task="user", **options)


@contextmanager
def failing_at(model, batch):
    """Let the learner fail at this batch, and expect that it does."""
    learn, seen = type(model).partial_fit, []

    def fail(self, *arguments):
        seen.append(1)
        if len(seen) == batch:
            raise OSError("the disk is gone")
        return learn(self, *arguments)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(OSError, match="the disk is gone"):
        patch.setattr(type(model), "partial_fit", fail)
        yield


def pieces(frame, size=100):
    return [frame[i : i + size] for i in range(0, len(frame), size)]


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_files_frames_and_arrays_are_partial_fit_in_turn(model, frame, folder):
    names = [f"x{i}" for i in range(6)]
    by_hand = fresh(model)
    for part in pieces(frame):
        by_hand.partial_fit(part[names].to_numpy(), part["label"].to_numpy(), part["user"].to_numpy())
    arrays = fresh(model).fit_stream(
        (part[names].to_numpy(), part["label"].to_numpy(), part["user"].to_numpy()) for part in pieces(frame)
    )
    same_bits(arrays, by_hand)
    same_bits(fitted(model, (part for part in pieces(frame))), by_hand)
    same_bits(fitted(model, [pl.from_pandas(part) for part in pieces(frame)]), by_hand)
    files = fitted(model, folder, batch_rows=100)
    same_bits(files, by_hand)
    assert files.feature_names_in_.tolist() == names
    assert files.tasks_.tolist() == [f"u{t}" for t in range(8)]


def test_csv_is_the_same_stream(frame, folder, tmp_path):
    frame.to_csv(tmp_path / "rows.csv", index=False)
    model = MODELS[0]
    same_bits(fitted(model, tmp_path / "rows.csv", batch_rows=1200), fitted(model, [frame]))


@pytest.mark.parametrize(
    ("model", "source"), [*((model, "files") for model in MODELS), (MODELS[0], "frames")], ids=repr
)
def test_a_stream_that_fails_is_taken_up_bit_for_bit(model, source, frame, folder, tmp_path):
    checkpoint = tmp_path / "checkpoint"
    whole = fitted(model, folder, batch_rows=100)
    rows = folder if source == "files" else pieces(frame)
    with failing_at(model, batch=9):
        fitted(model, rows, checkpoint=checkpoint, every=250, batch_rows=100)
    assert bm.load(checkpoint)._position["rows"] == 600
    resumed = fitted(model, rows, checkpoint=checkpoint, every=250, batch_rows=100)
    same_bits(resumed, whole)
    same_bits(bm.load(checkpoint), whole)
    same_bits(fitted(model, "no/such/file", checkpoint=checkpoint, batch_rows=100), whole)


CHILD = """
import sys, time
import bayesmtfs as bm
learn = bm.OnlineMixedNormClassifier.partial_fit
def slow(self, *batch):
    time.sleep(0.02)
    return learn(self, *batch)
bm.OnlineMixedNormClassifier.partial_fit = slow
model = bm.OnlineMixedNormClassifier(penalty_strength=0.01)
model.fit_stream(sys.argv[1], target="label", task="user", checkpoint=sys.argv[2], every=1, batch_rows=10)
"""


def test_a_killed_process_leaves_a_checkpoint_that_ends_in_the_same_bits(folder, tmp_path):
    checkpoint = tmp_path / "checkpoint"
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(folder), str(checkpoint)])
    try:
        while not checkpoint.exists() and child.poll() is None:
            time.sleep(0.01)
        time.sleep(0.3)
    finally:
        child.kill()
        child.wait()
    found = bm.load(checkpoint)._position
    assert 0 < found["rows"] < 1200
    assert not found["finished"]
    model = MODELS[0]
    resumed = fitted(model, folder, checkpoint=checkpoint, batch_rows=10)
    same_bits(resumed, fitted(model, folder, batch_rows=10))


def test_a_second_stream_forgets_the_first(frame):
    model = fitted(MODELS[0], pieces(frame))
    model.fit_stream(pieces(frame), target="label", task="user")
    same_bits(model, fitted(MODELS[0], pieces(frame)))


def test_hashed_rows_take_names_that_come_late():
    rng = np.random.default_rng(0)
    rows, labels, users = [], [], []
    for i in range(600):
        positive = rng.random() < 0.5
        row = {"noise": float(rng.standard_normal()), "town": str(rng.integers(5))}
        row["late" if i >= 300 else "early"] = 1.0 if positive else -1.0
        rows.append(row)
        labels.append("yes" if positive else "no")
        users.append(int(rng.integers(4)))
    batches = [(rows[i : i + 50], labels[i : i + 50], users[i : i + 50]) for i in range(0, 600, 50)]
    model = bm.OnlineMixedNormClassifier(penalty_strength=0.001).fit_stream(batches, hash_features=12)
    assert model.n_features_in_ == 4096
    answers = [model.predict(hashed_rows([{name: 1.0}], 12), tasks=[2])[0] for name in ("early", "late")]
    assert answers == ["yes", "yes"]
    frames = [pd.DataFrame(r).assign(label=y, user=t) for r, y, t in batches]
    by_frame = bm.OnlineMixedNormClassifier(penalty_strength=0.001).fit_stream(
        frames, target="label", task="user", hash_features=12
    )
    same_bits(by_frame, model)


def test_one_learner_of_hashed_features_serves_tasks_of_opposite_taste():
    rng = np.random.default_rng(0)
    users, taste = [f"u{t}" for t in rng.integers(6, size=900)], rng.standard_normal(900)
    labels = [(x > 0) == (user < "u3") for x, user in zip(taste, users, strict=True)]
    rows = [{"taste": x} for x in taste]
    batches = [(hashed_rows(rows[i : i + 90], 12, users[i : i + 90]), labels[i : i + 90]) for i in range(0, 900, 90)]
    model = bm.OnlineMixedNormClassifier(penalty_strength=1e-4, sparsity="individual").fit_stream(batches)
    liked = model.predict(hashed_rows([{"taste": 1.0}] * 6, 12, [f"u{t}" for t in range(6)]))
    assert liked.tolist() == [True] * 3 + [False] * 3


def test_rows_without_a_target_are_left_out_and_weights_count(frame):
    model = bm.OnlineMixedNormRegressor(penalty_strength=0.01)
    holes = frame.assign(label=frame["label"].where(frame.index % 3 > 0).astype(float))
    kept = [part[part["label"].notna()] for part in pieces(holes)]
    same_bits(fitted(model, pieces(holes)), fitted(model, kept))
    heavy = frame.assign(importance=2.0)
    weighted = fresh(model).fit_stream(pieces(heavy), target="label", task="user", weight="importance")
    np.testing.assert_allclose(weighted.coef_, fitted(model, pieces(frame)).coef_, atol=1e-10)


def test_classes_may_be_named_before_they_come(frame):
    ordered = frame.sort_values("label")
    with pytest.raises(ValueError, match="pass all labels that will come as classes"):
        fitted(MODELS[0], pieces(ordered))
    assert fitted(MODELS[0], pieces(ordered), classes=[-1, 1]).classes_.tolist() == [-1, 1]


def test_messages(frame, folder, tmp_path):
    checkpoint = tmp_path / "checkpoint"
    model = MODELS[0]
    fitted(model, pieces(frame), checkpoint=checkpoint)
    cases = [
        (MODELS[2], pieces(frame), {"checkpoint": checkpoint}, "holds no stream of a OnlineMixedNormRegressor"),
        (fresh(model).set_params(penalty_strength=1.0), folder, {"checkpoint": checkpoint}, "penalty_strength=0.01"),
        (model, folder, {"checkpoint": checkpoint, "batch_rows": 7}, "made with batch_rows=16384"),
        (model, folder, {"every": 0}, "every is 0"),
        (model, folder, {"features": ["x0", "x9"]}, "no column 'x9'"),
        (model, [frame.drop(columns="user")], {}, "no column 'user'"),
        (model, [np.eye(3)], {}, "source gives ndarray"),
        (model, [([{"a": 1.0}], [1], [0])], {}, "set hash_features"),
        (model, pieces(frame), {"hash_features": 40}, "hash_features is 40"),
        (model, [], {}, "no row with a target"),
        (model, [frame.assign(label=np.nan)], {}, "no row with a target"),
    ]
    for estimator, source, options, message in cases:
        with pytest.raises(ValueError, match=message):
            fitted(estimator, source, **options)
    with pytest.raises(ValueError, match="pass the name of the target's column"):
        fresh(model).fit_stream([frame])


@pytest.mark.parametrize("size", [150, 1200])
def test_other_batches_than_those_of_the_checkpoint_are_refused(frame, size, tmp_path):
    checkpoint = tmp_path / "checkpoint"
    options = {"checkpoint": checkpoint, "every": 1}
    with failing_at(MODELS[0], batch=3):
        fitted(MODELS[0], pieces(frame), **options)
    with pytest.raises(ValueError, match="which is inside a batch"):
        fitted(MODELS[0], pieces(frame, size), **options)
    with pytest.raises(ValueError, match="source has 100 rows"):
        fitted(MODELS[0], pieces(frame[:100]), **options)
