"""The body of the penalised estimators: parameters, problem, solution, refit.

What they minimise is in the docstring of `bayesmtfs.estimators.penalised`.
"""

import numbers
import warnings
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from bayesmtfs.convex import automatic, kinked_zero, shared_mean
from bayesmtfs.convex.problem import Problem
from bayesmtfs.convex.refit import refit_selected
from bayesmtfs.data.scaling import standardize
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.estimators.batch import BatchEstimator, check_choice
from bayesmtfs.families import find_family
from bayesmtfs.priors import RowPenalty
from bayesmtfs.types import ConvergenceWarning, FloatArray, LossScale, Solution

DEFAULT_SHARE = 0.1  # of the largest penalty, where the user names no strength


@dataclass(repr=False, eq=False)
class MixedNormEstimator(BatchEstimator):
    """An l1,q penalised fit of any loss."""

    _numbers: ClassVar[tuple[str, ...]] = (
        "norm_q",
        "penalty_strength",
        "task_sparsity",
        "tol",
        "max_iter",
        "mean_strength",
    )
    _saved_attributes: ClassVar[tuple[str, ...]] = (
        "penalty_strength_",
        "objective_",
        "dual_gap_",
        "mean_strength_",
        "mean_coef_",
    )

    norm_q: float = 2
    penalty_strength: float | None = None
    task_sparsity: float = 0.0
    loss: str = "squared"
    loss_scale: LossScale = "mean"
    solver: str = "auto"
    refit: bool = False
    max_iter: int = field(default=10_000, kw_only=True)

    # ------------------------------------------------------------------ parameters

    def _check_parameters(self) -> None:
        for name in self._numbers:
            value = getattr(self, name)
            if value is not None and not isinstance(value, numbers.Real):
                hint = ", or use the CV class to choose among several" if isinstance(value, list | tuple) else ""
                raise ValueError(f"{name} is {value!r}; pass a number{hint}")
        if self.penalty_strength is not None and not self.penalty_strength >= 0:
            raise ValueError(f"penalty_strength is {self.penalty_strength}; pass a number of at least 0, or None")
        self._check_common()
        check_choice("loss_scale", self.loss_scale, ("mean", "sum"))
        check_choice("solver", self.solver, ("auto", *automatic.SOLVERS))
        if self.shared_mean:
            self._check_shared_mean()

    def _check_shared_mean(self) -> None:
        if self.refit:
            raise ValueError("refit=True and shared_mean=True do not go together: a shared mean selects no features")
        if self.loss in ("hinge", "absolute"):
            raise ValueError(
                f"shared_mean=True needs a smooth loss but loss is {self.loss!r}; use 'squared' or 'logistic'"
            )

    # ------------------------------------------------------------------ the fit

    def _fit(self, data: TaskData) -> None:
        """Fit data whose targets are numbers, or -1 and +1."""
        scaled, scales = standardize(data) if self.standardize else (data, None)
        problem = self._problem(scaled)
        solution = self._solve(problem, self._start(scales, data))
        _warn_if_not_converged(solution, self.tol, self.max_iter)
        final = refit_selected(problem, solution, tol=self.tol, max_iter=self.max_iter) if self.refit else solution
        strength = problem.penalty.strength
        self._store(data, final, scales, tol=self.tol, penalty_strength=strength)
        self.penalty_strength_ = strength
        self.objective_ = solution.objective
        self.dual_gap_ = solution.gap

    def _problem(self, data: TaskData) -> Problem:
        penalty = RowPenalty(self.penalty_strength or 0.0, self.norm_q, self.task_sparsity)
        weight = data.loss_weights(self.loss_scale)
        problem = Problem(data, find_family(self.loss), penalty, weight, self.fit_intercept)
        if self.penalty_strength is None:
            return problem.with_strength(DEFAULT_SHARE * kinked_zero.largest_penalty(problem))
        return problem

    def _solve(self, problem: Problem, start: Solution | None) -> Solution:
        stop: dict[str, Any] = {"tol": self.tol, "max_iter": self.max_iter, "progress": self.progress}
        if not self.shared_mean:
            return automatic.solve(problem, start, solver=self.solver, **stop)
        strength = self.mean_strength or shared_mean.default_mean_strength(problem)
        found = shared_mean.solve(problem, strength, **stop)
        self.mean_strength_: float | None = strength
        self.mean_coef_ = found.mean
        return found.solution

    def _start(self, scales: FloatArray | None, data: TaskData) -> Solution | None:
        """The last fit as a start, where that is wanted and fits the data."""
        last = getattr(self, "coef_", None)
        if not self.warm_start or last is None or last.shape != (data.n_tasks, data.n_features):
            return None
        W = last.T if scales is None else last.T * scales
        return Solution(W, self.intercept_, np.nan, np.nan, np.nan, False, 0, np.empty(0))


def _warn_if_not_converged(solution: Solution, tol: float, max_iter: int) -> None:
    if solution.converged:
        return
    reason = "was interrupted" if solution.interrupted else f"stopped after {solution.n_iter} iterations"
    more = "raise max_iter or tol" if solution.n_iter >= max_iter else "raise tol"
    warnings.warn(
        f"the solver {reason} at a duality gap of {solution.gap / solution.scale:.1e} of the objective at W = 0, with "
        f"tol={tol:g}; {more}, standardise the features, or raise penalty_strength",
        ConvergenceWarning,
        stacklevel=4,
    )
