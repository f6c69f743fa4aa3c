"""Tables of supported operators, derived from the operator definitions and the converter registries."""

from __future__ import annotations

import itertools
from typing import Annotated, Any, NotRequired, TypedDict

from tpuconvert.frontends.registry import Kind, Registration, registry
from tpuconvert.schema.definition.chip_names import parse_chip
from tpuconvert.schema.definition.op import ALL, Op, OpKind, Support, all_ops, find_op
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.text.spelling import meant, nearest
from tpuconvert.schema.types import Chip, DType

Row = dict[str, Any]


class TpuRow(TypedDict):
    """A TPU operator: the data types that any of its operands may have on each chip."""

    operator: str
    kind: str
    bm1682: NotRequired[list[str]]
    bm1684: NotRequired[list[str]]
    bm1686: NotRequired[list[str]]


class SourceRow(TypedDict):
    """An operator of a source format."""

    operator: str
    domain: Annotated[str, "of the operator, empty for the format's own"]
    versions: Annotated[list[str], "operator-set versions that are covered"]
    kind: str
    limits: str


def tpu_operators(chip: str | None = None) -> list[Row]:
    """Return one row per operator: name, kind, and for each chip the data types that any operand may have.

    Raises:
        UsageError: an unknown chip.

    """
    chips = chips_named(chip)
    rows = []
    for name, definition in all_ops().items():
        support = {one.value.lower(): _types(definition, one) for one in chips}
        if any(support.values()):
            rows.append({"operator": name, "kind": definition.kind.value, **support})
    return rows


def chips_named(chip: str | None) -> list[Chip]:
    """Return the chip with this name in a list, or all chips for None.

    Raises:
        UsageError: an unknown chip.

    """
    try:
        return list(Chip) if chip is None else [parse_chip(chip)]
    except ValueError as error:
        raise UsageError(str(error)) from None


def operator_named(name: str) -> type[Op]:
    """Return the definition of an operator.

    Raises:
        UsageError: there is no operator of this name; the hint suggests similar names.

    """
    definition = find_op(name)
    if definition is None:
        alike = nearest(name, all_ops(), limit=3) or [each for each in all_ops() if name.lower() in each.lower()]
        hint = meant(alike) or "tpuconvert ops lists the operators"
        raise UsageError(f"there is no TPU operator '{name}'", hint=hint)
    return definition


def source_operators(source_format: str) -> list[Row]:
    """Return one row per operator of a source format: name, domain, ranges of versions, kind of conversion, limits.

    ``versions`` has one range of operator set versions per converter; Caffe has no versions. Kind and limits describe
    the converter for the newest version.
    """
    registrations: dict[tuple[str, str], list[Registration]] = {}
    for entry in registry(source_format).all_entries():
        registrations.setdefault((entry.domain, entry.name), []).append(entry)
    rows = []
    for (domain, name), entries in sorted(registrations.items()):
        begun = [entry.since for entry in entries]
        ends = [f"-{later - 1}" if later > since + 1 else "" for since, later in itertools.pairwise(begun)]
        ranges = [f"{since}{end}" for since, end in zip(begun, [*ends, "+"], strict=True)]
        newest = entries[-1]
        versions = [] if source_format == "caffe" else ranges
        rows.append(_row(name, domain, versions, newest.kind.value, newest.limits))
    return rows


def refused_operators(source_format: str) -> list[Row]:
    """Return rows as in ``source_operators`` for operators that are refused; the limits column has the reason."""
    return [
        _row(name, "", [], Kind.REFUSED.value, why) for name, why in sorted(registry(source_format).refusals.items())
    ]


def _row(name: str, domain: str, versions: list[str], kind: str, limits: str) -> Row:
    return {"operator": name, "domain": domain, "versions": versions, "kind": kind, "limits": limits}


def _types(definition: type[Op], chip: Chip) -> list[str]:
    """Return the supported data types in the order of DType, or ``host`` for an operator that the host executes."""
    if definition.kind in (OpKind.HOST, OpKind.CUSTOM):
        return ["host"]
    support = definition.dtypes[chip]
    used = {dtype for case in support.cases for dtype in case.operands.get(ALL, ())}
    used |= {dtype for case in support.cases for types in case.operands.values() for dtype in types}
    return [dtype.value + ("*" if _is_unfinished(support, dtype) else "") for dtype in DType if dtype in used]


def _is_unfinished(support: Support, dtype: DType) -> bool:
    return support.todo or dtype in support.todo_dtypes
