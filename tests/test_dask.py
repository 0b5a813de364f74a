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
from bayesmtfs.progress import Progress
from bayesmtfs.selection import stability
from bayesmtfs.types import ConvergenceWarning

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


def die_first(part, folder, n_deaths):
    """Give the partition back; the first workers that are asked kill themselves instead."""
    for number in range(n_deaths):
        try:
            os.close(os.open(os.path.join(folder, f"death-{number}"), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
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
@pytest.mark.parametrize("n_deaths", [1, 2])
def test_moments_count_every_row_once_though_workers_are_killed(client, rows, tmp_path, n_deaths):
    frame = spread(rows, ["score", "user", "importance"])
    deadly = frame.map_partitions(die_first, str(tmp_path), n_deaths, meta=frame)
    found = moments.from_dask(deadly, "score", "user", "importance")
    assert len(os.listdir(tmp_path)) == n_deaths
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
def test_workers_that_are_asked_and_graphs_of_tasks_give_the_same(client, rows, monkeypatch):
    model, frame, graphs = bm.MixedNormClassifier(tol=1e-10), spread(rows, ["label", "user"]), []
    add_in_tree = distributed.add_in_tree
    monkeypatch.setattr(distributed, "add_in_tree", lambda *given: graphs.append(1) or add_in_tree(*given))
    asked = fit_dask(model, frame, "label", "user")
    assert not graphs
    monkeypatch.setattr(distributed, "LARGEST_GATHER", -1)
    np.testing.assert_allclose(fit_dask(model, frame, "label", "user").coef_, asked.coef_, rtol=1e-9, atol=1e-12)
    assert graphs


@on_a_cluster
@pytest.mark.parametrize("deadly", [[6], [6, 7]], ids=["one", "two in a row"])
def test_workers_killed_between_passes_change_nothing(client, rows, monkeypatch, deadly):
    model, frame = bm.MixedNormClassifier(tol=1e-10), spread(rows, ["label", "user"])
    sums, calls = distributed.DaskPasses.sums, []

    def deadly_sums(self, *point):
        calls.append(1)
        if len(calls) in deadly:
            client.wait_for_workers(2, timeout=60)
            os.kill(min(client.run(os.getpid, on_error="ignore").values()), signal.SIGKILL)
        return sums(self, *point)

    monkeypatch.setattr(distributed.DaskPasses, "sums", deadly_sums)
    found = fit_dask(model, frame, "label", "user", classes=["no", "yes"])
    assert len(calls) > max(deadly)
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


def test_ctrl_c_gives_the_coefficients_so_far(rows, monkeypatch):
    def press(bar, fraction, note=""):
        if bar.description == "proximal gradient":
            raise KeyboardInterrupt

    frame = spread(rows, ["label", "user"], 2)
    with dask.config.set(scheduler="synchronous"):
        with pytest.warns(ConvergenceWarning, match="stopped after 2 passes"):
            fit_dask(bm.MixedNormClassifier(tol=1e-12, max_iter=2), frame, "label", "user")
        monkeypatch.setattr(Progress, "update", press)
        with pytest.warns(ConvergenceWarning, match="was interrupted"):
            found = fit_dask(bm.MixedNormClassifier(tol=1e-12), frame, "label", "user")
    assert not found.converged_ and found.n_iter_ > 0
    assert np.isfinite(found.coef_).all() and found.coef_.any()


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        (bm.MixedNormRegressor(), TypeError, "use fit_moments"),
        (bm.MixedNormClassifier(loss="hinge"), ValueError, "wants a smooth loss, such as loss='logistic'"),
        (bm.MixedNormClassifier(standardize=True), ValueError, "standardize does not go with"),
    ],
)
def test_what_needs_the_rows_is_refused(rows, model, error, message):
    with pytest.raises(error, match=message):
        fit_dask(model, spread(rows, ["label", "user"]), "label", "user")


@pytest.mark.parametrize(
    ("target", "classes", "message"),
    [
        ("user", None, "a distributed fit wants two"),
        ("label", ["no", "maybe"], "name both as classes"),
        ("lable", None, "no column 'lable'"),
        ("nothing", ["no", "yes"], "no row with a target"),
    ],
)
def test_labels_are_checked(rows, target, classes, message):
    frame = spread(rows.assign(nothing=None), ["label", "user", "nothing"], 2)
    with dask.config.set(scheduler="synchronous"), pytest.raises(ValueError, match=message):
        fit_dask(bm.MixedNormClassifier(), frame, target, classes=classes)


def test_partitions_without_a_target_do_not_count(rows):
    """Half of the partitions have no label or score; all tasks are in the others."""
    half = len(rows) // 2
    gaps = rows.copy()
    gaps.loc[half:, "label"], gaps.loc[half:, "score"] = None, np.nan
    model = bm.MixedNormClassifier(tol=1e-10)
    with dask.config.set(scheduler="synchronous"):
        found = fit_dask(model, spread(gaps, ["label", "user"]), "label", "user")
        sums = moments.from_dask(spread(gaps, ["score", "user"]), "score", "user")
        with pytest.raises(ValueError, match="no row with a target"):
            moments.from_dask(spread(gaps[half:].reset_index(drop=True), ["score", "user"]), "score", "user")
    seen = rows[:half]
    model.fit(seen[FEATURES], seen["label"], tasks=seen["user"])
    np.testing.assert_allclose(found.coef_, model.coef_, atol=1e-6)
    assert sums.n_rows.sum() == seen["score"].notna().sum()
