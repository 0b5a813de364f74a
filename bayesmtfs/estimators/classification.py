"""The face of every classifier: labels, decisions, probabilities.

Any two labels are -1 and +1 inside, the second of the sorted ``classes_`` being +1. More than two classes in one task
become one-versus-rest tasks over one design, with ``coef_`` of shape ``(n_classes, n_features)``.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from bayesmtfs import families
from bayesmtfs.data.classes import (
    as_signs,
    check_two_classes_per_task,
    classes_of,
    match_classes,
    one_versus_rest,
    read_classes,
)
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.estimators.base import MultiTaskEstimator
from bayesmtfs.estimators.regression import score_by_task
from bayesmtfs.types import FloatArray


def _has_probabilities(estimator: Any) -> bool:
    if estimator.loss != "logistic":
        raise AttributeError(f"loss={estimator.loss!r} has no probabilities; use loss='logistic'")
    return True


class MultiTaskClassifier(ClassifierMixin, MultiTaskEstimator):
    """Predict labels."""

    loss: str

    def _read_target(self, y: Any, n_rows: int) -> NDArray[Any]:
        codes, self.classes_ = read_classes(y, n_rows)
        return codes

    def _code_targets(self, data: TaskData, from_task_data: bool) -> TaskData:
        """Labels as -1 and +1, several classes as one task each."""
        if from_task_data:
            data, self.classes_ = classes_of(data)
        if len(self.classes_) < 2:
            raise ValueError(
                f"Classifier can't train when only one class is present: y has only {self.classes_.tolist()}; pass "
                "rows of at least two classes"
            )
        if len(self.classes_) == 2:
            data = as_signs(data)
        else:
            if self._form == "long":
                raise ValueError(
                    f"y has {len(self.classes_)} classes and tasks was passed; tasks must be binary, and several "
                    "classes are taken apart (one task per class) only where there is one task: leave tasks out, "
                    "pass two labels, or call fit(X, y, tasks=labels) if y and tasks were swapped"
                )
            data = one_versus_rest(data, self.classes_)
            self.tasks_ = self.classes_
            self._form = "classes"
        check_two_classes_per_task(data)
        return data

    def decision_function(self, X: Any, tasks: Any = None) -> FloatArray:
        """Linear predictor: positive means ``classes_[1]`` (several classes: the largest wins).

        Parameters
        ----------
        X : (n, p) rows
        tasks : (n,) task labels, where the model was fitted on labelled tasks

        Returns
        -------
        (n,), or (n, n_tasks) in the wide form, or (n, n_classes) for several classes
        """
        check_is_fitted(self)
        if self._form != "classes":
            return self._linear_predictor(X, tasks)
        if tasks is not None:
            raise ValueError(
                f"tasks was passed but {type(self).__name__} was fitted on one task with {len(self.classes_)} classes; "
                "leave tasks out"
            )
        return self._linear_predictor(X.X[np.argsort(X.order)] if isinstance(X, TaskData) else X, None)

    def predict(self, X: Any, tasks: Any = None) -> NDArray[Any]:
        """Predict labels; parameters and shapes as in `decision_function`, (n,) for several classes."""
        decision = self.decision_function(X, tasks)
        if self._form == "classes":
            return self.classes_[np.argmax(decision, axis=1)]
        return self.classes_[(decision > 0).astype(np.int64)]

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any, tasks: Any = None) -> FloatArray:
        """Probabilities of the classes; the loss must be logistic.

        Parameters
        ----------
        X, tasks : as in `decision_function`

        Returns
        -------
        (n, 2); in the wide form (n, n_tasks), the probability of ``classes_[1]`` in each task; for several classes
        (n, n_classes), the one-versus-rest probabilities divided by their sum
        """
        probability = families.find_family(self.loss).mean(self.decision_function(X, tasks))
        if self._form == "classes":
            total = probability.sum(axis=1, keepdims=True)
            even = np.full_like(probability, 1.0 / probability.shape[1])
            return np.divide(probability, total, out=even, where=total > 0)
        if probability.ndim == 2:
            return probability
        return np.column_stack([1.0 - probability, probability])

    def score(self, X: Any, y: Any = None, tasks: Any = None, sample_weight: Any = None) -> float:
        """Share of correct labels; of the wide form, its mean over tasks (observed cells only).

        A label that is none of ``classes_`` counts as a wrong prediction.

        Parameters
        ----------
        X, y, tasks, sample_weight : as in ``fit``
        """
        if isinstance(X, TaskData):
            y, sample_weight = X.in_input_order(X.y), np.nan_to_num(X.in_input_order(X.weight))
        predicted = self.predict(X, tasks)
        target = match_classes(y, len(predicted), self.classes_)
        chosen = np.searchsorted(self.classes_, predicted).astype(np.float64)
        return score_by_task(accuracy_score, target, chosen, sample_weight)
