"""A fair judge of feature selectors: parameters and number of features are chosen inside the training rows.

On every split of the rows, each selector (with each of its parameter settings) ranks the features of the training rows
only, and a classifier is trained on its first k features. Which setting goes with which k, and which k is best, is
decided by folds of the training rows; the test rows are touched once. Choosing by the test rows, as is common in papers
on feature selection, favours whoever has the larger grid. Accuracies stand beside the rate of the majority class, and
the sets that a selector chose on the splits are compared by Nogueira's stability
(`bayesmtfs.selection.judge_stability`).
"""

import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.metrics import accuracy_score, balanced_accuracy_score
from sklearn.model_selection import ParameterGrid
from sklearn.utils import check_random_state
from threadpoolctl import threadpool_limits

from bayesmtfs.data.classes import read_classes
from bayesmtfs.data.inputs import as_labels, read_design
from bayesmtfs.estimators.base import check_choice
from bayesmtfs.estimators.ranking_size import default_classifier
from bayesmtfs.progress import Progress
from bayesmtfs.selection.judge_fits import Rows, feature_order, fit_selector
from bayesmtfs.selection.judge_result import Record, SelectorBenchmark
from bayesmtfs.selection.judge_splits import Split, draw_splits, given_splits, inner_folds
from bayesmtfs.types import FloatArray, IntArray, SelectionWarning

MEASURES = {"accuracy": accuracy_score, "balanced_accuracy": balanced_accuracy_score}


class _Candidate(NamedTuple):
    """A selector with one of its parameter settings."""

    selector: Any  # None: features at random
    parameters: str


class _Plan(NamedTuple):
    """What is the same for all selectors and splits."""

    sizes: list[int]
    classifier: Any
    pooled: bool
    scoring: str
    n_folds: int


class _Outcome(NamedTuple):
    records: list[Record]
    sets: list[IntArray]  # of the records, in their order


def benchmark_selectors(
    selectors: Mapping[str, Any] | Sequence[Any],
    X: Any,
    y: Any,
    tasks: Any = None,
    *,
    k: Sequence[int] = (10, 20, 50, 100),
    classifier: Any = None,
    pooled: bool = False,
    scoring: str = "accuracy",
    n_splits: int = 10,
    test_size: float = 0.25,
    per_class: int | None = None,
    splits: Iterable[Any] | None = None,
    n_inner_folds: int = 3,
    n_jobs: int | None = None,
    random_state: Any = 0,
    progress: bool | None = None,
) -> SelectorBenchmark:
    """Compare feature selectors by a classifier on the features they choose.

    Ctrl-C gives the results of the splits that all selectors are through with, with a `SelectionWarning`.

    Parameters
    ----------
    selectors : mapping of names, or a list
        To each name a selector, a pair of a selector and a grid (a mapping of parameter names to lists), or None for
        features in random order. Selectors are those of this package (penalised, EM, posterior, online,
        discriminative, baselines) and anything with ``fit`` and ``ranking_`` (1 is best), ``scores_``, ``coef_``,
        ``feature_importances_`` or ``get_support``. They are not changed.
    X : (n, p) array, sparse matrix or data frame
    y : (n,) class labels, each task with its own; or (n, m), one task per column, NaN where unobserved
    tasks : (n,) task labels
    k : numbers of features
    classifier : scikit-learn classifier
        None: a linear support vector machine with C = 0.1, one against the rest.
    pooled : bool
        Train one classifier on the rows of all tasks, instead of one per task.
    scoring : "accuracy" or "balanced_accuracy"
        What the nested choice maximises; both are reported.
    n_splits, test_size : random splits within the classes of each task, with this share of test rows
    per_class : training rows per class and task; all others are test rows
    splits : (train, test) pairs of row numbers, instead of random splits
    n_inner_folds : folds of the training rows
    n_jobs : pairs of selector and split worked on at the same time, as in joblib
    random_state : int, RandomState or None
        Of splits, folds and ties; all selectors get the same splits.
    progress : bool or None
        Progress bar: always, never, or (None) for long work on a terminal.

    Returns
    -------
    SelectorBenchmark

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.feature_selection import SelectKBest
    >>> from bayesmtfs.selection import benchmark_selectors
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.standard_normal((60, 20)), np.arange(60) % 3
    >>> X[:, 4] += 3 * y
    >>> found = benchmark_selectors({"F test": SelectKBest(), "random": None}, X, y, k=[1, 5], n_splits=3)
    >>> found.values("F test", 1).mean() > found.values("random", 1).mean()
    np.True_
    """
    rows = _read_rows(X, y, tasks)
    plan = _plan(rows, k, classifier, pooled, scoring, n_inner_folds)
    entrants = _entrants(selectors)
    rng = check_random_state(random_state)
    drawn = (
        draw_splits(rows, n_splits, test_size, per_class, rng) if splits is None else given_splits(splits, len(rows.y))
    )
    seeds = rng.randint(2**31 - 1, size=len(drawn))
    # split by split, so that what there is after Ctrl-C is the same splits for all
    jobs = [(name, number) for number in range(len(drawn)) for name in entrants]
    outcomes = Parallel(n_jobs=n_jobs, return_as="generator")(
        delayed(_judge)(name, number, entrants[name], rows, drawn[number], plan, int(seeds[number]))
        for name, number in jobs
    )
    found: list[_Outcome] = []
    with Progress("judging selectors", progress) as bar, Progress("", False) as watch:
        try:
            for outcome in outcomes:
                watch.check()
                found.append(outcome)
                bar.update(len(found) / len(jobs), f"{jobs[len(found) - 1][0]}")
        except KeyboardInterrupt:
            n_whole = len(found) // len(entrants)
            if n_whole == 0:
                raise
            found = found[: n_whole * len(entrants)]
            warnings.warn(
                f"interrupted after {n_whole} of {len(drawn)} splits; the results are of these", SelectionWarning, 2
            )
    return _collect(found, rows.X.shape[1], plan.scoring)


# ---------------------------------------------------------------------- what is wanted


def _read_rows(X: Any, y: Any, tasks: Any) -> Rows:
    design = read_design(X).X
    codes, _ = read_classes(y, design.shape[0])
    if codes.ndim == 2 and codes.shape[1] == 1:
        codes = codes[:, 0]
    if tasks is None:
        return Rows(design, codes, None)
    if codes.ndim == 2:
        raise ValueError("y has several columns and tasks was passed; pass one or the other")
    labels = as_labels(tasks)
    if len(labels) != len(codes):
        raise ValueError(f"tasks has {len(labels)} entries but X has {len(codes)} rows; pass one task label per row")
    return Rows(design, codes, np.unique(labels, return_inverse=True)[1])


def _plan(rows: Rows, k: Sequence[int], classifier: Any, pooled: bool, scoring: str, n_folds: int) -> _Plan:
    check_choice("scoring", scoring, tuple(MEASURES))
    sizes = sorted({min(int(size), rows.X.shape[1]) for size in k})
    if not sizes or sizes[0] < 1:
        raise ValueError(f"k is {list(k)}; pass numbers of features of at least 1, such as [10, 20, 50]")
    if pooled and rows.y.ndim == 2:
        raise ValueError("pooled=True needs one label per row but y has several columns; leave pooled out")
    if n_folds < 2:
        raise ValueError(f"n_inner_folds is {n_folds}; pass a whole number of at least 2")
    return _Plan(sizes, default_classifier() if classifier is None else classifier, pooled, scoring, n_folds)


def _entrants(selectors: Mapping[str, Any] | Sequence[Any]) -> dict[str, list[_Candidate]]:
    """Name to candidates."""
    named = selectors if isinstance(selectors, Mapping) else {type(s).__name__: s for s in selectors}
    if not named or len(named) != len(selectors):
        raise ValueError("selectors is empty or has two of one class; pass a mapping from names to selectors")
    return {name: _candidates(name, entry) for name, entry in named.items()}


def _candidates(name: str, entry: Any) -> list[_Candidate]:
    selector, grid = entry if isinstance(entry, tuple) else (entry, {})
    if selector is None:
        return [_Candidate(None, "")]
    if not hasattr(selector, "fit"):
        raise TypeError(f"selectors[{name!r}] is {selector!r}; pass an object with fit, or a pair of it and a grid")
    settings = list(ParameterGrid(grid))
    return [_Candidate(clone(selector).set_params(**chosen), _in_words(chosen)) for chosen in settings]


def _in_words(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in settings.items())


# ---------------------------------------------------------------------- one selector on one split


def _judge(
    name: str, number: int, candidates: list[_Candidate], rows: Rows, split: Split, plan: _Plan, seed: int
) -> _Outcome:
    """Choose inside the training rows, then look at the test rows once."""
    train, test = rows.take(split[0]), rows.take(split[1])
    rng = np.random.RandomState(seed)
    # One thread per job: the same sums, and so the same choice, for every number of jobs
    with threadpool_limits(1):
        inner = _inner_scores(candidates, train, plan, rng)
        best = np.argmax(inner, axis=0)  # (sizes,) setting
        place = int(np.argmax(inner.max(axis=0)))
        orders: dict[int, tuple[IntArray, float]] = {}
        records, sets = [], []
        for j, chosen in [*((j, False) for j in range(len(plan.sizes))), (place, True)]:
            setting = int(best[j])
            if setting not in orders:
                orders[setting] = _timed_order(candidates[setting], train, rng)
            order, seconds = orders[setting]
            columns = order[: plan.sizes[j]]
            scores = _test_scores(train, test, columns, plan)
            sets.append(columns)
            records.append(
                Record(
                    name, number, plan.sizes[j], chosen, len(columns), *scores, seconds, candidates[setting].parameters
                )
            )
    return _Outcome(records, sets)


def _inner_scores(candidates: list[_Candidate], train: Rows, plan: _Plan, rng: np.random.RandomState) -> FloatArray:
    """(settings, sizes) Mean score over the folds of the training rows; equal where there is nothing to choose."""
    scores = np.zeros((len(candidates), len(plan.sizes)))
    if scores.size == 1:
        return scores
    folds = inner_folds(train, plan.n_folds, rng)
    for own, held in folds:
        inside, outside = train.take(own), train.take(held)
        for i, candidate in enumerate(candidates):
            order = _timed_order(candidate, inside, rng)[0]
            for j, size in enumerate(plan.sizes):
                predictions = _predictions(inside, outside, order[:size], plan)
                scores[i, j] += _mean_score(predictions, plan.scoring) / len(folds)
    return np.round(scores, 12)


def _timed_order(candidate: _Candidate, rows: Rows, rng: np.random.RandomState) -> tuple[IntArray, float]:
    begin = time.perf_counter()
    fitted = None if candidate.selector is None else fit_selector(candidate.selector, rows)
    seconds = time.perf_counter() - begin
    return feature_order(fitted, rows.X, rng), seconds


def _test_scores(train: Rows, test: Rows, columns: IntArray, plan: _Plan) -> tuple[float, float, float]:
    """Accuracy, balanced accuracy, and the accuracy of guessing the majority class."""
    predictions = _predictions(train, test, columns, plan)
    guesses = _predictions(train, test, columns[:0], plan)
    return (
        _mean_score(predictions, "accuracy"),
        _mean_score(predictions, "balanced_accuracy"),
        _mean_score(guesses, "accuracy"),
    )


def _mean_score(predictions: list[tuple[FloatArray, FloatArray]], measure: str) -> float:
    """Mean over tasks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a class that is predicted but not among the test rows
        return float(np.mean([MEASURES[measure](truth, predicted) for truth, predicted in predictions]))


def _predictions(train: Rows, test: Rows, columns: IntArray, plan: _Plan) -> list[tuple[FloatArray, FloatArray]]:
    """Per task, the truth and the prediction of its test rows."""
    if plan.pooled:
        train, test = train._replace(tasks=None), test._replace(tasks=None)
    tasks = np.unique(train.tasks) if train.tasks is not None else [None]
    if train.tasks is not None and test.tasks is not None:
        pairs = [(train.tasks == task, train.y, test.tasks == task, test.y) for task in tasks]
    else:
        pairs = [(*own, *held) for own, held in zip(train.by_task(), test.by_task(), strict=True)]
    return [
        (truth[held], _predict(plan.classifier, train.X[own][:, columns], y[own], test.X[held][:, columns]))
        for own, y, held, truth in pairs
        if held.any()
    ]


def _predict(classifier: Any, X: Any, y: FloatArray, held: Any) -> FloatArray:
    """Labels of held-out rows; the majority class where there is nothing to learn from."""
    classes, counts = np.unique(y, return_counts=True)
    if X.shape[1] == 0 or len(classes) < 2:
        return np.full(held.shape[0], classes[np.argmax(counts)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one of many fits
        return np.asarray(clone(classifier).fit(X, y).predict(held))


# ---------------------------------------------------------------------- the table


def _collect(found: list[_Outcome], p: int, scoring: str) -> SelectorBenchmark:
    sets: dict[tuple[str, int | str], list[Any]] = {}
    for outcome in found:
        for record, columns in zip(outcome.records, outcome.sets, strict=True):
            mask = np.zeros(p, dtype=bool)
            mask[columns] = True
            sets.setdefault((record.selector, "chosen" if record.chosen else record.k), []).append(mask)
    records = tuple(record for outcome in found for record in outcome.records)
    return SelectorBenchmark(records, {key: np.stack(masks) for key, masks in sets.items()}, scoring)
