"""Generalized normal estimators: problem (5) of Zhang, Yeung and Xu 2010, by majorisation-minimisation.

    minimise  L(W, b) / sigma^2 + m sum_i ln(||w^i||_q + offset)

with L the sum of the losses: generalized normal rows with the best scale for each of them (type II MAP). The logarithm
comes closer to counting features than a mixed norm does and shrinks the large ones less; it is not convex, and
`bayesmtfs.em.mm` finds a local minimum by a sequence of weighted mixed-norm problems.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from bayesmtfs.convex.problem import Problem
from bayesmtfs.data.scaling import standardize, within_task_units
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.em import jeffreys_fit, mm
from bayesmtfs.em import shared_mean_routes as em_shared_mean_routes
from bayesmtfs.em.shared_mean import as_sums
from bayesmtfs.estimators.predictors import MultiTaskClassifier, MultiTaskRegressor
from bayesmtfs.estimators.probabilistic import GeneralizedNormalRows
from bayesmtfs.families import find_family
from bayesmtfs.priors.row_penalty import RowPenalty
from bayesmtfs.types import FloatArray, Solution

RELATIVE_OFFSET = 1e-3  # of sd(y) / sd(x), where the user names none


@dataclass(repr=False, eq=False)
class GeneralizedNormalEstimator(GeneralizedNormalRows):
    """The body of both estimators."""

    _saved_attributes: ClassVar[tuple[str, ...]] = (
        "offset_",
        "noise_",
        "row_scales_",
        "objective_trace_",
        "mean_coef_",
        "mean_strength_",
    )

    norm_q: float = 2
    offset: float | None = 1e-3
    noise: float | str = "learn"
    graduated: bool = True
    max_iter: int = field(default=100, kw_only=True)

    # ------------------------------------------------------------------ parameters

    def _check_parameters(self) -> None:
        self._check_common()
        if not self.norm_q >= 1:
            raise ValueError(f"norm_q is {self.norm_q}; pass a number of at least 1, or np.inf")
        if self.offset is not None and not 0 < self.offset < np.inf:
            raise ValueError(f"offset is {self.offset}; pass a positive number such as 1e-3, or None")
        if isinstance(self.noise, str):
            if self.noise != "learn":
                raise ValueError(f"noise is {self.noise!r}; pass a positive number, or 'learn'")
            if self.loss != "squared":
                raise ValueError(
                    f"noise='learn' needs loss='squared' but loss is {self.loss!r}; pass a number, such as 1.0"
                )
        elif not self.noise > 0:
            raise ValueError(f"noise is {self.noise}; pass a positive number, or 'learn'")

    # ------------------------------------------------------------------ the fit

    def _fit(self, data: TaskData) -> None:
        """Fit data whose targets are numbers, or -1 and +1."""
        scaled, scales = standardize(data) if self.standardize else (data, None)
        family = find_family(self.loss)
        units = within_task_units(scaled, self.fit_intercept, family.quadratic)
        start = self._last_fit(scaled, scales) or jeffreys_fit.mixed_norm_start(
            scaled, family, self.fit_intercept, units, self.start_strength
        )
        settings = mm.Settings(
            norm_q=float(self.norm_q),
            offset=RELATIVE_OFFSET * units.coefficient if self.offset is None else float(self.offset),
            noise=None if isinstance(self.noise, str) else float(self.noise),
            noise_floor=self._least_noise(scaled, units.target, start),
            graduated=self.graduated,
            tol=self.tol,
            max_iter=self.max_iter,
        )
        self.offset_ = settings.offset
        if self.shared_mean:
            solution, mean = self._fit_around_mean(scaled, settings, start, units.target)
        else:
            solution, mean = self._fit_rows(scaled, settings, start), None
        self._store_rows(data, solution, scales, settings.norm_q, mean, offset=settings.offset)

    def _fit_rows(self, data: TaskData, settings: mm.Settings, start: Solution) -> Solution:
        self.mean_strength_: float | None = None
        problem = Problem(
            data, find_family(self.loss), RowPenalty(1.0, settings.norm_q), data.weight, self.fit_intercept
        )
        return mm.solve(problem, start, settings, progress=self.progress)

    def _fit_around_mean(
        self, data: TaskData, settings: mm.Settings, start: Solution, deviation: float
    ) -> tuple[Solution, FloatArray]:
        sigma = deviation if settings.noise is None else settings.noise
        problem = self._mean_problem(data, sigma)
        self.mean_strength_ = problem.strength
        begin = em_shared_mean_routes.Start(start, self._last_mean(data))
        found = em_shared_mean_routes.fit_generalized_normal(problem, settings, begin, sigma, progress=self.progress)
        return as_sums(problem, found), found.mean

    def _least_noise(self, data: TaskData, deviation: float, start: Solution) -> float:
        """Floor of a learned noise, in the units of y."""
        if self.noise_floor is not None:
            return self.noise_floor * deviation
        if self.noise != "learn":
            return 0.0
        return jeffreys_fit.find_noise_floor(data, find_family(self.loss), self.fit_intercept, start)


@dataclass(repr=False, eq=False)
class GeneralizedNormalRegressor(MultiTaskRegressor, GeneralizedNormalEstimator):
    """Multi-task regression with generalized normal rows (type II MAP, problem 5).

    Parameters
    ----------
    norm_q : float in [1, inf], default 2
        Shape of a row.
    offset : float or None, default 1e-3
        alpha in the logarithm, in the units of the coefficients; None takes a thousandth of sd(y) / sd(x), so that the
        fit does not depend on units. A large offset comes close to a mixed norm.
    noise : "learn" or float
        sigma, one for all tasks.
    graduated : bool
        Lower the offset in stages down to its value, for better minima.
    start_strength : float
        Penalty of the mixed-norm start, as a share of the smallest one at which all coefficients are zero.
    noise_floor : float or None
        Least learned noise, as a share of sd(y); None searches it as `JeffreysRegressor` does.
    fit_intercept, standardize, task_column, unknown_task, groups : see `MixedNormRegressor`
    shared_mean, mean_strength : see `JeffreysRegressor`; the loss is divided by ``noise ** 2`` where that is a number
    tol : float
        Fall of the objective per observation at which the fit has converged.
    max_iter : int
        Most convex problems at the final offset.
    warm_start : bool
        Begin from the last fit.
    progress : bool or None
        Progress bar: always, never, or (None) for long fits on a terminal.

    Attributes
    ----------
    coef_ : (n_tasks, n_features)
    intercept_ : (n_tasks,)
    noise_ : (n_tasks,)
        The shared sigma, once per task.
    offset_ : float
    row_scales_ : (n_features,)
        ``rho_i = (q/m)^(1/q) ||w^i||_q``.
    objective_trace_ : (n_iter_ + 1,)
        Problem (5) at the final offset, plus ``N ln sigma`` where sigma is learned; it never rises.
    mean_coef_, mean_strength_ : with ``shared_mean``, else None; ``row_scales_`` are then those of the deviations
    tasks_, n_iter_, converged_, result_

    Examples
    --------
    >>> from bayesmtfs import simulate_tasks
    >>> from bayesmtfs.estimators.generalized_normal import GeneralizedNormalRegressor
    >>> sim = simulate_tasks(n_tasks=4, n_features=30, n_relevant=3, n_samples=40, random_state=0)
    >>> model = GeneralizedNormalRegressor().fit(sim.X, sim.y, tasks=sim.tasks)
    >>> bool((model.get_support() == sim.support).all())
    True

    References
    ----------
    Zhang, Yeung, Xu (2010), Probabilistic multi-task feature selection, problem (5).
    """

    _losses = ("squared",)


@dataclass(repr=False, eq=False)
class GeneralizedNormalClassifier(MultiTaskClassifier, GeneralizedNormalEstimator):
    """Multi-task classification with generalized normal rows (type II MAP, problem 5).

    Parameters
    ----------
    loss : {"logistic", "squared"}
    noise : float or "learn"
        sigma: the loss is divided by its square. "learn" needs the squared loss.
    norm_q, offset, graduated, start_strength, noise_floor, fit_intercept, standardize, shared_mean, mean_strength,
    task_column, unknown_task, groups, tol, max_iter, warm_start, progress : see `GeneralizedNormalRegressor`

    Attributes
    ----------
    classes_ : (n_classes,) sorted labels
    coef_, intercept_, noise_, offset_, row_scales_, objective_trace_, mean_coef_, mean_strength_, tasks_, n_iter_,
    converged_, result_ : see `GeneralizedNormalRegressor`

    Examples
    --------
    >>> from bayesmtfs import simulate_tasks
    >>> from bayesmtfs.estimators.generalized_normal import GeneralizedNormalClassifier
    >>> sim = simulate_tasks(n_tasks=4, n_features=20, n_relevant=3, kind="classification", random_state=0)
    >>> model = GeneralizedNormalClassifier().fit(sim.X, sim.y, tasks=sim.tasks)
    >>> model.predict_proba(sim.X[:5], tasks=sim.tasks[:5]).shape
    (5, 2)
    """

    _losses = ("logistic", "squared")
    _saved_attributes = (*GeneralizedNormalEstimator._saved_attributes, "classes_")

    loss: str = "logistic"
    noise: float | str = 1.0
