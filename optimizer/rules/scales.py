"""Folding of a per-channel scale and bias into linear operators, next to them or across a few other operators.

``optimizer.affine`` has the algebra per operator. With y = k * x + b per channel:

- ``linear(k * x + b; W, B) -> linear(x; k * W, B + b * W)``, unless padding is between them. This folds the input
  normalization of many networks, and normalizations without a linear operator before them. A permute may be in between,
  as after a channels-last input.
- ``linear(x; W, B) * k + b -> linear(x; W * k, B * k + b)``. A reshape may be in between if the channels stay the
  second axis or become the last one; any reshape if k and b are scalars, as for queries of attention that are split
  into heads.
- After a channel concat of linear operators, each of them gets the slice of k and b of its channels.
- Before a concat that a linear operator uses, k and b of all branches are concatenated; they are 1 and 0 for branches
  without a scale.
- pad(k * x + b, v) = k * pad(x, u) + b with k * u + b = v, if u is the same for all channels.
- When [N, C, ...] is flattened to [N, C * ...], k and b are repeated for every element of a channel.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from tpuconvert.optimizer.engine.annotations import rounds
from tpuconvert.optimizer.engine.engine import Replacement, Skip, rule
from tpuconvert.optimizer.engine.node_properties import computed_operands, concatenates_channels
from tpuconvert.optimizer.engine.pattern import Match, Pattern, p
from tpuconvert.optimizer.rules.affine import Affine, fold_affine_after, fold_affine_before, is_affine, read_affine
from tpuconvert.schema.definition.op import Trait
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.ops.batch_norm import BatchNorm
from tpuconvert.schema.ops.concat import Concat
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.pad import Pad, PadType
from tpuconvert.schema.ops.permute import Permute
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.types import F32, Scalar

SCALED = p(Trait.AFFINE, name="op", sole_user=True, where=is_affine)


def _affine_of(x: Pattern) -> tuple[Pattern, Pattern]:
    """Patterns of a scale and bias of x, with the constant as second or as first operand."""
    return p(Trait.AFFINE, x, name="op", where=is_affine), p(Trait.AFFINE, "C", x, name="op", where=is_affine)


def _as_results(m: Match, result: Value) -> Replacement:
    """Return the replacement of the matched scale. The results of a batch norm after the first one are unused."""
    return (result, None, None) if isinstance(m.op.op, BatchNorm) else result


@rule(
    p(Trait.LINEAR, SCALED, "W", name="linear"),
    p(Trait.LINEAR, p(Permute, SCALED, name="permute", sole_user=True), "W", name="linear"),
    stage="fold",
)
def fold_scale_into_next_linear(graph: Graph, m: Match) -> Replacement:
    """Fold a per-channel scale and bias into the linear operator that follows."""
    affine = read_affine(graph, m.op, m.permute.op.order[1] if m.binds("permute") else 1)
    if isinstance(affine, Skip):
        return affine
    (x,) = computed_operands(m.op)
    if m.binds("permute"):
        quant = x.quant
        x = graph.add(m.permute.op, x, name=f"{m.permute.output.name}:unscaled")
        x.quant = quant
    return fold_affine_before(graph, m.linear, x, affine)


LINEAR = p(Trait.LINEAR, "x", "W", name="linear", sole_user=True)


@rule(*_affine_of(LINEAR), *_affine_of(p(Reshape, LINEAR, name="reshape", sole_user=True)), stage="fold")
def fold_scale_into_previous_linear(graph: Graph, m: Match) -> Replacement:
    """Fold a batch norm, a bias or a per-channel scale into the linear operator before it."""
    axis = _channel_axis(m.linear, m.reshape) if m.binds("reshape") else 1
    if axis is None and Trait.UNARY not in m.op.op.traits:
        return Skip("the reshape mixes channels")
    affine = _for_all_channels(graph, m) if axis is None else read_affine(graph, m.op, axis)
    if isinstance(affine, Skip):
        return affine
    name = f"{m.op.outputs[0].name}:reshaped" if m.binds("reshape") else None
    folded = fold_affine_after(graph, m.linear, affine, name)
    if isinstance(folded, Skip):
        return folded
    return _as_results(m, graph.add(m.reshape.op, folded) if m.binds("reshape") else folded)


def _for_all_channels(graph: Graph, m: Match) -> Affine | Skip:
    """Return k and b of a scalar scale for every output channel of the linear operator; the reshape does not matter."""
    affine, channels = read_affine(graph, m.op, -1), m.linear.outputs[0].shape[1]
    if isinstance(affine, Skip) or not isinstance(channels, int) or not affine.k.size:
        return affine if isinstance(affine, Skip) else Skip("the number of channels is dynamic")
    return Affine(np.full(channels, affine.k[0]), np.full(channels, affine.b[0]))


def _channel_axis(linear: Node, reshape: Node) -> int | None:
    """Return the axis of the reshaped result that contains the output channels, or None if they are not one axis."""
    before, after = linear.outputs[0].shape, reshape.outputs[0].shape
    if before[:2] == after[:2]:
        return 1
    return len(after) - 1 if len(before) == 2 and before[1] == after[-1] else None


def _concatenates_linears(node: Node) -> bool:
    producers = [value.producer for value in node.inputs if value is not None]
    return concatenates_channels(node) and all(
        item is not None and Trait.LINEAR in item.op.traits and not rounds(item) for item in producers
    )


@rule(*_affine_of(p(Concat, name="concat", sole_user=True, where=_concatenates_linears)), stage="fold")
def fold_scale_through_concat(graph: Graph, m: Match) -> Replacement:
    """Fold the scale and bias after a concat into the linear operators before it."""
    affine = read_affine(graph, m.op, 1)
    if isinstance(affine, Skip):
        return affine
    branches: list[Value] = []
    begin = 0
    for value in m.concat.inputs:
        if not graph.is_sole_use(value):
            return Skip("a linear operator has other users")
        end = begin + value.shape[1]
        part = Affine(affine.k[begin:end], affine.b[begin:end])
        folded = fold_affine_after(graph, value.producer, part, f"{value.name}:scaled")
        if isinstance(folded, Skip):
            return folded
        branches.append(folded)
        begin = end
    return _as_results(m, graph.add(m.concat.op, *branches))


def _scaled_branches(node: Node) -> list[Node]:
    producers = [value.producer for value in node.inputs if value is not None and len(value.uses) == 1]
    return [item for item in producers if item is not None and is_affine(item)]


def _concatenates_scaled(node: Node) -> bool:
    return concatenates_channels(node) and bool(_scaled_branches(node))


@rule(
    p(Trait.LINEAR, p(Concat, name="concat", sole_user=True, where=_concatenates_scaled), "W", name="linear"),
    stage="fold",
)
def fold_branch_scales_into_linear(graph: Graph, m: Match) -> Replacement:
    """Fold the scales of concatenated branches into the linear operator after the concat."""
    scaled = _scaled_branches(m.concat)
    branches: list[Value] = []
    parts: list[Affine] = []
    for value in m.concat.inputs:
        extent = value.shape[1]
        if not isinstance(extent, int):
            return Skip("the number of channels is dynamic")
        part = Affine(np.ones(extent), np.zeros(extent))
        if value.producer in scaled:
            if graph.is_output(value) or rounds(value.producer):
                return Skip("a scaled branch is a graph output or is quantized")
            affine = read_affine(graph, value.producer, 1)
            if isinstance(affine, Skip):
                return affine
            part = affine
            (value,) = computed_operands(value.producer)
        branches.append(value)
        parts.append(part)
    joined = graph.add(m.concat.op, *branches, name=f"{m.concat.output.name}:unscaled")
    return fold_affine_before(graph, m.linear, joined, Affine(*map(np.concatenate, zip(*parts, strict=True))))


def _is_constant_pad(node: Node) -> bool:
    return isinstance(node.op, Pad) and node.op.pad_mode is PadType.PAD_CONSTANT and node.outputs[0].dtype is F32


def _read_at_pad(graph: Graph, m: Match) -> Affine | Skip:
    """Read the scale and bias next to a pad, which must not pad the batch or channel axis."""
    affine = read_affine(graph, m.op, 1)
    if not isinstance(affine, Skip) and any(m.pad.op.paddings[:4]):
        return Skip("it pads the batch or channel axis")
    return affine


def _with_value(pad: Pad, number: float) -> Pad:
    return dataclasses.replace(pad, pad_val=Scalar.f32(number))


def _pad_value_before(affine: Affine, pad_value: float) -> float | None:
    """Return the pad value before the scale, or None if it differs between channels."""
    if not affine.k.size or not affine.k.all():
        return None
    values = (pad_value - affine.b) / affine.k
    number = float(np.float32(values[0]))
    exact = np.abs(affine.k * number + affine.b - pad_value) <= 2.0**-22 * np.maximum(np.abs(affine.b), abs(pad_value))
    return number if math.isfinite(number) and exact.all() else None


@rule(p(Conv, p(Pad, SCALED, name="pad", where=_is_constant_pad, sole_user=True), "W", name="linear"), stage="fold")
def fold_scale_into_conv_after_pad(graph: Graph, m: Match) -> Replacement:
    """Fold the scale and bias before a pad into the conv after it, and adapt the pad value."""
    affine = _read_at_pad(graph, m)
    if isinstance(affine, Skip):
        return affine
    number = _pad_value_before(affine, m.pad.op.pad_val.value)
    if number is None:
        return Skip("the pad value would differ between channels")
    (x,) = computed_operands(m.op)
    padded = graph.add(_with_value(m.pad.op, number), x, name=f"{m.pad.name}:unscaled")
    return fold_affine_before(graph, m.linear, padded, affine)


PADDED = p(Pad, p(Conv, "x", "W", name="linear", sole_user=True), name="pad", where=_is_constant_pad, sole_user=True)


@rule(*_affine_of(PADDED), stage="fold")
def fold_scale_into_conv_before_pad(graph: Graph, m: Match) -> Replacement:
    """Fold the scale and bias after a pad into the conv before it, and adapt the pad value."""
    affine = _read_at_pad(graph, m)
    if isinstance(affine, Skip):
        return affine
    pad_values = (affine.k * m.pad.op.pad_val.value + affine.b).astype(np.float32)
    if not pad_values.size or (pad_values != pad_values[0]).any() or not np.isfinite(pad_values[0]):
        return Skip("the pad value would differ between channels")
    folded = fold_affine_after(graph, m.linear, affine, f"{m.op.outputs[0].name}:unpadded")
    if isinstance(folded, Skip):
        return folded
    return _as_results(m, graph.add(_with_value(m.pad.op, float(pad_values[0])), folded))


@rule(p(MatrixMul, p(Reshape, SCALED, name="reshape", sole_user=True), "W", name="linear"), stage="fold")
def fold_scale_through_flatten(graph: Graph, m: Match) -> Replacement:
    """Fold the scale and bias before a flatten into the fully connected layer after it."""
    (x,) = computed_operands(m.op)
    flat = m.reshape.output
    if x.rank < 2 or not x.type.is_static or not flat.type.is_static or 0 in x.shape:
        return Skip("its shape is dynamic")
    if flat.shape != (x.shape[0], math.prod(x.type.static_shape[1:])):
        return Skip("the reshape does more than flatten one sample")
    affine = read_affine(graph, m.op, 1)
    if isinstance(affine, Skip):
        return affine
    each = math.prod(x.type.static_shape[2:])
    flattened = graph.add(m.reshape.op, x, name=f"{flat.name}:unscaled")
    return fold_affine_before(graph, m.linear, flattened, Affine(np.repeat(affine.k, each), np.repeat(affine.b, each)))
