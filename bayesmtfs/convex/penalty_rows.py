"""Some rows of a penalty and the features that make them up: all of them, or those of a working set."""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from bayesmtfs.convex.problem import Problem
from bayesmtfs.priors.blocks import Blocks
from bayesmtfs.priors.row_penalty import RowPenalty
from bayesmtfs.priors.row_prox import Scratch, scratch
from bayesmtfs.types import FloatArray, IntArray

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

    def take(self, chosen: IntArray) -> Self:
        """Return some of the rows."""
        penalty = self.penalty.take(chosen)
        if not self.grouped:
            return type(self)(self.features[chosen], np.arange(len(chosen) + 1), penalty)
        starts = _starts(self.sizes[chosen])
        places = np.arange(starts[-1]) + np.repeat(self.starts[chosen] - starts[:-1], self.sizes[chosen])
        return type(self)(self.features[places], starts, penalty)

    def gather(self, W: FloatArray) -> FloatArray:
        """(R, entries) One line per row of the penalty, from a matrix (k, m)."""
        if not self.grouped:
            return W
        row_of_feature = np.repeat(np.arange(self.n_rows), self.sizes)
        return Blocks(len(W), W.shape[1], groups=row_of_feature).gather(W)

    def value(self, W: FloatArray, norms: FloatArray) -> float:
        """Penalty of W (k, m), whose rows have the given q-norms."""
        value = float(self.strengths @ norms)
        if self.penalty.entrywise:
            entries = np.abs(W).sum(axis=1) * np.repeat(self.strengths * self.sparsity, self.sizes)
            value += float(entries.sum())
        return value

    def dual_norms(self, gradient: FloatArray) -> FloatArray:
        """(R,) Smallest penalty strength that holds each row at zero against a gradient (k, m)."""
        return self.penalty.dual_norm(self.gather(gradient))

    def norms(self, W: FloatArray) -> FloatArray:
        """(R,) q-norm of each row of W (k, m)."""
        return RowPenalty(1.0, self.norm_q).norms(self.gather(W))

    def penalty_is_exactly(self, norm_q: float) -> bool:
        """Whether the penalty is this norm of each row and nothing else."""
        return not self.penalty.entrywise and self.penalty.norm_q == norm_q

    @property
    def norm_q(self) -> float:
        """Norm within a row."""
        return float(self.penalty.norm_q)

    @cached_property
    def sparsity(self) -> FloatArray:
        """(R,) Weight of the 1-norm within each row."""
        return np.array(self.penalty.sparsities(self.n_rows))

    def step_arguments(self, n_tasks: int) -> StepArguments:
        """Rows and penalty as the compiled sweeps take them."""
        entries = int(self.sizes.max(initial=1)) * n_tasks
        return self.starts, self.strengths, self.norm_q, self.sparsity, scratch(self.norm_q, entries)


def _starts(sizes: IntArray) -> IntArray:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
