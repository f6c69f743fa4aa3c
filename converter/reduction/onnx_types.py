"""Types and constant values of the tensors of an ONNX model.

These functions run in the process for trials: the checker and the shape inference of the ``onnx`` package can end the
process on a malformed model.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from tpuconvert.conversion.options.options import Options
from tpuconvert.conversion.source import Source
from tpuconvert.conversion.source_loading import load_source
from tpuconvert.frontends.onnx.file.messages import ModelProto, NodeProto, TensorProto
from tpuconvert.frontends.onnx.file.reader import subgraphs
from tpuconvert.reduction.onnx_constants import read_tensor
from tpuconvert.reduction.onnx_parts import TensorInfo
from tpuconvert.schema.errors import TpuConvertError
from tpuconvert.schema.types import Array

MOST_ELEMENTS = 4096
"""Largest size of a constant that replaces the nodes that compute it."""

MOST_ROUNDS = 16
"""Largest number of unknown operators after each other whose results get assumed types."""

_RANDOM = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)


def validity(content: bytes) -> dict[str, int]:
    """Return the level: 2 if the types of a model are consistent, 1 if its checker accepts the nodes, otherwise 0."""
    model = ModelProto.FromString(content)
    with contextlib.suppress(Exception):  # several kinds; the checker decides
        model = onnx.shape_inference.infer_shapes(model)
    for info in model.graph.output:
        if TensorInfo.from_proto(info) is None:
            info.CopyFrom(TensorInfo(TensorProto.FLOAT, ()).to_proto(info.name))
    for level, is_full in ((2, True), (1, False)):
        try:
            onnx.checker.check_model(model, full_check=is_full)
        except Exception:  # several kinds, also of protobuf
            continue
        return {"level": level}
    return {"level": 0}


def infer_types(content: bytes) -> dict[str, TensorInfo]:
    """Return the types that shape inference of the ``onnx`` package finds.

    The result of an operator that it does not know is assumed to have the type of the first operand. A trial shows if
    this was wrong.
    """
    model = ModelProto.FromString(content)
    types: dict[str, TensorInfo] = {}
    for _ in range(MOST_ROUNDS):
        types = _infer(model)
        guessed = False
        for node in model.graph.node:
            operands = [name for name in node.input if name]
            if operands and operands[0] in types:
                for name in node.output:
                    if name and name not in types:
                        model.graph.value_info.append(types[operands[0]].to_proto(name))
                        guessed = True
        if not guessed:
            break
    return types


def _infer(model: ModelProto) -> dict[str, TensorInfo]:
    with contextlib.suppress(Exception):  # several kinds: the types stated in the file remain
        model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    graph = model.graph
    types = {info.name: TensorInfo.from_proto(info) for info in (*graph.value_info, *graph.output, *graph.input)}
    types |= {tensor.name: TensorInfo(tensor.data_type, tuple(tensor.dims)) for tensor in graph.initializer}
    return {name: info for name, info in types.items() if info is not None}


def import_types(content: bytes, options: Mapping[str, Any]) -> dict[str, TensorInfo]:
    """Return the types of float tensors that the frontend finds; empty if it reports an error."""
    try:
        graph = load_source(Source(ModelProto.FromString(content)), Options.of(**options))
    except TpuConvertError:
        return {}
    return {
        value.name: TensorInfo(TensorProto.FLOAT, tuple(value.shape))
        for value in graph.values
        if value.dtype.numpy == np.float32
    }


def find_constants(content: bytes, types: Mapping[str, TensorInfo]) -> dict[str, tuple[int, Array]]:
    """Return element type and value of each small tensor that does not depend on the inputs."""
    model = ModelProto.FromString(content)
    values: dict[str, Array] = {}
    for tensor in model.graph.initializer:
        array = read_tensor(tensor)
        if array is not None and array.size <= MOST_ELEMENTS:
            values[tensor.name] = array
    constants = {}
    for node in model.graph.node:
        if node.domain not in ("", "ai.onnx") or node.op_type in _RANDOM or any(True for _ in subgraphs(node)):
            continue
        results = _evaluate(model, node, values, types)
        for name, result in zip(node.output, results, strict=False):
            code = 0 if not isinstance(result, np.ndarray | np.generic) else _code_of(np.asarray(result))
            if name and code and np.asarray(result).size <= MOST_ELEMENTS:
                values[name] = np.asarray(result)
                constants[name] = code, values[name]
    return constants


def _evaluate(
    model: ModelProto, node: NodeProto, values: Mapping[str, Array], types: Mapping[str, TensorInfo]
) -> list[Any]:
    names = [name for name in node.input if name]
    if node.op_type == "Shape" and names and names[0] in types:
        shape = types[names[0]].shape
        if all(isinstance(extent, int) for extent in shape):
            limits = {attribute.name: attribute.i for attribute in node.attribute}
            return [np.array(shape[limits.get("start", 0) : limits.get("end", len(shape))], np.int64)]
        return []
    if not all(name in values for name in names):
        return []
    part = ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    part.graph.name = "node"
    part.graph.node.append(node)
    part.graph.input.extend(TensorInfo(_code_of(values[name]), ()).to_proto(name) for name in dict.fromkeys(names))
    part.graph.output.extend(onnx.ValueInfoProto(name=name) for name in node.output if name)
    try:
        return list(ReferenceEvaluator(part).run(None, {name: values[name] for name in names}))
    except Exception:  # the evaluator raises errors of many kinds; the node is kept then
        return []


_CODES = {
    np.dtype(np.float32): TensorProto.FLOAT,
    np.dtype(np.float64): TensorProto.DOUBLE,
    np.dtype(np.float16): TensorProto.FLOAT16,
    np.dtype(np.int8): TensorProto.INT8,
    np.dtype(np.uint8): TensorProto.UINT8,
    np.dtype(np.int32): TensorProto.INT32,
    np.dtype(np.int64): TensorProto.INT64,
    np.dtype(np.bool_): TensorProto.BOOL,
}


def _code_of(array: Array) -> int:
    return _CODES.get(array.dtype, 0)
