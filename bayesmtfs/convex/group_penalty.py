"""The 2-norm of groups of features, on a matrix (k, m) with one line per feature.

    sum_g weights_g ||W_g||_2,      W_g some lines of W that are next to each other

Lines in place of rows are what least squares on one design works on (`shared_rows`): its Gram matrix is one of columns.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bayesmtfs.priors.row_penalty import RowCurvature, RowPenalty
from bayesmtfs.types import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class GroupPenalty:
    """``sum_g weights_g ||W_g||_2`` with W_g some lines of W (k, m): features that enter together.

    It offers what `RowPenalty` does where each line is a row of its own.
    """

    weights: FloatArray  # (R,)
    starts: IntArray  # (R + 1,) where each row begins

    norm_q: ClassVar[float] = 2.0
    is_euclidean: ClassVar[bool] = True

    @property
    def sizes(self) -> IntArray:
        """(R,) Number of lines of each row."""
        return np.diff(self.starts)

    def norms(self, W: FloatArray) -> FloatArray:
        """(R,) 2-norm of every row."""
        return group_norms(np.sqrt(np.einsum("im,im->i", W, W)), self.starts)

    def value(self, W: FloatArray) -> float:
        """Penalty of W."""
        return float(self.weights @ self.norms(W))

    def dual_norm(self, W: FloatArray) -> FloatArray:
        """(R,) 2-norm of every row over its weight."""
        return self.norms(W) / self.weights

    def prox(self, W: FloatArray, step: float) -> FloatArray:
        """Proximal point, as a new array."""
        norms, thresholds = self.norms(W), step * self.weights
        kept = norms > thresholds
        factors = np.where(kept, 1.0 - thresholds / np.where(kept, norms, 1.0), 0.0)
        return np.repeat(factors, self.sizes)[:, None] * W

    def lines(self, rows: BoolArray) -> BoolArray:
        """(k,) Lines of some rows (R,)."""
        return np.repeat(rows, self.sizes)

    def take(self, lines: IntArray) -> "GroupPenalty":
        """Return the penalty of some rows, all of whose lines are given."""
        rows = np.searchsorted(self.starts, lines, side="right") - 1
        rows = rows[lines == self.starts[rows]]
        return GroupPenalty(self.weights[rows], np.concatenate([[0], np.cumsum(self.sizes[rows])]))

    def curvature(self, W: FloatArray, stiff: float) -> RowCurvature:
        """Curvature at rows that are not zero."""
        norms = self.norms(W)
        scale = np.minimum(self.weights / norms, stiff)
        sizes = self.sizes
        return RowCurvature(np.repeat(scale, sizes)[:, None], scale, W / np.repeat(norms, sizes)[:, None], self.starts)


def group_norms(norms: FloatArray, starts: IntArray) -> FloatArray:
    """(R,) 2-norms of rows from those (k,) of their lines; ``starts`` (R + 1,) says where each row begins."""
    if len(norms) == len(starts) - 1:
        return norms
    largest = float(norms.max(initial=0.0)) or 1.0
    return largest * np.sqrt(np.add.reduceat((norms / largest) ** 2, starts[:-1]))


def active_lines(penalty: "RowPenalty | GroupPenalty", W: FloatArray) -> IntArray:
    """Places of the lines of W (k, m) whose rows are not zero."""
    alive = W.any(axis=1)
    if isinstance(penalty, GroupPenalty) and len(alive) > 0:
        alive = penalty.lines(np.logical_or.reduceat(alive, penalty.starts[:-1]))
    return np.flatnonzero(alive)
