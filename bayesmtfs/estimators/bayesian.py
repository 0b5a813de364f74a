"""Full posteriors as scikit-learn's estimators: draws of coefficients, scales, noise and q, and what they say.

    y ~ N(x' w_t + b_t, sigma_t^2) or another family,   w_it ~ GN(0, rho_i, q),   rho_i^2 ~ tau^2 BetaPrime

The full Bayesian version of Zhang, Yeung and Xu (2010), with proper priors where theirs are not
(`bayesmtfs.priors.hyperpriors`). Features and targets are centred and scaled inside, so that the priors mean the same
in any units, and draws come back in the user's. `bayesmtfs.posterior.sampling` says which sampler is used.
"""

import json
import math
from dataclasses import fields, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from bayesmtfs.data.gaps import categorical_features, gap_columns, has_gaps
from bayesmtfs.data.inputs import DesignTable, match_labels
from bayesmtfs.data.moments import Moments
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.estimators import bayesian_prediction as prediction
from bayesmtfs.estimators.base import MultiTaskEstimator, Names, check_choice, check_family, estimator_class
from bayesmtfs.estimators.bayesian_prediction import PredictiveDraws, Summary
from bayesmtfs.estimators.predictors import MultiTaskClassifier, MultiTaskRegressor, _has_probabilities
from bayesmtfs.families import Family, find_family
from bayesmtfs.families.augmentation import QUANTILE
from bayesmtfs.posterior.diagnostics import Diagnostics, remedy_of, warn_of_problems, warn_of_tails
from bayesmtfs.posterior.sampling import PosteriorFit, PosteriorRequest, sample_posterior
from bayesmtfs.posterior.tree import inclusion_probability, local_false_sign_rate
from bayesmtfs.results.fit_result import Convergence, FitResult
from bayesmtfs.results.tables import INTERVAL, TAILS
from bayesmtfs.types import BoolArray, FloatArray, IntArray

PRIORS = ("auto", "generalized_normal", "jeffreys", "matrix_variate", "mixed_norm", "horseshoe", "spike")
SPIKE_SAMPLERS = ("auto", "gibbs", "variational")
CONTINUOUS_ONLY = {"global_scale": None, "learn_global_scale": True, "tail_shape": 0.5, "spike_shape": 0.5}
SHARED_MEAN_PRIORS = ("generalized_normal", "jeffreys", "horseshoe")
SAMPLERS = ("auto", "gibbs", "nuts", "variational")
UNKNOWN_TASK = ("error", "mean", "population")
STATED_PRIOR = (
    *("expected_features", "global_scale", "learn_global_scale", "tail_shape", "spike_shape", "norm_q_bounds"),
    *("shared_noise", "shared_mean", "mean_strength"),
)
NO_MEAN = "whose rows have no mean of their own; "


def prior_of(model: "BayesianEstimator", weight: FloatArray | None = None) -> str:
    """Name of the prior that an estimator has, where ``prior="auto"`` is read as follows.

    "spike", which answered best over the data of ``docs/pages/which_prior.md``, where it is defined: rows with
    ``norm_q=2`` and no ``shared_mean`` (it learns how alike effects are), a family that is normal given a hidden
    precision which can be drawn at these sample weights, one of its own samplers, and no ``unknown_task="population"``;
    not for quantiles, where it missed more of effects in all tasks (``docs/pages/which_family.md``).
    Else "generalized_normal", as also where a parameter that only continuous priors have was changed
    (`CONTINUOUS_ONLY`).

    Parameters
    ----------
    model : with its parameters set
    weight : (n,) sample weights; None: not known yet

    Examples
    --------
    >>> prior_of(BayesianRegressor()), prior_of(BayesianRegressor(norm_q="learn"))
    ('spike', 'generalized_normal')
    """
    if model.prior != "auto":
        return model.prior
    hidden = find_family(model.loss).augmentation
    has_rows = model.norm_q == 2 and not model.shared_mean and model.unknown_task != "population"
    any_weight = weight is None or model.sampler == "variational"
    is_drawn = hidden is not None and hidden.form != QUANTILE and (any_weight or hidden.takes_weights(weight))
    as_stated = all(getattr(model, name) == default for name, default in CONTINUOUS_ONLY.items())
    defined = has_rows and is_drawn and as_stated and model.sampler in SPIKE_SAMPLERS
    return "spike" if defined else "generalized_normal"


@estimator_class()
class BayesianEstimator(MultiTaskEstimator):
    """What both estimators share.

    Parameters
    ----------
    loss : str or Family, default "squared"
        Family of the targets: "squared", "absolute", or any other one of numbers or counts (`bayesmtfs.families`) that
        has a PyMC term, for NUTS. Coefficients act on the linear predictor, and ``predict`` gives the mean target.
    prior : {"auto", "spike", "generalized_normal", "jeffreys", "matrix_variate", "mixed_norm", "horseshoe"}
        Prior of the rows of coefficients. "auto" is "spike" where that is defined, else "generalized_normal"
        (`prior_of` has the rule, ``prior_`` says which it was). Rows with exact zeros of features and of their entries,
        patterns of tasks learned (`bayesmtfs.priors.spike`), for families that are normal given a hidden precision, such
        as the squared loss, labels, Student's t and negative binomial counts; generalized normal with
        half-Cauchy-like scales; with log-uniform scales between bounds; with learned task relations; the prior whose
        mode is the mixed-norm fit (noise 1, in the user's units); the group regularised horseshoe.
    norm_q : float in [1, inf] or "learn", default 2
        Shape of a row: 2 normal, smaller concentrates on few tasks, larger spreads evenly.
    sampler : {"auto", "gibbs", "nuts", "variational"}
        "auto" takes Gibbs for the priors "spike", "generalized_normal" and "jeffreys" with these families, and with
        labels, of several classes within tasks too, if their sample weights are whole numbers; else NUTS. "variational"
        approximates the posterior under the prior "spike" in a fraction of the time: coordinate ascent finds the features
        that can matter, and short chains draw these (`bayesmtfs.posterior.variational`).
    draws, tune, chains : int
        Draws per chain that are kept, those before them, and chains. A draw of the Gibbs sampler is one sweep, or four
        where q is learned, features outnumber the rows, or there are several classes within tasks.
    effect_size : float, default 0.05
        Effect, in deviations of y per deviation of x, both within tasks, above which a feature counts as included, under
        priors without exact zeros; the prior "spike" asks whether a coefficient is 0 instead.
    inclusion_threshold : float, default 0.5
        Inclusion probability above which a feature is selected.
    expected_features : float, optional
        How many features are expected to matter; None: a tenth. Of prior="spike" the prior expectation of the number of
        features in the model; None: their share is learned, with a prior on a logarithmic scale.
    global_scale : float, optional
        Prior median of tau, in units of s_y / s_x (deviations within tasks), instead of the one that follows from
        ``expected_features``.
    learn_global_scale : bool, default True
        Whether tau is learned.
    tail_shape, spike_shape : float, default 0.5
        How easily a row is large, and how easily near zero: a and c of ``rho^2 = tau^2 BetaPrime(c, a)``.
    row_scale_bounds : "auto" or (float, float)
        Bounds of the Jeffreys prior's scales, in units of s_y / s_x (deviations within tasks).
    shared_mean : bool, default False
        A row's coefficients spread around a mean that is learned, instead of around 0: tasks with little data are drawn
        to the others. Means are sparse as rows are, ``mu_i ~ N(0, (1 / lambda_i^2 + 1 / s^2)^-1)`` with lambda_i under the
        prior of the row scales. For the priors "generalized_normal", "jeffreys" and "horseshoe".
    mean_strength : float, optional
        How strongly large means are drawn to 0: s, the width of their slab, is ``s_y / (s_x sqrt(mean_strength))``, s_y
        and s_x deviations within tasks. None: 1. Columns that are redundant, such as dummies without a reference level,
        leave their means (and inclusion probabilities) to this prior: drop a level, or raise it.
    penalty_strength : float, optional
        Of prior="mixed_norm", for a sum of losses; None: a tenth of the smallest one at which nothing is selected.
    relation_concentration : float, default 2.0
        Of prior="matrix_variate": larger values expect less related tasks.
    target_accept : float, default 0.9
        Of NUTS: larger values take smaller steps.
    max_features : int or None, default 1000
        Above that, features are screened before sampling, with a warning: under the prior "spike" by a variational fit
        of all of them (`bayesmtfs.posterior.variational`), else by `bayesmtfs.posterior.preparation`.
    fit_intercept : bool, default True
        One intercept per task.
    standardize : bool, default False
        Scale features in each task by their deviation there, instead of by what is pooled over the tasks.
    unknown_task : {"error", "mean", "population"}
        What to do with a task that was not there in fit: refuse it, predict with the average task, or draw it from the
        population of tasks.
    impute : {None, "task_mean", "model"}
        What to do with missing cells of features. None refuses them; "task_mean" fills them with means beside
        indicators, as elsewhere. "model" takes them for unknowns and draws them with everything else, rows of a task
        being multivariate normal (`bayesmtfs.gibbs.cells`): right where cells are missing at random given what was
        observed, and columns roughly normal; categorical columns are filled as "task_mean" does. Intervals are wider
        for what is not known, in predictions of rows with gaps, too; ``posterior_["imputed"]`` has mean and deviation of
        each cell. It needs a Gibbs sampler (see ``sampler``), and a dense X.
    random_state : int, RandomState or None
        An integer gives the same draws, bit for bit.
    n_jobs : int or None
        Chains at once; None: as many as there are cores.
    progress : bool or None
        Progress bar: always, never, or (None) for long fits on a terminal. Ctrl-C keeps the draws so far.

    Attributes
    ----------
    prior_ : str
        The prior of the fit, which ``prior="auto"`` leaves open.
    posterior_ : xarray.DataTree
        Groups posterior, sample_stats, posterior_predictive, log_likelihood, observed_data, constant_data (with what is
        not learned, such as a fixed ``norm_q``), and imputed (with ``impute="model"``); its attributes hold settings,
        versions and seed.
    inclusion_probability_ : (n_features,)
        Posterior probability that ``max_t |w_it| s_i / s_y`` exceeds ``effect_size``, s the deviations within tasks
        (`bayesmtfs.data.scaling.effect_unit`); of prior="spike" that the coefficient is not 0 in some task.
    task_inclusion_probability_ : (n_tasks, n_features)
        The same of every entry; 0 for features that were screened out or that a task does not have.
    local_false_sign_rate_ : (n_tasks, n_features)
        ``min(P(w <= 0), P(w >= 0))``.
    coef_, coef_std_ : (n_tasks, n_features)
        Posterior means and deviations; 0 for features that were screened out.
    mean_coef_ : (n_features,)
        Posterior mean of what the tasks have in common, with ``shared_mean``.
    intercept_, noise_ : (n_tasks,)
        Posterior means.
    dispersion_ : (n_tasks,), degrees_ : float, thresholds_ : (n_tasks, n_classes - 1)
        Posterior medians, with ``loss="negative_binomial(learn)"``, ``"student_t(learn)"`` and ``"ordinal"``.
    norm_q_ : float
        Posterior median of q, with its 90% interval in ``norm_q_interval_``.
    task_relations_ : (n_tasks, n_tasks)
        Posterior mean, of prior="matrix_variate".
    diagnostics_ : `bayesmtfs.posterior.diagnostics.Diagnostics`
    """

    _saved_attributes: ClassVar[Names] = (
        "prior_",
        "inclusion_probability_",
        "task_inclusion_probability_",
        "local_false_sign_rate_",
        "coef_std_",
        "mean_coef_",
        "noise_",
        "dispersion_",
        "degrees_",
        "thresholds_",
        "norm_q_",
        "norm_q_interval_",
        "task_relations_",
        "_diagnostics",
    )

    _takes_offset = True
    _impute_methods: ClassVar[Names] = ("task_mean", "model")

    prior: str = "auto"
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
    impute: str | None = None
    random_state: Any = None
    n_jobs: int | None = None
    progress: bool | None = None
    loss: str | Family = "squared"

    @property
    def _scales_wide_targets(self) -> bool:
        """The mixed norm is stated in the user's units."""
        return self.prior != "mixed_norm"

    def _check_parameters(self) -> None:
        check_choice("prior", self.prior, PRIORS)
        if self.sampler == "fast":
            raise ValueError("sampler='fast' is no more; use sampler='variational', for the prior 'spike', or 'auto'")
        check_choice("sampler", self.sampler, SAMPLERS)
        check_choice("unknown_task", self.unknown_task, UNKNOWN_TASK)
        prior = prior_of(self)
        self._check_loss(prior)
        self._check_norm_q(prior)
        self._check_prior(prior)
        self._check_shared_mean(prior)
        negative = isinstance(self.random_state, int | np.integer) and self.random_state < 0
        self._require("random_state", not negative, "a whole number of at least 0, or None")
        for name, least in (("draws", 4), ("tune", 0), ("chains", 1), ("max_features", 1)):
            number = getattr(self, name)
            valid = number is None or (int(number) == number and number >= least)
            self._require(name, valid, f"a whole number of at least {least}")
        for name in ("inclusion_threshold", "target_accept"):
            self._require(name, 0 < getattr(self, name) < 1, "a number between 0 and 1")
        self._require("effect_size", 0 <= self.effect_size < math.inf, "a number of at least 0, such as 0.05")

    def _check_loss(self, prior: str) -> None:
        family = check_family(self.loss, labels=isinstance(self, MultiTaskClassifier))
        if family.has_cuts and prior == "mixed_norm":
            raise ValueError(
                f"loss={self.loss!r} learns its {family.learned}, which prior='mixed_norm' has no prior for; use 'auto'"
            )
        if prior == "mixed_norm" and family.offers("weights") and not family.offers("conjugate"):
            raise ValueError(
                f"loss={family.name!r} is not convex, but prior='mixed_norm' is the model of a penalised fit; use "
                "prior='auto', or loss='huber'"
            )
        if not family.offers("pymc_dist"):
            family.require("NUTS", "log_density", "pymc_dist")
        if not family.offers("log_density") and prior != "mixed_norm":
            raise ValueError(
                f"loss={self.loss!r} is a pseudo-likelihood for prior='mixed_norm' only, but prior is {prior!r}; "
                "use loss='logistic'"
            )

    def _check_norm_q(self, prior: str) -> None:
        q: Any = self.norm_q
        known = q == "learn" if isinstance(q, str) else q is not None and q >= 1
        self._require("norm_q", known, "a number of at least 1, np.inf, or 'learn'")
        if q == "learn" and prior == "mixed_norm":
            raise ValueError("norm_q='learn' does not go with prior='mixed_norm', whose q is fixed; pass a number")
        if prior in ("horseshoe", "spike") and q != 2:
            raise ValueError(f"norm_q is {q!r}, but prior={prior!r} has normal rows; pass norm_q=2")

    def _check_prior(self, prior: str) -> None:
        if self.unknown_task == "population" and prior in ("mixed_norm", "spike"):
            raise ValueError(prediction.NO_POPULATION)
        if self.unknown_task == "population" and find_family(self.loss).coupled:
            raise ValueError(f"unknown_task='population' does not go with loss={self.loss!r}; use unknown_task='mean'")
        bounds = self.row_scale_bounds
        if prior == "jeffreys" and bounds is None:
            raise ValueError(
                "row_scale_bounds is None, but the Jeffreys prior without bounds is improper and so is its posterior; "
                "pass 'auto' or (low, high), or use prior='generalized_normal'"
            )
        if isinstance(bounds, str):
            valid = bounds == "auto"
        else:
            valid = bounds is None or (np.shape(bounds) == (2,) and 0 < bounds[0] < bounds[1] < math.inf)
        self._require("row_scale_bounds", valid, "'auto' or two finite numbers 0 < low < high")

    def _check_shared_mean(self, prior: str) -> None:
        valid = self.mean_strength is None or 0 < self.mean_strength < math.inf
        self._require("mean_strength", valid, "a finite number above 0, or None")
        if self.shared_mean and prior not in SHARED_MEAN_PRIORS:
            raise ValueError(
                f"shared_mean=True does not go with prior={prior!r}, "
                + ("which learns how much effects have in common; " if prior == "spike" else NO_MEAN)
                + "use "
                "prior='generalized_normal', 'jeffreys' or 'horseshoe', or leave shared_mean False"
            )

    def _indicated(self, table: DesignTable) -> IntArray:
        """Columns whose cells are drawn have no indicator, only those of categories."""
        columns = gap_columns(table)
        if self.impute != "model":
            return columns
        known = () if table.encoding is None else table.encoding.columns
        return np.array([k for k in columns if known and known[k].levels is not None], dtype=np.int64)

    def _filled(self, data: TaskData) -> TaskData:
        """Training data; cells that are to be drawn stay NaN."""
        whole = super()._filled(data)
        if self.impute != "model" or not has_gaps(data):
            return whole
        drawn = np.isnan(data.design) & ~categorical_features(data)
        return replace(data, design=np.where(drawn, np.nan, whole.design))

    def _fit(self, data: TaskData) -> None:
        request = self._request(data.weight)
        found = sample_posterior(data, request, **self._stated_prior())
        remedy = remedy_of(found.diagnostics, found.draws.sampler, request.prior)
        warn_of_problems(found.diagnostics, found.draws.message, remedy)
        warn_of_tails(found.diagnostics)
        self._row_model = None if found.row_model is None else found.row_model._asdict()
        self._store_posterior(found.data, found, request)

    def _request(self, weight: FloatArray | None = None) -> PosteriorRequest:
        """How to sample: parameters go by their own names, but for four."""
        seed = self.random_state
        if not isinstance(seed, int | np.integer):
            seed = check_random_state(seed).randint(2**31 - 1)
        own = {field.name: getattr(self, field.name) for field in fields(PosteriorRequest) if hasattr(self, field.name)}
        own["prior"], own["scale_target"] = prior_of(self, weight), self._scales_target
        own["norm_q"] = None if isinstance(self.norm_q, str) else float(self.norm_q)
        return PosteriorRequest(**own, family=find_family(self.loss), random_seed=int(seed))

    def _stated_prior(self) -> dict[str, Any]:
        """Parameters of `bayesmtfs.priors.hyperpriors.hyperprior_for`."""
        return {name: getattr(self, name) for name in STATED_PRIOR} | {"bounds": self.row_scale_bounds}

    def _store_posterior(self, data: TaskData, found: PosteriorFit, request: PosteriorRequest) -> None:
        """Set the fitted attributes; features that were screened out have coefficient 0."""
        variables, kept = found.draws.variables, found.in_tree
        self.prior_ = request.prior
        coef = variables["coef"]
        self.coef_ = _widened(coef.mean(axis=(0, 1)).T, kept)
        self.coef_std_ = _widened(coef.std(axis=(0, 1)).T, kept)
        for name in ("mean_coef_", "task_relations_"):  # of an earlier fit with another prior
            self.__dict__.pop(name, None)
        if "mean_coef" in variables:
            self.mean_coef_ = _widened(variables["mean_coef"].mean(axis=(0, 1)), kept)
        self.intercept_ = variables["intercept"].mean(axis=(0, 1))
        self.noise_ = variables["noise"].mean(axis=(0, 1)) if "noise" in variables else np.ones(data.n_tasks)
        for name in ("dispersion", "degrees", "thresholds"):  # of a family that learns it
            self.__dict__.pop(f"{name}_", None)
            if name in variables:
                setattr(self, f"{name}_", np.median(variables[name], axis=(0, 1)))
        unit = found.tree["constant_data"]["effect_unit"].values
        if "included" in variables:  # a prior with exact zeros
            features, entries = inclusion_probability(variables["included"], np.ones_like(unit), 0.5)
        else:
            features, entries = inclusion_probability(coef, unit, self.effect_size)
        self.inclusion_probability_ = _widened(features, kept)
        self.task_inclusion_probability_ = _widened(entries, kept)
        self.local_false_sign_rate_ = _widened(local_false_sign_rate(coef), kept, fill=1.0)
        q = variables.get("norm_q", np.full(1, 2.0 if request.norm_q is None else request.norm_q))
        self.norm_q_ = float(np.median(q))
        # Order statistics: interpolating between two infinities gives no number
        low, high = np.quantile(q, TAILS, method="inverted_cdf")
        self.norm_q_interval_ = (float(low), float(high))
        if "task_relations" in variables:
            self.task_relations_ = variables["task_relations"].mean(axis=(0, 1))
        # A tree that travels without its estimator still says what was asked for
        found.tree.attrs["settings"] = json.dumps(self._plain_params() | {"prior": self.prior_}, default=str)
        self._diagnostics = found.diagnostics.as_dict()
        self.n_iter_ = found.draws.n_draws
        self.converged_ = not (found.diagnostics.problems() or found.draws.interrupted or found.draws.message)
        self.result_ = self._result(data, found, request)

    def _result(self, data: TaskData, found: PosteriorFit, request: PosteriorRequest) -> FitResult:
        draws = found.draws
        sampler = f"{draws.n_chains} chains of {draws.n_draws} draws by the sampler '{draws.sampler}'."
        penalty = {} if found.penalty_strength is None else {"penalty_strength": found.penalty_strength}
        return self._named_result(
            Convergence(converged=self.converged_, n_iter=self.n_iter_, message=sampler, advice="raise draws and tune"),
            {**penalty, "prior": self.prior_, "n_rows": self._n_rows(data)},
            coef=self.coef_,
            intercept=self.intercept_,
            task_names=data.task_names,
            selection=self._selected,
            posterior=found.tree,
            effect_unit=self._effect_unit(data),
            seed=request.random_seed,
            noise=self.noise_,
            absent=None if data.present is None else ~data.present.T,
            screened_out=found.screened_out,
        )

    def prior_predictive(
        self, X: Any, y: Any = None, tasks: Any = None, sample_weight: Any = None, draws: int = 500
    ) -> Any:
        """Draw from the prior, before anything is fitted: what it believes of coefficients, and of targets at these rows.

        The targets ``y`` set the units (means and deviations within tasks), as they do in ``fit``, and nothing else.

        Parameters
        ----------
        X, y, tasks, sample_weight : as in ``fit``
        draws : how many draws

        Returns
        -------
        xarray.DataTree with the groups ``prior`` (``coef``, ``intercept``, ``noise``, scales), ``prior_predictive`` (``y``)
        and ``observed_data``, in the user's units; columns that do not vary are left out
        """
        if int(draws) != draws or draws < 1:
            raise ValueError(f"draws is {draws}; pass a whole number of at least 1")
        # PyMC takes seconds to load, which a Gibbs fit need not wait for
        from bayesmtfs.posterior.prior_draws import draw_prior

        reader = clone(self)
        data = reader.training_data(X, y, tasks, sample_weight)
        data = MultiTaskEstimator._filled(reader, data)  # which no draw is to know of
        return draw_prior(data, reader._request(data.weight), int(draws), **reader._stated_prior())

    @property
    def diagnostics_(self) -> Diagnostics:
        """Whether the draws can be trusted; ``diagnostics_.to_frame()`` is a table."""
        check_is_fitted(self)
        return Diagnostics.from_dict(self._diagnostics)

    @property
    def posterior_(self) -> Any:
        """The draws, a DataTree in ArviZ form."""
        check_is_fitted(self)
        return self.result_.posterior

    @property
    def _selected(self) -> BoolArray:
        return self.inclusion_probability_ > self.inclusion_threshold

    def _full_predictor(self, X: Any, tasks: Any, exposure: Any = None, offset: Any = None) -> FloatArray:
        family = find_family(self.loss)
        if not (family.targets == "labels" and family.offers("mean")):
            return super()._full_predictor(X, tasks, exposure, offset)
        return self._summarise(X, tasks, self._mean_decision, known=(exposure, offset))[0]

    @property
    def _n_classes(self) -> int:
        """Number of classes that stand side by side in the draws of every task."""
        return 1

    @property
    def _mean_decision(self) -> Summary:
        """Decision that is positive, or largest, for the class of the largest mean probability."""
        return prediction.mean_logit if self._n_classes == 1 else prediction.mean_log_probability

    def _linear_predictor(self, X: Any, tasks: Any) -> FloatArray:
        """Mean of the linear predictor; of labels with probabilities the logit of the mean probability."""
        check_is_fitted(self)
        family = find_family(self.loss)
        if family.targets == "labels" and family.offers("mean"):
            return self._summarise(X, tasks, self._mean_decision)[0]
        if self.unknown_task == "population" or (self.unknown_task == "mean" and isinstance(X, TaskData)):
            return self._summarise(X, tasks, lambda family, eta, noise: (eta.mean(axis=0),), expected=True)[0]
        return super()._linear_predictor(X, tasks)

    def _summarise(
        self, X: Any, tasks: Any, summary: Summary, expected: bool = False, known: tuple[Any, Any] = (None, None)
    ) -> tuple[FloatArray, ...]:
        """Summaries of predictive draws, each of the shape of a prediction.

        ``expected`` is for new tasks; ``known`` are exposure and offset.
        """
        check_is_fitted(self)
        family = find_family(self.loss)
        n_classes = self._n_classes
        draws = PredictiveDraws(
            self.result_, family, self.unknown_task, self.fit_intercept, expected, n_classes, self._filling
        )
        if isinstance(X, TaskData):
            X = self._with_own_features(X)
        if isinstance(X, TaskData) and self._form == "classes":
            X = X.X[np.argsort(X.order)]
        if isinstance(X, TaskData):
            index = match_labels(X.task_names, X.n_tasks, self.tasks_)
            if self.unknown_task == "error" and (index < 0).any():
                self._predict_task_data(X)  # says which tasks are unknown
            if self._form == "wide" and X.shared_design:
                part = self._known_part(X, *known, shape=(X.design.shape[0], X.n_tasks))
                return draws.of_tasks(X.design, index, summary, part)
            found = draws.by_task(X.X, index[X.task], summary, X.eta_offset)
            return tuple(X.in_input_order(part) for part in found)
        rows = self._read_rows(self._without_named(X, *known), tasks, fill_gaps=False)
        one_axis = rows.task is not None or self._form in ("single", "long")
        shape = (rows.X.shape[0],) if one_axis else (rows.X.shape[0], len(self.tasks_))
        part = self._known_part(X, *known, shape=shape)
        if rows.task is not None:
            return draws.by_task(rows.X, rows.task, summary, part)
        if one_axis or (n_classes > 1 and self._form == "classes"):
            return draws.summarise(rows.X, 0, summary, part)
        return draws.of_tasks(rows.X, np.arange(len(self.tasks_)), summary, part)


def _widened(values: FloatArray, kept: BoolArray, fill: float = 0.0) -> FloatArray:
    """(..., p) Values (..., p') of the features that were kept, and ``fill`` for the others."""
    whole = np.full((*values.shape[:-1], len(kept)), fill)
    whole[..., kept] = values
    return whole


@estimator_class()
class BayesianRegressor(MultiTaskRegressor, BayesianEstimator):
    """Multi-task regression with a full posterior.

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

    def fit_moments(self, moments: Moments) -> Self:
        """Fit from sums over rows, as the other estimators do; the tree has then no groups of single observations.

        Parameters
        ----------
        moments : what `bayesmtfs.moments.from_arrays`, ``from_summary`` or the like gives
        """
        super().fit_moments(moments)
        for group in ("posterior_predictive", "log_likelihood", "observed_data"):
            del self.posterior_[group]
        return self

    def predict(
        self,
        X: Any,
        tasks: Any = None,
        return_std: bool = False,
        interval: float | None = None,
        *,
        exposure: Any = None,
        offset: Any = None,
    ) -> Any:
        """Predict targets.

        Parameters
        ----------
        X : (n, p) rows
        tasks : (n,) task labels, where the model was fitted on labelled tasks
        return_std : also give the standard deviation of a new target, its noise included
        interval : also give the ends of the central interval with this probability for a new target
        exposure, offset : as in ``fit``; without them, and without a column that was named in ``fit``, 1 and 0

        Returns
        -------
        the means, or a tuple of means, deviations (with ``return_std``), lower and upper ends (with ``interval``), each
        (n,), or (n, n_tasks) for a model of the wide form
        """
        check_is_fitted(self)
        family = find_family(self.loss)
        known = (exposure, offset)
        mean = self._full_predictor(X, tasks, *known) if family.linear_mean else self._mean(X, tasks, known)
        if not return_std and interval is None:
            return mean
        prediction.check_interval(interval)
        family.require("A predictive deviation or interval", "mean", "draw")
        rng = np.random.default_rng([self.result_.seed or 0, 3])
        summary = partial(prediction.predictive_summary, rng, interval)
        _, deviation, *ends = self._summarise(X, tasks, summary, known=known)
        return (mean, *([deviation] if return_std else []), *ends)

    def _mean(self, X: Any, tasks: Any, known: tuple[Any, Any]) -> FloatArray:
        """Mean over draws of the expected target."""
        find_family(self.loss).require("A prediction", "mean")
        mean: Summary = lambda family, eta, noise: (family.mean(eta).mean(axis=0),)  # noqa: E731
        return self._summarise(X, tasks, mean, expected=True, known=known)[0]


@estimator_class()
class BayesianClassifier(MultiTaskClassifier, BayesianEstimator):
    """Multi-task classification with a full posterior.

    Probabilities are averages over draws, and ``decision_function`` is the logit of that average;
    `probability_interval` says how sure they are. Row scales are in log-odds per deviation of x, the slab of a
    shared mean is ``2 / sqrt(mean_strength)`` wide, and labels in ``posterior_`` are -1 and +1.

    With ``loss="multinomial"`` there may be several classes within every task, each with coefficients of its own: the tree
    has a task for every pair of task and class, a row of the prior holds a feature's coefficients over all of them, and
    ``coef_`` is (n_tasks, n_classes, n_features). With ``loss="ordinal"`` classes are ordered, numbers in rising order,
    with one linear predictor and ``thresholds_`` in every task, N(0, s^2) in rising order a priori with the s of
    intercepts; they are sampled by NUTS, several classes by the Gibbs sampler (`bayesmtfs.gibbs.classes`).

    Parameters
    ----------
    loss : {"logistic", "hinge", "multinomial", "ordinal"}
        The hinge is a pseudo-likelihood, for ``prior="mixed_norm"``: no probabilities, no predictive draws.
    effect_size : float, default 0.05
        Change of the log-odds per deviation of x above which a feature counts as included. That is little: labels
        say less than numbers, and with few rows the posterior leaves most features larger than that in some task, so
        that all are included. Take a size that matters and that the data resolve, such as 0.3, or look at
        ``local_false_sign_rate_``.

    Examples
    --------
    >>> from bayesmtfs import simulate_tasks
    >>> from bayesmtfs.estimators.bayesian import BayesianClassifier
    >>> sim = simulate_tasks(n_tasks=4, n_features=10, n_relevant=2, kind="classification", random_state=0)
    >>> model = BayesianClassifier(sampler="variational", random_state=0).fit(sim.X, sim.y, tasks=sim.tasks)
    >>> model.predict_proba(sim.X[:5], tasks=sim.tasks[:5]).shape
    (5, 2)
    >>> mean, low, high = model.probability_interval(sim.X[:5], tasks=sim.tasks[:5], interval=0.9)
    >>> bool((low < mean).all() and (mean < high).all())
    True
    """

    loss: str | Family = "logistic"

    @property
    def _n_classes(self) -> int:
        family = find_family(self.loss)
        return len(self.classes_) if family.coupled and not family.has_cuts else 1

    def _store_posterior(self, data: TaskData, found: PosteriorFit, request: PosteriorRequest) -> None:
        super()._store_posterior(data, found, request)
        self._shape_coefficients()
        for name in ("coef_std_", "task_inclusion_probability_", "local_false_sign_rate_"):
            setattr(self, name, getattr(self, name).reshape(self.coef_.shape))

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any, tasks: Any = None, *, offset: Any = None) -> FloatArray:
        """Probabilities of the classes, averages over draws; parameters and shapes as in `MixedNormClassifier`."""
        if self._has_cuts:
            return self._summarise(X, tasks, prediction.mean_probabilities, known=(None, offset))[0]
        probability: FloatArray = super().predict_proba(X, tasks, offset=offset)
        return probability

    def probability_interval(
        self, X: Any, tasks: Any = None, interval: float = INTERVAL, *, offset: Any = None
    ) -> tuple[FloatArray, ...]:
        """Probability of ``classes_[1]`` (several classes: of each, one against the rest or of their law), and how sure.

        Parameters
        ----------
        X, tasks, offset : as in `decision_function`
        interval : probability of the interval over draws

        Returns
        -------
        means, lower and upper ends, each (n,), or (n, n_tasks) or (n, n_classes), or (n, n_tasks, n_classes)
        """
        check_is_fitted(self)
        prediction.check_interval(interval)
        family = find_family(self.loss)
        if not (family.offers("mean") or family.has_cuts):
            raise ValueError(f"loss={self.loss!r} has no probabilities; use loss='logistic'")
        return self._summarise(X, tasks, partial(prediction.mean_interval, interval), known=(None, offset))
