"""Write the tables of options and heads into their pages: ``python -m tools.pages.option_tables [--check]``.

The table of conversion options is derived from their declarations, the table of heads from their classes. With
``--check`` nothing is written, and the exit code is 1 if a page is out of date.
"""

import sys
from collections.abc import Callable
from pathlib import Path

from tools.pages.generated_file import replace_section
from tpuconvert.conversion.options.options import GROUP_OF, OPTIONS, declaration, default_of
from tpuconvert.option_declaration import flags_of
from tpuconvert.outputs.head import DetectorHead, all_heads
from tpuconvert.schema.types import Chip

ROOT = Path(__file__).resolve().parents[2]
COMMAND_LINE = ROOT / "docs" / "reference" / "commands.md"
DRAWING = ROOT / "docs" / "guides" / "evaluation.md"


def options_table() -> list[str]:
    """Return one row per option of a conversion."""
    rows = ["| option | key | in Python | default | |", "|---|---|---|---|---|"]
    for name in OPTIONS:
        default = default_of(name)
        shown = default.value.lower() if isinstance(default, Chip) else str(default).lower()
        argument = f"{GROUP_OF[name].__name__}({name}=...)" if name in GROUP_OF else f"{name}=..."
        about = declaration(name).help.replace("``", "`")
        cell = "" if default in (None, (), {}) else f"`{shown}`"
        rows.append(f"| `{flags_of(OPTIONS[name])}` | `{name}` | `{argument}` | {cell} | {about} |")
    return rows


def heads_table() -> list[str]:
    """Return one row per head."""
    rows = ["| `--decode` | finds | outputs | recognized |", "| --- | --- | --- | --- |"]
    for head in all_heads():
        kind = "boxes" if isinstance(head, DetectorHead) else ""
        rows.append(f"| `{head.name}` | {kind} | {(head.__doc__ or '').removesuffix('.')} | {head.recognized} |")
    return rows


TABLES: dict[Path, dict[str, Callable[[], list[str]]]] = {
    COMMAND_LINE: {"options": options_table},
    DRAWING: {"heads": heads_table},
}


def update_tables(path: Path) -> str:
    """Return the text of a file with regenerated tables."""
    text = path.read_text(encoding="utf-8")
    for name, make_table in TABLES[path].items():
        text = replace_section(path, text, name, "tools.pages.option_tables", make_table())
    return text


def main(arguments: list[str]) -> int:
    """Write or check the tables. Return 1 if ``--check`` finds a stale file."""
    stale = [path for path in TABLES if path.read_text(encoding="utf-8") != update_tables(path)]
    for path in stale:
        if arguments == ["--check"]:
            print(f"{path.name} is out of date: run python -m tools.pages.option_tables", file=sys.stderr)
        else:
            path.write_text(update_tables(path), encoding="utf-8")
    return int(arguments == ["--check"] and bool(stale))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
