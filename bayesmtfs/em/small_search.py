"""Small searches of `bayesmtfs.em.evidence` on Gram matrices: the arrays around `bayesmtfs.em.evidence_kernels`."""

from typing import NamedTuple

import numpy as np

from bayesmtfs.em import evidence_kernels as kernels
from bayesmtfs.em.evidence_kernels import Moments, Point, Room
from bayesmtfs.em.row_posterior import RowPosterior, WhitenedTasks
from bayesmtfs.types import FloatArray, IntArray

LARGEST_GRAMS = 250_000  # entries of all Gram matrices together
LARGEST_CROSS = 2_000_000  # numbers that a look at all swaps needs
FEW = 32  # features with which a system of their size is small whatever the number of rows


class SmallData(NamedTuple):
    """What a search knows of noise and row variances beforehand."""

    free: FloatArray  # (m,) observations that the noise may explain
    counts: FloatArray  # (m,) rows
    floor: FloatArray  # (m,) least noise variances
    largest_variances: FloatArray  # (p,) of the rows


class SmallMoves(NamedTuple):
    """What a search may do besides steps and drops, and which noise it learns."""

    adding: bool
    swapping: bool
    learn_noise: bool = True
    shared_noise: bool = False


class SmallState(NamedTuple):
    """Features that are in, their variances and the noise variances (m,), with the posterior and the objective."""

    state: tuple[IntArray, FloatArray, FloatArray]
    posterior: RowPosterior
    objective: float


class SmallSearch:
    """A search of unrelated tasks whose features are rows of their own.

    Examples
    --------
    >>> tasks = WhitenedTasks((np.eye(3),), (np.array([[3.0], [0.0], [0.0]]),), (np.zeros(3),), np.zeros(1))
    >>> known = SmallData(np.array([3.0]), np.array([3.0]), np.array([1e-3]), np.full(3, 1e4))
    >>> small = SmallSearch(tasks, known, row_cost=1.0, fixed=0.0)
    >>> round(small.begin(np.arange(3), np.ones(3), np.ones(1)).objective, 6)  # 1/2 (3 ln 2 + 9/2) + 3
    6.289721
    """

    def __init__(self, tasks: WhitenedTasks, known: SmallData, row_cost: float, fixed: float) -> None:
        p, m = tasks.n_features, tasks.n_tasks
        potrf, trtri = kernels.lapack()
        self.moments = Moments(
            grams=np.require(tasks.grams, np.float64, ["C", "W"]),
            products=np.ascontiguousarray(np.vstack([*(part.T for part in tasks.products), known.largest_variances])),
            tasks=np.stack([tasks.target_squares, known.free, known.counts, known.floor]),
            row_cost=float(row_cost),
            fixed=float(fixed),
            learn_noise=True,
            shared_noise=False,
            potrf=potrf,
            trtri=trtri,
        )
        self.few = max(FEW, (sum(map(len, tasks.designs)) - 1) // tasks.n_designs)
        self.point, self.other = _new_point(p, m), _new_point(p, m)
        self.room = Room(
            squares=np.empty((2, p, p)),
            cross=np.empty((m, min(p, kernels.MOST_SWAPS), p)),
            features=np.empty((kernels.N_WORK + 2 * m, p)),
            changed=np.empty((2, m)),
            numbers=np.empty((kernels.N_NUMBERS, p), dtype=np.int64),
            trace=np.empty(0),
            tally=np.zeros(3, dtype=np.int64),
        )
        self._held: RowPosterior | None = None

    @staticmethod
    def takes(tasks: WhitenedTasks) -> bool:
        """Whether a search is small enough."""
        p = tasks.n_features
        return tasks.n_designs * p**2 <= LARGEST_GRAMS and tasks.n_tasks * p * kernels.MOST_SWAPS <= LARGEST_CROSS

    def begin(self, active: IntArray, variances: FloatArray, noise: FloatArray) -> SmallState | None:
        """Posterior of a state; None where it needs more care than moments allow."""
        point, n = self.point, len(active)
        point.active[-1], point.active[:n] = n, active
        point.rows[kernels.VARIANCE, :n], point.tasks[kernels.NOISE] = variances, noise
        found, _, _ = self._run(self.moments, 0.0, 1, kernels.BEGIN)
        return found if found is not None and np.isfinite(found.objective) else None

    def holds(self, posterior: RowPosterior) -> bool:
        """Whether the point of this posterior is the one that `begin` or the last search left."""
        return posterior is self._held

    def search(self, enough: float, budget: int, moves: SmallMoves) -> tuple[SmallState | None, FloatArray, int]:
        """Go on until the objective falls by less than ``enough``: where that leads, or None where moments do not serve.

        Also the objectives on the way, and the number of posteriors computed, which is about the budget at most.
        """
        moments = self.moments._replace(learn_noise=moves.learn_noise, shared_noise=moves.shared_noise)
        kind = kernels.PRUNE if not moves.adding else kernels.SWAP if moves.swapping else kernels.ADD
        return self._run(moments, enough, budget, kind)

    def _run(
        self, moments: Moments, enough: float, budget: int, moves: int
    ) -> tuple[SmallState | None, FloatArray, int]:
        room = self.room._replace(trace=np.empty(budget + kernels.OVERSHOOT))
        room.tally[:] = 0
        self._held = None
        kernels.search(moments, self.point, self.other, room, enough, moves)
        used, kept, failed = room.tally.tolist()
        return None if failed else self._taken(), room.trace[:kept], used

    def _taken(self) -> SmallState:
        """The state of the point, its features in order."""
        point, n = self.point, int(self.point.active[-1])
        order = np.argsort(point.active[:n], kind="stable")
        point.active[:n], point.rows[:, :n] = point.active[:n][order], point.rows[:, :n][:, order]
        rows, tasks = point.rows[:, :n].copy(), point.tasks.copy()
        variances, score = rows[kernels.VARIANCE], rows[kernels.SCORES :: 2].T
        posterior = RowPosterior(
            log_det=float(tasks[kernels.LOG_DET].sum()),
            quadratic=float(tasks[kernels.QUADRATIC].sum()),
            score=score,
            curvature=rows[kernels.CURVATURES :: 2].T,
            mean=variances[:, None] * score,
            degrees=tasks[kernels.DEGREES],
            leverage=None,
        )
        self._held = posterior
        state = (point.active[:n].copy(), variances, tasks[kernels.NOISE])
        return SmallState(state, posterior, float(tasks[kernels.OBJECTIVE, 0]))


def _new_point(p: int, m: int) -> Point:
    rows, tasks = np.zeros((1 + 2 * m, p)), np.ones((kernels.N_STATE, m))
    return Point(np.zeros(p + 1, dtype=np.int64), rows, tasks)
