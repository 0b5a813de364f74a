"""Coefficients along a sequence of penalty strengths.

    minimise  sum_t (1/n_t) sum_i loss(y_i, x_i' w_t + b_t) + penalty_k * sum_i ||w^i||_q      for k = 1, 2, ...

The objective is that of `bayesmtfs.estimators.penalised`; the warm starts, the grid and its early stop are those of
`bayesmtfs.convex.path` (Friedman, Hastie and Tibshirani 2010, section 2.5).
"""

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bayesmtfs.convex import shared_mean as shared_mean_solver
from bayesmtfs.convex.path import SolveSettings, largest_penalty, penalty_grid, solve_path
from bayesmtfs.convex.problem import Problem
from bayesmtfs.convex.refit import refit_selected
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.estimators.penalised import MixedNormClassifier, MixedNormEstimator, MixedNormRegressor
from bayesmtfs.estimators.survival import MixedNormSurvival
from bayesmtfs.families import Family, find_family
from bayesmtfs.priors.row_penalty import Penalty
from bayesmtfs.types import BoolArray, ConvergenceWarning, DataWarning, FloatArray, IntArray, LossScale, warn

Grid = tuple[int, float]  # number of automatic penalties, and the smallest as a share of the largest


@dataclass(frozen=True, eq=False, repr=False)
class MixedNormPath:
    """Penalised fits along a sequence of penalties; entry k of every array belongs to ``penalties[k]``.

    Attributes
    ----------
    penalties : (k,) strengths, in the order in which they were passed
    coefs : (k, n_tasks, n_features) coefficients in the user's units
    intercepts : (k, n_tasks) intercepts, zeros when not fitted
    objectives : (k,) objective at each solution
    gaps : (k,) bounds on how far each objective can be above its minimum
    converged : (k,) whether each gap is within the tolerance
    tasks : (n_tasks,) labels
    feature_names : (n_features,) names
    norm_q : norm within a row
    stop_reason : why an automatic grid was not solved to its end; empty where all penalties were solved
    """

    penalties: FloatArray
    coefs: FloatArray
    intercepts: FloatArray
    objectives: FloatArray
    gaps: FloatArray
    converged: BoolArray
    tasks: NDArray[Any]
    feature_names: NDArray[np.str_]
    norm_q: float
    stop_reason: str = ""

    @property
    def n_selected(self) -> IntArray:
        """(k,) Number of features with a non-zero coefficient in any task."""
        return np.asarray((self.coefs != 0).any(axis=1).sum(axis=1), dtype=np.int64)

    def __repr__(self) -> str:
        most, least = self.penalties.max(), self.penalties.min()
        stopped = f"; stopped early: {self.stop_reason}" if self.stop_reason else ""
        return (
            f"MixedNormPath({len(self.penalties)} penalties from {most:.3g} to {least:.3g}, {self.n_selected.min()} to "
            f"{self.n_selected.max()} of {self.coefs.shape[2]} features selected{stopped})"
        )


def problem_of(model: MixedNormEstimator, data: TaskData) -> Problem:
    """The problem of a model at penalty 0, for data that are scaled already."""
    return model._problem(data, 0.0)


def read_penalties(penalties: ArrayLike | None, n_penalties: int, ratio: float) -> FloatArray | Grid:
    """Penalties of the user as a fresh array, or the automatic grid."""
    if penalties is None:
        if n_penalties < 1:
            raise ValueError(f"n_penalties is {n_penalties}; pass a whole number of at least 1")
        if not 0 < ratio < 1:
            raise ValueError(f"penalty_ratio is {ratio}; pass a number between 0 and 1, such as 1e-3")
        return n_penalties, ratio
    strengths = np.array(penalties, dtype=np.float64, ndmin=1)
    if strengths.ndim != 1 or len(strengths) == 0:
        raise ValueError(f"penalties has shape {strengths.shape}; pass a list of at least one strength, or None")
    if not (np.isfinite(strengths) & (strengths >= 0)).all():
        raise ValueError("penalties has a negative, infinite or NaN entry; pass finite strengths of at least 0")
    return strengths


def path_of(
    data: TaskData, model: MixedNormEstimator, penalties: FloatArray | Grid, progress: bool | None = False
) -> MixedNormPath:
    """Fit data whose targets are numbers, or -1 and +1, along given penalties or an automatic grid."""
    scaling = model._rescaled(data)
    problem = problem_of(model, scaling.data)
    solving = _settings(model)
    automatic = isinstance(penalties, tuple)
    if isinstance(penalties, tuple):
        penalties = penalty_grid(largest_penalty(problem, solving), *penalties)
    path = solve_path(problem, penalties, solving, may_stop=automatic, progress=progress)
    solutions = path.solutions
    if model.refit:
        pairs = zip(path.penalties.tolist(), solutions, strict=True)
        solutions = [refit_selected(problem.with_strength(strength), solution) for strength, solution in pairs]
    solutions = [scaling.to_user(solution) for solution in solutions]
    return MixedNormPath(
        penalties=path.penalties,
        coefs=np.stack([s.W.T for s in solutions]),
        intercepts=np.stack([s.intercept for s in solutions]),
        objectives=np.array([s.objective for s in solutions]),
        gaps=np.array([s.gap for s in solutions]),
        converged=np.array([s.converged for s in solutions]),
        tasks=data.task_names,
        feature_names=data.feature_names,
        norm_q=float(model.norm_q),
        stop_reason=path.stop_reason,
    )


def _settings(model: MixedNormEstimator) -> SolveSettings:
    mean_strength = model.mean_strength if model.shared_mean else None
    return SolveSettings(model.solver, model.tol, model.max_iter, mean_strength, model.mean_penalty or 0.0)


def automatic_penalties(data: TaskData, model: MixedNormEstimator, grid: Grid) -> FloatArray:
    """(k,) Automatic grid of penalties, without any fit at them."""
    return penalty_grid(largest_penalty(scaled_problem(data, model), _settings(model)), *grid)


def scaled_problem(data: TaskData, model: MixedNormEstimator) -> Problem:
    """The problem of a model at penalty 0, for data that are not scaled yet."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return problem_of(model, model._rescaled(data).data)


def warn_if_not_converged(converged: BoolArray, what: str, tol: float) -> None:
    """Say how many fits stopped before their certificate was small enough."""
    if not converged.all():
        warn(
            f"{int((~converged).sum())} of {converged.size} {what} were not solved to tol={tol:g}; raise max_iter or "
            "tol, standardise the features, or leave out the smallest penalties",
            ConvergenceWarning,
        )


def mixed_norm_path(
    X: Any,
    y: Any = None,
    tasks: Any = None,
    penalties: ArrayLike | None = None,
    n_penalties: int = 100,
    penalty_ratio: float = 1e-3,
    norm_q: float = 2,
    loss: str | Family = "squared",
    loss_scale: LossScale = "mean",
    fit_intercept: bool = True,
    tol: float = 1e-6,
    *,
    task_sparsity: float = 0.0,
    sample_weight: Any = None,
    groups: ArrayLike | None = None,
    standardize: bool = False,
    scale_target: bool = False,
    shared_mean: bool = False,
    mean_strength: float | None = None,
    mean_penalty: float = 0.0,
    max_iter: int = 10_000,
    solver: str = "auto",
    penalty: Penalty | None = None,
    ridge: float = 0.0,
    exposure: Any = None,
    offset: Any = None,
    progress: bool | None = None,
) -> MixedNormPath:
    """Fit an l1,q penalised model at many penalty strengths, each from the solution before it.

    Parameters
    ----------
    X : (n, p) array, sparse matrix or data frame, or `TaskData` (which holds targets, tasks and weights too)
    y : (n,) targets or class labels, or (n, m) for one column per task (NaN where a cell was not observed)
    tasks : (n,) task labels of the long form
    penalties : (k,) strengths in any order, all of which are solved
        None makes a geometric grid that begins at the smallest strength at which all coefficients are zero.
    n_penalties, penalty_ratio : size of that grid, and its smallest strength as a share of the largest
        The grid ends early, and ``stop_reason`` says so, where 99.9% of the deviance is explained or where smaller
        penalties explain hardly any more.
    norm_q : float in [1, inf]
    loss : "squared", "absolute", "logistic", "hinge", "multinomial", "cox", or a family
        With families of labels, such as the last two, `MixedNormClassifier` reads them: several classes are one task
        each.
    loss_scale, fit_intercept, tol, task_sparsity, groups, standardize, scale_target, shared_mean, mean_strength,
    mean_penalty, max_iter, solver, penalty, ridge
        As in `MixedNormRegressor`.
    sample_weight : (n,) or, for the wide form, (n, m)
    exposure, offset : as in `MixedNormRegressor.fit`
    progress : bool or None
        Progress bar: always, never, or (None) for long work on a terminal.

    Returns
    -------
    MixedNormPath
        With ``penalties``, ``coefs`` (k, n_tasks, n_features), ``intercepts``, ``gaps`` and more.

    Examples
    --------
    >>> from bayesmtfs import simulate_tasks
    >>> from bayesmtfs.estimators.path import mixed_norm_path
    >>> sim = simulate_tasks(n_tasks=3, n_features=10, n_relevant=2, n_samples=40, random_state=0)
    >>> path = mixed_norm_path(sim.X, sim.y, tasks=sim.tasks, n_penalties=4, penalty_ratio=0.1)
    >>> path.coefs.shape, path.n_selected[:2].tolist(), path.converged.all().item()
    ((4, 3, 10), [0, 2], True)

    References
    ----------
    Friedman, Hastie, Tibshirani (2010), Regularization paths for generalized linear models via coordinate descent.
    """
    grid = read_penalties(penalties, n_penalties, penalty_ratio)
    targets = find_family(loss).targets
    readers: dict[str, Any] = {"labels": MixedNormClassifier, "survival": MixedNormSurvival}
    reader = readers.get(targets, MixedNormRegressor)
    model = reader(
        norm_q=norm_q,
        task_sparsity=task_sparsity,
        loss=loss,
        loss_scale=loss_scale,
        solver=solver,
        fit_intercept=fit_intercept and targets != "survival",  # whose baselines stand in its place
        standardize=standardize,
        shared_mean=shared_mean,
        mean_strength=mean_strength,
        mean_penalty=mean_penalty,
        groups=groups,
        tol=tol,
        max_iter=max_iter,
        penalty=penalty,
        ridge=ridge,
    )
    if scale_target:  # which a classifier refuses
        model.set_params(scale_target=True)
    data = model.training_data(X, y, tasks, sample_weight, exposure, offset)
    if shared_mean and mean_strength is None:
        default = shared_mean_solver.default_mean_strength(scaled_problem(data, model), standardize)
        model = replace(model, mean_strength=default)
    path = path_of(data, model, grid, progress)
    warn_if_not_converged(path.converged, "penalties", tol)
    return path
