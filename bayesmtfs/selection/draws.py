"""Draws of a posterior as plain arrays, whatever holds them, and the data that the posterior was fitted to.

Everything in `bayesmtfs.selection` that reads a posterior takes a fitted `BayesianRegressor` or `BayesianClassifier`,
its `FitResult`, or a DataTree (or Dataset) in ArviZ form with ``coef`` (chain, draw, feature, task); so a posterior
that was sampled elsewhere is as good. Chains are put one after the other: the draws axis comes first and has length S.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from bayesmtfs.data.frames import is_frame
from bayesmtfs.data.gaps import filled, has_gaps
from bayesmtfs.data.inputs import as_labels
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.estimators.base import MultiTaskEstimator
from bayesmtfs.estimators.penalised import MixedNormClassifier, MixedNormRegressor
from bayesmtfs.estimators.survival import MixedNormSurvival
from bayesmtfs.families import Family, find_family
from bayesmtfs.posterior.preparation import chosen_features
from bayesmtfs.posterior.tree import with_fixed_variables
from bayesmtfs.results.fit_result import FitResult
from bayesmtfs.types import BoolArray, FloatArray, IntArray

SAMPLE = ("chain", "draw")


class CoefficientDraws(NamedTuple):
    """Draws of the coefficients, of what goes with them, and their names."""

    coef: FloatArray  # (S, p, m)
    intercept: FloatArray  # (S, m), zeros where the model has none
    noise: FloatArray | None  # (S, m); None for families without one
    task_names: NDArray[Any]  # (m,)
    feature_names: NDArray[np.str_]  # (P,) of the fit: more than p where features were screened out before sampling
    positions: IntArray  # (p,) numbers of the features of the draws among them
    included: BoolArray | None = None  # (S, p, m) whether a coefficient is in the model; None without exact zeros

    def over_all_features(self, values: NDArray[Any], fill: float | bool) -> NDArray[Any]:
        """(P, ...) Values (p, ...) of the features of the draws, and the same number for all others."""
        whole = np.full((len(self.feature_names), *values.shape[1:]), fill, dtype=values.dtype)
        whole[self.positions] = values
        return whole

    def evenly_spaced(self, n_draws: int) -> IntArray:
        """Numbers of at most so many draws, evenly spaced over all chains."""
        n = len(self.coef)
        return np.linspace(0, n - 1, min(n, n_draws)).round().astype(np.int64)

    def chosen(self, kept: IntArray) -> "CoefficientDraws":
        """Some of the draws."""
        noise = None if self.noise is None else self.noise[kept]
        included = None if self.included is None else self.included[kept]
        return self._replace(coef=self.coef[kept], intercept=self.intercept[kept], noise=noise, included=included)


def read_draws(posterior: Any) -> CoefficientDraws:
    """Read the draws of coefficients, intercepts and noise."""
    group = posterior_group(posterior)
    coef = _stacked(group["coef"], ("feature", "task"), "coef")
    n_draws, p, m = coef.shape
    if not np.isfinite(coef).all():
        raise ValueError("coef has NaN or infinite draws; sample again, and look at the warnings of the sampler")
    intercept = variable(group, "intercept", ("task",))
    own = np.asarray(_labels(group["coef"], "feature", [f"x{i}" for i in range(p)]), dtype=np.str_)
    result = getattr(posterior, "result_", posterior)
    names = result.feature_names if isinstance(result, FitResult) else own
    included = group["included"] if "included" in group.data_vars else None
    return CoefficientDraws(
        coef=coef,
        intercept=np.zeros((n_draws, m)) if intercept is None else intercept,
        noise=variable(group, "noise", ("task",)),
        task_names=as_labels(_labels(group["coef"], "task", list(range(m)))),
        feature_names=names,
        positions=np.arange(p) if len(names) == p else np.flatnonzero(np.isin(names, own)),
        included=None if included is None else _stacked(included, ("feature", "task"), "included", np.bool_),
    )


def tree_of(posterior: Any) -> Any:
    """The DataTree (or Dataset) of a posterior."""
    tree = posterior
    if isinstance(posterior, MultiTaskEstimator) or hasattr(posterior, "posterior_"):
        tree = getattr(posterior, "posterior_", None)
    elif isinstance(posterior, FitResult):
        tree = posterior.posterior
    if tree is None:
        raise ValueError(
            f"posterior is a {type(posterior).__name__} without draws; pass a fitted BayesianRegressor or "
            "BayesianClassifier, or the tree of its posterior"
        )
    return tree


def posterior_group(posterior: Any) -> Any:
    """Group of the tree (or the Dataset) that holds ``coef``, with what the model holds fixed."""
    tree = tree_of(posterior)
    group = with_fixed_variables(tree) if "posterior" in getattr(tree, "children", ()) else tree
    if "coef" not in getattr(group, "data_vars", ()):
        raise ValueError(
            f"posterior is a {type(posterior).__name__} without a variable coef (feature, task) in its group "
            "posterior; pass a fitted Bayesian estimator, its result_, or a DataTree in ArviZ form"
        )
    return group


def setting(posterior: Any, name: str) -> str | None:
    """A setting that the tree remembers, such as its prior; None where it does not."""
    value = getattr(tree_of(posterior), "attrs", {}).get(name)
    return None if value is None else str(value)


def variable(group: Any, name: str, axes: tuple[str, ...]) -> FloatArray | None:
    """(S, ...) Draws of a variable with these axes after the draws; None where the posterior does not have it."""
    return _stacked(group[name], axes, name) if name in group.data_vars else None


def draws_of(result: FitResult, name: str) -> FloatArray | None:
    """(S, ...) Draws of a variable of a fit, its own axes in their order; None where the fit does not have it."""
    if result.posterior is None or name not in posterior_group(result).data_vars:
        return None
    array = posterior_group(result)[name]
    return _stacked(array, tuple(axis for axis in array.dims if axis not in SAMPLE), name)


def has_exact_zeros(result: FitResult) -> bool:
    """Whether a fit has draws that say which coefficients are in the model."""
    return result.posterior is not None and "included" in posterior_group(result).data_vars


def _stacked(array: Any, axes: tuple[str, ...], name: str, dtype: type = np.float64) -> NDArray[Any]:
    wanted = (*SAMPLE, *axes)
    if set(array.dims) != set(wanted):
        raise ValueError(f"{name} has the axes {tuple(array.dims)}; a posterior wants {wanted}")
    values = np.asarray(array.transpose(*wanted).values, dtype=dtype)
    return values.reshape(-1, *values.shape[2:])


def _labels(array: Any, axis: str, default: list[Any]) -> list[Any]:
    return list(array.coords[axis].values.tolist()) if axis in array.coords else default


def family_of(posterior: Any, draws: CoefficientDraws, loss: str | Family | None = None) -> Family:
    """Family of the targets: as told, as estimator or tree remember it, or logistic where there is no noise."""
    remembered = getattr(posterior, "loss", None) or setting(posterior, "loss")
    return find_family(loss or remembered or ("logistic" if draws.noise is None else "squared"))


def read_data(
    posterior: Any, draws: CoefficientDraws, family: Family, X: Any, y: Any, tasks: Any, sample_weight: Any
) -> TaskData:
    """Read the data of a posterior the way its estimator reads them, and check that names agree."""
    reader: Any
    known: dict[str, Any] = {}
    if isinstance(posterior, MultiTaskEstimator):
        reader = clone(posterior)
        known = posterior._offset_columns if is_frame(X) else {}
    elif family.targets == "survival":
        reader = MixedNormSurvival()
    else:
        reader = MixedNormClassifier() if family.targets == "labels" else MixedNormRegressor(loss=family)
    data: TaskData = reader.training_data(X, y, tasks, sample_weight, **known)
    if has_gaps(data):  # as the fit has filled them, or its model of the rows
        data = filled(data, posterior._filling, np.arange(data.n_tasks))
    _check_same("features", data.feature_names.tolist(), draws.feature_names.tolist())
    _check_same("tasks", data.task_names.tolist(), draws.task_names.tolist())
    return data


def with_sampled_features(data: TaskData, draws: CoefficientDraws) -> TaskData:
    """Return the data with the features of the draws: all of them, unless some were screened out before sampling."""
    kept = np.zeros(data.n_features, dtype=bool)
    kept[draws.positions] = True
    return chosen_features(data, kept)


def _check_same(what: str, given: list[Any], known: list[Any]) -> None:
    if len(given) != len(known):
        raise ValueError(
            f"X has {len(given)} {what} but the posterior has {len(known)}; pass the data of the posterior's fit, and "
            "the estimator itself where it has screened features out"
        )
    different = [(a, b) for a, b in zip(given, known, strict=True) if a != b and str(a) != str(b)]
    if different:
        raise ValueError(
            f"X has {what} in another order or of other names than the posterior: {different[0][0]!r} where it has "
            f"{different[0][1]!r}; pass the data of the posterior's fit"
        )
