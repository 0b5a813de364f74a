"""What all commands share: options, messages, exit codes, and folders that appear whole or not at all.

Exit codes: 0 done, 1 the work failed (the message says why), 2 the command was written wrongly, 130 interrupted.
"""

import inspect
import json
import math
import os
import re
import shlex
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from typer.models import ArgumentInfo

from bayesmtfs.progress import Progress

Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the whole traceback of an error.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what is already there.")]
Seed = Annotated[int, typer.Option(help="Seed of everything random.")]

INTERRUPTED = 130
MISSING_GLYPH = "Glyph .* missing from font"  # of matplotlib, one warning per character and plot
EXPECTED = (ValueError, TypeError, OSError, ImportError, MemoryError, ArithmeticError, KeyError)
# What the package calls what an option sets
OPTIONS = {
    "penalty_strength": "penalty",
    "norm_q": "norm-q",
    "n_jobs": "jobs",
    "cv": "folds",
    "scale_target": "standardize",
    **{
        name: name.replace("_", "-")
        for name in (
            *("unknown_task", "draws", "tune", "chains", "max_features", "rule"),
            *("target_accept", "expected_features", "effect_size"),
        )
    },
}
# What no option does, or does in another way
PYTHON_ONLY = {
    " (see diagnostics_)": "",
    ", or set it to None": "",
    "raise max_iter or tol": "in Python, raise max_iter or tol",
    "standardize=True, but ": "",
    "set standardize=False": "pass --no-standardize",
    "set standardize=True": "leave --no-standardize out",
}


class UsageError(ValueError):
    """The command was written wrongly."""


def run(command: Callable[..., None]) -> Callable[..., None]:
    """Make a command of a function that takes a `Speaker`: with the options of all commands, and errors in a sentence."""

    def wrapped(quiet: Quiet = False, as_json: Json = False, debug: Debug = False, **options: Any) -> None:
        try:
            with Progress(command.__name__, enabled=False) as work:
                command(Speaker(quiet, as_json, typed(command, options)), **options)
        except EXPECTED as error:
            if debug:
                raise
            said = f"missing {error}" if isinstance(error, KeyError) else own_words(f"{error}")
            _say_error(said)
            wrong_usage = isinstance(error, UsageError) or re.match(r"--[a-z-]+ is ", said)
            raise typer.Exit(2 if wrong_usage else 1) from None
        if work.interrupted:
            _say_error("interrupted; what was finished before is kept")
            raise typer.Exit(INTERRUPTED)

    own, common = (list(inspect.signature(each).parameters.values()) for each in (command, wrapped))
    wrapped.__dict__["__signature__"] = inspect.Signature([*own[1:], *common[:-1]])
    wrapped.__doc__ = command.__doc__
    return wrapped


def typed(command: Callable[..., None], options: dict[str, Any]) -> str:
    """A command as it can be typed again, without what is at its default."""
    words = ["bayesmtfs", command.__name__]
    for name, parameter in inspect.signature(command).parameters.items():
        if name not in options or name == "force":
            continue
        value, stated = options[name], parameter.annotation.__metadata__[0]
        if isinstance(stated, ArgumentInfo):
            words += [shlex.quote(str(one)) for one in (value if isinstance(value, list) else [value])]
        elif value != parameter.default:
            dashed = f"--{name.replace('_', '-')}"
            on, _, off = (stated.param_decls[0] if stated.param_decls else dashed).partition("/")
            no = off or f"--no-{on.removeprefix('--')}"
            words += [on if value else no] if isinstance(value, bool) else [on, shlex.quote(str(value))]
    return " ".join(words)


def _say_error(message: str) -> None:
    Console(stderr=True).print(f"Error: {message}", markup=False, highlight=False, soft_wrap=True)


class Speaker:
    """Where a command says things: tables for people, or one JSON object for programs."""

    def __init__(self, quiet: bool, as_json: bool, command: str = "") -> None:
        self.command = command  # as it can be typed again
        self.silent = quiet or as_json
        self.console = Console(quiet=self.silent)
        self.as_json = as_json
        self.warnings: list[str] = []

    @property
    def progress(self) -> bool | None:
        """Progress bars: never when silent, else on a terminal."""
        return False if self.silent else None

    @contextmanager
    def working(self, what: str) -> Iterator[None]:
        """Say what is going on, and collect warnings to say them in one line each."""
        if self.console.is_terminal and not self.silent:
            self.console.print(what, style="dim", highlight=False)  # one line: a spinner would fight with the bars
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warnings.filterwarnings("ignore", category=DeprecationWarning)
            warnings.filterwarnings("ignore", category=FutureWarning)
            yield
        for text in dict.fromkeys(_plain_words(f"{item.message}") for item in caught):
            self.warnings.append(text)
            if not self.silent:
                Console(stderr=True).print(f"Warning: {text}", style="yellow", markup=False, highlight=False)

    def say(self, *things: Any) -> None:
        """Print for people."""
        for thing in things:
            self.console.print(thing, highlight=False, markup=not isinstance(thing, str))

    def answer(self, found: dict[str, Any]) -> None:
        """Print for programs, where that was asked for."""
        if self.as_json:
            typer.echo(as_text({**found, "warnings": self.warnings}))


ESTIMATOR_ROUTES = {"GeneralizedNormal": "--route em --prior generalized_normal", "Bayesian": "--route posterior"}


def own_words(message: str) -> str:
    """A message of the package in the words of the command line.

    Examples
    --------
    >>> own_words('draws is 0; set unknown_task="mean" to predict with the average task')
    '--draws is 0; pass --unknown-task mean to predict with the average task'
    >>> own_words("loss='student_t' is not convex; use loss='huber' here, or BayesianRegressor")
    '--family student_t is not convex; use --family huber here, or --route posterior'
    """
    for python, ours in PYTHON_ONLY.items():
        message = message.replace(python, ours)
    for last in ("tune", "target_accept"):
        message = re.sub(rf"\b(draws|tune) and {last}\b", rf"\1 and --{last.replace('_', '-')}", message)
    message = re.sub(r"\bloss=['\"]([^'\"]+)['\"]", r"--family \1", message)
    for name, route in ESTIMATOR_ROUTES.items():  # where a message advises one
        message = re.sub(rf"\b(use|in|or) {name}(?:Regressor|Classifier)\b", rf"\1 {route}", message)
    for name, option in OPTIONS.items():
        message = re.sub(rf"\b(?:set )?{name}=[\"']?(\w+)[\"']?", rf"pass --{option} \1", message)
        message = re.sub(rf"(?<!-)\b{name}(?= is \S+; )", f"--{option}", message)
        message = re.sub(rf"\b(raise|lower) {name}\b", rf"\1 --{option}", message)
    return message


def _plain_words(message: str) -> str:
    """A warning in the words of the user."""
    if not re.match(MISSING_GLYPH, message):
        return own_words(message)
    return (
        "the font of the plots lacks some characters of your names; tables and the report's text have them. Install "
        "a font that has them and name it as font.family in matplotlib's settings"
    )


def plain(value: Any) -> Any:
    """Something that JSON can hold: arrays as lists, what is not finite as text."""
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def method_table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], caption: str, title: str | None = None
) -> Table:
    """A table for a terminal with one method per row, numbers to the right."""
    table = Table(title=title, caption=caption, box=SIMPLE, show_edge=False, pad_edge=False, collapse_padding=True)
    table.add_column("method", no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def as_text(found: Any) -> str:
    """JSON for a file or a program."""
    return json.dumps(plain(found), indent=1, ensure_ascii=False)


def check_free(path: Path, force: bool) -> None:
    """Refuse to write over something unless that is wanted."""
    if path.exists() and not force and not (path.is_dir() and not any(path.iterdir())):
        raise FileExistsError(f"{path} exists already; pass another --out, or --force to replace it")


@contextmanager
def new_folder(path: Path, force: bool) -> Iterator[Path]:
    """A folder that takes its place when the block ends well, and is not there otherwise."""
    check_free(path, force)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".bayesmtfs-", dir=path.parent, ignore_cleanup_errors=True) as place:
        work, old = Path(place, "new"), Path(place, "old")
        work.mkdir()
        yield work
        if path.exists():
            os.replace(path, old)
        try:
            os.replace(work, path)
        except BaseException:
            if old.exists():
                os.replace(old, path)
            raise
