"""Write the page of the Python API: ``python tools/api_page.py [--check]``.

``docs/python-api.md`` is made from the signatures and docstrings of what ``tpuconvert`` exports. With ``--check``
nothing is written, and the exit code says whether the page is up to date.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import tpuconvert

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "python-api.md"
COMMAND = "python tools/api_page.py"

LONGEST = 100
"""Characters of a call on one line."""

SECTIONS = ("Args", "Returns", "Raises", "Yields")

CHAPTERS: dict[str, tuple[str, ...]] = {
    "Convert": ("convert", "load", "Model", "Preprocess"),
    "Run": ("Session", "TensorInfo"),
    "Extend": (
        "register_op",
        "register_converter",
        "register_rule",
        "register_calibrator",
        "register_metric",
        "NativeKernel",
        "include_folder",
        "pattern",
        "Skip",
        "Range",
        "Op",
        "Operand",
    ),
    "Look inside": ("Graph", "TensorType", "QuantParams", "DType", "Chip"),
}
"""The names of each chapter. Errors make the last one; a name that is in none is an error of this program."""


def page() -> str:
    """The whole page."""
    exported = {name: getattr(tpuconvert, name) for name in tpuconvert.__all__ if not name.startswith("_")}
    errors = sorted(name for name, item in exported.items() if isinstance(item, type) and issubclass(item, Exception))
    chapters = {**CHAPTERS, "Errors": ("TpuConvertError", *(name for name in errors if name != "TpuConvertError"))}
    missing = set(exported) - {name for names in chapters.values() for name in names}
    if missing:
        raise SystemExit(f"{Path(__file__).name}: no chapter for {', '.join(sorted(missing))}")
    lines = ["# Python API", "", f"<!-- Made by `{COMMAND}` from the docstrings. -->", "", "```python"]
    lines += ["import tpuconvert as tc", "```", "", "Importing it is quick: each name is loaded when it is first used."]
    for chapter, names in chapters.items():
        lines += ["", f"## {chapter}"]
        for name in names:
            lines += ["", *_entry(name, exported[name], "###")]
    return "\n".join(lines) + "\n"


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
    for member, value in sorted(vars(item).items()):
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
    """How it is called, on one line or, with many arguments, on one each."""
    parameters, result = _parameters(item)
    line = f"{name}({', '.join(parameters)}){result}"
    if len(line) > LONGEST:
        return ["```text", f"{name}(", *(f"    {each}," for each in parameters), f"){result}", "```"]
    return [f"**`{line}`**"]


def _parameters(item: Any) -> tuple[list[str], str]:
    if isinstance(item, type) and dataclasses.is_dataclass(item):
        return [_parameter(field.name, field.type, _default(field)) for field in dataclasses.fields(item)], ""
    signature = inspect.signature(item)
    found, is_named = [], False
    for number, each in enumerate(signature.parameters.values()):
        if number == 0 and each.name in ("self", "cls"):
            continue
        if each.kind is each.KEYWORD_ONLY and not is_named:
            is_named = True
            found.append("*")
        star = "*" if each.kind is each.VAR_POSITIONAL else "**" if each.kind is each.VAR_KEYWORD else ""
        is_named |= each.kind is each.VAR_POSITIONAL
        found.append(star + _parameter(each.name, each.annotation, each.default))
    result = signature.return_annotation
    return found, "" if isinstance(item, type) or result is signature.empty else f" -> {result}"


def _parameter(name: str, annotation: Any, default: Any) -> str:
    text = name if annotation is inspect.Parameter.empty else f"{name}: {annotation}"
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
    """A docstring as Markdown: its sections become lists."""
    section = ""
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


def main() -> int:
    """Write or check the page; the exit code."""
    text = page()
    if sys.argv[1:] == ["--check"]:
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
            print(f"{PAGE.relative_to(ROOT)} is not up to date: run {COMMAND}", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
