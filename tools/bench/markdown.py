"""The report as a page of Markdown tables."""

from __future__ import annotations

from tools.bench.models import OURS
from tools.bench.parts import ALONE
from tools.bench.results import Kernels, Memory, Part, Report, Result
from tools.bench.rounds import Measured

INTRODUCTION = """\
# {title}

Speed of the native engine on networks, compared with widely used CPU engines. All results come from one call of
the program that wrote them:

    {command}

Engines run in turns: in every round each one runs briefly, pinned to the same processors. A ratio is the time of an
engine divided by the time of tpuconvert in the same round: above 1, tpuconvert is faster. Tables have the median over
the rounds and, in brackets, the smallest and the largest. Networks have seeded random weights and matching
BatchNormalization statistics; `tools/bench/README.md` describes them and their quantization for each engine.
tpuconvert computes the exact integers of the TPU operators; the other engines may round differently.
"""


def page(report: Report) -> str:
    """The whole page."""
    facts = "\n".join(f"- {name}: {value}" for name, value in report.machine.items())
    sections = "\n".join(_section(part) for part in report.parts)
    return f"{INTRODUCTION.format(title=report.title, command=report.command)}\n## Machine\n\n{facts}\n\n{sections}"


def _section(part: Part) -> str:
    lines = [f"## {part.title}", "", part.about, ""]
    if part.results:
        lines += [*_table(_rows(part)), ""]
    if part.memory:
        lines += [*_table(_memory_rows(part.memory)), ""]
    for each in part.kernels:
        lines += [f"### {each.network}", "", *_table(_kernel_rows(each)), ""]
    failures = [(result, *failure) for result in part.results for failure in result.failures]
    if failures:
        lines += ["Missing:", ""]
        lines += [f"- {result.network} ({result.arithmetic}), {label}: {why}" for result, label, why in failures]
        lines.append("")
    return "\n".join(lines)


def _rows(part: Part) -> list[list[str]]:
    labels = list(dict.fromkeys(each.label for result in part.results for each in result.engines))
    others = [label for label in labels if label != OURS]
    with_peak = any(result.peak_share is not None for result in part.results)
    with_steps = part.key not in ("load",)
    heading = ["network", *(["arithmetic"] if part.key == "trained" else []), *(["GMAC"] if with_steps else [])]
    heading += ["tpuconvert, ms", *(["GMAC/s"] if with_steps else []), *(["of the peak"] if with_peak else [])]
    heading += ["faster than with 1 thread" if label == ALONE else label for label in others]
    rows = [heading]
    for result in part.results:
        on_clock = part.key == "threads"
        cells = [result.network, *([result.arithmetic] if part.key == "trained" else [])]
        cells += [f"{result.macs / 1e9:.3f}"] if with_steps else []
        ours = _milliseconds(result.ours, on_clock=on_clock)
        cells += ["-" if ours is None else _number(ours)]
        cells += [_speed(result, ours)] if with_steps else []
        cells += ["-" if result.peak_share is None else f"{100 * result.peak_share:.0f} %"] if with_peak else []
        rows.append([*cells, *(_against(result.of(label), on_clock=on_clock) for label in others)])
    return rows


def _memory_rows(memory: tuple[Memory, ...]) -> list[list[str]]:
    parts = ("arena", "arena_lower_bound", "packed")
    rows = [["network", "before, MB", "peak, MB", "file, MB", *(f"{part.replace('_', ' ')}, MB" for part in parts)]]
    rows[0] += ["rest, MB", "of packed and arena"]
    for each in memory:
        planned, used = each.plan.get("arena", 0) + each.plan.get("packed", 0), each.peak - each.before
        sizes = [each.before, each.peak, each.file, *(each.plan.get(part) for part in parts), used - planned]
        cells = ["-" if size is None else f"{size / 1e6:.1f}" for size in sizes]
        rows.append([each.network, *cells, f"{used / planned:.2f}" if planned else "-"])
    return rows


def _kernel_rows(table: Kernels) -> list[list[str]]:
    rows = [["kernel", "steps", "ms", "share", "MMAC", "GMAC/s"]]
    for kernel in table.kernels:
        speed = kernel.macs_per_second
        rows.append(
            [
                f"reference {kernel.kernel}" if kernel.is_reference else kernel.kernel,
                str(kernel.steps),
                f"{1e3 * kernel.seconds:.3f}",
                f"{100 * kernel.share:.1f} %",
                "-" if kernel.macs is None else f"{kernel.macs / 1e6:.1f}",
                "-" if speed is None else f"{speed / 1e9:.1f}",
            ]
        )
    return rows


def _against(measured: Measured | None, *, on_clock: bool) -> str:
    if measured is None or measured.error:
        return "-"
    time = _milliseconds(measured, on_clock=on_clock)
    if measured.ratio is None:
        return f"{_number(time)} ms"
    ratio = measured.ratio
    return f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f}), {_number(time)} ms"


def _milliseconds(measured: Measured, *, on_clock: bool) -> float | None:
    if measured.error:
        return None
    return measured.wall_ms if on_clock else measured.cpu_ms


def _number(milliseconds: float | None) -> str:
    return "-" if milliseconds is None else f"{milliseconds:.2f}" if milliseconds >= 1 else f"{milliseconds:.4f}"


def _speed(result: Result, milliseconds: float | None) -> str:
    return "-" if not milliseconds else f"{result.macs / milliseconds / 1e6:.1f}"


def _table(rows: list[list[str]]) -> list[str]:
    line = ["| " + " | ".join(row) + " |" for row in rows]
    return [line[0], "|" + " --- |" * len(rows[0]), *line[1:]]
