"""TaskData: every form of the same problem holds the same numbers."""

import datetime
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp

from bayesmtfs import TaskData
from bayesmtfs.data import column_sums, scaling
from bayesmtfs.types import DataWarning


@pytest.fixture
def arrays():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((12, 4))
    y = rng.standard_normal(12)
    tasks = np.array(["b", "a", "c"] * 4)
    return X, y, tasks


def test_long_rows_are_sorted_by_task(arrays):
    X, y, tasks = arrays
    data = TaskData.from_long(X, y, tasks)
    assert data.task_names.tolist() == ["a", "b", "c"]
    assert data.offsets.tolist() == [0, 4, 8, 12]
    np.testing.assert_array_equal(data.X, X[data.order])
    np.testing.assert_array_equal(data.y, y[data.order])
    np.testing.assert_array_equal(data.task_names[data.task], tasks[data.order])


def test_sorted_input_is_not_copied(arrays):
    X, y, tasks = arrays
    data = TaskData.from_long(X, y, np.sort(tasks))
    assert np.shares_memory(data.design, X)
    wide = TaskData.from_wide(X, np.column_stack([y, y]))
    assert np.shares_memory(wide.design, X)


def test_inputs_are_never_modified(arrays):
    X, y, tasks = arrays
    for array in (X, y):
        array.flags.writeable = False
    copies = X.copy(), y.copy()
    TaskData.from_long(X, y, tasks, sample_weight=np.arange(12.0))
    np.testing.assert_array_equal(X, copies[0])
    np.testing.assert_array_equal(y, copies[1])


def test_memory_mapped_input(tmp_path, arrays):
    X, y, tasks = arrays
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    data = TaskData.from_long(mapped, y, np.sort(tasks))
    assert np.shares_memory(data.design, mapped)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sparse", [False, True])
def test_float_types_are_kept(arrays, dtype, sparse):
    X, y, tasks = arrays
    X = sp.csc_matrix(X.astype(dtype)) if sparse else X.astype(dtype)
    assert TaskData.from_long(X, y, tasks).design.dtype == dtype


def test_integers_become_float64(arrays):
    _, y, tasks = arrays
    X = np.arange(48, dtype=np.uint8).reshape(12, 4)
    assert TaskData.from_long(X, y, tasks).design.dtype == np.float64


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_wide_is_long_with_repeated_rows(arrays, missing, sparse):
    X, y, _ = arrays
    Y = np.column_stack([y, 2 * y, -y])
    if missing:
        Y[[0, 3], 1] = np.nan
        Y[5] = np.nan
    given = sp.csr_matrix(X) if sparse else X
    wide = TaskData.from_wide(given, Y)
    t, i = np.nonzero(~np.isnan(Y.T))
    long = TaskData.from_long(X[i], Y[i, t], t)
    dense = wide.X.toarray() if sparse else wide.X
    np.testing.assert_array_equal(dense, long.X)
    np.testing.assert_array_equal(wide.y, long.y)
    np.testing.assert_array_equal(wide.task, long.task)
    assert wide.is_complete == (not missing)
    _assert_same_algebra(wide, long)


def _assert_same_algebra(first, second):
    rng = np.random.default_rng(0)
    W = rng.standard_normal((first.n_features, first.n_tasks))
    b = rng.standard_normal(first.n_tasks)
    v = rng.standard_normal(first.n_observations)
    np.testing.assert_allclose(first.linear_predictor(W, b), second.linear_predictor(W, b), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(first.adjoint(v), second.adjoint(v), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("sparse", [False, True])
def test_algebra_against_loops(arrays, sparse):
    X, y, tasks = arrays
    data = TaskData.from_long(sp.csr_matrix(X) if sparse else X, y, tasks)
    rng = np.random.default_rng(1)
    W, b, v = rng.standard_normal((4, 3)), rng.standard_normal(3), rng.standard_normal(12)
    dense = X[data.order]
    eta = [dense[i] @ W[:, t] + b[t] for i, t in enumerate(data.task)]
    np.testing.assert_allclose(data.linear_predictor(W, b), eta)
    expected = np.zeros((4, 3))
    for i, t in enumerate(data.task):
        expected[:, t] += v[i] * dense[i]
    np.testing.assert_allclose(data.adjoint(v), expected)


def test_zero_weight_is_a_removed_row(arrays):
    X, y, tasks = arrays
    weight = np.ones(12)
    weight[[2, 7]] = 0
    data = TaskData.from_long(X, y, tasks, sample_weight=weight)
    kept = weight > 0
    expected = TaskData.from_long(X[kept], y[kept], tasks[kept])
    np.testing.assert_array_equal(data.X, expected.X)
    np.testing.assert_array_equal(data.weight, expected.weight)


def test_two_dimensional_weights_mark_cells(arrays):
    X, y, _ = arrays
    Y = np.column_stack([y, y])
    weight = np.ones((12, 2))
    weight[4, 1] = 0
    data = TaskData.from_wide(X, Y, sample_weight=weight)
    Y_missing = Y.copy()
    Y_missing[4, 1] = np.nan
    expected = TaskData.from_wide(X, Y_missing)
    np.testing.assert_array_equal(data.y, expected.y)
    np.testing.assert_array_equal(data.rows, expected.rows)


def test_loss_weights(arrays):
    X, y, tasks = arrays
    data = TaskData.from_long(X, y, tasks, sample_weight=np.arange(1.0, 13.0))
    for start, stop in data.spans:
        share = data.weight[start:stop] / data.weight[start:stop].sum()
        np.testing.assert_allclose(data.loss_weights("mean")[start:stop], share)
    np.testing.assert_array_equal(data.loss_weights("sum"), data.weight)


# ---------------------------------------------------------------------- order of tasks


def test_task_order_of_each_kind_of_label():
    X, y = np.ones((4, 1)), np.arange(4.0)
    assert TaskData.from_long(X, y, [10, 9, 10, 2]).task_names.tolist() == [2, 9, 10]
    assert TaskData.from_long(X, y, ["t10", "t9", "t9", "t1"]).task_names.tolist() == ["t1", "t10", "t9"]
    assert TaskData.from_long(X, y, [("b", 1), ("a", 2), ("a", 2), ("b", 1)]).task_names.tolist() == [
        ("a", 2),
        ("b", 1),
    ]
    assert TaskData.from_long(X, y, [1, "a", 1, "a"]).task_names.tolist() == [1, "a"]
    assert TaskData.from_long(X, y, ["z", 3, "z", 3]).task_names.tolist() == ["z", 3]


@pytest.mark.parametrize(
    "labels",
    [
        pd.Series(pd.Categorical(["u", "v", "u", "v"], categories=["v", "u", "unused"])),
        pd.Categorical(["u", "v", "u", "v"], categories=["v", "u", "unused"]),
        pl.Series(["u", "v", "u", "v"], dtype=pl.Enum(["v", "u", "unused"])),
    ],
)
def test_categorical_tasks_keep_category_order(labels):
    data = TaskData.from_long(np.ones((4, 1)), np.arange(4.0), labels)
    assert data.task_names.tolist() == ["v", "u"]
    assert data.y.tolist() == [1.0, 3.0, 0.0, 2.0]


def test_wide_tasks_keep_column_order():
    Y = pd.DataFrame({"z": [1.0, 2.0], "a": [3.0, 4.0]})
    data = TaskData.from_wide(np.ones((2, 1)), Y)
    assert data.task_names.tolist() == ["z", "a"]
    assert data.y.tolist() == [1.0, 2.0, 3.0, 4.0]


def test_list_names_are_sorted_and_follow_their_data():
    first = (np.full((2, 1), 1.0), [1.0, 1.0])
    second = (np.full((3, 1), 2.0), [2.0, 2.0, 2.0])
    data = TaskData.from_list([first, second], task_names=["b", "a"])
    assert data.task_names.tolist() == ["a", "b"]
    assert data.y.tolist() == [2.0, 2.0, 2.0, 1.0, 1.0]


# ---------------------------------------------------------------------- frames


FRAME = {
    "school": ["b", "a", "b", "a"],
    "size": [1.0, 2.0, 3.0, 4.0],
    "score": [0.5, 1.5, 2.5, 3.5],
    "new": [True, False, True, True],
}


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame, pa.table])
def test_from_frame(library):
    data = TaskData.from_frame(library(FRAME), target="score", task="school")
    assert data.feature_names.tolist() == ["size", "new"]
    assert data.task_names.tolist() == ["a", "b"]
    np.testing.assert_array_equal(data.X, [[2, 0], [4, 1], [1, 1], [3, 1]])
    assert data.groups is None


def test_categorical_columns_become_one_group():
    df = pd.DataFrame(FRAME).assign(kind=pd.Categorical(["q", "p", "p", "r"], categories=["r", "q", "p"]))
    data = TaskData.from_frame(df, target="score", task="school")
    assert data.feature_names.tolist() == ["size", "new", "kind[q]", "kind[p]"]  # r is the reference
    assert data.groups.tolist() == [0, 1, 2, 2]
    np.testing.assert_array_equal(data.X[:, 2:], [[0, 1], [0, 0], [1, 0], [0, 1]])


def test_frames_with_other_reference_levels_are_aligned_by_level():
    first = pd.DataFrame({"kind": pd.Categorical(["b", "a", "c"])})
    second = pd.DataFrame({"kind": pd.Categorical(["c", "b", "d", "b"])})  # b would be its own reference
    third = pd.DataFrame({"kind": pd.Categorical(["a", "a"])})
    data = TaskData.from_list([(part, np.zeros(len(part))) for part in (first, second, third)])
    assert data.feature_names.tolist() == ["kind[b]", "kind[c]", "kind[d]"]
    wanted = [list("bac"), list("cbdb"), list("aa")]
    for X, kinds in zip(data.task_designs, wanted, strict=True):
        np.testing.assert_array_equal(X, [[kind == level for level in "bcd"] for kind in kinds])


def test_differences_from_the_reference_are_identified():
    """With an intercept, least squares of the coding has one solution: the means of the levels, less the reference's."""
    rng = np.random.default_rng(0)
    kind = rng.choice(list("abc"), 60)
    y = np.array([{"a": 1.0, "b": 3.0, "c": -2.0}[k] for k in kind])
    data = TaskData.from_long(pd.DataFrame({"kind": pd.Categorical(kind)}), y)
    design = np.column_stack([np.ones(60), data.X])
    assert np.linalg.matrix_rank(design) == design.shape[1] == 3
    np.testing.assert_allclose(np.linalg.lstsq(design, y)[0], [1.0, 2.0, -3.0], atol=1e-12)


def test_several_targets_make_the_wide_form():
    df = pl.DataFrame({"x": [1.0, 2.0], "a": [1.0, None], "b": [3.0, 4.0]})
    data = TaskData.from_frame(df, target=["a", "b"])
    assert data.task_names.tolist() == ["a", "b"]
    assert data.shared_design and data.y.tolist() == [1.0, 3.0, 4.0]


def test_a_column_null_throughout_a_task_is_absent_there():
    df = pd.DataFrame(FRAME).assign(sensor=[np.nan, 1.0, np.nan, 2.0])
    data = TaskData.from_frame(df, target="score", task="school")
    np.testing.assert_array_equal(data.present, [[True, True], [True, True], [True, False]])
    assert data.adjoint(np.ones(4))[2].tolist() == [3.0, 0.0]


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame, pa.table])
def test_texts_are_categories_and_rows_without_target_are_left_out_and_counted(library):
    kinds = {"kind": ["q", "p", "p", "r"], "score": [0.5, None, 2.5, 3.5]}
    with pytest.warns(DataWarning, match="1 of 4 rows have no 'score' and are left out"):
        data = TaskData.from_frame(library({**FRAME, **kinds}), target="score", task="school")
    assert data.feature_names.tolist() == ["size", "new", "kind[q]", "kind[r]"]
    assert data.groups.tolist() == [0, 1, 2, 2] and data.y.tolist() == [3.5, 0.5, 2.5]
    np.testing.assert_array_equal(data.X, [[4, 1, 0, 1], [1, 1, 1, 0], [3, 1, 0, 0]])


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame, pa.table])
def test_everything_wrong_with_a_table_is_said_at_once(library):
    n = 60
    table = {
        "y": [None, *range(1, n)],
        "task": [*["a"] * 30, *["b"] * 29, None],
        "day": [datetime.date(2020, 1, 1)] * n,
        "name": [f"n{i}" for i in range(n)],
        "dose": [*(f"{i}" for i in range(n - 1)), "n.d."],
        "gap": [1.0, None, float("nan"), *[1.0] * (n - 3)],
        "only_b": [*[None] * 30, *[1.0] * 30],
        "kind": [*["u", None] * 30],
        "fine": [True, False] * 30,
    }
    with pytest.raises(ValueError) as refused:
        TaskData.from_frame(library(table), target="y", task="task")
    lines = str(refused.value).splitlines()
    said = [line.split(";")[0] for line in lines]
    as_objects = library is pd.DataFrame  # a column of dates is one of objects there, and not known as dates
    assert said == [
        "column 'task' is missing in 1 of 59 rows (row 59)",
        *(["column 'day' is not numeric (dtype Object)"] if as_objects else []),
        "column 'name' holds 59 different texts",
        "column 'dose' holds numbers, but also texts such as 'n.d.'",
        "column 'gap' is missing in 2 of 59 rows (row 1, 2)",
        "column 'kind' is missing in 29 of 59 rows (row 1, 3, 5, 7, 9 and 24 more)",
    ]


def test_frames_with_different_columns_are_aligned_by_name():
    first = pd.DataFrame({"u": [1.0, 2.0], "v": [3.0, 4.0]})
    second = pd.DataFrame({"w": [5.0], "u": [6.0]})
    data = TaskData.from_list([(first, [1.0, 2.0]), (second, [3.0])], task_names=["z", "a"])
    assert data.feature_names.tolist() == ["u", "v", "w"]
    np.testing.assert_array_equal(data.X, [[6, 0, 5], [1, 3, 0], [2, 4, 0]])
    np.testing.assert_array_equal(data.present, [[True, True], [False, True], [True, False]])


def test_user_groups_and_categories_go_together():
    df = pd.DataFrame({"a": [1.0, 2.0], "b": [1.0, 0.0], "c": pd.Categorical(["x", "y"])})
    data = TaskData.from_long(df, [1.0, 2.0], groups=["g", "g", "h"])
    assert data.groups.tolist() == [0, 0, 1]


# ---------------------------------------------------------------------- errors


X3, Y3 = np.eye(3), np.arange(3.0)
BAD = [
    (lambda: TaskData.from_long(X3, Y3, ["a", "b"]), r"tasks has 2 entries but X has 3 rows; pass one"),
    (lambda: TaskData.from_long(X3, [1.0, 2.0]), r"y has 2 entries but X has 3 rows"),
    (lambda: TaskData.from_long([[np.nan, 1.0]], [1.0]), r"X contains NaN \(row 0, column 0\)"),
    (lambda: TaskData.from_long([[1.0, np.inf]], [1.0]), r"X contains inf \(row 0, column 1\)"),
    (lambda: TaskData.from_long(sp.csr_matrix([[0.0, np.inf]]), [1.0]), r"X contains inf \(row 0, column 1\)"),
    (lambda: TaskData.from_long(X3, [1.0, np.nan, 2.0]), r"y contains NaN \(at 1\)"),
    (lambda: TaskData.from_wide(X3, [[1.0, np.nan]] * 3), r"task 1 has no observed target"),
    (lambda: TaskData.from_list([(np.ones((0, 2)), [])]), r"0 sample\(s\)"),
    (lambda: TaskData.from_list([]), r"pass one \(X, y\) per task"),
    (lambda: TaskData.from_list([(X3, Y3), (X3, Y3)], ["a", "a"]), r"task_names has 'a' twice"),
    (lambda: TaskData.from_wide(X3, np.ones((3, 2)), task_names=["a", "a"]), r"task_names has 'a' twice"),
    (lambda: TaskData.from_long(X3, ["yes", None, "no"]), r"y has no label in row 1"),
    (lambda: TaskData.from_list([(np.ones((1, 2)), [1.0]), (np.ones((1, 3)), [1.0])]), r"\[2, 3\] columns"),
    (lambda: TaskData.from_long(X3, Y3, [0, 0, 1], sample_weight=[1, 1, 0]), r"all weights of task 1 are zero"),
    (lambda: TaskData.from_wide(X3, np.ones((3, 2)), sample_weight=[[1, 0]] * 3), r"all weights of task 1 are zero"),
    (lambda: TaskData.from_long(X3, Y3, sample_weight=[1, -1, 1]), r"sample_weight has a negative"),
    (lambda: TaskData.from_long(X3, Y3, sample_weight=[1, 1]), r"sample_weight has shape \(2,\), wanted \(3,\)"),
    (lambda: TaskData.from_wide(X3, np.ones((3, 2)), sample_weight=np.ones((2, 2))), r"wanted \(3,\) or \(3, 2\)"),
    (lambda: TaskData.from_long([["a"], ["b"]], [1.0, 2.0]), r"X is not numeric"),
    (lambda: TaskData.from_long(pd.DataFrame({"name": ["a", "b"]}), [1.0, 2.0]), r"column 'name' of X is not numeric"),
    (lambda: TaskData.from_long(pl.DataFrame({"n": ["a", "b"]}), [1.0, 2.0]), r"column 'n' of X is not numeric"),
    (lambda: TaskData.from_long(X3, Y3, ["a", None, "b"]), r"tasks has 1 missing labels \(first in row 1\)"),
    (lambda: TaskData.from_long(X3, Y3, "abc"), r"tasks is 'abc'; pass a sequence"),
    (lambda: TaskData.from_long(X3, Y3, groups=[0, 1]), r"groups has 2 entries but X has 3 columns"),
    (lambda: TaskData.from_long(X3, Y3, feature_names=["a"]), r"feature_names has 1 entries but X has 3"),
    (lambda: TaskData.from_long(X3, np.ones((3, 2)), [0, 1, 0]), r"y has shape \(3, 2\) in the long form"),
    (lambda: TaskData.from_frame(pd.DataFrame(FRAME), "nothing", "school"), r"df has no column 'nothing'"),
    (lambda: TaskData.from_frame(np.eye(2), "a", "b"), r"df is ndarray; pass a pandas"),
    (
        lambda: TaskData.from_frame(
            pd.DataFrame(FRAME).assign(s=[np.nan, 1.0, 2.0, 3.0]), target="score", task="school"
        ),
        r"column 's' is missing in 1 of 4 rows \(row 0\); drop those rows or impute them",
    ),
    (lambda: TaskData.from_long(np.ones(3), Y3), r"Expected 2D array, got 1D array instead"),
    (lambda: TaskData.from_long(X3 + 1j, Y3), r"Complex data not supported"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_errors_say_what_to_do(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def test_repr_says_what_it_is(arrays):
    assert repr(TaskData.from_long(*arrays)) == (
        "TaskData(12 observations, 3 tasks, 4 features; dense float64, one design per task)"
    )


def test_features_of_a_fit_are_found_by_name():
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [4.0, 5.0, 6.0], "t": ["u", "u", "v"], "y": [0.0, 1.0, 2.0]})
    data = TaskData.from_frame(frame, target="y", task="t")
    turned = data.with_features(np.array(["b", "a"]))
    np.testing.assert_array_equal(turned.design, data.design[:, ::-1])
    assert turned.names == ("b", "a")
    some = data.with_features(np.array(["c", "a", "b"]), absent=np.array([True, False, False]))
    np.testing.assert_array_equal(some.design, np.column_stack([np.zeros(3), data.design]))
    with pytest.raises(ValueError, match="lacks features of the fit: 'c'"):
        data.with_features(np.array(["a", "b", "c"]))
    with pytest.raises(ValueError, match="features that were not there in fit: 'b'"):
        data.with_features(np.array(["a"]))
    with pytest.raises(ValueError, match="X has 2 features but the fit has 3"):
        data.with_features(np.array(["x0", "x1", "x2"]))


def test_levels_of_categories_are_those_of_the_fit():
    frame = pd.DataFrame({"c": ["p", "q", "w", "p"], "y": [0.0, 1.0, 2.0, 3.0]})
    data = TaskData.from_frame(frame, target="y")
    other = TaskData.from_frame(frame[frame["c"] != "p"], target="y")
    with pytest.raises(ValueError, match=r"column 'c' has the levels \['q', 'w'\] here but \['p', 'q', 'w'\] in fit"):
        other.with_features(data.feature_names, data.encoding)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("order", ["C", "F"])
def test_numbers_that_are_not_finite_are_found_in_large_designs(bad, order, monkeypatch):
    monkeypatch.setattr(column_sums, "LARGE", 0)
    X = np.asarray(np.random.default_rng(0).standard_normal((30, 5)), order=order)
    X[17, 3] = bad
    with pytest.raises(ValueError, match=r"X contains (NaN|inf) \(row 17, column 3\)"):
        TaskData.from_wide(X, X[:, :2])


@pytest.mark.parametrize("size", [1.0, 1e200])
def test_moments_from_the_sums_of_a_large_design(size, monkeypatch):
    X = size * np.random.default_rng(0).standard_normal((30, 5))
    Y = np.random.default_rng(1).standard_normal((30, 3))
    weight = np.random.default_rng(2).uniform(0.5, 2.0, 30)
    gap = np.where(np.arange(30) == 4, np.nan, 0.0)[:, None]
    arguments = [(X, Y), (X, Y, weight), (X, Y + gap), (X, Y + gap * [1, 0, 0])]
    expected = [scaling.column_moments(TaskData.from_wide(*each)) for each in arguments]
    monkeypatch.setattr(column_sums, "LARGE", 0)
    for each, moments in zip(arguments, expected, strict=True):
        data = TaskData.from_wide(*each)
        np.testing.assert_allclose(scaling.column_moments(data), moments, rtol=1e-12)
        halved = replace(data, design=0.5 * data.design)
        np.testing.assert_allclose(scaling.column_moments(halved), 0.5 * moments, rtol=1e-12)
