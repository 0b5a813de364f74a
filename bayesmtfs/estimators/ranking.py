"""What feature rankings share: class labels per task, ranks, the selected features, how many of them, files.

A ranking scores every feature (or group of features) in every task. It has no coefficients, so it selects and
transforms but does not predict. The number of features is that whose classifiers err least on held-out rows; the ranking
is made anew from the training rows of every fold, so that no held-out row takes part in the choice of features on which
it is tested.
"""

import warnings
from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.svm import LinearSVC
from sklearn.utils import check_random_state

from bayesmtfs.data.classes import check_two_classes_per_task, classes_of, read_classes
from bayesmtfs.data.inputs import Design, match_labels
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.estimators.base import MultiTaskEstimator, Names, estimator_class
from bayesmtfs.estimators.folds import Fold, make_folds, take
from bayesmtfs.results import persistence
from bayesmtfs.results.fit_result import Convergence
from bayesmtfs.types import BoolArray, ConvergenceWarning, DataWarning, FloatArray, IntArray


class Ranking(NamedTuple):
    """How much each feature counts, and how that was found."""

    scores: FloatArray  # (p,) larger is better
    task_scores: FloatArray  # (m, p)
    ties: FloatArray  # (p,) orders features of equal score, larger is better
    convergence: Convergence


@estimator_class(kw_only=True)
class RankingSelector(MultiTaskEstimator):
    """Rank features for several tasks with class labels; subclasses say how.

    Parameters
    ----------
    n_features_to_select : int or float, default 0.5
        A number, or a share of all features. Groups count as one feature.
    standardize : bool
        Scale features to unit deviation within each task first.

    Attributes
    ----------
    scores_ : (n_features,)
        How much each feature counts over all tasks.
    task_scores_ : (n_tasks, n_features)
    ranking_ : (n_features,)
        1 for the best feature.
    n_features_to_select_ : int
    classes_ : list of arrays, one per task
    result_ : FitResult
        With ``task_scores_`` in the place of coefficients.
    """

    _saved_attributes: ClassVar[Names] = ("scores_", "ranking_", "n_features_to_select_", "classes_")

    n_features_to_select: Any = 0.5
    standardize: bool = False
    task_column: Any = None
    groups: ArrayLike | None = None

    def _check_parameters(self) -> None:
        check_size(self.n_features_to_select)

    def _read_target(self, y: Any, n_rows: int) -> NDArray[Any]:
        codes, self._labels = read_classes(y, n_rows)
        return codes

    def _code_targets(self, data: TaskData, from_task_data: bool) -> TaskData:
        """Labels as numbers; every task has classes of its own."""
        if from_task_data:
            data, self._labels = classes_of(data)
        check_two_classes_per_task(data)
        self.classes_ = [self._labels[np.unique(y).astype(np.int64)] for y in np.split(data.y, data.offsets[1:-1])]
        return data

    @abstractmethod
    def _rank(self, data: TaskData) -> Ranking:
        """Score the features of data whose labels are numbers."""

    def rank_data(self, data: TaskData) -> Ranking:
        """Rank the features of data whose labels are numbers, and nothing else."""
        found = self._rank(data)
        self.scores_ = found.scores
        self.task_scores_ = found.task_scores
        self.ranking_ = ranks(found, data.groups)
        return found

    def _fit(self, data: TaskData) -> None:
        if not isinstance(self.n_features_to_select, str):
            as_count(self.n_features_to_select, available(data))  # refuses too many before the work is done
        found = self.rank_data(data)
        self.n_iter_ = found.convergence.n_iter
        self.converged_ = found.convergence.converged
        self.n_features_to_select_ = self._size(data)
        self.result_ = self._named_result(
            found.convergence,
            {},
            coef=found.task_scores,
            intercept=np.zeros(data.n_tasks),
            selection=self._selected,
        )

    def _size(self, data: TaskData) -> int:
        return as_count(self.n_features_to_select, available(data))

    @property
    def _selected(self) -> BoolArray:
        return self.ranking_ <= self.n_features_to_select_

    def inverse_transform(self, X: Any) -> FloatArray:
        """Put selected features back into their places, with 0 for all others.

        Parameters
        ----------
        X : (n, n_selected) array

        Returns
        -------
        (n, p) array
        """
        support, given = self.get_support(), np.asarray(X)
        if given.ndim != 2 or given.shape[1] != support.sum():
            raise ValueError(f"X has shape {given.shape}; pass the {int(support.sum())} columns that transform gives")
        full = np.zeros((given.shape[0], len(support)), dtype=given.dtype)
        full[:, support] = given
        return full

    @classmethod
    def from_stored(cls, stored: persistence.StoredFile) -> Self:
        """Rebuild a fitted selector from what `save` wrote."""
        self = super().from_stored(stored)
        self.task_scores_ = self.coef_
        del self.coef_, self.intercept_  # a ranking has none
        return self


def iterated(converged: bool, trace: ArrayLike, tol: float) -> Convergence:
    """How an iteration ended."""
    values = np.asarray(trace, dtype=np.float64)
    return Convergence(
        converged=converged, n_iter=len(values) - 1, objective=float(values[-1]), tol=tol, objective_trace=values
    )


def ranks(found: Ranking, groups: IntArray | None) -> IntArray:
    """(p,) 1 for the best feature; the features of a group share a rank."""
    groups = np.arange(len(found.scores)) if groups is None else groups
    _, first, number = np.unique(groups, return_index=True, return_inverse=True)
    order = np.lexsort((-found.ties[first], -found.scores[first]))
    return np.argsort(order)[number] + 1


def available(data: TaskData) -> int:
    """Number of features, or of groups where there are some."""
    return data.n_features if data.groups is None else len(np.unique(data.groups))


def check_size(size: Any) -> None:
    """Refuse a number of features that is neither a count nor a share."""
    if isinstance(size, int | np.integer) and not isinstance(size, bool) and size >= 1:
        return
    if isinstance(size, float | np.floating) and 0 < size <= 1:
        return
    raise ValueError(
        f"n_features_to_select is {size!r}; pass a whole number of at least 1, or a share of the features between 0 "
        "and 1, such as 0.1"
    )


def as_count(size: Any, number: int) -> int:
    """Turn a count or share of a number of features into a count."""
    if isinstance(size, int | np.integer):
        if size > number:
            raise ValueError(
                f"n_features_to_select is {size} but there are {number} features (or groups of them) to select from; "
                f"pass a whole number from 1 to {number}, or a share such as 0.5"
            )
        return int(size)
    return max(1, round(float(size) * number))


SMALLEST_STEP = 1.3  # ratio of neighbouring numbers of features


def default_classifier() -> LinearSVC:
    """Linear support vector machine, C = 0.1, one against the rest."""
    return LinearSVC(C=0.1, dual="auto", random_state=0, max_iter=10_000)


def size_grid(available: int) -> IntArray:
    """Numbers of features to try: 1, 2, ..., then in growing steps up to all."""
    count = 1 + int(np.ceil(np.log(max(available, 1)) / np.log(SMALLEST_STEP)))
    return np.unique(np.round(np.geomspace(1, available, count)).astype(np.int64))


def choose_size(selector: Any, data: TaskData, available: int, cv: Any, classifier: Any, random_state: Any) -> int:
    """Number of features (or groups) of the best accuracy, the smallest of equals; the selector is not changed."""
    sizes = size_grid(available)
    seed = int(check_random_state(random_state).randint(2**31 - 1))
    folds = make_folds(data, cv, by_class=True, random_state=seed)
    wanted = default_classifier() if classifier is None else classifier
    scores = np.mean([_fold_scores(selector, data, fold, sizes, wanted) for fold in folds], axis=0)
    return int(sizes[np.argmax(np.round(scores, 12))])


def _fold_scores(selector: Any, data: TaskData, fold: Fold, sizes: IntArray, classifier: Any) -> FloatArray:
    """(sizes,) Accuracy on the held-out rows, averaged over tasks."""
    train, test = take(data, fold.train).data, take(data, fold.test).data
    labels = np.split(train.y, train.offsets[1:-1])
    poor = [name for name, y in zip(train.task_names, labels, strict=True) if len(np.unique(y)) < 2]
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
    scores = []
    for t, s in enumerate(match_labels(test.task_names, test.n_tasks, train.task_names)):
        X, y = train.task_designs[s], train.y[slice(*train.spans[s])]
        held, truth = test.task_designs[t], test.y[slice(*test.spans[t])]
        scores.append([_accuracy(classifier, X, y, held, truth, own.ranking_ <= size) for size in sizes])
    return np.mean(scores, axis=0)


def _accuracy(
    classifier: Any, X: Design, y: NDArray[Any], held: Design, truth: NDArray[Any], kept: NDArray[Any]
) -> float:
    columns = np.flatnonzero(kept)
    return float(np.mean(clone(classifier).fit(X[:, columns], y).predict(held[:, columns]) == truth))
