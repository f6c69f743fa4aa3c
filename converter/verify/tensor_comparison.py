"""Tensors of two programs for one model, matched by name while the programs run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tpuconvert.optimizer.quantize.traits import keeps_scale
from tpuconvert.schema.graph.graph import Graph, Port, Value
from tpuconvert.schema.types import Array, format_shape
from tpuconvert.verify.difference import Difference
from tpuconvert.verify.exactness import Codes, steps_between
from tpuconvert.verify.oracle import Statement

CHANNELS_FIRST = ":nchw"
RESHAPED = ":reshaped"
"""Suffix of a tensor name: the tensor has the elements of the source's tensor in the same order, in another shape."""


class Match(NamedTuple):
    """Match of a tensor of the source program with a tensor of another program.

    Args:
        key: name of the tensor in the source program.
        name: name of the tensor in the source file.
        moves: axis to move and its new position, to get the axis order of the other program; None for equal orders.

    """

    key: str
    name: str
    moves: tuple[int, int] | None = None

    def arrange(self, array: Array) -> Array:
        """Permute the axes of the source's tensor to the order of the other program."""
        return array if self.moves is None else np.moveaxis(array, *self.moves)


def find_match(name: str, values: Mapping[str, Array]) -> Match | None:
    """Find the source's tensor for a tensor name of another program."""
    if name in values:
        return Match(name, name)
    if name.endswith(CHANNELS_FIRST):
        plain = name.removesuffix(CHANNELS_FIRST)
        return Match(plain, plain, (-1, 1)) if plain in values and values[plain].ndim >= 3 else None
    other = name + CHANNELS_FIRST
    return Match(other, name, (1, -1)) if other in values and values[other].ndim >= 3 else None


class SourceTensors:
    """Tensors of the source program for one sample, by name: dequantized values, and for integers also the codes."""

    def __init__(self) -> None:
        self.values: dict[str, Array] = {}
        self.codes: dict[str, Codes] = {}

    def clear(self) -> None:
        """Remove the tensors of a sample."""
        self.values.clear()
        self.codes.clear()

    def remember(self, value: Value, array: Array) -> None:
        """Store one tensor."""
        if value.quant is not None and value.dtype.is_integer:
            self.codes[value.name] = Codes(array, value.quant)
            array = value.quant.dequantize(array)
        self.values[value.name] = array


@dataclass()
class Comparison:
    """Differences between a program's tensors and the source's, collected while the program runs."""

    source: SourceTensors
    by_name: dict[str, Difference] = field(default_factory=dict)
    unmatched: set[str] = field(default_factory=set)
    origins: dict[Value, tuple[str, ...]] = field(default_factory=dict)
    """Compared tensors whose noise is in a value: the value itself, or else the nearest ones it is computed from."""

    def compare(self, value: Value, array: Array) -> None:
        """Compare one tensor with the tensor of the same name in the source."""
        match = find_match(value.name.removesuffix(RESHAPED), self.source.values)
        quant = value.quant if value.dtype.is_integer else None
        real = quant.dequantize(array) if quant is not None else array
        self.origins[value] = origins = _origins(value, self.origins)
        if match is None:
            self.unmatched.add(value.name)
            return
        expected = match.arrange(self.source.values[match.key])
        is_reshaped = value.name.endswith(RESHAPED) and expected.size == real.size
        if expected.shape != real.shape and not is_reshaped:
            self.unmatched.add(value.name)
            return
        name = match.name
        difference = self.by_name.setdefault(name, Difference(name))
        if name not in origins:  # otherwise a layout change of a tensor that was compared before
            difference.op = value.producer.op.name if value.producer is not None else "input"
            difference.reads = origins
            difference.moves = value.producer is not None and keeps_scale(value.producer.op)
        difference.add(expected.reshape(real.shape), real, quant)
        codes = self.source.codes.get(match.key)
        if codes is not None and quant is not None:
            theirs = Codes(match.arrange(codes.array).reshape(array.shape), codes.quant)
            difference.add_steps(steps_between(theirs, Codes(array, quant)))
        self.origins[value] = (name,)

    def compare_source(self, graph: Graph, values: Mapping[str, Array]) -> None:
        """Compare the source's tensors with another engine: floats by value, integers by their codes."""
        operators = {value.name: node.op.name for node in graph.nodes for value in node.outputs}
        for key, mine in self.source.values.items():
            match = find_match(key, values)
            if match is None or key not in operators:
                continue
            codes = self.source.codes.get(key)
            expected = match.arrange(values[match.key])
            if codes is not None:
                if expected.dtype == codes.array.dtype and expected.shape == codes.array.shape:
                    difference = self._import_difference(key, operators[key])
                    difference.add(codes.quant.dequantize(expected), mine)
                    difference.add_steps(steps_between(Codes(expected, codes.quant), codes))
            elif mine.dtype.kind == expected.dtype.kind == "f" and (
                expected.shape == mine.shape or expected.size == mine.size == 1
            ):
                self._import_difference(key, operators[key]).add(expected.reshape(mine.shape), mine)

    def _import_difference(self, name: str, op: str) -> Difference:
        return self.by_name.setdefault(name, Difference(name, op, "import"))


def _origins(value: Value, origins: dict[Value, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the nearest compared tensors from which a value is computed."""
    inputs = value.producer.inputs if value.producer is not None else ()
    return tuple(dict.fromkeys(name for item in inputs if item is not None for name in origins.get(item, ())))


def compare_outputs(
    ports: Sequence[Port], mine: Mapping[str, Array], statement: Statement, differences: Mapping[str, Difference]
) -> list[str]:
    """Compare outputs with another engine, and return messages about outputs with another shape."""
    messages = []
    for port, theirs in pair_outputs(ports, statement):
        array = mine[port.name]
        if theirs.shape != array.shape:
            shapes = f"{format_shape(array.shape)} in the converted model, {format_shape(theirs.shape)} in"
            messages.append(f"output '{port.name}' has the shape {shapes}")
        else:
            add_output(differences[port.name], port, theirs, port, array)
    return messages


def pair_outputs(ports: Sequence[Port], statement: Statement) -> Iterator[tuple[Port, Array]]:
    """Yield port and engine's array of outputs, by name, or by position where a signature has other names."""
    same_count = len(ports) == len(statement.outputs)
    for number, port in enumerate(ports):
        name = statement.outputs[number] if same_count and port.name not in statement.tensors else port.name
        if name in statement.tensors:
            yield port, statement.tensors[name]


def add_output(difference: Difference, expected_port: Port, expected: Array, port: Port, actual: Array) -> None:
    """Compare one sample's output: by value, and integers with a scale also as codes."""
    difference.add(_dequantize(expected, expected_port), _dequantize(actual, port))
    if _has_codes(expected, expected_port) and _has_codes(actual, port):
        assert expected_port.quant is not None
        assert port.quant is not None
        difference.add_steps(steps_between(Codes(expected, expected_port.quant), Codes(actual, port.quant)))


def _has_codes(array: Array, port: Port) -> bool:
    return port.quant is not None and array.dtype.kind in "iu"


def _dequantize(array: Array, port: Port) -> Array:
    return port.quant.dequantize(array) if port.quant is not None and array.dtype.kind in "iu" else array
