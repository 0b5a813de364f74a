"""The correlation of the tasks: how it is held, shrunk and improved.

The rows of W have covariance proportional to a correlation matrix (m, m)

    R = F F' + diag(own),   own_t = 1 - sum_k F_tk^2 >= SMALLEST_OWN,

so that R has a unit diagonal and no eigenvalue below SMALLEST_OWN, whatever the data: the task step of Zhang, Yeung and
Xu (2010, section 4.3) is unbounded below instead and ends in a singular matrix. With fewer than `FULL_RANK_TASKS` tasks
F has m - 1 columns, which gives every such R; with more it has `FACTORS`.

R is pulled towards the identity by the penalty ``nu/2 (ln|R| + tr R^-1 - m)``: as if nu further rows had been seen,
whose entries have variance 1 and no correlation. It is 0 at R = I.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize
from scipy.special import multigammaln

from bayesmtfs.types import FloatArray

FULL_RANK_TASKS = 50
FACTORS = 10
SMALLEST_OWN = 1e-3
MOST_STEPS = 50
GUESS_SHARES = (1.0, 0.3, 0.1, 0.01)
UNRELATED = 1e4  # further rows from which on R = I
SHRINKAGES = np.geomspace(0.5, UNRELATED, 60)  # numbers of further rows to choose among

ValueAndGradient = Callable[[FloatArray], tuple[float, FloatArray]]


@dataclass(frozen=True, eq=False)
class Relations:
    """A correlation matrix of tasks as common factors and own variances."""

    factors: FloatArray  # (m, r) F, with squared row norms of at most 1 - SMALLEST_OWN

    @cached_property
    def own(self) -> FloatArray:
        """(m,) Variance that each task has for itself."""
        return 1.0 - np.sum(self.factors**2, axis=1)

    @cached_property
    def matrix(self) -> FloatArray:
        """(m, m) R."""
        R = self.factors @ self.factors.T
        np.fill_diagonal(R, 1.0)
        return R

    @cached_property
    def _eigen(self) -> tuple[FloatArray, FloatArray]:
        values, vectors = np.linalg.eigh(self.matrix)
        return np.sqrt(values), vectors

    @cached_property
    def root(self) -> FloatArray:
        """(m, m) Symmetric square root of R."""
        roots, vectors = self._eigen
        return np.asarray((vectors * roots) @ vectors.T)

    @cached_property
    def inverse_root(self) -> FloatArray:
        """(m, m) R^(-1/2)."""
        roots, vectors = self._eigen
        return np.asarray((vectors / roots) @ vectors.T)

    @property
    def log_det(self) -> float:
        """Logarithm of the determinant of R, at most 0."""
        return 2.0 * float(np.sum(np.log(self._eigen[0])))

    def penalty(self, shrinkage: float) -> float:
        """``nu/2 (ln|R| + tr R^-1 - m)``."""
        return 0.5 * shrinkage * (self.log_det + float(np.sum(self._eigen[0] ** -2.0)) - len(self.factors))


def unrelated(n_tasks: int) -> Relations:
    """Return R = I."""
    return Relations(np.zeros((n_tasks, n_factors(n_tasks))))


def n_factors(n_tasks: int) -> int:
    """Number of columns of F."""
    return max(n_tasks - 1, 1) if n_tasks < FULL_RANK_TASKS else FACTORS


def nearest(correlation: FloatArray) -> Relations:
    """Relations near a correlation matrix, by its leading eigenvectors."""
    values, vectors = np.linalg.eigh(correlation)
    r = n_factors(len(correlation))
    smallest = values[0] if r >= len(values) - 1 else float(np.mean(values[: len(values) - r]))
    spread = np.sqrt(np.maximum(values[-r:] - smallest, 0.0))
    return Relations(_inside(vectors[:, -r:] * spread))


def from_rows(cross_products: FloatArray) -> FloatArray:
    """(m, m) Correlation matrix of the rows with these sums of cross-products; 0 for a task without spread."""
    spread = np.sqrt(np.diag(cross_products))
    scale = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 0)
    correlation = cross_products * np.outer(scale, scale)
    np.fill_diagonal(correlation, 1.0)
    return correlation


def choose_shrinkage(correlation: FloatArray, n_rows: int) -> float:
    """Number nu of further rows under which the n rows seen, of correlation S (m, m), are most probable.

    A covariance that is inverse Wishart with ``nu + m + 1`` degrees of freedom and mean I has the posterior mean
    ``(nu I + n S) / (nu + n)``; its marginal likelihood has a closed form.
    """
    m, half = len(correlation), (SHRINKAGES + len(correlation) + 1) / 2
    values = np.maximum(np.linalg.eigvalsh(correlation), 0.0)
    logs = np.sum(np.log(SHRINKAGES[:, np.newaxis] + n_rows * values), axis=1)
    evidence = half * m * np.log(SHRINKAGES) - (half + n_rows / 2) * logs
    evidence += [multigammaln(a + n_rows / 2, m) - multigammaln(a, m) for a in half]
    return float(SHRINKAGES[int(np.argmax(evidence))])


def improve(
    start: Relations,
    value_and_gradient: ValueAndGradient,
    guess: FloatArray | None = None,
    most_steps: int = MOST_STEPS,
) -> Relations:
    """Relations with a smaller value of a function of R than the start, or the start itself.

    The gradient of the function is taken as if R were not symmetric. A guess (m, m) is a correlation matrix to begin from
    too: at R = I no step in F is downhill.
    """
    beginnings = [start]
    if guess is not None:
        identity = np.eye(len(guess))
        beginnings += [nearest(share * guess + (1.0 - share) * identity) for share in GUESS_SHARES]
    values = [value_and_gradient(relations.matrix)[0] for relations in beginnings]
    begin = beginnings[int(np.argmin(values))]
    shape = begin.factors.shape

    def objective(flat: FloatArray) -> tuple[float, FloatArray]:
        free = flat.reshape(shape)
        relations = Relations(_bounded(free))
        value, gradient = value_and_gradient(relations.matrix)
        gradient = gradient - np.diag(np.diag(gradient))  # the diagonal of R is fixed
        return value, _bounded_gradient(free, (gradient + gradient.T) @ relations.factors).ravel()

    found = minimize(
        objective,
        _unbounded(begin.factors).ravel(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": most_steps, "ftol": 1e-14, "gtol": 1e-9},
    )
    end = Relations(_bounded(found.x.reshape(shape)))
    return end if value_and_gradient(end.matrix)[0] < values[0] else start


def quadratic_objective(log_det: float, linear: FloatArray | None, inverse: FloatArray) -> ValueAndGradient:
    """``log_det ln|R| + tr(R linear) + tr(R^-1 inverse)`` and its gradient."""

    def value_and_gradient(R: FloatArray) -> tuple[float, FloatArray]:
        factor = cho_factor(R, lower=True)
        R_inverse = cho_solve(factor, np.eye(len(R)))
        solved = R_inverse @ inverse
        value = log_det * 2.0 * float(np.log(np.diag(factor[0])).sum()) + float(np.trace(solved))
        gradient = log_det * R_inverse - solved @ R_inverse
        if linear is not None:
            value += float(np.sum(R * linear))
            gradient = gradient + linear
        return value, gradient

    return value_and_gradient


def _bounded(free: FloatArray) -> FloatArray:
    """Carry any matrix to one with squared row norms below ``1 - SMALLEST_OWN``."""
    return np.sqrt(1.0 - SMALLEST_OWN) * free / np.sqrt(1.0 + np.sum(free**2, axis=1, keepdims=True))


def _unbounded(factors: FloatArray) -> FloatArray:
    """Undo `_bounded`."""
    unit = factors / np.sqrt(1.0 - SMALLEST_OWN)
    return unit / np.sqrt(1.0 - np.minimum(np.sum(unit**2, axis=1, keepdims=True), 1.0 - 1e-9))


def _bounded_gradient(free: FloatArray, gradient: FloatArray) -> FloatArray:
    """Carry a gradient in the bounded matrix to one in the free one."""
    size = 1.0 + np.sum(free**2, axis=1, keepdims=True)
    along = np.sum(free * gradient, axis=1, keepdims=True)
    return np.sqrt((1.0 - SMALLEST_OWN) / size) * (gradient - free * along / size)


def _inside(factors: FloatArray) -> FloatArray:
    norms = np.sqrt(np.sum(factors**2, axis=1, keepdims=True))
    most = np.sqrt(1.0 - 2.0 * SMALLEST_OWN)
    return factors * np.minimum(1.0, most / np.maximum(norms, most))
