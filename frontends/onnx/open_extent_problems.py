"""Nodes that need a number for a symbolic extent, with the option that sets it."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any, NamedTuple

from tpuconvert.frontends import open_extents
from tpuconvert.frontends.converter_errors import OF_NODE, translated_errors
from tpuconvert.frontends.onnx.node import Converted, OnnxNode, OnnxTensor
from tpuconvert.frontends.onnx.output_tensors import roots_of
from tpuconvert.frontends.open_extents import names_in
from tpuconvert.schema.errors import UNKNOWN_SHAPE, ProblemList
from tpuconvert.schema.graph.graph import Graph, Port
from tpuconvert.schema.types import Shape, format_shape

DynamicShapeProblem = tuple[str, str, str, Sequence[OnnxTensor | None]]
"""A node that requires a symbolic extent as a number: its operator, its name, the extent, and its inputs."""


_MOST_NODES = 4
"""Number of further nodes of one problem that a message names."""


class _TensorExtents(NamedTuple):
    """A tensor with symbolic extents in its shape, or as its elements."""

    tensor: str
    extents: Shape
    are_elements: bool = False

    def __str__(self) -> str:
        return f"'{self.tensor}' {'contains' if self.are_elements else 'has the shape'} {format_shape(self.extents)}"


class _Problem(NamedTuple):
    op: str
    node: str
    extent: str
    tensor: _TensorExtents | None
    roots: frozenset[str]


def report(nodes: Iterable[DynamicShapeProblem], problems: ProblemList, graph: Graph, inputs: Container[str]) -> None:
    """Add a problem for the nodes that need the same static extents, with a common hint that sets the inputs' shapes.

    Without such nodes, add a note with the extents of the inputs that stay symbolic.
    """
    unresolved = [
        _Problem(op, node, extent, _find_tensor(extent, tensors), roots_of(tensors))
        for op, node, extent, tensors in nodes
    ]
    ports = [port for port in graph.input_ports if port.name in inputs]
    hint = _hint(ports, {name for problem in unresolved for name in _required_extents(problem)})
    of_inputs = {name for port in graph.input_ports for extent in port.shape for name in names_in(str(extent))}
    causes: dict[frozenset[str], list[_Problem]] = {}
    for problem in unresolved:
        names_of_extent = frozenset(names_in(problem.extent))
        if names_of_extent & of_inputs:
            causes.setdefault(names_of_extent & of_inputs, []).append(problem)
            continue
        where = f": {problem.tensor}" if problem.tensor else ""
        message = f"the extent '{problem.extent}' depends on data and has to be a number here{where}"
        problems.add(UNKNOWN_SHAPE, problem.op, problem.node, message, needs=tuple(sorted(problem.roots)))
    for first, *others in causes.values():
        where = f": {first.tensor}" if first.tensor else ""
        message = f"'{first.extent}' has to be a number{where}{_also(others)}"
        problems.add(UNKNOWN_SHAPE, first.op, first.node, message, hint)
    names = dict.fromkeys(extent for port in ports for extent in port.shape if isinstance(extent, str))
    if names and not unresolved:
        listed = ", ".join(names)
        graph.notes.append(f"extents of the inputs that stay symbolic: {listed}; --input-shapes sets numbers")


def _also(others: Sequence[_Problem]) -> str:
    """List further nodes that need the same extents."""
    if not others:
        return ""
    names = ", ".join(f"{other.op} '{other.node}'" for other in others[:_MOST_NODES])
    more = f" and {len(others) - _MOST_NODES} more" if len(others) > _MOST_NODES else ""
    return f"; also for {names}{more}"


def _find_tensor(extent: str, tensors: Iterable[OnnxTensor | None]) -> _TensorExtents | None:
    """Return a tensor with this extent, or otherwise a tensor whose extents contain a name of this extent."""
    names = names_in(extent)
    candidates = [_extents_of(tensor) for tensor in tensors if tensor is not None]
    exact = [item for item in candidates if extent in item.extents]
    alike = [item for item in candidates if names & names_in(" ".join(map(str, item.extents)))]
    return next(iter([*exact, *alike]), None)


def _extents_of(tensor: OnnxTensor) -> _TensorExtents:
    if tensor.array is not None and open_extents.is_shape_tensor(tensor.array):
        return _TensorExtents(tensor.name, open_extents.to_shape(list(tensor.array.flat)), are_elements=True)
    return _TensorExtents(tensor.name, tensor.shape)


def _required_extents(problem: _Problem) -> set[str]:
    """Return the names that must get numbers: those in the extent, and related names in the same tensor."""
    names = names_in(problem.extent)
    if problem.tensor is None:
        return names
    related = problem.tensor.extents if problem.tensor.are_elements else problem.tensor.extents[1:]
    related_names = names_in(" ".join(map(str, related)))
    return names | related_names if names & related_names else names


def _hint(ports: Iterable[Port], symbols: set[str]) -> str:
    """Return a hint with an example of ``--input-shapes`` that replaces the given symbolic extents by numbers."""
    shapes = []
    blanks = False
    for port in ports:
        if symbols.isdisjoint(str(extent) for extent in port.shape):
            continue
        texts = []
        for axis, extent in enumerate(port.shape):
            is_asked = extent in symbols
            blanks = blanks or (is_asked and axis > 0)
            name = re.sub(r"\W+", "_", str(extent))  # an option takes names and numbers, no sums
            texts.append(name if not is_asked else "1" if axis == 0 else f"<{extent}>")
        shapes.append(f"{port.name}={','.join(texts)}")
    if not shapes:
        return ""
    how = "replace what is in angle brackets by numbers:  " if blanks else "state a number, for example:  "
    return f"{how}--input-shapes {','.join(shapes)}"


def open_extent_of(tensors: Sequence[OnnxTensor | None]) -> str:
    """Return the first symbolic extent of the tensors, or an empty string."""
    shapes = (_extents_of(tensor).extents for tensor in tensors if tensor is not None)
    return next((extent for shape in shapes for extent in shape if isinstance(extent, str)), "")


def run_converter(
    converter: Callable[..., Any], node: OnnxNode, graph: Graph, file: str, *, is_evaluator: bool = False
) -> Sequence[Converted]:
    """Run the converter of a node. Exceptions are translated by ``translated_errors``.

    Args:
        converter: function of the node and the graph.
        node: the source node.
        graph: receives the new nodes.
        file: name of the source for error messages.
        is_evaluator: True for a function that evaluates constants. It leaves their checks to NumPy, which raises
            IndexError for shapes and indices that do not fit.

    """
    of_node = (*OF_NODE, IndexError) if is_evaluator else OF_NODE
    with translated_errors(
        node.op_type, file, node.name, of_node=of_node, open_extent=lambda: open_extent_of(node.inputs)
    ):
        converted = converter(node, graph)
    return converted if isinstance(converted, (list, tuple)) else [converted]
