"""Write docs/supported-operators.md: ``python -m tools.pages.supported_operators [--check]``.

The page lists the registered converters, as ``tpuconvert ops --format`` does. With ``--check`` nothing is written, and
the exit code is 1 if the page is stale.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tpuconvert.frontends.registry import FORMATS
from tpuconvert.operators.tables import refused_operators, source_operators

COMMAND = "python -m tools.pages.supported_operators"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "supported-operators.md"
NAMES = {"onnx": "ONNX", "tflite": "TFLite", "caffe": "Caffe"}
VERSIONS = {"onnx": "opsets", "tflite": "versions", "caffe": ""}
"""Heading of the version column; Caffe has none."""

INTRODUCTION = f"""# Supported operators

<!-- made by {COMMAND} from the registered converters -->

The output of `tpuconvert ops --format onnx` (`tflite`, `caffe`). Each row is a range of versions with one meaning. The
third column states what an operator becomes:

- **direct**: in its usual form one TPU operator, with casts and reshapes around it;
- **decomposed**: several TPU operators;
- **folded**: nothing; it is evaluated at conversion time;
- **host**: an operator that runs on the host;
- **refused**: it is not supported.

Nodes that depend only on shapes and constants are evaluated at conversion time; their results count as constants.
`tpuconvert check MODEL` reports all problems of one model.
"""


def page() -> str:
    """Return the page as Markdown."""
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
    """Write or check the page; return 1 if ``--check`` finds it stale."""
    text = page()
    is_stale = not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != text
    if arguments == ["--check"]:
        if is_stale:
            print(f"{PAGE.name} is out of date: run {COMMAND}", file=sys.stderr)
        return int(is_stale)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
