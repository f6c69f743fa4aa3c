"""Sequences and optionals with a length known at conversion time; they are resolved to tensors."""

from __future__ import annotations

import numpy as np

from tpuconvert.frontends import emit
from tpuconvert.frontends.onnx.file import element_types
from tpuconvert.frontends.onnx.node import OnnxNode, OnnxTensor, graph_attribute, onnx_op
from tpuconvert.frontends.registry import Kind
from tpuconvert.schema.errors import TOO_LARGE
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.types import Array


def _sequence(node: OnnxNode, items: tuple[OnnxTensor, ...]) -> OnnxTensor:
    roots = frozenset[str]().union(*(item.roots for item in items))
    return OnnxTensor(
        node.output_names[0], items[0].element if items else element_types.FLOAT, (), roots=roots, items=items
    )


def _index(node: OnnxNode, index: int, count: int, past_end: bool = False) -> int:
    """Return a nonnegative index into a sequence."""
    at = int(node.scalar(index))
    if not -count <= at < count + past_end:
        raise node.invalid(f"position {at} in a sequence of {count} tensors")
    return at + count if at < 0 else at


@onnx_op("SequenceEmpty", since=11, kind=Kind.FOLDED)
def sequence_empty(node: OnnxNode, _: Graph) -> OnnxTensor:
    """Create an empty sequence."""
    node.optional_attr("dtype")
    return _sequence(node, ())


@onnx_op("SequenceConstruct", since=11, kind=Kind.FOLDED)
def sequence_construct(node: OnnxNode, _: Graph) -> OnnxTensor:
    """Create a sequence of all inputs."""
    return _sequence(node, tuple(node.tensor(index) for index in range(len(node.inputs))))


@onnx_op("SequenceInsert", since=11, kind=Kind.FOLDED)
def sequence_insert(node: OnnxNode, _: Graph) -> OnnxTensor:
    """Insert a tensor at the end or at an index."""
    items = node.sequence(0)
    at = _index(node, 2, len(items), True) if node.has_input(2) else len(items)
    return _sequence(node, (*items[:at], node.tensor(1), *items[at:]))


@onnx_op("SequenceErase", since=11, kind=Kind.FOLDED)
def sequence_erase(node: OnnxNode, _: Graph) -> OnnxTensor:
    """Remove the last tensor, or the one at an index."""
    items = node.sequence(0)
    at = _index(node, 1, len(items)) if node.has_input(1) else len(items) - 1
    return _sequence(node, (*items[:at], *items[at + 1 :]))


@onnx_op("SequenceAt", since=11, kind=Kind.FOLDED)
def sequence_at(node: OnnxNode, _: Graph) -> OnnxTensor:
    """Return the tensor at an index."""
    items = node.sequence(0)
    return items[_index(node, 1, len(items))]


@onnx_op("SequenceLength", since=11, kind=Kind.FOLDED)
def sequence_length(node: OnnxNode, _: Graph) -> Array:
    """Number of tensors."""
    return np.array(len(node.sequence(0)), np.int64)


@onnx_op("ConcatFromSequence", since=11, kind=Kind.DIRECT)
def concat_from_sequence(node: OnnxNode, g: Graph) -> OnnxTensor:
    """Concatenate all tensors, or stack them along a new axis."""
    items = node.sequence(0)
    if not items or any(item.element is not items[0].element or item.quant is not None for item in items):
        raise node.invalid("its sequence is empty, or has tensors of different types")
    is_new = bool(node.attr("new_axis", 0))
    shapes = [tuple(int(extent) for extent in item.shape) for item in items]
    axis = node.axis(node.required_attr("axis", 0), len(shapes[0]) + is_new)
    if is_new:
        shapes = [(*shape[:axis], 1, *shape[axis:]) for shape in shapes]
    values = [
        emit.reshape(g, node.materializer.value(item), shape or (1,))
        for item, shape in zip(items, shapes, strict=True)
        if 0 not in shape
    ]
    if not values:
        raise node.invalid("all tensors of its sequence are empty")
    value = emit.concat(g, values, axis)
    roots = frozenset[str]().union(*(item.roots for item in items))
    return OnnxTensor(node.output_names[0], items[0].element, value.shape, None, value, None, roots)


def _check_count(node: OnnxNode, count: int) -> None:
    if count > node.limits.max_unrolled_nodes:
        raise node.fail(TOO_LARGE, f"a sequence of {count} tensors, more than {node.limits.max_unrolled_nodes}")


@onnx_op("SplitToSequence", since=11, kind=Kind.FOLDED)
def split_to_sequence(node: OnnxNode, g: Graph) -> OnnxTensor:
    """Split along an axis into parts of one size, of given sizes, or into single slices."""
    shape = node.shape(0)
    axis = node.axis(node.attr("axis", 0), len(shape))
    extent, keeps_axis = shape[axis], True
    if node.has_input(1):
        sizes = node.ints(1)
        if node.rank(1) == 0:
            if sizes[0] < 1:
                raise node.invalid(f"parts of {sizes[0]} elements")
            _check_count(node, -(-extent // sizes[0]))
            sizes = tuple(min(sizes[0], extent - start) for start in range(0, extent, sizes[0]))
    else:
        keeps_axis = bool(node.attr("keepdims", 1))
        _check_count(node, extent)
        sizes = (1,) * extent
    if sum(sizes) != extent or min(sizes, default=0) < 0:
        raise node.invalid(f"parts {list(sizes)} of extent {extent}")
    tensor, items, start = node.tensor(0), [], 0
    for number, size in enumerate(sizes):
        target = tuple(size if k == axis else n for k, n in enumerate(shape) if k != axis or keeps_axis)
        name = f"{node.output_names[0]}/{number}"
        if tensor.array is not None:
            part = np.take(tensor.array, np.arange(start, start + size), axis).reshape(target)
            items.append(OnnxTensor(name, tensor.element, target, part))
        elif not size:
            items.append(OnnxTensor(name, tensor.element, target, np.empty(target, tensor.element.numpy)))
        else:
            value = emit.reshape(g, emit.slice_axis(g, node.input(0), axis, start, start + size), target or (1,))
            items.append(OnnxTensor(name, tensor.element, target, None, value, None, tensor.roots))
        start += size
    return _sequence(node, tuple(items))


@onnx_op("SequenceMap", since=17, kind=Kind.FOLDED)
def sequence_map(node: OnnxNode, _: Graph) -> list[OnnxTensor]:
    """Inline the body once per tensor of the first sequence; other sequences are indexed too, tensors are not."""
    body, first = graph_attribute(node, "body"), node.sequence(0)
    rows: list[list[OnnxTensor]] = []
    for number in range(len(first)):
        arguments = []
        for index, tensor in enumerate(node.inputs):
            if tensor is not None and tensor.items is not None:
                others = node.sequence(index)
                if len(others) != len(first):
                    raise node.invalid(f"sequences of {len(first)} and {len(others)} tensors")
                arguments.append(others[number])
            else:
                arguments.append(node.tensor(index))
        rows.append(node.inline(body, arguments, str(number)))
    return [_sequence(node, tuple(row[k] for row in rows)) for k in range(len(body.output))]


@onnx_op("OptionalHasElement", since=15, kind=Kind.FOLDED)
def optional_has_element(node: OnnxNode, _: Graph) -> Array:
    """True if the optional has a value."""
    if node.has_input(0):
        node.read_inputs.add(0)
    return np.array(node.has_input(0))


@onnx_op("Optional", "OptionalGetElement", since=15, kind=Kind.FOLDED)
def optional_value(node: OnnxNode, _: Graph) -> OnnxTensor:
    """The value of the optional."""
    tensor = node.inputs[0] if node.inputs else None
    if tensor is None:
        raise node.invalid("has no value", "supported: optional values that are there")
    node.read_inputs.add(0)
    node.optional_attr("type")
    return tensor
