"""The quadratic model of a problem with a shared mean and many features, with Newton steps as large as the observations.

Sweeps are those of `quadratic_models`, by columns. On the rows of the deviations V that are not zero, and on the entries of
the mean a that are not, the model with its penalties is smooth. A Newton step there minimises

    g'e + e'He / 2 + r_V'd_V + d_V'D d_V / 2 + r_a'd_a + ridge / 2 ||d_a||^2,    e = Z d_V + X d_a + d_b,

with slopes g and curvatures H of the loss at the N observations, the gradients r of the penalties, D the Hessian of the
row penalty, and d_b the move of the intercept that tasks share. The slopes after the step, ``theta = g + He``, are given by

    d_V = -D^-1 (Z'theta + r_V),    d_a = -(X'theta + r_a) / ridge,    sum of theta = 0,
    (H^-1 + Z D^-1 Z' + X X' / ridge) theta = H^-1 g - Z D^-1 r_V - X r_a / ridge + d_b.

The matrix is (N, N) whatever the number of features: the system of choice where these are many. The penalty has no
curvature along a row, so that D gets a small multiple of the identity, as in the method of Levenberg and Marquardt: it
makes a step a little shorter and leaves the minimum where it is. The rows of D are diagonal less a term of rank one, and
so are those of its inverse (Sherman and Morrison).
"""

from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from bayesmtfs.convex.columns import Columns, SparseColumns
from bayesmtfs.convex.problem import PenaltyRows
from bayesmtfs.convex.quadratic_models import (
    CHANGING_GRAM_LIMIT,
    ColumnModel,
    GramModel,
    MeanPenalty,
    shortest_to_minimum,
)
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.priors.row_penalty import RowPenalty
from bayesmtfs.types import BoolArray, FloatArray, IntArray

DAMPING = 1e-5  # identity that D gets, relative to the mean curvature of the loss in an entry of V
STIFF = 1e4  # curvature of entries that must not move, relative to the largest of the loss
TIED = 1e-9  # relative difference below which entries share the largest absolute value
LEAST_PIVOT = 1e-13  # of a term of rank one: below is rounding
NO_CURVATURE = 1e-300
HELD = 1e100  # threshold of what stays at zero
MOST_ROUNDS = 30  # of sweeps and a Newton step


class MeanDesign:
    """A design as the mean meets it: one row per observation, whatever its task.

    Where there is an intercept, which takes up the level of a column, dense columns are about their means.
    """

    def __init__(self, data: TaskData, centred: bool) -> None:
        self.data, self.X = data, data.design
        self.centre = np.zeros(data.n_features)
        if centred and not data.is_sparse:
            self.centre = np.asarray(data.design.mean(axis=0, dtype=np.float64))
            self.X = data.design - self.centre
        self.repeats = data.shared_design and data.n_tasks > 1
        self.members: BoolArray = np.zeros(data.n_features, dtype=bool)

    def predictor(self, mean: FloatArray) -> FloatArray:
        """(N,) ``(x - centre)'a`` for every observation."""
        products = np.asarray(self.X @ mean)
        return products[self.data.rows] if self.repeats else products

    def shift(self, mean: FloatArray) -> float:
        """``centre'a``."""
        return float(self.centre @ mean)

    def adjoint(self, theta: FloatArray) -> FloatArray:
        """(p,) Sums over all observations of ``x - centre`` times theta."""
        sums = np.bincount(self.data.rows, theta, minlength=self.X.shape[0]) if self.repeats else theta
        return np.asarray(self.X.T @ sums)

    def products(self, members: BoolArray) -> FloatArray:
        """(N, N) Products of all observations over the features that are members (p,), from those of the last call."""
        joining, leaving = members & ~self.members, self.members & ~members
        if 2 * (int(joining.sum()) + int(leaving.sum())) >= int(members.sum()):
            self.known = self._products(members)
        elif joining.any() or leaving.any():
            self.known = self.known + self._products(joining) - self._products(leaving)
        self.members = members
        return self.known

    def _products(self, members: BoolArray) -> FloatArray:
        X = self.X if members.all() else self._by_columns[:, np.flatnonzero(members)]
        found = X @ X.T
        dense = np.asarray(found.toarray() if sp.issparse(found) else found)
        return dense[np.ix_(self.data.rows, self.data.rows)] if self.repeats else dense

    @cached_property
    def _by_columns(self) -> Any:
        return self.X.tocsc() if sp.issparse(self.X) else self.X


class RowInverses(NamedTuple):
    """Inverse ``diag(diagonal_j) + direction_j direction_j'`` of the Hessian D of every row j."""

    diagonal: FloatArray  # (k, m)
    direction: FloatArray  # (k, m)

    def times(self, V: FloatArray) -> FloatArray:
        """(k, m) Product with every row."""
        return self.diagonal * V + self.direction * np.sum(self.direction * V, axis=1, keepdims=True)


def row_inverses(penalty: RowPenalty, V: FloatArray, squares: FloatArray) -> RowInverses:
    """Inverses for rows V (k, m) that are not zero, in whose entries the loss has the curvatures ``squares``."""
    hessian = penalty.curvature(V, STIFF * float(squares.max(initial=NO_CURVATURE)), TIED)
    damping = max(DAMPING * float(squares.sum()) / max(squares.size, 1), NO_CURVATURE)
    diagonal = 1.0 / (np.broadcast_to(hessian.diagonal, V.shape) + damping)  # 0 for an entry that is held
    along = np.where(diagonal > 0.0, hessian.direction, 0.0)
    pivot = np.maximum(1.0 - hessian.scale * np.sum(along**2 * diagonal, axis=1), LEAST_PIVOT)
    return RowInverses(diagonal, np.sqrt(hessian.scale / pivot)[:, np.newaxis] * along * diagonal)


class NewtonTerms(NamedTuple):
    """What the system consists of, besides the inverses."""

    A: FloatArray  # (N, k) columns of the rows of V that are not zero
    offsets: IntArray  # (m + 1,) where the observations of each task begin
    slope: FloatArray  # (N,) g
    curvature: FloatArray  # (N,) H, above 0
    products: FloatArray  # (N, N) X X', of the entries of the mean that are not zero
    ridge: float  # on these
    pull: FloatArray  # (N,) X r_a
    gradient: FloatArray  # (k, m) r_V
    levelled: bool  # whether there is an intercept that tasks share


def newton_slopes(terms: NewtonTerms, inverses: RowInverses) -> FloatArray | None:
    """(N,) Slopes theta after the step; None where rounding leaves no such step."""
    root = np.sqrt(terms.curvature)
    spread = inverses.times(terms.gradient).T  # (m, k)
    right = terms.slope / root - root / terms.ridge * terms.pull
    system = terms.products * (root / terms.ridge)
    system *= root[:, np.newaxis]
    along = np.empty_like(terms.A)
    for t, (a, b) in enumerate(zip(terms.offsets[:-1].tolist(), terms.offsets[1:].tolist(), strict=True)):
        A = terms.A[a:b] * root[a:b, np.newaxis]
        right[a:b] -= A @ spread[t]
        np.multiply(A, inverses.direction[:, t], out=along[a:b])
        A *= np.sqrt(inverses.diagonal[:, t])
        system[a:b, a:b] += A @ A.T
    system += along @ along.T
    system.flat[:: len(root) + 1] += 1.0
    try:
        factor = cho_factor(system.T, lower=False, overwrite_a=True, check_finite=False)
    except LinAlgError:
        return None
    found = cho_solve(factor, np.column_stack([right, root]), check_finite=False)
    theta, level = (root[:, np.newaxis] * found).T
    if terms.levelled:
        theta = theta - float(theta.sum()) / float(level.sum()) * level
    return theta if np.all(np.isfinite(theta)) else None


class MeanPoint(NamedTuple):
    """Where a Newton step begins, and what it moves."""

    places: IntArray  # (A,) of the rows among those of the model
    rows: PenaltyRows
    columns: Columns
    V: FloatArray  # (A, m)
    mean: FloatArray  # (p,)
    slopes: FloatArray  # (N,)


class MeanStep(NamedTuple):
    """A change of some rows of V and of the mean."""

    V: FloatArray  # (A, m)
    mean: FloatArray  # (p,)
    level: float  # of the intercept that tasks share
    eta: FloatArray  # (N,) of the linear predictor

    def times(self, share: float) -> Self:
        """Return a share of it."""
        return type(self)(share * self.V, share * self.mean, share * self.level, share * self.eta)


class WideModel(ColumnModel):
    """Model over the columns that may matter, solved by sweeps and Newton steps in turn.

    A mean without a 1-norm is zero nowhere: sweeps leave it as it is, and Newton steps move it.
    """

    def __init__(
        self,
        chosen: IntArray,
        columns: Columns,
        rows: PenaltyRows,
        curvature: FloatArray,
        mean: MeanPenalty,
        design: MeanDesign,
    ) -> None:
        self.design, self.whole_penalty, self.own_rows = design, mean, rows
        self.dense_mean = not mean.threshold.any()
        self.inside = chosen < len(design.members)  # all but a constant
        self.levelled, self.features = not self.inside.all(), chosen[self.inside]
        some = mean.take(chosen)
        if self.dense_mean:
            some = some._replace(threshold=np.where(self.inside, HELD, 0.0))
        super().__init__(columns, rows, curvature, np.full(len(columns.offsets) - 1, np.inf), 0.0, some)

    def begin(self, V: FloatArray, slope: FloatArray, mean: FloatArray) -> None:
        """Start from deviations (k, m) and the whole mean, where the loss has slopes (N,)."""
        p = len(self.design.members)
        self.dense, entries = mean[:p], np.zeros(len(self.inside))
        entries[~self.inside] = mean[p:]
        if not self.dense_mean:
            entries[self.inside] = mean[self.features]
        self.start(self.own_rows, V, slope, entries)

    @property
    def slope_part(self) -> FloatArray:
        """(p,) Mean without the constant."""
        if self.dense_mean:
            return self.dense
        whole = np.zeros_like(self.dense)
        whole[self.features] = self.mean[self.inside]
        return whole

    @property
    def whole_mean(self) -> FloatArray:
        """(p or p + 1,) Mean."""
        return np.append(self.slope_part, self.mean[~self.inside])

    @property
    def penalty(self) -> float:
        """Penalty of the coefficients and of the mean."""
        return super().penalty + (self._mean_value(self.dense) if self.dense_mean else 0.0)

    def _mean_value(self, mean: FloatArray) -> float:
        p = len(mean)
        return MeanPenalty(self.whole_penalty.ridge[:p], self.whole_penalty.threshold[:p]).value(mean)

    def change(self, gradient: FloatArray) -> float:
        """Quadratic part, which is 0 at the start, from the slopes."""
        slopes = self.slopes
        return 0.5 * (float(np.sum(slopes * (slopes / self.curvature))) - self.first_square)

    def gap(self, gradient: FloatArray, change: float, penalty: float) -> float:
        """Duality gap of the model, from the dual point along its own slopes."""
        if self.dense_mean:
            largest = float(self.rows.dual_norms(gradient).max(initial=0.0))
            scale = min(1.0, self.rows.penalty.strength / largest) if largest > 0 else 1.0
            sums = self.design.adjoint(self.slopes)
            dual = 0.5 * scale**2 / float(self.whole_penalty.ridge[0]) * float(sums @ sums)
            penalty += dual + scale * float(sums @ self.dense)
        return super().gap(gradient, change, penalty)

    def solve(self, gap: float, most_rounds: int) -> bool:
        """Lower the duality gap to the given one by sweeps and Newton steps in turn; whether it is reached."""
        whole = True
        for _ in range(most_rounds):
            self.sweep()
            if not whole:
                self.extrapolate(self.change(self.coefficients) + self.penalty)
            whole = self.step(len(self.norms))
            if not whole:  # what holds the deviations back does not hold the mean
                self.step(0)
            gradient = self.gradient()
            if self.gap(gradient, self.change(gradient), self.penalty) <= gap:
                return True
        return False

    def finish(self, gap: float) -> None:
        """Lower the gap by the Gram matrix of every task, whose Newton steps are exact, where mean and columns are few."""
        if self.dense_mean or len(self.inside) > CHANGING_GRAM_LIMIT:
            return
        columns = self.columns.as_dense() if isinstance(self.columns, SparseColumns) else self.columns
        other = GramModel(columns, self.own_rows, self.curvature, self.curvature_sums, 0.0, self.mean_penalty)
        other.start(self.own_rows, self.coefficients, self.slopes, self.mean)
        other.minimise(gap)
        moved = other.coefficients - self.coefficients + (other.mean - self.mean)[:, np.newaxis]
        slopes = self.slopes + self.curvature * self.columns.linear_predictor(moved)
        self.state = (other.coefficients, slopes[np.newaxis], self.state[2], other.mean[np.newaxis])
        self.norms = other.norms

    def step(self, n_rows: int) -> bool:
        """Take a Newton step on the mean and on the first rows, where not zero; return whether it was a full one."""
        places = np.flatnonzero(self.norms[:n_rows] > 0)
        point = MeanPoint(
            places,
            self.rows.take(places),
            self.columns.take(places),
            self.coefficients[places],
            self.slope_part,
            self.slopes,
        )
        direction = self._joint_direction(point)
        if direction is None:
            return False
        move, share = self._best(point, direction)
        if self._value(point, move) < self._value(point, direction.times(0.0)):
            self._go(point, move)
            return share == 1.0
        return False

    def _value(self, point: MeanPoint, move: MeanStep) -> float:
        """Objective after a move, up to a constant."""
        moved = point.V + move.V
        penalty = point.rows.value(moved, point.rows.norms(moved)) + self._mean_value(point.mean + move.mean)
        return float(move.eta @ (point.slopes + 0.5 * self.curvature * move.eta)) + penalty

    def _best(self, point: MeanPoint, direction: MeanStep) -> tuple[MeanStep, float]:
        """The best share of a direction, or all of it with what would change its sign at zero; and how much it is."""
        share = shortest_to_minimum(lambda share: self._value(point, direction.times(share)))
        move = direction.times(share)
        V, mean = clipped(point.rows.penalty, point.V, direction.V), self._clipped_mean(point.mean, direction.mean)
        if V is direction.V and mean is direction.mean:
            return move, share
        other = self._completed(point, V, mean)
        return (other, 1.0) if self._value(point, other) < self._value(point, move) else (move, share)

    def _go(self, point: MeanPoint, move: MeanStep) -> None:
        W, mean = self.coefficients.copy(), self.mean.copy()
        W[point.places] += move.V
        mean[~self.inside] += move.level
        if self.dense_mean:
            self.dense = point.mean + move.mean
        else:
            mean[self.inside] = (point.mean + move.mean)[self.features]
        self.state = (W, (point.slopes + self.curvature * move.eta)[np.newaxis], self.state[2], mean[np.newaxis])
        self.norms = self.rows.norms(W)

    def _joint_direction(self, point: MeanPoint) -> MeanStep | None:
        """Newton direction of the rows and of the mean."""
        V, a, columns = point.V, point.mean, point.columns
        p, ridge = len(a), float(self.whole_penalty.ridge[0])
        members = (a != 0.0) | self.dense_mean
        of_a = np.where(members, ridge * a + self.whole_penalty.threshold[:p] * np.sign(a), 0.0)
        gradient = point.rows.penalty.gradient(V, TIED)
        own = columns.as_dense() if isinstance(columns, SparseColumns) else columns
        squares = np.add.reduceat(np.square(own.A) * self.curvature[:, np.newaxis], own.offsets[:-1], axis=0).T
        inverses = row_inverses(point.rows.penalty, V, squares)
        products = self.design.products(members)
        if not self.dense_mean:  # whose columns may be collinear
            diagonal = float(self.curvature @ products.diagonal()) / max(int(members.sum()), 1)
            ridge = max(ridge, DAMPING * diagonal)
        terms = NewtonTerms(
            own.A,
            own.offsets,
            point.slopes,
            self.curvature,
            products,
            ridge,
            self.design.predictor(of_a),
            gradient,
            self.levelled,
        )
        theta = newton_slopes(terms, inverses)
        if theta is None:
            return None
        change = -inverses.times(columns.adjoint(theta)[:, : len(V)].T + gradient)
        mean = np.where(members, -(self.design.adjoint(theta) + of_a) / ridge, 0.0)
        return self._completed(point, change, mean)

    def _completed(self, point: MeanPoint, V: FloatArray, mean: FloatArray) -> MeanStep:
        """The step with its best level."""
        eta = point.columns.linear_predictor(V) + self.design.predictor(mean)
        if not self.levelled:
            return MeanStep(V, mean, 0.0, eta)
        level = -float(point.slopes.sum() + self.curvature @ eta) / float(self.curvature.sum())
        return MeanStep(V, mean, level - self.design.shift(mean), eta + level)

    def _clipped_mean(self, a: FloatArray, change: FloatArray) -> FloatArray:
        crossing = np.zeros(len(a), dtype=bool) if self.dense_mean else (a + change) * a < 0.0
        return np.where(crossing, -a, change) if crossing.any() else change


def clipped(penalty: RowPenalty, V: FloatArray, change: FloatArray) -> FloatArray:
    """Change of rows V (k, m) that stops at zero where the penalty has a kink there; itself where it does."""
    crossing = (V + change) * V
    if not (penalty.norm_q == 1.0 or penalty.entrywise):
        crossing = np.sum(crossing, axis=1, keepdims=True)
    return np.where(crossing < 0.0, -V, change) if np.any(crossing < 0.0) else change
