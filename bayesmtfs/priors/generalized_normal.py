"""Generalized normal prior: entries of a row that share one scale, with tails between Laplace and uniform.

Every entry of row i is ``GN(0, rho_i, q)`` with density ``exp(-|w/rho|^q) / (2 rho Gamma(1 + 1/q))`` (Zhang, Yeung and
Xu 2010, definition 1 and eq. 3): q = 1 is Laplace, q = 2 normal with variance ``rho^2 / 2`` (the ARD prior), q = inf
uniform on ``[-rho, rho]``. Any q > 0 is allowed.

With the scales set to their best values ``rho_i = (q/m)^(1/q) ||w^i||_q`` the prior becomes the non-convex penalty
``m sum_i ln(||w^i||_q + offset)`` of their problem (5), offset added. Its tangent at the current rows is a weighted
mixed norm with the weights ``m / (||w^i||_q + offset)``: majorisation-minimisation solves (5) through those. The paper
keeps m for every row; here a row that lacks entries counts its own.
"""

import math
from dataclasses import dataclass

import numpy as np

from bayesmtfs.priors.row_penalty import check_norm_q, log_entry_volume, per_row, row_norms, row_sizes
from bayesmtfs.types import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class GeneralizedNormal:
    """Independent ``GN(0, row_scale_i, q)`` entries, row by row.

    Parameters
    ----------
    norm_q : float
        Shape q, above 0; ``np.inf`` is the uniform law.
    row_scale : float or (R,) array
        Scale rho, above 0, one for all rows or one per row.

    Examples
    --------
    >>> import numpy as np
    >>> prior = GeneralizedNormal(norm_q=1.0, row_scale=2.0)
    >>> round(prior.negative_log_density(np.array([[2.0, -4.0]])), 6)  # |w| / 2 + ln 4 each
    5.772589
    """

    norm_q: float
    row_scale: float | FloatArray = 1.0

    def __post_init__(self) -> None:
        check_norm_q(self.norm_q, smallest=0.0)
        check_row_scale(self.row_scale)

    def negative_log_density(self, W: FloatArray, sizes: IntArray | None = None) -> float:
        """Minus the log-density of the rows, with its normaliser; ``inf`` outside the support at q = inf.

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
        scales = self._scales(len(counts))
        ratios = np.abs(np.asarray(W, dtype=np.float64)) / scales[:, np.newaxis]
        if self.norm_q == math.inf:
            exponent = math.inf if np.any(ratios > 1.0) else 0.0
        else:
            with np.errstate(over="ignore"):
                exponent = float(np.sum(ratios**self.norm_q))
        return exponent + float(counts @ (np.log(scales) + log_entry_volume(self.norm_q)))

    def row_scales(self, rows: FloatArray, sizes: IntArray | None = None) -> FloatArray:
        """Best scales (R,) given the rows, ``(q/m)^(1/q) ||w^i||_q`` (Zhang, Yeung and Xu 2010, below eq. 4).

        At q = inf the largest entry of the row; 0 for a row without entries.
        """
        counts = row_sizes(rows, sizes)
        norms = row_norms(rows, self.norm_q)
        if self.norm_q == math.inf:
            return norms
        return (self.norm_q / np.maximum(counts, 1)) ** (1.0 / self.norm_q) * norms

    def type2_value(self, rows: FloatArray, offset: float, sizes: IntArray | None = None) -> float:
        """Penalty ``m sum_i ln(||w^i||_q + offset)`` of problem (5); ``-inf`` at a zero row without offset."""
        check_offset(offset)
        counts = row_sizes(rows, sizes)
        with np.errstate(divide="ignore"):
            logs = np.log(row_norms(rows, self.norm_q) + offset)
        return float(np.sum(np.where(counts > 0, counts * logs, 0.0)))

    def majoriser_weights(self, rows: FloatArray, offset: float, sizes: IntArray | None = None) -> FloatArray:
        """Weights (R,) of the mixed norm that touches problem (5) at these rows, ``m / (||w^i||_q + offset)``.

        The weight of a zero row without offset is ``inf``: the row can never leave zero.
        """
        check_offset(offset)
        with np.errstate(divide="ignore"):
            return row_sizes(rows, sizes) / (row_norms(rows, self.norm_q) + offset)

    def _scales(self, n_rows: int) -> FloatArray:
        return per_row("row_scale", self.row_scale, n_rows)


def check_row_scale(row_scale: float | FloatArray) -> None:
    """Refuse a row scale that is not a positive finite number."""
    if not (np.all(np.isfinite(row_scale)) and np.all(np.asarray(row_scale) > 0.0)):
        raise ValueError(f"row_scale is {row_scale}; pass finite numbers above 0, such as 1.0")


def check_offset(offset: float) -> None:
    """Refuse an offset that is negative, infinite or not a number."""
    if not 0.0 <= offset < math.inf:
        raise ValueError(f"offset is {offset}; pass a finite number of at least 0, such as 1e-3")
