r"""Per-task sufficient statistics of the squared loss, which add and merge, and from which every such fit can be made.

For a task with rows ``z_i = (x_i, y_i)`` and weights ``c_i`` kept are the total weight, the weighted mean and the
scatter around it

.. math::

   n = \sum_i c_i, \qquad \mu = \frac1n \sum_i c_i z_i, \qquad S = \sum_i c_i (z_i - \mu)(z_i - \mu)^\top ,

whose merger of two parts is ``S = S_1 + S_2 + (n_1 n_2 / n) (mu_1 - mu_2)(mu_1 - mu_2)'`` (Chan, Golub and LeVeque 1983,
The American Statistician 37: no cancellation, however far the data are from 0). ``X'X``, ``X'y``, ``y'y`` and the sums
follow from them.

Any weighted data with the same n, mu and S have the same squared loss at every W and b. `Moments.to_task_data` makes the
smallest such data: the pairs ``mu +- r_k``, with ``r_k`` the scaled eigenvectors of S, each with the weight
``n / (2 rank)``. So all routes of the squared loss fit from moments what they fit from the rows.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bayesmtfs.data import summaries
from bayesmtfs.data.inputs import check_memory, numbered_names, read_labels
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.progress import Progress
from bayesmtfs.types import BoolArray, DataWarning, FloatArray, IntArray, warn

__all__ = ["Moments", "from_arrays", "from_batches", "from_dask", "from_parquet", "from_summary"]

BATCH_ROWS = 16_384
FAN_IN = 8  # results of dask's workers that are added in one step
RANK_TOLERANCE = 1e-14  # of the largest eigenvalue: what is rounding in the scatter


@dataclass(frozen=True, eq=False, repr=False)
class Moments:
    """Sufficient statistics of m tasks over p features; ``a + b`` merges two parts of the same data.

    Attributes
    ----------
    task_names : (m,) labels, in the order of `TaskData`
    feature_names : (p,) names
    totals : (m,) total weight of each task
    n_rows : (m,) rows of each task
    means : (m, p + 1) weighted means of the features and the target
    scatters : (m, p + 1, p + 1) weighted scatter around them
    present : (p, m) whether a task has a feature; None where all have all
    wide : whether the tasks are columns of one table, quantities of their own, as in the wide form of ``fit``

    Examples
    --------
    >>> import numpy as np
    >>> from bayesmtfs import moments
    >>> X, y = np.arange(12.0).reshape(6, 2), np.arange(6.0)
    >>> whole = moments.from_arrays(X, y, tasks=["a", "b"] * 3)
    >>> parts = moments.from_arrays(X[:4], y[:4], tasks=["a", "b"] * 2) + moments.from_arrays(X[4:], y[4:], ["a", "b"])
    >>> bool(np.allclose(whole.gram(0), parts.gram(0))), whole.n_rows.tolist()
    (True, [3, 3])
    """

    task_names: NDArray[Any]
    feature_names: NDArray[np.str_]
    totals: FloatArray
    n_rows: IntArray
    means: FloatArray
    scatters: FloatArray
    present: BoolArray | None = None
    wide: bool = False

    @classmethod
    def of(cls, data: TaskData) -> Self:
        """Moments of data in memory."""
        if data.groups is not None:
            raise ValueError("moments do not keep feature groups; fit the data")
        if data.y.dtype.kind not in "bf":
            raise ValueError(f"y is not numeric (dtype {data.y.dtype}); moments are for the squared loss")
        _check_memory(data.n_tasks, data.n_features)
        m, p = data.n_tasks, data.n_features
        means, scatters, totals = np.empty((m, p + 1)), np.empty((m, p + 1, p + 1)), np.empty(m)
        for t, (X, (start, stop)) in enumerate(zip(data.task_designs, data.spans, strict=True)):
            dense = np.asarray(X.todense() if data.is_sparse else X, dtype=np.float64)
            rows, weight = np.column_stack([dense, data.y[start:stop]]), data.weight[start:stop]
            totals[t] = weight.sum()
            means[t] = weight @ rows / totals[t]
            centred = (rows - means[t]) * np.sqrt(weight)[:, None]
            scatters[t] = centred.T @ centred
        n_rows, wide = np.diff(data.offsets), data.shared_design and m > 1
        return cls(data.task_names, data.feature_names, totals, n_rows, means, scatters, data.present, wide)

    @property
    def n_tasks(self) -> int:
        """Number of tasks m."""
        return len(self.task_names)

    @property
    def n_features(self) -> int:
        """Number of features p."""
        return len(self.feature_names)

    def gram(self, task: int) -> FloatArray:
        """(p + 1, p + 1) Weighted ``Z'Z`` of a task by its number, the target last."""
        mean = self.means[task]
        product: FloatArray = self.scatters[task] + self.totals[task] * np.outer(mean, mean)
        return product

    def __repr__(self) -> str:
        return f"Moments({self.n_tasks} tasks, {self.n_features} features, {int(self.n_rows.sum())} rows)"

    def __add__(self, other: "Moments") -> "Moments":
        if not isinstance(other, Moments):
            return NotImplemented
        if not np.array_equal(self.feature_names, other.feature_names):
            raise ValueError(
                f"the parts have the features {self.feature_names.tolist()[:5]} and {other.feature_names.tolist()[:5]} "
                "...; moments add over the same features only"
            )
        labels = [*self.task_names.tolist(), *other.task_names.tolist()]
        codes, names = read_labels(labels, len(labels))
        merged = _empty(names, self.feature_names)
        for part, places in ((self, codes[: self.n_tasks]), (other, codes[self.n_tasks :])):
            _merge_into(merged, part, places)
        present = _merged_presence(self, other, codes, len(names))
        return replace(merged, present=present, wide=self.wide and other.wide)

    def to_task_data(self) -> TaskData:
        """The smallest weighted data with these moments: at most ``2 (p + 1)`` rows per task.

        Of the wide form they are wide data again, in which every task has observed rows of its own.
        """
        parts = [_equivalent_rows(*moments) for moments in zip(self.totals, self.means, self.scatters, strict=True)]
        rows, sizes = np.concatenate(parts), [len(part) for part in parts]
        weight = np.repeat(self.totals / sizes, sizes)
        labels = [name for name, size in zip(self.task_names.tolist(), sizes, strict=True) for _ in range(size)]
        names = self.feature_names.tolist()
        data = TaskData.from_long(rows[:, :-1], rows[:, -1], labels, weight, feature_names=names)
        return replace(data, present=self.present, shared_design=self.wide)


def from_arrays(X: Any, y: Any = None, tasks: Any = None, sample_weight: Any = None) -> Moments:
    """Moments of data in memory, in any form that ``fit`` takes.

    Parameters
    ----------
    X : (n, p) array, sparse matrix or data frame, or `TaskData`
    y : (n,) targets, or (n, m) for one column per task (NaN where a cell was not observed)
    tasks : (n,) task labels of the long form
    sample_weight : (n,) or, for the wide form, (n, m)
    """
    if isinstance(X, TaskData):
        return Moments.of(X)
    if np.ndim(y) == 2 and np.shape(y)[1] > 1 and tasks is None:
        return Moments.of(TaskData.from_wide(X, y, sample_weight))
    return Moments.of(TaskData.from_long(X, y, tasks, sample_weight))


def from_summary(
    z: Any = None,
    correlation: Any = None,
    n: Any = None,
    *,
    effects: Any = None,
    standard_errors: Any = None,
    target_deviation: Any = None,
    feature_deviations: Any = None,
    tasks: Sequence[Any] | None = None,
    feature_names: Sequence[str] | None = None,
) -> Moments:
    """Moments of published summaries: what regressions on single features found, and how the features correlate.

    With the correlations of the same rows these are the moments of the rows (means 0, since nothing says where the data
    lie: predictions are those of centred data). With other correlations the fit is as good as they are, and a
    `DataWarning` names features that do not fit.

    Parameters
    ----------
    z : (p, m) z-scores, features by tasks; or (p,), a list of (p,), a mapping from task labels to (p,), or a frame with
        one column per task. NaN: the task does not have the feature
    correlation : (p, p), or one per task (list or mapping)
    n : rows of each task: one number, a list or a mapping
    effects, standard_errors : instead of z, in the same forms: slopes of regressions with an intercept, in any units, which
        are then those of the coefficients
    target_deviation : standard deviation (divisor n) of the target, one number or one per task; default 1
    feature_deviations : (p,), or in the forms of z; default: what the standard errors imply, and 1 with z
    tasks : labels, where z is neither a mapping nor a frame; default 0, 1, ...
    feature_names : (p,); default x0, x1, ...

    Examples
    --------
    >>> import numpy as np
    >>> from bayesmtfs import moments
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((100, 2))
    >>> y = X[:, 0] + rng.standard_normal(100)
    >>> r = np.array([np.corrcoef(x, y)[0, 1] for x in X.T])
    >>> found = moments.from_summary(r * np.sqrt(98 / (1 - r**2)), np.corrcoef(X.T), 100)
    >>> rows = moments.from_arrays((X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std())
    >>> bool(np.allclose(found.scatters, rows.scatters))
    True
    """
    if (z is None) == (effects is None) or (effects is None) != (standard_errors is None):
        raise ValueError("pass z, or effects and standard_errors, and not both")
    if correlation is None or n is None:
        raise ValueError("correlation or n is missing; pass the correlations of the features and the rows of each task")
    labels = summaries.labels_of(z if effects is None else effects, tasks)
    p = summaries.n_features_of(correlation)
    names = numbered_names(p) if feature_names is None else np.asarray(feature_names, dtype=np.str_)
    if len(names) != p:
        raise ValueError(f"feature_names has {len(names)} entries but correlation has {p} rows; pass one per feature")
    given = {
        **{"z": (z, (p,)), "effects": (effects, (p,)), "standard_errors": (standard_errors, (p,))},
        **{"correlation": (correlation, (p, p)), "n": (n, ())},
        **{"target_deviation": (target_deviation, ()), "feature_deviations": (feature_deviations, (p,))},
    }
    parts = {name: summaries.per_task(name, values, labels, shape) for name, (values, shape) in given.items()}
    codes, ordered = read_labels(labels, len(labels))
    moments, present = _empty(ordered, names), np.ones((p, len(labels)), dtype=bool)
    for t, place in enumerate(codes):
        own = {name: part[t] for name, part in parts.items() if part is not None}
        summary = summaries.read_task(labels[t], names, **own)
        moments.scatters[place], present[:, place] = summary.scatter, summary.present
        moments.totals[place], moments.n_rows[place] = summary.n, round(summary.n)
    return moments if present.all() else replace(moments, present=present)


def from_batches(batches: Iterable[Any], target: str, task: str | None = None, weight: str | None = None) -> Moments:
    """Moments of data frames that come one after the other, of which one at a time is in memory.

    Ctrl-C gives the moments of the batches so far, with a `DataWarning`: ``n_rows`` says how many rows they hold.

    Parameters
    ----------
    batches : data frames (pandas, polars or pyarrow) with the same columns; all beside the named ones are features
    target, task, weight : names of columns; rows with a missing target are left out
    """
    merged: Moments | None = None
    # held, since sums are updated in place: half an update would be wrong, and not be seen
    with Progress("moments", False, hold=True) as work:
        for batch in batches:
            part = _of_frame(batch, target, task, weight)
            if part is not None:
                merged = part if merged is None else _accumulated(merged, part)
            work.check()
    if merged is None and work.interrupted:
        raise KeyboardInterrupt
    if merged is None:
        raise ValueError("batches holds no row with a target; pass at least one")
    if work.interrupted:
        n_rows = int(merged.n_rows.sum())
        warn(f"interrupted after {n_rows} rows; the moments are those of these rows, add the others", DataWarning)
    return merged


def from_parquet(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    target: str,
    task: str | None = None,
    weight: str | None = None,
    features: Sequence[str] | None = None,
    batch_rows: int = BATCH_ROWS,
    progress: bool | None = None,
) -> Moments:
    """Moments of a file, a folder or several files, read batch by batch in bounded memory (needs pyarrow).

    Ctrl-C gives the moments of the rows so far, as in `from_batches`.

    Parameters
    ----------
    path : Parquet, Arrow (``.arrow``, ``.feather``) or CSV
    target, task, weight : names of columns
    features : names of the feature columns; default: all others
    batch_rows : most rows in memory at a time
    progress : progress bar: always, never, or (None) for long work on a terminal
    """
    dataset = open_files(path)
    wanted = [name for name in (target, task, weight) if name is not None]
    columns = None if features is None else [*features, *wanted]
    missing = [name for name in columns or wanted if name not in dataset.schema.names]
    if missing:
        raise ValueError(f"{path} has no column {missing[0]!r}; its columns are {dataset.schema.names}")
    n_rows = max(dataset.count_rows(), 1)

    def read() -> Iterable[Any]:
        import pyarrow as pa

        done = 0
        with Progress("reading", progress) as bar:
            for batch in dataset.to_batches(
                columns=columns, batch_size=batch_rows, batch_readahead=1, fragment_readahead=1
            ):
                yield pa.Table.from_batches([batch])
                done += batch.num_rows
                bar.update(done / n_rows, f"{done} rows")

    return from_batches(read(), target, task, weight)


def from_dask(frame: Any, target: str, task: str | None = None, weight: str | None = None) -> Moments:
    """Moments of a dask DataFrame: one part per partition, merged in a tree (needs the extra ``dask``).

    Parameters
    ----------
    frame : dask DataFrame with pandas partitions
    target, task, weight : names of columns; all others are features
    """
    merged: Moments | None = add_in_tree(frame.to_delayed(), _of_frame, _sum, target, task, weight)
    if merged is None:
        raise ValueError("frame holds no row with a target; pass at least one")
    return merged


def add_in_tree(parts: list[Any], of_part: Callable[..., Any], add: Callable[[list[Any]], Any], *common: Any) -> Any:
    """Add what dask's workers make of every part, a few at a time; a part that is None, or gives None, adds nothing."""
    import dask

    # Names by number instead of by content (pure=True): to hash what every call is given costs more than small sums
    shared = [dask.delayed(value, traverse=False) for value in common]
    found = [dask.delayed(_of_filled)(of_part, part, *shared) for part in parts]
    while len(found) > 1:
        groups = (found[start : start + FAN_IN] for start in range(0, len(found), FAN_IN))
        found = [dask.delayed(_add_filled)(add, group) for group in groups]
    return dask.compute(*found)[0]


def _of_filled(of_part: Callable[..., Any], part: Any, *common: Any) -> Any:
    return None if part is None else of_part(part, *common)


def _add_filled(add: Callable[[list[Any]], Any], found: list[Any]) -> Any:
    filled = [one for one in found if one is not None]
    return add(filled) if filled else None


def _sum(parts: list[Moments]) -> Moments:
    return sum(parts[1:], start=parts[0])


def _of_frame(frame: Any, target: str, task: str | None, weight: str | None) -> Moments | None:
    """Moments of one frame; None where no row has a target."""
    import narwhals as nw

    table = nw.from_native(frame)
    named = [name for name in (target, task, weight) if name is not None]
    for name in named:
        if name not in table.columns:
            raise ValueError(f"there is no column {name!r}; the columns are {table.columns}")
    observed = ~np.isnan(np.asarray(table[target].cast(nw.Float64).to_numpy(), dtype=np.float64))
    if not observed.any():
        return None
    if not observed.all():
        table = table[np.flatnonzero(observed)]
    rest = table.select([name for name in table.columns if name not in named])
    text = [name for name in rest.columns if not (rest[name].dtype.is_numeric() or rest[name].dtype == nw.Boolean)]
    if text:
        raise ValueError(f"column {text[0]!r} is not numeric; expand it to 0/1 columns first, or name the features")
    labels = None if task is None else table[task].to_native()
    weights = None if weight is None else table[weight].to_numpy()
    return Moments.of(TaskData.from_long(rest.to_native(), table[target].to_numpy(), labels, weights))


def open_files(path: Any) -> Any:
    """Open a file, a folder or several files as a pyarrow dataset, the format by their ending."""
    try:
        import pyarrow.dataset as arrow
    except ImportError as error:
        raise ImportError("reading files in batches needs pyarrow, which is not there; pip install pyarrow") from error
    paths = [Path(one) for one in ([path] if isinstance(path, str | os.PathLike) else path)]
    for one in paths:
        if not one.exists():
            raise FileNotFoundError(f"{one} does not exist; pass the path of a Parquet, Arrow or CSV file")
    formats = {".csv": "csv", ".arrow": "ipc", ".feather": "ipc"}
    names = {formats.get(one.suffix, "parquet") for one in paths}
    if len(names) > 1:
        raise ValueError(f"path has several formats ({[one.name for one in paths]}); pass one format at a time")
    source: Any = str(paths[0]) if len(paths) == 1 else [str(one) for one in paths]
    # by default whole files are read ahead, which takes most of the memory
    frugal = arrow.ParquetFileFormat(pre_buffer=False, use_buffered_stream=True)
    name = names.pop()
    try:
        return arrow.dataset(source, format=frugal if name == "parquet" else name)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read ({error}); pass Parquet, Arrow (.arrow, .feather) or CSV") from error


def _empty(names: NDArray[Any], feature_names: NDArray[np.str_]) -> Moments:
    m, p = len(names), len(feature_names)
    _check_memory(m, p)
    counts, scatters = np.zeros(m, dtype=np.int64), np.zeros((m, p + 1, p + 1))
    return Moments(names, feature_names, np.zeros(m), counts, np.zeros((m, p + 1)), scatters)


def _accumulated(merged: Moments, part: Moments) -> Moments:
    """The sum; in place where the part brings no new task, so that a long stream does not copy the whole every time."""
    places = {label: place for place, label in enumerate(merged.task_names.tolist())}
    found = [places.get(label, -1) for label in part.task_names.tolist()]
    whole = merged.present is None and part.present is None
    if not whole or min(found) < 0 or not np.array_equal(merged.feature_names, part.feature_names):
        return merged + part
    _merge_into(merged, part, np.array(found))
    return merged


def _merge_into(merged: Moments, part: Moments, places: IntArray) -> None:
    """Add the tasks of a part at the given places, by the formula of the module's docstring."""
    before, new = merged.totals[places], part.totals
    total = before + new
    difference = part.means - merged.means[places]
    merged.scatters[places] += part.scatters
    merged.scatters[places] += (before * new / total)[:, None, None] * difference[:, :, None] * difference[:, None, :]
    merged.means[places] += (new / total)[:, None] * difference
    merged.totals[places] = total
    merged.n_rows[places] += part.n_rows


def _merged_presence(first: Moments, second: Moments, codes: IntArray, n_tasks: int) -> BoolArray | None:
    """(p, m) Which task has which feature; parts of one task must agree, since sums over some of its rows are no sums."""
    if first.present is None and second.present is None:
        return None
    present = np.ones((first.n_features, n_tasks), dtype=bool)
    known = np.zeros(n_tasks, dtype=bool)
    for part, places in ((first, codes[: first.n_tasks]), (second, codes[first.n_tasks :])):
        own = np.ones((part.n_features, part.n_tasks), dtype=bool) if part.present is None else part.present
        if np.any(known[places] & (present[:, places] != own).any(axis=0)):
            raise ValueError(
                "a task has a feature in one part and lacks it in the other; leave the feature out of both"
            )
        present[:, places], known[places] = own, True
    return present


def _equivalent_rows(total: float, mean: FloatArray, scatter: FloatArray) -> FloatArray:
    """(2 rank, p + 1) Rows ``mean +- r_k`` that have this mean and scatter at equal weights of sum ``total``."""
    varies = np.diagonal(scatter) > 0
    if not varies.any():
        return mean[None, :]
    scale = np.sqrt(np.diagonal(scatter)[varies])
    # the eigenvectors of the correlations, so that columns in other units are not lost in the rounding of large ones
    values, vectors = np.linalg.eigh(scatter[np.ix_(varies, varies)] / np.outer(scale, scale))
    kept = values > RANK_TOLERANCE * values[-1]
    factors = (np.sqrt(values[kept]) * vectors[:, kept]).T * scale
    rows = np.zeros((len(factors), len(mean)))
    rows[:, varies] = factors * np.sqrt(len(factors) / total)
    return np.concatenate([mean + rows, mean - rows])


def _check_memory(n_tasks: int, n_features: int) -> None:
    check_memory(
        8 * n_tasks * (n_features + 1) ** 2,
        f"moments of {n_tasks} tasks with {n_features} features",
        "name fewer features, fit groups of tasks apart, or use an online estimator",
    )
