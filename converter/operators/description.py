"""Description of one operator for the documentation and ``tpuconvert ops NAME``, derived from its definition.

Three things are not in a definition: its family, a short description of its parameters, and a worked example. They come
from the specification of the TPU operator set, through ``operator_notes.json``, which ``tools/pages/operator_pages.py``
generates.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import json
import re
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from tpuconvert.schema.definition.op import ALL, ALL_SAME, Case, LocalityKind, Op, Operand, OpKind, Support
from tpuconvert.schema.types import Chip, DType, Scalar

Notes = dict[str, Any]
"""Notes about one operator, with the keys ``family``, ``meanings`` and ``example``."""

COMPUTE = {
    "FLOAT32": "computed in binary32",
    "INT32": "computed in integers",
    "EXACT_INT": "computed in integers, without overflow in between",
    "MODE0": "calculation mode 0",
    "MODE1": "calculation mode 1",
    "MODE2": "calculation mode 2",
}
"""Text for each name of an arithmetic mode in the data-type tables."""

LOCALITY = {
    LocalityKind.LOCAL: "Local: input and output tiles may stay in on-chip memory.",
    LocalityKind.LIMITED_LOCAL: "Local or global",
    LocalityKind.GLOBAL: "Global: inputs and outputs are in global memory.",
}

SECTIONS = ("Shapes:", "Units:", "Errors:", "Source:", "``out_dtype``")
"""A docstring line with one of these prefixes begins a new paragraph."""

LONGEST_VECTOR = 12
"""Largest number of elements of a parameter that are shown in full."""

DECISION = re.compile(r" \((?:decision )?D-[A-Z0-9-]+\)|(?<=\()decision D-[A-Z0-9-]+, ?")
"""References to decision records in the specification, which are removed from the pages."""

TERMS = {
    "sat(": "``sat(v)`` is v limited to the range of an integer result; a floating-point result is not limited.",
    "rrs(": "``rrs(v, n)`` is v / 2^n with halves rounded up, ((v >> (n - 1)) + 1) >> 1; for n = 0 it is v.",
}
"""Function name in formulas -> its definition."""

OTHERS = {
    "tpu": "Further operators",
    "composite": "Composite operators",
    "atomic": "Atomic operations",
    "host": "Host functions",
    "custom": "Custom operators",
}
"""Operator kind -> family of operators to which the specification assigns no family."""

KINDS = {
    "atomic": "An atomic operation: one step of a chip's kernels, below the operators that convert produces.",
    "composite": "A composite: one node in graph and file. A chip runs its expansion into TPU operators, which"
    " has to be legal there.",
}
"""Description of each kind of operator."""

ON_THE_HOST = (OpKind.HOST, OpKind.CUSTOM)


@dataclass(frozen=True)
class OperandLine:
    """One operand or result. ``symbol`` is its name in the formula; empty if the formula does not name it."""

    name: str
    symbol: str
    about: str


@dataclass(frozen=True)
class ParameterLine:
    """One parameter. ``default`` is None for a required parameter. ``values`` lists the values of an enumeration."""

    name: str
    type: str
    default: str | None
    values: tuple[str, ...]
    meaning: str


@dataclass(frozen=True)
class ChipLine:
    """Data types that one chip accepts: an introductory sentence, then the accepted combinations."""

    chip: str
    supported: bool
    notes: tuple[str, ...]
    cases: tuple[str, ...]


@dataclass(frozen=True)
class OperatorDescription:
    """Description of one operator as text; names are in double backticks, as in docstrings."""

    name: str
    kind: str
    family: str
    module: str
    definition: str
    signature: str
    formula: str
    details: tuple[str, ...]
    operands: tuple[OperandLine, ...]
    results: tuple[OperandLine, ...]
    parameters: tuple[ParameterLine, ...]
    chips: tuple[ChipLine, ...]
    locality: str
    example: tuple[str, ...]


def describe(
    definition: type[Op], chips: Iterable[Chip] = Chip, notes: Mapping[str, Notes] | None = None
) -> OperatorDescription:
    """Describe one operator on the given chips; ``notes=None`` uses the notes of the package."""
    note = (operator_notes() if notes is None else notes).get(definition.name, {})
    formula, *details = _paragraphs(definition.__doc__ or "")
    operands = [_operand(*item) for item in zip(definition.inputs, operand_symbols(definition), strict=True)]
    return OperatorDescription(
        name=definition.name,
        kind=definition.kind.value,
        family=note.get("family", OTHERS.get(definition.kind.value, OTHERS["tpu"])),
        module=definition.__module__,
        definition=definition.__name__,
        signature=_signature(definition),
        formula=formula,
        details=(*details, *_further_details(definition, formula)),
        operands=tuple(operands),
        results=tuple(_result(o, "y" if len(definition.outputs) == 1 else "") for o in definition.outputs),
        parameters=tuple(_parameters(definition, note.get("meanings", {}))),
        chips=tuple(chip_line(definition, chip) for chip in chips),
        locality=_locality(definition),
        example=tuple(note.get("example", ())),
    )


def operand_symbols(definition: type[Op]) -> list[str]:
    """Return the names of operands in formulas: the arguments of ``infer``. Variadic operands have empty names."""
    taken = list(inspect.signature(definition.infer).parameters.values())[1:]
    count = len(definition.inputs)
    several = any(item.kind is item.VAR_POSITIONAL for item in taken) and count > 1
    # Further arguments of infer have defaults and belong to related operators that share its code.
    return [""] * count if several or len(taken) < count else [item.name for item in taken[:count]]


@functools.cache
def operator_notes() -> dict[str, Notes]:
    """Load family, parameter meanings and worked example of each operator, generated by a program in ``tools``."""
    text = resources.files("tpuconvert.report").joinpath("operator_notes.json").read_text(encoding="utf-8")
    notes: dict[str, Notes] = json.loads(text)
    return notes


# --- the head ---------------------------------------------------------------------------------------------------------


def _paragraphs(text: str) -> list[str]:
    """Split a docstring into paragraphs of one line. A section such as ``Shapes:`` begins a paragraph."""
    paragraphs: list[list[str]] = [[]]
    for line in inspect.cleandoc(text).replace(". Shapes: ", ".\nShapes: ").splitlines():
        if (not line.strip() or line.startswith(SECTIONS)) and paragraphs[-1]:
            paragraphs.append([])
        if line.strip():
            paragraphs[-1].append(line.strip())
    return [" ".join(paragraph) for paragraph in paragraphs if paragraph] or [""]


def _further_details(definition: type[Op], formula: str) -> Iterable[str]:
    """Return further details: the names in the formula, and the meaning of the kind."""
    yield from (meaning for term, meaning in TERMS.items() if term in formula)
    yield from (text for kind, text in KINDS.items() if kind == definition.kind.value)


def _signature(definition: type[Op]) -> str:
    operands = ", ".join(map(_in_signature, definition.inputs))
    parameters = ", ".join(
        item.name if item.default is dataclasses.MISSING else f"{item.name}={format_value(item.default)}"
        for item in dataclasses.fields(definition)
    )
    results = ", ".join(map(_in_signature, definition.outputs))
    return f"{definition.name}({'; '.join(part for part in (operands, parameters) if part)}) -> {results}"


def _in_signature(operand: Operand) -> str:
    return f"[{operand.name}]" if operand.optional else f"{operand.name}{', ...' if operand.variadic else ''}"


def _operand(operand: Operand, symbol: str) -> OperandLine:
    kind = "tensor or constant" if operand.coeff else "tensor"
    return OperandLine(operand.name, symbol, ", ".join([*_form(operand), kind, *_presence(operand)]))


def _result(operand: Operand, symbol: str) -> OperandLine:
    return OperandLine(operand.name, symbol, ", ".join([*_form(operand), *_presence(operand)]))


def _form(operand: Operand) -> list[str]:
    layout = [] if operand.layout == "any" else [operand.layout]
    if operand.ranks:
        return [*layout, f"rank {_numbers(operand.ranks)}"]
    return layout or ["any rank"]


def _numbers(ranks: tuple[int, ...]) -> str:
    if len(ranks) > 2 and ranks == tuple(range(ranks[0], ranks[-1] + 1)):
        return f"{ranks[0]} to {ranks[-1]}"
    return " or ".join(str(rank) for rank in ranks)


def _presence(operand: Operand) -> list[str]:
    return ["optional"] * operand.optional + ["one or more"] * operand.variadic


def _parameters(definition: type[Op], meanings: dict[str, str]) -> Iterable[ParameterLine]:
    hints = typing.get_type_hints(definition)
    for item in dataclasses.fields(definition):
        parts = [part for part in (hints[item.name], *typing.get_args(hints[item.name])) if isinstance(part, type)]
        enumeration = next((part for part in parts if issubclass(part, enum.IntEnum)), None)
        values = () if enumeration is None else tuple(f"{member.name} = {member.value}" for member in enumeration)
        default = None if item.default is dataclasses.MISSING else format_value(item.default)
        free = "data type of the result" + (", where it is free" if default == "None" else "")
        meaning = meanings.get(item.name, free if DType in parts else "")
        yield ParameterLine(item.name, str(item.type), default, values, meaning)


def format_value(value: object) -> str:
    """Return a parameter value as short text; the middle of a long vector is left out."""
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, Scalar):
        return f"{format_value(value.value)} as {value.dtype.value}"
    if isinstance(value, tuple):
        cells = [format_value(item) for item in value]
        cells = cells if len(cells) <= LONGEST_VECTOR else [*cells[:3], "...", *cells[-3:]]
        return f"({', '.join(cells)}{',' if len(cells) == 1 else ''})"
    return f"{value:g}" if isinstance(value, float) else str(value)


# --- data types -------------------------------------------------------------------------------------------------------


def chip_line(definition: type[Op], chip: Chip) -> ChipLine:
    """Return the data types that one chip accepts, as text."""
    if definition.kind in ON_THE_HOST:
        return ChipLine(chip.value, True, ("it runs on the host",), ())
    support = definition.dtypes[chip]
    if not support.cases:
        return ChipLine(chip.value, False, ("this chip does not have it",), ())
    cases = tuple(_case(definition, support, case) for case in _join(support.cases))
    return ChipLine(chip.value, True, tuple(_remarks(definition, support)), cases)


def _remarks(definition: type[Op], support: Support) -> Iterable[str]:
    if support.todo or definition.unfinished:
        yield "marked unfinished by the vendor: legal with a warning"
    elif support.todo_dtypes:
        yield f"{_dtype_names(support.todo_dtypes)}* is marked unfinished by the vendor: legal with a warning"
    if support.inferred:
        yield "inferred; not documented by the vendor"


def _join(cases: Sequence[Case]) -> list[Case]:
    """Merge cases that differ only in the types of one operand."""
    joined: list[Case] = []
    for case in cases:
        for index, other in enumerate(joined):
            name = _only_difference(case, other)
            if name is not None:
                types = other.operands[name] + case.operands[name]
                joined[index] = dataclasses.replace(other, operands={**other.operands, name: types})
                break
        else:
            joined.append(case)
    return joined if len(joined) == len(cases) else _join(joined)


def _only_difference(case: Case, other: Case) -> str | None:
    """Return the name of the only operand whose types differ between two cases; None if they differ otherwise."""
    if dataclasses.replace(case, operands=other.operands) != other or case.operands.keys() != other.operands.keys():
        return None
    names = [name for name, types in case.operands.items() if set(types) != set(other.operands[name])]
    # Types under ALL can be merged only if all operands of a node must have the same type.
    return names[0] if len(names) == 1 and (names[0] != ALL or ALL_SAME in case.rules) else None


def _case(definition: type[Op], support: Support, case: Case) -> str:
    alike = ALL_SAME in case.rules
    operands = [operand.name for operand in (*definition.inputs, *definition.outputs) if "_" in operand.name]
    rules = [_with_names(rule.text, operands) for rule in case.rules if rule is not ALL_SAME]
    types = {name: _dtype_names(dtypes, support.todo_dtypes) for name, dtypes in case.operands.items()}
    if list(types) == [ALL]:
        several = len(set(case.operands[ALL])) > 1
        alike_words = ", the same for all operands and results" if alike else " for all operands and results"
        words = types[ALL] + (alike_words if several else "")
    else:
        names = {ALL: "all others"}
        words = "; ".join(f"{names.get(name, f'``{name}``')} {listed}" for name, listed in types.items())
        rules += ["all data types are the same"] if alike else []
    rules += [f"``{name}`` is constant" for name in case.requires_coeff]
    sentences = [words, "; ".join(rules), COMPUTE.get(case.compute, case.compute)]
    text = ". ".join(sentence[:1].upper() + sentence[1:] for sentence in sentences if sentence)
    if case.when_text:
        text = f"When {_with_names(case.when_text, [item.name for item in dataclasses.fields(definition)])}: {text}"
    return DECISION.sub("", text)


def _with_names(text: str, names: Iterable[str]) -> str:
    """Put the given names in the text into double backticks."""
    for name in names:
        text = re.sub(rf"\b{name}\b", f"``{name}``", text)
    return text


def _dtype_names(dtypes: Iterable[DType], todo: Sequence[DType] = ()) -> str:
    return ", ".join(dtype.value + "*" * (dtype in todo) for dtype in DType if dtype in set(dtypes))


def _locality(definition: type[Op]) -> str:
    if definition.kind in ON_THE_HOST:
        return "Global: it runs on the host."
    locality = definition.locality
    text = LOCALITY[locality.kind]
    return f"{text}: {locality.text}." if locality.kind is LocalityKind.LIMITED_LOCAL else text
