"""Load an ONNX model for a reduction: without external data, and with the options that name its tensors applied."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from tpuconvert.conversion.options.options import Options
from tpuconvert.conversion.source_loading import fixed_arrays
from tpuconvert.frontends.onnx.file.messages import ModelProto, TensorProto
from tpuconvert.frontends.onnx.file.reader import OnnxModel, initializers, read_model
from tpuconvert.reduction.model_format import needed_nodes
from tpuconvert.reduction.onnx_constants import tensors_of, write_tensor
from tpuconvert.reduction.onnx_parts import Infos, extract, node_links
from tpuconvert.schema.system.limits import current_limits

APPLIED = ("input_shapes", "inputs", "outputs", "fix_inputs", "allow_root")
"""Options that a reduced model does not need: they are applied to the model first."""


def load_model(path: str | os.PathLike[str], allow_root: str | os.PathLike[str] | None) -> ModelProto:
    """Return the message of a file, with all data in it.

    Raises:
        CorruptInputError: the file is damaged.
        ResourceLimitError: it is too large.

    """
    read = read_model(path, current_limits(), allow_root)
    model = ModelProto()
    model.CopyFrom(read.proto)
    for tensor in (*tensors_of(model.graph), *(each.values for each in model.graph.sparse_initializer)):
        _embed(tensor, read)
    return model


def _embed(tensor: TensorProto, read: OnnxModel) -> None:
    if tensor.data_location == TensorProto.EXTERNAL:
        content = read.tensors.external_bytes(tensor)
        tensor.ClearField("external_data")
        tensor.ClearField("data_location")
        tensor.raw_data = content


def apply_options(model: ModelProto, options: Options, infos: Infos) -> ModelProto | None:
    """Return the model with fixed shapes and inputs, from its chosen inputs to its chosen outputs.

    Returns:
        None if an input has no known type.

    """
    changed = ModelProto()
    changed.CopyFrom(model)
    graph = changed.graph
    for info in graph.input:
        for position, extent in enumerate(options.input_shapes.get(info.name, ())):
            tensor = info.type.tensor_type
            while len(tensor.shape.dim) <= position:
                tensor.shape.dim.add()
            if isinstance(extent, str):
                tensor.shape.dim[position].dim_param = extent
            else:
                tensor.shape.dim[position].dim_value = extent
    fixed = fixed_arrays(options)
    for info in [info for info in graph.input if info.name in fixed]:
        tensor_type = info.type.tensor_type
        array = np.asarray(fixed[info.name])
        if array.ndim == 0:
            array = array.reshape([1] * len(tensor_type.shape.dim))
        constant = TensorProto(name=info.name, data_type=tensor_type.elem_type)
        write_tensor(constant, array)
        graph.initializer.append(constant)
        graph.input.remove(info)
    if options.inputs is None and options.outputs is None:
        return changed
    return _between(changed, options, infos)


def _between(model: ModelProto, options: Options, infos: Mapping[str, Any]) -> ModelProto | None:
    graph = model.graph
    constants = {tensor.name for tensor in initializers(graph)}
    starts = set(options.inputs or [info.name for info in graph.input if info.name not in constants])
    ends = list(options.outputs or [info.name for info in graph.output])
    keep = needed_nodes(node_links(model), ends, starts)
    part = extract(model, keep, infos)
    if part is None:
        return None
    info_of = {info.name: info for info in (*graph.output, *part.graph.output, *graph.value_info)}
    del part.graph.output[:]
    for name in ends:
        if name in info_of:
            part.graph.output.append(info_of[name])
        elif name in infos:
            part.graph.output.append(infos[name].to_proto(name))
        else:
            part.graph.output.add().name = name
    return part
