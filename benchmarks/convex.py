"""Our convex solvers against other packages: time to a certified relative gap of 1e-6.

    uv run --group bench python benchmarks/convex.py [--workloads W1,W2] [--seeds 0,1,2] [--repeats 3]
        [--threads 1,default] [--parts fits,cold,growth] [--budget 60] [--quick] [--out DIR]

Four files do the work: `workloads.py` draws the problems, `peers.py` calls the packages, `certificate.py` bounds every
answer's distance from the optimum without any code of the packages compared, `timing.py` runs them in turn. Ours goes
from the raw arrays through the public estimators, input checks and intercepts included; packages without intercepts
get centred data, and all get the data in the form they like best, outside the timed part. Written are `convex.json`
(everything measured), `convex.txt` (the tables) and `convex.png` (accuracy over time).
"""

import argparse
import json
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

from cold import measure_cold
from growth import measure_growth
from peers import OURS, PEERS
from report import draw_curves, print_cold, print_fits, print_growth
from rich.console import Console
from timing import Entry, compare
from workloads import Case, chosen_cases

TABLE_WIDTH = 150
PARTS = ("fits", "cold", "growth")
PACKAGES = ("bayesmtfs", "scikit-learn", "skglm", "celer", "adelie", "spams-bin", "cvxpy", "clarabel", "numpy", "numba")


def words(text: str) -> list[str]:
    """Split at commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def read_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workloads", type=words, default=[], help="W1,W2 or whole names of cases; all")
    parser.add_argument("--seeds", type=lambda text: [int(word) for word in words(text)], default=[0, 1, 2])
    parser.add_argument("--repeats", type=int, default=3, help="rounds in which all take turns")
    parser.add_argument("--threads", type=words, default=["1", "default"], help="thread settings, e.g. 1,default")
    parser.add_argument("--parts", type=words, default=list(PARTS), help="fits,cold,growth")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds a competitor may spend on its ladder")
    parser.add_argument("--quick", action="store_true", help="small problems, to try the benchmark itself")
    parser.add_argument("--out", type=Path, default=Path("benchmark-results"), help="folder for what is written")
    return parser.parse_args(arguments)


def versions() -> dict[str, str]:
    """Version of every package, or that it is absent."""
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def run_fits(cases: list[Case], options: argparse.Namespace, console: Console) -> list[Entry]:
    """Warm comparison of all competitors, case by case, seed by seed."""
    entries: list[Entry] = []
    for case in cases:
        for seed in options.seeds:
            problem = case.problem(seed, quick=options.quick)
            for threads in options.threads:
                settings = {"threads": threads, "repeats": options.repeats, "budget": options.budget}
                new = compare(problem, seed, (OURS, *PEERS), **settings)
                seconds = ", ".join(f"{e.competitor} {e.cpu:.4f}" for e in new if e.status == "certified")
                console.print(f"{case.name}, seed {seed}, threads {threads}: {seconds}", style="dim", highlight=False)
                entries += new
    return entries


def run_cold(cases: list[Case], entries: list[Entry], options: argparse.Namespace) -> list[dict[str, Any]]:
    """First fits of all that were certified, on the first case of each workload and the first seed."""
    firsts = {case.name.split()[0]: case for case in reversed(cases)}
    records = []
    for case in sorted(firsts.values(), key=lambda case: case.name):
        problem = case.problem(options.seeds[0], quick=options.quick)
        wanted = (case.name, options.seeds[0], options.threads[0], "certified")
        for entry in entries:
            if (entry.case, entry.seed, entry.threads, entry.status) == wanted:
                records.append(measure_cold(problem, entry))
    return records


def run_growth(cases: list[Case], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Growth of our own time in features and tasks."""
    settings = {"threads": options.threads[0], "repeats": options.repeats, "budget": options.budget}
    return [
        measure_growth(case, axis, options.seeds, quick=options.quick, **settings)
        for case in cases
        for axis in case.grow
    ]


def main(arguments: list[str] | None = None) -> None:
    """Run, print and write."""
    options = read_arguments(arguments)
    cases = chosen_cases(options.workloads)
    options.out.mkdir(parents=True, exist_ok=True)
    console = Console(record=True, width=TABLE_WIDTH)
    found: dict[str, Any] = {"versions": versions(), "settings": {**vars(options), "out": str(options.out)}}
    entries = run_fits(cases, options, console) if {"fits", "cold"} & set(options.parts) else []
    if entries:
        print_fits(console, entries)
        draw_curves(entries, options.out / "convex.png")
        found["fits"] = [entry.as_dict() for entry in entries]
    if "cold" in options.parts:
        found["cold"] = run_cold(cases, entries, options)
        print_cold(console, found["cold"])
    if "growth" in options.parts:
        found["growth"] = run_growth(cases, options)
        print_growth(console, found["growth"])
    (options.out / "convex.json").write_text(json.dumps(found, indent=1), encoding="utf-8")
    console.save_text(str(options.out / "convex.txt"))


if __name__ == "__main__":
    main()
