"""Penalised estimators: the MAP of a model under a prior on the rows of W.

    minimise  sum_t (1/n_t) sum_i loss(y_i, x_i' w_t + b_t) + penalty_strength * sum_i ||w^i||_q + ridge / 2 ||W||_F^2

``norm_q=1`` is iMTFS (independent lassos), ``norm_q=2`` aMTFS or MTFS_1,2 (Obozinski, Taskar and Jordan 2006; Yang,
King and Lyu 2010, eq. 4), ``norm_q=inf`` MTFS_1,inf, ``loss="hinge"`` the joint SVM, and ``task_sparsity > 0`` MTFTS
(Yang, King and Lyu 2010, eq. 6): ``penalty_strength * sum_i (r ||w^i||_1 + ||w^i||_2)``. The same models in PyMC are
`bayesmtfs.models.mixed_norm_model`; the hinge has a pseudo-likelihood only. ``ridge > 0`` is the elastic net of Zou and
Hastie 2005 for several tasks: scikit-learn's ``MultiTaskElasticNet(alpha, l1_ratio)`` is ``loss_scale="mean"`` on a wide
Y with ``penalty_strength = alpha * l1_ratio`` and ``ridge = alpha * (1 - l1_ratio)``.
"""

import numbers
from dataclasses import field
from typing import Any, ClassVar

from bayesmtfs.convex import automatic, dispersion, shared_mean
from bayesmtfs.convex.problem import Problem
from bayesmtfs.convex.refit import refit_selected
from bayesmtfs.data.scaling import Rescaled, keep_moments
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.estimators.base import BatchEstimator, check_choice, check_family, estimator_class
from bayesmtfs.estimators.predictors import MultiTaskClassifier, MultiTaskRegressor
from bayesmtfs.families import Family, find_family
from bayesmtfs.priors.row_penalty import Penalty, check_not_negative, own_penalty
from bayesmtfs.types import ConvergenceWarning, LossScale, Solution, warn

DEFAULT_SHARE = 0.1  # of the largest penalty, where the user names no strength


@estimator_class()
class MixedNormEstimator(BatchEstimator):
    """An l1,q penalised fit of any loss.

    Parameters
    ----------
    norm_q : float in [1, inf], default 2
        How the tasks share a feature: 1 = each task selects for itself, inf = only the largest coefficient counts.
    penalty_strength : float or None
        Weight of the penalty; None takes a tenth of the smallest strength at which all coefficients are zero.
    task_sparsity : float, default 0
        r of MTFTS: also makes single entries of a selected row zero. Needs ``norm_q=2``.
    solver : "auto" or the name of a solver
        See `bayesmtfs.convex.automatic`.
    penalty : Penalty or None
        A penalty of your own on the rows, in place of ``norm_q`` and ``task_sparsity``: an object of a subclass of
        `bayesmtfs.priors.Penalty` with value, dual norm and proximal step. It goes with smooth losses.
    ridge : float, default 0
        Elastic part: adds ``ridge / 2 ||W||_F^2``, for signals that are spread over many features, and correlated ones.
        With a shared mean it acts on the deviations, as the penalty does.
    refit : bool
        Fit the selected coefficients once more without their penalty, against shrinkage.
    shared_mean : bool
        Weights are ``w_0 + v_t`` with the penalty on the deviations v; see `bayesmtfs.convex.shared_mean`.
    mean_penalty : float, default 0
        Adds ``mean_penalty * ||w_0||_1``, which makes the mean sparse: with about as many features as observations a
        ridge alone (``mean_strength``) is not enough.
    tol : float
        Duality gap to reach, relative to the objective at W = 0.

    Attributes
    ----------
    penalty_strength_ : float
        Strength that was used.
    objective_, dual_gap_ : float
        Objective at the solution, and a bound on how far it can be above the minimum.
    converged_ : bool
        Whether ``dual_gap_ <= tol *`` objective at W = 0.
    dispersion_ : (n_tasks,), with ``loss="negative_binomial(learn)"``
        Dispersion of the counts; objective and gap are those at it.
    mean_coef_, mean_strength_, mean_penalty_ : with ``shared_mean``
        The mean w_0 (in standardised units with ``standardize``), its ridge, and the weight of its 1-norm.

    References
    ----------
    Obozinski, Taskar, Jordan (2006), Multi-task feature selection. Zhang, Yeung, Xu (2010), Probabilistic multi-task
    feature selection, problem (1). Yang, King, Lyu (2010), Online learning for multi-task feature selection.
    """

    _takes_offset = True
    _numbers: ClassVar[tuple[str, ...]]
    _numbers = (
        "norm_q",
        "penalty_strength",
        "task_sparsity",
        "tol",
        "max_iter",
        "mean_strength",
        "mean_penalty",
        "ridge",
    )
    _saved_attributes: ClassVar[tuple[str, ...]]
    _saved_attributes = (
        *("penalty_strength_", "objective_", "dual_gap_"),
        *("mean_strength_", "mean_penalty_", "mean_coef_", "dispersion_"),
    )

    norm_q: float = 2
    penalty_strength: float | None = None
    task_sparsity: float = 0.0
    loss: str | Family = "squared"
    loss_scale: LossScale = "mean"
    solver: str = "auto"
    refit: bool = False
    penalty: Penalty | None = field(default=None, kw_only=True)
    ridge: float = field(default=0.0, kw_only=True)
    mean_penalty: float | None = field(default=0.0, kw_only=True)
    max_iter: int = field(default=10_000, kw_only=True)

    def _check_parameters(self) -> None:
        for name in self._numbers:
            value = getattr(self, name)
            if value is not None and not isinstance(value, numbers.Real):
                hint = ", or use the CV class to choose among several" if isinstance(value, list | tuple) else ""
                raise ValueError(f"{name} is {value!r}; pass a number{hint}")
        if self.penalty_strength is not None and not self.penalty_strength >= 0:
            raise ValueError(f"penalty_strength is {self.penalty_strength}; pass a number of at least 0, or None")
        check_not_negative("ridge", self.ridge, ", such as 0.01 (0: no elastic part)")
        check_not_negative("mean_penalty", self.mean_penalty or 0.0, " (0: the mean is not sparse)")
        self._check_common()
        check_choice("loss_scale", self.loss_scale, ("mean", "sum"))
        check_choice("solver", self.solver, ("auto", *automatic.SOLVERS))
        if self._may_share_mean:
            self._check_shared_mean()

    @property
    def _may_share_mean(self) -> bool:
        return bool(self.shared_mean)

    def _check_loss(self) -> None:
        family = check_family(self.loss, labels=isinstance(self, MultiTaskClassifier))
        if family.offers("weights") and not family.offers("conjugate"):
            raise ValueError(
                f"loss={family.name!r} is not convex, so that no duality gap certifies a penalised fit; use loss='huber' "
                "here, or this loss in GeneralizedNormalRegressor or BayesianRegressor"
            )
        if family.learned is not None and not family.has_cuts:
            family.require("A penalised fit that learns it", "best_parameter")
            if self.shared_mean:
                raise ValueError(
                    f"shared_mean=True does not go with loss={family.name!r}; pass a number for its {family.learned}"
                )

    def _check_shared_mean(self) -> None:
        if self.refit:
            raise ValueError("refit=True and shared_mean=True do not go together: a shared mean selects no features")
        family = find_family(self.loss)
        if family.coupled:
            raise ValueError(
                f"shared_mean=True does not go with loss={family.name!r}, whose rows share a loss; leave it out"
            )
        if not family.smooth:
            raise ValueError(
                f"shared_mean=True needs a smooth loss but loss is {self.loss!r}; use 'squared' or 'logistic'"
            )

    def _fit(self, data: TaskData) -> None:
        self._fit_as(self, data, self.penalty_strength)

    def _fit_as(self, model: "MixedNormEstimator", data: TaskData, strength: float | None) -> None:
        """Fit data whose targets are numbers, or -1 and +1, with the penalty of a model; what is None is found in them."""
        scaling = self._rescaled(data)
        problem = model._problem(scaling.data, strength)
        self._warn_of_units(data)
        solution = self._solve(problem, model, self._last_fit(scaling))
        _warn_if_not_converged(solution, self.tol, self.max_iter)
        final = refit_selected(problem, solution, tol=self.tol, max_iter=self.max_iter) if self.refit else solution
        self.penalty_strength_ = problem.penalty.strength
        self._store(data, final, scaling, tol=self.tol, penalty_strength=self.penalty_strength_)
        self.objective_, self.dual_gap_ = solution.objective, solution.gap

    def _problem(self, data: TaskData, strength: float | None) -> Problem:
        penalty = own_penalty(self.penalty, strength or 0.0, self.norm_q, self.task_sparsity)
        weight = data.loss_weights(self.loss_scale)
        family = find_family(self.loss)
        fit_intercept = self.fit_intercept and not family.has_cuts  # which stand in its place
        problem = Problem(data, family, penalty, weight, fit_intercept, float(self.ridge))
        if family.learned is not None and not family.has_cuts:
            problem = dispersion.settled(problem, family)
        if not self.shared_mean:
            self._take_products(problem)
        if strength is None:
            return problem.with_strength(DEFAULT_SHARE * automatic.largest_penalty(problem, self.solver))
        return problem

    def _take_products(self, problem: Problem) -> None:
        """Let the one pass that a solver makes over the data of few features tell their deviations, too."""
        found = automatic.take_products(problem, self.solver)
        if found is not None and problem.fit_intercept:
            keep_moments(problem.data, found.means, found.squares / problem.task_weight)

    def _solve(self, problem: Problem, model: "MixedNormEstimator", start: Solution | None) -> Solution:
        stop: dict[str, Any] = {"tol": self.tol, "max_iter": self.max_iter, "progress": self.progress}
        family = find_family(self.loss)
        if family.learned is not None and not family.has_cuts:

            def solve(known: Problem, last: Solution | None) -> Solution:
                return automatic.solve(known, last, solver=self.solver, **stop)

            found, _, parameters = dispersion.alternate(problem, family, solve, solve(problem, start))
            setattr(self, f"{family.learned}_", parameters)
            return found
        if not model.shared_mean:
            return automatic.solve(problem, start, solver=self.solver, **stop)
        self.mean_strength_: float | None = model.mean_strength or shared_mean.default_mean_strength(
            problem, model.standardize
        )
        self.mean_penalty_: float | None = model.mean_penalty or 0.0
        around_mean = shared_mean.solve(problem, self.mean_strength_, mean_penalty=self.mean_penalty_, **stop)
        self.mean_coef_ = around_mean.mean
        return around_mean.solution


def _warn_if_not_converged(solution: Solution, tol: float, max_iter: int) -> None:
    if solution.converged:
        return
    reason = "was interrupted" if solution.interrupted else f"stopped after {solution.n_iter} iterations"
    more = "raise max_iter or tol" if solution.n_iter >= max_iter else "raise tol"
    warn(
        f"the solver {reason} at a duality gap of {solution.gap / solution.scale:.1e} of the objective at W = 0, with "
        f"tol={tol:g}; {more}, standardise the features, or raise penalty_strength",
        ConvergenceWarning,
    )


@estimator_class()
class MixedNormRegressor(MultiTaskRegressor, MixedNormEstimator):
    """Multi-task regression with an l1,q penalty on the rows of W.

    Parameters
    ----------
    loss : "squared", "absolute", or a family of numbers or counts
        See `bayesmtfs.families`.

    Examples
    --------
    >>> from bayesmtfs import MixedNormRegressor, simulate_tasks
    >>> sim = simulate_tasks(n_tasks=4, n_features=20, n_relevant=3, n_samples=50, random_state=0)
    >>> model = MixedNormRegressor(penalty_strength=0.3).fit(sim.X, sim.y, tasks=sim.tasks)
    >>> bool((model.get_support() == sim.support).all()), model.converged_
    (True, True)
    """


@estimator_class()
class MixedNormClassifier(MultiTaskClassifier, MixedNormEstimator):
    """Multi-task classification with an l1,q penalty on the rows of W.

    Several classes become one-versus-rest tasks over one design, so that the penalty selects features for all classes
    together. With ``loss="multinomial"`` there may be several classes within every task: a row of the penalty holds a
    feature's coefficients over tasks x classes, and ``coef_`` is (n_tasks, n_classes, n_features). With ``loss="ordinal"``
    classes are ordered, numbers in rising order: ``P(y <= k) = 1 / (1 + exp(eta - c_k))`` with one eta and ordered
    thresholds c of each task's own, and the most probable class is predicted.

    Parameters
    ----------
    loss : "logistic", "hinge", "multinomial", "ordinal", or a family of labels

    Attributes
    ----------
    thresholds_ : (n_tasks, n_classes - 1), with ``loss="ordinal"``
        Cut points between the classes, in rising order; ``intercept_`` is 0. Beside a class that a task does not have two
        are the same, or infinite at the ends.

    Examples
    --------
    >>> from bayesmtfs import MixedNormClassifier, simulate_tasks
    >>> sim = simulate_tasks(n_tasks=4, n_features=20, kind="classification", random_state=0)
    >>> model = MixedNormClassifier().fit(sim.X, sim.y, tasks=sim.tasks)
    >>> model.predict_proba(sim.X[:5], tasks=sim.tasks[:5]).shape, model.converged_
    ((5, 2), True)
    """

    _saved_attributes: ClassVar[tuple[str, ...]] = ("thresholds_",)

    loss: str | Family = "logistic"

    def _store(self, data: TaskData, solution: Solution, scaling: Rescaled, tol: float, **settings: Any) -> None:
        super()._store(data, solution, scaling, tol, **settings)
        self._store_cuts(data)
