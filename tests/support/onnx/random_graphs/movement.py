"""Steps that move data: shapes, slices, gathers, scatters, pads, resizes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.support.onnx.random_graphs.drawing import ANY, BOOL, F32, FLOATS, I32, I64, Declined, Drawing, Value
from tests.support.onnx.random_graphs.registry import step

MOVED = (*FLOATS, I32, I64, np.dtype("uint8"), np.dtype("int8"), BOOL)


def moved(d: Drawing) -> Value:
    return d.value(FLOATS if d.chance(0.7) else ANY)


def axes_input(d: Drawing, op: str, x: Value, axes: list[int], since: int, **more: Any) -> object:
    """An operator whose axes are an attribute before an opset, and an input since then."""
    if d.opset < since:
        return d.emit(op, [x], axes=axes, **more)
    return d.emit(op, [x, d.numbers(axes)], **more)


@step(3)
def transpose(d: Drawing) -> object:
    x = moved(d)
    return d.emit("Transpose", [x], **({} if d.chance(0.2) else {"perm": d.permutation(x.rank)}))


@step(3)
def reshape(d: Drawing) -> object:
    x = moved(d)
    if not all(x.shapes[0]) and not d.is_hostile:
        raise Declined
    target = list(x.shape)
    for _ in range(d.integer(0, 3)):
        kind = d.integer(0, 2)
        if kind == 0 and len(target) > 1:
            k = d.integer(0, len(target) - 2)
            target[k : k + 2] = [target[k] * target[k + 1]]
        elif kind == 1 and target and len(target) < 5:
            k = d.integer(0, len(target) - 1)
            factor = d.choose([f for f in (1, 2, 3) if target[k] % f == 0])
            target[k : k + 1] = d.choose([[factor, target[k] // factor], [target[k] // factor, factor]])
        elif len(target) < 5:
            target.insert(d.integer(0, len(target)), 1)
    if target and 0 not in target and d.chance(0.6):
        differing = [k for k, pair in enumerate(zip(*x.shapes, strict=True)) if len(set(pair)) > 1]
        target[d.choose(differing) if differing and differing[0] < len(target) else d.integer(0, len(target) - 1)] = -1
    for k in range(min(len(target), x.rank)):
        if target[k] == x.shape[k] and target[k] != 0 and d.chance(0.4 if x.is_static else 0.9):
            target[k] = 0
    return d.emit("Reshape", [x, d.numbers(target)], **({"allowzero": 0} if d.opset >= 14 and d.chance(0.3) else {}))


@step(1)
def reshape_to_computed(d: Drawing) -> object:
    """Merge or keep axes by a shape that is computed from Shape."""
    x = d.of_rank(2, 3, 4, dtypes=MOVED)
    (shape,) = d.emit("Shape", [x])
    kind = d.integer(0, 3)
    if kind == 0:
        return d.emit("Reshape", [x, shape])
    (first,) = d.emit("Gather", [shape, d.constant(np.array([0]) if kind < 3 else np.asarray(0))], axis=0)
    if kind == 3:
        if d.opset < 13:
            (first,) = d.emit("Unsqueeze", [first], axes=[0])
        else:
            (first,) = d.emit("Unsqueeze", [first, d.numbers([0])])
    (target,) = d.emit("Concat", [first, d.numbers([-1])], axis=0)
    return d.emit("Reshape", [x, target])


@step(1)
def flatten(d: Drawing) -> object:
    x = moved(d)
    return d.emit("Flatten", [x], axis=d.integer(0 if d.opset < 11 else -x.rank, x.rank))


@step(1)
def squeeze(d: Drawing) -> object:
    x = moved(d)
    ones = [k for k in range(x.rank) if all(shape[k] == 1 for shape in x.shapes)]
    if x.is_static and d.chance(0.2):
        return d.emit("Squeeze", [x])
    axes = d.subset(ones, 1)
    if d.opset >= 11 and d.chance(0.3):
        axes = [k - x.rank for k in axes]
    return axes_input(d, "Squeeze", x, axes, 13)


@step(2)
def unsqueeze(d: Drawing) -> object:
    x = moved(d)
    count = d.integer(1, 2)
    axes = d.permutation(x.rank + count)[:count]
    if d.opset >= 11 and d.chance(0.3):
        axes = [k - x.rank - count for k in axes]
    if x.rank + count > 5:
        raise Declined
    return axes_input(d, "Unsqueeze", x, axes if d.opset >= 11 else sorted(axes), 13)


@step(2)
def concat(d: Drawing) -> object:
    x = moved(d)
    axis = d.axis(x.rank)
    k = axis % x.rank
    parts = [x]
    for _ in range(d.integer(0, 3)):
        same = [
            v for v in d.values
            if v.dtype == x.dtype and v.rank == x.rank
            and all(p[:k] + p[k + 1 :] == q[:k] + q[k + 1 :] for p, q in zip(v.shapes, x.shapes, strict=True))
        ]  # fmt: skip
        if d.chance(0.6):
            parts.append(d.choose(same))
        else:
            extent = d.integer(1, 3)
            parts.append(d.fresh(x.dtype, [(*p[:k], extent, *p[k + 1 :]) for p in x.shapes]))
    return d.emit("Concat", parts, axis=axis if d.opset >= 11 else k)


@step(2)
def split(d: Drawing) -> object:
    x = moved(d)
    axis = d.axis(x.rank) % x.rank if d.opset < 11 else d.axis(x.rank)
    extent = x.shape[axis]
    if any(shape[axis] != extent for shape in x.shapes) or extent < 1:
        raise Declined
    count = d.integer(1, min(3, extent))
    cuts = sorted((d.rng.permutation(extent - 1)[: count - 1] + 1).tolist())
    parts = np.diff([0, *cuts, extent]).tolist()
    if d.chance(0.3):
        if extent % count and d.opset < 18:
            raise Declined
        return d.emit("Split", [x], count, axis=axis, **({"num_outputs": count} if d.opset >= 18 else {}))
    if d.opset < 13:
        return d.emit("Split", [x], count, axis=axis, split=parts)
    return d.emit("Split", [x, d.numbers(parts)], count, axis=axis)


@step(3)
def slice_(d: Drawing) -> object:
    x = moved(d)
    axes = d.subset(range(x.rank), 1)
    starts, ends, steps = [], [], []
    for k in axes:
        extent = min(shape[k] for shape in x.shapes)
        step_ = d.choose([1, 1, 1, 2, -1, -2, 3]) if d.opset >= 10 else 1
        low = d.integer(-extent - 1, extent) if d.chance(0.8) else 0
        high = d.choose([d.integer(-extent - 2, extent + 2), 2**31 - 1, 2**63 - 1, extent])
        if step_ < 0:
            low, high = d.choose([-1, extent - 1, 2**31 - 1]), d.choose([-(2**31), -(2**63), -extent - 1, 0])
        starts.append(low)
        ends.append(high)
        steps.append(step_)
    names = [k - x.rank if d.chance(0.2) else k for k in axes]
    if d.opset < 10:
        (y,) = d.emit("Slice", [x], starts=starts, ends=ends, axes=axes)
    else:
        inputs = [x, d.numbers(starts), d.numbers(ends), d.numbers(names), d.numbers(steps)]
        if d.chance(0.2) and len(axes) == x.rank:
            inputs[3] = None  # type: ignore[call-overload]
        if all(s == 1 for s in steps) and d.chance(0.5):
            inputs = inputs[:4] if inputs[3] else inputs[:3]
        (y,) = d.emit("Slice", inputs)
    if 0 in y.shape and d.chance(0.8):
        d.drop_last()
        raise Declined
    return y


@step(2)
def pad(d: Drawing) -> object:
    x = d.value(FLOATS if d.opset < 13 or d.chance(0.8) else (I32, I64, BOOL))
    modes = ["constant"] * 3 + ["reflect", "edge"] + (["wrap"] if d.opset >= 19 else [])
    mode = d.choose(modes)
    axes = d.subset(range(x.rank), 1) if d.opset >= 18 and d.chance(0.5) else list(range(x.rank))
    pads = [d.choose([0, 0, 1, 2, -1]) if mode == "constant" else d.choose([0, 0, 1, 2]) for _ in range(2 * len(axes))]
    if d.opset < 11:
        return d.emit("Pad", [x], mode=mode, pads=pads, value=0.5) if d.chance(0.7) else d.emit("Pad", [x], pads=pads)
    inputs: list[Value | None] = [x, d.numbers(pads)]
    if mode == "constant" and d.chance(0.6):
        inputs.append(d.constant(np.asarray(d.choose([0, 1, -1.5])).astype(x.dtype)))
    if len(axes) < x.rank or (d.opset >= 18 and d.chance(0.2)):
        inputs += [None] * (3 - len(inputs)) + [d.numbers([k - x.rank if d.chance(0.2) else k for k in axes])]
    return d.emit("Pad", inputs, mode=mode)


@step(1)
def tile(d: Drawing) -> object:
    x = moved(d)
    return d.emit("Tile", [x, d.numbers([d.choose([1, 1, 2, 3]) for _ in range(x.rank)])])


@step(1)
def expand(d: Drawing) -> object:
    x = moved(d)
    if d.chance(0.3):
        (shape,) = d.emit("Shape", [d.partner(x)])
        return d.emit("Expand", [x, shape])
    target = [1 if d.chance(0.3) or len(set(p)) > 1 else p[0] for p in zip(*x.shapes, strict=True)]
    target = [d.integer(1, 3) if all(s[k] == 1 for s in x.shapes) else e for k, e in enumerate(target)]
    if d.chance(0.3):
        target = [2, *target]
    elif d.chance(0.2):
        target = target[1:]
    return d.emit("Expand", [x, d.numbers(target)])


@step(1)
def depth_space(d: Drawing) -> object:
    x = d.of_rank(4)
    if d.chance(0.5):
        mode = {} if d.opset < 11 else {"mode": d.choose(["DCR", "CRD"])}
        if x.shape[1] % 4:
            x = d.input(x.dtype, [(s[0], 8, *s[2:]) for s in x.shapes])
        return d.emit("DepthToSpace", [x], blocksize=2, **mode)
    if any(s[2] % 2 or s[3] % 2 for s in x.shapes):
        x = d.input(x.dtype, [(*s[:2], 4, 6) for s in x.shapes])
    return d.emit("SpaceToDepth", [x], blocksize=2)


def indices(d: Drawing, extent: int, shapes: list[tuple[int, ...]], dtypes: Any = (I64, I32)) -> Value:
    """Constant or computed indices, some of them from the end."""
    low = -extent if d.opset >= 11 and d.chance(0.4) else 0
    dtype = d.choose(dtypes)

    def sample(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
        return rng.integers(low, extent, shape).astype(dtype)

    if extent < 1:
        raise Declined
    if len(set(shapes)) == 1 and d.chance(0.6):
        return d.constant(sample(d.rng, shapes[0]))
    return d.input(dtype, shapes, sample)


@step(2)
def gather(d: Drawing) -> object:
    x = moved(d)
    axis = d.axis(x.rank)
    rank = d.integer(0, max(0, min(2, 5 - x.rank)))
    index = indices(d, min(s[axis] for s in x.shapes), [tuple(d.rng.integers(1, 4, rank).tolist())] * 2)
    return d.emit("Gather", [x, index], axis=axis if d.opset >= 11 else axis % x.rank)


@step(1)
def gather_elements(d: Drawing) -> object:
    if d.opset < 11:
        raise Declined
    x = moved(d)
    axis = d.axis(x.rank)
    shapes = [list(s) for s in x.shapes]
    for shape in shapes:
        shape[axis] = 2
    return d.emit(
        "GatherElements", [x, indices(d, min(s[axis] for s in x.shapes), list(map(tuple, shapes)))], axis=axis
    )


@step(1)
def gather_nd(d: Drawing) -> object:
    if d.opset < 11:
        raise Declined
    x = moved(d)
    batch = d.integer(0, 1) if d.opset >= 12 and x.rank > 1 and x.is_static else 0
    depth = d.integer(1, x.rank - batch)
    extent = min(min(s[batch : batch + depth]) for s in x.shapes)
    shapes = [(*s[:batch], *[2] * d.integer(0, 1), depth) for s in x.shapes]
    index = indices(d, extent, [shapes[0]] * 2 if batch else shapes[:1] * 2, (I64,))
    return d.emit("GatherND", [x, index], **({"batch_dims": batch} if d.opset >= 12 else {}))


@step(1)
def scatter_elements(d: Drawing) -> object:
    x = moved(d)
    axis = d.axis(x.rank) % x.rank
    if not x.is_static or not all(x.shape):
        raise Declined
    shape = [d.integer(1, e) for e in x.shape]
    order = np.argsort(d.rng.random(x.shape), axis=axis)[tuple(slice(e) for e in shape)]
    reductions = ["none"] if d.opset < 16 else ["none", "add", "mul"] + (["max", "min"] if d.opset >= 18 else [])
    reduction = d.choose(reductions) if x.dtype != BOOL else "none"
    index = d.constant(order.astype(d.choose([I64, I32])))
    if d.chance(0.2):
        extent = x.shape[axis]
        index = d.input(
            I64,
            [tuple(shape)] * 2,
            lambda rng, s: np.argsort(rng.random((*s[:axis], extent, *s[axis + 1 :])), axis=axis)[
                tuple(slice(e) for e in s)
            ],
        )
    more = {"reduction": reduction} if reduction != "none" else {}
    return d.emit(
        "Scatter" if d.opset < 11 else "ScatterElements",
        [x, index, d.fresh(x.dtype, [tuple(shape)] * 2)],
        axis=axis,
        **more,
    )


@step(1)
def scatter_nd(d: Drawing) -> object:
    x = moved(d)
    if d.opset < 11 or not x.is_static or not x.rank or not all(x.shape):
        raise Declined
    depth = d.integer(1, x.rank)
    places = list(np.ndindex(*x.shape[:depth]))
    count = d.integer(1, min(3, len(places)))
    rows = np.array([places[k] for k in d.permutation(len(places))[:count]], np.int64)
    reductions = ["none"] if d.opset < 16 or x.dtype == BOOL else ["none", "add", "mul"]
    if d.opset >= 18 and x.dtype != BOOL:
        reductions += ["max", "min"]
    reduction = d.choose(reductions)
    updates = d.fresh(x.dtype, [(count, *x.shape[depth:])] * 2)
    return d.emit(
        "ScatterND", [x, d.constant(rows), updates], **({} if reduction == "none" else {"reduction": reduction})
    )


@step(0.5)
def reverse_sequence(d: Drawing) -> object:
    x = d.of_rank(2, 3, 4)
    if d.opset < 10 or not x.is_static:
        raise Declined
    time = d.integer(0, 1)
    lengths = d.constant(d.rng.integers(1, x.shape[time] + 1, x.shape[1 - time]).astype(np.int64))
    return d.emit("ReverseSequence", [x, lengths], time_axis=time, batch_axis=1 - time)


@step(0.5)
def triangle(d: Drawing) -> object:
    x = d.of_rank(2, 3, 4, dtypes=(*FLOATS, I32, I64))
    if d.opset < 14:
        raise Declined
    return d.emit(
        "Trilu", [x, *([d.constant(np.int64(d.integer(-2, 2)))] if d.chance(0.6) else [])], upper=d.integer(0, 1)
    )


@step(1)
def shape_(d: Drawing) -> object:
    x = d.value(ANY)
    if d.chance(0.3):
        return d.emit("Size", [x])
    more = (
        {"start": d.integer(-x.rank, x.rank), "end": d.integer(-x.rank, x.rank)}
        if d.opset >= 15 and d.chance(0.4)
        else {}
    )
    (y,) = d.emit("Shape", [x], **more)
    if y.shape == (0,):
        d.drop_last()
        raise Declined
    return y


@step(1)
def filled(d: Drawing) -> object:
    """ConstantOfShape of the shape of a value, and its sum with the value."""
    from onnx import numpy_helper

    x = d.value()
    (shape,) = d.emit("Shape", [x])
    number = np.array([d.choose([0, 1, -2.5])], x.dtype)
    (y,) = d.emit("ConstantOfShape", [shape], value=numpy_helper.from_array(number))
    return d.emit(d.choose(["Add", "Sub", "Mul"]), [y, x])


@step(0.5)
def range_(d: Drawing) -> object:
    if d.opset < 11:
        raise Declined
    dtype = d.choose([F32, I64, I32])
    low, high, step_ = (
        d.constant(np.asarray(v, dtype))
        for v in d.choose([(0, 5, 1), (5, -3, -2), (1, 2, 0.25 if dtype == F32 else 1), (2, 9, 3)])
    )
    if d.chance(0.3):
        x = d.value()
        (size,) = d.emit("Size", [x])
        return d.emit("Range", [d.constant(np.int64(0)), size, d.constant(np.int64(1))])
    return d.emit("Range", [low, high, step_])


@step(0.5)
def one_hot(d: Drawing) -> object:
    depth = d.integer(2, 5)
    dtype = d.choose([I64, I32, F32])
    shapes = d.fresh_shapes(d.integer(0, 3), 1, 3)
    x = d.input(dtype, shapes, lambda rng, s: rng.integers(0 if d.opset < 11 else -depth, depth, s).astype(dtype))
    values = d.constant(np.array(d.choose([[0, 1], [-1.5, 2]]), d.choose([F32, F32, I64])))
    return d.emit("OneHot", [x, d.constant(np.int64(depth)), values], axis=d.choose([-1, 0, x.rank]))


@step(0.5, calm=False)
def data_dependent(d: Drawing) -> object:
    if d.chance(0.5):
        return d.emit("NonZero", [d.value((F32, I64, BOOL))])
    x = d.of_rank(1, 2, 3)
    axis = d.integer(0, x.rank - 1)
    condition = d.fresh(BOOL, [(s[axis],) for s in x.shapes])
    return d.emit("Compress", [x, condition], axis=axis)


@step(0.5)
def eye_like(d: Drawing) -> object:
    return d.emit("EyeLike", [d.of_rank(2)], k=d.integer(-1, 1), dtype=1)


MODES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric")


@step(2)
def resize(d: Drawing) -> object:
    x = d.of_rank(2, 3, 4, dtypes=(F32, d.main))
    factors = [1.0] * max(x.rank - 2, 0) + [
        d.choose([2.0, 1.0, 0.5, 3.0, 1.5, 0.6, 2.3]) for _ in range(min(x.rank, 2))
    ]
    mode = d.choose(["nearest", "nearest", "linear", "linear", "cubic"])
    if d.opset == 9:
        return d.emit(
            "Upsample",
            [x, d.constant(np.array([max(1.0, f) for f in factors], np.float32))],
            mode="linear" if mode != "nearest" else mode,
        )
    if d.opset == 10:
        return d.emit(
            "Resize", [x, d.constant(np.array(factors, np.float32))], mode="linear" if mode != "nearest" else mode
        )
    more: dict[str, Any] = {
        "mode": mode,
        "coordinate_transformation_mode": d.choose(MODES if d.opset >= 19 else MODES[:4]),
    }
    if mode == "nearest":
        more["nearest_mode"] = d.choose(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
    if mode == "cubic":
        more["cubic_coeff_a"] = d.choose([-0.75, -0.5])
        more["exclude_outside"] = d.integer(0, 1)
    if d.opset >= 18 and mode != "nearest" and d.chance(0.3):
        more["antialias"] = 1
    none = None if d.opset >= 13 else d.constant(np.zeros(0, np.float32))
    if d.chance(0.5):
        return d.emit("Resize", [x, none, d.constant(np.array(factors, np.float32))], **more)
    if not x.is_static:
        raise Declined
    sizes = [max(1, int(e * f)) for e, f in zip(x.shape, factors, strict=True)]
    return d.emit("Resize", [x, none, none, d.numbers(sizes)], **more)


@step(0.3)
def center_crop_pad(d: Drawing) -> object:
    x = d.of_rank(2, 3, 4)
    if d.opset < 18:
        raise Declined
    axes = d.subset(range(x.rank), 1)
    return d.emit("CenterCropPad", [x, d.numbers([d.integer(1, 7) for _ in axes])], axes=axes)


@step(0.5)
def grid_sample(d: Drawing) -> object:
    x = d.of_rank(4, dtypes=(F32,))
    if d.opset < 16:
        raise Declined
    grid = d.fresh(F32, [(s[0], 3, 4, 2) for s in x.shapes])
    modes = ("bilinear", "nearest", "bicubic") if d.opset < 20 else ("linear", "nearest", "cubic")
    return d.emit(
        "GridSample",
        [x, grid],
        mode=d.choose(modes),
        padding_mode=d.choose(["zeros", "border", "reflection"]),
        align_corners=d.integer(0, 1),
    )
