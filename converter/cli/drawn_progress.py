"""Progress on stderr: a bar per stage where somebody looks at a terminal; what is told is printed everywhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from tpuconvert.progress import Progress


@contextmanager
def drawn_progress() -> Iterator[Progress]:
    """Progress that draws for as long as the ``with`` block runs, and leaves no trace behind."""
    if not sys.stderr.isatty():
        yield _Told()
        return
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
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        yield _Drawn(bars)


class _Told(Progress):
    def tell(self, text: str) -> None:
        click.echo(text, err=True)


class _Drawn(Progress):
    def __init__(self, bars: object) -> None:
        from rich.progress import Progress as Bars

        assert isinstance(bars, Bars)
        self._bars = bars
        self._task = bars.add_task("start", total=None)

    def tell(self, text: str) -> None:
        self._bars.console.print(text, markup=False, highlight=False)

    def stage(self, name: str, total: int | None = None) -> None:
        self._bars.remove_task(self._task)  # a task that is reset keeps its total where the new stage has none
        self._task = self._bars.add_task(name, total=total)

    def advance(self, done: int) -> None:
        self._bars.update(self._task, completed=done)
