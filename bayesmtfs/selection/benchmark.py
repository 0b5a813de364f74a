"""A fair benchmark of feature selectors: parameters and number of features are chosen inside the training rows.

On every split of the rows, each selector (with each of its parameter settings) ranks the features of the training rows
only, and a classifier is trained on its first k features. Which setting goes with which k, and which k is best, is
decided by folds of the training rows; the test rows are touched once. Choosing by the test rows, as is common in papers
on feature selection, favours whoever has the larger grid. Accuracies stand beside the rate of the majority class, and
the sets that a selector chose on the splits are compared by Nogueira's stability (`set_stability`).

What takes ``tasks`` gets them. Classifiers and regressors of this package know two classes per task, so that a task with
more becomes one task per class, and targets of regressors are -1 and +1.
"""

import inspect
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.metrics import accuracy_score, balanced_accuracy_score
from sklearn.model_selection import ParameterGrid
from sklearn.utils import check_random_state
from threadpoolctl import threadpool_limits

from bayesmtfs.data.classes import read_classes
from bayesmtfs.data.column_sums import weighted_deviation
from bayesmtfs.data.inputs import Design, as_labels, read_design, stack_rows
from bayesmtfs.estimators.base import MultiTaskEstimator, check_choice
from bayesmtfs.estimators.predictors import MultiTaskClassifier
from bayesmtfs.estimators.ranking import RankingSelector, default_classifier
from bayesmtfs.progress import Progress, gather
from bayesmtfs.results.fit_result import FitResult
from bayesmtfs.results.tables import Backend, as_frame
from bayesmtfs.selection.stability import SetStability, set_stability, silent_clone
from bayesmtfs.types import BoolArray, FloatArray, IntArray

MEASURES = {"accuracy": accuracy_score, "balanced_accuracy": balanced_accuracy_score}
AVERAGED = ("k", "n_selected", "seconds", "majority_rate", "balanced_accuracy", "accuracy")
Size = int | Literal["chosen"]
Split = tuple[IntArray, IntArray]  # numbers of training and test rows


class SplitRecord(NamedTuple):
    """One selector on one split with one number of features."""

    selector: str
    split: int
    k: int  # features asked for
    chosen: bool  # whether k was chosen inside the training rows, together with the parameters
    n_selected: int  # fewer than k where the selector puts fewer forward
    accuracy: float
    balanced_accuracy: float
    majority_rate: float  # accuracy of always guessing the most frequent training class
    seconds: float  # of one fit of the selector
    parameters: str  # chosen inside the training rows


class PairedDifference(NamedTuple):
    """Mean over splits of a paired difference, and its standard error (nan for one split)."""

    mean: float
    standard_error: float


@dataclass(frozen=True, eq=False, repr=False)
class SelectorBenchmark:
    """Accuracy, stability and time of feature selectors on the same splits.

    Attributes
    ----------
    records : one per selector, split and number of features
    sets : (selector, k or "chosen") to (n_splits, p) bool, the features of each split
    scoring : what the nested choice looked at
    """

    records: tuple[SplitRecord, ...]
    sets: dict[tuple[str, int | str], BoolArray]
    scoring: str

    @property
    def selectors(self) -> list[str]:
        """Names, in the order given."""
        return list(dict.fromkeys(record.selector for record in self.records))

    @property
    def n_splits(self) -> int:
        """Number of splits."""
        return len({record.split for record in self.records})

    def values(self, selector: str, k: Size, measure: str = "accuracy") -> FloatArray:
        """(n_splits,) One measure of one selector, in the order of the splits.

        Parameters
        ----------
        selector : its name
        k : number of features, or "chosen" for the number chosen inside the training rows
        measure : a column of the records, such as "balanced_accuracy"
        """
        if measure not in SplitRecord._fields:
            raise ValueError(f"measure is {measure!r}; choose one of {', '.join(SplitRecord._fields)}")
        found = [r for r in self.records if r.selector == selector and k == ("chosen" if r.chosen else r.k)]
        if not found:
            raise self._unknown(selector, k)
        return np.array([getattr(r, measure) for r in sorted(found, key=lambda r: r.split)], dtype=np.float64)

    def difference(self, selector: str, other: str, k: Size = "chosen", measure: str = "accuracy") -> PairedDifference:
        """Mean paired difference of two selectors, with its standard error over splits.

        Splits share rows, so that the error is an optimistic one.

        Parameters
        ----------
        selector, other : names
        k, measure : as in `values`
        """
        gaps = self.values(selector, k, measure) - self.values(other, k, measure)
        return PairedDifference(float(gaps.mean()), _standard_error(gaps))

    def stability(self, selector: str, k: Size = "chosen") -> SetStability:
        """Nogueira's stability of the sets that a selector chose on the splits, with its 95% interval.

        Parameters
        ----------
        selector : its name
        k : number of features, or "chosen"
        """
        if (selector, k) not in self.sets:
            raise self._unknown(selector, k)
        return set_stability(self.sets[selector, k])

    def _sizes(self) -> list[int]:
        return sorted({record.k for record in self.records if not record.chosen})

    def _unknown(self, selector: str, k: Size) -> ValueError:
        return ValueError(
            f"there is no selector {selector!r} with k={k!r}; selectors are {', '.join(self.selectors)}, k is one of "
            f"{self._sizes()} or 'chosen'"
        )

    def to_frame(self, backend: Backend = "pandas", per_split: bool = False) -> Any:
        """Table of the results; rows with ``chosen`` have the number of features chosen inside the training rows.

        Parameters
        ----------
        backend : {"pandas", "polars"}
        per_split : one row per record, instead of means over splits (of k too)
        """
        rows = [r._asdict() for r in self.records] if per_split else [self._summary_row(*key) for key in self.sets]
        return as_frame({name: [row[name] for row in rows] for name in rows[0]}, backend)

    def _summary_row(self, selector: str, k: Any) -> dict[str, Any]:
        means = {name: float(self.values(selector, k, name).mean()) for name in AVERAGED}
        value, low, high = self.stability(selector, k)
        error = {"standard_error": _standard_error(self.values(selector, k))}
        stability = {"stability": value, "stability_low": low, "stability_high": high}
        return {"selector": selector, "chosen": k == "chosen"} | means | error | stability

    def summary(self) -> str:
        """One line per selector at the number of features chosen inside the training rows."""
        lines = [f"{self.n_splits} splits; parameters and number of features by {self.scoring} in the training rows"]
        width = max(len(name) for name in self.selectors)
        for name in self.selectors:
            row = self._summary_row(name, "chosen")
            lines.append(
                "{0}  accuracy {accuracy:.3f} (majority {majority_rate:.3f})  balanced {balanced_accuracy:.3f}  features "
                "{n_selected:.0f}  stability {stability:.2f}  {seconds:.3g} s".format(name.ljust(width), **row)
            )
        return "\n".join(lines)

    def plot(self, measure: str = "accuracy", ax: Any = None) -> Any:
        """Draw a measure over the number of features, one line per selector with a band of one standard error.

        Parameters
        ----------
        measure : as in `values`
        ax : axes to draw on; a new figure if None
        """
        # matplotlib takes longer to import than most selectors take to fit
        import matplotlib.pyplot as plt

        if ax is None:
            ax = plt.figure(figsize=(6.0, 4.0), layout="constrained").add_subplot()
        sizes = self._sizes()
        for name in self.selectors:
            values = [self.values(name, k, measure) for k in sizes]
            mean, error = np.mean(values, axis=1), np.array([_standard_error(each) for each in values])
            (line,) = ax.plot(sizes, mean, marker="o", label=name)
            ax.fill_between(sizes, mean - error, mean + error, color=line.get_color(), alpha=0.15)
        if measure == "accuracy":
            majority = np.mean([record.majority_rate for record in self.records])
            ax.axhline(majority, color="grey", linestyle=":", label="majority class")
        ax.set(xscale="log", xlabel="number of features", ylabel=measure.replace("_", " "))
        ax.legend()
        return ax

    def __repr__(self) -> str:
        return f"SelectorBenchmark({len(self.selectors)} selectors, {self.n_splits} splits)\n{self.summary()}"


def _standard_error(values: FloatArray) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


class LabelledRows(NamedTuple):
    """Rows with class labels: y and tasks (n,), or y (n, m) with NaN where unobserved and no tasks."""

    X: Design
    y: FloatArray  # numbers of classes
    tasks: NDArray[Any] | None

    def take(self, rows: IntArray | BoolArray) -> "LabelledRows":
        """Some of the rows."""
        return LabelledRows(self.X[rows], self.y[rows], None if self.tasks is None else self.tasks[rows])

    def by_task(self, tasks: NDArray[Any] | None) -> list[tuple[BoolArray, FloatArray]]:
        """Per task of those in ``tasks``, its rows and (n,) labels, meaningful in these rows only."""
        if self.y.ndim == 2:
            return [(~np.isnan(y), y) for y in self.y.T]
        if tasks is None:
            return [(np.ones(len(self.y), dtype=bool), self.y)]
        return [(self.tasks == task, self.y) for task in np.unique(tasks)]


_Candidate = tuple[Any, str]  # a selector (None: features at random), and the parameters it was given


class _Setup(NamedTuple):
    """What is the same for all selectors and splits; arguments as in `benchmark_selectors`."""

    sizes: list[int]
    classifier: Any
    pooled: bool
    scoring: str
    n_folds: int


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
        discriminative, baselines) and anything with ``fit`` and ``ranking_`` (1 is best), ``scores_``,
        ``inclusion_probability_``, ``coef_``, ``feature_importances_`` or ``get_support``. They are not changed.
    X : (n, p) array, sparse matrix or data frame
    y : (n,) class labels, each task with its own; or (n, m), one task per column, NaN where unobserved
    tasks : (n,) task labels
    k : numbers of features
    classifier : scikit-learn classifier; None: a linear support vector machine with C = 0.1, one against the rest
    pooled : train one classifier on the rows of all tasks, instead of one per task
    scoring : "accuracy" or "balanced_accuracy", what the nested choice maximises; both are reported
    n_splits, test_size : random splits within the classes of each task, with this share of test rows
    per_class : training rows per class and task; all others are test rows
    splits : (train, test) pairs of row numbers, instead of random splits
    n_inner_folds : folds of the training rows
    n_jobs : pairs of selector and split worked on at the same time, as in joblib
    random_state : of splits, folds and ties; all selectors get the same splits
    progress : bar: always, never, or (None) for long work on a terminal

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
    if splits is None:
        drawn = draw_splits(rows, n_splits, test_size, per_class, rng)
    else:
        drawn = given_splits(splits, len(rows.y))
    seeds = rng.randint(2**31 - 1, size=len(drawn))
    # split by split, so that what there is after Ctrl-C is the same splits for all
    outcomes = Parallel(n_jobs=n_jobs, return_as="generator")(
        delayed(_benchmark)(name, number, candidates, rows, split, plan, int(seeds[number]))
        for number, split in enumerate(drawn)
        for name, candidates in entrants.items()
    )
    work = Progress("benchmarking selectors", progress)
    found = gather(outcomes, len(drawn) * len(entrants), work, "splits", batch=len(entrants))
    sets: dict[tuple[str, int | str], list[BoolArray]] = {}
    for record, columns in chain.from_iterable(found):
        mask = np.isin(np.arange(rows.X.shape[1]), columns)
        sets.setdefault((record.selector, "chosen" if record.chosen else record.k), []).append(mask)
    records = tuple(record for record, _ in chain.from_iterable(found))
    return SelectorBenchmark(records, {key: np.stack(masks) for key, masks in sets.items()}, scoring)


def _read_rows(X: Any, y: Any, tasks: Any) -> LabelledRows:
    design = read_design(X).X
    codes, _ = read_classes(y, design.shape[0])
    if codes.ndim == 2 and codes.shape[1] == 1:
        codes = codes[:, 0]
    if tasks is None:
        return LabelledRows(design, codes, None)
    if codes.ndim == 2:
        raise ValueError("y has several columns and tasks was passed; pass one or the other")
    labels = as_labels(tasks)
    if len(labels) != len(codes):
        raise ValueError(f"tasks has {len(labels)} entries but X has {len(codes)} rows; pass one task label per row")
    return LabelledRows(design, codes, np.unique(labels, return_inverse=True)[1])


def _plan(rows: LabelledRows, k: Sequence[int], classifier: Any, pooled: bool, scoring: str, n_folds: int) -> _Setup:
    check_choice("scoring", scoring, tuple(MEASURES))
    sizes = sorted({min(int(size), rows.X.shape[1]) for size in k})
    if not sizes or sizes[0] < 1:
        raise ValueError(f"k is {list(k)}; pass numbers of features of at least 1, such as [10, 20, 50]")
    if pooled and rows.y.ndim == 2:
        raise ValueError("pooled=True needs one label per row but y has several columns; leave pooled out")
    if n_folds < 2:
        raise ValueError(f"n_inner_folds is {n_folds}; pass a whole number of at least 2")
    return _Setup(sizes, default_classifier() if classifier is None else classifier, pooled, scoring, n_folds)


def _entrants(selectors: Mapping[str, Any] | Sequence[Any]) -> dict[str, list[_Candidate]]:
    """Name to candidates."""
    named = selectors if isinstance(selectors, Mapping) else {type(s).__name__: s for s in selectors}
    if not named or len(named) != len(selectors):
        raise ValueError("selectors is empty or has two of one class; pass a mapping from names to selectors")
    return {name: _candidates(name, entry) for name, entry in named.items()}


def _candidates(name: str, entry: Any) -> list[_Candidate]:
    selector, grid = entry if isinstance(entry, tuple) else (entry, {})
    if selector is None:
        return [(None, "")]
    if not hasattr(selector, "fit"):
        raise TypeError(f"selectors[{name!r}] is {selector!r}; pass an object with fit, or a pair of it and a grid")
    return [
        (clone(selector).set_params(**chosen), ", ".join(f"{key}={value!r}" for key, value in chosen.items()))
        for chosen in ParameterGrid(grid)
    ]


def strata(rows: LabelledRows) -> IntArray:
    """(n,) Number of each row's task and class; of the wide form, of its labels taken together."""
    if rows.y.ndim == 2:
        return np.unique(np.nan_to_num(rows.y, nan=-1.0), axis=0, return_inverse=True)[1].ravel()
    tasks = np.zeros(len(rows.y)) if rows.tasks is None else rows.tasks
    return np.unique(np.column_stack([tasks, rows.y]), axis=0, return_inverse=True)[1].ravel()


def draw_splits(
    rows: LabelledRows, n_splits: int, test_size: float, per_class: int | None, rng: np.random.RandomState
) -> list[Split]:
    """Draw random splits: so many training rows per class of each task, or a share of test rows in each of them."""
    if per_class is not None and rows.y.ndim == 2:
        raise ValueError("per_class needs one label per row but y has several columns; pass splits or test_size")
    if not 0 < test_size < 1:
        raise ValueError(f"test_size is {test_size}; pass a share of the rows between 0 and 1")
    if n_splits < 1:
        raise ValueError(f"n_splits is {n_splits}; pass a whole number of at least 1")
    return [_draw(strata(rows), test_size, per_class, rng) for _ in range(n_splits)]


def _draw(stratum: IntArray, test_size: float, per_class: int | None, rng: np.random.RandomState) -> Split:
    place = _place_in_stratum(stratum, rng)
    size = np.bincount(stratum)[stratum]
    if per_class is None:
        test = place >= size - np.maximum(np.round(test_size * size), (size > 1).astype(int))
    else:
        if size.min() <= per_class:
            raise ValueError(
                f"per_class is {per_class} but a class of a task has {size.min()} rows; pass at most {size.min() - 1}"
            )
        test = place >= per_class
    return np.flatnonzero(~test), np.flatnonzero(test)


def given_splits(splits: Iterable[Any], n_rows: int) -> list[Split]:
    """Check the user's pairs of training and test rows."""
    found = [(np.asarray(train), np.asarray(test)) for train, test in splits]
    if not found:
        raise ValueError("splits is empty; pass at least one (train, test) pair of row numbers")
    for train, test in found:
        if np.intersect1d(train, test).size:
            raise ValueError("splits has a row in both the training and the test part; pass disjoint parts")
        if max(train.max(), test.max()) >= n_rows:
            raise ValueError(f"splits has row number {max(train.max(), test.max())} but X has {n_rows} rows")
    return found


def inner_folds(rows: LabelledRows, n_folds: int, rng: np.random.RandomState) -> list[Split]:
    """Folds of training rows; classes with fewer rows than folds are in as many folds as they can."""
    fold = _place_in_stratum(strata(rows), rng) % n_folds
    used = [number for number in range(n_folds) if (fold == number).any()]
    return [(np.flatnonzero(fold != number), np.flatnonzero(fold == number)) for number in used]


def _place_in_stratum(stratum: IntArray, rng: np.random.RandomState) -> IntArray:
    """(n,) Place of each row in a random order of its stratum."""
    order = rng.permutation(len(stratum))
    order = order[np.argsort(stratum[order], kind="stable")]
    starts = np.concatenate([[0], np.cumsum(np.bincount(stratum))[:-1]])
    place = np.empty(len(stratum), dtype=np.int64)
    place[order] = np.arange(len(stratum)) - starts[stratum[order]]
    return place


def _benchmark(
    name: str, number: int, candidates: list[_Candidate], rows: LabelledRows, split: Split, plan: _Setup, seed: int
) -> list[tuple[SplitRecord, IntArray]]:
    """Choose inside the training rows, then look at the test rows once."""
    train, test = rows.take(split[0]), rows.take(split[1])
    rng = np.random.RandomState(seed)
    # One thread per job: the same sums, and so the same choice, for every number of jobs
    with threadpool_limits(1):
        inner = _inner_scores(candidates, train, plan, rng)
        best = np.argmax(inner, axis=0)  # (sizes,) setting
        place = int(np.argmax(inner.max(axis=0)))
        orders = {int(setting): _timed_order(candidates[setting][0], train, rng) for setting in dict.fromkeys(best)}
        found = []
        for j, chosen in [*((j, False) for j in range(len(plan.sizes))), (place, True)]:
            order, seconds = orders[int(best[j])]
            columns = order[: plan.sizes[j]]
            about = (name, number, plan.sizes[j], chosen, len(columns))
            scores = _test_scores(train, test, columns, plan)
            found.append((SplitRecord(*about, *scores, seconds, candidates[best[j]][1]), columns))
    return found


def _inner_scores(
    candidates: list[_Candidate], train: LabelledRows, plan: _Setup, rng: np.random.RandomState
) -> FloatArray:
    """(settings, sizes) Mean score over the folds of the training rows; equal where there is nothing to choose."""
    scores = np.zeros((len(candidates), len(plan.sizes)))
    if scores.size == 1:
        return scores
    folds = inner_folds(train, plan.n_folds, rng)
    for own, held in folds:
        inside, outside = train.take(own), train.take(held)
        for i, (selector, _) in enumerate(candidates):
            order = _timed_order(selector, inside, rng)[0]
            for j, size in enumerate(plan.sizes):
                predictions = _predictions(inside, outside, order[:size], plan)
                scores[i, j] += _mean_score(predictions, plan.scoring) / len(folds)
    return np.round(scores, 12)


def _timed_order(selector: Any, rows: LabelledRows, rng: np.random.RandomState) -> tuple[IntArray, float]:
    """Features, best first, and the seconds of the fit."""
    begin = time.perf_counter()
    fitted = None if selector is None else fit_selector(selector, rows)
    seconds = time.perf_counter() - begin
    return feature_order(fitted, rows.X, rng), seconds


def _test_scores(
    train: LabelledRows, test: LabelledRows, columns: IntArray, plan: _Setup
) -> tuple[float, float, float]:
    """Accuracy, balanced accuracy, and the accuracy of guessing the majority class."""
    found, guesses = (_predictions(train, test, chosen, plan) for chosen in (columns, columns[:0]))
    return _mean_score(found, "accuracy"), _mean_score(found, "balanced_accuracy"), _mean_score(guesses, "accuracy")


def _mean_score(predictions: list[tuple[FloatArray, FloatArray]], measure: str) -> float:
    """Mean over tasks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a class that is predicted but not among the test rows
        return float(np.mean([MEASURES[measure](truth, predicted) for truth, predicted in predictions]))


def _predictions(
    train: LabelledRows, test: LabelledRows, columns: IntArray, plan: _Setup
) -> list[tuple[FloatArray, FloatArray]]:
    """Per task, the truth and the prediction of its test rows."""
    tasks = None if plan.pooled else train.tasks
    return [
        (truth[held], _predict(plan.classifier, train.X[own][:, columns], y[own], test.X[held][:, columns]))
        for (own, y), (held, truth) in zip(train.by_task(tasks), test.by_task(tasks), strict=True)
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


def fit_selector(selector: Any, rows: LabelledRows) -> Any:
    """Fit a clone to these rows; the selector is not changed."""
    own = silent_clone(selector)
    with warnings.catch_warnings(), Progress("selector", False) as work:
        warnings.simplefilter("ignore")  # what is odd in one of many fits is no news
        fitted = _fitted(own, rows)
    work.check()  # a fit that caught Ctrl-C was not finished
    return fitted


def _fitted(own: Any, rows: LabelledRows) -> Any:
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


def binary_tasks(rows: LabelledRows, classifier: bool) -> tuple[Design, FloatArray, NDArray[Any] | None]:
    """X, y and tasks with two classes per task: 0 and 1 for a classifier, -1 and +1 for a regressor.

    They are (n, p), (n, m) and None over one design where all rows belong to all tasks; else the long form.
    """
    columns = [
        (seen, np.where(y == label, 1.0, 0.0 if classifier else -1.0))
        for seen, y in rows.by_task(rows.tasks)
        for label in _positive_labels(y[seen])
    ]
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


def feature_order(fitted: Any, X: Design, rng: np.random.RandomState) -> IntArray:
    """Numbers of the features that a fit (None: at random) to X puts forward, best first; equals in random order."""
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
    if isinstance(getattr(fitted, "result_", None), FitResult) and fitted.result_.effect_unit is not None:
        sizes = np.linalg.norm(fitted.result_.as_effects().coef, axis=0)
    elif hasattr(fitted, "coef_"):
        lengths = np.linalg.norm(np.atleast_2d(np.asarray(fitted.coef_, dtype=np.float64)), axis=0)
        sizes = lengths * weighted_deviation(X.tocsr() if sp.issparse(X) else X, np.ones(X.shape[0]))
    elif hasattr(fitted, "feature_importances_"):
        sizes = np.asarray(fitted.feature_importances_, dtype=np.float64)
    elif hasattr(fitted, "get_support"):
        sizes = np.asarray(fitted.get_support(), dtype=np.float64)
    else:
        raise TypeError(
            f"{type(fitted).__name__} does not say which features it selects; pass a selector with ranking_, scores_, "
            "coef_, feature_importances_ or get_support"
        )
    return np.where(sizes > 0, sizes, -np.inf)
