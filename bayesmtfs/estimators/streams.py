"""Streams that no memory holds: where their rows come from, and fits with checkpoints that a crash cannot spoil.

A position in a stream is a number of rows of the source. Batches are always cut at the same rows, so that whoever skips
to a position that lies between two batches reads exactly what a reader from the beginning reads after it. A checkpoint is
an ordinary saved estimator, written whole or not at all, that also knows how many rows of the source it has read. A fit
that finds one goes on from there. Since a file holds the learner bit for bit, the final model is the one that an
uninterrupted fit would have made, bit for bit.

Rows as mappings ``{name: value}`` have no fixed columns: names are hashed into ``2 ** n_bits`` columns (Weinberger,
Dasgupta, Langford, Smola and Attenberg 2009, Feature hashing for large scale multitask learning), so that a name that
appears for the first time in the last row has its column already.
"""

import os
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from sklearn.feature_extraction import FeatureHasher

from bayesmtfs.data.frames import as_narwhals, is_frame, is_missing, missing_rows, take_columns
from bayesmtfs.data.moments import open_files
from bayesmtfs.estimators.base import MultiTaskEstimator
from bayesmtfs.progress import Progress
from bayesmtfs.results import persistence

BATCH_ROWS = 16_384
CHECKPOINT_ROWS = 1_000_000
MOST_BITS = 30  # columns are numbered by 32-bit integers


class SourceBatch(NamedTuple):
    """Rows that are learned together."""

    X: Any  # (n, p) array, sparse matrix or frame
    y: Any  # (n,)
    tasks: Any  # (n,) or None
    weight: Any  # (n,) or None
    n_rows: int  # of the source, rows without a target included


class Columns(NamedTuple):
    """Which columns of a frame are what, by their names, and how features are read."""

    target: str | None = None
    task: str | None = None
    weight: str | None = None
    features: Sequence[str] | None = None  # None: all others
    hash_features: int | None = None  # bits of the hashed columns; None: columns as they are

    @property
    def named(self) -> list[str]:
        """Columns that are not features."""
        return [name for name in (self.target, self.task, self.weight) if name is not None]


def hashed_rows(rows: Any, n_bits: int, tasks: Any = None) -> Any:
    """(n, 2 ** n_bits) sparse matrix of rows whose feature names are hashed.

    With ``tasks`` every feature has a copy that belongs to the row's task alone, so that one learner with a shared
    weight and a deviation per task serves any number of tasks in the memory of ``2 ** n_bits`` weights.

    Parameters
    ----------
    rows : mappings ``{name: value}``, or a data frame, each of whose rows is such a mapping
        A number counts as such, a text ``v`` is the feature ``name=v`` with the value 1; missing values are left out.
    n_bits : 1 to 30
    tasks : (n,) task labels, or None

    Examples
    --------
    >>> X = hashed_rows([{"age": 2.0, "town": "Bonn"}, {"town": "Bonn"}], n_bits=8)
    >>> X.shape, X.nnz
    ((2, 256), 3)
    >>> hashed_rows([{"age": 2.0}], n_bits=8, tasks=["ann"]).nnz
    2
    """
    if not isinstance(n_bits, int | np.integer) or not 1 <= n_bits <= MOST_BITS:
        raise ValueError(f"hash_features is {n_bits!r}; pass a whole number of bits from 1 to {MOST_BITS}, such as 18")
    if is_frame(rows):
        rows = as_narwhals(rows).iter_rows(named=True)
    present = ({str(name): v for name, v in row.items() if not is_missing(v)} for row in rows)
    if tasks is not None:
        present = (
            row | {f"{name}\0{task}": v for name, v in row.items()} for row, task in zip(present, tasks, strict=True)
        )
    return FeatureHasher(n_features=2 ** int(n_bits), input_type="dict").transform(present)


def read_stream(source: Any, columns: Columns, batch_rows: int, skip: int) -> Iterator[SourceBatch]:
    """Batches of a source (see `StreamFits.fit_stream`) after its first ``skip`` rows, which are whole batches."""
    items = _tables(source, columns, batch_rows, skip) if _is_files(source) else _after(source, skip)
    for item in items:
        yield _batch_of_frame(item, columns) if is_frame(item) else _batch_of_tuple(item, columns)


def count_rows(source: Any) -> int | None:
    """Rows of files; None for other sources, which nobody can count without reading them."""
    return int(open_files(source).count_rows()) if _is_files(source) else None


def _is_files(source: Any) -> bool:
    paths = source if isinstance(source, list | tuple) else [source]
    return bool(paths) and all(isinstance(path, str | os.PathLike) for path in paths)


def _tables(source: Any, columns: Columns, batch_rows: int, skip: int) -> Iterator[Any]:
    """Tables of files from row ``skip`` on; row groups and files before it are not read."""
    import pyarrow as pa

    dataset = open_files(source)
    wanted = None if columns.features is None else [*columns.features, *columns.named]
    missing = [name for name in wanted or columns.named if name not in dataset.schema.names]
    if missing:
        raise ValueError(f"{source} has no column {missing[0]!r}; its columns are {dataset.schema.names}")
    done = 0
    for piece in _pieces(dataset):
        if done < skip:
            n_rows = _piece_rows(piece)
            if done + n_rows <= skip:
                done += n_rows
                continue
        for batch in piece.to_batches(
            schema=dataset.schema, columns=wanted, batch_size=batch_rows, batch_readahead=1, fragment_readahead=1
        ):
            if batch.num_rows and done >= skip:
                yield pa.Table.from_batches([batch])
            done += batch.num_rows
    _check_position(done, skip)


def _pieces(dataset: Any) -> Iterator[Any]:
    """Row groups of Parquet, whole files of other formats, in order."""
    for fragment in dataset.get_fragments():
        yield from fragment.split_by_row_group() if hasattr(fragment, "split_by_row_group") else [fragment]


def _piece_rows(piece: Any) -> int:
    # a row group that is counted as a fragment gives the rows of its whole file
    groups = getattr(piece, "row_groups", None)
    return int(piece.count_rows()) if groups is None else sum(group.num_rows for group in groups)


def _after(batches: Iterable[Any], skip: int) -> Iterator[Any]:
    """Batches of an iterable after its first ``skip`` rows, which must be whole batches."""
    done = 0
    for item in batches:
        if done >= skip:
            yield item
            continue
        done += _length(item[0] if isinstance(item, tuple) else item)
        if done > skip:
            raise ValueError(
                f"the checkpoint was made after {skip} rows, which is inside a batch of source; pass the same batches"
            )
    _check_position(done, skip)


def _check_position(done: int, skip: int) -> None:
    if done < skip:
        raise ValueError(f"source has {done} rows but the checkpoint was made after {skip}; pass the same source")


def _length(rows: Any) -> int:
    return int(rows.shape[0]) if hasattr(rows, "shape") else len(rows)


def _batch_of_frame(frame: Any, columns: Columns) -> SourceBatch:
    """A batch of a frame whose columns are named."""
    table = as_narwhals(frame)
    if columns.target is None:
        raise ValueError("source gives data frames, but target is None; pass the name of the target's column")
    absent = [name for name in columns.named if name not in table.columns]
    if absent:
        raise ValueError(f"there is no column {absent[0]!r} in a batch; its columns are {table.columns}")
    n_rows = len(table)
    observed = ~missing_rows(table[columns.target])
    if not observed.all():
        table = table[np.flatnonzero(observed)]
    features = [name for name in table.columns if name not in columns.named]
    rest = take_columns(table.to_native(), features if columns.features is None else list(columns.features))
    X = rest if columns.hash_features is None else hashed_rows(rest, columns.hash_features)
    return SourceBatch(
        X,
        table[columns.target].to_numpy(),
        None if columns.task is None else table[columns.task].to_native(),
        None if columns.weight is None else table[columns.weight].to_numpy(),
        n_rows,
    )


def _batch_of_tuple(item: Any, columns: Columns) -> SourceBatch:
    """A batch given as arrays, or as mappings with their targets."""
    if not isinstance(item, tuple) or not 2 <= len(item) <= 4:
        raise ValueError(
            f"source gives {type(item).__name__}; pass paths, or an iterable of data frames or of tuples (X, y), "
            "(X, y, tasks) or (X, y, tasks, sample_weight)"
        )
    rows, y, tasks, weight = (*item, None, None)[:4]
    if columns.hash_features is not None:
        return SourceBatch(hashed_rows(rows, columns.hash_features), y, tasks, weight, _length(rows))
    if isinstance(rows, list) and rows and isinstance(rows[0], Mapping):
        raise ValueError("source gives rows as mappings; set hash_features to a number of bits, such as 18")
    return SourceBatch(rows, y, tasks, weight, _length(rows))


class StreamFits(MultiTaskEstimator):
    """``fit_stream`` for estimators that have ``partial_fit``."""

    _position: dict[str, Any] | None = None  # where in its source a stream is, and how the source was cut
    _saved_attributes: ClassVar[tuple[str, ...]] = ("_position",)

    def fit_stream(
        self,
        source: Any,
        target: str | None = None,
        task: str | None = None,
        weight: str | None = None,
        *,
        classes: Any = None,
        features: Any = None,
        hash_features: int | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        every: int = CHECKPOINT_ROWS,
        batch_rows: int = BATCH_ROWS,
        progress: bool | None = None,
    ) -> Self:
        """Learn a source once from its beginning, one batch in memory at a time.

        Tasks may come in any order, and new ones at any time. What was learned before is forgotten, unless
        ``checkpoint`` names a file that an earlier call left: then that call is taken up where it was, and the final
        model is the same bit for bit. A call that had finished is not repeated.

        Parameters
        ----------
        source : path, several paths, or iterable
            Parquet, Arrow (``.arrow``, ``.feather``) or CSV files (needs pyarrow); or an iterable of data frames or of
            tuples (X, y), (X, y, tasks), (X, y, tasks, sample_weight), which has to give the same batches again after
            a crash.
        target, task, weight : names of columns of files and frames; rows with a missing target are left out
        classes : all labels that will come, for classifiers; needed where the first batch lacks some
        features : names of the feature columns; default: all others
        hash_features : int or None
            Hash feature names into ``2 ** hash_features`` columns, so that rows may be mappings ``{name: value}`` and
            new names may come at any time; `hashed_rows` does the same to rows for ``predict``.
        checkpoint : path or None
            File that holds the estimator and its position, replaced in one step; `bayesmtfs.load` reads it.
        every : rows from one checkpoint to the next, at least; the last one is at the end
        batch_rows : most rows of a file in memory at a time
        progress : progress bar: always, never, or (None) for long work on a terminal

        Examples
        --------
        >>> from bayesmtfs import OnlineMixedNormClassifier
        >>> from bayesmtfs.estimators.streams import hashed_rows
        >>> batches = [
        ...     ([{"age": 3.0}, {"age": -2.0}], ["yes", "no"], ["ann", "bob"]),
        ...     ([{"town=Bonn": 1.0, "age": 1.0}], ["yes"], ["eve"]),
        ... ]
        >>> model = OnlineMixedNormClassifier(penalty_strength=0.01).fit_stream(batches, hash_features=10)
        >>> model.tasks_.tolist(), model.predict(hashed_rows([{"age": 2.0}], 10), tasks=["ann"]).tolist()
        (['ann', 'bob', 'eve'], ['yes'])
        """
        for name, value in (("every", every), ("batch_rows", batch_rows)):
            if value < 1:
                raise ValueError(f"{name} is {value}; pass a whole number of rows of at least 1")
        columns = Columns(target, task, weight, features, hash_features)
        cut = {"batch_rows": int(batch_rows), "hash_features": hash_features}
        self._forget()
        if checkpoint is not None and Path(checkpoint).exists():
            self._resume(checkpoint, cut)
        position = self._position or {"rows": 0, "finished": False, **cut}
        if not position["finished"]:
            self._learn_stream(source, columns, classes, position, checkpoint, every, progress)
        return self

    def _learn_stream(
        self,
        source: Any,
        columns: Columns,
        classes: Any,
        position: dict[str, Any],
        checkpoint: Any,
        every: int,
        progress: bool | None,
    ) -> None:
        rows, kept = position["rows"], position["rows"]
        total = count_rows(source)
        with Progress("stream", progress) as work:
            for batch in read_stream(source, columns, position["batch_rows"], rows):
                if len(batch.y):
                    first = classes if self._position is None else None
                    self.partial_fit(batch.X, batch.y, batch.tasks, first, batch.weight)
                    self._position = position
                rows += batch.n_rows
                if self._position is not None and checkpoint is not None and rows - kept >= every:
                    kept = rows
                    self._position = {**position, "rows": rows}
                    self.save(checkpoint)
                work.update(rows / total if total else 0.0, f"{rows} rows")
        if work.interrupted:
            raise KeyboardInterrupt
        if self._position is None:
            raise ValueError("source holds no row with a target; pass at least one")
        self._position = {**position, "rows": rows, "finished": True}
        if checkpoint is not None:
            self.save(checkpoint)

    @abstractmethod
    def partial_fit(
        self, X: Any, y: Any = None, tasks: Any = None, classes: Any = None, sample_weight: Any = None
    ) -> Self:
        """Learn one more batch."""

    def _forget(self) -> None:
        """Leave nothing but the parameters."""
        params = self.get_params(deep=False)
        for name in [name for name in vars(self) if name not in params]:
            delattr(self, name)
        self._position = None

    def _resume(self, checkpoint: str | os.PathLike[str], cut: dict[str, Any]) -> None:
        """Take over the state of a checkpoint that was made with the same parameters."""
        stored = persistence.read(checkpoint)
        state = stored.header.get("estimator", {})
        position = state.get("fitted", {}).get("_position")
        if stored.header.get("method") != type(self).__name__ or position is None:
            raise ValueError(
                f"checkpoint {checkpoint} holds no stream of a {type(self).__name__}; pass another path, or delete it"
            )
        other = type(self).from_stored(stored)
        params, found = self.get_params(deep=False), other.get_params(deep=False)
        changed = [name for name in params if repr(params[name]) != repr(found[name])]
        if changed:
            name = changed[0]
            raise ValueError(
                f"checkpoint {checkpoint} was made with {name}={found[name]!r}, this estimator has {params[name]!r}; set "
                "it back, or delete the file to begin anew"
            )
        for name, value in cut.items():
            if position[name] != value:
                raise ValueError(f"checkpoint {checkpoint} was made with {name}={position[name]}; pass the same")
        self.__dict__.update({name: value for name, value in vars(other).items() if name not in params})
