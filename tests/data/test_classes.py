"""Class labels: any kind in, numbers of sorted classes out, and messages where that cannot be."""

import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp

from bayesmtfs import TaskData
from bayesmtfs.data.classes import (
    as_signs,
    check_two_classes_per_task,
    classes_of,
    match_classes,
    one_versus_rest,
    read_classes,
)


@pytest.mark.parametrize(
    ("y", "classes"),
    [
        (["b", "a", "b"], ["a", "b"]),
        ([True, False, True], [False, True]),
        ([7, 3, 7], [3, 7]),
        ([1.0, 0.0, 1.0], [0.0, 1.0]),
        (np.array([True, False, True], dtype=object), [False, True]),
        (np.array([2**63 + 1, 2**63, 2**63 + 1], dtype=np.uint64), [2**63, 2**63 + 1]),
        (pd.Categorical(["b", "a", "b"], categories=["b", "a"]), ["a", "b"]),
        (pd.Series(["b", "a", "b"], dtype="string"), ["a", "b"]),
        (pd.Series([1, 0, 1], dtype="Int64"), [0, 1]),
        (pd.Series([True, False, True], dtype="boolean"), [False, True]),
        (pl.Series(["b", "a", "b"], dtype=pl.Enum(["b", "a"])), ["a", "b"]),
        (pa.chunked_array([["b"], ["a", "b"]]), ["a", "b"]),
        (pa.array(["b", "a", "b"]).dictionary_encode(), ["a", "b"]),
    ],
)
def test_one_label_per_row(y, classes):
    codes, found = read_classes(y, 3)
    assert codes.tolist() == [1.0, 0.0, 1.0]
    assert found.tolist() == classes
    assert [type(label) for label in found.tolist()] == [type(label) for label in classes]


@pytest.mark.parametrize(
    "Y",
    [
        [["x", None], ["y", "x"]],
        np.array([["x", np.nan], ["y", "x"]], dtype=object),
        np.array([[0.0, np.nan], [1.0, 0.0]]),
        pd.DataFrame({"a": ["x", "y"], "b": pd.array([None, "x"], dtype="string")}),
        pd.DataFrame({"a": [False, True], "b": pd.array([None, False], dtype="boolean")}),
        pd.DataFrame({"a": [0, 1], "b": pd.array([None, 0], dtype="Int64")}),
        pl.DataFrame({"a": [False, True], "b": [None, False]}),
        pa.table({"a": ["x", "y"], "b": [None, "x"]}),
    ],
)
def test_missing_cells_of_the_wide_form(Y):
    codes, classes = read_classes(Y, 2)
    np.testing.assert_array_equal(codes, [[0.0, np.nan], [1.0, 0.0]])
    assert len(classes) == 2


BAD = [
    ([1, "a", 1], r"y has labels of different types \(int, str\); make all of them strings"),
    (np.array([1, "a", 1], dtype=object), r"different types \(int, str\)"),
    ([b"a", b"b", b"a"], r"y has labels of the type bytes; make all of them strings"),
    (np.array([b"a", b"b", b"a"]), r"y has labels of the type bytes"),
    ([Decimal(1), Decimal(2), Decimal(1)], r"y has labels of the type Decimal"),
    ([2**70, 1, 2], r"whole numbers of at most 64 bits"),
    ([datetime.date(2020, 1, 1)] * 3, r"y has labels of the type date"),
    (["a", None, "b"], r"y contains NaN: 1 labels are missing \(first in row 1\); drop those rows"),
    (pd.Series(["a", "b", None], dtype="string"), r"1 labels are missing \(first in row 2\)"),
    ([1.0, np.nan, np.nan], r"2 labels are missing \(first in row 1\)"),
    ([1.0, np.inf, 0.0], r"y contains NaN or inf; drop those rows"),
    ([0.5, 1.2, 3.3], r"y does not hold class labels: Unknown label type: continuous.*Use a regressor"),
    (np.array(1), r"y has shape \(\) but X has 3 rows"),
    (None, r"y has shape \(\) but X has 3 rows"),
    ([1, 0], r"y has shape \(2,\) but X has 3 rows .* pass \(n,\) labels"),
    (np.ones((3, 2, 2)), r"y has shape \(3, 2, 2\) but"),
    (sp.csr_matrix(np.eye(3)), r"y is a sparse matrix; pass a dense array, such as y.toarray\(\)"),
    (np.ma.array([0, 1, 1], mask=[0, 0, 1]), r"y is a masked array with 1 masked entries"),
    (pl.LazyFrame({"a": [0, 1, 1]}), r"y is a lazy frame; call its collect\(\)"),
    (pd.DataFrame(np.eye(3)[:, :2], columns=["a", "a"]), r"several columns of one name \('a'\)"),
]


@pytest.mark.parametrize(("y", "message"), BAD)
def test_errors_say_what_to_do(y, message):
    with pytest.raises(ValueError, match=message):
        read_classes(y, 3)


def test_known_labels_are_found_and_others_are_not():
    known = np.array(["a", "b"])
    assert match_classes(["b", "z", "a"], 3, known).tolist() == [1.0, -1.0, 0.0]
    np.testing.assert_array_equal(match_classes([["b", None], ["a", "b"]], 2, known), [[1.0, np.nan], [0.0, 1.0]])
    assert match_classes([1, 0], 2, np.array([False, True])).tolist() == [1.0, 0.0]
    with pytest.raises(ValueError, match=r"y has labels such as 0 but the classes of fit are \['a', 'b'\]"):
        match_classes([0, 1], 2, known)


def test_one_versus_rest_shares_the_design():
    X = np.arange(8.0).reshape(4, 2)
    data, classes = classes_of(TaskData.from_long(X, ["b", "c", "a", "c"], sample_weight=[1.0, 2.0, 3.0, 4.0]))
    several = one_versus_rest(data, classes)
    assert several.task_names.tolist() == ["a", "b", "c"] and several.shared_design and several.is_complete
    assert several.y.reshape(3, 4).tolist() == [[-1, -1, 1, -1], [1, -1, -1, -1], [-1, 1, -1, 1]]
    assert several.weight.reshape(3, 4).tolist() == [[1.0, 2.0, 3.0, 4.0]] * 3
    wide = TaskData.from_wide(X, several.y.reshape(3, 4).T)
    np.testing.assert_array_equal(several.order, wide.order)
    np.testing.assert_array_equal(several.X, wide.X)


def test_whole_numbers_of_task_data_come_back_as_integers():
    data, classes = classes_of(TaskData.from_long(np.eye(3), [5, -2, 5]))
    assert classes.tolist() == [-2, 5] and classes.dtype == np.int64
    assert as_signs(data).y.tolist() == [1.0, -1.0, 1.0]


def test_many_lone_tasks_are_listed_briefly():
    tasks = np.repeat(np.arange(13), 2)
    data = TaskData.from_long(np.eye(26), np.where(tasks == 12, np.tile([1.0, -1.0], 13), 1.0), tasks)
    with pytest.raises(ValueError, match=r"in 12 of 13 tasks: 0 \(2 rows\), .*, 9 \(2 rows\) and 2 more; two or more"):
        check_two_classes_per_task(data)
