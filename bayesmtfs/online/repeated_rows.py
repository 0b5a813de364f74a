"""Rows that are all there and are learned several times: passes over them, and a part that is kept back to judge by."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

import numpy as np

from bayesmtfs.data.inputs import Design
from bayesmtfs.families import Family
from bayesmtfs.online.dual_averaging_kernels import Observations, Schedule, round_schedule, shuffle_within_tasks
from bayesmtfs.online.learner import Coefficients
from bayesmtfs.types import FloatArray, IntArray

KEPT_BACK = 5  # one row in so many


class RepeatedRows(NamedTuple):
    """Observations of a design, sorted by task."""

    design: Design  # (n, p)
    seen: Observations
    places: IntArray  # (N,) which of the observations, task by task
    offsets: IntArray  # (m + 1,) where each task begins among the places

    @property
    def sizes(self) -> FloatArray:
        """(m,) Total weight of each task."""
        return np.add.reduceat(self.seen.weight[self.places], self.offsets[:-1])

    def passes(self, seeds: Sequence[int | None]) -> Iterator[Schedule]:
        """Rounds of one pass per seed, which shuffles the rows within tasks; None leaves their order."""
        n_tasks = self.offsets.size - 1
        order, starts = round_schedule(np.repeat(np.arange(n_tasks), np.diff(self.offsets)), n_tasks)
        places = self.places.copy()
        for seed in seeds:
            if seed is not None:
                shuffle_within_tasks(places, self.offsets, seed)
            yield Schedule(places[order], starts)

    def split(self, seed: int) -> tuple[Self, Self]:
        """A random fifth of each task's rows apart from the others: those first, then the fifth."""
        shuffled, counts = self.places.copy(), np.diff(self.offsets)
        shuffle_within_tasks(shuffled, self.offsets, seed)
        number = np.arange(shuffled.size) - np.repeat(self.offsets[:-1], counts)
        apart = number < np.repeat(counts // KEPT_BACK, counts)
        ends = np.concatenate([[0], np.cumsum(counts // KEPT_BACK)])
        rest = self._replace(places=shuffled[~apart], offsets=self.offsets - ends)
        return rest, self._replace(places=shuffled[apart], offsets=ends)

    def losses(self, family: Family, found: Coefficients, constants: FloatArray) -> FloatArray:
        """(3,) Sums over the rows: loss under these coefficients, loss of constants (m,), weight."""
        row, task = self.seen.rows[self.places], self.seen.task[self.places]
        y, weight = self.seen.y[self.places], self.seen.weight[self.places]
        eta = np.empty(row.size)
        for start, stop in zip(self.offsets[:-1], self.offsets[1:], strict=True):
            if start < stop:
                k = task[start]
                eta[start:stop] = self.design[row[start:stop]] @ found.W[:, k] + found.intercept[k]
        values = (family.value(y, eta), family.value(y, constants[task]), np.ones(y.size))
        return np.array([float(weight @ value) for value in values])
