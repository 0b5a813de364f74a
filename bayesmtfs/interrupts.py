"""Ctrl-C in work that is made of many pieces: the pieces that are whole are kept.

A long fit catches ``KeyboardInterrupt`` and returns what it has. Where it is one of many (folds, halves, splits), the loop
around it has to know that Ctrl-C was pressed, or it would go on to the next one; and where pieces are added up in place,
Ctrl-C has to wait until the sum is whole again. `InterruptWatch` does both.
"""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self


class InterruptWatch:
    """Notice Ctrl-C within a ``with`` block.

    Watches may be nested. They have no effect in threads other than the main one, which never get Ctrl-C, and where the
    program has a handler of its own for it.

    Parameters
    ----------
    hold : let Ctrl-C wait for the next `check`, instead of raising ``KeyboardInterrupt`` at once

    Examples
    --------
    >>> finished = []
    >>> with InterruptWatch(hold=True) as watch:
    ...     try:
    ...         for piece in "abc":
    ...             finished.append(piece)
    ...             watch.pressed = piece == "b"  # what Ctrl-C does
    ...             watch.check()
    ...     except KeyboardInterrupt:
    ...         pass
    >>> finished
    ['a', 'b']
    """

    def __init__(self, hold: bool = False) -> None:
        self.hold = hold
        self.pressed = False
        self._before: Any = None

    def __enter__(self) -> Self:
        handler = signal.getsignal(signal.SIGINT)
        known = handler is signal.default_int_handler or isinstance(getattr(handler, "__self__", None), InterruptWatch)
        if known and threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._notice)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def check(self) -> None:
        """Raise ``KeyboardInterrupt`` if Ctrl-C was pressed since the block began, also if something inside caught it."""
        if self.pressed:
            raise KeyboardInterrupt

    def _notice(self, number: int, frame: FrameType | None) -> None:
        self.pressed = True
        if not self.hold:
            self._before(number, frame)
