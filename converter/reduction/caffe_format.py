"""Reduction of Caffe networks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from google.protobuf.message import EncodeError

from tpuconvert.conversion.options.options import Options
from tpuconvert.frontends.caffe.file.messages import new_message
from tpuconvert.frontends.caffe.file.text import is_repeated
from tpuconvert.frontends.caffe.node import caffe_op
from tpuconvert.reduction import caffe_network
from tpuconvert.reduction.caffe_network import CaffeNetwork, Layer, Shape, find_shapes
from tpuconvert.reduction.generic_names import GenericNames
from tpuconvert.reduction.model_format import ModelFormat, NodeLinks, Search
from tpuconvert.reduction.random_values import random_like
from tpuconvert.reduction.result import Size
from tpuconvert.reduction.source_files import SourceFiles

SHAPE_FIELDS = frozenset({"dim", "group", "input_dim", "num_output", "slice_point"})
"""Integer parameters that repeat extents of blobs."""

OWN_PACKAGE = "tpuconvert.frontends."
"""Start of the names of modules with converters of published layer types."""


class CaffeFormat(ModelFormat[CaffeNetwork]):
    """Operations on Caffe networks with their learned tensors."""

    name = "caffe"
    applied = ("input_shapes", "inputs", "outputs")

    def __init__(self) -> None:
        self._shapes: dict[str, Shape] = {}

    # Files

    def load(self, files: SourceFiles, options: Options) -> CaffeNetwork:
        """Read a prototxt and its caffemodel."""
        with files.as_paths() as (path, weights):
            return caffe_network.load_network(path, weights)

    def apply(
        self,
        model: CaffeNetwork,
        options: Options,
        call: Callable[..., dict[Any, Any]],
        request: Mapping[str, Any],
    ) -> CaffeNetwork | None:
        """Return the network with the shapes of the options, from its chosen inputs to its chosen outputs."""
        shapes = {name: tuple(int(extent) for extent in shape) for name, shape in options.input_shapes.items()}
        inputs = {name: shapes.get(name, shape) for name, shape in model.inputs.items()}
        changed = replace(model, inputs=inputs)
        if options.inputs is None and options.outputs is None:
            return changed
        names = [*(options.inputs or ()), *(options.outputs or ())]
        if any(name not in model.aliases for name in names):
            return None
        computed = call(find_shapes, self.files(changed))
        aliases = model.aliases
        starts = {aliases[name]: shapes.get(name) or computed.get(aliases[name]) for name in options.inputs or ()}
        if any(shape is None for shape in starts.values()):
            return None
        ends = [model.aliases[name] for name in options.outputs or ()] or caffe_network.output_names(model)
        return caffe_network.between(changed, {name: shape for name, shape in starts.items() if shape}, ends, computed)

    def files(self, model: CaffeNetwork) -> SourceFiles:
        """Return the contents of the prototxt and of the caffemodel."""
        try:
            return caffe_network.network_files(model)
        except EncodeError as error:  # above 2 GiB
            raise ValueError(str(error)) from error

    def value(self, files: SourceFiles) -> bytes:
        """Return the text of the prototxt."""
        return files.content[0]

    # Description

    def size(self, model: CaffeNetwork) -> Size:
        """Return the size of both files together."""
        size = sum(map(len, self.files(model).content))
        return Size(len(model.layers), caffe_network.count_elements(model), size)

    def operators(self, model: CaffeNetwork) -> list[str]:
        """Types of the layers."""
        return [layer.message.type for layer in model.layers]

    def links(self, model: CaffeNetwork) -> Sequence[NodeLinks]:
        """Blobs of every layer."""
        return caffe_network.layer_links(model)

    def outputs(self, model: CaffeNetwork) -> Sequence[str]:
        """Blobs that no layer reads."""
        return caffe_network.output_names(model)

    def identifying_texts(self, model: CaffeNetwork) -> list[str]:
        """Layer types that are not published, fields that Caffe does not have, and texts in parameters."""
        texts: dict[str, None] = {}
        for layer in model.layers:
            registration = caffe_op.find(layer.message.type)
            if registration is None or not registration.converter.__module__.startswith(OWN_PACKAGE):
                texts[layer.message.type] = None
            for each in layer.unknown:
                texts[".".join(map(str, each.path))] = None
            for name, text in _texts(layer.message, is_layer=True):
                texts[f"{name}={text}"] = None
        for each in model.unknown:
            texts[".".join(map(str, each.path))] = None
        return list(texts)

    # Parts

    def extract(self, model: CaffeNetwork, keep: Iterable[int]) -> CaffeNetwork | None:
        """Return the network with only some layers."""
        return caffe_network.extract(model, keep, self._shapes)

    def with_outputs(self, model: CaffeNetwork, names: Collection[str]) -> CaffeNetwork | None:
        """Return the network with only the layers that some blobs depend on."""
        return caffe_network.with_outputs(model, names, self._shapes)

    def bypass(self, model: CaffeNetwork, index: int) -> CaffeNetwork | None:
        """Return the network without a layer that is replaced by its first bottom."""
        return caffe_network.bypass(model, index, self._shapes)

    # Steps

    def prepare(self, search: Search[CaffeNetwork], options: Mapping[str, Any]) -> None:
        """Find the shapes of all blobs."""
        self.find_types(search, options)

    def find_types(self, search: Search[CaffeNetwork], options: Mapping[str, Any]) -> None:
        """Find the shapes of all blobs."""
        self._shapes = search.call(find_shapes, self.files(search.model))

    def simplify(self, search: Search[CaffeNetwork]) -> None:
        """Remove optional fields of layers and of their parameters, and the caffemodel if no layer needs it."""
        accept = self.guarded(search)
        for index in reversed(range(len(search.model.layers))):
            for path in caffe_network.optional_fields(search.model.layers[index]):
                simpler = caffe_network.without_field(search.model.layers[index], path)
                if simpler is not None:
                    accept(_with_layer(search.model, index, simpler))
        if search.model.has_weights and not any(layer.blobs for layer in search.model.layers):
            search.accept(replace(search.model, has_weights=False))

    # Extents, weights and names

    def extents(self, model: CaffeNetwork) -> list[int]:
        """Extents above 1 of inputs and learned tensors."""
        shapes = [*(shape or () for shape in model.inputs.values())]
        shapes += [array.shape for layer in model.layers for array in layer.blobs]
        return sorted({extent for shape in shapes for extent in shape if extent > 1}, reverse=True)

    def with_extent(self, model: CaffeNetwork, old: int, new: int) -> CaffeNetwork | None:
        """Return the network with an extent replaced in inputs, learned tensors and the parameters that repeat it."""
        layers = []
        for layer in model.layers:
            message = new_message("LayerParameter")
            message.CopyFrom(layer.message)
            _replace_extent(message, old, new)
            blobs = (
                array[tuple(slice(new) if extent == old else slice(None) for extent in array.shape)]
                for array in layer.blobs
            )
            layers.append(replace(layer, message=message, blobs=tuple(blobs)))
        inputs = {
            name: None if shape is None else tuple(new if extent == old else extent for extent in shape)
            for name, shape in model.inputs.items()
        }
        return replace(model, layers=tuple(layers), inputs=inputs)

    def weight_positions(self, model: CaffeNetwork) -> Sequence[Hashable]:
        """Indices of the layer and of the tensor, of learned tensors of more than one element."""
        return [
            (number, index)
            for number, layer in enumerate(model.layers)
            for index, array in enumerate(layer.blobs)
            if array.size > 1
        ]

    def count_other_weights(self, model: CaffeNetwork) -> int:
        """Number of learned tensors that cannot be replaced: none."""
        return 0

    def with_random_weights(self, model: CaffeNetwork, positions: Collection[Any], seed: int) -> CaffeNetwork:
        """Return the network with random values in some learned tensors."""
        drawn = {
            (number, index): random_like(
                model.layers[number].blobs[index], np.random.default_rng((seed, number, index))
            )
            for number, index in positions
        }
        return caffe_network.with_blobs(model, drawn)

    def without_descriptions(self, model: CaffeNetwork) -> CaffeNetwork:
        """Return the network without its name and without unknown fields outside the layers."""
        return replace(model, name="", unknown=())

    def with_generic_names(self, model: CaffeNetwork, *, keep_ports: bool = False) -> CaffeNetwork:
        """Return the network with generic names of layers, blobs and shared parameters."""
        outputs = caffe_network.output_names(model)
        names = GenericNames([*model.inputs, *outputs] if keep_ports else ())
        inputs = {names.tensor(name, "x"): shape for name, shape in model.inputs.items()}
        for name in outputs:
            names.tensor(name, "y")
        shared = GenericNames(())
        layers = []
        for layer in model.layers:
            changed = layer.changed(
                name=names.new("n"),
                bottom=[names.tensor(name) for name in layer.message.bottom],
                top=[names.tensor(name) for name in layer.message.top],
            )
            for spec in changed.message.param:
                if spec.name:
                    spec.name = shared.tensor(spec.name, "p")
            layers.append(changed)
        return replace(model, layers=tuple(layers), inputs=inputs, aliases={})


def _with_layer(network: CaffeNetwork, index: int, layer: Layer) -> CaffeNetwork:
    return replace(network, layers=(*network.layers[:index], layer, *network.layers[index + 1 :]))


def _replace_extent(message: Any, old: int, new: int) -> None:
    """Replace an extent in a message and those in it, in place."""
    for field, value in message.ListFields():
        values = value if is_repeated(field) else [value]
        if field.message_type is not None:
            for each in values:
                _replace_extent(each, old, new)
        elif field.name in SHAPE_FIELDS and old in values:
            if is_repeated(field):
                value[:] = [new if extent == old else extent for extent in values]
            else:
                setattr(message, field.name, new)


def _texts(message: Any, *, is_layer: bool = False) -> Iterable[tuple[str, str]]:
    """Names and values of text fields of a message and those in it, without the names of the layer and of its blobs."""
    for field, value in message.ListFields():
        if is_layer and field.name in ("name", "type", "bottom", "top", "param"):
            continue
        for each in value if is_repeated(field) else [value]:
            if field.message_type is not None:
                yield from _texts(each)
            elif isinstance(each, str) and each:
                yield field.name, each
