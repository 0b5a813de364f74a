"""All speed benchmarks with one command, and their table in the documentation.

    uv run --group bench python benchmarks/all.py [ROW ...] [--seeds 101,102,103] [--page docs/pages/speed.md] [--list]

Every row draws fresh data for each seed and takes CPU seconds of one thread for ours and for a peer in turn in the same
process; the table shows the worst of the seeds. Results are kept in ``benchmark-results/all.json``, one entry per row, so
that rows can be measured one at a time, and the table is written from all that are there. `convex.py` draws the curves of
accuracy over time of the convex rows and measures growth in features and tasks.
"""

import argparse
import datetime
import json
import platform
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import cold_routes
import evidence
import numpy as np
import sources
import usual_fits
from online_peers import SCIKIT_LEARN, ours, scikit_learn, text_like
from peers import OURS, PEERS
from threadpoolctl import threadpool_limits
from timing import compare
from workloads import CASES, Case

STORE = Path("benchmark-results/all.json")
BEGIN, END = "<!-- table: benchmarks/all.py -->", "<!-- end of table -->"
BUDGET = 8.0  # seconds that a competitor may spend on its tolerances
LONG_BUDGET = {"W5 /100": 60.0}  # the same where none is certified so soon


class Timing(NamedTuple):
    """One seed of one row; without a peer its seconds are those wanted or of a plain form of ours, as the row says."""

    ours: float
    peer: float | None = None
    peer_name: str = ""
    remark: str = ""


class Row(NamedTuple):
    """A row of the table; wanted are seconds, or times that the peer should take."""

    name: str
    wanted: str
    run: Callable[[int], Timing]


# Times that the best peer should take in the rows of the convex cases
WANTED = {
    **{"W1 /3": 6, "W1 /10": 4, "W2 /10": 12, "W3 /10": 5, "W3 /100": 6, "W4 /10": 5, "W4 /100": 5, "W5 /10": 6},
    **{"W1 snr 2 /10": 4, "W1 snr 10 /10": 4, "W2 snr 0.5 /10": 12, "W2 snr 20 /10": 12},
    **{"W6 q=inf wide": 6, "W6 q=inf own": 6, "W6 q=inf own gaussian": 6},
}
# Those that were fastest when `convex.py` compared all packages
ADELIE = ("adelie", "adelie, 6 steps")
RIVALS = {
    **{"W1": ("scikit-learn", "celer"), "W2": ("scikit-learn", "celer"), "W3": (*ADELIE, "spams")},
    **{"W4": ADELIE, "W5": ADELIE, "W6": ("spams",), "W8": ADELIE},
}


def convex_row(case: Case) -> Row:
    """Time to a certified gap of 1e-6 against the best of the rivals."""
    names = RIVALS[case.name.split()[0]] if case.norm_q in (1, 2, np.inf) else ()  # cvxpy takes seconds
    peers = [peer for peer in PEERS if peer.name in names]

    def run(seed: int) -> Timing:
        entries = compare(
            case.problem(seed), seed, (OURS, *peers), repeats=2, budget=LONG_BUDGET.get(case.name, BUDGET)
        )
        mine = next(entry for entry in entries if entry.competitor == OURS.name)
        if mine.status != "certified":
            raise RuntimeError(f"{case.name}, seed {seed}: ours is {mine.status}, {mine.note}")
        certified = [entry for entry in entries if entry.status == "certified" and entry is not mine]
        best = min(certified, key=lambda entry: entry.cpu, default=None)
        return Timing(mine.cpu, best.cpu if best else None, best.competitor if best else "none certified" * bool(peers))

    seconds = f"{case.wanted_seconds} s" if case.wanted_seconds else ""
    return Row(case.name, f"{WANTED[case.name]}x" if case.name in WANTED else seconds, run)


def lead_field_row(n_orient: int, fraction: float) -> Row:
    """Mixed norm on a lead field."""
    what = "one orientation" if n_orient == 1 else f"groups of {n_orient} orientations"

    def run(seed: int) -> Timing:
        return Timing(*sources.against_mixed_norm_solver(n_orient, fraction, seed), "MNE mixed_norm_solver")

    return Row(f"EEG, {what}, 40 times, /{fraction:g}", "8x" if n_orient == 1 else "20x", run)


def usual_row(name: str, wanted: str, cost: Callable[[int], usual_fits.Cost], peer_name: str = "") -> Row:
    """A whole fit of `usual_fits`."""

    def run(seed: int) -> Timing:
        found = cost(seed)
        return Timing(found.ours, found.peer, peer_name if found.peer is not None else "", found.remark)

    return Row(name, wanted, run)


def matrix_variate_row(n_tasks: int) -> Row:
    """Posterior with learned relations of tasks."""
    name = f"posterior, matrix variate, {n_tasks} tasks, {40 * n_tasks} x 20"
    return usual_row(
        name, "20 s" if n_tasks == 8 else "", lambda seed: usual_fits.matrix_variate_posterior(seed, n_tasks)
    )


def gamma_map_row(n_sources: int, shared_noise: bool) -> Row:
    """W integrated out on a lead field."""
    what = "one noise" if shared_noise else "a noise per time"

    def run(seed: int) -> Timing:
        return Timing(*evidence.against_gamma_map(n_sources, seed, shared_noise), "MNE gamma_map")

    return Row(f"M-SBL p {n_sources}, 40 times, {what}", "5x", run)


def ard_row(n_tasks: int) -> Row:
    """Automatic relevance determination."""

    def run(seed: int) -> Timing:
        return Timing(*evidence.against_ard(n_tasks, seed), "scikit-learn ARDRegression")

    return Row(f"ARD, n 150, p 100, {n_tasks} tasks", "5x", run)


def stream_row() -> Row:
    """Text in batches of 1000, the l2,1 penalty on."""

    def run(seed: int) -> Timing:
        stream = text_like(40_000, seed=seed)
        mine, theirs = ours(stream, 1000), scikit_learn(stream, 1000, **SCIKIT_LEARN["SGD"])
        mine()
        pairs = [(evidence.seconds(mine), evidence.seconds(theirs)) for _ in range(3)]
        return Timing(*(min(times) for times in zip(*pairs, strict=True)), "scikit-learn SGD, tasks pooled")

    return Row("text stream, batches of 1000", "1x", run)


def shared_mean_row(n_features: int) -> Row:
    """Cross-validation with a shared mean against that without one."""

    def run(seed: int) -> Timing:
        from workloads import text_classification

        from bayesmtfs import MixedNormClassifierCV

        shape = {"n_rows": 100, "n_features": n_features, "n_tasks": 4}
        data = text_classification(np.random.default_rng(seed), {**shape, "n_rows": 200})
        arguments: dict[str, Any] = {"X": data.X, "y": data.stacked_targets, "tasks": data.labels}
        plain = evidence.seconds(lambda: MixedNormClassifierCV(n_jobs=1).fit(**arguments))
        mean = evidence.seconds(lambda: MixedNormClassifierCV(shared_mean=True, n_jobs=1).fit(**arguments))
        return Timing(mean, plain, "ours without a shared mean")

    return Row(f"CV with a shared mean, sparse text, p {n_features}", "1/3x", run)


def cold_row(name: str, wanted: str) -> Row:
    """First fit from an empty cache."""

    def run(seed: int) -> Timing:
        return Timing(cold_routes.measure(name)["first"], None, "")

    return Row(f"first fit, {name.replace('_', ' ')}", wanted, run)


def rows() -> list[Row]:
    """All rows, in the order of the table."""
    workloads = {"W1", "W2", "W3", "W4", "W5", "W6", "W8"}  # paths take longer than `BUDGET`: `convex.py` measures them
    convex = [convex_row(case) for case in CASES if case.name.split()[0] in workloads and case.n_strengths == 1]
    fields = [lead_field_row(n_orient, fraction) for n_orient in (1, 3) for fraction in (2.0, 5.0)]
    integrated = [gamma_map_row(p, shared) for p in (300, 1000, 4228) for shared in (True, False)]
    own_posterior, variational = usual_fits.default_posterior, usual_fits.variational_posterior
    whole = [
        usual_row("EM of labels integrated, 4 tasks, 315 x 1358", "2 s", usual_fits.integrated_labels),
        *(matrix_variate_row(n_tasks) for n_tasks in (4, 8, 20, 50)),
        usual_row("matrix variate, 4 tasks, effective draws", "10x", usual_fits.matrix_variate_against_nuts, "NUTS"),
        usual_row(
            "posterior, default, 6 tasks, n = p = 200", "15 s", lambda seed: own_posterior(seed, "gibbs"), "mr.mash"
        ),
        usual_row(
            "posterior, variational, 6 tasks, n = p = 200",
            "2x",
            lambda seed: own_posterior(seed, "variational"),
            "mr.mash",
        ),
        usual_row("posterior, variational, 8 tasks, 400 x 10,000", "60 s", lambda seed: variational(seed, 10_000)),
        usual_row("posterior, variational, 8 tasks, 400 x 100,000", "600 s", lambda seed: variational(seed, 100_000)),
        usual_row("compare of three estimators, 220 rows", "20 s", usual_fits.compared),
        usual_row(
            "dask logistic, 100k rows, a pass",
            "1/3x",
            lambda seed: usual_fits.dask_logistic(seed, whole=False),
            "one pass here",
        ),
        usual_row(
            "dask logistic, 100k rows, whole fit",
            "",
            lambda seed: usual_fits.dask_logistic(seed, whole=True),
            "ours without dask",
        ),
    ]
    first = [
        cold_row("penalised", "3 s"),
        cold_row("penalised_shared_design", "3 s"),
        cold_row("penalised_labels", ""),
        cold_row("em", ""),
        cold_row("em_integrated", ""),
        cold_row("stream", "6 s"),
        cold_row("sparse_stream", "6 s"),
        cold_row("posterior", "12 s"),
        cold_row("posterior_labels", "15 s"),
    ]
    text = [shared_mean_row(5000), stream_row()]
    return [*convex, *fields, *integrated, ard_row(1), ard_row(10), *text, *whole, *first]


def worst(timings: list[Timing]) -> Timing:
    """The seed with the smallest ratio to the peer, or the longest."""
    with_peer = [timing for timing in timings if timing.peer is not None]
    if with_peer:
        return min(with_peer, key=lambda timing: (timing.peer or 0.0) / timing.ours)
    return max(timings, key=lambda timing: timing.ours)


def measure(row: Row, seeds: list[int]) -> dict[str, Any]:
    """One row over its seeds."""
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = worst([row.run(seed) for seed in seeds])
    return {**found._asdict(), "wanted": row.wanted, "seeds": seeds, "date": f"{datetime.date.today():%Y-%m-%d}"}


def table(store: dict[str, Any]) -> str:
    """Markdown of all that was measured, in the order of the rows."""
    lines = [
        "| row | ours, s | peer | peer, s | times faster | wanted | measured | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows():
        if row.name not in store:
            continue
        entry = store[row.name]
        peer, ratio = "", ""
        if entry["peer"] is not None:
            peer, ratio = f"{entry['peer']:.3g}", f"{entry['peer'] / entry['ours']:.2g}"
        cells = (
            row.name,
            f"{entry['ours']:.3g}",
            entry["peer_name"],
            peer,
            ratio,
            row.wanted,
            entry["date"],
            entry["remark"],
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def write_page(page: Path, store: dict[str, Any]) -> None:
    """Put the table between its marks."""
    text = page.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    page.write_text(f"{before}{BEGIN}\n\n{table(store)}\n\n{END}{after}", encoding="utf-8")


def main(arguments: list[str] | None = None) -> None:
    """Measure, keep and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", help="beginnings of names of rows; all")
    parser.add_argument("--seeds", type=lambda text: [int(word) for word in text.split(",")], default=[101, 102, 103])
    parser.add_argument("--page", type=Path, default=Path("docs/pages/speed.md"))
    parser.add_argument("--list", action="store_true", help="name the rows and stop")
    options = parser.parse_args(arguments)
    chosen = [row for row in rows() if not options.rows or any(row.name.startswith(name) for name in options.rows)]
    if options.list:
        print("\n".join(row.name for row in chosen))
        return
    STORE.parent.mkdir(exist_ok=True)
    for row in chosen:
        begin = time.perf_counter()
        entry = measure(row, options.seeds) | {"machine": platform.machine()}
        store: dict[str, Any] = json.loads(STORE.read_text()) if STORE.exists() else {}  # others may have measured, too
        store[row.name] = entry
        STORE.write_text(json.dumps(store, indent=1))
        print(f"{row.name}: {store[row.name]} ({time.perf_counter() - begin:.0f} s)", flush=True)
        write_page(options.page, store)


if __name__ == "__main__":
    main()
