"""The face of every regressor: predictions and their score."""

from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score

from bayesmtfs.data.inputs import read_target, read_weights
from bayesmtfs.data.moments import Moments
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.estimators.base import MultiTaskEstimator
from bayesmtfs.types import FloatArray


class MultiTaskRegressor(RegressorMixin, MultiTaskEstimator):
    """Predict numbers."""

    # Whether sums over rows are all that a fit with the squared loss needs
    _fits_moments: ClassVar[bool] = True

    def fit_moments(self, moments: Moments) -> Self:
        """Fit from sums over rows, which may come from files or machines that no memory holds.

        The result is that of ``fit`` on the rows. Only the squared loss has such sums.

        Parameters
        ----------
        moments : what `bayesmtfs.moments.from_arrays`, ``from_parquet`` or ``from_dask`` gives
        """
        name, loss = type(self).__name__, getattr(self, "loss", "squared")
        if not isinstance(moments, Moments):
            raise TypeError(f"moments is a {type(moments).__name__}; pass what bayesmtfs.moments.from_arrays gives")
        if not self._fits_moments:
            raise ValueError(f"{name} needs the rows themselves, in turn or in folds; use fit, or another estimator")
        if loss != "squared":
            raise ValueError(f"loss={loss!r} needs the rows themselves; moments are for the squared loss")
        return self.fit(moments.to_task_data())

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

    def score(self, X: Any, y: Any = None, tasks: Any = None, sample_weight: Any = None) -> float:
        """Coefficient of determination R^2 of the predictions; of the wide form, its mean over tasks.

        Parameters
        ----------
        X, y, tasks, sample_weight : as in ``fit``
        """
        if isinstance(X, TaskData):
            y, sample_weight = X.in_input_order(X.y), np.nan_to_num(X.in_input_order(X.weight))
        predicted = self.predict(X, tasks)
        return score_by_task(r2_score, read_target(y, len(predicted)), predicted, sample_weight)

    def _code_targets(self, data: TaskData, from_task_data: bool) -> TaskData:
        """Refuse labels."""
        if data.y.dtype.kind == "b":
            return data.with_target(data.y.astype(np.float64))
        if data.y.dtype.kind != "f":
            swapped = ", or call fit(X, y, tasks=labels) if y and tasks were swapped" if self._form == "long" else ""
            raise ValueError(
                f"y is not numeric (dtype {data.y.dtype}); a regressor wants numbers, use a classifier for labels{swapped}"
            )
        return data


def score_by_task(metric: Any, target: Any, predicted: Any, sample_weight: Any) -> float:
    """Metric of the predictions; in the wide form its mean over the tasks, each on its observed cells.

    Parameters
    ----------
    metric : ``metric(target, predicted, sample_weight=...)``
    target : (n,) or (n, m) numbers, NaN where a cell of the wide form was not observed
    predicted : (n,) or (n, m)
    sample_weight : None, (n,) or (n, m)
    """
    if predicted.ndim == 1 and target.shape == (len(predicted), 1):
        target = target[:, 0]
    if target.shape != predicted.shape:
        raise ValueError(f"y has shape {target.shape} but predictions have shape {predicted.shape}; pass y as in fit")
    weight = read_weights(sample_weight, target.shape)
    if predicted.ndim == 1:
        return float(metric(target, predicted, sample_weight=weight))
    scores = []
    for t in range(target.shape[1]):
        seen = ~np.isnan(target[:, t])
        own = None if weight is None else weight[seen, t]
        if seen.any():  # a task without any target in these rows has no score
            scores.append(metric(target[seen, t], predicted[seen, t], sample_weight=own))
    if not scores:
        raise ValueError("y has no observed cell: all its entries are NaN; pass the targets of some rows")
    return float(np.mean(scores))
