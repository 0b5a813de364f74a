"""What draws say about features: how likely an effect is to matter, and how sure its sign is."""

import numpy as np

from bayesmtfs.types import FloatArray


def inclusion_probability(coef: FloatArray, unit: FloatArray, effect_size: float) -> FloatArray:
    """(p,) Share of draws in which the largest effect over tasks exceeds a size.

    Parameters
    ----------
    coef : (chains, draws, p, m)
    unit : (p,) sd(x_i) / sd(y): what turns a coefficient into an effect
    effect_size : size that matters

    Examples
    --------
    >>> coef = np.array([[[[0.2, -0.9]], [[0.1, 0.3]]]])
    >>> inclusion_probability(coef, np.array([0.5]), 0.2)
    array([0.5])
    """
    largest = np.maximum(coef.max(axis=3), -coef.min(axis=3)) * unit
    return np.asarray((largest > effect_size).mean(axis=(0, 1)))


def local_false_sign_rate(coef: FloatArray) -> FloatArray:
    """(m, p) ``min(P(w <= 0), P(w >= 0))``: probability that the likelier sign is wrong (Stephens 2017).

    Parameters
    ----------
    coef : (chains, draws, p, m)

    Examples
    --------
    >>> local_false_sign_rate(np.array([[[[0.2, 0.0]], [[0.1, 0.0]], [[-0.3, 0.0]], [[0.5, 0.0]]]]))
    array([[0.25],
           [1.  ]])
    """
    return np.minimum((coef <= 0).mean(axis=(0, 1)), (coef >= 0).mean(axis=(0, 1))).T.copy()
