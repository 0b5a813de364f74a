"""What `OnlineMixedNormRegressor` and `OnlineMixedNormClassifier` share: parameters, learners, rounds, files."""

import numbers
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from bayesmtfs.convex.problem import Problem
from bayesmtfs.data.inputs import as_labels, match_labels, read_groups, read_labels
from bayesmtfs.data.scaling import standardize
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.estimators.base import check_choice, check_kinds
from bayesmtfs.estimators.online_plain_rows import PlainRows
from bayesmtfs.estimators.online_warnings import warn_if_far_off, warn_of_interruption
from bayesmtfs.estimators.penalised import DEFAULT_SHARE
from bayesmtfs.estimators.stream_estimator import StreamEstimator
from bayesmtfs.families import find_family
from bayesmtfs.online.dual_averaging import DualAveraging, Settings
from bayesmtfs.online.dual_averaging_batches import (
    Schedule,
    learnable,
    observations,
    round_schedule,
    shuffle_within_tasks,
)
from bayesmtfs.priors import RowPenalty
from bayesmtfs.progress import Progress
from bayesmtfs.types import FloatArray, IntArray, LossScale

SPARSITIES = ("individual", "features", "features_and_tasks")
LEARNED_NORMS = (1.0, 1.5, 2.0, 3.0, float("inf"))  # candidates of norm_q="learn"


@dataclass(repr=False, eq=False)
class OnlineMixedNormEstimator(StreamEstimator):
    """Dual averaging of one or several candidates for the norm within a row."""

    _losses: ClassVar[tuple[str, ...]]
    _saved_attributes: ClassVar[tuple[str, ...]] = ("_numbers", "_learners", "n_rounds_")

    normalize_rows: bool = field(init=False, default=False)
    sparsity: str = "features"
    penalty_strength: float | None = None
    task_sparsity: float | ArrayLike = 0.01
    norm_q: float | str | Sequence[float] = 2
    gamma: float | str = "auto"
    loss: str = "squared"
    loss_scale: LossScale = "mean"
    standardize: bool = False
    shared_mean: bool = False
    mean_strength: float | None = None
    groups: ArrayLike | None = field(default=None, kw_only=True)
    progress: bool | None = None

    # ------------------------------------------------------------------ parameters

    def _check_parameters(self) -> None:
        self._check_stream()
        check_choice("sparsity", self.sparsity, SPARSITIES)
        check_choice("loss", self.loss, self._losses)
        check_choice("loss_scale", self.loss_scale, ("mean", "sum"))
        for name in ("penalty_strength", "mean_strength"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, numbers.Real) and float(value) >= 0):
                raise ValueError(f"{name} is {value!r}; pass a number of at least 0, or None")
        if self.gamma != "auto" and not (isinstance(self.gamma, numbers.Real) and float(self.gamma) > 0):
            raise ValueError(f"gamma is {self.gamma!r}; pass a positive number, or 'auto' to take it from the data")
        self._norms()

    def _norms(self) -> tuple[float, ...]:
        """Candidates for the norm within a row."""
        norms: tuple[float, ...]
        if isinstance(self.norm_q, str):
            check_choice("norm_q", self.norm_q, ("learn",))
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

    def _settings(self, norm_q: float, strength: float, groups: IntArray | None) -> Settings:
        return Settings(
            loss=self.loss,
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

    # ------------------------------------------------------------------ learning

    def partial_fit(
        self, X: Any, y: Any = None, tasks: Any = None, classes: Any = None, sample_weight: Any = None
    ) -> Self:
        """Learn one more batch, in the order given; any subset of the tasks, new ones too.

        The i-th row of each task belongs to the batch's i-th round. Parameters that change between calls take effect
        at the next ``fit``.

        Parameters
        ----------
        X : (n, p) array, sparse matrix or data frame, or `TaskData`
        y : (n,) targets or labels, or (n, m) for one column per task (NaN where a cell was not observed)
        tasks : (n,) task labels of the long form
        classes : all labels that will come, for classifiers; needed in the first call where its y lacks some
        sample_weight : (n,) or, for the wide form, (n, m)
        """
        plain: PlainRows | None = self.__dict__.get("_plain")
        if (
            plain is not None
            and sample_weight is None
            and (plain.learn(X, y, tasks) or (plain := self._welcome(plain, X, y, tasks)) is not None)
        ):
            self.n_rounds_ = self.n_iter_ = plain.learner.n_rounds
            if self._built:
                self._built = {}
            return self
        if self.standardize:
            raise ValueError(
                "standardize=True takes its scales from all rows and goes with fit only; scale the batches first, for "
                "instance by StandardScaler().partial_fit of scikit-learn"
            )
        first = not hasattr(self, "_candidates")
        if first:
            check_kinds(self)
        self._check_parameters()
        data, names = self._read_batch(X, y, tasks, classes, sample_weight, first)
        if first:
            self._begin()
            self.tasks_, self._absent = names, None
        self._meet(names, data.n_features)
        self._learn(data, None)
        self._settle()
        return self

    def _welcome(self, plain: PlainRows, X: Any, y: Any, tasks: Any) -> PlainRows | None:
        """Learn a plain row whose task is new, beside others with labels of the same type; None if it is another."""
        label = plain.newcomer(X, y, tasks)
        if label is None:
            return None
        names = [*self.tasks_.tolist(), label]
        order = sorted(range(len(names)), key=names.__getitem__)
        self.tasks_ = as_labels(names)[order]
        self._learners = np.append(self._learners, len(names) - 1)[order]
        plain.columns[label] = len(names) - 1
        plain.learner.add_tasks(1)
        return plain if plain.learn(X, y, tasks) else None

    def _read_batch(
        self, X: Any, y: Any, tasks: Any, classes: Any, sample_weight: Any, first: bool
    ) -> tuple[TaskData, NDArray[Any]]:
        if not first or isinstance(X, TaskData):
            return super()._read_batch(X, y, tasks, classes, sample_weight, first)
        data, names = self._read_table(X, y, tasks, classes, sample_weight, first)
        self._encoding = data.encoding
        self._given_names: Any = data.names  # None where features have none
        data = self._code_batch(data)
        return data, (data.task_names if self._form == "classes" else names)

    @property
    def _feature_names(self) -> NDArray[np.str_]:
        """Names of the features, made up only when somebody asks: a stream may have a million."""
        n = self._candidates[0].state.slots.size
        return np.asarray([f"x{i}" for i in range(n)] if self._given_names is None else self._given_names)

    @_feature_names.setter
    def _feature_names(self, names: NDArray[np.str_]) -> None:
        self._given_names = names

    def _fit(self, data: TaskData) -> None:
        scaled, scales = standardize(data) if self.standardize else (data, None)
        self._begin()
        self._scales = scales
        self._absent = None if data.present is None else ~data.present.T
        self._meet(self.tasks_, data.n_features)
        self._open(scaled, strict=False)
        order, starts = round_schedule(scaled.task, scaled.n_tasks)
        scaled = replace(scaled, design=learnable(scaled.design))
        seen = observations(scaled.design, scaled.y, scaled.task, scaled.weight, scaled.rows)
        sizes = np.add.reduceat(scaled.weight, scaled.offsets[:-1])
        for learner in self._candidates:
            learner.add_tasks(scaled.n_tasks, sizes)
        places = np.arange(scaled.n_observations)
        seeds = check_random_state(self.random_state).randint(2**31 - 1, size=self.epochs)
        done, before = 0, self._best.pooled
        with Progress("dual averaging", self.progress) as bar:
            try:
                for seed in seeds.tolist():
                    if self.shuffle:
                        shuffle_within_tasks(places, scaled.offsets, seed)
                    if done == self.epochs - 1:
                        before = self._best.pooled
                    for learner in self._candidates:
                        learner.learn(scaled.design, seen, Schedule(places[order], starts), growing=False)
                    done += 1
                    bar.update(done / self.epochs)
            except KeyboardInterrupt:
                if done == 0:
                    raise
                warn_of_interruption(done, self.epochs)
        self._settle()
        warn_if_far_off(self._best.pooled - before)

    def _begin(self) -> None:
        super()._begin()
        self._candidates: list[DualAveraging] = []
        self._scales = None
        self._plain: PlainRows | None = None

    def _meet(self, names: NDArray[Any], n_features: int) -> None:
        """Give every new task the next column; ``tasks_`` stays sorted, as far as its labels have an order."""
        known = self.tasks_ if len(self._learners) else names[:0]
        strangers = names[match_labels(names, len(names), known) < 0]
        if len(strangers) == 0:
            return
        arrived = as_labels([*known[np.argsort(self._learners)].tolist(), *strangers.tolist()])
        self.tasks_ = names if len(known) == 0 else read_labels(arrived, len(arrived)).names
        self._learners = match_labels(self.tasks_, len(self.tasks_), arrived)

    def _open(self, data: TaskData, strict: bool) -> None:
        """Make the learners, with penalties that the first data tell where the user does not."""
        groups = data.groups
        if groups is None:
            groups = read_groups(self.groups, data.encoding, self.n_features_in_)
        data = replace(data, groups=groups)
        self._candidates = [
            DualAveraging(self._settings(norm_q, self._strength(data, norm_q, strict), groups), data.n_features)
            for norm_q in self._norms()
        ]

    def _strength(self, data: TaskData, norm_q: float, strict: bool) -> float:
        penalty = RowPenalty(self.penalty_strength or 0.0, norm_q, self._task_sparsity())
        if self.penalty_strength is not None:
            return float(self.penalty_strength)
        weight = data.loss_weights(self.loss_scale)
        largest = Problem(data, find_family(self.loss), penalty, weight, self.fit_intercept).largest_penalty
        if strict and not largest > 0:
            raise ValueError(
                "penalty_strength is None, which takes it from the first batch, but this one has too few rows to tell; "
                "pass a number, or begin with a larger batch"
            )
        return DEFAULT_SHARE * largest

    def _learn(self, data: TaskData, random: np.random.RandomState | None) -> None:
        if not self._candidates:
            self._open(data, strict=True)
        columns = self._learners[match_labels(data.task_names, data.n_tasks, self.tasks_)]
        design = learnable(data.design)
        rounds = Schedule(*round_schedule(data.task, data.n_tasks))
        seen = observations(design, data.y, columns[data.task], data.weight, data.rows)
        for learner in self._candidates:
            learner.add_tasks(len(self._learners) - learner.n_tasks)
            learner.learn(design, seen, rounds)

    def _settle(self) -> None:
        self._built = {}
        self.n_rounds_ = self.n_iter_ = self._candidates[0].n_rounds
        self.converged_ = True
        self._plain = None
        rows_as_given = self._encoding is None and self._scales is None and self.task_column is None
        if rows_as_given and self._form in ("single", "long") and len(self._candidates) == 1:
            columns = dict(zip(self.tasks_.tolist(), self._learners.tolist(), strict=True))
            self._plain = PlainRows(self._best, columns, self._form == "single", self._targets())

    def _targets(self) -> dict[Any, float] | None:
        """What a label is inside; None where targets are numbers."""
        return None

    # ------------------------------------------------------------------ what was learned

    @property
    def _best(self) -> DualAveraging:
        """The candidate with the smallest loss on rows that it had not seen yet."""
        check_is_fitted(self)
        return min(self._candidates, key=lambda learner: learner.progressive_loss)

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

    def _weights(self) -> dict[str, Any]:
        built = self._built_so_far()
        if "coef_" not in built:
            W, intercept = self._best.coefficients()
            W = W[:, self._learners]
            built["coef_"] = np.ascontiguousarray((W if self._scales is None else W / self._scales).T)
            built["intercept_"] = intercept[self._learners]
        return built

    def _linear_predictor(self, X: Any, tasks: Any) -> FloatArray:
        """Predict from the gradient sums of the rows' own features where W was not built yet."""
        unusual = self.average or isinstance(X, TaskData) or tasks is None and self.task_column is None
        if unusual or "coef_" in self._built_so_far() or self._scales is not None or self._absent is not None:
            return super()._linear_predictor(X, tasks)
        self._check_columns(X)
        features, labels = self._split_task_column(X, tasks)
        design = learnable(self._read_features(features))
        index = match_labels(labels, design.shape[0], self.tasks_)
        if (index < 0).any():
            return super()._linear_predictor(X, tasks)
        return self._best.predict(design, self._learners[index])

    # ------------------------------------------------------------------ files

    @property
    def _numbers(self) -> dict[str, Any]:
        """Everything from which learning continues bit for bit."""
        return {
            "norms": [learner.settings.norm_q for learner in self._candidates],
            "strengths": [learner.settings.strength for learner in self._candidates],
            "sums": [learner.to_stored() for learner in self._candidates],
            "groups": self._candidates[0].settings.groups,
            "scales": self._scales,
        }

    @_numbers.setter
    def _numbers(self, stored: dict[str, Any]) -> None:
        absent = self._absent
        self._begin()
        self._absent, self._scales = absent, stored["scales"]
        self._candidates = [
            DualAveraging(self._settings(norm_q, strength, stored["groups"]), sums["slots"].size).restore(sums)
            for norm_q, strength, sums in zip(stored["norms"], stored["strengths"], stored["sums"], strict=True)
        ]

    @classmethod
    def from_stored(cls, stored: Any) -> Self:
        """Rebuild a fitted estimator from what ``save`` wrote."""
        self = super().from_stored(stored)
        self._settle()
        return self
