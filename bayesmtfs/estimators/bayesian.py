"""Full posteriors behind scikit-learn's face: draws of coefficients, scales, noise and q, and what they say.

    y ~ N(x' w_t + b_t, sigma_t^2) or labels with those log-odds,   w_it ~ GN(0, rho_i, q),   rho_i^2 ~ tau^2 BetaPrime

The full Bayesian version of Zhang, Yeung and Xu (2010), with proper priors where theirs are not
(`bayesmtfs.priors.hyperpriors`). Features and targets are centred and scaled inside, so that the priors mean the same
in any units, and draws come back in the user's. `bayesmtfs.posterior.sampling` says which sampler is used.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.estimators.bayesian_attributes import PosteriorAttributes
from bayesmtfs.estimators.bayesian_parameters import check_bayesian, posterior_request
from bayesmtfs.estimators.bayesian_prediction import check_interval, predictive_summary, probability_summary
from bayesmtfs.estimators.predictors import MultiTaskClassifier, MultiTaskRegressor
from bayesmtfs.posterior.diagnostics import Diagnostics, remedy_of, warn_of_problems, warn_of_tails
from bayesmtfs.posterior.sampling import sample_posterior
from bayesmtfs.types import FloatArray


@dataclass(repr=False, eq=False)
class BayesianEstimator(PosteriorAttributes):
    """The body of both estimators."""

    _losses: ClassVar[tuple[str, ...]]

    prior: str = "generalized_normal"
    norm_q: float | str = 2
    sampler: str = "auto"
    draws: int = 1000
    tune: int = 1000
    chains: int = 4
    effect_size: float = 0.05
    inclusion_threshold: float = 0.5
    expected_features: float | None = None
    global_scale: float | None = None
    learn_global_scale: bool = True
    tail_shape: float = 0.5
    spike_shape: float = 0.5
    row_scale_bounds: Any = "auto"
    norm_q_bounds: tuple[float, float] = (1.0, 50.0)
    shared_noise: bool = False
    shared_mean: bool = False
    mean_strength: float | None = None
    penalty_strength: float | None = None
    relation_concentration: float = 2.0
    target_accept: float = 0.9
    max_features: int | None = 1000
    fit_intercept: bool = True
    standardize: bool = False
    task_column: Any = None
    unknown_task: str = "error"
    groups: ArrayLike | None = None
    random_state: Any = None
    n_jobs: int | None = None
    progress: bool | None = None

    # ------------------------------------------------------------------ the fit

    def _check_parameters(self) -> None:
        check_bayesian(self.get_params(deep=False), self.loss, self._losses)

    def _fit(self, data: TaskData) -> None:
        request = posterior_request(self.get_params(deep=False), self.loss)
        found = sample_posterior(data, request)
        remedy = remedy_of(found.diagnostics, found.draws.sampler, self.prior)
        warn_of_problems(found.diagnostics, found.draws.message, remedy, stacklevel=3)
        warn_of_tails(found.diagnostics, stacklevel=3)
        self._store_posterior(data, found, request)

    @property
    def diagnostics_(self) -> Diagnostics:
        """Whether the draws can be trusted; ``diagnostics_.to_frame()`` is a table."""
        check_is_fitted(self)
        return Diagnostics.from_dict(self._diagnostics)


@dataclass(repr=False, eq=False)
class BayesianRegressor(MultiTaskRegressor, BayesianEstimator):
    """Multi-task regression with a full posterior.

    Parameters
    ----------
    prior : {"generalized_normal", "jeffreys", "matrix_variate", "mixed_norm", "horseshoe"}
        Prior of the rows of coefficients: generalized normal with half-Cauchy-like scales; with log-uniform scales
        between bounds; with learned task relations; the prior whose mode is the mixed-norm fit (noise 1, in the user's
        units); the group regularised horseshoe.
    norm_q : float in [1, inf] or "learn", default 2
        Shape of a row: 2 normal, smaller concentrates on few tasks, larger spreads evenly.
    sampler : {"auto", "gibbs", "nuts", "fast"}
        "auto" takes Gibbs for the priors "generalized_normal" and "jeffreys", with labels if their sample weights are
        whole numbers; else NUTS. "fast" is expectation propagation at q = 2, in a fraction of the time
        (`bayesmtfs.posterior.fast` states its error).
    draws, tune, chains : int
        Draws per chain that are kept, those before them, and chains. A draw of the Gibbs sampler is one sweep, or four
        where q is learned or features outnumber the rows.
    effect_size : float, default 0.05
        Effect, in deviations of y per deviation of x, above which a feature counts as included.
    inclusion_threshold : float, default 0.5
        Inclusion probability above which a feature is selected.
    expected_features : float, optional
        How many features are expected to matter; None: a tenth.
    global_scale : float, optional
        Prior median of tau, in units of sd(y) / sd(x), instead of the one that follows from ``expected_features``.
    learn_global_scale : bool, default True
        Whether tau is learned.
    tail_shape, spike_shape : float, default 0.5
        How easily a row is large, and how easily near zero: a and c of ``rho^2 = tau^2 BetaPrime(c, a)``.
    row_scale_bounds : "auto" or (float, float)
        Bounds of the Jeffreys prior's scales, in units of sd(y) / sd(x).
    norm_q_bounds : (float, float), default (1, 50)
        Range of a learned q; its prior is uniform in 1/q.
    shared_noise : bool, default False
        One noise level for all tasks.
    shared_mean : bool, default False
        A row's coefficients spread around a mean that is learned, instead of around 0: tasks with little data are drawn
        to the others. For the priors "generalized_normal", "jeffreys" and "horseshoe".
    mean_strength : float, optional
        How strongly that mean is drawn to 0: it is normal with the deviation ``s_y / (sd(x) sqrt(mean_strength))``, s_y
        the deviation of y within tasks. None: 1. Columns that are redundant, such as dummies without a reference level,
        leave their means (and inclusion probabilities) to this prior: drop a level, or raise it.
    penalty_strength : float, optional
        Of prior="mixed_norm", for a sum of losses; None: a tenth of the smallest one at which nothing is selected.
    relation_concentration : float, default 2.0
        Of prior="matrix_variate": larger values expect less related tasks.
    target_accept : float, default 0.9
        Of NUTS: larger values take smaller steps.
    max_features : int or None, default 1000
        Above that, features are screened before sampling (`bayesmtfs.posterior.screening`), with a warning.
    fit_intercept : bool, default True
        One intercept per task.
    standardize : bool, default False
        Scale features within each task instead of over all rows.
    task_column, groups : see `MixedNormRegressor`
    unknown_task : {"error", "mean", "population"}
        What to do with a task that was not there in fit: refuse it, predict with the average task, or draw it from the
        population of tasks.
    random_state : int, RandomState or None
        An integer gives the same draws, bit for bit.
    n_jobs : int or None
        Chains at once; None: as many as there are cores.
    progress : bool or None
        Progress bar: always, never, or (None) for long fits on a terminal. Ctrl-C keeps the draws so far.

    Attributes
    ----------
    posterior_ : xarray.DataTree
        Groups posterior, sample_stats, posterior_predictive, log_likelihood, observed_data, constant_data (with what is
        not learned, such as a fixed ``norm_q``); its attributes hold settings, versions and seed.
    inclusion_probability_ : (n_features,)
        Posterior probability that ``max_t |w_it| sd(x_i) / sd(y)`` exceeds ``effect_size``.
    local_false_sign_rate_ : (n_tasks, n_features)
        ``min(P(w <= 0), P(w >= 0))``.
    coef_, coef_std_ : (n_tasks, n_features)
        Posterior means and deviations.
    mean_coef_ : (n_features,)
        Posterior mean of what the tasks have in common, with ``shared_mean``.
    intercept_, noise_ : (n_tasks,)
        Posterior means.
    norm_q_ : float
        Posterior median of q, with its 90% interval in ``norm_q_interval_``.
    task_relations_ : (n_tasks, n_tasks)
        Posterior mean, of prior="matrix_variate".
    diagnostics_ : `bayesmtfs.posterior.diagnostics.Diagnostics`
    tasks_, n_iter_, converged_, result_

    Examples
    --------
    >>> from bayesmtfs import simulate_tasks
    >>> from bayesmtfs.estimators.bayesian import BayesianRegressor
    >>> sim = simulate_tasks(n_tasks=4, n_features=10, n_relevant=3, n_samples=40, random_state=0)
    >>> model = BayesianRegressor(draws=1500, random_state=0).fit(sim.X, sim.y, tasks=sim.tasks)
    >>> bool((model.get_support() == sim.support).all())
    True
    >>> mean, low, high = model.predict(sim.X[:3], tasks=sim.tasks[:3], interval=0.9)
    >>> bool((low < mean).all() and (mean < high).all())
    True
    """

    _losses = ("squared",)

    def predict(self, X: Any, tasks: Any = None, return_std: bool = False, interval: float | None = None) -> Any:
        """Predict targets.

        Parameters
        ----------
        X : (n, p) rows
        tasks : (n,) task labels, where the model was fitted on labelled tasks
        return_std : also give the standard deviation of a new target, its noise included
        interval : also give the ends of the central interval with this probability for a new target

        Returns
        -------
        the means, or a tuple of means, deviations (with ``return_std``), lower and upper ends (with ``interval``), each
        (n,), or (n, n_tasks) for a model of the wide form
        """
        mean = self._linear_predictor(X, tasks)
        if not return_std and interval is None:
            return mean
        check_interval(interval)
        rng = np.random.default_rng([self.result_.seed or 0, 3])
        _, deviation, *ends = self._summarise(X, tasks, predictive_summary(rng, interval))
        return (mean, *([deviation] if return_std else []), *ends)


@dataclass(repr=False, eq=False)
class BayesianClassifier(MultiTaskClassifier, BayesianEstimator):
    """Multi-task classification with a full posterior.

    Probabilities are averages over draws, and ``decision_function`` is the logit of that average;
    `probability_interval` says how sure they are.

    Parameters
    ----------
    loss : {"logistic", "hinge"}
        The hinge is a pseudo-likelihood, for ``prior="mixed_norm"``: no probabilities, no predictive draws.
    effect_size : float, default 0.05
        Change of the log-odds per deviation of x above which a feature counts as included. That is little: labels
        say less than numbers, and with few rows the posterior leaves most features larger than that in some task, so
        that all are included. Take a size that matters and that the data resolve, such as 0.3, or look at
        ``local_false_sign_rate_``.
    prior, norm_q, sampler, draws, tune, chains, inclusion_threshold, expected_features, global_scale,
    learn_global_scale, tail_shape, spike_shape, row_scale_bounds, norm_q_bounds, shared_noise, shared_mean,
    mean_strength, penalty_strength, relation_concentration, target_accept, max_features, fit_intercept, standardize,
    task_column, unknown_task, groups, random_state, n_jobs, progress : see `BayesianRegressor`; row scales are in
    log-odds per deviation of x, and the deviation of a shared mean is ``2 / sqrt(mean_strength)``

    Attributes
    ----------
    classes_ : (n_classes,) sorted labels
    posterior_, inclusion_probability_, local_false_sign_rate_, coef_, coef_std_, mean_coef_, intercept_, norm_q_,
    diagnostics_, tasks_, n_iter_, converged_, result_ : see `BayesianRegressor`; labels in ``posterior_`` are -1 and +1

    Examples
    --------
    >>> from bayesmtfs import simulate_tasks
    >>> from bayesmtfs.estimators.bayesian import BayesianClassifier
    >>> sim = simulate_tasks(n_tasks=4, n_features=10, n_relevant=2, kind="classification", random_state=0)
    >>> model = BayesianClassifier(sampler="fast", random_state=0).fit(sim.X, sim.y, tasks=sim.tasks)
    >>> model.predict_proba(sim.X[:5], tasks=sim.tasks[:5]).shape
    (5, 2)
    >>> mean, low, high = model.probability_interval(sim.X[:5], tasks=sim.tasks[:5], interval=0.9)
    >>> bool((low < mean).all() and (mean < high).all())
    True
    """

    _losses = ("logistic", "hinge")
    _saved_attributes = (*BayesianEstimator._saved_attributes, "classes_")

    loss: str = "logistic"

    def probability_interval(self, X: Any, tasks: Any = None, interval: float = 0.9) -> tuple[FloatArray, ...]:
        """Probability of ``classes_[1]`` (several classes: of each against the rest) and how sure it is.

        Parameters
        ----------
        X, tasks : as in `decision_function`
        interval : probability of the interval over draws

        Returns
        -------
        means, lower and upper ends, each (n,), or (n, n_tasks) or (n, n_classes)
        """
        check_is_fitted(self)
        check_interval(interval)
        if self.loss != "logistic":
            raise ValueError(f"loss={self.loss!r} has no probabilities; use loss='logistic'")
        return self._summarise(X, tasks, probability_summary(interval))
