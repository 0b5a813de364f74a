"""Data frames of any library (through narwhals) to a numeric matrix, and the memory of how it was done.

Numeric and boolean columns are taken as they are; a categorical column becomes one 0/1 column per level but the first,
all of one feature group, so that a selector takes or leaves the whole column. The first level, in the order of the
categories, is the reference: a coefficient is the difference of its level from that one, which is known as it is, where
columns for all levels would be known only up to a constant that the intercept takes up. (The column of a single level
stays.) A task in which the reference does not occur knows the levels relative to each other only.

`read_rows` is the reader of whole tables, for `TaskData.from_frame` and the command line: text is a category there, rows
without a target are left out, and everything that keeps the table from being read is said at once.
"""

import numbers
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
from narwhals.exceptions import DuplicateError
from numpy.typing import NDArray

from bayesmtfs.types import BoolArray, FloatArray, IntArray

MOST_LEVELS = 50  # different texts in a column; one with more is rather a name or a remark than a category
FEW_LEVELS = 10  # that a column may have also if most are in one row only
MOST_NAMED = 5  # rows that a message lists


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
    code: Callable[[Any], Any] | None = (
        None  # makes these columns of a frame, as a formula does; None: they are its own
    )

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


def missing_rows(series: nw.Series[Any]) -> BoolArray:
    """(n,) Where a series is null or NaN."""
    null = np.asarray(series.is_null().to_numpy(), dtype=bool)
    return null | np.isnan(_numbers(series)) if series.dtype.is_float() else null


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


# ---------------------------------------------------------------------- whole tables


class TableRows(NamedTuple):
    """Rows of a table that have a target."""

    X: Any  # native frame: features, texts as categories, and the column of the task where there is one
    y: Any  # native series, or a frame with one column per task
    n_left_out: int  # rows without a target


class Words(NamedTuple):
    """How a reader of tables speaks of rows, and the ways out that it names."""

    row: str = "row"
    first_row: int = 0
    absent: bool = True  # whether a feature may be missing throughout a task
    texts: str = "drop it, or convert it to a categorical dtype if each of them is a category"
    kinds: str = "drop it, or turn it into numbers or categories"
    gaps: str = "drop those rows or impute them (a feature may be missing in all rows of a task, not in some)"
    no_task: str = "name the task of those rows, or drop them"
    infinite: str = "put numbers there, or drop those rows"
    gaps_allowed: bool = False  # of features


IN_PYTHON = Words()


def read_rows(
    frame: Any, target: Any, task: Any = None, categories: Sequence[Any] = (), words: Words = IN_PYTHON
) -> TableRows:
    """Take a table apart: columns of text, and those named as categories, become categories.

    ``target`` is the name of a column, or a list of names. A ``ValueError`` lists everything that is wrong.
    """
    table = as_narwhals(frame)
    targets = list(target) if isinstance(target, list | tuple) else [target]
    observed = ~np.logical_and.reduce([missing_rows(table.get_column(name)) for name in targets])
    if not observed.any():
        raise ValueError(f"no row has a value of {', '.join(map(str, targets))}; fill in the targets that are known")
    rows = table.filter(observed.tolist())
    y = rows.select([nw.col(name) for name in targets])
    X = rows.select([nw.col(name) for name in rows.columns if name not in targets])
    texts = {name for name in X.columns if name not in {task, *categories} and _is_text(X.get_column(name))}
    problems = _problems(X, task, texts, np.flatnonzero(observed), words)
    if problems:
        raise ValueError("\n".join(problems))
    X = X.with_columns([X.get_column(name).cast(nw.Categorical()) for name in [*texts, *categories]])
    only = y if isinstance(target, list | tuple) else y.get_column(target)
    return TableRows(X.to_native(), only.to_native(), int((~observed).sum()))


def _is_text(series: nw.Series[Any]) -> bool:
    return isinstance(series.dtype, nw.String)


def _where(rows: BoolArray, numbers: IntArray, words: Words) -> str:
    """Which of the rows that were read, by their numbers in the table."""
    listed = _listed(f"{number + words.first_row}" for number in numbers[rows])
    return f"{rows.sum()} of {len(rows)} rows ({words.row} {listed})"


def _problems(X: nw.DataFrame[Any], task: Any, texts: set[Any], numbers: IntArray, words: Words) -> list[str]:
    """What keeps the features of a table from being read, column by column."""
    found = []
    for series in X.iter_columns():
        text, is_task = series.name in texts, series.name == task
        fact = None if is_task else _too_many_texts(series) if text else _wrong_kind(series)
        if fact is not None:
            found.append(f"column {series.name!r} {fact}; {words.texts if text else words.kinds}")
        gaps = missing_rows(series)
        if not is_task and series.dtype.is_float() and (infinite := np.isinf(_numbers(series))).any():
            found.append(f"column {series.name!r} is infinite in {_where(infinite, numbers, words)}; {words.infinite}")
        if words.gaps_allowed and not is_task:
            continue
        if gaps.any() and words.absent and not is_task:
            gaps = gaps & ~_absent(gaps, None if task is None else X.get_column(task))
        if gaps.any():
            way_out = words.no_task if is_task else words.gaps
            found.append(f"column {series.name!r} is missing in {_where(gaps, numbers, words)}; {way_out}")
    return found


def _listed(items: Iterable[str]) -> str:
    """The first of some items, and how many there are beyond them."""
    named = list(items)
    more = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
    return ", ".join(named[:MOST_NAMED]) + more


def _too_many_texts(series: nw.Series[Any]) -> str | None:
    distinct = series.drop_nulls().unique().to_list()
    if len(distinct) <= (MOST_LEVELS if 2 * len(distinct) <= len(series) else FEW_LEVELS):
        return None
    strange = [text for text in distinct if not _spells_number(text)]
    if 2 * len(strange) < len(distinct):
        return f"holds numbers, but also texts such as {_listed(map(repr, sorted(strange)))}"
    return f"holds {len(distinct)} different texts"


def _spells_number(text: str) -> bool:
    try:
        return float(text) is not None
    except ValueError:
        return False


def _absent(gaps: BoolArray, labels: nw.Series[Any] | None) -> BoolArray:
    """(n,) Rows of tasks in which all entries are missing."""
    if labels is None:
        return np.full(len(gaps), bool(gaps.all()))
    whole: dict[Any, bool] = {}
    tasks = labels.to_list()
    for task, gap in zip(tasks, gaps.tolist(), strict=True):
        whole[task] = whole.get(task, True) and gap
    return np.array([whole[task] for task in tasks])


# ---------------------------------------------------------------------- columns


def learn_encoding(frame: Any) -> Encoding:
    """Decide for every column whether it is a number or a set of levels."""
    columns = list(as_narwhals(frame).iter_columns())
    facts = [f"column {s.name!r} of X {fact}" for s in columns for fact in [_wrong_kind(s)] if fact is not None]
    if facts:
        raise ValueError(
            f"{', '.join(facts)}; drop it, turn it into numbers, or convert it to a categorical dtype to have it expanded "
            "and selected as one group"
        )
    return Encoding(tuple(_learn_column(series) for series in columns))


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


def _wrong_kind(series: nw.Series[Any]) -> str | None:
    """What is wrong with a column that holds neither numbers nor categories; None where it does."""
    dtype: Any = series.dtype
    if _is_categorical(series) or dtype.is_numeric() or isinstance(dtype, nw.Boolean | nw.Date | nw.Datetime):
        return None
    if isinstance(dtype, nw.Object) and _holds_numbers(series):
        return None
    shown = getattr(series.to_native(), "dtype", dtype) if isinstance(dtype, nw.Unknown) else dtype
    return f"is not numeric (dtype {shown})"


def _learn_column(series: nw.Series[Any]) -> Column:
    name: Any = series.name
    if not _is_categorical(series):
        return Column(name, None)
    levels = tuple(levels_in_order(series) or ())
    if not levels:
        raise ValueError(f"column {name!r} of X is categorical but all its entries are missing; drop the column")
    return Column(name, levels)


def _holds_numbers(series: nw.Series[Any]) -> bool:
    return all(is_missing(value) or isinstance(value, numbers.Real | Decimal | np.bool) for value in series.to_list())


def _numbers(series: nw.Series[Any]) -> FloatArray:
    if _is_categorical(series) or isinstance(series.dtype, nw.String):
        raise ValueError(
            f"column {series.name!r} of X was numeric in fit but is {series.dtype} now; "
            "pass the same kind of column as in fit"
        )
    if isinstance(series.dtype, nw.Date | nw.Datetime):
        return _days(series)
    values = series.to_numpy()
    try:
        if values.dtype == object:
            values = np.array([np.nan if is_missing(value) else value for value in values.tolist()], dtype=np.float64)
        return np.asarray(values, dtype=np.float64)
    except (OverflowError, TypeError, ValueError) as error:
        raise ValueError(
            f"column {series.name!r} of X cannot be read as numbers: {error}; pass finite numbers of size up to 1e308"
        ) from error


def _days(series: nw.Series[Any]) -> FloatArray:
    """Dates and times as days since the beginning of 1970, NaN where missing."""
    values = series.to_numpy().astype("datetime64[us]")
    days = values.astype(np.float64) / 86_400e6
    return np.where(np.isnat(values), np.nan, days)


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
