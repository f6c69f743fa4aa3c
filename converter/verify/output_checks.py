"""Detection of NaN outputs and constant outputs, which are errors even if they equal the outputs of the source.

An output with NaN fails. So does a dead output: a float output, or integers with a scale, with more than one element,
all of which have the same value in all samples. Outputs of the model and of the source are checked.

Some constant outputs are legitimate and not reported: outputs that depend on no input, integers without a scale
(shapes, indices, masks), floats converted from such integers (labels and counts), results of a detection (only padding
if no object is found), and outputs with a single element. Infinite outputs, such as masked logits, do not fail, but the
report counts them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from tpuconvert.schema.definition.op import Trait
from tpuconvert.schema.graph.graph import Graph, Port, Value
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.types import Array
from tpuconvert.text.text_format import several


@dataclass()
class OutputStatistics:
    """Values of one output of one program over all samples.

    Args:
        name: name of the output.
        may_be_dead: whether a constant output is legitimate.

    """

    name: str
    may_be_dead: bool
    samples: int = 0
    elements: int = 0
    nans: int = 0
    largest_size: int = 0
    _seen: set[float] = field(default_factory=set)

    def add(self, array: Array) -> None:
        """Add one sample."""
        self.samples += 1
        self.elements += array.size
        self.largest_size = max(self.largest_size, array.size)
        if not array.size:
            return
        if array.dtype.kind == "f":
            self.nans += int(np.count_nonzero(np.isnan(array)))
        if len(self._seen) < 2:
            self._seen.update((float(array.min()), float(array.max())))

    @property
    def is_dead(self) -> bool:
        """True if the output has one value everywhere and this is not legitimate."""
        return not self.may_be_dead and not self.nans and self.largest_size > 1 and len(self._seen) == 1

    @property
    def is_varied(self) -> bool:
        """True if the output has more than one value."""
        return len(self._seen) > 1

    @property
    def value(self) -> float:
        """The only value of a dead output."""
        return next(iter(self._seen))


def output_statistics(graph: Graph) -> list[OutputStatistics]:
    """Create empty statistics for the outputs of a graph."""
    reached = _computed_from(graph, graph.inputs)
    padded = _computed_from(graph, [value for node in graph.nodes if node.op.pads_results for value in node.outputs])
    return [
        OutputStatistics(port.name, value not in reached or value in padded or not _has_float_meaning(port, value))
        for port, value in zip(graph.output_ports, graph.outputs, strict=True)
    ]


@dataclass()
class EngineOutput:
    """One output on the samples that another engine ran: as the engine computes it, and as the source was read."""

    engine: OutputStatistics
    reading: OutputStatistics

    @property
    def contradiction(self) -> str:
        """A fault that the reading has and the engine has not; empty if there is none."""
        name, size = self.reading.name, several(self.reading.elements, "element")
        if self.reading.nans and not self.engine.nans:
            return f"output '{name}' has NaN in {self.reading.nans:,} of {size} of the converted model, none in"
        if self.reading.is_dead and self.engine.is_varied:
            return f"output '{name}' is {self.reading.value:g} in all of {size} of the converted model, not in"
        return ""


def output_problems(
    source: Iterable[OutputStatistics],
    model: Iterable[OutputStatistics],
    *,
    allow_nan: bool,
    engine: str = "",
    heard: Mapping[str, EngineOutput] | None = None,
) -> list[str]:
    """Describe NaN outputs and dead outputs.

    Args:
        source: statistics of the source's outputs.
        model: statistics of the model's outputs, in the same order.
        allow_nan: whether NaN is accepted in an output if source and model both have it.
        engine: name of another engine.
        heard: outputs that it computes. Faults that it contradicts are left out, because the import made them.

    """
    problems = []
    for theirs, mine in zip(source, model, strict=True):
        other = (heard or {}).get(mine.name)
        if other is not None and other.contradiction:
            continue
        if (theirs.nans or mine.nans) and not (allow_nan and theirs.nans == mine.nans):
            problems.append(
                f"output '{mine.name}' has NaN: {mine.nans:,} of {several(mine.elements, 'element')} in the model, "
                f"{theirs.nans:,} in the source as "
                + (f"{engine} computes it" if other is not None and other.engine.nans else "it was read")
            )
        elif mine.is_dead or theirs.is_dead:
            dead = mine if mine.is_dead else theirs
            where = "the model and the source" if mine.is_dead and theirs.is_dead else "the model alone"
            if not mine.is_dead:
                where = "the source alone"
            problems.append(
                f"output '{mine.name}' is dead: all of {several(dead.elements, 'element')} in "
                f"{several(dead.samples, 'sample')} are {dead.value:g}, in {where}"
            )
    return problems


def _computed_from(graph: Graph, values: Iterable[Value]) -> set[Value]:
    """Return the values and all values that depend on them."""
    reached = set(values)
    for node in graph.sorted_nodes():
        if any(value in reached for value in node.inputs):
            reached.update(node.outputs)
    return reached


def _has_float_meaning(port: Port, value: Value) -> bool:
    """Return True for floats and for integers with a scale, False for indices, masks and counts."""
    if port.dtype == "bool" or (np.dtype(_numpy_name(port)).kind in "iu" and port.quant is None):
        return False
    return not _is_made_of_integers(value)


def _numpy_name(port: Port) -> str:
    return "float32" if port.dtype == "bfloat16" else port.dtype


def _is_made_of_integers(value: Value) -> bool:
    """Return True for integers without a scale, including results of casting or moving such integers."""
    if value.dtype.is_integer:
        return value.quant is None
    node = value.producer
    if node is None:
        return False
    operands = [operand for operand in node.inputs if operand is not None and not operand.is_constant]
    if isinstance(node.op, Cast) or Trait.MOVES_DATA in node.op.traits:
        return bool(operands) and all(map(_is_made_of_integers, operands))
    return False
