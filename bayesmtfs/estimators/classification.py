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

from bayesmtfs import likelihoods
from bayesmtfs.classes import as_signs, check_two_classes_per_task, classes_of, one_versus_rest, read_classes
from bayesmtfs.estimators.base import MultiTaskEstimator
from bayesmtfs.estimators.regression import mean_over_tasks
from bayesmtfs.protocols import FloatArray
from bayesmtfs.tasks import TaskData


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

    def _signed(self, data: TaskData, from_task_data: bool) -> TaskData:
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
        return self._linear_predictor(X, tasks)

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
        probability = likelihoods.named(self.loss).mean(self.decision_function(X, tasks))
        if self._form == "classes":
            total = probability.sum(axis=1, keepdims=True)
            even = np.full_like(probability, 1.0 / probability.shape[1])
            return np.divide(probability, total, out=even, where=total > 0)
        if probability.ndim == 2:
            return probability
        return np.column_stack([1.0 - probability, probability])

    def score(self, X: Any, y: Any, tasks: Any = None, sample_weight: Any = None) -> float:
        """Share of correct labels; of the wide form, its mean over tasks (observed cells only).

        Parameters
        ----------
        X, y, tasks, sample_weight : as in ``fit``
        """
        predicted = self.predict(X, tasks)
        if predicted.ndim == 1:
            return float(accuracy_score(np.asarray(y).reshape(predicted.shape), predicted, sample_weight=sample_weight))
        codes, classes = read_classes(y, predicted.shape[0])
        given = np.searchsorted(self.classes_, classes)
        known = np.array(
            [place < 2 and self.classes_[place] == label for place, label in zip(given, classes, strict=True)]
        )
        position = np.where(known, given, -1.0)
        target = np.where(np.isnan(codes), np.nan, position[np.nan_to_num(codes).astype(np.int64)])
        chosen = np.searchsorted(self.classes_, predicted).astype(np.float64)
        return mean_over_tasks(accuracy_score, target, chosen, sample_weight)
