"""How a result came about: how the computation ended, and with which versions."""

import functools
import importlib.metadata
import math
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmtfs.types import FloatArray

_PACKAGES = ("bayesmtfs", "numpy", "scipy", "scikit-learn", "numba", "pymc", "pytensor", "arviz", "nutpie", "xarray")


@functools.cache
def _installed_versions() -> Mapping[str, str]:
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def current_versions() -> dict[str, str]:
    """Versions of Python, bayesmtfs and the installed packages that its results depend on."""
    return dict(_installed_versions())


@dataclass(frozen=True, kw_only=True, eq=False)
class Convergence:
    """How a computation ended.

    Parameters
    ----------
    converged : bool
        Whether the route's own stopping rule was met.
    n_iter : int
        Iterations, or draws per chain.
    objective : float, default nan
        Last value of the objective, where there is one.
    gap : float, optional
        Upper bound on objective minus minimum; None (or nan) where the route has no such certificate.
    tol : float, optional
        Tolerance that was asked for.
    objective_trace : (k,) array, optional
        Objective over the iterations, lower is better.
    message : str, default ""
        Anything else the user should know, in one sentence.
    advice : str, default "raise max_iter or tol"
        What to do where it did not converge.
    """

    converged: bool
    n_iter: int
    objective: float = math.nan
    gap: float | None = None
    tol: float | None = None
    objective_trace: FloatArray = field(default_factory=lambda: np.empty(0), repr=False)
    message: str = ""
    advice: str = "raise max_iter or tol"

    def __post_init__(self) -> None:
        set_fields(self, converged=bool(self.converged), n_iter=int(self.n_iter), objective=float(self.objective))
        set_fields(self, gap=None if self.gap is None or math.isnan(self.gap) else float(self.gap))
        set_fields(self, objective_trace=frozen_copy(np.asarray(self.objective_trace, dtype=np.float64)))

    def verdict(self) -> str:
        """Say in plain words how the computation ended.

        Examples
        --------
        >>> Convergence(converged=True, n_iter=12, objective=3.5, gap=2e-7, tol=1e-6).verdict()
        'Converged in 12 iterations (tol 1e-06); the objective 3.5 is at most 2e-07 above its minimum.'
        """
        iterations = f"{self.n_iter} iteration{'' if self.n_iter == 1 else 's'}"
        tolerance = "" if self.tol is None else f" (tol {self.tol:g})"
        sentence = f"{'Converged in' if self.converged else 'NOT converged after'} {iterations}{tolerance}"
        if not math.isnan(self.objective):
            certificate = "" if self.gap is None else f" is at most {self.gap:.3g} above its minimum"
            sentence += f"; the objective {self.objective:.6g}{certificate or ' has no certificate on this route'}"
        if not self.converged:
            sentence += f"; {self.advice}"
        return f"{sentence}.{' ' if self.message else ''}{self.message}"


def frozen_copy(array: NDArray[Any]) -> NDArray[Any]:
    """Copy of an array that cannot be written to."""
    copy = array.copy()
    copy.flags.writeable = False
    return copy


def set_fields(instance: object, **values: Any) -> None:
    """Set fields of a frozen dataclass while it is being made."""
    for name, value in values.items():
        object.__setattr__(instance, name, value)
