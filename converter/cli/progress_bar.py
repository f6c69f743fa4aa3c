"""Progress on stderr: a bar per stage on a terminal, a line every few seconds in a log, with the remaining time."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from tpuconvert.cli.terminal import echo
from tpuconvert.progress import Progress
from tpuconvert.schema.text.visible_text import for_log

SECONDS = 5.0
"""Time between two progress lines in a log. A shorter conversion prints none."""

MODES = ("auto", "bar", "lines", "none")


class Estimate:
    """Estimate of the remaining time of a stage, from the time per step of the last half of its finished steps.

    The time until the first step was done is left out: it contains the preparation, and steps of an interrupted run.

    Args:
        total: number of steps of the stage; 0 if it is not known.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = 0
        self._first = 0  # steps that were done at the first report
        self._reports: deque[tuple[float, int]] = deque()  # (seconds, finished steps), since the middle of the steps

    def advance(self, done: int, now: float) -> None:
        """Record the number of finished steps at a time in seconds."""
        if done <= 0 or (self._reports and done <= self.done):
            return
        if not self._reports:
            self._first = done
        self.done = done
        self._reports.append((now, done))
        middle = (self._first + done) // 2
        while len(self._reports) > 2 and self._reports[1][1] <= middle:
            self._reports.popleft()

    def remaining(self, now: float) -> float | None:
        """Return the remaining seconds; None if they are not known yet."""
        if len(self._reports) < 2 or self.done >= self.total:
            return None
        (began, before), (last, done) = self._reports[0], self._reports[-1]
        return max(0.0, (last - began) / (done - before) * (self.total - done) - (now - last))

    def text(self, now: float) -> str:
        """Return the remaining time for the user, such as ``about 40 s left``; empty if it is not known yet."""
        seconds = self.remaining(now)
        return "" if seconds is None else f"about {duration(seconds)} left"


def duration(seconds: float) -> str:
    """Format a time with its largest unit: ``40 s``, ``3 min`` or ``2.5 h``."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5970 else f"{seconds / 3600:.1f} h"


@contextmanager
def show_progress(mode: str = "auto") -> Iterator[Progress]:
    """Show progress on stderr while a ``with`` block runs, with the estimated remaining time of each stage.

    Args:
        mode: ``bar``, which is erased at the end; ``lines``, one every 5 seconds; ``none``; or ``auto``, a bar on a
            terminal, else lines.

    Yields:
        The receiver of the stages, for the argument ``progress`` of ``convert`` and ``evaluate``.
    """
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
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        ProgressColumn,
        SpinnerColumn,
        Task,
        TextColumn,
        TimeElapsedColumn,
    )
    from rich.progress import Progress as Bars

    class TimeLeft(ProgressColumn):
        def render(self, task: Task) -> str:
            return f"[progress.remaining]{task.fields['estimate'].text(time.monotonic())}"

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeLeft(),
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
        self._stage, self._estimate = "", Estimate(0)
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def stage(self, name: str, total: int | None = None) -> None:
        """Begin a stage; the clock starts with the first one."""
        self._stage, self._estimate = name, Estimate(total or 0)
        if self._thread is None:
            self._thread = threading.Thread(target=self._tick, daemon=True)
            self._thread.start()

    def advance(self, done: int) -> None:
        """Report the number of finished steps of the stage."""
        self._estimate.advance(done, time.monotonic())

    def stop(self) -> None:
        """Stop printing lines."""
        self._stopped.set()
        if self._thread is not None and self._thread.is_alive():  # Ctrl-C may come before its start
            self._thread.join()

    def _tick(self) -> None:
        while not self._stopped.wait(self._seconds):
            stage, estimate, now = self._stage, self._estimate, time.monotonic()
            steps = f" {estimate.done} of {estimate.total}" if estimate.total else ""
            times = [f"{now - self._began:.0f} s", *filter(None, [estimate.text(now)])]
            self.report(f"{stage}{steps} ({', '.join(times)})")


class _Drawn(Progress):
    def __init__(self, bars: object) -> None:
        from rich.progress import Progress as Bars

        assert isinstance(bars, Bars)
        self._bars = bars
        self._estimate = Estimate(0)
        self._task = bars.add_task("start", total=None, estimate=self._estimate)

    def report(self, text: str) -> None:
        self._bars.console.print(for_log(text), markup=False, highlight=False)

    def stage(self, name: str, total: int | None = None) -> None:
        self._bars.remove_task(self._task)  # resetting the task would keep the old total if the new stage has none
        self._estimate = Estimate(total or 0)
        self._task = self._bars.add_task(name, total=total, estimate=self._estimate)

    def advance(self, done: int) -> None:
        self._estimate.advance(done, time.monotonic())
        self._bars.update(self._task, completed=done)
