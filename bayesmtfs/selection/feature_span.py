"""What a set of features of one task can still explain: a growing orthonormal basis in the metric of row weights.

For weights v and features X the basis Q spans ``sqrt(v) [1, X_S]``. For a residual h orthogonal to it, the square that a
further feature j takes off ``||h||^2`` is

    (x_j' sqrt(v) h)^2 / ||(I - Q Q') sqrt(v) x_j||^2,

the step of orthogonal least squares (Chen, Billings and Luo 1989, International Journal of Control 50). The
squared lengths in the denominator are kept up to date as the basis grows: O(n p) per feature, without a Gram matrix.
"""

import numpy as np
import scipy.sparse as sp

from bayesmtfs.data.inputs import Design
from bayesmtfs.types import FloatArray, IntArray

DEPENDENT = 1e-8  # length that is left of a unit column, below which it lies in the span


class FeatureSpan:
    """Span of the chosen features of one task.

    Parameters
    ----------
    X : (n, p) design
    weight : (n,) of the rows, above 0
    with_intercept : whether the span holds the constant

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    >>> span = FeatureSpan(X, np.ones(4), with_intercept=True)
    >>> span.gains(span.residual(3 * X[:, 0] + X[:, 1] + 7), [np.array([0]), np.array([1])])
    array([36.,  4.])
    """

    def __init__(self, X: Design, weight: FloatArray, with_intercept: bool) -> None:
        self.root = np.sqrt(weight)
        self.X = X
        if with_intercept and not sp.issparse(X):  # a large mean would cost digits in the lengths that are left
            self.X = X - weight @ X / weight.sum()
        self.length: FloatArray = np.asarray(np.sqrt(weight @ _squared(self.X))).ravel()
        self.left: FloatArray = np.square(self.length)
        self.basis: FloatArray = np.empty((len(weight), 0))
        if with_intercept:
            self._extend(self.root[:, None])

    def add(self, features: IntArray) -> None:
        """Take features into the span."""
        self._extend(self._columns(features))

    def residual(self, values: FloatArray) -> FloatArray:
        """(n,) What the span does not explain of sqrt(v) times the values."""
        scaled = self.root * values
        return scaled - self.basis @ (self.basis.T @ scaled)

    def gains(self, residual: FloatArray, blocks: list[IntArray]) -> FloatArray:
        """(blocks,) How much each block of features takes off the squared length of a residual of this span."""
        score = np.asarray(self.X.T @ (self.root * residual)).ravel()
        free = self.left > np.square(DEPENDENT * self.length)
        single = np.zeros(len(score))
        single[free] = np.square(score[free]) / self.left[free]
        return np.array(
            [single[block[0]] if len(block) == 1 else self._block_gain(residual, block) for block in blocks]
        )

    def _block_gain(self, residual: FloatArray, block: IntArray) -> float:
        return float(np.sum(np.square(orthonormal(self._columns(block), self.basis).T @ residual)))

    def _columns(self, features: IntArray) -> FloatArray:
        columns = self.X[:, features]
        return self.root[:, None] * (columns.toarray() if sp.issparse(columns) else columns)

    def _extend(self, columns: FloatArray) -> None:
        new = orthonormal(columns, self.basis)
        self.basis = np.column_stack([self.basis, new])
        explained = np.asarray(self.X.T @ (self.root[:, None] * new))
        self.left = np.maximum(self.left - np.sum(np.square(explained), axis=1), 0.0)


def orthonormal(columns: FloatArray, basis: FloatArray) -> FloatArray:
    """(n, r) Orthonormal basis of what columns add to a span, r at most their number."""
    length = np.linalg.norm(columns, axis=0)
    unit = columns[:, length > 0] / length[length > 0]
    for _ in range(2):  # once more for what rounding left
        unit = unit - basis @ (basis.T @ unit)
    left, size, _ = np.linalg.svd(unit, full_matrices=False)
    return left[:, size > DEPENDENT]


def _squared(X: Design) -> Design:
    return X.multiply(X) if sp.issparse(X) else np.square(X)
