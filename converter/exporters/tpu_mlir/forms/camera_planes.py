"""Lowering of camera planes to pixels, with integers of 32 bits.

Rows are channels of the program, because a chip computes channels in parallel.
"""

from __future__ import annotations

import numpy as np

from tpuconvert.exporters.lowerings import NoExactForm
from tpuconvert.exporters.tpu_mlir.dialect import Tensor
from tpuconvert.exporters.tpu_mlir.forms.requantization import binary
from tpuconvert.exporters.tpu_mlir.lowering import PLAIN_ELEMENTS, Lowering, static_shape
from tpuconvert.exporters.tpu_mlir.registry import lowers, lowers_bm1684
from tpuconvert.schema.arithmetic.yuv420 import BITS, BLACK, CHROMA_TO_RGB, GRAY, Y_TO_RGB
from tpuconvert.schema.graph.graph import Node
from tpuconvert.schema.ops.host.yuv import HostYuv420ToRgb
from tpuconvert.schema.types import DType

_PIXELS = PLAIN_ELEMENTS[DType.UINT8]
_NCHW = (0, 3, 1, 2)


@lowers(HostYuv420ToRgb)
def yuv420_to_rgb(op: HostYuv420ToRgb, node: Node, d: Lowering) -> None:
    """Lower ``sat((y * Y_TO_RGB + chroma) >> BITS)``: a rounded shift adds the half that the operator adds.

    The chroma of a block of 2 x 2 pixels is computed once, and repeated. Channels that a permutation moves in front
    of the rows are joined there.
    """
    x, name = node.inputs[0], node.output.name
    assert x is not None
    count, height, width, _ = static_shape(node.output)
    y, u, v = _planes(d, d.tensor(x), count, height, width, name, interleaved=op.interleaved)
    bright = d.module.add("tpu.MaxConst", [y], y.shape, _PIXELS, f"{name}_bright", const_val=float(BLACK))
    luma = _times(d, bright, Y_TO_RGB, f"{name}_luma")
    user = d.sole_user(node.output, "permute")
    if user is not None and tuple(user.op.order) != _NCHW:  # type: ignore[attr-defined]  # of Permute
        user = None
    shape = (count, height, width, 1) if user is None else (count, 1, height, width)
    channels = []
    for channel, (from_u, from_v) in zip("rgb", CHROMA_TO_RGB, strict=True):
        chroma = _chroma(d, u, v, from_u, from_v, f"{name}_{channel}")
        large = d.module.add(
            "tpu.Upsample", [chroma], y.shape, "si32", f"{name}_{channel}_chroma", scale_h=2, scale_w=2
        )
        rows = binary(d, "Add", luma, large, y.shape, _PIXELS, f"{name}_{channel}_rows", -BITS)
        channels.append(d.reshape(rows, shape, f"{name}_{channel}"))
    if op.blue_first:
        channels.reverse()
    result = node.output if user is None else user.output
    if user is not None:
        d.mark_fused(user)
    d.add("tpu.Concat", channels, result, axis=shape.index(1, 1))


@lowers_bm1684(HostYuv420ToRgb)
def refuse_planes(op: HostYuv420ToRgb, node: Node, d: Lowering) -> None:
    """Refuse camera planes for BM1684, whose form would be at the beginning.

    Raises:
        NoExactForm: always.
    """
    reason = "planes become pixels with integers of 32 bits, which BM1684 does not have"
    raise NoExactForm(reason, "convert with --fuse-preprocess rgb, and pass the pixels that the video decoder makes")


def _planes(
    d: Lowering, x: Tensor, count: int, height: int, width: int, name: str, *, interleaved: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Append the separation of the planes: Y [N, H / 2, 2, W], U and V [N, H / 2, 1, W / 2]."""
    half, quarter = height // 2, height // 2 * (width // 2)

    def part(source: Tensor, axis: int, start: int, end: int, step: int, word: str) -> Tensor:
        offset, ends, steps = [0] * len(source.shape), list(source.shape), [1] * len(source.shape)
        offset[axis], ends[axis], steps[axis] = start, end, step
        shape = list(source.shape)
        shape[axis] = len(range(start, end, step))
        return d.module.add(
            "tpu.Slice", [source], shape, _PIXELS, f"{name}_{word}", offset=offset, ends=ends, steps=steps
        )

    y = d.reshape(part(x, 1, 0, height, 1, "y"), (count, half, 2, width), f"{name}_y_rows")
    chroma = part(x, 1, height, height + half, 1, "uv")
    if interleaved:
        pairs = d.reshape(chroma, (count, half, width // 2, 2), f"{name}_pairs")
        planes = [part(pairs, 3, index, index + 1, 1, "uv"[index]) for index in range(2)]
    else:
        flat = d.reshape(chroma, (count, 2, quarter), f"{name}_flat")
        planes = [part(flat, 1, index, index + 1, 1, "uv"[index]) for index in range(2)]
    u, v = (
        d.reshape(plane, (count, half, 1, width // 2), f"{name}_{word}_rows")
        for plane, word in zip(planes, "uv", strict=True)
    )
    return y, u, v


def _chroma(d: Lowering, u: Tensor, v: Tensor, from_u: int, from_v: int, name: str) -> Tensor:
    """Append the part of a channel that U and V give, and the part that the smallest Y takes away."""
    parts = [
        _times(d, plane, factor, f"{name}_{word}")
        for plane, factor, word in ((u, from_u, "u"), (v, from_v, "v"))
        if factor
    ]
    total = parts[0] if len(parts) == 1 else binary(d, "Add", parts[0], parts[1], u.shape, "si32", f"{name}_uv")
    offset = -BLACK * Y_TO_RGB - GRAY * (from_u + from_v)
    return binary(d, "Add", total, _number(d, offset, f"{name}_offset"), u.shape, "si32", f"{name}_centered")


def _times(d: Lowering, x: Tensor, factor: int, name: str) -> Tensor:
    return binary(d, "Mul", x, _number(d, factor, f"{name}_factor"), x.shape, "si32", name)


def _number(d: Lowering, number: int, name: str) -> Tensor:
    return d.module.weight(np.full((1, 1, 1, 1), number, np.int32), "si32", name)
