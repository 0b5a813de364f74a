"""One interface for every selector: fit it to some rows, and read off which features it puts first.

Anything with ``fit`` and one of ``ranking_`` (1 is best), ``scores_``, ``inclusion_probability_``, ``coef_``,
``feature_importances_`` or ``get_support`` is a selector; None stands for all features in random order. What takes
``tasks`` gets them. Classifiers and regressors of this package know two classes per task, so that a task with more
becomes one task per class, and targets of regressors are -1 and +1.
"""

import inspect
import warnings
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import clone

from bayesmtfs.data.inputs import Design, stack_rows, weighted_deviation
from bayesmtfs.estimators.base import MultiTaskEstimator
from bayesmtfs.estimators.predictors import MultiTaskClassifier
from bayesmtfs.estimators.ranking import RankingSelector
from bayesmtfs.progress import Progress
from bayesmtfs.types import BoolArray, FloatArray, IntArray


class Rows(NamedTuple):
    """Rows with class labels: y and tasks (n,), or y (n, m) with NaN where unobserved and no tasks."""

    X: Design
    y: FloatArray  # numbers of classes
    tasks: NDArray[Any] | None

    def take(self, rows: IntArray | BoolArray) -> "Rows":
        """Some of the rows."""
        return Rows(self.X[rows], self.y[rows], None if self.tasks is None else self.tasks[rows])

    def by_task(self) -> list[tuple[BoolArray, FloatArray]]:
        """Per task, its rows and (n,) labels, meaningful in these rows only."""
        if self.y.ndim == 2:
            return [(~np.isnan(y), y) for y in self.y.T]
        if self.tasks is None:
            return [(np.ones(len(self.y), dtype=bool), self.y)]
        return [(self.tasks == task, self.y) for task in np.unique(self.tasks)]


def fit_selector(selector: Any, rows: Rows) -> Any:
    """Fit a clone to these rows; the selector is not changed."""
    own = clone(selector)
    if "progress" in own.get_params():
        own.set_params(progress=False)
    with warnings.catch_warnings(), Progress("", False) as watch:
        warnings.simplefilter("ignore")  # what is odd in one of many fits is no news
        fitted = _fitted(own, rows)
        watch.check()  # a fit that caught Ctrl-C was not finished
    return fitted


def _fitted(own: Any, rows: Rows) -> Any:
    if isinstance(own, MultiTaskEstimator) and not isinstance(own, RankingSelector):
        return own.fit(*binary_tasks(rows, classifier=isinstance(own, MultiTaskClassifier)))
    if rows.tasks is not None and "tasks" in inspect.signature(own.fit).parameters:
        return own.fit(rows.X, rows.y, tasks=rows.tasks)
    if rows.y.ndim == 2 and not isinstance(own, RankingSelector):
        raise ValueError(
            f"{type(own).__name__} is no selector of this package and y has {rows.y.shape[1]} columns; pass (n,) "
            "labels, with tasks where there are several"
        )
    return own.fit(rows.X, rows.y)


def binary_tasks(rows: Rows, classifier: bool) -> tuple[Design, FloatArray, NDArray[Any] | None]:
    """Two classes per task: 0 and 1 for a classifier, -1 and +1 for a regressor.

    Returns
    -------
    X, y, tasks : (n, p), (n, m), None over one design where all rows belong to all tasks; else the long form
    """
    parts, low = rows.by_task(), 0.0 if classifier else -1.0
    columns = [(seen, _as_binary(y, label, low)) for seen, y in parts for label in _positive_labels(y[seen])]
    if rows.tasks is None:
        table = np.column_stack([np.where(seen, y, np.nan) for seen, y in columns])
        return rows.X, table[:, 0] if table.shape[1] == 1 else table, None
    X = stack_rows([rows.X[seen] for seen, _ in columns])
    labels = np.repeat(np.arange(len(columns)), [int(seen.sum()) for seen, _ in columns])
    return X, np.concatenate([y[seen] for seen, y in columns]), labels


def _positive_labels(y: FloatArray) -> FloatArray:
    """Classes that become a task each: all of several, the second of two."""
    classes = np.unique(y)
    return classes if len(classes) > 2 else classes[1:]


def _as_binary(y: FloatArray, label: float, low: float) -> FloatArray:
    return np.where(y == label, 1.0, low)


def feature_order(fitted: Any, X: Design, rng: np.random.RandomState) -> IntArray:
    """Numbers of the features that the fit puts forward, best first; equals in random order.

    Parameters
    ----------
    fitted : a fitted selector, or None for all features at random
    X : the rows it was fitted to; lengths of coefficients count in units of the features' deviations
    rng : breaks ties
    """
    scores = np.zeros(X.shape[1]) if fitted is None else _scores(fitted, X)
    if scores.shape != (X.shape[1],):
        raise ValueError(
            f"{type(fitted).__name__} has scores of shape {scores.shape} but X has {X.shape[1]} features; pass a "
            "selector with one score per feature"
        )
    order = np.lexsort((rng.permutation(len(scores)), -scores))
    return order[np.isfinite(scores[order])]


def _scores(fitted: Any, X: Design) -> FloatArray:
    """(p,) Larger is better, -inf for features that are not put forward at all."""
    if hasattr(fitted, "ranking_"):
        return -np.asarray(fitted.ranking_, dtype=np.float64)
    for name in ("scores_", "inclusion_probability_"):
        if hasattr(fitted, name):
            return np.nan_to_num(np.asarray(getattr(fitted, name), dtype=np.float64), nan=-np.inf)
    if hasattr(fitted, "coef_"):
        return _put_forward(_row_lengths(fitted.coef_) * weighted_deviation(_as_rows(X), np.ones(X.shape[0])))
    if hasattr(fitted, "feature_importances_"):
        return _put_forward(np.asarray(fitted.feature_importances_, dtype=np.float64))
    if hasattr(fitted, "get_support"):
        return np.where(fitted.get_support(), 1.0, -np.inf)
    raise TypeError(
        f"{type(fitted).__name__} does not say which features it selects; pass a selector with ranking_, scores_, "
        "coef_, feature_importances_ or get_support"
    )


def _row_lengths(coef: Any) -> FloatArray:
    return np.linalg.norm(np.atleast_2d(np.asarray(coef, dtype=np.float64)), axis=0)


def _as_rows(X: Design) -> Design:
    return X.tocsr() if sp.issparse(X) else X


def _put_forward(sizes: FloatArray) -> FloatArray:
    return np.where(sizes > 0, sizes, -np.inf)
