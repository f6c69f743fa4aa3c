"""Write the table of kernels into docs/inside/kernels.md: ``python -m tools.pages.kernel_page [--check]``.

The rows are the matchers of ``runtime/native/matchers`` and the kernels that the compiled extension lists. With
``--check`` nothing is written; the exit code is 1 when the page is out of date.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from tools.pages.generated_file import replace_part, write_or_check
from tpuconvert.runtime.native.builder.loader import kernels, native
from tpuconvert.runtime.native.matchers.matcher import MatcherEntry, matchers
from tpuconvert.schema.definition.op import Op, OpKind, all_ops
from tpuconvert.schema.graph.control_flow import ControlFlowOp

PAGE = Path(__file__).resolve().parents[2] / "docs" / "inside" / "kernels.md"
ISAS = ("scalar", "avx2", "avxvnni", "avx512vnni", "amx", "neon", "dotprod", "i8mm")
HEADER = """\
# Kernels of the native engine

Made by `python -m tools.pages.kernel_page` from the matchers in `runtime/native/matchers` and from the kernels in
`runtime/kernels`. [Native engine](engine.md) explains how they work together. What no matcher takes runs its NumPy
reference. Matchers with priority -1 also take single nodes for which the kernel of another matcher declined.

## Matchers

A matcher takes a node and the nodes before it that one step can compute. The columns are the operators that such a
group ends with, the types of its operands, the kernels that compute it, and the conditions. The matchers of an operator
are tried from the highest priority down.
"""
WITHOUT = """
## Operators without a kernel

These run their NumPy reference. [Nodes without a kernel](#nodes-without-a-kernel) lists the nodes of real models.

| operators | reason |
|---|---|
"""
SMALL = frozenset({"gru_cell", "lstm_cell"})
DATA_DEPENDENT = frozenset(
    {"batch_to_space_v2", "extract_v2", "host_expand", "host_multiclass_nms", "host_pad", "host_slice", "masked_select"}
    | {"nms", "nms_v2", "pad_v2", "proposals", "reshape_v2", "sequence_gen", "space_to_batch_v2", "tile_v2", "where"}
)
REASONS: dict[str, Callable[[type[Op]], bool]] = {
    "atomic operations for hand-written graphs, which no conversion creates": lambda op: op.kind is OpKind.ATOMIC,
    "the extents of their results depend on data": lambda op: op.name in DATA_DEPENDENT,
    "composites with little work: one step of a cell": lambda op: op.name in SMALL,
    "composites of symbolic extents, which are expanded when the extents are known": (
        lambda op: op.kind is OpKind.COMPOSITE
    ),
    "their bodies are graphs with plans of their own": lambda op: issubclass(op, ControlFlowOp),
    "they call a function of a plugin": lambda op: op.kind is OpKind.CUSTOM or op.name == "customed_ops",
    "functions on the host, which are rare in networks": lambda op: op.kind is OpKind.HOST,
    "a few numbers computed from extents": lambda op: op.name in ("hw_avg", "hw_mul"),
}
"""Reason -> condition on the operator; the first one that applies is listed."""
KERNELS = """
## Instruction sets

x86-64 has the instruction sets avx2, avxvnni, avx512vnni and amx; AArch64 has neon, dotprod and i8mm. An instruction
set without an implementation of its own runs the next one of the same architecture to the left, or the scalar one.
"""


def page() -> str:
    """Return the text of the page."""
    rows = [_matcher_row(entry) for entry in matchers()]
    lines = [HEADER, "| operators | types | kernels | conditions | priority |", "|---|---|---|---|---|", *rows]
    lines += [WITHOUT + "\n".join(_rows_without_kernels()), KERNELS]
    lines += [f"| kernel | {' | '.join(ISAS)} |", "|---|" + "---|" * len(ISAS)]
    on_arm = kernels("aarch64")
    for name, isas in sorted(kernels("x86_64").items()):
        marks = " | ".join("x" if isa in (*isas, *on_arm[name]) else "" for isa in ISAS)
        lines.append(f"| `{name}` | {marks} |")
    return "\n".join(lines) + "\n"


def _rows_without_kernels() -> list[str]:
    """Return one row per reason, with the operators that no matcher takes.

    Raises:
        SystemExit: an operator has neither a matcher nor a reason.
    """
    taken = {name for entry in matchers() for name in entry.operators}
    names_by_reason: dict[str, list[str]] = {reason: [] for reason in REASONS}
    for name, op in sorted(all_ops().items()):
        if name in taken:
            continue
        reason = next((reason for reason, applies in REASONS.items() if applies(op)), None)
        if reason is None:
            sys.exit(f"{name} has no kernel: write one, or add a reason to tools/pages/kernel_page.py")
        names_by_reason[reason].append(name)
    return [
        f"| {', '.join(f'`{name}`' for name in names)} | {reason} |"
        for reason, names in names_by_reason.items()
        if names
    ]


def _matcher_row(entry: MatcherEntry) -> str:
    operators = ", ".join(f"`{name}`" for name in dict.fromkeys(entry.operators))
    names = ", ".join(f"`{name}`" for name in entry.kernels)
    return f"| {operators} | {entry.dtypes} | {names} | {entry.conditions} | {entry.priority} |"


def part() -> bytes:
    """Return the page with this section."""
    return replace_part(PAGE, "kernels", "tools.pages.kernel_page", page()).encode()


if __name__ == "__main__":
    native()  # the list of kernels comes from the compiled extension
    description = (__doc__ or "").split(":")[0]
    sys.exit(write_or_check(PAGE, part, tool="tools.pages.kernel_page", description=description))
