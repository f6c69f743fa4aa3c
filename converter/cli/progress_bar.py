"""Progress on stderr: a bar per stage on a terminal, a line every few seconds in a log."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tpuconvert.cli.terminal import echo
from tpuconvert.progress import Progress
from tpuconvert.schema.visible_text import for_log

SECONDS = 5.0
"""Time between two progress lines in a log. A shorter conversion prints none."""

MODES = ("auto", "bar", "lines", "none")


@contextmanager
def show_progress(mode: str = "auto") -> Iterator[Progress]:
    """Show progress while the ``with`` block runs; a bar is erased at the end."""
    if mode == "none":
        yield _Messages()
    elif mode == "bar" or (mode == "auto" and sys.stderr.isatty()):
        with _bars() as progress:
            yield progress
    else:
        lines = Lines(SECONDS)
        try:
            yield lines
        finally:
            lines.stop()


@contextmanager
def _bars() -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:  # rich reads NO_COLOR
        yield _Drawn(bars)


class _Messages(Progress):
    def report(self, text: str) -> None:
        echo(text, err=True)


class Lines(_Messages):
    """Print a line about the running stage at regular intervals.

    Args:
        seconds: time between two lines.

    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._began = time.monotonic()
        self._stage, self._total, self._done = "", 0, 0
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def stage(self, name: str, total: int | None = None) -> None:
        """Begin a stage; the clock starts with the first one."""
        self._stage, self._total, self._done = name, total or 0, 0
        if self._thread is None:
            self._thread = threading.Thread(target=self._tick, daemon=True)
            self._thread.start()

    def advance(self, done: int) -> None:
        """Report the number of finished steps of the stage."""
        self._done = done

    def stop(self) -> None:
        """Stop printing lines."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _tick(self) -> None:
        while not self._stopped.wait(self._seconds):
            steps = f" {self._done} of {self._total}" if self._total else ""
            self.report(f"{self._stage}{steps} ({time.monotonic() - self._began:.0f} s)")


class _Drawn(Progress):
    def __init__(self, bars: object) -> None:
        from rich.progress import Progress as Bars

        assert isinstance(bars, Bars)
        self._bars = bars
        self._task = bars.add_task("start", total=None)

    def report(self, text: str) -> None:
        self._bars.console.print(for_log(text), markup=False, highlight=False)

    def stage(self, name: str, total: int | None = None) -> None:
        self._bars.remove_task(self._task)  # resetting the task would keep the old total if the new stage has none
        self._task = self._bars.add_task(name, total=total)

    def advance(self, done: int) -> None:
        self._bars.update(self._task, completed=done)
