"""Penalised estimators that choose their penalty, and their norm, by cross-validation or an information criterion.

    minimise  sum_t (1/n_t) sum_i loss(y_i, x_i' w_t + b_t) + penalty_strength * sum_i ||w^i||_q

with ``penalty_strength`` (and q, where ``norm_q`` is a list) from the data: those of the smallest prediction error on
held-out observations, of the largest penalty within one standard error of it (Breiman et al. 1984, section 3.4.3), or
of the smallest BIC or EBIC (Chen and Chen 2008). What the error of a fold is, is said in
`bayesmtfs.estimators.cross_validation`; what the criteria are, in `bayesmtfs.estimators.criteria`.
"""

from dataclasses import dataclass

from bayesmtfs.estimators.mixed_norm_cv import MixedNormCV
from bayesmtfs.estimators.penalised import MixedNormClassifier, MixedNormRegressor


@dataclass(repr=False, eq=False)
class MixedNormRegressorCV(MixedNormCV, MixedNormRegressor):
    """Multi-task regression with an l1,q penalty whose strength is chosen from the data.

    Parameters
    ----------
    norm_q : float in [1, inf], or a list of them
        How the tasks share a feature; of several the best is chosen.
    n_penalties, penalty_ratio : int, float
        Size of the automatic grid of penalties, and its smallest as a share of its largest, which is the smallest
        strength at which all coefficients are zero. The grid ends early where the model is saturated.
    penalties : (k,) strengths, or None for the automatic grid
        The same strengths are used on all data and in every fold, also with ``loss_scale="sum"``.
    cv : int, splitter, iterable, mapping, "leave_one_task_out" or None
        Number of task-stratified folds (None: 5); a scikit-learn splitter, which gets the task labels as ``groups``
        (so that ``GroupKFold`` leaves out tasks); an iterable of (train, test) row numbers; a mapping from task to
        group, whose groups of tasks are left out in turn; or one task left out at a time. In the wide form the cells
        of a row stay together, unless tasks are left out. A task without training rows is predicted with the average
        of the others.
    rule : "min" or "one_se"
        The smallest mean error over the folds, or the largest penalty within one standard error of it.
    criterion : "cv", "bic" or "ebic"
        Folds, or an information criterion on all data (then ``cv`` and ``rule`` are not used).
    ebic_gamma : float in [0, 1]
        Weight of the number of candidate features in EBIC.
    task_sparsity : float, default 0
        r of MTFTS: also makes single entries of a selected row zero. Needs ``norm_q=2``.
    loss : "squared" or "absolute"
    loss_scale, solver, fit_intercept, standardize, task_column, unknown_task, groups, max_iter, warm_start
        As in `MixedNormRegressor`.
    refit : bool
        Fit the selected coefficients once more without their penalty, in the folds too.
    shared_mean : bool
        Weights are ``w_0 + v_t`` with the penalty on the deviations v.
    mean_strength : float or None
        Ridge on w_0; None chooses among a tenth, one and ten times the default of `MixedNormRegressor`.
    tol : float
        Duality gap of the path and of the final fit; fits in the folds are solved to 1e-5 where that is larger.
    random_state : int or None
        Seed that shuffles rows before they are dealt out to folds; None keeps their order.
    n_jobs : int or None
        Threads over folds and candidates; the result does not depend on it.
    progress : bool or None
        Progress bar: always, never, or (None) for long fits on a terminal.

    Attributes
    ----------
    penalty_strength_, norm_q_ : float
        What was chosen.
    mean_strength_ : float or None
        Ridge that was chosen with a shared mean.
    path_ : MixedNormPath
        Fits on all data at every penalty, for the chosen norm.
    cv_results_ : dict of arrays
        One row per candidate (each ``norm_q``, and with a shared mean each ridge), NaN after the end of its grid:
        ``norm_q`` and ``mean_strength`` (c,), ``penalties`` (c, k); with folds ``mean_error`` and ``standard_error``
        (c, k) and ``fold_errors`` (c, k, n_folds); else ``criterion`` and ``degrees_of_freedom`` (c, k).
    coef_, intercept_, tasks_, objective_, dual_gap_, converged_, n_iter_, result_
        As in `MixedNormRegressor`, of the final fit on all data.

    Examples
    --------
    >>> from bayesmtfs import simulate_tasks
    >>> from bayesmtfs.estimators.penalised_cv import MixedNormRegressorCV
    >>> sim = simulate_tasks(n_tasks=4, n_features=20, n_relevant=3, n_samples=40, random_state=0)
    >>> model = MixedNormRegressorCV(n_penalties=20, rule="one_se", cv=3).fit(sim.X, sim.y, tasks=sim.tasks)
    >>> bool(model.get_support()[sim.support].all()), model.cv_results_["fold_errors"].shape[2]
    (True, 3)

    References
    ----------
    Obozinski, Taskar, Jordan (2006), Multi-task feature selection. Breiman, Friedman, Olshen, Stone (1984),
    Classification and regression trees. Chen, Chen (2008), Extended Bayesian information criteria.
    """

    _fits_moments = False


@dataclass(repr=False, eq=False)
class MixedNormClassifierCV(MixedNormCV, MixedNormClassifier):
    """Multi-task classification with an l1,q penalty whose strength is chosen from the data.

    Several classes become one-versus-rest tasks over one design, as in `MixedNormClassifier`.

    Parameters
    ----------
    loss : "logistic" or "hinge"
    cv : int, splitter, iterable, mapping, "leave_one_task_out" or None
        As in `MixedNormRegressorCV`; folds are stratified by task and class.
    norm_q, n_penalties, penalty_ratio, penalties, rule, criterion, ebic_gamma, task_sparsity, loss_scale, solver, refit,
    fit_intercept, standardize, shared_mean, mean_strength, task_column, unknown_task, groups, tol, max_iter, warm_start,
    random_state, n_jobs, progress : see `MixedNormRegressorCV`

    Attributes
    ----------
    classes_ : (n_classes,) sorted labels
    penalty_strength_, norm_q_, mean_strength_, path_, cv_results_, coef_, intercept_, tasks_, objective_, dual_gap_,
    converged_, n_iter_, result_ : see `MixedNormRegressorCV`

    Examples
    --------
    >>> from bayesmtfs import simulate_tasks
    >>> from bayesmtfs.estimators.penalised_cv import MixedNormClassifierCV
    >>> sim = simulate_tasks(n_tasks=3, n_features=9, n_relevant=2, n_samples=60, kind="classification", random_state=0)
    >>> model = MixedNormClassifierCV(criterion="ebic", n_penalties=10).fit(sim.X, sim.y, tasks=sim.tasks)
    >>> bool(model.get_support()[sim.support].all()), sorted(model.cv_results_)[:2]
    (True, ['criterion', 'degrees_of_freedom'])

    References
    ----------
    Obozinski, Taskar, Jordan (2006), Multi-task feature selection. Breiman, Friedman, Olshen, Stone (1984),
    Classification and regression trees. Chen, Chen (2008), Extended Bayesian information criteria.
    """

    _saved_attributes = (*MixedNormCV._saved_attributes, "classes_")

    loss: str = "logistic"
