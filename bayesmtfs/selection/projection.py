r"""Projection-predictive selection for several tasks: the fewest features that predict as well as the whole posterior.

The posterior of all features is the reference. Features enter one after the other, for all tasks together
(`bayesmtfs.selection.projection_search`), the reference is projected draw by draw onto each of the nested submodels
(`bayesmtfs.selection.submodels`), and the loss of a submodel is what it predicts worse than the reference,

    loss_k = elpd(reference) - elpd(submodel of k features),

with its standard error (`bayesmtfs.selection.predictive_loss`). The smallest adequate submodel is the first one with
``loss_k <= se_k``: its loss cannot be told from zero at one standard error.

The method is that of Piironen, Paasiniemi and Vehtari (2020, EJS 14, 2155-2197); new here is that a submodel keeps a
feature in all tasks or in none, with coefficients of its own in every task.

The loss is optimistic where the data that judge the submodels have also chosen them. With ``cv`` the reference is
fitted again without each fold, and screening, search and projection are repeated there: choice and judgement are apart.
Without it, observations are left out by importance weights, for the reference and the projections but not for the
search: cheap and usually close, but with many features and few rows the size can be off, and mostly is too large where
features were screened on the same rows.
"""

import warnings
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.estimators.folds import Fold, input_rows, leaves_tasks_out, make_folds, take
from bayesmtfs.progress import Progress
from bayesmtfs.selection.draws import Draws, loss_of, read_data, read_draws, with_sampled_features
from bayesmtfs.selection.predictive_loss import (
    MOST_UNRELIABLE,
    Loss,
    leave_one_out,
    loss_of_submodels,
    predictive_density,
    smallest_adequate,
    unreliable_share,
)
from bayesmtfs.selection.projection_result import ProjectionSelection
from bayesmtfs.selection.projection_search import feature_blocks, forward_search
from bayesmtfs.selection.submodels import (
    log_densities,
    nested_submodels,
    project,
    reference_model,
    reference_of,
    task_log_densities,
)
from bayesmtfs.types import FloatArray, IntArray, SelectionWarning

MOST_FEATURES = 50  # in a search, where the user names no number
FEWEST_DRAWS = 20


class _Judged(NamedTuple):
    """Log predictive densities of nested submodels for some observations."""

    steps: list[IntArray]
    submodels: FloatArray  # (steps + 1, N')
    reference: FloatArray  # (N',)
    divergence: FloatArray  # (steps + 1,)
    unreliable: float = 0.0  # share of the observations that importance weights cannot leave out


def projection_selection(
    posterior: Any,
    X: Any,
    y: Any = None,
    tasks: Any = None,
    *,
    sample_weight: Any = None,
    loss: str | None = None,
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
    loss : "squared" or "logistic"; None: of the estimator, or logistic where the posterior has no ``noise``
    cv : None, number of folds, splitter or (train, test) rows
        Fit the estimator again without each fold, and search and judge there; this needs the estimator, and as many
        fits as folds. None: importance weights leave one observation out at a time, without a new fit; the search is
        then not repeated.
    max_features : most features (or groups) that enter; None: all, up to 50
    n_draws : most draws that are projected, evenly spaced over the chains (importance weights come from all draws)
    progress : bool or None
        Progress bar: always, never, or (None) for long work on a terminal.

    Returns
    -------
    ProjectionSelection

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
    loss = loss_of(posterior, whole, loss)
    every_feature = read_data(posterior, whole, loss, X, y, tasks, sample_weight)
    data = with_sampled_features(every_feature, whole)
    if n_draws < FEWEST_DRAWS:
        raise ValueError(f"n_draws is {n_draws}; pass at least {FEWEST_DRAWS}, 400 is usual")
    n_steps = _number_of_steps(max_features, len(feature_blocks(data)))
    kept_draws = whole.evenly_spaced(n_draws)
    draws = whole.chosen(kept_draws)
    folds = None if cv is None else _folds(posterior, data, cv, loss)
    # many small products: threads would only wait for each other
    with Progress("projection", progress) as bar, threadpool_limits(1):
        full = _judge(data, whole, kept_draws, loss, n_steps, bar)
        parts = [full] if folds is None else []
        for number, fold in enumerate(folds or ()):
            parts.append(_judge_fold(posterior, every_feature, fold, loss, n_steps, n_draws))
            bar.update((number + 1) / len(folds or ()), f"{number + 1} of {len(folds or ())} folds")
    if folds is None:
        _warn_of_weights(full.unreliable)
    found = _total(parts, data, folds, len(full.steps))
    size = _chosen_size(found, len(full.steps))
    kept = np.concatenate([np.empty(0, dtype=np.int64), *full.steps[:size]])
    entered = [draws.positions[step] for step in full.steps]
    submodel = project(data, reference_of(data, draws, loss), kept)
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


# ---------------------------------------------------------------------- one path


def _judge(data: TaskData, whole: Draws, kept: IntArray, loss: str, n_steps: int, bar: Progress) -> _Judged:
    """Search and project on all observations, and leave each one out by weights."""
    draws = whole.chosen(kept)
    reference = reference_of(data, draws, loss)
    steps = forward_search(data, reference, n_steps).steps
    log_weights, unreliable = _weights(data, whole, kept, loss)
    submodels, divergence = [], []
    for number, model in enumerate(nested_submodels(data, reference, steps)):
        submodels.append(predictive_density(log_densities(data, model), log_weights))
        divergence.append(float(model.divergence.mean()))
        bar.update(number / (len(steps) + 1), f"{number} features")
    # the same draws for the reference: only then is its chance the same and cancels in the loss
    densities = predictive_density(log_densities(data, reference_model(draws, loss)), log_weights)
    return _Judged(steps, np.stack(submodels), densities, np.array(divergence), unreliable)


def _weights(data: TaskData, whole: Draws, kept: IntArray, loss: str) -> tuple[FloatArray, float]:
    """(kept, N) Weights from all draws, and the share of observations for which they do not work."""
    model = reference_model(whole, loss)
    weights, pareto_k = np.empty((len(kept), data.n_observations)), np.empty(data.n_observations)
    for t, (start, stop) in enumerate(data.spans):  # task by task: all draws of all observations can be large
        left_out = leave_one_out(task_log_densities(data, t, model, t), data.weight[start:stop])
        weights[:, start:stop], pareto_k[start:stop] = left_out.of_draws(kept), left_out.pareto_k
    return weights, unreliable_share(pareto_k, len(whole.coef))


def _judge_fold(posterior: Any, data: TaskData, fold: Fold, loss: str, n_steps: int, n_draws: int) -> _Judged:
    """Fit without a fold, search and project there, and judge on the fold."""
    rows, test_rows = take(data, fold.train).data, take(data, fold.test)
    model = clone(posterior)
    if "progress" in model.get_params():
        model.set_params(progress=False)
    whole = read_draws(model.fit(rows))
    draws = whole.chosen(whole.evenly_spaced(n_draws))
    train, test = with_sampled_features(rows, draws), with_sampled_features(test_rows.data, draws)
    reference = reference_of(train, draws, loss)
    steps = forward_search(train, reference, n_steps).steps
    submodels, divergence = [], []
    for submodel in nested_submodels(train, reference, steps):
        submodels.append(predictive_density(log_densities(test, submodel, test_rows.tasks)))
        divergence.append(float(submodel.divergence.mean()))
    densities = predictive_density(log_densities(test, reference_model(draws, loss), test_rows.tasks))
    entered = [draws.positions[step] for step in steps]
    return _Judged(entered, np.stack(submodels), densities, np.array(divergence))


# ---------------------------------------------------------------------- all folds


def _folds(posterior: Any, data: TaskData, cv: Any, loss: str) -> list[Fold]:
    if not (hasattr(posterior, "fit") and hasattr(posterior, "get_params")):
        raise ValueError(
            f"cv is {cv!r} but posterior is a {type(posterior).__name__}, which cannot be fitted again without a fold; "
            "pass the fitted estimator, or leave cv out to use importance weights"
        )
    if leaves_tasks_out(cv):
        raise ValueError("cv leaves out whole tasks, for which submodels have no coefficients; pass folds of rows")
    folds = make_folds(data, cv, by_class=loss == "logistic")
    for fold in folds:
        counts = np.bincount(data.task[fold.train], minlength=data.n_tasks)
        if counts.min() == 0:
            task = data.task_names.tolist()[int(counts.argmin())]
            raise ValueError(
                f"cv has a fold that holds all rows of task {task!r}, so that nothing is left to fit it; pass fewer "
                "folds, or drop the task"
            )
    return folds


def _total(parts: list[_Judged], data: TaskData, folds: list[Fold] | None, n_steps: int) -> Loss:
    """Loss over all observations that were judged, averaged where one was in several folds."""
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
    shares = [
        np.mean([any(np.array_equal(step, other) for other in path[: k + 1]) for path in others])
        for k, step in enumerate(steps)
    ]
    return np.array(shares, dtype=np.float64)


# ---------------------------------------------------------------------- sizes


def _number_of_steps(max_features: int | None, n_blocks: int) -> int:
    if max_features is None:
        return min(n_blocks, MOST_FEATURES)
    if not 1 <= max_features <= n_blocks:
        raise ValueError(
            f"max_features is {max_features}; pass a whole number between 1 and {n_blocks}, the number of features or "
            "groups"
        )
    return int(max_features)


def _chosen_size(loss: Loss, n_steps: int) -> int:
    size = smallest_adequate(loss)
    if size is None:
        warnings.warn(
            f"none of the submodels of up to {n_steps} features predicts as well as the reference (the best loses "
            f"{loss.difference.min():.3g}); the largest is given, raise max_features",
            SelectionWarning,
            stacklevel=3,
        )
        return n_steps
    return size


def _warn_of_weights(unreliable: float) -> None:
    if unreliable > MOST_UNRELIABLE:
        warnings.warn(
            f"the importance weights of {unreliable:.0%} of the observations are too uneven to leave these out; pass "
            "cv to fit without them, or more draws",
            SelectionWarning,
            stacklevel=3,
        )
