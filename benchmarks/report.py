"""Tables and the plot of a benchmark run."""

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from certificate import TARGET
from matplotlib.figure import Figure
from peers import OURS
from rich.console import Console
from rich.table import Table
from timing import Entry
from workloads import CASES


class Summary(NamedTuple):
    """One competitor on one case: medians over the seeds, ratio = its CPU seconds / ours, seed by seed."""

    case: str
    threads: str
    competitor: str
    status: str
    note: str
    cpu: float
    wall: float
    tol: float
    gap: float
    ratio: float


def summarise(entries: Sequence[Entry]) -> list[Summary]:
    """Medians over seeds; a competitor counts as certified when it is on every seed."""
    ours = {
        (e.case, e.threads, e.seed): e.cpu for e in entries if e.competitor == OURS.name and e.status == "certified"
    }
    rows = []
    for case, threads, competitor in dict.fromkeys((e.case, e.threads, e.competitor) for e in entries):
        group = [e for e in entries if (e.case, e.threads, e.competitor) == (case, threads, competitor)]
        worst = next((e for e in group if e.status != "certified"), group[0])
        ratios = [e.cpu / ours[case, threads, e.seed] for e in group if (case, threads, e.seed) in ours]
        middle = {name: median(getattr(e, name) for e in group) for name in ("cpu", "wall", "tol")}
        ratio = median(ratios) if ratios and worst.status == "certified" else np.nan
        gap = max(e.gap for e in group)
        rows.append(Summary(case, threads, competitor, worst.status, worst.note, **middle, gap=gap, ratio=ratio))
    return rows


def verdict(summary: Summary, all_rows: Sequence[Summary]) -> str:
    """For our row: the ratio to the best certified peer against what is wanted."""
    case = next(case for case in CASES if case.name == summary.case)
    if summary.competitor != OURS.name or summary.status != "certified":
        return ""
    same = [row for row in all_rows if (row.case, row.threads) == (summary.case, summary.threads)]
    peers = [row for row in same if row.competitor != OURS.name and np.isfinite(row.ratio)]
    parts = []
    if peers:
        best = min(peers, key=lambda row: row.ratio)
        parts.append(f"{best.ratio:.1f}x {best.competitor}")
    if case.wanted_ratio is not None:
        parts.append(f"wanted {case.wanted_ratio:g}x")
    if case.wanted_seconds is not None:
        parts.append(f"wanted < {case.wanted_seconds:g} s")
    return ", ".join(parts)


def _number(value: float, form: str) -> str:
    return format(value, form) if np.isfinite(value) else "-"


def print_fits(console: Console, entries: Sequence[Entry]) -> None:
    """Table of warm times."""
    rows = summarise(entries)
    table = Table(title=f"Warm seconds to a certified relative gap of {TARGET:g} (medians over seeds)")
    for name in ("case", "threads", "competitor", "CPU s", "wall s", "tol", "gap", "peer / ours", "verdict or note"):
        table.add_column(name, overflow="fold")
    for row in (row for row in rows if row.status != "not applicable"):
        text = row.note if row.status == "certified" else f"{row.status}: {row.note}".rstrip(": ")
        table.add_row(
            row.case,
            row.threads,
            row.competitor,
            _number(row.cpu, ".4f"),
            _number(row.wall, ".4f"),
            _number(row.tol, ".0e"),
            _number(row.gap, ".1e"),
            _number(row.ratio, ".2f"),
            verdict(row, rows) or text,
            style="bold" if row.competitor == OURS.name else "",
        )
    console.print(table)
    absent = {(row.case, row.competitor): row.note for row in rows if row.status == "not applicable"}
    for (case, competitor), reason in absent.items():
        console.print(f"not applicable: {competitor} on {case} ({reason})", style="dim", highlight=False)


def print_cold(console: Console, records: Sequence[dict[str, Any]]) -> None:
    """Table of first fits in fresh processes."""
    table = Table(title="First fit in a fresh process (wall s above the second fit) and peak memory")
    for name in ("case", "threads", "competitor", "no numba cache", "with cache", "peak MB", "MB of the fit"):
        table.add_column(name, overflow="fold")
    for record in records:
        extra = []
        for label in ("no_cache", "cached"):
            run = record[label]
            extra.append(run["error"] if "error" in run else f"{run['first_wall'] - run['second_wall']:.2f}")
        run = record["cached"]
        memory = ["-", "-"] if "error" in run else [f"{run['peak_mb']:.0f}", f"{run['fit_mb']:.0f}"]
        table.add_row(record["case"], record["threads"], record["competitor"], *extra, *memory)
    console.print(table)


def print_growth(console: Console, records: Sequence[dict[str, Any]]) -> None:
    """Table of growth exponents."""
    table = Table(title="Growth of our CPU seconds")
    for name in ("case", "axis", "x1", "x2", "x4", "exponent", "status"):
        table.add_column(name)
    for record in records:
        seconds = [_number(value, ".4f") for value in record["cpu"]]
        table.add_row(record["case"], record["axis"], *seconds, _number(record["exponent"], ".2f"), record["status"])
    console.print(table)


def draw_curves(entries: Sequence[Entry], path: Path) -> None:
    """Relative gap against CPU seconds, one panel per case, of the first seed and thread setting."""
    first = entries[0]
    shown = [e for e in entries if e.curve and (e.seed, e.threads) == (first.seed, first.threads)]
    cases = list(dict.fromkeys(e.case for e in shown))
    names = list(dict.fromkeys(e.competitor for e in shown))
    columns = min(4, max(1, len(cases)))
    figure = Figure(figsize=(4 * columns, 3.2 * -(-len(cases) // columns)), layout="constrained")
    panels = figure.subplots(-(-len(cases) // columns) or 1, columns, squeeze=False).ravel()
    for panel, case in zip(panels, cases, strict=False):
        for entry in (e for e in shown if e.case == case):
            seconds, gaps, _ = np.array(entry.curve).T
            ours = entry.competitor == OURS.name
            panel.loglog(
                seconds,
                np.maximum(gaps, 1e-12),
                marker="o",
                markersize=3,
                linewidth=2.5 if ours else 1,
                color="black" if ours else f"C{names.index(entry.competitor)}",
                label=entry.competitor,
            )
        panel.axhline(TARGET, color="grey", linestyle=":", linewidth=1)
        panel.set(title=case, xlabel="CPU seconds", ylabel="relative gap")
        panel.legend(fontsize="x-small")
    for panel in panels[len(cases) :]:
        panel.set_axis_off()
    figure.savefig(path, dpi=120)
