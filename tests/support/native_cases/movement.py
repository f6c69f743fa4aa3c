"""Chains of data movement operators, for every element type and memory order."""

import math

from tests.support.native_cases.draft import Draft, kind
from tests.support.native_cases.rescaling import table
from tpuconvert.schema.graph.graph import Value
from tpuconvert.schema.ops.channel_shift import Clshift, Crshift, Lshift, Rshift
from tpuconvert.schema.ops.channel_shuffle import ChannelShuffle
from tpuconvert.schema.ops.concat import Concat, Interleave, Split
from tpuconvert.schema.ops.copy import Copy
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.generation import NumberLike, ShapeFetch
from tpuconvert.schema.ops.index_select import IndexSelect
from tpuconvert.schema.ops.interpolate import Interpolate, InterpolateMode, PlatForm
from tpuconvert.schema.ops.pad import Pad, PadType
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.shape_change import ExpandDims, Reshape, Squeeze
from tpuconvert.schema.ops.space_to_batch import BatchToSpace, SpaceToBatch
from tpuconvert.schema.ops.stride_arithmetic import StrideCpy, StrideCpyOffset
from tpuconvert.schema.ops.tile import Broadcast, Repeat, Tile
from tpuconvert.schema.ops.upsample import Upsample
from tpuconvert.schema.types import F32, I8, I16, I32, U8, U16, Scalar

MOST = 6000
"""Elements of any value of a chain."""


def permute(draft: Draft, x: Value) -> Value:
    return draft.add(Permute(tuple(int(axis) for axis in draft.rng.permutation(x.rank))), x)


def reshape(draft: Draft, x: Value) -> Value:
    """Draw a shape with the same number of elements: other factors, or adjacent axes merged."""
    extents = list(x.type.static_shape)
    for _ in range(draft.number(1, 3)):
        if draft.chance(0.5) and len(extents) > 1:
            at = draft.number(0, len(extents) - 2)
            extents[at : at + 2] = [extents[at] * extents[at + 1]]
        elif len(extents) < 6:
            at = draft.number(0, len(extents) - 1)
            divisors = [d for d in range(1, extents[at] + 1) if extents[at] % d == 0]
            first = draft.pick(*divisors)
            extents[at : at + 1] = [first, extents[at] // first]
    return draft.add(Reshape(tuple(extents)), x)


def ones(draft: Draft, x: Value) -> Value:
    if 1 in x.shape and x.rank > 1 and draft.chance(0.5):
        return draft.add(Squeeze((x.shape.index(1),)), x)
    return draft.add(ExpandDims(draft.number(0, x.rank)), x) if x.rank < 6 else x


def extract(draft: Draft, x: Value) -> Value:
    starts, ends, strides = [], [], []
    for extent in x.type.static_shape:
        whole = draft.chance(0.5)
        starts.append(0 if whole else draft.number(0, extent - 1))
        ends.append(extent if whole else draft.number(starts[-1] + 1, extent))
        strides.append(1 if draft.chance(0.7) else draft.number(1, 3))
    return draft.add(Extract(tuple(starts), tuple(ends), tuple(strides)), x)


def pad(draft: Draft, x: Value) -> Value:
    mode = draft.pick(PadType.PAD_CONSTANT, PadType.PAD_CONSTANT, *PadType)
    paddings = []
    for extent in x.type.static_shape:
        most = 3 if mode in (PadType.PAD_CONSTANT, PadType.PAD_EDGE) else min(3, extent - 1)
        paddings += [draft.number(0, most) if draft.chance(0.4) else 0 for _ in range(2)]
    value = draft.pick(0, 1, 5) if x.dtype is F32 else draft.pick(0, x.dtype.min, x.dtype.max)
    return draft.add(Pad(Scalar(x.dtype, value), tuple(paddings), mode), x)


def split(draft: Draft, x: Value) -> Value:
    """The parts in another order, one of them twice."""
    axis = draft.number(0, x.rank - 1)
    extent = x.type.static_shape[axis]
    first = draft.number(1, extent) if extent > 1 else 1
    sizes = (first, extent - first) if first < extent else (extent,)
    parts = draft.add_all(Split(draft.pick(axis, axis - x.rank), len(sizes), sizes), x)
    if draft.chance(0.3):
        return draft.pick(*parts)
    chosen = [draft.pick(*parts) for _ in range(draft.number(1, 3))]
    return draft.add(Concat(axis=axis), *chosen)


def repeat(draft: Draft, x: Value) -> Value:
    counts = tuple(draft.pick(1, 1, 2, 3) for _ in range(x.rank))
    return draft.add(draft.pick(Tile(counts), Repeat(counts), Broadcast(counts)), x)


def resize(draft: Draft, x: Value) -> Value:
    if x.rank != 4:
        return x
    if draft.chance(0.4):
        return draft.add(Upsample(draft.number(1, 3)), x)
    op = Interpolate(
        size=(draft.small(14), draft.small(14)),
        platform=PlatForm.TENSORFLOW,
        method=InterpolateMode.NEAREST,
        **draft.pick({}, {"align_corners": True}, {"half_pixel_centers": True}),
    )
    return draft.add(op, x)


def channels(draft: Draft, x: Value) -> Value:
    """Operators on axis 1."""
    if x.rank != 4:
        return x
    count = x.type.static_shape[1]
    groups = draft.pick(*(d for d in range(1, count + 1) if count % d == 0))
    number = draft.number(0, count)
    return draft.add(
        draft.pick(ChannelShuffle(groups), Lshift(number), Rshift(number), Clshift(number), Crshift(number)), x
    )


def select(draft: Draft, x: Value) -> Value:
    dim = draft.number(0, x.rank - 1)
    index = draft.rng.integers(0, x.type.static_shape[dim], draft.small(9)).astype("int32")
    return draft.add(IndexSelect(dim=draft.pick(dim, dim - x.rank)), x, draft.constant(index))


def interleave(draft: Draft, x: Value) -> Value:
    axis = draft.number(0, x.rank - 1)
    extent = x.type.static_shape[axis]
    step = draft.pick(*(d for d in range(1, extent + 1) if extent % d == 0))
    return draft.add(Interleave(axis, step), x, x)


def copy(draft: Draft, x: Value) -> Value:
    return draft.add(Copy(), x)


MOVES = (permute, permute, reshape, reshape, ones, extract, extract, pad, split, split, repeat, resize, channels)
MOVES = (*MOVES, select, interleave, copy)


def moved(draft: Draft, x: Value, count: int) -> Value:
    """Add up to ``count`` data movement operators, as long as the value stays small."""
    for _ in range(count):
        move = draft.pick(*MOVES)
        if move in (repeat, pad, resize, interleave) and math.prod(x.type.static_shape) > MOST / 9:
            continue
        x = move(draft, x)
    return x


@kind(500)
def slices_by_index(draft: Draft) -> None:
    """Slices of an input or of a table, selected by indices that are an input."""
    dtype = draft.pick(F32, F32, F32, I8, U8, I16, U16, I32)
    rank = draft.pick(1, 1, 2, 2, 3, 4)
    shape = tuple(draft.small(draft.pick(9, 70)) for _ in range(rank))
    is_table = draft.chance(0.5)
    x = (
        draft.constant(draft.data(dtype, shape))
        if is_table
        else moved(draft, draft.input(dtype, shape), draft.pick(0, 1))
    )
    dim = draft.number(0, x.rank - 1)
    index = draft.rng.integers(0, x.type.static_shape[dim], draft.small(40)).astype("int32")
    y = draft.add(IndexSelect(dim=draft.pick(dim, dim - x.rank)), x, draft.input(I32, index.shape, index))
    moved(draft, y, draft.pick(0, 0, 1, 2))


@kind(1500)
def moves(draft: Draft) -> None:
    """One to eight operators in a chain; inputs and constants may be outputs."""
    dtype = draft.pick(I8, U8, I8, U8, I16, U16, I32, F32)
    rank = draft.pick(1, 2, 3, 4, 4, 4, 5)
    shape = tuple(draft.small(30 if axis == 1 else 10) for axis in range(rank))
    x = draft.input(dtype, shape)
    y = moved(draft, x, draft.number(1, 8))
    if y is x:
        y = copy(draft, x)
    if y.dtype.bits == 8 and draft.chance(0.2):
        y = table(draft, y)
        y = moved(draft, y, draft.number(0, 3))
    draft.graph.output(y)
    if draft.chance(0.1):
        draft.graph.output(x)


@kind(200)
def blocks(draft: Draft) -> None:
    """space_to_batch and batch_to_space, with padding and crop larger than a block in some cases."""
    size = (draft.number(1, 3), draft.number(1, 3))
    edges = tuple(draft.pick(0, 0, draft.number(0, 4)) for _ in range(4))
    dtype = draft.pick(F32, I32, I8, U8)
    if draft.chance(0.5):
        extents = [draft.small(12) for _ in range(2)]
        for axis in range(2):
            extents[axis] += -(extents[axis] + edges[2 * axis] + edges[2 * axis + 1]) % size[axis]
        x = draft.input(dtype, (draft.small(3), draft.small(9), *extents))
        draft.add(SpaceToBatch(size, edges), x)
        return
    extents = [draft.number(9 // size[axis] + 1, 12) for axis in range(2)]
    x = draft.input(dtype, (draft.small(3) * size[0] * size[1], draft.small(9), *extents))
    draft.add(BatchToSpace(size, edges), x)


@kind(150)
def samples(draft: Draft) -> None:
    """Strided copies, tensors filled with a number, and extents as a tensor."""
    shape = tuple(draft.small(12) for _ in range(draft.number(1, 5)))
    x = draft.input(draft.pick(F32, I8, U8, I16, U16), shape)
    if draft.chance(0.3):
        x = permute(draft, x)
    form = draft.pick("copy", "copy", "number", "shape")
    if form == "shape":
        draft.add(ShapeFetch(0, len(shape), draft.number(1, 2)), x)
    elif form == "number":
        dtype = draft.pick(F32, I32, I8, U8)
        draft.add(NumberLike(Scalar(dtype, int(draft.data(dtype, (1,))[0]))), x)
    else:
        stride = tuple(draft.number(1, 3) for _ in shape)
        offset = tuple(draft.number(0, extent - 1) for extent in x.type.static_shape)
        draft.add(draft.pick(StrideCpy(stride), StrideCpyOffset(stride, offset)), x)
