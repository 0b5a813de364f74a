"""Bad input by the thousand: awkward data, damaged files and odd commands, for as long as asked.

    uv run python benchmarks/fuzz.py [--minutes 5] [--seed 0] [--only fits|files|forged|tables|commands]

What counts as a fault: any error but ValueError, TypeError or OSError, a fit or prediction that is not finite, more
CPU time than `CPU_SECONDS`, or a process that dies. A refusal with a message is a good answer. The strategies are the
ones of ``tests/fuzz``; every fault is printed with the example that makes it, shrunk by hypothesis.
``fuzz_guided.py`` drives the same trials by coverage.
"""

import argparse
import hashlib
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

import bayesmtfs as bm
from bayesmtfs import baselines
from bayesmtfs.public_names import BASELINES, ESTIMATORS

REFUSALS = (ValueError, TypeError, OSError)
CPU_SECONDS = 30
HEADER_SIZE = 512

# So that small problems take less than a second; NUTS would compile a model for each
ITERATIVE = ("Jeffreys", "MatrixVariate", "MixedNorm", "Hinge", "SparseMultinomial", "GeneralizedNormal")
QUICK = {"max_iter": 50}
QUICK_POSTERIOR = {"sampler": "variational", "draws": 20, "random_state": 0}
QUICK_PATH = QUICK | {"n_penalties": 4, "cv": 2}
NAMES = sorted(name for name in ESTIMATORS if "Survival" not in name) + sorted(
    BASELINES
)  # whose y is no array of numbers


class FaultError(Exception):
    """What must not happen."""


class Problem(NamedTuple):
    """Data as a user might pass them."""

    X: Any
    y: Any
    tasks: Any


def make_estimator(name: str, **params: Any) -> Any:
    """Build an estimator or baseline by its public name."""
    home = bm if name in ESTIMATORS else baselines
    if name.startswith("Bayesian"):
        params = QUICK_POSTERIOR | params
    elif name.startswith(ITERATIVE):
        params = (QUICK_PATH if name.endswith("CV") else QUICK) | params
    return getattr(home, name)(**params)


# ---------------------------------------------------------------------- data

EXPONENTS = st.sampled_from([-150, -100, -20, -8, 0, 0, 0, 8, 20, 100, 150])
TEXT = st.text(max_size=8)


@st.composite
def designs(draw: st.DrawFn, n: int, p: int) -> np.ndarray:
    """Columns of many scales, constant, repeated, far from zero, or zero."""
    X = np.random.default_rng(draw(st.integers(0, 2**16))).standard_normal((n, p))
    for _ in range(draw(st.integers(0, 3))):
        j = draw(st.integers(0, p - 1))
        kind = draw(st.sampled_from(["scale", "constant", "copy", "far", "whole", "outlier"]))
        if kind == "scale":
            X[:, j] *= 10.0 ** draw(EXPONENTS)
        elif kind == "constant":
            X[:, j] = draw(st.sampled_from([0.0, 1.0, -1e-150, 1e150, 1e8]))
        elif kind == "copy":
            X[:, j] = X[:, draw(st.integers(0, p - 1))]
        elif kind == "far":
            X[:, j] += draw(st.sampled_from([1e6, -1e12]))
        elif kind == "whole":
            X[:, j] = np.round(X[:, j])
        else:
            X[draw(st.integers(0, n - 1)), j] = draw(st.sampled_from([1e10, -1e100, 1e150]))
    if draw(st.booleans()) and draw(st.booleans()):
        X *= 10.0 ** draw(EXPONENTS)
    return X


@st.composite
def numbers(draw: st.DrawFn, X: np.ndarray) -> np.ndarray:
    """Targets that follow the first column, or are constant, extreme or not there."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    kind = draw(st.sampled_from(["noise", "noise", "linear", "constant", "zero", "nan", "inf", "outlier"]))
    y = rng.standard_normal(len(X)) * 10.0 ** draw(EXPONENTS)
    if kind == "linear":
        y = X[:, 0] * 2.0
    elif kind in ("constant", "zero"):
        y = np.full(len(X), 3.0 if kind == "constant" else 0.0)
    elif kind in ("nan", "inf"):
        y[-1] = float(kind)
    elif kind == "outlier":
        y[0] = 1e150
    return y


@st.composite
def labels(draw: st.DrawFn, X: np.ndarray) -> np.ndarray:
    """Classes that are noise, perfectly separated, rare, one only, or several."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    kind = draw(st.sampled_from(["noise", "noise", "separated", "rare", "one", "several", "text"]))
    if kind == "separated":
        return np.where(X[:, 0] > np.median(X[:, 0]), 1, -1)
    if kind in ("rare", "one"):
        return (np.arange(len(X)) == (0 if kind == "rare" else -1)).astype(int)
    classes: list[Any] = {"several": [0, 1, 2], "text": draw(st.lists(TEXT, min_size=1, max_size=3))}.get(kind, [0, 1])
    return rng.choice(np.array(classes), size=len(X))


@st.composite
def task_labels(draw: st.DrawFn, n: int) -> Any:
    """One task, several, one per row, with odd names, or not as many as rows."""
    kind = draw(st.sampled_from(["none", "few", "few", "one per row", "text", "mixed", "short", "missing"]))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    if kind == "none":
        return None
    if kind == "text":
        return rng.choice(np.array(draw(st.lists(TEXT, min_size=1, max_size=3))), size=n)
    if kind == "mixed":
        return np.array([i if i % 2 else f"t{i % 3}" for i in range(n)], dtype=object)
    few = rng.integers(draw(st.integers(1, 4)), size=n)
    return {"one per row": np.arange(n), "short": few[:-1], "missing": np.where(few == 0, np.nan, few)}.get(kind, few)


@st.composite
def problems(draw: st.DrawFn, classification: bool) -> Problem:
    """A small problem: p above and below n, from one row on, in one of the forms that fit takes."""
    n = draw(st.sampled_from([1, 2, 3, 8, 20, 30]))
    p = draw(st.sampled_from([1, 2, 5, 60]))
    X = draw(designs(n, p))
    y = draw(labels(X) if classification else numbers(X))
    tasks = draw(task_labels(n))
    if draw(st.integers(0, 4)) == 0:
        return Problem(X, np.column_stack([y, y[::-1]]), None)
    if draw(st.integers(0, 4)) == 0:
        names = draw(st.lists(TEXT, min_size=p, max_size=p, unique=draw(st.booleans())))
        return Problem(pd.DataFrame(X, columns=names), y, tasks)
    return Problem(X, y, tasks)


@st.composite
def fits(draw: st.DrawFn, names: tuple[str, ...] = tuple(NAMES)) -> tuple[str, bool, Problem]:
    """An estimator, whether it standardises, and data for it."""
    name = draw(st.sampled_from(names))
    regression = "Regress" in name and not name.endswith("Selector")
    return name, draw(st.booleans()), draw(problems(classification=not regression))


def finite(values: Any) -> bool:
    """Whether all numbers are; labels count as finite."""
    return np.asarray(values).dtype.kind not in "fc" or bool(np.isfinite(values).all())


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Stop what takes more CPU time than this."""

    def stop(*_: Any) -> None:
        raise FaultError(f"took more than {seconds} s of CPU time")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def try_fit(name: str, standardize: bool, problem: Problem) -> str:
    """Fit and predict; a refusal is an answer, whatever else is not finite or not said is a fault."""
    model = make_estimator(name)
    if "standardize" in model.get_params():
        model.set_params(standardize=standardize)
    with warnings.catch_warnings(), limited(CPU_SECONDS):
        warnings.simplefilter("ignore")
        try:
            model.fit(problem.X, problem.y, tasks=problem.tasks)
        except REFUSALS as error:
            if not str(error):
                raise FaultError(f"refused without a word: {error!r}") from error
            return "refused"
        for attribute in ("coef_", "intercept_", "scores_"):
            if hasattr(model, attribute) and not finite(getattr(model, attribute)):
                raise FaultError(f"{attribute} is not finite")
        if hasattr(model, "predict") and not finite(model.predict(problem.X, tasks=problem.tasks)):
            raise FaultError("predictions of the training rows are not finite")
    return "fitted"


# ---------------------------------------------------------------------- files


def sign(payload: bytes) -> bytes:
    """A file whose length and content hash are right, whatever its content."""
    fields = struct.pack(">9sHQ", b"BAYESMTFS", 1, len(payload))
    digest = hashlib.sha256(fields.ljust(HEADER_SIZE, b"\0") + payload).digest()
    return (fields + digest).ljust(HEADER_SIZE, b"\0") + payload


@st.composite
def damages(draw: st.DrawFn, content: bytes, start: int = 0) -> bytes:
    """The content with bits flipped, bytes overwritten, cut out, repeated or cut off after ``start``."""
    damaged = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(start, max(start, len(damaged) - 1)))
        length = draw(st.sampled_from([1, 2, 4, 8, 64, 1000]))
        kind = draw(st.sampled_from(["flip", "flip", "overwrite", "cut out", "repeat", "cut off"]))
        if kind == "flip" and at < len(damaged):
            damaged[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == "overwrite":
            damaged[at : at + 8] = draw(st.just(b"\xff" * 8) | st.binary(min_size=8, max_size=8))
        elif kind == "cut out":
            del damaged[at : at + length]
        elif kind == "repeat":
            damaged[at:at] = damaged[at : at + length]
        else:
            del damaged[at:]
    return bytes(damaged)


def try_load(path: Path) -> str:
    """Load a file that may be anything."""
    with warnings.catch_warnings(), limited(CPU_SECONDS):
        warnings.simplefilter("ignore")
        try:
            bm.load(path)
        except REFUSALS as error:
            if not str(error):
                raise FaultError(f"refused without a word: {error!r}") from error
            return "refused"
    return "loaded"


# ---------------------------------------------------------------------- tables and commands

CELLS = st.one_of(
    st.sampled_from(["0", "1", "2", "3.5"]),
    st.sampled_from(["", "nan", "inf", "-1e150", "1e999", "0", "1", "2.5", "a", '"', "é", "\x00", "1,5"]),
    st.floats().map(str),
    TEXT,
)


@st.composite
def tables(draw: st.DrawFn) -> bytes:
    """Text that is nearly CSV."""
    header = ["y", *draw(st.lists(st.sampled_from(["t", "x", "z", "", "y", "größe"]), max_size=5, unique=True))]
    width = st.just(len(header)) if draw(st.booleans()) else st.integers(0, 6)
    rows = [header, *(draw(st.lists(CELLS, min_size=w, max_size=w)) for w in [draw(width) for _ in range(6)])]
    text = "\n".join(",".join(row) for row in rows).encode("utf-8", "surrogatepass")
    return draw(damages(text)) if text and draw(st.booleans()) else text


@st.composite
def commands(draw: st.DrawFn) -> list[str]:
    """Arguments of ``bayesmtfs fit DATA``: right, wrong and absurd ones."""
    values = st.sampled_from(["y", "t", "x", "", "2", "-1", "nan", "inf", "1e400", "learn", "cv", "auto", "é", "map"])
    options = st.sampled_from(
        ["--target", "--targets", "--task", "--prior", "--norm-q", "--penalty", "--seed", "--odd"]
    )
    arguments = ["--target", "y"] if draw(st.booleans()) else []
    arguments += ["--route", draw(st.sampled_from(["map", "em", "online", "magic"]))]
    for _ in range(draw(st.integers(0, 2))):
        arguments += [draw(options), draw(values)]
    flags = ["--force", "--json", "--quiet", "--classify", "--regress"]
    return arguments + draw(st.lists(st.sampled_from(flags), max_size=2))


def try_command(arguments: list[str]) -> str:
    """Run a command in this process; it must end with an exit code and a message of its own."""
    from typer.testing import CliRunner

    from bayesmtfs.cli.main import app

    with limited(CPU_SECONDS):
        result = CliRunner().invoke(app, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise FaultError(f"ended with {result.exception!r}") from result.exception
    if result.exit_code not in (0, 1, 2) or (result.exit_code and not result.output.strip()):
        raise FaultError(f"ended with exit code {result.exit_code} and said {result.output!r}")
    return "done" if result.exit_code == 0 else "refused"


# ---------------------------------------------------------------------- the long run


def saved_model(folder: Path) -> Path:
    """A small saved estimator."""
    sim = bm.simulate_tasks(n_tasks=3, n_features=4, n_relevant=2, n_samples=10, random_state=0)
    path = folder / "model"
    bm.MixedNormRegressor().fit(pd.DataFrame(sim.X).add_prefix("x"), sim.y, tasks=sim.tasks).save(path)
    return path


def trials(folder: Path) -> dict[str, tuple[st.SearchStrategy[Any], Callable[[Any], str]]]:
    """Strategy and trial of everything that is fuzzed, by name."""
    content = saved_model(folder).read_bytes()
    target, table = folder / "damaged", folder / "table.csv"

    def load(damaged: bytes) -> str:
        target.write_bytes(damaged)
        return try_load(target)

    def fit_table(example: tuple[bytes, list[str]]) -> str:
        table.write_bytes(example[0])
        return try_command(["fit", str(table), "--out", str(folder / "out"), *example[1]])

    return {
        "fits": (fits(), lambda example: try_fit(*example)),
        "files": (damages(content), load),
        "forged": (damages(content[HEADER_SIZE:]).map(sign), load),
        "tables": (st.tuples(tables(), st.just(["--target", "y", "--penalty", "auto", "--force"])), fit_table),
        "commands": (st.tuples(st.just(b"x,z,t,y\n1,2,a,3\n2,1,a,4\n0,1,b,1\n1,1,b,2\n"), commands()), fit_table),
    }


def run_trials(strategy: st.SearchStrategy[Any], trial: Callable[[Any], str], number: int, start: int) -> Counter[str]:
    """Try ``number`` examples; raises what hypothesis shrunk at a fault."""
    outcomes: Counter[str] = Counter()

    @seed(start)
    @settings(max_examples=number, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def attempt(example: Any) -> None:
        outcomes[trial(example)] += 1

    attempt()
    return outcomes


def run_for(minutes: float, start: int, only: str | None = None, batch: int = 100) -> dict[str, Counter[str]]:
    """Go round the trials in batches until the time is over, and count outcomes; faults are printed and counted."""
    ends = time.monotonic() + 60 * minutes
    with tempfile.TemporaryDirectory() as folder:
        everything = trials(Path(folder))
        chosen = {name: pair for name, pair in everything.items() if only in (None, name)}
        outcomes: dict[str, Counter[str]] = {name: Counter() for name in chosen}
        while time.monotonic() < ends:
            for name, (strategy, trial) in chosen.items():
                try:
                    outcomes[name] += run_trials(strategy, trial, batch, start)
                except Exception:
                    outcomes[name]["faults"] += 1
                    traceback.print_exc()
            start += 1
    return outcomes


def main() -> None:
    """Read the options, run, and print a table of outcomes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="fits, files, forged, tables or commands")
    options = parser.parse_args()
    outcomes = run_for(options.minutes, options.seed, options.only)
    for name, counts in outcomes.items():
        print(f"{name:10s}", ", ".join(f"{number} {outcome}" for outcome, number in sorted(counts.items())))
    sys.exit(any(counts["faults"] for counts in outcomes.values()))


if __name__ == "__main__":
    main()
