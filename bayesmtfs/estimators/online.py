"""Online multi-task feature selection by regularised dual averaging.

After every round the weights minimise ``<average gradient, W> + penalty(W) + gamma / (2 sqrt(t)) ||W||^2`` (Yang, King
and Lyu 2010, eq. 8), with the penalties of the batch estimators: ``sparsity="individual"`` is DA-iMTFS, ``"features"``
DA-aMTFS and, with another ``norm_q``, any l1,q norm, ``"features_and_tasks"`` DA-MTFTS. In the limit of many epochs the
weights are those of `MixedNormRegressor` and `MixedNormClassifier` at the same strength, and so the MAP of the same
models (the hinge has a pseudo-likelihood only). `bayesmtfs.online.dual_averaging` says what differs from the paper:
missing tasks, step size, intercepts, a shared mean.
"""

from dataclasses import dataclass
from typing import Any

from sklearn.utils import Tags

from bayesmtfs.estimators.online_mixed_norm import OnlineMixedNormEstimator
from bayesmtfs.estimators.stream_estimator import StreamClassifier, StreamRegressor
from bayesmtfs.families import names


@dataclass(repr=False, eq=False)
class OnlineMixedNormRegressor(OnlineMixedNormEstimator, StreamRegressor):
    """Multi-task regression on a stream, with an l1,q penalty on the rows of W.

    Parameters
    ----------
    sparsity : {"features", "individual", "features_and_tasks"}
        What the penalty makes zero: features for all tasks at once (eq. 10), single coefficients (eq. 9), or features
        and, among those that stay, single tasks (eq. 11 and 12).
    penalty_strength : float or None
        Weight of the penalty; None takes a tenth of the smallest strength at which all coefficients are zero, in
        ``fit`` of its data, in ``partial_fit`` of the first batch.
    task_sparsity : float or (n_features,) array, default 0.01
        r of eq. (6), for ``sparsity="features_and_tasks"``.
    norm_q : float in [1, inf], several of them, or "learn"
        Norm within a row, for ``sparsity="features"``. Of several (``"learn"``: 1, 1.5, 2, 3 and inf) each learns on
        its own, and the one with the smallest loss on rows that it had not seen yet is used.
    gamma : float or "auto"
        Weight of the quadratic term: larger is slower and safer. The method diverges while ``gamma sqrt(t)`` is below
        about half of |x|^2. "auto" follows the running mean of |x|^2 of each task.
    loss : {"squared", "absolute"}
    loss_scale : "mean" or "sum"
        Each task's loss divided by its number of rows (or total weight), or not.
    epochs : int
        How often ``fit`` goes through its rows.
    average : bool
        Use the average of the weights over each task's rounds instead of the last ones. Smoother, hardly sparse, and an
        update then costs O(n_features x n_tasks).
    shuffle : bool
        Whether ``fit`` shuffles the rows within tasks before each epoch; ``partial_fit`` keeps the order.
    fit_intercept : bool
        One unpenalised intercept per task.
    standardize : bool
        Scale features to unit deviation within each task before ``fit``; not for ``partial_fit``.
    shared_mean : bool
        Weights are ``w_0 + v_t`` with the penalty on the deviations v.
    mean_strength : float or None
        Ridge on w_0; None takes a hundredth of the mean squared column norm of X.
    task_column, unknown_task, groups : see `MixedNormRegressor`
    random_state : int, RandomState or None
        For shuffling.
    progress : bool or None
        Progress bar of ``fit``: always, never, or (None) for long fits on a terminal.

    Attributes
    ----------
    coef_ : (n_tasks, n_features)
        Built from the gradient sums when it is asked for.
    intercept_ : (n_tasks,)
    tasks_ : (n_tasks,) labels
        Sorted at all times: a task that appears later takes its place among the others, and every task axis follows.
    n_rounds_ : int
        Rounds so far.
    norm_q_, penalty_strength_ : float
        What is used.
    progressive_loss_ : float
        Mean loss of the predictions, each made before its row was learned.
    n_iter_, converged_, result_

    Examples
    --------
    >>> from bayesmtfs import simulate_tasks
    >>> from bayesmtfs.estimators.online import OnlineMixedNormRegressor
    >>> sim = simulate_tasks(n_tasks=4, n_features=20, n_relevant=3, n_samples=100, random_state=0)
    >>> model = OnlineMixedNormRegressor(penalty_strength=0.5, epochs=20, random_state=0)
    >>> model = model.fit(sim.X, sim.y, tasks=sim.tasks)
    >>> bool((model.get_support() == sim.support).all()), model.n_rounds_
    (True, 2000)
    >>> model.partial_fit(sim.X[:1], sim.y[:1], tasks=sim.tasks[:1]).n_rounds_
    2001

    References
    ----------
    Yang, King, Lyu (2010), Online learning for multi-task feature selection.
    """

    _losses = names(labels=False)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # after one epoch
        return tags


@dataclass(repr=False, eq=False)
class OnlineMixedNormClassifier(OnlineMixedNormEstimator, StreamClassifier):
    """Multi-task classification on a stream, with an l1,q penalty on the rows of W.

    Several classes become one-versus-rest tasks over one design.

    Parameters
    ----------
    loss : {"logistic", "hinge"}
    sparsity, penalty_strength, task_sparsity, norm_q, gamma, loss_scale, epochs, average, shuffle, fit_intercept,
    standardize, shared_mean, mean_strength, random_state, progress : see `OnlineMixedNormRegressor`
    task_column, unknown_task, groups : see `MixedNormClassifier`

    Attributes
    ----------
    coef_ : (n_tasks, n_features)
    intercept_ : (n_tasks,)
    classes_ : labels, the second of two counting as positive
    tasks_, n_rounds_, norm_q_, penalty_strength_, progressive_loss_, n_iter_, converged_, result_

    Examples
    --------
    >>> from bayesmtfs import simulate_tasks
    >>> from bayesmtfs.estimators.online import OnlineMixedNormClassifier
    >>> sim = simulate_tasks(n_tasks=3, n_features=10, n_relevant=2, kind="classification", snr=20, random_state=0)
    >>> model = OnlineMixedNormClassifier(penalty_strength=0.05)
    >>> for i in range(0, len(sim.y), 100):
    ...     part = slice(i, i + 100)
    ...     model = model.partial_fit(sim.X[part], sim.y[part], tasks=sim.tasks[part], classes=[-1, 1])
    >>> model.score(sim.X, sim.y, tasks=sim.tasks) > 0.8
    True

    References
    ----------
    Yang, King, Lyu (2010), Online learning for multi-task feature selection.
    """

    _losses = names(labels=True)
    _saved_attributes = (*OnlineMixedNormEstimator._saved_attributes, "classes_")

    loss: str = "logistic"

    def _targets(self) -> dict[Any, float] | None:
        return dict(zip(self.classes_.tolist(), (-1.0, 1.0), strict=True))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # after one epoch
        return tags
