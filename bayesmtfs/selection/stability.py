"""Stability selection: keep the features that are selected again and again on halves of the data.

The data are cut B times into two complementary halves, within each task (and class); the estimator is fitted to all 2B
halves, and feature i is kept where its selection frequency

    f_i = (1 / 2B) sum over halves of 1{feature i has a non-zero coefficient in any task}

is at least a threshold pi (Meinshausen and Buehlmann 2010, JRSS B 72, definition 2; in complementary pairs: Shah and
Samworth 2013, JRSS B 75, section 2). Differently from the papers, halves are balanced within tasks and classes, and a
half has one row more than the other where a count is odd. Of p features, each half selects q on average; then

    Meinshausen and Buehlmann (2010), theorem 1:  E(V) <= q^2 / ((2 pi - 1) p),
    Shah and Samworth (2013), theorem 1:          E(kept features of L) <= q^2 / ((2 pi - 1) p),
    Shah and Samworth (2013), theorem 2:          E(kept features of L) <= C(pi, B) q^2 / p.

V counts the kept noise features, under the assumptions that all noise features are equally likely to be selected and
that the selection is not worse than guessing. L holds the features whose probability of being selected by a half is at
most theta = q / p; its first bound assumes nothing, its second that the frequency with which *both* halves of a pair
select such a feature has a unimodal distribution.

How much any M sets of features agree is told by Nogueira's stability: with f_i the share of the sets that hold feature
i and k their average size,

    stability = 1 - [ (1/p) sum_i M / (M - 1) f_i (1 - f_i) ] / [ (k / p) (1 - k / p) ]

(Nogueira, Sechidis and Brown 2018, JMLR 18(174), eq. 4). It is 1 for equal sets and 0 on average for random ones of any
size; its interval is the asymptotic one of their corollary 9.
"""

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike, NDArray
from scipy.stats import norm
from sklearn.base import clone, is_classifier
from sklearn.utils import check_random_state
from threadpoolctl import threadpool_limits

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.estimators.folds import row_folds, take
from bayesmtfs.estimators.path import problem_of
from bayesmtfs.progress import Progress, gather
from bayesmtfs.results.tables import listed
from bayesmtfs.types import BoolArray, ConvergenceWarning, DataWarning, FloatArray, IntArray, SelectionWarning, warn

DEFAULT_THRESHOLD = 0.75
PATH_STEP = 0.93  # ratio of neighbouring penalties while features enter
SMALLEST_PENALTY = 1e-3  # of the largest one: where the path ends
MOST_DRAWS = 100  # of a pair, until both halves hold every task and class
LARGEST_SHARE = 1 / math.sqrt(3)  # theta up to which theorem 2 of Shah and Samworth holds


class ErrorBounds(NamedTuple):
    """Bounds on the expected number of wrongly kept features; nan where a bound does not hold."""

    meinshausen_buehlmann: float  # kept noise features, if they are exchangeable and selection beats guessing
    worst_case: float  # kept features with selection probability of at most theta, without assumptions
    unimodal: float  # the same, if their simultaneous selection frequencies are unimodal


def error_bounds(n_selected: float, n_features: int, threshold: float, n_pairs: int) -> ErrorBounds:
    """All three bounds, of q selected features of p, a threshold pi in (1/2, 1] and B pairs.

    Examples
    --------
    >>> bounds = error_bounds(n_selected=40, n_features=2000, threshold=0.9, n_pairs=50)
    >>> round(bounds.worst_case, 3), round(bounds.unimodal, 3)
    (1.0, 0.345)
    """
    simple = n_selected**2 / ((2 * threshold - 1) * n_features)
    share = n_selected / n_features
    return ErrorBounds(simple, simple, unimodal_factor(share, threshold, n_pairs) * n_selected * share)


def unimodal_factor(share: float, threshold: float, n_pairs: int) -> float:
    """C(pi, B) of Shah and Samworth (2013), theorem 2, eq. (8); nan where it does not hold.

    Frequencies are multiples of 1/(2B), so that a threshold acts as the next multiple above it.
    """
    half_step = 1 / (2 * n_pairs)
    reached = math.ceil(threshold / half_step - 1e-9) * half_step
    lowest = 0.5 + min(share**2, half_step + 0.75 * share**2)
    if share > LARGEST_SHARE or reached < 0.5 + 2 * half_step - 1e-9 or reached <= lowest:
        return math.nan
    if reached <= 0.75:
        return 1 / (2 * (2 * reached - 1 - half_step))
    return 4 * (1 - reached + half_step) / (1 + 2 * half_step)


def largest_number(expected_false: float, n_features: int, threshold: float) -> int:
    """Most features that a half may select so that the first bound is at most ``expected_false``."""
    return min(n_features, math.floor(math.sqrt(expected_false * (2 * threshold - 1) * n_features) + 1e-9))


def smallest_threshold(expected_false: float, n_features: int, n_selected: int) -> float:
    """Threshold at which the first bound is ``expected_false``; above 1 where no threshold is enough."""
    return (1 + n_selected**2 / (n_features * expected_false)) / 2


class SetStability(NamedTuple):
    """Stability, and its interval."""

    value: float  # nan for one set, and where all sets are empty or full
    low: float
    high: float


def set_stability(sets: ArrayLike, level: float = 0.95) -> SetStability:
    """Nogueira's stability of several sets of features.

    Parameters
    ----------
    sets : (M, p) bool, one row per set
    level : coverage of the interval

    Examples
    --------
    >>> set_stability([[True, True, False, False], [True, True, False, False], [True, False, True, False]]).value
    0.333...
    """
    Z = np.asarray(sets, dtype=np.float64)
    if Z.ndim != 2:
        raise ValueError(f"sets has shape {Z.shape}; pass one row per set and one column per feature")
    number, p = Z.shape
    share = Z.mean() if Z.size else 0.0  # k / p
    if number < 2 or share in (0.0, 1.0):
        return SetStability(float("nan"), float("nan"), float("nan"))
    frequency = Z.mean(axis=0)
    chance = share * (1.0 - share)
    value = 1.0 - number / (number - 1) * np.mean(frequency * (1.0 - frequency)) / chance
    influence = _influence(Z, frequency, share, value) / chance
    error = np.sqrt(4.0 / number**2 * np.sum((influence - influence.mean()) ** 2))
    half = norm.ppf(0.5 + level / 2.0) * error
    return SetStability(float(value), float(value - half), float(value + half))


def _influence(Z: FloatArray, frequency: FloatArray, share: float, value: float) -> FloatArray:
    """(M,) What each set contributes to the stability (theorem 7), times (k / p)(1 - k / p)."""
    sizes = Z.mean(axis=1)  # k_i / p
    return Z @ frequency / Z.shape[1] - sizes * share + value / 2.0 * (2.0 * share * sizes - sizes - share + 1.0)


@dataclass(frozen=True, eq=False, repr=False)
class Stability:
    """Selection frequencies and what follows from them.

    Attributes
    ----------
    selection_frequency : (p,) share of the halves that select each feature, in any task
    task_frequency : (n_tasks, p) share of the halves in which each coefficient is non-zero
    n_selected : (2 * n_pairs,) features selected by each half; halves 2k and 2k + 1 are a pair
    threshold : features of at least this frequency are kept
    n_features : most features a half could select, or None where that was left to the estimator
    feature_names : (p,)
    tasks : (n_tasks,) labels
    """

    selection_frequency: FloatArray
    task_frequency: FloatArray
    n_selected: IntArray
    threshold: float
    n_features: int | None
    feature_names: NDArray[np.str_]
    tasks: NDArray[Any]

    @property
    def n_pairs(self) -> int:
        """Pairs of complementary halves."""
        return len(self.n_selected) // 2

    @property
    def average_selected(self) -> float:
        """q, the average number of features that a half selects."""
        return float(self.n_selected.mean())

    @property
    def selected(self) -> NDArray[np.str_]:
        """Names of the features that are kept, the most frequent first."""
        kept = self.get_support(indices=True)
        order = np.argsort(-self.selection_frequency[kept], kind="stable")
        return self.feature_names[kept[order]]

    def get_support(self, indices: bool = False, threshold: float | None = None) -> Any:
        """Features whose frequency is at least the threshold.

        Parameters
        ----------
        indices : return the numbers of the features instead of a mask
        threshold : another threshold, in (1/2, 1]
        """
        # frequencies are multiples of 1 / (2 n_pairs): a sum of rounding errors must not decide
        kept = self.selection_frequency >= self._level(threshold) - 1e-9
        return np.flatnonzero(kept) if indices else kept

    def error_bounds(self, threshold: float | None = None) -> ErrorBounds:
        """Bounds on the expected number of wrongly kept features; `summary` says what each is about.

        q is the limit ``n_features`` where there was one, and else the average over the halves.

        Parameters
        ----------
        threshold : another threshold, in (1/2, 1]
        """
        return error_bounds(self._q, len(self.selection_frequency), self._level(threshold), self.n_pairs)

    def _level(self, threshold: float | None) -> float:
        return self.threshold if threshold is None else check_threshold(threshold)

    @property
    def _q(self) -> float:
        return self.average_selected if self.n_features is None else float(self.n_features)

    def summary(self) -> str:
        """What was kept, and what is known of its errors, in words."""
        p, bounds = len(self.selection_frequency), self.error_bounds()
        names, q = self.selected.tolist(), self._q
        lines = [
            f"{len(names)} of {p} features are selected by at least {self.threshold:.0%} of {2 * self.n_pairs} halves"
            + (f": {listed(names, 10)}." if names else "."),
            f"A half selects {self.average_selected:.1f} features on average"
            + ("." if self.n_features is None else f", and {self.n_features} at most."),
            f"Expected number of noise features among the kept: at most {bounds.meinshausen_buehlmann:.3g}, if all of "
            "them are equally likely to be selected and selection beats guessing (Meinshausen and Buehlmann 2010).",
            f"Expected number of kept features that a half selects with a probability of {q / p:.3g} or less: at most "
            f"{bounds.worst_case:.3g}, without assumptions (Shah and Samworth 2013, theorem 1).",
        ]
        if np.isfinite(bounds.unimodal):
            lines.append(
                f"The same: at most {bounds.unimodal:.3g}, if the frequencies with which both halves of a pair select "
                "such a feature are unimodal (theorem 2)."
            )
        return "\n".join(lines)

    def __repr__(self) -> str:
        return (
            f"Stability({int(self.get_support().sum())} of {len(self.selection_frequency)} features kept at threshold "
            f"{self.threshold:g}; {self.n_pairs} pairs, {self.average_selected:.1f} features per half)"
        )


def stability(
    estimator: Any,
    X: Any,
    y: Any = None,
    tasks: Any = None,
    *,
    sample_weight: Any = None,
    exposure: Any = None,
    offset: Any = None,
    n_pairs: int = 50,
    threshold: float | None = None,
    expected_false: float | None = None,
    n_features: int | None = None,
    n_jobs: int | None = None,
    random_state: Any = None,
    progress: bool | None = None,
) -> Stability:
    """Select features by how often halves of the data select them.

    Pass ``expected_false`` to say how many wrong features are acceptable: the first bound of `Stability.error_bounds`
    then gives ``n_features`` from the threshold, or the threshold from ``n_features``. Ctrl-C gives the result of the
    pairs so far, with a `SelectionWarning`.

    Parameters
    ----------
    estimator : an estimator of this package, which is not changed
        Its penalty decides what a half selects, unless ``n_features`` is set.
    X, y, tasks, sample_weight, exposure, offset : as in the estimator's ``fit``
    n_pairs : pairs of complementary halves, 50 to 100 are usual
    threshold : smallest frequency of a kept feature, in (1/2, 1]; None: 0.75, or what ``expected_false`` asks for
    expected_false : largest acceptable expected number of wrong features
    n_features : features per half: the first so many that enter as the penalty falls, whatever the estimator's own is
        Those that enter together are ordered by the length of their coefficients. Not for feature groups.
    n_jobs : halves fitted at the same time, as in joblib; the result is the same to the last bit
    random_state : int, RandomState or None
    progress : bar: always, never, or (None) for long work on a terminal

    Examples
    --------
    >>> from bayesmtfs import MixedNormRegressor, simulate_tasks
    >>> from bayesmtfs.selection import stability
    >>> sim = simulate_tasks(n_tasks=3, n_features=30, n_relevant=3, n_samples=40, random_state=0)
    >>> found = stability(MixedNormRegressor(), sim.X, sim.y, sim.tasks, expected_false=1, n_pairs=10, random_state=0)
    >>> bool((found.get_support() == sim.support).all()), found.n_features
    (True, 3)
    """
    if not (hasattr(estimator, "training_data") and hasattr(estimator, "predict")):
        raise TypeError(
            f"estimator is a {type(estimator).__name__}; pass an estimator of this package that has coefficients, such "
            "as MixedNormRegressor()"
        )
    model = clone(estimator)
    own_weights = getattr(model, "class_weight", None)
    if own_weights is not None:
        model.set_params(class_weight=None)  # each half has its own
    data = model.training_data(X, y, tasks, sample_weight, exposure, offset)
    if own_weights is not None:
        model.set_params(class_weight=own_weights)
    level, most = _plan(data.n_features, threshold, expected_false, n_features)
    if most is not None:
        _check_can_count(model, data)
    if n_pairs < 1:
        raise ValueError(f"n_pairs is {n_pairs}; pass a whole number of at least 1, 50 is usual")
    halves = _draw_halves(data, n_pairs, is_classifier(model), check_random_state(random_state))
    parallel = Parallel(n_jobs=n_jobs, return_as="generator")
    results: Iterator[tuple[BoolArray, bool]] = parallel(delayed(_select)(model, data, half, most) for half in halves)
    work = Progress("stability selection", progress)
    found = gather(results, len(halves), work, "pairs of halves", batch=2)
    selected = np.stack([coefficients for coefficients, _ in found])
    unsolved = sum(not converged for _, converged in found)
    if unsolved:
        advice = "raise the estimator's max_iter or tol"
        warn(f"{unsolved} of {len(found)} halves were not solved to tolerance; {advice}", ConvergenceWarning)
    if most is None and not selected.any():
        warn("no half selects any feature; lower penalty_strength", SelectionWarning)
    return Stability(
        selection_frequency=selected.any(axis=1).mean(axis=0),
        task_frequency=selected.mean(axis=0),
        n_selected=selected.any(axis=1).sum(axis=1),
        threshold=level,
        n_features=most,
        feature_names=data.feature_names,
        tasks=data.task_names,
    )


def _plan(
    p: int, threshold: float | None, expected_false: float | None, n_features: int | None
) -> tuple[float, int | None]:
    """Threshold and number of features per half, where needed by the first bound."""
    if threshold is not None:
        check_threshold(threshold)
    if n_features is not None and not 1 <= n_features <= p:
        raise ValueError(f"n_features is {n_features}; pass a whole number between 1 and {p}, the number of features")
    if expected_false is None:
        return threshold or DEFAULT_THRESHOLD, n_features
    if not expected_false > 0:
        raise ValueError(f"expected_false is {expected_false}; pass a positive number, such as 1")
    if n_features is None:
        threshold = threshold or DEFAULT_THRESHOLD
        n_features = largest_number(expected_false, p, threshold)
        if n_features < 1:
            raise ValueError(
                f"expected_false is {expected_false}, too small for {p} features at threshold {threshold}: no half "
                f"could select even one; pass at least {1 / ((2 * threshold - 1) * p):.3g}, or raise threshold"
            )
        return threshold, n_features
    if threshold is not None:
        raise ValueError("threshold, expected_false and n_features were passed; pass two, they determine the third")
    threshold = smallest_threshold(expected_false, p, n_features)
    if threshold > 1:
        raise ValueError(
            f"expected_false is {expected_false} but n_features is {n_features} of {p}, for which no threshold is "
            f"enough; pass n_features of at most {largest_number(expected_false, p, 1.0)}, or raise expected_false"
        )
    return threshold, n_features


def silent_clone(estimator: Any) -> Any:
    """An estimator that is not fitted, of the same parameters but without a progress bar."""
    own = clone(estimator)
    return own.set_params(progress=False) if "progress" in own.get_params() else own


def check_threshold(threshold: float) -> float:
    """Refuse a threshold outside (1/2, 1]."""
    if not 0.5 < threshold <= 1:
        raise ValueError(f"threshold is {threshold}; pass a number above 0.5 and up to 1, such as 0.75")
    return threshold


def _check_can_count(model: Any, data: TaskData) -> None:
    """Refuse what has no path on which features enter one by one."""
    way_out = "leave n_features and expected_false out, and choose the penalty of the estimator"
    if not {"penalty_strength", "norm_q", "solver"} <= set(model.get_params()):
        raise ValueError(f"n_features needs a penalty path, which {type(model).__name__} does not have; {way_out}")
    if model.shared_mean:
        raise ValueError(f"n_features was set but shared_mean=True selects no features; {way_out}")
    if data.groups is not None:
        raise ValueError(f"n_features counts single features but X has groups or categorical columns; {way_out}")


def _draw_halves(data: TaskData, n_pairs: int, by_class: bool, rng: np.random.RandomState) -> list[BoolArray]:
    """(N,) masks of the halves, complementary pairs one after the other."""
    halves = []
    for _ in range(n_pairs):
        for _ in range(MOST_DRAWS):
            first = row_folds(data, 2, by_class=by_class, random_state=int(rng.randint(2**31))) == 0
            poor = _tasks_not_in_both(data, first, by_class)
            if len(poor) == 0:
                break
        else:
            wanted = "two rows of each class" if by_class else "two rows"
            raise ValueError(
                f"task {data.task_names.tolist()[poor[0]]!r} cannot be cut into two halves: every task needs at least "
                f"{wanted}; drop the task or collect more rows"
            )
        halves += [first, ~first]
    return halves


def _tasks_not_in_both(data: TaskData, first: BoolArray, by_class: bool) -> IntArray:
    """Numbers of the tasks (with classes: of those with a class) that one of the halves does not hold."""
    part = 2 * data.task + (data.y > 0) if by_class else data.task
    counts = [np.bincount(part[half], minlength=int(part.max()) + 1) for half in (first, ~first)]
    lacking = np.flatnonzero(np.minimum(*counts) == 0)
    return np.unique(lacking // 2) if by_class else lacking


def _select(model: Any, data: TaskData, half: BoolArray, n_features: int | None) -> tuple[BoolArray, bool]:
    """Fit one half and see which coefficients (m, p) are not zero, and whether the fit has converged."""
    own = silent_clone(model)
    subset = take(data, half).data
    # One thread per half: the same sums, and so the same bits, for every number of jobs
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # counted, and warned of once
        warnings.simplefilter("ignore", DataWarning)  # what is constant in a half alone is of no interest
        if n_features is not None:
            return _first_features(own, subset, n_features)
        own.fit(subset)
    return (own.coef_ != 0) & own.get_support(), bool(own.converged_)


def _first_features(model: Any, data: TaskData, n_features: int) -> tuple[BoolArray, bool]:
    """Follow the path from its largest penalty until enough features have entered."""
    largest = problem_of(model, model._rescaled(data).data).largest_penalty
    model.set_params(warm_start=True, refit=False)
    entered: list[int] = []
    strength, converged = PATH_STEP * largest, True
    selected = np.zeros((data.n_tasks, data.n_features), dtype=bool)
    while strength > SMALLEST_PENALTY * largest and len(entered) < n_features:
        model.set_params(penalty_strength=strength).fit(data)
        size = np.linalg.norm(model.result_.as_effects().coef, axis=0)
        entered += [i for i in np.argsort(-size, kind="stable").tolist() if size[i] > 0 and i not in entered]
        converged = converged and bool(model.converged_)
        selected = model.coef_ != 0
        strength *= PATH_STEP
    first = entered[:n_features]
    inside = np.zeros_like(selected)
    # a feature that has entered counts, even where it left again before the last one came
    inside[:, first] = selected[:, first] | ~selected[:, first].any(axis=0)
    return inside, converged
