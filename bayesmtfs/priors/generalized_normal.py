"""Generalized normal priors of rows: scales at their best values, or integrated out.

Entries of a row share one scale, with tails between Laplace and uniform. Every entry of row i is ``GN(0, rho_i, q)``
with density ``exp(-|w/rho|^q) / (2 rho Gamma(1 + 1/q))`` (Zhang, Yeung and Xu 2010, definition 1 and eq. 3): q = 1 is
Laplace, q = 2 normal with variance ``rho^2 / 2`` (the ARD prior), q = inf uniform on ``[-rho, rho]``. Any q > 0 is allowed.

**Best scales** (`GeneralizedNormal`). With ``rho_i = (q/m)^(1/q) ||w^i||_q`` the prior becomes the non-convex penalty
``m sum_i ln(||w^i||_q + offset)`` of their problem (5), offset added. Its tangent at the current rows is a weighted
mixed norm with the weights ``m / (||w^i||_q + offset)``: majorisation-minimisation solves (5) through those. The paper
keeps m for every row; here a row that lacks entries counts its own.

**Scales integrated out** (`Jeffreys`), under the Jeffreys prior or a Gamma prior near it: ``u = rho_i^-q`` is
``Gamma(a, rate b)`` (a = shape, b = rate). With ``S = sum_j |w_ij|^q`` and m entries,

    p(w) = b^a Gamma(a + m/q) / (Gamma(a) [2 Gamma(1 + 1/q)]^m) (b + S)^-(a + m/q),
    u | w ~ Gamma(a + m/q, b + S),   E[u | w] = (a + m/q) / (b + S).

``a = b = 0`` is the Jeffreys prior ``p(rho) = 1/rho`` of Zhang, Yeung and Xu 2010, eq. (8):
``p(w) = Gamma(m/q) / (q [2 Gamma(1 + 1/q)]^m) ||w||_q^-m`` and ``E[u | w] = m / (q S)``, their E-step (section 4.2).
It is improper, integrable neither at 0 nor at infinity: it is meant for EM with a floor on the row norms or with
``a, b > 0``, never for sampling. With an offset its marginal is ``p(w) ~ (||w||_q + offset)^-m`` instead, finite at 0 with
a kink there, and the weights are its slope in S, ``E[u | w] = m / (q ||w||_q^(q-1) (||w||_q + offset))``. The paper has
neither the marginal nor the Gamma prior nor the offset. Where exactly one of a and b is
0 the prior of u is improper too; its density is taken as ``u^(a-1) exp(-b u) / q``, without normaliser.

S is never formed: everything is computed from ``ln ||w||_q``. In all methods ``sizes`` (R,) is the number of entries of
each row that count, the others being 0; None: all.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from bayesmtfs.priors.row_penalty import check_norm_q, check_not_negative, log_entry_volume, row_norms, row_sizes
from bayesmtfs.types import FloatArray, IntArray


@dataclass(frozen=True)
class GeneralizedNormal:
    """Rows of independent ``GN(0, rho_i, q)`` entries, whose scales follow the rows.

    Parameters
    ----------
    norm_q : float
        Shape q, above 0; ``np.inf`` is the uniform distribution.

    Examples
    --------
    >>> GeneralizedNormal(norm_q=2.0).row_scales(np.array([[3.0, 4.0]]))  # ||w||_2 with q = m
    array([5.])
    """

    norm_q: float

    def __post_init__(self) -> None:
        check_norm_q(self.norm_q, smallest=0.0)

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
        check_not_negative("offset", offset, ", such as 1e-3")
        counts = row_sizes(rows, sizes)
        with np.errstate(divide="ignore"):
            logs = np.log(row_norms(rows, self.norm_q) + offset)
        return float(np.sum(np.where(counts > 0, counts * logs, 0.0)))

    def majoriser_weights(self, rows: FloatArray, offset: float, sizes: IntArray | None = None) -> FloatArray:
        """Weights (R,) of the mixed norm that touches problem (5) at these rows, ``m / (||w^i||_q + offset)``.

        The weight of a zero row without offset is ``inf``: the row can never leave zero.
        """
        check_not_negative("offset", offset, ", such as 1e-3")
        with np.errstate(divide="ignore"):
            return row_sizes(rows, sizes) / (row_norms(rows, self.norm_q) + offset)


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
    offset : float
        Added to the norm of a row; needs ``shape = rate = 0`` where it is not 0.

    Examples
    --------
    >>> np.exp(Jeffreys(norm_q=2.0).log_em_weights(np.array([[3.0, 4.0], [0.3, 0.4]])))  # m / (q S)
    array([0.04, 4.  ])
    """

    norm_q: float
    shape: float = 0.0
    rate: float = 0.0
    offset: float = 0.0

    def __post_init__(self) -> None:
        check_norm_q(self.norm_q, smallest=0.0)
        for name, number in (("shape", self.shape), ("rate", self.rate)):
            check_not_negative(name, number, " (0 for both is Jeffreys)")
        check_not_negative("offset", self.offset, ", such as 0.1")
        if self.offset > 0.0 and (self.shape > 0.0 or self.rate > 0.0):
            raise ValueError(
                f"offset is {self.offset} with shape {self.shape} and rate {self.rate}, and an offset goes with the "
                "Jeffreys prior only; pass offset=0, or shape=0 and rate=0"
            )
        if self.norm_q == math.inf and (self.shape > 0.0 or self.rate > 0.0):
            raise ValueError(
                f"shape is {self.shape} and rate is {self.rate} with norm_q=inf, where rho^-q has no Gamma prior; "
                "pass shape=0 and rate=0, or a finite norm_q"
            )

    def negative_log_density(self, W: FloatArray, sizes: IntArray | None = None) -> float:
        """Minus the log-density of the rows (R, k), scales integrated out; ``-inf`` at a zero row when ``rate`` is 0."""
        counts = row_sizes(W, sizes)
        counted = counts > 0
        m = counts[counted]
        log_norms = self._offset_by(_log_row_norms(np.asarray(W)[counted], self.norm_q))
        log_densities = self._log_scale_prior() - m * log_entry_volume(self.norm_q)
        if self.norm_q == math.inf:
            log_densities += -np.log(m) - m * log_norms
        else:
            posterior_shape = self.shape + m / self.norm_q
            log_densities += gammaln(posterior_shape) - posterior_shape * self._log_posterior_rate(log_norms)
        return -float(np.sum(log_densities))

    def log_em_weights(self, rows: FloatArray, sizes: IntArray | None = None) -> FloatArray:
        """``ln E[rho^-q | rows]`` (R,), ``ln((a + m/q) / (b + S))``: the weights of ``|w|^q`` in the M-step.

        The logarithm is finite where ``|w|^q`` itself over- or underflows. That of a zero row is ``inf`` when ``rate`` is
        0: it never leaves zero again. A row without entries counts one: it is zero whatever its weight.
        """
        if self.norm_q == math.inf:
            raise ValueError("norm_q is inf, where rho^-q has no expectation; pass a finite norm_q, such as 50")
        shapes = self.shape + np.maximum(row_sizes(rows, sizes), 1) / self.norm_q
        log_norms = _log_row_norms(rows, self.norm_q)
        if self.offset > 0.0:
            return np.log(shapes) - (self.norm_q - 1.0) * log_norms - self._offset_by(log_norms)
        return np.log(shapes) - self._log_posterior_rate(log_norms)

    def _offset_by(self, log_norms: FloatArray) -> FloatArray:
        """``ln(||w||_q + offset)`` from ``ln ||w||_q``."""
        return np.logaddexp(log_norms, math.log(self.offset)) if self.offset > 0.0 else log_norms

    def _log_posterior_rate(self, log_norms: FloatArray) -> FloatArray:
        """``ln(b + S)`` from ``ln ||w||_q``."""
        log_rate = math.log(self.rate) if self.rate > 0.0 else -math.inf
        return np.logaddexp(log_rate, self.norm_q * log_norms)

    def _log_scale_prior(self) -> float:
        """Logarithm of the constant in front of ``u^(a-1) exp(-b u)``."""
        if self.shape > 0.0 and self.rate > 0.0:
            return self.shape * math.log(self.rate) - math.lgamma(self.shape)
        return 0.0 if self.norm_q == math.inf else -math.log(self.norm_q)


def _log_row_norms(rows: FloatArray, norm_q: float) -> FloatArray:
    """``ln ||w^i||_q`` (R,) of every row, ``-inf`` for a zero row."""
    with np.errstate(divide="ignore"):
        return np.log(row_norms(rows, norm_q))
