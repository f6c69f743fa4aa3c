"""Conv with one to three spatial axes, and functions for the windows of convolution and pooling.

One spatial axis is converted as two with height 1. Three axes use conv3d.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tpuconvert.frontends import emit
from tpuconvert.frontends.cannot_convert import CannotConvertError
from tpuconvert.frontends.onnx.node import OnnxNode, onnx_op
from tpuconvert.frontends.registry import Kind
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.errors import UNSUPPORTED_ATTRIBUTE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.convolution.conv3d import Conv3d

AUTO_PADS = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")


class Window(NamedTuple):
    """Window of a convolution or pooling: one entry per spatial axis; pads are (before, after)."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    auto_pad: str


def read_window(node: OnnxNode, kernel: Sequence[int], *, has_dilations: bool = True) -> Window:
    """Read the attributes of a sliding window, with defaults for missing ones.

    Raises:
        CannotConvertError: lengths or values are invalid.
    """
    axes = len(kernel)
    strides = node.ints_attr("strides") or (1,) * axes
    dilations = (node.ints_attr("dilations") if has_dilations else None) or (1,) * axes
    pads = node.ints_attr("pads") or (0,) * (2 * axes)
    auto_pad = node.choice("auto_pad", "NOTSET", AUTO_PADS) or "NOTSET"
    if not len(strides) == len(dilations) == axes or len(pads) != 2 * axes:
        raise node.invalid(f"{len(strides)} strides, {len(dilations)} dilations, {len(pads)} pads for {axes} axes")
    if min((*kernel, *strides, *dilations)) < 1:
        raise node.invalid(f"kernel {list(kernel)}, strides {list(strides)}, dilations {list(dilations)}")
    if auto_pad != "NOTSET":
        pads = (0,) * (2 * axes)
    return Window(tuple(kernel), strides, dilations, tuple(zip(pads[:axes], pads[axes:], strict=True)), auto_pad)


def split_total(total: int, auto_pad: str) -> tuple[int, int]:
    """Split the SAME padding of one axis: an odd element goes after the data, with SAME_LOWER before."""
    small, large = total // 2, total - total // 2
    return (large, small) if auto_pad == "SAME_LOWER" else (small, large)


def resolved_pads(window: Window, extents: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Pads per axis for an input with these extents, after evaluating ``auto_pad``."""
    if not window.auto_pad.startswith("SAME"):
        return window.pads
    pads = []
    for axis, extent in enumerate(extents):
        reach = (window.kernel[axis] - 1) * window.dilations[axis] + 1
        steps = -(-extent // window.strides[axis]) - 1
        total = steps * window.strides[axis] + reach - extent
        if total < -1:
            message = f"auto_pad={window.auto_pad} with the stride {window.strides[axis]} over windows of {reach}"
            hint = "frameworks begin such windows at different elements; write pads instead of auto_pad"
            raise CannotConvertError(UNSUPPORTED_ATTRIBUTE, f"{message} of extent {extent}", hint)
        pads.append(split_total(max(total, 0), window.auto_pad))
    return tuple(pads)


def check_channels(node: OnnxNode, channels: int, weight: Sequence[int], groups: int, transposed: bool) -> None:
    """Check the channels of input and weight against the number of groups.

    Raises:
        CannotConvertError: they do not match.
    """
    expected = weight[0] if transposed else weight[1] * groups
    divided = weight[0] if not transposed else channels
    if groups < 1 or expected != channels or divided % groups:
        raise node.invalid(f"{channels} input channels, weight {list(weight)} and group={groups} do not match")


def kernel_of(node: OnnxNode, x_at: int = 0, w_at: int = 1) -> tuple[int, ...]:
    """Extents of the kernel, from the shape of the weight."""
    weight = node.shape(w_at)
    rank = node.rank(x_at)
    if len(weight) != rank or not 3 <= rank <= 5:
        raise node.fail(
            UNSUPPORTED_ATTRIBUTE,
            f"an input of rank {rank} with a weight of rank {len(weight)}",
            "supported: one to three spatial axes",
        )
    kernel = weight[2:]
    stated = node.ints_attr("kernel_shape")
    if stated is not None and stated != kernel:
        raise node.invalid(f"kernel_shape {list(stated)}, but the weight has {list(kernel)}")
    return kernel


def bias_of(node: OnnxNode, g: Graph, bias: Value | None, channels: int) -> Value | None:
    """Reshape the bias to [1, channels, 1, 1]."""
    if bias is None:
        return None
    if emit.extents(emit.floats(bias, "its bias")) != (channels,):
        raise node.invalid(f"bias {list(bias.shape)} for {channels} channels")
    return emit.reshape(g, bias, (1, channels, 1, 1))


def as_plane(g: Graph, x: Value) -> Value:
    """Reshape [N, C, W] to [N, C, 1, W]."""
    n, c, w = emit.extents(x)
    return emit.reshape(g, x, (n, c, 1, w))


def as_line(g: Graph, x: Value) -> Value:
    """Reshape [N, C, 1, W] to [N, C, W]."""
    n, c, _, w = emit.extents(x)
    return emit.reshape(g, x, (n, c, w))


@onnx_op("Conv", since=1, kind=Kind.DIRECT, limits="one to three spatial axes")
def conv(node: OnnxNode, g: Graph) -> Value:
    """Convolution; weight [oc, ic/groups, ...]."""
    x, w = emit.floats(node.input(0)), emit.floats(node.input(1), "its weight")
    return conv_values(node, g, x, w, node.optional(2), 0, 1)


def conv_values(node: OnnxNode, g: Graph, x: Value, w: Value, bias: Value | None, x_at: int, w_at: int) -> Value:
    """Add a convolution of the values of the node's inputs with the indices ``x_at`` (data) and ``w_at`` (weight)."""
    groups = node.attr("group", 1)
    window = read_window(node, kernel_of(node, x_at, w_at))
    check_channels(node, node.shape(x_at)[1], node.shape(w_at), groups, transposed=False)
    bias = bias_of(node, g, bias, node.shape(w_at)[0])
    return convolve(g, x, w, bias, window, resolved_pads(window, node.shape(x_at)[2:]), groups)


def convolve(
    g: Graph, x: Value, w: Value, bias: Value | None, window: Window, pads: tuple[tuple[int, int], ...], groups: int
) -> Value:
    """Add a convolution with one to three spatial axes; ``pads`` are final, negative ones crop."""
    axes = len(window.kernel)
    cuts = tuple((min(before, 0), min(after, 0)) for before, after in pads)
    if any(pair != (0, 0) for pair in cuts):
        for axis, (before, after) in enumerate(cuts):
            x = emit.slice_axis(g, x, 2 + axis, -before, emit.extents(x)[2 + axis] + after)
        pads = tuple((max(before, 0), max(after, 0)) for before, after in pads)
    if axes < 3:
        op = Conv(**plane_parameters(window.strides, window.dilations, pads, groups))
        if axes == 1:
            return as_line(g, add_convolution(g, op, as_plane(g, x), as_plane(g, w), bias))
        return add_convolution(g, op, x, w, bias)
    bias = None if bias is None else emit.reshape(g, bias, (1, emit.extents(w)[0], 1, 1, 1))
    flat = tuple(side for pair in pads for side in pair)
    settings: dict[str, Any] = {"groups": groups, "dilation": window.dilations, "pad": flat, "stride": window.strides}
    return add_convolution(g, Conv3d(**settings), x, w, bias)


def plane_parameters(
    strides: Sequence[int], dilations: Sequence[int], pads: Sequence[tuple[int, int]], groups: int
) -> dict[str, Any]:
    """Parameters of a convolution with two spatial axes. A single axis is the second one; the first has extent 1."""
    missing = 2 - len(strides)
    (dh, dw), (stride_h, stride_w) = (1,) * missing + tuple(dilations), (1,) * missing + tuple(strides)
    (top, bottom), (left, right) = ((0, 0),) * missing + tuple(pads)
    sides = {"pad_h_t": top, "pad_h_b": bottom, "pad_w_l": left, "pad_w_r": right}
    return {"dh": dh, "dw": dw, "stride_h": stride_h, "stride_w": stride_w, "groups": groups, **sides}


def add_convolution(g: Graph, op: Op, x: Value, w: Value, bias: Value | None) -> Value:
    """Add a convolution with or without a bias."""
    return g.add(op, x, w) if bias is None else g.add(op, x, w, bias)
