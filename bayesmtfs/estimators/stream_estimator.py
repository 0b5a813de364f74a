"""What estimators of streams share: reading batches, meeting new tasks, plain rows, results that are built when asked for.

An estimator has a learner (`bayesmtfs.online.learner`), which knows rounds and weights, and reads for it. ``fit`` begins
anew and reads the rows ``epochs`` times, shuffled within tasks; ``partial_fit`` goes on from where the learner is and
keeps the order of its rows. The learner has its tasks in the order in which they came; ``coef_``, ``result_`` and every
other task axis follow ``tasks_``, and are built only when they are asked for.

A stream of single rows would spend its time on reading, not on learning. Rows that are plain go straight to the learner
(`PlainRows`); anything else, and everything wrong, is read with care, which does the same and knows what to say.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from bayesmtfs.data.classes import (
    as_signs,
    check_class_weight,
    match_classes,
    one_versus_rest,
    read_classes,
    with_class_weights,
)
from bayesmtfs.data.frames import column_names, is_frame
from bayesmtfs.data.inputs import (
    DesignTable,
    as_labels,
    match_labels,
    missing_entries,
    numbered_names,
    read_design,
    read_labels,
    read_weights,
)
from bayesmtfs.data.offsets import split_columns
from bayesmtfs.data.scaling import centred, column_means
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.estimators.base import MultiTaskEstimator, NewRows, check_choice, check_kinds, estimator_class
from bayesmtfs.estimators.predictors import MultiTaskClassifier, MultiTaskRegressor
from bayesmtfs.estimators.streams import StreamFits
from bayesmtfs.online.dual_averaging import squared_lengths
from bayesmtfs.online.learner import StreamBatch, StreamLearner
from bayesmtfs.online.linear_stream import unit_rows
from bayesmtfs.results.fit_result import Convergence, FitResult
from bayesmtfs.types import FloatArray, IntArray

N_NAMED = 5  # labels that a message shows


class UnitRowEstimator(MultiTaskEstimator):
    """Divides rows by their length where ``normalize_rows`` is set, in prediction as in the fit.

    Parameters
    ----------
    normalize_rows : bool
        Divide rows by their length, here and in prediction.
    """

    normalize_rows: bool

    def _scaled(self, data: TaskData) -> TaskData:
        return replace(data, design=unit_rows(data.design)) if self.normalize_rows else data

    def _read_rows(self, X: Any, tasks: Any, fill_gaps: bool = True) -> NewRows:
        rows = super()._read_rows(X, tasks, fill_gaps)
        return rows._replace(X=unit_rows(rows.X)) if self.normalize_rows else rows

    def _predict_task_data(self, data: TaskData) -> FloatArray:
        return super()._predict_task_data(self._scaled(self._with_own_features(data)))


class _Learned[T]:
    """An attribute that is built when it is asked for, until the next batch; predicting does not change ``__dict__``."""

    def __init__(self, build: Callable[[Any], T]) -> None:
        self.build, self.name, self.__doc__ = build, build.__name__, build.__doc__

    def __get__(self, estimator: Any, owner: type | None = None) -> T:
        if estimator is None:
            return self  # type: ignore[return-value]
        if "_built" not in estimator.__dict__:
            raise AttributeError(f"{type(estimator).__name__} is not fitted yet; call fit or partial_fit first")
        if self.name not in estimator._built:
            estimator._built[self.name] = self.build(estimator)
        return estimator._built[self.name]

    def __set__(self, estimator: Any, value: T) -> None:
        """Keep what a file brought."""
        estimator.__dict__.setdefault("_built", {})[self.name] = value


def check_positive(argument: str, value: float) -> None:
    """Refuse a number that is not positive and finite."""
    if not 0 < value < np.inf:
        raise ValueError(f"{argument} is {value}; pass a positive number")


# ---------------------------------------------------------------------- plain rows

_CSR = (sp.csr_matrix, sp.csr_array)
_FLOAT = np.dtype(np.float64)
_INDEX = np.dtype(np.int32)
_ONE = (1,)
_MANY = 64  # rows from which a table of labels pays


@dataclass(eq=False)
class PlainRows:
    """Learn rows that need no reading, at the price of their arithmetic.

    They are float64 or canonical CSR, of known tasks, with finite numbers or known labels, and without weights. A single
    row is a few dictionary lookups and one compiled call, where the learner has one.
    """

    learner: StreamLearner
    tasks: NDArray[Any]  # (m,) labels
    columns: IntArray  # (m,) their numbers in the order of arrival
    single: bool  # one task, without a label
    targets: dict[Any, float] | None  # what a class label is inside; None: targets are numbers
    counts: bool  # whole numbers of at least 0
    unit: bool  # rows are divided by their length

    def __post_init__(self) -> None:
        self.row_learner: Any = None if self.unit else self.learner.row_learner
        self.counter = self.row_learner or self.learner
        self.n_features = self.learner.n_features
        self._one_row = None if self.row_learner is None else (1, self.n_features)
        self.set_tasks(self.tasks, self.columns)

    def set_tasks(self, tasks: NDArray[Any], columns: IntArray) -> None:
        """Know these tasks."""
        self.tasks, self.columns = tasks, columns
        self._places: dict[Any, int] | None = None  # of labels among the tasks, made when a batch asks
        self._column_of = dict(zip(tasks.tolist(), columns.tolist(), strict=True))

    def learn(self, X: Any, y: Any, tasks: Any) -> bool:
        """Learn a batch if its rows are plain; whether they were."""
        values = _plain_values(X)
        if values is None or (tasks is None) != self.single:
            return False
        shape = X.shape
        try:
            if shape == self._one_row:
                task = 0 if tasks is None else self._column_of[_only_item(tasks)]
                target = self._target(y)
            elif len(shape) != 2 or shape[1] != self.n_features or len(y) != shape[0]:
                return False
            else:
                return self._learn_many(X, shape[0], y, tasks)
        except (KeyError, TypeError):
            return False
        if values is X:
            return self.row_learner.learn_dense_row(X, target, task)
        return self.row_learner.learn_sparse_row(values, X.indices, X.indptr, target, task)

    def newcomer(self, X: Any, y: Any, tasks: Any) -> Any:
        """Label of a single row's task, where that it is new is all that keeps the row from being plain; or None."""
        values = _plain_values(X)
        if values is None or X.shape != self._one_row or self.single:
            return None
        try:
            label, target = _only_item(tasks), self._target(y)
        except (KeyError, TypeError):
            return None
        alike = label not in self._column_of and {type(label)} == set(map(type, self._column_of)) <= {int, str}
        return label if alike and math.isfinite(values.sum() + target) else None

    def _target(self, y: Any) -> float:
        """What the one entry of y is inside."""
        only = _only_item(y)
        if self.targets is not None:
            return self.targets[only]
        if type(only) is bool or not isinstance(only, float | int) or (self.counts and (only < 0 or only % 1)):
            raise TypeError
        return float(only)

    def _learn_many(self, X: Any, n: int, y: Any, tasks: Any) -> bool:
        sparse = type(X) is not np.ndarray
        if n == 0 or type(y) is str or type(tasks) is str or (sparse and not X.has_canonical_format):
            return False
        if tasks is not None and len(tasks) != n:
            return False
        if self._places is None:
            self._places = {label: place for place, label in enumerate(self.tasks.tolist())}
        place = np.zeros(n, dtype=np.int64) if tasks is None else _looked_up(tasks, self._places, np.int64)
        if self.targets is not None:
            target = _looked_up(y, self.targets, np.float64)
        elif type(y) is np.ndarray and y.dtype is _FLOAT and y.ndim == 1:
            target = y
        else:
            return False
        if self.counts and ((target < 0).any() or (target % 1).any()):
            return False
        squares = squared_lengths(X)
        if not math.isfinite(float(squares.sum() + target.sum())):
            return False
        batch = StreamBatch(X, target, place, self.columns[place], squares=squares)
        self.learner.learn(batch._replace(X=unit_rows(X), squares=None) if self.unit else batch)
        return True


def _plain_values(X: Any) -> FloatArray | None:
    """Numbers of a design that compiled code takes as it is; None for any other."""
    if type(X) is np.ndarray:
        values = X
    elif type(X) in _CSR and X.indices.dtype is _INDEX and X.indptr.dtype is _INDEX:
        values = X.data
    else:
        return None
    return values if values.dtype is _FLOAT and values.flags.carray else None


def _only_item(labels: Any) -> Any:
    """The one entry of a vector or list; `TypeError` for anything else."""
    if type(labels) is np.ndarray:
        if labels.shape == _ONE:
            return labels.item()
    elif type(labels) is list and len(labels) == 1:
        return labels[0]
    raise TypeError


def _looked_up(labels: Any, numbers: dict[Any, Any], dtype: Any) -> NDArray[Any]:
    """Number of every label; `KeyError` for one that has none."""
    array = type(labels) is np.ndarray
    if array and labels.dtype.kind in "iu" and labels.ndim == 1 and labels.size >= _MANY:
        smallest, largest = int(labels.min()), int(labels.max())
        if largest - smallest < labels.size:  # few labels for many rows: one lookup per label between these two
            table = [numbers.get(label, math.nan) for label in range(smallest, largest + 1)]
            if not math.isnan(sum(table)):
                return np.array(table, dtype=dtype)[labels - smallest]
            found = np.array(table, dtype=np.float64)[labels - smallest]
            if np.isnan(found).any():
                raise KeyError
            return found.astype(dtype, copy=False)
    return np.array([numbers[label] for label in (labels.tolist() if array else labels)], dtype=dtype)


# ---------------------------------------------------------------------- estimators


@estimator_class(kw_only=True)
class StreamEstimator(UnitRowEstimator, StreamFits):
    """Reads batches for a learner; its children say which.

    Parameters
    ----------
    average : bool
        Predict with the mean of the weights over rounds, which is less noisy than the last.
    epochs : int
        How often ``fit`` goes through its rows.
    shuffle : bool
        Whether ``fit`` shuffles the rows within tasks before each epoch; ``partial_fit`` keeps the order.
    random_state : int, RandomState or None
        For shuffling, and for whatever else the learner draws.

    Attributes
    ----------
    coef_ : (n_tasks, n_features)
        Built when it is asked for.
    tasks_ : (n_tasks,) labels
        Sorted at all times: a task that appears later takes its place among the others, and every task axis follows.
    n_rounds_ : int
        Rounds so far.
    """

    groups: Any = field(init=False, default=None)
    standardize = False

    _saved_attributes: ClassVar[tuple[str, ...]] = ("_numbers", "_learners", "n_rounds_")

    _classes_given: Any = field(init=False, default=None)  # of the last call that was read with care

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
        self._require("epochs", self.epochs >= 1, "a whole number of at least 1")

    # ------------------------------------------------------------------ the learner

    @property
    def _common_intercept(self) -> bool:
        """Whether intercepts are drawn to each other, so that centring features within tasks would change the model."""
        return bool(getattr(self, "shared_mean", False))

    def _new_learner(self, n_features: int) -> StreamLearner:
        """Make the learner, where the first data tell nothing but the number of features."""
        raise NotImplementedError

    def _open(self, data: TaskData, strict: bool) -> StreamLearner:
        """Make the learner; ``strict`` refuses data that do not tell what they should."""
        return self._new_learner(data.n_features)

    def _reopen(self, stored: dict[str, Any]) -> StreamLearner:
        """Make the learner whose numbers a file holds."""
        return self._new_learner(stored["n_features"])

    @property
    def _is_new(self) -> bool:
        """Whether nothing was learned yet."""
        return not hasattr(self, "_learner")

    @property
    def _common(self) -> dict[str, Any]:
        """Parameters that all linear learners have."""
        return {"fit_intercept": self.fit_intercept, "average": self.average, "seed": self._seed}

    def _begin(self) -> None:
        """Forget everything."""
        self._learners: IntArray = np.empty(0, dtype=np.int64)  # (m,) number of each task in the order of arrival
        self._seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self._scales: FloatArray | None = None  # (p, m) or (1, m) what coefficients are divided by
        self._heights: FloatArray | None = None  # (m,) what intercepts are multiplied by
        self._means: FloatArray | None = None  # (p, m) of scaled features, where they were centred
        self._unit: FloatArray | None = None  # (m, p) of effects, where all rows were seen at once
        self._plain: PlainRows | None = None

    def _settle(self) -> None:
        """End a batch: what was built from the earlier state is out of date."""
        self._built: dict[str, Any] = {}
        self.n_rounds_ = self.n_iter_ = self._learner.n_rounds
        self.converged_ = self._learner.sound
        as_given = self._encoding is None and self._scales is None and self.task_column is None
        self._plain = None
        as_given = as_given and getattr(self, "class_weight", None) is None
        if as_given and self._form in ("single", "long") and not hasattr(self, "feature_names_in_"):
            labels = isinstance(self, MultiTaskClassifier)
            targets = dict(zip(self.classes_.tolist(), (-1.0, 1.0), strict=True)) if labels else None
            counts = targets is None and self._family.targets == "counts"
            tasks = (self.tasks_, self._learners, self._form == "single")
            self._plain = PlainRows(self._learner, *tasks, targets, counts, self.normalize_rows)

    # ------------------------------------------------------------------ learning

    def _fit(self, data: TaskData) -> None:
        data = self._scaled(data)
        scaled, feature, target = self._rescaled(data)
        self._begin()
        if self.standardize or self._scales_target:
            self._scales = feature / target
            self._heights, self._unit = target, self._effect_unit(data)
        if self.standardize and self.fit_intercept and not self._common_intercept and not data.is_sparse:
            self._means = column_means(scaled)
            scaled = centred(scaled, self._means)
        self._absent = None if data.present is None else ~data.present.T
        self._meet(self.tasks_)
        self._learner = self._open(scaled, strict=False)
        self._learner.add_tasks(data.n_tasks)
        progress = getattr(self, "progress", None)  # not all of them have the parameter
        self._learner.fit(self._batch(scaled), self.epochs, self.shuffle, self.random_state, progress)
        self._settle()

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        tasks: Any = None,
        classes: Any = None,
        sample_weight: Any = None,
        *,
        exposure: Any = None,
        offset: Any = None,
    ) -> Self:
        """Learn one more batch, in the order given; any subset of the tasks, new ones too.

        The i-th row of each task belongs to the batch's i-th round. Parameters that change between calls take effect
        at the next ``fit``, but for ``normalize_rows``, ``task_column`` and ``unknown_task``, which do so at once.

        Parameters
        ----------
        X : (n, p) array, sparse matrix or data frame, or `TaskData`
        y : (n,) targets or labels, or (n, m) for one column per task (NaN where a cell was not observed)
        tasks : (n,) task labels of the long form
        classes : all labels that will come, for classifiers; needed in the first call where its y lacks some
        sample_weight : (n,) or, for the wide form, (n, m)
        exposure, offset : as in ``fit``
        """
        plain: PlainRows | None = self.__dict__.get("_plain")
        parts = {"exposure": exposure, "offset": offset}
        if (
            plain is not None
            and sample_weight is None
            and exposure is None
            and offset is None
            and plain.unit is self.normalize_rows
        ):
            given = self._classes_given
            known = classes is None or classes is given or (type(classes) is list and classes == given)
            if known and (plain.learn(X, y, tasks) or self._welcome(plain, X, y, tasks)):
                self.n_rounds_ = self.n_iter_ = plain.counter.n_rounds
                if self._built:
                    self._built = {}
                return self
        return self._read_with_care(X, y, tasks, classes, sample_weight, parts)

    def _read_with_care(
        self, X: Any, y: Any, tasks: Any, classes: Any, sample_weight: Any, known: dict[str, Any]
    ) -> Self:
        for name in ("standardize", "scale_target"):
            if getattr(self, name, False):
                raise ValueError(
                    f"{name}=True takes its scales from all rows and goes with fit only; scale the batches first, for "
                    "instance by StandardScaler().partial_fit of scikit-learn"
                )
        if self._is_new:
            check_kinds(self)
        self._check_parameters()
        self._check_exposure(known["exposure"])
        data, names = self._read_batch(X, y, tasks, classes, sample_weight, known)
        data = self._scaled(self._settle_offset(data))
        if self._is_new:
            self._begin()
            self.tasks_, self._absent = names, None
            self._learner = self._open(data, strict=True)
        self._meet(names)
        self._learner.add_tasks(len(self._learners) - self._learner.n_tasks)
        self._learner.learn(self._batch(data))
        self._classes_given = classes
        self._settle()
        return self

    def _meet(self, names: NDArray[Any]) -> None:
        """Give every new task the next number; ``tasks_`` stays sorted, as far as its labels have an order."""
        known = self.tasks_ if len(self._learners) else names[:0]
        strangers = names[match_labels(names, len(names), known) < 0]
        if len(strangers) == 0:
            return
        arrived = as_labels([*known[np.argsort(self._learners)].tolist(), *strangers.tolist()])
        self.tasks_ = names if len(known) == 0 else read_labels(arrived, len(arrived)).names
        self._learners = match_labels(self.tasks_, len(self.tasks_), arrived)

    def _welcome(self, plain: PlainRows, X: Any, y: Any, tasks: Any) -> bool:
        """Learn a plain row whose task is new, beside others with labels of the same type; whether it was one."""
        label = plain.newcomer(X, y, tasks)
        if label is None:
            return False
        names = [*self.tasks_.tolist(), label]
        order = sorted(range(len(names)), key=names.__getitem__)
        self.tasks_ = as_labels(names)[order]
        self._learners = np.append(self._learners, len(names) - 1)[order]
        plain.set_tasks(self.tasks_, self._learners)
        plain.learner.add_tasks(1)
        return plain.learn(X, y, tasks)

    def _batch(self, data: TaskData) -> StreamBatch:
        """Rows as the learner reads them."""
        place = match_labels(data.task_names, data.n_tasks, self.tasks_)
        column = self._learners[place]
        return StreamBatch(data.design, data.y, place[data.task], column[data.task], data.weight, data.rows)

    # ------------------------------------------------------------------ reading batches

    def _read_batch(
        self, X: Any, y: Any, tasks: Any, classes: Any, weight: Any, known: dict[str, Any]
    ) -> tuple[TaskData, NDArray[Any]]:
        """The batch, and the names of all tasks that it speaks of."""
        read = self._read_task_data if isinstance(X, TaskData) else self._read_table
        if self._is_new:
            self._offset_columns = {role: name for role, name in known.items() if isinstance(name, str)}
        data, names = read(X, y, tasks, classes, weight, known)
        if self._is_new:
            self._encoding = data.encoding
            if data.names is not None:
                self._feature_names = np.asarray(data.names)
        coded = self._code_batch(data)
        return coded, (coded.task_names if self._form == "classes" else names)

    @cached_property
    def _feature_names(self) -> NDArray[np.str_]:  # type: ignore[override]
        """Names of the features, made up only when somebody asks: a stream may have a million."""
        return numbered_names(self._learner.n_features)

    def _read_task_data(
        self, X: Any, y: Any, tasks: Any, classes: Any, weight: Any, known: dict[str, Any]
    ) -> tuple[TaskData, NDArray[Any]]:
        if not self._is_new and X.n_features != self._learner.n_features:
            raise ValueError(f"X has {X.n_features} features, but the first batch had {self._learner.n_features}")
        if not self._is_new and X.names is not None:
            X = X.with_features(self._feature_names, self._encoding)
        form = getattr(self, "_form", None)
        data = self._take_task_data(X, y, tasks, weight, **known)
        self._form = self._form if self._is_new or form is None else form
        return data.with_target(self._batch_target(data.y, len(data.y), classes)), data.task_names

    def _read_table(
        self, X: Any, y: Any, tasks: Any, classes: Any, weight: Any, known: dict[str, Any]
    ) -> tuple[TaskData, NDArray[Any]]:
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but y is None; pass one target per row")
        features, tasks = self._split_task_column(X, tasks)
        features, exposure, offset = split_columns(features, **known)
        if self._is_new:
            table = read_design(features)
            validate_data(self, X, skip_check_array=True)
        else:
            self._check_columns(X)
            table = DesignTable(self._read_features(features), None, self._encoding, None)
        target = self._batch_target(y, table.X.shape[0], classes)
        wide = target.ndim == 2 and tasks is None
        if self._is_new:
            self._form = "wide" if wide else "single" if tasks is None else "long"
        else:
            check_form(self._form, wide, tasks, table.X.shape[0], self.tasks_)
        if wide:
            if exposure is not None or offset is not None:
                raise ValueError("a batch of the wide form has no exposure or offset; pass one task label per row")
            return wide_batch(table, target, weight, column_names(y) if is_frame(y) else None)
        data = TaskData.from_long(table, target, tasks, weight, exposure=exposure, offset=offset)
        return data, data.task_names

    def _batch_target(self, y: Any, n_rows: int, classes: Any) -> NDArray[Any]:
        """Targets of a batch as numbers, or as the numbers of their classes."""
        return self._read_target(y, n_rows)

    def _code_batch(self, data: TaskData) -> TaskData:
        """The batch as the learner reads it."""
        return self._code_targets(data, from_task_data=False)

    # ------------------------------------------------------------------ what was learned

    @_Learned
    def _weights(self) -> tuple[FloatArray, FloatArray]:
        """Coefficients and intercepts, in the order of ``tasks_``."""
        W, intercept = (part[..., self._learners] for part in self._learner.coefficients())
        if self._means is not None:
            intercept = intercept - np.sum(self._means * W, axis=0)
        if self._scales is not None:
            W, intercept = W / self._scales, intercept * (1.0 if self._heights is None else self._heights)
        coef = np.ascontiguousarray(W.T)
        return coef if self._absent is None else np.where(self._absent, 0.0, coef), intercept

    @_Learned
    def coef_(self) -> FloatArray:
        """(n_tasks, n_features) Coefficients: the last ones, or with ``average`` their mean over rounds."""
        return self._weights[0]

    @_Learned
    def intercept_(self) -> FloatArray:
        """(n_tasks,) Intercepts."""
        return self._weights[1]

    @_Learned
    def result_(self) -> FitResult:
        """The same in one named object."""
        ended = Convergence(
            converged=self.converged_,
            n_iter=self.n_rounds_,
            rows_seen=self._learner.n_rows,
            progressive_error=self.progressive_error_,
        )
        known = {"absent": self._absent, "effect_unit": self._unit}
        return self._named_result(ended, {}, coef=self.coef_, intercept=self.intercept_, **known)

    @property
    def progressive_error_(self) -> float:
        """Loss of rows that were predicted before they were learned, over that of constants; NaN where it is not kept."""
        losses = self._learner.progressive_losses
        return float(losses[0] / losses[1]) if losses is not None and losses[1] > 0 else math.nan

    # ------------------------------------------------------------------ files

    @property
    def _numbers(self) -> dict[str, Any]:
        """Everything from which learning continues bit for bit."""
        names = ("scales", "heights", "means", "unit")
        units = {name: getattr(self, f"_{name}") for name in names}
        return {**self._learner.to_stored(), "n_features": self._learner.n_features, **units}

    @_numbers.setter
    def _numbers(self, stored: dict[str, Any]) -> None:
        self._seed, self._scales = 0, stored["scales"]  # the learner has its own seed
        self._heights, self._means, self._unit = (stored.get(name) for name in ("heights", "means", "unit"))
        self._learner = self._reopen(stored).restore(stored)

    @classmethod
    def from_stored(cls, stored: Any) -> Self:
        """Rebuild a fitted estimator from what ``save`` wrote."""
        self = super().from_stored(stored)
        self._absent = self.result_.absent
        self._settle()
        return self


class StreamRegressor(MultiTaskRegressor, StreamEstimator):
    """Predict numbers from a stream."""


class StreamClassifier(MultiTaskClassifier, StreamEstimator):
    """Predict labels from a stream."""

    loss: Any = "hinge"

    def _batch_target(self, y: Any, n_rows: int, classes: Any) -> NDArray[Any]:
        if self._is_new:
            labels = y if classes is None else classes
            self.classes_ = read_classes(labels, len(labels))[1]
            if len(self.classes_) < 2:
                raise ValueError(
                    f"y has only the class {self.classes_.tolist()} in the first batch; pass all labels that will come "
                    "as classes"
                )
        else:
            if classes is not None and not np.array_equal(read_classes(classes, len(classes))[1], self.classes_):
                raise ValueError(f"classes is not the same as in the first batch, which was {self.classes_.tolist()}")
            check_not_swapped(y, self.classes_, self.tasks_)
        codes = match_classes(y, n_rows, self.classes_)
        if (codes < 0).any():
            strange = np.unique(np.asarray(y, dtype=object)[codes < 0].astype(str)).tolist()
            raise ValueError(
                f"y has labels that are not among the classes {self.classes_.tolist()} of the first batch: {strange}; "
                "pass all labels that will come as classes in the first call"
            )
        return codes

    def _code_batch(self, data: TaskData) -> TaskData:
        check_class_weight(self.class_weight)
        if isinstance(self.class_weight, str):
            raise ValueError(
                "class_weight='balanced' takes the shares of the classes from all rows and goes with fit only; pass a "
                "mapping from label to weight"
            )
        data = with_class_weights(data, self.class_weight, self.classes_)
        if len(self.classes_) == 2:
            return as_signs(data)
        self._form = "classes"
        return one_versus_rest(data, self.classes_)


# ---------------------------------------------------------------------- batches beside those before them


def check_form(form: str, wide: bool, tasks: Any, n_rows: int, known: NDArray[Any]) -> None:
    """Refuse a batch whose rows belong to no task of the stream that it goes on with.

    ``form`` is that of the batches before and ``known`` the names of their tasks; ``wide`` says whether y has one column
    per task.
    """
    names = ", ".join(repr(name) for name in known[:N_NAMED].tolist()) + (", ..." if len(known) > N_NAMED else "")
    if tasks is None and not wide and form == "long":
        raise ValueError(
            f"tasks is None, but the batches before had task labels ({names}); pass one task label per row as tasks"
        )
    if tasks is None and not wide and form == "wide":
        raise ValueError(
            f"y has one axis, but the batches before had one column per task ({names}); pass (n, {len(known)}) targets "
            "with NaN where a cell was not observed, or one task label per row as tasks"
        )
    if form == "single" and tasks is not None and (match_labels(tasks, n_rows, known) < 0).all():
        raise ValueError(
            "tasks has labels, but the batches before had none and were learned as one task; pass tasks=None, or begin "
            "anew with a batch that has task labels"
        )


def check_not_swapped(y: Any, classes: NDArray[Any], tasks: NDArray[Any]) -> None:
    """Refuse class labels that are none, but names of tasks."""
    first = np.asarray(y, dtype=object).ravel()[:1].tolist()
    if first and first[0] in tasks.tolist() and first[0] not in classes.tolist():
        raise ValueError(
            f"y holds {first[0]!r}, which is a task and not one of the classes {classes.tolist()}; call "
            "partial_fit(X, y, tasks=labels) if y and tasks were swapped"
        )


def wide_batch(
    table: DesignTable, target: NDArray[Any], sample_weight: Any, names: list[str] | None
) -> tuple[TaskData, NDArray[Any]]:
    """A batch of the wide form, in which whole columns may be unobserved, and the names of all its columns."""
    labels = as_labels(list(range(target.shape[1])) if names is None else names)
    weight = read_weights(sample_weight, target.shape)
    if weight is not None:
        target = np.where(weight > 0, target, np.nan)
    seen = ~missing_entries(target).all(axis=0)
    if not seen.any():
        raise ValueError("y has no observed cell with a positive weight; pass a batch with at least one")
    chosen = None if weight is None else weight[:, seen]
    return TaskData.from_wide(table, target[:, seen], chosen, None, labels[seen].tolist()), labels
