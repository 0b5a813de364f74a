"""Fits over a real cluster of processes: the numbers of one machine, also when a worker is killed in the middle."""

import os
import signal

import joblib
import numpy as np
import pandas as pd
import pytest

import bayesmtfs as bm
from bayesmtfs import moments
from bayesmtfs.estimators import distributed
from bayesmtfs.estimators.distributed import fit_dask
from bayesmtfs.selection import stability

dask = pytest.importorskip("dask", reason="dask is not installed: there is no cluster to fit on")
dd = pytest.importorskip("dask.dataframe", reason="dask is not installed: there is no cluster to fit on")
cluster = pytest.importorskip("dask.distributed", reason="distributed is not installed: there is no cluster to fit on")

FEATURES = [f"x{i}" for i in range(8)]
on_a_cluster = pytest.mark.slow  # starts processes: run in a process of its own, pytest -m slow tests/test_dask.py


@pytest.fixture(scope="module")
def client():
    """Two worker processes; a worker that dies is started again."""
    with (
        cluster.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as workers,
        cluster.Client(workers) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def rows():
    """Rows in random order, so that every partition has a few of every task, and some without a target."""
    sim = bm.simulate_tasks(
        n_tasks=4, n_features=8, n_relevant=3, kind="classification", n_samples=[60, 80, 50, 100], random_state=0
    )
    rng = np.random.default_rng(0)
    score = sim.X[:, 0] - sim.X[:, 1] + 0.1 * rng.standard_normal(len(sim.y))
    score[::17] = np.nan
    table = pd.DataFrame(dict(zip(FEATURES, sim.X.T, strict=True)))
    table["label"], table["score"] = np.where(sim.y > 0, "yes", "no"), score
    table["user"], table["importance"] = [f"u{t}" for t in sim.tasks], rng.uniform(0.5, 2, len(sim.y))
    return table.sample(frac=1, random_state=0).reset_index(drop=True)


def spread(table, columns, n_partitions=4):
    return dd.from_pandas(table[[*FEATURES, *columns]], npartitions=n_partitions)


def die_once(part, flag):
    """Give the partition back; the first worker that is asked kills itself instead."""
    try:
        os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return part
    os.kill(os.getpid(), signal.SIGKILL)
    return part


def test_moments_of_partitions_are_those_of_the_rows(rows):
    frame = spread(rows, ["score", "user", "importance"])
    with dask.config.set(scheduler="threads"):
        found = moments.from_dask(frame, "score", "user", "importance")
    local = moments.from_batches([rows[[*FEATURES, "score", "user", "importance"]]], "score", "user", "importance")
    assert found.n_rows.tolist() == local.n_rows.tolist()
    np.testing.assert_allclose(found.scatters, local.scatters, rtol=1e-10, atol=1e-10)


@on_a_cluster
def test_moments_count_every_row_once_though_a_worker_is_killed(client, rows, tmp_path):
    frame, flag = spread(rows, ["score", "user", "importance"]), tmp_path / "died"
    found = moments.from_dask(frame.map_partitions(die_once, str(flag), meta=frame), "score", "user", "importance")
    assert flag.exists()
    local = moments.from_batches([rows[[*FEATURES, "score", "user", "importance"]]], "score", "user", "importance")
    assert found.n_rows.tolist() == local.n_rows.tolist()
    np.testing.assert_allclose(found.scatters, local.scatters, rtol=1e-10, atol=1e-10)
    model = bm.MixedNormRegressor(tol=1e-12)
    coef = model.fit_moments(found).coef_.copy()
    seen = rows[rows["score"].notna()]
    model.fit(seen[FEATURES], seen["score"], tasks=seen["user"], sample_weight=seen["importance"])
    np.testing.assert_allclose(coef, model.coef_, atol=1e-8)


@on_a_cluster
def test_logistic_fit_of_partitions(client, rows):
    model = bm.MixedNormClassifier(tol=1e-11)
    found = fit_dask(model, spread(rows, ["label", "user", "importance"]), "label", "user", "importance")
    model.fit(rows[FEATURES], rows["label"], tasks=rows["user"], sample_weight=rows["importance"])
    assert found.result_.settings["n_rows"] == len(rows)
    assert found.penalty_strength_ == pytest.approx(model.penalty_strength_, rel=1e-12)
    np.testing.assert_allclose(found.coef_, model.coef_, atol=1e-8)
    np.testing.assert_allclose(found.intercept_, model.intercept_, atol=1e-8)
    assert (
        found.predict(rows[FEATURES], tasks=rows["user"]).tolist()
        == model.predict(rows[FEATURES], tasks=rows["user"]).tolist()
    )


@on_a_cluster
def test_a_worker_killed_between_passes_changes_nothing(client, rows, monkeypatch):
    model, frame = bm.MixedNormClassifier(tol=1e-10), spread(rows, ["label", "user"])
    sums, calls = distributed._DaskPasses.sums, []

    def deadly_sums(self, *point):
        calls.append(1)
        if len(calls) == 6:
            os.kill(min(client.run(os.getpid).values()), signal.SIGKILL)
        return sums(self, *point)

    monkeypatch.setattr(distributed._DaskPasses, "sums", deadly_sums)
    found = fit_dask(model, frame, "label", "user", classes=["no", "yes"])
    assert len(calls) > 6
    model.fit(rows[FEATURES], rows["label"], tasks=rows["user"])
    np.testing.assert_allclose(found.coef_, model.coef_, atol=1e-6)


@on_a_cluster
def test_folds_run_on_the_cluster(client, rows):
    model = bm.MixedNormClassifierCV(cv=3, n_jobs=2)
    local = model.fit(rows[FEATURES], rows["label"], tasks=rows["user"]).coef_.copy()
    with joblib.parallel_backend("dask"):
        model.fit(rows[FEATURES], rows["label"], tasks=rows["user"])
    np.testing.assert_allclose(model.coef_, local, atol=1e-8)


@on_a_cluster
def test_halves_run_on_the_cluster(client, rows):
    model, options = bm.MixedNormClassifier(), {"n_pairs": 4, "n_features": 3, "random_state": 0}
    data = (rows[FEATURES], rows["label"], rows["user"])
    local = stability(model, *data, **options)
    with joblib.parallel_backend("dask"):
        there = stability(model, *data, n_jobs=2, **options)
    np.testing.assert_array_equal(there.task_frequency, local.task_frequency)


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        (bm.MixedNormRegressor(), TypeError, "use fit_moments"),
        (bm.MixedNormClassifier(loss="hinge"), ValueError, "wants loss='logistic'"),
        (bm.MixedNormClassifier(standardize=True), ValueError, "standardize does not go with"),
    ],
)
def test_what_needs_the_rows_is_refused(rows, model, error, message):
    with pytest.raises(error, match=message):
        fit_dask(model, spread(rows, ["label", "user"]), "label", "user")


@on_a_cluster
def test_labels_are_checked(client, rows):
    with pytest.raises(ValueError, match="a distributed fit wants two"):
        fit_dask(bm.MixedNormClassifier(), spread(rows, ["label", "user"]), "user")
    with pytest.raises(ValueError, match="name both as classes"):
        fit_dask(bm.MixedNormClassifier(), spread(rows, ["label", "user"]), "label", "user", classes=["no", "maybe"])
    with pytest.raises(ValueError, match="no column 'lable'"):
        fit_dask(bm.MixedNormClassifier(), spread(rows, ["label", "user"]), "lable")
