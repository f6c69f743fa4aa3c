"""Pooling over windows."""

import math

import numpy as np

from tpuconvert.frontends import emit
from tpuconvert.frontends.caffe.arithmetic import scale_by, shift_by
from tpuconvert.frontends.caffe.node import CaffeNode, Tiling, caffe_op
from tpuconvert.frontends.caffe.parameters import Parameters
from tpuconvert.frontends.registry import Kind
from tpuconvert.schema.errors import INVALID_NODE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops import formulas
from tpuconvert.schema.ops.arithmetic import Add, Div
from tpuconvert.schema.ops.extract import Extract
from tpuconvert.schema.ops.ordering import Arg
from tpuconvert.schema.ops.pad import Pad
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.pool import Pool, PoolType
from tpuconvert.schema.ops.quantization.round_to_integer import Floor
from tpuconvert.schema.ops.selection import ConditionSelect
from tpuconvert.schema.types import F32, Scalar

_STOCHASTIC = "STOCHASTIC"
_SMALLEST = float(np.finfo(np.float32).tiny)
_LOWEST = float(np.finfo(np.float32).min)


@caffe_op("Pooling", kind=Kind.DIRECT)
def pooling(node: CaffeNode, g: Graph) -> list[Value]:
    """Max or average pooling; output extents are rounded up by default, and averages include the padding.

    A second top contains the index of each maximum in its flattened plane.
    """
    p = node.params("pooling_param")
    height, width = node.image_shape()[2:]
    method = p.choice("pool")
    if p.flag("global_pooling"):
        p.ignore("kernel_size", "kernel_h", "kernel_w", "round_mode", "ceil_mode")  # the window is the whole plane
        if any(p.whole(name) for name in ("pad", "pad_h", "pad_w")) or p.pair("stride") != (1, 1):
            raise node.fail("pad and stride with global_pooling", "remove them: the window is the whole plane")
        op = Pool(
            stride_h=1,
            stride_w=1,
            kernel_h=height,
            kernel_w=width,
            pooling_type=_operator(method),
            is_global_pooling=True,
        )
        strides, pads = (height, width), (0, 0)
    else:
        strides, pads = p.pair("stride"), p.pair("pad")
        op = _windows(node, p, _operator(method), strides, pads)
    y = pool(g, node.input(0), op, method)
    if _begins_after_plane(op, (height, width), y.type.static_shape[2:]):
        y = _with_empty_windows(node, g, y, method)
    if len(node.output_names) == 1:
        return [y]
    if method != "MAX" or any(pads) or (op.kernel_h, op.kernel_w) != strides:
        text = f"a second top, for the positions of maxima, with pool {method}, stride {list(strides)}"
        raise node.fail(text, "supported: MAX, without pad, windows that touch (kernel_size = stride)")
    return [y, _positions(node, g, Tiling(strides, (height, width)), y.type.static_shape)]


def _begins_after_plane(op: Pool, plane: tuple[int, ...], result: tuple[int, ...]) -> bool:
    """Return True if rounding up adds windows that begin after the end of the plane; with padding Caffe drops them."""
    last = ((result[0] - 1) * op.stride_h, (result[1] - 1) * op.stride_w)
    return not (op.pad_h or op.pad_w) and any(start >= extent for start, extent in zip(last, plane, strict=True))


def _with_empty_windows(node: CaffeNode, g: Graph, y: Value, method: str) -> Value:
    """Handle empty windows: their maximum is Caffe's lowest value; their average (0 / 0) is reported as an error."""
    if method == "AVE":
        text = "its last window begins past the end of the image: an average of no elements"
        raise node.fail(text, "choose round_mode: FLOOR, or a kernel that is not below the stride", INVALID_NODE)
    if method == "MAX":
        note = f"layer '{node.name}' (Pooling) has windows past the image; their maximum is {_LOWEST:.3g}, as in Caffe"
        node.notes.append(note)
        return emit.maxs(g, y, _LOWEST)
    return y


def _windows(node: CaffeNode, p: Parameters, kind: PoolType, strides: tuple[int, int], pads: tuple[int, int]) -> Pool:
    if not (p.has("kernel_h") or p.has("kernel_w")):
        p.require("kernel_size")
    kernel = p.pair("kernel_size", "kernel")
    if min(kernel) < 1 or min(strides) < 1:
        raise node.fail("kernel_size and stride must be 1 or more", kind=INVALID_NODE)
    if pads[0] >= kernel[0] or pads[1] >= kernel[1]:
        raise node.fail(f"pad {list(pads)} must be below the kernel {list(kernel)}", kind=INVALID_NODE)
    if any(pads) and p.choice("pool") == _STOCHASTIC:
        raise node.fail(f"pad {list(pads)} with pool STOCHASTIC", "supported: MAX and AVE with pad", INVALID_NODE)
    return _pool_op(kind, kernel, strides, pads, ceil_mode=_rounds_up(p))


def _pool_op(
    kind: PoolType, kernel: tuple[int, int], strides: tuple[int, int], pads: tuple[int, int], *, ceil_mode: bool
) -> Pool:
    return Pool(
        stride_h=strides[0],
        stride_w=strides[1],
        pad_h=pads[0],
        pad_w=pads[1],
        kernel_h=kernel[0],
        kernel_w=kernel[1],
        pooling_type=kind,
        is_ceil_mode=ceil_mode,
        is_ave_count_zero_pad=True,
        ensure_pool_image=any(pads),  # only with padding does Caffe drop a window that begins after the image
    )


def _operator(method: str) -> PoolType:
    return PoolType.MAX if method == "MAX" else PoolType.AVE


def pool(g: Graph, x: Value, op: Pool, method: str) -> Value:
    """Pool by a method. STOCHASTIC at inference is ``sum(x * x) / sum(x)`` of a window.

    The result is 0 where sum(x) is not positive; the method is meant for x >= 0, as after a ReLU.
    """
    if method != _STOCHASTIC:
        return g.add(op, x)
    means = g.add(op, x)
    weighted = g.add(Div(), g.add(op, formulas.square(g, x)), emit.maxs(g, means, _SMALLEST))
    return g.add(ConditionSelect(), means, weighted, g.constant(np.zeros(1, np.float32), "none"))


def _positions(node: CaffeNode, g: Graph, tiling: Tiling, result: tuple[int, ...]) -> Value:
    """Position of the first maximum of every window, as ``row * width + column`` in its plane."""
    (rows, columns), (height, width) = tiling.window, tiling.plane
    batch, channels, down, along = result
    x = node.input(0)
    missing = max(down * rows - height, 0), max(along * columns - width, 0)
    if any(missing):
        x = g.add(Pad(Scalar.f32(_LOWEST), (0, 0, 0, 0, 0, missing[0], 0, missing[1])), x)
    covered = (batch, channels, down * rows, along * columns)
    if x.shape != covered:  # if the output extent was rounded down, the last rows or columns belong to no window
        x = g.add(Extract((0,) * 4, covered, (1,) * 4), x)
    split = emit.reshape(g, x, (batch, channels, down, rows, along, columns))
    windows = emit.reshape(g, g.add(Permute((0, 1, 2, 4, 3, 5)), split), (batch, channels, down, along, rows * columns))
    inside = emit.reshape(g, g.add(Arg(4, out_dtype=F32), windows), result)
    row = g.add(
        Floor(), scale_by(g, shift_by(g, inside, 0.5), 1 / columns)
    )  # 0.5 keeps rounding errors of the quotient from crossing an integer
    offset = g.add(Add(), inside, scale_by(g, row, width - columns))
    node.budget((down, along), "windows")
    start = np.arange(down)[:, None] * rows * width + np.arange(along) * columns
    positions = g.add(Add(), offset, node.constant(start[None, None], "windows"))
    node.findings.tilings[positions] = tiling
    return positions


def _rounds_up(p: Parameters) -> bool:
    """Return True if output extents are rounded up: ``ceil_mode`` in Caffe forks, ``round_mode`` in Caffe."""
    return p.flag("ceil_mode") if p.has("ceil_mode") else p.choice("round_mode") == "CEIL"


@caffe_op("SPP")
def spatial_pyramid(node: CaffeNode, g: Graph) -> Value:
    """Pool into 1, 4, 16, ... bins (one count per level) and concatenate all bins as [batch, features]."""
    p = node.params("spp_param")
    method, levels = p.choice("pool"), p.whole("pyramid_height")
    batch, _, height, width = node.image_shape()
    if method == _STOCHASTIC:
        raise node.fail("pool: STOCHASTIC", "supported: MAX, AVE; Caffe has no padding for it", INVALID_NODE)
    if not 1 <= levels <= min(height, width).bit_length():  # 2 ** (levels - 1) bins
        raise node.fail(f"pyramid_height {levels} for {height} x {width}", kind=INVALID_NODE)
    parts = []
    for level in range(levels):
        bins = 2**level
        kernel = (-(-height // bins), -(-width // bins))
        pads = ((kernel[0] * bins - height + 1) // 2, (kernel[1] * bins - width + 1) // 2)
        op = _pool_op(_operator(method), kernel, kernel, pads, ceil_mode=True)
        part = g.add(op, node.input(0))
        parts.append(emit.reshape(g, part, (batch, math.prod(part.type.static_shape[1:]))))
    return emit.concat(g, parts, 1)
