"""Estimators with generalized normal rows, fitted by EM or majorisation-minimisation (Zhang, Yeung and Xu 2010).

- Generalized normal (problem 5, `bayesmtfs.em.mm`), rows with the best scale for each of them (type II MAP):

      minimise  L(W, b) / sigma^2 + m sum_i ln(||w^i||_q + offset)

  with L the sum of the losses. The logarithm comes closer to counting features than a mixed norm does and shrinks the
  large ones less; it is not convex, and a local minimum is found by a sequence of weighted mixed-norm problems.
- Jeffreys (PMTFS1, section 4.2, `bayesmtfs.em.jeffreys`), scales integrated out:

      minimise  sum_t [ L_t / sigma_t^2 + n_t ln sigma_t ] + sum_i [ m ln ||w^i||_q + normaliser(m, q) ]

  over W, b, sigma and, with ``norm_q="learn"``, q. No row scale, penalty strength or unit has to be chosen. The prior is
  improper and its objective unbounded at W = 0, so that what EM gives is a local minimum near its start, the mixed-norm
  fit.
- Matrix variate (PMTFS2, section 4.3): a row of W is ``rho_i z' R^(1/2)`` with generalized normal z, R a correlation
  matrix of the tasks that is learned along. ``coefficients="mode"`` minimises over W (`bayesmtfs.em.matrix_variate`, any
  q); ``"integrated"`` takes the posterior mean of W at the row variances, noise and R of largest evidence
  (`bayesmtfs.em.evidence`, q = 2). Only the second makes predictions better by the relations.
"""

from dataclasses import field, replace
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from bayesmtfs.convex.problem import Problem
from bayesmtfs.data.inputs import check_memory
from bayesmtfs.data.scaling import Rescaled, within_task_units
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.em import evidence, jeffreys, matrix_variate, mm, shared_mean
from bayesmtfs.em.active_tasks import EMProblem, em_problem, rows_of
from bayesmtfs.em.evidence import EvidenceSolution
from bayesmtfs.em.jeffreys import EMSettings, JeffreysFit, JeffreysSettings
from bayesmtfs.em.mm import MMSettings
from bayesmtfs.em.shared_mean import MeanProblem, MeanStart
from bayesmtfs.estimators.base import BatchEstimator, Names, check_choice, check_family, estimator_class
from bayesmtfs.estimators.predictors import MultiTaskClassifier, MultiTaskRegressor
from bayesmtfs.estimators.prior_choice import RowPriorChoice, choose
from bayesmtfs.families import Family, Huber, find_family, is_known
from bayesmtfs.families.huber import THRESHOLD
from bayesmtfs.priors.blocks import Blocks
from bayesmtfs.priors.generalized_normal import GeneralizedNormal
from bayesmtfs.priors.row_penalty import RowPenalty
from bayesmtfs.types import ConvergenceWarning, DataWarning, FloatArray, Solution, warn

Q_LEARNING = ("two_stage", "integrated", "ecme", "paper")
SMALL_OFFSET = 1e-3
SMALLEST_SHARE = (
    1e-3  # of the robust deviation of y, below which a scale does not go where no task can be fitted exactly
)
NORMAL_MEDIAN = 0.6745  # of the size of a standard normal number
RELATIVE_OFFSET = 1e-3  # of sd(y) / sd(x), where the user names none
DENSE_MATRICES = 4  # (m, m) matrices in memory at a time, at least: sums of products, R, its root and its inverse


@estimator_class(kw_only=True)
class GeneralizedNormalRows(BatchEstimator):
    """Base of the estimators with generalized normal rows.

    Parameters
    ----------
    loss : str or Family
        "squared", or any smooth family of numbers or counts with a curvature.
    start_strength : float
        Penalty of the mixed-norm start, as a share of the smallest one at which all coefficients are zero.
    shared_mean : bool
        Weights are ``w_0 + v_t``: the prior acts on the deviations v_t, and on w_0 as on rows of their own, so that a
        mean is sparse where rows are; every task keeps an intercept of its own, without a prior. Tasks with little data
        are drawn to the mean instead of to zero. A mean with a scale per feature, one with a scale for all and none are
        tried, and the one of largest evidence is kept (`bayesmtfs.em.shared_mean`). With
        ``coefficients="integrated"`` the deviations are integrated out (squared loss only).
    mean_strength : float or None
        The objective has ``mean_strength / 2 ||w_0||^2`` in addition. None takes a hundredth of the mean squared column
        norm of X, over the variance of y for the squared loss (or ``noise ** 2`` where that is a number), so that the
        fit does not depend on the units of y. It bounds large means; small ones are left to the prior of their scales.
    warm_start : bool
        Begin from the last fit; rows that a Jeffreys or matrix-variate fit left at zero stay zero.

    Attributes
    ----------
    noise_ : (n_tasks,)
        sigma; for a loss without a noise 1, or what was chosen with the offset.
    offset_ : float
        What is added to the norm of a row.
    row_scales_ : (n_features,)
        ``rho_i = (q/m)^(1/q) ||w^i||_q``, 0 for features that are out.
    objective_trace_ : (n_iter_ + 1,)
    mean_coef_ : (n_features,) or None
        w_0, with ``shared_mean``; ``coef_`` holds the sums, and ``row_scales_`` are those of the deviations. With
        ``standardize`` or ``scale_target`` it is the mean of the coefficients of the scaled data.
    mean_strength_ : float or None
        Ridge that was used.
    """

    _saved_attributes: ClassVar[Names] = (
        "noise_",
        "offset_",
        "row_scales_",
        "objective_trace_",
        "dispersion_",
        "degrees_",
        "mean_coef_",
        "mean_strength_",
    )

    _takes_offset = True

    loss: str | Family = "squared"
    start_strength: float = 0.01
    noise_floor: float | None = None

    @property
    def _scales_wide_targets(self) -> bool:
        return True

    def _check_common(self) -> None:
        super()._check_common()
        self._require("start_strength", 0 < self.start_strength <= 1, "a share above 0, at most 1, such as 0.01")
        positive = self.noise_floor is None or self.noise_floor > 0
        self._require("noise_floor", positive, "a share of sd(y) above 0, such as 0.3, or None")

    def _check_loss(self) -> None:
        """Labels are for classifiers, which also take the squared loss; other requirements are those of a route."""
        labels = isinstance(self, MultiTaskClassifier)
        if not (labels and is_known(self.loss) and self._family.quadratic):
            check_family(self.loss, labels)
        self._check_route()

    def _check_route(self) -> None:
        """Refuse what EM does not have: losses without a curvature, or with a noise or parameter of their own."""
        family, name = self._family, type(self).__name__
        instead = f"GeneralizedNormal{'Classifier' if family.targets == 'labels' else 'Regressor'}"
        if not family.smooth:
            raise ValueError(
                f"{name} needs a smooth loss but loss is {self.loss!r}; use {instead} or a MixedNorm estimator, or another "
                "loss"
            )
        if family.coupled or family.offers("weights") or family.learned:
            other = "a MixedNorm estimator" if family.coupled else "a posterior"
            raise ValueError(f"{name} does not have loss={self.loss!r}; use {instead}, or {other}")
        family.require(name, "curvature")

    @property
    def _family(self) -> Family:
        return find_family(self.loss)

    def _settle_offset(self, data: TaskData) -> TaskData:
        data = super()._settle_offset(data)
        if data.eta_offset is not None and getattr(self, "coefficients", "mode") == "integrated":
            raise ValueError(
                f"coefficients='integrated' does not know an offset under loss={self.loss!r}; use coefficients='mode'"
            )
        return data

    def _mixed_norm_start(self, data: TaskData) -> Solution:
        problem = self._problem(data)
        family = self._family
        if family.offers("weights") or (family.of_residuals and not family.smooth):  # begin at a robust smooth fit
            problem = problem._replace(family=Huber(THRESHOLD * _typical_deviation(data)))
        return jeffreys.mixed_norm_start(problem, self.start_strength)

    @property
    def _has_intercepts(self) -> bool:
        """Whether tasks have intercepts, in whose place cut points of ordered classes stand."""
        return self.fit_intercept and not self._family.has_cuts

    def _problem(self, data: TaskData) -> EMProblem:
        return em_problem(data, self._family, self._has_intercepts)

    def _mean_start(self, data: TaskData, start: Solution | None) -> MeanStart:
        """Start of a fit with a shared mean: that of the last fit, where it is wanted and fits the data."""
        last = getattr(self, "mean_coef_", None)
        known = self.warm_start and last is not None and last.shape == (data.n_features,)
        return MeanStart(start or self._mixed_norm_start(data), last if known else None)

    def _mean_problem(self, data: TaskData, deviation: float | None = None) -> MeanProblem:
        """The problem of a shared mean; ``deviation`` is what the loss is divided by, squared."""
        if deviation is None:
            deviation = self._problem(data).units.target
        strength = self.mean_strength or shared_mean.default_strength(data, self._family, deviation)
        self.mean_strength_: float | None = float(strength)
        return MeanProblem(data, self._family, float(strength), self.fit_intercept)

    def _store_rows(
        self,
        data: TaskData,
        solution: Solution,
        scaling: Rescaled,
        norm_q: float,
        mean: FloatArray | None = None,
        **settings: float,
    ) -> None:
        """Set the fitted attributes, with the best scale of each feature's row in the user's units.

        Features of a group share theirs; with a shared mean, rows are the deviations from it.
        """
        if not solution.converged:
            reason = "was interrupted" if solution.interrupted else f"stopped after {solution.n_iter} iterations"
            message = f"the fit {reason} before its coefficients settled; raise max_iter or tol"
            warn(message, ConvergenceWarning)
        self._store(data, solution, scaling, tol=self.tol, **settings)
        self.noise_: FloatArray = np.ones(data.n_tasks) if self.result_.noise is None else self.result_.noise.copy()
        self.objective_trace_ = solution.objective_trace
        self.mean_coef_ = mean
        self.mean_strength_ = self.mean_strength_ if self.shared_mean else None
        self.row_scales_ = self._row_scales(data, self._deviations(data, scaling), norm_q, scaling.target)
        self.result_ = replace(self.result_, row_scales=self.row_scales_)

    def _row_scales(self, data: TaskData, V: FloatArray, norm_q: float, target: FloatArray) -> FloatArray:
        """(p,) Best scale of each feature's row; ``target`` (m,) is what targets were divided by."""
        blocks = rows_of(data)
        return GeneralizedNormal(norm_q).row_scales(blocks.gather(V), blocks.sizes)[blocks.row_of_feature]

    def _deviations(self, data: TaskData, scaling: Rescaled) -> FloatArray:
        """(p, m) Coefficients less the shared mean, where there is one, in the user's units."""
        W: FloatArray = self.coef_.reshape(-1, self.coef_.shape[-1]).T  # classes within tasks as tasks
        if self.mean_coef_ is None:
            return W
        V = W - self.mean_coef_[:, np.newaxis] * (scaling.target / scaling.feature)
        return V if data.present is None else np.where(data.present, V, 0.0)


def _typical_deviation(data: TaskData) -> float:
    """Deviation within tasks that outlying targets do not change: of a normal target its standard deviation."""
    y = np.asarray(data.y, dtype=np.float64)
    middle = np.array([np.median(y[start:stop]) for start, stop in data.spans])
    size = np.abs(y - middle[data.task])
    return float(np.median(size)) / NORMAL_MEDIAN or float(np.mean(size)) or 1.0


@estimator_class()
class GeneralizedNormalEstimator(GeneralizedNormalRows):
    """The body of both estimators.

    Parameters
    ----------
    loss : str or Family
        "squared", or any other family with a convex loss; ``"student_t(4)"`` and ``"huber"`` are fitted
        by weighted squares, their scale learned as the noise is; with ``"student_t(learn)"`` the degrees of freedom
        are learned, one number for all tasks, and with ``"negative_binomial(learn)"`` the dispersion of each task. Of
        "absolute" and "quantile(0.9)" the scale of the (asymmetric) Laplace density is learned as the noise.
    norm_q : float in [1, inf], default 2
        Shape of a row.
    offset : float, None or "learn"
        alpha in the logarithm, in the units of the coefficients; None takes a thousandth of sd(y) / sd(x), so that the
        fit does not depend on units. A large offset comes close to a mixed norm. "learn", the default of classifiers,
        chooses it with the noise by folds of the training rows (`bayesmtfs.estimators.prior_choice`); with the squared
        loss, a noise that is given or a shared mean it is 1e-3, the default of regressors.
    noise : "learn", float or None
        sigma, one for all tasks: the loss is divided by its square (Student's t and Huber: its residuals by sigma; the
        absolute and the quantile loss: by sigma itself, which makes it the scale of a Laplace density). "learn"
        needs one of these losses. None, the default of classifiers, is 1 unless it is chosen with the offset; then the
        row prior is ``(||w^i||_q + offset)^-(m sigma^2)``.
    graduated : bool
        Lower an offset that is given in stages down to its value, for better minima.
    noise_floor : float or None
        Least learned noise, as a share of sd(y); None searches it as `JeffreysRegressor` does: from a large one down, as
        long as residuals over their degrees of freedom say so (with Student's t and Huber where features outnumber the rows
        of a task, from the median absolute deviation).
    tol : float
        Fall of the objective per observation at which the fit has converged.
    max_iter : int
        Most convex problems at the final offset.

    Attributes
    ----------
    dispersion_ : (n_tasks,), degrees_ : float
        With ``loss="negative_binomial(learn)"`` and ``"student_t(learn)"``.
    objective_trace_ : (n_iter_ + 1,)
        Problem (5) at the final noise and offset, plus ``N ln sigma`` where sigma is learned; it never rises.
    """

    norm_q: float = 2
    offset: float | str | None = SMALL_OFFSET
    noise: float | str | None = "learn"
    graduated: bool = True
    max_iter: int = field(default=100, kw_only=True)

    def _check_parameters(self) -> None:
        self._check_common()
        self._require("norm_q", self.norm_q >= 1, "a number of at least 1, or np.inf")
        known = self.offset in ("learn", None) or (not isinstance(self.offset, str) and 0 < self.offset < np.inf)
        self._require("offset", known, "a positive number such as 1e-3, 'learn' or None")
        known = self.noise in ("learn", None) or (not isinstance(self.noise, str) and self.noise > 0)
        self._require("noise", known, "a positive number, or 'learn'")
        by_default = type(self).noise == "learn" and not self._family.has_noise  # there is nothing to learn
        if self.noise == "learn" and not self._may_learn_noise and not by_default:
            raise ValueError(
                f"noise='learn' needs loss='squared', 'huber', 'student_t', 'absolute' or 'quantile' but loss is "
                f"{self.loss!r}; pass a number, such as 1.0"
            )

    def _check_route(self) -> None:
        """Convex losses, for the weighted mixed norms, and those of residuals that lie below weighted squares."""
        family, name = self._family, type(self).__name__
        plain = family.smooth and not family.coupled and family.offers("curvature")
        if not (plain or family.coupled or family.offers("weights")):
            family.require(name, "conjugate")
        stated = family.offers("conjugate") and not isinstance(self.noise, str)  # convex, noise given
        own_part = family.offers("weights") or mm.learns(family)
        if self.shared_mean and not (plain and (stated or not own_part)):
            raise ValueError(f"shared_mean=True does not go with loss={self.loss!r}; leave it out, or use another loss")
        if mm.learns(family):
            family.require(f"{name}, which would learn it,", "best_parameter")

    def _fit(self, data: TaskData) -> None:
        """Fit data whose targets are numbers, or -1 and +1."""
        scaling = self._rescaled(data)
        scaled, family = scaling.data, self._family
        units = within_task_units(scaled, self.fit_intercept or family.free_level, family.has_noise)
        penalty = RowPenalty(1.0, float(self.norm_q))
        problem = Problem(scaled, family, penalty, scaled.weight, self._has_intercepts)
        known = self._settings(units.coefficient)
        chosen = self._choose_prior(problem, units.coefficient, known)
        start = chosen.start if chosen else self._last_fit(scaling) or self._mixed_norm_start(scaled)
        if chosen:
            settings = replace(known, noise=chosen.noise, offset=chosen.offset, graduated=False)
        else:
            settings = replace(known, noise_floor=self._least_noise(problem, known, units.target, start))
        self.offset_, mean = settings.offset, None
        if self.shared_mean:
            sigma = units.target if settings.noise is None else settings.noise
            mean_problem, begin = self._mean_problem(scaled, sigma), self._mean_start(scaled, start)
            point = shared_mean.fit_generalized_normal(mean_problem, settings, begin, sigma, progress=self.progress)
            solution, mean = shared_mean.as_sums(mean_problem, point), point.mean
        else:
            solution, state = mm.solve_state(problem, start, settings, progress=self.progress)
            for name in ("dispersion_", "degrees_"):
                self.__dict__.pop(name, None)
            if state.parameters is not None:
                found = float(state.parameters[0]) if family.one_for_all else state.parameters
                setattr(self, f"{family.learned}_", found)
        self._store_rows(data, solution, scaling, settings.norm_q, mean, offset=settings.offset)

    @property
    def _scales_wide_targets(self) -> bool:
        """A noise that is given is stated in the user's units."""
        return isinstance(self.noise, str)

    def _settings(self, unit: float) -> MMSettings:
        """What is known before the data are looked at, but for their unit."""
        offset = SMALL_OFFSET if self.offset == "learn" else self.offset
        noise = 1.0 if self.noise is None or isinstance(self.noise, str) else float(self.noise)
        return MMSettings(
            norm_q=float(self.norm_q),
            offset=RELATIVE_OFFSET * unit if offset is None else float(offset),
            noise=None if self._learns_noise else noise,
            graduated=self.graduated,
            tol=self.tol,
            max_iter=self.max_iter,
        )

    def _choose_prior(self, problem: Problem, unit: float, plain: MMSettings) -> RowPriorChoice | None:
        """Noise and offset by folds, where both are open and better than the plain ones."""
        family = self._family
        if self.offset != "learn" or self.noise is not None or self.shared_mean or family.quadratic:
            return None
        if family.offers("weights") or family.noise_power != 2.0 or mm.learns(family):
            return None

        def fit(data: TaskData) -> Solution:
            return mm.solve(
                replace(problem, data=data, weight=data.weight), self._mixed_norm_start(data), plain, progress=False
            )

        return choose(problem, unit, fit, progress=self.progress)

    @property
    def _may_learn_noise(self) -> bool:
        family = self._family
        stated = family.quadratic or family.offers("weights") or not family.smooth
        return stated and family.has_noise and family.of_residuals

    @property
    def _learns_noise(self) -> bool:
        return self.noise == "learn" and self._may_learn_noise

    def _least_noise(self, problem: Problem, settings: MMSettings, deviation: float, start: Solution) -> float:
        """Floor of a learned noise, in the units of y."""
        data = problem.data
        if self.noise_floor is not None:
            return self.noise_floor * deviation
        if not self._learns_noise:
            return 0.0
        if not self._family.quadratic:
            unit = _typical_deviation(data)
            if np.all(np.diff(data.offsets) > data.n_features + 1):  # no task can be fitted exactly
                return SMALLEST_SHARE * unit
            return jeffreys.find_scale_floor(problem, start, settings, unit)
        return jeffreys.find_noise_floor(self._problem(data), start)


@estimator_class()
class GeneralizedNormalRegressor(MultiTaskRegressor, GeneralizedNormalEstimator):
    """Multi-task regression with generalized normal rows (type II MAP, problem 5).

    Examples
    --------
    >>> from bayesmtfs import GeneralizedNormalRegressor, simulate_tasks
    >>> sim = simulate_tasks(n_tasks=4, n_features=30, n_relevant=3, n_samples=40, random_state=0)
    >>> model = GeneralizedNormalRegressor().fit(sim.X, sim.y, tasks=sim.tasks)
    >>> bool((model.get_support() == sim.support).all())
    True

    References
    ----------
    Zhang, Yeung, Xu (2010), Probabilistic multi-task feature selection, problem (5).
    """


@estimator_class()
class GeneralizedNormalClassifier(MultiTaskClassifier, GeneralizedNormalEstimator):
    """Multi-task classification with generalized normal rows (type II MAP, problem 5).

    Parameters
    ----------
    loss : "logistic", "hinge", "multinomial", "ordinal", "squared" or Family
        Several classes within tasks and ordered classes as in `MixedNormClassifier`.

    Attributes
    ----------
    thresholds_ : (n_tasks, n_classes - 1), with ``loss="ordinal"``
        As in `MixedNormClassifier`.

    Examples
    --------
    >>> from bayesmtfs import GeneralizedNormalClassifier, simulate_tasks
    >>> sim = simulate_tasks(n_tasks=4, n_features=20, n_relevant=3, kind="classification", random_state=0)
    >>> model = GeneralizedNormalClassifier().fit(sim.X, sim.y, tasks=sim.tasks)
    >>> model.predict_proba(sim.X[:5], tasks=sim.tasks[:5]).shape
    (5, 2)
    """

    _saved_attributes: ClassVar[Names] = ("thresholds_",)

    loss: str | Family = field(default="logistic", kw_only=True)
    offset: float | str | None = "learn"
    noise: float | str | None = None

    def _store(self, data: TaskData, solution: Solution, scaling: Rescaled, tol: float, **settings: Any) -> None:
        super()._store(data, solution, scaling, tol, **settings)
        self._store_cuts(data)


@estimator_class()
class JeffreysEstimator(GeneralizedNormalRows):
    """The body of both estimators.

    Parameters
    ----------
    norm_q : float in [1, inf] or "learn", default 2
        Shape of a row: 2 normal, smaller concentrates on few tasks, larger spreads evenly. "learn" estimates it.
    q_learning : {"two_stage", "integrated", "ecme", "paper"}
        How q is learned: from the active rows of the fit at q = 2, their estimation error taken into account (fast, the
        default); from Gibbs draws of everything; by the joint mode of W and q, which does not recover q; as printed.
    coefficients : {"mode", "integrated"}
        Mode of W, or its posterior mean at the row variances of largest evidence (needs ``norm_q=2``).
    init : "mixed_norm" or (n_tasks, n_features) array
        Where EM begins; features that are zero there stay zero.
    hyper_shape, hyper_rate : float
        Gamma prior of ``rho^-q``, rho in units of sd(y) / sd(x); both 0: Jeffreys.
    offset : float or "learn", default 0
        The row prior is ``(||w^i||_q + offset)^-m``, w in units of sd(y) / sd(x). "learn", the default of classifiers,
        chooses it by folds of the training rows, together with a noise sigma that divides the loss by its square
        (`bayesmtfs.estimators.prior_choice`; the start is then the fit that it ends with); it is 0 with a loss that has a
        noise of its own, a shared mean, another prior, an ``init``, a q learned by "ecme" or "paper", or integrated
        coefficients.
    noise_floor : float or None
        Least noise, as a share of sd(y). None begins at 0.5 and lowers it as long as the fit leaves clearly less.
    tol : float
        Largest change of a coefficient, in units of sd(y) / sd(x), at which EM has converged.
    random_state : int, RandomState or None
        For ``q_learning="integrated"``.

    Attributes
    ----------
    norm_q_ : float
    norm_q_interval_ : (float, float)
        90% interval of a learned q.
    coef_std_ : (n_tasks, n_features) or None
        Posterior standard deviations of the coefficients, with ``coefficients="integrated"``.
    objective_trace_ : (n_iter_ + 1,)
        Minus the log-posterior, scales integrated out; it never rises at fixed q and for "ecme".
    """

    _saved_attributes: ClassVar[Names] = ("norm_q_", "norm_q_interval_", "coef_std_")

    norm_q: float | str = 2
    q_learning: str = "two_stage"
    coefficients: str = "mode"
    init: str | ArrayLike = "mixed_norm"
    norm_q_bounds: tuple[float, float] = (1.0, 50.0)
    hyper_shape: float = 0.0
    hyper_rate: float = 0.0
    shared_noise: bool = False
    random_state: Any = None
    offset: float | str = 0.0

    def _check_parameters(self) -> None:
        check_choice("q_learning", self.q_learning, Q_LEARNING)
        check_choice("coefficients", self.coefficients, ("mode", "integrated"))
        if isinstance(self.init, str):
            check_choice("init", self.init, ("mixed_norm",))
        self._check_norm_q()
        self._check_common()
        known = self.offset == "learn" or (not isinstance(self.offset, str) and 0 <= self.offset < np.inf)
        self._require("offset", known, "a number of at least 0, or 'learn'")
        family, name = self._family, type(self).__name__
        if family.has_noise and not family.quadratic:
            raise ValueError(
                f"{name} learns the noise of the squared loss only, and {family} has a noise too; use loss='squared'"
            )
        if self.coefficients == "integrated":
            family.require("coefficients='integrated'", "augmentation")
            if not family.augmentation.bounded:
                raise ValueError(
                    f"coefficients='integrated' has no normal bound for loss={self.loss!r}; use coefficients='mode'"
                )
            if self.shared_mean and not family.quadratic:
                raise ValueError(
                    "shared_mean=True with coefficients='integrated' needs loss='squared' but loss is "
                    f"{self.loss!r}; pass coefficients='mode', or loss='squared'"
                )

    def _check_norm_q(self) -> None:
        known = self.norm_q == "learn" if isinstance(self.norm_q, str) else self.norm_q >= 1
        self._require("norm_q", known, "a number of at least 1, np.inf, or 'learn'")
        low, high = self.norm_q_bounds
        self._require("norm_q_bounds", 1 <= low < high < np.inf, "two finite numbers, 1 <= low < high, such as (1, 50)")
        if self.coefficients == "integrated" and self.norm_q != 2:
            raise ValueError(
                f"coefficients='integrated' needs norm_q=2, where the integral has a closed form, but norm_q is "
                f"{self.norm_q!r}; pass norm_q=2, or coefficients='mode'"
            )

    def _em_settings(self, **settings: Any) -> EMSettings:
        return EMSettings(
            shape=self.hyper_shape,
            rate=self.hyper_rate,
            offset=self.offset_,
            shared_noise=self.shared_noise,
            tol=self.tol,
            max_iter=self.max_iter,
            **settings,
        )

    def _fit(self, data: TaskData) -> None:
        """Fit data whose targets are numbers, or -1 and +1."""
        scaling = self._rescaled(data)
        self._warn_of_single_rows(data)
        self.offset_ = 0.0 if isinstance(self.offset, str) else float(self.offset)
        found = self._fit_integrated(scaling) if self.coefficients == "integrated" else self._fit_mode(scaling)
        self.norm_q_ = float(found.norm_q)
        self.norm_q_interval_ = self._interval(found)
        self._store_rows(data, found.solution, scaling, self.norm_q_, found.mean)
        std = found.coef_std
        self.coef_std_ = None if std is None else (std * (scaling.target / scaling.feature)).T.copy()

    def _fit_mode(self, scaling: Rescaled) -> JeffreysFit:
        if self.norm_q == "learn" and self.q_learning == "paper":
            warn(
                "q_learning='paper' is the printed update, which depends on the units of y and does not recover q; "
                "use 'two_stage' or 'integrated' for anything but reproduction",
                DataWarning,
            )
        data, start, noise = scaling.data, self._start(scaling), 1.0
        chosen = self._choose_prior(data)
        if chosen:
            self.offset_, noise, start = chosen.offset, chosen.noise, chosen.start
        settings = JeffreysSettings(
            norm_q=None if self.norm_q == "learn" else float(self.norm_q),
            q_learning=cast(jeffreys.QLearning, self.q_learning),
            q_bounds=(float(self.norm_q_bounds[0]), float(self.norm_q_bounds[1])),
            start_strength=self.start_strength,
            noise_floor=self.noise_floor,
            em=self._em_settings(noise=noise),
            random_seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
        )
        if self.shared_mean:
            problem, begin = self._mean_problem(data), self._mean_start(data, start)
            return shared_mean.fit_jeffreys(problem, settings, begin, progress=self.progress)
        return jeffreys.fit(self._problem(data), settings, start, self.progress)

    def _choose_prior(self, data: TaskData) -> RowPriorChoice | None:
        """Noise and offset by folds, where they are open and better than 1 and 0; the start in the user's units."""
        other = self.shared_mean or self._family.quadratic or self.hyper_shape > 0 or self.hyper_rate > 0
        joint = self.norm_q == "learn" and self.q_learning in ("ecme", "paper")
        if self.offset != "learn" or other or joint or not isinstance(self.init, str):
            return None
        norm_q, whole = 2.0 if self.norm_q == "learn" else float(self.norm_q), self._problem(data)
        plain = JeffreysSettings(norm_q, start_strength=self.start_strength, em=self._em_settings())

        def fit(data: TaskData) -> Solution:
            return jeffreys.fit(self._problem(data), plain, progress=False).solution

        chosen = choose(jeffreys.unitless_problem(whole, norm_q), 1.0, fit, progress=self.progress)
        return chosen and chosen._replace(start=chosen.start._replace(W=whole.units.to_user(chosen.start.W)))

    def _fit_integrated(self, scaling: Rescaled) -> JeffreysFit:
        return self._as_fit(*self._fit_evidence(scaling.data))

    def _fit_evidence(self, data: TaskData, **options: Any) -> tuple[EvidenceSolution, FloatArray | None]:
        """Posterior of largest evidence, and the shared mean where there is one; W is then the sums."""
        options |= {"shared_noise": self.shared_noise, "noise_floor": self.noise_floor, "progress": self.progress}
        options |= {"tol": self.tol, "max_iter": self.max_iter}
        if self.shared_mean:
            options.pop("start", None)
            problem = self._mean_problem(data)
            mean, found = shared_mean.maximise_evidence(problem, **options)
            return found._replace(W=problem.sums(mean, found.W)), mean
        return evidence.solve(data, self._family, fit_intercept=self.fit_intercept, **options), None

    def _as_fit(self, found: EvidenceSolution, mean: FloatArray | None) -> JeffreysFit:
        return JeffreysFit(found.as_solution(), 2.0, None, np.sqrt(found.W_variance), mean=mean)

    def _start(self, scaling: Rescaled) -> Solution | None:
        """The last fit or the user's start, where there is one."""
        data, last = scaling.data, self._last_fit(scaling)
        if last is not None or isinstance(self.init, str):
            return last
        coef, wanted = np.asarray(self.init, dtype=np.float64), (data.n_tasks, data.n_features)
        if coef.shape != wanted:
            raise ValueError(f"init has shape {coef.shape}; pass coefficients of shape {wanted}, or 'mixed_norm'")
        return scaling.start(coef, np.zeros(data.n_tasks))

    def _interval(self, found: JeffreysFit) -> tuple[float, float]:
        if self.norm_q != "learn":
            return (self.norm_q_, self.norm_q_)
        if found.exponent is None:
            warn("q cannot be learned: no row is active; lower start_strength, or pass a number as norm_q", DataWarning)
            return (float(self.norm_q_bounds[0]), float(self.norm_q_bounds[1]))
        low, high = found.exponent.interval
        if not found.exponent.identified:
            warn(
                f"q is not identified: its 90% interval from {low:.2g} to {high:.2g} covers most of the range of 1/q, "
                "as is usual with few tasks or few active features; take norm_q_ as a guess, or pass a number",
                DataWarning,
            )
        return (float(low), float(high))

    def _warn_of_single_rows(self, data: TaskData) -> None:
        single = data.task_names[np.diff(data.offsets) == 1]
        if self._family.quadratic and len(single) and data.n_tasks > 1:
            warn(
                f"task {single.tolist()[0]!r} has one row only, so that its noise is not known and is taken at its "
                "floor; set shared_noise=True or drop the task",
                DataWarning,
            )


@estimator_class()
class JeffreysRegressor(MultiTaskRegressor, JeffreysEstimator):
    """Multi-task regression under the Jeffreys prior on row scales (PMTFS1).

    Examples
    --------
    >>> from bayesmtfs import JeffreysRegressor, simulate_tasks
    >>> sim = simulate_tasks(n_tasks=4, n_features=30, n_relevant=3, n_samples=40, random_state=0)
    >>> model = JeffreysRegressor().fit(sim.X, sim.y, tasks=sim.tasks)
    >>> bool((model.get_support() == sim.support).all())
    True

    References
    ----------
    Zhang, Yeung, Xu (2010), Probabilistic multi-task feature selection.
    """


@estimator_class()
class JeffreysClassifier(MultiTaskClassifier, JeffreysEstimator):
    """Multi-task classification under the Jeffreys prior on row scales (PMTFS1).

    Parameters
    ----------
    loss : "logistic", "squared" or Family
        Logistic, or normal noise around labels -1 and +1 as in the paper's experiments (it keeps more features).

    Examples
    --------
    >>> from bayesmtfs import JeffreysClassifier, simulate_tasks
    >>> sim = simulate_tasks(n_tasks=4, n_features=20, n_relevant=3, kind="classification", random_state=0)
    >>> model = JeffreysClassifier().fit(sim.X, sim.y, tasks=sim.tasks)
    >>> model.predict_proba(sim.X[:5], tasks=sim.tasks[:5]).shape
    (5, 2)
    """

    loss: str | Family = field(default="logistic", kw_only=True)
    offset: float | str = "learn"


@estimator_class()
class MatrixVariateEstimator(JeffreysEstimator):
    """The body of both estimators.

    Parameters
    ----------
    norm_q : float in [1, inf) or "learn", default 2
        Shape of a row; a q that is learned is that of the fit without relations.
    coefficients : {"mode", "integrated"}
        Mode of W, or its posterior mean at the row variances, noise and relations of largest evidence (needs
        ``norm_q=2``). Only the latter gains from relations: 4 to 16% lower error on related tasks.
    relation_shrinkage : float or None
        How strongly the relations are pulled to 0: the number of further, unrelated rows to count in. None chooses it
        by the data.
    noise_floor : float or None
        Least noise, as a share of sd(y). None: at the mode, half of what the fit without relations leaves; integrated,
        a thousandth of sd(y).
    tol : float
        Largest change of a coefficient, in units of sd(y) / sd(x), at which EM has converged; integrated, the fall of
        the objective per observation.

    Attributes
    ----------
    task_relations_ : (n_tasks, n_tasks)
        Correlation of the tasks' coefficients (with ``shared_mean``, of their deviations), in the order of ``tasks_``:
        unit diagonal, never singular.
    relation_shrinkage_ : float
        Shrinkage that was used.
    row_variances_ : (n_features,) or None
        Prior variance of each row, exactly 0 for features that are out, at the mean unit where tasks have their own;
        None at the mode.
    row_scales_ : (n_features,)
        Scale of each row of ``W R^(-1/2)``, 0 for features that are out.
    objective_trace_ : array
        Minus the log-posterior at the mode, minus the log-evidence integrated, with the pull of the relations; it never
        rises.
    """

    _saved_attributes: ClassVar[Names] = ("task_relations_", "relation_shrinkage_", "row_variances_")

    relation_shrinkage: float | None = None

    def _check_parameters(self) -> None:
        super()._check_parameters()
        positive = self.relation_shrinkage is None or self.relation_shrinkage > 0
        wanted = "the number of unrelated rows to count in, above 0, such as 5, or None"
        self._require("relation_shrinkage", positive, wanted)
        if self.norm_q == np.inf:
            raise ValueError("norm_q is inf, for which task relations are not fitted; pass a finite norm_q, such as 50")

    def _fit(self, data: TaskData) -> None:
        check_memory(
            DENSE_MATRICES * 8 * data.n_tasks**2,
            f"relations between all pairs of {data.n_tasks} tasks",
            "fit groups of tasks apart, use JeffreysRegressor or JeffreysClassifier, which have none, or learn the "
            "strongest relations only with OnlineSmoothedRegressor or OnlineSmoothedClassifier(neighbours=5)",
        )
        super()._fit(data)
        self.result_ = replace(self.result_, task_relations=self.task_relations_)

    def _fit_mode(self, scaling: Rescaled) -> JeffreysFit:
        data, unrelated = scaling.data, super()._fit_mode(scaling)
        floor = 0.0 if self.noise_floor is None else self.noise_floor
        noise = (
            1.0 if self._family.quadratic or unrelated.solution.noise is None else float(unrelated.solution.noise[0])
        )
        settings = self._em_settings(norm_q=unrelated.norm_q, noise_floor=floor, noise=noise)
        options: dict[str, Any] = {"shrinkage": self.relation_shrinkage, "progress": self.progress}
        mean = None
        if self.shared_mean:
            problem = self._mean_problem(data)
            related, mean = shared_mean.fit_matrix_variate(problem, settings, unrelated, **options)
        else:
            related = matrix_variate.fit(self._problem(data), settings, unrelated.solution, **options)
        self.task_relations_, self.relation_shrinkage_ = related.relations.matrix, related.shrinkage
        self.row_variances_: FloatArray | None = None
        return unrelated._replace(solution=related.solution, mean=mean)

    def _fit_integrated(self, scaling: Rescaled) -> JeffreysFit:
        data, unit = scaling.data, np.mean((scaling.target / scaling.feature) ** 2, axis=1)
        options: dict[str, Any] = {"relations": "learn", "relation_shrinkage": self.relation_shrinkage}
        found, mean = self._fit_evidence(data, **options, start=self._last_posterior(scaling, unit))
        self.task_relations_ = np.eye(data.n_tasks) if found.task_relations is None else found.task_relations
        self.relation_shrinkage_ = float(found.relation_shrinkage or 0.0)
        self.row_variances_ = found.row_variances * unit
        return self._as_fit(found, mean)

    def _last_posterior(self, scaling: Rescaled, unit: FloatArray) -> EvidenceSolution | None:
        """What the last fit found, where that is wanted and fits the data; ``unit`` is that of the row variances."""
        data = scaling.data
        variances = getattr(self, "row_variances_", None)
        if not self.warm_start or variances is None:
            return None
        if variances.shape != (data.n_features,) or self.task_relations_.shape != (data.n_tasks, data.n_tasks):
            return None
        return evidence.start_from(variances / unit, self.noise_ / scaling.target, self.task_relations_)

    def _row_scales(self, data: TaskData, V: FloatArray, norm_q: float, target: FloatArray) -> FloatArray:
        """(p,) Best scale of each feature's whitened row; features of a group share theirs."""
        values, vectors = np.linalg.eigh(self.task_relations_)
        whitened = (V / target) @ (vectors / np.sqrt(values)) @ vectors.T * target.mean()
        blocks = Blocks(data.n_features, data.n_tasks, groups=data.groups)
        return GeneralizedNormal(norm_q).row_scales(blocks.gather(whitened))[blocks.row_of_feature]


@estimator_class()
class MatrixVariateRegressor(MultiTaskRegressor, MatrixVariateEstimator):
    """Multi-task regression with task relations (PMTFS2).

    Examples
    --------
    >>> from bayesmtfs import MatrixVariateRegressor, simulate_tasks
    >>> sim = simulate_tasks(n_tasks=4, relatedness=0.9, opposed_tasks=1, n_relevant=6, random_state=1)
    >>> model = MatrixVariateRegressor(coefficients="integrated").fit(sim.X, sim.y, tasks=sim.tasks)
    >>> bool((model.get_support() == sim.support).all())
    True
    >>> (model.task_relations_[3] > 0).tolist()
    [False, False, False, True]

    References
    ----------
    Zhang, Yeung, Xu (2010), Probabilistic multi-task feature selection. Wipf, Rao (2007), An empirical Bayesian
    strategy for solving the simultaneous sparse approximation problem.
    """


@estimator_class()
class MatrixVariateClassifier(MultiTaskClassifier, MatrixVariateEstimator):
    """Multi-task classification with task relations (PMTFS2).

    Parameters
    ----------
    loss : "logistic", "squared" or Family
        Logistic (integrated: through a normal bound), or normal noise around labels -1 and +1 as in the paper.

    Examples
    --------
    >>> from bayesmtfs import MatrixVariateClassifier, simulate_tasks
    >>> sim = simulate_tasks(n_tasks=4, n_features=20, n_relevant=3, kind="classification", random_state=0)
    >>> model = MatrixVariateClassifier(coefficients="integrated").fit(sim.X, sim.y, tasks=sim.tasks)
    >>> model.task_relations_.shape
    (4, 4)
    """

    loss: str | Family = field(default="logistic", kw_only=True)
    offset: float | str = "learn"
