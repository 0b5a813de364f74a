"""Generalized normal rows with the scale integrated out, under the Jeffreys prior or a Gamma prior near it.

At the default ``shape = rate = 0`` this prior is improper: the marginal of a row is proportional to ``||w||_q^-m``,
integrable neither at 0 nor at infinity, and minus its logarithm is unbounded below at a zero row. It is meant for EM
with a floor on the row norms or with ``shape, rate > 0``, never for sampling.

The entries of row i are ``GN(0, rho_i, q)`` and ``u = rho_i^-q`` is ``Gamma(a, rate b)`` (a = shape, b = rate). With
``S = sum_j |w_ij|^q`` and m entries,

    p(w) = b^a Gamma(a + m/q) / (Gamma(a) [2 Gamma(1 + 1/q)]^m) (b + S)^-(a + m/q),
    u | w ~ Gamma(a + m/q, b + S),   E[u | w] = (a + m/q) / (b + S).

``a = b = 0`` is the Jeffreys prior ``p(rho) = 1/rho`` of Zhang, Yeung and Xu 2010, eq. (8):
``p(w) = Gamma(m/q) / (q [2 Gamma(1 + 1/q)]^m) ||w||_q^-m`` and ``E[u | w] = m / (q S)``, their E-step (section 4.2).
The paper has neither the marginal nor the Gamma prior. Where exactly one of a and b is 0 the prior of u is improper
too; its density is taken as ``u^(a-1) exp(-b u) / q``, without normaliser.

S is never formed: everything is computed from ``ln ||w||_q``.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from bayesmtfs.priors.row_penalty import check_norm_q, log_entry_volume, row_norms, row_sizes
from bayesmtfs.types import FloatArray, IntArray


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

    def expected_power(
        self, rows: FloatArray, power: float, sizes: IntArray | None = None, floor: float = 0.0
    ) -> FloatArray:
        """Expected ``rho^-power`` (R,) given the rows.

        ``Gamma(a + (m + power)/q) / Gamma(a + m/q) (b + S)^(-power/q)``, at q = inf its limit
        ``m / (m + power) ||w||_inf^-power``. ``power = q`` gives :meth:`em_weights`; other powers are what the expected
        log-density at another q needs, where the paper keeps the power at the old q.

        Parameters
        ----------
        rows : (R, k) array
            Current coefficients.
        power : float
            The power, above ``-(m + a q)``.
        sizes : (R,) array of int, optional
            Number of entries of each row that count. None: all k.
        floor : float
            Row norms below this are taken as this.

        Returns
        -------
        (R,) array
            The expectations.
        """
        m = counted_sizes(rows, sizes)
        lowest = float(np.min(m)) + (self.shape * self.norm_q if self.shape > 0.0 else 0.0)
        if not power > -lowest:
            raise ValueError(f"power is {power}; pass a power above {-lowest:g}, below which there is no expectation")
        log_norms = log_row_norms(rows, self.norm_q, floor)
        with np.errstate(over="ignore"):
            if self.norm_q == math.inf:
                return m / (m + power) * np.exp(-power * log_norms)
            shapes = self._posterior_shapes(rows, sizes)
            ratio = power / self.norm_q
            log_moments: FloatArray = gammaln(shapes + ratio) - gammaln(shapes)
            return np.exp(log_moments - ratio * self._log_posterior_rate(log_norms))

    def _posterior_shapes(self, rows: FloatArray, sizes: IntArray | None) -> FloatArray:
        """``a + m/q`` (R,) of the Gamma law of ``rho^-q`` given the rows."""
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
