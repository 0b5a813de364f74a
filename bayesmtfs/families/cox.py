r"""Cox's partial likelihood: right-censored times, each task with a baseline of its own.

With the risk set :math:`R_\tau = \{j : t_j \ge \tau\}` and the d events :math:`D_\tau` at a time tau, the loss of a task is

.. math:: L(\eta) = \sum_\tau \frac{C_\tau}{d} \sum_{l < d} \ln\Big(\sum_{j \in R_\tau} w_j e^{\eta_j}
   - \frac{l}{d} \sum_{j \in D_\tau} w_j e^{\eta_j}\Big) - \sum_{i\,\mathrm{event}} w_i \eta_i , \quad C_\tau = w(D_\tau) ,

with weights w and ties after Efron 1977 (*JASA* 72:557-565); Cox 1972 (*JRSS B* 34:187-220). Targets are times, with a
minus sign where censored (as in XGBoost).

Its conjugate has a closed form, but for one root for each time with ties. At ``theta = grad L`` an observation holds the
mass :math:`\nu_j = \theta_j + w_j [j\,\mathrm{event}] = w_j e^{\eta_j} A_j`, where A is the cumulated hazard that it went
through. Every time pours ``C_tau`` into the pool of those at risk, and everyone takes their mass along on leaving. What
comes into ``tau``, ``r = theta(R_tau)``, what its events take, ``N = nu(D_tau)``, and what is left, ``r' = r + C_tau - N``,
are therefore sums of theta, and the share x of the events in the risk set is the root of an increasing convex function,

.. math:: x r + \frac{C_\tau}{d} \sum_l \frac{(1 - l/d) x}{1 - x l/d} = N, \qquad
   L^*(\theta) = \sum_j \nu_j \ln \frac{\nu_j}{w_j} - \sum_\tau \Big[ N \ln \frac{N}{x} + r' \ln \frac{r'}{1 - x} - r \ln r
   + \frac{C_\tau}{d} \sum_l \ln\Big(1 - \frac{l x}{d}\Big) \Big] ,

finite where all masses and what is left are at least 0. Without ties x is ``N / (r + C)``.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import xlogy

from bayesmtfs.families.family import Family
from bayesmtfs.types import BoolArray, FloatArray, IntArray

ROUNDING = 1e-9  # of a mass, relative to the weight of the task
TINY = 1e-300
NEWTON_STEPS = 100  # for the roots of ties; they end when nothing changes


class Cox(Family):
    """Partial likelihood of right-censored times; a coupled family, see `Family.on`.

    Examples
    --------
    >>> import numpy as np
    >>> y = np.array([1.0, 2.0, -3.0])  # two events, and one that was still alive at 3
    >>> Cox().on(y, np.ones(3), np.array([0, 3])).value(y, np.zeros(3)).round(3)
    array([1.099, 0.693, 0.   ])
    """

    name = "cox"
    targets = "survival"
    coupled = True
    free_level = True

    def best_constant(self, y: FloatArray, weight: FloatArray) -> float:
        """0: no constant changes the loss."""
        return 0.0

    def working_noise(self, y: FloatArray, weight: FloatArray) -> float:
        """Deviation of a normal target that tells as much as a row does: only events tell anything of eta."""
        return float(1.0 / np.sqrt(np.average(~np.signbit(y), weights=weight)))

    def log_density(self, y: FloatArray, eta: FloatArray, noise: FloatArray | float = 1.0) -> FloatArray:
        """Terms of the log of the partial likelihood, at rows with an event."""
        return -self.value(y, eta)

    def pymc_dist(self, eta: Any, noise: Any, **options: Any) -> Any:
        """PyMC term with these log-densities."""
        raise self._missing("pymc_dist")

    def on(self, y: FloatArray, weight: FloatArray, offsets: IntArray) -> Family:
        """The family on rows that are sorted by task."""
        return CoxRows(y, weight, offsets)


class CoxRows(Cox):
    """The partial likelihood on given rows."""

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __init__(self, y: FloatArray, weight: FloatArray, offsets: IntArray) -> None:
        spans = zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
        self.parts = [(slice(a, b), RiskSets(y[a:b], weight[a:b])) for a, b in spans]

    def value(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Loss, at the rows with an event."""
        return self._by_task(RiskSets.value, eta)

    def gradient(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Hazard that a row went through, minus 1 where it has an event: minus its martingale residual."""
        return self._by_task(RiskSets.hazard, eta) - ~np.signbit(y)

    def curvature(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Hazard that a row went through, which bounds the second derivatives."""
        return self._by_task(RiskSets.hazard, eta)

    def conjugate(self, y: FloatArray, dual: FloatArray) -> FloatArray:
        """Terms of the conjugate; inf in a task whose dual variables are outside its domain."""
        return self._by_task(RiskSets.conjugate, dual)

    def pymc_dist(self, eta: Any, noise: Any, **options: Any) -> Any:
        """PyMC term whose log-densities are those of `log_density`, on these rows; it has no draws."""
        import pymc as pm
        import pytensor.tensor as pt

        places = RiskTable.of(self.parts)
        if not len(places.events):
            return pm.CustomDist.dist(eta, logp=lambda value, eta: pt.zeros_like(eta), **options)

        def log_density(value: Any, eta: Any) -> Any:
            by_time = pt.where(places.filled, eta[places.row] + places.log_weight, -np.inf)
            highest = pt.max(by_time, axis=1, keepdims=True)
            size = pt.exp(by_time - highest)
            at_risk = pt.cumsum(size[:, ::-1], axis=1)[:, ::-1].ravel()[places.risk]
            spared = size.ravel()[places.event_place]
            dying = pt.zeros(len(places.risk))[places.number].inc(spared)
            left = at_risk[places.number] - places.share * dying[places.number]
            terms = pt.log(left) + highest.ravel()[places.task]
            mean = pt.zeros(len(places.risk))[places.number].inc(terms / places.ties)
            return pt.zeros_like(eta)[places.events].set(eta[places.events] - mean[places.number])

        return pm.CustomDist.dist(eta, logp=log_density, **options)

    def _by_task(self, method: Callable[["RiskSets", FloatArray], FloatArray], values: FloatArray) -> FloatArray:
        return np.concatenate([method(sets, values[rows]) for rows, sets in self.parts])


class RiskTable(NamedTuple):
    """Rows of all m tasks by time, one line (n,) each, and where among them the E events at G times are."""

    row: IntArray  # (m, n) number of the row
    filled: BoolArray  # (m, n) False beyond the last row of a task
    log_weight: FloatArray  # (m, n)
    risk: IntArray  # (G,) place, line after line, of the first row at risk
    events: IntArray  # (E,) numbers of the rows with an event
    event_place: IntArray  # (E,) their places
    number: IntArray  # (E,) their times
    task: IntArray  # (E,) their tasks
    share: FloatArray  # (E,) l / d
    ties: FloatArray  # (E,) d

    @classmethod
    def of(cls, parts: list[tuple[slice, "RiskSets"]]) -> "RiskTable":
        """Put the risk sets of all tasks together."""
        width, before = max(len(sets.time) for _, sets in parts), 0
        row = np.zeros((len(parts), width), dtype=np.int64)
        filled, log_weight = np.zeros(row.shape, dtype=bool), np.zeros(row.shape)
        columns: list[list[IntArray | FloatArray]] = [[] for _ in range(7)]
        for t, (rows, sets) in enumerate(parts):
            n = len(sets.time)
            row[t, :n], filled[t, :n], log_weight[t, :n] = rows.start + sets.order, True, np.log(sets.weight)
            own: list[Any] = [
                *(t * width + sets.risk, rows.start + sets.order[sets.events], t * width + sets.events),
                *(before + sets.number, np.full(len(sets.events), t), sets.share, sets.deaths[sets.number]),
            ]
            for column, values in zip(columns, own, strict=True):
                column.append(values)
            before += len(sets.times)
        *known, ties = (np.concatenate(column) for column in columns)
        table: list[Any] = [row, filled, log_weight, *known, ties.astype(np.float64)]
        return cls(*table)


class RiskSets:
    """Rows of one task by time: who is at risk at every distinct time of an event, of which there are G."""

    def __init__(self, y: FloatArray, weight: FloatArray) -> None:
        time, censored = np.abs(y), np.signbit(y)
        self.order = np.lexsort((censored, time))
        self.time, self.weight = time[self.order], weight[self.order]
        self.event = ~censored[self.order]
        self.events = np.flatnonzero(self.event)  # (E,)
        self.times, self.first, number, self.deaths = np.unique(
            self.time[self.events], return_index=True, return_inverse=True, return_counts=True
        )  # (G,), (G,) first event of each time, (E,) time of each event, (G,) events at each time
        self.number = number
        self.risk = np.searchsorted(self.time, self.times)  # (G,) first row at risk
        self.passed = np.searchsorted(self.times, self.time, side="right")  # (n,) times that a row went through
        self.share = (np.arange(len(self.events)) - self.first[number]) / self.deaths[number]  # (E,) l / d
        self.mass = self._sums(self.weight[self.events])  # (G,) C
        self.term = (self.mass / self.deaths)[number]  # (E,) C / d

    def _sums(self, values: FloatArray) -> FloatArray:
        """(G,) Sums of (E,) values over the events of each time."""
        return np.bincount(self.number, weights=values, minlength=len(self.times))

    def _in_place(self, values: FloatArray) -> FloatArray:
        """(n,) Values by time in the order of the rows."""
        placed = np.empty_like(values)
        placed[self.order] = values
        return placed

    def _log_terms(self, eta: FloatArray) -> FloatArray:
        """(E,) Logarithms of the sums over risk sets; eta is by time."""
        size = eta + np.log(self.weight)
        at_risk = np.logaddexp.accumulate(size[::-1])[::-1][self.risk]
        dying = np.logaddexp.reduceat(size[self.events], self.first)
        ratio = np.exp(np.minimum(dying - at_risk, 0.0))
        return at_risk[self.number] + np.log1p(-self.share * ratio[self.number])

    def value(self, eta: FloatArray) -> FloatArray:
        """(n,) Loss of each event, 0 elsewhere."""
        eta, terms = eta[self.order], np.zeros(len(eta))
        if len(self.events):
            mean = self._sums(self._log_terms(eta)) / self.deaths
            terms[self.events] = mean[self.number] - eta[self.events]
        return self._in_place(terms)

    def hazard(self, eta: FloatArray) -> FloatArray:
        """(n,) Cumulated hazard of each row, ``e^eta A``."""
        eta, found = eta[self.order], np.zeros(len(eta))
        if len(self.events):
            steps = np.log(self.term) - self._log_terms(eta)  # of the baseline, by event
            cumulated = np.logaddexp.accumulate(np.logaddexp.reduceat(steps, self.first))
            some = self.passed > 0
            found[some] = np.exp(eta[some] + cumulated[self.passed[some] - 1])
            with np.errstate(divide="ignore"):
                spared = np.logaddexp.reduceat(steps + np.log(self.share), self.first)
            found[self.events] -= np.exp(eta[self.events] + spared[self.number])
        return self._in_place(np.maximum(found, 0.0))

    def hazard_rates(self, eta: FloatArray) -> FloatArray:
        """(G,) Sum of ``w e^eta`` over those at risk at each time."""
        size = eta[self.order] + np.log(self.weight)
        return np.exp(np.logaddexp.accumulate(size[::-1])[::-1][self.risk])

    def baseline(self, eta: FloatArray) -> FloatArray:
        """(G,) Cumulated baseline hazard after each time, by Breslow's estimate."""
        return np.cumsum(self.mass / self.hazard_rates(eta))

    def conjugate(self, dual: FloatArray) -> FloatArray:
        """(n,) Terms of the conjugate."""
        dual = dual[self.order]
        nu, theta, slack = dual + self.event, self.weight * dual, ROUNDING * self.weight.sum()
        coming = np.cumsum(theta[::-1])[::-1][self.risk]
        taken = self._sums((self.weight * nu)[self.events])
        left = coming + self.mass - taken
        lone = (self.passed == 0) & (np.abs(theta) > slack)
        if min(nu.min() * self.weight.max(), coming.min(initial=0.0), left.min(initial=0.0)) < -slack or lone.any():
            return np.full(len(dual), np.inf)
        terms = xlogy(np.maximum(nu, 0.0), np.maximum(nu, 0.0))
        coming, taken, left = (np.maximum(part, 0.0) for part in (coming, taken, left))
        x = self._share_of_events(coming, taken)
        block = xlogy(taken, taken) - xlogy(taken, np.maximum(x, TINY)) - xlogy(coming, coming)
        block += xlogy(left, left) - xlogy(left, np.maximum(1.0 - x, TINY))
        block += self._sums(self.term * np.log1p(-self.share * x[self.number]))
        terms[self.events] -= (block / self.mass)[self.number]
        return self._in_place(terms)

    def _share_of_events(self, coming: FloatArray, taken: FloatArray) -> FloatArray:
        """(G,) Share x of the events in each risk set, by Newton steps from above, which do not cross the root."""
        x = np.minimum(taken / (coming + self.mass), 1.0)
        tied = self.deaths > 1
        if not tied.any():
            return x
        x = np.where(tied, 1.0, x)
        for _ in range(NEWTON_STEPS):
            rest = 1.0 - self.share * x[self.number]
            slope = self._sums(self.term * (1.0 - self.share) / rest**2) + coming
            excess = self._sums(self.term * (1.0 - self.share) / rest) * x + coming * x - taken
            better = np.where(tied, np.clip(x - excess / slope, 0.0, x), x)
            if np.array_equal(better, x):
                break
            x = better
        return x
