r"""A prior with exact zeros: which features matter, in which tasks, and how alike their effects are.

With effects ``w_it`` in deviations of the target per deviation of the feature, both within tasks,

    row on           gamma_i ~ Bernoulli(pi),   pi on a grid of logarithmic steps
    pattern          s_i in {0, 1}^m, not empty: a Chinese restaurant process over the rows that are on, with
                     concentration alpha and base measure  s_t ~ Bernoulli(omega kappa_t), given not empty
    effects          w_it = s_it (mu_i + v_it),   mu_i ~ N(0, C rho^2),   v_it ~ N(0, (1 - C) rho^2)
    noise            sigma_t^2 ~ inverse gamma; for noise that tasks have in common see `bayesmtfs.gibbs.common_noise`
    intercepts       level of the task at the mean of its features ~ N(its best constant, s^2); of labels N(0, s^2)

rho, C, omega, kappa_t and alpha lie on grids. ``C = 1`` gives equal effects in all tasks of the pattern (a sparse shared
mean), ``C = 0`` independent ones. Weights of the grids of rho, C and omega are Dirichlet and learned: rows that share a
table share a pattern, which learns that some tasks go together without a weight for each of ``2^m`` patterns. kappa_t is
how easily a task takes part. A group of several features is one row: on or off together, with ``C = 0``.

Any family that is normal given a hidden precision has this prior. Where it has no noise, effects are counted in its
`Family.working_noise`; where it has one but is not normal, in a deviation that gross errors do not stretch, 1.48 times the
median distance from the median. Dispersions and degrees of freedom that a family learns have the priors of
`bayesmtfs.gibbs.dispersion`.

References
----------
T. J. Mitchell, J. J. Beauchamp (1988), Bayesian variable selection in linear regression, Journal of the American
Statistical Association 83:1023-1032.
F. Morgante et al. (2023), A flexible empirical Bayes approach to multivariate multiple regression, and its improved
accuracy in predicting multi-tissue gene expression from genotypes, PLoS Genetics 19:e1010539.
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy.optimize import brentq

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import Family, with_offset
from bayesmtfs.priors.blocks import Blocks
from bayesmtfs.priors.hyperpriors import best_constants
from bayesmtfs.types import FloatArray

N_RATES = 30  # points of the grid of pi
MEDIAN_DISTANCE = 0.6744897501960817  # from the median, of a standard normal variable
Numbers = tuple[float, ...]


@dataclass(frozen=True)
class SpikePrior:
    """The grids and hyperpriors, with every number known.

    Parameters
    ----------
    inclusion_rates, inclusion_weights : grid of pi and its prior weights
    scales, shares : grids of rho and C
    pattern_rates : grid of omega
    scale_concentration, share_concentration, rate_concentration : of the Dirichlet weights of these three grids
    task_rates, task_rate_weights : grid of kappa_t and its prior weights
    concentrations : grid of alpha, uniform
    noise_shape, noise_rate : of the inverse gamma distribution of sigma^2, in units of the target's variance
    shared_noise : whether all tasks have one noise
    fit_intercept : whether there are intercepts
    intercept_scale : s
    intercept_centre : best constant of each task, or one number for all
    n_left_out : further rows that are off: those that were screened out, about which the rate pi has to know
    """

    inclusion_rates: Numbers
    inclusion_weights: Numbers
    pattern_rates: Numbers
    scales: Numbers = (0.14, 0.28, 0.56)
    shares: Numbers = (0.0, 0.7, 1.0)
    scale_concentration: float = 1.0
    share_concentration: float = 0.5
    rate_concentration: float = 0.5
    task_rates: Numbers = (0.1, 0.3, 0.6, 1.0)
    task_rate_weights: Numbers = (1 / 6, 1 / 6, 1 / 6, 1 / 2)
    concentrations: Numbers = (0.3, 1.0, 3.0, 10.0, 100.0)
    noise_shape: float = 1.0
    noise_rate: float = 0.3
    shared_noise: bool = False
    fit_intercept: bool = True
    intercept_scale: float = 5.0
    intercept_centre: Numbers = (0.0,)
    n_left_out: int = 0

    def __post_init__(self) -> None:
        for name in ("inclusion_rates", "pattern_rates", "task_rates"):
            if not all(0.0 < rate <= 1.0 for rate in getattr(self, name)):
                raise ValueError(f"{name} is {getattr(self, name)}; pass numbers above 0 and at most 1")
        if not all(0.0 <= share <= 1.0 for share in self.shares):
            raise ValueError(f"shares is {self.shares}; pass numbers from 0 to 1")
        for grid, weights in (("inclusion_rates", "inclusion_weights"), ("task_rates", "task_rate_weights")):
            if len(getattr(self, grid)) != len(getattr(self, weights)):
                raise ValueError(f"{weights} has not as many numbers as {grid}; pass one weight for each")

    def times(self, unit: float) -> Self:
        """Return the prior with effects and noise counted in a unit."""
        return replace(self, scales=tuple(unit * scale for scale in self.scales), noise_rate=self.noise_rate * unit**2)


def spike_prior_for(
    data: TaskData,
    family: Family,
    *,
    expected_features: float | None = None,
    fit_intercept: bool = True,
    shared_noise: bool = False,
    n_left_out: int = 0,
) -> SpikePrior:
    """Prior with the numbers that depend on the data filled in.

    Parameters
    ----------
    data : observations, numeric targets in deviations within tasks
    family : of the targets
    expected_features : prior expectation of the number of features (or groups) that are on; None: pi is uniform on its grid
    fit_intercept, shared_noise, n_left_out : as in `SpikePrior`

    Examples
    --------
    >>> from bayesmtfs.families import Gaussian
    >>> data = TaskData.from_long(np.eye(6), np.arange(6.0), tasks=[0, 0, 0, 1, 1, 1])
    >>> prior = spike_prior_for(data, Gaussian(), expected_features=2)
    >>> round(6 * float(np.dot(prior.inclusion_rates, prior.inclusion_weights)), 6)
    2.0
    """
    m = data.n_tasks
    sizes = Blocks(data.n_features, data.n_tasks, data.groups, data.present).sizes
    rates, weights = inclusion_grid(max(int(np.count_nonzero(sizes)), 1) + n_left_out, expected_features)
    prior = SpikePrior(
        inclusion_rates=tuple(rates.tolist()),
        inclusion_weights=tuple(weights.tolist()),
        pattern_rates=(0.1 / m, 1.0 / m, 0.3, 0.5, 0.7, 1.0),  # at the first nearly always one task
        fit_intercept=fit_intercept,
        shared_noise=shared_noise,
        n_left_out=n_left_out,
    )
    if family.quadratic:
        return prior
    if fit_intercept and family.targets != "labels":
        prior = replace(prior, intercept_centre=best_constants(data, family))
    return prior.times(_unit(data, family))


def _unit(data: TaskData, family: Family) -> float:
    """In which effects on targets that are not normal are counted."""
    y = np.asarray(data.y, dtype=np.float64)
    if not family.has_noise:
        return with_offset(family, data.eta_offset).working_noise(y, data.weight)
    middle = np.array([np.median(y[start:stop]) for start, stop in data.spans])
    return float(np.median(np.abs(y - middle[data.task]))) / MEDIAN_DISTANCE or 1.0


def inclusion_grid(n_rows: int, expected: float | None) -> tuple[FloatArray, FloatArray]:
    """Grid of pi from ``0.5 / p`` to ``0.5`` (farther where more or less is expected) and weights ``pi^k``.

    k = 0, or such that ``p E[pi]`` is what is expected.
    """
    if expected is None:
        return np.geomspace(0.5 / n_rows, 0.5, N_RATES), np.full(N_RATES, 1.0 / N_RATES)
    if not 0.0 < expected < n_rows:
        raise ValueError(
            f"expected_features is {expected} but there are {n_rows} features or groups; "
            f"pass a number above 0 and below {n_rows}"
        )
    share = expected / n_rows
    grid = np.geomspace(min(0.5 / n_rows, 0.5 * share), max(0.5, 0.5 + 0.5 * share), N_RATES)
    power = brentq(lambda k: float(_tilted(grid, k) @ grid) - share, -60.0, 60.0)
    return grid, _tilted(grid, power)


def _tilted(grid: FloatArray, power: float) -> FloatArray:
    logarithms = power * np.log(grid)
    weights = np.exp(logarithms - logarithms.max())
    return np.asarray(weights / weights.sum())


def log_pattern_probability(patterns: FloatArray, rates: FloatArray, task_rates: FloatArray) -> FloatArray:
    """(k, O) Logarithm of the base measure of patterns (k, m), given not empty, at rates omega (O,) and kappa (m,)."""
    each = np.multiply.outer(rates, task_rates)  # (O, m)
    with np.errstate(divide="ignore"):
        on, off = np.log(each), np.log1p(-each)
    chosen = np.where(patterns[:, np.newaxis] > 0, on, off).sum(axis=2)
    return chosen - np.log(-np.expm1(off.sum(axis=1)))
