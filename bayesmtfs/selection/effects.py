r"""How sure a posterior is of each effect: its size, its sign, and how much the prior has shrunk it.

With S draws of W (p, m) and the effect ``e_it = w_it s_i / s_y`` in deviations within tasks
(`bayesmtfs.data.scaling.effect_unit`),

    probability of an effect    P(|e_it| > size) for an entry, P(max_t |e_it| > size) for a feature,
    local false sign rate       min(P(w_it <= 0), P(w_it >= 0))  (Stephens 2017, Biostatistics 18),
    shrinkage factor            E[1 - kappa_it],  kappa_it = 1 / (1 + n_t sd(x_it)^2 v_i / sigma_t^2)

where v_i is the prior variance of a coefficient of row i given its scale: ``rho_i^2 Gamma(3/q) / Gamma(1/q)`` for the
generalized normal, ``rho_i^2`` for the horseshoe. With orthogonal features and q = 2 a coefficient is, given the
scales, exactly ``(1 - kappa)`` times its least-squares estimate (Carvalho, Polson and Scott 2010, Biometrika 97;
Piironen and Vehtari 2017, EJS 11, section 2); with correlated features and other q this is a summary. Where tasks share a
mean, coefficients are shrunk to it: the factor is then what is left of a task's deviation from the mean.

**The shrinkage factor is not an inclusion probability**: an effect of zero has a factor above 0, and a small effect
that is estimated well can have a factor near 1. A continuous prior has no inclusion probability in the sense of a
spike at zero either; here inclusion always means an effect above a stated size. State one that the data can resolve: at
sizes below the posterior standard deviation of an effect, the probability is mostly the prior's.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from bayesmtfs.data.scaling import column_scales, effect_unit
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import Family, with_offset
from bayesmtfs.posterior import tree
from bayesmtfs.results.fit_result import DEFAULT_EFFECT_SIZE
from bayesmtfs.results.tables import (
    INTERVAL,
    Backend,
    as_frame,
    central_interval,
    check_one_of,
    entry_columns,
    plain_labels,
)
from bayesmtfs.selection.draws import (
    CoefficientDraws,
    family_of,
    posterior_group,
    read_data,
    read_draws,
    setting,
    variable,
    with_sampled_features,
)
from bayesmtfs.types import BoolArray, FloatArray

EVEN_ODDS = 0.5


def local_false_sign_rate(coef: FloatArray) -> FloatArray:
    """(p, m) Probability, from draws (S, p, m), that the likelier sign is wrong; a zero is wrong for either sign."""
    return tree.local_false_sign_rate(coef[None]).T


def shrinkage_factor(row_variance: FloatArray, noise: FloatArray, information: FloatArray) -> FloatArray:
    """(p, m) Posterior mean of 1 - kappa: what the prior leaves of a least-squares estimate.

    ``row_variance`` (S, p) is the prior variance of a coefficient given the scale of its row, ``noise`` (S, m) a standard
    deviation, ``information`` (p, m) the sum of squares of each centred feature in each task, ``n_t sd(x_it)^2``.
    """
    total = np.zeros(information.shape)
    for variance, sigma in zip(row_variance, noise, strict=True):  # draw by draw: (S, p, m) can be large
        gain = variance[:, None] * information / np.square(sigma)
        total += gain / (1.0 + gain)
    return total / len(row_variance)


def generalized_normal_variance(row_scale: FloatArray, norm_q: FloatArray | float) -> FloatArray:
    """Variance ``rho^2 Gamma(3/q) / Gamma(1/q)`` of GN(0, rho, q), which is ``rho^2 / 3`` at q = inf.

    ``row_scale`` (S, p) is rho, and q one number or (S, 1).
    """
    inverse = 1.0 / np.asarray(norm_q, dtype=np.float64)
    # Gamma(3 x) / Gamma(x) = Gamma(1 + 3 x) / (3 Gamma(1 + x)) has no pole at x = 1/q = 0
    factor = np.exp(gammaln(1.0 + 3.0 * inverse) - gammaln(1.0 + inverse)) / 3.0
    return np.square(row_scale) * factor


def effect_draws(draws: CoefficientDraws, data: TaskData, family: Family) -> FloatArray:
    """(S, p, m) Draws of the effects, of numbers in deviations within tasks, of labels and counts in units of eta."""
    return draws.coef * unit_of(draws, data, family)


def unit_of(draws: CoefficientDraws, data: TaskData, family: Family) -> FloatArray:
    """(p, m) By which draws become effects."""
    return effect_unit(data, family.in_target_units, centred=family.free_level or bool(draws.intercept.any()))


def effects_of(
    posterior: Any, draws: CoefficientDraws, X: Any, y: Any, tasks: Any, sample_weight: Any, loss: str | Family | None
) -> FloatArray:
    """(S, p, m) Draws of the effects, with the units of the data of the fit."""
    if X is None:
        raise ValueError(
            "X is missing: effects are measured in standard deviations; pass the data of the fit (only a posterior with "
            "exact zeros, of prior='spike', says without them what is in the model)"
        )
    family = family_of(posterior, draws, loss)
    data = with_sampled_features(read_data(posterior, draws, family, X, y, tasks, sample_weight), draws)
    return effect_draws(draws, data, family)


def entries_in_model(draws: CoefficientDraws, effect_size: float, posterior: Any, *data: Any) -> BoolArray:
    """(S, p, m) Where a coefficient is in the model: not exactly zero; without exact zeros, an effect above a size.

    ``data`` are the further arguments of `effects_of`, which only a posterior without exact zeros needs.
    """
    check_effect_size(effect_size)
    if draws.included is not None:
        return draws.included
    return np.abs(effects_of(posterior, draws, *data)) > effect_size


@dataclass(frozen=True, eq=False, repr=False)
class Effects:
    """How sure a posterior is of every effect; matrices are (n_tasks, p), as ``coef_`` is.

    Attributes
    ----------
    inclusion_probability : (p,) probability of being in the model in at least one task: of a coefficient that is not
        exactly zero where the prior has exact zeros, else of an effect above ``effect_size``
    task_probability : (n_tasks, p) the same in each task
    local_false_sign_rate : (n_tasks, p) probability that the likelier sign is wrong
    shrinkage_factor : (n_tasks, p) or None
        Posterior mean of 1 - kappa, what the prior leaves of a least-squares estimate. **Not** an inclusion
        probability. None where the posterior does not hold the scales of the rows.
    mean, lower, upper : (n_tasks, p) mean and central interval of the coefficients, in the user's units
    effect_size : least effect of interest, in standard deviations of y per standard deviation of x
    prob : probability of the interval
    feature_names : (p,)
    tasks : (n_tasks,) labels
    """

    inclusion_probability: FloatArray
    task_probability: FloatArray
    local_false_sign_rate: FloatArray
    shrinkage_factor: FloatArray | None
    mean: FloatArray
    lower: FloatArray
    upper: FloatArray
    effect_size: float
    prob: float
    feature_names: NDArray[np.str_]
    tasks: NDArray[Any]

    @property
    def ranking(self) -> NDArray[np.int64]:
        """(p,) Numbers of the features, the likeliest first; ties by the surest sign."""
        surest = self.local_false_sign_rate.min(axis=0)
        return np.lexsort((surest, -self.inclusion_probability))

    def to_frame(self, of: Literal["features", "entries"] = "features", backend: Backend = "pandas") -> Any:
        """One row per feature, or per feature and task.

        Parameters
        ----------
        of : {"features", "entries"}
        backend : {"pandas", "polars"}
        """
        check_one_of("of", of, ("features", "entries"))
        if of == "features":
            return as_frame(self._feature_columns(), backend)
        names = ["mean", "lower", "upper", "task_probability", "local_false_sign_rate"]
        names += [] if self.shrinkage_factor is None else ["shrinkage_factor"]
        matrices = {name: getattr(self, name) for name in names}
        return as_frame(entry_columns(self.feature_names, self.tasks, **matrices), backend)

    def _feature_columns(self) -> dict[str, NDArray[Any]]:
        return {
            "feature": self.feature_names,
            "inclusion_probability": self.inclusion_probability,
            "smallest_false_sign_rate": self.local_false_sign_rate.min(axis=0),
            "surest_task": plain_labels(self.tasks)[self.local_false_sign_rate.argmin(axis=0)],
            "tasks_likely": (self.task_probability > EVEN_ODDS).sum(axis=0),
        }

    def __repr__(self) -> str:
        likely = self.ranking[: int((self.inclusion_probability > EVEN_ODDS).sum())]
        shown = ", ".join(self.feature_names[likely[:6]]) + (", ..." if len(likely) > 6 else "")
        return (
            f"Effects({len(likely)} of {len(self.feature_names)} features have an effect above {self.effect_size:g} "
            f"standard deviations with probability over 1/2{': ' + shown if shown else ''})"
        )


def effects(
    posterior: Any,
    X: Any,
    y: Any = None,
    tasks: Any = None,
    *,
    sample_weight: Any = None,
    loss: str | Family | None = None,
    effect_size: float = DEFAULT_EFFECT_SIZE,
    prob: float = INTERVAL,
    norm_q: float | None = None,
) -> Effects:
    """Probabilities of effects, false sign rates and shrinkage factors of a posterior.

    Parameters
    ----------
    posterior : a fitted Bayesian estimator, its `FitResult`, or a DataTree in ArviZ form
    X, y, tasks, sample_weight : the data of the fit, in any form that ``fit`` takes
    loss : name or family; None: of the estimator, else squared where the posterior has ``noise`` and logistic where not
    effect_size : least effect of interest: change of y, in its standard deviations (for labels: of the log-odds), per
        standard deviation of the feature, both within tasks
    prob : probability of the central interval of each coefficient
    norm_q : shape of a row, for the shrinkage factors of a posterior without ``norm_q``; None: its ``row_scale`` is a
        standard deviation, as of the horseshoe

    Examples
    --------
    Draws around a large and a small effect, in one task:

    >>> import numpy as np
    >>> import xarray as xr
    >>> from bayesmtfs.selection import effects
    >>> rng = np.random.default_rng(0)
    >>> draws = np.array([1.0, 0.01])[:, None] + 0.1 * rng.standard_normal((4, 250, 2, 1))
    >>> variables = {"coef": (("chain", "draw", "feature", "task"), draws)}
    >>> tree = xr.Dataset(variables | {"noise": (("chain", "draw", "task"), np.ones((4, 250, 1)))})
    >>> X = rng.standard_normal((30, 2))
    >>> found = effects(tree, X, X[:, 0], effect_size=0.1)
    >>> found.inclusion_probability.round(1), found.local_false_sign_rate.round(1)
    (array([1. , 0.3]), array([[0. , 0.5]]))
    """
    check_effect_size(effect_size)
    draws = read_draws(posterior)
    lower, upper = central_interval(draws.coef, prob)
    family = family_of(posterior, draws, loss)
    data = with_sampled_features(read_data(posterior, draws, family, X, y, tasks, sample_weight), draws)
    if draws.included is None:
        features, entries = tree.inclusion_probability(draws.coef[None], unit_of(draws, data, family), effect_size)
    else:
        features, entries = draws.included.any(axis=2).mean(axis=0), draws.included.mean(axis=0).T
    factor = _shrinkage_of(posterior, draws, data, family, norm_q)
    whole = draws.over_all_features
    return Effects(
        inclusion_probability=whole(features, 0.0),
        task_probability=whole(entries.T, 0.0).T,
        local_false_sign_rate=whole(local_false_sign_rate(draws.coef), 1.0).T,
        shrinkage_factor=None if factor is None else whole(factor, 0.0).T,
        mean=whole(draws.coef.mean(axis=0), 0.0).T,
        lower=whole(lower, 0.0).T,
        upper=whole(upper, 0.0).T,
        effect_size=effect_size,
        prob=prob,
        feature_names=draws.feature_names,
        tasks=draws.task_names,
    )


def check_effect_size(effect_size: float) -> None:
    """Refuse a size below 0."""
    if not 0.0 <= effect_size < np.inf:
        raise ValueError(f"effect_size is {effect_size}; pass a finite number of at least 0, such as 0.05")


def _shrinkage_of(
    posterior: Any, draws: CoefficientDraws, data: TaskData, family: Family, norm_q: float | None
) -> FloatArray | None:
    """(p, m) Shrinkage factors; None for a posterior without row scales of single features."""
    group = posterior_group(posterior)
    grouped = "row_scale" in group.data_vars and "feature" not in group["row_scale"].dims
    scale = None if grouped else variable(group, "row_scale", ("feature",))
    if scale is None or not (family.has_noise or family.smooth):
        return None
    learned = variable(group, "norm_q", ())
    q = norm_q if learned is None else learned[:, None]
    if q is None or setting(posterior, "prior") == "horseshoe":
        variance = np.square(scale)
    else:
        variance = generalized_normal_variance(scale, q)
    noise = draws.noise if family.has_noise else None
    if noise is None:
        rows = with_offset(family, data.eta_offset)
        working = [rows.of_rows(a, b).working_noise(data.y[a:b], data.weight[a:b]) for a, b in data.spans]
        noise = np.tile(working, (len(scale), 1))
    return shrinkage_factor(variance, noise, data.task_weights * np.square(column_scales(data)))
