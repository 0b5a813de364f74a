"""The convex problem that every penalised route solves, and its certificate.

    minimise over W, b:   sum_i c_i loss(y_i, o_i + x_i' w_t(i) + b_t(i)) + penalty(W) + ridge / 2 ||W||^2

with known offsets o (`families.offset`; none in most data), row factors ``c`` (the weights, divided by their task's total
for a mean loss) and a penalty that is a norm per row of W. Where rows share a loss (`Family.coupled`) the sum stands for
the whole of it. Without a ridge its dual has one
variable per observation (Boyd and Vandenberghe 2004, section 5.1.6):

    maximise over theta:  - sum_i c_i loss*(y_i, theta_i / c_i)
    subject to            dual norm of every row of X' theta <= penalty strength,
                          sum of theta over each task = 0 where there is an intercept.

Any feasible theta bounds the minimum from below, so that ``primal - dual`` is a true bound on the suboptimality.

The ridge, the elastic part of Zou and Hastie 2005, adds a squared loss per entry of W, and so a dual variable per entry:
the rows of ``X' theta + u`` must be in the balls, at the cost of ``||u||^2 / (2 ridge)``. Two choices of u are used.
``u = ridge W`` is scaled along with theta into the balls, which serves a small ridge; the best u takes just what exceeds
the balls, ``u = - prox(X' theta)``, so that every theta is feasible, which serves a small penalty.
"""

from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from bayesmtfs.data.column_sums import TaskProducts, task_products
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import Family, Kinks, total, total_conjugate, with_offset
from bayesmtfs.priors.blocks import Blocks
from bayesmtfs.priors.row_penalty import RowPenalty, row_norms
from bayesmtfs.priors.row_prox import Scratch, scratch
from bayesmtfs.types import BoolArray, FloatArray, IntArray

ROUNDING = 1e-20  # of the squared rounding error of a constant target, relative to its square
ROUNDING_STEPS = 16  # rounding errors of a sum, in units of the last place of the sum of its absolute terms


@dataclass(frozen=True)
class Problem:
    """A likelihood and a row penalty on one data set."""

    data: TaskData
    family: Family
    penalty: RowPenalty | Any  # a user's own penalty has less to offer, see `priors.Penalty`
    weight: FloatArray  # (N,) factor c of each observation's loss
    fit_intercept: bool = True  # whether every task has an unpenalised intercept
    ridge: float = 0.0  # elastic part, which does not change with the strength of the penalty

    def __post_init__(self) -> None:
        data = self.data
        family = with_offset(self.family, None).on(data.y, data.weight, data.offsets)
        object.__setattr__(self, "family", with_offset(family, data.eta_offset))
        if not (self.family.smooth or self.penalty.has_row_steps):
            raise ValueError(
                f"penalty is a {type(self.penalty).__name__} and loss is {self.family.name!r}, which has kinks; a "
                "penalty of your own goes with a smooth loss"
            )

    @cached_property
    def blocks(self) -> Blocks:
        """How W is cut into the rows that enter or leave together."""
        return Blocks(self.data.n_features, self.data.n_tasks, groups=self.data.groups, present=self.data.present)

    @property
    def may_have_products(self) -> bool:
        """Whether the products of the columns of every task are all that is needed: squared loss, designs of their own."""
        return self.family.quadratic and self.data.is_plain and not self.data.shared_design

    def take_products(self) -> TaskProducts | None:
        """Weighted products of all columns, about the means where there are intercepts; None where they are not finite.

        What holds at W = 0 then follows from them.
        """
        return self._products

    @property
    def products(self) -> TaskProducts | None:
        """The same where somebody has taken them."""
        known: TaskProducts | None = vars(self).get("_products")
        return known

    @cached_property
    def _products(self) -> TaskProducts | None:
        data, y = self.data, np.asarray(self.data.y, dtype=np.float64)
        found = task_products(data.design, y, self.weight, data.offsets, self.fit_intercept)
        return found if np.all(np.isfinite(found.squares)) else None

    @cached_property
    def task_weight(self) -> FloatArray:
        """(m,) Sum of the factors of each task."""
        return self.task_sums(self.weight)

    @cached_property
    def null_intercept(self) -> FloatArray:
        """(m,) Best intercept at W = 0 (zeros without an intercept)."""
        if not self.fit_intercept:
            return np.zeros(self.data.n_tasks)
        if self.products is not None:
            return self.products.means[-1]
        y, family = self.data.y, self.family
        if family.quadratic:
            return self.task_sums(self.weight * y) / self.task_weight
        return np.array([family.of_rows(a, b).best_constant(y[a:b], self.weight[a:b]) for a, b in self.data.spans])

    @cached_property
    def null_objective(self) -> float:
        """Objective at W = 0, with its best intercept."""
        if self.products is not None:
            return 0.5 * float(self.products.squares[-1].sum())
        return self.loss(self.null_intercept[self.data.task])

    @cached_property
    def least_loss(self) -> float:
        """Loss if every target could have its best linear predictor; 0 for most losses."""
        if self.family.quadratic:
            return 0.0
        return -total_conjugate(self.family, self.data.y, np.zeros_like(self.weight), self.weight)

    @cached_property
    def gap_scale(self) -> float:
        """The scale on which a gap is small: the objective at W = 0 above the least loss, or rounding error at least."""
        if self.products is None:
            at_zero = abs(self.loss(np.zeros(self.data.n_observations)))
        else:
            at_zero = 0.5 * float(
                self.products.squares[-1].sum() + self.task_weight @ np.square(self.products.means[-1])
            )
        return max(self.null_objective - self.least_loss, ROUNDING * at_zero)

    @cached_property
    def kinks(self) -> Kinks:
        """Kinks of a piecewise linear loss, weights included: theta lies between the slopes."""
        self.family.require("A solver of losses that are not smooth", "kinks", "conjugate")
        return self.family.kinks(self.data.y).times(self.weight)

    @cached_property
    def null_dual(self) -> FloatArray:
        """(N,) An optimal theta at W = 0 and its best intercept.

        Of a loss with kinks there are many: here all observations at a kink are at the same share of their intervals,
        the one at which they balance the others.
        """
        eta = self.null_intercept[self.data.task]
        return self.dual_candidate(eta) if self.family.smooth else self._null_dual_with_kinks(eta)

    @cached_property
    def null_gradient(self) -> FloatArray:
        """(p, m) ``X' theta`` at W = 0, of the theta in `null_dual`."""
        if self.products is not None:
            return -self.products.with_target
        return self.data.adjoint(self.null_dual)

    @property
    def known_null_gradient(self) -> FloatArray | None:
        """The same where something has asked for it already, as the largest penalty does."""
        known: FloatArray | None = vars(self).get("null_gradient")
        return known

    def _null_dual_with_kinks(self, eta: FloatArray) -> FloatArray:
        place, left, right = self.kinks
        at_kink = eta == place
        theta = np.where(eta > place, right, left)
        if not self.fit_intercept:
            return np.where(at_kink, 0.0, theta)
        room = np.where(at_kink, right - left, 0.0)
        missing, most = -self.task_sums(theta), self.task_sums(room)
        share = np.divide(missing, most, out=np.zeros_like(most), where=most > 0.0)
        theta = np.clip(theta + share[self.data.task] * room, left, right)
        return with_zero_sum(theta, self.data.task, self.data.offsets[:-1])

    @cached_property
    def largest_penalty(self) -> float:
        """Smallest strength at which W = 0 is optimal, known as lambda_max.

        Exact for smooth losses; with kinks an upper bound, since another theta may be smaller: `nonsmooth` finds the
        smallest. It is 0, and not a rounding error, where no feature can lower the loss, as with columns that
        are constant within every task.
        """
        norms = self.penalty.dual_norm(self.blocks.gather(self.null_gradient))
        leading = np.flatnonzero(self.blocks.row_of_feature == norms.argmax())
        if norms.max() > self._rounding_errors(leading).sum():
            return float(norms.max())
        rounding = self._rounding_errors(np.arange(self.data.n_features))
        by_row = np.bincount(self.blocks.row_of_feature, weights=rounding)
        return float(np.where(norms > by_row, norms, 0.0).max())

    def _rounding_errors(self, features: IntArray) -> FloatArray:
        """(k,) Bounds on the rounding errors of the scores ``X' theta`` at W = 0, summed over tasks."""
        data, size = self.data, np.abs(self.null_dual)
        size = data.as_matrix(size).sum(axis=1) if data.shared_design else size
        magnitudes = abs(data.design[:, features]).T @ size
        return ROUNDING_STEPS * float(np.finfo(self.null_dual.dtype).eps) * np.asarray(magnitudes)

    @property
    def has_one_gram(self) -> bool:
        """Whether one Gram matrix serves all tasks: squared loss, one complete design, the same weights.

        Groups of features need the plain 2-norm, and no ridge.
        """
        return self.penalty.strength > 0.0 and self._one_gram

    @cached_property
    def _one_gram(self) -> bool:
        data, weights = self.data, self.penalty.weights
        simple = data.groups is None or (bool(self.penalty.is_euclidean) and self.ridge == 0.0 and not data.is_sparse)
        if not (self.family.quadratic and data.is_complete and data.present is None and simple):
            return False
        if weights is not None and not np.all(weights > 0.0):
            return False
        factors = self.weight.reshape(data.n_tasks, -1)
        return bool(np.all(factors == factors[0]))

    def with_strength(self, strength: float) -> Self:
        """Return the same problem at another penalty strength, with all that is known of it."""
        other = copy(self)  # none of the cached properties depends on the strength
        object.__setattr__(other, "penalty", self.penalty.with_strength(strength))
        return other

    def task_sums(self, values: FloatArray) -> FloatArray:
        """(m,) Sum of (N,) values over the observations of each task."""
        sums: FloatArray = np.add.reduceat(values, self.data.offsets[:-1])
        return sums

    def loss(self, eta: FloatArray) -> float:
        """Sum of the losses at a linear predictor (N,)."""
        return total(self.family, self.data.y, eta, self.weight)

    def objective(self, W: FloatArray, eta: FloatArray) -> float:
        """Objective at W, whose linear predictor is eta."""
        return self.loss(eta) + self.penalty_value(W)

    def penalty_value(self, W: FloatArray) -> float:
        """Penalty and ridge of W."""
        return float(self.penalty.value(self.blocks.gather(W))) + self.ridge_value(W)

    def ridge_value(self, W: FloatArray) -> float:
        """Elastic part ``ridge / 2 ||W||^2`` of W, or of some of its rows."""
        return 0.5 * self.ridge * float(np.vdot(W, W)) if self.ridge > 0.0 else 0.0

    def dual_candidate(self, eta: FloatArray) -> FloatArray:
        """(N,) Gradient of the loss in eta, with task sums of 0 where there is an intercept.

        With an intercept that is optimal for W they are so already, up to rounding.
        """
        theta = self.weight * self.family.gradient(self.data.y, eta)
        return self.with_zero_sums(theta) if self.fit_intercept else theta

    def with_zero_sums(self, theta: FloatArray) -> FloatArray:
        """(N,) Theta with task sums of 0, in the domain of the conjugate loss."""
        if self.family.coupled:
            return self.family.zero_sums(self.data.y, theta, self.weight)
        if self.family.quadratic:  # whose conjugate is finite everywhere: centre them
            means = self.task_sums(theta) / self.task_weight
            return theta - self.weight * means[self.data.task]
        return with_zero_sum(theta, self.data.task, self.data.offsets[:-1])

    @property
    def scales_by_sign(self) -> bool:
        """Whether the task sums of theta can be made 0 by factors of its positive and negative parts."""
        return not (self.family.coupled and self.fit_intercept)

    def row_dual_norms(self, theta: FloatArray) -> FloatArray:
        """Dual norm of every row of X' theta: the strength that would just hold it at zero."""
        return self.penalty.dual_norm(self.blocks.gather(self.data.adjoint(theta)))

    def dual_objective(self, theta: FloatArray, W: FloatArray | None = None) -> float:
        """Best dual value along the ray of a candidate theta, made feasible by scaling; a ridge makes use of W, too."""
        if self.ridge == 0.0 or W is None:
            return self.dual_on_ray(theta, self.feasible_end(self.row_dual_norms(theta)))
        rows = self.blocks.gather(self.data.adjoint(theta))
        norms = self.penalty.dual_norm(rows + self.ridge * self.blocks.gather(W))
        on_ray = self.dual_on_ray(theta, self.feasible_end(norms), 2.0 * self.ridge_value(W))
        return max(on_ray, self.elastic_dual(theta, self.penalty.prox(rows, 1.0)))

    def elastic_dual(self, theta: FloatArray, excess: FloatArray) -> float:
        """Dual value of theta where the ridge takes what the rows of ``X' theta`` exceed the balls by."""
        return self.dual_on_ray(theta, 1.0, float(np.vdot(excess, excess)) / self.ridge, fixed=True)

    def feasible_end(self, norms: FloatArray) -> float:
        """Largest factor at which no dual norm exceeds the penalty strength."""
        largest = float(norms.max(initial=0.0))
        return self.penalty.strength / largest if largest > 0 else np.inf

    def dual_on_ray(self, theta: FloatArray, end: float, square: float = 0.0, *, fixed: bool = False) -> float:
        """Best dual value at theta times a factor f <= ``end`` (or 1, where it is fixed), less ``square * f^2 / 2``."""
        if fixed or not self.family.quadratic:
            scale = min(1.0, end)
            return -total_conjugate(self.family, self.data.y, scale * theta, self.weight) - 0.5 * scale**2 * square
        # The dual is a parabola along the ray: take its top, or the end of the feasible part
        curvature, inner = float(np.sum(theta**2 / self.weight)) + square, float(np.sum(theta * self.data.y))
        scale = min(max(-inner / curvature, 0.0), end) if curvature > 0 else 0.0
        return -scale * (inner + 0.5 * scale * curvature)

    def gap(self, W: FloatArray, eta: FloatArray) -> float:
        """Objective at W minus the best dual value known: an upper bound on the suboptimality of W."""
        return max(self.objective(W, eta) - self.dual_objective(self.dual_candidate(eta), W), 0.0)


StepArguments = tuple[IntArray, FloatArray, float, FloatArray, Scratch]


@dataclass(frozen=True, eq=False)
class PenaltyRows:
    """Rows of the penalty, each a run of features: one feature, or a group that enters or leaves together.

    Matrices (k, m) that belong to these rows have their features in the order of ``features``.
    """

    features: IntArray  # (k,) numbers of the features, row by row
    starts: IntArray  # (R + 1,) where each row begins among them
    penalty: RowPenalty

    @classmethod
    def of(cls, problem: Problem) -> Self:
        """All rows of a problem."""
        groups = problem.data.groups
        p = problem.data.n_features
        if groups is None:
            return cls(np.arange(p), np.arange(p + 1), problem.penalty)
        sizes = np.unique(groups, return_counts=True)[1]
        return cls(np.argsort(groups, kind="stable"), _starts(sizes), problem.penalty)

    @property
    def n_rows(self) -> int:
        """Number of rows R."""
        return len(self.starts) - 1

    @property
    def grouped(self) -> bool:
        """Whether some row has more than one feature."""
        return self.n_rows < len(self.features)

    @cached_property
    def sizes(self) -> IntArray:
        """(R,) Number of features of each row."""
        return np.diff(self.starts)

    @cached_property
    def strengths(self) -> FloatArray:
        """(R,) Strength of the penalty on each row."""
        return self.penalty.strengths(self.n_rows)

    def features_of(self, chosen: IntArray) -> IntArray:
        """Features of some rows."""
        if not self.grouped:
            return self.features[chosen]
        sizes = self.sizes[chosen]
        first = np.cumsum(sizes) - sizes
        return self.features[np.arange(sizes.sum()) + np.repeat(self.starts[chosen] - first, sizes)]

    def rows_of(self, features: BoolArray) -> IntArray:
        """Rows with any of some features (p,)."""
        return np.flatnonzero(np.logical_or.reduceat(features[self.features], self.starts[:-1]))

    def take(self, chosen: IntArray) -> Self:
        """Return some of the rows, in ascending order."""
        if len(chosen) == self.n_rows:
            return self
        starts = _starts(self.sizes[chosen]) if self.grouped else np.arange(len(chosen) + 1)
        return type(self)(self.features_of(chosen), starts, self.penalty.take(chosen))

    def blocks(self, n_tasks: int) -> Blocks:
        """How a matrix (k, m) is cut into these rows."""
        if n_tasks not in self._known_blocks:
            groups = np.repeat(np.arange(self.n_rows), self.sizes) if self.grouped else None
            self._known_blocks[n_tasks] = Blocks(len(self.features), n_tasks, groups=groups)
        return self._known_blocks[n_tasks]

    @cached_property
    def _known_blocks(self) -> dict[int, Blocks]:
        return {}

    def gather(self, W: FloatArray) -> FloatArray:
        """(R, entries) One line per row of the penalty, from a matrix (k, m)."""
        if not self.grouped:
            return W
        if self.n_rows > 0 and np.all(self.sizes == self.sizes[0]):
            return W.reshape(self.n_rows, -1)
        return self.blocks(W.shape[1]).gather(W)

    def value(self, W: FloatArray, norms: FloatArray) -> float:
        """Penalty of W (k, m), whose rows have the given q-norms."""
        value = float(self.strengths @ norms)
        if not self.penalty.entrywise:
            return value
        return value + float(np.abs(W).sum(axis=1) @ np.repeat(self.strengths * self.sparsity, self.sizes))

    def dual_norms(self, gradient: FloatArray) -> FloatArray:
        """(R,) Smallest penalty strength that holds each row at zero against a gradient (k, m)."""
        return self.penalty.dual_norm(self.gather(gradient))

    def norms(self, W: FloatArray) -> FloatArray:
        """(R,) q-norm of each row of W (k, m)."""
        return row_norms(self.gather(W), self.penalty.norm_q)

    @cached_property
    def sparsity(self) -> FloatArray:
        """(R,) Weight of the 1-norm within each row."""
        return np.array(self.penalty.sparsities(self.n_rows))

    def step_arguments(self, n_tasks: int) -> StepArguments:
        """Rows and penalty as the compiled sweeps take them."""
        norm_q, entries = float(self.penalty.norm_q), int(self.sizes.max(initial=1)) * n_tasks
        return self.starts, self.strengths, norm_q, self.sparsity, scratch(norm_q, entries)


def with_zero_sum(theta: FloatArray, part: IntArray, starts: IntArray) -> FloatArray:
    """Make the sum of theta (N,) over each part 0, where ``part`` (N,) numbers them and ``starts`` says where each begins.

    The larger of the positive and the negative side is shrunk to the size of the other, so that no entry changes its
    sign, grows, or leaves the domain of a conjugate.
    """
    positive = np.add.reduceat(np.maximum(theta, 0.0), starts)
    negative = np.add.reduceat(np.maximum(-theta, 0.0), starts)
    above, below = balancing_factors(positive, negative)
    return theta * np.where(theta > 0, above[part], below[part])


def balancing_factors(positive: FloatArray, negative: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Factors of the positive and of the negative entries of each part, from their sums of sizes, that make them cancel."""
    smaller, zero = np.minimum(positive, negative), np.zeros_like(positive)
    above = np.divide(smaller, positive, out=zero.copy(), where=positive > 0)
    return above, np.divide(smaller, negative, out=zero, where=negative > 0)


def _starts(sizes: IntArray) -> IntArray:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
