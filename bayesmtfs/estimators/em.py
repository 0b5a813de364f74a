"""The body of the Jeffreys estimators: parameters, EM or evidence, what a fit leaves behind.

What they minimise is in the docstring of `bayesmtfs.estimators.jeffreys`.
"""

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from bayesmtfs.data.scaling import WithinTaskUnits, standardize, within_task_units
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.em import (
    evidence,
    evidence_shared_mean,
    jeffreys_fit,
)
from bayesmtfs.em import (
    jeffreys as em_jeffreys,
)
from bayesmtfs.em import (
    shared_mean_routes as em_shared_mean_routes,
)
from bayesmtfs.em.shared_mean import MeanProblem
from bayesmtfs.estimators.base import check_choice
from bayesmtfs.estimators.probabilistic import GeneralizedNormalRows, as_start
from bayesmtfs.families import find_family
from bayesmtfs.types import DataWarning, FloatArray, Solution

Q_LEARNING = ("two_stage", "integrated", "ecme", "paper")


@dataclass(repr=False, eq=False)
class JeffreysEstimator(GeneralizedNormalRows):
    """The body of both estimators."""

    _saved_attributes: ClassVar[tuple[str, ...]] = (
        "norm_q_",
        "norm_q_interval_",
        "noise_",
        "row_scales_",
        "objective_trace_",
        "coef_std_",
        "mean_coef_",
        "mean_strength_",
    )

    norm_q: float | str = 2
    q_learning: str = "two_stage"
    coefficients: str = "mode"
    init: str | ArrayLike = "mixed_norm"
    norm_q_bounds: tuple[float, float] = (1.0, 50.0)
    hyper_shape: float = 0.0
    hyper_rate: float = 0.0
    shared_noise: bool = False
    random_state: Any = None

    # ------------------------------------------------------------------ parameters

    def _check_parameters(self) -> None:
        check_choice("q_learning", self.q_learning, Q_LEARNING)
        check_choice("coefficients", self.coefficients, ("mode", "integrated"))
        if isinstance(self.init, str):
            check_choice("init", self.init, ("mixed_norm",))
        self._check_norm_q()
        self._check_common()
        if self.shared_mean and self.coefficients == "integrated" and self.loss != "squared":
            raise ValueError(
                f"shared_mean=True with coefficients='integrated' needs loss='squared' but loss is {self.loss!r}; pass "
                "coefficients='mode', or loss='squared'"
            )

    def _check_norm_q(self) -> None:
        learned = isinstance(self.norm_q, str)
        if (learned and self.norm_q != "learn") or (not learned and not float(self.norm_q) >= 1):
            raise ValueError(f"norm_q is {self.norm_q!r}; pass a number of at least 1, np.inf, or 'learn'")
        low, high = self.norm_q_bounds
        if not 1 <= low < high < np.inf:
            raise ValueError(
                f"norm_q_bounds is {self.norm_q_bounds}; pass two finite numbers, 1 <= low < high, such as (1, 50)"
            )
        if self.coefficients == "integrated" and self.norm_q != 2:
            raise ValueError(
                f"coefficients='integrated' needs norm_q=2, where the integral has a closed form, but norm_q is "
                f"{self.norm_q!r}; pass norm_q=2, or coefficients='mode'"
            )

    # ------------------------------------------------------------------ the fit

    def _fit(self, data: TaskData) -> None:
        """Fit data whose targets are numbers, or -1 and +1."""
        scaled, scales = standardize(data) if self.standardize else (data, None)
        _warn_of_single_rows(data, self.loss)
        found = self._fit_integrated(scaled) if self.coefficients == "integrated" else self._fit_mode(scaled, scales)
        self.norm_q_ = float(found.norm_q)
        self.norm_q_interval_ = self._interval(found)
        self._store_rows(data, found.solution, scales, self.norm_q_, found.mean)
        std = found.coef_std
        self.coef_std_ = None if std is None else (std if scales is None else std / scales).T.copy()

    def _fit_mode(self, data: TaskData, scales: FloatArray | None) -> jeffreys_fit.JeffreysFit:
        if self.norm_q == "learn" and self.q_learning == "paper":
            warnings.warn(
                "q_learning='paper' is the printed update, which depends on the units of y and does not recover q; "
                "use 'two_stage' or 'integrated' for anything but reproduction",
                DataWarning,
                stacklevel=4,
            )
        em = em_jeffreys.Settings(
            shape=self.hyper_shape,
            rate=self.hyper_rate,
            shared_noise=self.shared_noise,
            tol=self.tol,
            max_iter=self.max_iter,
        )
        settings = jeffreys_fit.Settings(
            norm_q=None if self.norm_q == "learn" else float(self.norm_q),
            q_learning=cast(jeffreys_fit.QLearning, self.q_learning),
            q_bounds=(float(self.norm_q_bounds[0]), float(self.norm_q_bounds[1])),
            start_strength=self.start_strength,
            noise_floor=self.noise_floor,
            em=em,
            random_seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
        )
        start = self._start(data, scales)
        if self.shared_mean:
            return self._fit_mode_around_mean(data, settings, start)
        self.mean_strength_: float | None = None
        return jeffreys_fit.fit(
            data,
            find_family(self.loss),
            settings,
            fit_intercept=self.fit_intercept,
            start=start,
            progress=self.progress,
        )

    def _mean_frame(self, data: TaskData) -> tuple[MeanProblem, WithinTaskUnits]:
        """The problem of a shared mean in these data, and their units."""
        units = within_task_units(data, self.fit_intercept, find_family(self.loss).quadratic)
        problem = self._mean_problem(data, units.target)
        self.mean_strength_ = problem.strength
        return problem, units

    def _fit_mode_around_mean(
        self, data: TaskData, settings: jeffreys_fit.Settings, start: Solution | None
    ) -> jeffreys_fit.JeffreysFit:
        problem, units = self._mean_frame(data)
        if start is None:
            begin = (data, problem.family, self.fit_intercept, units, self.start_strength)
            start = jeffreys_fit.mixed_norm_start(*begin)
        first = em_shared_mean_routes.Start(start, self._last_mean(data))
        return em_shared_mean_routes.fit_jeffreys(problem, settings, first, progress=self.progress)

    def _fit_evidence(self, data: TaskData, **options: Any) -> tuple[evidence.EvidenceSolution, FloatArray | None]:
        """Posterior of largest evidence, and the shared mean where there is one; W is then the sums."""
        options |= {"shared_noise": self.shared_noise, "noise_floor": self.noise_floor, "progress": self.progress}
        options |= {"tol": self.tol, "max_iter": self.max_iter}
        if self.shared_mean:
            options.pop("start", None)
            problem, _ = self._mean_frame(data)
            mean, found = evidence_shared_mean.solve(problem, **options)
            return found._replace(W=problem.sums(mean, found.W)), mean
        self.mean_strength_ = None
        loss: Literal["logistic", "squared"] = "logistic" if self.loss == "logistic" else "squared"
        return evidence.solve(data, loss, fit_intercept=self.fit_intercept, **options), None

    def _fit_integrated(self, data: TaskData) -> jeffreys_fit.JeffreysFit:
        found, mean = self._fit_evidence(data)
        return jeffreys_fit.JeffreysFit(found.as_solution(), 2.0, None, np.sqrt(found.W_variance), mean=mean)

    def _start(self, data: TaskData, scales: FloatArray | None) -> Solution | None:
        """The last fit or the user's start, where there is one."""
        last = self._last_fit(data, scales)
        if last is not None or isinstance(self.init, str):
            return last
        coef, wanted = np.asarray(self.init, dtype=np.float64), (data.n_tasks, data.n_features)
        if coef.shape != wanted:
            raise ValueError(f"init has shape {coef.shape}; pass coefficients of shape {wanted}, or 'mixed_norm'")
        return as_start(coef, np.zeros(data.n_tasks), scales)

    def _interval(self, found: jeffreys_fit.JeffreysFit) -> tuple[float, float]:
        if self.norm_q != "learn":
            return (self.norm_q_, self.norm_q_)
        if found.exponent is None:
            warnings.warn(
                "q cannot be learned: no row is active; lower start_strength, or pass a number as norm_q",
                DataWarning,
                stacklevel=4,
            )
            return (float(self.norm_q_bounds[0]), float(self.norm_q_bounds[1]))
        low, high = found.exponent.interval
        if not found.exponent.identified:
            warnings.warn(
                f"q is not identified: its 90% interval from {low:.2g} to {high:.2g} covers most of the range of 1/q, "
                "as is usual with few tasks or few active features; take norm_q_ as a guess, or pass a number",
                DataWarning,
                stacklevel=4,
            )
        return (float(low), float(high))


def _warn_of_single_rows(data: TaskData, loss: str) -> None:
    single = data.task_names[np.diff(data.offsets) == 1]
    if loss == "squared" and len(single) and data.n_tasks > 1:
        warnings.warn(
            f"task {single.tolist()[0]!r} has one row only, so that its noise is not known and is taken at its floor; "
            "set shared_noise=True or drop the task",
            DataWarning,
            stacklevel=4,
        )
