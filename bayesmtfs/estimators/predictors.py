"""Regressors and classifiers: how targets are read, predicted and scored.

The family of the loss says what a target is. Any two labels are -1 and +1 inside, the second of the sorted ``classes_``
being +1. More than two classes in one task become one-versus-rest tasks over one design, with ``coef_`` of shape
``(n_classes, n_features)``.
"""

from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from bayesmtfs.data import classes
from bayesmtfs.data.inputs import match_labels, read_target, read_weights
from bayesmtfs.data.moments import Moments
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.estimators.base import MultiTaskEstimator, Names, estimator_class
from bayesmtfs.families import Family, Gaussian, Ordinal, find_family, is_known, with_offset
from bayesmtfs.families.ordinal import OrdinalRows
from bayesmtfs.results.persistence import StoredFile
from bayesmtfs.types import FloatArray

NO_DEVIANCE = 1e-9  # per row, of counts that are all 0


@estimator_class(kw_only=True)
class MultiTaskRegressor(RegressorMixin, MultiTaskEstimator):
    """Predict numbers.

    Parameters
    ----------
    scale_target : bool or None
        Divide each task's targets by their deviation within the task before the fit, so that targets in different units
        count alike; coefficients, intercepts, noise and predictions are in the user's units all the same, while the
        objective is that of the scaled targets. None: EM and posteriors do so in the wide form (different quantities)
        and not in the long form (one quantity in many groups), and the other estimators do not.

    Attributes
    ----------
    coef_ : (n_tasks, n_features)
    intercept_ : (n_tasks,)
    """

    # Whether sums over rows are all that a fit with the squared loss needs
    _fits_moments: ClassVar[bool] = True

    scale_target: bool | None = None

    @property
    def _in_target_units(self) -> bool:
        return self._family.in_target_units

    @property
    def _scales_target(self) -> bool:
        if self.scale_target and not self._in_target_units:
            raise ValueError(
                f"scale_target=True does not go with loss={self.loss!r}, whose targets have no unit; leave it at None"
            )
        if self.scale_target is None:
            several = getattr(self, "_form", None) == "wide" and len(self.tasks_) > 1
            return several and self._scales_wide_targets and self._in_target_units
        return self.scale_target

    @property
    def _family(self) -> Family:
        """The family of the loss; a loss that only one estimator has predicts as the squared one."""
        return find_family(self.loss) if is_known(self.loss) else Gaussian()

    def fit_moments(self, moments: Moments) -> Self:
        """Fit from sums over rows, which may come from files or machines that no memory holds.

        The result is that of ``fit`` on the rows. Only the squared loss has such sums.

        Parameters
        ----------
        moments : what `bayesmtfs.moments.from_arrays`, ``from_parquet``, ``from_dask`` or ``from_summary`` gives
        """
        name = type(self).__name__
        if not isinstance(moments, Moments):
            raise TypeError(f"moments is a {type(moments).__name__}; pass what bayesmtfs.moments.from_arrays gives")
        if not self._fits_moments:
            raise ValueError(f"{name} needs the rows themselves, in turn or in folds; use fit, or another estimator")
        if not self._family.quadratic:
            raise ValueError(f"loss={self.loss!r} needs the rows themselves; moments are for the squared loss")
        self.fit(moments.to_task_data())
        self.result_.settings["n_rows"] = int(moments.n_rows.sum())
        return self

    def predict(self, X: Any, tasks: Any = None, *, exposure: Any = None, offset: Any = None) -> FloatArray:
        """Predict targets: their means under the family of the loss.

        Parameters
        ----------
        X : (n, p) rows
        tasks : (n,) task labels, where the model was fitted on labelled tasks
        exposure, offset : as in ``fit``; without them, and without a column that was named in ``fit``, 1 and 0

        Returns
        -------
        (n,) predictions, or (n, n_tasks) for a model of the wide form
        """
        return self._family.mean(self._full_predictor(X, tasks, exposure, offset))

    def score(
        self,
        X: Any,
        y: Any = None,
        tasks: Any = None,
        sample_weight: Any = None,
        *,
        exposure: Any = None,
        offset: Any = None,
    ) -> float:
        """Coefficient of determination R^2 of the predictions; of the wide form, its mean over tasks.

        Of counts and quantiles, where R^2 has no meaning, it is the share of the deviance (of the loss) that is explained,
        D^2: 1 for a perfect fit, 0 for the best constant (beside the offset).

        Parameters
        ----------
        X, y, tasks, sample_weight, exposure, offset : as in ``fit``
        """
        known = {"exposure": exposure, "offset": offset}
        rows = X
        if isinstance(X, TaskData):
            y, sample_weight = X.in_input_order(X.y), np.nan_to_num(X.in_input_order(X.weight))
        if not self._family.scores_deviance:
            predicted = self.predict(X, tasks, **known)
            return score_by_task(r2_score, read_target(y, len(predicted)), predicted, sample_weight)
        predicted = self._linear_predictor(self._without_named(X, **known), tasks)
        part = self._known_part(rows, **known, shape=predicted.shape)
        metric = partial(_explained_deviance, self._family)
        return score_by_task(metric, read_target(y, len(predicted)), predicted, sample_weight, part)

    def _code_targets(self, data: TaskData, from_task_data: bool) -> TaskData:
        """Refuse labels, and numbers that are no counts where the family wants counts."""
        if data.y.dtype.kind == "b":
            return data.with_target(data.y.astype(np.float64))
        if data.y.dtype.kind != "f":
            swapped = ", or call fit(X, y, tasks=labels) if y and tasks were swapped" if self._form == "long" else ""
            raise ValueError(
                f"y is not numeric (dtype {data.y.dtype}); a regressor wants numbers, use a classifier for labels{swapped}"
            )
        if self._family.targets == "counts":
            _check_counts(data.y, self.loss)
        return data


def _check_counts(y: FloatArray, loss: Any) -> None:
    wrong = (y < 0) | (y % 1 != 0)
    if wrong.any():
        raise ValueError(
            f"y has the entry {y[wrong][0]:g}, but loss={loss!r} is for counts; pass whole numbers of at least 0, or use "
            "a loss for numbers, such as 'squared'"
        )


def _explained_deviance(
    family: Family,
    y: FloatArray,
    eta: FloatArray,
    sample_weight: FloatArray | None,
    offset: FloatArray | None = None,
) -> float:
    """D^2: one minus the deviance over that of the best constant (1 or 0 where the constant is perfect)."""
    weight = np.ones(len(y)) if sample_weight is None else sample_weight
    family = with_offset(family, offset)
    best = family.saturated(y)
    left = float(weight @ (family.value(y, eta) - best))
    constant = float(weight @ (family.value(y, np.full(len(y), family.best_constant(y, weight))) - best))
    # without any event the best rate is 0, which no logarithm has: what is left of such a deviance is nothing
    nothing = NO_DEVIANCE * float(weight.sum()) if family.targets == "counts" else 0.0
    return 1.0 - left / constant if constant > nothing else float(left <= nothing)


def score_by_task(
    metric: Any, target: Any, predicted: Any, sample_weight: Any, offset: FloatArray | None = None
) -> float:
    """``metric(target, predicted, sample_weight=...)``; in the wide form its mean over the tasks, on observed cells.

    An offset of the shape of the predictions goes to the metric, too.
    """
    if predicted.ndim == 1 and target.shape == (len(predicted), 1):
        target = target[:, 0]
    if target.shape != predicted.shape:
        raise ValueError(f"y has shape {target.shape} but predictions have shape {predicted.shape}; pass y as in fit")
    weight = read_weights(sample_weight, target.shape)
    if predicted.ndim == 1:
        more = {} if offset is None else {"offset": offset}
        return float(metric(target, predicted, sample_weight=weight, **more))
    scores = []
    for t in range(target.shape[1]):
        seen = ~np.isnan(target[:, t])
        own = None if weight is None else weight[seen, t]
        more = {} if offset is None else {"offset": offset[seen, t]}
        if seen.any():  # a task without any target in these rows has no score
            scores.append(metric(target[seen, t], predicted[seen, t], sample_weight=own, **more))
    if not scores:
        raise ValueError("y has no observed cell: all its entries are NaN; pass the targets of some rows")
    return float(np.mean(scores))


def _has_probabilities(estimator: Any) -> bool:
    loss = estimator.loss
    family = find_family(loss) if is_known(loss) else None
    if family is None or family.targets != "labels" or not (family.offers("mean") or family.has_cuts):
        raise AttributeError(f"loss={loss!r} has no probabilities; use loss='logistic'")
    return True


@estimator_class(kw_only=True)
class MultiTaskClassifier(ClassifierMixin, MultiTaskEstimator):
    """Predict labels.

    Parameters
    ----------
    class_weight : "balanced", mapping from label to weight, or None
        By which the weights of rows are multiplied in the fit. "balanced": classes weigh the same within every task, whose
        total weight stays as it is (of several classes one-versus-rest: each class and its rest). Streams take
        "balanced" in ``fit`` only.

    Attributes
    ----------
    coef_ : (n_tasks, n_features)
        Of several classes in one task (n_classes, n_features), within tasks (n_tasks, n_classes, n_features).
    intercept_ : (n_tasks,)
        Of several classes (n_classes,) or (n_tasks, n_classes).
    classes_ : (n_classes,) sorted labels
    """

    _saved_attributes: ClassVar[Names] = ("classes_", "tasks_")

    class_weight: Any = None

    def _read_target(self, y: Any, n_rows: int) -> NDArray[Any]:
        codes, self.classes_ = classes.read_classes(y, n_rows)
        return codes

    def _code_targets(self, data: TaskData, from_task_data: bool) -> TaskData:
        """Labels as -1 and +1, several classes as one task each."""
        classes.check_class_weight(self.class_weight)
        if from_task_data:
            data, self.classes_ = classes.classes_of(data)
        if len(self.classes_) < 2:
            raise ValueError(
                f"Classifier can't train when only one class is present: y has only {self.classes_.tolist()}; pass "
                "rows of at least two classes"
            )
        family = find_family(self.loss) if is_known(self.loss) else None
        together = len(self.classes_) == 2 or (family is not None and family.coupled)
        balanced = isinstance(self.class_weight, str)
        if together or not balanced:
            data = classes.with_class_weights(data, self.class_weight, self.classes_)
        if family is not None and family.has_cuts:
            if self.classes_.dtype.kind not in "iufb":
                raise ValueError(
                    f"y has the labels {self.classes_.tolist()[:5]}, whose order is not known, but loss={family.name!r} is "
                    "for ordered classes; pass numbers in that order, such as y.cat.codes of an ordered categorical"
                )
            classes.check_two_classes_per_task(data)
            return data
        if family is not None and family.coupled:
            return self._code_classes(data, classes.class_tasks(data, self.classes_))
        if len(self.classes_) == 2:
            data = classes.as_signs(data)
        else:
            if self._form == "long":
                raise ValueError(
                    f"y has {len(self.classes_)} classes and tasks was passed; tasks must be binary, and several "
                    "classes are taken apart (one task per class) only where there is one task: use loss='multinomial' "
                    "(MixedNormClassifier), leave tasks out, "
                    "pass two labels, or call fit(X, y, tasks=labels) if y and tasks were swapped"
                )
            data = self._code_classes(data, classes.one_versus_rest(data, self.classes_))
            data = classes.with_balanced_signs(data) if balanced else data
        classes.check_two_classes_per_task(data)
        return data

    def _code_classes(self, data: TaskData, coded: TaskData) -> TaskData:
        """Data with a task for every class; where there are no tasks beside them, the classes are the tasks."""
        if self._form == "single" or (data.n_tasks == 1 and self._form == "wide"):
            self.tasks_, self._form = self.classes_, "classes"
        return coded

    def _n_rows(self, data: TaskData) -> int:
        return data.n_observations // (1 if len(self.classes_) == 2 or self._has_cuts else len(self.classes_))

    @property
    def _has_cuts(self) -> bool:
        """Whether classes are ordered."""
        return is_known(self.loss) and find_family(self.loss).has_cuts

    def _store_cuts(self, data: TaskData) -> None:
        """Set the best ``thresholds_`` at the coefficients, where classes are ordered."""
        self.__dict__.pop("thresholds_", None)
        if self._has_cuts:
            rows = OrdinalRows(data.y, data.weight, data.offsets)
            eta = data.linear_predictor(self.coef_.T, self.intercept_)
            eta = eta if data.eta_offset is None else eta + data.eta_offset
            self.thresholds_ = rows.cuts(eta, len(self.classes_))

    def _cuts(self, X: Any, tasks: Any, n_axes: int) -> FloatArray:
        """(n, n_classes - 1) Thresholds of every row's task, the mean ones of an unknown task; (n_tasks, ...) if wide."""
        if n_axes == 2:
            return self.thresholds_
        if isinstance(X, TaskData):
            own = X.in_input_order(match_labels(X.task_names, X.n_tasks, self.tasks_)[X.task]).astype(np.int64)
        else:
            _, labels = self._split_task_column(X, tasks)
            if labels is None:
                return self.thresholds_[:1]
            own = match_labels(labels, len(labels), self.tasks_)
        # Of a new task those of the average task; where a task lacks a class at an end its threshold there is infinite
        known = np.where(np.isfinite(self.thresholds_), self.thresholds_, np.nan)
        lacking = np.isnan(known).all(axis=0)
        average = np.where(lacking, self.thresholds_[0], np.nanmean(np.where(lacking, 0.0, known), axis=0))
        return np.where(own[:, np.newaxis] >= 0, self.thresholds_[own], np.maximum.accumulate(average))

    @property
    def _within_tasks(self) -> bool:
        """Whether there are several classes within tasks."""
        return self.coef_.ndim == 3

    def _set_fit(self, *found: Any, **settings: Any) -> None:
        super()._set_fit(*found, **settings)
        self._shape_coefficients()

    def _shape_coefficients(self) -> None:
        """Classes within tasks have an axis of their own."""
        if len(self.coef_) != len(self.tasks_):
            m, p = len(self.tasks_), self.coef_.shape[1]
            self.coef_, self.intercept_ = self.coef_.reshape(m, -1, p), self.intercept_.reshape(m, -1)

    def _saved_fit(self) -> dict[str, Any]:
        """Fitted attributes of a file; tasks only where they are not those of the result."""
        found = super()._saved_fit()
        return found if self._within_tasks else {name: value for name, value in found.items() if name != "tasks_"}

    @classmethod
    def from_stored(cls, stored: StoredFile) -> Self:
        """Rebuild a fitted estimator from what `save` wrote."""
        self = super().from_stored(stored)
        self._shape_coefficients()
        return self

    def decision_function(self, X: Any, tasks: Any = None, *, offset: Any = None) -> FloatArray:
        """Linear predictor: positive means ``classes_[1]`` (several classes: the largest wins).

        Parameters
        ----------
        X : (n, p) rows
        tasks : (n,) task labels, where the model was fitted on labelled tasks
        offset : as in ``fit``; 0 without it, and without a column that was named in ``fit``

        Returns
        -------
        (n,), or (n, n_tasks) in the wide form; of several classes (n, n_classes) or (n, n_tasks, n_classes)
        """
        check_is_fitted(self)
        if self._form != "classes":
            return self._full_predictor(X, tasks, offset=offset)
        if tasks is not None:
            raise ValueError(
                f"tasks was passed but {type(self).__name__} was fitted on one task with {len(self.classes_)} classes; "
                "leave tasks out"
            )
        if isinstance(X, TaskData):
            X = self._with_own_features(X)
            X = X.X[np.argsort(X.order)]
        return self._linear_predictor(X, None)

    def predict(self, X: Any, tasks: Any = None, *, offset: Any = None) -> NDArray[Any]:
        """Predict labels; parameters and shapes as in `decision_function`, without the axis of several classes."""
        if self._has_cuts:
            return self.classes_[np.argmax(self.predict_proba(X, tasks, offset=offset), axis=-1)]
        decision = self.decision_function(X, tasks, offset=offset)
        if self._form == "classes" or self._within_tasks:
            return self.classes_[np.argmax(decision, axis=-1)]
        return self.classes_[(decision > 0).astype(np.int64)]

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any, tasks: Any = None, *, offset: Any = None) -> FloatArray:
        """Probabilities of the classes; the loss must have some, as the logistic and the multinomial one.

        Parameters
        ----------
        X, tasks, offset : as in `decision_function`

        Returns
        -------
        (n, 2); in the wide form (n, n_tasks), the probability of ``classes_[1]`` in each task; for several classes
        (n, n_classes), the one-versus-rest probabilities divided by their sum (or those of the multinomial or ordinal
        loss, in the wide form (n, n_tasks, n_classes))
        """
        decision = self.decision_function(X, tasks, offset=offset)
        if self._has_cuts:
            return Ordinal().probabilities(decision, self._cuts(X, tasks, decision.ndim))
        probability = find_family(self.loss).mean(decision)
        if self._form == "classes":
            total = probability.sum(axis=1, keepdims=True)
            even = np.full_like(probability, 1.0 / probability.shape[1])
            return np.divide(probability, total, out=even, where=total > 0)
        if probability.ndim > 1 or self._within_tasks:
            return probability
        return np.column_stack([1.0 - probability, probability])

    def score(
        self, X: Any, y: Any = None, tasks: Any = None, sample_weight: Any = None, *, offset: Any = None
    ) -> float:
        """Share of correct labels; of the wide form, its mean over tasks (observed cells only).

        A label that is none of ``classes_`` counts as a wrong prediction.

        Parameters
        ----------
        X, y, tasks, sample_weight, offset : as in ``fit``
        """
        if isinstance(X, TaskData):
            y, sample_weight = X.in_input_order(X.y), np.nan_to_num(X.in_input_order(X.weight))
        predicted = self.predict(X, tasks, offset=offset)
        target = classes.match_classes(y, len(predicted), self.classes_)
        chosen = np.searchsorted(self.classes_, predicted).astype(np.float64)
        return score_by_task(accuracy_score, target, chosen, sample_weight)
