"""How much the sets that a selector chooses on different rows agree: Nogueira's stability, with an interval.

For M sets of features out of p, with f_i the share of the sets that hold feature i and k the average size,

    stability = 1 - [ (1/p) sum_i M / (M - 1) f_i (1 - f_i) ] / [ (k / p) (1 - k / p) ]

(Nogueira, Sechidis and Brown 2018, JMLR 18(174), eq. 4). It is 1 for equal sets and 0 on average for random ones of any
size. The interval is the asymptotic one of their corollary 9.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm

from bayesmtfs.types import FloatArray


class SetStability(NamedTuple):
    """Stability, and its interval."""

    value: float  # nan for one set, and where all sets are empty or full
    low: float
    high: float


def set_stability(sets: ArrayLike, level: float = 0.95) -> SetStability:
    """Nogueira's stability of several sets of features.

    Parameters
    ----------
    sets : (M, p) bool, one row per set
    level : coverage of the interval

    Examples
    --------
    >>> set_stability([[True, True, False, False], [True, True, False, False], [True, False, True, False]]).value
    0.333...
    """
    Z = np.asarray(sets, dtype=np.float64)
    if Z.ndim != 2:
        raise ValueError(f"sets has shape {Z.shape}; pass one row per set and one column per feature")
    number, p = Z.shape
    share = Z.mean() if Z.size else 0.0  # k / p
    if number < 2 or share in (0.0, 1.0):
        return SetStability(float("nan"), float("nan"), float("nan"))
    frequency = Z.mean(axis=0)
    chance = share * (1.0 - share)
    value = 1.0 - number / (number - 1) * np.mean(frequency * (1.0 - frequency)) / chance
    influence = _influence(Z, frequency, share, value) / chance
    error = np.sqrt(4.0 / number**2 * np.sum((influence - influence.mean()) ** 2))
    half = norm.ppf(0.5 + level / 2.0) * error
    return SetStability(float(value), float(value - half), float(value + half))


def _influence(Z: FloatArray, frequency: FloatArray, share: float, value: float) -> FloatArray:
    """(M,) What each set contributes to the stability (theorem 7), times (k / p)(1 - k / p)."""
    sizes = Z.mean(axis=1)  # k_i / p
    return Z @ frequency / Z.shape[1] - sizes * share + value / 2.0 * (2.0 * share * sizes - sizes - share + 1.0)
