"""Write the pages of the Python API by task: ``python -m tools.pages.api_page [--check]``.

``docs/reference/python`` is derived from the signatures and docstrings of the names that ``tpuconvert`` exports. With
``--check`` nothing is written, and the exit code is 1 if a page is stale.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import inspect
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import numpy as np

import tpuconvert
from tpuconvert.schema.graph.input_types import convert_input
from tpuconvert.schema.text import plain_values

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "reference" / "python"
COMMAND = "python -m tools.pages.api_page"
MARK = f"<!-- Made by `{COMMAND}` from the docstrings. -->"

LONGEST = 100
"""Longest signature on one line, in characters."""

SECTIONS = ("Args", "Attributes", "Returns", "Raises", "Yields")

LEAD = (
    "Importing it is quick: each name is loaded when it is first used. Every command has its function, with the same "
    "names and defaults. Results print the lines of the command; `to_dict()` returns the plain values of its `--json` "
    "document, and notebooks show a table. A source (`AnySource`) is a path, bytes of an ONNX or TFLite file or of a "
    "prototxt, or an `onnx.ModelProto`; weights are a path or bytes. Options of a conversion are fields of three "
    "frozen dataclasses, `SourceOptions`, `Quantization` and `PackedWeights`, with the names of the command line. All "
    "exceptions are on the page of [errors](errors.md)."
)

INPUT_TYPES = (
    "`Session.run`, calibration, and the commands `run`, `verify` and `evaluate` accept the same types. Rows are the "
    'types of the input, columns the types of the array; lists of Python numbers are int64 or float64. "fits" is '
    "accepted if the input's type holds every value (floats may be rounded, but not to infinity); a dash is refused. "
    "uint8 is the type of images: give them to `run_images`, which preprocesses them. Codes of a quantized input are "
    "not taken from the other 8-bit type."
)
WANTED_TYPES = ("float32", "float16", "int64", "int32", "uint8", "quantized uint8", "quantized int8", "bool")
GIVEN_TYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")


@dataclasses.dataclass(frozen=True)
class Task:
    """A page: what a user wants to do, and the names that it takes."""

    title: str
    about: str
    names: tuple[str, ...]


TASKS = {
    "convert": Task(
        "Convert",
        "Read a source, and load and save models.",
        (
            *("check", "Check", "convert", "SourceOptions", "Quantization", "PackedWeights", "Preprocess"),
            *("show_progress", "load", "Model", "limited"),
        ),
    ),
    "quantize": Task(
        "Quantize", "Measure ranges once, and quantize with them.", ("calibrate", "MeasuredRanges", "quantize")
    ),
    "run": Task(
        "Run",
        "Run models, draw results, and generate text.",
        (
            *("Session", "Drawing", "TensorInfo", "generate", "Generation", "Generator", "Sampling"),
            *("TokenStream", "Token", "bench", "Benchmark"),
        ),
    ),
    "compare": Task(
        "Verify and compare",
        "Compare a model with its source or with another model, and reduce one that fails.",
        (
            *("verify", "Verification", "inspect", "Inspection", "report", "diff", "ModelDifference"),
            *("reproduce", "Reproduction", "reduce", "Reduction"),
        ),
    ),
    "accuracy": Task(
        "Measure and improve accuracy",
        "Find wrong preprocessing and the nodes that cost accuracy.",
        ("doctor", "Diagnosis", "evaluate", "Evaluation", "attribute", "Attribution", "tune", "Tuning"),
    ),
    "export": Task(
        "Export",
        "Write a model for the vendor's compiler or as ONNX, and compare it with a device.",
        (
            *("export", "Export", "device_setup", "DeviceSetup", "device_plan", "DevicePlan"),
            *("device_compare", "DumpComparison", "device_check", "GoldenCheck"),
        ),
    ),
    "extend": Task(
        "Extend",
        "Register operators, converters, rules, calibrators, metrics and heads.",
        (
            *("register_op", "op_test", "OpTests", "register_converter", "register_rule", "register_calibrator"),
            *("register_metric", "register_head", "NativeKernel", "include_folder", "pattern", "Skip", "Range"),
            *("Op", "Operand"),
        ),
    ),
    "graph": Task(
        "Look inside",
        "List operators and passes, and read the graph of a model.",
        (
            *("ops", "OperatorList", "describe_op", "OperatorExplanation", "passes", "PassList"),
            *("Graph", "TensorType", "QuantParams", "DType", "Chip"),
        ),
    ),
    "errors": Task("Handle errors", "Check the installation, and catch exceptions.", ("installation", "Installation")),
}
"""File of a page -> its task. The exceptions follow on the page of errors. A test checks that each name is in one."""


def exported() -> dict[str, Any]:
    """Return the public names of the package."""
    return {name: getattr(tpuconvert, name) for name in tpuconvert.__all__ if not name.startswith("_")}


def names_of(file: str) -> tuple[str, ...]:
    """Return the names of a page.

    Raises:
        SystemExit: an exported name has no page.
    """
    items = exported()
    errors = {name for name, item in items.items() if isinstance(item, type) and issubclass(item, Exception)}
    missing = set(items) - errors - {name for task in TASKS.values() for name in task.names}
    if missing:
        raise SystemExit(f"{Path(__file__).name}: no task for {', '.join(sorted(missing))}; add them to TASKS")
    first = "TpuConvertError"
    return (*TASKS[file].names, *((first, *sorted(errors - {first})) if file == "errors" else ()))


def pages() -> dict[Path, str]:
    """Return the pages as Markdown, by path."""
    return {FOLDER / "index.md": _index(), **{FOLDER / f"{file}.md": _page(file) for file in TASKS}}


def _index() -> str:
    lines = ["# Python", "", MARK, "", "```python", "import tpuconvert as tc", "```", "", *textwrap.wrap(LEAD, 118)]
    lines += ["", "| task | names |", "|---|---|"]
    for file, task in TASKS.items():
        names = (f"[`{name}`]({file}.md#{name.lower()})" for name in names_of(file))
        lines.append(f"| [{task.title}]({file}.md) | {', '.join(names)} |")
    return "\n".join(lines) + "\n"


def _page(file: str) -> str:
    task, items = TASKS[file], exported()
    lines = [f"# {task.title}", "", MARK, "", f"{task.about} [Python](index.md) lists all tasks."]
    for name in names_of(file):
        lines += ["", *_entry(name, items[name], "##")]
    if file == "run":
        lines += ["", *_input_types()]
    return "\n".join(lines) + "\n"


def _input_types() -> Iterator[str]:
    """Return the table of the array types that each input type accepts."""
    yield from ("## Types of inputs", "")
    yield from textwrap.wrap(INPUT_TYPES, 116)
    yield ""
    yield f"| input | {' | '.join(GIVEN_TYPES)} |"
    yield "|---" * (len(GIVEN_TYPES) + 1) + "|"
    for dtype in WANTED_TYPES:
        cells = (
            _accepts(dtype.removeprefix("quantized "), array_dtype, dtype.startswith("q"))
            for array_dtype in GIVEN_TYPES
        )
        yield f"| {dtype} | {' | '.join(cells)} |"


def _accepts(dtype: str, array_dtype: str, is_quantized: bool) -> str:
    kind = np.dtype(array_dtype).kind
    limits: Any = [0, 1] if kind == "b" else np.iinfo(array_dtype) if kind in "iu" else np.finfo(array_dtype)
    extremes = limits if kind == "b" else [limits.min, limits.max]
    accepted = []
    for values in ([0, 1], extremes):
        try:
            convert_input(np.array(values, array_dtype), np.dtype(dtype), "x", is_quantized=is_quantized)
        except tpuconvert.UsageError:
            accepted.append(False)
        else:
            accepted.append(True)
    return "yes" if all(accepted) else "fits" if accepted[0] else "-"


def _entry(name: str, item: Any, heading: str) -> Iterator[str]:
    yield f"{heading} {name}"
    yield ""
    if not (isinstance(item, type) and issubclass(item, (Exception, enum.Enum))):
        yield from _call(name, item)
        yield ""
    yield from _prose(inspect.getdoc(item) or "")
    if not isinstance(item, type) or issubclass(item, Exception):
        return
    if issubclass(item, enum.Enum):
        yield from ("", "Members: " + ", ".join(f"`{member.name}`" for member in item) + ".")
        return
    members: dict[str, Any] = {}
    for base in reversed(item.__mro__):  # a public class may extend a class of the same name in a module
        members |= vars(base) if base.__name__ == item.__name__ else {}
    for member, value in sorted(members.items()):
        documented = inspect.getdoc(value)
        if member.startswith("_") or not documented:
            continue
        called = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
        if isinstance(called, property):
            yield from ("", f"**`{member}`** · {_first(documented)}")
        elif callable(called):
            yield from ("", *_call(member, called), "")
            yield from _prose(documented)


def _call(name: str, item: Any) -> list[str]:
    """Signature on one line, or with one line per argument if it is long."""
    parameters, result = _parameters(item)
    line = f"{name}({', '.join(parameters)}){result}"
    if len(line) > LONGEST:
        return ["```text", f"{name}(", *(f"    {each}," for each in parameters), f"){result}", "```"]
    return [f"**`{line}`**"]


def _parameters(item: Any) -> tuple[list[str], str]:
    if isinstance(item, type) and dataclasses.is_dataclass(item):
        fields = dataclasses.fields(item)
        stars = ["*"] if fields and all(field.kw_only for field in fields) else []
        return [*stars, *(_parameter(field.name, field.type, _default(field)) for field in fields)], ""
    signature = inspect.signature(item)
    texts, is_named = [], False
    for number, each in enumerate(signature.parameters.values()):
        if number == 0 and each.name in ("self", "cls"):
            continue
        if each.kind is each.KEYWORD_ONLY and not is_named:
            is_named = True
            texts.append("*")
        star = "*" if each.kind is each.VAR_POSITIONAL else "**" if each.kind is each.VAR_KEYWORD else ""
        is_named |= each.kind is each.VAR_POSITIONAL
        texts.append(star + _parameter(each.name, each.annotation, each.default))
    result = signature.return_annotation
    return texts, "" if isinstance(item, type) or result is signature.empty else f" -> {result}"


ALIASES = {name: get_args(kind)[0] for name, kind in vars(plain_values).items() if get_origin(kind) is Annotated}
"""Names of annotated types -> the type."""


class _WithoutNotes(ast.NodeTransformer):
    """Replace annotated types, which have notes for JSON Schema, by the types themselves."""

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(ALIASES[node.id].__name__) if node.id in ALIASES else node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        is_annotated = isinstance(node.value, ast.Name) and node.value.id == "Annotated"
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else []
        kind: ast.AST = self.visit(parts[0]) if is_annotated else self.generic_visit(node)
        return kind


def _parameter(name: str, annotation: Any, default: Any) -> str:
    text = name
    if annotation is not inspect.Parameter.empty:
        text += f": {ast.unparse(_WithoutNotes().visit(ast.parse(str(annotation), mode='eval')))}"
    if default is inspect.Parameter.empty:
        return text
    shown = str(default) if isinstance(default, enum.Enum) else "..." if callable(default) else repr(default)
    return f"{text} = {shown}"


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    return inspect.Parameter.empty if field.default_factory is dataclasses.MISSING else field.default_factory


def _first(text: str) -> str:
    return re.split(r"\n\s*\n", text, maxsplit=1)[0].replace("\n", " ").replace("``", "`")


def _prose(text: str) -> Iterable[str]:
    """Convert a docstring to Markdown; its sections become lists."""
    section = ""
    text, _, example = text.partition("\nExample:\n")
    for line in text.replace("``", "`").splitlines():
        title = line.rstrip(":")
        if line == f"{title}:" and title in SECTIONS:
            section = title
            yield f"*{title}*"
            yield ""
        elif section and line.startswith("    ") and not line.startswith("     "):
            named = re.match(r"    (\*{0,2}\w+): (.*)", line)
            yield f"- `{named[1]}`: {named[2]}" if named and section != "Returns" else f"- {line.strip()}"
        elif section and line.startswith("     "):
            yield f"  {line.strip()}"
        else:
            section = "" if line.strip() else section
            yield line
    if example:
        yield from ("", "*Example*", "", "```pycon", *textwrap.dedent(example).strip().splitlines(), "```")


def main() -> int:
    """Write or check the pages. Return the exit code."""
    wanted = pages()
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    stale += sorted(set(FOLDER.glob("*.md")) - set(wanted))
    for path in stale:
        if sys.argv[1:] == ["--check"]:
            print(f"{path.relative_to(ROOT)} is not up to date: run {COMMAND}", file=sys.stderr)
        elif path in wanted:
            path.write_text(wanted[path], encoding="utf-8")
        else:
            path.unlink()
    return int(sys.argv[1:] == ["--check"] and bool(stale))


if __name__ == "__main__":
    raise SystemExit(main())
