"""Time to a certified accuracy.

Every competitor walks down its ladder of tolerances until its answer is certified from outside; then all of them run
in turn, round after round in one process, each at the loosest tolerance that certified, so that the noise of the
machine hits all alike. CPU seconds are those of the process, all its threads included.
"""

import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

import numba
import numpy as np
from certificate import TARGET, relative_gap
from peers import Answers, Competitor, NotApplicable, Prepared
from threadpoolctl import threadpool_limits
from workloads import Problem

SLOW_SECONDS = 5.0  # above it a run is not repeated
FAST_SECONDS = 0.2  # below it five times as many rounds are run


@dataclass
class Entry:
    """What one competitor did on one problem.

    Attributes
    ----------
    status : "certified", "not certified", "not applicable", "not installed" or "failed"
    curve : (CPU seconds, relative gap, tolerance) of every step down the ladder
    """

    case: str
    seed: int
    threads: str
    competitor: str
    status: str
    note: str = ""
    tol: float = math.nan
    gap: float = math.nan
    cpu: float = math.nan
    wall: float = math.nan
    selected: int = -1
    curve: list[tuple[float, float, float]] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """All fields, for JSON."""
        return asdict(self)


@contextmanager
def thread_limit(threads: str) -> Iterator[int]:
    """Hold BLAS, OpenMP and numba at a number of threads; "default" leaves all as they are."""
    available = int(numba.config.NUMBA_NUM_THREADS)
    if threads == "default":
        yield available
        return
    numba.set_num_threads(min(int(threads), available))
    try:
        with threadpool_limits(limits=int(threads)):
            yield int(threads)
    finally:
        numba.set_num_threads(available)


def timed(run: Callable[[], Answers]) -> tuple[Answers, float, float]:
    """Answers, CPU and wall seconds of one run."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a step of the ladder that is too loose or too tight is no news
        cpu, wall = time.process_time(), time.perf_counter()
        answers = run()
        return answers, time.process_time() - cpu, time.perf_counter() - wall


def worst_gap(problem: Problem, answers: Answers) -> float:
    """Largest relative gap over all strengths."""
    pairs = zip(problem.strengths, answers, strict=True)
    return max(relative_gap(problem, float(strength), W, b) for strength, (W, b) in pairs)


def descend(entry: Entry, competitor: Competitor, prepared: Prepared, problem: Problem, budget: float) -> None:
    """Tighten the tolerance until the answer is certified, the ladder ends, or the budget is used up."""
    prepared.solve(competitor.tolerances[0])  # compilation and first touch are measured apart
    entry.status, used = "not certified", 0.0
    for tol in competitor.tolerances:
        answers, cpu, wall = timed(lambda tol=tol: prepared.solve(tol))
        entry.gap, entry.tol, entry.cpu, entry.wall = worst_gap(problem, answers), tol, cpu, wall
        entry.selected = int(np.count_nonzero(answers[-1][0].any(axis=1)))
        entry.curve.append((cpu, entry.gap, tol))
        used += cpu
        if entry.gap <= TARGET and tol <= competitor.counted_from * (1 + 1e-9):
            entry.status = "certified"
            return
        if used > budget:
            entry.note = f"{entry.note} stopped after {used:.0f} s".strip()
            return


def enter(competitor: Competitor, problem: Problem, entry: Entry, n_threads: int, budget: float) -> Prepared | None:
    """Prepare and certify one competitor; what goes wrong is written into its entry."""
    try:
        prepared = competitor.build(problem, n_threads)
        entry.note = prepared.note
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            descend(entry, competitor, prepared, problem, budget)
    except NotApplicable as reason:
        entry.status, entry.note = "not applicable", str(reason)
    except ImportError as error:
        entry.status, entry.note = "not installed", str(error)
    except Exception as error:  # a peer may break in any way; the table says how
        entry.status, entry.note = "failed", f"{type(error).__name__}: {str(error)[:200]}"
    else:
        return prepared
    return None


def compare(
    problem: Problem,
    seed: int,
    competitors: Sequence[Competitor],
    *,
    threads: str = "1",
    repeats: int = 3,
    budget: float = 60.0,
) -> list[Entry]:
    """Certify all competitors on one problem and time them in turn."""
    entries, running = [], []
    with thread_limit(threads) as n_threads:
        for competitor in competitors:
            entry = Entry(problem.name, seed, threads, competitor.name, "failed")
            prepared = enter(competitor, problem, entry, n_threads, budget)
            entries.append(entry)
            if prepared is not None and entry.status == "certified" and entry.cpu < SLOW_SECONDS:
                running.append((entry, prepared))
        fast = all(entry.cpu < FAST_SECONDS for entry, _ in running)
        take_turns(running, 5 * repeats if fast else repeats)
    return entries


def take_turns(running: Sequence[tuple[Entry, Prepared]], rounds: int) -> None:
    """Run all in turn and keep the medians."""
    seconds: list[list[tuple[float, float]]] = [[] for _ in running]
    for _ in range(rounds):
        for (entry, prepared), times in zip(running, seconds, strict=True):
            _, cpu, wall = timed(lambda solve=prepared.solve, tol=entry.tol: solve(tol))
            times.append((cpu, wall))
    for (entry, _), times in zip(running, seconds, strict=True):
        entry.cpu, entry.wall = median(cpu for cpu, _ in times), median(wall for _, wall in times)
