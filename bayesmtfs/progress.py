"""A progress bar for long work: silent for the first two seconds, on a terminal only, and can be switched off."""

import sys
import time
from types import TracebackType
from typing import Any, Self

PATIENCE = 2.0  # seconds without a bar


class ProgressBar:
    """Show how far a long computation is.

    Parameters
    ----------
    description : what is being done, in a few words
    enabled : True shows the bar, False never; None (default) shows it when the error stream is a terminal

    Examples
    --------
    >>> with ProgressBar("fitting", enabled=False) as bar:
    ...     bar.update(0.5, "gap 1e-3")
    """

    def __init__(self, description: str, enabled: bool | None = None) -> None:
        self.description = description
        self.enabled = sys.stderr.isatty() if enabled is None else enabled
        self._started = time.monotonic()
        self._display: Any = None
        self._job: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._display is not None:
            self._display.stop()

    def update(self, fraction: float, note: str = "") -> None:
        """Say that a fraction (0 to 1) is done."""
        if not self.enabled or (self._display is None and time.monotonic() - self._started < PATIENCE):
            return
        if self._display is None:
            self._open()
        self._display.update(self._job, completed=min(max(fraction, 0.0), 1.0), note=note)

    def _open(self) -> None:
        # rich is loaded only when there is something to show: a quick fit should not pay for it
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
        )
        self._display = Progress(*columns, console=Console(stderr=True), transient=True)
        self._job = self._display.add_task(self.description, total=1.0, note="")
        self._display.start()
