"""Systems of single tasks in an interior-point step, which `interior_newton` joins to the whole.

Without the outer products that couple the rows, the system of an interior-point step falls apart into

    (diag(E) + X diag(h) X') x + b = f,      sum of x = 0,

one for each task (h, E and X those of the task). Near the solution E runs over many orders of magnitude: it vanishes for
observations at a kink of the loss and grows without bound for all others. The normal equations, in features alone, then
lose all digits. `FeatureSystems` eliminates first the observations with large E, then the intercept, then the features,
and the few observations at a kink last, for all tasks together as far as that goes; `ObservationSystem` factorises the
matrix of one task as it stands, which is cheaper where there are about as many features as observations, or more.

Systems are solved in two halves around the system of the rows: `press` remembers a right hand side and says how it
presses on the rows, `release` fills in the solution once the forces between the tasks are known.
"""

from typing import NamedTuple, Protocol

import numpy as np
from numba import njit
from scipy.linalg.blas import dsymm, dsyrk, dtrsm, dtrsv
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs

from bayesmtfs.convex.interior_columns import Columns
from bayesmtfs.types import FloatArray, IntArray

SOFT = 1e4  # x' diag(h) x / E above which an observation is kept to the end
FEW_FEATURES = 0.8  # features per observation up to which they are eliminated
FIRST_LIFT, LAST_LIFT = 1e-14, 1e-6  # growth of a diagonal that rounding has spoilt


class BreakdownError(ArithmeticError):
    """Rounding errors have caught up with the method."""


class TaskSystem(Protocol):
    """Systems of one or more tasks."""

    def press(self, f: FloatArray) -> FloatArray:
        """(k,) Sum over the tasks of ``diag(u) X' P f``; P solves the system of a task, u is its part of the rows."""

    def release(self, forces: FloatArray, x: FloatArray) -> None:
        """Write ``P (f - X diag(u) forces)`` into x at the observations of the tasks."""


class SoftPart(NamedTuple):
    """Observations of one task that are kept to the end, and the factor of their system G."""

    task: int
    place: IntArray  # among all observations
    lower: FloatArray  # Cholesky factor of G
    half: FloatArray  # (s, k) its inverse times X diag(r) K^-1


class FeatureSystems:
    """Tasks with fewer features than observations.

    With r^2 = h and weights 1/E, X centred by them: ``K = I + diag(r) X' E^-1 X diag(r)`` without the soft
    observations, those with small E. They follow as ``G = diag(E) + 1 1' / sum(1/E) + X diag(r) K^-1 diag(r) X'``.
    Arrays over features have a line per task, (m, k); lines of tasks that belong to other systems stay 0.

    Parameters
    ----------
    columns : features of the working set
    E : (N,) curvature of each observation
    own, shared : (k, m) h and u of every feature and task
    tasks : numbers of the tasks
    coupling : (k, k) lower triangle, in Fortran order, to which the sum of ``diag(u) X' P X diag(u)`` is added
    """

    def __init__(
        self,
        columns: Columns,
        E: FloatArray,
        own: FloatArray,
        shared: FloatArray,
        tasks: IntArray,
        coupling: FloatArray,
    ) -> None:
        self.columns = columns
        self.tasks: IntArray | slice = tasks if len(tasks) < columns.n_tasks else slice(None)
        self.root = np.sqrt(own.T, order="C")
        self.ratio = np.divide(shared.T, self.root, order="C")
        self.inverse = self._inverse(E, columns.quadratic_forms(own), tasks)
        self.total = np.full(columns.n_tasks, np.inf)
        if columns.fit_intercept:
            self.total[self.tasks] = columns.task_sums(self.inverse)[self.tasks]
        self.means = np.divide(columns.adjoint(self.inverse).T, self.total[:, np.newaxis], order="C")
        self.K_inverse = np.empty((len(tasks), *coupling.shape))
        self.soft: list[SoftPart] = []
        weight, is_soft = np.sqrt(self.inverse), self.inverse == 0.0
        for place, t in enumerate(tasks.tolist()):
            K_inverse = self._factorised(t, weight)
            if is_soft[slice(*columns.spans[t])].any():
                K_inverse = self._with_soft(t, K_inverse, E)
            _unfold(K_inverse.T, self.ratio[t], self.K_inverse[place], coupling.T)

    def _inverse(self, E: FloatArray, size: FloatArray, tasks: IntArray) -> FloatArray:
        """(N,) 1/E, but 0 for soft observations: all with small E, though never all of a task."""
        columns = self.columns
        inverse = np.where(size > SOFT * E, 0.0, 1.0 / E)
        for t in tasks[columns.task_sums(inverse)[tasks] == 0.0].tolist():
            start, stop = columns.spans[t]
            hardest = start + int(np.argmax(E[start:stop] / size[start:stop]))
            inverse[hardest] = 1.0 / E[hardest]
        if len(tasks) < columns.n_tasks:
            inverse[~np.isin(columns.task, tasks)] = 0.0
        return inverse

    def _factorised(self, t: int, weight: FloatArray) -> FloatArray:
        """Lower triangle of ``K^-1``, without the soft observations."""
        X, (start, stop) = self.columns.designs[t], self.columns.spans[t]
        weighted = np.empty_like(X)
        _weigh(X.T, self.means[t], weight[start:stop], self.root[t], weighted.T)
        K_inverse: FloatArray = dpotri(cholesky(gram(weighted), 1.0), lower=1, overwrite_c=1)[0]
        return K_inverse

    def _with_soft(self, t: int, K_inverse: FloatArray, E: FloatArray) -> FloatArray:
        """Lower triangle of ``K^-1`` with the soft observations, which are eliminated."""
        start, stop = self.columns.spans[t]
        soft = np.flatnonzero(self.inverse[start:stop] == 0.0)
        scaled = (self.columns.designs[t][soft] - self.means[t]) * self.root[t]
        product = dsymm(1.0, K_inverse, scaled.T, lower=1)
        lower = cholesky(np.asfortranarray(scaled @ product) + 1.0 / self.total[t], E[start + soft])
        half: FloatArray = dtrsm(1.0, lower, product.T, lower=1)
        self.soft.append(SoftPart(t, start + soft, lower, half))
        updated: FloatArray = dsyrk(-1.0, half, beta=1.0, c=K_inverse, trans=1, lower=1, overwrite_c=1)
        return updated

    def press(self, f: FloatArray) -> FloatArray:
        """(k,) Sum of ``diag(u) X' P f``."""
        columns = self.columns
        self.f, weighted = _centred(f, self.inverse, self.total, columns.offsets)
        self.known = self.root * columns.adjoint(weighted).T
        self.f_soft = [dtrsv(part.lower, self.f[part.place], lower=1) for part in self.soft]
        pressed: FloatArray = (self.ratio * self._answer(self.known)).sum(axis=0)
        return pressed

    def release(self, forces: FloatArray, x: FloatArray) -> None:
        """``P (f - X diag(u) forces)``."""
        columns, known = self.columns, self.known + self.ratio * forces
        scaled = self.root * self._answer(known)
        constant = np.vecdot(self.means, scaled)
        x_soft = [
            dtrsv(part.lower, f - part.half @ known[part.task], lower=1, trans=1)
            for part, f in zip(self.soft, self.f_soft, strict=True)
        ]
        for part, values in zip(self.soft, x_soft, strict=True):
            constant[part.task] -= values.sum() / self.total[part.task]
        _fill(x, self.inverse, self.f, columns.predictor(scaled.T), constant, columns.offsets)
        for part, values in zip(self.soft, x_soft, strict=True):
            x[part.place] = values

    def _answer(self, known: FloatArray) -> FloatArray:
        """(m, k) ``K^-1 known``, and what the soft observations add."""
        answer = np.zeros(known.shape)
        answer[self.tasks] = (self.K_inverse @ known[self.tasks, :, np.newaxis])[:, :, 0]
        for part, f in zip(self.soft, self.f_soft, strict=True):
            answer[part.task] += f @ part.half
        return answer


class ObservationSystem:
    """A task with about as many features as observations, or more.

    Parameters
    ----------
    columns : features of the working set
    E : (N,) curvature of each observation
    own, shared : (k, m) h and u of every feature and task
    task : number of the task
    """

    def __init__(self, columns: Columns, E: FloatArray, own: FloatArray, shared: FloatArray, task: int) -> None:
        self.X, self.u, self.span = columns.designs[task], shared[:, task], slice(*columns.spans[task])
        self.lower = cholesky(gram((self.X * np.sqrt(own[:, task])).T), E[self.span])
        self.constant = self._solve(np.ones(len(self.X)))
        self.total = float(self.constant.sum()) if columns.fit_intercept else np.inf

    def coupling(self) -> FloatArray:
        """Lower triangle of ``diag(u) X' P X diag(u)``."""
        scaled = self.X * self.u
        product = dsyrk(1.0, dtrsm(1.0, self.lower, scaled, lower=1), trans=1, lower=1)
        column = self.constant @ scaled
        return product - np.outer(column, column / self.total)

    def press(self, f: FloatArray) -> FloatArray:
        """(k,) ``diag(u) X' P f``."""
        self.f = f[self.span]
        return self.u * (self._project(self.f) @ self.X)

    def release(self, forces: FloatArray, x: FloatArray) -> None:
        """``P (f - X diag(u) forces)``."""
        x[self.span] = self._project(self.f - self.X @ (self.u * forces))

    def _project(self, f: FloatArray) -> FloatArray:
        x = self._solve(f)
        return x - self.constant * (x.sum() / self.total)

    def _solve(self, f: FloatArray) -> FloatArray:
        x: FloatArray = dpotrs(self.lower, f, lower=1)[0]
        return x


@njit(cache=True, error_model="numpy")
def _centred(f: FloatArray, weight: FloatArray, total: FloatArray, offsets: IntArray) -> tuple[FloatArray, FloatArray]:
    """(N,) Numbers minus the weighted mean of their task, and those times the weight."""
    centred, weighted = np.empty_like(f), np.empty_like(f)
    for t in range(len(total)):
        mean = 0.0
        for i in range(offsets[t], offsets[t + 1]):
            mean += weight[i] * f[i]
        mean /= total[t]
        for i in range(offsets[t], offsets[t + 1]):
            centred[i] = f[i] - mean
            weighted[i] = weight[i] * centred[i]
    return centred, weighted


@njit(cache=True, error_model="numpy")
def _weigh(X: FloatArray, means: FloatArray, left: FloatArray, right: FloatArray, result: FloatArray) -> None:
    """``diag(left) (X - means) diag(right)``, X and the result transposed."""
    for j in range(X.shape[0]):
        for i in range(X.shape[1]):
            result[j, i] = left[i] * (X[j, i] - means[j]) * right[j]


@njit(cache=True, error_model="numpy")
def _fill(
    x: FloatArray,
    weight: FloatArray,
    f: FloatArray,
    predictor: FloatArray,
    constant: FloatArray,
    offsets: IntArray,
) -> None:
    """Add ``weight (f - predictor + constant)``."""
    for t in range(len(constant)):
        for i in range(offsets[t], offsets[t + 1]):
            x[i] += weight[i] * (f[i] - predictor[i] + constant[t])


@njit(cache=True, error_model="numpy")
def _unfold(upper: FloatArray, ratio: FloatArray, full: FloatArray, coupling: FloatArray) -> None:
    """Write K^-1 in full, and add ``diag(u/r) (I - K^-1) diag(u/r)`` to the upper triangle of coupling."""
    for i in range(len(upper)):
        coupling[i, i] += ratio[i] * ratio[i]
        for j in range(i, len(upper)):
            value = upper[i, j]
            full[i, j] = value
            full[j, i] = value
            coupling[i, j] -= ratio[i] * value * ratio[j]


def gram(Y: FloatArray) -> FloatArray:
    """Lower triangle of ``Y' Y``, in Fortran order."""
    product: FloatArray = dsyrk(1.0, Y, trans=1, lower=1) if Y.flags.f_contiguous else dsyrk(1.0, Y.T, lower=1)
    return product


def cholesky(matrix: FloatArray, diagonal: FloatArray | float) -> FloatArray:
    """Lower Cholesky factor of a matrix (its lower triangle) plus a diagonal.

    Where rounding has made it indefinite the diagonal grows a little: refinement makes up for that.
    """
    matrix.ravel(order="K")[:: len(matrix) + 1] += diagonal
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
