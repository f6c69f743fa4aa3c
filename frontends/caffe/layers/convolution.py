"""Convolution, deconvolution and im2col layers, and their common window parameters."""

import math
from dataclasses import dataclass

import numpy as np

from tpuconvert.frontends import emit, functions
from tpuconvert.frontends.caffe.fillers import CONSTANT, Filler, filler_of
from tpuconvert.frontends.caffe.node import CaffeNode, caffe_op
from tpuconvert.frontends.caffe.parameters import Parameters
from tpuconvert.frontends.registry import Kind
from tpuconvert.schema.errors import INVALID_NODE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.arithmetic import Add
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.convolution.conv3d import Conv3d
from tpuconvert.schema.ops.convolution.deconv import Deconv
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.types import Array

_PLANE, _VOLUME = 2, 3
"""Numbers of spatial axes that the TPU operators have. A single spatial axis is converted as a plane of width 1."""


@dataclass(frozen=True)
class Window:
    """Geometry of a window: each field has one entry per spatial axis."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]

    def last(self, count: int) -> "Window":
        """The window restricted to its last ``count`` axes."""
        return Window(self.kernel[-count:], self.strides[-count:], self.pads[-count:], self.dilations[-count:])

    def only(self, axis: int) -> "Window":
        """The window restricted to one axis, extended by a second axis with kernel extent 1."""
        return Window((self.kernel[axis], 1), (self.strides[axis], 1), (self.pads[axis], 0), (self.dilations[axis], 1))


@dataclass(frozen=True)
class _Filters:
    """Learned tensors of a convolution, its window and its number of groups."""

    window: Window
    groups: int
    kernel: Array
    bias: Array | None


@caffe_op("Convolution", "ConvolutionData", kind=Kind.DIRECT)
def convolution(node: CaffeNode, g: Graph) -> list[Value]:
    """Convolution over one, two or three spatial axes; all bottoms use the same kernel."""
    return _convolution(node, g, node.params("convolution_param").whole("group"))


@caffe_op("ConvolutionDepthwise", "DepthwiseConvolution", "DepthwiseConv", kind=Kind.DIRECT)
def depthwise_convolution(node: CaffeNode, g: Graph) -> list[Value]:
    """Convolution with one group per channel; Caffe forks omit the parameter ``group``."""
    p = node.params("convolution_param")
    channels = _image_shape(node)[1]
    if p.has("group") and p.whole("group") not in (1, channels):
        raise node.fail(f"group: {p.whole('group')}", f"supported: one group per channel ({channels})")
    return _convolution(node, g, channels)


def _convolution(node: CaffeNode, g: Graph, groups: int) -> list[Value]:
    channels, count = _image_shape(node)[1], node.params("convolution_param").whole("num_output")
    _check_groups(node, groups, channels, count)
    filters = _filters(node, groups, (count, channels // groups))
    convolve = _convolve_volume if len(filters.window.kernel) == _VOLUME else _convolve_plane
    constants = _constants(node, filters)
    return [convolve(g, x, filters, constants) for x in node.inputs]


@caffe_op("Deconvolution", "DeconvolutionDepthwise", kind=Kind.DIRECT)
def deconvolution(node: CaffeNode, g: Graph) -> list[Value]:
    """Transposed convolution over one, two or three spatial axes, with a stored kernel [ic, oc / groups, ...]."""
    p = node.params("convolution_param")
    channels, count, groups = _image_shape(node)[1], p.whole("num_output"), p.whole("group")
    _check_groups(node, groups, channels, count)
    filters = _filters(node, groups, (channels, count // groups))
    if len(filters.window.kernel) == _VOLUME:
        return [_deconvolve_volume(node, g, x, filters, count) for x in node.inputs]
    constants = _constants(node, filters)
    return [_convolve_plane(g, x, filters, constants, Deconv) for x in node.inputs]


def _filters(node: CaffeNode, groups: int, channels: tuple[int, int]) -> _Filters:
    p = node.params("convolution_param")
    window = read_window(node, p)
    kernel = node.weight(0, (*channels, *window.kernel), "kernel", filler_of(p, "weight_filler"))
    bias = None
    if p.flag("bias_term"):
        bias = node.weight(1, (p.whole("num_output"),), "bias", filler_of(p, "bias_filler", Filler(CONSTANT)))
    return _Filters(window, groups, kernel, bias)


def _constants(node: CaffeNode, filters: _Filters) -> list[Value]:
    kernel = filters.kernel if filters.kernel.ndim > _PLANE + 1 else filters.kernel[..., None]
    operands = [node.constant(kernel, "weight")]
    if filters.bias is not None:
        operands.append(node.constant(filters.bias.reshape(1, -1, *(1,) * (kernel.ndim - 2)), "bias"))
    return operands


def _convolve_plane(
    g: Graph, x: Value, filters: _Filters, constants: list[Value], operator: type[Conv] | type[Deconv] = Conv
) -> Value:
    """Convolve two spatial axes; a single spatial axis is extended by a unit axis, which is removed afterwards."""
    shape = x.type.static_shape
    is_line = len(shape) == _PLANE + 1
    op = plane_operator(filters.window.only(0) if is_line else filters.window, filters.groups, operator)
    y = g.add(op, emit.reshape(g, x, (*shape, 1)) if is_line else x, *constants)
    return emit.reshape(g, y, y.type.static_shape[:3]) if is_line else y


def plane_operator(window: Window, groups: int, operator: type[Conv] | type[Deconv] = Conv) -> Conv | Deconv:
    """Conv or deconv operator with a two-dimensional window."""
    top, left = window.pads
    return functions.plane_convolution(operator, window.strides, window.dilations, (top, top, left, left), groups)


def _convolve_volume(g: Graph, x: Value, filters: _Filters, constants: list[Value]) -> Value:
    (front, top, left) = filters.window.pads
    (dd, dh, dw), (sd, sh, sw) = filters.window.dilations, filters.window.strides
    pads = (front, front, top, top, left, left)
    return g.add(Conv3d(filters.groups, (dd, dh, dw), pads, (sd, sh, sw)), x, *constants)


def _deconvolve_volume(node: CaffeNode, g: Graph, x: Value, filters: _Filters, count: int) -> Value:
    """Decompose a 3-D deconv into a 2-D deconv of the planes and a deconv along the depth axis.

    The first deconv computes one channel per filter and depth index of the kernel. The second one adds each of these
    channels at its depth offset: its kernel is 1 at that offset and 0 elsewhere.
    """
    window, kernel = filters.window, filters.kernel
    batch, channels, depth, height, width = x.type.static_shape
    taps = window.kernel[0]
    planes = emit.reshape(g, g.add(Permute((0, 2, 1, 3, 4)), x), (batch * depth, channels, height, width))
    flat = node.constant(kernel.reshape(channels, -1, *window.kernel[1:]), "weight")
    spread = g.add(plane_operator(window.last(_PLANE), filters.groups, Deconv), planes, flat)
    rows, columns = spread.type.static_shape[2:]
    columns_first = emit.reshape(g, spread, (batch, depth, count * taps, rows * columns))
    one_hot = np.tile(np.eye(taps, dtype=np.float32), (count, 1)).reshape(count * taps, 1, taps, 1)
    op = plane_operator(window.only(0), count, Deconv)
    stacked = g.add(op, g.add(Permute((0, 2, 1, 3)), columns_first), node.constant(one_hot, "places"))
    y = emit.reshape(g, stacked, (batch, count, stacked.type.static_shape[2], rows, columns))
    if filters.bias is None:
        return y
    return g.add(Add(), y, node.constant(filters.bias.reshape(1, count, 1, 1, 1), "bias"))


@caffe_op("Im2col")
def im2col(node: CaffeNode, g: Graph) -> Value:
    """Copy each window to a column of channels, by a depthwise convolution with one-hot kernels."""
    p = node.params("convolution_param")
    channels = _image_shape(node)[1]
    window = read_window(node, p)
    if len(window.kernel) != _PLANE:
        raise node.fail(f"an input of shape {list(node.shape(0))}", "supported: four axes, NCHW")
    size = math.prod(window.kernel)
    node.budget((channels * size, size), "kernels of single places")
    single = np.tile(np.eye(size, dtype=np.float32), (channels, 1)).reshape(channels * size, 1, *window.kernel)
    return g.add(plane_operator(window, channels), node.input(0), node.constant(single, "places"))


def _image_shape(node: CaffeNode) -> tuple[int, ...]:
    shape = node.shape(0)
    if not 3 <= len(shape) <= _VOLUME + 2:
        text = "supported: batch x channels x one, two or three spatial axes"
        raise node.fail(f"an input of shape {list(shape)}", text)
    return shape


def _check_groups(node: CaffeNode, groups: int, channels: int, filters: int) -> None:
    shapes = {node.shape(index) for index in range(node.input_count)}
    if len(shapes) != 1:
        raise node.fail(f"bottoms of shape {' and '.join(map(str, map(list, shapes)))}", kind=INVALID_NODE)
    if filters < 1:
        raise node.fail("num_output is missing", "give it in the prototxt", INVALID_NODE)
    if groups < 1 or channels % groups or filters % groups:
        raise node.fail(f"{groups} groups do not divide {channels} channels and {filters} outputs", kind=INVALID_NODE)


def read_window(node: CaffeNode, p: Parameters) -> Window:
    """Read kernel, strides, pads and dilations.

    Each is given once for all axes or once per axis. All but dilations may instead have separate ``_h`` and ``_w``
    parameters.
    """
    rank = len(node.shape(0))
    if node.axis(p.whole("axis"), rank) != 1:
        raise node.fail(f"axis: {p.whole('axis')}", "supported: 1, the channel axis")
    count = rank - 2
    kernel = _per_axis(node, p, "kernel_size", ("kernel_h", "kernel_w"), 0, count)
    if min(kernel) < 1:
        raise node.fail("kernel_size is missing", "give it in the prototxt", INVALID_NODE)
    strides = _per_axis(node, p, "stride", ("stride_h", "stride_w"), 1, count)
    dilations = _per_axis(node, p, "dilation", None, 1, count)
    if min(strides) < 1 or min(dilations) < 1:
        raise node.fail("stride and dilation must be 1 or more", kind=INVALID_NODE)
    return Window(kernel, strides, _per_axis(node, p, "pad", ("pad_h", "pad_w"), 0, count), dilations)


def _per_axis(
    node: CaffeNode, p: Parameters, name: str, by_axis: tuple[str, str] | None, default: int, count: int
) -> tuple[int, ...]:
    values = p.ints(name)
    if by_axis is not None and (p.has(by_axis[0]) or p.has(by_axis[1])):
        if count != _PLANE:
            text = f"{by_axis[0]} and {by_axis[1]} with {count} spatial axes"
            raise node.fail(text, f"give {name} once per axis", INVALID_NODE)
        named = (p.whole(by_axis[0]), p.whole(by_axis[1]))
        if values and values != named and values * 2 != named:
            raise node.fail(f"{name} and {by_axis[0]}, {by_axis[1]} contradict each other", kind=INVALID_NODE)
        return named
    if not values:
        return (default,) * count
    if len(values) not in (1, count):
        raise node.fail(f"{len(values)} values of {name} for {count} axes", kind=INVALID_NODE)
    return values if len(values) == count else values * count
