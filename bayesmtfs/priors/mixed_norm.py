"""Mixed-norm prior: rows of W that are zero as a whole, with a choice of the norm within a row.

The penalty is ``lam * sum_i ||w^i||_q`` with 1 <= q <= inf, the l_{1,q} norm of Zhang, Yeung and Xu 2010, problem (1)
(q = 2: Obozinski, Taskar and Jordan 2006; q = inf: Turlach, Venables and Wright 2005). It is minus the logarithm of the
row density

    p(w) = exp(-lam ||w||_q) lam^m Gamma(1 + m/q) / (m! [2 Gamma(1 + 1/q)]^m),

a proper prior for lam > 0. The papers leave the normaliser out; it matters as soon as lam or q is compared or learned.
The proximal step of a row is in :mod:`bayesmtfs.priors.row_prox`.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from bayesmtfs.priors.row_prox import clipping_level, prox_rows
from bayesmtfs.types import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class MixedNorm:
    """Penalty ``strength * sum_i weights_i ||w^i||_q`` on the rows of a matrix (R, k).

    Parameters
    ----------
    strength : float
        Penalty strength lam, at least 0.
    norm_q : float
        Norm within a row, in [1, inf].
    weights : (R,) array, optional
        Factor of the strength per row, at least 0, as majorisation-minimisation needs it. None: 1 for every row.

    Examples
    --------
    >>> import numpy as np
    >>> prior = MixedNorm(strength=1.0, norm_q=2)
    >>> rows = np.array([[3.0, 4.0], [0.3, 0.4]])
    >>> prior.value(rows)
    5.5
    >>> prior.prox(rows, step=1.0)
    array([[2.4, 3.2],
           [0. , 0. ]])
    """

    strength: float
    norm_q: float
    weights: FloatArray | None = None

    def __post_init__(self) -> None:
        check_strength(self.strength)
        check_norm_q(self.norm_q, smallest=1.0)
        check_weights(self.weights)

    def value(self, rows: FloatArray) -> float:
        """Penalty, strength and weights included."""
        return float(self.strengths(len(rows)) @ self.norms(rows))

    def norms(self, rows: FloatArray) -> FloatArray:
        """q-norm (R,) of every row, without strength and weights."""
        return row_norms(rows, self.norm_q)

    def dual_norm(self, rows: FloatArray) -> FloatArray:
        """Smallest strength (R,) at which this row of the gradient keeps the coefficients at zero.

        The q*-norm of the row, ``1/q + 1/q* = 1``, divided by the weight of the row.
        """
        norms = row_norms(rows, dual_exponent(self.norm_q))
        return norms if self.weights is None else divided_by_weights(norms, self.weights)

    def strengths(self, n_rows: int) -> FloatArray:
        """Strength times weight (R,) of every row."""
        return strength_per_row(self.strength, self.weights, n_rows)

    def prox(self, rows: FloatArray, step: float | FloatArray) -> FloatArray:
        """Proximal point ``argmin_z 1/2 ||z - rows||^2 + sum_i step_i strength weights_i ||z^i||_q``.

        Parameters
        ----------
        rows : (R, k) array
            The point; not modified.
        step : float or (R,) array
            Step, one for all rows or one per row, at least 0.

        Returns
        -------
        (R, k) array
            The proximal point, rows exactly zero where their dual norm is at most the step times the strength.
        """
        return self._prox(rows, thresholds(self.strengths(len(rows)), step))

    def _prox(self, rows: FloatArray, row_thresholds: FloatArray) -> FloatArray:
        points = np.array(rows, dtype=np.float64, order="C")
        prox_rows(points, row_thresholds, float(self.norm_q))
        return points

    def subdifferential_distance(self, rows: FloatArray, gradient: FloatArray) -> FloatArray:
        """Distance (R,) of every row of ``-gradient`` to the subdifferential of the penalty at that row.

        It is 0 for all rows exactly at the minimum of a smooth loss plus the penalty. At q = inf the entries that share
        the largest absolute value must do so to the last bit, as they do after a proximal step. For q close to 1 an
        entry of the minimum may be too small for a floating point number and stand as 0: below q = 1.05 or so that
        alone can leave a distance.
        """
        rows = np.asarray(rows, dtype=np.float64)
        target = -np.asarray(gradient, dtype=np.float64)
        strengths = self.strengths(len(rows))[:, np.newaxis]
        norms = self.norms(rows)
        zero = norms == 0.0
        if self.norm_q == 1.0:
            residual = np.where(rows == 0.0, soft_threshold(target, strengths), target - strengths * np.sign(rows))
        elif self.norm_q == np.inf:
            residual = target - _nearest_in_face(rows, target, strengths[:, 0])
        else:
            directions = np.abs(rows) / np.where(zero, 1.0, norms)[:, np.newaxis]
            residual = target - strengths * np.sign(rows) * directions ** (self.norm_q - 1.0)
        # At a zero row the subdifferential is the dual ball: what is left after projection is the proximal step.
        residual[zero] = self._prox(target[zero], strengths[zero, 0])
        return row_norms(residual, 2.0)

    def negative_log_density(self, W: FloatArray, sizes: IntArray | None = None) -> float:
        """Minus the log-density of the rows, with its normaliser.

        Parameters
        ----------
        W : (R, k) array
            Coefficients, one row per feature or group.
        sizes : (R,) array of int, optional
            Number of entries of each row that count; the others must be 0. None: all k.

        Returns
        -------
        float
            Sum over the rows.
        """
        counts = row_sizes(W, sizes)
        log_volumes = (
            gammaln(1.0 + counts) - gammaln(1.0 + counts / self.norm_q) + counts * log_entry_volume(self.norm_q)
        )
        return self.value(W) - log_strength_sum(self.strengths(len(counts)), counts) + float(np.sum(log_volumes))


def row_norms(rows: FloatArray, norm_q: float) -> FloatArray:
    """q-norm (R,) of every row, for any q > 0, scaled so that no power over- or underflows.

    Examples
    --------
    >>> import numpy as np
    >>> row_norms(np.array([[3e300, 4e300]]), 2.0)
    array([5.e+300])
    """
    sizes = np.abs(np.asarray(rows, dtype=np.float64))
    peaks: FloatArray = np.max(sizes, axis=1, initial=0.0)
    if norm_q == np.inf:
        return peaks
    sizes /= np.where(peaks > 0.0, peaks, 1.0)[:, np.newaxis]
    if norm_q == 2.0:
        squares: FloatArray = np.einsum("ij,ij->i", sizes, sizes)
        return peaks * np.sqrt(squares)
    powers: FloatArray = np.sum(sizes**norm_q, axis=1)
    return peaks * powers ** (1.0 / norm_q)


def row_sizes(rows: FloatArray, sizes: IntArray | None) -> IntArray:
    """Entries per row (R,) that count: ``sizes``, or the number of columns where it is None."""
    n_rows, n_columns = np.shape(rows)
    if sizes is None:
        return np.full(n_rows, n_columns)
    if np.shape(sizes) != (n_rows,):
        raise ValueError(f"sizes has shape {np.shape(sizes)} but there are {n_rows} rows; pass one size per row")
    return np.asarray(sizes)


def soft_threshold(values: FloatArray, threshold: float | FloatArray) -> FloatArray:
    """``sign(values) (|values| - threshold)_+``, entry by entry."""
    return np.sign(values) * np.maximum(np.abs(values) - threshold, 0.0) + 0.0  # no zero with a sign


def dual_exponent(norm_q: float) -> float:
    """Exponent q* of the dual norm, ``1/q + 1/q* = 1``."""
    if norm_q == 1.0:
        return math.inf
    return 1.0 if norm_q == math.inf else norm_q / (norm_q - 1.0)


def log_entry_volume(norm_q: float) -> float:
    """``ln(2 Gamma(1 + 1/q))``, the integral of ``exp(-|z|^q)`` over the real line; ln 2 at q = inf."""
    return math.log(2.0) + math.lgamma(1.0 + 1.0 / norm_q)


def per_row(name: str, values: float | FloatArray, n_rows: int) -> FloatArray:
    """One number per row (R,), from one number for all or one per row; ``name`` is the argument they came as."""
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim > 0 and numbers.shape != (n_rows,):
        raise ValueError(f"{name} has shape {numbers.shape} but there are {n_rows} rows; pass one number per row")
    return np.broadcast_to(numbers, (n_rows,))


def strength_per_row(strength: float, weights: FloatArray | None, n_rows: int) -> FloatArray:
    """Strength times weight (R,) of every row."""
    return strength * per_row("weights", 1.0 if weights is None else weights, n_rows)


def log_strength_sum(strengths: FloatArray, sizes: IntArray) -> float:
    """``sum_i sizes_i ln(strengths_i)``, the part of the normaliser that any homogeneous penalty has."""
    counted = sizes > 0
    if not np.all(strengths[counted] > 0.0):
        raise ValueError(
            "penalty_strength is 0 for some rows, where the prior is flat and has no density; "
            "pass a positive penalty_strength and positive weights, or use value() for the penalty alone"
        )
    return float(sizes[counted] @ np.log(strengths[counted]))


def thresholds(strengths: FloatArray, step: float | FloatArray) -> FloatArray:
    """Step times strength (R,) of every row."""
    steps = per_row("step", step, strengths.size)
    if not np.all(steps >= 0.0):
        raise ValueError("step has negative entries or NaN; pass steps of at least 0")
    return steps * strengths


def divided_by_weights(norms: FloatArray, weights: FloatArray) -> FloatArray:
    """``norms / weights`` with 0 / 0 = 0: a row without weight is held at zero by a zero gradient only."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(norms == 0.0, 0.0, norms / weights)


def check_strength(strength: float) -> None:
    """Refuse a penalty strength that is negative, infinite or not a number."""
    if not 0.0 <= strength < math.inf:
        raise ValueError(
            f"penalty_strength is {strength}; pass a finite number of at least 0, such as 0.1 (0 means no penalty)"
        )


def check_norm_q(norm_q: float, smallest: float) -> None:
    """Refuse a norm below ``smallest`` (or not above 0 where that is 0) or not a number."""
    if not (norm_q >= smallest and norm_q > 0.0):
        wanted = "a number above 0" if smallest == 0.0 else f"a number of at least {smallest:g}"
        raise ValueError(f"norm_q is {norm_q}; pass {wanted}, such as 2, or np.inf for the largest entry")


def check_weights(weights: FloatArray | None) -> None:
    """Refuse row weights that are negative, infinite or not a number."""
    if weights is not None and not (np.all(np.isfinite(weights)) and np.all(np.asarray(weights) >= 0.0)):
        raise ValueError("weights has entries that are negative, infinite or NaN; pass finite weights of at least 0")


def _nearest_in_face(rows: FloatArray, target: FloatArray, strengths: FloatArray) -> FloatArray:
    """Projection of the target onto the subdifferential of ``strength ||.||_inf``, for the rows that are not zero.

    The subdifferential is the simplex of size ``strength`` on the largest entries of the row, with their signs.
    """
    nearest = np.zeros_like(rows)
    for i in np.flatnonzero(rows.any(axis=1)):
        largest = np.abs(rows[i]) == np.max(np.abs(rows[i]))
        signs = np.sign(rows[i, largest])
        along = signs * target[i, largest]
        level = clipping_level(along, strengths[i], -np.inf)
        nearest[i, largest] = signs * np.maximum(along - level, 0.0)
    return nearest
