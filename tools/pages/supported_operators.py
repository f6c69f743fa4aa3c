"""Write docs/reference/supported-operators.md: ``python -m tools.pages.supported_operators [--check]``.

The page lists the source formats, the chips, and the registered converters, as ``tpuconvert ops --format`` does. With
``--check`` nothing is written, and the exit code is 1 if the page is stale.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tpuconvert.optimizer.quantize  # noqa: F401  registers the lowerings
from tpuconvert.frontends.registry import FORMATS, registry
from tpuconvert.operators.tables import refused_operators, source_operators, tpu_operators
from tpuconvert.optimizer.quantize.lowering.lowering import find_lowering
from tpuconvert.schema.definition.op import OpKind, all_ops
from tpuconvert.schema.types import Chip, DType

COMMAND = "python -m tools.pages.supported_operators"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "supported-operators.md"
FILES = {
    "onnx": "`.onnx`, external data included",
    "tflite": "`.tflite`, float and quantized",
    "caffe": "`.prototxt` and `.caffemodel`, V1 layers included",
}
NAMES = {"onnx": "ONNX", "tflite": "TFLite", "caffe": "Caffe"}
VERSIONS = {"onnx": "opsets", "tflite": "versions", "caffe": ""}
"""Heading of the version column; Caffe has none."""

INTRODUCTION = f"""# Supported operators

<!-- made by {COMMAND} from the registered converters -->
"""

LIST = """## Source operators

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
    heads = [INTRODUCTION, "## Formats", "", *formats_table(), "", "## Chips", "", *chips_table(), "", LIST]
    return "\n".join([*heads, *(line for name in FORMATS for line in _section(name))]).rstrip("\n") + "\n"


def formats_table() -> list[str]:
    """Return one row per source format."""
    rows = ["| format | files | operators |", "|---|---|---|"]
    for name in FORMATS:
        count = len(source_operators(name))
        newest = max((entry.since for entry in registry(name).entries()), default=0)
        versions = f", meanings up to opset {newest}" if name == "onnx" else ""
        rows.append(f"| {NAMES[name]} | {FILES[name]} | {count}{versions} |")
    return rows


def chips_table() -> list[str]:
    """Return one row per chip."""
    rows = ["| chip | TPU operators | data types of `conv` | `matrix_mul` | integer forms |", "|---|---|---|---|---|"]
    for chip in Chip:
        key = chip.value.lower()
        count = sum(1 for row in tpu_operators(key) if row["kind"] == OpKind.TPU.value)
        types = {row["operator"]: _short(row[key]) for row in tpu_operators(key)}
        products = [types.get(name, "-") for name in ("conv", "matrix_mul")]
        integer = sum(find_lowering(op, chip) is not None for op in all_ops().values())
        rows.append(f"| {chip.value} | {count} | {' | '.join(products)} | {integer or 'none'} |")
    hosts = sum(1 for definition in all_ops().values() if definition.kind is OpKind.HOST)
    return [*rows, "", f"Operators that run on the host: {hosts}."] if hosts else rows


def _short(types: list[str]) -> str:
    return ", ".join(name.rstrip("*") for name in types if name.rstrip("*") in DType.__members__)


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
