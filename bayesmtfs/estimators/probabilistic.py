"""What the estimators with generalized normal rows share: checks, starts, row scales."""

import warnings
from dataclasses import dataclass, replace

import numpy as np

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.em.shared_mean import MeanProblem, default_strength
from bayesmtfs.estimators.base import BatchEstimator
from bayesmtfs.families import find_family
from bayesmtfs.priors.blocks import Blocks
from bayesmtfs.priors.generalized_normal import GeneralizedNormal
from bayesmtfs.types import ConvergenceWarning, FloatArray, Solution


@dataclass(kw_only=True, repr=False, eq=False)
class GeneralizedNormalRows(BatchEstimator):
    """Base of the estimators that give ``row_scales_``, ``noise_`` and ``objective_trace_``."""

    start_strength: float = 0.01
    noise_floor: float | None = None

    def _check_common(self) -> None:
        super()._check_common()
        if not 0 < self.start_strength <= 1:
            raise ValueError(f"start_strength is {self.start_strength}; pass a share above 0, at most 1, such as 0.01")
        if self.noise_floor is not None and not self.noise_floor > 0:
            raise ValueError(f"noise_floor is {self.noise_floor}; pass a share of sd(y) above 0, such as 0.3, or None")

    def _last_fit(self, data: TaskData, scales: FloatArray | None) -> Solution | None:
        """The last fit as a start, where that is wanted and fits the data."""
        last = getattr(self, "coef_", None)
        if not self.warm_start or last is None or last.shape != (data.n_tasks, data.n_features):
            return None
        return as_start(last, self.intercept_, scales)

    def _last_mean(self, data: TaskData) -> FloatArray | None:
        """The mean of the last fit, where `_last_fit` is the start and has one."""
        last = getattr(self, "mean_coef_", None)
        return last if self.warm_start and last is not None and last.shape == (data.n_features,) else None

    def _mean_problem(self, data: TaskData, deviation: float) -> MeanProblem:
        """The problem of a shared mean; ``deviation`` is what the loss is divided by, squared."""
        family = find_family(self.loss)
        strength = self.mean_strength or default_strength(data, family, deviation)
        return MeanProblem(data, family, float(strength), self.fit_intercept)

    def _store_rows(
        self,
        data: TaskData,
        solution: Solution,
        scales: FloatArray | None,
        norm_q: float,
        mean: FloatArray | None = None,
        **settings: float,
    ) -> None:
        """Set the fitted attributes, with the best scale of each feature's row in the user's units.

        Features of a group share theirs; with a shared mean, rows are the deviations from it.
        """
        _warn_if_not_converged(solution)
        self._store(data, solution, scales, tol=self.tol, **settings)
        self.noise_: FloatArray = np.ones(data.n_tasks) if solution.noise is None else solution.noise
        self.objective_trace_ = solution.objective_trace
        blocks = Blocks(data.n_features, data.n_tasks, groups=data.groups, present=data.present)
        self.mean_coef_ = mean
        deviations = self._deviations(data, scales)
        rows = GeneralizedNormal(norm_q).row_scales(blocks.gather(deviations), blocks.sizes)
        self.row_scales_ = rows[blocks.row_of_feature]
        self.result_ = replace(self.result_, row_scales=self.row_scales_)

    def _deviations(self, data: TaskData, scales: FloatArray | None) -> FloatArray:
        """(p, m) Coefficients less the shared mean, where there is one, in the user's units."""
        W: FloatArray = self.coef_.T
        if self.mean_coef_ is None:
            return W
        mean = self.mean_coef_[:, np.newaxis]
        V = W - (mean if scales is None else mean / scales)
        return V if data.present is None else np.where(data.present, V, 0.0)


def as_start(coef: FloatArray, intercept: FloatArray, scales: FloatArray | None) -> Solution:
    """Coefficients (m, p) in the user's units as a start for (possibly scaled) data."""
    W = coef.T if scales is None else coef.T * scales
    return Solution(W, intercept, np.nan, np.nan, np.nan, False, 0, np.empty(0))


def _warn_if_not_converged(solution: Solution) -> None:
    if not solution.converged:
        reason = "was interrupted" if solution.interrupted else f"stopped after {solution.n_iter} iterations"
        warnings.warn(
            f"the fit {reason} before its coefficients settled; raise max_iter or tol", ConvergenceWarning, stacklevel=5
        )
