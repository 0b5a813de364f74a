"""The body of the penalised estimators that choose their penalty: candidates, errors or criteria, choice, final fit.

Candidates are the values of ``norm_q`` and, with a shared mean, of its ridge, each with its own grid of penalties from
the lambda_max of all data. The same penalties are used in every fold. The final fit on all data is that of the plain
estimator at the chosen values.
"""

import copy
import os
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from bayesmtfs.convex import shared_mean
from bayesmtfs.convex.problem import Problem
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.estimators.batch import check_choice
from bayesmtfs.estimators.criteria import LOSSES, information_criterion
from bayesmtfs.estimators.cross_validation import Candidate, choose, cross_validate, standard_error
from bayesmtfs.estimators.failed_fits import unchanged_on_error
from bayesmtfs.estimators.folds import Fold, leaves_tasks_out, make_folds
from bayesmtfs.estimators.mixed_norm import MixedNormEstimator
from bayesmtfs.estimators.path import (
    Grid,
    MixedNormPath,
    PathSettings,
    default_mean_strength,
    path_of,
    read_penalties,
    warn_if_not_converged,
)
from bayesmtfs.results import persistence
from bayesmtfs.types import FloatArray, Solution

MEAN_STRENGTH_FACTORS = (0.1, 1.0, 10.0)  # of the default ridge on the shared mean: what is tried


class Choice(NamedTuple):
    """What the final fit uses."""

    settings: PathSettings
    penalty: float


@dataclass(repr=False, eq=False)
class MixedNormCV(MixedNormEstimator):
    """An l1,q penalised fit whose penalty, and norm where several are given, come from the data."""

    _saved_attributes = (
        *MixedNormEstimator._saved_attributes,
        "norm_q_",
        "mean_strength_",
        "path_",
        "cv_results_",
    )

    _numbers = ("task_sparsity", "tol", "max_iter", "mean_strength")  # norm_q may be a list

    norm_q: Any = 2  # one or several
    penalty_strength: None = field(init=False, default=None)  # chosen, not given
    n_penalties: int = 100
    penalty_ratio: float = 1e-3
    penalties: ArrayLike | None = None
    cv: Any = None
    rule: str = "min"
    criterion: str = "cv"
    ebic_gamma: float = 0.5
    random_state: int | None = None
    n_jobs: int | None = None

    # ------------------------------------------------------------------ parameters

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice("rule", self.rule, ("min", "one_se"))
        check_choice("criterion", self.criterion, ("cv", "bic", "ebic"))
        if self.random_state is not None and not isinstance(self.random_state, int | np.integer):
            raise ValueError(f"random_state is {self.random_state!r}; pass a whole number, or None to keep the order")
        if self.criterion == "cv":
            return
        if self.loss not in LOSSES:
            raise ValueError(f"criterion is {self.criterion!r}, but loss={self.loss!r} has no likelihood; use 'cv'")
        if self.shared_mean:
            raise ValueError(f"criterion is {self.criterion!r}, which does not count a shared mean; use 'cv'")
        if not 0 <= self.ebic_gamma <= 1:
            raise ValueError(f"ebic_gamma is {self.ebic_gamma}; pass a number from 0 to 1, such as 0.5")

    def _norms(self) -> list[float]:
        norms = np.atleast_1d(np.asarray(self.norm_q, dtype=np.float64))
        if norms.ndim != 1 or len(norms) == 0:
            raise ValueError(f"norm_q is {self.norm_q!r}; pass one number of at least 1, or a list of them")
        return norms.tolist()

    def _grid(self) -> FloatArray | Grid:
        strengths = read_penalties(self.penalties)
        return Grid(self.n_penalties, self.penalty_ratio) if strengths is None else strengths

    # ------------------------------------------------------------------ the fit

    def fit(self, X: Any, y: Any = None, tasks: Any = None, sample_weight: Any = None) -> Self:
        """Choose the penalty and fit all tasks together.

        Parameters
        ----------
        X : (n, p) array, sparse matrix or data frame, or `TaskData` (which holds the rest too)
        y : (n,) targets or labels, or (n, m) for one column per task (NaN where a cell was not observed)
        tasks : (n,) task labels of the long form
        sample_weight : (n,) or, for the wide form, (n, m)
        """
        with unchanged_on_error(self):
            data = self.training_data(X, y, tasks, sample_weight)
            self._choice = self._chosen(data, _n_rows(X), y)
            self._fit(data)
        return self

    def _chosen(self, data: TaskData, n_rows: int | None, target: Any) -> Choice:
        """Fit the paths, judge them, and set what is known of them."""
        grid = self._grid()
        everything = [(s, path_of(data, s, grid, self.progress)) for s in self._candidates(data)]
        candidates = [Candidate(settings, path.penalties) for settings, path in everything]
        results: dict[str, Any] = {
            "norm_q": np.array([settings.norm_q for settings, _ in everything]),
            "mean_strength": np.array([settings.mean_strength or np.nan for settings, _ in everything]),
            "penalties": _padded([path.penalties for _, path in everything]),
        }
        if self.criterion == "cv":
            results |= self._errors(data, candidates, self._folds(data, n_rows, target))
            margin = results["standard_error"] if self.rule == "one_se" else None
            best, place = choose(results["penalties"], results["mean_error"], margin)
        else:
            gamma = self.ebic_gamma if self.criterion == "ebic" else 0.0
            found = [information_criterion(data, path, settings, gamma) for settings, path in everything]
            results["criterion"] = _padded([criterion.value for criterion in found])
            results["degrees_of_freedom"] = _padded([criterion.degrees_of_freedom for criterion in found])
            best, place = choose(results["penalties"], results["criterion"])
        settings, self.path_ = everything[best]
        warn_if_not_converged(self.path_.converged, "penalties of the path", self.tol)
        self.cv_results_ = results
        self.norm_q_ = settings.norm_q
        self.mean_strength_ = settings.mean_strength
        return Choice(settings, float(self.path_.penalties[place]))

    def _candidates(self, data: TaskData) -> list[PathSettings]:
        """Every norm, with a shared mean at every ridge that is tried."""
        found = []
        for norm_q in self._norms():
            settings = PathSettings.of(self, norm_q, self.mean_strength if self.shared_mean else None)
            if self.shared_mean and self.mean_strength is None:
                default = default_mean_strength(data, settings)
                found += [PathSettings.of(self, norm_q, factor * default) for factor in MEAN_STRENGTH_FACTORS]
            else:
                found.append(settings)
        return found

    def _folds(self, data: TaskData, n_rows: int | None, target: Any) -> list[Fold]:
        if leaves_tasks_out(self.cv) and self._form == "classes":
            raise ValueError(
                f"cv={self.cv!r} leaves out tasks, but y has several classes in one task; pass a number of folds"
            )
        by_class = hasattr(self, "classes_")
        return make_folds(
            data, self.cv, n_rows=n_rows, target=target, by_class=by_class, random_state=self.random_state
        )

    def _errors(self, data: TaskData, candidates: list[Candidate], folds: list[Fold]) -> dict[str, FloatArray]:
        found = cross_validate(data, folds, candidates, self.n_jobs, self.progress)
        converged = np.concatenate([fold.converged for candidate in found for fold in candidate])
        warn_if_not_converged(converged, "fits in the folds", self.tol)
        by_candidate = [np.stack([fold.errors for fold in candidate], axis=1) for candidate in found]
        return {
            "mean_error": _padded([errors.mean(axis=1) for errors in by_candidate]),
            "standard_error": _padded([standard_error(errors) for errors in by_candidate]),
            "fold_errors": _padded(by_candidate),
        }

    def _problem(self, data: TaskData) -> Problem:
        return self._choice.settings.problem(data).with_strength(self._choice.penalty)

    def _solve(self, problem: Problem, start: Solution | None) -> Solution:
        if self.mean_strength_ is None:
            return super()._solve(problem, start)
        stop: dict[str, Any] = {"tol": self.tol, "max_iter": self.max_iter, "progress": self.progress}
        found = shared_mean.solve(problem, self.mean_strength_, **stop)
        self.mean_coef_ = found.mean
        return found.solution

    # ------------------------------------------------------------------ files

    def _store(
        self, data: TaskData, solution: Solution, scales: FloatArray | None, tol: float, **settings: Any
    ) -> None:
        super()._store(data, solution, scales, tol, **settings, cv=self.cv if self._cv_is_plain() else repr(self.cv))

    def _cv_is_plain(self) -> bool:
        return self.cv is None or isinstance(self.cv, int | np.integer | str | list | tuple | dict)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to one file at exactly this path; `bayesmtfs.load` reads it back.

        A scikit-learn splitter is not written, since no file may bring code: ``cv`` comes back as None.

        Parameters
        ----------
        path : where to write; an existing file is replaced in one step
        """
        check_is_fitted(self)
        plain = copy.copy(self)
        plain.cv = self.cv if self._cv_is_plain() else None
        plain.__dict__["path_"] = dict(vars(self.path_))
        super(MixedNormCV, plain).save(path)

    @classmethod
    def from_stored(cls, stored: persistence.StoredFile) -> Self:
        """Rebuild a fitted estimator from what `save` wrote."""
        self = super().from_stored(stored)
        self.path_ = MixedNormPath(**vars(self)["path_"])
        return self


def _n_rows(X: Any) -> int | None:
    """Rows of the user's input; `TaskData` do not know rows without an observation."""
    if isinstance(X, TaskData):
        return None
    return int(X.shape[0] if hasattr(X, "shape") else np.asarray(X).shape[0])


def _padded(arrays: list[Any]) -> FloatArray:
    """Arrays of different lengths as one, NaN where one of them has ended."""
    longest = max(len(array) for array in arrays)
    result = np.full((len(arrays), longest, *arrays[0].shape[1:]), np.nan)
    for place, array in enumerate(arrays):
        result[place, : len(array)] = array
    return result
