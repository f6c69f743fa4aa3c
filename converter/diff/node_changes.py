"""Differences between matched nodes: parameters, types, scales, constants and names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tpuconvert.diff.change import Change
from tpuconvert.diff.constants import compare_data, is_within_one_step
from tpuconvert.diff.network import (
    computes_in_integers,
    constant_operands,
    family,
    plain_parameters,
    rescaling_parameters,
)
from tpuconvert.diff.node_pairs import Matching
from tpuconvert.model.description import scale_text
from tpuconvert.operators.description import format_value
from tpuconvert.optimizer.engine.node_properties import computed_operands
from tpuconvert.optimizer.quantize.traits import keeps_scale
from tpuconvert.schema.definition.op import Trait, operands_given
from tpuconvert.schema.graph.graph import Node, Value
from tpuconvert.schema.types import QuantParams, format_shape


def changes_precision(before: Node, after: Node) -> bool:
    """Return True if one node computes in float and the other, which does the same, in integers."""
    is_same = family(before.op) == family(after.op)
    return computes_in_integers(before) != computes_in_integers(after) or (is_same and before.op.name != after.op.name)


class PairChanges:
    """Compares matched nodes. A constant that several nodes use is compared once."""

    def __init__(self, matching: Matching) -> None:
        self._matching = matching
        self._constants: set[tuple[int, int]] = set()

    def compare(self, position: int) -> list[Change]:
        """Return the differences of one node, which is matched, from its partner."""
        matching = self._matching
        before, after = matching.first.nodes[position], matching.second.nodes[matching.partner[position]]
        indices: dict[str, Any] = {"nodes_before": (position,), "nodes_after": (matching.partner[position],)}
        common = {"name": after.name, **indices}
        pairs = list(zip(before.outputs, after.outputs, strict=False))
        names = [(first.name, second.name) for first, second in pairs if first.name != second.name]
        renamed = [Change("names", "renamed", new, before=old, after=new, **indices) for old, new in names]
        if matching.first.exact_labels[position] == matching.second.exact_labels[matching.partner[position]]:
            return renamed
        operands = list(zip(computed_operands(before), computed_operands(after), strict=False))
        is_reshaped = any(first.shape != second.shape for first, second in operands)
        is_typed = any(first.dtype is not second.dtype for first, second in operands)
        is_rescaled = any(first.quant != second.quant for first, second in operands)
        is_other = changes_precision(before, after) or before.op.name != after.op.name
        changes: list[Change] = []
        if not is_other:
            changes += _attributes(before, after, common, is_reshaped)
            changes += self._constants_of(before, after, common, is_reshaped, is_rescaled)
        has_reasons = (
            is_reshaped or is_other or any(c.category == "attributes" or c.what.endswith("shape") for c in changes)
        )
        for first, second in pairs:
            changes += _types(first, second, common, has_reasons, is_typed, is_other)
        if not is_other:
            changes += _scales_of(before, after, common, is_rescaled, changes)
            changes += renamed
        return changes

    def _constants_of(
        self, before: Node, after: Node, common: dict[str, Any], is_reshaped: bool, is_rescaled: bool
    ) -> Iterator[Change]:
        declared = operands_given(type(after.op).inputs, max(len(before.inputs), len(after.inputs)))
        has_shapes = is_reshaped
        constants = [dict(constant_operands(node)) for node in (before, after)]
        for slot in sorted({*constants[0], *constants[1]}):
            old, new = (each.get(slot) for each in constants)
            operand = declared[slot if new is None else _index(after, new)]
            if old is None or new is None:
                other = before if old is None else after
                if slot >= len(other.inputs) or other.inputs[slot] is None:  # a computed operand is reported as rewired
                    action = "added" if old is None else "removed"
                    yield Change("constants", action, what=operand.name, before=_text(old), after=_text(new), **common)
                continue
            if (id(old), id(new)) in self._constants:
                continue
            self._constants.add((id(old), id(new)))
            if old.shape != new.shape:
                yield Change(
                    "constants",
                    "changed",
                    what=f"{operand.name} shape",
                    before=_text(old),
                    after=_text(new),
                    follows=has_shapes,
                    **common,
                )
                has_shapes = True
                continue
            yield from _data(old, new, operand.name, common, is_rescaled)
            is_rescaled = is_rescaled or old.quant != new.quant


def _index(node: Node, operand: Value) -> int:
    """Return the index of an operand, which for a commutative operator differs from the one used for comparisons."""
    return next(index for index, value in enumerate(node.inputs) if value is operand)


def output_constants(matching: Matching) -> Iterator[Change]:
    """Return differences of constants that are outputs."""
    for a, b in matching.outputs:
        old, new = matching.first.graph.outputs[a], matching.second.graph.outputs[b]
        if old.is_constant and new.is_constant and old.shape == new.shape:
            name = matching.second.graph.output_ports[b].name
            yield from _data(old, new, "output", {"name": name}, is_rescaled=False)


def _attributes(before: Node, after: Node, common: dict[str, Any], is_reshaped: bool) -> Iterator[Change]:
    old, new = plain_parameters(before), plain_parameters(after)
    moves = Trait.MOVES_DATA in before.op.traits
    for name in dict.fromkeys((*old, *new)):
        first, second = old.get(name), new.get(name)
        if repr(first) != repr(second):
            yield Change(
                "attributes",
                "changed",
                what=name,
                before=format_value(first),
                after=format_value(second),
                follows=is_reshaped and moves,
                **common,
            )


def _scales_of(
    before: Node, after: Node, common: dict[str, Any], is_rescaled: bool, changes: list[Change]
) -> Iterator[Change]:
    """Return changed quantization parameters. Scales of accumulators and data movement follow from the operands."""
    has_weights = any(change.category in ("constants", "scales") for change in changes)
    has_quant = False
    for number, (first, second) in enumerate(zip(before.outputs, after.outputs, strict=False)):
        if first.quant == second.quant:
            continue
        has_quant = True
        is_derived = keeps_scale(before.op) or second.dtype.bits > 16
        yield Change(
            "scales",
            "changed",
            what=f"result {number}" if len(after.outputs) > 1 else "result",
            before=_quant_text(first.quant),
            after=_quant_text(second.quant),
            follows=is_derived and (is_rescaled or has_weights),
            severity=_scale_distance(first.quant, second.quant),
            **common,
        )
    old, new = rescaling_parameters(before), rescaling_parameters(after)
    names = [name for name in old if repr(old[name]) != repr(new.get(name))]
    if names:
        yield Change(
            "scales",
            "changed",
            what=", ".join(names),
            before=", ".join(_short(old[name]) for name in names),
            after=", ".join(_short(new.get(name)) for name in names),
            follows=has_quant or is_rescaled,
            **common,
        )


def _types(
    first: Value, second: Value, common: dict[str, Any], has_reasons: bool, is_typed: bool, is_other: bool
) -> Iterator[Change]:
    """Return a changed shape, and a changed data type unless the node computes in other arithmetic."""
    if first.shape != second.shape:
        yield Change(
            "types",
            "changed",
            what="shape",
            before=format_shape(first.shape),
            after=format_shape(second.shape),
            follows=has_reasons,
            **common,
        )
    if first.dtype is not second.dtype and not is_other:
        yield Change(
            "types",
            "changed",
            what="data type",
            before=first.dtype.value,
            after=second.dtype.value,
            follows=is_typed,
            **common,
        )


def _data(old: Value, new: Value, operand: str, common: dict[str, Any], is_rescaled: bool) -> Iterator[Change]:
    """Return differences of two constants of one shape."""
    if old.dtype is not new.dtype:
        yield Change(
            "constants",
            "changed",
            what=f"{operand} data type",
            before=old.dtype.value,
            after=new.dtype.value,
            **common,
        )
    if old.quant != new.quant:
        yield Change(
            "scales",
            "changed",
            what=operand,
            before=_quant_text(old.quant),
            after=_quant_text(new.quant),
            severity=_scale_distance(old.quant, new.quant),
            **common,
        )
    measured = compare_data(old, new)
    if measured is None:
        return
    largest, magnitude = measured.max_difference, measured.magnitude
    is_bias = new.dtype.is_integer and new.dtype.bits > 8
    has_other_steps = old.quant != new.quant and is_within_one_step(old, new)
    yield Change(
        "constants",
        "changed",
        what=operand,
        before=_text(old),
        after=_text(new),
        follows=has_other_steps or (is_rescaled and is_bias),
        severity=float("inf") if largest is None else largest / (magnitude or 1.0),
        measured=measured,
        **common,
    )


def _text(value: Value | None) -> str:
    return "-" if value is None else f"{value.dtype.value}{format_shape(value.shape)}"


def _quant_text(quant: QuantParams | None) -> str:
    if quant is None:
        return "-"
    return scale_text(
        {
            "scale": list(quant.scale),
            "zero_point": list(quant.zero_point),
            "dtype": quant.dtype.value,
            "axis": quant.axis,
        }
    )


def _short(value: object) -> str:
    text = format_value(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _scale_distance(first: QuantParams | None, second: QuantParams | None) -> float:
    """Largest ratio of the scales minus 1; infinite if one side has none."""
    if first is None or second is None:
        return float("inf")
    pairs = zip(first.scale, second.scale, strict=True) if len(first.scale) == len(second.scale) else ()
    return max((max(a / b, b / a) - 1.0 for a, b in pairs), default=1.0)
