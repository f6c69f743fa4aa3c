"""ONNX file of an export: messages, metadata, and atomic writing."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from tpuconvert.exporters.manifest import TensorOfProgram, describe_tensor
from tpuconvert.exporters.onnx_model.lowering import Lowering, Step
from tpuconvert.exporters.onnx_model.registry import lowers
from tpuconvert.exporters.program_digest import program_digest
from tpuconvert.exporters.request import Request
from tpuconvert.frontends.onnx.file.messages import AttributeProto, ModelProto, NodeProto, TensorProto, ValueInfoProto
from tpuconvert.model.model import Model
from tpuconvert.runtime.session.border import numpy_type
from tpuconvert.schema.discovery import import_modules
from tpuconvert.schema.errors import ResourceLimitError, UsageError
from tpuconvert.schema.graph.graph import Graph, Port, Value
from tpuconvert.schema.system.file_replacement import replacing
from tpuconvert.schema.types import Array, Chip, Dim, QuantParams

OPSET = 21
"""Version of the ONNX operator set of exported files."""

IR_VERSION = 10
"""ONNX file format version: the first with metadata of nodes and values, and the one of operator set 21."""

FORMAT = 1
"""Version of the manifest."""

_LARGEST = (1 << 31) - 1
"""Largest protobuf message, in bytes."""


def export_onnx(request: Request) -> dict[str, Any]:
    """Write an ONNX file and return its manifest.

    Raises:
        UnsupportedError: some nodes have no exact form. Nothing is written.
        UsageError: a chip or samples were given, or the file cannot be written.
        ResourceLimitError: the model exceeds 2 GB.
    """
    if request.chip is not None:
        raise UsageError(
            f"chip '{request.chip}' was given, but an ONNX file has the arithmetic of the model's chip",
            hint="leave out --chip",
        )
    if request.samples is not None:
        raise UsageError("samples were given, but an ONNX file stores none", hint="leave out --data")
    return write_model(request.path, lower_model(request.model), request.name, with_checks=request.with_checks)


def lower_model(model: Model) -> Lowering:
    """Lower a model. It raises the exceptions of ``lower_graph``."""
    return lower_graph(model.graph, model.chip)


def lower_graph(graph: Graph, chip: Chip) -> Lowering:
    """Lower a graph to ONNX operators.

    Raises:
        UnsupportedError: some nodes have no exact form; the message lists all of them.
    """
    import_modules("tpuconvert.exporters.onnx_model.forms")
    lowering = Lowering(graph, chip)
    lowering.run(lowers)
    lowering.problems.raise_if_any()
    return lowering


def write_model(path: str | os.PathLike[str], lowering: Lowering, name: str, *, with_checks: bool) -> dict[str, Any]:
    """Write the ONNX file of a lowering.

    Args:
        path: the file; it is replaced atomically.
        lowering: the lowered graph.
        name: name of the ONNX graph.
        with_checks: add every integer tensor to the outputs.

    Returns:
        The manifest.

    Raises:
        UnsupportedError: the type of an output cannot be represented.
        ResourceLimitError: the model exceeds 2 GB.
    """
    model, manifest = build_model(lowering, name, with_checks=with_checks)
    size = model.ByteSize()
    if size > _LARGEST:
        raise ResourceLimitError(
            f"the ONNX file would have {size} bytes, expected at most {_LARGEST}", hint="quantize the model to INT8"
        )
    with replacing(path) as file:
        file.write(model.SerializeToString(deterministic=True))
    return manifest


def build_model(lowering: Lowering, name: str, *, with_checks: bool) -> tuple[ModelProto, dict[str, Any]]:
    """Return the ONNX model of a lowering, and the manifest. The arguments are the same as for ``write_model``."""
    graph = lowering.graph
    outputs = lowering.outputs()
    lowering.problems.raise_if_any()
    ports = [port for port, _ in outputs]
    taken = {port.name for port in ports}
    named = lowering.named_values()
    checks = [value for _, value in named if value.dtype.is_integer and value.name not in taken] if with_checks else []
    model = ModelProto(ir_version=IR_VERSION, producer_name="tpuconvert")
    model.opset_import.add(domain="", version=OPSET)
    model.graph.name = name
    used = {tensor for step in lowering.steps for tensor in step.inputs}
    model.graph.initializer.extend(_tensor(key, array) for key, array in lowering.constants.items() if key in used)
    model.graph.node.extend(map(_node, lowering.steps))
    for value, port in zip(graph.inputs, graph.input_ports, strict=True):
        model.graph.input.append(_value_info(port.name, numpy_type(port.dtype), port.shape, value.quant or port.quant))
    for port, value in outputs:
        model.graph.output.append(_value_info(port.name, numpy_type(port.dtype), port.shape, value.quant or port.quant))
    for value in checks:
        model.graph.output.append(_value_info(value.name, value.dtype.numpy, value.shape, value.quant))
    listed = taken | {value.name for value in checks}
    model.graph.value_info.extend(
        _value_info(tensor, value.dtype.numpy, value.shape, value.quant)
        for tensor, value in named
        if tensor not in listed
    )
    scales = {tensor: _quantization(value.quant) for tensor, value in named if value.quant and value.dtype.is_integer}
    digest = program_digest(graph)
    for key, text in (
        ("chip", lowering.chip.value),
        ("program_digest", digest),
        ("quantization", json.dumps(scales, sort_keys=True)),
    ):
        model.metadata_props.add(key=f"tpuconvert.{key}", value=text)
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "to": "onnx",
        "name": name,
        "chip": lowering.chip.value.lower(),
        "opset": OPSET,
        "program_digest": digest,
        "inputs": [_describe(port, value) for port, value in zip(graph.input_ports, graph.inputs, strict=True)],
        "outputs": [_describe(port, value) for port, value in outputs]
        + [_describe(Port(value.name, value.dtype.numpy.name, value.shape), value) for value in checks],
    }
    return model, manifest


def _describe(port: Port, value: Value) -> TensorOfProgram:
    quant = (value.quant or port.quant) if value.dtype.is_integer else None
    return describe_tensor(port.name, port.dtype, port.shape, quant)


def _quantization(quant: QuantParams) -> dict[str, Any]:
    fields: dict[str, Any] = {"scale": list(quant.scale), "zero_point": list(quant.zero_point)}
    return fields if quant.axis is None else {**fields, "axis": quant.axis}


_ELEMENT_TYPES: Mapping[str, str] = {"float32": "FLOAT", "float64": "DOUBLE"}
"""Names of ONNX element types that differ from NumPy's name in capitals."""


def element_type(dtype: np.dtype[Any]) -> int:
    """Return the ONNX number of an element type."""
    number: int = TensorProto.DataType.Value(_ELEMENT_TYPES.get(dtype.name, dtype.name.upper()))
    return number


def _tensor(name: str, array: Array) -> TensorProto:
    data = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()
    return TensorProto(name=name, data_type=element_type(array.dtype), dims=array.shape, raw_data=data)


def _node(step: Step) -> NodeProto:
    node = NodeProto(op_type=step.operator, name=step.outputs[0], input=step.inputs, output=step.outputs)
    node.attribute.extend(_attribute(key, item) for key, item in sorted(step.attributes.items()))
    if step.origin is not None:
        node.metadata_props.add(key="tpuconvert.operator", value=step.origin.op.name)
        node.metadata_props.add(key="tpuconvert.node", value=step.origin.name)
    return node


def _attribute(name: str, item: Any) -> AttributeProto:
    if isinstance(item, str):
        return AttributeProto(name=name, type=AttributeProto.STRING, s=item.encode())
    if isinstance(item, float):
        return AttributeProto(name=name, type=AttributeProto.FLOAT, f=item)
    if isinstance(item, (tuple, list)):
        if item and isinstance(item[0], str):
            return AttributeProto(name=name, type=AttributeProto.STRINGS, strings=[text.encode() for text in item])
        if item and isinstance(item[0], float):
            return AttributeProto(name=name, type=AttributeProto.FLOATS, floats=item)
        return AttributeProto(name=name, type=AttributeProto.INTS, ints=[int(number) for number in item])
    number = element_type(np.dtype(item)) if name == "to" else int(item)
    return AttributeProto(name=name, type=AttributeProto.INT, i=number)


def _value_info(name: str, dtype: np.dtype[Any], shape: tuple[Dim, ...], quant: QuantParams | None) -> ValueInfoProto:
    info = ValueInfoProto(name=name)
    info.type.tensor_type.elem_type = element_type(dtype)
    info.type.tensor_type.shape.SetInParent()
    for extent in shape:
        if isinstance(extent, int):
            info.type.tensor_type.shape.dim.add(dim_value=extent)
        else:
            info.type.tensor_type.shape.dim.add(dim_param=extent)
    if quant is not None and dtype.kind in "iu":
        for key, item in sorted(_quantization(quant).items()):
            info.metadata_props.add(key=key, value=json.dumps(item))
    return info
