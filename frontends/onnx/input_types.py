"""Element types and shapes of the graph inputs: those in the file, completed by the caller's shapes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tpuconvert.frontends import open_extents
from tpuconvert.frontends.input_patterns import expand_patterns
from tpuconvert.frontends.onnx import cache_inputs
from tpuconvert.frontends.onnx.file.element_types import ELEMENTS, FLOAT, Element, describe
from tpuconvert.frontends.onnx.file.messages import GraphProto, ValueInfoProto
from tpuconvert.schema.definition.extents import plus
from tpuconvert.schema.errors import TOO_LARGE, UNKNOWN_SHAPE, UNSUPPORTED_TYPE, ProblemList, UsageError
from tpuconvert.schema.system.limits import Limits
from tpuconvert.schema.text.spelling import did_you_mean
from tpuconvert.schema.types import MAX_RANK, Dim, Shape, format_shape

Declared = tuple[int | str | None, ...]
"""Extents in a file: a number, a name, or None if unknown."""


class InputType(NamedTuple):
    """Element type and extents of one input; () for rank 0."""

    element: Element
    shape: Shape


def declared_shape(info: ValueInfoProto) -> Declared | None:
    """Shape in the file, or None. Exporters write a dynamic extent as 0, -1 or '?'."""
    if not info.type.tensor_type.HasField("shape"):
        return None
    extents: list[int | str | None] = []
    for dim in info.type.tensor_type.shape.dim:
        if dim.HasField("dim_value") and dim.dim_value > 0:
            extents.append(int(dim.dim_value))
        elif dim.HasField("dim_param") and dim.dim_param not in ("", "?", "-1", "None"):
            extents.append(dim.dim_param)
        else:
            extents.append(None)
    return tuple(extents)


def declared_element(info: ValueInfoProto) -> Element | None:
    """Element type in the file, or None if it is not supported."""
    return ELEMENTS.get(info.type.tensor_type.elem_type) if info.type.HasField("tensor_type") else None


def infos_of(graph: GraphProto) -> dict[str, ValueInfoProto]:
    """All type information of the file, by tensor name."""
    return {info.name: info for info in (*graph.value_info, *graph.output, *graph.input)}


_SYMBOL = r"[^\W\d]\w*\Z"
_SUM = r"\s*\w+(\s*\+\s*\w+)+\s*"
_NO_LETTER = r"\W+"


def _symbol(text: str) -> str:
    """Return a name of letters and digits for a symbolic extent."""
    symbol = re.sub(_NO_LETTER, "_", text)
    return symbol if re.match(_SYMBOL, symbol) else f"n{symbol}"


class InputTypes:
    """Determines the types of all inputs of one model; equal symbolic extents have the same value in all inputs.

    Args:
        infos: type information of the file.
        input_shapes: shapes from the caller, by input name or pattern; a name instead of a number keeps the extent
            symbolic.
        limits: bounds on sizes.
        file: name for messages.
    """

    def __init__(
        self, infos: Mapping[str, ValueInfoProto], input_shapes: Mapping[str, Sequence[Dim]], limits: Limits, file: str
    ) -> None:
        self._infos = infos
        self._requested = input_shapes
        self._input_shapes: dict[str, Sequence[Dim]] = {}
        self._limits = limits
        self._file = file
        self._extents: dict[str, Dim] = {}
        self.notes: list[str] = []

    def _with_names(self, name: str, shape: Sequence[Dim]) -> Sequence[Dim]:
        """Replace extents that the file determines by the names or numbers in the file.

        In the shape of a pattern, a name takes the number that the file has in its place.
        """
        declared = declared_shape(self._infos[name]) if name in self._infos else None
        if name not in self._requested and declared is not None and len(declared) == len(shape):
            pairs = zip(declared, shape, strict=True)
            shape = [own if isinstance(own, int) and isinstance(extent, str) else extent for own, extent in pairs]
        if open_extents.KEEP not in shape:
            return shape
        if declared is None or len(declared) != len(shape):
            declared = (None,) * len(shape)
        names = [
            extent if isinstance(extent, int) or (extent and re.match(_SYMBOL, extent)) else _symbol(f"{name}_{axis}")
            for axis, extent in enumerate(declared)
        ]
        return [own if extent == open_extents.KEEP else extent for own, extent in zip(names, shape, strict=True)]

    def find(self, names: Sequence[str], problems: ProblemList) -> dict[str, InputType]:
        """Return types by input name; an unknown type or shape becomes a problem.

        Raises:
            UsageError: a given shape does not match the model.
        """
        expanded = expand_patterns(self._requested, names, self._file)
        self._input_shapes = {name: self._with_names(name, shape) for name, shape in expanded.items()}
        unknown = [name for name in self._input_shapes if name not in names]
        if unknown:
            meant, listed = did_you_mean(unknown[0], names), f"its inputs: {', '.join(names)}"
            raise UsageError(
                f"input_shapes: the graph has no input {', '.join(map(repr, unknown))}",
                file=self._file,
                hint=f"{meant}\n{listed}" if meant else listed,
            )
        for name in names:
            if name in self._input_shapes:
                self._bind(name)
        for said, extent in self._assume(names).items():
            self._extents.setdefault(said, extent if isinstance(extent, int) else self._open(extent, is_named=True))
        types: dict[str, InputType] = {}
        for name in names:
            element = self._element(name, problems)
            shape = self._given_shape(name) if name in self._input_shapes else self._file_shape(name, problems)
            size = math.prod(extent for extent in shape or () if isinstance(extent, int))
            if shape is not None and size > self._limits.max_tensor_elements:
                problems.add(TOO_LARGE, "graph input", name, f"its shape is {format_shape(shape)}")
            elif element is not None and shape is not None:
                types[name] = InputType(element, shape)
        return types

    def _assume(self, names: Sequence[str]) -> dict[str, int | str]:
        """Extents of a decoder with caches that follow from its inputs; each adds a note."""
        declared = {name: declared_shape(self._infos[name]) or () for name in names if name in self._infos}
        extents, self.notes = cache_inputs.assumed_extents(declared, self._infos, self._extents)
        return extents

    def shape_in_file(self, info: ValueInfoProto) -> Shape | None:
        """Shape of any tensor in the file, with the symbolic extents of the inputs; None if it is incomplete."""
        declared = declared_shape(info)
        if declared is None or len(declared) > MAX_RANK:
            return None
        shape = tuple(self._extents.get(said, "") if isinstance(said, str) else said for said in declared)
        return tuple(extent for extent in shape if extent) if all(shape) else None

    def _element(self, name: str, problems: ProblemList) -> Element | None:
        info = self._infos.get(name)
        if info is None or not info.type.WhichOneof("value"):
            return FLOAT  # an intermediate tensor whose type is not in the file
        element = declared_element(info)
        if element is None:
            kind = info.type.WhichOneof("value") or ""
            is_tensor = kind == "tensor_type"
            what = describe(info.type.tensor_type.elem_type) if is_tensor else kind.removesuffix("_type")
            problems.add(UNSUPPORTED_TYPE, "graph input", name, f"its type is {what}", "supported: tensors of numbers")
        return element

    def _given_shape(self, name: str) -> Shape:
        return tuple(extent if isinstance(extent, str) else int(extent) for extent in self._input_shapes[name])

    def _bind(self, name: str) -> None:
        shape = self._given_shape(name)
        if any(isinstance(extent, int) and extent < 1 for extent in shape):
            raise UsageError(f"input_shapes: {name}={format_shape(shape)} has an extent below 1", file=self._file)
        if any(isinstance(extent, str) and not re.match(_SYMBOL, extent) for extent in shape):
            raise UsageError(
                f"input_shapes: {name}={format_shape(shape)}: extents are numbers, or names of letters and digits",
                file=self._file,
            )
        if len(shape) > MAX_RANK:
            raise UsageError(f"input_shapes: {name}={format_shape(shape)} has more than {MAX_RANK} axes")
        info = self._infos.get(name)
        declared = declared_shape(info) if info is not None else None
        if declared is None:
            return
        fits = len(declared) == len(shape) and all(
            not isinstance(said, int) or said == extent for said, extent in zip(declared, shape, strict=True)
        )
        if not fits:
            text = format_shape("?" if extent is None else extent for extent in declared)
            raise UsageError(
                f"input_shapes: {name}={format_shape(shape)} does not match the model's {text}",
                file=self._file,
                hint="give as many extents as the model has; only its dynamic extents can be set",
            )
        for said, extent in zip(declared, shape, strict=True):
            if isinstance(said, str) and self._extents.setdefault(said, extent) != extent:
                raise UsageError(
                    f"input_shapes: '{said}' is {self._extents[said]} in one input and {extent} in {name}",
                    file=self._file,
                )

    def _file_shape(self, name: str, problems: ProblemList) -> Shape | None:
        info = self._infos.get(name)
        declared = declared_shape(info) if info is not None else None
        if declared is None:
            problems.add(
                UNKNOWN_SHAPE,
                "graph input",
                name,
                "the model states no shape",
                f"give one: --input-shapes {name}=1,3,...",
            )
            return None
        if len(declared) > MAX_RANK:
            problems.add(UNKNOWN_SHAPE, "graph input", name, f"has {len(declared)} axes, more than {MAX_RANK}")
            return None
        return tuple(
            said if isinstance(said, int) else self._open(said or f"{name}_{axis}", is_named=said is not None)
            for axis, said in enumerate(declared)
        )

    def _open(self, said: str, is_named: bool) -> Dim:
        """Value of a dynamic extent: the number or name that the caller gave, or the name in the file."""
        if is_named and said in self._extents:
            return self._extents[said]
        if is_named and re.fullmatch(_SUM, said):
            terms = (term.strip() for term in said.split("+"))
            total = plus(*(int(term) if term.isdigit() else self._open(term, is_named=True) for term in terms))
            self._extents[said] = total
            return total
        symbol = _symbol(said)
        while symbol in self._extents.values() or symbol in open_extents.FUNCTIONS:
            symbol += "_"
        self._extents[said if is_named else f"{said} of no name"] = symbol
        return symbol
