"""How many features to select: the number whose classifiers err least on held-out rows.

The ranking is made anew from the training rows of every fold, so that no held-out row takes part in the choice of
features on which it is judged.
"""

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.svm import LinearSVC
from sklearn.utils import check_random_state

from bayesmtfs.data.inputs import Design
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.estimators.folds import Fold, make_folds, take
from bayesmtfs.types import ConvergenceWarning, DataWarning, FloatArray, IntArray

SMALLEST_STEP = 1.3  # ratio of neighbouring numbers of features


def default_classifier() -> LinearSVC:
    """Linear support vector machine, C = 0.1, one against the rest."""
    return LinearSVC(C=0.1, dual="auto", random_state=0, max_iter=10_000)


def size_grid(available: int) -> IntArray:
    """Numbers of features to try: 1, 2, ..., then in growing steps up to all."""
    count = 1 + int(np.ceil(np.log(max(available, 1)) / np.log(SMALLEST_STEP)))
    return np.unique(np.round(np.geomspace(1, available, count)).astype(np.int64))


def choose_size(selector: Any, data: TaskData, available: int, cv: Any, classifier: Any, random_state: Any) -> int:
    """Return the number of features (or groups) of the best accuracy, the smallest of equals.

    Parameters
    ----------
    selector : ranks data whose labels are numbers through ``rank_data``; it is not changed
    data : all observations
    available : features, or groups where there are some
    cv : as in `bayesmtfs.estimators.folds.make_folds`
    classifier : scikit-learn classifier, fitted once per task and fold; None for `default_classifier`
    random_state : of the folds
    """
    sizes = size_grid(available)
    seed = int(check_random_state(random_state).randint(2**31 - 1))
    folds = make_folds(data, cv, by_class=True, random_state=seed)
    judge = default_classifier() if classifier is None else classifier
    scores = np.mean([_fold_scores(selector, data, fold, sizes, judge) for fold in folds], axis=0)
    return int(sizes[np.argmax(np.round(scores, 12))])


def _fold_scores(selector: Any, data: TaskData, fold: Fold, sizes: IntArray, judge: Any) -> FloatArray:
    """(sizes,) Accuracy on the held-out rows, averaged over tasks."""
    train, test = take(data, fold.train).data, take(data, fold.test).data
    poor = [name for name, y in zip(train.task_names, np.split(train.y, train.offsets[1:-1]), strict=True) if _lone(y)]
    if poor or train.n_tasks < data.n_tasks:
        task = poor[0] if poor else data.task_names[0]
        raise ValueError(
            f"task {task!r} has too few rows for cross-validation: its training rows are of one class; lower cv, or "
            "pass n_features_to_select as a number"
        )
    own = clone(selector)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of a fold alone
        warnings.simplefilter("ignore", DataWarning)
        own.rank_data(train)
    known = {name: number for number, name in enumerate(train.task_names.tolist())}
    scores = []
    for t, name in enumerate(test.task_names.tolist()):
        s = known[name]
        X, y = train.task_designs[s], train.y[slice(*train.spans[s])]
        held, truth = test.task_designs[t], test.y[slice(*test.spans[t])]
        scores.append([_accuracy(judge, X, y, held, truth, own.ranking_ <= size) for size in sizes])
    return np.mean(scores, axis=0)


def _lone(y: NDArray[Any]) -> bool:
    return len(np.unique(y)) < 2


def _accuracy(judge: Any, X: Design, y: NDArray[Any], held: Design, truth: NDArray[Any], kept: NDArray[Any]) -> float:
    columns = np.flatnonzero(kept)
    return float(np.mean(clone(judge).fit(X[:, columns], y).predict(held[:, columns]) == truth))
