"""Interface of converters: the layer with its inputs, parameters and weights, and the registering decorator."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tpuconvert.frontends.caffe.file.description import LayerDescription
from tpuconvert.frontends.caffe.file.weights import Blob
from tpuconvert.frontends.caffe.fillers import Filler
from tpuconvert.frontends.caffe.parameters import Parameters
from tpuconvert.frontends.cannot_convert import CannotConvertError
from tpuconvert.frontends.extents import Extents
from tpuconvert.frontends.registry import Kind, registry
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.errors import INVALID_NODE, TOO_LARGE, UNKNOWN_SHAPE, UNSUPPORTED_ATTRIBUTE, ProblemKind
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.system.limits import Limits
from tpuconvert.schema.types import Array, format_shape

caffe_op = registry("caffe")
"""Decorator that registers a converter for layer types: ``@caffe_op("LSTM")``."""

_LAYER_FIELDS = {"name", "type", "bottom", "top", "loss_weight", "param", "blobs", "include", "exclude", "phase"}
_LAYER_FIELDS |= {"propagate_down", "transform_param", "loss_param"}
"""Layer fields without effect on inference, or read by the importer instead of converters."""


@dataclass(frozen=True)
class Declared:
    """Result of a converter for a top that is a graph input.

    Args:
        shape: shape in the prototxt; None if the prototxt has no shape.
        needed: True if the network declares an input for inference. Other tops, such as labels of data layers, become
            graph inputs only if an inference layer reads them.

    """

    shape: tuple[int, ...] | None
    needed: bool = True


@dataclass(frozen=True)
class RankZero:
    """Result of a converter for a top that has rank 0 in Caffe and shape [1] in the graph."""

    value: Value


Result = Value | Declared | RankZero | None
"""Result of a converter for one top; None for a top that does not exist at inference."""

Converted = Result | Sequence[Result]
"""Return value of a converter: one result per top, or None for a layer without results."""


@dataclass(frozen=True)
class Tiling:
    """Pooling windows whose stride is their extent, so that they divide the plane without gaps or overlaps.

    Args:
        window: extents (height, width) of one window.
        plane: extents (height, width) of the plane; the last windows may extend beyond it.

    """

    window: tuple[int, int]
    plane: tuple[int, int]


@dataclass
class Findings:
    """Facts about the network that converters collect for other layers or the importer.

    Args:
        without_weights: names of layers that need weights, in an import without weights.
        tilings: windows of max pooling, by the value that contains the positions of the maxima.

    """

    without_weights: list[str] = field(default_factory=list)
    tilings: dict[Value, Tiling] = field(default_factory=dict)


@dataclass(frozen=True)
class SharedParameter:
    """A named parameter, which layers share.

    Args:
        name: its name.
        owner: name of the first layer that has it, whose filler fills it.

    """

    name: str
    owner: str


@dataclass(frozen=True)
class LayerWeights:
    """Learned tensors of a layer.

    Args:
        blobs: tensors in order, None for one that the weight file does not have; None without a weight file.
        has_own: True if the file has blobs under the name of the layer.
        unclaimed: name, and shape of the first blob, of each layer in the file that the prototxt does not have.
        parameters: the named parameter of each tensor, None if it has no name.
        filled: tensors of named parameters that layers got from their fillers. The converter of a layer adds to it.

    """

    blobs: Sequence[Blob | None] | None
    has_own: bool = True
    unclaimed: Sequence[tuple[str, tuple[int, ...]]] = ()
    parameters: Sequence[SharedParameter | None] = ()
    filled: dict[str, Array] = field(default_factory=dict)


class CaffeNode:
    """One layer, as its converter sees it. Parameters that the converter did not read are reported afterwards."""

    def __init__(
        self,
        description: LayerDescription,
        graph: Graph,
        inputs: Sequence[Callable[[], Value]],
        weights: LayerWeights,
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
        self._weights = weights
        self._blobs = weights.blobs
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
        """Names of the tops."""
        return tuple(self._description.message.top)

    def input(self, index: int) -> Value:
        """Value of one bottom. The call marks the blob as read; by default, other blobs become graph outputs."""
        if not -len(self._inputs) <= index < len(self._inputs):
            needed = index + 1 if index >= 0 else -index
            raise self.fail(f"has {len(self._inputs)} bottoms, needs {needed}", kind=INVALID_NODE)
        return self._inputs[index]()

    @property
    def inputs(self) -> tuple[Value, ...]:
        """Values of all bottoms, which are marked as read."""
        return tuple(self.input(index) for index in range(self.input_count))

    def shape(self, index: int) -> Extents:
        """Static shape of one bottom.

        Raises:
            CannotConvertError: the shape is data-dependent.

        """
        shape = self.input(index).type
        if not shape.is_static:
            raise self.fail(f"bottom {index} has shape {format_shape(shape.shape)}", kind=UNKNOWN_SHAPE)
        return Extents(shape.static_shape)

    def image_shape(self) -> Extents:
        """Static shape of the first bottom, which must have rank 4 (NCHW)."""
        shape = self.shape(0)
        if len(shape) != 4:
            raise self.fail(f"an input of shape {list(shape)}", "supported: four axes, NCHW", INVALID_NODE)
        return shape

    def axis(self, axis: int, rank: int) -> int:
        """Return a nonnegative axis; negative axes count from the end."""
        if not -rank <= axis < rank:
            raise self.fail(f"axis {axis} does not exist in a tensor of rank {rank}", kind=INVALID_NODE)
        return axis + rank if axis < 0 else axis

    # Parameters

    def params(self, name: str) -> Parameters:
        """Parameter message of the layer with a name such as ``convolution_param``."""
        if name not in self._parameters:
            message = self._description.message
            is_field = name in message.DESCRIPTOR.fields_by_name
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
            self._parameters[name] = Parameters(name, getattr(message, name) if is_field else None, extra, lines)
        return self._parameters[name]

    def unused_parameters(self) -> list[str]:
        """Parameters that the converter did not read, as text."""
        left = [f"{name}.{item}" for name, p in self._parameters.items() for item in p.unread_items]
        for item in self._description.unknown:
            asked = str(item.path[0]) in self._parameters
            if not asked or len(item.path) > 2 or (len(item.path) == 1 and not isinstance(item.value, dict)):
                path = ".".join(str(step) for step in item.path)
                left.append(f"{path} (line {item.line})")
        return [*left, *self._description.dropped]

    def foreign(self) -> list[str]:
        """Names of parameter messages that belong to other layer types; Caffe ignores them too."""
        present = [descriptor.name for descriptor, _ in self._description.message.ListFields()]
        return [name for name in present if name not in _LAYER_FIELDS and name not in self._parameters]

    # Weights

    @property
    def is_filled(self) -> bool:
        """Return True if a weight file was given that has no learned tensor of the layer."""
        return self._blobs is not None and not any(blob is not None for blob in self._blobs)

    def has_weight(self, index: int) -> bool:
        """Return True if the layer has a learned tensor with this index, or if there are no weights at all."""
        return self._blobs is None or index < len(self._blobs)

    def weight(self, index: int, shape: Sequence[int], what: str, filler: Filler | None = None) -> Array:
        """Learned tensor with the expected shape; the shape in the file may differ in unit axes.

        Args:
            index: index of the blob in the layer.
            shape: expected shape, from the layer's parameters and inputs.
            what: description of the tensor for messages, such as "bias".
            filler: content if the weight file has no learned tensor of the layer.

        Raises:
            CannotConvertError: the tensor does not exist, or has another shape.

        """
        expected = tuple(int(extent) for extent in shape)
        self._blobs_read.add(index)
        if self._blobs is None:
            return self._without_weights(expected, what)
        blob = self._blobs[index] if index < len(self._blobs) else None
        if blob is None and not self._weights.has_own:
            named = self._weights.parameters[index] if index < len(self._weights.parameters) else None
            if named is not None and named.owner != self.name:
                return self._filled_by_owner(expected, what, named)
            if filler is not None:
                data = self._filled(expected, what, filler)
                if named is not None:
                    self._weights.filled[named.name] = data
                return data
        if blob is None:
            raise self.fail(
                f"the weight file has {len(self._blobs)} blobs for it, the {what} would be number {index + 1}",
                "compare the layer's parameters with the prototxt that the weights were trained with",
                INVALID_NODE,
            )
        if _without_ones(blob.shape) != _without_ones(expected):
            raise self.fail(
                f"its {what} has shape {list(blob.shape)} in the weight file, the prototxt needs {list(expected)}",
                "give the prototxt that belongs to these weights",
                INVALID_NODE,
            )
        return blob.data.reshape(expected)

    def _filled(self, shape: tuple[int, ...], what: str, filler: Filler) -> Array:
        """Tensor of a layer that the weight file does not have, as Caffe fills it."""
        self.budget(shape, what)
        without_ones = _without_ones(shape)
        alike = next((name for name, own in self._weights.unclaimed if _without_ones(own) == without_ones), None)
        if alike is not None:
            raise self.fail(
                f"the weight file has no blobs for it, but blobs of the shape of its {what} for a layer '{alike}'",
                "give the layer the name that it has in the weight file; the prototxt has no layer with this name",
                INVALID_NODE,
            )
        data = filler.fill(shape)
        if data is None:
            raise self.fail(
                f"the weight file has no blobs for it, and the filler '{filler.kind}' of its {what} is not fixed",
                "give the weights of this prototxt; fixed fillers: constant, and bilinear for square kernels",
                INVALID_NODE,
            )
        self.notes.append(f"layer '{self.name}' is not in the weight file: its {what} is its filler, {filler}")
        return data

    def _filled_by_owner(self, shape: tuple[int, ...], what: str, named: SharedParameter) -> Array:
        """Tensor that the weight file does not have, as Caffe fills it for the first layer that shares it."""
        data = self._weights.filled.get(named.name)
        if data is None:
            raise self.fail(
                f"its {what} is the parameter '{named.name}' of layer '{named.owner}', which has no content",
                f"give weights for layer '{named.owner}', and convert it too",
                INVALID_NODE,
            )
        if _without_ones(data.shape) != _without_ones(shape):
            raise self.fail(
                f"its {what} has shape {list(data.shape)} in layer '{named.owner}', the prototxt needs {list(shape)}",
                f"give the parameter '{named.name}' to layers of the same shape only",
                INVALID_NODE,
            )
        return data.reshape(shape)

    def blobs_left(self) -> str:
        """Message about learned tensors that the converter did not read; empty if it read all."""
        blobs = self._blobs or []
        left = [blob for index, blob in enumerate(blobs) if blob is not None and index not in self._blobs_read]
        if not left:
            return ""
        shapes = ", ".join(str(list(blob.shape)) for blob in left[:3])
        return f"the weight file has {len(blobs)} blobs for it, {len(left)} of them without a meaning here: {shapes}"

    def _without_weights(self, shape: tuple[int, ...], what: str) -> Array:
        """Zeros in place of a missing weight, so that the rest of the layer can be checked."""
        self.budget(shape, what)
        self.findings.without_weights.append(self.name)
        return np.broadcast_to(np.float32(0), shape)

    def budget(self, shape: Sequence[int], what: str) -> None:
        """Raise if a constant of this shape, which the converter is about to create, exceeds the limits."""
        size = 4 * math.prod(shape)
        if size > self.limits.max_expansion_bytes:
            text = f"its {what} of shape {list(shape)} has {size} bytes, more than {self.limits.max_expansion_bytes}"
            raise self.fail(text, kind=TOO_LARGE)

    def constant(self, data: Array, what: str) -> Value:
        """Add a FLOAT32 constant to the graph, named ``layer/what``."""
        array = np.asarray(data, dtype=np.float32)
        if any(array.strides) or array.size < 2:  # not for the zeros of missing weights, which have stride 0
            array = np.ascontiguousarray(array)
        return self._graph.constant(array, name=f"{self.name}/{what}")

    # Problems

    def fail(self, message: str, hint: str = "", kind: ProblemKind = UNSUPPORTED_ATTRIBUTE) -> CannotConvertError:
        """Create the error for a layer that cannot be converted; use it as ``raise node.fail(...)``."""
        return CannotConvertError(kind, message, hint)


def direct(name: str, op: Op, *, reads: Sequence[str] = ()) -> None:
    """Register a layer type that maps to one operator with fixed attributes.

    Args:
        name: the layer type.
        op: the operator.
        reads: names of parameter messages of the type that contain only ``engine``, which has no effect.

    """

    def convert(node: CaffeNode, g: Graph) -> Value:
        for message in reads:
            node.params(message)
        return g.add(op, node.input(0))

    convert.__doc__ = f"{name} is {op}."
    caffe_op(name, kind=Kind.DIRECT)(convert)


def _without_ones(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(extent for extent in shape if extent != 1)
