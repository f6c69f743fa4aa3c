"""The measurements as a page of Markdown tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tools.bench.throughput.measuring import Served

INTRODUCTION = """\
# Throughput

Images per second of the native engine with batches and with several requests at a time, compared with ONNX Runtime
and OpenVINO, and the latency of a request under load. All results of this page come from one call of the program that
wrote it:

    {command}

Every client sends its next request as soon as the last one is answered. `tools/bench/README.md` describes the
networks and their INT8 files. All engines are pinned to the same {threads} processors and run in turns; a ratio is the
throughput of tpuconvert divided by the throughput of the engine in the same turn: above 1, tpuconvert is faster.
Tables have the median over the turns and, in brackets, the smallest and the largest.

- **tpuconvert:** one session with {threads} threads for all clients, a model of one image at a time. `Session.run`
  splits a batch and runs the images in parallel. See
  [Batches and several clients](engine.md#batches-and-several-clients).
- **ONNX Runtime:** a model of the batch size. One client: {threads} threads for each request; several: one session, one
  thread for each request.
- **OpenVINO:** a model of the batch size. One client: the hint `LATENCY`; several: the hint `THROUGHPUT` and an infer
  request for each client.
"""


@dataclass(frozen=True)
class Cell:
    """Measurements of all engines for one network and one load. The first engine is tpuconvert."""

    network: str
    clients: int
    batch: int
    engines: tuple[Served, ...]


def page(cells: Sequence[Cell], machine: Mapping[str, str], command: str, threads: int) -> str:
    """Return the whole page."""
    facts = "\n".join(f"- {name}: {value}" for name, value in machine.items())
    lines = [INTRODUCTION.format(command=command, threads=threads), "## Machine", "", facts, ""]
    lines += ["## Images per second", "", *_table([_throughput_row(cell) for cell in cells], cells, _HEADING), ""]
    alone = [cell for cell in cells if cell.batch == 1]
    lines += ["## Latency of a request with one image", ""]
    lines += ["Median and 99th percentile, in milliseconds.", ""]
    lines += [*_table([_latency_row(cell) for cell in alone], alone, ["network", "clients"]), ""]
    failures = [
        f"- {cell.network}, {cell.clients} clients, batch {cell.batch}, {each.label}: {each.error}"
        for cell in cells
        for each in cell.engines
        if each.error
    ]
    return "\n".join([*lines, *(["Missing:", "", *failures, ""] if failures else [])])


_HEADING = ["network", "clients", "batch"]


def _throughput_row(cell: Cell) -> list[str]:
    return [cell.network, str(cell.clients), str(cell.batch), *map(_rate, cell.engines)]


def _rate(served: Served) -> str:
    if served.error:
        return "-"
    rate = f"{served.images_per_second:.1f}" if served.images_per_second < 1000 else f"{served.images_per_second:.0f}"
    if served.ratio is None:
        return rate
    ratio = served.ratio
    return f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f}), {rate}"


def _latency_row(cell: Cell) -> list[str]:
    return [cell.network, str(cell.clients), *map(_latency, cell.engines)]


def _latency(served: Served) -> str:
    return "-" if served.error else f"{served.latency_ms:.2f}, {served.slow_ms:.2f}"


def _table(rows: list[list[str]], cells: Sequence[Cell], heading: list[str]) -> list[str]:
    names = [*heading, *(each.label for each in cells[0].engines)] if cells else heading
    return [f"| {' | '.join(row)} |" for row in (names, ["---"] * len(names), *rows)]
