"""What a posterior leaves behind in a fitted estimator."""

import json
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bayesmtfs.data.scaling import target_deviation
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.estimators.bayesian_prediction import PosteriorPrediction
from bayesmtfs.posterior.request import PosteriorFit, PosteriorRequest
from bayesmtfs.posterior.summaries import inclusion_probability, local_false_sign_rate
from bayesmtfs.results.fit_result import Convergence, FitResult, current_versions
from bayesmtfs.types import BoolArray, IntArray

INTERVAL = (0.05, 0.95)  # of a learned q


class PosteriorAttributes(PosteriorPrediction):
    """Fitted attributes that summarise draws."""

    effect_size: float
    inclusion_threshold: float
    _saved_attributes: ClassVar[tuple[str, ...]] = (
        "inclusion_probability_",
        "local_false_sign_rate_",
        "coef_std_",
        "mean_coef_",
        "noise_",
        "norm_q_",
        "norm_q_interval_",
        "task_relations_",
        "_diagnostics",
    )

    def _store_posterior(self, data: TaskData, found: PosteriorFit, request: PosteriorRequest) -> None:
        """Set the fitted attributes; features that were screened out have coefficient 0."""
        variables, shape = found.draws.variables, (data.n_tasks, data.n_features)
        coef = variables["coef"]
        self.coef_, self.coef_std_ = np.zeros(shape), np.zeros(shape)
        self.coef_[:, found.in_tree] = coef.mean(axis=(0, 1)).T
        self.coef_std_[:, found.in_tree] = coef.std(axis=(0, 1)).T
        for name in ("mean_coef_", "task_relations_"):  # of an earlier fit with another prior
            self.__dict__.pop(name, None)
        if "mean_coef" in variables:
            self.mean_coef_ = np.zeros(data.n_features)
            self.mean_coef_[found.in_tree] = variables["mean_coef"].mean(axis=(0, 1))
        self.intercept_ = variables["intercept"].mean(axis=(0, 1))
        self.noise_ = variables["noise"].mean(axis=(0, 1)) if "noise" in variables else np.ones(data.n_tasks)
        self.inclusion_probability_ = np.zeros(data.n_features)
        height = target_deviation(data) if self.loss == "squared" else 1.0
        unit = found.tree["constant_data"]["feature_deviation"].values / height
        self.inclusion_probability_[found.in_tree] = inclusion_probability(coef, unit, self.effect_size)
        self.local_false_sign_rate_ = np.ones(shape)
        self.local_false_sign_rate_[:, found.in_tree] = local_false_sign_rate(coef)
        q = variables.get("norm_q", np.full(1, 2.0 if request.norm_q is None else request.norm_q))
        self.norm_q_ = float(np.median(q))
        # Order statistics: interpolating between two infinities gives no number
        low, high = np.quantile(q, INTERVAL, method="inverted_cdf")
        self.norm_q_interval_ = (float(low), float(high))
        if "task_relations" in variables:
            self.task_relations_ = variables["task_relations"].mean(axis=(0, 1))
        # A tree that travels without its estimator still says what was asked for
        found.tree.attrs["settings"] = json.dumps(self.get_params(deep=False), default=str)
        self._diagnostics = found.diagnostics.as_dict()
        self.n_iter_ = found.draws.n_draws
        self.converged_ = not (found.diagnostics.problems() or found.draws.interrupted or found.draws.message)
        self.result_ = self._result(data, found, request)

    def _result(self, data: TaskData, found: PosteriorFit, request: PosteriorRequest) -> FitResult:
        sampler = f"{found.draws.n_chains} chains of {found.draws.n_draws} draws by the sampler '{found.draws.sampler}'"
        penalty = {} if found.penalty_strength is None else {"penalty_strength": found.penalty_strength}
        return FitResult(
            method=type(self).__name__,
            coef=self.coef_,
            intercept=self.intercept_,
            task_names=self.tasks_,
            feature_names=self._feature_names,
            convergence=Convergence(
                converged=self.converged_, n_iter=self.n_iter_, message=f"{sampler}.", advice="raise draws and tune"
            ),
            selection=self.inclusion_probability_ > self.inclusion_threshold,
            posterior=found.tree,
            settings={**self.get_params(deep=False), **penalty, "n_rows": data.n_observations},
            versions=current_versions(),
            seed=request.random_seed,
            noise=self.noise_,
            absent=None if data.present is None else ~data.present.T,
            screened_out=found.screened_out,
        )

    @property
    def posterior_(self) -> Any:
        """The draws, a DataTree in ArviZ form."""
        check_is_fitted(self)
        return self.result_.posterior

    def get_support(self, indices: bool = False) -> BoolArray | IntArray:
        """Features whose inclusion probability exceeds ``inclusion_threshold``.

        Parameters
        ----------
        indices : return the numbers of the features instead of a mask
        """
        check_is_fitted(self)
        support: BoolArray = self.inclusion_probability_ > self.inclusion_threshold
        return np.flatnonzero(support) if indices else support
