"""Jeffreys estimators (PMTFS1): generalized normal rows whose scales are integrated out, fitted by EM.

    minimise  sum_t [ L_t / sigma_t^2 + n_t ln sigma_t ] + sum_i [ m ln ||w^i||_q + normaliser(m, q) ]

over W, b, sigma and, with ``norm_q="learn"``, q (Zhang, Yeung and Xu 2010, section 4.2; `bayesmtfs.em.jeffreys`
says what differs from it). No row scale, penalty strength or unit has to be chosen. The prior is improper and its
objective unbounded at W = 0, so that what EM gives is a local minimum near its start, the mixed-norm fit.
"""

from dataclasses import dataclass

from bayesmtfs.estimators.em import JeffreysEstimator
from bayesmtfs.estimators.predictors import MultiTaskClassifier, MultiTaskRegressor


@dataclass(repr=False, eq=False)
class JeffreysRegressor(MultiTaskRegressor, JeffreysEstimator):
    """Multi-task regression under the Jeffreys prior on row scales (PMTFS1).

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
    start_strength : float
        Penalty of the mixed-norm start, as a share of the smallest one at which all coefficients are zero.
    norm_q_bounds : (float, float)
        Range of a learned q; its prior is uniform in 1/q.
    hyper_shape, hyper_rate : float
        Gamma prior of ``rho^-q``, rho in units of sd(y) / sd(x); both 0: Jeffreys.
    noise_floor : float or None
        Least noise, as a share of sd(y). None begins at 0.5 and lowers it as long as the fit leaves clearly less.
    shared_noise : bool
        One noise level for all tasks.
    fit_intercept : bool
        One intercept per task.
    standardize : bool
        Scale features within each task before the fit; matters only where tasks have features on different scales.
    shared_mean : bool
        Weights are ``w_0 + v_t``: the prior acts on the deviations v_t, and w_0 has a ridge; every task keeps an
        intercept of its own, without a prior. Tasks with little data are drawn to the mean instead of to zero. With
        ``coefficients="integrated"`` the deviations are integrated out (squared loss only).
    mean_strength : float or None
        The objective has ``mean_strength / 2 ||w_0||^2`` in addition. None takes a hundredth of the mean squared column
        norm of X, over the variance of y for the squared loss, so that the fit does not depend on the units of y.
        With more features than observations that is too weak: the mean alone explains all targets; pass more.
    task_column, unknown_task, groups : see `MixedNormRegressor`
    tol : float
        Largest change of a coefficient, in units of sd(y) / sd(x), at which EM has converged.
    max_iter : int
        Most iterations.
    warm_start : bool
        Begin from the last fit; its zero rows stay zero.
    random_state : int, RandomState or None
        For ``q_learning="integrated"``.
    progress : bool or None
        Progress bar: always, never, or (None) for long fits on a terminal.

    Attributes
    ----------
    coef_ : (n_tasks, n_features)
    intercept_ : (n_tasks,)
    norm_q_ : float
    norm_q_interval_ : (float, float)
        90% interval of a learned q.
    noise_ : (n_tasks,)
    row_scales_ : (n_features,)
        ``rho_i = (q/m)^(1/q) ||w^i||_q``, 0 for features that are out.
    objective_trace_ : (n_iter_ + 1,)
        Minus the log-posterior, scales integrated out; it never rises at fixed q and for "ecme".
    coef_std_ : (n_tasks, n_features) or None
        Posterior deviations, with ``coefficients="integrated"``.
    mean_coef_ : (n_features,) or None
        w_0, with ``shared_mean``; ``coef_`` holds the sums, and ``row_scales_`` are those of the deviations. With
        ``standardize`` it is the mean of the coefficients of scaled features.
    mean_strength_ : float or None
        Ridge that was used.
    tasks_, n_iter_, converged_, result_

    Examples
    --------
    >>> from bayesmtfs import simulate_tasks
    >>> from bayesmtfs.estimators.jeffreys import JeffreysRegressor
    >>> sim = simulate_tasks(n_tasks=4, n_features=30, n_relevant=3, n_samples=40, random_state=0)
    >>> model = JeffreysRegressor().fit(sim.X, sim.y, tasks=sim.tasks)
    >>> bool((model.get_support() == sim.support).all())
    True

    References
    ----------
    Zhang, Yeung, Xu (2010), Probabilistic multi-task feature selection.
    """

    _losses = ("squared",)


@dataclass(repr=False, eq=False)
class JeffreysClassifier(MultiTaskClassifier, JeffreysEstimator):
    """Multi-task classification under the Jeffreys prior on row scales (PMTFS1).

    Parameters
    ----------
    loss : {"logistic", "squared"}
        Logistic, or normal noise around labels -1 and +1 as in the paper's experiments (it keeps more features).
    norm_q, q_learning, coefficients, init, start_strength, norm_q_bounds, hyper_shape, hyper_rate, noise_floor,
    shared_noise, fit_intercept, standardize, shared_mean, mean_strength, task_column, unknown_task, groups, tol,
    max_iter, warm_start, random_state, progress : see `JeffreysRegressor`

    Attributes
    ----------
    classes_ : (n_classes,) sorted labels
    coef_, coef_std_, intercept_, norm_q_, norm_q_interval_, noise_, row_scales_, objective_trace_, mean_coef_,
    mean_strength_, tasks_, n_iter_, converged_, result_ : see `JeffreysRegressor`; ``noise_`` is 1 for the logistic loss

    Examples
    --------
    >>> from bayesmtfs import simulate_tasks
    >>> from bayesmtfs.estimators.jeffreys import JeffreysClassifier
    >>> sim = simulate_tasks(n_tasks=4, n_features=20, n_relevant=3, kind="classification", random_state=0)
    >>> model = JeffreysClassifier().fit(sim.X, sim.y, tasks=sim.tasks)
    >>> model.predict_proba(sim.X[:5], tasks=sim.tasks[:5]).shape
    (5, 2)
    """

    _losses = ("logistic", "squared")
    _saved_attributes = (*JeffreysEstimator._saved_attributes, "classes_")

    loss: str = "logistic"
