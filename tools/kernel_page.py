"""Write docs/kernels.md, the table of kernels: ``python tools/kernel_page.py [--check]``.

The rows are the matchers of ``runtime/native`` and the kernels that the compiled extension lists. With ``--check``
nothing is written; the exit code is 1 when the page is out of date.
"""

from __future__ import annotations

import sys
from pathlib import Path

from generated_file import write_or_check

from tpuconvert.runtime.native.groups import MatcherEntry, matchers
from tpuconvert.runtime.native.loader import kernels, native

PAGE = Path(__file__).resolve().parent.parent / "docs" / "kernels.md"
ISAS = ("scalar", "avx2", "avxvnni", "avx512vnni", "neon", "dotprod", "i8mm")
HEADER = """\
# Kernels of the native engine

Made by `tools/kernel_page.py` from the matchers in `runtime/native` and from the kernels in `runtime/kernels`.
[engine.md](engine.md) explains how they work together. What no matcher takes runs its NumPy reference.

## Matchers

A matcher takes a node and the nodes before it that one step can compute. The columns are the operators that such a
group ends with, the types of its operands, the kernels that compute it, and the conditions. The matchers of an operator
are tried from the highest priority down.
"""
KERNELS = """
## Instruction sets

x86-64 has the instruction sets avx2, avxvnni and avx512vnni; AArch64 has neon, dotprod and i8mm. An instruction set
without an implementation of its own runs the next one of the same architecture to the left, or the scalar one.
"""


def page() -> str:
    """Return the text of the page."""
    rows = [_matcher_row(entry) for entry in matchers()]
    lines = [HEADER, "| operators | types | kernels | conditions | priority |", "|---|---|---|---|---|", *rows, KERNELS]
    lines += [f"| kernel | {' | '.join(ISAS)} |", "|---|" + "---|" * len(ISAS)]
    on_arm = kernels("aarch64")
    for name, isas in sorted(kernels("x86_64").items()):
        marks = " | ".join("x" if isa in (*isas, *on_arm[name]) else "" for isa in ISAS)
        lines.append(f"| `{name}` | {marks} |")
    return "\n".join(lines) + "\n"


def _matcher_row(entry: MatcherEntry) -> str:
    operators = ", ".join(f"`{name}`" for name in dict.fromkeys(entry.operators))
    names = ", ".join(f"`{name}`" for name in entry.kernels)
    return f"| {operators} | {entry.dtypes} | {names} | {entry.conditions} | {entry.priority} |"


if __name__ == "__main__":
    native()  # the list of kernels comes from the compiled extension
    description = (__doc__ or "").split(":")[0]
    sys.exit(write_or_check(PAGE, lambda: page().encode(), tool="kernel_page.py", description=description))
