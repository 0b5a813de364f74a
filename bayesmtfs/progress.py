"""Long work that can be watched and stopped: a progress bar with the time left, and Ctrl-C that keeps what there is.

Every long loop of the package is written in one way::

    with Progress("EM", progress) as work:
        while not done:
            ...  # a step; what it has achieved is in variables outside of the block
            work.update(fraction, "gap 1e-3")
    interrupted = work.interrupted

Ctrl-C ends the block and not the program: what the last whole step left is the result, marked as interrupted. Work that is
made of pieces which are fits themselves (folds, splits) goes through `gather`, or asks with `check` whether Ctrl-C was
pressed inside a piece; sums that must not be cut in two are added with ``hold=True``, where Ctrl-C waits for a `check`.
"""

import math
import signal
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from types import FrameType, TracebackType
from typing import Any, Self

from bayesmtfs.types import SelectionWarning, warn

PATIENCE = 2.0  # seconds without a bar
WORTH_SAYING = 10.0  # seconds from which on it is said in words how long the work will take


class Progress:
    """Show how far a long computation is, and let Ctrl-C end it early; blocks may be nested.

    Parameters
    ----------
    description : what is being done, in a few words
    enabled : True shows the bar, False never; None (default) shows it when the error stream is a terminal. It is silent
        for the first two seconds
    hold : let Ctrl-C wait for the next `check`, instead of ending the block at once
    size : of the work, in words, such as "1000 features, 8 tasks": said with the estimate of the time that it takes
    part : what the parts are that `update` is told of, such as "chain": each has a bar

    Attributes
    ----------
    interrupted : bool
        Whether Ctrl-C ended the block.
    pressed : bool
        Whether Ctrl-C was pressed since the block began, also if a fit inside of it has caught it. Not known in threads
        other than the main one, which never get Ctrl-C, and where the program has a handler of its own for it.

    Examples
    --------
    >>> finished = []
    >>> with Progress("counting", enabled=False, hold=True) as work:
    ...     for number, piece in enumerate("abc"):
    ...         finished.append(piece)
    ...         work.pressed = piece == "b"  # what Ctrl-C does
    ...         work.check()
    ...         work.update((number + 1) / 3)
    >>> finished, work.interrupted
    (['a', 'b'], True)
    """

    def __init__(
        self, description: str, enabled: bool | None = None, *, hold: bool = False, size: str = "", part: str = ""
    ) -> None:
        self.description, self.size, self.part = description, size, part
        self.enabled = sys.stderr.isatty() if enabled is None else enabled
        self.hold = hold
        self.pressed = False
        self.interrupted = False
        self._started = time.monotonic()
        self._display: Any = None
        self._jobs: list[Any] = []
        self._watches = False

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            # Asking for a handler and setting one takes microseconds: the outermost block does it for all
            self._watches = bool(_watching) or signal.getsignal(signal.SIGINT) is signal.default_int_handler
            if self._watches and not _watching:
                signal.signal(signal.SIGINT, _notice)
            if self._watches:
                _watching.append(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> bool:
        if self._watches:
            _watching.remove(self)
            if not _watching:
                signal.signal(signal.SIGINT, signal.default_int_handler)
        if self._display is not None:
            self._display.stop()
            _shown.remove(self)
        self.interrupted = kind is not None and issubclass(kind, KeyboardInterrupt)
        return self.interrupted

    def update(self, fraction: float, note: str = "", parts: Sequence[float] = ()) -> None:
        """Say that a fraction (0 to 1) is done, and how much of each part where there are parts with bars of their own."""
        elapsed = time.monotonic() - self._started
        if not self.enabled or (self._display is None and elapsed < PATIENCE):
            return
        if self._display is None:
            if _shown:  # one display at a time: that of the outer work
                return
            self._open(len(parts))
            self._say_estimate(elapsed, fraction)
        for job, share in zip(self._jobs, parts or (fraction,), strict=True):
            self._display.update(job, completed=min(max(share, 0.0), 1.0), note=note)

    def _say_estimate(self, elapsed: float, fraction: float) -> None:
        """One line with the time that the whole work will take, as far as can be told from its beginning."""
        if fraction > 0 and elapsed / fraction >= WORTH_SAYING:
            size = f": {self.size}" if self.size else ""
            self._display.console.print(
                f"{self.description}: about {in_words(elapsed / fraction)}{size}", highlight=False
            )

    def check(self) -> None:
        """Raise Ctrl-C if it was pressed since the block began, also if something inside caught it."""
        if self.pressed or self.interrupted:
            raise KeyboardInterrupt

    def _open(self, n_parts: int) -> None:
        # rich is loaded only when there is something to show: a quick fit should not pay for it
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Display

        note = TextColumn("{task.fields[note]}")
        columns = (BarColumn(), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(), note)
        title = TextColumn("{task.description}")
        self._display = Display(title, *columns, console=Console(stderr=True), transient=True)
        names = [f"{self.description}, {self.part} {k + 1}" for k in range(n_parts)] or [self.description]
        self._jobs = [self._display.add_task(name, total=1.0, note="") for name in names]
        self._display.start()
        _shown.append(self)


_shown: list[Progress] = []  # the block whose bar is on the screen
_watching: list[Progress] = []  # blocks that notice Ctrl-C, the innermost last


def _notice(number: int, frame: FrameType | None) -> None:
    """Tell the blocks of Ctrl-C, from the innermost to one that holds it; with none that does, end the innermost."""
    for block in reversed(_watching):
        block.pressed = True
        if block.hold:
            return
    signal.default_int_handler(number, frame)


def gather[Piece](pieces: Iterable[Piece], total: int, work: Progress, what: str, batch: int = 1) -> list[Piece]:
    """All pieces of a work; after Ctrl-C those of the whole batches, with a warning that counts ``what`` these are.

    Ctrl-C before the first batch is whole is raised.
    """
    found: list[Piece] = []
    with work:
        for piece in pieces:
            work.check()  # a fit that caught Ctrl-C was not finished
            found.append(piece)
            work.update(len(found) / total, f"{len(found)} of {total}")
    if work.interrupted:
        n_whole = len(found) // batch
        if n_whole == 0:
            raise KeyboardInterrupt
        warn(f"interrupted after {n_whole} of {total // batch} {what}; the result is that of these", SelectionWarning)
        return found[: n_whole * batch]
    return found


def in_words(seconds: float) -> str:
    """A time as people say it.

    Examples
    --------
    >>> in_words(42.0), in_words(60.0), in_words(250.0), in_words(9000.0)
    ('40 seconds', '1 minute', '4 minutes', '2.5 hours')
    """
    if seconds < 55.0:
        return f"{max(5 * round(seconds / 5), 5)} seconds"
    if seconds < 5400.0:
        minutes = max(round(seconds / 60), 1)
        return f"{minutes} minute{'' if minutes == 1 else 's'}"
    return f"{seconds / 3600:.2g} hours"


def share_of_way(gap: float, scale: float, tol: float) -> float:
    """How far a gap has come towards ``tol * scale``, on a log scale.

    Examples
    --------
    >>> share_of_way(1e-3, 1.0, 1e-6), share_of_way(1e-9, 1.0, 1e-6)
    (0.5, 1.0)
    """
    relative = gap / scale if scale > 0 else tol
    return 1.0 if relative <= tol else math.log(min(relative, 1.0)) / math.log(min(max(tol, 1e-16), 0.5))
