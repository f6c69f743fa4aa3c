"""Colors of errors on terminals. A file, a pipe and a terminal without colors get the same bytes as before."""

from __future__ import annotations

import os
import re
import sys
from typing import TextIO

from tpuconvert.cli.terminal import echo
from tpuconvert.schema.visible_text import for_log

RED, DIM, PLAIN = "\x1b[1;31m", "\x1b[2m", "\x1b[0m"


def has_colors(stream: TextIO | None) -> bool:
    """Return True if a stream is a terminal with colors; NO_COLOR and TERM=dumb switch them off."""
    if stream is None or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def echo_error(text: str) -> None:
    """Print the text of an error on stderr; on a terminal, its id is red and its hint is dim."""
    if not has_colors(sys.stderr):
        echo(text, err=True)
        return
    first, *hints = for_log(text).splitlines()  # control sequences in names are escaped before the colors are added
    first = re.sub(r"^error\[\w+\]:", lambda found: f"{RED}{found.group()}{PLAIN}", first)
    sys.stderr.write("\n".join([first, *(f"{DIM}{hint}{PLAIN}" for hint in hints)]) + "\n")
    sys.stderr.flush()
