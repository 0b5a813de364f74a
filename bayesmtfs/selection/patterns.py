r"""In which tasks: the patterns of tasks in which a feature is in the model, and how often two tasks share features.

Every draw has for each feature i the set ``s_i`` of tasks in which it is in the model. Given are the probabilities of
these sets, of their kinds,

    none (empty),   specific (one task),   some (two or more, not all),   all (every task that has the feature),

and for every pair of tasks the expected number of features that both have over that of features that either has,

.. math::

   \text{sharing}_{tu} = \frac{\sum_i P(s_{it} = s_{iu} = 1 \mid y)}{\sum_i P(s_{it} = 1 \text{ or } s_{iu} = 1 \mid y)} .

A single task is "all". Under a prior without exact zeros "in the model" means an effect above a stated size, and what
such a prior says of single tasks is too sure (`bayesmtfs.selection.discoveries`).
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmtfs.families import Family
from bayesmtfs.results.fit_result import DEFAULT_EFFECT_SIZE, FitResult
from bayesmtfs.results.tables import Backend, as_frame, check_one_of
from bayesmtfs.selection.discoveries import warn_of_no_zeros
from bayesmtfs.selection.draws import read_draws
from bayesmtfs.selection.effects import EVEN_ODDS, entries_in_model
from bayesmtfs.types import BoolArray, FloatArray

KINDS = ("all", "some", "specific", "none")
LEAST = 0.01  # probability of a pattern that is listed


class Pattern(NamedTuple):
    """Tasks in which a feature is in the model, and how probable it is that it is in these and no others."""

    tasks: tuple[Any, ...]
    probability: float


@dataclass(frozen=True, eq=False, repr=False)
class Patterns:
    """How the tasks share the features.

    Attributes
    ----------
    patterns : for every feature its patterns, the most probable first; those below 1% are left out
    kinds : (p, 4) probabilities that a feature is in the model in all tasks, in some, in one only, in none
    task_probability : (n_tasks, p) probability that a feature is in the model in a task
    sharing : (n_tasks, n_tasks) expected share of common features among those of either task, 0 where there are none
    feature_names : (p,)
    tasks : (n_tasks,) labels
    """

    patterns: tuple[tuple[Pattern, ...], ...]
    kinds: FloatArray
    task_probability: FloatArray
    sharing: FloatArray
    feature_names: NDArray[np.str_]
    tasks: NDArray[Any]

    @property
    def inclusion_probability(self) -> FloatArray:
        """(p,) Probability that a feature is in the model in some task."""
        return 1.0 - self.kinds[:, KINDS.index("none")]

    @property
    def kind(self) -> NDArray[np.str_]:
        """(p,) The most probable kind of each feature: "all", "some", "specific" or "none"."""
        return np.array(KINDS)[self.kinds.argmax(axis=1)]

    def likeliest(self, feature: int) -> Pattern:
        """The most probable pattern of a feature that is in the model; no tasks where none has a probability of 1%."""
        return next((one for one in self.patterns[feature] if one.tasks), Pattern((), 0.0))

    def to_frame(self, of: Literal["features", "patterns"] = "features", backend: Backend = "pandas") -> Any:
        """One row per feature, or per feature and pattern.

        Parameters
        ----------
        of : {"features", "patterns"}
        backend : {"pandas", "polars"}
        """
        check_one_of("of", of, ("features", "patterns"))
        names = self.feature_names
        if of == "features":
            best = [self._text(self.likeliest(i)) if kind != "none" else "none" for i, kind in enumerate(self.kind)]
            columns = {"feature": names, "kind": self.kind, **dict(zip(KINDS, self.kinds.T, strict=True))}
            return as_frame(columns | {"likeliest_tasks": np.array(best, dtype=np.str_)}, backend)
        rows = [(name, one) for name, listed in zip(names, self.patterns, strict=True) for one in listed]
        columns = {
            "feature": np.array([name for name, _ in rows], dtype=np.str_),
            "tasks": np.array([self._text(one) for _, one in rows], dtype=np.str_),
            "n_tasks": np.array([len(one.tasks) for _, one in rows], dtype=np.int64),
            "probability": np.array([one.probability for _, one in rows]),
        }
        return as_frame(columns, backend)

    def _text(self, pattern: Pattern) -> str:
        return "all" if len(pattern.tasks) == len(self.tasks) else ", ".join(map(str, pattern.tasks)) or "none"

    def __repr__(self) -> str:
        likely = self.inclusion_probability > EVEN_ODDS
        counts = ", ".join(f"{int((self.kind[likely] == kind).sum())} {kind}" for kind in KINDS[:3])
        return (
            f"Patterns({int(likely.sum())} of {len(likely)} features in the model with probability over 1/2: {counts})"
        )


def patterns(
    posterior: Any,
    X: Any = None,
    y: Any = None,
    tasks: Any = None,
    *,
    effect_size: float = DEFAULT_EFFECT_SIZE,
    sample_weight: Any = None,
    loss: str | Family | None = None,
) -> Patterns:
    """Which tasks share a feature, with probabilities.

    Parameters
    ----------
    posterior : a fitted Bayesian estimator, its `FitResult`, or a DataTree in ArviZ form
    X, y, tasks, sample_weight : the data of the fit; needed for a prior without exact zeros only
    effect_size : of such a prior: a coefficient is in the model where its effect is larger than this, in standard
        deviations of y per standard deviation of x
    loss : name or family; None: as the posterior remembers

    Examples
    --------
    >>> import numpy as np
    >>> import xarray as xr
    >>> from bayesmtfs.selection import patterns
    >>> on = np.zeros((1, 100, 2, 3), dtype=bool)
    >>> on[:, :, 0], on[:, :80, 1, :2] = True, True
    >>> axes = ("chain", "draw", "feature", "task")
    >>> found = patterns(xr.Dataset({"coef": (axes, 1.0 * on), "included": (axes, on)}))
    >>> found.to_frame()
      feature  kind  all  some  specific  none likeliest_tasks
    0      x0   all  1.0   0.0       0.0   0.0             all
    1      x1  some  0.0   0.8       0.0   0.2            0, 1
    """
    draws = read_draws(posterior)
    entries = entries_in_model(draws, effect_size, posterior, X, y, tasks, sample_weight, loss)
    if draws.included is None:
        warn_of_no_zeros()
    result = getattr(posterior, "result_", posterior)
    absent = result.absent if isinstance(result, FitResult) else None
    n_present = len(draws.task_names) - (0 if absent is None else absent.sum(axis=0)[draws.positions])
    nothing = np.eye(len(KINDS))[KINDS.index("none")]
    kinds = np.tile(nothing, (len(draws.feature_names), 1))
    kinds[draws.positions] = kind_probabilities(entries, n_present)
    listed = dict(zip(draws.positions.tolist(), _listed(entries, draws.task_names.tolist()), strict=True))
    return Patterns(
        patterns=tuple(listed.get(i, (Pattern((), 1.0),)) for i in range(len(kinds))),
        kinds=kinds,
        task_probability=draws.over_all_features(entries.mean(axis=0), 0.0).T,
        sharing=sharing(entries),
        feature_names=draws.feature_names,
        tasks=draws.task_names,
    )


def kind_probabilities(entries: BoolArray, n_present: Any) -> FloatArray:
    """(p, 4) Probabilities of `KINDS`, of draws (S, p, m) and the number of tasks that have each feature."""
    count = entries.sum(axis=2)
    everywhere = (count == n_present) & ((count > 1) | (entries.shape[2] == 1))
    specific = (count == 1) & ~everywhere
    kinds = np.stack([everywhere, (count > 1) & ~everywhere, specific, count == 0], axis=2)
    return np.asarray(kinds.mean(axis=0))


def sharing(entries: BoolArray) -> FloatArray:
    """(m, m) Expected number of features that two tasks have over that of features that either has."""
    flat = entries[entries.any(axis=2)].astype(np.float64)
    both = flat.T @ flat
    own = np.diagonal(both)
    either = own[:, None] + own - both
    return np.divide(both, either, out=np.zeros_like(both), where=either > 0)


def _listed(entries: BoolArray, labels: list[Any]) -> list[tuple[Pattern, ...]]:
    """For every feature its patterns from `LEAST` on, the most probable first."""
    n_draws, on = len(entries), entries.any(axis=2)
    found = []
    for i in range(entries.shape[1]):
        codes, counts = np.unique(np.packbits(entries[on[:, i], i], axis=1), axis=0, return_counts=True)
        rows = np.unpackbits(codes, axis=1, count=len(labels)).astype(bool)
        listed = [_pattern(row, labels, count / n_draws) for row, count in zip(rows, counts, strict=True)]
        listed.append(Pattern((), float(1.0 - on[:, i].mean())))
        likely = [one for one in listed if one.probability >= LEAST]
        found.append(tuple(sorted(likely, key=lambda one: -one.probability)))
    return found


def _pattern(row: BoolArray, labels: list[Any], probability: float) -> Pattern:
    return Pattern(tuple(label for label, on in zip(labels, row, strict=True) if on), float(probability))
