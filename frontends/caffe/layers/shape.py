"""Data movement layers: reshape, permute, concat, slice, crop, tile and selection of images."""

import itertools
import math
from collections.abc import Sequence

from tpuconvert.frontends import emit
from tpuconvert.frontends.caffe.node import CaffeNode, caffe_op
from tpuconvert.frontends.registry import Kind
from tpuconvert.schema.errors import INVALID_NODE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.channel_shuffle import ChannelShuffle
from tpuconvert.schema.ops.concat import Concat, Split
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.index_select import IndexSelect
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.selection import Where
from tpuconvert.schema.ops.shape_change import Squeeze
from tpuconvert.schema.ops.tile import Tile
from tpuconvert.schema.types import I32


@caffe_op("Flatten", kind=Kind.DIRECT)
def flatten(node: CaffeNode, g: Graph) -> Value:
    """Flatten the axes from ``axis`` to ``end_axis`` into one."""
    p = node.params("flatten_param")
    shape = node.shape(0)
    first, last = node.axis(p.whole("axis"), len(shape)), node.axis(p.whole("end_axis"), len(shape))
    if first > last:
        raise node.fail(f"axis {first} is after end_axis {last}", kind=INVALID_NODE)
    flat = math.prod(shape[first : last + 1])
    return emit.reshape(g, node.input(0), (*shape[:first], flat, *shape[last + 1 :]))


@caffe_op("Reshape", kind=Kind.DIRECT)
def reshape(node: CaffeNode, g: Graph) -> Value:
    """Reshape the axes from ``axis`` on: 0 copies the extent of the input, one -1 is computed from the rest."""
    p = node.params("reshape_param")
    shape, dims = node.shape(0), p.group("shape").ints("dim")
    axis, count = p.whole("axis"), p.whole("num_axes")
    start = axis if axis >= 0 else len(shape) + axis + 1  # -1 means after the last axis
    if not 0 <= start <= len(shape):
        raise node.fail(f"axis {axis} does not exist in a tensor of rank {len(shape)}", kind=INVALID_NODE)
    end = len(shape) if count < 0 else start + count
    if end > len(shape):
        raise node.fail(f"num_axes {count} from axis {start} goes beyond {list(shape)}", kind=INVALID_NODE)
    replaced = shape[start:end]
    if any(dim == 0 and index >= len(replaced) for index, dim in enumerate(dims)) or min(dims, default=1) < -1:
        raise node.fail(f"dim {list(dims)} cannot replace {list(replaced)}", kind=INVALID_NODE)
    resolved = [replaced[index] if dim == 0 else dim for index, dim in enumerate(dims)]
    if resolved.count(-1) == 1:
        rest = math.prod([dim for dim in resolved if dim != -1])
        resolved[resolved.index(-1)] = math.prod(replaced) // rest if rest else 0
    result = (*shape[:start], *resolved, *shape[end:])
    if min(result, default=1) < 1 or math.prod(result) != math.prod(shape):
        raise node.fail(f"dim {list(dims)} does not fit an input of shape {list(shape)}", kind=INVALID_NODE)
    return emit.reshape(g, node.input(0), result or (1,))


@caffe_op("Permute", kind=Kind.DIRECT)
def permute(node: CaffeNode, g: Graph) -> Value:
    """Permute the axes; axes that ``order`` omits follow in ascending order."""
    order, rank = node.params("permute_param").ints("order"), len(node.shape(0))
    if len(set(order)) != len(order) or any(axis >= rank for axis in order):
        raise node.fail(f"order {list(order)} of {rank} axes", kind=INVALID_NODE)
    full = (*order, *(axis for axis in range(rank) if axis not in order))
    if full == tuple(range(rank)):
        return node.input(0)
    return g.add(Permute(full), node.input(0))


@caffe_op("Concat", kind=Kind.DIRECT)
def concat(node: CaffeNode, g: Graph) -> Value:
    """Concatenate tensors along an axis."""
    p = node.params("concat_param")
    axis = node.axis(p.whole("concat_dim" if p.has("concat_dim") else "axis"), len(node.shape(0)))
    return emit.concat(g, node.inputs, axis)


@caffe_op("Slice", kind=Kind.DIRECT)
def slice_layer(node: CaffeNode, g: Graph) -> Sequence[Value]:
    """Split along an axis into equal parts, or at the given indices."""
    p = node.params("slice_param")
    shape, count = node.shape(0), len(node.output_names)
    axis = node.axis(p.whole("slice_dim" if p.has("slice_dim") else "axis"), len(shape))
    points = p.ints("slice_point")
    if count == 1 and not points:
        return [node.input(0)]
    if points:
        edges = (0, *points, shape[axis])
        sizes = tuple(after - before for before, after in itertools.pairwise(edges))
    else:
        sizes = (shape[axis] // max(count, 1),) * count
    if not sizes or len(sizes) != count or min(sizes) < 1 or sum(sizes) != shape[axis]:
        text = f"slice_point {list(points)} cuts axis {axis} of {list(shape)} not into {count} parts"
        raise node.fail(text, kind=INVALID_NODE)
    return g.add_all(Split(axis, count, sizes), node.input(0))


@caffe_op("Crop", kind=Kind.DIRECT)
def crop(node: CaffeNode, g: Graph) -> Value:
    """Crop the first bottom to the extents of the second one, beginning at an offset."""
    p = node.params("crop_param")
    shape, target = node.shape(0), node.shape(1)
    axis, offsets = node.axis(p.whole("axis"), len(shape)), p.ints("offset")
    cropped = len(shape) - axis
    if len(target) != len(shape) or len(offsets) not in (0, 1, cropped):
        text = f"{len(offsets)} offsets from axis {axis} on, for {list(shape)} and {list(target)}"
        raise node.fail(text, kind=INVALID_NODE)
    starts = [0] * axis + list(offsets * cropped if len(offsets) == 1 else offsets or (0,) * cropped)
    ends = [*shape[:axis], *(start + extent for start, extent in zip(starts[axis:], target[axis:], strict=True))]
    if any(end > extent for end, extent in zip(ends, shape, strict=True)):
        raise node.fail(f"{list(target)} at offset {starts} goes beyond {list(shape)}", kind=INVALID_NODE)
    if tuple(ends) == shape and not any(starts):
        return node.input(0)
    return g.add(Extract(tuple(starts), tuple(ends), (1,) * len(shape)), node.input(0))


@caffe_op("Tile", kind=Kind.DIRECT)
def tile(node: CaffeNode, g: Graph) -> Value:
    """Repeat a tensor along one axis."""
    p = node.params("tile_param")
    rank = len(node.shape(0))
    axis, copies = node.axis(p.whole("axis"), rank), p.whole("tiles")
    if copies < 1:
        raise node.fail(f"tiles: {copies}", "give 1 or more", INVALID_NODE)
    return g.add(Tile(tuple(copies if k == axis else 1 for k in range(rank))), node.input(0))


@caffe_op("ShuffleChannel", kind=Kind.DIRECT)
def shuffle_channel(node: CaffeNode, g: Graph) -> Value:
    """Shuffle channels: transpose the channel axis as a matrix [groups, n] to [n, groups]."""
    groups, shape = node.params("shuffle_channel_param").whole("group"), node.shape(0)
    if len(shape) < 2 or groups < 1 or shape[1] % groups:
        raise node.fail(f"group {groups} does not divide the channels of {list(shape)}", kind=INVALID_NODE)
    return g.add(ChannelShuffle(groups), node.input(0))


@caffe_op("Reorg", "PassThrough")
def reorg(node: CaffeNode, g: Graph) -> Value:
    """Move s x s blocks of pixels to channels in darknet's order, or back with ``reverse``; s is ``stride``.

    Darknet's order results from reading the memory of the input as [channels / s^2, height * s, width * s].
    """
    p = node.params("reorg_param")
    s, shape = p.whole("stride"), node.shape(0)
    if len(shape) != 4 or s < 1 or shape[1] % (s * s) or (not p.flag("reverse") and (shape[2] % s or shape[3] % s)):
        raise node.fail(f"stride {s} does not divide {list(shape)}", kind=INVALID_NODE)
    batch, c, h, w = shape
    if p.flag("reverse"):
        c, h, w = c // (s * s), h * s, w * s  # the shape of the result, which is the input of the forward direction
    if c % (s * s):
        raise node.fail(f"stride {s}: {c} channels are not a multiple of {s * s}", kind=INVALID_NODE)
    if p.flag("reverse"):
        spread = emit.reshape(g, node.input(0), (batch, s, s, c // (s * s), h, w))
        return emit.reshape(g, g.add(Permute((0, 3, 4, 1, 5, 2)), spread), (batch, c, h, w))
    spread = emit.reshape(g, node.input(0), (batch, c // (s * s), h, s, w, s))
    return emit.reshape(g, g.add(Permute((0, 3, 5, 1, 2, 4)), spread), (batch, c * s * s, h // s, w // s))


@caffe_op("BatchReindex", kind=Kind.DIRECT)
def batch_reindex(node: CaffeNode, g: Graph) -> Value:
    """Select images of the batch by a tensor of indices."""
    indices = node.shape(1)
    index = emit.reshape(g, g.add(Cast(out_dtype=I32), node.input(1)), (math.prod(indices),))
    return g.add(IndexSelect(0), node.input(0), index)


@caffe_op("Filter")
def filter_layer(node: CaffeNode, g: Graph) -> Sequence[Value]:
    """Select the images of each bottom at which the last bottom is not 0; the batch extents are data-dependent."""
    selector, shape = node.input(node.input_count - 1), node.shape(node.input_count - 1)
    if any(extent != 1 for extent in shape[1:]):
        raise node.fail(f"a selector of shape {list(shape)} instead of one number per image", kind=INVALID_NODE)
    for index in range(node.input_count - 1):
        if node.shape(index)[0] != shape[0]:
            raise node.fail(f"{shape[0]} selectors for {list(node.shape(index))}", kind=INVALID_NODE)
    chosen = g.add(Squeeze((1,)), g.add(Where(), emit.reshape(g, selector, (shape[0],))))
    return [g.add(IndexSelect(0), node.input(index), chosen) for index in range(node.input_count - 1)]


@caffe_op("Focus")
def focus(node: CaffeNode, g: Graph) -> Value:
    """Move the four pixels of each 2 x 2 block to channels (YOLOv5's Focus)."""
    shape = node.shape(0)
    if len(shape) != 4 or shape[2] % 2 or shape[3] % 2:
        raise node.fail(f"an input of shape {list(shape)}", "supported: NCHW with even extents", INVALID_NODE)
    corners = ((0, 0), (1, 0), (0, 1), (1, 1))
    parts = [
        g.add(Extract((0, 0, row, column), (*shape[:2], *shape[2:]), (1, 1, 2, 2)), node.input(0))
        for row, column in corners
    ]
    return g.add(Concat(1), *parts)
