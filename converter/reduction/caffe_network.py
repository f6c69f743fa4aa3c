"""A Caffe network in memory: read, written, and cut into parts.

A loaded network has one name per value: the result of a layer that works in place gets a name of its own. Layers that
run in training only are left out, and layers of the two older formats are in the current one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tpuconvert.frontends.caffe.file.description import NetDescription, read_description
from tpuconvert.frontends.caffe.file.messages import new_message
from tpuconvert.frontends.caffe.file.text import UnknownField, is_repeated
from tpuconvert.frontends.caffe.file.text_writer import format_message, quote
from tpuconvert.frontends.caffe.file.weights import blob_of_message, read_weights
from tpuconvert.frontends.caffe.importer import ImportOptions, blob_shapes
from tpuconvert.reduction.model_format import NodeLinks, needed_nodes, part_inputs
from tpuconvert.reduction.source_files import SourceFiles
from tpuconvert.schema.errors import TpuConvertError
from tpuconvert.schema.system.limits import current_limits
from tpuconvert.schema.types import Array

Shape = tuple[int, ...]

_DATA_FIELD, _BYTES_TYPE = 5, 2
"""Number of the field ``data`` of a BlobProto, and wire type of packed numbers."""


@dataclass(frozen=True)
class Layer:
    """One layer.

    Args:
        message: a LayerParameter without learned tensors. It is not changed.
        unknown: fields that the message types do not have.
        blobs: learned tensors, as FLOAT32.

    """

    message: Any
    unknown: tuple[UnknownField, ...] = ()
    blobs: tuple[Array, ...] = ()

    def changed(self, **fields: Any) -> Layer:
        """Return the layer with other values of fields of the message; None removes one."""
        message = new_message("LayerParameter")
        message.CopyFrom(self.message)
        for name, value in fields.items():
            message.ClearField(name)
            if isinstance(value, (list, tuple)):
                getattr(message, name).extend(value)
            elif value is not None:
                setattr(message, name, value)
        return replace(self, message=message)


@dataclass(frozen=True)
class CaffeNetwork:
    """A network.

    Args:
        layers: its layers in the order of execution, without layers of type Input.
        inputs: shape of each input by name; None if the prototxt has none.
        name: name of the network.
        unknown: fields outside the layers that the message type does not have.
        has_weights: True if learned tensors are given.
        aliases: name of a blob in the file -> name of its last value in the loaded network.

    """

    layers: tuple[Layer, ...]
    inputs: Mapping[str, Shape | None]
    name: str = ""
    unknown: tuple[UnknownField, ...] = ()
    has_weights: bool = False
    aliases: Mapping[str, str] = field(default_factory=dict)


def load_network(path: str, weights: str | None) -> CaffeNetwork:
    """Read a network and its weights.

    Raises:
        CorruptInputError: a file is damaged.

    """
    net = read_description(path)
    learned = None if weights is None else read_weights(weights)
    layers: list[Layer] = []
    inputs: dict[str, Shape | None] = {}
    for each in net.layers:
        message = new_message("LayerParameter")
        message.CopyFrom(each.message)
        if learned is None:
            blobs = [blob_of_message(blob).data for blob in message.blobs]
        else:
            blobs = [blob.data for blob in learned.get(message.name, [])]
        for name in ("blobs", "include", "exclude", "phase"):
            message.ClearField(name)
        if message.type == "Input" and not each.unknown:
            shapes = [tuple(shape.dim) for shape in message.input_param.shape]
            top_shapes = shapes * len(message.top) if len(shapes) == 1 else shapes
            inputs |= dict(itertools.zip_longest(message.top, top_shapes[: len(message.top)]))
        else:
            layers.append(Layer(message, tuple(each.unknown), tuple(blobs)))
    has_weights = learned is not None or any(layer.blobs for layer in layers)
    network = CaffeNetwork(tuple(layers), inputs, net.name, tuple(net.unknown), has_weights)
    return _with_one_name_per_value(network)


def _with_one_name_per_value(network: CaffeNetwork) -> CaffeNetwork:
    """Rename the results of layers that work in place, and their later uses."""
    names = {name: name for name in network.inputs}
    taken = {*names, *(top for layer in network.layers for top in layer.message.top)}
    layers = []
    for layer in network.layers:
        message = layer.message
        bottoms = [names.get(name, name) for name in message.bottom]
        tops = []
        for top in message.top:
            fresh = top
            if top in names and top in message.bottom:
                fresh = f"{top}@{message.name}"
                while fresh in taken:
                    fresh += "'"
            taken.add(fresh)
            tops.append(fresh)
        names |= dict(zip(message.top, tops, strict=True))
        layers.append(layer.changed(bottom=bottoms, top=tops))
    return replace(network, layers=tuple(layers), aliases=names)


def network_files(network: CaffeNetwork) -> SourceFiles:
    """Return the prototxt and, if learned tensors are given, the caffemodel."""
    lines = [f"name: {quote(network.name)}"] if network.name else []
    lines += format_message(new_message("NetParameter"), network.unknown)
    for name, shape in network.inputs.items():
        lines += ["layer {", f"  name: {quote(name)}", '  type: "Input"', f"  top: {quote(name)}"]
        if shape is not None:
            lines.append(f"  input_param {{ shape {{ {' '.join(f'dim: {extent}' for extent in shape)} }} }}")
        lines.append("}")
    for layer in network.layers:
        lines += ["layer {", *format_message(layer.message, layer.unknown, "  "), "}"]
    text = "\n".join(lines).encode() + b"\n"
    return SourceFiles("caffe", text, _weights_content(network) if network.has_weights else None)


def _weights_content(network: CaffeNetwork) -> bytes:
    net = new_message("NetParameter")
    for layer in network.layers:
        message = net.layer.add(name=layer.message.name, type=layer.message.type)
        for array in layer.blobs:
            blob = message.blobs.add()
            blob.shape.dim.extend(array.shape)
            blob.MergeFromString(_packed_data(np.ascontiguousarray(array, "<f4").tobytes()))
    content: bytes = net.SerializeToString()
    return content


def _packed_data(content: bytes) -> bytes:
    """Return the field ``data`` of a BlobProto as it is encoded, which is faster than a list of numbers."""
    size, length = len(content), bytearray()
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    return bytes([_DATA_FIELD << 3 | _BYTES_TYPE, *length, size]) + content


def find_shapes(files: SourceFiles) -> dict[str, Shape]:
    """Return the shapes of the blobs of a network, as far as they are known."""
    with files.as_paths() as (path, weights):
        try:
            net: NetDescription = read_description(path)
            learned = None if weights is None else read_weights(weights)
            return blob_shapes(net, learned, ImportOptions(current_limits(), {}, require_weights=False))
        except TpuConvertError:
            return {}


def layer_links(network: CaffeNetwork) -> list[NodeLinks]:
    """Return the blobs of every layer."""
    return [
        NodeLinks(layer.message.name, tuple(dict.fromkeys(layer.message.bottom)), tuple(layer.message.top))
        for layer in network.layers
    ]


def output_names(network: CaffeNetwork) -> list[str]:
    """Blobs that no layer reads."""
    read = {name for layer in network.layers for name in layer.message.bottom}
    return [name for layer in network.layers for name in layer.message.top if name not in read]


def extract(network: CaffeNetwork, keep: Iterable[int], shapes: Mapping[str, Shape]) -> CaffeNetwork | None:
    """Return the network with only some layers; None if there are none, or if an input has no known shape."""
    chosen = sorted(keep)
    if not chosen:
        return None
    outside = part_inputs(layer_links(network), chosen)
    order = [name for name in network.inputs if name in set(outside)]
    order += [name for name in outside if name not in network.inputs]
    inputs = {name: network.inputs[name] if name in network.inputs else shapes.get(name) for name in order}
    if any(shape is None and name not in network.inputs for name, shape in inputs.items()):
        return None
    return replace(network, layers=tuple(network.layers[index] for index in chosen), inputs=inputs)


def between(
    network: CaffeNetwork, starts: Mapping[str, Shape], ends: Sequence[str], shapes: Mapping[str, Shape]
) -> CaffeNetwork | None:
    """Return the layers from new inputs to some blobs, without layers that only compute the new inputs."""
    keep = needed_nodes(layer_links(network), ends, starts)
    layers = [layer for index, layer in enumerate(network.layers) if index in keep]
    cut = replace(network, layers=tuple(layers), inputs={**network.inputs, **starts})
    return extract(cut, range(len(layers)), shapes)


def with_outputs(network: CaffeNetwork, names: Collection[str], shapes: Mapping[str, Shape]) -> CaffeNetwork | None:
    """Return the network with only the layers that some blobs depend on."""
    return extract(network, needed_nodes(layer_links(network), names), shapes)


def bypass(network: CaffeNetwork, index: int, shapes: Mapping[str, Shape]) -> CaffeNetwork | None:
    """Return the network without a layer whose users get its first bottom of the same shape instead of its top."""
    message = network.layers[index].message
    if len(message.top) != 1 or message.top[0] in output_names(network) or message.top[0] not in shapes:
        return None
    same = [name for name in message.bottom if shapes.get(name) == shapes[message.top[0]]]
    if not same:
        return None
    layers = [
        layer.changed(bottom=[same[0] if name == message.top[0] else name for name in layer.message.bottom])
        for number, layer in enumerate(network.layers)
        if number != index
    ]
    used = {name for layer in layers for name in layer.message.bottom}
    inputs = {name: shape for name, shape in network.inputs.items() if name in used}
    return replace(network, layers=tuple(layers), inputs=inputs)


FieldPath = tuple[str | UnknownField, ...]
"""A field of a layer, a field of one of its parameter messages, or a field that the message types do not have."""


def optional_fields(layer: Layer) -> list[FieldPath]:
    """Return the fields without which a layer may fail in the same way: whole messages before the fields in them."""
    paths: list[FieldPath] = []
    for descriptor, value in layer.message.ListFields():
        if descriptor.name in ("name", "type", "bottom", "top"):
            continue
        paths.append((descriptor.name,))
        if descriptor.message_type is not None and not is_repeated(descriptor):
            paths += [(descriptor.name, inner.name) for inner, _ in value.ListFields()]
    return [*paths, *((each,) for each in layer.unknown)]


def without_field(layer: Layer, path: FieldPath) -> Layer | None:
    """Return the layer without a field, or None if it does not have it."""
    name = path[0]
    if isinstance(name, UnknownField):
        remaining = tuple(each for each in layer.unknown if each is not name)
        return replace(layer, unknown=remaining) if len(remaining) < len(layer.unknown) else None
    if name not in (descriptor.name for descriptor, _ in layer.message.ListFields()):
        return None
    if len(path) == 1:
        return layer.changed(**{name: None})
    message = new_message("LayerParameter")
    message.CopyFrom(layer.message)
    getattr(message, name).ClearField(str(path[1]))
    return replace(layer, message=message)


def count_elements(network: CaffeNetwork) -> int:
    """Number of elements of all learned tensors."""
    return sum(math.prod(array.shape) for layer in network.layers for array in layer.blobs)


def with_blobs(network: CaffeNetwork, blobs: Mapping[tuple[int, int], Array]) -> CaffeNetwork:
    """Return the network with some learned tensors replaced, by the indices of the layer and of the tensor."""
    layers = [
        replace(
            layer,
            blobs=tuple(
                np.asarray(blobs.get((number, index), array), np.float32) for index, array in enumerate(layer.blobs)
            ),
        )
        for number, layer in enumerate(network.layers)
    ]
    return replace(network, layers=tuple(layers))
