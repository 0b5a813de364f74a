"""Which entries of the coefficient matrix make up one row of a prior.

Every prior here is a product over rows ``w^i``. A row is one feature over all m tasks, or all features of a group
(such as the columns that stand for one categorical variable) over all tasks, as in the group lasso (Yuan and Lin 2006).
``Blocks`` carries W (p, m) to such a matrix of rows (R, k) and back: ``rows[i]`` holds the entries of W that belong to
row i, and zeros where the row has fewer than k of them. Zeros leave every q-norm and its proximal step as they are.
"""

from dataclasses import dataclass, field

import numpy as np

from bayesmtfs.types import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Blocks:
    """The rows that a prior sees, as positions in the coefficient matrix.

    Parameters
    ----------
    n_features, n_tasks : shape (p, m) of the coefficient matrix
    groups : (p,) integer label per feature; features with the same label share a row. None: every feature is its own row
    present : (p, m) False where a task does not have a feature: the entry is fixed at 0 and does not count. None: all
    features_per_row : least number of features that every row has places for, so that parts of one matrix agree

    Attributes
    ----------
    row_of_feature : (p,) row to which each feature belongs, in the order of the sorted group labels
    sizes : (R,) number of real entries per row: those of features that the task has
    positions : (R, k) place in the flattened W of every entry, ``p * m`` for padding; None where the rows are W itself

    Examples
    --------
    >>> blocks = Blocks(n_features=3, n_tasks=2, groups=np.array([0, 1, 0]))
    >>> W = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    >>> blocks.gather(W)
    array([[1., 2., 5., 6.],
           [3., 4., 0., 0.]])
    >>> bool(np.all(blocks.scatter(blocks.gather(W)) == W))
    True
    """

    n_features: int
    n_tasks: int
    groups: IntArray | None = field(default=None, repr=False)
    present: BoolArray | None = field(default=None, repr=False)
    features_per_row: int = field(default=0, repr=False)
    row_of_feature: IntArray = field(init=False, repr=False)
    sizes: IntArray = field(init=False, repr=False)
    positions: IntArray | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        present = _checked_present(self.present, self.n_features, self.n_tasks)
        row_of_feature = _checked_rows(self.groups, self.n_features)
        n_rows = int(row_of_feature.max(initial=-1)) + 1
        sizes = np.zeros(n_rows, dtype=np.int64)
        np.add.at(sizes, row_of_feature, present.sum(axis=1))
        rows_are_features = self.groups is None and bool(present.all())
        positions = None if rows_are_features else _positions(row_of_feature, present, self.features_per_row)
        object.__setattr__(self, "row_of_feature", row_of_feature)
        object.__setattr__(self, "sizes", sizes)
        object.__setattr__(self, "positions", positions)

    @property
    def n_rows(self) -> int:
        """Number of rows R."""
        return self.sizes.size

    def gather(self, W: FloatArray) -> FloatArray:
        """Rows (R, k) of a coefficient matrix (p, m): W itself, not a copy, where rows are single complete features."""
        if self.positions is None:
            return W
        return np.append(W, 0.0)[self.positions]

    def scatter(self, rows: FloatArray) -> FloatArray:
        """Coefficient matrix (p, m) of rows (R, k); entries of absent features are 0, the padding is dropped."""
        if self.positions is None:
            return rows
        flat = np.zeros(self.n_features * self.n_tasks + 1)
        flat[self.positions] = rows
        return flat[:-1].reshape(self.n_features, self.n_tasks)


def _checked_rows(groups: IntArray | None, n_features: int) -> IntArray:
    """Row of every feature, from its group label."""
    if groups is None:
        return np.arange(n_features)
    labels = np.asarray(groups)
    if labels.shape != (n_features,):
        raise ValueError(
            f"groups has shape {labels.shape} but there are {n_features} features; pass one group label per feature"
        )
    if not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(f"groups has entries of type {labels.dtype}; pass integer labels, such as 0, 0, 1, 2")
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)


def _checked_present(present: BoolArray | None, n_features: int, n_tasks: int) -> BoolArray:
    """Mask of the features that a task has."""
    if present is None:
        return np.ones((n_features, n_tasks), dtype=np.bool_)
    mask = np.asarray(present)
    if mask.shape != (n_features, n_tasks):
        raise ValueError(
            f"present has shape {mask.shape} but there are {n_features} features and {n_tasks} tasks; "
            "pass one truth value per feature and task"
        )
    return mask.astype(np.bool_)


def _positions(row_of_feature: IntArray, present: BoolArray, features_per_row: int) -> IntArray:
    """Flat positions (R, k) of the features of every row, task by task, padded with the position after the last."""
    n_features, n_tasks = present.shape
    padding = n_features * n_tasks
    order = np.argsort(row_of_feature, kind="stable")
    counts = np.bincount(row_of_feature)
    first = np.concatenate([[0], np.cumsum(counts)[:-1]])
    place = np.empty(n_features, dtype=np.int64)  # of a feature within its row
    place[order] = np.arange(n_features) - np.repeat(first, counts)
    positions = np.full((len(counts), int(counts.max(initial=features_per_row)), n_tasks), padding, dtype=np.int64)
    flat = np.arange(padding).reshape(n_features, n_tasks)
    positions[row_of_feature, place] = np.where(present, flat, padding)
    return positions.reshape(len(counts), -1)
