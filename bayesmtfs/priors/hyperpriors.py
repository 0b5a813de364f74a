r"""Proper priors of everything above the coefficients: row scales, global scale, noise, intercepts and the exponent q.

One statement of what the posterior means, which the PyMC models and the Gibbs sampler both translate. Row i of W has
independent ``GN(mu_i, rho_i, q)`` entries, and with ``l = ln rho_i``, ``u = (rho_i / tau)^k``

    beta_prime    rho_i^k = tau^k BetaPrime(c, a):  ln p(l) = ln k + c ln u - (a + c) ln(1 + u) - ln B(c, a)
    log_uniform   l uniform on (ln lo, ln hi), no tau
    tau           ln tau ~ N(ln tau_0, 1), or tau = tau_0
    noise         sigma_t ~ half-Student-t(3 degrees of freedom, noise_scale)
    dispersion    of counts, alpha_t: sqrt(alpha_t) ~ half-Student-t(3 degrees of freedom, 1)
    degrees       of Student's t, one number for all tasks: Gamma(2, rate 0.1)
    intercepts    b_t ~ N(intercept_centre_t, intercept_scale^2)
    q             1/q ~ U(1/q_hi, 1/q_lo)
    mean          mu_i = 0, or with a shared mean mu_i ~ N(0, (1 / lambda_i^2 + 1 / mean_scale^2)^-1), where ln lambda_i has
                  the prior of l at q = 2 with a global scale tau_mu of its own, and tau_mu that of tau

a is the tail shape (how easily a row is large), c the spike shape (how easily it is near zero); at k = 2 and
``a = c = 1/2`` the scale is half-Cauchy(tau), and ``a, c -> 0`` is the Jeffreys prior ``p(rho) = 1/rho`` of Zhang,
Yeung and Xu 2010, eq. (8), which is improper: neither end of its logarithmic scale is bounded. ``log_uniform`` is that
prior between two bounds. The exponent k is ``scale_power``: 2 by default, so that every scale is half-Cauchy(tau)
whatever q, and None for q itself (2 at q = inf). The default differs from the family ``rho^q = tau^q BetaPrime(c, a)``
because q cannot be learned there: at ``a = c = 1/2`` the standard deviation of l is then pi/q, so that a large q leaves
rows no room to differ, some being zero speaks against it, and the posterior of q is too low (20 tasks, 4 of 12 rows
active, true q 4 and 10: posterior medians 1.7 to 2.1 with the exponent q, 3.1 to 12 with the exponent 2).

tau_0 follows from the number of features that are expected to matter, ``p_0 / (p - p_0) sigma / (sqrt(n) s_x)``
(Piironen and Vehtari 2017, eq. 3.12, with n the mean number of rows of a task and s_x the root mean square of the
features' deviations within tasks). For families without noise sigma is `Family.working_noise`.

The mean is sparse by the same mechanism as the rows: most means are near 0, and every feature's is as large as it has to
be, up to a slab of width ``mean_scale`` (Piironen and Vehtari 2017, eq. 2.8). The slab is ``noise_scale / s_x`` by
default, weakly informative: a feature whose mean coefficient is one width alone makes the targets vary as much as they
do. With ``mean_strength`` it is ``noise_scale / sqrt(mean_strength)``: what is left of the prior for large lambda has the
ridge of the penalised fits as its negative log-density at noise ``noise_scale``. (Without lambda, a flat-ish prior of p
means misses several times the signal where p is near the number of observations.)

References
----------
J. Piironen, A. Vehtari. Sparsity information and regularization in the horseshoe and other shrinkage priors.
Electronic Journal of Statistics 11, 2017.
Y. Zhang, D.-Y. Yeung, Q. Xu. Probabilistic multi-task feature selection. NIPS 2010.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.special import betaln

from bayesmtfs.data.scaling import feature_deviation, target_deviation
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import Family, find_family, with_offset
from bayesmtfs.priors.blocks import Blocks
from bayesmtfs.types import FloatArray

Kind = Literal["beta_prime", "log_uniform"]
Bounds = tuple[float, float]

NOISE_DEGREES = 3.0  # of freedom of the half-Student-t prior of the noise
DEGREES_SHAPE, DEGREES_RATE = 2.0, 0.1  # of the gamma prior of the degrees of freedom of Student's t
INTERCEPT_WIDTH = 5.0  # prior standard deviation of an intercept, in noise scales (families without noise: as it is)
DEFAULT_SHARE = 0.1  # of the features that are expected to matter
LOWEST_SCALE, HIGHEST_SCALE = 1e-3, 10.0  # default bounds, in tau_0 and in noise_scale / s_x


@dataclass(frozen=True)
class Hyperprior:
    """Priors of the scales, noise, intercepts and exponent, with every number known.

    Parameters
    ----------
    kind : "beta_prime" or "log_uniform", the distribution of the row scales
    global_scale : tau_0, the median of tau, or tau itself where it is not learned
    tail_shape, spike_shape : a and c of the beta prime distribution, above 0
    bounds : smallest and largest row scale of the log-uniform distribution
    noise_scale : scale of the half-Student-t prior of the noise (of families that have one)
    shared_noise : whether all tasks have one noise, or one dispersion
    intercept_centre, intercept_scale : means of the intercepts (one number, or one per task), and their deviation
    norm_q_bounds : range of q where it is learned
    fit_intercept : whether there are intercepts
    learn_global_scale : whether tau is learned
    scale_power : exponent k of the beta prime distribution; None: q itself, and 2 at q = inf
    mean_scale : width of the slab of the mean that a row's coefficients have in common; 0: the mean is 0
    """

    kind: Kind = "beta_prime"
    global_scale: float = 1.0
    tail_shape: float = 0.5
    spike_shape: float = 0.5
    bounds: Bounds = (1e-3, 10.0)
    noise_scale: float = 1.0
    shared_noise: bool = False
    intercept_centre: float | tuple[float, ...] = 0.0
    intercept_scale: float = INTERCEPT_WIDTH
    norm_q_bounds: Bounds = (1.0, 50.0)
    fit_intercept: bool = True
    learn_global_scale: bool = True
    scale_power: float | None = 2.0
    mean_scale: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in ("beta_prime", "log_uniform"):
            raise ValueError(f"kind is {self.kind!r}; choose 'beta_prime' or 'log_uniform'")
        for name in ("global_scale", "tail_shape", "spike_shape", "noise_scale", "intercept_scale"):
            check_positive(name, getattr(self, name))
        if self.scale_power is not None:
            check_positive("scale_power", self.scale_power)
        if self.mean_scale != 0.0:
            check_positive("mean_scale", self.mean_scale)
        check_bounds("bounds", self.bounds)
        check_bounds("norm_q_bounds", self.norm_q_bounds)

    def power(self, q: float) -> float:
        """Exponent of the beta prime distribution of the row scales at this q."""
        if self.scale_power is not None:
            return self.scale_power
        return 2.0 if q == math.inf else q


def hyperprior_for(
    data: TaskData,
    loss: str | Family = "squared",
    *,
    expected_features: float | None = None,
    global_scale: float | None = None,
    bounds: Bounds | Literal["auto"] = "auto",
    noise_scale: float | None = None,
    fit_intercept: bool = True,
    shared_mean: bool = False,
    mean_strength: float | None = None,
    **stated: Any,
) -> Hyperprior:
    """Hyperprior with the numbers that depend on the data filled in.

    Parameters
    ----------
    data : TaskData
        Observations; a sample weight of 2 counts as the row twice.
    loss : str or Family
        The family of the targets.
    expected_features : float, optional
        How many features (or groups) are expected to matter, between 0 and all of them. None: a tenth, at least one
        and at most half.
    global_scale : float, optional
        tau_0, instead of the one that follows from ``expected_features``.
    bounds : (float, float) or "auto"
        Bounds of log-uniform scales; "auto": ``1e-3 tau_0`` to ``10 noise_scale / s_x``.
    noise_scale : float, optional
        None: the pooled standard deviation of the targets within their tasks; for families without noise
        `Family.working_noise` (2 for logistic labels).
    fit_intercept : bool, default True
        Whether there are intercepts.
    shared_mean : bool, default False
        Whether a row's coefficients spread around a learned mean instead of 0.
    mean_strength : float, optional
        Gives the slab of that mean the width ``noise_scale / sqrt(mean_strength)``; None: ``noise_scale / s_x``.
    **stated
        Fields of `Hyperprior` that do not depend on the data: ``kind``, ``tail_shape``, ``spike_shape``,
        ``scale_power``, ``learn_global_scale``, ``shared_noise``, ``norm_q_bounds``.

    Examples
    --------
    Four tasks of 25 rows, standardised features, and one feature of ten expected to matter:

    >>> rng = np.random.default_rng(0)
    >>> data = TaskData.from_long(rng.normal(size=(100, 10)), rng.normal(size=100), tasks=np.arange(100) % 4)
    >>> prior = hyperprior_for(data)
    >>> round(prior.global_scale, 3), round(prior.noise_scale, 2)  # about 1/9 / sqrt(25)
    (0.025, 1.06)
    """
    family = find_family(loss)
    family.require("A posterior with learned scales", "log_density")
    if noise_scale is None:
        noise_scale = (
            float(target_deviation(data)[0])
            if family.has_noise
            else with_offset(family, data.eta_offset).working_noise(data.y, data.weight)
        )
    check_positive("noise_scale", noise_scale)
    unit = noise_scale / typical_deviation(data, centred=fit_intercept)
    if global_scale is None:
        rows_per_task = float(data.weight.sum()) / data.n_tasks
        global_scale = _expected_odds(data, expected_features) * unit / math.sqrt(rows_per_task)
    check_positive("global_scale", global_scale)
    return Hyperprior(
        global_scale=global_scale,
        bounds=_default_bounds(global_scale, unit) if isinstance(bounds, str) else bounds,
        noise_scale=noise_scale,
        intercept_centre=0.0 if family.targets in ("labels", "survival") else best_constants(data, family),
        intercept_scale=INTERCEPT_WIDTH * (noise_scale if family.has_noise else 1.0),
        fit_intercept=fit_intercept,
        mean_scale=_mean_scale(noise_scale, unit, mean_strength) if shared_mean else 0.0,
        **stated,
    )


def log_scale_density(log_scale: FloatArray | float, tau: float, q: float, prior: Hyperprior) -> FloatArray:
    """Log-density of ``l = ln rho`` given tau and q (may be infinite), element by element; ``-inf`` outside of bounds."""
    log_scale = np.asarray(log_scale, dtype=np.float64)
    if prior.kind == "log_uniform":
        low, high = np.log(prior.bounds)
        inside = (log_scale > low) & (log_scale < high)
        return np.where(inside, -math.log(high - low), -np.inf)
    power = prior.power(q)
    a, c = prior.tail_shape, prior.spike_shape
    log_u = power * (log_scale - math.log(tau))
    return math.log(power) + c * log_u - (a + c) * np.logaddexp(0.0, log_u) - betaln(c, a)


def log_global_scale_density(log_tau: FloatArray | float, prior: Hyperprior) -> FloatArray:
    """Log-density of ``ln tau``, normal around ``ln tau_0`` with standard deviation 1."""
    return -0.5 * np.square(np.asarray(log_tau) - math.log(prior.global_scale)) - 0.5 * math.log(2.0 * math.pi)


def log_noise_density(noise: FloatArray | float, prior: Hyperprior) -> FloatArray:
    """Log-density of a noise above 0, half-Student-t with 3 degrees of freedom."""
    degrees = NOISE_DEGREES
    ratio = np.asarray(noise) / prior.noise_scale
    log_constant = math.log(2.0) - betaln(0.5, 0.5 * degrees) - math.log(prior.noise_scale * math.sqrt(degrees))
    return log_constant - 0.5 * (degrees + 1.0) * np.log1p(np.square(ratio) / degrees)


def best_constants(data: TaskData, family: Family) -> tuple[float, ...]:
    """The best constant prediction of each task: the middle of its targets, whatever the levels of the others."""
    y, family = np.asarray(data.y, dtype=np.float64), with_offset(family, data.eta_offset)
    return tuple(family.of_rows(a, b).best_constant(y[a:b], data.weight[a:b]) for a, b in data.spans)


def typical_deviation(data: TaskData, centred: bool = True) -> float:
    """Root mean square over the features that any task has of their deviations within tasks; 1 if it is 0."""
    deviation = feature_deviation(data, centred)
    if data.present is not None and data.present.any():
        deviation = deviation[data.present.any(axis=1)]
    return math.sqrt(np.mean(np.square(deviation))) or 1.0


def check_positive(name: str, number: float) -> None:
    """Refuse a number that is not positive and finite."""
    if not 0.0 < number < math.inf:
        raise ValueError(f"{name} is {number}; pass a finite number above 0")


def check_bounds(name: str, bounds: Bounds) -> None:
    """Refuse bounds that are not two positive finite numbers in rising order."""
    if len(bounds) != 2 or not 0.0 < bounds[0] < bounds[1] < math.inf:
        raise ValueError(f"{name} is {bounds}; pass two finite numbers 0 < low < high")


def check_relations(data: TaskData, prior: Hyperprior, concentration: float) -> None:
    """Refuse what rows with a learned correlation R ~ LKJ(concentration) of the tasks cannot have."""
    check_positive("relation_concentration", concentration)
    if concentration <= 1.0:
        raise ValueError(
            f"relation_concentration is {concentration}, where the prior does not fall towards singular "
            "task relations; pass a number above 1, such as 2"
        )
    if data.present is not None:
        raise ValueError(
            "data has tasks without some of the features, but related tasks need all of them; "
            "use a generalized normal prior (generalized_normal_model), or drop the features that a task lacks"
        )
    if prior.mean_scale > 0.0:
        raise ValueError(
            "shared_mean=True does not go with a matrix_variate_model, whose task relations say already how tasks go "
            "together; use generalized_normal_model or horseshoe_model, or leave shared_mean False"
        )


def _expected_odds(data: TaskData, expected_features: float | None) -> float:
    """``p_0 / (p - p_0)`` of features, or of groups where features are grouped."""
    sizes = Blocks(data.n_features, data.n_tasks, data.groups, data.present).sizes
    n_rows = max(int(np.count_nonzero(sizes)), 1)
    if expected_features is None:
        expected_features = min(max(1.0, DEFAULT_SHARE * n_rows), 0.5 * n_rows)
    if not 0.0 < expected_features < n_rows:
        raise ValueError(
            f"expected_features is {expected_features} but there are {n_rows} features or groups; "
            f"pass a number above 0 and below {n_rows}"
        )
    return expected_features / (n_rows - expected_features)


def _mean_scale(noise_scale: float, unit: float, mean_strength: float | None) -> float:
    if mean_strength is None:
        return unit
    check_positive("mean_strength", mean_strength)
    return noise_scale / math.sqrt(mean_strength)


def _default_bounds(global_scale: float, unit: float) -> Bounds:
    """``1e-3 tau_0`` to ``10 noise_scale / s_x``, and at least a factor of 1e4 apart."""
    low = LOWEST_SCALE * global_scale
    return low, max(HIGHEST_SCALE * unit, 1e4 * low)
