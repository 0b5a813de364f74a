"""Online multi-task feature selection by regularised dual averaging.

After every round the weights minimise ``<average gradient, W> + penalty(W) + gamma / (2 sqrt(t)) ||W||^2`` (Yang, King
and Lyu 2010, eq. 8), with the penalties of the batch estimators: ``sparsity="individual"`` is DA-iMTFS, ``"features"``
DA-aMTFS and, with another ``norm_q``, any l1,q norm, ``"features_and_tasks"`` DA-MTFTS. In the limit of many epochs the
weights are those of `MixedNormRegressor` and `MixedNormClassifier` at the same strength, and so the MAP of the same
models (the hinge has a pseudo-likelihood only). `bayesmtfs.online.dual_averaging` says what differs from the paper:
missing tasks, step size, intercepts, a shared mean.
"""

import numbers
from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from bayesmtfs.convex.problem import Problem
from bayesmtfs.data.inputs import match_labels, read_groups
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.estimators.base import check_choice, check_family, estimator_class
from bayesmtfs.estimators.penalised import DEFAULT_SHARE
from bayesmtfs.estimators.stream_estimator import StreamClassifier, StreamEstimator, StreamRegressor
from bayesmtfs.families import Family
from bayesmtfs.online.dual_averaging import DualAveraging, DualAveragingCandidates, DualAveragingSettings, learnable
from bayesmtfs.priors import RowPenalty
from bayesmtfs.types import FloatArray, IntArray, LossScale

SPARSITIES = ("individual", "features", "features_and_tasks")
LEARN = "learn"
WAY_OUT = "use another loss, or an estimator that sees all rows at once, such as MixedNorm* or Bayesian*"
# Of the largest penalty: candidates of penalty_strength="learn"
LEARNED_SHARES = (0.4, 0.2, 0.1, 0.05, 0.025, 0.012, 0.005, 0.002)
LEARNED_NORMS = (1.0, 1.5, 2.0, 3.0, float("inf"))  # candidates of norm_q="learn"


@estimator_class()
class OnlineMixedNormEstimator(StreamEstimator):
    """Dual averaging of one or several candidates for the norm within a row.

    Parameters
    ----------
    sparsity : {"features", "individual", "features_and_tasks"}
        What the penalty makes zero: features for all tasks at once (eq. 10), single coefficients (eq. 9), or features
        and, among those that stay, single tasks (eq. 11 and 12).
    penalty_strength : float, "learn" or None
        Weight of the penalty; None takes a tenth of the smallest strength at which all coefficients are zero, in
        ``fit`` of its data, in ``partial_fit`` of the first batch. "learn" lets several shares of that strength learn side
        by side and uses the one with the smallest loss on rows that it had not seen yet.
    task_sparsity : float or (n_features,) array, default 0.01
        r of eq. (6), for ``sparsity="features_and_tasks"``.
    norm_q : float in [1, inf], several of them, or "learn"
        Norm within a row, for ``sparsity="features"``. Of several (``"learn"``: 1, 1.5, 2, 3 and inf) each learns on
        its own, and the one with the smallest loss on rows that it had not seen yet is used.
    gamma : float or "auto"
        Weight of the quadratic term: larger is slower and safer. The method diverges while ``gamma sqrt(t)`` is below
        about half of |x|^2. "auto" follows the running mean of |x|^2 of each task.
    average : bool
        Use the average of the weights over each task's rounds instead of the last ones. Smoother, hardly sparse, and an
        update then costs O(n_features x n_tasks). With several ``epochs`` and ``gamma="auto"`` it is the average of the
        second half of them, which settles much faster than the last weights, has their zeros, and takes a step that is
        chosen by a fifth of the rows, predicted before they are learned.
    standardize : bool
        Scale features to unit deviation within each task before ``fit``; not for ``partial_fit``.
    shared_mean : bool
        Weights are ``w_0 + v_t`` with the penalty on the deviations v.

    With ``exposure`` (Poisson) the objective is the loss per unit of exposure, as sample weights count.

    Attributes
    ----------
    norm_q_, penalty_strength_ : float
        What is used.
    progressive_loss_ : float
        Mean loss of the predictions, each made before its row was learned: of the first epoch or, where ``fit`` has
        chosen a step or penalty by them, of the fifth of the rows that was kept apart until then.
    progressive_error_ : float
        The same as a multiple of the loss of each task's best constant; under the squared loss 1 - R2.
    converged_ : bool
        A stream converges to nothing: True says that no ``fit`` was interrupted or left predictions far worse than
        constants. ``progressive_error_`` says how good they are.

    References
    ----------
    Yang, King, Lyu (2010), Online learning for multi-task feature selection.
    Flammarion, Bach (2017), Stochastic composite least-squares regression with convergence rate O(1/n).
    """

    _takes_offset = True

    normalize_rows: bool = field(init=False, default=False)
    sparsity: str = "features"
    penalty_strength: float | str | None = None
    task_sparsity: float | ArrayLike = 0.01
    norm_q: float | str | Sequence[float] = 2
    gamma: float | str = "auto"
    loss: str | Family = "squared"
    loss_scale: LossScale = "mean"
    standardize: bool = False
    shared_mean: bool = False
    mean_strength: float | None = None
    groups: ArrayLike | None = field(default=None, kw_only=True)
    progress: bool | None = None

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        (tags.classifier_tags or tags.regressor_tags).poor_score = True  # after one epoch
        return tags

    @property
    def _family(self) -> Family:
        return check_family(self.loss, labels=isinstance(self, StreamClassifier))

    def _check_parameters(self) -> None:
        self._check_stream()
        check_choice("sparsity", self.sparsity, SPARSITIES)
        self._family.require("A stream", "slope", way_out=WAY_OUT)
        check_choice("loss_scale", self.loss_scale, ("mean", "sum"))
        for name, words in (("penalty_strength", (None, LEARN)), ("mean_strength", (None,))):
            value = getattr(self, name)
            if value not in words and not (isinstance(value, numbers.Real) and float(value) >= 0):
                raise ValueError(
                    f"{name} is {value!r}; pass a number of at least 0, or {' or '.join(map(repr, words))}"
                )
        if self.gamma != "auto" and not (isinstance(self.gamma, numbers.Real) and float(self.gamma) > 0):
            raise ValueError(f"gamma is {self.gamma!r}; pass a positive number, or 'auto' to take it from the data")
        self._norms()

    def _fit(self, data: TaskData) -> None:
        self._warn_of_units(data)
        super()._fit(data)

    def _settle_offset(self, data: TaskData) -> TaskData:
        data = super()._settle_offset(data)
        if data.eta_offset is None:
            return data
        self._family.require("A stream with exposure or offset", "absorbed", way_out=WAY_OUT)
        y, weight = self._family.absorbed(data.y, data.weight, data.eta_offset)
        return replace(data, y=y, weight=weight, eta_offset=None)

    def _norms(self) -> tuple[float, ...]:
        """Candidates for the norm within a row."""
        norms: tuple[float, ...]
        if isinstance(self.norm_q, str):
            check_choice("norm_q", self.norm_q, (LEARN,))
            norms = LEARNED_NORMS
        else:
            norms = tuple(np.atleast_1d(np.asarray(self.norm_q, dtype=np.float64)).tolist())
        if self.sparsity == "features":
            for norm_q in norms:
                RowPenalty(0.0, norm_q)
            if not norms:
                raise ValueError("norm_q is empty; pass a number, several numbers, or 'learn'")
            return norms
        if len(norms) != 1 or norms[0] not in (1, 2):
            raise ValueError(
                f"norm_q is {self.norm_q!r} and sparsity is {self.sparsity!r}, which has its own norms; set "
                "sparsity='features' to choose another norm"
            )
        return (1.0,) if self.sparsity == "individual" else (2.0,)

    def _settings(self, norm_q: float, strength: float, groups: IntArray | None) -> DualAveragingSettings:
        return DualAveragingSettings(
            family=self._family,
            strength=strength,
            norm_q=norm_q,
            task_sparsity=self._task_sparsity(),
            gamma=None if isinstance(self.gamma, str) else float(self.gamma),
            loss_scale=self.loss_scale,
            fit_intercept=self.fit_intercept,
            shared_mean=self.shared_mean,
            mean_strength=self.mean_strength,
            average=self.average,
            groups=groups,
        )

    def _task_sparsity(self) -> float | FloatArray:
        if self.sparsity != "features_and_tasks":
            return 0.0
        sparsity = np.asarray(self.task_sparsity, dtype=np.float64)
        return sparsity if sparsity.ndim else float(sparsity)

    def _open(self, data: TaskData, strict: bool) -> DualAveragingCandidates:
        """Make the learners, with penalties that the first data tell where the user does not."""
        groups = data.groups
        if groups is None:
            groups = read_groups(self.groups, data.encoding, self.n_features_in_)
        data = replace(data, groups=groups)
        settings = [
            self._settings(norm_q, strength, groups)
            for norm_q in self._norms()
            for strength in self._strengths(data, norm_q, strict)
        ]
        return DualAveragingCandidates(settings, data.n_features)

    def _reopen(self, stored: dict[str, Any]) -> DualAveragingCandidates:
        penalties = zip(stored["norms"], stored["strengths"], strict=True)
        settings = [self._settings(norm_q, strength, stored["groups"]) for norm_q, strength in penalties]
        steps = stored.get("slowness", [one.slowness for one in settings])  # older files have none
        settings = [replace(one, slowness=step) for one, step in zip(settings, steps, strict=True)]
        return DualAveragingCandidates(settings, stored["sums"][0]["slots"].size)

    def _strengths(self, data: TaskData, norm_q: float, strict: bool) -> list[float]:
        """Candidates for the strength of the penalty."""
        if isinstance(self.penalty_strength, numbers.Real):
            return [float(self.penalty_strength)]
        penalty = RowPenalty(0.0, norm_q, self._task_sparsity())
        weight = data.loss_weights(self.loss_scale)
        largest = Problem(data, self._family, penalty, weight, self.fit_intercept).largest_penalty
        if strict and not largest > 0:
            raise ValueError(
                f"penalty_strength is {self.penalty_strength!r}, which takes it from the first batch, but this one has too "
                "few rows to tell; pass a number, or begin with a larger batch"
            )
        shares = LEARNED_SHARES if self.penalty_strength == LEARN else (DEFAULT_SHARE,)
        return [share * largest for share in shares]

    @property
    def _best(self) -> DualAveraging:
        """The candidate with the smallest loss on rows that it had not seen yet."""
        check_is_fitted(self)
        return cast(DualAveragingCandidates, self._learner).best

    @property
    def norm_q_(self) -> float:
        """Norm within a row; of several the one with the smallest progressive loss."""
        return float(self._best.settings.norm_q)

    @property
    def penalty_strength_(self) -> float:
        """Penalty strength that is used."""
        return float(self._best.settings.strength)

    @property
    def progressive_loss_(self) -> float:
        """Mean loss of the predictions, each made before its row was learned."""
        return self._best.progressive_loss

    def _linear_predictor(self, X: Any, tasks: Any) -> FloatArray:
        """Predict from the gradient sums of the rows' own features where W was not built yet."""
        unusual = self.average or isinstance(X, TaskData) or tasks is None and self.task_column is None
        check_is_fitted(self)
        if unusual or "coef_" in vars(self) or self._scales is not None or self._absent is not None:
            return super()._linear_predictor(X, tasks)
        self._check_columns(X)
        features, labels = self._split_task_column(X, tasks)
        design = learnable(self._read_features(features))
        index = match_labels(labels, design.shape[0], self.tasks_)
        if (index < 0).any():
            return super()._linear_predictor(X, tasks)
        return self._best.predict(design, self._learners[index])


@estimator_class()
class OnlineMixedNormRegressor(OnlineMixedNormEstimator, StreamRegressor):
    """Multi-task regression on a stream, with an l1,q penalty on the rows of W.

    Parameters
    ----------
    loss : {"squared", "absolute"} or Family
        A family of your own needs a compiled ``slope``; `bayesmtfs.online.dual_averaging` says what its step is.

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
    """


@estimator_class()
class OnlineMixedNormClassifier(OnlineMixedNormEstimator, StreamClassifier):
    """Multi-task classification on a stream, with an l1,q penalty on the rows of W.

    Several classes become one-versus-rest tasks over one design.

    Parameters
    ----------
    loss : {"logistic", "hinge"} or Family

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
    """

    loss: str | Family = "logistic"
