"""Inner products of the columns in use, written out or not.

Least squares on the columns in use (`shared_rows`) asks for ``Z'Z`` times a matrix, for blocks of it, and for what
coordinate descent keeps up to date: the correlations of all rows where ``Z'Z`` is there, the residuals where it is not.
"""

from functools import cached_property
from typing import Any

import numpy as np

from bayesmtfs.types import FloatArray, IntArray


class StoredGram:
    """Z'Z, written out; descent keeps the correlations of all rows (k, m) up to date."""

    CHECK_SMALL_EVERY = 1
    SKIPS_ZEROS = False

    def __init__(self, Q: FloatArray) -> None:
        self.Q = Q

    def times(self, V: FloatArray) -> FloatArray:
        """Z'Z V."""
        rows = np.flatnonzero(V.any(axis=1))
        return self.times_some(rows, V[rows])

    def times_some(self, rows: IntArray, V: FloatArray) -> FloatArray:
        """Z'Z times what is V at some rows and 0 elsewhere."""
        return self.Q[rows].T @ V

    def block(self, rows: IntArray) -> FloatArray:
        """Z'Z of some rows."""
        return self.Q.take(rows, axis=0).take(rows, axis=1)

    def neighbours(self, part: slice) -> FloatArray:
        """Z'Z of rows next to each other, for descent."""
        return self.Q[part, part].copy()

    def epoch_cost(self, W: FloatArray, n_active: int) -> float:
        """Operations of an epoch of coordinate descent: rows that stay zero cost next to nothing."""
        return 2.0 * n_active * W.size

    def state(self, target: FloatArray, W: FloatArray) -> FloatArray:
        """What descent keeps up to date; the target (k, m) is Z'Y."""
        return target - self.times(W)

    def correlation(self, state: FloatArray, part: slice, W: FloatArray) -> FloatArray:
        """Correlations of some rows with the residuals at W (k, m)."""
        return state[part]

    def move(self, state: FloatArray, part: slice, change: FloatArray) -> None:
        """Account for a change of some rows of W."""
        rows = np.flatnonzero(change.any(axis=1))
        state -= self.Q[part][rows].T @ change[rows]


class ColumnGram:
    """Z'Z, never written out: for more columns than it would pay for.

    Descent keeps up to date by how much the residuals (m, n) differ from those at a point whose correlations are known. The
    difference is small, so that the same columns in single precision, ``rough``, do for its products.
    """

    CHECK_SMALL_EVERY = 2
    SKIPS_ZEROS = True

    def __init__(self, columns: Any, known: tuple[FloatArray, FloatArray] | None = None, rough: Any = None) -> None:
        self.columns, self.known = columns, known  # a point (k, m) and its correlations; None: the target at W = 0
        self.rough = columns if rough is None else rough
        self.parts: dict[int | None, Any] = {None: self.rough}
        self.blocks: dict[int, FloatArray] = {}
        self.kept_rows, self.kept_block = np.zeros(0, dtype=np.int64), np.zeros((0, 0))

    @cached_property
    def written(self) -> Any:
        """The columns, written out: Newton steps take many products with them, descent none."""
        return self.columns.written()

    def times(self, V: FloatArray) -> FloatArray:
        """Z'Z V."""
        return -self.written.correlations(-self.written.predict_active(V), V)

    def times_some(self, rows: IntArray, V: FloatArray) -> FloatArray:
        """Z'Z times what is V at some rows and 0 elsewhere."""
        whole = np.zeros((len(self.columns.length), V.shape[1]))
        whole[rows] = V
        return -self.written.correlations(-self.written.take(rows).predict(V), whole)

    def block(self, rows: IntArray) -> FloatArray:
        """Z'Z of some rows; it is kept, since those of the next step are mostly among them."""
        if not np.isin(rows, self.kept_rows).all():
            self.kept_rows = np.sort(rows)
            self.kept_block = self.written.take(self.kept_rows).own_gram()
        places = np.searchsorted(self.kept_rows, rows)
        return self.kept_block.take(places, axis=0).take(places, axis=1)

    def neighbours(self, part: slice) -> FloatArray:
        """Z'Z of rows next to each other, for descent: rounding of theirs slows it down at most."""
        if part.start not in self.blocks:
            self.blocks[part.start] = self._part(part).own_gram().astype(np.float64)
        return self.blocks[part.start]

    def epoch_cost(self, W: FloatArray, n_active: int) -> float:
        """Operations of an epoch of coordinate descent, whatever is zero."""
        return 4.0 * self.rough.A.shape[1] * W.size

    def state(self, target: FloatArray, W: FloatArray) -> FloatArray:
        """What descent keeps up to date; the target (k, m) is Z'Y."""
        self.known = (np.zeros_like(W), target) if self.known is None else self.known
        return -self.columns.predict_active(W - self.known[0])

    def correlation(self, state: FloatArray, part: slice, W: FloatArray) -> FloatArray:
        """Correlations of some rows with the residuals at W (k, m)."""
        assert self.known is not None
        known_W, known_correlation = self.known
        return known_correlation[part] + self._part(part).correlations(state, W[part] - known_W[part])

    def move(self, state: FloatArray, part: slice, change: FloatArray) -> None:
        """Account for a change of some rows of W."""
        state -= self._part(part).predict(change)

    def loss(self, state: FloatArray, W: FloatArray) -> float:
        """1/2 ||Y - Z W||^2, up to a constant: from the residuals that are known, so that little is lost to rounding."""
        assert self.known is not None
        change = W - self.known[0]
        square = float(np.vdot(state, state))
        if self.columns.own.any():
            square += float(self.columns.own @ np.einsum("km,km->k", change, change))
        return square / 2 - float(np.einsum("km,km->", change, self.known[1]))

    def _part(self, part: slice) -> Any:
        if part.start not in self.parts:
            self.parts[part.start] = self.rough.take(part)
        return self.parts[part.start]


RowGram = StoredGram | ColumnGram
