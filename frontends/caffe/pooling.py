"""Pooling over windows."""

from tpuconvert.frontends.caffe.arithmetic import product, reshaped
from tpuconvert.frontends.caffe.node import CaffeNode, caffe_op
from tpuconvert.frontends.caffe.parameters import Parameters
from tpuconvert.schema.errors import INVALID_NODE
from tpuconvert.schema.graph import Graph, Value
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.pool import Pool, PoolType

_STOCHASTIC = "stochastic pooling has no operator"


@caffe_op("Pooling")
def pooling(node: CaffeNode, g: Graph) -> Value:
    """Maximum or average of windows; the output extent is rounded up, and an average counts the padding."""
    p = node.params("pooling_param")
    _image_shape(node)
    if len(node.output_names) > 1:
        raise node.fail("a second top, for the positions of maxima", "no operator gives them: remove it")
    kind = _pool_type(node, p)
    if p.flag("global_pooling"):
        p.ignore("kernel_size", "kernel_h", "kernel_w", "round_mode", "ceil_mode")  # the window is the whole plane
        if any(p.whole(name) for name in ("pad", "pad_h", "pad_w")) or _strides(p) != (1, 1):
            raise node.fail("pad and stride with global_pooling", "remove them: the window is the whole plane")
        op = Pool(
            stride_h=1,
            stride_w=1,
            kernel_h=node.shape(0)[2],
            kernel_w=node.shape(0)[3],
            pooling_type=kind,
            is_global_pooling=True,
        )
        return g.add(op, node.input(0))
    kernel = _kernel(node, p)
    strides = _strides(p)
    by_axis = p.has("pad_h") or p.has("pad_w")
    pads = (p.whole("pad_h"), p.whole("pad_w")) if by_axis else (p.whole("pad"), p.whole("pad"))
    if min(kernel) < 1 or min(strides) < 1:
        raise node.fail("kernel_size and stride must be 1 or more", kind=INVALID_NODE)
    if pads[0] >= kernel[0] or pads[1] >= kernel[1]:
        raise node.fail(f"pad {list(pads)} must be below the kernel {list(kernel)}", kind=INVALID_NODE)
    op = Pool(
        stride_h=strides[0],
        stride_w=strides[1],
        pad_h=pads[0],
        pad_w=pads[1],
        kernel_h=kernel[0],
        kernel_w=kernel[1],
        pooling_type=kind,
        is_ceil_mode=_rounds_up(p),
        is_ave_count_zero_pad=True,
        ensure_pool_image=any(pads),  # Caffe drops a window that begins behind the image only where there is padding
    )
    return g.add(op, node.input(0))


def _image_shape(node: CaffeNode) -> tuple[int, ...]:
    shape = node.shape(0)
    if len(shape) != 4:
        raise node.fail(f"an input of shape {list(shape)}", "supported: four axes, NCHW", INVALID_NODE)
    return shape


def _pool_type(node: CaffeNode, p: Parameters) -> PoolType:
    method = p.choice("pool")
    if method == "STOCHASTIC":
        raise node.fail("pool: STOCHASTIC", f"{_STOCHASTIC}; supported: MAX, AVE")
    return PoolType[method]


def _kernel(node: CaffeNode, p: Parameters) -> tuple[int, int]:
    if p.has("kernel_h") or p.has("kernel_w"):
        return p.whole("kernel_h"), p.whole("kernel_w")
    p.require("kernel_size")
    return p.whole("kernel_size"), p.whole("kernel_size")


def _strides(p: Parameters) -> tuple[int, int]:
    if p.has("stride_h") or p.has("stride_w"):
        return p.whole("stride_h"), p.whole("stride_w")
    return p.whole("stride"), p.whole("stride")


def _rounds_up(p: Parameters) -> bool:
    """Caffe names the rounding, forks say it with a truth value."""
    return p.flag("ceil_mode") if p.has("ceil_mode") else p.choice("round_mode") == "CEIL"


@caffe_op("SPP")
def spatial_pyramid(node: CaffeNode, g: Graph) -> Value:
    """Pooling into 1, 4, 16 ... bins, all of them one behind the other as [batch, features]."""
    p = node.params("spp_param")
    kind, levels = _pool_type(node, p), p.whole("pyramid_height")
    batch, _, height, width = _image_shape(node)
    if levels < 1 or 2 ** (levels - 1) > min(height, width):
        raise node.fail(f"pyramid_height {levels} for {height} x {width}", kind=INVALID_NODE)
    parts = []
    for level in range(levels):
        bins = 2**level
        kernel = (-(-height // bins), -(-width // bins))
        pads = ((kernel[0] * bins - height + 1) // 2, (kernel[1] * bins - width + 1) // 2)
        op = Pool(
            stride_h=kernel[0],
            stride_w=kernel[1],
            pad_h=pads[0],
            pad_w=pads[1],
            kernel_h=kernel[0],
            kernel_w=kernel[1],
            pooling_type=kind,
            is_ceil_mode=True,
            ensure_pool_image=any(pads),
        )
        part = g.add(op, node.input(0))
        parts.append(reshaped(g, part, (batch, product(part.type.static_shape[1:]))))
    return parts[0] if levels == 1 else g.add(Concat(1), *parts)
