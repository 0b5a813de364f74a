"""Chains side by side in threads, with one progress bar and one Ctrl-C for all of them.

The compiled Gibbs sampler releases Python's lock, so that threads are enough. A chain reports how far it is after every
slice of sweeps; when the user presses Ctrl-C, the next report raises ``KeyboardInterrupt`` inside the chain, which
then returns the draws that it has.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from bayesmtfs.progress import Progress

Report = Callable[[float], None]
POLL = 0.1  # seconds between looks at the chains


def n_workers(n_jobs: int | None, n_chains: int) -> int:
    """How many chains to run at once: None or a negative number for as many as there are cores."""
    cores = os.process_cpu_count() if hasattr(os, "process_cpu_count") else os.cpu_count()
    wanted = (cores or 1) if n_jobs is None or n_jobs < 0 else max(n_jobs, 1)
    return min(wanted, n_chains)


def run_chains[Chain](
    run: Callable[[int, Report], Chain], n_chains: int, n_jobs: int | None, progress: bool | None
) -> list[Chain]:
    """Run chains and give what they return, in order.

    Parameters
    ----------
    run : takes the number of the chain and a function to report the finished fraction to; on ``KeyboardInterrupt`` from
        the report it returns what it has
    n_chains : number of chains
    n_jobs : how many at once, see `n_workers`
    progress : see `bayesmtfs.progress.Progress`
    """
    board, pool = _Board(n_chains), ThreadPoolExecutor(n_workers(n_jobs, n_chains))
    chains: list[Future[Chain]] = []
    with Progress("sampling", progress) as work:
        for k in range(n_chains):
            chains.append(pool.submit(run, k, board.reporter(k)))
        _watch(chains, board, work)
    if work.interrupted:
        board.stop.set()
    pool.shutdown()
    if len(chains) < n_chains:
        raise KeyboardInterrupt
    return [chain.result() for chain in chains]


class _Board:
    """What the chains have reported, and whether they should stop."""

    def __init__(self, n_chains: int) -> None:
        self.finished = [0.0] * n_chains
        self.stop = threading.Event()

    def reporter(self, chain: int) -> Report:
        def report(fraction: float) -> None:
            self.finished[chain] = fraction
            if self.stop.is_set():
                raise KeyboardInterrupt

        return report


def _watch(chains: list[Future[Any]], board: _Board, work: Progress) -> None:
    waiting = set(chains)
    while waiting:
        done, waiting = wait(waiting, timeout=POLL, return_when="FIRST_EXCEPTION")
        if any(chain.exception() is not None for chain in done):
            board.stop.set()  # the error is raised by result(); the others need not go on
        work.update(sum(board.finished) / len(chains))
