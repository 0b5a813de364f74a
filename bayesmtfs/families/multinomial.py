r"""Multinomial loss: one of K classes, with a linear predictor for each.

An observation of class k with linear predictors :math:`\eta \in R^K` has the loss

.. math:: l(k, \eta) = \ln \sum_j e^{\eta_j} - \eta_k, \qquad
   l^*(k, u) = \sum_j \nu_j \ln \nu_j, \quad \nu = u + e_k,

whose conjugate is finite where :math:`\nu` is a probability vector (Boyd and Vandenberghe 2004, *Convex Optimization*,
example 3.25). Inside, every class of a task is a task of its own over the same rows, with targets +1 for the class and
-1 for the others, so that a row of W holds a feature's coefficients over tasks x classes. All classes have coefficients,
as in Zhu and Hastie 2004 (*Biostatistics* 5:427-443): a constant that is added to those of a feature in one task changes
no probability, and the penalty, or the prior of a posterior, chooses it: the one of the least norm, which is known
(`least_norm_level`). Solvers are given a diagonal in place of the second derivatives ``diag(p) - p p'``, as in Friedman,
Hastie and Tibshirani 2010 (*Journal of Statistical Software* 33, section 4): theirs times ``K / (K - 1)``, which is exact
where the K classes are equally likely, but for those constants.
"""

from typing import Any

import numpy as np
from scipy.special import logsumexp, softmax, xlogy

from bayesmtfs.families.augmentation import OneOfSeveralClasses
from bayesmtfs.families.family import Family
from bayesmtfs.types import FloatArray, IntArray

RAREST = 1e-9  # share of a class that does not occur, in place of 0
ROUNDING = 1e-9  # of probabilities and their sums
BISECTIONS = 60


class Multinomial(Family):
    """Softmax log-loss of classes within tasks; a coupled family, see `Family.on`.

    Examples
    --------
    >>> import numpy as np
    >>> y = np.array([1.0, -1.0, -1.0, 1.0])  # two observations of the classes 0 and 1, class by class
    >>> rows = Multinomial().on(y, np.ones(4), np.array([0, 2, 4]))
    >>> rows.value(y, np.log([3.0, 3.0, 1.0, 1.0])).round(3)
    array([0.288, 0.   , 0.   , 1.386])
    """

    name = "multinomial"
    targets = "labels"
    coupled = True
    class_augmentation = OneOfSeveralClasses()

    def on(self, y: FloatArray, weight: FloatArray, offsets: IntArray) -> Family:
        """The family on rows that are sorted by task and, within tasks, by class."""
        return MultinomialRows(y, offsets)

    def mean(self, eta: FloatArray) -> FloatArray:
        """Probabilities of the classes, on the last axis."""
        return np.asarray(softmax(eta, axis=-1))

    def working_noise(self, y: FloatArray, weight: FloatArray) -> float:
        """Return 2, as for two classes."""
        return 2.0

    def log_density(self, y: FloatArray, eta: FloatArray, noise: FloatArray | float = 1.0) -> FloatArray:
        """Log-probability of each observation, at the row of its class; on given rows only."""
        return -self.value(y, eta)

    def pymc_dist(self, eta: Any, noise: Any, **options: Any) -> Any:
        """PyMC term with these log-densities, on given rows only."""
        raise self._missing("pymc_dist")


class MultinomialRows(Multinomial):
    """The multinomial loss on given rows."""

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __init__(self, y: FloatArray, offsets: IntArray) -> None:
        n_observations = int(np.count_nonzero(y > 0))  # each is +1 in one of its K rows
        n_classes = len(y) // n_observations
        starts, sizes = offsets[:-1:n_classes], np.diff(offsets)[::n_classes]
        first = np.concatenate([start + np.arange(size) for start, size in zip(starts, sizes, strict=True)])
        step = np.repeat(sizes, sizes)
        self.rows = first[:, np.newaxis] + step[:, np.newaxis] * np.arange(n_classes)  # (n, K) of each observation
        self.starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])  # (m,) first observation of each task
        self.sizes = sizes

    def value(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Loss of each observation, at the row of its class; 0 at its other rows."""
        return np.where(y > 0, self._spread(logsumexp(eta[self.rows], axis=1, keepdims=True)) - eta, 0.0)

    def gradient(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Probability minus 1 at the class, the probability elsewhere."""
        return self._probability(eta) - (y > 0)

    def curvature(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """``K / (K - 1)`` times the diagonal ``p (1 - p)`` of the second derivatives, which twice that diagonal bounds."""
        p, n_classes = self._probability(eta), self.rows.shape[1]
        return n_classes / (n_classes - 1) * p * (1.0 - p)

    def levelled(self, W: FloatArray, norm_q: float) -> FloatArray:
        """Coefficients (k, m) of the same probabilities with the least q-norms of rows."""
        table = W.reshape(len(W), W.shape[1] // self.rows.shape[1], self.rows.shape[1])
        return np.asarray((table - least_norm_level(table, norm_q)).reshape(W.shape))

    def conjugate(self, y: FloatArray, dual: FloatArray) -> FloatArray:
        """Negative entropy ``nu ln nu`` of ``nu = dual + [row is that of the class]``; inf unless nu is a probability."""
        nu = dual + (y > 0)
        sums = self._spread(dual[self.rows].sum(axis=1, keepdims=True))
        inside = (nu >= -ROUNDING) & (np.abs(sums) <= ROUNDING)
        return np.where(inside, xlogy(np.maximum(nu, 0.0), np.maximum(nu, 0.0)), np.inf)

    def best_constant(self, y: FloatArray, weight: FloatArray) -> float:
        """Logarithm of the share of the class whose rows these are."""
        return float(np.log(max(np.average(y > 0, weights=weight), RAREST)))

    def zero_sums(self, y: FloatArray, dual: FloatArray, weight: FloatArray) -> FloatArray:
        """Dual variables of probabilities that have the observed shares of the classes in every task.

        The probabilities of each task are mixed with one constant probability vector, as little of it as can be.
        """
        p = (dual / weight + (y > 0))[self.rows]
        classes, weight = y[self.rows] > 0, weight[self.rows]
        observed = np.add.reduceat(weight * classes, self.starts)  # (m, K)
        p = np.where(np.repeat(observed > 0, self.sizes, axis=0), p, 0.0)  # a class that does not occur has none
        p /= p.sum(axis=1, keepdims=True)
        expected = np.add.reduceat(weight * p, self.starts)
        excess = 1.0 - np.divide(observed, expected, out=np.ones_like(expected), where=expected > 0)
        share = np.maximum(excess.max(axis=1, keepdims=True), 0.0)
        constant = np.maximum(observed - (1.0 - share) * expected, 0.0) / observed.sum(axis=1, keepdims=True)
        mixed = np.repeat(1.0 - share, self.sizes, axis=0) * p + np.repeat(constant, self.sizes, axis=0)
        return self._spread(weight * (mixed - classes))

    def pymc_dist(self, eta: Any, noise: Any, **options: Any) -> Any:
        """PyMC term with these log-densities."""
        import pymc as pm
        import pytensor.tensor as pt

        rows, observation = self.rows, self._spread(np.arange(float(len(self.rows)))[:, np.newaxis]).astype(np.int64)

        def log_density(value: Any, eta: Any) -> Any:
            return pt.switch(value > 0, eta - pt.logsumexp(eta[rows], axis=1)[observation], 0.0)

        def draw(eta: Any, rng: Any = None, size: Any = None) -> Any:
            return self.draw(rng, np.broadcast_to(eta, np.shape(eta) if size is None else size))

        return pm.CustomDist.dist(eta, logp=log_density, random=draw, **options)

    def draw(self, rng: np.random.Generator, eta: FloatArray, noise: FloatArray | float = 1.0) -> FloatArray:
        """Draw classes at predictors (..., N): +1 at the row of the class, -1 at the other rows of an observation."""
        table = np.asarray(eta)[..., self.rows]
        chosen = np.argmax(table + rng.gumbel(size=table.shape), axis=-1)
        found = np.full(np.shape(eta), -1.0)
        np.put_along_axis(found, self.rows[np.arange(len(self.rows)), chosen], 1.0, axis=-1)
        return found

    def _probability(self, eta: FloatArray) -> FloatArray:
        return self._spread(self.mean(eta[self.rows]))

    def _spread(self, table: FloatArray) -> FloatArray:
        """(N,) Entries of a table (n, K) or (n, 1), each at its row."""
        values = np.empty(self.rows.size)
        values[self.rows] = table
        return values


def least_norm_level(values: FloatArray, norm_q: float) -> FloatArray:
    """(..., 1) Constant c of the least ``||values - c||_q`` over the last axis.

    Examples
    --------
    >>> least_norm_level(np.array([0.0, 1.0, 5.0]), np.inf), least_norm_level(np.array([0.0, 1.0, 5.0]), 1)
    (array([2.5]), array([1.]))
    """
    if norm_q == 2:
        return np.asarray(values.mean(axis=-1, keepdims=True))
    ordered = np.sort(values, axis=-1)
    low, high = ordered[..., :1], ordered[..., -1:]
    if norm_q == np.inf:
        return np.asarray(0.5 * (low + high))
    if norm_q == 1:
        k = values.shape[-1]
        return np.clip(0.0, ordered[..., (k - 1) // 2, np.newaxis], ordered[..., k // 2, np.newaxis])
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        rest = values - middle
        above = np.sum(np.sign(rest) * np.abs(rest) ** (norm_q - 1.0), axis=-1, keepdims=True) > 0.0
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.asarray(0.5 * (low + high))
