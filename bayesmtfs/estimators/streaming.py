"""Learn a stream that no memory holds, from files or batches, with checkpoints that a crash cannot spoil.

A checkpoint is an ordinary saved estimator, written whole or not at all, that also knows how many rows of the source it
has read. A fit that finds one goes on from there. Since batches are cut at the same rows and a file holds the learner bit
for bit, the final model is the one that an uninterrupted fit would have made, bit for bit.
"""

import os
from abc import abstractmethod
from pathlib import Path
from typing import Any, Self

from bayesmtfs.estimators.base import MultiTaskEstimator
from bayesmtfs.estimators.stream_sources import Columns, count_rows, read_stream
from bayesmtfs.progress import Progress
from bayesmtfs.results import persistence

BATCH_ROWS = 16_384
CHECKPOINT_ROWS = 1_000_000


class StreamFits(MultiTaskEstimator):
    """``fit_stream`` for estimators that have ``partial_fit``."""

    _position: dict[str, Any] | None = None  # where in its source a stream is, and how the source was cut

    def __init_subclass__(cls, **options: Any) -> None:
        """Let every file keep the position, whatever else the learner keeps."""
        super().__init_subclass__(**options)
        if "_position" not in cls._saved_attributes:
            cls._saved_attributes = (*cls._saved_attributes, "_position")

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
        >>> from bayesmtfs.estimators.stream_sources import hashed_rows
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
        with Progress("stream", progress) as bar:
            for batch in read_stream(source, columns, position["batch_rows"], rows):
                if len(batch.y):
                    first = classes if self._position is None else None
                    self.partial_fit(batch.X, batch.y, batch.tasks, first, batch.weight)
                    self._position = position
                rows += batch.n_rows
                if self._position is not None and checkpoint is not None and rows - kept >= every:
                    kept = rows
                    self._keep(checkpoint, {**position, "rows": rows})
                bar.update(rows / total if total else 0.0, f"{rows} rows")
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

    def _keep(self, checkpoint: Any, position: dict[str, Any]) -> None:
        self._position = position
        self.save(checkpoint)

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
