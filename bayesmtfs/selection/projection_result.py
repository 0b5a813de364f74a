"""What projection-predictive selection gives back: the path, its loss, and the smallest adequate submodel."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmtfs.selection.submodels import Submodel
from bayesmtfs.selection.tables import Backend, as_frame
from bayesmtfs.types import FloatArray, IntArray


@dataclass(frozen=True, eq=False, repr=False)
class ProjectionSelection:
    """Submodels along the search path; entry k of every array of sizes has k features (or groups).

    Attributes
    ----------
    path : (steps,) names in the order in which they enter; those of a group joined by " + "
    steps : numbers of the features that each step adds
    loss : (steps + 1,) what a submodel predicts worse than the reference, in elpd; smaller is better
    se : (steps + 1,) standard error of the loss
    elpd : (steps + 1,) expected log predictive density of the submodels
    elpd_reference : float
    divergence : (steps + 1,) mean Kullback-Leibler divergence of the projected draws from the reference
    fold_share : (steps,) or None
        With ``cv``, share of the folds in which what enters at step k is among the first k + 1.
    size : number of steps of the smallest adequate submodel
    submodel : the projected draws of that size
    method : "cross-validation" or "leave-one-out"
    feature_names : (p,)
    tasks : (n_tasks,) labels
    """

    path: NDArray[np.str_]
    steps: tuple[IntArray, ...]
    loss: FloatArray
    se: FloatArray
    elpd: FloatArray
    elpd_reference: float
    divergence: FloatArray
    fold_share: FloatArray | None
    size: int
    submodel: Submodel
    method: str
    feature_names: NDArray[np.str_]
    tasks: NDArray[Any]

    @property
    def features(self) -> NDArray[np.str_]:
        """Names of the features of the smallest adequate submodel, in the order in which they enter."""
        return self.feature_names[self.submodel.features]

    @property
    def coef(self) -> FloatArray:
        """(n_tasks, p) Posterior mean of the projected coefficients, zeros for features that are left out."""
        W = np.zeros((len(self.tasks), len(self.feature_names)))
        W[:, self.submodel.features] = self.submodel.coef.mean(axis=0).T
        return W

    @property
    def intercept(self) -> FloatArray:
        """(n_tasks,) Posterior mean of the projected intercepts."""
        return self.submodel.intercept.mean(axis=0)

    def get_support(self, indices: bool = False) -> Any:
        """Features of the smallest adequate submodel.

        Parameters
        ----------
        indices : return the numbers of the features instead of a mask
        """
        chosen = np.zeros(len(self.feature_names), dtype=bool)
        chosen[self.submodel.features] = True
        return np.flatnonzero(chosen) if indices else chosen

    def to_frame(self, backend: Backend = "pandas") -> Any:
        """One row per size, from no feature on.

        Parameters
        ----------
        backend : {"pandas", "polars"}
        """
        columns: dict[str, NDArray[Any]] = {
            "size": np.arange(len(self.loss)),
            "feature": np.concatenate([["(none)"], self.path]),
            "loss": self.loss,
            "se": self.se,
            "elpd": self.elpd,
            "divergence": self.divergence,
            "chosen": np.arange(len(self.loss)) <= self.size,
        }
        if self.fold_share is not None:
            columns["fold_share"] = np.concatenate([[1.0], self.fold_share])
        return as_frame(columns, backend)

    def summary(self) -> str:
        """What was chosen and how much it loses, in words."""
        names = self.path[: self.size].tolist()
        shown = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
        apart = (
            "Search and judgement are apart: both were repeated without each fold."
            if self.fold_share is not None
            else "The search has seen all rows, so that the loss is a little too small; pass cv to repeat it."
        )
        return (
            f"{len(self.features)} of {len(self.feature_names)} features predict as well as all of them"
            f"{': ' + shown if shown else ''}.\nTheir loss against the whole posterior is {self.loss[self.size]:.3g} "
            f"(standard error {self.se[self.size]:.2g}) by {self.method}; no feature at all loses {self.loss[0]:.3g}.\n"
            f"{apart}"
        )

    def __repr__(self) -> str:
        shown = ", ".join(self.path[: min(self.size, 6)]) + (", ..." if self.size > 6 else "")
        return (
            f"ProjectionSelection({len(self.features)} of {len(self.feature_names)} features"
            f"{': ' + shown if shown else ''}; loss {self.loss[self.size]:.3g} +- {self.se[self.size]:.2g} by "
            f"{self.method})"
        )
