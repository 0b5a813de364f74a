r"""Predictive loss of submodels against the reference, with its standard error.

For every observation, the expected log predictive density of a submodel that has not seen it is

    leave-one-out   ln sum_s r_is p(y_i | theta_s),  r_is the Pareto-smoothed importance weights of the reference
                    (Vehtari, Gelman and Gabry 2017, Statistics and Computing 27, section 2.1),
    held out        ln (1 / S) sum_s p(y_i | theta_s),  theta_s projected draws of a reference fitted without i.

A projection does not look at y, so that the weights of the reference serve its submodels too. The loss of a submodel is
the sum of ``ln p_reference - ln p_submodel`` over the observations, and its standard error that of a sum over the rows
of the user's input: the cells of one row of the wide form count as one, since their noise may go together.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from bayesmtfs.types import FloatArray, IntArray

MOST_UNRELIABLE = 0.05  # share of observations with a large Pareto k above which leave-one-out is not to be trusted


class Loss(NamedTuple):
    """Loss of nested submodels; entry k has k features."""

    difference: FloatArray  # (sizes,) elpd of the reference minus that of the submodel
    standard_error: FloatArray  # (sizes,) of the difference
    elpd: FloatArray  # (sizes,)
    elpd_reference: float


class LeaveOneOut(NamedTuple):
    """Importance weights that leave one observation out, for each."""

    log_weights: FloatArray  # (S, N) normalised
    pareto_k: FloatArray  # (N,) shape of their tail, from all draws

    def of_draws(self, kept: IntArray) -> FloatArray:
        """Weights of some of the draws, (kept, N), normalised again."""
        chosen = self.log_weights[kept]
        return chosen - _log_sum(chosen)


def leave_one_out(log_density: FloatArray, weight: FloatArray) -> LeaveOneOut:
    """Pareto-smoothed importance weights.

    Parameters
    ----------
    log_density : (S, N) of every observation under every draw of the reference
    weight : (N,) sample weights: leaving an observation out divides by its density to this power
    """
    # ArviZ takes longer to load than all that this package does without draws
    from arviz_stats.base.array import array_stats

    smooth: Any = array_stats.psislw
    log_weights, pareto_k = smooth((weight * log_density).T)
    return LeaveOneOut(np.ascontiguousarray(log_weights.T), np.asarray(pareto_k))


def predictive_density(log_density: FloatArray, log_weights: FloatArray | None = None) -> FloatArray:
    """(N,) Log predictive densities, averaged over draws.

    Parameters
    ----------
    log_density : (S, N) under each draw
    log_weights : (S, N) normalised; None: all draws weigh the same

    Examples
    --------
    >>> import numpy as np
    >>> np.exp(predictive_density(np.log([[0.2], [0.4]]))).round(3)
    array([0.3])
    """
    if log_weights is None:
        return _log_sum(log_density) - math.log(len(log_density))
    return _log_sum(log_density + log_weights)


def _log_sum(terms: FloatArray) -> FloatArray:
    """(N,) Logarithm of the sum of exponentials over the first axis."""
    largest = terms.max(axis=0)
    return largest + np.log(np.exp(terms - largest).sum(axis=0))


def unreliable_share(pareto_k: FloatArray, n_draws: int) -> float:
    """Share of the observations whose weights are too uneven for so many draws (Vehtari et al. 2024, JMLR 25).

    Examples
    --------
    >>> import numpy as np
    >>> unreliable_share(np.array([0.1, 0.45, 0.55, 2.0]), n_draws=100)  # the limit is 1 - 1 / log10(100)
    0.5
    """
    return float(np.mean(pareto_k > min(1.0 - 1.0 / math.log10(n_draws), 0.7)))


def loss_of_submodels(submodels: FloatArray, reference: FloatArray, weight: FloatArray, row: IntArray) -> Loss:
    """Sum log predictive densities over observations, with the standard error of their difference.

    Parameters
    ----------
    submodels : (sizes, N) log predictive densities
    reference : (N,) the same of the reference
    weight : (N,) sample weights
    row : (N,) row of the user's input that each observation belongs to
    """
    _, unit = np.unique(row, return_inverse=True)
    lost = weight * (reference - submodels)
    by_row = np.stack([np.bincount(unit, weights=each) for each in lost])
    n = by_row.shape[1]
    spread = by_row.std(axis=1, ddof=1) if n > 1 else np.full(len(by_row), np.inf)
    return Loss(
        difference=lost.sum(axis=1),
        standard_error=math.sqrt(n) * spread,
        elpd=submodels @ weight,
        elpd_reference=float(reference @ weight),
    )


def smallest_adequate(loss: Loss) -> int | None:
    """Fewest features whose loss is at most one standard error; None where no submodel is so good.

    Examples
    --------
    >>> import numpy as np
    >>> smallest_adequate(Loss(np.array([50.0, 9.0, 2.0, 0.1]), np.array([8.0, 4.0, 3.0, 0.2]), np.zeros(4), 0.0))
    2
    """
    # a submodel that is the reference itself differs from it by rounding error only
    slack = 1e-9 * max(1.0, abs(loss.elpd_reference))
    enough = np.flatnonzero(loss.difference <= loss.standard_error + slack)
    return int(enough[0]) if len(enough) else None
