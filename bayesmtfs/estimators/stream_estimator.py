"""What learners of streams share: reading batches, meeting new tasks, keeping state, building results when asked.

A learner reads rounds (see `bayesmtfs.online.smoothed_rounds`). ``fit`` begins anew and reads the rows ``epochs``
times, shuffled within tasks; ``partial_fit`` goes on from where the learner is and keeps the order of its rows. Learners
are columns of W in the order in which their tasks came; ``coef_``, ``result_`` and every other task axis follow
``tasks_``, and are built only when they are asked for.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from bayesmtfs.data.classes import as_signs, match_classes, one_versus_rest, read_classes
from bayesmtfs.data.frames import column_names, is_frame
from bayesmtfs.data.inputs import Table, as_labels, match_labels, read_design, read_labels
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.estimators.base import check_choice, check_kinds
from bayesmtfs.estimators.online_smoothed_arrays import looked_up, plain_design, plain_rounds
from bayesmtfs.estimators.online_smoothed_rows import UnitRowEstimator
from bayesmtfs.estimators.predictors import MultiTaskClassifier, MultiTaskRegressor
from bayesmtfs.estimators.stream_batches import check_form, check_not_swapped, wide_batch
from bayesmtfs.estimators.streaming import StreamFits
from bayesmtfs.online.smoothed_rounds import (
    LinearStream,
    MemoryOrder,
    Rounds,
    grow,
    is_finite,
    iterates,
    rounds_of,
)
from bayesmtfs.results.fit_result import Convergence, FitResult, current_versions
from bayesmtfs.types import FloatArray, IntArray


@dataclass(kw_only=True, repr=False, eq=False)
class StreamEstimator(UnitRowEstimator, StreamFits):
    """A linear learner per task that reads rounds; its children say what a round does."""

    groups: Any = field(init=False, default=None)
    standardize = False

    # Where tasks_ has its tasks, noted when first needed
    _places: Mapping[Any, int] = field(init=False, default=MappingProxyType({}))
    _saved_attributes: ClassVar[tuple[str, ...]] = ("_arrays", "_learners", "_relations", "_seed", "n_rounds_")

    average: bool = False
    fit_intercept: bool = True
    normalize_rows: bool = False
    epochs: int = 1
    shuffle: bool = True
    task_column: Any = None
    unknown_task: str = "error"
    random_state: Any = None

    def _check_stream(self) -> None:
        """Refuse common parameters that are out of range."""
        check_choice("unknown_task", self.unknown_task, ("error", "mean"))
        if self.epochs < 1:
            raise ValueError(f"epochs is {self.epochs}; pass a whole number of at least 1")

    @property
    def _memory_order(self) -> MemoryOrder:
        """How W lies in memory."""
        return "C"

    # ------------------------------------------------------------------ learning

    def _fit(self, data: TaskData) -> None:
        self._begin()
        self._meet(self.tasks_, data.n_features)
        self._prepare(longest=int(np.diff(data.offsets).max()) * self.epochs)
        random = check_random_state(self.random_state)
        for _ in range(self.epochs):
            self._learn(data, random if self.shuffle else None)
        self._absent = None if data.present is None else ~data.present.T
        self._settle()

    def partial_fit(
        self, X: Any, y: Any = None, tasks: Any = None, classes: Any = None, sample_weight: Any = None
    ) -> Self:
        """Read one more batch, in the order given; any subset of the tasks, new ones too.

        Parameters
        ----------
        X : (n, p) array, sparse matrix or data frame, or `TaskData`
        y : (n,) targets or labels, or (n, m) for one column per task (NaN where a cell was not observed)
        tasks : (n,) task labels of the long form
        classes : all labels that will come, for classifiers; needed in the first call where its y lacks some
        sample_weight : (n,) or, for the wide form, (n, m)
        """
        first = not hasattr(self, "_stream")
        if first:
            check_kinds(self)
        self._check_parameters()
        plain = None if first or classes is not None or sample_weight is not None else self._plain_batch(X, y, tasks)
        if plain is not None:
            self._read(plain)
            self._settle()
            return self
        data, names = self._read_batch(X, y, tasks, classes, sample_weight, first)
        if first:
            self._begin()
            self.tasks_, self._absent = names, None
        self._meet(names, data.n_features)
        if first:
            self._prepare(longest=int(np.diff(data.offsets).max()))
        self._learn(data, None)
        self._settle()
        return self

    def _begin(self) -> None:
        """Forget everything."""
        self._stream: LinearStream | None = None
        self._learners: IntArray = np.empty(0, dtype=np.int64)
        self._relations: dict[str, NDArray[Any]] = {}
        self._seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self._places = {}
        self.n_rounds_ = 0

    def _meet(self, names: NDArray[Any], n_features: int) -> None:
        """Make a learner for every task that was not there before."""
        known = self.tasks_ if len(self._learners) else names[:0]
        index = match_labels(names, len(names), known)
        strangers = names[index < 0]
        if len(strangers) == 0:
            return
        both = as_labels([*known.tolist(), *strangers.tolist()])
        self.tasks_ = names if len(known) == 0 else read_labels(both, len(both)).names
        self._learners = self._columns(match_labels(self.tasks_, len(self.tasks_), both))
        n_learners = int(self._learners.max()) + 1
        self._stream = grow(self._stream, n_features, n_learners, self.average, self._memory_order)
        self._meet_relations(n_learners)

    def _columns(self, arrival: IntArray) -> IntArray:
        """Column of W of each task, given its place in the order of arrival."""
        return arrival

    def _meet_relations(self, n_learners: int) -> None:
        """Make room for new learners in whatever relates them."""

    def _prepare(self, longest: int) -> None:
        """Last step before the first batch, of so many rounds."""

    def _learn(self, data: TaskData, random: np.random.RandomState | None) -> None:
        data = self._scaled(data)
        learners = self._learners[match_labels(data.task_names, data.n_tasks, self.tasks_)]
        self._read(rounds_of(data, learners, random))

    def _read(self, rounds: Rounds) -> None:
        self._advance(rounds)
        self._check_finite(rounds)
        self.n_rounds_ += int(np.diff(rounds.offsets).max())

    def _advance(self, rounds: Rounds) -> None:
        """Learn from rounds; a learner that overrides `_read` has no need of it."""
        raise NotImplementedError

    def _check_finite(self, rounds: Rounds) -> None:
        """Refuse weights that overflowed; only those that the batch touched are looked at."""
        assert self._stream is not None
        if not is_finite(rounds, self._stream):
            raise ValueError(
                "the weights are no longer finite: rows of X are too long for the step; lower step, set "
                "normalize_rows=True or scale the features, and fit again"
            )

    def _settle(self) -> None:
        """End a batch: what was built from the earlier state is out of date."""
        self._built: dict[str, Any] = {}
        self.n_iter_ = self.n_rounds_
        self.converged_ = True

    # ------------------------------------------------------------------ reading batches

    def _plain_batch(self, X: Any, y: Any, tasks: Any) -> Rounds | None:
        """Rounds of plain arrays of known tasks and labels; None where the batch has to be read with care."""
        if self._form not in ("single", "long") or self._encoding is not None or self.task_column is not None:
            return None
        if (tasks is None) != (self._form == "single") or hasattr(self, "feature_names_in_"):
            return None
        design = plain_design(X, self.n_features_in_)
        if design is None:
            return None
        n = design.shape[0]
        if len(self._places) != len(self.tasks_):  # tasks only ever join
            self._places = {name: place for place, name in enumerate(self.tasks_.tolist())}
        position = np.zeros(n, dtype=np.int64) if tasks is None else looked_up(tasks, n, self._places)
        target = self._plain_target(y, n)
        if position is None or target is None:
            return None
        return plain_rounds(design, target, position, self._learners, self.normalize_rows)

    def _plain_target(self, y: Any, n_rows: int) -> FloatArray | None:
        """Targets of a plain batch as the learner reads them, or None."""
        plain = type(y) is np.ndarray and y.shape == (n_rows,) and y.dtype == np.float64
        return y if plain and np.isfinite(y.sum()) else None

    def _read_batch(
        self, X: Any, y: Any, tasks: Any, classes: Any, sample_weight: Any, first: bool
    ) -> tuple[TaskData, NDArray[Any]]:
        """The batch, and the names of all tasks that it speaks of."""
        if isinstance(X, TaskData):
            data = self._read_task_data(X, y, tasks, classes, sample_weight, first)
            names = data.task_names
        else:
            data, names = self._read_table(X, y, tasks, classes, sample_weight, first)
        if first:
            self._encoding, self._feature_names = data.encoding, data.feature_names
        coded = self._code_batch(data)
        return coded, (coded.task_names if self._form == "classes" else names)

    def _read_task_data(
        self, data: TaskData, y: Any, tasks: Any, classes: Any, sample_weight: Any, first: bool
    ) -> TaskData:
        if not first and data.n_features != len(self._feature_names):
            raise ValueError(f"X has {data.n_features} features, but the first batch had {len(self._feature_names)}")
        form = None if first else self._form
        data = self._take_task_data(data, y, tasks, sample_weight)
        self._form = self._form if form is None else form
        return data.with_target(self._batch_target(data.y, len(data.y), classes, first))

    def _read_table(
        self, X: Any, y: Any, tasks: Any, classes: Any, sample_weight: Any, first: bool
    ) -> tuple[TaskData, NDArray[Any]]:
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but y is None; pass one target per row")
        features, tasks = self._split_task_column(X, tasks)
        if first:
            table = read_design(features)
            validate_data(self, X, skip_check_array=True)
        else:
            self._check_columns(X)
            table = Table(self._read_features(features), None, self._encoding, None)
        target = self._batch_target(y, table.X.shape[0], classes, first)
        wide = target.ndim == 2 and tasks is None
        if first:
            self._form = "wide" if wide else "single" if tasks is None else "long"
        else:
            check_form(self._form, wide, tasks, table.X.shape[0], self.tasks_)
        if wide:
            return wide_batch(table, target, sample_weight, column_names(y) if is_frame(y) else None)
        data = TaskData.from_table(table, target, tasks, sample_weight)
        return data, data.task_names

    def _batch_target(self, y: Any, n_rows: int, classes: Any, first: bool) -> NDArray[Any]:
        """Targets of a batch as numbers, or as the numbers of their classes."""
        return self._read_target(y, n_rows)

    def _code_batch(self, data: TaskData) -> TaskData:
        """The batch as the learner reads it."""
        return self._code_targets(data, from_task_data=False)

    # ------------------------------------------------------------------ what was learned

    @property
    def coef_(self) -> FloatArray:
        """(n_tasks, n_features) Coefficients: the last ones, or with ``average`` their mean over rounds."""
        return self._weights()["coef_"]

    @coef_.setter
    def coef_(self, value: FloatArray) -> None:
        self._note("coef_", value)

    @property
    def intercept_(self) -> FloatArray:
        """(n_tasks,) Intercepts."""
        return self._weights()["intercept_"]

    @intercept_.setter
    def intercept_(self, value: FloatArray) -> None:
        self._note("intercept_", value)

    @property
    def result_(self) -> FitResult:
        """The same in one named object."""
        built = self._built_so_far()
        if "result_" not in built:
            built["result_"] = FitResult(
                method=type(self).__name__,
                coef=self.coef_,
                intercept=self.intercept_,
                task_names=self.tasks_,
                feature_names=self._feature_names,
                convergence=Convergence(converged=True, n_iter=self.n_rounds_),
                settings=self.get_params(deep=False),
                versions=current_versions(),
                absent=self._absent,
            )
        return built["result_"]

    @result_.setter
    def result_(self, value: FitResult) -> None:
        self._absent = value.absent
        self._note("result_", value)

    def _note(self, name: str, value: Any) -> None:
        """Keep what a file brought."""
        if not hasattr(self, "_built"):
            self._built = {}
        self._built[name] = value

    def _built_so_far(self) -> dict[str, Any]:
        if not hasattr(self, "_built"):
            raise AttributeError(f"{type(self).__name__} is not fitted yet; call fit or partial_fit first")
        return self._built

    def _weights(self) -> dict[str, Any]:
        """Coefficients and intercepts, in the order of ``tasks_``."""
        built = self._built_so_far()
        if "coef_" not in built:
            assert self._stream is not None
            W, intercept = iterates(self._stream, self.average)
            coef = W.T[self._learners]
            built["coef_"] = coef if self._absent is None else np.where(self._absent, 0.0, coef)
            built["intercept_"] = intercept[self._learners]
        return built

    # ------------------------------------------------------------------ files

    @property
    def _arrays(self) -> dict[str, NDArray[Any]]:
        assert self._stream is not None
        return self._stream._asdict()

    @_arrays.setter
    def _arrays(self, arrays: dict[str, NDArray[Any]]) -> None:
        self._stream = LinearStream(**{name: np.array(a, order=self._memory_order) for name, a in arrays.items()})


class StreamRegressor(MultiTaskRegressor, StreamEstimator):
    """Predict numbers from a stream."""


class StreamClassifier(MultiTaskClassifier, StreamEstimator):
    """Predict labels from a stream."""

    loss = "hinge"
    _saved_attributes: ClassVar[tuple[str, ...]] = (*StreamEstimator._saved_attributes, "classes_")

    def _batch_target(self, y: Any, n_rows: int, classes: Any, first: bool) -> NDArray[Any]:
        if first:
            labels = y if classes is None else classes
            self.classes_ = read_classes(labels, len(labels))[1]
            if len(self.classes_) < 2:
                raise ValueError(
                    f"y has only the class {self.classes_.tolist()} in the first batch; pass all labels that will come "
                    "as classes"
                )
        elif classes is not None and not np.array_equal(read_classes(classes, len(classes))[1], self.classes_):
            raise ValueError(f"classes is not the same as in the first batch, which was {self.classes_.tolist()}")
        if not first:
            check_not_swapped(y, self.classes_, self.tasks_)
        codes = match_classes(y, n_rows, self.classes_)
        if (codes < 0).any():
            strange = np.unique(np.asarray(y, dtype=object)[codes < 0].astype(str)).tolist()
            raise ValueError(
                f"y has labels that are not among the classes {self.classes_.tolist()} of the first batch: {strange}; "
                "pass all labels that will come as classes in the first call"
            )
        return codes

    def _plain_target(self, y: Any, n_rows: int) -> FloatArray | None:
        if len(self.classes_) != 2:
            return None
        first, second = self.classes_.tolist()
        return looked_up(y, n_rows, {first: -1.0, second: 1.0})

    def _code_batch(self, data: TaskData) -> TaskData:
        if len(self.classes_) == 2:
            return as_signs(data)
        self._form = "classes"
        return one_versus_rest(data, self.classes_)
