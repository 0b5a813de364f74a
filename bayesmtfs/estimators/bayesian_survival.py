r"""Full posteriors of survival: Cox's proportional hazards for many tasks, with a common choice of features.

    p(W | data)  proportional to  prod_t partial likelihood_t(w_t) * p(W)

The partial likelihood is a pseudo-likelihood: no density of the times, but what is left of the full likelihood when
each task's baseline hazard is integrated out under a gamma process whose precision goes to 0 (Kalbfleisch 1978, *JRSS B*
40:214-221; Sinha, Ibrahim and Chen 2003, *Biometrika* 90:629-641; exact without ties, which are Efron's here). The same
limit gives the baseline given the coefficients: its increments at the times of events are independent,

.. math:: dH_{tk} \mid W \sim \mathrm{Gamma}\Big(C_{tk},\ \sum_{j\ \mathrm{at\ risk}} w_j e^{\eta_j}\Big) ,

C being the (weighted) number of events at that time, whose means are Breslow's estimate. Survival functions are averages
over draws of coefficients and increments. Coefficients are sampled by NUTS.
"""

from dataclasses import field
from typing import Any, ClassVar

import numpy as np

from bayesmtfs.data.inputs import match_labels
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.estimators.base import Names, estimator_class
from bayesmtfs.estimators.bayesian import BayesianEstimator
from bayesmtfs.estimators.bayesian_prediction import PredictiveDraws, check_interval
from bayesmtfs.estimators.survival import SurvivalFace, at_times, event_times, risk_sets
from bayesmtfs.families import Family, find_family
from bayesmtfs.posterior.sampling import PosteriorFit, PosteriorRequest
from bayesmtfs.results.tables import central_interval
from bayesmtfs.types import FloatArray

BASELINE_DRAWS = 400  # of all chains together, that are kept
BLOCK = 4_000_000  # numbers held at once


@estimator_class()
class BayesianSurvival(SurvivalFace, BayesianEstimator):
    """Multi-task Cox regression with a full posterior.

    Parameters
    ----------
    prior : {"auto", "generalized_normal", "jeffreys", "matrix_variate", "mixed_norm", "horseshoe"}
        As in `BayesianRegressor`; "auto" is "generalized_normal". The mode under "mixed_norm" is `MixedNormSurvival` with
        ``loss_scale="sum"``.
    sampler : {"auto", "nuts"}
        NUTS.
    effect_size : float, default 0.05
        Change of the log-hazard per deviation of x above which a feature counts as included. That is little where
        events are few: take a size that matters, such as 0.2.

    Attributes
    ----------
    cumulative_baseline_hazard_ : (n_tasks, k)
        Posterior mean for each task, at ``event_times_``.
    posterior_ : xarray.DataTree
        As in `BayesianRegressor`, without predictive draws and log-likelihoods, of which a partial likelihood has none.

    Examples
    --------
    >>> import numpy as np
    >>> from bayesmtfs import BayesianSurvival
    >>> rng = np.random.default_rng(0)
    >>> X, tasks = rng.normal(size=(120, 3)), np.repeat(["a", "b"], 60)
    >>> time, died = rng.exponential(np.exp(-X[:, 0])), rng.random(120) < 0.7
    >>> y = np.array(list(zip(died, time)), dtype=[("event", bool), ("time", float)])
    >>> model = BayesianSurvival(draws=100, tune=200, chains=2, random_state=0)
    >>> model.fit(X, y, tasks=tasks).score(X, y, tasks=tasks) > 0.7  # doctest: +SKIP
    True

    References
    ----------
    Kalbfleisch (1978), Non-parametric Bayesian analysis of survival time data. Sinha, Ibrahim, Chen (2003), A Bayesian
    justification of Cox's partial likelihood.
    """

    _saved_attributes: ClassVar[Names] = ("_baseline_draws", "_baseline_places")

    loss: str | Family = "cox"
    fit_intercept: bool = field(default=False, kw_only=True)

    def _check_loss(self, prior: str) -> None:
        self._check_survival()
        self._require(
            "sampler", self.sampler in ("auto", "nuts"), "'auto' or 'nuts': the partial likelihood has no other"
        )
        self._require("prior", prior != "spike", "'auto', or a prior that is not 'spike'")

    def _store_posterior(self, data: TaskData, found: PosteriorFit, request: PosteriorRequest) -> None:
        super()._store_posterior(data, found, request)
        draws = found.draws.variables["coef"]
        coef = draws.reshape(-1, *draws.shape[2:])
        places = np.unique(np.linspace(0, len(coef) - 1, min(BASELINE_DRAWS, len(coef))).astype(np.int64))
        self._baseline_places = places
        sets, rng = risk_sets(data), np.random.default_rng([request.random_seed, 5])
        self.event_times_ = event_times(sets)
        baselines = np.empty((len(places), data.n_tasks, len(self.event_times_)))
        for t, (X, own, (start, stop)) in enumerate(zip(data.task_designs, sets, data.spans, strict=True)):
            eta = np.asarray(X[:, np.flatnonzero(found.in_tree)] @ coef[places, :, t].T)
            eta = eta if data.eta_offset is None else eta + data.eta_offset[start:stop, np.newaxis]
            rates = np.array([own.hazard_rates(column) for column in eta.T])
            increments = rng.gamma(np.broadcast_to(own.mass, rates.shape)) / rates
            baselines[:, t] = at_times(np.cumsum(increments, axis=1), own, self.event_times_)
        self._baseline_draws = baselines
        self.cumulative_baseline_hazard_ = baselines.mean(axis=0)

    def predict_cumulative_hazard_function(
        self, X: Any, tasks: Any = None, interval: float | None = None, *, offset: Any = None
    ) -> Any:
        """Posterior mean of the cumulated hazard of every row (n, k) at the k ``event_times_``.

        Parameters
        ----------
        X, tasks, offset : as in `predict`
        interval : also give the ends of the central interval with this probability, over draws

        Returns
        -------
        the means, or a tuple of means, lower and upper ends, each (n, k)
        """
        return self._over_draws(X, tasks, interval, offset, survival=False)

    def predict_survival_function(
        self, X: Any, tasks: Any = None, interval: float | None = None, *, offset: Any = None
    ) -> Any:
        """Probability (n, k) of every row to outlive each of the k ``event_times_``, the mean over draws.

        Parameters
        ----------
        X, tasks, offset : as in `predict`
        interval : also give the ends of the central interval of the probability, over draws

        Returns
        -------
        the means, or a tuple of means, lower and upper ends, each (n, k)
        """
        return self._over_draws(X, tasks, interval, offset, survival=True)

    def _over_draws(self, X: Any, tasks: Any, interval: float | None, offset: Any, survival: bool) -> Any:
        check_interval(interval)
        n_rows = len(self.predict(X, tasks, offset=offset))
        known = self._known_part(X, None, offset, (n_rows,))
        X = self._without_named(X, None, offset)
        _, labels = self._split_task_column(X, tasks)
        own = np.zeros(n_rows, dtype=np.int64) if labels is None else match_labels(labels, n_rows, self.tasks_)
        rows = self._read_rows(X, tasks)
        draws = PredictiveDraws(self.result_, find_family(self.loss), self.unknown_task, False)
        found = np.empty((1 if interval is None else 3, n_rows, len(self.event_times_)))
        step = max(BLOCK // self._baseline_draws[:, 0].size, 1)
        for t in np.unique(own):
            task, places = draws.of_task(int(t)), np.flatnonzero(own == t)
            baseline = self._baseline_draws[:, t] if t >= 0 else self._baseline_draws.mean(axis=1)
            coef = task.coef[self._baseline_places]
            for some in np.array_split(places, -(-len(places) // step)):
                eta = np.asarray(rows.X[some][:, draws.features] @ coef.T).T
                risk = np.exp(eta if known is None else eta + known[some])
                hazard = risk[:, :, np.newaxis] * baseline[:, np.newaxis]  # (draws, rows, k)
                values: FloatArray = np.exp(-hazard) if survival else hazard
                found[0, some] = values.mean(axis=0)
                if interval is not None:
                    found[1:, some] = central_interval(values, interval)
        return found[0] if interval is None else tuple(found)
