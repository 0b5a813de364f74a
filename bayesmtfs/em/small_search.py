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
    >>> small.begin(np.arange(3), np.ones(3), np.ones(1)).objective  # 1/2 (3 ln 2 + 9/2) + 3
    6.289720770839918
    """

    def __init__(self, tasks: WhitenedTasks, known: SmallData, row_cost: float, fixed: float) -> None:
        potrf, trtri = kernels.lapack()
        self.moments = Moments(
            grams=tasks.grams,
            products=np.ascontiguousarray(np.concatenate(list(tasks.products), axis=1).T),
            squares=tasks.target_squares,
            free=known.free,
            counts=known.counts,
            floor=known.floor,
            largest=known.largest_variances,
            row_cost=float(row_cost),
            fixed=float(fixed),
            learn_noise=True,
            shared_noise=False,
            potrf=potrf,
            trtri=trtri,
        )
        p, m = tasks.n_features, tasks.n_tasks
        self.few = max(FEW, (sum(map(len, tasks.designs)) - 1) // tasks.n_designs)
        self.point, self.other, self.room = _new_point(p, m), _new_point(p, m), _new_room(p, m)
        self._held: RowPosterior | None = None

    @staticmethod
    def takes(tasks: WhitenedTasks) -> bool:
        """Whether a search is small enough."""
        p = tasks.n_features
        return tasks.n_designs * p**2 <= LARGEST_GRAMS and tasks.n_tasks * p * kernels.MOST_SWAPS <= LARGEST_CROSS

    def begin(self, active: IntArray, variances: FloatArray, noise: FloatArray) -> SmallState | None:
        """Posterior of a state; None where it needs more care than moments allow."""
        point, n = self.point, len(active)
        point.size[0], point.active[:n], point.variances[:n], point.noise[:] = n, active, variances, noise
        self._held = None
        return self._taken() if kernels.begin(self.moments, point, self.room) else None

    def holds(self, posterior: RowPosterior) -> bool:
        """Whether the point of this posterior is the one that `begin` or the last search left."""
        return posterior is self._held

    def search(self, enough: float, budget: int, moves: SmallMoves) -> tuple[SmallState | None, FloatArray, int]:
        """Go on until the objective falls by less than ``enough``: where that leads, or None where moments do not serve.

        Also the objectives on the way, and the number of posteriors computed, which is about the budget at most.
        """
        room = self.room._replace(trace=np.empty(budget + kernels.OVERSHOOT))
        moments = self.moments._replace(learn_noise=moves.learn_noise, shared_noise=moves.shared_noise)
        room.tally[:] = 0
        self._held = None
        kernels.search(moments, self.point, self.other, room, enough, moves.adding, moves.swapping)
        used, kept, failed = room.tally.tolist()
        return None if failed else self._taken(), room.trace[:kept], used

    def _taken(self) -> SmallState:
        """The state of the point, its features in order."""
        point, n = self.point, int(self.point.size[0])
        order = np.argsort(point.active[:n], kind="stable")
        for numbers in (point.active[:n], point.variances[:n], point.score[:, :n].T, point.curvature[:, :n].T):
            numbers[:] = numbers[order]
        score, curvature, variances = point.score[:, :n].T.copy(), point.curvature[:, :n].T.copy(), point.variances
        posterior = RowPosterior(
            log_det=float(point.values[1]),
            quadratic=float(point.quadratics.sum()),
            score=score,
            curvature=curvature,
            mean=variances[:n, None] * score,
            degrees=point.degrees.copy(),
            leverage=None,
        )
        self._held = posterior
        state = (point.active[:n].copy(), variances[:n].copy(), point.noise.copy())
        return SmallState(state, posterior, float(point.values[0]))


def _new_point(p: int, m: int) -> Point:
    return Point(
        size=np.zeros(1, dtype=np.int64),
        active=np.zeros(p, dtype=np.int64),
        variances=np.zeros(p),
        noise=np.ones(m),
        score=np.zeros((m, p)),
        curvature=np.zeros((m, p)),
        degrees=np.zeros(m),
        quadratics=np.zeros(m),
        values=np.zeros(2),
    )


def _new_room(p: int, m: int) -> Room:
    squares = {name: np.empty((p, p)) for name in ("system", "rotated")}
    tables = {name: np.empty((p, m)) for name in ("all_curvatures", "all_scores")}
    tasks = {name: np.empty(m) for name in ("row_curvatures", "row_scores")}
    features = {name: np.empty(p) for name in ("root", "column", "loss", "gain", "variance", "likely")}
    numbers = {name: np.zeros(p, dtype=np.int64) for name in ("order", "inside")}
    return Room(
        **squares,
        cross=np.empty((m, min(p, kernels.MOST_SWAPS), p)),
        **tables,
        **tasks,
        **features,
        **numbers,
        trace=np.empty(0),
        tally=np.zeros(3, dtype=np.int64),
    )
