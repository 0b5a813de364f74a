"""Matrix-variate generalized normal prior: rows with their own scale whose entries are related across tasks.

``W = diag(rho) Z Omega`` with independent ``GN(0, 1, q)`` entries in Z and a nonsingular task factor Omega (m, m): the
prior (10) of Zhang, Yeung and Xu 2010. With the whitened rows ``V = W Omega^-1``,

    p(W) = prod_i [2 Gamma(1 + 1/q)]^-m rho_i^-m exp(-sum_j |V_ij / rho_i|^q) / |det Omega|^p.

The scales are given, or integrated out under ``rho_i^-q ~ Gamma(shape, rate)``; with the default ``shape = rate = 0``
(Jeffreys) the prior is improper, see :mod:`bayesmtfs.priors.jeffreys`.

Corrections to the paper: a row has covariance ``rho^2 Gamma(3/q) / Gamma(1/q) Omega^T Omega`` (at q = 2
``rho^2 / 2 Omega^T Omega``), not proportional to ``Omega Omega^T`` as printed below definition 3; and the density needs
``ln |det Omega|``, since the determinant may be negative. ``(rho, Omega)`` and ``(c rho, Omega / c)`` give the same
law, and at q = 2 only ``Omega^T Omega`` is identified.
"""

import math
from dataclasses import dataclass

import numpy as np

from bayesmtfs.priors.generalized_normal import GeneralizedNormal
from bayesmtfs.priors.jeffreys import Jeffreys
from bayesmtfs.types import FloatArray


@dataclass(frozen=True, eq=False)
class MatrixVariate:
    """Rows ``rho_i z^T Omega`` with generalized normal z; every row must have all m tasks.

    Parameters
    ----------
    norm_q : float
        Shape q of the entries of Z, above 0.
    task_factor : (m, m) array
        Omega, nonsingular.
    shape, rate : float
        Parameters of the Gamma prior of ``rho^-q`` where the scales are integrated out. Both 0: Jeffreys, improper.
    row_scale : float or (p,) array, optional
        Given scales rho; then ``shape`` and ``rate`` must be 0. None: integrated out.

    Examples
    --------
    >>> import numpy as np
    >>> prior = MatrixVariate(norm_q=2.0, task_factor=np.array([[1.0, 1.0], [0.0, 2.0]]), row_scale=1.0)
    >>> prior.row_covariance()
    array([[0.5, 0.5],
           [0.5, 2.5]])
    """

    norm_q: float
    task_factor: FloatArray
    shape: float = 0.0
    rate: float = 0.0
    row_scale: float | FloatArray | None = None

    def __post_init__(self) -> None:
        check_task_factor(self.task_factor)
        if self.row_scale is not None and (self.shape > 0.0 or self.rate > 0.0):
            raise ValueError(
                "row_scale is given together with shape or rate, which belong to scales that are integrated out; "
                "pass row_scale, or shape and rate"
            )
        self.row_prior()  # checks the other parameters

    def row_prior(self) -> GeneralizedNormal | Jeffreys:
        """Prior of the whitened rows."""
        if self.row_scale is None:
            return Jeffreys(self.norm_q, self.shape, self.rate)
        return GeneralizedNormal(self.norm_q, self.row_scale)

    def whiten(self, W: FloatArray) -> FloatArray:
        """``W Omega^-1`` (p, m)."""
        n_tasks = len(self.task_factor)
        if np.ndim(W) != 2 or np.shape(W)[1] != n_tasks:
            raise ValueError(
                f"W has shape {np.shape(W)} but task_factor is for {n_tasks} tasks; pass one column per task"
            )
        return np.linalg.solve(np.asarray(self.task_factor, dtype=np.float64).T, np.asarray(W, dtype=np.float64).T).T

    def negative_log_density(self, W: FloatArray) -> float:
        """Minus the log-density of W (p, m), with its normaliser: that of the whitened rows ``+ p ln |det Omega|``."""
        log_abs_det = float(np.linalg.slogdet(self.task_factor).logabsdet)
        return self.row_prior().negative_log_density(self.whiten(W)) + len(W) * log_abs_det

    def em_weights(self, W: FloatArray, floor: float = 0.0) -> FloatArray:
        """Expected ``rho^-q`` (p,) given W, ``(a + m/q) / (b + sum_j |V_ij|^q)``; the floor is on the norms of V.

        It needs scales that are integrated out.
        """
        if self.row_scale is not None:
            raise ValueError("row_scale is given, so that there is no scale to average over; pass row_scale=None")
        return Jeffreys(self.norm_q, self.shape, self.rate).em_weights(self.whiten(W), floor=floor)

    def row_covariance(self) -> FloatArray:
        """Covariance (m, m) of a row with scale 1, ``Gamma(3/q) / Gamma(1/q) Omega^T Omega``."""
        # Gamma(3/q) / Gamma(1/q) written so that q = inf gives its limit 1/3
        variance = math.gamma(1.0 + 3.0 / self.norm_q) / (3.0 * math.gamma(1.0 + 1.0 / self.norm_q))
        factor = np.asarray(self.task_factor, dtype=np.float64)
        return variance * (factor.T @ factor)


def check_task_factor(task_factor: FloatArray) -> None:
    """Refuse a task factor that is not a nonsingular square matrix."""
    shape = np.shape(task_factor)
    if len(shape) != 2 or shape[0] != shape[1]:
        raise ValueError(f"task_factor has shape {shape}; pass a square matrix with one row and column per task")
    if not np.all(np.isfinite(task_factor)):
        raise ValueError("task_factor has entries that are infinite or NaN; pass finite numbers")
    if np.linalg.matrix_rank(task_factor) < shape[0]:
        raise ValueError(
            "task_factor is singular, where the prior has no density; shrink it towards the identity, "
            "such as 0.99 * task_factor + 0.01 * np.eye(m)"
        )
