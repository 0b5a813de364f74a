"""Rows of unit length, in the fit and in every prediction."""

from dataclasses import replace
from typing import Any

import numpy as np

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.estimators.base import MultiTaskEstimator, NewRows
from bayesmtfs.online.smoothed_rounds import unit_rows
from bayesmtfs.types import FloatArray


class UnitRowEstimator(MultiTaskEstimator):
    """Divides rows by their length where ``normalize_rows`` is set, in prediction as in the fit."""

    normalize_rows: bool

    def _scaled(self, data: TaskData) -> TaskData:
        return replace(data, design=unit_rows(data.design)) if self.normalize_rows else data

    def _read_rows(self, X: Any, tasks: Any) -> NewRows:
        rows = super()._read_rows(X, tasks)
        return rows._replace(X=unit_rows(rows.X)) if self.normalize_rows else rows

    def _predict_task_data(self, data: TaskData) -> FloatArray:
        return super()._predict_task_data(self._scaled(data))


def check_positive(argument: str, value: float) -> None:
    """Refuse a number that is not positive and finite."""
    if not 0 < value < np.inf:
        raise ValueError(f"{argument} is {value}; pass a positive number")
