"""Small TFLite files for tests, written with the public ``tflite`` package, and an interpreter of graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import tflite

from tpuconvert.frontends.tflite import load
from tpuconvert.runtime.session import border
from tpuconvert.schema.graph.graph import Graph

_TYPES = {
    **{np.dtype("float32"): "FLOAT32", np.dtype("float16"): "FLOAT16", np.dtype("bool"): "BOOL"},
    **{np.dtype(name): name.upper() for name in ("int8", "uint8", "int16", "int32", "int64")},
}


@dataclass(frozen=True)
class Sparsity:
    """Storage of a sparse constant: axis order, blocks, and per axis None (dense) or (segments, indices)."""

    order: Sequence[int]
    blocks: Sequence[int]
    sizes: Sequence[int]
    levels: Sequence[tuple[Sequence[int], Sequence[int]] | None]


@dataclass(frozen=True)
class Signature:
    """Signature: (name, tensor index) of inputs and outputs."""

    key: str
    inputs: Sequence[tuple[str, int]]
    outputs: Sequence[tuple[str, int]]
    subgraph: int = 0


@dataclass(frozen=True)
class T:
    """A tensor. ``data`` makes it a constant and determines type and shape."""

    name: str = ""
    shape: Sequence[int] = ()
    type: str = ""
    data: Any = None
    scale: Sequence[float] = ()
    zero_point: Sequence[int] = ()
    axis: int = 0
    signature: Sequence[int] | None = None
    variable: bool = False
    raw: bytes | None = None  # contents of the buffer, for types that NumPy lacks
    sparsity: Sparsity | None = None

    @property
    def array(self) -> Any:
        return None if self.data is None else np.asarray(self.data)


@dataclass(frozen=True)
class O:  # noqa: E742 - short on purpose: a model is a table of these
    """An operator: name, indices of inputs and outputs, name and fields of its options."""

    name: str
    inputs: Sequence[int]
    outputs: Sequence[int]
    table: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    version: int = 1
    custom: bytes = b""
    intermediates: Sequence[int] = ()


@dataclass(frozen=True)
class S:
    """One subgraph."""

    tensors: Sequence[T]
    operators: Sequence[O]
    inputs: Sequence[int]
    outputs: Sequence[int]
    name: str = "main"


def options(builder: flatbuffers.Builder, table: str, fields: Mapping[str, Any]) -> int:
    """An options table. A tuple is a vector of int32, a list one of int64; an array is stored unchanged."""
    stored: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, np.ndarray):
            stored[name] = builder.CreateNumpyVector(value)
        elif isinstance(value, tuple | list):
            dtype = np.int32 if isinstance(value, tuple) else np.int64
            stored[name] = builder.CreateNumpyVector(np.asarray(value, dtype))
        else:
            stored[name] = builder.CreateString(value) if isinstance(value, str) else value
    getattr(tflite, f"{table}Start")(builder)
    for name, value in stored.items():
        accessor = "".join(part[:1].upper() + part[1:] for part in name.split("_"))
        getattr(tflite, f"{table}Add{accessor}")(builder, value)
    return int(getattr(tflite, f"{table}End")(builder))


def _vector(builder: flatbuffers.Builder, offsets: Sequence[int]) -> int:
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())


def _numbers(builder: flatbuffers.Builder, values: Sequence[float], dtype: Any) -> int:
    return int(builder.CreateNumpyVector(np.asarray(list(values), dtype)))


def _tensor(builder: flatbuffers.Builder, tensor: T, buffers: list[bytes]) -> int:
    array = tensor.array
    shape = tensor.shape if array is None else array.shape
    type_name = tensor.type or ("FLOAT32" if array is None else _TYPES[array.dtype])
    number = 0
    if array is not None or tensor.raw is not None:
        buffers.append(tensor.raw if tensor.raw is not None else np.ascontiguousarray(array).tobytes())
        number = len(buffers) - 1
    name = builder.CreateString(tensor.name) if tensor.name else 0
    shape_vector = _numbers(builder, shape, np.int32)
    signature = None if tensor.signature is None else _numbers(builder, tensor.signature, np.int32)
    quantization = 0
    if tensor.scale:
        scales = _numbers(builder, tensor.scale, np.float32)
        zeros = _numbers(builder, tensor.zero_point, np.int64)
        tflite.QuantizationParametersStart(builder)
        tflite.QuantizationParametersAddScale(builder, scales)
        tflite.QuantizationParametersAddZeroPoint(builder, zeros)
        tflite.QuantizationParametersAddQuantizedDimension(builder, tensor.axis)
        quantization = tflite.QuantizationParametersEnd(builder)
    sparsity = _sparsity(builder, tensor.sparsity) if tensor.sparsity else 0
    tflite.TensorStart(builder)
    if sparsity:
        tflite.TensorAddSparsity(builder, sparsity)
    tflite.TensorAddShape(builder, shape_vector)
    tflite.TensorAddType(builder, getattr(tflite.TensorType, type_name))
    tflite.TensorAddBuffer(builder, number)
    if name:
        tflite.TensorAddName(builder, name)
    if quantization:
        tflite.TensorAddQuantization(builder, quantization)
    if signature is not None:
        tflite.TensorAddShapeSignature(builder, signature)
    tflite.TensorAddIsVariable(builder, tensor.variable)
    return int(tflite.TensorEnd(builder))


def _sparsity(builder: flatbuffers.Builder, sparsity: Sparsity) -> int:
    def vector(values: Sequence[int]) -> int:
        numbers = _numbers(builder, values, np.int32)
        tflite.Int32VectorStart(builder)
        tflite.Int32VectorAddValues(builder, numbers)
        return int(tflite.Int32VectorEnd(builder))

    dims = []
    for size, level in zip(sparsity.sizes, sparsity.levels, strict=True):
        parts = None if level is None else (vector(level[0]), vector(level[1]))
        tflite.DimensionMetadataStart(builder)
        tflite.DimensionMetadataAddDenseSize(builder, size)
        if parts is not None:
            tflite.DimensionMetadataAddFormat(builder, tflite.DimensionType.SPARSE_CSR)
            tflite.DimensionMetadataAddArraySegmentsType(builder, tflite.SparseIndexVector.Int32Vector)
            tflite.DimensionMetadataAddArraySegments(builder, parts[0])
            tflite.DimensionMetadataAddArrayIndicesType(builder, tflite.SparseIndexVector.Int32Vector)
            tflite.DimensionMetadataAddArrayIndices(builder, parts[1])
        dims.append(tflite.DimensionMetadataEnd(builder))
    order, blocks = _numbers(builder, sparsity.order, np.int32), _numbers(builder, sparsity.blocks, np.int32)
    levels = _vector(builder, dims)
    tflite.SparsityParametersStart(builder)
    tflite.SparsityParametersAddTraversalOrder(builder, order)
    tflite.SparsityParametersAddBlockMap(builder, blocks)
    tflite.SparsityParametersAddDimMetadata(builder, levels)
    return int(tflite.SparsityParametersEnd(builder))


def _signature(builder: flatbuffers.Builder, signature: Signature) -> int:
    maps = []
    for entries in (signature.inputs, signature.outputs):
        items = []
        for name, index in entries:
            text = builder.CreateString(name)
            tflite.TensorMapStart(builder)
            tflite.TensorMapAddName(builder, text)
            tflite.TensorMapAddTensorIndex(builder, index)
            items.append(tflite.TensorMapEnd(builder))
        maps.append(_vector(builder, items))
    key = builder.CreateString(signature.key)
    tflite.SignatureDefStart(builder)
    tflite.SignatureDefAddInputs(builder, maps[0])
    tflite.SignatureDefAddOutputs(builder, maps[1])
    tflite.SignatureDefAddSignatureKey(builder, key)
    tflite.SignatureDefAddSubgraphIndex(builder, signature.subgraph)
    return int(tflite.SignatureDefEnd(builder))


def _operator(builder: flatbuffers.Builder, operator: O, codes: list[tuple[str, int]]) -> int:
    if (operator.name, operator.version) not in codes:
        codes.append((operator.name, operator.version))
    table = options(builder, operator.table, operator.options) if operator.table else 0
    inputs, outputs = _numbers(builder, operator.inputs, np.int32), _numbers(builder, operator.outputs, np.int32)
    custom = builder.CreateByteVector(operator.custom) if operator.custom else 0
    intermediates = _numbers(builder, operator.intermediates, np.int32) if operator.intermediates else 0
    tflite.OperatorStart(builder)
    if custom:
        tflite.OperatorAddCustomOptions(builder, custom)
    if intermediates:
        tflite.OperatorAddIntermediates(builder, intermediates)
    tflite.OperatorAddOpcodeIndex(builder, codes.index((operator.name, operator.version)))
    tflite.OperatorAddInputs(builder, inputs)
    tflite.OperatorAddOutputs(builder, outputs)
    if table:
        suffix = "" if hasattr(tflite.BuiltinOptions, operator.table) else "2"
        union = getattr(tflite, f"BuiltinOptions{suffix}")
        getattr(tflite, f"OperatorAddBuiltinOptions{suffix}Type")(builder, getattr(union, operator.table))
        getattr(tflite, f"OperatorAddBuiltinOptions{suffix}")(builder, table)
    return int(tflite.OperatorEnd(builder))


def _subgraph(builder: flatbuffers.Builder, subgraph: S, buffers: list[bytes], codes: list[tuple[str, int]]) -> int:
    tensors = _vector(builder, [_tensor(builder, tensor, buffers) for tensor in subgraph.tensors])
    operators = _vector(builder, [_operator(builder, operator, codes) for operator in subgraph.operators])
    inputs, outputs = _numbers(builder, subgraph.inputs, np.int32), _numbers(builder, subgraph.outputs, np.int32)
    name = builder.CreateString(subgraph.name)
    tflite.SubGraphStart(builder)
    tflite.SubGraphAddTensors(builder, tensors)
    tflite.SubGraphAddOperators(builder, operators)
    tflite.SubGraphAddInputs(builder, inputs)
    tflite.SubGraphAddOutputs(builder, outputs)
    tflite.SubGraphAddName(builder, name)
    return int(tflite.SubGraphEnd(builder))


def _code(builder: flatbuffers.Builder, name: str, version: int) -> int:
    builtin, _, custom = name.partition(":")
    number = getattr(tflite.BuiltinOperator, builtin) if not builtin.isdigit() else int(builtin)
    text = builder.CreateString(custom) if custom else 0
    tflite.OperatorCodeStart(builder)
    tflite.OperatorCodeAddDeprecatedBuiltinCode(builder, min(number, 127))
    tflite.OperatorCodeAddBuiltinCode(builder, number)
    tflite.OperatorCodeAddVersion(builder, version)
    if text:
        tflite.OperatorCodeAddCustomCode(builder, text)
    return int(tflite.OperatorCodeEnd(builder))


def serialize(
    *subgraphs: S,
    external: bool = False,
    inline: bool = False,
    signatures: Sequence[Signature] = (),
    metadata: Mapping[str, bytes] | None = None,
) -> bytes:
    """The file. ``external`` stores the buffers after the FlatBuffers data, with ``inline`` also in their tables."""
    if signatures or metadata:
        return _serialize_model(subgraphs, None, signatures, metadata or {})
    blank = _serialize_model(subgraphs, [] if external else None, inline=inline)
    if not external:
        return blank
    positions, end = [], len(blank)
    for data in _buffers(subgraphs):
        end = -(-end // 16) * 16
        positions.append((end, len(data)))
        end += len(data)
    file = bytearray(_serialize_model(subgraphs, positions, inline=inline))
    assert len(file) == len(blank), "offsets are stored even when they are 0"
    for (start, _), data in zip(positions, _buffers(subgraphs), strict=True):
        file += b"\0" * (start - len(file)) + data
    return bytes(file)


def _aligned_bytes(builder: flatbuffers.Builder, data: bytes) -> int:
    """A vector of bytes aligned to 16, as the kernels require for constants."""
    builder.StartVector(1, len(data), 16)
    builder.head -= len(data)
    builder.Bytes[builder.head : builder.head + len(data)] = data
    return int(builder.EndVector())


def _buffers(subgraphs: Sequence[S]) -> list[bytes]:
    buffers = [b""]
    builder = flatbuffers.Builder(1024)
    for subgraph in subgraphs:
        for tensor in subgraph.tensors:
            _tensor(builder, tensor, buffers)
    return buffers


def _metadata(builder: flatbuffers.Builder, name: str, data: bytes, buffers: list[bytes]) -> int:
    buffers.append(data)
    text = builder.CreateString(name)
    tflite.MetadataStart(builder)
    tflite.MetadataAddName(builder, text)
    tflite.MetadataAddBuffer(builder, len(buffers) - 1)
    return int(tflite.MetadataEnd(builder))


def _serialize_model(
    subgraphs: Sequence[S],
    positions: list[tuple[int, int]] | None,
    signatures: Sequence[Signature] = (),
    metadata: Mapping[str, bytes] | None = None,
    inline: bool = False,
) -> bytes:
    builder = flatbuffers.Builder(1024)
    buffers: list[bytes] = [b""]
    codes: list[tuple[str, int]] = []
    graphs = _vector(builder, [_subgraph(builder, subgraph, buffers, codes) for subgraph in subgraphs])
    entries = _vector(builder, [_metadata(builder, *item, buffers) for item in (metadata or {}).items()])
    named = _vector(builder, [_signature(builder, signature) for signature in signatures])
    code_vector = _vector(builder, [_code(builder, name, version) for name, version in codes])
    stored = []
    for index, data in enumerate(buffers):
        inside = _aligned_bytes(builder, data) if data and (positions is None or inline) else 0
        tflite.BufferStart(builder)
        if inside:
            tflite.BufferAddData(builder, inside)
        if positions is not None:
            builder.ForceDefaults(True)
            offset, size = positions[index] if positions and buffers[index] else (0, 0)
            tflite.BufferAddOffset(builder, offset)
            tflite.BufferAddSize(builder, size)
            builder.ForceDefaults(False)
        stored.append(tflite.BufferEnd(builder))
    buffer_vector = _vector(builder, stored)
    tflite.ModelStart(builder)
    tflite.ModelAddVersion(builder, 3)
    tflite.ModelAddOperatorCodes(builder, code_vector)
    tflite.ModelAddSubgraphs(builder, graphs)
    tflite.ModelAddBuffers(builder, buffer_vector)
    tflite.ModelAddMetadata(builder, entries)
    tflite.ModelAddSignatureDefs(builder, named)
    builder.Finish(tflite.ModelEnd(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())


def single(operator: str, inputs: Sequence[T], outputs: Sequence[T], table: str = "", **fields: Any) -> S:
    """A subgraph with one operator. Every input without data is an input of the model."""
    tensors = [*inputs, *outputs]
    named = [
        T(**{**tensor.__dict__, "name": tensor.name or ("xyzwvu"[i] if i < len(inputs) else f"out{i - len(inputs)}")})
        for i, tensor in enumerate(tensors)
    ]
    positions = range(len(inputs))
    results = range(len(inputs), len(tensors))
    given = [i for i in positions if inputs[i].data is None and inputs[i].raw is None and not inputs[i].variable]
    return S(named, [O(operator, list(positions), list(results), table, fields)], given, list(results))


def graph_of(folder: Path, *subgraphs: S, **arguments: Any) -> Graph:
    """Write a model and read it with the frontend."""
    path = folder / "model.tflite"
    path.write_bytes(serialize(*subgraphs))
    graph = load(path, **arguments)
    graph.validate()
    return graph


def run(graph: Graph, *inputs: Any, simulate: bool = False) -> list[np.ndarray[Any, Any]]:
    """Execute the references of a graph's operators. ``simulate`` rounds annotated values to their integers."""
    values: dict[str, Any] = {}
    for value, port, data in zip(graph.inputs, graph.input_ports, inputs, strict=True):
        values[value.name] = border.to_value(np.asarray(data, port.dtype), port, value, {})
    for node in graph.nodes:
        operands = [None if v is None else v.data if v.is_constant else values[v.name] for v in node.inputs]
        for value, result in zip(node.outputs, node.op.evaluate(*operands), strict=True):
            known = zip(result.shape, value.shape, strict=True)
            assert all(isinstance(want, str) or have == want for have, want in known), f"{node}: {result.shape}"
            quant = value.quant if simulate else None
            values[value.name] = result if quant is None else quant.dequantize(quant.quantize(result))
    return [
        border.from_value(value.array if value.is_constant else values[value.name], port, value)
        for value, port in zip(graph.outputs, graph.output_ports, strict=True)
    ]


def ops(graph: Graph) -> list[str]:
    """Operator names in execution order."""
    return [node.op.name for node in graph.nodes]
