"""What a posterior says of the tasks' relations and of the exponent q, with intervals.

The draws of the correlation matrix R of the tasks (``W = diag(rho) Z R^(1/2)``) give for each pair the mean, a central
interval and the probability that the correlation is positive. The exponent has the prior ``1/q ~ U(1/high, 1/low)``; it
is called identified where the central interval of 1/q is less than half as wide as that of its prior. With few tasks it
is often not: q = 4 in five tasks can hardly be told from 2 or from 20, and large q look alike in any case.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmtfs.results.tables import INTERVAL, Backend, as_frame, central_interval, plain_labels
from bayesmtfs.selection.draws import posterior_group, read_draws, variable
from bayesmtfs.types import FloatArray

LARGEST_WIDTH = 0.5  # of the interval of 1/q, relative to that of its prior, for q to be identified
SPARSE_Q = 1.5  # below it a row concentrates on few tasks
DEFAULT_BOUNDS = (1.0, 50.0)


@dataclass(frozen=True, eq=False, repr=False)
class TaskRelations:
    """Posterior of the correlations between tasks.

    Attributes
    ----------
    mean, lower, upper : (n_tasks, n_tasks) mean and central interval of each correlation
    positive_probability : (n_tasks, n_tasks) probability that it is above 0
    prob : probability of the intervals
    tasks : (n_tasks,) labels
    """

    mean: FloatArray
    lower: FloatArray
    upper: FloatArray
    positive_probability: FloatArray
    prob: float
    tasks: NDArray[Any]

    @property
    def local_false_sign_rate(self) -> FloatArray:
        """(n_tasks, n_tasks) Probability that the likelier sign is wrong."""
        return np.minimum(self.positive_probability, 1.0 - self.positive_probability)

    def to_frame(self, backend: Backend = "pandas") -> Any:
        """One row per pair of tasks, the surest sign first, as a frame of ``backend`` ("pandas" or "polars")."""
        pairs = np.stack(np.triu_indices(len(self.tasks), k=1))
        first, second = pairs[:, np.argsort(self.local_false_sign_rate[*pairs], kind="stable")]
        names = plain_labels(self.tasks)
        columns = {"task": names[first], "other_task": names[second]}
        matrices = ("mean", "lower", "upper", "positive_probability", "local_false_sign_rate")
        return as_frame(columns | {name: getattr(self, name)[first, second] for name in matrices}, backend)

    def __repr__(self) -> str:
        pairs = np.triu_indices(len(self.tasks), k=1)
        clear = int(((self.lower > 0) | (self.upper < 0))[pairs].sum())
        return (
            f"TaskRelations({len(self.tasks)} tasks; the {self.prob:.0%} intervals of {clear} of {len(pairs[0])} pairs "
            "leave out 0)"
        )


def task_relations(posterior: Any, prob: float = INTERVAL) -> TaskRelations:
    """Correlations between tasks with their uncertainty.

    Parameters
    ----------
    posterior : a fitted Bayesian estimator with ``prior="matrix_variate"``, its `FitResult`, or a DataTree with
        ``task_relations`` (task, task_bis)
    prob : probability of the central intervals

    Examples
    --------
    >>> import numpy as np
    >>> import xarray as xr
    >>> from bayesmtfs.selection import task_relations
    >>> r = np.random.default_rng(0).uniform(0.2, 0.6, (1, 400))
    >>> R = np.stack([np.stack([np.ones_like(r), r], -1), np.stack([r, np.ones_like(r)], -1)], -2)
    >>> coef = (("chain", "draw", "feature", "task"), np.zeros((1, 400, 3, 2)))
    >>> tree = xr.Dataset({"coef": coef, "task_relations": (("chain", "draw", "task", "task_bis"), R)})
    >>> found = task_relations(tree)
    >>> round(float(found.mean[0, 1]), 1), float(found.positive_probability[0, 1])
    (0.4, 1.0)
    """
    relations = variable(posterior_group(posterior), "task_relations", ("task", "task_bis"))
    if relations is None:
        raise ValueError(
            "posterior has no task_relations; fit a Bayesian estimator with prior='matrix_variate', which learns them"
        )
    lower, upper = central_interval(relations, prob)
    return TaskRelations(
        mean=relations.mean(axis=0),
        lower=lower,
        upper=upper,
        positive_probability=np.mean(relations > 0, axis=0),
        prob=prob,
        tasks=read_draws(posterior).task_names,
    )


@dataclass(frozen=True, eq=False)
class ExponentPosterior:
    """Posterior of the exponent q.

    Attributes
    ----------
    median : float
    lower, upper : central interval
    prob : its probability
    sparse_probability : probability that q is below 1.5: effects concentrate on few tasks
    prior_sparse_probability : the same before the data
    relative_width : width of the interval of 1/q over that of its prior
    identified : whether that is less than a half
    bounds : range of q in the prior
    """

    median: float
    lower: float
    upper: float
    prob: float
    sparse_probability: float
    prior_sparse_probability: float
    relative_width: float
    identified: bool
    bounds: tuple[float, float]

    def summary(self) -> str:
        """What is known of q, in words."""
        text = (
            f"q is {self.median:.3g} (median), {self.lower:.3g} to {self.upper:.3g} with probability {self.prob:.0%}; "
            f"it is below {SPARSE_Q:g} with probability {self.sparse_probability:.2g} (before the data "
            f"{self.prior_sparse_probability:.2g})."
        )
        if self.identified:
            return text
        return (
            f"{text} The data hardly identify it: the interval of 1/q is {self.relative_width:.0%} as wide as that of "
            "the prior."
        )


def exponent_posterior(
    posterior: Any, bounds: tuple[float, float] | None = None, prob: float = INTERVAL
) -> ExponentPosterior:
    """Summarise the posterior of a learned q, and say whether the data identify it.

    Parameters
    ----------
    posterior : a fitted Bayesian estimator with ``norm_q="learn"``, its `FitResult`, or a DataTree with ``norm_q``
    bounds : range of q in its prior, uniform in 1/q; None: the estimator's ``norm_q_bounds``, else (1, 50)
    prob : probability of the central interval

    Examples
    --------
    >>> import numpy as np
    >>> import xarray as xr
    >>> from bayesmtfs.selection import exponent_posterior
    >>> q = np.random.default_rng(0).normal(2.0, 0.1, (1, 1000))
    >>> coef = (("chain", "draw", "feature", "task"), np.zeros((1, 1000, 3, 2)))
    >>> found = exponent_posterior(xr.Dataset({"coef": coef, "norm_q": (("chain", "draw"), q)}))
    >>> round(found.median, 1), found.identified, found.sparse_probability
    (2.0, True, 0.0)
    """
    draws = variable(posterior_group(posterior), "norm_q", ())
    if draws is None or np.all(draws == draws[0]):
        raise ValueError("posterior has no draws of norm_q: q was fixed; fit with norm_q='learn'")
    low, high = bounds or getattr(posterior, "norm_q_bounds", None) or DEFAULT_BOUNDS
    if not 0 < low < high:
        raise ValueError(f"bounds is {bounds}; pass two numbers 0 < low < high, such as (1, 50)")
    if draws.min() < low * (1 - 1e-9) or draws.max() > high * (1 + 1e-9):
        raise ValueError(
            f"bounds is ({low:g}, {high:g}) but norm_q has draws from {draws.min():.3g} to {draws.max():.3g}; pass the "
            "range of the prior"
        )
    lower, upper = central_interval(draws, prob)
    prior_width = 1 / low - 1 / high
    relative_width = (1 / lower - 1 / upper) / (prob * prior_width)
    below = 1 / np.clip(SPARSE_Q, low, high)
    return ExponentPosterior(
        median=float(np.median(draws)),
        lower=float(lower),
        upper=float(upper),
        prob=prob,
        sparse_probability=float(np.mean(draws < SPARSE_Q)),
        prior_sparse_probability=float((1 / low - below) / prior_width),
        relative_width=float(relative_width),
        identified=bool(relative_width < LARGEST_WIDTH),
        bounds=(float(low), float(high)),
    )
