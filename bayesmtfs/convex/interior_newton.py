"""Linear algebra of an interior-point step: one system per task, and one that couples the rows.

The step in the dual variables x (one per observation) solves, with a multiplier b per task for the intercept,

    (diag(E) + X H X') x + b = f,      sum of x over each task = 0,

where X' x collects the scores of all rows over all tasks and H is diagonal plus one outer product per row
(`interior_rows.Response`). Without the outer products the tasks fall apart into ``A_t = diag(E) + X_t diag(h_t) X_t'``
(`interior_tasks`); the outer products come back through the Woodbury identity, as a system S with one unknown per row.
"""

import numpy as np
from scipy.linalg.lapack import dpotrs

from bayesmtfs.convex.interior_columns import Columns
from bayesmtfs.convex.interior_rows import Response
from bayesmtfs.convex.interior_tasks import (
    FEW_FEATURES,
    BreakdownError,
    FeatureSystems,
    ObservationSystem,
    TaskSystem,
    cholesky,
    gram,
)
from bayesmtfs.types import FloatArray

REFINEMENTS = 6
MANY_OBSERVATIONS = 4000  # more than these are not put into one matrix for the sake of accuracy


class TaskByTask:
    """The whole system, from those of the tasks and one for the rows that couple them."""

    def __init__(
        self, columns: Columns, E: FloatArray, own: FloatArray, shared: FloatArray, weight: FloatArray
    ) -> None:
        self.columns, self.coupled = columns, bool(shared.any())
        n_features = len(columns.features)
        few = n_features < FEW_FEATURES * np.diff(columns.offsets)
        coupling = np.zeros((n_features, n_features), order="F")
        self.systems: list[TaskSystem] = []
        if few.any():
            self.systems.append(FeatureSystems(columns, E, own, shared, np.flatnonzero(few), coupling))
        for t in np.flatnonzero(~few).tolist():
            system = ObservationSystem(columns, E, own, shared, t)
            self.systems.append(system)
            if self.coupled:
                coupling += system.coupling()
        if self.coupled:
            self.lower = cholesky(columns.sum_to_rows(coupling), 1.0 / weight)

    def solve(self, f: FloatArray) -> FloatArray:
        """(N,) Solution, without refinement."""
        columns = self.columns
        pressed = sum((system.press(f) for system in self.systems), start=np.zeros(len(columns.features)))
        forces = np.zeros(len(columns.features))
        if self.coupled:
            rows, _ = dpotrs(self.lower, columns.sum_to_row(pressed), lower=1)
            forces = columns.spread(rows)
        x = np.zeros(len(f))
        for system in self.systems:
            system.release(forces, x)
        return x


class AllAtOnce:
    """The whole system as one matrix (N, N): more accurate, and cheaper where there are more rows than observations."""

    def __init__(
        self, columns: Columns, E: FloatArray, own: FloatArray, shared: FloatArray, weight: FloatArray
    ) -> None:
        spread = np.concatenate([X * shared[:, t] for t, X in enumerate(columns.designs)])
        matrix = gram((columns.sum_columns_to_rows(spread) * np.sqrt(weight)).T)
        for t, (X, (start, stop)) in enumerate(zip(columns.designs, columns.spans, strict=True)):
            matrix[start:stop, start:stop] += gram((X * np.sqrt(own[:, t])).T)
        self.lower = cholesky(matrix, E)
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

    Raises
    ------
    BreakdownError
        If a slack is 0 or less, so that there is no such system.
    """

    def __init__(self, columns: Columns, E: FloatArray, response: Response, accuracy: float) -> None:
        self.columns, self.E, self.weight, self.accuracy = columns, E, response.weight, accuracy
        own, self.shared = columns.features_of(response.own), columns.features_of(response.shared)
        self.own = np.where(own > 0.0, own, 1.0)  # 0 for features that a task does not have: their columns are 0
        if not (E.min() > 0.0 and np.isfinite(E.sum() + self.own.sum() + self.shared.sum())):
            raise BreakdownError("rounding has used up the slack of a constraint")
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
        allowed = self.accuracy * float(np.abs(f).max())
        residual = self._residual(f, x)
        size = float(np.abs(residual).max())
        for _ in range(REFINEMENTS):
            if size <= allowed:
                break
            refined = x + self.factorised.solve(residual)
            residual = self._residual(f, refined)
            left = float(np.abs(residual).max())
            if not left < size:
                break
            x, size = refined, left
        return x, size <= allowed

    def _residual(self, f: FloatArray, x: FloatArray) -> FloatArray:
        """What is missing; the intercepts are whatever makes it sum to 0 over a task."""
        columns = self.columns
        scores = columns.adjoint(x)
        radial = columns.spread(self.weight * columns.sum_to_row(np.vecdot(self.shared, scores)))
        residual = f - self.E * x - columns.predictor(self.own * scores + self.shared * radial[:, np.newaxis])
        return columns.without_means(residual) if columns.fit_intercept else residual
