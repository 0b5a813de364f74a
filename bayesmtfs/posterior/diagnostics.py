"""Whether draws can be trusted: always asked, answered in one table and, where they cannot, in one warning.

For every variable the largest rank R-hat and the smallest effective numbers of draws, in the bulk and in the tails
(Vehtari, Gelman, Simpson, Carpenter and Buerkner 2021, *Bayesian Analysis* 16:667-718); positive variables on the
logarithmic scale, on which a row scale that drifts towards 0 is seen. An R-hat that is not a number is a failure: a
chain that stands still or runs off has no variance to compare. Of NUTS also divergences, the fraction of missing
information (BFMI) and trajectories that were cut off at their largest depth.

Coefficients of labels that can be separated may have no mean, however well they mix: the Pareto shape of their tails is
looked at too (Vehtari, Simpson, Gelman, Yao and Gabry 2024, *Journal of Machine Learning Research* 25:72).

Coefficients that are exactly 0 in most draws have no R-hat to speak of. Under a prior with such zeros the log-likelihood
and the number of features are judged instead, and the largest difference between chains in a feature's inclusion
probability.

Of a variable with many entries the `ENTRIES` that look worst by split R-hat, of the entry and of its distance from its
mean, and by lag-1 autocorrelation are judged in full, since ranks of a hundred thousand draws take longer than drawing
them.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from arviz_stats.base.array import array_stats
from arviz_stats.sampling_diagnostics import bfmi, ess, rhat
from numpy.typing import NDArray

from bayesmtfs.posterior.tree import POSITIVE, SampledDraws
from bayesmtfs.results.tables import Backend, as_frame
from bayesmtfs.types import FloatArray, IntArray, PosteriorWarning, warn

LARGEST_RHAT = 1.01
LEAST_ESS_PER_CHAIN = 100
LEAST_BFMI = 0.3
ENTRIES = 100  # of a variable, for each of the three quick measures
HEAVY_TAIL = 0.7  # Pareto shape from which on means of draws are not to be trusted (Vehtari et al. 2024)
TAILS = 20  # coefficients whose tails are looked at
LARGEST_GAP = 0.1  # between chains, in the inclusion probability of a feature
DEPTH_NAMES = ("depth", "tree_depth")  # nutpie's and PyMC's name of the same thing


class VariableDiagnostics(NamedTuple):
    """The worst entries of one variable."""

    variable: str
    n_entries: int
    rhat: float  # largest; nan where any entry has none
    ess_bulk: float  # smallest
    ess_tail: float  # smallest


@dataclass(frozen=True)
class Diagnostics:
    """What is known about the quality of draws.

    Attributes
    ----------
    table : one entry per variable that is learned
    n_chains, n_draws : int
    divergences : number of divergent transitions, None where the sampler has none
    bfmi : smallest over chains, None as above
    depth_share : share of trajectories that reached the largest depth, None as above
    pareto_shape : Pareto shape of the heaviest tail of a coefficient of labels; from 1 on its mean does not exist, and from
        1/2 on its deviation. None for numbers
    interrupted : whether sampling was stopped early
    inclusion_gap : largest difference between chains in a feature's inclusion probability, None without exact zeros
    """

    table: tuple[VariableDiagnostics, ...]
    n_chains: int
    n_draws: int
    divergences: int | None = None
    bfmi: float | None = None
    depth_share: float | None = None
    pareto_shape: float | None = None
    interrupted: bool = False
    inclusion_gap: float | None = None

    @property
    def least_ess(self) -> float:
        """Effective number of draws below which a variable is complained about."""
        return float(LEAST_ESS_PER_CHAIN * self.n_chains)

    @property
    def hard_to_follow(self) -> bool:
        """Whether trajectories of NUTS went wrong: more draws alone do not help then."""
        weak = self.bfmi is not None and not self.bfmi >= LEAST_BFMI
        return bool(self.divergences or self.depth_share or weak)

    @property
    def largest_rhat(self) -> float:
        """Over all variables; nan where any is nan."""
        return float(np.max([row.rhat for row in self.table])) if self.table else float("nan")

    def problems(self) -> list[str]:
        """Say in words what is wrong; an empty list where nothing is."""
        found = []
        stuck = [row.variable for row in self.table if np.isnan(row.rhat)]
        apart = [f"{row.variable} {row.rhat:.3f}" for row in self.table if row.rhat > LARGEST_RHAT]
        few = [
            f"{row.variable} {min(row.ess_bulk, row.ess_tail):.0f}"
            for row in self.table
            if not min(row.ess_bulk, row.ess_tail) >= self.least_ess
        ]
        if stuck:
            found.append(f"R-hat is not a number for {_listed(stuck)} (a chain stands still or has run off)")
        if apart:
            found.append(f"R-hat is above {LARGEST_RHAT} for {_listed(apart)}")
        if few:
            found.append(f"fewer than {self.least_ess:.0f} effective draws for {_listed(few)}")
        if self.inclusion_gap is not None and self.inclusion_gap > LARGEST_GAP:
            found.append(f"chains differ by {self.inclusion_gap:.2f} in the inclusion probability of a feature")
        if self.divergences:
            found.append(f"{self.divergences} divergences")
        if self.bfmi is not None and not self.bfmi >= LEAST_BFMI:
            found.append(f"BFMI {self.bfmi:.2f}, below {LEAST_BFMI}")
        if self.depth_share:
            found.append(f"{100 * self.depth_share:.1f}% of the trajectories were cut off at the largest depth")
        return found

    def to_frame(self, backend: Backend = "pandas") -> Any:
        """Give the table as a data frame with columns variable, n_entries, rhat, ess_bulk, ess_tail.

        Parameters
        ----------
        backend : {"pandas", "polars"}
        """
        columns = zip(*self.table, strict=True) if self.table else [()] * len(VariableDiagnostics._fields)
        content: dict[str, Any] = dict(zip(VariableDiagnostics._fields, map(list, columns), strict=True))
        return as_frame(content, backend)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, to keep in a file."""
        return {**vars(self), "table": [tuple(row) for row in self.table]}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "Diagnostics":
        """Read what `as_dict` gave."""
        table = tuple(VariableDiagnostics(*row) for row in content["table"])
        return cls(**{**content, "table": table})


def diagnose(draws: SampledDraws, labels: bool = False, max_depth: int = 10) -> Diagnostics:
    """Judge draws, in any units; of labels also their tails, which separable labels make heavy."""
    rows = []
    included = draws.variables.get("included")
    if not draws.independent:
        for name, values in (draws.variables if included is None else _judged_with_zeros(draws)).items():
            entries = _learned_entries(name, values)
            if name not in draws.fixed and entries.shape[-1]:
                rows.append(_diagnose_variable(name, _on_line(entries) if name in POSITIVE else entries))
    statistics = draws.statistics
    depth = next((statistics[name] for name in DEPTH_NAMES if name in statistics), None)
    return Diagnostics(
        table=tuple(rows),
        n_chains=draws.n_chains,
        n_draws=draws.n_draws,
        divergences=int(statistics["diverging"].sum()) if "diverging" in statistics else None,
        bfmi=_least_bfmi(statistics["energy"]) if "energy" in statistics else None,
        depth_share=None if depth is None else float(np.mean(depth >= max_depth)),
        pareto_shape=_heaviest_tail(draws.variables["coef"]) if labels else None,
        interrupted=draws.interrupted,
        inclusion_gap=None if included is None or draws.independent else _inclusion_gap(included),
    )


def _judged_with_zeros(draws: SampledDraws) -> dict[str, FloatArray]:
    """What is judged under a prior with exact zeros; a number of features that never changes is no fault."""
    judged = {name: values for name, values in draws.variables.items() if name not in ("coef", "included")}
    judged |= draws.statistics
    return {name: values for name, values in judged.items() if np.ptp(values) > 0}


def _inclusion_gap(included: FloatArray) -> float:
    """Largest difference between chains (between halves of a single one)."""
    chances = _halved(included.max(axis=3)).mean(axis=1)
    return float(np.ptp(chances, axis=0).max(initial=0.0))


def remedy_of(diagnostics: Diagnostics, sampler: str, prior: str) -> str:
    """Advice for draws with problems.

    Examples
    --------
    >>> remedy_of(Diagnostics((), 4, 1000, divergences=3), "nuts", "horseshoe")
    'raise tune and target_accept (towards 0.99), or lower expected_features'
    >>> remedy_of(Diagnostics((), 4, 1000, divergences=0), "nuts", "horseshoe")
    'raise draws and tune'
    """
    if sampler == "variational":
        return "use sampler='gibbs'"
    if not diagnostics.hard_to_follow:
        return "raise draws and tune"
    steps = "raise tune and target_accept (towards 0.99)"
    return steps if prior in ("mixed_norm", "jeffreys") else f"{steps}, or lower expected_features"


def warn_of_problems(diagnostics: Diagnostics, message: str, remedy: str) -> None:
    """Give one `PosteriorWarning` with all problems, that of the sampler itself too, and what to do."""
    problems = diagnostics.problems() + ([message] if message else [])
    if diagnostics.interrupted:
        problems.insert(0, f"sampling was interrupted, {diagnostics.n_draws} draws per chain are kept")
    if problems:
        warn(f"do not trust this posterior yet: {'; '.join(problems)}; {remedy} (see diagnostics_)", PosteriorWarning)


def warn_of_tails(diagnostics: Diagnostics) -> None:
    """Give a `PosteriorWarning` where coefficients of labels have hardly a mean, as separable labels make them."""
    shape = diagnostics.pareto_shape
    if shape is not None and shape > HEAVY_TAIL:
        warn(
            f"some coefficients have tails so heavy (Pareto shape {shape:.2f}) that their means and deviations, coef_ and "
            "coef_std_, are uncertain or do not exist: the labels are separable, or nearly so, and do not say how large "
            "effects are. Signs, probabilities and quantiles hold; for means take prior='horseshoe', or tail_shape=2",
            PosteriorWarning,
        )


def _heaviest_tail(coef: FloatArray) -> float:
    """Pareto shape of the tails of the coefficients with the largest draws."""
    entries = _learned_entries("coef", coef)
    largest = np.argsort(-np.abs(entries).max(axis=(0, 1)))[:TAILS]
    shapes = _over_entries(array_stats.pareto_khat, entries[:, :, largest])
    return float(np.max(shapes[~np.isnan(shapes)], initial=-np.inf))  # nan: hardly ever other than 0


def _on_line(values: FloatArray) -> FloatArray:
    """Logarithm of positive values; minus infinity at zero, where a scale has run off."""
    with np.errstate(divide="ignore"):
        return np.log(values)


def _learned_entries(name: str, values: FloatArray) -> FloatArray:
    """(chains, draws, k) Entries of a variable that are not fixed by construction."""
    if name == "task_relations":
        above = np.triu_indices(values.shape[-1], 1)
        return values[..., above[0], above[1]]
    flat = values.reshape(*values.shape[:2], -1)
    if name == "coef":  # features that a task does not have
        return flat[:, :, (flat != 0).any(axis=(0, 1))]
    if name == "noise" and flat.shape[-1] > 1 and np.all(flat == flat[:, :, :1]):  # one noise for all tasks
        return flat[:, :, :1]
    return flat


def _diagnose_variable(name: str, entries: FloatArray) -> VariableDiagnostics:
    n_entries = entries.shape[-1]
    moving = (entries != entries[:, :1]).any(axis=1).all(axis=0)
    finite = np.isfinite(entries).all(axis=(0, 1)) & moving
    judged = entries[:, :, finite]
    if not finite.any():
        return VariableDiagnostics(name, n_entries, float("nan"), float("nan"), float("nan"))
    judged = _halved(judged[:, :, _worst_looking(judged)])
    apart = _over_entries(rhat, judged)
    bulk = _over_entries(ess, judged, method="bulk")
    tail = _over_entries(ess, judged, method="tail", prob=(0.05, 0.95))
    return VariableDiagnostics(
        name, n_entries, float(np.max(apart)) if finite.all() else float("nan"), float(bulk.min()), float(tail.min())
    )


def _least_bfmi(energy: FloatArray) -> float:
    measure: Any = bfmi
    return float(np.min(measure(energy)))


def _over_entries(measure: Any, entries: FloatArray, **options: Any) -> FloatArray:
    return np.asarray(measure(entries, chain_axis=0, draw_axis=1, **options), dtype=np.float64)


def _halved(entries: FloatArray) -> FloatArray:
    """Two halves of a single chain, so that there is something to compare."""
    if entries.shape[0] > 1:
        return entries
    half = entries.shape[1] // 2
    return np.stack([entries[0, :half], entries[0, -half:]])


def _worst_looking(entries: FloatArray) -> IntArray:
    """Numbers of the entries to judge in full."""
    if entries.shape[-1] <= 3 * ENTRIES:
        return np.arange(entries.shape[-1])
    distances = np.abs(entries - entries.mean(axis=(0, 1)))  # chains of unequal width have equal means
    measures = (_split_rhat(entries), _split_rhat(distances), _lag_one(entries))
    return np.unique(np.concatenate([np.argsort(-measure)[:ENTRIES] for measure in measures]))


def _split_rhat(entries: FloatArray) -> FloatArray:
    half = entries.shape[1] // 2
    parts = np.concatenate([entries[:, :half], entries[:, -half:]])
    within = parts.var(axis=1, ddof=1).mean(axis=0)
    return np.asarray(np.sqrt((half - 1) / half + parts.mean(axis=1).var(axis=0, ddof=1) / within))


def _lag_one(entries: FloatArray) -> FloatArray:
    centred = entries - entries.mean(axis=1, keepdims=True)
    together: NDArray[np.float64] = np.einsum("cdk,cdk->k", centred[:, 1:], centred[:, :-1])
    return together / np.einsum("cdk,cdk->k", centred, centred)


def _listed(items: list[str], most: int = 6) -> str:
    return ", ".join(items) if len(items) <= most else f"{', '.join(items[:most])} and {len(items) - most} more"
