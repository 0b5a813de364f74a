"""Sparse-group prior: rows of W that are zero as a whole, and single zeros within the rows that are not.

The penalty is ``lam * sum_i (r_i ||w^i||_1 + ||w^i||_2)``, with which Yang, King and Lyu 2010 select features and the
tasks that use them (MTFTS; the sparse group lasso of Friedman, Hastie and Tibshirani 2010 up to the scale of r). Its
proximal step is a soft threshold followed by a scaling of the row, their eq. (12) and (11).

The density ``exp(-penalty)`` is proper, but its normaliser has no closed form for two or more entries per row:
:meth:`SparseGroup.negative_log_density` leaves out a constant that depends on r and the row sizes only.
"""

from dataclasses import dataclass

import numpy as np

from bayesmtfs.priors.mixed_norm import (
    check_strength,
    check_weights,
    divided_by_weights,
    log_strength_sum,
    per_row,
    row_norms,
    row_sizes,
    soft_threshold,
    strength_per_row,
    thresholds,
)
from bayesmtfs.priors.row_prox import ZERO_SLACK
from bayesmtfs.types import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class SparseGroup:
    """Penalty ``strength * sum_i weights_i (task_sparsity_i ||w^i||_1 + ||w^i||_2)`` on the rows of a matrix (R, k).

    Parameters
    ----------
    strength : float
        Penalty strength lam, at least 0.
    task_sparsity : float or (R,) array
        Weight r of the 1-norm against the 2-norm, at least 0, one for all rows or one per row.
    weights : (R,) array, optional
        Factor of the strength per row, at least 0. None: 1 for every row.

    Examples
    --------
    >>> import numpy as np
    >>> prior = SparseGroup(strength=1.0, task_sparsity=0.5)
    >>> prior.prox(np.array([[4.5, 3.5, 0.4], [0.9, 0.8, 0.7]]), step=1.0)
    array([[3.2, 2.4, 0. ],
           [0. , 0. , 0. ]])
    """

    strength: float
    task_sparsity: float | FloatArray
    weights: FloatArray | None = None

    def __post_init__(self) -> None:
        check_strength(self.strength)
        check_task_sparsity(self.task_sparsity)
        check_weights(self.weights)

    def value(self, rows: FloatArray) -> float:
        """Penalty, strength and weights included."""
        norms = self._sparsities(len(rows)) * row_norms(rows, 1.0) + row_norms(rows, 2.0)
        return float(self.strengths(len(rows)) @ norms)

    def dual_norm(self, rows: FloatArray) -> FloatArray:
        """Smallest strength (R,) at which this row of the gradient keeps the coefficients at zero.

        The smallest t with ``||soft(v, t r)||_2 <= t``, divided by the weight of the row. With the entries sorted by
        size, entry k is above its threshold at the solution exactly where ``r^2 sum_{j<k} (|v_j| - |v_k|)^2 < v_k^2``;
        the entries above it leave a quadratic in t.
        """
        sizes = np.sort(np.abs(np.asarray(rows, dtype=np.float64)), axis=1)[:, ::-1]
        peaks = sizes[:, 0]
        scaled = sizes / np.where(peaks > 0.0, peaks, 1.0)[:, np.newaxis]
        sparsity = self._sparsities(len(rows))
        norms = peaks * _scaled_dual_norms(scaled, sparsity)
        return norms if self.weights is None else divided_by_weights(norms, self.weights)

    def strengths(self, n_rows: int) -> FloatArray:
        """Strength times weight (R,) of every row."""
        return strength_per_row(self.strength, self.weights, n_rows)

    def prox(self, rows: FloatArray, step: float | FloatArray) -> FloatArray:
        """Proximal point, a soft threshold and then a scaling of every row (Yang, King and Lyu 2010, eq. 11 and 12).

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
        rows = np.asarray(rows, dtype=np.float64)
        sparsities = self._sparsities(len(rows))
        return _prox(rows, thresholds(self.strengths(len(rows)), step), sparsities)

    def subdifferential_distance(self, rows: FloatArray, gradient: FloatArray) -> FloatArray:
        """Distance (R,) of every row of ``-gradient`` to the subdifferential of the penalty at that row.

        It is 0 for all rows exactly at the minimum of a smooth loss plus the penalty.
        """
        rows = np.asarray(rows, dtype=np.float64)
        target = -np.asarray(gradient, dtype=np.float64)
        strengths = self.strengths(len(rows))
        sparsities = self._sparsities(len(rows))
        norms = row_norms(rows, 2.0)
        zero = norms == 0.0
        directions = rows / np.where(zero, 1.0, norms)[:, np.newaxis]
        smooth_part = target - strengths[:, np.newaxis] * directions
        entry_strengths = (strengths * sparsities)[:, np.newaxis]
        residual = np.where(
            rows == 0.0, soft_threshold(smooth_part, entry_strengths), smooth_part - entry_strengths * np.sign(rows)
        )
        # At a zero row the distance to the dual ball is what the proximal step leaves.
        residual[zero] = _prox(target[zero], strengths[zero], sparsities[zero])
        return row_norms(residual, 2.0)

    def negative_log_density(self, W: FloatArray, sizes: IntArray | None = None) -> float:
        """Minus the log-density of the rows, up to a constant that depends on ``task_sparsity`` and the sizes only.

        Parameters
        ----------
        W : (R, k) array
            Coefficients, one row per feature or group.
        sizes : (R,) array of int, optional
            Number of entries of each row that count; the others must be 0. None: all k.

        Returns
        -------
        float
            ``value(W) - sum_i sizes_i ln(strength weights_i)``.
        """
        counts = row_sizes(W, sizes)
        return self.value(W) - log_strength_sum(self.strengths(len(counts)), counts)

    def _sparsities(self, n_rows: int) -> FloatArray:
        return per_row("task_sparsity", self.task_sparsity, n_rows)


def check_task_sparsity(task_sparsity: float | FloatArray) -> None:
    """Refuse a task sparsity that is negative, infinite or not a number."""
    if not (np.all(np.isfinite(task_sparsity)) and np.all(np.asarray(task_sparsity) >= 0.0)):
        raise ValueError(
            f"task_sparsity is {task_sparsity}; pass a finite number of at least 0, such as 0.1 (0: whole rows only)"
        )


def _prox(rows: FloatArray, row_thresholds: FloatArray, sparsities: FloatArray) -> FloatArray:
    """Soft threshold by ``t r`` (eq. 12), then scaling by ``(1 - t / norm)_+`` (eq. 11)."""
    shrunk = soft_threshold(rows, (row_thresholds * sparsities)[:, np.newaxis])
    norms = row_norms(shrunk, 2.0)
    kept = norms > row_thresholds * (1.0 + ZERO_SLACK * (1.0 + sparsities))
    factors = np.where(kept, norms - row_thresholds, 0.0) / np.where(kept, norms, 1.0)
    return factors[:, np.newaxis] * shrunk + 0.0  # no zero with a sign


def _scaled_dual_norms(sizes: FloatArray, sparsities: FloatArray) -> FloatArray:
    """Dual norm of rows sorted from their largest entry, which is 1 (or 0 for a zero row)."""
    places = np.arange(1, sizes.shape[1] + 1)
    sums = np.cumsum(sizes, axis=1)
    squares = np.cumsum(sizes**2, axis=1)
    spread_above = squares - 2.0 * sizes * sums + places * sizes**2
    above = (sparsities[:, np.newaxis] ** 2 * spread_above < sizes**2) | (places == 1)
    counts = np.sum(above, axis=1)
    last = (np.arange(len(sizes)), counts - 1)
    total: FloatArray = sums[last]
    square: FloatArray = squares[last]
    deviations = np.where(places <= counts[:, np.newaxis], sizes - (total / counts)[:, np.newaxis], 0.0)
    # t = S2 / (r S1 + sqrt(r^2 S1^2 - (k r^2 - 1) S2)), the root written without cancellation
    discriminant = square - sparsities**2 * counts * np.sum(deviations**2, axis=1)
    denominator = sparsities * total + np.sqrt(np.maximum(discriminant, 0.0))
    return square / np.where(denominator > 0.0, denominator, 1.0)
