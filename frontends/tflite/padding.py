"""PAD, PADV2, STABLEHLO_PAD and MIRROR_PAD."""

from __future__ import annotations

from tpuconvert.frontends.tflite.node import TfliteNode, tflite_op
from tpuconvert.schema.errors import INVALID_NODE, UNSUPPORTED_ATTRIBUTE
from tpuconvert.schema.graph import Graph, Value
from tpuconvert.schema.ops.pad import Pad, PadType
from tpuconvert.schema.types import Scalar


def _paddings(node: TfliteNode) -> tuple[int, ...]:
    """Before and after, axis by axis."""
    paddings = node.ints(1)
    if len(paddings) != 2 * node.rank(0) or min(paddings, default=0) < 0:
        raise node.fail(INVALID_NODE, f"paddings {list(paddings)} for the shape {list(node.shape(0))}")
    return paddings


@tflite_op("PAD", "PADV2")
def pad(node: TfliteNode, g: Graph) -> Value:
    """Pad with a number; without one it is 0, which in a quantized tensor is the zero point."""
    x = node.input(0)
    number = node.scalar(2) if node.has_input(2) else 0.0
    value = Scalar.f32(number) if x.dtype.is_float else Scalar(x.dtype, int(number))
    return g.add(Pad(pad_val=value, paddings=_paddings(node)), x)


@tflite_op("STABLEHLO_PAD")
def stablehlo_pad(node: TfliteNode, g: Graph) -> Value:
    """Pad with a constant number on both sides; padding between elements and cutting are not supported."""
    low, high = node.option("edge_padding_low", ()), node.option("edge_padding_high", ())
    inner = node.option("interior_padding", ())
    if any(inner) or min((*low, *high), default=0) < 0 or len(low) != len(high) or len(low) != node.rank(0):
        message = f"edge_padding_low={list(low)}, edge_padding_high={list(high)}, interior_padding={list(inner)}"
        raise node.fail(UNSUPPORTED_ATTRIBUTE, message, "supported: both edges, 0 or more")
    x = node.input(0)
    number = node.scalar(1)
    value = Scalar.f32(number) if x.dtype.is_float else Scalar(x.dtype, int(number))
    return g.add(Pad(pad_val=value, paddings=tuple(n for pair in zip(low, high, strict=True) for n in pair)), x)


@tflite_op("MIRROR_PAD")
def mirror_pad(node: TfliteNode, g: Graph) -> Value:
    """Pad with the mirrored picture, without (REFLECT) or with (SYMMETRIC) its border."""
    modes = (PadType.PAD_REFLECT, PadType.PAD_SYMMETRIC)
    number = node.option("mode")
    if not 0 <= number < len(modes):
        raise node.fail(INVALID_NODE, f"mode is {number}")
    x = node.input(0)
    return g.add(Pad(pad_val=Scalar(x.dtype, 0), paddings=_paddings(node), pad_mode=modes[number]), x)
