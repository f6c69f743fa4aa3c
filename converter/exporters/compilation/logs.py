"""Reason of a failure in a log of the vendor's programs."""

from __future__ import annotations

import re
from pathlib import Path

from tpuconvert.exporters.compilation.processes import COMMAND
from tpuconvert.schema.text.visible_text import one_line
from tpuconvert.text.text_format import shorten

_REASONS = re.compile(rb"assert|error:|what\(\)|not supported|unsupported|unimplemented", re.IGNORECASE)
"""Lines of the log that name the reason of an abort."""

_FRAME = re.compile(rb"\((\w+)\+0x[0-9a-f]+\)")
"""A named function in a backtrace of the log."""

_TAIL_BYTES = 1 << 18
"""Bytes at the end of the log that are searched for the reason."""

_LONGEST = 240
"""Characters of a message of the log."""

MOST_FRAMES = 4
"""Functions of a backtrace that are named: the functions of the abort itself come first."""


def reason_in_log(log: Path) -> str:
    """Return the last message of a log that names a reason, and the innermost named functions of a backtrace."""
    with open(log, "rb") as file:
        file.seek(max(0, file.seek(0, 2) - _TAIL_BYTES))
        text = file.read()
    text = text[text.rfind(f"\n{COMMAND}".encode()) + 1 :]  # of the last command
    lines = [line for line in text.splitlines()[1:] if _REASONS.search(line)]
    frames = list(dict.fromkeys(match[1].decode() for match in _FRAME.finditer(text) if match[1][:2] != b"__"))
    message = shorten(one_line(lines[-1].decode("utf-8", "replace").strip()), _LONGEST) if lines else ""
    functions = f"in {' < '.join(frames[:MOST_FRAMES])}" if frames else ""
    return " ".join(filter(None, [message, functions]))
