"""Sets of features or coefficients with a controlled Bayesian false discovery rate.

Every hypothesis k (a feature, or a feature in a task) has a posterior probability of being an error, e_k: that it is
not in the model (under a prior with exact zeros), that its effect is not above the stated size, or that its likelier
sign is wrong. A set R has the posterior expected share of
errors

    FDR(R) = (1 / |R|) sum over k in R of e_k,

and the largest set with FDR(R) <= level consists of the smallest e_k (Mueller, Parmigiani and Rice 2006, Bayesian
Statistics 8; with false sign rates: Stephens 2017, Biostatistics 18, where the running mean is the s-value). Given the
model this needs no correction for the number of hypotheses, and it does not matter how they depend on each other for
the mean; the number of errors in the set is counted draw by draw, so that its interval takes their dependence into
account.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bayesmtfs.families import Family
from bayesmtfs.results.fit_result import DEFAULT_EFFECT_SIZE
from bayesmtfs.results.tables import INTERVAL, Backend, as_frame, check_one_of, check_probability, entry_columns
from bayesmtfs.selection.draws import CoefficientDraws, read_draws
from bayesmtfs.selection.effects import check_effect_size, effects_of, local_false_sign_rate
from bayesmtfs.types import BoolArray, FloatArray, IntArray, SelectionWarning, warn

Of = Literal["features", "entries"]
By = Literal["inclusion", "size", "sign"]


def running_rate(error_probability: FloatArray) -> FloatArray:
    """Smallest false discovery rate of a set that holds each hypothesis, of the shape of the error probabilities."""
    flat = np.ravel(error_probability)
    order = np.argsort(flat, kind="stable")
    rates = np.empty(len(flat))
    rates[order] = np.cumsum(flat[order]) / np.arange(1, len(flat) + 1)
    return rates.reshape(np.shape(error_probability))


def largest_set(error_probability: FloatArray, level: float) -> BoolArray:
    """Largest set whose mean error probability is at most the level, of the shape of the error probabilities.

    Examples
    --------
    >>> import numpy as np
    >>> largest_set(np.array([0.3, 0.0, 0.12, 0.9]), level=0.1)
    array([False,  True,  True, False])
    """
    # a mean of equal probabilities must not exceed the level by rounding
    return running_rate(error_probability) <= level * (1.0 + 1e-12)


def size_errors(effect: FloatArray, size: float, of: Of) -> BoolArray:
    """Where, draw by draw, an effect is not above a size: (S, p) for features in no task, (S, p, m) for entries."""
    return _errors_of(np.abs(effect) <= size, of)


def inclusion_errors(draws: CoefficientDraws, of: Of) -> BoolArray:
    """Where, draw by draw, a coefficient is exactly zero (of a feature: in every task)."""
    if draws.included is None:
        raise ValueError(
            "by is 'inclusion', but the posterior has no variable included: its prior has no exact zeros; fit with "
            "prior='spike', or pass by='size' or 'sign'"
        )
    return _errors_of(~draws.included, of)


def _errors_of(entries: BoolArray, of: Of) -> BoolArray:
    return entries.all(axis=2) if of == "features" else entries


def sign_errors(coef: FloatArray, of: Of) -> BoolArray:
    """Where, draw by draw, the likelier sign is wrong; of a feature, the sign in the task where it is surest."""
    if of == "features":
        surest = local_false_sign_rate(coef).argmin(axis=1)
        coef = coef[:, np.arange(coef.shape[1]), surest]
    positive = np.mean(coef <= 0, axis=0) <= np.mean(coef >= 0, axis=0)
    return np.where(positive, coef <= 0, coef >= 0)


@dataclass(frozen=True, eq=False, repr=False)
class Discoveries:
    """A set with a controlled false discovery rate.

    Attributes
    ----------
    selected : (p,) or (n_tasks, p) what the set holds
    error_probability : of the same shape, posterior probability that a discovery would be an error
    rate : of the same shape, smallest false discovery rate of a set that holds it
    level : largest accepted rate
    expected_false : expected number of errors in the set
    false_interval : (low, high) of the number of errors, from the draws
    false_counts : (S,) number of errors in each draw
    of : "features" or "entries"
    by : "inclusion", "size" or "sign", what is an error
    effect_size : least effect of interest (by size)
    prob : probability of the interval
    feature_names : (p,)
    tasks : (n_tasks,) labels
    """

    selected: BoolArray
    error_probability: FloatArray
    rate: FloatArray
    level: float
    expected_false: float
    false_interval: tuple[int, int]
    false_counts: IntArray
    of: Of
    by: By
    effect_size: float
    prob: float
    feature_names: NDArray[np.str_]
    tasks: NDArray[Any]

    @property
    def features(self) -> NDArray[np.str_]:
        """Names of the features in the set (of entries: in any task), the surest first."""
        error = np.atleast_2d(self.error_probability).min(axis=0)
        kept = self.get_support(indices=True)
        return self.feature_names[kept[np.argsort(error[kept], kind="stable")]]

    def get_support(self, indices: bool = False) -> Any:
        """Features in the set, as a mask or as numbers; of entries, those that are in it for any task."""
        chosen = np.atleast_2d(self.selected).any(axis=0)
        return np.flatnonzero(chosen) if indices else chosen

    def to_frame(self, selected_only: bool = False, backend: Backend = "pandas") -> Any:
        """One row per feature, or per feature and task.

        Parameters
        ----------
        selected_only : leave out what is not in the set
        backend : {"pandas", "polars"}
        """
        parts = {name: getattr(self, name) for name in ("error_probability", "rate", "selected")}
        if self.of == "entries":
            columns = entry_columns(self.feature_names, self.tasks, **parts)
        else:
            columns = {"feature": self.feature_names, **parts}
        if selected_only:
            columns = {name: values[columns["selected"]] for name, values in columns.items()}
        return as_frame(columns, backend)

    def summary(self) -> str:
        """What the set holds and how many errors to expect in it, in words."""
        low, high = self.false_interval
        error = {
            "inclusion": "that are not in the model",
            "size": f"without an effect above {self.effect_size:g}",
            "sign": "with the wrong sign",
        }[self.by]
        return (
            f"{int(self.selected.sum())} of {self.selected.size} {self.of} are kept at a false discovery rate of "
            f"{self.level:g}. Expected number of them {error}: {self.expected_false:.2g}, and {low} to {high} with "
            f"probability {self.prob:.0%}, given the model."
        )

    def __repr__(self) -> str:
        return (
            f"Discoveries({int(self.selected.sum())} of {self.selected.size} {self.of} at level {self.level:g} by "
            f"{self.by}; {self.expected_false:.2g} false expected)"
        )


def warn_of_no_zeros() -> None:
    """Warn that a continuous prior cannot tell in which tasks a feature has no effect at all."""
    warn(
        "the prior has no exact zeros: an entry says how large or of which sign an effect is, and is too sure where a "
        "feature has no effect at all in some tasks but has one in others; to ask in which tasks, fit with prior='spike'",
        SelectionWarning,
    )


def discoveries(
    posterior: Any,
    X: Any = None,
    y: Any = None,
    tasks: Any = None,
    *,
    level: float = 0.05,
    of: Of = "features",
    by: By | None = None,
    effect_size: float = DEFAULT_EFFECT_SIZE,
    prob: float = INTERVAL,
    sample_weight: Any = None,
    loss: str | Family | None = None,
) -> Discoveries:
    """Select the largest set of features, or of features in tasks, with a Bayesian false discovery rate of ``level``.

    Parameters
    ----------
    posterior : a fitted Bayesian estimator, its `FitResult`, or a DataTree in ArviZ form
    X, y, tasks, sample_weight : the data of the fit; needed only ``by="size"``
    level : largest accepted expected share of errors in the set
    of : {"features", "entries"}
        Features as a whole (in any task), or coefficients, each feature in each task.
    by : {"inclusion", "size", "sign"}, default "inclusion" where the prior has exact zeros, else "size"
        An error is a coefficient that is exactly zero, or an effect of at most ``effect_size`` (of a feature: in every
        task), or a wrong sign (of a feature: in the task where its sign is surest). A prior without exact zeros draws
        a feature's coefficients to each other, also where its effect is zero in some tasks: entries by size or sign
        are then too sure of those, and a `SelectionWarning` says so.
    effect_size : least effect of interest, in standard deviations of y per standard deviation of x
        The rate is right where the prior is; with exact zeros in the truth it is too optimistic at sizes that the data
        cannot resolve (below the posterior standard deviation of an effect, about ``1 / sqrt(n)``): raise it, or use
        ``by="sign"``.
    prob : probability of the interval of the number of errors
    loss : name or family; None: of the estimator, else squared where the posterior has ``noise`` and logistic where not

    Examples
    --------
    >>> import numpy as np
    >>> import xarray as xr
    >>> from bayesmtfs.selection import discoveries
    >>> rng = np.random.default_rng(0)
    >>> draws = np.array([1.0, 0.05, -0.8])[:, None] + 0.2 * rng.standard_normal((1, 1000, 3, 1))
    >>> tree = xr.Dataset({"coef": (("chain", "draw", "feature", "task"), draws)})
    >>> found = discoveries(tree, by="sign", level=0.05)
    >>> found.features.tolist(), found.expected_false
    (['x0', 'x2'], 0.0)
    """
    check_probability("level", level)
    check_probability("prob", prob)
    check_effect_size(effect_size)
    check_one_of("of", of, ("features", "entries"))
    draws = read_draws(posterior)
    by = by or ("size" if draws.included is None else "inclusion")
    check_one_of("by", by, ("inclusion", "size", "sign"))
    if by == "inclusion":
        errors = inclusion_errors(draws, of)
    elif by == "sign":
        errors = sign_errors(draws.coef, of)
    else:
        errors = size_errors(effects_of(posterior, draws, X, y, tasks, sample_weight, loss), effect_size, of)
    if of == "entries" and draws.included is None:
        warn_of_no_zeros()
    # a feature that was screened out before sampling would be an error for all that is known
    error_probability = draws.over_all_features(errors.mean(axis=0), 1.0)
    selected = largest_set(error_probability, level)
    if not selected.any():
        warn(
            f"no {'feature' if of == 'features' else 'coefficient'} is sure enough for a false discovery rate of "
            f"{level:g}: the surest is an error with probability {error_probability.min():.2g}; raise level, lower "
            "effect_size or collect more rows",
            SelectionWarning,
        )
    counts = errors[:, selected[draws.positions]].sum(axis=1)
    # the smallest interval ends that hold at least prob: a count is a whole number
    low = np.quantile(counts, (1 - prob) / 2, method="inverted_cdf")
    high = np.quantile(counts, (1 + prob) / 2, method="inverted_cdf")
    return Discoveries(
        selected=selected.T,
        error_probability=error_probability.T,
        rate=running_rate(error_probability).T,
        level=level,
        expected_false=float(counts.mean()),
        false_interval=(int(low), int(high)),
        false_counts=counts,
        of=of,
        by=by,
        effect_size=effect_size,
        prob=prob,
        feature_names=draws.feature_names,
        tasks=draws.task_names,
    )
