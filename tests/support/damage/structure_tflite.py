"""Systematic changes of small TFLite models: shapes, constants, types and operands, one at a time."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from tests.support.damage.structure_values import HUGE, changed_list, changed_numbers, changed_shapes, resized
from tests.support.tflite.models import O, S, T, serialize
from tpuconvert.frontends.tflite.file.schema import SCHEMA
from tpuconvert.schema.file.flatbuffer_schema import Kind

TYPES = ("INT8", "UINT8", "FLOAT16", "BOOL", "STRING", "INT64", "COMPLEX64", "FLOAT32", "INT32")
_NUMPY = {name: np.dtype(name.lower()) for name in TYPES if name != "STRING"}
_LIMITS = {"i8": (-128, 127), "i32": (-(2**31), 2**31 - 1), "u32": (0, 2**32 - 1), "i64": (-(2**63), 2**63 - 1)}

Model = Sequence[S]
Change = Callable[[], bytes]


def changes(model: Model) -> Iterator[Change]:
    """Return the changed files of a model, each as a function that makes it."""
    for place, graph in enumerate(model):
        for index, tensor in enumerate(graph.tensors):
            for new in _changed_tensors(tensor):
                yield partial(_with_tensor, model, place, index, new)
        for index, operator in enumerate(graph.operators):
            for made in _changed_operators(operator, len(graph.tensors)):
                yield partial(_with_operator, model, place, index, made)


def _with_tensor(model: Model, place: int, index: int, new: Callable[[], T]) -> bytes:
    tensors = list(model[place].tensors)
    tensors[index] = new()
    return _with_graph(model, place, tensors=tensors)


def _with_operator(model: Model, place: int, index: int, new: O) -> bytes:
    operators = list(model[place].operators)
    operators[index] = new
    return _with_graph(model, place, operators=operators)


def _with_graph(model: Model, place: int, **changed: Any) -> bytes:
    graphs = list(model)
    graphs[place] = dataclasses.replace(graphs[place], **changed)
    return serialize(*graphs)


# Tensors


def _changed_tensors(tensor: T) -> Iterator[Callable[[], T]]:
    array = tensor.array
    shape = tuple(tensor.shape) if array is None else array.shape
    for wanted in changed_shapes(shape):
        yield partial(_with_shape, tensor, wanted)
    for type_name in TYPES:
        yield partial(_with_type, tensor, type_name)
    if array is not None and array.dtype.kind == "i":
        for numbers in changed_numbers(array):
            yield partial(dataclasses.replace, tensor, data=numbers)
    if tensor.scale:
        for changed in ({"axis": 7}, {"axis": -1}, {"scale": (), "zero_point": ()}, {"scale": (0.1, 0.2, 0.3)}):
            yield partial(dataclasses.replace, tensor, **changed)


def _with_shape(tensor: T, shape: tuple[int, ...]) -> T:
    """Change the declared shape; the elements of a constant are repeated or cut, unless they would be too many."""
    array = tensor.array
    if array is None:
        return dataclasses.replace(tensor, shape=shape)
    data = resized(array, shape)
    if data is not None:
        return dataclasses.replace(tensor, data=data)
    return _raw(tensor, array, shape, tensor.type or array.dtype.name.upper())


def _with_type(tensor: T, type_name: str) -> T:
    array = tensor.array
    if array is None or type_name == "STRING":
        return (
            dataclasses.replace(tensor, type=type_name)
            if array is None
            else _raw(tensor, array, array.shape, type_name)
        )
    with np.errstate(all="ignore"):
        return _raw(tensor, array.astype(_NUMPY[type_name]), array.shape, type_name)


def _raw(tensor: T, array: Any, shape: Sequence[int], type_name: str) -> T:
    content = np.ascontiguousarray(array).tobytes()
    return dataclasses.replace(tensor, data=None, raw=content, shape=shape, type=type_name)


# Operators


def _changed_operators(operator: O, tensors: int) -> Iterator[O]:
    replace = partial(dataclasses.replace, operator)
    inputs, outputs = list(operator.inputs), list(operator.outputs)
    for index in range(len(inputs)):
        yield replace(inputs=[*inputs[:index], -1, *inputs[index + 1 :]])
        yield replace(inputs=inputs[:index])
    for more in (0, tensors - 1):
        yield replace(inputs=[*inputs, more])
    yield replace(outputs=outputs[:-1])
    yield replace(outputs=[*outputs, *outputs[:1]])
    if operator.table:
        yield replace(table="", options={})
        for name, value in _changed_options(operator):
            yield replace(options={**operator.options, name: value})


def _changed_options(operator: O) -> Iterator[tuple[str, Any]]:
    for field in SCHEMA.tables[operator.table].fields:
        old = operator.options.get(field.name)
        if field.kind is Kind.SCALAR and field.type in _LIMITS:
            lowest, highest = _LIMITS[field.type]
            for number in dict.fromkeys((-1, 0, 1, 7, min(HUGE, highest))):
                if lowest <= number and number != old:
                    yield field.name, number
        elif field.kind is Kind.SCALAR and field.type in ("f32", "f64"):
            yield from ((field.name, number) for number in (0.0, -1.0, math.nan, math.inf))
        elif field.kind is Kind.SCALAR and field.type == "bool":
            yield field.name, not old
        elif field.kind is Kind.SCALAR_VECTOR and field.size in (4, 8):
            for numbers in changed_list(old if isinstance(old, Sequence) else ()):
                fitting = [number for number in numbers if field.size == 8 or number <= HUGE]
                yield field.name, fitting if field.size == 8 else tuple(fitting)
