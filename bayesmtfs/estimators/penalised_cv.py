"""Penalised estimators that choose their penalty, and their norm, by cross-validation or an information criterion.

    minimise  sum_t (1/n_t) sum_i loss(y_i, x_i' w_t + b_t) + penalty_strength * sum_i ||w^i||_q + ridge / 2 ||W||_F^2

Candidates are the values of ``norm_q``, ``ridge`` and ``shared_mean``, each with its own grid of penalties from the
lambda_max of all data; the same penalties are used in every fold. The final fit on all data is that of the plain
estimator at the chosen values.

**A shared mean.** What draws the mean to zero, its ridge and the weight of its 1-norm, is chosen before all else, in the
same folds, on a grid of few penalties: first the ridge, from a large one down until the error rises; then, unless there
are more than ten observations per feature, weights of the 1-norm, at that ridge and at the smallest. The smallest error
over those penalties decides.

**Folds.** A task that has no training observations is predicted with the average of the other tasks' coefficients and
intercepts. The error of a fold is

    mean over its test tasks of  sum_i c_i error(y_i, eta_i) / sum_i c_i        (i: test observations of the task)

with weights c and the error of the family: ``(y - eta)^2``, ``|y - eta|``, the logistic deviance ``2 ln(1 + exp(-y eta))``,
the hinge ``(1 - y eta)_+``, and the loss of other families. Folds count equally, and the standard error of their mean is
their standard deviation over the square root of their number. Chosen is the smallest mean, or the largest penalty within
one standard error of it (Breiman et al. 1984, section 3.4.3).

**Criteria.**

    BIC   = deviance + ln(N) df                                   (Schwarz 1978)
    EBIC  = BIC + 2 gamma ln C(P, k)                              (Chen and Chen 2008, eq. 1)

with N the total weight of the observations and the deviance of the family, minus twice its log-likelihood up to constants,
a noise at its best value: ``N ln(RSS / N)`` for the squared loss. The hinge has no likelihood, and thus no criterion. The
degrees of freedom are the number of non-zero coefficients, plus one per intercept. That is unbiased for q = 1 (Zou,
Hastie and Tibshirani 2007); for q > 1, whose rows are shrunk together, it is an upper bound (the formula of Yuan and Lin
2006, section 3, lies below it but needs a unique least squares fit), so that the criteria lean to sparse models. In EBIC
the choice is among the P rows of W of which k are not zero, or, where single entries are selected (q = 1 or a task
sparsity), among the entries. Fits with as many degrees of freedom as observations describe the data only and get the
criterion ``inf``.
"""

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from itertools import product
from typing import Any, ClassVar, Self

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike
from scipy.special import gammaln
from threadpoolctl import threadpool_limits

from bayesmtfs.compiled import threads_that_pay
from bayesmtfs.convex import shared_mean
from bayesmtfs.data.gaps import filled, has_gaps, learn_means
from bayesmtfs.data.inputs import match_labels
from bayesmtfs.data.scaling import rescale
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.estimators.base import check_choice, estimator_class, unchanged_on_error
from bayesmtfs.estimators.folds import Fold, leaves_tasks_out, make_folds, take
from bayesmtfs.estimators.path import (
    MixedNormPath,
    automatic_penalties,
    path_of,
    read_penalties,
    scaled_problem,
    warn_if_not_converged,
)
from bayesmtfs.estimators.penalised import MixedNormClassifier, MixedNormEstimator, MixedNormRegressor
from bayesmtfs.estimators.survival import MixedNormSurvival
from bayesmtfs.families import Family, find_family, with_offset
from bayesmtfs.priors import Blocks
from bayesmtfs.progress import Progress
from bayesmtfs.results import persistence
from bayesmtfs.types import BoolArray, DataWarning, FloatArray, IntArray, SelectionWarning, warn

LOOSEST_TOL = 1e-5  # folds are solved to this gap, or the user's where that is larger


Candidate = tuple[MixedNormEstimator, FloatArray]  # what is fitted along a path, and its penalties (k,)
FoldErrors = tuple[FloatArray, BoolArray]  # (k,) errors of one candidate on one fold, and which fits converged


def cross_validate(
    data: TaskData, folds: list[Fold], candidates: list[Candidate], n_jobs: int | None, progress: bool | None
) -> list[list[FoldErrors]]:
    """Errors of every candidate (outer list) on every fold (inner list).

    Jobs are threads unless joblib is told otherwise: the compiled loops and the products of matrices run side by side,
    and no process has to start and load them first. After Ctrl-C the folds count that all candidates are through with.
    """
    jobs = [(candidate, fold) for fold in folds for candidate in candidates]
    parallel = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")
    results: Iterator[FoldErrors] = parallel(delayed(fold_errors)(data, fold, candidate) for candidate, fold in jobs)
    found: list[FoldErrors] = []
    # Filters and limits hold for all threads, and the first to leave would lift them for the others: so they are here
    with threadpool_limits(1), warnings.catch_warnings(), Progress("cross-validation", progress) as work:
        warnings.simplefilter("ignore", DataWarning)  # what is constant in a fold alone is of no interest
        for result in results:
            work.check()
            found.append(result)
            work.update(len(found) / len(jobs), f"{len(found)} of {len(jobs)} paths")
    n_whole = len(found) // len(candidates)
    if work.interrupted and n_whole == 0:
        raise KeyboardInterrupt
    if n_whole < len(folds):
        warn(f"interrupted after {n_whole} of {len(folds)} folds; the choice is made by these", SelectionWarning)
    return [found[place : n_whole * len(candidates) : len(candidates)] for place in range(len(candidates))]


def fold_errors(data: TaskData, fold: Fold, candidate: Candidate) -> FoldErrors:
    """Fit one fold along its penalties and predict what it holds out."""
    model, penalties = candidate
    model = replace(model, tol=max(model.tol, LOOSEST_TOL))
    # One thread per fold: the same sums, and so the same bits, for every number of jobs
    with threadpool_limits(1):
        train, test = take(data, fold.train).data, take(data, fold.test).data
        if model.impute is not None and has_gaps(data):
            means = learn_means(train)
            test = filled(test, means, match_labels(test.task_names, test.n_tasks, train.task_names))
            train = filled(train, means, np.arange(train.n_tasks))
        path = path_of(train, model, penalties)
        heights = rescale(
            data, standardize=False, scale_target=model._scales_target, centred=model.fit_intercept
        ).target
        heights = heights[match_labels(test.task_names, test.n_tasks, data.task_names)][test.task]
        return _held_out_errors(test, path, find_family(model.loss), heights), path.converged


def _held_out_errors(test: TaskData, path: MixedNormPath, family: Family, heights: FloatArray) -> FloatArray:
    """(k,) Errors of a path; those of each observation are measured in ``heights`` (N,)."""
    scaled = test.with_target(test.y / heights)
    own = match_labels(test.task_names, test.n_tasks, path.tasks)
    if family.coupled and family.targets == "labels" and (own < 0).any():
        raise ValueError(
            f"cv leaves out a whole task, of whose classes loss={family.name!r} knows nothing; pass other folds"
        )
    family = with_offset(family, scaled.eta_offset).on(scaled.y, scaled.weight, scaled.offsets)
    errors = np.empty(len(path.penalties))
    for k, (coef, intercept) in enumerate(zip(path.coefs, path.intercepts, strict=True)):
        W = np.where(own >= 0, coef[own].T, coef.mean(axis=0)[:, np.newaxis])
        b = np.where(own >= 0, intercept[own], intercept.mean())
        errors[k] = mean_task_error(scaled, family, test.linear_predictor(W, b) / heights)
    return errors


def mean_task_error(data: TaskData, family: Family, eta: FloatArray) -> float:
    """Mean over tasks of the weighted mean error of each."""
    sums = np.add.reduceat(data.weight * family.error(data.y, eta), data.offsets[:-1])
    return float(np.mean(sums / np.add.reduceat(data.weight, data.offsets[:-1])))


def standard_error(errors: FloatArray) -> FloatArray:
    """Standard error of the mean over the last axis; 0 where there is one fold only."""
    n_folds = errors.shape[-1]
    if n_folds < 2:
        return np.zeros(errors.shape[:-1])
    return np.asarray(np.std(errors, axis=-1, ddof=1) / np.sqrt(n_folds))


def choose(penalties: FloatArray, score: FloatArray, margin: FloatArray | None = None) -> tuple[int, int]:
    """Candidate and penalty of the smallest score (c, k), which is NaN after the end of a grid; of equals, the largest.

    With a margin (c, k) of standard errors, the largest penalty of the best candidate whose score is at most the smallest
    plus its margin (the one standard error rule of Breiman et al. 1984, section 3.4.3).

    Examples
    --------
    >>> penalties, score = np.array([[3.0, 2.0, 1.0]]), np.array([[9.0, 5.0, 4.5]])
    >>> choose(penalties, score), choose(penalties, score, margin=np.full((1, 3), 1.0))
    ((0, 2), (0, 1))
    """
    known = np.where(np.isnan(score), np.inf, score)
    ties = np.where(known == known.min(), penalties, -1.0)
    candidate, best = np.unravel_index(int(np.nanargmax(ties)), ties.shape)
    if margin is not None:
        bound = known[candidate, best] + margin[candidate, best]
        best = np.nanargmax(np.where(known[candidate] <= bound, penalties[candidate], -1.0))
    return int(candidate), int(best)


def information_criterion(
    data: TaskData, path: MixedNormPath, model: MixedNormEstimator, ebic_gamma: float = 0.0
) -> tuple[FloatArray, IntArray]:
    """(k,) BIC (``ebic_gamma=0``) or EBIC of every fit of a path to the data, and their degrees of freedom."""
    size = float(data.weight.sum())
    freedom = (path.coefs != 0).sum(axis=(1, 2)) + (data.n_tasks if model.fit_intercept else 0)
    fits = zip(path.coefs, path.intercepts, strict=True)
    family = with_offset(find_family(model.loss), data.eta_offset)
    etas = (data.linear_predictor(coef.T, intercept) for coef, intercept in fits)
    deviances = np.array([family.deviance(data.y, eta, data.weight) for eta in etas])
    value = deviances + np.log(size) * freedom
    if ebic_gamma > 0:
        value = value + 2.0 * ebic_gamma * _log_choices(data, path, model)
    return np.where(freedom >= size, np.inf, value), freedom


def _log_choices(data: TaskData, path: MixedNormPath, model: MixedNormEstimator) -> FloatArray:
    """(k,) Logarithm of the number of models with as many rows, or entries, as each fit has."""
    blocks = Blocks(data.n_features, data.n_tasks, groups=data.groups, present=data.present)
    if path.norm_q == 1 or model.task_sparsity > 0:
        available, used = int(blocks.sizes.sum()), (path.coefs != 0).sum(axis=(1, 2))
    else:
        available = blocks.n_rows
        used = np.array([blocks.gather(coef.T).any(axis=1).sum() for coef in path.coefs])
    choices: FloatArray = gammaln(available + 1) - gammaln(used + 1) - gammaln(available - used + 1)
    return choices


SMALLEST_RIDGE = 0.1  # of the default ridge on the shared mean: the first that is tried
RIDGE_STEP = 10.0  # from one to the next
LARGEST_RIDGE = 10.0  # times the number of features: the last that is tried, since many weak features need as much
MEAN_PENALTIES = (0.03, 0.2)  # of the largest that leaves a mean: weights of its 1-norm that are tried
MANY_FEATURES = 10  # observations per feature from which the mean need not be sparse
FIRST_FOLDS, FINALISTS = 2, 2  # all of them are compared on so many folds, and the best so many on all folds
COARSE_GRID = (4, 0.01)  # penalties on the deviations at which these are compared
COARSE_TOL = 3e-4  # gap to which they are solved then


MeanPair = tuple[float, float]  # ridge on the shared mean, and weight of its 1-norm


class ComparedMeans:
    """What is known of the pairs that were compared."""

    def __init__(self) -> None:
        self.grids: dict[MeanPair, FloatArray] = {}  # (k,) few penalties on the deviations
        self.by_fold: dict[MeanPair, list[FloatArray]] = {}  # (k,) errors at these, on every fold so far

    def errors(self) -> dict[MeanPair, float]:
        """Smallest mean error of every pair over its penalties."""
        return {pair: float(np.mean(errors, axis=0).min()) for pair, errors in self.by_fold.items()}


@estimator_class()
class MixedNormCV(MixedNormEstimator):
    """An l1,q penalised fit whose penalty, and norm where several are given, come from the data.

    Parameters
    ----------
    norm_q : float in [1, inf], or a list of them
        How the tasks share a feature; of several the best is chosen.
    ridge : float, or a list of them
        Elastic part; of several the best is chosen.
    shared_mean : bool, or [False, True]
        Whether tasks are drawn to a common mean; the list leaves that to the folds.
    n_penalties, penalty_ratio : int, float
        Size of the automatic grid of penalties, and its smallest as a share of its largest, which is the smallest
        strength at which all coefficients are zero. The grid ends early where the model is saturated.
    penalties : (k,) strengths, or None for the automatic grid
        The same strengths are used on all data and in every fold, also with ``loss_scale="sum"``.
    cv : int, splitter, iterable, mapping, "leave_one_task_out" or None
        Number of task-stratified folds (None: 5), of classifiers also stratified by class; a scikit-learn splitter, which
        gets the task labels as ``groups`` (so that ``GroupKFold`` leaves out tasks); an iterable of (train, test) row
        numbers; a mapping from task to group, whose groups of tasks are left out in turn; or one task left out at a time.
        In the wide form the cells of a row stay together, unless tasks are left out. A task without training rows is
        predicted with the average of the others.
    rule : "min" or "one_se"
        The smallest mean error over the folds, or the largest penalty within one standard error of it.
    criterion : "cv", "bic" or "ebic"
        Folds, or an information criterion on all data (then ``cv`` and ``rule`` are not used).
    ebic_gamma : float in [0, 1]
        Weight of the number of candidate features in EBIC.
    refit : bool
        Fit the selected coefficients once more without their penalty, in the folds too.
    mean_strength, mean_penalty : float or None
        Ridge on w_0, and weight of its 1-norm; None chooses: the ridge in steps of ten from a tenth of the default of
        `MixedNormRegressor`, the weight among 0 and two shares of the smallest at which w_0 is zero.
    tol : float
        Duality gap of the path and of the final fit; fits in the folds are solved to 1e-5 where that is larger.
    random_state : int or None
        Seed that shuffles rows before they are dealt out to folds; None keeps their order.
    n_jobs : int or None
        Threads over folds and candidates; the result does not depend on it.

    Attributes
    ----------
    penalty_strength_, norm_q_, ridge_ : float
        What was chosen.
    shared_mean_ : bool
        Whether there is a shared mean.
    mean_strength_, mean_penalty_ : float or None
        Ridge and weight of the 1-norm that were chosen with a shared mean.
    path_ : MixedNormPath
        Fits on all data at every penalty, for the chosen norm.
    cv_results_ : dict of arrays
        One row per candidate (each ``norm_q`` with each ``ridge``, without and with a shared mean), NaN after the end of
        its grid: ``norm_q``, ``ridge``, ``shared_mean`` and ``mean_strength`` (c,), ``penalties`` (c, k); with folds
        ``mean_error`` and ``standard_error`` (c, k) and ``fold_errors`` (c, k, n_folds); else ``criterion`` and
        ``degrees_of_freedom`` (c, k).
    mean_results_ : dict of arrays, or None
        What was compared for a shared mean: ``mean_strength``, ``mean_penalty`` and ``error`` (c,). All but the best two
        were fitted on two folds only: their error is that of the one chosen, plus the difference to it on these.

    References
    ----------
    Obozinski, Taskar, Jordan (2006), Multi-task feature selection. Breiman, Friedman, Olshen, Stone (1984),
    Classification and regression trees. Chen, Chen (2008), Extended Bayesian information criteria.
    """

    _saved_attributes: ClassVar[tuple[str, ...]]
    _saved_attributes = ("norm_q_", "ridge_", "shared_mean_", "path_", "cv_results_", "mean_results_")
    _numbers = ("task_sparsity", "tol", "max_iter", "mean_strength", "mean_penalty")  # norm_q and ridge may be lists

    norm_q: Any = 2  # one or several
    ridge: Any = field(default=0.0, kw_only=True)  # one or several
    shared_mean: Any = field(default=False, kw_only=True)  # one or both
    mean_penalty: float | None = field(default=None, kw_only=True)  # None: chosen
    penalty_strength: None = field(init=False, default=None)  # chosen, not given
    n_penalties: int = 100
    penalty_ratio: float = 1e-3
    penalties: ArrayLike | None = None
    cv: Any = None
    rule: str = "min"
    criterion: str = "cv"
    ebic_gamma: float = 0.5
    random_state: int | None = None
    n_jobs: int | None = None

    def _check_parameters(self) -> None:
        choices = self.shared_mean if isinstance(self.shared_mean, list | tuple) else [self.shared_mean]
        truth = len(choices) > 0 and all(isinstance(choice, bool | np.bool_) for choice in choices)
        self._require("shared_mean", truth, "True, False, or [False, True] to leave it to the folds")
        super()._check_parameters()
        check_choice("rule", self.rule, ("min", "one_se"))
        check_choice("criterion", self.criterion, ("cv", "bic", "ebic"))
        if self.random_state is not None and not isinstance(self.random_state, int | np.integer):
            raise ValueError(f"random_state is {self.random_state!r}; pass a whole number, or None to keep the order")
        if self.criterion == "cv":
            return
        family = find_family(self.loss)
        if not family.offers("log_density") or family.targets == "survival":
            raise ValueError(f"criterion is {self.criterion!r}, but loss={self.loss!r} has no likelihood; use 'cv'")
        if self._may_share_mean:
            raise ValueError(f"criterion is {self.criterion!r}, which does not count a shared mean; use 'cv'")
        if not 0 <= self.ebic_gamma <= 1:
            raise ValueError(f"ebic_gamma is {self.ebic_gamma}; pass a number from 0 to 1, such as 0.5")

    @property
    def _may_share_mean(self) -> bool:
        return bool(np.any(self.shared_mean))

    def _several(self, name: str) -> list[float]:
        """Values of a parameter that is one number or a list of them."""
        values = np.atleast_1d(np.asarray(getattr(self, name), dtype=np.float64))
        if values.ndim != 1 or len(values) == 0:
            least = 1 if name == "norm_q" else 0
            raise ValueError(
                f"{name} is {getattr(self, name)!r}; pass one number of at least {least}, or a list of them"
            )
        return values.tolist()

    def fit(
        self,
        X: Any,
        y: Any = None,
        tasks: Any = None,
        sample_weight: Any = None,
        *,
        exposure: Any = None,
        offset: Any = None,
    ) -> Self:
        """Choose the penalty and fit all tasks together.

        Parameters
        ----------
        X, y, tasks, sample_weight, exposure, offset : as in `MixedNormRegressor.fit`
        """
        with unchanged_on_error(self):
            data = self.training_data(X, y, tasks, sample_weight, exposure, offset)
            with threads_that_pay(data.system_operations):
                model, penalty = self._choose(data, _n_rows(X), y)
                self._fit_as(model, self._filled(data), penalty)
        return self

    def _choose(self, data: TaskData, n_rows: int | None, target: Any) -> tuple[Self, float]:
        """Fit the paths, compare them, set what is known of them, and return the best model and its penalty."""
        grid = read_penalties(self.penalties, self.n_penalties, self.penalty_ratio)
        folds = self._folds(data, n_rows, target) if self.criterion == "cv" else []
        models = self._candidates(data, folds)
        whole = self._filled(data)  # folds fill their gaps from their own training rows
        paths = [path_of(whole, model, grid, self.progress) for model in models]
        results: dict[str, Any] = {
            "norm_q": np.array([model.norm_q for model in models]),
            "ridge": np.array([model.ridge for model in models]),
            "shared_mean": np.array([model.shared_mean for model in models]),
            "mean_strength": np.array([model.mean_strength or np.nan for model in models]),
            "penalties": _padded([path.penalties for path in paths]),
        }
        if self.criterion == "cv":
            candidates = [(model, path.penalties) for model, path in zip(models, paths, strict=True)]
            results |= self._errors(data, candidates, folds)
            margin = results["standard_error"] if self.rule == "one_se" else None
            best, place = choose(results["penalties"], results["mean_error"], margin)
        else:
            gamma = self.ebic_gamma if self.criterion == "ebic" else 0.0
            found = [information_criterion(whole, path, self, gamma) for path in paths]
            results["criterion"], results["degrees_of_freedom"] = map(_padded, zip(*found, strict=True))
            best, place = choose(results["penalties"], results["criterion"])
        self.path_ = paths[best]
        warn_if_not_converged(self.path_.converged, "penalties of the path", self.tol)
        self.cv_results_ = results
        model = models[best]
        self.norm_q_, self.ridge_, self.shared_mean_ = model.norm_q, model.ridge, model.shared_mean
        if not model.shared_mean and hasattr(self, "mean_coef_"):
            del self.mean_coef_  # of an earlier fit
        on_mean = (model.mean_strength, model.mean_penalty) if model.shared_mean else (None, None)
        self.mean_strength_, self.mean_penalty_ = on_mean
        return model, float(self.path_.penalties[place])

    def _candidates(self, data: TaskData, folds: list[Fold]) -> list[Self]:
        """Every norm with every ridge; a shared mean under the penalty on it that suits the first of them best."""
        self.mean_results_: dict[str, FloatArray] | None = None
        pairs = product(self._several("norm_q"), self._several("ridge"))
        plain = [replace(self, norm_q=norm_q, ridge=ridge, shared_mean=False, cv=None) for norm_q, ridge in pairs]
        if not self._may_share_mean:
            return plain
        strength, penalty = self._choose_mean(data, replace(plain[0], shared_mean=True), folds)
        around_mean: dict[str, Any] = {"shared_mean": True, "mean_strength": strength, "mean_penalty": penalty}
        return [*([] if np.all(self.shared_mean) else plain), *(replace(model, **around_mean) for model in plain)]

    def _choose_mean(self, data: TaskData, model: Self, folds: list[Fold]) -> tuple[float, float]:
        """Ridge on the shared mean and weight of its 1-norm, where they are not given."""
        problem = scaled_problem(self._filled(data), model)
        strengths, weights = [self.mean_strength or 0.0], [self.mean_penalty or 0.0]
        if self.mean_strength is None:
            smallest = SMALLEST_RIDGE * shared_mean.default_mean_strength(problem, model.standardize)
            n_steps = math.log(LARGEST_RIDGE * data.n_features / SMALLEST_RIDGE, RIDGE_STEP)
            strengths = [smallest * RIDGE_STEP**step for step in range(int(n_steps) + 1)]
        if self.mean_penalty is None and MANY_FEATURES * data.n_features > data.n_observations:
            largest = shared_mean.largest_mean_penalty(problem)
            weights += [share * largest for share in MEAN_PENALTIES]
        if len(strengths) * len(weights) == 1:
            return strengths[0], weights[0]
        compared = ComparedMeans()
        few = folds[:FIRST_FOLDS]
        for strength in reversed(strengths):  # small ridges take longest, and are of no use once the error rises
            self._compare_means(data, model, few, [(strength, weights[0])], compared)
            found = compared.errors()
            if found[strength, weights[0]] > min(found.values()):
                break
        best = min(found, key=found.__getitem__)[0]
        rest = [(strength, weight) for strength in dict.fromkeys((best, strengths[0])) for weight in weights[1:]]
        self._compare_means(data, model, few, rest, compared)
        found = compared.errors()
        if len(few) < len(folds) and len(found) > 1:
            finalists = sorted(found, key=found.__getitem__)[:FINALISTS]
            self._compare_means(data, model, folds[FIRST_FOLDS:], finalists, compared)
            final = {pair: error for pair, error in compared.errors().items() if pair in finalists}
            winner = min(final, key=final.__getitem__)
            # the others on the same scale: their distance from the winner on the first folds
            found = {pair: final[winner] + error - found[winner] for pair, error in found.items()} | final
        tried = np.array(list(found))
        errors = np.array(list(found.values()))
        self.mean_results_ = {"mean_strength": tried[:, 0], "mean_penalty": tried[:, 1], "error": errors}
        return min(found, key=found.__getitem__)

    def _compare_means(
        self, data: TaskData, model: Self, folds: list[Fold], tried: list[MeanPair], compared: ComparedMeans
    ) -> None:
        """Add the errors, on more folds, of every ridge with its weight of the 1-norm on the mean."""
        model = replace(model, tol=max(self.tol, COARSE_TOL))
        models = [replace(model, mean_strength=ridge, mean_penalty=weight) for ridge, weight in tried]
        for pair, each in zip(tried, models, strict=True):
            if pair not in compared.grids:
                compared.grids[pair] = self._coarse_penalties(data, each)
        candidates = [(each, compared.grids[pair]) for pair, each in zip(tried, models, strict=True)]
        found = cross_validate(data, folds, candidates, self.n_jobs, self.progress) if candidates else []
        for pair, by_fold in zip(tried, found, strict=True):
            compared.by_fold.setdefault(pair, []).extend(error for error, _ in by_fold)

    def _coarse_penalties(self, data: TaskData, model: Self) -> FloatArray:
        """Few penalties: of an automatic grid, or of the user's."""
        if self.penalties is None:
            return automatic_penalties(self._filled(data), model, COARSE_GRID)
        given = np.sort(np.asarray(self.penalties, dtype=np.float64))
        return given[np.unique(np.linspace(0, len(given) - 1, COARSE_GRID[0]).astype(int))]

    def _folds(self, data: TaskData, n_rows: int | None, target: Any) -> list[Fold]:
        within = hasattr(self, "classes_") and len(data.task_names) != len(self.tasks_)
        if leaves_tasks_out(self.cv) and (self._form == "classes" or within):
            raise ValueError(
                f"cv={self.cv!r} leaves out tasks, but y has several classes in one task; pass a number of folds"
            )
        by_class = hasattr(self, "classes_")
        return make_folds(
            data, self.cv, n_rows=n_rows, target=target, by_class=by_class, random_state=self.random_state
        )

    def _errors(self, data: TaskData, candidates: list[Candidate], folds: list[Fold]) -> dict[str, FloatArray]:
        found = cross_validate(data, folds, candidates, self.n_jobs, self.progress)
        converged = np.concatenate([converged for candidate in found for _, converged in candidate])
        warn_if_not_converged(converged, "fits in the folds", self.tol)
        by_candidate = [np.stack([errors for errors, _ in candidate], axis=1) for candidate in found]
        return {
            "mean_error": _padded([errors.mean(axis=1) for errors in by_candidate]),
            "standard_error": _padded([standard_error(errors) for errors in by_candidate]),
            "fold_errors": _padded(by_candidate),
        }

    def _plain_params(self) -> dict[str, Any]:
        return super()._plain_params() | {"cv": self.cv if self._cv_is_plain() else repr(self.cv)}

    def _saved_params(self) -> dict[str, Any]:
        return super()._saved_params() | {"cv": self.cv if self._cv_is_plain() else None}

    def _saved_fit(self) -> dict[str, Any]:
        return super()._saved_fit() | {"path_": dict(vars(self.path_))}

    def _cv_is_plain(self) -> bool:
        """Whether a file may keep ``cv``: a splitter is code, which no file brings, and comes back as None."""
        return self.cv is None or isinstance(self.cv, int | np.integer | str | list | tuple | dict)

    @classmethod
    def from_stored(cls, stored: persistence.StoredFile) -> Self:
        """Rebuild a fitted estimator from what `save` wrote."""
        self = super().from_stored(stored)
        self.path_ = MixedNormPath(**vars(self)["path_"])
        return self


def _n_rows(X: Any) -> int | None:
    """Rows of the user's input; `TaskData` do not know rows without an observation."""
    if isinstance(X, TaskData):
        return None
    return int(X.shape[0] if hasattr(X, "shape") else np.asarray(X).shape[0])


def _padded(arrays: Sequence[Any]) -> FloatArray:
    """Arrays of different lengths as one, NaN where one of them has ended."""
    longest = max(len(array) for array in arrays)
    result = np.full((len(arrays), longest, *arrays[0].shape[1:]), np.nan)
    for place, array in enumerate(arrays):
        result[place, : len(array)] = array
    return result


@estimator_class()
class MixedNormRegressorCV(MixedNormCV, MixedNormRegressor):
    """Multi-task regression with an l1,q penalty whose strength is chosen from the data.

    Examples
    --------
    >>> from bayesmtfs import simulate_tasks
    >>> from bayesmtfs.estimators.penalised_cv import MixedNormRegressorCV
    >>> sim = simulate_tasks(n_tasks=4, n_features=20, n_relevant=3, n_samples=40, random_state=0)
    >>> model = MixedNormRegressorCV(n_penalties=20, rule="one_se", cv=3).fit(sim.X, sim.y, tasks=sim.tasks)
    >>> bool(model.get_support()[sim.support].all()), model.cv_results_["fold_errors"].shape[2]
    (True, 3)
    """

    _fits_moments = False


@estimator_class()
class MixedNormClassifierCV(MixedNormCV, MixedNormClassifier):
    """Multi-task classification with an l1,q penalty whose strength is chosen from the data.

    Several classes become one-versus-rest tasks over one design, as in `MixedNormClassifier`.

    Examples
    --------
    >>> from bayesmtfs import simulate_tasks
    >>> from bayesmtfs.estimators.penalised_cv import MixedNormClassifierCV
    >>> sim = simulate_tasks(n_tasks=3, n_features=9, n_relevant=2, n_samples=60, kind="classification", random_state=0)
    >>> model = MixedNormClassifierCV(criterion="ebic", n_penalties=10).fit(sim.X, sim.y, tasks=sim.tasks)
    >>> bool(model.get_support()[sim.support].all()), sorted(model.cv_results_)[:2]
    (True, ['criterion', 'degrees_of_freedom'])
    """

    loss: str | Family = "logistic"


@estimator_class()
class MixedNormSurvivalCV(MixedNormCV, MixedNormSurvival):
    """Multi-task Cox regression with an l1,q penalty whose strength is chosen by cross-validation.

    The error of a fold is minus the log of the partial likelihood of the rows that it holds out, over their number.
    """

    loss: str | Family = "cox"
    fit_intercept: bool = field(default=False, kw_only=True)
