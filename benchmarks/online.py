"""Speed of online learning: rows per second beside scikit-learn, river and Vowpal Wabbit, and growth in p and m.

Run ``python benchmarks/online.py`` (``--quick`` for a glance, ``--cpu`` to count processor time on a busy machine).
"""

import argparse
import time
from collections.abc import Callable

from online_peers import Run, Stream, contenders, landmine_like, ours, text_like

Clock = Callable[[], float]


def best_seconds(runs: dict[str, Run], repeats: int, clock: Clock) -> dict[str, float]:
    """Least seconds of each run, all taken in turns so that a busy moment hits everybody."""
    seconds = dict.fromkeys(runs, float("inf"))
    for _ in range(repeats):
        for name, run in runs.items():
            start = clock()
            run()
            seconds[name] = min(seconds[name], clock() - start)
    return seconds


def rows_per_second(stream: Stream, size: int, repeats: int, clock: Clock) -> dict[str, float]:
    """Rows per second of everybody on one stream."""
    seconds = best_seconds(contenders(stream, size), repeats, clock)
    return {name: len(stream.y) / value for name, value in seconds.items()}


def growth(streams: dict[str, Stream], repeats: int, clock: Clock) -> dict[str, float]:
    """Microseconds of our update on each stream."""
    seconds = best_seconds({name: ours(stream, 1000) for name, stream in streams.items()}, repeats, clock)
    return {name: 1e6 * value / len(streams[name].y) for name, value in seconds.items()}


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--cpu", action="store_true")
    options = parser.parse_args()
    clock = time.process_time if options.cpu else time.perf_counter
    share, repeats = (10, 2) if options.quick else (1, 3)
    for make, n_single, n_batch in ((landmine_like, 8000, 200_000), (text_like, 2000, 40_000)):
        for size, n in ((1, n_single), (1000, n_batch)):
            stream = make(max(n // share, 10 * size, 2000))
            print(f"\n{stream.name}, batches of {size}: rows per second")
            found = rows_per_second(stream, size, repeats, clock)
            for name, rate in sorted(found.items(), key=lambda item: -item[1]):
                print(f"  {name:26s} {rate:12,.0f}")
    n = max(20_000 // share, 5000)
    by_features = {f"p = {p:,}": text_like(n, p) for p in (10_000, 100_000, 1_000_000)}
    same_words = {f"p = {p:,}": text_like(n, p, n_words=10_000) for p in (10_000, 100_000, 1_000_000)}
    by_tasks = {f"m = {m}": landmine_like(n, m) for m in (10, 40, 160, 640)}
    tables = (
        ("p, 100 non-zeros, 15 tasks", by_features),
        ("p, the same with 10,000 words in use", same_words),
        ("m, 9 features", by_tasks),
    )
    for title, streams in tables:
        print(f"\nmicroseconds of an update in {title}")
        for name, value in growth(streams, repeats, clock).items():
            print(f"  {name:26s} {value:8.2f}")


if __name__ == "__main__":
    main()
