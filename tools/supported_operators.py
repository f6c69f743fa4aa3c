"""Write docs/supported-operators.md: ``python tools/supported_operators.py [--check]``.

The page lists what is registered as converters, as ``tpuconvert ops --format`` prints it. With ``--check`` nothing is
written, and the exit code says whether the page is up to date.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tpuconvert.frontends.registry import FORMATS
from tpuconvert.report.operator_tables import refused_operators, source_operators

COMMAND = "python tools/supported_operators.py"
PAGE = Path(__file__).resolve().parent.parent / "docs" / "supported-operators.md"
NAMES = {"onnx": "ONNX", "tflite": "TFLite", "caffe": "Caffe"}
VERSIONS = {"onnx": "opsets", "tflite": "versions", "caffe": ""}
"""Heading of the column; Caffe has no versions."""

INTRODUCTION = f"""# Supported operators

<!-- made by {COMMAND} from the registered converters -->

What `tpuconvert ops --format onnx` (`tflite`, `caffe`) prints. One range of versions stands for one meaning that an
operator has there; an operator becomes

- **direct**: in its usual form one operator of the chip's set, with casts and changes of the shape around it;
- **decomposed**: several of them;
- **folded**: nothing, it is resolved when the model is converted;
- **host**: an operator that the chips leave to the host;
- **refused**: nothing, a model that has it cannot be converted.

Whatever depends on shapes and constants alone is computed when the model is converted, also where the table asks for a
constant. `tpuconvert check MODEL` tells everything about one model.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([INTRODUCTION, *(line for name in FORMATS for line in _section(name))]).rstrip("\n") + "\n"


def _section(name: str) -> Iterator[str]:
    rows, refused = source_operators(name), refused_operators(name)
    yield from (f"## {NAMES[name]}", "", f"{len(rows)} operators.", "")
    for domain in sorted({row["domain"] for row in rows}):
        if domain:
            yield from (f"### {domain}", "")
        titles = ["operator", *filter(None, [VERSIONS[name]]), "becomes", "limits"]
        yield from (f"| {' | '.join(titles)} |", "|---" * len(titles) + "|")
        yield from (_line(row, bool(VERSIONS[name])) for row in rows if row["domain"] == domain)
        yield ""
    if refused:
        yield from ("### Refused", "", "| operator | why |", "|---|---|")
        yield from (f"| {row['operator']} | {row['limits']} |" for row in refused)
        yield ""


def _line(row: dict[str, Any], has_versions: bool) -> str:
    cells = [row["operator"], *([", ".join(row["versions"])] if has_versions else []), row["kind"], row["limits"]]
    return f"| {' | '.join(cells)} |"


def main(arguments: list[str]) -> int:
    """Write or check the page; 1 when ``--check`` finds it out of date."""
    wanted = page()
    is_stale = not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != wanted
    if arguments == ["--check"]:
        if is_stale:
            print(f"{PAGE.name} is out of date: run {COMMAND}", file=sys.stderr)
        return int(is_stale)
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
