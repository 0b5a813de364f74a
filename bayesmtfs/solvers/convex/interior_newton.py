"""Linear algebra of an interior-point step: one system per task, and one that couples the rows.

The step in the dual variables x (one per observation) solves, with a multiplier b per task for the intercept,

    (diag(E) + X H X') x + b = f,      sum of x over each task = 0,

where X' x collects the scores of all rows over all tasks and H is diagonal plus one outer product per row
(`interior_rows.Response`). Without the outer products the tasks fall apart into ``A_t = diag(E) + X_t diag(h_t) X_t'``;
the outer products come back through the Woodbury identity, as a system S with one unknown per row.

Near the solution E runs over many orders of magnitude: it vanishes for observations at a kink of the loss and grows
without bound for all others. The normal equations, in features alone, then lose all digits. `FeatureSystem` eliminates
first the observations with large E, then the intercept, then the features, and the few observations at a kink last;
`ObservationSystem` factorises A_t as it stands, which is cheaper where there are more features than observations.
"""

from typing import Protocol

import numpy as np
from numba import njit
from scipy.linalg.blas import dsymm, dsymv, dsyrk, dtrsm, dtrsv
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs

from bayesmtfs.protocols import FloatArray, IntArray
from bayesmtfs.solvers.convex.interior_columns import Columns
from bayesmtfs.solvers.convex.interior_rows import Response

SOFT = 1e4  # x' diag(h) x / E above which an observation is kept to the end
FEW_FEATURES = 0.8  # features per observation up to which they are eliminated
REFINEMENTS = 6
MANY_OBSERVATIONS = 4000  # more than these are not put into one matrix for the sake of accuracy
FIRST_LIFT, LAST_LIFT = 1e-14, 1e-6  # growth of a diagonal that rounding has spoilt


class BreakdownError(ArithmeticError):
    """Rounding errors have caught up with the method."""


class TaskSystem(Protocol):
    """The system of one task, solved in two halves around the system of the rows."""

    def coupling(self) -> FloatArray:
        """Lower triangle of ``diag(u) X' P X diag(u)``; P solves the system of the task, u is its part of the rows."""

    def press(self, f: FloatArray) -> FloatArray:
        """``diag(u) X' P f`` for a right hand side f, which is remembered."""

    def release(self, forces: FloatArray) -> FloatArray:
        """``P (f - X diag(u) forces)``."""


class FeatureSystem:
    """A task with fewer features than observations.

    With r^2 = h and weights 1/E, X centred by them: ``K = I + diag(r) X' E^-1 X diag(r)`` without the soft
    observations, those with small E. They follow as ``G = diag(E) + 1 1' / sum(1/E) + X diag(r) K^-1 diag(r) X'``.
    """

    def __init__(
        self, X: FloatArray, E: FloatArray, h: FloatArray, u: FloatArray, size: FloatArray, centre: bool
    ) -> None:
        self.X, self.root = X, np.sqrt(h)
        self.ratio = u / self.root
        self.soft = _soft(size, E)
        self.inverse = 1.0 / E
        self.inverse[self.soft] = 0.0
        self.total = float(self.inverse.sum()) if centre else np.inf
        self.means = self.inverse @ X / self.total
        weighted = np.empty_like(X)
        _weigh(X, self.means, np.sqrt(self.inverse), self.root, weighted)
        lower = _cholesky(_gram(weighted), 1.0)
        self.K_inverse: FloatArray = dpotri(lower, lower=1, overwrite_c=1)[0]
        if self.soft.size:
            self._eliminate_soft(E)

    def _eliminate_soft(self, E: FloatArray) -> None:
        scaled = (self.X[self.soft] - self.means) * self.root
        product = dsymm(1.0, self.K_inverse, scaled.T, lower=1)
        self.lower = _cholesky(np.asfortranarray(scaled @ product) + 1.0 / self.total, E[self.soft])
        self.half: FloatArray = dtrsm(1.0, self.lower, product.T, lower=1)
        self.K_inverse = dsyrk(-1.0, self.half, beta=1.0, c=self.K_inverse, trans=1, lower=1, overwrite_c=1)

    def coupling(self) -> FloatArray:
        """``diag(u/r) (I - K^-1) diag(u/r)``, soft observations included."""
        result = self.K_inverse * self.ratio
        result *= -self.ratio[:, np.newaxis]
        _add_to_diagonal(result, self.ratio**2)
        return result

    def press(self, f: FloatArray) -> FloatArray:
        """``diag(u) X' P f``."""
        self.f = f - self.inverse @ f / self.total
        self.known = self.root * ((self.inverse * self.f) @ self.X)
        answer = self._answer(self.known)
        if self.soft.size:
            self.f_soft = dtrsv(self.lower, self.f[self.soft], lower=1)
            answer += self.f_soft @ self.half
        return self.ratio * answer

    def release(self, forces: FloatArray) -> FloatArray:
        """``P (f - X diag(u) forces)``."""
        known = self.known + self.ratio * forces
        answer = self._answer(known)
        if not self.soft.size:
            return self.inverse * (self.f - self._predict(self.root * answer))
        answer += self.f_soft @ self.half
        x_soft = dtrsv(self.lower, self.f_soft - self.half @ known, lower=1, trans=1)
        x = self.inverse * (self.f - self._predict(self.root * answer) - x_soft.sum() / self.total)
        x[self.soft] = x_soft
        return x

    def _answer(self, known: FloatArray) -> FloatArray:
        product: FloatArray = dsymv(1.0, self.K_inverse, known, lower=1)
        return product

    def _predict(self, w: FloatArray) -> FloatArray:
        prediction: FloatArray = self.X @ w - self.means @ w
        return prediction


class ObservationSystem:
    """A task with about as many features as observations, or more."""

    def __init__(self, X: FloatArray, E: FloatArray, h: FloatArray, u: FloatArray, centre: bool) -> None:
        self.X, self.u = X, u
        self.lower = _cholesky(_gram((X * np.sqrt(h)).T), E)
        self.constant = self._solve(np.ones(len(E)))
        self.total = float(self.constant.sum()) if centre else np.inf

    def coupling(self) -> FloatArray:
        """``diag(u) X' P X diag(u)``."""
        scaled = self.X * self.u
        product = dsyrk(1.0, dtrsm(1.0, self.lower, scaled, lower=1), trans=1, lower=1)
        column = self.constant @ scaled
        return product - np.outer(column, column / self.total)

    def press(self, f: FloatArray) -> FloatArray:
        """``diag(u) X' P f``."""
        self.f = f
        return self.u * (self._project(f) @ self.X)

    def release(self, forces: FloatArray) -> FloatArray:
        """``P (f - X diag(u) forces)``."""
        return self._project(self.f - self.X @ (self.u * forces))

    def _project(self, f: FloatArray) -> FloatArray:
        x = self._solve(f)
        return x - self.constant * (x.sum() / self.total)

    def _solve(self, f: FloatArray) -> FloatArray:
        x: FloatArray = dpotrs(self.lower, f, lower=1)[0]
        return x


class TaskByTask:
    """The whole system, from those of the tasks and one for the rows that couple them."""

    def __init__(
        self, columns: Columns, E: FloatArray, own: FloatArray, shared: FloatArray, weight: FloatArray
    ) -> None:
        self.columns, self.coupled = columns, bool(shared.any())
        self.tasks: list[TaskSystem] = []
        sizes, centre = columns.quadratic_forms(own), columns.fit_intercept
        coupling = np.zeros((len(columns.features),) * 2, order="F")
        for t, (X, (start, stop)) in enumerate(zip(columns.designs, columns.spans, strict=True)):
            parts = X, E[start:stop], own[:, t], shared[:, t]
            few = X.shape[1] < FEW_FEATURES * X.shape[0]
            task = FeatureSystem(*parts, sizes[start:stop], centre) if few else ObservationSystem(*parts, centre)
            self.tasks.append(task)
            if self.coupled:
                coupling += task.coupling()
        if self.coupled:
            self.lower = _cholesky(columns.sum_to_rows(coupling), 1.0 / weight)

    def solve(self, f: FloatArray) -> FloatArray:
        """(N,) Solution, without refinement."""
        columns = self.columns
        pressed = [task.press(f[start:stop]) for task, (start, stop) in zip(self.tasks, columns.spans, strict=True)]
        forces = np.zeros(len(columns.features))
        if self.coupled:
            rows, _ = dpotrs(self.lower, columns.sum_to_row(np.sum(pressed, axis=0)), lower=1)
            forces = columns.spread(rows)
        return np.concatenate([task.release(forces) for task in self.tasks])


class AllAtOnce:
    """The whole system as one matrix (N, N): more accurate, and cheaper where there are more rows than observations."""

    def __init__(
        self, columns: Columns, E: FloatArray, own: FloatArray, shared: FloatArray, weight: FloatArray
    ) -> None:
        spread = np.concatenate([X * shared[:, t] for t, X in enumerate(columns.designs)])
        matrix = _gram((columns.sum_columns_to_rows(spread) * np.sqrt(weight)).T)
        for t, (X, (start, stop)) in enumerate(zip(columns.designs, columns.spans, strict=True)):
            matrix[start:stop, start:stop] += _gram((X * np.sqrt(own[:, t])).T)
        self.lower = _cholesky(matrix, E)
        self.constants = np.zeros((len(E), columns.n_tasks * columns.fit_intercept))
        for t in range(self.constants.shape[1]):
            self.constants[slice(*columns.spans[t]), t] = 1.0
        self.solved_constants = self._solve(self.constants)

    def solve(self, f: FloatArray) -> FloatArray:
        """(N,) Solution, without refinement."""
        x = self._solve(f)
        intercepts = np.linalg.solve(self.constants.T @ self.solved_constants, self.constants.T @ x)
        return x - self.solved_constants @ intercepts

    def _solve(self, f: FloatArray) -> FloatArray:
        x: FloatArray = dpotrs(self.lower, f, lower=1)[0]
        return x


class NewtonSystem:
    """The factorised system of one interior-point step; it is solved for several right hand sides.

    Parameters
    ----------
    columns : features of the working set
    E : (N,) curvature of each observation
    response : how coefficients answer to scores
    accuracy : residual of a solution, relative to the right hand side, that needs no refinement
    """

    def __init__(self, columns: Columns, E: FloatArray, response: Response, accuracy: float) -> None:
        self.columns, self.E, self.weight, self.accuracy = columns, E, response.weight, accuracy
        own, self.shared = columns.features_of(response.own), columns.features_of(response.shared)
        self.own = np.where(own > 0.0, own, 1.0)  # 0 for features that a task does not have: their columns are 0
        all_at_once = self.shared.any() and columns.blocks.n_rows > len(E)
        self._factorise(AllAtOnce if all_at_once else TaskByTask)

    def _factorise(self, kind: type[AllAtOnce] | type[TaskByTask]) -> None:
        self.factorised = kind(self.columns, self.E, self.own, self.shared, self.weight)

    def solve(self, f: FloatArray) -> FloatArray:
        """(N,) Change x of the dual variables for a right hand side f."""
        x, accurate = self._refined(f)
        if not accurate and isinstance(self.factorised, TaskByTask) and len(f) <= MANY_OBSERVATIONS:
            self._factorise(AllAtOnce)
            x, _ = self._refined(f)
        return x

    def _refined(self, f: FloatArray) -> tuple[FloatArray, bool]:
        """Solution, refined as long as that helps, and whether it is accurate."""
        x = self.factorised.solve(f)
        allowed = self.accuracy * float(np.max(np.abs(f)))
        residual = self._residual(f, x)
        size = float(np.max(np.abs(residual)))
        for _ in range(REFINEMENTS):
            if size <= allowed:
                break
            refined = x + self.factorised.solve(residual)
            residual = self._residual(f, refined)
            left = float(np.max(np.abs(residual)))
            if not left < size:
                break
            x, size = refined, left
        return x, size <= allowed

    def _residual(self, f: FloatArray, x: FloatArray) -> FloatArray:
        """What is missing; the intercepts are whatever makes it sum to 0 over a task."""
        columns = self.columns
        scores = columns.adjoint(x)
        radial = columns.spread(self.weight * columns.sum_to_row(np.sum(self.shared * scores, axis=1)))
        residual = f - self.E * x - columns.predictor(self.own * scores + self.shared * radial[:, np.newaxis])
        return columns.without_means(residual) if columns.fit_intercept else residual


def _soft(size: FloatArray, E: FloatArray) -> IntArray:
    """Observations to be kept to the end: all with small E, but never all of a task."""
    soft = size > SOFT * E
    if soft.all():
        soft[np.argmax(E / size)] = False
    return np.flatnonzero(soft)


@njit(cache=True, error_model="numpy")
def _weigh(X: FloatArray, means: FloatArray, left: FloatArray, right: FloatArray, result: FloatArray) -> None:
    """``diag(left) (X - means) diag(right)``, column by column: X is in Fortran order."""
    for j in range(X.shape[1]):
        for i in range(X.shape[0]):
            result[i, j] = left[i] * (X[i, j] - means[j]) * right[j]


def _gram(Y: FloatArray) -> FloatArray:
    """Lower triangle of ``Y' Y``, in Fortran order."""
    product: FloatArray = dsyrk(1.0, Y, trans=1, lower=1) if Y.flags.f_contiguous else dsyrk(1.0, Y.T, lower=1)
    return product


def _cholesky(matrix: FloatArray, diagonal: FloatArray | float) -> FloatArray:
    """Lower Cholesky factor of a matrix (its lower triangle) plus a diagonal.

    Where rounding has made it indefinite the diagonal grows a little: refinement makes up for that.
    """
    _add_to_diagonal(matrix, diagonal)
    lower: FloatArray
    lower, info = dpotrf(matrix, lower=1, clean=0)
    lift = FIRST_LIFT
    while info != 0 and lift < LAST_LIFT:
        entries = np.diagonal(matrix)
        lifted = matrix + np.diag(lift * np.abs(entries))
        lower, info = dpotrf(np.asfortranarray(lifted), lower=1, clean=0)
        lift *= 10.0
    if info != 0 or not np.isfinite(lower[-1, -1]):
        raise BreakdownError(f"a matrix of size {len(matrix)} is not positive definite")
    return lower


def _add_to_diagonal(matrix: FloatArray, diagonal: FloatArray | float) -> None:
    matrix.ravel(order="K")[:: len(matrix) + 1] += diagonal
