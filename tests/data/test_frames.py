"""Frames of every library: the same numbers, the same levels, the same complaints."""

from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp

from bayesmtfs.data.frames import (
    as_narwhals,
    encode,
    is_frame,
    is_lazy,
    is_missing,
    learn_encoding,
    levels_in_order,
)


def read(frame):
    return encode(frame, learn_encoding(frame))


NUMBERS = [
    pd.DataFrame({"a": pd.array([1, None, 3], dtype="Int64")}),
    pd.DataFrame({"a": pd.array([1, None, 3], dtype="Float32")}),
    pd.DataFrame({"a": pd.array([1, None, 3], dtype="int64[pyarrow]")}),
    pd.DataFrame({"a": pd.Series([1, None, 3.0], dtype=object)}),
    pd.DataFrame({"a": pd.Series([1, pd.NA, 3], dtype=object)}),
    pd.DataFrame({"a": pd.Series([Decimal(1), None, Decimal(3)], dtype=object)}),
    pl.DataFrame({"a": [1, None, 3]}),
    pl.DataFrame({"a": [1.0, None, 3.0]}, schema={"a": pl.Float32}),
    pl.DataFrame({"a": [Decimal(1), None, Decimal(3)]}),
    pa.table({"a": pa.chunked_array([[1], [None, 3]])}),
]


@pytest.mark.parametrize("frame", NUMBERS)
def test_numbers_with_nulls(frame):
    matrix, missing = read(frame)
    np.testing.assert_array_equal(matrix[:, 0], [1.0, np.nan, 3.0])
    assert missing[:, 0].tolist() == [False, True, False]


BOOLEANS = [
    pd.DataFrame({"a": pd.array([True, None, False], dtype="boolean")}),
    pd.DataFrame({"a": pd.array([True, None, False], dtype="bool[pyarrow]")}),
    pd.DataFrame({"a": pd.Series([True, None, False], dtype=object)}),
    pd.DataFrame({"a": pd.Series([np.True_, None, np.False_], dtype=object)}),
    pl.DataFrame({"a": [True, None, False]}),
    pa.table({"a": [True, None, False]}),
]


@pytest.mark.parametrize("frame", BOOLEANS)
def test_booleans_with_nulls(frame):
    matrix, missing = read(frame)
    np.testing.assert_array_equal(matrix[:, 0], [1.0, np.nan, 0.0])
    assert missing[:, 0].tolist() == [False, True, False]


CATEGORIES = [
    (pd.Series(pd.Categorical(["u", "v", None], categories=["v", "w", "u"])), ["v", "u"]),
    (pl.Series(["u", "v", None], dtype=pl.Enum(["v", "w", "u"])), ["v", "u"]),
    (pl.Series(["v", "u", None], dtype=pl.Categorical), ["u", "v"]),
    (pa.chunked_array([pa.array(["v", "u", None]).dictionary_encode()]), ["u", "v"]),
    (pd.Series(pd.Categorical([3, 1, None])), [1, 3]),
]


@pytest.mark.parametrize(("series", "levels"), CATEGORIES)
def test_levels_that_occur_in_their_order(series, levels):
    library = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}
    frame = library[type(series).__module__.split(".")[0]]({"größe 🎉": series, "n": [0.0, 1.0, 2.0]})
    encoding = learn_encoding(frame)
    assert encoding.columns[0].levels == tuple(levels)
    assert encoding.feature_names == [f"größe 🎉[{level}]" for level in levels[1:]] + [
        "n"
    ]  # the first is the reference
    assert encoding.column_index.tolist() == [0, 1]
    matrix, missing = encode(frame, encoding)
    assert missing[:, 0].tolist() == [False, False, True] and not missing[:, 1].any()
    assert sorted(matrix[:2, 0].tolist()) == [0.0, 1.0] and np.isnan(matrix[2, 0])


def test_a_single_level_keeps_its_column():
    frame = pd.DataFrame({"kind": pd.Categorical(["a", "a"])})
    encoding = learn_encoding(frame)
    assert encoding.feature_names == ["kind[a]"]
    assert encode(frame, encoding)[0].tolist() == [[1.0], [1.0]]


def test_a_series_of_another_kind_has_no_levels():
    frame = as_narwhals(pl.DataFrame({"text": ["x"], "number": [1], "kind": pl.Series(["a"], dtype=pl.Categorical)}))
    assert [levels_in_order(frame.get_column(name)) for name in frame.columns] == [None, None, ["a"]]


BAD = [
    (pd.DataFrame({"a": pd.to_timedelta([1])}), r"column 'a' of X is not numeric \(dtype Duration"),
    (pd.DataFrame({"a": ["x"]}), r"column 'a' of X is not numeric \(dtype String\); drop it, turn it into numbers"),
    (pd.DataFrame({"a": pd.Series([1, "x"], dtype=object)}), r"column 'a' of X is not numeric \(dtype Object\)"),
    (pd.DataFrame({"a": [1 + 2j]}), r"column 'a' of X is not numeric \(dtype complex128\)"),
    (pd.DataFrame.sparse.from_spmatrix(sp.eye_array(2)), r"column 0 of X is not numeric \(dtype Sparse\[float64"),
    (
        pd.DataFrame({"a": pd.Series([10**400], dtype=object)}),
        r"column 'a' of X cannot be read as numbers: int too large",
    ),
    (pl.DataFrame({"a": [[1, 2]]}), r"column 'a' of X is not numeric \(dtype List"),
    (pl.DataFrame({"a": [None]}), r"column 'a' of X is not numeric \(dtype Null\)"),
    (pa.table({"a": pa.nulls(1)}), r"column 'a' of X is not numeric"),
    (pd.DataFrame({"a": pd.Categorical([None], categories=["u"])}), r"'a' of X is categorical but all its entries"),
    (
        pd.DataFrame(np.eye(3), columns=["b", "a", "b"]),
        r"several columns of one name \('b'\); give every column its own",
    ),
]


@pytest.mark.parametrize(("frame", "message"), BAD)
def test_errors_say_what_to_do(frame, message):
    with pytest.raises(ValueError, match=message):
        read(frame)


def test_a_later_frame_is_read_as_the_first():
    encoding = learn_encoding(pd.DataFrame({"n": [1.0], "c": pd.Categorical(["u"])}))
    polars = pl.DataFrame({"c": ["u"], "n": [2]}, schema={"c": pl.Categorical, "n": pl.Int8})
    assert encode(polars, encoding)[0].tolist() == [[2.0, 1.0]]
    with pytest.raises(ValueError, match=r"column 'n' of X was numeric in fit but is String now; pass the same kind"):
        encode(pd.DataFrame({"n": ["1"], "c": pd.Categorical(["u"])}), encoding)
    with pytest.raises(
        ValueError, match=r"column 'c' of X has the level 'w', which was not there in fit; known levels"
    ):
        encode(pd.DataFrame({"n": [1.0], "c": pd.Categorical(["w"])}), encoding)


def test_float32_is_kept_where_all_numbers_are():
    narrow = pd.DataFrame({"a": np.float32([1.5]), "c": pd.Categorical(["u"])})
    assert read(narrow)[0].dtype == np.float32
    assert read(narrow.assign(b=[1.0]))[0].dtype == np.float64


def test_what_is_a_frame():
    assert is_frame(pd.DataFrame()) and is_frame(pl.DataFrame()) and is_frame(pa.table({}))
    for other in (pl.LazyFrame(), pd.Series([1.0]), np.eye(2), sp.eye_array(2), [[1.0]], None, "frame"):
        assert not is_frame(other)
    assert is_lazy(pl.LazyFrame()) and not is_lazy(pl.DataFrame()) and not is_lazy(None)


def test_what_is_missing():
    for value in (None, np.nan, float("nan"), np.float32("nan"), pd.NA, pd.NaT, np.datetime64("NaT", "D")):
        assert is_missing(value)
    for value in (0, "", False, "NaN", (), ("a", None), [None], np.array([np.nan, 1.0]), np.inf):
        assert not is_missing(value)
