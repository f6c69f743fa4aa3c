"""Operators that move elements: slices, splits, joins, shapes, padding, gathers."""

from __future__ import annotations

import math

import numpy as np

from tests.support.tflite.chains.builder import Chain
from tests.support.tflite.chains.registry import ALL, BYTES, step


@step(*ALL, name="SLICE", weight=3)
def slice_(c: Chain, x: int) -> None:
    begin, size = [], []
    for extent in c.shape(x):
        first = c.integer(0, extent - 1) if c.chance(0.7) else 0
        begin.append(first)
        size.append(c.integer(1, extent - first))
    result = c.copied(x, size)
    stored = [-1 if b + s == e and c.chance(0.3) else s for b, s, e in zip(begin, size, c.shape(x), strict=True)]
    c.operator("SLICE", [x, c.integers(*begin), c.integers(*stored)], [result], "SliceOptions")


@step(*ALL, weight=3)
def strided_slice(c: Chain, x: int) -> None:
    begins, ends, strides, shape = [], [], [], []
    masks = {"begin_mask": 0, "end_mask": 0, "shrink_axis_mask": 0}
    for axis, extent in enumerate(c.shape(x)):
        stride = c.pick((1, 1, 1, 2, 3, -1, -2))
        first, last = sorted((c.integer(0, extent - 1), c.integer(0, extent - 1)))
        begin, end = (first, last + 1) if stride > 0 else (last, first - 1)
        if c.chance(0.2):
            masks["begin_mask"] |= 1 << axis
            begin = 0 if stride > 0 else extent - 1
        if c.chance(0.2) or end < 0:
            masks["end_mask"] |= 1 << axis
            end = extent if stride > 0 else -1
        if c.chance(0.2) and len(c.shape(x)) > 1:
            masks["shrink_axis_mask"] |= 1 << axis
            masks["begin_mask"] &= ~(1 << axis)
            stride, end = 1, begin + 1
        else:
            shape.append(len(range(begin, end, stride)))
        begins.append(begin if c.chance(0.7) else begin - extent)
        ends.append(end if end >= extent or end <= 0 or c.chance(0.7) else end - extent)
        strides.append(stride)
    if not c.fits(shape):
        return
    bounds = [c.integers(*values) for values in (begins, ends, strides)]
    options = {**masks, "ellipsis_mask": 0, "new_axis_mask": 0}
    c.operator("STRIDED_SLICE", [x, *bounds], [c.copied(x, shape)], "StridedSliceOptions", **options)


@step(*ALL)
def split(c: Chain, x: int) -> None:
    shape = c.shape(x)
    axis = c.integer(0, len(shape) - 1)
    count = c.pick([n for n in range(1, shape[axis] + 1) if shape[axis] % n == 0])
    part = [extent // count if i == axis else extent for i, extent in enumerate(shape)]
    named = axis if c.chance(0.7) else axis - len(shape)
    outputs = [c.copied(x, part) for _ in range(count)]
    c.operator("SPLIT", [c.integers(named, shape=()), x], outputs, "SplitOptions", num_splits=count)


@step(*ALL)
def split_v(c: Chain, x: int) -> None:
    shape = c.shape(x)
    axis = c.integer(0, len(shape) - 1)
    first = c.integer(1, shape[axis])
    sizes = [first, shape[axis] - first] if first < shape[axis] else [first]
    outputs = [c.copied(x, [*shape[:axis], size, *shape[axis + 1 :]]) for size in sizes]
    inputs = [x, c.integers(*sizes), c.integers(axis, shape=())]
    c.operator("SPLIT_V", inputs, outputs, "SplitVOptions", num_splits=len(sizes))


@step(*ALL, ranks=(2, 3, 4, 5), weight=1.5)
def unpack(c: Chain, x: int) -> None:
    shape = c.shape(x)
    axis = c.integer(0, len(shape) - 1)
    outputs = [c.like(x, shape[:axis] + shape[axis + 1 :]) for _ in range(shape[axis])]
    c.operator("UNPACK", [x], outputs, "UnpackOptions", num=shape[axis], axis=axis)


@step(*ALL, ranks=(1, 2, 3, 4))
def pack(c: Chain, x: int) -> None:
    shape = c.shape(x)
    axis = c.integer(0, len(shape))
    parts = [x]
    for _ in range(c.integer(0, 2)):
        other = c.other(x, same_scale=True)
        parts.append(other if other is not None else c.pick((x, c.constant(c.tensors[x], shape))))
    result = [*shape[:axis], len(parts), *shape[axis:]]
    if c.fits(result):
        c.operator("PACK", parts, [c.like(x, result)], "PackOptions", values_count=len(parts), axis=axis)


@step(*ALL, weight=2)
def concatenation(c: Chain, x: int) -> None:
    shape, one = c.shape(x), c.tensors[x]
    axis = c.integer(0, len(shape) - 1)
    same = one.type != "UINT8" or c.chance(0.3)  # the kernels of the other types require one scale
    parts = [x]
    for _ in range(c.integer(1, 2)):
        other = c.other(x, same_scale=same)
        parts.append(other if other is not None else c.pick((x, c.constant(one, shape))))
    result = [extent * len(parts) if i == axis else extent for i, extent in enumerate(shape)]
    if not c.fits(result):
        return
    y = c.like(x, result) if same else c.rescaled(x, result)
    named = axis if c.chance(0.7) else axis - len(shape)
    c.operator("CONCATENATION", parts, [y], "ConcatenationOptions", axis=named)


@step(*ALL)
def gather(c: Chain, x: int) -> None:
    shape = c.shape(x)
    axis = c.integer(0, len(shape) - 1)
    count = c.integer(1, 4)
    indices = [c.integer(0, shape[axis] - 1) for _ in range(count)]
    is_scalar = c.chance(0.2) and len(shape) > 1
    middle = () if is_scalar else (count,)
    index = c.integers(indices[0], shape=()) if is_scalar else c.integers(*indices)
    result = (*shape[:axis], *middle, *shape[axis + 1 :])
    if c.fits(result):
        c.operator("GATHER", [x, index], [c.like(x, result)], "GatherOptions", axis=axis)


@step(*ALL, ranks=(2, 3, 4), weight=0.5)
def gather_nd(c: Chain, x: int) -> None:
    shape = c.shape(x)
    depth, count = c.integer(1, len(shape) - 1), c.integer(1, 3)
    rows = [c.integer(0, shape[axis] - 1) for _ in range(count) for axis in range(depth)]
    index = c.integers(*rows, shape=(count, depth))
    c.operator("GATHER_ND", [x, index], [c.like(x, (count, *shape[depth:]))], "GatherNdOptions")


@step(*ALL, weight=2)
def reshape(c: Chain, x: int) -> None:
    rest = math.prod(c.shape(x))
    shape = []
    for _ in range(c.integer(0, 4)):
        extent = c.pick([n for n in range(1, rest + 1) if rest % n == 0])
        shape.append(extent)
        rest //= extent
    shape.append(rest)
    c.g.shuffle(shape)
    named = [-1 if i == 0 and c.chance(0.2) else extent for i, extent in enumerate(shape)]
    c.operator("RESHAPE", [x, c.integers(*named)], [c.copied(x, shape)], "ReshapeOptions", new_shape=tuple(named))


@step(*ALL, ranks=(2, 3, 4, 5), weight=2)
def transpose(c: Chain, x: int) -> None:
    order = [int(axis) for axis in c.g.permutation(len(c.shape(x)))]
    result = c.copied(x, [c.shape(x)[axis] for axis in order])
    c.operator("TRANSPOSE", [x, c.integers(*order)], [result], "TransposeOptions")


@step(*ALL)
def reverse_v2(c: Chain, x: int) -> None:
    axis = c.integer(0, len(c.shape(x)) - 1)
    c.operator("REVERSE_V2", [x, c.integers(axis)], [c.copied(x, c.shape(x))], "ReverseV2Options")


@step(*ALL)
def tile(c: Chain, x: int) -> None:
    counts = [c.pick((1, 1, 2, 3)) for _ in c.shape(x)]
    result = [extent * count for extent, count in zip(c.shape(x), counts, strict=True)]
    if c.fits(result):
        c.operator("TILE", [x, c.integers(*counts)], [c.copied(x, result)], "TileOptions")


@step(*ALL)
def broadcast_to(c: Chain, x: int) -> None:
    result = [c.integer(1, 4) if extent == 1 else extent for extent in c.shape(x)]
    if len(result) < 4 and c.chance(0.3):
        result.insert(0, c.integer(1, 3))
    if c.fits(result):
        c.operator("BROADCAST_TO", [x, c.integers(*result)], [c.copied(x, result)], "BroadcastToOptions")


@step(*ALL)
def squeeze(c: Chain, x: int) -> None:
    ones = [axis for axis, extent in enumerate(c.shape(x)) if extent == 1]
    chosen = [axis for axis in ones if c.chance(0.6)]
    if not chosen or len(chosen) == len(c.shape(x)):
        return
    result = [extent for axis, extent in enumerate(c.shape(x)) if axis not in chosen]
    c.operator("SQUEEZE", [x], [c.copied(x, result)], "SqueezeOptions", squeeze_dims=tuple(chosen))


@step(*ALL, ranks=(1, 2, 3, 4))
def expand_dims(c: Chain, x: int) -> None:
    shape = list(c.shape(x))
    axis = c.integer(0, len(shape))
    shape.insert(axis, 1)
    c.operator("EXPAND_DIMS", [x, c.integers(axis, shape=())], [c.like(x, shape)], "ExpandDimsOptions")


@step(*ALL, weight=1.5)
def pad(c: Chain, x: int) -> None:
    margins = [c.pick((0, 0, 1, 2)) for _ in range(2 * len(c.shape(x)))]
    pairs = np.asarray(margins).reshape(-1, 2)
    result = [int(extent + pair.sum()) for extent, pair in zip(c.shape(x), pairs, strict=True)]
    if c.fits(result):
        c.operator("PAD", [x, c.integers(*margins, shape=(-1, 2))], [c.copied(x, result)], "PadOptions")


@step(*BYTES, weight=0.5)
def padv2(c: Chain, x: int) -> None:
    margins = [c.pick((0, 0, 1, 2)) for _ in range(2 * len(c.shape(x)))]
    pairs = np.asarray(margins).reshape(-1, 2)
    result = [int(extent + pair.sum()) for extent, pair in zip(c.shape(x), pairs, strict=True)]
    if c.fits(result):
        inputs = [x, c.integers(*margins, shape=(-1, 2)), c.constant(c.tensors[x], ())]
        c.operator("PADV2", inputs, [c.like(x, result)], "PadV2Options")


@step("INT8", weight=0.5)
def mirror_pad(c: Chain, x: int) -> None:
    mode = c.integer(0, 1)
    most = [min(2, extent - 1 + mode) for extent in c.shape(x)]
    margins = [[c.integer(0, limit), c.integer(0, limit)] for limit in most]
    result = [extent + sum(pair) for extent, pair in zip(c.shape(x), margins, strict=True)]
    if c.fits(result):
        pairs = c.integers(*(n for pair in margins for n in pair), shape=(-1, 2))
        c.operator("MIRROR_PAD", [x, pairs], [c.like(x, result)], "MirrorPadOptions", mode=mode)


@step(*BYTES, ranks=(4,))
def space_to_depth(c: Chain, x: int) -> None:
    n, h, w, depth = c.shape(x)
    blocks = [b for b in (2, 3) if h % b == 0 and w % b == 0]
    if blocks:
        b = c.pick(blocks)
        result = c.copied(x, (n, h // b, w // b, depth * b * b))
        c.operator("SPACE_TO_DEPTH", [x], [result], "SpaceToDepthOptions", block_size=b)


@step(*BYTES, ranks=(4,))
def depth_to_space(c: Chain, x: int) -> None:
    n, h, w, depth = c.shape(x)
    blocks = [b for b in (1, 2, 3) if depth % (b * b) == 0]
    b = blocks[-1]
    result = c.copied(x, (n, h * b, w * b, depth // (b * b)))
    c.operator("DEPTH_TO_SPACE", [x], [result], "DepthToSpaceOptions", block_size=b)


@step(*BYTES, ranks=(4,), weight=0.7)
def space_to_batch_nd(c: Chain, x: int) -> None:
    n, h, w, depth = c.shape(x)
    block = c.integer(1, 2), c.integer(1, 3)
    pads = [[0, -h % block[0]], [-w % block[1], 0]]
    shape = n * block[0] * block[1], (h + pads[0][1]) // block[0], (w + pads[1][0]) // block[1], depth
    inputs = [x, c.integers(*block), c.integers(*pads[0], *pads[1], shape=(2, 2))]
    c.operator("SPACE_TO_BATCH_ND", inputs, [c.like(x, shape)], "SpaceToBatchNDOptions")


@step(*BYTES, ranks=(4,), weight=0.7)
def batch_to_space_nd(c: Chain, x: int) -> None:
    n, h, w, depth = c.shape(x)
    pairs = [(a, b) for a in (1, 2) for b in (1, 2, 3) if n % (a * b) == 0]
    block = c.pick(pairs)
    crops = [[0, c.integer(0, min(1, h * block[0] - 1))], [0, 0]]
    shape = n // (block[0] * block[1]), h * block[0] - crops[0][1], w * block[1], depth
    inputs = [x, c.integers(*block), c.integers(*crops[0], *crops[1], shape=(2, 2))]
    c.operator("BATCH_TO_SPACE_ND", inputs, [c.like(x, shape)], "BatchToSpaceNDOptions")


@step(*ALL, ranks=(1, 2, 3, 4), weight=0.8, name="STRIDED_SLICE of new axes")
def strided_slice_with_new_axes(c: Chain, x: int) -> None:
    shape = c.shape(x)
    if len(shape) > 3:
        return
    begins, ends, result = [], [], []
    new, place = 0, c.integer(0, len(shape))
    for axis in range(len(shape) + 1):
        if axis == place:
            new = 1 << len(begins)
            begins.append(0)
            ends.append(1)
            result.append(1)
        if axis < len(shape):
            first = c.integer(0, shape[axis] - 1)
            last = c.integer(first + 1, shape[axis])
            begins.append(first)
            ends.append(last)
            result.append(last - first)
    bounds = [c.integers(*values) for values in (begins, ends, (1,) * len(begins))]
    options = {"begin_mask": 0, "end_mask": 0, "ellipsis_mask": 0, "shrink_axis_mask": 0}
    c.operator(
        "STRIDED_SLICE", [x, *bounds], [c.copied(x, result)], "StridedSliceOptions", new_axis_mask=new, **options
    )


@step(*ALL, ranks=(2, 3, 4), weight=0.8, name="STRIDED_SLICE of the last axis")
def strided_slice_with_ellipsis(c: Chain, x: int) -> None:
    *rest, extent = c.shape(x)
    first = c.integer(0, extent - 1)
    is_one = c.chance(0.4)
    last = first + 1 if is_one else c.integer(first + 1, extent)
    result = (*rest,) if is_one else (*rest, last - first)
    bounds = [c.integers(*values) for values in ((0, first), (0, last), (1, 1))]
    options = {"begin_mask": 0, "end_mask": 0, "ellipsis_mask": 1, "new_axis_mask": 0}
    shrunk = 2 if is_one else 0
    y = c.copied(x, result)
    c.operator("STRIDED_SLICE", [x, *bounds], [y], "StridedSliceOptions", shrink_axis_mask=shrunk, **options)


@step(*ALL, ranks=(2, 3, 4), weight=0.7, name="GATHER of each batch")
def gather_of_each_batch(c: Chain, x: int) -> None:
    shape = c.shape(x)
    axis, count = c.integer(1, len(shape) - 1), c.integer(1, 3)
    rows = [c.integer(0, shape[axis] - 1) for _ in range(shape[0] * count)]
    index = c.integers(*rows, shape=(shape[0], count))
    result = (*shape[:axis], count, *shape[axis + 1 :])
    if c.fits(result):
        c.operator("GATHER", [x, index], [c.like(x, result)], "GatherOptions", axis=axis, batch_dims=1)


@step("INT8", weight=0.6)
def dynamic_update_slice(c: Chain, x: int) -> None:
    shape = c.shape(x)
    part = [c.integer(1, extent) for extent in shape]
    starts = [c.integer(0, extent - size) for extent, size in zip(shape, part, strict=True)]
    other = next((index for index in reversed(c.results) if c.is_like(index, x, part)), None)
    update = other if other is not None else c.constant(c.tensors[x], part)
    c.operator("DYNAMIC_UPDATE_SLICE", [x, update, c.integers(*starts)], [c.copied(x, shape)])


@step("UINT8", "INT16", ranks=(2, 3, 4), weight=0.6)
def reverse_sequence(c: Chain, x: int) -> None:
    shape = c.shape(x)
    batch, sequence = (int(axis) for axis in c.g.choice(len(shape), 2, replace=False))
    lengths = [c.integer(1, shape[sequence]) for _ in range(shape[batch])]
    options = {"seq_dim": sequence, "batch_dim": batch}
    c.operator("REVERSE_SEQUENCE", [x, c.integers(*lengths)], [c.copied(x, shape)], "ReverseSequenceOptions", **options)
