"""Data frames of any library (through narwhals) to a numeric matrix, and the memory of how it was done.

Numeric and boolean columns are taken as they are; a categorical column becomes one 0/1 column per level but the first,
all of one feature group, so that a selector takes or leaves the whole column. The first level, in the order of the
categories, is the reference: a coefficient is the difference of its level from that one, which is known as it is, where
columns for all levels would be known only up to a constant that the intercept takes up. (The column of a single level
stays.) A task in which the reference does not occur knows the levels relative to each other only.
"""

import numbers
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
from narwhals.exceptions import DuplicateError
from numpy.typing import NDArray

from bayesmtfs.types import FloatArray, IntArray


class Column(NamedTuple):
    """How one column of a frame is read."""

    name: Any  # as the frame has it: a string, but pandas allows numbers too
    levels: tuple[Any, ...] | None  # None: a number; else the levels of a categorical column, in order

    @property
    def coded_levels(self) -> tuple[Any, ...]:
        """Levels with a feature of their own: all but the first, which is the reference."""
        levels = self.levels or ()
        return levels[1:] or levels

    @property
    def feature_names(self) -> list[str]:
        """Names of the features this column becomes."""
        return [str(self.name)] if self.levels is None else [f"{self.name}[{level}]" for level in self.coded_levels]


class Encoding(NamedTuple):
    """How a whole frame is read: learned once, applied to every later frame."""

    columns: tuple[Column, ...]

    @property
    def feature_names(self) -> list[str]:
        """Names of all features after expansion."""
        return [name for column in self.columns for name in column.feature_names]

    @property
    def has_names(self) -> bool:
        """Whether the columns are named by strings; numbers are places, not names, as in scikit-learn."""
        return all(isinstance(column.name, str) for column in self.columns)

    @property
    def column_index(self) -> IntArray:
        """(p,) For each feature, the number of the column it comes from."""
        return np.repeat(np.arange(len(self.columns)), [len(column.feature_names) for column in self.columns])

    @property
    def has_categories(self) -> bool:
        """Whether any column is categorical."""
        return any(column.levels is not None for column in self.columns)


def is_frame(X: object) -> bool:
    """Whether X is an eager data frame of a library that narwhals knows."""
    return isinstance(_wrapped(X), nw.DataFrame)


def is_lazy(X: object) -> bool:
    """Whether X is a frame that has not been computed yet."""
    return isinstance(_wrapped(X), nw.LazyFrame)


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, NaT or pandas' NA."""
    try:
        return value is None or not value == value
    except TypeError:  # pandas' NA: its comparison is neither true nor false
        return True
    except ValueError:  # an array has no single answer, and is not a missing value
        return False


def column_names(frame: Any) -> list[Any]:
    """Column names of a native frame."""
    return list(as_narwhals(frame).columns)


def as_narwhals(frame: Any) -> nw.DataFrame[Any]:
    """Wrap a native frame."""
    wrapped: nw.DataFrame[Any] = _wrapped(frame)
    return wrapped


def _wrapped(X: Any) -> Any:
    if isinstance(X, np.ndarray | list | tuple):  # no need to ask
        return X
    try:
        return nw.from_native(X, pass_through=True)
    except DuplicateError as error:
        twice = ", ".join(repr(name) for name in dict.fromkeys(X.columns) if list(X.columns).count(name) > 1)
        raise ValueError(
            f"a data frame has several columns of one name ({twice}); give every column its own name, features and "
            "tasks are told apart by them"
        ) from error


def take_columns(frame: Any, names: Sequence[Any]) -> Any:
    """Keep the named columns of a native frame."""
    return as_narwhals(frame).select([nw.col(name) for name in names]).to_native()


def with_columns(frame: Any, names: Sequence[Any]) -> Any:
    """Give a native frame the named columns, in that order; those it does not have are NaN."""
    wrapped = as_narwhals(frame)
    new = [name for name in names if name not in wrapped.columns]
    wrapped = wrapped.with_columns([nw.lit(float("nan")).alias(name) for name in new]) if new else wrapped
    rest = [name for name in wrapped.columns if name not in set(names)]
    return wrapped.select([nw.col(name) for name in [*names, *rest]]).to_native()


def column_values(frame: Any, name: Any) -> Any:
    """One column of a native frame, as a native series."""
    return as_narwhals(frame).get_column(name).to_native()


def learn_encoding(frame: Any) -> Encoding:
    """Decide for every column whether it is a number or a set of levels."""
    return Encoding(tuple(_learn_column(series) for series in as_narwhals(frame).iter_columns()))


def encode(frame: Any, encoding: Encoding) -> tuple[FloatArray | NDArray[np.float32], NDArray[np.bool_]]:
    """Turn a frame into a matrix (n, p), float32 where all numeric columns are, and say where columns have nulls or NaN.

    The second array is (n, number of columns); such entries of the matrix are NaN.
    """
    wrapped = as_narwhals(frame)
    numeric = [wrapped.get_column(c.name) for c in encoding.columns if c.levels is None]
    narrow = bool(numeric) and all(s.dtype == nw.Float32 for s in numeric)
    matrix: Any = np.empty((len(wrapped), len(encoding.feature_names)), dtype=np.float32 if narrow else np.float64)
    missing = np.zeros((len(wrapped), len(encoding.columns)), dtype=bool)
    start = 0
    for number, column in enumerate(encoding.columns):
        series = wrapped.get_column(column.name)
        block = _numbers(series)[:, None] if column.levels is None else _indicators(series, column)
        missing[:, number] = np.isnan(block[:, 0])
        matrix[:, start : start + block.shape[1]] = block
        start += block.shape[1]
    return matrix, missing


def levels_in_order(series: nw.Series[Any]) -> list[Any] | None:
    """Levels that occur in a categorical series, in category order; None for a series of another kind.

    A fixed order is the one declared (pandas' categories, polars' Enum); polars' open Categorical declares none, and
    its levels are sorted.
    """
    if not _is_categorical(series):
        return None
    native = series.to_native()
    declared = getattr(getattr(native, "cat", None), "categories", None)
    if declared is None and isinstance(series.dtype, nw.Enum):
        declared = series.dtype.categories
    seen = set(series.drop_nulls().unique().to_list())
    return sorted(seen) if declared is None else [level for level in list(declared) if level in seen]


def _is_categorical(series: nw.Series[Any]) -> bool:
    return isinstance(series.dtype, (nw.Categorical, nw.Enum))


def _learn_column(series: nw.Series[Any]) -> Column:
    name: Any = series.name
    if _is_categorical(series):
        levels = tuple(levels_in_order(series) or ())
        if not levels:
            raise ValueError(f"column {name!r} of X is categorical but all its entries are missing; drop the column")
        return Column(name, levels)
    if series.dtype.is_numeric() or isinstance(series.dtype, nw.Boolean):
        return Column(name, None)
    if isinstance(series.dtype, nw.Object) and _holds_numbers(series):
        return Column(name, None)
    native = series.to_native()
    dtype = getattr(native, "dtype", series.dtype) if isinstance(series.dtype, nw.Unknown) else series.dtype
    raise ValueError(
        f"column {name!r} of X is not numeric (dtype {dtype}); drop it, turn it into numbers, or convert it "
        "to a categorical dtype to have it expanded and selected as one group"
    )


def _holds_numbers(series: nw.Series[Any]) -> bool:
    return all(is_missing(value) or isinstance(value, numbers.Real | Decimal | np.bool) for value in series.to_list())


def _numbers(series: nw.Series[Any]) -> FloatArray:
    if _is_categorical(series) or isinstance(series.dtype, nw.String):
        raise ValueError(
            f"column {series.name!r} of X was numeric in fit but is {series.dtype} now; "
            "pass the same kind of column as in fit"
        )
    values = series.to_numpy()
    try:
        if values.dtype == object:
            values = np.array([np.nan if is_missing(value) else value for value in values.tolist()], dtype=np.float64)
        return np.asarray(values, dtype=np.float64)
    except (OverflowError, TypeError, ValueError) as error:
        raise ValueError(
            f"column {series.name!r} of X cannot be read as numbers: {error}; pass finite numbers of size up to 1e308"
        ) from error


def _indicators(series: nw.Series[Any], column: Column) -> FloatArray:
    assert column.levels is not None
    position = {level: number for number, level in enumerate(column.levels)}
    codes = np.array([_code(value, position, column) for value in series.to_list()], dtype=np.float64)
    block = (codes[:, None] == [position[level] for level in column.coded_levels]).astype(np.float64)
    block[np.isnan(codes)] = np.nan
    return block


def _code(value: Any, position: dict[Any, int], column: Column) -> float:
    if is_missing(value):
        return np.nan
    if value not in position:
        raise ValueError(
            f"column {column.name!r} of X has the level {value!r}, which was not there in fit; "
            f"known levels are {list(position)}"
        )
    return position[value]
