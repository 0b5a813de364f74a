"""A quadratic model of a smooth loss plus the row penalty, minimised by block coordinate descent.

    minimise over W, d:   sum_i [ g_i e_i + h_i e_i^2 / 2 ] + ridge / 2 ||W||^2 + penalty(W),  e_i = x_i' (w_t - w0_t) + d_t

with slopes g (of sum 0 over each task, where there is an intercept) and curvatures h >= 0 of the loss at the linear
predictor, and the moves d of the intercepts minimised out: features are centred by their h-weighted means. For the
squared loss the model is the loss itself; for others it is a step of a proximal Newton method (Lee, Sun and Saunders
2014, *SIAM Journal on Optimization* 24:1420-1443).

A sweep takes the exact step of `row_steps` for one row after the other. After a few sweeps their iterates are
extrapolated (Anderson acceleration as in Bertrand and Massias 2021, *AISTATS*), which is kept where it lowers the
objective. Everything a sweep keeps is affine in W, so that an extrapolation needs no pass over the data. The model is
solved up to a given duality gap of its own. Sweeps work on the Gram matrix of every task or go down the columns
themselves, which is cheaper where features are many beside the rows of a task, so that columns are shorter than rows of
the matrix, or where the matrix would serve one model only and features are few beside rows, so that a few sweeps do.

Sweeps find which entries are zero soon, but may take long to settle the others where features are nearly collinear;
then Newton steps on the rows that are not zero take over, on which the penalty is smooth (`newton_directions`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple, Self

import numpy as np
from scipy.optimize import minimize_scalar

from bayesmtfs.compiled import one_thread
from bayesmtfs.convex.columns import Columns, DenseColumns, SparseColumns
from bayesmtfs.convex.newton_directions import MeanSystem, TaskColumns, direction_by_observations, newton_direction
from bayesmtfs.convex.problem import PenaltyRows
from bayesmtfs.convex.row_steps import NO_CURVATURE, sweep_columns, sweep_gram
from bayesmtfs.data.column_sums import TaskProducts, gram
from bayesmtfs.types import FloatArray, IntArray

SWEEPS = 5  # between two looks at the gap, and combined in one extrapolation
SETTLED = 2  # rounds of so many sweeps before extrapolations: the first decide which rows are zero
EASY_ROUNDS = 4  # that are spent on more accuracy than needed
FEW_ROUNDS = 8  # of so many sweeps, after which Newton steps are tried
FEW_ROUNDS_WITH_MEAN = 2  # the same where tasks share a mean, whose entries are seldom zero
MAX_ROUNDS = 400  # the caller goes on from wherever they ended
GRAM_LIMIT = 50_000_000  # numbers in the Gram matrices of all tasks
CHANGING_GRAM_LIMIT = 600  # features for which Gram matrices are worth their price when they serve one model only
FEW_FEATURES = (
    60  # the same where features are fewer than half of a task's rows, so that a few sweeps are mostly enough
)
SHORT_COLUMNS = 2  # features per row of a task, from which going down columns is cheaper than Gram matrices
MANY_ROUNDS = 4  # of so many sweeps by columns, after which the others are cheaper by Gram matrices
SMALL_DENSE = 500_000  # numbers in sparse columns written out, up to which zeros are cheaper than looking things up
NEWTON_LIMIT = 1000  # features up to which Newton steps are worth their price
FAST_PRODUCTS = 2  # operations of a matrix product in the time of one of a sweep
FIRST_DAMPING, LEAST_DAMPING, MOST_DAMPING = 1e-3, 1e-9, 1.0  # of Newton steps, relative to the mean curvature
DAMPING_FACTOR = 10.0  # up after a step that led nowhere, and down after one that did
CROSSING = 1e-3  # an entry that a step brings so close to zero is taken to be there
STEP_TOLERANCE = 1e-4  # of the length of a Newton step
ROUNDING = 1e-26  # of the squares of a centred column, relative to those it had before
SINGULAR = 1e-12  # ridge on the normal equations of the extrapolation, relative to their trace


class MeanPenalty(NamedTuple):
    """Penalty ``sum_j ridge_j / 2 a_j^2 + threshold_j |a_j|`` on a mean a that all tasks share; empty: no such mean.

    The coefficients of task t are then ``a + w_t``.
    """

    ridge: FloatArray  # (k,)
    threshold: FloatArray  # (k,)

    def take(self, entries: IntArray) -> Self:
        """Return the penalty of some entries."""
        return type(self)(self.ridge[entries], self.threshold[entries])

    def value(self, mean: FloatArray) -> float:
        """Penalty of a mean (k,)."""
        if mean.size == 0:
            return 0.0
        return float(0.5 * self.ridge @ mean**2 + self.threshold @ np.abs(mean))

    def dual(self, sums: FloatArray) -> float:
        """Conjugate at the sums (k,) over tasks of the gradient, which are 0 where there is no ridge."""
        excess = np.maximum(np.abs(sums) - self.threshold, 0.0)
        return 0.5 * float(np.sum(np.divide(excess**2, self.ridge, out=np.zeros_like(excess), where=self.ridge > 0)))


NO_TARGET = np.zeros(0)
NO_MEAN = MeanPenalty(np.zeros(0), np.zeros(0))


class QuadraticRowModel(ABC):
    """A quadratic model with the curvatures (N,) of one point; `start` sets the slopes and where to begin.

    All (k, m): weighted means of the columns, zeros without an intercept; weighted sums; weighted squares about the
    means; bounds, the curvature used for every entry.
    """

    state: tuple[FloatArray, ...]  # W (k, m) and arrays affine in it, which sweeps update
    iterates: tuple[FloatArray, ...] = ()  # (SWEEPS + 1, ...) of each of them
    n_rounds = 0  # that `minimise` took
    change_found, gap_found = 0.0, np.inf  # of the objective since the start, and the duality gap, where it ended

    def __init__(
        self,
        curvature: FloatArray,
        means: FloatArray,
        sums: FloatArray,
        squares: FloatArray,
        bounds: FloatArray,
        ridge: float,
        mean: MeanPenalty = NO_MEAN,
    ) -> None:
        self.curvature, self.ridge, self.mean_penalty = curvature, ridge, mean
        self.mean_terms = (*mean, squares.sum(axis=1)[: len(mean.ridge)])
        self.means = means
        # An empty column, or one that is constant where there is an intercept, has the coefficient 0
        self.free = squares > np.maximum(ROUNDING * means * sums, NO_CURVATURE)
        self.bounds = np.where(self.free, bounds + ridge, NO_CURVATURE)

    @property
    def coefficients(self) -> FloatArray:
        """(k, m) Coefficients."""
        return self.state[0]

    @property
    def mean(self) -> FloatArray:
        """(k,) or (0,) Mean that the tasks share."""
        return self.state[-1][0]

    @property
    def penalty(self) -> float:
        """Penalty of the coefficients and of the mean."""
        return self.rows.value(self.coefficients, self.norms) + self.mean_penalty.value(self.mean)

    def start(
        self,
        rows: PenaltyRows,
        W: FloatArray,
        slope: FloatArray,
        mean: FloatArray = NO_MEAN.ridge,
        gradient: FloatArray | None = None,
    ) -> None:
        """Begin from W (k, m), where the loss has slopes (N,), with the rows of the model at any penalty strength.

        ``gradient`` (k, m) is that of the loss, where it is known.
        """
        self._take_rows(rows)
        ratio = np.divide(slope, self.curvature, out=np.zeros_like(slope), where=self.curvature > 0)
        self.first_square = float(np.sum(slope * ratio)) + self.ridge * float(np.vdot(W, W))
        self.first_W, self.first_mean = W, mean
        self.state = (np.where(self.free, W, 0.0),)
        self.state = (*self.state, *self.first_state(slope, gradient), mean[np.newaxis].copy())
        self.norms = self.rows.norms(self.coefficients)
        self.first_gradient = self.gradient().copy()
        self._make_room()

    def _take_rows(self, rows: PenaltyRows) -> None:
        m = self.means.shape[1]
        self.rows, self.arguments = rows, (rows.step_arguments(m), np.empty((2, rows.sizes.max(initial=1) * m)))

    def _make_room(self) -> None:
        if self.iterates == ():
            self.iterates = tuple(np.empty((SWEEPS + 1, *array.shape)) for array in self.state)

    @abstractmethod
    def first_state(self, slope: FloatArray, gradient: FloatArray | None) -> tuple[FloatArray, ...]:
        """Arrays that go with W, at the start."""

    @abstractmethod
    def sweep(self) -> None:
        """Sweep over the rows a few times, updating the state and the norms and keeping every iterate."""

    @abstractmethod
    def gradient(self) -> FloatArray:
        """(k, m) Gradient of the quadratic part."""

    def newton_price(self) -> int:
        """Rounds of sweeps that take as long as one Newton step; 0 where the model has none."""
        return 0

    @abstractmethod
    def newton(self, gradient: FloatArray, objective: float) -> bool:
        """Take a Newton step on the rows that are not zero; return whether it was a full one."""

    def minimise(self, gap: float, ideal: float | None = None, most_rounds: int = MAX_ROUNDS) -> bool:
        """Lower the duality gap to the given one, or to an ideal one if that takes few rounds; whether it is reached."""
        ideal = gap if ideal is None else ideal
        pause, next_newton = 1, FEW_ROUNDS if self.mean.size == 0 else FEW_ROUNDS_WITH_MEAN
        for round_number in range(1, most_rounds + 1):
            self.sweep()
            gradient = self.gradient()
            change = self.change(gradient)
            penalty = self.penalty
            reached = self.gap(gradient, change, penalty)
            self.n_rounds, self.change_found, self.gap_found = round_number, change + penalty, reached
            if reached <= ideal or (reached <= gap and round_number >= EASY_ROUNDS):
                return True
            price = self.newton_price()
            if 0 < price <= round_number and round_number >= next_newton:
                with one_thread():
                    pause = 1 if self.newton(gradient, change + penalty) else 2 * pause
                next_newton = round_number + (1 if pause == 1 else max(price, pause))
            elif round_number >= SETTLED:
                self.extrapolate(change + penalty)
        return False

    def change(self, gradient: FloatArray) -> float:
        """Quadratic part, which is 0 at the start."""
        change = 0.5 * float(np.sum((self.first_gradient + gradient) * (self.coefficients - self.first_W)))
        if self.mean.size == 0:
            return change
        both = self.first_gradient + gradient - self.ridge * (self.first_W + self.coefficients)
        return change + 0.5 * float(both.sum(axis=1) @ (self.mean - self.first_mean))

    def gap(self, gradient: FloatArray, change: float, penalty: float) -> float:
        """Duality gap of the model, from the dual point along its own slopes."""
        square = max(self.first_square + 2.0 * change, 0.0)
        inner = float(np.sum(gradient * self.coefficients))
        largest = float(self.rows.dual_norms(gradient).max(initial=0.0))
        top = max(1.0 - inner / square, 0.0) if square > 0 and self.mean.size == 0 else 1.0
        scale = min(top, self.rows.penalty.strength / largest) if largest > 0 else top
        if self.mean.size > 0:
            sums = (gradient - self.ridge * self.coefficients).sum(axis=1)
            inner, penalty = inner + float(sums @ self.mean), penalty + self.mean_penalty.dual(scale * sums)
        return 0.5 * square * (1.0 - scale) ** 2 + penalty + scale * inner

    def extrapolate(self, objective: float) -> bool:
        """Move to the combination of the last iterates whose steps cancel best, if that lowers the objective."""
        weights = extrapolation_weights(self.iterates[0])
        if weights is None:
            return False
        combined = (weights @ kept[1:].reshape(len(weights), -1) for kept in self.iterates)
        state = tuple(flat.reshape(array.shape) for flat, array in zip(combined, self.state, strict=True))
        return self.try_state(state, objective)

    def try_state(self, state: tuple[FloatArray, ...], objective: float) -> bool:
        """Go to another state if its objective is lower; return whether it was."""
        before = self.state, self.norms
        self.state, self.norms = state, self.rows.norms(state[0])
        if self.change(self.gradient()) + self.penalty < objective:
            return True
        self.state, self.norms = before
        return False


class GramModel(QuadraticRowModel):
    """Model of dense columns by the Gram matrix of every task: a step costs nothing per observation.

    The state is W and the gradient (m, k or more), task by task.
    """

    def __init__(
        self,
        columns: DenseColumns,
        rows: PenaltyRows,
        curvature: FloatArray,
        curvature_sums: FloatArray,
        ridge: float = 0.0,
        mean: MeanPenalty = NO_MEAN,
    ) -> None:
        self.columns = columns
        k = len(rows.features)
        sums = columns.adjoint(curvature)
        means = np.ascontiguousarray((sums[:, :k] / curvature_sums[:, np.newaxis]).T)
        self.Q = np.empty((k, len(sums), sums.shape[1]))
        n = columns.offsets[1]
        if columns.alike and np.all(curvature.reshape(len(sums), n) == curvature[:n]):
            one = np.empty((k, 1, sums.shape[1]))
            gram(
                columns.A[:n],
                NO_TARGET,
                curvature[:n],
                columns.offsets[:2],
                False,
                np.ascontiguousarray(means[:, :1]),
                one,
            )
            self.Q[:] = one
        else:
            gram(columns.A, NO_TARGET, curvature, columns.offsets, False, means, self.Q)
        squares = self.Q[np.arange(k), :, np.arange(k)]
        super().__init__(curvature, means, sums[:, :k].T, squares, self._bounds(rows, squares), ridge, mean)
        if ridge > 0.0:
            self.Q[np.arange(k), :, np.arange(k)] += ridge

    def _bounds(self, rows: PenaltyRows, squares: FloatArray) -> FloatArray:
        """Curvatures; within a group, their sums of absolute values over the group, which bound its Gram matrix."""
        if not rows.grouped:
            return squares
        spans = zip(rows.starts[:-1].tolist(), rows.starts[1:].tolist(), strict=True)
        return np.concatenate([np.abs(self.Q[a:b, :, a:b]).sum(axis=2) for a, b in spans])

    def first_state(self, slope: FloatArray, gradient: FloatArray | None) -> tuple[FloatArray, ...]:
        """Gradient."""
        k = len(self.means)
        if gradient is None:
            by_task = self.columns.adjoint(slope)
        else:
            by_task = np.zeros((gradient.shape[1], self.Q.shape[2]))
            by_task[:, :k] = gradient.T
        if self.ridge > 0.0:
            by_task[:, :k] += self.ridge * self.coefficients.T
        return (by_task,)

    def gradient(self) -> FloatArray:
        """Gradient as the sweeps kept it."""
        return self.state[1][:, : len(self.means)].T

    def sweep(self) -> None:
        """Sweep over the rows a few times."""
        rows = (self.norms, *self.arguments, self.iterates)
        sweep_gram(self.Q, self.bounds, self.ridge, self.state, self.mean_terms, *rows)

    def newton_price(self) -> int:
        """Rounds of sweeps that take as long as one Newton step; 0 where there are too many rows or none."""
        active = max(int(self.rows.sizes[self.norms > 0].sum()), int(np.count_nonzero(self.mean)))
        dear = 2 if self.mean.size == 0 else 20  # a sweep over rows and mean takes longer, and leads less far
        return 1 + active**2 // (dear * self.Q.shape[2]) if 0 < active <= NEWTON_LIMIT else 0

    def newton(self, gradient: FloatArray, objective: float) -> bool:
        """Take a Newton step on the rows that are not zero; return whether it was a full one."""
        alive = self.norms > 0
        places = np.flatnonzero(np.repeat(alive, self.rows.sizes))
        Q, W = self.Q[places], self.coefficients[places]
        rows = self.rows.take(np.flatnonzero(alive))
        means = np.flatnonzero(self.mean)
        both = newton_direction(Q[:, :, places], gradient[places], W, rows, self._mean_system(places, means, gradient))
        if both is None:
            return False
        direction, mean_direction = both
        change = self._gradient_change(places, direction, means, mean_direction)
        sums = (gradient[means] - self.ridge * self.coefficients[means]).sum(axis=1)
        slope = float(np.sum(gradient[places] * direction)) + float(sums @ mean_direction)
        curvature = float(np.sum(change[:, places].T * direction))
        if len(means) > 0:
            whole = np.zeros_like(self.coefficients)
            whole[places] = direction
            of_mean = change[:, means].sum(axis=0) - self.ridge * whole[means].sum(axis=1)
            curvature += float(of_mean @ mean_direction)

        some = self.mean_penalty.take(means)
        step = shortest_to_minimum(
            lambda step: (
                slope * step
                + 0.5 * curvature * step**2
                + penalty_of(rows, W + step * direction)
                + some.value(self.mean[means] + step * mean_direction)
            )
        )
        moved = without_crossings(W, W + step * direction)
        new_W, new_mean = self.coefficients.copy(), self.mean.copy()
        new_W[places] = moved
        new_mean[means] += step * mean_direction
        by_task = self.state[1] + self._gradient_change(places, moved - W, means, step * mean_direction)
        return self.try_state((new_W, by_task, new_mean[np.newaxis]), objective) and step == 1.0

    def _gradient_change(self, places: IntArray, V: FloatArray, means: IntArray, mean: FloatArray) -> FloatArray:
        """(m, k or more) Change of the gradient with changes of some rows of W and some entries of the mean."""
        change = np.einsum("jti,jt->ti", self.Q[places], V)
        if len(means) > 0:
            change += np.einsum("jti,j->ti", self.Q[means], mean)
            change[:, means] -= self.ridge * mean
        return change

    def _mean_system(self, places: IntArray, means: IntArray, gradient: FloatArray) -> MeanSystem | None:
        """What some entries of the mean add to the Newton system of some rows of W."""
        if len(means) == 0:
            return None
        own = self.ridge * (places[:, np.newaxis] == means)
        coupling = self.Q[places][:, :, means].transpose(1, 0, 2) - own
        square = self.Q[means][:, :, means].sum(axis=1) - np.diag(np.full(len(means), self.ridge * self.Q.shape[1]))
        some, mean = self.mean_penalty.take(means), self.mean[means]
        square[np.diag_indices_from(square)] += some.ridge
        sums = (gradient[means] - self.ridge * self.coefficients[means]).sum(axis=1)
        return MeanSystem(coupling, square, -sums - some.ridge * mean - some.threshold * np.sign(mean))


class ProductModel(GramModel):
    """The squared loss itself, from all products of columns and targets; what changes is counted from W = 0.

    The target is one column more, whose entries of the gradient nobody asks for.
    """

    def __init__(self, found: TaskProducts, totals: FloatArray, rows: PenaltyRows, ridge: float) -> None:
        order = np.append(rows.features, len(found.means) - 1) if rows.grouped else slice(None)
        products, means, squares = found.products[order], found.means[order], found.squares[order]
        if rows.grouped:
            products[:, :, : len(means)] = products[:, :, order]
        self.Q, self.at_zero = products[:-1], -products[-1]
        free, means = squares[:-1], means[:-1]
        bounds = self._bounds(rows, free)
        QuadraticRowModel.__init__(self, NO_TARGET, means, means * totals, free, bounds, ridge)
        if ridge > 0.0:
            self.Q = self.Q.copy()
            self.Q[np.arange(len(means)), :, np.arange(len(means))] += ridge
        self.first_square, self.first_W, self.first_mean = float(squares[-1].sum()), np.zeros_like(means), NO_MEAN.ridge
        self.first_gradient = np.ascontiguousarray(self.at_zero[:, : len(means)].T)

    def go_to(self, rows: PenaltyRows, W: FloatArray | None) -> None:
        """Begin from W (k, m), or zeros, with the rows of the model at any penalty strength."""
        self._take_rows(rows)
        W = np.zeros(self.free.shape) if W is None else np.where(self.free, W, 0.0)
        self.state = (W, self.at_zero.copy(), NO_MEAN.ridge[np.newaxis])
        self.norms = rows.norms(W) if W.any() else np.zeros(rows.n_rows)
        self._make_room()

    def exact_gradient(self) -> FloatArray:
        """(m, k or more) Gradient by the products themselves, without the rounding errors of many sweeps."""
        alive = np.flatnonzero(np.repeat(self.norms > 0.0, self.rows.sizes))
        none = np.zeros(0, dtype=np.int64)
        return self.at_zero + self._gradient_change(alive, self.coefficients[alive], none, NO_MEAN.ridge)


class ColumnModel(QuadraticRowModel):
    """Model of columns of either kind without Gram matrices: a step costs its own entries, and nothing is made before.

    The state is W, the slopes (N,) without the moves of the intercepts, and these moves (m,).
    """

    damping = FIRST_DAMPING

    def __init__(
        self,
        columns: Columns,
        rows: PenaltyRows,
        curvature: FloatArray,
        curvature_sums: FloatArray,
        ridge: float = 0.0,
        mean: MeanPenalty = NO_MEAN,
    ) -> None:
        self.columns, self.curvature_sums = columns, curvature_sums
        self.sums, squares = columns.moments(curvature, curvature_sums)
        self.task = np.repeat(np.arange(len(curvature_sums)), np.diff(columns.offsets))
        # The Gram matrix of a group is at most its diagonal times the size of the group
        bounds = squares * np.repeat(rows.sizes, rows.sizes)[:, np.newaxis]
        super().__init__(curvature, self.sums / curvature_sums, self.sums, squares, bounds, ridge, mean)

    def first_state(self, slope: FloatArray, gradient: FloatArray | None) -> tuple[FloatArray, ...]:
        """Slopes, and no move of the intercepts."""
        return slope[np.newaxis].copy(), np.zeros((1, self.means.shape[1]))

    def gradient(self) -> FloatArray:
        """Gradient from the slopes."""
        W = self.coefficients
        return self.columns.adjoint(self.slopes)[:, : len(W)].T + self.ridge * W

    @property
    def slopes(self) -> FloatArray:
        """(N,) Slopes after the moves of the intercepts."""
        _, slope, shift, _ = self.state
        return slope[0] + self.curvature * shift[0][self.task]

    def newton_price(self) -> int:
        """Rounds of sweeps that take as long as one Newton step; 0 where there are too many rows or none."""
        active, (k, m) = int(self.rows.sizes[self.norms > 0].sum()), self.means.shape
        n = len(self.curvature)
        if self.mean.size > 0 or not 0 < active <= NEWTON_LIMIT or n * active > GRAM_LIMIT:
            return 0
        if self._by_observations:
            products = n * active * (active + 3 * n // m) + active**3 // 3
        else:
            products = active**2 * (n + 4 * m * active)
        return 1 + k * products // (FAST_PRODUCTS * 2 * (1 + self.columns.n_entries) * (k + SWEEPS * active))

    @property
    def _by_observations(self) -> bool:
        """Whether the Hessian of the penalty has an inverse, so that Newton systems can be as small as the tasks."""
        return self.ridge > 0.0 or (self.rows.penalty.norm_q == 2.0 and self._row_entries > 1)

    @property
    def _row_entries(self) -> int:
        """Fewest entries in a row of the penalty, one of which alone has no curvature."""
        return int(self.rows.sizes.min(initial=1)) * self.means.shape[1]

    def newton(self, gradient: FloatArray, objective: float) -> bool:
        """Take a Newton step on the rows that are not zero; return whether it was a full one."""
        alive = self.norms > 0
        places = np.flatnonzero(np.repeat(alive, self.rows.sizes))
        W, rows, columns = self.coefficients[places], self.rows.take(np.flatnonzero(alive)), self.columns.take(places)
        direction = self._direction(columns, places, gradient[places], W, rows)
        if direction is None:
            return False
        full = without_crossed_rows(W, W + direction, rows)
        if self.try_state(self._moved(columns, places, full), objective):
            self.damping = max(self.damping / DAMPING_FACTOR, LEAST_DAMPING)
            return True
        self.damping = min(self.damping * DAMPING_FACTOR, MOST_DAMPING)
        eta, shift = self._predictor_change(columns, places, direction)
        slope = float(np.sum(gradient[places] * direction))
        curvature = float(self.curvature @ (eta + shift[self.task]) ** 2) + self.ridge * float(np.sum(direction**2))
        step = shortest_to_minimum(
            lambda step: slope * step + 0.5 * curvature * step**2 + penalty_of(rows, W + step * direction)
        )
        moved = without_crossings(W, W + step * direction)
        self.try_state(self._moved(columns, places, moved), objective)
        return False

    def _moved(self, columns: Columns, places: IntArray, rows: FloatArray) -> tuple[FloatArray, ...]:
        """State with other values of some rows of W."""
        W, slope, shift, mean = self.state
        eta, moves = self._predictor_change(columns, places, rows - W[places])
        moved = W.copy()
        moved[places] = rows
        return moved, slope + self.curvature * eta, shift + moves, mean

    def _direction(
        self, columns: Columns, places: IntArray, gradient: FloatArray, W: FloatArray, rows: PenaltyRows
    ) -> FloatArray | None:
        """Newton direction (k, m) on some columns."""
        dense = columns.as_dense()
        if not self._by_observations:
            model = GramModel(dense, rows, self.curvature, self.curvature_sums, self.ridge)
            both = newton_direction(model.Q[:, :, : len(places)], gradient, W, rows)
            return None if both is None else both[0]
        by_task = TaskColumns(dense.A, self.means[places], self.curvature, dense.offsets)
        damping = self.damping * float(self.bounds[places].mean())
        return direction_by_observations(by_task, gradient, W, rows, self.ridge + damping)

    def _predictor_change(self, columns: Columns, places: IntArray, V: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Changes of the linear predictor (N,) and of the moves of the intercepts (m,) with V at some rows of W."""
        return columns.linear_predictor(V), -np.sum(self.means[places] * V, axis=0)

    def sweep(self) -> None:
        """Sweep over the rows a few times."""
        columns = (self.sums, self.means, self.bounds)
        rows = (self.norms, *self.arguments, self.iterates)
        sweep_columns(self.columns.entries, self.curvature, columns, self.ridge, self.state, self.mean_terms, *rows)


def minimised(model: QuadraticRowModel, gap: float, ideal: float | None = None) -> QuadraticRowModel:
    """The model at a duality gap as `QuadraticRowModel.minimise` wants it.

    One of dense columns that takes many sweeps goes on by Gram matrices, where these are affordable.
    """
    k, m = model.means.shape
    affordable = k <= CHANGING_GRAM_LIMIT and gram_pays(k, m, len(model.curvature), model.mean.size > 0)
    if not (affordable and isinstance(model, ColumnModel) and isinstance(model.columns, DenseColumns)):
        model.minimise(gap, ideal)
        return model
    if model.minimise(gap, ideal, MANY_ROUNDS):
        return model
    other = GramModel(model.columns, model.rows, model.curvature, model.curvature_sums, model.ridge, model.mean_penalty)
    other.start(model.rows, model.coefficients, model.slopes, model.mean)
    other.minimise(gap, ideal)
    return other


def gram_pays(k: int, m: int, n: int, has_mean: bool) -> bool:
    """Whether Gram matrices of k features in m tasks fit into memory and have shorter rows than the columns.

    With a mean that the tasks share they always pay, since only they have Newton steps then.
    """
    return k * k * m <= GRAM_LIMIT and (has_mean or k <= SHORT_COLUMNS * n / m)


def quadratic_model(
    columns: Columns,
    rows: PenaltyRows,
    curvature: FloatArray,
    curvature_sums: FloatArray,
    lasting: bool,
    ridge: float = 0.0,
    mean: MeanPenalty = NO_MEAN,
) -> QuadraticRowModel:
    """Model of the fitting kind, from curvatures (N,) of the loss and their sums (m,), inf where a task has no intercept.

    ``lasting`` says that the curvatures are the same at every point, so that the model can be started again elsewhere.
    """
    k, m, n = len(rows.features), len(curvature_sums), len(curvature)
    if isinstance(columns, SparseColumns) and n * k <= SMALL_DENSE:
        columns = columns.as_dense()
    few_sweeps = mean is NO_MEAN and FEW_FEATURES < k < n / (2 * m)
    affordable = lasting or (k <= CHANGING_GRAM_LIMIT and not few_sweeps)
    by_gram = affordable and gram_pays(k, m, n, mean is not NO_MEAN)
    if by_gram and isinstance(columns, DenseColumns):
        return GramModel(columns, rows, curvature, curvature_sums, ridge, mean)
    return ColumnModel(columns, rows, curvature, curvature_sums, ridge, mean)


def extrapolation_weights(iterates: FloatArray) -> FloatArray | None:
    """Weights of sum 1 for all iterates but the first, that make the combination of their steps shortest."""
    flat = iterates.reshape(len(iterates), -1)
    steps = flat[1:] - flat[:-1]
    products = steps @ steps.T
    trace = float(products.trace())
    if not trace > 0:
        return None
    solution = np.linalg.solve(products / trace + SINGULAR * np.eye(len(products)), np.ones(len(products)))
    return solution / solution.sum()


def shortest_to_minimum(function: Callable[[float], float]) -> float:
    """Return the minimum over [0, 1] of a convex function; exactly 1 where it falls up to there."""
    if function(1.0) <= function(1.0 - 1e-3):
        return 1.0
    found = minimize_scalar(function, bounds=(0.0, 1.0), method="bounded", options={"xatol": STEP_TOLERANCE})
    return float(found.x)


def penalty_of(rows: PenaltyRows, W: FloatArray) -> float:
    """Penalty of W (k, m)."""
    return rows.value(W, rows.norms(W))


def without_crossings(before: FloatArray, after: FloatArray) -> FloatArray:
    """Coefficients after a step, with 0 for those that it brings so close to zero that they are taken to be there."""
    return np.where(np.abs(after) < CROSSING * np.abs(before), 0.0, after)


def without_crossed_rows(before: FloatArray, after: FloatArray, rows: PenaltyRows) -> FloatArray:
    """Coefficients after a step, with 0 for rows that it leads to the other side of zero, and for crossings."""
    inner = np.add.reduceat(np.sum(before * after, axis=1), rows.starts[:-1])
    kept = np.repeat(inner > 0.0, rows.sizes)
    return without_crossings(before, np.where(kept[:, np.newaxis], after, 0.0))
