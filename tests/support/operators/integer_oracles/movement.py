"""Operators that move, select or sort elements, or create them from shapes."""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from hypothesis import assume

from tests.support.operators.integer_oracles.base import (
    BYTES,
    Example,
    Sampler,
    Tensor,
    example,
    made,
    make,
    oracle,
    positions,
)
from tpuconvert.schema.ops.ordering import ArgMethod
from tpuconvert.schema.ops.pad import PadType
from tpuconvert.schema.ops.selection import SelectType
from tpuconvert.schema.types import F32, I32, DType, Scalar


def anything(name: str, s: Sampler, shape: Sequence[int]) -> Tensor:
    """Draw data of a type that the operator accepts; floats are integers, many of them equal."""
    dtype = s.data_type(name)
    return few(s, dtype, shape) if dtype.is_float else s.tensor(dtype, shape)


def few(s: Sampler, dtype: DType, shape: Sequence[int], low: int = -2, high: int = 2) -> Tensor:
    """Draw from few different values, so that many elements are equal."""
    low = max(low, 0) if not dtype.is_signed else low
    values = s.numbers(low, high, math.prod(shape))
    return Tensor(dtype, tuple(shape), [float(v) for v in values] if dtype.is_float else list(values))


def vector(values: Sequence[int]) -> Tensor:
    return Tensor(I32, (len(values),), list(values))


@oracle("copy", "constdata")
def copy(name: str, s: Sampler) -> Example:
    x = anything(name, s, s.shape())
    return example(make(name), [x], x, constants=(name == "constdata",))


@oracle("lshift", "rshift", "clshift", "crshift")
def slices(name: str, s: Sampler) -> Example:
    x, num = anything(name, s, s.shape(2, extent=4)), s.number(0, 9)
    channels = x.shape[1]

    def value(index: tuple[int, ...]) -> int:
        n, c, *rest = index
        source = c + num if name in ("lshift", "clshift") else c - num
        if name.startswith("c"):
            source %= channels
        return x.at((n, source, *rest)) if 0 <= source < channels else 0

    return example(make(name, num=num), [x], made(x.dtype, x.shape, value))


@oracle("concat")
def concat(name: str, s: Sampler) -> Example:
    shape, dtype = s.shape(), s.data_type(name)
    given, axis = s.axis(len(shape))
    extents = s.numbers(1, 4, s.number(1, 4))
    parts = [s.tensor(dtype, (*shape[:axis], n, *shape[axis + 1 :])) for n in extents]

    def value(index: tuple[int, ...]) -> int:
        place = list(index)
        for part in parts:
            if place[axis] < part.shape[axis]:
                return part.at(place)  # type: ignore[no-any-return]  # an element of Any
            place[axis] -= part.shape[axis]
        raise AssertionError(index)

    whole = made(dtype, (*shape[:axis], sum(extents), *shape[axis + 1 :]), value)
    return example(make(name, axis=given), list(parts), whole)


@oracle("split")
def split(name: str, s: Sampler) -> Example:
    shape = s.shape()
    given, axis = s.axis(len(shape))
    num = s.number(1, 4)
    sizes = s.numbers(1, 3, num) if s.flag() else ()
    used = sizes or (shape[axis],) * num
    x = anything(name, s, (*shape[:axis], sum(used), *shape[axis + 1 :]))
    parts = []
    for k, size in enumerate(used):
        first = sum(used[:k])
        part_shape = (*shape[:axis], size, *shape[axis + 1 :])
        parts.append(
            made(x.dtype, part_shape, lambda i, first=first: x.at((*i[:axis], i[axis] + first, *i[axis + 1 :])))  # type: ignore[misc]  # defaults of a lambda
        )
    return example(make(name, axis=given, num=num, size=sizes), [x], *parts)


@oracle("interleave")
def interleave(name: str, s: Sampler) -> Example:
    shape, step = s.shape(), s.number(1, 3)
    given, axis = s.axis(len(shape))
    shape = (*shape[:axis], shape[axis] * step, *shape[axis + 1 :])
    x0 = anything(name, s, shape)
    x1 = s.tensor(x0.dtype, shape)

    def value(index: tuple[int, ...]) -> int:
        chunk, within = divmod(index[axis], step)
        place = (*index[:axis], chunk // 2 * step + within, *index[axis + 1 :])
        return (x1 if chunk % 2 else x0).at(place)  # type: ignore[no-any-return]  # an element of Any

    whole = made(x0.dtype, (*shape[:axis], 2 * shape[axis], *shape[axis + 1 :]), value)
    return example(make(name, axis=given, step=step), [x0, x1], whole)


@oracle("extract", "extract_v2")
def extract(name: str, s: Sampler) -> Example:
    x = anything(name, s, s.shape(extent=5))
    start = [s.number(0, n - 1) for n in x.shape]
    end = [s.number(first + 1, n) for first, n in zip(start, x.shape, strict=True)]
    stride = s.numbers(1, 3, len(x.shape))
    shape = [len(range(a, b, c)) for a, b, c in zip(start, end, stride, strict=True)]
    value = made(x.dtype, shape, lambda i: x.at([a + k * c for a, k, c in zip(start, i, stride, strict=True)]))
    if name == "extract_v2":
        return example(make(name), [x, vector(start), vector(end), vector(stride)], value)
    return example(make(name, start=tuple(start), end=tuple(end), stride=stride), [x], value)


@oracle("index_select")
def index_select(name: str, s: Sampler) -> Example:
    x = anything(name, s, s.shape(extent=4))
    given, dim = s.axis(len(x.shape))
    index = s.numbers(0, x.shape[dim] - 1, s.number(1, 6))
    shape = (*x.shape[:dim], len(index), *x.shape[dim + 1 :])
    value = made(x.dtype, shape, lambda i: x.at((*i[:dim], index[i[dim]], *i[dim + 1 :])))
    return example(make(name, dim=given), [x, vector(index)], value)


def mirror(place: int, extent: int, mode: PadType) -> int | None:
    """Index of the element at a position that may be outside of the axis; None for the pad value."""
    if 0 <= place < extent:
        return place
    if mode is PadType.PAD_CONSTANT:
        return None
    if mode is PadType.PAD_EDGE:
        return 0 if place < 0 else extent - 1
    twice = 1 if mode is PadType.PAD_SYMMETRIC else 0
    return -place - twice if place < 0 else 2 * extent - 2 - place + twice


@oracle("pad", "pad_v2")
def pad(name: str, s: Sampler) -> Example:
    x, mode = anything(name, s, s.shape()), s.choice(list(PadType))
    most = {PadType.PAD_REFLECT: [n - 1 for n in x.shape], PadType.PAD_SYMMETRIC: list(x.shape)}
    limits = most.get(mode, [3] * len(x.shape))
    paddings = tuple(s.number(0, limit) for limit in limits for _ in range(2))
    scalar = s.scalar(x.dtype)
    shape = [n + paddings[2 * k] + paddings[2 * k + 1] for k, n in enumerate(x.shape)]

    def value(index: tuple[int, ...]) -> int:
        place = [mirror(i - paddings[2 * k], x.shape[k], mode) for k, i in enumerate(index)]
        known = [i for i in place if i is not None]
        return x.at(known) if len(known) == len(place) else int(scalar.value)

    parameters: dict[str, Any] = {"pad_val": scalar, "pad_mode": mode}
    if name == "pad":
        return example(make(name, paddings=paddings, **parameters), [x], made(x.dtype, shape, value))
    return example(make(name, **parameters), [x, vector(paddings)], made(x.dtype, shape, value))


@oracle("permute")
def permute(name: str, s: Sampler) -> Example:
    x = anything(name, s, s.shape(most=5))
    order: list[int] = []
    for _ in x.shape:
        order.append(s.choice([k for k in range(len(x.shape)) if k not in order]))

    def value(index: tuple[int, ...]) -> int:
        place = [0] * len(index)
        for k, i in zip(order, index, strict=True):
            place[k] = i
        return x.at(place)  # type: ignore[no-any-return]  # an element of Any

    return example(make(name, order=tuple(order)), [x], made(x.dtype, [x.shape[k] for k in order], value))


@oracle("reshape", "reshape_v2")
def reshape(name: str, s: Sampler) -> Example:
    x = anything(name, s, s.shape())
    rest, shape = math.prod(x.shape), []
    while rest > 1 or not shape:
        shape.append(s.choice([n for n in range(1, rest + 1) if rest % n == 0 and (n > 1 or rest == 1)]))
        rest //= shape[-1]
    asked = list(shape)
    for k, extent in enumerate(shape):
        if k < len(x.shape) and x.shape[k] == extent and s.flag():
            asked[k] = 0
    if s.flag():
        asked[s.number(0, len(asked) - 1)] = -1
    expected = Tensor(x.dtype, tuple(shape), x.values)
    if name == "reshape_v2":
        return example(make(name), [x, vector(asked)], expected)
    return example(make(name, reshape_param=tuple(asked)), [x], expected)


@oracle("squeeze")
def squeeze(name: str, s: Sampler) -> Example:
    x = anything(name, s, s.shape(extent=2))
    ones = [k for k, n in enumerate(x.shape) if n == 1]
    removed = [k for k in ones if s.flag()]
    shape = tuple(n for k, n in enumerate(x.shape) if k not in (removed or ones)) or (1,)
    axis = tuple(k - len(x.shape) if s.flag() else k for k in removed)
    return example(make(name, axis=axis), [x], Tensor(x.dtype, shape, x.values))


@oracle("expand_dims")
def expand_dims(name: str, s: Sampler) -> Example:
    x = anything(name, s, s.shape())
    given, axis = s.axis(len(x.shape) + 1)
    count = s.number(0, 3)
    shape = (*x.shape[:axis], *(1,) * count, *x.shape[axis:])
    return example(make(name, axis=given, ndims=count), [x], Tensor(x.dtype, shape, x.values))


@oracle("space_to_batch", "space_to_batch_v2")
def space_to_batch(name: str, s: Sampler) -> Example:
    block, cells = s.numbers(1, 3, 2), s.numbers(1, 3, 2)
    plane = [size * count for size, count in zip(block, cells, strict=True)]
    pads = []
    for extent in plane:
        before = s.number(0, min(2, extent - 1))
        pads += [before, s.number(0, min(2, extent - 1 - before))]
    n, c = s.numbers(1, 2, 2)
    x = anything(name, s, (n, c, plane[0] - pads[0] - pads[1], plane[1] - pads[2] - pads[3]))

    def value(index: tuple[int, ...]) -> int:
        batch, channel, i, j = index
        cell, image = divmod(batch, n)
        row = i * block[0] + cell // block[1] - pads[0]
        column = j * block[1] + cell % block[1] - pads[2]
        inside = 0 <= row < x.shape[2] and 0 <= column < x.shape[3]
        return x.at((image, channel, row, column)) if inside else 0

    expected = made(x.dtype, (n * block[0] * block[1], c, *cells), value)
    if name.endswith("v2"):
        return example(make(name), [x, vector(block), vector(pads)], expected)
    return example(make(name, block_size=block, pad=tuple(pads)), [x], expected)


@oracle("batch_to_space", "batch_to_space_v2")
def batch_to_space(name: str, s: Sampler) -> Example:
    block, (n, c, h, w) = s.numbers(1, 3, 2), s.numbers(1, 3, 4)
    x = anything(name, s, (n * block[0] * block[1], c, h, w))
    top, left = s.number(0, h * block[0] - 1), s.number(0, w * block[1] - 1)
    crop = (top, s.number(0, h * block[0] - 1 - top), left, s.number(0, w * block[1] - 1 - left))
    shape = (n, c, h * block[0] - crop[0] - crop[1], w * block[1] - crop[2] - crop[3])

    def value(index: tuple[int, ...]) -> int:
        image, channel, i, j = index
        (row, bh), (column, bw) = divmod(i + crop[0], block[0]), divmod(j + crop[2], block[1])
        return x.at(((bh * block[1] + bw) * n + image, channel, row, column))  # type: ignore[no-any-return]  # an element of Any

    expected = made(x.dtype, shape, value)
    if name.endswith("v2"):
        return example(make(name), [x, vector(block), vector(crop)], expected)
    return example(make(name, block_size=block, crop_size=crop), [x], expected)


@oracle("tile", "broadcast", "repeat", "tile_v2")
def tile(name: str, s: Sampler) -> Example:
    x = anything(name, s, s.shape(most=4))
    reps = s.numbers(1, 3, len(x.shape))
    shape = [n * count for n, count in zip(x.shape, reps, strict=True)]
    value = made(x.dtype, shape, lambda i: x.at([k % n for k, n in zip(i, x.shape, strict=True)]))
    if name == "tile_v2":
        return example(make(name), [x, vector(reps)], value)
    return example(make(name, **{"times" if name == "broadcast" else "reps": reps}), [x], value)


@oracle("channel_shuffle")
def channel_shuffle(name: str, s: Sampler) -> Example:
    groups, size = s.number(1, 3), s.number(1, 3)
    n, *plane = s.shape(1, 3)
    x = anything(name, s, (n, groups * size, *plane))
    value = made(x.dtype, x.shape, lambda i: x.at((i[0], i[1] % groups * size + i[1] // groups, *i[2:])))
    return example(make(name, groups=groups), [x], value)


@oracle("upsample")
def upsample(name: str, s: Sampler) -> Example:
    x, scale = anything(name, s, s.shape(4, 4)), s.number(1, 4)
    n, c, h, w = x.shape
    value = made(x.dtype, (n, c, h * scale, w * scale), lambda i: x.at((*i[:2], i[2] // scale, i[3] // scale)))
    return example(make(name, scale=scale), [x], value)


# --- choices ----------------------------------------------------------------------------------------------------------


def choice_operand(s: Sampler, dtype: DType, shape: Sequence[int]) -> Tensor:
    return s.tensor(dtype, (1,) if s.flag() else shape)


def select_element(tensor: Tensor, index: Sequence[int]) -> int:
    value: int = tensor.values[0] if len(tensor.values) == 1 else tensor.at(index)
    return value


@oracle("condition_select")
def condition_select(name: str, s: Sampler) -> Example:
    shape, dtype = s.shape(), s.choice(BYTES)
    cond = s.tensor(dtype, shape)
    first, second = choice_operand(s, dtype, shape), choice_operand(s, dtype, shape)
    value = made(dtype, shape, lambda i: select_element(first if cond.at(i) > 0 else second, i))
    return example(make(name), [cond, first, second], value)


@oracle("select")
def select(name: str, s: Sampler) -> Example:
    whole, dtype = s.shape(), s.choice(BYTES)
    first, second = (tuple(1 if s.number(0, 3) == 0 else n for n in whole) for _ in range(2))
    shape = tuple(max(a, b) for a, b in zip(first, second, strict=True))
    a, b = few(s, dtype, first), few(s, dtype, second)
    c, d = choice_operand(s, dtype, shape), choice_operand(s, dtype, shape)
    strict = s.flag()

    def value(index: tuple[int, ...]) -> int:
        left, right = (t.at([0 if n == 1 else i for i, n in zip(index, t.shape, strict=True)]) for t in (a, b))
        return select_element(c if left > right or (left == right and not strict) else d, index)

    op = make(name, select_type=SelectType.GREATER_THAN if strict else SelectType.GREATER_EQUAL)
    return example(op, [a, b, c, d], made(dtype, shape, value))


@oracle("masked_select")
def masked_select(name: str, s: Sampler) -> Example:
    x = anything(name, s, s.shape())
    leading = s.number(0, len(x.shape))
    mask = few(s, x.dtype, (*(1,) * leading, *x.shape[leading:]), -1, 1)
    kept = [
        x.at(i) for i in positions(x.shape) if mask.at([0 if n == 1 else k for k, n in zip(i, mask.shape, strict=True)])
    ]
    return example(make(name), [x, mask], Tensor(x.dtype, (len(kept),), kept))


@oracle("where")
def where(name: str, s: Sampler) -> Example:
    x = few(s, F32, s.shape(), -1, 1)
    found = [index for index in positions(x.shape) if x.at(index) != 0]
    rows = Tensor(I32, (len(found), len(x.shape)), [i for index in found for i in index])
    return example(make(name), [x], rows)


@oracle("number_like")
def number_like(name: str, s: Sampler) -> Example:
    x = anything(name, s, s.shape())
    scalar = s.scalar(s.data_type(name))
    return example(make(name, scalar_i=scalar), [x], made(scalar.dtype, x.shape, lambda i: int(scalar.value)))


@oracle("sequence_gen")
def sequence_gen(name: str, s: Sampler) -> Example:
    shape = s.numbers(0, 4, s.number(1, 4))
    asked, out = s.out((I32, F32), I32)
    return example(make(name, out_dtype=asked), [vector(shape)], Tensor(out, shape, list(range(math.prod(shape)))))


@oracle("shape_fetch")
def shape_fetch(name: str, s: Sampler) -> Example:
    x = anything(name, s, s.shape(most=5))
    rank = len(x.shape)
    begin, step = s.number(0, rank - 1), s.number(1, 3)
    end = s.number(begin + 1, rank)
    fields = {
        "begin_axis": begin - rank if s.flag() else begin,
        "end_axis": end - rank if end < rank and s.flag() else end,
    }
    return example(make(name, step=step, **fields), [x], vector([x.shape[k] for k in range(begin, end, step)]))


# --- order ------------------------------------------------------------------------------------------------------------


def lines(x: Tensor, axis: int) -> dict[tuple[int, ...], list[Any]]:
    """The elements along an axis, by the index without that axis."""
    outer = (*x.shape[:axis], *x.shape[axis + 1 :])
    return {i: [x.at((*i[:axis], k, *i[axis:])) for k in range(x.shape[axis])] for i in positions(outer)}


def order_of(values: Sequence[float], descending: bool) -> list[int]:
    """Equal values keep ascending indices in both directions."""
    return sorted(range(len(values)), key=lambda k: (-values[k] if descending else values[k], k))


@oracle("arg")
def arg(name: str, s: Sampler) -> Example:
    dtype, shape = s.data_type(name), s.shape(extent=5)
    x = few(s, dtype, shape) if s.flag() else s.tensor(dtype, shape)
    given, axis = s.axis(len(shape))
    method = s.choice(list(ArgMethod))
    best = {i: line.index(max(line) if method is ArgMethod.max else min(line)) for i, line in lines(x, axis).items()}
    value = made(I32, (*shape[:axis], 1, *shape[axis + 1 :]), lambda i: best[(*i[:axis], *i[axis + 1 :])])
    return example(make(name, axis=given, method=method), [x], value)


@oracle("topk", "sort", "argsort")
def sort_case(name: str, s: Sampler) -> Example:
    x = few(s, F32, s.shape(extent=6))
    given, axis = s.axis(len(x.shape))
    descending = s.flag()
    orders = {i: order_of(line, descending) for i, line in lines(x, axis).items()}
    k = s.number(1, x.shape[axis]) if name == "topk" else x.shape[axis]
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])

    def place(index: tuple[int, ...]) -> int:
        return orders[(*index[:axis], *index[axis + 1 :])][index[axis]]

    indices = made(I32, shape, place)
    values = made(F32, shape, lambda i: x.at((*i[:axis], place(i), *i[axis + 1 :])))
    if name == "topk":
        return example(make(name, k=k, axis=given, descending=descending), [x], values, indices)
    op = make(name, dim=given, descending=descending, stable=s.flag())
    return example(op, [x], *([indices, values] if name == "sort" else [indices]))


@oracle("nms", "nms_v2")
def suppression(name: str, s: Sampler) -> Example:
    count = s.number(1, 7)
    boxes = Tensor(F32, (count, 4), [float(v) for v in s.numbers(0, 12, 4 * count)])
    scores = Tensor(F32, (count,), [v / 8 for v in s.numbers(-3, 8, count)])
    limit, lowest = s.number(0, 16) / 16, s.number(-2, 6) / 8

    def corners(k: int) -> tuple[int, int, int, int]:
        y1, x1, y2, x2 = (int(boxes.at((k, i))) for i in range(4))
        return min(y1, y2), min(x1, x2), max(y1, y2), max(x1, x2)

    def overlap(one: int, other: int) -> Fraction:
        (a, b, c, d), (e, f, g, h) = corners(one), corners(other)
        first, second = (c - a) * (d - b), (g - e) * (h - f)
        shared = max(min(c, g) - max(a, e), 0) * max(min(d, h) - max(b, f), 0)
        return Fraction(shared, first + second - shared) if first and second else Fraction(0)

    most = s.number(0, count + 1) if name == "nms_v2" else count
    kept: list[int] = []
    for k in order_of(scores.values, True):
        is_above = name == "nms" or scores.values[k] > lowest
        if is_above and len(kept) < most and all(overlap(k, other) <= Fraction(limit) for other in kept):
            kept.append(k)
    assume(kept or name == "nms_v2")
    if name == "nms":
        op = make(name, threshold=Scalar(F32, limit), stable=s.flag())
    else:
        op = make(name, iou_threshold=Scalar(F32, limit), score_threshold=Scalar(F32, lowest), max_output_size=most)
    return example(op, [boxes, scores], vector(kept))
