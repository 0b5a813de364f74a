"""Newton steps on deviations and a shared mean at once, by a system with as many unknowns as there are observations.

On the rows of the deviations V that are not zero, and on the entries of the mean a that are not, the objective of
`shared_mean` is smooth. A Newton step minimises its quadratic model there,

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
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.priors.row_penalty import RowPenalty
from bayesmtfs.types import BoolArray, FloatArray, IntArray

DAMPING = 1e-5  # identity that D gets, relative to the mean curvature of the loss in an entry of V
STIFF = 1e4  # curvature of entries that must not move, relative to the largest of the loss
TIED = 1e-9  # relative difference below which entries share the largest absolute value
LEAST_PIVOT = 1e-13  # of a term of rank one: below is rounding
NO_CURVATURE = 1e-300


class MeanDesign:
    """A design as the mean meets it: one row per observation, whatever its task."""

    def __init__(self, data: TaskData) -> None:
        self.data, self.X = data, data.design
        self.repeats = data.shared_design and data.n_tasks > 1
        self.members: BoolArray = np.zeros(data.n_features, dtype=bool)

    def predictor(self, mean: FloatArray) -> FloatArray:
        """(N,) ``x'a`` for every observation."""
        products = np.asarray(self.X @ mean)
        return products[self.data.rows] if self.repeats else products

    def adjoint(self, theta: FloatArray) -> FloatArray:
        """(p,) Sums over all observations of x times theta."""
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
