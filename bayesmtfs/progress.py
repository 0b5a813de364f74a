"""Long work that can be watched and stopped: a progress bar with the time left, and Ctrl-C that keeps what there is.

Every long loop of the package is written in one way::

    with Progress("EM", progress) as work:
        while not done:
            ...  # a step; what it has achieved is in variables outside of the block
            work.update(fraction, "gap 1e-3")
    interrupted = work.interrupted

Ctrl-C ends the block and not the program: what the last whole step left is the result, marked as interrupted. Work that is
made of pieces which are fits themselves (folds, splits) asks with `check` whether Ctrl-C was pressed inside a piece; and
sums that must not be cut in two are added with ``hold=True``, where Ctrl-C waits for the next `check`.
"""

import math
import signal
import sys
import threading
import time
from types import FrameType, TracebackType
from typing import Any, Self

PATIENCE = 2.0  # seconds without a bar


class Progress:
    """Show how far a long computation is, and let Ctrl-C end it early; blocks may be nested.

    Parameters
    ----------
    description : what is being done, in a few words
    enabled : True shows the bar, False never; None (default) shows it when the error stream is a terminal. It is silent
        for the first two seconds
    hold : let Ctrl-C wait for the next `check`, instead of ending the block at once

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

    def __init__(self, description: str, enabled: bool | None = None, *, hold: bool = False) -> None:
        self.description = description
        self.enabled = sys.stderr.isatty() if enabled is None else enabled
        self.hold = hold
        self.pressed = False
        self.interrupted = False
        self._started = time.monotonic()
        self._display: Any = None
        self._job: Any = None
        self._before: Any = None

    def __enter__(self) -> Self:
        handler = signal.getsignal(signal.SIGINT)
        known = handler is signal.default_int_handler or isinstance(getattr(handler, "__self__", None), Progress)
        if known and threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._notice)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
        if self._display is not None:
            self._display.stop()
        self.interrupted = kind is not None and issubclass(kind, KeyboardInterrupt)
        return self.interrupted

    def update(self, fraction: float, note: str = "") -> None:
        """Say that a fraction (0 to 1) is done."""
        if not self.enabled or (self._display is None and time.monotonic() - self._started < PATIENCE):
            return
        if self._display is None:
            self._open()
        self._display.update(self._job, completed=min(max(fraction, 0.0), 1.0), note=note)

    def check(self) -> None:
        """End the block if Ctrl-C was pressed since it began, also if something inside caught it."""
        if self.pressed:
            raise KeyboardInterrupt

    def _notice(self, number: int, frame: FrameType | None) -> None:
        self.pressed = True
        if not self.hold:
            self._before(number, frame)

    def _open(self) -> None:
        # rich is loaded only when there is something to show: a quick fit should not pay for it
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Display

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        self._display = Display(*columns, console=Console(stderr=True), transient=True)
        self._job = self._display.add_task(self.description, total=1.0, note="")
        self._display.start()


def share_of_way(gap: float, scale: float, tol: float) -> float:
    """How far a gap has come towards ``tol * scale``, on a log scale.

    Examples
    --------
    >>> share_of_way(1e-3, 1.0, 1e-6), share_of_way(1e-9, 1.0, 1e-6)
    (0.5, 1.0)
    """
    relative = gap / scale if scale > 0 else tol
    return 1.0 if relative <= tol else math.log(min(relative, 1.0)) / math.log(min(max(tol, 1e-16), 0.5))
