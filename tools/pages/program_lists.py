"""Write the lists of programs and helpers, from their docstrings: ``python -m tools.pages.program_lists [--check]``.

``tools/README.md`` has a line per program, ``tests/support/README.md`` a line per module. With ``--check`` nothing is
written; the exit code is 1 when a list is out of date.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMMAND = "python -m tools.pages.program_lists"
TOOLS = """\
# Programs for the development

Run them in the folder of the checkout, such as `python -m tools.pages.api_page --check`; most have `--help`. Modules
without a line are parts of these programs.
"""
SUPPORT = """\
# Helpers of the tests

Tests import them from here, such as `from tests.support.onnx.models import model`. What only one test file needs is in
that file.
"""


def summary(path: Path) -> str:
    """Return the first line of the docstring, without the command that may follow it."""
    content = path.read_text(encoding="utf-8")
    if path.suffix == ".sh":
        return content.split("\n")[1].removeprefix("# ")
    text = ast.get_docstring(ast.parse(content)) or ""
    line = re.sub(r": ``(?:\S*/)?python -m [^`]*``(?:, ``[^`]*``)*\.?$", ".", text.split("\n")[0])
    if not line.endswith((".", ":")):
        raise SystemExit(f"{path}: expected a sentence in the first line of the docstring, found {line!r}")
    return line.replace("``", "`")


def command(path: Path) -> str:
    """Return the command that starts a program."""
    if path.suffix == ".sh":
        return path.relative_to(ROOT).as_posix()
    return "python -m " + ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__")


def is_program(path: Path) -> bool:
    """Return True if Python runs something when it is given the module."""
    return path.suffix == ".sh" or '\nif __name__ == "__main__":' in path.read_text(encoding="utf-8")


def is_helper(path: Path) -> bool:
    """Return True if tests import the module."""
    return path.name != "__init__.py"


def rooms(folder: Path, is_listed: Callable[[Path], bool]) -> Iterator[tuple[Path, list[Path]]]:
    """Yield every folder with listed modules, and these in alphabetical order."""
    for room in (folder, *sorted(path for path in folder.rglob("*") if path.is_dir())):
        listed = [path for path in sorted(room.glob("*.*")) if path.suffix in (".py", ".sh") and is_listed(path)]
        if listed:
            yield room, listed


def page(head: str, folder: Path, is_listed: Callable[[Path], bool], name: Callable[[Path], str], kind: str) -> str:
    """Return a page with a table per folder."""
    lines = [*head.splitlines(), "", f"<!-- made by {COMMAND} from the docstrings -->"]
    for room, listed in rooms(folder, is_listed):
        if room != folder:
            lines += ["", f"## {room.relative_to(folder).as_posix()}", "", summary(room / "__init__.py")]
        lines += ["", f"| {kind} | purpose |", "|---|---|"]
        lines += [f"| `{name(path)}` | {summary(path)} |" for path in listed]
    return "\n".join(lines) + "\n"


def lists() -> dict[Path, str]:
    """Return the text of every list, by its path in the repository."""
    tools, support = ROOT / "tools", ROOT / "tests" / "support"
    return {
        Path("tools", "README.md"): page(TOOLS, tools, is_program, command, "command"),
        Path("tests", "support", "README.md"): page(SUPPORT, support, is_helper, lambda path: path.name, "module"),
    }


def main() -> int:
    """Write or check the lists. Return 1 if one is out of date."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 when a list is out of date")
    is_check = parser.parse_args().check
    stale = [path for path, text in lists().items() if not _is_equal(ROOT / path, text)]
    if is_check and stale:
        print(f"{', '.join(map(str, stale))}: out of date, run {COMMAND}", file=sys.stderr)
    elif not is_check:
        for path in stale:
            (ROOT / path).write_text(lists()[path], encoding="utf-8")
    return int(is_check and bool(stale))


def _is_equal(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main())
