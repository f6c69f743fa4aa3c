"""Arguments of Reshape, Squeeze, Transpose, reductions and others, for converters and constant evaluators.

Several attributes became inputs in later opsets. These functions read the form that the opset of the node has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tpuconvert.frontends.onnx.node import OnnxNode
from tpuconvert.schema.errors import INVALID_NODE, UNKNOWN_SHAPE


def attr_or_input(node: OnnxNode, name: str, index: int, input_since: int) -> tuple[int, ...] | None:
    """Read integers that are an attribute before opset ``input_since``, and an optional input since then."""
    if node.version < input_since:
        return node.ints_attr(name)
    return node.ints(index) if node.has_input(index) else None


def reshape_target(node: OnnxNode) -> tuple[int, ...]:
    """Result shape of Reshape: 0 copies an extent (unless ``allowzero``), one -1 is inferred."""
    shape = node.shape(0)
    target = list(node.required_attr("shape", ()) if node.version < 5 else node.ints(1))
    allow_zero = node.attr("allowzero", 0) if node.version >= 14 else 0
    if not allow_zero:
        for axis, extent in enumerate(target):
            if extent == 0 and axis >= len(shape):
                raise node.fail(INVALID_NODE, f"target shape {target} copies axis {axis} of rank {len(shape)}")
            target[axis] = shape[axis] if extent == 0 else extent
    if target.count(-1) > 1 or any(extent < -1 for extent in target):
        raise node.fail(INVALID_NODE, f"target shape {target}")
    count = math.prod(shape)
    if -1 in target:
        known = math.prod(extent for extent in target if extent != -1)
        if known == 0 or count % known:
            raise node.fail(INVALID_NODE, f"shape {list(shape)} does not fit {target}")
        target[target.index(-1)] = count // known
    if math.prod(target) != count:
        raise node.fail(INVALID_NODE, f"shape {list(shape)} does not fit {target}")
    return tuple(target)


def flatten_target(node: OnnxNode) -> tuple[int, int]:
    """Result shape of Flatten."""
    shape = node.shape(0)
    axis = node.attr("axis", 1)
    if not -len(shape) <= axis <= len(shape):
        raise node.fail(INVALID_NODE, f"axis {axis} is outside rank {len(shape)}")
    axis += len(shape) if axis < 0 else 0
    return math.prod(shape[:axis]), math.prod(shape[axis:])


def squeeze_target(node: OnnxNode) -> tuple[int, ...]:
    """Result shape of Squeeze."""
    shape = node.shape(0)
    axes = attr_or_input(node, "axes", 1, 13)
    if axes is None:
        return tuple(extent for extent in shape if extent != 1)  # raises an error for a symbolic extent
    removed = node.axes(axes, len(shape))
    if any(shape[axis] != 1 for axis in removed):
        raise node.fail(INVALID_NODE, f"axes {list(removed)} of shape {list(shape)} do not all have extent 1")
    return tuple(extent for axis, extent in enumerate(shape) if axis not in removed)


def unsqueeze_target(node: OnnxNode) -> tuple[int, ...]:
    """Result shape of Unsqueeze; the axes are those of the result."""
    shape = node.shape(0)
    axes = attr_or_input(node, "axes", 1, 13)
    if axes is None:
        raise node.fail(INVALID_NODE, "lacks its axes")
    rank = len(shape) + len(axes)
    new = node.axes(axes, rank)
    rest = iter(shape)
    return tuple(1 if axis in new else next(rest) for axis in range(rank))


def transpose_order(node: OnnxNode) -> tuple[int, ...]:
    """Axis order of Transpose; reversed by default."""
    rank = node.rank(0)
    order = node.ints_attr("perm")
    if order is None:
        return tuple(reversed(range(rank)))
    if sorted(order) != list(range(rank)):
        raise node.fail(INVALID_NODE, f"perm {list(order)} is no order of {rank} axes")
    return order


def reduce_axes(node: OnnxNode, input_since: int) -> tuple[int, ...]:
    """Axes of a reduction; by default all, or none with ``noop_with_empty_axes``."""
    rank = node.rank(0)
    axes = attr_or_input(node, "axes", 1, input_since)
    no_op = node.attr("noop_with_empty_axes", 0) if node.version >= input_since else 0
    if not axes:
        return () if no_op else tuple(range(rank))
    return tuple(sorted(node.axes(axes, rank)))


def without(shape: Sequence[int], axes: Sequence[int], keep: bool) -> tuple[int, ...]:
    """Shape after a reduction."""
    if keep:
        return tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))
    return tuple(extent for axis, extent in enumerate(shape) if axis not in axes)


def target_extents(node: OnnxNode, index: int) -> tuple[int, ...]:
    """Read a shape from a constant input."""
    found = node.ints(index)
    if any(extent < 0 for extent in found):
        raise node.fail(UNKNOWN_SHAPE, f"input {index} is the shape {list(found)}")
    return found
