"""Write docs/reference/schemas: the JSON Schema of each document that ``--json`` prints, made of its result class.

A dataclass gives its fields, and what ``Plain`` adds to them; a ``TypedDict`` gives its keys. Descriptions are from
the ``Args:`` or ``Attributes:`` of the class, of properties, and texts in ``Annotated``. A type in ``Annotated``
replaces the annotated one, and a ``Keyword`` is added to the schema.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import enum
import importlib
import inspect
import json
import os
import re
import sys
import types
import typing
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from tpuconvert.ci.reports import CiDocument
from tpuconvert.cli.commands.calibrate import CalibrationDocument
from tpuconvert.cli.commands.demo import DemoDocument
from tpuconvert.cli.commands.evaluate import EvaluationDocument
from tpuconvert.cli.commands.run import RunDocument
from tpuconvert.cli.json_output import ErrorDescription, ErrorDocument, ProblemDescription
from tpuconvert.conversion.check import Check
from tpuconvert.conversion.reproduction import Reproduction
from tpuconvert.device.compare import DumpComparison
from tpuconvert.device.device import DevicePlan, GoldenCheck
from tpuconvert.device.setup import DeviceSetup
from tpuconvert.diff.result import ModelDifference
from tpuconvert.doctor.doctor import Diagnosis
from tpuconvert.doctor.installation import Installation
from tpuconvert.exporters.compilation.proof import Proof
from tpuconvert.exporters.export import Export
from tpuconvert.model.description import GraphDescription, SubgraphDescription
from tpuconvert.operators.description import OperatorDescription
from tpuconvert.operators.op_test import OpTests
from tpuconvert.operators.tables import SourceRow, TpuRow
from tpuconvert.optimizer.pipeline import PassRow
from tpuconvert.precision.attribution import Attribution
from tpuconvert.precision.tune import Tuning
from tpuconvert.reduction.result import Reduction
from tpuconvert.report.conversion_summary import ConversionSummary
from tpuconvert.report.report_data import ReportData
from tpuconvert.report.report_description import ReportDescription
from tpuconvert.run.bench import Benchmark
from tpuconvert.run.language.generation import Generation, Generations
from tpuconvert.schema.text.plain_values import MERGED, Keyword, Plain
from tpuconvert.verify.verification import Verification

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "reference" / "schemas"

Schema: TypeAlias = dict[str, Any]

DOCUMENTS: Mapping[str, Any] = {
    "attribute": Attribution,
    "bench": Benchmark,
    "calibrate": CalibrationDocument,
    "check": Check,
    "ci": CiDocument,
    "convert": ConversionSummary,
    "demo": DemoDocument,
    "device": DevicePlan | DeviceSetup | DumpComparison | GoldenCheck,
    "diff": ModelDifference,
    "doctor": Diagnosis | Installation,
    "error": ErrorDocument,
    "evaluate": EvaluationDocument,
    "export": Export,
    "generate": Generation | Generations,
    "inspect": GraphDescription | ReportDescription,
    "op": OpTests,
    "ops": list[TpuRow] | list[SourceRow] | OperatorDescription,
    "passes": list[PassRow],
    "proof": Proof,
    "quantize": ConversionSummary,
    "reduce": Reduction,
    "report": ReportData,
    "reproduce": Reproduction,
    "run": RunDocument,
    "tune": Tuning,
    "verify": Verification,
}
"""Name of a command -> class of its document. Each command can print the error; ``--report`` writes ``report``, and
``export --compile`` writes ``proof``."""

CLOSED = (ErrorDocument, ErrorDescription, ProblemDescription, Generation, Generations, SubgraphDescription)
"""Classes without further keys, which a later version cannot add either."""

WITHOUT_NULL = ("report",)
"""Documents in which a key without a value is absent."""

NAMED = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


class Schemas:
    """Schemas of the classes of one document.

    Args:
        has_null: whether a key without a value is null; otherwise it is absent.

    """

    def __init__(self, *, has_null: bool) -> None:
        self.has_null = has_null
        self.definitions: dict[str, Schema] = {}

    def of(self, kind: Any) -> Schema:
        """Return the schema of a type."""
        if kind is Any:
            return {}
        if isinstance(kind, type) and kind in NAMED:
            return {"type": NAMED[kind]}
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if origin is typing.Annotated:
            return self._annotated(*arguments)
        if origin is typing.NotRequired or origin is typing.Required:
            return self.of(arguments[0])
        if origin is typing.Union or origin is types.UnionType:
            return _union([self.of(each) for each in arguments])
        if origin is typing.Literal:
            return {"enum": list(arguments)}
        if origin is tuple and arguments[-1] is not ...:
            count = len(arguments)
            return {"type": "array", "minItems": count, "maxItems": count, "items": self.of(arguments[0])}
        if origin is Counter:
            return {"type": "object", "additionalProperties": {"type": "integer"}}
        if isinstance(origin, type) and issubclass(origin, Mapping):
            names, values = map(self.of, arguments)
            keys = {"propertyNames": {"enum": names["enum"]}} if "enum" in names else {}
            return {"type": "object", **keys, **({"additionalProperties": values} if values else {})}
        if isinstance(origin, type) and issubclass(origin, Iterable):
            return {"type": "array", "items": self.of(arguments[0])}
        if issubclass(kind, enum.Enum):
            return {"type": "string", "enum": [each.value for each in kind]}
        if issubclass(kind, os.PathLike):
            return {"type": "string"}
        return self._reference(kind)

    def object(self, kind: Any) -> Schema:
        """Return the schema of a dataclass or TypedDict."""
        properties: dict[str, Schema] = {}
        required: list[str] = []
        for key, value, is_required, description in _keys(kind):
            schema = self.of(value if self.has_null else _without_none(value))
            properties[key] = {"description": description, **schema} if description else schema
            if is_required and (self.has_null or not _is_optional(value)):
                required.append(key)
        closed = {"additionalProperties": False} if kind in CLOSED else {}
        text = _first_paragraph(kind)
        return {"type": "object", "description": text, **closed, "required": required, "properties": properties}

    def _annotated(self, kind: Any, *notes: Any) -> Schema:
        """Return the schema of a type with notes: a type that replaces it, keywords, and a description."""
        schema = self.of(next((note for note in notes if not isinstance(note, str | Keyword)), kind))
        for note in notes:
            if isinstance(note, Keyword):
                schema = {**schema, note.name: note.value}
            elif isinstance(note, str):
                schema = {**schema, "description": note}
        return schema

    def _reference(self, kind: Any) -> Schema:
        if kind.__name__ not in self.definitions:
            self.definitions[kind.__name__] = {}  # a class may contain itself
            self.definitions[kind.__name__] = self.object(kind)
        return {"$ref": f"#/$defs/{kind.__name__}"}


def _union(schemas: list[Schema]) -> Schema:
    """Return the schema of a union: one with several names of types, if their keywords do not apply to each other."""
    names = [each.get("type") for each in schemas]
    others = [key for each in schemas for key in each if key != "type"]
    if all(isinstance(name, str) for name in names) and len({*names}) == len(names) and "enum" not in others:
        return {**{key: value for each in schemas for key, value in each.items()}, "type": names}
    return {"anyOf": schemas}


def _keys(kind: Any) -> Iterator[tuple[str, Any, bool, str]]:
    """Yield key, type, whether it is always there, and description."""
    hints = typing.get_type_hints(kind, None, _names(kind), include_extras=True)
    texts = _described_fields(kind)
    if typing.is_typeddict(kind) or issubclass(kind, tuple):
        keys = getattr(kind, "__required_keys__", hints)
        for key, value in hints.items():
            is_required = key in keys and typing.NotRequired not in _origins(value)
            yield key, value, is_required or typing.Required in _origins(value), texts.get(key, "")
        return
    if "to_dict" in vars(kind):
        yield from _keys(typing.get_type_hints(kind.to_dict, None, _names(kind))["return"])
        return
    is_plain = issubclass(kind, Plain)
    keys = kind.plain_keys() if is_plain else {each.name: each.name for each in dataclasses.fields(kind)}
    for name, key in keys.items():
        value, text = hints.get(name), texts.get(name, "")
        if value is None:
            member = inspect.getattr_static(kind, name)
            function = member.fget if isinstance(member, property) else member
            value = typing.get_type_hints(function, None, _names(kind), include_extras=True)["return"]
            text = _first_paragraph(function)
        if key == MERGED:
            yield from _keys(_replaced(value))
        elif key.endswith("?"):
            yield key.removesuffix("?"), _without_none(value), False, text
        else:
            yield key, value, True, text


def _origins(kind: Any) -> list[Any]:
    """Return the wrappers of a type, from outside."""
    origin = typing.get_origin(kind)
    is_wrapper = origin in (typing.Annotated, typing.NotRequired, typing.Required)
    return [origin, *_origins(typing.get_args(kind)[0])] if is_wrapper else []


def _replaced(kind: Any) -> Any:
    """Return the type in the notes of an annotated one."""
    return typing.get_args(kind)[1] if typing.get_origin(kind) is typing.Annotated else kind


def _is_optional(kind: Any) -> bool:
    """Return True for a type with None, also in a note."""
    if _origins(kind):
        return _is_optional(typing.get_args(kind)[0])
    return type(None) in typing.get_args(kind)


def _without_none(kind: Any) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return typing.Annotated[tuple(_without_none(each) for each in arguments)]
    if origin in (typing.Union, types.UnionType):
        return typing.Union[tuple(part for part in arguments if part is not type(None))]  # noqa: UP007  # of a list
    return kind


def _names(kind: Any) -> dict[str, Any]:
    """Return what the modules of a class import for type checkers only."""
    names: dict[str, Any] = {}
    for module in {base.__module__ for base in (kind, *kind.__mro__) if base.__module__.startswith("tpuconvert")}:
        for node in ast.parse(inspect.getsource(sys.modules[module])).body:
            if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
                for part in (part for part in node.body if isinstance(part, ast.ImportFrom)):
                    imported = importlib.import_module(part.module or "")
                    names |= {name.asname or name.name: getattr(imported, name.name) for name in part.names}
    return names


def _first_paragraph(item: Any) -> str:
    text = " ".join((item.__doc__ or "").split("\n\n")[0].split()).removesuffix(".").replace("``", "")
    return text.removeprefix("Return ")


def _described_fields(kind: Any) -> dict[str, str]:
    """Return the descriptions in the section ``Args`` or ``Attributes`` of a class and of its bases."""
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        text = inspect.cleandoc(base.__doc__ or "")
        section = re.search(r"^(?:Args|Attributes):\n((?:    .*\n?|\n)+)", text, re.MULTILINE)
        entries = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", section[1], re.MULTILINE) if section else ()
        texts |= {name: " ".join(text.split()).removesuffix(".").replace("``", "") for name, text in entries}
    return texts


def schema_of(name: str) -> str:
    """Return the text of the schema of a document."""
    kind, schemas = DOCUMENTS[name], Schemas(has_null=name not in WITHOUT_NULL)
    content = schemas.object(kind) if isinstance(kind, type) and not typing.get_args(kind) else schemas.of(kind)
    definitions = {"$defs": schemas.definitions} if schemas.definitions else {}
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": name, **content, **definitions}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def main() -> int:
    """Write the schemas, or check that they are up to date."""
    parser = argparse.ArgumentParser(description="write docs/reference/schemas")
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 when a file is out of date")
    check = parser.parse_args().check
    schemas = {FOLDER / f"{name}.schema.json": schema_of(name) for name in DOCUMENTS}
    stale = [path for path, text in schemas.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        if check:
            print(f"{path.name} is out of date: run python -m tools.pages.json_schemas", file=sys.stderr)
        else:
            path.write_text(schemas[path], encoding="utf-8")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
