"""Write tables into README.md and pages of docs: ``python -m tools.pages.readme_tables [--check]``.

The tables of supported formats and chips are derived from the converter registries and the operator definitions, the
table of conversion options from their declarations, the table of heads from their classes. With ``--check`` nothing is
written, and the exit code is 1 if a file is out of date.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import tpuconvert.optimizer.quantize  # noqa: F401  registers the lowerings
from tools.pages.generated_file import replace_section
from tpuconvert.conversion.options.options import GROUP_OF, OPTIONS, declaration, default_of
from tpuconvert.frontends.registry import FORMATS, registry
from tpuconvert.operators.tables import source_operators, tpu_operators
from tpuconvert.optimizer.quantize.lowering.lowering import find_lowering
from tpuconvert.option_declaration import flags_of
from tpuconvert.outputs.head import DetectorHead, all_heads
from tpuconvert.schema.definition.op import OpKind, all_ops
from tpuconvert.schema.types import Chip, DType

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
COMMAND_LINE = ROOT / "docs" / "command-line.md"
DRAWING = ROOT / "docs" / "drawing.md"
FILES = {
    "onnx": "`.onnx`, external data included",
    "tflite": "`.tflite`, float and quantized",
    "caffe": "`.prototxt` and `.caffemodel`, V1 layers included",
}
NAMES = {"onnx": "ONNX", "tflite": "TFLite", "caffe": "Caffe"}


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
    README: {"formats": formats_table, "chips": chips_table},
    COMMAND_LINE: {"options": options_table},
    DRAWING: {"heads": heads_table},
}


def update_tables(path: Path) -> str:
    """Return the text of a file with regenerated tables."""
    text = path.read_text(encoding="utf-8")
    for name, make_table in TABLES[path].items():
        text = replace_section(path, text, name, "tools.pages.readme_tables", make_table())
    return text


def main(arguments: list[str]) -> int:
    """Write or check the tables. Return 1 if ``--check`` finds a stale file."""
    stale = [path for path in TABLES if path.read_text(encoding="utf-8") != update_tables(path)]
    for path in stale:
        if arguments == ["--check"]:
            print(f"{path.name} is out of date: run python -m tools.pages.readme_tables", file=sys.stderr)
        else:
            path.write_text(update_tables(path), encoding="utf-8")
    return int(arguments == ["--check"] and bool(stale))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
