"""If, Loop and Scan.

If condition and trip count are constant, the branch is inlined and the loop is unrolled. Otherwise the subgraphs become
separate graphs, and the node becomes an operator that the host executes (``host_control_flow.py``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tpuconvert.frontends import emit
from tpuconvert.frontends.onnx.file import element_types
from tpuconvert.frontends.onnx.file.messages import GraphProto
from tpuconvert.frontends.onnx.node import OnnxNode, OnnxTensor, graph_attribute, onnx_op
from tpuconvert.frontends.onnx.operators import host_control_flow
from tpuconvert.frontends.open_extents import is_shape_tensor
from tpuconvert.frontends.registry import Kind
from tpuconvert.schema.errors import TOO_LARGE, UNSUPPORTED_ATTRIBUTE
from tpuconvert.schema.graph.graph import Graph, Value


class _NotConstantError(Exception):
    """A condition is computed from inputs of the model."""


def _read_condition(node: OnnxNode, tensor: OnnxTensor) -> bool:
    """Return the value of a condition, which must be constant."""
    if tensor.array is None:
        raise _NotConstantError
    if tensor.array.size != 1:
        raise node.invalid(f"its condition has {tensor.array.size} elements")
    return bool(tensor.array.reshape(-1)[0])


@onnx_op("If", since=1, kind=Kind.HOST, limits="inlined if the condition is known at conversion")
def if_(node: OnnxNode, g: Graph) -> list[OnnxTensor]:
    """Inline the branch that a constant condition selects; otherwise the host selects one in each run."""
    then_branch, else_branch = graph_attribute(node, "then_branch"), graph_attribute(node, "else_branch")
    if node.tensor(0).array is None:
        if not _is_squeeze_of_unit_axes(then_branch, else_branch):
            return host_control_flow.convert_if(node, g)
        g.notes.append(f"'{node.name}' squeezes axes of extent 1 only: inputs for which they are longer are refused")
        return node.inline(then_branch, [], "then")
    taken = then_branch if _read_condition(node, node.tensor(0)) else else_branch
    return node.inline(taken, [], "then" if taken is then_branch else "else")


def _is_squeeze_of_unit_axes(then_branch: GraphProto, else_branch: GraphProto) -> bool:
    """Return True for ``x.squeeze(axis)`` of PyTorch: Squeeze if the axis has extent 1, else x with another rank.

    What follows is exported for one of the ranks. The converted Squeeze refuses other extents.
    """
    first = [each for each in then_branch.node if each.op_type != "Constant"]
    kinds = [each.op_type for each in (*first, *else_branch.node)]
    return kinds == ["Squeeze", "Identity"] and first[0].input[0] == else_branch.node[0].input[0]


@onnx_op("Loop", since=1, kind=Kind.HOST, limits="unrolled if trip count and condition are known at conversion")
def loop(node: OnnxNode, g: Graph) -> list[OnnxTensor]:
    """Unroll the body if trip count and conditions are constant; otherwise the host repeats it in each run."""
    trips = node.tensor(0).array if node.has_input(0) else np.zeros(1)
    has_trips = trips is not None and not is_shape_tensor(trips)
    try:
        if has_trips:
            return _unrolled_loop(node, g)
    except _NotConstantError:
        pass
    return host_control_flow.convert_loop(node, g)


def _unrolled_loop(node: OnnxNode, g: Graph) -> list[OnnxTensor]:
    body = graph_attribute(node, "body")
    going = _read_condition(node, node.tensor(1)) if node.has_input(1) else True
    trips = int(node.scalar(0)) if node.has_input(0) else None
    states = [_state(node, index) for index in range(2, len(node.inputs))]
    collected: list[list[OnnxTensor]] = [[] for _ in range(len(body.output) - 1 - len(states))]
    shapes = host_control_flow.head_shapes(body)
    trip = 0
    while going and (trips is None or trip < trips):
        _check_trips(node, trip)
        counter = OnnxTensor.constant("trip", element_types.INT64, np.full(shapes[0], trip, np.int64))
        condition = OnnxTensor.constant("condition", element_types.BOOL, np.full(shapes[1], True))
        results = node.inline(body, [counter, condition, *states], str(trip))
        going = _read_condition(node, results[0])
        states = results[1 : 1 + len(states)]
        for column, tensor in zip(collected, results[1 + len(states) :], strict=True):
            column.append(tensor)
        trip += 1
    if collected and not trip:
        kinds = zip((element_types.INT64, element_types.BOOL), shapes, strict=True)
        head = [OnnxTensor.constant("head", kind, np.zeros(shape, kind.numpy)) for kind, shape in kinds]
        return [*states, *_empty_items(node, [*head, *states], 1 + len(states), (0,) * len(collected))]
    return [*states, *(_stack(node, g, column, 0) for column in collected)]


def _empty_items(node: OnnxNode, arguments: Sequence[OnnxTensor], first: int, axes: Sequence[int]) -> list[OnnxTensor]:
    """Scan outputs of a body that is not executed, so that their new axes are empty.

    Args:
        node: the loop.
        arguments: inputs of the body, which is converted for the types of its outputs.
        first: index of the first scan output among the outputs of the body.
        axes: axis of each scan output along which it would be stacked.
    """
    empty = []
    for item, axis in zip(node.inline(graph_attribute(node, "body"), arguments, "0")[first:], axes, strict=True):
        extents = [extent for extent in item.shape if isinstance(extent, int)]
        if len(extents) != len(item.shape):
            raise node.fail(UNSUPPORTED_ATTRIBUTE, "a scan output of no iteration has symbolic extents")
        new_axis = node.axis(axis, len(item.shape) + 1)
        shape = (*extents[:new_axis], 0, *extents[new_axis:])
        empty.append(OnnxTensor.constant(item.name, item.element, np.zeros(shape, item.element.numpy)))
    return empty


def _state(node: OnnxNode, index: int) -> OnnxTensor:
    """Loop-carried value: a tensor or a sequence."""
    state = node.inputs[index]
    if state is None or state.items is None:
        return node.tensor(index)
    node.sequence(index)
    return state


def _check_trips(node: OnnxNode, trip: int) -> None:
    if trip >= node.limits.max_unrolled_nodes:
        raise node.fail(TOO_LARGE, f"more than {trip} iterations")


def _stack(node: OnnxNode, g: Graph, parts: list[OnnxTensor], axis: int) -> OnnxTensor:
    """Stack tensors of equal shape along a new axis."""
    if not parts:
        raise node.fail(UNSUPPORTED_ATTRIBUTE, "no iteration or no sample", "supported: from opset 9 on")
    first = parts[0]
    shape = tuple(int(extent) for extent in first.shape)
    new_axis = axis + len(shape) + 1 if axis < 0 else axis
    if not 0 <= new_axis <= len(shape):
        raise node.invalid(f"axis {axis} of a result of rank {len(shape) + 1}")
    wide = (*shape[:new_axis], 1, *shape[new_axis:])
    if any(part.shape != first.shape or part.element is not first.element or part.quant for part in parts):
        raise node.fail(UNSUPPORTED_ATTRIBUTE, "a scan output has different shapes or types in different iterations")
    if all(part.array is not None for part in parts):
        arrays = [part.array.reshape(wide) for part in parts if part.array is not None]
        node.budget((*wide, len(arrays)), first.element.numpy.itemsize)
        array = np.concatenate(arrays, new_axis)
        return OnnxTensor.constant(first.name, first.element, array)
    values = [emit.reshape(g, node.materializer.value(part), wide) for part in parts]
    value = emit.concat(g, values, new_axis)
    roots = first.roots.union(*(part.roots for part in parts))
    return OnnxTensor(first.name, first.element, value.shape, None, value, None, roots)


def _slice(node: OnnxNode, g: Graph, tensor: OnnxTensor, axis: int, position: int) -> OnnxTensor:
    """Select one index of an axis, and remove the axis."""
    shape = tuple(int(extent) for extent in tensor.shape)
    rest = shape[:axis] + shape[axis + 1 :]
    if tensor.array is not None:
        return OnnxTensor.constant(tensor.name, tensor.element, np.take(tensor.array, position, axis))
    value: Value = emit.slice_axis(g, node.materializer.value(tensor), axis, position, position + 1)
    return OnnxTensor(tensor.name, tensor.element, rest, None, emit.reshape(g, value, rest or (1,)), None, tensor.roots)


@onnx_op("Scan", since=8, kind=Kind.FOLDED, limits="a number of steps that is known; unrolled")
def scan_batches(node: OnnxNode, g: Graph) -> list[OnnxTensor]:
    """Scan of opset 8: all tensors have a batch axis first, and each sample is scanned separately."""
    if node.has_input(0):
        raise node.fail(UNSUPPORTED_ATTRIBUTE, "input 0 (sequence_lens)", "supported: samples of full length")
    body = graph_attribute(node, "body")
    count = node.required_attr("num_scan_inputs", 1)
    directions = node.ints_attr("directions") or (0,) * count
    inputs = [node.tensor(index) for index in range(1, len(node.inputs))]
    if not 1 <= count <= len(inputs) or len(directions) != count:
        raise node.invalid(f"num_scan_inputs={count} of {len(inputs)} inputs")
    sizes = {tensor.shape[0] for tensor in inputs if tensor.shape}
    if len(sizes) != 1 or any(len(tensor.shape) < 2 for tensor in inputs[-count:]):
        raise node.invalid("its inputs have no common batch axis")
    states, outputs = len(inputs) - count, len(body.output) - len(inputs) + count
    samples = []
    for sample in range(int(sizes.pop())):
        own = [_slice(node, g, tensor, 0, sample) for tensor in inputs]
        results, columns = _scan_result(
            node, g, own[:states], own[states:], (0,) * count, directions, outputs, f"{sample}/"
        )
        samples.append([*results, *(_stack(node, g, column, 0) for column in columns)])
    return [_stack(node, g, list(parts), 0) for parts in zip(*samples, strict=True)]


@onnx_op("Scan", since=9, kind=Kind.HOST, limits="unrolled if the number of steps is known at conversion")
def scan(node: OnnxNode, g: Graph) -> list[OnnxTensor]:
    """Unroll the body: one copy per slice of the scanned inputs. The host repeats it if their number is symbolic."""
    body = graph_attribute(node, "body")
    count = node.required_attr("num_scan_inputs", 1)
    total = len(node.inputs)
    if not 1 <= count <= total or len(body.output) < total - count:
        raise node.invalid(f"num_scan_inputs={count} of {total} inputs, {len(body.output)} results")
    states = [node.tensor(index) for index in range(total - count)]
    scanned = [node.tensor(index) for index in range(total - count, total)]
    outputs = len(body.output) - len(states)
    axes = node.ints_attr("scan_input_axes") or (0,) * count
    directions = node.ints_attr("scan_input_directions") or (0,) * count
    out_axes = node.ints_attr("scan_output_axes") or (0,) * outputs
    out_directions = node.ints_attr("scan_output_directions") or (0,) * outputs
    if (len(axes), len(directions), len(out_axes), len(out_directions)) != (count, count, outputs, outputs):
        raise node.invalid("its axes or directions are not one per scanned input or output")
    scan_axes = [node.axis(axis, len(tensor.shape)) for axis, tensor in zip(axes, scanned, strict=True)]
    if not all(isinstance(tensor.shape[axis], int) for tensor, axis in zip(scanned, scan_axes, strict=True)):
        return host_control_flow.convert_scan(node, g, states, scanned, scan_axes, directions, out_axes, out_directions)
    if outputs and any(tensor.shape[axis] == 0 for tensor, axis in zip(scanned, scan_axes, strict=True)):
        slices = [_empty_slice(tensor, axis) for tensor, axis in zip(scanned, scan_axes, strict=True)]
        return [*states, *_empty_items(node, [*states, *slices], len(states), out_axes)]
    states, collected = _scan_result(node, g, states, scanned, scan_axes, directions, outputs)
    columns = zip(collected, out_axes, out_directions, strict=True)
    stacked = [_stack(node, g, column[::-1] if back else column, axis) for column, axis, back in columns]
    return [*states, *stacked]


def _empty_slice(tensor: OnnxTensor, axis: int) -> OnnxTensor:
    """Zeros in place of a slice of an axis that is empty, as an argument of a body that is not executed."""
    shape = [extent if isinstance(extent, int) else 1 for k, extent in enumerate(tensor.shape) if k != axis]
    return OnnxTensor.constant(tensor.name, tensor.element, np.zeros(shape, tensor.element.numpy))


def _scan_result(
    node: OnnxNode,
    g: Graph,
    states: list[OnnxTensor],
    scanned: list[OnnxTensor],
    axes: Sequence[int],
    directions: Sequence[int],
    outputs: int,
    label: str = "",
) -> tuple[list[OnnxTensor], list[list[OnnxTensor]]]:
    """Return the last states, and for each scan output one tensor per iteration."""
    body = graph_attribute(node, "body")
    lengths = {int(tensor.shape[axis]) for tensor, axis in zip(scanned, axes, strict=True)}
    if len(lengths) != 1:
        raise node.invalid(f"scanned inputs of lengths {sorted(lengths)}")
    length = lengths.pop()
    collected: list[list[OnnxTensor]] = [[] for _ in range(outputs)]
    for trip in range(length):
        _check_trips(node, trip)
        slices = [
            _slice(node, g, tensor, axis, length - 1 - trip if backwards else trip)
            for tensor, axis, backwards in zip(scanned, axes, directions, strict=True)
        ]
        results = node.inline(body, [*states, *slices], f"{label}{trip}")
        states = results[: len(states)]
        for column, tensor in zip(collected, results[len(states) :], strict=True):
            column.append(tensor)
    return states, collected
