"""Systematic changes of small ONNX models: shapes, constants, types, operands and attributes, one at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, numpy_helper

from tests.support.damage.structure_values import changed_list, changed_numbers, changed_shapes, resized

TYPES = ("INT8", "UINT8", "FLOAT16", "BOOL", "STRING", "INT64", "COMPLEX64", "FLOAT", "INT32")
NUMBERS = (0, 1, -1, 7, -100, 2**31 - 1, 2**62)

Change = Callable[[], bytes]


def changes(model: onnx.ModelProto) -> Iterator[Change]:
    """Return the changed files of a model, each as a function that makes it."""
    graph = model.graph
    for index, value in enumerate(graph.input):
        shape = tuple(dim.dim_value or 2 for dim in value.type.tensor_type.shape.dim)
        for wanted in changed_shapes(shape):
            yield partial(_changed, model, partial(_set_shape, index, wanted))
        for type_name in TYPES:
            yield partial(_changed, model, partial(_set_type, index, type_name))
        yield partial(_changed, model, partial(_set_shape, index, None))
    for index, tensor in enumerate(graph.initializer):
        for make in _changed_constants(tensor):
            yield partial(_changed, model, partial(_set_constant, index, make))
    for path, node in _nodes(graph):
        for edit in _node_edits(node):
            yield partial(_changed, model, partial(_edit_node, path, edit))


def _changed(model: onnx.ModelProto, edit: Callable[[onnx.GraphProto], None]) -> bytes:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    edit(copy.graph)
    return copy.SerializeToString()


# Inputs and constants


def _set_shape(index: int, shape: tuple[int, ...] | None, graph: onnx.GraphProto) -> None:
    tensor = graph.input[index].type.tensor_type
    tensor.ClearField("shape")
    if shape is not None:
        tensor.shape.SetInParent()
        for extent in shape:
            tensor.shape.dim.add().dim_value = extent


def _set_type(index: int, type_name: str, graph: onnx.GraphProto) -> None:
    graph.input[index].type.tensor_type.elem_type = TensorProto.DataType.Value(type_name)


def _set_constant(index: int, make: Callable[[], TensorProto], graph: onnx.GraphProto) -> None:
    graph.initializer[index].CopyFrom(make())


def _changed_constants(tensor: TensorProto) -> Iterator[Callable[[], TensorProto]]:
    if tensor.data_type == TensorProto.STRING:
        return
    try:
        array = numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError):
        return
    for shape in changed_shapes(array.shape):
        yield partial(_shaped_constant, tensor, array, shape)
    for type_name in TYPES:
        yield partial(_typed_constant, tensor, array, type_name)
    if array.dtype.kind == "i":
        for numbers in changed_numbers(array):
            yield partial(numpy_helper.from_array, numbers, tensor.name)
    elif array.dtype.kind == "f" and array.size <= 64:
        for number in (0.0, -1.0, math.nan, math.inf):
            yield partial(numpy_helper.from_array, np.full(array.shape, number, array.dtype), tensor.name)


def _shaped_constant(tensor: TensorProto, array: Any, shape: tuple[int, ...]) -> TensorProto:
    data = resized(array, shape)
    if data is not None:
        return numpy_helper.from_array(data, tensor.name)
    made = TensorProto()
    made.CopyFrom(tensor)
    del made.dims[:]
    made.dims.extend(shape)
    return made


def _typed_constant(tensor: TensorProto, array: Any, type_name: str) -> TensorProto:
    number = TensorProto.DataType.Value(type_name)
    if type_name == "STRING":
        made = TensorProto(name=tensor.name, data_type=number, dims=array.shape)
        made.string_data.extend([b"x"] * array.size)
        return made
    with np.errstate(all="ignore"):
        return numpy_helper.from_array(array.astype(onnx.helper.tensor_dtype_to_np_dtype(number)), tensor.name)


# Nodes

Path = tuple[tuple[int, str], ...]
"""Index of a node, and name of its attribute with the next graph, from the main graph inwards."""


def _nodes(graph: onnx.GraphProto, path: Path = ()) -> Iterator[tuple[Path, onnx.NodeProto]]:
    for index, node in enumerate(graph.node):
        yield (*path, (index, "")), node
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from _nodes(attribute.g, (*path, (index, attribute.name)))


def _edit_node(path: Path, edit: Callable[[onnx.NodeProto], None], graph: onnx.GraphProto) -> None:
    for index, name in path:
        node = graph.node[index]
        graph = next((item.g for item in node.attribute if item.name == name), graph)
    edit(node)


def _node_edits(node: onnx.NodeProto) -> Iterator[Callable[[onnx.NodeProto], None]]:
    inputs, outputs = list(node.input), list(node.output)
    for index in range(len(inputs)):
        yield partial(_set_names, "input", [*inputs[:index], "", *inputs[index + 1 :]])
        yield partial(_set_names, "input", inputs[:index])
    if inputs:
        yield partial(_set_names, "input", [*inputs, inputs[0]])
    if outputs:
        yield partial(_set_names, "output", [*outputs, "another"])
        yield partial(_set_names, "output", ["", *outputs[1:]])
    for index, attribute in enumerate(node.attribute):
        yield partial(_remove_attribute, index)
        for field, value in _attribute_values(attribute):
            yield partial(_set_attribute, index, field, value)


def _set_names(field: str, names: list[str], node: onnx.NodeProto) -> None:
    del getattr(node, field)[:]
    getattr(node, field).extend(names)


def _remove_attribute(index: int, node: onnx.NodeProto) -> None:
    del node.attribute[index]


def _set_attribute(index: int, field: str, value: Any, node: onnx.NodeProto) -> None:
    attribute = node.attribute[index]
    if isinstance(value, list):
        del getattr(attribute, field)[:]
        getattr(attribute, field).extend(value)
    elif isinstance(value, TensorProto):
        attribute.t.CopyFrom(value)
    else:
        setattr(attribute, field, value)


def _attribute_values(attribute: AttributeProto) -> Iterator[tuple[str, Any]]:
    if attribute.type == AttributeProto.INT:
        yield from (("i", number) for number in NUMBERS if number != attribute.i)
    elif attribute.type == AttributeProto.INTS:
        yield from (("ints", numbers) for numbers in changed_list(attribute.ints))
    elif attribute.type == AttributeProto.FLOAT:
        yield from (("f", number) for number in (0.0, -1.0, math.nan, math.inf, 1e30))
    elif attribute.type == AttributeProto.FLOATS:
        old = list(attribute.floats)
        changed = ([], old[:-1], [*old, 1.0], [0.0] * len(old), [math.nan] * len(old), [1e30] * len(old))
        yield from (("floats", numbers) for numbers in changed)
    elif attribute.type == AttributeProto.STRING:
        yield from (("s", text) for text in (b"", b"x", b"\xff"))
    elif attribute.type == AttributeProto.STRINGS:
        yield from (("strings", texts) for texts in ([], [b"x"], list(attribute.strings)[:-1]))
    elif attribute.type == AttributeProto.TENSOR:
        yield from (("t", make()) for make in _changed_constants(attribute.t))
