"""CONV_2D, DEPTHWISE_CONV_2D and TRANSPOSE_CONV."""

from __future__ import annotations

from tpuconvert.frontends import functions
from tpuconvert.frontends.registry import Kind
from tpuconvert.frontends.tflite import hybrid
from tpuconvert.frontends.tflite.layout import NCHW, Permuted
from tpuconvert.frontends.tflite.lowering import bias, window_padding
from tpuconvert.frontends.tflite.node import TfliteNode, tflite_op
from tpuconvert.schema.errors import INVALID_NODE
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.convolution.deconv import Deconv


def _conv(
    node: TfliteNode, g: Graph, order: tuple[int, ...], kernel: tuple[int, int], oc: int, groups: int
) -> Permuted:
    _, height, width, _ = node.shape(0)
    strides = node.option("stride_h"), node.option("stride_w")
    dilations = node.option("dilation_h_factor", 1), node.option("dilation_w_factor", 1)
    pads = window_padding(node, (height, width), kernel, strides, dilations)
    op = functions.plane_convolution(Conv, strides, dilations, pads, groups)
    weights = node.permute(1, order)
    # The kernels quantize activations symmetrically for a CONV_2D with one weight scale, otherwise asymmetrically.
    scales = node.quant(1)
    per_channel = node.op_type != "CONV_2D" or (scales is not None and scales.axis is not None)
    x = hybrid.round_activations(node, g, node.nchw(0), asymmetric=per_channel)
    y = g.add(op, x, weights, bias(node, 2, 0, 1, (1, oc, 1, 1)))
    return node.nhwc(node.activate(y))


@tflite_op("CONV_2D", kind=Kind.DIRECT)
def conv_2d(node: TfliteNode, g: Graph) -> Permuted:
    """Convolution; the number of groups is the ratio of data channels to weight channels."""
    node.ignore_option("quantized_bias_type")  # the accumulator width of the integer kernel
    channels = node.shape_of_rank(0, 4)[3]
    oc, kh, kw, ic = node.shape_of_rank(1, 4)
    if not ic or not channels or channels % ic or oc % (channels // ic):
        raise node.fail(INVALID_NODE, f"weights {list(node.shape(1))} do not fit {channels} channels")
    return _conv(node, g, NCHW, (kh, kw), oc, channels // ic)


@tflite_op("DEPTHWISE_CONV_2D", kind=Kind.DIRECT)
def depthwise_conv_2d(node: TfliteNode, g: Graph) -> Permuted:
    """Depthwise convolution; the output channels of one input channel are adjacent."""
    node.ignore_option("depth_multiplier")  # redundant: the weights have oc channels
    channels = node.shape_of_rank(0, 4)[3]
    one, kh, kw, oc = node.shape_of_rank(1, 4)
    if one != 1 or not channels or oc % channels:
        raise node.fail(INVALID_NODE, f"weights {list(node.shape(1))} do not fit {channels} channels")
    return _conv(node, g, (3, 0, 1, 2), (kh, kw), oc, channels)


@tflite_op("TRANSPOSE_CONV", kind=Kind.DIRECT, limits="a constant output shape")
def transpose_conv(node: TfliteNode, g: Graph) -> Permuted:
    """Transposed convolution; ``padding`` is the padding of the convolution from output to input."""
    node.ignore_option("quantized_bias_type")  # the accumulator width of the integer kernel
    _, out_h, out_w, out_c = _four(node, node.ints(0), "output shape")
    oc, kh, kw, ic = _four(node, node.shape(1), "weights")
    _, height, width, channels = _four(node, node.shape(2), "input")
    strides = node.option("stride_h"), node.option("stride_w")
    if oc != out_c or ic != channels or min(strides) < 1:
        raise node.fail(
            INVALID_NODE,
            f"weights {list(node.shape(1))}, input {list(node.shape(2))}, output {list(node.ints(0))}, "
            f"strides {list(strides)} do not fit",
        )
    pads = (*_crop(node, height, out_h, kh, strides[0]), *_crop(node, width, out_w, kw, strides[1]))
    op = functions.plane_convolution(Deconv, strides, (1, 1), pads)
    y = g.add(op, node.nchw(2), node.permute(1, (3, 0, 1, 2)), bias(node, 3, 2, 1, (1, oc, 1, 1)))
    return node.nhwc(node.activate(y))


def _crop(node: TfliteNode, extent: int, out: int, kernel: int, stride: int) -> tuple[int, int]:
    """Elements to crop before and after an axis of the full result; a negative second value adds bias elements."""
    full = (extent - 1) * stride + kernel
    before = functions.same_padding(out, kernel, stride)[0] if node.option("padding") == 0 else 0
    after = full - out - before
    if after < 0 and (after <= -stride or stride == 1):
        raise node.fail(INVALID_NODE, f"an output extent of {out} cannot come from {extent} with stride {stride}")
    return before, after


def _four(node: TfliteNode, numbers: tuple[int, ...], what: str) -> tuple[int, int, int, int]:
    if len(numbers) != 4:
        raise node.fail(INVALID_NODE, f"{what} {list(numbers)} must have rank 4")
    return numbers[0], numbers[1], numbers[2], numbers[3]
