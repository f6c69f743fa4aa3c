"""Operators that change shapes or concatenate: RESHAPE, SQUEEZE, EXPAND_DIMS, TRANSPOSE, CONCATENATION, PACK ..."""

from __future__ import annotations

import numpy as np

from tpuconvert.frontends import emit
from tpuconvert.frontends.registry import Kind
from tpuconvert.frontends.tflite.lowering import expand, reshape
from tpuconvert.frontends.tflite.node import TfliteNode, tflite_op
from tpuconvert.schema.errors import INVALID_NODE, UNKNOWN_SHAPE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.arithmetic import Mul
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.compare import Eq
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.generation import NumberLike
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.shape_change import ExpandDims, Reshape, Squeeze
from tpuconvert.schema.ops.tile import Tile
from tpuconvert.schema.types import Array, Scalar


@tflite_op("RESHAPE", "STABLEHLO_RESHAPE", kind=Kind.DIRECT, limits="a constant shape")
def reshape_operator(node: TfliteNode, g: Graph) -> Value:
    """Reshape; an extent of -1 is inferred."""
    x = node.input(0)
    declared = node.option("new_shape", ()) if node.op_type == "RESHAPE" else ()
    if node.has_input(1):
        if not node.is_constant(1):
            raise node.fail(UNKNOWN_SHAPE, "the new shape depends on the model's inputs")
        target = node.ints(1)
    elif node.op_type == "STABLEHLO_RESHAPE":
        target = node.output_tensor().shape
    else:
        target = declared
    if target == (0,):  # old exporters write this for rank 0
        target = ()
    if 0 in target:
        raise node.fail(INVALID_NODE, f"the new shape {list(target)} has no elements")
    return g.add(Reshape(reshape_param=tuple(target) or (1,)), x)


@tflite_op("SQUEEZE", kind=Kind.DIRECT)
def squeeze(node: TfliteNode, g: Graph) -> Value:
    """Remove some or all unit axes."""
    x = node.input(0)
    shape = node.shape(0)
    asked = node.axes(node.option("squeeze_dims", ()), len(shape))
    if any(shape[axis] != 1 for axis in asked):
        raise node.fail(INVALID_NODE, f"squeeze_dims {list(asked)} of the shape {list(shape)} are not all 1")
    axes = asked or tuple(axis for axis, extent in enumerate(shape) if extent == 1)
    return g.add(Squeeze(axis=axes), x) if axes else x


@tflite_op("EXPAND_DIMS", kind=Kind.DIRECT)
def expand_dims(node: TfliteNode, g: Graph) -> Value:
    """Insert a unit axis."""
    rank = node.rank(0)
    axis = node.axis(node.one_int(1), rank + 1)
    return node.input(0) if rank == 0 else g.add(ExpandDims(axis=axis), node.input(0))


@tflite_op("TRANSPOSE", "STABLEHLO_TRANSPOSE", kind=Kind.DIRECT)
def transpose(node: TfliteNode, g: Graph) -> Value:
    """Permute the axes."""
    order = node.ints(1) if node.op_type == "TRANSPOSE" else node.option("permutation", ())
    if sorted(order) != list(range(node.rank(0))):
        raise node.fail(INVALID_NODE, f"order {list(order)} for the shape {list(node.shape(0))}")
    return g.add(Permute(order=tuple(order)), node.input(0)) if order else node.input(0)


@tflite_op("CONCATENATION", "STABLEHLO_CONCATENATE", kind=Kind.DIRECT)
def concatenation(node: TfliteNode, g: Graph) -> Value:
    """Concatenate tensors along an axis."""
    is_stablehlo = node.op_type == "STABLEHLO_CONCATENATE"
    axis = node.axis(node.option("dimension" if is_stablehlo else "axis"), node.rank(0) if node.input_count else 0)
    values = [node.input(index) for index in range(node.input_count) if not _is_neutral_part(node, index, axis)]
    result = g.add(Concat(axis=axis), *values) if len(values) > 1 or not node.input_count else values[0]
    return result if is_stablehlo else node.activate(result)


def _is_neutral_part(node: TfliteNode, index: int, axis: int) -> bool:
    """Return True if a part without elements adds nothing to a concatenation along an axis."""
    shape, first = node.shape(index), node.shape(0)
    others = [(a, b) for i, (a, b) in enumerate(zip(shape, first, strict=False)) if i != axis]
    if len(shape) != len(first) or any(a != b for a, b in others):
        raise node.fail(INVALID_NODE, f"axis {axis} cannot join {list(first)} and {list(shape)}")
    return shape[axis] == 0


@tflite_op("PACK")
def pack(node: TfliteNode, g: Graph) -> Value:
    """Stack tensors along a new axis."""
    node.ignore_option("values_count")  # redundant: the number of inputs
    if len({node.shape(index) for index in range(node.input_count)}) != 1:
        raise node.fail(INVALID_NODE, "its inputs have different shapes")
    rank = node.rank(0)
    axis = node.axis(node.option("axis"), rank + 1)
    parts = node.values()
    if rank:
        quants = [value.quant for value in parts]
        parts = [g.add(ExpandDims(axis=axis), value) for value in parts]
        for part, quant in zip(parts, quants, strict=True):
            part.quant = quant if quant is None or quant.axis is None else None
    return emit.concat(g, parts, axis)


@tflite_op("TILE", kind=Kind.DIRECT, limits="constant repetitions")
def tile(node: TfliteNode, g: Graph) -> Value | Array:
    """Repeat the whole tensor along its axes."""
    reps = node.ints(1)
    if len(reps) != node.rank(0) or min(reps, default=0) < 0:
        raise node.fail(INVALID_NODE, f"repetitions {list(reps)} of the shape {list(node.shape(0))}")
    if 0 in reps:
        return node.empty(extent * count for extent, count in zip(node.shape(0), reps, strict=True))
    return g.add(Tile(reps=reps), node.input(0)) if reps else node.input(0)


@tflite_op("BROADCAST_TO", kind=Kind.DIRECT)
def broadcast_to(node: TfliteNode, g: Graph) -> Value | Array:
    """Broadcast to a shape: repeat unit axes."""
    if 0 in node.ints(1):
        return node.empty(np.broadcast_shapes(node.shape(0), node.ints(1)))
    return expand(node.graph, node.input(0), node.ints(1))


@tflite_op("STABLEHLO_BROADCAST_IN_DIM")
def stablehlo_broadcast_in_dim(node: TfliteNode, g: Graph) -> Value:
    """Broadcast to a shape; ``broadcast_dimensions`` has the axis of the result for each axis of the input."""
    target, axes, shape = node.ints(1), node.option("broadcast_dimensions", ()), node.shape(0)
    if len(axes) != len(shape) or any(not 0 <= axis < len(target) for axis in axes):
        raise node.fail(INVALID_NODE, f"broadcast_dimensions {list(axes)} of {list(shape)} into {list(target)}")
    shaped = [1] * len(target)
    for axis, extent in zip(axes, shape, strict=True):
        shaped[axis] = extent
    return expand(node.graph, reshape(g, node.input(0), shaped), target)


@tflite_op("MATRIX_DIAG", limits="finite numbers")
def matrix_diag(node: TfliteNode, g: Graph) -> Value:
    """Create matrices with the last axis on the diagonal and zeros elsewhere."""
    shape = node.shape(0)
    if not shape:
        raise node.fail(INVALID_NODE, "input [] must have rank 1 or more")
    node.check_size([shape[-1], shape[-1]])
    x = emit.as_float(g, node.input(0))
    identity = emit.float_constant(
        g, np.eye(shape[-1]).reshape((*(1,) * (len(shape) - 1), shape[-1], shape[-1])), "identity"
    )
    return emit.cast(g, g.add(Mul(), reshape(g, x, (*shape, 1)), identity), node.input(0).dtype)


@tflite_op("ZEROS_LIKE", kind=Kind.DIRECT)
def zeros_like(node: TfliteNode, g: Graph) -> Value:
    """Zeros in the shape of the input."""
    x = node.input(0)
    return g.add(NumberLike(scalar_i=Scalar(x.dtype, 0)), x)


@tflite_op("FILL", kind=Kind.DIRECT)
def fill(node: TfliteNode, g: Graph) -> Value | Array:
    """Broadcast a computed scalar to a constant shape."""
    shape = node.ints(0)
    if 0 in shape:
        return node.empty(shape)
    return expand(node.graph, reshape(g, node.input(1), (1,) * max(len(shape), 1)), shape)


@tflite_op("ONE_HOT", limits="a constant depth")
def one_hot(node: TfliteNode, g: Graph) -> Value | Array:
    """One-hot encoding along a new axis: the on value at the index, the off value elsewhere."""
    depth, on, off = node.one_int(1), node.scalar(2), node.scalar(3)
    rank = node.rank(0)
    if depth < 0:
        raise node.fail(INVALID_NODE, f"the depth is {depth}")
    axis = rank if node.option("axis", -1) == -1 else node.axis(node.option("axis"), rank + 1)
    shape = list(node.shape(0))
    if not depth or node.is_empty(0):
        return node.empty((*shape[:axis], depth, *shape[axis:]))
    indices = emit.as_float(g, node.input(0))
    spread = reshape(g, indices, (*shape[:axis], 1, *shape[axis:]))
    node.check_size([depth])
    positions = [1] * (rank + 1)
    positions[axis] = depth
    steps = emit.float_constant(g, np.arange(depth).reshape(positions), "positions")
    equal = g.add(Eq(), spread, steps)
    result = emit.adds(g, emit.muls(g, equal, on - off), off)
    dtype = node.tensors.value_type(node.output_tensor())
    return result if dtype.is_float else g.add(Cast(dtype), result)
