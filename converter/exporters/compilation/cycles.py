"""Estimate of the time on a chip: the profile that the compiler writes of the commands of a program.

The profile has the cycles of each command of the two engines, of which one computes and the other transfers. A command
has a label such as ``Conv2D_27``, with a line of the last module; a list of operations has the tensors of each line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict

from tpuconvert.schema.text.json_text import parse_json
from tpuconvert.text.markdown_text import table_code_span

PROFILE = "*_0.[td][xa]t"
"""Name of the profile, ``compiler_profile_0.txt``; for BM1684 ``_0.dat``."""

MEGAHERTZ = {"bm1684x": 1000, "bm1688": 1000, "bm1684": 550}
"""Clock of the cycles. Bandwidths in the profiles of BM1684X and BM1688 have cycles of a nanosecond; for BM1684
it is the clock of the vendor's profiler."""

_TOTAL = re.compile(r"^API_END total_cycle:(\d+)", re.MULTILINE)
_COMMAND = re.compile(r"(?P<label>\w+)\|\w+\|s:\d+\|b:\d+\|g:\d+\|e:\d+\|t:(?P<cycles>\d+)(?P<transfer>\|dr:)?")

_MOST_ROWS = 20


class LayerCycles(TypedDict):
    """Cycles of the commands of an operation of the compiled module. The engines overlap."""

    operation: str
    tensor: Annotated[str, "first result; empty for an operation that the compiler does not list"]
    compute: int
    transfer: int


class CycleEstimate(TypedDict):
    """Estimate of the compiler, which no device has confirmed."""

    total: Annotated[int, "cycles of one run, in which both engines overlap"]
    compute: Annotated[int, "cycles of all commands that compute"]
    transfer: Annotated[int, "cycles of all commands that transfer"]
    megahertz: Annotated[int, "clock with which the compiler's profiles count"]
    milliseconds: float
    layers: Annotated[list[LayerCycles], "in the order of the program"]


class NoEstimate(Exception):
    """The compiler wrote no profile, or one of a different form."""


def read_estimate(folder: Path, operations: Path, chip: str) -> CycleEstimate:
    """Read the profile that the compiler wrote into a folder.

    Args:
        folder: the folder.
        operations: its list of operations.
        chip: name of the chip.

    Raises:
        NoEstimate: a file is missing, or has another form.
    """
    profiles = sorted(folder.glob(PROFILE))
    if len(profiles) != 1:
        raise NoEstimate(f"the compiler wrote {len(profiles)} profiles, expected 1")
    try:
        listed = parse_json(operations.read_text(encoding="utf-8"))
        lines = {item["file-line"]: (item["opcode"], _first(item["results"])) for item in listed}
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise NoEstimate(f"the list of operations is missing or has another form: {error!r}") from error
    return parse_profile(profiles[0].read_text(encoding="utf-8", errors="replace"), lines, chip)


def parse_profile(text: str, lines: Mapping[int, tuple[str, str]], chip: str) -> CycleEstimate:
    """Return the estimate of a profile.

    Args:
        text: the profile.
        lines: operation and first result of each line of the module.
        chip: name of the chip.

    Raises:
        NoEstimate: it has no total, or no commands.
    """
    total = sum(map(int, _TOTAL.findall(text)))
    layers: dict[str, LayerCycles] = {}
    for command in _COMMAND.finditer(text):
        label, number = command["label"].rpartition("_")[::2]
        operation, tensor = lines.get(int(number) if number.isdecimal() else -1, (f"tpu.{label}", ""))
        new: LayerCycles = {"operation": operation, "tensor": tensor, "compute": 0, "transfer": 0}
        layer = layers.setdefault(command["label"], new)
        cycles = int(command["cycles"])
        if command["transfer"]:
            layer["transfer"] += cycles
        else:
            layer["compute"] += cycles
    if not total or not layers:
        raise NoEstimate("the profile of the compiler has no cycles")
    return {
        "total": total,
        "compute": sum(layer["compute"] for layer in layers.values()),
        "transfer": sum(layer["transfer"] for layer in layers.values()),
        "megahertz": MEGAHERTZ[chip],
        "milliseconds": round(total / MEGAHERTZ[chip] / 1000, 6),
        "layers": list(layers.values()),
    }


def describe_estimate(estimate: CycleEstimate) -> str:
    """Return one line: "estimate of the compiler: 13,443 cycles, 0.013 ms at 1000 MHz, not measured on a device"."""
    time = f"{estimate['milliseconds']:.3g} ms at {estimate['megahertz']} MHz"
    return f"estimate of the compiler: {estimate['total']:,} cycles, {time}, not measured on a device"


def estimate_section(estimate: CycleEstimate) -> str:
    """Return the section of README.md: the total, and the operations with the most cycles."""
    largest = sorted(estimate["layers"], key=lambda layer: -layer["compute"] - layer["transfer"])[:_MOST_ROWS]
    rows = "".join(
        f"| {layer['operation'].removeprefix('tpu.')} | {table_code_span(layer['tensor'])} | {layer['compute']:,} | "
        f"{layer['transfer']:,} |\n"
        for layer in largest
    )
    others = len(estimate["layers"]) - len(largest)
    left = f"\n{others} more operations are in `proof.json`.\n" if others else ""
    text = describe_estimate(estimate)
    return f"""
## Cycles

{text[0].upper()}{text[1:]}. One engine computes while the other transfers, so that the sum of all operations is larger.

| operation | first result | compute | transfer |
|---|---|---|---|
{rows}{left}"""


def _first(results: Sequence[Mapping[str, Any]]) -> str:
    return str(results[0]["name"]) if results else ""
