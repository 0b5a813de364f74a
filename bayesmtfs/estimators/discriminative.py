"""Discriminative feature selection for several multi-class tasks: trace ratios with row penalties.

    minimise over W_l'W_l = I   sum_l tr(W_l'E_l W_l) / tr(W_l'B_l W_l)
                                + within_strength * sum_l sum_i ||w_l^i|| + joint_strength * sum_i ||w^i||

(Han et al. 2013, eq. 1; E_l within-class and B_l total scatter of task l, w_l^i the row of feature i in W_l, w^i its row
in [W_1, ..., W_t]). Features are ranked by the length of w^i. What Algorithm 1 really descends on, and what differs
from the paper, is in `bayesmtfs.discriminative.trace_ratio`. A trace ratio is no likelihood: there is no model
of which this is the MAP.
"""

import numbers
from typing import Any, ClassVar

import numpy as np
from sklearn.utils import check_random_state

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.discriminative import trace_ratio
from bayesmtfs.discriminative.trace_ratio import Scatter, TraceRatioFit
from bayesmtfs.estimators.base import Names, check_choice, estimator_class
from bayesmtfs.estimators.ranking import Ranking, RankingSelector, as_count, check_size, choose_size, iterated
from bayesmtfs.types import ConvergenceWarning, FloatArray, warn


@estimator_class()
class DiscriminativeSelector(RankingSelector):
    """Select the features that tell the classes of several tasks apart.

    Every task has classes of its own, and as many as it likes. In the wide form every column of y is a task. The
    selection does not depend on the order of the features or classes, nor on the scale of X.

    Parameters
    ----------
    within_strength, joint_strength : float, default 1e-4
        lambda_1 and lambda_2 of eq. (1): penalty on the rows of each task's transformation, and on the rows of all of
        them together. Scatter is divided by its trace, so that they mean the same on any data.
    shrinkage : float, default 0.1
        Pulls gamma, the weight of the total scatter, from the smallest trace ratio towards 1. 0 is the paper; there, the
        ratio overfits where a task has about as many rows as features.
    directions : "between" or "classes"
        Columns of each task's transformation: the directions in which its classes differ by more than gamma asks for, at
        most one fewer than classes; or one per class, as printed, where the last ones are directions of little scatter.
    n_features_to_select : int, float or "cv", default 0.5
        A number, a share of all features, or the number with the best accuracy in cross-validation. Groups count as
        one feature.
    row_floor : float, default 1e-3
        Rows that are shorter than this share of the average row count as zero. Features with zero rows are ranked by
        the rows of the unpenalised solution.
    n_init : int, default 0
        Random starts besides the unpenalised solution; the lowest surrogate wins.
    cv : int, splitter or pairs of row numbers, default 5
        Folds with ``n_features_to_select="cv"``; a number of them are dealt out within tasks and classes.
    classifier : scikit-learn classifier or None
        Judges the numbers of features with ``"cv"``, one fit per task; None: a linear support vector machine.
    tol : float
        Stop when the surrogate falls by less than this share of itself.
    random_state : int, RandomState or None
        Of the random starts, and of the folds.

    Attributes
    ----------
    scores_ : (n_features,)
        Length of each feature's row over all tasks, 0 below the floor.
    task_scores_ : (n_tasks, n_features)
        Length of each feature's row in each task.
    surrogate_trace_ : (n_iter_ + 1,)
        What the algorithm minimises; it never increases.
    objective_trace_ : (n_iter_ + 1,)
        Eq. (1) at the same iterates, which need not fall.
    trace_ratios_ : (n_tasks,)
        Ratio of within-class to total scatter at the solution.
    gamma_ : (n_tasks,)
        Weight of the total scatter in the surrogate.

    Examples
    --------
    >>> import numpy as np
    >>> from bayesmtfs.estimators.discriminative import DiscriminativeSelector
    >>> rng = np.random.default_rng(0)
    >>> X, y, tasks = rng.standard_normal((80, 30)), np.arange(80) % 4, np.repeat(["a", "b"], 40)
    >>> X[:, 7] += 3 * y
    >>> X[:, 19] += 4 * (y % 2)
    >>> selector = DiscriminativeSelector(n_features_to_select=2).fit(X, y, tasks=tasks)
    >>> selector.get_support(indices=True), selector.transform(X).shape
    (array([ 7, 19]), (80, 2))

    References
    ----------
    Han, Zhang, Xu, Yu (2013), Discriminative multi-task feature selection, AAAI late-breaking developments. Jia, Nie,
    Zhang (2009), Trace ratio problem revisited, IEEE Transactions on Neural Networks 20.
    """

    _saved_attributes: ClassVar[Names] = ("surrogate_trace_", "objective_trace_", "trace_ratios_", "gamma_")

    within_strength: float = 1e-4
    joint_strength: float = 1e-4
    shrinkage: float = 0.1
    directions: str = "between"
    row_floor: float = 1e-3
    n_init: int = 0
    cv: Any = 5
    classifier: Any = None
    tol: float = 1e-5
    max_iter: int = 500
    random_state: Any = None
    progress: bool | None = None

    def _check_parameters(self) -> None:
        for name in ("within_strength", "joint_strength", "shrinkage"):
            value = getattr(self, name)
            valid = isinstance(value, numbers.Real) and 0 <= float(value) < np.inf
            self._require(name, valid, "a finite number of at least 0")
        for name in ("row_floor", "tol"):
            self._require(name, getattr(self, name) > 0, "a positive number such as 1e-3")
        for name, least in (("max_iter", 1), ("n_init", 0)):
            self._require(name, getattr(self, name) >= least, f"a whole number of at least {least}")
        check_choice("directions", self.directions, ("between", "classes"))
        if not (isinstance(self.n_features_to_select, str) and self.n_features_to_select == "cv"):
            check_size(self.n_features_to_select)

    def _rank(self, data: TaskData) -> Ranking:
        scatters = self._scatters(data)
        found = self._best_fit(scatters, data)
        if not found.converged:
            warn(
                f"the surrogate still falls after {found.n_iter} iterations; raise max_iter or tol", ConvergenceWarning
            )
        self.surrogate_trace_ = found.surrogate_trace
        self.objective_trace_ = found.objective_trace
        self.trace_ratios_ = np.array([task.ratio(W) for task, W in zip(scatters, found.W, strict=True)])
        self.gamma_ = np.array([task.gamma for task in scatters])
        return _ranking(scatters, found, data, self.tol)

    def _scatters(self, data: TaskData) -> list[Scatter]:
        scaled = self._rescaled(data).data
        parts = zip(scaled.task_designs, scaled.spans, strict=True)
        options: Any = {"shrinkage": self.shrinkage, "all_columns": self.directions == "classes"}
        return [
            trace_ratio.scatter(X, data.y[start:stop], data.weight[start:stop], **options) for X, (start, stop) in parts
        ]

    def _best_fit(self, scatters: list[Scatter], data: TaskData) -> TraceRatioFit:
        settings = trace_ratio.TraceRatioSettings(
            self.within_strength, self.joint_strength, self.row_floor, self.tol, self.max_iter
        )
        rng = check_random_state(self.random_state)
        starts = [None, *(trace_ratio.random_start(scatters, rng) for _ in range(self.n_init))]
        fits = [trace_ratio.solve(scatters, settings, start, data.groups, self.progress) for start in starts]
        return min(fits, key=lambda fit: float(fit.surrogate_trace[-1]))

    def _size(self, data: TaskData) -> int:
        available = int(self.ranking_.max())
        if self.n_features_to_select != "cv":
            return as_count(self.n_features_to_select, available)
        return choose_size(self, data, available, self.cv, self.classifier, self.random_state)


def _ranking(scatters: list[Scatter], found: TraceRatioFit, data: TaskData, tol: float) -> Ranking:
    """Rows by length; those below the floor by the unpenalised solution."""
    scores = _above(trace_ratio.row_lengths(np.hstack(found.W), data.groups), found.floors.joint)
    own = [
        _above(trace_ratio.row_lengths(W, data.groups), floor)
        for W, floor in zip(found.W, found.floors.own, strict=True)
    ]
    unpenalised = np.hstack([task.unpenalised[1] for task in scatters])
    convergence = iterated(found.converged, found.surrogate_trace, tol)
    return Ranking(scores, np.stack(own), trace_ratio.row_lengths(unpenalised, data.groups), convergence)


def _above(lengths: FloatArray, floor: float) -> FloatArray:
    return np.where(lengths > floor, lengths, 0.0)
