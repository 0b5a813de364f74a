"""The face of every regressor: predictions and their score."""

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score

from bayesmtfs.estimators.base import MultiTaskEstimator
from bayesmtfs.protocols import FloatArray
from bayesmtfs.tasks import TaskData


class MultiTaskRegressor(RegressorMixin, MultiTaskEstimator):
    """Predict numbers."""

    def predict(self, X: Any, tasks: Any = None) -> FloatArray:
        """Predict targets.

        Parameters
        ----------
        X : (n, p) rows
        tasks : (n,) task labels, where the model was fitted on labelled tasks

        Returns
        -------
        (n,) predictions, or (n, n_tasks) for a model of the wide form
        """
        return self._linear_predictor(X, tasks)

    def score(self, X: Any, y: Any, tasks: Any = None, sample_weight: Any = None) -> float:
        """Coefficient of determination R^2 of the predictions; of the wide form, its mean over tasks.

        Parameters
        ----------
        X, y, tasks, sample_weight : as in ``fit``
        """
        predicted = self.predict(X, tasks)
        if predicted.ndim == 1:
            return float(r2_score(np.asarray(y).reshape(predicted.shape), predicted, sample_weight=sample_weight))
        return mean_over_tasks(r2_score, np.asarray(y, dtype=np.float64), predicted, sample_weight)

    def _numeric(self, data: TaskData) -> TaskData:
        """Refuse labels."""
        if data.y.dtype.kind != "f":
            raise ValueError(
                f"y is not numeric (dtype {data.y.dtype}); a regressor wants numbers, use a classifier for labels"
            )
        return data


def mean_over_tasks(metric: Any, target: Any, predicted: Any, sample_weight: Any) -> float:
    """Mean over the columns of a metric on their observed cells."""
    weight = None if sample_weight is None else np.broadcast_to(np.atleast_2d(sample_weight.T).T, target.shape)
    scores = []
    for t in range(target.shape[1]):
        seen = ~np.isnan(target[:, t])
        own = None if weight is None else weight[seen, t]
        scores.append(metric(target[seen, t], predicted[seen, t], sample_weight=own))
    return float(np.mean(scores))
