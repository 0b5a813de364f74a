"""Does the model make data like the data? Posterior predictive p-values, task by task.

For a statistic T of a task's targets, ``P(T(y_new) >= T(y) | data)`` with y_new drawn from the posterior predictive law
(Gelman, Meng and Stern 1996, *Statistica Sinica* 6:733-807). Values near 0 or 1 say that the model does not make what
was seen; values near 1/2 are no proof that it does, since the data were used twice.
"""

from dataclasses import dataclass
from typing import Any, Literal

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from bayesmtfs.types import FloatArray

STATISTICS = ("mean", "sd", "skewness", "smallest", "largest")


@dataclass(frozen=True, eq=False)
class PredictiveChecks:
    """Posterior predictive p-values.

    Attributes
    ----------
    p_values : (m, 5) one column per statistic: mean, sd, skewness, smallest, largest
    task_names : (m,)
    """

    p_values: FloatArray
    task_names: NDArray[Any]

    def to_frame(self, backend: Literal["pandas", "polars"] = "pandas") -> Any:
        """Give a data frame with one row per task.

        Parameters
        ----------
        backend : {"pandas", "polars"}
        """
        columns: dict[str, Any] = {"task": self.task_names.tolist()}
        columns |= {name: self.p_values[:, number] for number, name in enumerate(STATISTICS)}
        return nw.from_dict(columns, backend=backend).to_native()


def predictive_checks(tree: Any) -> PredictiveChecks:
    """Posterior predictive p-values of every task's mean, spread, skewness and extremes.

    Parameters
    ----------
    tree : ``posterior_`` of a Bayesian estimator
    """
    if "posterior_predictive" not in tree.children:
        raise ValueError(
            "tree has no group posterior_predictive: a pseudo-likelihood makes no data; use loss='logistic'"
        )
    observed = tree["observed_data"]["y"].values
    drawn = tree["posterior_predictive"]["y"].values.reshape(-1, len(observed))
    task = tree["constant_data"]["task_index"].values
    names = tree["posterior"]["task"].values
    p_values = np.empty((len(names), len(STATISTICS)))
    for t in range(len(names)):
        chosen = task == t
        p_values[t] = np.mean(_statistics(drawn[:, chosen]) >= _statistics(observed[np.newaxis, chosen]), axis=0)
    return PredictiveChecks(p_values, names)


def _statistics(y: FloatArray) -> FloatArray:
    """(S, 5) Statistics of every row of targets."""
    mean, sd = y.mean(axis=1), y.std(axis=1)
    third = np.mean((y - mean[:, np.newaxis]) ** 3, axis=1)
    skewness = np.divide(third, sd**3, out=np.zeros_like(third), where=sd > 0)
    return np.stack([mean, sd, skewness, y.min(axis=1), y.max(axis=1)], axis=1)
