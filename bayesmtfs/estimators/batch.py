"""What every fit to rows that are all there at once can be told, and its checks.

The parameters of an estimator are the fields of a dataclass: a class names what it adds to its base, or gives another
default, and scikit-learn reads them from the constructor.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from numpy.typing import ArrayLike

from bayesmtfs.estimators.base import MultiTaskEstimator


@dataclass(kw_only=True, repr=False, eq=False)
class BatchEstimator(MultiTaskEstimator):
    """Base of the penalised and the EM estimators."""

    _losses: ClassVar[tuple[str, ...]]
    loss = "squared"  # a parameter where there is a choice

    fit_intercept: bool = True
    standardize: bool = False
    shared_mean: bool = False
    mean_strength: float | None = None
    task_column: Any = None
    unknown_task: str = "error"
    groups: ArrayLike | None = None
    tol: float = 1e-6
    max_iter: int = 1000
    warm_start: bool = False
    progress: bool | None = None

    def _check_common(self) -> None:
        """Refuse what no such fit can do; the loss is one of the class's."""
        check_choice("loss", self.loss, self._losses)
        check_choice("unknown_task", self.unknown_task, ("error", "mean"))
        if self.mean_strength is not None and not self.mean_strength > 0:
            raise ValueError(f"mean_strength is {self.mean_strength}; pass a positive number, or None")
        if not self.tol > 0:
            raise ValueError(f"tol is {self.tol}; pass a positive number such as 1e-6")
        if self.max_iter < 1:
            raise ValueError(f"max_iter is {self.max_iter}; pass a whole number of at least 1")


def check_choice(argument: str, value: Any, choices: tuple[str, ...]) -> None:
    """Refuse a value that is not among the choices."""
    if value not in choices:
        wanted = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{argument} is {value!r}; choose one of {wanted}")
