"""Arrays, labels, targets and weights: what is read, what is refused, and in which words."""

import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp

import bayesmtfs as bm
from bayesmtfs.data import inputs as memory
from bayesmtfs.data.inputs import (
    as_labels,
    match_labels,
    read_design,
    read_groups,
    read_labels,
    read_target,
    read_weights,
)

# designs


@pytest.mark.parametrize(
    "X",
    [
        np.arange(6).reshape(3, 2),
        np.arange(6, dtype=np.float16).reshape(3, 2),
        np.repeat(np.arange(6.0).reshape(3, 2), 2, axis=1)[:, ::2],
        np.array([[Decimal(i), i + 1] for i in (0, 2, 4)], dtype=object),
        [[0, 1], [2, 3], [4, 5]],
        pl.DataFrame({"a": [0, 2, 4], "b": [1, 3, 5]}),
        sp.coo_array(np.arange(6).reshape(3, 2)),
        sp.bsr_array(np.arange(6.0).reshape(3, 2)),
    ],
)
def test_numbers_of_every_container(X):
    design = read_design(X).X
    dense = design.toarray() if sp.issparse(design) else design
    assert dense.dtype == np.float64
    np.testing.assert_array_equal(dense, np.arange(6.0).reshape(3, 2))


def test_views_are_not_copied_and_not_changed():
    base = np.arange(24.0).reshape(4, 6)
    base.flags.writeable = False
    for view in (base[:, ::2], base[::-1], base.T, np.broadcast_to(base[0], (3, 6))):
        assert np.shares_memory(read_design(view).X, base)


def scrambled():
    """A CSR matrix with duplicates, explicit zeros, unsorted 64-bit indices, and the same as a dense array."""
    data, columns = np.array([1.0, 2.0, 0.0, 3.0, 4.0]), np.array([2, 0, 1, 2, 2])
    matrix = sp.csr_array((data, columns.astype(np.int64), np.array([0, 3, 5], dtype=np.int64)), shape=(2, 3))
    matrix.indices, matrix.indptr = matrix.indices.astype(np.int64), matrix.indptr.astype(np.int64)
    return matrix, np.array([[2.0, 0.0, 1.0], [0.0, 0.0, 7.0]])


def test_sparse_is_made_canonical_on_a_copy():
    matrix, dense = scrambled()
    before = matrix.data.copy(), matrix.indices.copy(), matrix.indptr.copy()
    design = read_design(matrix).X
    np.testing.assert_array_equal(design.toarray(), dense)
    assert design.has_sorted_indices and design.has_canonical_format
    for kept, was in zip((matrix.data, matrix.indices, matrix.indptr), before, strict=True):
        np.testing.assert_array_equal(kept, was)
    canonical = sp.csr_array(dense)
    assert np.shares_memory(read_design(canonical).X.data, canonical.data)
    assert read_design(sp.csr_array(dense > 0)).X.dtype == np.float64


BAD_DESIGNS = [
    (np.array(3.0), r"got 0D array instead: X has shape \(\)"),
    (None, r"got 0D array instead"),
    (np.ones((2, 2, 2)), r"got 3D array instead"),
    (sp.coo_array(np.ones(3)), r"got 1D array instead: X has shape \(3,\)"),
    ([[1, 2], [3]], r"X is not an array: .* give all its rows the same number of entries"),
    (np.ma.array(np.eye(2), mask=np.eye(2)), r"X is a masked array with 2 masked entries; drop them, or fill"),
    (np.array([["2020-01-01"]], dtype="M8[D]"), r"X is not numeric \(dtype datetime64\[D\]\): times are not numbers"),
    (np.array([["a"]]), r"X is not numeric .* turn text into numbers"),
    (np.array([[10**400]], dtype=object), r"X holds a number too large for float64: .* rescale"),
    (np.array([[1j]], dtype=object), r"X is not numeric"),
    (sp.csr_array(np.array([[1j]])), r"Complex data not supported: X is complex"),
    (pl.LazyFrame({"a": [1.0]}), r"X is a lazy frame; call its collect\(\) and pass the result"),
    (np.ones((0, 3)), r"0 sample\(s\) .* X has no rows; pass at least one"),
    (np.ones((3, 0)), r"0 feature\(s\) .* X has no feature columns; pass at least one"),
    (pd.DataFrame(), r"X has no rows"),
    (pd.DataFrame({"a": pd.Series([], dtype=object)}), r"X has no rows"),
    (pd.DataFrame({"a": pd.Categorical([])}), r"X has no rows"),
    (pd.DataFrame(index=[0, 1]), r"X has no feature columns"),
    (pd.DataFrame({"a": [1.0, None]}), r"X has missing values: contains NaN in row 1 of column 'a'; drop those rows"),
    (pd.DataFrame({"a": [1.0, np.inf]}), r"X contains inf \(row 1, column 0\)"),
    (np.array([[1e308, 1e308], [np.nan, 1.0]]), r"X contains NaN \(row 1, column 0\)"),
]


@pytest.mark.parametrize(("X", "message"), BAD_DESIGNS)
def test_designs_that_are_refused(X, message):
    with pytest.raises((ValueError, TypeError), match=message):
        read_design(X)


def test_a_sum_that_overflows_is_no_infinity():
    assert read_design(np.full((2, 2), 1e308)).X.max() == 1e308


def test_numbers_as_column_names_are_places():
    assert read_design(pd.DataFrame(np.eye(2))).feature_names is None
    assert read_design(pd.DataFrame(np.eye(2), columns=["Ω", "a b"])).feature_names == ("Ω", "a b")


# labels


DAY = datetime.date(2020, 1, 2), datetime.date(2020, 1, 1)


@pytest.mark.parametrize(
    ("tasks", "names"),
    [
        (["b", "a", "b"], ["a", "b"]),
        ([b"b", b"a", b"b"], [b"a", b"b"]),
        (np.array([b"b", b"a", b"b"]), [b"a", b"b"]),
        ([("b", 1), ("a", 2), ("b", 1)], [("a", 2), ("b", 1)]),
        ([DAY[0], DAY[1], DAY[0]], [DAY[1], DAY[0]]),
        ([True, False, True], [False, True]),
        ([2**63 + 1, -1, 2**63 + 1], [-1, 2**63 + 1]),
        ([2**70, 2**70 - 1, 2**70], [2**70 - 1, 2**70]),
        ([2.5, 1, 2.5], [1.0, 2.5]),
        (["b\0", "b", "b\0"], ["b", "b\0"]),
        (["z", 3, "z"], ["z", 3]),
        (np.array([["b"], ["a"], ["b"]], dtype=object), ["a", "b"]),
        (pd.DataFrame({"task": ["b", "a", "b"]}), ["a", "b"]),
        (pd.Series([2, 1, 2], dtype="Int64"), [1, 2]),
        (pl.Series(["b", "a", "b"]), ["a", "b"]),
        (pa.array(["b", "a", "b"]), ["a", "b"]),
        (pa.chunked_array([["b"], ["a", "b"]]), ["a", "b"]),
        (pd.Categorical(["v", "u", "v"], categories=["w", "u", "v"]), ["u", "v"]),
        (pd.Index(["b", "a", "b"]), ["a", "b"]),
        (range(1, 4), [1, 2, 3]),
    ],
)
def test_labels_keep_their_values(tasks, names):
    labels = read_labels(tasks, 3)
    assert labels.names.tolist() == names
    codes = {"z": [0, 1, 0], 1: [0, 1, 2]}.get(names[0] if len(names) == 3 or names[0] == "z" else None, [1, 0, 1])
    assert labels.codes.tolist() == codes
    np.testing.assert_array_equal(match_labels(tasks, 3, labels.names), labels.codes)


def test_labels_that_would_be_rounded_stay_apart():
    # 2**53 and 2**53 + 1 are one and the same float
    assert len(read_labels([2**53, 2**53 + 1, 0.5], 3).names) == 3
    assert as_labels([2**63 + 1, -1]).dtype == object


def test_unknown_labels_are_marked():
    known = np.array(["a", "b"])
    assert match_labels(["b", "z", 3], 3, known).tolist() == [1, -1, -1]


BAD_LABELS = [
    ([1.0, np.nan, 2.0], r"tasks has 1 missing labels \(first in row 1\); drop those rows or give them a label"),
    ([1, None, 2], r"tasks has 1 missing labels"),
    (["a", pd.NA, "b"], r"tasks has 1 missing labels \(first in row 1\)"),
    (pd.Series(["a", None, "b"], dtype="string"), r"tasks has 1 missing labels"),
    (pd.Series([1, None, 2], dtype="Int64"), r"tasks has 1 missing labels"),
    (pd.Categorical(["a", None, "b"]), r"tasks has 1 missing labels"),
    (pl.Series(["a", None, "b"]), r"tasks has 1 missing labels"),
    (pa.array(["a", None, "b"]), r"tasks has 1 missing labels"),
    (np.array(["2020", "NaT", "2021"], dtype="M8[D]"), r"tasks has 1 missing labels"),
    ([["a"], ["b"], ["c"]], r"tasks has the entry \['a'\], which is not hashable; use a string or number"),
    (np.array([["a", "b"]] * 3, dtype=object), r"tasks has shape \(3, 2\); pass one task label per row"),
    (np.array("a", dtype=object), r"tasks has shape \(\); pass one task label per row"),
    (pd.DataFrame({"a": [1, 2, 3], "b": [1, 2, 3]}), r"tasks is a data frame with 2 columns; pass one column"),
    ({1, 2, 3}, r"tasks is {1, 2, 3}; pass a sequence with one task label per row"),
    ({1: 2}, r"tasks is {1: 2}; pass a sequence"),
    (3, r"tasks is 3; pass a sequence"),
    (b"abc", r"tasks is b'abc'; pass a sequence"),
    (["a", "b"], r"tasks has 2 entries but X has 3 rows; pass one label per row"),
]


@pytest.mark.parametrize(("tasks", "message"), BAD_LABELS)
def test_labels_that_are_refused(tasks, message):
    with pytest.raises(ValueError, match=message):
        read_labels(tasks, 3)


def test_groups_are_labels_of_columns():
    assert read_groups(["x", "y", "x"], None, 3).tolist() == [0, 1, 0]
    assert read_groups(np.array([7, 3, 7, -1]), None, 4).tolist() == [0, 1, 0, 2]
    assert read_groups([1, 2, 3], None, 3) is None
    with pytest.raises(ValueError, match=r"groups has 1 missing labels \(first in column 2\)"):
        read_groups([1.0, 2.0, np.nan], None, 3)
    with pytest.raises(ValueError, match=r"groups has the entry \[1\], which is not hashable"):
        read_groups([[1], [2], [1]], None, 3)


# targets


@pytest.mark.parametrize(
    "y",
    [
        [1, None],
        np.array([1, pd.NA], dtype=object),
        [Decimal(1), None],
        pd.Series([1, None], dtype="Int64"),
        pd.Series([True, None], dtype="boolean"),
        pd.Series([1, None], dtype="int64[pyarrow]"),
        pl.Series([1, None]),
        pa.array([1, None]),
        pa.chunked_array([[1], [None]]),
    ],
)
def test_missing_targets_are_nan(y):
    np.testing.assert_array_equal(read_target(y, 2), [1.0, np.nan])


def test_wide_targets_of_frames():
    for frame in (
        pd.DataFrame({"a": pd.array([1, None], dtype="Int64"), "b": [3.0, 4.0]}),
        pl.DataFrame({"a": [1, None], "b": [3.0, 4.0]}),
        pa.table({"a": [1, None], "b": [3.0, 4.0]}),
    ):
        np.testing.assert_array_equal(read_target(frame, 2), [[1.0, 3.0], [np.nan, 4.0]])


@pytest.mark.parametrize("y", [["1", "2"], np.array(["1", "2"], dtype=object), pd.Series(["1", "2"])])
def test_text_stays_text_even_where_it_spells_numbers(y):
    assert read_target(y, 2).tolist() == ["1", "2"]


BAD_TARGETS = [
    (3.0, r"y has shape \(\); pass \(n,\) for one target"),
    ([1.0, 2.0, 3.0], r"y has 3 entries but X has 2 rows"),
    ([[1], [1, 2]], r"y is not an array: .* give all its rows the same number of entries"),
    ([10**400, 1], r"y holds a number too large for float64: .* rescale the target"),
    ([1j, 2j], r"Complex data not supported: y is complex"),
    (sp.csr_array(np.eye(2)), r"y is a sparse matrix; pass a dense array"),
    (np.ma.array([1.0, 2.0], mask=[0, 1]), r"y is a masked array with 1 masked entries"),
    (pl.LazyFrame({"a": [1.0, 2.0]}), r"y is a lazy frame"),
    (pd.DataFrame(np.eye(2), columns=["a", "a"]), r"several columns of one name"),
]


@pytest.mark.parametrize(("y", "message"), BAD_TARGETS)
def test_targets_that_are_refused(y, message):
    with pytest.raises(ValueError, match=message):
        read_target(y, 2)


# weights


@pytest.mark.parametrize(
    "weight",
    [[1, 2], np.array([1, 2], dtype=np.int8), pd.Series([1, 2], dtype="Int64"), pl.Series([1, 2]), pa.array([1, 2])],
)
def test_weights_of_every_container(weight):
    np.testing.assert_array_equal(read_weights(weight, (2,)), [1.0, 2.0])
    np.testing.assert_array_equal(read_weights(weight, (2, 2)), [[1.0, 1.0], [2.0, 2.0]])


def test_weights_of_one_number_and_of_cells():
    assert read_weights(2, (2, 3)).tolist() == [[2.0] * 3] * 2
    assert read_weights([True, False], (2,)).tolist() == [1.0, 0.0]
    assert read_weights(pd.DataFrame(np.eye(2)), (2, 2)).tolist() == [[1.0, 0.0], [0.0, 1.0]]


BAD_WEIGHTS = [
    (["a", "b"], r"sample_weight is not numeric: .* pass one number per row"),
    ([1j, 1], r"sample_weight is not numeric"),
    ([1, None], r"sample_weight has a negative, NaN or inf entry"),
    (np.nan, r"sample_weight has a negative, NaN or inf entry"),
    (-1.0, r"sample_weight has a negative, NaN or inf entry"),
    (np.ones((2, 1)), r"Sample weights must be 1D array or scalar: sample_weight has shape \(2, 1\)"),
    ([[1], [1, 2]], r"sample_weight is not an array"),
    (sp.csr_array(np.ones((2, 1))), r"sample_weight is a sparse matrix"),
]


@pytest.mark.parametrize(("weight", "message"), BAD_WEIGHTS)
def test_weights_that_are_refused(weight, message):
    with pytest.raises(ValueError, match=message):
        read_weights(weight, (2,))


# What cannot fit into memory is refused in words before any is taken


def matrix_variate(model):
    n_tasks = 100
    X = np.random.default_rng(0).standard_normal((2 * n_tasks, 3))
    y = X[:, 0] if "Regressor" in type(model).__name__ else np.tile(["no", "yes"], n_tasks)
    return model.fit(X, y, tasks=np.repeat(np.arange(n_tasks), 2))


@pytest.mark.parametrize("model", [bm.MatrixVariateRegressor(), bm.MatrixVariateClassifier()])
def test_relations_of_too_many_tasks(model, monkeypatch):
    """100 tasks take 4 x 8 x 100^2 bytes: as 1e5 tasks do on a machine a million times as large."""
    monkeypatch.setattr(memory, "total_memory", lambda: 319_999)
    with pytest.raises(MemoryError, match="between all pairs of 100 tasks take 0.0 GiB.*neighbours=5"):
        matrix_variate(model)
    assert not hasattr(model, "coef_")


def test_what_fits_is_left_alone(monkeypatch):
    memory.check_memory(1000, "numbers", "none")
    monkeypatch.setattr(memory, "total_memory", lambda: None)
    memory.check_memory(10**30, "numbers", "none")


def test_total_memory_is_that_of_the_machine(monkeypatch):
    with open("/proc/meminfo") as file:
        kilobytes = int(file.readline().split()[1])
    assert memory.total_memory() == pytest.approx(1024 * kilobytes, rel=1e-6)
    monkeypatch.delattr(memory.os, "sysconf")
    assert memory.total_memory() is None
