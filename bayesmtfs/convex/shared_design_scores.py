"""How strongly each column pulls on the residuals: the dual norm of its correlations with them, for all columns.

A look at all columns is a product of X with the residuals, most of the work of a solve. Once it was done at residuals
R_0, most columns need no second look at residuals R nearby, since

    ||x_j'R||_q* <= s ||x_j'R_0||_q* + k ||x_j||_2 ||R - s R_0||,      k the largest q*-norm of a unit vector,

and a bound below the penalty strength is as good as the value itself (sphere test; El Ghaoui, Viallon and Rabbani
2012, *Pacific Journal of Optimization* 8:667-698).
"""

from typing import NamedTuple

import numpy as np

from bayesmtfs.convex.shared_design_columns import SharedDesign
from bayesmtfs.priors.row_penalty import RowPenalty
from bayesmtfs.types import FloatArray

LARGEST_SHARE = 0.4  # of the columns; where the sphere test leaves more, all are looked at
LARGEST_RADIUS = 0.15  # of a sphere, in units of the penalty strength, that is worth a test
MAX_SPECTRUM = 300  # tasks or rows, above which a spectral norm is bounded by the Frobenius norm
SLACK = 1e-12  # of a bound, for rounding


class Reference(NamedTuple):
    """Residuals at which all columns were looked at."""

    residual: FloatArray  # (m, n)
    norms: FloatArray  # (p,)


class Scores:
    """Dual norms of the correlations of all columns, for one penalty up to its strength.

    Parameters
    ----------
    design : the weighted and centred data
    penalty : the penalty on the rows
    """

    def __init__(self, design: SharedDesign, penalty: RowPenalty) -> None:
        self.design, self.penalty = design, penalty
        self.reference: Reference | None = None

    def exact(self, residual: FloatArray) -> FloatArray:
        """(p,) Dual norms at residuals (m, n), by a look at all columns."""
        norms = np.where(self.design.is_null, 0.0, all_dual_norms(self.penalty, self.design.correlations(residual)))
        self.reference = Reference(residual, norms)
        return norms

    def bounds(self, residual: FloatArray, strength: float, length: float) -> FloatArray:
        """(p,) Dual norms at residuals (m, n); those below the penalty strength may be upper bounds.

        Parameters
        ----------
        residual : (m, n)
        strength : penalty strength
        length : of a typical column; 0 where none is known
        """
        bounds = None if self.reference is None else self._sphere_bounds(residual, self.reference, strength, length)
        if bounds is None:
            return self.exact(residual)
        unsure = np.flatnonzero(bounds >= strength)
        if len(unsure) > LARGEST_SHARE * len(bounds):
            return self.exact(residual)
        bounds[unsure] = self.penalty.take(unsure).dual_norm(self.design.correlations(residual, unsure))
        return np.where(self.design.is_null, 0.0, bounds)

    def _sphere_bounds(
        self, residual: FloatArray, reference: Reference, strength: float, length: float
    ) -> FloatArray | None:
        """(p,) Upper bounds from the values at a reference; None where that is too far to be of use."""
        old = reference.residual
        square = float(np.vdot(old, old))
        share = max(float(np.vdot(old, residual)) / square, 0.0) if square > 0 else 0.0
        radius = spectral_norm(residual - share * old) * self.penalty.largest_dual_norm(len(old))
        if radius == 0.0:
            return share * reference.norms
        if radius * length > LARGEST_RADIUS * strength:
            return None
        weights = 1.0 if self.penalty.weights is None else self.penalty.weights
        return (1.0 + SLACK) * (share * reference.norms + radius * self.design.lengths / weights)


def all_dual_norms(penalty: RowPenalty, rows: FloatArray) -> FloatArray:
    """Dual norms of all rows, by the short way where nothing can over- or underflow."""
    if penalty.is_euclidean and penalty.weights is None:
        with np.errstate(over="ignore"):
            norms: FloatArray = np.sqrt(np.einsum("pm,pm->p", rows, rows))
        if 1e-100 < norms.max() < 1e100:
            return norms
    return penalty.dual_norm(rows)


def spectral_norm(matrix: FloatArray) -> float:
    """Largest singular value of a matrix with a small side; of others an upper bound."""
    if min(matrix.shape) > MAX_SPECTRUM:
        return float(np.linalg.norm(matrix))
    small = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    return (1.0 + SLACK) * float(np.sqrt(max(np.linalg.eigvalsh(small)[-1], 0.0)))
