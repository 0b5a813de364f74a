"""Sums of a loss over weighted rows, and their convex conjugates.

A row weight ``c >= 0`` multiplies the loss of its row: weight 2 is the row twice, weight 0 is no row. The conjugate of
``c l`` at u is ``c l*(u / c)``; for ``c = 0`` it is 0 at ``u = 0`` and ``inf`` elsewhere (Boyd and Vandenberghe 2004,
*Convex Optimization*, section 3.3.2). Whatever the inputs, the sums are taken in float64: certificates are differences
of them.
"""

import numpy as np

from bayesmtfs.families.family import Family
from bayesmtfs.types import FloatArray


def total(family: Family, y: FloatArray, eta: FloatArray, weight: FloatArray | None = None) -> float:
    """Weighted sum of the loss, ``sum_i c_i l(y_i, eta_i)``.

    Parameters
    ----------
    family : Likelihood
        The loss.
    y, eta : array (n,)
        Targets and linear predictors.
    weight : array (n,), optional
        Row weights c, not negative; None means 1 for every row. A row of weight 0 adds 0, even at an infinite loss.

    Returns
    -------
    float
        The sum.

    Examples
    --------
    >>> import numpy as np
    >>> from bayesmtfs.families import Gaussian
    >>> total(Gaussian(), np.array([1.0, 2.0]), np.zeros(2), weight=np.array([1.0, 0.5]))
    1.5
    """
    with np.errstate(over="ignore", invalid="ignore"):  # a line search may go too far, and is told so
        return _weighted_sum(family.value(y, eta), weight)


def total_conjugate(family: Family, y: FloatArray, dual: FloatArray, weight: FloatArray | None = None) -> float:
    """Convex conjugate of `total` as a function of eta, ``sum_i c_i l*(y_i, dual_i / c_i)``.

    Parameters
    ----------
    family : Likelihood
        The loss.
    y, dual : array (n,)
        Targets and dual variables, such as ``weight * likelihood.gradient(y, eta)``.
    weight : array (n,), optional
        Row weights c, not negative; None means 1 for every row.

    Returns
    -------
    float
        The sum; ``inf`` where a dual lies outside the domain, so also where it is not 0 on a row of weight 0.

    Examples
    --------
    >>> import numpy as np
    >>> from bayesmtfs.families import Absolute
    >>> y, weight = np.array([3.0, 5.0]), np.array([0.5, 2.0])
    >>> total_conjugate(Absolute(), y, np.array([-0.5, 1.0]), weight)
    3.5
    >>> total_conjugate(Absolute(), y, np.array([-0.6, 1.0]), weight)
    inf
    """
    if weight is None:
        return _weighted_sum(family.conjugate(y, dual), None)
    absent = np.equal(weight, 0.0)
    if np.any(absent & np.not_equal(dual, 0.0)):
        return float("inf")
    ratio = np.divide(dual, np.where(absent, 1.0, weight))
    return _weighted_sum(family.conjugate(y, ratio), weight)


def _weighted_sum(terms: FloatArray, weight: FloatArray | None) -> float:
    """Sum of weight * terms in float64, with 0 * inf = 0."""
    if weight is None:
        return float(np.sum(terms, dtype=np.float64))
    present = np.not_equal(weight, 0.0)
    return float(np.sum(np.multiply(weight, np.where(present, terms, 0.0)), dtype=np.float64))
