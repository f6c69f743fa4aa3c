"""Interface of a converter: a layer with its inputs, parameters and weights, and the decorator that registers it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tpuconvert.frontends.caffe.description import LayerDescription
from tpuconvert.frontends.caffe.parameters import Parameters
from tpuconvert.frontends.caffe.weights import Blob
from tpuconvert.frontends.cannot_convert import CannotConvertError
from tpuconvert.frontends.limits import Limits
from tpuconvert.frontends.registry import Kind, registry
from tpuconvert.schema.errors import INVALID_NODE, TOO_LARGE, UNKNOWN_SHAPE, UNSUPPORTED_ATTRIBUTE, ProblemKind
from tpuconvert.schema.graph import Graph, Value
from tpuconvert.schema.op import Op
from tpuconvert.schema.types import Array, format_shape

caffe_op = registry("caffe")
"""Decorator of a converter: ``@caffe_op("Convolution", "ConvolutionDepthwise")``."""

_LAYER_FIELDS = {"name", "type", "bottom", "top", "loss_weight", "param", "blobs", "include", "exclude", "phase"}
_LAYER_FIELDS |= {"propagate_down", "transform_param", "loss_param"}
"""Fields of a layer that say nothing about what it computes at inference, or that the importer reads itself."""


@dataclass(frozen=True)
class Declared:
    """A top that comes from outside: a graph input.

    Args:
        shape: as the layer gives it; None where the file does not say.
        needed: an input that is declared for inference. Others (tops of data layers, such as labels) become graph
            inputs only when a layer that is kept reads them.

    """

    shape: tuple[int, ...] | None
    needed: bool = True


@dataclass(frozen=True)
class RankZero:
    """A result that has no axes in Caffe; the graph holds it with shape [1]."""

    value: Value


Result = Value | Declared | RankZero | None
"""Result of a converter for one top; None for a top that does not exist at inference."""

Converted = Result | Sequence[Result]
"""Return value of a converter: one result per top, or None for a layer without results."""


@dataclass(frozen=True)
class Tiling:
    """Windows of a pooling layer that touch and do not overlap.

    Args:
        window: extents (height, width) of one window.
        plane: extents of the plane; windows at its end may reach beyond it.

    """

    window: tuple[int, int]
    plane: tuple[int, int]


@dataclass
class Findings:
    """Facts about the network that converters collect for other layers or the importer.

    Args:
        without_weights: layers that need weights and found none, because no weight file was given.
        tilings: for tensors of positions of maxima, the windows that the positions are in.

    """

    without_weights: list[str] = field(default_factory=list)
    tilings: dict[Value, Tiling] = field(default_factory=dict)


class CaffeNode:
    """One layer. Parameters that no converter read are reported when it is done."""

    def __init__(
        self,
        description: LayerDescription,
        graph: Graph,
        inputs: Sequence[Callable[[], Value]],
        blobs: list[Blob] | None,
        findings: Findings,
        limits: Limits,
    ) -> None:
        self.name: str = description.message.name
        self.type: str = description.message.type
        self.line = description.line
        self.limits = limits
        self.notes: list[str] = []
        self._description = description
        self._graph = graph
        self._inputs = inputs
        self._blobs = blobs
        self.findings = findings
        self._parameters: dict[str, Parameters] = {}
        self._blobs_read: set[int] = set()

    # Tensors

    @property
    def input_count(self) -> int:
        """Number of bottoms."""
        return len(self._inputs)

    @property
    def output_names(self) -> tuple[str, ...]:
        """The tops."""
        return tuple(self._description.message.top)

    def input(self, index: int) -> Value:
        """One bottom. A bottom that a converter does not use can become a graph output."""
        if index >= len(self._inputs):
            raise self.fail(f"has {len(self._inputs)} bottoms, needs {index + 1}", kind=INVALID_NODE)
        return self._inputs[index]()

    @property
    def inputs(self) -> tuple[Value, ...]:
        """All bottoms."""
        return tuple(self.input(index) for index in range(self.input_count))

    def shape(self, index: int) -> tuple[int, ...]:
        """The shape of one bottom, as numbers.

        Raises:
            CannotConvertError: it is only known when the model runs.

        """
        shape = self.input(index).type
        if not shape.is_static:
            raise self.fail(f"bottom {index} has shape {format_shape(shape.shape)}", kind=UNKNOWN_SHAPE)
        return shape.static_shape

    def image_shape(self) -> tuple[int, ...]:
        """The shape of the first bottom, which must be NCHW."""
        shape = self.shape(0)
        if len(shape) != 4:
            raise self.fail(f"an input of shape {list(shape)}", "supported: four axes, NCHW", INVALID_NODE)
        return shape

    def axis(self, axis: int, rank: int) -> int:
        """An axis counted from the front."""
        if not -rank <= axis < rank:
            raise self.fail(f"axis {axis} does not exist in a tensor of rank {rank}", kind=INVALID_NODE)
        return axis + rank if axis < 0 else axis

    # Parameters

    def params(self, name: str) -> Parameters:
        """The parameter message of that name, such as ``convolution_param``."""
        if name not in self._parameters:
            message = self._description.message
            known = name in message.DESCRIPTOR.fields_by_name
            extra: dict[str, list[Any]] = {}
            lines: dict[str, int] = {}
            for item in self._description.unknown:
                if item.path[0] == name and len(item.path) == 1 and isinstance(item.value, dict):
                    extra.update(item.value)
                    lines.update(dict.fromkeys(item.value, item.line))
                elif item.path[0] == name and len(item.path) == 2:
                    values = item.value if isinstance(item.value, list) else [item.value]
                    extra.setdefault(str(item.path[1]), []).extend(values)
                    lines.setdefault(str(item.path[1]), item.line)
            self._parameters[name] = Parameters(name, getattr(message, name) if known else None, extra, lines)
        return self._parameters[name]

    def unused_parameters(self) -> list[str]:
        """Parameters that the converter did not read, as text."""
        left = [f"{name}.{item}" for name, p in self._parameters.items() for item in p.unused]
        for item in self._description.unknown:
            asked = str(item.path[0]) in self._parameters
            if not asked or len(item.path) > 2 or (len(item.path) == 1 and not isinstance(item.value, dict)):
                path = ".".join(str(step) for step in item.path)
                left.append(f"{path} (line {item.line})")
        return [*left, *self._description.dropped]

    def foreign(self) -> list[str]:
        """Parameter messages of other layer types, which Caffe ignores too."""
        given = [known.name for known, _ in self._description.message.ListFields()]
        return [name for name in given if name not in _LAYER_FIELDS and name not in self._parameters]

    # Weights

    def has_weight(self, index: int) -> bool:
        """Return True if the layer has a learned tensor of that index, or if no weight file was given."""
        return self._blobs is None or index < len(self._blobs)

    def weight(self, index: int, shape: Sequence[int], what: str) -> Array:
        """One learned tensor, checked. Axes of extent 1 may be at other positions: they do not change the order.

        Args:
            index: of the blob.
            shape: expected shape, from the layer's parameters and inputs.
            what: it is, for messages.

        Raises:
            CannotConvertError: the file has none, or one of another shape.

        """
        wanted = tuple(int(extent) for extent in shape)
        self._blobs_read.add(index)
        if self._blobs is None:
            return self._without_weights(wanted, what)
        if index >= len(self._blobs):
            raise self.fail(
                f"the weight file has {len(self._blobs)} blobs for it, the {what} would be number {index + 1}",
                "compare the layer's parameters with the prototxt that the weights were trained with",
                INVALID_NODE,
            )
        blob = self._blobs[index]
        if _without_ones(blob.shape) != _without_ones(wanted):
            raise self.fail(
                f"its {what} has shape {list(blob.shape)} in the weight file, the prototxt needs {list(wanted)}",
                "give the prototxt that belongs to these weights",
                INVALID_NODE,
            )
        return blob.data.reshape(wanted)

    def blobs_left(self) -> str:
        """Learned tensors that the converter did not read, as text; empty if it read all."""
        found = self._blobs or []
        left = [index for index in range(len(found)) if index not in self._blobs_read]
        if not left:
            return ""
        shapes = ", ".join(str(list(found[index].shape)) for index in left[:3])
        return f"the weight file has {len(found)} blobs for it, {len(left)} of them without a meaning here: {shapes}"

    def _without_weights(self, shape: tuple[int, ...], what: str) -> Array:
        """Zeros, so that everything else about the layer can be checked."""
        self.budget(shape, what)
        self.findings.without_weights.append(self.name)
        return np.broadcast_to(np.float32(0), shape)

    def budget(self, shape: Sequence[int], what: str) -> None:
        """Refuse a constant that is made here and larger than the limits allow, before it is made."""
        size = 4 * math.prod(shape)
        if size > self.limits.max_expansion_bytes:
            text = f"its {what} of shape {list(shape)} has {size} bytes, more than {self.limits.max_expansion_bytes}"
            raise self.fail(text, kind=TOO_LARGE)

    def constant(self, data: Array, what: str) -> Value:
        """A FLOAT32 constant of the graph, named after the layer."""
        array = np.asarray(data, dtype=np.float32)
        if any(array.strides) or array.size < 2:  # stand-ins for missing weights keep taking no memory
            array = np.ascontiguousarray(array)
        return self._graph.constant(array, name=f"{self.name}/{what}")

    # Problems

    def fail(self, message: str, hint: str = "", kind: ProblemKind = UNSUPPORTED_ATTRIBUTE) -> CannotConvertError:
        """The error that a converter raises: ``raise node.fail(...)``."""
        return CannotConvertError(kind, message, hint)


def direct(name: str, op: Op, *, reads: Sequence[str] = ()) -> None:
    """Register a layer type that is exactly one operator without parameters.

    Args:
        name: the layer type.
        op: the operator.
        reads: parameter messages that the type has and that contain only ``engine``.

    """

    def convert(node: CaffeNode, g: Graph) -> Value:
        for message in reads:
            node.params(message)
        return g.add(op, node.input(0))

    convert.__doc__ = f"{name} is {op}."
    caffe_op(name, kind=Kind.DIRECT)(convert)


def _without_ones(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(extent for extent in shape if extent != 1)
