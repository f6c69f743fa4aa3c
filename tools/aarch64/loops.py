"""Inner loops of compiled functions: their instructions, counted by kind."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tools.aarch64.environment import REPOSITORY, build_folder

MULTIPLICATIONS = {
    "sdot": 16,
    "udot": 16,
    "usdot": 16,
    "smmla": 32,
    "usmmla": 32,
    "smlal": 4,
    "smlal2": 4,
    "smull": 4,
    "smull2": 4,
    "fmla": 4,
    "fmul": 4,
}
"""Products of one vector instruction, for the element types of the kernels: bytes, 16-bit words and float32."""
_VECTOR = re.compile(r"\bv\d+\.|\bq\d+\b")
_LABEL = re.compile(r"^(\.L\w+):")
_BRANCH = re.compile(r"^\s+(?:b\.?\w+|cbn?z|tbn?z)\s.*?(\.L\w+)\s*$")
_CALL = re.compile(r"^\s+bl\s")
_NO_INSTRUCTION = re.compile(r"^\s*(\.|//|$|#)|:\s*$")


@dataclass(frozen=True)
class Loop:
    """Instructions of one iteration, in assembler text."""

    lines: tuple[str, ...]

    @property
    def names(self) -> Counter[str]:
        """Number of instructions by mnemonic."""
        return Counter(line.split()[0] for line in self.lines)

    def count(self, *prefixes: str) -> int:
        """Number of instructions whose mnemonic begins with one of the prefixes."""
        return sum(number for name, number in self.names.items() if name.startswith(prefixes))

    @property
    def vector_instructions(self) -> int:
        """Number of instructions with an operand in a vector register."""
        return sum(_VECTOR.search(line) is not None for line in self.lines)

    @property
    def products(self) -> int:
        """Multiplications of an iteration."""
        return sum(MULTIPLICATIONS.get(name, 0) * number for name, number in self.names.items())


@cache
def assembler(source: str) -> str:
    """Assembler text of a source file, compiled as in the build of the extension.

    Raises:
        RuntimeError: if the build does not compile this file.
    """
    file = REPOSITORY / "runtime" / "kernels" / source
    for entry in json.loads((build_folder() / "compile_commands.json").read_text(encoding="utf-8")):
        if Path(entry["file"]) != file:
            continue
        words = [word for word in shlex.split(entry["command"]) if Path(word).name != "ccache"]
        target = words.index("-o")
        words[target + 1] = "-"
        words[words.index("-c")] = "-S"
        return subprocess.run(words, check=True, capture_output=True, text=True, cwd=entry["directory"]).stdout
    raise RuntimeError(f"the build for AArch64 does not compile {source}")


def functions(text: str) -> dict[str, list[str]]:
    """Lines of each function, by its demangled name."""
    lines_of: dict[str, list[str]] = {}
    name = ""
    for line in text.splitlines():
        start = re.match(r"^(_Z[\w.]+):", line)
        if start:
            name = start[1]
            lines_of[name] = []
        elif name:
            lines_of[name].append(line)
    demangled = subprocess.run(["c++filt", *lines_of], check=True, capture_output=True, text=True).stdout.splitlines()
    return dict(zip(demangled, lines_of.values(), strict=True))


def innermost_loops(lines: list[str]) -> list[Loop]:
    """Loops without a loop inside, in the order of the text.

    A backward branch around a call of a function, such as ``memcpy`` for the last elements, is not an inner loop.
    """
    places = {match[1]: index for index, line in enumerate(lines) if (match := _LABEL.match(line))}
    spans = []
    for index, line in enumerate(lines):
        branch = _BRANCH.match(line)
        if branch and places.get(branch[1], index) < index:
            spans.append((places[branch[1]], index))
    inner = [
        a
        for a in spans
        if not any(b != a and a[0] <= b[0] and b[1] <= a[1] for b in spans)
        and not any(_CALL.match(line) for line in lines[a[0] : a[1]])
    ]
    return [
        Loop(tuple(line.strip() for line in lines[first : last + 1] if not _NO_INSTRUCTION.search(line)))
        for first, last in inner
    ]


def loops_of(source: str, function: str) -> list[Loop]:
    """Innermost loops of a function.

    Args:
        source: file below ``runtime/kernels``.
        function: part of the demangled name; the first function that contains it is taken.

    Raises:
        RuntimeError: if there is no such function, or if it has no loop.
    """
    named = [lines for name, lines in functions(assembler(source)).items() if function in name]
    loops = innermost_loops(named[0]) if named else []
    if not loops:
        raise RuntimeError(f"{source} has no function {function} with a loop")
    return loops


def main_loop(source: str, function: str) -> Loop:
    """Innermost loop with the most multiplications, or with the most instructions if there are none.

    The arguments and errors are the same as for ``loops_of``.
    """
    return max(loops_of(source, function), key=lambda loop: (loop.products, len(loop.lines)))


def widest_loop(source: str, function: str) -> Loop:
    """Innermost loop with the most vector instructions. The arguments and errors are the same as for ``loops_of``."""
    return max(loops_of(source, function), key=lambda loop: loop.vector_instructions)
