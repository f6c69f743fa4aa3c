"""If, Loop and Scan that depend on values: operators with subgraphs, which the host executes in each run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tpuconvert.frontends import emit
from tpuconvert.frontends.cannot_convert import CannotConvertError
from tpuconvert.frontends.onnx.file import element_types
from tpuconvert.frontends.onnx.file.messages import GraphProto
from tpuconvert.frontends.onnx.input_types import declared_shape
from tpuconvert.frontends.onnx.node import CompiledSubgraph, MakeInputs, OnnxNode, OnnxTensor, graph_attribute
from tpuconvert.frontends.onnx.output_tensors import roots_of, subgraph_input
from tpuconvert.frontends.onnx.quantization_params import drop_copies
from tpuconvert.frontends.open_extents import is_shape_tensor
from tpuconvert.schema.errors import UNSUPPORTED_ATTRIBUTE, UNSUPPORTED_TYPE
from tpuconvert.schema.graph.control_flow import ControlFlowOp, Subgraph
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.host.control import HostIf, HostLoop, HostScan
from tpuconvert.schema.ops.shape_change import ExpandDims, Squeeze
from tpuconvert.schema.types import DType, Shape, TensorType

_MAX_INT32 = 2**31 - 1
_SEQUENCE = "is a sequence; a subgraph that the host executes takes and returns tensors"


def convert_if(node: OnnxNode, g: Graph) -> list[OnnxTensor]:
    """Convert an If with a computed condition."""
    condition = _single(node, g, node.tensor(0), "condition")
    needs = node.tensor(0).roots
    then_branch = node.compile(graph_attribute(node, "then_branch"), _no_inputs, (), "then")
    else_branch = node.compile(graph_attribute(node, "else_branch"), _no_inputs, then_branch.captured, "else")
    captured = else_branch.captured
    for tensor in captured[len(then_branch.captured) :]:
        assert tensor.value is not None
        subgraph_input(then_branch.graph, tensor.name, tensor.value)
    if len(then_branch.results) != len(else_branch.results):
        raise node.invalid(f"its branches have {len(then_branch.results)} and {len(else_branch.results)} outputs")
    first, second = (_values(branch, needs) for branch in (then_branch, else_branch))
    for index, (a, b) in enumerate(zip(first, second, strict=True)):
        if a.dtype is not b.dtype or a.rank != b.rank:
            message = f"output {index} is {a.type} or {b.type}; both branches need equal types and ranks"
            raise CannotConvertError(UNSUPPORTED_ATTRIBUTE, message, needs=needs)
    op = HostIf(_subgraph(then_branch, first), _subgraph(else_branch, second))
    results = [
        one if one.shape == other.shape else replace(one, shape=(1,) if one.shape == () else one.shape)
        for one, other in zip(then_branch.results, else_branch.results, strict=True)
    ]
    return _add(node, g, op, [condition], captured, results)


def convert_loop(node: OnnxNode, g: Graph) -> list[OnnxTensor]:
    """Convert a Loop with a computed trip count or condition."""
    needs = roots_of(node.tensor(index) for index in (0, 1) if node.has_input(index))
    initial = []
    for index in range(2, len(node.inputs)):
        state = node.inputs[index]
        if state is not None and state.items is not None:
            raise CannotConvertError(UNSUPPORTED_TYPE, f"state {index - 2} {_SEQUENCE}", needs=needs)
        initial.append(node.tensor(index))
    trips = _trips(node, g)
    condition = emit.float_constant(g, np.ones(1), "condition")
    if node.has_input(1):
        condition = _single(node, g, node.tensor(1), "condition")

    shapes = head_shapes(graph_attribute(node, "body"))

    def make_head(body: Graph) -> list[OnnxTensor]:
        counter = body.input("iteration", TensorType(DType.INT32, (1,)))
        going = body.input("condition", TensorType(DType.FLOAT32, (1,)))
        return [
            OnnxTensor("iteration", element_types.INT64, shapes[0], None, counter, roots=needs),
            OnnxTensor("condition", element_types.BOOL, shapes[1], None, going, roots=needs),
        ]

    states = [node.materializer.value(tensor) for tensor in initial]
    body = _compile_body(node, initial, states, make_head, _no_inputs, 1, needs)
    values = _values(body, needs)
    if len(values) < 1 + len(states):
        raise node.invalid(f"its body has {len(values)} outputs, expected at least {1 + len(states)}")
    count = 1 + len(states)
    items = [_with_unit_axis(body.graph, tensor, value, 0) for tensor, value in _pairs(body, values, count)]
    subgraph = _subgraph(body, [*values[:count], *items])
    op = HostLoop(subgraph, len(states), node.limits.max_loop_iterations)
    results = [*_state_results(initial, body.results[1:count]), *map(_unknown_rank, body.results[count:])]
    return _add(node, g, op, [trips, condition, *states], body.captured, results)


def convert_scan(
    node: OnnxNode,
    g: Graph,
    initial: list[OnnxTensor],
    scanned: list[OnnxTensor],
    axes: Sequence[int],
    directions: Sequence[int],
    item_axes: Sequence[int],
    item_directions: Sequence[int],
) -> list[OnnxTensor]:
    """Convert a Scan with a symbolic number of steps."""

    def make_slices(body: Graph) -> list[OnnxTensor]:
        slices = []
        for tensor, axis in zip(scanned, axes, strict=True):
            value = node.materializer.value(tensor)
            shape: Shape = (*value.shape[:axis], 1, *value.shape[axis + 1 :])
            part = subgraph_input(body, tensor.name, value, shape)
            if part.rank > 1:
                part = body.add(Squeeze((axis,)), part)
            own = () if len(tensor.shape) == 1 else part.shape
            slices.append(OnnxTensor(tensor.name, tensor.element, own, None, part, None, tensor.roots))
        return slices

    states = [node.materializer.value(tensor) for tensor in initial]
    body = _compile_body(node, initial, states, _no_inputs, make_slices, 0, frozenset())
    values = _values(body, frozenset())
    count = len(states)
    if len(values) != count + len(item_axes):
        raise node.invalid(f"its body has {len(values)} outputs, expected {count + len(item_axes)}")
    new_axes, items = [], []
    for (tensor, value), axis in zip(_pairs(body, values, count), item_axes, strict=True):
        new_axes.append(node.axis(axis, len(tensor.shape) + 1))
        items.append(_with_unit_axis(body.graph, tensor, value, new_axes[-1]))
    op = HostScan(
        _subgraph(body, [*values[:count], *items]),
        count,
        tuple(axes),
        tuple(map(bool, directions)),
        tuple(new_axes),
        tuple(map(bool, item_directions)),
    )
    results = [*_state_results(initial, body.results[:count]), *map(_unknown_rank, body.results[count:])]
    sequences = [node.materializer.value(tensor) for tensor in scanned]
    return _add(node, g, op, [*states, *sequences], body.captured, results)


def head_shapes(body: GraphProto) -> list[tuple[int, ...]]:
    """Shapes of the iteration number and the condition: (1,) if the body of the loop declares rank 1, otherwise ()."""
    declared = [declared_shape(info) for info in body.input[:2]]
    return [(1,) if shape is not None and len(shape) == 1 else () for shape in (*declared, None, None)[:2]]


def _no_inputs(_: Graph) -> list[OnnxTensor]:
    return []


def _trips(node: OnnxNode, g: Graph) -> Value:
    """The trip count as an INT32 value; a constant that is larger, or no trip count, means no limit."""
    if not node.has_input(0):
        return g.constant(np.array([_MAX_INT32], np.int32), "trips")
    tensor = node.tensor(0)
    if tensor.array is None or is_shape_tensor(tensor.array):
        return _single(node, g, tensor, "trip count")
    return g.constant(np.array([min(int(node.scalar(0)), _MAX_INT32)], np.int32), "trips")


def _single(node: OnnxNode, g: Graph, tensor: OnnxTensor, what: str) -> Value:
    """A tensor as a value of one element."""
    value = node.materializer.value(tensor)
    if any(isinstance(extent, int) and extent != 1 for extent in tensor.shape):
        raise node.invalid(f"its {what} has the shape {list(tensor.shape)}, expected one element")
    return emit.reshape(g, value, (1,)) if value.rank > 1 else value


def _compile_body(
    node: OnnxNode,
    initial: Sequence[OnnxTensor],
    states: Sequence[Value],
    make_head: MakeInputs,
    make_tail: MakeInputs,
    skipped: int,
    needs: frozenset[str],
) -> CompiledSubgraph:
    """Convert the body of a loop. If an iteration changes extents of states, convert it again with symbolic ones.

    Args:
        node: the loop.
        initial: initial states.
        states: their values.
        make_head: declares the inputs before the states.
        make_tail: declares the inputs after the states.
        skipped: number of outputs before the states.
        needs: inputs of the model; if they were constant, the loop could be unrolled.
    """
    proto = graph_attribute(node, "body")
    shapes: list[Shape] = [
        tuple(_open_if(extent == 0, index, axis, extent) for axis, extent in enumerate(value.shape))
        for index, value in enumerate(states)
    ]

    first = 0

    def make_inputs(body: Graph) -> list[OnnxTensor]:
        nonlocal first
        tensors = list(make_head(body))
        first = len(body.inputs)
        for tensor, value, shape in zip(initial, states, shapes, strict=True):
            inner = subgraph_input(body, tensor.name, value, shape)
            own = () if tensor.shape == () else inner.shape
            tensors.append(OnnxTensor(tensor.name, tensor.element, own, None, inner, tensor.quant, tensor.roots))
        return [*tensors, *make_tail(body)]

    while True:
        body = node.compile(proto, make_inputs, (), "body")
        is_stable = True
        inner = body.graph.inputs[first:]
        for index, (before, after) in enumerate(zip(inner, body.results[skipped:], strict=False)):
            if index >= len(states):
                break
            if after.items is not None:
                raise CannotConvertError(UNSUPPORTED_TYPE, f"state {index} {_SEQUENCE}", needs=needs)
            now = after.shape or (1,)
            if len(now) != before.rank:
                message = f"state {index} has rank {before.rank} before and {len(now)} after an iteration"
                raise CannotConvertError(UNSUPPORTED_ATTRIBUTE, message, needs=needs)
            pairs = enumerate(zip(before.shape, now, strict=True))
            shape = tuple(_open_if(old != new, index, axis, old) for axis, (old, new) in pairs)
            is_stable = is_stable and (shape == before.shape)
            shapes[index] = shape
        if is_stable:
            return body


def _open_if(condition: bool, index: int, axis: int, extent: int | str) -> int | str:
    """Return the name of a symbolic extent of a state if the condition is true, otherwise the extent."""
    return f"state{index}_{axis}" if condition else extent


def _values(body: CompiledSubgraph, needs: frozenset[str]) -> list[Value]:
    """The outputs of a subgraph as values of its graph."""
    values = []
    for index, tensor in enumerate(body.results):
        if tensor.items is not None:
            raise CannotConvertError(UNSUPPORTED_TYPE, f"output {index} of its subgraph {_SEQUENCE}", needs=needs)
        values.append(body.materializer.value(tensor))
    return values


def _pairs(body: CompiledSubgraph, values: list[Value], count: int) -> list[tuple[OnnxTensor, Value]]:
    return list(zip(body.results[count:], values[count:], strict=True))


def _with_unit_axis(g: Graph, tensor: OnnxTensor, value: Value, axis: int) -> Value:
    """Insert an axis of extent 1, along which the host concatenates the values of all iterations."""
    if tensor.shape == ():
        return value
    if value.is_constant:
        return emit.reshape(g, value, (*emit.extents(value)[:axis], 1, *emit.extents(value)[axis:]))
    return g.add(ExpandDims(axis), value)


def _subgraph(body: CompiledSubgraph, outputs: Sequence[Value]) -> Subgraph:
    """Declare the outputs of a graph, and remove unneeded nodes and quantization: the host computes floats."""
    graph = body.graph
    for value in graph.values:
        value.quant = value.stored = None
    for value in outputs:
        graph.output(value)
    drop_copies(graph)
    graph.prune()
    graph.sort()
    return Subgraph(graph)


def _state_results(initial: Sequence[OnnxTensor], last: Sequence[OnnxTensor]) -> list[OnnxTensor]:
    """Element types and ranks of the last states: rank 0 if it is 0 before and after an iteration."""
    return [
        after if before.shape == () == after.shape else _unknown_rank(after)
        for before, after in zip(initial, last, strict=True)
    ]


def _unknown_rank(tensor: OnnxTensor) -> OnnxTensor:
    """Return the tensor without the information that its rank is 0."""
    return replace(tensor, shape=tensor.shape or (1,))


def _add(
    node: OnnxNode,
    g: Graph,
    op: ControlFlowOp,
    operands: Sequence[Value],
    captured: Sequence[OnnxTensor],
    results: Sequence[OnnxTensor],
) -> list[OnnxTensor]:
    """Add the operator. ``results`` have the element types of the outputs, and the shape () for outputs of rank 0."""
    outside = [node.materializer.value(tensor) for tensor in captured]
    names = [f"{node.name}/{index}" for index in range(len(results))]
    values = g.add_all(op, *operands, *outside, names=[g.unique(name) for name in names])
    roots = roots_of((*node.inputs, *captured))
    return [
        OnnxTensor(name, result.element, () if result.shape == () else value.shape, None, value, None, roots)
        for name, result, value in zip(names, results, values, strict=True)
    ]
