"""Moments: they add, they do not cancel, and fits from them are fits from the rows."""

import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone

import bayesmtfs as bm
from bayesmtfs import moments

pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed: files are not read in batches")


@pytest.fixture(scope="module")
def sim():
    return bm.simulate_tasks(n_tasks=4, n_features=8, n_relevant=3, n_samples=[30, 45, 25, 60], random_state=0)


@pytest.fixture(scope="module")
def frame(sim):
    columns = {f"x{i}": sim.X[:, i] for i in range(8)}
    return pd.DataFrame({**columns, "score": sim.y, "school": [f"s{t}" for t in sim.tasks]})


def same(a, b):
    assert a.task_names.tolist() == b.task_names.tolist()
    np.testing.assert_array_equal(a.n_rows, b.n_rows)
    for name in ("totals", "means", "scatters"):
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=1e-10, atol=1e-10)


def test_moments_are_weighted_sums(sim):
    weight = np.random.default_rng(1).uniform(0.5, 2, len(sim.y))
    found = moments.from_arrays(sim.X, sim.y, sim.tasks, weight)
    for t in range(4):
        mine = sim.tasks == t
        Z = np.column_stack([sim.X, sim.y])[mine]
        np.testing.assert_allclose(found.gram(t), Z.T @ (weight[mine, None] * Z), rtol=1e-10, atol=1e-9)
    assert found.n_rows.tolist() == [30, 45, 25, 60]


def test_parts_add_to_the_whole_in_any_order_and_with_new_tasks(sim):
    whole = moments.from_arrays(sim.X, sim.y, sim.tasks)
    order = np.random.default_rng(0).permutation(len(sim.y))
    pieces = [moments.from_arrays(sim.X[i], sim.y[i], sim.tasks[i]) for i in np.array_split(order, 7)]
    same(sum(pieces[1:], start=pieces[0]), whole)
    apart = [
        moments.from_arrays(sim.X[sim.tasks == t], sim.y[sim.tasks == t], [t] * (sim.tasks == t).sum())
        for t in (3, 0, 2, 1)
    ]
    same(sum(apart[1:], start=apart[0]), whole)


def test_data_far_from_zero_do_not_cancel():
    rng = np.random.default_rng(0)
    X, noise = rng.standard_normal((200, 2)), rng.standard_normal(200)
    X[:, 1] += 1e6
    found = sum(
        (moments.from_arrays(X[i], noise[i] + 1e6) for i in (slice(50, 100), slice(100, 200))),
        start=moments.from_arrays(X[:50], noise[:50] + 1e6),
    )
    exact = np.cov(np.column_stack([X[:, 0], X[:, 1] - 1e6, noise]).T, ddof=0) * 200
    np.testing.assert_allclose(found.scatters[0], exact, rtol=1e-7, atol=1e-7)


def test_equivalent_data_have_the_same_moments(sim):
    found = moments.from_arrays(sim.X, sim.y, sim.tasks)
    data = found.to_task_data()
    assert data.n_observations == 4 * 2 * 9
    again = moments.from_arrays(data)
    np.testing.assert_allclose(again.scatters, found.scatters, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(again.means, found.means, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(again.totals, found.totals, rtol=1e-14)


@pytest.mark.parametrize(
    "estimator",
    [
        bm.MixedNormRegressor(tol=1e-10),
        bm.MixedNormRegressor(norm_q=np.inf, loss_scale="sum", fit_intercept=False, penalty_strength=20, tol=1e-10),
        bm.MixedNormRegressor(shared_mean=True, standardize=True, tol=1e-10),
        bm.GeneralizedNormalRegressor(tol=1e-9),
        bm.JeffreysRegressor(tol=1e-10),
        bm.JeffreysRegressor(norm_q=3, tol=1e-10),
        bm.JeffreysRegressor(coefficients="integrated", tol=1e-10),
        bm.MatrixVariateRegressor(coefficients="integrated", tol=1e-10),
    ],
    ids=lambda estimator: repr(estimator)[:60],
)
def test_fit_from_moments_is_the_fit_from_the_rows(sim, estimator):
    from sklearn.base import clone

    weight = np.random.default_rng(2).uniform(0.5, 2, len(sim.y))
    rows = clone(estimator).fit(sim.X, sim.y, tasks=sim.tasks, sample_weight=weight)
    sums = clone(estimator).fit_moments(moments.from_arrays(sim.X, sim.y, sim.tasks, weight))
    scale = np.abs(rows.coef_).max()
    iterated = "Matrix" in repr(estimator) or "shared_mean" in repr(estimator)  # to a tolerance, not to the last bit
    np.testing.assert_allclose(sums.coef_, rows.coef_, atol=(1e-5 if iterated else 1e-7) * scale)
    np.testing.assert_allclose(sums.intercept_, rows.intercept_, atol=1e-5)
    assert sums.tasks_.tolist() == rows.tasks_.tolist()
    np.testing.assert_allclose(
        sums.predict(sim.X[:5], tasks=sim.tasks[:5]), rows.predict(sim.X[:5], tasks=sim.tasks[:5]), atol=1e-4
    )


def test_more_features_than_rows_and_constant_columns(sim):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((12, 20))
    X[:, 4] = 1.5
    y = X[:, 0] + 0.1 * rng.standard_normal(12)
    rows = bm.MixedNormRegressor(penalty_strength=0.05, tol=1e-10).fit(X, y)
    sums = bm.MixedNormRegressor(penalty_strength=0.05, tol=1e-10).fit_moments(moments.from_arrays(X, y))
    np.testing.assert_allclose(sums.coef_, rows.coef_, atol=1e-6)


def test_wide_form_and_missing_cells():
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((30, 3)), rng.standard_normal((30, 2))
    Y[:5, 1] = np.nan
    found = moments.from_arrays(X, Y)
    assert found.n_rows.tolist() == [30, 25]
    same_by_task = moments.from_arrays(X[5:], Y[5:, 1])
    np.testing.assert_allclose(found.scatters[1], same_by_task.scatters[0])


@pytest.mark.parametrize("ending", ["parquet", "csv", "arrow"])
def test_files_in_batches(frame, sim, tmp_path, ending):
    import pyarrow as pa
    from pyarrow import csv, feather

    path, table = tmp_path / f"data.{ending}", pa.Table.from_pandas(frame, preserve_index=False)
    write = {
        "parquet": lambda: pq.write_table(table, path, row_group_size=40),
        "csv": lambda: csv.write_csv(table, path),
        "arrow": lambda: feather.write_feather(table, path),
    }
    write[ending]()
    found = moments.from_parquet(path, target="score", task="school", batch_rows=17, progress=False)
    same(found, moments.from_arrays(sim.X, sim.y, np.array([f"s{t}" for t in sim.tasks])))
    few = moments.from_parquet(path, target="score", task="school", features=["x2", "x5"])
    assert few.feature_names.tolist() == ["x2", "x5"]


def test_several_files_and_missing_targets(frame, tmp_path):
    frame = frame.copy()
    frame.loc[3:9, "score"] = np.nan
    frame.iloc[:50].to_parquet(tmp_path / "a.parquet")
    frame.iloc[50:].to_parquet(tmp_path / "b.parquet")
    found = moments.from_parquet(
        [tmp_path / "a.parquet", tmp_path / "b.parquet"], target="score", task="school", features=["x0", "x1"]
    )
    assert found.n_rows.sum() == 160 - 7


def test_polars_batches_and_weights(frame):
    table = pl.from_pandas(frame).with_columns(w=pl.lit(2.0))
    found = moments.from_batches([table[:70], table[70:]], target="score", task="school", weight="w")
    np.testing.assert_allclose(found.totals, 2.0 * found.n_rows)


def test_wrong_input_is_named(frame, tmp_path, sim):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        moments.from_parquet(tmp_path / "absent.parquet", target="score")
    frame.to_parquet(tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="no column 'grade'"):
        moments.from_parquet(tmp_path / "a.parquet", target="grade")
    with pytest.raises(ValueError, match="'school' is not numeric"):
        moments.from_parquet(tmp_path / "a.parquet", target="score")
    (tmp_path / "broken.parquet").write_bytes(b"not a file")
    with pytest.raises(ValueError, match="cannot be read"):
        moments.from_parquet(tmp_path / "broken.parquet", target="score")
    with pytest.raises(ValueError, match="same features"):
        moments.from_arrays(frame[["x0"]], frame["score"]) + moments.from_arrays(frame[["x1"]], frame["score"])
    with pytest.raises(MemoryError, match="GiB"):
        moments._check_memory(100_000, 100_000)
    (tmp_path / "b.csv").write_text("x,y\n1,2\n")
    with pytest.raises(ValueError, match="several formats"):
        moments.from_parquet([tmp_path / "a.parquet", tmp_path / "b.csv"], target="score")
    with pytest.raises(ValueError, match="no column 'grade'"):
        moments.from_batches([frame], target="grade")
    with pytest.raises(ValueError, match="no row with a target"):
        moments.from_batches([frame.assign(score=np.nan)], target="score", task="school")
    with pytest.raises(ValueError, match="feature groups"):
        moments.from_arrays(frame.drop(columns="score").astype({"school": "category"}), frame["score"])
    with pytest.raises(TypeError, match="unsupported operand"):
        moments.from_arrays(sim.X, sim.y) + 1
    with pytest.raises(ValueError, match="squared"):
        bm.MixedNormRegressor(loss="absolute").fit_moments(moments.from_arrays(sim.X, sim.y, sim.tasks))
    with pytest.raises(ValueError, match="rows"):
        bm.MixedNormRegressorCV().fit_moments(moments.from_arrays(sim.X, sim.y, sim.tasks))


def test_what_moments_say_of_themselves(sim):
    found = moments.from_arrays(sim.X, sim.y, sim.tasks)
    assert repr(found) == "Moments(4 tasks, 8 features, 160 rows)"


def test_a_task_whose_rows_are_all_equal_is_one_row():
    found = moments.from_arrays(np.ones((3, 2)), np.full(3, 5.0)).to_task_data()
    assert found.n_observations == 1 and found.weight.tolist() == [3.0] and found.y.tolist() == [5.0]


def test_without_pyarrow_the_message_names_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pyarrow.dataset", None)
    with pytest.raises(ImportError, match="pip install pyarrow"):
        moments.from_parquet(tmp_path, target="y")


@pytest.mark.parametrize("model", [bm.JeffreysRegressor(), bm.MixedNormRegressor(penalty_strength=0.1)])
def test_columns_in_other_units_are_tasks_of_their_own_as_in_the_wide_form(model):
    rng = np.random.default_rng(9)
    X = rng.normal(size=(60, 3))
    Y = np.column_stack([X[:, 0], 1000.0 * X[:, 1]]) + rng.normal(size=(60, 2)) * [0.5, 500.0]
    model = clone(model).set_params(scale_target=True)
    rows = clone(model).fit(X, Y)
    found = moments.from_arrays(X[:30], Y[:30]) + moments.from_arrays(X[30:], Y[30:])
    assert found.wide
    sums = clone(model).fit_moments(found)
    np.testing.assert_allclose(sums.coef_, rows.coef_, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(sums.result_.effect_unit, rows.result_.effect_unit, rtol=1e-9)
    np.testing.assert_allclose(sums.predict(X), rows.predict(X), rtol=1e-5, atol=1e-4)
