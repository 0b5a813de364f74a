"""Penalised estimators: the MAP of a Gaussian or logistic model under a prior on the rows of W.

    minimise  sum_t (1/n_t) sum_i loss(y_i, x_i' w_t + b_t) + penalty_strength * sum_i ||w^i||_q

``norm_q=1`` is iMTFS (independent lassos), ``norm_q=2`` aMTFS or MTFS_1,2 (Obozinski, Taskar and Jordan 2006; Yang,
King and Lyu 2010, eq. 4), ``norm_q=inf`` MTFS_1,inf, and ``task_sparsity > 0`` MTFTS (Yang, King and Lyu 2010, eq. 6):
``penalty_strength * sum_i (r ||w^i||_1 + ||w^i||_2)``. The same model in PyMC is `bayesmtfs.models.mixed_norm_model`.
"""

import warnings
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score

from bayesmtfs.estimators.base import MultiTaskEstimator
from bayesmtfs.likelihoods import named
from bayesmtfs.priors import row_penalty
from bayesmtfs.protocols import ConvergenceWarning, FloatArray, Solution
from bayesmtfs.solvers import proximal_gradient
from bayesmtfs.solvers.problem import Problem
from bayesmtfs.standardization import standardize
from bayesmtfs.tasks import TaskData

DEFAULT_SHARE = 0.1  # of the largest penalty, where the user names no strength


class MixedNormRegressor(RegressorMixin, MultiTaskEstimator):
    """Multi-task regression with an l1,q penalty on the rows of W.

    Parameters
    ----------
    norm_q : float in [1, inf], default 2
        How the tasks share a feature: 1 = each task selects for itself, inf = only the largest coefficient counts.
    penalty_strength : float or None
        Weight of the penalty; None takes a tenth of the smallest strength at which all coefficients are zero.
    task_sparsity : float, default 0
        r of MTFTS: also makes single entries of a selected row zero. Needs ``norm_q=2``.
    loss : "squared"
    loss_scale : "mean" or "sum"
        Each task's loss divided by its number of rows (or total weight), or not.
    solver : "auto" or "proximal_gradient"
    fit_intercept : bool
        One unpenalised intercept per task.
    standardize : bool
        Scale features to unit deviation within each task before the fit; ``coef_`` is in the user's units all the same.
    task_column : column of X that holds the task
        A name for data frames, a number for arrays.
    unknown_task : "error" or "mean"
        What to do at ``predict`` with a task that was not there in ``fit``.
    groups : (n_columns,) labels
        Columns with the same label enter or leave together, as the levels of a categorical column do.
    tol : float
        Duality gap to reach, relative to the objective at W = 0.
    max_iter : int
        Most iterations of the solver.
    warm_start : bool
        Begin from the coefficients of the last fit.
    progress : bool or None
        Progress bar: always, never, or (None) for long fits on a terminal.

    Attributes
    ----------
    coef_ : (n_tasks, n_features)
    intercept_ : (n_tasks,)
    tasks_ : (n_tasks,) labels
    penalty_strength_ : float
        Strength that was used.
    objective_, dual_gap_ : float
        Objective at the solution, and a bound on how far it can be above the minimum.
    converged_ : bool
        Whether ``dual_gap_ <= tol *`` objective at W = 0.
    n_iter_ : int
    result_ : FitResult

    Examples
    --------
    >>> import numpy as np
    >>> from bayesmtfs import MixedNormRegressor, simulate_tasks
    >>> sim = simulate_tasks(n_tasks=4, n_features=20, n_relevant=3, n_samples=50, random_state=0)
    >>> model = MixedNormRegressor().fit(sim.X, sim.y, tasks=sim.tasks)
    >>> bool((model.get_support() == sim.support).all()), model.converged_
    (True, True)

    References
    ----------
    Obozinski, Taskar, Jordan (2006), Multi-task feature selection. Zhang, Yeung, Xu (2010), Probabilistic multi-task
    feature selection, problem (1). Yang, King, Lyu (2010), Online learning for multi-task feature selection.
    """

    _saved_attributes = ("penalty_strength_", "objective_", "dual_gap_")

    def __init__(
        self,
        norm_q: float = 2,
        penalty_strength: float | None = None,
        task_sparsity: float = 0.0,
        loss: str = "squared",
        loss_scale: str = "mean",
        solver: str = "auto",
        fit_intercept: bool = True,
        standardize: bool = False,
        task_column: Any = None,
        unknown_task: str = "error",
        groups: ArrayLike | None = None,
        tol: float = 1e-6,
        max_iter: int = 10_000,
        warm_start: bool = False,
        progress: bool | None = None,
    ) -> None:
        self.norm_q = norm_q
        self.penalty_strength = penalty_strength
        self.task_sparsity = task_sparsity
        self.loss = loss
        self.loss_scale = loss_scale
        self.solver = solver
        self.fit_intercept = fit_intercept
        self.standardize = standardize
        self.task_column = task_column
        self.unknown_task = unknown_task
        self.groups = groups
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.progress = progress

    def fit(self, X: Any, y: Any = None, tasks: Any = None, sample_weight: Any = None) -> Self:
        """Fit all tasks together.

        Parameters
        ----------
        X : (n, p) array, sparse matrix or data frame, or `TaskData` (which holds the rest too)
        y : (n,) targets, or (n, m) for one column per task (NaN where a cell was not observed)
        tasks : (n,) task labels of the long form
        sample_weight : (n,) or, for the wide form, (n, m)
        """
        self._check_parameters()
        data = self._read_fit_data(X, y, tasks, sample_weight)
        _check_numeric_target(data)
        scaled, scales = standardize(data) if self.standardize else (data, None)
        problem = self._problem(scaled)
        solution = proximal_gradient.solve(problem, self._solver_settings(), self._start(scales, data))
        self._store(data, solution, scales, penalty_strength=problem.penalty.strength)
        self.penalty_strength_ = problem.penalty.strength
        self.objective_ = solution.objective
        self.dual_gap_ = solution.gap
        _warn_if_not_converged(solution, self.tol)
        return self

    def predict(self, X: Any, tasks: Any = None) -> FloatArray:
        """Predict targets.

        Parameters
        ----------
        X : (n, p) rows
        tasks : (n,) task labels, where the model was fitted on labelled tasks

        Returns
        -------
        (n,) predictions, or (n, n_tasks) for a model of the wide form
        """
        return self._linear_predictor(X, tasks)

    def score(self, X: Any, y: Any, tasks: Any = None, sample_weight: Any = None) -> float:
        """Coefficient of determination R^2 of the predictions; of the wide form, its mean over tasks.

        Parameters
        ----------
        X, y, tasks, sample_weight : as in ``fit``
        """
        predicted = self.predict(X, tasks)
        if predicted.ndim == 1:
            return float(r2_score(np.asarray(y).reshape(predicted.shape), predicted, sample_weight=sample_weight))
        target = np.asarray(y, dtype=np.float64)
        weight = None if sample_weight is None else np.broadcast_to(np.atleast_2d(sample_weight).T, target.shape)
        scores = []
        for t in range(predicted.shape[1]):
            seen = ~np.isnan(target[:, t])
            own = None if weight is None else weight[seen, t]
            scores.append(r2_score(target[seen, t], predicted[seen, t], sample_weight=own))
        return float(np.mean(scores))

    # ------------------------------------------------------------------ the parts of a fit

    def _check_parameters(self) -> None:
        if self.penalty_strength is not None and not self.penalty_strength >= 0:
            raise ValueError(f"penalty_strength is {self.penalty_strength}; pass a number of at least 0, or None")
        _check_choice("loss", self.loss, ("squared",))
        _check_choice("loss_scale", self.loss_scale, ("mean", "sum"))
        _check_choice("solver", self.solver, ("auto", "proximal_gradient"))
        _check_choice("unknown_task", self.unknown_task, ("error", "mean"))
        if not self.tol > 0:
            raise ValueError(f"tol is {self.tol}; pass a positive number such as 1e-6")
        if self.max_iter < 1:
            raise ValueError(f"max_iter is {self.max_iter}; pass a whole number of at least 1")

    def _problem(self, data: TaskData) -> Problem:
        penalty = row_penalty(self.penalty_strength or 0.0, self.norm_q, self.task_sparsity)
        weight = data.loss_weights(self.loss_scale)  # type: ignore[arg-type]
        problem = Problem(data, named(self.loss), penalty, weight, self.fit_intercept)
        if self.penalty_strength is None:
            return problem.with_strength(DEFAULT_SHARE * problem.largest_penalty)
        return problem

    def _solver_settings(self) -> proximal_gradient.Settings:
        return proximal_gradient.Settings(tol=self.tol, max_iter=self.max_iter, progress=self.progress)

    def _start(self, scales: FloatArray | None, data: TaskData) -> Solution | None:
        """The last fit as a start, where that is wanted and fits the data."""
        last = getattr(self, "coef_", None)
        if not self.warm_start or last is None or last.shape != (data.n_tasks, data.n_features):
            return None
        W = last.T if scales is None else last.T * scales
        return Solution(W, self.intercept_, np.nan, np.nan, np.nan, False, 0, np.empty(0))


def _check_choice(argument: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        wanted = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{argument} is {value!r}; choose one of {wanted}")


def _check_numeric_target(data: TaskData) -> None:
    if data.y.dtype.kind != "f":
        raise ValueError(f"y is not numeric (dtype {data.y.dtype}); a regressor wants numbers, use a classifier for labels")


def _warn_if_not_converged(solution: Solution, tol: float) -> None:
    if solution.converged:
        return
    reason = "was interrupted" if solution.interrupted else f"stopped after {solution.n_iter} iterations"
    warnings.warn(
        f"the solver {reason} at a duality gap of {solution.gap / solution.scale:.1e} of the objective at W = 0, with "
        f"tol={tol:g}; raise max_iter or tol, standardise the features, or raise penalty_strength",
        ConvergenceWarning,
        stacklevel=3,
    )
