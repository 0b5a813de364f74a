"""What a likelihood, a prior and a solver must offer.

A method is a likelihood x a prior on the rows of W + a route. Everything in between talks through these three
protocols, so that a new loss or a new prior is one new file.

Shapes, here and everywhere: W is ``(p, m)``, features by tasks, as in the papers; ``y``, ``eta`` and row weights are
``(n,)``, one entry per observed target, rows sorted by task.
"""

from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
LossScale = Literal["mean", "sum"]


class ConvergenceWarning(UserWarning):
    """A solver stopped before its certificate reached the tolerance."""


class PosteriorWarning(UserWarning):
    """A posterior whose draws should not be trusted yet."""


class SelectionWarning(UserWarning):
    """A selection that is empty, unstable or not what it looks like."""


class DataWarning(UserWarning):
    """Data that can be fitted, but hold something the user should know of."""


class Likelihood(Protocol):
    """One loss: minus the log-density of ``y`` given the linear predictor ``eta``, up to a constant.

    All methods act element by element and broadcast. Classification losses take ``y`` in {-1, +1}.
    """

    @property
    def loss(self) -> str:
        """Name of the loss as the user writes it, such as ``"squared"``."""

    @property
    def curvature(self) -> float:
        """Upper bound of the second derivative in eta; ``inf`` where the loss is not smooth."""

    def value(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Loss at eta."""

    def gradient(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Derivative in eta (a subgradient where the loss is not smooth)."""

    def hessian(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Second derivative in eta (0 where the loss is linear)."""

    def conjugate(self, y: FloatArray, dual: FloatArray) -> FloatArray:
        """Convex conjugate ``sup_eta dual * eta - value(y, eta)``; ``inf`` outside its domain."""

    def best_constant(self, y: FloatArray, weight: FloatArray) -> float:
        """Constant eta of the smallest weighted loss."""

    def mean(self, eta: FloatArray) -> FloatArray:
        """Expected target at eta: the regression function, or the probability of class +1."""


class RowPenalty(Protocol):
    """A convex penalty that is a sum over the rows of a matrix ``(rows, entries)``.

    A row is one feature over all tasks, or all features of a group over all tasks (see ``priors.blocks``).
    """

    def value(self, rows: FloatArray) -> float:
        """Penalty, strength included."""

    def dual_norm(self, rows: FloatArray) -> FloatArray:
        """Per row, the smallest strength at which this row of the gradient keeps the coefficients at zero."""

    def prox(self, rows: FloatArray, step: float) -> FloatArray:
        """``argmin_z 1/2 ||z - rows||^2 + step * value(z)``, row by row, exact zeros included."""


class Prior(Protocol):
    """A prior on the coefficients."""

    def negative_log_density(self, W: FloatArray) -> float:
        """Minus the log-density of W, with its normaliser where there is one."""


class Solution(NamedTuple):
    """What a solver gives back."""

    W: FloatArray  # (p, m)
    intercept: FloatArray  # (m,)
    objective: float
    gap: float  # a true upper bound on objective - minimum; nan where the route has no certificate
    scale: float  # objective at W = 0: converged means gap <= tol * scale
    converged: bool
    n_iter: int
    objective_trace: FloatArray  # (n_iter + 1,) or shorter
    interrupted: bool = False  # stopped by Ctrl-C: the values are the best so far
    noise: FloatArray | None = None  # (m,), where the route estimates it


class Solver(Protocol):
    """Minimise a problem from a start."""

    def __call__(self, problem: Any, start: Solution | None = None) -> Solution:
        """Solve."""
