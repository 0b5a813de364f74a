"""Bad input that is found by coverage: atheris changes what reaches new lines of the readers, and keeps it.

    uv run --with atheris python benchmarks/fuzz_guided.py KIND [--minutes 5] [--seed 0] [--findings DIR]

KIND is ``forged`` (content of saved files under a valid hash, beginning with real ones), ``tables`` (CSV files for the
command line) or ``fits`` (data for every estimator). What counts as a fault is in ``fuzz.py``; the first one ends the run
with its traceback and is written to the folder of findings.
"""

import argparse
import importlib
import inspect
import sys
import tempfile
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import atheris
import fuzz
import numpy as np
from hypothesis import HealthCheck, given, settings

FIRST_INPUTS = 20  # of random bytes: long enough for a whole problem
READERS = (
    "alignment",
    "classes",
    "commands.tables",
    "designs",
    "estimators.base",
    "estimators.loading",
    "frames",
    "inputs",
    "payload",
    "persistence",
    "results",
    "standardization",
    "task_names",
    "tasks",
)


def functions_of(module: ModuleType) -> list[FunctionType]:
    """Functions and methods that are written in a module."""
    own = [value for value in vars(module).values() if getattr(value, "__module__", "") == module.__name__]
    methods = [value for one in own if inspect.isclass(one) for value in vars(one).values()]
    plain = [getattr(value, "__func__", getattr(value, "fget", value)) for value in [*own, *methods]]
    return [value for value in plain if isinstance(value, FunctionType)]


def watch_readers() -> int:
    """Let atheris see which lines of the readers run; gives the number of functions."""
    found = [f for name in READERS for f in functions_of(importlib.import_module(f"bayesmtfs.{name}"))]
    for function in found:
        atheris.instrument_func(function)
    return len(found)


def target_of(kind: str, folder: Path) -> Any:
    """What is called with the bytes of every input."""
    strategy, trial = fuzz.trials(folder)[kind]
    if kind == "forged":

        def load(content: bytes) -> None:
            trial(fuzz.sign(content))

        return load

    @settings(deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def attempt(example: Any) -> None:
        trial(example)

    def drive(content: bytes) -> None:
        attempt.hypothesis.fuzz_one_input(content)

    return drive


def main() -> None:
    """Read the options and run; atheris ends the process itself."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["forged", "tables", "fits"])
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--findings", type=Path, default=Path(tempfile.gettempdir()))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, corpus = Path(name), Path(name) / "corpus"
        corpus.mkdir()
        target = target_of(options.kind, folder)
        random = np.random.default_rng(options.seed)
        for number in range(FIRST_INPUTS):
            (corpus / f"random-{number}").write_bytes(random.bytes(2000))
        if options.kind == "forged":
            (corpus / "model").write_bytes((folder / "model").read_bytes()[fuzz.HEADER_SIZE :])
        print(f"{watch_readers()} functions are watched")
        flags = [
            f"-max_total_time={60 * options.minutes:.0f}",
            f"-seed={options.seed}",
            "-max_len=40000",
            "-rss_limit_mb=0",
        ]
        flags += ["-timeout=120", f"-artifact_prefix={options.findings}/fault-", "-print_final_stats=1"]
        atheris.Setup([sys.argv[0], *flags, str(corpus)], target)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
