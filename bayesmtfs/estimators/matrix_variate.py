"""Matrix-variate estimators (PMTFS2): rows with task relations, fitted by EM or with the coefficients integrated out.

A row of W is ``rho_i z' R^(1/2)`` with generalized normal z, R a correlation matrix of the tasks that is learned along
(Zhang, Yeung and Xu 2010, section 4.3). ``coefficients="mode"`` minimises over W (`em_matrix_variate`, any q);
``"integrated"`` takes the posterior mean of W at the row variances, noise and R of largest evidence
(`evidence`, q = 2). Only the second makes predictions better by the relations.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from bayesmtfs.data.inputs import check_memory
from bayesmtfs.data.scaling import standardize
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.em import (
    evidence,
    jeffreys_fit,
    matrix_variate_fit,
)
from bayesmtfs.em import (
    jeffreys as em_jeffreys,
)
from bayesmtfs.em import (
    shared_mean_routes as em_shared_mean_routes,
)
from bayesmtfs.estimators.em import JeffreysEstimator
from bayesmtfs.estimators.predictors import MultiTaskClassifier, MultiTaskRegressor
from bayesmtfs.families import find_family
from bayesmtfs.priors.blocks import Blocks
from bayesmtfs.priors.generalized_normal import GeneralizedNormal
from bayesmtfs.priors.matrix_variate import MatrixVariate
from bayesmtfs.types import FloatArray

DENSE_MATRICES = 4  # (m, m) matrices in memory at a time, at least: sums of products, R, its root and its inverse


@dataclass(repr=False, eq=False)
class MatrixVariateEstimator(JeffreysEstimator):
    """The body of both estimators."""

    _saved_attributes: ClassVar[tuple[str, ...]] = (
        *JeffreysEstimator._saved_attributes,
        "task_relations_",
        "relation_shrinkage_",
        "row_variances_",
    )

    relation_shrinkage: float | None = None

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.relation_shrinkage is not None and not self.relation_shrinkage > 0:
            raise ValueError(
                f"relation_shrinkage is {self.relation_shrinkage}; pass the number of unrelated rows to count in, "
                "above 0, such as 5, or None"
            )
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
        scales = standardize(data)[1] if self.standardize and self.shared_mean else None
        self.row_scales_ = self._whitened_row_scales(data, self._deviations(data, scales))
        self.result_ = replace(self.result_, task_relations=self.task_relations_)

    def _fit_mode(self, data: TaskData, scales: FloatArray | None) -> jeffreys_fit.JeffreysFit:
        unrelated = super()._fit_mode(data, scales)
        settings = em_jeffreys.Settings(
            norm_q=unrelated.norm_q,
            shape=self.hyper_shape,
            rate=self.hyper_rate,
            noise_floor=0.0 if self.noise_floor is None else self.noise_floor,
            shared_noise=self.shared_noise,
            tol=self.tol,
            max_iter=self.max_iter,
        )
        mean = None
        if self.shared_mean:
            problem, _ = self._mean_frame(data)
            related, mean = em_shared_mean_routes.fit_matrix_variate(
                problem, settings, unrelated, self.relation_shrinkage, progress=self.progress
            )
        else:
            related = matrix_variate_fit.fit(
                data,
                find_family(self.loss),
                settings,
                unrelated.solution,
                fit_intercept=self.fit_intercept,
                shrinkage=self.relation_shrinkage,
                progress=self.progress,
            )
        self.task_relations_, self.relation_shrinkage_ = related.task_relations, related.shrinkage
        self.row_variances_: FloatArray | None = None
        return unrelated._replace(solution=related.solution, mean=mean)

    def _fit_integrated(self, data: TaskData) -> jeffreys_fit.JeffreysFit:
        relations = {"relations": "learn", "relation_shrinkage": self.relation_shrinkage}
        found, mean = self._fit_evidence(data, **relations, start=self._last_posterior(data))
        self.task_relations_ = np.eye(data.n_tasks) if found.task_relations is None else found.task_relations
        self.relation_shrinkage_ = float(found.relation_shrinkage or 0.0)
        self.row_variances_ = found.row_variances
        return jeffreys_fit.JeffreysFit(found.as_solution(), 2.0, None, np.sqrt(found.W_variance), mean=mean)

    def _last_posterior(self, data: TaskData) -> evidence.EvidenceSolution | None:
        """What the last fit found, where that is wanted and fits the data."""
        variances = getattr(self, "row_variances_", None)
        if not self.warm_start or variances is None:
            return None
        if variances.shape != (data.n_features,) or self.task_relations_.shape != (data.n_tasks, data.n_tasks):
            return None
        return evidence.start_from(variances, self.noise_, self.task_relations_)

    def _whitened_row_scales(self, data: TaskData, W: FloatArray) -> FloatArray:
        """(p,) Best scale of each feature's whitened row, in the user's units; features of a group share theirs."""
        values, vectors = np.linalg.eigh(self.task_relations_)
        whitened = MatrixVariate(2.0, (vectors * np.sqrt(values)) @ vectors.T).whiten(W)
        blocks = Blocks(data.n_features, data.n_tasks, groups=data.groups)
        return GeneralizedNormal(self.norm_q_).row_scales(blocks.gather(whitened))[blocks.row_of_feature]


@dataclass(repr=False, eq=False)
class MatrixVariateRegressor(MultiTaskRegressor, MatrixVariateEstimator):
    """Multi-task regression with task relations (PMTFS2).

    Parameters
    ----------
    norm_q : float in [1, inf) or "learn", default 2
        Shape of a row; see `JeffreysRegressor`.
    q_learning : {"two_stage", "integrated", "ecme", "paper"}
        How q is learned; see `JeffreysRegressor`. It is learned in the fit without relations.
    coefficients : {"mode", "integrated"}
        Mode of W, or its posterior mean at the row variances, noise and relations of largest evidence (needs
        ``norm_q=2``). Only the latter gains from relations: 4 to 16% lower error on related tasks.
    relation_shrinkage : float or None
        How strongly the relations are pulled to 0: the number of further, unrelated rows to count in. None chooses it
        by the data.
    init, start_strength, norm_q_bounds, hyper_shape, hyper_rate : see `JeffreysRegressor`; used at the mode
    noise_floor : float or None
        Least noise, as a share of sd(y). None: at the mode, half of what the fit without relations leaves; integrated,
        a thousandth of sd(y).
    shared_noise : bool
        One noise level for all tasks.
    fit_intercept, standardize, shared_mean, mean_strength, task_column, unknown_task, groups, tol, max_iter,
    warm_start, random_state, progress : see `JeffreysRegressor`; integrated, ``tol`` is the fall of the objective per
        observation

    Attributes
    ----------
    coef_ : (n_tasks, n_features)
    intercept_ : (n_tasks,)
    task_relations_ : (n_tasks, n_tasks)
        Correlation of the tasks' coefficients, in the order of ``tasks_``: unit diagonal, never singular.
    relation_shrinkage_ : float
        Shrinkage that was used.
    coef_std_ : (n_tasks, n_features) or None
        Posterior standard deviations of the coefficients; None at the mode.
    row_variances_ : (n_features,) or None
        Prior variance of each row, exactly 0 for features that are out; None at the mode.
    norm_q_ : float
    norm_q_interval_ : (float, float)
    noise_ : (n_tasks,)
    row_scales_ : (n_features,)
        Scale of each row of ``W R^(-1/2)``, 0 for features that are out.
    objective_trace_ : array
        Minus the log-posterior at the mode, minus the log-evidence integrated, with the pull of the relations; it never
        rises.
    mean_coef_, mean_strength_ : with ``shared_mean``, else None; relations and scales are then those of the deviations
    tasks_, n_iter_, converged_, result_

    Examples
    --------
    >>> from bayesmtfs import simulate_tasks
    >>> from bayesmtfs.estimators.matrix_variate import MatrixVariateRegressor
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

    _losses = ("squared",)


@dataclass(repr=False, eq=False)
class MatrixVariateClassifier(MultiTaskClassifier, MatrixVariateEstimator):
    """Multi-task classification with task relations (PMTFS2).

    Parameters
    ----------
    loss : {"logistic", "squared"}
        Logistic (integrated: through a normal bound), or normal noise around labels -1 and +1 as in the paper.
    norm_q, q_learning, coefficients, relation_shrinkage, init, start_strength, norm_q_bounds, hyper_shape, hyper_rate,
    noise_floor, shared_noise, fit_intercept, standardize, shared_mean, mean_strength, task_column, unknown_task,
    groups, tol, max_iter, warm_start, random_state, progress : see `MatrixVariateRegressor`

    Attributes
    ----------
    classes_ : (n_classes,) sorted labels
    coef_, intercept_, task_relations_, relation_shrinkage_, coef_std_, row_variances_, norm_q_, norm_q_interval_,
    noise_, row_scales_, objective_trace_, mean_coef_, mean_strength_, tasks_, n_iter_, converged_, result_ : see
        `MatrixVariateRegressor`;
        ``noise_`` is 1 for the logistic loss

    Examples
    --------
    >>> from bayesmtfs import simulate_tasks
    >>> from bayesmtfs.estimators.matrix_variate import MatrixVariateClassifier
    >>> sim = simulate_tasks(n_tasks=4, n_features=20, n_relevant=3, kind="classification", random_state=0)
    >>> model = MatrixVariateClassifier(coefficients="integrated").fit(sim.X, sim.y, tasks=sim.tasks)
    >>> model.task_relations_.shape
    (4, 4)
    """

    _losses = ("logistic", "squared")
    _saved_attributes = (*MatrixVariateEstimator._saved_attributes, "classes_")

    loss: str = "logistic"
