"""The part of a problem that EM works on: active features only, dense, in units that make every floor a plain number.

Features are divided by their pooled deviation within tasks (one unit per group) and targets of the squared loss by
theirs (`data.scaling.within_task_units`), so that coefficients are measured in ``sd(y) / sd(x_i)``. The Jeffreys prior
does not notice: it is scale free. All thresholds and floors then mean the same for every data set, and a fit to scaled
data is the scaled fit.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import scipy.sparse as sp

from bayesmtfs.data.inputs import Design
from bayesmtfs.data.scaling import WithinTaskUnits, within_task_units
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.em.ridge import Curvature, curvature
from bayesmtfs.families import Family, with_offset
from bayesmtfs.priors.blocks import Blocks
from bayesmtfs.types import BoolArray, FloatArray, IntArray

INTERCEPT_STEPS = 20
LEAST_CURVATURE = 1e-9  # of a task's weight, below which an intercept does not move
LARGEST_DENSE = 2**28  # numbers in the dense copy of the active columns (2 GiB)


class EMProblem(NamedTuple):
    """What is fitted, and what 1 stands for in it."""

    data: TaskData
    family: Family  # smooth, with a curvature; labels are -1 and +1
    fit_intercept: bool  # one intercept per task
    units: WithinTaskUnits


def em_problem(data: TaskData, family: Family, fit_intercept: bool = True) -> EMProblem:
    """A problem in the units that the data have."""
    centre = fit_intercept or family.free_level or family.has_cuts
    return EMProblem(data, family, fit_intercept, within_task_units(data, centre, family.quadratic))


@dataclass(frozen=True, eq=False)
class ActiveTasks:
    """Dense scaled designs of the active features, one per task."""

    designs: tuple[FloatArray, ...]  # (n_t, p) per task
    y: FloatArray  # (N,)
    weight: FloatArray  # (N,)
    spans: Sequence[tuple[int, int]]
    task: IntArray  # (N,)
    family: Family
    fit_intercept: bool
    row_labels: IntArray  # (p,) features with the same label are one row
    present: BoolArray | None  # (p, m)

    @cached_property
    def blocks(self) -> Blocks:
        """Rows of the prior."""
        own_rows = len(np.unique(self.row_labels)) == len(self.row_labels)
        return Blocks(len(self.row_labels), self.n_tasks, None if own_rows else self.row_labels, self.present)

    @property
    def n_tasks(self) -> int:
        """Number of tasks m."""
        return len(self.designs)

    @cached_property
    def counts(self) -> FloatArray:
        """(m,) Total weight of each task: its number of observations."""
        return self.sums(self.weight)

    def curvature_at(self, eta: FloatArray) -> Curvature:
        """Curvature of the losses at a linear predictor; that of the squared loss is the same at every one."""
        return self._fixed_curvature if self.family.quadratic else self._curvature_at(eta)

    @cached_property
    def _fixed_curvature(self) -> Curvature:
        return self._curvature_at(self.y)

    def _curvature_at(self, eta: FloatArray) -> Curvature:
        curved = self.weight * self.family.curvature(self.y, eta)
        return curvature(self.designs, [curved[a:b] for a, b in self.spans], self.fit_intercept)

    def sums(self, values: FloatArray) -> FloatArray:
        """(m,) Sums of (N,) values over each task."""
        sums: FloatArray = np.add.reduceat(values, [start for start, _ in self.spans])
        return sums

    def linear_predictor(self, W: FloatArray, intercept: FloatArray) -> FloatArray:
        """(N,) x' w_t + b_t."""
        return np.concatenate([X @ W[:, t] + intercept[t] for t, X in enumerate(self.designs)])

    def adjoint(self, values: FloatArray) -> FloatArray:
        """(p, m) Sum of x times the value over each task."""
        columns = [X.T @ values[start:stop] for X, (start, stop) in zip(self.designs, self.spans, strict=True)]
        return np.column_stack(columns)

    def losses(self, eta: FloatArray) -> FloatArray:
        """(m,) Weighted loss of each task; not finite where a step has gone too far."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self.sums(self.weight * self.family.value(self.y, eta))

    def null_intercept(self) -> FloatArray:
        """(m,) Best intercept at W = 0."""
        if not self.fit_intercept:
            return np.zeros(self.n_tasks)
        best = [self.family.of_rows(a, b).best_constant(self.y[a:b], self.weight[a:b]) for a, b in self.spans]
        return np.array(best) if self.family.quadratic else self._newton_intercept(np.array(best))

    def _newton_intercept(self, intercept: FloatArray) -> FloatArray:
        """Go on to the best intercept at W = 0 where it was found to a few digits only."""
        for _ in range(INTERCEPT_STEPS):
            eta = intercept[self.task]
            slopes = self.sums(self.weight * self.family.gradient(self.y, eta))
            curved = self.sums(self.weight * self.family.curvature(self.y, eta))
            step = -np.divide(slopes, curved, out=np.zeros_like(slopes), where=curved > LEAST_CURVATURE * self.counts)
            lower = self.losses((intercept + step)[self.task]) < self.losses(eta)
            if not lower.any():
                break
            intercept = np.where(lower, intercept + step, intercept)
        return intercept

    def restricted(self, kept: BoolArray) -> Self:
        """Return the same tasks with fewer features."""
        present = None if self.present is None else self.present[kept]
        same = all(X is self.designs[0] for X in self.designs)
        designs = (self.designs[0][:, kept],) * self.n_tasks if same else tuple(X[:, kept] for X in self.designs)
        fewer = replace(self, designs=designs, row_labels=self.row_labels[kept], present=present)
        if "_fixed_curvature" in self.__dict__:  # what is known already need not be computed again
            fewer.__dict__["_fixed_curvature"] = self._fixed_curvature.restricted(kept)
        return fewer


def rows_of(data: TaskData) -> Blocks:
    """Rows of the prior over all features of the data."""
    return Blocks(data.n_features, data.n_tasks, groups=data.groups, present=data.present)


def activate(
    data: TaskData, family: Family, fit_intercept: bool, units: WithinTaskUnits, active: BoolArray
) -> ActiveTasks:
    """Dense scaled copy of the active columns (p,) of the data, whole groups of them."""
    kept = np.flatnonzero(active)
    size = data.n_observations * len(kept)
    if data.is_sparse and size > LARGEST_DENSE:
        raise ValueError(
            f"X is sparse and {len(kept)} active features over {data.n_observations} observations make a dense matrix "
            f"of {size} numbers, more than the {LARGEST_DENSE} allowed; raise start_strength, so that fewer are active"
        )
    factor = 1.0 / units.feature[kept]
    sources = data.task_designs[:1] if data.is_complete else data.task_designs
    designs = tuple(dense(X[:, kept]) * factor for X in sources)
    return ActiveTasks(
        designs=designs * (data.n_tasks // len(designs)),
        y=np.asarray(data.y, dtype=np.float64) / units.target,
        weight=data.weight,
        spans=data.spans,
        task=data.task,
        family=with_offset(family, data.eta_offset),
        fit_intercept=fit_intercept,
        row_labels=rows_of(data).row_of_feature[kept],
        present=None if data.present is None else data.present[kept],
    )


def dense(X: Design) -> FloatArray:
    """A design in double precision that is not sparse."""
    return np.asarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)
