"""Steps of layers of neural networks: convolutions, pools, matmuls, normalizations, recurrent layers, quantization."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.support.onnx.random_graphs.drawing import F32, FLOATS, I32, Declined, Drawing, Value
from tests.support.onnx.random_graphs.registry import step

U8, I8 = np.dtype("uint8"), np.dtype("int8")
COMPUTED = (F32,)


def image(d: Drawing) -> Value:
    return d.of_rank(*d.choose([(3,), (4,), (4,), (4,), (5,)]), dtypes=COMPUTED)


def fixed(x: Value, *axes: int) -> None:
    """Decline if one of the axes is symbolic."""
    if any(len({shape[k] for shape in x.shapes}) > 1 for k in axes):
        raise Declined


def window(d: Drawing, x: Value, *, dilated: bool = True) -> dict[str, Any]:
    """Kernel shape, strides, pads and dilations that fit."""
    spatial = x.rank - 2
    extents = [min(shape[2 + k] for shape in x.shapes) for k in range(spatial)]
    kernel = [d.integer(1, min(3, e)) for e in extents]
    found: dict[str, Any] = {"kernel_shape": kernel}
    if d.chance(0.6):
        found["strides"] = [d.integer(1, 3) for _ in kernel]
    if dilated and d.chance(0.3):
        found["dilations"] = [d.integer(1, 2) for _ in kernel]
    kind = d.integer(0, 3)
    if kind == 0:
        found["pads"] = [d.integer(0, k - 1) for k in kernel * 2]
    elif kind == 1:
        found["auto_pad"] = d.choose(["SAME_UPPER", "SAME_LOWER", "VALID"])
    return found


def bias(d: Drawing, x: Value, count: int) -> list[Value]:
    return [d.fresh(x.dtype, [(count,)] * 2, constant=d.chance(0.9))] if d.chance(0.6) else []


@step(5)
def conv(d: Drawing) -> object:
    x = image(d)
    fixed(x, 1)
    channels = x.shape[1]
    groups = d.choose([1, 1, 1, channels, *[g for g in (2, 3) if channels % g == 0]])
    outputs = groups * d.integer(1, 4)
    more = window(d, x)
    w = d.fresh(x.dtype, [(outputs, channels // groups, *more["kernel_shape"])] * 2, constant=d.chance(0.92))
    if d.chance(0.3):
        del more["kernel_shape"]
    return d.emit("Conv", [x, w, *bias(d, x, outputs)], group=groups, **more)


@step(2)
def conv_transpose(d: Drawing) -> object:
    x = image(d)
    fixed(x, 1)
    channels = x.shape[1]
    groups = d.choose([1, 1, channels, *[g for g in (2, 3) if channels % g == 0]])
    outputs = d.integer(1, 3)
    spatial = x.rank - 2
    kernel = [d.integer(1, 3) for _ in range(spatial)]
    more: dict[str, Any] = {"strides": [d.integer(1, 3) for _ in kernel]}
    kind = d.integer(0, 4)
    if kind == 0:
        more["pads"] = [d.integer(0, k - 1) for k in kernel * 2]
    elif kind == 1:
        more["output_padding"] = [d.integer(0, s - 1) for s in more["strides"]]
    elif kind == 2:
        more["auto_pad"] = d.choose(["SAME_UPPER", "SAME_LOWER", "VALID"])
    elif kind == 3 and x.is_static:
        more["output_shape"] = [e * s for e, s in zip(x.shape[2:], more["strides"], strict=True)]
    if d.chance(0.2):
        more["dilations"] = [d.integer(1, 2) for _ in kernel]
    w = d.fresh(x.dtype, [(channels, outputs, *kernel)] * 2, constant=d.chance(0.95))
    return d.emit("ConvTranspose", [x, w, *bias(d, x, outputs * groups)], group=groups, **more)


@step(3)
def pool(d: Drawing) -> object:
    x = image(d)
    op = d.choose(["MaxPool", "MaxPool", "AveragePool", "AveragePool", "LpPool"])
    more = window(d, x, dilated=(op == "MaxPool" and d.opset >= 10) or (op == "AveragePool" and d.opset >= 19))
    if op != "LpPool" and d.opset >= 10 and d.chance(0.3):
        more["ceil_mode"] = 1
    if op == "AveragePool" and d.chance(0.4):
        more["count_include_pad"] = 1
    strides = more.get("strides", [1])
    if "SAME" in more.get("auto_pad", ""):
        more.pop("dilations", None)  # ONNX Runtime has fewer windows than the standard: ceil(extent / stride)
    if "SAME" in more.get("auto_pad", "") and any(s > k for s, k in zip(strides, more["kernel_shape"], strict=False)):
        raise Declined  # ONNX Runtime then has negative pads and starts within the image; the standard is silent
    if op == "LpPool":
        more["p"] = d.integer(1, 3)
        more.pop("dilations", None)
    return d.emit(op, [x], **more)


@step(1)
def global_pool(d: Drawing) -> object:
    return d.emit(d.choose(["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"]), [image(d)])


@step(5)
def matmul(d: Drawing) -> object:
    x = d.of_rank(1, 2, 3, 4)
    inner = [shape[-1] for shape in x.shapes]
    kind = d.integer(0, 4)
    columns = d.integer(1, 6)
    if kind == 0:
        shapes = [(k,) for k in inner]
    elif kind == 1 and x.rank > 2:
        shapes = [(*s[:-2], k, columns) for s, k in zip(x.shapes, inner, strict=True)]
    elif kind == 2 and x.rank > 2:
        shapes = [(*[1 if d.chance(0.5) else e for e in x.shape[:-2]], k, columns) for k in inner]
        if not x.is_static:
            shapes = [(k, columns) for k in inner]
    elif kind == 3 and x.rank < 4:
        shapes = [(2, k, columns) for k in inner]
    else:
        shapes = [(k, columns) for k in inner]
    w = d.fresh(x.dtype, shapes, constant=d.chance(0.7))
    return d.emit("MatMul", [x, w])


@step(1)
def self_product(d: Drawing) -> object:
    """A matmul of a value with its own transpose."""
    x = d.of_rank(2, 3, 4)
    order = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    (t,) = d.emit("Transpose", [x], perm=order)
    return d.emit("MatMul", [x, t])


@step(2)
def gemm(d: Drawing) -> object:
    x = d.of_rank(2)
    flip, turn = d.integer(0, 1), d.integer(0, 1)
    inner = [s[0] if flip else s[1] for s in x.shapes]
    rows = [s[1] if flip else s[0] for s in x.shapes]
    columns = d.integer(1, 5)
    w = d.fresh(x.dtype, [(columns, k) if turn else (k, columns) for k in inner], constant=d.chance(0.8))
    inputs = [x, w]
    if d.opset < 11 or d.chance(0.7):
        shapes = d.choose(
            [
                [(columns,)] * 2,
                [(1, columns)] * 2,
                [()] * 2,
                [(1,)] * 2,
                [(r, 1) for r in rows],
                [(r, columns) for r in rows],
            ]
        )
        inputs.append(d.fresh(x.dtype, shapes, constant=d.chance(0.8)))
    more = {} if d.chance(0.4) else {"alpha": d.choose([1.0, 0.5, -2.0]), "beta": d.choose([1.0, 0.25, 0.0])}
    return d.emit("Gemm", inputs, transA=flip, transB=turn, **more)


def channel_constants(d: Drawing, x: Value, count: int, channels: int | None = None) -> list[Value]:
    channels = x.shape[1] if channels is None else channels
    arrays = [d.rng.uniform(0.3, 2, channels).astype(x.dtype) * d.choose([1, 1, -1]) for _ in range(count)]
    return [d.constant(array) for array in arrays]


@step(2)
def batch_normalization(d: Drawing) -> object:
    x = d.of_rank(2, 3, 4, 5, dtypes=COMPUTED)
    fixed(x, 1)
    scale, shift, mean, _ = channel_constants(d, x, 4)
    variance = d.constant(d.rng.uniform(0.1, 3, x.shape[1]).astype(x.dtype))
    return d.emit(
        "BatchNormalization", [x, scale, shift, mean, variance], **({"epsilon": 1e-3} if d.chance(0.5) else {})
    )


@step(1.5)
def normalization(d: Drawing) -> object:
    kind = d.integer(0, 5)
    x = d.of_rank(3, 4, dtypes=COMPUTED)
    fixed(x, 1)
    if kind < 4 and max(float(np.abs(array).max(initial=0)) for array in x.arrays) > 30:
        raise Declined  # large numbers cancel in ONNX Runtime: in x * a - mean * a, and in the running sum of LRN
    if kind == 0:
        return d.emit("InstanceNormalization", [x, *channel_constants(d, x, 2)], epsilon=1e-3)
    if kind == 1 and d.opset >= 17:
        axis = d.integer(-x.rank, x.rank - 1)
        shapes = [s[axis:] for s in x.shapes]
        inputs = [x, *(d.fresh(x.dtype, shapes) for _ in range(d.integer(1, 2)))]
        return d.emit("LayerNormalization", inputs, axis=axis, epsilon=1e-4)
    if kind == 2 and d.opset >= 18:
        groups = d.choose([g for g in (1, 2, 3) if x.shape[1] % g == 0])
        size = groups if d.opset < 21 else x.shape[1]
        return d.emit("GroupNormalization", [x, *channel_constants(d, x, 2, size)], num_groups=groups)
    if kind == 3:
        return d.emit("LRN", [x], size=d.choose([1, 3, 5, 2]), alpha=0.1, bias=d.choose([1.0, 2.0]))
    if kind == 4:
        axes = d.choose([[0, 2, 3][: x.rank - 1], [1], [2]])
        if not min(float(array.std(axis=tuple(axes)).min(initial=1)) for array in x.arrays) >= 1e-2:
            raise Declined  # ONNX Runtime leaves out the 1e-9 that the standard adds to the deviation
        return d.emit("MeanVarianceNormalization", [x], axes=axes)
    return d.emit("LpNormalization", [x], axis=d.integer(-1, x.rank - 1), p=d.integer(1, 2))


@step(2)
def recurrent(d: Drawing) -> object:
    op = d.choose(["LSTM", "GRU", "RNN"])
    x = d.of_rank(3, dtypes=(F32,))
    direction = d.choose(["forward", "forward", "reverse", "bidirectional"])
    directions, hidden, gates = 1 + (direction == "bidirectional"), d.integer(1, 4), {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    layout = d.integer(0, 1) if d.opset >= 14 and d.chance(0.1) else 0
    fixed(x, 2)
    if any(0 in shape for shape in x.shapes):
        raise Declined  # no weights, or ONNX Runtime crashes
    batches = [s[0 if layout else 1] for s in x.shapes]
    steps = min(s[1 if layout else 0] for s in x.shapes)

    def part(*shape: int) -> Value:
        return d.constant((d.rng.standard_normal(shape) * 0.5).astype(np.float32))

    more: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    inputs: list[Value | None] = [
        x,
        part(directions, gates * hidden, x.shape[2]),
        part(directions, gates * hidden, hidden),
    ]
    inputs.append(part(directions, 2 * gates * hidden) if d.chance(0.7) else None)
    lengths = None
    if d.chance(0.25) and len(set(batches)) == 1:
        lengths = d.constant(d.rng.integers(1, steps + 1, batches[0]).astype(np.int32))
    inputs.append(lengths)
    shapes = [(b, directions, hidden) if layout else (directions, b, hidden) for b in batches]
    inputs.append(d.fresh(F32, shapes) if d.chance(0.4) else None)
    if op == "LSTM":
        inputs.append(d.fresh(F32, shapes) if inputs[5] and d.chance(0.8) else None)
        inputs.append(part(directions, 3 * hidden) if d.chance(0.2) else None)
    if op == "GRU" and d.chance(0.5):
        more["linear_before_reset"] = 1
    if d.chance(0.2):
        names = {
            "LSTM": ["Sigmoid", "Tanh", "Relu"],
            "GRU": ["Sigmoid", "Relu"],
            "RNN": [d.choose(["Relu", "Sigmoid"])],
        }[op]
        more["activations"] = names * directions
    if d.chance(0.1):
        more["clip"] = 0.7
    if layout:
        more["layout"] = 1
    states = [array for value in inputs[5:7] if value is not None for array in value.arrays]
    if any(np.isnan(array).any() for array in x.arrays) or not all((np.abs(array) < 30).all() for array in states):
        raise Declined  # ONNX Runtime clamps NaN to a number; large states cancel
    while inputs and inputs[-1] is None:
        inputs.pop()
    return d.emit(op, inputs, d.integer(1, 3 if op == "LSTM" else 2), **more)


@step(1, calm=False)
def quantize_pair(d: Drawing) -> object:
    """QuantizeLinear and DequantizeLinear around nothing."""
    if d.opset < 10:
        raise Declined
    x = d.value((F32,))
    if any(np.isnan(array).any() for array in x.arrays):
        raise Declined  # ONNX Runtime casts NaN to the lowest integer, which the standard leaves open
    dtype = d.choose([U8, I8])
    scale = d.constant(np.float32(d.choose([0.1, 0.05, 0.03, 1.0])))
    zero = d.constant(np.asarray(d.integer(0, 20), dtype))
    (q,) = d.emit("QuantizeLinear", [x, scale, zero])
    return d.emit("DequantizeLinear", [q, scale, zero])


@step(0.7, calm=False)
def integer_product(d: Drawing) -> object:
    if d.opset < 10:
        raise Declined
    dtype = d.choose([U8, I8])
    rank = d.integer(2, 3)
    shapes = d.fresh_shapes(rank, 1, 5)
    x = d.input(dtype, shapes)
    w = d.constant(
        d.rng.integers(0 if (other := d.choose([U8, I8])) == U8 else -100, 100, (shapes[0][-1], 3)).astype(other)
    )
    if any(s[-1] != shapes[0][-1] for s in shapes):
        raise Declined
    zeros = [d.constant(np.asarray(d.integer(0, 5), dtype)), d.constant(np.asarray(d.integer(0, 5), w.dtype))]
    if d.chance(0.6):
        return d.emit("MatMulInteger", [x, w, *zeros[: d.integer(0, 2)]])
    scales = [d.constant(np.float32(s)) for s in (0.02, 0.03, 0.11)]
    out = d.constant(np.asarray(3, dtype))
    return d.emit("QLinearMatMul", [x, scales[0], zeros[0], w, scales[1], zeros[1], scales[2], out])


assert FLOATS and I32
