r"""Projection-predictive selection for several tasks: the fewest features that predict as well as the whole posterior.

The posterior of all features is the reference. Features enter one after the other, for all tasks together, the
reference is projected draw by draw onto each of the nested submodels (`bayesmtfs.selection.submodels`), and the loss of
a submodel is what it predicts worse than the reference,

    loss_k = elpd(reference) - elpd(submodel of k features).

For every observation, the expected log predictive density of a submodel that has not seen it is

    leave-one-out   ln sum_s r_is p(y_i | theta_s),  r_is the Pareto-smoothed importance weights of the reference
                    (Vehtari, Gelman and Gabry 2017, Statistics and Computing 27, section 2.1),
    held out        ln (1 / S) sum_s p(y_i | theta_s),  theta_s projected draws of a reference fitted without i.

A projection does not look at y, so that the weights of the reference serve its submodels too. The standard error of a
loss is that of a sum over the rows of the user's input: the cells of one row of the wide form count as one, since their
noise may go together. The smallest adequate submodel is the first one with ``loss_k <= se_k``: its loss cannot be told
from zero at one standard error.

The method is that of Piironen, Paasiniemi and Vehtari (2020, EJS 14, 2155-2197); new here is that a submodel keeps a
feature in all tasks or in none, with coefficients of its own in every task.

The loss is optimistic where the data that assess the submodels have also chosen them. With ``cv`` the reference is
fitted again without each fold, and screening, search and projection are repeated there: choice and assessment are
apart. Without it, observations are left out by importance weights, for the reference and the projections but not for
the search: cheap and usually close, but with many features and few rows the size can be off, and mostly is too large
where features were screened on the same rows.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from threadpoolctl import threadpool_limits

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.estimators.folds import Fold, input_rows, leaves_tasks_out, make_folds, take
from bayesmtfs.families import Family
from bayesmtfs.progress import Progress
from bayesmtfs.results.tables import Backend, as_frame, listed
from bayesmtfs.selection.draws import CoefficientDraws, family_of, read_data, read_draws, with_sampled_features
from bayesmtfs.selection.stability import silent_clone
from bayesmtfs.selection.submodels import (
    Submodel,
    check_can_be_projected,
    feature_blocks,
    forward_search,
    log_densities,
    nested_submodels,
    project,
    reference_model,
    reference_of,
    task_log_densities,
)
from bayesmtfs.types import FloatArray, IntArray, SelectionWarning, warn

MOST_FEATURES = 50  # in a search, where the user names no number
FEWEST_DRAWS = 20
MOST_UNRELIABLE = 0.05  # share of observations with a large Pareto k above which leave-one-out is not to be trusted


class PredictiveLoss(NamedTuple):
    """Loss of nested submodels; entry k has k features."""

    difference: FloatArray  # (sizes,) elpd of the reference minus that of the submodel
    standard_error: FloatArray  # (sizes,) of the difference
    elpd: FloatArray  # (sizes,)
    elpd_reference: float


def leave_one_out(log_density: FloatArray, weight: FloatArray, kept: IntArray) -> tuple[FloatArray, FloatArray]:
    """Pareto-smoothed importance weights from log-densities (S, N) under every draw of the reference.

    Leaving an observation out divides by its density to the power of its sample weight (N,). Returns the normalised
    log-weights (kept, N) of the draws with the numbers ``kept``, and the shape (N,) of the tail of all weights.
    """
    # ArviZ takes longer to load than all that this package does without draws
    from arviz_stats.base.array import array_stats

    smooth: Any = array_stats.psislw
    log_weights, pareto_k = smooth((weight * log_density).T)
    chosen = np.ascontiguousarray(log_weights.T[kept])
    return chosen - np.asarray(logsumexp(chosen, axis=0)), np.asarray(pareto_k)


def predictive_density(log_density: FloatArray, log_weights: FloatArray | None = None) -> FloatArray:
    """(N,) Predictive densities (S, N) averaged over draws, with normalised weights (None: the same for all draws)."""
    if log_weights is None:
        return np.asarray(logsumexp(log_density, axis=0)) - math.log(len(log_density))
    return np.asarray(logsumexp(log_density + log_weights, axis=0))


def unreliable_share(pareto_k: FloatArray, n_draws: int) -> float:
    """Share of the observations whose weights are too uneven for so many draws (Vehtari et al. 2024, JMLR 25)."""
    return float(np.mean(pareto_k > min(1.0 - 1.0 / math.log10(n_draws), 0.7)))


def loss_of_submodels(
    submodels: FloatArray, reference: FloatArray, weight: FloatArray, row: IntArray
) -> PredictiveLoss:
    """Sum log predictive densities, (sizes, N) and (N,), with the standard error of their difference.

    ``row`` (N,) is the row of the user's input that each observation belongs to.
    """
    _, unit = np.unique(row, return_inverse=True)
    lost = weight * (reference - submodels)
    by_row = np.stack([np.bincount(unit, weights=each) for each in lost])
    n = by_row.shape[1]
    spread = by_row.std(axis=1, ddof=1) if n > 1 else np.full(len(by_row), np.inf)
    return PredictiveLoss(lost.sum(axis=1), math.sqrt(n) * spread, submodels @ weight, float(reference @ weight))


def smallest_adequate(loss: PredictiveLoss) -> int | None:
    """Fewest features whose loss is at most one standard error; None where no submodel is so good."""
    # a submodel that is the reference itself differs from it by rounding error only
    slack = 1e-9 * max(1.0, abs(loss.elpd_reference))
    enough = np.flatnonzero(loss.difference <= loss.standard_error + slack)
    return int(enough[0]) if len(enough) else None


@dataclass(frozen=True, eq=False, repr=False)
class ProjectionSelection:
    """Submodels along the search path; entry k of every array of sizes has k features (or groups).

    Attributes
    ----------
    path : (steps,) names in the order in which they enter; those of a group joined by " + "
    steps : numbers of the features that each step adds
    loss : (steps + 1,) what a submodel predicts worse than the reference, in elpd; smaller is better
    se : (steps + 1,) standard error of the loss
    elpd : (steps + 1,) expected log predictive density of the submodels
    elpd_reference : float
    divergence : (steps + 1,) mean Kullback-Leibler divergence of the projected draws from the reference
    fold_share : (steps,) or None
        With ``cv``, share of the folds in which what enters at step k is among the first k + 1.
    size : number of steps of the smallest adequate submodel
    submodel : the projected draws of that size
    method : "cross-validation" or "leave-one-out"
    feature_names : (p,)
    tasks : (n_tasks,) labels
    """

    path: NDArray[np.str_]
    steps: tuple[IntArray, ...]
    loss: FloatArray
    se: FloatArray
    elpd: FloatArray
    elpd_reference: float
    divergence: FloatArray
    fold_share: FloatArray | None
    size: int
    submodel: Submodel
    method: str
    feature_names: NDArray[np.str_]
    tasks: NDArray[Any]

    @property
    def features(self) -> NDArray[np.str_]:
        """Names of the features of the smallest adequate submodel, in the order in which they enter."""
        return self.feature_names[self.submodel.features]

    @property
    def coef(self) -> FloatArray:
        """(n_tasks, p) Posterior mean of the projected coefficients, zeros for features that are left out."""
        W = np.zeros((len(self.tasks), len(self.feature_names)))
        W[:, self.submodel.features] = self.submodel.coef.mean(axis=0).T
        return W

    @property
    def intercept(self) -> FloatArray:
        """(n_tasks,) Posterior mean of the projected intercepts."""
        return self.submodel.intercept.mean(axis=0)

    def get_support(self, indices: bool = False) -> Any:
        """Features of the smallest adequate submodel, as a mask or (``indices``) as numbers."""
        chosen = np.zeros(len(self.feature_names), dtype=bool)
        chosen[self.submodel.features] = True
        return np.flatnonzero(chosen) if indices else chosen

    def to_frame(self, backend: Backend = "pandas") -> Any:
        """One row per size, from no feature on, as a frame of ``backend`` ("pandas" or "polars")."""
        columns: dict[str, NDArray[Any]] = {
            "size": np.arange(len(self.loss)),
            "feature": np.concatenate([["(none)"], self.path]),
            "loss": self.loss,
            "se": self.se,
            "elpd": self.elpd,
            "divergence": self.divergence,
            "chosen": np.arange(len(self.loss)) <= self.size,
        }
        if self.fold_share is not None:
            columns["fold_share"] = np.concatenate([[1.0], self.fold_share])
        return as_frame(columns, backend)

    def summary(self) -> str:
        """What was chosen and how much it loses, in words."""
        shown = listed(self.path[: self.size].tolist(), 10)
        apart = (
            "Search and assessment are apart: both were repeated without each fold."
            if self.fold_share is not None
            else "The search has seen all rows, so that the loss is a little too small; pass cv to repeat it."
        )
        return (
            f"{len(self.features)} of {len(self.feature_names)} features predict as well as all of them"
            f"{': ' + shown if shown else ''}.\nTheir loss against the whole posterior is {self.loss[self.size]:.3g} "
            f"(standard error {self.se[self.size]:.2g}) by {self.method}; no feature at all loses {self.loss[0]:.3g}.\n"
            f"{apart}"
        )

    def __repr__(self) -> str:
        shown = ", ".join(self.path[: min(self.size, 6)]) + (", ..." if self.size > 6 else "")
        return (
            f"ProjectionSelection({len(self.features)} of {len(self.feature_names)} features"
            f"{': ' + shown if shown else ''}; loss {self.loss[self.size]:.3g} +- {self.se[self.size]:.2g} by "
            f"{self.method})"
        )


def projection_selection(
    posterior: Any,
    X: Any,
    y: Any = None,
    tasks: Any = None,
    *,
    sample_weight: Any = None,
    loss: str | Family | None = None,
    cv: Any = None,
    max_features: int | None = None,
    n_draws: int = 400,
    progress: bool | None = None,
) -> ProjectionSelection:
    """Find the fewest features that predict as well as the posterior of all of them.

    Parameters
    ----------
    posterior : a fitted Bayesian estimator, its `FitResult`, or a DataTree in ArviZ form
    X, y, tasks, sample_weight : the data of the fit, in any form that ``fit`` takes
    loss : name or family; None: of the estimator, else squared where the posterior has ``noise`` and logistic where not
        Squared loss, or a smooth loss of labels or counts with a mean and a log-density.
    cv : None, number of folds, splitter or (train, test) rows
        Fit the estimator again without each fold, and search and assess there; this needs the estimator, and as many
        fits as folds. None: importance weights leave one observation out at a time, without a new fit; the search is
        then not repeated.
    max_features : most features (or groups) that enter; None: all, up to 50
    n_draws : most draws that are projected, evenly spaced over the chains (importance weights come from all draws)
    progress : bar: always, never, or (None) for long work on a terminal

    Examples
    --------
    The posterior of a regression with a flat prior and known noise, drawn directly:

    >>> import numpy as np
    >>> import xarray as xr
    >>> from bayesmtfs.selection import projection_selection
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((100, 6))
    >>> y = X @ np.array([1.0, 0.0, -0.7, 0.0, 0.0, 0.0]) + 0.5 * rng.standard_normal(100)
    >>> precision = X.T @ X / 0.25
    >>> W = rng.multivariate_normal(np.linalg.solve(precision, X.T @ y / 0.25), np.linalg.inv(precision), 400)
    >>> variables = {"coef": (("chain", "draw", "feature", "task"), W[None, :, :, None])}
    >>> variables["noise"] = (("chain", "draw", "task"), np.full((1, 400, 1), 0.5))
    >>> found = projection_selection(xr.Dataset(variables), X, y)
    >>> found.features.tolist(), found.size
    (['x0', 'x2'], 2)
    """
    whole = read_draws(posterior)
    family = family_of(posterior, whole, loss)
    check_can_be_projected(family)
    every_feature = read_data(posterior, whole, family, X, y, tasks, sample_weight)
    if every_feature.eta_offset is not None:
        raise ValueError("projections do not know offsets; use `selection.effects` or `selection.discoveries`")
    data = with_sampled_features(every_feature, whole)
    if n_draws < FEWEST_DRAWS:
        raise ValueError(f"n_draws is {n_draws}; pass at least {FEWEST_DRAWS}, 400 is usual")
    n_steps = _number_of_steps(max_features, len(feature_blocks(data)))
    kept_draws = whole.evenly_spaced(n_draws)
    draws = whole.chosen(kept_draws)
    folds = None if cv is None else _folds(posterior, data, cv, family)
    # many small products: threads would only wait for each other
    with Progress("projection", progress) as work, threadpool_limits(1):
        log_weights, unreliable = _weights(data, whole, kept_draws, family)
        full = _along_the_path(data, draws, family, n_steps, data, log_weights=log_weights, work=work)
        parts = [full] if folds is None else []
        for number, fold in enumerate(folds or ()):
            parts.append(_left_out_in_truth(posterior, every_feature, fold, family, n_steps, n_draws))
            work.check()
            work.update((number + 1) / len(folds or ()), f"{number + 1} of {len(folds or ())} folds")
    work.check()
    if folds is None and unreliable > MOST_UNRELIABLE:
        warn(
            f"the importance weights of {unreliable:.0%} of the observations are too uneven to leave these out; pass "
            "cv to fit without them, or more draws",
            SelectionWarning,
        )
    found = _total(parts, data, folds, len(full.steps))
    size = _chosen_size(found, len(full.steps))
    kept = np.concatenate([np.empty(0, dtype=np.int64), *full.steps[:size]])
    entered = [draws.positions[step] for step in full.steps]
    submodel = project(data, reference_of(data, draws, family), kept)
    return ProjectionSelection(
        path=np.array([" + ".join(data.feature_names[step]) for step in full.steps], dtype=np.str_),
        steps=tuple(entered),
        loss=found.difference,
        se=found.standard_error,
        elpd=found.elpd,
        elpd_reference=found.elpd_reference,
        divergence=full.divergence,
        fold_share=None if folds is None else _fold_share(entered, [part.steps for part in parts]),
        size=size,
        submodel=submodel._replace(features=draws.positions[kept]),
        method="leave-one-out" if folds is None else "cross-validation",
        feature_names=draws.feature_names,
        tasks=draws.task_names,
    )


class _Assessed(NamedTuple):
    """Log predictive densities of nested submodels for some observations."""

    steps: list[IntArray]
    submodels: FloatArray  # (steps + 1, N')
    reference: FloatArray  # (N',)
    divergence: FloatArray  # (steps + 1,)


def _along_the_path(
    train: TaskData,
    draws: CoefficientDraws,
    family: Family,
    n_steps: int,
    test: TaskData,
    tasks: IntArray | None = None,
    log_weights: FloatArray | None = None,
    work: Progress | None = None,
) -> _Assessed:
    """Search and project on the training rows, and predict the test rows with every submodel and with the reference.

    ``tasks`` are the numbers of the tasks of the test rows (None: the same).
    """

    def density(model: Submodel) -> FloatArray:
        return predictive_density(log_densities(test, model, tasks), log_weights)

    reference = reference_of(train, draws, family)
    steps = forward_search(train, reference, n_steps).steps
    submodels, divergence = [], []
    for number, model in enumerate(nested_submodels(train, reference, steps)):
        submodels.append(density(model))
        divergence.append(float(model.divergence.mean()))
        if work is not None:
            work.update(number / (len(steps) + 1), f"{number} features")
    # the same draws for the reference: only then is its chance the same and cancels in the loss
    return _Assessed(steps, np.stack(submodels), density(reference_model(draws, family)), np.array(divergence))


def _weights(data: TaskData, whole: CoefficientDraws, kept: IntArray, family: Family) -> tuple[FloatArray, float]:
    """(kept, N) Weights from all draws, normalised over those that are kept, and the share that they do not work for."""
    model = reference_model(whole, family)
    weights, pareto_k = np.empty((len(kept), data.n_observations)), np.empty(data.n_observations)
    for t, (start, stop) in enumerate(data.spans):  # task by task: all draws of all observations can be large
        left_out = leave_one_out(task_log_densities(data, t, model, t), data.weight[start:stop], kept)
        weights[:, start:stop], pareto_k[start:stop] = left_out
    return weights, unreliable_share(pareto_k, len(whole.coef))


def _left_out_in_truth(
    posterior: Any, data: TaskData, fold: Fold, family: Family, n_steps: int, n_draws: int
) -> _Assessed:
    """Fit without a fold, search and project there, and assess on the fold."""
    rows, test_rows = take(data, fold.train).data, take(data, fold.test)
    whole = read_draws(silent_clone(posterior).fit(rows))
    draws = whole.chosen(whole.evenly_spaced(n_draws))
    train, test = with_sampled_features(rows, draws), with_sampled_features(test_rows.data, draws)

    found = _along_the_path(train, draws, family, n_steps, test, test_rows.tasks)
    return found._replace(steps=[draws.positions[step] for step in found.steps])


def _folds(posterior: Any, data: TaskData, cv: Any, family: Family) -> list[Fold]:
    if not (hasattr(posterior, "fit") and hasattr(posterior, "get_params")):
        raise ValueError(
            f"cv is {cv!r} but posterior is a {type(posterior).__name__}, which cannot be fitted again without a fold; "
            "pass the fitted estimator, or leave cv out to use importance weights"
        )
    if leaves_tasks_out(cv):
        raise ValueError("cv leaves out whole tasks, for which submodels have no coefficients; pass folds of rows")
    folds = make_folds(data, cv, by_class=family.targets == "labels")
    for fold in folds:
        counts = np.bincount(data.task[fold.train], minlength=data.n_tasks)
        if counts.min() == 0:
            task = data.task_names.tolist()[int(counts.argmin())]
            raise ValueError(
                f"cv has a fold that holds all rows of task {task!r}, so that nothing is left to fit it; pass fewer "
                "folds, or drop the task"
            )
    return folds


def _total(parts: list[_Assessed], data: TaskData, folds: list[Fold] | None, n_steps: int) -> PredictiveLoss:
    """Loss over all observations that were assessed, averaged where one was in several folds."""
    row = input_rows(data)
    if folds is None:
        return loss_of_submodels(parts[0].submodels, parts[0].reference, data.weight, row)
    submodels, reference = np.zeros((n_steps + 1, data.n_observations)), np.zeros(data.n_observations)
    times = np.zeros(data.n_observations)
    for part, fold in zip(parts, folds, strict=True):
        # a search that ended early has nothing left to explain: its last submodel stands for the larger ones
        size = np.minimum(np.arange(n_steps + 1), len(part.steps))
        submodels[:, fold.test] += part.submodels[size]
        reference[fold.test] += part.reference
        times[fold.test] += 1
    seen = times > 0
    submodels, reference = submodels[:, seen] / times[seen], reference[seen] / times[seen]
    return loss_of_submodels(submodels, reference, data.weight[seen], row[seen])


def _fold_share(steps: list[IntArray], others: list[list[IntArray]]) -> FloatArray:
    """(steps,) Share of the folds whose first k + 1 steps hold what enters at step k."""
    entered = [
        [any(np.array_equal(step, other) for other in path[: k + 1]) for path in others] for k, step in enumerate(steps)
    ]
    return np.array(entered, dtype=np.float64).reshape(len(steps), -1).mean(axis=1)


def _number_of_steps(max_features: int | None, n_blocks: int) -> int:
    if max_features is None:
        return min(n_blocks, MOST_FEATURES)
    if not 1 <= max_features <= n_blocks:
        raise ValueError(
            f"max_features is {max_features}; pass a whole number between 1 and {n_blocks}, the number of features or "
            "groups"
        )
    return int(max_features)


def _chosen_size(loss: PredictiveLoss, n_steps: int) -> int:
    size = smallest_adequate(loss)
    if size is None:
        warn(
            f"none of the submodels of up to {n_steps} features predicts as well as the reference (the best loses "
            f"{loss.difference.min():.3g}); the largest is given, raise max_features",
            SelectionWarning,
        )
        return n_steps
    return size
