"""Problems of nodes that cannot be converted while an extent of the inputs is open, and what to type instead."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

from tpuconvert.frontends import open_extents
from tpuconvert.frontends.onnx.node import OnnxTensor
from tpuconvert.schema.errors import UNKNOWN_SHAPE, ProblemList
from tpuconvert.schema.graph import Graph, Port
from tpuconvert.schema.types import Shape, format_shape

OpenQuestion = tuple[str, str, str, Sequence[OnnxTensor | None]]
"""Operator and name of a node that has to know an extent which is open, that extent, and what the node reads."""


@dataclass(frozen=True)
class _Place:
    """A tensor with its shape, or with the extents that are its elements."""

    tensor: str
    extents: Shape
    are_elements: bool = False

    def __str__(self) -> str:
        return f"'{self.tensor}' {'holds' if self.are_elements else 'has the shape'} {format_shape(self.extents)}"


@dataclass(frozen=True)
class _Problem:
    op: str
    node: str
    extent: str
    place: _Place | None


def tell(questions: Iterable[OpenQuestion], problems: ProblemList, graph: Graph, inputs: Container[str]) -> None:
    """Turn open questions into problems of the model, which all tell the same shapes to type.

    Where there are none, it is noted which extents of the model's inputs stay open.
    """
    found = [_Problem(op, node, extent, _place(extent, tensors)) for op, node, extent, tensors in questions]
    ports = [port for port in graph.input_ports if port.name in inputs]
    hint = _hint(ports, {name for problem in found for name in _asked(problem)})
    for problem in found:
        where = f": {problem.place}" if problem.place else ""
        problems.add(UNKNOWN_SHAPE, problem.op, problem.node, f"'{problem.extent}' has to be a number{where}", hint)
    names = dict.fromkeys(extent for port in ports for extent in port.shape if isinstance(extent, str))
    if names and not found:
        said = ", ".join(names)
        graph.notes.append(f"extents of the inputs that stay open: {said}; --input-shapes sets numbers")


def _place(extent: str, tensors: Iterable[OnnxTensor | None]) -> _Place | None:
    """The tensor that has the extent, or one with extents of the same names."""
    names = open_extents.names_in(extent)
    places = [_place_of(tensor) for tensor in tensors if tensor is not None]
    exact = [place for place in places if extent in place.extents]
    alike = [place for place in places if names & open_extents.names_in(" ".join(map(str, place.extents)))]
    return next(iter([*exact, *alike]), None)


def _place_of(tensor: OnnxTensor) -> _Place:
    if tensor.array is not None and open_extents.is_shape_tensor(tensor.array):
        return _Place(tensor.name, open_extents.to_shape(list(tensor.array.flat)), are_elements=True)
    return _Place(tensor.name, tensor.shape)


def _asked(problem: _Problem) -> set[str]:
    """The names that are to become numbers: one side of a picture needs the other, one element of a shape the rest."""
    names = open_extents.names_in(problem.extent)
    if problem.place is None:
        return names
    related = problem.place.extents if problem.place.are_elements else problem.place.extents[1:]
    found = open_extents.names_in(" ".join(map(str, related)))
    return names | found if names & found else names


def _hint(ports: Iterable[Port], symbols: set[str]) -> str:
    """The option with numbers for some names; of the others the names themselves."""
    shapes = []
    blanks = False
    for port in ports:
        if symbols.isdisjoint(str(extent) for extent in port.shape):
            continue
        texts = []
        for axis, extent in enumerate(port.shape):
            is_asked = extent in symbols
            blanks = blanks or (is_asked and axis > 0)
            texts.append(str(extent) if not is_asked else "1" if axis == 0 else f"<{extent}>")
        shapes.append(f"{port.name}={','.join(texts)}")
    if not shapes:
        return ""
    how = "with numbers for what is in angle brackets:  " if blanks else "state a number, for example:  "
    return f"{how}--input-shapes {','.join(shapes)}"


def open_extent_of(tensors: Sequence[OnnxTensor | None]) -> str:
    """An open extent of some tensors, empty where there is none."""
    shapes = (_place_of(tensor).extents for tensor in tensors if tensor is not None)
    return next((extent for shape in shapes for extent in shape if isinstance(extent, str)), "")
