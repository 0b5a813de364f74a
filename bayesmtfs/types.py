"""Types and warnings that everything shares.

Shapes, here and everywhere: W is ``(p, m)``, features by tasks, as in the papers; ``y``, ``eta`` and row weights are
``(n,)``, one entry per observed target, rows sorted by task.
"""

import os
import warnings
from typing import Literal, NamedTuple

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


_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def warn(message: str, category: type[Warning]) -> None:
    """Warn as if from the first line outside of the package, which is the user's."""
    warnings.warn(message, category, skip_file_prefixes=(_PACKAGE,))


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
