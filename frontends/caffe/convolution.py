"""Convolution, deconvolution and what their parameters have in common."""

from dataclasses import dataclass

from tpuconvert.frontends.caffe.node import CaffeNode, caffe_op
from tpuconvert.frontends.caffe.parameters import Parameters
from tpuconvert.schema.errors import INVALID_NODE
from tpuconvert.schema.graph import Graph, Value
from tpuconvert.schema.ops.conv import Conv
from tpuconvert.schema.ops.deconv import Deconv


@dataclass(frozen=True)
class Window:
    """How a two-dimensional window moves: (height, width) of everything."""

    kernel: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, int]
    dilations: tuple[int, int]


@caffe_op("Convolution")
def convolution(node: CaffeNode, g: Graph) -> Value:
    """Two-dimensional convolution, grouped or not."""
    return _convolution(node, g, node.params("convolution_param").whole("group"))


@caffe_op("ConvolutionDepthwise", "DepthwiseConvolution", "DepthwiseConv")
def depthwise_convolution(node: CaffeNode, g: Graph) -> Value:
    """A convolution with one group per channel; forks leave ``group`` out."""
    p = node.params("convolution_param")
    channels = _image_shape(node)[1]
    if p.has("group") and p.whole("group") not in (1, channels):
        raise node.fail(f"group: {p.whole('group')}", f"supported: one group per channel ({channels})")
    return _convolution(node, g, channels)


def _convolution(node: CaffeNode, g: Graph, groups: int) -> Value:
    channels, filters = _image_shape(node)[1], node.params("convolution_param").whole("num_output")
    _check_groups(node, groups, channels, filters)
    return _apply(node, g, Conv, groups, (filters, channels // groups))


@caffe_op("Deconvolution")
def deconvolution(node: CaffeNode, g: Graph) -> Value:
    """Two-dimensional transposed convolution; its kernel is stored as [ic, oc / groups, kh, kw]."""
    p = node.params("convolution_param")
    channels, filters, groups = _image_shape(node)[1], p.whole("num_output"), p.whole("group")
    _check_groups(node, groups, channels, filters)
    return _apply(node, g, Deconv, groups, (channels, filters // groups))


def _apply(
    node: CaffeNode, g: Graph, operator: type[Conv] | type[Deconv], groups: int, kernel_channels: tuple[int, int]
) -> Value:
    p = node.params("convolution_param")
    window, filters = _window(node, p), p.whole("num_output")
    weight = node.weight(0, (*kernel_channels, *window.kernel), "kernel")
    operands = [node.input(0), node.constant(weight, "weight")]
    if p.flag("bias_term"):
        operands.append(node.constant(node.weight(1, (filters,), "bias").reshape(1, filters, 1, 1), "bias"))
    op = operator(
        dh=window.dilations[0],
        dw=window.dilations[1],
        pad_h_t=window.pads[0],
        pad_h_b=window.pads[0],
        pad_w_l=window.pads[1],
        pad_w_r=window.pads[1],
        stride_h=window.strides[0],
        stride_w=window.strides[1],
        groups=groups,
    )
    return g.add(op, *operands)


def _image_shape(node: CaffeNode) -> tuple[int, ...]:
    shape = node.shape(0)
    if len(shape) != 4:
        raise node.fail(f"an input of shape {list(shape)}", "supported: four axes, batch x channels x height x width")
    return shape


def _check_groups(node: CaffeNode, groups: int, channels: int, filters: int) -> None:
    if node.input_count != 1:
        text = f"{node.input_count} bottoms"
        raise node.fail(text, "give each input a layer of its own; name its 'param' entries to share weights")
    if filters < 1:
        raise node.fail("num_output is missing", "give it in the prototxt", INVALID_NODE)
    if groups < 1 or channels % groups or filters % groups:
        raise node.fail(f"{groups} groups do not divide {channels} channels and {filters} outputs", kind=INVALID_NODE)


def _window(node: CaffeNode, p: Parameters) -> Window:
    """Kernel, strides, pads and dilations; each given once, or per axis, or (not dilations) by name."""
    if p.whole("axis") not in (1, -3):
        raise node.fail(f"axis: {p.whole('axis')}", "supported: 1, the channel axis of four")
    kernel = _pair(node, p, "kernel_size", ("kernel_h", "kernel_w"), 0)
    if min(kernel) < 1:
        raise node.fail("kernel_size is missing", "give it in the prototxt", INVALID_NODE)
    strides = _pair(node, p, "stride", ("stride_h", "stride_w"), 1)
    dilations = _pair(node, p, "dilation", None, 1)
    if min(strides) < 1 or min(dilations) < 1:
        raise node.fail("stride and dilation must be 1 or more", kind=INVALID_NODE)
    return Window(kernel, strides, _pair(node, p, "pad", ("pad_h", "pad_w"), 0), dilations)


def _pair(node: CaffeNode, p: Parameters, name: str, by_axis: tuple[str, str] | None, default: int) -> tuple[int, int]:
    values = p.ints(name)
    if by_axis is not None and (p.has(by_axis[0]) or p.has(by_axis[1])):
        named = (p.whole(by_axis[0]), p.whole(by_axis[1]))
        if values and values != named and values * 2 != named:
            raise node.fail(f"{name} and {by_axis[0]}, {by_axis[1]} contradict each other", kind=INVALID_NODE)
        return named
    if not values:
        return (default, default)
    if len(values) > 2:
        raise node.fail(f"{len(values)} values of {name} for two axes", kind=INVALID_NODE)
    return (values[0], values[-1])
