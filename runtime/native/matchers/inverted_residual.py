"""Inverted residual: expansion, depthwise conv and projection as one step, band by band of rows.

The step avoids the memory traffic of the expanded tensor. See int8/blocks/inverted_residual.h.
"""

from __future__ import annotations

from math import prod

from tpuconvert.runtime.native.builder.builder import Builder, Group
from tpuconvert.runtime.native.builder.storage import channels_last
from tpuconvert.runtime.native.matchers.convolution import Geometry, Image
from tpuconvert.runtime.native.matchers.epilogue import EPILOGUE_OPS
from tpuconvert.runtime.native.matchers.linear_int import LINEAR_OPS, LinearOp, convolution_spec, temporary_image
from tpuconvert.runtime.native.matchers.matcher import Site, ends_with, names_of
from tpuconvert.runtime.native.matchers.residual import FusedConv, conv_ending_at, conv_of, conv_with_residual
from tpuconvert.schema.graph.graph import Node, Value, static

LEAST_BYTES = 256 * 1024
"""Smaller operands of a depthwise conv stay in the second-level cache without fusion."""

ISAS = ("scalar", "avx512vnni", "amx")
"""Instruction sets whose kernels compute a conv by rows."""


@ends_with(
    *names_of(*LINEAR_OPS, *EPILOGUE_OPS),
    kernels=("inverted_residual_int8", "conv_int8", "conv_int8_winograd", "elementwise_int"),
    dtypes="INT8, UINT8",
    conditions=(
        f"1x1 conv, depthwise conv and 1x1 conv of images, each with an 8-bit result, perhaps with a residual add; the "
        f"first conv is optional; the operand of the depthwise conv has at least {LEAST_BYTES >> 10} KB; kernels of "
        "the single convs on AVX2 and AVX-VNNI"
    ),
    priority=25,
)
def inverted_residual(node: Node, site: Site) -> Group | None:
    """Match a projection, the depthwise conv before it, and the expansion before that."""
    if site.isa not in ISAS:
        return None
    projection = conv_with_residual(node, site) or conv_ending_at(node, site)
    if projection is None or not _is_pointwise(projection.conv):
        return None
    depthwise = conv_of(projection.conv.x, site)
    if depthwise is None or not _is_depthwise(depthwise.conv):
        return None
    if prod(static(depthwise.conv.x.shape)) < LEAST_BYTES:
        return None
    expansion = conv_of(depthwise.conv.x, site)
    if expansion is not None and not _is_pointwise(expansion.conv):
        expansion = None
    stages = [stage for stage in (expansion, depthwise, projection) if stage is not None]
    result = node.outputs[0]
    if any(stage.conv.shape != shape for stage, shape in zip(stages, _shapes(stages, result), strict=True)):
        return None
    return Group(
        tuple(item for stage in stages for item in stage.nodes),
        lambda builder: _emit(builder, stages, result),
        tuple(part for stage in stages for part in stage.parts),
    )


def _shapes(stages: list[FusedConv], result: Value) -> list[tuple[int, ...]]:
    """Shapes of the results of the stages after fused reshapes."""
    return [static(value.shape) for value in (*(stage.conv.x for stage in stages[1:]), result)]


def _is_pointwise(conv: LinearOp) -> bool:
    return conv.weights.shape[2:] == (1, 1) and conv.geometry == Geometry()


def _is_depthwise(conv: LinearOp) -> bool:
    return conv.geometry.groups == static(conv.x.shape)[1] == len(conv.weights) > 1 and conv.weights.shape[1] == 1


def _emit(builder: Builder, stages: list[FusedConv], result: Value) -> None:
    x = builder.read(stages[0].conv.x, channels_last(4), dense=False)
    y = builder.write(result, channels_last(4), dense=False)
    # The intermediate tensors exist only as bands, so no step uses their buffers.
    between = [temporary_image(builder, each.conv.x.dtype, static(each.conv.x.shape)) for each in stages[1:]]
    images = [Image.of(stored) for stored in (x, *between, y)]
    specs, reads = [], [x]
    for stage, source, target in zip(stages, images, images[1:], strict=False):
        conv = stage.conv
        spec, _, other = convolution_spec(builder, conv, source, target, conv.weights, conv.geometry, stage.residual)
        specs.append(spec)
        reads += [] if other is None else [other]
    expansion, depthwise, projection = specs if len(specs) == 3 else (None, *specs)
    spec = builder.native.InvertedResidualSpec(expansion=expansion, depthwise=depthwise, projection=projection)
    builder.step("inverted_residual_int8", spec, reads, (y,))
