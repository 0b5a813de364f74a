r"""Ordinal loss: ordered classes, cut apart on one line (McCullagh 1980, *JRSS B* 42:109-142).

Class k of K is what lies between the cut points :math:`c_{k-1} < c_k` (:math:`c_0 = -\infty, c_K = \infty`) of a logistic
variable around eta,

.. math:: P(y \le k) = \sigma(c_k - \eta) , \qquad
   l_k(\eta, c) = -\ln [\sigma(c_k - \eta) - \sigma(c_{k-1} - \eta)]
   = \ln(1 + e^{\eta - c_k}) + \ln(1 + e^{c_{k-1} - \eta}) - \ln(1 - e^{-\delta_k}) , \quad \delta_k = c_k - c_{k-1} ,

jointly convex in eta and c. Every task has cut points of its own, which are free: the loss of a task as the solvers see
it is the smallest one over them, :math:`L(\eta) = \min_c \sum_i w_i l_{y_i}(\eta_i, c)`, convex again, whose gradient
is that of the rows at the best c. The curvature of the rows at fixed cut points bounds that of L. A constant that is
added to eta moves the cut points along and changes nothing, so that there is no intercept.

**Conjugate.** At given cut points every row has one in closed form: with ``h = delta / 2`` and s the distance of eta
from the middle of the class, the slope is ``u = sinh s / (cosh h + cosh s)``, which gives s. What is left, the supremum
over c, falls apart into one concave problem for each gap between neighbouring cut points, since only bottom and top
class see a cut point without the next: with :math:`A_k = \sum_{y_i = k} w_i u_i / 2 + \sum_{y_i > k} w_i u_i`,

.. math:: L^*(u) = \sum_{y_i \in \{1, K\}} w_i H(|u_i|) + \sum_{1 < k < K} \max_{\delta > 0} \Big[ A_k \delta +
   \sum_{y_i = k} w_i \phi(u_i; \delta) \Big] , \quad H(v) = v \ln v + (1 - v) \ln(1 - v) ,

with :math:`\phi(u; \delta) = u s - \ln(1 + e^{s-h}) - \ln(1 + e^{-s-h}) + \ln(1 - e^{-\delta})`. It is finite where the
sum of ``w u`` is 0, bottom rows have u from 0 to 1 and top rows from -1 to 0, and :math:`A_k \le -\sum_{y_i = k} w_i
|u_i| / 2`.

**Posteriors** have the cut points among what they draw, N(0, s^2) in rising order with the s of intercepts; `Family.given`
is the family at known ones.

A class that does not occur in a task has no room there: the cut points on its two sides are the same, or infinite at the
ends.
"""

from typing import Any

import numpy as np
from scipy.special import expit, xlogy

from bayesmtfs.families.family import Family
from bayesmtfs.types import FloatArray, IntArray

NEWTON_STEPS = 100
TOL = 1e-13  # of the slopes in the cut points, relative to the weight of the task
RIDGE = 1e-10  # of Newton's matrix, relative to the weight of the task, where no row is near a cut point
SHORTEST = 2.0**-40  # of a Newton step
ROUNDING = 1e-9  # of sums of slopes, relative to the weight of the task
WIDEST = 600.0  # gap between two cut points
NARROWEST = 1e-12
TINY = 1e-300  # probability in place of 0


class Ordinal(Family):
    """Cumulative logit loss of ordered classes, numbered from 0; a coupled family, see `Family.on`.

    Examples
    --------
    >>> import numpy as np
    >>> y = np.array([0.0, 1.0, 1.0, 2.0])
    >>> rows = Ordinal().on(y, np.ones(4), np.array([0, 4]))
    >>> np.exp(-rows.value(y, np.zeros(4))).round(3)  # without features the shares of the classes
    array([0.25, 0.5 , 0.5 , 0.25])
    """

    name = "ordinal"
    targets = "labels"
    coupled = True
    has_cuts = True
    learned: str | None = "thresholds"

    def on(self, y: FloatArray, weight: FloatArray, offsets: IntArray) -> Family:
        """The family on rows that are sorted by task."""
        return OrdinalRows(y, weight, offsets)

    def given(self, parameter: Any) -> "OrdinalAt":
        """The family at known cut points (..., K - 1)."""
        return OrdinalAt(parameter)

    def log_density(self, y: FloatArray, eta: FloatArray, noise: FloatArray | float = 1.0) -> FloatArray:
        """Log-probability of the classes; it takes cut points."""
        raise ValueError("Ordinal has a density at known cut points only; call `given` with them first")

    def working_noise(self, y: FloatArray, weight: FloatArray) -> float:
        """Return 2, as for two classes."""
        return 2.0

    def pymc_dist(self, eta: Any, noise: Any, **options: Any) -> Any:
        """Law of the classes; it takes cut points."""
        raise ValueError("Ordinal has a law at known cut points only; call `given` with them first")

    def probabilities(self, eta: FloatArray, cuts: FloatArray | None = None) -> FloatArray:
        """(..., K) Probabilities of the classes at predictors (...,) and cut points (..., K - 1), or those given."""
        known: Any = vars(self).get("at_cuts") if cuts is None else cuts
        with np.errstate(invalid="ignore"):
            below = np.asarray(expit(known - np.asarray(eta)[..., np.newaxis]))
        zero, one = np.zeros((*below.shape[:-1], 1)), np.ones((*below.shape[:-1], 1))
        return np.diff(np.concatenate([zero, below, one], axis=-1), axis=-1)


class OrdinalAt(Ordinal):
    """The ordinal law at known cut points, row by row."""

    __eq__ = object.__eq__
    __hash__ = object.__hash__
    learned = None

    def __init__(self, cuts: Any) -> None:
        self.at_cuts = cuts

    def log_density(self, y: FloatArray, eta: FloatArray, noise: FloatArray | float = 1.0) -> FloatArray:
        """Log-probability of the classes; there is no noise."""
        p = self.probabilities(eta, self.at_cuts)
        chosen = np.broadcast_to(np.asarray(y, dtype=np.int64), p.shape[:-1])[..., np.newaxis]
        return np.log(np.maximum(np.take_along_axis(p, chosen, axis=-1)[..., 0], TINY))

    def draw(self, rng: np.random.Generator, eta: FloatArray, noise: FloatArray | float = 1.0) -> FloatArray:
        """Draw classes: how many cut points lie below a logistic variable about eta."""
        found = eta + rng.logistic(size=np.shape(eta))
        return np.sum(found[..., np.newaxis] > self.at_cuts, axis=-1).astype(np.float64)

    def pymc_dist(self, eta: Any, noise: Any, **options: Any) -> Any:
        """Classes as numbers from 0."""
        import pymc as pm
        import pytensor.tensor as pt

        def log_density(value: Any, eta: Any, cuts: Any) -> Any:
            below = pt.sigmoid(cuts - eta[..., None])
            padded = pt.concatenate([pt.zeros_like(below[..., :1]), below, pt.ones_like(below[..., :1])], axis=-1)
            p = padded[..., 1:] - padded[..., :-1]
            chosen = pt.eq(value[..., None], pt.arange(p.shape[-1]))
            return pt.log(pt.maximum(pt.sum(pt.switch(chosen, p, 0.0), axis=-1), TINY))

        def draw(eta: Any, cuts: Any, rng: Any = None, size: Any = None) -> Any:
            return OrdinalAt(cuts).draw(rng, np.broadcast_to(eta, np.shape(eta) if size is None else size))

        options["signature"] = "(),(c)->()"
        return pm.CustomDist.dist(eta, self.at_cuts, logp=log_density, random=draw, **options)


class OrdinalRows(Ordinal):
    """The ordinal loss on given rows."""

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __init__(self, y: FloatArray, weight: FloatArray, offsets: IntArray) -> None:
        spans = zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
        self.parts = [(slice(a, b), CutTask(y[a:b], weight[a:b])) for a, b in spans]

    def value(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Loss of each row at the best cut points of its task."""
        return self._by_task("value", eta)

    def gradient(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Derivative, at the best cut points: ``P(y > k) - P(y < k)`` for class k."""
        return self._by_task("gradient", eta)

    def curvature(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Second derivative at fixed cut points, which bounds that of the loss."""
        return self._by_task("curvature", eta)

    def conjugate(self, y: FloatArray, dual: FloatArray) -> FloatArray:
        """Terms of the conjugate; inf in a task whose dual variables are outside its domain."""
        return self._by_task("conjugate", dual)

    def best_constant(self, y: FloatArray, weight: FloatArray) -> float:
        """Return 0: the cut points say the rest."""
        return 0.0

    def cuts(self, eta: FloatArray, n_classes: int) -> FloatArray:
        """(m, K - 1) Best cut points of every task; infinite, or the same, beside classes that it does not have."""
        return np.stack([task.all_cuts(eta[rows], n_classes) for rows, task in self.parts])

    def _by_task(self, method: str, values: FloatArray) -> FloatArray:
        return np.concatenate([getattr(task, method)(values[rows]) for rows, task in self.parts])


class CutTask:
    """Rows of one task, their classes numbered without gaps: the best cut points, and the loss there."""

    def __init__(self, y: FloatArray, weight: FloatArray) -> None:
        self.classes, self.number = np.unique(y.astype(np.int64), return_inverse=True)
        self.weight, self.total = weight, float(weight.sum())
        self.k = len(self.classes)
        self.counts = np.bincount(self.number, weights=weight, minlength=self.k)
        share = np.cumsum(self.counts)[:-1] / self.total
        # where the next search begins; what it finds does not depend on it
        self.last, self.last_mean = np.log(share / (1.0 - share)), 0.0
        self.known: tuple[FloatArray, FloatArray] | None = None

    def all_cuts(self, eta: FloatArray, n_classes: int) -> FloatArray:
        """(K - 1,) Cut points of all classes."""
        place = np.searchsorted(self.classes, np.arange(n_classes - 1), side="right")
        return np.concatenate([[-np.inf], self.cuts(eta), [np.inf]])[place]

    def cuts(self, eta: FloatArray) -> FloatArray:
        """(k - 1,) Cut points of the smallest loss, by Newton steps that are halved until the loss falls."""
        if self.known is not None and np.array_equal(self.known[0], eta):
            return self.known[1]
        c = self.last + (float(np.average(eta, weights=self.weight)) - self.last_mean)
        value = self._loss(eta, c)
        for _ in range(NEWTON_STEPS):
            slope, curvature = self._slopes(eta, c)
            if np.max(np.abs(slope), initial=0.0) <= TOL * self.total:
                break
            step, length = np.linalg.solve(curvature + RIDGE * self.total * np.eye(self.k - 1), -slope), 1.0
            while length > SHORTEST:
                at = c + length * step
                moved = self._loss(eta, at)
                if moved <= value + 1e-15 * abs(value):
                    break
                length *= 0.5
            if length <= SHORTEST:
                break
            c, value = at, moved
        self.last, self.last_mean = c, float(np.average(eta, weights=self.weight))
        self.known = (eta.copy(), c)
        return c

    def _ends(self, eta: FloatArray, c: FloatArray) -> tuple[FloatArray, FloatArray]:
        """``eta - c_k`` and ``c_(k-1) - eta`` of each row; minus infinity where there is no such cut point."""
        padded = np.concatenate([[-np.inf], c, [np.inf]])
        return eta - padded[self.number + 1], padded[self.number] - eta

    def _loss(self, eta: FloatArray, c: FloatArray) -> float:
        gaps = np.diff(c)
        if np.any(gaps <= 0.0):
            return np.inf
        above, below = self._ends(eta, c)
        rows = float(self.weight @ (np.logaddexp(0.0, above) + np.logaddexp(0.0, below)))
        return rows - float(self.counts[1:-1] @ np.log(-np.expm1(-gaps)))

    def _slopes(self, eta: FloatArray, c: FloatArray) -> tuple[FloatArray, FloatArray]:
        """First (k - 1,) and second derivatives of the loss in the cut points."""
        above, below = (expit(end) for end in self._ends(eta, c))
        upper, lower = self.weight * above, self.weight * below
        k = self.k
        slope = np.bincount(self.number, lower, k)[1:] - np.bincount(self.number, upper, k)[:-1]
        diagonal = np.bincount(self.number, lower * (1.0 - below), k)[1:]
        diagonal = diagonal + np.bincount(self.number, upper * (1.0 - above), k)[:-1]
        room = 1.0 / np.expm1(np.minimum(np.diff(c), WIDEST))
        pull, stiff = self.counts[1:-1] * room, self.counts[1:-1] * room * (1.0 + room)
        slope[1:] -= pull
        slope[:-1] += pull
        diagonal[1:] += stiff
        diagonal[:-1] += stiff
        return slope, np.diag(diagonal) - np.diag(stiff, 1) - np.diag(stiff, -1)

    def value(self, eta: FloatArray) -> FloatArray:
        """(n,) Loss of each row."""
        if self.k == 1:
            return np.zeros_like(eta)
        c = self.cuts(eta)
        above, below = self._ends(eta, c)
        room = np.concatenate([[0.0], np.log(-np.expm1(-np.diff(c))), [0.0]])
        return np.asarray(np.logaddexp(0.0, above) + np.logaddexp(0.0, below) - room[self.number])

    def gradient(self, eta: FloatArray) -> FloatArray:
        """(n,) Derivative of each row."""
        if self.k == 1:
            return np.zeros_like(eta)
        above, below = (expit(end) for end in self._ends(eta, self.cuts(eta)))
        return np.asarray(above - below)

    def curvature(self, eta: FloatArray) -> FloatArray:
        """(n,) Second derivative of each row at fixed cut points."""
        if self.k == 1:
            return np.zeros_like(eta)
        above, below = (expit(end) for end in self._ends(eta, self.cuts(eta)))
        return np.asarray(above * (1.0 - above) + below * (1.0 - below))

    def conjugate(self, dual: FloatArray) -> FloatArray:
        """(n,) Terms of the conjugate."""
        nothing, slack = np.full(len(dual), np.inf), ROUNDING * self.total
        if self.k == 1:
            return np.where(np.abs(dual) <= ROUNDING, 0.0, np.inf)
        bottom, top = self.number == 0, self.number == self.k - 1
        low, high = np.where(bottom, 0.0, -1.0), np.where(top, 0.0, 1.0)
        sums = np.bincount(self.number, self.weight * dual, self.k)
        if np.any(dual < low - ROUNDING) or np.any(dual > high + ROUNDING) or abs(sums.sum()) > slack:
            return nothing
        u = np.clip(dual, low, high)
        size = np.abs(u)
        terms = xlogy(size, size) + xlogy(1.0 - size, 1.0 - size)
        above = np.concatenate([np.cumsum(sums[::-1])[::-1][1:], [0.0]])
        for k in range(1, self.k - 1):
            own = self.number == k
            pull = 0.5 * sums[k] + above[k]
            found = self._gap(u[own], self.weight[own], float(pull), slack)
            if found is None:
                return nothing
            if np.isfinite(found):
                terms[own] = _row_conjugate(u[own], found) + pull * found / self.counts[k]
        return terms

    def _gap(self, u: FloatArray, weight: FloatArray, pull: float, slack: float) -> float | None:
        """Gap at which ``pull delta + sum w phi`` is largest, inf if it rises for ever to a limit, None beyond that."""
        end = pull + 0.5 * float(weight @ np.abs(u))
        if end > slack:
            return None
        low, high = np.log(NARROWEST), np.log(WIDEST)
        if _gap_slope(u, weight, pull, WIDEST) >= 0.0:
            return np.inf
        x = 0.0
        for _ in range(NEWTON_STEPS):
            slope = _gap_slope(u, weight, pull, float(np.exp(x)))
            low, high = (x, high) if slope > 0.0 else (low, x)
            step = 1e-6
            derivative = (_gap_slope(u, weight, pull, float(np.exp(x + step))) - slope) / step
            ahead = x - slope / derivative if derivative < 0.0 else 0.5 * (low + high)
            ahead = ahead if low < ahead < high else 0.5 * (low + high)
            if abs(ahead - x) <= 1e-12:
                break
            x = ahead
        return float(np.exp(x))


def _middle(u: FloatArray, half: float) -> FloatArray:
    """s: distance of eta from the middle of a class whose slope is u."""
    size = np.minimum(np.abs(u), 1.0 - 1e-16)
    # ln of (|u| cosh h + sqrt(1 + u^2 sinh^2 h)) / (1 - |u|), both terms divided by e^h
    small = np.exp(-2.0 * half)
    even, odd = 0.5 * (1.0 + small), 0.5 * (1.0 - small)
    root = np.sqrt(small + np.square(size * odd))
    return np.sign(u) * (half + np.log(size * even + root) - np.log1p(-size))


def _row_conjugate(u: FloatArray, gap: float) -> FloatArray:
    """``phi(u; gap)`` of rows of one class."""
    half = 0.5 * gap
    s = _middle(u, half)
    return np.asarray(u * s - np.logaddexp(0.0, s - half) - np.logaddexp(0.0, -s - half) + np.log(-np.expm1(-gap)))


def _gap_slope(u: FloatArray, weight: FloatArray, pull: float, gap: float) -> float:
    """Derivative of ``pull delta + sum w phi`` in the gap."""
    half = 0.5 * gap
    s = _middle(u, half)
    rows = 0.5 * (expit(s - half) + expit(-s - half)) + 1.0 / np.expm1(gap)
    return pull + float(weight @ rows)
