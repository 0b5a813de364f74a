"""What a multi-task fit is measured against: each task's mean, one model for all rows, and every task alone.

`reference_fits` gives estimators for `compare`, in the family of the targets:

    task mean            every task's best constant (no feature)
    pooled lasso         one slope per feature for all tasks, penalty by cross-validation; numbers over a dense design keep
                         a level for every task (targets and features about their means in it), other targets have one
                         level; not in the wide form, where tasks are different quantities
    lasso per task       the l1,1 fit, which tells nothing from one task to another, penalty by cross-validation

A fit that does not beat the task mean has found nothing; one that does not beat the pooled fit or the single tasks gains
nothing from treating them as related tasks.
"""

import warnings
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils import Tags

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.estimators.penalised import MixedNormClassifier, MixedNormRegressor
from bayesmtfs.estimators.penalised_cv import MixedNormClassifierCV, MixedNormRegressorCV
from bayesmtfs.families import Family, find_family
from bayesmtfs.selection.comparison import (
    ComparedFit,
    Comparison,
    compare,
    count_deviance,
    labelled_data,
    loo_of,
    target_units,
)
from bayesmtfs.types import BoolArray, FloatArray

SMALLEST_PROBABILITY = 1e-12
NO_FEATURE = 1e12  # a penalty at which no feature is kept, in any units that make sense
N_PENALTIES, RATIO = 30, 1e-2


class Pooled(BaseEstimator):
    """An estimator that takes the rows of all tasks for those of one, of numbers about the means of each task.

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
        self.tasks_, m = data.task_names, data.n_tasks
        self._levels = _levels_of(data) if self._has_levels(data) else None
        self.fitted_ = clone(self.estimator).fit(self._one_task(data)[0])
        self.coef_: FloatArray = np.tile(self.fitted_.coef_, (m, 1))
        self.intercept_: FloatArray = np.tile(self.fitted_.intercept_, m)
        if self._levels is not None:
            self.intercept_ = self.intercept_ + self._levels.y - self._levels.X @ self.fitted_.coef_[0]
        if hasattr(self.fitted_, "classes_"):
            self.classes_ = self.fitted_.classes_
        return self

    def predict(self, data: TaskData) -> Any:
        """Predict rows, in the order of the data."""
        pooled, level = self._one_task(data)
        return self.fitted_.predict(pooled) if level is None else self.fitted_.predict(pooled) + level

    def predict_proba(self, data: TaskData) -> FloatArray:
        """Probabilities of the classes."""
        found: FloatArray = self.fitted_.predict_proba(self._one_task(data)[0])
        return found

    def get_support(self) -> BoolArray:
        """(p,) Features that are selected."""
        return np.asarray(self.fitted_.get_support())

    @property
    def loss(self) -> str | Family:
        """Family of the targets."""
        loss: str | Family = self.estimator.loss
        return loss

    def _has_levels(self, data: TaskData) -> bool:
        return find_family(self.loss).in_target_units and isinstance(data.X, np.ndarray)

    def _one_task(self, data: TaskData) -> tuple[TaskData, FloatArray | None]:
        """The rows as those of one task, and the levels of their targets where these are taken off."""
        X, y, level = data.X, data.y, None
        if self._levels is not None:
            place = {name: t for t, name in enumerate(self.tasks_.tolist())}
            own = np.array([place[name] for name in data.task_names.tolist()])[data.task]
            level = self._levels.y[own]
            X, y = X - self._levels.X[own], y - level
        return TaskData.from_long(X, y, sample_weight=data.weight, offset=data.eta_offset), level


class Levels(NamedTuple):
    """Means within tasks: of the features (m, p), and of the targets (m,)."""

    X: FloatArray
    y: FloatArray


def _levels_of(data: TaskData) -> Levels:
    X, y = np.asarray(data.X, dtype=np.float64), np.asarray(data.y, dtype=np.float64)
    means = [
        (np.average(X[a:b], 0, data.weight[a:b]), np.average(y[a:b], None, data.weight[a:b])) for a, b in data.spans
    ]
    return Levels(np.array([x for x, _ in means]), np.array([level for _, level in means]))


def reference_fits(
    classify: bool, loss: str | Family | None = None, wide: bool = False, **options: Any
) -> dict[str, Any]:
    """Estimators by their names; see the head of this file.

    Parameters
    ----------
    classify : whether targets are labels
    loss : family of the targets; None: squared, or logistic for labels
    wide : whether tasks are different quantities over the same rows
    **options : further parameters, such as ``standardize``, of those that have them

    Examples
    --------
    >>> list(reference_fits(classify=False))
    ['task mean', 'pooled lasso', 'lasso per task']
    """
    path: Any = MixedNormClassifierCV if classify else MixedNormRegressorCV
    constant: Any = MixedNormClassifier if classify else MixedNormRegressor
    known: dict[str, Any] = options | ({} if loss is None else {"loss": loss})
    own = {"norm_q": 1, "n_penalties": N_PENALTIES, "penalty_ratio": RATIO, "cv": 3, "random_state": 0}
    lasso = path(**own, **{name: value for name, value in known.items() if name in path().get_params()})
    pooled = {} if wide else {"pooled lasso": Pooled(clone(lasso).set_params(task_column=None))}
    of_constant = {name: value for name, value in known.items() if name in constant().get_params()}
    return {"task mean": constant(penalty_strength=NO_FEATURE, **of_constant), **pooled, "lasso per task": lasso}


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


def held_out_errors(
    fit: Any,
    X: Any,
    y: Any = None,
    tasks: Any = None,
    cv: int = 5,
    *,
    exposure: Any = None,
    offset: Any = None,
    **options: Any,
) -> Comparison:
    """How well a fit predicts rows that it has not seen, beside the references.

    All are fitted to the training rows of the same folds, with the penalty (and q) that was chosen on all rows. A posterior
    is not drawn again: its row has the errors of leave-one-out predictions by Pareto-smoothed importance sampling (Vehtari,
    Gelman, Gabry 2017). One without the log-likelihood of single rows, as of several classes within tasks, has no row:
    `compare` fits it again in every fold.

    Parameters
    ----------
    fit : fitted estimator
    X, y, tasks, exposure, offset : the data of the fit
    cv : number of folds
    **options : further parameters of the references; they are standardised unless this is said otherwise
    """
    if not hasattr(fit, "predict"):
        raise TypeError(f"fit is a {type(fit).__name__}; pass a fitted estimator, which can predict")
    options = {"standardize": True, **options}
    pooled = getattr(fit, "_form", None) == "long"  # else tasks are different quantities, or there is one
    references = reference_fits(hasattr(fit, "classes_"), fit.loss, not pooled, task_column=fit.task_column, **options)
    data = labelled_data(fit, X, y, tasks, None, exposure, offset)
    estimators = {name: _chosen(reference, data) for name, reference in references.items()}
    if not hasattr(fit, "posterior_"):
        estimators = {"this fit": with_choices_fixed(fit), **estimators}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")  # names are those of the data
        found = compare(estimators, X, y, tasks, cv=cv, exposure=exposure, offset=offset, progress=False)
    if not hasattr(fit, "posterior_") or "log_likelihood" not in fit.posterior_.children:
        return found
    own = leave_one_out(fit, None if hasattr(fit, "classes_") else target_units(data))
    return Comparison(tuple(sorted((*found.fits, own), key=lambda one: one.error)), found.error_name)


def _chosen(reference: Any, data: TaskData) -> Any:
    """A reference with the penalty that it chooses on all rows."""
    if isinstance(reference, Pooled):
        return Pooled(with_choices_fixed(clone(reference).fit(data).fitted_))
    is_path = isinstance(reference, MixedNormRegressorCV | MixedNormClassifierCV)
    return with_choices_fixed(clone(reference).fit(data)) if is_path else reference


def leave_one_out(fit: Any, units: FloatArray | None = None) -> ComparedFit:
    """Errors of a posterior's leave-one-out predictions: mean of y_i given all other rows.

    With ``units`` (m,), the deviations of different targets (`target_units`), R2 is the mean over the tasks.
    """
    # ArviZ takes seconds to load, which a comparison without posteriors need not wait for
    from arviz_stats.loo import loo_expectations

    expectation: Any = loo_expectations
    tree = fit.posterior_
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of large Pareto k, which `loo_of` counts
        predicted = np.asarray(expectation(tree, var_name="y", kind="mean")[0], dtype=np.float64).ravel()
    y = np.asarray(tree["observed_data"]["y"].values, dtype=np.float64).ravel()
    task, weight = (tree["constant_data"][name].values for name in ("task_index", "weight"))
    if getattr(fit, "_form", None) == "classes":
        return _left_out_classes(fit, predicted, y, weight)
    weight = weight / weight.sum()
    known, family = loo_of(fit), find_family(fit.loss)
    measures: dict[str, float] = {}
    if family.targets == "labels":
        lost = (np.sign(predicted) != y).astype(np.float64)
        error = float(weight @ lost)
        spread = float(np.sqrt(weight @ (lost - error) ** 2 / len(y)))
        measures["deviance"] = -2.0 * known.get("elpd", np.nan) / len(y)
    else:
        scale = 1.0 if units is None else units[task]
        squares = ((y - predicted) / scale) ** 2
        error = float(np.sqrt(weight @ squares))
        spread = float(np.sqrt(weight @ (squares - error**2) ** 2 / len(y)) / (2.0 * error)) if error > 0 else 0.0
        total = np.bincount(task, weight)
        means = np.bincount(task, weight * y) / total
        apart = (y - means[task]) / scale / np.maximum(1.0 - weight / total[task], 1e-12)  # the mean of the others
        group = np.zeros_like(task) if units is None else task
        left, about = (np.bincount(group, weight * part) for part in (squares, apart**2))
        if family.targets == "numbers":
            measures["r2"] = float(np.mean(1.0 - left / about))
        elif family.targets == "counts" and family.offers("log_density"):
            measures["deviance"] = count_deviance(family, y, weight, known.get("elpd", np.nan) / len(y))
    log_score = known.get("elpd", np.nan) / len(y)
    return ComparedFit(
        "this fit (leave-one-out)", error, spread, np.nan, np.nan, log_score, np.nan,
        int(np.sum(fit.get_support())), np.nan, **known, **measures,
    )  # fmt: skip


def _left_out_classes(fit: Any, predicted: FloatArray, y: FloatArray, weight: FloatArray) -> ComparedFit:
    """The same of several classes, one task (one against the rest) each over the same rows: the likeliest class counts."""
    k = len(fit.classes_)
    probability = np.maximum((1.0 + predicted.reshape(k, -1)) / 2.0, SMALLEST_PROBABILITY)
    probability /= probability.sum(axis=0)
    weight = weight.reshape(k, -1)[0] / weight.reshape(k, -1)[0].sum()
    truth = np.argmax(y.reshape(k, -1), axis=0)
    n = len(truth)
    lost = (np.argmax(probability, axis=0) != truth).astype(np.float64)
    error = float(weight @ lost)
    log_score = float(weight @ np.log(probability[truth, np.arange(n)]))
    return ComparedFit(
        "this fit (leave-one-out)", error, float(np.sqrt(weight @ (lost - error) ** 2 / n)), np.nan, np.nan, log_score,
        np.nan, int(np.sum(fit.get_support())), np.nan, **loo_of(fit), deviance=-2.0 * log_score,
    )  # fmt: skip
