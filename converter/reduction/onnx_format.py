"""Reduction of ONNX models: parts, types, simplifications, and what to try first."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any

from google.protobuf.message import EncodeError

from tpuconvert.conversion.options.options import Options
from tpuconvert.frontends.onnx.file.messages import ModelProto
from tpuconvert.reduction import onnx_constants, onnx_names
from tpuconvert.reduction.model_format import ModelFormat, NodeLinks, Search
from tpuconvert.reduction.onnx_parts import (
    TensorInfo,
    bypass,
    extract,
    keep_used_constants,
    node_links,
    with_outputs,
    with_stored_constants,
    without_attribute,
    without_input,
)
from tpuconvert.reduction.onnx_source import APPLIED, apply_options, load_model
from tpuconvert.reduction.onnx_types import find_constants, import_types, infer_types, validity
from tpuconvert.reduction.result import Size
from tpuconvert.reduction.search import largest_change
from tpuconvert.reduction.source_files import SourceFiles

PLAUSIBLE_EXTENTS = (64, 224, 16, 1)
"""Numbers for symbolic extents, in the order in which they are tried. The first axis, the batch, is 1."""


class OnnxFormat(ModelFormat[ModelProto]):
    """Operations on ONNX messages without external data."""

    name = "onnx"
    applied = APPLIED
    is_rewritten = False

    def __init__(self) -> None:
        self._infos: dict[str, TensorInfo] = {}

    # Files

    def load(self, files: SourceFiles, options: Options) -> ModelProto:
        """Read a file with its external data."""
        assert isinstance(files.model, str), "a source in memory was written to a file"
        return load_model(files.model, options.allow_root)

    def apply(
        self,
        model: ModelProto,
        options: Options,
        call: Callable[..., dict[Any, Any]],
        request: Mapping[str, Any],
    ) -> ModelProto | None:
        """Return the model with fixed shapes and inputs, from its chosen inputs to its chosen outputs."""
        content = model.SerializeToString()
        infos = {**call(import_types, content, {}), **call(infer_types, content)}
        return apply_options(model, options, infos)

    def files(self, model: ModelProto) -> SourceFiles:
        """Return the serialized message."""
        try:
            return SourceFiles(self.name, model.SerializeToString())
        except EncodeError as error:  # above 2 GiB
            raise ValueError(str(error)) from error

    def value(self, files: SourceFiles) -> ModelProto:
        """Return the message."""
        return ModelProto.FromString(files.content[0])

    # Description

    def size(self, model: ModelProto) -> Size:
        """Return the size, with the constants of attributes and subgraphs."""
        constants = sum(math.prod(tensor.dims) for tensor in onnx_constants.tensors_of(model.graph))
        return Size(len(model.graph.node), constants, model.ByteSize())

    def operators(self, model: ModelProto) -> list[str]:
        """Names of the operators, with the domain of custom ones."""
        return [f"{node.domain}:{node.op_type}" if node.domain else str(node.op_type) for node in model.graph.node]

    def links(self, model: ModelProto) -> Sequence[NodeLinks]:
        """Tensors of every node."""
        return node_links(model)

    def outputs(self, model: ModelProto) -> Sequence[str]:
        """Names of the outputs."""
        return [info.name for info in model.graph.output]

    def identifying_texts(self, model: ModelProto) -> list[str]:
        """Domains and operators that are not published, and texts in attributes of such operators."""
        return onnx_names.identifying_texts(model)

    # Parts

    def extract(self, model: ModelProto, keep: Iterable[int]) -> ModelProto | None:
        """Return the model with only some nodes."""
        return extract(model, keep, self._infos)

    def with_outputs(self, model: ModelProto, names: Collection[str]) -> ModelProto | None:
        """Return the model with some of its outputs."""
        return with_outputs(model, names, self._infos)

    def bypass(self, model: ModelProto, index: int) -> ModelProto | None:
        """Return the model without a node that is replaced by its first operand."""
        return bypass(model, index, self._infos)

    # Steps

    def prepare(self, search: Search[ModelProto], options: Mapping[str, Any]) -> None:
        """Fix symbolic extents, find types, and store computed constants."""
        self._fix_extents(search)
        self.find_types(search, options)
        self._store_constants(search)

    def find_types(self, search: Search[ModelProto], options: Mapping[str, Any]) -> None:
        """Find the types of all tensors by the frontend and by the shape inference of the ``onnx`` package."""
        content = search.model.SerializeToString()
        self._infos = {**search.call(import_types, content, options), **search.call(infer_types, content)}

    def _fix_extents(self, search: Search[ModelProto]) -> None:
        """Replace symbolic extents of inputs by numbers, so that the shapes of all tensors are known."""
        named = {
            dim.dim_param
            for info in search.model.graph.input
            for dim in info.type.tensor_type.shape.dim
            if not dim.HasField("dim_value")
        }
        if not named:
            return
        accept = self.guarded(search)
        for extent in PLAUSIBLE_EXTENTS:
            candidate = ModelProto()
            candidate.CopyFrom(search.model)
            for info in candidate.graph.input:
                for position, dim in enumerate(info.type.tensor_type.shape.dim):
                    if not dim.HasField("dim_value"):
                        dim.dim_value = extent if position else 1
            if accept(candidate):
                return

    def simplify(self, search: Search[ModelProto]) -> None:
        """Store computed constants, and remove optional operands and attributes.

        A model that is valid stays valid: without some attribute it could fail in the same way for another reason.
        """
        self._store_constants(search)
        accept = self.guarded(search)
        count = len(search.model.graph.node)
        for index in reversed(range(count)):
            for position in reversed(range(1, len(search.model.graph.node[index].input))):
                if search.model.graph.node[index].input[position]:
                    accept(without_input(search.model, index, position))
        for index in range(count):
            for name in [attribute.name for attribute in search.model.graph.node[index].attribute]:
                accept(without_attribute(search.model, index, name))
        bare = ModelProto()
        bare.CopyFrom(search.model)
        del bare.graph.value_info[:]
        search.accept(bare)

    def finish(self, search: Search[ModelProto]) -> None:
        """State the types of outputs, which steps have removed, so that other programs accept the model."""
        stated = ModelProto()
        stated.CopyFrom(search.model)
        for info in stated.graph.output:
            if TensorInfo.from_proto(info) is None and info.name in self._infos:
                info.CopyFrom(self._infos[info.name].to_proto(info.name))
        search.accept(stated)

    def guarded(self, search: Search[ModelProto]) -> Callable[[ModelProto | None], bool]:
        """Return a function that accepts candidates which the checker of ONNX accepts as far as the current model."""
        level = _validity(search, search.model)
        return lambda candidate: (
            candidate is not None and (not level or _validity(search, candidate) >= level) and search.accept(candidate)
        )

    def _store_constants(self, search: Search[ModelProto]) -> None:
        search.accept(with_stored_constants(search.model))
        model = search.model
        outputs = {info.name for info in model.graph.output}
        constants = search.call(find_constants, model.SerializeToString(), self._infos)
        constants = {name: item for name, item in constants.items() if name not in outputs}

        def store(names: list[str]) -> bool:
            codes = {name: constants[name][0] for name in names}
            changed = onnx_constants.with_constants(model, {name: constants[name][1] for name in names}, codes)
            nodes = [node for node in changed.graph.node if not set(filter(None, node.output)) <= set(names)]
            del changed.graph.node[:]
            changed.graph.node.extend(nodes)
            results = {name for node in nodes for name in node.output}
            unused = [tensor for tensor in changed.graph.initializer if tensor.name in results]
            for tensor in unused:
                changed.graph.initializer.remove(tensor)
            part = with_outputs(changed, [info.name for info in model.graph.output], self._infos)
            if part is not None:
                keep_used_constants(part.graph)
            return search.accept(part)

        largest_change(list(constants), store)

    # Extents, weights and names

    def extents(self, model: ModelProto) -> list[int]:
        """Extents above 1 of inputs and constants."""
        return onnx_constants.extents_of(model)

    def with_extent(self, model: ModelProto, old: int, new: int) -> ModelProto | None:
        """Return the model with an extent replaced."""
        return onnx_constants.with_extent(model, old, new)

    def weight_positions(self, model: ModelProto) -> Sequence[Hashable]:
        """Positions of the tensors with weights."""
        return onnx_constants.weight_positions(model)

    def count_other_weights(self, model: ModelProto) -> int:
        """Number of constants whose type is not written."""
        return onnx_constants.count_other_weights(model)

    def with_random_weights(self, model: ModelProto, positions: Collection[Any], seed: int) -> ModelProto:
        """Return the model with random values in some tensors."""
        return onnx_constants.with_random_weights(model, positions, seed)

    def without_descriptions(self, model: ModelProto) -> ModelProto:
        """Return the model without producer, versions, documentation and metadata."""
        return onnx_names.without_descriptions(model)

    def with_generic_names(self, model: ModelProto, *, keep_ports: bool = False) -> ModelProto:
        """Return the model with generic names."""
        return onnx_names.with_generic_names(model, keep_ports=keep_ports)


def _validity(search: Search[ModelProto], model: ModelProto) -> int:
    try:
        content = model.SerializeToString()
    except (EncodeError, ValueError):
        return 0
    return int(search.call(validity, content).get("level", 0))
