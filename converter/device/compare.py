"""Comparison of dumped tensors of a device, or of any engine, with a model."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tpuconvert.device.faults import Evidence, Fault, classify
from tpuconvert.exporters.program_digest import program_digest
from tpuconvert.model.model import Model
from tpuconvert.runtime.session.session import Session
from tpuconvert.samples.array_files import load_arrays
from tpuconvert.schema.errors import CorruptInputError, ThresholdError, UsageError
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.types import Array
from tpuconvert.text.result import Result
from tpuconvert.text.styled_text import concat, style

DIGEST = "program_digest"
"""Key of a dump file with the digest of the program that was compiled."""

LISTED = 10
"""Differing tensors that are listed as text."""

SUFFIXES = ("f32", "f16", "i8", "u8", "i16", "u16", "i32", "si8", "ui8", "si16", "ui16", "si32")
"""Suffixes that compilers append to the names of tensors."""


@dataclass(frozen=True)
class TensorDifference:
    """One tensor in which the dump differs.

    Attributes:
        name: of the tensor.
        operator: that computes it; ``input`` for a graph input.
        differing: number of elements that differ, in all samples.
        elements: number of elements.
        largest: largest difference of two integers.
    """

    name: str
    operator: str
    differing: int
    elements: int
    largest: int


@dataclass(frozen=True, repr=False)
class DumpComparison(Result, hidden=("equal",), keys={"equal_tensors": "equal"}):
    """Result of a comparison.

    Attributes:
        equal: integer tensors with equal elements.
        differing: the others, in execution order.
        missing: integer tensors without a dump.
        unknown: dumps of no integer tensor of the model.
        fault: explanation of the first difference.
    """

    equal: tuple[str, ...]
    differing: tuple[TensorDifference, ...]
    missing: tuple[str, ...]
    unknown: tuple[str, ...]
    fault: Fault | None

    @property
    def equal_tensors(self) -> int:
        """Number of integer tensors with equal elements."""
        return len(self.equal)

    @property
    def is_equal(self) -> bool:
        """True if no tensor differs."""
        return not self.differing

    def check(self) -> None:
        """Check that no tensor differs.

        Raises:
            ThresholdError: a tensor differs.

        """
        if not self.is_equal:
            count, first = len(self.differing), self.differing[0].name
            raise ThresholdError(f"{count} tensors differ, the first is '{first}'")

    def lines(self) -> list[str]:
        """Return the numbers of tensors, those that differ, and the explanation of the first."""
        equal, differing, missing = len(self.equal), len(self.differing), len(self.missing)
        verdict = style(f"{differing} differ", "bad" if differing else "good")
        lines = [concat([f"{equal} tensors are equal, ", verdict, f", {missing} have no dump"])]
        if self.unknown:
            lines.append(f"no integer tensor of the model: {', '.join(self.unknown[:LISTED])}")
        for item in self.differing[:LISTED]:
            elements = f"{item.differing} of {item.elements} elements differ, by at most {item.largest}"
            lines.append(f"  {item.name}  ({item.operator})  {elements}")
        if self.fault is not None:
            lines += [f"first difference: {self.fault.kind}: {self.fault.text}", f"next: {self.fault.hint}"]
        return lines


def load_dumps(path: str) -> dict[str, Array]:
    """Read a dump file.

    Raises:
        UsageError: there is no such file.
        CorruptInputError: it is not an ``.npz`` file of arrays.
    """
    if not os.path.isfile(path):
        raise UsageError("no such file", file=path, hint="expected the .npz file that run_device.py writes")
    dumps = load_arrays(Path(path))
    if "" in dumps:
        raise CorruptInputError(
            "one array without a name", file=path, hint="expected an .npz file with one array per tensor"
        )
    return dumps


def compare_dumps(model: Model, dumps: Mapping[str, Array], feeds: Sequence[Mapping[str, Array]]) -> DumpComparison:
    """Compare dumps with the integers of the model, and explain the first difference.

    Args:
        model: the model that was compiled.
        dumps: tensors by name, samples along a new first axis; without it for one sample. Float tensors are
            dequantized values. ``program_digest``, if present, must equal the digest of the model.
        feeds: inputs of the model in the order of the samples.

    Raises:
        UsageError: a dump of another program, no tensor of the model, or another number of elements.
    """
    graph = model.graph
    _check_program(graph, dumps)
    named = _by_value(graph, dumps)
    if not named:
        raise UsageError(
            "the dumps contain no integer tensor of the model",
            file=graph.file,
            hint="name the tensors as 'tpuconvert inspect' does",
        )
    dumped = {value: _as_integers(value, array, len(feeds)) for value, array in named.items()}
    counts: dict[Value, list[int]] = {}
    with Session(graph, observed=True) as session:
        for index, feed in enumerate(feeds):

            def observe(value: Value, array: Array, index: int = index) -> None:
                if value in dumped:
                    distance = np.abs(array.astype(np.int64) - dumped[value][index].astype(np.int64))
                    count = counts.setdefault(value, [0, 0, 0])
                    count[0] += int(np.count_nonzero(distance))
                    count[1] += distance.size
                    count[2] = max(count[2], int(distance.max(initial=0)))

            session.run(feed, observe=observe)
    differing = [value for value in _integer_values(graph) if value in counts and counts[value][0]]
    equal = {value for value in counts if not counts[value][0]}
    fault = _explain(model, differing[0], dumped, equal, feeds) if differing else None
    keys = set(dumps) - {DIGEST}
    return DumpComparison(
        tuple(value.name for value in _integer_values(graph) if value in equal),
        tuple(TensorDifference(value.name, _operator(value), *counts[value]) for value in differing),
        tuple(value.name for value in _integer_values(graph) if value not in dumped),
        tuple(sorted(keys - {key for value in named for key in _keys(value, keys)})),
        fault,
    )


def _check_program(graph: Graph, dumps: Mapping[str, Array]) -> None:
    digest = dumps.get(DIGEST)
    if digest is not None and str(digest) != program_digest(graph):
        raise UsageError(
            "the dumps are of a program that was exported from another model file",
            file=graph.file,
            hint="export this model, compile it and run it again",
        )


def _integer_values(graph: Graph) -> list[Value]:
    """Return every integer value that is computed or entered, in execution order."""
    values = [*graph.inputs, *(value for node in graph.sorted_nodes() for value in node.outputs)]
    return [value for value in values if value.dtype.is_integer]


def _operator(value: Value) -> str:
    return value.producer.op.name if value.producer else "input"


def _keys(value: Value, keys: set[str]) -> list[str]:
    """Return the names under which a value may be dumped, the exact one first."""
    return [key for key in (value.name, *(f"{value.name}_{suffix}" for suffix in SUFFIXES)) if key in keys]


def _by_value(graph: Graph, dumps: Mapping[str, Array]) -> dict[Value, Array]:
    keys = set(dumps) - {DIGEST}
    pairs = ((value, _keys(value, keys)) for value in _integer_values(graph))
    return {value: np.asarray(dumps[names[0]]) for value, names in pairs if names}


def _as_integers(value: Value, array: Array, samples: int) -> Array:
    """Return a dump as integers [samples, *shape of the value].

    Raises:
        UsageError: the number of elements is wrong, or they are not numbers.
    """
    if array.dtype.kind not in "biuf":
        raise UsageError(f"the dump of '{value.name}' has type {array.dtype}, expected numbers")
    shape = (samples, *(extent if isinstance(extent, int) else -1 for extent in value.shape))
    try:
        shaped = array.reshape(shape)
    except ValueError:
        raise UsageError(
            f"the dump of '{value.name}' has shape {list(array.shape)}, expected {list(shape)}",
            hint="samples are along the first axis",
        ) from None
    if array.dtype.kind == "f" and value.quant is not None:
        return np.stack([value.quant.quantize(sample) for sample in shaped])
    return shaped.astype(value.dtype.numpy)


def _explain(
    model: Model, value: Value, dumped: Mapping[Value, Array], equal: set[Value], feeds: Sequence[Mapping[str, Array]]
) -> Fault:
    """Classify the first difference, in the first sample that has one."""
    nodes = _nodes_before(model.graph, value, equal)
    needed = {value, *(operand for node in nodes for operand in (*node.inputs, *node.outputs) if operand is not None)}
    for index, feed in enumerate(feeds):
        arrays: dict[Value, Array] = {item: item.array for item in needed if item.is_constant}

        def observe(item: Value, array: Array, arrays: dict[Value, Array] = arrays) -> None:
            if item in needed:
                arrays[item] = np.array(array)

        with Session(model.graph, observed=True) as session:
            session.run(feed, observe=observe)
        if not np.array_equal(arrays[value], dumped[value][index]):
            break
    roots = {operand for node in nodes for operand in node.inputs if operand is not None and operand.producer is None}
    computed = {operand for node in nodes for operand in node.inputs if operand is not None} - roots
    inner = {result for node in nodes for result in node.outputs}
    from_input = value.producer is None or (
        computed <= inner and any(not root.is_constant for root in roots) and not any(_has_weights(n) for n in nodes)
    )
    return classify(Evidence(value, arrays[value], dumped[value][index], nodes, arrays, model.chip, from_input))


def _has_weights(node: Node) -> bool:
    return any(operand is not None and operand.is_constant for operand in node.inputs)


def _nodes_before(graph: Graph, value: Value, equal: set[Value]) -> list[Node]:
    """Return the nodes between tensors that are equal on the device and a value, in execution order."""
    needed: set[Node] = set()
    stack = [value]
    while stack:
        node = stack.pop().producer
        if node is None or node in needed:
            continue
        needed.add(node)
        stack += [operand for operand in node.inputs if operand is not None and operand not in equal]
    return [node for node in graph.sorted_nodes() if node in needed]
