"""Anderson's extrapolation of a sequence of points, each made from the one before by the same steps.

Where epochs of coordinate descent shrink the distance to the minimum by much the same factors again and again, an affine
combination of the points they led to is far closer to it than any of them: the one whose moves cancel best,

    minimise ||sum_k c_k (end_k - start_k)||^2   subject to   sum_k c_k = 1,

(Anderson 1965, *Journal of the ACM* 12; for coordinate descent Bertrand and Massias 2021, AISTATS). The next epoch starts
at the combination, and is a step of the sequence like the others.
"""

import numpy as np

from bayesmtfs.types import FloatArray

LONGEST = 5  # epochs that are combined
SINGULAR = 1e-12  # of the squares of all moves, added to their Gram matrix: moves may be multiples of each other


class History:
    """The last epochs: their moves, and the points and states that they led to.

    A state is what is affine in the point. An epoch has a place in the arrays, one row each, and the oldest loses it.
    """

    def __init__(self, W: FloatArray, state: FloatArray) -> None:
        self.shapes = W.shape, state.shape
        self.moves, self.ends = np.zeros((2, LONGEST, W.size))
        self.states = np.zeros((LONGEST, state.size))
        self.products = np.zeros((LONGEST, LONGEST))  # of the moves with each other
        self.places: list[int] = []  # of the epochs, from the oldest

    def add(self, start: FloatArray, W: FloatArray, state: FloatArray) -> None:
        """Remember an epoch from a start to W.

        Epochs that led to other numbers where W is 0 now are forgotten: what left must not come back.
        """
        place = next((free for free in range(LONGEST) if free not in self.places), None)
        place = self.places.pop(0) if place is None else place
        self.moves[place], self.ends[place], self.states[place] = (W - start).ravel(), W.ravel(), state.ravel()
        self.products[place] = self.products[:, place] = self.moves @ self.moves[place]
        zeros = np.flatnonzero(self.ends[place] == 0.0)
        while self.places and self.ends[self.places[0], zeros].any():
            self.places.pop(0)
        self.places.append(place)

    def forget(self) -> None:
        """Forget all epochs but the last."""
        del self.places[:-1]

    def combined(self) -> tuple[FloatArray, FloatArray] | None:
        """The combination of the points, and that of their states; None of fewer than two, or where nothing moved."""
        count, products = len(self.places), self.products[np.ix_(self.places, self.places)]
        total = float(np.trace(products))
        if count < 2 or not 0.0 < total < np.inf:
            return None
        found = np.linalg.solve(products / total + SINGULAR * np.eye(count), np.ones(count))
        weights = np.zeros(LONGEST)
        weights[self.places] = found / found.sum()
        return (weights @ self.ends).reshape(self.shapes[0]), (weights @ self.states).reshape(self.shapes[1])
