"""The descent of the evidence: steps that never rise, rows that come and go, noise from high to low.

Rows leave when the evidence that would be lost without them is below their cost, and come back when what they would
bring is above it. Everything here lowers the one objective of `evidence`; its values are the trace.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from bayesmtfs.em.evidence_likelihoods import NormalEvidence
from bayesmtfs.em.evidence_rows import candidate_statistics, gains, losses, statistics
from bayesmtfs.em.evidence_steps import Point, Settings, State, evaluate, over_rows, step
from bayesmtfs.progress import Progress
from bayesmtfs.types import FloatArray

FIRST_NOISE = 0.2  # share of the deviation of y at which the search for the noise begins
NOISE_STEP = 0.2
ROWS_PER_FEATURE = 2.0  # in every task, from which a level of the noise is trusted
ROUGHLY = 100.0  # how much larger the tolerance is at such a level
FIRST_ROWS = 500  # to begin with, at least
FIRST_ROWS_PER_OBSERVATION = 8  # of the largest task
CAUTIOUS_STEPS = 5  # after a bold step that failed
ROUNDING = 1e-12


class Search:
    """A descent: where it is, how it came there, and how many posteriors it may still compute.

    Attributes
    ----------
    point : the best point so far
    trace : objectives on the way to it
    n_iter : posteriors computed
    """

    point: Point

    def __init__(self, settings: Settings, max_iter: int, bar: Progress) -> None:
        self.settings = settings
        self.max_iter = max_iter
        self.bar = bar
        self.trace: list[float] = []
        self.n_iter = 0

    @property
    def exhausted(self) -> bool:
        """Whether there is no iteration left."""
        return self.n_iter >= self.max_iter

    def begin(self, state: State) -> None:
        """Start anew from a state."""
        self.point = self._evaluate(state)
        self.trace = [self.point.objective]

    def begin_with_all(self, parameters: FloatArray) -> None:
        """Start anew from all features that vary, each with an even share of the spread.

        Of very many features only those begin that explain most by themselves; `polish` looks at the others.
        """
        family, rows = self.settings.family, self.settings.row_of_feature
        variances = family.starting_variances()
        n_most = max(FIRST_ROWS, FIRST_ROWS_PER_OBSERVATION * family.largest_task)
        if len(rows) > n_most:
            association = np.bincount(rows, weights=family.association())
            best = np.argsort(-association, kind="stable")[:n_most]
            variances = np.where(np.isin(rows, best), variances, 0.0)
        active = np.flatnonzero(variances > 0)
        self.begin(State(active, variances[active], parameters, None))

    def move(self, state: State) -> None:
        """Go to a state of another family, whatever its objective there."""
        self.point = self._evaluate(state)
        self.trace.append(self.point.objective)

    @contextmanager
    def fixed_noise(self) -> Iterator[None]:
        """Leave the likelihood's parameters alone for a while."""
        settings = self.settings
        self.settings = replace(settings, learn_noise=False)
        yield
        self.settings = settings

    def descend(self, tol: float) -> None:
        """Step until the objective has twice fallen by less than ``tol`` per observation."""
        enough = tol * self.settings.family.n_effective
        cautious = calm = 0
        while calm < 2 and not self.exhausted:
            before = self.point.objective
            if cautious == 0 and not self._try_step(1.0):
                cautious = CAUTIOUS_STEPS
            if cautious > 0:
                if not (self._try_step(0.5) or self._try_step(0.0)):
                    return
                cautious -= 1
            calm = calm + 1 if before - self.point.objective < enough else 0

    def drop_rows(self) -> bool:
        """Take out rows that are not worth their cost; False where there are none."""
        state = self.point.state
        if not len(state.active):
            return False
        loss = losses(statistics(self.point.posterior, state.relations), state.row_variances)
        loss = over_rows(self.settings, state, loss)
        order = np.argsort(loss, kind="stable")
        rows = self.settings.row_of_feature[state.active]
        n_cheap = int(np.sum(loss < self.settings.row_cost))
        while n_cheap > 0 and not self.exhausted:
            kept = ~np.isin(rows, rows[order[:n_cheap]])
            if self._try(state._replace(active=state.active[kept], row_variances=state.row_variances[kept])):
                return True
            n_cheap //= 2  # rows can stand in for each other: not all may go at once
        return False

    def add_rows(self) -> bool:
        """Bring in rows that are worth more than their cost; False where there are none."""
        settings, state = self.settings, self.point.state
        family, p = settings.family, len(settings.row_of_feature)
        if len(state.active) == p or self.exhausted:
            return False
        candidates = candidate_statistics(
            family.tasks(np.arange(p), state.parameters),
            state.active,
            state.row_variances,
            family.precision(state.parameters),
            state.relations if len(state.active) else None,
        )
        gain, variance = gains(candidates)
        gain[state.active] = 0.0
        gain = np.bincount(settings.row_of_feature, weights=gain)
        worth = np.flatnonzero(gain > settings.row_cost + ROUNDING * abs(self.point.objective))
        worth = worth[np.argsort(-gain[worth], kind="stable")]
        n_new = len(worth)
        while n_new > 0 and not self.exhausted:
            new = np.flatnonzero(np.isin(settings.row_of_feature, worth[:n_new]) & (variance > 0))
            features = np.concatenate([state.active, new])
            variances = np.concatenate([state.row_variances, variance[new]])
            order = np.argsort(features)
            if self._try(state._replace(active=features[order], row_variances=variances[order])):
                return True
            n_new //= 4
        return False

    def prune(self, tol: float) -> None:
        """Descend and drop rows in turn."""
        self.descend(tol)
        while self.drop_rows():
            self.descend(tol)

    def polish(self, tol: float) -> None:
        """Descend, drop and add rows until nothing changes."""
        self.prune(tol)
        while self.add_rows():
            self.prune(tol)

    def _try_step(self, boldness: float) -> bool:
        return self._try(step(self.settings, self.point, boldness))

    def _try(self, state: State) -> bool:
        """Move to a state unless the objective is higher there."""
        candidate = self._evaluate(state)
        if candidate.objective > self.point.objective + ROUNDING * abs(self.point.objective):
            return False
        self.point = candidate
        self.trace.append(candidate.objective)
        return True

    def _evaluate(self, state: State) -> Point:
        self.n_iter += 1
        self.bar.update(self.n_iter / self.max_iter, f"{len(state.active)} features")
        return evaluate(self.settings, state)


def search_noise(search: Search, family: NormalEvidence, tol: float) -> None:
    """Find rows at falling levels of the noise, each time from all features, until a level brings nothing better.

    Where every task has many more rows than features, rows are only roughly found at a level before the noise moves,
    and no lower level is tried once more noise is left than there was at the last one: all features together cannot
    explain the rest.
    """
    determined = float(family.counts.min()) >= ROWS_PER_FEATURE * family.all_tasks.n_features
    best: tuple[Point, list[float]] | None = None
    share = FIRST_NOISE
    while best is None or not search.exhausted:
        search.begin_with_all(family.at_share(share))
        with search.fixed_noise():
            search.prune(ROUGHLY * tol if determined else tol)
        search.prune(tol)
        if best is not None and search.point.objective >= best[0].objective - tol * family.n_effective:
            search.point, search.trace = best
            return
        if determined and family.share(search.point.state.parameters) >= share:
            return
        best = (search.point, search.trace)
        share *= NOISE_STEP
