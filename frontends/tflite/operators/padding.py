"""PAD, PADV2, STABLEHLO_PAD and MIRROR_PAD."""

from __future__ import annotations

from tpuconvert.frontends.registry import Kind
from tpuconvert.frontends.tflite.node import TfliteNode, tflite_op
from tpuconvert.frontends.tflite.operators.gather import insert_between, number_like, pad_or_crop
from tpuconvert.schema.errors import INVALID_NODE
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.pad import Pad, PadType
from tpuconvert.schema.types import Scalar


def _paddings(node: TfliteNode) -> tuple[int, ...]:
    """Paddings in the order of the Pad operator: (before, after) of each axis."""
    paddings = node.ints(1)
    if len(paddings) != 2 * node.rank(0) or min(paddings, default=0) < 0:
        raise node.fail(INVALID_NODE, f"paddings {list(paddings)} for the shape {list(node.shape(0))}")
    return paddings


@tflite_op("PAD", "PADV2", kind=Kind.DIRECT, limits="constant paddings")
def pad(node: TfliteNode, g: Graph) -> Value:
    """Pad with a constant, by default 0; in a quantized tensor, this is the dequantized value."""
    x = node.input(0)
    number, paddings = node.scalar(2) if node.has_input(2) else 0.0, _paddings(node)
    return g.add(Pad(pad_val=number_like(x, number), paddings=paddings), x) if paddings else x


@tflite_op("STABLEHLO_PAD")
def stablehlo_pad(node: TfliteNode, g: Graph) -> Value:
    """Insert a constant between elements, and pad with it; negative pads crop."""
    lists = [node.option(name, ()) for name in ("edge_padding_low", "edge_padding_high", "interior_padding")]
    if any(len(numbers) != node.rank(0) for numbers in lists) or min(lists[2], default=0) < 0:
        low, high, inner = map(list, lists)
        message = f"edge_padding_low={low}, edge_padding_high={high}, interior_padding={inner}"
        raise node.fail(INVALID_NODE, f"{message} for the shape {list(node.shape(0))}")
    number = node.scalar(1)
    grown = insert_between(g, node.input(0), tuple(n + 1 for n in lists[2]), number)
    return pad_or_crop(g, grown, lists[0], lists[1], number)


@tflite_op("MIRROR_PAD", kind=Kind.DIRECT)
def mirror_pad(node: TfliteNode, g: Graph) -> Value:
    """Pad by reflection, without (REFLECT) or with (SYMMETRIC) the edge elements."""
    modes = (PadType.PAD_REFLECT, PadType.PAD_SYMMETRIC)
    number = node.option("mode")
    if not 0 <= number < len(modes):
        raise node.fail(INVALID_NODE, f"mode is {number}")
    x, paddings = node.input(0), _paddings(node)
    return g.add(Pad(pad_val=Scalar(x.dtype, 0), paddings=paddings, pad_mode=modes[number]), x) if paddings else x
