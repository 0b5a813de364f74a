"""How many wrong features a stability selection can be expected to hold.

Of p features, each half of the data selects q on average, and a feature is kept whose selection frequency over the
halves is at least the threshold pi:

    Meinshausen and Buehlmann (2010), theorem 1:  E(V) <= q^2 / ((2 pi - 1) p),
    Shah and Samworth (2013), theorem 1:          E(kept features of L) <= q^2 / ((2 pi - 1) p),
    Shah and Samworth (2013), theorem 2:          E(kept features of L) <= C(pi, B) q^2 / p.

V counts the kept noise features, under the assumptions that all noise features are equally likely to be selected and
that the selection is not worse than guessing. L holds the features whose probability of being selected by a half is at
most theta = q / p; its first bound assumes nothing, its second that the frequency with which *both* halves of a pair
select such a feature has a unimodal distribution.
"""

import math
from typing import NamedTuple

LARGEST_SHARE = 1 / math.sqrt(3)  # theta up to which theorem 2 of Shah and Samworth holds


class ErrorBounds(NamedTuple):
    """Bounds on the expected number of wrongly kept features; nan where a bound does not hold."""

    meinshausen_buehlmann: float  # kept noise features, if they are exchangeable and selection beats guessing
    worst_case: float  # kept features with selection probability of at most theta, without assumptions
    unimodal: float  # the same, if their simultaneous selection frequencies are unimodal


def error_bounds(n_selected: float, n_features: int, threshold: float, n_pairs: int) -> ErrorBounds:
    """All three bounds.

    Parameters
    ----------
    n_selected : q, features selected per half on average
    n_features : p
    threshold : pi, in (1/2, 1]
    n_pairs : B, pairs of complementary halves

    Examples
    --------
    >>> bounds = error_bounds(n_selected=40, n_features=2000, threshold=0.9, n_pairs=50)
    >>> round(bounds.worst_case, 3), round(bounds.unimodal, 3)
    (1.0, 0.345)
    """
    simple = n_selected**2 / ((2 * threshold - 1) * n_features)
    share = n_selected / n_features
    return ErrorBounds(simple, simple, unimodal_factor(share, threshold, n_pairs) * n_selected * share)


def unimodal_factor(share: float, threshold: float, n_pairs: int) -> float:
    """C(pi, B) of Shah and Samworth (2013), theorem 2, eq. (8); nan where it does not hold.

    Frequencies are multiples of 1/(2B), so that a threshold acts as the next multiple above it.
    """
    half_step = 1 / (2 * n_pairs)
    reached = math.ceil(threshold / half_step - 1e-9) * half_step
    lowest = 0.5 + min(share**2, half_step + 0.75 * share**2)
    if share > LARGEST_SHARE or reached < 0.5 + 2 * half_step - 1e-9 or reached <= lowest:
        return math.nan
    if reached <= 0.75:
        return 1 / (2 * (2 * reached - 1 - half_step))
    return 4 * (1 - reached + half_step) / (1 + 2 * half_step)


def largest_number(expected_false: float, n_features: int, threshold: float) -> int:
    """Most features that a half may select so that the first bound is at most ``expected_false``."""
    return min(n_features, math.floor(math.sqrt(expected_false * (2 * threshold - 1) * n_features) + 1e-9))


def smallest_threshold(expected_false: float, n_features: int, n_selected: int) -> float:
    """Threshold at which the first bound is ``expected_false``; above 1 where no threshold is enough."""
    return (1 + n_selected**2 / (n_features * expected_false)) / 2
