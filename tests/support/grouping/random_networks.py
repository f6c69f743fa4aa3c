"""Seeded random networks of local operators, with branches, in INT8 and in FLOAT32 on small integers."""

import numpy as np

from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.arithmetic import Add
from tpuconvert.schema.ops.arithmetic_with_scalar import Maxs
from tpuconvert.schema.ops.clamp import Clamp
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.convolution.conv_v2 import ConvV2
from tpuconvert.schema.ops.convolution.deconv import Deconv
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.pool import Pool, PoolType
from tpuconvert.schema.ops.quantization.requant_int32 import RequantInt32, RequantMode
from tpuconvert.schema.ops.upsample import Upsample
from tpuconvert.schema.types import F32, I8, Array, Scalar, TensorType


def random_network(seed: int, steps: int, height: int = 8, batch: int = 1, is_integer: bool = True) -> Graph:
    """A network; about ``steps`` of its nodes were drawn."""
    rng = np.random.default_rng(seed)
    g = Graph(f"random{seed}")
    channels = int(rng.integers(2, 9))
    x = g.input("x", TensorType(I8 if is_integer else F32, (batch, channels, height, int(rng.integers(3, 7)))))
    open_values = [x]
    while len(g) < steps:
        chosen = open_values[int(rng.integers(max(len(open_values) - 3, 0), len(open_values)))]
        open_values.append(_step(g, rng, chosen, open_values, is_integer))
    for value in open_values:
        if not value.uses and value is not x:
            g.output(value)
    g.validate()
    return g


def feeds_of(g: Graph, seed: int = 0) -> dict[str, Array]:
    """Integers in the range of INT8."""
    rng = np.random.default_rng(seed)
    return {v.name: rng.integers(-8, 9, v.type.static_shape).astype(v.dtype.numpy) for v in g.inputs}


def _step(g: Graph, rng: np.random.Generator, x: Value, others: list[Value], is_integer: bool) -> Value:
    n, c, h, w = x.type.static_shape
    kind = int(rng.integers(0, 10))
    alike = [value for value in others if value.shape == x.shape]
    if kind == 0 and h > 2 and w > 2:
        return g.add(Pool(stride_h=1, stride_w=1, pad_h=1, pad_w=1, kernel_h=3, kernel_w=3), x)
    if kind == 1 and h > 3 and w > 2:
        ceil = bool(rng.integers(2))
        average = PoolType.AVE if rng.integers(2) else PoolType.MAX
        return g.add(Pool(stride_h=2, stride_w=1, kernel_h=2, kernel_w=2, is_ceil_mode=ceil, pooling_type=average), x)
    if kind == 2 and len(alike) > 1:
        return g.add(Add(), x, alike[int(rng.integers(len(alike)))])
    if kind == 3:
        if is_integer:
            return g.add(Maxs(Scalar(I8, 0)), x)
        return g.add(Active(ActiveType.ACTIVE_RELU), x)
    if kind == 4 and h < 12 and w < 12:
        return g.add(Upsample(2), x)
    if kind == 5 and h > 3:
        return g.add(Extract((0, 0, 1, 0), (n, c, h, w), (1, 1, 2, 1)), x)
    if kind == 6 and len(alike) > 1:
        return g.add(Concat(3), x, alike[int(rng.integers(len(alike)))])
    return _convolution(g, rng, x, is_integer)


def _convolution(g: Graph, rng: np.random.Generator, x: Value, is_integer: bool) -> Value:
    _, c, h, w = x.type.static_shape
    is_depthwise = bool(rng.integers(3) == 0)
    kernel = int(rng.choice([1, 3])) if min(h, w) > 2 else 1
    dilation = int(rng.integers(1, 3)) if kernel == 3 and h > 4 and w > 4 else 1
    pad = dilation if kernel == 3 else 0
    stride = int(rng.integers(1, 3)) if h > 3 else 1
    out = c if is_depthwise else int(rng.integers(1, 9))
    geometry = {
        "dh": dilation, "dw": dilation, "pad_h_t": pad, "pad_h_b": int(rng.integers(0, pad + 1)), "pad_w_l": pad,
        "pad_w_r": pad, "stride_h": stride, "stride_w": 1, "groups": c if is_depthwise else 1,
    }  # fmt: skip
    filters = rng.integers(-4, 5, (out, 1 if is_depthwise else c, kernel, kernel))
    bias = rng.integers(-9, 9, (1, out, 1, 1))
    if not is_integer:
        if rng.integers(4) == 0 and not is_depthwise:
            w_ = g.constant(rng.integers(-4, 5, (c, out, 3, 3)).astype(np.float32), "w")
            made = g.add(Deconv(pad_h_t=1, pad_h_b=1, pad_w_l=1, pad_w_r=1, stride_h=stride), x, w_)
        else:
            constants = g.constant(filters.astype(np.float32), "w"), g.constant(bias.astype(np.float32), "b")
            made = g.add(Conv(**geometry), x, *constants)
        # Small numbers with few fractional bits, from averages: every order of adding gives the same bytes.
        return g.add(Clamp(Scalar(F32, -8.0), Scalar(F32, 8.0)), made)
    zeros = tuple(int(zero) for zero in rng.integers(-3, 4, c))
    per_channel = bool(rng.integers(2))
    op = ConvV2(
        **geometry, has_bias=True, is_izp_const=not per_channel, izp_val=2, izp_vec=zeros if per_channel else ()
    )
    sums = g.add(op, x, g.constant(filters.astype(np.int8), "w"), g.constant(bias.astype(np.int32), "b"))
    if rng.integers(2):
        scale = {"is_mul_shift_pc": True, "multiplier_vec": tuple(rng.integers(1, 1 << 20, out).tolist())}
        scale["shift_vec"] = tuple(rng.integers(-28, -20, out).tolist())
    else:
        scale = {"multiplier_val": 40_000, "shift_val": -21}
    return g.add(RequantInt32(mode=RequantMode.MULTIPLIER_SHIFT, out_dtype=I8, **scale), sums)
