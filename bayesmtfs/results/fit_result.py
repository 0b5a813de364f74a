"""What a fit gives back: the same named result from every route.

A penalised, EM or online fit is one point, a Bayesian fit is draws. `FitResult` holds both in one form: coefficients
and intercepts with the names of tasks and features, which features are selected, how the computation ended, and what
is needed to repeat it. As a DataTree a point is one chain with one draw, so that ArviZ reads either.
"""

import functools
import importlib.metadata
import math
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bayesmtfs.data.inputs import as_labels
from bayesmtfs.results import persistence
from bayesmtfs.results.persistence import CorruptFileError, StoredFile
from bayesmtfs.results.sharing import Sharing, counts_in_words, sharing_of
from bayesmtfs.results.tables import (
    INTERVAL,
    TAILS,
    Backend,
    as_frame,
    central_interval,
    check_one_of,
    entry_columns,
    plain_labels,
    text_table,
)
from bayesmtfs.types import BoolArray, FloatArray

if TYPE_CHECKING:
    from xarray import DataTree


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
    rows_seen : int, optional
        Rows that a stream has learned, in every pass over them; None for routes that are no streams. A stream converges
        to nothing, and ``converged`` says no more than that it was neither interrupted nor far worse than constants.
    progressive_error : float, default nan
        Loss of rows of a stream that were predicted before they were learned, over the loss of each task's constant.
    """

    converged: bool
    n_iter: int
    objective: float = math.nan
    gap: float | None = None
    tol: float | None = None
    objective_trace: FloatArray = field(default_factory=lambda: np.empty(0), repr=False)
    message: str = ""
    advice: str = "raise max_iter or tol"
    rows_seen: int | None = None
    progressive_error: float = math.nan

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
        if self.rows_seen is not None:
            return self._stream_verdict()
        iterations = f"{self.n_iter} iteration{'' if self.n_iter == 1 else 's'}"
        tolerance = "" if self.tol is None else f" (tol {self.tol:g})"
        sentence = f"{'Converged in' if self.converged else 'NOT converged after'} {iterations}{tolerance}"
        if not math.isnan(self.objective):
            certificate = "" if self.gap is None else f" is at most {self.gap:.3g} above its minimum"
            sentence += f"; the objective {self.objective:.6g}{certificate or ' has no certificate on this route'}"
        if not self.converged:
            sentence += f"; {self.advice}"
        return f"{sentence}.{' ' if self.message else ''}{self.message}"

    def _stream_verdict(self) -> str:
        """Say what a stream has seen, and how well it predicted what it had not."""
        sentence = f"{self.rows_seen} rows learned in {self.n_iter} rounds"
        if not math.isnan(self.progressive_error):
            share = f"{self.progressive_error:.3g} times the loss of constants"
            sentence += f"; predictions of rows before they were learned have {share}"
        return f"{sentence}{'' if self.converged else '; interrupted, or far worse than constants: fit again'}."


def _entries(variable: Any) -> NDArray[Any]:
    """(S, n_tasks, features) Draws of a variable, chain after chain."""
    values: NDArray[Any] = variable.transpose("chain", "draw", "task", "feature").values
    return values.reshape(-1, *values.shape[2:])


def frozen_copy(array: NDArray[Any]) -> NDArray[Any]:
    """Copy of an array that cannot be written to; what is repeated along an axis is kept once."""
    distinct = array[tuple(slice(1 if stride == 0 else None) for stride in array.strides)]
    return np.broadcast_to(distinct.copy(), array.shape)


def set_fields(instance: object, **values: Any) -> None:
    """Set fields of a frozen dataclass while it is being made."""
    for name, value in values.items():
        object.__setattr__(instance, name, value)


Labels = NDArray[Any]

RESULT_KIND = "FitResult"
NAME_WIDTH = 32
EVEN_ODDS = 0.5
DEFAULT_EFFECT_SIZE = 0.05  # in deviations of y per deviation of x, within tasks
_OLD_PREFIX = "extras."  # of arrays in files of version 0.1.0
# Axes of every array, which are also those in a saved file, for programs that open it as NetCDF.
RESULT_AXES = {
    "coef": ("task", "feature"),
    "intercept": ("task",),
    "noise": ("task",),
    "task_names": ("task",),
    "feature_names": ("feature",),
    "selection": ("feature",),
    "absent": ("task", "feature"),
    "screened_out": ("feature",),
    "effect_unit": ("task", "feature"),
    "row_scales": ("feature",),
    "task_relations": ("task", "other_task"),
    "objective_trace": ("iteration",),
}
_NUMBERS = ("coef", "intercept", "noise", "row_scales", "task_relations", "effect_unit")
_TRUTHS = ("selection", "absent", "screened_out")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FitResult:
    """Named coefficients, how they were found, and the draws where there are any.

    Arrays are copied and read-only.

    Parameters
    ----------
    method : str
        Class name of the estimator.
    coef : (n_tasks, n_features) array
        Coefficients in the user's units; for a posterior its mean.
    intercept : (n_tasks,) array
        Intercepts, zeros when not fitted.
    task_names : (n_tasks,) array
        Labels of the tasks, as the user wrote them.
    feature_names : (n_features,) array of str
        Names of the features.
    convergence : Convergence
        How the computation ended.
    selection : (n_features,) bool array, optional
        The route's own choice of features. Default: those with a non-zero coefficient in any task.
    posterior : xarray.DataTree, optional
        Draws in ArviZ form, with ``coef`` (feature, task) in the group ``posterior``.
    settings : dict, optional
        Parameters of the fit.
    versions : dict, optional
        Versions of the packages, see `current_versions`.
    seed : int, optional
        Seed of the fit, None when it had none.
    noise : (n_tasks,) array, optional
        Noise scale, where the route estimates it.
    absent : (n_tasks, n_features) bool array, optional
        Features that a task does not have, whose coefficients are fixed at 0; None where all tasks have all.
    screened_out : (n_features,) bool array, optional
        Features that were left out before sampling, of which a posterior says nothing.
    effect_unit : (n_tasks, n_features) array, optional
        By which a coefficient becomes an effect: the deviation of the feature over that of the target, both within tasks
        (`bayesmtfs.data.scaling.effect_unit`). None where the fit never saw all rows together.
    row_scales : (n_features,) array, optional
        Scale of each feature's row, where the prior has one.
    task_relations : (n_tasks, n_tasks) array, optional
        Correlations of the tasks, where the route learns them.

    Examples
    --------
    >>> result = FitResult(
    ...     method="MixedNormRegressor",
    ...     coef=[[0.0, 2.0, 0.0], [0.0, -1.5, 0.5]],
    ...     intercept=[1.0, 0.0],
    ...     task_names=["north", "south"],
    ...     feature_names=["age", "income", "rent"],
    ...     convergence=Convergence(converged=True, n_iter=7, objective=1.25, gap=0.0),
    ... )
    >>> result.selected
    array([False,  True,  True])
    >>> print(result.summary())
    MixedNormRegressor: 2 of 3 features selected, 2 tasks
    Converged in 7 iterations; the objective 1.25 is at most 0 above its minimum.
    Selected features: 1 shared by all tasks, 1 specific to one task.
    <BLANKLINE>
    feature  norm  largest  in task        tasks
    income    2.5        2    north  all 2 tasks
    rent      0.5      0.5    south   only south
    """

    method: str
    coef: FloatArray
    intercept: FloatArray
    task_names: Labels
    feature_names: NDArray[np.str_]
    convergence: Convergence
    selection: BoolArray | None = None
    posterior: "DataTree | None" = None
    settings: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    seed: int | None = None
    noise: FloatArray | None = None
    absent: BoolArray | None = None
    screened_out: BoolArray | None = None
    effect_unit: FloatArray | None = None
    row_scales: FloatArray | None = None
    task_relations: FloatArray | None = None

    def __post_init__(self) -> None:
        set_fields(self, task_names=frozen_copy(as_labels(self.task_names)))
        set_fields(self, feature_names=frozen_copy(np.asarray(self.feature_names, dtype=np.str_)))
        set_fields(self, settings=dict(self.settings), versions=dict(self.versions))
        for name in (*_NUMBERS, *_TRUTHS):
            value = getattr(self, name)
            if value is not None:
                array = _floats(name, value) if name in _NUMBERS else np.asarray(value, dtype=np.bool_)
                set_fields(self, **{name: frozen_copy(array)})
        if self.coef.ndim != 2:
            raise ValueError(f"coef has shape {self.coef.shape}; pass one row per task and one column per feature")
        self._check_shapes()

    def _check_shapes(self) -> None:
        size = {"task": self.n_tasks, "other_task": self.n_tasks, "feature": self.n_features}
        for name in ("task_names", "feature_names", *_NUMBERS, *_TRUTHS):
            array = getattr(self, name)
            wanted = tuple(size[axis] for axis in RESULT_AXES[name])
            if array is not None and array.shape != wanted:
                raise ValueError(
                    f"{name} has shape {array.shape} but coef has shape {self.coef.shape} (tasks, features); "
                    f"pass an array of shape {wanted}"
                )

    @property
    def n_tasks(self) -> int:
        """Number of tasks."""
        return int(self.coef.shape[0])

    @property
    def n_features(self) -> int:
        """Number of features."""
        return int(self.coef.shape[1])

    @property
    def selected(self) -> BoolArray:
        """(n_features,) whether a feature is selected."""
        if self.selection is not None:
            return self.selection
        chosen: BoolArray = (self.coef != 0).any(axis=0)
        return chosen

    @property
    def selected_entries(self) -> BoolArray:
        """(n_tasks, n_features) in which tasks a feature that is selected is.

        Where its coefficient is not zero; of draws, where it is in the model with probability over 1/2.
        """
        chances = None if self.posterior is None else self.entry_probability()
        entries: BoolArray = (self.coef != 0 if chances is None else chances > EVEN_ODDS) & self.selected
        return entries

    @property
    def sharing(self) -> Sharing:
        """How the tasks share each feature; see `bayesmtfs.results.sharing`."""
        return sharing_of(self.selected_entries, self.selected, self.task_names, self.absent, self.screened_out)

    def as_effects(self) -> Self:
        """The same fit with coefficients, and their draws, as effects: in deviations within tasks.

        That is how fits are shown, since the size of a coefficient depends on units. A fit without ``effect_unit`` comes
        back as it is.
        """
        unit, tree = self.effect_unit, self.posterior
        if unit is None:
            return self
        if tree is not None:
            own = unit[:, self._drawn_features]
            tree = tree.copy()
            draws = tree["posterior"].dataset
            order = draws["coef"].dims
            scaled = draws["coef"].transpose("chain", "draw", "task", "feature") * own
            tree["posterior"] = draws.assign(coef=scaled.transpose(*order))
        return replace(self, coef=self.coef * unit, posterior=tree, selection=self.selected, effect_unit=None)

    def norm_quantiles(self, levels: Sequence[float]) -> FloatArray:
        """(levels, p) Quantiles of the norm of each feature's coefficients over the tasks, over the draws.

        Without draws every quantile is the norm itself; a feature that was not sampled has 0.
        """
        if self.posterior is None:
            return np.tile(np.linalg.norm(self.coef, axis=0), (len(levels), 1))
        coef = self.posterior["posterior"]["coef"].transpose("chain", "draw", "feature", "task").values
        found = np.zeros((len(levels), self.n_features))
        found[:, self._drawn_features] = np.quantile(np.linalg.norm(coef, axis=3), levels, axis=(0, 1))
        return found

    def entry_intervals(self, prob: float = INTERVAL) -> FloatArray | None:
        """(2, n_tasks, n_features) Ends of the central intervals of the coefficients; None without draws.

        Features that were not sampled have none (NaN).
        """
        if self.posterior is None:
            return None
        ends = central_interval(_entries(self.posterior["posterior"]["coef"]), prob)
        return np.stack([self._spread(end, np.nan) for end in ends])

    @property
    def _drawn_features(self) -> NDArray[np.intp]:
        """Numbers of the features that the posterior has: all, unless some were screened out before sampling."""
        assert self.posterior is not None
        coef = self.posterior["posterior"]["coef"]
        if coef.sizes["feature"] == self.n_features:
            return np.arange(self.n_features)
        return np.flatnonzero(np.isin(self.feature_names, np.asarray(coef["feature"])))

    def to_frame(
        self,
        backend: Backend = "pandas",
        form: Literal["long", "wide", "features"] = "long",
        selected_only: bool = False,
    ) -> Any:
        """Effects as a data frame.

        Parameters
        ----------
        backend : {"pandas", "polars"}
            Library of the frame; it must be installed.
        form : {"long", "wide", "features"}
            ``"long"``: one row per feature and task, with columns feature, task, coef (in the user's units), effect (in
            deviations within tasks), selected, and absent where tasks have different features. A posterior adds the
            central 90% intervals of both (coef_lower, coef_upper, effect_lower, effect_upper), probability (of being
            in the model: not zero under a prior with exact zeros, else of an effect above ``effect_size``) and
            false_sign_rate. ``"wide"``: one row per feature, and after the column feature the coefficients, one column
            per task. ``"features"``: one row per feature, with columns feature, selected, kind ("all", "some", "specific",
            "unclear" or "none"), tasks (the same in words), n_tasks, norm (of the effects over the tasks), largest (of the
            effects) and largest_task; a posterior adds norm_lower, norm_upper, probability (of being in the model in some
            task) and false_sign_rate (the smallest over the tasks).
        selected_only : bool, default False
            Leave out the features that are not selected.

        Returns
        -------
        pandas.DataFrame or polars.DataFrame
            Features in the order of ``feature_names``, tasks in that of ``task_names``.
        """
        check_one_of("form", form, ("long", "wide", "features"))
        kept = np.flatnonzero(self.selected) if selected_only else np.arange(self.n_features)
        if form == "features":
            return as_frame({name: column[kept] for name, column in self._feature_columns().items()}, backend)
        if form == "wide":
            return as_frame(self._wide_columns(kept), backend)
        unit = self.effect_unit
        matrices = {"coef": self.coef, "effect": None if unit is None else self.coef * unit}
        matrices |= self._uncertainty() | {"selected": self.selected_entries, "absent": self.absent}
        chosen = {name: matrix[:, kept] for name, matrix in matrices.items() if matrix is not None}
        return as_frame(entry_columns(self.feature_names[kept], self.task_names, **chosen), backend)

    def _uncertainty(self) -> dict[str, NDArray[Any] | None]:
        """Matrices (n_tasks, n_features) of what the draws say of every entry; nothing without draws.

        Features that were not sampled have no interval (NaN), and are not in the model.
        """
        if self.posterior is None:
            return {}
        draws = self.posterior["posterior"].dataset
        coef = _entries(draws["coef"])
        known = dict(zip(("coef_lower", "coef_upper"), central_interval(coef, INTERVAL), strict=True))
        if self.effect_unit is not None:
            unit = self.effect_unit[:, self._drawn_features]
            known |= {name.replace("coef", "effect"): ends * unit for name, ends in known.items()}
        found: dict[str, NDArray[Any] | None] = {name: self._spread(ends, np.nan) for name, ends in known.items()}
        found["probability"] = self.entry_probability()
        wrong = np.minimum(np.mean(coef <= 0, axis=0), np.mean(coef >= 0, axis=0))
        return found | {"false_sign_rate": self._spread(wrong, 1.0)}

    def _in_model(self) -> BoolArray | None:
        """(draws, n_tasks, features drawn) Where a coefficient is in the model; None where units are not known."""
        assert self.posterior is not None
        draws = self.posterior["posterior"].dataset
        if "included" in draws.data_vars:
            return _entries(draws["included"])
        if self.effect_unit is None:
            return None
        size = float(self.settings.get("effect_size", DEFAULT_EFFECT_SIZE))
        return np.asarray(np.abs(_entries(draws["coef"])) * self.effect_unit[:, self._drawn_features] > size)

    def entry_probability(self) -> FloatArray | None:
        """(n_tasks, n_features) Probability of being in the model; None where that is not known."""
        in_model = self._in_model()
        return None if in_model is None else self._spread(in_model.mean(axis=0), 0.0)

    def _feature_columns(self) -> dict[str, NDArray[Any]]:
        """Columns of the table with one row per feature."""
        shown, sharing = self.as_effects(), self.sharing
        low, norm, high = shown.norm_quantiles([TAILS[0], 0.5, TAILS[1]])
        largest = np.abs(shown.coef).argmax(axis=0)
        columns: dict[str, NDArray[Any]] = {
            "feature": self.feature_names,
            "selected": self.selected,
            "kind": sharing.kind,
            "tasks": np.array(sharing.words),
            "n_tasks": sharing.entries.sum(axis=0),
            "norm": norm,
        }
        if self.posterior is not None:
            columns |= {"norm_lower": low, "norm_upper": high}
            in_model = self._in_model()
            if in_model is not None:
                columns["probability"] = self._spread(in_model.any(axis=1).mean(axis=0)[None], 0.0)[0]
            coef = _entries(self.posterior["posterior"]["coef"])
            wrong = np.minimum(np.mean(coef <= 0, axis=0), np.mean(coef >= 0, axis=0))
            columns["false_sign_rate"] = self._spread(wrong, 1.0).min(axis=0)
        values = shown.coef[largest, np.arange(self.n_features)]
        return columns | {"largest": values, "largest_task": plain_labels(self.task_names)[largest]}

    def _spread(self, drawn: FloatArray, elsewhere: float) -> FloatArray:
        """(n_tasks, n_features) Numbers of the features that were sampled, and one number for the others."""
        whole = np.full((self.n_tasks, self.n_features), elsewhere)
        whole[:, self._drawn_features] = drawn
        return whole

    def _wide_columns(self, kept: NDArray[np.intp]) -> dict[str, NDArray[Any]]:
        tasks = [str(label) for label in self.task_names.tolist()]
        if len({"feature", *tasks}) != len(tasks) + 1:
            raise ValueError("task_names cannot all be column names beside 'feature'; use form='long'")
        columns: dict[str, NDArray[Any]] = {"feature": self.feature_names[kept]}
        return columns | {task: self.coef[row, kept] for row, task in enumerate(tasks)}

    def to_datatree(self) -> "DataTree":
        """Give the fit as an xarray DataTree in ArviZ form.

        The group ``posterior`` has ``coef`` (chain, draw, feature, task), ``intercept`` and, where estimated,
        ``noise`` (chain, draw, task). A point estimate is one chain with one draw; a posterior is returned as it is,
        with the attributes of the fit at its root.
        """
        # xarray takes longer to import than a penalised fit takes to run.
        import xarray as xr

        if self.posterior is not None:
            tree = self.posterior.copy()
        else:
            variables = {
                "coef": (("chain", "draw", "feature", "task"), self.coef.T[None, None]),
                "intercept": (("chain", "draw", "task"), self.intercept[None, None]),
            }
            if self.noise is not None:
                variables["noise"] = (("chain", "draw", "task"), self.noise[None, None])
            coords = {"chain": [0], "draw": [0], "feature": self.feature_names, "task": self.task_names}
            tree = xr.DataTree.from_dict({"posterior": xr.Dataset(variables, coords)})
        tree.attrs = {
            **tree.attrs,
            "inference_library": "bayesmtfs",
            "inference_library_version": self.versions.get("bayesmtfs", "unknown"),
            "method": self.method,
            "convergence": self.convergence.verdict(),
        }
        return tree

    @property
    def effects_in_words(self) -> str:
        """What the effects are measured in, one sentence; nothing where their unit is not known."""
        if self.effect_unit is None:
            return ""
        changed = self.settings.get("effects_change")
        if changed:
            return f"Effects are changes of {changed} per deviation of the feature within tasks."
        return "Effects are in deviations of the target per deviation of the feature, both within tasks."

    def summary(self, n_rows: int = 10, user_units: bool = False) -> str:
        """Text with the number of selected features, how the fit ended, and the largest rows.

        Parameters
        ----------
        n_rows : int, default 10
            How many selected features to show, largest Euclidean norm over the tasks first (for a posterior the median of
            its draws).
        user_units : bool, default False
            Show coefficients in the user's units instead of effects in deviations within tasks.
        """
        shown = self if user_units else self.as_effects()
        tasks = f"{self.n_tasks} task{'' if self.n_tasks == 1 else 's'}"
        sharing = self.sharing
        counts = counts_in_words(sharing)
        lines = [
            f"{self.method}: {int(self.selected.sum())} of {self.n_features} features selected, {tasks}",
            self.convergence.verdict(),
            "",
        ]
        if "positive_class" in self.settings:
            lines.insert(1, f"A positive effect speaks for {self.settings['positive_class']!r}.")
        norms = shown.norm_quantiles([0.5])[0]
        ranked = self._ranked_features(norms)
        if len(ranked) == 0:
            return "\n".join([*lines, "No feature is selected."])
        if shown is not self:
            lines.insert(2, self.effects_in_words)
        if counts:
            lines.insert(-1, f"Selected features: {counts}.")
        header = ("feature", "norm", "largest", "in task", "tasks")
        rows = [(*shown._summary_row(i, norms[i]), _brief(sharing.words[i])) for i in ranked[:n_rows].tolist()]
        lines += text_table([header, *rows])
        if len(ranked) > n_rows:
            lines.append(f"... and {len(ranked) - n_rows} more; to_frame(selected_only=True) has them all")
        return "\n".join(lines)

    def __repr__(self) -> str:
        norms = np.linalg.norm(self.coef if self.effect_unit is None else self.coef * self.effect_unit, axis=0)
        features = _listed(self.feature_names[self._ranked_features(norms)])
        return (
            f"FitResult of {self.method}: {self.n_tasks} tasks x {self.n_features} features\n"
            f"  tasks: {_listed(self.task_names)}\n"
            f"  selected: {int(self.selected.sum())}{' (' + features + ')' if features else ''}\n"
            f"  {self.convergence.verdict()}"
        )

    def _ranked_features(self, norms: FloatArray) -> NDArray[np.intp]:
        """Selected features, largest norm (p,) first."""
        order = np.argsort(-norms, kind="stable")
        return order[self.selected[order]]

    def _summary_row(self, feature: int, norm: float) -> tuple[str, ...]:
        row = self.coef[:, feature]
        largest = int(np.argmax(np.abs(row)))
        return (
            shortened(self.feature_names[feature]),
            f"{norm:.4g}",
            f"{row[largest]:.4g}",
            shortened(self.task_names[largest]),
        )

    def to_stored(self) -> StoredFile:
        """Give the result in the form that `bayesmtfs.results.persistence` writes."""
        convergence = asdict(self.convergence)
        names = ("task_names", "feature_names", *_NUMBERS, *_TRUTHS)
        arrays = {name: array for name in names if (array := getattr(self, name)) is not None}
        arrays["objective_trace"] = convergence.pop("objective_trace")
        header = {
            "method": self.method,
            "convergence": convergence,
            "settings": self.settings,
            "versions": self.versions,
            "seed": self.seed,
        }
        return StoredFile(RESULT_KIND, header, arrays, self.posterior)

    @classmethod
    def from_stored(cls, stored: StoredFile) -> Self:
        """Rebuild the result from what `bayesmtfs.results.persistence.read` gave."""
        if stored.kind != RESULT_KIND:
            raise ValueError(f"the file holds a {stored.kind}, not a {RESULT_KIND}; read it with bayesmtfs.load")
        header: dict[str, Any] = dict(stored.header)
        arrays: dict[str, Any] = {name.removeprefix(_OLD_PREFIX): array for name, array in stored.arrays.items()}
        try:
            convergence = Convergence(objective_trace=arrays.pop("objective_trace"), **header.pop("convergence"))
            return cls(convergence=convergence, posterior=stored.tree, **header, **arrays)
        except (KeyError, TypeError) as error:
            raise CorruptFileError(
                f"the file does not hold a whole {RESULT_KIND} ({error}); save the fit again"
            ) from error

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the result to one file at exactly ``path``; see `bayesmtfs.results.persistence.write`."""
        persistence.write(path, *self.to_stored(), dims=RESULT_AXES)


def _floats(name: str, values: ArrayLike) -> FloatArray:
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} has dtype {array.dtype}; pass numbers")
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)


def shortened(label: object) -> str:
    """Text of a label; one that is too long loses its middle, since names often differ at their ends.

    Examples
    --------
    >>> shortened("expression_of_the_gene_with_number_00012")
    'expression_of_the_g...mber_00012'
    """
    text = str(label)
    tail = NAME_WIDTH // 3
    return text if len(text) <= NAME_WIDTH else f"{text[: NAME_WIDTH - 3 - tail]}...{text[-tail:]}"


def _brief(words: str) -> str:
    """In which tasks a feature is; without their list where that is too long."""
    return words if len(words) <= NAME_WIDTH else shortened(words.partition(":")[0])


def _listed(labels: Labels, shown: int = 6) -> str:
    text = ", ".join(shortened(label) for label in labels[:shown])
    return text if len(labels) <= shown else f"{text}, ... {len(labels) - shown} more"
