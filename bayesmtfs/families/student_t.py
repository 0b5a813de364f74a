r"""Student's t: a target whose noise has heavy tails (Lange, Little and Taylor 1989, *JASA* 84:881-896).

``l(y, eta) = (nu + 1) / 2 ln(1 + r^2 / nu)`` with ``r = y - eta``, minus the log-density of a t distribution with nu
degrees of freedom and scale 1 up to a constant; at another scale s of the noise, r is divided by s. A row counts the less
the farther out it is: its slope ``(nu + 1) r / (nu + r^2)`` falls beyond ``|r| = sqrt(nu)``.

So the loss is not convex, and no dual gap certifies a fit: the penalised estimators refuse it, and `Huber` is the
robust loss for them. It is a normal distribution with a hidden precision omega, ``omega ~ Gamma(nu / 2, rate nu / 2)``,
whose expectation given r, ``(nu + 1) / (nu + r^2 / s^2)``, makes it lie below a squared loss with that weight: EM and
MM fit it by weighted least squares, which lower the objective at every step to a minimum that need not be the lowest
one, and the Gibbs sampler draws omega (`bayesmtfs.families.augmentation`).
"""

import math
from typing import Any, cast

import numpy as np
from scipy.special import gammaln

from bayesmtfs.families.augmentation import STUDENT_T, ScaleMixture
from bayesmtfs.families.family import LEARN, Dispersion, Family, best_on_log_scale, name_with
from bayesmtfs.types import FloatArray

DEGREES = 4.0
CONSTANT_STEPS = 200  # of weighted means
CONSTANT_TOL = 1e-14
LOG_BOUNDS = (math.log(0.1), math.log(1e4))  # of degrees that are learned
FAR = 1e8  # residual from which on nu does not matter beside its square


class StudentT(Family):
    """Student's t loss for real targets, robust against outlying ones.

    Parameters
    ----------
    degrees : float or "learn"
        nu, above 0. As a name: ``loss="student_t(3)"``; ``"student_t"`` is 4, and ``"student_t(learn)"`` leaves it to the
        data, one number for all tasks.

    Examples
    --------
    >>> import numpy as np
    >>> family = StudentT(3)
    >>> family.value(np.array([1.0, 1.0]), np.array([0.0, 100.0])).round(3)
    array([ 0.575, 16.184])
    """

    linear_mean = True
    of_residuals = True
    dispersion = (Dispersion("noise"),)
    learnable = "degrees"
    one_for_all = True

    def __init__(self, degrees: float | str = DEGREES) -> None:
        known = degrees == LEARN if isinstance(degrees, str) else 0.0 < degrees < np.inf
        if not known:
            raise ValueError(f"degrees is {degrees!r}; pass a positive number, such as {DEGREES:g}, or 'learn'")
        if degrees == LEARN:
            self.learned, self.name = "degrees", f"student_t({LEARN})"
        else:
            self.name = name_with("student_t", float(degrees), DEGREES)
        self.degrees: Any = DEGREES if degrees == LEARN else float(degrees)

    def __repr__(self) -> str:
        return f"StudentT({LEARN if self.learned else self.degrees!r})"

    def at(self, parameter: Any) -> "StudentT":
        """The loss at other degrees of freedom."""
        return StudentT(parameter)

    def given(self, parameter: Any) -> "StudentT":
        """The loss at known degrees of freedom."""
        known = StudentT()
        known.degrees, known.name = parameter, self.name
        return known

    def best_parameter(self, y: FloatArray, eta: FloatArray, weight: FloatArray) -> float:
        """Degrees of freedom of the largest likelihood at residuals in units of the noise."""
        residual = np.subtract(y, eta)

        def loss(log_degrees: float) -> float:
            return -float(weight @ self.given(math.exp(log_degrees)).log_density(residual, np.zeros(())))

        return best_on_log_scale(loss, LOG_BOUNDS)

    @property
    def curvature_bound(self) -> float:  # type: ignore[override]  # the degrees may be learned
        """The second derivative at 0."""
        return cast(float, (self.degrees + 1.0) / self.degrees)

    @property
    def augmentation(self) -> ScaleMixture:
        """Normal given a gamma precision."""
        return ScaleMixture(STUDENT_T, self.degrees)

    def value(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Loss at eta."""
        size = np.abs(np.subtract(y, eta)) / self.degrees**0.5
        far = size > FAR
        near = np.log1p(np.square(np.where(far, size.dtype.type(0.0), size)))
        return (self.degrees + 1.0) * np.where(far, np.log(np.maximum(size, 1.0)), 0.5 * near)

    def gradient(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Return the derivative in eta."""
        residual = np.subtract(eta, y)
        return residual * self.weights(residual)

    def curvature(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Second derivative in eta, negative beyond ``|r| = sqrt(nu)``."""
        square = self._square(np.subtract(eta, y))
        return (self.degrees + 1.0) / self.degrees * (1.0 - square) / np.square(1.0 + square)

    def weights(self, residual: FloatArray, noise: FloatArray | float = 1.0) -> FloatArray:
        """Expected precision of each target, in units of 1 / noise^2: ``(nu + 1) / (nu + r^2)``."""
        return (self.degrees + 1.0) / self.degrees / (1.0 + self._square(np.divide(residual, noise)))

    def _square(self, residual: FloatArray) -> FloatArray:
        """``r^2 / nu``, not so large that its square overflows."""
        largest = np.finfo(np.asarray(residual).dtype).max ** 0.2
        return np.square(np.clip(residual, -largest, largest)) / self.degrees

    def mean(self, eta: FloatArray) -> FloatArray:
        """Return the middle of the targets, ``eta`` itself; their mean with more than one degree of freedom."""
        return np.array(eta)

    def best_constant(self, y: FloatArray, weight: FloatArray) -> float:
        """Constant eta of a smallest weighted loss: weighted means from the median on, each of which lowers it."""
        order = np.argsort(y, kind="stable")
        middle = order[np.searchsorted(np.cumsum(weight[order]), 0.5 * weight.sum())]
        best = float(y[middle])
        for _ in range(CONSTANT_STEPS):
            rows = weight * self.weights(y - best)
            before, best = best, float(rows @ y / rows.sum())
            if abs(best - before) <= CONSTANT_TOL * abs(best):
                break
        return best

    def log_density(self, y: FloatArray, eta: FloatArray, noise: FloatArray | float = 1.0) -> FloatArray:
        """Log-density of the t distribution of scale ``noise``."""
        nu = self.degrees
        constant = gammaln(0.5 * (nu + 1.0)) - gammaln(0.5 * nu) - 0.5 * np.log(nu * np.pi)
        scaled = np.divide(np.subtract(y, eta), noise)
        return np.asarray(constant - self.value(scaled, np.zeros(())) - np.log(noise))

    def draw(self, rng: np.random.Generator, eta: FloatArray, noise: FloatArray | float = 1.0) -> FloatArray:
        """Draw from the t distribution of scale ``noise``."""
        return np.asarray(eta + noise * rng.standard_t(self.degrees, np.shape(eta)))

    def deviance(self, y: FloatArray, eta: FloatArray, weight: FloatArray) -> float:
        """Minus twice the weighted log-likelihood at the best scale."""
        noise = self.best_noise(y - eta, weight)
        return -2.0 * float(weight @ self.log_density(y, eta, noise))

    def best_noise(self, residual: FloatArray, weight: FloatArray) -> float:
        """Scale of the largest likelihood given residuals, by EM (Lange, Little and Taylor 1989)."""
        square = np.square(residual)
        noise = max(float(np.sqrt(np.average(square, weights=weight))), np.finfo(np.float64).tiny)
        for _ in range(CONSTANT_STEPS):
            before = noise
            # the sum of the weights in the denominator is the faster of the two EM algorithms (Kent, Tyler, Vardi 1994)
            rows = weight * self.weights(residual, noise)
            noise = max(float(np.sqrt(rows @ square / rows.sum())), np.finfo(np.float64).tiny)
            if abs(noise - before) <= 1e-10 * before:
                break
        return noise

    def pymc_dist(self, eta: Any, noise: Any, **options: Any) -> Any:
        """PyMC's Student t distribution."""
        import pymc as pm

        degrees = np.float64(self.degrees) if isinstance(self.degrees, float) else self.degrees
        return pm.StudentT.dist(nu=degrees, mu=eta, sigma=noise, **options)
