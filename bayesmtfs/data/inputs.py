"""The user's arrays, frames and labels to clean arrays, with errors that say what to do.

Every message names the argument, what came, what is wanted and the way out. Nothing here modifies its input, and
nothing is copied that is already in the right form.
"""

import numbers
import os
from collections.abc import Hashable, Mapping, Sequence, Set
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bayesmtfs.data import frames
from bayesmtfs.data.column_sums import plain_sums
from bayesmtfs.data.frames import Encoding
from bayesmtfs.types import BoolArray, FloatArray, IntArray

# ---------------------------------------------------------------------- dense and CSR

Design = Any  # (n, p) float32 or float64: a C- or F-ordered ndarray, or a CSR matrix


def stack_rows(designs: list[Design]) -> Design:
    """Put designs on top of each other."""
    return sp.vstack(designs, format="csr") if any(sp.issparse(X) for X in designs) else np.concatenate(designs)


def row_span(X: Design, start: int, stop: int) -> Design:
    """Rows start to stop, over the same memory."""
    if not sp.issparse(X):
        return X[start:stop]
    first, last = X.indptr[start], X.indptr[stop]
    parts = (X.data[first:last], X.indices[first:last], X.indptr[start : stop + 1] - first)
    return sp.csr_matrix(parts, shape=(stop - start, X.shape[1]), copy=False)


def times_columns(X: Design, factor: FloatArray) -> Design:
    """Multiply column i by ``factor[i]``."""
    if not sp.issparse(X):
        return X * factor.astype(X.dtype)
    scaled = X.copy()
    scaled.data *= factor.astype(X.dtype)[X.indices]
    return scaled


# ---------------------------------------------------------------------- designs


class DesignTable(NamedTuple):
    """A design as the solvers want it."""

    X: Design
    feature_names: tuple[str, ...] | None  # None: the columns had no names
    encoding: Encoding | None  # how the frame was read; None for an array
    missing: BoolArray | None  # (n, columns), where a frame had nulls; None: nowhere
    sums: FloatArray | None = None  # (2, p) what `plain_sums` found; None: not known


def read_design(X: Any, encoding: Encoding | None = None, allow_missing: bool = False) -> DesignTable:
    """Read a design from an array, a sparse matrix or a data frame; one that was read comes back as it is.

    A frame is read as ``encoding`` says, where it is given. With ``allow_missing`` nulls and NaN stay and are reported.
    """
    if isinstance(X, DesignTable):
        return X
    if frames.is_frame(X):
        return _read_frame(X, encoding, allow_missing)
    matrix = _read_sparse(X) if sp.issparse(X) else _read_array(X)
    _check_shape(matrix.shape)
    allow_missing = allow_missing and not sp.issparse(X)
    sums = plain_sums(matrix)
    if sums is None or not np.isfinite(sums).all():  # which squares of large numbers are not, either
        sums = None
        _check_finite(matrix, allow_missing)
    missing = np.isnan(matrix) if allow_missing else None
    return DesignTable(matrix, None, None, missing if missing is not None and missing.any() else None, sums)


def _read_frame(frame: Any, encoding: Encoding | None, allow_missing: bool) -> DesignTable:
    _check_shape(frames.as_narwhals(frame).shape)
    encoding = frames.learn_encoding(frame) if encoding is None else encoding
    matrix, missing = frames.encode(frame, encoding)
    if missing.any() and not allow_missing:
        gaps = [
            f"row {missing[:, place].argmax()} of column {encoding.columns[place].name!r}"
            for place in np.flatnonzero(missing.any(axis=0))
        ]
        raise ValueError(
            f"X has missing values: contains NaN in {', '.join(gaps)}; drop those rows or impute them first"
        )
    _check_finite(matrix, allow_missing)
    names = tuple(encoding.feature_names) if encoding.has_names else None
    return DesignTable(matrix, names, encoding, missing if missing.any() else None)


def _read_sparse(X: Any) -> Any:
    check_two_axes(X)
    _refuse_complex(X, "X")
    dtype = np.float32 if X.dtype == np.float32 else np.float64
    matrix = X.tocsr()
    if not matrix.has_canonical_format:
        matrix = matrix.copy() if matrix is X else matrix
        matrix.sum_duplicates()
    return matrix.astype(dtype, copy=False)


def _read_array(X: Any) -> NDArray[Any]:
    array = as_array(X, "X")
    _refuse_complex(array, "X")
    check_two_axes(array)
    if array.dtype in (np.float32, np.float64):
        return array
    try:
        if array.dtype.kind in "mM":
            raise TypeError("times are not numbers")
        return array.astype(np.float64)
    except OverflowError as error:
        raise ValueError(f"X holds a number too large for float64: {error}; rescale its column") from error
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(
            f"X is not numeric (dtype {array.dtype}): {error}; turn text into numbers, or pass a data frame with "
            "categorical columns"
        ) from error


def _refuse_complex(array: Any, argument: str) -> None:
    if array.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: {argument} is complex; pass real and imaginary parts as columns")


def as_array(values: Any, argument: str) -> NDArray[Any]:
    """Values (also of a frame or series) as an array of any type; what NumPy would misread is refused."""
    if type(values) is np.ndarray:
        return values
    if frames.is_frame(values):
        return frames.as_narwhals(values).to_numpy()
    if sp.issparse(values):
        raise ValueError(f"{argument} is a sparse matrix; pass a dense array, such as {argument}.toarray()")
    if frames.is_lazy(values):
        raise ValueError(f"{argument} is a lazy frame; call its collect() and pass the result")
    if np.ma.is_masked(values):
        raise ValueError(
            f"{argument} is a masked array with {np.ma.count_masked(values)} masked entries; drop them, or fill them "
            "with filled() first (NaN marks an unobserved cell of a wide target)"
        )
    series = nw.from_native(values, allow_series=True, pass_through=True)
    try:
        return series.to_numpy() if isinstance(series, nw.Series) else np.asarray(values)
    except ValueError as error:
        raise ValueError(
            f"{argument} is not an array: {error}; give all its rows the same number of entries"
        ) from error


def check_two_axes(X: Any) -> None:
    """Refuse a design that is not a table."""
    shape = X.shape if sp.issparse(X) else np.asarray(X).shape
    if len(shape) != 2:
        raise ValueError(
            f"Expected 2D array, got {len(shape)}D array instead: X has shape {shape}; pass one row per observation "
            "and one column per feature. Reshape your data with X.reshape(-1, 1) for one feature, X.reshape(1, -1) "
            "for one observation"
        )


def _check_shape(shape: tuple[int, int]) -> None:
    for size, unit, what in zip(shape, ("sample", "feature"), ("rows", "feature columns"), strict=True):
        if size == 0:
            raise ValueError(
                f"Found array with 0 {unit}(s) (shape={shape}) while a minimum of 1 is required: X has no {what}; pass at "
                "least one"
            )


def all_finite(values: NDArray[Any]) -> bool:
    """Whether all of some floating point numbers are finite."""
    # A finite sum is proof enough and takes no memory; a sum can also overflow, so a failure is looked at closely.
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(values.sum(dtype=np.float64)) or np.isfinite(values).all())


def _check_finite(matrix: Any, allow_missing: bool = False) -> None:
    values = matrix.data if sp.issparse(matrix) else matrix
    if all_finite(values):
        return
    for what, bad in (("inf", np.isinf), ("NaN", np.isnan)):
        if bad(values).any() and not (allow_missing and what == "NaN"):
            entries = sp.coo_matrix(matrix)
            first = int(np.argmax(bad(entries.data)))
            raise ValueError(
                f"X contains {what} (row {entries.row[first]}, column {entries.col[first]}); drop or impute such rows "
                "first, X must hold finite numbers"
            )


class Labels(NamedTuple):
    """Task labels as an index into sorted names."""

    codes: IntArray  # (n,)
    names: NDArray[Any]  # (m,)


def read_labels(tasks: Any, n_rows: int, argument: str = "tasks") -> Labels:
    """Read one task label per row; names are sorted (categorical: category order; unsortable: first appearance)."""
    values, ordered = _checked_labels(tasks, n_rows, argument)
    if ordered is not None:
        names = as_labels(ordered)
        return Labels(_lookup(values, names), names)
    if values.dtype.kind in "iu" and len(values) > 0 and np.all(values[1:] >= values[:-1]):
        first = np.concatenate([[0], 1 + np.flatnonzero(values[1:] != values[:-1])])  # in order already, as often
        return Labels(np.repeat(np.arange(len(first)), np.diff(first, append=len(values))), values[first])
    if values.dtype != object:
        names, index = np.unique(values, return_inverse=True)
        return Labels(index.astype(np.int64), names)
    distinct = list(dict.fromkeys(values.tolist()))
    try:
        distinct.sort()
    except TypeError:
        pass  # labels that have no order keep the order of their first appearance
    names = as_labels(distinct)
    return Labels(_lookup(values, names), names)


def match_labels(tasks: Any, n_rows: int, known: NDArray[Any], argument: str = "tasks") -> IntArray:
    """Read task labels against known names; -1 where a label is not known."""
    values, _ = _checked_labels(tasks, n_rows, argument)
    return _lookup(values, known)


def describe_unknown(values: Any, index: IntArray, known: NDArray[Any]) -> str:
    """Say which labels are not known, and which are."""
    labels, _ = _label_values(values, "tasks")
    unknown = list(dict.fromkeys(labels[index < 0].tolist()))
    return f"{_shortened(unknown)}; known tasks are {_shortened(known.tolist())}"


def _shortened(items: Sequence[Any], most: int = 20) -> str:
    shown = ", ".join(repr(item) for item in items[:most])
    return shown if len(items) <= most else f"{shown} and {len(items) - most} more"


def _label_values(tasks: Any, argument: str) -> tuple[NDArray[Any], list[Any] | None]:
    """Labels as a 1-D array whose entries keep their own types, and the order of a categorical."""
    if hasattr(tasks, "categories") and hasattr(tasks, "codes"):  # a bare pandas.Categorical
        seen = set(tasks)
        return as_labels(list(tasks)), [c for c in tasks.categories if c in seen]
    if frames.is_frame(tasks):
        names = frames.column_names(tasks)
        if len(names) != 1:
            raise ValueError(f"{argument} is a data frame with {len(names)} columns; pass one column of labels")
        tasks = frames.column_values(tasks, names[0])
    series = None if isinstance(tasks, np.ndarray) else nw.from_native(tasks, allow_series=True, pass_through=True)
    if isinstance(series, nw.Series):
        values = series.to_list() if not series.dtype.is_numeric() else series.to_numpy()
        return as_labels(values), frames.levels_in_order(series)
    if isinstance(tasks, str | bytes | Set | Mapping) or not hasattr(tasks, "__len__"):
        raise ValueError(f"{argument} is {tasks!r}; pass a sequence with one task label per row")
    return as_labels(tasks.to_pylist() if hasattr(tasks, "to_pylist") else tasks), None  # to_pylist: a bare Arrow array


def as_labels(values: Any) -> NDArray[Any]:
    """Labels as a 1-D array that keeps their type: ints stay ints, and a mixture becomes an array of objects."""
    if isinstance(values, np.ndarray):
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        if values.ndim != 1:
            raise ValueError(f"tasks has shape {values.shape}; pass one task label per row, a 1-D sequence")
        if values.dtype != object:
            return values
    items = [item.item() if isinstance(item, np.generic) else item for item in values]
    plain = any(all(type(item) is kind for item in items) for kind in (bool, str))
    if items and (plain or all(isinstance(item, numbers.Real) and not isinstance(item, bool) for item in items)):
        typed = np.asarray(items)
        if typed.tolist() == items:  # not so for whole numbers that would be rounded to floats
            return typed
    array = np.empty(len(items), dtype=object)
    array[:] = items
    return array


def missing_entries(values: NDArray[Any]) -> BoolArray:
    """Of the shape of values: where they are None, NaN, NaT or pandas' NA."""
    if values.dtype == object:
        return np.array([frames.is_missing(value) for value in values.flat], dtype=bool).reshape(values.shape)
    return np.isnan(values) if values.dtype.kind in "fmM" else np.zeros(values.shape, dtype=bool)


def _checked_labels(labels: Any, n: int, argument: str, unit: str = "row") -> tuple[NDArray[Any], list[Any] | None]:
    """One label for each of n rows or columns, none of them missing, and the order of a categorical."""
    values, ordered = _label_values(labels, argument)
    if len(values) != n:
        raise ValueError(f"{argument} has {len(values)} entries but X has {n} {unit}s; pass one label per {unit}")
    unhashable = [item for item in values if not isinstance(item, Hashable)] if values.dtype == object else []
    if unhashable:
        raise ValueError(f"{argument} has the entry {unhashable[0]!r}, which is not hashable; use a string or number")
    missing = missing_entries(values)
    if missing.any():
        raise ValueError(
            f"{argument} has {int(missing.sum())} missing labels (first in {unit} {int(np.argmax(missing))}); "
            f"drop those {unit}s or give them a label of their own"
        )
    return values, ordered


def _lookup(values: NDArray[Any], names: NDArray[Any]) -> IntArray:
    position: Mapping[Any, int] = {name: number for number, name in enumerate(names.tolist())}
    if values.dtype == object:
        return np.array([position.get(value, -1) for value in values.tolist()], dtype=np.int64)
    distinct, inverse = np.unique(values, return_inverse=True)
    return np.array([position.get(value, -1) for value in distinct.tolist()], dtype=np.int64)[inverse]


def read_target(y: Any, n_rows: int, argument: str = "y") -> NDArray[Any]:
    """Read a target: (n,) or (n, m); numbers become float64, class labels are kept (also those that spell numbers)."""
    array = as_array(y, argument)
    _refuse_complex(array, argument)
    if array.ndim not in (1, 2):
        raise ValueError(f"{argument} has shape {array.shape}; pass (n,) for one target, (n, m) for one per task")
    if array.shape[0] != n_rows:
        raise ValueError(
            f"{argument} has {array.shape[0]} entries but X has {n_rows} rows (inconsistent numbers of samples); "
            "pass one target per row"
        )
    if array.dtype.kind in "fiu":
        return array.astype(np.float64, copy=False)
    return _numbers_or_labels(array, argument) if array.dtype == object else array


def _numbers_or_labels(array: NDArray[Any], argument: str) -> NDArray[Any]:
    """Objects as float64 where all are numbers or missing; else as they are."""
    if any(isinstance(value, str | bytes) for value in array.flat):
        return array
    filled = np.where(missing_entries(array), np.nan, array)
    try:
        return filled.astype(np.float64)
    except (TypeError, ValueError):
        return array
    except OverflowError as error:
        raise ValueError(f"{argument} holds a number too large for float64: {error}; rescale the target") from error


def check_target_finite(y: FloatArray, argument: str = "y", missing_allowed: bool = False) -> None:
    """Refuse inf, and NaN too unless it stands for an unobserved cell."""
    bad = np.isinf(y) if missing_allowed else ~np.isfinite(y)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        what = "inf" if np.isinf(y[where]) else "NaN"
        raise ValueError(
            f"{argument} contains {what} (at {where[0] if len(where) == 1 else where}); drop those rows first "
            "(in the wide form, NaN in Y marks an unobserved cell)"
        )


def read_weights(sample_weight: Any, shape: tuple[int, ...]) -> FloatArray | None:
    """Read sample weights of the target's shape, or one per row; None stays None."""
    if sample_weight is None:
        return None
    weight = as_array(sample_weight, "sample_weight")
    try:
        weight = weight.astype(np.float64, casting="same_kind" if weight.dtype.kind == "c" else "unsafe", copy=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"sample_weight is not numeric: {error}; pass one number per row") from error
    if isinstance(sample_weight, numbers.Real):
        weight = np.full(shape, weight)
    wide = len(shape) == 2
    if weight.shape == shape[:1] and wide:
        weight = np.broadcast_to(weight[:, None], shape)
    if weight.shape != shape:
        rule = "" if wide or weight.ndim == 1 else "Sample weights must be 1D array or scalar: "
        wanted = f"({shape[0]},) or {shape}" if wide else f"({shape[0]},)"
        raise ValueError(f"{rule}sample_weight has shape {weight.shape}, wanted {wanted}; pass one weight per row")
    if not np.isfinite(weight).all() or (weight < 0).any():
        raise ValueError("sample_weight has a negative, NaN or inf entry; weights must be finite and at least 0")
    return weight


def read_groups(groups: Any, encoding: Encoding | None, n_columns: int) -> IntArray | None:
    """Feature groups as (p,) integers; None where every feature is its own group.

    The user's groups are one label per column of X; the levels of a categorical column always stay together.
    """
    if groups is None:
        return None if encoding is None or not encoding.has_categories else encoding.column_index
    values, _ = _checked_labels(groups, n_columns, "groups", unit="column")
    if values.dtype.kind in "iu":
        _, seen, number = np.unique(values, return_index=True, return_inverse=True)
        labels = np.argsort(np.argsort(seen))[number]  # in the order of their first appearance
    else:
        first: dict[Any, int] = {}
        labels = np.array([first.setdefault(value, len(first)) for value in values.tolist()], dtype=np.int64)
    index = labels if encoding is None else labels[encoding.column_index]
    return None if len(np.unique(index)) == len(index) else index


# ---------------------------------------------------------------------- names


def numbered_names(count: int) -> NDArray[np.str_]:
    """(count,) Names ``x0, x1, ...``, written digit by digit: a hundred thousand strings of Python take longer than a fit.

    Examples
    --------
    >>> numbered_names(3).tolist()
    ['x0', 'x1', 'x2']
    """
    most = len(str(max(count - 1, 0)))
    letters = np.zeros((count, 1 + most), dtype=np.uint32)  # code points
    letters[:, 0] = ord("x")
    for size in range(1, most + 1):  # numbers with so many digits
        stop = min(10**size, count)
        rest = np.arange(10 ** (size - 1) if size > 1 else 0, stop, dtype=np.uint32)
        for place in range(size, 0, -1):
            shorter = rest // np.uint32(10)
            letters[stop - len(rest) : stop, place] = rest - np.uint32(10) * shorter + np.uint32(ord("0"))
            rest = shorter
    return letters.view(f"U{1 + most}")[:, 0]


NO_WEIGHT = "all weights of task {task} are zero; drop the task or give it some weight"
NO_TARGET = "task {task} has no observed target: its column of Y is all NaN; drop the column"


def read_task_names(task_names: Sequence[Any] | None, n_tasks: int) -> list[Any]:
    """One name for each task; numbers where there are none."""
    names = list(range(n_tasks) if task_names is None else task_names)
    if len(names) != n_tasks:
        raise ValueError(f"task_names has {len(names)} entries for {n_tasks} tasks; pass one name per task")
    repeated = [name for place, name in enumerate(names) if name in names[:place]]
    if repeated:
        raise ValueError(f"task_names has {repeated[0]!r} twice; give every task a name of its own")
    return names


def check_no_empty_task(filled: BoolArray, names: NDArray[Any], reason: str) -> None:
    """Refuse a task without observations; ``filled`` says which tasks have some."""
    if not filled.all():
        raise ValueError(reason.format(task=repr(names.tolist()[int(np.argmin(filled))])))


# ---------------------------------------------------------------------- memory


def total_memory() -> int | None:
    """Bytes of memory that this machine has; None where that is not known."""
    return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")) if hasattr(os, "sysconf") else None


def check_memory(needed: int, what: str, way_out: str) -> None:
    """Raise a ``MemoryError`` where more bytes are needed than the machine has: an error in words, not a killed process."""
    total = total_memory()
    if total is not None and needed > total:
        raise MemoryError(f"{what} take {needed / 2**30:.1f} GiB, more than this machine has; {way_out}")
