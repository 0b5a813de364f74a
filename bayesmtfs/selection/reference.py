"""What a multi-task fit is measured against: each task's mean, one model for all rows, and every task alone.

`reference_fits` gives estimators for `compare`, in the family of the targets:

    task mean            every task's best constant (no feature)
    pooled lasso         all rows as if they were one task, penalty by cross-validation; not in the wide form, where tasks
                         are different quantities
    lasso task by task   the l1,1 fit, which tells nothing from one task to another, penalty by cross-validation

A fit that does not beat the task mean has found nothing; one that does not beat the pooled fit or the single tasks gains
nothing from treating them as related tasks.
"""

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils import Tags

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.estimators.penalised import MixedNormClassifier, MixedNormRegressor
from bayesmtfs.estimators.penalised_cv import MixedNormClassifierCV, MixedNormRegressorCV
from bayesmtfs.families import Family
from bayesmtfs.types import BoolArray, FloatArray

NO_FEATURE = 1e12  # a penalty at which no feature is kept, in any units that make sense
N_PENALTIES, RATIO = 30, 1e-2


class Pooled(BaseEstimator):
    """An estimator that takes the rows of all tasks for those of one.

    Parameters
    ----------
    estimator : with ``fit`` and ``predict`` for `TaskData`
    """

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def __sklearn_tags__(self) -> Tags:
        return self.estimator.__sklearn_tags__()

    def fit(self, data: TaskData) -> Self:
        """Fit all rows of all tasks together."""
        self.fitted_ = clone(self.estimator).fit(self._one_task(data))
        self.tasks_, m = data.task_names, data.n_tasks
        self.coef_: FloatArray = np.tile(self.fitted_.coef_, (m, 1))
        self.intercept_: FloatArray = np.tile(self.fitted_.intercept_, m)
        if hasattr(self.fitted_, "classes_"):
            self.classes_ = self.fitted_.classes_
        return self

    def predict(self, data: TaskData) -> Any:
        """Predict rows, in the order of the data."""
        return self.fitted_.predict(self._one_task(data))

    def predict_proba(self, data: TaskData) -> FloatArray:
        """Probabilities of the classes."""
        found: FloatArray = self.fitted_.predict_proba(self._one_task(data))
        return found

    def get_support(self) -> BoolArray:
        """(p,) Features that are selected."""
        return np.asarray(self.fitted_.get_support())

    @property
    def loss(self) -> str | Family:
        """Family of the targets."""
        loss: str | Family = self.estimator.loss
        return loss

    @staticmethod
    def _one_task(data: TaskData) -> TaskData:
        return TaskData.from_long(data.X, data.y, sample_weight=data.weight)


def reference_fits(
    classify: bool, loss: str | Family | None = None, wide: bool = False, **options: Any
) -> dict[str, Any]:
    """Estimators by their names; see the head of this file.

    Parameters
    ----------
    classify : whether targets are labels
    loss : family of the targets; None: squared, or logistic for labels
    wide : whether tasks are different quantities over the same rows
    **options : further parameters that all of them have, such as ``standardize``

    Examples
    --------
    >>> list(reference_fits(classify=False))
    ['task mean', 'pooled lasso', 'lasso task by task']
    """
    path: Any = MixedNormClassifierCV if classify else MixedNormRegressorCV
    constant: Any = MixedNormClassifier if classify else MixedNormRegressor
    known: dict[str, Any] = options | ({} if loss is None else {"loss": loss})
    lasso = path(norm_q=1, n_penalties=N_PENALTIES, penalty_ratio=RATIO, cv=3, random_state=0, **known)
    pooled = {} if wide else {"pooled lasso": Pooled(clone(lasso))}
    return {"task mean": constant(penalty_strength=NO_FEATURE, **known), **pooled, "lasso task by task": lasso}


def with_choices_fixed(fit: Any) -> Any:
    """An unfitted estimator with the penalty and q that a fit has chosen: it does not choose again."""
    if not isinstance(fit, MixedNormRegressorCV | MixedNormClassifierCV):
        return clone(fit)
    plain: Any = MixedNormClassifier if hasattr(fit, "classes_") else MixedNormRegressor
    known = plain().get_params()
    shared = {name: value for name, value in fit.get_params().items() if name in known}
    chosen = {name: getattr(fit, f"{name}_") for name in ("penalty_strength", "norm_q", "ridge", "mean_strength")}
    if fit.mean_penalty_ is not None:
        chosen["mean_penalty"] = fit.mean_penalty_
    return plain(**{**shared, **chosen})
