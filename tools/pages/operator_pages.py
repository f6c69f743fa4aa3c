"""Write the pages of the operators: ``python -m tools.pages.operator_pages [--check]``.

``docs/reference/operators/`` gets one page per operator and an index, generated from the definitions.
``converter/report/operator_notes.json`` gets information that is not in a definition: the family, the meanings of the
parameters and a worked example, taken from the specification of the operator set in ``tests/support/operators/spec``.
The results of an example are computed by the definition. With ``--check`` nothing is written, and the exit code reports
whether everything is up to date.
"""

from __future__ import annotations

import dataclasses
import json
import re
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.operators import contract
from tpuconvert.operators.description import DECISION, OTHERS, OperatorDescription, describe, format_value
from tpuconvert.schema.definition.op import Op, OpKind, all_ops
from tpuconvert.schema.graph.legality import Status, check
from tpuconvert.schema.types import Array, Chip, DType, TensorType

ROOT = Path(__file__).resolve().parents[2]
COMMAND = "python -m tools.pages.operator_pages"
NOTES = Path("converter", "report", "operator_notes.json")
PAGES = Path("docs", "reference", "operators")
INDEX = "index.md"
SMALL = 64
"""Largest number of elements of an array that is shown in full. Examples without larger arrays are preferred."""

Entry = dict[str, Any]


def notes() -> dict[str, Entry]:
    """Return the notes of the specification about each operator: family, parameter meanings, example."""
    return {
        entry["name"]: {
            "family": entry["group"],
            "meanings": {item["name"]: DECISION.sub("", item["meaning"]) for item in entry["params"]},
            "example": _example(entry),
        }
        for entry in sorted(contract.defined_entries(), key=lambda entry: str(entry["name"]))
    }


def _example(entry: Entry) -> list[str]:
    """Format one worked example as lines of text, with the results that the definition computes."""
    if not entry["examples"]:
        return []
    example = min(entry["examples"], key=lambda one: _largest(contract, entry, one) > SMALL)
    expected = contract.results(entry, example)
    first = next(iter(expected.values()), None)
    op: Op = contract.build(entry, example["params"], None if first is None else DType.of(first.dtype))
    arrays: list[Array | None] = contract.arguments(entry, example)
    attributes = {item.name: getattr(op, item.name) for item in dataclasses.fields(op)}
    defaults = {item.name: item.default for item in dataclasses.fields(op)}
    changed = [f"{name}={format_value(value)}" for name, value in attributes.items() if value != defaults[name]]
    lines = _wrap(f"{op.name}({', '.join(changed)})")
    for name, item in zip(_operand_names(contract, entry, example), arrays, strict=True):
        lines += [f"{name}: absent"] if item is None else _tensor(name, item)
    results: dict[str, list[str]] = {}
    for chip in _chips(op, arrays, expected, example.get("only_chip")):
        text = []
        for index, item in enumerate(op.evaluate(*arrays, chip=chip)):
            text += _tensor(op.outputs[min(index, len(op.outputs) - 1)].name, item)
        results.setdefault("\n".join(text), []).append(chip.value)
    for text_of_results, chips in results.items():
        everywhere = op.kind is OpKind.HOST or len(chips) == len(Chip)
        lines += ["gives" if everywhere else f"gives on {' and '.join(chips)}", *text_of_results.split("\n")]
    note = example.get("note", "")  # a note with "source" only reports differences of the vendor's results
    return lines + ([f"note: {note}"] if note and "source" not in note else [])


def _operand_names(contract: Any, entry: Entry, example: Entry) -> list[str]:
    """Return the name of every array, in the order of ``contract.arguments``."""
    names = []
    for operand in entry["inputs"]:
        operands = example["inputs"].get(operand["name"])
        names += [str(operand["name"])] * (len(operands) if isinstance(operands, list) else 1)
    return names + list(contract.tensor_parameters(entry))


def _largest(contract: Any, entry: Entry, example: Entry) -> int:
    arrays = [*contract.arguments(entry, example), *contract.results(entry, example).values()]
    lists = [value for value in example["params"].values() if isinstance(value, list)]
    return max([item.size for item in arrays if item is not None] + [len(value) for value in lists], default=0)


def _tensor(name: str, array: Array) -> list[str]:
    """Format name, type and elements. Floats have few digits, so that the text is equal on every machine."""
    text = np.array2string(array, max_line_width=90, precision=5, threshold=SMALL, separator=", ", floatmode="maxprec")
    return [
        f"{name}: {TensorType(DType.of(array.dtype), array.shape)}",
        *(f"    {line}" for line in text.split("\n") if line.strip()),
    ]


def _chips(op: Op, arrays: list[Array | None], expected: dict[str, Array], only: str | None) -> list[Chip]:
    """Return the chips on which the example is legal."""
    constants = {name for support in op.dtypes.values() for case in support.cases for name in case.requires_coeff}
    types = [None if item is None else TensorType(DType.of(item.dtype), item.shape) for item in arrays]
    results = [TensorType(DType.of(item.dtype), item.shape) for item in expected.values()]
    coeffs = [operand.name in constants for operand in op.inputs]
    legal = [chip for chip in Chip if check(op, chip, types, results, coeffs).status is not Status.ILLEGAL]
    return [chip for chip in legal if only is None or chip.value == only]


# --- Markdown ---------------------------------------------------------------------------------------------------------


def page(about: OperatorDescription) -> str:
    """Return the page of one operator."""
    lines = [
        f"# {about.name}",
        "",
        f"<!-- made by {COMMAND} from the definition {about.definition} in {about.module} -->",
        "",
        _mark_code(about.formula),
        "",
        *(line for paragraph in about.details for line in (_link_sections(_mark_code(paragraph)), "")),
        "```text",
        *_wrap(about.signature),
        "```",
        "",
        f"In Python: `from {about.module} import {about.definition}`. "
        f"Family: [{about.family}]({INDEX}#{_anchor(about.family)}).",
        "",
    ]
    lines += _operands(about)
    if about.parameters:
        lines += ["## Parameters", "", "| name | type | default | meaning |", "|---|---|---|---|"]
        for item in about.parameters:
            meaning = "; ".join(part for part in (item.meaning, ", ".join(item.values)) if part)
            default = "required" if item.default is None else f"`{item.default}`"
            lines.append(f"| `{item.name}` | `{_cell(item.type)}` | {default} | {_cell(_mark_code(meaning))} |")
        lines.append("")
    lines += ["## Data types", "", *_chip_lines(about), "", "## Locality", "", about.locality, ""]
    if about.example:
        lines += ["## Example", "", "```text", *about.example, "```", ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _operands(about: OperatorDescription) -> list[str]:
    lines = ["## Operands and results", "", "| name | in the formula | what |", "|---|---|---|"]
    for lead, items in (("", about.operands), ("result, ", about.results)):
        for item in items:
            lines.append(f"| `{item.name}` | {f'`{item.symbol}`' if item.symbol else ''} | {lead}{item.about} |")
    return [*lines, ""]


def _chip_lines(about: OperatorDescription) -> list[str]:
    """Return one list entry per group of chips that accept the same data types."""
    groups: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for chip in about.chips:
        groups.setdefault((chip.notes, chip.cases), []).append(chip.chip)
    lines = []
    for (remarks, cases), chips in groups.items():
        names, said = f"- **{', '.join(chips)}**", _mark_code("; ".join(remarks))
        sentence = f" {said[0].upper()}{said[1:]}." if said else ""
        if not cases:
            lines.append(f"{names}: {said}.")
        elif len(cases) == 1:
            lines.append(f"{names}: {_mark_code(cases[0])}.{sentence}")
        else:
            lines.append(f"{names}{f' ({said})' if said else ''}:")
            lines += [f"    - {_mark_code(case)}" for case in cases]  # Python-Markdown requires an indentation of four
    return lines


def index(descriptions: Iterable[OperatorDescription], families: list[str]) -> str:
    """Return the page that lists all operators by family."""
    every = list(descriptions)
    lines = [
        "# Operators",
        "",
        f"<!-- made by {COMMAND} -->",
        "",
        f"{len(every)} operators, by family. `tpuconvert ops NAME` prints the same in a terminal.",
        "A chip in parentheses: the vendor marks the operator, or one of its data types, as unfinished there; it is",
        "legal with a warning. Of an operator that is expanded, the operators in its place decide.",
        "",
    ]
    for family in families:
        lines += [f"## {family}", "", "| operator | chips | what |", "|---|---|---|"]
        for about in every:
            if about.family == family:
                formula = _cell(_mark_code(about.formula))
                lines.append(f"| [{about.name}]({about.name}.md) | {_chip_names(about)} | {formula} |")
        lines.append("")
    return "\n".join(lines).rstrip("\n") + "\n"


def _chip_names(about: OperatorDescription) -> str:
    if about.kind == OpKind.HOST.value:
        return "host"
    if about.kind == "composite":
        return "expanded"
    names = []
    for chip in about.chips:
        if chip.supported:
            unfinished = any("unfinished" in note for note in chip.notes)
            names.append(f"({chip.chip})" if unfinished else chip.chip)
    return ", ".join(names) or "none"


def _mark_code(text: str) -> str:
    """Convert docstring text to Markdown: double backticks become code, other special characters are escaped."""
    parts = text.split("``")
    return "".join(f"`{part}`" if i % 2 else _escape(part) for i, part in enumerate(parts))


def _link_sections(text: str) -> str:
    """Turn citations of ``docs/inside/semantics.md`` into links."""
    return re.sub(r"docs/inside/semantics\.md, section (\d+)(?:\.(\d+))?", _section_link, text)


def _section_link(citation: re.Match[str]) -> str:
    numbers = [number for number in citation.groups() if number]
    return f"[semantics, section {'.'.join(numbers)}](../../inside/semantics.md#section-{'.'.join(numbers)})"


def _escape(text: str) -> str:
    """Escape asterisks next to a word, underscores at its ends, and angle brackets, which Markdown would interpret."""
    return re.sub(r"(?<=\S)\*|\*(?=\S)|(?<!\w)_|_(?!\w)|<(?=[\w/!?])", lambda match: f"\\{match[0]}", text)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _wrap(text: str) -> list[str]:
    return textwrap.wrap(text, 100, subsequent_indent="    ", break_long_words=False)


def _anchor(heading: str) -> str:
    letters = "".join(c for c in heading.lower() if c.isalnum() or c in " -_")
    return letters.replace(" ", "-")


# --- files ------------------------------------------------------------------------------------------------------------


def files() -> dict[Path, str]:
    """Return path -> content of every generated file."""
    entries = notes()
    descriptions = [
        describe(definition, notes=entries) for definition in all_ops().values() if definition.kind is not OpKind.CUSTOM
    ]
    families = list(dict.fromkeys(entry["family"] for entry in _in_order(entries)))
    families += [name for name in OTHERS.values() if any(about.family == name for about in descriptions)]
    pages = {PAGES / f"{about.name}.md": page(about) for about in descriptions}
    text = json.dumps(entries, indent=1, ensure_ascii=False) + "\n"
    return {NOTES: text, PAGES / INDEX: index(descriptions, list(dict.fromkeys(families))), **pages}


def _in_order(entries: dict[str, Entry]) -> list[Entry]:
    """Return the entries in the order of the specification."""
    return [entries[entry["name"]] for entry in contract.defined_entries()]


def out_of_date(root: Path, contents: dict[Path, str]) -> list[str]:
    """Return the stale files, which must be written or removed."""
    wrong = [str(path) for path, text in contents.items() if _read(root / path) != text]
    pages = {root / path for path in contents}
    return wrong + [str(path.relative_to(root)) for path in sorted((root / PAGES).glob("*.md")) if path not in pages]


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None


def main(arguments: list[str]) -> int:
    """Write or check the files. Return 1 if ``--check`` finds a stale file."""
    contents = files()
    stale = out_of_date(ROOT, contents)
    if arguments == ["--check"]:
        if stale:
            print(f"out of date: {', '.join(stale)}: run {COMMAND}", file=sys.stderr)
        return int(bool(stale))
    (ROOT / PAGES).mkdir(parents=True, exist_ok=True)
    for name in stale:
        if Path(name) in contents:
            (ROOT / name).write_text(contents[Path(name)], encoding="utf-8")
        else:
            (ROOT / name).unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
