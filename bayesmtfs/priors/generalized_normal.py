"""Generalized normal priors of rows: with given scales, with scales integrated out, with relations between tasks.

**Given scales** (`GeneralizedNormal`). Entries of a row share one scale, with tails between Laplace and uniform.
Every entry of row i is ``GN(0, rho_i, q)`` with density ``exp(-|w/rho|^q) / (2 rho Gamma(1 + 1/q))`` (Zhang, Yeung and
Xu 2010, definition 1 and eq. 3): q = 1 is Laplace, q = 2 normal with variance ``rho^2 / 2`` (the ARD prior), q = inf
uniform on ``[-rho, rho]``. Any q > 0 is allowed.

With the scales set to their best values ``rho_i = (q/m)^(1/q) ||w^i||_q`` the prior becomes the non-convex penalty
``m sum_i ln(||w^i||_q + offset)`` of their problem (5), offset added. Its tangent at the current rows is a weighted
mixed norm with the weights ``m / (||w^i||_q + offset)``: majorisation-minimisation solves (5) through those. The paper
keeps m for every row; here a row that lacks entries counts its own.

**Scales integrated out** (`Jeffreys`), under the Jeffreys prior or a Gamma prior near it. At the default
``shape = rate = 0`` this prior is improper: the marginal of a row is proportional to ``||w||_q^-m``, integrable neither
at 0 nor at infinity, and minus its logarithm is unbounded below at a zero row. It is meant for EM with a floor on the
row norms or with ``shape, rate > 0``, never for sampling.

The entries of row i are ``GN(0, rho_i, q)`` and ``u = rho_i^-q`` is ``Gamma(a, rate b)`` (a = shape, b = rate). With
``S = sum_j |w_ij|^q`` and m entries,

    p(w) = b^a Gamma(a + m/q) / (Gamma(a) [2 Gamma(1 + 1/q)]^m) (b + S)^-(a + m/q),
    u | w ~ Gamma(a + m/q, b + S),   E[u | w] = (a + m/q) / (b + S).

``a = b = 0`` is the Jeffreys prior ``p(rho) = 1/rho`` of Zhang, Yeung and Xu 2010, eq. (8):
``p(w) = Gamma(m/q) / (q [2 Gamma(1 + 1/q)]^m) ||w||_q^-m`` and ``E[u | w] = m / (q S)``, their E-step (section 4.2).
The paper has neither the marginal nor the Gamma prior. Where exactly one of a and b is 0 the prior of u is improper
too; its density is taken as ``u^(a-1) exp(-b u) / q``, without normaliser.

S is never formed: everything is computed from ``ln ||w||_q``.

**Related tasks** (`MatrixVariate`): rows with their own scale whose entries are related across tasks.
``W = diag(rho) Z Omega`` with independent ``GN(0, 1, q)`` entries in Z and a nonsingular task factor Omega (m, m): the
prior (10) of Zhang, Yeung and Xu 2010. With the whitened rows ``V = W Omega^-1``,

    p(W) = prod_i [2 Gamma(1 + 1/q)]^-m rho_i^-m exp(-sum_j |V_ij / rho_i|^q) / |det Omega|^p.

The scales are given, or integrated out under ``rho_i^-q ~ Gamma(shape, rate)``; with the default ``shape = rate = 0``
(Jeffreys) the prior is improper.

Corrections to the paper: a row has covariance ``rho^2 Gamma(3/q) / Gamma(1/q) Omega^T Omega`` (at q = 2
``rho^2 / 2 Omega^T Omega``), not proportional to ``Omega Omega^T`` as printed below definition 3; and the density needs
``ln |det Omega|``, since the determinant may be negative. ``(rho, Omega)`` and ``(c rho, Omega / c)`` give the same
distribution, and at q = 2 only ``Omega^T Omega`` is identified.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from bayesmtfs.priors.row_penalty import check_norm_q, log_entry_volume, per_row, row_norms, row_sizes
from bayesmtfs.types import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class GeneralizedNormal:
    """Independent ``GN(0, row_scale_i, q)`` entries, row by row.

    Parameters
    ----------
    norm_q : float
        Shape q, above 0; ``np.inf`` is the uniform distribution.
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


# ---------------------------------------------------------------------- scales integrated out


@dataclass(frozen=True)
class Jeffreys:
    """Marginal of generalized normal rows whose scale has the Jeffreys prior (improper) or ``rho^-q ~ Gamma(a, b)``.

    Parameters
    ----------
    norm_q : float
        Shape q of the entries, above 0. ``np.inf`` (uniform entries) needs ``shape = rate = 0``.
    shape, rate : float
        Parameters a and b of the Gamma prior of ``rho^-q``, at least 0. Both 0: Jeffreys. ``rate`` bounds the weight of
        a zero row by ``(a + m/q) / b``.

    Examples
    --------
    >>> import numpy as np
    >>> Jeffreys(norm_q=2.0).em_weights(np.array([[3.0, 4.0], [0.3, 0.4]]))  # m / (q S)
    array([0.04, 4.  ])
    """

    norm_q: float
    shape: float = 0.0
    rate: float = 0.0

    def __post_init__(self) -> None:
        check_norm_q(self.norm_q, smallest=0.0)
        for name, number in (("shape", self.shape), ("rate", self.rate)):
            if not 0.0 <= number < math.inf:
                raise ValueError(f"{name} is {number}; pass a finite number of at least 0 (0 for both is Jeffreys)")
        if self.norm_q == math.inf and (self.shape > 0.0 or self.rate > 0.0):
            raise ValueError(
                f"shape is {self.shape} and rate is {self.rate} with norm_q=inf, where rho^-q has no Gamma prior; "
                "pass shape=0 and rate=0, or a finite norm_q"
            )

    def negative_log_density(self, W: FloatArray, sizes: IntArray | None = None) -> float:
        """Minus the log-density of the rows, scales integrated out; ``-inf`` at a zero row when ``rate`` is 0.

        Parameters
        ----------
        W : (R, k) array
            Coefficients, one row per feature or group.
        sizes : (R,) array of int, optional
            Number of entries of each row that count; the others must be 0. None: all k. Rows without entries count 0.

        Returns
        -------
        float
            Sum over the rows.
        """
        counts = row_sizes(W, sizes)
        counted = counts > 0
        m = counts[counted]
        log_norms = log_row_norms(np.asarray(W)[counted], self.norm_q)
        log_densities = self._log_scale_prior() - m * log_entry_volume(self.norm_q)
        if self.norm_q == math.inf:
            log_densities += -np.log(m) - m * log_norms
        else:
            posterior_shape = self.shape + m / self.norm_q
            log_densities += gammaln(posterior_shape) - posterior_shape * self._log_posterior_rate(log_norms)
        return -float(np.sum(log_densities))

    def em_weights(self, rows: FloatArray, sizes: IntArray | None = None, floor: float = 0.0) -> FloatArray:
        """Expected ``rho^-q`` (R,) given the rows, ``(a + m/q) / (b + S)``: the weights of ``|w|^q`` in the M-step.

        The weight of a zero row is ``inf`` when ``rate`` and ``floor`` are 0: it never leaves zero again.

        Parameters
        ----------
        rows : (R, k) array
            Current coefficients.
        sizes : (R,) array of int, optional
            Number of entries of each row that count. None: all k.
        floor : float
            Row norms below this are taken as this, so that no weight exceeds ``(a + m/q) / (b + floor^q)``.

        Returns
        -------
        (R,) array
            The weights; see :meth:`log_em_weights` where they may leave the range of floating point numbers.
        """
        with np.errstate(over="ignore"):
            return np.exp(self.log_em_weights(rows, sizes, floor))

    def log_em_weights(self, rows: FloatArray, sizes: IntArray | None = None, floor: float = 0.0) -> FloatArray:
        """Logarithm of :meth:`em_weights`, finite where ``|w|^q`` itself over- or underflows."""
        if self.norm_q == math.inf:
            raise ValueError("norm_q is inf, where rho^-q has no expectation; pass a finite norm_q, such as 50")
        log_norms = log_row_norms(rows, self.norm_q, floor)
        return np.log(self._posterior_shapes(rows, sizes)) - self._log_posterior_rate(log_norms)

    def _posterior_shapes(self, rows: FloatArray, sizes: IntArray | None) -> FloatArray:
        """``a + m/q`` (R,) of the Gamma distribution of ``rho^-q`` given the rows."""
        return self.shape + counted_sizes(rows, sizes) / self.norm_q

    def _log_posterior_rate(self, log_norms: FloatArray) -> FloatArray:
        """``ln(b + S)`` from ``ln ||w||_q``."""
        log_rate = math.log(self.rate) if self.rate > 0.0 else -math.inf
        return np.logaddexp(log_rate, self.norm_q * log_norms)

    def _log_scale_prior(self) -> float:
        """Logarithm of the constant in front of ``u^(a-1) exp(-b u)``."""
        if self.shape > 0.0 and self.rate > 0.0:
            return self.shape * math.log(self.rate) - math.lgamma(self.shape)
        return 0.0 if self.norm_q == math.inf else -math.log(self.norm_q)


def counted_sizes(rows: FloatArray, sizes: IntArray | None) -> IntArray:
    """Entries per row that count, 1 where there are none: such a row is zero whatever its weight."""
    return np.maximum(row_sizes(rows, sizes), 1)


def log_row_norms(rows: FloatArray, norm_q: float, floor: float = 0.0) -> FloatArray:
    """``ln max(||w^i||_q, floor)`` (R,) of every row, ``-inf`` for a zero row without floor."""
    if not 0.0 <= floor < math.inf:
        raise ValueError(f"floor is {floor}; pass a finite number of at least 0, such as 1e-8")
    with np.errstate(divide="ignore"):
        return np.log(np.maximum(row_norms(rows, norm_q), floor))


# ---------------------------------------------------------------------- related tasks


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
