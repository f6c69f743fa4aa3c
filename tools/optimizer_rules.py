"""Writes down which rules there are and where each may start, so that a conversion loads only those it may need.

    python tools/optimizer_rules.py [--check]

Rules register themselves when their modules are imported. This imports all of them and asks their patterns.
"""

from __future__ import annotations

import importlib
import sys
import textwrap
from pathlib import Path
from unittest import mock

from generated_file import write_or_check

from tpuconvert.optimizer.pattern import Sketch
from tpuconvert.optimizer.registry import PACKAGE, load_rules, registered
from tpuconvert.optimizer.rules._table import RULES

PLACES = Path(__file__).resolve().parent.parent / "optimizer" / "rules" / "_table.py"
COMMAND = ".venv/bin/python tools/optimizer_rules.py"
HEAD = f'''"""Rule -> its stage, its module, and sketches of its patterns, as ``optimizer.pattern`` has them.

Made by: {COMMAND}
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tpuconvert.optimizer.pattern import Sketch

# fmt: off
RULES: dict[str, tuple[str, str, tuple[Sketch, ...]]] = {{
'''
WIDTH = 120


def found() -> dict[str, tuple[str, str, tuple[Sketch, ...]]]:
    """A row for every rule. The table that is there has no say in it: a rule may have moved to another module."""
    with mock.patch.dict(RULES, clear=True):
        importlib.import_module(f"{PACKAGE}.quantize")
        load_rules()
    return {
        item.name: (item.stage, item.apply.__module__.removeprefix(f"{PACKAGE}."), item.sketches)
        for item in registered()
    }


def text() -> str:
    """The module that holds the table."""
    return HEAD + "".join(map(_row, found().items())) + "}\n"


def _row(entry: tuple[str, tuple[str, str, tuple[Sketch, ...]]]) -> str:
    name, (stage, module, sketches) = entry
    wrapper = textwrap.TextWrapper(WIDTH, initial_indent=" " * 8, subsequent_indent=" " * 12)
    lines = [wrapper.fill(f"{sketch!r},").replace("'", '"') + "\n" for sketch in sketches]
    return f'    "{name}": ("{stage}", "{module}", (\n' + "".join(lines) + "    )),\n"


def main() -> int:
    """Write the table, or look whether it is as it was written."""
    description = (__doc__ or "").splitlines()[0]
    return write_or_check(PLACES, lambda: text().encode(), tool=Path(__file__).name, description=description)


if __name__ == "__main__":
    sys.exit(main())
