"""What all estimators share: reading data, predicting for tasks, selecting features, saving and loading.

Inside, coefficients are W ``(p, m)``, features by tasks, as in the papers; outside, ``coef_`` is
``(n_tasks, n_features)``, as scikit-learn has it. The transposition happens here and nowhere else.

The parameters of an estimator are the fields of a dataclass: a class names what it adds to its base, or gives another
default, and scikit-learn reads them from the constructor. A parameter or attribute is described in the docstring of the
class that brings it, and again only where its meaning changes; `estimator_class` completes the docstrings of those that
inherit it. A fit that fails leaves the estimator as it was, and not with
the names of new data beside the coefficients of old.
"""

import importlib
import inspect
import itertools
import numbers
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from typing import Any, ClassVar, Literal, NamedTuple, Self, dataclass_transform

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from bayesmtfs import families
from bayesmtfs.compiled import threads_that_pay
from bayesmtfs.data import frames
from bayesmtfs.data.gaps import (
    Filling,
    RowModel,
    TaskMeans,
    filled,
    gap_columns,
    has_gaps,
    learn_means,
    with_indicators,
)
from bayesmtfs.data.inputs import (
    Design,
    DesignTable,
    all_finite,
    check_two_axes,
    describe_unknown,
    match_labels,
    read_design,
    read_target,
)
from bayesmtfs.data.offsets import read_offset, split_columns
from bayesmtfs.data.scaling import Rescaled, effect_unit, rescale, warn_of_units
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import Family
from bayesmtfs.public_names import BASELINES, ESTIMATORS
from bayesmtfs.results import persistence
from bayesmtfs.results.fit_result import RESULT_AXES, RESULT_KIND, Convergence, FitResult, current_versions
from bayesmtfs.types import BoolArray, DataWarning, FloatArray, IntArray, SelectionWarning, Solution, warn

# ---------------------------------------------------------------------- parameters and what is said about them


@dataclass_transform(field_specifiers=(field,))
def estimator_class[C: type](*, kw_only: bool = False) -> Callable[[C], C]:
    """Decorator of estimators: fields are parameters, and the docstring is completed by those of the base classes."""

    def make(cls: C) -> C:
        made: Any = dataclass(repr=False, eq=False, kw_only=kw_only)(cls)
        made._own_doc = made.__doc__
        made.__doc__ = complete_docstring(made)
        return made

    return make


def complete_docstring(cls: type) -> str:
    """The docstring of a class with all its parameters, in their order, and the attributes and references of its bases.

    What the class does not describe itself is described as by the nearest of its bases that does.
    """
    own, *bases = [docstring_sections(vars(base).get("_own_doc", base.__doc__)) for base in cls.__mro__]
    for sections in bases:
        if "References" in sections:
            own.setdefault("References", sections["References"])
    described: dict[str, dict[str, str]] = {"Parameters": {}, "Attributes": {}}
    for (section, entries), sections in itertools.product(described.items(), (own, *bases)):
        for name, text in section_entries(sections.pop(section, "")).items():
            entries.setdefault(name, text)
    parameters = [name for name in inspect.signature(cls).parameters if name in described["Parameters"]]
    described["Parameters"] = {name: described["Parameters"][name] for name in parameters}
    texts = {section: _join_entries(entries) for section, entries in described.items() if entries} | own
    parts = [f"{section}\n{'-' * len(section)}\n{text}" for section, text in texts.items() if section]
    return "\n\n".join([own[""], *parts])


def docstring_sections(docstring: str | None) -> dict[str, str]:
    """Text of a numpydoc docstring by section; what is above the first has the name ``""``."""
    above, *rest = re.split(r"^(\w[\w ]*)\n-{3,}$", inspect.cleandoc(docstring or ""), flags=re.MULTILINE)
    texts = {"": above, **dict(zip(rest[::2], rest[1::2], strict=True))}
    return {name: text.strip("\n") for name, text in texts.items()}


def section_entries(text: str) -> dict[str, str]:
    """What a section says after each name: after a and b the same where it has ``a, b : float``."""
    entries: dict[str, str] = {}
    for entry in re.split(r"(?<!,)\n(?=\w)", text):
        heading = re.match(r"\w+(?:,\s+\w+)*", entry)
        if heading is not None:
            names = re.findall(r"\w+", heading[0])
            entries.update(dict.fromkeys(names, entry[heading.end() :].rstrip()))
    return entries


def _join_entries(entries: dict[str, str]) -> str:
    """The text of a section; neighbours of which the same is said stand together."""
    return "\n".join(", ".join(names) + text for text, names in itertools.groupby(entries, entries.__getitem__))


# ---------------------------------------------------------------------- before a fit


@contextmanager
def unchanged_on_error(estimator: BaseEstimator) -> Iterator[None]:
    """Undo what is set on an estimator within the block if an error or Ctrl-C ends it."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


def check_kinds(estimator: Any) -> None:
    """Refuse parameters that are declared as a truth value or a whole number and are something else.

    Without a look, ``fit_intercept="no"`` counts as true and ``max_iter=1.5`` as one round or two. Ranges are checked by
    the classes themselves.
    """
    cls: Any = type(estimator)
    for name, kind, default in _declared_kinds(cls):
        value = getattr(estimator, name)
        truth = isinstance(value, bool | np.bool_)
        if kind is bool and not truth:
            raise ValueError(f"{name} is {value!r}; pass True or False")
        if kind is None and not (truth or value is None):
            raise ValueError(f"{name} is {value!r}; pass True, False or None")
        if kind is int and (truth or not isinstance(value, numbers.Integral)):
            raise ValueError(f"{name} is {value!r}; pass a whole number such as {default}")


@cache
def _declared_kinds(cls: Any) -> list[tuple[str, type | None, Any]]:
    """Name, kind (None: a truth value or None) and default of every parameter that `check_kinds` looks at."""
    kinds: dict[Any, type | None] = {bool: bool, int: int, bool | None: None}
    declared = fields(cls) if is_dataclass(cls) else ()
    return [(one.name, kinds[one.type], one.default) for one in declared if one.type in kinds]


# ---------------------------------------------------------------------- all estimators


Names = tuple[str, ...]
Form = Literal["single", "long", "wide", "classes"]  # classes: one task per class, over one design
ESTIMATOR_KIND = "Estimator"


class NewRows(NamedTuple):
    """New rows to predict for."""

    X: Design  # (n, p)
    task: IntArray | None  # (n,) index, -1 for an unknown task that gets the average; None: every task at every row


class MultiTaskEstimator(TransformerMixin, BaseEstimator, ABC):
    """Base of all estimators: ``fit`` is theirs, everything that follows a fit is here.

    Parameters
    ----------
    standardize : bool
        Scale features to unit deviation within each task before the fit; results are in the user's units all the same.
    task_column : column of X that holds the task
        A name for data frames, a number for arrays.
    unknown_task : "error" or "mean"
        What to do at ``predict`` with a task that was not there in ``fit``; "mean" takes the average task.
    impute : "task_mean" or None
        What to do with missing cells of features: None refuses them; "task_mean" fills them with the mean of the column
        in the row's task, over the training rows, and adds an indicator ``name[missing]`` for every column that has gaps in
        them (`bayesmtfs.data.gaps`). `BayesianRegressor` and `BayesianClassifier` also have "model", which draws the cells.
    groups : (n_columns,) labels
        Columns with the same label enter or leave together, as the levels of a categorical column do.
    fit_intercept : bool
        One intercept per task, without a penalty or prior.
    loss_scale : "mean" or "sum"
        Each task's loss divided by its number of rows (or total weight), or not.
    mean_strength : float or None
        Ridge on w_0; None takes a hundredth of the mean squared column norm of X.
    norm_q_bounds : (float, float)
        Range of a learned q; its prior is uniform in 1/q.
    shared_noise : bool
        One noise level for all tasks.
    max_iter : int
        Most iterations.
    progress : bool or None
        Progress bar: always, never, or (None) for long fits on a terminal.

    Attributes
    ----------
    tasks_ : (n_tasks,) labels
    n_iter_ : int
    converged_ : bool
    result_ : FitResult
    """

    loss: Any = "squared"  # the name of a loss or a family; a parameter where there is a choice
    task_column: Any
    unknown_task: str
    standardize: bool
    groups: Any

    # Fitted arrays that a file keeps besides coefficients, intercept and names, and besides those of the base classes
    _saved_attributes: ClassVar[Names] = (
        *("_offset_columns", "_gap_columns", "_gap_means", "_gap_overall", "_row_model"),
    )

    _offset_columns: Any = {}  # columns of exposure and offset that were named in fit
    _gap_columns: Any = np.empty(0, dtype=np.int64)  # columns of X that had gaps in fit
    _gap_means: FloatArray | None = None  # (m, p) what gaps are filled with; None where there were none
    _gap_overall: FloatArray | None = None  # (p,)
    _row_model: dict[str, Any] | None = None  # fields of `RowModel`, where the cells were drawn

    # What `impute` may be besides None
    _impute_methods: ClassVar[Names] = ("task_mean",)

    # Whether a part of the linear predictor may be known
    _takes_offset: ClassVar[bool] = False

    def fit(
        self,
        X: Any,
        y: Any = None,
        tasks: Any = None,
        sample_weight: Any = None,
        *,
        exposure: Any = None,
        offset: Any = None,
    ) -> Self:
        """Fit all tasks together.

        Parameters
        ----------
        X : (n, p) array, sparse matrix or data frame, or `TaskData` (which holds the rest too)
        y : (n,) targets or labels, or (n, m) for one column per task (NaN where a cell was not observed)
        tasks : (n,) task labels of the long form
        sample_weight : (n,) or, for the wide form, (n, m)
        exposure : (n,) or (n, m) positive numbers, or the name of a column of a frame X
            Time, area or number of people that counts come from: their mean is ``exposure * exp(x' w_t + b_t)``.
        offset : (n,) or (n, m) numbers, or the name of a column of a frame X
            Known part of the linear predictor, ``offset + x' w_t + b_t``.
        """
        with unchanged_on_error(self):
            data = self._filled(self.training_data(X, y, tasks, sample_weight, exposure, offset))
            with threads_that_pay(data.system_operations):
                self._fit(data)
        return self

    def _filled(self, data: TaskData) -> TaskData:
        """Training data without gaps; what fills them is remembered for predictions."""
        if not self._imputes or not has_gaps(data):
            return data
        means = learn_means(data)
        self._gap_means, self._gap_overall = means
        return filled(data, means, np.arange(data.n_tasks))

    def training_data(
        self, X: Any, y: Any, tasks: Any, sample_weight: Any, exposure: Any = None, offset: Any = None
    ) -> TaskData:
        """Check the parameters and read the data, with targets as numbers, or as -1 and +1."""
        check_kinds(self)
        self._check_parameters()
        self._check_exposure(exposure)
        data = self._read_fit_data(X, y, tasks, sample_weight, exposure, offset)
        return self._settle_offset(self._code_targets(data, from_task_data=isinstance(X, TaskData)))

    def _n_rows(self, data: TaskData) -> int:
        """Observations that the user gave; of several classes the data have each of them once for every class."""
        return data.n_observations

    def _check_exposure(self, exposure: Any) -> None:
        """Refuse an exposure of targets that are no counts."""
        family = families.find_family(self.loss) if families.is_known(self.loss) else None
        if exposure is not None and (family is None or family.targets != "counts"):
            raise ValueError(
                f"exposure is for counts, but loss is {self.loss!r}; use a loss such as 'poisson', or pass a known part of "
                "the linear predictor as offset"
            )

    def _settle_offset(self, data: TaskData) -> TaskData:
        """Take a known part off the targets where the loss is one of residuals; refuse it where it has no meaning."""
        if data.eta_offset is None:
            return data
        family = families.find_family(self.loss) if families.is_known(self.loss) else None
        several = getattr(self, "_form", None) == "classes" or (
            family is not None and family.targets == "labels" and family.coupled and not family.has_cuts
        )
        if not self._takes_offset or family is None or several:
            what = "one of several classes" if several else f"{type(self).__name__}"
            raise ValueError(f"offset was passed, but {what} has none; leave exposure and offset out")
        if not family.of_residuals:
            return data
        return replace(data, y=np.asarray(data.y, dtype=np.float64) - data.eta_offset, eta_offset=None)

    @abstractmethod
    def _check_parameters(self) -> None:
        """Raise where a parameter is out of its range."""

    def _require(self, parameter: str, valid: bool | np.bool_, wanted: str) -> None:
        """Refuse the value of a parameter that is not what is wanted."""
        if not valid:
            raise ValueError(f"{parameter} is {getattr(self, parameter)!r}; pass {wanted}")

    @abstractmethod
    def _code_targets(self, data: TaskData, from_task_data: bool) -> TaskData:
        """Targets as the family wants them; `predictors` says how."""

    @abstractmethod
    def _fit(self, data: TaskData) -> None:
        """Fit data that was read and set the fitted attributes."""

    def _read_fit_data(
        self, X: Any, y: Any, tasks: Any, sample_weight: Any, exposure: Any = None, offset: Any = None
    ) -> TaskData:
        """Read what ``fit`` got, in any of its forms, and remember names and form."""
        named = {"exposure": exposure, "offset": offset}
        self._offset_columns = {role: name for role, name in named.items() if isinstance(name, str)}
        self._gap_columns, self._gap_means, self._gap_overall = np.empty(0, dtype=np.int64), None, None
        self._row_model = None
        if isinstance(X, TaskData):
            data = self._take_task_data(X, y, tasks, sample_weight, **named)
        else:
            data = self._read_arrays(X, y, tasks, sample_weight, **named)
        self.tasks_ = data.task_names
        self._encoding = data.encoding
        self._feature_names = data.feature_names
        return data

    def _take_task_data(self, data: TaskData, y: Any, tasks: Any, sample_weight: Any, **known: Any) -> TaskData:
        parts = {"y": y, "tasks": tasks, "sample_weight": sample_weight, **known}
        given = [name for name, value in parts.items() if value is not None]
        if given:
            raise ValueError(
                f"X is TaskData, which holds everything already, but {given[0]} was passed too; leave it out"
            )
        self._form: Form = "single" if data.n_tasks == 1 else "wide" if data.shared_design else "long"
        self.n_features_in_ = data.n_features if data.encoding is None else len(data.encoding.columns)
        if data.encoding is not None and data.encoding.has_names:
            self.feature_names_in_ = np.array([column.name for column in data.encoding.columns], dtype=object)
        return data

    def _read_arrays(self, X: Any, y: Any, tasks: Any, sample_weight: Any, exposure: Any, offset: Any) -> TaskData:
        if y is None:
            name = type(self).__name__
            raise ValueError(f"{name} requires y to be passed, but the target y is None; pass one target per row")
        features, tasks = self._split_task_column(X, tasks)
        features, exposure, offset = split_columns(features, exposure, offset)
        table = read_design(features, allow_missing=self._imputes)
        self._gap_columns = self._indicated(table)
        table = with_indicators(table, self._gap_columns)
        if type(X) is np.ndarray:  # without names; asking scikit-learn takes a twentieth of a small fit
            self.n_features_in_ = X.shape[1]
            self.__dict__.pop("feature_names_in_", None)
        else:
            validate_data(self, X, skip_check_array=True)
        target = self._read_target(y, table.X.shape[0])
        if target.ndim == 2 and tasks is None:
            self._form = "wide"
            names = frames.column_names(y) if frames.is_frame(y) else None
            return TaskData.from_wide(
                table, target, sample_weight, self.groups, names, exposure=exposure, offset=offset
            )
        self._form = "single" if tasks is None else "long"
        data = TaskData.from_long(table, target, tasks, sample_weight, self.groups, exposure=exposure, offset=offset)
        _warn_of_fractions(data)
        return data

    @property
    def _imputes(self) -> bool:
        """Whether missing cells are filled."""
        method, known = getattr(self, "impute", None), self._impute_methods
        if method == "model" and method not in known:
            raise ValueError(
                f"impute='model' draws missing cells in a posterior, which {type(self).__name__} has not; pass "
                "'task_mean', or use BayesianRegressor or BayesianClassifier"
            )
        if method is not None and method not in known:
            wanted = ", ".join(map(repr, known))
            raise ValueError(f"impute is {method!r}; pass {wanted}, or None to refuse missing cells")
        return method is not None

    def _indicated(self, table: DesignTable) -> IntArray:
        """Numbers of the columns with gaps that get an indicator."""
        return gap_columns(table)

    def _read_target(self, y: Any, n_rows: int) -> NDArray[Any]:
        return read_target(y, n_rows)

    def _split_task_column(self, X: Any, tasks: Any) -> tuple[Any, Any]:
        """Take the task labels out of X where ``task_column`` says that they are there."""
        if self.task_column is None:
            return X, tasks
        if tasks is not None:
            raise ValueError("tasks was passed although task_column is set; pass the labels in one way only")
        if frames.is_frame(X):
            names = frames.column_names(X)
            if self.task_column not in names:
                raise ValueError(f"task_column is {self.task_column!r}, no column of X; columns are {names}")
            rest = [name for name in names if name != self.task_column]
            return frames.take_columns(X, rest), frames.column_values(X, self.task_column)
        if sp.issparse(X):
            raise ValueError("task_column does not go with a sparse X; pass the labels as tasks, or a data frame")
        array = np.asarray(X)
        if not isinstance(self.task_column, int | np.integer) or array.ndim != 2:
            raise ValueError(
                f"task_column is {self.task_column!r} but X is not a data frame; pass the number of its column"
            )
        if not -array.shape[1] <= self.task_column < array.shape[1]:
            raise ValueError(f"task_column is {self.task_column} but X has {array.shape[1]} columns")
        return np.delete(array, self.task_column, axis=1), array[:, self.task_column]

    def _read_rows(self, X: Any, tasks: Any, fill_gaps: bool = True) -> NewRows:
        """Read rows to predict for; missing cells may stay NaN."""
        check_is_fitted(self)
        absent = self.result_.absent
        if frames.is_frame(X) and (absent is not None or self._lacks_offsets_only(X)):
            X = frames.with_columns(X, list(self.feature_names_in_))
        if self._encoding is not None and self._encoding.code is not None and frames.is_frame(X):
            X = self._encoding.code(X)
        self._check_columns(X)
        features, tasks = self._split_task_column(X, tasks)
        design = self._read_features(features, allow_missing=absent is not None)
        fill = self._filling if fill_gaps else None
        if tasks is None and fill is not None:
            one_task = len(self.tasks_) == 1
            design = fill.fill(design, np.zeros(len(design), dtype=np.int64) if one_task else None)
        if tasks is None:
            if self._form == "long" and len(self.tasks_) > 1:
                raise ValueError(
                    f"tasks is missing: {type(self).__name__} was fitted on {len(self.tasks_)} tasks; pass one task "
                    "label per row, as in fit"
                )
            return NewRows(design, None)
        index = match_labels(tasks, design.shape[0], self.tasks_)
        if (index < 0).any() and self.unknown_task == "error":
            raise ValueError(
                f"tasks has labels that were not there in fit: {describe_unknown(tasks, index, self.tasks_)}; "
                'set unknown_task="mean" to predict with the average task'
            )
        design = design if fill is None else fill.fill(design, index)
        return NewRows(design if absent is None else _without_absent(design, absent, index), index)

    def _lacks_offsets_only(self, X: Any) -> bool:
        """Whether a frame lacks the columns of exposure or offset, which a prediction for the exposure 1 does not need."""
        missing = set(getattr(self, "feature_names_in_", ())) - set(frames.column_names(X))
        return bool(missing) and missing <= set(self._offset_columns.values())

    def _known_part(self, X: Any, exposure: Any, offset: Any, shape: tuple[int, ...]) -> FloatArray | None:
        """Known part of a linear predictor of this shape; None where there is none."""
        if isinstance(X, TaskData):
            if exposure is not None or offset is not None:
                raise ValueError("X is TaskData, which hold exposure and offset; leave them out")
            if X.eta_offset is None:
                return None
            return np.nan_to_num(X.in_input_order(X.eta_offset)).reshape(shape)
        if frames.is_frame(X):
            columns = frames.column_names(X)
            if exposure is None and offset is None:
                named = {role: name for role, name in self._offset_columns.items() if name in columns}
                exposure, offset = named.get("exposure"), named.get("offset")
            _, exposure, offset = split_columns(X, exposure, offset)
        self._check_exposure(exposure)
        known = read_offset(exposure, offset, shape)
        if known is not None and not self._takes_offset:
            raise ValueError(f"offset was passed, but {type(self).__name__} has none; leave exposure and offset out")
        return known

    def _without_named(self, X: Any, exposure: Any, offset: Any) -> Any:
        """X without the columns that hold exposure and offset, where they were none of X in ``fit``."""
        known = set(getattr(self, "feature_names_in_", ()))
        new = (name if isinstance(name, str) and name not in known else None for name in (exposure, offset))
        return split_columns(X, *new)[0]

    def _full_predictor(self, X: Any, tasks: Any, exposure: Any = None, offset: Any = None) -> FloatArray:
        """Linear predictor with its known part."""
        eta = self._linear_predictor(self._without_named(X, exposure, offset), tasks)
        known = self._known_part(X, exposure, offset, eta.shape)
        return eta if known is None else eta + known

    @property
    def _filling(self) -> Filling | None:
        """What gaps are filled with; None where there were none in fit."""
        if self._gap_means is None or self._gap_overall is None:
            return None
        rows = None if self._row_model is None else RowModel(**self._row_model)
        return Filling(TaskMeans(self._gap_means, self._gap_overall), rows)

    def _check_columns(self, X: Any) -> None:
        """Refuse rows whose columns are not those of fit."""
        if not frames.is_frame(X):
            check_two_axes(X)
        validate_data(self, X, reset=False, skip_check_array=True)

    def _read_features(self, features: Any, allow_missing: bool = False) -> Design:
        """Read feature columns the way they were read in fit."""
        if self._encoding is not None and frames.is_frame(features):
            features = frames.take_columns(features, [column.name for column in self._encoding.columns])
        elif self._encoding is not None and self._encoding.has_categories:
            raise ValueError(
                "X is not a data frame but had categorical columns in fit; pass a frame with these columns"
            )
        encoding = self._encoding if frames.is_frame(features) else None
        table = read_design(features, encoding, allow_missing or self._gap_means is not None)
        return with_indicators(table, self._gap_columns).X

    # ------------------------------------------------------------------ units

    @property
    def _in_target_units(self) -> bool:
        """Whether the linear predictor has the units of the targets; that of labels has not."""
        return False

    @property
    def _scales_wide_targets(self) -> bool:
        """What ``scale_target=None`` means in the wide form."""
        return False

    @property
    def _scales_target(self) -> bool:
        """Whether targets are divided by their deviation in each task before the fit."""
        return False

    def _rescaled(self, data: TaskData) -> Rescaled:
        """The data as ``standardize`` and ``scale_target`` want them."""
        return rescale(data, self.standardize, self._scales_target, getattr(self, "fit_intercept", True))

    def _warn_of_units(self, data: TaskData) -> None:
        """Warn where a penalty in the user's units sees units above all."""
        targets = self._in_target_units and getattr(self, "scale_target", False) is None
        warn_of_units(data, features=not self.standardize, targets=targets)

    def _effect_unit(self, data: TaskData) -> FloatArray:
        """(m, p) By which coefficients become effects in deviations within tasks."""
        return effect_unit(data, self._in_target_units, getattr(self, "fit_intercept", True)).T

    # ------------------------------------------------------------------ what was found

    def _store(self, data: TaskData, solution: Solution, scaling: Rescaled, tol: float, **settings: Any) -> None:
        """Set the fitted attributes from a solution for (possibly rescaled) data."""
        found = {"absent": None if data.present is None else ~data.present.T, "effect_unit": self._effect_unit(data)}
        found["task_names"] = data.task_names
        self._set_fit(scaling.to_user(solution), tol, found, **settings, n_rows=self._n_rows(data))

    def _set_fit(self, solution: Solution, tol: float, found: dict[str, Any] | None = None, **settings: Any) -> None:
        """Set the fitted attributes from a solution in the user's units, and what else is known of the data."""
        W = solution.W
        if not (all_finite(W) and all_finite(solution.intercept)):
            raise ValueError(
                "the fit gave coefficients that are not finite, since X or y holds numbers too large or too small to "
                "compute with; rescale them, or set standardize=True"
            )
        self.coef_: FloatArray = np.ascontiguousarray(W.T)
        self.intercept_: FloatArray = solution.intercept
        self.n_iter_ = solution.n_iter
        self.converged_ = solution.converged
        convergence = Convergence(
            converged=solution.converged,
            n_iter=solution.n_iter,
            objective=solution.objective,
            gap=solution.gap,
            tol=tol,
            objective_trace=solution.objective_trace,
        )
        found = {"coef": self.coef_, "intercept": self.intercept_, "noise": solution.noise, **(found or {})}
        self.result_ = self._named_result(convergence, settings, **found)

    def _named_result(self, convergence: Convergence, settings: dict[str, Any], **found: Any) -> FitResult:
        """What was found, with the names of tasks and features and all settings."""
        labels: Any = getattr(self, "classes_", ())
        if len(labels) == 2:
            settings = {**settings, "positive_class": str(labels[1])}
        changed = families.find_family(self.loss).effect_words if families.is_known(self.loss) else ""
        if changed:
            settings = {**settings, "effects_change": changed}
        return FitResult(
            method=type(self).__name__,
            feature_names=self._feature_names,
            convergence=convergence,
            settings={**self._plain_params(), **settings},
            versions=current_versions(),
            **{"task_names": self.tasks_, **found},
        )

    # ------------------------------------------------------------------ prediction

    def _linear_predictor(self, X: Any, tasks: Any) -> FloatArray:
        """(n,) or, in the wide form, (n, m); with one more axis for several classes within tasks."""
        if isinstance(X, TaskData):
            return self._predict_task_data(X)
        rows = self._read_rows(X, tasks)
        n = rows.X.shape[0]
        if rows.task is None:
            flat = np.asarray(rows.X @ self.coef_.reshape(-1, self.coef_.shape[-1]).T)
            eta: FloatArray = flat.reshape(n, *self.intercept_.shape) + self.intercept_
            return eta[:, 0] if self._form in ("single", "long") else eta
        eta = np.empty((n, *self.intercept_.shape[1:]))
        by_task = np.argsort(rows.task, kind="stable")
        for chosen in np.split(by_task, np.flatnonzero(np.diff(rows.task[by_task])) + 1):
            t = rows.task[chosen[0]] if len(chosen) else -1
            coef = self.coef_[t] if t >= 0 else self.coef_.mean(axis=0)
            intercept = self.intercept_[t] if t >= 0 else self.intercept_.mean(axis=0)
            eta[chosen] = rows.X[chosen] @ coef.T + intercept
        return eta

    def _with_own_features(self, data: TaskData) -> TaskData:
        """New data with the features of the fit, found by name."""
        absent = None
        if self.result_.absent is not None:
            index = match_labels(data.task_names, data.n_tasks, self.tasks_)
            absent = self.result_.absent[index[index >= 0]].all(axis=0) if (index >= 0).all() else None
        return data.with_features(self._feature_names, self._encoding, absent)

    def _predict_task_data(self, data: TaskData) -> FloatArray:
        check_is_fitted(self)
        data = self._with_own_features(data)
        index = match_labels(data.task_names, data.n_tasks, self.tasks_)
        if (index < 0).any():
            unknown = describe_unknown(data.task_names, index, self.tasks_)
            raise ValueError(f"X has tasks that were not there in fit: {unknown}")
        if self._filling is not None:
            data = filled(data, self._filling, index)
        if self.coef_.ndim == 3:
            classes = range(self.coef_.shape[1])
            return np.stack([self._task_data_predictor(data, index, k) for k in classes], axis=-1)
        return self._task_data_predictor(data, index, ...)

    def _task_data_predictor(self, data: TaskData, index: IntArray, part: Any) -> FloatArray:
        """Linear predictor with the coefficients of some tasks, or of one class of them."""
        W, intercept = self.coef_[index, part].T, self.intercept_[index, part]
        if self._form == "wide" and data.shared_design:
            return np.asarray(data.design @ W + intercept)
        eta: FloatArray = data.in_input_order(data.linear_predictor(W, intercept))
        return eta

    # ------------------------------------------------------------------ feature selection

    def get_support(self, indices: bool = False) -> BoolArray | IntArray:
        """Features that are selected: with a non-zero coefficient in any task, unless the estimator has its own choice.

        That is the inclusion probability above ``inclusion_threshold`` for posteriors, and the rank for rankings.

        Parameters
        ----------
        indices : return the numbers of the features instead of a mask
        """
        check_is_fitted(self)
        return np.flatnonzero(self._selected) if indices else self._selected

    @property
    def _selected(self) -> BoolArray:
        return (self.coef_ != 0).any(axis=tuple(range(self.coef_.ndim - 1)))

    def transform(self, X: Any) -> Any:
        """Keep the selected features of X.

        Parameters
        ----------
        X : (n, p) array, sparse matrix or frame, as in ``fit``
        """
        check_is_fitted(self)
        self._check_columns(X)
        features, _ = self._split_task_column(X, None)
        support = self.get_support(indices=True)
        if len(support) == 0:
            warn("no feature is selected; a weaker penalty or prior selects more", SelectionWarning)
        design = self._read_features(features)
        filling = self._filling
        return (design if filling is None else filling.fill(design, None))[:, support]

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> NDArray[np.object_]:
        """Names of the selected features.

        Parameters
        ----------
        input_features : names of the columns of X; must be those of ``fit`` where they were known
        """
        check_is_fitted(self)
        names = self._feature_names
        if input_features is not None:
            given = np.asarray(input_features, dtype=object)
            known = getattr(self, "feature_names_in_", None)
            if known is not None and not np.array_equal(given, known):
                raise ValueError("input_features is not equal to feature_names_in_; pass the names of fit")
            if len(given) != self.n_features_in_:
                raise ValueError(
                    f"input_features should have length equal to number of features ({self.n_features_in_}), "
                    f"got {len(given)}"
                )
            names = given if known is None else names
        return np.asarray(names, dtype=object)[self.get_support()]

    # ------------------------------------------------------------------ scikit-learn and files

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = getattr(self, "impute", None) is not None
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @classmethod
    @cache
    def _get_param_names(cls) -> list[str]:
        names: list[str] = super()._get_param_names()  # which reads the signature, as long as a small fit takes
        return names

    def _plain_params(self) -> dict[str, Any]:
        """Parameters as a result keeps them: a family by its name."""
        params: dict[str, Any] = self.get_params(deep=False)
        if isinstance(params.get("loss"), Family):
            params["loss"] = params["loss"].name
        return params

    def _saved_params(self) -> dict[str, Any]:
        """Parameters as a file keeps them, from which the estimator is made again."""
        return self._plain_params()

    @classmethod
    def _saved_names(cls) -> set[str]:
        return {name for base in cls.__mro__ for name in vars(base).get("_saved_attributes", ())}

    def _saved_fit(self) -> dict[str, Any]:
        """Fitted attributes that a file keeps besides those of the result."""
        return {name: getattr(self, name) for name in sorted(self._saved_names()) if hasattr(self, name)}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to one file at exactly this path; `bayesmtfs.load` reads it back.

        Parameters
        ----------
        path : where to write; an existing file is replaced in one step
        """
        check_is_fitted(self)
        stored, loss = self.result_.to_stored(), self.loss
        columns = None if self._encoding is None else [tuple(column) for column in self._encoding.columns]
        estimator = {
            "params": self._saved_params(),
            "family": families.registered_name(loss) if families.is_known(loss) else None,
            "form": self._form,
            "columns": columns,
            "n_features_in": self.n_features_in_,
            "feature_names_in": getattr(self, "feature_names_in_", None),
            "fitted": self._saved_fit(),
        }
        header = {**stored.header, "estimator": estimator}
        persistence.write(path, ESTIMATOR_KIND, header, stored.arrays, stored.tree, dims=RESULT_AXES)

    @classmethod
    def from_stored(cls, stored: persistence.StoredFile) -> Self:
        """Rebuild a fitted estimator from what `save` wrote."""
        header = dict(stored.header)
        state = header.pop("estimator")
        self = cls(**state["params"])
        self.result_ = FitResult.from_stored(stored._replace(kind=RESULT_KIND, header=header))
        self._form = state["form"]
        self._encoding = (
            None if state["columns"] is None else frames.Encoding(tuple(frames.Column(*c) for c in state["columns"]))
        )
        self._feature_names = self.result_.feature_names
        self.tasks_ = self.result_.task_names
        self.coef_ = self.result_.coef.copy()
        self.intercept_ = self.result_.intercept.copy()
        self.n_iter_ = self.result_.convergence.n_iter
        self.converged_ = self.result_.convergence.converged
        self.n_features_in_ = state["n_features_in"]
        if state["feature_names_in"] is not None:
            self.feature_names_in_ = state["feature_names_in"]
        self._offset_columns, self._gap_columns = {}, np.empty(0, dtype=np.int64)
        self._gap_means = self._gap_overall = self._row_model = None
        strange = state["fitted"].keys() - cls._saved_names()
        if strange:  # they could stand in the place of methods
            raise ValueError(f"it brings the attributes {sorted(strange)}, which save does not write")
        for name, value in state["fitted"].items():
            setattr(self, name, value)
        return self


def _without_absent(design: Design, absent: BoolArray, index: IntArray) -> Design:
    """Fill the features that a row's task does not have with 0; any other gap is an error."""
    missing = np.isnan(design)
    unknown = missing & ~absent[index]
    if unknown.any():
        row, feature = np.argwhere(unknown)[0]
        raise ValueError(
            f"X contains NaN in row {row}, feature {feature}, which the task of that row has; impute it or drop the row"
        )
    return np.where(missing, 0.0, design)


def _warn_of_fractions(data: TaskData) -> None:
    """Numbers with fractions, most of them there once, are targets rather than labels: y and tasks may be swapped."""
    labels = data.task_names
    if labels.dtype.kind == "f" and 2 * len(labels) > data.n_observations and (labels % 1 != 0).any():
        warn(
            f"tasks holds numbers with fractions, such as {labels[labels % 1 != 0][0]:g}, which make {len(labels)} tasks; "
            "if y and tasks were swapped call fit(X, y, tasks=labels), else turn the labels into strings",
            DataWarning,
        )


# ---------------------------------------------------------------------- estimators that see all rows at once


@estimator_class(kw_only=True)
class BatchEstimator(MultiTaskEstimator):
    """Base of the penalised and the EM estimators.

    Parameters
    ----------
    warm_start : bool
        Begin from the coefficients of the last fit.
    """

    fit_intercept: bool = True
    standardize: bool = False
    shared_mean: bool = False
    mean_strength: float | None = None
    task_column: Any = None
    unknown_task: str = "error"
    groups: ArrayLike | None = None
    impute: str | None = None
    tol: float = 1e-6
    max_iter: int = 1000
    warm_start: bool = False
    progress: bool | None = None

    def _check_common(self) -> None:
        """Refuse what no such fit can do."""
        self._check_loss()
        check_choice("unknown_task", self.unknown_task, ("error", "mean"))
        positive = self.mean_strength is None or self.mean_strength > 0
        self._require("mean_strength", positive, "a positive number, or None")
        self._require("tol", self.tol > 0, "a positive number such as 1e-6")
        self._require("max_iter", self.max_iter >= 1, "a whole number of at least 1")

    @abstractmethod
    def _check_loss(self) -> None:
        """Refuse a loss that the route cannot fit."""

    def _last_fit(self, scaling: Rescaled) -> Solution | None:
        """The last fit as a start, where that is wanted and fits the data."""
        last = getattr(self, "coef_", None)
        if not self.warm_start or last is None:
            return None
        last = last.reshape(-1, last.shape[-1])
        fits = last.shape == (scaling.data.n_tasks, scaling.data.n_features)
        return scaling.start(last, self.intercept_.ravel()) if fits else None


def check_family(loss: Any, labels: bool) -> Family:
    """Find the family of a loss, which must be one of labels, or one of other targets."""
    if not isinstance(loss, Family):
        kinds = {name: families.find_family(name).targets for name in families.names()}
        right = tuple(name for name, targets in kinds.items() if (targets == "labels") == labels)
        check_choice("loss", families.base_name(loss), right)
    family = families.find_family(loss)
    if (family.targets == "labels") != labels or family.targets == "survival":
        way_out = {"labels": "a classifier", "survival": "MixedNormSurvival"}.get(family.targets, "a regressor")
        raise ValueError(f"loss is {loss!r}, a family of {family.targets}; use {way_out}, or another family")
    return family


def check_choice(argument: str, value: Any, choices: tuple[str, ...]) -> None:
    """Refuse a value that is not among the choices."""
    if value not in choices:
        wanted = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{argument} is {value!r}; choose one of {wanted}")


# ---------------------------------------------------------------------- files


def load(path: str | os.PathLike[str]) -> Any:
    """Load a fitted estimator or a `FitResult` from the file that its ``save`` wrote.

    Parameters
    ----------
    path : the file

    Returns
    -------
    the estimator, or the result

    Examples
    --------
    >>> import tempfile, pathlib, numpy as np
    >>> from bayesmtfs import MixedNormRegressor, load
    >>> model = MixedNormRegressor().fit(np.eye(4), [1.0, 2.0, 3.0, 4.0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "model"
    ...     model.save(path)
    ...     bool((load(path).coef_ == model.coef_).all())
    True
    """
    stored = persistence.read(path)
    if stored.kind != ESTIMATOR_KIND:
        return FitResult.from_stored(stored)
    method, known = stored.header.get("method"), ESTIMATORS | BASELINES
    if method not in known:
        raise persistence.CorruptFileError(
            f"{path} holds a {method}, which this version does not know; known are {', '.join(sorted(known))}"
        )
    state = stored.header.get("estimator")
    family = state.get("family") if isinstance(state, dict) else None
    if isinstance(family, str) and not families.is_known(family):
        raise ValueError(
            f"{path} holds a fit with loss={family!r}, which is not known here; call bm.families.register(family) first"
        )
    # A file names one of our own classes, it never brings code
    estimator = getattr(importlib.import_module(known[method]), method)
    try:
        return estimator.from_stored(stored)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise persistence.CorruptFileError(
            f"{path} does not hold a whole {method} ({type(error).__name__}: {error}); save the fit again"
        ) from error
